//! The places of a flow and of its keys in the scenario.

use std::sync::Arc;

use super::super::error::Problems;
use super::super::tree::{Entry, Node, Table};

/// Where a scenario has a flow and its keys, for errors of a backend, which cannot be found when the
/// scenario is read. A recorded scenario has no places.
#[derive(Clone, Debug, Default)]
pub struct Places {
    flow: Option<String>,
    keys: Arc<[(String, String)]>,
}

impl PartialEq for Places {
    /// The place of a flow does not matter for equality.
    fn eq(&self, _other: &Self) -> bool {
        true
    }
}

impl Places {
    pub(super) fn of(flow: &Node, keys: &Table, problems: &Problems) -> Places {
        if problems.is_recording() {
            return Places::default();
        }
        let place = |entry: &Entry| Some((entry.key.clone(), problems.describe(&entry.node.at)?));
        Places {
            flow: problems.describe(&flow.at),
            keys: keys.0.iter().filter_map(place).collect(),
        }
    }

    /// Returns `file:line:column`, or the option, of the first of `keys` that the scenario gives; that
    /// of the flow if it gives none of them.
    pub fn first(&self, keys: &[&str]) -> Option<&str> {
        let given = |key: &&str| self.keys.iter().find(|(name, _)| name == key);
        let found = keys.iter().find_map(given).map(|(_, place)| place.as_str());
        found.or(self.flow.as_deref())
    }
}
