//! Observes the link and its connections, for a recording.

use std::sync::mpsc::Sender;

use sluice_core::event::StateValue;
use sluice_core::record::PacketRecord;
use sluice_core::record::rows::{LinkRows, Numbers, Witness};
use sluice_core::{Backlog, Ecn, Packet, Sink, Span, Time};
use sluice_scenario::{Direction, PipeId};
use sluice_tcp::{Segment, Snapshot};

use super::directed::DirectedLink;
use super::pair::Pair;
use super::parcels::{Load, Parcels};
use super::{Engine, Id, Side, flow_of};

/// An observation of the link.
#[derive(Debug)]
pub enum Observation {
    /// A connection was opened, or a question about a name was sent.
    Flow(Flow),
    /// Segments that were sent, in the order of their numbers.
    Segments(Vec<Sent>),
    /// The fate of packets, in the order of arrival.
    Packets(PipeId, Vec<PacketRecord>),
    /// The state of a queue.
    Queue {
        /// The pipe of the queue.
        pipe: PipeId,
        /// The instant.
        at: Time,
        /// The contents of the queue.
        backlog: Backlog,
        /// The variables of its algorithm: queue number, name, value.
        state: Vec<(u32, &'static str, StateValue)>,
    },
    /// Packets that were put into the first queue of a direction.
    Arrivals(Vec<Arrival>),
    /// Packets that left the link.
    Releases(Vec<Release>),
    /// The state of ends of connections.
    Ends(Vec<EndState>),
    /// The proxy has ended.
    End(Time),
}

/// A connection, or a question about a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flow {
    /// The hashes of its packets up and down.
    pub hashes: [u32; 2],
    /// Whether it is a question.
    pub is_question: bool,
    /// The destination as the program has given it, with its port.
    pub name: String,
    /// Whether its packets have headers of IPv6.
    pub is_v6: bool,
}

/// A segment of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// The number of its packet.
    pub packet: u64,
    /// The hash of its packet.
    pub hash: u32,
    /// The instant.
    pub at: Time,
    /// Its direction.
    pub direction: Direction,
    /// The segment.
    pub segment: Segment,
}

/// A packet that was put into the first queue of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// The instant.
    pub at: Time,
    /// The direction.
    pub direction: Direction,
    /// Length of the IP packet.
    pub len: u32,
    /// ECN codepoint.
    pub ecn: Ecn,
    /// Flow hash.
    pub hash: u32,
    /// Hashes of both hosts.
    pub hosts: [u32; 2],
}

/// A packet that left the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    /// The instant at which it was due.
    pub due: Time,
    /// The direction.
    pub direction: Direction,
    /// Length of the IP packet.
    pub len: u32,
    /// How late it left.
    pub late: Span,
}

/// The state of one end of a connection.
#[derive(Clone, Copy, Debug)]
pub struct EndState {
    /// The instant.
    pub at: Time,
    /// The hash of the packets that the end sends.
    pub hash: u32,
    /// The direction of these packets.
    pub direction: Direction,
    /// The variables of the end as a sender.
    pub sender: Snapshot,
    /// Segments that it has retransmitted.
    pub retransmits: u64,
    /// Payload bytes that it has sent, without retransmissions.
    pub sent: u64,
    /// Payload bytes that it has received in order.
    pub received: u64,
}

/// Receives the observations of a proxy.
#[derive(Clone, Debug)]
pub struct Observations {
    /// The receiver.
    pub sender: Sender<Observation>,
    /// The interval between samples.
    pub interval: Span,
}

/// The observer of a network.
pub struct Watch {
    to: Observations,
    /// The time of the next sample.
    pub sample_at: Time,
    /// The rows of the links towards the near and towards the far end.
    rows: [Vec<LinkRows>; 2],
    numbers: Numbers,
    /// The number of packets sent, which is the number of the next packet.
    sent: u64,
    segments: Vec<Sent>,
    arrivals: Vec<Arrival>,
    releases: Vec<Release>,
    ends: Vec<EndState>,
}

impl Watch {
    fn tell(&self, observation: Observation) {
        // If the receiver has given up, its error is reported elsewhere.
        let _ = self.to.sender.send(observation);
    }

    /// Records a packet that is about to be enqueued at a link.
    pub fn enters(&mut self, to: Side, hop: usize, packet: &Packet) {
        let number = self.numbers.of(packet.slot);
        let rows = &mut self.rows[to.index()][hop];
        rows.0.arrive(packet, packet.flow, number);
    }

    /// Records a packet that an end sends.
    pub fn sends(&mut self, to: Side, packet: &Packet, load: &Load) {
        let (number, direction) = (self.sent, direction(to));
        self.sent += 1;
        self.numbers.set(packet.slot, number);
        if let Load::Segment(segment) = load {
            self.segments.push(Sent {
                packet: number,
                hash: packet.flow,
                at: packet.arrival,
                direction,
                segment: *segment,
            });
        }
        self.arrivals.push(Arrival {
            at: packet.arrival,
            direction,
            len: packet.len,
            ecn: packet.ecn,
            hash: packet.flow,
            hosts: [packet.src, packet.dst],
        });
    }

    /// Records a packet that has left the link.
    pub fn releases(&mut self, to: Side, due: Time, len: u32, now: Time) {
        self.releases.push(Release {
            due,
            direction: direction(to),
            len,
            late: now.since(due),
        });
    }

