//! A run in the formats of other tools.
//!
//! - [`flent`](mod@flent): a data file that stock flent loads and plots;
//! - [`pcapng`]: a capture per port, with a comment on each packet that was dropped or marked;
//! - [`csv`](mod@csv): the tables as text;
//! - [`figures`]: the figures of variants and runs as tables.
//!
//! The recording itself is Parquet, which needs no export.

pub mod csv;
pub mod figures;
pub mod flent;
pub mod pcapng;

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use sluice_recording::{ReadError, part};

/// The reason why a run was not exported.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The recording cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A file cannot be written.
    #[error("cannot write `{}`: {error}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// The run cannot be exported as this test of flent.
    #[error(transparent)]
    Test(#[from] flent::TestError),
}

/// Writes a file under a temporary name, with this mode, and renames it when it is complete.
fn write_whole(
    path: &Path,
    mode: u32,
    content: impl FnOnce(&mut BufWriter<File>) -> Result<(), ExportError>,
) -> Result<(), ExportError> {
    let fail = |error| ExportError::Write {
        path: path.to_owned(),
        error,
    };
    let part = part::temporary(path);
    let file = part::create_temporary(&part, mode).map_err(fail);
    let written = file.and_then(|file| {
        let mut out = BufWriter::new(file);
        content(&mut out)?;
        out.flush().map_err(fail)?;
        fs::rename(&part, path).map_err(fail)
    });
    if written.is_err() {
        // An incomplete file on a full disk is useless.
        let _ = fs::remove_file(&part);
    }
    written
}

#[cfg(test)]
mod tests;
