//! Trace-driven delivery as Mahimahi defines it: instants at which 1500 bytes may pass.
//!
//! Each line of the text is a time in milliseconds, in non-decreasing order. A time that occurs n
//! times gives n opportunities. After the last line the trace starts again, shifted by the last
//! time. An opportunity carries 1500 bytes of one or several packets; a packet that needs more
//! continues with the next ones. What an opportunity could have carried is lost if the queue is
//! empty at that time.
//!
//! Source: Mahimahi (Netravali et al., USENIX ATC 2015, section 4 "LinkShell"). Mahimahi counts IP
//! lengths; a host that counts Ethernet frames sets `strip 14` in the link's framing.

use alloc::vec::Vec;

use super::text::{self, TextError, TextErrorKind};
use crate::units::{Span, Time};

/// Opportunities to deliver, which repeat forever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opportunities {
    /// Times within a round, in non-decreasing order. The last one is the length of a round.
    times: Vec<u64>,
    /// The start of the first round.
    origin: u64,
    /// The next unused one.
    next: (u64, usize),
    /// The one in use: its instant and the bytes that it can still carry.
    current: Option<(Time, u64)>,
}

impl Opportunities {
    /// Bytes that one opportunity carries.
    pub const BYTES: u64 = 1500;
    /// Longest round: a year, so that no time overflows.
    const MAX_MS: u64 = 365 * 24 * 3600 * 1000;

    /// Parses the text form.
    ///
    /// # Errors
    /// Returns the error and its place.
    pub fn parse(text: &str) -> Result<Self, TextError> {
        let mut times: Vec<u64> = Vec::new();
        text::table(text, ["time in ms"], |[time]| {
            let last = times.last().map_or(0, |ns| ns / NS_PER_MS);
            if time < last {
                return Err(TextErrorKind::Backwards { time, before: last });
            }
            if time > Self::MAX_MS {
                return Err(TextErrorKind::OutOfRange {
                    name: "time in ms",
                    value: time,
                    low: 0,
                    high: Self::MAX_MS,
                });
            }
            times.push(time * NS_PER_MS);
            Ok(())
        })?;
        match times.last() {
            None => Err(text::whole_file(TextErrorKind::Empty {
                name: "delivery opportunities",
            })),
            Some(0) => Err(text::whole_file(TextErrorKind::Senseless(
                "the last time is 0, so a round of the trace would take no time",
            ))),
            Some(_) => Ok(Opportunities {
                times,
                origin: 0,
                next: (0, 0),
                current: None,
            }),
        }
    }

    /// Returns the trace with every instant later by `by`.
    pub fn later(mut self, by: Span) -> Self {
        self.origin = self.origin.saturating_add(by.as_ns());
        self
    }

    /// Returns the earliest start of a transmission, from `now` on.
    pub fn ready_at(&mut self, now: Time) -> Time {
        if self.current.is_some_and(|(at, left)| at == now && left > 0) {
            return now;
        }
        self.skip_to(now);
        self.time_of(self.next)
    }

    /// Transmits `bytes` from `now` on and returns the instant of their last opportunity.
    pub fn transmit(&mut self, now: Time, bytes: u64) -> Time {
        let (mut at, mut left) = match self.current {
            Some((at, left)) if at == now && left > 0 => (at, left),
            _ => self.take(now),
        };
        let mut rest = bytes;
        while rest > left {
            rest -= left;
            (at, left) = self.take(at);
        }
        self.current = Some((at, left - rest));
        at
    }

    /// Returns the mean rate of a round in bits per second.
    pub fn mean_bps(&self) -> u64 {
        let round = self.times.last().copied().unwrap_or(1);
        let bits = u128::from(Self::BYTES) * 8 * self.times.len() as u128;
        (bits * 1_000_000_000 / u128::from(round)) as u64
    }

    /// Uses the next opportunity, at `now` or later.
    fn take(&mut self, now: Time) -> (Time, u64) {
        self.skip_to(now);
        let at = self.time_of(self.next);
        self.next.1 += 1;
        if self.next.1 == self.times.len() {
            self.next = (self.next.0 + 1, 0);
        }
        (at, Self::BYTES)
    }

