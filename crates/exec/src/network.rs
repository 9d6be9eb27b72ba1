//! The namespaces: the program's, the router's, the far side, and the server's.
//!
//! ```text
//!  near (program)            router                  far                       machine
//!  192.0.0.2  eth0 -- near | pipes | far -- eth0  every address  relay -- sockets
//! ```
//!
//! The IPv4 addresses are from 192.0.0.0/29, which RFC 7335 reserves for use between a host and its
//! translator. The IPv6 addresses are from a prefix of local addresses (RFC 4193). Outside, no
//! route leads to either, so they hide no destination that a program could reach.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::thread;

use rustix::fs::StatVfsMountFlags;
use sluice_core::spelling::nearest;
use sluice_net::Clock;
use sluice_net::namespace::{
    LinkError, Mac, Namespace, NamespaceError, SysctlError, VethEnd, create_veth,
};
use sluice_net::port::packet::{PacketError, PacketOptions};
use sluice_net::port::{Injector, PacketPort};

/// The reason why the network could not be created.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// A namespace.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// An interface.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A setting.
    #[error(transparent)]
    Sysctl(#[from] SysctlError),
    /// A port.
    #[error(transparent)]
    Port(#[from] PacketError),
    /// The kernel does not offer a congestion control to this user.
    #[error("no congestion control `{name}`{}; the kernel has {}", hint(.name, .available), .available.join(", "))]
    CongestionControl {
        /// Its name.
        name: String,
        /// The ones that there are.
        available: Vec<String>,
    },
    /// The kernel keeps a congestion control from other namespaces than its first one
    /// (net/ipv4/tcp_cong.c, `tcp_set_default_congestion_control`).
    #[error(
        "the kernel allows only {} in new namespaces, not `{name}`; `sysctl \
         net.ipv4.tcp_allowed_congestion_control=\"{} {name}\"` changes this",
        .allowed.join(", "),
        .allowed.join(" ")
    )]
    Restricted {
        /// Its name.
        name: String,
        /// The ones that are allowed.
        allowed: Vec<String>,
    },
}

impl NetworkError {
    fn congestion_control(name: &str) -> Self {
        let (name, available) = (name.to_owned(), congestion_controls());
        if available.contains(&name) {
            let allowed = allowed_controls();
            NetworkError::Restricted { name, allowed }
        } else {
            NetworkError::CongestionControl { name, available }
        }
    }
}

fn hint(name: &str, available: &[String]) -> String {
    match nearest(name, available.iter().map(String::as_str)).first() {
        Some(near) => format!(" (did you mean `{near}`?)"),
        None => String::new(),
    }
}

/// Returns the kernel's congestion controls.
pub fn congestion_controls() -> Vec<String> {
    control_names("available")
}

/// Returns the ones that the kernel allows in other namespaces than its first one.
pub fn allowed_controls() -> Vec<String> {
    control_names("allowed")
}

/// Reads one of the kernel's lists of congestion controls.
fn control_names(list: &str) -> Vec<String> {
    let path = format!("/proc/sys/net/ipv4/tcp_{list}_congestion_control");
    let names = fs::read_to_string(path).unwrap_or_default();
    names.split_whitespace().map(str::to_owned).collect()
}

/// The namespaces.
pub struct Network {
    /// The namespace in which the program runs.
    pub near: Namespace,
    router: Namespace,
    /// The namespace in which the program's connections end.
    pub far: Namespace,
    /// The reason why the settings of new namespaces cannot be changed, and what the program has to
    /// do without.
    pub restriction: Option<String>,
}

/// A host of the far side that stands for something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The far side itself, which has no services.
    Far,
    /// The program's namespace.
    Program,
    /// The machine's loopback.
    Host,
    /// The server that was started with the program.
    Server,
    /// One of the machine's resolvers, counted from 0.
    Resolver(usize),
}

impl Place {
    /// Returns the addresses of the place.
    pub fn addresses(self) -> [IpAddr; 2] {
        let number = match self {
            Place::Far => 1,
            Place::Program => 2,
            Place::Host => 3,
            Place::Server => 4,
            Place::Resolver(index) => 5 + index as u8,
        };
        // The prefix spells "sluice" in ASCII.
        let v6 = Ipv6Addr::new(0xfd73, 0x6c75, 0x6963, 0x6500, 0, 0, 0, u16::from(number));
        [Ipv4Addr::new(192, 0, 0, number).into(), v6.into()]
    }

