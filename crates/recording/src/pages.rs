//! The interface to the program that draws pages.

use std::path::Path;

use crate::Recording;

/// Draws the pages of a suite, so that the laboratory does not depend on their form.
pub trait Pages {
    /// Writes the page of a run to `path`.
    ///
    /// # Errors
    /// The recording cannot be read, or the page cannot be written.
    fn write_run(&self, path: &Path, recording: &Recording) -> Result<(), PagesError>;

    /// Writes the page of a scenario to `path`: all its runs, in which those that differ only in their
    /// seed are repetitions.
    ///
    /// # Errors
    /// As for [`Pages::write_run`].
    fn write_overview(&self, path: &Path, recordings: &[&Recording]) -> Result<(), PagesError>;
}

/// The reason why a page was not written.
pub type PagesError = Box<dyn std::error::Error + Send + Sync>;
