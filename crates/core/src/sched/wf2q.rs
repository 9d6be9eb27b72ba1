//! `wf2q+`: worst-case fair weighted fair queueing. Each class gets a share of the link by its
//! weight, and is never ahead of that share by more than one packet. Of the packets whose service
//! would have started in a fluid system that serves all classes at once, the one that would finish
//! first is sent.
//!
//! Sources: J. Bennett and H. Zhang, "Hierarchical Packet Fair Queueing Algorithms", ACM SIGCOMM
//! 1996 (WF2Q+); dummynet's WF2Q+ scheduler (`dn_sched_wf2q`).
//!
//! Every class has the virtual times S and F at which its head starts and finishes, `F = S + length
//! / weight`. The head of a class is eligible when `S <= V`. The system's virtual time V advances
//! by length over the sum of weights for each packet sent, and jumps to the least S when no class
//! would be eligible. Timestamps are 64-bit numbers with 28 fraction bits, compared modulo 2^64.
//!
//! 1. `variant rfc` is the paper: the sum is that of all open classes. `variant dummynet`: only
//!    classes count that are active or whose F is ahead of V, so that V advances as fast as the
//!    active classes are served. With many idle classes that orders packets more by F and less by
//!    S. The paper's proof does not cover it; our property tests find that its bounds hold.
//!    dummynet forgets one idle class per packet sent; here all whose F has passed are forgotten.
//! 2. When no class is active any more, V moves beyond every F: no class is ahead of others when
//!    the next busy period begins. dummynet sets all times to 0, which is equivalent.
//! 3. V advances when the link takes a packet, not while it sends it: there is no clock. A packet
//!    that arrives meanwhile counts as arrived when the link is free again (dummynet does the
//!    same).
//! 4. The part of V that rounding cuts off is carried to the next packet: V does not fall behind,
//!    however many classes there are.
//! 5. Equal F: the class that was opened first. dummynet: the order of its heap.
//! 6. If an AQM drops the head, the packet behind it takes its turn and is charged at its own
//!    length.
//! 7. Weights 1 to 65536; dummynet clamps to 100.
//!
//! Bounds (the paper's theorem on WF2Q+): the worst-case fair index of class i in bytes is `a_i =
//! L_i + (L - L_i) w_i / W`, with L the longest packet of all, L_i its own, W the sum of weights. A
//! packet that finds q bytes of its class, its own included, has left when the link has sent `(q +
//! a_i) W / w_i` bytes. If the class keeps to a token bucket of b bytes and the rate `w_i / W` of
//! the link, the packet has left after `b W / w_i + 2 L` bytes (paper: L; the other L is for
//! deviation 3). Costs O(log n).

use alloc::vec::Vec;

use super::allocated;
use super::classful::{Classed, Order, Share, ShareDecl, ShareError, ShareRange};
use super::fifo::FifoParams;
use super::heap::Heap;
use super::virtual_time::Virtual;
use crate::units::Bytes;
use crate::{choice, params};

choice! {
    /// The classes whose weights advance virtual time.
    pub enum Wf2qVariant {
        /// The paper: all open classes.
        Rfc = "rfc",
        /// FreeBSD's dummynet: the classes that are active or ahead of V.
        Dummynet = "dummynet",
    }
}

params! {
    /// Parameters of WF2Q+: its rules, and the limits of a class that was not opened before its
    /// first packet.
    pub struct Wf2qParams {
        /// the implementation whose rules apply where they differ
        variant: Wf2qVariant = Choice("rfc"), "the paper, for which the bounds are proven";
        /// wire packets that each queue holds
        limit: u64 = Count(1000), Count(1) => Count(u64::MAX), "Linux pfifo: 1000 packets";
        /// bytes that each queue holds
        limit_bytes: Bytes = Bytes(Bytes::new(u64::MAX)), Bytes(Bytes::new(1)) => Bytes(Bytes::new(u64::MAX)), "none: packets are counted";
    }
}

