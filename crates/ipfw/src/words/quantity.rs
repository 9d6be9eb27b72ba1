//! Numbers with dummynet's suffixes: rates, delays, sizes, times, probabilities.
//!
//! dummynet reads a C integer (decimal, `0x`, leading `0` for octal), then letters, and ignores
//! what it does not know. Sluice also reads fractions and units. A warning marks each difference,
//! and `compat` selects dummynet's reading.

use std::fmt;

use sluice_core::param::Ratio;
use sluice_core::units::{Rate, Span};

use super::error::{CommandError, ErrorKind};
use super::parser::{Parse, Parser, invalid, refused};
use super::token::At;

/// The limit of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueSize {
    /// Packets.
    Slots(u64),
    /// Bytes.
    Bytes(u64),
}

impl fmt::Display for QueueSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            QueueSize::Slots(n) => write!(f, "{n}"),
            QueueSize::Bytes(n) if n % 1024 == 0 => write!(f, "{}KBytes", n / 1024),
            QueueSize::Bytes(n) => write!(f, "{n}B"),
        }
    }
}

/// The number of packets in a queue without a configured size.
pub const DEFAULT_SLOTS: u64 = 50;
/// The size that dummynet uses for a limit below one packet of 1500 bytes.
pub const DEFAULT_BYTES: u64 = 16 * 1024;
/// The highest rate of a link: 1 Tbit/s.
pub const MAX_RATE_BPS: u64 = 1_000_000_000_000;
/// The longest delay without a unit.
const MAX_BARE_DELAY_MS: u128 = 10_000;
/// The longest delay.
const MAX_DELAY_NS: u128 = 3_600_000_000_000;
/// The largest burst: 2^48 - 1 bytes.
const MAX_BURST: u128 = (1 << 48) - 1;
/// dummynet's message about a burst, and what it accepts.
const INVALID_BURST: &str = "burst: invalid argument (bytes, such as 15000 or 100k)";

/// A decimal number, and the text behind it.
struct Number<'a> {
    /// The digits before and behind the point, as one integer.
    digits: u128,
    /// Ten to the power of the number of digits behind the point.
    scale: u128,
    rest: &'a str,
}

impl Number<'_> {
    /// Returns the number times `factor`, truncated to an integer; `None` beyond 128 bits.
    fn times(&self, factor: u128) -> Option<u128> {
        self.digits.checked_mul(factor).map(|n| n / self.scale)
    }
}

/// Reads a C integer like `strtoul` with base 0.
pub(crate) fn c_integer(text: &str) -> Option<(u128, &str)> {
    let (radix, digits) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) if hex.starts_with(|c: char| c.is_ascii_hexdigit()) => (16, hex),
        _ if text.len() > 1 && text.starts_with('0') => (8, text),
        _ => (10, text),
    };
    let len = digits
        .find(|c: char| !c.is_digit(radix))
        .unwrap_or(digits.len());
    if len == 0 {
        return None;
    }
    // A number with more digits than fit is too large for every use.
    let value = u128::from_str_radix(&digits[..len], radix).unwrap_or(u128::MAX);
    Some((value, &digits[len..]))
}

/// Reads a C integer that fills the whole text.
pub(crate) fn whole_integer(text: &str) -> Option<u128> {
    c_integer(text)
        .filter(|(_, rest)| rest.is_empty())
        .map(|(n, _)| n)
}

/// Reads a decimal integer that fills the whole text: the number of a rule, set or object, which
/// may have leading zeros.
pub(crate) fn decimal_integer(text: &str) -> Option<u128> {
    let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u128::MAX))
}

/// Reads a number at the start of `text`, with a fraction unless `compat`.
fn number(text: &str, compat: bool) -> Option<Number<'_>> {
    let is_digit = |c: char| c.is_ascii_digit();
    let whole_len = text.find(|c| !is_digit(c)).unwrap_or(text.len());
    let fraction = text[whole_len..].strip_prefix('.');
    if let Some(fraction) = fraction.filter(|_| !compat) {
        let len = fraction.find(|c| !is_digit(c)).unwrap_or(fraction.len());
        if whole_len + len == 0 {
            return None;
        }
        // Further digits are beyond every resolution used here.
        let kept = &fraction[..len.min(15)];
        let digits = format!("{}{kept}", &text[..whole_len]);
        return Some(Number {
            digits: digits.parse().unwrap_or(u128::MAX),
            scale: 10u128.pow(kept.len() as u32),
            rest: &fraction[len..],
        });
    }
    let (digits, rest) = c_integer(text)?;
    Some(Number {
        digits,
        scale: 1,
        rest,
    })
}

