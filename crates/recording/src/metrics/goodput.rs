//! Goodput: payload that arrived, over a window of time.

use sluice_core::{Span, Time};

/// The payload bytes that had arrived at an instant: a sample of a counter that only grows.
pub type Arrived = (Time, u64);

/// Returns the bytes that had arrived by `at`; 0 before the first sample. Bytes are assumed to arrive
/// evenly between two samples that are at most `even` apart. Across a longer gap, during which a flow
/// may have paused, they arrive with the later sample.
pub(super) fn arrived_by(samples: &[Arrived], even: Span, at: Time) -> f64 {
    let next = samples.partition_point(|(time, _)| *time <= at);
    match next.checked_sub(1) {
        Some(last) => arrived_after(samples[last], samples.get(next), even, at),
        None => 0.0,
    }
}

/// Returns the bytes that had arrived by `at`, after the sample `last` and before the sample `next`, if
/// there is one.
fn arrived_after(last: Arrived, next: Option<&Arrived>, even: Span, at: Time) -> f64 {
    let (before, bytes) = last;
    match next {
        Some((after, more)) if *after > before && after.since(before) <= even => {
            let part = at.since(before).as_ns() as f64 / after.since(before).as_ns() as f64;
            bytes as f64 + more.saturating_sub(bytes) as f64 * part
        }
        _ => bytes as f64,
    }
}

/// Returns the longest time between two samples while bytes arrive, of a flow that is sampled every
/// `interval`.
pub fn longest_gap(interval: Span) -> Span {
    Span::from_ns(interval.as_ns().saturating_mul(2))
}

/// Returns the bits per second from `from` to `to`; `None` if `to` is not after `from`. Samples are taken
/// at most `even` apart while bytes arrive: between them, bytes arrive evenly, and across a longer gap
/// with the later sample.
pub fn goodput(samples: &[Arrived], even: Span, from: Time, to: Time) -> Option<f64> {
    let seconds = to.since(from).as_secs_f64();
    let bytes = arrived_by(samples, even, to) - arrived_by(samples, even, from);
    (seconds > 0.0).then(|| bytes * 8.0 / seconds)
}

/// A point of a curve: seconds, and bits per second.
pub type RatePoint = (f64, f64);

/// Returns the goodput over time: a window of length `window` slides over the samples in steps of
/// `step`, and each of its positions gives a point at the window's end. Samples are those of
/// [`goodput`]. The first window begins with the first sample; windows that end after the last sample
/// are left out.
pub fn goodput_series(samples: &[Arrived], even: Span, window: Span, step: Span) -> Vec<RatePoint> {
    let (Some((first, _)), Some((last, _))) = (samples.first(), samples.last()) else {
        return Vec::new();
    };
    assert!(
        window > Span::ZERO && step > Span::ZERO,
        "the window and its step are above zero"
    );
    let mut points = Vec::new();
    let (mut low, mut high) = (0, 0);
    let mut from = *first;
    while from.saturating_add(window) <= *last {
        let to = from.saturating_add(window);
        let by = |index: &mut usize, at| bytes_at(samples, index, even, at);
        let bytes = by(&mut high, to) - by(&mut low, from);
        points.push((to.as_ns() as f64 / 1e9, bytes * 8.0 / window.as_secs_f64()));
        from += step;
    }
    points
}

/// Returns the counter at `t`, as [`arrived_by`] does. `t` must be within the samples and must not
/// decrease from call to call; `index` is the position of the last call.
pub(super) fn bytes_at(samples: &[Arrived], index: &mut usize, even: Span, t: Time) -> f64 {
    while *index + 1 < samples.len() && samples[*index + 1].0 <= t {
        *index += 1;
    }
    arrived_after(samples[*index], samples.get(*index + 1), even, t)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goodput_curve_is_zero_while_a_flow_pauses() {
        // 62.5 kB in the 50 ms after a pause of 20 s, and as much in the 50 ms after that.
        let ms = |ms| Time::ZERO + Span::from_ms(ms);
        let samples = [
            (0, 0),
            (20_000, 62_500),
            (20_050, 125_000),
            (21_000, 125_000),
        ];
        let samples = samples.map(|(at, bytes)| (ms(at), bytes));
        let even = longest_gap(Span::from_ms(50));
        let points = goodput_series(&samples, even, Span::from_secs(1), Span::from_ms(500));
        // The first window ends at 1 s, the 39th at 20 s.
        assert!(points[..38].iter().all(|(_, bps)| *bps == 0.0));
        // The window that ends at 20 s has the first sample, the next one both, the last the second.
        let expected = [(20.0, 500_000.0), (20.5, 1_000_000.0), (21.0, 500_000.0)];
        assert_eq!(points[38..], expected);
    }
}
