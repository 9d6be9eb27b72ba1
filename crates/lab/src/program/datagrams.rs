//! The packets of a recorded program that belong to no connection: UDP flows and pings.

use sluice_core::record::{Fate, PacketRecord};
use sluice_core::{Rate, Span, Time};
use sluice_recording::{FlowSample, NO_FLOW};
use sluice_scenario::{Direction, PipeId};

/// The protocol of a flow's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Protocol {
    Tcp,
    Udp,
    Echo,
}

impl Protocol {
    /// Returns the protocol of a number (IANA) and a port. For echo messages, the identifier
    /// replaces the port. Other ICMP messages have none.
    pub fn of(number: u8, port: u16) -> Option<Protocol> {
        match number {
            6 => Some(Protocol::Tcp),
            17 => Some(Protocol::Udp),
            1 | 58 if port != 0 => Some(Protocol::Echo),
            _ => None,
        }
    }
}

/// The packets of one direction of a flow.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    sent: u64,
    received: u64,
    received_bytes: u64,
    /// Bytes of IP packets that were sent.
    bytes: u64,
    /// The last arrival, and the packets that had been sent by then.
    latest: Time,
    sent_by_latest: u64,
    samples: Vec<FlowSample>,
}

impl Counts {
    /// Counts a packet at one of the path's `hops` links. `headers` are those of its IP packet.
    pub fn count(
        &mut self,
        pipe: PipeId,
        hops: usize,
        packet: &PacketRecord,
        headers: u64,
        interval: Span,
    ) {
        let (first, last) = match pipe.direction() {
            Direction::Up => (0, hops - 1),
            Direction::Down => (hops - 1, 0),
        };
        if pipe.hop() == first {
            self.sent += 1;
            self.bytes += u64::from(packet.len);
        }
        let has_passed = matches!(packet.fate, Fate::Sent | Fate::Marked);
        if pipe.hop() != last || !has_passed {
            return;
        }
        if self.latest + interval < packet.at {
            let end = self.end_of_burst();
            self.samples.extend(end);
        }
        self.received += 1;
        self.received_bytes += u64::from(packet.len).saturating_sub(headers);
        (self.latest, self.sent_by_latest) = (packet.at, self.sent);
        let is_due = |sample: &FlowSample| packet.at >= sample.time + interval;
        if self.samples.last().is_none_or(is_due) {
            self.samples.push(self.sample(packet.at));
        }
    }

    /// Returns a sample of the last arrival; `None` if there is one.
    fn end_of_burst(&self) -> Option<FlowSample> {
        let written = self.samples.last()?.time;
        (written < self.latest).then(|| FlowSample {
            sent_packets: Some(self.sent_by_latest),
            ..self.sample(self.latest)
        })
    }

    fn sample(&self, at: Time) -> FlowSample {
        FlowSample {
            sent_packets: Some(self.sent),
            received_packets: Some(self.received),
            received_bytes: Some(self.received_bytes),
            ..FlowSample::empty(at, NO_FLOW)
        }
    }

    /// Returns the number of packets that were sent.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Returns the bytes that were sent.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the rows of counts, with a last one at `stop`.
    pub fn rows(&self, stop: Time) -> Vec<FlowSample> {
        let mut rows = self.samples.clone();
        rows.retain(|row| row.time < stop);
        rows.push(self.sample(stop));
        rows
    }

    /// Describes the packets as keys of a flow that lasts for `lasted`.
    pub fn keys(&self, protocol: Protocol, headers: u64, lasted: Span) -> String {
        let packets = self.sent.max(1);
        let size = (self.bytes / packets).saturating_sub(headers);
        let size = size.clamp(LEAST_PAYLOAD, MOST_PAYLOAD);
        match protocol {
            Protocol::Tcp => String::new(),
            Protocol::Udp => {
                let bps = self.bytes as f64 * 8.0 / lasted.max(Span::from_ms(1)).as_secs_f64();
                let rate = Rate::from_bps((bps as u64).max(1));
                format!("rate = \"{}bit/s\"\nsize = {size}\n", rate.as_bps())
            }
            Protocol::Echo => {
                let interval = lasted.as_ns() / packets.saturating_sub(1).max(1);
                let interval = interval.clamp(LEAST_INTERVAL.as_ns(), MOST_INTERVAL.as_ns());
                format!("interval = \"{interval}ns\"\nsize = {size}\n")
            }
        }
    }
}

