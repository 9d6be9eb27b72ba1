//! Reads a run's folder.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use parquet::errors::ParquetError;

use super::SUMMARY_JSON;
use super::cell::Row;
use super::checksum::Checksum;
use super::rows::{Arrival, FlowSample, PacketRow, PingSample, QueueSample, Release, Transfer};
use super::run_file::{FORMAT, RUN_JSON, RunFile, Status, write_json};
use super::table::{Rows, path_of};
use super::writer::abandoned;
use sluice_scenario::metric::Summary;

/// The tables of a recording.
pub(crate) const TABLES: [&str; 7] = [
    PacketRow::TABLE,
    FlowSample::TABLE,
    QueueSample::TABLE,
    PingSample::TABLE,
    Transfer::TABLE,
    Release::TABLE,
    Arrival::TABLE,
];

/// Why a recording cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A file cannot be opened.
    #[error("cannot open `{}`: {error}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// A JSON file is malformed.
    #[error("`{}` is incomplete or was not written by `sluice run`: {error}", path.display())]
    Json {
        /// The file.
        path: PathBuf,
        /// The error, with line and column.
        error: serde_json::Error,
    },
    /// The folder was written by a newer program.
    #[error("`{}` has format {found}; this program reads format {FORMAT}", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// The file's format.
        found: u32,
    },
    /// A file is incomplete, or is not a table.
    #[error("`{}` is not a complete Parquet file: {error}", path.display())]
    Table {
        /// The file.
        path: PathBuf,
        /// The error.
        error: ParquetError,
    },
    /// A table has changed since it was written.
    #[error(
        "`{}` is damaged: its SHA-256 is {found}, and run.json says {expected}",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The checksum of the table as written.
        expected: String,
        /// The checksum of the table as found.
        found: String,
    },
    /// A column is missing.
    #[error("`{}` has no column `{column}`", path.display())]
    NoColumn {
        /// The file.
        path: PathBuf,
        /// The column.
        column: &'static str,
    },
    /// A column has another type.
    #[error("column `{column}` of `{}` holds {found}", path.display())]
    ColumnType {
        /// The file.
        path: PathBuf,
        /// The column.
        column: &'static str,
        /// The type found.
        found: String,
    },
    /// A value is invalid.
    #[error(
        "column `{column}` of `{}` has an invalid value in row {row} of row group {group}",
        path.display()
    )]
    Cell {
        /// The file.
        path: PathBuf,
        /// The column.
        column: &'static str,
        /// The row in its row group, from 0.
        row: usize,
        /// The row group, from 0.
        group: usize,
    },
}

/// A recorded run.
#[derive(Clone, Debug)]
pub struct Recording {
    dir: PathBuf,
    run: RunFile,
    /// Tables that were found intact; each is checked once.
    sound: Arc<Mutex<BTreeSet<&'static str>>>,
}

impl Recording {
    /// Opens the folder `dir`. A run whose process was killed is read as a partial one.
    ///
    /// # Errors
    /// The folder contains no run, or a newer program wrote it.
    pub fn open(dir: &Path) -> Result<Recording, ReadError> {
        let mut run = read_run_file(dir)?;
        if let Status::Running(process) = run.status
            && !process.is_alive()
        {
            run.status = Status::Partial {
                reason: abandoned(process),
            };
        }
        Ok(Recording {
            dir: dir.to_owned(),
            run,
            sound: Arc::default(),
        })
    }

    /// Opens a recording without checksums, for tests with tables of their own.
    #[cfg(test)]
    pub(super) fn without_checksums(mut self) -> Recording {
        self.run.tables.clear();
        self
    }

    /// Returns the folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the content of run.json.
    pub fn run(&self) -> &RunFile {
        &self.run
    }

    /// Reads every packet, in the order of arrival at its pipe.
    ///
    /// # Errors
    /// The table cannot be read.
    pub fn packets(&self) -> Result<Rows<PacketRow>, ReadError> {
        self.rows()
    }

    /// Reads the samples of all flows.
    ///
    /// # Errors
    /// The table cannot be read.
    pub fn flow_samples(&self) -> Result<Rows<FlowSample>, ReadError> {
        self.rows()
    }

