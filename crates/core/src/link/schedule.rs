//! A rate that changes at given instants: CSV of time and rate.
//!
//! Each rate is in force from its instant, inclusive, until the next; the first one also before its
//! instant. A rate of zero is an outage: nothing passes until another rate follows. A change also
//! acts on the rest of a transmission in progress.
//!
//! The text is `time_ns,bits_per_second` per line, with or without that header:
//!
//! ```
//! use sluice_core::link::Schedule;
//! use sluice_core::{Rate, Time};
//! let mut schedule = Schedule::parse("time_ns,bits_per_second\n0,10000000\n15000000000,1000000")?;
//! assert_eq!(schedule.rate_at(Time::from_ns(14_999_999_999)), Some(Rate::from_bps(10_000_000)));
//! assert_eq!(schedule.rate_at(Time::from_ns(15_000_000_000)), Some(Rate::from_bps(1_000_000)));
//! # Ok::<(), sluice_core::link::TextError>(())
//! ```

use alloc::vec::Vec;

use super::text::{self, TextError, TextErrorKind};
use crate::units::{Rate, Span, Time};

/// A rate over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// Instants in rising order, with the rate from then on; `None` during an outage.
    steps: Vec<(Time, Option<Rate>)>,
    /// The step that was in force at the last call.
    current: usize,
}

/// What a transmission still needs: bits times 10^9, that is, a rate times nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Work(u128);

impl Work {
    /// Returns what passes in `span` at `rate`.
    pub(super) fn of(rate: Rate, span: Span) -> Self {
        Work(u128::from(rate.as_bps()) * u128::from(span.as_ns()))
    }

    /// Returns how long it takes at `rate`.
    pub(super) fn span_at(self, rate: Rate) -> Span {
        if rate.is_unlimited() {
            return Span::ZERO;
        }
        let ns = self.0.div_ceil(u128::from(rate.as_bps()));
        u64::try_from(ns).map_or(Span::MAX, Span::from_ns)
    }

    /// Returns the bytes, rounded up.
    pub(super) fn bytes(self) -> u64 {
        u64::try_from(self.0.div_ceil(8_000_000_000)).unwrap_or(u64::MAX)
    }
}

impl Schedule {
    /// Creates a schedule of `steps`; `None` if there are none, or if their times do not rise.
    pub fn new(steps: Vec<(Time, Option<Rate>)>) -> Option<Self> {
        let rises = steps.windows(2).all(|pair| pair[0].0 < pair[1].0);
        (rises && !steps.is_empty()).then_some(Schedule { steps, current: 0 })
    }

    /// Parses the CSV form.
    ///
    /// # Errors
    /// Returns the error and its place.
    pub fn parse(text: &str) -> Result<Self, TextError> {
        let mut steps: Vec<(Time, Option<Rate>)> = Vec::new();
        text::table(text, ["time_ns", "bits_per_second"], |[time, bps]| {
            if let Some((last, _)) = steps.last() {
                let before = last.as_ns();
                if time < before {
                    return Err(TextErrorKind::Backwards { time, before });
                }
                if time == before {
                    return Err(TextErrorKind::Twice { time });
                }
            }
            let rate = (bps > 0).then(|| Rate::from_bps(bps));
            steps.push((Time::from_ns(time), rate));
            Ok(())
        })?;
        if steps.is_empty() {
            return Err(text::whole_file(TextErrorKind::Empty { name: "rates" }));
        }
        Ok(Schedule { steps, current: 0 })
    }

    /// Returns the schedule with every instant later by `by`.
    pub fn later(mut self, by: Span) -> Self {
        for (at, _) in &mut self.steps {
            *at = at.saturating_add(by);
        }
        self
    }

    /// Returns the rate in force at `now`; `None` during an outage. Calls come in the order of
    /// time.
    pub fn rate_at(&mut self, now: Time) -> Option<Rate> {
        while self
            .steps
            .get(self.current + 1)
            .is_some_and(|(from, _)| *from <= now)
        {
            self.current += 1;
        }
        self.steps[self.current].1
    }

    /// Returns the earliest start of a transmission, from `now` on; [`Time::MAX`] for never.
    pub fn ready_at(&mut self, now: Time) -> Time {
        if self.rate_at(now).is_some() {
            return now;
        }
        self.steps[self.current..]
            .iter()
            .find(|(_, rate)| rate.is_some())
            .map_or(Time::MAX, |(from, _)| *from)
    }

    /// Returns when the rate of the last call of [`Schedule::rate_at`] ends; [`Time::MAX`] for never.
    pub(super) fn next_change(&self) -> Time {
        let next = self.steps.get(self.current + 1);
        next.map_or(Time::MAX, |(from, _)| *from)
    }

