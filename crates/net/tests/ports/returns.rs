//! Interfaces that are removed and made again, or renamed.

use super::*;
use sluice_net::port::registry::Sharing;
use sluice_net::port::{PortSpec, Slot};

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

/// Returns whether a frame that one port sends arrives at another one, within 2 s.
fn crosses(pool: &mut Pool, sent: &[u8], from: &mut PacketPort, to: &mut PacketPort) -> bool {
    (0..100).any(|_| {
        let slot = put(pool, sent);
        assert_eq!(from.transmit(pool, &[slot]), 1);
        let slots = receive_for(to, pool, 1, Span::from_ms(20));
        take_first(pool, slots).as_deref() == Some(sent)
    })
}

/// Four ports with these settings leave most slots of the pool free.
fn small() -> PacketOptions {
    PacketOptions {
        batch: 4,
        ..PacketOptions::default()
    }
}

/// Rules, the status and events speak of the name, so a port is its name.
#[test]
fn a_port_leaves_an_interface_that_is_renamed_and_takes_the_next_of_its_name() {
    let mut wire = Wire::new(small());
    let sent = frame(&[], 100);
    assert_eq!(wire.send(&sent), 1);
    assert_eq!(wire.next(), Some(sent.clone()));
    if !wire::rename(&wire.namespace, "left", "old") {
        return;
    }
    let mut links = wire.namespace.links().unwrap();
    let is_left = (0..1000).any(|_| {
        wire.ports[0].receive(&mut wire.pool, &mut Vec::new());
        std::thread::sleep(Duration::from_millis(5));
        !links.interface("old").unwrap().is_promiscuous
    });
    assert!(is_left, "the port keeps the interface promiscuous");
    let before = wire.ports[0].counters();
    assert_eq!(wire.send(&sent), 1);
    let after = wire.ports[0].counters();
    assert_eq!(after.lost(Loss::Down), before.lost(Loss::Down) + 1);
    assert_eq!(after.sent, before.sent);
    let [left, right] = &mut wire.ports;
    let slot = put(&mut wire.pool, &sent);
    assert_eq!(right.transmit(&mut wire.pool, &[slot]), 1);
    let slots = receive_for(left, &mut wire.pool, 1, Span::from_ms(50));
    assert!(slots.is_empty(), "it is from the interface `old`");
    // Another interface gets the name.
    wire::connect_as(&wire.namespace, ["left", "far"]);
    let mut far = PacketPort::open(&wire.namespace, "far", small()).unwrap();
    assert!(crosses(&mut wire.pool, &sent, left, &mut far));
    assert!(crosses(&mut wire.pool, &sent, &mut far, left));
    assert!(links.interface("left").unwrap().is_promiscuous);
    assert!(!links.interface("old").unwrap().is_promiscuous);
    for port in [left, right, &mut far] {
        port.release(&mut wire.pool);
    }
    assert_eq!(wire.pool.available(), 64);
}

/// The port that notices it second has no chance to do so before: nobody calls it.
#[test]
fn two_ports_whose_interfaces_exchange_their_names_never_share_one() {
    let mut wire = Wire::new(small());
    wire::connect_as(&wire.namespace, ["other", "far"]);
    let open = |name| PacketPort::open(&wire.namespace, name, small()).unwrap();
    let (mut other, mut far) = (open("other"), open("far"));
    let [left, right] = &mut wire.ports;
    let (sent, pool) = (frame(&[], 100), &mut wire.pool);
    assert!(crosses(pool, &sent, left, right) && crosses(pool, &sent, &mut other, &mut far));
    for (name, to) in [("left", "old"), ("other", "left"), ("old", "other")] {
        if !wire::rename(&wire.namespace, name, to) {
            return;
        }
    }
    assert!(crosses(pool, &sent, left, &mut far));
    let slot = put(pool, &sent);
    assert_eq!(far.transmit(pool, &[slot]), 1);
    let slots = receive(left, pool, 1);
    assert_eq!(take_first(pool, slots), Some(sent.clone()));
    let slots = receive_for(&mut other, pool, 1, Span::from_ms(50));
    assert!(slots.is_empty(), "the interface belongs to `left` now");
    // Frames of the other length may wait since before the change.
    let later = frame(&[], 200);
    assert!(crosses(pool, &later, &mut other, right));
    assert!(crosses(pool, &later, right, &mut other));
    for port in [left, right, &mut other, &mut far] {
        port.release(pool);
    }
    assert_eq!(pool.available(), 64);
}

#[test]
fn a_port_knows_a_new_mtu_of_its_interface() {
    let mut wire = Wire::new(small());
    assert_eq!(wire.ports[0].capabilities().mtu, 1500);
    assert!(knows_mtu(&mut wire, 1280));
}

/// Sets the MTU of the left interface. Returns whether its port knows it soon.
fn knows_mtu(wire: &mut Wire, mtu: u32) -> bool {
    let mut links = wire.namespace.links().unwrap();
    links.set_mtu("left", mtu).unwrap();
    (0..1000).any(|_| {
        wire.ports[0].receive(&mut wire.pool, &mut Vec::new());
        std::thread::sleep(Duration::from_millis(5));
        wire.ports[0].capabilities().mtu == mtu
    })
}