    /// Returns a sink that records the events of a link, and passes them on to `parcels`.
    pub fn witness<'a>(
        &'a mut self,
        to: Side,
        hop: usize,
        parcels: &'a mut Parcels,
    ) -> Witness<'a, LinkRows> {
        Witness {
            rows: &mut self.rows[to.index()][hop],
            numbers: &mut self.numbers,
            sink: parcels,
        }
    }

    /// Samples the ends of a connection that have sent or received since the last sample.
    pub fn sample(&mut self, pair: &mut Pair, at: Time) {
        for side in Side::BOTH {
            let end = &mut pair.ends[side.index()];
            if !std::mem::take(&mut end.is_fresh) {
                continue;
            }
            let counters = end.endpoint.counters();
            self.ends.push(EndState {
                at,
                hash: pair.flows[side.index()],
                direction: direction(side.other()),
                sender: end.endpoint.snapshot(),
                retransmits: counters.retransmits,
                sent: counters.bytes - counters.bytes_retransmitted,
                received: end.endpoint.received(),
            });
        }
    }

    /// Reports the state of the queues, and everything since the last report.
    fn report(&mut self, ways: &[Vec<DirectedLink>; 2], at: Time, is_end: bool) {
        for (to, ways) in [Side::Near, Side::Far].into_iter().zip(ways) {
            for (place, way) in ways.iter().enumerate() {
                let pipe = pipe(to, place, ways.len());
                let (backlog, state) = way.state();
                self.tell(Observation::Queue {
                    pipe,
                    at,
                    backlog,
                    state,
                });
                let rows = &mut self.rows[to.index()][place];
                let rows: Vec<PacketRecord> = match is_end {
                    true => std::mem::take(&mut rows.0).into_rows().collect(),
                    false => rows.0.take_settled().collect(),
                };
                if !rows.is_empty() {
                    self.tell(Observation::Packets(pipe, rows));
                }
            }
        }
        let since = [
            Observation::Segments(std::mem::take(&mut self.segments)),
            Observation::Arrivals(std::mem::take(&mut self.arrivals)),
            Observation::Releases(std::mem::take(&mut self.releases)),
            Observation::Ends(std::mem::take(&mut self.ends)),
        ];
        for observation in since {
            self.tell(observation);
        }
        if is_end {
            self.tell(Observation::End(at));
        }
    }
}

impl Engine {
    /// Reports observations of the link from now on.
    pub fn observe(&mut self, to: Observations) {
        let rows = |ways: &Vec<DirectedLink>| ways.iter().map(|_| LinkRows::default()).collect();
        let [near, far] = &self.ways;
        self.watch = Some(Box::new(Watch {
            to,
            sample_at: self.clock,
            rows: [rows(near), rows(far)],
            numbers: Numbers::default(),
            sent: 0,
            segments: Vec::new(),
            arrivals: Vec::new(),
            releases: Vec::new(),
            ends: Vec::new(),
        }));
    }

    /// Reports the destination of a connection or of a question.
    pub(super) fn describe(&self, id: Id, name: &str) {
        let Some(watch) = &self.watch else {
            return;
        };
        let pair = self.pair(id);
        watch.tell(Observation::Flow(Flow {
            hashes: pair.map_or([flow_of(id); 2], |pair| pair.flows),
            is_question: pair.is_none(),
            name: name.to_owned(),
            is_v6: pair.is_some_and(|pair| pair.header > 0),
        }));
    }

    /// Takes a sample if one is due.
    pub(super) fn sample_if_due(&mut self) {
        let Some(mut watch) = self.watch.take_if(|watch| watch.sample_at <= self.clock) else {
            return;
        };
        watch.sample_at = self.clock + watch.to.interval;
        for pair in self.pairs.iter_mut().flatten() {
            watch.sample(pair, self.clock);
        }
        watch.report(&self.ways, self.clock, false);
        self.watch = Some(watch);
    }

    /// Reports the rest of the observations, and the end.
    pub fn end_observation(&mut self) {
        if let Some(mut watch) = self.watch.take() {
            for pair in self.pairs.iter_mut().flatten() {
                watch.sample(pair, self.clock);
            }
            watch.report(&self.ways, self.clock, true);
        }
    }

    /// Calls `work` with a link and with the sink that receives its events.
    pub(super) fn with_way<T>(
        &mut self,
        to: Side,
        hop: usize,
        work: impl FnOnce(&mut DirectedLink, &mut dyn Sink) -> T,
    ) -> T {
        let ways = &mut self.ways[to.index()];
        self.parcels.pipe = Some(pipe(to, hop, ways.len()));
        let way = &mut ways[hop];
        match &mut self.watch {
            Some(watch) => work(way, &mut watch.witness(to, hop, &mut self.parcels)),
            None => work(way, &mut self.parcels),
        }
    }
}

/// Returns the pipe at `place` of the `links` links that packets to an end pass.
const fn pipe(to: Side, place: usize, links: usize) -> PipeId {
    let hop = match to {
        Side::Far => place,
        Side::Near => links - 1 - place,
    };
    PipeId::new(direction(to), hop)
}

/// Returns the direction of the packets that go to an end.
const fn direction(to: Side) -> Direction {
    match to {
        Side::Near => Direction::Down,
        Side::Far => Direction::Up,
    }
}
