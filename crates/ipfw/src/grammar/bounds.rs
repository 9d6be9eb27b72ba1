//! dummynet's bounds where those of Sluice are wider. dummynet silently clamps a value; Sluice uses
//! the value as written and warns. Under `compat` dummynet's bounds apply.

use sluice_core::param::{ParamDecl, Value};
use sluice_core::registry::Algorithm;
use sluice_core::units::{Bytes, Span};

use super::parser::Parser;
use super::token::At;

const US: u64 = 1_000;
const S: u64 = 1_000_000_000;

/// Algorithm, parameter, least and largest value: times in nanoseconds.
const BOUNDS: &[(&str, &str, u64, u64)] = &[
    ("codel", "target", US, 5 * S),
    ("codel", "interval", US, 5 * S),
    ("fq_codel", "target", US, 5 * S),
    ("fq_codel", "interval", US, 100 * S),
    ("fq_codel", "quantum", 1, 9000),
    ("fq_codel", "limit", 1, 20480),
    ("fq_codel", "flows", 1, 65536),
    ("pie", "target", US, 10 * S),
    ("pie", "tupdate", US, 10 * S),
    ("pie", "max_burst", 0, 10 * S),
    ("fq_pie", "target", US, 5 * S),
    ("fq_pie", "tupdate", US, 5 * S),
    ("fq_pie", "max_burst", 0, 5 * S),
    ("fq_pie", "quantum", 1, 9000),
    ("fq_pie", "limit", 1, 20480),
    ("fq_pie", "flows", 1, 65536),
];

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
    let is_this = |(a, n, ..): &&(&str, &str, u64, u64)| *a == algorithm.name && *n == decl.name;
    let Some((_, name, low, high)) = BOUNDS.iter().find(is_this) else {
        return value;
    };
    let (amount, make): (u64, fn(u64) -> Value) = match value {
        Value::Span(span) => (span.as_ns(), |n| Value::Span(Span::from_ns(n))),
        Value::Bytes(bytes) => (bytes.as_u64(), |n| Value::Bytes(Bytes::new(n))),
        Value::Count(count) => (count, Value::Count),
        _ => return value,
    };
    let taken = make(amount.clamp(*low, *high));
    if taken == value {
        return value;
    }
    let (text, at) = (text.value, text.at);
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
