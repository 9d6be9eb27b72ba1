//! `qfq`: quick fair queueing. Shares by weight with almost the fairness of WF2Q+, at a cost that
//! does not depend on the number of classes.
//!
//! Source: F. Checconi, L. Rizzo and P. Valente, "QFQ: Efficient Packet Scheduling with Tight
//! Guarantees", IEEE/ACM ToN 21(3), 2013; dummynet's QFQ (`dn_sched_qfq`).
//!
//! Classes with about the same ratio of longest packet to weight form a group. Group i has slots of
//! `2^i` units of virtual time, and a class is in the slot of its start time S, rounded down. A
//! group is as eligible as its first slot. Groups are in one of four sets - eligible or not, and
//! *blocked* or not by an eligible group of larger slots that finishes earlier. Each set is a
//! 32-bit word, so that a few bit operations find the next class and keep all sets up to date.
//! Timestamps have 30 fraction bits and are compared modulo 2^64.
//!
//! 1. Virtual time advances by length over the weights of all open classes (paper: of all flows).
//! 2. A packet that is longer than its class's `lmax` raises the `lmax` to the next power of two,
//!    and the class changes its group as if it had been idle. dummynet sends such a packet with
//!    broken timestamps. Bytes beyond 1 MiB in one packet are not charged.
//! 3. Classes of one slot take turns; dummynet serves the one that arrived last. The bounds hold
//!    for any order.
//! 4. If an AQM drops the head, the packet behind it takes its turn and is charged at its own
//!    length, at most `lmax`.
//! 5. When a group that blocked others is served, each of them is checked again. dummynet unblocks
//!    all of them at once, and can then serve a group before one that finishes earlier.
//! 6. There are 32 groups, so that weights 1 to 2^16 and lengths up to 1 MiB all have their own;
//!    dummynet has 20 for lengths up to 2048. The sum of weights is at most 2^17, as in dummynet: a
//!    class that would exceed it is refused.
//!
//! Bounds (the paper's section on service properties): the worst-case fair index of class i in
//! bytes is `a_i = 3 w_i s_i + 2 L w_i / W`, with L the longest packet of all, W the sum of weights
//! and `s_i` the slot length of its group; `w_i s_i` is less than `2 lmax_i`, unless the group is
//! the first. A packet that finds q bytes of its class, its own included, has left when the link
//! has sent `(q + a_i) W / w_i` bytes. Costs O(1).

use alloc::vec::Vec;

use super::allocated;
use super::classful::{Classed, ClassedParams, Order, Share, ShareDecl, ShareError, ShareRange};
use super::fifo::FifoParams;
use super::ring::{Links, Ring};
use super::virtual_time::Virtual;

/// The scheduler.
pub type Qfq = Classed<QfqOrder>;

/// The first class of the eligible, unblocked group with the smallest slots.
pub struct QfqOrder {
    flows: Vec<Flow>,
    links: Links,
    groups: [Group; GROUPS],
    /// The groups in each [`Set`].
    sets: [u32; 4],
    now: Virtual,
    /// The fraction that `now` lacks: remainder of a division by `weight_sum`.
    carry: u64,
    /// Weights of all open classes.
    weight_sum: u64,
}

#[derive(Clone, Copy, Default)]
struct Flow {
    start: Virtual,
    finish: Virtual,
    weight: u32,
    max_len: u32,
    group: u8,
    is_active: bool,
}

#[derive(Clone, Copy)]
struct Group {
    /// Start of the first slot that has a class.
    start: Virtual,
    /// `start` plus two slots: when its classes will have finished.
    finish: Virtual,
    /// Index of the slot that begins at `start`.
    front: u32,
    /// The slots that have classes, counted from `front`.
    occupied: u32,
    slots: [Ring; SLOTS as usize],
}

/// The state of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Set {
    EligibleReady = 0,
    IneligibleReady = 1,
    EligibleBlocked = 2,
    IneligibleBlocked = 3,
}

