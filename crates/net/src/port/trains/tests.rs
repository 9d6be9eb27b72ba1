//! Every frame that joins a train must leave it unchanged. The checksums of the input are
//! etherparse's; the splitting is [`SuperPacket`]'s, which has tests of its own.

#[path = "../../../tests/common/segments.rs"]
mod segments;

use super::batch::Batch;
use crate::port::{Pool, PoolSize, Slot};
use proptest::prelude::*;
use segments::{ACK, CWR, ECE, FIN, PLAIN, PSH, RST, SYN, Shape, URG, flow, segment};
use sluice_wire::frame::{Checksums, Gather, Link, SuperPacket, VnetHeader, parse, parse_head};

const TAGS: &[[u8; 4]] = &[[0x81, 0, 0, 7]];

fn pool_of(frames: &[Vec<u8>]) -> (Pool, Vec<Slot>) {
    let slots = frames.len() as u32;
    let mut pool = Pool::new(PoolSize { slots, large: 1 }).expect("memory for a few slots");
    let put = |frame: &Vec<u8>| {
        let slot = pool.allocate().expect("one slot each");
        pool.room_mut(slot)[..frame.len()].copy_from_slice(frame);
        pool.set_frame(slot, frame.len() as u32, VnetHeader::default());
        slot
    };
    let slots = frames.iter().map(put).collect();
    (pool, slots)
}

/// Returns which frames leave together.
fn groups(frames: &[Vec<u8>]) -> Vec<Vec<usize>> {
    let (pool, slots) = pool_of(frames);
    let mut batch = Batch::new();
    batch.sort(&pool, &slots, 1500);
    let messages = batch.messages().iter();
    messages
        .map(|message| batch.frames(message).collect())
        .collect()
}

/// Returns what arrives when trains are built and split again.
fn arrived(frames: &[Vec<u8>]) -> Vec<(usize, Vec<u8>)> {
    let (mut pool, slots) = pool_of(frames);
    let mut batch = Batch::new();
    batch.sort(&pool, &slots, 1500);
    let mut arrived = Vec::new();
    for message in batch.messages() {
        let places: Vec<usize> = batch.frames(message).collect();
        if !message.is_train() {
            arrived.push((places[0], frames[places[0]].clone()));
            continue;
        }
        let train = message.train.expect("several frames are a train");
        assert_eq!(usize::from(train.segments()), places.len());
        let first = slots[message.first];
        let vnet = train.write_headers(pool.head_mut(first));
        let mut whole = pool.head(first).to_vec();
        for place in &places[1..] {
            whole.extend_from_slice(pool.payload_mut(slots[*place], train.first().header_len()));
        }
        let view = parse(&whole);
        let packet = SuperPacket::new(&view, &vnet).expect("a super-packet");
        assert_eq!(packet.segments() as usize, places.len());
        for (index, place) in places.into_iter().enumerate() {
            let (gather, mut out) = (
                Gather {
                    head: &whole,
                    tail: &[],
                },
                [0; 2048],
            );
            let (length, _) = packet
                .write_segment(index as u32, gather, Checksums::Complete, &mut out)
                .expect("room for a frame");
            arrived.push((place, out[..length as usize].to_vec()));
        }
    }
    arrived
}

/// Asserts that all frames arrive byte for byte, and those of a flow in order.
fn assert_unchanged(frames: &[Vec<u8>]) {
    let arrived = arrived(frames);
    assert_eq!(arrived.len(), frames.len());
    for (place, frame) in &arrived {
        assert_eq!(frame, &frames[*place], "frame {place}");
    }
    let flow_of = |frame: &[u8]| {
        let view = parse_head(frame, frame.len(), Link::Ethernet);
        (view.addresses, view.ports())
    };
    for (at, (place, frame)) in arrived.iter().enumerate() {
        let overtaken = arrived[..at].iter().filter(|(before, _)| before > place);
        for (before, other) in overtaken {
            assert_ne!(
                flow_of(other),
                flow_of(frame),
                "{before} came before {place}"
            );
        }
    }
}

