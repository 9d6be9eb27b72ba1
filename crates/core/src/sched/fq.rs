//! `fq_*`: flow queueing by deficit round robin with priority for new flows, over any AQM.
//!
//! Packets are hashed into `flows` queues, each with its own AQM. Queues take turns of `quantum`
//! bytes; a queue that becomes active is served before those that stay active, so that sparse
//! flows see hardly any queue. When the packet limit is exceeded, the fattest queue gives up packets
//! from its head.
//!
//! Source: RFC 8290 ("FQ-CoDel"). Where it is silent or contradicts itself, `rfc` is settled so:
//! 1. A turn ends when the credits are zero or less (section 3; section 4.2 says negative).
//! 2. On overflow half of the fattest queue's packets are dropped, an odd number rounded down, at
//!    least one and at most `drop_batch` (section 4.1.2 with the figures of section 5.2.8).
//! 3. Queues with equally many bytes: the lowest number gives way.
//! 4. One queue holds less than 4 GiB; a packet beyond that is refused.
//! 5. A super-packet counts its segments against `limit` and `drop_batch`, its bytes against the
//!    quantum.
//!
//! `linux` differs from it so:
//! 1. An emptied queue at the head of the new list goes to the old list only if that is not empty;
//!    otherwise it is released, and its next packet makes it new again.
//! 2. On overflow packets go until half of the **bytes** are freed, at most `drop_batch` packets.
//! 3. The AQM learns how many were evicted (CoDel adds them to its count).
//! 4. CoDel's byte floor compares the backlog of the whole discipline with the MTU.
//! 5. `fq_pie` refuses the packet that arrives instead of evicting others.
//!
//! `dummynet` differs from it so:
//! 1. A queue keeps its turn while its credits are zero or more.
//! 2. On overflow one packet goes, from the head of the queue with most **packets**, the lowest
//!    number on ties.
//! 3. The AQM of a queue that becomes active is told (CoDel and PIE forget their state).
//!
//! Not taken over, but warned of: Linux raises a quantum below 256 to 256, and drops beyond 32 MB of
//! buffers, whose sizes are the driver's and unknown here; dummynet bounds quantum and limit silently.
//!
//! Cost: queues take memory from their first packet on. A packet touches its queue (one cache line
//! with CoDel inside), one node of the pool and the weight of its queue on its way in and out, whatever
//! the number of queues. The fattest queue is found from those weights without a scan, also at the
//! first overflow: keeping them up costs 3 to 6 ns per packet while they are in the cache.
//!
//! Units: bytes as in [`Packet::len`](crate::packet::Packet), wire packets as in `segments`.

mod pages;
mod pool;
mod timers;

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use self::pages::Queues;
use self::pool::{NONE, Pool};
use self::timers::Timers;
use super::fattest::Fattest;
use super::{Discipline, Wake};
use crate::aqm::{AqmAlgorithm, Overflow, QueueView, Verdict};
use crate::event::{Backlog, Cx, DropReason, StateValue};
use crate::packet::Packet;
use crate::param::{Variant, Warnings, beyond_dummynet};
use crate::params;
use crate::units::{Bytes, Time};

params! {
    /// What the user sets for flow queueing.
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
        drop_batch: u64 = Count(64), Count(1) => Count(65536), "RFC 8290 section 5.2.8: 64";
        /// whose rules hold where they differ
        variant: Variant = Choice("rfc"), "the published text";
    } ; warnings FqParams::doubts
}

impl FqParams {
    fn doubts(&self) -> Warnings {
        match self.variant {
            Variant::Rfc => Vec::new(),
            Variant::Linux => {
                let mut doubts = Vec::new();
                let (quantum, limit) = (self.quantum, self.limit);
                if quantum < 256 {
                    let sentence = "Linux would silently take 256";
                    doubts.push(alloc::format!("`quantum {quantum}`: {sentence}"));
                }
                if limit > LINUX_MEMORY / 1514 && self.limit_bytes.as_u64() > LINUX_MEMORY {
                    let sentence = "Linux would stop at 32 MB of buffers (`memory_limit`), which a \
                                    trace does not show; `limit_bytes` counts bytes on the wire";
                    doubts.push(alloc::format!("`limit {limit}`: {sentence}"));
                }
                doubts
            }
            Variant::Dummynet => [
                beyond_dummynet("quantum", self.quantum, 1, 9000),
                beyond_dummynet("limit", self.limit, 1, 20_480),
            ]
            .into_iter()
            .flatten()
            .collect(),
        }
    }
}

