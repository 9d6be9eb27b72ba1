//! The router: one thread that carries packets between the program and the far side, each direction
//! through its link.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sluice_core::packet::SPLIT_BELOW;
use sluice_core::param::Value;
use sluice_core::{Cx, DropReason, Event, Packet, Rate, Rng, Span, Time};
use sluice_net::port::{Counters, Pool, PoolSize, Port, Spin};
use sluice_net::{Clock, real_time};
use sluice_router::forward::{
    Departure, Forwarder, LaneCounts, LaneOptions, Lateness, Observer, Origin, PortNumber, Queueing,
};
use sluice_router::process::watch::links::{LinkInbox, LinkNames, LinkView, LinkWatch, Watched};
use sluice_scenario::{Direction, Link, PipeId, ScheduledLink};
use sluice_wire::frame::View;

use crate::pulse::Pulse;

/// The queues between the program and the far side, and their observers.
pub trait Carrier {
    /// One direction of the link.
    type Queue: Queueing;
    /// The observer of a direction.
    type Observer: Observer;

    /// Returns the seed of all random numbers.
    fn seed(&self) -> u64;

    /// Creates the direction whose packets leave through port `to`.
    fn lane(&mut self, direction: Direction, to: PortNumber) -> (Self::Queue, Self::Observer);

    /// Returns the name of a direction's pipe, unless its queues report names of their own.
    fn pipe_name(&self, direction: Direction) -> Option<&'static str> {
        let _ = direction;
        None
    }

    /// Returns the number of packets on the link.
    fn packets_in(queue: &Self::Queue) -> u64;

    /// Returns what a watcher sees of the links at `now`.
    fn view(queue: &Self::Queue, now: Time) -> LinkView;

    /// Returns the time between two samples, if there are samples to take.
    fn interval(&self) -> Option<Span> {
        None
    }

    /// Takes a sample of both directions, down and up.
    fn sample(&mut self, forwarder: &mut CarrierLoop<Self>, now: Time) {
        let _ = (forwarder, now);
    }

    /// Receives the remains of a direction at the end, with its counts and those of the port at
    /// which its packets arrived.
    fn finish(
        &mut self,
        queue: Self::Queue,
        observer: Self::Observer,
        counts: &LaneCounts,
        port: &Counters,
    ) {
        let _ = (queue, observer, counts, port);
    }
}

/// The loop of a carrier.
pub type CarrierLoop<C> =
    Forwarder<Box<dyn Port>, Watched<<C as Carrier>::Queue>, Counter<<C as Carrier>::Observer>>;

/// Returns what a watcher sees of consecutive links at `now`.
pub fn view_of<'a>(stages: impl Iterator<Item = &'a ScheduledLink>, now: Time) -> LinkView {
    let mut view = LinkView::default();
    for stage in stages {
        let (queued, flying) = (stage.link.backlog(), stage.link.in_flight());
        let rate = stage.rate_at(now);
        view.rate = match view.links {
            0 => rate,
            _ => view.rate.zip(rate).map(|(a, b)| a.min(b)),
        };
        view.links += 1;
        view.delay = view.delay + stage.link.pipe_params().delay;
        view.backlog.packets += queued.packets;
        view.backlog.bytes += queued.bytes;
        view.in_flight.packets += flying.packets;
        view.in_flight.bytes += flying.bytes;
        stage.link.queue().state(&mut |queue, name, value| {
            view.variables.push((queue, name, value));
        });
    }
    view
}

/// The consecutive links of a path.
pub struct Path {
    links: Vec<Link>,
    seed: u64,
}

impl Path {
    /// The links in the order of the path up, and the seed of their random numbers.
    pub fn new(links: Vec<Link>, seed: u64) -> Path {
        Path { links, seed }
    }
}

impl Carrier for Path {
    type Queue = DirectedPath;
    type Observer = ();

    fn seed(&self) -> u64 {
        self.seed
    }

