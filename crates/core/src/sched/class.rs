//! The queues of a scheduler with classes: FIFO queues, each with limits, an AQM and counters.
//!
//! [`Classes`] holds the packets and asks the AQMs; an [`Order`](super::classful::Order) decides
//! which queue is served next. Looking up a class costs one hash probe. Everything else is indexed
//! by a small dense number, so 100 000 classes cost no more per packet than their cache misses.
//! Timers of AQMs are in a heap; only classes with packets have one.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::hash::{BuildHasherDefault, Hasher};

use hashbrown::HashMap;

use super::fifo::FifoParams;
use super::heap::Heap;
use super::pool::{Chain, Pool};
use super::{Share, allocated};
use crate::aqm::droptail::DropTail;
use crate::aqm::{Aqm, Overflow, QueueView, Verdict};
use crate::event::{Backlog, Cx, DropReason, StateValue};
use crate::packet::Packet;
use crate::units::{Rate, Time};

/// Counters of one queue of a scheduler since it was opened, in wire packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassCounters {
    /// Packets that arrived, including those that were dropped on arrival.
    pub arrived_packets: u64,
    /// Bytes that arrived.
    pub arrived_bytes: u64,
    /// Packets dropped for any reason.
    pub dropped_packets: u64,
    /// Bytes dropped.
    pub dropped_bytes: u64,
    /// Packets whose CE codepoint was set.
    pub marked_packets: u64,
}

/// The result of offering a packet to a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// The packet was dropped, and the class is unchanged.
    Refused,
    /// The packet is the only one of the class.
    First,
    /// The packet is behind others.
    Behind,
    /// The packet evicted older packets, so the head has changed.
    HeadGone,
}

/// All queues of a scheduler.
pub(crate) struct Classes {
    by_number: HashMap<u32, u32, BuildHasherDefault<Multiply>>,
    slots: Vec<Class>,
    free: Vec<u32>,
    pool: Pool,
    timers: Heap<Time>,
    backlog: Backlog,
    /// Bytes of the AQMs: the sum of those of the classes, over all of which it would take milliseconds
    /// for as many as a mask may create.
    aqm_bytes: usize,
}

struct Class {
    number: u32,
    is_open: bool,
    chain: Chain,
    backlog: Backlog,
    limit: Backlog,
    share: Share,
    /// The next call of the AQM's timer, unless the class is empty then; [`Time::MAX`] for never.
    timer: Time,
    /// The bytes that the AQM had when they were last counted.
    aqm_bytes: usize,
    aqm: Box<dyn Aqm>,
    counters: ClassCounters,
}

impl Classes {
    pub(crate) fn new() -> Self {
        Classes {
            by_number: HashMap::default(),
            slots: Vec::new(),
            free: Vec::new(),
            pool: Pool::new(),
            timers: Heap::new(),
            backlog: Backlog::default(),
            aqm_bytes: 0,
        }
    }

    /// Returns the bytes that have been allocated.
    pub(crate) fn memory(&self) -> usize {
        // hashbrown has one byte of metadata per place, and 7/8 of the places are used.
        let places = self.by_number.capacity() * 8 / 7;
        places * (size_of::<(u32, u32)>() + 1)
            + allocated(&self.slots)
            + self.aqm_bytes
            + allocated(&self.free)
            + self.pool.memory()
            + self.timers.memory()
    }

    /// Returns the index of the open class `number`.
    #[inline]
    pub(crate) fn find(&self, number: u32) -> Option<u32> {
        self.by_number.get(&number).copied()
    }

    /// Returns the index that the next [`Classes::open`] will return.
    pub(crate) fn next_index(&self) -> u32 {
        match self.free.last() {
            Some(index) => *index,
            None => self.slots.len() as u32,
        }
    }

    /// Opens a class that is not open and returns its index.
    pub(crate) fn open(
        &mut self,
        number: u32,
        share: Share,
        limits: &FifoParams,
        aqm: Box<dyn Aqm>,
    ) -> u32 {
        let aqm_bytes = bytes_of(&*aqm);
        self.aqm_bytes += aqm_bytes;
        let class = Class {
            number,
            is_open: true,
            chain: Chain::EMPTY,
            backlog: Backlog::default(),
            limit: limit_of(limits),
            share,
            timer: Time::MAX,
            aqm_bytes,
            aqm,
            counters: ClassCounters::default(),
        };
        let index = self.next_index();
        match self.free.pop() {
            Some(index) => self.slots[index as usize] = class,
            None => self.slots.push(class),
        }
        self.by_number.insert(number, index);
        self.rearm(index);
        index
    }

