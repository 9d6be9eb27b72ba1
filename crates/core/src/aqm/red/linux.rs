//! RED as the Linux kernel computes it (`net/red.h`, `sch_red`), for every packet.
//!
//! Deviations from Floyd and Jacobson 1993:
//! 1. The weight is a power of two: the largest that is not above `wq`.
//! 2. The average and the thresholds always count bytes (`min`, `max` times `mean_packet`), with
//!    and without `bytes`. The probability does not depend on the size of the packet.
//! 3. One random number is drawn per drop: the length of the distance to the next one. The first
//!    packet between the thresholds only draws.
//! 4. An idle time starts with a dequeue that finds the queue empty. It damps the average by powers
//!    of two from a table of 256 steps, or by a straight line within the first step. The table is
//!    that of `tc` for `bandwidth` and `mean_packet`, in microseconds.
//! 5. A packet that a full queue refuses does not restart the spacing.
//! 6. There is no `gentle`; `adaptive` changes `max_p` as above.

use super::RedParams;
use crate::event::Cx;
use crate::units::Time;

/// State and constants of one queue.
#[derive(Clone, Debug)]
pub(super) struct Linux {
    /// The exponent of the weight.
    log: u32,
    /// The thresholds in bytes, and the divisor of random numbers: `max_p` per byte.
    min: u64,
    max: u64,
    per_byte: u32,
    /// Microseconds of a step of the table, as an exponent, and the shifts.
    step: u32,
    shifts: [u8; STEPS],
    /// The average, in units of 2^-`log` bytes.
    average: u64,
    idle_since: Option<Time>,
    /// Packets since the last drop; -1 outside the thresholds.
    count: i64,
    /// The random distance to the next drop.
    distance: u32,
}

/// The decision about a packet that follows from the average.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Pass,
    /// A drop or a mark by chance.
    Early,
    /// The average is above the upper threshold.
    Forced,
}

impl Linux {
    pub(super) fn new(params: &RedParams) -> Self {
        let mean = params.mean_packet.as_u64();
        let weight = params.wq.as_fixed(32).max(1);
        // The smallest exponent whose weight is not above `wq`.
        let log = (1u64 << 32).div_ceil(weight).next_power_of_two().ilog2();
        let mut linux = Linux {
            log,
            min: params.min * mean,
            max: params.max * mean,
            per_byte: 1,
            step: 0,
            shifts: [0; STEPS],
            average: 0,
            idle_since: Some(Time::ZERO),
            count: -1,
            distance: 0,
        };
        linux.set_max_p(params.max_p.as_fixed(32));
        linux.set_rate(params);
        linux
    }

    /// Makes the table for the idle time at `bandwidth`.
    pub(super) fn set_rate(&mut self, params: &RedParams) {
        let packet = params
            .bandwidth
            .transmission(params.mean_packet.as_u64())
            .as_ns();
        (self.step, self.shifts) = damping(self.log, packet / 1000);
    }

    /// Sets the probability just below the upper threshold, in units of 2^-32.
    pub(super) fn set_max_p(&mut self, max_p: u64) {
        let max_p = max_p.min(u64::from(u32::MAX));
        self.per_byte = (max_p / (self.max - self.min)).max(1) as u32;
    }

    /// Returns the average in bytes, with 32 fractional bits.
    pub(super) fn average(&self) -> u128 {
        (u128::from(self.average) << 32) >> self.log
    }

    pub(super) fn on_empty(&mut self, now: Time) {
        self.idle_since.get_or_insert(now);
    }

