//! The rule engine as the queueing of a lane.

use std::collections::VecDeque;
use std::net::IpAddr;

use sluice_core::{Cx, Packet, Rate, Time, Wake};
use sluice_ipfw::{
    Direction, Disposition, Firewall, Fragment, Handed, Headers, InterfaceId, Worker,
};
use sluice_wire::frame::{Transport, View, quic, timestamps};

use crate::forward::{Astray, Departure, Origin, PortNumber, Queueing};
use crate::rtt::{RttCounts, RttMeter};

/// A bridge between pairs of ports, with dummynet's rules in between.
///
/// A packet crosses the rules twice, as on a router: on its way in from one port, and on its way
/// out through the other.
pub struct Ruled {
    firewall: Firewall,
    /// For each port, the port at the other end of its bridge.
    partners: Vec<PortNumber>,
    /// Packets that passed the rules without waiting.
    passed: VecDeque<Departure>,
    split_below: Rate,
    /// Whether super-packets are split for any link.
    splits: bool,
    is_strict: bool,
    /// The measurement of round-trip times, if it is wanted.
    rtt: Option<Box<RttMeter>>,
    /// Whether the only port is a queue of the kernel's own stack.
    is_hooked: bool,
    /// Which of several workers this is, and the packets that the ports may give to another worker than
    /// those of the opposite direction.
    homes: Option<(Worker, Astray)>,
    /// A change of the configuration, and its instant.
    change: Option<(Time, Change)>,
    /// The latest time that the engine has seen, while a change is scheduled.
    latest: Time,
}

