//! The queues of one direction of a live run: the consecutive links of the path, and after them the
//! additional delay of a flow's own path.
//!
//! Every link records the fate of its packets here, because only this module knows which packets an
//! event belongs to.

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;

use sluice_core::event::StateValue;
use sluice_core::link::Link;
use sluice_core::record::PacketRecord;
use sluice_core::record::rows::{LinkRows, Numbers, Witness};
use sluice_core::{Backlog, Cx, DropReason, Event, Packet, Rate, Rng, Sink, Span, Time};
use sluice_exec::view_of;
use sluice_router::forward::{Departure, Origin, PortNumber, Queueing};
use sluice_router::process::watch::links::{LinkView, Watched};
use sluice_wire::frame::{Addresses, View};

use super::topology::PathEnds;
use sluice_scenario::{Direction, Pipe, PipeId, ScheduledLink};

/// The path of a flow. The addresses of a packet determine its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FlowPath {
    /// The links, in the order of the path up.
    pub hops: std::ops::Range<usize>,
    /// The part of its round trip that exceeds the delays of its links.
    pub extra: Span,
    /// The class of its packets.
    pub class: u32,
    /// The initial window of its connections in segments; `None` for the kernel's.
    pub initial_window: Option<u32>,
    /// If only one flow uses the path, the flow's index and its number among the flows of its
    /// `count`.
    pub owner: Option<(usize, u64)>,
    /// The hosts at its ends, up and down, counted from 1.
    pub hosts: (u64, u64),
}

impl FlowPath {
    /// The path of all packets, over all of `links` links.
    pub(crate) const fn whole(links: usize) -> FlowPath {
        FlowPath {
            hops: 0..links,
            extra: Span::ZERO,
            class: 0,
            initial_window: None,
            owner: None,
            hosts: (1, 1),
        }
    }
}

/// Returns for each path the number of earlier paths between the same hosts.
pub(super) fn nets(ways: &[FlowPath]) -> Vec<u8> {
    let net = |(index, way): (usize, &FlowPath)| {
        let same = ways[..index]
            .iter()
            .filter(|other| other.hosts == way.hosts);
        same.count() as u8
    };
    ways.iter().enumerate().map(net).collect()
}

/// Returns the addresses of each of `ways`.
pub(super) fn ends_of(ways: &[FlowPath]) -> Vec<PathEnds> {
    let ends = |(way, net): (&FlowPath, u8)| PathEnds::between(way.hosts, net);
    ways.iter().zip(nets(ways)).map(ends).collect()
}

/// Finds the path of a packet by its addresses.
#[derive(Clone, Debug)]
pub(crate) struct PathFinder {
    /// The paths between hosts that have several, by source and destination.
    by_pair: BTreeMap<(Ipv4Addr, Ipv4Addr), u8>,
    /// The first path of each source.
    by_source: BTreeMap<Ipv4Addr, u8>,
}

impl PathFinder {
    pub(super) fn new(ways: &[FlowPath]) -> PathFinder {
        let mut finder = PathFinder {
            by_pair: BTreeMap::new(),
            by_source: BTreeMap::new(),
        };
        for (PathEnds { up, down }, number) in ends_of(ways).into_iter().zip(0..) {
            for (source, destination) in [(up, down), (down, up)] {
                if *finder.by_source.entry(source).or_insert(number) != number {
                    finder.by_pair.insert((source, destination), number);
                }
            }
        }
        finder
    }

    /// Returns the index of the path; the first path is that of packets from other addresses.
    pub(super) fn find(&self, view: &View) -> u8 {
        let Addresses::V4 {
            source,
            destination,
            ..
        } = view.addresses
        else {
            return 0;
        };
        let of_pair = self.by_pair.get(&(source, destination));
        // A program may send to the address of another one.
        let found = of_pair.or_else(|| self.by_source.get(&source));
        found.copied().unwrap_or(0)
    }
}

/// The links of one direction.
pub(crate) struct Chain {
    /// The links in the order in which packets pass them.
    stages: Vec<Stage>,
    ways: Vec<OneWay>,
    finder: PathFinder,
    /// The path of the packet in each slot.
    way_of_slot: Vec<u8>,
    /// The number of the packet in each slot, and the next one.
    numbers: Numbers,
    next_number: u64,
    to: PortNumber,
    split_below: Rate,
    /// Packets in the additional delay after their last link, by due time and number.
    under_way: BTreeMap<(Time, u64), Packet>,
    sent: u64,
    out: VecDeque<Departure>,
}

