//! The outputs of a replay.

use std::fs;
use std::path::{Path, PathBuf};

use sluice_core::event::StateValue;
use sluice_core::link::Outlet;
use sluice_core::record::{self, PacketRecord, REPLAY_COLUMNS};
use sluice_core::{Ecn, Packet, Time};
use sluice_wire::capture::{self, link_type};

use super::record::Recorder;
use super::sheet::{Sheet, create_named};
use super::summary::{Said, Tally};
use super::{Job, ReplayError, Replayed};
use sluice_recording::part::{Part, temporary};
use sluice_recording::{Cell, ColumnDecl, ColumnKind};
use sluice_scenario::trace::{Capture, Frame, Trace};

/// The files to write.
#[derive(Clone, Debug, Default)]
pub struct Outputs {
    /// A row per packet: `.csv` or `.parquet`.
    pub rows: Option<PathBuf>,
    /// The algorithm's variables over time: `.csv` or `.parquet`.
    pub state: Option<PathBuf>,
    /// A capture of the packets that left.
    pub capture: Option<PathBuf>,
}

impl Outputs {
    /// Removes the unfinished files of a replay that is aborted at once.
    pub fn discard(&self) {
        for path in [&self.rows, &self.state, &self.capture]
            .into_iter()
            .flatten()
        {
            // A file that was not begun, or is complete, does not exist under this name.
            let _ = fs::remove_file(temporary(path));
        }
    }
}

/// The columns of the state file.
const STATE_COLUMNS: [ColumnDecl; 5] = [
    column("time_ns", ColumnKind::Int),
    column("queue", ColumnKind::Int),
    column("variable", ColumnKind::Text),
    column("value", ColumnKind::Float),
    column("unit", ColumnKind::Text),
];

/// `docs/replay.md` describes the columns.
const fn column(name: &'static str, kind: ColumnKind) -> ColumnDecl {
    ColumnDecl {
        name,
        kind,
        is_optional: false,
        doc: "",
    }
}

/// Receives the events of a replay and writes them.
pub(super) struct Writer {
    rows: Option<Sheet>,
    /// The position of each replay column among all columns of a row.
    order: Vec<usize>,
    state: Option<StateOut>,
    capture: Option<CaptureOut>,
    recorder: Option<Recorder>,
    trace: PathBuf,
    tally: Tally,
    /// The first error of a write.
    error: Option<ReplayError>,
}

/// The variables that are being written. An algorithm may report a variable several times at one
/// instant, for example while it counts a signal and schedules the next. Only the last value was a
/// state of the algorithm.
struct StateOut {
    sheet: Sheet,
    /// The values reported at the instant `now`, in order.
    reported: Vec<Reported>,
    now: Time,
    /// The number of values at one instant above which repetitions are removed.
    room: usize,
}

