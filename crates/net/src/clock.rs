//! The one clock of a live run.

use crate::sys;
use sluice_core::{Span, Time};
use std::io;

/// CLOCK_MONOTONIC since an origin. Copies share the origin, so that threads of one run can
/// compare their instants.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin_ns: u64,
}

impl Clock {
    /// A clock that reads zero now.
    pub fn start() -> Clock {
        Clock {
            origin_ns: sys::clock_ns(libc::CLOCK_MONOTONIC),
        }
    }

    /// A clock whose zero is `lead` ahead: it shows zero until then, so that everything which is to
    /// start together can be set up first.
    pub fn starting_in(lead: Span) -> Clock {
        Clock {
            origin_ns: sys::clock_ns(libc::CLOCK_MONOTONIC).saturating_add(lead.as_ns()),
        }
    }

    /// The present instant. Costs about 25 ns (no system call).
    pub fn now(&self) -> Time {
        self.at_monotonic(sys::clock_ns(libc::CLOCK_MONOTONIC))
    }

    /// The instant at which CLOCK_MONOTONIC showed `monotonic_ns`; zero when that was before
    /// the origin.
    pub fn at_monotonic(&self, monotonic_ns: u64) -> Time {
        Time::from_ns(monotonic_ns.saturating_sub(self.origin_ns))
    }

    /// Whether `time` has come. Unlike [`Clock::now`] it tells an instant before zero from zero.
    pub fn has_reached(&self, time: Time) -> bool {
        sys::clock_ns(libc::CLOCK_MONOTONIC) >= self.monotonic_ns(time)
    }

    /// What CLOCK_MONOTONIC shows at `time`.
    pub fn monotonic_ns(&self, time: Time) -> u64 {
        self.origin_ns.saturating_add(time.as_ns())
    }

