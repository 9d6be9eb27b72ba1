//! Jumbo packets in super-packets through a pipe that splits them, live.
//!
//! `client -- router -- server`, each in its own namespace, over veth pairs with segmentation
//! offload. The test needs root or its capabilities and fails without them. It runs alone because
//! it measures (`make test-live`).

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use sluice_net::namespace::{Mac, Namespace, VethEnd, create_veth};
use sluice_router::process::{Router, Settings};

const RATE_MBIT: f64 = 100.0;

fn address(is_v6: bool, number: u8) -> IpAddr {
    match is_v6 {
        false => IpAddr::from([10, 0, 1, number]),
        true => IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(number)]),
    }
}

/// Two hosts on one link of this MTU, and the two ports of a router between them.
fn network(mtu: u32) -> [Namespace; 3] {
    let [client, middle, server] = ["client", "middle", "server"]
        .map(|name| Namespace::create(name).expect("the test may create namespaces"));
    for (host, port, number) in [(&client, "left", 2), (&server, "right", 3)] {
        let end = |namespace, name, number| VethEnd {
            namespace,
            name,
            mac: Mac([2, 0, 0, 0, 0, number]),
        };
        create_veth(end(host, "eth0", number), end(&middle, port, number + 10)).unwrap();
        let offloads = host.offloads("eth0").unwrap();
        assert!(offloads.tcp_segmentation, "veth hands over super-packets");
        for (namespace, name) in [(host, "eth0"), (&middle, port)] {
            let mut links = namespace.links().unwrap();
            links.set_mtu(name, mtu).unwrap();
            links.set_up(name, true).unwrap();
        }
        let mut links = host.links().unwrap();
        links
            .add_address("eth0", address(false, number), 24)
            .unwrap();
        links
            .add_address("eth0", address(true, number), 64)
            .unwrap();
    }
    [client, middle, server]
}

/// Sends over TCP for three seconds, while another thread receives.
fn transfer(client: &Namespace, server: &Namespace, is_v6: bool) {
    let to = SocketAddr::new(address(is_v6, 3), 5001);
    let listener = server.enter(|| TcpListener::bind(to).unwrap()).unwrap();
    let receiver = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = vec![0; 1 << 20];
        while stream.read(&mut bytes).is_ok_and(|length| length > 0) {}
    });
    let mut stream = client.enter(|| TcpStream::connect(to).unwrap()).unwrap();
    let timeout = Some(Duration::from_secs(5));
    stream.set_write_timeout(timeout).unwrap();
    let (bytes, start) = (vec![7; 1 << 20], Instant::now());
    while start.elapsed() < Duration::from_secs(3) {
        let _ = stream.write(&bytes);
    }
    // The receiver does not wait for data left in the socket.
    drop(stream);
    drop(receiver);
}

/// Returns the rate of a pipe of 100 Mbit/s in the second and third second of a transfer, including
/// link headers, in Mbit/s.
fn rate(mtu: u32, is_v6: bool) -> f64 {
    let [client, middle, server] = network(mtu);
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("rules");
    // Half a second of queue, more than a sender keeps in flight (tcp_wmem of tcp(7): 4 MiB): TCP loses
    // nothing, and never waits for a timeout.
    let rules = format!(
        "pipe 1 config bw {RATE_MBIT}Mbit/s queue 6250KBytes\nadd 100 pipe 1 tcp from any to any 5001 out\n"
    );
    std::fs::write(&config, rules).unwrap();
    let mut settings = Settings::new("left".parse().unwrap(), "right".parse().unwrap());
    let namespace = format!("/proc/self/fd/{}", middle.as_fd().as_raw_fd());
    settings.namespace = Some(PathBuf::from(namespace));
    settings.engine.accepts_by_default = true;
    settings.config = Some(config);
    let router = Router::start(&settings).unwrap();
    let measured = std::thread::scope(|scope| {
        let transfer = scope.spawn(|| transfer(&client, &server, is_v6));
        sleep(Duration::from_secs(1));
        let before = router.status().unwrap();
        sleep(Duration::from_secs(2));
        let after = router.status().unwrap();
        transfer.join().unwrap();
        let bytes = after.ports[1].sent_bytes - before.ports[1].sent_bytes;
        bytes as f64 * 8e3 / (after.uptime_ns - before.uptime_ns) as f64
    });
    let status = router.stop();
    assert_eq!(status.lost, BTreeMap::new(), "MTU {mtu}: {status}");
    for port in &status.ports {
        assert_eq!(port.lost, BTreeMap::new(), "MTU {mtu}: {status}");
    }
    assert!(status.ports[0].received > 0, "MTU {mtu}: {status}");
    measured
}

#[test]
fn jumbo_super_packets_fill_a_slow_pipe() {
    for (mtu, is_v6) in [
        (1900, false),
        (2100, false),
        (9000, false),
        (9000, true),
        (65_535, false),
        (65_535, true),
    ] {
        let mbit = rate(mtu, is_v6);
        eprintln!(
            "MTU {mtu}, {}: {mbit:.1} Mbit/s",
            if is_v6 { "IPv6" } else { "IPv4" }
        );
        // The pipe counts packets without their link headers: 14 of 1914 bytes are 0.7 % more.
        assert!((95.0..102.0).contains(&mbit), "MTU {mtu}: {mbit} Mbit/s");
    }
}
