//! `sluice report`: draws recorded runs, one or several together.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use sluice_core::Span;
use sluice_lab::table;
use sluice_recording::PAGE;
use sluice_recording::{
    ReadError, RecordError, Recording, Unfinished, missing_in_words, missing_runs,
    outdated_in_words, settle_abandoned, take_outdated, take_unfinished,
};
use sluice_report::pages::{PageError, link_repetitions, own_page, write_file, write_own};
use sluice_report::picture::{
    Picture, PictureError, Subject, check_seed, font_pt, height_mm, results, width_mm,
};
use sluice_report::report_of::{Choice, report_with};
use sluice_report::sweep;
use sluice_report::{self as report, Axes, FigureKind, Marks, YAxis};
use sluice_scenario::Direction;

use crate::failures::say_failures;
use crate::pictures::{Pictures, PicturesError};

/// What to draw.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(group = clap::ArgGroup::new("picture").multiple(true))]
pub struct Args {
    /// Folders of runs, or folders that contain them
    #[arg(required = true, value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// Write the page here [default: report.html in the folder, or comparison.html in the current
    /// one if several folders are given; with --json, no page]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Draw the curves of the repetition with this seed [default: the first]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Draw a figure for a paper as SVG instead of the page
    #[arg(long, value_name = "FILE", group = "picture")]
    svg: Option<PathBuf>,
    /// Draw the figure as PNG
    #[arg(long, value_name = "FILE", group = "picture")]
    png: Option<PathBuf>,
    /// Draw the figure as PDF
    #[arg(long, value_name = "FILE", group = "picture")]
    pdf: Option<PathBuf>,
    /// Draw the pictures ([[picture]]) of this scenario into the folder instead of the page
    #[arg(long, value_name = "SCENARIO", conflicts_with = "picture")]
    pictures: Option<PathBuf>,
    /// What the figure shows
    #[arg(long, value_parser = subjects(), default_value = FigureKind::Time.word(), hide_possible_values = true,
          requires = "picture", long_help = subjects_help())]
    figure: Subject,
    /// For a curve or heat map: the axis of the matrix on x, such as link.rtt
    #[arg(long, value_name = "AXIS", requires = "picture", help_heading = SWEEPS)]
    x: Option<String>,
    /// The figure on y, or in the cells of a heat map, such as ping.p50; for repetitions one or several,
    /// such as ping.p50,total.goodput [default there: the key figures]
    #[arg(long, value_name = "FIGURE", requires = "picture", help_heading = SWEEPS)]
    y: Option<String>,
    /// The axis of the lines, or the one on y of a heat map
    #[arg(long, value_name = "AXIS", requires = "picture", help_heading = SWEEPS)]
    by: Option<String>,
    /// The axis with a separate chart for each value
    #[arg(long, value_name = "AXIS", requires = "picture", help_heading = SWEEPS)]
    each: Option<String>,
    /// Refuse to draw a curve without a confidence band
    #[arg(long, requires = "picture", help_heading = SWEEPS)]
    band: bool,
    /// How the values of repetitions are drawn, in a curve or in repetitions
    #[arg(long, value_name = "MARKS", requires = "picture", help_heading = LAYOUT, value_parser = all_marks(), default_value = "auto")]
    marks: Marks,
    /// Show only variants with this value of an axis; can be repeated: values of one axis are
    /// alternatives, and the conditions on all axes must hold
    #[arg(long, value_name = "AXIS=VALUE", requires = "picture", help_heading = LAYOUT)]
    only: Vec<String>,
    /// Show only the queue and the flows of this direction
    #[arg(long, value_name = "up|down", requires = "picture", help_heading = LAYOUT, value_parser = direction)]
    direction: Option<Direction>,
    /// Start of the time that is shown, such as 5s
    #[arg(long, value_name = "TIME", requires = "picture", help_heading = LAYOUT, value_parser = Span::parse)]
    from: Option<Span>,
    /// End of the time that is shown
    #[arg(long, value_name = "TIME", requires = "picture", help_heading = LAYOUT, value_parser = Span::parse)]
    to: Option<Span>,
    /// Width on paper, such as 85mm
    #[arg(long, value_name = "WIDTH", requires = "picture", help_heading = LAYOUT)]
    width: Option<String>,
    /// Height on paper, such as 50mm [default: as the charts need]
    #[arg(long, value_name = "HEIGHT", requires = "picture", help_heading = LAYOUT)]
    height: Option<String>,
    /// Number of charts in a row [default: as many as are legible]
    #[arg(long, value_name = "N", requires = "picture", help_heading = LAYOUT, value_parser = clap::value_parser!(u8).range(1..=20))]
    columns: Option<u8>,
    /// The kind of the y axis, in a curve or in repetitions
    #[arg(long, value_name = "AXIS", requires = "picture", help_heading = LAYOUT, value_parser = y_axes(), default_value = "auto")]
    y_axis: YAxis,
    /// Words for a figure, an axis or a run, such as 'ping.p50=Delay' or link.rtt=RTT; can be repeated
    #[arg(long, value_name = "NAME=TEXT", requires = "picture", help_heading = LAYOUT, value_parser = pair)]
    heading: Vec<(String, String)>,
    /// Size of most text on paper [default: 9pt]
    #[arg(long, value_name = "SIZE", requires = "picture", help_heading = LAYOUT)]
    font_size: Option<String>,
    /// Font; for PNG and PDF it must be installed
    #[arg(long, value_name = "NAME", requires = "picture", help_heading = LAYOUT)]
    font: Option<String>,
    /// Draw the figure without title and caption, for a document that has its own
    #[arg(long, requires = "picture", help_heading = LAYOUT)]
    bare: bool,
    /// Scale of the PNG: pixels per unit of the drawing
    #[arg(long, default_value_t = 2.0, value_name = "FACTOR", requires = "png", help_heading = LAYOUT)]
    scale: f32,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
    /// Print the names of the files only, and no table
    #[arg(short, long, conflicts_with = "json")]
    quiet: bool,
}

