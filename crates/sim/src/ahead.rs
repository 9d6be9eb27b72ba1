//! Looking ahead, for the caches.
//!
//! Among thousands of flows an event finds its packet, its connection and its queue far from the
//! processor, and would wait for one after the other. Looking at those of several events beforehand
//! lets their loads overlap. Nothing is decided here: a run is the same without it.

use crate::calendar::What;
use crate::cargo::Transit;
use crate::config::LinkId;
use crate::simulation::{Simulation, kind};
use crate::stage::Engine;
use std::hint::black_box;

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

impl Simulation {
    /// Looks at what the next events need. First come the packets, which tell the connections, then
    /// what is in the connections, then what these point to: loads of one round do not wait for each
    /// other.
    pub(crate) fn warm(&mut self) {
        if self.ready_at.len() <= FEW_FLOWS {
            return;
        }
        if let Some(slot) = self.leaving.take() {
            let Transit {
                flow, to_server, ..
            } = *self.hold.transit(slot);
            black_box(self.ready_at[flow as usize][usize::from(to_server)]);
        }
        let Some([batch, behind]) = self.calendar.next_batch() else {
            return;
        };
        self.expected.clear();
        for What { kind, index } in batch {
            match kind {
                kind::DELIVER => self.expected.extend(self.hold.expected(index)),
                kind::TIMER => self.expected.push(Expected {
                    connection: index / 2,
                    to_server: index % 2 == 1,
                    cause: Cause::Timer,
                }),
                _ => {}
            }
        }
        let mut sum = 0;
        for What { kind, index } in behind {
            if kind == kind::DELIVER {
                sum ^= u64::from(self.hold.peek(index));
            }
        }
        for expected in &self.expected {
            let connection = &self.connections[expected.connection as usize];
            sum ^= connection.peek(*expected);
        }
        for expected in &self.expected {
            let connection = &self.connections[expected.connection as usize];
            let (further, way, hash) = connection.peek_further(*expected);
            sum ^= further;
            let links = &self.ways[way as usize].links[usize::from(!expected.to_server)];
            if expected.cause != Cause::Timer
                && let Some(link) = links.first()
                && let Engine::Link(link) = &self.stages[*link].engine
            {
                sum ^= link.queue().touch(hash);
            }
        }
        black_box(sum);
    }

    /// Looks at what a link needs at the end of a transmission that has just begun: the packet `slot`,
    /// which leaves then, and the one that probably follows.
    pub(crate) fn look_behind(&mut self, link: LinkId, slot: u32) {
        if self.ready_at.len() <= FEW_FLOWS {
            return;
        }
        let mut sum = u64::from(self.hold.transit(slot).flow);
        if let Engine::Link(link) = &self.stages[link].engine {
            sum ^= link.queue().touch_next();
        }
        black_box(sum);
        // The rest is found through this; see `warm`.
        self.leaving = Some(slot);
    }
}
