//! The timers of the queues' AQMs, at a cost that does not depend on the number of queues.
//!
//! Only queues on a list have a timer. The timer of a queue that left the lists is forgotten when it
//! comes due; its AQM makes up for what it missed when the next packet arrives.

use alloc::collections::BinaryHeap;
use alloc::vec::Vec;
use core::cmp::Reverse;

use crate::prefetch;
use crate::units::Time;

/// At most one entry per queue, earliest first, of equal ones that with the lowest number.
#[derive(Debug, Default)]
pub(super) struct Timers {
    heap: BinaryHeap<Reverse<(Time, u32)>>,
    /// Whether a queue has an entry; as long as the highest number that ever had one.
    is_armed: Vec<bool>,
}

impl Timers {
    /// Enters `queue`, unless it has an entry already.
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

    /// The earliest entry.
    pub(super) fn next(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((due, _))| *due)
    }

    /// Prefetches the earliest entry.
    pub(super) fn prefetch_next(&self) {
        prefetch::index(self.heap.as_slice(), 0);
    }

    /// Takes out the earliest entry that is due at `now`.
    pub(super) fn pop(&mut self, now: Time) -> Option<u32> {
        if self.next()? > now {
            return None;
        }
        let Reverse((_, queue)) = self.heap.pop()?;
        self.is_armed[queue as usize] = false;
        Some(queue)
    }
}
