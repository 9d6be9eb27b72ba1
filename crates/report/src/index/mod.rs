//! `index.html`: a page over all runs of a folder, which answers the question which queue is best for
//! what.
//!
//! The page is drawn by the web app, like a report. It shows for each scenario the key figures of the
//! variants, a small picture of each, the expectations, and a judgement in words that is derived from
//! the figures (`words`).

pub mod model;
mod words;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use serde::Serialize;
use sluice_core::Time;
#[cfg(test)]
use ts_rs::TS;

use self::model::Index;
pub(crate) use self::words::{Candidate, judge};

use crate::index_html;
use crate::pages::{PageError, write_file};
use sluice_recording::PAGE;
use sluice_recording::figures::median;
use sluice_recording::runs::{Found, Place, RunsError, runs_in};
use sluice_recording::{BACKLOG_PACKETS, ReadError, Recording, RunFile, Status};
use sluice_scenario::metric::{Percentiles, PipeSummary, Summary};
use sluice_scenario::{Pipe, Scenario};

/// Why no index was written.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    /// The runs cannot be listed.
    #[error(transparent)]
    Runs(#[from] RunsError),
    /// A run cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The page cannot be written.
    #[error(transparent)]
    Page(#[from] PageError),
}

/// The name of the page.
pub const INDEX: &str = "index.html";

/// Writes the index of all runs in `folder` into the folder, and returns its path.
///
/// # Errors
/// [`IndexError`]. No incomplete page is left behind.
pub fn write_index(folder: &Path) -> Result<PathBuf, IndexError> {
    let places = runs_in(folder)?;
    let entries = places
        .iter()
        .map(|place| Entry::of(folder, place))
        .collect::<Result<Vec<_>, _>>()?;
    let path = folder.join(INDEX);
    write_file(&path, index_html(&Index::of(&entries)).as_bytes())?;
    Ok(path)
}

/// A scenario with its runs.
struct Entry {
    /// Its folder below that of the index, unique.
    place: String,
    title: String,
    about: Option<String>,
    /// The report of all its runs, if there is one.
    link: Option<String>,
    rows: Vec<Row>,
}

/// A variant on a backend.
#[derive(Clone)]
struct Row {
    candidate: Candidate,
    runs: usize,
    /// Why one of the runs ended early.
    partial: Option<String>,
    /// The report of its first run.
    link: Option<String>,
    /// Number of expectations that were met.
    met: usize,
    /// The expectations that were not met.
    unmet: Vec<String>,
    curve: Curve,
}

/// The key figures of a variant, as medians over its runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Figures {
    /// Goodput of all flows, in bits per second.
    goodput: Option<f64>,
    /// Share of the link that was used.
    utilisation: Option<f64>,
    /// What the delays were measured on.
    delay_of: DelayOf,
    /// Median delay in nanoseconds.
    p50: Option<f64>,
    /// 95th percentile of the delay.
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

/// What delays are measured on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(TS))]
#[serde(rename_all = "lowercase")]
pub enum DelayOf {
    /// The round trips of probes.
    #[default]
    Pings,
    /// The sojourn times of packets in the queue.
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

/// A curve for a small picture.
#[derive(Clone, Debug, Default)]
struct Curve {
    of: TraceOf,
    /// Seconds, and milliseconds or packets.
    points: Vec<(f64, f64)>,
}

/// What a curve shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(TS))]
#[serde(rename_all = "lowercase")]
pub enum TraceOf {
    /// Round-trip times of the first flow of probes, in milliseconds.
    #[default]
    Ping,
    /// Packets in the queue under test.
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
        let summaries = result.summaries();
        let partial = result.runs.iter().find_map(|run| match &run.status {
            Status::Complete => None,
            Status::Partial { reason } => Some(reason.clone()),
            Status::Running(process) => Some(format!("process {} is recording it", process.pid)),
        });
        let page = recording.dir().join(PAGE);
        let name = result.variant.clone();
        let candidate = Candidate::of(name, recording.run(), &summaries, partial.is_none());
        Ok(Row {
            candidate,
            runs: result.runs.len(),
            partial,
            link: page.is_file().then(|| relative(folder, &page)),
            met: result
                .expect
                .iter()
                .filter(|outcome| outcome.passed)
                .count(),
            unmet: result.failed().map(ToString::to_string).collect(),
            curve: Curve::of(recording, pipe_under_test(summaries[0]))?,
        })
    }
}

impl Candidate {
    /// A variant by its first run and the summaries of all of its runs.
    ///
    /// # Panics
    /// If there are no summaries.
    pub(crate) fn of(
        name: String,
        run: &RunFile,
        summaries: &[&Summary],
        is_complete: bool,
    ) -> Candidate {
        let scenario = &run.scenario;
        let pipe = match pipe_under_test(summaries[0]) {
            "down" => &scenario.link.down,
            _ => &scenario.link.up,
        };
        Candidate {
            name,
            backend: run.environment.backend,
            algorithm: pipe.queue.0.algorithm.name.to_owned(),
            setting: setting(scenario),
            is_complete,
            figures: Figures::of(summaries),
        }
    }
}

/// The scenario without its queues, its expectations and its seed.
fn setting(scenario: &Scenario) -> String {
    let mut bare = scenario.clone();
    bare.expect.clear();
    bare.seed = 0;
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

impl Curve {
    fn of(recording: &Recording, under_test: &str) -> Result<Curve, ReadError> {
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
            return Ok(Curve {
                of: TraceOf::Ping,
                points,
            });
        }
        for sample in recording.queue_samples()? {
            let sample = sample?;
            if sample.variable == BACKLOG_PACKETS && sample.pipe.word() == under_test {
                points.push((seconds(sample.time), sample.value));
            }
        }
        Ok(Curve {
            of: TraceOf::Backlog,
            points,
        })
    }
}

/// The name of the pipe under test: the busiest one.
fn pipe_under_test(summary: &Summary) -> &str {
    busiest(summary).map_or("up", |pipe| &pipe.name)
}

/// The pipe with the highest utilisation.
fn busiest(summary: &Summary) -> Option<&PipeSummary> {
    let key = |pipe: &PipeSummary| pipe.utilisation.unwrap_or(pipe.packets as f64);
    let mut pipes = summary.pipes.iter();
    let first = pipes.next()?;
    Some(pipes.fold(first, |a, b| if key(b) > key(a) { b } else { a }))
}

/// `path` as a relative URL on a page in `folder`.
fn relative(folder: &Path, path: &Path) -> String {
    let below = path.strip_prefix(folder).unwrap_or(path);
    let mut link = String::new();
    for byte in below.to_string_lossy().bytes() {
        // The unreserved characters of RFC 3986 section 2.3, and the slash between segments.
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                link.push(char::from(byte));
            }
            byte => link.push_str(&format!("%{byte:02X}")),
        }
    }
    link
}
