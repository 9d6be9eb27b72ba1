//! Dynamic rules: what `keep-state` and `limit` remember of flows, and for how long.
//!
//! Lifetimes are those of ipfw: 20 s for a TCP connection that is being opened, 300 s for an open
//! one, 1 s after FIN from both ends or RST, 10 s for UDP, 5 s for other protocols. Every packet of
//! the flow, in either direction, restarts the lifetime. A connection that is seen from the middle
//! counts as being opened until both ends have sent.
//!
//! # Cost and attacks
//!
//! States wait to expire in one list per lifetime, oldest first. A packet moves its state to the end
//! of a list, so the next state to expire is always at the head of a list. Adding, refusing and
//! expiring a state take constant time, however many states there are.
//!
//! A sender that makes up addresses can fill any table. So a full table drops its oldest unanswered
//! flow for a new one, as long as more than half of its flows are unanswered. Flows with packets in
//! both directions keep their states. A new flow has as much time to be answered as a flood takes
//! to fill half of the table. If half of the flows or more are answered, the new state is refused.
//! One address may own at most [`Lifetimes::per_source`] states.

mod groups;
mod names;

use std::net::IpAddr;

use sluice_core::units::{Span, Time};

use self::groups::Groups;
pub(crate) use self::groups::{Group, ListedGroup};
use self::names::Names;
use super::RuleId;
use crate::grammar::StateLimit;
use crate::hash::{KeyedHash, Map};
use crate::headers::{Headers, TCP, UDP};
use crate::visits::visit;

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
    name: u32,
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
    pub name: u32,
    pub expires: Time,
    pub packets: u64,
    pub bytes: u64,
    /// The value of a table that the rule's action has for this flow.
    arg: u32,
    /// TCP flags seen from the first sender and from the other.
    flags: [u8; 2],
    /// Whether each of both ends has sent.
    has_sent: [bool; 2],
    phase: Phase,
    group: Option<Group>,
}

/// The state that a packet has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// The rule that created the state.
    pub rule: RuleId,
    /// The number of the state's name.
    pub name: u32,
    /// The value of a table, see [`States::remember`].
    pub arg: u32,
    /// Whether the packet comes from the end that sent the first one.
    pub is_from_first: bool,
}

/// The phase of a flow, which determines its lifetime. Each phase has its own list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// A TCP connection of which one end has not answered.
    HalfOpen,
    Open,
    Closed,
    Reset,
    /// One end has not sent.
    UdpUnanswered,
    Udp,
    OtherUnanswered,
    Other,
}

const PHASES: usize = 8;

/// States that packets with made-up addresses can create.
const UNANSWERED: [Phase; 3] = [
    Phase::HalfOpen,
    Phase::UdpUnanswered,
    Phase::OtherUnanswered,
];

/// A place in the table: a state and its neighbours in the list of its phase. Free places are linked
/// by `next`.
#[derive(Clone, Debug)]
struct Place {
    state: State,
    previous: u32,
    next: u32,
}

/// The states of one phase, in the order in which they expire.
#[derive(Clone, Copy, Debug)]
struct List {
    head: u32,
    tail: u32,
    len: usize,
}

/// No place.
const NONE: u32 = u32::MAX;

/// Counts of states that could not be added or kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Refusals {
    /// The table was full.
    pub full: u64,
    /// The group of a `limit` was full.
    pub limit: u64,
    /// The source owned too many states.
    pub source: u64,
    /// Unanswered flows dropped for newer states.
    pub evicted: u64,
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
    /// The most states that the packets of one address may create; 0 means no limit.
    pub per_source: u32,
}

impl Lifetimes {
    fn of(&self, phase: Phase) -> Span {
        let seconds = match phase {
            Phase::HalfOpen => self.syn,
            Phase::Open => self.ack,
            Phase::Closed => self.fin,
            Phase::Reset => self.rst,
            Phase::UdpUnanswered | Phase::Udp => self.udp,
            Phase::OtherUnanswered | Phase::Other => self.short,
        };
        Span::from_secs(u64::from(seconds))
    }
}

impl Default for Lifetimes {
    fn default() -> Self {
        // ipfw's defaults, except `per_source`.
        Lifetimes {
            syn: 20,
            ack: 300,
            fin: 1,
            rst: 1,
            udp: 10,
            short: 5,
            most: 16384,
            per_source: 4096,
        }
    }
}

