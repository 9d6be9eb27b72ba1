//! `--workers`: the loops of a router.

use std::str::FromStr;

use sluice_router::process::MOST_WORKERS;

use crate::number::whole;

/// How the work is shared among loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workers {
    /// Flows are spread over this number of loops.
    Number(usize),
    /// Each bridge has a loop of its own.
    PerBridge,
}

impl FromStr for Workers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "per-bridge" {
            return Ok(Workers::PerBridge);
        }
        let number = whole(1..=MOST_WORKERS)(text).map(Workers::Number);
        number.map_err(|expected| format!("{expected}, or per-bridge"))
    }
}