/// Reads `bw`: bits per second, 0 for no limit.
pub(crate) fn rate(p: &mut Parser<'_>, word: At<&str>) -> Parse<Rate> {
    let text = word.value;
    if text == "unlimited" && !p.compat {
        return Ok(Rate::UNLIMITED);
    }
    if text.starts_with(|c: char| c.is_ascii_lowercase()) {
        return Err(CommandError::new(ErrorKind::NoDeviceClock, word.at));
    }
    let Some(number) = number(text, p.compat) else {
        return Err(invalid(
            word,
            "a bandwidth",
            "a number with K, M or G and bit/s or Byte/s",
        ));
    };
    let mut unit = number.rest;
    let mut factor: u128 = 1;
    if let Some(first) = unit.chars().next() {
        factor = match first.to_ascii_lowercase() {
            'k' => 1_000,
            'm' => 1_000_000,
            'g' => 1_000_000_000,
            't' if !p.compat => 1_000_000_000_000,
            _ => 1,
        };
        if factor > 1 {
            unit = &unit[1..];
        }
    }
    // A capital B that does not start "Bit", or "by", means bytes.
    let mut letters = unit.chars();
    let is_bytes = match (letters.next(), letters.next()) {
        (Some('B'), second) => second != Some('i'),
        (Some('b'), second) => matches!(second, Some('y' | 'Y')),
        _ => false,
    };
    let mut unknown_unit = None;
    if !matches!(
        unit.to_ascii_lowercase().as_str(),
        "" | "b"
            | "b/s"
            | "bit"
            | "bits"
            | "bit/s"
            | "bits/s"
            | "bps"
            | "byte"
            | "bytes"
            | "byte/s"
            | "bytes/s"
    ) {
        unknown_unit = Some(unit);
    }
    let bps = number.times(factor * if is_bytes { 8 } else { 1 });
    if let (Some(unit), Some(bps)) = (unknown_unit, bps.and_then(|bps| u64::try_from(bps).ok())) {
        let understood = Rate::from_bps(bps);
        p.warn(
            word.at,
            format!(
                "`{unit}` in `{text}` is not bit/s or Byte/s: {understood} is set, as in dummynet"
            ),
        );
    }
    if number.rest.is_empty() && bps.is_some_and(|bps| (1..LEAST_BARE_BPS).contains(&bps)) {
        p.warn(
            word.at,
            format!("`{text}` has no unit, and is {text} bit/s: write `{text}Mbit/s` for megabits"),
        );
    }
    let high = if p.compat {
        u128::from(u32::MAX)
    } else {
        u128::from(MAX_RATE_BPS)
    };
    match bps {
        Some(bps) if bps <= high => {
            if bps == 0 && number.digits > 0 {
                return Err(invalid(
                    word,
                    "a bandwidth",
                    "at least 1 bit/s, or 0 for no limit",
                ));
            }
            Ok(Rate::from_bps(bps as u64))
        }
        _ => Err(refused("bandwidth too large", word.at)),
    }
}

/// Reads `delay`: milliseconds unless a unit is given.
pub(crate) fn delay(p: &mut Parser<'_>, word: At<&str>) -> Parse<Span> {
    let text = word.value;
    let Some(number) = number(text, p.compat) else {
        return Err(invalid(
            word,
            "a delay",
            "a number of ms, or with ns, us, ms, s or min",
        ));
    };
    let unit = number.rest.to_ascii_lowercase();
    let ms = 1_000_000;
    let known = match unit.as_str() {
        "" | "ms" | "msec" | "msecs" => Some(ms),
        "ns" => Some(1),
        "us" | "usec" => Some(1_000),
        "s" | "sec" | "secs" => Some(1_000 * ms),
        "min" => Some(60_000 * ms),
        _ => None,
    };
    let factor = match known {
        Some(factor) if !p.compat => factor,
        _ => ms,
    };
    if p.compat && known != Some(ms) || known.is_none() {
        let n = number.digits / number.scale;
        p.warn(
            word.at,
            format!(
                "`{}` in `{text}` is ignored: the delay is {n} ms",
                number.rest
            ),
        );
    } else if factor != ms {
        let n = number.digits / number.scale;
        p.warn(
            word.at,
            format!("the unit of `delay {text}` is applied; dummynet would use {n} ms"),
        );
    }
    let ns = number.times(factor).unwrap_or(u128::MAX);
    // Without a unit dummynet's limit applies, so that surplus digits are noticed.
    if (p.compat || unit.is_empty()) && ns > MAX_BARE_DELAY_MS * ms {
        return Err(refused("delay must be < 10000", word.at));
    }
    if ns > MAX_DELAY_NS {
        return Err(invalid(word, "a delay", "at most one hour"));
    }
    Ok(Span::from_ns(ns as u64))
}

