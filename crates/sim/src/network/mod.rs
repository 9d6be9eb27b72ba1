//! The network and its hosts: links, routers, connections and the packets in flight. The sources of
//! packets are in [`crate::traffic`].
//!
//! [`Network`] holds the state. The files of this module implement what happens to it: a packet
//! moves along its path (`path`), the ends of a connection exchange segments (`connection`), and
//! memory is prefetched for the events to come (`prefetch`).

mod connection;
mod path;
mod prefetch;

use crate::calendar::{Calendar, CalendarEvent};
use crate::ids::{FlowId, LinkId};
use crate::observe::FlowTotals;
use crate::packets::Packets;
use crate::stage::Stage;
pub(crate) use connection::{Connection, ConnectionId};
pub(crate) use path::mix;
use sluice_core::{Ecn, Packet, Rng, Span, Time};
use sluice_ipfw::Direction;
use std::net::IpAddr;

pub(crate) struct Network {
    pub now: Time,
    pub calendar: Calendar,
    pub packets: Packets,
    /// Links, then routers.
    pub stages: Vec<Stage>,
    /// The randomness of each.
    pub draws: Vec<Rng>,
    /// The next poll of each link. There are few links, so the minimum is found by a linear search.
    pub wakes: Vec<Time>,
    pub flows: Vec<FlowState>,
    /// The instants at which the client and the server of each flow have processed their last
    /// packet. Each packet accesses these, so they are separate from the rest of a flow: those of
    /// thousands of flows fit the caches.
    pub ready_at: Vec<[Time; 2]>,
    /// Delays of each flow's access network, to the client and to the server; empty if all are
    /// zero.
    pub access_delays: Vec<[Span; 2]>,
    /// Index of each flow's path in `paths`. Flows share paths.
    pub path_of: Vec<u32>,
    pub paths: Vec<Path>,
    pub connections: Vec<Connection>,
    pub free_connections: Vec<ConnectionId>,
    pub jitter: Span,
    /// How many packets of 2^32 are stalled, and for how long on average.
    pub stalls: (u64, Span),
    pub jitter_rng: Rng,
    pub frame_overhead: u32,
    pub hash_key: u64,
    /// Packets of each flow that links have dropped; apart from the other totals for the same
    /// reason as `ready_at`.
    pub drops: Vec<u64>,
    /// The slots of packets whose transmission has started, which [`Network::prefetch`] passes on
    /// by one place for each event; `u32::MAX` for none.
    pub leaving: [u32; 2],
    /// Scratch of [`Network::serve`]: what routers and links have sent.
    pub departures: Vec<(Packet, Time, Direction)>,
    pub arrivals: Vec<(Leaving, Time)>,
}

/// What matters of a packet that has left a link. A copy of the whole handle would wait for the
/// stores that have just filled it.
pub(crate) struct Leaving {
    pub slot: u32,
    pub len: u32,
    pub ecn: Ecn,
}

pub(crate) struct FlowState {
    /// Addresses of the client and the server.
    pub addresses: (IpAddr, IpAddr),
    pub server_port: u16,
    /// The client's port of the first connection, counted from the first dynamic port.
    pub first_port: u16,
    /// See [`crate::Route::is_reversed`].
    pub is_reversed: bool,
    /// Protocol number of its packets.
    pub protocol: u8,
    pub rng: Rng,
    pub totals: FlowTotals,
    pub is_stopped: bool,
    /// Whether a router's pipe has taken one of its packets.
    pub is_shaped: bool,
    /// Connections opened so far.
    pub connects: u32,
    /// Those that are open, in the order in which they were opened.
    pub open: Vec<ConnectionId>,
}

/// The links of a flow, and the labels of its packets.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Path {
    /// Links to the client and to the server.
    pub links: [Vec<LinkId>; 2],
    /// Hashes of the client's and the server's address.
    pub hosts: (u32, u32),
    pub class: u32,
    pub dscp: u8,
}

/// Kinds of events.
pub(crate) mod kind {
    /// A packet is processed by its host; the index is its slot.
    pub const DELIVER: u8 = 0;
    /// A packet arrives at its next link.
    pub const FORWARD: u8 = 1;
    /// The timer of an endpoint: twice the connection, plus one for the server.
    pub const TIMER: u8 = 2;
    /// A flow's source is due.
    pub const SOURCE: u8 = 3;
    /// A flow starts or stops.
    pub const START: u8 = 4;
    pub const STOP: u8 = 5;
    /// A link's delay changes, or a router executes a command.
    pub const CHANGE: u8 = 6;
    /// Variables are reported.
    pub const SAMPLE: u8 = 7;
}

impl Network {
    pub fn schedule(&mut self, at: Time, kind: u8, index: u32) {
        self.calendar.push(at, CalendarEvent { kind, index });
    }

    /// Schedules a call of the source of `flow` at `at`.
    pub fn schedule_source(&mut self, at: Time, flow: u32) {
        self.schedule(at, kind::SOURCE, flow);
    }

    /// Returns the totals of a flow so far.
    pub fn totals(&self, flow: FlowId) -> FlowTotals {
        let state = &self.flows[flow];
        let mut totals = state.totals;
        totals.packets_dropped += self.drops[flow];
        for id in &state.open {
            self.connections[*id as usize].add_to(&mut totals);
        }
        totals
    }

    /// Returns the next poll of a link: its instant, and the link.
    pub fn next_wake(&self) -> (Time, LinkId) {
        let mut first = (Time::MAX, 0);
        for (link, at) in self.wakes.iter().enumerate() {
            if *at < first.0 {
                first = (*at, link);
            }
        }
        first
    }
}
