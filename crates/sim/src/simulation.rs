//! The event loop: time, links, and the way of each packet.

use crate::calendar::{Calendar, What};
use crate::cargo::{Datagram, Hold, NOT_TCP, Tag};
use crate::config::{Config, ConfigError, Flow, FlowId, Link, LinkId, Traffic};
use crate::connection::Connection;
use crate::observe::{FlowTotals, LinkSample, Observer};
use crate::source::Source;
use sluice_core::link::pipe::{Pipe, PipeParams};
use sluice_core::{
    Backlog, Cx, Discipline, DropReason, Ecn, Event, Packet, Rate, Rng, Sink, Span, Time, Wake,
};
use sluice_tcp::Segment;

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
    links: Vec<LinkState>,
    /// When each link wants to be polled. Links are few; their minimum is searched for.
    wakes: Vec<Time>,
    pub(crate) flows: Vec<FlowState>,
    /// What each packet touches of its flow, apart from the rest, so that thousands of flows fit
    /// the caches.
    arrivals: Vec<Arrival>,
    ways: Vec<Way>,
    /// Links to the client and to the server.
    routes: Vec<[Vec<LinkId>; 2]>,
    pub(crate) connections: Vec<Connection>,
    pub(crate) free_connections: Vec<u32>,
    jitter: Span,
    jitter_rng: Rng,
    pub(crate) frame_overhead: u32,
    sample_interval: Option<Span>,
    hash_key: u64,
    events: u64,
}

struct LinkState {
    /// Queue and rate. The delay is added behind it, together with that of the flow's access
    /// network and the host's jitter, so that a delivery is one event and not three.
    pipe: Pipe,
    delay: Span,
    /// The last delivery: a shorter delay lets no packet overtake.
    delivered_at: Time,
    rng: Rng,
    /// What is left of the schedules, the next last.
    rates: Vec<(Time, Rate)>,
    delays: Vec<(Time, Span)>,
    sent_bytes: u64,
}

pub(crate) struct FlowState {
    pub config: Flow,
    pub source: Source,
    pub rng: Rng,
    pub totals: FlowTotals,
    pub is_stopped: bool,
}

/// The ends of a flow's ways, to the client and to the server.
struct Arrival {
    /// When the host has worked off the last packet.
    ready_at: [Time; 2],
    /// Delay of the access network.
    delay: [Span; 2],
}

