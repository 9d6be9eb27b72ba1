//! Values that are collected one by one, and only read at the end.

/// Values in pieces, so that they are never moved when there are more of them.
#[derive(Debug, Default)]
pub(super) struct Samples {
    full: Vec<Vec<u64>>,
    last: Vec<u64>,
}

impl Samples {
    /// Adds a value.
    #[inline]
    pub(super) fn push(&mut self, value: u64) {
        if self.last.len() == self.last.capacity() {
            self.begin_piece();
        }
        self.last.push(value);
    }

    #[cold]
    fn begin_piece(&mut self) {
        let length = (2 * self.last.len()).clamp(SHORTEST, LONGEST);
        let full = std::mem::replace(&mut self.last, Vec::with_capacity(length));
        if !full.is_empty() {
            self.full.push(full);
        }
    }

    /// Returns all values, piece by piece.
    pub(super) fn pieces(&self) -> impl Iterator<Item = &[u64]> {
        let pieces = self.full.iter().chain([&self.last]);
        pieces.map(Vec::as_slice)
    }
}

/// The number of values in a piece: few for one of ten thousand flows, and at most 64 KB, which the
/// allocator takes from memory that it has.
const SHORTEST: usize = 16;
const LONGEST: usize = 1 << 13;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_in_their_order() {
        let mut samples = Samples::default();
        assert_eq!(samples.pieces().flatten().count(), 0);
        (0..50_000).for_each(|value| samples.push(value));
        assert!(samples.pieces().flatten().copied().eq(0..50_000));
    }
}
