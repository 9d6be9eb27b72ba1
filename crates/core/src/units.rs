//! Quantities: instants, spans, rates and byte counts, as integers.
//!
//! All decisions in Sluice use these types. They are plain integers, so that a run gives the same
//! bits on every machine, and newtypes, so that a span cannot be passed where a rate is expected.
//! Text forms carry their unit (`"20ms"`, `"10Mbit/s"`, `"64KiB"`). A number without a unit is an
//! error, except where a grammar defines a default.

use core::fmt;
use core::ops::{Add, AddAssign, Mul, Sub, SubAssign};

/// An instant: nanoseconds since the run's origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

/// A length of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(u64);

/// A link rate in bits per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u64);

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(u64);

impl Time {
    /// The origin of a run.
    pub const ZERO: Time = Time(0);
    /// Later than every instant that occurs.
    pub const MAX: Time = Time(u64::MAX);

    /// Creates the instant `ns` nanoseconds after the origin.
    pub const fn from_ns(ns: u64) -> Self {
        Time(ns)
    }

    /// Returns nanoseconds since the origin.
    pub const fn as_ns(self) -> u64 {
        self.0
    }

    /// Returns the span since `earlier`; zero if `earlier` is later.
    pub const fn since(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// Returns `self + span`, saturating at [`Time::MAX`].
    pub const fn saturating_add(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl Span {
    /// An empty span.
    pub const ZERO: Span = Span(0);
    /// Longer than every span that occurs.
    pub const MAX: Span = Span(u64::MAX);

    /// Creates a span of `ns` nanoseconds.
    pub const fn from_ns(ns: u64) -> Self {
        Span(ns)
    }

    /// Creates a span of `us` microseconds.
    pub const fn from_us(us: u64) -> Self {
        Span(us * 1_000)
    }

    /// Creates a span of `ms` milliseconds.
    pub const fn from_ms(ms: u64) -> Self {
        Span(ms * 1_000_000)
    }

    /// Creates a span of `s` seconds.
    pub const fn from_secs(s: u64) -> Self {
        Span(s * 1_000_000_000)
    }

    /// Returns nanoseconds.
    pub const fn as_ns(self) -> u64 {
        self.0
    }

    /// Returns seconds, for reports; never for decisions.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Returns milliseconds, for reports; never for decisions.
    pub fn as_ms_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Returns `self - other`, saturating at zero.
    pub const fn saturating_sub(self, other: Span) -> Span {
        Span(self.0.saturating_sub(other.0))
    }

    /// Returns `self + other`, saturating at [`Span::MAX`].
    pub const fn saturating_add(self, other: Span) -> Span {
        Span(self.0.saturating_add(other.0))
    }

    /// Parses a number with a time unit (`ns`, `us`, `ms`, `s`, `min`, `h`), e.g. `1.5ms`.
    ///
    /// # Errors
    /// Returns whether the number, the unit or the size is wrong.
    ///
    /// ```
    /// use sluice_core::units::Span;
    /// assert_eq!(Span::parse("20ms"), Ok(Span::from_ms(20)));
    /// assert_eq!(Span::parse("1.5us"), Ok(Span::from_ns(1500)));
    /// assert!(Span::parse("20").is_err());
    /// ```
    pub fn parse(text: &str) -> Result<Span, UnitError> {
        parse_with(text, Dimension::Time, None).map(Span)
    }

    /// Parses like [`Span::parse`], but a bare number counts `default_unit_ns` nanoseconds.
    ///
    /// # Errors
    /// As [`Span::parse`], without [`UnitError::NoUnit`].
    pub fn parse_or_unit(text: &str, default_unit_ns: u64) -> Result<Span, UnitError> {
        parse_with(text, Dimension::Time, Some(u128::from(default_unit_ns))).map(Span)
    }
}

impl Rate {
    /// No limit: a transmission takes no time.
    pub const UNLIMITED: Rate = Rate(u64::MAX);

    /// Creates a rate of `bps` bits per second. Zero means [`Rate::UNLIMITED`], as in dummynet.
    pub const fn from_bps(bps: u64) -> Self {
        if bps == 0 { Rate::UNLIMITED } else { Rate(bps) }
    }

    /// Returns bits per second (`u64::MAX` when unlimited).
    pub const fn as_bps(self) -> u64 {
        self.0
    }

    /// Returns whether there is no limit.
    pub const fn is_unlimited(self) -> bool {
        self.0 == u64::MAX
    }

    /// Returns how long `bytes` occupy a link of this rate: `ceil(bytes * 8e9 / rate)` ns.
    ///
    /// ```
    /// use sluice_core::units::{Rate, Span};
    /// // 1500 B * 8 bit / 10 Mbit/s = 1.2 ms
    /// assert_eq!(Rate::from_bps(10_000_000).transmission(1500), Span::from_us(1200));
    /// ```
    pub const fn transmission(self, bytes: u64) -> Span {
        if self.is_unlimited() {
            return Span::ZERO;
        }
        // Usual packets and rates fit into 64 bits, where the division is 5x cheaper.
        if bytes < (1 << 31) {
            let bit_ns = bytes * 8_000_000_000;
            return Span(bit_ns.div_ceil(self.0));
        }
        let ns = (bytes as u128 * 8_000_000_000).div_ceil(self.0 as u128);
        if ns > u64::MAX as u128 {
            Span::MAX
        } else {
            Span(ns as u64)
        }
    }

    /// Returns the number of whole bytes that pass in `span`, saturating at `u64::MAX`.
    pub const fn bytes_in(self, span: Span) -> u64 {
        if self.is_unlimited() {
            return u64::MAX;
        }
        let bytes = self.0 as u128 * span.0 as u128 / 8_000_000_000;
        if bytes > u64::MAX as u128 {
            u64::MAX
        } else {
            bytes as u64
        }
    }

    /// Parses a number with a rate unit: `bit/s`, `kbit/s`, `Mbit/s`, `Gbit/s`, `Tbit/s`, `B/s` ...
    /// (`bps` for `bit/s`), or the word `unlimited`.
    ///
    /// # Errors
    /// Returns whether the number, the unit or the size is wrong.
    ///
    /// ```
    /// use sluice_core::units::Rate;
    /// assert_eq!(Rate::parse("1.5Mbit/s"), Ok(Rate::from_bps(1_500_000)));
    /// assert_eq!(Rate::parse("1kB/s"), Ok(Rate::from_bps(8_000)));
    /// ```
    pub fn parse(text: &str) -> Result<Rate, UnitError> {
        if text.trim() == "unlimited" {
            return Ok(Rate::UNLIMITED);
        }
        match parse_with(text, Dimension::Rate, None)? {
            0 => Err(UnitError::Zero),
            bps => Ok(Rate(bps)),
        }
    }
}

impl Bytes {
    /// No bytes.
    pub const ZERO: Bytes = Bytes(0);

    /// Creates a count of `n` bytes.
    pub const fn new(n: u64) -> Self {
        Bytes(n)
    }

    /// Returns the count.
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// Parses a number with a size unit: `B`, `kB`, `MB`, `GB` (powers of 1000), `KiB`, `MiB`,
    /// `GiB` (powers of 1024).
    ///
    /// # Errors
    /// Returns whether the number, the unit or the size is wrong.
    pub fn parse(text: &str) -> Result<Bytes, UnitError> {
        parse_with(text, Dimension::Size, None).map(Bytes)
    }

    /// Parses like [`Bytes::parse`], but a bare number counts bytes.
    ///
    /// # Errors
    /// As [`Bytes::parse`], without [`UnitError::NoUnit`].
    pub fn parse_or_bytes(text: &str) -> Result<Bytes, UnitError> {
        parse_with(text, Dimension::Size, Some(1)).map(Bytes)
    }
}

/// The dimension that a text must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dimension {
    /// A span of time.
    Time,
    /// Bits per second.
    Rate,
    /// Bytes.
    Size,
}

impl Dimension {
    /// Returns the accepted units, smallest first.
    pub const fn units(self) -> &'static [&'static str] {
        match self {
            Dimension::Time => &["ns", "us", "ms", "s", "min", "h"],
            Dimension::Rate => &[
                "bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s", "B/s", "kB/s", "MB/s", "GB/s",
            ],
            Dimension::Size => &["B", "kB", "MB", "GB", "KiB", "MiB", "GiB"],
        }
    }

    /// Returns a quantity as an example, with what it is.
    const fn example(self) -> &'static str {
        match self {
            Dimension::Time => "a time such as 20ms",
            Dimension::Rate => "a rate such as 10Mbit/s",
            Dimension::Size => "a size such as 64kB",
        }
    }

