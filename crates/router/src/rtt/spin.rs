//! Round-trip times of QUIC flows, from their latency spin bit (RFC 9000 section 17.4).
//!
//! The server repeats the bit of the newest packet from the client, and the client inverts that of
//! the newest packet from the server, so a single edge circulates between them. The time from an edge
//! towards a host to the edge that answers it is the round-trip time from the router to that host and
//! back ("component RTT", RFC 9312 section 3.8.2). Both directions must pass the router.
//!
//! RFC 9312 leaves the rejection of wrong samples to heuristics on the rate and the series of a flow;
//! these are used:
//!
//! 1. Edges answer each other in turn: the server's has the value of the client's before it, the
//!    client's the opposite of the server's. Any other edge is false, and no time is taken from it.
//! 2. A packet that was overtaken brings back the old value for an instant. An edge that follows
//!    another of its direction within a quarter of the flow's round-trip time is false, and makes the
//!    time that is being taken uncertain, so that it is discarded.
//! 3. One connection in eight does not spin, and should have random bits instead (RFC 9000 section
//!    17.4). A false edge costs as much trust as eight edges in turn gain. A flow has samples after 16
//!    edges in turn, and none while more than about a tenth of its edges are false. Random bits are in
//!    turn at most two times out of three.
//! 4. An edge waits for the host's next packet, which an application may delay ("application-limited
//!    senders", RFC 9312). A time counts if the host sent another packet in its last sixteenth, or if
//!    it is at most twice the least such time or that of the handshake. RFC 9312 suggests both:
//!    the data rate of the flow, and the history with the handshake as its first estimate.
//!
//! A flow with one packet in a round trip is in turn even if one host's bit is random; the fourth rule
//! then bounds what is counted.
//!
//! A flow is QUIC if the server's port is 443, or if it began with a client's Initial packet. The
//! table has a fixed size; flows beyond it have no samples. Of datagrams that the kernel has joined,
//! only the first is read.

use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;

use sluice_core::{Span, Time};
use sluice_ipfw::Headers;
use sluice_ipfw::watch::ObjectName;
use sluice_wire::frame::QuicHeader;

use super::{LONGEST, RoundTrip, WAYS};

/// The flows whose spin bits are observed.
#[derive(Debug)]
pub(super) struct SpinMeter {
    /// Sets of [`WAYS`] flows by hash.
    flows: Vec<Option<Flow>>,
    hasher: RandomState,
    /// Whether a flow with another port than [`HTTPS`] is known.
    has_other_ports: bool,
}

/// An address with its port.
type End = (IpAddr, u16);

/// The direction of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Toward {
    Server,
    Client,
}

#[derive(Debug)]
struct Flow {
    client: End,
    server: End,
    last: Time,
    handshake: Handshake,
    /// The packets towards the server, and towards the client.
    sides: [Side; 2],
    /// The newest edge, unless a false one came after it.
    asked: Option<Edge>,
    /// The time between two edges of a direction, smoothed.
    period: Option<Span>,
    trust: i8,
}

/// The packets in one direction.
#[derive(Debug, Default)]
struct Side {
    spin: Option<bool>,
    last: Option<Time>,
    edge: Option<Time>,
    /// Whether an edge was false since the last one in turn.
    is_disturbed: bool,
    /// The least round-trip time of the host that sends these packets.
    least: Option<Span>,
}

/// A change of the spin bit.
#[derive(Clone, Copy, Debug)]
struct Edge {
    toward: Toward,
    spin: bool,
    at: Time,
    object: Option<ObjectName>,
}

/// What has passed of a handshake.
#[derive(Clone, Copy, Debug, Default)]
enum Handshake {
    #[default]
    Unseen,
    /// The client's newest packet.
    Asked(Time),
    /// The server's first packet.
    Answered(Time),
    Seen,
}

/// The server's port of HTTP/3.
const HTTPS: u16 = 443;
/// Flows that are observed: 1.2 MB.
const MOST_FLOWS: usize = 4096;
/// Trust of a new flow, from which a flow has samples, and bounds.
const NEW: i8 = -8;
const TRUSTED: i8 = 8;
const LEAST_TRUST: i8 = -64;
const MOST_TRUST: i8 = 16;
/// Trust that a false edge costs. Each edge in turn gains one.
const FALSE_EDGE: i8 = 8;

impl Default for SpinMeter {
    fn default() -> Self {
        SpinMeter {
            flows: (0..MOST_FLOWS).map(|_| None).collect(),
            hasher: RandomState::new(),
            has_other_ports: false,
        }
    }
}

