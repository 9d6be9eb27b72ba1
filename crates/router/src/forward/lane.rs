//! A lane: a set of queues, and the ports that feed them.

use sluice_core::{Cx, Ecn, Packet, Rng, Span, Time};
use sluice_ipfw::Handed;
use sluice_net::port::{Pool, Slot};
use sluice_wire::frame::{
    self, Addresses, FlowHasher, GsoError, Link, SuperPacket, Transport, View,
};

use super::exchange::Errand;
use super::host::Host;
use super::turn::Outbox;
use super::{
    Astray, Exchange, LaneCounts, Lateness, LostFrame, Observer, Origin, PortNumber, Queueing,
};

/// The queues for the packets that arrive at some ports, their observer, and the counts.
pub struct Lane<Q: Queueing, O> {
    queueing: Q,
    observer: O,
    number: usize,
    rng: Rng,
    hasher: FlowHasher,
    link: Link,
    counts: LaneCounts,
    lateness: Lateness,
    /// Packets that another worker admits: slot, port of arrival and worker.
    astray: Vec<(Slot, PortNumber, u32)>,
    /// Scratch space of [`Lane::expect`].
    coming: Vec<Q::Key>,
    /// The latest time that the queues have seen. A packet that arrived earlier counts as arriving
    /// then.
    latest: Time,
}

impl<Q: Queueing, O: Observer> Lane<Q, O> {
    pub(super) fn new(
        queueing: Q,
        observer: O,
        number: usize,
        rng: Rng,
        hasher: FlowHasher,
        link: Link,
    ) -> Self {
        Lane {
            queueing,
            observer,
            number,
            rng,
            hasher,
            link,
            counts: LaneCounts::default(),
            lateness: Lateness::default(),
            astray: Vec::new(),
            coming: Vec::new(),
            latest: Time::ZERO,
        }
    }

    /// Returns the queues.
    pub const fn queueing(&self) -> &Q {
        &self.queueing
    }

    /// Returns the observer.
    pub const fn observer(&self) -> &O {
        &self.observer
    }

    /// Returns the observer mutably, to take its collected data.
    pub const fn observer_mut(&mut self) -> &mut O {
        &mut self.observer
    }

    /// Returns the queues and the observer, which records samples of the queues.
    pub const fn parts(&mut self) -> (&Q, &mut O) {
        (&self.queueing, &mut self.observer)
    }

    /// Returns the counts.
    pub const fn counts(&self) -> &LaneCounts {
        &self.counts
    }

    /// Returns the lateness of the packets that have left.
    pub const fn lateness(&self) -> &Lateness {
        &self.lateness
    }

    pub(super) const fn counts_mut(&mut self) -> &mut LaneCounts {
        &mut self.counts
    }

    pub(super) fn into_parts(self) -> (Q, O, LaneCounts, Lateness) {
        (self.queueing, self.observer, self.counts, self.lateness)
    }