    /// Returns the unit that another spelling probably means. Similarity of letters does not decide it:
    /// `Mb` is nearer to `MB/s` than to `Mbit/s`, which is an eighth of it.
    pub fn meant(self, unit: &str) -> Option<&'static str> {
        let prefixed = |prefix: &str, base: &str| {
            let name = alloc::format!("{prefix}{base}");
            self.units().iter().find(|u| **u == name).copied()
        };
        let (prefix, rest) = match unit.chars().next()? {
            'k' | 'K' => ("k", &unit[1..]),
            'm' | 'M' => ("M", &unit[1..]),
            'g' | 'G' => ("G", &unit[1..]),
            't' | 'T' => ("T", &unit[1..]),
            _ => ("", unit),
        };
        let is_bytes = |word: &str| matches!(word, "byte" | "bytes" | "Byte" | "Bytes");
        match self {
            Dimension::Time => match unit.to_lowercase().as_str() {
                "nsec" | "nsecs" => Some("ns"),
                "usec" | "usecs" => Some("us"),
                "msec" | "msecs" => Some("ms"),
                "sec" | "secs" | "second" | "seconds" => Some("s"),
                "mins" | "minute" | "minutes" => Some("min"),
                "hr" | "hrs" | "hour" | "hours" => Some("h"),
                _ => None,
            },
            Dimension::Size if is_bytes(rest) => prefixed(prefix, "B"),
            Dimension::Size => None,
            Dimension::Rate => {
                let per_second = ["/sec", "/s", "ps"];
                let stem = per_second.iter().find_map(|end| rest.strip_suffix(end));
                match stem.unwrap_or(rest) {
                    "b" | "bit" | "bits" | "Bit" | "Bits" => prefixed(prefix, "bit/s"),
                    // `MB` alone is a size.
                    "B" if stem.is_some() => prefixed(prefix, "B/s"),
                    word if stem.is_some() && is_bytes(word) => prefixed(prefix, "B/s"),
                    _ => None,
                }
            }
        }
    }

    fn factor(self, unit: &str) -> Option<u128> {
        Some(match (self, unit) {
            (Dimension::Time, "ns") => 1,
            (Dimension::Time, "us" | "µs") => 1_000,
            (Dimension::Time, "ms") => 1_000_000,
            (Dimension::Time, "s") => 1_000_000_000,
            (Dimension::Time, "min") => 60_000_000_000,
            (Dimension::Time, "h") => 3_600_000_000_000,
            (Dimension::Rate, "bit/s" | "bps") => 1,
            (Dimension::Rate, "kbit/s" | "Kbit/s" | "kbps") => 1_000,
            (Dimension::Rate, "Mbit/s" | "Mbps") => 1_000_000,
            (Dimension::Rate, "Gbit/s" | "Gbps") => 1_000_000_000,
            (Dimension::Rate, "Tbit/s" | "Tbps") => 1_000_000_000_000,
            (Dimension::Rate, "B/s") => 8,
            (Dimension::Rate, "kB/s" | "KB/s") => 8_000,
            (Dimension::Rate, "MB/s") => 8_000_000,
            (Dimension::Rate, "GB/s") => 8_000_000_000,
            (Dimension::Size, "B") => 1,
            (Dimension::Size, "kB") => 1_000,
            (Dimension::Size, "MB") => 1_000_000,
            (Dimension::Size, "GB") => 1_000_000_000,
            (Dimension::Size, "KiB") => 1 << 10,
            (Dimension::Size, "MiB") => 1 << 20,
            (Dimension::Size, "GiB") => 1 << 30,
            _ => return None,
        })
    }
}