/// Fraction bits of a virtual time.
const FRACTION: u32 = 30;
const MAX_WEIGHT: u32 = 1 << 16;
const MAX_WEIGHT_SUM: u64 = 1 << 17;
/// 16 of the longest super-packets.
const MAX_LEN: u32 = 1 << 20;
const GROUPS: usize = 32;
const SLOTS: u32 = 32;
/// Slot length of group 0, as a power of two. It gives the last group the slots of the longest
/// packet at weight 1. A class that would fit shorter slots is in group 0.
const FIRST_SLOT: u32 = FRACTION + MAX_LEN.ilog2() - (GROUPS as u32 - 1);

impl Virtual {
    /// Returns the start of the slot of `2^shift` units in which this time lies.
    #[inline]
    const fn rounded(self, shift: u32) -> Virtual {
        Virtual(self.0 & !((1 << shift) - 1))
    }
}

impl Flow {
    #[inline]
    fn span(&self, len: u32) -> u64 {
        // L / w is at most the slot length, on which the bounds and the slots rely.
        (u64::from(len.min(self.max_len)) << FRACTION) / u64::from(self.weight)
    }

    const fn shift(&self) -> u32 {
        FIRST_SLOT + self.group as u32
    }
}

impl Order for QfqOrder {
    type Params = ClassedParams;
    const DOC: &'static str = "quick fair queueing: shares by weight at constant cost";
    const SHARE: ShareDecl = ShareDecl {
        weight: ShareRange::new(1, MAX_WEIGHT),
        max_len: Some(ShareRange::wider_than((1, 2000), 1, MAX_LEN)),
    };

    fn new(_params: &ClassedParams) -> Self {
        QfqOrder {
            flows: Vec::new(),
            links: Links::default(),
            groups: [Group::EMPTY; GROUPS],
            sets: [0; 4],
            now: Virtual(0),
            carry: 0,
            weight_sum: 0,
        }
    }

    fn memory(&self) -> usize {
        allocated(&self.flows) + self.links.memory()
    }

    fn limits(params: &ClassedParams) -> FifoParams {
        params.limits()
    }

    fn open(&mut self, id: u32, share: Share) -> Result<(), ShareError> {
        self.weight_sum = self.checked_sum(0, share)?;
        if self.flows.len() <= id as usize {
            self.flows.resize(id as usize + 1, Flow::default());
        }
        self.links.reserve(id);
        self.flows[id as usize] = Flow {
            start: self.now,
            finish: self.now,
            weight: share.weight,
            max_len: share.max_len,
            group: group_of(share.weight, share.max_len),
            is_active: false,
        };
        Ok(())
    }

    fn set_share(&mut self, id: u32, share: Share, head: Option<u32>) -> Result<(), ShareError> {
        let old = self.flows[id as usize].weight;
        self.weight_sum = self.checked_sum(old, share)?;
        self.carry = self.carry.min(self.weight_sum - 1);
        self.deactivate(id);
        let flow = &mut self.flows[id as usize];
        flow.weight = share.weight;
        flow.max_len = share.max_len;
        flow.group = group_of(share.weight, share.max_len);
        if let Some(head) = head {
            self.activate(id, head);
        }
        Ok(())
    }

    fn close(&mut self, id: u32) {
        self.deactivate(id);
        self.weight_sum -= u64::from(self.flows[id as usize].weight);
        self.carry = self.carry.min(self.weight_sum.saturating_sub(1));
    }

    fn activate(&mut self, id: u32, head: u32) {
        self.fit(id, head);
        self.flows[id as usize].start = self.restart(id);
        let flow = &mut self.flows[id as usize];
        flow.finish = flow.start.plus(flow.span(head));
        flow.is_active = true;
        let (shift, index) = (flow.shift(), flow.group);
        let rounded = flow.start.rounded(shift);
        let group = &mut self.groups[usize::from(index)];
        if group.occupied != 0 {
            if flow.start < group.start {
                // Its first slot becomes an earlier one. Starts are at V or later, so the group was
                // not eligible.
                if group.turn_back(rounded, shift) {
                    self.leave_sets(index);
                    self.join_sets(index, rounded);
                } else {
                    flow.start = group.start;
                }
            }
        } else {
            if self.in_set(Set::EligibleReady) == 0 && rounded > self.now {
                self.now = rounded;
            }
            self.join_sets(index, rounded);
        }
        self.insert(id);
    }

