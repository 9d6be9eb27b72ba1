//! Carrying out one variant of a scenario and recording it.
//!
//! The backend runs, its observations become rows of the recording as they come, and what flows
//! measured follows at the end. A run that is interrupted, or whose recording cannot be written any
//! more, ends early and is marked partial.

use std::path::Path;

use sluice_core::{Span, Stop, Time};

use crate::live::{self, Listener, LiveError, Observation};
use crate::simulated::{self, SimError};
use sluice_recording::metrics::measure;
use sluice_recording::{
    End, Environment, QueueSample, ReadError, RecordError, Recording, RunWriter, Status,
};
use sluice_scenario::metric::Summary;
use sluice_scenario::{Backend, Scenario, Variant};

/// Why a run gave no result.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The recording could not be begun or written.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The recording could not be read back.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The live backend.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// The simulator.
    #[error(transparent)]
    Sim(#[from] SimError),
}

/// A run that has ended.
#[derive(Debug)]
pub struct Finished {
    /// What it wrote.
    pub recording: Recording,
    /// Its figures.
    pub summary: Summary,
    /// Whether it is an earlier run, of the same scenario by the same program.
    pub is_reused: bool,
}

impl Finished {
    /// Whether it was ended by request, before its time.
    pub fn is_interrupted(&self) -> bool {
        self.recording.run().status != Status::Complete
    }
}

/// Says what would keep `variant` from running on `backend`, without starting anything.
///
/// # Errors
/// A missing privilege or congestion control, by name.
pub fn check(variant: &Variant, backend: Backend) -> Result<(), RunError> {
    match backend {
        Backend::Live => live::check(&variant.scenario)?,
        Backend::Sim => simulated::check(&variant.scenario)?,
    }
    Ok(())
}

/// What carries a variant out.
#[derive(Clone, Copy, Debug)]
pub struct Carrier {
    /// The simulator or the kernel.
    pub backend: Backend,
    /// The core that the router of a live run stays on; the kernel chooses if there is none.
    pub core: Option<usize>,
}

impl From<Backend> for Carrier {
    fn from(backend: Backend) -> Carrier {
        Carrier {
            backend,
            core: None,
        }
    }
}

/// Carries `variant` out by `carrier` and records it in the folder `dir`.
///
/// # Errors
/// [`RunError`]. What was recorded until then is kept and marked partial.
pub fn run(
    variant: &Variant,
    carrier: impl Into<Carrier>,
    dir: &Path,
    started_at: String,
    interrupt: &Stop,
    progress: &mut dyn FnMut(Span),
) -> Result<Finished, RunError> {
    let carrier = carrier.into();
    let environment = Environment::here(carrier.backend, started_at);
    let writer = RunWriter::create(dir, variant, &environment)?;
    let scenario = &variant.scenario;
    let recording = match carrier.backend {
        Backend::Live => run_live(scenario, carrier.core, writer, interrupt, progress)?,
        Backend::Sim => run_simulated(scenario, writer, interrupt, progress)?,
    };
    let summary = measure(&recording)?;
    recording.store_summary(&summary)?;
    Ok(Finished {
        recording,
        summary,
        is_reused: false,
    })
}

fn run_simulated(
    scenario: &Scenario,
    mut writer: RunWriter,
    interrupt: &Stop,
    progress: &mut dyn FnMut(Span),
) -> Result<Recording, RunError> {
    let at = match simulated::run(scenario, &mut writer, interrupt, progress) {
        Ok(at) => at,
        Err(error) => {
            // The error of the run is the one to tell; the partial recording says it too.
            let _ = writer.finish(End::partial(Time::ZERO, error.to_string()));
            return Err(error.into());
        }
    };
    let end = if at < Time::ZERO + scenario.duration {
        End::partial(at, INTERRUPTED)
    } else {
        End::complete(at)
    };
    Ok(writer.finish(end)?)
}

fn run_live(
    scenario: &Scenario,
    core: Option<usize>,
    writer: RunWriter,
    interrupt: &Stop,
    progress: &mut dyn FnMut(Span),
) -> Result<Recording, RunError> {
    let mut recorder = Recorder {
        writer,
        failed: None,
        interrupt,
        progress,
    };
    let outcome = match live::run(scenario, core, interrupt, &mut recorder) {
        Ok(outcome) => outcome,
        Err(error) => {
            // The error of the run is the one to tell; the partial recording says it too.
            let _ = recorder
                .writer
                .finish(End::partial(Time::ZERO, error.to_string()));
            return Err(error.into());
        }
    };
    if let Some(error) = recorder.failed {
        return Err(error.into());
    }
    let mut writer = recorder.writer;
    for (instance, report) in scenario.instances().zip(&outcome.flows) {
        let interval = scenario.measure.interval;
        report.write(&mut writer, &instance, interval, outcome.end)?;
    }
    let mut end = if outcome.is_interrupted {
        End::partial(outcome.end, INTERRUPTED)
    } else {
        End::complete(Time::ZERO + scenario.duration)
    };
    for lane in [outcome.router.up, outcome.router.down] {
        for (cause, frames) in lane.lost {
            *end.lost.entry(cause).or_default() += frames;
        }
    }
    Ok(writer.finish(end)?)
}

/// Why a run that the user ended is partial.
const INTERRUPTED: &str = "interrupted";

/// Writes what the router saw; the first failure ends the run.
struct Recorder<'a> {
    writer: RunWriter,
    failed: Option<RecordError>,
    interrupt: &'a Stop,
    progress: &'a mut dyn FnMut(Span),
}

impl Recorder<'_> {
    fn write(&mut self, observation: &Observation) -> Result<(), RecordError> {
        match observation {
            Observation::Packets(pipe, records) => {
                for record in records {
                    self.writer.packet(*pipe, record)?;
                }
            }
            Observation::Releases(releases) => {
                for release in releases {
                    self.writer.release(release)?;
                }
            }
            Observation::Arrivals(arrivals) => {
                for arrival in arrivals {
                    self.writer.arrival(arrival)?;
                }
            }
            Observation::Queue {
                pipe,
                at,
                backlog,
                state,
            } => {
                for sample in QueueSample::backlog(*at, *pipe, *backlog) {
                    self.writer.queue_sample(&sample)?;
                }
                for (queue, variable, value) in state {
                    let sample = QueueSample::state(*at, *pipe, *queue, variable, *value);
                    self.writer.queue_sample(&sample)?;
                }
            }
            Observation::Flow(..) => {}
        }
        Ok(())
    }
}

impl Listener for Recorder<'_> {
    fn observe(&mut self, observation: Observation) {
        if self.failed.is_none()
            && let Err(error) = self.write(&observation)
        {
            self.failed = Some(error);
            self.interrupt.stop();
        }
    }

    fn progress(&mut self, elapsed: Span) {
        (self.progress)(elapsed);
    }
}
