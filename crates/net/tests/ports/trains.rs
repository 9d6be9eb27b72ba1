//! Trains: segments that one call passes to the kernel as a super-packet.

use super::*;
use common::segments::{PLAIN, Shape, V6, flow};

/// On an interface without segmentation offload, segments are passed to the kernel as one
/// super-packet and leave it unchanged.
#[test]
fn trains_arrive_as_the_segments_that_they_were_made_of() {
    let mut wire = Wire::with_offloads(Offloads::OFF, PacketOptions::default());
    const CUSTOMER: [u8; 4] = [0x81, 0, 0x20, 5];
    const SERVICE: [u8; 4] = [0x88, 0xa8, 0, 9];
    let (mut frames, mut trains) = (0, 0);
    for is_v6 in [false, true] {
        for tags in [&[][..], &[CUSTOMER], &[SERVICE, CUSTOMER]] {
            for lengths in [&[1400; 5][..], &[1000, 1000, 1], &[700; 32]] {
                let shape = Shape {
                    is_v6,
                    tags,
                    ..PLAIN
                };
                let sent = flow(shape, lengths);
                let slots = put_all(&mut wire.pool, &sent);
                let [left, right] = &mut wire.ports;
                assert_eq!(left.transmit(&mut wire.pool, &slots), slots.len());
                let slots = receive(right, &mut wire.pool, sent.len());
                let arrived: Vec<_> = slots.iter().map(|slot| wire.pool.head(*slot)).collect();
                assert_eq!(arrived, sent, "{is_v6} {tags:?} {lengths:?}");
                slots.into_iter().for_each(|slot| wire.pool.free(slot));
                frames += sent.len() as u64;
                trains += u64::from(tags.is_empty());
            }
        }
    }
    let counters = wire.ports[0].counters();
    assert_eq!((counters.sent, counters.sent_trains), (frames, trains));
    assert_eq!(counters.lost_total(), 0);
}

/// The kernel reports a train as sent although the neighbour is switched off.
#[test]
fn what_the_interface_drops_of_a_train_is_no_secret() {
    let mut wire = Wire::with_offloads(Offloads::OFF, PacketOptions::default());
    let sent = flow(PLAIN, &[1000; 4]);
    let (mut offered, mut arrived) = (0, 0);
    for (is_up, tries) in [(true, 100), (false, 1), (true, 100), (false, 2)] {
        let mut links = wire.namespace.links().unwrap();
        links.set_up("right", is_up).unwrap();
        let before = arrived;
        // The carrier takes a moment.
        for _ in 0..tries {
            let slots = put_all(&mut wire.pool, &sent);
            let [left, right] = &mut wire.ports;
            assert_eq!(left.transmit(&mut wire.pool, &slots), 4);
            offered += 4;
            for slot in receive_for(right, &mut wire.pool, 4, Span::from_ms(20)) {
                arrived += 1;
                wire.pool.free(slot);
            }
            if arrived > before {
                break;
            }
        }
        assert_eq!(arrived - before, if is_up { 4 } else { 0 });
        // Frames missing at two checks, a tenth of a second apart, are lost.
        look(&mut wire);
        let counters = wire.ports[0].counters();
        let told = (counters.sent, counters.lost(Loss::Refused));
        assert_eq!(told, (arrived, offered - arrived));
        assert_eq!(counters.lost_total(), offered - arrived);
    }
    assert!(wire.ports[0].counters().sent_trains > 0);
}

/// Lets the port check its interface: at most ten times a second, and a helper does it.
fn look(wire: &mut Wire) {
    for _ in 0..50 {
        std::thread::sleep(std::time::Duration::from_millis(10));
        wire.ports[0].counters();
    }
}

/// The interface is checked again from time to time, and whenever the counters are read.
#[test]
fn an_interface_that_becomes_another_gets_other_trains_or_none() {
    let mut wire = Wire::with_offloads(Offloads::OFF, PacketOptions::default());
    let trains_of = |wire: &mut Wire, lengths: &[usize]| {
        let before = wire.ports[0].counters();
        let slots = put_all(&mut wire.pool, &flow(V6, lengths));
        let [left, _] = &mut wire.ports;
        left.transmit(&mut wire.pool, &slots);
        let after = left.counters();
        let too_long = after.lost(Loss::TooLong) - before.lost(Loss::TooLong);
        (after.sent_trains - before.sent_trains, too_long)
    };
    assert_eq!(trains_of(&mut wire, &[1400; 4]), (1, 0));
    wire.namespace
        .links()
        .unwrap()
        .set_mtu("left", 1300)
        .unwrap();
    look(&mut wire);
    assert_eq!(trains_of(&mut wire, &[1400; 4]), (0, 4));
    assert_eq!(trains_of(&mut wire, &[1000; 4]), (1, 0));
    wire.namespace.set_offloads("left", Offloads::ON).unwrap();
    look(&mut wire);
    assert_eq!(trains_of(&mut wire, &[1000; 4]), (0, 0));
}

/// A neighbour on a virtual interface would receive super-packets, unlike over a real wire.
#[test]
fn there_are_no_trains_where_the_interface_segments_or_nobody_wants_them() {
    let plain = PacketOptions::default();
    let unwanted = PacketOptions {
        trains: false,
        ..plain
    };
    // Segments of a train would arrive with partial checksums.
    let open = Offloads {
        tx_checksum: true,
        ..Offloads::OFF
    };
    for (offloads, options) in [
        (Offloads::ON, plain),
        (open, plain),
        (Offloads::OFF, unwanted),
    ] {
        let mut wire = Wire::with_offloads(offloads, options);
        let sent = flow(PLAIN, &[1000; 4]);
        let slots = put_all(&mut wire.pool, &sent);
        let [left, right] = &mut wire.ports;
        assert_eq!(left.transmit(&mut wire.pool, &slots), 4);
        assert_eq!(receive(right, &mut wire.pool, 4).len(), 4);
        let counters = left.counters();
        assert_eq!((counters.sent, counters.sent_trains), (4, 0));
    }
}
