//! Super-packets: their sizes, those that cannot be split, and the segments, which join to the same
//! packet again.

use super::*;

proptest! {
    #[test]
    fn segments_reassemble_and_verify(sample in sample(9000), gso_size in prop_oneof![48u16..1500, 1500u16..9100], cut in 120usize..3000, partial in any::<bool>(), ecn_bits in 0u8..4) {
        let bytes = frame(&sample);
        let view = parse(&bytes);
        let gso_type = match (sample.tcp, sample.v6) { (true, false) => 1, (true, true) => 4, _ => 5 };
        // Linux: SKB_GSO_TCP_ECN alone clears CWR behind the first segment.
        let gso_type = gso_type | (ecn_bits & 1) << 7 | (ecn_bits & 2) << 3;
        let is_cwr_once = ecn_bits == 1;
        let vnet = VnetHeader { gso_type, gso_size, flags: VnetHeader::NEEDS_CSUM, ..VnetHeader::default() };
        let packet = SuperPacket::new(&view, &vnet).unwrap();
        let (head, tail) = bytes.split_at(cut.min(bytes.len()));
        let checksums = if partial { Checksums::Partial } else { Checksums::Complete };
        let mut payload = Vec::new();
        let mut wire_len = 0;
        for index in 0..packet.segments() {
            let mut out = [0; 10_000];
            let (length, vnet) = packet.write_segment(index, Gather { head, tail }, checksums, &mut out).unwrap();
            prop_assert_eq!(length, packet.segment_len(index));
            wire_len += length;
            let segment = &mut out[..length as usize];
            prop_assert_eq!(vnet.needs_checksum(), partial);
            prop_assert!(complete_checksum(segment, &[], &vnet));
            let part = verified_payload(segment);
            let is_last = index + 1 == packet.segments();
            prop_assert!(part.len() == usize::from(gso_size) || is_last);
            let seen = parse(segment);
            prop_assert_eq!(seen.fault, None);
            prop_assert_eq!((seen.addresses, seen.ports(), seen.ecn, seen.dscp), (view.addresses, view.ports(), view.ecn, view.dscp));
            if let Transport::Tcp { flags, .. } = seen.transport {
                let mut expected = sample.flags;
                if !is_last { expected &= !0x09; }
                if index > 0 && is_cwr_once { expected &= !0x80; }
                prop_assert_eq!(flags, expected);
                let at = usize::from(seen.transport_at);
                let sequence = u32::from_be_bytes(segment[at + 4..at + 8].try_into().unwrap());
                prop_assert_eq!(sequence, sample.sequence.wrapping_add(payload.len() as u32));
            }
            if !sample.v6 {
                let at = usize::from(seen.network);
                let id = u16::from_be_bytes(segment[at + 4..at + 6].try_into().unwrap());
                prop_assert_eq!(id, sample.id.wrapping_add(index as u16));
            }
            payload.extend(part);
        }
        prop_assert_eq!(payload, sample.payload);
        prop_assert_eq!(wire_len, packet.wire_len());
    }
}

/// A frame of IPv4 and TCP without options.
fn tcp_frame(payload: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    PacketBuilder::ethernet2([1; 6], [2; 6])
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .tcp(7, 9, 0, 0)
        .write(&mut bytes, &vec![0; payload])
        .unwrap();
    bytes
}

#[test]
fn super_packet_weighs_what_its_segments_weigh() {
    let bytes = tcp_frame(3000);
    let vnet = VnetHeader {
        gso_type: 1,
        gso_size: 1448,
        ..VnetHeader::default()
    };
    let packet = SuperPacket::new(&parse(&bytes), &vnet).unwrap();
    // 3000 = 1448 + 1448 + 104; headers 14 + 20 + 20 three times.
    assert_eq!(packet.segments(), 3);
    assert_eq!(packet.wire_len(), 3000 + 3 * 54);
    assert_eq!(packet.ip_len(), 3000 + 3 * 40);
    assert_eq!(packet.segment_len(2), 104 + 54);
}

