//! Super-packets inside a tunnel. The oracle for lengths and checksums of both packets is `etherparse`.

use super::*;

/// A way to put a packet or a frame into another packet.
#[derive(Clone, Copy, Debug)]
enum Tunnel {
    /// RFC 7348 section 5: eight bytes behind UDP, then a frame.
    Vxlan { has_checksum: bool },
    /// RFC 2784 section 2: four bytes and, perhaps, a checksum and a reserved word, then a frame (RFC 7676
    /// names protocol 0x6558).
    Gre { has_checksum: bool },
    /// RFC 2003 and RFC 4213: the packet follows at once.
    Ip,
}

fn tunnel() -> impl Strategy<Value = Tunnel> {
    prop_oneof![
        any::<bool>().prop_map(|has_checksum| Tunnel::Vxlan { has_checksum }),
        any::<bool>().prop_map(|has_checksum| Tunnel::Gre { has_checksum }),
        Just(Tunnel::Ip),
    ]
}

/// Puts `inside`, whose network header is at `network`, into a packet from the IP header of `outer`.
/// Returns the frame, and where `inside` begins, or what is left of it.
fn wrap(tunnel: Tunnel, outer: &Sample, inside: &[u8], network: usize) -> (Vec<u8>, usize) {
    let mut outer = Sample {
        tcp: false,
        options: 0,
        ports: (50_000, 4789),
        ..outer.clone()
    };
    let (own, inside, protocol) = match tunnel {
        Tunnel::Vxlan { .. } => (&[8, 0, 0, 0, 0, 0, 7, 0][..], inside, 17),
        Tunnel::Gre { has_checksum: true } => (&[0x80, 0, 0x65, 0x58, 0, 0, 0, 0][..], inside, 47),
        Tunnel::Gre { .. } => (&[0, 0, 0x65, 0x58][..], inside, 47),
        Tunnel::Ip if inside[network] >> 4 == 4 => (&[][..], &inside[network..], 4),
        Tunnel::Ip => (&[][..], &inside[network..], 41),
    };
    outer.payload = [own, inside].concat();
    let mut bytes = frame(&outer);
    let view = parse(&bytes);
    let (network, transport) = (usize::from(view.network), usize::from(view.transport_at));
    if protocol == 17 {
        if matches!(
            tunnel,
            Tunnel::Vxlan {
                has_checksum: false
            }
        ) {
            bytes[transport + 6..transport + 8].fill(0);
        }
        return (bytes, transport + 8 + own.len());
    }
    // Another protocol, without the UDP header.
    bytes.drain(transport..transport + 8);
    let len = (bytes.len() - network) as u16;
    if outer.v6 {
        bytes[network + 4..network + 6].copy_from_slice(&(len - 40).to_be_bytes());
        bytes[network + 6] = protocol;
    } else {
        bytes[network + 2..network + 4].copy_from_slice(&len.to_be_bytes());
        bytes[network + 9] = protocol;
        let mut header = Ipv4Header::from_slice(&bytes[network..]).unwrap().0;
        header.header_checksum = header.calc_header_checksum();
        bytes[network..transport].copy_from_slice(&header.to_bytes());
    }
    if let Tunnel::Gre { has_checksum: true } = tunnel {
        let checksum = plain_checksum(&bytes[transport..]);
        bytes[transport + 4..transport + 6].copy_from_slice(&checksum.to_be_bytes());
    }
    (bytes, transport + own.len())
}

/// RFC 1071 section 4.1, word by word.
fn plain_checksum(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|word| u64::from(word[0]) << 8 | u64::from(*word.get(1).unwrap_or(&0)));
    let mut sum: u64 = words.sum();
    while sum >> 16 > 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

fn vnet(inner: &Sample, gso_size: u16, transport: usize) -> VnetHeader {
    let (gso_type, csum_offset) = match (inner.tcp, inner.v6) {
        (true, false) => (1, 16),
        (true, true) => (4, 16),
        _ => (5, 6),
    };
    VnetHeader {
        gso_type,
        gso_size,
        flags: VnetHeader::NEEDS_CSUM,
        csum_start: transport as u16,
        csum_offset,
        ..VnetHeader::default()
    }
}

