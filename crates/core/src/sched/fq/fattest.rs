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
pub(super) struct Fattest {
    /// From the queues up; the last level is one node.
    levels: Vec<Vec<Node>>,
}

impl Fattest {
    /// The tree over `weights`.
    pub(super) fn new(queues: usize) -> Self {
        let mut levels = Vec::new();
        let mut width = queues;
        loop {
            width = width.div_ceil(FAN);
            levels.push(vec![Node::default(); width]);
            if width <= 1 {
                return Fattest { levels };
            }
        }
    }

    /// Sets all weights.
    pub(super) fn fill(&mut self, weights: impl Iterator<Item = u32>) {
        for (i, weight) in weights.enumerate() {
            self.levels[0][i / FAN].0[i % FAN] = weight;
        }
        for upper in 1..self.levels.len() {
            let (below, above) = self.levels.split_at_mut(upper);
            for (i, node) in below[upper - 1].iter().enumerate() {
                above[0][i / FAN].0[i % FAN] = node.largest();
            }
        }
    }

    /// Changes the weight of `queue`.
    pub(super) fn set(&mut self, queue: u32, weight: u32) {
        let mut index = queue as usize;
        let mut new = weight;
        for level in 0..self.levels.len() {
            let node = &mut self.levels[level][index / FAN];
            let old = core::mem::replace(&mut node.0[index % FAN], new);
            index /= FAN;
            let Some(above) = self.levels.get(level + 1) else {
                return;
            };
            let largest = above[index / FAN].0[index % FAN];
            if new > largest {
                continue;
            }
            if old < largest || new == largest {
                return;
            }
            new = self.levels[level][index].largest();
            if new == largest {
                return;
            }
        }
    }

    /// The queue with the largest weight; of equal ones that with the lowest number.
    pub(super) fn find(&self) -> u32 {
        let mut index = 0;
        let top = self.levels.last().expect("there is at least one level");
        let largest = top[0].largest();
        for level in self.levels.iter().rev() {
            let position = level[index].0.iter().position(|w| *w == largest);
            index = index * FAN + position.expect("a maximum is that of one of its children");
        }
        index as u32
    }
}

impl Node {
    fn largest(&self) -> u32 {
        self.0.iter().fold(0, |a, b| a.max(*b))
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
