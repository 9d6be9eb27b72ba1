//! Promiscuous mode, for as long as a port is open.
//!
//! A bridge forwards frames for other hosts, but a network card delivers only frames for its own
//! addresses unless a socket requests promiscuous mode. The kernel counts these requests. It drops
//! a socket's request when the socket is closed, however its process ends, and drops all requests
//! when the interface is removed. See packet(7), `PACKET_ADD_MEMBERSHIP`.

use crate::namespace::Namespace;
use crate::sys;
use socket2::{Domain, Socket, Type};
use std::fmt;
use std::io;
use std::os::fd::AsFd;

/// Whether an interface delivers frames for all addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Promiscuity {
    /// The port did not request it, because it does not receive or its interface has no filter.
    #[default]
    NotAsked,
    /// The interface delivers them as long as the port is open.
    On,
    /// The kernel refused, for this reason. Frames for other addresses than the interface's may be
    /// lost, and no counter shows them.
    Refused(String),
}

impl Promiscuity {
    /// Returns whether the interface is promiscuous; `None` if this was not requested.
    pub const fn is_on(&self) -> Option<bool> {
        match self {
            Promiscuity::NotAsked => None,
            Promiscuity::On => Some(true),
            Promiscuity::Refused(_) => Some(false),
        }
    }

    /// Requests promiscuous mode for the interface with this index, on behalf of a packet socket.
    pub(super) fn ask(socket: &impl AsFd, index: u32) -> Promiscuity {
        match join(socket, index) {
            Ok(()) => Promiscuity::On,
            Err(error) => Promiscuity::Refused(error.to_string()),
        }
    }

    /// Like [`Promiscuity::ask`], and verifies that the interface reports it.
    pub(super) fn ask_and_verify(
        socket: &impl AsFd,
        namespace: &Namespace,
        interface: &str,
        index: u32,
    ) -> Promiscuity {
        match Promiscuity::ask(socket, index) {
            Promiscuity::On => {}
            other => return other,
        }
        let seen = namespace
            .links()
            .and_then(|mut links| links.interface(interface));
        match seen {
            Ok(link) if link.is_promiscuous => Promiscuity::On,
            Ok(_) => Promiscuity::Refused("the interface is still not promiscuous".to_owned()),
            Err(error) => Promiscuity::Refused(error.to_string()),
        }
    }
}

impl fmt::Display for Promiscuity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Promiscuity::NotAsked => f.write_str("not asked for"),
            Promiscuity::On => f.write_str("promiscuous"),
            Promiscuity::Refused(why) => write!(f, "not promiscuous: {why}"),
        }
    }
}

/// Opens a packet socket only for the request, for ports without one.
pub(super) fn socket(namespace: &Namespace) -> io::Result<Socket> {
    // Without a protocol it receives nothing.
    let open = || Socket::new(Domain::PACKET, Type::RAW, None);
    namespace.enter(open).map_err(io::Error::other)?
}

fn join(socket: &impl AsFd, index: u32) -> io::Result<()> {
    let request = libc::packet_mreq {
        mr_ifindex: i32::try_from(index).map_err(io::Error::other)?,
        mr_type: libc::PACKET_MR_PROMISC as _,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    let name = libc::PACKET_ADD_MEMBERSHIP;
    sys::set_option(socket, libc::SOL_PACKET, name, &request)
}