    /// Calls the queues at `now` or at the latest time that they have seen, whichever is later.
    pub(super) fn with<T>(
        &mut self,
        now: Time,
        pool: &mut Pool,
        work: impl FnOnce(&mut Q, &mut Cx<'_>) -> T,
    ) -> T {
        self.latest = self.latest.max(now);
        let mut host = Host {
            pool,
            counts: &mut self.counts,
            observer: &mut self.observer,
            link: self.link,
        };
        let mut cx = Cx::new(self.latest, &mut self.rng, &mut host);
        work(&mut self.queueing, &mut cx)
    }

    /// Announces the frames of a batch, which [`Lane::admit`] will get, if that is worth its cost.
    pub(super) fn expect(&mut self, slots: &[Slot], from: PortNumber, pool: &Pool) {
        if !self.queueing.is_wide() {
            return;
        }
        for slot in slots {
            let head = pool.head(*slot);
            let view = frame::parse_head(head, pool.frame_len(*slot), self.link);
            if view.is_ip() {
                let key = self.queueing.key(origin(from, *slot, pool), &view, head);
                self.coming.push(key);
            }
        }
        self.queueing.expect(&self.coming);
        self.coming.clear();
    }

    /// Keeps a frame that arrived at port `from` for the worker of its flow, if that is another one.
    /// Returns whether it is.
    pub(super) fn is_astray(
        &mut self,
        slot: Slot,
        from: PortNumber,
        arrival: Time,
        pool: &mut Pool,
    ) -> bool {
        let Some((own, astray)) = self.queueing.homes() else {
            return false;
        };
        let view = frame::parse_head(pool.head(slot), pool.frame_len(slot), self.link);
        let home = match view.is_ip() && (astray == Astray::All || is_tunnelled(&view)) {
            true => of_both_directions(&self.hasher, &view) % own.of,
            false => own.number,
        };
        if home == own.number {
            return false;
        }
        pool.set_arrival(slot, arrival);
        self.astray.push((slot, from, home));
        true
    }

    /// Accepts a frame that arrived at port `from`: queues it, split if necessary, or lets it
    /// bypass the queues.
    pub(super) fn admit(
        &mut self,
        slot: Slot,
        from: PortNumber,
        arrival: Time,
        pool: &mut Pool,
        outboxes: &mut [Outbox],
    ) {
        let arrival = arrival.max(self.latest);
        let mut view = frame::parse_head(pool.head(slot), pool.frame_len(slot), self.link);
        if let Some(fault) = view.fault {
            self.counts.note_fault(fault);
        }
        if self.queueing.is_strict() && view.is_evasive() {
            self.counts.lose_at(from, LostFrame::Evasive, 1);
            pool.free(slot);
            return;
        }
        if !view.is_ip() {
            self.bypass(slot, from, &view, arrival, pool, outboxes);
            return;
        }
        trim(slot, &mut view, pool);
        let head = pool.head(slot);
        let key = self.queueing.key(origin(from, slot, pool), &view, head);
        if self.queueing.observes() {
            self.queueing.observe(&key, &view, head, arrival);
        }
        self.queueing.set_free_packets(pool.available() as u64);
        let flow = self.hasher.flow(&view);
        let mut packet = Packet::new(slot.number(), view.ip_len);
        packet.arrival = arrival;
        packet.flow = flow;
        packet.src = self.hasher.source(&view);
        packet.dst = self.hasher.destination(&view);
        // A packet that cannot be marked must be dropped instead.
        let is_cut = pool.is_cut(slot);
        if !is_cut {
            packet.ecn = Ecn::from_bits(view.ecn);
        }
        packet.dscp = view.dscp;
        let vnet = pool.vnet(slot);
        let whole = SuperPacket::new(&view, &vnet).or_else(|error| match error {
            GsoError::Headers => SuperPacket::in_tunnel(&view, &vnet, pool.head(slot)),
            _ => Err(error),
        });
        match whole {
            // The kernel accepts none that is in a tunnel.
            Ok(whole)
                if !is_cut
                    && (whole.is_in_tunnel() || self.queueing.splits(from, &key, arrival)) =>
            {
                self.counts.split += 1;
                self.admit_segments(packet, &whole, &view, &key, pool);
            }
            Ok(whole) => {
                self.counts.whole += 1;
                if !is_cut && let Some(open) = whole.open_checksum(&vnet, pool.head_mut(slot)) {
                    pool.set_vnet(slot, open);
                }
                packet.len = whole.ip_len();
                // At most 65535: the payload is no longer, and every segment has at least one byte.
                packet.segments = whole.segments() as u16;
                self.enqueue(packet, &view, &key, pool);
            }
            Err(GsoError::TinySegments(_)) => {
                self.counts.lose_at(from, LostFrame::TinySegments, 1);
                pool.free(slot);
            }
            Err(error) => {
                let is_open = vnet.needs_checksum() && vnet.csum_start > view.transport_at;
                if error == GsoError::NotSuper && is_open && !is_cut {
                    // Inside a tunnel. A card that is not told of the tunnel may take the outer header for
                    // the one that the checksum belongs to.
                    pool.complete_checksum(slot);
                }
                self.enqueue(packet, &view, &key, pool);
            }
        }
    }

    /// Accepts a packet that another worker has handed over; `slot` has its frame.
    pub(super) fn accept(&mut self, mut handed: Handed, slot: Slot, now: Time, pool: &mut Pool) {
        handed.packet.slot = slot.number();
        self.queueing.set_free_packets(pool.available() as u64);
        let at = handed.at.min(now);
        self.with(at, pool, |queueing, cx| queueing.accept(handed, cx));
    }

    /// Hands packets over to other workers.
    pub(super) fn hand_over(&mut self, exchange: &mut Exchange, pool: &mut Pool) {
        let counts = &mut self.counts;
        let mut send = |to, errand, slot| {
            if exchange.send(to, errand, slot, pool) {
                counts.handed_over += 1;
                pool.free_settled(slot);
            } else {
                counts.lose(LostFrame::HandOver, 1);
                pool.free(slot);
            }
        };
        for (slot, port, home) in self.astray.drain(..) {
            send(home, Errand::Arrived(port), slot);
        }
        while let Some(handed) = self.queueing.next_handed() {
            let slot = Slot::from_number(handed.packet.slot);
            send(handed.to, Errand::Handed(handed), slot);
        }
    }

    /// Moves the packets that may leave to the outboxes, and writes their marks.
    pub(super) fn collect(&mut self, now: Time, pool: &mut Pool, outboxes: &mut [Outbox]) {
        while let Some(departure) = self.with(now, pool, Q::poll) {
            let packet = departure.packet;
            let slot = Slot::from_number(packet.slot);
            if packet.ecn == Ecn::Ce {
                let view = frame::parse_head(pool.head(slot), pool.frame_len(slot), self.link);
                frame::set_ce(pool.head_mut(slot), &view);
            }
            outboxes[departure.to].push(slot, self.number, Some((departure.due, packet.len)));
        }
        // The queues have processed everything that is due at `now`. A late arrival must not appear
        // to be simultaneous with that, because arrivals come first.
        self.latest = self.latest.saturating_add(Span::from_ns(1));
    }

    /// Returns the instant at which the queues must be called again.
    pub(super) fn next_wake(&self) -> Option<Time> {
        self.queueing.next_wake()
    }

    /// Records that a packet was sent at `now`.
    pub(super) fn released(&mut self, due: Time, len: u32, now: Time) {
        let late = now.since(due);
        self.lateness.note(late);
        self.observer.on_release(due, len, late);
    }

    fn bypass(
        &mut self,
        slot: Slot,
        from: PortNumber,
        view: &View,
        arrival: Time,
        pool: &mut Pool,
        outboxes: &mut [Outbox],
    ) {
        let cause = match self.queueing.bypass(from) {
            _ if view.fault.is_some() => LostFrame::Malformed,
            _ if !self.with(arrival, pool, |queueing, cx| {
                queueing.passes(from, view, cx)
            }) =>
            {
                LostFrame::Denied
            }
            Some(to) => {
                self.counts.bypassed += 1;
                outboxes[to].push(slot, self.number, None);
                return;
            }
            None => LostFrame::NoExit,
        };
        self.counts.lose_at(from, cause, 1);
        pool.free(slot);
    }

    /// Admits the segments of the super-packet in `packet`, and frees the super-packet.
    fn admit_segments(
        &mut self,
        packet: Packet,
        whole: &SuperPacket,
        view: &View,
        key: &Q::Key,
        pool: &mut Pool,
    ) {
        let slot = Slot::from_number(packet.slot);
        for index in 0..whole.segments() {
            let Some(to) = pool.allocate() else {
                self.counts.lose(LostFrame::NoSlot, 1);
                continue;
            };
            // Segments are charged to the port of their super-packet.
            let account = pool.account(slot);
            if let Some(account) = account.filter(|account| !pool.charge(to, *account)) {
                self.counts.lose_at(account.into(), LostFrame::OverShare, 1);
                pool.free(to);
                continue;
            }
            match pool.write_segment(slot, whole, index, to) {
                Some(length) => {
                    if whole.is_in_tunnel() {
                        // As for a single packet in a tunnel.
                        pool.complete_checksum(to);
                    }
                    let segment = Packet {
                        slot: to.number(),
                        len: length - u32::from(view.network),
                        ..packet
                    };
                    self.enqueue(segment, view, key, pool);
                }
                None => {
                    self.counts.lose(LostFrame::Malformed, 1);
                    pool.free(to);
                }
            }
        }
        pool.free(slot);
    }

    fn enqueue(&mut self, packet: Packet, view: &View, key: &Q::Key, pool: &mut Pool) {
        self.counts.admitted += 1;
        self.observer.on_arrival(&packet, view);
        self.with(packet.arrival, pool, |queueing, cx| {
            queueing.admit(packet, key, cx);
        });
    }
}

/// Cuts off the bytes behind the packet of a frame, which would take time of a link for nothing. The
/// kernel has done so itself in packets of which it keeps the rest.
fn trim(slot: Slot, view: &mut View, pool: &mut Pool) {
    let vnet = pool.vnet(slot);
    if !pool.is_cut(slot) && frame::trim(pool.head_mut(slot), view, &vnet) {
        pool.truncate(slot, view.frame_len);
    }
}

/// Returns whether the kernel's symmetric hash may differ for the two directions of a packet's flow. The
/// kernel takes the SPI of ESP and AH for two ports, and each direction has its own; of a tunnel, it
/// hashes the packet inside (`proto_ports_offset` in include/linux/in.h, `__skb_flow_dissect` in
/// net/core/flow_dissector.c).
fn is_tunnelled(view: &View) -> bool {
    // Behind options, later fragments do not show the protocol; all fragments stay where they are.
    let protocol = view.fragment.map_or(view.protocol, |part| part.protocol);
    let is_option = matches!(protocol, HOP_BY_HOP | ROUTING | DESTINATION);
    let is_even = has_ports(protocol) || matches!(protocol, ICMP | ICMPV6) || is_option;
    view.is_authenticated || !is_even
}

/// Returns whether a state of the rules has the ports of this protocol.
const fn has_ports(protocol: u8) -> bool {
    matches!(protocol, TCP | UDP | SCTP | UDP_LITE)
}

/// Returns a hash that both directions of a flow share.
fn of_both_directions(hasher: &FlowHasher, view: &View) -> u32 {
    // The fields that name a state: a first fragment has ports, and echoes of all identifiers share one.
    let mut flow = *view;
    flow.fragment = None;
    if !has_ports(flow.protocol) {
        flow.transport = Transport::Opaque;
    }
    let mut reverse = flow;
    reverse.addresses = match view.addresses {
        Addresses::V4 {
            source,
            destination,
        } => Addresses::V4 {
            source: destination,
            destination: source,
        },
        Addresses::V6 {
            source,
            destination,
        } => Addresses::V6 {
            source: destination,
            destination: source,
        },
        Addresses::None => Addresses::None,
    };
    if let Some((source, destination)) = flow.ports() {
        reverse.transport = Transport::Ports {
            source: destination,
            destination: source,
        };
    }
    hasher.flow(&flow).wrapping_add(hasher.flow(&reverse))
}

/// Returns the origin of a frame that arrived at port `from`.
fn origin(from: PortNumber, slot: Slot, pool: &Pool) -> Origin {
    Origin {
        port: from,
        path: pool.path(slot),
    }
}

// Protocol numbers of IANA.
const HOP_BY_HOP: u8 = 0;
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ROUTING: u8 = 43;
const ICMPV6: u8 = 58;
const DESTINATION: u8 = 60;
const SCTP: u8 = 132;
const UDP_LITE: u8 = 136;
