//! Parameters, declared once beside the algorithm that reads them.
//!
//! A declaration has a name, a kind (with its unit), a default, a range, one line of documentation
//! and the source of the default. The command line, the ipfw grammar, the scenario file, the Python
//! classes, `sluice list`, the docs and the conformance tests all read this declaration; nothing
//! else repeats it. [`params!`](crate::params) generates a plain struct with typed fields from it.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use crate::units::{Bytes, Rate, Span, UnitError};

/// A non-negative decimal number, exact to 1e-9: weights, probabilities, gains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ratio(u64);

impl Ratio {
    /// One.
    pub const ONE: Ratio = Ratio(1_000_000_000);

    /// Creates a ratio of `n` billionths.
    pub const fn from_billionths(n: u64) -> Self {
        Ratio(n)
    }

    /// Returns the ratio in billionths.
    pub const fn as_billionths(self) -> u64 {
        self.0
    }

    /// Returns the ratio as a floating-point number.
    pub fn as_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Returns the ratio in units of 2^-`bits`, rounded down; `bits` is at most 64.
    pub const fn as_fixed(self, bits: u32) -> u64 {
        (((self.0 as u128) << bits) / 1_000_000_000) as u64
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 1_000_000_000, self.0 % 1_000_000_000);
        if rest == 0 {
            return write!(f, "{whole}");
        }
        let digits = alloc::format!("{rest:09}");
        write!(f, "{whole}.{}", digits.trim_end_matches('0'))
    }
}

/// A value of any kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Value {
    /// A length of time.
    Span(Span),
    /// A link rate.
    Rate(Rate),
    /// A number of bytes.
    Bytes(Bytes),
    /// A whole number.
    Count(u64),
    /// A decimal number.
    Ratio(Ratio),
    /// A switch: `word` turns it on, `noword` turns it off.
    Flag(bool),
    /// One of a list of words.
    Choice(&'static str),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Span(v) if *v == Span::MAX => f.write_str("unlimited"),
            Value::Span(v) => v.fmt(f),
            Value::Rate(v) => v.fmt(f),
            Value::Bytes(v) if v.as_u64() == u64::MAX => f.write_str("unlimited"),
            Value::Bytes(v) => v.fmt(f),
            Value::Count(u64::MAX) => f.write_str("unlimited"),
            Value::Count(v) => v.fmt(f),
            Value::Ratio(v) => v.fmt(f),
            Value::Flag(v) => f.write_str(if *v { "on" } else { "off" }),
            Value::Choice(v) => f.write_str(v),
        }
    }
}

/// The kind of value that a parameter takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A length of time. A bare number counts milliseconds, as in dummynet.
    Span,
    /// A link rate.
    Rate,
    /// A number of bytes. A bare number counts bytes.
    Bytes,
    /// A whole number.
    Count,
    /// A decimal number.
    Ratio,
    /// A switch without an argument.
    Flag,
    /// One of these words.
    Choice(&'static [&'static str]),
}

impl Kind {
    /// Returns the unit for tables: `time`, `rate`, `bytes`, or empty.
    pub const fn unit(self) -> &'static str {
        match self {
            Kind::Span => "time",
            Kind::Rate => "rate",
            Kind::Bytes => "bytes",
            Kind::Count | Kind::Ratio | Kind::Flag | Kind::Choice(_) => "",
        }
    }

    /// Parses a value of this kind.
    ///
    /// # Errors
    /// Returns the error in the text.
    pub fn parse(self, text: &str) -> Result<Value, ValueError> {
        Ok(match self {
            Kind::Span if text == "unlimited" => Value::Span(Span::MAX),
            Kind::Span => Value::Span(Span::parse_or_unit(text, 1_000_000)?),
            Kind::Rate => Value::Rate(Rate::parse(text)?),
            Kind::Bytes if text == "unlimited" => Value::Bytes(Bytes::new(u64::MAX)),
            Kind::Bytes => Value::Bytes(Bytes::parse_or_bytes(text)?),
            Kind::Count if text == "unlimited" => Value::Count(u64::MAX),
            Kind::Count => Value::Count(text.parse().map_err(|_| ValueError::NotACount)?),
            Kind::Ratio => Value::Ratio(parse_ratio(text)?),
            Kind::Flag => match text {
                "on" | "true" | "yes" => Value::Flag(true),
                "off" | "false" | "no" => Value::Flag(false),
                _ => return Err(ValueError::NotAFlag),
            },
            Kind::Choice(words) => Value::Choice(
                words
                    .iter()
                    .find(|word| **word == text)
                    .ok_or(ValueError::NotAChoice(words))?,
            ),
        })
    }
}

