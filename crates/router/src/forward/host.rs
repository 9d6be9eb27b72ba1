//! The loop's end of the queues: it owns the bytes.

use sluice_core::{DropReason, Event, Packet, Sink, Time};
use sluice_net::frame::{self, Link};
use sluice_net::port::{Pool, Slot};

use super::{LaneCounts, Observer};

/// Frees what is dropped, does to bytes what links do, and passes events on.
pub(super) struct Host<'a, O> {
    pub pool: &'a mut Pool,
    pub counts: &'a mut LaneCounts,
    pub observer: &'a mut O,
    pub link: Link,
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
        // A checksum that is still open would be computed over the damage and hide it.
        self.pool.complete_checksum(slot);
        let view = frame::parse_head(self.pool.head(slot), self.pool.frame_len(slot), self.link);
        let byte = u64::from(view.network) + bit / 8;
        if let Ok(byte) = usize::try_from(byte) {
            self.pool.flip(slot, byte, 0x80 >> (bit % 8));
        }
    }

    fn is_listening(&self) -> bool {
        O::LISTENS
    }

    fn on_event(&mut self, now: Time, event: &Event<'_>) {
        self.observer.on_event(now, event);
    }
}
