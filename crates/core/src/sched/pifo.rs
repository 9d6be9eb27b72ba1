//! `pifo`: push in, first out. Each packet is given a rank when it arrives, and the packet with the
//! lowest rank leaves first. The rank function, a few lines of code, determines the discipline.
//!
//! Source: A. Sivaraman et al., "Programmable Packet Scheduling at Line Rate", ACM SIGCOMM 2016.
//!
//! 1. The paper does not say what a full queue does. Here the packet with the highest rank is
//!    dropped, whether it is the arriving one or another, as in pFabric (M. Alizadeh et al., ACM
//!    SIGCOMM 2013). Of packets with equal ranks the youngest is dropped.
//! 2. `srpt` ranks each packet by itself, so a later packet of a flow, which has less left to send,
//!    overtakes an earlier one. The paper names this as a limit of a PIFO.
//!
//! Rank functions (see [`rank`](super::rank)): `prio` (the lowest class first), `stfq` (start-time
//! fair queueing), `edf` (earliest deadline first), `srpt` (shortest remaining flow first). A rank
//! function of your own needs no registration: [`PushIn`].
//!
//! Costs O(log n).

use alloc::boxed::Box;

use super::push_in::PushIn;
use super::rank::{EarliestDeadline, Rank, ShortestRemaining, StartTime, StrictPriority};
use super::{Discipline, DisciplineAlgorithm, Wake};
use crate::event::{Backlog, Cx};
use crate::packet::Packet;
use crate::units::Span;
use crate::{choice, params};

choice! {
    /// The rank functions of `pifo`.
    pub enum PifoRank {
        /// [`StrictPriority`].
        Prio = "prio",
        /// [`StartTime`].
        Stfq = "stfq",
        /// [`EarliestDeadline`].
        Edf = "edf",
        /// [`ShortestRemaining`].
        Srpt = "srpt",
    }
}

params! {
    /// Parameters of PIFO.
    pub struct PifoParams {
        /// rank function
        rank: PifoRank = Choice("stfq"), "Sivaraman et al. 2016, figure 1";
        /// wire packets that the queue holds
        limit: u64 = Count(1000), Count(1) => Count(u64::MAX), "Linux pfifo: 1000 packets";
        /// number of hash values that distinguish flows for stfq
        flows: u64 = Count(1024), Count(1) => Count(1 << 20), "as fq: RFC 8290 section 5.2.5";
        /// edf: deadline, after its arrival, of a packet for which the host gave none
        deadline: Span = Span(Span::from_ms(10)), Span(Span::ZERO) => Span(Span::from_secs(3600)), "ours";
    }
}

/// A queue in the order of ranks.
pub struct Pifo(PushIn<Box<dyn Rank>>);

impl DisciplineAlgorithm for Pifo {
    type Params = PifoParams;
    const DOC: &'static str = "push in, first out: the packet with the lowest rank leaves first";

    fn new(params: &PifoParams) -> Self {
        let rank: Box<dyn Rank> = match params.rank {
            PifoRank::Prio => Box::new(StrictPriority),
            PifoRank::Stfq => Box::new(StartTime::new(params.flows as usize)),
            PifoRank::Edf => Box::new(EarliestDeadline {
                default: params.deadline,
            }),
            PifoRank::Srpt => Box::new(ShortestRemaining),
        };
        Pifo(PushIn::new(params.limit, rank))
    }
}

impl Discipline for Pifo {
    fn enqueue(&mut self, packet: Packet, cx: &mut Cx<'_>) {
        self.0.enqueue(packet, cx);
    }
    fn dequeue(&mut self, cx: &mut Cx<'_>) -> Option<Packet> {
        self.0.dequeue(cx)
    }
    fn next_wake(&self) -> Wake {
        self.0.next_wake()
    }
    fn pull(&mut self) -> Option<Packet> {
        self.0.pull()
    }
    fn memory(&self) -> usize {
        self.0.memory()
    }

    fn backlog(&self) -> Backlog {
        self.0.backlog()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{DropCounter, DropReason};
    use crate::rng::Rng;
    use crate::units::Time;
    use alloc::vec::Vec;

    /// Offers `(class, tag, arrival in us)` and returns the numbers of the packets as they leave.
    fn order(params: &PifoParams, packets: &[(u32, u32, u64)]) -> (Vec<u32>, DropCounter) {
        let mut pifo = Pifo::new(params);
        let (mut rng, mut sink) = (Rng::from_seed(1), DropCounter::default());
        let mut cx = Cx::new(Time::ZERO, &mut rng, &mut sink);
        for (n, (class, tag, us)) in packets.iter().enumerate() {
            let mut packet = Packet::new(n as u32, 1000);
            packet.class = *class;
            packet.flow = *class;
            packet.tag = *tag;
            packet.arrival = Time::from_ns(us * 1000);
            cx.now = packet.arrival;
            pifo.enqueue(packet, &mut cx);
        }
        let left = core::iter::from_fn(|| pifo.dequeue(&mut cx)).map(|p| p.slot);
        (left.collect(), sink)
    }

    fn with(rank: PifoRank) -> PifoParams {
        PifoParams {
            rank,
            ..PifoParams::default()
        }
    }

    #[test]
    fn each_rank_function_gives_its_order() {
        let of_class = [(2, 0, 0), (0, 0, 0), (1, 0, 0), (0, 0, 0)];
        assert_eq!(order(&with(PifoRank::Prio), &of_class).0, [1, 3, 2, 0]);
        // Remaining bytes; the packet without a value comes last.
        let of_size = [(0, 5000, 0), (1, 0, 0), (2, 100, 0), (3, 900, 0)];
        assert_eq!(order(&with(PifoRank::Srpt), &of_size).0, [2, 3, 0, 1]);
        // Deadlines at 10 ms by default, 1.5 ms, 2 + 7 ms, 3 + 10 ms.
        let of_time = [(0, 0, 0), (0, 500, 1000), (0, 7000, 2000), (0, 0, 3000)];
        assert_eq!(order(&with(PifoRank::Edf), &of_time).0, [1, 2, 0, 3]);
        // Flow 0 has a burst of three before flow 1's two: they alternate.
        let of_flow = [(0, 0, 0), (0, 0, 0), (0, 0, 0), (1, 0, 0), (1, 0, 0)];
        assert_eq!(order(&with(PifoRank::Stfq), &of_flow).0, [0, 3, 1, 4, 2]);
    }

    #[test]
    fn a_full_queue_gives_up_its_greatest_rank() {
        let params = PifoParams {
            limit: 2,
            ..with(PifoRank::Prio)
        };
        // 0 and 1 fill it; 2 is more urgent than 1 and takes its place; 3 is not more urgent than
        // any, and equal ranks keep their order.
        let (left, sink) = order(&params, &[(1, 0, 0), (3, 0, 0), (0, 0, 0), (1, 0, 0)]);
        assert_eq!(left, [2, 0]);
        assert_eq!(sink.count(DropReason::Evicted), 1);
        assert_eq!(sink.count(DropReason::Overflow), 1);
    }
}
