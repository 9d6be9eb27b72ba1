//! `fifo`: one queue in the order of arrival, with limits in packets and bytes.
//!
//! It is also the queue of each plain AQM (`codel` is a FIFO queue with CoDel). A limit
//! counts wire packets, so a super-packet of 44 segments counts 44. When the limit is reached,
//! either the arriving packet is refused (tail drop) or packets at the head are dropped until it
//! fits (head drop). The defaults are those of `tc`'s pfifo: 1000 packets.

use alloc::collections::VecDeque;

use super::{Discipline, DisciplineAlgorithm, Wake};
use crate::aqm::{Aqm, Overflow, QueueView, Verdict};
use crate::event::{Backlog, Cx, DropReason, StateValue};
use crate::packet::Packet;
use crate::units::{Bytes, Rate, Time};
use crate::{choice, params};

params! {
    /// The limits of a single queue.
    pub struct FifoParams {
        /// wire packets that the queue holds
        limit: u64 = Count(1000), Count(1) => Count(u64::MAX), "Linux pfifo and codel: 1000 packets";
        /// bytes that the queue holds
        limit_bytes: Bytes = Bytes(Bytes::new(u64::MAX)), Bytes(Bytes::new(1)) => Bytes(Bytes::new(u64::MAX)), "none: packets are counted";
    }
}

choice! {
    /// The end at which a full queue drops.
    pub enum DropEnd {
        /// The arriving packet is refused.
        Tail = "tail",
        /// The oldest packet is dropped.
        Head = "head",
    }
}

params! {
    /// Parameters of a plain FIFO.
    pub struct PlainFifoParams {
        /// wire packets that the queue holds
        limit: u64 = Count(1000), Count(1) => Count(u64::MAX), "Linux pfifo: 1000 packets";
        /// bytes that the queue holds
        limit_bytes: Bytes = Bytes(Bytes::new(u64::MAX)), Bytes(Bytes::new(1)) => Bytes(Bytes::new(u64::MAX)), "none: packets are counted";
        /// the end at which a full queue drops
        drop: DropEnd = Choice("tail"), "common practice before RED and CoDel";
    }
}

/// A FIFO queue that asks an AQM.
pub struct Fifo<A> {
    limit: Backlog,
    aqm: A,
    queue: VecDeque<Packet>,
    backlog: Backlog,
}

/// The AQM of a plain queue.
pub struct Silent(Overflow);

impl Aqm for Silent {
    fn overflow(&self) -> Overflow {
        self.0
    }
}

/// A FIFO queue without an AQM.
pub type PlainFifo = Fifo<Silent>;

impl DisciplineAlgorithm for PlainFifo {
    type Params = PlainFifoParams;
    const DOC: &'static str = "one queue in the order of arrival";

    fn new(params: &PlainFifoParams) -> Self {
        let limits = FifoParams {
            limit: params.limit,
            limit_bytes: params.limit_bytes,
        };
        Fifo::new(
            &limits,
            Silent(match params.drop {
                DropEnd::Tail => Overflow::Tail,
                DropEnd::Head => Overflow::Head,
            }),
        )
    }
}

impl<A: Aqm> Fifo<A> {
    /// Creates an empty queue.
    pub fn new(params: &FifoParams, aqm: A) -> Self {
        Fifo {
            limit: Backlog {
                packets: params.limit,
                bytes: params.limit_bytes.as_u64(),
            },
            aqm,
            queue: VecDeque::new(),
            backlog: Backlog::default(),
        }
    }

    fn view(&self) -> QueueView {
        QueueView {
            packets: self.backlog.packets,
            bytes: self.backlog.bytes,
            total_bytes: self.backlog.bytes,
            limit_packets: self.limit.packets,
            limit_bytes: self.limit.bytes,
        }
    }

    fn fits(&self, packet: &Packet) -> bool {
        self.backlog.packets + u64::from(packet.segments) <= self.limit.packets
            && self.backlog.bytes + u64::from(packet.len) <= self.limit.bytes
    }

    fn pop(&mut self) -> Option<Packet> {
        let packet = self.queue.pop_front()?;
        self.backlog.remove(&packet);
        Some(packet)
    }

    /// Makes room at the head. Returns the packet if no amount of room is enough.
    fn evict_for(&mut self, packet: Packet, cx: &mut Cx<'_>) -> Option<Packet> {
        if u64::from(packet.segments) > self.limit.packets
            || u64::from(packet.len) > self.limit.bytes
        {
            return Some(packet);
        }
        while !self.fits(&packet) {
            let head = self
                .pop()
                .expect("a queue that is over its limit has a head");
            cx.discard(head, DropReason::Evicted);
            self.aqm.on_overflow(1, cx);
        }
        self.backlog.add(&packet);
        cx.enqueued(&packet);
        self.queue.push_back(packet);
        None
    }
}

impl<A: Aqm> Discipline for Fifo<A> {
    fn enqueue(&mut self, mut packet: Packet, cx: &mut Cx<'_>) {
        let fits = self.fits(&packet);
        if !fits && self.aqm.overflow() == Overflow::Tail {
            self.aqm.on_refused(&packet, &self.view(), cx);
            cx.discard(packet, DropReason::Overflow);
            return;
        }
        match self.aqm.on_enqueue(&packet, &self.view(), cx) {
            Verdict::Pass => {}
            Verdict::Mark => cx.mark(&mut packet),
            Verdict::Drop(reason) => {
                cx.discard(packet, reason);
                return;
            }
        }
        if fits {
            cx.enqueued(&packet);
            self.backlog.add(&packet);
            self.queue.push_back(packet.moved());
        } else if let Some(packet) = self.evict_for(packet, cx) {
            cx.discard(packet, DropReason::Overflow);
        }
    }

    fn dequeue(&mut self, cx: &mut Cx<'_>) -> Option<Packet> {
        loop {
            let Some(mut packet) = self.pop() else {
                self.aqm.on_empty(cx);
                return None;
            };
            match self.aqm.on_dequeue(&packet, &self.view(), cx) {
                Verdict::Pass => {}
                Verdict::Mark => cx.mark(&mut packet),
                Verdict::Drop(reason) => {
                    cx.discard(packet, reason);
                    continue;
                }
            }
            cx.dequeued(&packet);
            return Some(packet);
        }
    }

    fn next_wake(&self) -> Wake {
        if self.queue.is_empty() {
            Wake::OnEnqueue
        } else {
            Wake::Now
        }
    }

    fn next_timer(&self) -> Option<Time> {
        self.aqm.next_timer()
    }

    fn on_timer(&mut self, cx: &mut Cx<'_>) {
        self.aqm.on_timer(&self.view(), cx);
    }

    fn pull(&mut self) -> Option<Packet> {
        self.pop()
    }

    fn memory(&self) -> usize {
        size_of::<Self>() + self.aqm.memory() + self.queue.capacity() * size_of::<Packet>()
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }

    fn on_rate(&mut self, rate: Rate) {
        self.aqm.on_rate(rate);
    }

    fn state(&self, visit: &mut dyn FnMut(u32, &'static str, StateValue)) {
        self.aqm.state(&mut |name, value| visit(0, name, value));
    }
}
