//! The types of keys: how values are read and written, and how wrong ones are reported.

use std::convert::Infallible;
use std::fmt::{self, Display};

use sluice_core::param::{Kind, Ratio, Value as CoreValue, ValueError};
use sluice_core::registry::{Spec, SpecErrorKind};
use sluice_core::units::{Dimension, UnitError};
use sluice_core::{Bytes, Rate, Span};
use sluice_loader::Contained;

use super::error::{Problem, Problems};
use super::schema::Field;
use super::tree::{Node, Value};

/// A queue in the words of the ipfw grammar, such as `fq_codel target 5ms`.
#[derive(Clone, Debug)]
pub struct Queue(pub Spec);

impl PartialEq for Queue {
    fn eq(&self, other: &Self) -> bool {
        self.to_string() == other.to_string()
    }
}

impl Display for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A differentiated services codepoint (RFC 2474), 0 to 63.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dscp(u8);

impl Dscp {
    /// Returns the codepoint `n`, or `None` above 63.
    pub const fn new(n: u8) -> Option<Self> {
        if n < 64 { Some(Dscp(n)) } else { None }
    }

    /// Returns the codepoint as a number.
    pub const fn value(self) -> u8 {
        self.0
    }
}

/// The name of a flow: letters, digits, `_` and `-`. A connection of a recorded program is named
/// after an address, so its name may also contain `.`, `:` and brackets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name(pub String);

/// A word whose meaning another part of the program defines, such as the name of a congestion
/// control. Its place is kept for error messages of that part.
#[derive(Clone, Debug, Eq)]
pub struct Word(pub String, Option<String>);

impl Word {
    /// Creates a word that has no place.
    pub fn new(word: &str) -> Self {
        Word(word.to_owned(), None)
    }

    /// Returns `file:line:column` of the scenario, or the option; `None` for a default.
    pub fn place(&self) -> Option<&str> {
        self.1.as_deref()
    }
}

impl PartialEq for Word {
    /// The place of a word does not matter for equality.
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

/// Reports that `node` has the wrong type.
pub(crate) fn wrong_type(key: &str, node: &Node, expected: &str) -> Problem {
    Problem::new(
        node.at.clone(),
        format!("`{key}` takes {expected}, not {}", node.value.kind()),
    )
}

fn read_quantity<T>(
    key: &str,
    node: &Node,
    (article_kind, example): (&str, &str),
    dimension: Dimension,
    parse: fn(&str) -> Result<T, UnitError>,
    problems: &mut Problems,
) -> Option<T> {
    let units = || format!("units: {}", dimension.units().join(", "));
    let text = match &node.value {
        Value::Text(text) => text,
        Value::Integer(_) | Value::Float(_) => {
            return problems.refuse(
                Problem::new(node.at.clone(), format!("`{key}` has no unit"))
                    .hint(format!("write it as in \"{example}\"; {}", units())),
            );
        }
        _ => {
            let expected = format!("{article_kind} such as \"{example}\"");
            return problems.refuse(wrong_type(key, node, &expected));
        }
    };
    match parse(text) {
        Ok(value) => Some(value),
        Err(error) => {
            let at = node.within(0..text.len());
            let problem = match error {
                UnitError::NoUnit(_) => {
                    Problem::new(at, format!("`{key}` has no unit")).hint(units())
                }
                UnitError::UnknownUnit(_, meant) => {
                    let start = text
                        .find(|c: char| !c.is_ascii_digit() && !"._ ".contains(c))
                        .unwrap_or(0);
                    let unit = text[start..].trim_end();
                    let at = node.within(start..start + unit.len());
                    let hint = match meant {
                        Some(meant) => format!("did you mean `{meant}`?"),
                        None => units(),
                    };
                    let message = format!("`{unit}` is not a unit of {}", KindOf(dimension));
                    Problem::new(at, message).hint(hint)
                }
                UnitError::NotANumber(_) => {
                    Problem::new(at, format!("`{text}` is not {article_kind}"))
                        .hint(format!("write it as in \"{example}\""))
                }
                UnitError::TooLarge | UnitError::Zero | UnitError::Negative => {
                    Problem::new(at, format!("`{key}` cannot be {text}")).hint(error.to_string())
                }
            };
            problems.refuse(problem)
        }
    }
}

/// Returns whether a text is a number with a sign before it.
fn is_negative(text: &str) -> bool {
    let number = text.trim().strip_prefix('-');
    number.is_some_and(|number| number.starts_with(|c: char| c.is_ascii_digit() || c == '.'))
}

const NEGATIVE: &str = "must not be negative";

struct KindOf(Dimension);

impl Display for KindOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Dimension::Time => "time",
            Dimension::Rate => "rate",
            Dimension::Size => "size",
        })
    }
}

