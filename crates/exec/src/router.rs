//! The router: one thread that carries packets between the program and the far side, each direction
//! through its link.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sluice_core::link::{Link, PipeParams};
use sluice_core::packet::SPLIT_BELOW;
use sluice_core::param::Value;
use sluice_core::{Cx, DropReason, Event, Packet, Rate, Rng, Span, Time, Wake};
use sluice_net::port::{PacketPort, Pool, PoolSize, Port, Spin};
use sluice_net::{Clock, real_time};
use sluice_router::forward::{
    Departure, Forwarder, LaneOptions, Lateness, Observer, PortNumber, Queueing,
};
use sluice_scenario::{Direction, Link as Links, Pipe, Schedule};
use sluice_wire::frame::View;

use crate::gate::Gate;
use crate::pulse::Pulse;

/// One direction of the link.
struct Way {
    link: Link,
    rate: Schedule,
    has_effects: bool,
    /// Later delays, the next one last.
    delays: Vec<(Time, Span)>,
    to: PortNumber,
}

impl Way {
    fn new(pipe: &Pipe, to: PortNumber, rng: &Rng) -> Way {
        let queue = pipe.queue.0.build();
        let queue = queue.expect("a queue that was parsed can be built");
        let steps = pipe.delay.steps().iter().skip(1).rev();
        Way {
            link: Link::new(&pipe.params(), pipe.files(), queue, rng),
            rate: pipe.rate.clone(),
            has_effects: !pipe.effects.to_string().is_empty() || pipe.profile.is_some(),
            delays: steps
                .map(|(at, delay)| (Time::ZERO + *at, *delay))
                .collect(),
            to,
        }
    }

    /// Applies the delays that have come into force by `cx.now`, each at its own instant.
    fn follow_delays(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now;
        while let Some((at, delay)) = self.delays.pop_if(|(at, _)| *at <= now) {
            let params = PipeParams {
                delay,
                ..self.link.pipe_params().clone()
            };
            cx.now = at;
            self.link.set_pipe(&params, cx);
            cx.now = now;
        }
    }
}

impl Queueing for Way {
    type Key = ();

    fn key(&self, _from: PortNumber, _view: &View, _head: &[u8]) {}

    fn splits(&mut self, _from: PortNumber, (): &(), at: Time) -> bool {
        let rate = self.rate.at(at.since(Time::ZERO));
        self.has_effects || self.rate.is_trace() || rate.is_none_or(|rate| rate < SPLIT_BELOW)
    }

    fn admit(&mut self, packet: Packet, (): &(), cx: &mut Cx<'_>) {
        self.follow_delays(cx);
        self.link.enqueue(packet, cx);
    }

    fn poll(&mut self, cx: &mut Cx<'_>) -> Option<Departure> {
        self.follow_delays(cx);
        let departure = self.link.poll(cx)?;
        Some(Departure {
            packet: departure.packet,
            due: departure.due,
            to: self.to,
        })
    }

    fn next_wake(&self) -> Option<Time> {
        let wake = match self.link.next_wake() {
            Wake::Now => Some(Time::ZERO),
            Wake::At(at) => Some(at),
            Wake::OnEnqueue => None,
        };
        let change = self.delays.last().map(|(at, _)| *at);
        wake.into_iter().chain(change).min()
    }

    fn bypass(&self, _from: PortNumber) -> Option<PortNumber> {
        Some(self.to)
    }
}

/// Counts packets and bytes of a direction, and those that left too late.
struct Counter {
    most_late: Span,
    too_late: u64,
    bytes: u64,
}

impl Observer for Counter {
    const LISTENS: bool = false;

    fn on_arrival(&mut self, _packet: &Packet, _view: &View) {}