/// The reason why a text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// There is no number at the start.
    #[error("not {}", .0.example())]
    NotANumber(Dimension),
    /// The number is below zero.
    #[error("must not be negative")]
    Negative,
    /// The number has no unit.
    #[error("no unit (one of {})", List(.0.units()))]
    NoUnit(Dimension),
    /// The unit does not belong to this dimension; the unit that is probably meant.
    #[error("unknown unit{}", Instead(*.0, *.1))]
    UnknownUnit(Dimension, Option<&'static str>),
    /// The quantity cannot hold that many digits.
    #[error("too large")]
    TooLarge,
    /// Zero, where zero has no meaning.
    #[error("must be more than zero")]
    Zero,
}

/// What to write instead of an unknown unit.
struct Instead(Dimension, Option<&'static str>);

impl fmt::Display for Instead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Some(meant) => write!(f, ": did you mean `{meant}`?"),
            None => write!(f, " (one of {})", List(self.0.units())),
        }
    }
}

struct List(&'static [&'static str]);

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, word) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str(", ")?;
            }
            f.write_str(word)?;
        }
        Ok(())
    }
}

/// Parses `number unit` exactly: digits are scaled as integers, and the rest is truncated.
fn parse_with(text: &str, dimension: Dimension, bare: Option<u128>) -> Result<u64, UnitError> {
    let text = text.trim();
    let split = text
        .find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit = unit.trim();
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        let is_negative = text
            .strip_prefix('-')
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit() || c == '.'));
        return Err(match is_negative {
            true => UnitError::Negative,
            false => UnitError::NotANumber(dimension),
        });
    }
    let factor = if unit.is_empty() {
        bare.ok_or(UnitError::NoUnit(dimension))?
    } else {
        dimension
            .factor(unit)
            .ok_or_else(|| UnitError::UnknownUnit(dimension, dimension.meant(unit)))?
    };
    let mut value: u128 = 0;
    for c in whole.bytes().filter(|c| *c != b'_') {
        value = value * 10 + u128::from(c - b'0');
        if value > u128::from(u64::MAX) {
            return Err(UnitError::TooLarge);
        }
    }
    value *= factor;
    let mut scale = factor;
    for c in fraction.bytes().filter(|c| *c != b'_') {
        // A power-of-two factor is exact up to its last bit; a decimal one is exact.
        value += u128::from(c - b'0') * scale / 10;
        scale /= 10;
    }
    u64::try_from(value).map_err(|_| UnitError::TooLarge)
}

