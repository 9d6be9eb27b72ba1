//! Segments of super-packets that are longer than a slot.

use super::*;
use etherparse::PacketBuilder;
use sluice_wire::frame::{Checksums, Gather, Link, SuperPacket, parse_head};

/// The place of the VLAN tag of a super-packet.
#[derive(Clone, Copy, Debug)]
enum Tag {
    None,
    /// In the frame.
    Inside,
    /// Stripped by the kernel, and reinserted by the port.
    PutBack,
}

/// Returns a TCP super-packet with this number of payload bytes, and its offload header.
fn super_packet(is_v6: bool, tag: Tag, gso_size: u16, payload: usize) -> (Vec<u8>, VnetHeader) {
    let ethernet = PacketBuilder::ethernet2([1; 6], [2; 6]);
    let payload: Vec<u8> = (0..payload).map(|at| ((at / 7) ^ at) as u8).collect();
    let mut bytes = Vec::new();
    let tcp = |builder: etherparse::PacketBuilderStep<etherparse::IpHeaders>| {
        let tcp = builder.tcp(5001, 80, 0xffff_f000, 1000).ack(7).psh();
        tcp.options_raw(&[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2])
            .unwrap()
    };
    match (is_v6, tag) {
        (false, Tag::Inside) => tcp(ethernet
            .vlan(etherparse::VlanHeader::Single(
                etherparse::SingleVlanHeader {
                    vlan_id: 5.try_into().unwrap(),
                    ..Default::default()
                },
            ))
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)),
        (true, Tag::Inside) => tcp(ethernet
            .vlan(etherparse::VlanHeader::Single(
                etherparse::SingleVlanHeader {
                    vlan_id: 5.try_into().unwrap(),
                    ..Default::default()
                },
            ))
            .ipv6([1; 16], [2; 16], 64)),
        (false, _) => tcp(ethernet.ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)),
        (true, _) => tcp(ethernet.ipv6([1; 16], [2; 16], 64)),
    }
    .write(&mut bytes, &payload)
    .unwrap();
    let csum_start = (bytes.len() - payload.len() - 32) as u16;
    let vnet = VnetHeader {
        flags: VnetHeader::NEEDS_CSUM,
        gso_type: if is_v6 { 4 } else { 1 },
        hdr_len: csum_start + 32,
        gso_size,
        csum_start,
        csum_offset: 16,
    };
    (bytes, vnet)
}

/// Stores a frame in the pool as a port does.
fn receive(pool: &mut Pool, bytes: &[u8], vnet: VnetHeader, tag: Tag) -> Slot {
    let slot = pool.allocate().unwrap();
    let large = pool.allocate_large();
    let (room, rest) = pool.receive_rooms(slot, 0, large);
    let (head, tail) = bytes.split_at(bytes.len().min(room.len()));
    room[..head.len()].copy_from_slice(head);
    rest[..tail.len()].copy_from_slice(tail);
    if !pool.set_received(slot, bytes.len() as u32, 0, large) {
        pool.free_large(large.unwrap());
    }
    pool.set_vnet(slot, vnet);
    if matches!(tag, Tag::PutBack) {
        pool.insert_tag(slot, 0x8100, 5);
    }
    slot
}

fn bytes(pool: &Pool, slot: Slot) -> Vec<u8> {
    [pool.head(slot), pool.tail(slot)].concat()
}

/// Splits a super-packet in a pool, and compares each segment with the same segment written in one
/// piece.
fn assert_split(pool: &mut Pool, is_v6: bool, tag: Tag, gso_size: u16, payload: usize) {
    let (frame, vnet) = super_packet(is_v6, tag, gso_size, payload);
    let slot = receive(pool, &frame, vnet, tag);
    let frame = bytes(pool, slot);
    let view = parse_head(pool.head(slot), frame.len(), Link::Ethernet);
    let whole = SuperPacket::new(&view, &pool.vnet(slot)).unwrap();
    let segments: Vec<Slot> = (0..whole.segments())
        .map(|index| {
            let to = pool.allocate().unwrap();
            let length = pool.write_segment(slot, &whole, index, to).unwrap();
            assert_eq!(length as usize, pool.frame_len(to));
            to
        })
        .collect();
    pool.free(slot);
    let gather = Gather {
        head: &frame,
        tail: &[],
    };
    let mut out = vec![0; 70_000];
    for (index, segment) in segments.iter().enumerate() {
        let case = format!("{is_v6} {tag:?} {gso_size} {payload} {index}");
        let (length, vnet) = whole
            .write_segment(index as u32, gather, Checksums::Partial, &mut out)
            .unwrap();
        assert!(bytes(pool, *segment) == out[..length as usize], "{case}");
        assert_eq!(pool.vnet(*segment), vnet, "{case}");
        // All headers are in the slot.
        assert!(
            pool.head(*segment).len() >= whole.header_len() as usize,
            "{case}"
        );
        let view = parse_head(pool.head(*segment), length as usize, Link::Ethernet);
        assert_eq!(view.fault, None, "{case}");
    }
    // The last of them to leave frees the shared memory, in every order.
    let (odd, even): (Vec<_>, Vec<_>) = segments
        .into_iter()
        .enumerate()
        .partition(|(n, _)| n % 2 == 1);
    for (_, segment) in odd.into_iter().chain(even) {
        pool.free(segment);
    }
    assert_eq!((pool.held(), pool.available_large()), (0, LARGE as usize));
}

