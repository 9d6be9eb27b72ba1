//! The quantiles of delays that boxes show: without the warm-up, and over all repetitions.

use sluice_core::record::Fate;
use sluice_core::{Span, Time};
use sluice_recording::figures::median;
use sluice_recording::{PacketRow, PingSample, ReadError, Recording, if_recorded};
use sluice_scenario::{Measured, PipeId};

use crate::model::{Cdf, DelayBox, box_name_of_queue};

/// The shares of the samples: the ends of whiskers and box, and the median.
const SHARES: [f64; 5] = [0.05, 0.25, 0.5, 0.75, 0.95];

/// Returns the boxes of the probes and queues of a run. Each quantile is the median of those of the
/// repetitions. The delays of `shown`, one of them, were collected before.
///
/// # Errors
/// A table cannot be read.
pub fn of(
    group: &[&Recording],
    shown: &Recording,
    of_shown: Delays,
) -> Result<Vec<DelayBox>, ReadError> {
    let mut of_shown = Some(of_shown);
    let mut all: Vec<(String, Vec<[f64; 5]>)> = Vec::new();
    for recording in group {
        let is_shown = std::ptr::eq(*recording, shown);
        let delays = match of_shown.take_if(|_| is_shown) {
            Some(delays) => delays,
            None => Delays::read(recording)?,
        };
        for (name, delays) in delays.all {
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

/// Collects the delays of the probes and queues of a run in ms, without the warm-up.
pub struct Delays {
    /// The name of each flow of probes, and the start of its measurement.
    probes: Vec<Option<(Time, String)>>,
    pipes: Vec<(PipeId, String)>,
    warm: Time,
    end: Time,
    /// The delays by name.
    all: Vec<(String, Vec<f64>)>,
}

impl Delays {
    /// Creates the collector for `recording`.
    pub fn new(recording: &Recording) -> Delays {
        let file = recording.run();
        let scenario = &file.scenario;
        let warmup = scenario.measure.warmup;
        let probes = scenario.instances().map(|instance| {
            let is_probe = instance.flow.kind.measured() == Measured::Delays;
            let from = Time::ZERO + instance.start.saturating_add(warmup);
            is_probe.then_some((from, instance.name))
        });
        let pipes = scenario.pipes();
        Delays {
            probes: probes.collect(),
            pipes: pipes
                .map(|(id, _)| (id, box_name_of_queue(id.word())))
                .collect(),
            warm: Time::ZERO + warmup,
            end: Time::from_ns(file.end_ns),
            all: Vec::new(),
        }
    }

    fn read(recording: &Recording) -> Result<Delays, ReadError> {
        let mut delays = Delays::new(recording);
        for probe in if_recorded(recording.pings())? {
            delays.probe(&probe?);
        }
        for row in if_recorded(recording.packets())? {
            delays.packet(&row?);
        }
        Ok(delays)
    }

    /// Adds the round-trip time of a probe. Probes come before packets.
    pub fn probe(&mut self, probe: &PingSample) {
        if let (Some(Some((from, name))), Some(rtt)) =
            (self.probes.get(probe.flow as usize), probe.rtt)
            && (*from..=self.end).contains(&probe.time)
        {
            add(&mut self.all, name, rtt);
        }
    }

    /// Adds the time that a packet waited.
    pub fn packet(&mut self, row: &PacketRow) {
        let is_measured = (self.warm..=self.end).contains(&row.record.at);
        let is_sent = matches!(row.record.fate, Fate::Sent | Fate::Marked);
        if is_measured
            && is_sent
            && let Some((_, name)) = self.pipes.iter().find(|(id, _)| *id == row.pipe)
        {
            add(&mut self.all, name, row.record.sojourn());
        }
    }
}

fn add(all: &mut Vec<(String, Vec<f64>)>, name: &str, delay: Span) {
    let delay = delay.as_ms_f64();
    match all.iter_mut().find(|(known, _)| known == name) {
        Some((_, delays)) => delays.push(delay),
        None => all.push((name.to_owned(), vec![delay])),
    }
}
