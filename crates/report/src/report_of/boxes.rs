//! The quantiles of delays that boxes show: without the warm-up, and over all repetitions.

use sluice_core::record::Fate;
use sluice_core::{Span, Time};
use sluice_recording::figures::median;
use sluice_recording::{ReadError, Recording, if_recorded};
use sluice_scenario::{Measured, PipeId};

use crate::model::{Cdf, Run};

/// The shares of the samples: the ends of whiskers and box, and the median.
const SHARES: [f64; 5] = [0.05, 0.25, 0.5, 0.75, 0.95];

/// What a box shows: a flow of probes or a queue, by name.
#[derive(Clone, PartialEq, Eq)]
enum Of {
    Probes(String),
    Queue(String),
}

/// Gives the probes and queues of a run their boxes. Each quantile is the median of those of the
/// repetitions.
///
/// # Errors
/// A table cannot be read.
pub fn fill(run: &mut Run, group: &[&Recording]) -> Result<(), ReadError> {
    let mut all: Vec<(Of, Vec<[f64; 5]>)> = Vec::new();
    for recording in group {
        for (of, delays) in delays(recording)? {
            let cdf = Cdf::of(delays);
            let quantiles = SHARES.map(|share| cdf.quantile(share));
            let [Some(a), Some(b), Some(c), Some(d), Some(e)] = quantiles else {
                continue;
            };
            match all.iter_mut().find(|(known, _)| *known == of) {
                Some((_, runs)) => runs.push([a, b, c, d, e]),
                None => all.push((of, vec![[a, b, c, d, e]])),
            }
        }
    }
    for (of, runs) in all {
        let typical = |at: usize| {
            let values: Vec<f64> = runs.iter().map(|run| run[at]).collect();
            median(&values).unwrap_or(f64::NAN)
        };
        let found = match &of {
            Of::Probes(name) => {
                let ping = run.pings.iter_mut().find(|ping| ping.name == *name);
                ping.map(|ping| &mut ping.box_ms)
            }
            Of::Queue(name) => {
                let queue = run.queues.iter_mut().find(|queue| queue.name == *name);
                queue.map(|queue| &mut queue.box_ms)
            }
        };
        if let Some(found) = found {
            *found = Some([0, 1, 2, 3, 4].map(typical));
        }
    }
    Ok(())
}

/// The delays of the probes and queues of a recording in ms, without the warm-up.
fn delays(recording: &Recording) -> Result<Vec<(Of, Vec<f64>)>, ReadError> {
    let file = recording.run();
    let scenario = &file.scenario;
    let warmup = scenario.measure.warmup;
    let end = Time::from_ns(file.end_ns);
    // The start of measurement of each flow of probes.
    let probes: Vec<Option<(Time, Of)>> = scenario
        .instances()
        .map(|instance| {
            let is_probe = instance.flow.kind.measured() == Measured::Delays;
            let from = Time::ZERO + instance.start.saturating_add(warmup);
            is_probe.then(|| (from, Of::Probes(instance.name.clone())))
        })
        .collect();
    let mut all: Vec<(Of, Vec<f64>)> = Vec::new();
    let mut add = |of: &Of, delay: Span| {
        let delay = delay.as_ms_f64();
        match all.iter_mut().find(|(known, _)| known == of) {
            Some((_, delays)) => delays.push(delay),
            None => all.push((of.clone(), vec![delay])),
        }
    };
    for probe in if_recorded(recording.pings())? {
        let probe = probe?;
        if let (Some(Some((from, of))), Some(rtt)) = (probes.get(probe.flow as usize), probe.rtt)
            && (*from..=end).contains(&probe.time)
        {
            add(of, rtt);
        }
    }
    let pipes: Vec<(PipeId, Of)> = scenario
        .pipes()
        .map(|(id, _)| (id, Of::Queue(id.word().to_owned())))
        .collect();
    for row in if_recorded(recording.packets())? {
        let row = row?;
        let is_measured = (Time::ZERO + warmup..=end).contains(&row.record.at);
        let is_sent = matches!(row.record.fate, Fate::Sent | Fate::Marked);
        if let Some((_, of)) = pipes.iter().find(|(id, _)| *id == row.pipe)
            && is_measured
            && is_sent
        {
            add(of, row.record.sojourn());
        }
    }
    Ok(all)
}
