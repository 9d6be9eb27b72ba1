//! `sluice export`: recorded runs in the formats of other tools.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use sluice_recording::Recording;
use sluice_report::export::figures::{self, Format, Layout, Spread, TableError};
use sluice_report::export::flent::{self, Test, TestError};
use sluice_report::export::{ExportError, csv, pcapng};
use sluice_report::only::{self, OnlyError};
use sluice_report::pages::{PageError, write_file};
use sluice_report::picture::results;

use crate::report::{ReportError, open_all, pair};

/// What to write, and in which formats.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(override_usage = "sluice export [OPTIONS] FORMAT... DIR...")]
#[command(group = clap::ArgGroup::new("format").required(true).multiple(true))]
pub struct Args {
    /// Folders of runs, or folders that contain them
    #[arg(required = true, value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// Write a data file for flent, such as run.flent.gz; several runs give one file each, with the
    /// variant in its name
    #[arg(long, value_name = "FILE", group = "format", help_heading = FORMATS)]
    flent: Option<PathBuf>,
    /// Label the run with this flent test [default: the test that its flows resemble most]
    #[arg(long, value_name = "TEST", requires = "flent")]
    flent_test: Option<String>,
    /// Write a capture per port into this folder, with a comment on each dropped or marked packet
    #[arg(long, value_name = "FOLDER", group = "format", help_heading = FORMATS)]
    pcapng: Option<PathBuf>,
    /// Write the tables as CSV into this folder; several runs give one subfolder each
    #[arg(long, value_name = "FOLDER", group = "format", help_heading = FORMATS)]
    csv: Option<PathBuf>,
    /// Write a table of the figures with a row per variant; the name ends in .csv, .md, or .tex
    /// (LaTeX with booktabs)
    #[arg(long, value_name = "FILE", group = "format", help_heading = FORMATS)]
    table: Option<PathBuf>,
    /// Figures of the table, such as ping.p95,total.goodput [default: the key figures]
    #[arg(
        long,
        value_name = "FIGURES",
        requires = "table",
        value_delimiter = ','
    )]
    figures: Vec<String>,
    /// Heading of a column, such as 'ping.p95=Ping (ms)' or variant=Queue; can be repeated
    #[arg(long, value_name = "FIGURE=TEXT", requires = "table", value_parser = pair)]
    heading: Vec<(String, String)>,
    /// Write the headings into a .tex table as they are, as LaTeX: formulae, or several lines with
    /// \shortstack
    #[arg(long, requires = "heading")]
    raw_headings: bool,
    /// Unit of a figure in .tex and .md, such as ping.p95=s, total.goodput=kbit/s or up.loss=%; can be
    /// repeated
    #[arg(long, value_name = "FIGURE=UNIT", requires = "table", value_parser = pair)]
    unit: Vec<(String, String)>,
    /// Significant digits in .tex and .md, of all figures (N) or of one (FIGURE=N), from 1 to 9; can
    /// be repeated [default: 3]
    #[arg(long, value_name = "N", requires = "table", value_parser = digits)]
    digits: Vec<(Option<String>, u8)>,
    /// Spread over repetitions beside the medians of the table
    #[arg(long, requires = "table", value_parser = spreads(), default_value = "range")]
    spread: Spread,
    /// Write all figures as CSV with a row per run: its place on the axes of the matrix, its seed, and
    /// every figure in base units
    #[arg(long, value_name = "FILE", group = "format", help_heading = FORMATS)]
    tidy: Option<PathBuf>,
    /// Export only runs with this value of an axis, such as variant=cake; can be repeated: values of
    /// one axis are alternatives, and the conditions on all axes must hold
    #[arg(long, value_name = "AXIS=VALUE")]
    only: Vec<String>,
}

fn digits(text: &str) -> Result<(Option<String>, u8), String> {
    let (name, count) = match text.split_once('=') {
        Some((name, count)) => (Some(name.trim().to_owned()), count),
        None => (None, text),
    };
    match count.trim().parse() {
        Ok(count @ 1..=9) => Ok((name, count)),
        _ => Err("expected a number from 1 to 9, or FIGURE= and such a number".to_owned()),
    }
}

fn spreads() -> impl TypedValueParser<Value = Spread> {
    let value = |(word, _, about)| PossibleValue::new(word).help(about);
    let of = |word: String| {
        let found = Spread::ALL.into_iter().find(|(known, ..)| *known == word);
        found.map(|(_, spread, _)| spread).ok_or("unknown")
    };
    PossibleValuesParser::new(Spread::ALL.map(value)).try_map(of)
}

/// The heading of the options of which at least one is given.
const FORMATS: &str = "Formats, at least one";

