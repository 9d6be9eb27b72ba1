//! AQMs in Python: the loader of `py:FILE:CLASS`.
//!
//! Every queue has an instance of the class. The objects that its hooks get are made once per
//! queue and filled before each call. A hook that raises, or returns what is no verdict, stops the
//! AQM: its queue passes every packet from then on, `stopped` is recorded as a variable, and the
//! traceback is printed once.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::exceptions::PyKeyboardInterrupt;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

use crate::error::SluiceError;
use sluice_core::aqm::{self as core_aqm, Verdict};
use sluice_core::event::StateValue;
use sluice_core::param::{Kind, ParamDecl, ParamError, Ratio, Value, Values};
use sluice_core::registry::{Outside, Started};
use sluice_core::{Bytes, Cx, DropReason, Packet, Rate, Rng, Span, Time};
use sluice_loader::{Loaded, Loader, Source};

/// The packet in question.
#[pyclass]
#[derive(Default)]
pub struct PacketView {
    #[pyo3(get)]
    sojourn_ns: u64,
    #[pyo3(get)]
    size_bytes: u32,
    #[pyo3(get)]
    flow: u32,
    #[pyo3(get)]
    ecn: u8,
    #[pyo3(get)]
    ecn_capable: bool,
    #[pyo3(get)]
    segments: u16,
    #[pyo3(get)]
    dscp: u8,
}

/// The queue, without the packet in question.
#[pyclass]
#[derive(Default)]
pub struct BacklogView {
    #[pyo3(get)]
    packets: u64,
    #[pyo3(get)]
    bytes: u64,
    #[pyo3(get)]
    total_bytes: u64,
    #[pyo3(get)]
    limit_packets: u64,
    #[pyo3(get)]
    limit_bytes: u64,
}

/// The time, and the randomness of the run.
#[pyclass]
pub struct Context {
    #[pyo3(get)]
    now_ns: u64,
    rng: Rng,
}

#[pymethods]
impl Context {
    /// Return a number in [0, 1) that depends on the seed of the run alone.
    fn random(&mut self) -> f64 {
        self.rng.unit_f64()
    }

    /// Return 64 bits that depend on the seed of the run alone.
    fn random_bits(&mut self) -> u64 {
        self.rng.next_u64()
    }
}

/// Return how many AQMs were stopped by an error since the program started.
#[pyfunction]
pub fn stopped() -> u64 {
    STOPPED.load(Ordering::Relaxed) + sluice_wasm::stopped()
}

static STOPPED: AtomicU64 = AtomicU64::new(0);

/// The loader of `py:FILE:CLASS`.
pub struct PyLoader;

impl Loader for PyLoader {
    fn scheme(&self) -> &'static str {
        "py"
    }

    fn synopsis(&self) -> &'static str {
        "py:FILE:CLASS"
    }

    fn load(&self, source: &Source<'_>) -> Result<Loaded, String> {
        Python::attach(|py| {
            load(py, source).map_err(|error| match error.is_instance_of::<SluiceError>(py) {
                true => error.value(py).to_string(),
                false => in_full(py, &error),
            })
        })?
    }
}

fn load(py: Python<'_>, source: &Source<'_>) -> PyResult<Result<Loaded, String>> {
    let path = source.path.display().to_string();
    let name = format!(
        "py:{path}{}",
        source.item.map(|i| format!(":{i}")).unwrap_or_default()
    );
    let loaded = py.import("sluice.aqm")?.getattr("_load")?;
    let loaded = loaded.call1((path, source.bytes, source.item))?;
    type Parameters = Vec<(String, String, String)>;
    let (class, doc, parameters): (Py<PyType>, String, Parameters) = loaded.extract()?;
    Ok(declare(&parameters).map(|params| Loaded {
        doc,
        module: Box::new(Class {
            name,
            names: params.iter().map(|decl| decl.name).collect(),
            class,
        }),
        params,
    }))
}