/// A path in this direction: its stages in order, and the delay after them.
struct OneWay {
    stages: std::ops::Range<usize>,
    delay: Span,
    class: u32,
}

/// A link, and its record.
struct Stage {
    id: PipeId,
    scheduled: ScheduledLink,
    rows: LinkRows,
}

/// Queues packets and records their fate.
pub(crate) trait Recorded: Queueing {
    /// Returns the contents of the queues and delay lines.
    fn held(&self) -> Backlog;

    /// Samples the state of every pipe, and removes the rows of packets whose fate was decided
    /// since the last sample.
    fn sample(&mut self) -> Vec<Sample>;

    /// Returns all rows, including those of packets that are still queued.
    fn into_rows(self) -> Vec<(PipeId, Vec<PacketRecord>)>;
}

/// A sample of a pipe.
pub(crate) struct Sample {
    pub pipe: PipeId,
    /// The contents of the queue, and the variables of its algorithm.
    pub queue: Option<(Backlog, Vec<Variable>)>,
    pub rows: Vec<PacketRecord>,
}

/// A variable of an algorithm: number of the queue, name, value.
pub(crate) type Variable = (u32, &'static str, StateValue);

impl Chain {
    /// Creates the links of `direction`, whose packets leave through port `to`. Super-packets are
    /// split if a link is slower than `split_below`.
    pub(super) fn new<'p>(
        direction: Direction,
        pipes: impl Iterator<Item = (PipeId, &'p Pipe)>,
        ways: &[FlowPath],
        to: PortNumber,
        split_below: Rate,
        rng: &Rng,
    ) -> Chain {
        let stage = |(number, (id, pipe)): (u64, (PipeId, &Pipe))| Stage {
            id,
            scheduled: pipe.build(&rng.fork(number)),
            rows: LinkRows::default(),
        };
        let mut stages: Vec<Stage> = (0..)
            .zip(pipes.filter(|(id, _)| id.direction() == direction))
            .map(stage)
            .collect();
        if direction == Direction::Down {
            stages.reverse();
        }
        let count = stages.len();
        let one_way = |way: &FlowPath| {
            let half = Span::from_ns(way.extra.as_ns() / 2);
            match direction {
                Direction::Up => OneWay {
                    stages: way.hops.clone(),
                    delay: half,
                    class: way.class,
                },
                Direction::Down => OneWay {
                    stages: count - way.hops.end..count - way.hops.start,
                    delay: way.extra.saturating_sub(half),
                    class: way.class,
                },
            }
        };
        Chain {
            ways: ways.iter().map(one_way).collect(),
            finder: PathFinder::new(ways),
            stages,
            way_of_slot: Vec::new(),
            numbers: Numbers::default(),
            // Each direction counts separately: even numbers go up, odd numbers go down.
            next_number: match direction {
                Direction::Up => 0,
                Direction::Down => 1,
            },
            to,
            split_below,
            under_way: BTreeMap::new(),
            sent: 0,
            out: VecDeque::with_capacity(256),
        }
    }

    /// Processes one stage up to `at`, and passes on the packets that leave it.
    fn serve(&mut self, number: usize, at: Time, cx: &mut Cx<'_>) {
        let stage = &mut self.stages[number];
        while let Some((from, params)) = stage.scheduled.take_change(at) {
            stage.with(from, cx, &mut self.numbers, |link, cx| {
                link.set_pipe(&params, cx);
            });
        }
        loop {
            let departure = self.stages[number].with(at, cx, &mut self.numbers, Link::poll);
            let Some(departure) = departure else {
                break;
            };
            let (packet, due) = (departure.packet, departure.due);
            let way = self.way_of_slot.get(packet.slot as usize);
            let way = &self.ways[usize::from(way.copied().unwrap_or(0))];
            if number + 1 < way.stages.end {
                let mut packet = packet;
                packet.arrival = due;
                self.enter(number + 1, packet, due, cx);
            } else if way.delay > Span::ZERO {
                self.sent += 1;
                let at = due.saturating_add(way.delay);
                self.under_way.insert((at, self.sent), packet);
            } else {
                let to = self.to;
                self.out.push_back(Departure { packet, due, to });
            }
        }
    }

    fn enter(&mut self, number: usize, packet: Packet, at: Time, cx: &mut Cx<'_>) {
        let stage = &mut self.stages[number];
        let packet_number = self.numbers.of(packet.slot);
        stage.rows.0.arrive(&packet, packet.flow, packet_number);
        stage.with(at, cx, &mut self.numbers, |link, cx| {
            link.enqueue(packet, cx);
        });
    }

    /// Returns the stage with the earliest event, and its instant.
    fn next_stage(&self) -> Option<(Time, usize)> {
        let due = |(number, stage): (usize, &Stage)| Some((stage.scheduled.next_wake()?, number));
        self.stages.iter().enumerate().filter_map(due).min()
    }
}

impl Stage {
    /// Calls `work` with the link at `at`, and records the events of its queue.
    fn with<T>(
        &mut self,
        at: Time,
        cx: &mut Cx<'_>,
        numbers: &mut Numbers,
        work: impl FnOnce(&mut Link, &mut Cx<'_>) -> T,
    ) -> T {
        let (rng, sink) = cx.parts();
        let mut telling = Telling {
            pipe: self.id,
            witness: Witness {
                rows: &mut self.rows,
                numbers,
                sink,
            },
        };
        let mut cx = Cx::new(at, rng, &mut telling);
        work(&mut self.scheduled.link, &mut cx)
    }
}

/// Records the events of a queue and passes them on, because a watcher may count them.
struct Telling<'a> {
    pipe: PipeId,
    witness: Witness<'a, LinkRows>,
}

impl Sink for Telling<'_> {
    fn discard(&mut self, now: Time, packet: Packet, reason: DropReason) {
        self.witness.discard(now, packet, reason);
    }

    fn copy(&mut self, now: Time, packet: &Packet) -> Option<u32> {
        self.witness.copy(now, packet)
    }

    fn corrupt(&mut self, now: Time, packet: &Packet, bit: u64) {
        self.witness.corrupt(now, packet, bit);
    }

    fn is_pure_ack(&self, packet: &Packet) -> bool {
        self.witness.is_pure_ack(packet)
    }

    fn supersedes(&self, newer: &Packet, older: &Packet) -> bool {
        self.witness.supersedes(newer, older)
    }

    fn pipe_name(&self) -> Option<String> {
        Some(self.pipe.word().to_owned())
    }

    fn packet_number(&self, packet: &Packet) -> Option<u64> {
        self.witness.packet_number(packet)
    }

    fn is_listening(&self) -> bool {
        true
    }

    fn on_event(&mut self, now: Time, event: &Event<'_>) {
        self.witness.on_event(now, event);
        self.witness.sink.on_event(now, event);
    }
}