impl SpinMeter {
    /// Sees a datagram that arrived at `at`, and returns the round trip that it completes.
    pub fn see(
        &mut self,
        headers: &Headers,
        header: QuicHeader,
        at: Time,
        object: impl FnOnce() -> Option<ObjectName>,
    ) -> Option<RoundTrip> {
        let (src, dst) = (
            (headers.src, headers.src_port),
            (headers.dst, headers.dst_port),
        );
        let begins = header == QuicHeader::Long { begins: true };
        let is_https = src.1 == HTTPS || dst.1 == HTTPS;
        if !(is_https || begins || self.has_other_ports) {
            return None;
        }
        let set = self.set(src, dst);
        let places = &mut self.flows[set..set + WAYS];
        let is_known = |flow: &Option<Flow>| flow.as_ref().is_some_and(|flow| flow.has(src, dst));
        let place = match places.iter_mut().find(|flow| is_known(flow)) {
            Some(place) => place,
            None if is_https || begins => {
                self.has_other_ports |= !is_https;
                let oldest = places
                    .iter_mut()
                    .min_by_key(|flow| flow.as_ref().map(|flow| flow.last));
                let place = oldest.expect("a set has places");
                let is_answer = src.1 == HTTPS && dst.1 != HTTPS;
                let (client, server) = if is_answer { (dst, src) } else { (src, dst) };
                *place = Some(Flow::new(client, server, at));
                place
            }
            None => return None,
        };
        let flow = place.as_mut().expect("it was found or made");
        let toward = if src == flow.client {
            Toward::Server
        } else {
            Toward::Client
        };
        let is_again = begins && toward == Toward::Server && flow.has_spin_bits();
        if is_again || at.since(flow.last) > LONGEST {
            *flow = Flow::new(flow.client, flow.server, at);
        }
        flow.last = at;
        match header {
            QuicHeader::Long { .. } => {
                flow.shake_hands(toward, at);
                None
            }
            QuicHeader::Short { spin } => {
                let (object, time) = flow.spin(toward, spin, at, object)?;
                Some(RoundTrip {
                    host: src.0,
                    object,
                    time,
                })
            }
        }
    }

    /// Returns the set of a flow, which both directions share.
    fn set(&self, a: End, b: End) -> usize {
        let hash = self.hasher.hash_one((a.min(b), a.max(b)));
        hash as usize % (MOST_FLOWS / WAYS) * WAYS
    }
}

impl Flow {
    fn new(client: End, server: End, at: Time) -> Flow {
        Flow {
            client,
            server,
            last: at,
            handshake: Handshake::default(),
            sides: Default::default(),
            asked: None,
            period: None,
            trust: NEW,
        }
    }

    fn has(&self, a: End, b: End) -> bool {
        (self.client, self.server) == (a, b) || (self.client, self.server) == (b, a)
    }

    fn has_spin_bits(&self) -> bool {
        self.sides.iter().any(|side| side.spin.is_some())
    }

    /// Sees a packet of the handshake, whose times begin the history of a flow. A client that sends
    /// again asks again, so a lost packet makes an estimate too small, not too large.
    fn shake_hands(&mut self, toward: Toward, at: Time) {
        self.handshake = match (self.handshake, toward) {
            (Handshake::Unseen | Handshake::Asked(_), Toward::Server) => Handshake::Asked(at),
            (Handshake::Asked(asked), Toward::Client) => {
                self.sides[toward as usize].learn(at.since(asked));
                Handshake::Answered(at)
            }
            (Handshake::Answered(answered), Toward::Server) => {
                self.sides[toward as usize].learn(at.since(answered));
                Handshake::Seen
            }
            (other, _) => other,
        };
    }

    /// Sees a spin bit. Returns a round-trip time, and what the packet that it began with entered.
    fn spin(
        &mut self,
        toward: Toward,
        spin: bool,
        at: Time,
        object: impl FnOnce() -> Option<ObjectName>,
    ) -> Option<(Option<ObjectName>, Span)> {
        let side = &mut self.sides[toward as usize];
        let gap = side.last.replace(at).map(|last| at.since(last));
        if side.spin.replace(spin).is_none_or(|old| old == spin) {
            return None;
        }
        let since = side.edge.map(|edge| at.since(edge));
        if let (Some(since), Some(period)) = (since, self.period)
            && since * 4 < period
        {
            // If it is not a packet that was overtaken, the round-trip time has become shorter.
            self.period = Some(Span::from_ns(period.as_ns() / 16 * 15));
            self.asked = None;
            if !std::mem::replace(&mut side.is_disturbed, true) {
                self.distrust();
            }
            return None;
        }
        (side.edge, side.is_disturbed) = (Some(at), false);
        let edge = Edge {
            toward,
            spin,
            at,
            object: object(),
        };
        let asked = self.asked.replace(edge)?;
        if !edge.answers(&asked) {
            self.distrust();
            return None;
        }
        self.trust = self.trust.saturating_add(1).min(MOST_TRUST);
        self.period = since.map_or(self.period, |since| {
            // A pause of the application is not a period.
            let smoothed = |period: Span| eighth_toward(period, since.min(period * 2));
            Some(self.period.map_or(since, smoothed))
        });
        let time = at.since(asked.at);
        let side = &mut self.sides[toward as usize];
        let is_prompt = gap.is_some_and(|gap| gap * 16 <= time);
        if is_prompt {
            side.learn(time);
        }
        let is_likely = is_prompt || side.least.is_some_and(|least| time <= least * 2);
        let counts = is_likely && self.trust >= TRUSTED && time <= LONGEST;
        counts.then_some((asked.object, time))
    }

    fn distrust(&mut self) {
        self.trust = self.trust.saturating_sub(FALSE_EDGE).max(LEAST_TRUST);
    }
}

impl Side {
    fn learn(&mut self, time: Span) {
        self.least = Some(self.least.map_or(time, |least| least.min(time)));
    }
}

impl Edge {
    /// Returns whether this edge answers another: the server repeats, the client inverts.
    fn answers(&self, asked: &Edge) -> bool {
        let is_repeated = self.spin == asked.spin;
        self.toward != asked.toward && is_repeated == (self.toward == Toward::Client)
    }
}

/// Returns `old`, moved by an eighth of the distance to `new`.
fn eighth_toward(old: Span, new: Span) -> Span {
    Span::from_ns(old.as_ns() - old.as_ns() / 8 + new.as_ns() / 8)
}

#[cfg(test)]
mod tests;
