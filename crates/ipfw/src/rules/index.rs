//! An index over the rules: which of them can match a flow at all.
//!
//! Large rule sets name one host, network, port or protocol in most rules. Each rule is filed under
//! one such value that a flow must have; the first packet of a flow then evaluates the rules filed
//! under the flow's own values, and those that name no such value. A rule that the index leaves out
//! cannot match the flow.
//!
//! A rule with states looks them up for every flow, also where it does not match, but only the first
//! lookup of a name has an effect. So from each place at which a packet enters the rules, only the first
//! rules with a name are needed for their lookups ([`Lookups`]); the others are filed like all rules.

use std::net::IpAddr;

use super::Entry;
use super::compiled::Test;
use crate::flow::v6_mask;
use crate::grammar::{Action, Target};
use crate::hash::{KeyedHash, Map};
use crate::matching::flow_fields::FlowFields;
use crate::matching::{Hosts, PortRanges};
use crate::options::FlowQuestion;
use crate::visits::visit;
use crate::words::address::{Net, v4_mask};
use crate::words::argument::Protocol;

/// A value that a flow must have for a rule to match.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Key {
    /// The source, or else the destination, under a mask.
    Host(End, Mask, u128),
    Port(End, u16),
    Protocol(u8),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum End {
    Source,
    Destination,
}

/// The bits of an address that a network fixes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Mask {
    is_v6: bool,
    bits: u128,
}

/// A rule is filed under at most this many values of one condition.
const MOST_KEYS: usize = 16;
/// A flow is looked up under at most this many masks at each end. Rules with further masks are
/// evaluated for each flow. IPv4 has 32 masks without gaps, IPv6 has 128.
const MOST_MASKS: usize = 48;

/// With more names of states than this, more places where packets may enter the rules, or more rules with
/// both states and `prob`, every flow evaluates all rules with states.
const MOST_NAMES: usize = 16;
const MOST_PLACES: usize = 64;
const MOST_FOR_SOME: usize = 16;

/// The rules, filed by a value that they ask for.
pub(crate) struct Index {
    /// The rules that are filed under no value, one bit each.
    always: Vec<u64>,
    filed: Map<Key, Vec<u32>>,
    /// The masks in use, by end.
    masks: [Vec<Mask>; 2],
    /// The rules that look up states, in case their lookups are not all needed.
    pub(super) lookups: Option<Lookups>,
    /// Where a known state may continue, see [`super::program`].
    pub(super) resumptions: Vec<u32>,
}

/// The rules that look up states, a list for each name.
pub(super) struct Lookups {
    by_name: Vec<Vec<u32>>,
}

impl Index {
    /// Files the rules, without the lookups of those in disabled sets. `resumptions` has each place once.
    pub(super) fn new(
        entries: &[Entry],
        disabled_sets: u32,
        resumptions: Vec<u32>,
        hash: KeyedHash,
    ) -> Self {
        let mut masks = [Vec::new(), Vec::new()];
        let lookups = Lookups::new(entries, disabled_sets, resumptions.len());
        // The conditions of each rule that it could be filed under.
        let choices: Vec<Vec<Vec<Key>>> = entries
            .iter()
            .map(|entry| match &lookups {
                None if entry.state.is_some() => Vec::new(),
                _ => choices(entry, &mut masks),
            })
            .collect();
        let mut sizes: Map<Key, u32> = Map::with_hasher(hash);
        for key in choices.iter().flatten().flatten() {
            *sizes.entry(*key).or_default() += 1;
        }
        let mut index = Index {
            always: vec![0; words(entries.len())],
            filed: Map::with_hasher(hash),
            masks,
            lookups,
            resumptions,
        };
        for (rule, choices) in choices.into_iter().enumerate() {
            // Under the condition that it shares with the fewest other rules.
            let shared = |keys: &Vec<Key>| keys.iter().map(|key| sizes[key]).max();
            match choices.into_iter().min_by_key(shared) {
                Some(keys) => {
                    for key in keys {
                        index.filed.entry(key).or_default().push(rule as u32);
                    }
                }
                None => set(&mut index.always, rule),
            }
        }
        index
    }

