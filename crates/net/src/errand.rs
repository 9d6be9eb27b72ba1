//! Work for which no packet waits: it runs on a thread beside the packet loop.
//!
//! A request to the kernel's configuration (rtnetlink, ethtool, an attached program) waits until
//! nobody else changes the configuration, which can take seconds. Even closing a packet socket waits
//! until no processor uses it any more. A port lets the helper do such things, and looks for the
//! answer when it is called again. The helper is the [broker](crate::confine) if there is one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel, sync_channel};
use std::sync::{Mutex, PoisonError};

use crate::confine::send_to_broker;
use crate::sys::{self, Job};

/// Work that is under way.
pub(crate) struct Errand<T>(Receiver<T>);

/// Why an errand has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotDone {
    /// It is under way.
    Pending,
    /// It has panicked, there is no helper, or the result was returned before.
    Failed,
}

/// The thread that works where there is no broker.
static HELPER: Mutex<Option<Sender<Job>>> = Mutex::new(None);

impl<T: Send + 'static> Errand<T> {
    /// Lets the helper do `work`, after all earlier errands.
    pub(crate) fn send(work: impl FnOnce() -> T + Send + 'static) -> Errand<T> {
        let (done, result) = sync_channel(1);
        let job: Job = Box::new(move || {
            // A panic drops the sender, which the receiver notices. The receiver may be gone.
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

    /// Waits for the result, at most for `patience`.
    ///
    /// # Errors
    /// [`NotDone`].
    pub(crate) fn wait(&self, patience: std::time::Duration) -> Result<T, NotDone> {
        use std::sync::mpsc::RecvTimeoutError;
        self.0.recv_timeout(patience).map_err(|error| match error {
            RecvTimeoutError::Timeout => NotDone::Pending,
            RecvTimeoutError::Disconnected => NotDone::Failed,
        })
    }
}

/// Lets the helper drop `value`, for a destructor that may wait.
pub(crate) fn drop_elsewhere<T: Send + 'static>(value: T) {
    drop(Errand::send(move || drop(value)));
}

/// Starts the helper if there is neither one nor a broker. Ports call this when they are opened, so
/// that no thread is started on the packet path.
pub(crate) fn keep_helper() {
    drop(Errand::send(|| ()));
}

fn send_to_helper(job: Job) {
    let mut helper = HELPER.lock().unwrap_or_else(PoisonError::into_inner);
    if helper.is_none() {
        let (jobs, waiting) = channel::<Job>();
        let thread = std::thread::Builder::new()
            .name("helper".into())
            .spawn(move || {
                // The starting thread may be kept on the loop's core.
                let _ = sys::Affinity::all().take();
                waiting.into_iter().for_each(|job| job());
            });
        *helper = thread.is_ok().then_some(jobs);
    }
    if let Some(jobs) = &*helper {
        // The helper lives as long as the process.
        let _ = jobs.send(job);
    }
}

/// Keeps the helper busy until the sender is dropped, as a system call does that waits.
#[cfg(test)]
pub(crate) fn hold_helper() -> Sender<()> {
    let (hold, held) = channel::<()>();
    let (begun, begins) = channel();
    drop(Errand::send(move || {
        let _ = begun.send(());
        let _ = held.recv();
    }));
    begins.recv().expect("the helper begins");
    hold
}

/// Tests that hold the helper, or need it to be free, run one after the other.
#[cfg(test)]
pub(crate) static ALONE: Mutex<()> = Mutex::new(());

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use std::time::Duration;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn an_errand_runs_elsewhere_and_is_not_waited_for() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let (go, waits) = channel::<()>();
        let errand = Errand::send(move || {
            waits.recv().unwrap();
            thread::current().id()
        });
        assert_eq!(errand.poll(), Err(NotDone::Pending));
        go.send(()).unwrap();
        let by = errand.wait(LONG).unwrap();
        assert_ne!(by, thread::current().id());
        // The helper drops its end some time after the result has arrived.
        let again = errand.wait(LONG);
        assert_eq!(again, Err(NotDone::Failed), "a result is returned once");
    }

    #[test]
    fn a_panic_fails_its_own_errand_only() {
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let errand = Errand::<u8>::send(|| std::panic::resume_unwind(Box::new(())));
        assert_eq!(errand.wait(LONG), Err(NotDone::Failed));
        assert_eq!(Errand::send(|| 7).wait(LONG), Ok(7));
    }

    #[test]
    fn what_waits_when_it_is_dropped_delays_nobody() {
        struct Slow(Receiver<()>, Sender<thread::ThreadId>);
        impl Drop for Slow {
            fn drop(&mut self) {
                let _ = self.0.recv();
                let _ = self.1.send(thread::current().id());
            }
        }
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let (go, waits) = channel();
        let (by, told) = channel();
        drop_elsewhere(Slow(waits, by));
        go.send(()).unwrap();
        assert_ne!(told.recv().unwrap(), thread::current().id());
    }
}
