//! Reads the columns of the packets' table that charts need, a row group at a time.

use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;

use sluice_core::record::Fate;
use sluice_core::{DropReason, Span, Time};

use super::error::ReadError;
use super::rows::PacketRow;
use super::table::{Loaded, Rows};
use sluice_scenario::PipeId;

/// A packet in the queue of a pipe, without the properties that only exports need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passage {
    /// The pipe.
    pub pipe: PipeId,
    /// The arrival.
    pub arrival: Time,
    /// The instant of its fate; of a packet that is still queued, its arrival.
    pub at: Time,
    /// The number of its flow, as in run.json, or [`super::NO_FLOW`].
    pub flow: u32,
    /// Bytes on the link.
    pub len: u32,
    /// Wire packets in it.
    pub segments: u16,
    /// Its fate.
    pub fate: Fate,
    /// Number of the packet, the same in every queue.
    pub number: Option<u64>,
}

impl Passage {
    /// Returns the passage of a packet.
    #[inline]
    fn of(row: &PacketRow) -> Passage {
        let record = &row.record;
        Passage {
            pipe: row.pipe,
            arrival: record.arrival,
            at: match record.fate {
                Fate::Queued => record.arrival,
                _ => record.at,
            },
            flow: record.flow,
            len: record.len,
            segments: record.segments,
            fate: record.fate,
            number: record.packet,
        }
    }

    /// Returns the time from arrival to its fate.
    pub fn sojourn(&self) -> Span {
        self.at.since(self.arrival)
    }
}

/// The columns that are read.
const READ: [&str; 9] = [
    "time_ns",
    "at_ns",
    "flow",
    "size_bytes",
    "verdict",
    "reason",
    "pipe",
    "packet",
    "segments",
];

/// A row group.
struct Group {
    number: usize,
    rows: usize,
    columns: Vec<Loaded>,
}

impl Rows<PacketRow> {
    /// Passes on every packet, in the order of the rows. If they are not in memory, a thread decodes
    /// each row group while the packets of the one before are passed on.
    ///
    /// # Errors
    /// The table cannot be read, or has more packets than are kept in memory.
    pub fn for_each_passage(mut self, mut pass: impl FnMut(Passage)) -> Result<(), ReadError> {
        if let Some(rows) = self.take_kept() {
            rows.for_each(|row| pass(Passage::of(&row)));
            return Ok(());
        }
        let mut this = self.bounded()?;
        let places = this.keep_columns(READ);
        let path = this.path().to_owned();
        let mut wire_packets = 0;
        let (loaded, groups) = mpsc::sync_channel(1);
        thread::scope(|scope| {
            scope.spawn(move || {
                for number in 0.. {
                    let group = match this.load_next() {
                        Ok(false) => break,
                        Ok(true) => Ok(Group {
                            number,
                            rows: this.rows(),
                            columns: this.take_group(),
                        }),
                        Err(error) => Err(error),
                    };
                    let is_last = group.is_err();
                    // The receiver is gone if it has found an invalid value.
                    if loaded.send(group).is_err() || is_last {
                        break;
                    }
                }
            });
            for group in groups {
                let group = group?;
                let mut counted = |passage: Passage| {
                    wire_packets += u64::from(passage.segments);
                    if wire_packets <= MOST_WIRE_PACKETS {
                        pass(passage);
                    }
                };
                pass_on(&group, places, &mut counted).map_err(|(column, row)| ReadError::Cell {
                    path: path.clone(),
                    column: READ[column],
                    row,
                    group: group.number,
                })?;
                if wire_packets > MOST_WIRE_PACKETS {
                    return Err(too_many(path));
                }
            }
            Ok(())
        })
    }
}

/// The error of a table with more than [`MOST_WIRE_PACKETS`].
pub(crate) fn too_many(path: PathBuf) -> ReadError {
    ReadError::TooMany {
        path,
        what: "packets",
        most: MOST_WIRE_PACKETS,
    }
}

/// The most wire packets whose delays are kept in memory: 4 GB. A row can claim to be 65 535 of them.
pub(crate) const MOST_WIRE_PACKETS: u64 = 1 << 29;

