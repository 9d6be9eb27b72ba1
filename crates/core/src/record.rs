//! One row per packet: the columns of every recording.
//!
//! The row is declared once, below. `packets.parquet`, the CSV of `sluice replay` and the Python
//! classes take names, units and documentation from [`PacketRecord::COLUMNS`].

pub mod rows;

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use crate::event::{DropReason, Event};
use crate::packet::{Ecn, Packet};
use crate::units::{Span, Time};

/// The columns of `sluice replay`, in order. With these, other implementations can be compared.
pub const REPLAY_COLUMNS: &[&str] = &[
    "seq",
    "time_ns",
    "flow",
    "size_bytes",
    "verdict",
    "at_ns",
    "sojourn_ns",
    "reason",
];

/// The fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Still in the queue.
    Queued,
    /// The packet left unchanged.
    Sent,
    /// The packet left with a CE mark that was set here.
    Marked,
    /// The packet was dropped.
    Dropped(DropReason),
}

impl Fate {
    /// Returns the word used in recordings.
    pub const fn verdict(self) -> &'static str {
        match self {
            Fate::Queued => "queued",
            Fate::Sent => "sent",
            Fate::Marked => "marked",
            Fate::Dropped(_) => "dropped",
        }
    }

    /// Returns the reason of a drop, or an empty string.
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
    /// Name, with the unit where there is one.
    pub name: &'static str,
    /// Whether the column holds words instead of numbers.
    pub is_text: bool,
    /// One line of documentation.
    pub doc: &'static str,
}

/// The value of one column in one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell {
    /// A number.
    Number(u64),
    /// A word.
    Text(&'static str),
    /// No value: the packet is still queued.
    Empty,
}

macro_rules! packet_columns {
    ($($name:literal, $is_text:literal, $doc:literal, $row:ident => $cell:expr;)+) => {
        impl PacketRecord {
            /// The columns, in order.
            pub const COLUMNS: &'static [Column] = &[$(Column {
                name: $name, is_text: $is_text, doc: $doc,
            },)+];

            /// Returns the cells of this row, in the order of [`PacketRecord::COLUMNS`].
            pub fn cells(&self) -> [Cell; Self::COLUMNS.len()] {
                [$({ let $row = self; $cell },)+]
            }

            /// Passes on the cells of this row, in the order of [`PacketRecord::COLUMNS`]. Each call
            /// knows the kind of its cell, so it costs less than a loop over
            /// [`PacketRecord::cells`].
            #[inline]
            pub fn each_cell(&self, mut cell: impl FnMut(Cell)) {
                $(cell({ let $row = self; $cell });)+
            }
        }
    };
}

/// The record of one packet in one queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PacketRecord {
    /// Number of the packet in the order of arrival.
    pub seq: u64,
    /// Number of the packet, the same in every queue that it passes; `None` if the host gives its
    /// packets none.
    pub packet: Option<u64>,
    /// The arrival.
    pub arrival: Time,
    /// Flow hash.
    pub flow: u32,
    /// Bytes on the link.
    pub len: u32,
    /// Wire packets in it.
    pub segments: u16,
    /// ECN codepoint at arrival.
    pub ecn: Ecn,
    /// The class that the packet was assigned to.
    pub class: u32,
    /// The fate of the packet.
    pub fate: Fate,
    /// The instant of its fate: of the dequeue or of the drop.
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
    "verdict", true, "sent, marked, dropped, or queued if the run ended earlier", r => Cell::Text(r.fate.verdict());
    "at_ns", false, "when it was dequeued or dropped", r => r.number(r.at.as_ns());
    "sojourn_ns", false, "from arrival to dequeue or drop", r => r.number(r.sojourn().as_ns());
    "reason", true, "why it was dropped", r => Cell::Text(r.fate.reason());
}

impl PacketRecord {
    /// Returns the time from arrival to the dequeue or the drop.
    pub fn sojourn(&self) -> Span {
        self.at.since(self.arrival)
    }

    #[inline]
    fn number(&self, n: u64) -> Cell {
        match self.fate {
            Fate::Queued => Cell::Empty,
            _ => Cell::Number(n),
        }
    }
}

/// Combines the events of one queue into rows.
///
/// The host calls [`Tracer::arrive`] before it enqueues a packet and forwards the events that its
/// sink receives. Rows come out in the order of arrival.
#[derive(Debug, Default)]
pub struct Tracer {
    rows: VecDeque<Open>,
    /// Sequence number of the first row.
    first: u64,
    /// The row that belongs to the packet in each slot.
    of_slot: Vec<u64>,
}

/// A row that may not be complete yet.
#[derive(Debug)]
struct Open {
    record: PacketRecord,
    /// Whether an AQM has marked the packet; it may do so at arrival, long before the packet
    /// leaves.
    is_marked: bool,
}

