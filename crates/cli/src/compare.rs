//! `sluice compare`: finds which of two runs or sets of runs is better, and whether by more than
//! chance.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use sluice_lab::compare::{self, Shown};
use sluice_recording::runs::{RunsError, runs_with_repetitions};
use sluice_report::hint;

/// The folders to compare.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folder of a run, with its repetitions beside it, or of several runs
    first: PathBuf,
    /// Folder to compare it with
    second: PathBuf,
    /// Show all figures, not only the key figures that have changed
    #[arg(short, long)]
    all: bool,
    /// Show these figures, such as ping.p50,up.drops
    #[arg(
        long,
        value_name = "FIGURES",
        value_delimiter = ',',
        conflicts_with = "all"
    )]
    figures: Vec<String>,
    /// Difference of medians, in percent, up to which they count as the same
    #[arg(long, value_name = "PERCENT", default_value_t = 0.0, value_parser = percent)]
    tolerance: f64,
    /// Exit with status 1 if a figure has changed or a variant is missing
    #[arg(long)]
    fail_on_change: bool,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
}

/// The reason why nothing was compared.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A set of runs cannot be read.
    #[error(transparent)]
    Runs(#[from] RunsError),
    /// No run has a requested figure.
    #[error("no run has the figure `{name}`{near}")]
    Figure {
        /// The figure.
        name: String,
        /// The nearest names.
        near: String,
    },
    /// Standard output cannot be written.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
}

/// Compares the two sets and prints the result.
///
/// # Errors
/// [`Error`].
pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let first = runs_with_repetitions(&args.first)?;
    let second = runs_with_repetitions(&args.second)?;
    let comparison = compare::compare(&first, &second, args.tolerance / 100.0);
    let shown = match (args.all, &args.figures[..]) {
        (true, _) => Shown::All,
        (false, []) => Shown::Key,
        (false, names) => Shown::Named(names.to_vec()),
    };
    if let Shown::Named(names) = &shown {
        let known = comparison.figures();
        if let Some(name) = names.iter().find(|name| !known.contains(name)) {
            let (name, near) = (name.clone(), hint(name, &known));
            return Err(Error::Figure { name, near });
        }
    }
    crate::print(&if args.json {
        comparison.json()
    } else {
        comparison.text(&shown)
    })?;
    Ok(match args.fail_on_change && comparison.has_changes() {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    })
}

fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim_end_matches('%').trim().parse::<f64>();
    match number {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err("expected a number from 0 to 100".into()),
    }
}
