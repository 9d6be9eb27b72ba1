//! The texts of files.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// The texts of the files that were read, by their paths. A file is read only once: a pipe has nothing left for a
/// second reader, and all variants of a scenario have the same text. Clones share the texts.
#[derive(Clone, Debug, Default)]
pub struct Texts(Arc<Mutex<BTreeMap<PathBuf, String>>>);

impl Texts {
    /// Returns the text of the file at `path`: at most 256 MiB of UTF-8.
    ///
    /// # Errors
    /// The reason, without the name of the file.
    pub fn read(&self, path: &Path) -> Result<String, String> {
        self.read_by(path, open_any)
    }

    /// Does the same as [`Texts::read`] for a file that `open` opens.
    pub(crate) fn read_by(&self, path: &Path, open: Open) -> Result<String, String> {
        let mut texts = self.0.lock().expect("nobody panics with the lock");
        if let Some(text) = texts.get(path) {
            return Ok(text.clone());
        }
        let text = read_utf8(path, open)?;
        texts.insert(path.to_owned(), text.clone());
        Ok(text)
    }
}

/// Opens a file.
pub(crate) type Open = fn(&Path) -> io::Result<File>;

/// Opens a file of any kind.
pub(crate) fn open_any(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// Decodes the file, which `open` opens, as UTF-8. A byte that is not UTF-8 is reported with line and
/// column.
pub(crate) fn read_utf8(path: &Path, open: Open) -> Result<String, String> {
    read_at_most(MOST_BYTES, path, open)
}

pub(crate) fn read_at_most(most: u64, path: &Path, open: Open) -> Result<String, String> {
    let mut bytes = Vec::new();
    let read = open(path).and_then(|file| file.take(most + 1).read_to_end(&mut bytes));
    read.map_err(|error| error.to_string())?;
    if bytes.len() as u64 > most {
        return Err(format!("it has more than {most} bytes"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let (right, wrong) = error.as_bytes().split_at(error.utf8_error().valid_up_to());
        let line_start = right.iter().rposition(|b| *b == b'\n').map_or(0, |i| i + 1);
        let line = right.iter().filter(|b| **b == b'\n').count() + 1;
        // The text before the wrong byte is valid, so its characters can be counted.
        let before = String::from_utf8_lossy(&right[line_start..]);
        let column = before.chars().count() + 1;
        let byte = wrong.first().copied().unwrap_or_default();
        format!("it is not UTF-8 text: byte 0x{byte:02x} at line {line}, column {column}")
    })
}

/// The most bytes of a text. run.json, of which 1 GiB is read, has that of a trace up to four times.
const MOST_BYTES: u64 = 1 << 28;
