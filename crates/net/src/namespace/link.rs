//! Interfaces, addresses, routes and neighbours, over rtnetlink.

mod filter;
#[cfg(test)]
mod fuzz;

use super::{Namespace, NamespaceError};
use crate::sys;
use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage,
    NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressFlags, AddressMessage};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoKind, LinkAttribute, LinkFlags, LinkInfo,
    LinkLayerType, LinkMessage,
};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteMetric, RouteProtocol,
    RouteScope, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};

/// An Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mac(pub [u8; 6]);

/// An interface as the kernel describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Index in the namespace.
    pub index: u32,
    /// Name.
    pub name: String,
    /// Ethernet address, if the interface has one.
    pub mac: Option<Mac>,
    /// Largest network packet.
    pub mtu: u32,
    /// Whether the interface is up.
    pub is_up: bool,
    /// Whether its frames begin with an Ethernet header.
    pub has_ethernet: bool,
    /// Whether any socket has requested frames for all addresses.
    pub is_promiscuous: bool,
    /// Whether it delivers only frames for its own addresses, also in promiscuous mode.
    pub delivers_own_only: bool,
    /// Kind of a virtual device, such as `veth`; `None` for hardware.
    pub kind: Option<String>,
    /// Whether packets pass through a queueing discipline first, as is usual for hardware.
    pub has_queue: bool,
    /// Index of the other end of a veth pair, in its own namespace.
    pub peer: Option<u32>,
    /// Index of the bridge that it belongs to.
    pub bridge: Option<u32>,
    /// Packets passed, and packets that the kernel dropped on the interface.
    pub traffic: InterfaceTraffic,
}

/// An interface's own counters. Packets dropped here were lost by the machine, not by a queue of an
/// experiment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceTraffic {
    /// Packets received.
    pub received: u64,
    /// Packets sent.
    pub sent: u64,
    /// Packets dropped on the way in.
    pub dropped_in: u64,
    /// Packets dropped on the way out.
    pub dropped_out: u64,
}

/// A connection to one namespace's interface tables.
pub struct Links {
    socket: Socket,
    namespace: String,
    sequence: u32,
    /// Whether answers to a request that failed may wait.
    is_behind: bool,
}