/// Reads `burst`: bytes, with suffixes that are powers of 1024.
pub(crate) fn burst(p: &mut Parser<'_>, word: At<&str>) -> Parse<u64> {
    let invalid = || refused(INVALID_BURST, word.at);
    let number = number(word.value, p.compat).ok_or_else(invalid)?;
    let unit = number.rest.to_ascii_lowercase();
    let (shift, unit) = match unit.chars().next() {
        Some('k') => (10, &unit[1..]),
        Some('m') => (20, &unit[1..]),
        Some('g') => (30, &unit[1..]),
        Some('t') => (40, &unit[1..]),
        Some('p') => (50, &unit[1..]),
        Some('e') => (60, &unit[1..]),
        _ => (0, unit.as_str()),
    };
    match unit {
        "" | "b" => {}
        "byte" | "bytes" if !p.compat => {}
        "ib" if !p.compat && shift > 0 => {}
        _ => return Err(invalid()),
    }
    match number.times(1 << shift) {
        Some(bytes) if bytes <= MAX_BURST => Ok(bytes as u64),
        _ => Err(refused("burst: out of range (0..2^48-1)", word.at)),
    }
}

/// Reads the option `queue`: slots, or bytes with `K`, `B` or `by...`.
pub(crate) fn queue_size(p: &mut Parser<'_>, word: At<&str>) -> Parse<QueueSize> {
    let text = word.value;
    let Some(number) = number(text, p.compat) else {
        return Err(invalid(
            word,
            "a queue size",
            "slots, or bytes such as 50KBytes",
        ));
    };
    let rest = number.rest;
    let (factor, unit) = match rest.chars().next() {
        Some('k' | 'K') => (1024, &rest[1..]),
        Some('m' | 'M') if !p.compat => (1 << 20, &rest[1..]),
        Some('g' | 'G') if !p.compat => (1 << 30, &rest[1..]),
        _ => (1, rest),
    };
    let is_bytes =
        factor > 1 || unit.starts_with('B') || unit.to_ascii_lowercase().starts_with("by");
    let is_known = matches!(
        unit.to_ascii_lowercase().as_str(),
        "" | "b" | "byte" | "bytes" | "slot" | "slots"
    );
    if !is_known {
        let taken = if is_bytes { "bytes" } else { "slots" };
        p.warn(
            word.at,
            format!("`{rest}` in `{text}` is ignored: {taken} are assumed"),
        );
    } else if factor > 1024 {
        p.warn(
            word.at,
            format!("the unit of `queue {text}` is applied; dummynet would use slots"),
        );
    }
    let amount = number
        .times(factor)
        .and_then(|n| u64::try_from(n).ok())
        .filter(|n| *n <= u64::from(u32::MAX))
        .ok_or_else(|| invalid(word, "a queue size", "below 2^32"))?;
    Ok(if is_bytes {
        QueueSize::Bytes(amount)
    } else {
        QueueSize::Slots(amount)
    })
}

/// Reads a time of an AQM's parameter: `us`, `ms` or `s` in any case, or milliseconds.
pub(crate) fn time(word: At<&str>) -> Parse<Span> {
    let accepted = "a number with us, ms or s";
    let Some(number) = number(word.value, false) else {
        return Err(invalid(word, "a time", accepted));
    };
    let factor = match number.rest.to_ascii_lowercase().as_str() {
        "ns" => 1,
        "us" => 1_000,
        "" | "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return Err(invalid(word, "a time", accepted)),
    };
    number
        .times(factor)
        .and_then(|ns| u64::try_from(ns).ok())
        .map(Span::from_ns)
        .ok_or_else(|| invalid(word, "a time", "below 584 years"))
}

