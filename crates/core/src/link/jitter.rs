//! Jitter: a propagation delay that varies from packet to packet.
//!
//! The deviation from the pipe's `delay` is drawn from a distribution with mean 0: `uniform` within
//! plus and minus `jitter`; `normal` and `pareto` (shape 3, a long tail towards late) with `jitter`
//! as the standard deviation; or a table in the format of iproute2's `.dist` files. A delay below
//! zero counts as zero.
//!
//! With `jitter_correlation` c a packet takes, with probability c, the deviation of the packet
//! before it, and otherwise draws its own. The distribution stays exactly the same, and the
//! correlation of packets k apart is c^k. (netem averages random numbers instead, which makes the
//! distribution narrower.)
//!
//! Packets keep their order unless `jitter_reorder` is given: a packet that would overtake another
//! arrives together with it.
//!
//! All draws are in integers: 32 bits give a deviation in units of 2^-16.

use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec::Vec;

use super::text::{self, TextError, TextErrorKind};
use crate::param::Ratio;
use crate::rng::Rng;
use crate::units::Span;
use crate::{choice, params};

mod normal;

choice! {
    /// The distribution of the deviations.
    pub enum Distribution {
        /// Uniform between both ends.
        Uniform = "uniform",
        /// The normal distribution.
        Normal = "normal",
        /// Pareto of shape 3, shifted to mean 0.
        Pareto = "pareto",
    }
}

params! {
    /// Parameters of jitter.
    pub struct JitterParams {
        /// half width (uniform) or standard deviation of the delay
        jitter: Span = Span(Span::ZERO), Span(Span::ZERO) => Span(Span::from_secs(3600)), "none";
        /// distribution of the deviations
        jitter_distribution: Distribution = Choice("uniform"), "tc-netem(8): uniform";
        /// probability that a packet has the deviation of the one before it
        jitter_correlation: Ratio = Ratio(Ratio::from_billionths(0)), Ratio(Ratio::from_billionths(0)) => Ratio(Ratio::from_billionths(999_999_999)), "0: each packet for itself";
        /// packets may overtake one another
        jitter_reorder: bool = Flag(false), "a wire keeps the order";
    }
}

/// A distribution as a table of quantiles, in units of 1/8192 of the jitter, as in iproute2's
/// `.dist`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table(Arc<[i32]>);

impl Table {
    /// The largest number of values in a table.
    const MAX: usize = 65_536;

    /// Parses whole numbers, separated by white space.
    ///
    /// # Errors
    /// Returns the error and its place.
    ///
    /// ```
    /// use sluice_core::link::Table;
    /// let table = Table::parse("# two equally likely deviations\n-8192 8192").unwrap();
    /// assert_eq!(table.len(), 2);
    /// ```
    pub fn parse(text: &str) -> Result<Self, TextError> {
        let mut values = Vec::new();
        for (line, number) in text.lines().zip(1..) {
            if text::is_silent(line) {
                continue;
            }
            for word in line.split_ascii_whitespace() {
                let fail = |kind| TextError {
                    line: number,
                    column: word.as_ptr() as usize - line.as_ptr() as usize + 1,
                    kind,
                };
                let digits = word.strip_prefix('-').unwrap_or(word);
                // 2^20 / 8192 = 128 times the jitter.
                let size = text::number(digits, "deviation", 0, 1 << 20).map_err(fail)? as i32;
                if values.len() == Self::MAX {
                    return Err(fail(TextErrorKind::Senseless(
                        "a table has at most 65536 values",
                    )));
                }
                values.push(if digits.len() < word.len() {
                    -size
                } else {
                    size
                });
            }
        }
        if values.is_empty() {
            return Err(text::whole_file(TextErrorKind::Empty {
                name: "deviations",
            }));
        }
        Ok(Table(values.into()))
    }

    /// Returns the number of values.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns `false`: a table has at least one value.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Draws successive deviations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jitter {
    jitter: i128,
    distribution: Distribution,
    table: Option<Table>,
    correlation: u64,
    last: Option<i64>,
}

impl Jitter {
    /// Creates a source of deviations from `params`, or from `table` if there is one.
    pub const fn new(params: &JitterParams, table: Option<Table>) -> Self {
        Jitter {
            jitter: params.jitter.as_ns() as i128,
            distribution: params.jitter_distribution,
            table,
            correlation: params.jitter_correlation.as_fixed(32),
            last: None,
        }
    }

    /// Takes over the last deviation of `old` if both have the same parameters.
    pub(super) fn go_on_from(&mut self, mut old: Jitter) {
        let last = core::mem::replace(&mut old.last, self.last);
        if *self == old {
            self.last = last;
        }
    }

