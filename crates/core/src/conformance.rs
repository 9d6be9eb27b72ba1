//! Properties that every algorithm has, under any operations: no packet is lost, the same seed gives
//! the same packets, and waking up early changes nothing.
//!
//! [`ops`] defines operations and decodes them from numbers; [`drive()`] applies them to a queue and
//! checks every step. The tests of this crate run it over every registered algorithm, the fuzzer
//! with inputs of its own, and `sluice check` over algorithms from files.

pub mod drive;
pub mod ops;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use self::drive::{Manner, Step, drive};
use self::ops::Op;
use crate::registry::Spec;
use crate::{Backlog, Ecn, Packet, Rng, Time, Wake};

/// A property.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property {
    /// Every packet leaves once, and what the queue reports about itself is correct.
    Conservation,
    /// The same seed gives the same packets.
    Determinism,
    /// A dequeue before the instant of `next_wake` changes nothing.
    SpuriousWakes,
    /// A listener changes nothing.
    Listener,
}

impl Property {
    /// All properties.
    pub const ALL: [Property; 4] = [
        Property::Conservation,
        Property::Determinism,
        Property::SpuriousWakes,
        Property::Listener,
    ];

    /// Checks the property for a random sequence of at most `length` operations; `seed` selects it.
    ///
    /// # Errors
    /// Returns what violates the property, and at which step. Packets have numbers in the order of
    /// arrival, from 0.
    ///
    /// ```
    /// use sluice_core::conformance::Property;
    /// use sluice_core::registry::Spec;
    /// let codel = Spec::parse("fq_codel target 1ms").unwrap();
    /// for property in Property::ALL {
    ///     property.check(&codel, 100, 1).unwrap();
    /// }
    /// ```
    pub fn check(self, spec: &Spec, length: u64, seed: u64) -> Result<(), String> {
        let mut rng = Rng::from_seed(seed);
        let ops: Vec<Op> = (0..rng.below(length + 1))
            .map(|_| Op::from_bits(rng.next_u64() as u8, rng.next_u64()))
            .collect();
        let plain = Manner {
            seed,
            is_spurious: false,
            is_listening: true,
        };
        let first = drive(spec, &ops, plain)?;
        let manner = match self {
            Property::Conservation => return Ok(()),
            Property::Determinism => plain,
            Property::SpuriousWakes => Manner {
                is_spurious: true,
                ..plain
            },
            Property::Listener => Manner {
                is_listening: false,
                ..plain
            },
        };
        same(&first, &drive(spec, &ops, manner)?)
    }
}

/// Compares what happened in two passes.
///
/// # Errors
/// Returns the first difference.
pub fn same(a: &[Step], b: &[Step]) -> Result<(), String> {
    let equal = a.iter().zip(b).take_while(|(a, b)| a == b).count();
    let shown = |step: Option<&Step>| match step {
        Some(step) => step.to_string(),
        None => "nothing more happened".to_string(),
    };
    match (a.get(equal), b.get(equal)) {
        (None, None) => Ok(()),
        (first, second) => Err(format!(
            "{}; in the second pass {}",
            shown(first),
            shown(second)
        )),
    }
}

/// Shows an instant of a sequence.
fn ms(at: Time) -> String {
    let (whole, rest) = (at.as_ns() / 1_000_000, at.as_ns() % 1_000_000);
    let exact = format!("{whole}.{rest:06}");
    let shown = exact.trim_end_matches('0').trim_end_matches('.');
    format!("{shown} ms")
}

/// Shows an answer of `next_wake`.
fn when(wake: Wake) -> String {
    match wake {
        Wake::Now => "now".to_string(),
        Wake::At(at) => ms(at),
        Wake::OnEnqueue => "the next arrival".to_string(),
    }
}

/// Shows packets and bytes.
fn amount(backlog: Backlog) -> String {
    let Backlog { packets, bytes } = backlog;
    match packets {
        1 => format!("1 packet ({bytes} bytes)"),
        n => format!("{n} packets ({bytes} bytes)"),
    }
}

/// Shows the numbers of packets.
fn packets(numbers: &[u32]) -> String {
    if numbers.is_empty() {
        return "no packet".to_string();
    }
    let words: Vec<String> = numbers.iter().map(|n| format!("packet {n}")).collect();
    words.join(", ")
}

