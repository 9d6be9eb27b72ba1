//! The common parts of traffic models: spacing of packets, sizes of objects, random draws.
//!
//! The simulator and live load generators describe their sources with the same types, so a flow
//! means the same on both. Nothing here decides about a packet.
//!
//! The draws use the four basic operations of IEEE 754 only, which every machine rounds alike. The
//! logarithm of a system's mathematics library differs in the last bit between machines.

use crate::rng::Rng;
use crate::units::{Rate, Span, Time};

/// The spacing of the packets of a source that does not react to congestion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spacing {
    /// Equal intervals.
    #[default]
    Constant,
    /// Exponentially distributed intervals with the same mean.
    Poisson,
    /// Equal intervals during `on`, silence during `off`, in turn.
    OnOff {
        /// Length of a burst.
        on: Span,
        /// Length of a silence.
        off: Span,
    },
    /// Bursts and silences, with exponentially distributed lengths of these means.
    RandomOnOff {
        /// Mean length of a burst.
        on: Span,
        /// Mean length of a silence.
        off: Span,
    },
}

impl Spacing {
    /// The share of the time in which packets leave.
    pub fn duty_cycle(self) -> f64 {
        match self {
            Spacing::Constant | Spacing::Poisson => 1.0,
            Spacing::OnOff { on, off } | Spacing::RandomOnOff { on, off } => {
                on.as_secs_f64() / (on + off).as_secs_f64()
            }
        }
    }
}

/// The instants at which packets of one size leave at a rate, with a [`Spacing`].
///
/// ```
/// use sluice_core::traffic::{Departures, Spacing};
/// use sluice_core::{Rate, Rng, Span, Time};
///
/// let mut rng = Rng::from_seed(1);
/// let rate = Rate::from_bps(8_000_000);
/// let mut departures = Departures::new(Spacing::Constant, rate, 1000, Time::ZERO, &mut rng);
/// // 1000 B * 8 bit / 8 Mbit/s = 1 ms
/// assert_eq!(departures.after(Time::ZERO, &mut rng), Time::ZERO + Span::from_ms(1));
/// ```
#[derive(Clone, Debug)]
pub struct Departures {
    spacing: Spacing,
    rate: Rate,
    packet_bytes: u64,
    burst_start: Time,
    burst_end: Time,
    /// Packets of the current burst that have left.
    burst_sent: u64,
}

impl Departures {
    /// A source whose first packet leaves at `start`. `packet_bytes` counts towards `rate`, which
    /// is not unlimited.
    pub fn new(
        spacing: Spacing,
        rate: Rate,
        packet_bytes: u64,
        start: Time,
        rng: &mut Rng,
    ) -> Self {
        Departures {
            spacing,
            rate,
            packet_bytes,
            burst_start: start,
            burst_end: match spacing {
                Spacing::Constant | Spacing::Poisson => Time::MAX,
                Spacing::OnOff { on, .. } => start.saturating_add(on),
                Spacing::RandomOnOff { on, .. } => start.saturating_add(exponential(rng, on)),
            },
            burst_sent: 0,
        }
    }

    /// Returns the due time of the packet after the one that leaves at `now`. Call it once per
    /// packet.
    pub fn after(&mut self, now: Time, rng: &mut Rng) -> Time {
        self.burst_sent += 1;
        let mut at = match self.spacing {
            Spacing::Poisson => now.saturating_add(exponential(rng, self.sending(1))),
            // Packet i of a burst is due at its start + i * bits / rate, so that no rounding adds up.
            _ => self
                .burst_start
                .saturating_add(self.sending(self.burst_sent)),
        };
        if at >= self.burst_end {
            let (on, off) = match self.spacing {
                Spacing::RandomOnOff { on, off } => (exponential(rng, on), exponential(rng, off)),
                Spacing::OnOff { on, off } => (on, off),
                Spacing::Constant | Spacing::Poisson => (Span::MAX, Span::ZERO),
            };
            at = at.max(self.burst_end.saturating_add(off));
            self.burst_start = at;
            self.burst_end = at.saturating_add(on);
            self.burst_sent = 0;
        }
        at
    }

    /// The time that `packets` take at the rate, rounded down.
    fn sending(&self, packets: u64) -> Span {
        let bit_ns = u128::from(self.packet_bytes) * 8_000_000_000;
        let ns = u128::from(packets) * bit_ns / u128::from(self.rate.as_bps());
        Span::from_ns(u64::try_from(ns).unwrap_or(u64::MAX))
    }
}

/// Size of the objects of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectSize {
    /// Always the same number of bytes.
    Fixed(u64),
    /// Exponentially distributed with this mean, at least one byte.
    Exponential(u64),
    /// Pareto-distributed, as sizes on the web are (Crovella and Bestavros, 1997: tail index
    /// 1.2).
    Pareto {
        /// The smallest size.
        min: u64,
        /// Tail index in thousandths.
        shape_milli: u32,
        /// Larger draws are cut here.
        max: u64,
    },
}

impl ObjectSize {
    /// Draws the size of one object, in bytes.
    pub fn draw(self, rng: &mut Rng) -> u64 {
        match self {
            ObjectSize::Fixed(bytes) => bytes,
            ObjectSize::Exponential(mean) => exponential(rng, Span::from_ns(mean)).as_ns().max(1),
            ObjectSize::Pareto {
                min,
                shape_milli,
                max,
            } => pareto(rng, min, shape_milli, max),
        }
    }
}

/// Draws an exponentially distributed span: the time to the next event of a Poisson process.
pub fn exponential(rng: &mut Rng, mean: Span) -> Span {
    let u = 1.0 - rng.unit_f64();
    Span::from_ns((-ln(u) * mean.as_ns() as f64) as u64)
}

