//! The spread of a figure over repetitions, and the confidence in its mean.
//!
//! Repetitions are few, and differ only in their seed (live runs also in the load of the machine).
//! The median and the range are observed values and need no assumption. The confidence interval is
//! that of the mean by Student's t distribution, which suits small samples and needs no random
//! numbers. It assumes that the repetitions are independent and the means about normally
//! distributed.

use std::f64::consts::PI;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

/// A figure over repetitions.
///
/// ```
/// use sluice_recording::metrics::Spread;
/// // Mean 10, squared deviations 4 + 0 + 4 over n - 1 = 2: a deviation of 2. Two degrees of
/// // freedom have t = 4.303: 10 +- 4.303 * 2 / sqrt(3).
/// let spread = Spread::of(&[8.0, 10.0, 12.0]).unwrap();
/// assert_eq!((spread.median, spread.mean, spread.deviation), (10.0, 10.0, 2.0));
/// let (low, high) = spread.interval().unwrap();
/// assert!((low - 5.0313).abs() < 1e-3 && (high - 14.9687).abs() < 1e-3);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The number of repetitions that measured it.
    pub count: usize,
    /// The smallest value.
    pub min: f64,
    /// The median: the middle value, or the mean of the two middle values.
    pub median: f64,
    /// The largest value.
    pub max: f64,
    /// The mean.
    pub mean: f64,
    /// The standard deviation, with n - 1; 0 for a single value.
    pub deviation: f64,
}

impl Spread {
    /// Computes the spread of the values of all repetitions; `None` for no values. Values that are
    /// not finite are left out.
    pub fn of(values: &[f64]) -> Option<Spread> {
        let mut sorted: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let count = sorted.len();
        let mean = sorted.iter().sum::<f64>() / count as f64;
        let squares: f64 = sorted.iter().map(|v| (v - mean) * (v - mean)).sum();
        Some(Spread {
            count,
            min,
            median: f64::midpoint(sorted[(count - 1) / 2], sorted[count / 2]),
            max,
            mean,
            deviation: match count {
                1 => 0.0,
                _ => (squares / (count - 1) as f64).sqrt(),
            },
        })
    }

    /// Returns the 95 % confidence interval of the mean; `None` with fewer than two repetitions.
    pub fn interval(&self) -> Option<(f64, f64)> {
        let half = t_975(self.count.checked_sub(1)?)? * self.error();
        Some((self.mean - half, self.mean + half))
    }

    /// Returns whether the means of `self` and `other` differ significantly: whether
    /// [`Spread::p_value`] is below 5 %.
    ///
    /// ```
    /// use sluice_recording::metrics::Spread;
    /// let of = |values: &[f64]| Spread::of(values).unwrap();
    /// // Means 10 and 11; each deviates by 2 over 3 repetitions. t = 1 / sqrt(4/3 + 4/3) = 0.61, and
    /// // 4 degrees of freedom require 2.776.
    /// assert_eq!(of(&[8.0, 10.0, 12.0]).differs(&of(&[9.0, 11.0, 13.0])), Some(false));
    /// // Means 10 and 20: t = 6.1.
    /// assert_eq!(of(&[8.0, 10.0, 12.0]).differs(&of(&[18.0, 20.0, 22.0])), Some(true));
    /// assert_eq!(of(&[8.0]).differs(&of(&[18.0, 20.0])), None);
    /// ```
    pub fn differs(&self, other: &Spread) -> Option<bool> {
        self.p_value(other).map(|p| p < 0.05)
    }

    /// Returns the probability that means of the same distribution differ by at least as much as those
    /// of `self` and `other`: Welch's t test, two-sided. `None` if either has fewer than two
    /// repetitions, because the variation between repetitions is then unknown.
    pub fn p_value(&self, other: &Spread) -> Option<f64> {
        if self.count < 2 || other.count < 2 {
            return None;
        }
        let distance = (self.mean - other.mean).abs();
        let (a, b) = (self.error().powi(2), other.error().powi(2));
        if a + b == 0.0 {
            return Some(if distance > 0.0 { 0.0 } else { 1.0 });
        }
        // The degrees of freedom of Welch and Satterthwaite, which are not whole. They are at least the
        // smaller number of repetitions - 1.
        let (a_part, b_part) = (a / (a + b), b / (a + b));
        let parts =
            a_part.powi(2) / (self.count - 1) as f64 + b_part.powi(2) / (other.count - 1) as f64;
        Some(beyond(distance / (a + b).sqrt(), parts.recip().max(1.0)))
    }

    /// Returns the standard error of the mean.
    fn error(&self) -> f64 {
        self.deviation / (self.count as f64).sqrt()
    }
}

