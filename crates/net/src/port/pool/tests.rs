use super::*;

fn pool() -> Pool {
    Pool::new(PoolSize { slots: 2, large: 1 }).expect("memory for three slots")
}

#[test]
fn the_pools_of_a_pair_have_bytes_of_their_own_in_one_memory() {
    let size = PoolSize { slots: 2, large: 1 };
    let (mut one, mut other) = Pool::pair(size).expect("memory for six slots");
    let slots = [&mut one, &mut other].map(|pool| pool.allocate().expect("a slot is free"));
    for (pool, slot, byte) in [(&mut one, slots[0], 1), (&mut other, slots[1], 2)] {
        pool.room_mut(slot).fill(byte);
        pool.set_frame(slot, HEAD_LEN as u32, VnetHeader::default());
    }
    assert_eq!(one.area().whole(), other.area().whole());
    let start = usize::from(START);
    assert_eq!(one.placed(slots[0]), Some(start..SLOT_LEN));
    // The two slots of the first pool come before these.
    let base = 2 * SLOT_LEN;
    assert_eq!(other.placed(slots[1]), Some(base + start..base + SLOT_LEN));
    assert!(one.head(slots[0]).iter().all(|byte| *byte == 1));
    drop(one);
    assert!(other.head(slots[1]).iter().all(|byte| *byte == 2));
}

#[test]
fn slots_run_out_and_come_back() {
    let mut pool = pool();
    let first = pool.allocate().unwrap();
    let second = pool.allocate().unwrap();
    assert_ne!(first, second);
    assert_eq!(pool.allocate(), None);
    pool.free(first);
    assert_eq!(pool.allocate(), Some(first));
}

#[test]
#[should_panic(expected = "a slot is freed once")]
fn freeing_twice_is_noticed() {
    let mut pool = pool();
    let slot = pool.allocate().unwrap();
    pool.free(slot);
    pool.free(slot);
}

/// Tries every function that gives access to the bytes of a slot.
#[test]
fn a_slot_that_the_kernel_has_cannot_be_touched() {
    type Touch = fn(&mut Pool, Slot);
    let touches: [Touch; 12] = [
        |pool, slot| drop(pool.head(slot).to_vec()),
        |pool, slot| pool.head_mut(slot).fill(1),
        |pool, slot| pool.parts_mut(slot).0.fill(1),
        |pool, slot| pool.room_mut(slot).fill(1),
        |pool, slot| pool.flip(slot, 0, 1),
        |pool, slot| pool.free(slot),
        |pool, slot| pool.truncate(slot, 1),
        |pool, slot| pool.insert_tag(slot, 0x8100, 1),
        |pool, slot| pool.payload_mut(slot, 4).fill(1),
        |pool, slot| assert_ne!(pool.copy(slot), Some(slot)),
        |pool, slot| pool.send_parts(slot, 0).0.fill(1),
        |pool, slot| pool.receive_rooms(slot, 0, None).0.fill(1),
    ];
    let mut pool = pool();
    let slot = pool.allocate().unwrap();
    pool.set_frame(slot, 60, VnetHeader::default());
    // A number like a forged one.
    let made_up = Slot::from_number(slot.number());
    pool.lend(slot);
    for (number, touch) in touches.into_iter().enumerate() {
        let touched = std::panic::AssertUnwindSafe(|| touch(&mut pool, made_up));
        assert!(std::panic::catch_unwind(touched).is_err(), "way {number}");
    }
    pool.take_back(slot);
    assert_eq!(pool.head(slot), [0; 60]);
    pool.free(slot);
    assert_eq!(pool.available(), 2);
}

#[test]
fn a_long_frame_spans_both_parts_and_frees_them() {
    let mut pool = pool();
    let slot = pool.allocate().unwrap();
    let large = pool.allocate_large().unwrap();
    let (room, rest) = pool.receive_rooms(slot, VnetHeader::LEN, Some(large));
    room.fill(1);
    rest.fill(2);
    assert!(pool.set_received(slot, 5000, VnetHeader::LEN, Some(large)));
    assert_eq!(pool.head(slot).len(), HEAD_LEN);
    assert_eq!(pool.tail(slot).len(), 5000 - HEAD_LEN);
    assert!(pool.tail(slot).iter().all(|byte| *byte == 2));
    assert_eq!(pool.available_large(), 0);
    pool.free(slot);
    assert_eq!(pool.available_large(), 1);
}

#[test]
fn a_shortened_frame_keeps_its_first_bytes_and_frees_what_it_does_not_need() {
    let size = PoolSize { slots: 2, large: 2 };
    let mut pool = Pool::new(size).expect("memory for four slots");
    let frame: Vec<u8> = (0..5000).map(|at| (at % 251) as u8).collect();
    let slot = pool.store(&frame).unwrap();
    assert!(pool.charge(slot, 3));
    // A length beyond the frame changes nothing, and one behind the slot's bytes keeps the large slot.
    for (length, left, large) in [
        (6000, 5000, 1),
        (3000, 3000, 1),
        (HEAD_LEN + 1, HEAD_LEN + 1, 1),
        (HEAD_LEN, HEAD_LEN, 2),
        (60, 60, 2),
        (0, 0, 2),
    ] {
        pool.truncate(slot, length as u32);
        let bytes = [pool.head(slot), pool.tail(slot)].concat();
        assert_eq!(bytes, frame[..left]);
        assert_eq!(pool.frame_len(slot), left);
        assert_eq!(pool.available_large(), large);
        assert_eq!(pool.placed(slot).is_some(), large == 2);
    }
    pool.free(slot);
    assert_eq!((pool.available(), pool.available_large()), (2, 2));
}

