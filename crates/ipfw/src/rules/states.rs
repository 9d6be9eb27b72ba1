//! Dynamic rules: what `keep-state` and `limit` remember of flows, and for how long.
//!
//! Lifetimes are those of ipfw: 20 s for a TCP connection that is being opened, 300 s for an open
//! one, 1 s after FIN from both ends or RST, 10 s for UDP, 5 s for other protocols. Every packet of
//! the flow, in either direction, restarts the lifetime. An expired state is removed when it is
//! looked up, when the table is full, and once per second while states are added.

use std::net::IpAddr;

use sluice_core::units::{Span, Time};

use super::RuleId;
use crate::grammar::StateLimit;
use crate::hash::{KeyedHash, Map};
use crate::headers::{Headers, TCP, UDP};

/// One end of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct End {
    pub address: IpAddr,
    pub port: u16,
}

/// A flow in both directions, with the name of its state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct StateKey {
    /// The smaller end, so that both directions have the same key.
    low: End,
    high: End,
    proto: u8,
    name: u16,
}

/// The state of a flow.
#[derive(Clone, Debug)]
pub(crate) struct State {
    /// The rule that created the state and whose action applies to its packets.
    pub rule: RuleId,
    /// The end that sent the first packet.
    pub from: End,
    pub to: End,
    pub proto: u8,
    /// The number of the name.
    pub name: u16,
    pub expires: Time,
    pub packets: u64,
    pub bytes: u64,
    /// TCP flags seen from the first sender and from the other.
    flags: [u8; 2],
    group: Option<Group>,
}

/// The fields by which a `limit` rule counts its states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Group {
    rule: RuleId,
    source: Option<IpAddr>,
    source_port: u16,
    destination: Option<IpAddr>,
    destination_port: u16,
}

/// Lifetimes of states in seconds: the variables `net.inet.ip.fw.dyn_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lifetimes {
    pub syn: u32,
    pub ack: u32,
    pub fin: u32,
    pub rst: u32,
    pub udp: u32,
    pub short: u32,
    /// The most states.
    pub most: u32,
}

impl Default for Lifetimes {
    fn default() -> Self {
        // ipfw's own defaults.
        Lifetimes {
            syn: 20,
            ack: 300,
            fin: 1,
            rst: 1,
            udp: 10,
            short: 5,
            most: 16384,
        }
    }
}

/// All states.
#[derive(Clone, Debug)]
pub(crate) struct States {
    states: Map<StateKey, State>,
    groups: Map<Group, u32>,
    names: Vec<String>,
    next_sweep: Time,
}

/// The reason why a state could not be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The group of a `limit` is full.
    Limit,
    /// The table is full.
    Full,
}

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;

impl States {
    pub fn new(hash: KeyedHash) -> Self {
        States {
            states: Map::with_hasher(hash),
            groups: Map::with_hasher(hash),
            names: Vec::new(),
            next_sweep: Time::ZERO,
        }
    }

    /// Returns the number of a name.
    pub fn name(&mut self, name: &str) -> u16 {
        let known = self.names.iter().position(|n| n == name);
        known.unwrap_or_else(|| {
            self.names.push(name.to_string());
            self.names.len() - 1
        }) as u16
    }

    pub fn name_of(&self, name: u16) -> &str {
        &self.names[usize::from(name)]
    }

    pub fn len(&self) -> usize {
        self.states.len()
    }

    /// Finds the state of a packet, counts the packet, and returns the rule that created the state.
    pub fn find(
        &mut self,
        headers: &Headers,
        name: u16,
        now: Time,
        times: &Lifetimes,
    ) -> Option<RuleId> {
        if self.states.is_empty() {
            return None;
        }
        let key = StateKey::of(headers, name);
        let state = self.states.get_mut(&key)?;
        if state.expires <= now {
            self.remove(&key);
            return None;
        }
        state.count(headers, now, times);
        Some(state.rule)
    }

