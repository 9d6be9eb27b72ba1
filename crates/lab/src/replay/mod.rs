//! `sluice replay`: a recorded arrival trace through one queue and link, in virtual time.
//!
//! A trace is CSV or a capture ([`Trace`]). The output is a row per packet, the algorithm's
//! variables over time, and a capture of the packets that left. [`sluice_core::link::Replay`]
//! defines the rules of the replay; `docs/replay.md` defines the formats. Memory does not grow with
//! the length of a trace, except by one entry per flow of a capture.

use std::path::PathBuf;

use sluice_core::link::{Link, LinkFiles, LinkParams, RateSource, Replay, Schedule};
use sluice_core::registry::Spec;
use sluice_core::{Rate, Rng, Time};
use sluice_loader::{Ending, names_file};
use sluice_recording::{ReadError, RecordError, Recording};
use sluice_scenario::trace::{Hash, Trace, TraceError};

mod clash;
mod draws;
mod output;
mod record;
mod sheet;
mod summary;
mod text;
mod words;

#[cfg(test)]
mod tests;

pub use draws::{Draws, DrawsError, parse_draws};
pub use output::Outputs;
pub use summary::{Sojourns, Summary};
pub use words::{QueueError, RateError, parse_queue, parse_rate};

use output::Writer;
use summary::Said;

/// The rate of the link.
#[derive(Clone, Debug)]
pub enum LinkRate {
    /// A constant rate.
    Constant(Rate),
    /// A rate that varies.
    Schedule {
        /// The rates.
        schedule: Schedule,
        /// The file of the rates.
        file: PathBuf,
    },
}

/// The packets to replay, and the settings.
#[derive(Clone, Debug)]
pub struct Job {
    /// The trace.
    pub trace: PathBuf,
    /// The queue.
    pub queue: Spec,
    /// The link's rate.
    pub rate: LinkRate,
    /// The value by which the queue identifies a packet's flow.
    pub hash: Hash,
    /// Seed of all random numbers.
    pub seed: u64,
    /// The numbers that the queue draws instead of those derived from the seed.
    pub draws: Option<Draws>,
    /// The outputs.
    pub outputs: Outputs,
    /// The folder and the start time (RFC 3339) of the recording, if one is requested.
    pub record: Option<(PathBuf, String)>,
}

/// The reason why a replay failed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The trace has an error.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// The parameters of the queue contradict each other.
    #[error("`{queue}`: {error}")]
    Queue {
        /// The queue.
        queue: Spec,
        /// The contradiction.
        error: sluice_core::param::ParamError,
    },
    /// An algorithm from a file failed, and its `on_error` is `end`.
    #[error("the replay was ended: {0}")]
    Algorithm(String),
    /// The run could not be continued.
    #[error(transparent)]
    Run(#[from] sluice_core::link::ReplayError),
    /// The queue needs more numbers than the file of draws has.
    #[error(
        "`{}` has {numbers} numbers; at {at} the queue needs another, for one of the first {packets} packets",
        file.display()
    )]
    Draws {
        /// The file.
        file: PathBuf,
        /// The length of the list.
        numbers: usize,
        /// The instant.
        at: Time,
        /// The packets that have arrived.
        packets: u64,
    },
    /// A file cannot be written.
    #[error("cannot write `{}`: {error}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the system or the library.
        error: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A file would be overwritten.
    #[error("{option} and {other} are the same file, `{}`", path.display())]
    SameFile {
        /// The file.
        path: PathBuf,
        /// The option that would write it.
        option: &'static str,
        /// The other use of the file.
        other: &'static str,
    },
    /// The trace is empty.
    #[error("`{}` has no packets", trace.display())]
    NoPackets {
        /// The trace.
        trace: PathBuf,
    },
    /// The file's ending belongs to no output format.
    #[error("cannot write `{}`: its name must end in {}", path.display(), .endings.join(" or "))]
    Ending {
        /// The file.
        path: PathBuf,
        /// The endings of the output formats.
        endings: &'static [&'static str],
    },
    /// The recording cannot be written.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The recording cannot be read back.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// There is no scenario that describes the replay.
    #[error("the replay cannot be recorded: {0}")]
    Undrawable(String),
    /// The trace has no bytes that a capture could contain.
    #[error("`{}` is CSV and has no bytes that a capture could hold; replay a capture", trace.display())]
    NoBytes {
        /// The trace.
        trace: PathBuf,
    },
    /// The trace has packets of several interfaces, which one capture cannot hold.
    #[error(
        "`{}` has packets of several link types, which one capture cannot hold; split it first",
        trace.display()
    )]
    SeveralLinks {
        /// The trace.
        trace: PathBuf,
    },
}

