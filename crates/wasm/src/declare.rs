//! The declarations of a module: the text in its custom section.
//!
//! ```text
//! abi 1
//! doc drops packets that waited too long
//! param bound span 50ms 1us 10s delay that a packet may have
//! param ecn flag off mark ECN-capable packets instead of dropping them
//! var dropping flag
//! ```

use sluice_core::event::StateValue;
use sluice_core::param::{Kind, ParamDecl, Ratio, Value};
use sluice_core::units::{Span, Time};

use crate::abi;

/// The declarations of a module.
#[derive(Debug)]
pub struct Declared {
    /// One line of documentation.
    pub doc: String,
    /// The parameters, in the order of their numbers.
    pub params: Vec<ParamDecl>,
    /// The variables, in the order of their numbers.
    pub variables: Vec<(&'static str, VariableKind)>,
}

/// The kind of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VariableKind {
    /// A count.
    Count,
    /// An instant in nanoseconds.
    Time,
    /// A length of time in nanoseconds.
    Span,
    /// A ratio in billionths.
    Ratio,
    /// 0 or 1.
    Flag,
}

impl VariableKind {
    /// Returns a number of the module as a value of this kind.
    pub fn value(self, number: i64) -> StateValue {
        let number = number.max(0) as u64;
        match self {
            VariableKind::Count => StateValue::Count(number),
            VariableKind::Time => StateValue::Time(Time::from_ns(number)),
            VariableKind::Span => StateValue::Span(Span::from_ns(number)),
            VariableKind::Ratio => StateValue::Ratio(Ratio::from_billionths(number).as_f64()),
            VariableKind::Flag => StateValue::Flag(number != 0),
        }
    }
}

/// Returns a value as the number that a module receives: nanoseconds, bits per second, bytes,
/// billionths, 0 or 1. Values that are unlimited or beyond the range become the largest number.
pub fn number(value: Value) -> i64 {
    let number = match value {
        Value::Span(span) => span.as_ns(),
        Value::Rate(rate) => rate.as_bps(),
        Value::Bytes(bytes) => bytes.as_u64(),
        Value::Count(count) => count,
        Value::Ratio(ratio) => ratio.as_billionths(),
        Value::Flag(is_on) => u64::from(is_on),
        Value::Choice(_) => 0,
    };
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Parses the text of the custom section.
///
/// # Errors
/// Returns the line that is wrong, and what would be right.
pub fn parse(bytes: &[u8]) -> Result<Declared, String> {
    if bytes.len() > LONGEST {
        let len = bytes.len();
        return Err(format!(
            "its declarations have {len} bytes, more than {LONGEST}"
        ));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| "its declarations are not UTF-8")?;
    // A C string ends with a zero.
    let mut lines = text.trim_end_matches('\0').lines();
    let first = lines.next().unwrap_or_default();
    let version = first.strip_prefix("abi ").map(str::trim);
    match version.map(str::parse::<u32>) {
        Some(Ok(abi::VERSION)) => {}
        Some(Ok(other)) => {
            return Err(format!(
                "it was made for version {other} of the interface; this program has version {}: \
                 build it with the header of this version, which `sluice new aqm` writes",
                abi::VERSION
            ));
        }
        _ => {
            let right = abi::VERSION;
            return Err(format!(
                "its declarations begin with `{first}` instead of `abi {right}`"
            ));
        }
    }
    let (mut doc, mut params, mut variables) = ("", Vec::new(), Vec::new());
    for line in lines.map(str::trim).filter(|line| !line.is_empty()) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "doc" => doc = rest.trim(),
            "param" => params.push(param(rest).map_err(|why| format!("`{line}`: {why}"))?),
            "var" => variables.push(variable(rest).map_err(|why| format!("`{line}`: {why}"))?),
            _ => return Err(format!("`{line}` begins with none of doc, param, var")),
        }
    }
    // Everything is checked before anything is leaked.
    let params = params.into_iter().map(|param| ParamDecl {
        name: param.name.to_owned().leak(),
        kind: param.kind,
        default: param.default,
        range: param.range,
        doc: param.doc.to_owned().leak(),
        source: "the module",
    });
    let variables = variables.into_iter();
    let variables = variables.map(|(name, kind)| (&*name.to_owned().leak(), kind));
    Ok(Declared {
        doc: doc.to_owned(),
        params: params.collect(),
        variables: variables.collect(),
    })
}

