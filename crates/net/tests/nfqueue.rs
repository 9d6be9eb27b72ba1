//! The kernel's queue as a port, live: h2 sends to h3 over a wire, and h2's own output is queued.

mod common;

use common::queue::{H2, H3, hosts, open, pool, serve, waiting_in_kernel};
use sluice_net::namespace::Namespace;
use sluice_net::port::nfqueue::{Hook, IfDead, NfqueueOptions, Traffic};
use sluice_net::port::{Carried, Loss, NfqueuePort, Pool, PoolSize, Port as _, Slot};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::Read as _;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

fn sockets(h2: &Namespace, h3: &Namespace) -> (UdpSocket, UdpSocket) {
    let sender = h2.enter(|| UdpSocket::bind((H2, 0)).unwrap()).unwrap();
    let receiver = h3.enter(|| UdpSocket::bind((H3, 0)).unwrap()).unwrap();
    sender.connect(receiver.local_addr().unwrap()).unwrap();
    receiver
        .set_read_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    (sender, receiver)
}

#[test]
fn packets_leave_in_the_order_of_their_verdicts_and_dropped_ones_do_not() {
    let (h2, h3) = hosts();
    let (sender, receiver) = sockets(&h2, &h3);
    let mut port = open(&h2, NfqueueOptions::default());
    let mut pool = pool();
    for number in 0..10u8 {
        sender.send(&[number; 100]).unwrap();
    }
    serve(&mut port, &mut pool, 5, |port, pool, slots| {
        // Unsolicited packets of the host pass.
        let (ours, others) = std::mem::take(slots)
            .into_iter()
            .partition(|slot| pool.frame_len(*slot) == 20 + 8 + 100);
        *slots = ours;
        port.transmit(pool, &others);
        if slots.len() < 10 {
            return false;
        }
        // Odd packets are dropped; even ones are sent in reverse order.
        let (even, odd): (Vec<_>, Vec<_>) = std::mem::take(slots)
            .into_iter()
            .partition(|slot| pool.head(*slot)[28] % 2 == 0);
        odd.into_iter().for_each(|slot| pool.free(slot));
        let backwards: Vec<_> = even.into_iter().rev().collect();
        assert_eq!(port.transmit(pool, &backwards), 5);
        true
    });
    let mut buffer = [0; 200];
    for number in [8, 6, 4, 2, 0] {
        assert_eq!(receiver.recv(&mut buffer).unwrap(), 100);
        assert_eq!(buffer[0], number);
    }
    assert!(receiver.recv(&mut buffer).is_err(), "dropped is dropped");
    // At some instant no packet waits. The host may send another packet of its own right after
    // that.
    let mut is_empty = false;
    serve(&mut port, &mut pool, 5, |port, pool, slots| {
        port.transmit(pool, slots);
        slots.clear();
        is_empty = waiting_in_kernel(&h2) == 0;
        is_empty
    });
    assert!(is_empty, "every packet has its verdict");
    assert_eq!(pool.available(), 1024);
    assert_eq!(port.counters().lost_total(), 0);
}

#[test]
fn the_rule_goes_away_with_the_port() {
    let (h2, h3) = hosts();
    let (sender, receiver) = sockets(&h2, &h3);
    drop(open(&h2, NfqueueOptions::default()));
    sender.send(b"free").unwrap();
    let mut buffer = [0; 10];
    assert_eq!(receiver.recv(&mut buffer).unwrap(), 4);
}

/// Removes all tables that other sockets do not own, as `nft flush ruleset` does.
fn flush_ruleset() {
    let domain = Domain::from(libc::AF_NETLINK);
    let protocol = Protocol::from(libc::NETLINK_NETFILTER);
    let mut socket = Socket::new(domain, Type::RAW, Some(protocol)).unwrap();
    // linux/netlink.h, linux/netfilter/nfnetlink.h: length, type, flags, sequence number, port; family,
    // version, resource. NFNL_MSG_BATCH_BEGIN for nf_tables, NFT_MSG_DELTABLE without a name and with
    // NLM_F_ACK, NFNL_MSG_BATCH_END.
    let message = |kind: u16, flags: u16, resource: u16| {
        let mut bytes = 20u32.to_ne_bytes().to_vec();
        bytes.extend([kind.to_ne_bytes(), flags.to_ne_bytes()].concat());
        bytes.extend([0; 10]);
        bytes.extend(resource.to_be_bytes());
        bytes
    };
    let batch = [
        message(16, 1, 10),
        message(10 << 8 | 2, 1 | 4, 0),
        message(17, 1, 10),
    ];
    socket.send(&batch.concat()).unwrap();
    let patience = Some(Duration::from_secs(10));
    socket.set_read_timeout(patience).unwrap();
    let mut answer = [0; 100];
    assert!(socket.read(&mut answer).unwrap() >= 20);
    // NLMSG_ERROR without an error.
    assert_eq!(answer[4..6], 2u16.to_ne_bytes());
    assert_eq!(answer[16..20], [0; 4]);
}