fn declare(parameters: &[(String, String, String)]) -> Result<Vec<ParamDecl>, String> {
    let mut kinds = Vec::new();
    for (name, kind, default) in parameters {
        let all = |low, high| Some((low, high));
        let (kind, range) = match kind.as_str() {
            "span" => (
                Kind::Span,
                all(Value::Span(Span::ZERO), Value::Span(Span::MAX)),
            ),
            "rate" => {
                let most = Rate::from_bps(u64::MAX);
                (
                    Kind::Rate,
                    all(Value::Rate(Rate::from_bps(0)), Value::Rate(most)),
                )
            }
            "bytes" => {
                let (low, high) = (Bytes::new(0), Bytes::new(u64::MAX));
                (Kind::Bytes, all(Value::Bytes(low), Value::Bytes(high)))
            }
            "count" => (Kind::Count, all(Value::Count(0), Value::Count(u64::MAX))),
            "ratio" => {
                let high = Ratio::from_billionths(u64::MAX);
                (
                    Kind::Ratio,
                    all(Value::Ratio(Ratio::default()), Value::Ratio(high)),
                )
            }
            _ => (Kind::Flag, None),
        };
        let default = kind
            .parse(default)
            .map_err(|why| format!("the default `{default}` of `{name}`: {why}"))?;
        kinds.push((kind, default, range));
    }
    let params = parameters.iter().zip(kinds);
    let params = params.map(|((name, ..), (kind, default, range))| ParamDecl {
        name: name.clone().leak(),
        kind,
        default,
        range,
        doc: "a parameter of the class",
        source: "the class",
    });
    Ok(params.collect())
}

/// A class that was loaded.
struct Class {
    name: String,
    class: Py<PyType>,
    names: Vec<&'static str>,
}

impl Outside for Class {
    fn start(&self, values: &Values) -> Result<Box<dyn Started>, ParamError> {
        Python::attach(|py| {
            let of = || -> PyResult<Factory> {
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
                    values: set.unbind(),
                };
                // One instance, to find a class that cannot make any.
                factory.instance(py)?;
                Ok(factory)
            };
            match of() {
                Ok(factory) => Ok(Box::new(factory) as Box<dyn Started>),
                Err(error) => Err(ParamError::Contradiction(in_full(py, &error))),
            }
        })
    }
}

/// Makes instances with the values of a queue.
struct Factory {
    name: String,
    class: Py<PyType>,
    values: Py<PyDict>,
}

impl Factory {
    fn instance(&self, py: Python<'_>) -> PyResult<Hooks> {
        let instance = self.class.bind(py).call0()?;
        for (name, value) in self.values.bind(py) {
            instance.setattr(name.extract::<String>()?, value)?;
        }
        let base = py.import("sluice.aqm")?.getattr("Aqm")?;
        // A hook that the class does not define costs no call.
        let own = |name: &str| -> PyResult<Option<Py<PyAny>>> {
            let is_own = !self.class.bind(py).getattr(name)?.is(&base.getattr(name)?);
            is_own
                .then(|| instance.getattr(name).map(Bound::unbind))
                .transpose()
        };
        Ok(Hooks {
            on_enqueue: own("on_enqueue")?,
            on_dequeue: own("on_dequeue")?,
            on_empty: own("on_empty")?,
            next_timer: own("next_timer")?,
            on_timer: own("on_timer")?,
            state: own("state")?,
            packet: Py::new(py, PacketView::default())?,
            queue: Py::new(py, BacklogView::default())?,
            context: Py::new(
                py,
                Context {
                    now_ns: 0,
                    rng: Rng::from_seed(0),
                },
            )?,
        })
    }
}

impl Started for Factory {
    fn aqm(&self) -> Box<dyn core_aqm::Aqm> {
        let hooks = Python::attach(|py| self.instance(py).map_err(|error| in_full(py, &error)));
        let mut aqm = InQueue {
            name: self.name.clone(),
            is_stopped: Cell::new(false),
            hooks: None,
            timer: None,
            names: RefCell::default(),
        };
        match hooks {
            Ok(hooks) => aqm.hooks = Some(hooks),
            Err(why) => aqm.mark_stopped("", &why),
        }
        Box::new(aqm)
    }
}

