//! TCP and ping through a minimal forwarder on packet, TUN and AF_XDP ports, live.

#[path = "../../net/tests/common/mod.rs"]
mod common;

use common::forwarder::{Forwarder, Mode, Outcome};
use common::{H2, H2_V6, H3, H3_V6, Topology, require_privilege};
use sluice_core::{Span, Stop, Time};
use sluice_load::ping::{Ping, PingReport};
use sluice_load::tcp::{TcpFlow, TcpReport, TcpSettings};
use sluice_net::Clock;
use sluice_net::namespace::{Namespace, Offloads};
use sluice_net::port::packet::PacketOptions;
use sluice_net::port::tun::TunOptions;
use sluice_net::port::xdp::XdpOptions;
use sluice_net::port::{Pool, PoolSize, Port as _, TunPort, XdpPort};
use sluice_wire::frame::Link;
use std::net::IpAddr;

const BYTES: u64 = 100_000_000;

/// A transfer of 100 MB with a ping beside it.
fn transfer(
    topology: &Topology,
    mode: Mode,
    options: PacketOptions,
    ends: (IpAddr, IpAddr),
) -> (TcpReport, PingReport, Outcome) {
    let forwarder = Forwarder::start(topology, mode, options);
    let clock = Clock::start();
    let stop = Stop::new();
    let start = Time::from_ns(5_000_000);
    let ping = Ping {
        count: Some(20),
        ..Ping::new(ends.0, ends.1, Span::from_ms(5), start)
    };
    let tcp = TcpFlow {
        bytes: Some(BYTES),
        stop: Some(start + Span::from_secs(30)),
        tcp: TcpSettings::with_congestion_control("cubic"),
        ..TcpFlow::new(ends.0, ends.1, start)
    };
    let ping = ping
        .start(&topology.h2, &topology.h3, &clock, &stop)
        .unwrap();
    let tcp = tcp
        .start(&topology.h2, &topology.h3, &clock, &stop)
        .unwrap();
    let reports = (tcp.join().unwrap(), ping.join().unwrap());
    (reports.0, reports.1, forwarder.finish())
}

fn assert_complete(tcp: &TcpReport, ping: &PingReport, outcome: &Outcome) {
    assert_eq!(tcp.broken, None);
    assert!(tcp.finished.is_some(), "the transfer did not end: {tcp:?}");
    assert_eq!(tcp.goodput.last().unwrap().bytes, BYTES);
    assert_eq!(
        tcp.info.last().unwrap().bytes_acked,
        BYTES + 2,
        "data, SYN and FIN"
    );
    assert_eq!((ping.lost(), ping.duplicates), (0, 0));
    assert_eq!(ping.arrived, 20);
    assert_eq!(outcome.slots_missing, 0, "all slots are free again");
}

#[test]
fn super_packets_cross_whole() {
    let topology = Topology::new(Offloads::ON);
    for ends in [(H2, H3), (H2_V6, H3_V6)] {
        let options = PacketOptions::default();
        let (tcp, ping, outcome) = transfer(&topology, Mode::Whole, options, ends);
        assert_complete(&tcp, &ping, &outcome);
        let [sender, _] = outcome.ports;
        assert!(sender.received_super > 0, "{outcome:?}");
        // 100 MB in fewer frames than 1448-byte segments: 69 061.
        assert!(sender.received < BYTES / 1448 / 2, "{outcome:?}");
    }
}

#[test]
fn super_packets_cross_split() {
    let topology = Topology::new(Offloads::ON);
    for ends in [(H2, H3), (H2_V6, H3_V6)] {
        let options = PacketOptions::default();
        let (tcp, ping, outcome) = transfer(&topology, Mode::Split, options, ends);
        assert_complete(&tcp, &ping, &outcome);
        let [sender, receiver] = outcome.ports;
        assert!(sender.received_super > 0, "{outcome:?}");
        assert!(outcome.split_into > sender.received_super);
        // At most 1448 bytes of payload each, even if the sender made super-packets.
        assert!(receiver.sent > BYTES / 1448, "{outcome:?}");
    }
}

