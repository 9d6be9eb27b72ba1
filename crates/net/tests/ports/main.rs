//! The guarantees of ports, live: no byte is changed, and every loss is counted.

#[path = "../common/mod.rs"]
mod common;
mod returns;
mod taps;
mod trains;

use common::forwarder::{Forwarder, Mode};
use common::wire::{self, FAR, frame, put, put_all, receive, receive_for, take_first};
use common::{H2, H2_V6, H3, H3_V6, Topology, require_privilege};
use etherparse::PacketBuilder;
use sluice_core::Span;
use sluice_net::Clock;
use sluice_net::namespace::{Namespace, Offloads};
use sluice_net::port::packet::PacketOptions;
use sluice_net::port::tun::TunOptions;
use sluice_net::port::{
    Interest, LONGEST, Loss, PacketPort, Pool, PoolSize, Port, Spin, TunPort, Waiter, Watch,
};
use sluice_wire::frame::{Link, VnetHeader};
use socket2::Socket;
use std::mem::MaybeUninit;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd as _};
use std::time::Duration;

/// Two connected interfaces, with a port on each.
struct Wire {
    namespace: Namespace,
    ports: [PacketPort; 2],
    pool: Pool,
}

impl Wire {
    fn new(options: PacketOptions) -> Wire {
        Wire::with_offloads(Offloads::ON, options)
    }

    fn with_offloads(offloads: Offloads, options: PacketOptions) -> Wire {
        let namespace = wire::namespace();
        for end in ["left", "right"] {
            namespace.set_offloads(end, offloads).unwrap();
        }
        let ports =
            ["left", "right"].map(|name| PacketPort::open(&namespace, name, options).unwrap());
        let size = PoolSize {
            slots: 64,
            large: 64,
        };
        Wire {
            namespace,
            ports,
            pool: Pool::new(size).unwrap(),
        }
    }

    /// Sends `frame` on the left. Returns how many slots the port accepted.
    fn send(&mut self, frame: &[u8]) -> usize {
        let slot = put(&mut self.pool, frame);
        self.ports[0].transmit(&mut self.pool, &[slot])
    }

    /// Returns a socket whose datagrams of up to 8972 bytes to [`FAR`] arrive on the right.
    fn long_sender(&self) -> UdpSocket {
        wire::long_sender(&self.namespace, 9000)
    }

    /// Returns the next frame on the right, within a second.
    fn next(&mut self) -> Option<Vec<u8>> {
        let [_, right] = &mut self.ports;
        let slots = receive(right, &mut self.pool, 1);
        take_first(&mut self.pool, slots)
    }
}

#[test]
fn frames_arrive_byte_for_byte_with_their_tags() {
    let ring = PacketOptions::default().ring;
    for (offloads, ring) in [(true, ring), (false, ring), (true, 0), (false, 0)] {
        let mut wire = Wire::new(PacketOptions {
            offloads,
            ring,
            ..PacketOptions::default()
        });
        let (customer, service) = ([0x81, 0, 0x20, 5], [0x88, 0xa8, 0, 9]);
        for tags in [&[][..], &[customer], &[service, customer], &[service; 3]] {
            for length in [46, 100, 1400] {
                let sent = frame(tags, length);
                assert_eq!(wire.send(&sent), 1);
                assert_eq!(wire.next(), Some(sent), "{tags:?} {length}");
            }
        }
        let counters = wire.ports[1].counters();
        assert_eq!((counters.received, counters.lost_total()), (12, 0));
        let right = wire.namespace.links().unwrap().interface("right").unwrap();
        assert_eq!((right.traffic.received, right.traffic.dropped_out), (12, 0));
    }
}

#[test]
fn an_exhausted_pool_is_a_counted_reason() {
    // 100 bytes come through the ring, 1800 are in the queue.
    for (length, ring) in [
        (100, PacketOptions::default().ring),
        (1800, 64 << 10),
        (100, 0),
    ] {
        exhaust_pool(length, ring);
    }
}

