//! Writes what a simulation tells into a recording.

use std::collections::BTreeMap;

use sluice_core::{DropReason, Event, Packet, Rate, Span, Time};
use sluice_sim::{Completion, Datagram, Echo, FlowId, LinkId, LinkSample, Observer, TcpSample};

use super::network::pipe_of;
use crate::packet_rows::{PacketRows, RuleRows, copy};
use sluice_recording::{
    FlowSample, NO_FLOW, PingSample, QueueSample, RecordError, RunWriter, Transfer,
};
use sluice_scenario::{Direction, FlowKind, Payloads, PipeId, Scenario, Voip};

/// Writes what the simulation tells; after the first failure nothing more.
pub(super) struct Recorder<'a> {
    writer: &'a mut RunWriter,
    failed: Option<RecordError>,
    stages: Vec<Stage>,
    flows: Vec<FlowTrack>,
    interval: Span,
}

/// What is known of a link or of a router with rules.
enum Stage {
    Link {
        pipe: PipeId,
        rows: PacketRows,
        /// Numbers of the flows by their hashes, for copies that the link makes; only kept if it
        /// makes any.
        flows: Option<BTreeMap<u32, u32>>,
    },
    Router(Box<RuleRows>),
}

/// What is known of a flow.
struct FlowTrack {
    direction: Direction,
    /// Where its client is.
    client: Direction,
    /// The hash of its client's address, as its first packet bears it.
    client_hash: Option<u32>,
    start: Time,
    stop: Time,
    kind: Track,
}

enum Track {
    /// Bytes and retransmissions of complete transfers before the present one, and the latter as they
    /// were told last.
    Tcp {
        before: u64,
        sent_again: u64,
        last: u64,
        /// Bytes of the transfer that was completed last, whose connection may still be closing.
        closing: Option<u64>,
    },
    /// Bytes of complete pages.
    Web {
        received: u64,
    },
    Rr,
    Udp {
        payloads: Payloads,
        received: u64,
        received_bytes: u64,
        next_sample: Time,
    },
    Voip {
        arrived: Vec<Datagram>,
    },
    Ping {
        interval: Span,
        echoes: Vec<Echo>,
    },
}

impl Stage {
    /// A queue of a link has taken a packet that may have no row yet: a copy.
    fn find_copy(&mut self, now: Time, packet: &Packet) {
        if let Stage::Link { rows, flows, .. } = self
            && !rows.has_row(packet)
        {
            let flow = flows.as_ref().and_then(|flows| flows.get(&packet.flow));
            let mut row = copy(packet);
            row.arrival = now;
            rows.arrive(&row, flow.copied().unwrap_or(NO_FLOW));
        }
    }

    /// Writes the rows that are settled; at the end all of them.
    fn write(&mut self, writer: &mut RunWriter, is_end: bool) -> Result<(), RecordError> {
        let mut write = |pipe: PipeId, rows: &mut PacketRows| {
            if is_end {
                let mut all = std::mem::take(rows).into_rows();
                return all.try_for_each(|row| writer.packet(pipe, &row));
            }
            let mut settled = rows.take_settled();
            settled.try_for_each(|row| writer.packet(pipe, &row))
        };
        match self {
            Stage::Link { pipe, rows, .. } => write(*pipe, rows),
            Stage::Router(rows) => {
                write(Direction::Up.into(), rows.rows_mut(Direction::Up))?;
                write(Direction::Down.into(), rows.rows_mut(Direction::Down))
            }
        }
    }
}

