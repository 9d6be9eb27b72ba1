//! The packets at the program's end of the link, as Ethernet frames for a capture.
//!
//! The frames look like those of `sluice exec` with namespaces: the program is 192.0.0.2, or its
//! IPv6 address, with a port of its own for each connection. The payload is that of the stream; a
//! retransmission of bytes that the receiver has read already has only its headers, and so do
//! questions about names, which the engine does not have as bytes.

use std::net::{IpAddr, SocketAddr};

use etherparse::{
    IpEcn, IpHeaders, IpNumber, Ipv4Header, Ipv6Header, PacketBuilder, PacketBuilderStep,
    TcpHeader, TcpOptionElement,
};
use sluice_core::{Ecn, Packet, Time};
use sluice_exec::{Frame, Frames, Unreachable};
use sluice_tcp::{Flags, Segment};

use super::pair::Pair;
use super::parcels::{Load, Parcel};
use super::{Engine, Id, Refusal, Side};

impl Engine {
    /// Sends a frame for each packet at the program's end to `frames` from now on.
    pub fn capture(&mut self, frames: Frames) {
        self.frames = Some(frames);
    }

    /// Ends the capture.
    pub fn end_capture(&mut self) {
        self.frames = None;
    }

    /// Captures a packet that the program's end sends or receives at the current instant.
    pub(super) fn tap(&self, packet: &Packet) {
        let Some(frames) = &self.frames else {
            return;
        };
        let parcel = self.parcels.get(packet.slot);
        let Some(mut bytes) = self.frame(parcel, packet) else {
            return;
        };
        if parcel.is_damaged
            && let Some(last) = bytes.last_mut()
        {
            *last ^= 1;
        }
        frames.send(Frame {
            at: self.clock,
            is_inbound: parcel.to == Side::Near,
            original_len: packet.len + ETHERNET,
            bytes,
        });
    }

    fn frame(&self, parcel: &Parcel, packet: &Packet) -> Option<Vec<u8>> {
        let ends = match self.pair(parcel.id) {
            Some(pair) => pair.place,
            None => {
                let [resolver, _] = sluice_exec::resolver_addresses();
                place(parcel.id, SocketAddr::new(resolver, DNS))
            }
        };
        let [source, destination] = match parcel.to {
            Side::Far => ends,
            Side::Near => [ends[1], ends[0]],
        };
        let mut bytes = Vec::with_capacity((packet.len + ETHERNET) as usize);
        match &parcel.load {
            Load::Segment(segment) => {
                let payload = self.pair(parcel.id)?.payload(parcel.to.other(), segment);
                let zeros = vec![0; segment.len as usize];
                addressed(source, destination, packet.ecn)?
                    .tcp_header(tcp(source.port(), destination.port(), segment))
                    .write(&mut bytes, payload.as_ref().unwrap_or(&zeros))
                    .ok()?;
                if payload.is_none() {
                    bytes.truncate(bytes.len() - zeros.len());
                }
            }
            Load::Refusal(refusal) => {
                let syn = Segment {
                    seq: self.pair(parcel.id)?.isn,
                    flags: Flags::SYN,
                    ..Segment::default()
                };
                let mut opened = Vec::new();
                addressed(destination, source, Ecn::NotEct)?
                    .tcp_header(tcp(destination.port(), source.port(), &syn))
                    .write(&mut opened, &[])
                    .ok()?;
                bytes = match unreachable(*refusal) {
                    None => sluice_exec::reset(&opened)?,
                    Some(why) => sluice_exec::unreachable(&opened, why)?,
                };
            }
            Load::Datagram => {
                let zeros = vec![0; packet.len.saturating_sub(UDP_HEADERS) as usize];
                addressed(source, destination, packet.ecn)?
                    .udp(source.port(), destination.port())
                    .write(&mut bytes, &zeros)
                    .ok()?;
                bytes.truncate(bytes.len() - zeros.len());
            }
        }
        Some(bytes)
    }
}

impl Pair {
    /// Returns the payload of a segment that `from` sends, if the receiver has not read it.
    fn payload(&self, from: Side, segment: &Segment) -> Option<Vec<u8>> {
        let stream = &self.streams[from.index()];
        // The first byte follows the SYN.
        let first = self.isn.wrapping_add(1).wrapping_add(stream.taken() as u32);
        let start = segment.seq.wrapping_sub(first) as usize;
        let end = start.checked_add(segment.len as usize)?;
        let is_there = segment.len == 0 || end <= stream.bytes.len();
        is_there.then(|| match segment.len {
            0 => Vec::new(),
            _ => stream.bytes.range(start..end).copied().collect(),
        })
    }
}

