//! The cores that threads run on (CPU affinity), and the depth of their idle states
//! ([`IdleLimit`]).
//!
//! A packet loop with a core of its own keeps its caches, and is not preempted by the rest of the
//! process, which runs on other cores. See sched(7) and `sched_setaffinity(2)`.

mod idle;

pub use idle::{IdleLimit, IdleLimitError};

use crate::sys::{self, Affinity};
use std::io;
use std::marker::PhantomData;

/// The reasons why threads cannot be kept on cores.
#[derive(Debug, thiserror::Error)]
pub enum CoreError {
    /// The machine has fewer cores.
    #[error("there is no core {core}: this process may use {}", list(.allowed))]
    Absent {
        /// The requested core.
        core: usize,
        /// The cores that the process may use.
        allowed: Vec<usize>,
    },
    /// The core is offline, or the process is restricted to other cores (`taskset`, a cpuset).
    #[error("core {core} is not available to this process, which may use {}", list(.allowed))]
    NotAllowed {
        /// The requested core.
        core: usize,
        /// Those that the process may use.
        allowed: Vec<usize>,
    },
    /// No core was named.
    #[error("a thread needs a core to run on")]
    None,
    /// The kernel refused.
    #[error("cannot {step} the cores of a thread: {source}")]
    Kernel {
        /// "read" or "set".
        step: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// Returns the cores that the calling thread may run on, in ascending order.
///
/// # Errors
/// The kernel may have more than 8192 cores.
pub fn allowed() -> Result<Vec<usize>, CoreError> {
    Ok(present()?.cores())
}

fn present() -> Result<Affinity, CoreError> {
    let step = "read";
    Affinity::of_thread().map_err(|source| CoreError::Kernel { step, source })
}

/// Keeps the calling thread, and every thread that it starts meanwhile, on some cores. When this is
/// dropped, the calling thread gets its previous cores back; the threads that it started keep
/// theirs.
#[derive(Debug)]
pub struct Stay {
    before: Affinity,
    /// It must be dropped on the thread on which it was created.
    _thread: PhantomData<*const ()>,
}

impl Stay {
    /// Moves the calling thread to `cores`.
    ///
    /// # Errors
    /// One of them does not exist, or is not available to this process.
    pub fn on(cores: &[usize]) -> Result<Stay, CoreError> {
        let before = present()?;
        if cores.is_empty() {
            return Err(CoreError::None);
        }
        let allowed = before.cores();
        if let Some(core) = cores.iter().copied().find(|core| !allowed.contains(core)) {
            return Err(if core < sys::configured_cores() {
                CoreError::NotAllowed { core, allowed }
            } else {
                CoreError::Absent { core, allowed }
            });
        }
        let step = "set";
        let these = Affinity::on(cores);
        these
            .take()
            .map_err(|source| CoreError::Kernel { step, source })?;
        Ok(Stay {
            before,
            _thread: PhantomData,
        })
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        // This fails if the process has lost access to all of them. Then it gets those that it has: the
        // thread must not stay on a core that it shares with a loop.
        let _ = self.before.take().or_else(|_| Affinity::all().take());
    }
}

/// `0-3, 6`.
fn list(cores: &[usize]) -> String {
    let runs = cores.chunk_by(|a, b| a + 1 == *b);
    let shown = runs.map(|run| match run {
        [first, .., last] => format!("{first}-{last}"),
        _ => run[0].to_string(),
    });
    shown.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_and_those_that_it_starts_stay_on_the_requested_core() {
        let before = allowed().unwrap();
        let last = *before.last().unwrap();
        let stay = Stay::on(&[last]).unwrap();
        assert_eq!(allowed().unwrap(), [last]);
        let started = std::thread::spawn(|| allowed().unwrap());
        assert_eq!(started.join().unwrap(), [last]);
        drop(stay);
        assert_eq!(allowed().unwrap(), before);
    }

    #[test]
    fn a_missing_core_is_distinguished_from_one_that_is_not_available() {
        let before = allowed().unwrap();
        let absent = Stay::on(&[before[0], 1023]).unwrap_err();
        let expected = format!(
            "there is no core 1023: this process may use {}",
            list(&before)
        );
        assert_eq!(absent.to_string(), expected);
        if let [first, other, ..] = before[..] {
            let _stay = Stay::on(&[first]).unwrap();
            let refused = Stay::on(&[other]).unwrap_err().to_string();
            let expected =
                format!("core {other} is not available to this process, which may use {first}");
            assert_eq!(refused, expected);
        }
        assert!(matches!(Stay::on(&[]), Err(CoreError::None)));
        assert_eq!(allowed().unwrap(), before);
    }

    #[test]
    fn cores_are_listed_in_runs() {
        assert_eq!(list(&[0, 1, 2, 3, 6, 8, 9]), "0-3, 6, 8-9");
        assert_eq!(list(&[]), "");
    }
}
