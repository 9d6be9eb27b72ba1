//! Algorithms in Python: the loader of `py:FILE:CLASS`.
//!
//! A subclass of `sluice.Aqm` is an AQM, one of `sluice.Rank` ranks the packets of a push-in queue,
//! and one of `sluice.Discipline` holds packets itself. Every queue has an instance of the class.
//! If a hook raises an exception or returns a wrong value, this is an error of the algorithm. Its
//! parameter `on_error` determines the consequence (see [`sluice_loader::Failures`]).

mod aqm;
mod class;
mod discipline;
mod rank;
mod views;

use std::path::Path;
use std::time::Instant;

use pyo3::prelude::*;
use pyo3::types::PyType;
use send_wrapper::SendWrapper;

use crate::error::{self, SluiceError};
use class::Class;
pub(crate) use discipline::{HeldPacket, QueueContext};
use sluice_core::aqm::QueueView;
use sluice_core::param::{Kind, ParamDecl, Ratio, Value};
use sluice_core::{Bytes, Cx, DropCounter, Packet, Rate, Rng, Span, Time};
use sluice_loader::{Code, Ending, Loaded, Loader, Source};
pub(crate) use views::{BacklogView, Context, PacketFields, PacketView};

/// Return how many algorithms were stopped by an error since the program started.
#[pyfunction]
pub(crate) fn stopped() -> u64 {
    sluice_loader::stopped()
}

/// Return how many errors algorithms made since the program started.
#[pyfunction]
pub(crate) fn errors() -> u64 {
    sluice_loader::errors()
}

/// Return the nanoseconds of `decisions` decisions of the AQM `words` about a packet at the head,
/// made as the packet loop makes them: by a thread that attaches to the interpreter for each.
#[pyfunction]
pub(crate) fn time_decisions(py: Python<'_>, words: &str, decisions: u32) -> PyResult<u64> {
    let spec = sluice_loader::parse_queue(words, Path::new(""))
        .map_err(|error| error::of_spec(words, &error))?;
    let aqm = spec.algorithm.build_aqm(&spec.values);
    let mut aqm = aqm
        .ok_or_else(|| error::of(format!("`{words}` is no AQM of a single queue")))?
        .map_err(error::of)?;
    let mut packet = Packet::new(0, 1500);
    let queue = QueueView {
        packets: 50,
        bytes: 75_000,
        ..QueueView::default()
    };
    let mut took = 0;
    let work = SendWrapper::new(|| {
        Ending::new().within(|| {
            let (mut rng, mut dropped) = (Rng::from_seed(1), DropCounter::default());
            let mut cx = Cx::new(Time::ZERO, &mut rng, &mut dropped);
            let start = Instant::now();
            for number in 0..u64::from(decisions) {
                packet.arrival = Time::from_ns(1_200_000 * number);
                // The delay varies around 5 ms, as in a controlled queue.
                cx.now = packet.arrival + Span::from_ns(2_000_000 + 3_000 * (number % 2_000));
                std::hint::black_box(aqm.on_dequeue(&packet, &queue, &mut cx));
            }
            took = start.elapsed().as_nanos() as u64;
        });
    });
    // `detach` calls the closure on this thread, so the wrapper can be opened there.
    py.detach(move || (work.take())());
    Ok(took)
}

/// The loader of `py:FILE:CLASS`.
pub(crate) struct PyLoader;

