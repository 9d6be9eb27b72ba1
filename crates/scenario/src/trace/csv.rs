//! Arrivals from CSV.

use std::io::{self, BufRead, Read as _};
use std::path::{Path, PathBuf};

use sluice_core::link::text::{self, TextError, TextErrorKind};
use sluice_core::{Ecn, Time};

use super::{Arrival, Hash, HeaderError, TraceError};
use sluice_core::spelling::nearest;

/// A column of a trace.
struct Column {
    name: &'static str,
    is_required: bool,
    low: u64,
    high: u64,
    /// The value without the column.
    default: u64,
}

const fn required(name: &'static str, low: u64, high: u64) -> Column {
    Column {
        name,
        is_required: true,
        low,
        high,
        default: 0,
    }
}

const fn optional(name: &'static str, low: u64, high: u64, default: u64) -> Column {
    Column {
        name,
        is_required: false,
        low,
        high,
        default,
    }
}

/// The columns: the required ones, in this order if there is no header, and those that a header can
/// add.
const COLUMNS: [Column; 9] = [
    required("time_ns", 0, MAX_TIME_NS),
    required("flow", 0, u32::MAX as u64),
    required("size_bytes", 1, 1 << 30),
    required("ecn", 0, 3),
    optional("segments", 1, u16::MAX as u64, 1),
    optional("class", 0, u32::MAX as u64, 0),
    optional("dscp", 0, 63, 0),
    optional("src", 0, u32::MAX as u64, 0),
    optional("dst", 0, u32::MAX as u64, 0),
];

/// The places of two columns.
const SIZE: usize = 2;
const SEGMENTS: usize = 4;

/// The year 2116, counted from 1970; packets queued then still leave within 64 bits.
const MAX_TIME_NS: u64 = 1 << 62;

/// The longest line of a trace.
const MAX_LINE: u64 = 4096;

/// Reads a CSV trace line by line.
pub(super) struct CsvTrace<R> {
    reader: R,
    path: PathBuf,
    hash: Hash,
    seed: u64,
    /// The column of each field; empty until the first line of content.
    order: Vec<usize>,
    line: u64,
    buffer: Vec<u8>,
    before: u64,
}

impl<R: BufRead> CsvTrace<R> {
    pub(super) fn new(reader: R, path: &Path, hash: Hash, seed: u64) -> Self {
        CsvTrace {
            reader,
            path: path.to_owned(),
            hash,
            seed,
            order: Vec::new(),
            line: 0,
            buffer: Vec::new(),
            before: 0,
        }
    }

    pub(super) fn read(&mut self) -> Result<Option<Arrival>, TraceError> {
        loop {
            self.line += 1;
            self.buffer.clear();
            let mut limited = self.reader.by_ref().take(MAX_LINE + 1);
            let read = limited.read_until(b'\n', &mut self.buffer);
            if read.map_err(|error| self.cannot_read(error))? == 0 {
                return Ok(None);
            }
            let Ok(line) = std::str::from_utf8(&self.buffer) else {
                // RFC 1952 section 2.3.1: ID1, ID2.
                let is_gzip = self.line == 1 && self.buffer.starts_with(&[0x1f, 0x8b]);
                return Err(self.senseless(match is_gzip {
                    true => "this is compressed by gzip; unpack it first",
                    false => "this is neither text nor a packet capture",
                }));
            };
            if self.buffer.len() as u64 > MAX_LINE {
                return Err(self.senseless("the line is too long for a trace"));
            }
            let line = line.trim_end_matches(['\n', '\r']);
            let line = match self.line {
                1 => text::without_mark(line),
                _ => line,
            };
            if text::is_silent(line) {
                continue;
            }
            if self.order.is_empty() {
                let starts_with_number =
                    line.trim_start().starts_with(|c: char| c.is_ascii_digit());
                if starts_with_number {
                    self.order = (0..COLUMNS.len())
                        .filter(|i| COLUMNS[*i].is_required)
                        .collect();
                } else {
                    self.order = header(line).map_err(|(column, kind)| TraceError::Header {
                        path: self.path.clone(),
                        line: self.line,
                        column,
                        kind,
                    })?;
                    continue;
                }
            }
            let values = values(line, &self.order, self.before).map_err(|(column, kind)| {
                TraceError::Text {
                    path: self.path.clone(),
                    error: TextError {
                        line: self.line,
                        column,
                        kind,
                    },
                }
            })?;
            self.before = values[0];
            return Ok(Some(self.arrival(values)));
        }
    }

