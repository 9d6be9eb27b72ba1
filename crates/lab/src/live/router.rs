//! The router of a live run: one thread that bridges frames between two ports, each direction
//! through a pipe of its own.
//!
//! The loop runs to completion: take what has arrived, work off what is due, send, and wait for the
//! next frame or the next due instant. Below [`Plan::split_below`] super-packets are split into wire
//! packets before they are queued, above they pass whole. What is counted is the IP packet (the
//! length in the IP header), as dummynet does on layer 3. Frames that are not IP pass by the pipes.
//!
//! The loop tells of every packet when it was due and how late it left, and counts every frame that was
//! lost to anything but a queue, so that a user can tell the emulated from the artefact.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::Sender;

use sluice_core::event::StateValue;
use sluice_core::link::{Pipe, PipeParams};
use sluice_core::record::{PacketRecord, Tracer};
use sluice_core::registry::Spec;
use sluice_core::{Backlog, Cx, DropReason, Ecn, Event, Packet, Rate, Rng, Sink, Span, Time, Wake};
use sluice_net::Clock;
use sluice_net::frame::{
    self, Addresses, Checksums, FlowHasher, Link, SuperPacket, Transport, View,
};
use sluice_net::port::{
    Counters, Interest, Loss, PacketPort, Pool, Port, Slot, Spin, Waiter, Watch,
};
use sluice_net::traffic::Stop;

use crate::recording::Release;
/// Which way a packet goes: `Up` from h2 to h3.
pub use crate::scenario::Direction;

/// What one direction does to its packets.
#[derive(Clone, Debug)]
pub struct LanePlan {
    /// Rate at the start, delay and burst.
    pub pipe: PipeParams,
    /// Later rates, each from its instant on.
    pub steps: Vec<(Time, Rate)>,
    /// The queue before the link.
    pub queue: Spec,
}

/// What the router is to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// From h2 to h3.
    pub up: LanePlan,
    /// From h3 to h2.
    pub down: LanePlan,
    /// Seeds the flow hash and the algorithms' randomness.
    pub seed: u64,
    /// How often backlog and AQM variables are sampled.
    pub sample: Span,
    /// Super-packets are split on pipes slower than this.
    pub split_below: Rate,
    /// How due instants are met.
    pub spin: Spin,
}

/// What the router saw, told while it runs.
#[derive(Debug)]
pub enum Observation {
    /// What became of packets, in the order of arrival.
    Packets(Direction, Vec<PacketRecord>),
    /// The state of a queue at an instant.
    Queue {
        /// Which queue.
        direction: Direction,
        /// When.
        at: Time,
        /// What it held.
        backlog: Backlog,
        /// Its AQM's variables: queue number, name, value.
        state: Vec<(u32, &'static str, StateValue)>,
    },
    /// When packets left.
    Releases(Vec<Release>),
    /// A flow was seen for the first time.
    Flow(u32, FlowKey),
}

/// What a flow hash stands for: both ends, with their ports, or the identifier of ICMP messages in
/// place of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowKey {
    /// Transport protocol.
    pub protocol: u8,
    /// Where packets come from.
    pub source: SocketAddr,
    /// Where they go.
    pub destination: SocketAddr,
}

impl FlowKey {
    fn of(view: &View) -> Option<FlowKey> {
        let (from, to): (IpAddr, IpAddr) = match view.addresses {
            Addresses::V4 {
                source,
                destination,
            } => (source.into(), destination.into()),
            Addresses::V6 {
                source,
                destination,
            } => (source.into(), destination.into()),
            Addresses::None => return None,
        };
        let (source, destination) = match view.transport {
            Transport::Icmp { id, .. } => (id.unwrap_or(0), id.unwrap_or(0)),
            _ => view.ports().unwrap_or((0, 0)),
        };
        Some(FlowKey {
            protocol: view.protocol,
            source: SocketAddr::new(from, source),
            destination: SocketAddr::new(to, destination),
        })
    }
}

/// What one direction did.
#[derive(Clone, Debug, Default)]
pub struct LaneReport {
    /// Super-packets that were split.
    pub split: u64,
    /// Super-packets that passed whole.
    pub whole: u64,
    /// Frames that are not IP and passed by the pipe.
    pub bypassed: u64,
    /// What was left in the pipe when the router stopped.
    pub left: Backlog,
    /// Frames lost to anything but the queue, by cause.
    pub lost: BTreeMap<String, u64>,
}

