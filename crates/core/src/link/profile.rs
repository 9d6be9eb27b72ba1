//! dummynet's delay profiles: extra time that packets occupy the link, drawn from a curve.
//!
//! A profile is the inverse of a distribution function, given by points (probability, delay in ms).
//! It is sampled once at `samples` equidistant probabilities. Between points the curve is straight;
//! where two points have the same probability it jumps; samples are truncated to whole
//! milliseconds. For each packet one sample i is drawn. The packet occupies the link longer by
//! `samples[i]` ms worth of bits, and if i is at or above `loss-level` times `samples` it is lost
//! after its transmission. On a link of unlimited rate a profile has no effect.
//!
//! The text has two words per line. `#` starts a comment. Keywords may be in upper case:
//!
//! ```
//! use sluice_core::link::Profile;
//! let profile = Profile::parse("name modem\nsamples 4\nloss-level 1\nprob delay\n0 100\n1 200")?;
//! assert_eq!(profile.samples_ms(), [100, 125, 150, 175]);
//! # Ok::<(), sluice_core::link::ProfileError>(())
//! ```
//!
//! Source: the file format and the rule of FreeBSD's dummynet (ipfw(8), "profile"). Deviations:
//! samples are computed in exact fractions instead of floating point; numbers with trailing letters
//! are refused instead of truncated; a lost packet goes to the sink at the end of its transmission
//! instead of after the delay line, which no receiver can observe.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::iter::repeat;

use crate::rng::Rng;
use crate::units::{Rate, Span};

/// A sampled delay profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Name, at most 31 characters.
    pub name: String,
    /// The rate given in the file, if any.
    pub rate: Option<Rate>,
    /// Assumptions made because the file does not give a value.
    pub warnings: Vec<&'static str>,
    samples_ms: Vec<u64>,
    loss_level: u64,
}

/// The reason why a text is not a profile. The caller puts `error in FILE ` in front.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at line {line}: {kind}")]
pub struct ProfileError {
    /// The line, counted from 1.
    pub line: usize,
    /// The error.
    pub kind: ProfileErrorKind,
}

