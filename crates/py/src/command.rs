//! The `sluice` command in this process.

use std::ffi::OsString;
use std::process::ExitCode;

use pyo3::prelude::*;

/// Run a command line, the first word of which names the program, and return its exit status.
///
/// Wrong words and `--help` end the process.
#[pyfunction]
pub(crate) fn command(py: Python<'_>, words: Vec<OsString>) -> u8 {
    // Queues in Python attach to the interpreter themselves.
    let code = py.detach(|| sluice_cli::command(&words));
    let mut all = 0..=u8::MAX;
    let is_it = |status: &u8| ExitCode::from(*status) == code;
    all.find(is_it).unwrap_or(1)
}
