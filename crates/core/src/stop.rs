//! A request to end early.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, Ordering};

/// A request to end early, shared by all parties that should end together.
///
/// Long-running code checks it from time to time: a live router, a simulation, a traffic source.
/// Clones share the request.
///
/// ```
/// use sluice_core::Stop;
/// let (here, there) = {
///     let stop = Stop::new();
///     (stop.clone(), stop)
/// };
/// here.stop();
/// assert!(there.is_stopped());
/// ```
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Creates a request that has not been made.
    pub fn new() -> Stop {
        Stop::default()
    }

    /// Requests the end.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns whether the end has been requested.
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
