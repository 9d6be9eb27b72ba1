//! A simulation that Python drives.

use std::path::Path;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use sluice_core::event::StateValue;
use sluice_core::{Rate, Span, Time};
use sluice_ipfw::Output;
use sluice_lab::simulated::Stepped;
use sluice_loader::Ending;

use crate::error;
use crate::of_thread::OfThread;
use crate::router::sentence;
use crate::run::{Variant, why_stopped};

/// A simulation that advances step by step. Only the thread that created it can use it.
#[pyclass]
pub(crate) struct Simulation(OfThread<Inner>);

struct Inner {
    stepped: Stepped,
    ending: Ending,
}

#[pymethods]
impl Simulation {
    #[new]
    fn new(variant: &Bound<'_, Variant>) -> PyResult<Self> {
        let scenario = variant.get().scenario().clone();
        let ending = Ending::after(scenario.lead);
        let stepped = Stepped::new(scenario).map_err(error::of)?;
        let inner = Inner { stepped, ending };
        Ok(Simulation(OfThread::new("Simulation", inner)))
    }

    /// The virtual time in nanoseconds.
    #[getter]
    fn now_ns(&self) -> PyResult<u64> {
        Ok(self.0.get()?.stepped.now().as_ns())
    }

    /// The end of the scenario in nanoseconds.
    #[getter]
    fn end_ns(&self) -> PyResult<u64> {
        Ok(self.0.get()?.stepped.end().as_ns())
    }

    /// Advance to `until_ns`, or to the end; return whether the end is reached.
    fn step(&mut self, py: Python<'_>, until_ns: u64) -> PyResult<bool> {
        let Inner { stepped, ending } = self.0.get_mut()?;
        let until = Time::from_ns(until_ns);
        loop {
            // Advance in short stretches, and check for Ctrl-C between them.
            py.check_signals()?;
            let next = (stepped.now() + STRETCH).min(until);
            let is_over = ending.within(|| stepped.step(next)).map_err(error::of)?;
            check_algorithms(ending)?;
            if is_over || next == until {
                return Ok(is_over);
            }
        }
    }

    /// Whether the scenario has rules in place of pipes.
    #[getter]
    fn has_rules(&self) -> PyResult<bool> {
        Ok(self.0.get()?.stepped.has_rules())
    }

    /// Execute commands of dummynet's language; return their output, their warnings, and the state as
    /// JSON if a command asked for it.
    fn command(&mut self, commands: &str) -> PyResult<Answer> {
        let Inner { stepped, ending } = self.0.get_mut()?;
        let executed = ending.within(|| stepped.command(commands));
        let Output {
            stdout,
            warnings,
            snapshot,
        } = executed.map_err(error::of)?;
        check_algorithms(ending)?;
        let warnings = warnings.iter().map(|warning| sentence(&warning.into()));
        let state = snapshot
            .map(|state| serde_json::to_string(&state).expect("a state has a form in JSON"));
        Ok((stdout, warnings.collect(), state))
    }

    /// The current rate of `pipe` in bits per second.
    fn rate_bps(&mut self, pipe: &str) -> PyResult<u64> {
        let stepped = &mut self.0.get_mut()?.stepped;
        let pipe = stepped.pipe(pipe).map_err(error::of)?;
        Ok(stepped.rate(pipe).as_bps())
    }

    /// Set the rate of `pipe`.
    fn set_rate(&mut self, pipe: &str, rate: &str) -> PyResult<()> {
        let stepped = &mut self.0.get_mut()?.stepped;
        let rate = Rate::parse(rate)
            .map_err(|error| error::of(format!("`{rate}` is not a rate: {error}")))?;
        let pipe = stepped.pipe(pipe).map_err(error::of)?;
        stepped.set_rate(pipe, rate).map_err(error::of)
    }

    /// Replace the queue of `pipe`.
    fn set_queue(&mut self, pipe: &str, spec: &str) -> PyResult<()> {
        let stepped = &mut self.0.get_mut()?.stepped;
        let pipe = stepped.pipe(pipe).map_err(error::of)?;
        let queue = sluice_loader::parse_queue(spec, Path::new(""))
            .map_err(|error| error::of_spec(spec, &error))?;
        stepped.set_queue(pipe, &queue).map_err(error::of)
    }

    /// The packets and bytes in the queue of `pipe`.
    fn backlog(&self, pipe: &str) -> PyResult<(u64, u64)> {
        let stepped = &self.0.get()?.stepped;
        let pipe = stepped.pipe(pipe).map_err(error::of)?;
        let backlog = stepped.backlog(pipe);
        Ok((backlog.packets, backlog.bytes))
    }

    /// The variables of the queue of `pipe`; those of queue N of a discipline are named `N.NAME`.
    fn state<'py>(&self, py: Python<'py>, pipe: &str) -> PyResult<Bound<'py, PyDict>> {
        let stepped = &self.0.get()?.stepped;
        let pipe = stepped.pipe(pipe).map_err(error::of)?;
        let mut all = Vec::new();
        let mut add = |queue: u32, name: &'static str, value: StateValue| {
            let name = match queue {
                0 => name.to_owned(),
                number => format!("{number}.{name}"),
            };
            all.push((name, value.as_f64()));
        };
        stepped.state(pipe, &mut add);
        let state = PyDict::new(py);
        for (name, value) in all {
            state.set_item(name, value)?;
        }
        Ok(state)
    }

    /// The counts of the queue of `pipe` since the start.
    fn passed<'py>(&self, py: Python<'py>, pipe: &str) -> PyResult<Bound<'py, PyDict>> {
        let stepped = &self.0.get()?.stepped;
        let pipe = stepped.pipe(pipe).map_err(error::of)?;
        let passed = stepped.passed(pipe);
        let counters = PyDict::new(py);
        counters.set_item("sent_packets", passed.sent_packets)?;
        counters.set_item("sent_bytes", passed.sent_bytes)?;
        counters.set_item("dropped_packets", passed.dropped_packets)?;
        counters.set_item("marked_packets", passed.marked_packets)?;
        counters.set_item("sojourn_ns", passed.sojourn.as_ns())?;
        Ok(counters)
    }

    /// The payload bytes of each flow that have arrived, by its name.
    fn received(&self) -> PyResult<Vec<(String, u64)>> {
        let stepped = &self.0.get()?.stepped;
        Ok(stepped.received())
    }
}

/// The answer to commands: output, warnings, and the state as JSON.
type Answer = (String, Vec<String>, Option<String>);

/// Returns the error of an algorithm that has ended the simulation, or was stopped.
fn check_algorithms(ending: &Ending) -> PyResult<()> {
    if let Some(why) = ending.why() {
        return Err(error::of(why));
    }
    match ending.stopped().first() {
        Some(why) => Err(error::of(why_stopped(why))),
        None => Ok(()),
    }
}

/// Read a length of time, such as `2s`, as nanoseconds.
#[pyfunction]
pub(crate) fn parse_span(text: &str) -> PyResult<u64> {
    match Span::parse(text) {
        Ok(span) => Ok(span.as_ns()),
        Err(error) => Err(error::of(format!("`{text}` is not a time: {error}"))),
    }
}

/// Virtual time between two checks for signals.
const STRETCH: Span = Span::from_ms(200);