/// All states.
#[derive(Clone, Debug)]
pub(crate) struct States {
    index: Map<StateKey, u32>,
    places: Vec<Place>,
    /// The first free place.
    free: u32,
    lists: [List; PHASES],
    groups: Groups,
    /// The number of states by the address that created them.
    sources: Map<IpAddr, u32>,
    names: Names,
    /// The lifetimes by which the lists are ordered.
    times: Lifetimes,
    /// The number of wire packets in the packets that are counted from now on.
    pub wire_packets: u16,
    pub refusals: Refusals,
    /// The number of the rule whose `limit` was full last, and that limit.
    pub last_limit: Option<(u32, u32)>,
}

/// The reason why a state could not be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The group of a `limit` is full.
    Limit,
    /// The table is full.
    Full,
    /// The source owns too many states.
    Source,
}

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;

impl States {
    pub fn new(hash: KeyedHash) -> Self {
        States {
            index: Map::with_hasher(hash),
            places: Vec::new(),
            free: NONE,
            lists: [List::EMPTY; PHASES],
            groups: Groups::new(hash),
            sources: Map::with_hasher(hash),
            names: Names::new(hash),
            times: Lifetimes::default(),
            wire_packets: 1,
            refusals: Refusals::default(),
            last_limit: None,
        }
    }

    /// Adds the states of other flows, to be shown.
    pub fn absorb(&mut self, other: &States) {
        for place in other.index.values() {
            let mut state = other.state(*place).clone();
            state.name = self.name(other.name_of(state.name));
            let key = state.key();
            let place = self.insert(state);
            self.index.insert(key, place);
        }
        self.groups.absorb(&other.groups);
        let more = other.refusals;
        self.refusals.full += more.full;
        self.refusals.limit += more.limit;
        self.refusals.source += more.source;
        self.refusals.evicted += more.evicted;
    }

    /// Returns the number of a name that one more rule mentions; [`ANY`] for the word of all names.
    pub fn name(&mut self, name: &str) -> u32 {
        self.names.enter(name)
    }

    /// Forgets that a rule mentions a name. The states of the rule are gone.
    pub fn forget_name(&mut self, name: u32) {
        self.names.leave(name);
    }

    pub fn name_of(&self, name: u32) -> &str {
        self.names.of(name)
    }

    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Finds the state of a packet, and counts the packet. [`ANY`] finds the state whose name has the
    /// smallest number; it costs a lookup per name that rules mention.
    pub fn find(
        &mut self,
        headers: &Headers,
        name: u32,
        now: Time,
        times: &Lifetimes,
    ) -> Option<Found> {
        if self.index.is_empty() {
            return None;
        }
        self.set_times(times, now);
        for name in self.names.looked_up(name) {
            if !self.names.is_used(name) {
                continue;
            }
            visit();
            let Some(place) = self.index.get(&StateKey::of(headers, name)).copied() else {
                continue;
            };
            if self.state(place).expires > now {
                self.count(place, headers, now);
                let state = self.state(place);
                return Some(Found {
                    rule: state.rule,
                    name,
                    arg: state.arg,
                    is_from_first: ends(headers).0 == state.from,
                });
            }
            self.remove(place);
        }
        None
    }

    /// Adds a state for the flow of a packet, unless it has one.
    pub fn add(
        &mut self,
        headers: &Headers,
        rule: RuleId,
        name: u32,
        limit: Option<&StateLimit>,
        now: Time,
        times: &Lifetimes,
    ) -> Result<(), Refused> {
        self.set_times(times, now);
        self.expire(now);
        let key = StateKey::of(headers, name);
        if let Some(place) = self.index.get(&key).copied() {
            if self.state(place).expires > now {
                return Ok(());
            }
            self.remove(place);
        }
        let (from, to) = ends(headers);
        let group = limit.map(|limit| Group::of(headers, rule, limit));
        let most = limit.map_or(u32::MAX, |limit| limit.most);
        let mut turns = 0;
        while group.is_some_and(|group| self.groups.ask(&group, now) >= most) {
            // States of the group may have expired beyond those that this call removes.
            turns += 1;
            if turns > MOST_TURNS || !self.expire(now) {
                self.refusals.limit += 1;
                self.last_limit = Some((rule.number, most));
                return Err(Refused::Limit);
            }
        }
        let owned = self.sources.get(&from.address).copied().unwrap_or(0);
        if times.per_source > 0 && owned >= times.per_source {
            self.refusals.source += 1;
            return Err(Refused::Source);
        }
        if self.index.len() >= times.most as usize {
            let lists = UNANSWERED.map(|phase| self.lists[phase as usize]);
            let unanswered: usize = lists.iter().map(|list| list.len).sum();
            let [mut longest, ..] = lists;
            for list in lists {
                if list.len > longest.len {
                    longest = list;
                }
            }
            if unanswered <= times.most as usize / 2 {
                self.refusals.full += 1;
                return Err(Refused::Full);
            }
            self.refusals.evicted += 1;
            self.remove(longest.head);
        }
        let state = State {
            rule,
            from,
            to,
            proto: headers.proto,
            name,
            expires: now,
            packets: 0,
            bytes: 0,
            arg: 0,
            flags: [0; 2],
            has_sent: [false; 2],
            phase: Phase::Other,
            group,
        };
        let place = self.insert(state);
        self.index.insert(key, place);
        self.count(place, headers, now);
        *self.sources.entry(from.address).or_default() += 1;
        if let Some(group) = group {
            self.groups.enter(group, now);
        }
        Ok(())
    }