/// An error in a profile, in dummynet's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProfileErrorKind {
    /// More than two words.
    #[error("too many arguments")]
    TooManyArguments,
    /// A word without a second one.
    #[error("missing arg for {0}")]
    MissingArgument(String),
    /// `samples` was already given.
    #[error("duplicate ``samples'' line")]
    DuplicateSamples,
    /// Not a number above zero.
    #[error("invalid number of samples")]
    InvalidSamples,
    /// Too many samples.
    #[error("too many samples, maximum is {MAX_SAMPLES}")]
    TooManySamples,
    /// A word was already given.
    #[error("duplicated token: {0}")]
    Duplicated(&'static str),
    /// Not a decimal number.
    #[error("invalid {0}")]
    Invalid(&'static str),
    /// A ratio above one.
    #[error("{0} greater than 1.0")]
    Above1(&'static str),
    /// A point that is not two decimal numbers.
    #[error("invalid point found")]
    InvalidPoint,
    /// A point's probability is above one.
    #[error("probability greater than 1.0")]
    Probability,
    /// The first word is not known.
    #[error("unrecognised command '{0}'")]
    Unrecognised(String),
    /// Fewer than two points.
    #[error("too few samples, need at least 2")]
    TooFew,
}

/// A point of the curve: probability and delay in ms, both in billionths.
type Point = (u64, u64);

/// The order of the two columns of points.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    DelayFirst,
    ProbFirst,
}

impl Profile {
    /// Parses a profile.
    ///
    /// # Errors
    /// Returns [`ProfileError`] with the line and dummynet's own message.
    pub fn parse(text: &str) -> Result<Self, ProfileError> {
        let mut reader = Reader::default();
        let mut last = 0;
        for (line, number) in text.lines().zip(1..) {
            last = number;
            reader
                .read(line)
                .map_err(|kind| ProfileError { line: number, kind })?;
        }
        reader
            .finish()
            .map_err(|kind| ProfileError { line: last, kind })
    }

    /// Returns the extra delays in ms, from which one is drawn for each packet.
    pub fn samples_ms(&self) -> &[u64] {
        &self.samples_ms
    }

    /// Returns the index from which on a sample means that the packet is lost.
    pub const fn loss_level(&self) -> u64 {
        self.loss_level
    }

    /// Draws for one packet: its transmission time with the extra bits, and whether it is lost.
    pub(crate) fn transmission(&self, rate: Rate, bytes: u64, rng: &mut Rng) -> (Span, bool) {
        let index = rng.below(self.samples_ms.len() as u64);
        if rate.is_unlimited() {
            return (Span::ZERO, false);
        }
        let bps = u128::from(rate.as_bps());
        // A sample is below 2^35 ms and a rate below 2^64: the product fits into 128 bits.
        let extra = u128::from(self.samples_ms[index as usize]) * bps / 1000;
        let ns = ((u128::from(bytes) * 8 + extra) * 1_000_000_000).div_ceil(bps);
        let span = Span::from_ns(u64::try_from(ns).unwrap_or(u64::MAX));
        (span, index >= self.loss_level)
    }
}

#[derive(Default)]
struct Reader {
    name: Option<String>,
    samples: Option<u64>,
    loss_level: Option<u64>,
    rate: Option<Rate>,
    order: Option<Order>,
    points: Vec<Point>,
}

impl Reader {
    fn read(&mut self, line: &str) -> Result<(), ProfileErrorKind> {
        let significant = line.split('#').next().unwrap_or_default();
        let mut words = significant.split_ascii_whitespace();
        let Some(first) = words.next() else {
            return Ok(());
        };
        let Some(second) = words.next() else {
            return Err(ProfileErrorKind::MissingArgument(short(first)));
        };
        if words.next().is_some() {
            return Err(ProfileErrorKind::TooManyArguments);
        }
        let is = |word: &str| first.eq_ignore_ascii_case(word);
        if is("delay") || is("prob") {
            return self.header(is("delay"), second);
        }
        if let Some(order) = self.order
            && !["samples", "bw", "loss-level", "name"].into_iter().any(is)
        {
            return self.point(order, first, second);
        }
        // Any other word ends the list of points.
        self.order = None;
        if is("samples") {
            self.samples(second)
        } else if is("bw") {
            let rate = bandwidth(second).ok_or(ProfileErrorKind::Invalid("bw"))?;
            self.rate = Some(rate);
            Ok(())
        } else if is("loss-level") {
            self.loss_level(second)
        } else if is("name") {
            if self.name.is_some() {
                return Err(ProfileErrorKind::Duplicated("name"));
            }
            self.name = Some(second.chars().take(31).collect());
            Ok(())
        } else {
            Err(ProfileErrorKind::Unrecognised(short(first)))
        }
    }

    fn header(&mut self, is_delay_first: bool, second: &str) -> Result<(), ProfileErrorKind> {
        let (word, other, order) = if is_delay_first {
            ("delay", "prob", Order::DelayFirst)
        } else {
            ("prob", "delay", Order::ProbFirst)
        };
        if self.order.is_some() {
            return Err(ProfileErrorKind::Duplicated(word));
        }
        if !second.eq_ignore_ascii_case(other) {
            return Err(ProfileErrorKind::Unrecognised(short(second)));
        }
        self.order = Some(order);
        Ok(())
    }

    fn samples(&mut self, text: &str) -> Result<(), ProfileErrorKind> {
        if self.samples.is_some() {
            return Err(ProfileErrorKind::DuplicateSamples);
        }
        let samples = match text.parse() {
            Ok(n) if n > 0 => n,
            _ => return Err(ProfileErrorKind::InvalidSamples),
        };
        if samples > MAX_SAMPLES {
            return Err(ProfileErrorKind::TooManySamples);
        }
        self.samples = Some(samples);
        Ok(())
    }

    fn loss_level(&mut self, text: &str) -> Result<(), ProfileErrorKind> {
        const WORD: &str = "loss-level";
        if self.loss_level.is_some() {
            return Err(ProfileErrorKind::Duplicated(WORD));
        }
        let level = decimal(text).ok_or(ProfileErrorKind::Invalid(WORD))?;
        if level > ONE {
            return Err(ProfileErrorKind::Above1(WORD));
        }
        self.loss_level = Some(level);
        Ok(())
    }

    fn point(&mut self, order: Order, first: &str, second: &str) -> Result<(), ProfileErrorKind> {
        let (Some(first), Some(second)) = (decimal(first), decimal(second)) else {
            return Err(ProfileErrorKind::InvalidPoint);
        };
        let (prob, delay) = match order {
            Order::DelayFirst => (second, first),
            Order::ProbFirst => (first, second),
        };
        if prob > ONE {
            return Err(ProfileErrorKind::Probability);
        }
        self.points.push((prob, delay));
        Ok(())
    }

    fn finish(mut self) -> Result<Profile, ProfileErrorKind> {
        if self.points.len() < 2 {
            return Err(ProfileErrorKind::TooFew);
        }
        let mut warnings = Vec::new();
        let samples = self.samples.unwrap_or_else(|| {
            warnings.push("`samples` is not given, 100 is assumed");
            100
        });
        let loss_level = self.loss_level.unwrap_or_else(|| {
            warnings.push("`loss-level` is not given, no loss is assumed");
            ONE
        });
        self.points.sort_unstable();
        Ok(Profile {
            name: self.name.unwrap_or_default(),
            rate: self.rate,
            warnings,
            samples_ms: (0..samples)
                .map(|i| sample(&self.points, i, samples))
                .collect(),
            loss_level: (u128::from(loss_level) * u128::from(samples) / u128::from(ONE)) as u64,
        })
    }
}

/// Returns the curve at probability `i / n`, in whole ms.
fn sample(points: &[Point], i: u64, n: u64) -> u64 {
    let n = i128::from(n);
    // All probabilities times 10^9 n.
    let at = i128::from(i) * i128::from(ONE);
    let below = points.partition_point(|(prob, _)| i128::from(*prob) * n <= at);
    let billionths = match (
        below.checked_sub(1).map(|k| points[k]),
        points.get(below).copied(),
    ) {
        (None, Some((_, delay))) | (Some((_, delay)), None) => i128::from(delay),
        (Some((from, low)), Some((to, high))) => {
            let (from, to) = (i128::from(from), i128::from(to));
            let (low, high) = (i128::from(low), i128::from(high));
            low + (high - low) * (at - from * n) / ((to - from) * n)
        }
        (None, None) => unreachable!("a curve has points"),
    };
    (billionths / i128::from(ONE)) as u64
}

/// Parses a non-negative decimal number, in billionths. Further digits are cut: points that were computed
/// have many.
fn decimal(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_number = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let whole: u64 = match whole {
        "" => 0,
        whole => whole.parse().ok()?,
    };
    let digits = fraction.bytes().chain(repeat(b'0')).take(9);
    let billionths = digits.fold(0, |sum, digit| 10 * sum + u64::from(digit - b'0'));
    whole.checked_mul(ONE)?.checked_add(billionths)
}

/// Parses dummynet's bandwidth: a number (decimal, 0x.., 0..), K, M or G for powers of 1000, and a
/// unit that means bytes if it starts with `B` (but not `Bi`) or `by`. The name of a device is
/// accepted and means no limit.
fn bandwidth(text: &str) -> Option<Rate> {
    if text.starts_with(|c: char| c.is_ascii_lowercase()) {
        return Some(Rate::UNLIMITED);
    }
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None if text.starts_with('0') => (text, 8),
        None => (text, 10),
    };
    let end = digits
        .find(|c: char| !c.is_digit(radix))
        .unwrap_or(digits.len());
    let number = u64::from_str_radix(&digits[..end], radix).ok()?;
    let rest = &digits[end..];
    let (factor, unit) = match rest.as_bytes().first() {
        Some(b'K' | b'k') => (1_000, &rest[1..]),
        Some(b'M' | b'm') => (1_000_000, &rest[1..]),
        Some(b'G' | b'g') => (1_000_000_000, &rest[1..]),
        _ => (1, rest),
    };
    let is_bytes = (unit.starts_with('B') && !unit.starts_with("Bi")) || unit.starts_with("by");
    let bps = number
        .checked_mul(factor)?
        .checked_mul(if is_bytes { 8 } else { 1 })?;
    Some(Rate::from_bps(bps))
}

fn short(word: &str) -> String {
    match word.char_indices().nth(40) {
        Some((end, _)) => word[..end].to_string(),
        None => word.to_string(),
    }
}

const MAX_SAMPLES: u64 = 1024;
/// One, in billionths.
const ONE: u64 = 1_000_000_000;

#[cfg(test)]
mod tests;
