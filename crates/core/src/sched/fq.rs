//! `fq_*`: flow queueing by deficit round robin with priority for new flows, over any AQM.
//!
//! Packets are hashed into `flows` queues, each with its own AQM. Queues take turns of `quantum`
//! bytes. A queue that becomes active is served before those that stay active, so that sparse flows
//! have almost no queueing delay. When the packet limit is exceeded, the fattest queue drops
//! packets from its head.
//!
//! Source: RFC 8290 ("FQ-CoDel"). Where the RFC gives no rule or contradicts itself, `rfc` means:
//! 1. A turn ends when the credits are zero or less (section 3; section 4.2 says negative).
//! 2. On overflow half of the fattest queue's packets are dropped, an odd number rounded down, at
//!    least one and at most `drop_batch` (section 4.1).
//! 3. Of queues with equal numbers of bytes, the one with the lowest number drops.
//! 4. One queue holds less than 4 GiB; a packet beyond that is refused.
//! 5. A super-packet counts its segments against `limit` and `drop_batch`, its bytes against the
//!    quantum.
//!
//! `linux` and `linux_2025` differ from `rfc`:
//! 1. An emptied queue at the head of the new list goes to the old list only if that is not empty;
//!    otherwise it is released, and its next packet makes it new again.
//! 2. On overflow packets are dropped until half of the **bytes** are freed, at most `drop_batch`
//!    packets.
//! 3. The AQM learns how many packets were evicted (CoDel adds them to its count).
//! 4. CoDel's byte floor compares the backlog of the whole discipline with the MTU.
//! 5. `fq_pie` refuses the arriving packet instead of evicting others.
//!
//! `dummynet` differs from `rfc`:
//! 1. A queue keeps its turn while its credits are zero or more.
//! 2. On overflow one packet is dropped, from the head of the queue with most **packets**, the
//!    lowest number on ties.
//! 3. The AQM of a queue that becomes active is notified (CoDel and PIE reset their state).
//!
//! Not implemented, but reported by a warning: Linux raises a quantum below 256 to 256, and drops
//! beyond 32 MB of buffers, whose sizes belong to the driver and are unknown here; dummynet bounds
//! quantum and limit silently.
//!
//! Cost: a queue takes memory from its first packet on. Enqueueing a packet touches its queue (one
//! cache line with CoDel inside), one node of the pool and the weight of its queue; so does
//! dequeueing it. This holds for any number of queues. The weights give the fattest queue without a
//! scan, even at the first overflow; maintaining them costs 3 to 6 ns per packet while they are in
//! the cache. As long as at most eight queues have seen a packet there are no weights, and these
//! queues are compared directly.
//!
//! Units: bytes as in [`Packet::len`](crate::packet::Packet), wire packets as in `segments`.

mod pages;
mod pool;
mod queue;
mod timers;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use self::pages::Queues;
use self::pool::{NONE, Pool};
use self::queue::{OFF_LIST, Queue};
use self::timers::Timers;
use super::fattest::Fattest;
use super::{Discipline, Wake};
use crate::aqm::{FlowAqm, Overflow, QueueView, Verdict};
use crate::event::{Backlog, Cx, DropReason, StateValue};
use crate::packet::Packet;
use crate::param::{Variant, Warnings};
use crate::params;
use crate::prefetch::{self, Place};
use crate::units::{Bytes, Time};

params! {
    /// Parameters of flow queueing.
    pub struct FqParams {
        /// bytes that a queue may send in one turn
        quantum: u64 = Count(1514), Count(1) => Count(65536), "RFC 8290 section 5.2.4: 1514 bytes, an Ethernet frame";
        /// wire packets that all queues together hold
        limit: u64 = Count(10240), Count(1) => Count(u64::MAX), "RFC 8290 section 5.2.3: 10240 packets";
        /// bytes that all queues together hold
        limit_bytes: Bytes = Bytes(Bytes::new(u64::MAX)), Bytes(Bytes::new(1)) => Bytes(Bytes::new(u64::MAX)), "none: packets are counted";
        /// number of queues
        flows: u64 = Count(1024), Count(1) => Count(65536), "RFC 8290 section 5.2.5: 1024";
        /// most packets that one overflow removes (`dummynet`: always 1)
        drop_batch: u64 = Count(64), Count(1) => Count(65536), "RFC 8290 section 4.1: 64";
        /// the implementation whose rules apply where they differ
        variant: Variant = Choice("rfc"), "the published text";
    } ; warnings FqParams::doubts
}