/// Shows a codepoint as RFC 3168 does.
const fn codepoint(ecn: Ecn) -> &'static str {
    match ecn {
        Ecn::NotEct => "Not-ECT",
        Ecn::Ect1 => "ECT(1)",
        Ecn::Ect0 => "ECT(0)",
        Ecn::Ce => "CE",
    }
}

/// Shows the fields of a packet that have changed in the queue.
fn changes(arrived: &Packet, left: &Packet) -> String {
    let fields = |packet: &Packet| -> [(&'static str, u64); 10] {
        [
            ("arrival", packet.arrival.as_ns()),
            ("length", packet.len.into()),
            ("flow", packet.flow.into()),
            ("source", packet.src.into()),
            ("destination", packet.dst.into()),
            ("class", packet.class.into()),
            ("tag", packet.tag.into()),
            ("segments", packet.segments.into()),
            ("ECN field", packet.ecn as u64),
            ("DSCP", packet.dscp.into()),
        ]
    };
    let pairs = fields(arrived).into_iter().zip(fields(left));
    let changed = pairs.filter(|(was, is)| was != is);
    let words: Vec<String> = changed
        .map(|((name, was), (_, is))| format!("{name} {is} instead of {was}"))
        .collect();
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use alloc::boxed::Box;

    use super::drive::drive_queue;
    use super::ops::Arrival;
    use super::*;
    use crate::{Cx, Discipline, DropReason};

    #[test]
    fn a_difference_is_a_sentence_about_packets() {
        let at = Time::from_ns(403_688_408);
        let (slot, reason) = (47, DropReason::Congestion);
        let out = |ecn| Step::Out { at, slot, ecn };
        let dropped = || Step::Dropped {
            at: Time::from_ns(5_000_000),
            slot: 51,
            reason,
        };
        let same = |a: &[Step], b: &[Step]| same(a, b).unwrap_err();
        assert_eq!(
            same(&[out(Ecn::Ect0)], &[dropped()]),
            "packet 47 left at 403.688408 ms; in the second pass packet 51 was dropped at 5 ms \
             (congestion)"
        );
        assert_eq!(
            same(&[out(Ecn::Ce)], &[out(Ecn::Ect0)]),
            "packet 47 left at 403.688408 ms, CE-marked; in the second pass packet 47 left at \
             403.688408 ms"
        );
        assert_eq!(
            same(&[dropped()], &[]),
            "packet 51 was dropped at 5 ms (congestion); in the second pass nothing more happened"
        );
        assert_eq!(super::same(&[dropped()], &[dropped()]), Ok(()));
    }

    /// A queue that forgets its packets.
    struct Sieve;

    impl Discipline for Sieve {
        fn enqueue(&mut self, _packet: Packet, _cx: &mut Cx<'_>) {}

        fn dequeue(&mut self, _cx: &mut Cx<'_>) -> Option<Packet> {
            None
        }

        fn next_wake(&self) -> Wake {
            Wake::OnEnqueue
        }

        fn pull(&mut self) -> Option<Packet> {
            None
        }

        fn backlog(&self) -> Backlog {
            Backlog::default()
        }
    }

    #[test]
    fn a_violation_names_the_step_and_what_is_wrong() {
        let arrival = Arrival {
            len: 1514,
            flow: 3,
            class: 0,
            ecn: Ecn::Ect0,
            dscp: 0,
            segments: 1,
        };
        let manner = Manner {
            seed: 1,
            is_spurious: false,
            is_listening: true,
        };
        let ops = [Op::Dequeue, Op::Arrive(arrival)];
        assert_eq!(
            drive_queue(Box::new(Sieve), &ops, manner).unwrap_err(),
            "step 1, a packet of 1514 bytes arrives (flow 3, class 0, ECT(0), DSCP 0, segments 1): it \
             reports a backlog of 0 packets (0 bytes), but holds 1 packet (1514 bytes)"
        );
    }

    #[test]
    fn the_fields_that_have_changed_are_named() {
        let packet = |len| Packet::new(4, len);
        let mut left = packet(60);
        left.ecn = Ecn::Ce;
        assert_eq!(
            changes(&packet(1514), &left),
            "length 60 instead of 1514, ECN field 3 instead of 0"
        );
        assert_eq!(packets(&[]), "no packet");
        assert_eq!(packets(&[3, 5]), "packet 3, packet 5");
        assert_eq!(when(Wake::At(Time::from_ns(1_500_000))), "1.5 ms");
    }
}
