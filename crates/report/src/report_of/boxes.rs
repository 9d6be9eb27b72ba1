//! The quantiles of delays that boxes show: without the warm-up, and over all repetitions.

use sluice_core::record::Fate;
use sluice_core::{Span, Time};
use sluice_recording::figures::median;
use sluice_recording::{ReadError, Recording, if_recorded};
use sluice_scenario::{Measured, PipeId};

use crate::model::{Cdf, DelayBox, box_name_of_queue};

/// The shares of the samples: the ends of whiskers and box, and the median.
const SHARES: [f64; 5] = [0.05, 0.25, 0.5, 0.75, 0.95];

/// Returns the boxes of the probes and queues of a run. Each quantile is the median of those of the
/// repetitions.
///
/// # Errors
/// A table cannot be read.
pub fn of(group: &[&Recording]) -> Result<Vec<DelayBox>, ReadError> {
    let mut all: Vec<(String, Vec<[f64; 5]>)> = Vec::new();
    for recording in group {
        for (name, delays) in delays(recording)? {
            let cdf = Cdf::of(delays);
            let quantiles = SHARES.map(|share| cdf.quantile(share));
            let [Some(a), Some(b), Some(c), Some(d), Some(e)] = quantiles else {
                continue;
            };
            match all.iter_mut().find(|(known, _)| *known == name) {
                Some((_, runs)) => runs.push([a, b, c, d, e]),
                None => all.push((name, vec![[a, b, c, d, e]])),
            }
        }
    }
    let typical = |runs: &[[f64; 5]], at: usize| {
        let values: Vec<f64> = runs.iter().map(|run| run[at]).collect();
        median(&values).unwrap_or(f64::NAN)
    };
    let boxes = all.into_iter().map(|(name, runs)| DelayBox {
        name,
        ms: [0, 1, 2, 3, 4].map(|at| typical(&runs, at)),
    });
    Ok(boxes.collect())
}

/// The delays of the probes and queues of a recording in ms, by their names, without the warm-up.
fn delays(recording: &Recording) -> Result<Vec<(String, Vec<f64>)>, ReadError> {
    let file = recording.run();
    let scenario = &file.scenario;
    let warmup = scenario.measure.warmup;
    let end = Time::from_ns(file.end_ns);
    // The start of measurement of each flow of probes.
    let probes: Vec<Option<(Time, String)>> = scenario
        .instances()
        .map(|instance| {
            let is_probe = instance.flow.kind.measured() == Measured::Delays;
            let from = Time::ZERO + instance.start.saturating_add(warmup);
            is_probe.then(|| (from, instance.name.clone()))
        })
        .collect();
    let mut all: Vec<(String, Vec<f64>)> = Vec::new();
    let mut add = |name: &str, delay: Span| {
        let delay = delay.as_ms_f64();
        match all.iter_mut().find(|(known, _)| known == name) {
            Some((_, delays)) => delays.push(delay),
            None => all.push((name.to_owned(), vec![delay])),
        }
    };
    for probe in if_recorded(recording.pings())? {
        let probe = probe?;
        if let (Some(Some((from, name))), Some(rtt)) = (probes.get(probe.flow as usize), probe.rtt)
            && (*from..=end).contains(&probe.time)
        {
            add(name, rtt);
        }
    }
    let pipes: Vec<(PipeId, String)> = scenario
        .pipes()
        .map(|(id, _)| (id, box_name_of_queue(id.word())))
        .collect();
    for row in if_recorded(recording.packets())? {
        let row = row?;
        let is_measured = (Time::ZERO + warmup..=end).contains(&row.record.at);
        let is_sent = matches!(row.record.fate, Fate::Sent | Fate::Marked);
        if let Some((_, name)) = pipes.iter().find(|(id, _)| *id == row.pipe)
            && is_measured
            && is_sent
        {
            add(name, row.record.sojourn());
        }
    }
    Ok(all)
}
