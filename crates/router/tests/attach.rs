//! The kind of port by which a router attaches to an interface, and the addresses that count as its
//! own.
//!
//! These tests need root or its capabilities, and fail without them.

use std::net::{IpAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use sluice_net::namespace::{Mac, Namespace, Offloads, VethEnd, create_veth};
use sluice_net::port::PortSpec;
use sluice_net::port::packet::PacketOptions;
use sluice_net::port::{PacketPort, Pool, PoolSize, Port, Slot};
use sluice_router::control::{How, Request, Texts, ask};
use sluice_router::process::{Router, Settings};

const ROUTER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 9, 0, 1));
const HOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 9, 0, 2));

/// Creates a host whose `eth0` is connected to the router's `em0`; `em1` is not connected.
fn network() -> (Namespace, Namespace) {
    let host = Namespace::create("host").expect("the test may create namespaces");
    let middle = Namespace::create("middle").unwrap();
    let end = |namespace, name, number| VethEnd {
        namespace,
        name,
        mac: Mac([2, 0, 0, 0, 0, number]),
    };
    create_veth(end(&host, "eth0", 1), end(&middle, "em0", 2)).unwrap();
    create_veth(end(&middle, "em1", 3), end(&middle, "far", 4)).unwrap();
    for (namespace, names) in [(&host, &["eth0"][..]), (&middle, &["em0", "em1", "far"])] {
        namespace.silence_ipv6().unwrap();
        let mut links = namespace.links().unwrap();
        for name in names {
            links.set_up(name, true).unwrap();
        }
    }
    (host, middle)
}

/// Returns the path under which other processes can open a namespace of this process.
fn path_of(namespace: &Namespace) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", namespace.as_fd().as_raw_fd()))
}

fn settings(middle: &Namespace, left: &str, right: &str) -> Settings {
    let port = |text: &str| text.parse::<PortSpec>().unwrap();
    let mut settings = Settings::new(port(left), port(right));
    settings.namespace = Some(path_of(middle));
    settings
}

#[test]
fn an_interface_is_attached_to_by_what_serves_it_best_unless_said_otherwise() {
    let (_host, middle) = network();
    let kinds = |left: &str, right: &str| {
        let router = Router::start(&settings(&middle, left, right)).unwrap();
        let chosen = router.choices().to_vec();
        let status = router.stop();
        for (choice, port) in chosen.iter().zip(&status.ports) {
            assert_eq!(
                (&choice.kind, &choice.reason),
                (&port.kind, &port.reason),
                "the status says what was chosen"
            );
        }
        chosen
    };
    // veth has segmentation offloads by default, so super-packets arrive.
    let chosen = kinds("em0", "packet:em1");
    assert_eq!(chosen[0].kind, "packet");
    assert!(
        chosen[0].reason.contains("super-packets"),
        "{}",
        chosen[0].reason
    );
    assert_eq!(chosen[1].reason, "as requested");

    for name in ["em0", "em1"] {
        middle.set_offloads(name, Offloads::OFF).unwrap();
    }
    let chosen = kinds("em0", "packet:em1");
    // AF_XDP, or the reason why it was not chosen: some kernels lack it.
    match chosen[0].kind.as_str() {
        "xdp" => assert!(
            chosen[0].reason.contains("fastest for single packets"),
            "{}",
            chosen[0].reason
        ),
        kind => assert!(
            kind == "packet" && chosen[0].reason.contains("AF_XDP would be faster, but"),
            "{kind}: {}",
            chosen[0].reason
        ),
    }
    assert_eq!(chosen[1].kind, "packet", "the requested kind is used");
}

/// Two hosts with `eth0` on both sides of a router. The left one is behind the router's `br0`,
/// which, like a network card, delivers only frames for its own address unless it is promiscuous;
/// the right one is behind `em1`.
struct Filtered {
    left: Namespace,
    middle: Namespace,
    right: Namespace,
}

