//! Live routers: a router in this process, and requests to routers that listen on a socket.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::mpsc::Receiver;

use pyo3::prelude::*;

use sluice_core::{Rate, Span};
use sluice_ipfw::LogEntry;
use sluice_router::control::{self, AskError, Failure, How, Place, Remark, Reply, Request};
use sluice_router::process::{self, POOL, PoolSize, PortSpec, Settings, Spin, StartError, Status};

use crate::error;

/// A router in this process. Its loop is a thread of its own, which holds the interpreter only
/// while an AQM in Python decides.
#[pyclass(frozen)]
pub(crate) struct Router {
    running: Mutex<Option<process::Router>>,
    remarks: Vec<String>,
    /// The entries of `log` rules.
    log: Option<Mutex<Receiver<LogEntry>>>,
}

/// Options of a router, as on the command line.
#[derive(FromPyObject)]
pub(crate) struct Options {
    #[pyo3(item)]
    ports: Vec<String>,
    #[pyo3(item)]
    port: String,
    #[pyo3(item)]
    config: Option<PathBuf>,
    #[pyo3(item)]
    socket: PathBuf,
    #[pyo3(item)]
    netns: Option<PathBuf>,
    #[pyo3(item)]
    accept: bool,
    #[pyo3(item)]
    compat: bool,
    #[pyo3(item)]
    strict: bool,
    #[pyo3(item)]
    split_below: Option<String>,
    #[pyo3(item)]
    spin: String,
    #[pyo3(item)]
    slack: Option<String>,
    #[pyo3(item)]
    cpu: Option<usize>,
    #[pyo3(item)]
    cpu_latency: Option<String>,
    #[pyo3(item)]
    room: Option<u32>,
    #[pyo3(item)]
    seed: Option<u64>,
}

#[pymethods]
impl Router {
    /// Start a router.
    #[new]
    fn new(py: Python<'_>, options: Options) -> PyResult<Router> {
        let settings = settings(&options)?;
        let started = py.detach(|| -> Result<process::Router, StartError> {
            process::Router::start(&settings)
        });
        let router = started.map_err(error::of)?;
        let mut remarks: Vec<String> = router.remarks().iter().map(sentence).collect();
        remarks.extend_from_slice(router.port_remarks());
        Ok(Router {
            log: router.take_log().map(Mutex::new),
            running: Mutex::new(Some(router)),
            remarks,
        })
    }

    /// The warnings of the start.
    #[getter]
    fn remarks(&self) -> Vec<String> {
        self.remarks.clone()
    }

    /// The lines of `log` rules since the last call.
    fn log(&self) -> Vec<String> {
        let Some(log) = &self.log else {
            return Vec::new();
        };
        let log = log.lock().expect("nothing panics with the lock");
        let entries: Vec<String> = log.try_iter().map(|entry| entry.to_string()).collect();
        // The last entry of a rule has a second line about its limit.
        entries
            .iter()
            .flat_map(|text| text.lines().map(str::to_owned))
            .collect()
    }

    /// Whether the loop has nothing left to do, or was stopped.
    fn has_ended(&self) -> bool {
        let running = self.running.lock().expect("nothing panics with the lock");
        running.as_ref().is_none_or(process::Router::has_ended)
    }

    /// Stop the router; return its last status as JSON, or nothing if it was stopped before.
    fn stop(&self, py: Python<'_>) -> Option<String> {
        // Release the interpreter: the loop may need it once more before it ends.
        let router = py.detach(|| {
            self.running
                .lock()
                .expect("nothing panics with the lock")
                .take()
        })?;
        Some(json(&py.detach(|| router.stop())))
    }
}

impl Drop for Router {
    /// Stops the router, without the interpreter: the loop may need it once more before it ends.
    fn drop(&mut self) {
        let running = self.running.get_mut().ok().and_then(Option::take);
        if let Some(router) = running {
            Python::attach(|py| py.detach(|| drop(router)));
        }
    }
}

