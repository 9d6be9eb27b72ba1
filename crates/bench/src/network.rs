//! The network of a bench: `h2 -- router -- h3`, in namespaces that the process owns and that
//! vanish with it.

use std::net::{IpAddr, Ipv4Addr};

use sluice_net::namespace::{Mac, Namespace, Offloads, VethEnd, create_veth_with_queues};
use sluice_net::port::TunPort;
use sluice_net::port::tun::TunOptions;

use super::BenchError;

/// Two hosts, and the router's namespace between them.
pub struct Network {
    /// The host where traffic starts.
    pub h2: Namespace,
    /// The host where traffic ends.
    pub h3: Namespace,
    /// The namespace where packets are forwarded.
    pub router: Namespace,
}

impl Network {
    /// Creates hosts on veth pairs whose other ends, `r2` and `r3`, are in the router's namespace.
    pub fn with_veths(offloads: Offloads) -> Result<Network, BenchError> {
        Network::bare()?.join(offloads, None)
    }

    /// Creates the same network as [`Network::with_veths`], with this number of queues in each direction
    /// of all interfaces [default: the kernel's].
    pub fn with_queues(offloads: Offloads, queues: Option<u32>) -> Result<Network, BenchError> {
        Network::bare()?.join(offloads, queues)
    }

    /// Creates the same network as [`Network::with_veths`], but packets that a host receives are
    /// processed on these cores, as with a network card of its own. Otherwise the sender's thread
    /// does this work before it can send the next packet.
    pub fn with_apart_veths(offloads: Offloads, cores: &[usize]) -> Result<Network, BenchError> {
        let network = Network::bare()?;
        // The setting applies to interfaces created from now on.
        network.set_on_hosts(RECEIVE_ON, &core_mask(cores))?;
        network.join(offloads, None)
    }

    /// Connects the hosts to the router.
    fn join(self, offloads: Offloads, queues: Option<u32>) -> Result<Network, BenchError> {
        let network = self;
        for (host, number, address) in [(&network.h2, 2, H2), (&network.h3, 3, H3)] {
            let port = format!("r{number}");
            let end = |namespace, name, number| VethEnd {
                namespace,
                name,
                mac: mac(number),
            };
            create_veth_with_queues(
                end(host, "eth0", number),
                end(&network.router, &port, number + ROUTER),
                queues,
            )?;
            host.set_offloads("eth0", offloads)?;
            network.router.set_offloads(&port, offloads)?;
            let mut links = host.links()?;
            links.set_up("eth0", true)?;
            links.add_address("eth0", address, 24)?;
            network.router.links()?.set_up(&port, true)?;
        }
        network.add_neighbours(0)?;
        Ok(network)
    }

    /// Creates hosts whose only interface is a TUN device. Returns the process's ends of both.
    pub fn with_tuns(offloads: bool) -> Result<(Network, [TunPort; 2]), BenchError> {
        let network = Network::bare()?;
        let options = TunOptions {
            offloads,
            ..TunOptions::default()
        };
        let device = |host: &Namespace, address| -> Result<TunPort, BenchError> {
            let port = TunPort::create(host, "tun0", options)?;
            let mut links = host.links()?;
            links.set_up("tun0", true)?;
            links.add_address("tun0", address, 24)?;
            Ok(port)
        };
        let ports = [device(&network.h2, H2)?, device(&network.h3, H3)?];
        Ok((network, ports))
    }

    /// Sets a setting such as `net.ipv4.tcp_ecn` to a value such as `1` on both hosts.
    pub fn set_on_hosts(&self, name: &str, value: &str) -> Result<(), BenchError> {
        for host in [&self.h2, &self.h3] {
            host.set_sysctl(name, value)?;
        }
        Ok(())
    }

    /// Lets the kernel route between the hosts.
    pub fn route(&self) -> Result<(), BenchError> {
        // The hosts send to the router's Ethernet addresses, and the router has neighbour entries
        // for theirs.
        self.add_neighbours(ROUTER)?;
        let mut links = self.router.links()?;
        for (port, address, number) in [("r2", H2, 2), ("r3", H3, 3)] {
            links.add_route(port, address, 32, None, None)?;
            links.add_neighbour(port, address, mac(number))?;
            for setting in ["rp_filter", "send_redirects"] {
                let setting = format!("net.ipv4.conf.{port}.{setting}");
                self.router.set_sysctl(&setting, "0")?;
            }
        }
        Ok(self.router.set_sysctl("net.ipv4.ip_forward", "1")?)
    }

    /// Lets the kernel bridge between the hosts.
    pub fn bridge(&self) -> Result<(), BenchError> {
        Ok(self.router.links()?.create_bridge("br0", &["r2", "r3"])?)
    }

    fn bare() -> Result<Network, BenchError> {
        let network = Network {
            h2: Namespace::create("h2")?,
            h3: Namespace::create("h3")?,
            router: Namespace::create("router")?,
        };
        for namespace in [&network.h2, &network.h3, &network.router] {
            namespace.silence_ipv6()?;
            namespace.links()?.set_up("lo", true)?;
        }
        for (name, value) in SETTINGS {
            network.set_on_hosts(name, value)?;
        }
        Ok(network)
    }

    /// Gives each host a neighbour entry for the other: the other's own address, or with `through`
    /// the router's.
    fn add_neighbours(&self, through: u8) -> Result<(), BenchError> {
        for (host, own, peer, address) in [(&self.h2, 2, 3, H3), (&self.h3, 3, 2, H2)] {
            let number = if through == 0 { peer } else { own + through };
            let mut links = host.links()?;
            links.add_neighbour("eth0", address, mac(number))?;
        }
        Ok(())
    }
}

/// Formats a set of cores for the kernel: hexadecimal, in groups of 32 bits.
fn core_mask(cores: &[usize]) -> String {
    let highest = cores.iter().max().map_or(0, |core| core / 32);
    let group = |number: usize| {
        let within = cores.iter().filter(|core| *core / 32 == number);
        within.fold(0_u32, |mask, core| mask | 1 << (core % 32))
    };
    let groups = (0..=highest).rev().map(|n| format!("{:08x}", group(n)));
    groups.collect::<Vec<String>>().join(",")
}

const fn mac(number: u8) -> Mac {
    // A locally administered address.
    Mac([2, 0, 0, 0, 0, number])
}

/// The address of the host where traffic starts.
pub const H2: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 23, 0, 2));
/// The address of the host where it ends.
pub const H3: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 23, 0, 3));

/// The first number of the router's interfaces.
const ROUTER: u8 = 10;

/// The settings of the hosts that differ from the kernel's defaults.
const SETTINGS: &[(&str, &str)] = &[
    // A transfer must not inherit the congestion window of the previous one.
    ("net.ipv4.tcp_no_metrics_save", "1"),
];

/// Receive packet steering of interfaces created later (Linux 6.3).
const RECEIVE_ON: &str = "net.core.rps_default_mask";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_cores_is_written_in_groups_of_32() {
        assert_eq!(core_mask(&[]), "00000000");
        assert_eq!(core_mask(&[0]), "00000001");
        assert_eq!(core_mask(&[4, 1]), "00000012");
        assert_eq!(core_mask(&[31, 32, 65]), "00000002,00000001,80000000");
    }
}