/// Debian's /etc/nftables.conf begins with a flush.
#[test]
fn rules_that_outlive_the_port_survive_a_flush_of_all_tables() {
    let (h2, h3) = hosts();
    let (sender, receiver) = sockets(&h2, &h3);
    for if_dead in [IfDead::Bypass, IfDead::Closed] {
        let options = NfqueueOptions {
            if_dead,
            ..NfqueueOptions::default()
        };
        let port = open(&h2, options);
        if port.can_be_flushed() {
            eprintln!("NOT SHOWN: this needs Linux 6.9");
            return;
        }
        h2.enter(flush_ruleset).unwrap();
        sender.send(b"queued").unwrap();
        assert!(receiver.recv(&mut [0; 10]).is_err(), "{if_dead:?}");
        // The port itself can remove them.
        drop(port);
        sender.send(b"free").unwrap();
        assert_eq!(receiver.recv(&mut [0; 10]).unwrap(), 4, "{if_dead:?}");
    }
}

#[test]
fn a_full_queue_loses_or_lets_pass_and_counts() {
    for fail_open in [false, true] {
        let (h2, h3) = hosts();
        let (sender, receiver) = sockets(&h2, &h3);
        let mut port = open(
            &h2,
            NfqueueOptions {
                most_waiting: 4,
                fail_open,
                ..NfqueueOptions::default()
            },
        );
        for _ in 0..10 {
            // The sender's own kernel may report that a packet was refused.
            let _ = sender.send(&[0; 10]);
        }
        let mut arrived = 0;
        while receiver.recv(&mut [0; 10]).is_ok() {
            arrived += 1;
        }
        let counters = port.counters();
        // The host may have sent an unsolicited packet, which then waits too.
        let (mut pool, mut slots) = (pool(), Vec::new());
        port.receive(&mut pool, &mut slots);
        let ours = |slot: &&Slot| pool.frame_len(**slot) == 20 + 8 + 10;
        let waiting = slots.iter().filter(ours).count() as u64;
        assert!(slots.len() == 4 && waiting > 0, "{} wait", slots.len());
        if fail_open {
            assert_eq!(arrived + waiting, 10, "{counters:?}");
        } else {
            assert_eq!(arrived, 0);
            assert!(counters.lost_total() >= 10 - waiting, "{counters:?}");
        }
    }
}

#[test]
fn a_slot_says_whether_it_holds_headers_only() {
    let (h2, h3) = hosts();
    let (sender, _receiver) = sockets(&h2, &h3);
    let options = NfqueueOptions {
        headers_only: true,
        ..NfqueueOptions::default()
    };
    let mut port = open(&h2, options);
    for size in [50, 1000] {
        sender.send(&vec![7; size]).unwrap();
    }
    let mut seen = Vec::new();
    let mut pool = pool();
    serve(&mut port, &mut pool, 5, |port, pool, slots| {
        // Unsolicited packets of the host are not UDP.
        let udp = slots.iter().filter(|slot| pool.head(**slot)[9] == 17);
        seen.extend(udp.map(|slot| (pool.frame_len(*slot), pool.is_cut(*slot))));
        port.transmit(pool, slots);
        slots.clear();
        seen.len() == 2
    });
    // Headers of IPv4 and UDP are 28 bytes; 192 are fetched.
    assert_eq!(seen, [(78, false), (1028, true)]);
}