impl Queueing for Chain {
    /// Returns the index of the packet's path.
    type Key = u8;

    fn key(&self, _from: Origin, view: &View, _head: &[u8]) -> u8 {
        self.finder.find(view)
    }

    fn splits(&mut self, _from: PortNumber, _key: &u8, at: Time) -> bool {
        let mut stages = self.stages.iter();
        stages.any(|stage| stage.scheduled.splits(at, self.split_below))
    }

    fn admit(&mut self, mut packet: Packet, key: &u8, cx: &mut Cx<'_>) {
        let slot = packet.slot as usize;
        if self.way_of_slot.len() <= slot {
            self.way_of_slot.resize(slot + 1, 0);
        }
        self.way_of_slot[slot] = *key;
        self.numbers.set(packet.slot, self.next_number);
        self.next_number += 2;
        let way = &self.ways[usize::from(*key)];
        packet.class = way.class;
        let first = way.stages.start;
        // Packets that are due earlier are released first.
        self.process_due(cx);
        self.enter(first, packet, cx.now, cx);
    }

    fn poll(&mut self, cx: &mut Cx<'_>) -> Option<Departure> {
        if self.out.is_empty() {
            self.process_due(cx);
        }
        self.out.pop_front()
    }

    fn next_wake(&self) -> Option<Time> {
        if !self.out.is_empty() {
            return Some(Time::ZERO);
        }
        let stage = self.next_stage().map(|(at, _)| at);
        let rest = self.under_way.keys().next().map(|(at, _)| *at);
        stage.into_iter().chain(rest).min()
    }

