//! The settings that an interface loses when it moves to another namespace, and that another
//! interface can take over.

use super::link::{Interface, LinkError, Links, Mac};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_DUMP, NLM_F_ECHO, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::{
    InfoBridge, InfoBridgePort, InfoData, InfoPortData, LinkAttribute, LinkInfo, LinkMessage,
};
use netlink_packet_route::neighbour::{NeighbourAttribute, NeighbourMessage, NeighbourState};
use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteProtocol, RouteScope};
use netlink_packet_route::tc::{TcAttribute, TcHandle, TcMessage};

/// The place of an interface in its namespace: name, bridge, addresses, permanent neighbours and routes.
#[derive(Clone, Debug)]
pub struct Seat {
    /// The name.
    pub name: String,
    /// The Ethernet address.
    pub mac: Mac,
    /// The MTU.
    pub mtu: u32,
    is_up: bool,
    bridge: Option<u32>,
    addresses: Vec<AddressMessage>,
    /// The permanent ones.
    neighbours: Vec<NeighbourMessage>,
    /// What another interface cannot take over.
    unkept: Vec<&'static str>,
    /// The routes that do not follow from the addresses.
    routes: Vec<RouteMessage>,
}

impl Seat {
    /// Returns what the interface has beyond its place: it loses it when it moves, and no other
    /// interface takes it over.
    pub fn unkept(&self) -> &[&'static str] {
        &self.unkept
    }

    /// Returns the same place under another bridge, or under none.
    #[must_use]
    pub fn under(&self, bridge: Option<u32>) -> Seat {
        Seat {
            bridge,
            ..self.clone()
        }
    }
}

impl Links {
    /// Returns the place of an interface.
    ///
    /// # Errors
    /// There is no interface of that name, or it has no Ethernet address.
    pub fn seat(&mut self, name: &str) -> Result<Seat, LinkError> {
        let interface = self.interface(name)?;
        let mut addresses = Vec::new();
        let all = RouteNetlinkMessage::GetAddress(AddressMessage::default());
        let what = format!("list the addresses of interface {name:?}");
        self.converse(all, NLM_F_DUMP, &what, |reply| {
            if let RouteNetlinkMessage::NewAddress(message) = reply
                && message.header.index == interface.index
            {
                addresses.push(message);
            }
        })?;
        let mut neighbours = Vec::new();
        let all = RouteNetlinkMessage::GetNeighbour(NeighbourMessage::default());
        let what = format!("list the neighbours of interface {name:?}");
        self.converse(all, NLM_F_DUMP, &what, |reply| {
            if let RouteNetlinkMessage::NewNeighbour(message) = reply
                && message.header.ifindex == interface.index
                && message.header.state == NeighbourState::Permanent
            {
                neighbours.push(message);
            }
        })?;
        let mut unkept = Vec::new();
        if interface.has_queue {
            unkept.push("its queueing discipline");
        }
        if self.has_filters(&interface)? {
            unkept.push("its tc filters (`clsact` or `ingress`)");
        }
        if let Some(bridge) = interface.bridge {
            let all = RouteNetlinkMessage::GetLink(LinkMessage::default());
            let what = format!("read the bridge of interface {name:?}");
            self.converse(all, NLM_F_DUMP, &what, |reply| {
                if let RouteNetlinkMessage::NewLink(message) = reply
                    && [bridge, interface.index].contains(&message.header.index)
                {
                    unkept.extend(unkept_of(&message));
                }
            })?;
        }
        let mut routes = Vec::new();
        let all = RouteNetlinkMessage::GetRoute(RouteMessage::default());
        let what = format!("list the routes by interface {name:?}");
        self.converse(all, NLM_F_DUMP, &what, |reply| {
            if let RouteNetlinkMessage::NewRoute(message) = reply
                && message.header.protocol != RouteProtocol::Kernel
                && message
                    .attributes
                    .contains(&RouteAttribute::Oif(interface.index))
            {
                routes.push(message);
            }
        })?;
        // A gateway must be reachable before a route leads through it.
        routes.sort_by_key(|route| route.header.scope == RouteScope::Universe);
        Ok(Seat {
            name: name.to_owned(),
            mac: interface.mac.unwrap_or(Mac([0; 6])),
            mtu: interface.mtu,
            is_up: interface.is_up,
            bridge: interface.bridge,
            addresses,
            neighbours,
            unkept,
            routes,
        })
    }

