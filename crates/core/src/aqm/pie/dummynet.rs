//! The arithmetic of FreeBSD's dummynet.
//!
//! Deviations from RFC 8033:
//! 1. Probabilities are 31 bits, gains 13-bit fractions, times whole microseconds on a 32-bit
//!    clock.
//! 2. The decay without congestion is 63/64.
//! 3. Where departures are measured, the first measurement continues for one more packet, which
//!    becomes the second sample.
//! 4. Departures are measured by default (`ts` in `fq_pie`).
//! 5. In `fq_pie` a queue that becomes active starts afresh, an idle queue is not updated, and the
//!    delay of an empty queue remains that of its last packet.

use super::PieParams;
use super::classic::Arithmetic;
use crate::param::Ratio;
use crate::rng::Rng;
use crate::units::Time;

/// Probabilities in 2^-31, times in microseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fixed31;

const MAX: i64 = (1 << 31) - 1;
/// Fraction bits of a gain, and those that keep the division by a million precise.
const GAIN_BITS: u32 = 13;
const SCALE_BITS: u32 = 12;

impl Arithmetic for Fixed31 {
    const ONE: u64 = MAX as u64;
    // 0.85 and 8.5 times 2^31 - 1, truncated to whole numbers.
    const ACCUMULATED_LOW: u64 = 1_825_361_099;
    const ACCUMULATED_HIGH: u64 = 18_253_610_999;
    const UNIT_NS: u64 = 1_000;
    const FIRST_SAMPLE_GOES_ON: bool = true;

    fn units_between(from: Time, to: Time) -> u64 {
        let us = |t: Time| (t.as_ns() / 1_000) as u32;
        u64::from(us(to).wrapping_sub(us(from)))
    }

    fn control(params: &PieParams, probability: u64, delay: u64, old_delay: u64) -> u64 {
        let old = probability as i64;
        let us = |units: u64| i64::from(units as u32);
        let (delay, old_delay) = (us(delay), us(old_delay));
        let target = us(params.target.as_ns() / 1_000);
        let gain = |ratio: Ratio| ratio.as_fixed(GAIN_BITS) as i64;
        let change =
            gain(params.alpha) * (delay - target) + gain(params.beta) * (delay - old_delay);
        // The magnitude is shifted and the sign restored, so that both directions round towards
        // zero.
        let size = change.abs().wrapping_mul((MAX << SCALE_BITS) / 1_000_000);
        let band = match old {
            p if p < MAX / 1_000_000 => 11,
            p if p < MAX / 100_000 => 9,
            p if p < MAX / 10_000 => 7,
            p if p < MAX / 1_000 => 5,
            p if p < MAX / 100 => 3,
            p if p < MAX / 10 => 1,
            _ => 0,
        };
        let mut step = size >> (band + GAIN_BITS + SCALE_BITS);
        let mut next;
        if change < 0 {
            next = old - step;
            // The product above wrapped.
            if next > old {
                next = 0;
            }
        } else {
            if params.capdrop && old >= MAX / 10 && step > MAX / 50 {
                step = MAX / 50;
            }
            next = old + step;
            if next < old {
                next = MAX;
            }
        }
        if next > 0 && delay == 0 && old_delay == 0 {
            next -= next >> 6;
        }
        next.clamp(0, MAX) as u64
    }

    fn average(old: u64, new: u64) -> u64 {
        // The first product has 32 bits.
        (u64::from((new as u32).wrapping_mul(64)) + old * (256 - 64)) >> 8
    }

    fn threshold(ratio: Ratio) -> u64 {
        ratio.as_fixed(GAIN_BITS) << (31 - GAIN_BITS)
    }

    fn draw(rng: &mut Rng) -> u64 {
        rng.next_u64() >> 33
    }

    fn scale(_params: &PieParams, probability: u64, _len: u32) -> u64 {
        probability
    }
}