/// The reasons why an interface cannot be created, found or changed.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The namespace could not be entered.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The name is empty, or longer than the 15 bytes that the kernel allows.
    #[error("interface name {0:?} must have 1 to 15 bytes")]
    Name(String),
    /// The kernel refused.
    #[error("cannot {what} in namespace {namespace:?}: {source}")]
    Kernel {
        /// The request.
        what: String,
        /// The namespace.
        namespace: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

impl LinkError {
    /// Whether the kernel says that there is no such interface.
    pub fn is_absence(&self) -> bool {
        match self {
            LinkError::Kernel { source, .. } => source.raw_os_error() == Some(libc::ENODEV),
            LinkError::Namespace(_) | LinkError::Name(_) => false,
        }
    }
}

impl Namespace {
    /// Connects to this namespace's interface tables.
    ///
    /// # Errors
    /// The namespace cannot be entered, or has no netlink.
    pub fn links(&self) -> Result<Links, LinkError> {
        let open = || {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind_auto()?;
            socket.connect(&SocketAddr::new(0, 0))?;
            Ok(socket)
        };
        let socket = self.enter(open)?.map_err(|source| LinkError::Kernel {
            what: "open a netlink socket".to_owned(),
            namespace: self.name().to_owned(),
            source,
        })?;
        Ok(Links {
            socket,
            namespace: self.name().to_owned(),
            sequence: 0,
            is_behind: false,
        })
    }
}

impl Links {
    /// Looks up an interface.
    ///
    /// # Errors
    /// There is no interface of that name.
    pub fn interface(&mut self, name: &str) -> Result<Interface, LinkError> {
        check_name(name)?;
        let mut message = LinkMessage::default();
        message
            .attributes
            .push(LinkAttribute::IfName(name.to_owned()));
        let what = format!("find interface {name:?}");
        let reply = self.exchange(RouteNetlinkMessage::GetLink(message), 0, &what)?;
        let Some(RouteNetlinkMessage::NewLink(link)) = reply else {
            return Err(self.error(&what, io::Error::from_raw_os_error(libc::ENODEV)));
        };
        Ok(read_interface(link))
    }

    /// Returns all interfaces.
    ///
    /// # Errors
    /// The kernel refuses the request.
    pub fn interfaces(&mut self) -> Result<Vec<Interface>, LinkError> {
        let all = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let mut interfaces = Vec::new();
        self.converse(all, NLM_F_DUMP, "list the interfaces", |reply| {
            if let RouteNetlinkMessage::NewLink(link) = reply {
                interfaces.push(read_interface(link));
            }
        })?;
        Ok(interfaces)
    }

    /// Sets an interface up or down.
    ///
    /// # Errors
    /// There is no interface of that name, or the process lacks the privilege.
    pub fn set_up(&mut self, name: &str, up: bool) -> Result<(), LinkError> {
        let what = format!(
            "switch interface {name:?} {}",
            if up { "on" } else { "off" }
        );
        self.change(name, &what, |message| {
            message.header.change_mask = LinkFlags::Up;
            if up {
                message.header.flags = LinkFlags::Up;
            }
        })
    }

    /// Gives an interface another name. Linux before 6.2 requires that it is down.
    ///
    /// # Errors
    /// There is no interface of that name, the new one is in use, or the process lacks the privilege.
    pub fn rename(&mut self, name: &str, to: &str) -> Result<(), LinkError> {
        check_name(to)?;
        let what = format!("rename interface {name:?} to {to:?}");
        self.change(name, &what, |message| {
            message
                .attributes
                .push(LinkAttribute::IfName(to.to_owned()));
        })
    }

    /// Gives an interface that is down no link-local address when it is set up, so that it sends no
    /// solicitations of its own. Does nothing if the kernel has no IPv6.
    ///
    /// # Errors
    /// There is no interface of that name, or the process lacks the privilege.
    pub fn silence_ipv6(&mut self, name: &str) -> Result<(), LinkError> {
        let what = format!("take the link-local address from interface {name:?}");
        let silenced = self.change(name, &what, |message| {
            let mode = AfSpecInet6::AddrGenMode(In6AddrGenMode::None);
            let family = AfSpecUnspec::Inet6(vec![mode]);
            message
                .attributes
                .push(LinkAttribute::AfSpecUnspec(vec![family]));
        });
        match silenced {
            Err(LinkError::Kernel { source, .. })
                if source.raw_os_error() == Some(libc::EAFNOSUPPORT) =>
            {
                Ok(())
            }
            other => other,
        }
    }

    /// Sets the MTU of an interface.
    ///
    /// # Errors
    /// The driver does not accept the value.
    pub fn set_mtu(&mut self, name: &str, mtu: u32) -> Result<(), LinkError> {
        let what = format!("set the MTU of interface {name:?} to {mtu}");
        self.change(name, &what, |message| {
            message.attributes.push(LinkAttribute::Mtu(mtu));
        })
    }

    /// Creates a bridge between interfaces of this namespace and sets it up; it forwards at once.
    ///
    /// # Errors
    /// When the name is in use, an interface is missing or belongs to a bridge already, the kernel
    /// has no bridges, or the process lacks the privilege.
    pub fn create_bridge(&mut self, name: &str, members: &[&str]) -> Result<(), LinkError> {
        check_name(name)?;
        let mut message = LinkMessage::default();
        message.attributes = vec![
            LinkAttribute::IfName(name.to_owned()),
            LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Bridge)]),
        ];
        let what = format!("create bridge {name:?}");
        let request = RouteNetlinkMessage::NewLink(message);
        self.request(request, NLM_F_CREATE | NLM_F_EXCL, &what)?;
        // The bridge itself sends nothing.
        self.silence_ipv6(name)?;
        let bridge = self.interface(name)?.index;
        for member in members {
            let what = format!("put interface {member:?} under bridge {name:?}");
            self.change(member, &what, |message| {
                message.attributes.push(LinkAttribute::Controller(bridge));
            })?;
        }
        self.set_up(name, true)
    }

    /// Removes an interface; removing one end of a veth pair removes the other.
    ///
    /// # Errors
    /// There is no interface of that name, or it cannot be removed.
    pub fn remove(&mut self, name: &str) -> Result<(), LinkError> {
        let mut message = LinkMessage::default();
        message.header.index = self.interface(name)?.index;
        let what = format!("remove interface {name:?}");
        self.request(RouteNetlinkMessage::DelLink(message), 0, &what)
    }

    /// Moves an interface to another namespace, where it is down. It keeps its name, and its index
    /// if that is free there.
    ///
    /// # Errors
    /// When there is none of that name, the other namespace has one already, or the process lacks
    /// the privilege.
    pub fn move_to(&mut self, name: &str, to: &Namespace) -> Result<(), LinkError> {
        let what = format!("move interface {name:?} to namespace {:?}", to.name());
        self.change(name, &what, |message| {
            let descriptor = to.as_fd().as_raw_fd();
            message.attributes.push(LinkAttribute::NetNsFd(descriptor));
        })
    }

    /// Adds an address to an interface, with the route to its prefix. IPv6 addresses are usable at
    /// once, without duplicate address detection.
    ///
    /// # Errors
    /// The interface has the address already, or the prefix is longer than the address.
    pub fn add_address(
        &mut self,
        name: &str,
        address: IpAddr,
        prefix_len: u8,
    ) -> Result<(), LinkError> {
        let mut message = AddressMessage::default();
        message.header.family = family(address);
        message.header.prefix_len = prefix_len;
        message.header.index = self.interface(name)?.index;
        message.attributes = vec![
            AddressAttribute::Local(address),
            AddressAttribute::Address(address),
        ];
        if address.is_ipv6() {
            message
                .attributes
                .push(AddressAttribute::Flags(AddressFlags::Nodad));
        }
        let what = format!("add address {address}/{prefix_len} to interface {name:?}");
        self.request(
            RouteNetlinkMessage::NewAddress(message),
            NLM_F_CREATE | NLM_F_EXCL,
            &what,
        )
    }

    /// Returns the addresses that an interface has.
    ///
    /// # Errors
    /// There is no interface of that name.
    pub fn addresses(&mut self, name: &str) -> Result<Vec<IpAddr>, LinkError> {
        let index = self.interface(name)?.index;
        let what = format!("list the addresses of interface {name:?}");
        let all = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let mut addresses = Vec::new();
        self.converse(all, NLM_F_DUMP, &what, |reply| {
            let RouteNetlinkMessage::NewAddress(message) = reply else {
                return;
            };
            if message.header.index != index {
                return;
            }
            // On a point-to-point link `Address` is the other end, and `Local` this one.
            let local = message.attributes.iter().find_map(|a| match a {
                AddressAttribute::Local(address) => Some(*address),
                _ => None,
            });
            addresses.extend(local.or_else(|| {
                message.attributes.iter().find_map(|a| match a {
                    AddressAttribute::Address(address) => Some(*address),
                    _ => None,
                })
            }));
        })?;
        Ok(addresses)
    }

    /// Adds a route out of an interface: to a prefix (`prefix_len` 0 for the default route),
    /// through `gateway` unless the prefix is on the link. TCP connections over it use
    /// `congestion_control`, or the namespace's if it is `None`.
    ///
    /// # Errors
    /// The gateway cannot be reached, the route exists, or the kernel does not have the congestion
    /// control.
    pub fn add_route(
        &mut self,
        name: &str,
        prefix: IpAddr,
        prefix_len: u8,
        gateway: Option<IpAddr>,
        congestion_control: Option<&str>,
    ) -> Result<(), LinkError> {
        let mut message = self.route(name, prefix, prefix_len)?;
        let mut what = format!("add a route to {prefix}/{prefix_len} by interface {name:?}");
        if let Some(gateway) = gateway {
            message.header.scope = RouteScope::Universe;
            what = format!("{what} via {gateway}");
            message
                .attributes
                .push(RouteAttribute::Gateway(RouteAddress::from(gateway)));
        }
        if let Some(control) = congestion_control {
            what = format!("{what} with congestion control {control:?}");
            message
                .attributes
                .push(RouteAttribute::Metrics(vec![RouteMetric::CcAlgo(
                    control.to_owned(),
                )]));
        }
        self.request(
            RouteNetlinkMessage::NewRoute(message),
            NLM_F_CREATE | NLM_F_EXCL,
            &what,
        )
    }

    /// Makes the namespace accept packets for every address of `prefix` as its own, unless there is
    /// a more specific route (`ip route add local PREFIX dev lo table main`).
    ///
    /// # Errors
    /// When the loopback interface is down, or the route exists.
    pub fn add_local_route(&mut self, prefix: IpAddr, prefix_len: u8) -> Result<(), LinkError> {
        let mut message = self.route("lo", prefix, prefix_len)?;
        message.header.kind = RouteType::Local;
        message.header.scope = RouteScope::Host;
        let what = format!("take {prefix}/{prefix_len} as local");
        self.request(
            RouteNetlinkMessage::NewRoute(message),
            NLM_F_CREATE | NLM_F_EXCL,
            &what,
        )
    }

    /// Sets the initial window, in segments, of TCP connections to an on-link address, by a
    /// separate route.
    ///
    /// # Errors
    /// The route exists, or the process lacks the privilege.
    pub fn set_initial_window(
        &mut self,
        name: &str,
        address: IpAddr,
        segments: u32,
    ) -> Result<(), LinkError> {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let mut message = self.route(name, address, bits)?;
        message
            .attributes
            .push(RouteAttribute::Metrics(vec![RouteMetric::InitCwnd(
                segments,
            )]));
        let what = format!("set the initial window towards {address} to {segments}");
        self.request(
            RouteNetlinkMessage::NewRoute(message),
            NLM_F_CREATE | NLM_F_EXCL,
            &what,
        )
    }

    /// Returns a route to an on-link prefix of an interface.
    fn route(
        &mut self,
        name: &str,
        prefix: IpAddr,
        prefix_len: u8,
    ) -> Result<RouteMessage, LinkError> {
        let mut message = RouteMessage::default();
        message.header.address_family = family(prefix);
        message.header.destination_prefix_length = prefix_len;
        message.header.table = RouteHeader::RT_TABLE_MAIN;
        message.header.protocol = RouteProtocol::Static;
        message.header.kind = RouteType::Unicast;
        message.header.scope = RouteScope::Link;
        message
            .attributes
            .push(RouteAttribute::Oif(self.interface(name)?.index));
        if prefix_len > 0 {
            message
                .attributes
                .push(RouteAttribute::Destination(RouteAddress::from(prefix)));
        }
        Ok(message)
    }

    /// Sets the Ethernet address of a neighbour permanently, so that no resolution takes place.
    ///
    /// # Errors
    /// There is no such interface, or the process lacks the privilege.
    pub fn add_neighbour(
        &mut self,
        name: &str,
        address: IpAddr,
        mac: Mac,
    ) -> Result<(), LinkError> {
        let mut message = NeighbourMessage::default();
        message.header.family = family(address);
        message.header.ifindex = self.interface(name)?.index;
        message.header.state = NeighbourState::Permanent;
        message.attributes = vec![
            NeighbourAttribute::Destination(match address {
                IpAddr::V4(address) => NeighbourAddress::Inet(address),
                IpAddr::V6(address) => NeighbourAddress::Inet6(address),
            }),
            NeighbourAttribute::LinkLayerAddress(mac.0.to_vec()),
        ];
        let what = format!("add neighbour {address} ({mac}) to interface {name:?}");
        self.request(
            RouteNetlinkMessage::NewNeighbour(message),
            NLM_F_CREATE | NLM_F_REPLACE,
            &what,
        )
    }

    pub(super) fn change(
        &mut self,
        name: &str,
        what: &str,
        edit: impl FnOnce(&mut LinkMessage),
    ) -> Result<(), LinkError> {
        let mut message = LinkMessage::default();
        message.header.index = self.interface(name)?.index;
        edit(&mut message);
        self.request(RouteNetlinkMessage::SetLink(message), 0, what)
    }

    pub(super) fn request(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
        what: &str,
    ) -> Result<(), LinkError> {
        self.exchange(message, flags, what).map(drop)
    }

    /// Sends one request and reads until it is acknowledged. Returns the reply before the
    /// acknowledgement, if there was one.
    pub(super) fn exchange(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
        what: &str,
    ) -> Result<Option<RouteNetlinkMessage>, LinkError> {
        let mut reply = None;
        self.converse(message, NLM_F_ACK | flags, what, |message| {
            reply = Some(message);
        })?;
        Ok(reply)
    }

    /// Sends one request and passes on every reply until the acknowledgement or the end of the
    /// list.
    pub(super) fn converse(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
        what: &str,
        mut hear: impl FnMut(RouteNetlinkMessage),
    ) -> Result<(), LinkError> {
        if std::mem::replace(&mut self.is_behind, true) {
            sys::discard_answers(&self.socket);
        }
        self.sequence += 1;
        let mut packet = NetlinkMessage::from(message);
        packet.header.flags = NLM_F_REQUEST | flags;
        packet.header.sequence_number = self.sequence;
        packet.finalize();
        let mut bytes = vec![0; packet.buffer_len()];
        packet.serialize(&mut bytes);
        self.socket
            .send(&bytes, 0)
            .map_err(|source| self.error(what, source))?;

        loop {
            let bytes = match self.socket.recv_from_full() {
                Ok((bytes, _)) => bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.error(what, error)),
            };
            let is_last = replies(&bytes, self.sequence, &mut hear);
            if is_last.map_err(|source| self.error(what, source))? {
                self.is_behind = false;
                return Ok(());
            }
        }
    }

    fn error(&self, what: &str, source: io::Error) -> LinkError {
        LinkError::Kernel {
            what: what.to_owned(),
            namespace: self.namespace.clone(),
            source,
        }
    }
}