struct Param<'a> {
    name: &'a str,
    kind: Kind,
    default: Value,
    range: Option<(Value, Value)>,
    doc: &'a str,
}

/// Parses `NAME flag DEFAULT DOC` or `NAME KIND DEFAULT LOW HIGH DOC`.
fn param(text: &str) -> Result<Param<'_>, String> {
    let mut rest = text;
    let mut next = |what: &str| {
        rest = rest.trim_start();
        let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = after;
        match word {
            "" => Err(format!("{what} is missing")),
            word => Ok(word),
        }
    };
    let name = next("the name")?;
    check_name(name)?;
    let kind = match next("the kind")? {
        "span" => Kind::Span,
        "rate" => Kind::Rate,
        "bytes" => Kind::Bytes,
        "count" => Kind::Count,
        "ratio" => Kind::Ratio,
        "flag" => Kind::Flag,
        other => {
            return Err(format!(
                "`{other}` is none of span, rate, bytes, count, ratio, flag"
            ));
        }
    };
    let value = |text: &str| kind.parse(text).map_err(|why| format!("`{text}`: {why}"));
    let default = value(next("the default")?)?;
    let range = match kind {
        Kind::Flag => None,
        _ => Some((
            value(next("the least value")?)?,
            value(next("the largest value")?)?,
        )),
    };
    if range.is_some_and(|(low, high)| low > default || default > high) {
        return Err("the default is outside the range".to_owned());
    }
    Ok(Param {
        name,
        kind,
        default,
        range,
        doc: rest.trim(),
    })
}

fn variable(text: &str) -> Result<(&str, VariableKind), String> {
    let (name, kind) = text.split_once(' ').unwrap_or((text, ""));
    check_name(name)?;
    let kind = match kind.trim() {
        "count" => VariableKind::Count,
        "time" => VariableKind::Time,
        "span" => VariableKind::Span,
        "ratio" => VariableKind::Ratio,
        "flag" => VariableKind::Flag,
        other => {
            return Err(format!(
                "`{other}` is none of count, time, span, ratio, flag"
            ));
        }
    };
    Ok((name, kind))
}

fn check_name(name: &str) -> Result<(), String> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    match name.starts_with(|c: char| c.is_ascii_lowercase()) && name.chars().all(is_plain) {
        true => Ok(()),
        false => Err(format!(
            "`{name}` is not a name: a-z, 0-9 and _ after a letter"
        )),
    }
}

/// Bytes of the longest text.
const LONGEST: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_have_kind_default_range_and_documentation() {
        let text = b"abi 1\ndoc a test\nparam bound span 50ms 1us 10s delay of a packet\nparam ecn flag off\nvar p ratio\n\0";
        let declared = parse(text).unwrap();
        assert_eq!(declared.doc, "a test");
        let [bound, ecn] = declared.params.as_slice() else {
            panic!("two parameters");
        };
        let span = |ns| Value::Span(Span::from_ns(ns));
        assert_eq!(
            (bound.name, bound.kind, bound.doc),
            ("bound", Kind::Span, "delay of a packet")
        );
        assert_eq!(bound.default, span(50_000_000));
        assert_eq!(bound.range, Some((span(1_000), span(10_000_000_000))));
        assert_eq!((ecn.kind, ecn.default), (Kind::Flag, Value::Flag(false)));
        assert_eq!(declared.variables, [("p", VariableKind::Ratio)]);
    }

    #[test]
    fn a_wrong_line_is_named_with_what_would_be_right() {
        let error = |text: &str| parse(text.as_bytes()).unwrap_err();
        let foreign = error("abi 2\n");
        assert!(
            foreign.starts_with(
                "it was made for version 2 of the interface; this program has version 1"
            )
        );
        assert!(error("").ends_with("instead of `abi 1`"));
        assert!(error("abi 1\nparam a time 1 2 3").contains("`time` is none of span"));
        assert!(error("abi 1\nparam a span 5q 1us 1s").contains("`5q`"));
        assert!(error("abi 1\nparam a count 5 6 7").ends_with("the default is outside the range"));
        assert!(error("abi 1\nparam A count 5 6 7").contains("`A` is not a name"));
        assert!(error("abi 1\nparam a count 5 6").ends_with("the largest value is missing"));
        assert!(error("abi 1\nfoo").contains("none of doc, param, var"));
    }
}