/// The scheduler.
pub type Wf2q = Classed<Wf2qOrder>;

/// The eligible class that finishes first.
pub struct Wf2qOrder {
    flows: Vec<Flow>,
    /// Active classes with `S <= V`, by F.
    eligible: Heap<Virtual>,
    /// Active classes with `S > V`, by S.
    waiting: Heap<Virtual>,
    /// `dummynet`: idle classes with `F > V`, by F.
    resting: Heap<Virtual>,
    now: Virtual,
    /// The latest F.
    latest: Virtual,
    /// The fraction that `now` lacks: remainder of a division by `weight_sum`.
    carry: u64,
    /// Sum of the weights that advance V.
    weight_sum: u64,
    variant: Wf2qVariant,
}

#[derive(Clone, Copy, Default)]
struct Flow {
    /// Start of the head; of the last packet while the class is idle.
    start: Virtual,
    finish: Virtual,
    weight: u32,
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Idle,
    /// `dummynet`: idle, with F ahead of V, and so still counted.
    Resting,
    Waiting,
    Eligible,
}

/// Fraction bits of a virtual time: dummynet's precision. A packet of 2^32 bytes still fits the
/// comparison, and two times may be 2^35 bytes per unit of weight apart.
const FRACTION: u32 = 28;
const MAX_WEIGHT: u32 = 65536;

impl Virtual {
    /// Returns when `len` bytes that start at this time will have finished.
    #[inline]
    fn after(self, len: u32, weight: u32) -> Virtual {
        let step = (u64::from(len) << FRACTION) / u64::from(weight);
        self.plus(step)
    }
}

impl Order for Wf2qOrder {
    type Params = Wf2qParams;
    const DOC: &'static str = "worst-case fair weighted fair queueing: shares by weight";
    const SHARE: ShareDecl = ShareDecl {
        weight: ShareRange::wider_than((1, 100), 1, MAX_WEIGHT),
        max_len: None,
    };

    fn new(params: &Wf2qParams) -> Self {
        Wf2qOrder {
            flows: Vec::new(),
            eligible: Heap::new(),
            waiting: Heap::new(),
            resting: Heap::new(),
            now: Virtual(0),
            latest: Virtual(0),
            carry: 0,
            weight_sum: 0,
            variant: params.variant,
        }
    }

    fn memory(&self) -> usize {
        allocated(&self.flows)
            + self.eligible.memory()
            + self.waiting.memory()
            + self.resting.memory()
    }

    fn limits(params: &Wf2qParams) -> FifoParams {
        FifoParams {
            limit: params.limit,
            limit_bytes: params.limit_bytes,
        }
    }

    fn open(&mut self, id: u32, share: Share) -> Result<(), ShareError> {
        if self.flows.len() <= id as usize {
            self.flows.resize(id as usize + 1, Flow::default());
        }
        self.flows[id as usize] = Flow {
            start: self.now,
            finish: self.now,
            weight: share.weight,
            state: State::Idle,
        };
        if self.variant == Wf2qVariant::Rfc {
            self.weight_sum += u64::from(share.weight);
        }
        Ok(())
    }

    fn set_share(&mut self, id: u32, share: Share, head: Option<u32>) -> Result<(), ShareError> {
        let flow = &mut self.flows[id as usize];
        let old = core::mem::replace(&mut flow.weight, share.weight);
        if self.variant == Wf2qVariant::Rfc || flow.state != State::Idle {
            self.weight_sum += u64::from(share.weight);
            self.lighten(old);
        }
        if let Some(head) = head {
            self.place(id, head);
        }
        Ok(())
    }

    fn close(&mut self, id: u32) {
        let flow = self.flows[id as usize];
        match flow.state {
            State::Idle => {}
            State::Resting => self.resting.remove(id),
            State::Waiting => self.waiting.remove(id),
            State::Eligible => self.eligible.remove(id),
        }
        if self.variant == Wf2qVariant::Rfc || flow.state != State::Idle {
            self.lighten(flow.weight);
        }
        self.end_if_idle();
    }