/// Returns the probability that a value of Student's t distribution is at least `t` away from zero
/// (Abramowitz and Stegun 26.7.1 and 26.5.27). The degrees of freedom need not be whole.
fn beyond(t: f64, freedom: f64) -> f64 {
    let square = t * t / freedom;
    let (x, rest) = ((1.0 + square).recip(), (1.0 + square.recip()).recip());
    incomplete_beta((x, rest), freedom / 2.0, 0.5).clamp(0.0, 1.0)
}

/// Returns the density of Student's t distribution at `t`.
fn density(t: f64, freedom: f64) -> f64 {
    let half = (freedom + 1.0) / 2.0;
    let log = ln_gamma(half) - ln_gamma(freedom / 2.0) - half * (t * t / freedom).ln_1p();
    log.exp() / (PI * freedom).sqrt()
}

/// Returns the regularised incomplete beta function of `x`, given with `1 - x`.
fn incomplete_beta((x, rest): (f64, f64), a: f64, b: f64) -> f64 {
    // The fraction converges fast below this bound only (DLMF 8.17.22); the other part is the rest
    // (8.17.4).
    let is_above = x > (a + 1.0) / (a + b + 2.0);
    let (x, rest, a, b) = match is_above {
        true => (rest, x, b, a),
        false => (x, rest, a, b),
    };
    let beta = ln_gamma(a) + ln_gamma(b) - ln_gamma(a + b);
    let part = (a * x.ln() + b * rest.ln() - beta).exp() / a * beta_fraction(x, a, b);
    if is_above { 1.0 - part } else { part }
}

/// Returns the continued fraction `1 / (1 + d1 / (1 + d2 / (1 + ...)))` of the incomplete beta function
/// (Abramowitz and Stegun 26.5.8, DLMF 8.17.22 and 8.17.23), by Lentz's method (Applied
/// Optics 15(3), 1976).
fn beta_fraction(x: f64, a: f64, b: f64) -> f64 {
    let coefficient = |n: u32| {
        let m = f64::from(n / 2);
        let factors = match n % 2 {
            1 => -(a + m) * (a + b + m) / (a + 2.0 * m + 1.0),
            _ => m * (b - m) / (a + 2.0 * m - 1.0),
        };
        factors * x / (a + 2.0 * m)
    };
    let nonzero = |value: f64| if value == 0.0 { 1e-300 } else { value };
    let (mut fraction, mut above, mut below) = (1.0, 1.0, 0.0);
    // The number of terms grows with the square root of `a` and `b`; 100 degrees of freedom take about 60.
    for coefficient in (1..10_000).map(coefficient) {
        above = nonzero(1.0 + coefficient / above);
        below = nonzero(1.0 + coefficient * below).recip();
        let factor: f64 = above * below;
        fraction *= factor;
        if (factor - 1.0).abs() < 1e-15 {
            break;
        }
    }
    1.0 / fraction
}

/// Returns the logarithm of the gamma function of a positive number: Stirling's series (DLMF 5.11.1),
/// whose next term is below 1e-15 from 10 on; below 10 by recurrence (DLMF 5.5.1).
fn ln_gamma(x: f64) -> f64 {
    let (mut z, mut product) = (x, 1.0);
    while z < 10.0 {
        product *= z;
        z += 1.0;
    }
    // Of 1/z, 1/z^3 ...: B_2k / (2k (2k - 1)).
    const SERIES: [f64; 6] = [
        1.0 / 12.0,
        -1.0 / 360.0,
        1.0 / 1260.0,
        -1.0 / 1680.0,
        1.0 / 1188.0,
        -691.0 / 360_360.0,
    ];
    let terms = SERIES.iter().rev();
    let series = terms.fold(0.0, |sum, term| sum / (z * z) + term) / z;
    (z - 0.5) * z.ln() - z + (2.0 * PI).ln() / 2.0 + series - product.ln()
}

/// Returns the 97.5 % quantile of Student's t distribution; `None` for no degree of freedom.
fn t_975(freedom: usize) -> Option<f64> {
    static USUAL: LazyLock<Vec<f64>> =
        LazyLock::new(|| (1..=100).map(|n: u32| quantile_975(f64::from(n))).collect());
    let known = USUAL.get(freedom.checked_sub(1)?).copied();
    Some(known.unwrap_or_else(|| quantile_975(freedom as f64)))
}

/// Solves `beyond(t, freedom) = 0.05` by Newton's method, from the first terms of Abramowitz and Stegun
/// 26.7.5. They are below the solution, and the function is convex.
fn quantile_975(freedom: f64) -> f64 {
    let mut t = NORMAL_975 + (NORMAL_975.powi(3) + NORMAL_975) / (4.0 * freedom);
    for _ in 0..50 {
        let step = (beyond(t, freedom) - 0.05) / (2.0 * density(t, freedom));
        t += step;
        if step.abs() < 1e-12 * t {
            break;
        }
    }
    t
}

