//! The shaper of CAKE: a clock that gives the instant at which the next packet may leave.

use crate::units::{Rate, Time};

/// Advances by the transmission time of each packet, from its own position and not from the time of
/// the call. So the long-run rate is exact, no matter how late the host dequeues. The only bursts
/// are those that make up for such lateness.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clock {
    at: Time,
    /// The fraction of a nanosecond that `at` lacks, in units of 1 / rate.
    carry: u64,
}

impl Clock {
    /// Returns the instant at which the next packet may leave.
    pub(super) const fn at(self) -> Time {
        self.at
    }

    /// Forgets saved-up time: an idle link starts now.
    pub(super) fn restart(&mut self, now: Time) {
        *self = Clock { at: now, carry: 0 };
    }

    /// Advances by `bytes` at `rate`.
    pub(super) fn charge(&mut self, bytes: u64, rate: Rate) {
        if rate.is_unlimited() {
            return;
        }
        let bit_ns = u128::from(bytes) * 8_000_000_000 + u128::from(self.carry);
        let rate = u128::from(rate.as_bps());
        let ns = u64::try_from(bit_ns / rate).unwrap_or(u64::MAX);
        self.at = Time::from_ns(self.at.as_ns().saturating_add(ns));
        self.carry = (bit_ns % rate) as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_exact_in_the_long_run() {
        // 3 bit/s and packets of one byte: 8/3 s each. After 3000 packets exactly 8000 s have
        // passed.
        let mut clock = Clock::default();
        let rate = Rate::from_bps(3);
        clock.charge(1, rate);
        assert_eq!(clock.at(), Time::from_ns(2_666_666_666));
        for _ in 1..3000 {
            clock.charge(1, rate);
        }
        assert_eq!(clock.at(), Time::from_ns(8_000_000_000_000));
    }
}
