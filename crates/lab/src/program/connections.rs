//! The flows of a recorded program: TCP connections with samples of both ends, UDP flows and pings.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use sluice_core::record::PacketRecord;
use sluice_core::{Rate, Span, Time};
use sluice_net::socket::TcpConnection;
use sluice_proxy::EndState;
use sluice_recording::{FlowSample, NO_FLOW};
use sluice_scenario::{Direction, PipeId, Scenario};

use super::datagrams::{Counts, Protocol};
use super::names::Names;
use crate::live::Observation;

/// All flows, in the order of their first packets.
#[derive(Debug, Default)]
pub(super) struct Connections {
    list: Vec<Connection>,
    /// The index of each flow, by protocol, the program's end and the other end.
    numbers: BTreeMap<(Protocol, SocketAddr, SocketAddr), usize>,
    /// The index of each flow, by the hash of its packets, which differs between the directions.
    hashes: BTreeMap<u32, usize>,
    /// The forwarded TCP ports, by the program's ends of their connections.
    forwards: BTreeMap<SocketAddr, u16>,
}

#[derive(Debug)]
struct Connection {
    protocol: Protocol,
    remote: Remote,
    first: Time,
    last: Time,
    /// The program's end and the far end of a TCP connection.
    ends: [End; 2],
    has_ecn: bool,
    /// The packets up and down, for flows other than TCP.
    counts: [Counts; 2],
}

/// The far end of a connection.
#[derive(Clone, Debug)]
enum Remote {
    /// An address, whose name may become known.
    Address(SocketAddr),
    /// A name with a port.
    Named {
        /// The name.
        name: String,
        /// Whether its packets have headers of IPv6.
        is_v6: bool,
    },
}

/// One end of a connection.
#[derive(Debug, Default)]
struct End {
    /// The samples that differ from their predecessors.
    samples: Vec<State>,
    /// The socket of the samples, and the bytes that earlier sockets with the same addresses have
    /// carried.
    cookie: Option<u64>,
    before: State,
}

/// A sample of one end. The window is in segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct State {
    time: Time,
    cwnd: u32,
    ssthresh: u32,
    mss: u32,
    srtt: Span,
    min_rtt: Span,
    retransmits: u64,
    delivery_rate_bps: u64,
    sent: u64,
    received: u64,
}

/// A flow of the recording: one direction of a connection.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Flow {
    pub name: String,
    pub direction: Direction,
    pub start: Time,
    pub stop: Time,
    /// Payload that has arrived; 0 for a connection that carried none.
    pub bytes: u64,
    pub has_ecn: bool,
    pub protocol: Protocol,
    /// The keys of the flow's type that describe its packets, as TOML. TCP has none.
    pub keys: String,
    /// Of the second direction of a connection, the number of the first one, which the packets have.
    pub packets_of: Option<u32>,
    /// Rows, whose flow number is not set yet.
    pub samples: Vec<FlowSample>,
}

/// An end of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Near,
    Far,
}

impl Connections {
    /// Creates an empty list. `forwards` are the forwarded ports, by the program's ends of their
    /// connections: the ports of the other ends mean nothing.
    pub fn forwarding(forwards: BTreeMap<SocketAddr, u16>) -> Connections {
        Connections {
            forwards,
            ..Connections::default()
        }
    }

    /// Records that packets with `hash` belong to a flow between `program` and `remote`.
    pub fn saw(&mut self, hash: u32, protocol: Protocol, program: SocketAddr, remote: SocketAddr) {
        let next = self.list.len();
        let ends = (protocol, program, remote);
        let number = *self.numbers.entry(ends).or_insert(next);
        if number == next {
            // A UDP socket may have the same port by chance.
            let forwarded = self.forwards.get(&program);
            let remote = match forwarded.filter(|_| protocol == Protocol::Tcp) {
                Some(port) => Remote::Named {
                    name: format!("localhost:{port}"),
                    is_v6: program.is_ipv6(),
                },
                None => Remote::Address(remote),
            };
            self.list.push(Connection::new(protocol, remote));
        }
        self.hashes.insert(hash, number);
    }

