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

    /// CLOCK_REALTIME minus CLOCK_MONOTONIC as of now, for translating kernel timestamps. It
    /// changes whenever somebody sets the time, so it is asked for with every batch.
    pub(crate) fn realtime_offset_ns(&self) -> i128 {
        let bracket = || {
            let before = sys::clock_ns(libc::CLOCK_MONOTONIC);
            let real = sys::clock_ns(libc::CLOCK_REALTIME);
            let after = sys::clock_ns(libc::CLOCK_MONOTONIC);
            let middle = i128::from(before) + i128::from(after - before) / 2;
            (after - before, i128::from(real) - middle)
        };
        // A wide one was interrupted; the narrowest of a few is near enough.
        let mut best = bracket();
        for _ in 0..4 {
            if best.0 <= NARROW_NS {
                break;
            }
            best = best.min(bracket());
        }
        best.1
    }

    /// The instant of a CLOCK_REALTIME timestamp.
    pub(crate) fn at_realtime(&self, real_ns: u64, offset_ns: i128) -> Time {
        let monotonic = i128::from(real_ns) - offset_ns;
        self.at_monotonic(u64::try_from(monotonic).unwrap_or(0))
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
}