    /// Closes a class; its packets go to the sink.
    pub(crate) fn close(&mut self, index: u32, cx: &mut Cx<'_>) {
        while let Some(packet) = self.pop(index) {
            cx.discard(packet, DropReason::Reconfigured);
        }
        let class = &mut self.slots[index as usize];
        self.by_number.remove(&class.number);
        class.is_open = false;
        self.aqm_bytes -= core::mem::take(&mut class.aqm_bytes);
        // Dropping the old AQM frees its memory; the zero-sized one that replaces it needs none.
        class.aqm = Box::new(DropTail);
        class.timer = Time::MAX;
        self.timers.remove(index);
        self.free.push(index);
    }

    pub(crate) fn share(&self, index: u32) -> Share {
        self.slots[index as usize].share
    }

    pub(crate) fn set_share(&mut self, index: u32, share: Share) {
        self.slots[index as usize].share = share;
    }

    /// Changes the limits. Packets beyond them stay until [`Classes::trim`].
    pub(crate) fn set_limits(&mut self, index: u32, limits: &FifoParams) {
        self.slots[index as usize].limit = limit_of(limits);
    }

    /// Drops packets beyond the limits: the youngest ones, which the new limits would not have
    /// admitted.
    pub(crate) fn trim(&mut self, index: u32, cx: &mut Cx<'_>) {
        let class = &mut self.slots[index as usize];
        while class.backlog.packets > class.limit.packets || class.backlog.bytes > class.limit.bytes
        {
            let last = class.chain.last();
            let packet = self.pool.remove(&mut class.chain, last);
            class.backlog.remove(&packet);
            self.backlog.remove(&packet);
            class.counters.drop(&packet);
            cx.discard(packet, DropReason::Reconfigured);
        }
    }

    /// Replaces the AQM. The new one has no memory of the packets that are there.
    pub(crate) fn set_aqm(&mut self, index: u32, aqm: Box<dyn Aqm>) {
        self.slots[index as usize].aqm = aqm;
        self.count(index);
        self.rearm(index);
    }

    pub(crate) fn on_rate(&mut self, index: u32, rate: Rate) {
        self.slots[index as usize].aqm.on_rate(rate);
    }

    pub(crate) fn class_backlog(&self, index: u32) -> Backlog {
        self.slots[index as usize].backlog
    }

    pub(crate) fn counters(&self, index: u32) -> ClassCounters {
        self.slots[index as usize].counters
    }

    pub(crate) fn class_state(&self, index: u32, visit: &mut dyn FnMut(&'static str, StateValue)) {
        self.slots[index as usize].aqm.state(visit);
    }

    /// Iterates over the numbers and indices of the open classes, in the order of their indices.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let open = self.slots.iter().enumerate().filter(|(_, c)| c.is_open);
        open.map(|(index, class)| (class.number, index as u32))
    }

    pub(crate) fn backlog(&self) -> Backlog {
        self.backlog
    }

    /// Bytes of the packet at the head.
    #[inline]
    pub(crate) fn head_len(&self, index: u32) -> Option<u32> {
        let chain = &self.slots[index as usize].chain;
        self.pool.front(chain).map(|packet| packet.len)
    }

    /// Offers a packet to a class: limits first, then the AQM, as in [`Fifo`](super::fifo::Fifo).
    pub(crate) fn offer(&mut self, index: u32, mut packet: Packet, cx: &mut Cx<'_>) -> Admission {
        let total_bytes = self.backlog.bytes;
        let class = &mut self.slots[index as usize];
        cx.queue = class.number;
        let arrived = class.counters.arrived_packets;
        class.counters.arrived_packets += u64::from(packet.segments);
        // The memory of an AQM may grow. It is counted at the first packet, the second, the fourth and
        // so on, so that most packets cost a comparison only: whether the highest bits differ.
        let now = class.counters.arrived_packets;
        let is_counted = arrived ^ now > arrived & now;
        class.counters.arrived_bytes += u64::from(packet.len);
        let fits = class.fits(&packet);
        if !fits && class.aqm.overflow() == Overflow::Tail {
            class.counters.drop(&packet);
            class.aqm.on_refused(&packet, &class.view(total_bytes), cx);
            cx.discard(packet, DropReason::Overflow);
            self.rearm(index);
            return Admission::Refused;
        }
        let verdict = class.aqm.on_enqueue(&packet, &class.view(total_bytes), cx);
        let admission = match verdict {
            Verdict::Drop(reason) => {
                class.counters.drop(&packet);
                cx.discard(packet, reason);
                Admission::Refused
            }
            Verdict::Pass | Verdict::Mark => {
                if verdict == Verdict::Mark {
                    class.counters.marked_packets += u64::from(packet.segments);
                    cx.mark(&mut packet);
                }
                if fits {
                    self.push(index, packet, cx)
                } else {
                    self.push_evicting(index, packet, cx)
                }
            }
        };
        if is_counted {
            self.count(index);
        }
        self.rearm(index);
        admission
    }

