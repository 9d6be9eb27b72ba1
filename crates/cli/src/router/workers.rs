//! `--workers`: the loops of a router.

use std::str::FromStr;

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
        let number = text.parse().map(Workers::Number);
        number.map_err(|_| "expected a number, or per-bridge".to_owned())
    }
}