/// The methods of an instance, and the objects that they get.
struct Hooks {
    on_enqueue: Option<Py<PyAny>>,
    on_dequeue: Option<Py<PyAny>>,
    on_empty: Option<Py<PyAny>>,
    next_timer: Option<Py<PyAny>>,
    on_timer: Option<Py<PyAny>>,
    state: Option<Py<PyAny>>,
    packet: Py<PacketView>,
    queue: Py<BacklogView>,
    context: Py<Context>,
}

impl Hooks {
    fn fill_queue(&self, py: Python<'_>, queue: &core_aqm::QueueView) {
        *self.queue.borrow_mut(py) = BacklogView {
            packets: queue.packets,
            bytes: queue.bytes,
            total_bytes: queue.total_bytes,
            limit_packets: queue.limit_packets,
            limit_bytes: queue.limit_bytes,
        };
    }

    fn fill_packet(&self, py: Python<'_>, packet: &Packet, now: Time) {
        *self.packet.borrow_mut(py) = PacketView {
            sojourn_ns: packet.sojourn(now).as_ns(),
            size_bytes: packet.len,
            flow: packet.flow,
            ecn: packet.ecn as u8,
            ecn_capable: packet.ecn.is_capable(),
            segments: packet.segments,
            dscp: packet.dscp,
        };
    }

    /// Calls `call` while the context has the time and the randomness of `cx`.
    fn within<R>(
        &self,
        py: Python<'_>,
        cx: &mut Cx<'_>,
        call: impl FnOnce() -> PyResult<R>,
    ) -> PyResult<R> {
        let swap = |rng: &mut Rng| {
            let mut context = self.context.borrow_mut(py);
            context.now_ns = cx.now.as_ns();
            std::mem::swap(&mut context.rng, rng);
        };
        swap(cx.rng);
        let outcome = call();
        swap(cx.rng);
        outcome
    }
}

/// The AQM of one queue.
struct InQueue {
    name: String,
    /// `None` if no instance could be made.
    hooks: Option<Hooks>,
    is_stopped: Cell<bool>,
    timer: Option<Time>,
    /// Names of the variables that were returned.
    names: RefCell<Vec<&'static str>>,
}

impl InQueue {
    /// Calls a hook, if the class has it, and asks for the next timer.
    fn call<R>(
        &mut self,
        cx: &mut Cx<'_>,
        hook: impl FnOnce(&Hooks) -> Option<&Py<PyAny>>,
        call: impl FnOnce(Python<'_>, &Hooks, &Py<PyAny>) -> PyResult<R>,
    ) -> Option<R> {
        if self.is_stopped.get() {
            return None;
        }
        let hooks = self.hooks.as_ref()?;
        let hook = hook(hooks)?;
        let outcome = Python::attach(|py| {
            let result = hooks.within(py, cx, || call(py, hooks, hook));
            let timer = match &hooks.next_timer {
                Some(next) if result.is_ok() => {
                    next.call0(py).and_then(|at| at.extract::<Option<u64>>(py))
                }
                _ => Ok(None),
            };
            match (result, timer) {
                (Ok(result), Ok(timer)) => Ok((result, timer)),
                (Err(error), _) | (_, Err(error)) => Err(why(py, &error)),
            }
        });
        match outcome {
            Ok((result, timer)) => {
                self.timer = timer.map(Time::from_ns);
                return Some(result);
            }
            Err(Some(why)) => self.stop(&why, cx),
            Err(None) => {}
        }
        None
    }

    #[cold]
    fn stop(&mut self, why: &str, cx: &mut Cx<'_>) {
        self.timer = None;
        cx.state("stopped", || StateValue::Flag(true));
        self.mark_stopped(
            &format!(" at {} ns, queue {}", cx.now.as_ns(), cx.queue),
            why,
        );
    }

    fn mark_stopped(&self, at: &str, why: &str) {
        self.is_stopped.set(true);
        STOPPED.fetch_add(1, Ordering::Relaxed);
        sluice_loader::report(&format!(
            "`{}` is stopped{at}, and its queue passes every packet from now on: {why}",
            self.name
        ));
    }

    fn verdict(
        &mut self,
        packet: &Packet,
        queue: &core_aqm::QueueView,
        cx: &mut Cx<'_>,
        hook: impl FnOnce(&Hooks) -> Option<&Py<PyAny>>,
    ) -> Verdict {
        let now = cx.now;
        let number = self.call(cx, hook, |py, hooks, hook| {
            hooks.fill_packet(py, packet, now);
            hooks.fill_queue(py, queue);
            let verdict = hook.call1(py, (&hooks.packet, &hooks.queue, &hooks.context))?;
            verdict.extract::<i64>(py)
        });
        let capable = packet.ecn.is_capable();
        let refused = match number {
            None | Some(0) => return Verdict::Pass,
            Some(1) if capable => return Verdict::Mark,
            Some(2) => return Verdict::Drop(DropReason::Congestion),
            Some(1) => "it returned MARK for a packet that is not ECN-capable".to_owned(),
            Some(other) => format!("it returned {other}, not PASS (0), MARK (1) or DROP (2)"),
        };
        self.stop(&refused, cx);
        Verdict::Pass
    }
}

impl core_aqm::Aqm for InQueue {
    fn on_enqueue(
        &mut self,
        packet: &Packet,
        queue: &core_aqm::QueueView,
        cx: &mut Cx<'_>,
    ) -> Verdict {
        self.verdict(packet, queue, cx, |hooks| hooks.on_enqueue.as_ref())
    }