impl Loader for PyLoader {
    fn scheme(&self) -> &'static str {
        "py"
    }

    fn synopsis(&self) -> &'static str {
        "py:FILE:CLASS"
    }

    /// A module imports others, at any time.
    fn opens_files(&self) -> bool {
        true
    }

    fn load(&self, source: &Source<'_>) -> Result<Loaded, String> {
        Python::attach(|py| {
            load(py, source).map_err(|error| match error.is_instance_of::<SluiceError>(py) {
                true => error.value(py).to_string(),
                false => class::in_full(py, &error),
            })
        })?
    }

    fn others(&self, source: &Source<'_>) -> Result<Vec<u8>, String> {
        Python::attach(|py| {
            let sources = py.import("sluice.sources")?;
            let path = source.path.display().to_string();
            sources
                .call_method1("fingerprint", (path, source.bytes))?
                .extract()
        })
        .map_err(|error: PyErr| error.to_string())
    }

    /// Gives the thread a state of the interpreter that lasts. Each call of a hook in a thread of
    /// Rust would otherwise create and destroy one, which costs more than the call.
    fn within(&self, work: &mut dyn FnMut()) {
        Python::attach(|py| {
            // `detach` calls the closure on this thread, so the wrapper can be opened there.
            let work = SendWrapper::new(work);
            py.detach(move || (work.take())());
        });
    }
}

/// A parameter as `sluice.aqm._load` returns it: name, kind, default, words of a choice, one line
/// of documentation.
type Parameter = (String, String, String, Vec<String>, String);

fn load(py: Python<'_>, source: &Source<'_>) -> PyResult<Result<Loaded, String>> {
    let path = source.path.display().to_string();
    let name = format!(
        "py:{path}{}",
        source.item.map(|i| format!(":{i}")).unwrap_or_default()
    );
    let loaded = py.import("sluice.aqm")?.getattr("_load")?;
    let loaded = loaded.call1((path, source.bytes, source.item))?;
    let (class, base, doc, parameters): (Py<PyType>, String, String, Vec<Parameter>) =
        loaded.extract()?;
    Ok(declare(&parameters).map(|params| {
        let name: &'static str = name.leak();
        let names = params.iter().map(|decl| decl.name).collect();
        let class = |base| Class {
            name,
            names,
            class,
            base,
        };
        let code = match base.as_str() {
            "Rank" => Code::Discipline(Box::new(rank::RankClass(class("Rank")))),
            "Discipline" => {
                Code::Discipline(Box::new(discipline::DisciplineClass(class("Discipline"))))
            }
            _ => Code::Aqm(Box::new(aqm::AqmClass(class("Aqm")))),
        };
        Loaded { doc, params, code }
    }))
}

fn declare(parameters: &[Parameter]) -> Result<Vec<ParamDecl>, String> {
    let mut decls = Vec::new();
    for (name, kind, default, words, doc) in parameters {
        let (kind, range) = kind_of(kind, words);
        let default = kind
            .parse(default)
            .map_err(|why| format!("the default `{default}` of `{name}`: {why}"))?;
        decls.push(ParamDecl {
            name: name.clone().leak(),
            kind,
            default,
            range,
            doc: match doc.as_str() {
                "" => "a parameter of the class",
                doc => doc.to_owned().leak(),
            },
            source: "the class",
        });
    }
    Ok(decls)
}

fn kind_of(kind: &str, words: &[String]) -> (Kind, Option<(Value, Value)>) {
    match kind {
        "span" => (
            Kind::Span,
            Some((Value::Span(Span::ZERO), Value::Span(Span::MAX))),
        ),
        "rate" => {
            // A rate of 0 would be no limit, the largest of all.
            let (low, high) = (Rate::from_bps(1), Rate::UNLIMITED);
            (Kind::Rate, Some((Value::Rate(low), Value::Rate(high))))
        }
        "bytes" => {
            let (low, high) = (Bytes::new(0), Bytes::new(u64::MAX));
            (Kind::Bytes, Some((Value::Bytes(low), Value::Bytes(high))))
        }
        "count" => (Kind::Count, Some((Value::Count(0), Value::Count(u64::MAX)))),
        "ratio" => {
            let high = Ratio::from_billionths(u64::MAX);
            let range = (Value::Ratio(Ratio::default()), Value::Ratio(high));
            (Kind::Ratio, Some(range))
        }
        "choice" => {
            let words = words.iter().map(|word| &*word.clone().leak());
            (Kind::Choice(words.collect::<Vec<&str>>().leak()), None)
        }
        _ => (Kind::Flag, None),
    }
}