#[test]
fn without_offloads_every_frame_fits_the_link() {
    let topology = Topology::new(Offloads::OFF);
    let options = PacketOptions {
        offloads: false,
        ..PacketOptions::default()
    };
    let (tcp, ping, outcome) = transfer(&topology, Mode::Whole, options, (H2, H3));
    assert_complete(&tcp, &ping, &outcome);
    let [sender, _] = outcome.ports;
    assert_eq!(sender.received_super, 0);
    assert!(sender.received_bytes <= sender.received * 1514);
}

#[test]
fn tun_devices_carry_tcp_whole_and_split() {
    require_privilege();
    for mode in [Mode::Whole, Mode::Split] {
        let hosts = [("h2", H2), ("h3", H3)].map(|(name, address)| {
            let namespace = Namespace::create(name).unwrap();
            namespace.silence_ipv6().unwrap();
            let port = TunPort::create(&namespace, "sluice-tun0", TunOptions::default()).unwrap();
            let mut links = namespace.links().unwrap();
            links.set_up("sluice-tun0", true).unwrap();
            links.add_address("sluice-tun0", address, 24).unwrap();
            (namespace, port)
        });
        let [(h2, first), (h3, second)] = hosts;
        // Each is in its own namespace, not in that of the test.
        let mut here = Namespace::current().unwrap().links().unwrap();
        assert!(here.interface("sluice-tun0").is_err());
        assert_eq!(first.link(), Link::Ip);
        let forwarder = Forwarder::between([first, second], mode);
        let (clock, stop) = (Clock::start(), Stop::new());
        let start = Time::from_ns(5_000_000);
        let ping = Ping {
            count: Some(10),
            ..Ping::new(H2, H3, Span::from_ms(2), start)
        };
        let tcp = TcpFlow {
            bytes: Some(50_000_000),
            stop: Some(start + Span::from_secs(30)),
            tcp: TcpSettings::with_congestion_control("cubic"),
            ..TcpFlow::new(H2, H3, start)
        };
        let ping = ping.start(&h2, &h3, &clock, &stop).unwrap();
        let tcp = tcp.start(&h2, &h3, &clock, &stop).unwrap();
        let tcp = tcp.join().unwrap();
        assert_eq!(tcp.goodput.last().unwrap().bytes, 50_000_000);
        assert!(ping.join().unwrap().received > 0);
        let outcome = forwarder.finish();
        assert!(outcome.ports[0].received_super > 0, "{outcome:?}");
        assert_eq!(outcome.split_into > 0, mode == Mode::Split);
        assert_eq!(outcome.slots_missing, 0);
    }
}

#[test]
fn tcp_crosses_xdp_ports_although_the_hosts_leave_their_checksums_open() {
    for offloads in [Offloads::OFF, Offloads::ON] {
        let topology = Topology::new(offloads);
        for (from, to) in [(H2, H3), (H2_V6, H3_V6)] {
            let size = PoolSize {
                slots: 4096,
                large: 1,
            };
            let mut pool = Pool::new(size).unwrap();
            let options = XdpOptions::default();
            let inner = XdpPort::open(&topology.router, "r2", &mut pool, options).unwrap();
            let outer = XdpPort::open(&topology.router, "r3", &mut pool, options).unwrap();
            let forwarder = Forwarder::between_on(pool, size, [inner, outer], Mode::Whole);
            let (clock, stop) = (Clock::start(), Stop::new());
            let start = Time::from_ns(5_000_000);
            let ping = Ping {
                count: Some(20),
                ..Ping::new(from, to, Span::from_ms(5), start)
            };
            let tcp = TcpFlow {
                bytes: Some(20_000_000),
                stop: Some(start + Span::from_secs(30)),
                ..TcpFlow::new(from, to, start)
            };
            let (h2, h3) = (&topology.h2, &topology.h3);
            // The flows run one after the other: a flow without a limit sometimes fills the 256
            // places of a virtual interface's ring, and further frames are lost before the port.
            let ping = ping.start(h2, h3, &clock, &stop).unwrap().join().unwrap();
            let tcp = tcp.start(h2, h3, &clock, &stop).unwrap().join().unwrap();
            let outcome = forwarder.finish();
            assert!(tcp.finished.is_some(), "{outcome:?}");
            assert_eq!(ping.lost(), 0);
            assert_eq!(outcome.slots_missing, 0, "all slots are free again");
            assert!(outcome.ports[0].received > 20_000_000 / 1448);
        }
    }
}