    fn next(&mut self) -> Option<u32> {
        let index = self.in_set(Set::EligibleReady).trailing_zeros();
        let group = self.groups.get(index as usize)?;
        group.slots[group.front as usize].first()
    }

    fn served(&mut self, id: u32, len: u32, head: Option<u32>) {
        let before = self.now;
        let advance = (u64::from(len.min(MAX_LEN)) << FRACTION) + self.carry;
        self.now = self.now.plus(advance / self.weight_sum);
        self.carry = advance % self.weight_sum;

        let flow = &mut self.flows[id as usize];
        flow.finish = flow.start.plus(flow.span(len));
        let index = flow.group;
        self.take_out(id);
        match head {
            Some(head) if head <= self.flows[id as usize].max_len => {
                let flow = &mut self.flows[id as usize];
                flow.start = flow.finish;
                flow.finish = flow.start.plus(flow.span(head));
                self.insert(id);
            }
            _ => self.flows[id as usize].is_active = false,
        }
        let group = &mut self.groups[usize::from(index)];
        match group.first() {
            None => {
                self.sets[Set::EligibleReady as usize] &= !(1 << index);
                self.unblock(index);
            }
            Some(first) => {
                let start = self.flows[first as usize]
                    .start
                    .rounded(FIRST_SLOT + u32::from(index));
                if start != group.start {
                    self.leave_sets(index);
                    self.join_sets(index, start);
                    self.unblock(index);
                }
            }
        }
        self.update_eligible(before);
        if let Some(head) = head.filter(|_| !self.flows[id as usize].is_active) {
            self.activate(id, head);
        }
    }

    fn head_dropped(&mut self, id: u32, head: Option<u32>) {
        match head {
            Some(head) if head <= self.flows[id as usize].max_len => {
                let flow = &mut self.flows[id as usize];
                flow.finish = flow.start.plus(flow.span(head));
            }
            Some(head) => {
                self.deactivate(id);
                self.activate(id, head);
            }
            None => self.deactivate(id),
        }
    }
}

impl QfqOrder {
    fn checked_sum(&self, old: u32, share: Share) -> Result<u64, ShareError> {
        let sum = self.weight_sum - u64::from(old) + u64::from(share.weight);
        if sum > MAX_WEIGHT_SUM {
            return Err(ShareError::WeightSum {
                sum,
                high: MAX_WEIGHT_SUM,
            });
        }
        Ok(sum)
    }

    fn in_set(&self, set: Set) -> u32 {
        self.sets[set as usize]
    }

    /// Moves an inactive class to a group that fits a head of `head` bytes.
    #[inline]
    fn fit(&mut self, id: u32, len: u32) {
        let flow = &mut self.flows[id as usize];
        if len > flow.max_len && flow.max_len < MAX_LEN {
            flow.max_len = len.min(MAX_LEN).next_power_of_two();
            flow.group = group_of(flow.weight, flow.max_len);
        }
    }

    /// Returns the start time of a class that becomes active: V, or its F if that is ahead. F is
    /// ahead by no more than a slot; if it seems further ahead, it is left over from before a wrap
    /// of the clock.
    #[inline]
    fn restart(&self, id: u32) -> Virtual {
        let flow = &self.flows[id as usize];
        let shift = flow.shift();
        let limit = self.now.rounded(shift).plus(1 << shift);
        if flow.finish > self.now && flow.finish.rounded(shift) <= limit {
            flow.finish
        } else {
            self.now
        }
    }

    /// Puts an active class into the slot of its S.
    #[inline]
    fn insert(&mut self, id: u32) {
        let flow = &mut self.flows[id as usize];
        let shift = flow.shift();
        let group = &mut self.groups[usize::from(flow.group)];
        let ahead = flow.start.rounded(shift).0.wrapping_sub(group.start.0) >> shift;
        // At most two slots ahead while weights do not change (paper: timestamps are globally
        // bounded). When the weight of others changes V may lag; the class is then held where there
        // is a slot.
        let slot = ahead.min(u64::from(SLOTS - 2)) as u32;
        if u64::from(slot) < ahead {
            flow.start = Virtual(
                flow.start
                    .0
                    .wrapping_sub((ahead - u64::from(slot)) << shift),
            );
        }
        let ring = &mut group.slots[((group.front + slot) % SLOTS) as usize];
        self.links.push_back(ring, id);
        group.occupied |= 1 << slot;
    }

