//! `sluice manual`: writes the manual pages, made from the declarations of the arguments.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap_mangen::Man;
use clap_mangen::roff::{Roff, roman};

/// Where to write the pages.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The folder: one file for the command and one for each subcommand
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

/// Why the pages were not written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write manual pages to {}: {source}", folder.display())]
pub struct ManualError {
    folder: PathBuf,
    source: io::Error,
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
    let mut command = command.disable_help_subcommand(true);
    command.build();
    write(&command, &args.folder).map_err(failed)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the pages of a command and its subcommands.
fn write(command: &clap::Command, folder: &Path) -> io::Result<()> {
    for subcommand in command.get_subcommands().filter(|one| !one.is_hide_set()) {
        write(subcommand, folder)?;
    }
    let man = Man::new(command.clone());
    std::fs::write(folder.join(man.get_filename()), page(command, &man)?)
}

/// Returns a page. The text after the options is the section of the examples, with its lines as they
/// are.
fn page(command: &clap::Command, man: &Man) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    synopsis(command).to_writer(&mut out)?;
    man.render_description_section(&mut out)?;
    man.render_options_section(&mut out)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut out)?;
    }
    if let Some(text) = command.get_after_help() {
        let text = text.to_string();
        let mut roff = Roff::new();
        roff.control("SH", ["EXAMPLES"]);
        roff.control("nf", []);
        for line in text.strip_prefix("Examples:\n").unwrap_or(&text).lines() {
            roff.text([roman(line)]);
        }
        roff.control("fi", []);
        roff.to_writer(&mut out)?;
    }
    if command.get_version().is_some() {
        man.render_version_section(&mut out)?;
    }
    Ok(out)
}

/// Returns the section with the usage as `--help` prints it.
fn synopsis(command: &clap::Command) -> Roff {
    let usage = command.clone().render_usage().to_string();
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    roff.control("nf", []);
    for line in usage.trim_start_matches("Usage:").lines() {
        roff.text([roman(line.trim())]);
    }
    roff.control("fi", []);
    roff
}

const EXAMPLES: &str = "\
Examples:
  sluice manual ~/.local/share/man/man1
  sluice manual /tmp/man && man -l /tmp/man/sluice-run.1";
