//! Round-trip times of the flows that pass: TCP's from their timestamps, QUIC's from their spin bit.
//!
//! A TCP segment carries the clock of its sender (TSval), and the peer's answer repeats it (TSecr, RFC
//! 7323 section 4). The time from the first segment with a value to the first answer that repeats it
//! is the round-trip time from the router to the host that answers and back, with the queues of this
//! router on the way. This is the method of pping (K. Nichols, "Listening to Networks", 2017). The
//! module `spin` has that of QUIC. Nothing is added to packets.
//!
//! Deviations from pping: only segments that the peer answers are remembered (payload, SYN, FIN),
//! because the value of a pure ACK comes back with the next data, whenever that is. The table has a
//! fixed size; a value that was overwritten gives no sample, never a wrong one.
//!
//! A receiver that delays its ACKs (RFC 9293 section 3.8.6.3, at most 0.5 s) adds that delay, so the
//! least and the median say more about a path than the largest.

mod spin;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use sluice_core::{Span, Time};
use sluice_ipfw::Headers;
use sluice_ipfw::watch::{ObjectName, Waits};
use sluice_wire::frame::{QuicHeader, Timestamps};

use spin::SpinMeter;

/// The measurement of round-trip times.
#[derive(Debug)]
pub struct RttMeter {
    /// Sets of [`WAYS`] values by hash.
    sent: Vec<Option<Sent>>,
    hasher: RandomState,
    spin: SpinMeter,
    counts: RttCounts,
}

/// The signal that a round-trip time is measured from.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum RttSource {
    /// TCP timestamps.
    #[default]
    Tcp,
    /// QUIC's spin bit.
    Quic,
}

/// The round-trip times of an interval.
#[derive(Clone, Debug, Default)]
pub struct RttCounts {
    /// By the host that answered; at most [`RttCounts::MOST_HOSTS`].
    pub hosts: BTreeMap<(IpAddr, RttSource), Waits>,
    /// By the pipe or queue that the packets entered.
    pub objects: BTreeMap<(ObjectName, RttSource), Waits>,
    /// Those of all hosts.
    pub all: BTreeMap<RttSource, Waits>,
}

/// A round trip from the router to a host and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RoundTrip {
    /// The host that answered.
    host: IpAddr,
    /// The pipe or queue that the packet to it entered.
    object: Option<ObjectName>,
    time: Span,
}

/// One direction of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Way {
    src: IpAddr,
    src_port: u16,
    dst: IpAddr,
    dst_port: u16,
}

/// A value that was sent and has not been repeated, or has been and must not be remembered again.
#[derive(Clone, Copy, Debug)]
struct Sent {
    way: Way,
    value: u32,
    at: Time,
    object: Option<ObjectName>,
    is_answered: bool,
}

/// Values that are remembered: 1.5 MB.
const MOST_SENT: usize = 16_384;
/// Values with the same set.
const WAYS: usize = 4;
/// A longer time is not a round trip: the value was overwritten and came again.
const LONGEST: Span = Span::from_ms(10_000);

impl RttSource {
    /// All of them.
    pub const ALL: [RttSource; 2] = [RttSource::Tcp, RttSource::Quic];

    /// Returns the name in samples and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            RttSource::Tcp => "tcp",
            RttSource::Quic => "quic",
        }
    }
}

impl RttCounts {
    /// Largest number of hosts in an interval, counted once for each source; 0.4 MB.
    pub const MOST_HOSTS: usize = 256;
    /// Largest number of pipes and queues in an interval, counted once for each source.
    pub const MOST_OBJECTS: usize = 128;

    /// Adds the round-trip times of another worker.
    pub fn absorb(&mut self, other: RttCounts) {
        for (key, waits) in other.hosts {
            if self.hosts.len() < Self::MOST_HOSTS || self.hosts.contains_key(&key) {
                self.hosts.entry(key).or_default().absorb(&waits);
            }
        }
        for (key, waits) in other.objects {
            if self.objects.len() < Self::MOST_OBJECTS || self.objects.contains_key(&key) {
                self.objects.entry(key).or_default().absorb(&waits);
            }
        }
        for (source, waits) in other.all {
            self.all.entry(source).or_default().absorb(&waits);
        }
    }

