//! Where recorded arrivals come from: CSV or a packet capture, recognised by its first bytes.

mod capture;
mod csv;
mod traffic;

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::{cell::Cell, fmt};

use sluice_core::link::TextError;
use sluice_core::{Ecn, Packet, Rng, Time};
use sluice_wire::capture::is_capture;

pub use capture::{Capture, CaptureError, Frame};
pub(crate) use traffic::{CapturedPacket, Traffic};

use csv::CsvTrace;

/// A packet of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When it arrives.
    pub time: Time,
    /// The flow's number: as the CSV says, or in the order in which the flows of a capture appear.
    pub flow: u32,
    /// What a queue is told of flow, source host and destination host.
    pub hashes: [u32; 3],
    /// Bytes on the link.
    pub len: u32,
    /// Wire packets.
    pub segments: u16,
    /// ECN codepoint.
    pub ecn: Ecn,
    /// Differentiated services codepoint.
    pub dscp: u8,
    /// Class.
    pub class: u32,
}

impl Arrival {
    /// The packet's handle.
    pub fn packet(&self, slot: u32) -> Packet {
        let [flow, src, dst] = self.hashes;
        let mut packet = Packet::new(slot, self.len);
        packet.arrival = self.time;
        packet.flow = flow;
        packet.src = src;
        packet.dst = dst;
        packet.segments = self.segments;
        packet.ecn = self.ecn;
        packet.dscp = self.dscp;
        packet.class = self.class;
        packet
    }
}

/// What a queue is told of a packet's flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hash {
    /// A hash under the seed, as on a live router.
    #[default]
    Seeded,
    /// The flow's number itself, so that flow f is in bucket f mod `flows` and no hash enters a
    /// comparison.
    Flow,
}

impl Hash {
    /// A number as a hash.
    pub fn of(self, number: u32, seed: u64) -> u32 {
        match self {
            Hash::Flow => number,
            Hash::Seeded => Rng::from_seed(seed).fork(u64::from(number)).next_u32(),
        }
    }
}

/// Why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be opened or read.
    #[error("cannot read `{}`: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The text is wrong.
    #[error("{}:{}:{}: {}", path.display(), error.line, error.column, error.kind)]
    Text {
        /// The file.
        path: PathBuf,
        /// What and where.
        error: TextError,
    },
    /// The head of the CSV names a column that is not known, or leaves one out.
    #[error("{}:{line}:{column}: {kind}", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// The line.
        line: u64,
        /// The column.
        column: usize,
        /// What is wrong.
        kind: HeaderError,
    },
    /// The capture is wrong.
    #[error("{}: {}: {error}", path.display(), place(*packet))]
    Capture {
        /// The file.
        path: PathBuf,
        /// The packet, from 1; 0 for the head of the file.
        packet: u64,
        /// What is wrong with it.
        error: CaptureError,
    },
}

/// What is wrong with the head of a CSV trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// A name that is no column.
    #[error("`{name}` is not a column of a trace{}", meant(.nearest))]
    Unknown {
        /// The name.
        name: String,
        /// The names that it may be meant for.
        nearest: Vec<&'static str>,
    },
    /// A column that is there twice.
    #[error("column `{name}` stands twice")]
    Twice {
        /// Its name.
        name: &'static str,
    },
    /// A column that must be there.
    #[error("column `{name}` is missing")]
    Missing {
        /// Its name.
        name: &'static str,
    },
}

fn place(packet: u64) -> String {
    match packet {
        0 => "head".to_owned(),
        packet => format!("packet {packet}"),
    }
}

fn meant(nearest: &[&str]) -> impl fmt::Display + use<> {
    match nearest {
        [] => String::new(),
        near => format!("; is `{}` meant?", near.join("` or `")),
    }
}

/// Arrivals, one after the other.
pub struct Trace {
    source: Source,
    read: Rc<Cell<u64>>,
    size: u64,
}

enum Source {
    Csv(CsvTrace<BufReader<Counted>>),
    Capture(Box<Capture>),
}

impl Trace {
    /// Opens a file.
    ///
    /// # Errors
    /// [`TraceError`]: it cannot be read, or its head is wrong.
    pub fn open(path: &Path, hash: Hash, seed: u64) -> Result<Trace, TraceError> {
        let fail = |error| TraceError::Read {
            path: path.to_owned(),
            error,
        };
        let file = File::open(path).map_err(fail)?;
        let size = file.metadata().map_err(fail)?.len();
        Self::from_reader(Box::new(file), size, path, hash, seed)
    }

    /// Reads a trace that is in memory; errors call it `input`.
    ///
    /// # Errors
    /// As [`Trace::open`].
    pub fn from_bytes(bytes: Vec<u8>, hash: Hash, seed: u64) -> Result<Trace, TraceError> {
        let size = bytes.len() as u64;
        let reader = Box::new(Cursor::new(bytes));
        Self::from_reader(reader, size, Path::new("input"), hash, seed)
    }

    fn from_reader(
        inner: Box<dyn Read>,
        size: u64,
        path: &Path,
        hash: Hash,
        seed: u64,
    ) -> Result<Trace, TraceError> {
        let read = Rc::new(Cell::new(0));
        let counted = Counted {
            inner,
            read: Rc::clone(&read),
        };
        let mut reader = BufReader::with_capacity(1 << 16, counted);
        let head = reader.fill_buf().map_err(|error| TraceError::Read {
            path: path.to_owned(),
            error,
        })?;
        let source = if is_capture(head) {
            Source::Capture(Box::new(Capture::new(reader, path, hash, seed)?))
        } else {
            Source::Csv(CsvTrace::new(reader, path, hash, seed))
        };
        Ok(Trace { source, read, size })
    }

    /// The next packet.
    ///
    /// # Errors
    /// [`TraceError`]: what is wrong with the trace, and where.
    pub fn read(&mut self) -> Result<Option<Arrival>, TraceError> {
        match &mut self.source {
            Source::Csv(csv) => csv.read(),
            Source::Capture(capture) => capture.read(),
        }
    }

    /// The capture that the packets come from, if there are bytes.
    pub fn capture(&self) -> Option<&Capture> {
        match &self.source {
            Source::Csv(_) => None,
            Source::Capture(capture) => Some(capture),
        }
    }

    /// What a user should know about the trace, once it has been read.
    pub fn warnings(&self) -> Vec<String> {
        self.capture().map(Capture::warnings).unwrap_or_default()
    }

    /// Bytes read so far, and bytes of the file (0 if that is not known).
    pub fn progress(&self) -> (u64, u64) {
        (self.read.get(), self.size)
    }
}

/// A reader that counts what was read from it.
struct Counted {
    inner: Box<dyn Read>,
    read: Rc<Cell<u64>>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.read.set(self.read.get() + n as u64);
        Ok(n)
    }
}
