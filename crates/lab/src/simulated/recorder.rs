//! Writes the observations of a simulation into a recording.

use std::collections::BTreeMap;

use sluice_core::record::rows::{Numbers, PacketRows, copy};
use sluice_core::{DropReason, Event, Packet, Span, Time};
use sluice_sim::{
    Completion, Content, Datagram, Echo, FlowId, LinkId, LinkSample, Observer, Sent, TcpSample,
};

use super::network::pipe_of;
use super::{shown, since_lead};
use crate::flow::{self, Rows, Seen, SentPackets, SimulatedRecord};
use crate::packet_rows::RuleRows;
use crate::segments::tcp_header;
use sluice_recording::headers::HeaderCoder;
use sluice_recording::{Header, NO_FLOW, PacketRow, QueueSample, RecordError, RunWriter};
use sluice_scenario::{Direction, FlowInstance, FlowKind, PipeId, Protocol, Scenario};

/// Writes the observations of a simulation; after the first failure it writes nothing.
pub(super) struct Recorder<'a> {
    writer: &'a mut RunWriter,
    failed: Option<RecordError>,
    stages: Vec<Stage>,
    flows: Vec<FlowTrack<'a>>,
    /// The number of packets that hosts have sent, which is the number of the next packet.
    sent: u64,
    numbers: Numbers,
    headers: HeaderCoder,
    /// Whether the table of packets is recorded.
    keeps_packets: bool,
    interval: Span,
    /// The difference between an instant of the simulation and the instant of the run.
    lead: Span,
}

/// The state of a link or of a router with rules.
enum Stage {
    Link {
        pipe: PipeId,
        rows: PacketRows,
        /// The flow numbers by flow hash, for duplicates that the link creates; empty if it creates
        /// none.
        flows: Option<BTreeMap<u32, u32>>,
    },
    Router(Box<RuleRows>),
}

/// The state of a flow.
struct FlowTrack<'a> {
    instance: FlowInstance<'a>,
    /// The side of its client.
    client: Direction,
    /// The hash of its client's address, from its first packet.
    client_hash: Option<u32>,
    record: Box<dyn SimulatedRecord>,
    /// Whether its datagrams are ICMP echo messages.
    is_echo: bool,
}

impl Stage {
    /// Adds a row for a packet in an event that has none yet: a duplicate.
    #[inline]
    fn find_copy(&mut self, now: Time, packet: &Packet, numbers: &Numbers) {
        if let Stage::Link {
            rows,
            flows: Some(flows),
            ..
        } = self
            && !rows.has_row(packet)
        {
            let mut row = copy(packet);
            row.arrival = now;
            let flow = flows.get(&packet.flow).copied().unwrap_or(NO_FLOW);
            rows.arrive(&row, flow, numbers.of(packet.slot));
        }
    }

    /// Writes the rows that are settled; at the end all rows.
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
    pub(super) fn new(scenario: &'a Scenario, writer: &'a mut RunWriter) -> Self {
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
        let interval = scenario.measure.interval;
        let track = |instance: FlowInstance<'a>| {
            let flow = flow::of(&instance.flow.kind);
            FlowTrack {
                client: flow.client(instance.flow.direction),
                client_hash: None,
                record: flow.record(&instance),
                is_echo: matches!(&instance.flow.kind, FlowKind::Ping(ping) if ping.protocol == Protocol::Icmp),
                instance,
            }
        };
        Recorder {
            keeps_packets: writer.keeps::<PacketRow>(),
            writer,
            failed: None,
            stages,
            flows: scenario.instances().map(track).collect(),
            sent: 0,
            numbers: Numbers::default(),
            headers: HeaderCoder::new(),
            interval,
            lead: scenario.lead,
        }
    }

    /// Converts an instant of the simulation to one of the run.
    fn at(&self, instant: Time) -> Time {
        since_lead(instant, self.lead)
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

    /// Writes the packets that have left a queue.
    pub(super) fn flush(&mut self) {
        let mut stages = std::mem::take(&mut self.stages);
        self.write(|writer| {
            let mut all = stages.iter_mut();
            all.try_for_each(|stage| stage.write(writer, false))
        });
        self.stages = stages;
    }

    /// Writes the remaining rows when the simulation has ended at `now`; `sent` returns the number
    /// of packets that each flow has sent.
    pub(super) fn finish<'b>(
        mut self,
        now: Time,
        sent: impl Fn(FlowId) -> SentPackets<'b>,
    ) -> Result<(), RecordError> {
        self.flush();
        for stage in &mut self.stages {
            stage.write(self.writer, true)?;
        }
        for (id, flow) in self.flows.iter_mut().enumerate() {
            let mut rows = Rows::new(self.writer, &flow.instance, self.interval);
            flow.record.finish(now, sent(id), &mut rows)?;
        }
        self.failed.map_or(Ok(()), Err)
    }

    fn see(&mut self, flow: FlowId, seen: Seen<'_>) {
        if self.failed.is_some() {
            return;
        }
        let FlowTrack {
            instance, record, ..
        } = &mut self.flows[flow];
        let mut rows = Rows::new(self.writer, instance, self.interval);
        self.failed = record.observe(seen, &mut rows).err();
    }
}

