//! The queue of future events.
//!
//! A calendar of equal slots: an event within the horizon is added to the list of its slot, one
//! beyond it to a heap. The slot that time has reached is sorted, and its events are taken from the
//! end. A bitmap finds the next slot that is not empty. With at most some tens of events per slot,
//! an event costs the same among ten as among a million. Only the few timers far ahead cost the
//! logarithm of the heap.
//!
//! Events of the same instant fire in the order in which they were added.

use sluice_core::Time;
use sluice_core::prefetch;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A future event: a kind below 16 and an index of the host's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CalendarEvent {
    pub kind: u8,
    pub index: u32,
}

/// Some events of a slot, in a cache line: reading a slot costs one memory access for five events,
/// where a list of single events would cost one each.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Chunk {
    /// Offset in the slot, order of insertion and kind, from the highest bit down: sorting by it
    /// sorts by time and order.
    keys: [u64; CHUNK],
    indices: [u32; CHUNK],
    next: u32,
}

const CHUNK: usize = 5;
const _: () = assert!(size_of::<Chunk>() == 64);

/// The events of a slot: its first chunk, and the number of used places in this chunk. The other
/// chunks are full.
#[derive(Clone, Copy, Debug)]
struct Slot {
    chunk: u32,
    used: u32,
}

/// Future events.
#[derive(Debug)]
pub(crate) struct Calendar {
    /// The events of the current slot, latest first: keys and indices.
    current: Vec<(u64, u32)>,
    /// The number of that slot: time divided by the width of a slot, plus one, so that at first all
    /// events lie ahead.
    base: u64,
    /// The slots within the horizon.
    slots: Box<[Slot]>,
    occupied: Box<[u64]>,
    chunks: Vec<Chunk>,
    free: u32,
    /// Time, order and event of those beyond the horizon.
    far: BinaryHeap<Reverse<(u64, u64, CalendarEvent)>>,
    order: u64,
    waiting: usize,
    /// The next slot with events after the current one; [`u64::MAX`] for none.
    upcoming: u64,
    /// Whether no event of the current slot has been taken.
    is_fresh: bool,
    preview: Preview,
}

/// The position up to which [`Calendar::preview`] has searched the slots.
#[derive(Debug)]
struct Preview {
    /// The slot.
    slot: u64,
    /// The chunk in it, and the number of its events that have not been returned.
    chunk: u32,
    left: usize,
    /// The approximate number of events beyond the current slot that have been returned.
    lead: usize,
}

/// A slot is 2^14 ns = 16.4 us wide: the time in which a 1 Gbit/s link sends one or two packets.
const WIDTH: u32 = 14;
/// 2^15 slots: a horizon of 537 ms, beyond most round trips and retransmission timeouts.
const SLOTS: u64 = 1 << 15;
const KIND_BITS: u32 = 4;
/// 46 bits: 7e13 events, a year of simulating.
const ORDER_BITS: u32 = 64 - WIDTH - KIND_BITS;
/// Number of events that are previewed beyond the current slot, at least.
const LEAD: usize = 16;
const NONE: u32 = u32::MAX;
const EMPTY: Slot = Slot {
    chunk: NONE,
    used: CHUNK as u32,
};

impl Calendar {
    pub fn new() -> Self {
        Calendar {
            current: Vec::new(),
            base: 0,
            slots: vec![EMPTY; SLOTS as usize].into_boxed_slice(),
            occupied: vec![0; SLOTS as usize / 64].into_boxed_slice(),
            chunks: Vec::new(),
            free: NONE,
            far: BinaryHeap::new(),
            order: 0,
            waiting: 0,
            upcoming: u64::MAX,
            is_fresh: true,
            preview: Preview {
                slot: 0,
                chunk: NONE,
                left: 0,
                lead: 0,
            },
        }
    }

    /// Number of events.
    pub fn len(&self) -> usize {
        self.waiting
    }