/// The reason why nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The runs cannot be read.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// A run was not exported.
    #[error("{variant}: {error}")]
    Export {
        /// The run's variant.
        variant: String,
        /// The error of the export.
        error: Box<ExportError>,
    },
    /// The table cannot be written.
    #[error(transparent)]
    Figures(#[from] TableError),
    /// No run meets the conditions.
    #[error(transparent)]
    Only(#[from] OnlyError),
    /// The format of a table is unknown.
    #[error("cannot write `{}`: the name of a table ends in .csv, .md or .tex", path.display())]
    Table {
        /// The file.
        path: PathBuf,
    },
    /// A file cannot be written.
    #[error(transparent)]
    Page(#[from] PageError),
    /// No flent test has this name.
    #[error(transparent)]
    Test(#[from] TestError),
    /// A folder cannot be created.
    #[error("cannot create the folder `{}`: {error}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// Standard output cannot be written.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
}

/// Exports the runs.
///
/// # Errors
/// [`Error`]; no incomplete file is left behind.
pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let format = match &args.table {
        Some(path) => match Format::of(path) {
            Some(format) => Some((path, format)),
            None => return Err(Error::Table { path: path.clone() }),
        },
        None => None,
    };
    let test = args.flent_test.as_deref().map(Test::from_word);
    let test = test.transpose()?;
    let mut recordings = Vec::new();
    for folder in &args.folders {
        recordings.extend(open_all(folder)?);
    }
    let recordings = only::chosen(recordings, &args.only)?;
    let names = names(&recordings);
    let is_single = recordings.len() == 1;
    let mut files: Vec<PathBuf> = Vec::new();
    for (recording, name) in recordings.iter().zip(&names) {
        let fail = |error| Error::Export {
            variant: name.clone(),
            error: Box::new(error),
        };
        if let Some(file) = &args.flent {
            let path = if is_single {
                file.clone()
            } else {
                with_name(file, name)
            };
            make_parent(&path)?;
            flent::write(recording, &path, test).map_err(fail)?;
            files.push(path);
        }
        if let Some(dir) = &args.pcapng {
            make_folder(dir)?;
            files.extend(pcapng::write(recording, dir, name).map_err(fail)?);
            let effects = pcapng::left_out(&recording.run().scenario);
            if !effects.is_empty() {
                eprintln!(
                    "sluice: warning: the captures of {name} leave out: {}",
                    effects.join("; ")
                );
            }
        }
        if let Some(dir) = &args.csv {
            let dir = if is_single {
                dir.clone()
            } else {
                dir.join(name)
            };
            make_folder(&dir)?;
            let tables = csv::write(recording, &dir).map_err(fail)?;
            files.extend(tables.files);
            if !tables.left_out.is_empty() {
                eprintln!(
                    "sluice: warning: the tables of {name} leave out: {}, which were not recorded; \
                     `--record packets --fresh` records all",
                    tables.left_out.join(", ")
                );
            }
        }
    }
    if format.is_some() || args.tidy.is_some() {
        let all: Vec<&Recording> = recordings.iter().collect();
        let results = results(&all).map_err(ReportError::from)?;
        if let Some((path, format)) = format {
            let text = figures::table(&results, &layout(args), format)?;
            write_file(path, text.as_bytes())?;
            files.push(path.clone());
        }
        if let Some(path) = &args.tidy {
            write_file(path, figures::tidy(&results, None).as_bytes())?;
            files.push(path.clone());
        }
    }
    let lines: Vec<String> = files.iter().map(|f| format!("{}\n", f.display())).collect();
    crate::print(&lines.concat())?;
    Ok(ExitCode::SUCCESS)
}

fn layout(args: &Args) -> Layout {
    let all = args.digits.iter().rev().find(|(name, _)| name.is_none());
    let of_figure = |(name, count): &(Option<String>, u8)| Some((name.clone()?, *count));
    Layout {
        figures: args.figures.clone(),
        spread: args.spread,
        headings: args.heading.clone(),
        has_raw_headings: args.raw_headings,
        units: args.unit.clone(),
        digits: (
            all.map(|(_, count)| *count),
            args.digits.iter().filter_map(of_figure).collect(),
        ),
    }
}

/// Returns the folder name of each run: the variant as a file name, with a number where two are
/// alike.
fn names(recordings: &[Recording]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for recording in recordings {
        let dir = recording.dir();
        let dir = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
        let stem = dir
            .file_name()
            .map_or("run".into(), |n| n.to_string_lossy());
        let mut name = stem.to_string();
        let mut number = 1;
        while names.contains(&name) {
            number += 1;
            name = format!("{stem}-{number}");
        }
        names.push(name);
    }
    names
}

/// Returns the file of one run: for `run.flent.gz` and the run `codel`, `run-codel.flent.gz`.
fn with_name(file: &Path, name: &str) -> PathBuf {
    let whole = file.file_name().unwrap_or_default().to_string_lossy();
    let (stem, endings) = match whole.split_once('.') {
        Some((stem, endings)) => (stem, format!(".{endings}")),
        None => (&*whole, String::new()),
    };
    file.with_file_name(format!("{stem}-{name}{endings}"))
}

/// Creates the folder of a file.
fn make_parent(file: &Path) -> Result<(), Error> {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => make_folder(folder),
        _ => Ok(()),
    }
}

fn make_folder(path: &Path) -> Result<(), Error> {
    fs::create_dir_all(path).map_err(|error| Error::Folder {
        path: path.to_owned(),
        error,
    })
}

const EXAMPLES: &str = "\
Examples:
  sluice export runs/a --tidy figures.csv
  sluice export runs/a --table table.tex --figures ping.p95,total.goodput";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variant_goes_before_the_endings() {
        let file = |text: &str| with_name(Path::new(text), "codel").display().to_string();
        assert_eq!(file("a/run.flent.gz"), "a/run-codel.flent.gz");
        assert_eq!(file("run"), "run-codel");
    }
}
