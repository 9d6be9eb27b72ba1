//! The arithmetic of RFC 8033: what its pseudo-code computes in real numbers, to 2^-56.

use super::PieParams;
use super::classic::Arithmetic;
use crate::aqm::probability::{self, ONE};
use crate::param::Ratio;
use crate::rng::Rng;
use crate::units::Time;

/// Probabilities in 2^-56, times in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fixed56;

impl Arithmetic for Fixed56 {
    const ONE: u64 = ONE;
    const ACCUMULATED_LOW: u64 = ONE / 100 * 85;
    const ACCUMULATED_HIGH: u64 = ONE / 10 * 85;
    const UNIT_NS: u64 = 1;
    const FIRST_SAMPLE_GOES_ON: bool = false;

    fn units_between(from: Time, to: Time) -> u64 {
        to.since(from).as_ns()
    }

    fn control(params: &PieParams, probability: u64, delay: u64, old_delay: u64) -> u64 {
        let target = params.target.as_ns();
        let change = probability::gain(params.alpha, delay, target)
            + probability::gain(params.beta, delay, old_delay);
        let mut step = change / divisor(probability).unwrap_or(1);
        // Section 5.5.
        if params.capdrop && probability >= ONE / 10 {
            step = step.min(i128::from(ONE / 50));
        }
        let mut next = i128::from(probability) + step;
        if delay == 0 && old_delay == 0 {
            // Appendix A: decay without congestion, x 0.98.
            next -= next / 50;
        }
        next.clamp(0, i128::from(ONE)) as u64
    }

    fn average(old: u64, new: u64) -> u64 {
        // Section 5.2: the weight is DQ_THRESHOLD / 2^16.
        (new + 3 * old) / 4
    }

    fn threshold(ratio: Ratio) -> u64 {
        ratio.as_fixed(probability::BITS)
    }

    fn draw(rng: &mut Rng) -> u64 {
        probability::draw(rng)
    }

    fn scale(params: &PieParams, probability: u64, len: u32) -> u64 {
        // RFC 8034 appendix A: scaled by the size over the mean, at most 0.85.
        let scaled =
            u128::from(probability) * u128::from(len) / u128::from(params.mean_packet.as_u64());
        scaled.min(u128::from(Self::ACCUMULATED_LOW)) as u64
    }
}

/// RFC 8033 section 4.2: the smaller the probability, the smaller its steps; `None` from a tenth
/// on.
pub(super) fn divisor(probability: u64) -> Option<i128> {
    let bands = [
        (ONE / 1_000_000, 2048),
        (ONE / 100_000, 512),
        (ONE / 10_000, 128),
        (ONE / 1_000, 32),
        (ONE / 100, 8),
        (ONE / 10, 2),
    ];
    let band = bands.iter().find(|(below, _)| probability < *below);
    band.map(|(_, divisor)| *divisor)
}