impl Filtered {
    fn new() -> Filtered {
        let site = Filtered {
            left: Namespace::create("left").expect("the test may create namespaces"),
            middle: Namespace::create("middle").unwrap(),
            right: Namespace::create("right").unwrap(),
        };
        let end = |namespace, name, number| VethEnd {
            namespace,
            name,
            mac: Mac([2, 0, 0, 0, 0, number]),
        };
        create_veth(end(&site.left, "eth0", 1), end(&site.middle, "m0", 2)).unwrap();
        create_veth(end(&site.right, "eth0", 3), end(&site.middle, "em1", 4)).unwrap();
        for namespace in [&site.left, &site.middle, &site.right] {
            namespace.silence_ipv6().unwrap();
        }
        for (host, name, number) in [(&site.left, "m0", 2), (&site.right, "em1", 3)] {
            host.set_offloads("eth0", Offloads::OFF).unwrap();
            site.middle.set_offloads(name, Offloads::OFF).unwrap();
            let mut links = host.links().unwrap();
            links.set_up("eth0", true).unwrap();
            let address = IpAddr::from([10, 9, 1, number]);
            links.add_address("eth0", address, 24).unwrap();
            site.middle.links().unwrap().set_up(name, true).unwrap();
        }
        site.make_bridge();
        site
    }

    /// Creates the bridge device `br0` over the wire to the left host.
    fn make_bridge(&self) {
        let mut links = self.middle.links().unwrap();
        links.create_bridge("br0", &["m0"]).unwrap();
    }

    fn is_promiscuous(&self) -> bool {
        let link = self.middle.links().unwrap().interface("br0");
        link.is_ok_and(|link| link.is_promiscuous)
    }

    /// Returns whether a datagram arrives from left to right, within 20 ms.
    fn passes(&self) -> bool {
        let bind = |address: &'static str| move || UdpSocket::bind(address).unwrap();
        let to = self.right.enter(bind("10.9.1.3:8")).unwrap();
        let from = self.left.enter(bind("10.9.1.2:8")).unwrap();
        to.set_read_timeout(Some(Duration::from_millis(20)))
            .unwrap();
        from.send_to(b"hello", "10.9.1.3:8").unwrap();
        to.recv(&mut [0; 16]).is_ok()
    }

    /// Sends 5 datagrams from left to right, each of which is answered. Returns how many answers
    /// arrive, each within half a second.
    fn arrived(&self) -> usize {
        let receiver = |address: &'static str| {
            move || {
                let socket = UdpSocket::bind(address).unwrap();
                socket
                    .set_read_timeout(Some(Duration::from_millis(500)))
                    .unwrap();
                socket
            }
        };
        let to = self.right.enter(receiver("10.9.1.3:7")).unwrap();
        let from = self.left.enter(receiver("10.9.1.2:7")).unwrap();
        for _ in 0..5 {
            from.send_to(b"hello", "10.9.1.3:7").unwrap();
            sleep(Duration::from_millis(20));
        }
        let mut bytes = [0; 16];
        // The answers go to an address that the interface's filter does not know either.
        (0..5)
            .take_while(|_| {
                let heard = to.recv_from(&mut bytes);
                heard.is_ok_and(|(length, sender)| {
                    to.send_to(&bytes[..length], sender).unwrap();
                    from.recv(&mut bytes).is_ok()
                })
            })
            .count()
    }
}

#[test]
fn a_bridge_gets_the_frames_for_others_past_a_filter_of_addresses() {
    let site = Filtered::new();
    for left in ["packet:br0", "xdp:br0"] {
        assert!(!site.is_promiscuous(), "before {left}");
        let mut settings = settings(&site.middle, left, "packet:em1");
        settings.engine.accepts_by_default = true;
        let router = Router::start(&settings).unwrap();
        assert_eq!(router.port_remarks(), [""; 0], "{left}");
        assert!(site.is_promiscuous(), "{left}");
        let status = router.status().unwrap();
        let promiscuous = status.ports.iter().map(|port| port.promiscuous);
        assert_eq!(promiscuous.collect::<Vec<_>>(), [Some(true); 2], "{left}");
        assert_eq!(site.arrived(), 5, "{left}");

        // After it is created again, it is a different interface, for which promiscuous mode is not
        // set.
        site.middle.links().unwrap().remove("br0").unwrap();
        sleep(Duration::from_millis(300));
        site.make_bridge();
        let made = Instant::now();
        // The port is open, and in promiscuous mode, some milliseconds before the loop uses it.
        let is_back = || site.is_promiscuous() && site.passes();
        while !is_back() && made.elapsed() < Duration::from_secs(5) {
            sleep(Duration::from_millis(5));
        }
        let took = made.elapsed();
        assert!(took < Duration::from_millis(200), "{left}: {took:?}");
        assert_eq!(site.arrived(), 5, "{left}, created again");
        let status = router.stop();
        assert_eq!(status.ports[0].promiscuous, Some(true), "{left}: {status}");
        assert!(!site.is_promiscuous(), "after {left}");
    }
}

