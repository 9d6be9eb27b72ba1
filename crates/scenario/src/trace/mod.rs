//! Sources of recorded arrivals: CSV or a packet capture, recognised by the first bytes.

mod capture;
mod csv;
mod traffic;

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::{cell::Cell, fmt};

use sluice_core::link::TextError;
use sluice_core::{Ecn, Packet, Rng, Time};
use sluice_wire::capture::is_capture;

use crate::texts::{Open, open_any};

pub use capture::{Capture, CaptureError, Frame};
pub(crate) use traffic::{CapturedPacket, Traffic};

use csv::CsvTrace;

/// A packet of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The time of arrival.
    pub time: Time,
    /// The flow's number: the CSV's, or in the order in which the flows of a capture appear.
    pub flow: u32,
    /// The values by which a queue identifies flow, source host and destination host.
    pub hashes: [u32; 3],
    /// Bytes on the link.
    pub len: u32,
    /// Packets on the wire.
    pub segments: u16,
    /// ECN codepoint.
    pub ecn: Ecn,
    /// Differentiated services codepoint.
    pub dscp: u8,
    /// Class.
    pub class: u32,
}

impl Arrival {
    /// Returns the packet's handle.
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

/// The value by which a queue identifies a packet's flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hash {
    /// A hash keyed by the seed, as on a live router.
    #[default]
    Seeded,
    /// The flow's number itself, so that flow f is in bucket f mod `flows` and comparisons do not
    /// depend on a hash.
    Flow,
}

impl Hash {
    /// Returns a number as a hash.
    pub fn of(self, number: u32, seed: u64) -> u32 {
        match self {
            Hash::Flow => number,
            Hash::Seeded => Rng::from_seed(seed).fork(u64::from(number)).next_u32(),
        }
    }
}

/// The reason why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file cannot be opened or read.
    #[error("cannot read `{}`: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// The CSV has an error.
    #[error("{}:{}:{}: {}", path.display(), error.line, error.column, error.kind)]
    Text {
        /// The file.
        path: PathBuf,
        /// The error and its place.
        error: TextError,
    },
    /// The header of the CSV has an unknown column, or lacks one.
    #[error("{}:{line}:{column}: {kind}", path.display())]
    Header {
        /// The file.
        path: PathBuf,
        /// The line.
        line: u64,
        /// The column.
        column: usize,
        /// The error.
        kind: HeaderError,
    },
    /// The capture has an error.
    #[error("{}: {}: {error}", path.display(), place(*packet))]
    Capture {
        /// The file.
        path: PathBuf,
        /// The packet, from 1; 0 for the head of the file.
        packet: u64,
        /// The error.
        error: CaptureError,
    },
}

/// An error in the header of a CSV trace.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// A name that is not a column.
    #[error("`{name}` is not a column of a trace{}", meant(.nearest))]
    Unknown {
        /// The name.
        name: String,
        /// The nearest names.
        nearest: Vec<&'static str>,
    },
    /// A column that appears twice.
    #[error("column `{name}` appears twice")]
    Twice {
        /// Name.
        name: &'static str,
    },
    /// A required column that is missing.
    #[error("column `{name}` is missing")]
    Missing {
        /// Name.
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
        near => format!("; did you mean `{}`?", near.join("` or `")),
    }
}

/// Recorded arrivals, one after the other.
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
    /// The file cannot be read, or its head has an error; see [`TraceError`].
    pub fn open(path: &Path, hash: Hash, seed: u64) -> Result<Trace, TraceError> {
        Trace::open_by(path, open_any, hash, seed)
    }

    /// Does the same as [`Trace::open`] for a file that `open` opens.
    pub(crate) fn open_by(
        path: &Path,
        open: Open,
        hash: Hash,
        seed: u64,
    ) -> Result<Trace, TraceError> {
        let fail = |error| TraceError::Read {
            path: path.to_owned(),
            error,
        };
        let file = open(path).map_err(fail)?;
        let size = file.metadata().map_err(fail)?.len();
        Self::from_reader(Box::new(file), size, path, hash, seed)
    }

    /// Reads a trace in memory, which errors call `input`.
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

    /// Returns the next packet.
    ///
    /// # Errors
    /// The trace has an error; see [`TraceError`].
    pub fn read(&mut self) -> Result<Option<Arrival>, TraceError> {
        match &mut self.source {
            Source::Csv(csv) => csv.read(),
            Source::Capture(capture) => capture.read(),
        }
    }

    /// Returns the capture with the packets' bytes, if the trace is one.
    pub fn capture(&self) -> Option<&Capture> {
        match &self.source {
            Source::Csv(_) => None,
            Source::Capture(capture) => Some(capture),
        }
    }

    /// Returns the names of those flows of a capture whose number is `wanted`. The flows of a CSV have
    /// no names.
    pub fn flow_names(&self, wanted: impl Fn(u32) -> bool) -> BTreeMap<u32, String> {
        let flows = self.capture().into_iter().flat_map(Capture::flows);
        let wanted = flows.filter(|(number, _)| wanted(*number));
        wanted
            .map(|(number, name)| (number, name.to_string()))
            .collect()
    }

    /// Returns warnings about the trace; complete once it has been read.
    pub fn warnings(&self) -> Vec<String> {
        self.capture().map(Capture::warnings).unwrap_or_default()
    }

    /// Returns the number of bytes read so far, and the size of the file (0 if unknown).
    pub fn progress(&self) -> (u64, u64) {
        (self.read.get(), self.size)
    }
}

/// A reader that counts the bytes read.
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
