//! What a replay writes.

use std::path::{Path, PathBuf};

use sluice_core::event::StateValue;
use sluice_core::link::Outlet;
use sluice_core::record::{PacketRecord, REPLAY_COLUMNS};
use sluice_core::{Ecn, Packet, Time};

use super::capture::{Capture, Frame};
use super::part::Part;
use super::pcap::PcapWriter;
use super::sheet::{Cell, Column, Kind, Sheet};
use super::summary::{Summary, Tally};
use super::{Job, ReplayError};

/// Which files to write.
#[derive(Clone, Debug, Default)]
pub struct Outputs {
    /// A row per packet: `.csv` or `.parquet`.
    pub rows: Option<PathBuf>,
    /// The algorithm's variables over time: `.csv` or `.parquet`.
    pub state: Option<PathBuf>,
    /// A capture of what left.
    pub capture: Option<PathBuf>,
}

/// The columns of the state file.
const STATE_COLUMNS: [Column; 5] = [
    Column::new("time_ns", Kind::Number),
    Column::new("queue", Kind::Number),
    Column::new("variable", Kind::Text),
    Column::new("value", Kind::Decimal),
    Column::new("unit", Kind::Text),
];

/// Takes what a replay tells and writes it.
pub(super) struct Writer {
    rows: Option<Sheet>,
    /// Where the replay's columns are among all columns of a row.
    order: Vec<usize>,
    state: Option<Sheet>,
    capture: Option<CaptureOut>,
    trace: PathBuf,
    tally: Tally,
    /// The first thing that could not be written.
    error: Option<ReplayError>,
}

/// A capture that is being written.
struct CaptureOut {
    path: PathBuf,
    /// `None` until the first packet has told the link type.
    writer: Option<PcapWriter<Part>>,
    origin_ns: i128,
    /// The bytes of the packets that are held, by slot.
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
        let columns: Vec<Column> = order
            .iter()
            .map(|i| {
                let kind = if all[*i].is_text {
                    Kind::Text
                } else {
                    Kind::Number
                };
                Column::new(all[*i].name, kind)
            })
            .collect();
        if outputs.capture.is_some() && !has_bytes {
            let trace = job.trace.clone();
            return Err(ReplayError::NoBytes { trace });
        }
        let sheet = |path: &Option<PathBuf>, columns: &[Column]| match path {
            Some(path) => Sheet::create(path, columns).map(Some),
            None => Ok(None),
        };
        Ok(Writer {
            rows: sheet(&outputs.rows, &columns)?,
            order,
            state: sheet(&outputs.state, &STATE_COLUMNS)?,
            capture: match &outputs.capture {
                Some(path) => Some(CaptureOut::new(path)?),
                None => None,
            },
            trace: job.trace.clone(),
            tally: Tally::new(),
            error: None,
        })
    }

    /// Keeps the bytes of the packet that `capture` gave last, whose slot is `slot`.
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

    /// The first thing that could not be written.
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
        warnings: Vec<String>,
    ) -> Result<Summary, ReplayError> {
        self.check()?;
        for sheet in [self.rows, self.state].into_iter().flatten() {
            sheet.finish()?;
        }
        if let Some(out) = self.capture {
            out.finish()?;
        }
        Ok(self.tally.finish(end, warnings))
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
        if let Some(rows) = &mut self.rows {
            let cells = row.cells();
            let written = rows.row(self.order.iter().map(|i| cells[*i].into()));
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
        if let Some(state) = &mut self.state {
            let (value, unit) = match value {
                StateValue::Count(n) => (Cell::Number(n), "count"),
                StateValue::Time(time) => (Cell::Number(time.as_ns()), "time_ns"),
                StateValue::Span(span) => (Cell::Number(span.as_ns()), "span_ns"),
                StateValue::Ratio(ratio) => (Cell::Decimal(ratio), "ratio"),
                StateValue::Flag(flag) => (Cell::Number(u64::from(flag)), "flag"),
            };
            let written = state.row(
                [
                    Cell::Number(now.as_ns()),
                    Cell::Number(u64::from(queue)),
                    Cell::Text(name),
                    value,
                    Cell::Text(unit),
                ]
                .into_iter(),
            );
            self.note(written);
        }
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

    /// Begins the file with the first packet, which tells its link type and time.
    fn begin(&mut self, link: u16, origin_ns: i128) -> Result<(), ReplayError> {
        if self.writer.is_none() {
            self.origin_ns = origin_ns;
            let writer = Part::create(&self.path).and_then(|part| PcapWriter::new(part, link));
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
        let written = writer.packet(time_ns, frame.bytes(), frame.original_len);
        written.map_err(|error| self.fail(error))
    }

    fn finish(mut self) -> Result<(), ReplayError> {
        // A capture without packets has a link type too: Ethernet, as good as any.
        self.begin(ETHERNET, 0)?;
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

const ETHERNET: u16 = 1;