/// Draws a Pareto-distributed number of at least `min` with the tail index `shape_milli` / 1000,
/// cut at `max`.
pub fn pareto(rng: &mut Rng, min: u64, shape_milli: u32, max: u64) -> u64 {
    let u = 1.0 - rng.unit_f64();
    let factor = exp(-ln(u) * 1000.0 / f64::from(shape_milli.max(1)));
    ((min as f64 * factor) as u64).clamp(min, max)
}

/// ln(x) for x > 0, to about 1e-15: the exponent times ln 2, and an odd series in (m-1)/(m+1) for
/// the mantissa in [1/sqrt 2, sqrt 2).
fn ln(x: f64) -> f64 {
    let bits = x.to_bits();
    let mut exponent = ((bits >> 52) & 0x7ff) as i64 - 1023;
    let mut mantissa = f64::from_bits((bits & !(0x7ff << 52)) | (1023 << 52));
    if mantissa > core::f64::consts::SQRT_2 {
        mantissa /= 2.0;
        exponent += 1;
    }
    let t = (mantissa - 1.0) / (mantissa + 1.0);
    let square = t * t;
    // |t| < 0.172: fifteen terms reach 1e-17.
    let mut sum = 0.0;
    for n in (0..15).rev() {
        sum = sum * square + 1.0 / f64::from(2 * n + 1);
    }
    2.0 * t * sum + exponent as f64 * core::f64::consts::LN_2
}

/// e^x for moderate x: a power of two times a series in the remainder.
fn exp(x: f64) -> f64 {
    let n = round(x / core::f64::consts::LN_2);
    if n < -1000.0 {
        return 0.0;
    }
    let r = x - n * core::f64::consts::LN_2;
    // |r| < 0.347: eighteen terms reach 1e-17.
    let mut sum = 1.0;
    for k in (1..18).rev() {
        sum = 1.0 + sum * r / f64::from(k);
    }
    sum * f64::from_bits(((n.min(1023.0) as i64 + 1023) as u64) << 52)
}

/// The nearest whole number, halves away from zero. |x| < 2^52, so the fraction is exact.
fn round(x: f64) -> f64 {
    let whole = x as i64 as f64;
    let fraction = x - whole;
    if fraction >= 0.5 {
        whole + 1.0
    } else if fraction <= -0.5 {
        whole - 1.0
    } else {
        whole
    }
}

/// The longest time that a host takes to process a packet, by default: the cost of a wake-up on a
/// virtual machine.
pub const HOST_JITTER: Span = Span::from_us(50);

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    #[test]
    fn departures_are_exact_after_a_day() {
        // 100 bytes = 800 bit at 3 Mbit/s: 266 666.67 ns apart, so three packets take 800 000 ns.
        let (mut rng, rate) = (Rng::from_seed(1), Rate::from_bps(3_000_000));
        let mut source = Departures::new(Spacing::Constant, rate, 100, Time::from_ns(5), &mut rng);
        // A day's 3e8 packets: 1e8 times 800 000 ns.
        source.burst_sent = 299_999_999;
        let due = source.after(Time::ZERO, &mut rng);
        assert_eq!(due, Time::from_ns(5 + 80_000_000_000_000));
    }

    #[test]
    fn logarithm_and_exponential_are_accurate() {
        for x in [1e-9, 0.3, 0.999_999, 1.0, 1.5, 2.0, 10.0, 12_345.678] {
            assert!((ln(x) - f64::ln(x)).abs() <= 1e-14 * f64::ln(x).abs().max(1.0));
            assert!((exp(ln(x)) - x).abs() <= 1e-13 * x);
        }
        assert_eq!(exp(0.0), 1.0);
    }

    #[test]
    fn halves_round_away_from_zero() {
        // The largest number below 0.5, to which 0.5 added would be 1.
        for x in [0.0, 0.499_999_999_999_999_94, 0.5, 1.5, 2.5, 7.3, 1e15] {
            assert_eq!(round(x), f64::round(x));
            assert_eq!(round(-x), f64::round(-x));
        }
    }

    #[test]
    fn the_means_are_those_of_the_distributions() {
        let mut rng = Rng::from_seed(1);
        let n = 200_000;
        let sum: u64 = (0..n)
            .map(|_| exponential(&mut rng, Span::from_us(100)).as_ns())
            .sum();
        // Standard error 100 us / sqrt(200000) = 0.22 us; five of them
        assert!((sum / n).abs_diff(100_000) < 1_100);
        let sum: u64 = (0..n).map(|_| pareto(&mut rng, 1000, 2500, 1 << 40)).sum();
        // Mean of a Pareto: 1000 * 2.5 / 1.5 = 1667; its deviation is 1491, five errors are 17
        assert!((sum / n).abs_diff(1667) < 17);
    }

    #[test]
    fn a_burst_ends_with_its_time_and_the_next_starts_after_the_silence() {
        // 1 ms for each packet; bursts of 3 ms with 7 ms between them: 0 1 2, 10 11 12, ...
        let (on, off) = (Span::from_ms(3), Span::from_ms(7));
        let mut rng = Rng::from_seed(1);
        let spacing = Spacing::OnOff { on, off };
        let rate = Rate::from_bps(8_000_000);
        let mut departures = Departures::new(spacing, rate, 1000, Time::ZERO, &mut rng);
        let mut at = Time::ZERO;
        let seen: std::vec::Vec<u64> = (0..6)
            .map(|_| {
                at = departures.after(at, &mut rng);
                at.as_ns() / 1_000_000
            })
            .collect();
        assert_eq!(seen, [1, 2, 10, 11, 12, 20]);
        assert!((spacing.duty_cycle() - 0.3).abs() < 1e-12);
    }
}
