//! `sluice report`: draws recorded runs, one or several together.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use sluice_lab::table;
use sluice_recording::PAGE;
use sluice_recording::metrics::measure;
use sluice_recording::results::VariantResult;
use sluice_recording::{ReadError, RecordError, Recording, settle_abandoned};
use sluice_report::pages::{PageError, write_file};
use sluice_report::report_of::report_of;
use sluice_report::{self as report, Figure, FigureError, FigureKind};

/// What to draw.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("picture").multiple(true))]
pub struct Args {
    /// Folders of runs, or folders that contain them
    #[arg(required = true, value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// Write the page here [default: report.html in the first folder]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Draw a figure for a paper as SVG instead of the page
    #[arg(long, value_name = "FILE", group = "picture")]
    svg: Option<PathBuf>,
    /// Draw the figure as PNG
    #[arg(long, value_name = "FILE", group = "picture")]
    png: Option<PathBuf>,
    /// The figure's kind
    #[arg(long, value_parser = figure_kinds(), default_value = FigureKind::Time.word())]
    figure: FigureKind,
    /// Draw the figure without title and caption, for a document that has its own
    #[arg(long, requires = "picture")]
    bare: bool,
    /// Scale of the PNG: pixels per unit of the drawing
    #[arg(long, default_value_t = 2.0, value_name = "FACTOR")]
    scale: f32,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

/// The kinds of figures, by name.
fn figure_kinds() -> impl TypedValueParser<Value = FigureKind> {
    let value = |kind: FigureKind| PossibleValue::new(kind.word()).help(kind.about());
    PossibleValuesParser::new(FigureKind::ALL.map(value)).try_map(|word| word.parse::<FigureKind>())
}

/// The reason why nothing was drawn.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A folder contains no run.
    #[error("`{}` is not the folder of a run and contains none: it has no run.json", path.display())]
    NoRun {
        /// The folder.
        path: PathBuf,
    },
    /// A run cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A run that was left unfinished cannot be marked.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A picture cannot be drawn.
    #[error(transparent)]
    Figure(#[from] FigureError),
    /// Standard output cannot be written.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
    /// The folder does not exist or is not readable.
    #[error("cannot read the folder `{}`: {error}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// The ending of a figure's name belongs to another format.
    #[error("cannot write `{}`: its name must end in .{ending}", path.display())]
    Ending {
        /// The file.
        path: PathBuf,
        /// The ending that it must have.
        ending: &'static str,
    },
    /// A file cannot be written.
    #[error(transparent)]
    Page(#[from] PageError),
}

/// Draws the page or the figures.
///
/// # Errors
/// [`ReportError`]; no incomplete file is left behind.
pub fn run(args: &Args) -> Result<ExitCode, ReportError> {
    check_ending(args.svg.as_deref(), "svg")?;
    check_ending(args.png.as_deref(), "png")?;
    let mut recordings = Vec::new();
    for folder in &args.folders {
        recordings.extend(open_all(folder)?);
    }
    let report = report_of(&recordings.iter().collect::<Vec<_>>())?;
    let figure = Figure::of(args.figure);
    let figure = if args.bare { figure.bare() } else { figure };
    // Everything is read and drawn before anything is written; recordings are not touched.
    let results = recordings
        .iter()
        .map(|one| Ok(VariantResult::of_one(one, measure(one)?)))
        .collect::<Result<Vec<_>, ReadError>>()?;
    let mut pictures = Vec::new();
    if let Some(path) = &args.svg {
        pictures.push((path.clone(), report::svg(&report, &figure)?.into_bytes()));
    }
    if let Some(path) = &args.png {
        pictures.push((path.clone(), report::png(&report, &figure, args.scale)?));
    }
    if pictures.is_empty() || args.output.is_some() {
        let path = args
            .output
            .clone()
            .unwrap_or_else(|| args.folders[0].join(PAGE));
        pictures.push((path, report::html(&report).into_bytes()));
    }
    for (path, content) in &pictures {
        write_file(path, content)?;
    }
    let mut text = if args.json {
        table::json(&results)
    } else {
        table::text(&results)
    };
    if !args.json {
        text.push('\n');
        for (path, _) in &pictures {
            text.push_str(&format!("report: {}\n", path.display()));
        }
    }
    crate::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Refuses a name with the ending of another format. A name without an ending (`/dev/stdout`) is
/// accepted.
fn check_ending(path: Option<&Path>, ending: &'static str) -> Result<(), ReportError> {
    match path {
        Some(path)
            if path
                .extension()
                .is_some_and(|e| !e.eq_ignore_ascii_case(ending)) =>
        {
            Err(ReportError::Ending {
                path: path.to_owned(),
                ending,
            })
        }
        _ => Ok(()),
    }
}

/// Returns the run in `folder`, or the runs in its folders in the order in which they ran.
pub(crate) fn open_all(folder: &Path) -> Result<Vec<Recording>, ReportError> {
    let entries = fs::read_dir(folder).map_err(|error| ReportError::Folder {
        path: folder.to_owned(),
        error,
    })?;
    settle_abandoned(folder)?;
    if folder.join(RUN_JSON).is_file() {
        return Ok(vec![Recording::open(folder)?]);
    }
    let mut dirs: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.join(RUN_JSON).is_file())
        .collect();
    dirs.sort();
    if dirs.is_empty() {
        return Err(ReportError::NoRun {
            path: folder.to_owned(),
        });
    }
    let mut recordings = dirs
        .iter()
        .map(|dir| Recording::open(dir))
        .collect::<Result<Vec<_>, _>>()?;
    recordings.sort_by(|a, b| {
        let started = |r: &Recording| r.run().environment.started_at.clone();
        started(a).cmp(&started(b))
    });
    Ok(recordings)
}

const RUN_JSON: &str = "run.json";