    /// Records a new flow to `name`, whose packets up and down have `hashes`.
    pub fn opened(&mut self, hashes: [u32; 2], protocol: Protocol, name: String, is_v6: bool) {
        for hash in hashes {
            self.hashes.insert(hash, self.list.len());
        }
        let remote = Remote::Named { name, is_v6 };
        self.list.push(Connection::new(protocol, remote));
    }

    /// Records that the ends of the flow with `hash` use ECN.
    pub fn uses_ecn(&mut self, hash: u32) {
        if let Some(number) = self.hashes.get(&hash) {
            self.list[*number].has_ecn = true;
        }
    }

    /// Records the state of an end that the proxy has reported.
    pub fn sample_end(&mut self, end: &EndState) {
        if let Some(number) = self.hashes.get(&end.hash) {
            let ends = &mut self.list[*number].ends;
            ends[side_of(end.direction) as usize].push(ONLY, State::of_end(end));
        }
    }

    /// Records the packets of an observation, and replaces the hash in their rows by the number of
    /// their flow.
    pub fn observe(&mut self, scenario: &Scenario, observation: &mut Observation) {
        match observation {
            Observation::Packets(pipe, records) => {
                let hops = scenario.hops.len() + 1;
                let interval = scenario.measure.interval;
                for record in records {
                    self.settled(*pipe, hops, record, interval);
                    record.flow = self.flow_of(record.flow);
                }
            }
            Observation::Arrivals(arrivals) => {
                for arrival in arrivals {
                    self.passed(arrival.hash, arrival.time);
                }
            }
            Observation::Flow(..) | Observation::Queue { .. } | Observation::Releases(_) => {}
        }
    }

    /// Records the arrival of a packet at the link.
    fn passed(&mut self, hash: u32, at: Time) {
        if let Some(connection) = self.hashes.get(&hash).map(|n| &mut self.list[*n]) {
            connection.first = connection.first.min(at);
            connection.last = connection.last.max(at);
        }
    }

    /// Records the fate of a packet at one of the path's `hops` links.
    fn settled(&mut self, pipe: PipeId, hops: usize, packet: &PacketRecord, interval: Span) {
        let flow = self.hashes.get(&packet.flow).map(|n| &mut self.list[*n]);
        if let Some(flow) = flow.filter(|flow| flow.protocol != Protocol::Tcp) {
            let headers = flow.headers();
            let counts = &mut flow.counts[side_of(pipe.direction()) as usize];
            counts.count(pipe, hops, packet, headers, interval);
        }
    }

    /// Returns the number of the flow that a packet belongs to.
    pub fn flow_of(&self, hash: u32) -> u32 {
        self.hashes.get(&hash).map_or(NO_FLOW, |n| *n as u32)
    }

    /// Records the kernel's report about one end at `time`.
    pub fn sample(&mut self, side: Side, connection: &TcpConnection, time: Time) {
        let ends = match side {
            Side::Near => (connection.local, connection.remote),
            Side::Far => (connection.remote, connection.local),
        };
        let has_ecn = connection.info.has_ecn();
        self.note(
            side,
            ends,
            connection.cookie,
            has_ecn,
            State::of(connection, time),
        );
    }

    fn note(
        &mut self,
        side: Side,
        ends: (SocketAddr, SocketAddr),
        cookie: u64,
        has_ecn: bool,
        state: State,
    ) {
        // Connections within a namespace do not cross the link.
        let Some(number) = self.numbers.get(&(Protocol::Tcp, ends.0, ends.1)) else {
            return;
        };
        let known = &mut self.list[*number];
        known.has_ecn |= has_ecn;
        known.ends[side as usize].push(cookie, state);
    }

