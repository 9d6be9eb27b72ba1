//! Whether a port can serve an interface.

use super::{XdpError, XdpPort};
use crate::namespace::{Interface, Links, Namespace};
use crate::port::hold::Hold;

/// Checks that the port can serve an interface.
pub(super) fn check(
    namespace: &Namespace,
    interface: &str,
    link: &Interface,
    workers: u32,
) -> Result<(), XdpError> {
    if !link.has_ethernet {
        return Err(XdpError::NotEthernet(interface.to_owned()));
    }
    if link.mtu > XdpPort::MOST_MTU {
        return Err(XdpError::Mtu {
            interface: interface.to_owned(),
            mtu: link.mtu,
            most: XdpPort::MOST_MTU,
        });
    }
    let queues = namespace.receive_queues(interface)?;
    if queues == workers {
        return Ok(());
    }
    let interface = interface.to_owned();
    Err(match workers {
        1 => XdpError::Queues { interface, queues },
        _ => XdpError::Workers {
            interface,
            queues,
            workers,
        },
    })
}

/// Takes an interface for the port `interface`.
pub(super) fn take_hold(
    namespace: &Namespace,
    interface: &str,
    link: &Interface,
    links: &mut Links,
) -> Result<Hold, XdpError> {
    let is_named = |other: &str| {
        let found = links.interface(other);
        found.is_ok_and(|found| found.index == link.index)
    };
    Hold::take(namespace, interface, link.index, is_named).map_err(|other| XdpError::Shared {
        interface: interface.to_owned(),
        other,
    })
}