    fn arrival(&self, values: [u64; COLUMNS.len()]) -> Arrival {
        let [time, flow, size, ecn, segments, class, dscp, src, dst] = values;
        // The ranges of the columns fit the types.
        let hash = |number: u64| self.hash.of(number as u32, self.seed);
        Arrival {
            time: Time::from_ns(time),
            flow: flow as u32,
            hashes: [hash(flow), hash(src), hash(dst)],
            len: size as u32,
            segments: segments as u16,
            ecn: Ecn::from_bits(ecn as u8),
            dscp: dscp as u8,
            class: class as u32,
        }
    }

    fn cannot_read(&self, error: io::Error) -> TraceError {
        TraceError::Read {
            path: self.path.clone(),
            error,
        }
    }

    fn senseless(&self, what: &'static str) -> TraceError {
        TraceError::Text {
            path: self.path.clone(),
            error: TextError {
                line: self.line,
                column: 1,
                kind: TextErrorKind::Senseless(what),
            },
        }
    }
}

/// Returns the column of each field of the header.
fn header(line: &str) -> Result<Vec<usize>, (usize, HeaderError)> {
    let mut order = Vec::new();
    for (column, name) in text::fields(line) {
        let names = COLUMNS.iter().map(|c| c.name);
        let Some(index) = COLUMNS.iter().position(|c| c.name == name) else {
            let kind = HeaderError::Unknown {
                nearest: nearest(name, names),
                name: text::excerpt(name),
            };
            return Err((column, kind));
        };
        if order.contains(&index) {
            let name = COLUMNS[index].name;
            return Err((column, HeaderError::Twice { name }));
        }
        order.push(index);
    }
    let missing = (0..COLUMNS.len()).find(|i| COLUMNS[*i].is_required && !order.contains(i));
    match missing {
        Some(index) => {
            let name = COLUMNS[index].name;
            Err((line.len() + 1, HeaderError::Missing { name }))
        }
        None => Ok(order),
    }
}

