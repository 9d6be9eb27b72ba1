//! The event loop.

use crate::calendar::{Calendar, What};
use crate::cargo::Hold;
use crate::check::ConfigError;
use crate::config::{Config, Flow, FlowId, LinkId, Traffic};
use crate::connection::Connection;
use crate::observe::{FlowTotals, LinkSample, Observer};
use crate::path::mix;
use crate::source::Source;
use crate::stage::{Engine, Stage};
use sluice_core::{Backlog, Cx, Discipline, DropCounter, Packet, Rng, Span, Time, Wake};
use sluice_ipfw::{Direction, Firewall};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// A network in virtual time.
///
/// ```
/// use sluice_core::{Rate, Span, registry::Spec};
/// use sluice_sim::{Config, Flow, Simulation, Tcp, Traffic, dumbbell, dumbbell_route};
/// use sluice_tcp::cc;
///
/// let queue = Spec::parse("fq_codel").unwrap();
/// let flow = Flow::new(Traffic::Tcp(Tcp::bulk(&cc::CUBIC).into()), dumbbell_route(Span::ZERO));
/// let config = Config {
///     duration: Span::from_secs(5),
///     links: dumbbell(Rate::from_bps(10_000_000), Span::from_ms(20), &queue),
///     flows: vec![flow],
///     ..Config::default()
/// };
/// let mut simulation = Simulation::new(&config).unwrap();
/// simulation.run(&mut ());
/// // 10 Mbit/s * 5 s, less headers (1448 of 1514 bytes) and slow start: about 5.9 MB
/// let received = simulation.totals(0).bytes_received;
/// assert!((5_600_000..5_980_000).contains(&received));
/// ```
pub struct Simulation {
    pub(crate) now: Time,
    end: Time,
    pub(crate) calendar: Calendar,
    pub(crate) hold: Hold,
    /// Links, then routers.
    pub(crate) stages: Vec<Stage>,
    /// The randomness of each.
    pub(crate) draws: Vec<Rng>,
    /// When each link wants to be polled. Links are few; their minimum is searched for.
    pub(crate) wakes: Vec<Time>,
    pub(crate) flows: Vec<FlowState>,
    /// When the client and the server of each flow have worked off their last packet. Each packet
    /// touches it, so it lies apart from the rest: thousands of flows fit the caches.
    pub(crate) ready_at: Vec<[Time; 2]>,
    /// Delays of each flow's access network, to the client and to the server; empty if there are
    /// none at all.
    pub(crate) access_delays: Vec<[Span; 2]>,
    /// Each flow's place in `ways`, which flows share.
    pub(crate) way_of: Vec<u32>,
    pub(crate) ways: Vec<Way>,
    pub(crate) connections: Vec<Connection>,
    pub(crate) free_connections: Vec<u32>,
    pub(crate) jitter: Span,
    /// How many packets of 2^32 find their host away, and for how long in the mean.
    pub(crate) stalls: (u64, Span),
    pub(crate) jitter_rng: Rng,
    pub(crate) frame_overhead: u32,
    sample_interval: Option<Span>,
    pub(crate) hash_key: u64,
    events: u64,
    /// Packets of each flow that links have dropped, apart from its other totals for the same reason
    /// as `ready_at`.
    pub(crate) drops: Vec<u64>,
    /// The packet whose transmission has begun last.
    pub(crate) leaving: Option<u32>,
    /// Scratch of [`Simulation::serve`].
    pub(crate) departures: Vec<(Packet, Time, Direction)>,
}

pub(crate) struct FlowState {
    pub config: Flow,
    pub source: Source,
    pub rng: Rng,
    pub totals: FlowTotals,
    pub is_stopped: bool,
}

/// The route of a flow, and what its packets are labelled with.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Way {
    /// Links to the client and to the server.
    pub links: [Vec<LinkId>; 2],
    /// Hashes of the client's and the server's address.
    pub hosts: (u32, u32),
    pub class: u32,
    pub dscp: u8,
}

/// Kinds of events.
pub(crate) mod kind {
    /// A packet is worked off by the host at the end of its way; the index is its slot.
    pub const DELIVER: u8 = 0;
    /// A packet arrives at its next link.
    pub const FORWARD: u8 = 1;
    /// An end of a connection wanted to be woken: twice the connection, plus one for the server.
    pub const TIMER: u8 = 2;
    /// A flow's source is due.
    pub const SOURCE: u8 = 3;
    /// A flow starts or stops.
    pub const START: u8 = 4;
    pub const STOP: u8 = 5;
    /// A link's delay changes, or a router executes a command.
    pub const CHANGE: u8 = 6;
    /// Observers are told variables.
    pub const SAMPLE: u8 = 7;
}

