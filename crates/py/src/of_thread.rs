//! Values that belong to the thread that created them.

use pyo3::{PyErr, PyResult};
use send_wrapper::SendWrapper;

use crate::error;

/// A value that only its thread can use. Other threads get an error, where a class that PyO3 calls
/// `unsendable` would panic.
pub(crate) struct OfThread<T> {
    /// `None` only while it is dropped.
    value: Option<SendWrapper<T>>,
    what: &'static str,
}

impl<T> OfThread<T> {
    /// Binds `value`, a `what`, to the current thread.
    pub(crate) fn new(what: &'static str, value: T) -> Self {
        OfThread {
            value: Some(SendWrapper::new(value)),
            what,
        }
    }

    /// Returns the value.
    ///
    /// # Errors
    /// This is another thread.
    pub(crate) fn get(&self) -> PyResult<&T> {
        match &self.value {
            Some(value) if value.valid() => Ok(value),
            _ => Err(elsewhere(self.what)),
        }
    }

    /// Returns the value, to change it.
    ///
    /// # Errors
    /// This is another thread.
    pub(crate) fn get_mut(&mut self) -> PyResult<&mut T> {
        match &mut self.value {
            Some(value) if value.valid() => Ok(value),
            _ => Err(elsewhere(self.what)),
        }
    }
}

fn elsewhere(what: &str) -> PyErr {
    error::of(format!(
        "this {what} belongs to the thread that created it: use it there, or create one here"
    ))
}

impl<T> Drop for OfThread<T> {
    fn drop(&mut self) {
        // Another thread cannot drop the value, so its memory is not freed.
        if let Some(value) = self.value.take_if(|value| !value.valid()) {
            std::mem::forget(value);
        }
    }
}
