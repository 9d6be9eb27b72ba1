//! The timers of the queues' AQMs, at a cost that does not depend on the number of queues.
//!
//! Only queues on a list have a timer. The timer of a queue that left the lists is discarded when
//! it expires; its AQM catches up when the next packet arrives.

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::sched::allocated;
use crate::units::Time;

/// At most one entry per queue, the earliest first; of equal ones the lowest number first.
#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(Time, u32)>>,
    /// Whether a queue has an entry. As long as the highest number that ever had one.
    is_armed: Vec<bool>,
}

impl Timers {
    /// Returns the bytes that have been allocated.
    pub(super) fn memory(&self) -> usize {
        self.heap.capacity() * size_of::<Reverse<(Time, u32)>>() + allocated(&self.is_armed)
    }

    /// Adds an entry for `queue`, unless it already has one.
    pub(super) fn arm(&mut self, queue: u32, due: Time) {
        let index = queue as usize;
        if index >= self.is_armed.len() {
            self.is_armed.resize(index + 1, false);
        }
        if !self.is_armed[index] {
            self.is_armed[index] = true;
            self.heap.push(Reverse((due, queue)));
        }
    }

    /// Returns the earliest entry.
    pub(super) fn next(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((due, _))| *due)
    }

    /// Removes the earliest entry that is due at `now`.
    pub(super) fn pop(&mut self, now: Time) -> Option<u32> {
        if self.next()? > now {
            return None;
        }
        let Reverse((_, queue)) = self.heap.pop()?;
        self.is_armed[queue as usize] = false;
        Some(queue)
    }
}
