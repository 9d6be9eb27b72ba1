//! `sluice router save`: the configuration of a running router as a file of commands.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use sluice_recording::part;
use sluice_router::control::{AskError, Request, ask};

use crate::watch;

/// Which router, and where to.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// File to write, which is replaced at one instant, or `-` [default: standard output]
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// The router's socket [default: sluice.sock in XDG_RUNTIME_DIR or /run]
    #[arg(long, value_name = "PATH", env = "SLUICE_SOCKET")]
    socket: Option<PathBuf>,
}

/// The reason why nothing is saved.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The router cannot be reached or did not answer.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// The router refused.
    #[error("the router at {} refuses: {why}", .path.display())]
    Refused {
        /// The socket.
        path: PathBuf,
        /// The reason.
        why: String,
        /// The exit status that the router names.
        exit_code: u8,
    },
    /// The file cannot be written.
    #[error("cannot write {}: {source}", .path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// Standard output cannot be written.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
}

impl Error {
    /// Returns the exit status.
    pub fn exit_status(&self) -> u8 {
        match self {
            Error::Ask(error) => error.exit_code(),
            Error::Refused { exit_code, .. } => *exit_code,
            Error::Unwritable { .. } | Error::Output(_) => 1,
        }
    }
}

/// Writes the configuration of a router.
///
/// # Errors
/// [`Error`].
pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let socket = watch::socket(args.socket.as_ref());
    let reply = ask(&socket, &Request::Save {})?;
    if let Some(error) = reply.error {
        return Err(Error::Refused {
            path: socket,
            why: error.message,
            exit_code: error.exit_code,
        });
    }
    let text = format!("{HEAD}{}", reply.stdout);
    match args.file.as_ref().filter(|file| file.as_os_str() != "-") {
        None => crate::print(&text)?,
        // A router that starts meanwhile reads the old file or the new one.
        Some(path) => {
            part::write_file(path, text.as_bytes()).map_err(|source| Error::Unwritable {
                path: path.clone(),
                source,
            })?
        }
    }
    for remark in reply.warnings {
        eprintln!("sluice: note: {}", remark.text);
    }
    Ok(ExitCode::SUCCESS)
}

/// The first line.
const HEAD: &str = "# The configuration of a running router, from `sluice router save`.\n";