/// The smallest payload that the key of a flow accepts.
const LEAST_PAYLOAD: u64 = 24;
const MOST_PAYLOAD: u64 = 1472;
const LEAST_INTERVAL: Span = Span::from_us(100);
const MOST_INTERVAL: Span = Span::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_core::{DropReason, Ecn};

    fn packet(ms: u64, fate: Fate) -> PacketRecord {
        PacketRecord {
            seq: ms,
            packet: None,
            arrival: Time::ZERO + Span::from_ms(ms),
            flow: 1,
            len: 128,
            segments: 1,
            ecn: Ecn::NotEct,
            class: 0,
            fate,
            at: Time::ZERO + Span::from_ms(ms),
        }
    }

    #[test]
    fn a_packet_is_sent_at_the_first_link_and_received_at_the_last() {
        let mut counts = Counts::default();
        let down = |hop| PipeId::new(Direction::Down, hop);
        let mut count = |hop, ms, fate| {
            counts.count(down(hop), 2, &packet(ms, fate), 28, Span::from_ms(10));
        };
        // The path down begins with the second link.
        for (ms, fate) in [
            (1, Fate::Sent),
            (2, Fate::Dropped(DropReason::Overflow)),
            (3, Fate::Marked),
        ] {
            count(1, ms, fate);
        }
        count(0, 4, Fate::Sent);
        count(0, 5, Fate::Sent);
        assert_eq!(counts.bytes(), 3 * 128);
        let rows = counts.rows(Time::ZERO + Span::from_ms(20));
        // The second arrival is within the interval of the first.
        let seen: Vec<_> = rows
            .iter()
            .map(|row| (row.sent_packets, row.received_packets, row.received_bytes))
            .collect();
        assert_eq!(
            seen,
            [(Some(3), Some(1), Some(100)), (Some(3), Some(2), Some(200))]
        );
        // 3 packets of 128 bytes in 24 ms: 3072 bits / 24 ms = 128 kbit/s.
        assert_eq!(
            counts.keys(Protocol::Udp, 28, Span::from_ms(24)),
            "rate = \"128000bit/s\"\nsize = 100\n"
        );
        // 3 requests in 24 ms: two intervals of 12 ms.
        assert_eq!(
            counts.keys(Protocol::Echo, 28, Span::from_ms(24)),
            "interval = \"12000000ns\"\nsize = 100\n"
        );
    }

    #[test]
    fn the_end_of_a_burst_has_a_sample() {
        let mut counts = Counts::default();
        let pipe = PipeId::new(Direction::Down, 0);
        for (ms, fate) in [
            (1, Fate::Sent),
            (2, Fate::Sent),
            (3, Fate::Dropped(DropReason::Overflow)),
            (100, Fate::Sent),
        ] {
            counts.count(pipe, 1, &packet(ms, fate), 28, Span::from_ms(10));
        }
        let rows = counts.rows(Time::ZERO + Span::from_ms(105));
        let seen = rows
            .iter()
            .map(|row| (row.time.as_ns(), row.sent_packets, row.received_packets));
        let expected = [(1, 1, 1), (2, 2, 2), (100, 4, 3), (105, 4, 3)];
        let expected = expected.map(|(ms, sent, got)| (ms * 1_000_000, Some(sent), Some(got)));
        assert_eq!(seen.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn icmp_messages_without_an_identifier_are_no_flows() {
        assert_eq!(Protocol::of(58, 0), None);
        assert_eq!(Protocol::of(58, 77), Some(Protocol::Echo));
        assert_eq!(Protocol::of(17, 0), Some(Protocol::Udp));
    }
}
