//! Percentiles as observed values.

use sluice_scenario::metric::Percentiles;

/// Returns the percentiles of `values`, in nanoseconds; `None` for no values. Changes the order of
/// the values: selecting three of them takes a fraction of the time of sorting all.
///
/// The y-th percentile is the smallest value x such that at least y percent of all values are not
/// larger than x (RFC 2330 section 11.3): the value of rank `ceil(y * n / 100)`. It is always an
/// observed value, and needs no floating point.
///
/// ```
/// use sluice_recording::metrics::percentiles;
/// // Ranks 2 of 4 (50 %) and 4 of 4 (95 %, 99 %).
/// let p = percentiles(&mut [40, 10, 30, 20]).unwrap();
/// assert_eq!((p.min_ns, p.p50_ns, p.p95_ns, p.max_ns, p.mean_ns), (10, 20, 40, 40, 25));
/// // Squared deviations of 225, 25, 25, 225 over 3: 166.7, whose root is 12.9.
/// assert_eq!(p.deviation_ns, 13);
/// ```
pub fn percentiles(values: &mut [u64]) -> Option<Percentiles> {
    let (first, last) = (*values.iter().min()?, *values.iter().max()?);
    let length = values.len();
    let rank = |percent: usize| (length * percent).div_ceil(100) - 1;
    // Each selection leaves the smaller values before its own.
    let p99 = *values.select_nth_unstable(rank(99)).1;
    let p95 = *values[..=rank(99)].select_nth_unstable(rank(95)).1;
    let p50 = *values[..=rank(95)].select_nth_unstable(rank(50)).1;
    let sum: u128 = values.iter().map(|v| u128::from(*v)).sum();
    let count = values.len() as u128;
    // n * sum of squared deviations = n * sum of squares - square of the sum, exact in integers:
    // u128 holds the squares of 2^20 values of up to 2^43 ns (2.4 hours).
    let squares = values.iter().try_fold(0_u128, |all, v| {
        let v = u128::from(*v);
        all.checked_add(v.checked_mul(v)?)
    });
    let scaled = squares.and_then(|squares| {
        count
            .checked_mul(squares)?
            .checked_sub(sum.checked_mul(sum)?)
    });
    let deviation = match (scaled, count) {
        (Some(scaled), 2..) => (scaled as f64 / (count * (count - 1)) as f64).sqrt(),
        _ => 0.0,
    };
    Some(Percentiles {
        count: values.len() as u64,
        min_ns: first,
        p50_ns: p50,
        p95_ns: p95,
        p99_ns: p99,
        max_ns: last,
        mean_ns: (sum / count) as u64,
        deviation_ns: deviation.round() as u64,
    })
}

/// Returns the smallest of `values` that `percent` percent of them do not exceed (RFC 2330 section
/// 11.3); the smallest of all for 0 %. `None` for no values. Changes the order of the values.
///
/// ```
/// use sluice_recording::metrics::percentile;
/// // 2.5 of 5 values, so the third.
/// assert_eq!(percentile(&mut [5.0, 1.0, 4.0, 2.0, 3.0], 50), Some(3.0));
/// ```
pub fn percentile(values: &mut [f64], percent: usize) -> Option<f64> {
    let rank = (values.len() * percent).div_ceil(100).max(1);
    if rank > values.len() {
        return None;
    }
    Some(*values.select_nth_unstable_by(rank - 1, f64::total_cmp).1)
}

/// Returns Jain's fairness index `(sum x)^2 / (n * sum x^2)` (RFC 5166 section 2.3.1): 1/n if one
/// share is everything, 1 if all are equal. `None` for fewer than two shares, or if all are zero.
///
/// ```
/// use sluice_recording::metrics::jain;
/// // (3 + 1)^2 / (2 * (9 + 1)) = 16/20
/// assert_eq!(jain(&[3.0, 1.0]), Some(0.8));
/// ```
pub fn jain(shares: &[f64]) -> Option<f64> {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|x| x * x).sum();
    (shares.len() > 1 && squares > 0.0).then(|| sum * sum / (shares.len() as f64 * squares))
}
