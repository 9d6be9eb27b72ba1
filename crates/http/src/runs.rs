//! What `sluice run --http` shows beside its live run: the progress of all runs, and their reports.
//!
//! | path | answer |
//! |---|---|
//! | `/runs` | the [`Board`], as JSON |
//! | `/report/N` | the report of run N, once it is written |

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use super::Answer;

/// What is shown of runs.
pub trait Board: Send + Sync {
    /// Returns the state as JSON: `total`, `done`, `failed`, `is_over` (whether no run goes on or will
    /// begin), `left_s` (null if it is not known), `live` (null, or the `number`, `name`, `elapsed_s` and
    /// `length_s` of the live run that goes on) and `runs`, a list of `number`, `name`, `state`, `part` (0 to 1), `folder` and `has_report`.
    fn json(&self) -> String;

    /// Returns the file of a run's report.
    fn report(&self, run: usize) -> Option<PathBuf>;
}

/// Answers a request of somebody who may see figures, unless it is about a router.
pub(crate) fn answer(path: &str, board: &Arc<dyn Board>) -> Option<Answer> {
    if path == "/runs" {
        return Some(Answer::json(board.json()));
    }
    // A number, so no path of the client's ever becomes one of the machine.
    let number = path.strip_prefix("/report/")?;
    let file = number.parse().ok().and_then(|run| board.report(run));
    Some(match file.map(fs::read_to_string) {
        Some(Ok(page)) => Answer::page(&page),
        _ => Answer::text(404, "there is no such report (yet)"),
    })
}
