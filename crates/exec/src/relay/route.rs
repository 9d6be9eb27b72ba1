//! The destinations of the program's packets outside.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::answer::Unreachable;
use crate::network::Place;

/// The destinations that the program may reach.
#[derive(Clone, Debug)]
pub struct Routes {
    /// The machine's resolvers.
    pub resolvers: Vec<SocketAddr>,
    /// Whether the machine's loopback is reachable, as `host.sluice`.
    pub has_host: bool,
    /// Whether there is a server, `server.sluice`.
    pub has_server: bool,
}

/// The destination of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The first of these addresses that accepts, from the machine's own network.
    Machine(Vec<SocketAddr>),
    /// The first of these addresses that accepts, from the server's namespace.
    Server(Vec<SocketAddr>),
    /// None: the connection is refused.
    None(Refusal),
}

/// The form in which a packet is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The answer of a host without a socket at the port.
    Closed,
    /// The ICMP error of a router.
    Unreachable(Unreachable),
    /// No answer.
    Silence,
}

impl Routes {
    /// Returns the destination of a packet to `outside`.
    pub fn target(&self, outside: SocketAddr) -> Target {
        let port = outside.port();
        match Place::of(outside.ip()) {
            Some(Place::Host) if self.has_host => Target::Machine(loopback(outside)),
            Some(Place::Server) if self.has_server => Target::Server(loopback(outside)),
            Some(Place::Host | Place::Server) => prohibited(),
            Some(Place::Resolver(index)) => match self.resolvers.get(index) {
                Some(resolver) if port == resolver.port() => Target::Machine(vec![*resolver]),
                _ => Target::None(Refusal::Closed),
            },
            Some(Place::Far | Place::Program) => Target::None(Refusal::Closed),
            None if is_inside(outside.ip()) => prohibited(),
            None => Target::Machine(vec![outside]),
        }
    }
}

impl Refusal {
    /// Returns the refusal that the program sees for an error of `connect`.
    pub fn of(error: &io::Error) -> Refusal {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Refusal::Closed,
            io::ErrorKind::NetworkUnreachable => Refusal::Unreachable(Unreachable::Network),
            io::ErrorKind::PermissionDenied => Refusal::Unreachable(Unreachable::Prohibited),
            // By now the program itself has timed out.
            io::ErrorKind::TimedOut => Refusal::Silence,
            _ => Refusal::Unreachable(Unreachable::Host),
        }
    }
}

const fn prohibited() -> Target {
    Target::None(Refusal::Unreachable(Unreachable::Prohibited))
}

/// Returns the loopback addresses, the one of the same version first.
pub fn loopback(like: SocketAddr) -> Vec<SocketAddr> {
    let mut addresses = [
        IpAddr::from(Ipv4Addr::LOCALHOST),
        Ipv6Addr::LOCALHOST.into(),
    ];
    if like.is_ipv6() {
        addresses.reverse();
    }
    addresses.map(|ip| SocketAddr::new(ip, like.port())).into()
}

/// Returns whether an address belongs to the machine itself or its links, which the program must
/// not reach through the outside.
fn is_inside(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            v4.is_loopback() || v4.is_unspecified() || v4.is_multicast() || v4.is_broadcast()
        }
        IpAddr::V6(v6) => {
            v6.is_loopback()
                || v6.is_unspecified()
                || v6.is_multicast()
                || v6.is_unicast_link_local()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes(has_host: bool) -> Routes {
        Routes {
            resolvers: vec!["127.0.0.53:53".parse().unwrap()],
            has_host,
            has_server: false,
        }
    }

    fn target(routes: &Routes, address: &str) -> Target {
        routes.target(address.parse().unwrap())
    }

    #[test]
    fn the_machine_s_loopback_is_reached_by_its_name_only() {
        let reached = |routes: &Routes| target(routes, "192.0.0.3:80");
        let both = ["127.0.0.1:80", "[::1]:80"].map(|a| a.parse().unwrap());
        assert_eq!(reached(&routes(true)), Target::Machine(both.into()));
        assert_eq!(reached(&routes(false)), prohibited());
        for address in [
            "127.0.0.1:80",
            "[::1]:80",
            "[::ffff:127.0.0.1]:80",
            "0.0.0.0:80",
        ] {
            assert_eq!(target(&routes(true), address), prohibited(), "{address}");
        }
    }

    #[test]
    fn a_resolver_answers_on_its_port_only() {
        let resolver = Target::Machine(vec!["127.0.0.53:53".parse().unwrap()]);
        assert_eq!(target(&routes(true), "192.0.0.5:53"), resolver);
        let closed = Target::None(Refusal::Closed);
        assert_eq!(target(&routes(true), "192.0.0.5:80"), closed);
        assert_eq!(target(&routes(true), "192.0.0.6:53"), closed);
    }

    #[test]
    fn everything_else_is_outside() {
        let outside = "[2001:db8::1]:443".parse().unwrap();
        let expected = Target::Machine(vec![outside]);
        assert_eq!(routes(true).target(outside), expected);
    }
}
