//! Runs one variant of a scenario and records it.
//!
//! Observations of the backend become rows of the recording as they are reported. The measurements
//! of the flows follow at the end. A run that is interrupted, or whose recording cannot be written,
//! ends early and is marked partial.

use std::collections::BTreeMap;
use std::path::Path;

use sluice_core::record::Fate;
use sluice_core::{DropReason, Span, Stop, Time};
use sluice_loader::Ending;

use crate::flow::FlowReport;
use crate::live::{self, LaneReport, Listener, LiveError, LiveOptions, NOT_RECORDED, Observation};
use crate::simulated::{self, SimError};
use sluice_recording::metrics::measure;
use sluice_recording::{
    End, Environment, Keep, QueueSample, ReadError, RecordError, Recording, RunWriter, Status,
};
use sluice_scenario::metric::{FlowSummary, Summary};
use sluice_scenario::{Backend, Scenario, Variant};

/// The reason why a run has no result.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The recording could not be begun or written.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The recording could not be read back.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The live backend failed.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// The simulator failed.
    #[error(transparent)]
    Sim(#[from] SimError),
    /// An algorithm from a file failed, and its `on_error` is `end`.
    #[error("the run was ended: {0}")]
    Algorithm(String),
}

/// A run that failed after its recording was begun.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Failed {
    /// Why it failed.
    pub error: RunError,
    /// What was recorded until then, marked partial, if that could be written.
    pub recording: Option<Box<Recording>>,
}

impl<E: Into<RunError>> From<E> for Failed {
    fn from(error: E) -> Self {
        Failed {
            error: error.into(),
            recording: None,
        }
    }
}

/// A run that has ended.
#[derive(Debug)]
pub struct Finished {
    /// The recording.
    pub recording: Recording,
    /// The figures.
    pub summary: Summary,
    /// Whether this is the result of an earlier run of the same scenario by the same program.
    pub is_reused: bool,
    /// What the figures do not show, in words. An earlier run has none.
    pub remarks: Vec<String>,
}

impl Finished {
    /// Whether the run was ended early by request.
    pub fn is_interrupted(&self) -> bool {
        self.recording.run().status != Status::Complete
    }
}

/// Checks whether `variant` can run on `backend`, without starting anything. A simulation that is
/// too large is refused unless `any_size` holds.
///
/// # Errors
/// A missing privilege or congestion control, by name.
pub fn check(variant: &Variant, backend: Backend, any_size: bool) -> Result<(), RunError> {
    match backend {
        Backend::Live => live::check(&variant.scenario)?,
        Backend::Sim => simulated::check(&variant.scenario, any_size)?,
    }
    Ok(())
}

/// What is recorded of a run, and where.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The folder.
    pub dir: &'a Path,
    /// How much is recorded.
    pub keep: Keep,
    /// Whether pages of the run are drawn. Then a simulation keeps its rows in memory for them.
    pub has_pages: bool,
}

/// Runs `variant` on `backend` and records it in `target`. A live run is made with
/// the options `live`.
///
/// # Errors
/// [`RunError`]. The data recorded until then is kept and marked partial.
pub fn run(
    variant: &Variant,
    backend: Backend,
    live: LiveOptions<'_>,
    target: Target<'_>,
    started_at: String,
    interrupt: &Stop,
    progress: &mut dyn FnMut(Span),
) -> Result<Finished, RunError> {
    let environment = Environment::here(backend, started_at);
    let mut writer = RunWriter::create_keeping(target.keep, target.dir, variant, &environment)?;
    if target.has_pages && backend == Backend::Sim {
        writer.keep_rows();
    }
    let finished = record(variant, backend, live, writer, interrupt, progress)
        .map_err(|failed| failed.error)?;
    finished.recording.store_summary(&finished.summary)?;
    Ok(finished)
}

/// Runs `variant` like [`run()`] and records it with `writer`, on disk or in memory. The summary is
/// not stored.
///
/// # Errors
/// [`Failed`], with the data recorded until then.
pub fn record(
    variant: &Variant,
    backend: Backend,
    live: LiveOptions<'_>,
    writer: RunWriter,
    interrupt: &Stop,
    progress: &mut dyn FnMut(Span),
) -> Result<Finished, Failed> {
    let scenario = &variant.scenario;
    let (recording, mut remarks) = match backend {
        Backend::Live => {
            let recording = run_live(scenario, live, writer, interrupt, progress)?;
            (recording, Vec::new())
        }
        Backend::Sim => run_simulated(scenario, writer, interrupt, progress)?,
    };
    let summary = measure(&recording)?;
    remarks.extend(without_way(scenario, &summary));
    Ok(Finished {
        recording,
        summary,
        is_reused: false,
        remarks,
    })
}

/// Says that the rules of a scenario let nothing through.
fn without_way(scenario: &Scenario, summary: &Summary) -> Option<String> {
    let reason = DropReason::Denied.name();
    let denied = summary
        .pipes
        .iter()
        .filter_map(|pipe| pipe.drops.get(reason));
    let denied: u64 = denied.sum();
    let arrived = |flow: &FlowSummary| {
        flow.bytes.is_some_and(|bytes| bytes > 0)
            || flow.goodput_bps.is_some_and(|bps| bps > 0.0)
            || [flow.rtt, flow.up, flow.down].iter().flatten().count() > 0
    };
    let is_shut = scenario.rules.is_some() && denied > 0 && !summary.flows.iter().any(arrived);
    is_shut.then(|| {
        format!(
            "no flow got anything through the rules, and {denied} packets were denied: packets are \
             checked on their way `in`, too, and what no rule allows meets the last one (65535 deny)"
        )
    })
}

