//! Finds the queue with the largest weight, lowest number first, without a scan.
//!
//! A tree of maxima with 16 children per node: one node is one cache line. A change of a weight
//! climbs the tree only as long as it changes a maximum, which most changes do not. At worst it
//! touches one line per level, four for 65 536 queues. The tree is always maintained, not only
//! while a discipline overflows, so that no single packet pays for all queues.
//!
//! A second table holds for each node its first child with the largest weight, as far as earlier
//! searches have found it. It takes one byte per level, in a few kilobytes that stay in the cache.
//! A search follows the table to the queue and scans a node only if the child in the table has
//! shrunk since.

use alloc::vec;
use alloc::vec::Vec;

use super::allocated;
use crate::prefetch::Place;

/// Children of a node.
const FAN: usize = 16;

/// Queues that may have a weight without a tree.
const FEW: usize = 4;

/// The largest child is not known and must be searched for.
const UNKNOWN: u8 = u8::MAX;

/// Sixteen weights: of queues at the bottom, maxima of the node below elsewhere.
///
/// Weights are stored with the highest bit inverted and compared as signed numbers, which gives the
/// same order. The vector instructions that every x86-64 has cannot compare unsigned numbers.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Node([i32; FAN]);

/// Weights of all queues and their maxima.
///
/// While only a few queues have a weight at a time, which is all that most links of a large set
/// ever see, they are in an inline list. The tree is allocated when there are more.
#[derive(Debug)]
pub(crate) struct Fattest {
    /// The queues with a weight, and their weights; 0 is a free entry. Unused once there is a tree.
    few: [(u32, u32); FEW],
    /// The root is the first; the children of node `n` are the nodes from `n * FAN + 1` on.
    nodes: Vec<Node>,
    /// For each node, the first of its largest children, or [`UNKNOWN`].
    first: Vec<u8>,
    /// Index of the first node that holds queues.
    leaves: usize,
    queues: usize,
}

impl Fattest {
    /// Creates a tree for `queues` queues, all with weight 0.
    pub(crate) const fn new(queues: usize) -> Self {
        let (mut leaves, mut width) = (0, 1);
        while width * FAN < queues {
            leaves += width;
            width *= FAN;
        }
        Fattest {
            few: [(0, 0); FEW],
            nodes: Vec::new(),
            first: Vec::new(),
            leaves,
            queues,
        }
    }

    /// Returns the bytes that have been allocated.
    pub(crate) fn memory(&self) -> usize {
        allocated(&self.nodes) + allocated(&self.first)
    }

    /// Sets the weight of `queue`. Weights of 4 GiB and more are equal.
    #[inline]
    pub(crate) fn set(&mut self, queue: u32, weight: u64) {
        let weight = u32::try_from(weight).unwrap_or(u32::MAX);
        let at = self.leaves + queue as usize / FAN;
        // One comparison detects a missing tree as well as a missing queue.
        let Some(leaf) = self.nodes.get_mut(at) else {
            return self.set_in_place(queue, weight);
        };
        let slot = queue as usize % FAN;
        let (old, new) = (leaf.0[slot], ordered(weight));
        // Most changes end here: the weight was not and is not the largest of its node.
        if let Some(above) = at.checked_sub(1)
            && old.max(new) < self.nodes[above / FAN].0[above % FAN]
        {
            self.nodes[at].0[slot] = new;
            return;
        }
        self.climb(at, slot, new);
    }

    /// Sets the weight in `slot` of the node `at`, and the maxima above.
    #[inline(never)]
    fn climb(&mut self, mut at: usize, mut slot: usize, mut new: i32) {
        while at > 0 {
            let (above, its) = ((at - 1) / FAN, (at - 1) % FAN);
            let largest = self.nodes[above].0[its];
            let node = &mut self.nodes[at];
            let best = &mut self.first[at];
            let old = node.0[slot];
            if new > largest {
                *best = slot as u8;
                node.0[slot] = new;
            } else if new == largest {
                if *best != UNKNOWN {
                    *best = (*best).min(slot as u8);
                }
                node.0[slot] = new;
                return;
            } else if old < largest || (*best != UNKNOWN && *best != slot as u8) {
                // It was not the largest of its node, or not the only largest.
                node.0[slot] = new;
                return;
            } else {
                *best = UNKNOWN;
                // Compared before the new weight is stored: a load of all sixteen would stall until
                // that store reaches the cache.
                let others = node.largest_but(slot);
                node.0[slot] = new;
                new = new.max(others);
                if new == largest {
                    return;
                }
            }
            (at, slot) = (above, its);
        }
        // The maximum itself is read only at the root, and by the search.
        self.nodes[0].0[slot] = new;
        self.first[0] = UNKNOWN;
    }

    /// Returns the queue with the largest weight; of equal ones the lowest number.
    #[inline]
    pub(crate) fn find(&mut self) -> u32 {
        if self.nodes.is_empty() {
            // Of equal weights the one of the lowest queue is the greatest; without any, queue 0.
            let held = self.few.iter().filter(|(_, weight)| *weight > 0);
            let fattest = held.max_by_key(|(queue, weight)| (*weight, u32::MAX - queue));
            return fattest.map_or(0, |(queue, _)| *queue);
        }
        let mut at = 0;
        loop {
            if self.first[at] == UNKNOWN {
                let node = &self.nodes[at];
                self.first[at] = node.first(node.largest()) as u8;
            }
            let slot = usize::from(self.first[at]);
            if at >= self.leaves {
                return ((at - self.leaves) * FAN + slot) as u32;
            }
            at = at * FAN + 1 + slot;
        }
    }

