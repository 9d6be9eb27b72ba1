//! The `sluice` command in this process.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use pyo3::prelude::*;
use sluice_recording::set_program;

/// Run a command line, the first word of which names the program, and return its exit status.
///
/// `library` is the file of this library, by which runs of the same program are recognised. Wrong words
/// and `--help` end the process.
#[pyfunction]
pub(crate) fn command(py: Python<'_>, words: Vec<OsString>, library: PathBuf) -> u8 {
    set_program(library);
    // Queues in Python attach to the interpreter themselves.
    let code = py.detach(|| sluice_cli::command(&words));
    let mut all = 0..=u8::MAX;
    let is_it = |status: &u8| ExitCode::from(*status) == code;
    all.find(is_it).unwrap_or(1)
}
