//! The arithmetic of RFC 8033: what its pseudo-code computes in real numbers, to 2^-56.

use super::classic::Arithmetic;
use super::{PieParams, Preset};
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
        // RFC 8033 section 4.2: the smaller the probability, the smaller its steps.
        let bands = [
            (ONE / 1_000_000, 2048),
            (ONE / 100_000, 512),
            (ONE / 10_000, 128),
            (ONE / 1_000, 32),
            (ONE / 100, 8),
            (ONE / 10, 2),
        ];
        let is_docsis = params.preset == Preset::Docsis;
        let band = bands.iter().find(|(below, _)| probability < *below);
        let (times, divisor) = match band {
            Some((_, divisor)) => (1, *divisor),
            // RFC 8034 appendix A goes on: 2 times from 0.1, 8 times from 1, 32 times from 10.
            None if is_docsis && probability >= 10 * ONE => (32, 1),
            None if is_docsis && probability >= ONE => (8, 1),
            None if is_docsis => (2, 1),
            None => (1, 1),
        };
        let target = params.target.as_ns();
        let change = probability::gain(params.alpha, delay, target)
            + probability::gain(params.beta, delay, old_delay);
        let mut step = change * times / divisor;
        // Section 5.5.
        if params.capdrop && probability >= ONE / 10 {
            step = step.min(i128::from(ONE / 50));
        }
        let mut next = i128::from(probability) + step;
        let (low, high, limit) = if is_docsis {
            // LATENCY_LOW 5 ms, LATENCY_HIGH 200 ms; 0.85 * 1024 / 64.
            (5_000_000, 200_000_000, ONE / 10 * 136)
        } else {
            (1, u64::MAX, ONE)
        };
        if delay < low && old_delay < low {
            // Appendix A: decay without congestion, x 0.98.
            next -= next / 50;
        } else if delay > high {
            next += i128::from(ONE / 50);
        }
        next.clamp(0, i128::from(limit)) as u64
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
        // RFC 8034 appendix A: by the size over the mean, at most 0.85.
        let scaled =
            u128::from(probability) * u128::from(len) / u128::from(params.mean_packet.as_u64());
        scaled.min(u128::from(Self::ACCUMULATED_LOW)) as u64
    }
}
