//! What happened to each packet, one row each: the columns of every recording.
//!
//! The row is declared once, below; `packets.parquet`, the CSV of `sluice replay` and the Python
//! classes take names, units and documentation from [`PacketRecord::COLUMNS`].

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::event::{DropReason, Event};
use crate::packet::{Ecn, Packet};
use crate::units::{Span, Time};

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Still in the queue.
    Queued,
    /// It left unchanged.
    Sent,
    /// It left with a CE mark set here.
    Marked,
    /// It was dropped.
    Dropped(DropReason),
}

impl Fate {
    /// The word in recordings.
    pub const fn verdict(self) -> &'static str {
        match self {
            Fate::Queued => "queued",
            Fate::Sent => "sent",
            Fate::Marked => "marked",
            Fate::Dropped(_) => "dropped",
        }
    }

    /// The reason of a drop, or nothing.
    pub const fn reason(self) -> &'static str {
        match self {
            Fate::Dropped(reason) => reason.name(),
            _ => "",
        }
    }
}

/// A column of a recording.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its name, with the unit where it has one.
    pub name: &'static str,
    /// Whether it holds words instead of numbers.
    pub is_text: bool,
    /// One line of documentation.
    pub doc: &'static str,
}

/// The value of a column in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// A number.
    Number(u64),
    /// A word.
    Text(&'static str),
    /// Nothing: the packet is still queued.
    Empty,
}

macro_rules! packet_columns {
    ($($name:literal, $is_text:literal, $doc:literal, $row:ident => $cell:expr;)+) => {
        impl PacketRecord {
            /// The columns, in order.
            pub const COLUMNS: &'static [Column] = &[$(Column {
                name: $name, is_text: $is_text, doc: $doc,
            },)+];

            /// The cells of this row, in the order of [`PacketRecord::COLUMNS`].
            pub fn cells(&self) -> [Cell; Self::COLUMNS.len()] {
                [$({ let $row = self; $cell },)+]
            }
        }
    };
}

/// One packet's way through a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketRecord {
    /// Number of the packet in the order of arrival.
    pub seq: u64,
    /// When it arrived.
    pub arrival: Time,
    /// Its flow hash.
    pub flow: u32,
    /// Its bytes on the link.
    pub len: u32,
    /// Wire packets in it.
    pub segments: u16,
    /// Its ECN codepoint at arrival.
    pub ecn: Ecn,
    /// The class it was given.
    pub class: u32,
    /// What became of it.
    pub fate: Fate,
    /// When that was: the dequeue or the drop.
    pub at: Time,
}

packet_columns! {
    "seq", false, "number in the order of arrival", r => Cell::Number(r.seq);
    "time_ns", false, "arrival", r => Cell::Number(r.arrival.as_ns());
    "flow", false, "hash of the flow, or the flow's number", r => Cell::Number(u64::from(r.flow));
    "size_bytes", false, "bytes on the link, all segments", r => Cell::Number(u64::from(r.len));
    "segments", false, "wire packets in it", r => Cell::Number(u64::from(r.segments));
    "ecn", false, "ECN field at arrival: 0 Not-ECT, 1 ECT(1), 2 ECT(0), 3 CE", r => Cell::Number(r.ecn as u64);
    "class", false, "queue chosen by a classifier", r => Cell::Number(u64::from(r.class));
    "verdict", true, "sent, marked, dropped, or queued if the run ended before", r => Cell::Text(r.fate.verdict());
    "at_ns", false, "when it was dequeued or dropped", r => r.number(r.at.as_ns());
    "sojourn_ns", false, "from arrival to dequeue or drop", r => r.number(r.sojourn().as_ns());
    "reason", true, "why it was dropped", r => Cell::Text(r.fate.reason());
}

impl PacketRecord {
    /// Time from arrival to what became of it.
    pub fn sojourn(&self) -> Span {
        self.at.since(self.arrival)
    }

    fn number(&self, n: u64) -> Cell {
        match self.fate {
            Fate::Queued => Cell::Empty,
            _ => Cell::Number(n),
        }
    }
}

/// Puts the events of one queue together into rows.
///
/// The host calls [`Tracer::arrive`] before it enqueues a packet, and passes on what its sink is
/// told. Rows come out in the order of arrival.
#[derive(Debug, Default)]
pub struct Tracer {
    rows: VecDeque<PacketRecord>,
    /// Sequence number of the first row.
    first: u64,
    /// Which row belongs to the packet in a slot.
    of_slot: Vec<u64>,
}

impl Tracer {
    /// No rows.
    pub fn new() -> Self {
        Tracer::default()
    }

    /// A packet arrives.
    pub fn arrive(&mut self, packet: &Packet) {
        let seq = self.first + self.rows.len() as u64;
        let slot = packet.slot as usize;
        if self.of_slot.len() <= slot {
            self.of_slot.resize(slot + 1, u64::MAX);
        }
        self.of_slot[slot] = seq;
        self.rows.push_back(PacketRecord {
            seq,
            arrival: packet.arrival,
            flow: packet.flow,
            len: packet.len,
            segments: packet.segments,
            ecn: packet.ecn,
            class: packet.class,
            fate: Fate::Queued,
            at: packet.arrival,
        });
    }

    /// An event was told.
    pub fn on_event(&mut self, now: Time, event: &Event<'_>) {
        match event {
            Event::Mark { packet } => self.settle(packet, now, Fate::Marked),
            Event::Dequeue { packet } => {
                let fate = match self.row(packet).map(|row| row.fate) {
                    Some(Fate::Marked) => Fate::Marked,
                    _ => Fate::Sent,
                };
                self.settle(packet, now, fate);
            }
            Event::Enqueue { .. } | Event::State { .. } => {}
        }
    }

    /// A packet was dropped.
    pub fn discard(&mut self, now: Time, packet: &Packet, reason: DropReason) {
        self.settle(packet, now, Fate::Dropped(reason));
    }

    /// All rows, also those of packets that are still queued.
    pub fn into_rows(self) -> impl Iterator<Item = PacketRecord> {
        self.rows.into_iter()
    }

    /// Takes the rows before the oldest packet that is still queued.
    pub fn take_settled(&mut self) -> impl Iterator<Item = PacketRecord> + '_ {
        let settled = self
            .rows
            .iter()
            .position(|row| row.fate == Fate::Queued)
            .unwrap_or(self.rows.len());
        self.first += settled as u64;
        self.rows.drain(..settled)
    }

    fn row(&mut self, packet: &Packet) -> Option<&mut PacketRecord> {
        let seq = *self.of_slot.get(packet.slot as usize)?;
        self.rows.get_mut(seq.checked_sub(self.first)? as usize)
    }

    fn settle(&mut self, packet: &Packet, now: Time, fate: Fate) {
        if let Some(row) = self.row(packet) {
            row.fate = fate;
            row.at = now;
        }
    }
}