fn run_simulated(
    scenario: &Scenario,
    mut writer: RunWriter,
    interrupt: &Stop,
    progress: &mut dyn FnMut(Span),
) -> Result<(Recording, Vec<String>), Failed> {
    let ending = Ending::after(scenario.lead);
    let ended = simulated::run(scenario, &mut writer, interrupt, &ending, progress);
    let simulated::Ended { at, remarks } = match ended {
        Ok(ended) => ended,
        Err(error) => {
            let end = End::partial(Time::ZERO, error.to_string());
            return Err(failed(error, writer, end));
        }
    };
    if let Some(why) = ending.why() {
        let end = End::partial(at, why.to_owned());
        return Err(failed(RunError::Algorithm(why.to_owned()), writer, end));
    }
    let mut end = if at < Time::ZERO + scenario.duration {
        End::partial(at, INTERRUPTED)
    } else {
        End::complete(at)
    };
    end.stopped = ending.stopped();
    Ok((writer.finish(end)?, remarks))
}

fn run_live(
    scenario: &Scenario,
    live: LiveOptions<'_>,
    writer: RunWriter,
    interrupt: &Stop,
    progress: &mut dyn FnMut(Span),
) -> Result<Recording, Failed> {
    let mut listener = ObservationWriter {
        writer,
        failed: None,
        interrupt,
        progress,
        drops: BTreeMap::new(),
    };
    let outcome = match live::run(scenario, live, interrupt, &mut listener) {
        Ok(outcome) => outcome,
        Err(error) => {
            let end = End::partial(Time::ZERO, error.to_string());
            return Err(failed(error, listener.writer, end));
        }
    };
    if let Some(error) = listener.failed {
        return Err(error.into());
    }
    let mut writer = listener.writer;
    let lanes = [&outcome.router.up, &outcome.router.down];
    let lacks_rows = |lane: &&LaneReport| lane.lost.contains_key(NOT_RECORDED);
    let knows_drops = !lanes.iter().any(lacks_rows);
    for (instance, report) in scenario.instances().zip(&outcome.flows) {
        let interval = scenario.measure.interval;
        let drops = listener.drops.get(&instance.id).copied().unwrap_or(0);
        let drops = knows_drops.then_some(drops);
        report.write(&mut writer, &instance, interval, outcome.end, drops)?;
    }
    let mut end = match (&outcome.failure, &outcome.failed) {
        (Some(why), _) => End::partial(outcome.end, why.clone()),
        _ if outcome.is_interrupted => End::partial(outcome.end, INTERRUPTED),
        (None, Some(error)) => End::partial(outcome.end, error.to_string()),
        (None, None) => End::complete(Time::ZERO + scenario.duration),
    };
    end.stopped.clone_from(&outcome.stopped);
    for lane in [outcome.router.up, outcome.router.down] {
        for (cause, frames) in lane.lost {
            *end.lost.entry(cause).or_default() += frames;
        }
    }
    for (cause, packets) in outcome.flows.iter().flat_map(FlowReport::lost) {
        if packets > 0 {
            *end.lost.entry(cause.to_owned()).or_default() += packets;
        }
    }
    match (outcome.failure, outcome.failed) {
        (Some(why), _) => Err(failed(RunError::Algorithm(why), writer, end)),
        (None, Some(error)) => Err(failed(error, writer, end)),
        (None, None) => Ok(writer.finish(end)?),
    }
}

/// Ends the recording of a run that failed. The caller reports the error, which the partial
/// recording has, too.
fn failed(error: impl Into<RunError>, writer: RunWriter, end: End) -> Failed {
    Failed {
        error: error.into(),
        recording: writer.finish(end).ok().map(Box::new),
    }
}

/// The reason of a partial run that the user interrupted.
const INTERRUPTED: &str = "interrupted";

/// Writes the observations of the router; the first failure ends the run.
struct ObservationWriter<'a> {
    writer: RunWriter,
    failed: Option<RecordError>,
    interrupt: &'a Stop,
    progress: &'a mut dyn FnMut(Span),
    /// The packets that the router has dropped, by flow.
    drops: BTreeMap<u32, u64>,
}

/// Writes an observation of a router.
pub(crate) fn write_observation(
    writer: &mut RunWriter,
    observation: &Observation,
) -> Result<(), RecordError> {
    match observation {
        Observation::Packets(pipe, records) => {
            for record in records {
                writer.packet(*pipe, record)?;
            }
        }
        Observation::Releases(releases) => {
            for release in releases {
                writer.release(release)?;
            }
        }
        Observation::Arrivals(arrivals) => {
            for arrival in arrivals {
                writer.arrival(arrival)?;
            }
        }
        Observation::Queue {
            pipe,
            at,
            backlog,
            state,
        } => {
            for sample in QueueSample::backlog(*at, *pipe, *backlog) {
                writer.queue_sample(&sample)?;
            }
            for (queue, variable, value) in state {
                let sample = QueueSample::state(*at, *pipe, *queue, variable, *value);
                writer.queue_sample(&sample)?;
            }
        }
        Observation::Flow(..) => {}
    }
    Ok(())
}

impl Listener for ObservationWriter<'_> {
    fn observe(&mut self, observation: Observation) {
        if let Observation::Packets(_, records) = &observation {
            let dropped = records
                .iter()
                .filter(|record| matches!(record.fate, Fate::Dropped(_)));
            for record in dropped {
                *self.drops.entry(record.flow).or_default() += u64::from(record.segments);
            }
        }
        if self.failed.is_none()
            && let Err(error) = write_observation(&mut self.writer, &observation)
        {
            self.failed = Some(error);
            self.interrupt.stop();
        }
    }

    fn progress(&mut self, elapsed: Span) {
        (self.progress)(elapsed);
    }
}