    /// Returns the flows. The first ones are one per connection, UDP flow or ping, in the direction
    /// that carried more; all packets have their numbers. Then there is one for the other direction of
    /// each connection and UDP flow, if this direction carried more than [`SMALL`] or [`FEW`].
    pub fn into_flows(self, names: &Names) -> Vec<Flow> {
        let place = |remote: &Remote| match remote {
            Remote::Address(address) => names.of(*address),
            Remote::Named { name, .. } => Names::accepted(name),
        };
        let named = |flow: &Connection| match (flow.protocol, &flow.remote) {
            (Protocol::Tcp, remote) => place(remote),
            (Protocol::Echo, Remote::Address(address)) => {
                format!("{}-ping", names.of_host(*address))
            }
            (Protocol::Udp | Protocol::Echo, remote) => format!("{}-udp", place(remote)),
        };
        let named: Vec<String> = self.list.iter().map(named).collect();
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for name in &named {
            *counts.entry(name).or_default() += 1;
        }
        let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
        let (mut main, mut other) = (Vec::new(), Vec::new());
        for (connection, name) in self.list.iter().zip(&named) {
            let number = seen.entry(name).or_default();
            *number += 1;
            let name = match counts[name.as_str()] {
                1 => name.clone(),
                _ => format!("{name}-{number}"),
            };
            let [down, up] = [Direction::Down, Direction::Up].map(|d| connection.arrived(d));
            let direction = if up > down {
                Direction::Up
            } else {
                Direction::Down
            };
            main.push(connection.flow(name.clone(), direction));
            let back = match direction {
                Direction::Up => Direction::Down,
                Direction::Down => Direction::Up,
            };
            if connection.is_flow_back(back) {
                other.push(Flow {
                    packets_of: Some(main.len() as u32 - 1),
                    ..connection.flow(format!("{name}-{back}"), back)
                });
            }
        }
        main.extend(other);
        main
    }
}

impl Connection {
    fn new(protocol: Protocol, remote: Remote) -> Connection {
        Connection {
            protocol,
            remote,
            first: Time::MAX,
            last: Time::ZERO,
            ends: Default::default(),
            has_ecn: false,
            counts: Default::default(),
        }
    }

    /// Returns sender and receiver of a direction.
    const fn ends_of(&self, direction: Direction) -> [&End; 2] {
        let [near, far] = &self.ends;
        match direction {
            Direction::Up => [near, far],
            Direction::Down => [far, near],
        }
    }

    /// Returns the payload of a direction. The receiver's count may include the FIN, so the result
    /// is limited to the bytes sent. Without a connection, returns the bytes sent.
    fn arrived(&self, direction: Direction) -> u64 {
        if self.protocol != Protocol::Tcp {
            return self.counts[side_of(direction) as usize].bytes();
        }
        let [sender, receiver] = self.ends_of(direction).map(End::total);
        match (sender, receiver) {
            (Some(sender), Some(receiver)) => sender.sent.min(receiver.received),
            (Some(sender), None) => sender.sent,
            (None, Some(receiver)) => receiver.received,
            (None, None) => 0,
        }
    }

    /// Returns whether the direction that carried less is a flow, too.
    fn is_flow_back(&self, direction: Direction) -> bool {
        match self.protocol {
            Protocol::Tcp => self.arrived(direction) > SMALL,
            Protocol::Udp => self.counts[side_of(direction) as usize].sent() > FEW,
            // The answers to pings are no traffic of their own.
            Protocol::Echo => false,
        }
    }