    /// Sleeps until `deadline` less `spin`, then burns the rest; the instant of return.
    ///
    /// Call [`precise_wakeups`] on the thread first, or every sleep ends 50 us late.
    pub fn sleep_until(&self, deadline: Time, spin: Span) -> Time {
        let wake = Time::from_ns(deadline.as_ns().saturating_sub(spin.as_ns()));
        loop {
            if self.has_reached(deadline) {
                return self.now();
            }
            if !self.has_reached(wake) {
                sys::sleep_until(self.monotonic_ns(wake));
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

/// CLOCK_REALTIME between two readings of CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockReading {
    /// CLOCK_MONOTONIC, read first.
    pub before_ns: u64,
    /// CLOCK_REALTIME, read next.
    pub real_ns: u64,
    /// CLOCK_MONOTONIC, read last.
    pub after_ns: u64,
}

impl ClockReading {
    /// Reads the clocks. Costs about 75 ns (no system call).
    pub fn take() -> ClockReading {
        let before_ns = sys::clock_ns(libc::CLOCK_MONOTONIC);
        let real_ns = sys::clock_ns(libc::CLOCK_REALTIME);
        ClockReading {
            before_ns,
            real_ns,
            after_ns: sys::clock_ns(libc::CLOCK_MONOTONIC),
        }
    }
}

/// Translates the kernel's timestamps, which are of CLOCK_REALTIME, to CLOCK_MONOTONIC.
///
/// The difference of the two clocks is constant until CLOCK_REALTIME is stepped: somebody sets it, a leap second
/// is inserted, or the machine was suspended. NTP slews both clocks alike, and so does a smeared leap second. A step
/// shows when the clocks are read next. A stamp from before the step may still be waiting then, so the difference
/// of before is kept.
///
/// A stamp is translated by the difference under which it makes sense: its instant lies in the time for which that
/// difference was observed. Where both make sense, the later instant is taken, since stamps are read soon after
/// they were made. That is wrong, by the size of the step, only for a stamp that waited longer than the step is
/// large, and only if it was waiting when the step was noticed.
#[derive(Clone, Copy, Debug)]
pub struct Stamps {
    present: Epoch,
    past: Option<Epoch>,
}

/// A time without a step of CLOCK_REALTIME, and what CLOCK_REALTIME was ahead by then.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    /// CLOCK_REALTIME less CLOCK_MONOTONIC is between these two.
    least_ns: i64,
    most_ns: i64,
    /// CLOCK_MONOTONIC was between these two. The step came after `from_ns`, the next one before `until_ns`.
    from_ns: u64,
    until_ns: u64,
}

impl Stamps {
    /// Begins with the clocks as they are.
    pub fn new(reading: ClockReading) -> Stamps {
        Stamps {
            present: Epoch::of(reading, 0),
            past: None,
        }
    }

    /// Reads the clocks again; before stamps are translated that were made since the last time.
    pub fn look(&mut self) {
        let mut reading = ClockReading::take();
        // An interrupted reading is a bad first one after a step.
        for _ in 0..4 {
            let is_wide = reading.after_ns - reading.before_ns > NARROW_NS;
            if !is_wide || self.present.narrowed(reading).is_some() {
                break;
            }
            reading = ClockReading::take();
        }
        self.note(reading);
    }

    /// As [`Stamps::look`], for clocks that were read elsewhere.
    pub fn note(&mut self, reading: ClockReading) {
        let Some(narrowed) = self.present.narrowed(reading) else {
            let next = Epoch::of(reading, self.present.until_ns);
            let past = Epoch {
                until_ns: reading.after_ns,
                ..self.present
            };
            (self.present, self.past) = (next, Some(past));
            return;
        };
        self.present = narrowed;
    }

    /// What CLOCK_MONOTONIC showed when CLOCK_REALTIME showed `real_ns`; not later than the last reading.
    pub fn monotonic_ns(&self, real_ns: u64) -> u64 {
        let present = self.present.instant(real_ns);
        let past = self.past.and_then(|past| past.instant(real_ns));
        // The two are of different steps, or the stamp is invalid: the present is the best estimate.
        present.max(past).unwrap_or(self.present.until_ns)
    }
}

impl Epoch {
    fn of(reading: ClockReading, from_ns: u64) -> Epoch {
        let real_ns = reading.real_ns as i64;
        Epoch {
            least_ns: real_ns.saturating_sub_unsigned(reading.after_ns),
            most_ns: real_ns.saturating_sub_unsigned(reading.before_ns),
            from_ns,
            until_ns: reading.after_ns,
        }
    }

    /// With the bounds that a reading adds; nothing if there was a step before it.
    fn narrowed(&self, reading: ClockReading) -> Option<Epoch> {
        let seen = Epoch::of(reading, self.from_ns);
        let narrowed = Epoch {
            least_ns: self.least_ns.max(seen.least_ns),
            most_ns: self.most_ns.min(seen.most_ns),
            ..seen
        };
        (narrowed.least_ns <= narrowed.most_ns).then_some(narrowed)
    }

    /// The instant of a stamp, if it can be one of this epoch.
    fn instant(&self, real_ns: u64) -> Option<u64> {
        let middle_ns = self.least_ns + (self.most_ns - self.least_ns) / 2;
        let instant_ns = (real_ns as i64).saturating_sub(middle_ns);
        let instant_ns = u64::try_from(instant_ns).unwrap_or(0);
        let slack_ns = SKEW_NS + self.most_ns.abs_diff(self.least_ns);
        let is_in = instant_ns.saturating_add(slack_ns) >= self.from_ns
            && instant_ns <= self.until_ns.saturating_add(slack_ns);
        is_in.then(|| instant_ns.clamp(self.from_ns, self.until_ns))
    }
}

/// Sets the calling thread's timer slack to 1 ns: sleeps then end about 25 us late instead of
/// about 75 us. The kernel ignores it for real-time threads, which need it not.
pub fn precise_wakeups() {
    // It can only fail on kernels older than 2.6.28, where slack is the least of the problems.
    let _ = sys::set_timer_slack(1);
}

/// Real-time scheduling was refused.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot get real-time scheduling with priority {priority} (1 to 99, needs CAP_SYS_NICE or a \
     limit of rtprio): {source}"
)]
pub struct RealTimeError {
    priority: u8,
    source: io::Error,
}

/// Puts the calling thread before all ordinary ones (SCHED_FIFO): on a busy machine, waits
/// then end late by tens of microseconds instead of milliseconds. The thread must leave the core to others
/// for a twentieth of the time, or the kernel stops it; a [`crate::port::Waiter`] sees to that, and makes
/// the thread an ordinary one for that and for some of its sleeps.
///
/// # Errors
/// When the process may not, as in a user namespace.
pub fn real_time(priority: u8) -> Result<(), RealTimeError> {
    sys::Scheduling::of_thread()
        .and_then(|present| present.fifo(priority).take())
        .map_err(|source| RealTimeError { priority, source })
}

