//! The movement of a packet from a host through links and routers to the other host.

use super::{FlowState, Leaving, Network, kind};
use crate::ids::LinkId;
use crate::observe::{Content, Observer, Sent};
use crate::packets::{DatagramBody, NOT_STARTED, NOT_TCP, Packets, Tag, Transit};
use crate::stage::{Engine, Stage};
use sluice_core::link::Departure;
use sluice_core::traffic::exponential;
use sluice_core::{Cx, DropReason, Ecn, Event, Packet, Sink, Span, Time, Wake};
use sluice_ipfw::headers::ICMP;
use sluice_ipfw::{Direction, Disposition, Headers, InterfaceId};
use sluice_tcp::{Flags, Segment, expand};

impl Network {
    /// Sends a segment to the first link of its path.
    #[inline(always)]
    pub(crate) fn send_segment(
        &mut self,
        mut tag: Tag,
        segment: &Segment,
        observer: &mut impl Observer,
    ) {
        tag.len = segment.ip_len() + self.frame_overhead;
        tag.ecn = segment.ecn;
        let slot = self.packets.put_segment(tag, segment);
        self.dispatch(slot, observer);
    }

    /// Sends a datagram of `ip_len` bytes to the first link of its path.
    pub(crate) fn send_datagram(
        &mut self,
        flow: u32,
        to_server: bool,
        ip_len: u32,
        ecn: Ecn,
        datagram: DatagramBody,
        observer: &mut impl Observer,
    ) {
        self.flows[flow as usize].totals.packets_sent += 1;
        let tag = Tag {
            flow,
            path: self.path_of[flow as usize],
            hash: self.hash_of(flow, 0, to_server),
            len: ip_len + self.frame_overhead,
            remaining: 0,
            connection: NOT_TCP,
            generation: 0,
            serial: 0,
            to_server,
            ecn,
        };
        let slot = self.packets.put_datagram(tag, datagram);
        self.dispatch(slot, observer);
    }

    /// Returns a hash that replaces the hash of a real packet's 5-tuple.
    pub(crate) fn hash_of(&self, flow: u32, connection: u32, to_server: bool) -> u32 {
        let tuple = u64::from(flow) << 33 | u64::from(connection) << 1 | u64::from(to_server);
        mix(tuple.wrapping_add(self.hash_key)) as u32
    }

    /// Passes a packet to its next link or router, or to the receiving host.
    pub(crate) fn dispatch(&mut self, slot: u32, observer: &mut impl Observer) {
        let tag = *self.packets.tag(slot);
        let path = &self.paths[tag.path as usize];
        let links = &path.links[usize::from(tag.to_server)];
        let transit = self.packets.transit_mut(slot);
        let is_new = transit.links_left == NOT_STARTED;
        if is_new {
            transit.links_left = links.len() as u8;
        }
        let Transit {
            links_left, ecn, ..
        } = *transit;
        let Some(&link) = links.get(links.len() - usize::from(links_left)) else {
            self.arrive(slot, self.now);
            return;
        };
        let mut packet = Packet::new(slot, tag.len);
        packet.arrival = self.now;
        packet.flow = tag.hash;
        let (client, server) = path.hosts;
        (packet.src, packet.dst) = if tag.to_server {
            (client, server)
        } else {
            (server, client)
        };
        packet.class = path.class;
        packet.tag = tag.remaining;
        packet.ecn = ecn;
        packet.dscp = path.dscp;
        if observer.hears_packets() {
            if is_new && observer.hears_hosts() {
                let sent = self.sent(slot, &tag);
                observer.on_send(self.now, slot, tag.flow as usize, &sent);
            }
            observer.on_arrive(link, self.now, &packet, tag.flow as usize);
        }
        if self.stages[link].is_router() {
            self.pass_rules(link, packet, Direction::In, observer);
            return;
        }
        self.with_stage(link, observer, |stage, cx| {
            if let Engine::Link(link) = &mut stage.engine {
                link.enqueue(packet, cx);
            }
        });
    }

    /// Returns the packet that a host has put into `slot`.
    fn sent(&self, slot: u32, tag: &Tag) -> Sent {
        let content = if tag.connection == NOT_TCP {
            Content::Datagram {
                sequence: self.packets.datagram(slot).sequence,
            }
        } else {
            Content::Segment {
                connection: tag.serial,
                segment: self.packets.segment(slot),
            }
        };
        Sent {
            is_from_client: tag.to_server,
            content,
        }
    }