    fn activate(&mut self, id: u32, head: u32) {
        let now = self.now;
        let flow = &mut self.flows[id as usize];
        match flow.state {
            State::Resting => self.resting.remove(id),
            _ if self.variant == Wf2qVariant::Dummynet => {
                self.weight_sum += u64::from(flow.weight);
            }
            _ => {}
        }
        flow.start = if flow.is_ahead(now) { flow.finish } else { now };
        flow.state = State::Waiting;
        self.place(id, head);
    }

    fn next(&mut self) -> Option<u32> {
        if self.eligible.is_empty() {
            // No class would be served: V jumps to the first start.
            let (start, _) = self.waiting.peek()?;
            self.now = self.now.max(start);
            self.admit_eligible();
        }
        self.eligible.peek().map(|(_, id)| id)
    }

    fn served(&mut self, id: u32, len: u32, head: Option<u32>) {
        let sum = self.weight_sum;
        let advance = (u64::from(len) << FRACTION) + self.carry;
        self.now = self.now.plus(advance / sum);
        self.carry = advance % sum;

        let flow = &mut self.flows[id as usize];
        flow.finish = flow.start.after(len, flow.weight);
        self.latest = self.latest.max(flow.finish);
        match head {
            Some(head) => {
                flow.start = flow.finish;
                self.place(id, head);
            }
            None => self.rest(id),
        }
        self.admit_eligible();
        self.forget_passed();
        self.end_if_idle();
    }

    fn head_dropped(&mut self, id: u32, head: Option<u32>) {
        match head {
            Some(head) => self.place(id, head),
            None => {
                // The class was not served for the packet that is gone; earlier service is included
                // in S.
                let flow = &mut self.flows[id as usize];
                flow.finish = flow.start;
                flow.start = self.now.min(flow.start);
                self.rest(id);
                self.forget_passed();
                self.end_if_idle();
            }
        }
    }
}

impl Wf2qOrder {
    /// Places an active class, whose S is set, with a head of `head` bytes.
    #[inline]
    fn place(&mut self, id: u32, head: u32) {
        let flow = &mut self.flows[id as usize];
        flow.finish = flow.start.after(head, flow.weight);
        if flow.start <= self.now {
            if flow.state == State::Waiting {
                self.waiting.remove(id);
            }
            flow.state = State::Eligible;
            self.eligible.set(id, flow.finish);
        } else {
            if flow.state == State::Eligible {
                self.eligible.remove(id);
            }
            flow.state = State::Waiting;
            self.waiting.set(id, flow.start);
        }
    }

    /// Makes an active class idle. Its S and F are those of its last packet.
    #[inline]
    fn rest(&mut self, id: u32) {
        let flow = &mut self.flows[id as usize];
        match flow.state {
            State::Eligible => self.eligible.remove(id),
            State::Waiting => self.waiting.remove(id),
            State::Idle | State::Resting => unreachable!("an active class becomes idle"),
        }
        if self.variant == Wf2qVariant::Rfc {
            flow.state = State::Idle;
        } else {
            flow.state = State::Resting;
            self.resting.set(id, flow.finish);
        }
    }

    #[inline]
    fn admit_eligible(&mut self) {
        while let Some((_, id)) = self.waiting.peek().filter(|(start, _)| *start <= self.now) {
            self.waiting.remove(id);
            let flow = &mut self.flows[id as usize];
            flow.state = State::Eligible;
            self.eligible.set(id, flow.finish);
        }
    }

    /// `dummynet`: stops counting idle classes whose F has passed.
    #[inline]
    fn forget_passed(&mut self) {
        while let Some((_, id)) = self.resting.peek().filter(|(f, _)| *f <= self.now) {
            self.resting.remove(id);
            let flow = &mut self.flows[id as usize];
            flow.state = State::Idle;
            let weight = flow.weight;
            self.lighten(weight);
        }
    }

