//! Text files of numbers, with the position of errors.
//!
//! Lines and columns count from 1, columns in bytes. Blank lines and lines that start with `#` are
//! ignored. The parsers never panic: any text gives values or a [`TextError`].

use alloc::string::String;

/// An error in a text file, and its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {kind}")]
pub struct TextError {
    /// The line.
    pub line: u64,
    /// The column.
    pub column: usize,
    /// The error.
    pub kind: TextErrorKind,
}

/// The kind of error in a text file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextErrorKind {
    /// The text is not the expected whole number.
    #[error("`{text}` is not a whole number ({name} is expected here)")]
    NotANumber {
        /// The text that was found, truncated if it is long.
        text: String,
        /// Name of the expected value.
        name: &'static str,
    },
    /// A number outside its range.
    #[error("{name} {value} is outside {low} to {high}")]
    OutOfRange {
        /// Name of the number.
        name: &'static str,
        /// The number.
        value: u64,
        /// The smallest accepted value.
        low: u64,
        /// The largest accepted value.
        high: u64,
    },
    /// A number with more digits than any accepted one.
    #[error("{name} has more than 20 digits")]
    TooLong {
        /// Name of the number.
        name: &'static str,
    },
    /// An empty field.
    #[error("the field is empty; {name}, a whole number, is expected")]
    Blank {
        /// Name of the expected value.
        name: &'static str,
    },
    /// The line ends too early.
    #[error("the line ends where {name} is expected")]
    Missing {
        /// Name of the missing value.
        name: &'static str,
    },
    /// The line continues after the last column.
    #[error("`{text}` follows the last column")]
    Extra {
        /// The text that was found, truncated if it is long.
        text: String,
    },
    /// A time earlier than that of the previous line.
    #[error("time {time} follows {before} in the previous line; times must not decrease")]
    Backwards {
        /// The time.
        time: u64,
        /// The time of the previous line.
        before: u64,
    },
    /// A time that occurred before, where one time can have one value only.
    #[error("time {time} already has a value")]
    Twice {
        /// The time.
        time: u64,
    },
    /// There are no numbers in the whole file.
    #[error("the file holds no {name}")]
    Empty {
        /// The expected content of the file.
        name: &'static str,
    },
    /// The values contradict one another.
    #[error("{0}")]
    Senseless(&'static str),
}

/// Iterates over the comma-separated fields of a line, trimmed, with their columns.
pub fn fields(line: &str) -> impl Iterator<Item = (usize, &str)> {
    line.split(',').map(move |field| {
        let trimmed = field.trim();
        let start = if trimmed.is_empty() {
            field.as_ptr() as usize
        } else {
            trimmed.as_ptr() as usize
        };
        (start - line.as_ptr() as usize + 1, trimmed)
    })
}

/// Returns whether a line is blank or a comment.
pub fn is_silent(line: &str) -> bool {
    let line = line.trim_start();
    line.is_empty() || line.starts_with('#')
}

/// Parses a whole number between `low` and `high`.
///
/// # Errors
/// Returns the text found instead, without the position.
pub fn number(text: &str, name: &'static str, low: u64, high: u64) -> Result<u64, TextErrorKind> {
    if text.is_empty() {
        return Err(TextErrorKind::Blank { name });
    }
    if !text.bytes().all(|b| b.is_ascii_digit()) {
        let text = excerpt(text);
        return Err(TextErrorKind::NotANumber { text, name });
    }
    let value = text.parse().map_err(|_| TextErrorKind::TooLong { name })?;
    if value < low || value > high {
        return Err(TextErrorKind::OutOfRange {
            name,
            value,
            low,
            high,
        });
    }
    Ok(value)
}

/// Returns the start of a text, short enough for a message, with invisible characters escaped.
pub fn excerpt(text: &str) -> String {
    let mut short = String::new();
    for (i, c) in text.chars().enumerate() {
        if i == 40 {
            short.push_str("...");
            break;
        }
        if c.is_control() || c == '\u{feff}' {
            short.extend(c.escape_default());
        } else {
            short.push(c);
        }
    }
    short
}

/// Removes the byte order mark that spreadsheets put in front of UTF-8.
pub fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// Parses a table of whole numbers with the columns `names`, whose names may be its first line.
pub(crate) fn table<const N: usize>(
    text: &str,
    names: [&'static str; N],
    mut row: impl FnMut([u64; N]) -> Result<(), TextErrorKind>,
) -> Result<(), TextError> {
    let mut is_first = true;
    for (line, number_of_line) in without_mark(text).lines().zip(1..) {
        if is_silent(line) {
            continue;
        }
        let is_header = fields(line).map(|(_, field)| field).eq(names);
        if core::mem::replace(&mut is_first, false) && is_header {
            continue;
        }
        let fail = |column, kind| TextError {
            line: number_of_line,
            column,
            kind,
        };
        let mut values = [0; N];
        let mut all = fields(line);
        for (value, name) in values.iter_mut().zip(names) {
            let Some((column, field)) = all.next() else {
                return Err(fail(line.len() + 1, TextErrorKind::Missing { name }));
            };
            *value = number(field, name, 0, u64::MAX).map_err(|kind| fail(column, kind))?;
        }
        if let Some((column, field)) = all.next() {
            let text = excerpt(field);
            return Err(fail(column, TextErrorKind::Extra { text }));
        }
        row(values).map_err(|kind| fail(1, kind))?;
    }
    Ok(())
}

/// Creates an error about a whole file.
pub(crate) const fn whole_file(kind: TextErrorKind) -> TextError {
    TextError {
        line: 1,
        column: 1,
        kind,
    }
}
