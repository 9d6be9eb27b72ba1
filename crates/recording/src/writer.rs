//! Writes a run's folder.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use parquet::errors::ParquetError;
use sluice_core::record::PacketRecord;
use sluice_core::{Rate, Time};

use super::cell::Row;
use super::error::RecordError;
use super::folder::{prepare, read_run_file};
use super::program::{ProgramEntry, ProgramRecord};
use super::reader::Recording;
use super::rows::{
    Arrival, FlowSample, Header, PacketRow, PingSample, QueueSample, Release, TABLES, Transfer,
};
use super::run_file::{Environment, RUN_JSON, RunFile, Status};
use super::table::{Finished, TableWriter};
use crate::part::temporary;
use sluice_scenario::{Direction, PipeId, Scenario, Variant};

/// The end of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// The reason for an early end.
    pub cut_short: Option<String>,
    /// The instant, in the time of the run.
    pub at: Time,
    /// Packets lost outside the queues, by cause.
    pub lost: BTreeMap<String, u64>,
}

impl End {
    /// Creates the end of a run that ran to its end.
    pub fn complete(at: Time) -> End {
        End {
            cut_short: None,
            at,
            lost: BTreeMap::new(),
        }
    }

    /// Creates the end of a run that ended early, for `reason`.
    pub fn partial(at: Time, reason: impl Into<String>) -> End {
        End {
            cut_short: Some(reason.into()),
            ..End::complete(at)
        }
    }
}

/// Writes a recording during the run: a folder, or the same tables in memory.
///
/// Rows are collected in memory and written in groups, which takes some milliseconds each time; a
/// live router hands its rows to another thread for that. A writer that is dropped without
/// [`RunWriter::finish`] leaves a partial run.
pub struct RunWriter {
    /// `None` for a recording in memory.
    dir: Option<PathBuf>,
    run: RunFile,
    /// `None` once the writer is finished.
    tables: Option<Tables>,
    /// The latest instant in any row.
    latest: Time,
}

struct Tables {
    packets: TableWriter<PacketRow>,
    headers: TableWriter<Header>,
    flows: TableWriter<FlowSample>,
    queues: TableWriter<QueueSample>,
    pings: TableWriter<PingSample>,
    transfers: TableWriter<Transfer>,
    releases: TableWriter<Release>,
    arrivals: TableWriter<Arrival>,
}

impl RunWriter {
    /// Creates the recording of `variant` in the folder `dir`, which is created if needed; an older
    /// run in it is replaced. If this fails for lack of permission or space, the older run is not
    /// damaged.
    ///
    /// # Errors
    /// The folder cannot be written, contains other files, is in use, or has too little space.
    pub fn create(
        dir: &Path,
        variant: &Variant,
        environment: &Environment,
    ) -> Result<RunWriter, RecordError> {
        prepare(dir, estimated_bytes(&variant.scenario))?;
        let run = RunFile::new(variant, environment);
        run.write(dir).map_err(|error| RecordError::Write {
            path: dir.join(RUN_JSON),
            error,
        })?;
        Ok(RunWriter {
            tables: Some(Tables {
                packets: create_table(dir)?,
                headers: create_table(dir)?,
                flows: create_table(dir)?,
                queues: create_table(dir)?,
                pings: create_table(dir)?,
                transfers: create_table(dir)?,
                releases: create_table(dir)?,
                arrivals: create_table(dir)?,
            }),
            dir: Some(dir.to_owned()),
            run,
            latest: Time::ZERO,
        })
    }

    /// Creates the recording of `variant` in memory. [`Recording::save`] writes it to a folder.
    ///
    /// # Errors
    /// A table cannot be begun.
    pub fn in_memory(
        variant: &Variant,
        environment: &Environment,
    ) -> Result<RunWriter, RecordError> {
        Ok(RunWriter {
            tables: Some(Tables {
                packets: table_in_memory()?,
                headers: table_in_memory()?,
                flows: table_in_memory()?,
                queues: table_in_memory()?,
                pings: table_in_memory()?,
                transfers: table_in_memory()?,
                releases: table_in_memory()?,
                arrivals: table_in_memory()?,
            }),
            dir: None,
            run: RunFile::new(variant, environment),
            latest: Time::ZERO,
        })
    }

    /// Returns the current content of run.json.
    pub fn run(&self) -> &RunFile {
        &self.run
    }

    /// Replaces the scenario by one that describes what happened, because a recorded program
    /// determines its traffic and its duration itself.
    pub fn set_scenario(&mut self, scenario: &Scenario) {
        self.run.describe(scenario);
    }

    /// Names both ends of the path, instead of `h2` and `h3`.
    pub fn set_ends(&mut self, ends: [&str; 2]) {
        self.run.ends = ends.map(str::to_owned);
    }

