//! The router of a live run: one thread that bridges frames between two ports, each direction
//! through the links of the scenario or its rules, and reports what it observes.
//!
//! [`sluice_router::forward`] moves the packets. Lengths are those of the IP packet (from the IP
//! header), as in dummynet on layer 3. Frames that are not IP bypass the pipes. On links slower
//! than `RouterSettings::split_below`, super-packets are split into wire packets before they are
//! queued. On faster links they pass whole.
//!
//! For every packet, the router reports its due time and its lateness. It counts every frame that
//! was lost outside the queues, so that a user can distinguish the emulation from its artefacts.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use sluice_core::event::StateValue;
use sluice_core::record::PacketRecord;
use sluice_core::{Backlog, DropReason, Event, Packet, Rate, Rng, Span, Stop, Time};
use sluice_exec::{WATCH_EVERY, pipe_of, random_numbers, words_of};
use sluice_net::Clock;
use sluice_net::port::{Loss, PacketPort, Pool, Port, Spin};
use sluice_router::forward::{Forwarder, LaneCounts, LaneOptions, LostFrame, Observer};
use sluice_router::process::watch::links::{LinkInbox, LinkNames, LinkWatch, RuleWatch, Watched};
use sluice_wire::frame::{Transport, View};

use super::bridge::Bridge;
use super::chain::{Chain, FlowPath, PathFinder, Recorded, Sample};
use super::observations::ObservationSender;
use sluice_recording::{Arrival, Release};
/// The direction of a packet: `Up` from h2 to h3.
pub use sluice_scenario::Direction;
use sluice_scenario::{PipeId, Scenario};

/// The settings of the router of a live run.
#[derive(Clone, Debug)]
pub(crate) struct RouterSettings {
    /// The links and the seed.
    pub scenario: Scenario,
    /// The paths of flows; the first is the path of all other packets.
    pub ways: Vec<FlowPath>,
    /// Super-packets are split on links slower than this.
    pub split_below: Rate,
    /// How the router waits for due times.
    pub spin: Spin,
}

impl RouterSettings {
    /// Creates the links of a direction.
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

    /// Returns the object that finds the path of a packet.
    pub(crate) fn finder(&self) -> PathFinder {
        PathFinder::new(&self.ways)
    }

    /// Returns what a watcher reads about the links.
    fn names(&self) -> LinkNames {
        let lane = |direction| {
            let words = words_of(self.scenario.links(), direction);
            (pipe_of(direction), words)
        };
        LinkNames {
            lanes: DIRECTIONS.map(lane).into(),
            ports: HOSTS.into(),
        }
    }

    /// Returns the random numbers of a direction.
    pub(crate) fn rng(&self, direction: Direction) -> Rng {
        random_numbers(self.scenario.seed, direction)
    }
}

/// Returns the port at which the packets of a direction arrive.
const fn port_of(direction: Direction) -> usize {
    match direction {
        Direction::Up => 0,
        Direction::Down => 1,
    }
}

/// An observation that the router reports while it runs.
#[derive(Debug)]
pub enum Observation {
    /// The fate of packets, in the order of arrival.
    Packets(PipeId, Vec<PacketRecord>),
    /// The state of a queue at an instant.
    Queue {
        /// The pipe of the queue.
        pipe: PipeId,
        /// The instant.
        at: Time,
        /// The contents of the queue.
        backlog: Backlog,
        /// AQM's variables: queue number, name, value.
        state: Vec<(u32, &'static str, StateValue)>,
    },
    /// The instants at which packets left.
    Releases(Vec<Release>),
    /// Packets that were put into the queues.
    Arrivals(Vec<Arrival>),
    /// A flow was seen for the first time.
    Flow(u32, FiveTuple),
}

/// The protocol, addresses and ports of a flow. ICMP messages have their identifier in place of both
/// ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FiveTuple {
    /// Transport protocol.
    pub protocol: u8,
    /// The source.
    pub source: SocketAddr,
    /// The destination.
    pub destination: SocketAddr,
}

