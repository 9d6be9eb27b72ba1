//! Errors of reading and of writing a recording.

use std::io;
use std::path::PathBuf;

use parquet::errors::ParquetError;

use crate::keep::Keep;
use crate::run_file::FORMAT;

/// The reason why a recording cannot be read.
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
    /// The run was recorded without the table.
    #[error(
        "`{}` has no table `{table}`, because only the {} of the run were recorded: repeat it with \
         `--record {} --fresh`",
        dir.display(),
        kept.word(),
        Keep::of_table(table).word()
    )]
    NotRecorded {
        /// The folder of the run.
        dir: PathBuf,
        /// The table.
        table: String,
        /// What was recorded.
        kept: Keep,
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
    /// A table has more than is kept in memory.
    #[error(
        "`{}` has more than {most} {what}, which would take all memory: only a shorter run, or one with fewer \
         rows, can be read (a longer `interval` in [measure] for samples; `--record` of `sluice run`)",
        path.display()
    )]
    TooMany {
        /// The file.
        path: PathBuf,
        /// Rows, or packets of which a row has several.
        what: &'static str,
        /// The most.
        most: u64,
    },
    /// The figures are not those that were stored with the run, and there are no tables to compute them from.
    #[error(
        "`{}` was edited or is of another run, and without the tables of packets its figures cannot be \
         computed again: put the original back, or repeat the run",
        path.display()
    )]
    Unsealed {
        /// The file.
        path: PathBuf,
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

/// The reason why a recording could not be begun or written.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The folder cannot be created.
    #[error("cannot create the folder `{}`: {error}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// The folder contains other files.
    #[error(
        "the folder `{}` is not empty and contains no run; choose another folder or empty it",
        path.display()
    )]
    Foreign {
        /// The folder.
        path: PathBuf,
    },
    /// Another process is writing it.
    #[error("{} is writing a run to `{}`", process(*pid), path.display())]
    InUse {
        /// The folder.
        path: PathBuf,
        /// The process, if it is known.
        pid: Option<u32>,
    },
    /// Another process is running scenarios into the folder.
    #[error(
        "{} is running scenarios into `{}`: wait until it ends, or choose another folder (-o DIR)",
        process(*pid),
        path.display()
    )]
    Locked {
        /// The folder.
        path: PathBuf,
        /// The process, if it is known.
        pid: Option<u32>,
    },
    /// The disk has too little space.
    #[error(
        "`{}` has {free} bytes free; the run may write {needed}",
        path.display()
    )]
    NoSpace {
        /// The folder.
        path: PathBuf,
        /// The free space.
        free: u64,
        /// The space that the run may need.
        needed: u64,
    },
    /// A file cannot be written.
    #[error("cannot write `{}`: {error}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// The finished recording cannot be read back.
    #[error(transparent)]
    Read(#[from] ReadError),
}

fn process(pid: Option<u32>) -> String {
    pid.map_or("another process".to_owned(), |pid| format!("process {pid}"))
}
