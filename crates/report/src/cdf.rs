//! Empirical distributions with few enough points to draw.

use super::model::{Cdf, Packets, Verdict};

impl Cdf {
    /// Returns the distribution of samples. Up to 1000 different values are one point each. If
    /// there are more, 500 points at equal shares are kept, and ten per decade towards the tail.
    pub fn of(mut samples: Vec<f64>) -> Self {
        samples.retain(|sample| sample.is_finite());
        samples.sort_by(f64::total_cmp);
        Cdf::of_sorted(&samples)
    }

    /// Returns the distribution of delays in nanoseconds, in ms. Sorting whole numbers takes a
    /// fraction of the time.
    pub fn of_delays(mut delays: Vec<u64>) -> Self {
        delays.sort_unstable();
        let in_ms = |ns: u64| ns as f64 / 1e6;
        Cdf::of_sorted(&delays.into_iter().map(in_ms).collect::<Vec<f64>>())
    }

    fn of_sorted(samples: &[f64]) -> Self {
        let count = samples.len();
        let mut cdf = Cdf {
            count: count as u64,
            ..Cdf::default()
        };
        // The last index of each value: no sample up to this index exceeds the value.
        let mut last: Vec<usize> = (0..count)
            .filter(|&at| samples.get(at + 1) != Some(&samples[at]))
            .collect();
        if last.len() > MOST_EXACT {
            let mut kept: Vec<usize> = shares()
                .map(|share| {
                    let rank = (share * count as f64).ceil() as usize;
                    let value = samples[rank.clamp(1, count) - 1];
                    samples.partition_point(|&sample| sample <= value) - 1
                })
                .collect();
            kept.push(last[0]);
            kept.sort_unstable();
            kept.dedup();
            last = kept;
        }
        for at in last {
            cdf.value.push(samples[at]);
            cdf.fraction.push((at + 1) as f64 / count as f64);
        }
        cdf
    }

    /// Returns the smallest value that at least the share `fraction` of the samples does not exceed.
    pub fn quantile(&self, fraction: f64) -> Option<f64> {
        let at = self.fraction.partition_point(|share| *share < fraction);
        self.value.get(at).copied()
    }

    /// Returns the distribution of the sojourn times of the packets that were sent, in ms.
    pub fn of_sojourn(packets: &Packets) -> Self {
        let rows = packets.sojourn_ns.iter().zip(&packets.verdict);
        let sent = rows.filter(|(_, verdict)| **verdict != Verdict::Dropped);
        Cdf::of_delays(sent.map(|(sojourn, _)| *sojourn).collect())
    }
}

/// The shares at which a large distribution keeps its points.
fn shares() -> impl Iterator<Item = f64> {
    let body = (1..=500).map(|k| f64::from(k) / 500.0);
    let tail = (1..=50).map(|k| 1.0 - 0.01 * 10_f64.powf(-f64::from(k) / 10.0));
    body.chain(tail)
}

const MOST_EXACT: usize = 1000;
