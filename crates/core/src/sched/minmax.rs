//! A priority queue that gives its least and its greatest entry.
//!
//! A min-max heap (M. Atkinson, J.-R. Sack, N. Santoro and T. Strothotte, "Min-Max Heaps and
//! Generalized Priority Queues", CACM 29(10), 1986): a binary tree in a vector whose even levels
//! hold the least entry of their subtrees and odd levels the greatest. All operations but looking
//! cost O(log n).

use alloc::vec::Vec;

/// Entries in order of `T`.
#[derive(Clone, Debug)]
pub(crate) struct MinMax<T>(Vec<T>);

impl<T: Copy + Ord> MinMax<T> {
    pub(crate) const fn new() -> Self {
        MinMax(Vec::new())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn push(&mut self, entry: T) {
        self.0.push(entry);
        let at = self.0.len() - 1;
        if at == 0 {
            return;
        }
        let parent = (at - 1) / 2;
        let is_least = is_min_level(at);
        // On the wrong side of its parent: it belongs on levels of the other kind.
        if precedes(is_least, &self.0[parent], &entry) {
            self.0.swap(at, parent);
            self.rise(parent, !is_least);
        } else {
            self.rise(at, is_least);
        }
    }

    /// The greatest entry.
    pub(crate) fn greatest(&self) -> Option<T> {
        self.0.get(self.greatest_at()?).copied()
    }

    pub(crate) fn pop_least(&mut self) -> Option<T> {
        if self.0.is_empty() {
            return None;
        }
        Some(self.take(0))
    }

    pub(crate) fn pop_greatest(&mut self) -> Option<T> {
        let at = self.greatest_at()?;
        Some(self.take(at))
    }

    fn greatest_at(&self) -> Option<usize> {
        match self.0.as_slice() {
            [] => None,
            [_] => Some(0),
            [_, _] => Some(1),
            [_, a, b, ..] => Some(if a >= b { 1 } else { 2 }),
        }
    }

    fn take(&mut self, at: usize) -> T {
        let entry = self.0.swap_remove(at);
        if at < self.0.len() {
            self.sink(at);
        }
        entry
    }

    /// Moves an entry up over the levels of its kind.
    fn rise(&mut self, mut at: usize, is_least: bool) {
        while at > 2 {
            let grandparent = ((at - 1) / 2 - 1) / 2;
            if !precedes(is_least, &self.0[at], &self.0[grandparent]) {
                break;
            }
            self.0.swap(at, grandparent);
            at = grandparent;
        }
    }

    fn sink(&mut self, mut at: usize) {
        let is_least = is_min_level(at);
        loop {
            let children = 2 * at + 1..2 * at + 3;
            let grandchildren = 4 * at + 3..4 * at + 7;
            let below = children.clone().chain(grandchildren);
            let Some(first) = below.filter(|i| *i < self.0.len()).reduce(|a, b| {
                if precedes(is_least, &self.0[b], &self.0[a]) {
                    b
                } else {
                    a
                }
            }) else {
                return;
            };
            if !precedes(is_least, &self.0[first], &self.0[at]) {
                return;
            }
            self.0.swap(at, first);
            if children.contains(&first) {
                return;
            }
            let parent = (first - 1) / 2;
            if precedes(is_least, &self.0[parent], &self.0[first]) {
                self.0.swap(first, parent);
            }
            at = first;
        }
    }
}

/// Whether `a` belongs above `b` on levels that hold the least, or the greatest, entries.
#[inline]
fn precedes<T: Ord>(is_least: bool, a: &T, b: &T) -> bool {
    if is_least { a < b } else { a > b }
}

/// Whether the level of the entry at `at` is even.
#[inline]
const fn is_min_level(at: usize) -> bool {
    (at + 1).ilog2().is_multiple_of(2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use alloc::collections::BTreeSet;

    #[test]
    fn it_agrees_with_an_ordered_set_over_random_operations() {
        let (mut heap, mut set) = (MinMax::new(), BTreeSet::new());
        let mut rng = Rng::from_seed(1);
        for n in 0..50_000u64 {
            // Grows to some hundred entries, then shrinks, and again.
            let grows = (n / 500).is_multiple_of(2);
            if rng.below(10) < if grows { 7 } else { 2 } {
                let entry = (rng.below(100), n);
                heap.push(entry);
                set.insert(entry);
            } else if rng.chance(1 << 31) {
                assert_eq!(heap.pop_least(), set.pop_first());
            } else {
                assert_eq!(heap.greatest(), set.last().copied());
                assert_eq!(heap.pop_greatest(), set.pop_last());
            }
            assert_eq!(heap.is_empty(), set.is_empty());
        }
    }
}
