//! Properties that every algorithm has, under any operations: no packet is lost, the same seed gives
//! the same packets, and waking up early changes nothing.
//!
//! [`ops`] defines operations and decodes them from numbers; [`drive()`] applies them to a queue and
//! checks every step. The tests of this crate run it over every registered algorithm, the fuzzer
//! with inputs of its own, and `sluice check` over algorithms from files.

pub mod drive;
pub mod ops;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use self::drive::{Manner, Step, drive};
use self::ops::Op;
use crate::Rng;
use crate::registry::Spec;

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
    /// Returns what violates the property, and at which step.
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

/// Compares what happened in two runs.
///
/// # Errors
/// Returns the first difference.
pub fn same(a: &[Step], b: &[Step]) -> Result<(), String> {
    match a.iter().zip(b).find(|(a, b)| a != b) {
        Some((a, b)) => Err(format!("{a:?} became {b:?}")),
        None if a.len() == b.len() => Ok(()),
        None => Err(format!("{} steps became {}", a.len(), b.len())),
    }
}