#[test]
fn what_cannot_be_split_is_refused() {
    let mut bytes = Vec::new();
    PacketBuilder::ethernet2([1; 6], [2; 6])
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .udp(7, 9)
        .write(&mut bytes, &[0; 300])
        .unwrap();
    let view = parse(&bytes);
    let refused = |gso_type, gso_size| {
        let vnet = VnetHeader {
            gso_type,
            gso_size,
            ..VnetHeader::default()
        };
        SuperPacket::new(&view, &vnet).unwrap_err()
    };
    assert_eq!(refused(0, 100), GsoError::NotSuper);
    assert_eq!(refused(3, 100), GsoError::Kind(3));
    assert_eq!(refused(1, 100), GsoError::Headers);
    assert_eq!(refused(5, 0), GsoError::SegmentSize);
    // 300 bytes of payload are 150 datagrams of 2.
    assert_eq!(refused(5, 2), GsoError::TinySegments(2));
}

#[test]
fn no_frame_stands_for_tens_of_thousands_of_packets() {
    let vnet = |gso_type, gso_size| VnetHeader {
        gso_type,
        gso_size,
        ..VnetHeader::default()
    };
    // The longest IPv4 packet has 65 535 - 40 bytes of TCP payload.
    let bytes = tcp_frame(65_495);
    let view = parse(&bytes);
    for size in 1..48 {
        let error = SuperPacket::new(&view, &vnet(1, size)).unwrap_err();
        assert_eq!(error, GsoError::TinySegments(size));
    }
    let error = GsoError::TinySegments(47).to_string();
    assert_eq!(error, "segment size 47 is below 48");
    let packet = SuperPacket::new(&view, &vnet(1, 48)).unwrap();
    // 65 495 / 48 = 1364.5
    assert_eq!(packet.segments(), 1365);

    // Datagrams may be small, if they are as few as Linux makes them.
    let udp = |payload: usize| {
        let mut bytes = Vec::new();
        PacketBuilder::ethernet2([1; 6], [2; 6])
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
            .udp(7, 9)
            .write(&mut bytes, &vec![0; payload])
            .unwrap();
        SuperPacket::new(&parse(&bytes), &vnet(5, 10)).map(|packet| packet.segments())
    };
    assert_eq!(udp(1280), Ok(128));
    assert_eq!(udp(1281), Err(GsoError::TinySegments(10)));
}

#[test]
fn a_super_packet_with_a_damaged_transport_header_is_refused() {
    let mut bytes = tcp_frame(300);
    let vnet = VnetHeader {
        gso_type: 1,
        gso_size: 100,
        ..VnetHeader::default()
    };
    // A data offset of 4 words, one below the fixed header.
    bytes[14 + 20 + 12] = 0x40;
    let view = parse(&bytes);
    assert_eq!(view.fault, Some(Fault::HeaderLength(16)));
    assert_eq!(SuperPacket::new(&view, &vnet), Err(GsoError::Headers));
    // Options that reach past the end of the packet.
    bytes[14 + 20 + 12] = 0xf0;
    let short = (20 + 40u16).to_be_bytes();
    bytes[16..18].copy_from_slice(&short);
    assert_eq!(
        SuperPacket::new(&parse(&bytes), &vnet),
        Err(GsoError::Headers)
    );
}

