//! The queue under `pifo` and `pieo`: each packet is inserted at the place of its rank.

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use super::allocated;
use super::pool::Pool;
use super::rank::{Place, Rank};
use super::{Discipline, Wake};
use crate::event::{Backlog, Cx, DropReason};
use crate::packet::Packet;
use crate::units::Time;

/// A push-in queue: the eligible packet with the lowest rank leaves first.
///
/// A full queue drops the eligible packet with the highest rank, which may be the arriving one; of
/// packets with equal ranks the younger is dropped. Costs O(log n).
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
    /// Packets that may leave, the lowest rank first.
    ready: BinaryHeap<Reverse<Entry>>,
    /// The same packets, the highest rank first, while a full queue needs them.
    worst: BinaryHeap<Entry>,
    /// Arrivals for which `worst` is still maintained; zero while it is not.
    worst_for: usize,
    /// Packets that may not leave yet, by the instant from which they may.
    waiting: BinaryHeap<Reverse<(Time, Entry)>>,
    /// The packet in each node. An entry whose packet left by the other heap is void.
    seqs: Vec<u64>,
    pool: Pool,
    arrivals: u64,
    backlog: Backlog,
    /// Packets in `ready` that have not left.
    ready_count: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    rank: u64,
    /// Number in the order of arrival, so that equal ranks are first in, first out.
    seq: u64,
    node: u32,
}

/// Void entries that may stay in a heap before they are removed.
const TOLERATED: usize = 64;

impl<R: Rank> PushIn<R> {
    /// Creates an empty queue for `limit` wire packets, ranked by `rank`.
    pub fn new(limit: u64, rank: R) -> Self {
        PushIn {
            rank,
            limit,
            ready: BinaryHeap::new(),
            worst: BinaryHeap::new(),
            worst_for: 0,
            waiting: BinaryHeap::new(),
            seqs: Vec::new(),
            pool: Pool::new(),
            arrivals: 0,
            backlog: Backlog::default(),
            ready_count: 0,
        }
    }

    /// Drops packets of a rank greater than `rank` until there is room for `segments`.
    fn make_room(&mut self, segments: u64, rank: u64, cx: &mut Cx<'_>) -> bool {
        if segments > self.limit {
            return false;
        }
        while self.backlog.packets + segments > self.limit {
            let Some(worst) = self.worst().filter(|worst| worst.rank > rank) else {
                return false;
            };
            self.worst.pop();
            self.ready_count -= 1;
            let packet = self.take(worst);
            cx.discard(packet, DropReason::Evicted);
        }
        true
    }

    /// Returns the entry with the highest rank. The heap for it is built when a queue is full for
    /// the first time, and is maintained until as many packets as it holds have arrived without
    /// another overflow. Building it then costs less than a visit per packet.
    fn worst(&mut self) -> Option<Entry> {
        let Self {
            ready, worst, seqs, ..
        } = self;
        if self.worst_for == 0 {
            worst.clear();
            worst.extend(ready.iter().map(|entry| entry.0).filter(|e| e.is_in(seqs)));
        }
        self.worst_for = self.ready_count.max(TOLERATED);
        while let Some(entry) = self.worst.peek() {
            if entry.is_in(&self.seqs) {
                return Some(*entry);
            }
            self.worst.pop();
        }
        None
    }

    fn push_ready(&mut self, entry: Entry) {
        self.ready.push(Reverse(entry));
        self.ready_count += 1;
        if self.worst_for > 0 {
            self.worst.push(entry);
        }
        // Each heap is cleared of entries that left by the other one before they are the majority.
        let tolerated = 2 * self.ready_count + TOLERATED;
        let seqs = &self.seqs;
        if self.ready.len() > tolerated {
            self.ready.retain(|entry| entry.0.is_in(seqs));
        }
        if self.worst.len() > tolerated {
            self.worst.retain(|entry| entry.is_in(seqs));
        }
    }

    fn pop_ready(&mut self) -> Option<Entry> {
        loop {
            let Reverse(entry) = self.ready.pop()?;
            if entry.is_in(&self.seqs) {
                self.ready_count -= 1;
                return Some(entry);
            }
        }
    }

    fn take(&mut self, entry: Entry) -> Packet {
        let packet = self.pool.take_single(entry.node);
        self.seqs[entry.node as usize] = u64::MAX;
        self.backlog.remove(&packet);
        packet
    }

    /// Makes packets that may leave at `now` ready.
    fn admit(&mut self, now: Time) {
        while let Some(Reverse((_, entry))) = self.waiting.peek().filter(|w| w.0.0 <= now).copied()
        {
            self.waiting.pop();
            self.push_ready(entry);
        }
    }
}

impl Entry {
    /// Returns whether the packet has not left.
    #[inline]
    fn is_in(&self, seqs: &[u64]) -> bool {
        seqs[self.node as usize] == self.seq
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
        self.worst_for = self.worst_for.saturating_sub(1);
        if self.seqs.len() <= node as usize {
            self.seqs.resize(node as usize + 1, u64::MAX);
        }
        self.seqs[node as usize] = entry.seq;
        if eligible <= cx.now {
            self.push_ready(entry);
        } else {
            self.waiting.push(Reverse((eligible, entry)));
        }
    }

    fn dequeue(&mut self, cx: &mut Cx<'_>) -> Option<Packet> {
        self.admit(cx.now);
        let entry = self.pop_ready()?;
        let packet = self.take(entry);
        self.rank.left(&packet, entry.rank);
        cx.dequeued(&packet);
        Some(packet)
    }

    fn next_wake(&self) -> Wake {
        match self.waiting.peek() {
            _ if self.ready_count > 0 => Wake::Now,
            Some(Reverse((at, _))) => Wake::At(*at),
            None => Wake::OnEnqueue,
        }
    }

    fn pull(&mut self) -> Option<Packet> {
        let entry = match self.pop_ready() {
            Some(entry) => entry,
            None => self.waiting.pop()?.0.1,
        };
        Some(self.take(entry))
    }

    fn memory(&self) -> usize {
        size_of::<Self>()
            + self.rank.memory()
            + self.ready.capacity() * size_of::<Reverse<Entry>>()
            + self.worst.capacity() * size_of::<Entry>()
            + self.waiting.capacity() * size_of::<Reverse<(Time, Entry)>>()
            + allocated(&self.seqs)
            + self.pool.memory()
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }
}