impl Simulation {
    /// Builds the network at its start.
    ///
    /// # Errors
    /// Those of [`Config::validate`], and parameters of a queue that contradict each other.
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
        config.validate()?;
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
        let plan = |kind: u8, index: usize| What {
            kind,
            index: index as u32,
        };
        for (id, stage) in stages.iter().enumerate() {
            if let Some(at) = stage.next_change() {
                calendar.push(at, plan(kind::CHANGE, id));
            }
        }
        let mut flows = Vec::with_capacity(config.flows.len());
        let mut access_delays = Vec::with_capacity(config.flows.len());
        let mut way_of = Vec::with_capacity(config.flows.len());
        let mut ways = BTreeMap::new();
        for (id, flow) in config.flows.iter().enumerate() {
            calendar.push(flow.start, plan(kind::START, id));
            flows.push(FlowState {
                config: flow.clone(),
                source: Source::default(),
                rng: root.fork((1 << 32) + id as u64),
                totals: FlowTotals::default(),
                is_stopped: false,
            });
            access_delays.push([flow.route.backward_delay, flow.route.forward_delay]);
            let way = Way {
                links: [flow.route.backward.clone(), flow.route.forward.clone()],
                hosts: (hash(flow.addresses.0), hash(flow.addresses.1)),
                class: flow.class,
                dscp: flow.dscp,
            };
            let next = ways.len() as u32;
            way_of.push(*ways.entry(way).or_insert(next));
            if let Some(at) = flow.stop {
                calendar.push(at, plan(kind::STOP, id));
            }
        }
        if let Some(interval) = config.sample_interval {
            calendar.push(Time::ZERO + interval, plan(kind::SAMPLE, 0));
        }
        if access_delays
            .iter()
            .all(|delays| *delays == [Span::ZERO; 2])
        {
            access_delays.clear();
        }
        Ok(Simulation {
            now: Time::ZERO,
            end: Time::ZERO + config.duration,
            calendar,
            hold: Hold::default(),
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
            way_of,
            ways: in_order(ways),
            connections: Vec::new(),
            free_connections: Vec::new(),
            jitter: config.jitter,
            stalls: (config.stalls.share.as_fixed(32), config.stalls.mean),
            jitter_rng: root.fork(u64::MAX - 1),
            frame_overhead: config.frame_overhead,
            sample_interval: config.sample_interval,
            hash_key: root.fork(u64::MAX).next_u64(),
            events: 0,
            drops: vec![0; config.flows.len()],
            leaving: None,
            departures: Vec::new(),
        })
    }

    /// Puts `queue` in the place of the one that the configuration names, for an algorithm that
    /// is not in the registry. To be called before the first packet; a router has no such place.
    pub fn set_queue(&mut self, link: LinkId, queue: Box<dyn Discipline>) {
        let stage = &mut self.stages[link];
        if let Engine::Link(engine) = &mut stage.engine {
            // Nothing waits yet, so nothing can be dropped.
            let (rng, mut sink) = (&mut self.draws[link], DropCounter::default());
            engine.replace_queue(queue, &mut Cx::new(self.now, rng, &mut sink));
        }
    }

    /// A router, to show its state.
    pub fn router(&self, link: LinkId) -> Option<&Firewall> {
        match &self.stages.get(link)?.engine {
            Engine::Router(firewall) => Some(firewall),
            Engine::Link(_) => None,
        }
    }

    /// Runs to the end.
    pub fn run(&mut self, observer: &mut impl Observer) {
        self.run_until(Time::MAX, observer);
    }

    /// Runs until `until` or the end, whichever is first; returns whether the end is reached.
    pub fn run_until(&mut self, until: Time, observer: &mut impl Observer) -> bool {
        let until = until.min(self.end);
        loop {
            let (link_at, link) = self.next_wake();
            let limit = link_at.min(until);
            // At one instant: arrivals and timers first, then the links.
            if let Some(at) = self.calendar.next_until(limit) {
                self.advance_to(at);
                self.warm();
                if let Some(what) = self.calendar.pop() {
                    self.handle(what, observer);
                }
            } else if link_at <= until {
                self.advance_to(link_at);
                self.serve(link, observer);
            } else {
                break;
            }
        }
        self.now = until;
        self.now == self.end
    }

    /// The present instant of virtual time.
    pub fn now(&self) -> Time {
        self.now
    }

    /// Events worked off so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Packets and events that exist at this moment, for conservation checks and progress.
    pub fn in_flight(&self) -> (usize, usize) {
        (self.hold.len(), self.calendar.len())
    }

    /// What a flow has done so far.
    pub fn totals(&self, flow: FlowId) -> FlowTotals {
        let state = &self.flows[flow];
        let mut totals = state.totals;
        totals.packets_dropped += self.drops[flow];
        let mut add = |connection: &Connection| {
            if connection.flow as usize == flow && connection.is_open {
                connection.add_to(&mut totals);
            }
        };
        match (&state.config.traffic, state.source.connection) {
            (Traffic::Web(_), _) => self.connections.iter().for_each(add),
            (_, Some(id)) => add(&self.connections[id as usize]),
            (_, None) => {}
        }
        totals
    }

    /// What waits in a link's queue.
    pub fn backlog(&self, link: LinkId) -> Backlog {
        self.stages[link].backlog()
    }

    /// Bytes that a link has sent.
    pub fn sent_bytes(&self, link: LinkId) -> u64 {
        self.stages[link].sent_bytes
    }

    fn advance_to(&mut self, at: Time) {
        debug_assert!(at >= self.now, "time does not go back");
        self.now = at;
        self.events += 1;
    }

    pub(crate) fn schedule(&mut self, at: Time, kind: u8, index: u32) {
        self.calendar.push(at, What { kind, index });
    }

    fn handle(&mut self, what: What, observer: &mut impl Observer) {
        let index = what.index;
        match what.kind {
            kind::DELIVER => self.deliver(index, observer),
            kind::FORWARD => self.dispatch(index, observer),
            kind::TIMER => self.handle_timer(index, observer),
            kind::SOURCE => self.handle_source(index, observer),
            kind::START => self.start_flow(index, observer),
            kind::STOP => self.stop_flow(index, observer),
            kind::CHANGE => self.change(index as usize, observer),
            _ => self.sample(observer),
        }
    }

    fn next_wake(&self) -> (Time, LinkId) {
        let mut first = (Time::MAX, 0);
        for (link, at) in self.wakes.iter().enumerate() {
            if *at < first.0 {
                first = (*at, link);
            }
        }
        first
    }

    /// A link's next delay, or a router's next command.
    fn change(&mut self, link: LinkId, observer: &mut impl Observer) {
        let result = self.with_stage(link, observer, |stage, cx| {
            stage.change_delay(cx);
            stage.execute_next(cx)
        });
        if let Some(result) = result {
            observer.on_command(link, self.now, &result);
        }
        if let Some(at) = self.stages[link].next_change() {
            self.schedule(at, kind::CHANGE, link as u32);
        }
    }

    fn sample(&mut self, observer: &mut impl Observer) {
        for (id, stage) in self.stages.iter_mut().enumerate() {
            let rate = stage.rate(self.now);
            if let Engine::Link(link) = &stage.engine {
                let sample = LinkSample {
                    time: self.now,
                    backlog: link.backlog(),
                    queue: link.queue(),
                    rate,
                    sent_bytes: stage.sent_bytes,
                };
                observer.on_link(id, &sample);
            }
        }
        for connection in &self.connections {
            let flow = connection.flow as usize;
            // Of a repeated transfer the present connection only.
            let is_flow = match &self.flows[flow].config.traffic {
                Traffic::Tcp(tcp) => tcp.repeat.is_none() || !connection.is_complete(),
                _ => false,
            };
            if is_flow && connection.is_open {
                observer.on_tcp(flow, &connection.sample(self.now));
            }
        }
        if let Some(interval) = self.sample_interval {
            self.schedule(self.now + interval, kind::SAMPLE, 0);
        }
    }
}

/// The keys in the order of their numbers.
fn in_order(numbered: BTreeMap<Way, u32>) -> Vec<Way> {
    let mut ways: Vec<(u32, Way)> = numbered.into_iter().map(|(way, n)| (n, way)).collect();
    ways.sort_by_key(|(number, _)| *number);
    ways.into_iter().map(|(_, way)| way).collect()
}

/// A number for a host, as packets bear it.
fn hash(address: IpAddr) -> u32 {
    let bits = match address {
        IpAddr::V4(v4) => u128::from(u32::from(v4)),
        IpAddr::V6(v6) => u128::from(v6),
    };
    mix((bits >> 64) as u64 ^ mix(bits as u64)) as u32
}
