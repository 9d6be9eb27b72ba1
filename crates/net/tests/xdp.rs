//! AF_XDP ports on veth pairs, live.

mod common;
#[path = "xdp/lost.rs"]
mod lost;

use common::Topology;
use common::segments::{PLAIN, V6, flow};
use common::wire::{self, frame, put, put_all, receive, receive_for, take_first};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use sluice_core::Span;
use sluice_net::namespace::{Namespace, Offloads};
use sluice_net::port::choose::{self, AttachOptions, choose};
use sluice_net::port::packet::PacketOptions;
use sluice_net::port::registry;
use sluice_net::port::tun::TunOptions;
use sluice_net::port::xdp::{XdpError, XdpMode, XdpOptions};
use sluice_net::port::{HoldError, Loss, PacketPort, Pool, PoolSize, Port, TunPort, XdpPort};
use sluice_wire::frame::Link;

fn size(slots: u32) -> PoolSize {
    PoolSize { slots, large: 1 }
}

fn pool(slots: u32) -> Pool {
    Pool::new(size(slots)).unwrap()
}

/// A pair of interfaces: a packet port on the left, an AF_XDP port on the right.
fn ports(pool: &mut Pool, options: XdpOptions) -> (Namespace, PacketPort, XdpPort) {
    let namespace = wire::namespace();
    let left = PacketPort::open(&namespace, "left", PacketOptions::default()).unwrap();
    let right = XdpPort::open(&namespace, "right", pool, options).unwrap();
    (namespace, left, right)
}

#[test]
fn frames_cross_byte_for_byte_both_ways_in_every_mode_that_veth_has() {
    for mode in [XdpMode::Copy, XdpMode::Generic] {
        let mut pool = pool(512);
        let options = XdpOptions {
            ready: 128,
            mode: Some(mode),
            ..XdpOptions::default()
        };
        let (_namespace, mut left, mut right) = ports(&mut pool, options);
        assert_eq!(right.mode(), mode);
        let (customer, service) = ([0x81, 0, 0x20, 5], [0x88, 0xa8, 0, 9]);
        for tags in [&[][..], &[customer], &[service, customer]] {
            for length in [46, 100, 1400] {
                let sent = frame(tags, length);
                let slot = put(&mut pool, &sent);
                assert_eq!(left.transmit(&mut pool, &[slot]), 1);
                let slots = receive(&mut right, &mut pool, 1);
                assert_eq!(pool.head(slots[0]), sent, "{mode} {tags:?} {length}");
                // The same slot is sent back.
                assert_eq!(right.transmit(&mut pool, &slots), 1);
                let slots = receive(&mut left, &mut pool, 1);
                assert_eq!(pool.head(slots[0]), sent, "{mode} {tags:?} {length}");
                slots.into_iter().for_each(|slot| pool.free(slot));
            }
        }
        assert_eq!(right.counters().lost_total(), 0);
        left.release(&mut pool);
        right.release(&mut pool);
        assert_eq!(pool.available(), 512, "all slots are free again");
    }
}

/// In the modes in which the kernel copies, segments leave as a super-packet, after the frames sent
/// before.
#[test]
fn trains_leave_beside_the_ring_and_in_order() {
    for mode in [XdpMode::Copy, XdpMode::Generic] {
        let mut pool = pool(512);
        let namespace = wire::namespace();
        for end in ["left", "right"] {
            namespace.set_offloads(end, Offloads::OFF).unwrap();
        }
        let options = XdpOptions {
            ready: 128,
            mode: Some(mode),
            ..XdpOptions::default()
        };
        let mut left = PacketPort::open(&namespace, "left", PacketOptions::default()).unwrap();
        let mut right = XdpPort::open(&namespace, "right", &mut pool, options).unwrap();
        let segments = flow(PLAIN, &[1400; 6]);
        for _ in 0..20 {
            let sent = [
                vec![frame(&[], 100)],
                segments.clone(),
                vec![frame(&[], 200)],
            ];
            // Single frames, segments, single frames.
            for part in &sent {
                let slots = put_all(&mut pool, part);
                assert_eq!(right.transmit(&mut pool, &slots), slots.len());
            }
            let sent = sent.concat();
            let slots = receive(&mut left, &mut pool, sent.len());
            let arrived: Vec<_> = slots.iter().map(|slot| pool.head(*slot)).collect();
            assert_eq!(arrived, sent, "{mode}");
            slots.into_iter().for_each(|slot| pool.free(slot));
        }
        let counters = right.counters();
        assert_eq!((counters.sent, counters.sent_trains), (160, 20), "{mode}");
        assert_eq!(counters.lost_total(), 0);
        right.release(&mut pool);
        left.release(&mut pool);
        assert_eq!(pool.available(), 512, "all slots are free again");
    }
}