    /// Returns the place that an address stands for.
    pub fn of(address: IpAddr) -> Option<Place> {
        let resolvers = (0..MOST_RESOLVERS).map(Place::Resolver);
        [Place::Far, Place::Program, Place::Host, Place::Server]
            .into_iter()
            .chain(resolvers)
            .find(|place| place.addresses().contains(&address))
    }
}

/// glibc asks at most three (resolv.conf(5)).
pub const MOST_RESOLVERS: usize = 3;

impl Network {
    /// Creates the namespaces, their interfaces and their routes. Connections on both ends of the
    /// link use `congestion_control`, or the machine's if it is `None`.
    ///
    /// # Errors
    /// The step that failed; nothing is left behind.
    pub fn create(congestion_control: Option<&str>) -> Result<Network, NetworkError> {
        let is_read_only = settings_are_fixed();
        // The kernel can create namespaces in parallel, which saves time.
        let host = |name: &'static str| {
            move || {
                let host = Namespace::create(name)?;
                if is_read_only || !apply_settings(&host)? {
                    return Ok((host, true));
                }
                if let Some(name) = congestion_control {
                    // As root, this loads the kernel's module.
                    let set = host.set_sysctl("net.ipv4.tcp_congestion_control", name);
                    set.map_err(|_| NetworkError::congestion_control(name))?;
                }
                Ok::<_, NetworkError>((host, false))
            }
        };
        let (network, is_fixed) = thread::scope(|scope| {
            let hosts = [host("near"), host("far")].map(|host| scope.spawn(host));
            let router = Namespace::create("router");
            let [near, far] = hosts.map(|host| {
                let made = host.join();
                made.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            let ((near, is_fixed), (far, _)) = (near?, far?);
            let restriction = is_fixed.then(|| restriction(is_read_only));
            let network = Network {
                near,
                router: router?,
                far,
                restriction,
            };
            Ok::<_, NetworkError>((network, is_fixed))
        })?;
        // A route does not load the kernel's module.
        if let Some(name) = congestion_control.filter(|_| is_fixed)
            && !congestion_controls().iter().any(|offered| offered == name)
        {
            return Err(NetworkError::congestion_control(name));
        }
        network.open_low_ports(&network.near)?;
        if !is_fixed {
            let group = rustix::process::getegid().as_raw();
            let groups = format!("{group} {group}");
            // This fails if the group is not mapped in the user namespace. Then the program cannot
            // ping.
            let _ = network
                .near
                .set_sysctl("net.ipv4.ping_group_range", &groups);
        }
        let by_route = congestion_control.filter(|_| is_fixed);
        network.connect(&network.near, Place::Program, Place::Far, by_route)?;
        network.connect(&network.far, Place::Far, Place::Program, by_route)?;
        let mut links = network.near.links()?;
        for gateway in network.usable(Place::Far) {
            links.add_route(INTERFACE, any(gateway), 0, Some(gateway), by_route)?;
        }
        let mut links = network.far.links()?;
        for own in network.usable(Place::Far) {
            links.add_local_route(any(own), 0)?;
        }
        Ok(network)
    }

    /// Lets programs without capabilities listen on every port of a namespace, which has no services to
    /// protect. Does nothing where settings cannot be changed.
    ///
    /// # Errors
    /// When the setting cannot be written.
    pub fn open_low_ports(&self, namespace: &Namespace) -> Result<(), SysctlError> {
        if self.restriction.is_some() {
            return Ok(());
        }
        namespace.set_sysctl("net.ipv4.ip_unprivileged_port_start", "0")
    }

    /// Opens the router's ports, towards the program and towards the far side.
    ///
    /// # Errors
    /// When the process may not open packet sockets.
    pub fn ports(&self, clock: &Clock) -> Result<(PacketPort, PacketPort), NetworkError> {
        let options = PacketOptions {
            timestamps: Some(*clock),
            // The kernel takes about 10 ms to create a ring and 10 ms to free it. Besides, the
            // packets of fast links are super-packets, which do not fit into a ring.
            ring: 0,
            // A veth pair passes on every frame.
            promiscuous: false,
            ..PacketOptions::default()
        };
        let open = |host: &Namespace| PacketPort::open(&self.router, host.name(), options);
        // Opening a port takes time because the kernel waits for its other cores.
        let (near, far) = thread::scope(|scope| {
            let near = scope.spawn(|| open(&self.near));
            let far = open(&self.far);
            let near = near.join();
            (
                near.unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                far,
            )
        });
        Ok((near?, far?))
    }

    /// Opens the injectors on the interfaces of the far side: towards its kernel, and towards the
    /// router.
    ///
    /// # Errors
    /// When the process may not open packet sockets.
    pub fn injectors(&self) -> Result<(Injector, Injector), NetworkError> {
        let inward = Injector::open(&self.router, self.far.name())?;
        let outward = Injector::open(&self.far, INTERFACE)?;
        Ok((inward, outward))
    }

    fn connect(
        &self,
        host: &Namespace,
        own: Place,
        other: Place,
        congestion_control: Option<&str>,
    ) -> Result<(), NetworkError> {
        let name = host.name();
        enable_ipv6(host);
        create_veth(
            VethEnd {
                namespace: host,
                name: INTERFACE,
                mac: mac(own),
            },
            VethEnd {
                namespace: &self.router,
                name,
                mac: mac_of_router(own),
            },
        )?;
        self.router.links()?.set_up(name, true)?;
        let mut links = host.links()?;
        links.set_up("lo", true)?;
        links.silence_ipv6(INTERFACE)?;
        links.set_up(INTERFACE, true)?;
        for (address, other_address) in self.usable(own).zip(self.usable(other)) {
            let bits = if address.is_ipv4() { 32 } else { 128 };
            links.add_address(INTERFACE, address, bits)?;
            links.add_route(INTERFACE, other_address, bits, None, congestion_control)?;
            links.add_neighbour(INTERFACE, other_address, mac(other))?;
        }
        Ok(())
    }

    /// Returns the addresses of a place in the versions of IP that the namespaces have.
    fn usable(&self, place: Place) -> impl Iterator<Item = IpAddr> {
        let versions = if has_ipv6(&self.near) { 2 } else { 1 };
        place.addresses().into_iter().take(versions)
    }
}

/// Descriptors of packet sockets, closed concurrently.
///
/// Before the kernel frees a packet socket, it waits about 10 ms for its other cores
/// (`synchronize_net`). When a process ends, it waits for one socket after the other. Closing them
/// on separate threads makes these waits concurrent.
pub struct Closing(Vec<OwnedFd>);

impl Closing {
    /// Duplicates the descriptors.
    ///
    /// # Errors
    /// The process has too many open descriptors.
    pub fn new<'a>(sockets: impl IntoIterator<Item = BorrowedFd<'a>>) -> io::Result<Closing> {
        let sockets = sockets.into_iter();
        let kept: io::Result<_> = sockets.map(|socket| socket.try_clone_to_owned()).collect();
        Ok(Closing(kept?))
    }

