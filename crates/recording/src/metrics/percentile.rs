//! Percentiles as observed values.

use super::samples::Parts;
use sluice_scenario::metric::Percentiles;

/// Returns the percentiles of `values`, in nanoseconds; `None` for no values.
///
/// The y-th percentile is the smallest value x such that at least y percent of all values are not
/// larger than x (RFC 2330 section 11.3): the value of rank `ceil(y * n / 100)`. It is always an
/// observed value, and needs no floating point.
///
/// ```
/// use sluice_recording::metrics::percentiles;
/// // Ranks 2 of 4 (50 %) and 4 of 4 (95 %, 99 %).
/// let p = percentiles(&[40, 10, 30, 20]).unwrap();
/// assert_eq!((p.min_ns, p.p50_ns, p.p95_ns, p.max_ns, p.mean_ns), (10, 20, 40, 40, 25));
/// // Squared deviations of 225, 25, 25, 225 over 3: 166.7, whose root is 12.9.
/// assert_eq!(p.deviation_ns, 13);
/// ```
pub fn percentiles(values: &[u64]) -> Option<Percentiles> {
    percentiles_of(&Parts {
        long: vec![values],
        ..Parts::default()
    })
}

/// Returns the percentiles of several slices of values taken together.
pub(super) fn percentiles_of(parts: &Parts<'_>) -> Option<Percentiles> {
    let length = parts.len();
    if length == 0 {
        return None;
    }
    let (mut min, mut max, mut sum, mut squares) = (u64::MAX, 0, 0_u128, 0_u128);
    let mut held = [0_u32; SLOTS];
    parts.for_each(|value| {
        min = min.min(value);
        max = max.max(value);
        if length > FEW {
            held[slot(value)] += 1;
        }
        let value = u128::from(value);
        sum += value;
        squares = squares.wrapping_add(value * value);
    });
    let count = length as u128;
    // n * sum of squared deviations = n * sum of squares - square of the sum, exact in integers:
    // u128 holds the squares of 2^20 values of up to 2^43 ns (2.4 hours).
    let largest = u128::from(max) * u128::from(max);
    let has_all = count.checked_mul(largest).is_some();
    let squares = has_all.then_some(squares).or_else(|| {
        let mut squares = Some(0_u128);
        parts.for_each(|value| {
            let square = u128::from(value) * u128::from(value);
            squares = squares.and_then(|all| all.checked_add(square));
        });
        squares
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
    let rank = |percent: usize| (length * percent).div_ceil(100) - 1;
    let ranks = [50, 95, 99].map(rank);
    let [p50, p95, p99] = match length {
        0..=FEW => select(parts, |_| true, ranks),
        _ => of_ranks(parts, &held, ranks),
    };
    Some(Percentiles {
        count: length as u64,
        min_ns: min,
        p50_ns: p50,
        p95_ns: p95,
        p99_ns: p99,
        max_ns: max,
        mean_ns: (sum / count) as u64,
        deviation_ns: deviation.round() as u64,
    })
}

/// Returns the values of three ascending ranks, counted from 0. Of many values, only those in the
/// slots of these ranks are compared with each other.
fn of_ranks(parts: &Parts<'_>, held: &[u32; SLOTS], ranks: [usize; 3]) -> [u64; 3] {
    let mut is_compared = [false; SLOTS];
    // The rank of each among the compared values.
    let mut places = [0; 3];
    let (mut at, mut before, mut compared) = (0, 0, 0);
    for (place, rank) in places.iter_mut().zip(ranks) {
        while before + held[at] as usize <= rank {
            before += held[at] as usize;
            if is_compared[at] {
                compared += held[at] as usize;
            }
            at += 1;
        }
        is_compared[at] = true;
        *place = compared + rank - before;
    }
    select(parts, |value| is_compared[slot(value)], places)
}

/// Returns the values of three ascending ranks among those that `is_compared` holds for.
fn select(parts: &Parts<'_>, is_compared: impl Fn(u64) -> bool, ranks: [usize; 3]) -> [u64; 3] {
    let mut values: Vec<u64> = Vec::new();
    parts.for_each(|value| {
        if is_compared(value) {
            values.push(value);
        }
    });
    let [low, middle, high] = ranks;
    // Each selection leaves the smaller values before its own.
    let p99 = *values.select_nth_unstable(high).1;
    let p95 = *values[..=high].select_nth_unstable(middle).1;
    let p50 = *values[..=middle].select_nth_unstable(low).1;
    [p50, p95, p99]
}

/// Returns the slot of a value: slots are in the order of values, and each is at most a 64th as wide
/// as its smallest value.
#[inline]
fn slot(value: u64) -> usize {
    let bits = (u64::BITS - (value >> FINE).leading_zeros()) as usize;
    let shift = bits.saturating_sub(1);
    (bits << FINE) + ((value >> shift) as usize & ((1 << FINE) - 1))
}

/// So few values are compared with each other at once.
const FEW: usize = 1000;

/// The bits of a value after its first that tell slots apart.
const FINE: usize = 6;
const SLOTS: usize = (u64::BITS as usize - FINE + 1) << FINE;

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
