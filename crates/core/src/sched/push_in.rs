//! The queue under `pifo` and `pieo`: packets are pushed in where their rank says.

use alloc::vec::Vec;

use super::heap::Heap;
use super::minmax::MinMax;
use super::pool::Pool;
use super::rank::{Place, Rank};
use super::{Discipline, Wake};
use crate::event::{Backlog, Cx, DropReason};
use crate::packet::Packet;
use crate::units::Time;

/// A push-in queue: the eligible packet of least rank leaves first.
///
/// When it is full, the eligible packet of greatest rank is thrown out, the arriving one included;
/// of equal ranks the younger one goes. Costs O(log n).
///
/// ```
/// use sluice_core::sched::{Discipline, push_in::PushIn, rank::{Place, Rank}};
/// use sluice_core::{Cx, DropCounter, Packet, Rng, Time};
///
/// /// Last in, first out.
/// struct Youngest;
///
/// impl Rank for Youngest {
///     fn place(&self, packet: &Packet, _now: Time) -> Place {
///         Place::now(u64::MAX - packet.arrival.as_ns())
///     }
/// }
///
/// let mut queue = PushIn::new(100, Youngest);
/// let (mut rng, mut sink) = (Rng::from_seed(1), DropCounter::default());
/// let mut cx = Cx::new(Time::ZERO, &mut rng, &mut sink);
/// for slot in 0..3 {
///     let mut packet = Packet::new(slot, 1500);
///     packet.arrival = Time::from_ns(u64::from(slot));
///     queue.enqueue(packet, &mut cx);
/// }
/// assert_eq!(queue.dequeue(&mut cx).map(|p| p.slot), Some(2));
/// ```
pub struct PushIn<R> {
    rank: R,
    limit: u64,
    /// Packets that may leave.
    ready: MinMax<Entry>,
    /// Packets that may not leave yet, by the instant from which they may.
    waiting: Heap<Time>,
    /// Rank and number of the packet in each node.
    entries: Vec<Entry>,
    pool: Pool,
    arrivals: u64,
    backlog: Backlog,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    rank: u64,
    /// Number in the order of arrival, so that equal ranks are first in, first out.
    seq: u64,
    node: u32,
}

impl<R: Rank> PushIn<R> {
    /// An empty queue for `limit` wire packets that are ranked by `rank`.
    pub fn new(limit: u64, rank: R) -> Self {
        PushIn {
            rank,
            limit,
            ready: MinMax::new(),
            waiting: Heap::new(),
            entries: Vec::new(),
            pool: Pool::new(),
            arrivals: 0,
            backlog: Backlog::default(),
        }
    }

    /// Throws out packets of a rank greater than `rank`, until there is room for `segments`.
    fn make_room(&mut self, segments: u64, rank: u64, cx: &mut Cx<'_>) -> bool {
        if segments > self.limit {
            return false;
        }
        while self.backlog.packets + segments > self.limit {
            let Some(worst) = self.ready.greatest().filter(|worst| worst.rank > rank) else {
                return false;
            };
            self.ready.pop_greatest();
            let packet = self.take(worst);
            cx.discard(packet, DropReason::Evicted);
        }
        true
    }

    fn take(&mut self, entry: Entry) -> Packet {
        let packet = self.pool.take_single(entry.node);
        self.backlog.remove(&packet);
        packet
    }

    /// Makes ready what may leave at `now`.
    fn admit(&mut self, now: Time) {
        while let Some((_, node)) = self.waiting.peek().filter(|(at, _)| *at <= now) {
            self.waiting.remove(node);
            self.ready.push(self.entries[node as usize]);
        }
    }
}

impl<R: Rank> Discipline for PushIn<R> {
    fn enqueue(&mut self, packet: Packet, cx: &mut Cx<'_>) {
        self.admit(cx.now);
        let place = self.rank.place(&packet, cx.now);
        if !self.make_room(u64::from(packet.segments), place.rank, cx) {
            cx.discard(packet, DropReason::Overflow);
            return;
        }
        let Place { rank, eligible } = place;
        self.rank.accepted(&packet, place);
        self.backlog.add(&packet);
        cx.enqueued(&packet);
        let node = self.pool.put_single(packet);
        let entry = Entry {
            rank,
            seq: self.arrivals,
            node,
        };
        self.arrivals += 1;
        if self.entries.len() <= node as usize {
            self.entries.resize(node as usize + 1, entry);
        }
        self.entries[node as usize] = entry;
        if eligible <= cx.now {
            self.ready.push(entry);
        } else {
            self.waiting.set(node, eligible);
        }
    }

    fn dequeue(&mut self, cx: &mut Cx<'_>) -> Option<Packet> {
        self.admit(cx.now);
        let entry = self.ready.pop_least()?;
        let packet = self.take(entry);
        self.rank.left(&packet, entry.rank);
        cx.dequeued(&packet);
        Some(packet)
    }

    fn next_wake(&self) -> Wake {
        match self.waiting.peek() {
            _ if !self.ready.is_empty() => Wake::Now,
            Some((at, _)) => Wake::At(at),
            None => Wake::OnEnqueue,
        }
    }

    fn pull(&mut self) -> Option<Packet> {
        let entry = match self.ready.pop_least() {
            Some(entry) => entry,
            None => {
                let (_, node) = self.waiting.peek()?;
                self.waiting.remove(node);
                self.entries[node as usize]
            }
        };
        Some(self.take(entry))
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }
}
