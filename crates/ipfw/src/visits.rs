//! Counts what loops visit, for tests of how the work grows. Outside this crate's own tests, nothing is
//! counted.

#[cfg(test)]
use std::cell::Cell;

/// Counts one object that a loop visits.
#[inline]
pub(crate) fn visit() {
    #[cfg(test)]
    VISITS.set(VISITS.get() + 1);
}

/// Returns how many objects this thread visits during `work`.
#[cfg(test)]
pub(crate) fn visits(work: impl FnOnce()) -> usize {
    let before = VISITS.get();
    work();
    VISITS.get() - before
}

#[cfg(test)]
thread_local! {
    static VISITS: Cell<usize> = const { Cell::new(0) };
}

#[cfg(test)]
mod tests;
