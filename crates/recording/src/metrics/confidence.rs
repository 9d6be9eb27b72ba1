//! The spread of a figure over repetitions, and the confidence in its mean.
//!
//! Repetitions are few, and differ only in their seed (live runs also in the load of the machine).
//! The median and the range are observed values and need no assumption. The confidence interval is
//! that of the mean by Student's t distribution, which suits small samples and needs no random
//! numbers. It assumes that the repetitions are independent and the means about normally
//! distributed.

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
        // The degrees of freedom of Welch and Satterthwaite, rounded down as for printed tables. They
        // are at least the smaller number of repetitions - 1.
        let freedom =
            (a + b).powi(2) / (a * a / (self.count - 1) as f64 + b * b / (other.count - 1) as f64);
        Some(beyond(distance / (a + b).sqrt(), (freedom as u32).max(1)))
    }

    /// Returns the standard error of the mean.
    fn error(&self) -> f64 {
        self.deviation / (self.count as f64).sqrt()
    }
}

/// Returns the probability that a value of Student's t distribution is at least `t` away from zero:
/// the finite series of Abramowitz and Stegun 26.7.3 and 26.7.4.
fn beyond(t: f64, freedom: u32) -> f64 {
    let angle = (t / f64::from(freedom).sqrt()).atan();
    let (sin, cos) = angle.sin_cos();
    let is_odd = freedom % 2 == 1;
    // Of cos * (1 + 2/3 cos^2 + 2/3 4/5 cos^4 ...), or 1 + 1/2 cos^2 + 1/2 3/4 cos^4 ...
    let mut term = if is_odd { cos } else { 1.0 };
    let mut sum = 0.0;
    for k in (if is_odd { 1 } else { 0 }..freedom.saturating_sub(1)).step_by(2) {
        sum += term;
        term *= cos * cos * f64::from(k + 1) / f64::from(k + 2);
    }
    let within = match is_odd {
        true => std::f64::consts::FRAC_2_PI * (angle + sin * sum),
        false => sin * sum,
    };
    (1.0 - within).clamp(0.0, 1.0)
}

/// Returns the 97.5 % quantile of Student's t distribution (any printed table, such as Abramowitz
/// and Stegun 26.10). Between tabulated degrees of freedom the next smaller one is used, which
/// makes the interval at most 1 % too wide. `None` for no degree of freedom.
fn t_975(freedom: usize) -> Option<f64> {
    Some(match freedom {
        0 => return None,
        1..=30 => T_975[freedom - 1],
        31..40 => T_975[29],
        40..60 => 2.021,
        60..120 => 2.000,
        _ => 1.980,
    })
}

const T_975: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probability_beyond_a_quantile_is_that_of_the_table() {
        // Each tabulated value is the 97.5 % quantile, beyond which 5 % lie on both sides; the table
        // has three decimals.
        for (at, quantile) in T_975.into_iter().enumerate() {
            let p = beyond(quantile, at as u32 + 1);
            assert!((p - 0.05).abs() < 1e-4, "{} degrees: {p}", at + 1);
        }
        // One degree: a Cauchy distribution, beyond 1 on both sides 1/2. Two: 1 - t / sqrt(2 + t^2).
        assert!((beyond(1.0, 1) - 0.5).abs() < 1e-12);
        assert!((beyond(1.0, 2) - (1.0 - 1.0 / 3.0_f64.sqrt())).abs() < 1e-12);
        assert_eq!(beyond(0.0, 7), 1.0);
    }
}
