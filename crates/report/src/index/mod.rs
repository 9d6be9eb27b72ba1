//! `index.html`: a page over all runs of a folder, for readers who know nothing but the question which
//! queue is better for what.
//!
//! It is one file without scripts: a table per scenario with a small picture and the key figures of each
//! variant, what was expected and whether it came, and a sentence per queue that is made from the
//! figures (`words.rs`).

mod page;
mod picture;
mod words;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use sluice_core::Time;

use crate::pages::{PageError, write_file};
use sluice_recording::PAGE;
use sluice_recording::figures::median;
use sluice_recording::runs::{Found, Place, RunsError, runs_in};
use sluice_recording::{BACKLOG_PACKETS, ReadError, Recording, Status};
use sluice_scenario::metric::{Percentiles, PipeSummary, Summary};
use sluice_scenario::{Backend, Pipe, Scenario};

/// Why there is no index.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// The runs cannot be told.
    #[error(transparent)]
    Runs(#[from] RunsError),
    /// A run cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// It cannot be written.
    #[error(transparent)]
    Page(#[from] PageError),
}

/// The name of the page.
pub const INDEX: &str = "index.html";

/// Writes the index of all runs in `folder` into it; gives its path.
///
/// # Errors
/// [`IndexError`]; no half page is left.
pub fn write_index(folder: &Path) -> Result<PathBuf, IndexError> {
    let places = runs_in(folder)?;
    let entries = places
        .iter()
        .map(|place| Entry::of(folder, place))
        .collect::<Result<Vec<_>, _>>()?;
    let path = folder.join(INDEX);
    write_file(&path, page::html(&entries).as_bytes())?;
    Ok(path)
}

/// A scenario on the page.
pub(crate) struct Entry {
    /// Its path, which no other has.
    place: String,
    title: String,
    about: Option<String>,
    /// The page of all its runs, if there is one.
    link: Option<String>,
    rows: Vec<Row>,
}

/// A variant on a backend.
#[derive(Clone)]
pub(crate) struct Row {
    variant: String,
    backend: Backend,
    /// The name of the algorithm of the queue under test.
    algorithm: String,
    /// The scenario with all queues taken out: rows that share it differ in nothing else.
    setting: String,
    runs: usize,
    /// Why a run of it ended early.
    partial: Option<String>,
    /// The page of its first run.
    link: Option<String>,
    figures: Figures,
    /// How many expectations were met.
    met: usize,
    /// Those that were not.
    unmet: Vec<String>,
    trace: Trace,
}

/// The key figures: medians over its runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Figures {
    /// Payload of all flows, in bits per second.
    goodput: Option<f64>,
    /// Part of the link that was used.
    utilisation: Option<f64>,
    /// What the delays are those of.
    delay_of: DelayOf,
    /// Its median, in nanoseconds.
    p50: Option<f64>,
    /// Its 95th percentile.
    p95: Option<f64>,
    /// Jain's index.
    jain: Option<f64>,
    /// Packets dropped in both directions.
    drops: f64,
    /// Packets marked.
    marks: f64,
    /// Packets that arrived.
    packets: f64,
}

/// Whose delay is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum DelayOf {
    /// Round trips of probes.
    #[default]
    Pings,
    /// Packets in the queue.
    Packets,
}

impl DelayOf {
    const fn word(self) -> &'static str {
        match self {
            DelayOf::Pings => "pings",
            DelayOf::Packets => "packets",
        }
    }
}

/// A curve for the small picture.
#[derive(Clone, Debug, Default)]
pub(crate) struct Trace {
    /// What it shows.
    what: TraceOf,
    /// Seconds, and milliseconds or packets.
    points: Vec<(f64, f64)>,
}

/// What a curve shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TraceOf {
    /// Round trips of the first probes, in milliseconds.
    #[default]
    Ping,
    /// Packets waiting in the queue under test.
    Backlog,
}

impl Entry {
    fn of(folder: &Path, place: &Place) -> Result<Entry, ReadError> {
        let rows = place.results.iter().map(|found| Row::of(folder, found));
        let page = folder.join(&place.name).join(PAGE);
        Ok(Entry {
            place: place.name.clone(),
            title: place.title.clone(),
            about: place.about.clone(),
            link: page.is_file().then(|| relative(folder, &page)),
            rows: rows.collect::<Result<_, _>>()?,
        })
    }
}

