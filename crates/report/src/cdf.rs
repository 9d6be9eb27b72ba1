//! Empirical distributions with few enough points to draw.

use std::iter::repeat_n;

use super::model::{Cdf, Packets, Ping, Series, Verdict};

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
    pub fn of_delays(delays: Vec<u64>) -> Self {
        let in_ms = |ns: u64| ns as f64 / 1e6;
        Cdf::of_sorted(&sorted(delays).into_iter().map(in_ms).collect::<Vec<f64>>())
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

    /// Returns the distribution of the sojourn times of the packets that were sent, in ms. A
    /// super-packet counts as its wire packets.
    pub fn of_sojourn(packets: &Packets) -> Self {
        let waits = packets.sojourn_ns.iter().zip(&packets.segments);
        let rows = waits.zip(&packets.verdict);
        let sent = rows.filter(|(_, verdict)| **verdict != Verdict::Dropped);
        let each = sent.flat_map(|((wait, segments), _)| repeat_n(*wait, usize::from(*segments)));
        Cdf::of_delays(each.collect())
    }
}

impl Ping {
    /// Returns the distribution of one of its series of delays, without the warm-up.
    pub fn distribution(&self, delays: &Series) -> Cdf {
        let points = delays.points();
        let measured = points.filter(|(at, _)| *at >= self.measured_from_s);
        Cdf::of(measured.map(|(_, delay)| delay).collect())
    }
}

/// Sorts whole numbers by their digits, from the lowest (radix sort). For a million delays of up to
/// seconds, three passes take less time than comparisons.
fn sorted(mut values: Vec<u64>) -> Vec<u64> {
    if values.len() < MOST_COMPARED {
        values.sort_unstable();
        return values;
    }
    let most = values.iter().max().copied().unwrap_or(0);
    let mut moved = vec![0; values.len()];
    for shift in (0..u64::BITS - most.leading_zeros()).step_by(DIGIT as usize) {
        let digit = |value: u64| (value >> shift) as usize & ((1 << DIGIT) - 1);
        let mut places = [0; 1 << DIGIT];
        values.iter().for_each(|value| places[digit(*value)] += 1);
        let mut before = 0;
        for place in &mut places {
            before += std::mem::replace(place, before);
        }
        for value in &values {
            let place = &mut places[digit(*value)];
            moved[*place] = *value;
            *place += 1;
        }
        std::mem::swap(&mut values, &mut moved);
    }
    values
}

/// The bits of a digit.
const DIGIT: u32 = 11;
/// Fewer values are compared with each other.
const MOST_COMPARED: usize = 4096;

/// The shares at which a large distribution keeps its points.
fn shares() -> impl Iterator<Item = f64> {
    let body = (1..=500).map(|k| f64::from(k) / 500.0);
    let tail = (1..=50).map(|k| 1.0 - 0.01 * 10_f64.powf(-f64::from(k) / 10.0));
    body.chain(tail)
}

const MOST_EXACT: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_give_the_same_order_as_comparisons() {
        let mut rng = sluice_core::Rng::from_seed(1);
        for most in [1, 2000, 5_000_000_000, u64::MAX] {
            let values: Vec<u64> = (0..3 * MOST_COMPARED).map(|_| rng.below(most)).collect();
            let mut expected = values.clone();
            expected.sort_unstable();
            assert!(sorted(values) == expected, "below {most}");
        }
    }
}