#[test]
fn segments_that_follow_each_other_are_one_train() {
    for is_v6 in [false, true] {
        let shape = Shape { is_v6, ..PLAIN };
        let frames = flow(shape, &[1000, 1000, 1000, 400]);
        assert_eq!(groups(&frames), [[0, 1, 2, 3]]);
        assert_unchanged(&frames);
        // Some kernels do not find the headers after a tag.
        let tags = TAGS;
        let frames = flow(Shape { tags, ..shape }, &[1000; 3]);
        assert_eq!(groups(&frames), [[0], [1], [2]]);
    }
}

#[test]
fn a_shorter_or_pushed_segment_is_the_last() {
    let frames = flow(PLAIN, &[1000, 1000, 400, 400, 1000]);
    // A longer segment does not follow a shorter one either.
    assert_eq!(groups(&frames), [vec![0, 1, 2], vec![3], vec![4]]);
    assert_unchanged(&frames);

    let mut frames = flow(PLAIN, &[1000; 4]);
    let pushed = Shape {
        flags: ACK | PSH,
        ..PLAIN
    };
    frames[1] = flow(pushed, &[1000; 4])[1].clone();
    assert_eq!(groups(&frames), [[0, 1], [2, 3]]);
    assert_unchanged(&frames);
}

#[test]
fn flows_that_alternate_become_a_train_each() {
    let other = Shape { flow: 2, ..PLAIN };
    let (one, two) = (flow(PLAIN, &[1400; 3]), flow(other, &[1400; 3]));
    let frames: Vec<_> = one.into_iter().zip(two).flat_map(|(a, b)| [a, b]).collect();
    assert_eq!(groups(&frames), [[0, 2, 4], [1, 3, 5]]);
    assert_unchanged(&frames);
}

#[test]
fn whatever_segmentation_would_not_write_ends_a_train() {
    let differing = [
        (
            "a flag",
            Shape {
                flags: ACK | ECE,
                ..PLAIN
            },
        ),
        ("ECN", Shape { ecn: 3, ..PLAIN }),
        ("TTL", Shape { ttl: 63, ..PLAIN }),
        (
            "the acknowledgement",
            Shape {
                acknowledged: 78,
                ..PLAIN
            },
        ),
        (
            "the window",
            Shape {
                window: 501,
                ..PLAIN
            },
        ),
        (
            "options",
            Shape {
                options: 4,
                ..PLAIN
            },
        ),
        (
            "a tag",
            Shape {
                tags: TAGS,
                ..PLAIN
            },
        ),
    ];
    for (what, shape) in differing {
        let mut frames = flow(PLAIN, &[1000; 3]);
        frames[1] = flow(shape, &[1000; 3])[1].clone();
        assert_eq!(groups(&frames), [[0], [1], [2]], "{what}");
        assert_unchanged(&frames);
    }
    // A gap in sequence numbers, and in IPv4's identifications.
    let mut frames = flow(PLAIN, &[1000; 3]);
    frames.remove(1);
    assert_eq!(groups(&frames), [[0], [1]]);
    let skipping = |step: u16| -> Vec<_> {
        let frame = |number: u16| {
            let sequence = u32::from(number) * 1000;
            segment(PLAIN, sequence, number * step, &[5; 1000])
        };
        (0..3).map(frame).collect()
    };
    assert_eq!(groups(&skipping(1)), [[0, 1, 2]]);
    assert_eq!(groups(&skipping(2)), [[0], [1], [2]]);
    assert_eq!(groups(&skipping(0)), [[0], [1], [2]]);
}

