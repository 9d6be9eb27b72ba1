//! The figures of repetitions: runs that differ only in their seed.

use crate::figure::repeats::Interval;
use crate::model::Repeat;
use sluice_recording::figures::Probes;
use sluice_recording::metrics::{Spread, measure};
use sluice_recording::{ReadError, Recording};
use sluice_scenario::Direction;
use sluice_scenario::metric::{PipeSummary, Summary};

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

/// The key figures over the repetitions of a run. `busiest` names the bottleneck of each direction, up
/// and down; the ping is that of `probes`. A bottleneck that is idle, or marks nothing, has none of its
/// figures if that is so in `all` runs of the report; otherwise a zero is a value like others.
pub fn figures(
    summaries: &[&Summary],
    all: &[&Summary],
    busiest: [&str; 2],
    probes: &Probes<'_>,
) -> Vec<Repeat> {
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
        let of_all = || all.iter().filter_map(move |summary| pipe(summary, name));
        let has_waits = |pipe: &PipeSummary| pipe.sojourn.is_some_and(|s| s.p99_ns >= 100_000);
        if !of_all().any(has_waits) {
            continue;
        }
        add(
            &format!("Sojourn time {name}, median"),
            Some(direction),
            "ms",
            &|summary| Some(pipe(summary, name)?.sojourn?.p50_ns as f64 / 1e6),
        );
        add(
            &format!("Packets dropped {name}"),
            Some(direction),
            "%",
            &|summary| Some(pipe(summary, name)?.loss? * 100.0),
        );
        if of_all().any(|pipe| pipe.marks > 0) {
            add(
                &format!("Packets CE-marked {name}"),
                Some(direction),
                "%",
                &|summary| Some(pipe(summary, name)?.mark_ratio? * 100.0),
            );
        }
    }
    add("Jain's index", None, "", &|summary| summary.jain);
    figures
}

fn pipe<'a>(summary: &'a Summary, name: &str) -> Option<&'a PipeSummary> {
    summary.pipes.iter().find(|pipe| pipe.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_scenario::metric::{Percentiles, Window};

    /// A run whose bottleneck up has these waits, and marks this share of 1000 packets.
    fn summary(wait_ns: u64, mark_ratio: f64) -> Summary {
        let sojourn = Percentiles {
            count: 1000,
            min_ns: wait_ns,
            p50_ns: wait_ns,
            p95_ns: wait_ns,
            p99_ns: wait_ns,
            max_ns: wait_ns,
            mean_ns: wait_ns,
            deviation_ns: 0,
        };
        Summary {
            variant: String::new(),
            window: Window {
                warmup_ns: 0,
                end_ns: 1,
            },
            flows: Vec::new(),
            groups: Vec::new(),
            crowds: Vec::new(),
            pipes: vec![PipeSummary {
                name: "up".to_owned(),
                sojourn: Some(sojourn),
                loss: Some(0.0),
                mark_ratio: Some(mark_ratio),
                marks: (mark_ratio * 1000.0) as u64,
                ..PipeSummary::default()
            }],
            total_goodput_bps: None,
            directions: Vec::new(),
            jain: None,
            jain_min: None,
            jain_mean: None,
            accuracy: None,
        }
    }

    #[test]
    fn a_run_that_marked_nothing_has_a_zero_beside_one_that_marked() {
        let (fifo, fq) = (summary(50_000, 0.0), summary(2_000_000, 0.25));
        let marks = |one: &Summary, all: &[&Summary]| {
            let figures = figures(&[one, one], all, ["up", "down"], &Probes::of(all));
            let of_marks = |repeat: &&Repeat| repeat.figure == "Packets CE-marked up";
            let found = figures.iter().find(of_marks);
            (figures.len(), found.map(|repeat| repeat.values.clone()))
        };
        // Sojourn time, drops and marks, also of the queue that is idle.
        let both = [&fifo, &fq];
        assert_eq!(marks(&fifo, &both), (3, Some(vec![0.0, 0.0])));
        assert_eq!(marks(&fq, &both), (3, Some(vec![25.0, 25.0])));
        // Where no queue marks or waits, there is nothing to show.
        assert_eq!(marks(&fifo, &[&fifo, &fifo]), (0, None));
    }
}