macro_rules! quantity {
    ($type:ty, $kind:literal, $example:literal, $dimension:ident, $show:expr) => {
        impl Field for $type {
            type Scalar = $type;
            const KIND: &'static str = $kind;

            fn read(key: &str, node: &Node, problems: &mut Problems) -> Option<Self> {
                let words = (concat!("a ", $kind), $example);
                read_quantity(
                    key,
                    node,
                    words,
                    Dimension::$dimension,
                    <$type>::parse,
                    problems,
                )
            }

            fn scalar(&self) -> Option<&$type> {
                Some(self)
            }

            fn write(&self) -> Option<Value> {
                Some(Value::Text($show(self)))
            }
        }
    };
}

/// Formats a span for users: an empty span is `0s`.
pub(crate) fn show_span(span: &Span) -> String {
    match *span {
        Span::ZERO => "0s".to_owned(),
        _ => span.to_string(),
    }
}

quantity!(Span, "time", "20ms", Time, show_span);
quantity!(Rate, "rate", "10Mbit/s", Rate, Rate::to_string);
quantity!(Bytes, "size", "64KiB", Size, Bytes::to_string);

impl Field for u64 {
    type Scalar = u64;
    const KIND: &'static str = "whole number";

    fn read(key: &str, node: &Node, problems: &mut Problems) -> Option<Self> {
        match node.value {
            Value::Integer(i) => u64::try_from(i)
                .map_err(|_| {
                    problems.push(
                        Problem::new(node.at.clone(), format!("`{key}` cannot be {i}"))
                            .hint(NEGATIVE),
                    );
                })
                .ok(),
            _ => problems.refuse(wrong_type(key, node, "a whole number")),
        }
    }

    fn scalar(&self) -> Option<&u64> {
        Some(self)
    }

    fn write(&self) -> Option<Value> {
        // Whole numbers are read from TOML's signed integers, so they fit.
        Some(Value::Integer(*self as i64))
    }
}

impl Field for Ratio {
    type Scalar = Infallible;
    const KIND: &'static str = "ratio";

    fn read(key: &str, node: &Node, problems: &mut Problems) -> Option<Self> {
        let parsed = match &node.value {
            Value::Text(text) => match text.strip_suffix('%') {
                Some(percent) => parse_percentage(percent.trim()),
                None => parse_ratio(text),
            },
            Value::Integer(n) => parse_ratio(&n.to_string()),
            // The shortest decimal that reads as the same float is the one that was written, as long as
            // that has at most 15 digits.
            Value::Float(x) => parse_ratio(&x.to_string()),
            _ => Err(ValueError::NotARatio),
        };
        if let Err(error) = &parsed {
            let expected = "a ratio such as 0.95 or \"95%\"";
            problems.push(match &node.value {
                number if *error == ValueError::TooFine => {
                    Problem::new(node.at.clone(), format!("`{number}` {error}"))
                }
                number if is_negative(&number.to_string()) => {
                    Problem::new(node.at.clone(), format!("`{key}` cannot be {number}"))
                        .hint(NEGATIVE)
                }
                Value::Text(_) | Value::Integer(_) | Value::Float(_) => Problem::new(
                    node.at.clone(),
                    format!("`{}` is not {expected}", node.value),
                ),
                _ => wrong_type(key, node, expected),
            });
        }
        parsed.ok()
    }

    fn write(&self) -> Option<Value> {
        Some(Value::text(self))
    }
}