    fn on_dequeue(
        &mut self,
        packet: &Packet,
        queue: &core_aqm::QueueView,
        cx: &mut Cx<'_>,
    ) -> Verdict {
        self.verdict(packet, queue, cx, |hooks| hooks.on_dequeue.as_ref())
    }

    fn on_empty(&mut self, cx: &mut Cx<'_>) {
        let hook = |py: Python<'_>, hooks: &Hooks, hook: &Py<PyAny>| {
            hook.call1(py, (&hooks.context,)).map(drop)
        };
        self.call(cx, |hooks| hooks.on_empty.as_ref(), hook);
    }

    fn next_timer(&self) -> Option<Time> {
        self.timer
    }

    fn on_timer(&mut self, queue: &core_aqm::QueueView, cx: &mut Cx<'_>) {
        self.timer = None;
        let hook = |py: Python<'_>, hooks: &Hooks, hook: &Py<PyAny>| {
            hooks.fill_queue(py, queue);
            hook.call1(py, (&hooks.queue, &hooks.context)).map(drop)
        };
        self.call(cx, |hooks| hooks.on_timer.as_ref(), hook);
        if self.timer.is_some_and(|at| at <= cx.now) {
            self.stop("`next_timer` is not later than the timer that expired", cx);
        }
    }

    fn state(&self, visit: &mut dyn FnMut(&'static str, StateValue)) {
        if self.is_stopped.get() {
            visit("stopped", StateValue::Flag(true));
            return;
        }
        let Some(state) = self.hooks.as_ref().and_then(|hooks| hooks.state.as_ref()) else {
            return;
        };
        let read = |py: Python<'_>| -> PyResult<Vec<(String, f64)>> {
            let returned = state.call0(py)?;
            let variables = returned.bind(py).call_method0(intern!(py, "items"))?;
            let listed = py
                .import("builtins")?
                .getattr("list")?
                .call1((variables,))?;
            listed.extract::<Vec<(String, f64)>>()
        };
        let variables = match Python::attach(|py| read(py).map_err(|error| why(py, &error))) {
            Ok(variables) => variables,
            Err(why) => {
                if let Some(why) = why {
                    self.mark_stopped("", &format!("`state`: {why}"));
                    visit("stopped", StateValue::Flag(true));
                }
                return;
            }
        };
        let mut names = self.names.borrow_mut();
        for (name, value) in variables {
            let name = match names.iter().find(|known| **known == name) {
                Some(known) => known,
                None => {
                    names.push(name.leak());
                    names[names.len() - 1]
                }
            };
            visit(name, StateValue::Ratio(value));
        }
    }
}

/// Returns why a hook failed; `None` for Ctrl-C, which is noticed again outside the hook.
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
fn in_full(py: Python<'_>, error: &PyErr) -> String {
    use pyo3::types::PyTracebackMethods;
    let traceback = error
        .traceback(py)
        .and_then(|traceback| traceback.format().ok());
    format!("{error}\n{}", traceback.unwrap_or_default().trim_end())
        .trim_end()
        .to_owned()
}