/// A variable of a queue and its value.
type Reported = (u32, &'static str, StateValue);

/// A capture that is being written.
struct CaptureOut {
    path: PathBuf,
    /// `None` until the first packet determines the link type.
    writer: Option<capture::Writer<Part>>,
    origin_ns: i128,
    /// The bytes of the queued packets, by slot.
    frames: Vec<Frame>,
}

impl Writer {
    pub(super) fn create(
        outputs: &Outputs,
        job: &Job,
        has_bytes: bool,
    ) -> Result<Self, ReplayError> {
        let all = PacketRecord::COLUMNS;
        let order: Vec<usize> = REPLAY_COLUMNS
            .iter()
            .map(|name| {
                let position = all.iter().position(|column| column.name == *name);
                position.expect("a column of a replay is one of a row")
            })
            .collect();
        let columns = order.iter().map(|i| {
            let kind = match all[*i].is_text {
                true => ColumnKind::Text,
                false => ColumnKind::Int,
            };
            column(all[*i].name, kind)
        });
        let columns = columns.collect();
        if outputs.capture.is_some() && !has_bytes {
            let trace = job.trace.clone();
            return Err(ReplayError::NoBytes { trace });
        }
        let sheet = |path: &Option<PathBuf>, columns: Vec<ColumnDecl>| match path {
            Some(path) => Sheet::create(path, columns).map(Some),
            None => Ok(None),
        };
        Ok(Writer {
            rows: sheet(&outputs.rows, columns)?,
            order,
            state: sheet(&outputs.state, STATE_COLUMNS.to_vec())?.map(StateOut::new),
            capture: match &outputs.capture {
                Some(path) => Some(CaptureOut::new(path)?),
                None => None,
            },
            recorder: match &job.record {
                Some((_, started_at)) => Some(Recorder::begin(job, started_at)?),
                None => None,
            },
            trace: job.trace.clone(),
            tally: Tally::new(),
            error: None,
        })
    }

    /// Keeps the bytes of the packet that `capture` read last, whose slot is `slot`.
    pub(super) fn keep(&mut self, slot: u32, capture: &Capture) -> Result<(), ReplayError> {
        let Some(out) = &mut self.capture else {
            return Ok(());
        };
        let Some(link) = capture.link() else {
            let trace = self.trace.clone();
            return Err(ReplayError::SeveralLinks { trace });
        };
        out.begin(link, capture.origin_ns())?;
        let slot = slot as usize;
        if out.frames.len() <= slot {
            out.frames.resize_with(slot + 1, Frame::empty);
        }
        out.frames[slot].copy_from(capture.frame());
        Ok(())
    }

    /// Returns the first error of a write.
    pub(super) fn check(&mut self) -> Result<(), ReplayError> {
        match self.error.take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Completes the files.
    pub(super) fn finish(
        mut self,
        end: Time,
        mut said: Said,
        (job, trace): (&Job, &Trace),
    ) -> Result<Replayed, ReplayError> {
        self.check()?;
        if let Some(rows) = self.rows {
            rows.finish()?;
        }
        if let Some(state) = self.state {
            state.finish()?;
        }
        if let Some(out) = self.capture {
            out.finish()?;
        }
        let mut recording = None;
        if let (Some(recorder), Some((dir, _))) = (self.recorder, &job.record) {
            let (recorded, others) = recorder.finish(end, said.stopped.clone(), (trace, dir))?;
            recording = Some(recorded);
            if others > 0 {
                said.warnings.push(format!(
                    "packets of flows beyond the first {}, which the recording has without their \
                     flow: {others}",
                    super::record::MOST_FLOWS
                ));
            }
        }
        Ok(Replayed {
            summary: self.tally.finish(end, said),
            recording,
        })
    }

    fn note(&mut self, written: Result<(), ReplayError>) {
        if let Err(error) = written {
            self.error.get_or_insert(error);
        }
    }
}

impl Outlet for Writer {
    fn row(&mut self, row: &PacketRecord) {
        self.tally.count(row);
        if let Some(recorder) = &mut self.recorder {
            let recorded = recorder.packet(row);
            self.note(recorded);
        }
        if let Some(rows) = &mut self.rows {
            let cells = row.cells();
            let written = rows.row(self.order.iter().map(|i| cell(cells[*i])));
            self.note(written);
        }
    }

    fn left(&mut self, now: Time, packet: &Packet) {
        if let Some(out) = &mut self.capture {
            let written = out.packet(now, packet);
            self.note(written);
        }
    }

    fn state(&mut self, now: Time, queue: u32, name: &'static str, value: StateValue) {
        if let Some(recorder) = &mut self.recorder {
            let recorded = recorder.state(now, queue, name, value);
            self.note(recorded);
        }
        if let Some(state) = &mut self.state {
            let written = state.report(now, (queue, name, value));
            self.note(written);
        }
    }

    fn wants_state(&self) -> bool {
        self.recorder.is_some() || self.state.is_some()
    }
}

impl StateOut {
    fn new(sheet: Sheet) -> Self {
        StateOut {
            sheet,
            reported: Vec::new(),
            now: Time::ZERO,
            room: MIN_ROOM,
        }
    }

    fn report(&mut self, now: Time, reported: Reported) -> Result<(), ReplayError> {
        if now != self.now {
            self.flush()?;
            self.now = now;
        } else if self.reported.len() >= self.room {
            self.settle();
            self.room = MIN_ROOM.max(2 * self.reported.len());
        }
        self.reported.push(reported);
        Ok(())
    }

    /// Sorts by queue, and keeps only the last value of each variable, at the position of its first
    /// value.
    fn settle(&mut self) {
        self.reported.sort_by_key(|(queue, ..)| *queue);
        let mut kept: usize = 0;
        for i in 0..self.reported.len() {
            let (queue, name, value) = self.reported[i];
            let same = self.reported[..kept]
                .iter_mut()
                .rev()
                .take_while(|(other, ..)| *other == queue)
                .find(|(_, other, _)| *other == name);
            match same {
                Some(first) => first.2 = value,
                None => {
                    self.reported[kept] = (queue, name, value);
                    kept += 1;
                }
            }
        }
        self.reported.truncate(kept);
    }

    /// Writes the rows of the instant.
    fn flush(&mut self) -> Result<(), ReplayError> {
        self.settle();
        for (queue, name, value) in self.reported.drain(..) {
            let (value, unit) = match value {
                StateValue::Count(n) => (Cell::whole(n), "count"),
                StateValue::Time(time) => (Cell::whole(time.as_ns()), "time_ns"),
                StateValue::Span(span) => (Cell::whole(span.as_ns()), "span_ns"),
                StateValue::Ratio(ratio) => (Cell::Float(ratio), "ratio"),
                StateValue::Flag(flag) => (Cell::Int(i64::from(flag)), "flag"),
            };
            let row = [
                Cell::whole(self.now.as_ns()),
                Cell::whole(u64::from(queue)),
                Cell::Text(name),
                value,
                Cell::Text(unit),
            ];
            self.sheet.row(row.into_iter())?;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<(), ReplayError> {
        self.flush()?;
        self.sheet.finish()
    }
}

/// Returns the cell of a row; a missing value is the empty word.
fn cell(cell: record::Cell) -> Cell<'static> {
    match cell {
        record::Cell::Number(n) => Cell::whole(n),
        record::Cell::Text(word) => Cell::Text(word),
        record::Cell::Empty => Cell::Text(""),
    }
}

impl CaptureOut {
    fn new(path: &Path) -> Result<Self, ReplayError> {
        if path.extension().is_none_or(|ending| ending != "pcap") {
            return Err(ReplayError::Ending {
                path: path.to_owned(),
                endings: &[".pcap"],
            });
        }
        Ok(CaptureOut {
            path: path.to_owned(),
            writer: None,
            origin_ns: 0,
            frames: Vec::new(),
        })
    }

    /// Begins the file with the first packet, which determines link type and time.
    fn begin(&mut self, link: u32, origin_ns: i128) -> Result<(), ReplayError> {
        if self.writer.is_none() {
            self.origin_ns = origin_ns;
            let writer = create_named(&self.path).and_then(|part| capture::Writer::new(part, link));
            self.writer = Some(writer.map_err(|error| self.fail(error))?);
        }
        Ok(())
    }

    fn packet(&mut self, now: Time, packet: &Packet) -> Result<(), ReplayError> {
        let frame = &mut self.frames[packet.slot as usize];
        if packet.ecn == Ecn::Ce {
            frame.mark();
        }
        let time_ns = self.origin_ns + i128::from(now.as_ns());
        let writer = self
            .writer
            .as_mut()
            .expect("a packet that left has begun it");
        let written = writer.packet(time_ns, [frame.bytes(), &[]], frame.original_len);
        written.map_err(|error| self.fail(error))
    }

    fn finish(mut self) -> Result<(), ReplayError> {
        // A capture without packets needs a link type too; Ethernet is arbitrary.
        self.begin(link_type::ETHERNET, 0)?;
        let writer = self.writer.take().expect("it has begun");
        let finished = writer.into_inner().finish();
        finished.map_err(|error| self.fail(error))
    }

    fn fail(&self, error: std::io::Error) -> ReplayError {
        ReplayError::Write {
            path: self.path.clone(),
            error: error.into(),
        }
    }
}

/// The number of values of one instant that are always kept until the instant is over.
const MIN_ROOM: usize = 1 << 12;