/// Two readings of the clock without an interruption take 50 ns.
const NARROW_NS: u64 = 150;
/// What the clocks of two cores may differ by, as on a virtual machine whose counter is not stable.
const SKEW_NS: u64 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_has_not_come_before_the_clock_starts() {
        let clock = Clock::starting_in(Span::from_secs(3600));
        assert_eq!(clock.now(), Time::ZERO);
        assert!(!clock.has_reached(Time::ZERO));
        assert!(Clock::start().has_reached(Time::ZERO));
    }

    /// Clocks in virtual time, of which CLOCK_REALTIME is ahead by `ahead_ns`.
    fn at(monotonic_ns: u64, ahead_ns: u64) -> ClockReading {
        ClockReading {
            before_ns: monotonic_ns,
            real_ns: monotonic_ns + ahead_ns,
            after_ns: monotonic_ns,
        }
    }

    const SECOND: u64 = 1_000_000_000;
    /// CLOCK_REALTIME of September 2020, ahead of a machine that has just started.
    const AHEAD: u64 = 1_600_000_000 * SECOND;

    #[test]
    fn stamps_around_a_step_get_the_instants_at_which_they_were_made() {
        for step in [
            -3600 * SECOND as i64,
            -60 * SECOND as i64,
            -1_000_000,
            1_000_000,
            SECOND as i64,
            3600 * SECOND as i64,
        ] {
            let stepped = AHEAD.wrapping_add_signed(step);
            let mut stamps = Stamps::new(at(50 * SECOND, AHEAD));
            stamps.note(at(100 * SECOND, AHEAD));
            // The step is made 100 us later and noticed after as much again.
            let (before, noticed) = (100 * SECOND + 99_999, 100 * SECOND + 200_000);
            let after = 100 * SECOND + 100_001;
            stamps.note(at(noticed, stepped));
            assert_eq!(stamps.monotonic_ns(before + AHEAD), before, "{step}");
            assert_eq!(stamps.monotonic_ns(after + stepped), after, "{step}");
            // Others of before it are fetched later still, with those of after it.
            let later = noticed + 300_000;
            stamps.note(at(later, stepped));
            assert_eq!(stamps.monotonic_ns(before + AHEAD), before, "{step}");
            assert_eq!(
                stamps.monotonic_ns(later - 1 + stepped),
                later - 1,
                "{step}"
            );
        }
    }

    #[test]
    fn no_stamp_is_later_than_the_last_reading() {
        let mut stamps = Stamps::new(at(100 * SECOND, AHEAD));
        // Two steps at one time: one difference of three is not known.
        stamps.note(at(101 * SECOND, AHEAD - 60 * SECOND));
        stamps.note(at(102 * SECOND, AHEAD - 120 * SECOND));
        for real in [
            0,
            AHEAD,
            AHEAD + 102 * SECOND,
            AHEAD + 1000 * SECOND,
            i64::MAX as u64,
            u64::MAX,
        ] {
            let instant = stamps.monotonic_ns(real);
            assert!(instant <= 102 * SECOND, "{real}: {instant}");
        }
        assert_eq!(stamps.monotonic_ns(AHEAD + 100 * SECOND), 102 * SECOND);
    }

    #[test]
    fn an_interrupted_reading_is_no_step_and_costs_no_exactness() {
        let mut stamps = Stamps::new(at(100 * SECOND, AHEAD));
        // Interrupted for 2 ms before CLOCK_REALTIME was read, then after it.
        for (before, after) in [(2_000_000, 0), (0, 2_000_000)] {
            stamps.note(ClockReading {
                before_ns: 200 * SECOND - before,
                real_ns: 200 * SECOND + AHEAD,
                after_ns: 200 * SECOND + after,
            });
            assert!(stamps.past.is_none());
            let instant = 199 * SECOND;
            assert_eq!(stamps.monotonic_ns(instant + AHEAD), instant);
        }
    }

    #[test]
    fn the_machine_s_clocks_are_translated_to_within_their_readings() {
        let mut stamps = Stamps::new(ClockReading::take());
        for _ in 0..1000 {
            let stamp = ClockReading::take();
            stamps.look();
            let instant = stamps.monotonic_ns(stamp.real_ns);
            let bounds = stamp.before_ns.saturating_sub(SKEW_NS)..=stamp.after_ns + SKEW_NS;
            assert!(bounds.contains(&instant), "{instant} not in {bounds:?}");
        }
    }
}