const LARGE: u32 = 2;

fn pool() -> Pool {
    let size = PoolSize {
        slots: 64,
        large: LARGE,
    };
    Pool::new(size).expect("memory for 66 slots")
}

/// For MTUs from 1900 to 65 535: a gso_size is the MTU minus 52 bytes of IPv4 and TCP headers, or
/// minus 72 with IPv6.
#[test]
fn segments_of_every_size_are_those_written_in_one_piece() {
    let mut pool = pool();
    let near = 1840..2000;
    // A prime step, so that the last segment gets many different lengths.
    let far = (2000..=65_463).step_by(if cfg!(miri) { 9973 } else { 211 });
    for gso_size in near.chain(far).chain([8948, 65_463]) {
        for is_v6 in [false, true] {
            for tag in [Tag::None, Tag::Inside, Tag::PutBack] {
                // The longest packet that TSO makes, and one that ends one byte after a segment.
                let most = 65_535 - if is_v6 { 72 } else { 52 };
                for payload in [most, most.min(usize::from(gso_size) + 1)] {
                    assert_split(&mut pool, is_v6, tag, gso_size, payload);
                }
            }
        }
    }
}

/// The segment fits its slot up to the last byte, including the tag, and needs no large slot.
#[test]
fn a_super_packet_of_one_segment_is_one_packet() {
    let mut pool = pool();
    for payload in 1900..=1960 {
        for tag in [Tag::None, Tag::Inside, Tag::PutBack] {
            assert_split(&mut pool, false, tag, 1960, payload);
        }
    }
}

#[test]
fn segments_that_share_memory_are_changed_and_copied_alone() {
    let mut pool = pool();
    let (frame, vnet) = super_packet(false, Tag::None, 8948, 20_000);
    let slot = receive(&mut pool, &frame, vnet, Tag::None);
    let view = parse_head(pool.head(slot), frame.len(), Link::Ethernet);
    let whole = SuperPacket::new(&view, &vnet).unwrap();
    let segments = [0, 1, 2].map(|index| {
        let to = pool.allocate().unwrap();
        pool.write_segment(slot, &whole, index, to).unwrap();
        to
    });
    pool.free(slot);
    assert_eq!(pool.available_large(), 1);
    let before = segments.map(|segment| bytes(&pool, segment));
    let copy = pool.copy(segments[1]).unwrap();
    assert_eq!(pool.available_large(), 0);
    assert_eq!(
        pool.copy(segments[1]),
        None,
        "there is no memory for another"
    );
    // The first and the last byte of the second segment's payload, and one past its end.
    let (first, length) = (66, 66 + 8948);
    for byte in [first, length - 1, length] {
        pool.flip(segments[1], byte, 1);
    }
    let mut changed = before[1].clone();
    changed[first] ^= 1;
    changed[length - 1] ^= 1;
    assert!(bytes(&pool, segments[1]) == changed);
    assert!(bytes(&pool, copy) == before[1]);
    for number in [0, 2] {
        assert!(bytes(&pool, segments[number]) == before[number], "{number}");
    }
    // The checksum over two parts equals the checksum over one piece.
    let gather = Gather {
        head: &frame,
        tail: &[],
    };
    let mut out = vec![0; 10_000];
    let (length, _) = whole
        .write_segment(2, gather, Checksums::Complete, &mut out)
        .unwrap();
    pool.complete_checksum(segments[2]);
    assert!(bytes(&pool, segments[2]) == out[..length as usize]);
    for slot in segments.into_iter().chain([copy]) {
        pool.free(slot);
    }
    assert_eq!((pool.held(), pool.available_large()), (0, 2));
}

#[test]
fn nothing_is_taken_from_behind_a_frame_s_end() {
    let mut pool = pool();
    let (frame, vnet) = super_packet(false, Tag::None, 8948, 20_000);
    let view = parse_head(&frame, frame.len(), Link::Ethernet);
    let whole = SuperPacket::new(&view, &vnet).unwrap();
    // 66 bytes of headers and 15 000 of the 20 000.
    let slot = receive(&mut pool, &frame[..15_066], vnet, Tag::None);
    let [first, second, third] = [0, 1, 2].map(|_| pool.allocate().unwrap());
    assert_eq!(pool.write_segment(slot, &whole, 0, first), Some(66 + 8948));
    assert_eq!(pool.write_segment(slot, &whole, 1, second), None);
    assert_eq!(pool.write_segment(slot, &whole, 2, third), None);
    for slot in [slot, first, second, third] {
        pool.free(slot);
    }
    assert_eq!((pool.held(), pool.available_large()), (0, 2));
}