impl Add<Span> for Time {
    type Output = Time;
    fn add(self, span: Span) -> Time {
        Time(self.0 + span.0)
    }
}

impl AddAssign<Span> for Time {
    fn add_assign(&mut self, span: Span) {
        self.0 += span.0;
    }
}

impl Add for Span {
    type Output = Span;
    fn add(self, other: Span) -> Span {
        Span(self.0 + other.0)
    }
}

impl Sub for Span {
    type Output = Span;
    fn sub(self, other: Span) -> Span {
        Span(self.0 - other.0)
    }
}

impl Mul<u64> for Span {
    type Output = Span;
    fn mul(self, times: u64) -> Span {
        Span(self.0 * times)
    }
}

impl Add for Bytes {
    type Output = Bytes;
    fn add(self, other: Bytes) -> Bytes {
        Bytes(self.0 + other.0)
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Bytes) {
        self.0 += other.0;
    }
}

impl SubAssign for Bytes {
    fn sub_assign(&mut self, other: Bytes) {
        self.0 -= other.0;
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}.{:09}s",
            self.0 / 1_000_000_000,
            self.0 % 1_000_000_000
        )
    }
}

/// Formats `value` exactly, in the largest unit of `units` that leaves at least 1. Factors are
/// powers of ten, so the decimals end.
fn show(f: &mut fmt::Formatter<'_>, value: u64, units: &[(u64, &str)]) -> fmt::Result {
    let (factor, name) = units
        .iter()
        .find(|(factor, _)| value >= *factor)
        .copied()
        .unwrap_or(units[units.len() - 1]);
    write!(f, "{}", value / factor)?;
    let mut rest = value % factor;
    if rest > 0 {
        f.write_str(".")?;
        let mut place = factor / 10;
        while rest > 0 {
            write!(f, "{}", rest / place)?;
            rest %= place;
            place /= 10;
        }
    }
    f.write_str(name)
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [
            (1_000_000_000, "s"),
            (1_000_000, "ms"),
            (1_000, "us"),
            (1, "ns"),
        ];
        show(f, self.0, &units)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_unlimited() {
            return f.write_str("unlimited");
        }
        let units = [
            (1_000_000_000_000, "Tbit/s"),
            (1_000_000_000, "Gbit/s"),
            (1_000_000, "Mbit/s"),
            (1_000, "kbit/s"),
            (1, "bit/s"),
        ];
        show(f, self.0, &units)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        let whole = |(factor, _): &&(u64, &str)| self.0 > 0 && self.0.is_multiple_of(*factor);
        let (factor, name) = units.iter().find(whole).copied().unwrap_or((1, "B"));
        write!(f, "{}{name}", self.0 / factor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_fraction_is_scaled_exactly() {
        assert_eq!(Span::parse("0.000001ms"), Ok(Span::from_ns(1)));
        assert_eq!(Rate::parse("2.5Gbit/s"), Ok(Rate::from_bps(2_500_000_000)));
        assert_eq!(Bytes::parse("1.5KiB"), Ok(Bytes::new(1536)));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let error = Span::parse("x").unwrap_err();
        assert_eq!(error, UnitError::NotANumber(Dimension::Time));
        assert_eq!(error.to_string(), "not a time such as 20ms");
        let error = Rate::parse("-").unwrap_err();
        assert_eq!(error.to_string(), "not a rate such as 10Mbit/s");
        assert_eq!(Rate::parse("-5Mbit/s"), Err(UnitError::Negative));
        assert_eq!(Span::parse("-.5ms"), Err(UnitError::Negative));
        assert_eq!(Span::parse("5"), Err(UnitError::NoUnit(Dimension::Time)));
        assert_eq!(
            Span::parse("5Mbit/s"),
            Err(UnitError::UnknownUnit(Dimension::Time, None))
        );
        let error = Rate::parse("5mbit").unwrap_err();
        assert_eq!(
            error,
            UnitError::UnknownUnit(Dimension::Rate, Some("Mbit/s"))
        );
        assert_eq!(
            alloc::format!("{error}"),
            "unknown unit: did you mean `Mbit/s`?"
        );
        assert_eq!(Rate::parse("0bit/s"), Err(UnitError::Zero));
        assert_eq!(
            Span::parse("99999999999999999999s"),
            Err(UnitError::TooLarge)
        );
        assert_eq!(Span::parse("99999999999999h"), Err(UnitError::TooLarge));
    }

    #[test]
    fn display_parses_back() {
        for text in ["20ms", "1.5us", "100s", "5ns", "12.345ms"] {
            assert_eq!(Span::parse(text).unwrap().to_string(), text);
        }
        for text in ["10Mbit/s", "1.5Gbit/s", "64kbit/s"] {
            assert_eq!(Rate::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn transmission_rounds_up() {
        // 100 B * 8e9 / 3 bit/s = 266 666 666 666.67 ns
        assert_eq!(
            Rate::from_bps(3).transmission(100),
            Span::from_ns(266_666_666_667)
        );
        // Beyond the 64-bit shortcut: 2^31 B * 8e9 / 1e9 = 17 179 869 184 ns.
        assert_eq!(
            Rate::from_bps(1_000_000_000).transmission(1 << 31),
            Span::from_ns(17_179_869_184)
        );
        assert_eq!(Rate::UNLIMITED.transmission(1500), Span::ZERO);
    }
}
