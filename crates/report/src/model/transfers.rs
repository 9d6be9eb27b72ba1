//! The transfers and pages of a flow.

use serde::Serialize;
#[cfg(test)]
use {serde::Deserialize, ts_rs::TS};

use super::{Direction, Quantiles};

/// The transfers or pages of a flow of the scenario; of one with a `count`, those of all its flows.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize, TS), serde(deny_unknown_fields))]
pub struct Transfers {
    /// Name in the scenario; of many flows together, their number.
    pub name: String,
    /// Whether they are pages.
    pub is_pages: bool,
    /// The direction of their payload.
    #[cfg_attr(test, ts(type = "Direction"))]
    pub direction: Direction,
    /// Quantiles of the completion times, with the ages of those open ones that have lasted longer than
    /// all that are complete; the number is that of the complete ones. `None` if none was complete.
    pub completion_ms: Option<Quantiles>,
    /// Number of those that had begun and were not complete at the end; `None` if it is not known.
    pub open: Option<u64>,
}