/// Parses a decimal number, with an exponent or without, and rounds it to a billionth. It is refused if
/// that changes it by more than a thousandth of it, as a small number in a large unit.
fn parse_ratio(text: &str) -> Result<Ratio, ValueError> {
    let magnitude = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) = match magnitude.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()),
        None => (magnitude, Some(0)),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits: Option<Vec<u8>> = whole
        .bytes()
        .chain(fraction.bytes())
        .map(|b| b.is_ascii_digit().then(|| b - b'0'))
        .collect();
    let (Some(exponent), Some(digits)) = (exponent, digits.filter(|all| !all.is_empty())) else {
        return Err(ValueError::NotARatio);
    };
    if magnitude.len() < text.len() {
        return Err(UnitError::Negative.into());
    }
    let Some(first) = digits.iter().position(|digit| *digit != 0) else {
        return Ok(Ratio(0));
    };
    // The number of digits from the first one that is not 0 to that of the billionths.
    let kept = whole.len() as i64 + i64::from(exponent) + 9 - first as i64;
    let digit = |number: i64| {
        let number = usize::try_from(number).ok();
        let digit = number.and_then(|number| digits.get(first + number));
        u128::from(digit.copied().unwrap_or(0))
    };
    let mut value: u128 = 0;
    for number in 0..kept {
        value = 10 * value + digit(number);
        if value > u128::from(u64::MAX) {
            return Err(UnitError::TooLarge.into());
        }
    }
    // In billionths of a billionth.
    let rest = (kept..kept + 9).fold(0, |rest, number| 10 * rest + digit(number));
    let (value, change) = match rest {
        0..500_000_000 => (value, rest),
        _ => (value + 1, 1_000_000_000 - rest),
    };
    if value == 0 || change > 1_000_000 * value {
        return Err(ValueError::TooFine);
    }
    let value = u64::try_from(value).map_err(|_| UnitError::TooLarge)?;
    Ok(Ratio(value))
}

/// The reason why a text is not a value of a kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ValueError {
    /// Not a quantity.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// Not a whole number.
    #[error("not a whole number below 2^64")]
    NotACount,
    /// Not a decimal number.
    #[error("not a decimal number")]
    NotARatio,
    /// A decimal number that is too small to be kept exactly enough.
    #[error("needs more than the nine decimals that are kept; in a larger unit it needs fewer")]
    TooFine,
    /// Not a switch.
    #[error("not one of on, off")]
    NotAFlag,
    /// Not one of the words.
    #[error("not one of {}", .0.join(", "))]
    NotAChoice(&'static [&'static str]),
}

/// The declaration of one parameter.
#[derive(Clone, Copy, Debug)]
pub struct ParamDecl {
    /// The parameter's word in every grammar.
    pub name: &'static str,
    /// Kind of its value.
    pub kind: Kind,
    /// Value if the parameter is not given.
    pub default: Value,
    /// Smallest and largest accepted values; `None` for flags and choices.
    pub range: Option<(Value, Value)>,
    /// One line of documentation.
    pub doc: &'static str,
    /// Source of the default and the range.
    pub source: &'static str,
}

impl ParamDecl {
    /// Parses and checks a value for this parameter.
    ///
    /// # Errors
    /// Returns the error and the accepted values.
    pub fn parse(&self, text: &str) -> Result<Value, ParamError> {
        let value = self.kind.parse(text).map_err(|error| ParamError::Value {
            name: self.name,
            text: text.to_string(),
            error,
        })?;
        self.check(value)?;
        Ok(value)
    }

    /// Checks a value against the range.
    ///
    /// # Errors
    /// Returns [`ParamError::OutOfRange`] with the accepted range.
    pub fn check(&self, value: Value) -> Result<(), ParamError> {
        match self.range {
            Some((low, high)) if value < low || value > high => Err(ParamError::OutOfRange {
                name: self.name,
                value,
                low,
                high,
            }),
            _ => Ok(()),
        }
    }
}