/// What a flow's packets are labelled with, and its route.
struct Way {
    /// In [`Simulation::routes`]; flows share them.
    route: u32,
    hosts: (u32, u32),
    class: u32,
    dscp: u8,
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
    /// The next step of a link's schedule.
    pub const RATE: u8 = 6;
    pub const DELAY: u8 = 7;
    /// Observers are told variables.
    pub const SAMPLE: u8 = 8;
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
        let mut links = Vec::with_capacity(config.links.len());
        for (id, link) in config.links.iter().enumerate() {
            links.push(LinkState::new(id, link, root.fork(id as u64))?);
            for (kind, at) in [
                (kind::RATE, link.rates.first().map(|(at, _)| *at)),
                (kind::DELAY, link.delays.first().map(|(at, _)| *at)),
            ] {
                if let Some(at) = at {
                    calendar.push(
                        at,
                        What {
                            kind,
                            index: id as u32,
                        },
                    );
                }
            }
        }
        let mut flows = Vec::with_capacity(config.flows.len());
        let mut arrivals = Vec::with_capacity(config.flows.len());
        let mut ways = Vec::with_capacity(config.flows.len());
        let mut routes: Vec<[Vec<LinkId>; 2]> = Vec::new();
        for (id, flow) in config.flows.iter().enumerate() {
            let index = id as u32;
            let start = What {
                kind: kind::START,
                index,
            };
            calendar.push(flow.start, start);
            flows.push(FlowState {
                config: flow.clone(),
                source: Source::default(),
                rng: root.fork((1 << 32) + id as u64),
                totals: FlowTotals::default(),
                is_stopped: false,
            });
            arrivals.push(Arrival {
                ready_at: [Time::ZERO; 2],
                delay: [flow.route.backward_delay, flow.route.forward_delay],
            });
            let route = [flow.route.backward.clone(), flow.route.forward.clone()];
            let known = routes.iter().position(|other| *other == route);
            ways.push(Way {
                route: known.unwrap_or(routes.len()) as u32,
                hosts: flow.hosts,
                class: flow.class,
                dscp: flow.dscp,
            });
            if known.is_none() {
                routes.push(route);
            }
            if let Some(at) = flow.stop {
                let stop = What {
                    kind: kind::STOP,
                    index,
                };
                calendar.push(at, stop);
            }
        }
        if let Some(interval) = config.sample_interval {
            let sample = What {
                kind: kind::SAMPLE,
                index: 0,
            };
            calendar.push(Time::ZERO + interval, sample);
        }
        Ok(Simulation {
            now: Time::ZERO,
            end: Time::ZERO + config.duration,
            calendar,
            hold: Hold::default(),
            wakes: vec![Time::MAX; links.len()],
            links,
            flows,
            arrivals,
            ways,
            routes,
            connections: Vec::new(),
            free_connections: Vec::new(),
            jitter: config.jitter,
            jitter_rng: root.fork(u64::MAX - 1),
            frame_overhead: config.frame_overhead,
            sample_interval: config.sample_interval,
            hash_key: root.fork(u64::MAX).next_u64(),
            events: 0,
        })
    }

    /// Puts `queue` in the place of the one that the configuration names, for an algorithm that
    /// is not in the registry. To be called before the first packet.
    pub fn set_queue(&mut self, link: LinkId, queue: Box<dyn Discipline>) {
        let params = self.links[link].pipe.params().clone();
        self.links[link].pipe = Pipe::new(&params, queue);
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
        self.links[link].pipe.backlog()
    }

    /// Bytes that a link has sent.
    pub fn sent_bytes(&self, link: LinkId) -> u64 {
        self.links[link].sent_bytes
    }

    /// Among thousands of flows an event finds its segment and its connection far from the
    /// processor. Looking at those of a whole slot beforehand lets their loads overlap, which
    /// takes a sixth off the time of an event; with few flows it costs next to nothing.
    fn warm(&mut self) {
        let Some(slots) = self.calendar.fresh(kind::DELIVER) else {
            return;
        };
        let mut sum = 0;
        for slot in slots {
            let tag = self.hold.tag(slot);
            if let Some(connection) = self.connections.get(tag.connection as usize) {
                sum ^= connection.peek(tag.to_server) ^ self.hold.segment(slot).ack;
            }
        }
        std::hint::black_box(sum);
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
            kind::RATE => self.change_rate(index as usize, observer),
            kind::DELAY => self.change_delay(index as usize),
            _ => self.sample(observer),
        }
    }

    // ---- the way of a packet -----------------------------------------------------------

    /// Puts a segment on the first link of its way.
    pub(crate) fn send_segment(
        &mut self,
        mut tag: Tag,
        segment: Segment,
        observer: &mut impl Observer,
    ) {
        tag.len = segment.ip_len() + self.frame_overhead;
        tag.ecn = segment.ecn;
        let slot = self.hold.put_segment(tag, segment);
        self.dispatch(slot, observer);
    }

    /// Puts a datagram of `ip_len` bytes on the first link of its way.
    pub(crate) fn send_datagram(
        &mut self,
        flow: u32,
        to_server: bool,
        ip_len: u32,
        ecn: Ecn,
        datagram: Datagram,
        observer: &mut impl Observer,
    ) {
        self.flows[flow as usize].totals.packets_sent += 1;
        let tag = Tag {
            flow,
            hash: self.hash_of(flow, 0, to_server),
            len: ip_len + self.frame_overhead,
            connection: NOT_TCP,
            generation: 0,
            hop: 0,
            to_server,
            ecn,
        };
        let slot = self.hold.put_datagram(tag, datagram);
        self.dispatch(slot, observer);
    }

    /// A hash of what a real packet's 5-tuple would be.
    pub(crate) fn hash_of(&self, flow: u32, connection: u32, to_server: bool) -> u32 {
        let tuple = u64::from(flow) << 33 | u64::from(connection) << 1 | u64::from(to_server);
        // The finaliser of SplitMix64.
        let mut z = tuple.wrapping_add(self.hash_key);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) as u32
    }

    /// Gives a packet to its next link, or to the host at the end of its way.
    fn dispatch(&mut self, slot: u32, observer: &mut impl Observer) {
        let tag = *self.hold.tag(slot);
        let way = &self.ways[tag.flow as usize];
        let links = &self.routes[way.route as usize][usize::from(tag.to_server)];
        let Some(&link) = links.get(usize::from(tag.hop)) else {
            self.arrive(slot, self.now);
            return;
        };
        let mut packet = Packet::new(slot, tag.len);
        packet.arrival = self.now;
        packet.flow = tag.hash;
        let (client, server) = way.hosts;
        (packet.src, packet.dst) = if tag.to_server {
            (client, server)
        } else {
            (server, client)
        };
        packet.class = way.class;
        packet.ecn = tag.ecn;
        packet.dscp = way.dscp;
        if observer.hears_packets() {
            observer.on_arrive(link, self.now, &packet, tag.flow as usize);
        }
        self.with_pipe(link, observer, |pipe, cx| pipe.enqueue(packet, cx));
    }

    /// Schedules the arrival at the host of a packet that has left its last link at `at`.
    fn arrive(&mut self, slot: u32, at: Time) {
        let tag = self.hold.tag(slot);
        let arrival = &mut self.arrivals[tag.flow as usize];
        let side = usize::from(tag.to_server);
        let mut at = at.saturating_add(arrival.delay[side]);
        if self.jitter > Span::ZERO {
            at += Span::from_ns(self.jitter_rng.below(self.jitter.as_ns() + 1));
        }
        at = at.max(arrival.ready_at[side]);
        arrival.ready_at[side] = at;
        self.schedule(at, kind::DELIVER, slot);
    }

    fn deliver(&mut self, slot: u32, observer: &mut impl Observer) {
        let tag = self.hold.free(slot);
        if tag.connection == NOT_TCP {
            self.count_arrival(&tag);
            let datagram = *self.hold.datagram(slot);
            self.handle_datagram(&tag, datagram, observer);
        } else {
            let mut segment = *self.hold.segment(slot);
            segment.ecn = tag.ecn;
            self.handle_segment(&tag, &segment, observer);
        }
    }

    /// A packet has arrived that no open connection counts.
    pub(crate) fn count_arrival(&mut self, tag: &Tag) {
        let totals = &mut self.flows[tag.flow as usize].totals;
        totals.packets_received += 1;
        totals.packets_marked += u64::from(tag.ecn == Ecn::Ce);
    }

    // ---- links -------------------------------------------------------------------------

    fn next_wake(&self) -> (Time, LinkId) {
        let mut first = (Time::MAX, 0);
        for (link, at) in self.wakes.iter().enumerate() {
            if *at < first.0 {
                first = (*at, link);
            }
        }
        first
    }

    /// Lets `act` work on a link's pipe with its randomness and its sink, and asks when it wants
    /// to be polled next.
    fn with_pipe<R>(
        &mut self,
        link: LinkId,
        observer: &mut impl Observer,
        act: impl FnOnce(&mut Pipe, &mut Cx<'_>) -> R,
    ) -> R {
        let state = &mut self.links[link];
        let mut sink = LinkSink {
            link,
            hold: &mut self.hold,
            flows: &mut self.flows,
            observer,
        };
        let mut cx = Cx::new(self.now, &mut state.rng, &mut sink);
        let result = act(&mut state.pipe, &mut cx);
        self.wakes[link] = match state.pipe.next_wake() {
            Wake::Now => self.now,
            Wake::At(at) => at.max(self.now),
            Wake::OnEnqueue => Time::MAX,
        };
        result
    }

    /// A link has sent a packet, or an algorithm's timer is due.
    fn serve(&mut self, link: LinkId, observer: &mut impl Observer) {
        while let Some(departure) = self.with_pipe(link, observer, Pipe::poll) {
            let state = &mut self.links[link];
            state.sent_bytes += u64::from(departure.packet.len);
            let at = departure.due.saturating_add(state.delay);
            let at = at.max(state.delivered_at);
            state.delivered_at = at;
            let slot = departure.packet.slot;
            let tag = self.hold.tag_mut(slot);
            tag.ecn = departure.packet.ecn;
            tag.hop += 1;
            let way = &self.ways[tag.flow as usize];
            let links = &self.routes[way.route as usize][usize::from(tag.to_server)];
            if usize::from(tag.hop) < links.len() {
                self.schedule(at, kind::FORWARD, slot);
            } else {
                self.arrive(slot, at);
            }
        }
    }

    fn change_rate(&mut self, link: LinkId, observer: &mut impl Observer) {
        let state = &mut self.links[link];
        let Some((_, rate)) = state.rates.pop() else {
            return;
        };
        let params = PipeParams {
            rate,
            ..state.pipe.params().clone()
        };
        let next = state.rates.last().map(|(at, _)| *at);
        self.with_pipe(link, observer, |pipe, cx| pipe.set_params(&params, cx));
        if let Some(at) = next {
            self.schedule(at, kind::RATE, link as u32);
        }
    }

    fn change_delay(&mut self, link: LinkId) {
        let state = &mut self.links[link];
        let Some((_, delay)) = state.delays.pop() else {
            return;
        };
        state.delay = delay;
        if let Some(&(at, _)) = state.delays.last() {
            self.schedule(at, kind::DELAY, link as u32);
        }
    }

    fn sample(&mut self, observer: &mut impl Observer) {
        for (id, link) in self.links.iter().enumerate() {
            let sample = LinkSample {
                time: self.now,
                backlog: link.pipe.backlog(),
                queue: link.pipe.queue(),
                rate: link.pipe.params().rate,
                sent_bytes: link.sent_bytes,
            };
            observer.on_link(id, &sample);
        }
        for connection in &self.connections {
            let flow = connection.flow as usize;
            let is_flow = matches!(self.flows[flow].config.traffic, Traffic::Tcp(_));
            if is_flow && connection.is_open {
                observer.on_tcp(flow, &connection.sample(self.now));
            }
        }
        if let Some(interval) = self.sample_interval {
            self.schedule(self.now + interval, kind::SAMPLE, 0);
        }
    }
}