#[test]
fn a_filter_of_addresses_keeps_from_a_port_that_does_not_ask_what_is_for_others() {
    let site = Filtered::new();
    let mut pool = Pool::new(PoolSize {
        slots: 64,
        large: 1,
    })
    .unwrap();
    // The sender knows the address, so nothing is broadcast.
    let mut links = site.left.links().unwrap();
    let other = IpAddr::from([10, 9, 1, 9]);
    let mac = Mac([2, 0, 0, 0, 0, 9]);
    links.add_neighbour("eth0", other, mac).unwrap();
    for (promiscuous, expected) in [(false, 0), (true, 5)] {
        let options = PacketOptions {
            promiscuous,
            ..PacketOptions::default()
        };
        let mut port = PacketPort::open(&site.middle, "br0", options).unwrap();
        assert_eq!(port.promiscuity().is_on(), promiscuous.then_some(true));
        site.left
            .enter(|| {
                let socket = UdpSocket::bind("10.9.1.2:7").unwrap();
                for _ in 0..5 {
                    socket.send_to(b"hello", (other, 7)).unwrap();
                }
            })
            .unwrap();
        // A veth delivers a frame within the call that sends it, or soon after.
        sleep(Duration::from_millis(100));
        let mut slots = Vec::new();
        while port.receive(&mut pool, &mut slots) > 0 {}
        let is_for_other = |slot: &&Slot| pool.head(**slot)[..6] == mac.0;
        assert_eq!(slots.iter().filter(is_for_other).count(), expected);
        slots.into_iter().for_each(|slot| pool.free(slot));
        port.release(&mut pool);
    }
}

#[test]
fn the_status_has_the_present_mtu_of_an_interface() {
    let (_host, middle) = network();
    let router = Router::start(&settings(&middle, "packet:em0", "packet:em1")).unwrap();
    let limit = || {
        let status = router.status().unwrap();
        status.ports[1].limits.get("too_long").copied()
    };
    assert_eq!(limit(), Some(1500));
    middle.links().unwrap().set_mtu("em1", 400).unwrap();
    let start = Instant::now();
    while limit() != Some(400) {
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", limit());
        sleep(Duration::from_millis(10));
    }
    router.stop();
}

#[test]
fn a_slot_is_free_or_kept_by_a_port_or_holds_a_packet() {
    let (host, middle) = network();
    let mut hosts = host.links().unwrap();
    hosts.add_address("eth0", HOST, 24).unwrap();
    let mac = Mac([2, 0, 0, 0, 0, 2]);
    hosts.add_neighbour("eth0", ROUTER, mac).unwrap();
    for left in ["packet:em0", "xdp:em0"] {
        let mut settings = settings(&middle, left, "packet:em1");
        settings.engine.accepts_by_default = true;
        // 128 bytes of IPv4 take a quarter of a second each.
        let rules = "pipe 1 config bw 4Kbit/s\nadd pipe 1 udp from any to any in\n";
        settings.commands = Some(rules.to_owned());
        let router = Router::start(&settings).unwrap();
        host.enter(|| {
            let socket = UdpSocket::bind((HOST, 0)).unwrap();
            for _ in 0..6 {
                socket.send_to(&[0; 100], (ROUTER, 9)).unwrap();
            }
        })
        .unwrap();
        let (mut most, start) = (0, Instant::now());
        loop {
            let status = router.status().unwrap();
            let inside = status.admitted - status.sent - status.dropped_total();
            let used = status.slots - status.free_slots - status.port_slots;
            assert_eq!(used, inside, "{left}: {status:?}");
            most = most.max(inside);
            if status.sent >= 6 {
                assert!(status.port_slots > 0, "{left}: {status:?}");
                break;
            }
            assert!(start.elapsed() < Duration::from_secs(10), "{status:?}");
            sleep(Duration::from_millis(5));
        }
        // The first one leaves after a quarter of a second.
        assert!(most >= 4, "{left}: {most} packets were inside at once");
        router.stop();
    }
}

