//! Promiscuous mode, for as long as a port is open.
//!
//! A bridge forwards frames for other hosts, but a network card delivers only frames for its own
//! addresses unless a socket requests promiscuous mode. The kernel counts these requests. It drops
//! a socket's request when the socket is closed, however its process ends, and drops all requests
//! when the interface is removed. See packet(7), `PACKET_ADD_MEMBERSHIP`.

use crate::namespace::{Interface, LinkError, Namespace};
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

    /// Requests promiscuous mode for the interface with this index, on behalf of a packet socket, and
    /// verifies that the interface reports it. `look` returns its present state; if it cannot, the kernel's
    /// consent to the request counts.
    pub(super) fn ask(
        socket: &impl AsFd,
        index: u32,
        look: impl FnOnce() -> Result<Interface, LinkError>,
    ) -> Promiscuity {
        if let Err(error) = join(socket, index) {
            return Promiscuity::Refused(error.to_string());
        }
        match look() {
            Ok(link) if link.delivers_own_only => Promiscuity::Refused(OWN_ONLY.to_owned()),
            Ok(link) if link.is_promiscuous => Promiscuity::On,
            Ok(_) => Promiscuity::Refused("the interface is still not promiscuous".to_owned()),
            Err(error) if error.is_absence() => Promiscuity::Refused(error.to_string()),
            Err(_) => Promiscuity::On,
        }
    }

    /// Like [`Promiscuity::ask`], with a connection of its own.
    pub(super) fn ask_in(
        socket: &impl AsFd,
        namespace: &Namespace,
        interface: &str,
        index: u32,
    ) -> Promiscuity {
        Promiscuity::ask(socket, index, || namespace.links()?.interface(interface))
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

/// The kernel counts the request, but does not obey.
const OWN_ONLY: &str = "an interface of the kind `macvlan` or `ipvlan` delivers only frames for its own \
                        address, except a `macvlan` in mode `passthru`";

fn join(socket: &impl AsFd, index: u32) -> io::Result<()> {
    let name = libc::PACKET_ADD_MEMBERSHIP;
    sys::set_option(socket, libc::SOL_PACKET, name, &request(index)?)
}

/// Takes the request of a socket for the interface with this index back, if there is one.
pub(super) fn leave(socket: &impl AsFd, index: u32) {
    if let Ok(request) = request(index) {
        let name = libc::PACKET_DROP_MEMBERSHIP;
        // An interface that was removed has no requests.
        let _ = sys::set_option(socket, libc::SOL_PACKET, name, &request);
    }
}

fn request(index: u32) -> io::Result<libc::packet_mreq> {
    Ok(libc::packet_mreq {
        mr_ifindex: i32::try_from(index).map_err(io::Error::other)?,
        mr_type: libc::PACKET_MR_PROMISC as _,
        mr_alen: 0,
        mr_address: [0; 8],
    })
}

#[cfg(test)]
mod tests {
    use super::super::live;
    use super::*;

    #[test]
    fn an_interface_that_does_not_report_the_mode_was_refused_it() {
        let Some(namespace) = live::wire() else {
            return;
        };
        let index = |name| namespace.links().unwrap().interface(name).unwrap().index;
        let (left, right) = (index("left"), index("right"));
        let socket = socket(&namespace).unwrap();
        let ask = |name, index| Promiscuity::ask_in(&socket, &namespace, name, index);
        // The request is for the other end.
        let still = ask("right", left);
        let expected = "not promiscuous: the interface is still not promiscuous";
        assert_eq!(
            (still.is_on(), still.to_string().as_str()),
            (Some(false), expected)
        );
        assert_eq!(ask("left", left), Promiscuity::On);
        assert_eq!(ask("right", right), Promiscuity::On);
        // As a macvlan says of itself.
        let mut link = namespace.links().unwrap().interface("left").unwrap();
        assert!(link.is_promiscuous && !link.delivers_own_only);
        link.delivers_own_only = true;
        let asked = Promiscuity::ask(&socket, left, || Ok(link));
        assert_eq!(asked, Promiscuity::Refused(OWN_ONLY.to_owned()));
    }

    #[test]
    fn a_request_that_is_taken_back_leaves_the_others() {
        let Some(namespace) = live::wire() else {
            return;
        };
        let link = |name| namespace.links().unwrap().interface(name).unwrap();
        let socket = socket(&namespace).unwrap();
        for name in ["left", "right"] {
            let asked = Promiscuity::ask_in(&socket, &namespace, name, link(name).index);
            assert_eq!(asked, Promiscuity::On);
        }
        leave(&socket, link("left").index);
        assert!(!link("left").is_promiscuous && link("right").is_promiscuous);
    }

    #[test]
    fn a_refusal_has_the_kernels_reason() {
        let Some(namespace) = live::wire() else {
            return;
        };
        let socket = socket(&namespace).unwrap();
        // packet(7): there is no such interface.
        let absent = Promiscuity::ask(&socket, 1_000_000, || unreachable!("it was refused"));
        let error = io::Error::from_raw_os_error(libc::ENODEV);
        assert_eq!(absent, Promiscuity::Refused(error.to_string()));
        // The interface is gone when it is looked at.
        let left = namespace.links().unwrap().interface("left").unwrap().index;
        let gone = Promiscuity::ask_in(&socket, &namespace, "nosuch", left);
        assert_eq!(gone.is_on(), Some(false));
        assert!(gone.to_string().contains("nosuch"), "{gone}");
        // Nobody could look, but the kernel did not refuse.
        let unseen = || Err(LinkError::Name(String::new()));
        assert_eq!(Promiscuity::ask(&socket, left, unseen), Promiscuity::On);
    }
}