#[test]
fn a_copy_has_bytes_of_its_own() {
    let size = PoolSize { slots: 3, large: 2 };
    let mut pool = Pool::new(size).expect("memory for five slots");
    let slot = pool.allocate().unwrap();
    let large = pool.allocate_large().unwrap();
    let (room, rest) = pool.receive_rooms(slot, VnetHeader::LEN, Some(large));
    room.fill(1);
    rest.fill(2);
    assert!(pool.set_received(slot, 5000, VnetHeader::LEN, Some(large)));
    let copy = pool.copy(slot).unwrap();
    // Flips one bit in the slot and one in the large slot.
    pool.flip(copy, 0, 0x80);
    pool.flip(copy, 4999, 0x01);
    pool.flip(copy, 5000, 0x01);
    assert_eq!(
        (pool.head(copy)[0], pool.tail(copy).last()),
        (0x81, Some(&3))
    );
    assert_eq!((pool.head(slot)[0], pool.tail(slot).last()), (1, Some(&2)));
    assert_eq!(pool.frame_len(copy), 5000);
    // No large slot is left for a third long frame, and no slot is leaked.
    assert_eq!(pool.copy(slot), None);
    assert_eq!((pool.available(), pool.available_large()), (1, 0));
    pool.free(slot);
    pool.free(copy);
    assert_eq!((pool.available(), pool.available_large()), (3, 2));
}

#[test]
fn a_copy_is_not_watched() {
    let mut pool = pool();
    let watcher = pool.watcher();
    let slot = pool.allocate().unwrap();
    pool.set_frame(slot, 60, VnetHeader::default());
    let ticket = Ticket {
        id: 9,
        ..Ticket::default()
    };
    pool.set_ticket(slot, watcher, ticket);
    let copy = pool.copy(slot).unwrap();
    pool.free(copy);
    assert_eq!(pool.next_abandoned(watcher), None);
    pool.free(slot);
    assert_eq!(pool.next_abandoned(watcher), Some(ticket));
}

#[test]
fn a_tag_moves_offsets_from_outside_without_overflow() {
    let mut pool = pool();
    let slot = pool.allocate().unwrap();
    let vnet = VnetHeader {
        flags: VnetHeader::NEEDS_CSUM,
        csum_start: u16::MAX - 1,
        hdr_len: u16::MAX,
        ..VnetHeader::default()
    };
    pool.set_frame(slot, 60, vnet);
    pool.insert_tag(slot, 0x8100, 1);
    assert_eq!(pool.vnet(slot).csum_start, u16::MAX);
    assert_eq!(pool.vnet(slot).hdr_len, u16::MAX);
    // Such a checksum lies outside the frame and stays partial.
    pool.complete_checksum(slot);
    assert!(pool.vnet(slot).needs_checksum());
}

#[test]
fn a_checksum_is_completed_once() {
    let mut pool = pool();
    let slot = pool.allocate().unwrap();
    // A range of two words, 0x1234 and the field, which holds a partial sum of 0x0001.
    pool.room_mut(slot)[..4].copy_from_slice(&[0x12, 0x34, 0x00, 0x01]);
    let vnet = VnetHeader {
        flags: VnetHeader::NEEDS_CSUM,
        csum_start: 0,
        csum_offset: 2,
        ..VnetHeader::default()
    };
    pool.set_frame(slot, 4, vnet);
    for _ in 0..2 {
        pool.complete_checksum(slot);
        // ~(0x1234 + 0x0001)
        assert_eq!(pool.head(slot)[2..], [0xed, 0xca]);
        assert!(!pool.vnet(slot).needs_checksum());
    }
}

#[test]
fn a_tag_goes_behind_the_addresses_and_moves_the_checksum() {
    let mut pool = pool();
    let slot = pool.allocate().unwrap();
    let frame: Vec<u8> = (0..60).collect();
    pool.room_mut(slot)[..60].copy_from_slice(&frame);
    let vnet = VnetHeader {
        flags: VnetHeader::NEEDS_CSUM,
        csum_start: 34,
        csum_offset: 16,
        hdr_len: 54,
        ..VnetHeader::default()
    };
    pool.set_frame(slot, 60, vnet);
    pool.insert_tag(slot, 0x8100, 0x2005);
    let mut expected = frame[..12].to_vec();
    expected.extend([0x81, 0x00, 0x20, 0x05]);
    expected.extend(&frame[12..]);
    assert_eq!(pool.head(slot), expected);
    assert_eq!(pool.vnet(slot).csum_start, 38);
    assert_eq!(pool.vnet(slot).hdr_len, 58);
    // The offload header is sent directly before the moved start.
    let (head, tail) = pool.send_parts(slot, VnetHeader::LEN);
    assert_eq!(head.len(), VnetHeader::LEN + 64);
    assert!(tail.is_empty());
    assert_eq!(head[VnetHeader::LEN..], expected);
}
