//! `pieo`: push in, extract out. As in `pifo`, each packet is given a rank when it arrives, and in
//! addition an instant before which it must not leave. Of the packets that may leave, the one with
//! the lowest rank leaves first. This allows pacing and other disciplines that are not
//! work-conserving.
//!
//! Source: V. Shrivastav, "Fast, Scalable, and Programmable Packet Scheduler in Hardware", ACM
//! SIGCOMM 2019.
//!
//! 1. The paper's elements are flows or packets; here they are packets.
//! 2. The paper's predicate of eligibility compares a number with an arbitrary clock; here it
//!    compares an instant with the time.
//! 3. The paper finds an element in O(1) with O(sqrt n) comparisons in parallel; here two heaps
//!    take O(log n), one for packets that wait by time, one for those that may leave by rank.
//! 4. A full queue drops the packet with the highest rank among those that may leave and the
//!    arriving packet.
//!
//! Rank functions (see [`rank`](super::rank)): `pace` (a token bucket per flow), and those of
//! `pifo`, under which every packet may leave at once.

use alloc::boxed::Box;

use super::push_in::PushIn;
use super::rank::{
    EarliestDeadline, Rank, ShortestRemaining, StartTime, StrictPriority, TokenBucket,
};
use super::{Discipline, DisciplineAlgorithm, Wake};
use crate::event::{Backlog, Cx};
use crate::packet::Packet;
use crate::units::{Bytes, Rate, Span};
use crate::{choice, params};

choice! {
    /// The rank functions of `pieo`.
    pub enum PieoRank {
        /// [`TokenBucket`].
        Pace = "pace",
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
    /// Parameters of PIEO.
    pub struct PieoParams {
        /// rank function
        rank: PieoRank = Choice("pace"), "what a PIFO cannot do";
        /// wire packets that the queue holds
        limit: u64 = Count(1000), Count(1) => Count(u64::MAX), "Linux pfifo: 1000 packets";
        /// number of hash values that distinguish flows for pace and stfq
        flows: u64 = Count(1024), Count(1) => Count(1 << 20), "as fq: RFC 8290 section 5.2.5";
        /// pace: bits per second of each flow
        rate: Rate = Rate(Rate::UNLIMITED), Rate(Rate::from_bps(1)) => Rate(Rate::UNLIMITED), "ours: no pacing by default";
        /// pace: bytes of a flow that pass at once after an idle period
        burst: Bytes = Bytes(Bytes::new(1514)), Bytes(Bytes::ZERO) => Bytes(Bytes::new(1 << 32)), "ours: an Ethernet frame";
        /// edf: deadline, after its arrival, of a packet for which the host gave none
        deadline: Span = Span(Span::from_ms(10)), Span(Span::ZERO) => Span(Span::from_secs(3600)), "ours";
    }
}

/// A queue in the order of ranks among those packets that may leave.
pub struct Pieo(PushIn<Box<dyn Rank>>);

impl DisciplineAlgorithm for Pieo {
    type Params = PieoParams;
    const DOC: &'static str =
        "push in, extract out: the eligible packet with the lowest rank leaves first";

    fn new(params: &PieoParams) -> Self {
        let flows = params.flows as usize;
        let rank: Box<dyn Rank> = match params.rank {
            PieoRank::Pace => Box::new(TokenBucket::new(params.rate, params.burst.as_u64(), flows)),
            PieoRank::Prio => Box::new(StrictPriority),
            PieoRank::Stfq => Box::new(StartTime::new(flows)),
            PieoRank::Edf => Box::new(EarliestDeadline {
                default: params.deadline,
            }),
            PieoRank::Srpt => Box::new(ShortestRemaining),
        };
        Pieo(PushIn::new(params.limit, rank))
    }
}

impl Discipline for Pieo {
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
    use crate::event::DropCounter;
    use crate::rng::Rng;
    use crate::units::Time;
    use alloc::vec::Vec;

    #[test]
    fn flows_are_paced_each_at_the_rate() {
        // 1000 B at 8 Mbit/s take 1 ms, and the bucket holds one packet. Two flows with three
        // packets each leave in pairs, every millisecond; spurious calls give nothing.
        let mut pieo = Pieo::new(&PieoParams {
            rate: Rate::from_bps(8_000_000),
            burst: Bytes::new(1000),
            ..PieoParams::default()
        });
        let (mut rng, mut sink) = (Rng::from_seed(1), DropCounter::default());
        let mut cx = Cx::new(Time::ZERO, &mut rng, &mut sink);
        for slot in 0..6 {
            let mut packet = Packet::new(slot, 1000);
            packet.flow = slot / 3;
            pieo.enqueue(packet, &mut cx);
        }
        let mut left = Vec::new();
        loop {
            match pieo.next_wake() {
                Wake::Now => {}
                Wake::At(at) => {
                    cx.now = Time::from_ns(at.as_ns() - 1);
                    assert!(pieo.dequeue(&mut cx).is_none(), "too early");
                    cx.now = at;
                }
                Wake::OnEnqueue => break,
            }
            let packet = pieo.dequeue(&mut cx).expect("it was awake");
            left.push((packet.slot, cx.now.as_ns() / 1_000_000));
        }
        assert_eq!(left, [(0, 0), (3, 0), (1, 1), (4, 1), (2, 2), (5, 2)]);
    }

    #[test]
    fn a_backlog_can_be_moved_before_it_may_leave() {
        let mut pieo = Pieo::new(&PieoParams {
            rate: Rate::from_bps(8_000),
            ..PieoParams::default()
        });
        let (mut rng, mut sink) = (Rng::from_seed(1), DropCounter::default());
        let mut cx = Cx::new(Time::ZERO, &mut rng, &mut sink);
        for slot in 0..3 {
            pieo.enqueue(Packet::new(slot, 1000), &mut cx);
        }
        let slots: Vec<u32> = core::iter::from_fn(|| pieo.pull())
            .map(|p| p.slot)
            .collect();
        assert_eq!(slots, [0, 1, 2]);
        assert!(pieo.backlog().is_empty());
    }
}
