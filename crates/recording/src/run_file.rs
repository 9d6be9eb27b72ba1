//! `run.json`: the scenario, the program, the machine, and the end of a run.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::checksum::Checksum;
use super::files::check_length;
use super::identity::program;
use super::keep::Keep;
use super::program::ProgramEntry;
use crate::part::Part;
use sluice_scenario::{Backend, Coordinate, Scenario, Variant};

/// The name of the file in a run's folder.
pub const RUN_JSON: &str = "run.json";

/// The version of the folder's layout.
pub(crate) const FORMAT: u32 = 1;

/// The status of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "lowercase")]
pub enum Status {
    /// This process is recording the run.
    Running(Process),
    /// The run is complete.
    Complete,
    /// The run ended early; the recorded data is kept.
    Partial {
        /// The reason.
        reason: String,
    },
}

/// A process. Its start time distinguishes it from a later process with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Number.
    pub pid: u32,
    /// Start, in clock ticks since the machine's start.
    pub start_ticks: u64,
}

impl Process {
    /// Returns the current process.
    pub fn this() -> Process {
        // A child has another number.
        static KNOWN: Mutex<Option<Process>> = Mutex::new(None);
        let pid = std::process::id();
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(process) = known.filter(|process| process.pid == pid) {
            return process;
        }
        let start_ticks = start_ticks(pid).unwrap_or(0);
        *known.insert(Process { pid, start_ticks })
    }

    /// Returns whether the process still runs.
    pub fn is_alive(&self) -> bool {
        start_ticks(self.pid).is_some_and(|ticks| ticks == self.start_ticks)
    }
}

/// Field 22 of /proc/PID/stat (proc_pid_stat(5)). The command in field 2 may contain anything but
/// ends with the last parenthesis.
fn start_ticks(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_whitespace().nth(22 - 3)?.parse().ok()
}

/// The machine and program of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Environment {
    /// The backend.
    pub backend: Backend,
    /// The program and its version.
    pub program: String,
    /// The identity of the program's file ([`program()`]), because another program may give other
    /// results.
    #[serde(default, alias = "program_sha256")]
    pub program_id: Option<String>,
    /// The name of the machine.
    pub host: String,
    /// The system and its version.
    pub kernel: String,
    /// The start, in RFC 3339 format.
    pub started_at: String,
}

impl Environment {
    /// Describes this machine, with the names that the kernel gives, and the running program.
    pub fn here(backend: Backend, started_at: String) -> Environment {
        Environment::of_program(backend, started_at, program().map(str::to_owned))
    }

    /// Like [`Environment::here`], for a program that is a library of another one: its file has the
    /// identity `program_id`.
    pub fn of_program(
        backend: Backend,
        started_at: String,
        program_id: Option<String>,
    ) -> Environment {
        let system = rustix::system::uname();
        Environment {
            backend,
            program: concat!("sluice ", env!("CARGO_PKG_VERSION")).to_owned(),
            program_id,
            host: word(system.nodename()),
            kernel: format!("{} {}", word(system.sysname()), word(system.release())),
            started_at,
        }
    }

    /// Returns whether the run belongs to this machine and container, as their name says.
    pub(crate) fn is_of_this_machine(&self) -> bool {
        self.host == word(rustix::system::uname().nodename())
    }
}

/// A name that the kernel gives.
fn word(name: &CStr) -> String {
    name.to_string_lossy().into_owned()
}

/// A single flow of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlowEntry {
    /// Number in the tables.
    pub id: u32,
    /// Name.
    pub name: String,
    /// The name that it shares with the other flows of a `count`, or its own.
    pub group: String,
    /// Type.
    #[serde(rename = "type")]
    pub type_name: String,
    /// `up` or `down`.
    pub direction: String,
    /// The flow whose number its packets have in the tables, if it is not its own: that of the other
    /// direction of the same connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets_of: Option<u32>,
}

/// The content of `run.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunFile {
    /// The version of the folder's layout.
    pub format: u32,
    /// The scenario's title.
    pub title: String,
    /// The variant.
    pub variant: String,
    /// The variant's place on the axes of the scenario's matrix.
    #[serde(default)]
    pub coordinates: Vec<Coordinate>,
    /// Status.
    #[serde(flatten)]
    pub status: Status,
    /// The end in nanoseconds of the run; the planned end during the run.
    pub end_ns: u64,
    /// The seed of all random numbers.
    pub seed: u64,
    /// The machine and the program.
    pub environment: Environment,
    /// Every single flow.
    pub flows: Vec<FlowEntry>,
    /// The names of both ends of the path: packets of `up` go from the first to the second.
    #[serde(default = "hosts")]
    pub ends: [String; 2],
    /// Packets lost outside the queues, by cause.
    pub lost: BTreeMap<String, u64>,
    /// The algorithms from files that an error stopped, in words. Without them, their queues passed
    /// every packet: the figures are not theirs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stopped: Vec<String>,
    /// How much is recorded.
    #[serde(default, skip_serializing_if = "Keep::is_everything")]
    pub recorded: Keep,
    /// The complete tables.
    #[serde(default)]
    pub tables: BTreeMap<String, Checksum>,
    /// The programs that ran as flows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<ProgramEntry>,
    /// The algorithms from files, by the words that name them: the SHA-256 of what was read. Older
    /// programs wrote none.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub algorithms: BTreeMap<String, String>,
    /// The folder that the paths of these files are relative to, for `sluice replay`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder_of_algorithms: Option<PathBuf>,
    /// The scenario with all defaults.
    pub scenario: Scenario,
    /// The same as TOML, for another run.
    pub scenario_toml: String,
}