    /// Closes them all.
    pub fn close(self) {
        thread::scope(|scope| {
            for socket in self.0 {
                scope.spawn(move || drop(socket));
            }
        });
    }
}

/// Applies [`SETTINGS`] to a namespace. Returns whether the process may change settings: where
/// `/proc/sys` can be written, a security module may still forbid it.
fn apply_settings(host: &Namespace) -> Result<bool, SysctlError> {
    for (index, (key, value)) in SETTINGS.iter().enumerate() {
        match host.set_sysctl(key, value) {
            Err(error) if index == 0 && error.is_forbidden() => return Ok(false),
            other => other?,
        }
    }
    Ok(true)
}

/// Returns why settings cannot be changed, and what the program has to do without.
fn restriction(is_read_only: bool) -> String {
    let (why, option) = match is_read_only {
        true => (
            "/proc/sys is read-only, as in most containers",
            "systempaths=unconfined",
        ),
        false => (
            "settings under /proc/sys cannot be changed, as with Docker's AppArmor profile",
            "apparmor=unconfined",
        ),
    };
    format!(
        "{why}: the program can neither ping nor listen on ports below 1024, and TCP buffers keep the \
         kernel's limits; in Docker, --security-opt {option} changes it"
    )
}

/// Returns whether the settings of a new namespace cannot be changed: containers mount `/proc/sys`
/// read-only.
pub fn settings_are_fixed() -> bool {
    rustix::fs::statvfs("/proc/sys/net")
        .is_ok_and(|mount| mount.f_flag.contains(StatVfsMountFlags::RDONLY))
}

/// Turns IPv6 on in a namespace whose kernel has it off. A kernel that was booted with
/// `ipv6.disable_ipv6=1` has it off in each new namespace, and `net.core.devconf_inherit_init_net` lets
/// namespaces inherit this. Where settings cannot be changed, it stays off.
pub fn enable_ipv6(host: &Namespace) {
    if !has_ipv6(host) {
        let _ = host.set_sysctl("net.ipv6.conf.all.disable_ipv6", "0");
    }
}