/// Parses the number before a `%`. The exponent divides it, so that no digit is lost before the check
/// of [`parse_ratio`].
fn parse_percentage(text: &str) -> Result<Ratio, ValueError> {
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let exponent: i32 = exponent.parse().map_err(|_| ValueError::NotARatio)?;
    parse_ratio(&format!("{mantissa}e{}", exponent.saturating_sub(2)))
}

fn parse_ratio(text: &str) -> Result<Ratio, ValueError> {
    match Kind::Ratio.parse(text)? {
        CoreValue::Ratio(ratio) => Ok(ratio),
        _ => unreachable!("a value is of its kind"),
    }
}

impl Field for bool {
    type Scalar = Infallible;
    const KIND: &'static str = "boolean";

    fn read(key: &str, node: &Node, problems: &mut Problems) -> Option<Self> {
        match node.value {
            Value::Bool(b) => Some(b),
            _ => problems.refuse(wrong_type(key, node, "true or false")),
        }
    }

    fn write(&self) -> Option<Value> {
        Some(Value::Bool(*self))
    }
}

pub(super) fn read_text<'n>(key: &str, node: &'n Node, problems: &mut Problems) -> Option<&'n str> {
    match &node.value {
        Value::Text(text) => Some(text),
        _ => problems.refuse(wrong_type(key, node, "a string")),
    }
}

impl Field for String {
    type Scalar = Infallible;
    const KIND: &'static str = "string";

    fn read(key: &str, node: &Node, problems: &mut Problems) -> Option<Self> {
        read_text(key, node, problems).map(str::to_owned)
    }

    fn write(&self) -> Option<Value> {
        Some(Value::text(self))
    }
}

/// Reads a string whose characters all satisfy `is_accepted`.
fn read_word(
    key: &str,
    node: &Node,
    is_accepted: fn(char) -> bool,
    accepted: &str,
    problems: &mut Problems,
) -> Option<String> {
    let text = read_text(key, node, problems)?;
    if text.is_empty() {
        let message = format!("`{key}` is empty");
        return problems.refuse(Problem::new(node.at.clone(), message).hint(accepted));
    }
    if let Some((i, c)) = text.char_indices().find(|(_, c)| !is_accepted(*c)) {
        let at = node.within(i..i + c.len_utf8());
        let message = format!("`{key}` cannot contain {c:?}");
        return problems.refuse(Problem::new(at, message).hint(accepted));
    }
    Some(text.to_owned())
}

impl Field for Name {
    type Scalar = Infallible;
    const KIND: &'static str = "name";

    fn read(key: &str, node: &Node, problems: &mut Problems) -> Option<Self> {
        let is_accepted = |c: char| c.is_alphanumeric() || "_-.:[]".contains(c);
        let accepted = "letters, digits, `_`, `-`, `.`, `:`, `[` and `]` are accepted";
        read_word(key, node, is_accepted, accepted, problems).map(Name)
    }

    fn write(&self) -> Option<Value> {
        Some(Value::text(&self.0))
    }
}

impl Field for Word {
    type Scalar = Infallible;
    const KIND: &'static str = "word";

    fn read(key: &str, node: &Node, problems: &mut Problems) -> Option<Self> {
        let is_accepted = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        let accepted = "letters, digits, `_` and `-` are accepted";
        let word = read_word(key, node, is_accepted, accepted, problems)?;
        Some(Word(word, problems.describe(&node.at)))
    }

    fn write(&self) -> Option<Value> {
        Some(Value::text(&self.0))
    }
}

impl<F: Field> Field for Option<F> {
    type Scalar = F::Scalar;
    const KIND: &'static str = F::KIND;

    fn read(key: &str, node: &Node, problems: &mut Problems) -> Option<Self> {
        F::read(key, node, problems).map(Some)
    }

    fn absent() -> Option<Self> {
        Some(None)
    }

    fn scalar(&self) -> Option<&F::Scalar> {
        self.as_ref().and_then(F::scalar)
    }

    fn write(&self) -> Option<Value> {
        self.as_ref().and_then(F::write)
    }
}

impl Field for Dscp {
    type Scalar = Infallible;
    const KIND: &'static str = "DSCP";

