//! A priority queue of small numbers with keys that can change.
//!
//! Schedulers order classes by a timestamp, find the fattest queue, or keep timers. In each case
//! the entries are numbered densely, their keys change often, and any of them may have to leave.
//! Each node has four children: they share one cache line, and the tree is half as deep as a binary
//! one.

use alloc::vec::Vec;

use super::allocated;
use super::pool::NONE;

/// Numbers below 2^32, the one with the least key first; of equal keys the lowest number first.
#[derive(Clone, Debug)]
pub(crate) struct Heap<K> {
    entries: Vec<(K, u32)>,
    /// The place of each number in `entries`, or [`NONE`].
    at: Vec<u32>,
}

const CHILDREN: usize = 4;

impl<K: Copy + Ord> Heap<K> {
    pub(crate) const fn new() -> Self {
        Heap {
            entries: Vec::new(),
            at: Vec::new(),
        }
    }

    /// Returns the bytes that have been allocated.
    pub(crate) fn memory(&self) -> usize {
        allocated(&self.entries) + allocated(&self.at)
    }

    /// Returns the least key and its number.
    #[inline]
    pub(crate) fn peek(&self) -> Option<(K, u32)> {
        self.entries.first().copied()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Inserts `number` with `key`, or changes its key.
    #[inline]
    pub(crate) fn set(&mut self, number: u32, key: K) {
        let index = number as usize;
        if self.at.len() <= index {
            self.at.resize(index + 1, NONE);
        }
        let entry = (key, number);
        match self.at[index] {
            NONE => {
                self.entries.push(entry);
                self.rise(self.entries.len() - 1, entry);
            }
            place => self.settle(place as usize, entry),
        }
    }

    /// Removes `number`, if it is there.
    #[inline]
    pub(crate) fn remove(&mut self, number: u32) {
        let Some(place) = self.at.get_mut(number as usize).filter(|p| **p != NONE) else {
            return;
        };
        let place = core::mem::replace(place, NONE) as usize;
        let last = self
            .entries
            .pop()
            .expect("a number that is in has an entry");
        if place < self.entries.len() {
            self.settle(place, last);
        }
    }

    /// Puts `entry` where it belongs, starting from the vacant `place`.
    #[inline]
    fn settle(&mut self, place: usize, entry: (K, u32)) {
        if place > 0 && precedes(&entry, &self.entries[(place - 1) / CHILDREN]) {
            self.rise(place, entry);
        } else {
            self.sink(place, entry);
        }
    }

    #[inline]
    fn rise(&mut self, mut place: usize, entry: (K, u32)) {
        while place > 0 {
            let parent = (place - 1) / CHILDREN;
            if !precedes(&entry, &self.entries[parent]) {
                break;
            }
            self.put(place, self.entries[parent]);
            place = parent;
        }
        self.put(place, entry);
    }

    #[inline]
    fn sink(&mut self, mut place: usize, entry: (K, u32)) {
        loop {
            let first = place * CHILDREN + 1;
            let last = (first + CHILDREN).min(self.entries.len());
            let Some(children) = self.entries.get(first..last).filter(|c| !c.is_empty()) else {
                break;
            };
            let mut least = 0;
            for (i, child) in children.iter().enumerate().skip(1) {
                if precedes(child, &children[least]) {
                    least = i;
                }
            }
            if !precedes(&children[least], &entry) {
                break;
            }
            self.put(place, children[least]);
            place = first + least;
        }
        self.put(place, entry);
    }

    #[inline]
    fn put(&mut self, place: usize, entry: (K, u32)) {
        self.entries[place] = entry;
        self.at[entry.1 as usize] = place as u32;
    }
}

/// Compares by key, then by number. Branches cost less than the tuple's three-way comparison.
#[inline]
fn precedes<K: Ord>(a: &(K, u32), b: &(K, u32)) -> bool {
    a.0 < b.0 || (a.0 == b.0 && a.1 < b.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use alloc::collections::BTreeSet;

    #[test]
    fn it_agrees_with_an_ordered_set_over_random_operations() {
        let (mut heap, mut set) = (Heap::new(), BTreeSet::new());
        let mut keys = [None; 40];
        let mut rng = Rng::from_seed(1);
        for _ in 0..20_000 {
            let number = rng.below(40) as u32;
            let old = keys[number as usize].take();
            if let Some(key) = old {
                set.remove(&(key, number));
            }
            // Few different keys, so that ties are common.
            if rng.chance(3 << 30) {
                let key = rng.below(16);
                keys[number as usize] = Some(key);
                set.insert((key, number));
                heap.set(number, key);
            } else {
                heap.remove(number);
            }
            assert_eq!(heap.peek(), set.first().copied());
        }
    }
}
