//! The kernel's queue as a port, live: h2 sends to h3 over a wire, and h2's own output is queued.

mod common;

use common::{mac, require_privilege, wire};
use sluice_core::{Span, Time};
use sluice_net::Clock;
use sluice_net::frame::{self, Link, parse_head};
use sluice_net::namespace::{Namespace, VethEnd, create_veth};
use sluice_net::port::nfqueue::{Hook, NfqueueOptions, Traffic};
use sluice_net::port::{Counters, NfqueuePort, Pool, PoolSize, Port, Slot, Spin, Waiter};
use sluice_net::traffic::Stop;
use sluice_net::traffic::tcp::{Ecn, TcpFlow, TcpReport};
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::time::Duration;

const H2: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 24, 0, 2));
const H3: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 24, 0, 3));

/// Two hosts on one wire.
fn hosts() -> (Namespace, Namespace) {
    require_privilege();
    let (h2, h3) = (
        Namespace::create("h2").unwrap(),
        Namespace::create("h3").unwrap(),
    );
    let end = |namespace, number| VethEnd {
        namespace,
        name: "eth0",
        mac: mac(number),
    };
    create_veth(end(&h2, 2), end(&h3, 3)).unwrap();
    for (host, own, peer, number) in [(&h2, H2, H3, 3), (&h3, H3, H2, 2)] {
        host.silence_ipv6().unwrap();
        let mut links = host.links().unwrap();
        links.set_up("lo", true).unwrap();
        links.set_up("eth0", true).unwrap();
        links.add_address("eth0", own, 24).unwrap();
        links.add_neighbour("eth0", peer, mac(number)).unwrap();
    }
    (h2, h3)
}

fn open(h2: &Namespace, options: NfqueueOptions) -> NfqueuePort {
    let traffic = Traffic {
        hook: Hook::Output,
        interface: Some("eth0".to_owned()),
    };
    let options = NfqueueOptions {
        traffic: Some(traffic),
        ..options
    };
    NfqueuePort::open(h2, &options).unwrap()
}

fn pool() -> Pool {
    Pool::new(PoolSize {
        slots: 1024,
        large: 64,
    })
    .unwrap()
}

/// Works on batches until `enough` or the time is over.
fn serve(
    port: &mut NfqueuePort,
    pool: &mut Pool,
    seconds: u64,
    mut work: impl FnMut(&mut NfqueuePort, &mut Pool, &mut Vec<Slot>) -> bool,
) {
    let (clock, mut waiter) = (Clock::start(), Waiter::new(Spin::None));
    let end = Time::ZERO + Span::from_secs(seconds);
    let mut slots = Vec::new();
    while clock.now() < end {
        wire::wait(port, &mut waiter, clock.now() + Span::from_ms(10), &clock);
        port.receive(pool, &mut slots);
        if work(port, pool, &mut slots) {
            return;
        }
    }
}

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
        // What the host sends of its own accord passes.
        let (ours, others) = std::mem::take(slots)
            .into_iter()
            .partition(|slot| pool.frame_len(*slot) == 20 + 8 + 100);
        *slots = ours;
        port.transmit(pool, &others);
        if slots.len() < 10 {
            return false;
        }
        // The odd ones are dropped, the even ones sent backwards.
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
    // At one instant none waits; the host may send the next of its own right after.
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

fn waiting_in_kernel(namespace: &Namespace) -> u32 {
    let read = || std::fs::read_to_string("/proc/thread-self/net/netfilter/nfnetlink_queue");
    let text = namespace.enter(read).unwrap().unwrap();
    text.split_whitespace().nth(2).unwrap().parse().unwrap()
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
            // The sender's own kernel may tell it that a packet was refused.
            let _ = sender.send(&[0; 10]);
        }
        let mut arrived = 0;
        while receiver.recv(&mut [0; 10]).is_ok() {
            arrived += 1;
        }
        let counters = port.counters();
        // The host may have sent a packet of its own accord, which then waits too.
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

/// What a transfer through the queue showed.
struct Outcome {
    tcp: TcpReport,
    counters: Counters,
    /// Packets that the receiving host threw away because a checksum was wrong.
    wrong_checksums: u64,
}