/// A replay that has ended.
#[derive(Debug)]
pub struct Replayed {
    /// The outcome of all packets.
    pub summary: Summary,
    /// The recording, if the job asks for one.
    pub recording: Option<Recording>,
}

/// Replays a trace. Calls `progress` from time to time with the number of bytes of the trace read
/// so far and the total.
///
/// # Errors
/// [`ReplayError`]. Unfinished files are removed.
pub fn run(job: &Job, progress: &mut dyn FnMut(u64, u64)) -> Result<Replayed, ReplayError> {
    let ending = Ending::new();
    ending.within(|| run_until(job, &ending, progress))
}

fn run_until(
    job: &Job,
    ending: &Ending,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Replayed, ReplayError> {
    clash::check(job)?;
    let mut trace = Trace::open(&job.trace, job.hash, job.seed)?;
    let mut writer = Writer::create(&job.outputs, job, trace.capture().is_some())?;
    let mut replay = match &job.draws {
        None => Replay::new(link(job)?, job.seed),
        Some(draws) => Replay::with_draws(link(job)?, Rng::from_list(draws.numbers.clone())),
    };
    while let Some(arrival) = trace.read()? {
        if replay.arrived() == 0 && arrival.time > LATE && names_file(&job.queue.to_string()) {
            sluice_loader::report(&format!(
                "the first packet arrives at {} s: a timer of `{}` is called for all of this time; to \
                 avoid that, subtract the time of the first packet from all times",
                arrival.time.as_ns() / 1_000_000_000,
                job.queue.algorithm.name
            ));
        }
        if replay.arrived().is_multiple_of(1 << 12) {
            let (read, size) = trace.progress();
            progress(read, size);
        }
        let slot = replay.slot();
        if let Some(capture) = trace.capture() {
            writer.keep(slot, capture)?;
        }
        replay.arrive(arrival.packet(slot), arrival.flow, &mut writer)?;
        writer.check()?;
        if let Some(why) = ending.why() {
            return Err(ReplayError::Algorithm(why.to_owned()));
        }
        check_draws(&replay, job)?;
    }
    if replay.arrived() == 0 {
        let trace = job.trace.clone();
        return Err(ReplayError::NoPackets { trace });
    }
    let end = replay.finish(&mut writer)?;
    check_draws(&replay, job)?;
    if let Some(why) = ending.why() {
        return Err(ReplayError::Algorithm(why.to_owned()));
    }
    let warnings = job.queue.warnings().into_iter().chain(trace.warnings());
    let said = Said {
        warnings: warnings.collect(),
        stopped: ending.stopped(),
    };
    writer.finish(end, said, (job, &trace))
}

/// A first packet that arrives later makes the timers of an algorithm from a file take seconds.
const LATE: Time = Time::from_ns(1_000_000_000_000);

fn check_draws(replay: &Replay, job: &Job) -> Result<(), ReplayError> {
    match (&job.draws, replay.lacks_draws_at()) {
        (Some(draws), Some(at)) => Err(ReplayError::Draws {
            file: draws.file.clone(),
            numbers: draws.numbers.len(),
            at,
            packets: replay.arrived(),
        }),
        _ => Ok(()),
    }
}

fn link(job: &Job) -> Result<Link, ReplayError> {
    let queue = job.queue.build().map_err(|error| ReplayError::Queue {
        queue: job.queue.clone(),
        error,
    })?;
    let mut params = LinkParams::default();
    let mut files = LinkFiles::default();
    match &job.rate {
        LinkRate::Constant(rate) => params.pipe.rate = *rate,
        LinkRate::Schedule { schedule, .. } => {
            files.rate = Some(RateSource::Schedule(schedule.clone()));
        }
    }
    Ok(Link::new(&params, files, queue, &Rng::from_seed(job.seed)))
}
