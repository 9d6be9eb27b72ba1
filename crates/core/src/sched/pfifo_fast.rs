//! `pfifo_fast`: three FIFO queues by strict priority; a packet's DSCP chooses the queue.
//!
//! Linux's default before FQ-CoDel. Most traffic has codepoint 0 and shares the middle band, so the
//! discipline is a FIFO queue for it.
//!
//! Source: Linux `net/sched/sch_generic.c` (`pfifo_fast`, `sch_default_prio2band`) and
//! `net/ipv4/route.c` (`ip_tos2prio`). Choices made here:
//! 1. The band follows from bits 1 to 4 of the TOS byte, as for IPv4 packets in Linux, which is
//!    bits 1 and 2 of the DSCP: `cs0` to `cs7` and `ef` are in the middle band, `af11` is in the
//!    last, and the old "low delay" (TOS 0x10, as SSH uses it) is in the first.
//! 2. IPv6 packets are sorted in the same way. Linux does not sort those that it forwards.
//! 3. `shared` is the limit of Linux before 4.16: all bands together hold `limit` packets. Newer
//!    kernels have a ring of `limit` packets for each band.
//! 4. A super-packet counts as its wire packets; Linux counts it as one.
//!
//! Units: lengths of queues in wire packets. Costs O(1).

use alloc::collections::VecDeque;

use super::{Discipline, DisciplineAlgorithm, Wake};
use crate::event::{Backlog, Cx, DropReason};
use crate::packet::Packet;
use crate::params;

params! {
    /// Parameters of the three bands.
    pub struct PfifoFastParams {
        /// wire packets that each band holds
        limit: u64 = Count(1000), Count(1) => Count(u64::MAX), "Linux: txqueuelen, 1000 packets";
        /// the limit is that of all bands together
        shared: bool = Flag(false), "Linux 4.16 and later: a limit for each band";
    }
}

/// Three FIFO queues, the first of which is served first.
pub struct PfifoFast {
    params: PfifoFastParams,
    bands: [VecDeque<Packet>; BANDS],
    held: [u64; BANDS],
    backlog: Backlog,
}

impl DisciplineAlgorithm for PfifoFast {
    type Params = PfifoFastParams;
    const DOC: &'static str = "three bands by the packet's DSCP: Linux's default before FQ-CoDel";

    fn new(params: &PfifoFastParams) -> Self {
        PfifoFast {
            params: params.clone(),
            bands: [const { VecDeque::new() }; BANDS],
            held: [0; BANDS],
            backlog: Backlog::default(),
        }
    }
}

impl Discipline for PfifoFast {
    fn enqueue(&mut self, packet: Packet, cx: &mut Cx<'_>) {
        let band = band(packet.dscp);
        let held = if self.params.shared {
            self.backlog.packets
        } else {
            self.held[band]
        };
        let segments = u64::from(packet.segments);
        if held + segments > self.params.limit {
            cx.discard(packet, DropReason::Overflow);
            return;
        }
        cx.enqueued(&packet);
        self.held[band] += segments;
        self.backlog.add(&packet);
        self.bands[band].push_back(packet);
    }

    fn dequeue(&mut self, cx: &mut Cx<'_>) -> Option<Packet> {
        let packet = self.pull()?;
        cx.dequeued(&packet);
        Some(packet)
    }

    fn next_wake(&self) -> Wake {
        if self.backlog.is_empty() {
            Wake::OnEnqueue
        } else {
            Wake::Now
        }
    }

    fn pull(&mut self) -> Option<Packet> {
        for (queue, held) in self.bands.iter_mut().zip(&mut self.held) {
            if let Some(packet) = queue.pop_front() {
                *held -= u64::from(packet.segments);
                self.backlog.remove(&packet);
                return Some(packet);
            }
        }
        None
    }

    fn memory(&self) -> usize {
        let held: usize = self.bands.iter().map(VecDeque::capacity).sum();
        size_of::<Self>() + held * size_of::<Packet>()
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }
}

/// Returns the band of a DSCP: `ip_tos2prio`, then `sch_default_prio2band`.
const fn band(dscp: u8) -> usize {
    match dscp >> 1 & 3 {
        // TC_PRIO_BULK: "maximum throughput" alone.
        0b01 => 2,
        // TC_PRIO_INTERACTIVE: "minimum delay" alone.
        0b10 => 0,
        // TC_PRIO_BESTEFFORT, and TC_PRIO_INTERACTIVE_BULK for both.
        _ => 1,
    }
}

const BANDS: usize = 3;

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;
    use crate::event::DropCounter;
    use crate::rng::Rng;
    use crate::units::Time;

    /// Offers packets with these TOS bytes. Returns the slots that leave, in their order, and the
    /// number of packets that were refused.
    fn leave(params: &PfifoFastParams, tos: &[u8]) -> (Vec<u32>, u64) {
        let mut discipline = PfifoFast::new(params);
        let (mut rng, mut sink) = (Rng::from_seed(1), DropCounter::default());
        let mut cx = Cx::new(Time::ZERO, &mut rng, &mut sink);
        for (slot, tos) in (0..).zip(tos) {
            let mut packet = Packet::new(slot, 1000);
            packet.dscp = tos >> 2;
            discipline.enqueue(packet, &mut cx);
        }
        let left = core::iter::from_fn(|| discipline.dequeue(&mut cx));
        let slots = left.map(|packet| packet.slot).collect();
        (slots, sink.count(DropReason::Overflow))
    }

    const BULK: u8 = 0x08;
    const URGENT: u8 = 0x10;

    #[test]
    fn a_band_leaves_before_all_lower_ones_and_in_the_order_of_arrival() {
        let tos = [BULK, 0, URGENT, BULK, 0xb8, URGENT];
        let (order, _) = leave(&PfifoFastParams::default(), &tos);
        assert_eq!(order, [2, 5, 1, 4, 0, 3]);
    }

    #[test]
    fn a_full_band_refuses_only_its_own_packets() {
        let params = PfifoFastParams {
            limit: 2,
            ..PfifoFastParams::default()
        };
        assert_eq!(
            leave(&params, &[0, 0, 0, BULK, URGENT]),
            (alloc::vec![4, 0, 1, 3], 1)
        );
    }

    #[test]
    fn bands_that_share_a_limit_are_full_together() {
        let params = PfifoFastParams {
            limit: 2,
            shared: true,
        };
        // As before Linux 4.16: two packets of any band, and the urgent one is refused too.
        assert_eq!(leave(&params, &[BULK, 0, URGENT]), (alloc::vec![1, 0], 1));
    }

    /// Linux's tables, word by word: priorities by bits 1 to 4 of the TOS byte, bands by priority.
    #[test]
    fn bands_are_those_of_the_tables_of_linux() {
        const TOS_TO_PRIORITY: [usize; 16] = [0, 0, 0, 0, 2, 2, 2, 2, 6, 6, 6, 6, 4, 4, 4, 4];
        const PRIORITY_TO_BAND: [usize; 16] = [1, 2, 2, 2, 1, 2, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1];
        for tos in 0..=255_u8 {
            let priority = TOS_TO_PRIORITY[usize::from((tos & 0x1e) >> 1)];
            assert_eq!(band(tos >> 2), PRIORITY_TO_BAND[priority], "TOS {tos:#x}");
        }
        // The byte of an interactive SSH session, of a copy by SSH, and of expedited forwarding.
        assert_eq!([0x10, 0x08, 0xb8].map(|tos: u8| band(tos >> 2)), [0, 2, 1]);
    }
}
