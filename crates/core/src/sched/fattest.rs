//! The queue with the largest weight, lowest number first, without a scan.
//!
//! A tree of maxima with 16 children per node: one node is one cache line. A change of a weight
//! climbs only as long as it changes a maximum, which for most changes is not at all; at worst it
//! touches one line per level, four for 65 536 queues. It is kept up all the time and not only while a
//! discipline overflows: then no single packet pays for all queues.
//!
//! Beside the nodes stands which child of each is the first of the largest, as far as searches have asked
//! for it: one byte per level, of a few kilobytes that stay in the cache, leads to the queue, and a node is
//! looked through only if what led to it has shrunk since.

use alloc::vec;
use alloc::vec::Vec;

/// Children of a node.
const FAN: usize = 16;

/// Which child is the largest is to be looked up, when somebody asks.
const UNKNOWN: u8 = u8::MAX;

/// Sixteen weights: of queues at the bottom, maxima of the node below elsewhere.
///
/// They are kept with the highest bit turned over and compared as signed numbers, which gives the
/// same order: the vector instructions that every x86-64 has compare no unsigned ones.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Node([i32; FAN]);

/// Weights of all queues and their maxima. Takes no memory before the first queue has weight.
#[derive(Debug)]
pub(crate) struct Fattest {
    /// The root is the first; the children of node `n` are the nodes from `n * FAN + 1` on.
    nodes: Vec<Node>,
    /// The first of each node's largest children, or [`UNKNOWN`].
    first: Vec<u8>,
    /// The first node of queues.
    leaves: usize,
    queues: usize,
}

impl Fattest {
    /// A tree for so many queues, all weightless.
    pub(crate) const fn new(queues: usize) -> Self {
        let (mut leaves, mut width) = (0, 1);
        while width * FAN < queues {
            leaves += width;
            width *= FAN;
        }
        Fattest {
            nodes: Vec::new(),
            first: Vec::new(),
            leaves,
            queues,
        }
    }

    /// Raises or lowers the weight of `queue`. Weights of 4 GiB and more are equal.
    #[inline]
    pub(crate) fn set(&mut self, queue: u32, weight: u64) {
        let mut new = ordered(u32::try_from(weight).unwrap_or(u32::MAX));
        if self.nodes.is_empty() {
            self.plant();
        }
        let mut at = self.leaves + queue as usize / FAN;
        let mut slot = queue as usize % FAN;
        loop {
            let old = core::mem::replace(&mut self.nodes[at].0[slot], new);
            let best = &mut self.first[at];
            if at == 0 {
                // What the largest is, is asked for at the root alone, and by the search.
                *best = UNKNOWN;
                return;
            }
            let (above, its) = ((at - 1) / FAN, (at - 1) % FAN);
            let largest = self.nodes[above].0[its];
            if new > largest {
                *best = slot as u8;
            } else if new == largest {
                if *best != UNKNOWN {
                    *best = (*best).min(slot as u8);
                }
                return;
            } else if old < largest || (*best != UNKNOWN && *best != slot as u8) {
                // Most changes end here: it was and is not the largest of its node, or not the only one.
                return;
            } else {
                *best = UNKNOWN;
                new = self.nodes[at].largest();
                if new == largest {
                    return;
                }
            }
            (at, slot) = (above, its);
        }
    }

    /// The queue with the largest weight; of equal ones that with the lowest number.
    #[inline]
    pub(crate) fn find(&mut self) -> u32 {
        if self.nodes.is_empty() {
            return 0;
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

    /// The largest weight.
    #[inline]
    pub(crate) fn weight(&self) -> u64 {
        let root = self.nodes.first().map_or(ordered(0), Node::largest);
        u64::from(root as u32 ^ 1 << 31)
    }

    #[cold]
    fn plant(&mut self) {
        let nodes = self.leaves + self.queues.div_ceil(FAN);
        self.nodes = vec![Node([ordered(0); FAN]); nodes];
        self.first = vec![UNKNOWN; nodes];
    }
}

/// A number that compares, signed, as `weight` does.
const fn ordered(weight: u32) -> i32 {
    (weight ^ 1 << 31) as i32
}

impl Node {
    fn largest(&self) -> i32 {
        self.0.iter().fold(ordered(0), |a, b| a.max(*b))
    }

    /// The first child with `weight`, which one of them has. A byte for each child that has it, and
    /// their lowest: without a branch per child.
    fn first(&self, weight: i32) -> usize {
        let equal = self.0.map(|w| if w == weight { 0xff } else { 0 });
        u128::from_le_bytes(equal).trailing_zeros() as usize / 8
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    /// By a scan, which is what the tree replaces.
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
    fn the_tree_finds_what_a_scan_finds() {
        let mut rng = Rng::from_seed(3);
        for queues in [1, 2, 15, 16, 17, 255, 256, 257, 5000] {
            let mut weights = vec![0; queues];
            let mut tree = Fattest::new(queues);
            assert_eq!(tree.find(), 0, "{queues} queues without weight");
            for round in 0..3000 {
                let queue = rng.below(queues as u64) as usize;
                // Few values, so that ties and falling maxima are common; both halves of the numbers.
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
