//! The turns of the packet loops, which show that they forward packets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::control::Bell;

/// Counts the turns of the loops of all workers. A loop also turns between the pieces of a long batch
/// of commands, while no other order is answered.
pub struct Pulse {
    bells: Vec<Bell>,
    /// By worker; grows with each turn of its loop.
    turns: Vec<Arc<AtomicU64>>,
    /// By worker: the turns at the last call of [`Pulse::count`].
    counted: Vec<u64>,
}

impl Pulse {
    pub(super) fn new(bells: Vec<Bell>, turns: Vec<Arc<AtomicU64>>) -> Pulse {
        Pulse {
            counted: vec![0; turns.len()],
            bells,
            turns,
        }
    }

    /// Returns whether every loop has turned since the last call of [`Pulse::count`]; before the first
    /// call, whether it has ever turned.
    pub fn has_turned(&self) -> bool {
        let mut loops = self.turns.iter().zip(&self.counted);
        loops.all(|(turns, counted)| turns.load(Ordering::Relaxed) != *counted)
    }

    /// Counts the turns so far, and rings: a loop without packets turns once for this.
    pub fn count(&mut self) {
        for (turns, counted) in self.turns.iter().zip(&mut self.counted) {
            *counted = turns.load(Ordering::Relaxed);
        }
        self.bells.iter().for_each(Bell::ring);
    }
}
