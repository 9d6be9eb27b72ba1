//! Sums of series.

use std::collections::BTreeMap;

use super::Series;

impl Series {
    /// The sum on a common grid; a flow without a value at a time adds nothing there.
    ///
    /// The points of a flow are whole steps apart, but its first one can be anywhere. Only the first is
    /// rounded to the grid: two flows half a step apart would otherwise have two points in one slot, and
    /// none in the next, by the rounding errors of each division.
    pub(crate) fn sum<'a>(parts: impl Iterator<Item = &'a Series>, step_s: f64) -> Series {
        let mut sums: BTreeMap<i64, f64> = BTreeMap::new();
        let slots = |span: f64| (span / step_s).round() as i64;
        for part in parts {
            let Some((first, _)) = part.points().next() else {
                continue;
            };
            for (time, value) in part.points() {
                *sums.entry(slots(first) + slots(time - first)).or_default() += value;
            }
        }
        let (time_s, value) = sums
            .into_iter()
            .map(|(slot, sum)| (slot as f64 * step_s, sum))
            .unzip();
        Series::new(time_s, value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_that_start_half_a_step_apart_share_every_slot_of_the_sum() {
        // 1.05 / 0.1 = 10.500000000000002 and 1.15 / 0.1 = 11.499999999999998 are both slot 11.
        let flow = |start: f64| {
            let times: Vec<f64> = (0..40).map(|k| start + 0.1 * f64::from(k)).collect();
            Series::new(times, vec![2.5; 40])
        };
        let flows = [0.5, 0.55, 0.6, 0.65].map(flow);
        let sum = Series::sum(flows.iter(), 0.1);
        // Between the last start and the first end, all four have a value.
        let middle = sum.points().filter(|(time, _)| (0.75..4.35).contains(time));
        let values: Vec<f64> = middle.map(|(_, value)| value).collect();
        assert_eq!(values, [10.0; 36]);
    }
}
