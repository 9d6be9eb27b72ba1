//! Waits until a loop of another thread has seen everything that happened before.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// What ends a loop's wait, and how often the loop has gone round.
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
        // An eventfd that is full is readable already.
        let _ = rustix::io::write(&*self.bell, &1u64.to_ne_bytes());
    }

    /// Makes the bell unreadable. To be called in each round.
    pub fn quiet(&self) {
        let _ = rustix::io::read(&*self.bell, &mut [0; 8]);
    }

    /// Counts a round.
    pub fn beat(&self) {
        self.rounds.fetch_add(1, Ordering::Release);
    }

    /// Waits until the loop has gone round as often as it takes to see, to take and to pass on a
    /// packet.
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

/// One to see, one to take, one to pass on, and the one under way at first.
const ROUNDS: u32 = 4;
/// A loop that is stuck must not keep the program's end.
const PATIENCE: Duration = Duration::from_secs(1);
