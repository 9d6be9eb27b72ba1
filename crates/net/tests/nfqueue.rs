//! The kernel's queue as a port, live: h2 sends to h3 over a wire, and h2's own output is queued.

mod common;

use common::queue::{H2, H3, hosts, open, pool, serve, waiting_in_kernel};
use sluice_net::namespace::Namespace;
use sluice_net::port::nfqueue::{Hook, NfqueueOptions, Traffic};
use sluice_net::port::{NfqueuePort, Port as _, Slot};
use std::net::UdpSocket;
use std::time::Duration;

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