    fn flow(&self, name: String, direction: Direction) -> Flow {
        let bytes = self.arrived(direction);
        let [sender, receiver] = self.ends_of(direction);
        let states = sender.samples.iter().filter(|state| state.mss > 0);
        let mut samples: Vec<FlowSample> = states.map(State::row).collect();
        samples.extend(receiver.samples.iter().map(|state| FlowSample {
            received_bytes: Some(state.received.min(bytes)),
            ..FlowSample::empty(state.time, NO_FLOW)
        }));
        samples.sort_by_key(|sample| sample.time);
        let start = self.first.min(self.last);
        let last = samples.last().map_or(Time::ZERO, |sample| sample.time);
        let mut stop = self.last.max(last);
        let counts = &self.counts[side_of(direction) as usize];
        if self.protocol == Protocol::Udp {
            stop = stop.max(start + Span::from_ms(1));
            samples = counts.rows(stop);
        }
        Flow {
            name,
            direction,
            start,
            stop,
            bytes,
            has_ecn: self.has_ecn,
            protocol: self.protocol,
            keys: counts.keys(self.protocol, self.headers(), stop.since(start)),
            packets_of: None,
            samples,
        }
    }

    /// Returns the length of the IP header and the UDP or ICMP header.
    fn headers(&self) -> u64 {
        let is_v6 = match &self.remote {
            Remote::Address(address) => address.is_ipv6(),
            Remote::Named { is_v6, .. } => *is_v6,
        };
        if is_v6 { 40 + 8 } else { 20 + 8 }
    }
}

/// Returns the end that sends a direction's packets.
const fn side_of(direction: Direction) -> Side {
    match direction {
        Direction::Up => Side::Near,
        Direction::Down => Side::Far,
    }
}

impl End {
    fn push(&mut self, cookie: u64, state: State) {
        if self.cookie != Some(cookie) {
            self.before = self.total().unwrap_or_default();
            self.cookie = Some(cookie);
        }
        let state = State {
            sent: self.before.sent + state.sent,
            received: self.before.received + state.received,
            retransmits: self.before.retransmits + state.retransmits,
            ..state
        };
        let is_same = |last: &State| {
            *last
                == State {
                    time: last.time,
                    ..state
                }
        };
        if !self.samples.last().is_some_and(is_same) {
            self.samples.push(state);
        }
    }

    fn total(&self) -> Option<State> {
        self.samples.last().copied()
    }
}

impl State {
    fn of(connection: &TcpConnection, time: Time) -> State {
        let info = connection.info.sample(time);
        State {
            time,
            cwnd: info.cwnd,
            ssthresh: info.ssthresh,
            mss: info.mss,
            srtt: info.srtt,
            min_rtt: info.min_rtt,
            retransmits: u64::from(info.retransmits),
            delivery_rate_bps: info.delivery_rate_bps,
            sent: info.bytes_sent.saturating_sub(info.bytes_retransmitted),
            received: connection.info.bytes_received,
        }
    }

    fn of_end(end: &EndState) -> State {
        let sender = &end.sender;
        let segments = |bytes: u64| bytes.checked_div(sender.mss).unwrap_or_default();
        State {
            time: end.at,
            cwnd: segments(sender.window.cwnd) as u32,
            ssthresh: match sender.window.ssthresh {
                u64::MAX => u32::MAX,
                bytes => segments(bytes) as u32,
            },
            mss: sender.mss as u32,
            srtt: sender.srtt.unwrap_or_default(),
            min_rtt: sender.min_rtt.unwrap_or_default(),
            retransmits: end.retransmits,
            delivery_rate_bps: sender.delivery_rate.map_or(0, Rate::as_bps),
            sent: end.sent,
            received: end.received,
        }
    }

    fn row(&self) -> FlowSample {
        FlowSample {
            cwnd: Some(u64::from(self.cwnd)),
            // Linux: TCP_INFINITE_SSTHRESH before the first reduction.
            ssthresh: Some(u64::from(self.ssthresh)).filter(|ssthresh| *ssthresh < 0x7fff_ffff),
            mss: Some(u64::from(self.mss)),
            srtt: Some(self.srtt).filter(|srtt| *srtt > Span::ZERO),
            min_rtt: Some(self.min_rtt).filter(|rtt| *rtt > Span::ZERO),
            retransmits: Some(self.retransmits),
            delivery_rate: Some(self.delivery_rate_bps).filter(|rate| *rate > 0),
            ..FlowSample::empty(self.time, NO_FLOW)
        }
    }
}

