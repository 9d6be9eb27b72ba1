//! Datagrams without feedback: the live flow, and rows of counts at the interval of the run.

use std::sync::Arc;

use sluice_core::{Rate, Span, Time};
use sluice_load::udp::{self, Order, UdpFlow, UdpReport};
use sluice_recording::RecordError;
use sluice_recording::metrics::Jitter;
use sluice_scenario::{Dscp, PcapPacket};

use super::rows::waiting;
use super::{Ends, RECEIVER_OVERFLOW, Rows, SENDER_REFUSED, Seen, SentPackets, SimulatedRecord};

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
    /// The numbers of those that have arrived; a link may have made copies.
    numbers: udp::Seen,
    received: u64,
    received_bytes: u64,
    /// Those that the hosts lost, which the path therefore did not: they do not count as sent.
    overflowed: u64,
    refused: Vec<u64>,
    /// Those of which the instants of sending and arrival are known.
    delays: u64,
    delay_sum: Span,
    jitter: Jitter,
    /// The last arrival.
    last: Time,
    /// The instant of the last row.
    written: Time,
    next_sample: Time,
}

impl Arrivals {
    /// Creates counts of zero.
    pub(super) fn new(payloads: Payloads) -> Self {
        Arrivals {
            payloads,
            numbers: udp::Seen::default(),
            received: 0,
            received_bytes: 0,
            overflowed: 0,
            refused: Vec::new(),
            delays: 0,
            delay_sum: Span::ZERO,
            jitter: Jitter::default(),
            last: Time::ZERO,
            written: Time::ZERO,
            next_sample: Time::ZERO,
        }
    }

    /// Writes a row at the last arrival if nothing arrived for more than an interval before `at`: what
    /// came at the end of a burst, after its last row, did not arrive with the next burst.
    fn end_burst(&mut self, at: Time, rows: &mut Rows<'_>) -> Result<(), RecordError> {
        if self.written < self.last && self.last + rows.interval() < at {
            return self.write(self.last, self.sent(), rows);
        }
        Ok(())
    }

    /// Counts datagram `sequence`, which was sent at `sent` and arrived at `at`, if that time is known.
    /// Only the first copy of a datagram counts.
    fn arrive(
        &mut self,
        sequence: u64,
        sent: Time,
        at: Option<Time>,
        rows: &mut Rows<'_>,
    ) -> Result<(), RecordError> {
        if self.numbers.note(sequence) == Order::Duplicate {
            return Ok(());
        }
        self.received += 1;
        self.received_bytes += self.payloads.of(sequence);
        let Some(at) = at else {
            return Ok(());
        };
        self.last = at;
        let delay = at.since(sent);
        self.delays += 1;
        self.delay_sum = self.delay_sum.saturating_add(delay);
        self.jitter.transit(delay.as_ns());
        if at < self.next_sample {
            return Ok(());
        }
        self.next_sample = at + rows.interval();
        self.write(at, self.sent(), rows)
    }

    /// Returns how many packets had been sent by the last arrival: all up to the latest one, without
    /// those that the hosts lost.
    fn sent(&self) -> u64 {
        let sent = self.numbers.highest().map_or(0, |highest| highest + 1);
        let refused = self.refused.partition_point(|number| *number < sent) as u64;
        sent.saturating_sub(self.overflowed + refused)
    }

    /// Writes the last row of a flow that sent `sent` packets in a run that has ended at `end`. It is at
    /// the end of the flow or of the run, even if nothing arrived for a while before, or at the last
    /// arrival if that is later.
    fn write_last(&mut self, end: Time, sent: u64, rows: &mut Rows<'_>) -> Result<(), RecordError> {
        let stop = rows.stop().min(end);
        self.end_burst(stop, rows)?;
        self.write(self.last.max(stop), sent, rows)
    }

