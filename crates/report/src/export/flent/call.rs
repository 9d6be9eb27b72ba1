//! A call as in flent's `voip` tests: delay, jitter, loss and bit rate over time, and every packet
//! for the score.

use serde_json::{Value, json};
use sluice_core::Time;

use super::track::Track;
use sluice_scenario::Voip;

/// A series of a data file.
pub(super) struct Series {
    pub name: String,
    pub column: Value,
    pub raw: Vec<Value>,
}

/// The packets of a call in a step.
#[derive(Clone, Copy, Debug, Default)]
struct Step {
    delay_sum: f64,
    arrived: u32,
    jitter_sum: f64,
    distances: u32,
    lost: u32,
    /// The start, in s.
    length: f64,
}

/// Returns the series of the call `name`, whose packets are probes without answers.
pub(super) fn series(track: &Track, name: &str, instants: &[Time]) -> Vec<Series> {
    let steps = steps(track, instants);
    let delays = track.values.iter().filter_map(|(_, ms)| *ms);
    let least = delays.min_by(f64::total_cmp).unwrap_or(0.0);
    let delay = |step: &Step| (step.arrived > 0).then(|| step.delay_sum / f64::from(step.arrived));
    let jitter =
        |step: &Step| (step.distances > 0).then(|| step.jitter_sum / f64::from(step.distances));
    // Payload and headers of UDP and IP, as the sender counts them.
    let packet_kbit = Voip::rate().as_bps() as f64 * Voip::INTERVAL.as_secs_f64() / 1e3;
    let bitrate = |step: &Step| {
        (step.length > 0.0).then(|| f64::from(step.arrived) * packet_kbit / step.length)
    };
    let of = |suffix: &str, value: &dyn Fn(&Step) -> Option<f64>| {
        let values: Vec<Option<f64>> = steps.iter().map(value).collect();
        let at = instants.iter().map(|at| track.instant(*at));
        let raw = at
            .zip(&values)
            .filter_map(|(t, value)| Some(json!({ "t": t, "val": (*value)? })));
        Series {
            name: format!("{name}{suffix}"),
            raw: raw.collect(),
            column: json!(values),
        }
    };
    let mut all = vec![
        of("::delay", &delay),
        of("::induced_delay", &|step| Some(delay(step)? - least)),
        of("::jitter", &jitter),
        of("::loss", &|step| {
            (step.length > 0.0).then_some(f64::from(step.lost))
        }),
        of("::bitrate", &bitrate),
    ];
    all.push(Series {
        raw: track.raw.clone(),
        ..of("", &delay)
    });
    all
}

fn steps(track: &Track, instants: &[Time]) -> Vec<Step> {
    let mut rest = &track.values[..];
    let mut before: Option<f64> = None;
    let mut last = Time::ZERO;
    let mut steps = Vec::with_capacity(instants.len());
    for &at in instants {
        let (now, later) = rest.split_at(rest.partition_point(|(time, _)| *time <= at));
        rest = later;
        let mut step = Step {
            length: at.since(last).as_secs_f64(),
            ..Step::default()
        };
        last = at;
        for (_, ms) in now {
            let Some(ms) = *ms else {
                step.lost += 1;
                continue;
            };
            step.arrived += 1;
            step.delay_sum += ms;
            if let Some(before) = before.replace(ms) {
                step.distances += 1;
                step.jitter_sum += (ms - before).abs();
            }
        }
        steps.push(step);
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_has_delay_jitter_loss_and_bit_rate_of_each_step() {
        let mut track = Track::new(0);
        let at = |ms: u64| Time::from_ns(ms * 1_000_000);
        track.values = [
            (10, Some(20.0)),
            (30, Some(24.0)),
            (50, None),
            (150, Some(22.0)),
        ]
        .map(|(ms, delay)| (at(ms), delay))
        .to_vec();
        let all = series(&track, "VoIP", &[at(0), at(100), at(200)]);
        let column = |name: &str| &all.iter().find(|s| s.name == name).unwrap().column;
        assert_eq!(*column("VoIP::delay"), json!([null, 22.0, 22.0]));
        assert_eq!(*column("VoIP::induced_delay"), json!([null, 2.0, 2.0]));
        // |24 - 20|, and |22 - 24| across the lost packet.
        assert_eq!(*column("VoIP::jitter"), json!([null, 4.0, 2.0]));
        assert_eq!(*column("VoIP::loss"), json!([null, 1.0, 0.0]));
        // Two packets of 200 bytes in 0.1 s are 32 kbit/s.
        assert_eq!(*column("VoIP::bitrate"), json!([null, 32.0, 16.0]));
    }
}
