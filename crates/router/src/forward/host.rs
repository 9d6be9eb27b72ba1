//! The context that the loop gives to the queues: it owns the frames' bytes.

use sluice_core::{DropReason, Event, Packet, Sink, Time};
use sluice_net::port::{Pool, Slot};
use sluice_wire::frame::{self, Link, View};

use super::{LaneCounts, Observer};

/// Frees dropped packets, applies link effects to bytes, and forwards events.
pub(super) struct Host<'a, O> {
    pub pool: &'a mut Pool,
    pub counts: &'a mut LaneCounts,
    pub observer: &'a mut O,
    pub link: Link,
}

impl<O> Host<'_, O> {
    /// The headers of a packet and the bytes that contain them.
    fn headers(&self, packet: &Packet) -> (View, &[u8]) {
        let slot = Slot::from_number(packet.slot);
        let head = self.pool.head(slot);
        let view = frame::parse_head(head, self.pool.frame_len(slot), self.link);
        (view, head)
    }
}

impl<O: Observer> Sink for Host<'_, O> {
    fn discard(&mut self, now: Time, packet: Packet, reason: DropReason) {
        self.counts.drop(reason);
        self.observer.on_discard(now, &packet, reason);
        self.pool.free(Slot::from_number(packet.slot));
    }

    fn copy(&mut self, _now: Time, packet: &Packet) -> Option<u32> {
        let copy = self.pool.copy(Slot::from_number(packet.slot))?;
        self.counts.admitted += 1;
        Some(copy.number())
    }

    fn corrupt(&mut self, _now: Time, packet: &Packet, bit: u64) {
        let slot = Slot::from_number(packet.slot);
        // A partial checksum would be completed over the damage and hide it.
        self.pool.complete_checksum(slot);
        let view = frame::parse_head(self.pool.head(slot), self.pool.frame_len(slot), self.link);
        let byte = u64::from(view.network) + bit / 8;
        if let Ok(byte) = usize::try_from(byte) {
            self.pool.flip(slot, byte, 0x80 >> (bit % 8));
        }
    }

    fn is_pure_ack(&self, packet: &Packet) -> bool {
        let (view, head) = self.headers(packet);
        frame::pure_ack(&view, head).is_some()
    }

    fn supersedes(&self, newer: &Packet, older: &Packet) -> bool {
        let ((newer, new_head), (older, old_head)) = (self.headers(newer), self.headers(older));
        newer.addresses == older.addresses
            && newer.ports() == older.ports()
            && frame::pure_ack(&newer, new_head)
                .zip(frame::pure_ack(&older, old_head))
                .is_some_and(|(newer, older)| newer.supersedes(&older))
    }

    fn pipe_name(&self) -> Option<String> {
        self.observer.pipe_name()
    }

    fn is_listening(&self) -> bool {
        O::LISTENS
    }

    fn on_event(&mut self, now: Time, event: &Event<'_>) {
        self.observer.on_event(now, event);
    }
}
