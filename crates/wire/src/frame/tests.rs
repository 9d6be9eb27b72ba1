//! Oracle for parsing and checksums: `etherparse`. Everything else is arithmetic from the
//! headers' definitions.

mod super_packets;
mod tunnels;

use super::*;
use etherparse::{
    Ethernet2Header, IpNumber, Ipv4Header, Ipv6Header, NetSlice, PacketBuilder, SlicedPacket,
    TransportSlice, UdpHeader,
};
use proptest::prelude::*;

#[derive(Clone, Debug)]
struct Sample {
    v6: bool,
    tcp: bool,
    vlans: u8,
    options: usize,
    ecn: u8,
    dscp: u8,
    id: u16,
    sequence: u32,
    flags: u8,
    ports: (u16, u16),
    payload: Vec<u8>,
}

fn sample(max_payload: usize) -> impl Strategy<Value = Sample> {
    (
        any::<(bool, bool)>(),
        0u8..3,
        0usize..11,
        (0u8..4, 0u8..64),
        any::<(u16, u32, u8)>(),
        any::<(u16, u16)>(),
        proptest::collection::vec(any::<u8>(), 0..max_payload),
    )
        .prop_map(
            |((v6, tcp), vlans, options, (ecn, dscp), (id, sequence, flags), ports, payload)| {
                Sample {
                    v6,
                    tcp,
                    vlans,
                    options,
                    ecn,
                    dscp,
                    id,
                    sequence,
                    flags,
                    ports,
                    payload,
                }
            },
        )
}

/// Returns the frame of `sample` with correct checksums.
fn frame(sample: &Sample) -> Vec<u8> {
    let mut bytes = Vec::new();
    let protocol = if sample.tcp {
        IpNumber::TCP
    } else {
        IpNumber::UDP
    };
    let mut tcp = etherparse::TcpHeader::new(sample.ports.0, sample.ports.1, sample.sequence, 77);
    let f = sample.flags;
    tcp.fin = f & 1 != 0;
    tcp.syn = f & 2 != 0;
    tcp.rst = f & 4 != 0;
    tcp.psh = f & 8 != 0;
    tcp.ack = f & 16 != 0;
    tcp.urg = f & 32 != 0;
    tcp.ece = f & 64 != 0;
    tcp.cwr = f & 128 != 0;
    tcp.set_options_raw(&vec![1; sample.options.min(10) * 4])
        .expect("at most 40 bytes of options");
    let transport_len = sample.payload.len() + if sample.tcp { tcp.header_len() } else { 8 };
    let udp_len = (8 + sample.payload.len()) as u16;
    let mut link = Ethernet2Header {
        source: [2, 0, 0, 0, 0, 1],
        destination: [2, 0, 0, 0, 0, 2],
        ether_type: if sample.v6 { 0x86dd } else { 0x0800 }.into(),
    };
    let inner = link.ether_type;
    if sample.vlans > 0 {
        link.ether_type = 0x88a8.into();
    }
    link.write(&mut bytes).unwrap();
    for tag in 0..sample.vlans {
        bytes.extend_from_slice(&[0, 5 + tag]);
        let next = if tag + 1 < sample.vlans {
            0x8100
        } else {
            inner.0
        };
        bytes.extend_from_slice(&next.to_be_bytes());
    }
    let mut udp = UdpHeader {
        source_port: sample.ports.0,
        destination_port: sample.ports.1,
        length: udp_len,
        checksum: 0,
    };
    if sample.v6 {
        let mut ip = Ipv6Header {
            traffic_class: sample.dscp << 2 | sample.ecn,
            payload_length: transport_len as u16,
            next_header: protocol,
            hop_limit: 64,
            source: [0xfd; 16],
            destination: [0xfc; 16],
            ..Default::default()
        };
        ip.destination[15] = sample.id as u8;
        tcp.checksum = tcp.calc_checksum_ipv6(&ip, &sample.payload).unwrap();
        udp.checksum = udp.calc_checksum_ipv6(&ip, &sample.payload).unwrap();
        ip.write(&mut bytes).unwrap();
    } else {
        let mut ip = Ipv4Header::new(
            transport_len as u16,
            64,
            protocol,
            [10, 1, 0, 1],
            [10, 1, 0, sample.id as u8],
        )
        .unwrap();
        ip.dscp = sample.dscp.try_into().unwrap();
        ip.ecn = sample.ecn.try_into().unwrap();
        ip.identification = sample.id;
        if !sample.tcp {
            // IP options where TCP has options too, so that both offsets vary.
            ip.options = vec![1u8; sample.options.min(10) * 4]
                .as_slice()
                .try_into()
                .unwrap();
            ip.set_payload_len(transport_len).unwrap();
        }
        ip.header_checksum = ip.calc_header_checksum();
        tcp.checksum = tcp.calc_checksum_ipv4(&ip, &sample.payload).unwrap();
        udp.checksum = udp.calc_checksum_ipv4(&ip, &sample.payload).unwrap();
        ip.write(&mut bytes).unwrap();
    }
    if sample.tcp {
        tcp.write(&mut bytes).unwrap();
    } else {
        udp.write(&mut bytes).unwrap();
    }
    bytes.extend_from_slice(&sample.payload);
    bytes
}