/// The kernel copies at most 65 531 bytes of a packet (`NFQNL_MAX_COPY_RANGE` in nfnetlink_queue.c).
#[test]
fn a_packet_that_the_kernel_cannot_copy_whole_keeps_its_length() {
    let (h2, _h3) = hosts();
    let local = || UdpSocket::bind(("127.0.0.1", 0)).unwrap();
    let (sender, receiver) = h2.enter(|| (local(), local())).unwrap();
    sender.connect(receiver.local_addr().unwrap()).unwrap();
    let patience = Some(Duration::from_secs(10));
    receiver.set_read_timeout(patience).unwrap();
    let options = NfqueueOptions {
        traffic: Some(Traffic {
            hooks: vec![Hook::Output],
            leaving: vec!["lo".to_owned()],
            ..Traffic::default()
        }),
        ..NfqueueOptions::default()
    };
    let mut port = NfqueuePort::open(&h2, &options).unwrap();
    let mut pool = pool();
    // Headers of IPv4 and UDP are 28 bytes; the MTU of the loopback device is 65 536.
    let mut buffer = vec![0; 65_536];
    for (length, is_cut) in [(65_531, false), (65_532, true), (65_535, true)] {
        let sent: Vec<u8> = (0..length - 28).map(|at| at as u8).collect();
        sender.send(&sent).unwrap();
        let before = port.counters().received_bytes;
        let mut seen = Vec::new();
        serve(&mut port, &mut pool, 5, |port, pool, slots| {
            seen.extend(
                slots
                    .iter()
                    .map(|slot| (pool.frame_len(*slot), pool.is_cut(*slot))),
            );
            port.transmit(pool, slots);
            slots.clear();
            !seen.is_empty()
        });
        assert_eq!(seen, [(length, is_cut)]);
        assert_eq!(port.counters().received_bytes - before, length as u64);
        // The kernel sends all of it.
        let received = receiver.recv(&mut buffer).unwrap();
        assert!(buffer[..received] == sent);
    }
    assert_eq!(pool.available(), 1024);
}

#[test]
fn a_namespace_may_have_several_queues() {
    let (h2, h3) = hosts();
    let (sender, receiver) = sockets(&h2, &h3);
    let ports = [(0, Hook::Output), (1, Hook::Input)].map(|(number, hook)| {
        let traffic = Traffic {
            hooks: vec![hook],
            entering: vec!["eth0".to_owned()],
            leaving: vec!["eth0".to_owned()],
            mark: None,
        };
        let options = NfqueueOptions {
            number,
            traffic: Some(traffic),
            ..NfqueueOptions::default()
        };
        NfqueuePort::open(&h2, &options).unwrap()
    });
    sender.send(b"queued").unwrap();
    assert!(receiver.recv(&mut [0; 10]).is_err());
    drop(ports);
    sender.send(b"free").unwrap();
    assert_eq!(receiver.recv(&mut [0; 10]).unwrap(), 4);
}

#[test]
fn a_queue_of_another_program_is_refused_by_its_number() {
    let (h2, _h3) = hosts();
    let _first = open(&h2, NfqueueOptions::default());
    let second = NfqueuePort::open(&h2, &NfqueueOptions::default());
    let text = second.err().expect("the queue is taken").to_string();
    assert!(text.contains("another program has queue 0"), "{text}");
    assert!(!text.contains("security module"), "{text}");
}

/// Tells the kernel the verdicts about freed packets.
fn drop_abandoned(port: &mut NfqueuePort, pool: &mut Pool) {
    while pool.has_abandoned() {
        port.transmit(pool, &[]);
    }
}

/// The verdicts exceed what one call can send: 212992 bytes by default, and each has 32.
#[test]
fn any_number_of_packets_is_dropped_at_the_same_time() {
    const PACKETS: usize = 8000;
    let (h2, h3) = hosts();
    let receiver = h3.enter(|| UdpSocket::bind((H3, 0)).unwrap()).unwrap();
    let mut port = open(&h2, NfqueueOptions::default());
    let mut pool = Pool::new(PoolSize {
        slots: 2 * PACKETS as u32,
        large: 1,
    })
    .unwrap();
    let mut slots = Vec::new();
    // A socket has room for some 200 packets that the kernel has not sent.
    let senders: Vec<UdpSocket> = (0..PACKETS / 100)
        .map(|_| h2.enter(|| UdpSocket::bind((H2, 0)).unwrap()).unwrap())
        .collect();
    for sender in &senders {
        for _ in 0..100 {
            sender
                .send_to(b"dropped", receiver.local_addr().unwrap())
                .unwrap();
        }
        while port.receive(&mut pool, &mut slots) > 0 {}
    }
    assert!(slots.len() >= PACKETS, "{}", slots.len());
    slots.drain(..).for_each(|slot| pool.free(slot));
    assert!(pool.has_abandoned());
    drop_abandoned(&mut port, &mut pool);
    // The kernel's own IPv6 multicast packets may have come meanwhile.
    let deadline = Instant::now() + Duration::from_secs(10);
    while waiting_in_kernel(&h2) > 0 {
        assert!(Instant::now() < deadline, "packets without a verdict");
        port.receive(&mut pool, &mut slots);
        slots.drain(..).for_each(|slot| pool.free(slot));
        drop_abandoned(&mut port, &mut pool);
    }
    assert_eq!(port.counters().lost_total(), 0);
}

