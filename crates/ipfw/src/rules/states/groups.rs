//! The groups by which `limit` counts states.
//!
//! As in ipfw, the states of a group have the protocol and the version of IP in common, beside the
//! fields that the rule names.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use sluice_core::units::{Span, Time};

use super::{End, State, ends};
use crate::grammar::StateLimit;
use crate::hash::{KeyedHash, Map};
use crate::headers::Headers;
use crate::rules::RuleId;

/// What the states of a group have in common. Fields that the rule does not name are unspecified
/// addresses, and ports of 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Group {
    pub rule: RuleId,
    pub from: End,
    pub to: End,
    pub proto: u8,
}

/// The groups that have states.
#[derive(Clone, Debug)]
pub(super) struct Groups {
    pub members: Map<Group, Members>,
}

/// The states of a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Members {
    count: u32,
    /// When a packet last asked for a state of the group.
    asked: Time,
}

/// A group with states that are listed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListedGroup {
    pub group: Group,
    /// The number of the name of its states.
    pub name: u32,
    /// The number of its states that are listed.
    pub states: u32,
    /// Until when ipfw keeps the group without states.
    pub expires: Time,
}

impl Group {
    pub(super) fn of(headers: &Headers, rule: RuleId, limit: &StateLimit) -> Self {
        let part = |end: End, has_address: bool, has_port: bool| End {
            address: match end.address {
                address if has_address => address,
                IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
                IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
            },
            port: if has_port { end.port } else { 0 },
        };
        let (from, to) = ends(headers);
        Group {
            rule,
            from: part(from, limit.by_source, limit.by_source_port),
            to: part(to, limit.by_destination, limit.by_destination_port),
            proto: headers.proto,
        }
    }
}

impl Groups {
    pub fn new(hash: KeyedHash) -> Self {
        Groups {
            members: Map::with_hasher(hash),
        }
    }

    /// Returns the number of states of a group for which a packet asks for one.
    pub fn ask(&mut self, group: &Group, now: Time) -> u32 {
        self.members.get_mut(group).map_or(0, |members| {
            members.asked = now;
            members.count
        })
    }

    /// Counts a new state of a group.
    pub fn enter(&mut self, group: Group, now: Time) {
        let none = Members {
            count: 0,
            asked: now,
        };
        self.members.entry(group).or_insert(none).count += 1;
    }

    /// Counts one state less of a group.
    pub fn leave(&mut self, group: &Group) {
        if let Some(members) = self.members.get_mut(group) {
            members.count -= 1;
            if members.count == 0 {
                self.members.remove(group);
            }
        }
    }

    /// Adds the groups of other flows, to be shown.
    pub fn absorb(&mut self, other: &Groups) {
        for (group, more) in &other.members {
            let own = self.members.entry(*group).or_insert(Members {
                count: 0,
                asked: more.asked,
            });
            own.count += more.count;
            own.asked = own.asked.max(more.asked);
        }
    }

    /// Returns the groups of states that are listed, in order. ipfw keeps a group for `lifetime` after
    /// a packet has asked for a state of it, and for as long as it has states.
    pub fn of_listed(&self, states: &[&State], lifetime: Span) -> Vec<ListedGroup> {
        let mut groups: BTreeMap<Group, ListedGroup> = BTreeMap::new();
        for state in states {
            let Some(group) = state.group else {
                continue;
            };
            let asked = self.members.get(&group).map(|members| members.asked);
            let listed = groups.entry(group).or_insert(ListedGroup {
                group,
                name: state.name,
                states: 0,
                expires: asked.unwrap_or_default().saturating_add(lifetime),
            });
            listed.states += 1;
        }
        groups.into_values().collect()
    }
}
