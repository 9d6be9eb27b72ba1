//! Independent loss: each packet is lost with the same probability or, with correlation, in bursts.
//!
//! Correlation `c` means that with probability `c` a packet shares the fate of the one before it,
//! and otherwise draws its own. The loss ratio stays exactly `loss`, the correlation of packets k
//! apart is c^k, and a burst of losses has a mean length of 1 / ((1 - c)(1 - loss)) packets. netem
//! averages random numbers instead, which changes the ratio.

use crate::param::Ratio;
use crate::params;
use crate::rng::Rng;

params! {
    /// Parameters of independent or correlated loss.
    pub struct LossParams {
        /// probability that a packet is lost
        loss: Ratio = Ratio(Ratio::from_billionths(0)), Ratio(Ratio::from_billionths(0)) => Ratio(Ratio::ONE), "none";
        /// probability that a packet shares the fate of the one before it
        loss_correlation: Ratio = Ratio(Ratio::from_billionths(0)), Ratio(Ratio::from_billionths(0)) => Ratio(Ratio::from_billionths(999_999_999)), "0: each packet for itself";
    }
}

/// Decides about successive packets with a fixed probability.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chance {
    /// In units of 2^-32.
    probability: u64,
    correlation: u64,
    last: Option<bool>,
}

impl Chance {
    /// Creates a source of decisions that are `true` with `probability` and repeat the previous
    /// decision with probability `correlation`.
    pub const fn new(probability: Ratio, correlation: Ratio) -> Self {
        Chance {
            probability: probability.as_fixed(32),
            correlation: correlation.as_fixed(32),
            last: None,
        }
    }

    /// Takes over the last decision of `old` if both have the same parameters.
    pub(super) fn go_on_from(&mut self, mut old: Chance) {
        let last = core::mem::replace(&mut old.last, self.last);
        if *self == old {
            self.last = last;
        }
    }

    /// Draws the next decision.
    pub fn draw(&mut self, rng: &mut Rng) -> bool {
        if self.correlation > 0 {
            if let Some(last) = self.last
                && rng.chance(self.correlation)
            {
                return last;
            }
            let fresh = rng.chance(self.probability);
            self.last = Some(fresh);
            return fresh;
        }
        rng.chance(self.probability)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(n: u64, of: u64) -> Ratio {
        Ratio::from_billionths(n * 1_000_000_000 / of)
    }

    #[test]
    fn the_loss_ratio_is_the_probability() {
        // 10^6 trials at p = 0.01: sigma = sqrt(10^6 * 0.01 * 0.99) = 99.5; 5 sigma = 498, which
        // chance exceeds once in 1.7 million seeds, and the seed is fixed.
        let mut chance = Chance::new(ratio(1, 100), Ratio::default());
        let mut rng = Rng::from_seed(1);
        let lost = (0..1_000_000).filter(|_| chance.draw(&mut rng)).count();
        assert!(lost.abs_diff(10_000) < 498, "{lost}");
    }

    #[test]
    fn correlation_keeps_the_ratio_and_makes_bursts_of_the_expected_length() {
        // p = 0.1, c = 0.5: mean burst 1 / (0.5 * 0.9) = 2.222 packets.
        let (p, c, n) = (0.1, 0.5, 1_000_000);
        let mut chance = Chance::new(ratio(1, 10), ratio(1, 2));
        let mut rng = Rng::from_seed(2);
        let fates: alloc::vec::Vec<bool> = (0..n).map(|_| chance.draw(&mut rng)).collect();
        let lost = fates.iter().filter(|lost| **lost).count() as f64;
        let bursts = fates.windows(2).filter(|w| !w[0] && w[1]).count() as f64;
        // The variance of a sum with correlation c^k is larger by (1+c)/(1-c) = 3:
        // sigma = sqrt(10^6 * 0.09 * 3) = 520; 5 sigma = 2600.
        assert!((lost - p * f64::from(n)).abs() < 2600.0, "{lost}");
        // A burst starts with probability (1-p)(1-c)p = 0.045 per packet: 45 000 bursts, sigma
        // below that of a binomial, 207; 5 sigma = 1035, or 2.3 % of the mean length.
        let mean = lost / bursts;
        let expected = 1.0 / ((1.0 - c) * (1.0 - p));
        assert!((mean / expected - 1.0).abs() < 0.05, "{mean}");
    }

    #[test]
    fn certain_and_impossible_are_exact() {
        let mut rng = Rng::from_seed(3);
        let mut never = Chance::new(Ratio::default(), Ratio::default());
        let mut always = Chance::new(Ratio::ONE, Ratio::default());
        assert!((0..1000).all(|_| !never.draw(&mut rng) && always.draw(&mut rng)));
    }
}
