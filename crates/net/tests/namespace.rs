//! Namespaces, interfaces and their settings, live.

mod common;

use common::{H2, H3, Topology, mac, require_privilege};
use sluice_net::namespace::{LinkError, Namespace, Offloads, VethEnd, create_veth};
use socket2::{Domain, Socket, Type};
use std::net::SocketAddr;

#[test]
fn a_namespace_sees_only_its_own_interfaces() {
    let topology = Topology::new(Offloads::ON);
    let seen = topology
        .router
        .enter(|| std::fs::read_to_string("/proc/thread-self/net/dev").unwrap())
        .unwrap();
    let mut names: Vec<_> = seen
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(name, _)| name.trim())
        .collect();
    names.sort_unstable();
    names.retain(|name| ["lo", "r2", "r3"].contains(name) || name.starts_with("eth"));
    assert_eq!(names, ["lo", "r2", "r3"]);
    // The caller is still in its own namespace.
    let here = std::fs::read_link("/proc/self/ns/net").unwrap();
    let inside = topology
        .router
        .enter(|| std::fs::read_link("/proc/thread-self/ns/net").unwrap())
        .unwrap();
    assert_ne!(here, inside);
    assert_eq!(
        std::fs::read_link("/proc/thread-self/ns/net").unwrap(),
        here
    );
}

#[test]
fn links_take_their_settings() {
    let topology = Topology::new(Offloads::ON);
    let mut links = topology.h2.links().unwrap();
    links.set_mtu("eth0", 1400).unwrap();
    let interface = links.interface("eth0").unwrap();
    assert_eq!(interface.mtu, 1400);
    assert_eq!(interface.mac, Some(mac(2)));
    assert!(interface.is_up);
    links
        .add_route("eth0", "10.99.0.0".parse().unwrap(), 16, Some(H3), None)
        .unwrap();
    links
        .add_route("eth0", "0.0.0.0".parse().unwrap(), 0, Some(H3), None)
        .unwrap();
    let bound = topology
        .h2
        .enter(|| {
            let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.connect("10.99.1.1:9").unwrap();
            socket.local_addr().unwrap().ip()
        })
        .unwrap();
    assert_eq!(bound, H2);
}

#[test]
fn a_route_chooses_the_congestion_control() {
    let topology = Topology::new(Offloads::ON);
    let mut links = topology.h2.links().unwrap();
    for (prefix, control) in [("10.98.0.0", Some("reno")), ("10.97.0.0", None)] {
        links
            .add_route("eth0", prefix.parse().unwrap(), 16, Some(H3), control)
            .unwrap();
    }
    let control_towards = |address: &str| {
        let address: SocketAddr = address.parse().unwrap();
        let connect = || {
            let socket = Socket::new(Domain::IPV4, Type::STREAM.nonblocking(), None).unwrap();
            // The connection is begun, and nobody answers.
            let _ = socket.connect(&address.into());
            String::from_utf8(socket.tcp_congestion().unwrap()).unwrap()
        };
        topology.h2.enter(connect).unwrap()
    };
    let of_the_namespace = topology
        .h2
        .sysctl("net.ipv4.tcp_congestion_control")
        .unwrap();
    assert_ne!(of_the_namespace, "reno");
    assert!(control_towards("10.98.0.1:9").starts_with("reno"));
    assert!(control_towards("10.97.0.1:9").starts_with(&of_the_namespace));
    let prefix = "10.96.0.0".parse().unwrap();
    let message = links
        .add_route("eth0", prefix, 16, Some(H3), Some("nosuch"))
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("with congestion control \"nosuch\""),
        "{message}"
    );
}

#[test]
fn offloads_switch_both_ways() {
    let topology = Topology::new(Offloads::ON);
    assert_eq!(topology.h2.offloads("eth0").unwrap(), Offloads::ON);
    topology.h2.set_offloads("eth0", Offloads::OFF).unwrap();
    assert_eq!(topology.h2.offloads("eth0").unwrap(), Offloads::OFF);
    topology.h2.set_offloads("eth0", Offloads::ON).unwrap();
    assert_eq!(topology.h2.offloads("eth0").unwrap(), Offloads::ON);
}

#[test]
fn settings_belong_to_one_namespace() {
    require_privilege();
    let first = Namespace::create("first").unwrap();
    let second = Namespace::create("second").unwrap();
    first.set_sysctl("net.ipv4.tcp_ecn", "1").unwrap();
    second.set_sysctl("net.ipv4.tcp_ecn", "0").unwrap();
    assert_eq!(first.sysctl("net.ipv4.tcp_ecn").unwrap(), "1");
    let message = first
        .set_sysctl("net.ipv4.tcp_ecn", "several")
        .unwrap_err()
        .to_string();
    assert!(
        message.starts_with(
            "cannot set net.ipv4.tcp_ecn in namespace \"first\" to \"several\": Invalid argument"
        ),
        "{message}"
    );
    let message = first.sysctl("kernel.hostname").unwrap_err().to_string();
    assert!(message.contains("must start with \"net.\""), "{message}");
}

#[test]
fn refusals_name_the_interface_and_the_namespace() {
    require_privilege();
    let namespace = Namespace::create("lone").unwrap();
    let message = namespace
        .links()
        .unwrap()
        .set_up("nothere", true)
        .unwrap_err()
        .to_string();
    assert_eq!(
        message,
        "cannot find interface \"nothere\" in namespace \"lone\": No such device (os error 19)"
    );
    let end = |name| VethEnd {
        namespace: &namespace,
        name,
        mac: mac(1),
    };
    let long = create_veth(end("a-name-of-16-byt"), end("b"));
    assert!(matches!(long, Err(LinkError::Name(name)) if name == "a-name-of-16-byt"));
}

#[test]
fn closing_the_last_descriptor_removes_everything() {
    let topology = Topology::new(Offloads::ON);
    let Topology { h2, router, h3 } = topology;
    drop(h2);
    // The kernel removes namespaces in the background. The veth's peer disappears with its
    // namespace.
    let mut links = router.links().unwrap();
    let mut gone = false;
    for _ in 0..500 {
        if links.interface("r2").is_err() {
            gone = true;
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(gone, "r2 outlived the namespace of its peer by 5 s");
    assert!(links.interface("r3").is_ok());
    drop(h3);
}
