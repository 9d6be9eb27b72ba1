//! The waits of a start, which end when the start is to end.

use std::panic::resume_unwind;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use sluice_core::Stop;

use super::StartError;

/// Does `work` on a thread of its own, and waits for it unless the start is to end. Reading a long
/// configuration takes seconds, and a file that is a pipe may never end. Calls `look` meanwhile.
pub(super) fn beside<T: Send + 'static>(
    ending: &Stop,
    work: impl FnOnce() -> T + Send + 'static,
    look: impl FnMut(),
) -> Result<T, StartError> {
    let (done, result) = sync_channel(1);
    let thread = thread::Builder::new().name("config".into());
    let thread = thread.spawn(move || {
        // Nobody waits any more if the start has ended.
        let _ = done.send(work());
    });
    let thread = thread.map_err(StartError::Reader)?;
    match wait_for(&result, ending, Duration::ZERO, look) {
        Ok(value) => {
            // What follows may need a process with one thread.
            let _ = thread.join();
            Ok(value)
        }
        Err(RecvTimeoutError::Timeout) => Err(StartError::Ended),
        Err(RecvTimeoutError::Disconnected) => match thread.join() {
            Err(panic) => resume_unwind(panic),
            Ok(()) => unreachable!("the thread has sent its result"),
        },
    }
}

/// Waits for a message, and for `patience` after the start is to end. Calls `look` meanwhile.
pub(super) fn wait_for<T>(
    messages: &Receiver<T>,
    ending: &Stop,
    patience: Duration,
    mut look: impl FnMut(),
) -> Result<T, RecvTimeoutError> {
    let mut until = None;
    loop {
        let message = messages.recv_timeout(LOOK_EVERY);
        if !matches!(message, Err(RecvTimeoutError::Timeout)) {
            return message;
        }
        look();
        if ending.is_stopped() {
            let until = *until.get_or_insert_with(|| Instant::now() + patience);
            if Instant::now() >= until {
                return Err(RecvTimeoutError::Timeout);
            }
        }
    }
}

/// The interval at which a start that waits checks whether it is to end.
const LOOK_EVERY: Duration = Duration::from_millis(20);
