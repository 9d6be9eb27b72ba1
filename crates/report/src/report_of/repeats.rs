//! The figures of repetitions: runs that differ only in their seed.

use crate::figure::repeats::Interval;
use crate::model::Repeat;
use sluice_recording::figures::Probes;
use sluice_recording::metrics::{Spread, measure};
use sluice_recording::{ReadError, Recording};
use sluice_scenario::Direction;
use sluice_scenario::metric::Summary;

/// The summary of each run of a group.
///
/// # Errors
/// A table cannot be read.
pub fn summaries(group: &[&Recording]) -> Result<Vec<Summary>, ReadError> {
    let of = |recording: &&Recording| match recording.stored_summary()? {
        Some(summary) => Ok(summary),
        None => measure(recording),
    };
    group.iter().map(of).collect()
}

/// The key figures over the repetitions. `busiest` names the bottleneck of each direction, up and down;
/// the ping is that of `probes`.
pub fn figures(summaries: &[&Summary], busiest: [&str; 2], probes: &Probes<'_>) -> Vec<Repeat> {
    let mut figures = Vec::new();
    let mut add = |figure: &str,
                   direction: Option<Direction>,
                   unit: &str,
                   pick: &dyn Fn(&Summary) -> Option<f64>| {
        let values: Vec<f64> = summaries
            .iter()
            .filter_map(|summary| pick(summary))
            .collect();
        if let Some(spread) = Spread::of(&values) {
            figures.push(Repeat {
                figure: figure.to_owned(),
                unit: unit.to_owned(),
                median: spread.median,
                interval: Interval::of_median(&values)
                    .map(|interval| (interval.low, interval.high)),
                values,
                direction,
            });
        }
    };
    for direction in [Direction::Up, Direction::Down] {
        add(
            &format!("Goodput {direction}"),
            Some(direction),
            "Mbit/s",
            &|summary| {
                let of_it = summary.directions.iter().find(|d| d.direction == direction);
                Some(of_it?.goodput_bps / 1e6)
            },
        );
    }
    let ping = |summary: &Summary| probes.main(summary)?.rtt;
    add("Ping, median", None, "ms", &|s| {
        Some(ping(s)?.p50_ns as f64 / 1e6)
    });
    add("Ping, 95 % within", None, "ms", &|s| {
        Some(ping(s)?.p95_ns as f64 / 1e6)
    });
    add("Ping, 99 % within", None, "ms", &|s| {
        Some(ping(s)?.p99_ns as f64 / 1e6)
    });
    for (direction, name) in [Direction::Up, Direction::Down].into_iter().zip(busiest) {
        let pipe = |summary: &Summary| summary.pipes.iter().find(|pipe| pipe.name == name).cloned();
        let is_idle = summaries.iter().all(|summary| {
            pipe(summary).is_none_or(|p| p.sojourn.is_none_or(|s| s.p99_ns < 100_000))
        });
        if is_idle {
            continue;
        }
        add(
            &format!("Sojourn time {name}, median"),
            Some(direction),
            "ms",
            &|summary| Some(pipe(summary)?.sojourn?.p50_ns as f64 / 1e6),
        );
        add(
            &format!("Packets dropped {name}"),
            Some(direction),
            "%",
            &|summary| Some(pipe(summary)?.loss? * 100.0),
        );
        if summaries
            .iter()
            .any(|s| pipe(s).is_some_and(|p| p.marks > 0))
        {
            add(
                &format!("Packets CE-marked {name}"),
                Some(direction),
                "%",
                &|summary| Some(pipe(summary)?.mark_ratio? * 100.0),
            );
        }
    }
    add("Jain's index", None, "", &|summary| summary.jain);
    figures
}