    /// Subtracts a weight from the sum.
    fn lighten(&mut self, weight: u32) {
        self.weight_sum -= u64::from(weight);
        self.carry = self.carry.min(self.weight_sum.saturating_sub(1));
    }

    /// Ends the busy period if no class is active: no class is ahead any more.
    #[inline]
    fn end_if_idle(&mut self) {
        if self.eligible.is_empty() && self.waiting.is_empty() {
            self.now = self.now.max(self.latest);
            self.latest = self.now;
            self.carry = 0;
            self.forget_passed();
        }
    }
}

impl Flow {
    /// Returns whether F is ahead of V. An old F may seem to be, modulo 2^64; but a class is served
    /// when `S <= V`, so F is never further ahead than the length of its packet.
    #[inline]
    fn is_ahead(&self, now: Virtual) -> bool {
        let ahead = self.finish.0.wrapping_sub(now.0);
        self.finish > now && ahead <= self.finish.0.wrapping_sub(self.start.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(weights: &[u32]) -> Wf2qOrder {
        let mut order = Wf2qOrder::new(&Wf2qParams::default());
        for (id, weight) in weights.iter().enumerate() {
            let share = Share {
                weight: *weight,
                ..Share::default()
            };
            order.open(id as u32, share).unwrap();
        }
        order
    }

    #[test]
    fn the_authors_example_is_served_in_their_order() {
        // The example with which Bennett and Zhang introduce worst-case fairness: class 0 has half
        // of the link, classes 1 to 10 a twentieth each. All packets have length 1. Class 0 has
        // eleven packets at time 0, the others one each. WFQ sends ten packets of class 0 in a row;
        // a worst-case fair scheduler alternates.
        let mut weights = [1; 11];
        weights[0] = 10;
        let mut order = order(&weights);
        for id in 0..11 {
            order.activate(id, 1);
        }
        let mut left = [1; 11];
        left[0] = 11;
        let mut sent = Vec::new();
        while let Some(id) = order.next() {
            left[id as usize] -= 1;
            order.served(id, 1, (left[id as usize] > 0).then_some(1));
            sent.push(id);
        }
        let expected = [
            0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0, 7, 0, 8, 0, 9, 0, 10, 0,
        ];
        assert_eq!(sent, expected);
    }

    #[test]
    fn virtual_time_does_not_drift_with_weights_that_do_not_divide() {
        // Three classes of weight 1, 1 and 5: after 7 * 1000 packets of 1 byte V is 1000 exactly,
        // because the remainders are carried.
        let mut order = order(&[1, 1, 5]);
        for id in 0..3 {
            order.activate(id, 1);
        }
        for _ in 0..7000 {
            let id = order.next().unwrap();
            order.served(id, 1, Some(1));
        }
        assert_eq!(order.now, Virtual(1000 << FRACTION));
    }

    #[test]
    fn a_class_that_was_ahead_does_not_gain_by_leaving() {
        // Both start at 0. Class 1 sends 100 B (F 100 before 3000): V 50, its S 100. Only class 0
        // is eligible: it sends its 3000 B (V 1550, F 3000), leaves, and returns at once with S
        // 3000. Each packet of class 1 advances V by 50: V reaches 3000 after 29 of them.
        let mut order = order(&[1, 1]);
        order.activate(0, 3000);
        order.activate(1, 100);
        assert_eq!(order.next(), Some(1));
        order.served(1, 100, Some(100));
        assert_eq!(order.next(), Some(0));
        order.served(0, 3000, None);
        order.activate(0, 100);
        let mut waited = 0;
        while order.next() == Some(1) {
            order.served(1, 100, Some(100));
            waited += 1;
        }
        assert_eq!(waited, 29);
    }

    #[test]
    fn times_are_compared_across_the_wrap() {
        let late = Virtual(u64::MAX - 5);
        assert!(late < late.after(1, 1));
        assert!(late.after(1, 1) > late);
    }
}
