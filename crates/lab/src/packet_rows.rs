//! The rows of `packets.parquet` of a router with rules, for both backends.

use sluice_core::record::rows::{Numbers, PacketRows, Rows, copy};
use sluice_core::{DropReason, Event, Packet, Time};
use sluice_scenario::Direction;

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

impl Rows for RuleRows {
    fn on_event(&mut self, now: Time, event: &Event<'_>, numbers: &Numbers) {
        RuleRows::on_event(self, now, event, numbers);
    }

    fn on_discard(&mut self, now: Time, packet: &Packet, reason: DropReason, numbers: &Numbers) {
        self.discard(now, packet, reason, numbers);
    }
}