    /// Removes an active class from its slot.
    #[inline]
    fn take_out(&mut self, id: u32) {
        let flow = &self.flows[id as usize];
        let shift = flow.shift();
        let group = &mut self.groups[usize::from(flow.group)];
        let slot = (flow.start.rounded(shift).0.wrapping_sub(group.start.0) >> shift) as u32;
        let ring = &mut group.slots[((group.front + slot) % SLOTS) as usize];
        self.links.remove(ring, id);
        if ring.is_empty() {
            group.occupied &= !(1 << slot);
        }
    }

    /// Removes a class that was not served: closed, changed, or emptied by its AQM. That is rare,
    /// so all sets are rebuilt.
    fn deactivate(&mut self, id: u32) {
        if !core::mem::replace(&mut self.flows[id as usize].is_active, false) {
            return;
        }
        let index = self.flows[id as usize].group;
        self.take_out(id);
        // The class was not served for the packet that is gone.
        let flow = &mut self.flows[id as usize];
        flow.finish = flow.start;
        let group = &mut self.groups[usize::from(index)];
        if let Some(first) = group.first() {
            let shift = FIRST_SLOT + u32::from(index);
            let start = self.flows[first as usize].start.rounded(shift);
            group.start = start;
            group.finish = start.plus(2 << shift);
        }
        self.rebuild_sets();
    }

    /// Rebuilds all sets. If no group is eligible, V jumps to the first start.
    #[cold]
    fn rebuild_sets(&mut self) {
        let active = self.groups.iter().filter(|g| g.occupied != 0);
        if let Some(start) = active.map(|g| g.start).min() {
            self.now = self.now.max(start);
        }
        self.sets = [0; 4];
        // Larger slots first: a group is blocked by eligible groups above it.
        for index in (0..GROUPS as u8).rev() {
            if self.groups[usize::from(index)].occupied != 0 {
                self.sets[self.set_of(index) as usize] |= 1 << index;
            }
        }
    }

    /// Returns the set of a group, from its times and the groups of larger slots.
    #[inline]
    fn set_of(&self, index: u8) -> Set {
        let group = &self.groups[usize::from(index)];
        let larger = self.in_set(Set::EligibleReady) & !(u32::MAX >> (31 - u32::from(index)));
        let next = self.groups.get(larger.trailing_zeros() as usize);
        let is_blocked = next.is_some_and(|next| next.finish < group.finish);
        match (group.start > self.now, is_blocked) {
            (false, false) => Set::EligibleReady,
            (true, false) => Set::IneligibleReady,
            (false, true) => Set::EligibleBlocked,
            (true, true) => Set::IneligibleBlocked,
        }
    }

    #[inline]
    fn leave_sets(&mut self, index: u8) {
        for set in &mut self.sets {
            *set &= !(1 << index);
        }
    }

    /// Adds a group that is in no set to the right one, with its first slot at `start`.
    #[inline]
    fn join_sets(&mut self, index: u8, start: Virtual) {
        let group = &mut self.groups[usize::from(index)];
        group.start = start;
        group.finish = start.plus(2 << (FIRST_SLOT + u32::from(index)));
        self.sets[self.set_of(index) as usize] |= 1 << index;
    }

    fn move_groups(&mut self, mask: u32, from: Set, to: Set) {
        let moved = self.sets[from as usize] & mask;
        self.sets[from as usize] &= !mask;
        self.sets[to as usize] |= moved;
    }

    /// Checks the groups that `index` blocked, which now finishes later or is gone. They are few,
    /// usually none: only a late group blocks others.
    #[inline]
    fn unblock(&mut self, index: u8) {
        let blocked = self.in_set(Set::EligibleBlocked) | self.in_set(Set::IneligibleBlocked);
        let mut smaller = blocked & ((1 << index) - 1);
        while smaller != 0 {
            // Larger slots first: a group that is unblocked may block those below it.
            let index = smaller.ilog2() as u8;
            smaller &= !(1 << index);
            self.leave_sets(index);
            self.sets[self.set_of(index) as usize] |= 1 << index;
        }
    }

