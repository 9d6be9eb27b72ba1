//! Copies of large maps, made in pieces so that packets are handled in between.

use std::collections::BTreeMap;
use std::ops::Bound;

/// Entries that are copied at a time: some tens of microseconds.
pub(crate) const PIECE: usize = 256;

/// A copy of a map that does not change meanwhile.
pub(crate) struct Copying<K, V>(Vec<Vec<(K, V)>>);

impl<K, V> Default for Copying<K, V> {
    fn default() -> Self {
        Copying(Vec::new())
    }
}

impl<K: Ord + Clone, V: Clone> Copying<K, V> {
    /// Copies the next entries. Returns whether more may be left.
    pub fn next(&mut self, from: &BTreeMap<K, V>) -> bool {
        let last = self.0.last().and_then(|piece| piece.last());
        let start = last.map_or(Bound::Unbounded, |(key, _)| Bound::Excluded(key));
        let next = from.range((start, Bound::Unbounded)).take(PIECE);
        let next: Vec<(K, V)> = next.map(|(k, v)| (k.clone(), v.clone())).collect();
        let is_full = next.len() == PIECE;
        if !next.is_empty() {
            // One growing list would be copied each time.
            self.0.push(next);
        }
        is_full
    }

    /// Returns the entries, in order.
    pub fn finish(self) -> impl Iterator<Item = (K, V)> {
        self.0.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_in_pieces_is_equal() {
        for len in [0, 1, PIECE, PIECE + 1, 3 * PIECE] {
            let map: BTreeMap<usize, usize> = (0..len).map(|n| (7 * n, n)).collect();
            let mut copy = Copying::default();
            let mut pieces = 1;
            while copy.next(&map) {
                pieces += 1;
            }
            assert!(pieces <= len / PIECE + 1, "{len}: {pieces}");
            assert_eq!(copy.finish().collect::<BTreeMap<_, _>>(), map);
        }
    }
}