/// The second port on a pool shares the registration of the first, and the kernel uses its mode.
#[test]
fn a_second_port_says_how_its_frames_really_come() {
    let mut pool = pool(512);
    let namespace = wire::namespace();
    let options = XdpOptions {
        ready: 64,
        ..XdpOptions::default()
    };
    let modes = ["left", "right"].map(|name| {
        let port = XdpPort::open(&namespace, name, &mut pool, options).unwrap();
        (port.mode(), port)
    });
    // A veth pair cannot write frames directly into the packet memory.
    for (mode, _) in &modes {
        assert_eq!(*mode, XdpMode::Copy);
    }
}

#[test]
fn the_halves_of_an_interface_keep_their_frames_in_two_pools() {
    let options = XdpOptions {
        ready: 64,
        ..XdpOptions::default()
    };
    let mut common = pool(512);
    let (namespace, mut left, mut right) = ports(&mut common, options);
    right.release(&mut common);
    drop(right);
    let (mut into, mut from) = Pool::pair(size(256)).unwrap();
    let (mut receiving, mut sending) =
        XdpPort::open_halves(&namespace, "right", &mut into, &from, options).unwrap();
    for length in [46, 100, 1400] {
        let sent = frame(&[], length);
        let slot = put(&mut common, &sent);
        assert_eq!(left.transmit(&mut common, &[slot]), 1);
        let slots = receive(&mut receiving, &mut into, 1);
        assert_eq!(into.head(slots[0]), sent);
        let slot = put(&mut from, &sent);
        assert_eq!(sending.transmit(&mut from, &[slot]), 1);
        let back = receive(&mut left, &mut common, 1);
        assert_eq!(common.head(back[0]), sent);
        slots.into_iter().for_each(|slot| into.free(slot));
        back.into_iter().for_each(|slot| common.free(slot));
    }
    let mut none = Vec::new();
    assert_eq!(sending.receive(&mut from, &mut none), 0);
    assert_eq!(receiving.counters().lost_total(), 0);
    assert_eq!(sending.counters().sent, 3);
    sending.release(&mut from);
    receiving.release(&mut into);
    assert_eq!((into.available(), from.available()), (256, 256));
}

/// Sends until a frame arrives, for at most 2 s: both ports check for their interface ten times a
/// second.
fn crosses(
    sent: &[u8],
    (from, from_pool): (&mut impl Port, &mut Pool),
    (to, to_pool): (&mut impl Port, &mut Pool),
) -> bool {
    (0..100).any(|_| {
        let slot = put(from_pool, sent);
        if from.transmit(from_pool, &[slot]) == 0 {
            from_pool.free(slot);
        }
        let slots = receive_for(to, to_pool, 1, Span::from_ms(20));
        take_first(to_pool, slots).as_deref() == Some(sent)
    })
}

/// Returns whether the kernel gives back all 512 slots of a port without an interface: a helper closes
/// its sockets.
fn gets_all_back(port: &mut XdpPort, pool: &mut Pool) -> bool {
    (0..1000).any(|_| {
        port.receive(pool, &mut Vec::new());
        std::thread::sleep(std::time::Duration::from_millis(5));
        pool.available() == 512
    })
}

