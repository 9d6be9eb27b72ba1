//! The network of a live run: `h2 -- router -- h3`, in namespaces that the process owns.
//!
//! The hosts share their subnets, and the router bridges, so that no address is rewritten. A flow
//! whose path differs from that of others has its own addresses, from which the router identifies
//! the path. Several hosts on one side have their own addresses, too, but are one namespace.
//! Neighbour entries are static, so that no address resolution disturbs a measurement. The network
//! disappears with the process, however the process ends.

use std::net::{IpAddr, Ipv4Addr};

use sluice_net::Clock;
use sluice_net::namespace::{
    LinkError, Mac, Namespace, NamespaceError, SysctlError, VethEnd, create_veth,
};
use sluice_net::port::PacketPort;
use sluice_net::port::packet::{PacketError, PacketOptions};
use sluice_scenario::{Direction, Hosts};

/// The reason why the network could not be created.
#[derive(Debug, thiserror::Error)]
pub enum TopologyError {
    /// A namespace.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// An interface.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A setting of a host.
    #[error(transparent)]
    Sysctl(#[from] SysctlError),
    /// A port of the router.
    #[error(transparent)]
    Port(#[from] PacketError),
}

/// The end hosts of a side.
pub struct Host {
    /// Namespace.
    pub namespace: Namespace,
    /// The direction of the flows that start at this side.
    side: Direction,
}

/// The hosts, and the router's namespace between them.
pub struct Topology {
    /// The host where flows in the direction up start.
    pub h2: Host,
    /// The host where they end.
    pub h3: Host,
    router: Namespace,
}

impl Topology {
    /// Creates namespaces, interfaces, and the addresses of every path.
    ///
    /// # Errors
    /// The step that failed, and how to allow it; nothing is left behind.
    pub fn create(ends: &[PathEnds]) -> Result<Topology, TopologyError> {
        let topology = Topology {
            h2: Host::create("h2", Direction::Up)?,
            h3: Host::create("h3", Direction::Down)?,
            router: Namespace::create("router")?,
        };
        topology.connect(&topology.h2, ends)?;
        topology.connect(&topology.h3, ends)?;
        // Routes and neighbour entries require interfaces that are up, as they are only now.
        topology.h2.add_neighbours(&topology.h3, ends)?;
        topology.h3.add_neighbours(&topology.h2, ends)?;
        Ok(topology)
    }

    /// Opens the router's ports, towards h2 and towards h3, which stamp arrivals on `clock`.
    ///
    /// # Errors
    /// The process has no permission to open packet sockets.
    pub fn ports(&self, clock: &Clock) -> Result<(PacketPort, PacketPort), TopologyError> {
        let options = PacketOptions {
            timestamps: Some(*clock),
            ..PacketOptions::default()
        };
        Ok((
            PacketPort::open(&self.router, self.h2.namespace.name(), options)?,
            PacketPort::open(&self.router, self.h3.namespace.name(), options)?,
        ))
    }

    /// Returns the namespace in which the router runs.
    pub const fn router(&self) -> &Namespace {
        &self.router
    }

    /// Sets the initial window of connections on a path, from either host.
    ///
    /// # Errors
    /// The kernel refuses the route with this window.
    pub fn set_initial_window(&self, ends: PathEnds, segments: u32) -> Result<(), TopologyError> {
        for (host, other) in [(&self.h2, &self.h3), (&self.h3, &self.h2)] {
            let mut links = host.namespace.links()?;
            links.set_initial_window(INTERFACE, other.address(ends), segments)?;
        }
        Ok(())
    }

    fn connect(&self, host: &Host, ends: &[PathEnds]) -> Result<(), TopologyError> {
        let number = host.number();
        let name = host.namespace.name();
        create_veth(
            VethEnd {
                namespace: &host.namespace,
                name: INTERFACE,
                mac: mac(number),
            },
            VethEnd {
                namespace: &self.router,
                name,
                mac: mac(number + 0x10),
            },
        )?;
        self.router.links()?.set_up(name, true)?;
        let mut links = host.namespace.links()?;
        links.set_up("lo", true)?;
        links.set_up(INTERFACE, true)?;
        for address in host.addresses(ends) {
            links.add_address(INTERFACE, address, 24)?;
        }
        Ok(())
    }
}

impl Host {
    fn create(name: &str, side: Direction) -> Result<Host, TopologyError> {
        let namespace = Namespace::create(name)?;
        namespace.silence_ipv6()?;
        for (key, value) in SETTINGS {
            namespace.set_sysctl(key, value)?;
        }
        Ok(Host { namespace, side })
    }

    /// Returns the address of this side on a path.
    pub const fn address(&self, ends: PathEnds) -> IpAddr {
        IpAddr::V4(match self.side {
            Direction::Up => ends.up,
            Direction::Down => ends.down,
        })
    }

    /// Returns the last byte of the interface's hardware address.
    const fn number(&self) -> u8 {
        Hosts::last_byte(self.side, 1)
    }

    fn addresses(&self, ends: &[PathEnds]) -> Vec<IpAddr> {
        let mut addresses = Vec::new();
        for address in ends.iter().map(|ends| self.address(*ends)) {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        addresses
    }

    fn add_neighbours(&self, other: &Host, ends: &[PathEnds]) -> Result<(), TopologyError> {
        let mut links = self.namespace.links()?;
        for address in other.addresses(ends) {
            links.add_neighbour(INTERFACE, address, mac(other.number()))?;
        }
        Ok(())
    }
}

/// The addresses at both ends of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PathEnds {
    /// The address on the side where flows in the direction up start.
    pub up: Ipv4Addr,
    /// The address on the other side.
    pub down: Ipv4Addr,
}

impl PathEnds {
    /// Returns the ends of a path between two hosts, counted from 1: the `net`th path between them,
    /// counted from 0.
    pub fn between(hosts: (u64, u64), net: u8) -> PathEnds {
        let address = |side, number| {
            let [a, b, first_net, last] = Hosts::address(side, number).octets();
            Ipv4Addr::new(a, b, first_net + net, last)
        };
        PathEnds {
            up: address(Direction::Up, hosts.0),
            down: address(Direction::Down, hosts.1),
        }
    }
}

fn mac(number: u8) -> Mac {
    // The address is locally administered.
    Mac([0x02, 0x00, 0x00, 0x00, 0x00, number])
}

/// The largest number of paths of a run.
pub(super) const MOST_WAYS: usize = 200;
/// The interface of a host.
const INTERFACE: &str = "eth0";

/// The settings of the hosts that differ from the kernel's defaults.
const SETTINGS: &[(&str, &str)] = &[
    // A run must not inherit the congestion window of an earlier one.
    ("net.ipv4.tcp_no_metrics_save", "1"),
    // Windows never limit a flow: 64 MB is 500 ms at 1 Gbit/s.
    ("net.ipv4.tcp_rmem", "4096 131072 67108864"),
    ("net.ipv4.tcp_wmem", "4096 65536 67108864"),
];