    /// Makes groups whose first slot has begun eligible, after V has advanced from `before`. If no
    /// group is eligible, V jumps to the first start.
    #[inline]
    fn update_eligible(&mut self, before: Virtual) {
        let ineligible = self.in_set(Set::IneligibleReady) | self.in_set(Set::IneligibleBlocked);
        if ineligible == 0 {
            return;
        }
        if self.in_set(Set::EligibleReady) == 0 {
            let first = ineligible.trailing_zeros();
            self.now = self.now.max(self.groups[first as usize].start);
        }
        // Slot i of every group that has one between `before` and V: those up to the highest bit in
        // which the two differ. No group starts later than the end of the slot of V.
        let changed = (self.now.0 >> FIRST_SLOT) ^ (before.0 >> FIRST_SLOT);
        if changed != 0 {
            let highest = changed.ilog2().min(31);
            let begun = u32::MAX >> (31 - highest);
            self.move_groups(begun, Set::IneligibleReady, Set::EligibleReady);
            self.move_groups(begun, Set::IneligibleBlocked, Set::EligibleBlocked);
        }
        if self.in_set(Set::EligibleReady) == 0 {
            // Only after weights have changed under load, which the paper does not consider.
            self.rebuild_sets();
        }
    }
}

impl Group {
    const EMPTY: Group = Group {
        start: Virtual(0),
        finish: Virtual(0),
        front: 0,
        occupied: 0,
        slots: [Ring::EMPTY; SLOTS as usize],
    };

    /// Moves the front to the first slot that has a class and returns its first class.
    #[inline]
    fn first(&mut self) -> Option<u32> {
        if self.occupied == 0 {
            return None;
        }
        let ahead = self.occupied.trailing_zeros();
        self.front = (self.front + ahead) % SLOTS;
        self.occupied >>= ahead;
        self.slots[self.front as usize].first()
    }

    /// Moves the front back to the slot that begins at `start`, if there are enough slots: always,
    /// while weights do not change.
    fn turn_back(&mut self, start: Virtual, shift: u32) -> bool {
        let back = self.start.0.wrapping_sub(start.0) >> shift;
        if back > u64::from(self.occupied.leading_zeros()) {
            return false;
        }
        self.front = self.front.wrapping_sub(back as u32) % SLOTS;
        self.occupied <<= back;
        true
    }
}