    /// Adds an event, which must not be before the current slot.
    pub fn push(&mut self, at: Time, event: CalendarEvent) {
        let at = at.as_ns();
        let order = self.order;
        self.order += 1;
        self.waiting += 1;
        let slot = slot_of(at);
        if slot <= self.base {
            debug_assert!(slot == self.base, "events lie in the future");
            let entry = (key(at, order, event), event.index);
            let place = self.current.partition_point(|other| *other > entry);
            self.current.insert(place, entry);
            return;
        }
        self.upcoming = self.upcoming.min(slot);
        if slot - self.base < SLOTS {
            self.put(at, order, event);
        } else {
            self.far.push(Reverse((at, order, event)));
        }
    }

    /// Returns the due time of the next event, if that is not after `limit`.
    ///
    /// The calendar advances at most to the slot of `limit`. So events that the host adds up to
    /// `limit` are added to unsorted slots.
    pub fn next_until(&mut self, limit: Time) -> Option<Time> {
        if self.current.is_empty() {
            if self.upcoming > slot_of(limit.as_ns()) {
                return None;
            }
            self.advance();
        }
        let (key, _) = self.current.last()?;
        let offset = key >> (ORDER_BITS + KIND_BITS);
        let at = Time::from_ns(((self.base - 1) << WIDTH) + offset);
        (at <= limit).then_some(at)
    }

    /// Returns whether no event of the current slot has been taken.
    pub fn is_slot_new(&self) -> bool {
        self.is_fresh
    }

    /// Returns the event of the current slot that will be taken after `others` other events.
    pub fn soon(&self, others: usize) -> Option<CalendarEvent> {
        let place = self.current.len().checked_sub(others + 1)?;
        let (key, index) = self.current[place];
        Some(CalendarEvent {
            kind: kind_of(key),
            index,
        })
    }

    /// Returns an event of the slots ahead, each event once and in no particular order. Returns
    /// `None` if the last returned event is far enough ahead.
    pub fn preview(&mut self) -> Option<CalendarEvent> {
        let ahead = &mut self.preview;
        if ahead.left == 0 {
            let next = self.chunks.get(ahead.chunk as usize);
            ahead.chunk = next.map_or(NONE, |chunk| chunk.next);
            ahead.left = CHUNK;
            if ahead.chunk == NONE {
                ahead.left = 0;
                if ahead.lead >= LEAD {
                    return None;
                }
                // The slot is nearly always among the first 64, or so far ahead that a search is
                // not worthwhile.
                ahead.slot = next_occupied(&self.occupied, ahead.slot.max(self.base), 1)?;
                let slot = self.slots[(ahead.slot % SLOTS) as usize];
                (ahead.chunk, ahead.left) = (slot.chunk, slot.used as usize);
            }
            self.prefetch_chunk();
        }
        let ahead = &mut self.preview;
        ahead.left -= 1;
        ahead.lead += 1;
        let chunk = self.chunks.get(ahead.chunk as usize)?;
        Some(CalendarEvent {
            kind: kind_of(chunk.keys[ahead.left]),
            index: chunk.indices[ahead.left],
        })
    }

    /// Prefetches the chunk that is previewed after the current one.
    fn prefetch_chunk(&self) {
        let Preview { slot, chunk, .. } = self.preview;
        let mut next = self.chunks.get(chunk as usize).map_or(NONE, |c| c.next);
        if next == NONE
            && let Some(slot) = next_occupied(&self.occupied, slot, 0)
        {
            next = self.slots[(slot % SLOTS) as usize].chunk;
        }
        prefetch::index(&self.chunks, next as usize);
    }

    /// Removes the event that [`Calendar::next_until`] has found.
    pub fn pop(&mut self) -> Option<CalendarEvent> {
        let (key, index) = self.current.pop()?;
        self.waiting -= 1;
        self.is_fresh = false;
        let kind = kind_of(key);
        Some(CalendarEvent { kind, index })
    }