#[test]
fn trains_go_down_with_their_interface_and_come_back_with_it() {
    let (mut own, mut common) = (pool(512), pool(512));
    let options = XdpOptions {
        ready: 64,
        ..XdpOptions::default()
    };
    let namespace = wire::namespace();
    let plain = |namespace: &Namespace| {
        for end in ["left", "right"] {
            namespace.set_offloads(end, Offloads::OFF).unwrap();
        }
    };
    plain(&namespace);
    let mut left = PacketPort::open(&namespace, "left", PacketOptions::default()).unwrap();
    let mut right = XdpPort::open(&namespace, "right", &mut common, options).unwrap();
    let segments = flow(V6, &[1000; 4]);
    let mut lost = 0;
    for round in 1..=2 {
        let before = right.counters().sent_trains;
        let sent_one = (0..100).any(|_| {
            let slots = put_all(&mut common, &segments);
            assert_eq!(right.transmit(&mut common, &slots), 4);
            let slots = receive_for(&mut left, &mut own, 4, Span::from_ms(20));
            let arrived: Vec<_> = slots.iter().map(|slot| own.head(*slot).to_vec()).collect();
            slots.into_iter().for_each(|slot| own.free(slot));
            let mut none = Vec::new();
            right.receive(&mut common, &mut none);
            arrived == segments
        });
        assert!(sent_one, "round {round}");
        assert!(right.counters().sent_trains > before, "round {round}");
        namespace.links().unwrap().remove("left").unwrap();
        let slots = put_all(&mut common, &segments);
        let before = right.counters();
        assert_eq!(right.transmit(&mut common, &slots), 4);
        let after = right.counters();
        lost = after.lost(Loss::Down);
        assert_eq!(lost, before.lost(Loss::Down) + 4);
        assert_eq!(after.sent, before.sent, "lost frames do not count as sent");
        wire::connect(&namespace);
        plain(&namespace);
    }
    assert!(lost >= 8);
    assert_eq!(right.counters().lost_total(), lost);
}

#[test]
fn frames_for_an_interface_that_is_down_do_not_leave_when_it_is_up_again() {
    for mode in [XdpMode::Copy, XdpMode::Generic] {
        let (mut common, mut own) = (pool(512), pool(512));
        let options = XdpOptions {
            ready: 64,
            mode: Some(mode),
            ..XdpOptions::default()
        };
        let (namespace, mut left, mut right) = ports(&mut common, options);
        let mut links = namespace.links().unwrap();
        let (stale, fresh) = (frame(&[], 100), frame(&[], 200));
        for round in 1..=3 {
            let before = right.counters();
            links.set_up("right", false).unwrap();
            for count in [5, 2] {
                let slots = put_all(&mut common, &vec![stale.clone(); count]);
                assert_eq!(right.transmit(&mut common, &slots), count);
            }
            let counters = right.counters();
            assert_eq!(
                counters.lost(Loss::Down),
                before.lost(Loss::Down) + 7,
                "{mode}"
            );
            assert_eq!(
                counters.sent, before.sent,
                "lost frames do not count as sent"
            );
            assert!(gets_all_back(&mut right, &mut common), "{mode}");
            links.set_up("right", true).unwrap();
            let (from, to) = ((&mut right, &mut common), (&mut left, &mut own));
            assert!(crosses(&fresh, from, to), "{mode}, round {round}");
            let more = receive_for(&mut left, &mut own, 8, Span::from_ms(50));
            let stale = more.iter().filter(|slot| own.head(**slot) == stale).count();
            assert_eq!(
                stale, 0,
                "{mode}: frames from before leave in round {round}"
            );
            more.into_iter().for_each(|slot| own.free(slot));
        }
        let counters = right.counters();
        assert_eq!(counters.lost_total(), counters.lost(Loss::Down), "{mode}");
    }
}

/// With its neighbour down, an interface is up but drops each frame: it has no carrier.
#[test]
fn frames_that_the_interface_drops_are_counted_and_do_not_hold_up_those_behind_them() {
    for mode in [XdpMode::Copy, XdpMode::Generic] {
        let (mut common, mut own) = (pool(512), pool(512));
        let options = XdpOptions {
            ready: 64,
            mode: Some(mode),
            ..XdpOptions::default()
        };
        let (namespace, mut left, mut right) = ports(&mut common, options);
        let mut links = namespace.links().unwrap();
        links.set_up("left", false).unwrap();
        // More than two of the kernel's batches (32 frames), of different lengths.
        let stale: Vec<_> = (0..70).map(|number| frame(&[], 100 + number)).collect();
        let slots = put_all(&mut common, &stale);
        assert_eq!(right.transmit(&mut common, &slots), 70);
        let counters = right.counters();
        assert_eq!(counters.lost(Loss::Refused), 70, "{mode}");
        assert_eq!((counters.sent, counters.sent_bytes), (0, 0), "{mode}");
        assert_eq!(common.available(), 512 - 64, "{mode}: none is in the ring");
        links.set_up("left", true).unwrap();
        let fresh = frame(&[], 300);
        let (from, to) = ((&mut right, &mut common), (&mut left, &mut own));
        assert!(crosses(&fresh, from, to), "{mode}");
        let more = receive_for(&mut left, &mut own, 8, Span::from_ms(50));
        let fresh_only = more.iter().all(|slot| own.head(*slot) == fresh);
        assert!(fresh_only, "{mode}: frames from before leave");
        more.into_iter().for_each(|slot| own.free(slot));
    }
}