    /// Returns when `work` that began at `begun` is done; [`Time::MAX`] for never. The rate of the
    /// last call of [`Schedule::rate_at`] also holds before.
    pub(super) fn finish(&mut self, begun: Time, work: Work) -> Time {
        self.rate_at(begun);
        match self.pass(begun, work, Time::MAX) {
            (at, Work(0)) => at,
            _ => Time::MAX,
        }
    }

    /// Returns what is left at `now` of `work` that began at `begun`, the last transmission.
    pub(super) fn rest(&self, begun: Time, work: Work, now: Time) -> Work {
        self.pass(begun, work, now).1
    }

    /// Lets `work` pass from `begun` on until `stop`. Returns when it stopped, and what is left.
    fn pass(&self, begun: Time, work: Work, stop: Time) -> (Time, Work) {
        let (mut at, mut left) = (begun, work);
        for (number, (_, rate)) in self.steps.iter().enumerate().skip(self.current) {
            let next = self.steps.get(number + 1).map_or(stop, |(from, _)| *from);
            let until = next.min(stop);
            if let Some(rate) = rate {
                let end = at.saturating_add(left.span_at(*rate));
                if end <= until {
                    return (end, Work(0));
                }
                let passed = Work::of(*rate, until.since(at));
                left = Work(left.0.saturating_sub(passed.0));
            }
            at = at.max(until);
            if until == stop {
                break;
            }
        }
        (at, left)
    }

    /// Returns the bytes that can pass in the time `length` from the start on. The first rate also
    /// holds before its instant.
    pub fn bytes_in(&self, length: Span) -> u64 {
        let end = Time::ZERO + length;
        let ends = self.steps.iter().skip(1).map(|(at, _)| *at);
        let mut from = Time::ZERO;
        let mut bytes = 0_u64;
        for ((_, rate), until) in self.steps.iter().zip(ends.chain([Time::MAX])) {
            let until = until.min(end);
            if let Some(rate) = rate {
                bytes = bytes.saturating_add(rate.bytes_in(until.since(from)));
            }
            from = from.max(until);
        }
        bytes
    }

    /// Returns the instants and rates.
    pub fn steps(&self) -> &[(Time, Option<Rate>)] {
        &self.steps
    }

    /// Returns whether the last rate is an outage that never ends.
    pub fn ends_in_outage(&self) -> bool {
        self.steps.last().is_some_and(|(_, rate)| rate.is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn errors_name_line_and_column() {
        let error = |text: &str| Schedule::parse(text).unwrap_err().to_string();
        assert_eq!(
            error("0,1\n5,x"),
            "line 2, column 3: `x` is not a whole number (bits_per_second is expected here)"
        );
        assert_eq!(
            error("# rates\n\n7,1\n5,1\n"),
            "line 4, column 1: time 5 follows 7 in the previous line; times must not decrease"
        );
        assert_eq!(
            error("3,1\n3,2"),
            "line 2, column 1: time 3 already has a value"
        );
        assert_eq!(
            error("3"),
            "line 1, column 2: the line ends where bits_per_second is expected"
        );
        assert_eq!(
            error("3,4, 5"),
            "line 1, column 6: `5` follows the last column"
        );
        assert_eq!(error(""), "line 1, column 1: the file holds no rates");
    }

    #[test]
    fn each_rate_passes_its_bytes() {
        let s = Span::from_secs;
        // 8 kbit/s from the start, nothing from second 10 on, 16 kbit/s from second 20 on.
        let schedule =
            Schedule::parse("2000000000,8000\n10000000000,0\n20000000000,16000").unwrap();
        assert_eq!(schedule.bytes_in(s(5)), 5 * 1000);
        assert_eq!(schedule.bytes_in(s(15)), 10 * 1000);
        assert_eq!(schedule.bytes_in(s(23)), 10 * 1000 + 3 * 2000);
    }

    #[test]
    fn an_outage_ends_at_the_next_rate() {
        let mut schedule = Schedule::parse("0,8\n10,0\n20,0\n30,16").unwrap();
        let t = Time::from_ns;
        assert_eq!(schedule.ready_at(t(9)), t(9));
        assert_eq!(schedule.ready_at(t(10)), t(30));
        assert_eq!(schedule.ready_at(t(25)), t(30));
        assert_eq!(schedule.ready_at(t(30)), t(30));
        let mut dead = Schedule::parse("0,8\n10,0").unwrap();
        assert_eq!(dead.ready_at(t(10)), Time::MAX);
    }
}
