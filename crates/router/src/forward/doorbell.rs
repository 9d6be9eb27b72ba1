//! How a worker that sleeps learns that another one has sent it packets. `models/` runs it in every
//! order that the memory model allows.

use super::sync::{AtomicBool, Ordering, fence};

/// Whether a worker sleeps, so that others make a system call only then.
#[derive(Debug)]
pub(super) struct Doorbell(AtomicBool);

impl Doorbell {
    /// That of a worker that does not sleep.
    pub(super) fn new() -> Doorbell {
        Doorbell(AtomicBool::new(false))
    }

    /// Must be called after packets were sent, and before [`Doorbell::ring`]; once for all receivers.
    /// Either the sender then sees that a receiver sleeps, or the receiver sees the packets.
    pub(super) fn have_sent() {
        fence(Ordering::SeqCst);
    }

    /// Calls `wake_up` if the worker sleeps.
    pub(super) fn ring(&self, wake_up: impl FnOnce()) {
        if self.0.load(Ordering::Relaxed) && self.0.swap(false, Ordering::AcqRel) {
            wake_up();
        }
    }

    /// Announces that the worker is about to sleep. Returns false if packets are waiting: then it must
    /// not.
    pub(super) fn sleep(&self, has_waiting: impl FnOnce() -> bool) -> bool {
        self.0.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if has_waiting() {
            self.wake_up();
            return false;
        }
        true
    }

    /// Announces that the worker no longer sleeps.
    pub(super) fn wake_up(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}
