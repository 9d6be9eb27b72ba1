//! Classes loaded from files, and their instances.

use std::cell::RefCell;

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTracebackMethods, PyType};

use super::views::{Context, within};
use crate::error;
use sluice_core::event::StateValue;
use sluice_core::param::{ParamError, Value, Values};
use sluice_core::{Cx, Span, Time};
use sluice_loader::{Failures, OnError, Told, in_hook, place};

/// A class loaded from a file.
pub(super) struct Class {
    /// Its name in messages: `py:FILE:CLASS`.
    pub name: &'static str,
    pub class: Py<PyType>,
    /// The name of the class of the package that it extends.
    pub base: &'static str,
    /// Names of its own parameters.
    pub names: Vec<&'static str>,
}

impl Class {
    /// Prepares the creation of instances with the values of a queue. Creates one, so that a class
    /// without a working constructor is found at once.
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
                    name: self.name,
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

/// An estimate of the bytes of an instance, its methods and the objects that they receive. What the
/// class itself allocates is not known.
pub(super) const INSTANCE_BYTES: usize = 4 << 10;

/// The time that a call for which an instance asks itself takes from its allowance. A call takes about
/// 1 us.
pub(super) const PER_CALL: Span = Span::from_us(4);

/// Creates instances with the values of a queue.
pub(super) struct Factory {
    /// The name of the class.
    pub name: &'static str,
    class: Py<PyType>,
    base: &'static str,
    values: Py<PyDict>,
    on_error: OnError,
}

impl Factory {
    /// Creates an instance. Its parameters are set before `__init__`, which may compute other values
    /// from them. `__init__` must not change them: the queue would not have the value that it shows.
    pub fn instance(&self, py: Python<'_>) -> PyResult<Instance> {
        let class = self.class.bind(py);
        let instance = class.call_method1(intern!(py, "__new__"), (class,))?;
        let values = self.values.bind(py);
        for (name, value) in values {
            instance.setattr(name.cast::<PyString>()?, value)?;
        }
        instance.call_method0(intern!(py, "__init__"))?;
        for (name, value) in values {
            let now = instance.getattr(name.cast::<PyString>()?)?;
            if !now.eq(&value)? {
                return Err(error::of(format!(
                    "`__init__` changes the parameter `{name}` from {value} to {now}: store the \
                     result under another name"
                )));
            }
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

    /// Creates the instance of a queue, with the methods that `hooks` looks up. `consequence`
    /// states the fate of the packets after the instance was stopped.
    pub fn begin<H>(
        &self,
        consequence: &'static str,
        hooks: impl FnOnce(Python<'_>, &Instance) -> PyResult<H>,
    ) -> Result<(H, Account), String> {
        let made = |py: Python<'_>| -> PyResult<_> {
            let instance = self.instance(py)?;
            Ok((hooks(py, &instance)?, instance.own(py, "state")?))
        };
        let made = in_hook(self.name, "__init__", || {
            Python::attach(|py| made(py).map_err(|error| in_full(py, &error)))
        });
        let (hooks, state) = made?;
        Ok((hooks, self.account(consequence, state)))
    }

    /// Returns the account of an instance. `state` is its method of that name, if it has one.
    pub fn account(&self, consequence: &'static str, state: Option<Method>) -> Account {
        let failures = Failures::new(self.name.to_owned(), consequence, self.on_error);
        Account {
            name: self.name,
            failures: RefCell::new(failures),
            state,
            names: RefCell::default(),
            told: Told::default(),
        }
    }
}

/// An instance whose methods can be looked up.
pub(super) struct Instance {
    class: Py<PyType>,
    base: Py<PyAny>,
    instance: Py<PyAny>,
}

/// A method of an instance.
pub(super) struct Method {
    pub name: &'static str,
    pub function: Py<PyAny>,
}

impl Instance {
    /// Returns a method unless it is that of the package's own class, which need not be called.
    pub fn own(&self, py: Python<'_>, name: &'static str) -> PyResult<Option<Method>> {
        let of_base = self.base.bind(py).getattr(name)?;
        if self.class.bind(py).getattr(name)?.is(&of_base) {
            return Ok(None);
        }
        let function = self.instance.bind(py).getattr(name)?.unbind();
        Ok(Some(Method { name, function }))
    }
}

/// The errors of the instance of a queue, and the variables that it reports.
pub(super) struct Account {
    /// The name of the class.
    pub name: &'static str,
    failures: RefCell<Failures>,
    /// The method `state`, if the class defines it.
    state: Option<Method>,
    /// Names of the variables that were returned.
    names: RefCell<Vec<&'static str>>,
    told: Told,
}

impl Account {
    /// Calls the method `hook` by `call`, unless the instance is stopped, while `context` has the time and
    /// the randomness of `cx`. Returns `None` if the call raises an exception or returns a wrong value.
    pub fn call<R>(
        &mut self,
        cx: &mut Cx<'_>,
        hook: &'static str,
        context: &Py<Context>,
        call: impl FnOnce(Python<'_>) -> PyResult<Result<R, String>>,
    ) -> Option<R> {
        if self.is_stopped() {
            return None;
        }
        let outcome = in_hook(self.name, hook, || {
            Python::attach(|py| {
                within(context.bind(py), cx, || call(py)).map_err(|error| why(py, &error))
            })
        });
        let result = match outcome {
            Ok(Ok(result)) => Some(result),
            Ok(Err(why)) | Err(Some(why)) => {
                self.fail(&why, cx);
                None
            }
            Err(None) => None,
        };
        if cx.wants_state() {
            self.tell(cx);
        }
        result
    }

    /// Reports the variables that have changed since the last report.
    #[cold]
    fn tell(&mut self, cx: &mut Cx<'_>) {
        let mut told = std::mem::take(&mut self.told);
        self.visit(&mut |name, value| told.tell(name, value, cx));
        self.told = told;
    }

    /// Counts an error, which may stop the instance.
    #[cold]
    pub fn fail(&mut self, why: &str, cx: &mut Cx<'_>) {
        let at = format!(" {}", place(cx));
        self.fail_at(&at, why, cx);
    }

    /// Counts an error during the creation of the instance, when its first packet arrives. Instances
    /// without packets, which are created to check a class, report nothing.
    #[cold]
    pub fn fail_at_start(&mut self, why: &str, cx: &mut Cx<'_>) {
        self.fail_at(" before its first packet", why, cx);
    }

    fn fail_at(&mut self, at: &str, why: &str, cx: &mut Cx<'_>) {
        let failures = self.failures.get_mut();
        failures.fail(at, why);
        for (name, value) in failures.variables() {
            self.told.note(name, value);
            cx.state(name, || value);
        }
    }

    /// Returns whether the instance is no longer called.
    pub fn is_stopped(&self) -> bool {
        self.failures.borrow().is_stopped()
    }

    /// Visits the variables. An exception in the method counts as an error of the algorithm.
    pub fn visit(&self, visit: &mut dyn FnMut(&'static str, StateValue)) {
        if let Some(hook) = &self.state
            && !self.is_stopped()
        {
            let read = || {
                Python::attach(|py| match read(py, hook) {
                    Ok(variables) => variables.map_err(Some),
                    Err(error) => Err(why(py, &error)),
                })
            };
            match in_hook(self.name, hook.name, read) {
                Ok(variables) => {
                    for (name, value) in variables {
                        visit(self.lasting(name), StateValue::Ratio(value));
                    }
                }
                Err(Some(why)) => self.failures.borrow_mut().fail(" in `state`", &why),
                Err(None) => {}
            }
        }
        let failures = self.failures.borrow();
        if failures.count() > 0 {
            for (name, value) in failures.variables() {
                visit(name, value);
            }
        }
    }

    /// Returns the name of a variable with a static lifetime, which recordings require.
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

/// Variables with their names, or why an object is none.
type Variables = Result<Vec<(String, f64)>, String>;

fn read(py: Python<'_>, hook: &Method) -> PyResult<Variables> {
    let returned = hook.function.call0(py)?;
    Ok(variables_of(returned.bind(py)))
}

fn variables_of(returned: &Bound<'_, PyAny>) -> Variables {
    let Ok(variables) = returned.cast::<PyDict>() else {
        let what = shown(returned);
        return Err(format!("it returned {what}, which is no dictionary"));
    };
    let mut read = Vec::new();
    for (name, value) in variables {
        let Ok(text) = name.extract::<String>() else {
            let what = shown(&name);
            return Err(format!("it returned the name {what}, which is no string"));
        };
        let Ok(number) = value.extract::<f64>() else {
            let what = shown(&value);
            return Err(format!(
                "it returned {what} for `{text}`, which is no number"
            ));
        };
        read.push((text, number));
    }
    Ok(read)
}

/// Reads the instant that the method `hook` returned.
pub(super) fn instant_of(hook: &str, returned: &Bound<'_, PyAny>) -> Result<Option<Time>, String> {
    match returned.extract::<Option<u64>>() {
        Ok(at) => Ok(at.map(Time::from_ns)),
        Err(_) => Err(format!(
            "`{hook}` returned {}, which is neither None nor an int of nanoseconds from 0 to 2^64 - 1",
            shown(returned)
        )),
    }
}

/// Formats an object for a message.
pub(super) fn shown(object: &Bound<'_, PyAny>) -> String {
    object
        .repr()
        .map_or_else(|_| "an object".to_owned(), |text| text.to_string())
}

/// Returns the reason why a hook failed, or `None` for Ctrl-C, which is handled outside the hook.
fn why(py: Python<'_>, error: &PyErr) -> Option<String> {
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