    /// Passes a packet through a router's rules, starting with one of the two passes.
    fn pass_rules(
        &mut self,
        link: LinkId,
        packet: Packet,
        direction: Direction,
        observer: &mut impl Observer,
    ) {
        let slot = packet.slot;
        let mut held = Some(packet);
        let passes: &[Direction] = match direction {
            Direction::In => &[Direction::In, Direction::Out],
            Direction::Out => &[Direction::Out],
        };
        for &direction in passes {
            let Some(packet) = held.take() else { return };
            let tag = *self.packets.tag(slot);
            let flow = &self.flows[tag.flow as usize];
            let ip_len = tag.len - self.frame_overhead;
            let segment = self.packets.segment(slot);
            let headers = headers(&tag, &segment, flow, &packet, ip_len, direction);
            let mut is_taken = false;
            held = self.with_stage(link, observer, |stage, cx| match &mut stage.engine {
                Engine::Router(firewall) => match firewall.handle(packet, &headers, cx) {
                    Disposition::Pass(packet) => Some(packet),
                    Disposition::Taken => {
                        is_taken = true;
                        None
                    }
                    Disposition::Dropped(_) => None,
                },
                Engine::Link(_) => None,
            });
            if is_taken {
                self.flows[tag.flow as usize].is_shaped = true;
            }
        }
        if let Some(packet) = held {
            self.leave(link, Leaving::of(&packet), self.now);
        }
    }

    /// A link has sent a packet, or an algorithm's timer is due.
    pub(crate) fn serve(&mut self, link: LinkId, observer: &mut impl Observer) {
        let mut departures = std::mem::take(&mut self.departures);
        let mut arrivals = std::mem::take(&mut self.arrivals);
        let next = self.with_stage(link, observer, |stage, cx| match &mut stage.engine {
            Engine::Link(link) => {
                while let Some(Departure { packet, due }) = link.poll(cx) {
                    arrivals.push((Leaving::of(&packet), due));
                }
                link.on_wire().map(|packet| packet.slot)
            }
            Engine::Router(firewall) => {
                while let Some(departure) = firewall.poll(cx) {
                    departures.push((departure.packet, departure.due, departure.direction));
                }
                None
            }
        });
        if let Some(slot) = next {
            self.prefetch_departure(link, slot);
        }
        for (packet, due) in arrivals.drain(..) {
            self.leave(link, packet, due);
        }
        self.arrivals = arrivals;
        for (packet, due, direction) in departures.drain(..) {
            match direction {
                Direction::In => self.pass_rules(link, packet, Direction::Out, observer),
                Direction::Out => self.leave(link, Leaving::of(&packet), due),
            }
        }
        self.departures = departures;
    }

    /// A packet leaves a link at `due` for the next one, or for the receiving host.
    fn leave(&mut self, link: LinkId, packet: Leaving, due: Time) {
        let stage = &mut self.stages[link];
        stage.sent_bytes += u64::from(packet.len);
        let mut at = due;
        if stage.delay > Span::ZERO {
            at = due.saturating_add(stage.delay).max(stage.delivered_at);
            stage.delivered_at = at;
        }
        let slot = packet.slot;
        let transit = self.packets.transit_mut(slot);
        transit.ecn = packet.ecn;
        transit.links_left -= 1;
        if transit.links_left > 0 {
            self.schedule(at, kind::FORWARD, slot);
        } else {
            self.arrive(slot, at);
        }
    }

    /// Schedules the arrival at its host of a packet that leaves its last link at `at`.
    fn arrive(&mut self, slot: u32, at: Time) {
        let transit = self.packets.transit(slot);
        let (flow, side) = (transit.flow as usize, usize::from(transit.to_server));
        let mut at = at;
        if let Some(delays) = self.access_delays.get(flow) {
            at = at.saturating_add(delays[side]);
        }
        let (stalled, mean) = self.stalls;
        if self.jitter > Span::ZERO || stalled > 0 {
            at += Span::from_ns(self.jitter_rng.below(self.jitter.as_ns() + 1));
            // If there are no stalls, no random number may be drawn for them.
            if stalled > 0 && self.jitter_rng.chance(stalled) {
                at += exponential(&mut self.jitter_rng, mean);
            }
            let ready_at = &mut self.ready_at[flow][side];
            at = at.max(*ready_at);
            *ready_at = at;
        }
        self.schedule(at, kind::DELIVER, slot);
    }