    /// Returns the place of the root, if there is a tree.
    pub(crate) fn place(&self) -> Place {
        self.nodes.first().map_or(Place::NONE, Place::of)
    }

    /// Returns the largest weight.
    #[inline]
    pub(crate) fn weight(&self) -> u64 {
        u64::from(match self.nodes.first() {
            Some(root) => root.largest() as u32 ^ 1 << 31,
            None => self.few.iter().map(|(_, w)| *w).max().unwrap_or(0),
        })
    }

    /// Sets a weight without a tree. If too many queues have one, builds the tree.
    #[inline(never)]
    fn set_in_place(&mut self, queue: u32, weight: u32) {
        let mut free = None;
        for place in &mut self.few {
            if place.1 == 0 {
                free = Some(place);
            } else if place.0 == queue {
                place.1 = weight;
                return;
            }
        }
        match free {
            Some(place) => *place = (queue, weight),
            None if weight > 0 => {
                self.plant();
                self.set(queue, u64::from(weight));
            }
            None => {}
        }
    }

    #[cold]
    fn plant(&mut self) {
        let nodes = self.leaves + self.queues.div_ceil(FAN);
        self.nodes = vec![Node([ordered(0); FAN]); nodes];
        self.first = vec![UNKNOWN; nodes];
        for (queue, weight) in self.few {
            self.set(queue, u64::from(weight));
        }
    }
}

/// Returns a number that compares, signed, as `weight` does.
const fn ordered(weight: u32) -> i32 {
    (weight ^ 1 << 31) as i32
}

/// For each slot, a mask of the other slots.
static OTHERS: [[i32; FAN]; FAN] = {
    let mut others = [[-1; FAN]; FAN];
    let mut slot = 0;
    while slot < FAN {
        others[slot][slot] = 0;
        slot += 1;
    }
    others
};

impl Node {
    fn largest(&self) -> i32 {
        self.0.iter().fold(ordered(0), |a, b| a.max(*b))
    }

    /// Returns the largest weight except that in `slot`.
    #[inline]
    fn largest_but(&self, slot: usize) -> i32 {
        let kept = self.0.iter().zip(&OTHERS[slot]);
        kept.map(|(weight, mask)| (weight & mask) | (ordered(0) & !mask))
            .fold(ordered(0), |a, b| a.max(b))
    }

    /// Returns the first child with `weight`, which at least one child has. One byte per child that
    /// has it, and the lowest such byte: no branch per child.
    fn first(&self, weight: i32) -> usize {
        let equal = self.0.map(|w| if w == weight { 0xff } else { 0 });
        u128::from_le_bytes(equal).trailing_zeros() as usize / 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// Returns a scan, which the tree replaces.
    fn scan(weights: &[u32]) -> u32 {
        let mut best = 0;
        for (i, weight) in weights.iter().enumerate() {
            if *weight > weights[best] {
                best = i;
            }
        }
        best as u32
    }

    #[test]
    fn a_few_queues_with_weight_need_no_tree() {
        let mut rng = Rng::from_seed(4);
        let mut weights = vec![0; 1000];
        let mut fattest = Fattest::new(1000);
        for _ in 0..3000 {
            // Another queue gains weight only where one of four has lost it.
            let held: Vec<usize> = (0..1000).filter(|q| weights[*q] > 0).collect();
            let queue = match held.get(rng.below(6) as usize) {
                Some(queue) => *queue,
                None if held.len() < FEW => rng.below(1000) as usize,
                None => continue,
            };
            weights[queue] = rng.below(3) as u32;
            fattest.set(queue as u32, u64::from(weights[queue]));
            assert_eq!(fattest.find(), scan(&weights));
            let largest = weights.iter().copied().max();
            assert_eq!(Some(fattest.weight()), largest.map(u64::from));
        }
        assert!(fattest.nodes.is_empty());
    }

    #[test]
    fn the_tree_finds_what_a_scan_finds() {
        let mut rng = Rng::from_seed(3);
        for queues in [1, 2, 5, 15, 16, 17, 255, 256, 257, 5000] {
            let mut weights = vec![0; queues];
            let mut tree = Fattest::new(queues);
            assert_eq!(tree.find(), 0, "{queues} queues without weight");
            for round in 0..3000 {
                let queue = rng.below(queues as u64) as usize;
                // Few values, so that ties and falling maxima are common; both halves of the
                // numbers.
                weights[queue] = rng.below(6) as u32 + if round < 2000 { 0 } else { u32::MAX - 5 };
                tree.set(queue as u32, u64::from(weights[queue]));
                assert_eq!(tree.find(), scan(&weights), "{queues} queues");
                let largest = weights.iter().copied().max();
                assert_eq!(
                    Some(tree.weight()),
                    largest.map(u64::from),
                    "{queues} queues"
                );
            }
        }
    }
}
