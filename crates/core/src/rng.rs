//! The source of randomness that is passed to every algorithm.

use alloc::sync::Arc;

use rand_core::{Rng as _, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A seeded generator (xoshiro256++), whose draws are the same on every machine; or a list of
/// draws, for comparing decisions with those of another implementation.
#[derive(Clone, Debug)]
pub struct Rng(Source);

#[derive(Clone, Debug)]
enum Source {
    Seeded(Xoshiro256PlusPlus),
    /// `next` counts draws, also those beyond the end.
    Listed {
        numbers: Arc<[u64]>,
        next: usize,
    },
}

impl Rng {
    /// Creates a generator whose draws depend on `seed` alone.
    pub fn from_seed(seed: u64) -> Self {
        Rng(Source::Seeded(Xoshiro256PlusPlus::seed_from_u64(seed)))
    }

    /// Creates a generator that returns `numbers` in their order. A draw of fewer than 64 bits takes
    /// the top bits of a number. Draws beyond the end are zero; [`Rng::is_exhausted`] reports them.
    ///
    /// ```
    /// use sluice_core::Rng;
    /// let mut rng = Rng::from_list([7, 1 << 63].into());
    /// assert_eq!((rng.next_u64(), rng.next_u32()), (7, 1 << 31));
    /// assert!(!rng.is_exhausted());
    /// assert_eq!(rng.next_u64(), 0);
    /// assert!(rng.is_exhausted());
    /// ```
    pub fn from_list(numbers: Arc<[u64]>) -> Self {
        Rng(Source::Listed { numbers, next: 0 })
    }

    /// Returns whether more numbers were drawn than were listed. A seed never ends.
    pub fn is_exhausted(&self) -> bool {
        match &self.0 {
            Source::Seeded(_) => false,
            Source::Listed { numbers, next } => *next > numbers.len(),
        }
    }

    /// Creates an independent generator for the consumer `stream`, so that a new consumer of
    /// randomness does not shift the draws of the others.
    pub fn fork(&self, stream: u64) -> Self {
        let mut parent = self.clone();
        let base = parent.next_u64();
        Rng::from_seed(base ^ stream.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }

    /// Leaves the number behind that [`Rng::fork`] used: the next forks differ from those before, also
    /// for the same consumers. The draws of a list are for decisions alone, and stay.
    pub fn go_past_fork(&mut self) {
        if let Source::Seeded(generator) = &mut self.0 {
            generator.next_u64();
        }
    }

    /// Draws 64 uniform bits.
    pub fn next_u64(&mut self) -> u64 {
        match &mut self.0 {
            Source::Seeded(generator) => generator.next_u64(),
            Source::Listed { numbers, next } => {
                let number = numbers.get(*next).copied().unwrap_or(0);
                *next += 1;
                number
            }
        }
    }

    /// Draws 32 uniform bits.
    pub fn next_u32(&mut self) -> u32 {
        match &mut self.0 {
            Source::Seeded(generator) => generator.next_u32(),
            Source::Listed { .. } => (self.next_u64() >> 32) as u32,
        }
    }

    /// Draws a uniform number below `bound`, by multiply and shift (bias below 2^-32 for `bound` up
    /// to 2^32).
    ///
    /// # Panics
    /// Panics if `bound` is zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "a draw needs at least one outcome");
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns `true` with probability `p`, a fraction in units of 2^-32 (`1 << 32` is certain).
    pub fn chance(&mut self, p: u64) -> bool {
        u64::from(self.next_u32()) < p
    }

    /// Draws a uniform number in [0, 1) with 53 bits. For traffic models only; decisions whose
    /// source uses fixed point must not use it.
    pub fn unit_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_draw_equal_numbers_and_forks_differ() {
        let (mut a, mut b) = (Rng::from_seed(7), Rng::from_seed(7));
        assert_eq!(a.next_u64(), b.next_u64());
        assert_ne!(a.fork(1).next_u64(), a.fork(2).next_u64());
    }

    #[test]
    fn chance_is_certain_at_its_ends() {
        let mut rng = Rng::from_seed(1);
        assert!((0..1000).all(|_| rng.chance(1 << 32)));
        assert!((0..1000).all(|_| !rng.chance(0)));
    }
}