    /// Counts a packet that has arrived for no open connection.
    pub(crate) fn count_arrival(&mut self, tag: &Tag) {
        let totals = &mut self.flows[tag.flow as usize].totals;
        totals.packets_received += 1;
        totals.packets_marked += u64::from(tag.ecn == Ecn::Ce);
    }

    /// Calls `act` with a link or router, its randomness and its sink. Then updates the instant of
    /// its next poll.
    pub(crate) fn with_stage<R>(
        &mut self,
        link: LinkId,
        observer: &mut impl Observer,
        act: impl FnOnce(&mut Stage, &mut Cx<'_>) -> R,
    ) -> R {
        let stage = &mut self.stages[link];
        let mut sink = LinkSink {
            link,
            packets: &mut self.packets,
            flows: &mut self.flows,
            drops: &mut self.drops,
            observer,
        };
        let mut cx = Cx::new(self.now, &mut self.draws[link], &mut sink);
        let result = act(stage, &mut cx);
        self.wakes[link] = match stage.next_wake() {
            Wake::Now => self.now,
            Wake::At(at) => at.max(self.now),
            Wake::OnEnqueue => Time::MAX,
        };
        result
    }
}

impl Leaving {
    fn of(packet: &Packet) -> Self {
        Leaving {
            slot: packet.slot,
            len: packet.len,
            ecn: packet.ecn,
        }
    }
}

/// The headers of a packet, as a router sees them.
fn headers(
    tag: &Tag,
    segment: &Segment,
    flow: &FlowState,
    packet: &Packet,
    ip_len: u32,
    direction: Direction,
) -> Headers {
    let (client, server) = flow.addresses;
    let (src, dst) = if tag.to_server {
        (client, server)
    } else {
        (server, client)
    };
    let is_inward = tag.to_server ^ flow.is_reversed;
    let from = InterfaceId(u16::from(!is_inward));
    let to = InterfaceId(u16::from(is_inward));
    let mut headers = Headers::new(direction, flow.protocol, src, dst);
    headers.recv = Some(from);
    headers.xmit = (direction == Direction::Out).then_some(to);
    if flow.protocol == ICMP {
        // RFC 792: 8 is a request, 0 a reply.
        headers.icmp_type = Some(if tag.to_server { 8 } else { 0 });
    } else {
        let ports = (flow.client_port(tag.serial), flow.server_port);
        (headers.src_port, headers.dst_port) = if tag.to_server {
            ports
        } else {
            (ports.1, ports.0)
        };
    }
    if tag.connection != NOT_TCP {
        headers.tcp_flags = segment.flags.bits() as u8;
    }
    headers.tos = packet.dscp << 2 | packet.ecn as u8;
    headers.ip_len = ip_len;
    headers
}

impl FlowState {
    /// Returns the client's port of a connection. Dynamic ports (RFC 6335 section 6) count up from the
    /// flow's first one and wrap.
    const fn client_port(&self, serial: u16) -> u16 {
        FIRST_DYNAMIC + (self.first_port + serial % DYNAMIC) % DYNAMIC
    }

    /// Returns the first port of flow `id` of `flows`, counted from the first dynamic port: the ports
    /// are shared out evenly.
    pub(crate) const fn first_port(id: usize, flows: usize) -> u16 {
        let stride = if flows < DYNAMIC as usize {
            DYNAMIC as usize / flows
        } else {
            1
        };
        (id * stride % DYNAMIC as usize) as u16
    }
}

/// The first port of clients, and the number of their ports.
const FIRST_DYNAMIC: u16 = 49_152;
const DYNAMIC: u16 = 16_384;

/// The finaliser of SplitMix64.
pub(crate) const fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Receives dropped packets, forwards events, and answers questions about the contents of packets.
struct LinkSink<'a, O> {
    link: LinkId,
    packets: &'a mut Packets,
    flows: &'a mut [FlowState],
    drops: &'a mut [u64],
    observer: &'a mut O,
}

