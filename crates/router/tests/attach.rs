//! How a router attaches to interfaces, and what it takes for its own addresses.
//!
//! These tests need root or its capabilities, and fail without.

use std::net::{IpAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use sluice_net::namespace::{Mac, Namespace, Offloads, VethEnd, create_veth};
use sluice_net::port::PortSpec;
use sluice_router::control::{How, Request, Texts, ask};
use sluice_router::process::{Router, Settings};

const ROUTER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 9, 0, 1));
const HOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 9, 0, 2));

const NONE: Offloads = Offloads {
    tx_checksum: false,
    tcp_segmentation: false,
    generic_segmentation: false,
    generic_receive: false,
};

/// A host with `eth0` before the router's `em0`; `em1` leads nowhere.
fn network() -> (Namespace, Namespace) {
    let host = Namespace::create("host").expect("the test may make namespaces");
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

/// As others name a namespace that this process holds.
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
    // veth has segmentation offloads from the start: super-packets come.
    let chosen = kinds("em0", "packet:em1");
    assert_eq!(chosen[0].kind, "packet");
    assert!(
        chosen[0].reason.contains("super-packets"),
        "{}",
        chosen[0].reason
    );
    assert_eq!(chosen[1].reason, "as asked for");

    for name in ["em0", "em1"] {
        middle.set_offloads(name, NONE).unwrap();
    }
    let chosen = kinds("em0", "packet:em1");
    // AF_XDP, or why not: some kernels lack it.
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
    assert_eq!(chosen[1].kind, "packet", "what was asked for is taken");
}

#[test]
fn me_is_an_address_of_the_ports_also_one_that_came_later() {
    let (host, middle) = network();
    let mut links = middle.links().unwrap();
    links.add_address("em0", ROUTER, 24).unwrap();
    // Beside its link-local one.
    assert!(links.addresses("em0").unwrap().contains(&ROUTER));
    let folder = tempfile::tempdir().unwrap();
    let mut settings = settings(&middle, "packet:em0", "packet:em1");
    settings.engine.accepts_by_default = true;
    settings.socket = Some(folder.path().join("s"));
    let config = folder.path().join("rules");
    std::fs::write(&config, "add 100 count udp from any to me in recv em0\n").unwrap();
    settings.config = Some(config);
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
    let counted = |at_least: &str| {
        let request = Request::Commands {
            commands: "show 100".into(),
            how: How::Command,
            files: Texts::new(),
        };
        let mut said = String::new();
        for _ in 0..200 {
            said = ask(&folder.path().join("s"), &request).unwrap().stdout;
            if said.starts_with(at_least) {
                break;
            }
            sleep(Duration::from_millis(10));
        }
        said
    };
    send(ROUTER);
    // 10 packets of 20 bytes of IPv4, 8 of UDP and 5 of payload.
    let expected = "00100 10 330 count udp from any to me in recv em0\n";
    assert_eq!(counted(expected), expected);

    // Not its own yet; after the next look at the addresses it is. Rules that stay keep their
    // counters.
    links.add_address("em0", later, 24).unwrap();
    router.reload().unwrap();
    send(later);
    let expected = "00100 20 660 count udp from any to me in recv em0\n";
    assert_eq!(counted(expected), expected);
    router.stop();
}
