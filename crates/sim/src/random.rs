//! Draws from the distributions of traffic models.
//!
//! Only the four basic operations of IEEE 754 are used, which every machine rounds alike; the
//! logarithms of the system's mathematics library differ in the last bit between machines.

use sluice_core::{Rng, Span};

/// ln(x) for x > 0, to about 1e-15: the exponent times ln 2, and an odd series in (m-1)/(m+1)
/// for the mantissa in [1/sqrt 2, sqrt 2).
pub(crate) fn ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let mut exponent = ((bits >> 52) & 0x7ff) as i64 - 1023;
    let mut mantissa = f64::from_bits((bits & !(0x7ff << 52)) | (1023 << 52));
    if mantissa > std::f64::consts::SQRT_2 {
        mantissa /= 2.0;
        exponent += 1;
    }
    let t = (mantissa - 1.0) / (mantissa + 1.0);
    let square = t * t;
    // |t| < 0.172: fifteen terms reach 1e-17.
    let mut sum = 0.0;
    for n in (0..15).rev() {
        sum = sum * square + 1.0 / f64::from(2 * n + 1);
    }
    2.0 * t * sum + exponent as f64 * std::f64::consts::LN_2
}

/// e^x for moderate x: a power of two times a series in the remainder.
pub(crate) fn exp(x: f64) -> f64 {
    let n = (x / std::f64::consts::LN_2).round();
    if n < -1000.0 {
        return 0.0;
    }
    let r = x - n * std::f64::consts::LN_2;
    // |r| < 0.347: eighteen terms reach 1e-17.
    let mut sum = 1.0;
    for k in (1..18).rev() {
        sum = 1.0 + sum * r / f64::from(k);
    }
    sum * f64::from_bits(((n.min(1023.0) as i64 + 1023) as u64) << 52)
}

/// An exponentially distributed span: the time to the next event of a Poisson process.
pub(crate) fn exponential(rng: &mut Rng, mean: Span) -> Span {
    let u = 1.0 - rng.unit_f64();
    Span::from_ns((-ln(u) * mean.as_ns() as f64) as u64)
}

/// A Pareto-distributed number of at least `min`, with the tail index `shape_milli` / 1000, cut at
/// `max`.
pub(crate) fn pareto(rng: &mut Rng, min: u64, shape_milli: u32, max: u64) -> u64 {
    let u = 1.0 - rng.unit_f64();
    let factor = exp(-ln(u) * 1000.0 / f64::from(shape_milli.max(1)));
    ((min as f64 * factor) as u64).clamp(min, max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    // What the library says is near enough to compare with.
    #[allow(clippy::disallowed_methods)]
    fn logarithm_and_exponential_are_accurate() {
        for x in [1e-9, 0.3, 0.999_999, 1.0, 1.5, 2.0, 10.0, 12_345.678] {
            assert!((ln(x) - f64::ln(x)).abs() <= 1e-14 * f64::ln(x).abs().max(1.0));
            assert!((exp(ln(x)) - x).abs() <= 1e-13 * x);
        }
        assert_eq!(exp(0.0), 1.0);
    }

    #[test]
    fn the_means_are_those_of_the_distributions() {
        let mut rng = Rng::from_seed(1);
        let n = 200_000;
        let sum: u64 = (0..n)
            .map(|_| exponential(&mut rng, Span::from_us(100)).as_ns())
            .sum();
        // Standard error 100 us / sqrt(200000) = 0.22 us; five of them
        assert!((sum / n).abs_diff(100_000) < 1_100);
        let sum: u64 = (0..n).map(|_| pareto(&mut rng, 1000, 2500, 1 << 40)).sum();
        // Mean of a Pareto: 1000 * 2.5 / 1.5 = 1667; its deviation is 1491, five errors are 17
        assert!((sum / n).abs_diff(1667) < 17);
    }
}