    fn lane(&mut self, direction: Direction, to: PortNumber) -> (DirectedPath, ()) {
        let rng = random_numbers(self.seed, direction);
        let pipes = self.links.iter().map(|link| link.pipe(direction));
        let mut stages: Vec<ScheduledLink> = (0..)
            .zip(pipes)
            .map(|(number, pipe)| pipe.build(&rng.fork(number)))
            .collect();
        if direction == Direction::Down {
            stages.reverse();
        }
        (DirectedPath { stages, to }, ())
    }

    /// With several links, an error of an algorithm does not say which of them it is in.
    fn pipe_name(&self, direction: Direction) -> Option<&'static str> {
        let is_single = self.links.len() == 1;
        is_single.then(|| PipeId::from(direction).word())
    }

    fn packets_in(way: &DirectedPath) -> u64 {
        let held =
            |stage: &ScheduledLink| stage.link.backlog().packets + stage.link.in_flight().packets;
        way.stages.iter().map(held).sum()
    }

    fn view(way: &DirectedPath, now: Time) -> LinkView {
        view_of(way.stages.iter(), now)
    }
}

/// Returns the random numbers of a direction. They are the same with a recording and without.
pub fn random_numbers(seed: u64, direction: Direction) -> Rng {
    Rng::from_seed(seed).fork(1 + port_from(direction) as u64)
}

/// One direction of the path: links in the order in which packets pass them.
pub struct DirectedPath {
    stages: Vec<ScheduledLink>,
    to: PortNumber,
}

impl DirectedPath {
    /// Returns the earliest event of all links but the last: its instant, and the link's index.
    fn next_inner(&self) -> Option<(Time, usize)> {
        let inner = &self.stages[..self.stages.len() - 1];
        let due = |(number, stage): (usize, &ScheduledLink)| Some((stage.next_wake()?, number));
        inner.iter().enumerate().filter_map(due).min()
    }

    /// Passes packets from link to link up to `cx.now`, in the order of their instants.
    fn pass_on(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now;
        while let Some((at, number)) = self.next_inner().filter(|(at, _)| *at <= now) {
            cx.now = at;
            self.stages[number].catch_up(cx);
            while let Some(departure) = self.stages[number].link.poll(cx) {
                let mut packet = departure.packet;
                packet.arrival = departure.due;
                cx.now = departure.due;
                let next = &mut self.stages[number + 1];
                next.catch_up(cx);
                next.link.enqueue(packet, cx);
                cx.now = at;
            }
        }
        cx.now = now;
    }
}

impl Queueing for DirectedPath {
    type Key = ();

    fn key(&self, _from: Origin, _view: &View, _head: &[u8]) {}

    fn splits(&mut self, _from: PortNumber, (): &(), at: Time) -> bool {
        let mut stages = self.stages.iter();
        stages.any(|stage| stage.splits(at, SPLIT_BELOW))
    }

    fn admit(&mut self, packet: Packet, (): &(), cx: &mut Cx<'_>) {
        self.pass_on(cx);
        let first = &mut self.stages[0];
        first.catch_up(cx);
        first.link.enqueue(packet, cx);
    }

    fn poll(&mut self, cx: &mut Cx<'_>) -> Option<Departure> {
        self.pass_on(cx);
        let last = self.stages.last_mut().expect("a path has a link");
        last.catch_up(cx);
        let departure = last.link.poll(cx)?;
        Some(Departure {
            packet: departure.packet,
            due: departure.due,
            to: self.to,
        })
    }

    fn next_wake(&self) -> Option<Time> {
        self.stages
            .iter()
            .filter_map(ScheduledLink::next_wake)
            .min()
    }

    fn bypass(&self, _from: PortNumber) -> Option<PortNumber> {
        Some(self.to)
    }
}

/// Counts the packets and bytes of a direction and the packets that left too late, and passes all
/// events on to another observer.
pub struct Counter<O> {
    pipe: Option<&'static str>,
    most_late: Span,
    too_late: u64,
    bytes: u64,
    /// The other observer.
    pub next: O,
}

impl<O: Observer> Observer for Counter<O> {
    const LISTENS: bool = O::LISTENS;

    fn pipe_name(&self) -> Option<String> {
        self.pipe.map(str::to_owned)
    }

