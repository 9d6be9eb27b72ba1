//! `sfq`: stochastic fairness queueing. Flows are hashed into queues that take turns, so that flows
//! in different queues get equal parts of the link. The hash is changed from time to time, so that
//! two flows do not share a queue forever.
//!
//! Sources: P. McKenney, "Stochastic Fairness Queueing", IEEE INFOCOM 1990; Linux `sch_sfq`, from
//! which the words and the defaults come.
//!
//! 1. A queue exists as long as it has packets, and there are at most `flows` of them; a packet of
//!    a further flow is refused. `divisor` is the number of hash values.
//! 2. Turns are by deficit: a queue sends while its allotment is positive, and gets `quantum` bytes
//!    when its turn is over. A queue that becomes active waits behind the others (Linux).
//! 3. When all queues together exceed `limit`, the longest one in packets drops its youngest packet
//!    (its oldest with `headdrop`); if all have one packet, the queue whose turn it is drops it. Of
//!    equally long queues it is that of the packet that arrived, if it is one of them (Linux).
//!    Linux finds the longest in a list per length; here a tree of maxima finds it, which takes 3
//!    to 8 ns per packet to maintain.
//! 4. With `perturb` the hash is changed periodically while packets are queued. They move to their
//!    new queues, and those of one flow stay in order; packets for which the new queue has no room
//!    are dropped (Linux). The period starts with the first packet after an idle time.
//! 5. Linux scales lengths down to fit 16 bits; here they are exact. Linux can run RED on each
//!    queue; for an AQM per queue use its `fq_` form.
//!
//! Lengths of queues are in wire packets, quanta in bytes. Bound, for flows in different queues
//! that are always backlogged: bytes sent differ by at most one quantum and two longest packets, as
//! for deficit round robin. Costs O(1), but O(log `flows`) at worst to find the longest queue.

use alloc::vec::Vec;

use super::allocated;
use super::fattest::Fattest;
use super::pool::{Chain, NONE, Pool};
use super::ring::{Links, Ring};
use super::{Discipline, DisciplineAlgorithm, Wake};
use crate::event::{Backlog, Cx, DropReason};
use crate::packet::Packet;
use crate::params;
use crate::units::{Span, Time};

params! {
    /// Parameters of SFQ.
    pub struct SfqParams {
        /// bytes that a queue may send in one turn
        quantum: u64 = Count(1514), Count(64) => Count(1 << 20), "Linux: the MTU and its link header";
        /// wire packets that all queues together hold
        limit: u64 = Count(127), Count(1) => Count(u64::MAX), "Linux: 127 packets";
        /// wire packets that each queue holds
        depth: u64 = Count(127), Count(1) => Count(u64::MAX), "Linux: 127 packets";
        /// largest number of queues with packets at a time
        flows: u64 = Count(128), Count(1) => Count(65536), "Linux: 128 flows";
        /// number of hash values
        divisor: u64 = Count(1024), Count(1) => Count(65536), "Linux: 1024";
        /// interval between changes of the hash; 0 is never
        perturb: Span = Span(Span::ZERO), Span(Span::ZERO) => Span(Span::from_secs(3600)), "Linux: 0, with 10 s recommended";
        /// drop the oldest packet of a full queue instead of the youngest
        headdrop: bool = Flag(false), "Linux: the youngest";
    } check |p: &SfqParams| {
        // Linux takes whole seconds; each change moves every packet.
        if p.perturb != Span::ZERO && p.perturb < Span::from_secs(1) {
            return Err(alloc::format!("perturb {} is neither 0 nor at least 1s", p.perturb));
        }
        Ok(())
    }
}

/// Hashed queues that take turns.
pub struct Sfq {
    params: SfqParams,
    /// Mixed into every hash.
    perturbation: u64,
    perturb_at: Option<Time>,
    /// The queue of each hash value, or [`NONE`].
    queue_of: Vec<u32>,
    queues: Vec<Queue>,
    free: Vec<u32>,
    links: Links,
    turns: Ring,
    longest: Fattest,
    pool: Pool,
    backlog: Backlog,
    /// Holds packets while they change their queues.
    moving: Vec<Chain>,
}