#[test]
fn me_is_an_address_of_the_ports_also_one_that_came_later() {
    let (host, middle) = network();
    let mut links = middle.links().unwrap();
    links.add_address("em0", ROUTER, 24).unwrap();
    // In addition to its link-local address.
    assert!(links.addresses("em0").unwrap().contains(&ROUTER));
    let folder = tempfile::tempdir().unwrap();
    let mut settings = settings(&middle, "packet:em0", "packet:em1");
    settings.engine.accepts_by_default = true;
    settings.socket = Some(folder.path().join("s"));
    let config = folder.path().join("rules");
    let rules = "add 90 count udp from any to any in recv em0\n\
                 add 100 count udp from any to me in recv em0\n";
    std::fs::write(&config, rules).unwrap();
    settings.config = Some(config.clone());
    let router = Router::start(&settings).unwrap();

    let mut hosts = host.links().unwrap();
    hosts.add_address("eth0", HOST, 24).unwrap();
    let later = IpAddr::from([10, 9, 0, 3]);
    for address in [ROUTER, later] {
        hosts
            .add_neighbour("eth0", address, Mac([2, 0, 0, 0, 0, 2]))
            .unwrap();
    }
    let send = |to: IpAddr| {
        host.enter(|| {
            let socket = UdpSocket::bind((HOST, 0)).unwrap();
            for _ in 0..10 {
                socket.send_to(b"hello", (to, 9)).unwrap();
            }
        })
        .unwrap();
    };
    // Waits until that many packets have come, and returns how many were for the router itself.
    let counted = |came: u64| {
        let request = Request::Commands {
            commands: "show".into(),
            how: How::Command,
            files: Texts::new(),
        };
        for _ in 0..200 {
            let said = ask(&folder.path().join("s"), &request).unwrap().stdout;
            let line = |number: &str| said.lines().find(|line| line.starts_with(number)).unwrap();
            if line("00090").starts_with(&format!("00090 {came} ")) {
                // Without the spaces that align the counters.
                let words: Vec<&str> = line("00100").split_whitespace().collect();
                return words.join(" ");
            }
            sleep(Duration::from_millis(10));
        }
        panic!("{came} packets have not come");
    };
    send(ROUTER);
    // 10 packets of 20 bytes of IPv4, 8 of UDP and 5 of payload.
    let expected = "00100 10 330 count udp from any to me in recv em0";
    assert_eq!(counted(10), expected);

    // The new address counts as the router's own from the next reading of the addresses on. Rules
    // that stay keep their counters.
    links.add_address("em0", later, 24).unwrap();
    // If the file is refused, the old addresses remain with the old rules, also after another change.
    std::fs::write(&config, format!("{rules}add 110 cuont ip from any to me\n")).unwrap();
    router.reload().unwrap_err();
    let change = Request::Commands {
        commands: "-q add 200 count ip from any to any".into(),
        how: How::Command,
        files: Texts::new(),
    };
    let changed = ask(&folder.path().join("s"), &change).unwrap();
    assert!(changed.error.is_none());
    send(later);
    assert_eq!(counted(20), expected);
    send(ROUTER);
    let expected = "00100 20 660 count udp from any to me in recv em0";
    assert_eq!(counted(30), expected);
    std::fs::write(&config, rules).unwrap();
    router.reload().unwrap();
    send(later);
    let expected = "00100 30 990 count udp from any to me in recv em0";
    assert_eq!(counted(40), expected);
    router.stop();
}

#[test]
fn what_else_connects_the_ports_is_said() {
    let (_host, middle) = network();
    let remarks = || {
        let router = Router::start(&settings(&middle, "packet:em0", "packet:em1")).unwrap();
        router.port_remarks().to_vec()
    };
    middle.set_sysctl("net.ipv4.ip_forward", "1").unwrap();
    let mut links = middle.links().unwrap();
    links.add_address("em0", ROUTER, 24).unwrap();
    assert_eq!(remarks(), [""; 0], "one address is no route between them");
    let other = IpAddr::from([10, 9, 2, 1]);
    links.add_address("em1", other, 24).unwrap();
    assert_eq!(
        remarks(),
        [
            "em0 and em1 have addresses, and net.ipv4.ip_forward is on: what the kernel routes between \
             them passes no queue; `sluice router --forward` shapes it"
        ]
    );
    middle.set_sysctl("net.ipv4.ip_forward", "0").unwrap();
    assert_eq!(remarks(), [""; 0], "the kernel does not route");

    links.create_bridge("br0", &["em0", "em1"]).unwrap();
    assert_eq!(
        remarks(),
        [
            "the kernel's bridge br0 also connects em0 and em1: each frame arrives twice, once past \
             the queues; `ip link set em0 nomaster` takes em0 out of the bridge"
        ]
    );
}
