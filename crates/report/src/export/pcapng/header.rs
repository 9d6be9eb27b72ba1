//! The headers of the packets in a capture: IPv4, and TCP, UDP or ICMP.
//!
//! Checksums are computed as if the payload were zeros, which add nothing to the sum. So they are
//! correct for packets without payload. Payload is never part of a capture.

use sluice_core::{Ecn, Time};
use sluice_recording::headers::{SYN, TcpHeader};
use sluice_recording::{NO_FLOW, PacketRow};
use sluice_scenario::{Direction, FlowInstance, FlowKind, Hosts, Protocol};
use sluice_wire::frame::Sum;

/// A packet that a simulated host sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    /// Number of the packet.
    pub packet: u64,
    pub is_from_client: bool,
    pub content: Content,
    /// The arrival at the first queue of its path, which is the instant at which it was sent.
    pub at: Time,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Content {
    Tcp(TcpHeader),
    /// An echo message with the number of its probe.
    Echo(u64),
}

/// Fills `bytes` with the headers of a packet.
pub(super) fn write(
    row: &PacketRow,
    ecn: Ecn,
    flow: Option<&FlowInstance<'_>>,
    sent: Option<&Sent>,
    bytes: &mut Vec<u8>,
) {
    bytes.clear();
    let direction = row.pipe.direction();
    let Some(flow) = flow else {
        debug_assert_eq!(row.record.flow, NO_FLOW, "a flow has its number");
        ip(row, ecn, 0, (EXPERIMENT, [1, 1]), bytes);
        bytes.extend([0; 4]);
        return;
    };
    let kind = &flow.flow.kind;
    let is_echo = matches!(kind, FlowKind::Ping(ping) if ping.protocol == Protocol::Icmp);
    let protocol = match (is_echo, kind.tcp()) {
        (true, _) => ICMP,
        (false, Some(_)) => TCP,
        (false, None) => UDP,
    };
    let hosts = [flow.flow.host_up, flow.flow.host_down];
    ip(row, ecn, kind.dscp().value(), (protocol, hosts), bytes);
    let is_from_client = match sent {
        Some(sent) => sent.is_from_client,
        None => flow.flow.direction == direction,
    };
    let number = flow.id as u16;
    let connection = match sent.map(|sent| sent.content) {
        Some(Content::Tcp(tcp)) => tcp.connection,
        _ => 0,
    };
    // Each end of 10 000 flows has its own port. Dynamic ports start at 49152 (RFC 6335 section 6).
    let client = 49_152 + (connection % 16_384) as u16;
    let ports = match is_from_client {
        true => [client, SERVER_PORT + number],
        false => [SERVER_PORT + number, client],
    };
    let [source, destination] = ports.map(u16::to_be_bytes);
    match sent.map(|sent| (sent.content, sent.at)) {
        Some((Content::Tcp(header), at)) => {
            bytes.extend(source);
            bytes.extend(destination);
            tcp(&header, at, bytes);
            finish(row, protocol, IP_LEN + 16, bytes);
        }
        Some((Content::Echo(probe), _)) => {
            echo(is_from_client, bytes);
            bytes.extend(number.to_be_bytes());
            bytes.extend((probe as u16).to_be_bytes());
            finish(row, protocol, IP_LEN + 2, bytes);
        }
        // The identifier and the number of a live echo message are not recorded, nor is the rest
        // of a live TCP header.
        None if is_echo => echo(is_from_client, bytes),
        None => {
            bytes.extend(source);
            bytes.extend(destination);
            if protocol == UDP {
                let length = row.record.len.saturating_sub(IP_LEN as u32);
                bytes.extend(u16::try_from(length).unwrap_or(0).to_be_bytes());
                bytes.extend([0; 2]);
                finish(row, protocol, IP_LEN + 6, bytes);
            }
        }
    }
}

