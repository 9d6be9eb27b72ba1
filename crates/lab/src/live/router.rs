//! The router of a live run: one thread that bridges frames between two ports, each direction
//! through the links of the scenario or its rules, and tells what it saw.
//!
//! [`sluice_router::forward`] moves the packets. What is counted is the IP packet (the length in the IP
//! header), as dummynet does on layer 3; frames that are not IP pass by the pipes. Below
//! `Plan::split_below` super-packets are split into wire packets before they are queued, above they
//! pass whole.
//!
//! Of every packet it is told when it was due and how late it left, and every frame is counted that was
//! lost to anything but a queue, so that a user can tell the emulated from the artefact.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::mpsc::Sender;

use sluice_core::event::StateValue;
use sluice_core::record::PacketRecord;
use sluice_core::{Backlog, DropReason, Event, Packet, Rate, Rng, Span, Stop, Time};
use sluice_net::Clock;
use sluice_net::port::{Loss, PacketPort, Pool, Port, Spin};
use sluice_router::forward::{Forwarder, LaneCounts, LaneOptions, LostFrame, Observer};
use sluice_wire::frame::{Addresses, Transport, View};

use super::bridge::Bridge;
use super::chain::{Chain, Recorded, Sample, Way, way_in};
use sluice_recording::{Arrival, Release};
/// Which way a packet goes: `Up` from h2 to h3.
pub use sluice_scenario::Direction;
use sluice_scenario::{PipeId, Scenario};

/// What the router is to do.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The links and the seed.
    pub scenario: Scenario,
    /// What flows pass; the first is what all others do.
    pub ways: Vec<Way>,
    /// Super-packets are split on links slower than this.
    pub split_below: Rate,
    /// How due instants are met.
    pub spin: Spin,
}

impl Plan {
    /// The links of a direction, at their beginning.
    pub(crate) fn chain(&self, direction: Direction) -> Chain {
        Chain::new(
            direction,
            self.scenario.pipes(),
            &self.ways,
            1 - port_of(direction),
            self.split_below,
            &self.rng(direction),
        )
    }

    /// The randomness of a direction.
    pub(crate) fn rng(&self, direction: Direction) -> Rng {
        Rng::from_seed(self.scenario.seed).fork(1 + port_of(direction) as u64)
    }
}

/// The port at which the packets of a direction arrive.
const fn port_of(direction: Direction) -> usize {
    match direction {
        Direction::Up => 0,
        Direction::Down => 1,
    }
}