impl Row {
    fn of(folder: &Path, found: &Found) -> Result<Row, ReadError> {
        let (result, recording) = (&found.result, &found.recording);
        let scenario = &recording.run().scenario;
        let summaries = result.summaries();
        let under_test = busiest(summaries[0]).map_or("up", |pipe| &pipe.name);
        let pipe = match under_test {
            "down" => &scenario.link.down,
            _ => &scenario.link.up,
        };
        let page = recording.dir().join(PAGE);
        Ok(Row {
            variant: result.variant.clone(),
            backend: result.backend,
            algorithm: pipe.queue.0.algorithm.name.to_owned(),
            setting: setting(scenario),
            runs: result.runs.len(),
            partial: result.runs.iter().find_map(|run| match &run.status {
                Status::Complete => None,
                Status::Partial { reason } => Some(reason.clone()),
                Status::Running(process) => Some(format!("process {} records it", process.pid)),
            }),
            link: page.is_file().then(|| relative(folder, &page)),
            figures: Figures::of(&summaries),
            met: result
                .expect
                .iter()
                .filter(|outcome| outcome.passed)
                .count(),
            unmet: result.failed().map(ToString::to_string).collect(),
            trace: Trace::of(recording, under_test)?,
        })
    }
}

impl Row {
    /// Whether the two differ in nothing but their queues.
    fn is_comparable(&self, other: &Row) -> bool {
        self.backend == other.backend && self.setting == other.setting
    }
}

/// The scenario without its queues, and without what is expected of them.
fn setting(scenario: &Scenario) -> String {
    let mut bare = scenario.clone();
    bare.expect.clear();
    let queue = Pipe::unlimited().queue;
    for link in std::iter::once(&mut bare.link).chain(&mut bare.hops) {
        link.up.queue = queue.clone();
        link.down.queue = queue.clone();
    }
    bare.rules = None;
    bare.to_toml()
}

impl Figures {
    fn of(runs: &[&Summary]) -> Figures {
        let over = |value: &dyn Fn(&Summary) -> Option<f64>| {
            median(&runs.iter().filter_map(|run| value(run)).collect::<Vec<_>>())
        };
        let ping = |s: &Summary| s.flows.iter().find_map(|flow| flow.rtt);
        let has_ping = runs.iter().any(|run| ping(run).is_some());
        let delay = |s: &Summary| match has_ping {
            true => ping(s),
            false => busiest(s).and_then(|pipe| pipe.sojourn),
        };
        let percentile =
            |pick: fn(&Percentiles) -> u64| over(&|s| delay(s).as_ref().map(|p| pick(p) as f64));
        let total = |of: &dyn Fn(&PipeSummary) -> u64| {
            over(&|s| Some(s.pipes.iter().map(of).sum::<u64>() as f64)).unwrap_or(0.0)
        };
        Figures {
            goodput: over(&|s| s.total_goodput_bps),
            utilisation: over(&|s| busiest(s)?.utilisation),
            delay_of: match has_ping {
                true => DelayOf::Pings,
                false => DelayOf::Packets,
            },
            p50: percentile(|p| p.p50_ns),
            p95: percentile(|p| p.p95_ns),
            jain: over(&|s| s.jain),
            drops: total(&|pipe| pipe.drops.values().sum()),
            marks: total(&|pipe| pipe.marks),
            packets: total(&|pipe| pipe.packets),
        }
    }
}

impl Trace {
    fn of(recording: &Recording, under_test: &str) -> Result<Trace, ReadError> {
        let seconds = |time: Time| time.as_ns() as f64 / 1e9;
        let mut points = Vec::new();
        let mut first = None;
        for probe in recording.pings()? {
            let probe = probe?;
            if *first.get_or_insert(probe.flow) == probe.flow
                && let Some(rtt) = probe.rtt
            {
                points.push((seconds(probe.time), rtt.as_ms_f64()));
            }
        }
        if !points.is_empty() {
            return Ok(Trace {
                what: TraceOf::Ping,
                points,
            });
        }
        for sample in recording.queue_samples()? {
            let sample = sample?;
            if sample.variable == BACKLOG_PACKETS && sample.pipe.word() == under_test {
                points.push((seconds(sample.time), sample.value));
            }
        }
        Ok(Trace {
            what: TraceOf::Backlog,
            points,
        })
    }
}

/// The direction that is used most: the one under test.
fn busiest(summary: &Summary) -> Option<&PipeSummary> {
    let key = |pipe: &PipeSummary| pipe.utilisation.unwrap_or(pipe.packets as f64);
    let mut pipes = summary.pipes.iter();
    let first = pipes.next()?;
    Some(pipes.fold(first, |a, b| if key(b) > key(a) { b } else { a }))
}

/// `path` as a link on a page in `folder`.
fn relative(folder: &Path, path: &Path) -> String {
    let below = path.strip_prefix(folder).unwrap_or(path);
    let mut link = String::new();
    for byte in below.to_string_lossy().bytes() {
        // RFC 3986 section 2.3, and the slash between two words of a path.
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                link.push(char::from(byte));
            }
            byte => link.push_str(&format!("%{byte:02X}")),
        }
    }
    link
}