#[derive(Clone, Copy)]
struct Queue {
    hash: u32,
    chain: Chain,
    packets: u64,
    allotment: i64,
}

impl DisciplineAlgorithm for Sfq {
    type Params = SfqParams;
    const DOC: &'static str = "stochastic fairness queueing: hashed flows take turns";

    fn new(params: &SfqParams) -> Self {
        let flows = params.flows as u32;
        let mut links = Links::default();
        links.reserve(flows - 1);
        let queue = Queue {
            hash: 0,
            chain: Chain::EMPTY,
            packets: 0,
            allotment: 0,
        };
        Sfq {
            params: params.clone(),
            perturbation: 0,
            perturb_at: None,
            queue_of: alloc::vec![NONE; params.divisor as usize],
            queues: alloc::vec![queue; flows as usize],
            free: (0..flows).rev().collect(),
            links,
            turns: Ring::EMPTY,
            longest: Fattest::new(flows as usize),
            pool: Pool::new(),
            backlog: Backlog::default(),
            moving: Vec::new(),
        }
    }
}

impl Discipline for Sfq {
    fn enqueue(&mut self, packet: Packet, cx: &mut Cx<'_>) {
        let segments = u64::from(packet.segments);
        let hash = self.hash(&packet);
        let Some(queue) = self.queue_for(hash) else {
            cx.discard(packet, DropReason::Overflow);
            return;
        };
        let depth = self.params.depth.min(self.params.limit);
        let is_full = self.queues[queue as usize].packets + segments > depth;
        if is_full && (!self.params.headdrop || segments > depth) {
            self.release_if_empty(queue);
            cx.discard(packet, DropReason::Overflow);
            return;
        }
        while self.queues[queue as usize].packets + segments > depth {
            self.drop_one(queue, cx);
        }
        let own = self.queues[queue as usize].packets + segments;
        let is_over = self.backlog.packets + segments > self.params.limit;
        if is_over && !self.params.headdrop && own > 1 && own >= self.longest.weight() {
            // The youngest packet of the longest queue would be this one.
            self.release_if_empty(queue);
            cx.discard(packet, DropReason::Evicted);
            return;
        }
        cx.enqueued(&packet);
        self.push(queue, packet);
        while self.backlog.packets > self.params.limit {
            let most = self.longest.weight();
            let victim = match self.turns.first() {
                Some(next) if most == 1 => next,
                // Its lines are in the cache, and Linux also begins with the queue that grew last.
                _ if self.queues[queue as usize].packets == most => queue,
                _ => self.longest.find(),
            };
            self.drop_one(victim, cx);
            self.release_if_empty(victim);
        }
        if self.perturb_at.is_none() && self.params.perturb != Span::ZERO {
            self.perturb_at = Some(cx.now.saturating_add(self.params.perturb));
        }
    }

    fn dequeue(&mut self, cx: &mut Cx<'_>) -> Option<Packet> {
        let packet = self.pull()?;
        cx.dequeued(&packet);
        Some(packet)
    }

    fn next_wake(&self) -> Wake {
        if self.turns.is_empty() {
            Wake::OnEnqueue
        } else {
            Wake::Now
        }
    }

    fn next_timer(&self) -> Option<Time> {
        self.perturb_at
    }

    fn on_timer(&mut self, cx: &mut Cx<'_>) {
        if self.perturb_at.is_some_and(|at| at <= cx.now) {
            self.perturbation = cx.rng.next_u64();
            self.rehash(cx);
            let again = !self.backlog.is_empty();
            self.perturb_at = again.then(|| cx.now.saturating_add(self.params.perturb));
        }
    }

    fn pull(&mut self) -> Option<Packet> {
        loop {
            let id = self.turns.first()?;
            let queue = &mut self.queues[id as usize];
            if queue.allotment <= 0 {
                queue.allotment += self.params.quantum as i64;
                self.links.rotate(&mut self.turns);
                continue;
            }
            let packet = self.pool.pop_front(&mut queue.chain);
            let packet = packet.expect("a queue that takes turns has a packet");
            queue.allotment -= i64::from(packet.len);
            self.count_out(id, &packet);
            self.release_if_empty(id);
            return Some(packet);
        }
    }

