//! Hashing for tables whose keys an attacker may choose.
//!
//! Folded multiplication under a secret key, given by the host or drawn from the engine's seed: the
//! same on every machine for a given key, and unpredictable without it.

use std::hash::{BuildHasher, Hasher};

/// A keyed hash, and the hasher of this crate's `HashMap`s.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyedHash(pub u64);

/// A `HashMap` that hashes the same on every machine. Nothing may depend on its iteration order.
pub(crate) type Map<K, V> = std::collections::HashMap<K, V, KeyedHash>;

impl KeyedHash {
    /// Returns the hash of a few words.
    #[inline]
    pub fn of(self, words: &[u64]) -> u64 {
        let mut state = State::new(self.0);
        for word in words {
            state.write_u64(*word);
        }
        state.finish()
    }
}

impl BuildHasher for KeyedHash {
    type Hasher = State;

    fn build_hasher(&self) -> State {
        State::new(self.0)
    }
}

/// A hash in progress.
pub(crate) struct State {
    hash: u64,
    factor: u64,
}

impl State {
    #[inline]
    fn new(key: u64) -> Self {
        State {
            hash: key,
            factor: 0x9E37_79B9_7F4A_7C15 ^ key.rotate_left(17) | 1,
        }
    }
}

impl Hasher for State {
    #[inline]
    fn finish(&self) -> u64 {
        fold(self.hash, 0xA076_1D64_78BD_642F)
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.hash = fold(self.hash ^ word, self.factor);
    }

    fn write_u8(&mut self, n: u8) {
        self.write_u64(u64::from(n));
    }

    fn write_u16(&mut self, n: u16) {
        self.write_u64(u64::from(n));
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }

    fn write_u128(&mut self, n: u128) {
        self.write_u64(n as u64);
        self.write_u64((n >> 64) as u64);
    }

    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }
}

#[inline]
const fn fold(a: u64, b: u64) -> u64 {
    let wide = (a as u128) * (b as u128);
    (wide as u64) ^ ((wide >> 64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_keys_spread_over_a_small_table() {
        // 65 536 neighbouring addresses over 1024 buckets: 64 in each on average. With a fair hash
        // the fullest bucket exceeds 64 + 6 * sqrt(64) = 112 with a probability below 1e-5.
        let hash = KeyedHash(7);
        let mut counts = [0u32; 1024];
        for address in 0..65536u64 {
            counts[hash.of(&[0x0a00_0000 + address, 5]) as usize % 1024] += 1;
        }
        let fullest = counts.iter().max().expect("there are buckets");
        assert!(*fullest <= 112, "{fullest}");
    }

    #[test]
    fn a_different_key_gives_a_different_hash() {
        assert_ne!(KeyedHash(1).of(&[5]), KeyedHash(2).of(&[5]));
    }
}
