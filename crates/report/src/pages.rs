//! Writing files for people: pages and pictures, whole or not at all.

use std::io;
use std::path::{Path, PathBuf};

use crate as report;
use crate::model::Fact;
use crate::report_of::report_of;
use sluice_recording::part;
use sluice_recording::results::VariantResult;
use sluice_recording::{Pages, PagesError, ReadError, Recording};

/// The reason why a page was not written.
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
        /// The error of the system.
        error: io::Error,
    },
}

/// The pages that a browser shows, one HTML file each.
#[derive(Clone, Copy, Debug)]
pub struct HtmlPages;

impl Pages for HtmlPages {
    fn write_run(&self, path: &Path, recording: &Recording) -> Result<(), PagesError> {
        Ok(write_page(path, &[recording])?)
    }

    fn write_overview(
        &self,
        path: &Path,
        results: &[VariantResult],
        firsts: &[&Recording],
    ) -> Result<(), PagesError> {
        Ok(write_overview(path, results, firsts)?)
    }
}

/// Writes the page that draws `recordings` over each other.
///
/// # Errors
/// [`PageError`]; no incomplete page is left behind.
pub fn write_page(path: &Path, recordings: &[&Recording]) -> Result<(), PageError> {
    write_file(path, report::html(&report_of(recordings)?).as_bytes())
}

/// Writes the page of a scenario: the first run of each of `results`, with the spread over the others
/// among the facts.
///
/// # Errors
/// [`PageError`]; no incomplete page is left behind.
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

/// Writes `content` to the file at `path`, whole or not at all.
///
/// # Errors
/// [`PageError::Write`].
pub fn write_file(path: &Path, content: &[u8]) -> Result<(), PageError> {
    part::write_file(path, content).map_err(|error| PageError::Write {
        path: path.to_owned(),
        error,
    })
}
