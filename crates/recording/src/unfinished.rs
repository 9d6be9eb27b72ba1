//! Recordings of runs that were not finished: interrupted, failed, killed, or still going on.
//!
//! Their figures cover another time than those of a whole run, so they are not put beside them.

use std::path::PathBuf;

use super::reader::Recording;

/// A recording that was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfinished {
    /// The folder.
    pub folder: PathBuf,
    /// Why the run was not finished, in words.
    pub why: String,
    /// Whether a process may still be recording the run.
    pub goes_on: bool,
}

impl Unfinished {
    /// Returns what was not finished of `recording`; `None` if its run is complete.
    pub fn of(recording: &Recording) -> Option<Unfinished> {
        Some(Unfinished {
            folder: recording.dir().to_owned(),
            why: recording.unfinished()?,
            goes_on: recording.goes_on(),
        })
    }

    /// Says what to do about `all`.
    pub fn advice(all: &[Unfinished]) -> &'static str {
        match all.iter().any(|one| one.goes_on) {
            true => "wait for its end",
            false => "run the scenario or the program again",
        }
    }

    /// Names the first few of `all`.
    pub fn list(all: &[Unfinished]) -> String {
        let named = |one: &Unfinished| format!("`{}` ({})", one.folder.display(), one.why);
        let mut names: Vec<String> = all.iter().take(MOST_NAMED).map(named).collect();
        if let more @ 1.. = all.len().saturating_sub(MOST_NAMED) {
            names.push(format!("{more} more"));
        }
        names.join(", ")
    }
}

/// The most runs that a message names.
const MOST_NAMED: usize = 3;

/// Takes the recordings of unfinished runs from `recordings`, and returns them.
pub fn take_unfinished(recordings: &mut Vec<Recording>) -> Vec<Unfinished> {
    let mut left_out = Vec::new();
    recordings.retain(|recording| {
        let unfinished = Unfinished::of(recording);
        let is_whole = unfinished.is_none();
        left_out.extend(unfinished);
        is_whole
    });
    left_out
}