/// A change of the configuration.
pub(super) type Change = Box<dyn FnOnce(&mut Firewall, &mut Cx<'_>)>;

impl Ruled {
    /// Creates the queueing of `firewall` between ports; port `i` and port `partners[i]` are the
    /// ends of one bridge. The engine's interfaces are the ports. A super-packet is split if a link
    /// that it may reach is slower than `split_below`.
    pub fn new(mut firewall: Firewall, partners: Vec<PortNumber>, split_below: Rate) -> Self {
        for (from, to) in partners.iter().enumerate() {
            firewall.connect(interface(from), interface(*to));
        }
        let mut ruled = Ruled {
            firewall,
            partners,
            passed: VecDeque::with_capacity(256),
            split_below,
            splits: false,
            is_strict: false,
            rtt: None,
            is_hooked: false,
            homes: None,
            change: None,
            latest: Time::ZERO,
        };
        ruled.commands_applied();
        ruled
    }

    /// Creates the queueing of `firewall` for packets of the kernel's own stack, all of which enter
    /// and leave through port 0. The engine's interfaces are those of the packets' paths. A packet
    /// that the host forwards crosses the rules on its way in and on its way out; a packet from or
    /// for the host itself crosses them once.
    pub fn hooked(firewall: Firewall, split_below: Rate) -> Self {
        let mut ruled = Ruled {
            firewall,
            partners: vec![0],
            passed: VecDeque::with_capacity(256),
            split_below,
            splits: false,
            is_strict: false,
            rtt: None,
            is_hooked: true,
            homes: None,
            change: None,
            latest: Time::ZERO,
        };
        ruled.commands_applied();
        ruled
    }

    /// Returns whether super-packets may arrive at a port that cannot split them.
    pub const fn takes_super_packets(&self) -> bool {
        !self.splits
    }

    /// Drops frames whose headers hide what rules match ([`View::is_evasive`]).
    pub const fn strict(mut self, is_strict: bool) -> Ruled {
        self.is_strict = is_strict;
        self
    }

    /// Measures the round-trip times of flows ([`crate::rtt`]).
    pub fn measuring_rtt(mut self, is_wanted: bool) -> Ruled {
        self.rtt = is_wanted.then(Box::default);
        self
    }

    /// Takes the round-trip times since the last call, if they are measured.
    pub fn take_rtt(&mut self) -> Option<RttCounts> {
        self.rtt.as_mut().map(|meter| meter.take())
    }

    /// Turns this router into one of several workers. If some rule has states, `astray` packets are
    /// first passed to the worker of their flow.
    pub(crate) fn sharing(mut self, worker: Worker, astray: Option<Astray>) -> Ruled {
        self.firewall.share(worker);
        self.homes = astray.map(|astray| (worker, astray));
        self
    }

    /// Changes the configuration at an instant, before anything that arrives then or later is handled.
    /// `now` is the latest time that the engine has seen.
    pub(super) fn schedule(&mut self, at: Time, change: Change, now: Time) {
        debug_assert!(self.change.is_none(), "one change is scheduled at a time");
        self.change = Some((at.max(now), change));
        self.latest = now;
    }

    /// Returns whether a change is scheduled.
    pub(super) const fn has_change(&self) -> bool {
        self.change.is_some()
    }

    /// Executes a change that is due.
    #[inline]
    fn catch_up(&mut self, cx: &mut Cx<'_>) {
        if self.change.is_some() {
            self.catch_up_with_change(cx);
        }
    }

    #[cold]
    fn catch_up_with_change(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now;
        if let Some((at, change)) = self.change.take_if(|(at, _)| *at <= now) {
            cx.now = at.max(self.latest);
            change(&mut self.firewall, cx);
            cx.now = now;
            self.commands_applied();
        }
        self.latest = now;
    }

    /// Returns the engine.
    pub const fn firewall(&self) -> &Firewall {
        &self.firewall
    }

    /// Returns the engine, for commands; [`Ruled::commands_applied`] must follow.
    pub const fn firewall_mut(&mut self) -> &mut Firewall {
        &mut self.firewall
    }

    /// Updates the state that depends on the engine's configuration.
    pub fn commands_applied(&mut self) {
        self.splits = self.firewall.splits_any(self.split_below);
    }
}

fn interface(port: PortNumber) -> InterfaceId {
    InterfaceId(u16::try_from(port).expect("a forwarder has fewer than 64 ports"))
}

impl Queueing for Ruled {
    type Key = Headers;

    fn key(&self, from: Origin, view: &View, head: &[u8]) -> Headers {
        let mut headers = headers(interface(from.port), view, head);
        if let Some(path) = from.path.filter(|_| self.is_hooked) {
            headers.recv = path.recv.map(InterfaceId);
            headers.xmit = path.xmit.map(InterfaceId);
            if path.recv.is_none() {
                headers.direction = Direction::Out;
            }
        }
        headers
    }

    /// The pipes that a flow may reach determine this: super-packets for a fast pipe stay whole
    /// even if another pipe is slow.
    fn splits(&mut self, _from: PortNumber, key: &Headers, _at: Time) -> bool {
        self.splits && !self.is_hooked && self.firewall.splits(key, self.split_below)
    }

    fn set_free_packets(&mut self, packets: u64) {
        self.firewall.set_free_packets(packets);
    }

    fn is_strict(&self) -> bool {
        self.is_strict
    }

    fn observes(&self) -> bool {
        self.rtt.is_some()
    }

    fn observe(&mut self, key: &Headers, view: &View, head: &[u8], at: Time) {
        let Some(meter) = &mut self.rtt else {
            return;
        };
        let firewall = &mut self.firewall;
        let object = || firewall.first_object(key);
        if let Some(timestamps) = timestamps(view, head) {
            meter.see(key, &timestamps, at, object);
        } else if let Some(header) = quic(view, head) {
            meter.see_quic(key, header, at, object);
        }
    }

    fn is_wide(&self) -> bool {
        self.firewall.is_wide()
    }

    fn expect(&mut self, coming: &[Headers]) {
        self.firewall.expect(coming);
    }

    fn admit(&mut self, packet: Packet, key: &Headers, cx: &mut Cx<'_>) {
        self.catch_up(cx);
        let mut headers = key.clone();
        headers.ip_len = packet.len;
        if let Disposition::Pass(packet) = self.firewall.handle(packet, &headers, cx) {
            let to = match headers.recv {
                Some(from) if !self.is_hooked => self.partners[usize::from(from.0)],
                _ => 0,
            };
            self.passed.push_back(Departure {
                packet,
                due: cx.now,
                to,
            });
        }
    }

    fn poll(&mut self, cx: &mut Cx<'_>) -> Option<Departure> {
        self.catch_up(cx);
        if let Some(departure) = self.passed.pop_front() {
            return Some(departure);
        }
        let departure = self.firewall.poll(cx)?;
        let to = if self.is_hooked {
            0
        } else {
            debug_assert_eq!(departure.direction, Direction::Out);
            let to = departure
                .xmit
                .expect("every port is connected, so a packet that passes is on its way out");
            usize::from(to.0)
        };
        Some(Departure {
            packet: departure.packet,
            due: departure.due,
            to,
        })
    }

    /// Rules without states decide the same at every worker. Round-trip times are those of flows with
    /// ports.
    fn homes(&mut self) -> Option<(Worker, Astray)> {
        let (own, astray) = self.homes?;
        let measures = self.rtt.is_some() && astray == Astray::All;
        (measures || self.firewall.has_states()).then_some((own, astray))
    }

    fn next_handed(&mut self) -> Option<Handed> {
        self.firewall.take_handed()
    }

    fn accept(&mut self, handed: Handed, cx: &mut Cx<'_>) {
        self.catch_up(cx);
        self.firewall.accept(handed, cx);
    }

    fn next_wake(&self) -> Option<Time> {
        if !self.passed.is_empty() {
            return Some(Time::ZERO);
        }
        let wake = match self.firewall.next_wake() {
            Wake::Now => Some(Time::ZERO),
            Wake::At(at) => Some(at),
            Wake::OnEnqueue => None,
        };
        let change = self.change.as_ref().map(|(at, _)| *at);
        wake.into_iter().chain(change).min()
    }

    fn passes(&mut self, from: PortNumber, view: &View, cx: &mut Cx<'_>) -> bool {
        self.catch_up(cx);
        let unspecified = IpAddr::from([0; 4]);
        let mut headers = Headers::new(Direction::In, 0, unspecified, unspecified);
        headers.recv = Some(interface(from));
        headers.is_layer2 = true;
        headers.frame = Some(view.ethertype);
        headers.ip_len = view.frame_len;
        self.firewall.passes(&headers, cx)
    }

    fn bypass(&self, from: PortNumber) -> Option<PortNumber> {
        Some(self.partners[from])
    }
}

/// Returns the fields of an arrived packet that rules match.
pub(super) fn headers(recv: InterfaceId, view: &View, head: &[u8]) -> Headers {
    let unspecified = IpAddr::from([0; 4]);
    let (src, dst) = view.addresses.pair().unwrap_or((unspecified, unspecified));
    let mut headers = Headers::new(Direction::In, view.protocol, src, dst);
    headers.recv = Some(recv);
    (headers.src_port, headers.dst_port) = view.ports().unwrap_or((0, 0));
    headers.tos = view.dscp << 2 | view.ecn;
    headers.ip_len = view.ip_len;
    match view.transport {
        Transport::Tcp { flags, .. } => headers.tcp_flags = flags,
        Transport::Icmp { kind, id, .. } => {
            headers.icmp_type = Some(kind);
            // As for the hash of the flow.
            headers.icmp_id = id.filter(|_| view.fragment.is_none());
        }
        _ => {}
    }
    let at = usize::from(view.network);
    // The fixed part of the header is present, because its addresses could be read.
    let ip = head.get(at..).unwrap_or(&[]);
    let byte = |i: usize| ip.get(i).copied().unwrap_or(0);
    let word = |i: usize| u16::from_be_bytes([byte(i), byte(i + 1)]);
    if src.is_ipv6() {
        // RFC 8200 section 3: version, traffic class and 20 bits of flow label; hop limit at 7.
        headers.flow_label = u32::from(byte(1) & 0x0f) << 16 | u32::from(word(2));
        headers.ttl = byte(7);
    } else {
        // RFC 791 section 3.1.
        headers.ip_id = word(4);
        headers.ttl = byte(8);
        headers.fragment.dont = word(6) & 0x4000 != 0;
    }
    if let Some(fragment) = view.fragment {
        headers.fragment = Fragment {
            offset: fragment.offset,
            has_more: fragment.more,
            dont: headers.fragment.dont,
            begins_with: Some(fragment.protocol),
        };
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_core::{DropCounter, Rng};
    use sluice_ipfw::{NoFiles, Settings};
    use sluice_wire::frame::{Link, parse_head};

    #[test]
    fn headers_are_those_of_the_packet() {
        // RFC 791 and RFC 9293: 60 bytes, id 0x1234, DF, TTL 61, CS1 with CE, SYN from 443 to 80.
        let mut v4 = vec![
            0x45, 0x23, 0, 60, 0x12, 0x34, 0x40, 0, 61, 6, 0, 0, 10, 0, 1, 2, 10, 0, 2, 2, 0x01,
            0xbb, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0xa0, 0x02,
        ];
        v4.resize(60, 0);
        let view = parse_head(&v4, v4.len(), Link::Ip);
        let got = headers(InterfaceId(1), &view, &v4);
        let mut expected = Headers::new(
            Direction::In,
            6,
            IpAddr::from([10, 0, 1, 2]),
            IpAddr::from([10, 0, 2, 2]),
        );
        expected.recv = Some(InterfaceId(1));
        (expected.src_port, expected.dst_port) = (443, 80);
        (expected.tos, expected.ttl) = (0x23, 61);
        (expected.ip_len, expected.ip_id) = (60, 0x1234);
        (expected.fragment.dont, expected.tcp_flags) = (true, 2);
        assert_eq!(got, expected);
    }

    #[test]
    fn labels_hop_limits_and_fragments_of_ipv6_are_read() {
        // RFC 8200: class 0xb8 (EF), label 0xabcde, 16 bytes behind the header, a fragment header,
        // hop limit 9; offset 1480, more to come.
        let mut v6 = vec![0x6b, 0x8a, 0xbc, 0xde, 0, 16, 44, 9];
        v6.extend([0xfd; 16]);
        v6.extend([0xfc; 16]);
        v6.extend([17, 0, 0x05, 0xc9, 0, 0, 0, 7]);
        v6.extend([0; 8]);
        let view = parse_head(&v6, v6.len(), Link::Ip);
        let got = headers(InterfaceId(0), &view, &v6);
        assert_eq!((got.flow_label, got.ttl, got.dscp()), (0xabcde, 9, 46));
        assert_eq!((got.fragment.offset, got.fragment.has_more), (1480, true));
        assert_eq!(got.fragment.begins_with, Some(17));
        assert_eq!((got.proto, got.ip_len, got.src_port), (17, 56, 0));
    }

    #[test]
    fn fragments_with_options_in_front_of_the_transport_header_are_one_flow() {
        // RFC 8200 section 4.5: a fragment header, then options of 8 bytes with UDP behind them.
        let fragment = |word: u8, payload: &[u8]| {
            let mut v6 = vec![0x60, 0, 0, 0, 0, 8 + payload.len() as u8, 44, 64];
            v6.extend([0xfd; 32]);
            v6.extend([60, 0, 0, word, 0, 0, 0, 7]);
            v6.extend(payload);
            let view = parse_head(&v6, v6.len(), Link::Ip);
            headers(InterfaceId(0), &view, &v6)
        };
        let first = fragment(1, &[17, 0, 1, 4, 0, 0, 0, 0, 0, 7, 0, 9, 0, 40, 0, 0]);
        let later = fragment(16, &[0; 8]);
        // Rules see the protocol where it is.
        assert_eq!((first.proto, later.proto), (17, 60));
        let begins = [first, later].map(|headers| headers.fragment.begins_with);
        assert_eq!(begins, [Some(60); 2]);
    }

    #[test]
    fn echo_has_its_identifier_and_other_icmp_has_none() {
        // RFC 792: type, code, checksum, identifier. Type 8 is an echo, 3 an error.
        let icmp = |kind: u8| {
            let mut packet = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 1, 0, 0];
            packet.extend([10, 0, 0, 1, 10, 0, 0, 2, kind, 0, 0, 0, 0x12, 0x34, 0, 1]);
            let view = parse_head(&packet, packet.len(), Link::Ip);
            headers(InterfaceId(0), &view, &packet).icmp_id
        };
        assert_eq!((icmp(8), icmp(3)), (Some(0x1234), None));
    }

    /// Admits a packet at `at`, and returns whether it passes.
    fn passes_at(ruled: &mut Ruled, at: Time) -> bool {
        let (mut rng, mut sink) = (Rng::from_seed(1), DropCounter::default());
        let mut cx = Cx::new(at, &mut rng, &mut sink);
        let mut headers = Headers::new(Direction::In, 17, [10; 4].into(), [11; 4].into());
        headers.recv = Some(InterfaceId(0));
        ruled.admit(Packet::new(0, 100), &headers, &mut cx);
        ruled.poll(&mut cx).is_some()
    }

    #[test]
    fn a_change_acts_on_what_arrives_at_its_instant_or_later() {
        let allows = Settings {
            accepts_by_default: true,
            ..Settings::default()
        };
        let deny = || -> Change {
            Box::new(|firewall, cx| {
                assert_eq!(cx.now, Time::from_ns(1000));
                let command = "add deny ip from any to any";
                firewall.command(command, &mut NoFiles, cx).unwrap();
            })
        };
        let new = || Ruled::new(Firewall::new(&allows), vec![1, 0], Rate::from_bps(1));
        let mut ruled = new();
        ruled.schedule(Time::from_ns(1000), deny(), Time::ZERO);
        // The loop wakes up for it.
        assert_eq!(ruled.next_wake(), Some(Time::from_ns(1000)));
        for (at, passes) in [(10, true), (999, true), (1000, false), (1001, false)] {
            assert_eq!(passes_at(&mut ruled, Time::from_ns(at)), passes, "{at}");
        }
        assert!(!ruled.has_change());
        assert_eq!(ruled.next_wake(), None);
        // An order that came late acts at the latest instant that the engine has seen.
        let mut ruled = new();
        ruled.schedule(Time::from_ns(7), deny(), Time::from_ns(1000));
        assert!(!passes_at(&mut ruled, Time::from_ns(1200)));
    }
}
