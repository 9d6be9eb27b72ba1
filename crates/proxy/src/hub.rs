//! The state that all connections share: the network, the names, and the rules about destinations.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use sluice_core::{Span, Time};

use crate::bell::Bell;
use crate::engine::{Engine, Id, Side, Target};
use crate::names::{self, Answer, Lookups};
use crate::request::{Destination, Host};

/// The state that all connections share.
pub struct Hub {
    pub engine: Engine,
    pub epoll: OwnedFd,
    pub bell: Bell,
    pub token: Option<String>,
    rules: Rules,
    lookups: Lookups,
    questions: BTreeMap<Id, Question>,
    /// For each connection that is being established, the outside addresses to try, in order.
    pub targets: BTreeMap<Id, Vec<SocketAddr>>,
    /// For the sockets of such a connection, the time at which it also tries the next address.
    pub attempts: BTreeMap<u64, Time>,
    /// The number of the last socket.
    last: u64,
    pub scratch: Vec<u8>,
}

/// The permitted destinations of connections.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Whether the machine's loopback can be reached.
    pub has_host: bool,
    /// Whether other machines can reach the proxy. If so, the loopback must be requested by name.
    pub is_open: bool,
}

/// A question about a name.
struct Question {
    client: u64,
    destination: Destination,
    /// Whether the machine itself knows the name. Then no question crosses the link.
    is_local: bool,
    state: Asked,
    /// The time of the next attempt, and the number of attempts.
    again: Option<(Time, u32)>,
}

enum Asked {
    /// The question is on its way to the far end.
    Sent,
    /// The question was sent to the resolver.
    Running,
    /// The answer is on its way back.
    Answered(Answer),
}

/// The kind of a destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DestinationKind {
    /// Addresses that stand for the same place.
    Known(Vec<SocketAddr>),
    /// A name that must be resolved.
    Name,
    /// A destination that is not permitted.
    Prohibited,
}

impl Rules {
    /// Returns the kind of a destination.
    pub fn kind(&self, destination: &Destination) -> DestinationKind {
        match &destination.host {
            Host::Name(name) if name == HOST && self.has_host => {
                let loopback: [IpAddr; 2] =
                    [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
                let both = loopback.map(|ip| SocketAddr::new(ip, destination.port));
                DestinationKind::Known(both.into())
            }
            Host::Name(name) if name == HOST => DestinationKind::Prohibited,
            Host::Name(_) => DestinationKind::Name,
            Host::Address(ip) if self.allows(*ip) => {
                DestinationKind::Known(vec![SocketAddr::new(*ip, destination.port)])
            }
            Host::Address(_) => DestinationKind::Prohibited,
        }
    }

    /// Returns whether a connection to an address may be made.
    pub fn allows(&self, ip: IpAddr) -> bool {
        let is_host = names::is_loopback(ip);
        !names::is_unusable(ip) && (!is_host || self.has_host && !self.is_open)
    }
}

impl Hub {
    pub fn new(
        engine: Engine,
        epoll: OwnedFd,
        bell: Bell,
        token: Option<String>,
        rules: Rules,
        last: u64,
    ) -> Hub {
        Hub {
            engine,
            epoll,
            bell,
            token,
            rules,
            lookups: Lookups::new(),
            questions: BTreeMap::new(),
            targets: BTreeMap::new(),
            attempts: BTreeMap::new(),
            last,
            scratch: vec![0; SCRATCH],
        }
    }

    /// Returns a new number for a socket.
    pub fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Returns the kind of a destination.
    pub fn kind(&self, destination: &Destination) -> DestinationKind {
        self.rules.kind(destination)
    }

    /// Opens a connection to an address, or to another one of the same place. The link carries it as one
    /// to the first. `name` is the destination as the program has given it.
    pub fn open(&mut self, name: &str, addresses: Vec<SocketAddr>) -> Id {
        let first = addresses.first().copied();
        let first = first.unwrap_or(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0));
        let host = match first.ip().to_canonical() {
            IpAddr::V4(v4) => v4.to_bits(),
            IpAddr::V6(v6) => {
                let bits = v6.to_bits();
                (bits ^ bits >> 32 ^ bits >> 64 ^ bits >> 96) as u32
            }
        };
        let ip = first.ip().to_canonical();
        // Under `sluice exec`, programs prefer the IPv6 address of a place with both (RFC 6724
        // section 10.3). The header decides how much payload a packet has.
        let is_v6 = match addresses.as_slice() {
            [_] => ip.is_ipv6(),
            alternatives => names::has_ipv6() && alternatives.iter().any(SocketAddr::is_ipv6),
        };
        let [v4, v6] = sluice_exec::host_addresses();
        let ip = match names::is_loopback(ip) {
            true if is_v6 => v6,
            true => v4,
            false => ip,
        };
        let id = self.engine.open(&Target {
            name: name.to_owned(),
            address: SocketAddr::new(ip, first.port()),
            host,
        });
        self.targets.insert(id, addresses);
        id
    }

    /// Requests the addresses of a name for a client.
    pub fn ask(&mut self, client: u64, destination: &Destination, now: Time) -> Id {
        let id = self.engine.question(RESOLVER);
        let Host::Name(name) = &destination.host else {
            unreachable!("only names are resolved");
        };
        let is_local = names::is_local(name);
        let question = Question {
            client,
            destination: destination.clone(),
            is_local,
            state: Asked::Sent,
            again: (!is_local).then(|| (now.saturating_add(AGAIN), 1)),
        };
        self.questions.insert(id, question);
        if is_local {
            self.look_up(id);
        } else {
            self.send(id, Side::Far);
        }
        id
    }

    /// Forgets a question.
    pub fn forget(&mut self, id: Id) {
        self.questions.remove(&id);
    }

