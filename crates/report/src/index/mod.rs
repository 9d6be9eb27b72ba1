//! `index.html`: a page over all runs of a folder, which shows which queue is best for which
//! purpose.
//!
//! The page is drawn by the web app, like a report. It shows for each scenario the key figures of the
//! variants, a small picture of each, the expectations, and a judgement in words that is derived from
//! the figures (`judgement`).

pub mod model;
mod overall;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use serde::Serialize;
use sluice_core::Time;
#[cfg(test)]
use ts_rs::TS;

use self::model::Index;
use crate::html::page;
use crate::judgement::{Candidate, Subject};
use crate::pages::{PageError, relative, write_own};
use sluice_recording::PAGE;
use sluice_recording::runs::{Found, Place, RunsError, runs_in};
use sluice_recording::{BACKLOG_PACKETS, ReadError, Recording, Status, if_recorded};
use sluice_scenario::metric::Summary;

/// The reason why no index was written.
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
    write_own(&path, index_html(&Index::of(&entries)).as_bytes())?;
    Ok(path)
}

/// Returns the page of an index.
fn index_html(index: &Index) -> String {
    page(INDEX_PAGE, "Sluice: all runs", index)
}

/// A scenario with its runs.
struct Entry {
    /// Folder below that of the index, unique.
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
    /// The reason why one of the runs ended early.
    partial: Option<String>,
    /// The report of its first run.
    link: Option<String>,
    /// Number of expectations that were met.
    met: usize,
    /// The expectations that were not met.
    unmet: Vec<String>,
    curve: Curve,
}

/// A curve for a small picture.
#[derive(Clone, Debug, Default)]
struct Curve {
    of: TraceOf,
    /// Seconds, and milliseconds or packets.
    points: Vec<(f64, f64)>,
}

/// The content of a curve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(TS))]
#[serde(rename_all = "lowercase")]
pub enum TraceOf {
    /// Round-trip times of the probes whose delay is compared, in milliseconds.
    #[default]
    Ping,
    /// Packets in the queue under test.
    Backlog,
}

impl Entry {
    fn of(folder: &Path, place: &Place) -> Result<Entry, ReadError> {
        let summaries: Vec<_> = place
            .results
            .iter()
            .flat_map(|found| found.result.summaries())
            .collect();
        let subject = Subject::of(&summaries);
        let rows = place
            .results
            .iter()
            .map(|found| Row::of(folder, found, &subject));
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
    fn of(folder: &Path, found: &Found, subject: &Subject<'_>) -> Result<Row, ReadError> {
        let (result, recording) = (&found.result, &found.recording);
        let summaries = result.summaries();
        let cut_short = result.runs.iter().find_map(|run| match &run.status {
            Status::Complete => None,
            Status::Partial { reason } => Some(reason.clone()),
            Status::Running(process) => Some(format!("process {} is recording it", process.pid)),
        });
        let partial = cut_short.or_else(|| result.stopped().next().map(str::to_owned));
        let page = recording.dir().join(PAGE);
        let name = result.variant.clone();
        let is_complete = partial.is_none();
        let candidate = Candidate::of(name, recording.run(), &summaries, is_complete, subject);
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
            curve: Curve::of(recording, &summaries, subject)?,
        })
    }
}

impl Curve {
    /// Reads the round trips of the ping whose delay the table shows; without a reply, the backlog.
    fn of(
        recording: &Recording,
        summaries: &[&Summary],
        subject: &Subject<'_>,
    ) -> Result<Curve, ReadError> {
        let seconds = |time: Time| time.as_ns() as f64 / 1e9;
        let ping = summaries.iter().find_map(|run| subject.probes.main(run));
        let mut flows = recording.run().flows.iter();
        let ping = ping.and_then(|ping| Some(flows.find(|flow| flow.name == ping.name)?.id));
        let mut points = Vec::new();
        for probe in if_recorded(recording.pings())?.bounded()? {
            let probe = probe?;
            if Some(probe.flow) == ping
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
        for sample in if_recorded(recording.queue_samples())?.bounded()? {
            let sample = sample?;
            if sample.variable == BACKLOG_PACKETS && sample.pipe.word() == subject.pipe {
                points.push((seconds(sample.time), sample.value));
            }
        }
        Ok(Curve {
            of: TraceOf::Backlog,
            points,
        })
    }
}

const INDEX_PAGE: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../web/dist/index.html"
));