    /// Records a packet whose fate in the queue of `pipe` is known.
    ///
    /// # Errors
    /// [`RecordError::Write`]; the caller should end the run.
    pub fn packet(
        &mut self,
        pipe: impl Into<PipeId>,
        record: &PacketRecord,
    ) -> Result<(), RecordError> {
        self.latest = self.latest.max(record.at);
        let row = PacketRow {
            pipe: pipe.into(),
            record: record.clone(),
        };
        push(&mut self.tables().packets, &row)
    }

    /// Records the header of a packet that a host sent. Headers come in the order of the packets'
    /// numbers.
    ///
    /// # Errors
    /// As [`RunWriter::packet`].
    pub fn header(&mut self, header: &Header) -> Result<(), RecordError> {
        push(&mut self.tables().headers, header)
    }

    /// Records a sample of a flow's state.
    ///
    /// # Errors
    /// As [`RunWriter::packet`].
    pub fn flow_sample(&mut self, sample: &FlowSample) -> Result<(), RecordError> {
        self.latest = self.latest.max(sample.time);
        push(&mut self.tables().flows, sample)
    }

    /// Records a sample of a queue's variable.
    ///
    /// # Errors
    /// As [`RunWriter::packet`].
    pub fn queue_sample(&mut self, sample: &QueueSample) -> Result<(), RecordError> {
        self.latest = self.latest.max(sample.time);
        push(&mut self.tables().queues, sample)
    }

    /// Records a probe that was answered or given up.
    ///
    /// # Errors
    /// As [`RunWriter::packet`].
    pub fn ping(&mut self, sample: &PingSample) -> Result<(), RecordError> {
        self.latest = self.latest.max(sample.time);
        push(&mut self.tables().pings, sample)
    }

    /// Records a completed transfer, page or exchange.
    ///
    /// # Errors
    /// As [`RunWriter::packet`].
    pub fn transfer(&mut self, transfer: &Transfer) -> Result<(), RecordError> {
        self.latest = self.latest.max(transfer.start + transfer.took);
        push(&mut self.tables().transfers, transfer)
    }

    /// Records a packet that a live router sent.
    ///
    /// # Errors
    /// As [`RunWriter::packet`].
    pub fn release(&mut self, release: &Release) -> Result<(), RecordError> {
        self.latest = self.latest.max(release.due);
        push(&mut self.tables().releases, release)
    }

    /// Records a packet that a live router put into a queue.
    ///
    /// # Errors
    /// As [`RunWriter::packet`].
    pub fn arrival(&mut self, arrival: &Arrival) -> Result<(), RecordError> {
        push(&mut self.tables().arrivals, arrival)
    }

    /// Records a program that has ended. Its output is kept in files; a recording in memory has
    /// only its figures.
    ///
    /// # Errors
    /// As [`RunWriter::packet`].
    pub fn program(&mut self, record: &ProgramRecord<'_>) -> Result<(), RecordError> {
        self.latest = self.latest.max(record.ended);
        let entry = ProgramEntry::write(record, self.dir.as_deref())?;
        self.run.programs.push(entry);
        Ok(())
    }

    /// Ends the recording and opens it for reading, in its folder or in memory.
    ///
    /// # Errors
    /// A file cannot be written. The run is then marked partial as far as possible.
    pub fn finish(mut self, end: End) -> Result<Recording, RecordError> {
        let tables = self.close(end)?;
        match &self.dir {
            Some(dir) => Ok(Recording::open(dir)?),
            None => Ok(Recording::in_memory(self.run.clone(), tables)),
        }
    }

    fn tables(&mut self) -> &mut Tables {
        self.tables
            .as_mut()
            .expect("a finished writer is not used again")
    }

    /// Closes all tables. Returns those in memory.
    fn close(&mut self, end: End) -> Result<BTreeMap<&'static str, Bytes>, RecordError> {
        let mut in_memory = BTreeMap::new();
        let Some(tables) = self.tables.take() else {
            return Ok(in_memory);
        };
        // All tables are closed, even if one fails, so that complete tables are kept.
        let results = [
            finish(tables.packets),
            finish(tables.headers),
            finish(tables.flows),
            finish(tables.queues),
            finish(tables.pings),
            finish(tables.transfers),
            finish(tables.releases),
            finish(tables.arrivals),
        ];
        let mut failed = None;
        for (table, result) in TABLES.into_iter().zip(results) {
            match result {
                Ok(finished) => {
                    self.run.tables.insert(table.to_owned(), finished.checksum);
                    in_memory.extend(finished.bytes.map(|bytes| (table, bytes)));
                }
                Err(error) => {
                    failed.get_or_insert(error);
                }
            }
        }
        let reason = match (&failed, end.cut_short) {
            (Some(error), _) => Some(error.to_string()),
            (None, reason) => reason,
        };
        self.run.status = reason.map_or(Status::Complete, |reason| Status::Partial { reason });
        self.run.end_ns = end.at.as_ns();
        self.run.lost = end.lost;
        let written = match &self.dir {
            Some(dir) => self.run.write(dir).map_err(|error| RecordError::Write {
                path: dir.join(RUN_JSON),
                error,
            }),
            None => Ok(()),
        };
        failed.map_or(written.map(|()| in_memory), Err)
    }
}