impl Observer for Recorder<'_> {
    fn hears_packets(&self) -> bool {
        true
    }

    fn hears_hosts(&self) -> bool {
        self.keeps_packets
    }

    fn link_name(&self, link: LinkId) -> Option<String> {
        match self.stages.get(link)? {
            Stage::Link { pipe, .. } => Some(pipe.word().to_owned()),
            // A router names its pipes itself.
            Stage::Router(_) => None,
        }
    }

    fn packet_number(&self, slot: u32) -> Option<u64> {
        self.numbers.of(slot)
    }

    fn on_send(&mut self, now: Time, slot: u32, flow: FlowId, sent: &Sent) {
        let packet = self.sent;
        self.sent += 1;
        self.numbers.set(slot, packet);
        if !self.writer.keeps::<Header>() {
            return;
        }
        let (number, is_from_client) = (flow as u32, sent.is_from_client);
        let row = match &sent.content {
            Content::Segment {
                connection,
                segment,
            } => {
                let tcp = tcp_header(segment, u32::from(*connection), |at| self.at(at), now);
                self.headers.encode(packet, number, is_from_client, &tcp)
            }
            Content::Datagram { sequence } if self.flows[flow].is_echo => Header {
                probe: Some(*sequence),
                ..Header::empty(packet, number, is_from_client)
            },
            // A UDP header contains nothing beyond the properties of the flow.
            Content::Datagram { .. } => return,
        };
        self.write(|writer| writer.header(row));
    }

    fn on_copy(&mut self, slot: u32, copy: u32) {
        self.numbers.copy(slot, copy);
    }

    fn on_arrive(&mut self, link: LinkId, now: Time, packet: &Packet, flow: FlowId) {
        let now = self.at(now);
        let number = flow as u32;
        match &mut self.stages[link] {
            Stage::Link { rows, flows, .. } => {
                if let Some(flows) = flows {
                    flows.insert(packet.flow, number);
                }
                rows.arrive_at(now, packet, number, self.numbers.of(packet.slot));
            }
            Stage::Router(rows) => {
                let track = &mut self.flows[flow];
                let mut row = copy(packet);
                row.arrival = now;
                row.src = packet.src;
                let packet = &row;
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
        if !self.keeps_packets {
            // Then the order of the packets of different links is of no importance, and a row is
            // written while it is in the cache.
            let (stage, writer) = (&mut self.stages[link], &mut *self.writer);
            if self.failed.is_none() {
                self.failed = stage.write(writer, false).err();
            }
        }
    }

    fn on_event(&mut self, link: LinkId, now: Time, event: &Event<'_>) {
        let now = self.at(now);
        let stage = &mut self.stages[link];
        if let Event::Enqueue { packet } | Event::Mark { packet } = event {
            stage.find_copy(now, packet, &self.numbers);
        }
        match stage {
            Stage::Link { rows, .. } => rows.on_event(now, event),
            Stage::Router(rows) => rows.on_event(now, event, &self.numbers),
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
        let now = self.at(now);
        let stage = &mut self.stages[link];
        stage.find_copy(now, packet, &self.numbers);
        match stage {
            Stage::Link { rows, .. } => rows.discard(now, packet, reason),
            Stage::Router(rows) => rows.discard(now, packet, reason, &self.numbers),
        }
    }

    fn on_tcp(&mut self, flow: FlowId, sample: &TcpSample) {
        let sample = TcpSample {
            time: self.at(sample.time),
            ..*sample
        };
        self.see(flow, Seen::Tcp(&sample));
    }

    fn on_received(&mut self, flow: FlowId, now: Time, bytes: u64) {
        let at = self.at(now);
        self.see(flow, Seen::Received { at, bytes });
    }

    fn on_link(&mut self, link: LinkId, sample: &LinkSample<'_>) {
        if !self.writer.keeps::<QueueSample>() {
            return;
        }
        let (pipe, time, lead) = (pipe_of(link), self.at(sample.time), self.lead);
        let mut rows: Vec<QueueSample> = QueueSample::backlog(time, pipe, sample.backlog).into();
        sample.queue.state(&mut |queue, name, value| {
            let value = shown(value, lead);
            rows.push(QueueSample::state(time, pipe, queue, name, value));
        });
        self.write(|writer| rows.iter().try_for_each(|row| writer.queue_sample(row)));
    }

    fn on_datagram(&mut self, flow: FlowId, arrival: &Datagram) {
        let arrival = Datagram {
            sent: self.at(arrival.sent),
            received: self.at(arrival.received),
            ..*arrival
        };
        self.see(flow, Seen::Datagram(&arrival));
    }

    fn on_echo(&mut self, flow: FlowId, echo: &Echo) {
        let echo = Echo {
            sent: self.at(echo.sent),
            ..*echo
        };
        self.see(flow, Seen::Echo(&echo));
    }

    fn on_complete(&mut self, flow: FlowId, done: &Completion) {
        let done = Completion {
            start: self.at(done.start),
            end: self.at(done.end),
            ..*done
        };
        self.see(flow, Seen::Complete(&done));
    }
}
