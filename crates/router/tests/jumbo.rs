//! Super-packets that a router splits, live: jumbo packets, and those inside a tunnel.
//!
//! `client -- router -- server`, each in its own namespace, over veth pairs with segmentation
//! offload. In a VLAN, a program beside each host tags its frames. The tests need root or its
//! capabilities, and the kernel's VXLAN, and fail without them. They run alone because they measure (`make
//! test-live`).

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use sluice_net::namespace::{Mac, Namespace, VethEnd, create_veth};
use sluice_router::process::{Router, Settings};

const RATE_MBIT: f64 = 100.0;

/// What the frames of the two hosts pass the router in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Plain,
    Vlan,
    Vxlan,
}

/// Returns the address of a host on the link, or in the tunnel.
fn address(way: Way, is_v6: bool, number: u8) -> IpAddr {
    let network = if way == Way::Vxlan { 2 } else { 1 };
    match is_v6 {
        false => IpAddr::from([10, 0, network, number]),
        true => IpAddr::from([0xfd00, network.into(), 0, 0, 0, 0, 0, number.into()]),
    }
}

/// Creates the end of a tunnel (ip-link(8)) between the addresses of two hosts.
fn add_tunnel(host: &Namespace, is_v6: bool, [own, other]: [u8; 2]) {
    let [local, remote] = [own, other].map(|number| address(Way::Plain, is_v6, number));
    let words = format!(
        "link add tunnel type vxlan id 7 local {local} remote {remote} dstport 4789 dev eth0 udpcsum"
    );
    let added = host.enter(|| Command::new("ip").args(words.split(' ')).status());
    assert!(added.unwrap().unwrap().success(), "ip {words}");
    let mut links = host.links().unwrap();
    for is_v6 in [false, true] {
        let length = if is_v6 { 64 } else { 24 };
        links
            .add_address("tunnel", address(Way::Vxlan, is_v6, own), length)
            .unwrap();
    }
    links.set_up("tunnel", true).unwrap();
}

/// Two hosts, and the two ports of a router between them.
struct Network {
    /// The programs that tag frames. They end before their interfaces do.
    taggers: Vec<Tagger>,
    client: Namespace,
    middle: Namespace,
    server: Namespace,
}

/// A program that tags the frames of a host. It ends with this.
struct Tagger(Child);

