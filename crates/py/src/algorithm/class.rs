//! Classes of files, and their instances.

use std::cell::RefCell;

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTracebackMethods, PyType};

use sluice_core::event::StateValue;
use sluice_core::param::{ParamError, Value, Values};
use sluice_loader::{Failures, OnError};

/// A class that was loaded.
pub(super) struct Class {
    /// Its name in messages: `py:FILE:CLASS`.
    pub name: String,
    pub class: Py<PyType>,
    /// The name of the class of the package that it extends.
    pub base: &'static str,
    /// Names of its own parameters.
    pub names: Vec<&'static str>,
}

impl Class {
    /// Prepares instances with the values of a queue, and makes one, to find a class that cannot
    /// make any.
    pub fn factory(&self, values: &Values) -> Result<Factory, ParamError> {
        Python::attach(|py| {
            let made = || -> PyResult<Factory> {
                let set = PyDict::new(py);
                for name in &self.names {
                    match values.find(name).expect("every parameter has a value") {
                        Value::Span(span) => set.set_item(name, span.as_ns())?,
                        Value::Rate(rate) => set.set_item(name, rate.as_bps())?,
                        Value::Bytes(bytes) => set.set_item(name, bytes.as_u64())?,
                        Value::Count(count) => set.set_item(name, count)?,
                        Value::Ratio(ratio) => set.set_item(name, ratio.as_f64())?,
                        Value::Flag(is_on) => set.set_item(name, is_on)?,
                        Value::Choice(word) => set.set_item(name, word)?,
                    }
                }
                let factory = Factory {
                    name: self.name.clone(),
                    class: self.class.clone_ref(py),
                    base: self.base,
                    values: set.unbind(),
                    on_error: OnError::of(values),
                };
                factory.instance(py)?;
                Ok(factory)
            };
            made().map_err(|error| ParamError::Contradiction(in_full(py, &error)))
        })
    }
}

/// Makes instances with the values of a queue.
pub(super) struct Factory {
    name: String,
    class: Py<PyType>,
    base: &'static str,
    values: Py<PyDict>,
    on_error: OnError,
}

impl Factory {
    /// Makes an instance with its parameters set.
    pub fn instance(&self, py: Python<'_>) -> PyResult<Instance> {
        let instance = self.class.bind(py).call0()?;
        for (name, value) in self.values.bind(py) {
            instance.setattr(name.extract::<String>()?, value)?;
        }
        Ok(Instance {
            class: self.class.clone_ref(py),
            base: py
                .import(intern!(py, "sluice.aqm"))?
                .getattr(self.base)?
                .unbind(),
            instance: instance.unbind(),
        })
    }

    /// Returns the account of the errors of an instance.
    pub fn failures(&self, consequence: &'static str) -> Failures {
        Failures::new(self.name.clone(), consequence, self.on_error)
    }
}

/// An instance whose methods are looked up.
pub(super) struct Instance {
    class: Py<PyType>,
    base: Py<PyAny>,
    instance: Py<PyAny>,
}

impl Instance {
    /// Returns a method that the class defines itself. Another one costs no call.
    pub fn own(&self, py: Python<'_>, name: &str) -> PyResult<Option<Py<PyAny>>> {
        let of_base = self.base.bind(py).getattr(name)?;
        let is_own = !self.class.bind(py).getattr(name)?.is(&of_base);
        is_own
            .then(|| self.instance.bind(py).getattr(name).map(Bound::unbind))
            .transpose()
    }
}

/// The variables that an instance reports, and its errors.
pub(super) struct State {
    /// The method `state`, if the class defines it.
    hook: Option<Py<PyAny>>,
    /// Names of the variables that were returned.
    names: RefCell<Vec<&'static str>>,
}

impl State {
    pub fn new(hook: Option<Py<PyAny>>) -> State {
        State {
            hook,
            names: RefCell::default(),
        }
    }

    /// Visits the variables. An error in the method is one of the algorithm.
    pub fn visit(
        &self,
        failures: &RefCell<Failures>,
        visit: &mut dyn FnMut(&'static str, StateValue),
    ) {
        if let Some(hook) = &self.hook
            && !failures.borrow().is_stopped()
        {
            match Python::attach(|py| read(py, hook).map_err(|error| why(py, &error))) {
                Ok(variables) => {
                    for (name, value) in variables {
                        visit(self.lasting(name), StateValue::Ratio(value));
                    }
                }
                Err(Some(why)) => failures.borrow_mut().fail(" in `state`", &why),
                Err(None) => {}
            }
        }
        let failures = failures.borrow();
        if failures.count() > 0 {
            visit("errors", StateValue::Count(failures.count()));
            visit("stopped", StateValue::Flag(failures.is_stopped()));
        }
    }

    /// Returns the name of a variable as one that lasts as long as recordings.
    fn lasting(&self, name: String) -> &'static str {
        let mut names = self.names.borrow_mut();
        match names.iter().find(|known| **known == name) {
            Some(known) => known,
            None => {
                names.push(name.leak());
                names[names.len() - 1]
            }
        }
    }
}

fn read(py: Python<'_>, hook: &Py<PyAny>) -> PyResult<Vec<(String, f64)>> {
    let returned = hook.call0(py)?;
    let variables: Bound<'_, PyDict> = returned.bind(py).cast::<PyDict>()?.clone();
    variables
        .iter()
        .map(|(name, value)| Ok((name.extract()?, value.extract()?)))
        .collect()
}

/// Returns why a hook failed; `None` for Ctrl-C, which is noticed again outside the hook.
pub(super) fn why(py: Python<'_>, error: &PyErr) -> Option<String> {
    if error.is_instance_of::<PyKeyboardInterrupt>(py) {
        let interrupt = py
            .import("_thread")
            .and_then(|t| t.call_method0("interrupt_main"));
        return interrupt.err().map(|error| in_full(py, &error));
    }
    Some(in_full(py, error))
}

/// Returns an exception with its traceback.
pub(super) fn in_full(py: Python<'_>, error: &PyErr) -> String {
    let traceback = error
        .traceback(py)
        .and_then(|traceback| traceback.format().ok());
    format!("{error}\n{}", traceback.unwrap_or_default().trim_end())
        .trim_end()
        .to_owned()
}
