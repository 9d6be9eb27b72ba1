//! The topology that the live tests share: `h2 -- r -- h3`, one subnet, static neighbours.
//!
//! The router passes frames on unchanged, so the hosts' neighbour entries name each other.

#![allow(dead_code)] // Each test file uses its part.

pub mod forwarder;
pub mod queue;
pub mod segments;
pub mod wire;

use sluice_net::namespace::{Mac, Namespace, Offloads, Privilege, VethEnd, create_veth};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub const H2: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 23, 0, 2));
pub const H3: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 23, 0, 3));
pub const H2_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd23, 0, 0, 0, 0, 0, 0, 2));
pub const H3_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd23, 0, 0, 0, 0, 0, 0, 3));

pub struct Topology {
    pub h2: Namespace,
    pub router: Namespace,
    pub h3: Namespace,
}

/// Fails a live test that cannot run, so that it does not pass unseen.
pub fn require_privilege() {
    let privilege = Privilege::probe();
    assert_eq!(privilege, Privilege::Capable, "this live test {privilege}");
}

impl Topology {
    pub fn new(offloads: Offloads) -> Topology {
        require_privilege();
        let topology = Topology {
            h2: Namespace::create("h2").unwrap(),
            router: Namespace::create("router").unwrap(),
            h3: Namespace::create("h3").unwrap(),
        };
        for namespace in [&topology.h2, &topology.router, &topology.h3] {
            namespace.silence_ipv6().unwrap();
            namespace.links().unwrap().set_up("lo", true).unwrap();
        }
        let hosts = [(&topology.h2, 2, H2, H2_V6), (&topology.h3, 3, H3, H3_V6)];
        for (host, number, address, address_v6) in hosts {
            let port = format!("r{number}");
            create_veth(
                VethEnd {
                    namespace: host,
                    name: "eth0",
                    mac: mac(number),
                },
                VethEnd {
                    namespace: &topology.router,
                    name: &port,
                    mac: mac(number + 10),
                },
            )
            .unwrap();
            host.set_offloads("eth0", offloads).unwrap();
            topology.router.set_offloads(&port, offloads).unwrap();
            let mut links = host.links().unwrap();
            links.set_up("eth0", true).unwrap();
            links.add_address("eth0", address, 24).unwrap();
            links.add_address("eth0", address_v6, 64).unwrap();
            topology
                .router
                .links()
                .unwrap()
                .set_up(&port, true)
                .unwrap();
        }
        for (host, peer, address, address_v6) in
            [(&topology.h2, 3, H3, H3_V6), (&topology.h3, 2, H2, H2_V6)]
        {
            let mut links = host.links().unwrap();
            links.add_neighbour("eth0", address, mac(peer)).unwrap();
            links.add_neighbour("eth0", address_v6, mac(peer)).unwrap();
            host.set_sysctl("net.ipv4.tcp_no_metrics_save", "1")
                .unwrap();
        }
        topology
    }
}

pub fn mac(number: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, number])
}