impl<'a> Recorder<'a> {
    pub(super) fn new(scenario: &Scenario, writer: &'a mut RunWriter) -> Self {
        let links = scenario.pipes().map(|(pipe, link)| {
            let copies = link.params().duplicate.duplicate.as_billionths() > 0;
            Stage::Link {
                pipe,
                rows: PacketRows::default(),
                flows: copies.then(BTreeMap::new),
            }
        });
        let stages = match scenario.rules {
            Some(_) => vec![Stage::Router(Box::default())],
            None => links.collect(),
        };
        let track = |instance: sluice_scenario::FlowInstance<'_>| {
            let direction = instance.flow.direction;
            let other = match direction {
                Direction::Up => Direction::Down,
                Direction::Down => Direction::Up,
            };
            let (client, kind) = match &instance.flow.kind {
                FlowKind::Tcp(_) => (
                    direction,
                    Track::Tcp {
                        before: 0,
                        sent_again: 0,
                        last: 0,
                        closing: None,
                    },
                ),
                FlowKind::Web(_) => (other, Track::Web { received: 0 }),
                FlowKind::Rr(_) => (direction, Track::Rr),
                FlowKind::Voip(_) => (
                    direction,
                    Track::Voip {
                        arrived: Vec::new(),
                    },
                ),
                FlowKind::Udp(_) | FlowKind::Pcap(_) => (
                    direction,
                    Track::Udp {
                        payloads: instance.payloads().expect("it sends datagrams"),
                        received: 0,
                        received_bytes: 0,
                        next_sample: Time::ZERO,
                    },
                ),
                FlowKind::Ping(ping) => (
                    direction,
                    Track::Ping {
                        interval: ping.interval,
                        echoes: Vec::new(),
                    },
                ),
            };
            FlowTrack {
                direction,
                client,
                client_hash: None,
                start: Time::ZERO + instance.start,
                stop: Time::ZERO + instance.stop,
                kind,
            }
        };
        Recorder {
            writer,
            failed: None,
            stages,
            flows: scenario.instances().map(track).collect(),
            interval: scenario.measure.interval,
        }
    }

    pub(super) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    fn write(&mut self, write: impl FnOnce(&mut RunWriter) -> Result<(), RecordError>) {
        if self.failed.is_none()
            && let Err(error) = write(self.writer)
        {
            self.failed = Some(error);
        }
    }

    /// Writes the packets whose way through a queue is over.
    pub(super) fn flush(&mut self) {
        let mut stages = std::mem::take(&mut self.stages);
        self.write(|writer| {
            let mut all = stages.iter_mut();
            all.try_for_each(|stage| stage.write(writer, false))
        });
        self.stages = stages;
    }

    /// Writes what is left when the simulation has ended at `now`; `sent` tells the packets that each
    /// flow has sent.
    pub(super) fn finish(
        mut self,
        now: Time,
        sent: impl Fn(FlowId) -> u64,
    ) -> Result<(), RecordError> {
        self.flush();
        for stage in &mut self.stages {
            stage.write(self.writer, true)?;
        }
        for (id, flow) in self.flows.iter().enumerate() {
            let number = id as u32;
            match &flow.kind {
                Track::Ping { interval, echoes } => {
                    write_pings(self.writer, number, flow, *interval, echoes, now)?;
                }
                Track::Voip { arrived } => {
                    write_call(self.writer, number, flow, arrived, sent(id), now)?;
                }
                Track::Udp {
                    received,
                    received_bytes,
                    ..
                } => self.writer.flow_sample(&FlowSample {
                    sent_packets: Some(sent(id)),
                    received_packets: Some(*received),
                    received_bytes: Some(*received_bytes),
                    ..FlowSample::empty(now, number)
                })?,
                Track::Tcp { .. } | Track::Web { .. } | Track::Rr => {}
            }
        }
        self.failed.map_or(Ok(()), Err)
    }
}

/// A one-way delay in the direction of `flow`, as the columns up and down.
fn one_way(flow: &FlowTrack, delay: Option<Span>) -> (Option<Span>, Option<Span>) {
    match flow.direction {
        Direction::Up => (delay, None),
        Direction::Down => (None, delay),
    }
}