/// The only socket of an end whose connection is never replaced.
const ONLY: u64 = 0;
/// A direction that carries at most an initial window (RFC 6928: 10 segments of 1448 bytes) is not
/// a separate flow if the other direction is one.
const SMALL: u64 = 14_480;
/// The same for UDP, in packets: those of a DNS query are fewer.
const FEW: u64 = 10;

#[cfg(test)]
mod tests {
    use sluice_core::record::Fate;
    use sluice_core::{DropReason, Ecn};

    use super::*;

    fn address(text: &str) -> SocketAddr {
        text.parse().unwrap()
    }

    fn at(ms: u64) -> Time {
        Time::ZERO + Span::from_ms(ms)
    }

    /// A connection whose program sent `up` bytes and received `down`, each with the FIN that the
    /// receiver's kernel counts.
    fn connect(connections: &mut Connections, port: u16, remote: &str, up: u64, down: u64) {
        let ends = (
            SocketAddr::new("192.0.0.2".parse().unwrap(), port),
            address(remote),
        );
        let hash = u32::from(port);
        connections.saw(hash, Protocol::Tcp, ends.0, ends.1);
        connections.saw(hash + 1, Protocol::Tcp, ends.0, ends.1);
        connections.passed(hash, at(10));
        connections.passed(hash + 1, at(30));
        for (side, sent, received) in [(Side::Near, up, down + 1), (Side::Far, down, up + 1)] {
            let state = State {
                time: at(25),
                mss: 1448,
                cwnd: 10,
                sent,
                received,
                ..State::default()
            };
            connections.note(side, ends, 1, false, state);
            connections.note(
                side,
                ends,
                1,
                false,
                State {
                    time: at(28),
                    ..state
                },
            );
        }
    }

    #[test]
    fn a_connection_is_a_flow_in_the_direction_that_carried_more() {
        let mut connections = Connections::default();
        connect(&mut connections, 1000, "198.51.100.7:443", 500, 90_000);
        connect(&mut connections, 2000, "198.51.100.7:443", 90_000, 20_000);
        assert_eq!(
            [1000, 1001, 2000].map(|hash| connections.flow_of(hash)),
            [0, 0, 1]
        );
        assert_eq!(connections.flow_of(7), NO_FLOW);
        let flows = connections.into_flows(&Names::default());
        let seen: Vec<_> = flows
            .iter()
            .map(|flow| (flow.name.as_str(), flow.direction, flow.bytes))
            .collect();
        assert_eq!(
            seen,
            [
                ("198.51.100.7:443-1", Direction::Down, 90_000),
                ("198.51.100.7:443-2", Direction::Up, 90_000),
                // 20 000 bytes are more than an initial window, and 500 are less.
                ("198.51.100.7:443-2-down", Direction::Down, 20_000),
            ]
        );
        // Its packets have the number of the second connection.
        let shared: Vec<_> = flows.iter().map(|flow| flow.packets_of).collect();
        assert_eq!(shared, [None, None, Some(1)]);
        assert_eq!((flows[0].start, flows[0].stop), (at(10), at(30)));
        // There is one row for each end, because the second samples are the same.
        assert_eq!(flows[0].samples.len(), 2);
        assert_eq!(flows[0].samples[1].received_bytes, Some(90_000));
    }