/// The ends of the path of a recorded program (`sluice exec`, `attach` and `proxy`).
pub const PROGRAM_ENDS: [&str; 2] = ["program", "outside"];

impl RunFile {
    /// Returns whether a program was recorded. Its flows are the connections that it opened, which
    /// are known at its end, and not those of a scenario.
    pub fn is_of_program(&self) -> bool {
        self.ends == PROGRAM_ENDS
    }

    pub(crate) fn new(variant: &Variant, environment: &Environment) -> RunFile {
        let scenario = &variant.scenario;
        RunFile {
            format: FORMAT,
            title: scenario.title.clone(),
            variant: variant.name.clone(),
            coordinates: variant.coordinates.clone(),
            status: Status::Running(Process::this()),
            end_ns: scenario.duration.as_ns(),
            seed: scenario.seed,
            environment: environment.clone(),
            flows: flows_of(scenario),
            ends: hosts(),
            lost: BTreeMap::new(),
            stopped: Vec::new(),
            recorded: Keep::Packets,
            tables: BTreeMap::new(),
            programs: Vec::new(),
            algorithms: algorithms_of(scenario),
            folder_of_algorithms: scenario.folder_of_algorithms(),
            scenario: scenario.clone(),
            scenario_toml: scenario.to_toml(),
        }
    }

    /// Returns the status of a run whose process does not run here; `None` for every other run. The
    /// number of a process in another container or machine means nothing here, so that only a lock on
    /// the folder shows whether it is still recording.
    pub(crate) fn abandoned(&self) -> Option<Status> {
        let process = match &self.status {
            Status::Running(process) if !process.is_alive() => process,
            _ => return None,
        };
        let pid = process.pid;
        let reason = match self.environment.is_of_this_machine() {
            true => format!("process {pid} was killed before it closed its tables"),
            false => {
                let host = &self.environment.host;
                format!("process {pid} on `{host}` has not closed its tables")
            }
        };
        Some(Status::Partial { reason })
    }

    /// Replaces the scenario.
    pub(crate) fn describe(&mut self, scenario: &Scenario) {
        self.title.clone_from(&scenario.title);
        self.seed = scenario.seed;
        self.flows = flows_of(scenario);
        // The files of algorithms may have changed since they were loaded.
        if self.algorithms.is_empty() {
            self.algorithms = algorithms_of(scenario);
            self.folder_of_algorithms = scenario.folder_of_algorithms();
        }
        self.scenario = scenario.clone();
        self.scenario_toml = scenario.to_toml();
    }

    pub(crate) fn write(&self, dir: &Path) -> io::Result<()> {
        write_json(&dir.join(RUN_JSON), self, self.environment.backend)
    }
}

/// The hosts of a scenario.
fn hosts() -> [String; 2] {
    ["h2", "h3"].map(str::to_owned)
}

fn flows_of(scenario: &Scenario) -> Vec<FlowEntry> {
    let flows = scenario.instances().map(|instance| FlowEntry {
        id: instance.id,
        name: instance.name,
        group: instance.flow.name.clone(),
        type_name: instance.flow.kind.type_name().to_owned(),
        direction: instance.flow.direction.to_string(),
        packets_of: None,
    });
    flows.collect()
}

/// Returns the algorithms from files of a scenario, with the SHA-256 of what was read of each.
pub fn algorithms_of(scenario: &Scenario) -> BTreeMap<String, String> {
    let content = scenario.content_of_algorithms().into_iter();
    content
        .map(|(word, content)| (word, Checksum::of_bytes(&content).sha256))
        .collect()
}

/// Writes `value` of a run to `path`, so that the path always names either the old file or the complete
/// new one.
pub(crate) fn write_json(path: &Path, value: &impl Serialize, backend: Backend) -> io::Result<()> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    write_text(path, &text, backend)
}

/// Does the same as [`write_json`] for a text.
pub(crate) fn write_text(path: &Path, text: &str, backend: Backend) -> io::Result<()> {
    check_length(text.len() as u64)?;
    let mut part = Part::create(path)?.of_run(backend);
    part.write_all(text.as_bytes())?;
    part.finish()
}