    /// Returns `delay` with the next deviation.
    pub fn apply(&mut self, delay: Span, rng: &mut Rng) -> Span {
        let deviation = match self.last {
            Some(last) if self.correlation > 0 && rng.chance(self.correlation) => last,
            _ => self.deviation(rng),
        };
        self.last = Some(deviation);
        let ns = (self.jitter * i128::from(deviation)) >> SCALE;
        let ns = i128::from(delay.as_ns()) + ns;
        Span::from_ns(u64::try_from(ns.max(0)).unwrap_or(u64::MAX))
    }

    /// Draws a deviation in units of 2^-[`SCALE`] of the jitter.
    fn deviation(&self, rng: &mut Rng) -> i64 {
        if let Some(Table(values)) = &self.table {
            let value = values[rng.below(values.len() as u64) as usize];
            return i64::from(value) << (SCALE - 13);
        }
        let bits = rng.next_u32();
        match self.distribution {
            // From -1 to below 1 in steps of 2^-31; half a step keeps the mean 0.
            Distribution::Uniform => ((i64::from(bits) * 2 + 1) - (1 << 32)) >> (32 - SCALE),
            Distribution::Normal => normal::deviation(bits) << (SCALE - 16),
            Distribution::Pareto => pareto(bits) << (SCALE - 16),
        }
    }
}

/// Fractional bits of a deviation.
const SCALE: u32 = 20;

/// Returns (X - mean) / standard deviation of a Pareto variable of shape 3 and scale 1, times 2^16.
fn pareto(bits: u32) -> i64 {
    // X = u^(-1/3) with u from 2^-32 to 1: the cube root of 2^32 / n, scaled by 2^16.
    let x = cube_root((1u128 << 80) / (u128::from(bits) + 1));
    // Mean 3/2; variance 3/4, so one over the deviation is 2/sqrt(3), here times 2^32.
    const MEAN: i128 = 3 << 15;
    const SCALE_OF_ONE: i128 = 4_959_401_043;
    (((x as i128 - MEAN) * SCALE_OF_ONE) >> 32) as i64
}

/// Returns the largest integer whose cube is not above `n`, for `n` up to 2^80.
fn cube_root(n: u128) -> u128 {
    let mut root = 0;
    for bit in (0..27).rev() {
        let candidate = root | 1 << bit;
        if candidate * candidate * candidate <= n {
            root = candidate;
        }
    }
    root
}

