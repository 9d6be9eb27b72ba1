//! The quantiles of delays that boxes show: without the warm-up, and over all repetitions. The
//! distributions of the repetition that is shown are without the warm-up, too.

use std::iter::repeat_n;
use std::ops::RangeInclusive;

use sluice_core::record::Fate;
use sluice_core::{Span, Time};
use sluice_recording::figures::median;
use sluice_recording::{ReadError, Recording, if_recorded};
use sluice_scenario::{Measured, PipeId};

use crate::model::{Cdf, Queue, Run, Verdict};

/// The shares of the samples: the ends of whiskers and box, and the median.
const SHARES: [f64; 5] = [0.05, 0.25, 0.5, 0.75, 0.95];

/// What a box shows: a flow of probes or a queue, by name.
#[derive(Clone, PartialEq, Eq)]
enum Of {
    Probes(String),
    Queue(String),
}

/// Gives the probes and queues of a run their boxes, and the queues their distributions. Each quantile
/// of a box is the median of those of the repetitions. The packets of the repetition that is `shown`
/// are in the run already, not thinned yet.
///
/// # Errors
/// A table cannot be read.
pub fn fill(run: &mut Run, group: &[&Recording], shown: &Recording) -> Result<(), ReadError> {
    let mut all: Vec<(Of, Vec<[f64; 5]>)> = Vec::new();
    for recording in group {
        let is_shown = std::ptr::eq(*recording, shown);
        let packets = match is_shown {
            true => shown_delays(run, shown),
            false => queue_delays(recording)?,
        };
        for (of, delays) in probe_delays(recording)?.into_iter().chain(packets) {
            let cdf = Cdf::of_delays(delays);
            let quantiles = SHARES.map(|share| cdf.quantile(share));
            if is_shown
                && let Of::Queue(name) = &of
                && let Some(queue) = run.queues.iter_mut().find(|queue| queue.name == *name)
            {
                queue.sojourn_cdf = Some(cdf);
            }
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

/// Delays in nanoseconds.
type Delays = Vec<(Of, Vec<u64>)>;

fn add(all: &mut Delays, of: &Of, delay: Span) {
    let delay = delay.as_ns();
    match all.iter_mut().find(|(known, _)| known == of) {
        Some((_, delays)) => delays.push(delay),
        None => all.push((of.clone(), vec![delay])),
    }
}

/// The delays of the probes of a recording, without the warm-up.
fn probe_delays(recording: &Recording) -> Result<Delays, ReadError> {
    let file = recording.run();
    let scenario = &file.scenario;
    let end = Time::from_ns(file.end_ns);
    // The start of measurement of each flow of probes.
    let probes: Vec<Option<(Time, Of)>> = scenario
        .instances()
        .map(|instance| {
            let is_probe = instance.flow.kind.measured() == Measured::Delays;
            let from = Time::ZERO + instance.start.saturating_add(scenario.measure.warmup);
            is_probe.then(|| (from, Of::Probes(instance.name.clone())))
        })
        .collect();
    let mut all = Delays::new();
    for probe in if_recorded(recording.pings())?.bounded()? {
        let probe = probe?;
        if let (Some(Some((from, of))), Some(rtt)) = (probes.get(probe.flow as usize), probe.rtt)
            && (*from..=end).contains(&probe.time)
        {
            add(&mut all, of, rtt);
        }
    }
    Ok(all)
}

/// The time that is measured.
fn measured(recording: &Recording) -> RangeInclusive<Time> {
    let file = recording.run();
    Time::ZERO + file.scenario.measure.warmup..=Time::from_ns(file.end_ns)
}

/// The delays of the packets that the queues of a recording sent, without the warm-up.
fn queue_delays(recording: &Recording) -> Result<Delays, ReadError> {
    let measured = measured(recording);
    let pipes: Vec<(PipeId, Of)> = recording
        .run()
        .scenario
        .pipes()
        .map(|(id, _)| (id, Of::Queue(id.word().to_owned())))
        .collect();
    let mut delays: Vec<Vec<u64>> = vec![Vec::new(); pipes.len()];
    if_recorded(recording.packets())?.for_each_passage(|passage| {
        let is_sent = matches!(passage.fate, Fate::Sent | Fate::Marked);
        if let Some(place) = pipes.iter().position(|(id, _)| *id == passage.pipe)
            && is_sent
            && measured.contains(&passage.at)
        {
            let wire_packets = usize::from(passage.segments);
            delays[place].extend(repeat_n(passage.sojourn().as_ns(), wire_packets));
        }
    })?;
    Ok(pipes.into_iter().map(|(_, of)| of).zip(delays).collect())
}

/// The same from the packets of a run.
fn shown_delays(run: &Run, shown: &Recording) -> Delays {
    let measured = measured(shown);
    let delays = |queue: &Queue| {
        let packets = &queue.packets;
        let counted = packets.rows().filter(|row| {
            row.verdict != Verdict::Dropped && measured.contains(&Time::from_ns(row.at_ns))
        });
        let delays = counted
            .flat_map(|row| repeat_n(row.sojourn_ns, usize::from(row.segments)))
            .collect();
        (Of::Queue(queue.name.clone()), delays)
    };
    run.queues.iter().map(delays).collect()
}