    fn memory(&self) -> usize {
        size_of::<Self>()
            + allocated(&self.queue_of)
            + allocated(&self.queues)
            + allocated(&self.free)
            + allocated(&self.moving)
            + self.links.memory()
            + self.longest.memory()
            + self.pool.memory()
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }
}

impl Sfq {
    /// Returns a flow's hash value, uniform below `divisor`.
    fn hash(&self, packet: &Packet) -> u32 {
        // The finaliser of SplitMix64: every bit of the flow and of the perturbation reaches the
        // upper half.
        let mut h = u64::from(packet.flow) ^ self.perturbation;
        h = (h ^ (h >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        h = (h ^ (h >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        h ^= h >> 31;
        (((h >> 32) * self.params.divisor) >> 32) as u32
    }

    /// Returns the queue of a hash value, a fresh one if necessary; `None` if all are in use.
    #[inline]
    fn queue_for(&mut self, hash: u32) -> Option<u32> {
        let queue = self.queue_of[hash as usize];
        if queue != NONE {
            return Some(queue);
        }
        let queue = self.free.pop()?;
        self.queue_of[hash as usize] = queue;
        self.queues[queue as usize].hash = hash;
        Some(queue)
    }

    #[inline]
    fn push(&mut self, id: u32, packet: Packet) {
        let queue = &mut self.queues[id as usize];
        if queue.chain.is_empty() {
            queue.allotment = self.params.quantum as i64;
            self.links.push_back(&mut self.turns, id);
        }
        queue.packets += u64::from(packet.segments);
        self.longest.set(id, queue.packets);
        self.backlog.add(&packet);
        self.pool.push_back(&mut queue.chain, packet);
    }

    #[inline]
    fn count_out(&mut self, id: u32, packet: &Packet) {
        self.backlog.remove(packet);
        let queue = &mut self.queues[id as usize];
        queue.packets -= u64::from(packet.segments);
        self.longest.set(id, queue.packets);
        if queue.chain.is_empty() {
            self.links.remove(&mut self.turns, id);
        }
    }

    /// Drops a packet of a queue that has one.
    fn drop_one(&mut self, id: u32, cx: &mut Cx<'_>) {
        let chain = &mut self.queues[id as usize].chain;
        let packet = if self.params.headdrop {
            let head = self.pool.pop_front(chain);
            head.expect("a queue that gives up a packet has one")
        } else {
            let last = chain.last();
            self.pool.remove(chain, last)
        };
        self.count_out(id, &packet);
        cx.discard(packet, DropReason::Evicted);
    }

    /// Frees a queue if it is empty.
    #[inline]
    fn release_if_empty(&mut self, id: u32) {
        let queue = &self.queues[id as usize];
        if queue.chain.is_empty() {
            self.queue_of[queue.hash as usize] = NONE;
            self.free.push(id);
        }
    }

    /// Moves all packets to the queues of their new hash values.
    fn rehash(&mut self, cx: &mut Cx<'_>) {
        let mut moving = core::mem::take(&mut self.moving);
        while let Some(id) = self.turns.first() {
            self.links.remove(&mut self.turns, id);
            self.longest.set(id, 0);
            let queue = &mut self.queues[id as usize];
            queue.packets = 0;
            moving.push(core::mem::replace(&mut queue.chain, Chain::EMPTY));
            self.release_if_empty(id);
        }
        for mut chain in moving.drain(..) {
            while let Some(packet) = self.pool.pop_front(&mut chain) {
                self.backlog.remove(&packet);
                let hash = self.hash(&packet);
                let room = self.params.depth - u64::from(packet.segments);
                match self.queue_for(hash) {
                    Some(id) if self.queues[id as usize].packets <= room => self.push(id, packet),
                    _ => cx.discard(packet, DropReason::Evicted),
                }
            }
        }
        self.moving = moving;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::DropCounter;
    use crate::rng::Rng;

    struct Bench {
        sfq: Sfq,
        rng: Rng,
        sink: DropCounter,
        now: Time,
    }

    impl Bench {
        fn new(params: &SfqParams) -> Self {
            Bench {
                sfq: Sfq::new(params),
                rng: Rng::from_seed(1),
                sink: DropCounter::default(),
                now: Time::ZERO,
            }
        }

        fn call<T>(&mut self, f: impl FnOnce(&mut Sfq, &mut Cx<'_>) -> T) -> T {
            let mut cx = Cx::new(self.now, &mut self.rng, &mut self.sink);
            f(&mut self.sfq, &mut cx)
        }

        fn offer(&mut self, flow: u32, slot: u32) {
            let mut packet = Packet::new(slot, 1000);
            packet.flow = flow;
            self.call(|d, cx| d.enqueue(packet, cx));
        }

        fn drain(&mut self) -> Vec<(u32, u32)> {
            self.call(|d, cx| {
                core::iter::from_fn(|| d.dequeue(cx))
                    .map(|p| (p.flow, p.slot))
                    .collect()
            })
        }
    }

    #[test]
    fn the_longest_queue_gives_up_its_youngest_packet() {
        let mut bench = Bench::new(&SfqParams {
            limit: 6,
            ..SfqParams::default()
        });
        for slot in 0..5 {
            bench.offer(1, slot);
        }
        bench.offer(2, 5);
        // Full: flow 1 has five packets and loses packets 4 and 3 to flow 2.
        bench.offer(2, 6);
        bench.offer(2, 7);
        assert_eq!(bench.sink.count(DropReason::Evicted), 2);
        let mut left = bench.drain();
        left.sort_unstable();
        assert_eq!(left, [(1, 0), (1, 1), (1, 2), (2, 5), (2, 6), (2, 7)]);
    }

    #[test]
    fn a_flow_is_held_to_its_depth() {
        for (headdrop, left) in [(false, [0, 1]), (true, [3, 4])] {
            let mut bench = Bench::new(&SfqParams {
                depth: 2,
                headdrop,
                ..SfqParams::default()
            });
            for slot in 0..5 {
                bench.offer(1, slot);
            }
            let slots: Vec<u32> = bench.drain().iter().map(|(_, slot)| *slot).collect();
            assert_eq!(slots, left);
        }
    }

    #[test]
    fn a_flow_beyond_the_number_of_queues_is_refused() {
        let mut bench = Bench::new(&SfqParams {
            flows: 2,
            divisor: 65536,
            ..SfqParams::default()
        });
        for flow in 0..3 {
            bench.offer(flow, 0);
        }
        assert_eq!(bench.sink.count(DropReason::Overflow), 1);
        assert_eq!(bench.drain().len(), 2);
        bench.offer(2, 0);
        assert_eq!(bench.drain(), [(2, 0)], "queues are given back");
    }

    #[test]
    fn perturbation_separates_flows_that_shared_a_queue_and_keeps_their_order() {
        // Two hash values: of four flows some share a queue under every perturbation, and which
        // ones share changes.
        let mut bench = Bench::new(&SfqParams {
            divisor: 2,
            perturb: Span::from_secs(10),
            ..SfqParams::default()
        });
        assert_eq!(bench.sfq.next_timer(), None);
        let packet = |flow| {
            let mut packet = Packet::new(0, 1000);
            packet.flow = flow;
            packet
        };
        let groups = |sfq: &Sfq| [0, 1, 2, 3].map(|flow| sfq.hash(&packet(flow)));
        let mut seen = Vec::new();
        for round in 0..20 {
            for slot in 0..5 {
                for flow in 0..4 {
                    bench.offer(flow, slot);
                }
            }
            assert_eq!(
                bench.sfq.next_timer(),
                Some(bench.now + Span::from_secs(10))
            );
            bench.now += Span::from_secs(10);
            bench.call(|d, cx| d.on_timer(cx));
            seen.push(groups(&bench.sfq));
            let sent = bench.drain();
            assert_eq!(sent.len(), 20, "round {round}");
            for flow in 0..4 {
                let slots = sent.iter().filter(|s| s.0 == flow).map(|s| s.1);
                assert!(slots.eq(0..5), "flow {flow} in order");
            }
            bench.now += Span::from_secs(10);
            bench.call(|d, cx| d.on_timer(cx));
            assert_eq!(bench.sfq.next_timer(), None, "no timer while idle");
        }
        seen.dedup();
        assert!(seen.len() > 5, "the hash changes: {seen:?}");
    }
}