fn exhaust_pool(length: usize, ring: usize) {
    let mut wire = Wire::new(PacketOptions {
        batch: 4,
        ring,
        ..PacketOptions::default()
    });
    let mut links = wire.namespace.links().unwrap();
    links.set_mtu("left", 9000).unwrap();
    links.set_mtu("right", 9000).unwrap();
    let size = PoolSize { slots: 6, large: 6 };
    let mut small = Pool::new(size).unwrap();
    for _ in 0..36 {
        wire.send(&frame(&[], length));
    }
    let [_, right] = &mut wire.ports;
    let mut held = receive(right, &mut small, 6);
    assert_eq!(held.len(), 6);
    // 30 frames are waiting, and no slot is left. They are dropped in batches, so that none becomes
    // old.
    for _ in 0..8 {
        assert_eq!(right.receive(&mut small, &mut held), 0);
    }
    let counters = right.counters();
    assert_eq!(counters.received, 6);
    assert_eq!(counters.lost(Loss::NoSlot), 30);
    assert_eq!(counters.lost_total(), 30);
    // With slots again, frames flow again.
    held.drain(..).for_each(|slot| small.free(slot));
    wire.send(&frame(&[], length));
    let [_, right] = &mut wire.ports;
    assert_eq!(receive(right, &mut small, 1).len(), 1);
}

/// Long frames are queued in the socket, short ones in the ring.
#[test]
fn short_and_long_frames_arrive_in_one_order() {
    for ring in [0, PacketOptions::default().ring] {
        let mut wire = Wire::new(PacketOptions {
            ring,
            ..PacketOptions::default()
        });
        let socket = wire.long_sender();
        let lengths = [10, 5000, 8000, 1, 1600, 1610, 1611, 1950, 2000, 2, 3, 7000];
        for length in lengths {
            socket.send_to(&vec![length as u8; length], FAR).unwrap();
        }
        let [_, right] = &mut wire.ports;
        let held = receive(right, &mut wire.pool, lengths.len());
        assert_eq!(held.len(), lengths.len());
        for (slot, length) in held.into_iter().zip(lengths) {
            let whole = [wire.pool.head(slot), wire.pool.tail(slot)].concat();
            assert_eq!(whole[42..], vec![length as u8; length], "ring of {ring}");
            wire.pool.free(slot);
        }
        assert_eq!(right.counters().lost_total(), 0);
    }
}

/// The file of a deleted device has an error to report for good.
#[test]
fn a_device_that_was_deleted_is_silent_and_counts_only_frames_that_exist() {
    require_privilege();
    let namespace = Namespace::create("tap").unwrap();
    let options = TunOptions {
        link: Link::Ethernet,
        ..TunOptions::default()
    };
    let mut tap = TunPort::create(&namespace, "tap0", options).unwrap();
    let mut pool = Pool::new(PoolSize { slots: 8, large: 2 }).unwrap();
    namespace.links().unwrap().remove("tap0").unwrap();
    let mut none = Vec::new();
    assert_eq!(tap.receive(&mut pool, &mut none), 0);
    let (clock, mut waiter) = (Clock::start(), Waiter::new(Spin::None));
    let deadline = clock.now() + Span::from_ms(20);
    let watch = Watch {
        descriptor: tap.as_fd(),
        interest: Interest::Readable,
    };
    let wake = waiter.wait(&[watch], Some(deadline), &clock);
    assert_eq!(wake.ready, 0);
    assert!(wake.now >= deadline);
    assert_eq!(tap.receive(&mut pool, &mut none), 0);
    assert_eq!(tap.counters().lost_total(), 0);
    let slot = put(&mut pool, &frame(&[], 100));
    assert_eq!(tap.transmit(&mut pool, &[slot]), 1);
    let counters = tap.counters();
    assert_eq!((counters.sent, counters.lost(Loss::Down)), (0, 1));
    assert_eq!(counters.lost_total(), 1);
    tap.release(&mut pool);
    assert_eq!(pool.available(), 8);
}

/// One block of 64 KiB has 37 places of 1728 bytes.
#[test]
fn a_full_ring_is_a_counted_reason_and_goes_on() {
    let mut wire = Wire::new(PacketOptions {
        ring: 1,
        ..PacketOptions::default()
    });
    for round in 1..=4 {
        for _ in 0..50 {
            wire.send(&frame(&[], 100));
        }
        let [_, right] = &mut wire.ports;
        let held = receive(right, &mut wire.pool, 37);
        assert_eq!(held.len(), 37);
        held.into_iter().for_each(|slot| wire.pool.free(slot));
        let counters = right.counters();
        assert_eq!(counters.received, round * 37);
        assert_eq!(counters.lost(Loss::KernelQueue), round * 13);
    }
}

