//! The queue with the largest weight, lowest number first, without a scan.
//!
//! A tree of maxima with 16 children per node: one node is one cache line. A change of a weight
//! climbs only as long as it changes a maximum, which for most changes is not at all; at worst it
//! and the search touch one line per level, four for 65 536 queues.

use alloc::vec;
use alloc::vec::Vec;

/// Children of a node.
const FAN: usize = 16;

/// Sixteen weights: of queues at the bottom, maxima of the node below elsewhere.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(64))]
struct Node([u32; FAN]);

/// Weights of all queues and their maxima.
#[derive(Debug)]
pub(in crate::sched) struct Fattest {
    /// The nodes of all levels, that of the queues first; the last is the root.
    nodes: Vec<Node>,
    /// Where each level begins in `nodes`.
    levels: Vec<usize>,
}

impl Fattest {
    /// A tree for so many queues, all weightless.
    pub(in crate::sched) fn new(queues: usize) -> Self {
        let (mut levels, mut nodes) = (Vec::new(), 0);
        let mut width = queues;
        loop {
            width = width.div_ceil(FAN);
            levels.push(nodes);
            nodes += width;
            if width <= 1 {
                return Fattest {
                    nodes: vec![Node::default(); nodes],
                    levels,
                };
            }
        }
    }

    /// Sets all weights.
    pub(in crate::sched) fn fill(&mut self, weights: impl Iterator<Item = u32>) {
        for (i, weight) in weights.enumerate() {
            self.nodes[i / FAN].0[i % FAN] = weight;
        }
        for level in 1..self.levels.len() {
            let (from, to) = (self.levels[level - 1], self.levels[level]);
            for i in 0..to - from {
                self.nodes[to + i / FAN].0[i % FAN] = self.nodes[from + i].largest();
            }
        }
    }

    /// Changes the weight of `queue`.
    pub(in crate::sched) fn set(&mut self, queue: u32, weight: u32) {
        let mut index = queue as usize;
        let mut new = weight;
        let mut levels = self.levels.iter();
        let mut level = levels.next().expect("there is at least one level");
        loop {
            let node = &mut self.nodes[level + index / FAN];
            let old = core::mem::replace(&mut node.0[index % FAN], new);
            let Some(above) = levels.next() else {
                return;
            };
            index /= FAN;
            let largest = self.nodes[above + index / FAN].0[index % FAN];
            if new < largest {
                // Others are often as heavy, and to see that takes no maximum.
                if old < largest || self.nodes[level + index].holds(largest) {
                    return;
                }
                new = self.nodes[level + index].largest();
            } else if new == largest {
                return;
            }
            level = above;
        }
    }

    /// The queue with the largest weight; of equal ones that with the lowest number.
    pub(in crate::sched) fn find(&self) -> u32 {
        let root = self.nodes.last().expect("there is at least one level");
        let largest = root.largest();
        self.levels.iter().rev().fold(0, |index, level| {
            index * FAN as u32 + self.nodes[level + index as usize].first(largest)
        })
    }
}

impl Node {
    fn largest(&self) -> u32 {
        self.0.iter().fold(0, |a, b| a.max(*b))
    }

    fn holds(&self, weight: u32) -> bool {
        self.equal(weight) != 0
    }

    /// The first child with `weight`, which one of them has.
    fn first(&self, weight: u32) -> u32 {
        self.equal(weight).trailing_zeros()
    }

    /// A bit for each child with `weight`, without a branch per child.
    fn equal(&self, weight: u32) -> u32 {
        let bit = |bits, (i, w): (usize, &u32)| bits | u32::from(*w == weight) << i;
        self.0.iter().enumerate().fold(0, bit)
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
            let mut weights: Vec<u32> = (0..queues).map(|_| rng.below(4) as u32).collect();
            let mut tree = Fattest::new(queues);
            tree.fill(weights.iter().copied());
            assert_eq!(tree.find(), scan(&weights), "{queues} queues after fill");
            for _ in 0..2000 {
                let queue = rng.below(queues as u64) as usize;
                // Few values, so that ties and falling maxima are common.
                weights[queue] = rng.below(6) as u32;
                tree.set(queue as u32, weights[queue]);
                assert_eq!(tree.find(), scan(&weights), "{queues} queues");
            }
        }
    }

    #[test]
    fn refilling_forgets_the_old_weights() {
        let mut tree = Fattest::new(100);
        tree.fill((0..100).map(|i| i * 7));
        tree.fill((0..100).map(|i| 100 - i));
        assert_eq!(tree.find(), 0);
        tree.set(0, 0);
        assert_eq!(tree.find(), 1);
    }
}
