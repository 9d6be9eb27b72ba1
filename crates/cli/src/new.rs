//! `sluice new`: files to start from.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

/// What to start.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// A scenario with a link, two queues to compare, and three flows
    Scenario {
        /// File to write; an existing one is not overwritten
        #[arg(default_value = "scenario.toml", value_name = "FILE")]
        file: PathBuf,
    },
}

/// Why there is no new file.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file exists.
    #[error("`{}` exists; choose another name", file.display())]
    Exists {
        /// The file.
        file: PathBuf,
    },
    /// The file cannot be written.
    #[error("cannot write `{}`: {error}", file.display())]
    Write {
        /// The file.
        file: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// Standard output cannot be written.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
}

/// Writes the file.
///
/// # Errors
/// [`Error`]. An existing file is left as it is.
pub fn run(args: Args) -> Result<ExitCode, Error> {
    let What::Scenario { file } = args.what;
    let written = File::create_new(&file).and_then(|mut new| new.write_all(SCENARIO.as_bytes()));
    match written {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            return Err(Error::Exists { file });
        }
        Err(error) => return Err(Error::Write { file, error }),
    }
    let file = file.display();
    crate::print(&format!("wrote {file}; run it with: sluice run {file}\n"))?;
    Ok(ExitCode::SUCCESS)
}

const SCENARIO: &str = include_str!("new/scenario.toml");
