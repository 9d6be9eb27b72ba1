//! Waits until the loop of another thread has handled everything that happened before.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A bell that ends a loop's wait, and the number of rounds that the loop has made.
#[derive(Clone)]
pub struct Pulse {
    /// The loop's wait ends when this is readable.
    pub bell: Arc<OwnedFd>,
    rounds: Arc<AtomicU64>,
}

impl Pulse {
    /// Creates the pulse of a loop that waits for `bell`.
    pub fn new(bell: Arc<OwnedFd>) -> Pulse {
        Pulse {
            bell,
            rounds: Arc::default(),
        }
    }

    /// Makes the bell readable.
    pub fn ring(&self) {
        // A full eventfd is already readable.
        let _ = rustix::io::write(&*self.bell, &1u64.to_ne_bytes());
    }

    /// Resets the bell. The loop calls this in each round.
    pub fn quiet(&self) {
        let _ = rustix::io::read(&*self.bell, &mut [0; 8]);
    }

    /// Counts a round.
    pub fn beat(&self) {
        self.rounds.fetch_add(1, Ordering::Release);
    }

    /// Waits for the number of rounds that the loop needs to notice a packet, to receive it and to
    /// pass it on.
    pub fn settle(&self) {
        let deadline = Instant::now() + PATIENCE;
        for _ in 0..ROUNDS {
            let before = self.rounds.load(Ordering::Acquire);
            self.ring();
            while self.rounds.load(Ordering::Acquire) == before && Instant::now() < deadline {
                sleep(Duration::from_micros(50));
            }
        }
    }
}

/// One to notice, one to receive, one to pass on, and the round in progress.
const ROUNDS: u32 = 4;
/// A loop that is stuck must not delay the end for longer.
const PATIENCE: Duration = Duration::from_secs(1);