proptest! {
    #[test]
    fn segments_inside_a_tunnel_are_whole_packets(
        tunnel in tunnel(), outer in sample(1), inner in sample(6000), gso_size in 48u16..1500, partial in any::<bool>(),
    ) {
        let inside = frame(&inner);
        let inner_view = parse(&inside);
        let (network, transport) = (usize::from(inner_view.network), usize::from(inner_view.transport_at));
        let (bytes, at) = wrap(tunnel, &outer, &inside, network);
        let view = parse(&bytes);
        prop_assert_eq!(view.fault, None);
        let skipped = if matches!(tunnel, Tunnel::Ip) { network } else { 0 };
        let vnet = vnet(&inner, gso_size, at + transport - skipped);
        prop_assert_eq!(SuperPacket::new(&view, &vnet), Err(GsoError::Headers));
        let headers = bytes.len() - inner.payload.len();
        let (head, tail) = bytes.split_at((headers + 700).min(bytes.len()));
        let packet = SuperPacket::in_tunnel(&view, &vnet, head).unwrap();
        prop_assert!(packet.is_in_tunnel());
        prop_assert_eq!(packet.header_len() as usize, headers);
        let checksums = if partial { Checksums::Partial } else { Checksums::Complete };
        let (mut payload, mut ip_len) = (Vec::new(), 0);
        for index in 0..packet.segments() {
            let mut out = [0; 3000];
            let (length, left) = packet.write_segment(index, Gather { head, tail }, checksums, &mut out).unwrap();
            let segment = &mut out[..length as usize];
            prop_assert_eq!(left.needs_checksum(), partial);
            prop_assert!(complete_checksum(segment, &[], &left));
            let seen = parse(segment);
            prop_assert_eq!(seen.fault, None);
            prop_assert_eq!((seen.addresses, seen.ports(), seen.ecn, seen.dscp), (view.addresses, view.ports(), view.ecn, view.dscp));
            prop_assert_eq!(seen.network as usize + seen.ip_len as usize, segment.len());
            ip_len += seen.ip_len;
            if !outer.v6 {
                let id = seen.network as usize + 4;
                prop_assert_eq!(&segment[id..id + 2], &outer.id.wrapping_add(index as u16).to_be_bytes());
                let header = Ipv4Header::from_slice(&segment[seen.network as usize..]).unwrap().0;
                prop_assert_eq!(header.header_checksum, header.calc_header_checksum());
            }
            let own = seen.transport_at as usize;
            match tunnel {
                Tunnel::Vxlan { has_checksum: true } => {
                    let all = verified_payload(segment);
                    prop_assert_eq!(&all[..8], &[8, 0, 0, 0, 0, 0, 7, 0]);
                }
                Tunnel::Vxlan { .. } => {
                    prop_assert_eq!(&segment[own + 6..own + 8], &[0, 0]);
                    let stated = u16::from_be_bytes([segment[own + 4], segment[own + 5]]);
                    prop_assert_eq!(usize::from(stated), segment.len() - own);
                }
                // A sum with its own checksum is zero.
                Tunnel::Gre { has_checksum: true } => prop_assert_eq!(plain_checksum(&segment[own..]), 0),
                Tunnel::Gre { .. } => prop_assert_eq!(&segment[own..own + 4], &[0, 0, 0x65, 0x58]),
                Tunnel::Ip => {}
            }
            // The packet inside is right by itself.
            let link = &inside[..skipped];
            let part = verified_payload(&[link, &segment[at..]].concat());
            prop_assert!(part.len() == usize::from(gso_size) || index + 1 == packet.segments());
            payload.extend(part);
        }
        prop_assert_eq!(payload, inner.payload);
        prop_assert_eq!(ip_len, packet.ip_len());
    }

    #[test]
    fn damaged_tunnels_never_panic(
        tunnel in tunnel(), outer in sample(1), inner in sample(200), at in 0usize..200, value in any::<u8>(), cut in 0usize..400, start in 0u16..300,
    ) {
        let inside = frame(&inner);
        let (mut bytes, _) = wrap(tunnel, &outer, &inside, usize::from(parse(&inside).network));
        if let Some(byte) = bytes.get_mut(at) { *byte = value; }
        bytes.truncate(cut.max(1));
        let view = parse(&bytes);
        let vnet = vnet(&inner, 48, start.into());
        if let Ok(packet) = SuperPacket::in_tunnel(&view, &vnet, &bytes) {
            for index in 0..packet.segments() {
                packet.write_segment(index, Gather { head: &bytes, tail: &[] }, Checksums::Complete, &mut [0; 1000]);
            }
        }
    }
}