    #[test]
    fn both_directions_of_a_call_are_flows() {
        let mut connections = Connections::default();
        let program = address("192.0.0.2:5000");
        let remotes = ["198.51.100.7:9000", "198.51.100.7:9001"].map(address);
        let packet = |hash, ms, fate| PacketRecord {
            seq: ms,
            packet: None,
            arrival: at(ms),
            flow: hash,
            len: 128,
            segments: 1,
            ecn: Ecn::NotEct,
            class: 0,
            fate,
            at: at(ms),
        };
        // 11 or 10 packets up, of which the first is lost, and 20 down.
        for ((remote, up), count) in remotes.into_iter().zip([1, 3]).zip([11, 10]) {
            let down = up + 1;
            connections.saw(up, Protocol::Udp, program, remote);
            connections.saw(down, Protocol::Udp, program, remote);
            for ms in 1..=20 {
                let lost = Fate::Dropped(DropReason::Loss);
                let fate = if ms == 1 { lost } else { Fate::Sent };
                let interval = Span::from_ms(5);
                if ms <= count {
                    connections.passed(up, at(ms));
                    let packet = packet(up, ms, fate);
                    connections.settled(Direction::Up.into(), 1, &packet, interval);
                }
                connections.passed(down, at(ms));
                let packet = packet(down, ms, Fate::Sent);
                connections.settled(Direction::Down.into(), 1, &packet, interval);
            }
        }
        let flows = connections.into_flows(&Names::default());
        let seen: Vec<_> = flows
            .iter()
            .map(|flow| (flow.name.as_str(), flow.direction, flow.packets_of))
            .collect();
        assert_eq!(
            seen,
            [
                ("198.51.100.7:9000-udp", Direction::Down, None),
                ("198.51.100.7:9001-udp", Direction::Down, None),
                // 11 packets are more than ten, and ten are not.
                ("198.51.100.7:9000-udp-up", Direction::Up, Some(0)),
            ]
        );
        let last = flows[2].samples.last().unwrap();
        let counted = (last.sent_packets, last.received_packets);
        assert_eq!(counted, (Some(11), Some(10)));
        // 11 packets of 128 bytes in 19 ms, from the first packet to the last of both directions.
        let rate = 11 * 128 * 8 * 1000 / 19;
        assert_eq!(
            flows[2].keys,
            format!("rate = \"{rate}bit/s\"\nsize = 100\n")
        );
    }

    #[test]
    fn a_later_connection_with_the_same_addresses_goes_on_counting() {
        let mut connections = Connections::default();
        connect(&mut connections, 1000, "198.51.100.7:80", 100, 1000);
        let ends = (address("192.0.0.2:1000"), address("198.51.100.7:80"));
        for (side, sent, received) in [(Side::Near, 100, 500), (Side::Far, 500, 100)] {
            let state = State {
                time: at(60),
                sent,
                received,
                ..State::default()
            };
            connections.note(side, ends, 2, false, state);
        }
        let flows = connections.into_flows(&Names::default());
        assert_eq!((flows.len(), flows[0].bytes), (1, 1500));
        assert_eq!(flows[0].name, "198.51.100.7:80");
    }

    #[test]
    fn forwarded_connections_have_the_name_of_their_port() {
        let [arrival, far] = ["192.0.0.2:40000", "192.0.0.1:53326"].map(address);
        let mut connections = Connections::forwarding(BTreeMap::from([(arrival, 3000)]));
        connections.saw(1, Protocol::Tcp, arrival, far);
        connections.saw(2, Protocol::Tcp, arrival, address("192.0.0.1:35744"));
        connections.saw(3, Protocol::Tcp, address("192.0.0.2:40001"), far);
        connections.saw(4, Protocol::Udp, arrival, address("198.51.100.7:9000"));
        let flows = connections.into_flows(&Names::default());
        let names: Vec<&str> = flows.iter().map(|flow| flow.name.as_str()).collect();
        let expected = [
            "localhost:3000-1",
            "localhost:3000-2",
            "far.sluice:53326",
            "198.51.100.7:9000-udp",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn a_refused_connection_is_a_flow_without_payload() {
        let mut connections = Connections::default();
        connections.saw(
            5,
            Protocol::Tcp,
            address("192.0.0.2:1"),
            address("[2001:db8::7]:99"),
        );
        connections.passed(5, at(1));
        let flows = connections.into_flows(&Names::default());
        assert_eq!((flows[0].bytes, flows[0].samples.len()), (0, 0));
        assert_eq!(flows[0].name, "[2001:db8::7]:99");
    }
}