impl Tracer {
    /// Creates a tracer without rows.
    pub fn new() -> Self {
        Tracer::default()
    }

    /// Records the arrival of a packet.
    pub fn arrive(&mut self, packet: &Packet) {
        self.arrive_as(packet, packet.flow);
    }

    /// Records the arrival of a packet whose row shows `flow` instead of its hash.
    pub fn arrive_as(&mut self, packet: &Packet, flow: u32) {
        self.arrive_numbered(packet, flow, None);
    }

    /// Records the arrival of a packet as [`Tracer::arrive_as`] does, and the number that its host
    /// has given it.
    pub fn arrive_numbered(&mut self, packet: &Packet, flow: u32, number: Option<u64>) {
        self.arrive_at(packet.arrival, packet, flow, number);
    }

    /// Records the arrival of a packet as [`Tracer::arrive_numbered`] does, at the instant `arrival`
    /// instead of the packet's own.
    pub fn arrive_at(&mut self, arrival: Time, packet: &Packet, flow: u32, number: Option<u64>) {
        let seq = self.first + self.rows.len() as u64;
        let slot = packet.slot as usize;
        if self.of_slot.len() <= slot {
            self.of_slot.resize(slot + 1, u64::MAX);
        }
        self.of_slot[slot] = seq;
        let record = PacketRecord {
            seq,
            packet: number,
            arrival,
            flow,
            len: packet.len,
            segments: packet.segments,
            ecn: packet.ecn,
            class: packet.class,
            fate: Fate::Queued,
            at: arrival,
        };
        self.rows.push_back(Open {
            record,
            is_marked: false,
        });
    }

    /// Records an event.
    pub fn on_event(&mut self, now: Time, event: &Event<'_>) {
        match event {
            Event::Mark { packet } => {
                if let Some(row) = self.row(packet) {
                    row.is_marked = true;
                }
            }
            Event::Dequeue { packet } => {
                if let Some(row) = self.row(packet) {
                    row.record.at = now;
                    row.record.fate = if row.is_marked {
                        Fate::Marked
                    } else {
                        Fate::Sent
                    };
                }
            }
            Event::Enqueue { .. } | Event::State { .. } => {}
        }
    }

    /// Records a dropped packet.
    pub fn discard(&mut self, now: Time, packet: &Packet, reason: DropReason) {
        if let Some(row) = self.row(packet) {
            row.record.fate = Fate::Dropped(reason);
            row.record.at = now;
        }
    }

    /// Returns all rows, including those of packets that are still queued.
    pub fn into_rows(self) -> impl Iterator<Item = PacketRecord> {
        self.rows.into_iter().map(|row| row.record)
    }

    /// Removes and returns the rows before the oldest packet that is still queued.
    pub fn take_settled(&mut self) -> impl Iterator<Item = PacketRecord> + '_ {
        core::iter::from_fn(|| {
            if self.rows.front()?.record.fate == Fate::Queued {
                return None;
            }
            let row = self.rows.pop_front()?;
            self.first += 1;
            Some(row.record)
        })
    }

    fn row(&mut self, packet: &Packet) -> Option<&mut Open> {
        let seq = *self.of_slot.get(packet.slot as usize)?;
        self.rows.get_mut(seq.checked_sub(self.first)? as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(slot: u32) -> Packet {
        let mut packet = Packet::new(slot, 100);
        packet.ecn = Ecn::Ect0;
        packet
    }

    #[test]
    fn a_packet_marked_at_arrival_is_settled_when_it_leaves() {
        let mut tracer = Tracer::new();
        tracer.arrive(&packet(0));
        tracer.arrive(&packet(1));
        let mut first = packet(0);
        first.ecn = Ecn::Ce;
        tracer.on_event(Time::ZERO, &Event::Mark { packet: &first });
        assert_eq!(tracer.take_settled().count(), 0, "it is still queued");
        let later = Time::from_ns(7);
        tracer.on_event(later, &Event::Dequeue { packet: &first });
        let rows: Vec<PacketRecord> = tracer.take_settled().collect();
        assert_eq!(
            (rows.len(), rows[0].fate, rows[0].at),
            (1, Fate::Marked, later)
        );
    }

    #[test]
    fn a_marked_packet_that_is_thrown_out_counts_as_dropped() {
        let mut tracer = Tracer::new();
        tracer.arrive(&packet(5));
        let marked = packet(5);
        tracer.on_event(Time::ZERO, &Event::Mark { packet: &marked });
        tracer.discard(Time::from_ns(3), &marked, DropReason::Evicted);
        let rows: Vec<PacketRecord> = tracer.into_rows().collect();
        assert_eq!(rows[0].fate, Fate::Dropped(DropReason::Evicted));
    }
}
