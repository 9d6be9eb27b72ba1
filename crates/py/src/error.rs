//! Errors as Python exceptions.

use pyo3::PyErr;
use pyo3::create_exception;
use pyo3::exceptions::PyValueError;
use sluice_core::registry::SpecError;

create_exception!(
    sluice._sluice,
    SluiceError,
    PyValueError,
    "An error with the words and the place that the command line prints."
);

/// Converts an error of a library. The message is the same as on the command line.
pub(crate) fn of(error: impl std::fmt::Display) -> PyErr {
    SluiceError::new_err(error.to_string())
}

/// Converts an error in the text of a queue, with its place.
pub(crate) fn of_spec(words: &str, error: &SpecError) -> PyErr {
    let at = error.span.start + 1;
    let advice = error.advice().map(|advice| format!("; {advice}"));
    let advice = advice.unwrap_or_default();
    of(format!("{error} (at character {at} of {words:?}){advice}"))
}
