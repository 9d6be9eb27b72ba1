//! `sluice compare`: finds which of two runs or sets of runs is better, and whether by more than
//! chance.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use sluice_lab::compare::{self, Shown};
use sluice_recording::runs::{RunsError, finished_runs};
use sluice_report::hint;

use crate::report::{say_left_out, say_outdated};

/// The folders to compare.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Folder of a run, with its repetitions beside it, or of several runs
    first: PathBuf,
    /// Folder to compare it with
    second: PathBuf,
    /// Show all figures, not only the key figures that have changed
    #[arg(short, long)]
    all: bool,
    /// Show only these figures, such as ping.p50,up.drops
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
    /// Each variant is in one of the sets only.
    #[error(
        "`{}` and `{}` have no variant in common, so nothing was compared; the folders of two runs \
         are compared whatever their names",
        first.display(),
        second.display()
    )]
    NothingInCommon {
        /// The first set.
        first: PathBuf,
        /// The second set.
        second: PathBuf,
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
    let (first, left_out) = finished_runs(&args.first)?;
    say_outdated(&left_out.outdated);
    say_left_out(&left_out.unfinished);
    let (second, left_out) = finished_runs(&args.second)?;
    say_outdated(&left_out.outdated);
    say_left_out(&left_out.unfinished);
    let comparison = compare::compare(&first, &second, args.tolerance / 100.0);
    let shown = match (args.all, &args.figures[..]) {
        (true, _) => Shown::All,
        (false, []) => Shown::Key,
        (false, names) => Shown::Named(names.to_vec()),
    };
    let has_pairs = !comparison.pairs.is_empty();
    if let Shown::Named(names) = &shown
        && has_pairs
    {
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
    if !has_pairs {
        return Err(Error::NothingInCommon {
            first: args.first.clone(),
            second: args.second.clone(),
        });
    }
    if !args.fail_on_change || !comparison.has_changes() {
        return Ok(ExitCode::SUCCESS);
    }
    let changes = comparison.changes();
    let names: Vec<&str> = changes.iter().map(|f| f.metric.as_str()).collect();
    match names.len() {
        0 => eprintln!("sluice: a variant is on one side only"),
        1..=MOST_NAMED => eprintln!("sluice: changed: {}", names.join(", ")),
        count => {
            let first = names[..MOST_NAMED].join(", ");
            eprintln!("sluice: changed: {first} and {} more", count - MOST_NAMED);
        }
    }
    Ok(ExitCode::FAILURE)
}

/// The most changed figures that standard error names.
const MOST_NAMED: usize = 5;

fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim_end_matches('%').trim().parse::<f64>();
    match number {
        Ok(percent) if (0.0..=100.0).contains(&percent) => Ok(percent),
        _ => Err("expected a number from 0 to 100".into()),
    }
}

const EXAMPLES: &str = "\
Examples:
  sluice compare runs/before runs/after
  sluice compare runs/a/fifo runs/a/fq_codel --figures ping.p95";