const SWEEPS: &str = "Curves and heat maps over a matrix; repetitions";
const LAYOUT: &str = "What a figure shows, and its size";

/// What figures show, by name.
fn subjects() -> impl TypedValueParser<Value = Subject> {
    let value = |(word, _, about): (&'static str, Subject, &'static str)| {
        PossibleValue::new(word).help(about)
    };
    PossibleValuesParser::new(Subject::all().map(value)).try_map(|word| Subject::from_word(&word))
}

fn all_marks() -> impl TypedValueParser<Value = Marks> {
    let value = |(word, _, about)| PossibleValue::new(word).help(about);
    PossibleValuesParser::new(Marks::ALL.map(value))
        .try_map(|word| Marks::from_word(&word).ok_or("unknown"))
}

fn y_axes() -> impl TypedValueParser<Value = YAxis> {
    let value = |(word, _, about)| PossibleValue::new(word).help(about);
    PossibleValuesParser::new(YAxis::ALL.map(value))
        .try_map(|word| YAxis::from_word(&word).ok_or("unknown"))
}

fn subjects_help() -> String {
    let line = |(word, _, about): (&str, Subject, &str)| format!("\n- {word}: {about}");
    let lines: String = Subject::all().map(line).collect();
    format!("What the figure shows:{lines}")
}