    fn read(key: &str, node: &Node, problems: &mut Problems) -> Option<Self> {
        let problem = match &node.value {
            Value::Integer(n @ 0..=63) => return Some(Dscp(*n as u8)),
            Value::Integer(n) => Problem::new(node.at.clone(), format!("`{key}` cannot be {n}"))
                .hint("0 to 63 is accepted"),
            Value::Text(text) => match DSCP_WORDS.iter().find(|(word, _)| word == text) {
                Some((_, value)) => return Some(Dscp(*value)),
                None => Problem::new(node.at.clone(), format!("`{text}` is not a DSCP"))
                    .nearest(text, DSCP_WORDS.iter().map(|(word, _)| *word)),
            },
            _ => wrong_type(key, node, "a number from 0 to 63 or a word such as \"ef\""),
        };
        problems.refuse(problem)
    }

    fn write(&self) -> Option<Value> {
        Some(
            match DSCP_WORDS.iter().find(|(_, value)| *value == self.0) {
                Some((word, _)) => Value::text(word),
                None => Value::Integer(i64::from(self.0)),
            },
        )
    }
}

/// IANA's registry of differentiated services codepoints: RFC 2474 (CS), 2597 (AF), 3246 (EF),
/// 5865 (VOICE-ADMIT), 8622 (LE).
const DSCP_WORDS: &[(&str, u8)] = &[
    ("cs0", 0),
    ("cs1", 8),
    ("cs2", 16),
    ("cs3", 24),
    ("cs4", 32),
    ("cs5", 40),
    ("cs6", 48),
    ("cs7", 56),
    ("af11", 10),
    ("af12", 12),
    ("af13", 14),
    ("af21", 18),
    ("af22", 20),
    ("af23", 22),
    ("af31", 26),
    ("af32", 28),
    ("af33", 30),
    ("af41", 34),
    ("af42", 36),
    ("af43", 38),
    ("ef", 46),
    ("voice-admit", 44),
    ("le", 1),
];

impl Field for Queue {
    type Scalar = Infallible;
    const KIND: &'static str = "queue";

    fn read(key: &str, node: &Node, problems: &mut Problems) -> Option<Self> {
        let Value::Text(text) = &node.value else {
            return problems.refuse(wrong_type(
                key,
                node,
                "a queue such as \"fq_codel target 5ms\"",
            ));
        };
        if sluice_loader::names_file(text) && !problems.may_name_file(node.within(0..text.len())) {
            return None;
        }
        let folder = problems.folder();
        let parsed = match problems.is_recording() {
            // A user who only looks at a recording does not execute what its author wrote.
            true => Spec::parse_with(text, &Contained(folder)),
            false => sluice_loader::parse_queue(text, folder),
        };
        let error = match parsed {
            Ok(spec) => return Some(Queue(spec)),
            Err(error) => error,
        };
        if let (SpecErrorKind::NotLoaded(_), true) = (&error.kind, problems.is_recording())
            && let Some(spec) = sluice_loader::absent(text)
        {
            return Some(Queue(spec));
        }
        let word = text.get(error.span.clone()).unwrap_or_default();
        let mut problem = Problem::new(node.within(error.span.clone()), error.to_string());
        let candidates = error.candidates();
        problem = match &error.kind {
            SpecErrorKind::UnknownAlgorithm(_) | SpecErrorKind::UnknownParam { .. } => {
                match (error.advice(), error.nearest().as_slice()) {
                    (Some(advice), _) => problem.hint(advice),
                    (None, []) => problem.nearest(word, candidates),
                    (None, near) => {
                        problem.hint(format!("did you mean `{}`?", near.join("` or `")))
                    }
                }
            }
            SpecErrorKind::Empty => problem.hint("write it as in \"fq_codel target 5ms\""),
            SpecErrorKind::NotLoaded(_)
            | SpecErrorKind::Repeated(_)
            | SpecErrorKind::MissingValue(_)
            | SpecErrorKind::Param(_) => problem,
        };
        problems.refuse(problem)
    }

    fn write(&self) -> Option<Value> {
        Some(Value::text(self))
    }
}
