//! Where one thread leaves something for another. `models/` runs it in every order that the memory
//! model allows.

use super::sync::{Arc, AtomicBool, Mutex, MutexGuard, Ordering, PoisonError};

/// A place for one value, with a sign that the taker wants one. It is not used on the packet path.
pub(super) struct Exchange<T>(Arc<Place<T>>);

struct Place<T> {
    value: Mutex<Option<T>>,
    /// Whether the taker has found nothing.
    is_wanted: AtomicBool,
}

impl<T> Clone for Exchange<T> {
    fn clone(&self) -> Self {
        Exchange(Arc::clone(&self.0))
    }
}

impl<T> Exchange<T> {
    pub(super) fn new() -> Self {
        Exchange(Arc::new(Place {
            value: Mutex::new(None),
            is_wanted: AtomicBool::new(false),
        }))
    }

    pub(super) fn take(&self) -> Option<T> {
        self.value().take()
    }

    pub(super) fn put(&self, value: T) {
        let mut held = self.value();
        *held = Some(value);
        self.0.is_wanted.store(false, Ordering::Relaxed);
    }

    /// Asks for a value, unless there is one.
    pub(super) fn want(&self) {
        let held = self.value();
        self.0.is_wanted.store(held.is_none(), Ordering::Relaxed);
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.0.is_wanted.load(Ordering::Relaxed)
    }

    fn value(&self) -> MutexGuard<'_, Option<T>> {
        self.0.value.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
