//! Errors as Python exceptions.

use pyo3::create_exception;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use sluice_core::registry::SpecError;

create_exception!(
    sluice._sluice,
    SluiceError,
    PyValueError,
    "An error with the words and the place that the command line prints.\n\n\
     `exit_code` is the exit status of `sluice ipfw` (docs/suite.md) if a router refused commands or did\n\
     not answer, and else `None`."
);

/// Converts an error of a library. The message is the same as on the command line.
pub(crate) fn of(error: impl std::fmt::Display) -> PyErr {
    SluiceError::new_err(error.to_string())
}

/// Converts an error that has an exit status on the command line.
pub(crate) fn with_status(py: Python<'_>, error: impl std::fmt::Display, exit_code: u8) -> PyErr {
    let error = of(error);
    match error.value(py).setattr("exit_code", exit_code) {
        Ok(()) => error,
        Err(other) => other,
    }
}

/// Converts an error in the text of a queue, with its place.
pub(crate) fn of_spec(words: &str, error: &SpecError) -> PyErr {
    let at = error.span.start + 1;
    let advice = error.advice().map(|advice| format!("; {advice}"));
    let advice = advice.unwrap_or_default();
    of(format!("{error} (at character {at} of {words:?}){advice}"))
}