/// Passes on the packets of a row group whose columns are at `places`, or returns the column and the
/// row of an invalid value.
fn pass_on(
    group: &Group,
    places: [usize; READ.len()],
    pass: &mut impl FnMut(Passage),
) -> Result<(), (usize, usize)> {
    let of = |at: usize| &group.columns[places[at]];
    let mut arrivals = Numbers::new(of(0));
    let mut instants = Numbers::new(of(1));
    let mut flows = Numbers::new(of(2));
    let mut lengths = Numbers::new(of(3));
    let mut verdicts = Words::new(of(4), |word| match word {
        "queued" => Some(Fate::Queued),
        "sent" => Some(Fate::Sent),
        "marked" => Some(Fate::Marked),
        // The reason is in its own column.
        "dropped" => Some(Fate::Dropped(DropReason::Overflow)),
        _ => None,
    });
    let mut reasons = Words::new(of(5), |word| {
        let mut all = DropReason::ALL.iter();
        all.find(|reason| reason.name() == word).copied()
    });
    let mut pipes = Words::new(of(6), PipeId::from_word);
    let mut numbers = Numbers::new(of(7));
    let mut segments = Numbers::new(of(8));
    let time = |ns: i64| u64::try_from(ns).ok().map(Time::from_ns);
    let short = |n: i64| u32::try_from(n).ok();
    for row in 0..group.rows {
        let arrival = arrivals.next(row).flatten().and_then(time);
        let arrival = arrival.ok_or((0, row))?;
        let at = instants.next(row).ok_or((1, row))?;
        let at = at.map_or(Some(arrival), time);
        let flow = flows.next(row).flatten().and_then(short);
        let len = lengths.next(row).flatten().and_then(short);
        let verdict = verdicts.next(row).flatten();
        let reason = reasons.next(row).flatten();
        let fate = match verdict.ok_or((4, row))? {
            Fate::Dropped(_) => Fate::Dropped(reason.ok_or((5, row))?),
            fate => fate,
        };
        let pipe = pipes.next(row).flatten();
        let number = numbers.next(row).ok_or((7, row))?;
        let wire_packets = segments.next(row).flatten();
        let wire_packets = wire_packets.and_then(|n| u16::try_from(n).ok());
        pass(Passage {
            pipe: pipe.ok_or((6, row))?,
            arrival,
            at: at.ok_or((1, row))?,
            flow: flow.ok_or((2, row))?,
            len: len.ok_or((3, row))?,
            segments: wire_packets.ok_or((8, row))?,
            fate,
            number: number
                .map(u64::try_from)
                .transpose()
                .map_err(|_| (7, row))?,
        });
    }
    Ok(())
}

/// The numbers of a column, in the order of its rows.
struct Numbers<'a> {
    values: &'a [i64],
    levels: Option<&'a [i16]>,
    next: usize,
}

impl<'a> Numbers<'a> {
    fn new(column: &'a Loaded) -> Self {
        Numbers {
            values: column.numbers(),
            levels: column.levels(),
            next: 0,
        }
    }

    /// Returns the number of `row`, if the cell is not empty; `None` if the column is too short.
    fn next(&mut self, row: usize) -> Option<Option<i64>> {
        if let Some(levels) = self.levels
            && *levels.get(row)? == 0
        {
            return Some(None);
        }
        let value = self.values.get(self.next)?;
        self.next += 1;
        Some(Some(*value))
    }
}

/// The words of a column, in the order of its rows. A word that is repeated, as most are, is parsed
/// once: the library returns the same place in its dictionary.
struct Words<'a, T, F> {
    column: &'a Loaded,
    parse: F,
    next: usize,
    known: Vec<(&'a [u8], Option<T>)>,
}

impl<'a, T: Copy, F: Fn(&str) -> Option<T>> Words<'a, T, F> {
    fn new(column: &'a Loaded, parse: F) -> Self {
        Words {
            column,
            parse,
            next: 0,
            known: Vec::new(),
        }
    }

    /// Returns what the word of `row` means, if the cell is not empty; `None` if the column is too
    /// short or the word means nothing.
    fn next(&mut self, row: usize) -> Option<Option<T>> {
        if let Some(levels) = self.column.levels()
            && *levels.get(row)? == 0
        {
            return Some(None);
        }
        let word = self.column.words().get(self.next)?.data();
        self.next += 1;
        let is_same = |known: &[u8]| std::ptr::eq(known, word);
        if let Some((_, meaning)) = self.known.iter().find(|(known, _)| is_same(known)) {
            return meaning.map(Some);
        }
        let meaning = str::from_utf8(word).ok().and_then(&self.parse);
        // Without a dictionary, every word has a place of its own.
        if self.known.len() == MOST_KNOWN {
            self.known.clear();
        }
        self.known.push((word, meaning));
        meaning.map(Some)
    }
}

/// More than there are verdicts and reasons.
const MOST_KNOWN: usize = 32;
