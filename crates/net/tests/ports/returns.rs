//! Super-packets on an interface that does not segment them, and that is removed and made again.

use super::*;
use sluice_net::port::Slot;

/// Two segments of 600 bytes behind 54 bytes of headers.
fn super_packet(pool: &mut Pool) -> Slot {
    let mut bytes = Vec::new();
    PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
        .ipv4([10, 9, 0, 1], [10, 9, 0, 2], 64)
        .tcp(1000, 80, 1, 500)
        .ack(1)
        .write(&mut bytes, &[7; 1200])
        .unwrap();
    let slot = put(pool, &bytes);
    let vnet = VnetHeader {
        flags: VnetHeader::NEEDS_CSUM,
        // VIRTIO_NET_HDR_GSO_TCPV4 of linux/virtio_net.h.
        gso_type: 1,
        hdr_len: 54,
        gso_size: 600,
        csum_start: 34,
        csum_offset: 16,
    };
    pool.set_vnet(slot, vnet);
    slot
}

/// Sends a super-packet on the left. Returns the lengths of the frames that arrive on the right
/// within `most`.
fn cross(wire: &mut Wire, most: Span) -> Vec<usize> {
    let [left, right] = &mut wire.ports;
    let slot = super_packet(&mut wire.pool);
    assert_eq!(left.transmit(&mut wire.pool, &[slot]), 1);
    let slots = receive_for(right, &mut wire.pool, 2, most);
    let length = |slot: &Slot| wire.pool.frame_len(*slot);
    let lengths = slots.iter().map(length).collect();
    slots.into_iter().for_each(|slot| wire.pool.free(slot));
    lengths
}

/// A second socket sends super-packets there; the kernel detaches it like the first.
#[test]
fn super_packets_cross_again_after_an_interface_is_made_again() {
    let mut wire = Wire::with_offloads(Offloads::OFF, PacketOptions::default());
    assert_eq!(cross(&mut wire, Span::from_secs(1)), [654, 654]);
    for _ in 0..2 {
        wire.namespace.links().unwrap().remove("left").unwrap();
        assert!(cross(&mut wire, Span::from_ms(1)).is_empty());
        wire::connect(&wire.namespace);
        for end in ["left", "right"] {
            wire.namespace.set_offloads(end, Offloads::OFF).unwrap();
        }
        // Both ports find their interfaces within a tenth of a second; frames sent before are lost.
        let arrived = (0..100).find_map(|_| {
            let lengths = cross(&mut wire, Span::from_ms(20));
            (!lengths.is_empty()).then_some(lengths)
        });
        assert_eq!(arrived, Some(vec![654, 654]));
    }
    let counters = wire.ports[0].counters();
    assert_eq!(counters.lost(Loss::Refused), 0, "{counters:?}");
    assert!(counters.lost(Loss::Down) >= 2, "{counters:?}");
}