/// The reason why a parameter was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParamError {
    /// The text is not a value of the parameter's kind.
    #[error("`{text}` for `{name}`: {error}")]
    Value {
        /// Name of the parameter.
        name: &'static str,
        /// The text that was given.
        text: String,
        /// The reason why it is not a value.
        error: ValueError,
    },
    /// The value is outside the declared range.
    #[error("`{name} {value}` is outside {low} to {high}")]
    OutOfRange {
        /// Name of the parameter.
        name: &'static str,
        /// The value that was given.
        value: Value,
        /// The smallest accepted value.
        low: Value,
        /// The largest accepted value.
        high: Value,
    },
    /// Values that are each in range contradict one another.
    #[error("{0}")]
    Contradiction(String),
}

/// A contradiction, as a sentence.
pub type Contradiction = String;

/// Warnings, as sentences.
pub type Warnings = Vec<String>;

/// The values that a user set, by name, checked against the declarations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Values(Vec<(&'static str, Value)>);

impl Values {
    /// Creates an empty set of values.
    pub const fn new() -> Self {
        Values(Vec::new())
    }

    /// Sets `name`. The last setting wins.
    pub fn set(&mut self, name: &'static str, value: Value) {
        match self.0.iter_mut().find(|(n, _)| *n == name) {
            Some(slot) => slot.1 = value,
            None => self.0.push((name, value)),
        }
    }

    /// Returns the value of `name`, if it was set.
    pub fn find(&self, name: &str) -> Option<Value> {
        self.0.iter().find(|(n, _)| *n == name).map(|(_, v)| *v)
    }

    /// Iterates over all settings in the order in which they were first made.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, Value)> + '_ {
        self.0.iter().copied()
    }
}

/// A struct of parameters with its declarations.
pub trait Params: Clone + fmt::Debug + Default + 'static {
    /// The declarations, in the order of documentation.
    const DECLS: &'static [ParamDecl];

    /// Sets the parameter called `name`.
    ///
    /// # Panics
    /// Panics if there is no such parameter, or if the value is of another kind.
    fn set(&mut self, name: &str, value: Value);

    /// Checks conditions among several parameters (`min` below `max` ...).
    ///
    /// # Errors
    /// Returns the contradiction.
    fn check(&self) -> Result<(), Contradiction> {
        Ok(())
    }

    /// Returns warnings: settings that are accepted but probably not intended, and settings that
    /// the implementation named by `variant` would silently change.
    fn warnings(&self) -> Warnings {
        Vec::new()
    }

    /// Returns the defaults that settings in `set`, such as `preset docsis`, override.
    fn presets(set: &Values) -> Values {
        let _ = set;
        Values::new()
    }

    /// Builds the struct from `values`, as far as they are declared here, and the defaults.
    ///
    /// # Errors
    /// Returns [`ParamError::Contradiction`] from [`Params::check`].
    fn from_values(values: &Values) -> Result<Self, ParamError> {
        let mut params = Self::default();
        for (name, value) in values.iter() {
            if Self::DECLS.iter().any(|decl| decl.name == name) {
                params.set(name, value);
            }
        }
        params.check().map_err(ParamError::Contradiction)?;
        Ok(params)
    }
}

/// The parameters of an algorithm that has none.
#[derive(Clone, Debug, Default)]
pub struct NoParams;

impl Params for NoParams {
    const DECLS: &'static [ParamDecl] = &[];

    fn set(&mut self, name: &str, _value: Value) {
        panic!("`{name}` is not a declared parameter");
    }
}

/// A type that can be a parameter.
pub trait ParamType: Copy {
    /// Kind of its value.
    const KIND: Kind;
    /// Converts a value of that kind.
    fn from_value(value: Value) -> Option<Self>;
}

macro_rules! param_type {
    ($type:ty, $kind:expr, $pattern:pat => $value:expr) => {
        impl ParamType for $type {
            const KIND: Kind = $kind;
            fn from_value(value: Value) -> Option<Self> {
                match value {
                    $pattern => Some($value),
                    _ => None,
                }
            }
        }
    };
}

param_type!(Span, Kind::Span, Value::Span(v) => v);
param_type!(Rate, Kind::Rate, Value::Rate(v) => v);
param_type!(Bytes, Kind::Bytes, Value::Bytes(v) => v);
param_type!(u64, Kind::Count, Value::Count(v) => v);
param_type!(Ratio, Kind::Ratio, Value::Ratio(v) => v);
param_type!(bool, Kind::Flag, Value::Flag(v) => v);