/// RFC 3168 section 6.1.2: CWR answers one reduction, so one segment carries it. RFC 9768 section
/// 3.2.2: AE, CWR and ECE are one counter, so every segment carries all three.
#[test]
fn cwr_is_told_once_or_counted_on_every_segment() {
    let mut bytes = tcp_frame(300);
    // AE is the lowest bit of the byte before the flags; then CWR, ECE and ACK.
    bytes[14 + 20 + 12] |= 0x01;
    bytes[14 + 20 + 13] = 0xd0;
    for (gso_type, expected) in [
        (0x81, [0x1d0, 0x150, 0x150]),
        (0x01, [0x1d0, 0x1d0, 0x1d0]),
        (0x11, [0x1d0, 0x1d0, 0x1d0]),
    ] {
        let vnet = VnetHeader {
            gso_type,
            gso_size: 100,
            ..VnetHeader::default()
        };
        let packet = SuperPacket::new(&parse(&bytes), &vnet).unwrap();
        let flags: Vec<u16> = (0..packet.segments())
            .map(|index| {
                let mut out = [0; 256];
                let gather = Gather {
                    head: &bytes,
                    tail: &[],
                };
                let written = packet.write_segment(index, gather, Checksums::Complete, &mut out);
                let (length, _) = written.unwrap();
                verified_payload(&out[..length as usize]);
                u16::from_be_bytes([out[46], out[47]]) & 0x1ff
            })
            .collect();
        assert_eq!(flags, expected, "{gso_type:#04x}");
    }
}

/// RFC 2675 section 2: option type 0xc2, four bytes of length; the length of the header is 0.
#[test]
fn a_jumbogram_is_read_and_not_split() {
    let payload = vec![0x55; 67_000];
    let mut bytes = vec![0x60, 0, 0, 0, 0, 0, 0, 64];
    bytes.extend([0xfd; 32]);
    let jumbo = (8 + 20 + payload.len()) as u32;
    bytes.extend([6, 0, 0xc2, 4]);
    bytes.extend(jumbo.to_be_bytes());
    bytes.extend([
        0, 7, 0, 9, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0,
    ]);
    bytes.extend(payload);
    let view = parse_head(&bytes[..1984], bytes.len(), Link::Ip);
    assert_eq!((view.fault, view.ip_len), (None, 40 + jumbo));
    assert_eq!(view.ports(), Some((7, 9)));
    let vnet = VnetHeader {
        gso_type: 4,
        gso_size: 1428,
        ..VnetHeader::default()
    };
    assert_eq!(SuperPacket::new(&view, &vnet), Err(GsoError::Headers));
}

#[test]
fn checksums_of_merged_datagrams_are_opened_and_those_of_others_stay() {
    let mut bytes = Vec::new();
    PacketBuilder::ethernet2([1; 6], [2; 6])
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .udp(7, 9)
        .write(&mut bytes, &[5; 300])
        .unwrap();
    let complete = bytes.clone();
    let vnet = VnetHeader {
        flags: VnetHeader::DATA_VALID,
        gso_type: 5,
        gso_size: 100,
        ..VnetHeader::default()
    };
    let packet = SuperPacket::new(&parse(&bytes), &vnet).unwrap();
    let open = packet.open_checksum(&vnet, &mut bytes).unwrap();
    assert_eq!(
        (
            open.flags,
            open.gso_type,
            open.gso_size,
            open.hdr_len,
            open.csum_start,
            open.csum_offset
        ),
        (VnetHeader::NEEDS_CSUM, 5, 100, 42, 34, 6)
    );
    // RFC 768: addresses, protocol and length: 0x0a00 + 1 + 0x0a00 + 2 + 17 + 308.
    assert_eq!(bytes[40..42], (0x1400 + 3 + 17 + 308u16).to_be_bytes());
    // Completed over all, it is the checksum that the packet had.
    assert!(complete_checksum(&mut bytes, &[], &open));
    assert_eq!(bytes, complete);
    assert_eq!(packet.open_checksum(&open, &mut bytes), None);
    let mut tcp = tcp_frame(300);
    let vnet = VnetHeader {
        gso_type: 1,
        ..vnet
    };
    let packet = SuperPacket::new(&parse(&tcp), &vnet).unwrap();
    assert_eq!(packet.open_checksum(&vnet, &mut tcp), None);
}
