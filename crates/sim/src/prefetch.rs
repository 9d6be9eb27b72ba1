//! Looking ahead, for the caches.
//!
//! Among thousands of flows an event finds its packet, its connection and its queue far from the
//! processor, and would wait for one after the other. So they are fetched beforehand: the packets of the
//! next slot of the calendar while the present one is worked off; some events before its turn the connection
//! that an event is for; then what that points to. Nothing is decided here: a run is the same without it.

use crate::calendar::CalendarEvent;
use crate::config::LinkId;
use crate::network::{Network, kind};
use crate::packets::Transit;
use crate::stage::Engine;
use sluice_core::prefetch;

/// An event that an end of a connection is going to see.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    pub connection: u32,
    pub to_server: bool,
    pub cause: Cause,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// A segment with payload.
    Payload,
    /// One without.
    Ack,
    /// Most often one that comes too early.
    Timer,
}

/// So many flows stay in the caches of a core: 2 KB or so each.
const FEW_FLOWS: usize = 256;
/// So many events before its turn, an event's connection is fetched: early enough for the memory, and late
/// enough that the first-level cache still has it when it is needed.
const FAR: usize = 10;
/// The same for what the connection points to.
const NEAR: usize = 4;

impl Network {
    /// Has what later events need fetched, before the next one is taken.
    pub(crate) fn warm(&mut self) {
        if self.ready_at.len() <= FEW_FLOWS {
            return;
        }
        if let Some(slot) = self.leaving.take() {
            let Transit { flow, .. } = *self.packets.transit(slot);
            prefetch::index(&self.ready_at, flow as usize);
        }
        // Two for one, so that all of the next slot are through before its turn.
        for _ in 0..2 {
            if let Some(event) = self.calendar.preview()
                && event.kind == kind::DELIVER
            {
                self.packets.fetch(event.index);
            }
        }
        let is_new = self.calendar.is_slot_new();
        for others in if is_new { 0 } else { FAR }..=FAR {
            if let Some(expected) = self.expected(others) {
                self.connections[expected.connection as usize]
                    .near(expected, &mut prefetch::address);
            }
        }
        for others in if is_new { 0 } else { NEAR }..=NEAR {
            if let Some(expected) = self.expected(others) {
                self.fetch_far(expected);
            }
        }
    }

    /// For which end of which connection the event is that is taken after `others` others, if it is in the
    /// present slot.
    fn expected(&self, others: usize) -> Option<Expected> {
        let CalendarEvent { kind, index } = self.calendar.soon(others)?;
        match kind {
            kind::DELIVER => self.packets.expected(index),
            kind::TIMER => Some(Expected {
                connection: index / 2,
                to_server: index % 2 == 1,
                cause: Cause::Timer,
            }),
            _ => None,
        }
    }

    fn fetch_far(&self, expected: Expected) {
        let connection = &self.connections[expected.connection as usize];
        let (path, hash) = connection.far(expected, &mut prefetch::address);
        let links = &self.paths[path as usize].links[usize::from(!expected.to_server)];
        if expected.cause != Cause::Timer
            && let Some(link) = links.first()
            && let Engine::Link(link) = &self.stages[*link].engine
        {
            link.queue().prefetch_enqueue(hash);
        }
    }

    /// Looks at what a link needs at the end of a transmission that has just begun: the packet `slot`,
    /// which leaves then, and the one that probably follows.
    pub(crate) fn look_behind(&mut self, link: LinkId, slot: u32) {
        if self.ready_at.len() <= FEW_FLOWS {
            return;
        }
        self.packets.fetch_transit(slot);
        if let Engine::Link(link) = &self.stages[link].engine {
            link.queue().prefetch_dequeue();
        }
        // The rest is found through this; see `warm`.
        self.leaving = Some(slot);
    }
}