/// Asserts that the lengths and all checksums of `bytes` are correct. Returns its payload.
fn verified_payload(bytes: &[u8]) -> Vec<u8> {
    let packet = SlicedPacket::from_ethernet(bytes).expect("a well-formed frame");
    let payload = match packet.transport.as_ref().expect("a transport header") {
        TransportSlice::Tcp(tcp) => {
            let header = tcp.to_header();
            let expected = match packet.net.as_ref().unwrap() {
                NetSlice::Ipv4(ip) => {
                    header.calc_checksum_ipv4(&ip.header().to_header(), tcp.payload())
                }
                NetSlice::Ipv6(ip) => {
                    header.calc_checksum_ipv6(&ip.header().to_header(), tcp.payload())
                }
                NetSlice::Arp(_) => unreachable!("no ARP is built here"),
            }
            .unwrap();
            assert_eq!(header.checksum, expected, "TCP checksum");
            tcp.payload().to_vec()
        }
        TransportSlice::Udp(udp) => {
            let header = udp.to_header();
            assert_eq!(usize::from(header.length), 8 + udp.payload().len());
            let expected = match packet.net.as_ref().unwrap() {
                NetSlice::Ipv4(ip) => {
                    header.calc_checksum_ipv4(&ip.header().to_header(), udp.payload())
                }
                NetSlice::Ipv6(ip) => {
                    header.calc_checksum_ipv6(&ip.header().to_header(), udp.payload())
                }
                NetSlice::Arp(_) => unreachable!("no ARP is built here"),
            }
            .unwrap();
            assert_eq!(header.checksum, expected, "UDP checksum");
            udp.payload().to_vec()
        }
        other => panic!("unexpected transport {other:?}"),
    };
    if let Some(NetSlice::Ipv4(ip)) = &packet.net {
        let header = ip.header().to_header();
        assert_eq!(header.header_checksum, header.calc_header_checksum());
    }
    payload
}