impl FqParams {
    fn doubts(&self) -> Warnings {
        let mut doubts = Vec::new();
        if self.variant.is_linux() {
            let (quantum, limit) = (self.quantum, self.limit);
            if quantum < 256 {
                let sentence = "Linux would silently use 256";
                doubts.push(alloc::format!("`quantum {quantum}`: {sentence}"));
            }
            if limit > LINUX_MEMORY / 1514 && self.limit_bytes.as_u64() > LINUX_MEMORY {
                let sentence = "Linux would stop at 32 MB of buffers (`memory_limit`), which a \
                                trace does not show; `limit_bytes` counts bytes on the wire";
                doubts.push(alloc::format!("`limit {limit}`: {sentence}"));
            }
        }
        doubts
    }
}

/// A flow-queueing discipline whose queues ask `A`.
///
/// The fields that every packet needs come first and together, for hosts with very many links.
#[repr(C, align(64))]
pub struct Fq<A: FlowAqm> {
    limit: Backlog,
    backlog: Backlog,
    new: List,
    old: List,
    quantum: i32,
    /// A queue with fewer credits waits for its next turn.
    least_credits: i32,
    drop_batch: u32,
    variant: Variant,
    pool: Pool,
    queues: Queues<A>,
    timers: Timers,
    /// Weights of the queues, once they are many.
    fattest: Fattest,
}

/// Linux `memory_limit`: 32 MB.
const LINUX_MEMORY: u64 = 32 << 20;
/// A list of queues, linked through [`Queue::next`].
#[derive(Clone, Copy)]
struct List {
    head: u32,
    tail: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    New,
    Old,
}

impl<A: FlowAqm> Fq<A> {
    /// Creates empty queues.
    pub fn new(params: &FqParams, aqm: A::Shared) -> Self {
        let queues = Queues::new(params.flows as usize, Arc::new(aqm));
        Fq {
            variant: params.variant,
            quantum: params.quantum as i32,
            least_credits: match params.variant {
                Variant::Rfc | Variant::Linux | Variant::Linux2025 => 1,
                Variant::Dummynet => 0,
            },
            limit: Backlog {
                packets: params.limit,
                bytes: params.limit_bytes.as_u64(),
            },
            drop_batch: params.drop_batch as u32,
            new: List::EMPTY,
            old: List::EMPTY,
            pool: Pool::EMPTY,
            backlog: Backlog::default(),
            timers: Timers::default(),
            fattest: Fattest::new(params.flows as usize),
            queues,
        }
    }
}

impl<A: FlowAqm> Fq<A> {
    #[inline]
    fn first(&self) -> Option<(Which, u32)> {
        if self.new.head != NONE {
            Some((Which::New, self.new.head))
        } else if self.old.head != NONE {
            Some((Which::Old, self.old.head))
        } else {
            None
        }
    }

    /// Removes the first queue from its list; `next` was behind it.
    #[inline]
    fn unlink(&mut self, which: Which, next: u32) {
        match which {
            Which::New => self.new.head = next,
            Which::Old => self.old.head = next,
        }
    }

    /// Appends a queue to a list. No queue is behind it.
    #[inline]
    fn append(&mut self, which: Which, queue: u32) {
        let list = match which {
            Which::New => &mut self.new,
            Which::Old => &mut self.old,
        };
        if list.head == NONE {
            list.head = queue;
        } else {
            self.queues.at(list.tail).next = queue;
        }
        list.tail = queue;
    }

    /// Adds a queue to the few. If there are too many, moves all of them into pages.
    #[cold]
    #[inline(never)]
    fn ensure(&mut self, queue: u32) {
        if !self.queues.ensure(queue as usize) {
            for number in self.queues.spread() {
                let weight = self.queues.at(u32::from(number)).weight(self.variant);
                self.fattest.set(u32::from(number), weight);
            }
        }
    }

    fn is_over_limit(&self) -> bool {
        self.backlog.packets > self.limit.packets || self.backlog.bytes > self.limit.bytes
    }

    /// RFC 8290 section 4.1.2: drops packets from the head of the fattest queue.
    #[inline(never)]
    fn drop_from_fattest(&mut self, cx: &mut Cx<'_>) {
        let variant = self.variant;
        let is_many = self.queues.are_many();
        let fattest = match is_many {
            true => self.fattest.find(),
            false => self.queues.fattest_of_few(|q| q.weight(variant)),
        };
        let q = self.queues.at(fattest);
        let (packets, bytes) = match variant {
            Variant::Rfc => ((q.packets / 2).clamp(1, self.drop_batch), u32::MAX),
            Variant::Linux | Variant::Linux2025 => (self.drop_batch, q.bytes / 2),
            Variant::Dummynet => (1, u32::MAX),
        };
        cx.queue = fattest;
        let mut head = q.head;
        let mut gone = Backlog::default();
        loop {
            let packet;
            (packet, head) = self.pool.take(head);
            gone.add(&packet);
            cx.discard(packet, DropReason::Evicted);
            let is_enough = gone.packets >= u64::from(packets) || gone.bytes >= u64::from(bytes);
            if is_enough || head == NONE {
                break;
            }
        }
        // Everything else is updated once, after the last packet.
        self.backlog.packets -= gone.packets;
        self.backlog.bytes -= gone.bytes;
        q.head = head;
        q.packets -= gone.packets as u32;
        q.bytes -= gone.bytes as u32;
        q.aqm.on_overflow(gone.packets as u32, cx);
        q.arm(fattest, &mut self.timers);
        if is_many {
            self.fattest.set(fattest, q.weight(variant));
        }
    }
}