    /// Returns the next packet of a class that its AQM lets pass; packets that the AQM drops go to
    /// the sink. Returns `None` when the class is empty.
    #[inline]
    pub(crate) fn serve(&mut self, index: u32, cx: &mut Cx<'_>) -> Option<Packet> {
        let served = loop {
            let Some(mut packet) = self.pop(index) else {
                let class = &mut self.slots[index as usize];
                cx.queue = class.number;
                class.aqm.on_empty(cx);
                break None;
            };
            let class = &mut self.slots[index as usize];
            cx.queue = class.number;
            let view = class.view(self.backlog.bytes);
            match class.aqm.on_dequeue(&packet, &view, cx) {
                Verdict::Pass => break Some(packet),
                Verdict::Mark => {
                    class.counters.marked_packets += u64::from(packet.segments);
                    cx.mark(&mut packet);
                    break Some(packet);
                }
                Verdict::Drop(reason) => {
                    class.counters.drop(&packet);
                    cx.discard(packet, reason);
                }
            }
        };
        self.rearm(index);
        served
    }

    /// Removes the packet at the head without asking the AQM.
    #[inline]
    pub(crate) fn pop(&mut self, index: u32) -> Option<Packet> {
        let class = &mut self.slots[index as usize];
        let packet = self.pool.pop_front(&mut class.chain)?;
        class.backlog.remove(&packet);
        self.backlog.remove(&packet);
        Some(packet)
    }

    /// Returns when the first AQM is to be called.
    pub(crate) fn next_timer(&self) -> Option<Time> {
        self.timers.peek().map(|(at, _)| at)
    }

    /// Calls the AQMs whose timers expired. The AQM of an empty class is not called and then has no
    /// timer: it catches up when the next packet arrives.
    pub(crate) fn on_timer(&mut self, cx: &mut Cx<'_>) {
        while let Some((_, index)) = self.timers.peek().filter(|(at, _)| *at <= cx.now) {
            let class = &mut self.slots[index as usize];
            if class.chain.is_empty() {
                class.timer = Time::MAX;
                self.timers.remove(index);
                continue;
            }
            cx.queue = class.number;
            let view = class.view(self.backlog.bytes);
            class.aqm.on_timer(&view, cx);
            self.rearm(index);
        }
    }

    fn push(&mut self, index: u32, packet: Packet, cx: &mut Cx<'_>) -> Admission {
        let class = &mut self.slots[index as usize];
        let is_first = class.chain.is_empty();
        class.backlog.add(&packet);
        self.backlog.add(&packet);
        cx.enqueued(&packet);
        self.pool.push_back(&mut class.chain, packet);
        if is_first {
            Admission::First
        } else {
            Admission::Behind
        }
    }

    /// Makes room at the head of a full class, unless the packet would not fit even into an empty
    /// one.
    fn push_evicting(&mut self, index: u32, packet: Packet, cx: &mut Cx<'_>) -> Admission {
        let class = &mut self.slots[index as usize];
        if u64::from(packet.segments) > class.limit.packets
            || u64::from(packet.len) > class.limit.bytes
        {
            class.counters.drop(&packet);
            cx.discard(packet, DropReason::Overflow);
            return Admission::Refused;
        }
        while !self.slots[index as usize].fits(&packet) {
            let head = self
                .pop(index)
                .expect("a queue that is over its limit has a head");
            let class = &mut self.slots[index as usize];
            class.counters.drop(&head);
            cx.discard(head, DropReason::Evicted);
            class.aqm.on_overflow(1, cx);
        }
        self.push(index, packet, cx);
        Admission::HeadGone
    }

    /// Counts the bytes of a class's AQM.
    #[cold]
    fn count(&mut self, index: u32) {
        let class = &mut self.slots[index as usize];
        let before = core::mem::replace(&mut class.aqm_bytes, bytes_of(&*class.aqm));
        self.aqm_bytes = self.aqm_bytes - before + class.aqm_bytes;
    }

    /// Follows the AQM's own timer. Most AQMs have none, which costs one call and one comparison.
    #[inline]
    fn rearm(&mut self, index: u32) {
        let class = &mut self.slots[index as usize];
        let timer = class.aqm.next_timer().unwrap_or(Time::MAX);
        if timer != class.timer {
            class.timer = timer;
            if timer == Time::MAX {
                self.timers.remove(index);
            } else {
                self.timers.set(index, timer);
            }
        }
    }
}