proptest! {
    #[test]
    fn parse_never_panics_on_random_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200), link in any::<bool>(), frame_len in 0usize..3000) {
        let link = if link { Link::Ethernet } else { Link::Ip };
        let view = parse_head(&bytes, frame_len, link);
        let mut marked = bytes.clone();
        set_ce(&mut marked, &view);
        prop_assert!(u32::from(view.network) + view.ip_len <= (frame_len as u32).max(u32::from(view.network)));
        let vnet = VnetHeader { gso_type: 1, gso_size: 48, ..VnetHeader::default() };
        if let Ok(packet) = SuperPacket::new(&view, &vnet) {
            let gather = Gather { head: &bytes, tail: &[] };
            packet.write_segment(packet.segments() - 1, gather, Checksums::Complete, &mut [0; 256]);
        }
    }

    #[test]
    fn damaged_real_frames_never_panic(sample in sample(60), cut in 0usize..150, at in 0usize..100, value in any::<u8>()) {
        let mut bytes = frame(&sample);
        if let Some(byte) = bytes.get_mut(at) { *byte = value; }
        bytes.truncate(cut.max(1));
        let view = parse(&bytes);
        let (mut trimmed, mut shorter) = (bytes.clone(), view);
        if trim(&mut trimmed, &mut shorter, &VnetHeader::default()) {
            trimmed.truncate(shorter.frame_len as usize);
            prop_assert_eq!(parse(&trimmed), shorter);
        }
        set_ce(&mut bytes, &view);
        for gso_type in [1, 4, 5] {
            let vnet = VnetHeader { gso_type, gso_size: 48, ..VnetHeader::default() };
            if let Ok(packet) = SuperPacket::new(&view, &vnet) {
                for index in 0..packet.segments() {
                    packet.write_segment(index, Gather { head: &bytes, tail: &[] }, Checksums::Complete, &mut [0; 512]);
                }
            }
        }
    }

    #[test]
    fn parse_agrees_with_etherparse(sample in sample(100), padding in 0usize..20) {
        let mut bytes = frame(&sample);
        let end = bytes.len();
        bytes.resize(end + padding, 0xee);
        let view = parse(&bytes);
        prop_assert_eq!(view.fault, None);
        let oracle = SlicedPacket::from_ethernet(&bytes).unwrap();
        prop_assert_eq!(view.vlans, sample.vlans);
        prop_assert_eq!(view.vlan, (sample.vlans > 0).then_some(5));
        prop_assert_eq!(usize::from(view.network) + view.ip_len as usize, end);
        prop_assert_eq!((view.dscp, view.ecn), (sample.dscp, sample.ecn));
        prop_assert_eq!(view.ports(), Some(sample.ports));
        match oracle.net.as_ref().unwrap() {
            NetSlice::Ipv4(ip) => prop_assert_eq!(view.addresses, Addresses::V4 { source: ip.header().source_addr(), destination: ip.header().destination_addr() }),
            NetSlice::Ipv6(ip) => prop_assert_eq!(view.addresses, Addresses::V6 { source: ip.header().source_addr(), destination: ip.header().destination_addr() }),
            NetSlice::Arp(_) => unreachable!("no ARP is built here"),
        }
        match oracle.transport.as_ref().unwrap() {
            TransportSlice::Tcp(tcp) => {
                prop_assert_eq!(view.transport, Transport::Tcp { source: tcp.source_port(), destination: tcp.destination_port(), flags: sample.flags, header_len: tcp.data_offset() * 4 });
                prop_assert_eq!(usize::from(view.transport_at), end - tcp.slice().len());
            }
            TransportSlice::Udp(udp) => {
                prop_assert_eq!(view.transport, Transport::Udp { source: udp.source_port(), destination: udp.destination_port() });
                prop_assert_eq!(usize::from(view.transport_at), end - udp.slice().len());
            }
            other => panic!("unexpected transport {other:?}"),
        }
        // The bare IP packet gives the same result, and so does the head alone.
        let network = usize::from(view.network);
        let bare = parse_head(&bytes[network..], bytes.len() - network, Link::Ip);
        prop_assert_eq!((bare.addresses, bare.transport, bare.ip_len), (view.addresses, view.transport, view.ip_len));
        let head_len = usize::from(view.transport_at) + 20;
        prop_assert_eq!(parse_head(&bytes[..bytes.len().min(head_len)], bytes.len(), Link::Ethernet), view);
    }

    #[test]
    fn ce_keeps_the_header_valid_and_touches_nothing_else(sample in sample(40)) {
        let before = frame(&sample);
        let mut after = before.clone();
        let is_ce = set_ce(&mut after, &parse(&before));
        prop_assert_eq!(is_ce, sample.ecn != 0);
        prop_assert_eq!(parse(&after).ecn, if sample.ecn == 0 { 0 } else { 3 });
        prop_assert_eq!(parse(&after).dscp, sample.dscp);
        verified_payload(&after);
        let differing = before.iter().zip(&after).filter(|(a, b)| a != b).count();
        // The byte of the field, and in IPv4 one or two bytes of the checksum.
        let most = if sample.v6 { 1 } else { 3 };
        prop_assert!(differing <= most);
    }

    #[test]
    fn partial_checksums_complete_across_any_split(sample in sample(300), cut in 100usize..300) {
        let whole = frame(&sample);
        let view = parse(&whole);
        let at = usize::from(view.transport_at);
        let csum_offset = if sample.tcp { 16 } else { 6 };
        let vnet = VnetHeader { flags: VnetHeader::NEEDS_CSUM, csum_start: view.transport_at, csum_offset, ..VnetHeader::default() };
        let mut bytes = whole.clone();
        // The value that a kernel leaves in the field: the sum of addresses, protocol and length.
        let mut pseudo = Sum::new();
        let network = usize::from(view.network);
        pseudo.add(if sample.v6 { &bytes[network + 8..network + 40] } else { &bytes[network + 12..network + 20] });
        pseudo.add_word(u16::from(view.protocol));
        pseudo.add_word((bytes.len() - at) as u16);
        let field = at + usize::from(csum_offset);
        bytes[field..field + 2].copy_from_slice(&pseudo.folded().to_be_bytes());
        let cut = cut.clamp(field + 2, bytes.len());
        let (head, tail) = bytes.split_at_mut(cut);
        prop_assert!(complete_checksum(head, tail, &vnet));
        verified_payload(&bytes);
    }

    #[test]
    fn sums_do_not_depend_on_the_pieces(bytes in proptest::collection::vec(any::<u8>(), 0..200), cuts in any::<(u8, u8)>()) {
        let a = usize::from(cuts.0.min(cuts.1)).min(bytes.len());
        let b = usize::from(cuts.0.max(cuts.1)).min(bytes.len());
        let mut pieces = Sum::new();
        pieces.add(&bytes[..a]);
        pieces.add(&bytes[a..b]);
        pieces.add(&bytes[b..]);
        // RFC 1071 section 1, in the plainest form.
        let mut plain = 0u64;
        for word in bytes.chunks(2) {
            plain += u64::from(word[0]) << 8 | u64::from(*word.get(1).unwrap_or(&0));
        }
        while plain > 0xffff { plain = (plain & 0xffff) + (plain >> 16); }
        prop_assert_eq!(u64::from(pieces.folded()), plain);
    }
}

