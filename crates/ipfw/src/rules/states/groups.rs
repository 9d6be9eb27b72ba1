//! The groups by which `limit` counts states.
//!
//! As in ipfw, the states of a group have the protocol and the version of IP in common, beside the
//! fields that the rule names.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{End, ends};
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

/// The number of states of each group that has some.
#[derive(Clone, Debug)]
pub(super) struct Groups {
    pub counts: Map<Group, u32>,
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
            counts: Map::with_hasher(hash),
        }
    }

    /// Returns the number of states of a group.
    pub fn count(&self, group: &Group) -> u32 {
        self.counts.get(group).copied().unwrap_or(0)
    }

    /// Counts a new state of a group.
    pub fn enter(&mut self, group: Group) {
        *self.counts.entry(group).or_default() += 1;
    }
}