/// Declares an enum whose variants are the words of a choice parameter.
#[macro_export]
macro_rules! choice {
    ($(#[$meta:meta])* pub enum $name:ident {
        $($(#[$vmeta:meta])* $variant:ident = $word:literal,)+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name { $($(#[$vmeta])* $variant,)+ }

        impl $name {
            /// Returns the word of this choice.
            pub const fn word(self) -> &'static str {
                match self { $($name::$variant => $word,)+ }
            }
        }

        impl $crate::param::ParamType for $name {
            const KIND: $crate::param::Kind = $crate::param::Kind::Choice(&[$($word),+]);
            fn from_value(value: $crate::param::Value) -> Option<Self> {
                match value {
                    $($crate::param::Value::Choice($word) => Some($name::$variant),)+
                    _ => None,
                }
            }
        }
    };
}

choice! {
    /// The specification that an algorithm follows where several differ.
    pub enum Variant {
        /// The published text.
        Rfc = "rfc",
        /// The Linux kernel.
        Linux = "linux",
        /// The Linux kernel as it was until the end of 2025: releases up to 6.18.10.
        Linux2025 = "linux_2025",
        /// FreeBSD's dummynet.
        Dummynet = "dummynet",
    }
}

impl Variant {
    /// Returns whether this is the Linux kernel, current or older.
    pub const fn is_linux(self) -> bool {
        matches!(self, Variant::Linux | Variant::Linux2025)
    }
}

/// Declares a struct of parameters:
///
/// ```
/// use sluice_core::{params, param::Params, units::Span};
/// params! {
///     /// Parameters of the example.
///     pub struct ExampleParams {
///         /// delay that is tolerated
///         target: Span = Span(Span::from_ms(5)), Span(Span::from_us(1)) => Span(Span::from_secs(5)), "RFC 8289 section 4.3";
///         /// mark instead of dropping
///         ecn: bool = Flag(false), "off, as in the pseudo-code";
///     }
/// }
/// assert_eq!(ExampleParams::default().target, Span::from_ms(5));
/// assert_eq!(ExampleParams::DECLS[1].name, "ecn");
/// ```
#[macro_export]
macro_rules! params {
    ($(#[$meta:meta])* pub struct $name:ident {
        $(
            #[doc = $doc:literal]
            $field:ident: $type:ty = $kind:ident($default:expr)
                $(, $lowkind:ident($low:expr) => $highkind:ident($high:expr))?, $source:literal;
        )+
    } $(check $check:expr)? $(; presets $presets:expr)? $(; warnings $warnings:expr)?) => {
        $(#[$meta])*
        #[derive(Clone, Debug)]
        pub struct $name { $(#[doc = $doc] pub $field: $type,)+ }

        impl Default for $name {
            fn default() -> Self {
                $name {
                    $($field: <$type as $crate::param::ParamType>::from_value(
                        $crate::param::Value::$kind($default),
                    ).expect("a default is of its parameter's kind"),)+
                }
            }
        }

        impl $crate::param::Params for $name {
            const DECLS: &'static [$crate::param::ParamDecl] = &[$(
                $crate::param::ParamDecl {
                    name: stringify!($field),
                    kind: <$type as $crate::param::ParamType>::KIND,
                    default: $crate::param::Value::$kind($default),
                    range: $crate::params!(@range $($lowkind($low) => $highkind($high))?),
                    doc: $doc.trim_ascii(),
                    source: $source,
                },
            )+];

            fn set(&mut self, name: &str, value: $crate::param::Value) {
                match name {
                    $(stringify!($field) => {
                        self.$field = <$type as $crate::param::ParamType>::from_value(value)
                            .expect("a value is of its parameter's kind");
                    })+
                    _ => panic!("`{name}` is not a declared parameter"),
                }
            }

            $(fn check(&self) -> Result<(), $crate::param::Contradiction> {
                let check: fn(&Self) -> Result<(), $crate::param::Contradiction> = $check;
                check(self)
            })?

            $(fn warnings(&self) -> $crate::param::Warnings {
                let warnings: fn(&Self) -> $crate::param::Warnings = $warnings;
                warnings(self)
            })?

            $(fn presets(set: &$crate::param::Values) -> $crate::param::Values {
                let presets: fn(&$crate::param::Values) -> $crate::param::Values = $presets;
                presets(set)
            })?
        }
    };
    (@range) => { None };
    (@range $lowkind:ident($low:expr) => $highkind:ident($high:expr)) => {
        Some(($crate::param::Value::$lowkind($low), $crate::param::Value::$highkind($high)))
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_exact_to_a_billionth() {
        assert_eq!(parse_ratio("0.125"), Ok(Ratio(125_000_000)));
        assert_eq!(parse_ratio(".5"), Ok(Ratio(500_000_000)));
        assert_eq!(parse_ratio("5."), Ok(Ratio(5_000_000_000)));
        assert_eq!(parse_ratio("1.25").unwrap().to_string(), "1.25");
        assert_eq!(parse_ratio("0.000000001"), Ok(Ratio(1)));
        assert_eq!(parse_ratio("00.10000000000000"), Ok(Ratio(100_000_000)));
        assert_eq!(parse_ratio("000.0000000000000"), Ok(Ratio(0)));
        let most = "18446744073.709551615";
        assert_eq!(parse_ratio(most), Ok(Ratio(u64::MAX)));
        // 0.125 * 2^16 = 8192
        assert_eq!(Ratio(125_000_000).as_fixed(16), 8192);
    }

    #[test]
    fn a_ratio_may_have_an_exponent() {
        assert_eq!(parse_ratio("1e3"), Ok(Ratio(1_000_000_000_000)));
        assert_eq!(parse_ratio("1e-05"), Ok(Ratio(10_000)));
        assert_eq!(parse_ratio("12.5E-1"), Ok(Ratio(1_250_000_000)));
        assert_eq!(parse_ratio("0.0025e+2"), Ok(Ratio(250_000_000)));
        assert_eq!(parse_ratio("0e2000000000"), Ok(Ratio(0)));
        assert_eq!(parse_ratio("1e2000000000"), Err(UnitError::TooLarge.into()));
        for wrong in [
            "e3", "1e", "1e3.5", "1e3e3", ".e3", "--1", "+1", "0x1", "", "-", ".",
        ] {
            assert_eq!(parse_ratio(wrong), Err(ValueError::NotARatio), "{wrong}");
        }
    }

    #[test]
    fn a_ratio_is_rounded_by_at_most_a_thousandth_or_refused() {
        // A computed number, and one that ends nowhere: 1/3, with the error 1e-9.
        assert_eq!(parse_ratio("0.30000000000000004"), Ok(Ratio(300_000_000)));
        assert_eq!(parse_ratio("0.3333333333333333"), Ok(Ratio(333_333_333)));
        assert_eq!(parse_ratio("0.6666666666666666"), Ok(Ratio(666_666_667)));
        assert_eq!(parse_ratio("0.9999999999"), Ok(Ratio::ONE));
        // Half a billionth is a thousandth of 500 billionths.
        assert_eq!(parse_ratio("0.0000005005"), Ok(Ratio(501)));
        assert_eq!(parse_ratio("0.0000004995"), Ok(Ratio(500)));
        assert_eq!(parse_ratio("0.0000004005"), Err(ValueError::TooFine));
        // These were 1e-9, 0 and 0.
        for fine in ["1.25e-9", "0.000000000125", "1e-2000000000"] {
            assert_eq!(parse_ratio(fine), Err(ValueError::TooFine), "{fine}");
        }
    }

    #[test]
    fn a_ratio_that_is_out_of_range_says_so() {
        let error = |text| parse_ratio(text).unwrap_err().to_string();
        assert_eq!(error("-1"), "must not be negative");
        assert_eq!(error("-0.5e-3"), "must not be negative");
        assert_eq!(error("99999999999999999999"), "too large");
        assert_eq!(error("18446744073.709551616"), "too large");
    }

    #[test]
    fn an_unlimited_time_reads_back() {
        let never = Value::Span(Span::MAX);
        assert_eq!(Kind::Span.parse(&never.to_string()), Ok(never));
    }

    #[test]
    fn a_bare_time_counts_milliseconds_as_in_dummynet() {
        assert_eq!(Kind::Span.parse("7"), Ok(Value::Span(Span::from_ms(7))));
    }
}