impl<A: FlowAqm> Discipline for Fq<A> {
    fn enqueue(&mut self, mut packet: Packet, cx: &mut Cx<'_>) {
        let queue = self.queues.number(packet.flow);
        cx.queue = queue;
        if self.queues.may_lack(queue) {
            self.ensure(queue);
        }
        let is_many = self.queues.are_many();
        let q = self.queues.at(queue);
        let view = q.view(&self.backlog, &self.limit);
        let refuses = A::FLOW_OVERFLOW_IN_LINUX == Overflow::Tail
            && self.variant.is_linux()
            && (self.backlog.packets + u64::from(packet.segments) > self.limit.packets
                || self.backlog.bytes + u64::from(packet.len) > self.limit.bytes);
        if refuses || q.bytes.checked_add(packet.len).is_none() {
            q.aqm.on_refused(&packet, &view, cx);
            cx.discard(packet, DropReason::Overflow);
            q.arm(queue, &mut self.timers);
            return;
        }
        match q.aqm.on_enqueue(&packet, &view, cx) {
            Verdict::Pass => {}
            Verdict::Mark => cx.mark(&mut packet),
            Verdict::Drop(reason) => {
                cx.discard(packet, reason);
                q.arm(queue, &mut self.timers);
                return;
            }
        }
        cx.enqueued(&packet);
        let (segments, len) = (packet.segments, packet.len);
        let is_empty = q.head == NONE;
        let node = self.pool.put(packet, if is_empty { NONE } else { q.tail });
        q.packets += u32::from(segments);
        q.bytes += len;
        self.backlog.packets += u64::from(segments);
        self.backlog.bytes += u64::from(len);
        q.head = if is_empty { node } else { q.head };
        q.tail = node;
        if is_many {
            self.fattest.set(queue, q.weight(self.variant));
        }
        // RFC 8290 section 4.1.1: a queue on neither list goes to the end of the new list with a
        // full quantum.
        let is_idle = q.next == OFF_LIST;
        if is_idle {
            q.next = NONE;
            q.credits = self.quantum;
            q.aqm.on_activate(cx);
        }
        q.arm(queue, &mut self.timers);
        if is_idle {
            self.append(Which::New, queue);
        }
        while self.is_over_limit() {
            self.drop_from_fattest(cx);
        }
    }

    fn dequeue(&mut self, cx: &mut Cx<'_>) -> Option<Packet> {
        let is_many = self.queues.are_many();
        // RFC 8290 section 4.2.
        loop {
            let (which, queue) = self.first()?;
            cx.queue = queue;
            let q = self.queues.at(queue);
            if q.credits < self.least_credits {
                q.credits += self.quantum;
                let next = core::mem::replace(&mut q.next, NONE);
                self.unlink(which, next);
                self.append(Which::Old, queue);
                continue;
            }
            while q.head != NONE {
                let mut packet;
                (packet, q.head) = self.pool.take(q.head);
                let held = (q.packets - u32::from(packet.segments), q.bytes - packet.len);
                let total = Backlog {
                    packets: self.backlog.packets - u64::from(packet.segments),
                    bytes: self.backlog.bytes - u64::from(packet.len),
                };
                // The fields that were just written are not read again: a load of both numbers at
                // once would stall until the two stores reach the cache.
                let view = QueueView {
                    packets: u64::from(held.0),
                    bytes: u64::from(held.1),
                    total_bytes: total.bytes,
                    limit_packets: self.limit.packets,
                    limit_bytes: self.limit.bytes,
                };
                (q.packets, q.bytes) = held;
                self.backlog = total;
                if is_many {
                    self.fattest.set(queue, q.weight(self.variant));
                }
                match q.aqm.on_dequeue(&packet, &view, cx) {
                    Verdict::Pass => {}
                    Verdict::Mark => cx.mark(&mut packet),
                    Verdict::Drop(reason) => {
                        cx.discard(packet, reason);
                        continue;
                    }
                }
                // No link has packets longer than 2 GiB.
                let cost = i32::try_from(packet.len).unwrap_or(i32::MAX);
                q.credits = q.credits.saturating_sub(cost);
                q.arm(queue, &mut self.timers);
                cx.dequeued(&packet);
                return Some(packet);
            }
            q.aqm.on_empty(cx);
            // RFC 8290 section 4.2: an emptied new queue passes once through the old list, so that
            // a flow cannot stay new by sending one packet per turn.
            let passes_old = which == Which::New
                && match self.variant {
                    Variant::Rfc | Variant::Dummynet => true,
                    Variant::Linux | Variant::Linux2025 => self.old.head != NONE,
                };
            let behind = if passes_old { NONE } else { OFF_LIST };
            let next = core::mem::replace(&mut q.next, behind);
            if !passes_old {
                q.aqm.on_deactivate(cx);
            }
            self.unlink(which, next);
            if passes_old {
                self.append(Which::Old, queue);
            }
        }
    }

