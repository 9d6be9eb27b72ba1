//! How much of a run is recorded.

use serde::{Deserialize, Serialize};

use super::cell::Row as _;
use super::rows::{FlowSample, PingSample, QueueSample, Transfer};

/// How much of a run is recorded; each level has all of the one before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Keep {
    /// The figures of the run.
    Figures,
    /// Also the samples of flows and queues, probes and transfers.
    Flows,
    /// Also every packet.
    #[default]
    Packets,
}

impl Keep {
    /// Every level, with its word.
    pub const ALL: [(Keep, &str); 3] = [
        (Keep::Figures, "figures"),
        (Keep::Flows, "flows"),
        (Keep::Packets, "packets"),
    ];

    /// Returns the word for it.
    pub fn word(self) -> &'static str {
        let named = Keep::ALL.into_iter().find(|(keep, _)| *keep == self);
        named.expect("every level has a word").1
    }

    /// Returns the level with the name `word`.
    ///
    /// # Errors
    /// The words that exist.
    pub fn from_word(word: &str) -> Result<Keep, String> {
        let named = Keep::ALL.into_iter().find(|(_, name)| *name == word);
        named.map(|(keep, _)| keep).ok_or_else(|| {
            let words = Keep::ALL.map(|(_, name)| name);
            format!("one of {}", words.join(", "))
        })
    }

    /// Returns the least level that has `table`.
    pub fn of_table(table: &str) -> Keep {
        let of_flows = [
            FlowSample::TABLE,
            QueueSample::TABLE,
            PingSample::TABLE,
            Transfer::TABLE,
        ];
        match of_flows.contains(&table) {
            true => Keep::Flows,
            false => Keep::Packets,
        }
    }

    /// Returns whether everything is recorded.
    pub(crate) fn is_everything(&self) -> bool {
        *self == Keep::Packets
    }
}
