//! Waits until another thread's loop has handled all earlier events.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// A bell that ends a loop's wait, and a count of the loop's rounds.
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

    /// Waits for as many rounds as the loop needs to notice a packet, receive it and pass it on.
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

/// The round in progress, one to notice a packet, one to receive it, and one to pass it on.
const ROUNDS: u32 = 4;
/// The longest time for which a stuck loop can delay the end.
const PATIENCE: Duration = Duration::from_secs(1);