impl Class {
    fn fits(&self, packet: &Packet) -> bool {
        self.backlog.packets + u64::from(packet.segments) <= self.limit.packets
            && self.backlog.bytes + u64::from(packet.len) <= self.limit.bytes
    }

    fn view(&self, total_bytes: u64) -> QueueView {
        QueueView {
            packets: self.backlog.packets,
            bytes: self.backlog.bytes,
            total_bytes,
            limit_packets: self.limit.packets,
            limit_bytes: self.limit.bytes,
        }
    }
}

impl ClassCounters {
    fn drop(&mut self, packet: &Packet) {
        self.dropped_packets += u64::from(packet.segments);
        self.dropped_bytes += u64::from(packet.len);
    }
}

/// Returns the bytes of an AQM.
fn bytes_of(aqm: &dyn Aqm) -> usize {
    size_of_val(aqm) + aqm.memory()
}

fn limit_of(limits: &FifoParams) -> Backlog {
    Backlog {
        packets: limits.limit,
        bytes: limits.limit_bytes.as_u64(),
    }
}

/// Multiplicative hashing (Knuth, "The Art of Computer Programming" 6.4) of class numbers. The
/// numbers come from the configuration of a classifier and not from packets, so an attacker cannot
/// make them collide. The hash is the same on every machine.
#[derive(Default)]
pub(crate) struct Multiply(u64);

impl Hasher for Multiply {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    fn write_u32(&mut self, n: u32) {
        // The table takes its position from the low bits and its tag from the high bits.
        let mixed = (self.0 ^ u64::from(n)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

#[cfg(test)]
mod tests {
    use alloc::sync::Arc;
    use core::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::Rng;
    use crate::event::DropCounter;

    /// An AQM of 100 bytes beside itself, which counts the questions about them.
    struct Asked(Arc<AtomicU32>);

    impl Aqm for Asked {
        fn memory(&self) -> usize {
            self.0.fetch_add(1, Ordering::Relaxed);
            100
        }
    }

    /// A mask may create 2^18 classes, and a router asks for their memory at each new one and a
    /// thousand times a second.
    #[test]
    fn the_memory_of_many_classes_is_known_without_visiting_them() {
        let questions = Arc::new(AtomicU32::new(0));
        let aqm = || Box::new(Asked(Arc::clone(&questions)));
        let mut classes = Classes::new();
        for number in 0..1000 {
            classes.open(number, Share::default(), &FifoParams::default(), aqm());
        }
        let asked = questions.load(Ordering::Relaxed);
        let full = classes.memory();
        assert_eq!(questions.load(Ordering::Relaxed), asked);
        // Half of them are closed, and a hundred get an AQM of no size.
        let (mut rng, mut sink) = (Rng::from_seed(1), DropCounter::default());
        let mut cx = Cx::new(Time::ZERO, &mut rng, &mut sink);
        for index in 0..500 {
            classes.close(index, &mut cx);
        }
        for index in 500..600 {
            classes.set_aqm(index, Box::new(DropTail));
        }
        let of_one = 100 + size_of::<Asked>();
        assert_eq!(classes.aqm_bytes, 400 * of_one);
        assert!(classes.memory() <= full - 600 * of_one + 500 * size_of::<u32>() * 2);
    }

    /// An AQM whose memory grows by 1000 bytes with each packet.
    struct Growing(usize);

    impl Aqm for Growing {
        fn on_enqueue(&mut self, _: &Packet, _: &QueueView, _: &mut Cx<'_>) -> Verdict {
            self.0 += 1000;
            Verdict::Pass
        }

        fn memory(&self) -> usize {
            self.0
        }
    }

    #[test]
    fn memory_that_grows_is_counted_and_no_more_is_released() {
        let (mut rng, mut sink) = (Rng::from_seed(1), DropCounter::default());
        let mut cx = Cx::new(Time::ZERO, &mut rng, &mut sink);
        let mut classes = Classes::new();
        for number in 0..2 {
            let (share, limits) = (Share::default(), FifoParams::default());
            classes.open(number, share, &limits, Box::new(Growing(0)));
        }
        let own = 2 * size_of::<Growing>();
        assert_eq!(classes.aqm_bytes, own);
        let mut offer = |classes: &mut Classes, count: u32| {
            for slot in 0..count {
                classes.offer(0, Packet::new(slot, 100), &mut cx);
            }
        };
        offer(&mut classes, 1);
        assert_eq!(classes.aqm_bytes, own + 1000);
        // Of seven packets, the first, second and fourth are counted.
        offer(&mut classes, 6);
        assert_eq!(classes.aqm_bytes, own + 4000);
        classes.close(0, &mut cx);
        assert_eq!(classes.aqm_bytes, size_of::<Growing>());
    }
}
