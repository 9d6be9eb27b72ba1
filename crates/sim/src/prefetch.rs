//! Prefetching of what the next events need.
//!
//! Among thousands of flows, the packet, the connection and the queue of an event are not in the
//! caches, and the event would wait for one after the other. So they are prefetched: the packets of
//! the next slot of the calendar while events of the present one are processed; some events in
//! advance the connection of an event; then what the connection points to. Prefetching decides
//! nothing: a run is the same without it.

use crate::calendar::CalendarEvent;
use crate::config::LinkId;
use crate::network::{Network, kind};
use crate::packets::Transit;
use crate::stage::Engine;
use sluice_core::prefetch;

/// An event that one end of a connection will process.
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
    /// A segment without payload.
    Ack,
    /// A timer event, which most often comes too early.
    Timer,
}

/// So many flows fit the caches of a core, with about 2 KB each.
const FEW_FLOWS: usize = 256;
/// The connection of an event is prefetched so many events in advance: early enough for the memory,
/// and late enough to be still in the first-level cache when it is needed.
const FAR: usize = 10;
/// The same for what the connection points to.
const NEAR: usize = 4;

impl Network {
    /// Prefetches what later events need, before the next one is taken.
    pub(crate) fn warm(&mut self) {
        if self.ready_at.len() <= FEW_FLOWS {
            return;
        }
        if let Some(slot) = self.leaving.take() {
            let Transit { flow, .. } = *self.packets.transit(slot);
            prefetch::index(&self.ready_at, flow as usize);
        }
        // Two per event, so that the whole next slot has been previewed when its turn comes.
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

    /// The end of a connection that will process the event taken after `others` other events, if
    /// the event is in the present slot.
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

    /// Prefetches what a link needs at the end of a transmission that has just started: the packet
    /// in `slot`, which leaves then, and the one that probably follows.
    pub(crate) fn look_behind(&mut self, link: LinkId, slot: u32) {
        if self.ready_at.len() <= FEW_FLOWS {
            return;
        }
        self.packets.fetch_transit(slot);
        if let Engine::Link(link) = &self.stages[link].engine {
            link.queue().prefetch_dequeue();
        }
        // `warm` prefetches the rest, which is found through this packet.
        self.leaving = Some(slot);
    }
}
