//! Converts the events of queues into rows, for hosts whose links make copies of packets.
//!
//! A [`Tracer`] assumes that every packet that it is notified of has arrived before. But links make
//! copies, and rules put some packets into one queue, some into several, and others into none. So
//! this module records which packets have a row.

use alloc::string::String;
use alloc::vec::Vec;

use super::{PacketRecord, Tracer};
use crate::{DropReason, Event, Packet, Sink, Time};

/// Receives the fate of packets and keeps their rows.
pub trait Rows {
    /// A queue reported an event.
    fn on_event(&mut self, now: Time, event: &Event<'_>, numbers: &Numbers);

    /// A queue, a link or a rule dropped a packet.
    fn on_discard(&mut self, now: Time, packet: &Packet, reason: DropReason, numbers: &Numbers);
}

/// The numbers of the packets in flight, by slot. A packet keeps its slot, and so its number, over
/// all queues that it passes.
#[derive(Debug, Default)]
pub struct Numbers(Vec<u64>);

impl Numbers {
    /// Sets the number of the packet in `slot`.
    pub fn set(&mut self, slot: u32, number: u64) {
        let slot = slot as usize;
        if self.0.len() <= slot {
            self.0.resize(slot + 1, NONE);
        }
        self.0[slot] = number;
    }

    /// Returns the number of the packet in `slot`.
    pub fn of(&self, slot: u32) -> Option<u64> {
        let number = self.0.get(slot as usize).copied();
        number.filter(|number| *number != NONE)
    }

    /// Sets the number of a copy to that of its original.
    pub fn copy(&mut self, slot: u32, copy: u32) {
        if let Some(number) = self.of(slot) {
            self.set(copy, number);
        }
    }
}

/// A slot that has had no packet with a number.
const NONE: u64 = u64::MAX;

/// Records the rows of an algorithm's events, and passes the events of the host on.
pub struct Witness<'a, R> {
    /// The rows.
    pub rows: &'a mut R,
    /// The numbers of the packets.
    pub numbers: &'a mut Numbers,
    /// The host.
    pub sink: &'a mut dyn Sink,
}

impl<R: Rows> Sink for Witness<'_, R> {
    fn discard(&mut self, now: Time, packet: Packet, reason: DropReason) {
        self.rows.on_discard(now, &packet, reason, self.numbers);
        self.sink.discard(now, packet, reason);
    }

    fn copy(&mut self, now: Time, packet: &Packet) -> Option<u32> {
        let copy = self.sink.copy(now, packet)?;
        self.numbers.copy(packet.slot, copy);
        Some(copy)
    }

    fn corrupt(&mut self, now: Time, packet: &Packet, bit: u64) {
        self.sink.corrupt(now, packet, bit);
    }

    fn is_pure_ack(&self, packet: &Packet) -> bool {
        self.sink.is_pure_ack(packet)
    }

    fn supersedes(&self, newer: &Packet, older: &Packet) -> bool {
        self.sink.supersedes(newer, older)
    }

    fn pipe_name(&self) -> Option<String> {
        self.sink.pipe_name()
    }

    fn packet_number(&self, packet: &Packet) -> Option<u64> {
        self.numbers.of(packet.slot)
    }

    fn is_listening(&self) -> bool {
        true
    }

    fn on_event(&mut self, now: Time, event: &Event<'_>) {
        self.rows.on_event(now, event, self.numbers);
    }
}

/// The rows of a link, which makes copies of packets.
#[derive(Debug, Default)]
pub struct LinkRows(pub PacketRows);

impl LinkRows {
    /// Adds a row if the packet of an event has none because the link has just created it as a
    /// copy.
    fn find_copy(&mut self, now: Time, packet: &Packet, numbers: &Numbers) {
        if !self.0.has_row(packet) {
            let mut row = copy(packet);
            row.arrival = now;
            self.0.arrive(&row, packet.flow, numbers.of(packet.slot));
        }
    }
}

impl Rows for LinkRows {
    fn on_event(&mut self, now: Time, event: &Event<'_>, numbers: &Numbers) {
        if let Event::Enqueue { packet } | Event::Mark { packet } = event {
            self.find_copy(now, packet, numbers);
        }
        self.0.on_event(now, event);
    }

    fn on_discard(&mut self, now: Time, packet: &Packet, reason: DropReason, numbers: &Numbers) {
        self.find_copy(now, packet, numbers);
        self.0.discard(now, packet, reason);
    }
}

/// The rows of one queue.
#[derive(Debug, Default)]
pub struct PacketRows {
    tracer: Tracer,
    /// Whether the packet in a slot has a row that is not settled.
    is_open: Vec<bool>,
}

impl PacketRows {
    /// Adds a packet that arrives, with its number.
    pub fn arrive(&mut self, packet: &Packet, flow: u32, number: Option<u64>) {
        self.arrive_at(packet.arrival, packet, flow, number);
    }

    /// Adds a packet that arrives at the instant `now`, with its number.
    pub fn arrive_at(&mut self, now: Time, packet: &Packet, flow: u32, number: Option<u64>) {
        let slot = packet.slot as usize;
        if self.is_open.len() <= slot {
            self.is_open.resize(slot + 1, false);
        }
        self.is_open[slot] = true;
        self.tracer.arrive_at(now, packet, flow, number);
    }

    /// Returns whether the row of `packet` is not settled.
    pub fn has_row(&self, packet: &Packet) -> bool {
        let is_open = self.is_open.get(packet.slot as usize);
        is_open.copied().unwrap_or(false)
    }

    /// Records an event of the queue.
    pub fn on_event(&mut self, now: Time, event: &Event<'_>) {
        let is_meant = match event {
            Event::Dequeue { packet } => self.settles(packet),
            Event::Mark { packet } => self.has_row(packet),
            Event::Enqueue { .. } | Event::State { .. } => false,
        };
        if is_meant {
            self.tracer.on_event(now, event);
        }
    }

    /// Records a drop by the queue.
    pub fn discard(&mut self, now: Time, packet: &Packet, reason: DropReason) {
        if self.settles(packet) {
            self.tracer.discard(now, packet, reason);
        }
    }

    /// Removes the rows before the oldest packet that is still queued, and returns them.
    pub fn take_settled(&mut self) -> impl Iterator<Item = PacketRecord> + '_ {
        self.tracer.take_settled()
    }

    /// Returns all rows, including those of packets that are still queued.
    pub fn into_rows(self) -> impl Iterator<Item = PacketRecord> {
        self.tracer.into_rows()
    }

    fn settles(&mut self, packet: &Packet) -> bool {
        let is_open = self.is_open.get_mut(packet.slot as usize);
        is_open.is_some_and(core::mem::take)
    }
}

/// The fields of a packet that a row needs.
pub fn copy(packet: &Packet) -> Packet {
    let mut row = Packet::new(packet.slot, packet.len);
    row.arrival = packet.arrival;
    row.segments = packet.segments;
    row.ecn = packet.ecn;
    row.class = packet.class;
    row.flow = packet.flow;
    row
}
