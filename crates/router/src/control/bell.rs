//! What the loop and the senders of orders agree on without a lock. `models/` runs both types in every
//! order that the memory model allows.

use super::sync::{AtomicBool, AtomicU8, Ordering};

/// Whether the bell has rung, so that the loop makes a system call only then.
#[derive(Debug)]
pub(super) struct Flag(AtomicBool);

impl Flag {
    pub(super) fn new() -> Flag {
        Flag(AtomicBool::new(false))
    }

    /// Rings: `put` makes the loop's descriptor readable, which ends its sleep.
    pub(super) fn ring(&self, put: impl FnOnce()) {
        put();
        // The flag is set after `put`, so a thread that sees the flag finds what was put. A store would
        // do, but loom puts a store before the swap of another thread that came earlier.
        self.0.swap(true, Ordering::Release);
    }

    /// Calls `drain` if the bell has rung since the last call, so that the descriptor is no longer
    /// readable. Must come before the search for orders. `has_rung` is whether the descriptor has been
    /// seen to be readable: a loop with real-time priority that `put` wakes up may interrupt the thread that
    /// rings before it has set the flag. It would find the descriptor readable until that thread, which
    /// waits for its core, goes on.
    pub(super) fn hear(&self, has_rung: bool, drain: impl FnOnce()) {
        if self.0.swap(false, Ordering::Acquire) || has_rung {
            drain();
        }
    }
}

/// Whether the loop executes an order or its sender has withdrawn it, the first of the two.
#[derive(Debug)]
pub(super) struct Claim(AtomicU8);

impl Claim {
    pub(super) const BEGUN: u8 = 1;
    pub(super) const WITHDRAWN: u8 = 2;
    const NONE: u8 = 0;

    pub(super) fn new() -> Claim {
        Claim(AtomicU8::new(Claim::NONE))
    }

    /// Returns whether the order is to be executed: it is not withdrawn. Several loops may ask, and get
    /// the same answer.
    pub(super) fn begin(&self) -> bool {
        let order = Ordering::Relaxed;
        let begun = self
            .0
            .compare_exchange(Claim::NONE, Claim::BEGUN, order, order);
        begun.is_ok() || begun == Err(Claim::BEGUN)
    }

    /// Returns whether this is the first claim.
    pub(super) fn put(&self, claim: u8) -> bool {
        // No other memory depends on it.
        let order = Ordering::Relaxed;
        self.0
            .compare_exchange(Claim::NONE, claim, order, order)
            .is_ok()
    }
}
