//! `sluice index`: a page over all runs of a folder.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use sluice_report::index::{IndexError, write_index};

/// Of what.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folder of runs; the page is index.html in it
    #[arg(default_value = "runs", value_name = "DIR")]
    folder: PathBuf,
}

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be made.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// Standard output cannot be written.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
}

/// Writes it.
///
/// # Errors
/// [`Error`]; no half page is left.
pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let page = write_index(&args.folder)?;
    crate::print(&format!("index: {}\n", page.display()))?;
    Ok(ExitCode::SUCCESS)
}