/// One row per probe that was due. One without an echo is lost, unless it may still be under way at
/// the end of the run: of those nothing is known.
fn write_pings(
    writer: &mut RunWriter,
    number: u32,
    flow: &FlowTrack,
    interval: Span,
    echoes: &[Echo],
    now: Time,
) -> Result<(), RecordError> {
    let mut echoes = echoes.to_vec();
    echoes.sort_by_key(|echo| echo.sequence);
    let longest = echoes.iter().map(|echo| echo.round_trip).max();
    let mut echoes = echoes.into_iter().peekable();
    let mut due = flow.start;
    let end = now.min(flow.stop);
    for seq in 0.. {
        if due >= end {
            break;
        }
        let echo = echoes.next_if(|echo| echo.sequence == seq);
        // A link may have made copies of it.
        while echoes.next_if(|echo| echo.sequence == seq).is_some() {}
        let forward = echo.map(|echo| echo.forward);
        let backward = echo.map(|echo| echo.round_trip.saturating_sub(echo.forward));
        let (up, down) = match flow.direction {
            Direction::Up => (forward, backward),
            Direction::Down => (backward, forward),
        };
        if echo.is_some() || is_over(due, longest, now) {
            writer.ping(&PingSample {
                time: echo.map_or(due, |echo| echo.sent),
                flow: number,
                seq,
                rtt: echo.map(|echo| echo.round_trip),
                up,
                down,
                is_lost: echo.is_none(),
            })?;
        }
        due += interval;
    }
    Ok(())
}

/// One row per packet of a call, with its one-way delay; those under way as for probes.
fn write_call(
    writer: &mut RunWriter,
    number: u32,
    flow: &FlowTrack,
    arrived: &[Datagram],
    sent: u64,
    now: Time,
) -> Result<(), RecordError> {
    let mut arrived = arrived.to_vec();
    arrived.sort_by_key(|datagram| datagram.sequence);
    let delay = |datagram: &Datagram| datagram.received.since(datagram.sent);
    let longest = arrived.iter().map(delay).max();
    let mut received = 0;
    let mut arrived = arrived.into_iter().peekable();
    for seq in 0..sent {
        let here = arrived.next_if(|datagram| datagram.sequence == seq);
        while arrived
            .next_if(|datagram| datagram.sequence == seq)
            .is_some()
        {}
        let due = flow.start + Span::from_ns(Voip::INTERVAL.as_ns() * seq);
        received += u64::from(here.is_some());
        if here.is_none() && !is_over(due, longest, now) {
            continue;
        }
        let (up, down) = one_way(flow, here.as_ref().map(delay));
        writer.ping(&PingSample {
            time: here.map_or(due, |datagram| datagram.sent),
            flow: number,
            seq,
            rtt: None,
            up,
            down,
            is_lost: here.is_none(),
        })?;
    }
    writer.flow_sample(&FlowSample {
        received_bytes: Some(received * Voip::SIZE),
        ..FlowSample::empty(now, number)
    })
}

/// Whether a packet sent at `due` would have arrived by `now`, if the slowest took `longest`.
fn is_over(due: Time, longest: Option<Span>, now: Time) -> bool {
    due + longest.unwrap_or(Span::ZERO) < now
}

