//! Datagrams without feedback: the live flow, and rows of counts at the interval of the run.

use std::sync::Arc;

use sluice_core::{Rate, Time};
use sluice_load::udp::{UdpFlow, UdpReport};
use sluice_recording::RecordError;
use sluice_scenario::{Dscp, PcapPacket};

use super::{Ends, Rows, Seen, SentPackets, SimulatedRecord};

/// The payload sizes of a flow's datagrams.
#[derive(Clone, Debug)]
pub(super) enum Payloads {
    /// The same number of bytes in each.
    Each(u64),
    /// The bytes of each, as listed.
    Listed(Arc<[PcapPacket]>),
}

impl Payloads {
    /// Returns the payload of datagram `sequence`.
    fn of(&self, sequence: u64) -> u64 {
        match self {
            Payloads::Each(bytes) => *bytes,
            Payloads::Listed(packets) => {
                let packet = usize::try_from(sequence).ok().and_then(|i| packets.get(i));
                packet.map_or(0, |packet| u64::from(packet.payload))
            }
        }
    }
}

/// Counts of the datagrams that have arrived.
pub(crate) struct Arrivals {
    payloads: Payloads,
    received: u64,
    received_bytes: u64,
    next_sample: Time,
}

impl Arrivals {
    /// Creates counts of zero.
    pub(super) fn new(payloads: Payloads) -> Self {
        Arrivals {
            payloads,
            received: 0,
            received_bytes: 0,
            next_sample: Time::ZERO,
        }
    }

    /// Counts datagram `sequence`, which arrived at `at`, if that time is known.
    fn arrive(
        &mut self,
        sequence: u64,
        at: Option<Time>,
        rows: &mut Rows<'_>,
    ) -> Result<(), RecordError> {
        self.received += 1;
        self.received_bytes += self.payloads.of(sequence);
        let Some(at) = at.filter(|at| *at >= self.next_sample) else {
            return Ok(());
        };
        self.next_sample = at + rows.interval();
        // All datagrams up to this one had been sent by then.
        self.write(at, sequence + 1, rows)
    }

    fn write(&self, at: Time, sent: u64, rows: &mut Rows<'_>) -> Result<(), RecordError> {
        rows.sample(at, |sample| {
            sample.sent_packets = Some(sent);
            sample.received_packets = Some(self.received);
            sample.received_bytes = Some(self.received_bytes);
        })
    }
}

impl SimulatedRecord for Arrivals {
    fn observe(&mut self, seen: Seen<'_>, rows: &mut Rows<'_>) -> Result<(), RecordError> {
        match seen {
            Seen::Datagram(arrival) => self.arrive(arrival.sequence, Some(arrival.received), rows),
            Seen::Tcp(_) | Seen::Echo(_) | Seen::Complete(_) => Ok(()),
        }
    }

    fn finish(
        &mut self,
        end: Time,
        sent: SentPackets,
        rows: &mut Rows<'_>,
    ) -> Result<(), RecordError> {
        // What is still on its way has not been lost.
        self.write(end, sent.packets.saturating_sub(sent.in_flight), rows)
    }
}

/// Returns a flow of `size` bytes per datagram between the ends of a live flow.
pub(super) fn between(ends: &Ends<'_>, rate: Rate, size: u64, dscp: Dscp) -> UdpFlow {
    let mut udp = UdpFlow::new(ends.from.1, ends.to.1, rate, size as usize, ends.start);
    udp.dscp = dscp.value();
    udp.stop = Some(ends.stop);
    udp
}

/// Writes the counts of a live flow, whose receiver waited for packets that were still in flight. The
/// last row is at the end of the flow or of the run, as in a simulation, even if nothing arrived for a
/// while before.
pub(super) fn write(
    payloads: Payloads,
    report: &UdpReport,
    end: Time,
    rows: &mut Rows<'_>,
) -> Result<(), RecordError> {
    let mut arrivals = Arrivals::new(payloads);
    for packet in &report.samples {
        arrivals.arrive(packet.sequence, packet.received, rows)?;
    }
    let last = report.samples.iter().rev().find_map(|s| s.received);
    let stop = rows.stop().min(end);
    arrivals.write(last.map_or(stop, |last| last.max(stop)), report.sent, rows)
}