impl Drop for Tagger {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Tagger {
    /// Starts in a namespace with an interface to a host, `host`, and one to the router, `trunk`.
    fn start(namespace: &Namespace) -> Tagger {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/tag.py");
        let start = || {
            Command::new("python3")
                .args([script, "host", "trunk"])
                .stdout(Stdio::piped())
                .spawn()
        };
        let mut child = namespace.enter(start).unwrap().unwrap();
        let mut said = [0; 6];
        child.stdout.take().unwrap().read_exact(&mut said).unwrap();
        assert_eq!(&said, b"ready\n");
        Tagger(child)
    }
}

/// Connects two namespaces by a link of this MTU.
fn connect(ends: [(&Namespace, &str, u8); 2], mtu: u32) {
    let [one, other] = ends.map(|(namespace, name, number)| VethEnd {
        namespace,
        name,
        mac: Mac([2, 0, 0, 0, 0, number]),
    });
    create_veth(one, other).unwrap();
    for (namespace, name, _) in ends {
        let offloads = namespace.offloads(name).unwrap();
        assert!(offloads.tcp_segmentation, "veth hands over super-packets");
        let mut links = namespace.links().unwrap();
        links.set_mtu(name, mtu).unwrap();
        links.set_up(name, true).unwrap();
    }
}

/// Two hosts on one network of this MTU, the router in between. A tunnel uses IPv4 or IPv6 itself.
fn network(mtu: u32, way: Way, is_v6: bool) -> Network {
    let create = |name| Namespace::create(name).expect("the test may create namespaces");
    let [client, middle, server] = ["client", "middle", "server"].map(create);
    let mut taggers = Vec::new();
    for (host, port, number) in [(&client, "left", 2), (&server, "right", 3)] {
        if way == Way::Vlan {
            let between = create("tags");
            between.silence_ipv6().unwrap();
            connect(
                [(host, "eth0", number), (&between, "host", number + 20)],
                mtu,
            );
            connect(
                [
                    (&between, "trunk", number + 30),
                    (&middle, port, number + 10),
                ],
                mtu,
            );
            taggers.push(Tagger::start(&between));
        } else {
            connect([(host, "eth0", number), (&middle, port, number + 10)], mtu);
        }
        let mut links = host.links().unwrap();
        links
            .add_address("eth0", address(Way::Plain, false, number), 24)
            .unwrap();
        links
            .add_address("eth0", address(Way::Plain, true, number), 64)
            .unwrap();
        if way == Way::Vxlan {
            add_tunnel(host, is_v6, [number, 5 - number]);
        }
    }
    Network {
        taggers,
        client,
        middle,
        server,
    }
}

/// Sends over TCP for this time, while another thread receives.
fn transfer(client: &Namespace, server: &Namespace, to: IpAddr, time: Duration) {
    let to = SocketAddr::new(to, 5001);
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
    while start.elapsed() < time {
        let _ = stream.write(&bytes);
    }
    // The receiver does not wait for data left in the socket.
    drop(stream);
    drop(receiver);
}

/// Returns the settings of a router between the two hosts.
fn settings(network: &Network, config: Option<PathBuf>) -> Settings {
    let mut settings = Settings::new("left".parse().unwrap(), "right".parse().unwrap());
    let namespace = format!("/proc/self/fd/{}", network.middle.as_fd().as_raw_fd());
    settings.namespace = Some(PathBuf::from(namespace));
    settings.engine.accepts_by_default = true;
    settings.config = config;
    settings
}

/// Returns the rate of a pipe of 100 Mbit/s in the second and third second of a transfer, including
/// link headers, in Mbit/s.
fn rate(mtu: u32, is_v6: bool, way: Way) -> f64 {
    let network = network(mtu, way, is_v6);
    let (client, server) = (&network.client, &network.server);
    assert_eq!(network.taggers.len(), if way == Way::Vlan { 2 } else { 0 });
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("rules");
    let packets = match way {
        Way::Vxlan => "udp from any to any 4789",
        Way::Plain | Way::Vlan => "tcp from any to any 5001",
    };
    // Half a second of queue, more than a sender keeps in flight (tcp_wmem of tcp(7): 4 MiB): TCP loses
    // nothing, and never waits for a timeout.
    let rules = format!(
        "pipe 1 config bw {RATE_MBIT}Mbit/s queue 6250KBytes\nadd 100 pipe 1 {packets} out\n"
    );
    std::fs::write(&config, rules).unwrap();
    let settings = settings(&network, Some(config));
    let router = Router::start(&settings).unwrap();
    let measured = std::thread::scope(|scope| {
        let to = address(way, is_v6, 3);
        let transfer = scope.spawn(move || transfer(client, server, to, Duration::from_secs(3)));
        // The loop sends what is due between two requests. Only the second answer is sure to count all
        // that was due when it was given, however long the loop had paused before.
        let status = || router.status().and_then(|_| router.status()).unwrap();
        sleep(Duration::from_secs(1));
        let before = status();
        sleep(Duration::from_secs(2));
        let after = status();
        transfer.join().unwrap();
        let bytes = after.ports[1].sent_bytes - before.ports[1].sent_bytes;
        bytes as f64 * 8e3 / (after.uptime_ns - before.uptime_ns) as f64
    });
    let status = router.stop();
    assert_eq!(status.lost, BTreeMap::new(), "MTU {mtu}: {status}");
    for port in &status.ports {
        assert_eq!(port.lost, BTreeMap::new(), "MTU {mtu}: {status}");
    }
    let [left, right] = &status.ports[..] else {
        panic!("two ports: {status}");
    };
    assert!(left.received > 0, "MTU {mtu}: {status}");
    if way != Way::Plain {
        assert!(left.received < right.sent, "no super-packet: {status}");
    }
    measured
}

#[test]
fn jumbo_super_packets_fill_a_slow_pipe() {
    for (mtu, is_v6, way) in [
        (1900, false, Way::Plain),
        (2100, false, Way::Plain),
        (9000, false, Way::Plain),
        (9000, true, Way::Plain),
        (9000, false, Way::Vlan),
        (9000, true, Way::Vlan),
        (65_535, false, Way::Plain),
        (65_535, true, Way::Plain),
        (1500, false, Way::Vxlan),
        (1500, true, Way::Vxlan),
        (9000, true, Way::Vxlan),
    ] {
        let mbit = rate(mtu, is_v6, way);
        let version = if is_v6 { 6 } else { 4 };
        eprintln!("MTU {mtu}, IPv{version}, {way:?}: {mbit:.1} Mbit/s");
        // The pipe counts packets without their link headers: 14 of 1914 bytes are 0.7 % more.
        assert!((95.0..102.0).contains(&mbit), "MTU {mtu}: {mbit} Mbit/s");
    }
}

/// The kernel refuses a super-packet whose offload header describes the packet inside.
#[test]
fn super_packets_in_a_tunnel_pass_without_a_pipe() {
    let network = network(1500, Way::Vxlan, false);
    let router = Router::start(&settings(&network, None)).unwrap();
    let to = address(Way::Vxlan, false, 3);
    let time = Duration::from_secs(1);
    transfer(&network.client, &network.server, to, time);
    let status = router.stop();
    let [left, right] = &status.ports[..] else {
        panic!("two ports: {status}");
    };
    assert!(left.received < right.sent, "no super-packet: {status}");
    for reason in ["refused", "offload", "too_long"] {
        assert_eq!(right.lost.get(reason), None, "{status}");
    }
}