    fn write(&mut self, at: Time, sent: u64, rows: &mut Rows<'_>) -> Result<(), RecordError> {
        self.written = at;
        rows.sample(at, |sample| {
            sample.sent_packets = Some(sent);
            sample.received_packets = Some(self.received);
            sample.received_bytes = Some(self.received_bytes);
            sample.delays = Some(self.delays);
            sample.delay_sum = Some(self.delay_sum);
            sample.variation_sum = Some(whole(self.jitter.variation_sum_ns()));
            sample.jitter_sum = Some(whole(self.jitter.sum_ns()));
        })
    }
}

fn whole(ns: f64) -> Span {
    Span::from_ns(ns.round() as u64)
}

impl SimulatedRecord for Arrivals {
    fn observe(&mut self, seen: Seen<'_>, rows: &mut Rows<'_>) -> Result<(), RecordError> {
        match seen {
            Seen::Datagram(arrival) => {
                self.end_burst(arrival.received, rows)?;
                self.arrive(arrival.sequence, arrival.sent, Some(arrival.received), rows)
            }
            Seen::Tcp(_) | Seen::Received { .. } | Seen::Echo(_) | Seen::Complete(_) => Ok(()),
        }
    }

    fn finish(
        &mut self,
        end: Time,
        sent: SentPackets<'_>,
        rows: &mut Rows<'_>,
    ) -> Result<(), RecordError> {
        // What is still on its way has not been lost.
        let has_arrived = |number: &&u64| self.numbers.has(**number);
        let unsettled = sent.in_flight.iter().filter(|n| !has_arrived(n)).count() as u64;
        self.write_last(end, sent.packets.saturating_sub(unsettled), rows)
    }
}

/// Returns a flow of `size` bytes per datagram between the ends of a live flow.
pub(super) fn between(ends: &Ends<'_>, rate: Rate, size: u64, dscp: Dscp) -> UdpFlow {
    let mut udp = UdpFlow::new(ends.from.1, ends.to.1, rate, size as usize, ends.start);
    udp.dscp = dscp.value();
    udp.stop = Some(ends.stop);
    udp
}

/// Returns the packets of a live flow that its hosts lost, by cause.
pub(super) fn lost(report: &UdpReport) -> Vec<(&'static str, u64)> {
    vec![
        (RECEIVER_OVERFLOW, report.overflowed),
        (SENDER_REFUSED, report.refused),
    ]
}