    fn on_arrival(&mut self, packet: &Packet, view: &View) {
        self.next.on_arrival(packet, view);
    }

    fn on_event(&mut self, now: Time, event: &Event<'_>) {
        self.next.on_event(now, event);
    }

    fn on_discard(&mut self, now: Time, packet: &Packet, reason: DropReason) {
        self.next.on_discard(now, packet, reason);
    }

    fn on_release(&mut self, due: Time, len: u32, late: Span) {
        self.bytes += u64::from(len);
        self.too_late += u64::from(late > self.most_late);
        self.next.on_release(due, len, late);
    }
}

/// The counts of one direction.
#[derive(Clone, Copy, Debug, Default)]
pub struct DirectionReport {
    /// Packets that left the link.
    pub packets: u64,
    /// Their bytes, counted as the link counts them.
    pub bytes: u64,
    /// Packets that the queue or the link dropped.
    pub dropped: u64,
    /// Packets that left later than `--max-late`.
    pub too_late: u64,
    /// Frames that the machine lost, which no part of the link dropped.
    pub lost: u64,
    /// How late packets left.
    pub lateness: Lateness,
}

/// The state that the router's thread shares with other threads.
#[derive(Clone)]
pub struct Shared {
    /// Ends the router's wait.
    pub pulse: Pulse,
    /// Ends the router.
    pub has_ended: Arc<AtomicBool>,
    /// True while packets of the program are on the link. It becomes false [`LOOK`] late at most.
    pub is_sending: Arc<AtomicBool>,
}

/// Returns the number of the pipe as which a watcher sees a direction.
pub const fn pipe_of(direction: Direction) -> u32 {
    match direction {
        Direction::Down => 1,
        Direction::Up => 2,
    }
}

/// Returns what a watcher reads about a direction: the queues of its links, given in the order of the
/// path up, in the order in which packets pass them.
pub fn words_of<'a>(links: impl Iterator<Item = &'a Link>, direction: Direction) -> String {
    let queue = |link: &Link| link.pipe(direction).queue.0.to_string();
    let mut queues: Vec<String> = links.map(queue).collect();
    if direction == Direction::Down {
        queues.reverse();
    }
    format!("{}: {}", PipeId::from(direction), queues.join(", then "))
}

/// Returns what a watcher reads about `links`.
pub fn names_of(links: &[Link]) -> LinkNames {
    let lane = |direction| (pipe_of(direction), words_of(links.iter(), direction));
    LinkNames {
        lanes: DIRECTIONS.map(lane).into(),
        ports: vec!["program", "outside"],
    }
}