/// TCP of 300 bytes in VXLAN, and its offload header.
fn example() -> (Vec<u8>, VnetHeader) {
    let mut inside = Vec::new();
    PacketBuilder::ethernet2([1; 6], [2; 6])
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .tcp(7, 9, 0, 0)
        .write(&mut inside, &[0; 300])
        .unwrap();
    let mut bytes = Vec::new();
    PacketBuilder::ethernet2([3; 6], [4; 6])
        .ipv4([10, 9, 0, 1], [10, 9, 0, 2], 64)
        .udp(50_000, 4789)
        .write(
            &mut bytes,
            &[&[8, 0, 0, 0, 0, 0, 7, 0][..], &inside].concat(),
        )
        .unwrap();
    // Ethernet, IPv4, UDP, VXLAN, Ethernet, IPv4.
    let vnet = VnetHeader {
        gso_type: 1,
        gso_size: 100,
        flags: VnetHeader::NEEDS_CSUM,
        csum_start: 14 + 20 + 8 + 8 + 14 + 20,
        csum_offset: 16,
        ..VnetHeader::default()
    };
    (bytes, vnet)
}

#[test]
fn what_cannot_be_split_inside_a_tunnel_is_refused() {
    let (bytes, vnet) = example();
    let read = |bytes: &[u8], vnet| SuperPacket::in_tunnel(&parse(bytes), &vnet, bytes);
    let packet = read(&bytes, vnet).unwrap();
    // Headers of 84 + 20 bytes, three times.
    assert_eq!((packet.segments(), packet.wire_len()), (3, 300 + 3 * 104));
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = bytes.clone();
        change(&mut bytes);
        read(&bytes, vnet).unwrap_err()
    };
    let inner_ip = 14 + 20 + 8 + 8 + 14;
    // A checksum, a length, a protocol or a fragment that is not right: it is not this header.
    for at in [inner_ip + 10, inner_ip + 3, inner_ip + 9, inner_ip + 6] {
        assert_eq!(with(&|bytes| bytes[at] ^= 1), GsoError::Headers, "{at}");
    }
    // The TCP header states 16 bytes.
    assert_eq!(
        with(&|bytes| bytes[inner_ip + 20 + 12] = 0x40),
        GsoError::Headers
    );
    // The outer packet is a fragment.
    assert_eq!(with(&|bytes| bytes[14 + 6] |= 0x20), GsoError::Headers);
    let other = |change: fn(&mut VnetHeader)| {
        let mut vnet = vnet;
        change(&mut vnet);
        read(&bytes, vnet).unwrap_err()
    };
    assert_eq!(other(|vnet| vnet.gso_type = 0), GsoError::NotSuper);
    assert_eq!(other(|vnet| vnet.gso_type = 3), GsoError::Kind(3));
    assert_eq!(other(|vnet| vnet.gso_type = 4), GsoError::Headers);
    assert_eq!(other(|vnet| vnet.flags = 0), GsoError::Headers);
    assert_eq!(other(|vnet| vnet.csum_start -= 20), GsoError::Headers);
    assert_eq!(other(|vnet| vnet.csum_offset = 6), GsoError::Headers);
    assert_eq!(other(|vnet| vnet.gso_size = 0), GsoError::SegmentSize);
    assert_eq!(other(|vnet| vnet.gso_size = 47), GsoError::TinySegments(47));
}

#[test]
fn a_tunnel_inside_a_tunnel_is_not_split() {
    let (inside, vnet) = example();
    let mut bytes = Vec::new();
    PacketBuilder::ethernet2([5; 6], [6; 6])
        .ipv6([0xfd; 16], [0xfc; 16], 64)
        .udp(50_001, 4789)
        .write(
            &mut bytes,
            &[&[8, 0, 0, 0, 0, 0, 8, 0][..], &inside].concat(),
        )
        .unwrap();
    let vnet = VnetHeader {
        csum_start: vnet.csum_start + 14 + 40 + 8 + 8,
        ..vnet
    };
    let read = SuperPacket::in_tunnel(&parse(&bytes), &vnet, &bytes);
    assert_eq!(read, Err(GsoError::Headers));
}
