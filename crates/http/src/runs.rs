//! The page of runs under way: what `sluice run --http` shows.
//!
//! | path | answer |
//! |---|---|
//! | `/` | the page |
//! | `/state` | the [`Board`], as JSON |
//! | `/report/N` | the report of run N, once it is written |

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use super::Answer;
use super::request::Method;

/// What is shown of runs.
pub trait Board: Send + Sync {
    /// Returns the state as JSON: `total`, `done`, `failed`, `left_s` (null if it is not known) and
    /// `runs`, a list of `number`, `name`, `state`, `part` (0 to 1) and `has_report`.
    fn json(&self) -> String;

    /// Returns the file of a run's report.
    fn report(&self, run: usize) -> Option<PathBuf>;
}

/// The page. It has no figures, so everybody may have it.
pub(crate) const PAGE: &str = include_str!("runs.html");

/// Answers a request of somebody who may see figures.
pub(crate) fn answer(method: Method, path: &str, board: &Arc<dyn Board>) -> Answer {
    if method == Method::Post {
        return Answer::text(405, "only GET");
    }
    if path == "/state" {
        return Answer::json(board.json());
    }
    // A number, so no path of the client's ever becomes one of the machine.
    let Some(number) = path.strip_prefix("/report/") else {
        return Answer::text(404, "there are /, /state and /report/N");
    };
    let file = number.parse().ok().and_then(|run| board.report(run));
    match file.map(fs::read_to_string) {
        Some(Ok(page)) => Answer::page(&page),
        _ => Answer::text(404, "there is no such report (yet)"),
    }
}
