//! Runs in this process: reads scenarios, runs them, and keeps the recording in memory.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

use pyo3::prelude::*;
use pyo3::types::PyBytes;

use sluice_core::{Span, Stop};
use sluice_lab::live::LiveOptions;
use sluice_lab::run::{Failed, Finished, check, record};
use sluice_recording::figures::figures_of;
use sluice_recording::metrics::measure;
use sluice_recording::{Environment, Keep, Recording, RunWriter, identity_of};
use sluice_report::report_of::report_of;
use sluice_scenario::metric::Summary;
use sluice_scenario::{self as scenario, Backend, Scenario};

use crate::error;

/// A variant of a scenario: what can be run.
#[pyclass(frozen)]
pub(crate) struct Variant(scenario::Variant);

#[pymethods]
impl Variant {
    /// Read the scenario `text`, which has no matrix, as the variant `name`. The paths of modules are
    /// relative to the file `source`.
    #[new]
    fn new(source: &str, name: String, text: &str) -> PyResult<Variant> {
        let mut variants = Scenario::parse(source, text, &[]).map_err(error::of)?;
        match variants.len() {
            1 => Ok(Variant::named(name, variants.remove(0))),
            n => Err(error::of(format!(
                "the scenario has {n} variants; one can be run"
            ))),
        }
    }

    /// The name.
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    /// The scenario with all defaults, as TOML.
    #[getter]
    fn text(&self) -> String {
        self.scenario().to_toml()
    }

    /// The duration in nanoseconds.
    #[getter]
    fn duration_ns(&self) -> u64 {
        self.scenario().duration.as_ns()
    }
}

impl Variant {
    /// A recording from Python has no coordinates in a matrix.
    fn named(name: String, variant: scenario::Variant) -> Variant {
        Variant(scenario::Variant {
            name,
            coordinates: Vec::new(),
            ..variant
        })
    }

    /// Returns the scenario.
    pub fn scenario(&self) -> &Scenario {
        &self.0.scenario
    }
}

/// Read the scenario `text`, named `name` in messages, with the overrides `sets` (`KEY=VALUE`), and
/// return its variants.
#[pyfunction]
pub(crate) fn variants(name: &str, text: &str, sets: Vec<String>) -> PyResult<Vec<Variant>> {
    let variants = Scenario::parse(name, text, &sets).map_err(error::of)?;
    let variants = variants.into_iter();
    Ok(variants
        .map(|variant| Variant::named(variant.name.clone(), variant))
        .collect())
}

/// Return the identity of this library's file, at `path`: its build ID, or its SHA-256.
#[pyfunction]
pub(crate) fn program(path: PathBuf) -> PyResult<&'static str> {
    static PROGRAM: OnceLock<String> = OnceLock::new();
    if let Some(known) = PROGRAM.get() {
        return Ok(known);
    }
    let id = identity_of(&path)
        .map_err(|error| error::of(format!("cannot read `{}`: {error}", path.display())))?;
    Ok(PROGRAM.get_or_init(|| id))
}

/// Run `variant`.
///
/// The interpreter is released meanwhile, and Ctrl-C ends the run. `how` is the backend, and how much is kept: figures, flows or packets.
/// `program` is the result of [`program`]. `progress` is called now and then with the nanoseconds of
/// the run that are done; an exception from it ends the run.
///
/// Return the recording, and the error of a run that failed after it had measured something, or in
/// which an error stopped an algorithm.
#[pyfunction]
#[pyo3(name = "run", signature = (variant, how, program, progress=None))]
pub(crate) fn run_variant(
    py: Python<'_>,
    variant: &Bound<'_, Variant>,
    how: (String, String),
    program: String,
    progress: Option<Py<PyAny>>,
) -> PyResult<(Run, Option<String>)> {
    let variant = &variant.get().0;
    let (backend, record) = how;
    let backend = match backend.as_str() {
        "sim" => Backend::Sim,
        "live" => Backend::Live,
        other => {
            return Err(error::of(format!(
                "there is no backend `{other}`; one of: sim, live"
            )));
        }
    };
    let keep = Keep::from_word(&record).map_err(|words| {
        error::of(format!(
            "there is no level of recording `{record}`; {words}"
        ))
    })?;
    let environment = Environment::of_program(backend, now(), Some(program));
    let writer = RunWriter::in_memory_keeping(keep, variant, &environment).map_err(error::of)?;
    let (finished, signal) = py.detach(|| carry_out(variant, backend, writer, progress.as_ref()));
    if let Some(signal) = signal {
        return Err(signal);
    }
    match finished {
        Ok(finished) => {
            let run = Run {
                recording: finished.recording,
                summary: finished.summary,
            };
            let stopped = run.stopped().first().map(|why| why_stopped(why));
            Ok((run, stopped))
        }
        Err(failed) => match failed.recording.and_then(|kept| of_failed(*kept)) {
            Some(run) => Ok((run, Some(failed.error.to_string()))),
            None => Err(error::of(failed.error)),
        },
    }
}