    /// Adds a state for the flow of a packet, unless it has one.
    pub fn add(
        &mut self,
        headers: &Headers,
        rule: RuleId,
        name: u16,
        limit: Option<&StateLimit>,
        now: Time,
        times: &Lifetimes,
    ) -> Result<(), Refused> {
        if now >= self.next_sweep {
            self.sweep(now);
            self.next_sweep = now.saturating_add(Span::from_secs(1));
        }
        let key = StateKey::of(headers, name);
        if self.states.get(&key).is_some_and(|old| old.expires > now) {
            return Ok(());
        }
        let group = limit.map(|limit| Group::of(headers, rule, limit));
        let most = limit.map_or(u32::MAX, |limit| limit.most);
        let is_full = |s: &Self| s.states.len() >= times.most as usize;
        let is_over =
            |s: &Self| group.is_some_and(|g| s.groups.get(&g).is_some_and(|n| *n >= most));
        if is_full(self) || is_over(self) {
            self.sweep(now);
        }
        if is_over(self) {
            return Err(Refused::Limit);
        }
        if is_full(self) {
            return Err(Refused::Full);
        }
        let (from, to) = ends(headers);
        let mut state = State {
            rule,
            from,
            to,
            proto: headers.proto,
            name,
            expires: now,
            packets: 0,
            bytes: 0,
            flags: [0; 2],
            group,
        };
        state.count(headers, now, times);
        if let Some(old) = self.states.insert(key, state) {
            self.leave(old.group);
        }
        if let Some(group) = group {
            *self.groups.entry(group).or_default() += 1;
        }
        Ok(())
    }

    /// Removes the states that a rule created.
    pub fn forget_rule(&mut self, rule: RuleId) {
        let keys: Vec<StateKey> = self
            .states
            .iter()
            .filter(|(_, state)| state.rule == rule)
            .map(|(key, _)| *key)
            .collect();
        keys.iter().for_each(|key| self.remove(key));
    }

    /// Returns the states in the order of their keys: those alive at `now`, and expired ones on
    /// request.
    pub fn list(&self, now: Time, has_expired: bool) -> Vec<&State> {
        let mut all: Vec<(&StateKey, &State)> = self
            .states
            .iter()
            .filter(|(_, state)| has_expired || state.expires > now)
            .collect();
        all.sort_by_key(|(key, _)| **key);
        all.into_iter().map(|(_, state)| state).collect()
    }

    fn sweep(&mut self, now: Time) {
        let over: Vec<StateKey> = self
            .states
            .iter()
            .filter(|(_, state)| state.expires <= now)
            .map(|(key, _)| *key)
            .collect();
        over.iter().for_each(|key| self.remove(key));
    }

    fn remove(&mut self, key: &StateKey) {
        if let Some(state) = self.states.remove(key) {
            self.leave(state.group);
        }
    }

    fn leave(&mut self, group: Option<Group>) {
        let Some(group) = group else {
            return;
        };
        if let Some(count) = self.groups.get_mut(&group) {
            *count -= 1;
            if *count == 0 {
                self.groups.remove(&group);
            }
        }
    }
}

fn ends(headers: &Headers) -> (End, End) {
    let has_ports = headers.has_ports();
    let port = |port: u16| if has_ports { port } else { 0 };
    let end = |address, number| End {
        address,
        port: port(number),
    };
    (
        end(headers.src, headers.src_port),
        end(headers.dst, headers.dst_port),
    )
}

impl StateKey {
    fn of(headers: &Headers, name: u16) -> Self {
        let (from, to) = ends(headers);
        StateKey {
            low: from.min(to),
            high: from.max(to),
            proto: headers.proto,
            name,
        }
    }
}

impl Group {
    fn of(headers: &Headers, rule: RuleId, limit: &StateLimit) -> Self {
        let (from, to) = ends(headers);
        Group {
            rule,
            source: limit.by_source.then_some(from.address),
            source_port: if limit.by_source_port { from.port } else { 0 },
            destination: limit.by_destination.then_some(to.address),
            destination_port: if limit.by_destination_port {
                to.port
            } else {
                0
            },
        }
    }
}