#[test]
fn an_interface_that_is_made_again_is_found_again() {
    let (mut common, mut own) = (pool(512), pool(512));
    let options = XdpOptions {
        ready: 64,
        ..XdpOptions::default()
    };
    let (namespace, mut left, mut right) = ports(&mut common, options);
    let sent = frame(&[], 100);
    for round in 0..3 {
        let (to, back) = ((&mut right, &mut common), (&mut left, &mut own));
        assert!(crosses(&sent, back, to), "round {round}");
        let (from, to) = ((&mut right, &mut common), (&mut left, &mut own));
        assert!(crosses(&sent, from, to), "back, round {round}");
        namespace.links().unwrap().remove("left").unwrap();
        let before = right.counters();
        let slot = put(&mut common, &sent);
        assert_eq!(right.transmit(&mut common, &[slot]), 1);
        let after = right.counters();
        assert_eq!(after.lost(Loss::Down), before.lost(Loss::Down) + 1);
        assert_eq!(after.sent, before.sent, "lost frames do not count as sent");
        assert!(gets_all_back(&mut right, &mut common));
        wire::connect(&namespace);
    }
    left.release(&mut own);
    right.release(&mut common);
    assert_eq!((common.available(), own.available()), (512, 512));
}

#[test]
fn an_interface_that_was_moved_away_and_back_is_found_again() {
    let (mut common, mut own) = (pool(512), pool(512));
    let (namespace, mut left, mut right) = ports(&mut common, XdpOptions::default());
    let sent = frame(&[], 100);
    let (to, back) = ((&mut right, &mut common), (&mut left, &mut own));
    assert!(crosses(&sent, back, to));
    let away = Namespace::create("away").unwrap();
    let mut links = namespace.links().unwrap();
    let index = links.interface("right").unwrap().index;
    links.move_to("right", &away).unwrap();
    away.links().unwrap().move_to("right", &namespace).unwrap();
    links.set_up("right", true).unwrap();
    let returned = links.interface("right").unwrap();
    assert_eq!((returned.index, returned.is_promiscuous), (index, false));
    let (to, back) = ((&mut right, &mut common), (&mut left, &mut own));
    assert!(crosses(&sent, back, to), "moved back");
    assert!(links.interface("right").unwrap().is_promiscuous);
    left.release(&mut own);
    right.release(&mut common);
    assert_eq!((common.available(), own.available()), (512, 512));
}

/// Rules, the status and events speak of the name, so a port is its name.
#[test]
fn a_port_leaves_an_interface_that_is_renamed_and_takes_the_next_of_its_name() {
    let (mut common, mut own) = (pool(512), pool(512));
    let options = XdpOptions {
        ready: 64,
        ..XdpOptions::default()
    };
    let (namespace, mut left, mut right) = ports(&mut common, options);
    let sent = frame(&[], 100);
    let (from, to) = ((&mut left, &mut own), (&mut right, &mut common));
    assert!(crosses(&sent, from, to));
    if !wire::rename(&namespace, "right", "old") {
        return;
    }
    assert!(gets_all_back(&mut right, &mut common));
    let mut links = namespace.links().unwrap();
    let is_left = (0..1000).any(|_| {
        right.receive(&mut common, &mut Vec::new());
        std::thread::sleep(std::time::Duration::from_millis(5));
        !links.interface("old").unwrap().is_promiscuous
    });
    assert!(is_left, "the port keeps the interface promiscuous");
    let before = right.counters();
    let slot = put(&mut common, &sent);
    assert_eq!(right.transmit(&mut common, &[slot]), 1);
    let after = right.counters();
    assert_eq!(after.lost(Loss::Down), before.lost(Loss::Down) + 1);
    // Another interface gets the name.
    wire::connect_as(&namespace, ["far", "right"]);
    let mut far = PacketPort::open(&namespace, "far", PacketOptions::default()).unwrap();
    let (from, to) = ((&mut far, &mut own), (&mut right, &mut common));
    assert!(crosses(&sent, from, to));
    let (from, to) = ((&mut right, &mut common), (&mut far, &mut own));
    assert!(crosses(&sent, from, to));
    assert!(links.interface("right").unwrap().is_promiscuous);
    for port in [&mut left, &mut far] {
        port.release(&mut own);
    }
    right.release(&mut common);
    assert_eq!((common.available(), own.available()), (512, 512));
}

