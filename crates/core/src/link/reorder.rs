//! Reordering: some packets skip the delay and overtake those in the delay line.
//!
//! Of every `reorder_gap` packets the last one is a candidate (with gap 1, every packet). A
//! candidate skips the delay with probability `reorder`; if it is delayed, the next packet is a
//! candidate too. Without delay or jitter there is no packet to overtake. This is the rule of
//! tc-netem(8): `reorder 25% gap 5` delays four packets and sends the fifth at once with a
//! probability of 25 %.

use crate::param::Ratio;
use crate::params;
use crate::rng::Rng;

use super::loss::Chance;

params! {
    /// Parameters of reordering.
    pub struct ReorderParams {
        /// probability that a candidate skips the delay
        reorder: Ratio = Ratio(Ratio::from_billionths(0)), Ratio(Ratio::from_billionths(0)) => Ratio(Ratio::ONE), "none";
        /// probability that a candidate shares the fate of the one before it
        reorder_correlation: Ratio = Ratio(Ratio::from_billionths(0)), Ratio(Ratio::from_billionths(0)) => Ratio(Ratio::from_billionths(999_999_999)), "0: each packet for itself";
        /// one of this many packets is a candidate
        reorder_gap: u64 = Count(1), Count(1) => Count(1 << 32), "tc-netem(8): every packet";
    }
}

/// Decides which packets skip the delay.
#[derive(Clone, Debug)]
pub struct Reorder {
    chance: Chance,
    gap: u64,
    delayed: u64,
}

impl Reorder {
    /// Creates the initial state: no packet has been delayed.
    pub const fn new(params: &ReorderParams) -> Self {
        Reorder {
            chance: Chance::new(params.reorder, params.reorder_correlation),
            gap: params.reorder_gap,
            delayed: 0,
        }
    }

    /// Takes over the place of `old` if both have the same gap, and its last decision.
    pub(super) fn go_on_from(&mut self, old: Reorder) {
        if self.gap == old.gap {
            self.delayed = old.delayed;
        }
        self.chance.go_on_from(old.chance);
    }

    /// Returns whether the next packet skips the delay.
    pub fn skips(&mut self, rng: &mut Rng) -> bool {
        if self.delayed + 1 < self.gap || !self.chance.draw(rng) {
            self.delayed += 1;
            return false;
        }
        self.delayed = 0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certain_candidate_comes_every_gap_packets() {
        let params = ReorderParams {
            reorder: Ratio::ONE,
            reorder_gap: 5,
            ..ReorderParams::default()
        };
        let mut reorder = Reorder::new(&params);
        let mut rng = Rng::from_seed(1);
        let skips: alloc::vec::Vec<u32> = (1..=15).filter(|_| reorder.skips(&mut rng)).collect();
        assert_eq!(skips, [5, 10, 15]);
    }

    #[test]
    fn an_unlikely_candidate_is_followed_by_others() {
        // Four delayed packets, then one success in 1/p = 4 on average: every 4 + 4 = 8th packet of
        // 800 000. The number of packets per round has sigma sqrt((1-p)/p^2) = 3.46; 100 000
        // rounds: sigma of their number 100 000 * 3.46 / 8 / sqrt(100 000) = 137; 5 sigma = 685.
        let params = ReorderParams {
            reorder: Ratio::from_billionths(250_000_000),
            reorder_gap: 5,
            ..ReorderParams::default()
        };
        let mut reorder = Reorder::new(&params);
        let mut rng = Rng::from_seed(2);
        let skips = (0..800_000).filter(|_| reorder.skips(&mut rng)).count();
        assert!(skips.abs_diff(100_000) < 685, "{skips}");
    }
}