    fn put(&mut self, at: u64, order: u64, event: CalendarEvent) {
        let number = (slot_of(at) % SLOTS) as usize;
        let slot = &mut self.slots[number];
        if slot.used == CHUNK as u32 {
            let fresh = Chunk {
                keys: [0; CHUNK],
                indices: [0; CHUNK],
                next: slot.chunk,
            };
            *slot = Slot {
                chunk: self.free,
                used: 0,
            };
            if slot.chunk == NONE {
                slot.chunk = self.chunks.len() as u32;
                self.chunks.push(fresh);
            } else {
                let chunk = &mut self.chunks[slot.chunk as usize];
                self.free = std::mem::replace(&mut chunk.next, fresh.next);
            }
            self.occupied[number / 64] |= 1 << (number % 64);
        }
        let chunk = &mut self.chunks[slot.chunk as usize];
        chunk.keys[slot.used as usize] = key(at, order, event);
        chunk.indices[slot.used as usize] = event.index;
        slot.used += 1;
    }

    /// Makes the upcoming slot the current one.
    fn advance(&mut self) {
        let base = self.upcoming;
        if base == u64::MAX {
            return;
        }
        self.base = base;
        self.is_fresh = true;
        while let Some(Reverse((at, order, event))) = self.far.peek() {
            if slot_of(*at) - base >= SLOTS {
                break;
            }
            let (at, order, event) = (*at, *order, *event);
            self.far.pop();
            self.put(at, order, event);
        }
        let number = (base % SLOTS) as usize;
        self.occupied[number / 64] &= !(1 << (number % 64));
        let slot = std::mem::replace(&mut self.slots[number], EMPTY);
        let (mut id, mut used) = (slot.chunk, slot.used as usize);
        while id != NONE {
            let chunk = &mut self.chunks[id as usize];
            let events = chunk.keys.iter().zip(&chunk.indices).take(used);
            self.current
                .extend(events.map(|(key, index)| (*key, *index)));
            let next = std::mem::replace(&mut chunk.next, self.free);
            self.free = id;
            (id, used) = (next, CHUNK);
        }
        self.current.sort_unstable_by(|a, b| b.cmp(a));
        let ahead = &mut self.preview;
        if ahead.slot > base {
            ahead.lead = ahead.lead.saturating_sub(self.current.len());
        } else {
            (ahead.slot, ahead.chunk, ahead.left, ahead.lead) = (base, NONE, 0, 0);
        }
        let far = self.far.peek().map(|Reverse((at, _, _))| slot_of(*at));
        let near = next_occupied(&self.occupied, base, self.occupied.len());
        self.upcoming = match (near, far) {
            (Some(near), Some(far)) => near.min(far),
            (near, far) => near.or(far).unwrap_or(u64::MAX),
        };
    }
}

/// The number of the next occupied slot after `base`. Looks at 64 slots at a time, at most `steps`
/// + 1 times.
fn next_occupied(occupied: &[u64], base: u64, steps: usize) -> Option<u64> {
    let first = base + 1;
    let start = (first % SLOTS) as usize;
    let words = occupied.len();
    let mut mask = u64::MAX << (start % 64);
    for step in 0..=steps {
        let word = (start / 64 + step) % words;
        let mut bits = occupied[word] & mask;
        if step == words {
            // Back at the first word: only the slots before the start are left.
            bits &= !(u64::MAX << (start % 64));
        }
        if bits != 0 {
            let index = (word * 64) as u64 + u64::from(bits.trailing_zeros());
            return Some(first + (index + SLOTS - start as u64) % SLOTS);
        }
        mask = u64::MAX;
    }
    None
}

const fn slot_of(at: u64) -> u64 {
    (at >> WIDTH) + 1
}

const fn kind_of(key: u64) -> u8 {
    (key & ((1 << KIND_BITS) - 1)) as u8
}