    /// Writes the rules that may match a flow into `rules`, one bit each.
    pub(super) fn find(&self, flow: &FlowFields, rules: &mut Vec<u64>) {
        rules.clone_from(&self.always);
        let mut add = |key: Key| {
            visit();
            for rule in self.filed.get(&key).into_iter().flatten() {
                set(rules, *rule as usize);
            }
        };
        add(Key::Protocol(flow.proto));
        for (end, address) in [(End::Source, flow.src), (End::Destination, flow.dst)] {
            let (is_v6, bits) = bits_of(address);
            for mask in self.masks[end as usize].iter().filter(|m| m.is_v6 == is_v6) {
                add(Key::Host(end, *mask, bits & mask.bits));
            }
        }
        if let Some((src, dst)) = flow.ports {
            add(Key::Port(End::Source, src));
            add(Key::Port(End::Destination, dst));
        }
    }
}

impl Lookups {
    /// Returns `None` if there are none, and also if packets may enter the rules at many places, if many
    /// rules with states have `prob`, or if there are many names: then many lookups are needed, and every
    /// flow evaluates all rules with states.
    fn new(entries: &[Entry], disabled_sets: u32, resumptions: usize) -> Option<Self> {
        let (mut names, mut by_name) = (Vec::new(), Vec::<Vec<u32>>::new());
        let (mut places, mut for_some) = (resumptions, 0);
        for (rule, entry) in entries.iter().enumerate() {
            if entry.is_disabled(disabled_sets) {
                continue;
            }
            match entry.rule.action {
                Action::SkipTo(Target::TableArg) | Action::Call(Target::TableArg) => return None,
                Action::SkipTo(_) | Action::Call(_) => places += 1,
                _ => {}
            }
            let Some(name) = entry.state else {
                continue;
            };
            for_some += usize::from(!entry.is_for_all());
            match names.iter().position(|known| *known == name) {
                Some(place) => by_name[place].push(rule as u32),
                None if names.len() == MOST_NAMES => return None,
                None => {
                    names.push(name);
                    by_name.push(vec![rule as u32]);
                }
            }
        }
        let are_few = places <= MOST_PLACES && for_some <= MOST_FOR_SOME;
        (are_few && !names.is_empty()).then_some(Lookups { by_name })
    }

    /// Adds all rules with states to `candidates`, one bit each.
    pub(super) fn add_all(&self, candidates: &mut [u64]) {
        for rule in self.by_name.iter().flatten() {
            set(candidates, *rule as usize);
        }
    }

    /// Writes into `rules` those whose lookups a packet may need that enters the rules at `from`: for
    /// each name, the rules up to the first that looks it up for every packet.
    pub(super) fn find(&self, entries: &[Entry], from: u32, rules: &mut Vec<u32>) {
        rules.clear();
        for of_name in &self.by_name {
            let first = of_name.partition_point(|rule| *rule < from);
            for rule in &of_name[first..] {
                visit();
                rules.push(*rule);
                if entries[*rule as usize].is_for_all() {
                    break;
                }
            }
        }
        rules.sort_unstable();
    }
}

/// The conditions that a rule could be filed under, each with all values that fulfil it.
fn choices(entry: &Entry, masks: &mut [Vec<Mask>; 2]) -> Vec<Vec<Key>> {
    // It matches no packet, but looks up states.
    if matches!(entry.rule.action, Action::CheckState(_)) {
        return vec![Vec::new()];
    }
    let tests = entry.compiled.constant.iter();
    let questions = tests.filter_map(|test| match test {
        Test::One(question) => Some(question),
        Test::Not(_) | Test::Any(_) => None,
    });
    questions
        .filter_map(|question| match question {
            FlowQuestion::Protocol(Protocol::Number(n)) => Some(vec![Key::Protocol(*n)]),
            FlowQuestion::Source(hosts) => host_keys(End::Source, hosts, masks),
            FlowQuestion::Destination(hosts) => host_keys(End::Destination, hosts, masks),
            FlowQuestion::SourcePort(ports) => port_keys(End::Source, ports),
            FlowQuestion::DestinationPort(ports) => port_keys(End::Destination, ports),
            // Any other condition only makes the index less selective.
            _ => None,
        })
        .collect()
}

