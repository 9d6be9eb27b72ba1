//! The clock that all threads of a live run share.

use crate::sys;
use sluice_core::{Span, Time};
use std::io;

/// CLOCK_MONOTONIC, counted from an origin. Copies share the origin, so threads of one run can
/// compare their times.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin_ns: u64,
}

impl Clock {
    /// Returns a clock that reads zero now.
    pub fn start() -> Clock {
        Clock {
            origin_ns: sys::clock_ns(libc::CLOCK_MONOTONIC),
        }
    }

    /// Returns a clock whose zero is `lead` in the future. It reads zero until then, so all parties
    /// that must start together can be set up first.
    pub fn starting_in(lead: Span) -> Clock {
        Clock {
            origin_ns: sys::clock_ns(libc::CLOCK_MONOTONIC).saturating_add(lead.as_ns()),
        }
    }

    /// Returns the current time. Costs about 25 ns (no system call).
    pub fn now(&self) -> Time {
        self.at_monotonic(sys::clock_ns(libc::CLOCK_MONOTONIC))
    }

    /// Returns the time at which CLOCK_MONOTONIC read `monotonic_ns`; zero if that was before the
    /// origin.
    pub fn at_monotonic(&self, monotonic_ns: u64) -> Time {
        Time::from_ns(monotonic_ns.saturating_sub(self.origin_ns))
    }

    /// Returns whether `time` has been reached. Unlike [`Clock::now`], it distinguishes times
    /// before zero from zero.
    pub fn has_reached(&self, time: Time) -> bool {
        sys::clock_ns(libc::CLOCK_MONOTONIC) >= self.monotonic_ns(time)
    }

    /// Returns the reading of CLOCK_MONOTONIC at `time`.
    pub fn monotonic_ns(&self, time: Time) -> u64 {
        self.origin_ns.saturating_add(time.as_ns())
    }

    /// Sleeps until `spin` before `deadline`, then busy-waits. Returns the time at which the wait
    /// ended.
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

/// A reading of CLOCK_REALTIME between two readings of CLOCK_MONOTONIC.
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

/// Converts the kernel's timestamps from CLOCK_REALTIME to CLOCK_MONOTONIC.
///
/// The offset between the two clocks is constant until CLOCK_REALTIME is stepped: because it was
/// set, a leap second was inserted, or the machine was suspended. NTP slews both clocks alike, and
/// so does a smeared leap second. A step is detected at the next reading of the clocks. Frames
/// stamped before the step may still be queued then, so the previous offset is kept.
///
/// A stamp is converted with the offset under which it is plausible, that is, under which its time
/// lies in the period in which that offset was observed. If both offsets are plausible, the later
/// time is used, because stamps are read soon after they were made. That choice is wrong, by the
/// size of the step, only for a stamp that was queued for longer than the size of the step, and
/// only if it was queued when the step was detected.
#[derive(Clone, Copy, Debug)]
pub struct Stamps {
    present: Epoch,
    past: Option<Epoch>,
}

/// A period without a step of CLOCK_REALTIME, and the offset between the clocks in that period.
#[derive(Clone, Copy, Debug)]
struct Epoch {
    /// CLOCK_REALTIME minus CLOCK_MONOTONIC is between these two.
    least_ns: i64,
    most_ns: i64,
    /// The period, in CLOCK_MONOTONIC: the step before it came after `from_ns`, the next one before
    /// `until_ns`.
    from_ns: u64,
    until_ns: u64,
}

impl Stamps {
    /// Starts with one reading of the clocks.
    pub fn new(reading: ClockReading) -> Stamps {
        Stamps {
            present: Epoch::of(reading, 0),
            past: None,
        }
    }

    /// Reads the clocks again. Must be called before converting stamps that were made since the
    /// last reading.
    pub fn look(&mut self) {
        let mut reading = ClockReading::take();
        // A reading that was interrupted is a poor first reading after a step.
        for _ in 0..4 {
            let is_wide = reading.after_ns - reading.before_ns > NARROW_NS;
            if !is_wide || self.present.narrowed(reading).is_some() {
                break;
            }
            reading = ClockReading::take();
        }
        self.note(reading);
    }

    /// Like [`Stamps::look`], with a reading taken elsewhere.
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