impl FiveTuple {
    fn of(view: &View) -> Option<FiveTuple> {
        let (from, to) = view.addresses.pair()?;
        let (source, destination) = match view.transport {
            Transport::Icmp { id, .. } => (id.unwrap_or(0), id.unwrap_or(0)),
            _ => view.ports().unwrap_or((0, 0)),
        };
        Some(FiveTuple {
            protocol: view.protocol,
            source: SocketAddr::new(from, source),
            destination: SocketAddr::new(to, destination),
        })
    }
}

/// The counters of one direction.
#[derive(Clone, Debug, Default)]
pub struct LaneReport {
    /// Super-packets that were split.
    pub split: u64,
    /// Super-packets that passed whole.
    pub whole: u64,
    /// Frames that are not IP and bypassed the pipe.
    pub bypassed: u64,
    /// Packets left in the pipe when the router stopped.
    pub left: Backlog,
    /// Frames lost outside the queue, by cause.
    pub lost: BTreeMap<String, u64>,
}

/// The counters of the router.
#[derive(Clone, Debug)]
pub struct RouterReport {
    /// Whether the router's thread had priority over all ordinary threads (SCHED_FIFO).
    pub is_real_time: bool,
    /// From h2 to h3.
    pub up: LaneReport,
    /// From h3 to h2.
    pub down: LaneReport,
}

/// Routes frames between `inner` (towards h2) and `outer` (towards h3) until `stop`, and answers a
/// watcher, if there is one.
#[expect(
    clippy::too_many_arguments,
    reason = "the means of a thread, given once"
)]
pub(super) fn route(
    settings: &RouterSettings,
    inner: PacketPort,
    outer: PacketPort,
    pool: Pool,
    clock: &Clock,
    stop: &Stop,
    observations: &ObservationSender,
    watch: Option<LinkInbox>,
) -> RouterReport {
    // This must precede the creation of the forwarder, because the priority determines how it
    // waits.
    let is_real_time = sluice_net::real_time(REAL_TIME_PRIORITY).is_ok();
    let scenario = &settings.scenario;
    let ports = vec![inner, outer];
    if let Some(rules) = &scenario.rules {
        let mut forwarder = Forwarder::new(ports, pool, *clock, settings.spin);
        let options = LaneOptions {
            from: &[0, 1],
            seed: scenario.seed,
            rng: Rng::from_seed(scenario.seed).fork(1),
        };
        // The lateness of both directions is counted under `up`.
        let finder = settings.finder();
        let observer = LaneObserver::new(Direction::Up, finder, observations.clone());
        let bridge = Bridge::new(rules, scenario.seed, settings.split_below);
        forwarder.add_lane(bridge, observer, options);
        let mut watch = watch.map(|inbox| RuleWatch::new(inbox, HOSTS.into()));
        return run(
            forwarder,
            settings,
            clock,
            stop,
            is_real_time,
            |forwarder, now| {
                let watch = watch.as_mut()?;
                watch.answer(forwarder, is_real_time, now);
                Some(match watch.is_answering() {
                    true => now,
                    false => now + WATCH_EVERY,
                })
            },
        );
    }
    let mut watch = watch.map(|inbox| LinkWatch::new(inbox, settings.names()));
    let mut forwarder = Forwarder::new(ports, pool, *clock, settings.spin);
    for (number, direction) in DIRECTIONS.into_iter().enumerate() {
        let options = LaneOptions {
            from: &[port_of(direction)],
            seed: scenario.seed,
            rng: settings.rng(direction),
        };
        let finder = settings.finder();
        let observer = LaneObserver::new(direction, finder, observations.clone());
        let chain = settings.chain(direction);
        let chain = match &watch {
            Some(watch) => watch.watched(number, chain.view(Time::ZERO).links, chain),
            None => Watched::by_nobody(chain),
        };
        forwarder.add_lane(chain, observer, options);
    }
    run(
        forwarder,
        settings,
        clock,
        stop,
        is_real_time,
        |forwarder, now| {
            let watch = watch.as_mut()?;
            watch.answer(forwarder, |chain| chain.view(now), is_real_time, now);
            Some(now + WATCH_EVERY)
        },
    )
}