#[test]
fn what_is_more_than_data_leaves_alone() {
    for flags in [
        0,
        SYN,
        ACK | FIN,
        ACK | SYN,
        ACK | URG,
        ACK | CWR,
        ACK | RST,
    ] {
        let frames = flow(Shape { flags, ..PLAIN }, &[1000; 2]);
        assert_eq!(groups(&frames), [[0], [1]], "flags {flags}");
    }
    // Pure acknowledgements, and padding after the packet.
    assert_eq!(groups(&flow(PLAIN, &[0; 2])), [[0], [1]]);
    let mut frames = flow(PLAIN, &[1000; 2]);
    frames[1].push(0);
    assert_eq!(groups(&frames), [[0], [1]]);
    // Longer than the interface sends: the kernel refuses each frame individually.
    assert_eq!(groups(&flow(PLAIN, &[1500; 2])), [[0], [1]]);
}

#[test]
fn nothing_passes_a_packet_of_its_own_flow() {
    // An acknowledgement between segments, and a later fragment, whose flow is unknown.
    let mut frames = flow(PLAIN, &[1000, 1000, 1000]);
    let acknowledgement = segment(PLAIN, 5, 9, &[]);
    let mut fragment = segment(PLAIN, 5, 9, &[3; 100]);
    fragment[14 + 7] = 16;
    for between in [acknowledgement, fragment] {
        let mut frames = frames.clone();
        frames.insert(2, between);
        assert_eq!(groups(&frames), [vec![0, 1], vec![2], vec![3]]);
        assert_unchanged(&frames);
    }
    // In another flow they do not matter.
    frames.insert(2, segment(Shape { flow: 9, ..PLAIN }, 5, 9, &[]));
    assert_eq!(groups(&frames), [vec![0, 1, 3], vec![2]]);
}

#[test]
fn a_wrong_checksum_is_not_made_right() {
    for broken in 0..3 {
        for place in [14 + 11, 14 + 20 + 17, 14 + 20 + 32 + 500] {
            let mut frames = flow(PLAIN, &[1000; 3]);
            frames[broken][place] ^= 4;
            let alone = |group: &Vec<usize>| group == &[broken];
            assert!(groups(&frames).iter().any(alone), "{broken} {place}");
            assert_unchanged(&frames);
        }
    }
}

/// Zero has two forms in ones' complement. A sum over words that are not all zero is all ones and
/// never zero (RFC 1624, section 3), so its complement, which is what is written, is never all
/// ones.
#[test]
fn an_unusual_zero_is_not_made_usual() {
    let word = |frame: &[u8], at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    // Another word compensates for the field's value, so that the sum over everything else stays.
    let moved = |frame: &mut [u8], field: usize, to: usize| {
        let sum = u32::from(word(frame, field)) + u32::from(word(frame, to));
        let folded = (sum & 0xffff) + (sum >> 16);
        frame[to..to + 2].copy_from_slice(&(folded as u16).to_be_bytes());
        frame[field..field + 2].fill(0xff);
    };
    // For IPv4 that word is the identification, which the second frame continues.
    let mut first = flow(PLAIN, &[1000])[0].clone();
    moved(&mut first, 14 + 10, 14 + 4);
    let id = word(&first, 14 + 4).wrapping_add(1);
    let sequence = (u32::MAX - 100).wrapping_add(1000);
    let frames = [first, segment(PLAIN, sequence, id, &[1; 1000])];
    assert_eq!(groups(&frames), [[0], [1]]);
    assert_unchanged(&frames);
    // For TCP it is in the payload.
    let mut frames = flow(PLAIN, &[1000; 2]);
    moved(&mut frames[1], 14 + 20 + 16, 14 + 20 + 32 + 100);
    assert_eq!(groups(&frames), [[0], [1]]);
    assert_unchanged(&frames);
}