    /// Drops the opportunities before `now`.
    fn skip_to(&mut self, now: Time) {
        if self.time_of(self.next) >= now {
            return;
        }
        // `now` lies in the round after `rounds` whole ones; the end of a round belongs to it.
        let length = self.round_length();
        let since = now.as_ns() - self.origin;
        let rounds = (since - 1) / length;
        let within = since - rounds * length;
        let index = self.times.partition_point(|time| *time < within);
        self.next = self.next.max((rounds, index));
    }

    fn time_of(&self, (round, index): (u64, usize)) -> Time {
        Time::from_ns(
            round
                .saturating_mul(self.round_length())
                .saturating_add(self.times[index])
                .saturating_add(self.origin),
        )
    }

    fn round_length(&self) -> u64 {
        *self.times.last().expect("a trace has at least one line")
    }
}

const NS_PER_MS: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn ms(n: u64) -> Time {
        Time::from_ns(n * NS_PER_MS)
    }

    #[test]
    fn packets_share_and_span_opportunities() {
        let mut trace = Opportunities::parse("1\n2\n2\n5\n").unwrap();
        assert_eq!(trace.ready_at(Time::ZERO), ms(1));
        // 600 B use the opportunity at 1 ms; another 900 B fit into its rest.
        assert_eq!(trace.transmit(ms(1), 600), ms(1));
        assert_eq!(trace.ready_at(ms(1)), ms(1));
        assert_eq!(trace.transmit(ms(1), 900), ms(1));
        // 3001 B need both opportunities at 2 ms and one byte of that at 5 ms.
        assert_eq!(trace.ready_at(ms(1)), ms(2));
        assert_eq!(trace.transmit(ms(2), 3001), ms(5));
        assert_eq!(trace.ready_at(ms(5)), ms(5));
        assert_eq!(trace.transmit(ms(5), 1499), ms(5));
        // The second round: 5 + 1 ms.
        assert_eq!(trace.ready_at(ms(5)), ms(6));
    }

    #[test]
    fn a_trace_may_begin_later() {
        let mut trace = Opportunities::parse("1\n2\n5\n").unwrap();
        let mut later = trace.clone().later(Span::from_ms(7));
        for now in 0..20 {
            let expected = trace.ready_at(ms(now)) + Span::from_ms(7);
            assert_eq!(later.ready_at(ms(now + 7)), expected, "{now}");
        }
        let mut waiting = Opportunities::parse("1\n").unwrap().later(Span::from_ms(7));
        assert_eq!(waiting.ready_at(ms(3)), ms(8));
    }

    #[test]
    fn unused_opportunities_are_lost_and_rounds_follow_one_another() {
        let mut trace = Opportunities::parse("0\n3\n10").unwrap();
        assert_eq!(trace.ready_at(Time::ZERO), Time::ZERO);
        assert_eq!(trace.ready_at(Time::from_ns(1)), ms(3));
        assert_eq!(trace.ready_at(ms(4)), ms(10));
        // The last line of the first round and the first line of the second are both at 10 ms.
        assert_eq!(trace.transmit(ms(10), 1500), ms(10));
        assert_eq!(trace.ready_at(ms(10)), ms(10));
        assert_eq!(trace.transmit(ms(10), 1500), ms(10));
        assert_eq!(trace.ready_at(ms(10)), ms(13));
        // 10 000 rounds later.
        assert_eq!(trace.ready_at(ms(100_001)), ms(100_003));
    }

    #[test]
    fn the_mean_rate_counts_1500_bytes_per_line() {
        // 3 * 12 000 bit in 10 ms
        let trace = Opportunities::parse("0\n3\n10").unwrap();
        assert_eq!(trace.mean_bps(), 3_600_000);
    }

    #[test]
    fn a_broken_trace_is_refused_with_its_place() {
        let error = |text: &str| Opportunities::parse(text).unwrap_err().to_string();
        assert_eq!(
            error("4\n3"),
            "line 2, column 1: time 3 follows 4 in the previous line; times must not decrease"
        );
        assert_eq!(
            error("4\n\n5.5"),
            "line 3, column 1: `5.5` is not a whole number (time in ms is expected here)"
        );
        assert_eq!(
            error("0\n0"),
            "line 1, column 1: the last time is 0, so a round of the trace would take no time"
        );
        assert!(error("99999999999999999999999").contains("more than 20 digits"));
    }
}
