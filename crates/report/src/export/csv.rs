//! The tables of a recording as CSV (RFC 4180): a line of column names, then a line per row. A
//! missing value is an empty field.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::{ExportError, write_whole};
use sluice_recording::csv::field;
use sluice_recording::{Cell, ReadError, Recording, Row, Rows, part};

/// The tables of a run that were written.
#[derive(Debug, Default)]
pub struct Tables {
    /// The files.
    pub files: Vec<PathBuf>,
    /// The tables that were not recorded.
    pub left_out: Vec<&'static str>,
}

/// Writes all tables of `recording` into the folder `dir`, which must exist. Tables that were not
/// recorded are left out.
///
/// # Errors
/// [`ExportError`], also if the run has figures only; no incomplete file is left behind.
pub fn write(recording: &Recording, dir: &Path) -> Result<Tables, ExportError> {
    let flow_samples = recording.flow_samples()?;
    let mut tables = Tables::default();
    tables.add(recording.packets(), dir)?;
    tables.add(recording.headers(), dir)?;
    tables.add(Ok(flow_samples), dir)?;
    tables.add(recording.queue_samples(), dir)?;
    tables.add(recording.pings(), dir)?;
    tables.add(recording.transfers(), dir)?;
    tables.add(recording.releases(), dir)?;
    match recording.arrivals() {
        // Older programs wrote no such table.
        Err(ReadError::Open { error, .. }) if error.kind() == io::ErrorKind::NotFound => {}
        arrivals => tables.add(arrivals, dir)?,
    }
    Ok(tables)
}

impl Tables {
    fn add<R: Row>(
        &mut self,
        rows: Result<Rows<R>, ReadError>,
        dir: &Path,
    ) -> Result<(), ExportError> {
        match rows {
            Err(ReadError::NotRecorded { .. }) => self.left_out.push(R::TABLE),
            rows => self.files.push(table(rows?, dir)?),
        }
        Ok(())
    }
}

fn table<R: Row>(rows: Rows<R>, dir: &Path) -> Result<PathBuf, ExportError> {
    let path = dir.join(format!("{}.csv", R::TABLE));
    let fail = |error| ExportError::Write {
        path: path.clone(),
        error,
    };
    write_whole(&path, part::OWNER, |out| {
        write_rows(out, rows).map_err(|error| match error {
            RowError::Read(error) => error.into(),
            RowError::Write(error) => fail(error),
        })
    })?;
    Ok(path)
}

enum RowError {
    Read(ReadError),
    Write(io::Error),
}

fn write_rows<R: Row>(
    out: &mut impl Write,
    rows: impl Iterator<Item = Result<R, ReadError>>,
) -> Result<(), RowError> {
    let names: Vec<&str> = R::columns().iter().map(|column| column.name).collect();
    writeln!(out, "{}", names.join(",")).map_err(RowError::Write)?;
    let mut line = String::new();
    for row in rows {
        line.clear();
        row.map_err(RowError::Read)?.write(|cell| {
            use std::fmt::Write as _;
            if !line.is_empty() {
                line.push(',');
            }
            // Writing into a string does not fail. The first cell of every table is a number, so an
            // empty line has no cell yet.
            let _ = match cell {
                Cell::Int(n) => write!(line, "{n}"),
                Cell::Float(x) => write!(line, "{x}"),
                Cell::Flag(flag) => write!(line, "{flag}"),
                Cell::Text(text) => {
                    quote(text, &mut line);
                    Ok(())
                }
                Cell::Empty => Ok(()),
            };
        });
        line.push('\n');
        out.write_all(line.as_bytes()).map_err(RowError::Write)?;
    }
    Ok(())
}

pub(super) fn quote(text: &str, line: &mut String) {
    line.push_str(&field(text));
}