    fn next_wake(&self) -> Wake {
        if self.backlog.is_empty() {
            Wake::OnEnqueue
        } else {
            Wake::Now
        }
    }

    fn next_timer(&self) -> Option<Time> {
        self.timers.next()
    }

    fn on_timer(&mut self, cx: &mut Cx<'_>) {
        while let Some(queue) = self.timers.pop(cx.now) {
            let q = self.queues.at(queue);
            if q.next == OFF_LIST {
                continue;
            }
            if q.aqm.next_timer().is_some_and(|due| due <= cx.now) {
                cx.queue = queue;
                let view = q.view(&self.backlog, &self.limit);
                q.aqm.on_timer(&view, cx);
            }
            q.arm(queue, &mut self.timers);
        }
    }

    fn pull(&mut self) -> Option<Packet> {
        let is_many = self.queues.are_many();
        loop {
            let (which, queue) = self.first()?;
            let q = self.queues.at(queue);
            let is_empty = q.head == NONE;
            let behind = if is_empty { OFF_LIST } else { NONE };
            let next = core::mem::replace(&mut q.next, behind);
            if is_empty {
                self.unlink(which, next);
                continue;
            }
            let packet;
            (packet, q.head) = self.pool.take(q.head);
            q.packets -= u32::from(packet.segments);
            q.bytes -= packet.len;
            self.backlog.remove(&packet);
            if is_many {
                self.fattest.set(queue, q.weight(self.variant));
            }
            self.unlink(which, next);
            self.append(Which::Old, queue);
            return Some(packet);
        }
    }

    fn memory(&self) -> usize {
        size_of::<Self>()
            + self.pool.memory()
            + self.queues.memory()
            + self.timers.memory()
            + self.fattest.memory()
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }

    fn blank(&self) -> Option<Box<dyn Discipline>> {
        if A::SHARES_STATE {
            return None;
        }
        let queues = Queues::new(self.queues.len(), Arc::clone(self.queues.params()));
        Some(Box::new(Fq {
            new: List::EMPTY,
            old: List::EMPTY,
            pool: Pool::EMPTY,
            backlog: Backlog::default(),
            timers: Timers::default(),
            fattest: Fattest::new(queues.len()),
            queues,
            ..*self
        }))
    }

    fn places(&self, flow: u32) -> [Place; 2] {
        let queue = self.queues.get(self.queues.number(flow));
        let more = match self.queues.are_many() {
            true => self.fattest.place(),
            false => self.pool.place(),
        };
        [queue.map_or(Place::NONE, Place::of), more]
    }

    fn prefetch_dequeue(&self) {
        // NONE and OFF_LIST are beyond all queues.
        let behind = |queue: &Queue<A>| self.queues.get(queue.next);
        let first = self.first().and_then(|(_, first)| self.queues.get(first));
        let Some(mut next) = first else {
            return;
        };
        if next.credits < self.least_credits {
            next = behind(next).unwrap_or(next);
        }
        self.pool.prefetch_take(next.head);
        // The queue after that is fetched now, so that its packet can be fetched next time.
        if let Some(after) = behind(next) {
            prefetch::line(after);
        }
    }

    fn state(&self, visit: &mut dyn FnMut(u32, &'static str, StateValue)) {
        for list in [self.new, self.old] {
            let mut queue = list.head;
            while queue != NONE {
                let q = self
                    .queues
                    .get(queue)
                    .expect("a queue on a list has seen a packet");
                q.aqm.state(&mut |name, value| visit(queue, name, value));
                queue = q.next;
            }
        }
    }
}

impl List {
    const EMPTY: List = List {
        head: NONE,
        tail: NONE,
    };
}