#[test]
fn a_long_frame_for_which_the_queue_has_no_room_is_counted() {
    let mut wire = Wire::new(PacketOptions {
        receive_buffer: 1,
        ..PacketOptions::default()
    });
    let socket = wire.long_sender();
    for _ in 0..10 {
        socket.send_to(&[1; 8000], FAR).unwrap();
    }
    wire.send(&frame(&[], 100));
    let [_, right] = &mut wire.ports;
    let held = receive_for(right, &mut wire.pool, 11, Span::from_ms(100));
    let counters = right.counters();
    let lost = counters.lost(Loss::KernelQueue);
    assert_eq!(
        (held.len() as u64 + lost, counters.lost_total()),
        (11, lost)
    );
    // The first frame takes the smallest possible buffer; the short frame is not in it.
    assert_eq!((held.len(), lost), (2, 9), "{counters:?}");
    let last = held.last().unwrap();
    assert_eq!(
        wire.pool.frame_len(*last),
        114,
        "the short frame has arrived"
    );
}

/// The ring announces frames that are missing from the queue; no other frame is lost with them.
#[test]
fn long_frames_that_the_queue_does_not_have_are_counted() {
    for missing in 1..=3 {
        let mut wire = Wire::new(PacketOptions::default());
        let socket = wire.long_sender();
        for number in 1..=3 {
            socket.send_to(&[number; 8000], FAR).unwrap();
        }
        wire.send(&frame(&[], 100));
        let [_, right] = &mut wire.ports;
        let thief = Socket::from(right.as_fd().try_clone_to_owned().unwrap());
        for _ in 0..missing {
            let mut room = [const { MaybeUninit::uninit() }; 9000];
            // The call does not block, and the kernel may need some time.
            let taken = (0..1000).find_map(|_| {
                let taken = thief.recv(&mut room).ok();
                taken.or_else(|| {
                    std::thread::sleep(Duration::from_millis(1));
                    None
                })
            });
            assert_eq!(taken, Some(VnetHeader::LEN + 8042));
        }
        let held = receive(right, &mut wire.pool, 4 - missing);
        let firsts = held[..3 - missing]
            .iter()
            .map(|slot| wire.pool.head(*slot)[42]);
        let expected: Vec<u8> = (missing as u8 + 1..=3).collect();
        assert_eq!(firsts.collect::<Vec<u8>>(), expected);
        let last = held.last().unwrap();
        assert_eq!(
            wire.pool.frame_len(*last),
            114,
            "the short frame has arrived"
        );
        let counters = right.counters();
        let lost = counters.lost(Loss::KernelQueue);
        assert_eq!((lost, counters.lost_total()), (missing as u64, lost));
    }
}

#[test]
fn long_frames_need_large_slots_and_say_so() {
    let mut wire = Wire::new(PacketOptions::default());
    let socket = wire.long_sender();
    let payload: Vec<u8> = (0..5000u16).map(|number| number as u8).collect();
    for _ in 0..3 {
        socket.send_to(&payload, FAR).unwrap();
    }
    let size = PoolSize {
        slots: 64,
        large: 2,
    };
    let mut small = Pool::new(size).unwrap();
    let [_, right] = &mut wire.ports;
    let held = receive(right, &mut small, 2);
    assert_eq!(held.len(), 2);
    for slot in &held {
        assert_eq!(small.frame_len(*slot), 14 + 20 + 8 + 5000);
        let whole = [small.head(*slot), small.tail(*slot)].concat();
        assert_eq!(&whole[42..], payload);
    }
    let counters = right.counters();
    assert_eq!(counters.lost(Loss::NoLargeSlot), 1);
    // A short frame needs no large slot.
    wire.send(&frame(&[], 100));
    let [_, right] = &mut wire.ports;
    assert_eq!(receive(right, &mut small, 1).len(), 1);
}

#[test]
fn frames_that_the_interface_refuses_are_counted() {
    let mut wire = Wire::new(PacketOptions::default());
    // 14 bytes of Ethernet and 1800 of payload on an MTU of 1500.
    assert_eq!(wire.send(&frame(&[], 1800)), 1);
    assert_eq!(wire.ports[0].counters().lost(Loss::TooLong), 1);
    assert_eq!(
        wire.pool.available(),
        64,
        "the slot of a lost frame is freed"
    );
}

#[test]
fn an_interface_that_goes_down_and_comes_back_works_again() {
    let mut wire = Wire::new(PacketOptions::default());
    let mut links = wire.namespace.links().unwrap();
    links.set_up("left", false).unwrap();
    assert_eq!(wire.send(&frame(&[], 100)), 1);
    let mut none = Vec::new();
    let [left, _] = &mut wire.ports;
    assert_eq!(left.receive(&mut wire.pool, &mut none), 0);
    assert!(left.counters().lost(Loss::Down) >= 1);
    links.set_up("left", true).unwrap();
    let sent = frame(&[], 200);
    wire.send(&sent);
    assert_eq!(wire.next(), Some(sent));
}