/// Passes on the replies in a datagram to the request with this number. Returns whether they are the
/// last.
fn replies(
    mut rest: &[u8],
    sequence: u32,
    hear: &mut impl FnMut(RouteNetlinkMessage),
) -> io::Result<bool> {
    while !rest.is_empty() {
        let packet =
            NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest).map_err(io::Error::other)?;
        // Messages are aligned to four bytes.
        let length = (packet.header.length as usize).next_multiple_of(4);
        rest = &rest[length.clamp(1, rest.len())..];
        if packet.header.sequence_number != sequence {
            continue;
        }
        match packet.payload {
            NetlinkPayload::Error(error) => {
                // The kernel writes the negative number of an error.
                return match error.code.map(|code| code.get().checked_neg()) {
                    None => Ok(true),
                    Some(number) => Err(io::Error::from_raw_os_error(number.unwrap_or(libc::EIO))),
                };
            }
            NetlinkPayload::InnerMessage(message) => hear(message),
            NetlinkPayload::Done(_) => return Ok(true),
            _ => {}
        }
    }
    Ok(false)
}

/// Returns whether an address is only valid on its link. Every interface that is up has such an IPv6
/// address.
pub fn is_of_link(address: &IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.is_unicast_link_local())
}

/// Reads an interface as the kernel describes it.
fn read_interface(link: LinkMessage) -> Interface {
    let mut interface = Interface {
        index: link.header.index,
        name: String::new(),
        mac: None,
        mtu: 0,
        is_up: link.header.flags.contains(LinkFlags::Up),
        has_ethernet: matches!(
            link.header.link_layer_type,
            LinkLayerType::Ether | LinkLayerType::Loopback
        ),
        is_promiscuous: false,
        delivers_own_only: false,
        kind: None,
        has_queue: true,
        peer: None,
        bridge: None,
        traffic: InterfaceTraffic::default(),
    };
    for attribute in link.attributes {
        match attribute {
            LinkAttribute::IfName(name) => interface.name = name,
            LinkAttribute::Mtu(mtu) => interface.mtu = mtu,
            LinkAttribute::Promiscuity(sockets) => interface.is_promiscuous = sockets > 0,
            LinkAttribute::Qdisc(name) => interface.has_queue = name != "noqueue",
            LinkAttribute::Link(index) => interface.peer = Some(index),
            LinkAttribute::Controller(index) => interface.bridge = Some(index),
            LinkAttribute::Stats64(counters) => {
                interface.traffic = InterfaceTraffic {
                    received: counters.rx_packets,
                    sent: counters.tx_packets,
                    dropped_in: counters.rx_dropped,
                    dropped_out: counters.tx_dropped,
                };
            }
            LinkAttribute::LinkInfo(parts) => {
                interface.delivers_own_only = filter::delivers_own_only(&parts);
                interface.kind = parts.into_iter().find_map(|part| match part {
                    LinkInfo::Kind(kind) => Some(kind.to_string()),
                    _ => None,
                });
            }
            LinkAttribute::Address(bytes) => interface.mac = bytes.try_into().ok().map(Mac),
            _ => {}
        }
    }
    interface
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

pub(super) fn check_name(name: &str) -> Result<(), LinkError> {
    if name.is_empty() || name.len() >= libc::IFNAMSIZ {
        return Err(LinkError::Name(name.to_owned()));
    }
    Ok(())
}