#[test]
fn a_port_that_cannot_attach_to_an_interface_that_is_back_says_why() {
    let (mut common, mut own) = (pool(512), pool(512));
    let options = XdpOptions {
        ready: 64,
        ..XdpOptions::default()
    };
    let (namespace, mut left, mut right) = ports(&mut common, options);
    let mut links = namespace.links().unwrap();
    links.remove("right").unwrap();
    wire::connect(&namespace);
    links.set_mtu("right", 4000).unwrap();
    let error = (0..1000).find_map(|_| {
        right.receive(&mut common, &mut Vec::new());
        std::thread::sleep(std::time::Duration::from_millis(5));
        right.attach_error()
    });
    // 2048 bytes of a slot less 256 and 22: `XdpPort::MOST_MTU`.
    let expected =
        "interface \"right\" has an MTU of 4000, but AF_XDP supports at most 1770".to_owned();
    assert_eq!(error, Some(expected));
    links.set_mtu("right", 1500).unwrap();
    let (from, to) = ((&mut left, &mut own), (&mut right, &mut common));
    assert!(crosses(&frame(&[], 100), from, to));
    assert_eq!(right.attach_error(), None);
    left.release(&mut own);
    right.release(&mut common);
    assert_eq!((common.available(), own.available()), (512, 512));
}

#[test]
fn a_frame_above_a_new_mtu_is_counted() {
    let mut common = pool(4096);
    let (namespace, _left, mut right) = ports(&mut common, XdpOptions::default());
    assert_eq!(right.capabilities().mtu, 1500);
    namespace.links().unwrap().set_mtu("right", 1280).unwrap();
    let is_known = (0..1000).any(|_| {
        right.receive(&mut common, &mut Vec::new());
        std::thread::sleep(std::time::Duration::from_millis(5));
        right.capabilities().mtu == 1280
    });
    assert!(is_known);
    // 1280 bytes behind an Ethernet header with two tags, and one more: 14 + 8 + 1280 + 1.
    for (length, too_long) in [(1288, 0), (1289, 1)] {
        let slot = put(&mut common, &frame(&[], length));
        assert_eq!(right.transmit(&mut common, &[slot]), 1);
        assert_eq!(right.counters().lost(Loss::TooLong), too_long);
    }
}

/// The half that sends may be idle for long.
#[test]
fn both_halves_leave_an_interface_that_is_renamed() {
    let namespace = wire::namespace();
    let (mut into, mut from) = Pool::pair(size(256)).unwrap();
    let mut common = pool(512);
    let options = XdpOptions {
        ready: 64,
        ..XdpOptions::default()
    };
    let (mut receiving, mut sending) =
        XdpPort::open_halves(&namespace, "right", &mut into, &from, options).unwrap();
    if !wire::rename(&namespace, "right", "old") {
        return;
    }
    wire::connect_as(&namespace, ["far", "right"]);
    let mut left = PacketPort::open(&namespace, "left", PacketOptions::default()).unwrap();
    let mut far = PacketPort::open(&namespace, "far", PacketOptions::default()).unwrap();
    let sent = frame(&[], 100);
    let (near, end) = ((&mut far, &mut common), (&mut receiving, &mut into));
    assert!(crosses(&sent, near, end));
    // Its first frame after the change does not leave through the interface that it had before.
    let (end, near) = ((&mut sending, &mut from), (&mut far, &mut common));
    assert!(crosses(&sent, end, near));
    let slots = receive_for(&mut left, &mut common, 1, Span::from_ms(50));
    assert!(slots.is_empty(), "a frame has left through `old`");
    sending.release(&mut from);
    receiving.release(&mut into);
    assert_eq!((into.available(), from.available()), (256, 256));
}

