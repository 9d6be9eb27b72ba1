//! `fq_*`: flow queueing by deficit round robin with priority for new flows, over any AQM.
//!
//! Packets are hashed into `flows` queues, each with its own AQM. Queues take turns of `quantum`
//! bytes; a queue that becomes active is served before those that stay active, so that sparse
//! flows see hardly any queue. When the packet limit is exceeded, the queue with the most bytes
//! gives up packets from its head.
//!
//! Source: RFC 8290 ("FQ-CoDel"). Where it is silent or contradicts itself:
//! 1. A turn ends when the credits are zero or less (section 3; section 4.2 says negative).
//! 2. On overflow half of the fattest queue's packets are dropped, an odd number rounded down, at
//!    least one and at most 64 (section 4.1.2 with the figures of the Linux implementation).
//! 3. Queues with equally many bytes: the lowest number gives way.
//!
//! Units: bytes as in [`Packet::len`](crate::packet::Packet), wire packets as in `segments`.

use alloc::vec::Vec;

use super::{Discipline, Wake};
use crate::aqm::{Aqm, AqmAlgorithm, QueueView, Verdict};
use crate::event::{Backlog, Cx, DropReason, StateValue};
use crate::packet::Packet;
use crate::params;
use crate::units::Time;

params! {
    /// What the user sets for flow queueing.
    pub struct FqParams {
        /// bytes that a queue may send in one turn
        quantum: u64 = Count(1514), Count(1) => Count(65536), "RFC 8290 section 5.2.4: 1514 bytes, an Ethernet frame";
        /// wire packets that all queues together hold
        limit: u64 = Count(10240), Count(1) => Count(u64::MAX), "RFC 8290 section 5.2.3: 10240 packets";
        /// number of queues
        flows: u64 = Count(1024), Count(1) => Count(65536), "RFC 8290 section 5.2.5: 1024";
    }
}

/// Most packets that one overflow removes.
const DROP_BATCH: u32 = 64;
/// No packet, no queue.
const NONE: u32 = u32::MAX;

/// A flow-queueing discipline whose queues ask `A`.
pub struct Fq<A> {
    quantum: i64,
    limit: u64,
    queues: Vec<Queue<A>>,
    new: List,
    old: List,
    pool: Pool,
    backlog: Backlog,
    timer: Option<Time>,
}

struct Queue<A> {
    head: u32,
    tail: u32,
    /// The queue behind this one on its list.
    next: u32,
    list: OnList,
    credits: i64,
    backlog: Backlog,
    aqm: A,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnList {
    Neither,
    New,
    Old,
}

/// A list of queues, linked through [`Queue::next`].
#[derive(Clone, Copy)]
struct List {
    head: u32,
    tail: u32,
}

/// Storage of all packets; queues are chains through it, so that no queue owns an allocation.
struct Pool {
    nodes: Vec<Node>,
    free: u32,
}

struct Node {
    packet: Option<Packet>,
    next: u32,
}

impl<A: AqmAlgorithm> Fq<A> {
    /// Empty queues.
    pub fn new(params: &FqParams, aqm: A::Params) -> Self {
        let queues: Vec<Queue<A>> = (0..params.flows)
            .map(|_| Queue {
                head: NONE,
                tail: NONE,
                next: NONE,
                list: OnList::Neither,
                credits: 0,
                backlog: Backlog::default(),
                aqm: A::new(&aqm),
            })
            .collect();
        let timer = queues.first().and_then(|q| q.aqm.next_timer());
        Fq {
            quantum: params.quantum as i64,
            limit: params.limit,
            queues,
            new: List::EMPTY,
            old: List::EMPTY,
            pool: Pool {
                nodes: Vec::new(),
                free: NONE,
            },
            backlog: Backlog::default(),
            timer,
        }
    }
}

impl<A: Aqm> Fq<A> {
    fn view(&self, queue: u32) -> QueueView {
        let backlog = self.queues[queue as usize].backlog;
        QueueView {
            packets: backlog.packets,
            bytes: backlog.bytes,
            total_bytes: self.backlog.bytes,
            limit_packets: self.limit,
            limit_bytes: u64::MAX,
        }
    }

    fn pop(&mut self, queue: u32) -> Option<Packet> {
        let q = &mut self.queues[queue as usize];
        if q.head == NONE {
            return None;
        }
        let (packet, next) = self.pool.take(q.head);
        q.head = next;
        if next == NONE {
            q.tail = NONE;
        }
        q.backlog.remove(&packet);
        self.backlog.remove(&packet);
        Some(packet)
    }

    fn push(&mut self, queue: u32, packet: Packet) {
        let q = &mut self.queues[queue as usize];
        q.backlog.add(&packet);
        self.backlog.add(&packet);
        let node = self.pool.put(packet);
        if q.tail == NONE {
            q.head = node;
        } else {
            self.pool.nodes[q.tail as usize].next = node;
        }
        q.tail = node;
    }

    /// The queue at the head of the new list, else of the old one.
    fn first(&self) -> u32 {
        if self.new.head != NONE {
            self.new.head
        } else {
            self.old.head
        }
    }

    fn unlink_first(&mut self, queue: u32) {
        let list = match self.queues[queue as usize].list {
            OnList::New => &mut self.new,
            OnList::Old => &mut self.old,
            OnList::Neither => unreachable!("the first queue is on a list"),
        };
        list.head = self.queues[queue as usize].next;
        if list.head == NONE {
            list.tail = NONE;
        }
        self.queues[queue as usize].list = OnList::Neither;
    }

