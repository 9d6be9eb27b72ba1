//! Reads a run's folder, or its tables in memory.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use bytes::Bytes;

use super::SUMMARY_JSON;
use super::cell::Row;
use super::checksum::Checksum;
use super::encoder::is_kept;
use super::error::{ReadError, RecordError};
use super::files::{open_file, read_text};
use super::folder::{read_run_file, save};
use super::keep::Keep;
use super::kept::KeptRows;
use super::lock::FolderLock;
use super::memory::Memory;
use super::pieces::Collected;
use super::rows::{
    Arrival, FlowSample, Header, PacketRow, PingSample, QueueSample, Release, TABLES, Transfer,
};
use super::run_file::{RUN_JSON, RunFile, Status, write_text};
use super::seal;
use super::table::{Rows, path_of};
use sluice_scenario::metric::Summary;

/// A recorded run.
#[derive(Clone, Debug)]
pub struct Recording {
    /// Empty for a recording in memory.
    dir: PathBuf,
    /// The content of run.json, of a recording in memory without the checksums of its tables.
    run: RunFile,
    /// The tables of a recording in memory.
    memory: Option<Arc<Memory>>,
    /// The content of run.json of a recording in memory, once its tables are encoded.
    complete: Arc<OnceLock<RunFile>>,
    /// Tables that were found intact; each is checked once.
    sound: Arc<Mutex<BTreeSet<&'static str>>>,
    /// The figures, if they were computed while the recording was written.
    measured: Option<Arc<Summary>>,
    /// Rows that were kept while the recording was written.
    kept: Option<Arc<KeptRows>>,
}

impl Recording {
    /// Opens the folder `dir`. A run whose process was killed is read as a partial one. A run that a
    /// process in another container records has its lock on the folder.
    ///
    /// # Errors
    /// The folder contains no run, or a newer program wrote it.
    pub fn open(dir: &Path) -> Result<Recording, ReadError> {
        let mut run = read_run_file(dir)?;
        if let Some(status) = run.abandoned()
            && !FolderLock::is_taken(dir)
        {
            run.status = status;
        }
        Ok(Recording {
            dir: dir.to_owned(),
            run,
            memory: None,
            complete: Arc::default(),
            sound: Arc::default(),
            measured: None,
            kept: None,
        })
    }

    pub(crate) fn in_memory(run: RunFile, memory: Memory) -> Recording {
        Recording {
            dir: PathBuf::new(),
            run,
            memory: Some(Arc::new(memory)),
            complete: Arc::default(),
            sound: Arc::default(),
            measured: None,
            kept: None,
        }
    }

    /// Adds what the writer of the recording knows: its figures, the rows that it kept, and that its
    /// tables are intact.
    pub(crate) fn written(
        mut self,
        measured: Option<Summary>,
        kept: Option<KeptRows>,
    ) -> Recording {
        let tables = TABLES
            .into_iter()
            .filter(|t| self.run.tables.contains_key(*t));
        self.sound = Arc::new(Mutex::new(tables.collect()));
        self.measured = measured.map(Arc::new);
        self.kept = kept.map(Arc::new);
        self
    }

    /// Returns the figures that were computed while the recording was written.
    pub(crate) fn measured(&self) -> Option<&Summary> {
        self.measured.as_deref()
    }

    /// Writes a recording in memory to the folder `dir`, as [`super::RunWriter::create`] would have
    /// done, and returns the recording in the folder.
    ///
    /// # Errors
    /// As of [`super::RunWriter::create`], or a table of a recording in another folder cannot be
    /// read.
    pub fn save(&self, dir: &Path) -> Result<Recording, super::RecordError> {
        let run = self.run();
        let names = TABLES.into_iter().filter(|t| run.tables.contains_key(*t));
        let read = |name| Ok((name, self.parquet(name)?));
        let tables = names.map(read).collect::<Result<_, ReadError>>()?;
        save(dir, run, &tables, &self.dir)?;
        let saved = Recording::open(dir)?;
        Ok(Recording {
            measured: self.measured.clone(),
            ..saved
        })
    }