#[test]
fn both_halves_find_an_interface_that_is_made_again() {
    let namespace = wire::namespace();
    let (mut into, mut from) = Pool::pair(size(256)).unwrap();
    let mut common = pool(512);
    let mut left = PacketPort::open(&namespace, "left", PacketOptions::default()).unwrap();
    let options = XdpOptions {
        ready: 64,
        ..XdpOptions::default()
    };
    let (mut receiving, mut sending) =
        XdpPort::open_halves(&namespace, "right", &mut into, &from, options).unwrap();
    let sent = frame(&[], 100);
    for round in 0..3 {
        let (near, far) = ((&mut left, &mut common), (&mut receiving, &mut into));
        assert!(crosses(&sent, near, far), "round {round}");
        let (far, near) = ((&mut sending, &mut from), (&mut left, &mut common));
        assert!(crosses(&sent, far, near), "back, round {round}");
        let mut links = namespace.links().unwrap();
        if round == 1 {
            // Only the sending half notices.
            links.set_up("right", false).unwrap();
            let slot = put(&mut from, &sent);
            assert_eq!(sending.transmit(&mut from, &[slot]), 1);
            links.set_up("right", true).unwrap();
            let mut none = Vec::new();
            receiving.receive(&mut into, &mut none);
            assert_eq!(none, []);
        } else {
            links.remove("right").unwrap();
            wire::connect(&namespace);
        }
    }
    assert!(sending.counters().lost(Loss::Down) > 0);
    sending.release(&mut from);
    receiving.release(&mut into);
    assert_eq!((into.available(), from.available()), (256, 256));
}

#[test]
fn ports_on_one_memory_lose_their_interfaces_one_after_the_other() {
    let namespace = wire::namespace();
    let mut common = pool(512);
    let options = XdpOptions {
        ready: 64,
        ..XdpOptions::default()
    };
    let mut left = XdpPort::open(&namespace, "left", &mut common, options).unwrap();
    let mut right = XdpPort::open(&namespace, "right", &mut common, options).unwrap();
    // Both ends of the wire are removed; either port may find its interface first.
    namespace.links().unwrap().remove("left").unwrap();
    wire::connect(&namespace);
    let sent = frame(&[], 100);
    let arrived = (0..100).any(|_| {
        right.receive(&mut common, &mut Vec::new());
        let slot = put(&mut common, &sent);
        assert_eq!(left.transmit(&mut common, &[slot]), 1);
        let slots = receive_for(&mut right, &mut common, 1, Span::from_ms(20));
        take_first(&mut common, slots).as_deref() == Some(&sent[..])
    });
    assert!(arrived);
    left.release(&mut common);
    right.release(&mut common);
    assert_eq!(common.available(), 512);
}

#[test]
fn the_best_mode_is_taken_and_what_cannot_be_is_refused() {
    let mut pool = pool(64);
    let (namespace, _left, right) = ports(&mut pool, XdpOptions::default());
    assert_eq!(right.mode(), XdpMode::Copy, "veth has no zero-copy");
    let taken = XdpPort::open(&namespace, "right", &mut pool, XdpOptions::default());
    assert!(
        matches!(taken, Err(XdpError::Kernel { .. })),
        "a hook takes one program"
    );
    drop(right);
    namespace.links().unwrap().set_mtu("left", 4000).unwrap();
    let refused = XdpPort::open(&namespace, "left", &mut pool, XdpOptions::default());
    assert!(matches!(refused, Err(XdpError::Mtu { mtu: 4000, .. })));
    XdpPort::open(&namespace, "right", &mut pool, XdpOptions::default()).unwrap();
}

#[test]
fn an_interface_without_ethernet_is_refused() {
    let namespace = wire::namespace();
    let options = TunOptions {
        link: Link::Ip,
        ..TunOptions::default()
    };
    let _tun = TunPort::create(&namespace, "tun0", options).unwrap();
    let opened = XdpPort::open(&namespace, "tun0", &mut pool(64), XdpOptions::default());
    assert!(matches!(opened, Err(XdpError::Hold(HoldError::NotEthernet(name))) if name == "tun0"));
}