/// Every value of the header's first word that has an ECT codepoint, against every checksum
/// (driven by the identification field): 2^7 words x 2^16 checksums for each IHL.
#[test]
fn ce_matches_recomputation_for_every_word_and_checksum() {
    for ihl in [5u8, 6, 15] {
        let mut bytes = [0u8; 60];
        bytes[0] = 0x40 | ihl;
        let length = usize::from(ihl) * 4;
        bytes[2..4].copy_from_slice(&(length as u16).to_be_bytes());
        bytes[8] = 64;
        bytes[9] = 255;
        for tos in (0u8..=255).filter(|tos| matches!(tos & 3, 1 | 2)) {
            bytes[1] = tos;
            for id in 0..=u16::MAX {
                let mut header = bytes;
                header[4..6].copy_from_slice(&id.to_be_bytes());
                let checksum = plain_checksum(&header[..length]);
                header[10..12].copy_from_slice(&checksum.to_be_bytes());
                let view = View {
                    ecn: tos & 3,
                    ..parse_head(&header[..length], length, Link::Ip)
                };
                assert!(set_ce(&mut header[..length], &view));
                let written = u16::from_be_bytes([header[10], header[11]]);
                header[10..12].fill(0);
                assert_eq!(header[1], tos | 3);
                assert_eq!(
                    written,
                    plain_checksum(&header[..length]),
                    "tos {tos} id {id}"
                );
            }
        }
    }
}