/// The 97.5 % quantile of the normal distribution.
const NORMAL_975: f64 = 1.959_963_984_540_054;

#[cfg(test)]
mod tests {
    use super::*;

    /// The 97.5 % and the 99.5 % quantile for some degrees of freedom, from any printed table
    /// (Abramowitz and Stegun 26.10).
    const PRINTED: [(u32, f64, f64); 16] = [
        (1, 12.706, 63.657),
        (2, 4.303, 9.925),
        (3, 3.182, 5.841),
        (4, 2.776, 4.604),
        (5, 2.571, 4.032),
        (6, 2.447, 3.707),
        (7, 2.365, 3.499),
        (8, 2.306, 3.355),
        (9, 2.262, 3.250),
        (10, 2.228, 3.169),
        (15, 2.131, 2.947),
        (20, 2.086, 2.845),
        (30, 2.042, 2.750),
        (40, 2.021, 2.704),
        (60, 2.000, 2.660),
        (120, 1.980, 2.617),
    ];

    #[test]
    fn probabilities_and_quantiles_are_those_of_the_table() {
        for (freedom, quantile, higher) in PRINTED {
            let found = t_975(freedom as usize).unwrap();
            // The table has three decimals.
            assert!(
                (found - quantile).abs() < 6e-4,
                "{freedom} degrees: {found}"
            );
            for (t, both_sides) in [(quantile, 0.05), (higher, 0.01)] {
                let p = beyond(t, f64::from(freedom));
                assert!((p - both_sides).abs() < 1e-4, "{freedom} degrees: {p}");
            }
        }
        assert_eq!(t_975(0), None);
        // One degree: a Cauchy distribution, beyond 1 on both sides 1/2. Two: 1 - t / sqrt(2 + t^2).
        assert!((beyond(1.0, 1.0) - 0.5).abs() < 1e-12);
        assert!((beyond(1.0, 2.0) - (1.0 - 1.0 / 3.0_f64.sqrt())).abs() < 1e-12);
        assert_eq!(beyond(0.0, 7.0), 1.0);
        assert_eq!(beyond(1e200, 3.0), 0.0);
    }

    /// With t = sqrt(f) tan(u), the density is proportional to cos(u)^(f - 1), which Python integrates
    /// by Simpson's rule:
    ///
    /// ```text
    /// from math import atan, pi, sin, sqrt
    /// def simpson(g, b, n=20000):
    ///     h = b / n
    ///     odd, even = (sum(g(h * i) for i in range(k, n, 2)) for k in (1, 2))
    ///     return h / 3 * (g(0) + g(b) + 4 * odd + 2 * even)
    /// def beyond(t, f):
    ///     g = lambda v: sin(v) ** (f - 1)
    ///     return simpson(g, atan(sqrt(f) / t)) / simpson(g, pi / 2)
    /// ```
    #[test]
    fn degrees_of_freedom_need_not_be_whole() {
        for (t, freedom, expected) in [
            (4.0, 2.35, 0.043_493_987_772),
            (8.0, 2.35, 0.009_352_796_704),
            (2.5, 3.5, 0.075_694_643_809),
            (1.0, 4.5, 0.368_005_083_880),
            (2.0, 37.6, 0.052_762_289_672),
        ] {
            let p = beyond(t, freedom);
            assert!((p - expected).abs() < 1e-11, "{t}, {freedom}: {p}");
        }
    }

    #[test]
    fn means_are_compared_with_the_degrees_of_freedom_of_welch() {
        // Means 2 and 11.6, deviations 1 and 4: t = 9.6 / sqrt(1/3 + 16/3) = 4.0328, with (17/3)^2 /
        // ((1/3)^2 / 2 + (16/3)^2 / 2) = 578/257 = 2.249 degrees of freedom. The function above gives
        // 0.046152 for them, and 0.056341 for two.
        let of = |values: &[f64]| Spread::of(values).unwrap();
        let (narrow, wide) = (of(&[1.0, 2.0, 3.0]), of(&[7.6, 11.6, 15.6]));
        let p = narrow.p_value(&wide).unwrap();
        assert!((p - 0.046_152).abs() < 1e-6, "{p}");
        assert_eq!(narrow.differs(&wide), Some(true));
        // The unit does not matter, even if the fourth power of a deviation is too small a number.
        let in_unit = |unit: f64| {
            let first = of(&[0.0, 3.0 * unit, 6.0 * unit]);
            first.p_value(&of(&[unit, 4.0 * unit, 7.0 * unit])).unwrap()
        };
        let (usual, tiny) = (in_unit(1.0), in_unit(1e-100));
        assert!((usual - tiny).abs() < 1e-9, "{usual} {tiny}");
    }
}