    /// Returns the reading of CLOCK_MONOTONIC when CLOCK_REALTIME read `real_ns`; never later than
    /// the last reading.
    pub fn monotonic_ns(&self, real_ns: u64) -> u64 {
        let present = self.present.instant(real_ns);
        let past = self.past.and_then(|past| past.instant(real_ns));
        // `real_ns` was read between two steps of which only one was seen, or it is not a time at
        // all. The time of the last reading is the best guess.
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

    /// Returns this epoch with its bounds narrowed by a reading; `None` if the clock was stepped
    /// before the reading.
    fn narrowed(&self, reading: ClockReading) -> Option<Epoch> {
        let seen = Epoch::of(reading, self.from_ns);
        let narrowed = Epoch {
            least_ns: self.least_ns.max(seen.least_ns),
            most_ns: self.most_ns.min(seen.most_ns),
            ..seen
        };
        (narrowed.least_ns <= narrowed.most_ns).then_some(narrowed)
    }

    /// Returns the time of a stamp, if the stamp can belong to this epoch.
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

/// Sets the calling thread's timer slack to 1 ns: sleeps then end about 25 us late instead of about
/// 75 us. The kernel ignores the setting for real-time threads, which do not need it.
pub fn precise_wakeups() {
    // Fails only on kernels older than 2.6.28.
    let _ = sys::set_timer_slack(1);
}

/// The kernel refused real-time scheduling.
#[derive(Debug, thiserror::Error)]
#[error(
    "cannot get real-time scheduling with priority {priority} (1 to 99, needs CAP_SYS_NICE or a \
     limit of rtprio): {source}"
)]
pub struct RealTimeError {
    priority: u8,
    source: io::Error,
}

/// Gives the calling thread priority over all ordinary threads (SCHED_FIFO): on a busy machine,
/// waits then end late by tens of microseconds instead of milliseconds. The thread must yield the
/// core to others for a twentieth of the time, or the kernel stops it. A [`crate::port::Waiter`]
/// ensures that, and makes the thread an ordinary one for that time and for some of its sleeps.
///
/// # Errors
/// The process has no permission, as in a user namespace.
pub fn real_time(priority: u8) -> Result<(), RealTimeError> {
    sys::Scheduling::of_thread()
        .and_then(|present| present.fifo(priority).take())
        .map_err(|source| RealTimeError { priority, source })
}

/// Two uninterrupted readings of the clock take 50 ns.
const NARROW_NS: u64 = 150;
/// Largest difference between the clocks of two cores, as on a virtual machine with an unstable
/// counter.
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

    /// Returns a reading in virtual time, with CLOCK_REALTIME ahead by `ahead_ns`.
    fn at(monotonic_ns: u64, ahead_ns: u64) -> ClockReading {
        ClockReading {
            before_ns: monotonic_ns,
            real_ns: monotonic_ns + ahead_ns,
            after_ns: monotonic_ns,
        }
    }

    const SECOND: u64 = 1_000_000_000;
    /// CLOCK_REALTIME in September 2020, on a machine that has just booted.
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
            // The step happens 100 us later and is noticed another 100 us after that.
            let (before, noticed) = (100 * SECOND + 99_999, 100 * SECOND + 200_000);
            let after = 100 * SECOND + 100_001;
            stamps.note(at(noticed, stepped));
            assert_eq!(stamps.monotonic_ns(before + AHEAD), before, "{step}");
            assert_eq!(stamps.monotonic_ns(after + stepped), after, "{step}");
            // More stamps from before the step are read later still, together with stamps from
            // after it.
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

    /// CLOCK_MONOTONIC stands still meanwhile, and CLOCK_REALTIME does not (clock_gettime(2)).
    #[test]
    fn stamps_around_a_suspend_get_the_instants_at_which_they_were_made() {
        let mut stamps = Stamps::new(at(100 * SECOND, AHEAD));
        // Eight hours, a millisecond after the last reading; a millisecond later, the clocks are read.
        let woken = AHEAD + 8 * 3600 * SECOND;
        stamps.note(at(100 * SECOND + 2_000_000, woken));
        for before in [100 * SECOND, 100 * SECOND + 999_999] {
            assert_eq!(stamps.monotonic_ns(before + AHEAD), before);
        }
        for after in [100 * SECOND + 1_000_001, 100 * SECOND + 2_000_000] {
            assert_eq!(stamps.monotonic_ns(after + woken), after);
        }
    }

    /// For a day, both clocks run slower by a second in 86 400, as NTP slews them (adjtimex(2)).
    #[test]
    fn a_smeared_leap_second_is_no_step() {
        let slewed = |true_ns: u64| true_ns - true_ns / 86_400;
        let mut stamps = Stamps::new(at(0, AHEAD));
        for second in 1..=86_400 {
            let (made, read) = (slewed(second * SECOND - 50_000), slewed(second * SECOND));
            stamps.note(at(read, AHEAD));
            assert!(stamps.past.is_none(), "a step after {second} s");
            assert_eq!(stamps.monotonic_ns(made + AHEAD), made);
        }
    }

    #[test]
    fn no_stamp_is_later_than_the_last_reading() {
        let mut stamps = Stamps::new(at(100 * SECOND, AHEAD));
        // Two steps between readings: one of the three offsets was never observed.
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