fn plain_checksum(header: &[u8]) -> u16 {
    let mut sum = 0u32;
    for word in header.chunks(2) {
        sum += u32::from(word[0]) << 8 | u32::from(word[1]);
    }
    sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

#[test]
fn ipv6_extension_chain_is_followed_to_the_ports() {
    let mut bytes = vec![0; 14];
    bytes[12..14].copy_from_slice(&[0x86, 0xdd]);
    let chain: &[u8] = &[
        &[60u8, 0, 1, 4, 0, 0, 0, 0][..], // hop-by-hop, then destination options
        &[43, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], // 16 bytes, then routing
        &[51, 0, 0, 0, 0, 0, 0, 0],       // routing, no segments left, then AH
        &[17, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2], // AH of (1 + 2) * 4 bytes, then UDP
        &[0x12, 0x34, 0x56, 0x78, 0, 8, 0, 0],
    ]
    .concat();
    let mut ip = vec![0x60, 0, 0, 0, 0, chain.len() as u8, 0, 64];
    ip.extend([1; 32]);
    bytes.extend(ip);
    bytes.extend(chain);
    let view = parse(&bytes);
    assert_eq!(view.fault, None);
    assert_eq!(view.protocol, 17);
    assert_eq!(view.ports(), Some((0x1234, 0x5678)));
    // 14 + 40 + 8 + 16 + 8 + 12
    assert_eq!(view.transport_at, 98);
    assert!(!view.is_routed);
    assert!(view.is_authenticated);
}

#[test]
fn endless_extension_headers_are_given_up() {
    let mut bytes = vec![0x60, 0, 0, 0, 0x10, 0, 0, 64];
    bytes.extend([1; 32]);
    bytes.resize(40 + 0x1000, 0);
    let view = parse_head(&bytes, bytes.len(), Link::Ip);
    assert_eq!(view.fault, Some(Fault::ExtensionDepth));
}

#[test]
fn fragments_keep_ports_in_the_first_and_hash_alike() {
    let builder = PacketBuilder::ethernet2([1; 6], [2; 6])
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .udp(7, 9);
    let mut first = Vec::new();
    builder.write(&mut first, &[0; 16]).unwrap();
    first[14 + 6] = 0x20;
    let mut later = first.clone();
    later[14 + 6..14 + 8].copy_from_slice(&[0, 2]);
    let (first, later) = (parse(&first), parse(&later));
    assert_eq!(first.ports(), Some((7, 9)));
    assert_eq!(first.fragment.unwrap().offset, 0);
    assert!(first.fragment.unwrap().more);
    assert_eq!(later.ports(), None);
    assert_eq!(later.fragment.unwrap().offset, 16);
    let hasher = FlowHasher::new(1);
    assert_eq!(hasher.flow(&first), hasher.flow(&later));
}

/// RFC 8200 section 4.5: only the first fragment has the headers in front of the transport header.
#[test]
fn fragments_of_packets_with_extension_headers_hash_alike() {
    // Destination options of 8 bytes, and AH of 12 (RFC 4302), in front of UDP.
    let options = [17_u8, 0, 1, 4, 0, 0, 0, 0];
    let authentication = [17_u8, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2];
    for (next, headers) in [(60, &options[..]), (51, &authentication[..])] {
        let fragment = |word: u16, payload: &[u8]| {
            let [high, low] = word.to_be_bytes();
            let mut packet = vec![0x60, 0, 0, 0, 0, 8 + payload.len() as u8, 44, 64];
            packet.extend([1; 32]);
            packet.extend([next, 0, high, low, 0, 0, 0, 7]);
            packet.extend(payload);
            parse_head(&packet, packet.len(), Link::Ip)
        };
        let datagram = [0x12, 0x34, 0x56, 0x78, 0, 40, 0, 0];
        let first = fragment(1, &[headers, &datagram].concat());
        let later = fragment(24, &[0x5a; 16]);
        assert_eq!(first.ports(), Some((0x1234, 0x5678)));
        assert_eq!((first.protocol, later.protocol), (17, next));
        let hasher = FlowHasher::new(1);
        assert_eq!(hasher.flow(&first), hasher.flow(&later), "{next}");
    }
}

#[test]
fn lying_lengths_are_clamped_and_named() {
    let mut bytes = Vec::new();
    PacketBuilder::ethernet2([1; 6], [2; 6])
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .tcp(7, 9, 0, 0)
        .write(&mut bytes, &[])
        .unwrap();
    bytes[16..18].copy_from_slice(&2000u16.to_be_bytes());
    let view = parse(&bytes);
    assert_eq!(view.fault, Some(Fault::LengthBeyondFrame(2000)));
    assert_eq!(view.ip_len, 40);
    assert_eq!(view.ports(), Some((7, 9)));
    // A packet that claims length 0 still takes its place in a queue and its time on the link.
    for short in [19, 0] {
        bytes[16..18].copy_from_slice(&u16::to_be_bytes(short));
        let view = parse(&bytes);
        assert_eq!(view.fault, Some(Fault::LengthTooShort(short.into())));
        assert_eq!(view.ip_len, 40);
    }
    bytes[16..18].copy_from_slice(&30u16.to_be_bytes());
    // The TCP header is past the packet's end: the following bytes are padding.
    let view = parse(&bytes);
    assert_eq!((view.fault, view.ports()), (Some(Fault::Truncated), None));
}

#[test]
fn echo_flows_differ_by_identifier_only() {
    let echo = |id: u16, sequence: u16| {
        let mut bytes = Vec::new();
        PacketBuilder::ethernet2([1; 6], [2; 6])
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
            .icmpv4_echo_request(id, sequence)
            .write(&mut bytes, &[])
            .unwrap();
        parse(&bytes)
    };
    assert_eq!(
        echo(5, 1).transport,
        Transport::Icmp {
            kind: 8,
            code: 0,
            id: Some(5)
        }
    );
    let hasher = FlowHasher::new(42);
    assert_eq!(hasher.flow(&echo(5, 1)), hasher.flow(&echo(5, 2)));
    assert_ne!(hasher.flow(&echo(5, 1)), hasher.flow(&echo(6, 1)));
}

/// The key's bytes are in network order, so the expected value is SipHash-1-3 of the bytes
/// written out here, computed by the reference crate over one slice.
#[test]
fn hashes_are_the_same_on_every_machine() {
    let mut bytes = Vec::new();
    PacketBuilder::ethernet2([1; 6], [2; 6])
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .udp(0x1234, 0x5678)
        .write(&mut bytes, &[])
        .unwrap();
    let view = parse(&bytes);
    let key = [10, 0, 0, 1, 10, 0, 0, 2, 0x12, 0x34, 0x56, 0x78, 17];
    let hash = siphasher::sip::SipHasher13::new_with_keys(9, 0x666c_6f77).hash(&key);
    let hasher = FlowHasher::new(9);
    assert_eq!(hasher.flow(&view), (hash ^ (hash >> 32)) as u32);
    assert_ne!(hasher.flow(&view), FlowHasher::new(10).flow(&view));
    assert_ne!(hasher.source(&view), hasher.destination(&view));
}

/// RFC 768: of the two zeros of ones' complement, UDP sends the one that does not mean "no
/// checksum"; TCP sends the computed value.
#[test]
fn a_checksum_of_zero_is_all_ones_for_udp_only() {
    for (csum_offset, expected) in [(6, 0xffff_u16), (16, 0)] {
        // Words that add up to 0xffff with an empty field.
        let mut bytes = [0; 20];
        bytes[0..2].copy_from_slice(&0xff00_u16.to_be_bytes());
        bytes[2..4].copy_from_slice(&0x00ff_u16.to_be_bytes());
        let vnet = VnetHeader {
            flags: VnetHeader::NEEDS_CSUM,
            csum_start: 0,
            csum_offset,
            ..VnetHeader::default()
        };
        assert!(complete_checksum(&mut bytes, &[], &vnet));
        let at = usize::from(csum_offset);
        assert_eq!(bytes[at..at + 2], expected.to_be_bytes());
    }
}

/// RFC 2516 section 4 and RFC 3032 section 2.1.
#[test]
fn packets_inside_pppoe_and_mpls_are_read_and_neither_split_nor_joined() {
    let mut plain = Vec::new();
    PacketBuilder::ethernet2([1; 6], [2; 6])
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .tcp(7, 9, 1, 100)
        .ack(1)
        .write(&mut plain, &[0; 3000])
        .unwrap();
    let length = (plain.len() - 14 + 2) as u16;
    let [high, low] = length.to_be_bytes();
    let pppoe = [0x88, 0x64, 0x11, 0, 0, 1, high, low, 0, 0x21];
    let mpls = [0x88, 0x47, 0, 1, 0, 64, 0, 2, 1, 64];
    let vnet = VnetHeader {
        gso_type: 1,
        gso_size: 1000,
        ..VnetHeader::default()
    };
    for header in [&pppoe[..], &mpls] {
        let frame = [&plain[..12], header, &plain[14..]].concat();
        let (bare, view) = (parse(&plain), parse(&frame));
        assert_eq!(view.network as usize, 12 + header.len());
        assert_eq!(
            (view.addresses, view.ports()),
            (bare.addresses, bare.ports())
        );
        assert_eq!((view.ip_len, view.fault), (bare.ip_len, None));
        assert!(view.is_encapsulated && !bare.is_encapsulated);
        assert!(SuperPacket::new(&bare, &vnet).is_ok());
        assert_eq!(SuperPacket::new(&view, &vnet), Err(GsoError::Headers));
        let none = VnetHeader::default();
        assert!(Segment::of(&bare, &none, &plain).is_some());
        assert!(Segment::of(&view, &none, &frame).is_none());
    }
}

#[test]
fn lying_transport_lengths_are_named() {
    let udp = |length: u16, more: bool| {
        let mut bytes = Vec::new();
        PacketBuilder::ethernet2([1; 6], [2; 6])
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
            .udp(7, 9)
            .write(&mut bytes, &[0; 20])
            .unwrap();
        bytes[38..40].copy_from_slice(&length.to_be_bytes());
        bytes[20] = if more { 0x20 } else { 0 };
        parse(&bytes)
    };
    // 8 bytes of header and 20 of payload; the first fragment has the length of the whole datagram.
    for (length, more, fault) in [
        (28, false, None),
        (8, false, None),
        (7, false, Some(Fault::UdpLength(7))),
        (0, false, Some(Fault::UdpLength(0))),
        (29, false, Some(Fault::UdpLength(29))),
        (4000, true, None),
    ] {
        let view = udp(length, more);
        assert_eq!(
            (view.fault, view.ports()),
            (fault, Some((7, 9))),
            "{length}"
        );
    }
    // A TCP header of 24 bytes in a packet with room for 20.
    let mut bytes = Vec::new();
    PacketBuilder::ethernet2([1; 6], [2; 6])
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .tcp(7, 9, 0, 0)
        .write(&mut bytes, &[])
        .unwrap();
    bytes[46] = 0x60;
    assert_eq!(parse(&bytes).fault, Some(Fault::HeaderLength(24)));
}
