//! Values that are collected one by one, and only read at the end.

/// Values without an order. Most delays are below 2^32 ns (4.3 s) and take 4 bytes: for millions of
/// packets, the time to fetch them from memory counts.
#[derive(Debug, Default)]
pub(super) struct Samples {
    /// Pieces that are full, so that no value is ever moved.
    full: Vec<Vec<u32>>,
    last: Vec<u32>,
    large: Vec<u64>,
}

impl Samples {
    /// Adds a value.
    #[inline]
    pub(super) fn push(&mut self, value: u64) {
        let Ok(value) = u32::try_from(value) else {
            self.large.push(value);
            return;
        };
        if self.last.len() == self.last.capacity() {
            self.begin_piece();
        }
        self.last.push(value);
    }

    /// Adds a value for each of the `wire_packets` of a super-packet.
    #[inline]
    pub(super) fn push_each(&mut self, value: u64, wire_packets: u64) {
        // A plain packet is by far the most frequent.
        self.push(value);
        for _ in 1..wire_packets {
            self.push(value);
        }
    }

    #[cold]
    fn begin_piece(&mut self) {
        let length = (2 * self.last.len()).clamp(SHORTEST, LONGEST);
        let full = std::mem::replace(&mut self.last, Vec::with_capacity(length));
        if !full.is_empty() {
            self.full.push(full);
        }
    }

    /// Adds all values to `parts`.
    pub(super) fn add_to<'a>(&'a self, parts: &mut Parts<'a>) {
        let pieces = self.full.iter().chain([&self.last]);
        parts.short.extend(pieces.map(Vec::as_slice));
        parts.long.push(&self.large);
    }
}

/// Slices of values that are taken together.
#[derive(Debug, Default)]
pub(super) struct Parts<'a> {
    pub short: Vec<&'a [u32]>,
    pub long: Vec<&'a [u64]>,
}

impl Parts<'_> {
    /// Returns the number of values.
    pub(super) fn len(&self) -> usize {
        let short: usize = self.short.iter().map(|part| part.len()).sum();
        short + self.long.iter().map(|part| part.len()).sum::<usize>()
    }

    /// Passes on every value.
    #[inline]
    pub(super) fn for_each(&self, mut pass: impl FnMut(u64)) {
        for part in &self.short {
            part.iter().for_each(|value| pass(u64::from(*value)));
        }
        for part in &self.long {
            part.iter().for_each(|value| pass(*value));
        }
    }
}

/// The number of values in a piece: few for one of ten thousand flows, and at most 32 KB, for which
/// the allocator has memory at hand.
const SHORTEST: usize = 16;
const LONGEST: usize = 1 << 13;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_kept() {
        let mut samples = Samples::default();
        let values: Vec<u64> = (0..50_000).map(|n: u64| n.pow(3)).collect();
        values.iter().for_each(|value| samples.push(*value));
        let mut parts = Parts::default();
        samples.add_to(&mut parts);
        let mut found = Vec::new();
        parts.for_each(|value| found.push(value));
        found.sort_unstable();
        assert_eq!(found, values);
        // 1625^3 < 2^32 <= 1626^3.
        assert_eq!((samples.large.len(), parts.len()), (50_000 - 1626, 50_000));
    }
}