/// `answer` answers a watcher and returns the instant at which it wants to be called again.
fn run<P: Port, Q: Recorded>(
    mut forwarder: Forwarder<P, Q, LaneObserver>,
    settings: &RouterSettings,
    clock: &Clock,
    stop: &Stop,
    is_real_time: bool,
    mut answer: impl FnMut(&mut Forwarder<P, Q, LaneObserver>, Time) -> Option<Time>,
) -> RouterReport {
    let mut sample_at = Time::ZERO;
    let mut answer_at = None;
    while !stop.is_stopped() {
        let until = answer_at.map_or(sample_at, |at| sample_at.min(at));
        forwarder.turn(Some(until), None);
        let now = clock.now();
        answer_at = answer(&mut forwarder, now);
        if now >= sample_at {
            sample_at = now + settings.scenario.measure.interval;
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
    let mut reports = lanes.into_iter().map(|(queueing, observer, counts, _)| {
        let report = report(&queueing, &counts);
        for (pipe, rows) in queueing.into_rows() {
            observer.tell(Observation::Packets(pipe, rows));
        }
        report
    });
    // With rules there is one lane for both directions; its losses are counted for the first one.
    let mut next = || reports.next().unwrap_or_default();
    let (mut up, mut down) = (next(), next());
    // A port counts frames that it could not receive or could not send. Users do not need this
    // distinction, so all these frames count for the direction that arrives at the port.
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

/// Reports flows and releases of one direction. The fate of packets is recorded where they queue.
pub(crate) struct LaneObserver {
    direction: Direction,
    flows: BTreeSet<u32>,
    releases: Vec<Release>,
    arrivals: Vec<Arrival>,
    /// Finds the path of a packet.
    ways: PathFinder,
    observations: ObservationSender,
}

impl LaneObserver {
    /// Creates the observer of a direction.
    pub(crate) fn new(
        direction: Direction,
        ways: PathFinder,
        observations: ObservationSender,
    ) -> Self {
        LaneObserver {
            direction,
            flows: BTreeSet::new(),
            releases: Vec::new(),
            arrivals: Vec::new(),
            ways,
            observations,
        }
    }

    /// Reports an observation.
    pub(crate) fn tell(&self, observation: Observation) {
        self.observations.send(observation);
    }
}

impl AsMut<LaneObserver> for LaneObserver {
    fn as_mut(&mut self) -> &mut LaneObserver {
        self
    }
}

impl Observer for LaneObserver {
    const LISTENS: bool = true;

    fn on_arrival(&mut self, packet: &Packet, view: &View) {
        if self.flows.insert(packet.flow)
            && let Some(key) = FiveTuple::of(view)
        {
            self.tell(Observation::Flow(packet.flow, key));
        }
        self.arrivals.push(Arrival {
            time: packet.arrival,
            pipe: self.direction.into(),
            way: u32::from(self.ways.find(view)),
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

/// Reports the state of the queues, and the fate of packets since the last sample.
pub(crate) fn sample<P: Port, Q: Recorded, O: Observer + AsMut<LaneObserver>>(
    forwarder: &mut Forwarder<P, Q, O>,
    lane: usize,
    now: Time,
) {
    let samples = forwarder.with(lane, |queueing, _| queueing.sample());
    let observer = forwarder.lanes_mut()[lane].observer_mut().as_mut();
    for Sample { pipe, queue, rows } in samples {
        if let Some((backlog, state)) = queue {
            observer.tell(Observation::Queue {
                pipe,
                at: now,
                backlog,
                state,
            });
        }
        if !rows.is_empty() {
            observer.tell(Observation::Packets(pipe, rows));
        }
    }
    if !observer.arrivals.is_empty() {
        let arrivals = std::mem::take(&mut observer.arrivals);
        observer.tell(Observation::Arrivals(arrivals));
    }
    if !observer.releases.is_empty() {
        let releases = std::mem::take(&mut observer.releases);
        observer.tell(Observation::Releases(releases));
    }
}

/// The directions in the order of the lanes.
const DIRECTIONS: [Direction; 2] = [Direction::Up, Direction::Down];
/// What a watcher reads about the ports: the hosts that they lead to.
const HOSTS: [&str; 2] = ["h2", "h3"];
/// The priority of the router: above all ordinary threads, below all others with a real-time
/// priority.
const REAL_TIME_PRIORITY: u8 = 1;