    /// Returns the bytes of a table as Parquet.
    ///
    /// # Errors
    /// There is no such table, or it cannot be read.
    pub fn parquet(&self, table: &str) -> Result<Bytes, ReadError> {
        self.check_recorded(table)?;
        let path = self.dir.join(table).with_extension("parquet");
        let found = match &self.memory {
            Some(memory) => memory
                .tables()
                .map_err(io::Error::other)
                .and_then(|tables| {
                    let bytes = tables.bytes.get(table).cloned();
                    bytes.ok_or(io::ErrorKind::NotFound.into())
                }),
            None => open_file(&path).and_then(|mut file| {
                let mut bytes = Vec::new();
                file.read_to_end(&mut bytes)?;
                Ok(Bytes::from(bytes))
            }),
        };
        found.map_err(|error| ReadError::Open { path, error })
    }

    /// Opens a recording without checksums, for tests with tables of their own.
    #[cfg(test)]
    pub(super) fn without_checksums(mut self) -> Recording {
        self.run.tables.clear();
        self
    }

    /// Returns the folder; an empty path if the recording is in memory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns the content of run.json. This encodes the tables of a recording in memory, whose checksums
    /// it contains.
    pub fn run(&self) -> &RunFile {
        let Some(memory) = &self.memory else {
            return &self.run;
        };
        self.complete.get_or_init(|| {
            let mut run = self.run.clone();
            match memory.tables() {
                Ok(tables) => run.tables.clone_from(&tables.checksums),
                Err(reason) => {
                    let reason = reason.to_owned();
                    run.status = Status::Partial { reason };
                }
            }
            run
        })
    }

    /// Returns the content of run.json, of a recording in memory without the checksums of its tables.
    pub fn described(&self) -> &RunFile {
        &self.run
    }

    /// Returns why the run is not complete, in words; `None` if it is.
    pub fn unfinished(&self) -> Option<String> {
        match &self.run.status {
            Status::Complete => None,
            Status::Partial { reason } => Some(reason.clone()),
            Status::Running(process) => Some(format!("process {} is still running", process.pid)),
        }
    }

    /// Returns whether a process may still be recording the run.
    pub fn goes_on(&self) -> bool {
        matches!(self.run.status, Status::Running(_))
    }

    /// Returns whether nothing was recorded: the process was killed, or the run has only begun.
    pub fn is_empty(&self) -> bool {
        self.unfinished().is_some()
            && self.run().tables.is_empty()
            && !self.dir.join(SUMMARY_JSON).exists()
    }

    /// Reads every packet, in the order of arrival at its pipe.
    ///
    /// # Errors
    /// The table cannot be read.
    pub fn packets(&self) -> Result<Rows<PacketRow>, ReadError> {
        self.rows()
    }

    /// Reads the headers of the packets that simulated hosts sent, in the order in which they were
    /// sent. A live run has none; older programs wrote none.
    ///
    /// # Errors
    /// The table cannot be read.
    pub fn headers(&self) -> Result<Rows<Header>, ReadError> {
        self.check_recorded(Header::TABLE)?;
        if self.memory.is_none() && !self.run.tables.contains_key(Header::TABLE) {
            return Ok(Rows::none(&self.dir));
        }
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

    /// Reads every complete transfer and page, and the pages that were open at the end.
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

    /// Returns the stored summary, if there is one; a recording in memory has none. One that was edited, or is
    /// that of another run, does not count, since the tables have the figures, too.
    ///
    /// # Errors
    /// The summary exists but cannot be read; or it does not count, and there are no tables.
    pub fn stored_summary(&self) -> Result<Option<Summary>, ReadError> {
        if self.memory.is_some() {
            return Ok(None);
        }
        let path = self.dir.join(SUMMARY_JSON);
        let text = match read_text(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(ReadError::Open { path, error }),
        };
        match serde_json::from_str(&text) {
            Ok(summary) if self.fits(&summary) && seal::fits(&text, &self.run) => Ok(Some(summary)),
            Ok(_) if self.has(Keep::Packets) => Ok(None),
            Ok(_) => Err(ReadError::Unsealed { path }),
            Err(error) => Err(ReadError::Json { path, error }),
        }
    }

    /// Returns whether a summary has the figures of each flow and of each pipe of the run.
    fn fits(&self, summary: &Summary) -> bool {
        let scenario = &self.run.scenario;
        let is_whole = summary.flows.len() == scenario.instances().count();
        is_whole && summary.pipes.len() == scenario.pipes().count()
    }

    /// Stores `summary` as summary.json in the folder, with a seal.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn store_summary(&self, summary: &Summary) -> Result<(), RecordError> {
        let path = self.dir.join(SUMMARY_JSON);
        let backend = self.run.environment.backend;
        let text = serde_json::to_string_pretty(summary).map_err(io::Error::from);
        let written =
            text.and_then(|text| write_text(&path, &seal::sealed(&text, self.run()), backend));
        written.map_err(|error| RecordError::Write { path, error })
    }

