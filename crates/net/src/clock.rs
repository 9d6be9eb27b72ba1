//! The one clock of a live run.

use crate::sys;
use sluice_core::{Span, Time};

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

    /// The present instant. Costs about 25 ns (no system call).
    pub fn now(&self) -> Time {
        self.at_monotonic(sys::clock_ns(libc::CLOCK_MONOTONIC))
    }

    /// The instant at which CLOCK_MONOTONIC showed `monotonic_ns`; zero when that was before
    /// the origin.
    pub fn at_monotonic(&self, monotonic_ns: u64) -> Time {
        Time::from_ns(monotonic_ns.saturating_sub(self.origin_ns))
    }

    /// What CLOCK_MONOTONIC shows at `time`.
    pub fn monotonic_ns(&self, time: Time) -> u64 {
        self.origin_ns.saturating_add(time.as_ns())
    }

    /// CLOCK_REALTIME minus CLOCK_MONOTONIC as of now, for translating kernel timestamps.
    pub(crate) fn realtime_offset_ns(&self) -> i128 {
        // The narrowest of a few brackets is the one during which nothing intervened.
        (0..5)
            .map(|_| {
                let before = sys::clock_ns(libc::CLOCK_MONOTONIC);
                let real = sys::clock_ns(libc::CLOCK_REALTIME);
                let after = sys::clock_ns(libc::CLOCK_MONOTONIC);
                let middle = i128::from(before) + i128::from(after - before) / 2;
                (after - before, i128::from(real) - middle)
            })
            .min()
            .expect("five brackets")
            .1
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
            let now = self.now();
            if now >= deadline {
                return now;
            }
            if now < wake {
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
