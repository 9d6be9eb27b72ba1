//! Operations on a queue, and values for its parameters, decoded from a few small integers.
//!
//! So proptest can shrink a failing sequence, and a fuzzer can mutate one.

use alloc::vec::Vec;
use core::fmt;

use super::{codepoint, ms};
use crate::param::{Kind, ParamDecl, Ratio, Value, Values};
use crate::registry::{Algorithm, Spec};
use crate::units::{Bytes, Rate, Span};
use crate::{Ecn, Packet, Time};

/// One step of a sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// A packet arrives.
    Arrive(Arrival),
    /// The link dequeues a packet.
    Dequeue,
    /// The link dequeues packets until there is none.
    Drain,
    /// Time passes; timers are called at the instants that they requested.
    Pass(u64),
    /// Time passes; timers that expired are called only at its end.
    PassLate(u64),
    /// The host dequeues although nothing can come.
    Spurious,
    /// One packet is pulled.
    Pull,
}

/// The fields of an arriving packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Bytes on the link.
    pub len: u32,
    /// Flow hash; the hosts' hashes follow from it.
    pub flow: u32,
    /// Class.
    pub class: u32,
    /// ECN codepoint.
    pub ecn: Ecn,
    /// Differentiated services codepoint.
    pub dscp: u8,
    /// Wire packets.
    pub segments: u16,
}

impl Arrival {
    /// Returns the packet, arriving at `now` with its bytes in `slot`.
    pub fn packet(&self, slot: u32, now: Time) -> Packet {
        let mut packet = Packet::new(slot, self.len);
        packet.arrival = now;
        packet.flow = self.flow;
        packet.src = self.flow / 3;
        packet.dst = self.flow / 2;
        packet.class = self.class;
        packet.ecn = self.ecn;
        packet.dscp = self.dscp;
        packet.segments = self.segments;
        packet.tag = self.len / 7 * (self.flow % 16);
        packet
    }

    /// Decodes 48 bits: usual packets mostly, odd ones sometimes.
    pub fn from_bits(bits: u64) -> Self {
        let byte = |i: u32| (bits >> (8 * i)) as u8;
        let segments = match byte(0) {
            0..=199 => 1,
            n => u16::from(n - 198),
        };
        let one = match byte(1) {
            0..=79 => 1514,
            80..=119 => 64,
            n => u32::from(n - 119) * 66,
        };
        let flow = match byte(2) {
            n @ 0..=219 => u32::from(n % 7),
            n => u32::from(n).wrapping_mul(0x9E37_79B9),
        };
        let class = match byte(3) {
            n @ 0..=239 => u32::from(n % 5),
            n => u32::from(n).wrapping_mul(0x85EB_CA6B),
        };
        Arrival {
            len: one * u32::from(segments),
            flow,
            class,
            ecn: Ecn::from_bits(byte(4)),
            dscp: match byte(5) {
                0..=127 => 0,
                n => n & 63,
            },
            segments,
        }
    }
}

impl Op {
    /// Decodes a kind of operation (its weight is its share of 0 to 255) and 64 bits.
    pub fn from_bits(kind: u8, bits: u64) -> Self {
        match kind {
            0..=109 => Op::Arrive(Arrival::from_bits(bits)),
            110..=179 => Op::Dequeue,
            180..=185 => Op::Drain,
            186..=224 => Op::Pass(span_ns(bits)),
            225..=234 => Op::PassLate(span_ns(bits)),
            235..=253 => Op::Spurious,
            254..=255 => Op::Pull,
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Arrive(arrival) => write!(
                f,
                "a packet of {} bytes arrives (flow {}, class {}, {}, DSCP {}, segments {})",
                arrival.len,
                arrival.flow,
                arrival.class,
                codepoint(arrival.ecn),
                arrival.dscp,
                arrival.segments
            ),
            Op::Dequeue => f.write_str("a dequeue"),
            Op::Drain => f.write_str("dequeues until there is no packet"),
            Op::Pass(ns) => write!(f, "{} pass", ms(Time::from_ns(*ns))),
            Op::PassLate(ns) => write!(f, "{} pass, with late timers", ms(Time::from_ns(*ns))),
            Op::Spurious => f.write_str("a dequeue before the instant of `next_wake`"),
            Op::Pull => f.write_str("a pull"),
        }
    }
}

/// Decodes a span from 1 ns to 2^43 ns (2.4 h, past the wrap of a 32-bit clock of microseconds),
/// most often some milliseconds.
fn span_ns(bits: u64) -> u64 {
    let magnitude = match (bits & 0xff) as u8 {
        n @ 0..=63 => n % 20,
        n @ 64..=250 => 18 + n % 9,
        n => 27 + (n - 251) * 4,
    };
    (1 << magnitude) + (bits >> 8) % (1 << magnitude)
}

/// Returns a value for `decl` within its range: `shape` selects an end, the default, or a value of
/// a magnitude between the ends.
///
/// # Panics
/// If a number is declared without a range.
pub fn value(decl: &ParamDecl, shape: u8, bits: u64) -> Value {
    let number = |value: Value| match value {
        Value::Span(v) => v.as_ns(),
        Value::Rate(v) => v.as_bps(),
        Value::Bytes(v) => v.as_u64(),
        Value::Count(v) => v,
        Value::Ratio(v) => v.as_billionths(),
        Value::Flag(_) | Value::Choice(_) => unreachable!("flags and choices have no range"),
    };
    match decl.kind {
        Kind::Flag => return Value::Flag(bits & 1 == 1),
        Kind::Choice(words) => return Value::Choice(words[(bits % words.len() as u64) as usize]),
        _ => {}
    }
    let (low, high) = decl.range.expect("a number has a range");
    let (low, high) = (number(low), number(high));
    let n = match shape {
        0..=15 => low,
        16..=31 => high,
        32..=63 => number(decl.default),
        _ => {
            let width = high - low;
            let magnitude = bits as u32 % (u64::BITS - width.leading_zeros() + 1);
            let below = 1u64.checked_shl(magnitude).unwrap_or(u64::MAX);
            low + ((bits >> 8) % below).min(width)
        }
    };
    match decl.kind {
        Kind::Span => Value::Span(Span::from_ns(n)),
        Kind::Rate => Value::Rate(Rate::from_bps(n)),
        Kind::Bytes => Value::Bytes(Bytes::new(n)),
        Kind::Count => Value::Count(n),
        Kind::Ratio => Value::Ratio(Ratio::from_billionths(n)),
        Kind::Flag | Kind::Choice(_) => unreachable!("returned above"),
    }
}

/// The setting of a parameter, as plain numbers; `None` leaves it at its default.
pub type Setting = Option<(u8, u64)>;

/// Returns `algorithm` with `settings`, the first for the first parameter and so on. If values
/// contradict one another, settings are removed from the last one on.
///
/// # Panics
/// If the defaults contradict one another.
pub fn spec(algorithm: &'static Algorithm, settings: &[Setting]) -> Spec {
    let mut set: Vec<(&'static str, Value)> = algorithm
        .params()
        .zip(settings)
        .filter_map(|(decl, setting)| setting.map(|(shape, bits)| (decl, shape, bits)))
        .map(|(decl, shape, bits)| (decl.name, value(decl, shape, bits)))
        .collect();
    loop {
        let mut values = Values::new();
        for (name, value) in &set {
            values.set(name, *value);
        }
        match algorithm.build(&values) {
            Ok(_) => return Spec { algorithm, values },
            Err(error) => {
                let last = set.pop();
                assert!(last.is_some(), "{}: defaults: {error}", algorithm.name);
            }
        }
    }
}
