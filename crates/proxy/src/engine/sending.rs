//! Sends packets: the segments of the endpoints, resets and refusals.

use sluice_core::{Packet, Span, Time};
use sluice_tcp::{Flags, Segment, State};

use super::parcels::{Load, Parcel};
use super::{Engine, Id, Refusal, Side, Stage};

impl Engine {
    /// Sends what an end has to send, and sets its timer.
    pub(super) fn transmit(&mut self, id: Id, side: Side) {
        let now = self.clock;
        loop {
            let Some(pair) = self.pair_mut(id) else {
                return;
            };
            let end = &mut pair.ends[side.index()];
            if !matches!(end.stage, Stage::Opening | Stage::Open) {
                return;
            }
            let Some(segment) = end.endpoint.poll_transmit(now) else {
                break;
            };
            end.is_fresh = true;
            let (header, flow, host) = (pair.header, pair.flows[side.index()], pair.host);
            let parcel = Parcel {
                id,
                to: side.other(),
                load: Load::Segment(segment),
                is_damaged: false,
            };
            self.launch(parcel, segment.ip_len() + header, flow, host);
        }
        let Some(pair) = self.pair_mut(id) else {
            return;
        };
        let end = &mut pair.ends[side.index()];
        let stage = match end.endpoint.state() {
            State::Established => Stage::Open,
            State::Failed | State::Aborted => Stage::Reset,
            _ => Stage::Opening,
        };
        let has_changed = end.stage != stage;
        end.stage = stage;
        let due = match stage {
            Stage::Reset => Time::MAX,
            _ => end.endpoint.next_timeout(),
        };
        // A timer that is due already has just been handled.
        let timer = (due != Time::MAX).then(|| due.max(now + Span::from_ns(1)));
        let before = std::mem::replace(&mut end.timer, timer);
        if before != timer {
            if let Some(at) = before {
                self.timers.remove(&(at, id.index, side));
            }
            if let Some(at) = timer {
                self.timers.insert((at, id.index, side));
            }
        }
        if has_changed {
            self.note_change(id);
        }
    }

    /// Stops the timer of an end.
    pub(super) fn stop_timer(&mut self, id: Id, side: Side) {
        if let Some(pair) = self.pair_mut(id)
            && let Some(at) = pair.ends[side.index()].timer.take()
        {
            self.timers.remove(&(at, id.index, side));
        }
    }

    /// Sends a reset.
    pub(super) fn send_reset(&mut self, id: Id, side: Side) {
        let segment = Segment {
            flags: Flags::RST.with(Flags::ACK),
            ts: self.clock,
            ..Segment::default()
        };
        self.answer(id, side, Load::Segment(segment), RESET_LEN);
    }

    /// Sends the answer to a refused connection.
    pub(super) fn send_refusal(&mut self, id: Id, refusal: Refusal) {
        let len = match refusal {
            Refusal::Closed => RESET_LEN,
            Refusal::Silence => return,
            _ => UNREACHABLE_LEN,
        };
        self.answer(id, Side::Far, Load::Refusal(refusal), len);
    }

    /// Sends a packet that belongs to a connection but not to its endpoints.
    fn answer(&mut self, id: Id, side: Side, load: Load, len: u32) {
        let Some(pair) = self.pair(id) else {
            return;
        };
        let (header, flow, host) = (pair.header, pair.flows[side.index()], pair.host);
        let parcel = Parcel {
            id,
            to: side.other(),
            load,
            is_damaged: false,
        };
        self.launch(parcel, len + header, flow, host);
    }

    /// Sends a packet of `len` bytes.
    pub(super) fn launch(&mut self, parcel: Parcel, len: u32, flow: u32, host: u32) {
        let slot = self.parcels.put(parcel);
        let mut packet = Packet::new(slot, len);
        packet.arrival = self.clock;
        packet.flow = flow;
        (packet.src, packet.dst) = match parcel.to {
            Side::Far => (PROGRAM, host),
            Side::Near => (host, PROGRAM),
        };
        if let Load::Segment(segment) = &parcel.load {
            packet.ecn = segment.ecn;
        }
        if let Some(watch) = &mut self.watch {
            watch.sends(parcel.to, &packet, &parcel.load);
        }
        if parcel.to == Side::Far {
            self.tap(&packet);
        }
        self.enqueue(parcel.to, 0, packet);
    }

    /// Puts a packet into the queue of a link.
    pub(super) fn enqueue(&mut self, to: Side, hop: usize, packet: Packet) {
        let clock = self.clock;
        if let Some(watch) = &mut self.watch {
            watch.enters(to, hop, &packet);
        }
        self.with_way(to, hop, |way, sink| way.enqueue(packet, clock, sink));
    }
}

/// An IPv4 header and a TCP header without options.
const RESET_LEN: u32 = 40;
/// The length of an ICMP error: the IPv4 and ICMP headers, and the packet that caused the error
/// (RFC 1812 section 4.3.2.3), a SYN of 60 bytes.
const UNREACHABLE_LEN: u32 = 20 + 8 + 60;
/// The program's host, for queues that are fair to hosts.
const PROGRAM: u32 = 1;