/// A rate without unit below this one is probably meant in another unit.
const LEAST_BARE_BPS: u128 = 10_000;

/// Reads a number like C's `strtod`, in billionths.
pub(crate) fn decimal(word: At<&str>) -> Parse<Ratio> {
    let text = word.value;
    let is_number = text.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    match text.parse::<f64>() {
        Ok(value) if is_number && value < 9e6 => {
            Ok(Ratio::from_billionths((value * 1e9).round() as u64))
        }
        _ => Err(invalid(word, "a number", "a decimal number of 0 or more")),
    }
}

/// Reads a probability. A value outside 0 to 1 is clamped as in dummynet, with a warning.
pub(crate) fn probability(p: &mut Parser<'_>, word: At<&str>) -> Parse<Ratio> {
    if let Some(magnitude) = word.value.strip_prefix('-') {
        decimal(At::new(magnitude, word.at))?;
        p.warn(word.at, format!("`{}` is below 0: 0 is used", word.value));
        return Ok(Ratio::default());
    }
    let value = decimal(word)?;
    if value > Ratio::ONE {
        let text = word.value;
        let mut warning = format!("`{text}` is above 1: 1 is used");
        let share = value.as_billionths() as f64 / 1e11;
        if share <= 1.0 {
            warning.push_str(&format!("; {text} % is {share}"));
        }
        p.warn(word.at, warning);
        return Ok(Ratio::ONE);
    }
    Ok(value)
}

/// Writes a rate in a form that dummynet reads too.
pub(crate) struct ShowRate(pub Rate);

impl fmt::Display for ShowRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_unlimited() {
            return f.write_str("0");
        }
        let bps = self.0.as_bps();
        let units = [
            (1_000_000_000, "Gbit/s"),
            (1_000_000, "Mbit/s"),
            (1_000, "Kbit/s"),
        ];
        let (factor, unit) = units
            .into_iter()
            .find(|(factor, _)| bps.is_multiple_of(*factor))
            .unwrap_or((1, "bit/s"));
        write!(f, "{}{unit}", bps / factor)
    }
}

/// Writes a delay in milliseconds. It is read without a warning, unlike other units.
pub(crate) struct ShowDelay(pub Span);

impl fmt::Display for ShowDelay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ms, ns) = (self.0.as_ns() / 1_000_000, self.0.as_ns() % 1_000_000);
        if ns == 0 {
            return write!(f, "{ms}ms");
        }
        let fraction = format!("{ns:06}");
        write!(f, "{ms}.{}ms", fraction.trim_end_matches('0'))
    }
}

#[cfg(test)]
mod tests {
    use super::super::token::words;
    use super::*;