/// A flow-queueing discipline whose queues ask `A`.
///
/// What every packet needs comes first and together, for links of which there are very many.
#[repr(C)]
pub struct Fq<A: AqmAlgorithm> {
    backlog: Backlog,
    limit: Backlog,
    new: List,
    old: List,
    quantum: i32,
    /// A queue with fewer credits waits for its next turn.
    least_credits: i32,
    drop_batch: u32,
    variant: Variant,
    pool: Pool,
    fattest: Fattest,
    timers: Timers,
    queues: Queues<A>,
}

/// One queue. With CoDel inside it is one cache line.
#[repr(align(64))]
struct Queue<A> {
    /// Nodes of the pool.
    head: u32,
    tail: u32,
    /// The queue behind this one on its list; [`OFF_LIST`] on neither.
    next: u32,
    credits: i32,
    packets: u32,
    bytes: u32,
    aqm: A,
}

/// Linux `memory_limit`: 32 MB.
const LINUX_MEMORY: u64 = 32 << 20;
/// In the place of the next queue: on no list.
const OFF_LIST: u32 = NONE - 1;

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

impl<A: AqmAlgorithm> Fq<A> {
    /// Empty queues.
    pub fn new(params: &FqParams, aqm: A::Params) -> Self {
        let queues = Queues::new(params.flows as usize, Arc::new(aqm));
        Fq {
            variant: params.variant,
            quantum: params.quantum as i32,
            least_credits: match params.variant {
                Variant::Rfc | Variant::Linux => 1,
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

impl<A: AqmAlgorithm> Fq<A> {
    fn view(&self, queue: u32) -> QueueView {
        let queue = &self.queues[queue as usize];
        QueueView {
            packets: u64::from(queue.packets),
            bytes: u64::from(queue.bytes),
            total_bytes: self.backlog.bytes,
            limit_packets: self.limit.packets,
            limit_bytes: self.limit.bytes,
        }
    }

    fn pop(&mut self, queue: u32) -> Option<Packet> {
        let q = &mut self.queues[queue as usize];
        let head = q.head;
        if head == NONE {
            return None;
        }
        let (packet, next) = self.pool.take(head);
        q.head = next;
        q.packets -= u32::from(packet.segments);
        q.bytes -= packet.len;
        self.backlog.remove(&packet);
        self.weigh(queue);
        Some(packet)
    }

    fn push(&mut self, queue: u32, packet: Packet) {
        let q = &mut self.queues[queue as usize];
        q.packets += u32::from(packet.segments);
        q.bytes += packet.len;
        self.backlog.add(&packet);
        let node = self.pool.put(packet);
        if q.head == NONE {
            q.head = node;
        } else {
            self.pool.link(q.tail, node);
        }
        q.tail = node;
        self.weigh(queue);
    }

    fn weigh(&mut self, queue: u32) {
        let weight = self.queues[queue as usize].weight(self.variant);
        self.fattest.set(queue, weight);
    }

    fn first(&self) -> Option<(Which, u32)> {
        if self.new.head != NONE {
            Some((Which::New, self.new.head))
        } else if self.old.head != NONE {
            Some((Which::Old, self.old.head))
        } else {
            None
        }
    }

    /// Takes the first queue off its list.
    fn unlink(&mut self, which: Which, queue: u32) {
        let next = core::mem::replace(&mut self.queues[queue as usize].next, OFF_LIST);
        let list = match which {
            Which::New => &mut self.new,
            Which::Old => &mut self.old,
        };
        list.head = next;
        if next == NONE {
            list.tail = NONE;
        }
    }

    fn append(&mut self, which: Which, queue: u32) {
        self.queues[queue as usize].next = NONE;
        let list = match which {
            Which::New => &mut self.new,
            Which::Old => &mut self.old,
        };
        if list.tail == NONE {
            list.head = queue;
        } else {
            self.queues[list.tail as usize].next = queue;
        }
        list.tail = queue;
    }

    /// A dequeue found the first queue empty.
    fn retire(&mut self, which: Which, queue: u32, cx: &mut Cx<'_>) {
        self.unlink(which, queue);
        // RFC 8290 section 4.2: an emptied new queue goes once through the old ones, so that a flow
        // cannot stay new by sending one packet per turn.
        let passes_old = match self.variant {
            Variant::Rfc | Variant::Dummynet => true,
            Variant::Linux => self.old.head != NONE,
        };
        if which == Which::New && passes_old {
            self.append(Which::Old, queue);
        } else {
            self.queues[queue as usize].aqm.on_deactivate(cx);
        }
    }

    fn is_over_limit(&self) -> bool {
        self.backlog.packets > self.limit.packets || self.backlog.bytes > self.limit.bytes
    }

    /// RFC 8290 section 4.1.2: packets go from the head of the fattest queue.
    #[inline(never)]
    fn relieve(&mut self, cx: &mut Cx<'_>) {
        let fattest = self.fattest.find();
        let q = &self.queues[fattest as usize];
        let (packets, bytes) = match self.variant {
            Variant::Rfc => ((q.packets / 2).clamp(1, self.drop_batch), u32::MAX),
            Variant::Linux => (self.drop_batch, q.bytes / 2),
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
        // Everything else is told once, after the last of them.
        self.backlog.packets -= gone.packets;
        self.backlog.bytes -= gone.bytes;
        let q = &mut self.queues[fattest as usize];
        q.head = head;
        q.packets -= gone.packets as u32;
        q.bytes -= gone.bytes as u32;
        let weight = q.weight(self.variant);
        q.aqm.on_overflow(gone.packets as u32, cx);
        self.fattest.set(fattest, weight);
        self.arm(fattest);
    }

    /// Sees to it that the AQM's timer is called, if its queue is on a list.
    #[inline]
    fn arm(&mut self, queue: u32) {
        let q = &self.queues[queue as usize];
        if let Some(due) = q.aqm.next_timer()
            && q.next != OFF_LIST
        {
            self.timers.arm(queue, due);
        }
    }
}

impl<A: AqmAlgorithm> Discipline for Fq<A> {
    fn enqueue(&mut self, mut packet: Packet, cx: &mut Cx<'_>) {
        let queue = packet.flow % self.queues.len() as u32;
        let view = self.view(queue);
        cx.queue = queue;
        let q = &mut self.queues[queue as usize];
        let refuses = A::FLOW_OVERFLOW_IN_LINUX == Overflow::Tail
            && self.variant == Variant::Linux
            && (self.backlog.packets + u64::from(packet.segments) > self.limit.packets
                || self.backlog.bytes + u64::from(packet.len) > self.limit.bytes);
        if refuses || q.bytes.checked_add(packet.len).is_none() {
            q.aqm.on_refused(&packet, &view, cx);
            cx.discard(packet, DropReason::Overflow);
            self.arm(queue);
            return;
        }
        match q.aqm.on_enqueue(&packet, &view, cx) {
            Verdict::Pass => {}
            Verdict::Mark => cx.mark(&mut packet),
            Verdict::Drop(reason) => {
                cx.discard(packet, reason);
                self.arm(queue);
                return;
            }
        }
        cx.enqueued(&packet);
        self.push(queue, packet);
        // RFC 8290 section 4.1.1: a queue on neither list goes to the end of the new ones with a
        // full quantum.
        let q = &mut self.queues[queue as usize];
        if q.next == OFF_LIST {
            q.credits = self.quantum;
            q.aqm.on_activate(cx);
            self.append(Which::New, queue);
        }
        self.arm(queue);
        while self.is_over_limit() {
            self.relieve(cx);
        }
    }

    fn dequeue(&mut self, cx: &mut Cx<'_>) -> Option<Packet> {
        // RFC 8290 section 4.2.
        loop {
            let (which, queue) = self.first()?;
            cx.queue = queue;
            let q = &mut self.queues[queue as usize];
            if q.credits < self.least_credits {
                q.credits += self.quantum;
                self.unlink(which, queue);
                self.append(Which::Old, queue);
                continue;
            }
            while let Some(mut packet) = self.pop(queue) {
                let view = self.view(queue);
                let q = &mut self.queues[queue as usize];
                match q.aqm.on_dequeue(&packet, &view, cx) {
                    Verdict::Pass => {}
                    Verdict::Mark => cx.mark(&mut packet),
                    Verdict::Drop(reason) => {
                        cx.discard(packet, reason);
                        continue;
                    }
                }
                // A length beyond 2 GiB is no packet of any link.
                let cost = i32::try_from(packet.len).unwrap_or(i32::MAX);
                q.credits = q.credits.saturating_sub(cost);
                self.arm(queue);
                cx.dequeued(&packet);
                return Some(packet);
            }
            self.queues[queue as usize].aqm.on_empty(cx);
            self.retire(which, queue, cx);
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
            let view = self.view(queue);
            let q = &mut self.queues[queue as usize];
            if q.next == OFF_LIST {
                continue;
            }
            if q.aqm.next_timer().is_some_and(|due| due <= cx.now) {
                cx.queue = queue;
                q.aqm.on_timer(&view, cx);
            }
            self.arm(queue);
        }
    }

    fn pull(&mut self) -> Option<Packet> {
        loop {
            let (which, queue) = self.first()?;
            self.unlink(which, queue);
            if let Some(packet) = self.pop(queue) {
                self.append(Which::Old, queue);
                return Some(packet);
            }
        }
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }

    fn blank(&self) -> Option<Box<dyn Discipline>> {
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

    fn touch(&self, flow: u32) -> u64 {
        let timer = self.timers.next().map_or(0, Time::as_ns);
        let own = self.backlog.bytes ^ u64::from(self.drop_batch) ^ timer;
        let queue = &self.queues[flow as usize % self.queues.len()];
        own ^ self.fattest.weight() ^ u64::from(queue.bytes) ^ self.pool.touch()
    }

    fn touch_next(&self) -> u64 {
        let behind =
            |queue: &Queue<A>| (queue.next < OFF_LIST).then(|| &self.queues[queue.next as usize]);
        let Some((_, first)) = self.first() else {
            return 0;
        };
        let mut next = &self.queues[first as usize];
        if next.credits < self.least_credits {
            next = behind(next).unwrap_or(next);
        }
        // The queue after that is looked at now, so that its packet can be looked at next time.
        let after = behind(next).map_or(0, |after| u64::from(after.bytes));
        after ^ self.pool.touch_node(next.head)
    }

    fn state(&self, visit: &mut dyn FnMut(u32, &'static str, StateValue)) {
        for list in [self.new, self.old] {
            let mut queue = list.head;
            while queue != NONE {
                let q = &self.queues[queue as usize];
                q.aqm.state(&mut |name, value| visit(queue, name, value));
                queue = q.next;
            }
        }
    }
}

impl<A: AqmAlgorithm> Queue<A> {
    /// A queue that has not seen a packet.
    fn new(params: &Arc<A::Params>) -> Self {
        Queue {
            head: NONE,
            tail: NONE,
            next: OFF_LIST,
            credits: 0,
            packets: 0,
            bytes: 0,
            aqm: A::for_flow(params),
        }
    }

    /// What the fattest queue has most of.
    fn weight(&self, variant: Variant) -> u64 {
        u64::from(match variant {
            Variant::Rfc | Variant::Linux => self.bytes,
            Variant::Dummynet => self.packets,
        })
    }
}

impl List {
    const EMPTY: List = List {
        head: NONE,
        tail: NONE,
    };
}

/// The claim of one cache line per queue.
const _: () = assert!(core::mem::size_of::<Queue<crate::aqm::codel::Codel>>() == 64);