/// Returns the addresses of the program and of a connection's far end.
pub fn place(id: Id, remote: SocketAddr) -> [SocketAddr; 2] {
    let [v4, v6] = sluice_exec::program_addresses();
    let own = if remote.is_ipv4() { v4 } else { v6 };
    let port = FIRST_PORT + (id.generation % PORTS) as u16;
    [SocketAddr::new(own, port), remote]
}

/// Begins a frame from `source` to `destination`.
fn addressed(
    source: SocketAddr,
    destination: SocketAddr,
    ecn: Ecn,
) -> Option<PacketBuilderStep<IpHeaders>> {
    let [program, far] = sluice_exec::link_addresses();
    let is_sent = sluice_exec::program_addresses().contains(&source.ip());
    let frame = match is_sent {
        true => PacketBuilder::ethernet2(program, far),
        false => PacketBuilder::ethernet2(far, program),
    };
    let ip = match (source.ip(), destination.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let (source, destination) = (source.octets(), destination.octets());
            let header = Ipv4Header::new(0, HOPS, IpNumber::TCP, source, destination);
            let header = Ipv4Header {
                ecn: IpEcn::try_new(ecn as u8).ok()?,
                ..header.ok()?
            };
            IpHeaders::Ipv4(header, Default::default())
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            let header = Ipv6Header {
                traffic_class: ecn as u8,
                hop_limit: HOPS,
                source: source.octets(),
                destination: destination.octets(),
                ..Ipv6Header::default()
            };
            IpHeaders::Ipv6(header, Default::default())
        }
        _ => return None,
    };
    Some(frame.ip(ip))
}

/// Returns the header of a segment. Timestamps tick in milliseconds, as in Linux.
fn tcp(source: u16, destination: u16, segment: &Segment) -> TcpHeader {
    let has = |flag| segment.flags.has(flag);
    let mut header = TcpHeader::new(source, destination, segment.seq, segment.window);
    header.acknowledgment_number = segment.ack;
    header.fin = has(Flags::FIN);
    header.syn = has(Flags::SYN);
    header.rst = has(Flags::RST);
    header.psh = has(Flags::PSH);
    header.ack = has(Flags::ACK);
    header.ece = has(Flags::ECE);
    header.cwr = has(Flags::CWR);
    header.ns = has(Flags::AE);
    // The clock starts at 1000, so that no timestamp is 0, which means "none".
    let tick = |time: Time| (time.as_ns() / 1_000_000) as u32 + 1000;
    let echo = match segment.ts_echo {
        Time::ZERO => 0,
        time => tick(time),
    };
    let timestamps = TcpOptionElement::Timestamp(tick(segment.ts), echo);
    let blocks = segment.sacks();
    let block = |index: usize| blocks.get(index).map(|block| (block.start, block.end));
    use TcpOptionElement::*;
    let options = match (header.syn, header.rst, block(0)) {
        (_, true, _) => vec![],
        (true, ..) => vec![
            MaximumSegmentSize(segment.mss.saturating_add(TIMESTAMPS)),
            SelectiveAcknowledgementPermitted,
            timestamps,
            Noop,
            WindowScale(segment.wscale),
        ],
        (false, false, None) => vec![Noop, Noop, timestamps],
        (false, false, Some(first)) => {
            let more = SelectiveAcknowledgement(first, [block(1), block(2), None]);
            vec![Noop, Noop, timestamps, Noop, Noop, more]
        }
    };
    let fits = header.set_options(&options);
    fits.expect("timestamps and three blocks fit into 40 bytes (RFC 2018 section 3)");
    header
}

/// Returns the ICMP error of a refusal; `None` for a reset.
const fn unreachable(refusal: Refusal) -> Option<Unreachable> {
    match refusal {
        Refusal::Closed | Refusal::Silence => None,
        Refusal::Network => Some(Unreachable::Network),
        Refusal::Host => Some(Unreachable::Host),
        Refusal::Prohibited => Some(Unreachable::Prohibited),
    }
}

/// Bytes of an Ethernet header.
const ETHERNET: u32 = 14;
/// An IPv4 header and a UDP header.
const UDP_HEADERS: u32 = 28;
/// Bytes of timestamps in each segment, which the MSS option does not count (RFC 6691 section 2).
const TIMESTAMPS: u16 = 12;
const HOPS: u8 = 64;
const DNS: u16 = 53;
/// Linux: `net.ipv4.ip_local_port_range` is 32768 to 60999.
const FIRST_PORT: u16 = 32_768;
const PORTS: u32 = 28_232;