impl Observer for Recorder<'_> {
    fn hears_packets(&self) -> bool {
        true
    }

    fn on_arrive(&mut self, link: LinkId, _now: Time, packet: &Packet, flow: FlowId) {
        let track = &mut self.flows[flow];
        let number = flow as u32;
        match &mut self.stages[link] {
            Stage::Link { rows, flows, .. } => {
                if let Some(flows) = flows {
                    flows.insert(packet.flow, number);
                }
                rows.arrive(packet, number);
            }
            Stage::Router(rows) => {
                // The first packet of a flow comes from its client.
                let client = *track.client_hash.get_or_insert(packet.src);
                let is_from_client = client == packet.src;
                let goes_up = is_from_client == (track.client == Direction::Up);
                let direction = if goes_up {
                    Direction::Up
                } else {
                    Direction::Down
                };
                rows.arrive(packet, number, direction);
            }
        }
    }

    fn on_event(&mut self, link: LinkId, now: Time, event: &Event<'_>) {
        let stage = &mut self.stages[link];
        if let Event::Enqueue { packet } | Event::Mark { packet } = event {
            stage.find_copy(now, packet);
        }
        match stage {
            Stage::Link { rows, .. } => rows.on_event(now, event),
            Stage::Router(rows) => rows.on_event(now, event),
        }
    }

    fn on_drop(
        &mut self,
        link: LinkId,
        now: Time,
        packet: &Packet,
        _flow: FlowId,
        reason: DropReason,
    ) {
        let stage = &mut self.stages[link];
        stage.find_copy(now, packet);
        match stage {
            Stage::Link { rows, .. } => rows.discard(now, packet, reason),
            Stage::Router(rows) => rows.discard(now, packet, reason),
        }
    }

    fn on_tcp(&mut self, flow: FlowId, sample: &TcpSample) {
        let Track::Tcp {
            before,
            sent_again,
            last,
            closing,
        } = &mut self.flows[flow].kind
        else {
            return;
        };
        // What a closing connection has received is counted in `before` already.
        if *closing == Some(sample.received) {
            return;
        }
        *closing = None;
        *last = *sent_again + sample.counters.retransmits;
        let (before, retransmits) = (*before, *last);
        let sender = &sample.sender;
        let row = FlowSample {
            received_bytes: Some(before + sample.received),
            cwnd: sender.window.cwnd.checked_div(sender.mss),
            // None before the first reduction.
            ssthresh: Some(sender.window.ssthresh)
                .filter(|ssthresh| *ssthresh != u64::MAX)
                .and_then(|ssthresh| ssthresh.checked_div(sender.mss)),
            mss: Some(sender.mss),
            srtt: sender.srtt,
            min_rtt: sender.min_rtt,
            retransmits: Some(retransmits),
            delivery_rate: sender.delivery_rate.map(Rate::as_bps),
            ..FlowSample::empty(sample.time, flow as u32)
        };
        self.write(|writer| writer.flow_sample(&row));
    }

    fn on_link(&mut self, link: LinkId, sample: &LinkSample<'_>) {
        let pipe = pipe_of(link);
        let mut rows: Vec<QueueSample> =
            QueueSample::backlog(sample.time, pipe, sample.backlog).into();
        sample.queue.state(&mut |queue, name, value| {
            rows.push(QueueSample::state(sample.time, pipe, queue, name, value));
        });
        self.write(|writer| rows.iter().try_for_each(|row| writer.queue_sample(row)));
    }

    fn on_datagram(&mut self, flow: FlowId, arrival: &Datagram) {
        let interval = self.interval;
        let (received, received_bytes) = match &mut self.flows[flow].kind {
            Track::Voip { arrived } => {
                arrived.push(*arrival);
                return;
            }
            Track::Udp {
                payloads,
                received,
                received_bytes,
                next_sample,
            } => {
                *received += 1;
                *received_bytes += payloads.of(arrival.sequence);
                if arrival.received < *next_sample {
                    return;
                }
                *next_sample = arrival.received + interval;
                (*received, *received_bytes)
            }
            _ => return,
        };
        let row = FlowSample {
            // All datagrams up to this one had been sent by then, at least.
            sent_packets: Some(arrival.sequence + 1),
            received_packets: Some(received),
            received_bytes: Some(received_bytes),
            ..FlowSample::empty(arrival.received, flow as u32)
        };
        self.write(|writer| writer.flow_sample(&row));
    }

    fn on_echo(&mut self, flow: FlowId, echo: &Echo) {
        if let Track::Ping { echoes, .. } = &mut self.flows[flow].kind {
            echoes.push(*echo);
        }
    }

    fn on_complete(&mut self, flow: FlowId, done: &Completion) {
        let number = flow as u32;
        let took = done.end.since(done.start);
        let received = match &mut self.flows[flow].kind {
            Track::Rr => {
                let row = PingSample {
                    time: done.start,
                    flow: number,
                    seq: done.sequence,
                    rtt: Some(took),
                    up: None,
                    down: None,
                    is_lost: false,
                };
                self.write(|writer| writer.ping(&row));
                return;
            }
            Track::Tcp {
                before: sum,
                sent_again,
                last,
                closing,
            } => {
                *closing = Some(done.bytes);
                *sent_again = *last;
                *sum += done.bytes;
                *sum
            }
            Track::Web { received: sum } => {
                *sum += done.bytes;
                *sum
            }
            Track::Udp { .. } | Track::Voip { .. } | Track::Ping { .. } => return,
        };
        let transfer = Transfer {
            start: done.start,
            flow: number,
            seq: done.sequence,
            took,
            bytes: done.bytes,
        };
        let sample = FlowSample {
            received_bytes: Some(received),
            ..FlowSample::empty(done.end, number)
        };
        self.write(|writer| {
            writer.transfer(&transfer)?;
            writer.flow_sample(&sample)
        });
    }
}
