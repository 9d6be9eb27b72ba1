//! The network and its hosts: links, routers, connections and the packets in flight. What sends
//! them is in [`crate::traffic`].

use crate::calendar::{Calendar, CalendarEvent};
use crate::check::ConfigError;
use crate::config::{Config, Flow, LinkId};
use crate::connection::{Connection, ConnectionId};
use crate::observe::FlowTotals;
use crate::packets::Packets;
use crate::path::mix;
use crate::stage::Stage;
use sluice_core::{Packet, Rng, Span, Time, Wake};
use sluice_ipfw::Direction;
use std::collections::BTreeMap;
use std::net::IpAddr;

pub(crate) struct Network {
    pub now: Time,
    pub calendar: Calendar,
    pub packets: Packets,
    /// Links, then routers.
    pub stages: Vec<Stage>,
    /// The randomness of each.
    pub draws: Vec<Rng>,
    /// When each link wants to be polled. Links are few; their minimum is searched for.
    pub wakes: Vec<Time>,
    pub flows: Vec<FlowState>,
    /// When the client and the server of each flow have processed their last packet. Each packet
    /// touches it, so it is apart from the rest: thousands of flows fit the caches.
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
    /// The packet whose transmission has started last.
    pub leaving: Option<u32>,
    /// Scratch of [`Network::serve`].
    pub departures: Vec<(Packet, Time, Direction)>,
}

pub(crate) struct FlowState {
    pub config: Flow,
    /// Protocol number of its packets.
    pub protocol: u8,
    pub rng: Rng,
    pub totals: FlowTotals,
    pub is_stopped: bool,
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
    /// Creates the network at its start; `config` has been checked.
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
        let root = Rng::from_seed(config.seed);
        let mut calendar = Calendar::new();
        let mut stages = Vec::with_capacity(config.links.len() + config.routers.len());
        for (id, link) in config.links.iter().enumerate() {
            stages.push(Stage::link(id, link, &root.fork(id as u64))?);
        }
        for (number, router) in config.routers.iter().enumerate() {
            let rng = root.fork(stages.len() as u64);
            stages.push(Stage::router(number, router, &rng)?);
        }
        let draws = (0..stages.len()).map(|id| root.fork(id as u64)).collect();
        let event = |kind: u8, index: usize| CalendarEvent {
            kind,
            index: index as u32,
        };
        for (id, stage) in stages.iter().enumerate() {
            if let Some(at) = stage.next_change() {
                calendar.push(at, event(kind::CHANGE, id));
            }
        }
        let mut flows = Vec::with_capacity(config.flows.len());
        let mut access_delays = Vec::with_capacity(config.flows.len());
        let mut path_of = Vec::with_capacity(config.flows.len());
        let mut paths = BTreeMap::new();
        for (id, flow) in config.flows.iter().enumerate() {
            calendar.push(flow.start, event(kind::START, id));
            flows.push(FlowState {
                config: flow.clone(),
                protocol: flow.traffic.protocol(),
                rng: root.fork((1 << 32) + id as u64),
                totals: FlowTotals::default(),
                is_stopped: false,
                connects: 0,
                open: Vec::new(),
            });
            access_delays.push([flow.route.backward_delay, flow.route.forward_delay]);
            let path = Path {
                links: [flow.route.backward.clone(), flow.route.forward.clone()],
                hosts: (hash(flow.addresses.0), hash(flow.addresses.1)),
                class: flow.class,
                dscp: flow.dscp,
            };
            let next = paths.len() as u32;
            path_of.push(*paths.entry(path).or_insert(next));
            if let Some(at) = flow.stop {
                calendar.push(at, event(kind::STOP, id));
            }
        }
        if let Some(interval) = config.sample_interval {
            calendar.push(Time::ZERO + interval, event(kind::SAMPLE, 0));
        }
        if access_delays
            .iter()
            .all(|delays| *delays == [Span::ZERO; 2])
        {
            access_delays.clear();
        }
        Ok(Network {
            now: Time::ZERO,
            calendar,
            packets: Packets::default(),
            wakes: stages
                .iter()
                .map(|stage| match stage.next_wake() {
                    Wake::At(at) => at,
                    Wake::Now => Time::ZERO,
                    Wake::OnEnqueue => Time::MAX,
                })
                .collect(),
            stages,
            draws,
            flows,
            ready_at: vec![[Time::ZERO; 2]; config.flows.len()],
            access_delays,
            path_of,
            paths: in_order(paths),
            connections: Vec::new(),
            free_connections: Vec::new(),
            jitter: config.jitter,
            stalls: (config.stalls.share.as_fixed(32), config.stalls.mean),
            jitter_rng: root.fork(u64::MAX - 1),
            frame_overhead: config.frame_overhead,
            hash_key: root.fork(u64::MAX).next_u64(),
            drops: vec![0; config.flows.len()],
            leaving: None,
            departures: Vec::new(),
        })
    }

    pub fn schedule(&mut self, at: Time, kind: u8, index: u32) {
        self.calendar.push(at, CalendarEvent { kind, index });
    }

    /// Has the source of `flow` called at `at`.
    pub fn schedule_source(&mut self, at: Time, flow: u32) {
        self.schedule(at, kind::SOURCE, flow);
    }

    /// When a link wants to be polled next, and which.
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

/// The keys in the order of their numbers.
fn in_order(numbered: BTreeMap<Path, u32>) -> Vec<Path> {
    let mut paths: Vec<(u32, Path)> = numbered.into_iter().map(|(path, n)| (n, path)).collect();
    paths.sort_by_key(|(number, _)| *number);
    paths.into_iter().map(|(_, path)| path).collect()
}

/// The number of a host in packets.
fn hash(address: IpAddr) -> u32 {
    let bits = match address {
        IpAddr::V4(v4) => u128::from(u32::from(v4)),
        IpAddr::V6(v6) => u128::from(v6),
    };
    mix((bits >> 64) as u64 ^ mix(bits as u64)) as u32
}