/// The kernel compares only single packets with the MTU.
#[test]
fn a_super_packet_with_segments_above_the_mtu_is_counted() {
    for offloads in [Offloads::ON, Offloads::OFF] {
        let mut wire = Wire::with_offloads(offloads, small());
        // 20 bytes of IPv4, 20 of TCP and 600 of payload make 640.
        assert!(knows_mtu(&mut wire, 639));
        assert!(cross(&mut wire, Span::from_ms(50)).is_empty());
        let counters = wire.ports[0].counters();
        assert_eq!((counters.sent, counters.lost(Loss::TooLong)), (0, 1));
        assert!(knows_mtu(&mut wire, 640));
        assert!(!cross(&mut wire, Span::from_secs(1)).is_empty());
        let counters = wire.ports[0].counters();
        assert_eq!((counters.sent, counters.lost_total()), (1, 1));
    }
}

/// The frames of a port begin with an Ethernet header, and those of a `tun` device do not.
#[test]
fn a_device_without_ethernet_that_gets_the_name_is_no_port() {
    let mut wire = Wire::new(small());
    let mut links = wire.namespace.links().unwrap();
    links.remove("left").unwrap();
    let options = TunOptions {
        link: Link::Ip,
        ..TunOptions::default()
    };
    let tun = TunPort::create(&wire.namespace, "left", options).unwrap();
    links.set_up("left", true).unwrap();
    let [left, right] = &mut wire.ports;
    let error = (0..1000).find_map(|_| {
        left.receive(&mut wire.pool, &mut Vec::new());
        std::thread::sleep(Duration::from_millis(5));
        left.attach_error()
    });
    let expected = "interface \"left\" carries no Ethernet frames, so it cannot be bridged: shape what the \
                    kernel routes through it instead (`--forward`)";
    assert_eq!(error.as_deref(), Some(expected));
    let refused = PacketPort::open(&wire.namespace, "left", small()).err();
    assert_eq!(refused.unwrap().to_string(), expected);
    let before = left.counters().lost(Loss::Down);
    let sent = frame(&[], 100);
    let slot = put(&mut wire.pool, &sent);
    assert_eq!(left.transmit(&mut wire.pool, &[slot]), 1);
    assert_eq!(left.counters().lost(Loss::Down), before + 1);
    // The device ends with its file.
    drop(tun);
    wire::connect(&wire.namespace);
    assert!(crosses(&mut wire.pool, &sent, left, right));
    // The helper may have attached the sockets before the port has its answer.
    let is_over = (0..1000).any(|_| {
        left.receive(&mut wire.pool, &mut Vec::new());
        std::thread::sleep(Duration::from_millis(5));
        left.attach_error().is_none()
    });
    assert!(is_over, "{:?}", left.attach_error());
}

/// The first member sees that the interface has another name, the second one only that it has its own again.
/// If the second one stayed, its old group and the new one would both get every frame.
#[test]
fn members_of_a_group_leave_an_interface_together() {
    let namespace = wire::namespace();
    let spec: PortSpec = "packet:left".parse().unwrap();
    let size = PoolSize {
        slots: 1024,
        large: 8,
    };
    let mut pools = [(); 3].map(|()| Pool::new(size).unwrap());
    let [first, second, far] = &mut pools;
    let of_members = &mut [&mut *first, &mut *second];
    let opened = spec.open_group(&namespace, Clock::start(), of_members, Sharing::Flows);
    let mut members = opened.unwrap().ports;
    let mut right = PacketPort::open(&namespace, "right", small()).unwrap();
    if !wire::rename(&namespace, "left", "old") {
        return;
    }
    let pause = || std::thread::sleep(Duration::from_millis(5));
    let has_left = (0..1000).any(|_| {
        members[0].receive(first, &mut Vec::new());
        pause();
        members[0].capabilities().mtu == 0
    });
    assert!(has_left);
    assert!(wire::rename(&namespace, "old", "left"));
    let (mut got, mut others) = (Vec::new(), Vec::new());
    let is_back = (0..1000).any(|_| {
        members[0].receive(first, &mut got);
        members[1].receive(second, &mut others);
        pause();
        members[0].capabilities().mtu == 1500
    });
    assert!(is_back);
    // The second one needs its answer as well.
    for _ in 0..100 {
        members[1].receive(second, &mut others);
        pause();
    }
    got.drain(..).for_each(|slot| first.free(slot));
    others.drain(..).for_each(|slot| second.free(slot));
    for number in 0..64 {
        let mut sent = Vec::new();
        PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
            .udp(1000 + number, 9)
            .write(&mut sent, &[7; 100])
            .unwrap();
        let slot = put(far, &sent);
        assert_eq!(right.transmit(far, &[slot]), 1);
    }
    for _ in 0..40 {
        members[0].receive(first, &mut got);
        members[1].receive(second, &mut others);
        pause();
    }
    assert_eq!(got.len() + others.len(), 64);
    assert!(!got.is_empty() && !others.is_empty(), "both get flows");
    got.drain(..).for_each(|slot| first.free(slot));
    others.drain(..).for_each(|slot| second.free(slot));
}