/// Reads `NAME=VALUE`.
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.trim().is_empty() && !value.trim().is_empty() => {
            Ok((name.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}

fn direction(text: &str) -> Result<Direction, String> {
    Direction::from_word(text).ok_or_else(|| "expected up or down".to_owned())
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
    /// Nothing can be drawn of the runs of a folder, because none was finished.
    #[error(
        "no run in `{}` was finished: {}; {}, or name the folder of an interrupted run to read what \
         it recorded",
        path.display(),
        Unfinished::list(left_out),
        Unfinished::advice(left_out)
    )]
    Unfinished {
        /// The folder.
        path: PathBuf,
        /// Its runs.
        left_out: Vec<Unfinished>,
    },
    /// A run was killed, and nothing of it is left; or it has only begun.
    #[error(
        "the run in `{}` recorded nothing: {}; {}",
        run.folder.display(),
        run.why,
        Unfinished::advice(std::slice::from_ref(run))
    )]
    Nothing {
        /// The run.
        run: Unfinished,
    },
    /// A run cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A run that was left unfinished cannot be marked.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A picture cannot be drawn.
    #[error(transparent)]
    Figure(#[from] PictureError),
    /// A picture of a scenario cannot be drawn.
    #[error(transparent)]
    Pictures(#[from] PicturesError),
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

/// Draws the page or the figures. A picture of a scenario that cannot be drawn costs no other: it is
/// named at the end, and the status is a failure.
///
/// # Errors
/// [`ReportError`]; no incomplete file is left behind.
pub fn run(args: &Args) -> Result<ExitCode, ReportError> {
    check_ending(args.svg.as_deref(), "svg")?;
    check_ending(args.png.as_deref(), "png")?;
    check_ending(args.pdf.as_deref(), "pdf")?;
    let mut recordings = Vec::new();
    for folder in &args.folders {
        recordings.extend(open_all(folder)?);
    }
    let all: Vec<&Recording> = recordings.iter().collect();
    let mut report = report_with(&all, Choice { seed: args.seed })?;
    check_seed(args.seed, recordings.iter().map(|one| one.run().seed))?;
    // Everything is read and drawn before anything is written; recordings are not touched.
    let results = results(&all)?;
    let mut drawn: Vec<Drawn> = Vec::new();
    let mut failures = Vec::new();
    let files = [&args.svg, &args.png, &args.pdf];
    if files.iter().any(|file| file.is_some()) {
        let picture = picture(args)?;
        for path in files.into_iter().flatten() {
            let content = picture.draw(&all, path, args.scale)?;
            drawn.push((path.clone(), content, write_file));
        }
    }
    if let Some(scenario) = &args.pictures {
        let rows = Pictures::load(scenario)?;
        let (pictures, failed) = rows.draw(&all, &args.folders[0]);
        let pictures = pictures.into_iter();
        drawn.extend(pictures.map(|(path, content)| (path, content, write_own as Write)));
        failures = failed;
    }
    // A picture without a caption cannot say it.
    let note = match (args.figure, args.bare) {
        (Subject::Charts(kind), true) if !args.json => report::shown_repetition(&report, kind),
        _ => None,
    };
    let is_page =
        args.output.is_some() || (drawn.is_empty() && args.pictures.is_none() && !args.json);
    if is_page {
        let (path, write): (PathBuf, Write) = match (&args.output, &args.folders[..]) {
            (Some(path), _) => (path.clone(), write_file),
            (None, [folder]) => (folder.join(PAGE), own_page(&all)),
            // A page about several folders belongs to none of them.
            (None, _) => (PathBuf::from(COMPARISON), own_page(&all)),
        };
        sweep::add(&mut report, &all)?;
        link_repetitions(&mut report, &all, &path);
        drawn.push((path, report::html(report).into_bytes(), write));
    }
    for (path, content, write) in &drawn {
        write(path, content)?;
    }
    let mut text = match (args.json, args.quiet) {
        (true, _) => table::json(&results),
        (false, true) => String::new(),
        (false, false) => table::text(&results) + "\n",
    };
    if !args.json {
        for (path, _, _) in &drawn {
            text.push_str(&format!("report: {}\n", path.display()));
        }
    }
    if let Some(note) = note {
        text.push_str(&format!("{note}\n"));
    }
    crate::print(&text)?;
    Ok(match say_failures(&failures) {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

/// A file, its content, and what writes it: symbolic links are followed only if the user named it.
type Drawn = (PathBuf, Vec<u8>, Write);
type Write = fn(&Path, &[u8]) -> Result<(), PageError>;

/// The picture that the options describe.
fn picture(args: &Args) -> Result<Picture, PictureError> {
    Ok(Picture {
        axes: Axes {
            x: args.x.clone().unwrap_or_default(),
            y: args.y.clone().unwrap_or_default(),
            by: args.by.clone(),
            each: args.each.clone(),
            needs_band: args.band,
        },
        only: args.only.clone(),
        width_mm: args.width.as_deref().map(width_mm).transpose()?,
        font_pt: args.font_size.as_deref().map(font_pt).transpose()?,
        font: args.font.clone(),
        direction: args.direction,
        from_s: args.from.map(Span::as_secs_f64),
        to_s: args.to.map(Span::as_secs_f64),
        seed: args.seed,
        marks: args.marks,
        height_mm: args.height.as_deref().map(height_mm).transpose()?,
        columns: args.columns.map(usize::from),
        y_axis: args.y_axis,
        headings: args.heading.clone(),
        is_bare: args.bare,
        ..Picture::of(args.figure)
    })
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

/// Returns the run in `folder`, or the finished runs in its folders in the order in which they ran.
/// Names those that were not finished.
pub(crate) fn open_all(folder: &Path) -> Result<Vec<Recording>, ReportError> {
    let entries = fs::read_dir(folder).map_err(|error| ReportError::Folder {
        path: folder.to_owned(),
        error,
    })?;
    settle_abandoned(folder)?;
    // Whatever it is: what cannot be read is named.
    if folder.join(RUN_JSON).symlink_metadata().is_ok() {
        return Ok(vec![open_one(folder)?]);
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
    let left_out = take_unfinished(&mut recordings);
    say_outdated(&take_outdated(&mut recordings));
    if let Some(words) = missing_in_words(&missing_runs(folder)) {
        eprintln!("sluice: warning: {words}");
    }
    if recordings.is_empty() {
        return Err(ReportError::Unfinished {
            path: folder.to_owned(),
            left_out,
        });
    }
    say_left_out(&left_out);
    recordings.sort_by(|a, b| {
        let started = |r: &Recording| r.run().environment.started_at.clone();
        started(a).cmp(&started(b))
    });
    Ok(recordings)
}

/// Returns the run in `folder`. One that was interrupted is read as far as it was recorded.
fn open_one(folder: &Path) -> Result<Recording, ReportError> {
    let recording = Recording::open(folder)?;
    if let Some(run) = Unfinished::of(&recording) {
        if recording.is_empty() {
            return Err(ReportError::Nothing { run });
        }
        eprintln!(
            "sluice: warning: the run in `{}` was not finished: {}",
            folder.display(),
            run.why
        );
    }
    Ok(recording)
}

/// Names the runs of an earlier version of the scenario.
pub(crate) fn say_outdated(folders: &[PathBuf]) {
    if let Some(words) = outdated_in_words(folders) {
        eprintln!("sluice: warning: {words}");
    }
}

/// Names the runs that were left out.
pub(crate) fn say_left_out(left_out: &[Unfinished]) {
    if !left_out.is_empty() {
        eprintln!(
            "sluice: warning: left out, because not finished: {}",
            Unfinished::list(left_out)
        );
    }
}

const RUN_JSON: &str = "run.json";

/// The name of a page that compares several folders.
const COMPARISON: &str = "comparison.html";

const EXAMPLES: &str = "\
Examples:
  sluice report runs/a
  sluice report runs/a --pdf delay.pdf --figure distribution --width 85mm";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_json_that_is_not_a_file_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let missing = open_all(folder.path()).unwrap_err().to_string();
        assert!(missing.ends_with("it has no run.json"), "{missing}");
        fs::create_dir(folder.path().join(RUN_JSON)).unwrap();
        let error = open_all(folder.path()).unwrap_err().to_string();
        assert!(
            error.ends_with("run.json`: it is not a regular file"),
            "{error}"
        );
    }
}