/// Carries packets until the end. Returns the counts of the directions down and up, which include
/// packets that left more than `most_late` late.
pub fn run<C: Carrier>(
    mut carrier: C,
    ports: Vec<Box<dyn Port>>,
    pool: Pool,
    clock: &Clock,
    most_late: Span,
    shared: &Shared,
    watch: Option<(LinkInbox, LinkNames)>,
) -> [DirectionReport; 2] {
    // A user namespace allows no real-time priority.
    let is_real_time = real_time(REAL_TIME_PRIORITY).is_ok();
    let mut watch = watch.map(|(inbox, names)| LinkWatch::new(inbox, names));
    let mut forwarder = Forwarder::new(ports, pool, *clock, Spin::Adaptive);
    let seed = carrier.seed();
    for (number, direction) in DIRECTIONS.into_iter().enumerate() {
        let from = port_from(direction);
        let (queue, observer) = carrier.lane(direction, 1 - from);
        let counter = Counter {
            pipe: carrier.pipe_name(direction),
            most_late,
            too_late: 0,
            bytes: 0,
            next: observer,
        };
        let queue = match &watch {
            Some(watch) => {
                let links = C::view(&queue, clock.now()).links;
                watch.watched(number, links, queue)
            }
            None => Watched::by_nobody(queue),
        };
        let options = LaneOptions {
            from: &[from],
            seed,
            rng: random_numbers(seed, direction),
        };
        forwarder.add_lane(queue, counter, options);
    }
    let mut look = None;
    let mut sample_at = carrier.interval().map(|_| Time::ZERO);
    while !shared.has_ended.load(Ordering::Acquire) {
        let asked = watch.as_ref().map(|_| clock.now() + WATCH_EVERY);
        let until = sample_at.into_iter().chain(look).chain(asked).min();
        forwarder.turn(until, Some(shared.pulse.bell.as_fd()));
        shared.pulse.quiet();
        let is_sending = C::packets_in(forwarder.lanes()[UP].queueing().queue()) > 0;
        shared.is_sending.store(is_sending, Ordering::Release);
        shared.pulse.beat();
        let now = clock.now();
        look = is_sending.then(|| now + LOOK);
        if let Some(watch) = &mut watch {
            watch.answer(
                &mut forwarder,
                |queue| C::view(queue, now),
                is_real_time,
                now,
            );
        }
        if let (Some(interval), Some(at)) = (carrier.interval(), sample_at)
            && at <= now
        {
            sample_at = Some(now + interval);
            carrier.sample(&mut forwarder, now);
        }
    }
    if carrier.interval().is_some() {
        carrier.sample(&mut forwarder, clock.now());
    }
    let (lanes, ports) = forwarder.finish();
    let mut reports = [DirectionReport::default(); 2];
    for ((report, lane), port) in reports.iter_mut().zip(lanes).zip([ports[1], ports[0]]) {
        let (queue, counter, counts, lateness) = lane;
        *report = DirectionReport {
            packets: counts.sent,
            bytes: counter.bytes,
            dropped: counts.dropped_total(),
            too_late: counter.too_late,
            // A port counts the frames of both directions. Most losses happen at arrival.
            lost: counts.lost_total() + port.lost_total(),
            lateness,
        };
        let queue = queue.into_queue();
        carrier.finish(queue, counter.next, &counts, &port);
    }
    reports
}

/// Returns the port at which the packets of a direction arrive: 0 is the program's.
pub const fn port_from(direction: Direction) -> PortNumber {
    match direction {
        Direction::Down => 1,
        Direction::Up => 0,
    }
}

/// Returns the size of the memory for all packets that the link can hold.
pub fn pool_size(links: &[Link]) -> PoolSize {
    let (mut slots, mut large) = (2048, 64);
    for pipe in links.iter().flat_map(|link| [&link.down, &link.up]) {
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
/// The directions in the order of the lanes.
const DIRECTIONS: [Direction; 2] = [Direction::Down, Direction::Up];
/// The number of the direction up among the lanes.
const UP: usize = 1;
/// The interval between checks whether the link is empty.
const LOOK: Span = Span::from_ms(10);
/// The interval between checks whether a watcher has asked.
pub const WATCH_EVERY: Span = Span::from_ms(50);
/// The lowest real-time priority: above all ordinary threads, below all other real-time threads.
const REAL_TIME_PRIORITY: u8 = 1;

#[cfg(test)]
mod tests {
    use sluice_core::DropCounter;

    use super::*;
    use crate::link::LinkWords;

    /// Returns which of 100 packets a link with 1 % loss loses, counted from 1.
    fn lost(seed: u64, direction: Direction) -> Vec<u32> {
        let words = LinkWords {
            sets: vec![("loss".to_owned(), "1%".to_owned())],
            ..LinkWords::default()
        };
        let (mut path, ()) = Path::new(words.links().unwrap(), seed).lane(direction, 1);
        let (mut rng, mut sink) = (random_numbers(seed, direction), DropCounter::default());
        let mut cx = Cx::new(Time::ZERO, &mut rng, &mut sink);
        let is_lost = |number: &u32| {
            path.admit(Packet::new(*number, 100), &(), &mut cx);
            path.poll(&mut cx).is_none()
        };
        (1..=100).filter(is_lost).collect()
    }

    #[test]
    fn the_seed_decides_which_packets_are_lost() {
        // Computed with another implementation of xoshiro256++ (docs/how-to/exec.md).
        assert_eq!(lost(1, Direction::Up), [49, 80]);
        assert_eq!(lost(1, Direction::Down), [56, 98]);
        assert_eq!(lost(3, Direction::Up), [60, 97]);
    }
}