    /// Updates the average for an arrival that finds `backlog` bytes, and decides.
    pub(super) fn on_arrival(&mut self, backlog: u64, cx: &mut Cx<'_>) -> Action {
        match self.idle_since.take() {
            Some(since) => self.damp(cx.now.since(since).as_ns() / 1000),
            None => {
                self.average = (self.average + backlog).saturating_sub(self.average >> self.log);
            }
        }
        if self.average < self.min << self.log {
            self.count = -1;
            return Action::Pass;
        }
        if self.average >= self.max << self.log {
            self.count = -1;
            return Action::Forced;
        }
        self.count += 1;
        let above = (self.average - (self.min << self.log)) >> self.log;
        if self.count == 0 {
            self.distance = cx.rng.next_u32() / self.per_byte;
        } else if u128::from(above) * u128::from(self.count as u64) >= u128::from(self.distance) {
            self.count = 0;
            self.distance = cx.rng.next_u32() / self.per_byte;
            return Action::Early;
        }
        Action::Pass
    }

    /// `red_calc_qavg_from_idle_time`.
    fn damp(&mut self, idle_us: u64) {
        let idle_us = idle_us.min((STEPS as u64 - 1) << self.step);
        match self.shifts[(idle_us >> self.step) as usize] {
            0 => {
                // (1 - w)^m is about 1 - m w.
                let loss = (u128::from(self.average) * u128::from(idle_us)) >> self.step;
                let half = self.average >> 1;
                let loss = u64::try_from(loss).unwrap_or(u64::MAX);
                self.average = if loss < half {
                    self.average - loss
                } else {
                    half
                };
            }
            shift => self.average >>= shift,
        }
    }
}

/// Returns the exponent of a step and the shift of each (`tc_red_eval_idle_damping`): a mean packet
/// takes `packet_us`, in which an idle average loses the part 2^-`log`.
fn damping(log: u32, packet_us: u64) -> (u32, [u8; STEPS]) {
    // -ln(1 - w) = w + w^2/2 + w^3/3 ..., in units of 2^-64.
    let mut rate: u128 = 0;
    for n in 1..=64u32 {
        let bits = (log * n).min(127);
        rate += if bits <= 64 {
            (1u128 << (64 - bits)) / u128::from(n)
        } else {
            0
        };
    }
    if log == 0 {
        // A weight of one forgets everything at once.
        return (
            0,
            core::array::from_fn(|step| if step == 0 { 0 } else { MOST_SHIFT }),
        );
    }
    let packet = u128::from(packet_us.max(1));
    // The idle time after which the shift is 31 has fewer than 512 steps.
    let longest = (u128::from(MOST_SHIFT) << 64) / rate * packet;
    let step = (0..32).find(|step| longest >> step < 512).unwrap_or(31);
    let shifts = core::array::from_fn(|index| {
        let shift = (((index as u128) << step) * rate / packet) >> 64;
        if index == STEPS - 1 {
            MOST_SHIFT
        } else {
            shift.min(u128::from(MOST_SHIFT)) as u8
        }
    });
    (step, shifts)
}

const STEPS: usize = 256;
const MOST_SHIFT: u8 = 31;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_that_of_tc() {
        // w = 2^-9 and 800 us: 31 / (0.0019550 / 800) = 12.685 s, and 12.685e6 / 2^15 = 387 < 512.
        let (step, shifts) = damping(9, 800);
        assert_eq!(step, 15);
        // A step of 32768 us is 32768 * 0.0019550 / 800 = 0.08008.
        for index in [0, 1, 12, 13, 24, 25, 100, 254] {
            assert_eq!(
                u64::from(shifts[index]),
                index as u64 * 8008 / 100_000,
                "{index}"
            );
        }
        assert_eq!(shifts[255], 31);
    }

    #[test]
    fn the_weight_is_the_largest_power_of_two_below() {
        let log = |billionths| {
            let params = RedParams {
                wq: crate::param::Ratio::from_billionths(billionths),
                ..RedParams::default()
            };
            Linux::new(&params).log
        };
        // 0.002 is between 1/512 = 0.00195 and 1/256; 1/32 and 1 are powers.
        assert_eq!(log(2_000_000), 9);
        assert_eq!(log(31_250_000), 5);
        assert_eq!(log(1_000_000_000), 0);
    }
}
