//! Functions that run on another thread while their caller waits.

use std::sync::mpsc;

/// A function for another thread. That thread must run it or drop it.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// Passes `work` to `send`, which must hand it to another thread or drop it, and waits for the
/// result. Returns `None` if the job was dropped without running.
pub(crate) fn run_elsewhere<T: Send>(
    work: impl FnOnce() -> T + Send,
    send: impl FnOnce(Job),
) -> Option<T> {
    let (done, result) = mpsc::sync_channel(1);
    let job: Box<dyn FnOnce() + Send + '_> = Box::new(move || {
        // The receiver waits below.
        let _ = done.send(work());
    });
    // SAFETY: the job and what it borrows are used only before `recv` returns: it returns when the
    // job has sent its result, after which the job touches nothing but its own half of the channel,
    // or when that half was dropped, which happens after everything else in the job. Until then this
    // function, and so every borrow, is alive.
    let job: Job = unsafe { std::mem::transmute(job) };
    send(job);
    result.recv().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_on_another_thread_may_borrow_and_a_dropped_job_is_noticed() {
        let (jobs, waiting) = mpsc::channel::<Job>();
        let thread = std::thread::spawn(move || waiting.into_iter().for_each(|job| job()));
        let text = String::from("borrowed");
        let mut length = 0;
        let result = run_elsewhere(
            || {
                length = text.len();
                std::thread::current().id()
            },
            |job| jobs.send(job).unwrap(),
        );
        assert_eq!(result, Some(thread.thread().id()));
        assert_eq!(length, 8);
        assert_eq!(run_elsewhere(|| text.len(), drop), None);
        drop(jobs);
        thread.join().unwrap();
    }
}