impl State {
    fn count(&mut self, headers: &Headers, now: Time, times: &Lifetimes) {
        self.packets += 1;
        self.bytes += u64::from(headers.ip_len);
        let seconds = match headers.proto {
            TCP => {
                let is_back = ends(headers).0 != self.from;
                self.flags[usize::from(is_back)] |= headers.tcp_flags & (FIN | SYN | RST);
                let [there, back] = self.flags;
                if (there | back) & RST != 0 {
                    times.rst
                } else if there & back & FIN != 0 {
                    times.fin
                } else if there & back & SYN != 0 {
                    times.ack
                } else if (there | back) & SYN != 0 {
                    times.syn
                } else {
                    // A connection seen from the middle.
                    times.ack
                }
            }
            UDP => times.udp,
            _ => times.short,
        };
        self.expires = now.saturating_add(Span::from_secs(u64::from(seconds)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers::Direction;
    use std::net::Ipv4Addr;

    const RULE: RuleId = RuleId {
        number: 100,
        serial: 1,
    };

    fn headers(proto: u8, from: (u8, u16), to: (u8, u16), flags: u8) -> Headers {
        let ip = |last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
        Headers {
            src_port: from.1,
            dst_port: to.1,
            tcp_flags: flags,
            ip_len: 100,
            ..Headers::new(Direction::In, proto, ip(from.0), ip(to.0))
        }
    }

    fn at(seconds: u64) -> Time {
        Time::from_ns(seconds * 1_000_000_000)
    }

    #[test]
    fn a_state_covers_both_directions_for_its_lifetime() {
        let mut states = States::new(KeyedHash(1));
        let times = Lifetimes::default();
        let name = states.name("default");
        let there = headers(UDP, (1, 1000), (2, 53), 0);
        let back = headers(UDP, (2, 53), (1, 1000), 0);
        assert_eq!(states.add(&there, RULE, name, None, at(0), &times), Ok(()));
        assert_eq!(states.find(&back, name, at(9), &times), Some(RULE));
        // The reply at 9 s restarted the 10 s.
        assert_eq!(states.find(&there, name, at(18), &times), Some(RULE));
        assert_eq!(states.find(&there, name, at(28), &times), None);
        assert_eq!(states.len(), 0);
    }

    #[test]
    fn names_separate_states() {
        let mut states = States::new(KeyedHash(1));
        let times = Lifetimes::default();
        let (a, b) = (states.name("a"), states.name("b"));
        let packet = headers(UDP, (1, 1000), (2, 53), 0);
        states.add(&packet, RULE, a, None, at(0), &times).unwrap();
        assert_eq!(states.find(&packet, b, at(1), &times), None);
    }

    #[test]
    fn a_connection_lives_by_its_flags() {
        let mut states = States::new(KeyedHash(1));
        let times = Lifetimes::default();
        let name = states.name("default");
        let there = |flags| headers(TCP, (1, 1000), (2, 80), flags);
        let back = |flags| headers(TCP, (2, 80), (1, 1000), flags);
        let expires = |states: &States| states.list(at(0), true)[0].expires;
        states
            .add(&there(SYN), RULE, name, None, at(0), &times)
            .unwrap();
        assert_eq!(expires(&states), at(20));
        states.find(&back(SYN | 0x10), name, at(1), &times);
        assert_eq!(expires(&states), at(301));
        states.find(&there(FIN | 0x10), name, at(2), &times);
        assert_eq!(expires(&states), at(302));
        states.find(&back(FIN | 0x10), name, at(3), &times);
        assert_eq!(expires(&states), at(4));
    }

    #[test]
    fn a_limit_counts_states_that_live() {
        let mut states = States::new(KeyedHash(1));
        let times = Lifetimes::default();
        let name = states.name("default");
        let limit = StateLimit {
            by_source: true,
            by_source_port: false,
            by_destination: false,
            by_destination_port: false,
            most: 2,
        };
        let mut add = |port, second| {
            let packet = headers(UDP, (1, port), (2, 53), 0);
            states.add(&packet, RULE, name, Some(&limit), at(second), &times)
        };
        assert_eq!(add(1, 0), Ok(()));
        assert_eq!(add(2, 5), Ok(()));
        assert_eq!(add(3, 6), Err(Refused::Limit));
        // The first state expires after 10 s.
        assert_eq!(add(3, 11), Ok(()));
        states.forget_rule(RULE);
        assert_eq!((states.len(), states.groups.len()), (0, 0));
    }
}
