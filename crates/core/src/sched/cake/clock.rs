//! The shaper of CAKE: a clock that says when the next packet may leave.

use crate::units::{Rate, Time};

/// Moves on by the time that each packet takes, from where it was and not from now: so the rate is
/// exact in the long run, whatever the delay with which the host asks, and there is no burst but
/// the one that makes up for that delay.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clock {
    at: Time,
    /// What `at` should be beyond its nanosecond, in units of 1 / rate.
    carry: u64,
}

impl Clock {
    /// When the next packet may leave.
    pub(super) const fn at(self) -> Time {
        self.at
    }

    /// Saves nothing up: an idle link starts now.
    pub(super) fn restart(&mut self, now: Time) {
        *self = Clock { at: now, carry: 0 };
    }

    /// Moves on by `bytes` at `rate`.
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
        // 3 bit/s and packets of one byte: 8/3 s each. After 3000 packets 8000 s have passed, not a
        // nanosecond more.
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