    /// Handles the datagrams that have crossed the link, and the answers of the resolver. Returns
    /// the clients that have an answer.
    pub fn answers(&mut self) -> Vec<(u64, Id, Answer)> {
        let mut ready = Vec::new();
        for (id, side) in self.engine.take_datagrams() {
            match (
                side,
                self.questions.get(&id).map(|question| &question.state),
            ) {
                (Side::Far, Some(Asked::Sent)) => self.look_up(id),
                (Side::Far, Some(Asked::Answered(_))) => self.send(id, Side::Near),
                (Side::Near, Some(Asked::Answered(_))) => ready.extend(self.finish(id)),
                _ => {}
            }
        }
        for (id, answer) in self.lookups.take() {
            let Some(question) = self.questions.get_mut(&id) else {
                continue;
            };
            question.state = Asked::Answered(answer);
            if question.is_local {
                ready.extend(self.finish(id));
            } else {
                self.send(id, Side::Near);
            }
        }
        ready
    }

    /// Repeats requests that were not answered in time. Returns the clients whose last attempt has
    /// timed out.
    pub fn ask_again(&mut self, now: Time) -> Vec<(u64, Id, Answer)> {
        let is_due = |question: &Question| question.again.is_some_and(|(at, _)| at <= now);
        let due = self
            .questions
            .iter()
            .filter(|(_, question)| is_due(question));
        let due: Vec<Id> = due.map(|(id, _)| *id).collect();
        let mut ready = Vec::new();
        for id in due {
            let Some(question) = self.questions.get_mut(&id) else {
                continue;
            };
            let Some((_, times)) = question.again else {
                continue;
            };
            if matches!(question.state, Asked::Running) {
                // The resolver has its own timeouts.
                question.again = Some((now.saturating_add(AGAIN), times));
            } else if times < ATTEMPTS {
                question.again = Some((now.saturating_add(AGAIN), times + 1));
                self.send(id, Side::Far);
            } else {
                question.state = Asked::Answered(Err("no answer crossed the link".to_owned()));
                ready.extend(self.finish(id));
            }
        }
        ready
    }

    /// Returns the time at which [`Hub::ask_again`] must be called.
    pub fn next_question(&self) -> Option<Time> {
        let times = self
            .questions
            .values()
            .filter_map(|question| question.again);
        times.map(|(at, _)| at).min()
    }

    fn look_up(&mut self, id: Id) {
        if let Some(question) = self.questions.get_mut(&id)
            && let Host::Name(name) = &question.destination.host
        {
            question.state = Asked::Running;
            let port = question.destination.port;
            self.lookups.start(id, name, port, self.bell.clone());
        }
    }

    fn send(&mut self, id: Id, to: Side) {
        if let Some(question) = self.questions.get(&id)
            && let Host::Name(name) = &question.destination.host
        {
            let addresses = match &question.state {
                Asked::Answered(Ok(addresses)) if to == Side::Near => addresses.as_slice(),
                _ => &[],
            };
            let len = names::datagram_len(name, addresses);
            self.engine.send_datagram(id, to, len);
        }
    }

    /// Returns the answer, without the addresses that are not allowed.
    fn finish(&mut self, id: Id) -> Option<(u64, Id, Answer)> {
        let question = self.questions.remove(&id)?;
        let Asked::Answered(answer) = question.state else {
            return None;
        };
        let answer = answer.and_then(|mut addresses| {
            addresses.retain(|address| self.rules.allows(address.ip()));
            if addresses.is_empty() {
                return Err(PROHIBITED.to_owned());
            }
            Ok(addresses)
        });
        Some((question.client, id, answer))
    }
}

/// The resolver that questions go to, as under `sluice exec`.
const RESOLVER: &str = "resolver.sluice:53";
/// The name of the machine's loopback, as under `sluice exec`.
const HOST: &str = "host.sluice";
/// resolv.conf(5): 5 s, two attempts.
const AGAIN: Span = Span::from_secs(5);
const ATTEMPTS: u32 = 2;
/// Bytes that are read at once.
const SCRATCH: usize = 64 << 10;
/// The reason why a name has no usable address.
const PROHIBITED: &str = "it has no address that may be reached from here";

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(has_host: bool, is_open: bool, text: &str) -> DestinationKind {
        let rules = Rules { has_host, is_open };
        rules.kind(&Destination::parse(text, None).unwrap())
    }

    #[test]
    fn the_loopback_is_reached_by_name_if_others_reach_the_proxy() {
        let both = ["127.0.0.1:80", "[::1]:80"].map(|a| a.parse().unwrap());
        let host = DestinationKind::Known(both.into());
        for (has_host, is_open, text, expected) in [
            (true, true, "host.sluice:80", host.clone()),
            (true, false, "host.sluice:80", host),
            (false, false, "host.sluice:80", DestinationKind::Prohibited),
            (true, true, "127.0.0.1:80", DestinationKind::Prohibited),
            (
                true,
                true,
                "[::ffff:127.0.0.1]:80",
                DestinationKind::Prohibited,
            ),
            (false, false, "[::1]:80", DestinationKind::Prohibited),
            (false, false, "0.0.0.0:80", DestinationKind::Prohibited),
            (true, false, "224.0.0.1:80", DestinationKind::Prohibited),
            (true, true, "example.org:80", DestinationKind::Name),
        ] {
            assert_eq!(kind(has_host, is_open, text), expected, "{text}");
        }
        let known = |text: &str| DestinationKind::Known(vec![text.parse().unwrap()]);
        assert_eq!(kind(true, false, "127.0.0.1:80"), known("127.0.0.1:80"));
        assert_eq!(kind(false, true, "192.0.2.1:80"), known("192.0.2.1:80"));
    }
}