/// Writes the counts of a live flow, whose receiver waited for packets that were still in flight.
pub(super) fn write(
    payloads: Payloads,
    report: &UdpReport,
    end: Time,
    rows: &mut Rows<'_>,
) -> Result<(), RecordError> {
    let mut arrivals = Arrivals::new(payloads);
    arrivals.refused.clone_from(&report.refused_numbers);
    for packet in &report.samples {
        if let Some(at) = packet.received {
            arrivals.end_burst(at, rows)?;
        }
        arrivals.overflowed = packet.overflowed;
        arrivals.arrive(packet.sequence, packet.sent, packet.received, rows)?;
    }
    let lost = report.overflowed + report.refused;
    // What the router neither passed on nor dropped is still on its way.
    let unsettled = rows.drops().map_or(0, |drops| {
        let known = arrivals.numbers.highest().map_or(0, |highest| highest + 1);
        let refused = report.refused_numbers.partition_point(|n| *n < known) as u64;
        let holes = known.saturating_sub(arrivals.received + refused + report.overflowed);
        let refused_later = report.refused.saturating_sub(refused);
        let rest = report.sent.saturating_sub(known + refused_later);
        waiting(rest, holes, drops)
    });
    arrivals.write_last(end, report.sent.saturating_sub(lost + unsettled), rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::rows::recorded;
    use sluice_load::udp::UdpSample;
    use sluice_recording::metrics::measure;

    /// Ten packets, of which the sender's kernel refused number 2, number 5 found the receiver's
    /// socket full, and number 7 was lost on the path.
    #[test]
    fn packets_that_the_hosts_lose_are_no_loss_of_the_path() {
        let mut report = UdpReport::default();
        (report.sent, report.refused, report.overflowed) = (10, 1, 1);
        report.refused_numbers = vec![2];
        for sequence in (0..10).filter(|number| ![2, 5, 7].contains(number)) {
            let sent = Time::ZERO + Span::from_ms(100 * sequence);
            report.samples.push(UdpSample {
                sequence,
                sent,
                received: Some(sent + Span::from_ms(20)),
                ecn: None,
                overflowed: u64::from(sequence > 5),
            });
        }
        assert_eq!(lost(&report), [(RECEIVER_OVERFLOW, 1), (SENDER_REFUSED, 1)]);
        let end = Time::ZERO + Span::from_secs(2);
        let (_folder, recording) = recorded("type = \"udp\"\nrate = \"1Mbit/s\"", |rows| {
            write(Payloads::Each(1000), &report, end, rows)
        });
        // One of the eight that the path carried.
        let summary = measure(&recording).unwrap();
        assert_eq!(summary.flows[0].loss, Some(1.0 / 8.0));
        let rows = recording.flow_samples().unwrap().map(Result::unwrap);
        let counts: Vec<_> = rows
            .map(|row| row.sent_packets.zip(row.received_packets))
            .collect();
        // Up to number 3, three were sent; up to number 6, five; from number 8 on, one is missing.
        let expected = [
            (1, 1),
            (2, 2),
            (3, 3),
            (4, 4),
            (5, 5),
            (7, 6),
            (8, 7),
            (8, 7),
        ];
        assert_eq!(counts, expected.map(Some));
    }

    /// Two bursts, of four and of two packets, of which number 3 found the receiver's socket full.
    #[test]
    fn the_end_of_a_burst_has_a_row() {
        let mut report = UdpReport::default();
        (report.sent, report.overflowed) = (6, 1);
        for (sequence, ms) in [(0, 0), (1, 10), (2, 20), (4, 1000), (5, 1010)] {
            let sent = Time::ZERO + Span::from_ms(ms);
            report.samples.push(UdpSample {
                sequence,
                sent,
                received: Some(sent + Span::from_ms(20)),
                ecn: None,
                overflowed: u64::from(sequence > 3),
            });
        }
        let end = Time::ZERO + Span::from_secs(2);
        let (_folder, recording) = recorded("type = \"udp\"\nrate = \"1Mbit/s\"", |rows| {
            write(Payloads::Each(1000), &report, end, rows)
        });
        let rows = recording.flow_samples().unwrap().map(Result::unwrap);
        let counts: Vec<_> = rows
            .map(|row| {
                let counts = row.sent_packets.zip(row.received_packets);
                (row.time.as_ns() / 1_000_000, counts)
            })
            .collect();
        // The interval is 50 ms: the first row of a burst is that of its first arrival.
        let expected = [
            (20, (1, 1)),
            (40, (3, 3)),
            (1020, (4, 4)),
            (1030, (5, 5)),
            (2000, (5, 5)),
        ];
        assert_eq!(counts, expected.map(|(ms, counts)| (ms, Some(counts))));
    }

    /// Of 20 packets the first 10 arrived, except number 4. The router dropped that one and two of
    /// the last 10; eight still waited in its queue.
    #[test]
    fn packets_that_wait_in_the_router_at_the_end_are_not_lost() {
        let mut report = UdpReport::default();
        (report.sent, report.refused) = (20, 0);
        for sequence in (0..10).filter(|number| *number != 4) {
            let sent = Time::ZERO + Span::from_ms(50 * sequence);
            report.samples.push(UdpSample {
                sequence,
                sent,
                received: Some(sent + Span::from_ms(20)),
                ecn: None,
                overflowed: 0,
            });
        }
        let end = Time::ZERO + Span::from_secs(2);
        let (_folder, recording) = recorded("type = \"udp\"\nrate = \"1Mbit/s\"", |rows| {
            rows.set_drops(Some(3));
            write(Payloads::Each(1000), &report, end, rows)
        });
        let summary = measure(&recording).unwrap();
        assert_eq!(summary.flows[0].loss, Some(3.0 / 12.0));
    }
}