impl core::fmt::Display for Table {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        for (i, value) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(if i % 8 == 0 { "\n" } else { " " })?;
            }
            f.write_str(&value.to_string())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const N: usize = 200_000;
    const DELAY_MS: f64 = 100.0;

    /// Delays in ms with a jitter of 5 ms around 100 ms.
    fn draw(distribution: Distribution, correlation: u64, seed: u64) -> Vec<f64> {
        let params = JitterParams {
            jitter: Span::from_ms(5),
            jitter_distribution: distribution,
            jitter_correlation: Ratio::from_billionths(correlation),
            ..JitterParams::default()
        };
        let mut jitter = Jitter::new(&params, None);
        let mut rng = Rng::from_seed(seed);
        (0..N)
            .map(|_| jitter.apply(Span::from_ms(100), &mut rng).as_ms_f64() - DELAY_MS)
            .collect()
    }

    fn mean(values: &[f64]) -> f64 {
        values.iter().sum::<f64>() / values.len() as f64
    }

    fn mean_square(values: &[f64]) -> f64 {
        values.iter().map(|x| x * x).sum::<f64>() / values.len() as f64
    }

    #[test]
    fn uniform_jitter_fills_its_width_evenly() {
        let values = draw(Distribution::Uniform, 0, 1);
        assert!(values.iter().all(|x| x.abs() <= 5.0));
        // sigma = 5/sqrt(3) = 2.887; of the mean: 2.887/sqrt(200000) = .006455; 5 sigma = .0323.
        assert!(mean(&values).abs() < 0.0323, "{}", mean(&values));
        // Mean square 25/3; its sigma is 25 sqrt(1/5 - 1/9) / sqrt(200000) = .01667; 5 sigma =
        // .0834.
        let square = mean_square(&values);
        assert!((square - 25.0 / 3.0).abs() < 0.0834, "{square}");
    }

    #[test]
    fn normal_jitter_has_its_deviation_and_its_tails() {
        let values = draw(Distribution::Normal, 0, 2);
        // sigma of the mean: 5/sqrt(200000) = .01118; 5 sigma = .0559.
        assert!(mean(&values).abs() < 0.0559, "{}", mean(&values));
        // Mean square 25, sigma 25 sqrt(2/200000) = .0791; 5 sigma = .395.
        let square = mean_square(&values);
        assert!((square - 25.0).abs() < 0.395, "{square}");
        // P(|Z| > 2) = .0455: 9100 of 200 000, sigma 93; 5 sigma = 466.
        let beyond = values.iter().filter(|x| x.abs() > 10.0).count();
        assert!(beyond.abs_diff(9100) < 466, "{beyond}");
    }

    #[test]
    fn pareto_jitter_is_late_seldom_but_much() {
        let values = draw(Distribution::Pareto, 0, 3);
        // The fourth moment is infinite, so the mean square has no tolerance; quantiles have.
        // X > x with probability x^-3. The smallest X = 1 deviates by -.5/.866 * 5 = -2.887 ms.
        assert!(values.iter().all(|x| *x >= -2.888));
        // X > 2 (12.5 %) deviates by more than 2.887 ms: 25 000 of 200 000, sigma 148; 5 sigma 740.
        let late = values.iter().filter(|x| **x > 2.8867).count();
        assert!(late.abs_diff(25_000) < 740, "{late}");
        // X > 10 (0.1 %), beyond 49.07 ms: 200, sigma 14.1; 5 sigma 71.
        let very_late = values.iter().filter(|x| **x > 49.075).count();
        assert!(very_late.abs_diff(200) < 71, "{very_late}");
        // Mean 0, sigma 5/sqrt(200000) = .0112 with a heavy tail; 5 sigma = .056.
        assert!(mean(&values).abs() < 0.056, "{}", mean(&values));
    }

    #[test]
    fn correlation_leaves_the_distribution_as_it_is() {
        // c = .75: neighbours correlate by .75, packets two apart by .5625.
        let values = draw(Distribution::Uniform, 750_000_000, 4);
        // Correlated draws multiply the variance by (1+c)/(1-c) = 7: sigma(mean square) =
        // .01667 sqrt(7) = .0441; 5 sigma = .221.
        let square = mean_square(&values);
        assert!((square - 25.0 / 3.0).abs() < 0.221, "{square}");
        for (apart, expected) in [(1, 0.75), (2, 0.5625)] {
            let pairs = values.iter().zip(&values[apart..]).map(|(a, b)| a * b);
            let found = pairs.sum::<f64>() / N as f64 / square;
            // Each run of equal draws (50 000 of them) is one trial: 5/sqrt(50000) = .022.
            assert!((found - expected).abs() < 0.022, "{apart}: {found}");
        }
    }

    #[test]
    fn a_table_is_drawn_evenly() {
        // -1, 0, 0, 1 times 8192: deviations of -5, 0 and 5 ms.
        let table = Table::parse("-8192 0\n# the middle twice\n0 8192\n").unwrap();
        let params = JitterParams {
            jitter: Span::from_ms(5),
            ..JitterParams::default()
        };
        let mut jitter = Jitter::new(&params, Some(table));
        let mut rng = Rng::from_seed(5);
        let mut counts = [0usize; 3];
        for _ in 0..N {
            let ms = jitter.apply(Span::from_ms(5), &mut rng).as_ns() / 1_000_000;
            counts[ms as usize / 5] += 1;
        }
        // 50 000, 100 000, 50 000; sigma sqrt(200000 * 3/16) = 194 and 224; 5 sigma = 1120.
        for (count, expected) in counts.into_iter().zip([50_000, 100_000, 50_000]) {
            assert!(count.abs_diff(expected) < 1120, "{counts:?}");
        }
    }

    #[test]
    fn a_delay_is_never_below_zero() {
        let params = JitterParams {
            jitter: Span::from_ms(50),
            jitter_distribution: Distribution::Normal,
            ..JitterParams::default()
        };
        let mut jitter = Jitter::new(&params, None);
        let mut rng = Rng::from_seed(6);
        let zeros = (0..1000)
            .filter(|_| jitter.apply(Span::from_ms(1), &mut rng) == Span::ZERO)
            .count();
        // P(Z < -1/50) = .492.
        assert!(zeros > 400, "{zeros}");
    }

    #[test]
    fn cube_roots_are_exact() {
        for n in [
            0u128,
            1,
            7,
            8,
            26,
            27,
            63,
            64,
            1 << 60,
            (1 << 80) - 1,
            1 << 80,
        ] {
            let root = cube_root(n);
            assert!(root * root * root <= n && (root + 1) * (root + 1) * (root + 1) > n);
        }
    }

    #[test]
    fn a_broken_table_is_refused_with_its_place() {
        let error = |text: &str| Table::parse(text).unwrap_err().to_string();
        assert_eq!(
            error("1 2\n3 x4"),
            "line 2, column 3: `x4` is not a whole number (deviation is expected here)"
        );
        assert_eq!(
            error("-"),
            "line 1, column 1: the field is empty; deviation, a whole number, is expected"
        );
        assert_eq!(
            error("# no"),
            "line 1, column 1: the file holds no deviations"
        );
    }
}