#[test]
fn an_idle_interface_that_goes_down_loses_nothing() {
    let mut wire = Wire::new(PacketOptions::default());
    let mut links = wire.namespace.links().unwrap();
    let mut none = Vec::new();
    for is_up in [false, true, false, true] {
        links.set_up("left", is_up).unwrap();
        for port in &mut wire.ports {
            assert_eq!(port.receive(&mut wire.pool, &mut none), 0);
        }
    }
    assert_eq!(wire.ports[0].counters().lost_total(), 0);
}

#[test]
fn an_interface_that_disappears_loses_frames_and_nothing_else() {
    let mut wire = Wire::new(PacketOptions::default());
    wire.namespace.links().unwrap().remove("left").unwrap();
    for _ in 0..3 {
        assert_eq!(wire.send(&frame(&[], 100)), 1);
    }
    let mut none = Vec::new();
    for port in &mut wire.ports {
        for _ in 0..3 {
            assert_eq!(port.receive(&mut wire.pool, &mut none), 0);
        }
    }
    assert!(wire.ports[0].counters().lost(Loss::Down) >= 3);
    for port in &mut wire.ports {
        port.release(&mut wire.pool);
    }
    assert_eq!(
        (wire.pool.available(), wire.pool.available_large()),
        (64, 64)
    );
}

#[test]
fn an_interface_that_is_made_again_is_found_again() {
    let mut wire = Wire::new(PacketOptions {
        batch: 4,
        ..PacketOptions::default()
    });
    let sent = frame(&[], 100);
    assert_eq!(wire.send(&sent), 1);
    assert_eq!(wire.next(), Some(sent.clone()));
    wire.namespace.links().unwrap().remove("left").unwrap();
    assert_eq!(wire.send(&sent), 1, "taken, and counted as lost");
    assert!(wire.ports[0].counters().lost(Loss::Down) > 0);
    wire::connect(&wire.namespace);
    let mut links = wire.namespace.links().unwrap();
    links.set_mtu("left", 1400).unwrap();
    // Both ports find their interfaces within a tenth of a second; frames sent before are lost.
    let arrived = (0..100).find_map(|_| {
        wire.ports[0].receive(&mut wire.pool, &mut Vec::new());
        wire.send(&sent);
        let [_, right] = &mut wire.ports;
        let slots = receive_for(right, &mut wire.pool, 1, Span::from_ms(20));
        take_first(&mut wire.pool, slots)
    });
    assert_eq!(arrived, Some(sent));
    assert_eq!(wire.ports[0].capabilities().mtu, 1400);
}

#[test]
fn an_interface_that_was_moved_away_and_back_is_found_again() {
    let mut wire = Wire::new(PacketOptions::default());
    let sent = frame(&[], 100);
    assert_eq!(wire.send(&sent), 1);
    assert_eq!(wire.next(), Some(sent.clone()));
    let away = Namespace::create("away").unwrap();
    let mut links = wire.namespace.links().unwrap();
    let index = links.interface("right").unwrap().index;
    links.move_to("right", &away).unwrap();
    let mut links_away = away.links().unwrap();
    links_away.move_to("right", &wire.namespace).unwrap();
    links.set_up("right", true).unwrap();
    let back = links.interface("right").unwrap();
    assert_eq!(
        back.index, index,
        "the index alone does not reveal the change"
    );
    assert!(!back.is_promiscuous, "the kernel has forgotten the request");
    let arrived = (0..100).find_map(|_| {
        wire.send(&sent);
        let [_, right] = &mut wire.ports;
        let slots = receive_for(right, &mut wire.pool, 1, Span::from_ms(20));
        take_first(&mut wire.pool, slots)
    });
    assert_eq!(arrived, Some(sent));
    assert!(links.interface("right").unwrap().is_promiscuous);
}