fn host_keys(end: End, hosts: &Hosts, masks: &mut [Vec<Mask>; 2]) -> Option<Vec<Key>> {
    let nets = match hosts {
        Hosts::Net(net) => std::slice::from_ref(net),
        Hosts::Nets(nets) if nets.len() <= MOST_KEYS => nets,
        _ => return None,
    };
    let keys: Vec<(Mask, u128)> = nets.iter().map(mask_of).collect();
    let known = &mut masks[end as usize];
    for (mask, _) in &keys {
        if !known.contains(mask) {
            if known.len() == MOST_MASKS {
                return None;
            }
            known.push(*mask);
        }
    }
    let keys = keys.into_iter();
    Some(
        keys.map(|(mask, bits)| Key::Host(end, mask, bits))
            .collect(),
    )
}

fn port_keys(end: End, ports: &PortRanges) -> Option<Vec<Key>> {
    let mut keys = Vec::new();
    for port in ports.ranges().flat_map(|(low, high)| low..=high) {
        if keys.len() == MOST_KEYS {
            return None;
        }
        keys.push(Key::Port(end, port));
    }
    Some(keys)
}

/// The mask of a network, and the bits that its addresses have under it.
fn mask_of(net: &Net) -> (Mask, u128) {
    let v4 = |mask: u32| Mask {
        is_v6: false,
        bits: u128::from(mask),
    };
    match net {
        Net::V4 { address, mask } => (v4(*mask), u128::from(address.to_bits())),
        Net::Set { base, len, .. } => (v4(v4_mask(*len)), u128::from(base.to_bits())),
        Net::V6 { address, len } => {
            let bits = v6_mask(*len);
            (Mask { is_v6: true, bits }, address.to_bits())
        }
    }
}

fn bits_of(address: IpAddr) -> (bool, u128) {
    match address {
        IpAddr::V4(v4) => (false, u128::from(v4.to_bits())),
        IpAddr::V6(v6) => (true, v6.to_bits()),
    }
}

/// The number of words that hold a bit for each of `rules`.
const fn words(rules: usize) -> usize {
    rules.div_ceil(64)
}

fn set(bits: &mut [u64], rule: usize) {
    bits[rule / 64] |= 1 << (rule % 64);
}

/// Writes that all of `count` rules may match.
pub(super) fn all(count: usize, rules: &mut Vec<u64>) {
    rules.clear();
    rules.resize(words(count), u64::MAX);
    if let Some(last) = rules.last_mut().filter(|_| !count.is_multiple_of(64)) {
        *last = (1 << (count % 64)) - 1;
    }
}

/// Returns the first rule from `from` on that may match.
pub(super) fn next(rules: &[u64], from: usize) -> Option<usize> {
    let mut word = from / 64;
    let mut bits = rules.get(word)? & u64::MAX << (from % 64);
    while bits == 0 {
        word += 1;
        bits = *rules.get(word)?;
    }
    Some(word * 64 + bits.trailing_zeros() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_rules_follow_each_other() {
        for count in [0, 1, 63, 64, 65, 200] {
            let mut rules = Vec::new();
            all(count, &mut rules);
            let mut found = Vec::new();
            let mut from = 0;
            while let Some(rule) = next(&rules, from) {
                found.push(rule);
                from = rule + 1;
            }
            assert_eq!(found, (0..count).collect::<Vec<_>>());
        }
    }
}
