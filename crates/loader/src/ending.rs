//! The end of a run on behalf of an algorithm, and the threads in which algorithms decide.

use std::cell::RefCell;
use std::sync::{Arc, OnceLock};

use crate::loaders;

/// Whether an algorithm has ended a run, and why. Clones share the answer.
#[derive(Clone, Debug, Default)]
pub struct Ending(Arc<OnceLock<String>>);

thread_local! {
    /// The run whose packets this thread handles.
    static CURRENT: RefCell<Option<Ending>> = const { RefCell::new(None) };
}

impl Ending {
    /// Creates the ending of a run that continues.
    pub fn new() -> Ending {
        Ending::default()
    }

    /// Returns why the run must end, if it must. Code that handles packets asks from time to time.
    pub fn why(&self) -> Option<&str> {
        self.0.get().map(String::as_str)
    }

    /// Executes `work`, in which packets pass queues. An algorithm in it can end the run. The
    /// loaders have prepared the thread, so the first call of a queue costs no more than later
    /// ones.
    pub fn within<R>(&self, work: impl FnOnce() -> R) -> R {
        let before = CURRENT.replace(Some(self.clone()));
        let mut work = Some(work);
        let mut result = None;
        prepared(loaders(), &mut || {
            result = work.take().map(|work| work());
        });
        CURRENT.set(before);
        result.expect("a loader executes the work of a thread")
    }
}

/// Nests the preparations of the loaders around `work`.
fn prepared(all: &[&dyn crate::Loader], work: &mut dyn FnMut()) {
    match all.split_first() {
        None => work(),
        Some((first, rest)) => first.within(&mut || prepared(rest, work)),
    }
}

/// Ends the run whose packets this thread handles, because of `why`. Does nothing without a run, as
/// for a queue that a program uses directly. Returns whether there is a run, which then reports the
/// reason.
pub fn end_run(why: &str) -> bool {
    CURRENT.with_borrow(|current| {
        if let Some(ending) = current {
            let _ = ending.0.set(why.to_owned());
        }
        current.is_some()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_reason_is_that_of_the_run_whose_thread_it_is() {
        let (outer, inner) = (Ending::new(), Ending::new());
        end_run("nothing runs");
        let result = outer.within(|| {
            inner.within(|| end_run("within"));
            end_run("first");
            end_run("second");
            7
        });
        end_run("nothing runs any more");
        assert_eq!(result, 7);
        assert_eq!((outer.why(), inner.why()), (Some("first"), Some("within")));
    }
}