impl Drop for RunWriter {
    fn drop(&mut self) {
        // The caller reports its own error. If this write fails too, the next run finds a folder
        // that a dead process left behind.
        let _ = self.close(End::partial(self.latest, "the program gave up"));
    }
}

fn create_table<R: Row>(dir: &Path) -> Result<TableWriter<R>, RecordError> {
    TableWriter::create(dir).map_err(|error| write_error(&super::table::path_of::<R>(dir), error))
}

fn push<R: Row>(table: &mut TableWriter<R>, row: &R) -> Result<(), RecordError> {
    table
        .push(row)
        .map_err(|error| write_error(table.path(), error))
}

fn table_in_memory<R: Row>() -> Result<TableWriter<R>, RecordError> {
    TableWriter::in_memory()
        .map_err(|error| write_error(&super::table::path_of::<R>(Path::new("")), error))
}

fn finish<R: Row>(table: TableWriter<R>) -> Result<Finished, RecordError> {
    let path = table.path().to_owned();
    // A table without its footer is useless and takes space that run.json may need, so it is
    // removed.
    table.finish().map_err(|error| write_error(&path, error))
}

fn write_error(path: &Path, error: ParquetError) -> RecordError {
    let error = match error {
        ParquetError::External(error) => match error.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(error) => io::Error::other(error),
        },
        error => io::Error::other(error),
    };
    RecordError::Write {
        path: path.to_owned(),
        error,
    }
}

/// Estimates the maximum size of a run: a full link in both directions, and samples.
pub(crate) fn estimated_bytes(scenario: &Scenario) -> u64 {
    // With random times a packet takes 17 bytes in `packets` and `releases` together; half of that
    // is added for safety. An acknowledgement of every second packet goes back.
    const PER_PACKET: f64 = 26.0 * 1.5;
    const PER_SAMPLE: f64 = 24.0;
    const FIXED: f64 = 1e6;
    let seconds = scenario.duration.as_secs_f64();
    let packets = |direction| {
        let rate = match scenario.link.pipe(direction).rate.highest() {
            // Without a rate the machine is the limit, but rules usually set a rate.
            Rate::UNLIMITED if scenario.rules.is_none() => 10e9,
            Rate::UNLIMITED => 1e9,
            rate => rate.as_bps() as f64,
        };
        rate * seconds / (8.0 * 1500.0)
    };
    let samples = seconds / scenario.measure.interval.as_secs_f64();
    let flows = scenario.instances().count() as f64;
    let busy = [Direction::Up, Direction::Down].map(|direction| {
        let is_used = scenario.flows.iter().any(|f| f.direction == direction);
        if is_used { packets(direction) } else { 0.0 }
    });
    (FIXED + busy.iter().sum::<f64>() * PER_PACKET + samples * (flows + 20.0) * PER_SAMPLE) as u64
}

/// Searches `dir` and its subfolders for runs whose process was killed, and marks each as partial.
/// Returns their folders.
///
/// # Errors
/// A folder cannot be read or written.
pub fn settle_abandoned(dir: &Path) -> Result<Vec<PathBuf>, RecordError> {
    let folder = |error| RecordError::Folder {
        path: dir.to_owned(),
        error,
    };
    let mut dirs = vec![dir.to_owned()];
    match fs::read_dir(dir) {
        Ok(entries) => {
            for entry in entries {
                let path = entry.map_err(folder)?.path();
                if path.is_dir() {
                    dirs.push(path);
                }
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(folder(error)),
    }
    dirs.sort();
    let mut settled = Vec::new();
    for dir in dirs {
        let Ok(mut run) = read_run_file(&dir) else {
            continue;
        };
        let Some(status) = run.status.abandoned() else {
            continue;
        };
        run.status = status;
        for table in TABLES {
            let _ = fs::remove_file(temporary(&dir.join(format!("{table}.parquet"))));
        }
        run.write(&dir).map_err(|error| RecordError::Write {
            path: dir.join(RUN_JSON),
            error,
        })?;
        settled.push(dir);
    }
    Ok(settled)
}
