//! Converts the events of queues into the rows of `packets.parquet`, for both backends.
//!
//! A [`Tracer`] assumes that every packet that it is notified of has arrived before. But links make
//! copies, and rules put some packets into one queue, some into several, and others into none. So
//! this module records which packets have a row.

use sluice_core::record::{PacketRecord, Tracer};
use sluice_core::{DropReason, Event, Packet, Sink, Time};

use sluice_scenario::Direction;

/// Receives the fate of packets and keeps their rows.
pub(crate) trait Rows {
    /// A queue reported an event.
    fn on_event(&mut self, now: Time, event: &Event<'_>, numbers: &Numbers);

    /// A queue, a link or a rule dropped a packet.
    fn on_discard(&mut self, now: Time, packet: &Packet, reason: DropReason, numbers: &Numbers);
}

/// The numbers of the packets in flight, by slot. A packet keeps its slot, and so its number, over
/// all queues that it passes.
#[derive(Default)]
pub(crate) struct Numbers(Vec<u64>);

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
pub(crate) struct Witness<'a, R> {
    pub rows: &'a mut R,
    pub numbers: &'a mut Numbers,
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

    fn is_listening(&self) -> bool {
        true
    }

    fn on_event(&mut self, now: Time, event: &Event<'_>) {
        self.rows.on_event(now, event, self.numbers);
    }
}

/// The rows of a link, which makes copies of packets.
#[derive(Default)]
pub(crate) struct LinkRows(pub PacketRows);

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

impl Rows for RuleRows {
    fn on_event(&mut self, now: Time, event: &Event<'_>, numbers: &Numbers) {
        RuleRows::on_event(self, now, event, numbers);
    }

    fn on_discard(&mut self, now: Time, packet: &Packet, reason: DropReason, numbers: &Numbers) {
        self.discard(now, packet, reason, numbers);
    }
}

/// The rows of one queue.
#[derive(Default)]
pub(crate) struct PacketRows {
    tracer: Tracer,
    /// Whether the packet in a slot has a row that is not settled.
    is_open: Vec<bool>,
}

impl PacketRows {
    /// Adds a packet that arrives, with its number.
    pub fn arrive(&mut self, packet: &Packet, flow: u32, number: Option<u64>) {
        let slot = packet.slot as usize;
        if self.is_open.len() <= slot {
            self.is_open.resize(slot + 1, false);
        }
        self.is_open[slot] = true;
        self.tracer.arrive_numbered(packet, flow, number);
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
        is_open.is_some_and(std::mem::take)
    }
}

/// The rows of a router with rules. A packet that no rule puts into a queue has no row. A packet
/// that passes several pipes has a row for each.
#[derive(Default)]
pub(crate) struct RuleRows {
    up: PacketRows,
    down: PacketRows,
    /// The packet that the rules are processing, and its direction.
    arrived: Option<(Packet, u32, Direction)>,
    /// Flow and direction of the packet in a slot.
    of_slot: Vec<Option<(u32, Direction)>>,
}

impl RuleRows {
    /// Adds a packet that arrives.
    pub fn arrive(&mut self, packet: &Packet, flow: u32, direction: Direction) {
        self.arrived = Some((copy(packet), flow, direction));
    }

    /// Records an event of a queue.
    pub fn on_event(&mut self, now: Time, event: &Event<'_>, numbers: &Numbers) {
        match event {
            Event::Enqueue { packet } | Event::Mark { packet } => {
                self.find_row(now, packet, numbers);
            }
            Event::Dequeue { .. } | Event::State { .. } => {}
        }
        // Only the direction that has a row of the packet records it.
        self.up.on_event(now, event);
        self.down.on_event(now, event);
    }

    /// Records a drop by a queue or a rule.
    pub fn discard(&mut self, now: Time, packet: &Packet, reason: DropReason, numbers: &Numbers) {
        self.find_row(now, packet, numbers);
        self.up.discard(now, packet, reason);
        self.down.discard(now, packet, reason);
    }

    /// Returns the rows of a direction.
    pub fn rows_mut(&mut self, direction: Direction) -> &mut PacketRows {
        match direction {
            Direction::Up => &mut self.up,
            Direction::Down => &mut self.down,
        }
    }

    fn find_row(&mut self, now: Time, packet: &Packet, numbers: &Numbers) {
        if self.up.has_row(packet) || self.down.has_row(packet) {
            return;
        }
        let slot = packet.slot as usize;
        if self.of_slot.len() <= slot {
            self.of_slot.resize(slot + 1, None);
        }
        let is_it = |arrived: &mut (Packet, u32, Direction)| arrived.0.slot == packet.slot;
        let (row, flow, direction) = match self.arrived.take_if(is_it) {
            Some(arrived) => arrived,
            None => {
                // The packet has left one pipe and arrives at the next one now.
                let Some((flow, direction)) = self.of_slot[slot] else {
                    return;
                };
                let mut row = copy(packet);
                row.arrival = now;
                (row, flow, direction)
            }
        };
        self.of_slot[slot] = Some((flow, direction));
        let number = numbers.of(packet.slot);
        self.rows_mut(direction).arrive(&row, flow, number);
    }
}

/// The fields of a packet that a row needs.
pub(crate) fn copy(packet: &Packet) -> Packet {
    let mut row = Packet::new(packet.slot, packet.len);
    row.arrival = packet.arrival;
    row.segments = packet.segments;
    row.ecn = packet.ecn;
    row.class = packet.class;
    row.flow = packet.flow;
    row
}
