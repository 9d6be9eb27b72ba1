//! Answers on behalf of hosts outside: resets and ICMP errors.

use std::net::IpAddr;

use etherparse::{NetHeaders, PacketBuilder, PacketHeaders, TransportHeader};
use sluice_net::namespace::Mac;

use crate::network::{Place, mac};

/// The reason why a packet cannot reach its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// No route leads there.
    Network,
    /// The host does not answer its neighbours.
    Host,
    /// The host has no socket at the port.
    Port,
    /// A rule forbids it.
    Prohibited,
}

impl Unreachable {
    /// Returns the codes of ICMP (RFC 792, RFC 1812 section 5.2.7.1) and ICMPv6 (RFC 4443 section
    /// 3.1).
    const fn codes(self) -> (u8, u8) {
        match self {
            Unreachable::Network => (0, 0),
            Unreachable::Host => (1, 3),
            Unreachable::Port => (3, 4),
            Unreachable::Prohibited => (13, 1),
        }
    }
}

/// Returns the reset that refuses a SYN (RFC 9293 section 3.5.2, rule 1).
pub fn reset(syn: &[u8]) -> Option<Vec<u8>> {
    let packet = PacketHeaders::from_ethernet_slice(syn).ok()?;
    let Some(TransportHeader::Tcp(tcp)) = &packet.transport else {
        return None;
    };
    let payload = packet.payload.slice().len() as u32;
    let next = tcp.sequence_number.wrapping_add(1).wrapping_add(payload);
    let (Mac(from), Mac(to)) = (mac(Place::Far), mac(Place::Program));
    let frame = PacketBuilder::ethernet2(from, to);
    let frame = match packet.net? {
        NetHeaders::Ipv4(ip, _) => frame.ipv4(ip.destination, ip.source, HOPS),
        NetHeaders::Ipv6(ip, _) => frame.ipv6(ip.destination, ip.source, HOPS),
        NetHeaders::Arp(_) => return None,
    };
    let frame = frame
        .tcp(tcp.destination_port, tcp.source_port, 0, 0)
        .rst()
        .ack(next);
    let mut bytes = Vec::with_capacity(frame.size(0));
    frame.write(&mut bytes, &[]).ok()?;
    Some(bytes)
}

/// Returns the ICMP error for a packet.
pub fn unreachable(packet: &[u8], why: Unreachable) -> Option<Vec<u8>> {
    let ip = packet.get(ETHERNET..)?;
    let headers = PacketHeaders::from_ethernet_slice(packet).ok()?;
    let (Mac(from), Mac(to)) = (mac(Place::Far), mac(Place::Program));
    let frame = PacketBuilder::ethernet2(from, to);
    let (v4, v6) = why.codes();
    let mut bytes = Vec::new();
    match headers.net? {
        NetHeaders::Ipv4(header, _) => {
            let cited = &ip[..ip.len().min(CITED_V4)];
            let source = sender(why, IpAddr::from(header.destination));
            let IpAddr::V4(source) = source else {
                return None;
            };
            frame
                .ipv4(source.octets(), header.source, HOPS)
                .icmpv4_raw(3, v4, [0; 4])
                .write(&mut bytes, cited)
                .ok()?;
        }
        NetHeaders::Ipv6(header, _) => {
            let cited = &ip[..ip.len().min(CITED_V6)];
            let source = sender(why, IpAddr::from(header.destination));
            let IpAddr::V6(source) = source else {
                return None;
            };
            frame
                .ipv6(source.octets(), header.source, HOPS)
                .icmpv6_raw(1, v6, [0; 4])
                .write(&mut bytes, cited)
                .ok()?;
        }
        NetHeaders::Arp(_) => return None,
    }
    Some(bytes)
}

/// Returns the sender of an error: the host itself if a port is closed, otherwise a router.
fn sender(why: Unreachable, destination: IpAddr) -> IpAddr {
    let [v4, v6] = Place::Far.addresses();
    match (why, destination) {
        (Unreachable::Port, host) => host,
        (_, IpAddr::V4(_)) => v4,
        (_, IpAddr::V6(_)) => v6,
    }
}

/// Bytes of an Ethernet header.
const ETHERNET: usize = 14;
/// The hop limit of an answer.
const HOPS: u8 = 64;
/// The largest number of bytes of a packet in an error: RFC 1812 section 4.3.2.3 allows 576 with 28
/// of headers.
const CITED_V4: usize = 576 - 28;
/// RFC 4443 section 2.4 (c): no more than the least MTU, 1280, with 48 of headers.
const CITED_V6: usize = 1280 - 48;

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::Icmpv4Type;
    use etherparse::icmpv4::DestUnreachableHeader;

    fn syn() -> Vec<u8> {
        let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 2], [2, 0, 0, 0, 0, 1])
            .ipv4([192, 0, 0, 2], [198, 51, 100, 7], 64)
            .tcp(40_000, 80, u32::MAX, 1000)
            .syn();
        let mut frame = Vec::new();
        builder.write(&mut frame, &[]).unwrap();
        frame
    }

    #[test]
    fn a_reset_acknowledges_the_syn_it_refuses() {
        let answer = reset(&syn()).unwrap();
        let packet = PacketHeaders::from_ethernet_slice(&answer).unwrap();
        let Some(TransportHeader::Tcp(tcp)) = packet.transport else {
            panic!("{packet:?}");
        };
        assert!(tcp.rst && tcp.ack && !tcp.syn);
        // RFC 9293: <SEQ=0><ACK=SEG.SEQ+SEG.LEN><CTL=RST,ACK>; a SYN counts one, modulo 2^32.
        assert_eq!((tcp.sequence_number, tcp.acknowledgment_number), (0, 0));
        assert_eq!((tcp.source_port, tcp.destination_port), (80, 40_000));
        let Some(NetHeaders::Ipv4(ip, _)) = packet.net else {
            panic!("IPv4");
        };
        assert_eq!(tcp.checksum, tcp.calc_checksum_ipv4(&ip, &[]).unwrap());
        assert_eq!(ip.source, [198, 51, 100, 7]);
    }

    #[test]
    fn an_error_cites_the_packet_and_names_its_sender() {
        for (why, code, source) in [
            (
                Unreachable::Host,
                DestUnreachableHeader::Host,
                [192, 0, 0, 1],
            ),
            (
                Unreachable::Port,
                DestUnreachableHeader::Port,
                [198, 51, 100, 7],
            ),
        ] {
            let answer = unreachable(&syn(), why).unwrap();
            let packet = PacketHeaders::from_ethernet_slice(&answer).unwrap();
            let Some(TransportHeader::Icmpv4(icmp)) = packet.transport else {
                panic!("{packet:?}");
            };
            assert_eq!(icmp.icmp_type, Icmpv4Type::DestinationUnreachable(code));
            assert_eq!(packet.payload.slice(), &syn()[ETHERNET..]);
            let Some(NetHeaders::Ipv4(ip, _)) = packet.net else {
                panic!("IPv4");
            };
            assert_eq!(ip.source, source);
        }
    }
}
