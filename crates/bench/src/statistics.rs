//! Statistics of measured values.

/// Returns the middle value, or the mean of both in the middle; 0 without values.
pub fn median(values: &[f64]) -> f64 {
    sluice_recording::figures::median(values).unwrap_or(0.0)
}

/// Returns the slope of the line through `points` (least squares); 0 for less than two points. The
/// first and the last point alone would give a rate too, but a pause of the machine at one of them
/// would then change it by much more.
pub fn slope(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let (x, y) = points
        .iter()
        .fold((0.0, 0.0), |(x, y), point| (x + point.0, y + point.1));
    let (x, y) = (x / count, y / count);
    let (mut above, mut below) = (0.0, 0.0);
    for point in points {
        above += (point.0 - x) * (point.1 - y);
        below += (point.0 - x) * (point.0 - x);
    }
    if below > 0.0 { above / below } else { 0.0 }
}

/// Returns the value that `share` of the sorted `values` do not exceed; 0 without values.
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted
        .get(rank.saturating_sub(1))
        .copied()
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_quantiles_are_of_the_values_themselves() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
        let values: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(quantile(&values, 0.5), 50.0);
        assert_eq!(quantile(&values, 0.99), 99.0);
        assert_eq!(quantile(&values, 1.0), 100.0);
        assert_eq!(quantile(&[], 0.5), 0.0);
    }

    #[test]
    fn a_slope_is_that_of_the_line_and_hardly_of_its_ends() {
        assert_eq!(slope(&[]), 0.0);
        assert_eq!(slope(&[(1.0, 5.0)]), 0.0);
        let mut points: Vec<(f64, f64)> = (0..101)
            .map(|x| (f64::from(x), 3.0 * f64::from(x)))
            .collect();
        assert!((slope(&points) - 3.0).abs() < 1e-12);
        // The last point is 10 too low: the slope is less by 10 * 50 / (2 * (1 + 4 + ... + 2500)) =
        // 500 / 85850. The two ends alone would give 0.1 less.
        points[100].1 -= 10.0;
        assert!((slope(&points) - (3.0 - 500.0 / 85_850.0)).abs() < 1e-12);
    }
}
