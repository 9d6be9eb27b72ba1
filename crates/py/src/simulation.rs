//! A simulation that Python drives.

use std::path::Path;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use sluice_core::event::StateValue;
use sluice_core::{Rate, Span, Time};
use sluice_lab::simulated::Stepped;
use sluice_loader::Ending;

use crate::error;
use crate::of_thread::OfThread;
use crate::run::{only, why_stopped};

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
    fn new(source: &str, text: &str) -> PyResult<Self> {
        let scenario = only(source, text)?;
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
            if let Some(why) = ending.why() {
                return Err(error::of(why));
            }
            if let Some(why) = ending.stopped().first() {
                return Err(error::of(why_stopped(why)));
            }
            if is_over || next == until {
                return Ok(is_over);
            }
        }
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