    fn on_event(&mut self, _now: Time, _event: &Event<'_>) {}

    fn on_discard(&mut self, _now: Time, _packet: &Packet, _reason: DropReason) {}

    fn on_release(&mut self, _due: Time, len: u32, late: Span) {
        self.bytes += u64::from(len);
        self.too_late += u64::from(late > self.most_late);
    }
}

/// What one direction did.
#[derive(Clone, Copy, Debug, Default)]
pub struct WayReport {
    /// Packets that left the link.
    pub packets: u64,
    /// Their bytes, counted as the link counts them.
    pub bytes: u64,
    /// Packets that the queue or the link dropped.
    pub dropped: u64,
    /// Packets that left later than `--max-late`.
    pub too_late: u64,
    /// Frames that the machine lost: to no part of the link.
    pub lost: u64,
    /// How late packets left.
    pub lateness: Lateness,
}

/// What the router's thread shares with others.
#[derive(Clone)]
pub struct Shared {
    /// Ends the router's wait.
    pub pulse: Pulse,
    /// Ends the router.
    pub has_ended: Arc<AtomicBool>,
    /// True while packets of the program are on the link. It becomes false [`LOOK`] late at most.
    pub is_sending: Arc<AtomicBool>,
}

/// Carries packets until the end. Returns what the directions down and up did; packets more than
/// `most_late` late are counted.
pub fn run(
    links: &Links,
    (near, far): (PacketPort, Gate),
    pool: Pool,
    clock: &Clock,
    most_late: Span,
    shared: &Shared,
) -> [WayReport; 2] {
    // A user namespace allows no real-time priority.
    let _ = real_time(REAL_TIME_PRIORITY);
    let ports: Vec<Box<dyn Port>> = vec![Box::new(near), Box::new(far)];
    let mut forwarder = Forwarder::new(ports, pool, *clock, Spin::Adaptive);
    let rng = Rng::from_seed(SEED);
    for (direction, from, to) in [(Direction::Down, 1, 0), (Direction::Up, 0, 1)] {
        let rng = rng.fork(from as u64);
        let counter = Counter {
            most_late,
            too_late: 0,
            bytes: 0,
        };
        let options = LaneOptions {
            from: &[from],
            seed: SEED,
            rng: rng.clone(),
        };
        let way = Way::new(links.pipe(direction), to, &rng);
        forwarder.add_lane(way, counter, options);
    }
    let mut look = None;
    while !shared.has_ended.load(Ordering::Acquire) {
        forwarder.turn(look, Some(shared.pulse.bell.as_fd()));
        shared.pulse.quiet();
        let up = &forwarder.lanes()[UP].queueing().link;
        let is_sending = up.backlog().packets + up.in_flight().packets > 0;
        shared.is_sending.store(is_sending, Ordering::Release);
        shared.pulse.beat();
        look = is_sending.then(|| clock.now() + LOOK);
    }
    let (lanes, ports) = forwarder.finish();
    let mut reports = [WayReport::default(); 2];
    for ((report, lane), port) in reports.iter_mut().zip(lanes).zip([ports[1], ports[0]]) {
        let (_, counter, counts, lateness) = lane;
        *report = WayReport {
            packets: counts.sent,
            bytes: counter.bytes,
            dropped: counts.dropped_total(),
            too_late: counter.too_late,
            // A port counts frames of both directions; most are lost where they arrive.
            lost: counts.lost_total() + port.lost_total(),
            lateness,
        };
    }
    reports
}

/// Returns the memory for what the link may hold.
pub fn pool_size(links: &Links) -> PoolSize {
    let (mut slots, mut large) = (2048, 64);
    for pipe in [&links.down, &links.up] {
        let rate = pipe.rate.highest();
        let limit = match pipe.queue.0.value("limit") {
            Some(Value::Count(limit)) => limit.min(MOST_QUEUED),
            _ if rate.is_unlimited() => 0,
            _ => MOST_QUEUED,
        };
        let delay = pipe.delay.longest();
        let flying = match rate {
            Rate::UNLIMITED if delay == Span::ZERO => 0,
            Rate::UNLIMITED => MOST_QUEUED,
            rate => (rate.bytes_in(delay) / 1000).min(MOST_QUEUED),
        };
        slots += limit + flying;
        if rate >= SPLIT_BELOW {
            large += (limit + flying) / 16;
        }
    }
    PoolSize {
        slots: slots as u32,
        large: large as u32,
    }
}

/// Packets for which there is room in each queue and each delay line: 32 MB of slots.
const MOST_QUEUED: u64 = 16_384;
/// The number of the direction up among the lanes.
const UP: usize = 1;
/// How often the loop looks whether the link is empty.
const LOOK: Span = Span::from_ms(10);
/// Before all ordinary threads, after everything that asked for more.
const REAL_TIME_PRIORITY: u8 = 1;
/// Losses and hashes are those of every run.
const SEED: u64 = 1;