#[test]
fn checksums_left_open_join_and_damage_does_not_hide_behind_the_kernels_word() {
    let frames = flow(PLAIN, &[1000; 3]);
    let (mut pool, slots) = pool_of(&frames);
    let valid = VnetHeader {
        flags: VnetHeader::DATA_VALID,
        ..VnetHeader::default()
    };
    slots.iter().for_each(|slot| pool.set_vnet(*slot, valid));
    // Damage inside the router.
    pool.flip(slots[2], 600, 1);
    let mut batch = Batch::new();
    batch.sort(&pool, &slots, 1500);
    assert_eq!(batch.messages().len(), 2);

    // Split with partial checksums, as a router splits a super-packet.
    let (whole, vnet) = {
        let train = batch.messages()[0].train.expect("two frames");
        let vnet = train.write_headers(pool.head_mut(slots[0]));
        let mut whole = pool.head(slots[0]).to_vec();
        whole.extend_from_slice(&frames[1][train.first().header_len()..]);
        (whole, vnet)
    };
    let packet = SuperPacket::new(&parse(&whole), &vnet).expect("a super-packet");
    for (index, slot) in [slots[0], slots[1]].into_iter().enumerate() {
        let mut out = [0; 2048];
        let gather = Gather {
            head: &whole,
            tail: &[],
        };
        let (length, open) = packet
            .write_segment(index as u32, gather, Checksums::Partial, &mut out)
            .expect("room for a frame");
        let length = length as usize;
        pool.room_mut(slot)[..length].copy_from_slice(&out[..length]);
        pool.set_frame(slot, length as u32, open);
    }
    batch.sort(&pool, &slots[..2], 1500);
    assert_eq!(batch.messages().len(), 1);
    // A partial checksum with a wrong value is left as it is.
    pool.head_mut(slots[1])[14 + 20 + 17] ^= 1;
    batch.sort(&pool, &slots[..2], 1500);
    assert_eq!(batch.messages().len(), 2);
}

#[test]
fn a_train_is_no_longer_than_an_ip_packet() {
    // 45 segments of 1448 bytes and 20 + 32 bytes of headers would have 65 212 bytes, 46 of them 66
    // 660.
    let frames = flow(PLAIN, &[1448; 64]);
    let lengths: Vec<usize> = groups(&frames).iter().map(Vec::len).collect();
    assert_eq!(lengths, [45, 19]);
    assert_unchanged(&frames);
}

proptest! {
    /// Segments of some flows in any order, with one byte of one of them changed and its checksums
    /// corrected or not.
    #[test]
    fn trains_change_no_byte_and_no_order(
        lengths in proptest::collection::vec(prop_oneof![Just(700usize), 0usize..800], 1..12),
        order in proptest::collection::vec(0usize..3, 1..36),
        is_v6 in any::<bool>(),
        is_tagged in any::<bool>(),
        pushed in 0usize..12,
        damage in proptest::option::of((0usize..36, 0usize..900, 1u8..)),
    ) {
        let flows = [1, 2, 3].map(|number| {
            let shape = Shape { flow: number, is_v6: is_v6 ^ (number == 2), tags: if is_tagged { TAGS } else { &[] }, ..PLAIN };
            let mut frames = flow(shape, &lengths);
            let last = Shape { flags: ACK | PSH, ..shape };
            if let Some(frame) = frames.get_mut(pushed) {
                *frame = flow(last, &lengths)[pushed].clone();
            }
            frames
        });
        let mut next = [0; 3];
        let mut frames = Vec::new();
        for number in order {
            if let Some(frame) = flows[number].get(next[number]) {
                frames.push(frame.clone());
                next[number] += 1;
            }
        }
        if let Some((which, place, mask)) = damage
            && let Some(frame) = frames.get_mut(which)
            && let Some(byte) = frame.get_mut(place)
        {
            *byte ^= mask;
        }
        if !frames.is_empty() {
            assert_unchanged(&frames);
        }
    }

    #[test]
    fn any_bytes_can_be_looked_at(
        frames in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 1..200), 1..20),
        flags in any::<u8>(),
    ) {
        let (mut pool, slots) = pool_of(&frames);
        for slot in &slots {
            pool.set_vnet(*slot, VnetHeader { flags, csum_start: 34, csum_offset: 16, ..VnetHeader::default() });
        }
        let mut batch = Batch::new();
        batch.sort(&pool, &slots, 1500);
        let frames: usize = batch.messages().iter().map(|message| batch.frames(message).count()).sum();
        prop_assert_eq!(frames, slots.len());
    }
}
