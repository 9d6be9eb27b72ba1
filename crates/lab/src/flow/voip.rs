//! One direction of a telephone call. Each packet has a row with its one-way delay.

use sluice_core::{Span, Time};
use sluice_load::udp::UdpReport;
use sluice_load::{Running, TrafficError};
use sluice_recording::RecordError;
use sluice_scenario::{FlowInstance, Voip};
use sluice_sim::{Datagram, Traffic};

use super::datagrams;
use super::rows::Probe;
use super::{
    Ends, LiveFlow, NotSimulated, Rows, Seen, SentPackets, SimulatedFlow, SimulatedRecord,
};

impl SimulatedFlow for Voip {
    type Record = Call;

    fn traffic(&self, _flow: &FlowInstance<'_>) -> Result<Traffic, NotSimulated> {
        Ok(sluice_sim::Udp::constant(Voip::rate(), Voip::SIZE as u32).into())
    }

    fn record(&self, _flow: &FlowInstance<'_>) -> Call {
        Call::default()
    }
}

/// The packets of a call that have arrived.
#[derive(Default)]
pub(crate) struct Call {
    arrived: Vec<Datagram>,
}

impl SimulatedRecord for Call {
    fn observe(&mut self, seen: Seen<'_>, _rows: &mut Rows<'_>) -> Result<(), RecordError> {
        match seen {
            Seen::Datagram(arrival) => self.arrived.push(*arrival),
            Seen::Tcp(_) | Seen::Received { .. } | Seen::Echo(_) | Seen::Complete(_) => {}
        }
        Ok(())
    }

    fn finish(
        &mut self,
        end: Time,
        sent: SentPackets<'_>,
        rows: &mut Rows<'_>,
    ) -> Result<(), RecordError> {
        let arrived = self.arrived.iter().map(|datagram| Arrival {
            sequence: datagram.sequence,
            sent: datagram.sent,
            received: Some(datagram.received),
        });
        let (probes, received) = probes(arrived.collect(), sent.packets, &[], rows.start());
        rows.probes(&probes, |seq| sent.in_flight.contains(&seq))?;
        rows.received(end, received * Voip::SIZE)
    }
}

impl LiveFlow for Voip {
    type Report = UdpReport;

    fn start(
        &self,
        _flow: &FlowInstance<'_>,
        ends: &Ends<'_>,
    ) -> Result<Running<UdpReport>, TrafficError> {
        let udp = datagrams::between(ends, Voip::rate(), Voip::SIZE, self.dscp);
        udp.start(ends.from.0, ends.to.0, ends.clock, ends.all)
    }

    fn lost(&self, report: &UdpReport) -> Vec<(&'static str, u64)> {
        datagrams::lost(report)
    }

    fn write(&self, report: &UdpReport, end: Time, rows: &mut Rows<'_>) -> Result<(), RecordError> {
        let arrived = report.samples.iter().map(|sample| Arrival {
            sequence: sample.sequence,
            sent: sample.sent,
            received: sample.received,
        });
        let refused = &report.refused_numbers;
        let (probes, received) = probes(arrived.collect(), report.sent, refused, rows.start());
        rows.live_probes(&probes, end)?;
        let last = report.samples.iter().filter_map(|s| s.received).max();
        rows.received(last.unwrap_or(Time::ZERO), received * Voip::SIZE)
    }
}

/// Adds a packet that has arrived.
struct Arrival {
    sequence: u64,
    sent: Time,
    /// `None` if the kernel did not stamp it.
    received: Option<Time>,
}

/// Returns the packets of a call that began at `start`, without those that its sender's kernel
/// refused, and the number of different packets that have arrived.
fn probes(mut arrived: Vec<Arrival>, sent: u64, refused: &[u64], start: Time) -> (Vec<Probe>, u64) {
    arrived.sort_by_key(|arrival| arrival.sequence);
    // A link may have duplicated the packet.
    arrived.dedup_by_key(|arrival| arrival.sequence);
    let mut arrived = arrived.into_iter().peekable();
    let mut received = 0;
    let probe = |seq| {
        let due = start + Span::from_ns(Voip::INTERVAL.as_ns() * seq);
        let Some(here) = arrived.next_if(|arrival| arrival.sequence == seq) else {
            return Probe::unseen(seq, due);
        };
        received += 1;
        Probe {
            has_arrived: true,
            forward: here.received.map(|at| at.since(here.sent)),
            ..Probe::unseen(seq, here.sent)
        }
    };
    let numbers = (0..sent).filter(|seq| refused.binary_search(seq).is_err());
    let probes = numbers.map(probe).collect();
    (probes, received)
}