    fn bypass(&self, _from: PortNumber) -> Option<PortNumber> {
        Some(self.to)
    }
}

impl Recorded for Chain {
    fn held(&self) -> Backlog {
        let mut held = Backlog::default();
        for stage in &self.stages {
            let link = &stage.scheduled.link;
            let (queued, flying) = (link.backlog(), link.in_flight());
            held.packets += queued.packets + flying.packets;
            held.bytes += queued.bytes + flying.bytes;
        }
        for packet in self.under_way.values() {
            held.add(packet);
        }
        held
    }

    fn sample(&mut self) -> Vec<Sample> {
        let sample = |stage: &mut Stage| {
            let mut state = Vec::new();
            let link = &stage.scheduled.link;
            let queue = link.queue();
            queue.state(&mut |queue, name, value| state.push((queue, name, value)));
            Sample {
                pipe: stage.id,
                queue: Some((link.backlog(), state)),
                rows: stage.rows.0.take_settled().collect(),
            }
        };
        self.stages.iter_mut().map(sample).collect()
    }

    fn into_rows(self) -> Vec<(PipeId, Vec<PacketRecord>)> {
        let rows = |stage: Stage| (stage.id, stage.rows.0.into_rows().collect());
        self.stages.into_iter().map(rows).collect()
    }
}

/// A queue whose packets a watcher counts is recorded as without one.
impl<Q: Recorded> Recorded for Watched<Q> {
    fn held(&self) -> Backlog {
        self.queue().held()
    }

    fn sample(&mut self) -> Vec<Sample> {
        self.queue_mut().sample()
    }

    fn into_rows(self) -> Vec<(PipeId, Vec<PacketRecord>)> {
        self.into_queue().into_rows()
    }
}

impl Chain {
    /// Returns what a watcher sees of the links at `now`.
    pub(crate) fn view(&self, now: Time) -> LinkView {
        view_of(self.stages.iter().map(|stage| &stage.scheduled), now)
    }

    /// Processes all events up to `cx.now`, in the order of time over all links, so that a packet
    /// that leaves one link arrives at the next one at the right instant.
    fn process_due(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now;
        if let [_] = self.stages.as_slice() {
            // A single link needs no common order of events.
            self.serve(0, now, cx);
        } else {
            while let Some((at, number)) = self.next_stage().filter(|(at, _)| *at <= now) {
                self.serve(number, at, cx);
            }
        }
        while let Some(first) = self.under_way.first_entry() {
            let due = first.key().0;
            if due > now {
                break;
            }
            let (packet, to) = (first.remove(), self.to);
            self.out.push_back(Departure { packet, due, to });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(source: [u8; 4], destination: [u8; 4]) -> View {
        let mut frame = [0; 34];
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[14] = 0x45;
        frame[16..18].copy_from_slice(&20_u16.to_be_bytes());
        frame[23] = 17;
        frame[26..30].copy_from_slice(&source);
        frame[30..34].copy_from_slice(&destination);
        sluice_wire::frame::parse(&frame)
    }

    #[test]
    fn a_path_is_found_by_both_hosts_or_by_the_source_alone() {
        let between = |up, down| FlowPath {
            hosts: (up, down),
            ..FlowPath::whole(1)
        };
        // Two hosts share a server. The first host has a second path to the server.
        let ways = [between(1, 1), between(2, 1), between(1, 1)];
        assert_eq!(nets(&ways), [0, 0, 1]);
        let finder = PathFinder::new(&ways);
        for (source, destination, way) in [
            ([10, 0, 23, 2], [10, 0, 23, 3], 0),
            ([10, 0, 23, 3], [10, 0, 23, 2], 0),
            ([10, 0, 23, 4], [10, 0, 23, 3], 1),
            ([10, 0, 23, 3], [10, 0, 23, 4], 1),
            ([10, 0, 24, 2], [10, 0, 24, 3], 2),
            // The path of the source, whatever the destination.
            ([10, 0, 24, 2], [10, 0, 23, 3], 2),
            // Foreign addresses use the common path.
            ([192, 0, 2, 1], [10, 0, 24, 3], 0),
        ] {
            let found = finder.find(&view(source, destination));
            assert_eq!(found, way, "{source:?} {destination:?}");
        }
    }
}
