//! The Python package, in which algorithms in Python and sweeps run.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::Mutex;

use sluice_loader::{Loaded, Loader, Source};

/// Why the Python package cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PythonError {
    /// Python cannot be started.
    #[error("cannot start `{}`: {error}; SLUICE_PYTHON names another one", python.display())]
    Python {
        /// The interpreter.
        python: OsString,
        /// The error of the system.
        error: io::Error,
    },
    /// Python does not know the package.
    #[error(
        "`{}` has no package `sluice`: run `pip install .` in Sluice's source tree, or name the \
         interpreter that has it in SLUICE_PYTHON",
        python.display()
    )]
    NoPackage {
        /// The interpreter.
        python: OsString,
    },
}

/// Replaces this process by `python3 -P -m sluice` with `words`.
///
/// # Errors
/// [`PythonError`]; returns only then.
pub fn become_package(words: impl IntoIterator<Item = OsString>) -> PythonError {
    let python = std::env::var_os("SLUICE_PYTHON").unwrap_or_else(|| "python3".into());
    let fail = |error| PythonError::Python {
        python: python.clone(),
        error,
    };
    let find = "import importlib.util as u, sys; sys.exit(u.find_spec('sluice') is None)";
    let found = Command::new(&python)
        .args([SAFE, "-c", find])
        .stdin(Stdio::null())
        .status();
    match found {
        Err(error) => fail(error),
        Ok(status) if !status.success() => PythonError::NoPackage { python },
        Ok(_) => {
            let mut command = Command::new(&python);
            fail(command.args([SAFE, "-m", "sluice"]).args(words).exec())
        }
    }
}

/// Keeps the current folder off the import path: a file there, such as `queue.py`, would take the
/// place of a module of the package or of Python, and be executed.
const SAFE: &str = "-P";

/// Whether this process may be replaced.
enum Replaceable {
    /// The command line, while nothing has been done yet: Python may execute it instead.
    By(Vec<OsString>),
    /// No longer, or the command builds no queues.
    No,
    /// That failed: a queue that is loaded again has the same error.
    Failed(String),
}

static REPLACEABLE: Mutex<Replaceable> = Mutex::new(Replaceable::No);

/// Allows the first `py:` to replace this process by the package, which executes `words`.
pub fn may_replace(words: Vec<OsString>) {
    *REPLACEABLE.lock().expect(LOCK) = Replaceable::By(words);
}

/// Ends the time in which this process may be replaced: it has opened something, or prints.
pub fn has_begun() {
    *REPLACEABLE.lock().expect(LOCK) = Replaceable::No;
}

const LOCK: &str = "nobody panics with the lock";

/// The loader of `py:FILE:CLASS` in a program without Python: executes the whole command in the
/// Python package.
#[derive(Clone, Copy, Debug)]
pub struct Redirect;

impl Loader for Redirect {
    fn scheme(&self) -> &'static str {
        "py"
    }

    fn synopsis(&self) -> &'static str {
        "py:FILE:CLASS"
    }

    fn replaces_process(&self) -> bool {
        true
    }

    fn load(&self, _source: &Source<'_>) -> Result<Loaded, String> {
        let mut state = REPLACEABLE.lock().expect(LOCK);
        // Other threads handle packets and orders.
        let is_first = std::thread::current().name() == Some("main");
        let why = match std::mem::replace(&mut *state, Replaceable::No) {
            Replaceable::By(words) if is_first => become_package(words).to_string(),
            Replaceable::Failed(why) => why,
            Replaceable::By(_) | Replaceable::No => return Err(NO_PYTHON.to_owned()),
        };
        *state = Replaceable::Failed(why.clone());
        Err(why)
    }
}

/// The error of a process that has begun without Python.
const NO_PYTHON: &str =
    "this process has no Python: start it as `python3 -m sluice` in place of `sluice`";
