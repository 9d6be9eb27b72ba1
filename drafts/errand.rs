//! Work for which no packet waits: it runs on a thread beside the packet loop.
//!
//! A request to the kernel's configuration (rtnetlink, ethtool) waits until nobody else changes the
//! configuration, which can take seconds. A port lets the helper ask, and looks for the answer when
//! it is called again. The helper is the [broker](crate::confine) if there is one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel, sync_channel};
use std::sync::{Mutex, PoisonError};

use crate::confine::send_to_broker;
use crate::sys::Job;

/// Work that is under way.
pub(crate) struct Errand<T>(Receiver<T>);

/// Why an errand has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotDone {
    /// It is under way.
    Pending,
    /// It has panicked, or there is no helper.
    Failed,
}

/// The thread that works where there is no broker.
static HELPER: Mutex<Option<Sender<Job>>> = Mutex::new(None);

impl<T: Send + 'static> Errand<T> {
    /// Lets the helper do `work`. The first call must come from a thread with ordinary priority, since
    /// it may start the helper.
    pub(crate) fn send(work: impl FnOnce() -> T + Send + 'static) -> Errand<T> {
        let (done, result) = sync_channel(1);
        let job: Job = Box::new(move || {
            // A panic drops the sender, and the port finds the errand failed. Whoever asked may be
            // gone.
            let _ = catch_unwind(AssertUnwindSafe(|| done.send(work())));
        });
        if let Some(job) = send_to_broker(job) {
            send_to_helper(job);
        }
        Errand(result)
    }

    /// Returns the result, once.
    ///
    /// # Errors
    /// [`NotDone`].
    pub(crate) fn poll(&self) -> Result<T, NotDone> {
        self.0.try_recv().map_err(|error| match error {
            TryRecvError::Empty => NotDone::Pending,
            TryRecvError::Disconnected => NotDone::Failed,
        })
    }
}

/// Starts the helper if there is neither one nor a broker. Ports call this when they are opened, since
/// threads of the packet loop's own would inherit its real-time priority.
pub(crate) fn keep_helper() {
    drop(Errand::send(|| ()));
}

fn send_to_helper(job: Job) {
    let mut helper = HELPER.lock().unwrap_or_else(PoisonError::into_inner);
    if helper.is_none() {
        let (jobs, waiting) = channel::<Job>();
        let thread = std::thread::Builder::new()
            .name("helper".into())
            .spawn(move || waiting.into_iter().for_each(|job| job()));
        *helper = thread.is_ok().then_some(jobs);
    }
    if let Some(jobs) = &*helper {
        // The helper lives as long as the process.
        let _ = jobs.send(job);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn result<T: Send + 'static>(errand: &Errand<T>) -> Result<T, NotDone> {
        loop {
            match errand.poll() {
                Err(NotDone::Pending) => thread::yield_now(),
                result => return result,
            }
        }
    }

    #[test]
    fn an_errand_runs_elsewhere_and_is_not_waited_for() {
        let (go, waits) = channel::<()>();
        let errand = Errand::send(move || {
            waits.recv().unwrap();
            thread::current().id()
        });
        assert_eq!(errand.poll(), Err(NotDone::Pending));
        go.send(()).unwrap();
        assert_ne!(result(&errand), Ok(thread::current().id()));
        assert_eq!(errand.poll(), Err(NotDone::Failed), "a result is returned once");
    }

    #[test]
    fn a_panic_fails_its_own_errand_only() {
        let errand = Errand::<u8>::send(|| std::panic::resume_unwind(Box::new(())));
        assert_eq!(result(&errand), Err(NotDone::Failed));
        assert_eq!(result(&Errand::send(|| 7)), Ok(7));
    }
}
