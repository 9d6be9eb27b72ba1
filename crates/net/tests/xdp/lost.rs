//! Frames that are too long for an AF_XDP port are counted as lost.

use sluice_wire::frame::VnetHeader;

use super::common::wire::{self, FAR};
use super::*;

/// A slot has 1792 bytes for a frame. In the other modes, a veth with a program refuses such an MTU.
#[test]
fn a_frame_that_is_longer_than_a_slot_is_counted() {
    let mut pool = pool(512);
    let options = XdpOptions {
        ready: 64,
        mode: Some(XdpMode::Generic),
        ..XdpOptions::default()
    };
    let (namespace, _left, mut right) = ports(&mut pool, options);
    let sender = wire::long_sender(&namespace, 4000);
    sender.send_to(&[0; 3000], FAR).unwrap();
    let is_counted = (0..1000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(5));
        right.counters().lost(Loss::Oversize) == 1
    });
    assert!(is_counted, "{:?}", right.counters());
    // Later ones are not affected.
    sender.send_to(&[0; 1000], FAR).unwrap();
    let slots = receive(&mut right, &mut pool, 1);
    // With the headers of Ethernet, IPv4 and UDP.
    assert_eq!(pool.frame_len(slots[0]), 14 + 20 + 8 + 1000);
    assert_eq!(right.counters().lost_total(), 1);
}

#[test]
fn a_super_packet_that_should_leave_is_counted() {
    let mut pool = pool(512);
    let options = XdpOptions {
        ready: 64,
        ..XdpOptions::default()
    };
    let (_namespace, mut left, mut right) = ports(&mut pool, options);
    let slots = put_all(&mut pool, &[frame(&[], 1400), frame(&[], 100)]);
    let vnet = VnetHeader {
        gso_type: 1, // TCP over IPv4
        gso_size: 500,
        ..VnetHeader::default()
    };
    pool.set_vnet(slots[0], vnet);
    for slot in slots {
        assert_eq!(right.transmit(&mut pool, &[slot]), 1);
    }
    let slots = receive(&mut left, &mut pool, 1);
    assert_eq!(take_first(&mut pool, slots), Some(frame(&[], 100)));
    let counters = right.counters();
    assert_eq!((counters.lost(Loss::Offload), counters.sent), (1, 1));
    assert_eq!(counters.lost_total(), 1);
}
