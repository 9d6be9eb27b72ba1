//! The interface through which a simulation reports what happens.

use crate::ids::{FlowId, LinkId};
use sluice_core::{Backlog, Discipline, DropReason, Event, Packet, Rate, Span, Time};
use sluice_ipfw::{CommandError, Output};
use sluice_tcp::{Counters, Segment, Snapshot};

/// Called for the events of a simulation. Every method has an empty default; `()` ignores
/// everything.
pub trait Observer {
    /// Whether [`Observer::on_arrive`] and [`Observer::on_event`] do anything. Called for every
    /// packet, so that arguments are only prepared if they are used.
    fn hears_packets(&self) -> bool {
        false
    }

    /// Whether [`Observer::on_send`] does anything, if the observer hears packets at all.
    fn hears_hosts(&self) -> bool {
        true
    }

    /// Returns the name of a link, for messages about the algorithm of its queue.
    fn link_name(&self, link: LinkId) -> Option<String> {
        let _ = link;
        None
    }

    /// Returns the number of the packet in `slot`, for messages about the packet.
    fn packet_number(&self, slot: u32) -> Option<u64> {
        let _ = slot;
        None
    }

    /// A host sends a packet, which arrives at its first link at the same instant. The packet keeps
    /// its slot until it arrives at its host or is dropped.
    fn on_send(&mut self, now: Time, slot: u32, flow: FlowId, sent: &Sent) {
        let _ = (now, slot, flow, sent);
    }

    /// A link has made a copy of the packet in `slot`.
    fn on_copy(&mut self, slot: u32, copy: u32) {
        let _ = (slot, copy);
    }

    /// A packet arrives at a link's queue, before the queue has seen it.
    fn on_arrive(&mut self, link: LinkId, now: Time, packet: &Packet, flow: FlowId) {
        let _ = (link, now, packet, flow);
    }

    /// A link's queue reports a packet or a variable of its algorithm.
    fn on_event(&mut self, link: LinkId, now: Time, event: &Event<'_>) {
        let _ = (link, now, event);
    }

    /// A link's queue dropped a packet.
    fn on_drop(
        &mut self,
        link: LinkId,
        now: Time,
        packet: &Packet,
        flow: FlowId,
        reason: DropReason,
    ) {
        let _ = (link, now, packet, flow, reason);
    }

    /// The variables of a TCP flow, every [`crate::Config::sample_interval`].
    fn on_tcp(&mut self, flow: FlowId, sample: &TcpSample) {
        let _ = (flow, sample);
    }

    /// The payload of a flow that has arrived: of pages, at the interval of [`Observer::on_tcp`] and
    /// when one is complete; and of a flow that stops in the middle of a transfer or a page, whose
    /// connections may be released before the next sample.
    fn on_received(&mut self, flow: FlowId, now: Time, bytes: u64) {
        let _ = (flow, now, bytes);
    }

    /// The state of a link, at the interval of [`Observer::on_tcp`]. Routers have their own `show`.
    fn on_link(&mut self, link: LinkId, sample: &LinkSample<'_>) {
        let _ = (link, sample);
    }

    /// A router has executed one of its later commands.
    fn on_command(&mut self, router: LinkId, now: Time, result: &Result<Output, CommandError>) {
        let _ = (router, now, result);
    }

    /// A datagram arrived.
    fn on_datagram(&mut self, flow: FlowId, arrival: &Datagram) {
        let _ = (flow, arrival);
    }

    /// An echo request came back.
    fn on_echo(&mut self, flow: FlowId, echo: &Echo) {
        let _ = (flow, echo);
    }

    /// A sized transfer or a page is complete.
    fn on_complete(&mut self, flow: FlowId, transfer: &Completion) {
        let _ = (flow, transfer);
    }
}

impl Observer for () {}

/// A packet that a host sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Whether the client of the flow sends it.
    pub is_from_client: bool,
    /// The packet's content.
    pub content: Content,
}

/// The content of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A TCP segment.
    Segment {
        /// Number of the connection within its flow, from 1. It wraps.
        connection: u16,
        /// The segment.
        segment: Segment,
    },
    /// A datagram, an echo request or its reply.
    Datagram {
        /// Its number, from 0.
        sequence: u64,
    },
}

/// State of a TCP flow at one instant.
#[derive(Clone, Copy, Debug)]
pub struct TcpSample {
    /// The instant.
    pub time: Time,
    /// The sending end's variables.
    pub sender: Snapshot,
    /// The counters of the sending end.
    pub counters: Counters,
    /// Payload bytes that have arrived in order.
    pub received: u64,
    /// Segments that the flow has sent again, over all its connections up to now.
    pub retransmits: u64,
}

/// State of a link at one instant.
pub struct LinkSample<'a> {
    /// The instant.
    pub time: Time,
    /// The contents of the queue.
    pub backlog: Backlog,
    /// The queue, for the variables of its algorithm ([`Discipline::state`]).
    pub queue: &'a dyn Discipline,
    /// The current rate.
    pub rate: Rate,
    /// Bytes that it has sent so far.
    pub sent_bytes: u64,
}

/// A datagram that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// Number, from 0.
    pub sequence: u64,
    /// The instant at which it was sent.
    pub sent: Time,
    /// The instant at which it arrived.
    pub received: Time,
    /// Whether it was marked on the way.
    pub is_marked: bool,
}

/// An echo request that came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// Number, from 0.
    pub sequence: u64,
    /// The instant at which the request was sent.
    pub sent: Time,
    /// One-way delay to the server.
    pub forward: Span,
    /// Time until the reply arrived.
    pub round_trip: Span,
}

/// A transfer that is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Number of the page, transfer or exchange within its flow, from 0.
    pub sequence: u64,
    /// The instant of the request.
    pub start: Time,
    /// The instant at which its last byte arrived.
    pub end: Time,
    /// Payload bytes.
    pub bytes: u64,
}

/// A page that is not complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenPage {
    /// Number of the page within its flow, from 0.
    pub sequence: u64,
    /// The instant of the request.
    pub start: Time,
    /// Payload bytes of its objects that have arrived as a whole.
    pub bytes: u64,
}

/// Totals of a flow, up to now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowTotals {
    /// Packets of all kinds that it put on its first link.
    pub packets_sent: u64,
    /// Packets that arrived at either end.
    pub packets_received: u64,
    /// Packets dropped by queues.
    pub packets_dropped: u64,
    /// Packets that arrived marked.
    pub packets_marked: u64,
    /// Copies of its packets that links have made.
    pub packets_duplicated: u64,
    /// Packets that arrived corrupted. The host drops them because of their checksum; they are not
    /// counted as received.
    pub packets_corrupted: u64,
    /// Payload bytes that arrived; for TCP those in order.
    pub bytes_received: u64,
    /// Segments retransmitted.
    pub retransmits: u64,
    /// Transfers or pages completed.
    pub completions: u64,
    /// Connections that failed.
    pub failures: u64,
}