    fn append(&mut self, queue: u32, to: OnList) {
        let list = match to {
            OnList::New => &mut self.new,
            OnList::Old => &mut self.old,
            OnList::Neither => unreachable!("a queue is appended to a list"),
        };
        if list.tail == NONE {
            list.head = queue;
        } else {
            self.queues[list.tail as usize].next = queue;
        }
        list.tail = queue;
        let q = &mut self.queues[queue as usize];
        q.next = NONE;
        q.list = to;
    }

    /// RFC 8290 section 4.1.2: packets go from the head of the queue with the most bytes.
    fn relieve(&mut self, cx: &mut Cx<'_>) {
        let fattest = (0..self.queues.len() as u32)
            .max_by_key(|i| (self.queues[*i as usize].backlog.bytes, u32::MAX - i))
            .expect("there is at least one queue");
        let half = self.queues[fattest as usize].backlog.packets / 2;
        let batch = half.clamp(1, u64::from(DROP_BATCH)) as u32;
        let mut dropped = 0;
        while dropped < batch {
            let Some(packet) = self.pop(fattest) else {
                break;
            };
            dropped += u32::from(packet.segments);
            cx.discard(packet, DropReason::Evicted);
        }
        cx.queue = fattest;
        self.queues[fattest as usize].aqm.on_overflow(dropped, cx);
    }
}

impl<A: Aqm> Discipline for Fq<A> {
    fn enqueue(&mut self, mut packet: Packet, cx: &mut Cx<'_>) {
        let queue = packet.flow % self.queues.len() as u32;
        let view = self.view(queue);
        cx.queue = queue;
        match self.queues[queue as usize]
            .aqm
            .on_enqueue(&packet, &view, cx)
        {
            Verdict::Pass => {}
            Verdict::Mark => cx.mark(&mut packet),
            Verdict::Drop(reason) => {
                cx.discard(packet, reason);
                return;
            }
        }
        cx.enqueued(&packet);
        self.push(queue, packet);
        // RFC 8290 section 4.1.1: a queue on neither list goes to the end of the new ones with a
        // full quantum.
        if self.queues[queue as usize].list == OnList::Neither {
            self.queues[queue as usize].credits = self.quantum;
            self.queues[queue as usize].aqm.on_activate(cx);
            self.append(queue, OnList::New);
        }
        while self.backlog.packets > self.limit {
            self.relieve(cx);
        }
    }

    fn dequeue(&mut self, cx: &mut Cx<'_>) -> Option<Packet> {
        // RFC 8290 section 4.2.
        loop {
            let queue = self.first();
            if queue == NONE {
                return None;
            }
            cx.queue = queue;
            if self.queues[queue as usize].credits <= 0 {
                self.queues[queue as usize].credits += self.quantum;
                self.unlink_first(queue);
                self.append(queue, OnList::Old);
                continue;
            }
            while let Some(mut packet) = self.pop(queue) {
                let view = self.view(queue);
                match self.queues[queue as usize]
                    .aqm
                    .on_dequeue(&packet, &view, cx)
                {
                    Verdict::Pass => {}
                    Verdict::Mark => cx.mark(&mut packet),
                    Verdict::Drop(reason) => {
                        cx.discard(packet, reason);
                        continue;
                    }
                }
                self.queues[queue as usize].credits -= i64::from(packet.len);
                cx.dequeued(&packet);
                return Some(packet);
            }
            // An emptied new queue goes once through the old ones, so that a flow cannot stay
            // "new" by sending one packet per turn.
            self.queues[queue as usize].aqm.on_empty(cx);
            let was_new = self.queues[queue as usize].list == OnList::New;
            self.unlink_first(queue);
            if was_new {
                self.append(queue, OnList::Old);
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
        self.timer
    }

    fn on_timer(&mut self, cx: &mut Cx<'_>) {
        let mut next: Option<Time> = None;
        for queue in 0..self.queues.len() as u32 {
            let view = self.view(queue);
            let aqm = &mut self.queues[queue as usize].aqm;
            if aqm.next_timer().is_some_and(|due| due <= cx.now) {
                cx.queue = queue;
                aqm.on_timer(&view, cx);
            }
            next = match (next, aqm.next_timer()) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        }
        self.timer = next;
    }

    fn pull(&mut self) -> Option<Packet> {
        loop {
            let queue = self.first();
            if queue == NONE {
                return None;
            }
            self.unlink_first(queue);
            if let Some(packet) = self.pop(queue) {
                self.append(queue, OnList::Old);
                return Some(packet);
            }
        }
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }

    fn state(&self, visit: &mut dyn FnMut(u32, &'static str, StateValue)) {
        for (i, q) in self.queues.iter().enumerate() {
            if q.list != OnList::Neither {
                q.aqm.state(&mut |name, value| visit(i as u32, name, value));
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

impl Pool {
    fn put(&mut self, packet: Packet) -> u32 {
        if self.free == NONE {
            self.nodes.push(Node {
                packet: Some(packet),
                next: NONE,
            });
            return self.nodes.len() as u32 - 1;
        }
        let index = self.free;
        let node = &mut self.nodes[index as usize];
        self.free = node.next;
        *node = Node {
            packet: Some(packet),
            next: NONE,
        };
        index
    }

    fn take(&mut self, index: u32) -> (Packet, u32) {
        let node = &mut self.nodes[index as usize];
        let packet = node.packet.take().expect("a chained node holds a packet");
        let next = core::mem::replace(&mut node.next, self.free);
        self.free = index;
        (packet, next)
    }
}
