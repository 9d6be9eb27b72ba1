//! `sluice check`: tests whether an algorithm obeys the rules for queues, measures its cost, and draws a
//! picture.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use sluice_core::registry::SpecError;
use sluice_lab::check::{CheckError, Checked, check};
use sluice_recording::Recording;
use sluice_recording::figures::figures_of;
use sluice_report::pages::{PageError, write_file, write_own};
use sluice_report::report_of::report_of;
use sluice_report::{Figure, FigureKind};

/// What to check.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The queue with its parameters: my.wasm, my_aqm.py:Bound, "wasm:my.wasm bound 20ms", or any
    /// of `sluice list`
    #[arg(value_name = "QUEUE", add = clap_complete::engine::ArgValueCandidates::new(crate::completion::queues))]
    queue: String,
    /// Seed of the operations and of the standard traffic
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
    /// Picture of the queue under the standard traffic: PNG, or SVG with that ending [default:
    /// check.png]
    #[arg(long, value_name = "FILE")]
    picture: Option<PathBuf>,
}

/// Why there is no verdict.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The words do not describe a queue.
    #[error("{0}{hint}", hint = hint(.0))]
    Queue(SpecError),
    /// The standard traffic cannot be sent through it.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// The picture cannot be drawn.
    #[error("cannot draw the picture: {0}")]
    Draw(String),
    /// The picture cannot be written.
    #[error(transparent)]
    Write(#[from] PageError),
    /// Standard output cannot be written.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
}

fn hint(error: &SpecError) -> String {
    match error.nearest().as_slice() {
        [] => String::new(),
        near => format!("; did you mean `{}`?", near.join("` or `")),
    }
}

/// Checks the queue and prints what was found. Fails if it does not conform.
///
/// # Errors
/// [`Error`].
pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let words = with_scheme(&args.queue);
    let spec = sluice_loader::parse_queue(&words, Path::new("")).map_err(Error::Queue)?;
    crate::python::has_begun();
    let checked = check(&spec, args.seed)?;
    let mut text = format!("{words}\n  {}\n\n", spec.algorithm.doc);
    for found in &checked.findings {
        let _ = match &found.breach {
            None => writeln!(text, "  ok      {}: {}", found.name, found.about),
            Some(why) => writeln!(
                text,
                "  FAILED  {}: {}",
                found.name,
                why.trim_end().replace('\n', "\n          ")
            ),
        };
    }
    describe(&checked, &mut text);
    crate::print(&text)?;
    if let Some((recording, _)) = &checked.traffic {
        // A symbolic link is followed only if the user named it.
        let (picture, write): (&Path, Write) = match &args.picture {
            Some(named) => (named.as_path(), write_file),
            None => (Path::new(PICTURE), write_own),
        };
        write(picture, &draw(recording, picture)?)?;
        crate::print(&format!("  picture {}\n", picture.display()))?;
    }
    Ok(match checked.has_failed() {
        false => ExitCode::SUCCESS,
        true => ExitCode::FAILURE,
    })
}

/// Draws the delay of every packet of the standard traffic, and the variables of the queue, in the
/// format of the file `picture`. Where no packet left the queue, the picture has the drops.
fn draw(recording: &Recording, picture: &Path) -> Result<Vec<u8>, Error> {
    let report = report_of(&[recording]).map_err(|error| Error::Draw(error.to_string()))?;
    let figure = Figure::of(FigureKind::State);
    let is_svg = picture.extension().is_some_and(|ending| ending == "svg");
    let drawn = match is_svg {
        true => sluice_report::svg(&report, &figure).map(String::into_bytes),
        false => sluice_report::png(&report, &figure, 2.0),
    };
    drawn.map_err(|error| Error::Draw(error.to_string()))
}

type Write = fn(&Path, &[u8]) -> Result<(), PageError>;

/// The picture without `--picture`, in the current folder.
const PICTURE: &str = "check.png";

fn describe(checked: &Checked, text: &mut String) {
    if let Some([own, fifo]) = checked.cost {
        let (own, fifo) = (own.as_ns(), fifo.as_ns());
        let _ = writeln!(
            text,
            "\n  cost    {own} ns per packet in this build and on this machine (fifo: {fifo} ns)"
        );
    }
    let Some((_, summary)) = &checked.traffic else {
        return;
    };
    let figures = figures_of(summary);
    for (name, what) in SHOWN {
        if let Some(figure) = figures.iter().find(|figure| figure.name == *name) {
            let value = figure.unit.show(figure.value);
            let _ = writeln!(text, "  {what:<26}{value}");
        }
    }
    let mut up = summary.pipes.iter().filter(|pipe| pipe.name == "up");
    if up.any(|pipe| pipe.sojourn.is_none()) {
        text.push_str("  no packet left the queue in the measured time\n");
    }
}

/// Figures of the standard traffic that are printed.
const SHOWN: &[(&str, &str)] = &[
    ("up.packets", "packets"),
    ("up.drops", "dropped"),
    ("up.marks", "marked"),
    ("up.sojourn.p50", "median delay in the queue"),
    ("up.sojourn.p99", "99th percentile"),
    ("up.utilisation", "used part of the link"),
];

/// The ending of a file determines its loader.
fn with_scheme(words: &str) -> String {
    let first = words.split_whitespace().next().unwrap_or_default();
    let file = first.split(':').next().unwrap_or_default();
    let ending = Path::new(file).extension().and_then(|end| end.to_str());
    match ending {
        Some("wasm") => format!("wasm:{words}"),
        Some("py") => format!("py:{words}"),
        _ => words.to_owned(),
    }
}

const EXAMPLES: &str = "\
Examples:
  sluice check \"codel target 5ms\"
  sluice check my_aqm.py:Bound --picture bound.svg";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_an_algorithm_by_its_ending() {
        for (words, full) in [
            ("a/b.wasm bound 3ms", "wasm:a/b.wasm bound 3ms"),
            ("b.py:Bound", "py:b.py:Bound"),
            ("fq_py:b.py:Bound", "fq_py:b.py:Bound"),
            ("codel", "codel"),
        ] {
            assert_eq!(with_scheme(words), full);
        }
    }
}