/// Returns the group with the shortest slots that fit `max_len / weight`.
fn group_of(weight: u32, max_len: u32) -> u8 {
    let span = (u64::from(max_len) << FRACTION).div_ceil(u64::from(weight));
    let shift = u64::BITS - (span - 1).leading_zeros();
    shift.saturating_sub(FIRST_SLOT) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use alloc::string::ToString;

    #[test]
    fn the_shortest_slot_that_fits_is_chosen() {
        // Slots of group i are 2^(i + FIRST_SLOT - FRACTION) = 2^(i - 11) bytes per unit of weight.
        assert_eq!(group_of(1, 1024), 21);
        assert_eq!(group_of(1, 1025), 22);
        assert_eq!(group_of(2, 2048), 21);
        assert_eq!(group_of(1, MAX_LEN), 31);
        // 1 / 65536 byte is less than the first slot.
        assert_eq!(group_of(MAX_WEIGHT, 1), 0);
    }

    #[test]
    fn the_sum_of_weights_is_limited_and_given_back() {
        let mut order = QfqOrder::new(&ClassedParams::default());
        let share = |weight| Share {
            weight,
            ..Share::default()
        };
        order.open(0, share(MAX_WEIGHT)).unwrap();
        order.open(1, share(MAX_WEIGHT)).unwrap();
        let error = order.open(2, share(1)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the weights would add up to 131073, more than 131072"
        );
        order.set_share(1, share(10), None).unwrap();
        order.open(2, share(1)).unwrap();
        order.close(0);
        assert_eq!(order.weight_sum, 11);
    }

    /// Returns the sets that the word operations maintain, computed from the definitions.
    fn defined_sets(order: &QfqOrder) -> [u32; 4] {
        let mut fresh = [0; 4];
        for index in (0..GROUPS).rev() {
            let group = &order.groups[index];
            if group.occupied == 0 {
                continue;
            }
            let is_eligible = group.start <= order.now;
            let is_blocked = (index + 1..GROUPS).any(|larger| {
                fresh[Set::EligibleReady as usize] & (1u32 << larger) != 0
                    && order.groups[larger].finish < group.finish
            });
            fresh[usize::from(!is_eligible) + 2 * usize::from(is_blocked)] |= 1 << index;
        }
        fresh
    }

    #[test]
    fn the_sets_are_those_of_the_definition_over_random_service() {
        let mut rng = Rng::from_seed(3);
        let mut order = QfqOrder::new(&ClassedParams::default());
        let mut lens = [0u32; 40];
        let mut queued = [0u32; 40];
        for (id, len) in lens.iter_mut().enumerate() {
            let share = Share {
                weight: 1 << rng.below(10),
                max_len: 64 << rng.below(8),
            };
            *len = share.max_len;
            order.open(id as u32, share).unwrap();
        }
        for _ in 0..50_000 {
            let id = rng.below(40) as usize;
            if rng.chance(1 << 31) {
                if queued[id] == 0 {
                    order.activate(id as u32, 1 + rng.below(u64::from(lens[id])) as u32);
                }
                queued[id] += 1 + rng.below(3) as u32;
            } else if let Some(id) = order.next() {
                queued[id as usize] -= 1;
                let head = 1 + rng.below(u64::from(lens[id as usize])) as u32;
                let flow = &order.flows[id as usize];
                // The length that the finish time was computed for.
                let len = (flow.finish.0.wrapping_sub(flow.start.0) * u64::from(flow.weight))
                    .div_ceil(1 << FRACTION) as u32;
                order.served(id, len, (queued[id as usize] > 0).then_some(head));
            }
            assert_eq!(order.sets, defined_sets(&order));
            assert_eq!(order.next().is_some(), queued.iter().any(|n| *n > 0));
        }
    }

    #[test]
    fn changes_under_load_lose_nobody() {
        // Weights and lengths change, classes are closed and opened again, packets are longer than
        // promised: every active class is served.
        let mut rng = Rng::from_seed(4);
        let mut order = QfqOrder::new(&ClassedParams::default());
        let mut queued = [0u32; 20];
        let share = |rng: &mut Rng| Share {
            weight: 1 << rng.below(12),
            max_len: 1 << rng.below(17),
        };
        for id in 0..20 {
            let share = share(&mut rng);
            order.open(id, share).unwrap();
        }
        for _ in 0..50_000 {
            let id = rng.below(20) as usize;
            let len = 1 + rng.below(100_000) as u32;
            match rng.below(10) {
                0 => {
                    let head = (queued[id] > 0).then_some(len);
                    let share = share(&mut rng);
                    order.set_share(id as u32, share, head).unwrap();
                }
                1 => {
                    order.close(id as u32);
                    queued[id] = 0;
                    let share = share(&mut rng);
                    order.open(id as u32, share).unwrap();
                }
                2 if queued[id] > 0 => {
                    queued[id] -= 1;
                    order.head_dropped(id as u32, (queued[id] > 0).then_some(len));
                }
                3..=6 => {
                    if queued[id] == 0 {
                        order.activate(id as u32, len);
                    }
                    queued[id] += 1;
                }
                _ => {
                    if let Some(id) = order.next() {
                        queued[id as usize] -= 1;
                        order.served(id, len, (queued[id as usize] > 0).then_some(len));
                    }
                }
            }
            assert_eq!(order.next().is_some(), queued.iter().any(|n| *n > 0));
        }
        let mut left: u32 = queued.iter().sum();
        while let Some(id) = order.next() {
            queued[id as usize] -= 1;
            left -= 1;
            order.served(id, 1500, (queued[id as usize] > 0).then_some(1500));
        }
        assert_eq!(left, 0);
    }
}
