//! Reads the queue and the rate of a replay, and explains errors in them.

use std::fmt;
use std::path::{Path, PathBuf};

use sluice_core::Rate;
use sluice_core::link::{Schedule, TextError};
use sluice_core::registry::{Spec, SpecError, SpecErrorKind};
use sluice_core::units::UnitError;

use super::LinkRate;
use super::text::read_text;

/// The reason why a text is not a queue: the message, the place in the text, and similar words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueError {
    /// The text.
    pub text: String,
    /// The error and its place.
    pub error: Box<SpecError>,
}

impl fmt::Display for QueueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.error)?;
        if let SpecErrorKind::UnknownAlgorithm(_) | SpecErrorKind::UnknownParam { .. } =
            &self.error.kind
        {
            match (self.error.advice(), self.error.nearest().as_slice()) {
                (Some(advice), _) => write!(f, "; {advice}")?,
                (None, []) => f.write_str("; `sluice list` lists all queues")?,
                (None, near) => write!(f, "; did you mean `{}`?", near.join("` or `"))?,
            }
        }
        let before = self.text[..self.error.span.start].chars().count();
        let marked = self.text[self.error.span.clone()].chars().count().max(1);
        let marks = "^".repeat(marked);
        // On one line, so that the marks are below the words.
        let line = self.text.replace(char::is_whitespace, " ");
        write!(f, "\n  {line}\n  {:before$}{marks}", "")
    }
}

impl std::error::Error for QueueError {}

/// Reads a queue.
///
/// # Errors
/// [`QueueError`].
pub fn parse_queue(text: &str) -> Result<Spec, QueueError> {
    sluice_loader::parse_queue(text, Path::new("")).map_err(|error| QueueError {
        text: text.to_owned(),
        error: Box::new(error),
    })
}

/// The reason why a text is not a rate.
#[derive(Debug, thiserror::Error)]
pub enum RateError {
    /// The text is a number, but of what?
    #[error(
        "`{text}` has no unit: write {text}Mbit/s for megabits, {text}bit/s for bits per second"
    )]
    NoUnit {
        /// The text.
        text: String,
    },
    /// The text is neither a rate nor a file.
    #[error("`{text}` is neither a rate ({error}) nor a file with a schedule of rates")]
    Neither {
        /// The text.
        text: String,
        /// The reason why it is not a rate.
        error: UnitError,
    },
    /// The file cannot be read.
    #[error("cannot read `{}`: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        error: std::io::Error,
    },
    /// The file has an error.
    #[error("{}:{}:{}: {}", path.display(), error.line, error.column, error.kind)]
    Text {
        /// The file.
        path: PathBuf,
        /// The error and its place.
        error: TextError,
    },
    /// The link would stay down forever.
    #[error("{}: the last rate is 0, so packets still queued then would never be sent", path.display())]
    Outage {
        /// The file.
        path: PathBuf,
    },
}

/// Reads a rate, or the file that the text names.
///
/// # Errors
/// [`RateError`].
pub fn parse_rate(text: &str) -> Result<LinkRate, RateError> {
    let error = match Rate::parse(text) {
        Ok(rate) => return Ok(LinkRate::Constant(rate)),
        Err(error) => error,
    };
    let path = PathBuf::from(text);
    if !path.exists() {
        let text = text.to_owned();
        return Err(match error {
            UnitError::NoUnit(_) => RateError::NoUnit { text },
            error => RateError::Neither { text, error },
        });
    }
    let content = match read_text(&path) {
        Ok(content) => content,
        Err(error) => return Err(RateError::Read { path, error }),
    };
    // Spreadsheets put a byte order mark in front of UTF-8.
    let content = content.strip_prefix('\u{feff}').unwrap_or(&content);
    match Schedule::parse(content) {
        Ok(schedule) if schedule.ends_in_outage() => Err(RateError::Outage { path }),
        Ok(schedule) => Ok(LinkRate::Schedule {
            schedule,
            file: path,
        }),
        Err(error) => Err(RateError::Text { path, error }),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_wrong_word_is_marked_and_the_nearest_named() {
        let error = parse_queue("codel tarqet 5ms").unwrap_err().to_string();
        assert_eq!(
            error,
            "`codel` has no parameter `tarqet`; did you mean `target`?\n  codel tarqet 5ms\n        ^^^^^^"
        );
        let error = parse_queue("fq_coddle").unwrap_err().to_string();
        assert!(
            error.starts_with("unknown queue `fq_coddle`; did you mean `fq_codel`"),
            "{error}"
        );
        let error = parse_queue("pfifo limit 100").unwrap_err().to_string();
        assert!(
            error.starts_with("unknown queue `pfifo`; tc's `pfifo limit N` is `fifo limit N`\n"),
            "{error}"
        );
        let error = parse_queue("codel target 7h").unwrap_err().to_string();
        assert!(error.ends_with("             ^^"), "{error}");
        assert!(parse_queue("").is_err());
        // Pages and figures have spaces at which no line breaks, of two bytes.
        let error = parse_queue("codel\u{a0}x").unwrap_err().to_string();
        assert!(error.ends_with("\n  codel x\n        ^"), "{error}");
    }

    #[test]
    fn a_rate_has_a_unit() {
        let bps = |text: &str| match parse_rate(text) {
            Ok(LinkRate::Constant(rate)) => Some(rate.as_bps()),
            _ => None,
        };
        assert_eq!(bps("10Mbit/s"), Some(10_000_000));
        assert_eq!(bps("0Mbit/s"), None);
        let error = parse_rate("10").unwrap_err().to_string();
        assert_eq!(
            error,
            "`10` has no unit: write 10Mbit/s for megabits, 10bit/s for bits per second"
        );
        let error = parse_rate("10Mbit/h").unwrap_err().to_string();
        assert!(
            error.starts_with("`10Mbit/h` is neither a rate (unknown unit"),
            "{error}"
        );
    }

    #[test]
    fn a_schedule_file_is_told_with_line_and_column() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rates.csv");
        let read = |content: &str| {
            fs::write(&path, content).unwrap();
            parse_rate(path.to_str().unwrap())
        };
        assert!(matches!(
            read("0,1000000\n5,2000000"),
            Ok(LinkRate::Schedule { .. })
        ));
        assert!(matches!(
            read("\u{feff}time_ns,bits_per_second\n0,1000000"),
            Ok(LinkRate::Schedule { .. })
        ));
        let error = read("0,1000000\n5;2000000").unwrap_err().to_string();
        assert!(
            error.contains("rates.csv:2:1: `5;2000000` is not"),
            "{error}"
        );
        let error = read("0,1000000\n5,0").unwrap_err().to_string();
        assert!(error.contains("the last rate is 0"), "{error}");
    }
}
