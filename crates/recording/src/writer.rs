//! Writes a run's folder.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sluice_core::record::PacketRecord;
use sluice_core::{Rate, Time};

use super::cell::Row;
use super::encoder::Closing;
use super::error::RecordError;
use super::folder::{latest_end, prepare, read_run_file};
use super::keep::Keep;
use super::kept::KeptRows;
use super::lock::FolderLock;
use super::memory::{Encoded, Memory};
use super::metrics::Meters;
use super::program::{ProgramEntry, ProgramRecord};
use super::reader::Recording;
use super::rows::{
    Arrival, FlowSample, Header, PacketRow, PingSample, QueueSample, Release, TABLES, Transfer,
};
use super::run_file::{Environment, RUN_JSON, RunFile, Status};
use super::tables::Tables;
use crate::part::temporary;
use sluice_scenario::metric::Summary;
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
    /// The algorithms from files that an error stopped, in words.
    pub stopped: Vec<String>,
}

impl End {
    /// Creates the end of a run that ran to its end.
    pub fn complete(at: Time) -> End {
        End {
            cut_short: None,
            at,
            lost: BTreeMap::new(),
            stopped: Vec::new(),
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
/// Rows are collected in memory and written in groups. For a simulation, a thread encodes and writes
/// them if a processor is left for it; the packet loop of a live router hands its rows to another
/// thread, which also writes them. A writer that is dropped without
/// [`RunWriter::finish`] leaves a partial run.
pub struct RunWriter {
    /// `None` for a recording in memory.
    dir: Option<PathBuf>,
    run: RunFile,
    /// `None` once the writer is finished.
    tables: Option<Tables>,
    /// Computes the figures during the run; `None` if its scenario is known only at its end.
    meters: Option<Meters>,
    /// The latest instant in any row.
    latest: Time,
    /// The lock on the folder, held until the recording has its end.
    _lock: Option<FolderLock>,
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
        RunWriter::create_keeping(Keep::Packets, dir, variant, environment)
    }

    /// Like [`RunWriter::create`], for a recording of what `keep` names. Rows of other tables count
    /// for the figures only.
    ///
    /// # Errors
    /// As [`RunWriter::create`].
    pub fn create_keeping(
        keep: Keep,
        dir: &Path,
        variant: &Variant,
        environment: &Environment,
    ) -> Result<RunWriter, RecordError> {
        let bytes = estimated_bytes(&variant.scenario, keep);
        let lock = prepare(dir, bytes, environment.backend)?;
        let mut run = RunFile::new(variant, environment);
        run.recorded = keep;
        run.write(dir).map_err(|error| RecordError::Write {
            path: dir.join(RUN_JSON),
            error,
        })?;
        RunWriter::begin(run, Some((dir, lock)))
    }

    /// Creates the recording of `variant` in memory. [`Recording::save`] writes it to a folder.
    ///
    /// # Errors
    /// A table cannot be begun.
    pub fn in_memory(
        variant: &Variant,
        environment: &Environment,
    ) -> Result<RunWriter, RecordError> {
        RunWriter::in_memory_keeping(Keep::Packets, variant, environment)
    }

    /// Like [`RunWriter::in_memory`], for a recording of what `keep` names.
    ///
    /// # Errors
    /// As [`RunWriter::in_memory`].
    pub fn in_memory_keeping(
        keep: Keep,
        variant: &Variant,
        environment: &Environment,
    ) -> Result<RunWriter, RecordError> {
        let mut run = RunFile::new(variant, environment);
        run.recorded = keep;
        RunWriter::begin(run, None)
    }

    fn begin(run: RunFile, folder: Option<(&Path, FolderLock)>) -> Result<RunWriter, RecordError> {
        let (dir, lock) = folder.unzip();
        Ok(RunWriter {
            tables: Some(Tables::begin(run.recorded, dir, run.environment.backend)?),
            dir: dir.map(Path::to_owned),
            meters: Some(meters_of(&run)),
            run,
            latest: Time::ZERO,
            _lock: lock,
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
        self.meters = None;
    }

    /// Declares that the packets of flow `second` have the number of flow `first`, because the flows
    /// are the two directions of one connection. To be called after [`RunWriter::set_scenario`].
    pub fn set_packets_of(&mut self, second: u32, first: u32) {
        if let Some(flow) = self.run.flows.get_mut(second as usize) {
            flow.packets_of = Some(first);
        }
    }

    /// Keeps the rows that pages show in memory after they were written, so that they need not be
    /// read back. To be called before the first row. If the runs of the process have too many rows
    /// for that, they are read.
    pub fn keep_rows(&mut self) {
        self.tables().keep_rows();
    }

    /// Names both ends of the path, instead of `h2` and `h3`.
    pub fn set_ends(&mut self, ends: [&str; 2]) {
        self.run.ends = ends.map(str::to_owned);
    }

    /// Returns whether rows of `R` are recorded.
    pub fn keeps<R: Row>(&self) -> bool {
        let tables = self.tables.as_ref();
        tables.is_some_and(Tables::has::<R>)
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
        let pipe = pipe.into();
        self.latest = self.latest.max(record.at);
        if let Some(meters) = &mut self.meters {
            meters.packet(pipe, record);
        }
        if !self.keeps::<PacketRow>() {
            return Ok(());
        }
        self.tables().push(PacketRow {
            pipe,
            record: record.clone(),
        })
    }

    /// Records the header of a packet that a host sent. Headers come in the order of the packets'
    /// numbers.
    ///
    /// # Errors
    /// As [`RunWriter::packet`].
    pub fn header(&mut self, header: Header) -> Result<(), RecordError> {
        self.tables().push(header)
    }

    /// Records a sample of a flow's state.
    ///
    /// # Errors
    /// As [`RunWriter::packet`].
    pub fn flow_sample(&mut self, sample: &FlowSample) -> Result<(), RecordError> {
        self.latest = self.latest.max(sample.time);
        if let Some(meters) = &mut self.meters {
            meters.flow_sample(sample);
        }
        self.tables().push(sample.clone())
    }

    /// Records a sample of a queue's variable.
    ///
    /// # Errors
    /// As [`RunWriter::packet`].
    pub fn queue_sample(&mut self, sample: &QueueSample) -> Result<(), RecordError> {
        self.latest = self.latest.max(sample.time);
        self.tables().push(sample.clone())
    }

    /// Records a probe that was answered or given up.
    ///
    /// # Errors
    /// As [`RunWriter::packet`].
    pub fn ping(&mut self, sample: &PingSample) -> Result<(), RecordError> {
        self.latest = self.latest.max(sample.time);
        if let Some(meters) = &mut self.meters {
            meters.ping(sample);
        }
        self.tables().push(sample.clone())
    }

    /// Records a complete transfer or page, or a page that was open at the end.
    ///
    /// # Errors
    /// As [`RunWriter::packet`].
    pub fn transfer(&mut self, transfer: &Transfer) -> Result<(), RecordError> {
        self.latest = self.latest.max(transfer.start + transfer.took);
        if let Some(meters) = &mut self.meters {
            meters.transfer(transfer);
        }
        self.tables().push(transfer.clone())
    }

    /// Records a packet that a live router sent.
    ///
    /// # Errors
    /// As [`RunWriter::packet`].
    pub fn release(&mut self, release: &Release) -> Result<(), RecordError> {
        self.latest = self.latest.max(release.due);
        if let Some(meters) = &mut self.meters {
            meters.release(release);
        }
        self.tables().push(release.clone())
    }

    /// Records a packet that a live router put into a queue.
    ///
    /// # Errors
    /// As [`RunWriter::packet`].
    pub fn arrival(&mut self, arrival: &Arrival) -> Result<(), RecordError> {
        self.tables().push(arrival.clone())
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
        // A run that ended early has another measured time. Its figures come from its tables, if
        // they were recorded.
        let is_recorded = self.run.recorded == Keep::Packets;
        let meters = self.meters.take();
        let meters = meters.filter(|meters| meters.end() == end.at || !is_recorded);
        let (memory, kept, measured) = self.close(end, meters)?;
        let recording = match &self.dir {
            Some(dir) => Recording::open(dir)?,
            None => Recording::in_memory(self.run.clone(), memory),
        };
        Ok(recording.written(measured, kept))
    }

    fn tables(&mut self) -> &mut Tables {
        self.tables
            .as_mut()
            .expect("a finished writer is not used again")
    }

    /// Closes all tables. Returns those in memory, the rows that were kept, and the figures of
    /// `meters`, which are computed meanwhile.
    fn close(
        &mut self,
        end: End,
        meters: Option<Meters>,
    ) -> Result<(Memory, Option<KeptRows>, Option<Summary>), RecordError> {
        let Some(tables) = self.tables.take() else {
            return Ok((Memory::of_tables(Encoded::default()), None, None));
        };
        let closing = tables.close();
        self.run.end_ns = end.at.as_ns();
        self.run.lost = end.lost;
        self.run.stopped = end.stopped;
        let measured = meters.map(|meters| meters.finish(&self.run));
        let (memory, kept, failed) = match closing {
            Closing::Later(rest) => (Memory::of_rest(*rest), None, None),
            closing => {
                let written = closing.join();
                let mut encoded = Encoded::of(written.tables);
                self.run.tables.clone_from(&encoded.checksums);
                let failed = encoded.failed.take();
                (Memory::of_tables(encoded), written.kept, failed)
            }
        };
        let reason = match (&failed, end.cut_short) {
            (Some(error), _) => Some(error.to_string()),
            (None, reason) => reason,
        };
        self.run.status = reason.map_or(Status::Complete, |reason| Status::Partial { reason });
        let written = match &self.dir {
            Some(dir) => self.run.write(dir).map_err(|error| RecordError::Write {
                path: dir.join(RUN_JSON),
                error,
            }),
            None => Ok(()),
        };
        failed.map_or(written.map(|()| (memory, kept, measured)), Err)
    }
}

impl Drop for RunWriter {
    fn drop(&mut self) {
        // The duration of a recorded program is known only at its end. With a short one, an end after
        // days would not be read.
        let ran = self.latest.since(Time::ZERO);
        if ran > latest_end(&self.run.scenario) {
            let mut scenario = self.run.scenario.clone();
            scenario.duration = ran;
            self.run.describe(&scenario);
        }
        // The caller reports its own error. If this write fails too, the next run finds a folder
        // that a dead process left behind.
        let _ = self.close(End::partial(self.latest, "the program gave up"), None);
    }
}

/// Returns the meters of a run that ends as planned.
fn meters_of(run: &RunFile) -> Meters {
    Meters::new(&run.scenario, Time::from_ns(run.end_ns))
}

/// Estimates the maximum size of a run: a full link in both directions, and samples.
pub(crate) fn estimated_bytes(scenario: &Scenario, keep: Keep) -> u64 {
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
    let bytes = [
        (Keep::Figures, FIXED),
        (Keep::Flows, samples * (flows + 20.0) * PER_SAMPLE),
        (Keep::Packets, busy.iter().sum::<f64>() * PER_PACKET),
    ];
    let kept = bytes.into_iter().filter(|(level, _)| *level <= keep);
    kept.map(|(_, bytes)| bytes).sum::<f64>() as u64
}

/// Searches `dir` and its subfolders for runs whose process was killed, and marks each as partial.
/// Returns their folders. A run of another machine is left as it is, and so is one in a locked folder:
/// its process may be recording it in another container.
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
        if abandoned(&dir).is_none() {
            continue;
        }
        let Ok(_lock) = FolderLock::attempt(&dir) else {
            continue;
        };
        // Before the lock, the run may have ended.
        let Some((mut run, status)) = abandoned(&dir) else {
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

/// Returns the run in `dir` and its new status, if its process was killed on this machine.
fn abandoned(dir: &Path) -> Option<(RunFile, Status)> {
    let run = read_run_file(dir).ok()?;
    let status = run.abandoned()?;
    run.environment
        .is_of_this_machine()
        .then_some((run, status))
}