impl LinkState {
    fn new(id: LinkId, link: &Link, rng: Rng) -> Result<Self, ConfigError> {
        let queue = link
            .queue
            .build()
            .map_err(|error| ConfigError::Queue { link: id, error })?;
        let params = PipeParams {
            delay: Span::ZERO,
            ..link.pipe.clone()
        };
        Ok(LinkState {
            pipe: Pipe::new(&params, queue),
            delay: link.pipe.delay,
            delivered_at: Time::ZERO,
            rng,
            rates: link.rates.iter().rev().copied().collect(),
            delays: link.delays.iter().rev().copied().collect(),
            sent_bytes: 0,
        })
    }
}

/// Takes what a queue drops, and passes its events on.
struct LinkSink<'a, O> {
    link: LinkId,
    hold: &'a mut Hold,
    flows: &'a mut [FlowState],
    observer: &'a mut O,
}

impl<O: Observer> Sink for LinkSink<'_, O> {
    fn discard(&mut self, now: Time, packet: Packet, reason: DropReason) {
        let flow = self.hold.free(packet.slot).flow as usize;
        self.flows[flow].totals.packets_dropped += 1;
        self.observer.on_drop(self.link, now, &packet, flow, reason);
    }

    fn is_listening(&self) -> bool {
        self.observer.hears_packets()
    }

    fn on_event(&mut self, now: Time, event: &Event<'_>) {
        self.observer.on_event(self.link, now, event);
    }
}
