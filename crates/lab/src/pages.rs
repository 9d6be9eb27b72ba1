//! Writing files for people: pages and pictures, whole or not at all.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::recording::{ReadError, Recording};
use crate::report;
use crate::report::model::Fact;
use crate::report_of::report_of;
use crate::results::VariantResult;

/// The page of a run, and that of all runs of a scenario.
pub const PAGE: &str = "report.html";

/// Why a page was not written.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// A recording cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A file cannot be written.
    #[error("cannot write `{}`: {error}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
}

/// Writes the page that draws `recordings` over each other.
///
/// # Errors
/// [`PageError`]; no half page is left.
pub fn write_page(path: &Path, recordings: &[&Recording]) -> Result<(), PageError> {
    write_file(path, report::html(&report_of(recordings)?).as_bytes())
}

/// Writes the page of a scenario: the first run of each of `results`, with the spread over the others
/// among the facts.
///
/// # Errors
/// [`PageError`]; no half page is left.
pub fn write_overview(
    path: &Path,
    results: &[VariantResult],
    firsts: &[&Recording],
) -> Result<(), PageError> {
    let mut page = report_of(firsts)?;
    for (run, result) in page.runs.iter_mut().zip(results) {
        let facts = result.spread_in_words().into_iter();
        run.facts
            .extend(facts.map(|(label, value)| Fact::new(label, value)));
    }
    write_file(path, report::html(&page).as_bytes())
}

/// Writes beside the file first, so that it is either whole or not there. A link is followed, and
/// what is no regular file (a device, a pipe) is written to as it is.
///
/// # Errors
/// [`PageError::Write`].
pub fn write_file(path: &Path, content: &[u8]) -> Result<(), PageError> {
    let fail = |error| PageError::Write {
        path: path.to_owned(),
        error,
    };
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if fs::metadata(&target).is_ok_and(|there| !there.is_file()) {
        return fs::write(&target, content).map_err(fail);
    }
    let mut part = target.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    fs::write(&part, content)
        .and_then(|()| fs::rename(&part, &target))
        .map_err(|error| {
            // What is left of a full disk helps nobody.
            let _ = fs::remove_file(&part);
            fail(error)
        })
}
