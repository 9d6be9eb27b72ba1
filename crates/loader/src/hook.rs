//! Hooks of algorithms that do not return.
//!
//! An endless loop in a hook stops the thread that handles packets, and nothing can stop the loop. So
//! code that waits for such a thread looks from time to time whether it is still in the same call of a
//! hook, and leaves it behind if it is.

use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use crate::ending::{Ending, enter};
use crate::inside::Hook;

/// Executes `call`, which calls the hook `name` of `algorithm`. A [`HookWatch`] of the run notices if it
/// does not return.
pub fn in_hook<R>(algorithm: &'static str, name: &'static str, call: impl FnOnce() -> R) -> R {
    let before = enter(Some(Hook { algorithm, name }));
    let result = call();
    enter(before);
    result
}

/// Notices that a hook does not return, in a run whose packets one thread handles.
#[derive(Debug)]
pub struct HookWatch {
    ending: Ending,
    /// The number of the call that was seen last, and since when it has been seen.
    call: u64,
    since: Instant,
    is_inside: bool,
    is_told: bool,
}

impl HookWatch {
    /// Creates the watch of the run of `ending`, of which nothing is known at the instant `now`.
    pub fn new(ending: &Ending, now: Instant) -> HookWatch {
        HookWatch {
            ending: ending.clone(),
            call: 0,
            since: now,
            is_inside: false,
            is_told: false,
        }
    }

    /// Returns the ending of the run.
    pub fn ending(&self) -> &Ending {
        &self.ending
    }

    /// Returns the instant since which the present call of a hook has been seen.
    pub fn since(&self) -> Instant {
        self.since
    }

    /// Looks which hook the run's thread executes at the instant `now`. Returns a sentence if it is a
    /// call that has been seen for two seconds.
    pub fn hung(&mut self, now: Instant) -> Option<String> {
        let (hook, call) = self.ending.hook();
        self.is_inside = hook.is_some();
        if call != self.call || hook.is_none() {
            (self.call, self.since, self.is_told) = (call, now, false);
        }
        let Hook { algorithm, name } = hook?;
        let lasts = now.saturating_duration_since(self.since);
        (lasts >= PATIENCE).then(|| {
            let seconds = lasts.as_secs();
            format!("`{algorithm}` has not returned from `{name}` for {seconds} s")
        })
    }

    /// As [`HookWatch::hung`], but returns a sentence once for each call of a hook.
    pub fn news(&mut self, now: Instant) -> Option<String> {
        let hung = self.hung(now)?;
        let is_news = !std::mem::replace(&mut self.is_told, true);
        is_news.then_some(hung)
    }

    /// Waits until the run's thread has left the hook that it executes, or until that has not returned
    /// for two seconds. Then returns a sentence.
    pub fn settle(&mut self) -> Option<String> {
        let mut first = None;
        loop {
            if let Some(why) = self.hung(Instant::now()) {
                return Some(why);
            }
            if !self.is_inside || *first.get_or_insert(self.call) != self.call {
                return None;
            }
            sleep(PAUSE);
        }
    }

    /// Waits for the end of the run's thread, and passes on its panic. Returns `None` if it is left behind
    /// because a hook does not return.
    pub fn join<T>(&mut self, thread: JoinHandle<T>) -> Option<T> {
        while !thread.is_finished() {
            if self.ending.is_abandoned() {
                return None;
            }
            if let Some(why) = self.hung(Instant::now()) {
                self.abandon(why);
                return None;
            }
            sleep(PAUSE);
        }
        let ended = thread.join();
        Some(ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }

    /// Ends the run because of `why`, and leaves its thread behind. The process must end by
    /// [`std::process::exit`]; see [`has_abandoned`](crate::has_abandoned).
    pub fn abandon(&self, why: String) {
        self.ending.abandon(why);
    }
}

/// The time after which a hook is said not to return. A hook takes microseconds.
const PATIENCE: Duration = Duration::from_secs(2);
/// The time between two looks at a thread that is to end.
const PAUSE: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_call_that_lasts_two_seconds_is_named_and_others_are_not() {
        let ending = Ending::new();
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        let mut watch = HookWatch::new(&ending, start);
        ending.within(|| {
            in_hook("py:a.py:A", "on_enqueue", || {
                assert_eq!(watch.hung(after(100)), None);
                // The clock starts when the call is seen first.
                assert_eq!(watch.since(), after(100));
                assert_eq!(watch.hung(after(2_099)), None);
                let why = "`py:a.py:A` has not returned from `on_enqueue` for 2 s";
                assert_eq!(watch.news(after(2_100)).as_deref(), Some(why));
                assert_eq!(watch.news(after(2_200)), None);
                let why = "`py:a.py:A` has not returned from `on_enqueue` for 9 s";
                assert_eq!(watch.hung(after(9_500)).as_deref(), Some(why));
                in_hook("py:a.py:A", "next_timer", || {
                    assert_eq!(watch.hung(after(9_600)), None);
                    let why = "`py:a.py:A` has not returned from `next_timer` for 3 s";
                    assert_eq!(watch.news(after(12_600)).as_deref(), Some(why));
                });
            });
            assert_eq!(watch.hung(after(20_000)), None);
            // Another call of the same hook.
            in_hook("py:a.py:A", "on_enqueue", || {
                assert_eq!(watch.hung(after(30_000)), None);
            });
            in_hook("py:a.py:A", "on_enqueue", || {
                assert_eq!(watch.hung(after(40_000)), None);
            });
        });
        // No thread of the run is here any more.
        in_hook("py:a.py:A", "on_enqueue", || {
            assert_eq!(watch.hung(after(50_000)), None);
            assert_eq!(watch.hung(after(60_000)), None);
        });
        assert_eq!(ending.why(), None);
    }

    #[test]
    fn a_thread_that_does_not_return_is_left_behind() {
        let ending = Ending::new();
        let (release, released) = channel::<()>();
        let (enter, entered) = channel();
        let of_thread = ending.clone();
        let thread = std::thread::spawn(move || {
            of_thread.within(|| {
                in_hook("a", "on_dequeue", || {
                    enter.send(()).unwrap();
                    let _ = released.recv();
                });
            });
        });
        entered.recv().unwrap();
        // The present call was seen three seconds ago.
        let mut watch = HookWatch::new(&ending, Instant::now());
        assert_eq!(watch.hung(Instant::now()), None);
        watch.since -= Duration::from_secs(3);
        assert_eq!(watch.join(thread), None);
        let why = ending.why().unwrap();
        assert!(
            why.starts_with("`a` has not returned from `on_dequeue` for "),
            "{why}"
        );
        assert!(ending.is_abandoned() && crate::has_abandoned());
        drop(release);
        let thread = std::thread::spawn(|| 7);
        let mut watch = HookWatch::new(&Ending::new(), Instant::now());
        assert_eq!(watch.join(thread), Some(7));
    }
}
