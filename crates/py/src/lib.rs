//! The Python module `sluice._sluice`: the registry and its queues as classes, runs and routers in
//! this process, and the command.
//!
//! The Python side (`python/sluice`) re-exports these with type stubs. Errors become `SluiceError`,
//! which is a `ValueError`, with the same sentence as on the command line.

mod algorithm;
mod command;
mod error;
mod of_thread;
mod router;
mod run;
mod simulation;

use std::path::Path;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use error::SluiceError;
use of_thread::OfThread;
use sluice_core::registry;
use sluice_core::{Cx, Discipline, DropReason, Ecn, Packet, Rng, Sink, Time};
use sluice_loader::Ending;

/// Return every algorithm with its parameters, as a list of dictionaries.
#[pyfunction]
fn algorithms(py: Python<'_>) -> PyResult<Bound<'_, PyList>> {
    let all = PyList::empty(py);
    for algorithm in registry::algorithms() {
        let entry = PyDict::new(py);
        entry.set_item("name", algorithm.name)?;
        entry.set_item("form", algorithm.form.name())?;
        entry.set_item("doc", algorithm.doc)?;
        let params = PyList::empty(py);
        for decl in algorithm.params() {
            let param = PyDict::new(py);
            param.set_item("name", decl.name)?;
            param.set_item("unit", decl.kind.unit())?;
            param.set_item("default", algorithm.default_of(decl).to_string())?;
            let range = decl
                .range
                .map(|(low, high)| (low.to_string(), high.to_string()));
            param.set_item("range", range)?;
            param.set_item("doc", decl.doc)?;
            param.set_item("source", algorithm.source_of(decl))?;
            params.append(param)?;
        }
        entry.set_item("params", params)?;
        all.append(entry)?;
    }
    Ok(all)
}

/// A queue in virtual time. Only the thread that created it can use it.
#[pyclass]
struct Queue(OfThread<Inner>);

struct Inner {
    discipline: Box<dyn Discipline>,
    rng: Rng,
    dropped: Dropped,
    now: Time,
    next_slot: u32,
    ending: Ending,
}

#[derive(Default)]
struct Dropped(Vec<(u32, u64, &'static str)>);

impl Sink for Dropped {
    fn discard(&mut self, now: Time, packet: Packet, reason: DropReason) {
        self.0.push((packet.slot, now.as_ns(), reason.name()));
    }

    fn packet_number(&self, packet: &Packet) -> Option<u64> {
        Some(packet.slot.into())
    }
}

#[pymethods]
impl Queue {
    #[new]
    #[pyo3(signature = (spec, seed = 1))]
    fn new(spec: &str, seed: u64) -> PyResult<Self> {
        let discipline = sluice_loader::parse_queue(spec, Path::new(""))
            .map_err(|error| error::of_spec(spec, &error))?
            .build()
            .map_err(|error| SluiceError::new_err(error.to_string()))?;
        let inner = Inner {
            discipline,
            rng: Rng::from_seed(seed),
            dropped: Dropped::default(),
            now: Time::ZERO,
            next_slot: 0,
            ending: Ending::new(),
        };
        Ok(Queue(OfThread::new("Queue", inner)))
    }

    /// Enqueue a packet and return its number.
    #[pyo3(signature = (time_ns, size_bytes, flow = 0, ecn = 0, *, dscp = 0, class_ = 0, tag = 0))]
    #[expect(clippy::too_many_arguments, reason = "keywords, as Python has them")]
    fn enqueue(
        &mut self,
        time_ns: u64,
        size_bytes: u32,
        flow: u32,
        ecn: u8,
        dscp: u8,
        class_: u32,
        tag: u32,
    ) -> PyResult<u32> {
        if ecn > 3 {
            return Err(SluiceError::new_err(format!("ecn {ecn} is outside 0 to 3")));
        }
        if dscp > 63 {
            return Err(SluiceError::new_err(format!(
                "dscp {dscp} is outside 0 to 63"
            )));
        }
        if size_bytes == 0 {
            return Err(SluiceError::new_err("size_bytes 0 is below 1"));
        }
        let queue = self.0.get_mut()?;
        queue.advance(time_ns)?;
        let mut packet = Packet::new(queue.next_slot, size_bytes);
        packet.arrival = queue.now;
        packet.flow = flow;
        packet.ecn = Ecn::from_bits(ecn);
        (packet.dscp, packet.class, packet.tag) = (dscp, class_, tag);
        queue.next_slot += 1;
        let mut cx = Cx::new(queue.now, &mut queue.rng, &mut queue.dropped);
        queue
            .ending
            .within(|| queue.discipline.enqueue(packet, &mut cx));
        queue.check()?;
        Ok(queue.next_slot - 1)
    }

    /// Return the next packet at `time_ns` as `(number, sojourn_ns, ecn)`, or `None`.
    fn dequeue(&mut self, time_ns: u64) -> PyResult<Option<(u32, u64, u8)>> {
        let queue = self.0.get_mut()?;
        queue.advance(time_ns)?;
        let mut cx = Cx::new(queue.now, &mut queue.rng, &mut queue.dropped);
        let packet = queue.ending.within(|| queue.discipline.dequeue(&mut cx));
        queue.check()?;
        Ok(packet.map(|p| (p.slot, p.sojourn(queue.now).as_ns(), p.ecn as u8)))
    }

    /// Return the drops since the last call, as `(number, time_ns, reason)`.
    fn take_drops(&mut self) -> PyResult<Vec<(u32, u64, &'static str)>> {
        Ok(std::mem::take(&mut self.0.get_mut()?.dropped.0))
    }

    /// The variables of the queue; those of flow queue N are named `N.NAME`.
    fn variables(&self) -> PyResult<Vec<(String, f64)>> {
        let mut all = Vec::new();
        self.0.get()?.discipline.state(&mut |queue, name, value| {
            let name = match queue {
                0 => name.to_owned(),
                number => format!("{number}.{name}"),
            };
            all.push((name, value.as_f64()));
        });
        Ok(all)
    }

    /// The packets and bytes in the queue.
    #[getter]
    fn backlog(&self) -> PyResult<(u64, u64)> {
        let backlog = self.0.get()?.discipline.backlog();
        Ok((backlog.packets, backlog.bytes))
    }
}

impl Inner {
    /// Raises the error that ended the run, if there is one.
    fn check(&self) -> PyResult<()> {
        match self.ending.why() {
            Some(why) => Err(error::of(why)),
            None => Ok(()),
        }
    }

    /// Advances to `time_ns` and runs the timers that are due by then.
    fn advance(&mut self, time_ns: u64) -> PyResult<()> {
        let now = Time::from_ns(time_ns);
        if now < self.now {
            return Err(SluiceError::new_err(format!(
                "time_ns {time_ns} is before {}, the time of the last call",
                self.now.as_ns()
            )));
        }
        while let Some(at) = self.discipline.next_timer().filter(|at| *at <= now) {
            let mut cx = Cx::new(at.max(self.now), &mut self.rng, &mut self.dropped);
            self.ending.within(|| self.discipline.on_timer(&mut cx));
        }
        self.now = now;
        self.check()
    }
}

#[pymodule]
fn _sluice(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    sluice_loader::register(&[&sluice_wasm::WasmLoader, &algorithm::PyLoader]);
    let errors = module.py().get_type::<SluiceError>();
    errors.setattr("exit_code", module.py().None())?;
    module.add("SluiceError", errors)?;
    module.add_class::<Queue>()?;
    module.add_class::<algorithm::PacketFields>()?;
    module.add_class::<algorithm::PacketView>()?;
    module.add_class::<algorithm::BacklogView>()?;
    module.add_class::<algorithm::Context>()?;
    module.add_class::<algorithm::HeldPacket>()?;
    module.add_class::<algorithm::QueueContext>()?;
    module.add_class::<run::Run>()?;
    module.add_class::<run::Variant>()?;
    module.add_class::<simulation::Simulation>()?;
    module.add_class::<router::Router>()?;
    module.add_function(wrap_pyfunction!(router::default_socket, module)?)?;
    module.add_function(wrap_pyfunction!(router::router_command, module)?)?;
    module.add_function(wrap_pyfunction!(router::router_status, module)?)?;
    module.add_function(wrap_pyfunction!(command::command, module)?)?;
    module.add_function(wrap_pyfunction!(simulation::parse_span, module)?)?;
    module.add_function(wrap_pyfunction!(run::run_variant, module)?)?;
    module.add_function(wrap_pyfunction!(run::variants, module)?)?;
    module.add_function(wrap_pyfunction!(run::program, module)?)?;
    module.add_function(wrap_pyfunction!(algorithm::stopped, module)?)?;
    module.add_function(wrap_pyfunction!(algorithm::errors, module)?)?;
    module.add_function(wrap_pyfunction!(algorithm::time_decisions, module)?)?;
    module.add_function(wrap_pyfunction!(algorithms, module)?)
}