    /// Returns whether the run was recorded at the level `keep` or a higher one.
    pub fn has(&self, keep: Keep) -> bool {
        self.run.recorded >= keep
    }

    fn check_recorded(&self, table: &str) -> Result<(), ReadError> {
        if self.has(Keep::of_table(table)) {
            return Ok(());
        }
        Err(ReadError::NotRecorded {
            dir: self.dir.clone(),
            table: table.to_owned(),
            kept: self.run.recorded,
        })
    }

    fn rows<R: Collected>(&self) -> Result<Rows<R>, ReadError> {
        self.check_recorded(R::TABLE)?;
        if let Some(kept) = &self.kept
            && is_kept::<R>()
        {
            return Ok(Rows::kept(&self.dir, kept.rows()));
        }
        if self.memory.is_some() {
            return Rows::in_memory(self.parquet(R::TABLE)?);
        }
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

    /// Checks that no table has changed since the run ended. A table that has its length and is
    /// not younger than run.json, which is written last, is not read.
    ///
    /// # Errors
    /// A table is damaged or missing.
    pub fn check_unchanged(&self) -> Result<(), ReadError> {
        let modified = |path: &Path| fs::symlink_metadata(path).and_then(|file| file.modified());
        let ended = modified(&self.dir.join(RUN_JSON)).ok();
        let is_unchanged = |table: &&str, expected: &Checksum| {
            let path = self.dir.join(table).with_extension("parquet");
            let length = fs::symlink_metadata(&path).map(|file| file.len());
            length.is_ok_and(|bytes| bytes == expected.bytes)
                && modified(&path).is_ok_and(|at| ended.is_some_and(|ended| at <= ended))
        };
        TABLES
            .into_iter()
            .filter_map(|table| Some((table, self.run.tables.get(table)?)))
            .filter(|(table, expected)| !is_unchanged(table, expected))
            .try_for_each(|(table, _)| self.check_sound(table))
    }

    fn check_sound(&self, table: &'static str) -> Result<(), ReadError> {
        let Some(expected) = self.run.tables.get(table).filter(|_| self.memory.is_none()) else {
            // A table in memory needs no check, and a run of an older program has no checksums.
            return Ok(());
        };
        let mut sound = self.sound.lock().expect("nobody panics with the lock");
        if sound.contains(table) {
            return Ok(());
        }
        let path = self.dir.join(table).with_extension("parquet");
        match open_file(&path).and_then(Checksum::of_opened) {
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

/// Returns the rows of a table, or none if it was not recorded.
///
/// # Errors
/// That of `rows`, if the table was recorded.
pub fn if_recorded<R: Row>(rows: Result<Rows<R>, ReadError>) -> Result<Rows<R>, ReadError> {
    match rows {
        Err(ReadError::NotRecorded { dir, .. }) => Ok(Rows::none(&dir)),
        rows => rows,
    }
}