/// A transfer through the queue, with every 50th packet that can be marked marked; where headers are fetched
/// alone, of those whose rest is not there: a packet that is no longer than what is fetched is there as a whole.
fn transfer(options: NfqueueOptions, mark: bool) -> Outcome {
    let (h2, h3) = hosts();
    let of_any = !options.headers_only;
    let mut port = open(&h2, options);
    let mut pool = pool();
    let (clock, stop) = (Clock::start(), Stop::new());
    let start = Time::from_ns(5_000_000);
    let flow = TcpFlow {
        bytes: Some(20_000_000),
        stop: Some(start + Span::from_secs(20)),
        ecn: Ecn::On,
        ..TcpFlow::new(H2, H3, start)
    };
    let running = flow.start(&h2, &h3, &clock, &stop).unwrap();
    let mut seen = 0;
    serve(&mut port, &mut pool, 30, |port, pool, slots| {
        for slot in slots.iter() {
            let length = pool.frame_len(*slot);
            let is_meant = of_any || pool.is_cut(*slot);
            let head = pool.head_mut(*slot);
            let view = parse_head(head, length, Link::Ip);
            seen += 1;
            if mark && seen % 50 == 0 && view.ecn != 0 && is_meant {
                frame::set_ce(head, &view);
            }
        }
        port.transmit(pool, slots);
        slots.clear();
        running.is_finished()
    });
    Outcome {
        tcp: running.join().unwrap(),
        counters: port.counters(),
        wrong_checksums: wrong_checksums(&h3),
    }
}

/// What a namespace has thrown away because a checksum was wrong: of TCP, and of IPv4 headers. A
/// retransmission does not tell, since one is also made when the queue is not served for some milliseconds.
fn wrong_checksums(namespace: &Namespace) -> u64 {
    let read = || std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let text = namespace.enter(read).unwrap();
    let counters = [("Tcp:", "InCsumErrors"), ("Ip:", "InHdrErrors")];
    let found = counters.map(|(group, name)| {
        // A line of names, and below it one of values.
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .filter(|words: &Vec<&str>| words.first() == Some(&group))
            .collect();
        let at = lines[0].iter().position(|word| *word == name).unwrap();
        lines[1][at].parse::<u64>().unwrap()
    });
    found.iter().sum()
}

fn with(offloads: bool) -> NfqueueOptions {
    NfqueueOptions {
        offloads,
        ..NfqueueOptions::default()
    }
}

#[test]
fn tcp_crosses_whole_and_split() {
    for offloads in [true, false] {
        let Outcome { tcp, counters, .. } = transfer(with(offloads), false);
        assert!(tcp.finished.is_some(), "{counters:?}");
        assert_eq!(counters.received_super > 0, offloads, "{counters:?}");
        assert_eq!(counters.lost_total(), 0, "{counters:?}");
    }
}

#[test]
fn marks_go_back_with_the_verdict_and_checksums_stay_right() {
    for offloads in [true, false] {
        let outcome = transfer(with(offloads), true);
        let (tcp, counters) = (outcome.tcp, outcome.counters);
        assert!(tcp.finished.is_some(), "{counters:?}");
        let last = tcp.info.last().unwrap();
        assert!(
            tcp.has_ecn && last.delivered_ce > 0,
            "{} {} {offloads} {counters:?}",
            tcp.has_ecn,
            last.delivered_ce
        );
        assert_eq!(outcome.wrong_checksums, 0);
    }
}

#[test]
fn tcp_crosses_when_only_headers_are_fetched() {
    let options = NfqueueOptions {
        headers_only: true,
        ..NfqueueOptions::default()
    };
    // What is written into headers that were fetched alone does not get into the packet.
    let outcome = transfer(options, true);
    let (tcp, counters) = (outcome.tcp, outcome.counters);
    assert!(tcp.finished.is_some(), "{counters:?}");
    assert!(counters.received_super > 0, "{counters:?}");
    // All the lengths, though not the bytes.
    assert!(counters.received_bytes > 20_000_000, "{counters:?}");
    assert_eq!(counters.lost_total(), 0, "{counters:?}");
    assert_eq!(tcp.info.last().unwrap().delivered_ce, 0);
    assert_eq!(outcome.wrong_checksums, 0);
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
        // What the host sends of its own accord is not UDP.
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
            hook,
            interface: Some("eth0".to_owned()),
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