#[test]
fn what_finds_no_slot_is_counted() {
    let mut pool = pool(40);
    let options = XdpOptions {
        ready: 8,
        ..XdpOptions::default()
    };
    let (_namespace, mut left, mut right) = ports(&mut pool, options);
    for _ in 0..20 {
        let slot = put(&mut pool, &frame(&[], 100));
        assert_eq!(left.transmit(&mut pool, &[slot]), 1);
    }
    let slots = receive(&mut right, &mut pool, 8);
    assert_eq!(slots.len(), 8);
    let counters = right.counters();
    assert_eq!(
        counters.received + counters.lost(Loss::NoSlot),
        20,
        "{counters:?}"
    );
    assert_eq!(counters.lost_total(), counters.lost(Loss::NoSlot));
}

#[test]
fn the_choice_follows_the_offloads_and_says_why() {
    let topology = Topology::new(Offloads::ON);
    let mut pool = pool(256);
    let chosen = choose(&topology.router, "r2", None).unwrap();
    assert_eq!(chosen.kind.name, "packet", "{chosen}");
    // An AF_XDP socket would not see the tags, and frames would leave without them.
    let removing = Offloads {
        tag_removal: true,
        ..Offloads::OFF
    };
    topology.router.set_offloads("r2", removing).unwrap();
    let chosen = choose(&topology.router, "r2", None).unwrap();
    assert_eq!(chosen.kind.name, "packet", "{chosen}");
    assert!(chosen.reason.contains("VLAN tags"), "{chosen}");
    topology.router.set_offloads("r2", Offloads::OFF).unwrap();
    let options = AttachOptions::default();
    let (port, chosen) = choose::open(&topology.router, "r2", &mut pool, None, options).unwrap();
    assert_eq!((chosen.kind.name, port.name()), ("xdp", "r2"));
    assert!(chosen.reason.ends_with("copy mode"), "{chosen}");
    // The hook is in use: the second-best kind is opened, and the reason is reported.
    let (_, chosen) = choose::open(&topology.router, "r2", &mut pool, None, options).unwrap();
    assert_eq!(chosen.kind.name, "packet");
    assert!(chosen.reason.contains("AF_XDP would be faster"), "{chosen}");
    let wants = registry::kind("xdp");
    assert!(choose::open(&topology.router, "r2", &mut pool, wants, options).is_err());
    drop(port);
    // Every frame goes to an AF_XDP socket, so its own addresses would fall silent.
    let mut links = topology.router.links().unwrap();
    let address = "192.0.2.1".parse().unwrap();
    links.add_address("r2", address, 24).unwrap();
    let chosen = choose(&topology.router, "r2", None).unwrap();
    assert_eq!(chosen.kind.name, "packet", "{chosen}");
    assert!(chosen.reason.contains("has an address"), "{chosen}");
    let chosen = choose(&topology.router, "r2", wants).unwrap();
    assert_eq!(chosen.kind.name, "xdp", "{chosen}");
    let missing = choose(&topology.router, "nosuch", None);
    assert!(missing.unwrap_err().to_string().contains("nosuch"));
}

/// net/xdp/xsk.c, `xsk_create`: the kernel checks CAP_NET_RAW.
#[test]
fn a_thread_without_cap_net_raw_opens_no_port() {
    let needs = registry::kind("xdp").unwrap().needs;
    assert!(needs.contains("CAP_NET_RAW"), "{needs}");
    // Capabilities belong to a thread, and to those that it starts.
    let refused = std::thread::spawn(|| {
        let namespace = wire::namespace();
        let mut sets = capabilities(None).unwrap();
        sets.effective.remove(CapabilitySet::NET_RAW);
        set_capabilities(None, sets).unwrap();
        let options = XdpOptions {
            mode: Some(XdpMode::Copy),
            ..XdpOptions::default()
        };
        let opened = XdpPort::open(&namespace, "right", &mut pool(128), options);
        opened.map(drop).unwrap_err().to_string()
    });
    let message = refused.join().unwrap();
    let expected = "cannot open an AF_XDP socket (needs CAP_NET_RAW) for interface \"right\"";
    assert!(message.starts_with(expected), "{message}");
    assert!(message.contains("lacks CAP_NET_RAW:"), "{message}");
}