fn ip(
    row: &PacketRow,
    ecn: Ecn,
    dscp: u8,
    (protocol, [up, down]): (u8, [u64; 2]),
    bytes: &mut Vec<u8>,
) {
    let up = Hosts::address(Direction::Up, up).octets();
    let down = Hosts::address(Direction::Down, down).octets();
    let (source, destination) = match row.pipe.direction() {
        Direction::Up => (up, down),
        Direction::Down => (down, up),
    };
    // The identification is the low bits of the packet's number, which is the same in all queues.
    let identification = row.record.packet.unwrap_or(row.record.seq) as u16;
    // A super-packet may be longer than the field allows. Wireshark interprets 0 as such a packet
    // (TSO).
    let total = u16::try_from(row.record.len).unwrap_or(0);
    bytes.extend([0x45, dscp << 2 | ecn as u8]);
    bytes.extend(total.to_be_bytes());
    bytes.extend(identification.to_be_bytes());
    // Don't fragment, time to live 64, protocol, and space for the checksum.
    bytes.extend([0x40, 0, 64, protocol, 0, 0]);
    bytes.extend(source);
    bytes.extend(destination);
    let mut sum = Sum::new();
    sum.add(bytes);
    bytes[10..12].copy_from_slice(&sum.finish().to_be_bytes());
}

/// Writes the TCP header after both ports, still without the checksum.
fn tcp(header: &TcpHeader, sent: Time, bytes: &mut Vec<u8>) {
    let sacks = header.sacks();
    let options = match (header.flags & SYN != 0, sacks.len()) {
        (true, _) => 20,
        (false, 0) => 12,
        (false, blocks) => 12 + 4 + 8 * blocks,
    };
    let words = (20 + options) as u16 / 4;
    bytes.extend(header.seq.to_be_bytes());
    bytes.extend(header.ack.to_be_bytes());
    bytes.extend((words << 12 | header.flags).to_be_bytes());
    bytes.extend(header.window.to_be_bytes());
    bytes.extend([0; 4]);
    // The clock starts at 1000, so that no timestamp is 0, which means "none".
    let value = (sent.as_ns() / TICK_NS) as u32 + 1000;
    let echo = header.echo_age.map_or(0, |age| value.wrapping_sub(age));
    let mut timestamps = [8, 10, 0, 0, 0, 0, 0, 0, 0, 0];
    timestamps[2..6].copy_from_slice(&value.to_be_bytes());
    timestamps[6..].copy_from_slice(&echo.to_be_bytes());
    match header.syn {
        // Linux's order: MSS, SACK permitted, timestamps, NOP, window scale.
        Some((mss, scale)) => {
            bytes.extend([2, 4]);
            bytes.extend(mss.to_be_bytes());
            bytes.extend([4, 2]);
            bytes.extend(timestamps);
            bytes.extend([1, 3, 3, scale]);
        }
        None => {
            bytes.extend([1, 1]);
            bytes.extend(timestamps);
        }
    }
    if header.syn.is_none() && !sacks.is_empty() {
        bytes.extend([1, 1, 5, 2 + 8 * sacks.len() as u8]);
        for (start, end) in sacks {
            bytes.extend(start.to_be_bytes());
            bytes.extend(end.to_be_bytes());
        }
    }
}

/// RFC 792: type 8 is a request, 0 a reply; then code and checksum.
fn echo(is_request: bool, bytes: &mut Vec<u8>) {
    bytes.extend([if is_request { 8 } else { 0 }, 0, 0, 0]);
}

/// Writes the checksum of the transport header, whose field is at `field`.
fn finish(row: &PacketRow, protocol: u8, field: usize, bytes: &mut [u8]) {
    let Ok(total) = u16::try_from(row.record.len) else {
        // The length of a super-packet does not fit into the pseudo-header. A checksum of 0 means
        // none.
        return;
    };
    let mut sum = Sum::new();
    if protocol != ICMP {
        // RFC 9293 section 3.1, RFC 768: addresses, protocol, length.
        sum.add(&bytes[12..IP_LEN]);
        sum.add_word(u16::from(protocol));
        sum.add_word(total.saturating_sub(IP_LEN as u16));
    }
    sum.add(&bytes[IP_LEN..]);
    let sum = match sum.finish() {
        // RFC 768: a computed 0 is sent as ones.
        0 if protocol == UDP => 0xffff,
        sum => sum,
    };
    bytes[field..field + 2].copy_from_slice(&sum.to_be_bytes());
}

/// The largest headers: 20 of IP, 60 of TCP.
pub(super) const MOST: usize = 80;

const IP_LEN: usize = 20;
/// The far end of flow n has this port plus n.
const SERVER_PORT: u16 = 5000;
const TICK_NS: u64 = 1_000_000;
const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
/// RFC 3692: for experiments.
const EXPERIMENT: u8 = 253;