    /// Stores the value of a table with the state that `rule` has for the flow of a packet. The packets of
    /// the other direction cannot ask the table: their ends are exchanged.
    pub fn remember(&mut self, headers: &Headers, rule: RuleId, name: u32, arg: u32) {
        if let Some(place) = self.index.get(&StateKey::of(headers, name)) {
            let state = &mut self.places[*place as usize].state;
            if state.rule == rule {
                state.arg = arg;
            }
        }
    }

    /// Removes the states that rules created which are gone. `gone` is sorted.
    pub fn forget_rules(&mut self, gone: &[RuleId]) {
        if gone.is_empty() {
            return;
        }
        let places = self.index.values().copied();
        let of_rules: Vec<u32> = places
            .filter(|place| gone.binary_search(&self.state(*place).rule).is_ok())
            .collect();
        of_rules.into_iter().for_each(|place| self.remove(place));
    }

    /// Returns the states in the order of their keys: those alive at `now`, and expired ones on
    /// request.
    pub fn list(&self, now: Time, has_expired: bool) -> Vec<&State> {
        let mut all: Vec<(&StateKey, &State)> = self
            .index
            .iter()
            .map(|(key, place)| (key, self.state(*place)))
            .filter(|(_, state)| has_expired || state.expires > now)
            .collect();
        all.sort_by_key(|(key, _)| **key);
        all.into_iter().map(|(_, state)| state).collect()
    }

    /// Returns the groups of `limit` that listed states belong to, in order.
    pub fn groups_of(&self, listed: &[&State]) -> Vec<ListedGroup> {
        let lifetime = Span::from_secs(u64::from(self.times.short));
        self.groups.of_listed(listed, lifetime)
    }

    fn state(&self, place: u32) -> &State {
        visit();
        &self.places[place as usize].state
    }

    /// Removes states that have expired, at most [`EXPIRED_AT_ONCE`]. Returns whether there were
    /// any.
    fn expire(&mut self, now: Time) -> bool {
        let mut left = EXPIRED_AT_ONCE;
        for phase in 0..PHASES {
            while left > 0 {
                let head = self.lists[phase].head;
                if head == NONE || self.state(head).expires > now {
                    break;
                }
                self.remove(head);
                left -= 1;
            }
        }
        left < EXPIRED_AT_ONCE
    }

    /// Counts a packet of a state's flow and restarts the lifetime.
    fn count(&mut self, place: u32, headers: &Headers, now: Time) {
        self.unlink(place);
        let state = &mut self.places[place as usize].state;
        state.count(headers, self.wire_packets);
        state.expires = now.saturating_add(self.times.of(state.phase));
        self.append(place);
    }

    /// Applies changed lifetimes. No state then lives longer than a new one, so that each list stays
    /// in the order in which its states expire.
    fn set_times(&mut self, times: &Lifetimes, now: Time) {
        if self.times == *times {
            return;
        }
        self.times = *times;
        for place in self.index.values() {
            let state = &mut self.places[*place as usize].state;
            state.expires = state.expires.min(now.saturating_add(times.of(state.phase)));
        }
    }

    fn insert(&mut self, state: State) -> u32 {
        let place = self.free;
        if place == NONE {
            let new = Place {
                state,
                previous: NONE,
                next: NONE,
            };
            self.places.push(new);
            let place = self.places.len() as u32 - 1;
            self.append(place);
            return place;
        }
        self.free = self.places[place as usize].next;
        self.places[place as usize].state = state;
        self.append(place);
        place
    }