/// The sender's kernel accepts one write of ten datagrams; the receiver gets ten, however the
/// router forwards them, also through an interface that does not segment them itself.
#[test]
fn udp_super_packets_cross_whole_and_split() {
    let topology = Topology::new(Offloads::ON);
    for (out, from, to) in [
        (Offloads::ON, H2, H3),
        (Offloads::ON, H2_V6, H3_V6),
        (Offloads::OFF, H2, H3),
        (Offloads::OFF, H2_V6, H3_V6),
    ] {
        topology.router.set_offloads("r3", out).unwrap();
        for mode in [Mode::Whole, Mode::Split] {
            let forwarder = Forwarder::start(&topology, mode, PacketOptions::default());
            let bind = |address: IpAddr| move || UdpSocket::bind((address, 0)).unwrap();
            let sender = topology.h2.enter(bind(from)).unwrap();
            let receiver = topology.h3.enter(bind(to)).unwrap();
            receiver
                .set_read_timeout(Some(std::time::Duration::from_secs(5)))
                .unwrap();
            segment_by(&sender, 1000);
            let payload: Vec<u8> = (0..9500u32).map(|number| (number / 7) as u8).collect();
            sender
                .send_to(&payload, receiver.local_addr().unwrap())
                .unwrap();
            let mut arrived: Vec<u8> = Vec::new();
            let mut buffer = [0; 2000];
            for _ in 0..10 {
                let length = receiver.recv(&mut buffer).unwrap();
                assert!(length == 1000 || arrived.len() == 9000);
                arrived.extend(&buffer[..length]);
            }
            assert_eq!(arrived, payload);
            let outcome = forwarder.finish();
            assert_eq!(outcome.ports[0].received_super, 1);
            assert_eq!(outcome.split_into, if mode == Mode::Split { 10 } else { 0 });
        }
    }
}

/// udp(7), UDP_SEGMENT.
fn segment_by(socket: &UdpSocket, bytes: libc::c_int) {
    // SAFETY: the option's value is an int, which outlives the call.
    #[allow(unsafe_code)]
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            std::ptr::from_ref(&bytes).cast(),
            size_of_val(&bytes) as libc::socklen_t,
        )
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn a_wait_ends_at_its_deadline_or_when_a_port_is_ready() {
    let mut wire = Wire::new(PacketOptions::default());
    let clock = Clock::start();
    for spin in [Spin::None, Spin::Adaptive, Spin::Always] {
        let mut waiter = Waiter::new(spin);
        for ms in [0, 1, 3] {
            let deadline = clock.now() + Span::from_ms(ms);
            let watch = Watch {
                descriptor: wire.ports[1].as_fd(),
                interest: Interest::Readable,
            };
            let wake = waiter.wait(&[watch], Some(deadline), &clock);
            assert!(wake.now >= deadline, "{spin:?} woke early");
            assert_eq!(wake.ready, 0);
        }
        wire.send(&frame(&[], 100));
        let [left, right] = &wire.ports;
        let watches = [left, right].map(|port| Watch {
            descriptor: port.as_fd(),
            interest: Interest::Readable,
        });
        let far = clock.now() + Span::from_secs(60);
        let wake = waiter.wait(&watches, Some(far), &clock);
        assert!(wake.now < far);
        assert_eq!(wake.ready, 0b10);
        wire.next();
    }
}

#[test]
fn a_missing_interface_is_named() {
    require_privilege();
    let namespace = Namespace::create("empty").unwrap();
    let message = PacketPort::open(&namespace, "eth7", PacketOptions::default())
        .err()
        .unwrap()
        .to_string();
    assert_eq!(
        message,
        "cannot find interface \"eth7\" in namespace \"empty\": No such device (os error 19)"
    );
}

#[test]
fn arrivals_are_stamped_by_the_kernel_and_not_by_the_reader() {
    for ring in [0, PacketOptions::default().ring] {
        arrive_with_stamps(ring);
    }
}

fn arrive_with_stamps(ring: usize) {
    let clock = Clock::start();
    let mut wire = Wire::new(PacketOptions {
        timestamps: Some(clock),
        ring,
        ..PacketOptions::default()
    });
    // The kernel enables its timestamps in the background; until then there are none, except in the
    // ring.
    for _ in 0..100 {
        let before = clock.now();
        wire.send(&frame(&[], 100));
        let after = clock.now();
        let late = clock.sleep_until(after + Span::from_ms(20), Span::ZERO);
        let [_, right] = &mut wire.ports;
        let mut held = receive(right, &mut wire.pool, 1);
        let slot = held.pop().expect("the frame has arrived");
        let arrival = wire.pool.arrival(slot);
        wire.pool.free(slot);
        if let Some(arrival) = arrival {
            // On this interface, a frame is received within the call that sends it. The two clocks
            // are compared within 150 ns or, if that is interrupted, a time slice of 4 ms.
            let slack = Span::from_ms(4);
            assert!(arrival + slack >= before, "{arrival} {before}");
            assert!(arrival <= after + slack, "{arrival} {after}");
            assert!(arrival < late);
            return;
        }
    }
    panic!("no frame was stamped within 2 s");
}