fn values(
    line: &str,
    order: &[usize],
    before: u64,
) -> Result<[u64; COLUMNS.len()], (usize, TextErrorKind)> {
    let mut values: [u64; COLUMNS.len()] = std::array::from_fn(|i| COLUMNS[i].default);
    let mut segments_at = 1;
    let mut fields = text::fields(line);
    for index in order {
        let Column {
            name, low, high, ..
        } = COLUMNS[*index];
        let Some((column, field)) = fields.next() else {
            return Err((line.len() + 1, TextErrorKind::Missing { name }));
        };
        let value = text::number(field, name, low, high).map_err(|kind| (column, kind))?;
        if *index == 0 && value < before {
            let kind = TextErrorKind::Backwards {
                time: value,
                before,
            };
            return Err((column, kind));
        }
        if *index == SEGMENTS {
            segments_at = column;
        }
        values[*index] = value;
    }
    // Each packet on the wire has at least a byte.
    let (segments, size) = (values[SEGMENTS], values[SIZE]);
    if segments > size {
        let kind = TextErrorKind::OutOfRange {
            name: COLUMNS[SEGMENTS].name,
            value: segments,
            low: 1,
            high: size,
        };
        return Err((segments_at, kind));
    }
    match fields.next() {
        Some((column, field)) => {
            let text = text::excerpt(field);
            Err((column, TextErrorKind::Extra { text }))
        }
        None => Ok(values),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<Arrival>, String> {
        let mut trace = CsvTrace::new(text.as_bytes(), Path::new("t.csv"), Hash::Flow, 1);
        let mut all = Vec::new();
        while let Some(arrival) = trace.read().map_err(|error| error.to_string())? {
            all.push(arrival);
        }
        Ok(all)
    }

    #[test]
    fn a_byte_order_mark_says_nothing() {
        let plain = read("5,1,1500,2\n");
        assert!(plain.is_ok());
        assert_eq!(read("\u{feff}5,1,1500,2\n"), plain);
        assert_eq!(
            read("\u{feff}time_ns,flow,size_bytes,ecn\n5,1,1500,2\n"),
            plain
        );
        let later = read("5,1,1500,2\n\u{feff}5,1,1500,2\n").unwrap_err();
        assert!(later.starts_with("t.csv:2:1: "), "{later}");
    }

    #[test]
    fn a_header_may_be_left_out_reordered_or_extended() {
        let plain = read("5,1,1500,2\n# nothing\n\n7, 2 ,60,0\r\n").unwrap();
        assert_eq!(plain.len(), 2);
        assert_eq!((plain[0].time, plain[0].ecn), (Time::from_ns(5), Ecn::Ect0));
        assert_eq!((plain[1].flow, plain[1].len), (2, 60));
        assert_eq!(
            read("time_ns,flow,size_bytes,ecn\n5,1,1500,2\n7,2,60,0"),
            Ok(plain)
        );
        let extended = read("ecn,size_bytes,flow,time_ns,dscp,segments\n1,3000,4,9,46,2").unwrap();
        assert_eq!(extended[0].ecn, Ecn::Ect1);
        assert_eq!((extended[0].dscp, extended[0].segments), (46, 2));
    }

    #[test]
    fn what_is_wrong_is_told_with_line_and_column() {
        let error = |text: &str| read(text).unwrap_err();
        assert_eq!(
            error("5,1,1500,2\n5,1,x,2"),
            "t.csv:2:5: `x` is not a whole number (size_bytes is expected here)"
        );
        assert_eq!(error("5,1,1500,4"), "t.csv:1:10: ecn 4 is outside 0 to 3");
        assert_eq!(
            error("5,1,0,0"),
            "t.csv:1:5: size_bytes 0 is outside 1 to 1073741824"
        );
        assert_eq!(
            error("5,1,1500"),
            "t.csv:1:9: the line ends where ecn is expected"
        );
        assert_eq!(
            error("5,,1500,0"),
            "t.csv:1:3: the field is empty; flow, a whole number, is expected"
        );
        assert_eq!(
            error("5,1,\u{0}1500,0"),
            "t.csv:1:5: `\\u{0}1500` is not a whole number (size_bytes is expected here)"
        );
        assert_eq!(
            error("5,1,1500,0,7"),
            "t.csv:1:12: `7` follows the last column"
        );
        assert_eq!(
            error("5,1,1500,0\n4,1,1500,0"),
            "t.csv:2:1: time 4 follows 5 in the previous line; times must not decrease"
        );
        assert_eq!(
            error("time_ns,flow,size,ecn"),
            "t.csv:1:14: `size` is not a column of a trace; did you mean `size_bytes`?"
        );
        assert_eq!(
            error("time_ns,flow,size_bytes"),
            "t.csv:1:24: column `ecn` is missing"
        );
        assert_eq!(
            error("time_ns,flow,flow,ecn"),
            "t.csv:1:14: column `flow` appears twice"
        );
        assert_eq!(
            error("segments,time_ns,flow,size_bytes,ecn\n1500,5,1,1500,0\n1501,5,1,1500,0"),
            "t.csv:3:1: segments 1501 is outside 1 to 1500"
        );
        assert!(error(&"9".repeat(5000)).contains("too long for a trace"));
    }

    #[test]
    fn bytes_that_are_no_text_are_refused() {
        let mut trace = CsvTrace::new(&b"\xff\xfe\n"[..], Path::new("t"), Hash::Flow, 1);
        let error = trace.read().unwrap_err().to_string();
        assert_eq!(error, "t:1:1: this is neither text nor a packet capture");
        let mut trace = CsvTrace::new(&b"\x1f\x8b\x08\n"[..], Path::new("t"), Hash::Flow, 1);
        let error = trace.read().unwrap_err().to_string();
        assert_eq!(error, "t:1:1: this is compressed by gzip; unpack it first");
    }

    #[test]
    fn a_seeded_hash_differs_from_the_number_and_between_seeds() {
        assert_eq!(Hash::Flow.of(7, 1), 7);
        assert_ne!(Hash::Seeded.of(7, 1), Hash::Seeded.of(7, 2));
        assert_eq!(Hash::Seeded.of(7, 1), Hash::Seeded.of(7, 1));
    }
}
