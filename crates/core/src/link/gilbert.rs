//! Gilbert-Elliott loss: a link alternates between a good and a bad state, each with its own loss
//! probability.
//!
//! The four numbers are those of dummynet's `plr K,p,H,r`: `ge_k` is the loss probability in the
//! good state, `ge_p` the probability of going from good to bad, `ge_h` the loss probability in the
//! bad state, `ge_r` the probability of going back. The chain starts in the good state. For each
//! packet the loss is drawn in the current state, then the state changes.
//!
//! In the long run the link is bad for a fraction p / (p + r) of the packets, a bad period lasts 1
//! / r packets on average, and the loss ratio is (K r + H p) / (p + r).
//!
//! Sources: Gilbert, BSTJ 39 (1960); Elliott, BSTJ 42 (1963); `plr` in ipfw(8).

use alloc::string::ToString;

use crate::param::Ratio;
use crate::params;
use crate::rng::Rng;

params! {
    /// Parameters of Gilbert-Elliott loss: dummynet's `plr K,p,H,r`.
    pub struct GilbertParams {
        /// K: loss probability while the link is good
        ge_k: Ratio = Ratio(Ratio::from_billionths(0)), Ratio(Ratio::from_billionths(0)) => Ratio(Ratio::ONE), "Gilbert 1960: no loss in the good state";
        /// p: probability per packet that a good link turns bad
        ge_p: Ratio = Ratio(Ratio::from_billionths(0)), Ratio(Ratio::from_billionths(0)) => Ratio(Ratio::ONE), "none: the link stays good";
        /// H: loss probability while the link is bad
        ge_h: Ratio = Ratio(Ratio::ONE), Ratio(Ratio::from_billionths(0)) => Ratio(Ratio::ONE), "tc-netem(8) gemodel: everything is lost in the bad state";
        /// r: probability per packet that a bad link turns good
        ge_r: Ratio = Ratio(Ratio::ONE), Ratio(Ratio::from_billionths(0)) => Ratio(Ratio::ONE), "the opposite of p: a bad time lasts one packet";
    } check |params| {
        if params.ge_p.as_billionths() > 0 && params.ge_r.as_billionths() == 0 {
            return Err("`ge_r 0` keeps a link bad forever once `ge_p` has made it so".to_string());
        }
        Ok(())
    }
}

impl GilbertParams {
    /// Returns whether no packet is ever lost.
    pub const fn is_off(&self) -> bool {
        self.ge_k.as_billionths() == 0
            && (self.ge_p.as_billionths() == 0 || self.ge_h.as_billionths() == 0)
    }
}

/// The state of one chain, for a link or a queue.
#[derive(Clone, Debug)]
pub struct Gilbert {
    /// Loss probability and probability of leaving the state, in units of 2^-32: good, bad.
    states: [(u64, u64); 2],
    is_bad: bool,
}

impl Gilbert {
    /// Creates a chain in its good state.
    pub const fn new(params: &GilbertParams) -> Self {
        Gilbert {
            states: [
                (params.ge_k.as_fixed(32), params.ge_p.as_fixed(32)),
                (params.ge_h.as_fixed(32), params.ge_r.as_fixed(32)),
            ],
            is_bad: false,
        }
    }

    /// Takes over the state of `old` if both have the same parameters.
    pub(super) fn go_on_from(&mut self, old: &Gilbert) {
        if self.states == old.states {
            self.is_bad = old.is_bad;
        }
    }

    /// Returns whether the next packet is lost.
    pub fn loses(&mut self, rng: &mut Rng) -> bool {
        let (loss, leave) = self.states[usize::from(self.is_bad)];
        let is_lost = rng.chance(loss);
        self.is_bad ^= rng.chance(leave);
        is_lost
    }

    /// Returns whether the link is in its bad state.
    pub const fn is_bad(&self) -> bool {
        self.is_bad
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_long_run_loss_is_that_of_the_stationary_chain() {
        // K .001, p .01, H .5, r .1: bad for p/(p+r) = 1/11 of the packets;
        // loss = (.001 * .1 + .5 * .01) / .11 = .0051 / .11 = 0.046 364.
        let ratio = |thousandths: u64| Ratio::from_billionths(thousandths * 1_000_000);
        let params = GilbertParams {
            ge_k: ratio(1),
            ge_p: ratio(10),
            ge_h: ratio(500),
            ge_r: ratio(100),
        };
        let mut chain = Gilbert::new(&params);
        let mut rng = Rng::from_seed(1);
        let n = 2_000_000;
        let (mut lost, mut bad, mut bad_times) = (0u32, 0u32, 0u32);
        for _ in 0..n {
            let was_bad = chain.is_bad();
            lost += u32::from(chain.loses(&mut rng));
            bad += u32::from(was_bad);
            bad_times += u32::from(!was_bad && chain.is_bad());
        }
        let n = f64::from(n);
        let pi = 1.0 / 11.0;
        // States k apart correlate by (1-p-r)^k = .89^k, which multiplies the variance by
        // 1.89/.11 = 17.2: sigma(bad) = sqrt(2e6 * pi * (1-pi) * 17.2) = 1686; 5 sigma = 8430.
        assert!((f64::from(bad) - pi * n).abs() < 8430.0, "{bad}");
        // Losses vary with the number of bad packets, times H - K, and by their own draws:
        // sqrt((.499 * 1686)^2 + 2e6 * (pi*.25 + .001)) = 869; 5 sigma = 4345.
        let expected = 0.0051 / 0.11 * n;
        assert!((f64::from(lost) - expected).abs() < 4345.0, "{lost}");
        // 1/r = 10 packets; 18 182 bad periods of geometric length, sigma of the mean
        // sqrt(90)/sqrt(18182) = .07; 5 sigma = .35.
        let mean = f64::from(bad) / f64::from(bad_times);
        assert!((mean - 10.0).abs() < 0.35, "{mean}");
    }

    #[test]
    fn it_starts_good_and_can_be_a_plain_gilbert_chain() {
        // p 1, r 1, K 0, H 1: every second packet is lost, beginning with the second.
        let params = GilbertParams {
            ge_p: Ratio::ONE,
            ..GilbertParams::default()
        };
        let mut chain = Gilbert::new(&params);
        let mut rng = Rng::from_seed(1);
        let fates: alloc::vec::Vec<bool> = (0..6).map(|_| chain.loses(&mut rng)).collect();
        assert_eq!(fates, [false, true, false, true, false, true]);
    }
}