    /// Returns whether an interface has the queueing discipline that holds tc filters without a queue.
    fn has_filters(&mut self, interface: &Interface) -> Result<bool, LinkError> {
        let mut message = TcMessage::with_index(interface.index as i32);
        // The same number as that of `ingress`.
        message.header.parent = TcHandle::CLSACT;
        let what = format!("look for tc filters of interface {:?}", interface.name);
        let request = RouteNetlinkMessage::GetQueueDiscipline(message);
        // Before Linux 6.7, only a request for an echo is answered.
        match self.exchange(request, NLM_F_ECHO, &what) {
            Ok(reply) => Ok(reply.is_some_and(|reply| holds_filters(&reply))),
            Err(LinkError::Kernel { source, .. })
                if source.raw_os_error() == Some(libc::ENOENT) =>
            {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Gives all other settings of `seat` to the interface that has its name.
    ///
    /// # Errors
    /// The kernel refuses the MTU, the bridge or an address. Routes that do not fit any more are
    /// left out.
    pub fn take_seat(&mut self, seat: &Seat) -> Result<(), LinkError> {
        let name = &seat.name;
        let index = self.interface(name)?.index;
        self.set_mtu(name, seat.mtu)?;
        if let Some(bridge) = seat.bridge {
            let what = format!("put interface {name:?} under its bridge again");
            self.change(name, &what, |message| {
                message.attributes.push(LinkAttribute::Controller(bridge));
            })?;
        }
        if !seat.is_up {
            return Ok(());
        }
        self.set_up(name, true)?;
        for address in &seat.addresses {
            let mut message = address.clone();
            message.header.index = index;
            message
                .attributes
                .retain(|attribute| !matches!(attribute, AddressAttribute::CacheInfo(_)));
            let what = format!("give interface {name:?} its address again");
            let request = RouteNetlinkMessage::NewAddress(message);
            self.request(request, NLM_F_CREATE | NLM_F_REPLACE, &what)?;
        }
        for neighbour in &seat.neighbours {
            let mut message = neighbour.clone();
            message.header.ifindex = index;
            message.attributes.retain(|attribute| {
                use NeighbourAttribute::{Destination, LinkLayerAddress};
                matches!(attribute, Destination(_) | LinkLayerAddress(_))
            });
            let what = format!("give interface {name:?} its neighbour again");
            let request = RouteNetlinkMessage::NewNeighbour(message);
            self.request(request, NLM_F_CREATE | NLM_F_REPLACE, &what)?;
        }
        for route in &seat.routes {
            let mut message = route.clone();
            for attribute in &mut message.attributes {
                if let RouteAttribute::Oif(own) = attribute {
                    *own = index;
                }
            }
            message
                .attributes
                .retain(|attribute| !matches!(attribute, RouteAttribute::CacheInfo(_)));
            let request = RouteNetlinkMessage::NewRoute(message);
            // The route may no longer be possible, for example because its gateway has vanished.
            let _ = self.request(request, NLM_F_CREATE | NLM_F_REPLACE, "add a route again");
        }
        Ok(())
    }
}

/// Whether a message describes a queueing discipline that holds tc filters.
fn holds_filters(message: &RouteNetlinkMessage) -> bool {
    let RouteNetlinkMessage::NewQueueDiscipline(message) = message else {
        return false;
    };
    message.attributes.iter().any(
        |part| matches!(part, TcAttribute::Kind(kind) if kind == "clsact" || kind == "ingress"),
    )
}

/// Returns what a new port of a bridge would not have, from the description of the bridge or of its
/// port. The defaults are those of net/bridge/br_if.c (new_nbp) and br_private.h.
fn unkept_of(link: &LinkMessage) -> Vec<&'static str> {
    let infos = link.attributes.iter().filter_map(|part| match part {
        LinkAttribute::LinkInfo(infos) => Some(infos),
        _ => None,
    });
    let mut unkept = Vec::new();
    for info in infos.flatten() {
        match info {
            LinkInfo::Data(InfoData::Bridge(parts))
                if parts.contains(&InfoBridge::VlanFiltering(true)) =>
            {
                unkept.push("its VLANs in the bridge");
            }
            LinkInfo::PortData(InfoPortData::BridgePort(flags)) => {
                unkept.extend(flags.iter().filter_map(flag));
            }
            _ => {}
        }
    }
    unkept
}

/// Returns the name of a flag that differs from that of a new port (bridge(8)).
fn flag(flag: &InfoBridgePort) -> Option<&'static str> {
    Some(match flag {
        InfoBridgePort::HairpinMode(true) => "`hairpin on`",
        InfoBridgePort::Guard(true) => "`guard on`",
        InfoBridgePort::Protect(true) => "`root_block on`",
        InfoBridgePort::FastLeave(true) => "`fastleave on`",
        InfoBridgePort::Learning(false) => "`learning off`",
        InfoBridgePort::UnicastFlood(false) => "`flood off`",
        InfoBridgePort::MulticastFlood(false) => "`mcast_flood off`",
        InfoBridgePort::BroadcastFlood(false) => "`bcast_flood off`",
        InfoBridgePort::MulticastToUnicast(true) => "`mcast_to_unicast on`",
        InfoBridgePort::ProxyARP(true) => "`proxy_arp on`",
        InfoBridgePort::ProxyARPWifi(true) => "`proxy_arp_wifi on`",
        InfoBridgePort::NeighSupress(true) => "`neigh_suppress on`",
        InfoBridgePort::VlanTunnel(true) => "`vlan_tunnel on`",
        InfoBridgePort::Isolated(true) => "`isolated on`",
        InfoBridgePort::Locked(true) => "`locked on`",
        InfoBridgePort::Mab(true) => "`mab on`",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(info: LinkInfo) -> LinkMessage {
        let mut link = LinkMessage::default();
        link.attributes.push(LinkAttribute::LinkInfo(vec![info]));
        link
    }

    #[test]
    fn vlans_and_flags_of_a_bridge_s_port_are_named() {
        let bridge = |filters| {
            let parts = vec![InfoBridge::VlanFiltering(filters)];
            link(LinkInfo::Data(InfoData::Bridge(parts)))
        };
        assert_eq!(unkept_of(&bridge(true)), ["its VLANs in the bridge"]);
        assert!(unkept_of(&bridge(false)).is_empty());
        let port = |isolated, learning| {
            let flags = vec![
                InfoBridgePort::Isolated(isolated),
                InfoBridgePort::Learning(learning),
            ];
            link(LinkInfo::PortData(InfoPortData::BridgePort(flags)))
        };
        assert_eq!(
            unkept_of(&port(true, false)),
            ["`isolated on`", "`learning off`"]
        );
        // Those of a new port.
        assert!(unkept_of(&port(false, true)).is_empty());
    }
}