/// Returns the error of a run in which an algorithm was stopped because of `why`.
pub(crate) fn why_stopped(why: &str) -> String {
    format!("the figures are not those of the queue, which an error stopped: {why}")
}

/// Returns the recording of a run that failed, unless it has no packets.
fn of_failed(recording: Recording) -> Option<Run> {
    recording.packets().ok()?.next()?.ok()?;
    let summary = measure(&recording).ok()?;
    Some(Run { recording, summary })
}

/// The present instant, in RFC 3339 format.
fn now() -> String {
    humantime::format_rfc3339_micros(SystemTime::now()).to_string()
}

/// Returns the result of a run, and the exception of a signal or of `watch` that ended it.
fn carry_out(
    variant: &scenario::Variant,
    backend: Backend,
    writer: RunWriter,
    watch: Option<&Py<PyAny>>,
) -> (Result<Finished, Failed>, Option<PyErr>) {
    let interrupt = Stop::new();
    let (mut signal, mut checked) = (None, Instant::now());
    let mut progress = |done: Span| {
        // Check rarely, because attaching to the interpreter waits for other Python threads.
        if checked.elapsed() >= BETWEEN_CHECKS && signal.is_none() {
            checked = Instant::now();
            let look = |py: Python<'_>| {
                py.check_signals()?;
                match watch {
                    Some(watch) => watch.call1(py, (done.as_ns(),)).map(drop),
                    None => Ok(()),
                }
            };
            if let Err(error) = Python::attach(look) {
                signal = Some(error);
                interrupt.stop();
            }
        }
    };
    let result = check(variant, backend, false).map_err(Failed::from);
    let live = LiveOptions::default();
    let result =
        result.and_then(|()| record(variant, backend, live, writer, &interrupt, &mut progress));
    // A signal may have arrived after the last check.
    let signal = signal.or_else(|| Python::attach(|py| py.check_signals()).err());
    (result, signal)
}

/// The time between two checks for signals.
const BETWEEN_CHECKS: Duration = Duration::from_millis(50);

/// The recording of a run, in memory or in a folder.
#[pyclass(name = "Run", frozen)]
pub(crate) struct Run {
    recording: Recording,
    summary: Summary,
}

/// A figure: name, unit, value and description.
type FigureRow = (String, &'static str, f64, &'static str);

#[pymethods]
impl Run {
    /// Open the recording in the folder `folder`.
    #[staticmethod]
    fn open(folder: PathBuf) -> PyResult<Run> {
        let recording = Recording::open(&folder).map_err(error::of)?;
        if let Some(why) = recording.unfinished().filter(|_| recording.is_empty()) {
            return Err(error::of(format!(
                "the run in `{}` recorded nothing: {why}",
                folder.display()
            )));
        }
        let summary = match recording.stored_summary().map_err(error::of)? {
            Some(summary) => summary,
            None => measure(&recording).map_err(error::of)?,
        };
        Ok(Run { recording, summary })
    }

    /// The variant's name.
    #[getter]
    fn variant(&self) -> &str {
        &self.recording.described().variant
    }

    /// The seed.
    #[getter]
    fn seed(&self) -> u64 {
        self.recording.described().seed
    }

    /// The scenario with all defaults, as TOML.
    #[getter]
    fn scenario(&self) -> &str {
        &self.recording.described().scenario_toml
    }

    /// The reason for an early end.
    #[getter]
    fn cut_short(&self) -> Option<String> {
        self.recording.unfinished()
    }

    /// The algorithms that an error stopped, each with its first error.
    #[getter]
    fn stopped(&self) -> Vec<String> {
        self.recording.described().stopped.clone()
    }

    /// The figures as `(name, unit, value, description)`.
    fn figures(&self) -> Vec<FigureRow> {
        figures_of(&self.summary)
            .into_iter()
            .map(|figure| (figure.name, figure.unit.symbol(), figure.value, figure.doc))
            .collect()
    }

    /// A table as Parquet.
    fn parquet<'py>(&self, py: Python<'py>, table: &str) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.recording.parquet(table).map_err(error::of)?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// The flows as `(number, name)`.
    fn flows(&self) -> Vec<(u32, String)> {
        let flows = self.recording.described().flows.iter();
        flows.map(|flow| (flow.id, flow.name.clone())).collect()
    }

    /// The report as HTML.
    fn report(&self, py: Python<'_>) -> PyResult<String> {
        py.detach(|| report_of(&[&self.recording]))
            .map(sluice_report::html)
            .map_err(error::of)
    }

    /// Write the recording to the folder `folder`.
    fn save(&self, folder: PathBuf) -> PyResult<()> {
        let saved = self.recording.save(&folder).map_err(error::of)?;
        saved.store_summary(&self.summary).map_err(error::of)
    }
}
