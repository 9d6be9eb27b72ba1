//! `sluice reproduce`: a page of published figures and numbers beside what our runs came to.

use std::path::PathBuf;
use std::process::ExitCode;

use sluice_lab::reproduction::{self, ReproductionError};

/// What to put beside what.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The list of what was published (TOML)
    list: PathBuf,
    /// Folder of the runs, as `sluice run DIR --backend both -o FOLDER` leaves it
    #[arg(long, value_name = "FOLDER", default_value = "runs")]
    runs: PathBuf,
    /// Where the page goes; its pictures go into images/reproduction beside it
    #[arg(short, long, value_name = "FILE", default_value = "reproduction.md")]
    output: PathBuf,
}

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be made.
    #[error(transparent)]
    Reproduction(#[from] ReproductionError),
    /// Standard output cannot be written.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] std::io::Error),
}

/// Writes the page.
///
/// # Errors
/// [`Error`].
pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let missing = reproduction::write(&args.list, &args.runs, &args.output)?;
    match missing.as_slice() {
        [] => {}
        [one] => eprintln!("sluice: {} is not there; the page says so", one.display()),
        [first, rest @ ..] => eprintln!(
            "sluice: {} and {} other runs are not there; the page says so",
            first.display(),
            rest.len()
        ),
    }
    crate::print(&format!("{}\n", args.output.display()))?;
    Ok(ExitCode::SUCCESS)
}