    fn add(&mut self, source: RttSource, trip: RoundTrip) {
        self.all.entry(source).or_default().add(trip.time);
        let host = (trip.host, source);
        if self.hosts.len() < Self::MOST_HOSTS || self.hosts.contains_key(&host) {
            self.hosts.entry(host).or_default().add(trip.time);
        }
        let Some(object) = trip.object else {
            return;
        };
        let object = (object, source);
        if self.objects.len() < Self::MOST_OBJECTS || self.objects.contains_key(&object) {
            self.objects.entry(object).or_default().add(trip.time);
        }
    }
}

impl Default for RttMeter {
    fn default() -> Self {
        RttMeter {
            sent: vec![None; MOST_SENT],
            hasher: RandomState::new(),
            spin: SpinMeter::default(),
            counts: RttCounts::default(),
        }
    }
}

impl RttMeter {
    /// Sees a segment that arrived at `at`. `object` finds the pipe or queue that it enters.
    pub fn see(
        &mut self,
        headers: &Headers,
        timestamps: &Timestamps,
        at: Time,
        object: impl FnOnce() -> Option<ObjectName>,
    ) {
        let way = Way {
            src: headers.src,
            src_port: headers.src_port,
            dst: headers.dst,
            dst_port: headers.dst_port,
        };
        if let Some(echo) = timestamps.echo {
            self.answer(way, echo, at);
        }
        if timestamps.is_answered {
            self.remember(way, timestamps.value, at, object);
        }
    }

    /// Sees a datagram with a QUIC header that arrived at `at`. `object` finds the pipe or queue that
    /// it enters.
    pub fn see_quic(
        &mut self,
        headers: &Headers,
        header: QuicHeader,
        at: Time,
        object: impl FnOnce() -> Option<ObjectName>,
    ) {
        if let Some(trip) = self.spin.see(headers, header, at, object) {
            self.counts.add(RttSource::Quic, trip);
        }
    }

    /// Takes the round-trip times since the last call.
    pub fn take(&mut self) -> RttCounts {
        std::mem::take(&mut self.counts)
    }

    fn answer(&mut self, way: Way, echo: u32, at: Time) {
        let sent_on = Way {
            src: way.dst,
            src_port: way.dst_port,
            dst: way.src,
            dst_port: way.src_port,
        };
        let set = self.set(&sent_on, echo);
        let mut sent = self.sent[set..set + WAYS].iter_mut().flatten();
        let Some(sent) = sent.find(|sent| sent.value == echo && sent.way == sent_on) else {
            return;
        };
        let rtt = at.since(sent.at);
        if !std::mem::replace(&mut sent.is_answered, true) && rtt <= LONGEST {
            let trip = RoundTrip {
                host: way.src,
                object: sent.object,
                time: rtt,
            };
            self.counts.add(RttSource::Tcp, trip);
        }
    }

    fn remember(
        &mut self,
        way: Way,
        value: u32,
        at: Time,
        object: impl FnOnce() -> Option<ObjectName>,
    ) {
        let set = self.set(&way, value);
        let places = &mut self.sent[set..set + WAYS];
        let is_known =
            |sent: &Sent| sent.value == value && sent.way == way && at.since(sent.at) <= LONGEST;
        if places.iter().flatten().any(is_known) {
            return;
        }
        let oldest = places
            .iter_mut()
            .min_by_key(|sent| sent.as_ref().map(|sent| sent.at));
        *oldest.expect("a set has places") = Some(Sent {
            way,
            value,
            at,
            object: object(),
            is_answered: false,
        });
    }

    fn set(&self, way: &Way, value: u32) -> usize {
        let hash = self.hasher.hash_one((way, value));
        hash as usize % (MOST_SENT / WAYS) * WAYS
    }
}

#[cfg(test)]
mod tests {
    use sluice_ipfw::Direction;

    use super::*;

    const CLIENT: [u8; 4] = [10, 0, 0, 1];
    const SERVER: [u8; 4] = [10, 0, 0, 2];

    fn see(meter: &mut RttMeter, ms: u64, from: [u8; 4], value: u32, echo: u32, has_data: bool) {
        let (to, ports) = if from == CLIENT {
            (SERVER, (40_000, 443))
        } else {
            (CLIENT, (443, 40_000))
        };
        let mut headers = Headers::new(Direction::In, 6, from.into(), to.into());
        (headers.src_port, headers.dst_port) = ports;
        let timestamps = Timestamps {
            value,
            echo: (echo > 0).then_some(echo),
            is_answered: has_data,
        };
        let at = Time::ZERO + Span::from_ms(ms);
        meter.see(&headers, &timestamps, at, || Some(ObjectName::Pipe(1)));
    }

