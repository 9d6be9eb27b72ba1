//! dummynet's bounds where those of Sluice are wider. dummynet silently clamps a value; Sluice uses
//! the value as written and warns. Under `compat` dummynet's bounds apply.

use sluice_core::param::{ParamDecl, Value};
use sluice_core::registry::Algorithm;

use super::parser::Parser;
use super::token::At;

/// dummynet's bounds of a share: least and largest.
struct ShareBounds {
    scheduler: &'static str,
    weight: (u32, u32),
    max_len: (u32, u32),
}

const SHARES: &[ShareBounds] = &[
    ShareBounds {
        scheduler: "wf2q+",
        weight: (1, 100),
        max_len: (0, u32::MAX),
    },
    ShareBounds {
        scheduler: "rr",
        weight: (1, 65536),
        max_len: (64, 2048),
    },
    ShareBounds {
        scheduler: "qfq",
        weight: (1, 65536),
        max_len: (1, 2000),
    },
];

/// A part of a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// `weight`.
    Weight,
    /// `lmax`.
    MaxLen,
}

/// Returns the weight or longest packet that dummynet would use.
pub(crate) fn share(scheduler: &str, part: Part, value: u32) -> u32 {
    let Some(bounds) = SHARES.iter().find(|b| b.scheduler == scheduler) else {
        return value;
    };
    let (low, high) = match part {
        Part::Weight => bounds.weight,
        Part::MaxLen => bounds.max_len,
    };
    value.clamp(low, high)
}

/// Checks a value that the declaration accepts against dummynet's bounds. A value outside gets a
/// warning and, under `compat`, is clamped.
pub(super) fn parameter(
    p: &mut Parser<'_>,
    algorithm: &Algorithm,
    decl: &ParamDecl,
    text: At<&str>,
    value: Value,
) -> Value {
    let taken = algorithm.dummynet_value(decl, value);
    if taken == value {
        return value;
    }
    let (name, text, at) = (decl.name, text.value, text.at);
    if p.compat {
        p.warn(
            at,
            format!("`{name} {text}` is outside dummynet's bounds: {taken} is used"),
        );
        return taken;
    }
    p.warn(
        at,
        format!("`{name} {text}` is honoured; dummynet would take {taken}"),
    );
    value
}
