//! Whether a port can serve an interface.

use super::{XdpError, XdpPort};
use crate::namespace::{Interface, Namespace};
use crate::port::hold::HoldError;

/// Checks that the port can serve an interface.
pub(super) fn check(
    namespace: &Namespace,
    interface: &str,
    link: &Interface,
    workers: u32,
) -> Result<(), XdpError> {
    HoldError::unless_ethernet(interface, link)?;
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