    fn with<T>(
        text: &str,
        compat: bool,
        read: fn(&mut Parser<'_>, At<&str>) -> Parse<T>,
    ) -> (Result<T, String>, usize) {
        let words = words(text, 1);
        let mut p = Parser::new(&words, compat);
        let word = p.take().expect("the test gives a word");
        let value = read(&mut p, word).map_err(|e| e.to_string());
        (value, p.warnings.len())
    }

    fn bps(text: &str) -> u64 {
        with(text, false, rate).0.unwrap().as_bps()
    }

    #[test]
    fn common_bandwidths_are_read_as_in_dummynet() {
        // Reference, section 7 item 1: B and by are bytes, b is bits; Bit is bits.
        assert_eq!(bps("10Mb"), 10_000_000);
        assert_eq!(bps("10MBit/s"), 10_000_000);
        assert_eq!(bps("1mbits/s"), 1_000_000);
        assert_eq!(bps("30Byte/s"), 240);
        assert_eq!(bps("1MByte/s"), 8_000_000);
        assert_eq!(bps("300Kbit/s"), 300_000);
        assert_eq!(bps("50KBytes"), 400_000);
        assert_eq!(bps("10k"), 10_000);
        assert_eq!(bps("0x10"), 16);
        assert_eq!(bps("010"), 8);
        assert!(with("0", false, rate).0.unwrap().is_unlimited());
    }

    #[test]
    fn fractions_and_terabits_are_read_and_compat_refuses_or_cuts_them() {
        assert_eq!(bps("1.5Mbit/s"), 1_500_000);
        assert_eq!(bps("1Tbit/s"), MAX_RATE_BPS);
        assert_eq!(
            with("1.1Tbit/s", false, rate).0.unwrap_err(),
            "bandwidth too large"
        );
        assert_eq!(
            with("5Gbit/s", true, rate).0.unwrap_err(),
            "bandwidth too large"
        );
        let (cut, warnings) = with("1.5Mbit/s", true, rate);
        assert_eq!((cut.unwrap().as_bps(), warnings), (1, 1));
        assert_eq!(with("em0", false, rate).0.unwrap_err(), "no if support");
    }

    #[test]
    fn a_delay_has_a_unit_and_compat_ignores_it() {
        let ms = |text, compat| with(text, compat, delay).0.map(|d| d.as_ns() as f64 / 1e6);
        assert_eq!(ms("20ms", false), Ok(20.0));
        assert_eq!(ms("20", false), Ok(20.0));
        assert_eq!(ms("1s", false), Ok(1000.0));
        assert_eq!(ms("1s", true), Ok(1.0));
        assert_eq!(ms("0.25", false), Ok(0.25));
        assert_eq!(ms("250us", false), Ok(0.25));
        assert_eq!(ms("10000", false), Ok(10_000.0));
        assert_eq!(ms("10001", false), Err("delay must be < 10000".into()));
        assert_eq!(ms("20s", false), Ok(20_000.0));
        assert_eq!(with("1s", false, delay).1, 1);
        assert_eq!(with("1s", true, delay).1, 1);
        assert_eq!(with("20ms", true, delay).1, 0);
    }

    #[test]
    fn a_delay_is_written_as_it_is_read_without_a_warning() {
        for (ns, expected) in [
            (1, "0.000001ms"),
            (250_000, "0.25ms"),
            (1_500_000, "1.5ms"),
            (20_000_000, "20ms"),
            (20_000_000_000, "20000ms"),
            (3_600_000_000_000, "3600000ms"),
        ] {
            let span = Span::from_ns(ns);
            let text = ShowDelay(span).to_string();
            assert_eq!(text, expected);
            assert_eq!(with(&text, false, delay), (Ok(span), 0), "{text}");
        }
    }

    #[test]
    fn queue_sizes_and_bursts_count_in_1024() {
        assert_eq!(with("20", false, queue_size).0, Ok(QueueSize::Slots(20)));
        assert_eq!(
            with("10K", false, queue_size).0,
            Ok(QueueSize::Bytes(10_240))
        );
        assert_eq!(
            with("30Bytes", false, queue_size).0,
            Ok(QueueSize::Bytes(30))
        );
        assert_eq!(with("2M", true, queue_size), (Ok(QueueSize::Slots(2)), 1));
        assert_eq!(
            with("2MB", false, queue_size),
            (Ok(QueueSize::Bytes(2 << 20)), 1)
        );
        // A unit is a power of 1024; dummynet accepts its letter only.
        for text in ["10k", "10K", "10kB", "10240", "10240B"] {
            for compat in [false, true] {
                assert_eq!(with(text, compat, burst), (Ok(10_240), 0), "{text}");
            }
        }
        for text in ["10KBytes", "10kbyte", "10KiB", "10240Bytes"] {
            assert_eq!(with(text, false, burst), (Ok(10_240), 0), "{text}");
            assert_eq!(with(text, true, burst).0, Err(INVALID_BURST.into()));
        }
        assert_eq!(with("2MBytes", false, burst).0, Ok(2 << 20));
        for text in ["x", "10kbit", "10kbit/s", "10ib", "10kBytesx"] {
            assert_eq!(with(text, false, burst).0, Err(INVALID_BURST.into()));
        }
        assert_eq!(
            with("256T", false, burst).0,
            Err("burst: out of range (0..2^48-1)".into())
        );
    }

    #[test]
    fn probabilities_are_clamped_with_a_warning() {
        assert_eq!(
            with("0.1", false, probability),
            (Ok(Ratio::from_billionths(100_000_000)), 0)
        );
        assert_eq!(with("1.5", false, probability), (Ok(Ratio::ONE), 1));
        assert_eq!(with("-1", false, probability), (Ok(Ratio::default()), 1));
        assert!(with("inf", false, probability).0.is_err());
    }
}
