//! `sluice manual`: writes the manual pages, made from the declarations of the arguments.

use std::path::PathBuf;
use std::process::ExitCode;

/// Where to write the pages.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The folder: one file for the command and one for each subcommand (`man -l sluice-run.1`
    /// shows one of them)
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

/// Why the pages were not written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write manual pages to {}: {source}", folder.display())]
pub struct ManualError {
    folder: PathBuf,
    source: std::io::Error,
}

/// Writes the pages of `command`.
///
/// # Errors
/// The folder or a file in it cannot be written.
pub fn run(command: clap::Command, args: &Args) -> Result<ExitCode, ManualError> {
    let failed = |source| ManualError {
        folder: args.folder.clone(),
        source,
    };
    std::fs::create_dir_all(&args.folder).map_err(failed)?;
    let command = command.disable_help_subcommand(true);
    clap_mangen::generate_to(command, &args.folder).map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}
