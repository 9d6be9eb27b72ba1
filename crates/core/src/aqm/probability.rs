//! Probabilities as whole multiples of 2^-56, for algorithms whose source uses real numbers.
//!
//! Every result is the same on every machine. The error of an update is less than 2^-56 (1.4e-17).

use crate::param::Ratio;
use crate::rng::Rng;

/// Bits of a probability.
pub(super) const BITS: u32 = 56;
/// The probability of a certain event.
pub(super) const ONE: u64 = 1 << BITS;

/// Draws a uniform number below [`ONE`].
pub(super) fn draw(rng: &mut Rng) -> u64 {
    rng.next_u64() >> (64 - BITS)
}

/// Returns `gain`, per second, times the nanoseconds from `from` to `delay`.
pub(super) fn gain(gain: Ratio, delay: u64, from: u64) -> i128 {
    let billionths = i128::from(gain.as_billionths()) * (i128::from(delay) - i128::from(from));
    // Billionths times nanoseconds are 10^-18; 2^56 / 10^18 = 2^38 / 5^18.
    billionths * (1 << 38) / 5i128.pow(18)
}
