//! Measures the rate of TCP across the packet ports and kernel forwarding, interleaved.
//!
//! `cargo run --release -p sluice-load --example forward_rate [SECONDS [ROUNDS [discard]]]`
//! (as root)

#[path = "../../net/tests/common/mod.rs"]
mod common;

use common::forwarder::{Forwarder, Mode};
use common::{H2, H3, Topology, mac};
use sluice_core::{Span, Stop, Time};
use sluice_load::ping::Ping;
use sluice_load::tcp::{Sink, TcpFlow, TcpSettings};
use sluice_net::Clock;
use sluice_net::namespace::Offloads;
use sluice_net::port::packet::PacketOptions;
use sluice_net::port::xdp::XdpOptions;
use sluice_net::port::{Pool, PoolSize, XdpPort};

fn main() {
    let sink = match std::env::args().nth(3).as_deref() {
        Some("discard") => Sink::Discard,
        _ => Sink::Read,
    };
    let mut numbers = std::env::args().skip(1).take(2).map(|word| {
        word.parse::<u64>()
            .unwrap_or_else(|_| panic!("{word:?} is not a number"))
    });
    let (seconds, rounds) = (numbers.next().unwrap_or(2), numbers.next().unwrap_or(3));
    println!(
        "{:<22} {:>6} {:>9} {:>9} {:>9} {:>9}",
        "router", "flows", "Gbit/s", "idle us", "loaded us", "lost"
    );
    for _ in 0..rounds {
        for flows in [1, 4] {
            for router in [
                Router::Kernel,
                Router::Whole,
                Router::WholeQdisc,
                Router::Split,
                Router::KernelPlain,
                Router::Plain,
                Router::Xdp,
            ] {
                measure(router, flows, seconds, sink);
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Router {
    Kernel,
    Whole,
    WholeQdisc,
    Split,
    KernelPlain,
    Plain,
    Xdp,
}

fn measure(router: Router, flows: u32, seconds: u64, sink: Sink) {
    let is_plain = matches!(router, Router::KernelPlain | Router::Plain | Router::Xdp);
    let topology = Topology::new(if is_plain {
        Offloads::OFF
    } else {
        Offloads::ON
    });
    let options = PacketOptions {
        offloads: !is_plain,
        bypass_qdisc: router != Router::WholeQdisc,
        ..PacketOptions::default()
    };
    let forwarder = match router {
        Router::Kernel | Router::KernelPlain => {
            forward_by_kernel(&topology);
            None
        }
        Router::Xdp => Some(forward_by_xdp(&topology)),
        Router::Split => Some(Forwarder::start(&topology, Mode::Split, options)),
        _ => Some(Forwarder::start(&topology, Mode::Whole, options)),
    };
    let idle = ping_median(&topology, Span::from_ms(200));
    let before = crossed(&topology);
    let clock = Clock::start();
    let start = Time::from_ns(20_000_000);
    let stop = start + Span::from_secs(seconds);
    let running: Vec<_> = (0..flows)
        .map(|_| {
            let flow = TcpFlow {
                stop: Some(stop),
                sink,
                tcp: TcpSettings::with_congestion_control("cubic"),
                ..TcpFlow::new(H2, H3, start)
            };
            flow.start(&topology.h2, &topology.h3, &clock, &Stop::new())
                .unwrap()
        })
        .collect();
    let loaded = ping_median(&topology, Span::from_secs(seconds));
    let mut bits_per_second = 0.0;
    let mut goodput = 0;
    let mut acked = 0;
    for running in running {
        let report = running.join().unwrap();
        goodput += report.goodput.last().map_or(0, |entry| entry.bytes);
        acked += report.info.last().map_or(0, |sample| sample.bytes_acked);
        // From the first sample after the start to the last before the end.
        let inside: Vec<_> = report
            .goodput
            .iter()
            .filter(|entry| entry.time >= start && entry.time < stop)
            .collect();
        if let [first, .., last] = inside[..] {
            let bits = (last.bytes - first.bytes) as f64 * 8.0;
            bits_per_second += bits / last.time.since(first.time).as_secs_f64();
        }
    }
    let crossed = crossed(&topology) - before;
    // A rate that the interfaces' counters do not confirm would be an error of the measurement.
    assert!(
        acked <= goodput + u64::from(flows) && goodput <= crossed,
        "acknowledged {acked}, received {goodput}, crossed {crossed}"
    );
    let lost = forwarder.map_or(0, |forwarder| {
        let outcome = forwarder.finish();
        outcome.ports.iter().map(|port| port.lost_total()).sum()
    });
    println!(
        "{:<22} {flows:>6} {:>9.2} {:>9.0} {:>9.0} {lost:>9}",
        format!("{router:?}"),
        bits_per_second / 1e9,
        idle.as_ms_f64() * 1e3,
        loaded.as_ms_f64() * 1e3,
    );
}

fn forward_by_xdp(topology: &Topology) -> Forwarder {
    let size = PoolSize {
        slots: 8192,
        large: 1,
    };
    let mut pool = Pool::new(size).unwrap();
    let options = XdpOptions::default();
    let inner = XdpPort::open(&topology.router, "r2", &mut pool, options).unwrap();
    let outer = XdpPort::open(&topology.router, "r3", &mut pool, options).unwrap();
    Forwarder::between_on(pool, size, [inner, outer], Mode::Whole)
}

/// Bytes that left towards the receiver, by the interface's own counter.
fn crossed(topology: &Topology) -> u64 {
    topology
        .router
        .enter(|| {
            let table = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
            let line = table.lines().find(|line| line.contains("r3:")).unwrap();
            // Eight columns for receiving come first.
            line.split_whitespace().nth(9).unwrap().parse().unwrap()
        })
        .unwrap()
}

fn ping_median(topology: &Topology, length: Span) -> Span {
    let clock = Clock::start();
    let start = Time::from_ns(20_000_000);
    let ping = Ping {
        stop: Some(start + length),
        ..Ping::new(H2, H3, Span::from_ms(5), start)
    };
    let report = ping
        .start(&topology.h2, &topology.h3, &clock, &Stop::new())
        .unwrap()
        .join()
        .unwrap();
    let mut spans: Vec<_> = report
        .samples
        .iter()
        .filter_map(|sample| sample.round_trip)
        .collect();
    spans.sort();
    spans.get(spans.len() / 2).copied().unwrap_or(Span::MAX)
}

/// Makes the kernel forward between the two interfaces: the hosts send to the router's Ethernet
/// addresses, and it has theirs as neighbours.
fn forward_by_kernel(topology: &Topology) {
    for (host, peer, number) in [(&topology.h2, H3, 12), (&topology.h3, H2, 13)] {
        let mut links = host.links().unwrap();
        links.add_neighbour("eth0", peer, mac(number)).unwrap();
    }
    let mut links = topology.router.links().unwrap();
    for (port, address, number) in [("r2", H2, 2), ("r3", H3, 3)] {
        links.add_route(port, address, 32, None, None).unwrap();
        links.add_neighbour(port, address, mac(number)).unwrap();
        let setting = format!("net.ipv4.conf.{port}.rp_filter");
        topology.router.set_sysctl(&setting, "0").unwrap();
        // The kernel must not redirect the hosts to their direct path.
        let setting = format!("net.ipv4.conf.{port}.send_redirects");
        topology.router.set_sysctl(&setting, "0").unwrap();
    }
    topology
        .router
        .set_sysctl("net.ipv4.ip_forward", "1")
        .unwrap();
}
