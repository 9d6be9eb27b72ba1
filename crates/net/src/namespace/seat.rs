//! The settings that an interface loses when it moves to another namespace, and that another
//! interface can take over.

use super::link::{LinkError, Links, Mac};
use netlink_packet_core::{NLM_F_CREATE, NLM_F_DUMP, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::address::{AddressAttribute, AddressMessage};
use netlink_packet_route::link::LinkAttribute;
use netlink_packet_route::route::{RouteAttribute, RouteMessage, RouteProtocol, RouteScope};

/// The place of an interface in its namespace: name, bridge, addresses and routes.
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
    /// The routes that do not follow from the addresses.
    routes: Vec<RouteMessage>,
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
            routes,
        })
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