    fn remove(&mut self, place: u32) {
        self.unlink(place);
        let state = self.state(place).clone();
        self.places[place as usize].next = self.free;
        self.free = place;
        self.index.remove(&state.key());
        leave(&mut self.sources, &state.from.address);
        if let Some(group) = state.group {
            self.groups.leave(&group);
        }
    }

    /// Appends a place to the list of its phase.
    fn append(&mut self, place: u32) {
        let list = &mut self.lists[self.places[place as usize].state.phase as usize];
        let tail = list.tail;
        list.tail = place;
        list.len += 1;
        if tail == NONE {
            list.head = place;
        } else {
            self.places[tail as usize].next = place;
        }
        let at = &mut self.places[place as usize];
        (at.previous, at.next) = (tail, NONE);
    }

    fn unlink(&mut self, place: u32) {
        let Place {
            ref state,
            previous,
            next,
        } = self.places[place as usize];
        let list = &mut self.lists[state.phase as usize];
        list.len -= 1;
        match previous {
            NONE => list.head = next,
            _ => self.places[previous as usize].next = next,
        }
        match next {
            NONE => list.tail = previous,
            _ => self.places[next as usize].previous = previous,
        }
    }
}

/// The most states that expire with one packet. A flood of short-lived states expires at one
/// instant, and later packets must not wait until all of them are removed.
const EXPIRED_AT_ONCE: usize = 64;
/// How many times as many expire for a packet whose group of a `limit` is full. If states of the group are
/// behind all of these, the packet is refused, and a later one finds room.
const MOST_TURNS: usize = 64;

impl List {
    const EMPTY: List = List {
        head: NONE,
        tail: NONE,
        len: 0,
    };
}

/// Counts one state less of an address.
fn leave(counts: &mut Map<IpAddr, u32>, address: &IpAddr) {
    if let Some(count) = counts.get_mut(address) {
        *count -= 1;
        if *count == 0 {
            counts.remove(address);
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
    fn of(headers: &Headers, name: u32) -> Self {
        let (from, to) = ends(headers);
        StateKey::between(from, to, headers.proto, name)
    }

    fn between(from: End, to: End, proto: u8, name: u32) -> Self {
        StateKey {
            low: from.min(to),
            high: from.max(to),
            proto,
            name,
        }
    }
}

impl State {
    /// Whether `limit` has created the state, and not `keep-state`.
    pub const fn is_limited(&self) -> bool {
        self.group.is_some()
    }

    fn key(&self) -> StateKey {
        StateKey::between(self.from, self.to, self.proto, self.name)
    }

    fn count(&mut self, headers: &Headers, wire_packets: u16) {
        self.packets += u64::from(wire_packets);
        self.bytes += u64::from(headers.ip_len);
        let end = usize::from(ends(headers).0 != self.from);
        self.has_sent[end] = true;
        let is_answered = self.has_sent == [true; 2];
        self.phase = match headers.proto {
            TCP => {
                self.flags[end] |= headers.tcp_flags & (FIN | SYN | RST);
                let [there, back] = self.flags;
                if (there | back) & RST != 0 {
                    Phase::Reset
                } else if there & back & FIN != 0 {
                    Phase::Closed
                } else if there & back & SYN != 0 || ((there | back) & SYN == 0 && is_answered) {
                    Phase::Open
                } else {
                    Phase::HalfOpen
                }
            }
            UDP if is_answered => Phase::Udp,
            UDP => Phase::UdpUnanswered,
            _ if is_answered => Phase::Other,
            _ => Phase::OtherUnanswered,
        };
    }
}

/// The number of the word `:any`, which no state has as its name.
pub(super) const ANY: u32 = u32::MAX;

/// The names of states that a packet has looked up. As in ipfw, each name is looked up once per
/// packet; otherwise a state could send its packet in circles. [`ANY`] looks all names up.
#[derive(Default)]
pub(super) struct LookedUp {
    names: [u32; MOST_NAMES],
    count: usize,
}

/// The most different names that one packet looks up.
const MOST_NAMES: usize = 16;

impl LookedUp {
    /// Whether `name` is looked up for the first time.
    pub fn is_new(&mut self, name: u32) -> bool {
        let done = &self.names[..self.count];
        if self.count == MOST_NAMES || done.contains(&name) || done.contains(&ANY) {
            return false;
        }
        self.names[self.count] = name;
        self.count += 1;
        true
    }
}

#[cfg(test)]
mod tests;