fn settings(options: &Options) -> PyResult<Settings> {
    let kind = match options.port.as_str() {
        process::registry::AUTO => None,
        word => match process::registry::attaching().find(|(kind, _)| kind.name == word) {
            Some((kind, _)) => Some(kind),
            None => {
                let known: Vec<&str> = process::registry::attaching()
                    .map(|(kind, _)| kind.name)
                    .collect();
                return Err(error::of(format!(
                    "there is no kind of port `{word}` for interfaces; one of: {}, {}",
                    process::registry::AUTO,
                    known.join(", ")
                )));
            }
        },
    };
    let ports: Result<Vec<PortSpec>, _> = options
        .ports
        .iter()
        .map(|port| port.parse::<PortSpec>())
        .collect();
    let ports = ports.map_err(error::of)?;
    let rate = |text: &String| {
        Rate::parse(text).map_err(|why| error::of(format!("`{text}` is not a rate: {why}")))
    };
    let span = |text: &String| {
        Span::parse(text).map_err(|why| error::of(format!("`{text}` is not a time: {why}")))
    };
    let spin = match options.spin.as_str() {
        "none" => Spin::None,
        "adaptive" => Spin::Adaptive,
        "always" => Spin::Always,
        other => {
            return Err(error::of(format!(
                "a loop cannot spin `{other}`; one of: none, adaptive, always"
            )));
        }
    };
    let slots = options.room.unwrap_or(POOL.slots);
    if !ROOM.contains(&slots) {
        return Err(error::of(format!(
            "a room of {slots} packets is not from {} to {}",
            ROOM.start(),
            ROOM.end()
        )));
    }
    Ok(Settings {
        hooked: None,
        commands: None,
        ports: ports
            .into_iter()
            .map(|port| match kind {
                Some(kind) => port.or_kind(kind),
                None => port,
            })
            .collect(),
        namespace: options.netns.clone(),
        config: options.config.clone(),
        socket: Some(options.socket.clone()),
        engine: sluice_ipfw::Settings {
            accepts_by_default: options.accept,
            compat: options.compat,
            ..sluice_ipfw::Settings::default()
        },
        seed: options.seed,
        is_strict: options.strict,
        measures_rtt: false,
        // The other threads belong to the program.
        is_confined: false,
        user: None,
        split_below: options
            .split_below
            .as_ref()
            .map(rate)
            .transpose()?
            .unwrap_or(sluice_core::packet::SPLIT_BELOW),
        spin,
        slack: options
            .slack
            .as_ref()
            .map(span)
            .transpose()?
            .unwrap_or(Span::ZERO),
        workers: 1,
        by_bridge: false,
        cores: options.cpu.into_iter().collect(),
        cpu_latency: options.cpu_latency.as_ref().map(span).transpose()?,
        pool: PoolSize {
            slots,
            large: (slots / 32).max(64),
        },
        ending: sluice_core::Stop::new(),
    })
}

/// Return the default path of a router's socket.
#[pyfunction]
pub(crate) fn default_socket() -> PathBuf {
    control::default_socket()
}

/// The answer to commands: output, warnings, the state as JSON, and the error with its exit status.
type Answer = (String, Vec<String>, Option<String>, Option<(String, u8)>);

/// Send commands to the router that listens on `socket`.
///
/// `how` is `command`, `batch`, `atomic` or `replace`.
#[pyfunction]
pub(crate) fn router_command(
    py: Python<'_>,
    socket: PathBuf,
    commands: &str,
    how: &str,
) -> PyResult<Answer> {
    let how = match how {
        "command" => How::Command,
        "batch" => How::Batch,
        "atomic" => How::Atomic,
        "replace" => How::Replace,
        other => {
            return Err(error::of(format!(
                "commands cannot be executed `{other}`; one of: command, batch, atomic, replace"
            )));
        }
    };
    let request = Request::Commands {
        commands: commands.to_owned(),
        how,
        files: control::files_of(commands, &mut |path| std::fs::read_to_string(path)),
    };
    let reply = py
        .detach(|| control::ask(&socket, &request))
        .map_err(|why| unanswered(py, &why))?;
    let Reply {
        stdout,
        warnings,
        state,
        error,
        ..
    } = reply;
    Ok((
        stdout,
        warnings.iter().map(sentence).collect(),
        state.map(|state| state.get().to_owned()),
        error.map(|failure| (failure.message, failure.exit_code)),
    ))
}

/// Ask the router that listens on `socket` for its status; return it as JSON.
#[pyfunction]
pub(crate) fn router_status(py: Python<'_>, socket: PathBuf) -> PyResult<String> {
    let reply = py
        .detach(|| control::ask(&socket, &Request::Status {}))
        .map_err(|why| unanswered(py, &why))?;
    match (reply.status, reply.error) {
        (Some(status), _) => Ok(status.get().to_owned()),
        (None, Some(failure)) => {
            let Failure {
                message, exit_code, ..
            } = failure;
            Err(error::with_status(py, message, exit_code))
        }
        (None, None) => Err(error::of("the router's answer has no status")),
    }
}

fn unanswered(py: Python<'_>, why: &AskError) -> PyErr {
    error::with_status(py, why, why.exit_code())
}

fn json(status: &Status) -> String {
    serde_json::to_string(status).expect("a status has a form in JSON")
}

pub(crate) fn sentence(remark: &Remark) -> String {
    match remark.place.line {
        0 => remark.text.clone(),
        _ => format!("{}{}", prefix(&remark.place), remark.text),
    }
}

fn prefix(place: &Place) -> String {
    let file = place
        .file
        .as_ref()
        .map_or_else(String::new, |file| format!("{file}:"));
    format!("{file}{}:{}: ", place.line, place.column)
}

/// The bounds of `sluice router --room`.
const ROOM: std::ops::RangeInclusive<u32> = 1024..=4_194_304;
