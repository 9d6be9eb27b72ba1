//! Goodput: payload that arrived, over a window of time.

use sluice_core::{Span, Time};

/// The payload bytes that had arrived at an instant: a sample of a counter that only grows.
pub type Arrived = (Time, u64);

/// Returns the bytes that had arrived by `at`; 0 before the first sample. Bytes are assumed to arrive
/// evenly between two samples that are at most `even` apart. Across a longer gap, during which a flow
/// may have paused, they arrive with the later sample.
pub(super) fn arrived_by(samples: &[Arrived], even: Span, at: Time) -> f64 {
    let next = samples.partition_point(|(time, _)| *time <= at);
    let Some((before, bytes)) = next.checked_sub(1).map(|last| samples[last]) else {
        return 0.0;
    };
    match samples.get(next) {
        Some((after, more)) if after.since(before) <= even => {
            let part = at.since(before).as_ns() as f64 / after.since(before).as_ns() as f64;
            bytes as f64 + more.saturating_sub(bytes) as f64 * part
        }
        _ => bytes as f64,
    }
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
/// `step`, and each of its positions gives a point at the window's end. Bytes are assumed to arrive
/// evenly between two samples. The first window begins with the first sample; windows that end
/// after the last sample are left out.
pub fn goodput_series(samples: &[Arrived], window: Span, step: Span) -> Vec<RatePoint> {
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
        let bytes = bytes_at(samples, &mut high, to) - bytes_at(samples, &mut low, from);
        points.push((to.as_ns() as f64 / 1e9, bytes * 8.0 / window.as_secs_f64()));
        from += step;
    }
    points
}

/// Returns the counter at `t`, which must be within the samples and must not decrease from call to
/// call; `index` is the position of the last call.
pub(super) fn bytes_at(samples: &[Arrived], index: &mut usize, t: Time) -> f64 {
    while *index + 1 < samples.len() && samples[*index + 1].0 <= t {
        *index += 1;
    }
    let (at, bytes) = samples[*index];
    match samples.get(*index + 1) {
        Some((next, more)) if *next > at => {
            let part = t.since(at).as_ns() as f64 / next.since(at).as_ns() as f64;
            bytes as f64 + (more.saturating_sub(bytes)) as f64 * part
        }
        _ => bytes as f64,
    }
}
