//! Prefetching of the memory that the next events need.
//!
//! Among thousands of flows, the packet, the connection and the queue of an event are not in the
//! caches, and the event would wait for one after the other. So they are prefetched: the packets of
//! the next slot of the calendar while events of the current slot are processed; the connection of
//! an event some events in advance; then the memory that the connection points to. Prefetching has
//! no influence on the results.

use super::{Network, kind};
use crate::calendar::CalendarEvent;
use crate::ids::LinkId;
use crate::packets::{Expected, Transit};
use crate::stage::Engine;
use sluice_core::prefetch::{self, Place};
use sluice_tcp::Next;

/// The number of flows that fit the caches of a core, with about 2 KB each.
const FEW_FLOWS: usize = 256;
/// The number of events by which the connection of an event is prefetched in advance: early enough
/// for the memory, and late enough to be still in the first-level cache when it is needed.
const FAR: usize = 10;
/// The same for the memory to which the connection points.
const NEAR: usize = 4;
/// The same for the memory to which that memory points.
const LAST: usize = 2;

impl Network {
    /// Prefetches the memory that later events need, before the next event is taken.
    pub(crate) fn prefetch(&mut self) {
        if self.ready_at.len() <= FEW_FLOWS {
            return;
        }
        // Not the last one: what was prefetched for it has not arrived yet.
        let [last, before] = self.leaving;
        self.leaving = [u32::MAX, last];
        if before != u32::MAX {
            let Transit { flow, .. } = *self.packets.transit(before);
            prefetch::index(&self.ready_at, flow as usize);
        }
        // Two per event, so that the whole next slot has been previewed when its turn comes.
        for _ in 0..2 {
            if let Some(event) = self.calendar.preview()
                && event.kind == kind::DELIVER
            {
                self.packets.prefetch(event.index);
            }
        }
        let is_new = self.calendar.is_slot_new();
        for others in if is_new { 0 } else { FAR }..=FAR {
            if let Some(expected) = self.expected(others) {
                self.connections[expected.connection as usize].prefetch(expected);
            }
        }
        for others in if is_new { 0 } else { NEAR }..=NEAR {
            if let Some(expected) = self.expected(others) {
                self.prefetch_elsewhere(expected);
            }
        }
        if let Some(expected) = self.expected(LAST) {
            self.connections[expected.connection as usize].prefetch_last(expected);
        }
    }

    /// The end of a connection that will process the event taken after `others` other events, if
    /// the event is in the current slot.
    fn expected(&self, others: usize) -> Option<Expected> {
        let CalendarEvent { kind, index } = self.calendar.soon(others)?;
        match kind {
            kind::DELIVER => self.packets.expected(index),
            kind::TIMER => Some(Expected {
                connection: index / 2,
                to_server: index % 2 == 1,
                next: Next::Timer,
            }),
            _ => None,
        }
    }

    fn prefetch_elsewhere(&self, expected: Expected) {
        let connection = &self.connections[expected.connection as usize];
        let (path, hash) = connection.prefetch_elsewhere(expected);
        let links = &self.paths[path as usize].links[usize::from(!expected.to_server)];
        if expected.next != Next::Timer
            && let Some(link) = links.first()
            && let Engine::Link(link) = &self.stages[*link].engine
        {
            let places = link.queue().places(hash);
            places.into_iter().for_each(Place::fetch);
        }
    }

    /// Prefetches what a link needs at the end of a transmission that has just started: the packet
    /// in `slot`, which leaves then, and the one that probably follows.
    pub(crate) fn prefetch_departure(&mut self, link: LinkId, slot: u32) {
        if self.ready_at.len() <= FEW_FLOWS {
            return;
        }
        self.packets.prefetch_transit(slot);
        if let Engine::Link(link) = &self.stages[link].engine {
            link.queue().prefetch_dequeue();
        }
        // `warm` prefetches the rest, which is found through this packet.
        self.leaving[0] = slot;
    }
}