#[test]
fn every_port_of_a_group_decides_about_the_packets_of_all() {
    const FLOWS: usize = 32;
    let (h2, h3) = hosts();
    let (_, receiver) = sockets(&h2, &h3);
    let traffic = Traffic {
        hooks: vec![Hook::Output, Hook::Input],
        ..Traffic::default()
    };
    let options = NfqueueOptions {
        traffic: Some(traffic),
        ..NfqueueOptions::default()
    };
    let mut ports = NfqueuePort::open_group(&h2, &options, 2).unwrap();
    let mut pools = [pool(), pool()];
    let senders: Vec<UdpSocket> = (0..FLOWS)
        .map(|_| h2.enter(|| UdpSocket::bind((H2, 0)).unwrap()).unwrap())
        .collect();
    let port_of = |pool: &Pool, slot: Slot, at: usize| {
        let head = pool.head(slot);
        u16::from_be_bytes([head[at], head[at + 1]])
    };
    let is_udp = |pool: &Pool, slot: Slot| pool.head(slot)[9] == 17;
    // Receives at both ports, and returns the number of the UDP packets of each.
    let mut slots = [Vec::new(), Vec::new()];
    let mut places = std::collections::BTreeMap::new();
    for is_reply in [false, true] {
        for sender in &senders {
            let own = sender.local_addr().unwrap();
            if is_reply {
                receiver.send_to(b"back", own).unwrap();
            } else {
                let there = receiver.local_addr().unwrap();
                sender.send_to(b"there", there).unwrap();
            }
        }
        // All packets wait in the queues when `send_to` returns.
        for own in [0, 1] {
            while ports[own].receive(&mut pools[own], &mut slots[own]) > 0 {}
            for slot in slots[own].drain(..) {
                // The other port decides.
                let (mut carried, other) = (Carried::default(), 1 - own);
                pools[own].carry(slot, &mut carried);
                if is_udp(&pools[own], slot) {
                    // RFC 768: source port, destination port, behind 20 bytes of IPv4.
                    let at = if is_reply { 22 } else { 20 };
                    let flow = port_of(&pools[own], slot, at);
                    let place = *places.entry(flow).or_insert(own);
                    assert_eq!(place, own, "both directions of flow {flow}");
                }
                pools[own].free_settled(slot);
                let slot = pools[other].put(&carried).unwrap();
                ports[other].transmit(&mut pools[other], &[slot]);
            }
        }
    }
    assert_eq!(places.len(), FLOWS);
    // One of 2^31 random spreads of 32 flows leaves a queue empty.
    assert!(
        [0, 1]
            .iter()
            .all(|own| places.values().any(|place| place == own))
    );
    let mut arrived = 0;
    while receiver.recv(&mut [0; 10]).is_ok() {
        arrived += 1;
    }
    assert_eq!(arrived, FLOWS);
    for (port, pool) in ports.iter_mut().zip(&pools) {
        assert_eq!(port.counters().lost_total(), 0);
        assert_eq!(pool.held(), 0);
    }
    for sender in &senders {
        assert_eq!(sender.recv(&mut [0; 10]).unwrap(), 4);
    }
}

/// The kernel drops what waits for an interface that goes down, before the verdict.
#[test]
fn packets_of_an_interface_that_went_down_were_not_sent() {
    let (h2, h3) = hosts();
    let (sender, receiver) = sockets(&h2, &h3);
    let mut port = open(&h2, NfqueueOptions::default());
    let mut pool = pool();
    for number in 0..10u8 {
        sender.send(&[number; 100]).unwrap();
    }
    let mut is_down = false;
    serve(&mut port, &mut pool, 5, |port, pool, slots| {
        if slots.len() < 10 && !is_down {
            return false;
        }
        if !is_down {
            is_down = true;
            h2.links().unwrap().set_up("eth0", false).unwrap();
            let held = std::mem::take(slots);
            assert_eq!(port.transmit(pool, &held), held.len());
        }
        port.counters().lost(Loss::Down) >= 10
    });
    let counters = port.counters();
    assert_eq!(counters.lost(Loss::Down), counters.received);
    assert_eq!(counters.sent, 0);
    assert!(receiver.recv(&mut [0; 200]).is_err());
}