/// What the router did.
#[derive(Clone, Debug)]
pub struct RouterReport {
    /// Whether the router's thread ran before all ordinary ones (SCHED_FIFO).
    pub is_real_time: bool,
    /// From h2 to h3.
    pub up: LaneReport,
    /// From h3 to h2.
    pub down: LaneReport,
}

/// Routes frames between `inner` (towards h2) and `outer` (towards h3) until `stop`.
pub fn route(
    plan: &Plan,
    inner: PacketPort,
    outer: PacketPort,
    mut pool: Pool,
    clock: &Clock,
    stop: &Stop,
    observations: &Sender<Observation>,
) -> RouterReport {
    let mut ports = [inner, outer];
    let mut lanes = [
        Lane::new(Direction::Up, &plan.up, plan, 1),
        Lane::new(Direction::Down, &plan.down, plan, 2),
    ];
    let is_real_time = sluice_net::real_time(REAL_TIME_PRIORITY).is_ok();
    let mut waiter = Waiter::new(plan.spin);
    let mut sample_at = Time::ZERO;
    let mut received = Vec::with_capacity(256);
    while !stop.is_stopped() {
        let now = clock.now();
        for (i, lane) in lanes.iter_mut().enumerate() {
            received.clear();
            ports[i].receive(&mut pool, &mut received);
            for slot in received.drain(..) {
                let arrival = pool.arrival(slot).unwrap_or(now);
                lane.admit(slot, arrival, &mut pool, observations);
            }
            lane.collect(clock.now(), &mut pool);
            lane.send(&mut ports[1 - i], &mut pool, clock);
        }
        if now >= sample_at {
            sample_at = now + plan.sample;
            for lane in &mut lanes {
                lane.sample(now, observations);
            }
        }
        let deadline = lanes
            .iter()
            .filter_map(Lane::deadline)
            .min()
            .map_or(sample_at, |t| t.min(sample_at));
        let [inner, outer] = &ports;
        let watches = [inner, outer].map(|port| Watch {
            descriptor: std::os::fd::AsFd::as_fd(port),
            interest: Interest::Readable,
        });
        waiter.wait(&watches, Some(deadline), clock);
    }
    let now = clock.now();
    let [up, down] = lanes;
    let mut report = RouterReport {
        is_real_time,
        up: up.finish(now, observations),
        down: down.finish(now, observations),
    };
    let [inner, outer] = ports.each_mut().map(|port| port.counters());
    // A port counts frames that it could neither take nor give; which of both does not matter to the
    // reader, so they are told with the direction that arrives there.
    port_losses(&mut report.up.lost, "port", &inner);
    port_losses(&mut report.down.lost, "port", &outer);
    for port in &mut ports {
        port.release(&mut pool);
    }
    report
}

/// One direction.
struct Lane {
    direction: Direction,
    pipe: Pipe,
    steps: Vec<(Time, Rate)>,
    rng: Rng,
    hasher: FlowHasher,
    split_below: Rate,
    tracer: Tracer,
    flows: BTreeSet<u32>,
    /// Frames to be sent, and for each its due instant and length on the link; none for those that
    /// passed by the pipe.
    outgoing: Vec<Slot>,
    schedule: Vec<Option<(Time, u32)>>,
    report: LaneReport,
    releases: Vec<Release>,
    /// The latest instant that the pipe was told: what arrived before it counts as arriving then.
    told: Time,
}

/// The lane's end of its queue: traces events and frees the slots of dropped packets.
struct LaneSink<'a> {
    tracer: &'a mut Tracer,
    pool: &'a mut Pool,
}

impl Sink for LaneSink<'_> {
    fn discard(&mut self, now: Time, packet: Packet, reason: DropReason) {
        self.tracer.discard(now, &packet, reason);
        self.pool.free(Slot::from_number(packet.slot));
    }

    fn is_listening(&self) -> bool {
        true
    }

    fn on_event(&mut self, now: Time, event: &Event<'_>) {
        self.tracer.on_event(now, event);
    }
}