/// Returns whether new interfaces of a namespace have IPv6.
fn has_ipv6(host: &Namespace) -> bool {
    let disabled = host.sysctl("net.ipv6.conf.default.disable_ipv6");
    disabled.is_ok_and(|value| value == "0")
}

/// The Ethernet address of the program or of the far side; locally administered.
pub const fn mac(place: Place) -> Mac {
    match place {
        Place::Program => Mac([2, 0, 0, 0, 0, 2]),
        _ => Mac([2, 0, 0, 0, 0, 1]),
    }
}

const fn mac_of_router(towards: Place) -> Mac {
    let Mac([a, b, c, d, _, f]) = mac(towards);
    Mac([a, b, c, d, 1, f])
}

/// The prefix of length 0 in the version of an address.
const fn any(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}

/// The interface of a host.
const INTERFACE: &str = "eth0";

/// The most bytes of memory in a TCP buffer of either end. Large enough not to limit TCP: 64 MiB are
/// 500 ms at 1 Gbit/s.
pub const LARGEST_BUFFER: u64 = 64 << 20;

/// The settings at both ends that differ from the kernel's defaults.
const SETTINGS: &[(&str, &str)] = &[
    // A connection must not inherit the congestion window of an earlier one.
    ("net.ipv4.tcp_no_metrics_save", "1"),
    // Ends with LARGEST_BUFFER.
    ("net.ipv4.tcp_rmem", "4096 131072 67108864"),
    ("net.ipv4.tcp_wmem", "4096 65536 67108864"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcp_buffers_grow_up_to_the_largest() {
        for name in ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"] {
            let (_, value) = SETTINGS.iter().find(|(key, _)| *key == name).unwrap();
            let largest = value.rsplit(' ').next().unwrap();
            assert_eq!(largest.parse(), Ok(LARGEST_BUFFER), "{name}");
        }
    }

    #[test]
    fn ipv6_is_turned_on_where_new_namespaces_have_it_off() {
        let host = Namespace::create("host").unwrap();
        let all = "net.ipv6.conf.all.disable_ipv6";
        host.set_sysctl(all, "1").unwrap();
        assert!(!has_ipv6(&host));
        enable_ipv6(&host);
        assert!(has_ipv6(&host));
        // net/ipv6/addrconf.c, addrconf_add_dev: EACCES on an interface that has it off.
        let [first, second] = [("a", 1), ("b", 2)].map(|(name, number)| VethEnd {
            namespace: &host,
            name,
            mac: Mac([2, 0, 0, 0, 0, number]),
        });
        create_veth(first, second).unwrap();
        let [_, address] = Place::Program.addresses();
        let mut links = host.links().unwrap();
        links.add_address("a", address, 128).unwrap();
    }

    #[test]
    fn what_restricts_settings_is_named_with_the_option_that_changes_it() {
        // Docker's options: https://docs.docker.com/reference/cli/docker/container/run/#security-opt
        for (is_read_only, why, option) in [
            (true, "/proc/sys is read-only", "systempaths=unconfined"),
            (false, "AppArmor", "apparmor=unconfined"),
        ] {
            let text = restriction(is_read_only);
            assert!(text.contains(why) && text.contains(option), "{text}");
        }
    }

    #[test]
    fn a_restricted_congestion_control_is_named_with_what_allows_it() {
        let error = NetworkError::Restricted {
            name: "cubic".to_owned(),
            allowed: vec!["reno".to_owned(), "bbr".to_owned()],
        };
        assert_eq!(
            error.to_string(),
            "the kernel allows only reno, bbr in new namespaces, not `cubic`; `sysctl \
             net.ipv4.tcp_allowed_congestion_control=\"reno bbr cubic\"` changes this"
        );
    }

    #[test]
    fn every_place_has_addresses_of_its_own() {
        let places = [
            Place::Far,
            Place::Program,
            Place::Host,
            Place::Server,
            Place::Resolver(0),
            Place::Resolver(1),
            Place::Resolver(2),
        ];
        for place in places {
            for address in place.addresses() {
                assert_eq!(Place::of(address), Some(place));
            }
        }
        // The /29 of RFC 7335 ends at 192.0.0.7.
        assert_eq!(
            places[6].addresses()[0],
            IpAddr::from(Ipv4Addr::new(192, 0, 0, 7))
        );
        assert_eq!(Place::of(Ipv4Addr::new(192, 0, 0, 8).into()), None);
    }
}
