//! `xdp` as a kind of port: how it attaches to an interface, and which interfaces it declines.

use super::{XdpOptions, XdpPort};
use crate::namespace::{Namespace, Offloads};
use crate::port::choose::{self, Attach, AttachOptions, Facts};
use crate::port::registry::{Kind, OpenError, Role, Sharing};
use crate::port::{Pool, Port};

impl From<AttachOptions> for XdpOptions {
    fn from(options: AttachOptions) -> XdpOptions {
        let default = XdpOptions::default();
        XdpOptions {
            batch: options.batch.unwrap_or(default.batch),
            promiscuous: options.promiscuous,
            ..default
        }
    }
}

/// `xdp:INTERFACE`.
pub static KIND: Kind = Kind {
    name: "xdp",
    argument: "INTERFACE",
    doc: "AF_XDP on an existing interface",
    super_packets: None,
    arrivals: "no",
    needs: "CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF",
    in_user_namespace: false,
    parse: Some(|name| Ok(choose::attached(name, Some(&KIND)))),
    role: Role::Interface(&Sockets),
};

struct Sockets;

impl Attach for Sockets {
    fn title(&self) -> &'static str {
        "AF_XDP"
    }

    fn declines(&self, facts: &Facts) -> Option<&'static str> {
        if facts.has_super_packets() {
            Some("segmentation or receive offloads are on, and it lets super-packets through")
        } else if facts.offloads.tag_removal {
            Some("the interface removes VLAN tags (`rx-vlan-offload`), which AF_XDP does not see")
        } else if facts.mtu > XdpPort::MOST_MTU {
            Some("the MTU is larger than AF_XDP frames can be")
        } else if facts.queues > 1 {
            Some("it has several receive queues, and AF_XDP would serve only one of them")
        } else if facts.has_address {
            Some("the interface has an address of this machine, which AF_XDP would cut off")
        } else {
            None
        }
    }

    fn merit(&self) -> &'static str {
        "no offload makes super-packets here, and it is the fastest for single packets"
    }

    fn cannot(&self, offloads: Offloads) -> Vec<String> {
        let mut cannot = vec![
            format!(
                "packets above {} bytes are dropped and counted as `oversize`",
                XdpPort::MOST_MTU
            ),
            "the interface's own addresses receive nothing: every frame goes to the router"
                .to_owned(),
            "frames whose VLAN tag the interface removes leave without it: switch `rx-vlan-offload` off \
             (`ethtool -K`), and on veth `tx-vlan-offload` at the other end"
                .to_owned(),
            "arrivals carry no kernel timestamp: they count from when the router sees them"
                .to_owned(),
        ];
        if choose::has_super_packets(offloads) {
            cannot.push(
                "offloads are on at the interface: super-packets that reach it are dropped and \
                 counted as `oversize` (`ethtool -K` switches them off)"
                    .to_owned(),
            );
        }
        cannot
    }

    fn open(
        &self,
        namespace: &Namespace,
        interface: &str,
        pool: &mut Pool,
        options: AttachOptions,
    ) -> Result<(Box<dyn Port + Send>, Option<String>), OpenError> {
        let port = XdpPort::open(namespace, interface, pool, options.into())?;
        let mode = format!("{} mode", port.mode());
        Ok((Box::new(port), Some(mode)))
    }

    fn open_group(
        &self,
        namespace: &Namespace,
        interface: &str,
        pools: &mut [&mut Pool],
        options: AttachOptions,
        sharing: Sharing,
    ) -> Result<Vec<Box<dyn Port + Send>>, OpenError> {
        if sharing != Sharing::Flows {
            return Err(Sharing::refusal(&KIND));
        }
        let ports = XdpPort::open_group(namespace, interface, pools, options.into())?;
        let boxed = |port| -> Box<dyn Port + Send> { Box::new(port) };
        Ok(ports.into_iter().map(boxed).collect())
    }

    /// Network cards spread flows by a hash that differs between the two directions.
    fn keeps_flows(&self) -> bool {
        false
    }

    fn open_halves(
        &self,
        namespace: &Namespace,
        interface: &str,
        into: &mut Pool,
        from: &Pool,
        options: AttachOptions,
    ) -> Result<[Box<dyn Port + Send>; 2], OpenError> {
        let options = options.into();
        let (receives, sends) = XdpPort::open_halves(namespace, interface, into, from, options)?;
        Ok([Box::new(receives), Box::new(sends)])
    }
}
