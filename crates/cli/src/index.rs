//! `sluice index`: a page over all runs of a folder.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use sluice_report::index::{IndexError, write_index};

/// The folder to index.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Folder of runs; the page is written to index.html in it
    #[arg(default_value = "runs", value_name = "DIR")]
    folder: PathBuf,
}

/// The reason why no page was written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The page cannot be made.
    #[error(transparent)]
    Index(#[from] IndexError),
    /// Standard output cannot be written.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
}

/// Writes the page.
///
/// # Errors
/// [`Error`]; no incomplete page is left behind.
pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let page = write_index(&args.folder)?;
    crate::print(&format!("index: {}\n", page.display()))?;
    Ok(ExitCode::SUCCESS)
}

const EXAMPLES: &str = "\
Examples:
  sluice index
  sluice index results/2026";