impl Lane {
    fn new(direction: Direction, plan: &LanePlan, all: &Plan, stream: u64) -> Lane {
        let queue = plan
            .queue
            .build()
            .expect("a queue that was parsed can be built");
        let mut steps = plan.steps.clone();
        steps.reverse();
        Lane {
            direction,
            pipe: Pipe::new(&plan.pipe, queue),
            steps,
            rng: Rng::from_seed(all.seed).fork(stream),
            hasher: FlowHasher::new(all.seed),
            split_below: all.split_below,
            tracer: Tracer::new(),
            flows: BTreeSet::new(),
            outgoing: Vec::with_capacity(256),
            schedule: Vec::with_capacity(256),
            report: LaneReport::default(),
            releases: Vec::new(),
            told: Time::ZERO,
        }
    }

    /// Applies the rates that have come into force by `now`, each at its own instant.
    fn follow_schedule(&mut self, now: Time, pool: &mut Pool) {
        while let Some((at, rate)) = self.steps.last().copied().filter(|(at, _)| *at <= now) {
            self.steps.pop();
            let params = PipeParams {
                rate,
                ..self.pipe.params().clone()
            };
            self.with_pipe(at, pool, |pipe, cx| pipe.set_params(&params, cx));
        }
    }

    fn with_pipe<T>(
        &mut self,
        now: Time,
        pool: &mut Pool,
        work: impl FnOnce(&mut Pipe, &mut Cx<'_>) -> T,
    ) -> T {
        self.told = self.told.max(now);
        let mut sink = LaneSink {
            tracer: &mut self.tracer,
            pool,
        };
        let mut cx = Cx::new(now, &mut self.rng, &mut sink);
        work(&mut self.pipe, &mut cx)
    }

    /// Takes a frame from the port: into the pipe, split if need be, or past it.
    fn admit(
        &mut self,
        slot: Slot,
        arrival: Time,
        pool: &mut Pool,
        observations: &Sender<Observation>,
    ) {
        let arrival = arrival.max(self.told);
        self.follow_schedule(arrival, pool);
        let view = frame::parse_head(pool.head(slot), pool.frame_len(slot), Link::Ethernet);
        if !view.is_ip() {
            if view.fault.is_some() {
                self.lose("malformed", 1);
                pool.free(slot);
            } else {
                self.report.bypassed += 1;
                self.outgoing.push(slot);
                self.schedule.push(None);
            }
            return;
        }
        let flow = self.hasher.flow(&view);
        if self.flows.insert(flow)
            && let Some(key) = FlowKey::of(&view)
        {
            // The receiver is gone only when the run was abandoned.
            let _ = observations.send(Observation::Flow(flow, key));
        }
        match SuperPacket::new(&view, &pool.vnet(slot)) {
            Ok(packet) if self.pipe.params().rate < self.split_below => {
                self.report.split += 1;
                self.admit_segments(slot, &packet, &view, flow, arrival, pool);
            }
            Ok(packet) => {
                self.report.whole += 1;
                let segments = packet.segments() as u16;
                self.enqueue(slot, packet.ip_len(), segments, &view, flow, arrival, pool);
            }
            Err(_) => self.enqueue(slot, view.ip_len, 1, &view, flow, arrival, pool),
        }
    }

    fn admit_segments(
        &mut self,
        slot: Slot,
        packet: &SuperPacket,
        view: &View,
        flow: u32,
        arrival: Time,
        pool: &mut Pool,
    ) {
        for index in 0..packet.segments() {
            let Some(to) = pool.allocate() else {
                self.lose("no_slot", 1);
                continue;
            };
            let (gather, room) = pool.frame_and_room(slot, to);
            match packet.write_segment(index, gather, Checksums::Partial, room) {
                Some((length, vnet)) => {
                    pool.set_frame(to, length, vnet);
                    let ip_len = length - u32::from(view.network);
                    self.enqueue(to, ip_len, 1, view, flow, arrival, pool);
                }
                None => {
                    self.lose("malformed", 1);
                    pool.free(to);
                }
            }
        }
        pool.free(slot);
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of one packet")]
    fn enqueue(
        &mut self,
        slot: Slot,
        len: u32,
        segments: u16,
        view: &View,
        flow: u32,
        arrival: Time,
        pool: &mut Pool,
    ) {
        let mut packet = Packet::new(slot.number(), len);
        packet.arrival = arrival;
        packet.segments = segments;
        packet.flow = flow;
        packet.src = self.hasher.source(view);
        packet.dst = self.hasher.destination(view);
        packet.ecn = Ecn::from_bits(view.ecn);
        packet.dscp = view.dscp;
        self.tracer.arrive(&packet);
        self.with_pipe(arrival, pool, |pipe, cx| pipe.enqueue(packet, cx));
    }

    /// Moves what has come through the pipe to the outgoing frames, with its marks written.
    fn collect(&mut self, now: Time, pool: &mut Pool) {
        self.follow_schedule(now, pool);
        while let Some(departure) = self.with_pipe(now, pool, |pipe, cx| pipe.poll(cx)) {
            let packet = departure.packet;
            let slot = Slot::from_number(packet.slot);
            if packet.ecn == Ecn::Ce {
                let view = frame::parse_head(pool.head(slot), pool.frame_len(slot), Link::Ethernet);
                frame::set_ce(pool.head_mut(slot), &view);
            }
            self.outgoing.push(slot);
            self.schedule.push(Some((departure.due, packet.len)));
        }
    }

    /// Sends the outgoing frames, and notes how late they are.
    fn send(&mut self, port: &mut PacketPort, pool: &mut Pool, clock: &Clock) {
        if self.outgoing.is_empty() {
            return;
        }
        let sent = port.transmit(pool, &self.outgoing);
        let now = clock.now();
        let refused = (self.outgoing.len() - sent) as u64;
        if refused > 0 {
            self.lose("port_blocked", refused);
        }
        for slot in self.outgoing.drain(..).skip(sent) {
            pool.free(slot);
        }
        let pipe = self.direction;
        let released = self.schedule.drain(..).flatten();
        self.releases.extend(released.map(|(due, len)| Release {
            due,
            pipe: pipe.into(),
            len,
            late: now.since(due),
        }));
    }

    fn lose(&mut self, cause: &str, frames: u64) {
        // Rare enough for a map by name, which is what the report wants.
        *self.report.lost.entry(cause.to_owned()).or_default() += frames;
    }

    /// When the pipe needs the loop again.
    fn deadline(&self) -> Option<Time> {
        let wake = match self.pipe.next_wake() {
            Wake::Now => Some(Time::ZERO),
            Wake::At(at) => Some(at),
            Wake::OnEnqueue => None,
        };
        let step = self.steps.last().map(|(at, _)| *at);
        match (wake, step) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    fn sample(&mut self, now: Time, observations: &Sender<Observation>) {
        let mut state = Vec::new();
        self.pipe
            .queue()
            .state(&mut |queue, name, value| state.push((queue, name, value)));
        let rows: Vec<PacketRecord> = self.tracer.take_settled().collect();
        let sample = Observation::Queue {
            direction: self.direction,
            at: now,
            backlog: self.pipe.backlog(),
            state,
        };
        // The receiver is gone only when the run was abandoned.
        let _ = observations.send(sample);
        if !rows.is_empty() {
            let _ = observations.send(Observation::Packets(self.direction, rows));
        }
        if !self.releases.is_empty() {
            let releases = std::mem::take(&mut self.releases);
            let _ = observations.send(Observation::Releases(releases));
        }
    }

    fn finish(mut self, now: Time, observations: &Sender<Observation>) -> LaneReport {
        self.sample(now, observations);
        let rows: Vec<PacketRecord> = self.tracer.into_rows().collect();
        let _ = observations.send(Observation::Packets(self.direction, rows));
        let (queued, flying) = (self.pipe.backlog(), self.pipe.in_flight());
        self.report.left = Backlog {
            packets: queued.packets + flying.packets,
            bytes: queued.bytes + flying.bytes,
        };
        self.report
    }
}

/// Adds what a port lost to what its direction lost.
fn port_losses(lost: &mut BTreeMap<String, u64>, what: &str, counters: &Counters) {
    for loss in Loss::ALL {
        let frames = counters.lost(loss);
        if frames > 0 {
            *lost.entry(format!("{what}_{}", loss.name())).or_default() += frames;
        }
    }
}

/// Before all ordinary threads, after everything that asked for more.
const REAL_TIME_PRIORITY: u8 = 1;