    fn of(counts: &RttCounts, host: [u8; 4]) -> (u64, u64) {
        let waits = counts.hosts.get(&(IpAddr::from(host), RttSource::Tcp));
        waits.map_or((0, 0), |waits| {
            (waits.packets(), waits.longest().as_ns() / 1_000_000)
        })
    }

    fn samples(counts: &RttCounts) -> u64 {
        counts.all.values().map(Waits::packets).sum()
    }

    #[test]
    fn the_time_to_the_first_answer_is_the_round_trip_to_the_host_that_answers() {
        let mut meter = RttMeter::default();
        see(&mut meter, 0, CLIENT, 100, 0, true);
        see(&mut meter, 30, SERVER, 900, 100, true);
        see(&mut meter, 34, CLIENT, 134, 900, false);
        let counts = meter.take();
        // 30 ms to the server and back, 4 ms to the client and back: both legs of one path.
        assert_eq!(of(&counts, SERVER), (1, 30));
        assert_eq!(of(&counts, CLIENT), (1, 4));
        assert_eq!(samples(&counts), 2);
        let pipe = (ObjectName::Pipe(1), RttSource::Tcp);
        assert_eq!(counts.objects[&pipe].packets(), 2);
        assert_eq!(samples(&meter.take()), 0);
    }

    #[test]
    fn a_value_counts_from_its_first_segment_and_once() {
        let mut meter = RttMeter::default();
        // Three segments within a tick of the sender's clock.
        for ms in [0, 1, 2] {
            see(&mut meter, ms, CLIENT, 100, 0, true);
        }
        see(&mut meter, 20, SERVER, 900, 100, false);
        // A fourth one with the same value, and a second answer.
        see(&mut meter, 21, CLIENT, 100, 0, true);
        see(&mut meter, 22, SERVER, 902, 100, false);
        assert_eq!(of(&meter.take(), SERVER), (1, 20));
    }

    #[test]
    fn the_value_of_a_pure_ack_is_not_remembered() {
        let mut meter = RttMeter::default();
        see(&mut meter, 0, CLIENT, 100, 0, false);
        // The server's next data repeat it a second later.
        see(&mut meter, 1000, SERVER, 900, 100, true);
        assert_eq!(samples(&meter.take()), 0);
    }

    #[test]
    fn a_retransmission_has_a_value_of_its_own() {
        let mut meter = RttMeter::default();
        see(&mut meter, 0, CLIENT, 100, 0, true);
        // Lost behind the router, sent again, and answered.
        see(&mut meter, 300, CLIENT, 400, 0, true);
        see(&mut meter, 320, SERVER, 900, 400, false);
        assert_eq!(of(&meter.take(), SERVER), (1, 20));
    }

    #[test]
    fn flows_and_hosts_beyond_the_tables_cost_samples_and_no_memory() {
        let mut meter = RttMeter::default();
        let headers = |host: u32, is_answer: bool| {
            let (a, b) = (IpAddr::from(host.to_be_bytes()), IpAddr::from(SERVER));
            let (src, dst) = if is_answer { (a, b) } else { (b, a) };
            Headers::new(Direction::In, 6, src, dst)
        };
        let at = |ms: u64| Time::ZERO + Span::from_ms(ms);
        let hosts = 100_000;
        for host in 0..hosts {
            let sent = Timestamps {
                value: 7,
                echo: None,
                is_answered: true,
            };
            meter.see(&headers(host, false), &sent, at(0), || None);
        }
        for host in 0..hosts {
            let answer = Timestamps {
                value: 9,
                echo: Some(7),
                is_answered: false,
            };
            meter.see(&headers(host, true), &answer, at(5), || None);
        }
        let counts = meter.take();
        assert_eq!(counts.hosts.len(), RttCounts::MOST_HOSTS);
        let samples = samples(&counts);
        assert!(
            samples <= MOST_SENT as u64 && samples > MOST_SENT as u64 / 2,
            "{samples}"
        );
        assert_eq!(counts.all[&RttSource::Tcp].longest(), Span::from_ms(5));
    }
}