/// What the router saw, told while it runs.
#[derive(Debug)]
pub enum Observation {
    /// What became of packets, in the order of arrival.
    Packets(PipeId, Vec<PacketRecord>),
    /// The state of a queue at an instant.
    Queue {
        /// Which queue.
        pipe: PipeId,
        /// When.
        at: Time,
        /// What it held.
        backlog: Backlog,
        /// Its AQM's variables: queue number, name, value.
        state: Vec<(u32, &'static str, StateValue)>,
    },
    /// When packets left.
    Releases(Vec<Release>),
    /// What was put into the queues.
    Arrivals(Vec<Arrival>),
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
pub(super) fn route(
    plan: &Plan,
    inner: PacketPort,
    outer: PacketPort,
    pool: Pool,
    clock: &Clock,
    stop: &Stop,
    observations: &Sender<Observation>,
) -> RouterReport {
    // Before the forwarder is made, which waits in another way then.
    let is_real_time = sluice_net::real_time(REAL_TIME_PRIORITY).is_ok();
    let scenario = &plan.scenario;
    let ports = vec![inner, outer];
    if let Some(rules) = &scenario.rules {
        let mut forwarder = Forwarder::new(ports, pool, *clock, plan.spin);
        let options = LaneOptions {
            from: &[0, 1],
            seed: scenario.seed,
            rng: Rng::from_seed(scenario.seed).fork(1),
        };
        // How late packets of both directions are stands under `up`.
        let recorder = Recorder::new(Direction::Up, plan.ways.len(), observations.clone());
        let bridge = Bridge::new(rules, scenario.seed, plan.split_below);
        forwarder.add_lane(bridge, recorder, options);
        return run(forwarder, plan, clock, stop, is_real_time);
    }
    let mut forwarder = Forwarder::new(ports, pool, *clock, plan.spin);
    for direction in [Direction::Up, Direction::Down] {
        let options = LaneOptions {
            from: &[port_of(direction)],
            seed: scenario.seed,
            rng: plan.rng(direction),
        };
        let recorder = Recorder::new(direction, plan.ways.len(), observations.clone());
        forwarder.add_lane(plan.chain(direction), recorder, options);
    }
    run(forwarder, plan, clock, stop, is_real_time)
}

fn run<P: Port, Q: Recorded>(
    mut forwarder: Forwarder<P, Q, Recorder>,
    plan: &Plan,
    clock: &Clock,
    stop: &Stop,
    is_real_time: bool,
) -> RouterReport {
    let mut sample_at = Time::ZERO;
    while !stop.is_stopped() {
        forwarder.turn(Some(sample_at), None);
        let now = clock.now();
        if now >= sample_at {
            sample_at = now + plan.scenario.measure.interval;
            for lane in 0..forwarder.lanes().len() {
                sample(&mut forwarder, lane, now);
            }
        }
    }
    let now = clock.now();
    for lane in 0..forwarder.lanes().len() {
        sample(&mut forwarder, lane, now);
    }
    let (lanes, ports) = forwarder.finish();
    let mut reports = lanes.into_iter().map(|(queueing, recorder, counts, _)| {
        let report = report(&queueing, &counts);
        for (pipe, rows) in queueing.into_rows() {
            recorder.tell(Observation::Packets(pipe, rows));
        }
        report
    });
    // With rules there is one lane for both directions, whose losses stand with the first.
    let mut next = || reports.next().unwrap_or_default();
    let (mut up, mut down) = (next(), next());
    // A port counts frames that it could neither take nor give; which of both does not matter to the
    // reader, so they are told with the direction that arrives there.
    for (report, port) in [&mut up, &mut down].into_iter().zip(&ports) {
        let lost = Loss::ALL
            .iter()
            .map(|loss| (format!("port_{}", loss.name()), port.lost(*loss)));
        report.lost.extend(lost.filter(|(_, n)| *n > 0));
    }
    RouterReport {
        is_real_time,
        up,
        down,
    }
}

fn report(queueing: &impl Recorded, counts: &LaneCounts) -> LaneReport {
    let own = LostFrame::ALL
        .iter()
        .map(|cause| (cause.name().to_owned(), counts.lost(*cause)));
    LaneReport {
        split: counts.split,
        whole: counts.whole,
        bypassed: counts.bypassed,
        left: queueing.held(),
        lost: own.filter(|(_, n)| *n > 0).collect(),
    }
}

/// Tells flows and releases of one direction; what becomes of packets is noted where they queue.
struct Recorder {
    direction: Direction,
    flows: BTreeSet<u32>,
    releases: Vec<Release>,
    arrivals: Vec<Arrival>,
    /// How many ways there are.
    ways: usize,
    observations: Sender<Observation>,
}

impl Recorder {
    fn new(direction: Direction, ways: usize, observations: Sender<Observation>) -> Self {
        Recorder {
            direction,
            flows: BTreeSet::new(),
            releases: Vec::new(),
            arrivals: Vec::new(),
            ways,
            observations,
        }
    }

    fn tell(&self, observation: Observation) {
        // The receiver is gone only when the run was abandoned.
        let _ = self.observations.send(observation);
    }
}

impl Observer for Recorder {
    const LISTENS: bool = true;

    fn on_arrival(&mut self, packet: &Packet, view: &View) {
        if self.flows.insert(packet.flow)
            && let Some(key) = FlowKey::of(view)
        {
            self.tell(Observation::Flow(packet.flow, key));
        }
        self.arrivals.push(Arrival {
            time: packet.arrival,
            pipe: self.direction.into(),
            way: u32::from(way_in(view, self.ways)),
            len: packet.len,
            segments: u32::from(packet.segments),
            ecn: packet.ecn as u32,
            dscp: u32::from(packet.dscp),
            hash: packet.flow,
            src: packet.src,
            dst: packet.dst,
            tag: packet.tag,
        });
    }

    fn on_event(&mut self, _now: Time, _event: &Event<'_>) {}

    fn on_discard(&mut self, _now: Time, _packet: &Packet, _reason: DropReason) {}

    fn on_release(&mut self, due: Time, len: u32, late: Span) {
        self.releases.push(Release {
            due,
            pipe: self.direction.into(),
            len,
            late,
        });
    }
}

/// Tells the state of the queues, and what has become of packets since the last sample.
fn sample<P: Port, Q: Recorded>(forwarder: &mut Forwarder<P, Q, Recorder>, lane: usize, now: Time) {
    let samples = forwarder.with(lane, |queueing, _| queueing.sample());
    let recorder = forwarder.lanes_mut()[lane].observer_mut();
    for Sample { pipe, queue, rows } in samples {
        if let Some((backlog, state)) = queue {
            recorder.tell(Observation::Queue {
                pipe,
                at: now,
                backlog,
                state,
            });
        }
        if !rows.is_empty() {
            recorder.tell(Observation::Packets(pipe, rows));
        }
    }
    if !recorder.arrivals.is_empty() {
        let arrivals = std::mem::take(&mut recorder.arrivals);
        recorder.tell(Observation::Arrivals(arrivals));
    }
    if !recorder.releases.is_empty() {
        let releases = std::mem::take(&mut recorder.releases);
        recorder.tell(Observation::Releases(releases));
    }
}

/// Before all ordinary threads, after everything that asked for more.
const REAL_TIME_PRIORITY: u8 = 1;