impl<O: Observer> Sink for LinkSink<'_, O> {
    fn discard(&mut self, now: Time, packet: Packet, reason: DropReason) {
        let flow = self.packets.free(packet.slot).flow as usize;
        self.drops[flow] += 1;
        self.observer.on_drop(self.link, now, &packet, flow, reason);
    }

    fn copy(&mut self, _now: Time, packet: &Packet) -> Option<u32> {
        let flow = self.packets.transit(packet.slot).flow as usize;
        self.flows[flow].totals.packets_duplicated += 1;
        let copy = self.packets.copy(packet.slot);
        self.observer.on_copy(packet.slot, copy);
        Some(copy)
    }

    fn corrupt(&mut self, _now: Time, packet: &Packet, _bit: u64) {
        self.packets.transit_mut(packet.slot).is_corrupt = true;
    }

    fn is_pure_ack(&self, packet: &Packet) -> bool {
        let only = Flags::ACK.with(Flags::ECE).with(Flags::CWR);
        let segment = self.packets.segment(packet.slot);
        self.packets.tag(packet.slot).connection != NOT_TCP
            && segment.len == 0
            && segment.flags.has(Flags::ACK)
            && only.has(segment.flags)
    }

    fn supersedes(&self, newer: &Packet, older: &Packet) -> bool {
        let (a, b) = (self.packets.tag(newer.slot), self.packets.tag(older.slot));
        let is_same = a.connection == b.connection
            && a.generation == b.generation
            && a.to_server == b.to_server
            && a.connection != NOT_TCP;
        is_same
            && tells_more(
                &self.packets.segment(newer.slot),
                &self.packets.segment(older.slot),
            )
    }

    fn pipe_name(&self) -> Option<String> {
        self.observer.link_name(self.link)
    }

    fn packet_number(&self, packet: &Packet) -> Option<u64> {
        self.observer.packet_number(packet.slot)
    }

    fn is_listening(&self) -> bool {
        self.observer.hears_packets()
    }

    fn on_event(&mut self, now: Time, event: &Event<'_>) {
        self.observer.on_event(self.link, now, event);
    }
}

/// Whether `newer` carries all information of the pure ACK `older`, and more.
fn tells_more(newer: &Segment, older: &Segment) -> bool {
    let echo = Flags::ECE.with(Flags::CWR).with(Flags::AE).bits();
    if (newer.flags.bits() ^ older.flags.bits()) & echo != 0 {
        return false;
    }
    let base = 1 << 40 | u64::from(older.ack);
    let ack = expand(newer.ack, base);
    let covers = |start: u64, end: u64| {
        end <= ack
            || newer
                .sacks()
                .iter()
                .any(|block| expand(block.start, base) <= start && end <= expand(block.end, base))
    };
    let keeps_sacks = older
        .sacks()
        .iter()
        .all(|block| covers(expand(block.start, base), expand(block.end, base)));
    let is_equal = ack == base && newer.sacks() == older.sacks();
    ack >= base
        && newer.ts >= older.ts
        && newer.ts_echo >= older.ts_echo
        && keeps_sacks
        && !is_equal
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_tcp::SackBlock;

    fn ack(number: u32, sacks: &[(u32, u32)]) -> Segment {
        let mut segment = Segment {
            ack: number,
            flags: Flags::ACK,
            ..Segment::default()
        };
        for (slot, (start, end)) in segment.sack.iter_mut().zip(sacks) {
            *slot = SackBlock {
                start: *start,
                end: *end,
            };
        }
        segment.sack_count = sacks.len() as u8;
        segment
    }

    #[test]
    fn only_an_ack_that_says_everything_and_more_replaces_another() {
        assert!(tells_more(&ack(2000, &[]), &ack(1000, &[])));
        assert!(!tells_more(&ack(1000, &[]), &ack(1000, &[])), "a duplicate");
        assert!(
            !tells_more(&ack(1000, &[]), &ack(2000, &[])),
            "an older one"
        );
        // The block is below the new number, covered by a longer block, or missing.
        let older = ack(1000, &[(3000, 4000)]);
        assert!(tells_more(&ack(5000, &[]), &older));
        assert!(tells_more(&ack(1000, &[(3000, 5000)]), &older));
        assert!(!tells_more(&ack(2000, &[]), &older));
        let mut marked = ack(2000, &[]);
        marked.flags = Flags::ACK.with(Flags::ECE);
        assert!(!tells_more(&marked, &ack(1000, &[])), "another echo");
        // Across the end of the sequence space
        assert!(tells_more(&ack(500, &[]), &ack(u32::MAX - 500, &[])));
    }
}
