//! dummynet's bounds of parameters, where Sluice's are wider.
//!
//! dummynet silently clamps a value to its bounds. Sluice accepts the value and warns.

use super::Algorithm;
use crate::param::{ParamDecl, Value};
use crate::units::{Bytes, Span};

const US: u64 = 1_000;
const S: u64 = 1_000_000_000;

/// Algorithm, parameter, smallest and largest value. Times are in nanoseconds.
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

impl Algorithm {
    /// Returns the value that dummynet would use if `value` is given for `decl`.
    ///
    /// ```
    /// use sluice_core::{Span, param::Value, registry};
    /// let codel = registry::find("codel").unwrap();
    /// let target = codel.params().find(|decl| decl.name == "target").unwrap();
    /// let seconds = |n| Value::Span(Span::from_secs(n));
    /// assert_eq!(codel.dummynet_value(target, seconds(7)), seconds(5));
    /// assert_eq!(codel.dummynet_value(target, seconds(3)), seconds(3));
    /// ```
    pub fn dummynet_value(&self, decl: &ParamDecl, value: Value) -> Value {
        let is_this = |(a, n, ..): &&(&str, &str, u64, u64)| *a == self.name && *n == decl.name;
        let Some((.., low, high)) = BOUNDS.iter().find(is_this) else {
            return value;
        };
        match value {
            Value::Span(span) => Value::Span(Span::from_ns(span.as_ns().clamp(*low, *high))),
            Value::Bytes(bytes) => Value::Bytes(Bytes::new(bytes.as_u64().clamp(*low, *high))),
            Value::Count(count) => Value::Count(count.clamp(*low, *high)),
            other => other,
        }
    }
}
