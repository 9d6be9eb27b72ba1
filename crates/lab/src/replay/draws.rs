//! The numbers that a queue draws, from a file. With the numbers of another implementation, random
//! decisions are comparable packet by packet.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use super::text::read_text;

/// The numbers of a file.
#[derive(Clone, Debug)]
pub struct Draws {
    /// The numbers, in the order in which they are drawn.
    pub numbers: Arc<[u64]>,
    /// The file.
    pub file: PathBuf,
}

/// The reason why a file has no draws.
#[derive(Debug, thiserror::Error)]
pub enum DrawsError {
    /// The file cannot be read.
    #[error("cannot read `{}`: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// A line is not a number.
    #[error(
        "{}:{line}:1: `{text}` is not a number from 0 to 18446744073709551615, decimal or with 0x",
        path.display()
    )]
    Number {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The text.
        text: String,
    },
}

/// Reads the file `text`: one 64-bit number per line. Blank lines and lines that start with `#` are
/// ignored.
///
/// # Errors
/// [`DrawsError`].
pub fn parse_draws(text: &str) -> Result<Draws, DrawsError> {
    let path = PathBuf::from(text);
    let content = match read_text(&path) {
        Ok(content) => content,
        Err(error) => return Err(DrawsError::Read { path, error }),
    };
    let mut numbers = Vec::new();
    for (index, line) in content.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let number = match line.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => line.parse(),
        };
        match number {
            Ok(number) => numbers.push(number),
            Err(_) => {
                return Err(DrawsError::Number {
                    path,
                    line: index + 1,
                    text: line.to_owned(),
                });
            }
        }
    }
    Ok(Draws {
        numbers: numbers.into(),
        file: path,
    })
}