fn key(at: u64, order: u64, event: CalendarEvent) -> u64 {
    let offset = at & ((1 << WIDTH) - 1);
    offset << (ORDER_BITS + KIND_BITS) | order << KIND_BITS | u64::from(event.kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_core::Rng;

    #[test]
    fn events_come_out_by_time_and_then_by_insertion() {
        let mut calendar = Calendar::new();
        for (at, index) in [(50, 1), (10, 2), (50, 3), (0, 4), (1 << 40, 5), (10, 6)] {
            calendar.push(Time::from_ns(at), CalendarEvent { kind: 1, index });
        }
        let order: Vec<u32> = std::iter::from_fn(|| {
            calendar.next_until(Time::MAX)?;
            calendar.pop().map(|event| event.index)
        })
        .collect();
        assert_eq!(order, [4, 2, 6, 1, 3, 5]);
    }

    #[test]
    fn what_comes_soon_is_what_is_taken() {
        let mut calendar = Calendar::new();
        // All in the second slot, not in the order of time.
        for index in 0..40_u32 {
            let at = (1 << WIDTH) + u64::from(index * 7 % 40);
            calendar.push(Time::from_ns(at), CalendarEvent { kind: 1, index });
        }
        let (mut foretold, mut taken) = (Vec::new(), Vec::new());
        while calendar.next_until(Time::MAX).is_some() {
            foretold.extend(calendar.soon(3));
            taken.extend(calendar.pop());
        }
        assert_eq!(taken.len(), 40);
        assert_eq!(foretold, taken[3..]);
    }

    #[test]
    fn each_event_of_slots_ahead_is_shown_once() {
        let mut calendar = Calendar::new();
        // Twelve events in each of 30 slots, which leaves chunks partly used.
        let mut expected = Vec::new();
        for index in 0..360_u32 {
            let at = u64::from(index / 12 * 2 + 1) << WIDTH;
            calendar.push(Time::from_ns(at), CalendarEvent { kind: 1, index });
            expected.push(index);
        }
        let (mut shown, mut taken) = (Vec::new(), Vec::new());
        while calendar.next_until(Time::MAX).is_some() {
            for _ in 0..2 {
                shown.extend(calendar.preview().map(|event| event.index));
            }
            taken.extend(calendar.pop().map(|event| event.index));
            // At most one slot beyond the lead.
            assert!(shown.len() < taken.len() + 12 + LEAD + 12);
        }
        assert_eq!(taken, expected);
        shown.sort_unstable();
        // Events of the first slot were already in the current one at the first preview.
        assert_eq!(shown, expected[12..]);
    }

    #[test]
    fn it_agrees_with_a_sorted_list_under_random_use() {
        let mut rng = Rng::from_seed(3);
        let mut calendar = Calendar::new();
        let mut model = std::collections::BTreeSet::new();
        let mut now = 0;
        for order in 0..200_000_u32 {
            if rng.below(100) < 51 {
                // Near, in the current slot, around the horizon, far.
                let reach = [1 << 10, 1 << 14, 1 << 20, 1 << 28, 1 << 34][rng.below(5) as usize];
                let at = now + rng.below(reach);
                let kind = (order % 16) as u8;
                calendar.push(Time::from_ns(at), CalendarEvent { kind, index: order });
                model.insert((at, order));
            } else {
                // Up to a limit, as a link sets one.
                let limit = now + rng.below(1 << 22);
                let expected = model.first().copied().filter(|(at, _)| *at <= limit);
                let seen = calendar
                    .next_until(Time::from_ns(limit))
                    .map(|at| (at.as_ns(), calendar.pop().unwrap()))
                    .map(|(at, event)| {
                        assert_eq!(u32::from(event.kind), event.index % 16);
                        (at, event.index)
                    });
                assert_eq!(seen, expected);
                match expected {
                    Some(event) => {
                        model.remove(&event);
                        now = event.0;
                    }
                    None => now = limit,
                }
            }
            assert_eq!(calendar.len(), model.len());
        }
    }
}