    /// Reads the samples of all queues.
    ///
    /// # Errors
    /// The table cannot be read.
    pub fn queue_samples(&self) -> Result<Rows<QueueSample>, ReadError> {
        self.rows()
    }

    /// Reads every probe.
    ///
    /// # Errors
    /// The table cannot be read.
    pub fn pings(&self) -> Result<Rows<PingSample>, ReadError> {
        self.rows()
    }

    /// Reads every completed transfer, page and exchange.
    ///
    /// # Errors
    /// The table cannot be read.
    pub fn transfers(&self) -> Result<Rows<Transfer>, ReadError> {
        self.rows()
    }

    /// Reads every packet that a live router sent.
    ///
    /// # Errors
    /// The table cannot be read.
    pub fn releases(&self) -> Result<Rows<Release>, ReadError> {
        self.rows()
    }

    /// Reads every packet that a live router put into a queue, in the order of arrival.
    ///
    /// # Errors
    /// The table cannot be read; older programs wrote none.
    pub fn arrivals(&self) -> Result<Rows<Arrival>, ReadError> {
        self.rows()
    }

    /// Returns the stored summary, if there is one.
    ///
    /// # Errors
    /// The summary exists but cannot be read.
    pub fn stored_summary(&self) -> Result<Option<Summary>, ReadError> {
        let path = self.dir.join(SUMMARY_JSON);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(ReadError::Open { path, error }),
        };
        match serde_json::from_str(&text) {
            Ok(summary) => Ok(Some(summary)),
            Err(error) => Err(ReadError::Json { path, error }),
        }
    }

    /// Stores `summary` as summary.json.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn store_summary(&self, summary: &Summary) -> Result<(), super::RecordError> {
        let path = self.dir.join(SUMMARY_JSON);
        write_json(&path, summary).map_err(|error| super::RecordError::Write { path, error })
    }

    fn rows<R: Row>(&self) -> Result<Rows<R>, ReadError> {
        let is_missing = !path_of::<R>(&self.dir).exists();
        if is_missing && self.run.status != Status::Complete {
            return Ok(Rows::none(&self.dir));
        }
        let rows = Rows::open(&self.dir)?;
        self.check_sound(R::TABLE)?;
        Ok(rows)
    }

    /// Reads every table and compares its checksum.
    ///
    /// # Errors
    /// A table is damaged or missing.
    pub fn check_all(&self) -> Result<(), ReadError> {
        self.run
            .tables
            .keys()
            .filter_map(|name| TABLES.into_iter().find(|table| table == name))
            .try_for_each(|table| self.check_sound(table))
    }

    fn check_sound(&self, table: &'static str) -> Result<(), ReadError> {
        let Some(expected) = self.run.tables.get(table) else {
            // A run of an older program has no checksums.
            return Ok(());
        };
        let mut sound = self.sound.lock().expect("nobody panics with the lock");
        if sound.contains(table) {
            return Ok(());
        }
        let path = self.dir.join(table).with_extension("parquet");
        match Checksum::of_file(&path) {
            Ok(found) if found == *expected => {
                sound.insert(table);
                Ok(())
            }
            Ok(found) => Err(ReadError::Damaged {
                path,
                expected: expected.sha256.clone(),
                found: found.sha256,
            }),
            Err(error) => Err(ReadError::Open { path, error }),
        }
    }
}

pub(crate) fn read_run_file(dir: &Path) -> Result<RunFile, ReadError> {
    let path = dir.join(RUN_JSON);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) => return Err(ReadError::Open { path, error }),
    };
    #[derive(serde::Deserialize)]
    struct Versioned {
        format: u32,
    }
    let json = |error| ReadError::Json {
        path: path.clone(),
        error,
    };
    // The version comes first: nothing else is known of a newer layout.
    let Versioned { format } = serde_json::from_str(&text).map_err(json)?;
    if format != FORMAT {
        return Err(ReadError::Format {
            path,
            found: format,
        });
    }
    serde_json::from_str(&text).map_err(json)
}
