//! TCP through the kernel's queue as a port, live.

#[path = "../../net/tests/common/mod.rs"]
mod common;

use common::queue::{H2, H3, hosts, open, pool, serve};
use sluice_core::{Span, Stop, Time};
use sluice_load::tcp::{Ecn, TcpFlow, TcpReport, TcpSettings};
use sluice_net::Clock;
use sluice_net::namespace::Namespace;
use sluice_net::port::nfqueue::NfqueueOptions;
use sluice_net::port::{Counters, Port as _};
use sluice_wire::frame::{self, Link, parse_head};

/// The results of a transfer through the queue.
struct Outcome {
    tcp: TcpReport,
    counters: Counters,
    /// Packets that the receiving host discarded because of a wrong checksum.
    wrong_checksums: u64,
}

/// Runs a transfer through the queue that marks every 50th ECN-capable packet. If only headers are
/// fetched, this counts packets longer than the fetched bytes, because shorter ones arrive whole.
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
        tcp: TcpSettings {
            ecn: Ecn::On,
            ..TcpSettings::default()
        },
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

/// Returns the packets that a namespace has discarded because of a wrong checksum of TCP or of the
/// IPv4 header. Retransmissions are no evidence: the sender also retransmits when the queue is not
/// served for a few milliseconds.
fn wrong_checksums(namespace: &Namespace) -> u64 {
    let read = || std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let text = namespace.enter(read).unwrap();
    let counters = [("Tcp:", "InCsumErrors"), ("Ip:", "InHdrErrors")];
    let found = counters.map(|(group, name)| {
        // A line of names is followed by a line of values.
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
    // Changes to headers that were fetched alone do not reach the packet.
    let outcome = transfer(options, true);
    let (tcp, counters) = (outcome.tcp, outcome.counters);
    assert!(tcp.finished.is_some(), "{counters:?}");
    assert!(counters.received_super > 0, "{counters:?}");
    // All lengths, although not all bytes were fetched.
    assert!(counters.received_bytes > 20_000_000, "{counters:?}");
    assert_eq!(counters.lost_total(), 0, "{counters:?}");
    assert_eq!(tcp.info.last().unwrap().delivered_ce, 0);
    assert_eq!(outcome.wrong_checksums, 0);
}
