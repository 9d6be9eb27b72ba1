//! A model of `std::sync::OnceLock`: a thread that finds the value sees all that came before it was set.

use loom::sync::atomic::{AtomicBool, Ordering};

pub struct OnceLock<T> {
    is_set: AtomicBool,
    /// Read only once `is_set` has been seen.
    value: std::sync::OnceLock<T>,
}

impl<T> OnceLock<T> {
    pub fn new() -> OnceLock<T> {
        OnceLock {
            is_set: AtomicBool::new(false),
            value: std::sync::OnceLock::new(),
        }
    }

    pub fn get(&self) -> Option<&T> {
        let is_set = self.is_set.load(Ordering::Acquire);
        is_set.then(|| self.value.get().expect("the value came first"))
    }

    pub fn set(&self, value: T) -> Result<(), T> {
        self.value.set(value)?;
        self.is_set.store(true, Ordering::Release);
        Ok(())
    }
}
