//! The plan of a suite: the runs, and the folders of their recordings.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::execute::MOST_WITH_PACKETS;
use crate::live::LiveError;
use crate::run::{self, RunError};
use crate::simulated;
use sluice_core::Span;
use sluice_net::cores::{IdleLimit, IdleLimitError};
use sluice_net::namespace::{PrivilegeError, acquire_privilege};
use sluice_recording::Keep;
use sluice_scenario::{Backend, Scenario, ScenarioErrors, Variant};

/// The user's request.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Scenario files, and folders of scenario files.
    pub paths: Vec<PathBuf>,
    /// Overrides `KEY=VALUE`, for every scenario.
    pub sets: Vec<String>,
    /// The backends; `None` for the scenario's own choice or, without one, the simulator.
    pub backends: Option<Backends>,
    /// The number of runs of each variant, at least one. Their seeds count up from the scenario's
    /// seed.
    pub repeat: u32,
    /// The folder for the recordings; `None` for `runs/NAME`.
    pub output: Option<PathBuf>,
}

/// The backends of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backends {
    /// One backend.
    One(Backend),
    /// Both the simulator and real packets.
    Both,
}

/// The reason why no plan could be made.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// A folder cannot be read.
    #[error("cannot read the folder `{}`: {error}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// A folder contains runs and no scenario.
    #[error(
        "`{}` contains runs and no scenario (*.toml); `sluice report`, `index` and `compare` show runs",
        path.display()
    )]
    Runs {
        /// The folder.
        path: PathBuf,
    },
    /// A scenario on standard input.
    #[error(
        "`-` is not read: `sluice run` needs the scenario's file; write standard input to one, such \
         as with `cat >s.toml`"
    )]
    StandardInput,
    /// A scenario is named twice.
    #[error("`{}` is named twice; `--repeat` runs it several times", path.display())]
    Twice {
        /// The scenario.
        path: PathBuf,
    },
    /// A folder contains no scenario.
    #[error("there is no scenario (*.toml) in `{}` or its subfolders", path.display())]
    Empty {
        /// The folder.
        path: PathBuf,
    },
    /// Two scenarios would write to one folder.
    #[error(
        "`{}` and `{}` would both be recorded in `{}`; run them one at a time, with -o",
        first.display(),
        second.display(),
        output.display()
    )]
    Clash {
        /// One scenario.
        first: PathBuf,
        /// The other scenario.
        second: PathBuf,
        /// The folder of both.
        output: PathBuf,
    },
}

/// A run that could not be made.
#[derive(Debug)]
pub struct Failure {
    /// The scenario file, and the variant if only one is affected.
    pub what: String,
    /// The error.
    pub error: Box<dyn std::error::Error + Send + Sync>,
}

/// The reason why the process cannot be prepared for live runs.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// The idle states cannot be limited.
    #[error(transparent)]
    Idle(#[from] IdleLimitError),
    /// No user namespace can be entered.
    #[error(transparent)]
    Privilege(#[from] PrivilegeError),
}

/// A scenario file and its runs.
#[derive(Debug)]
pub struct Experiment {
    /// Path within the suite, without the ending.
    pub name: String,
    /// The file.
    pub file: PathBuf,
    /// The folder of its recordings.
    pub output: PathBuf,
    /// Runs: by backend, variant and seed.
    pub runs: Vec<Planned>,
}

/// A planned run.
#[derive(Clone, Debug)]
pub struct Planned {
    /// The variant; its seed is that of the run.
    pub variant: Variant,
    /// The backend.
    pub backend: Backend,
    /// The folder of its recording.
    pub dir: PathBuf,
}

/// All planned runs.
#[derive(Debug)]
pub struct Suite {
    /// The folder of the whole suite.
    pub root: PathBuf,
    /// Whether the request was a folder or several files, and not one scenario.
    pub is_many: bool,
    /// The scenarios that can be run.
    pub experiments: Vec<Experiment>,
    /// The failures.
    pub failures: Vec<Failure>,
}

impl Request {
    /// Returns the scenario files, each with its name within the suite, sorted.
    fn files(&self) -> Result<Vec<(String, PathBuf)>, PlanError> {
        let mut files = Vec::new();
        for path in &self.paths {
            if path.as_os_str() == "-" {
                return Err(PlanError::StandardInput);
            }
            if !path.is_dir() {
                files.push((stem(path), path.clone()));
                continue;
            }
            let mut found = Vec::new();
            find(path, &mut found)?;
            if found.is_empty() {
                let path = path.clone();
                return Err(match sluice_recording::runs::runs_in(&path) {
                    Ok(_) => PlanError::Runs { path },
                    Err(_) => PlanError::Empty { path },
                });
            }
            // With several arguments, the name of each comes before those of its files.
            let prefix = match self.paths.len() {
                1 => PathBuf::new(),
                _ => PathBuf::from(stem(path)),
            };
            for file in found {
                let below = file.strip_prefix(path).unwrap_or(&file);
                let name = prefix.join(below.with_extension(""));
                files.push((name.to_string_lossy().into_owned(), file));
            }
        }
        Ok(files)
    }

    /// Reads all scenarios and assigns a folder to each of their runs. Scenarios that cannot be
    /// read become failures.
    ///
    /// # Errors
    /// There is nothing to run, or two scenarios have the same folder.
    pub fn plan(&self) -> Result<Suite, PlanError> {
        let files = self.files()?;
        let is_many = self.paths.len() != 1 || self.paths[0].is_dir();
        let root = self
            .output
            .clone()
            .unwrap_or_else(|| match &self.paths[..] {
                [path] => Path::new("runs").join(stem(path)),
                _ => PathBuf::from("runs"),
            });
        let mut suite = Suite {
            is_many,
            experiments: Vec::new(),
            failures: Vec::new(),
            root,
        };
        let mut taken: BTreeMap<PathBuf, PathBuf> = BTreeMap::new();
        for (name, file) in files {
            let output = match is_many {
                true => suite.root.join(&name),
                false => suite.root.clone(),
            };
            if let Some(first) = taken.insert(output.clone(), file.clone()) {
                if first == file {
                    return Err(PlanError::Twice { path: file });
                }
                return Err(PlanError::Clash {
                    first,
                    second: file,
                    output,
                });
            }
            let load = match self.paths.contains(&file) {
                true => Scenario::load,
                false => Scenario::load_found,
            };
            match load(&file, &self.sets) {
                Ok(variants) => match self.runs(&variants, &output) {
                    Ok(runs) => suite.experiments.push(Experiment {
                        runs,
                        name,
                        file,
                        output,
                    }),
                    Err(why) => suite.failures.push(Failure {
                        what: file.display().to_string(),
                        error: why.into(),
                    }),
                },
                Err(errors) => suite.failures.push(broken(&file, errors)),
            }
        }
        Ok(suite)
    }

    /// Returns the runs of a scenario, or why it cannot have so many.
    fn runs(&self, variants: &[Variant], output: &Path) -> Result<Vec<Planned>, String> {
        // A matrix cannot vary the backend: all variants have the scenario's.
        let own = variants.first().and_then(|v| v.scenario.backend);
        let backends: &[Backend] = match self.backends {
            Some(Backends::Both) => &[Backend::Sim, Backend::Live],
            Some(Backends::One(Backend::Sim)) => &[Backend::Sim],
            Some(Backends::One(Backend::Live)) => &[Backend::Live],
            None if own == Some(Backend::Live) => &[Backend::Live],
            None => &[Backend::Sim],
        };
        let repeat = u64::from(self.repeat.max(1));
        let count = repeat.saturating_mul((variants.len() * backends.len()) as u64);
        if repeat > 1 && count > MOST_RUNS {
            return Err(format!(
                "`--repeat {repeat}` makes {count} runs; at most {MOST_RUNS} are accepted"
            ));
        }
        let first = variants.iter().map(|v| v.scenario.seed).max().unwrap_or(0);
        if first > LARGEST_SEED.saturating_sub(repeat - 1) {
            return Err(format!(
                "`--repeat {repeat}` counts up from the seed {first}; the largest seed is {LARGEST_SEED}"
            ));
        }
        let mut runs = Vec::new();
        for backend in backends {
            for variant in variants {
                for n in 0..repeat {
                    let mut variant = variant.clone();
                    let mut folder = variant.folder();
                    if backends.len() > 1 && *backend == Backend::Live {
                        folder.push_str(".live");
                    }
                    variant.scenario.seed += n;
                    if n > 0 {
                        folder.push_str(&format!(".seed-{}", variant.scenario.seed));
                    }
                    runs.push(Planned {
                        variant,
                        backend: *backend,
                        dir: output.join(folder),
                    });
                }
            }
        }
        Ok(runs)
    }
}

impl Experiment {
    /// Returns how much of the runs is recorded if the user asks for `wanted`; by default every packet,
    /// or the figures of more than [`MOST_WITH_PACKETS`] runs.
    pub fn keep(&self, wanted: Option<Keep>) -> Keep {
        wanted.unwrap_or(match self.runs.len() {
            0..=MOST_WITH_PACKETS => Keep::Packets,
            _ => Keep::Figures,
        })
    }
}

impl Suite {
    /// Returns warnings about settings that are valid but unusual, or that cannot be followed
    /// exactly. Each warning appears once, with its scenario.
    pub fn warnings(&self) -> Vec<String> {
        let mut all = Vec::new();
        for experiment in &self.experiments {
            for run in &experiment.runs {
                for flow in &run.variant.scenario.flows {
                    for warning in flow.warnings() {
                        let text =
                            format!("{}: {}: {warning}", experiment.file.display(), flow.name);
                        if !all.contains(&text) {
                            all.push(text);
                        }
                    }
                }
                for advice in run.variant.scenario.advice() {
                    let text = format!("{}: {advice}", experiment.file.display());
                    if !all.contains(&text) {
                        all.push(text);
                    }
                }
                for warning in run.variant.scenario.queue_warnings() {
                    let text = format!("{}: {warning}", experiment.file.display());
                    if !all.contains(&text) {
                        all.push(text);
                    }
                }
            }
        }
        all
    }

    /// Returns how many packets the simulations will send at most, and how long the live runs take
    /// together. A simulated packet takes about a microsecond ([`simulated::estimate`]).
    pub fn cost(&self) -> (u64, Span) {
        let (mut packets, mut live) = (0_u64, Span::ZERO);
        for run in self.experiments.iter().flat_map(|one| &one.runs) {
            let scenario = &run.variant.scenario;
            match run.backend {
                Backend::Live => live = live.saturating_add(scenario.duration),
                // What cannot be estimated cannot be simulated either.
                Backend::Sim => {
                    let estimate = simulated::estimate(scenario);
                    packets = packets.saturating_add(estimate.map_or(0, |one| one.packets));
                }
            }
        }
        (packets, live)
    }

    /// Prepares the process for live runs, if there are any: limits the exit latency of the cores'
    /// idle states to `cpu_latency` for as long as the returned limit lives, and enters a user
    /// namespace if the process needs one. Call this while the process has one thread.
    ///
    /// # Errors
    /// [`PrepareError`].
    pub fn prepare(&self, cpu_latency: Option<Span>) -> Result<Option<IdleLimit>, PrepareError> {
        if !self.is_live() {
            return Ok(None);
        }
        // Open the device before entering the user namespace, in which the process cannot have more
        // rights to the machine.
        let limit = cpu_latency.map(IdleLimit::hold).transpose()?;
        acquire_privilege()?;
        Ok(limit)
    }

    /// Turns runs that a backend cannot execute into failures, before any run starts. A simulation
    /// that is too large is one of them unless `any_size` holds.
    pub fn check(&mut self, any_size: bool) {
        let mut missing_privilege = false;
        for experiment in &mut self.experiments {
            for backend in [Backend::Sim, Backend::Live] {
                if missing_privilege && backend == Backend::Live {
                    experiment.runs.retain(|run| run.backend != backend);
                }
                let of_it = experiment.runs.iter().filter(|run| run.backend == backend);
                let Some((error, variants)) = refused(of_it, any_size) else {
                    continue;
                };
                experiment.runs.retain(|run| run.backend != backend);
                // Reported once, since it is the same for all.
                let is_of_all = is_privilege(&error);
                missing_privilege |= is_of_all;
                self.failures.push(match is_of_all {
                    true => Failure {
                        what: "live runs".to_owned(),
                        error: error.into(),
                    },
                    false => Failure {
                        what: experiment.file.display().to_string(),
                        error: format!("{error}{variants}").into(),
                    },
                });
            }
        }
        self.experiments
            .retain(|experiment| !experiment.runs.is_empty());
    }

    /// Returns the number of runs.
    pub fn len(&self) -> usize {
        self.experiments.iter().map(|e| e.runs.len()).sum()
    }

    /// Returns whether nothing can be run.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether any run is live.
    pub fn is_live(&self) -> bool {
        let mut runs = self.experiments.iter().flat_map(|e| &e.runs);
        runs.any(|run| run.backend == Backend::Live)
    }
}

/// Returns the first error of the variants of `runs` that cannot be executed, and in words which of them
/// have it; `None` if all can be executed.
fn refused<'a>(
    runs: impl Iterator<Item = &'a Planned>,
    any_size: bool,
) -> Option<(RunError, String)> {
    let mut first: Option<(RunError, String, Vec<&str>)> = None;
    let (mut all, mut last) = (0, None);
    for run in runs {
        let name = run.variant.name.as_str();
        // Runs that differ in their seed only are consecutive.
        if last.replace(name) == Some(name) {
            continue;
        }
        all += 1;
        let Err(error) = run::check(&run.variant, run.backend, any_size) else {
            continue;
        };
        let text = error.to_string();
        if let Some((_, known, variants)) = &mut first {
            if *known == text {
                variants.push(name);
            }
        } else if is_privilege(&error) {
            return Some((error, String::new()));
        } else {
            first = Some((error, text, vec![name]));
        }
    }
    let (error, _, variants) = first?;
    let count = variants.len();
    let words = match all {
        1 => String::new(),
        _ if count == all => format!(" (in all {all} variants)"),
        _ => {
            let names = variants.iter().take(MOST_NAMES);
            let mut names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
            if count > MOST_NAMES {
                names.push("...".to_owned());
            }
            format!(" (in {count} of {all} variants: {})", names.join(", "))
        }
    };
    Some((error, words))
}

/// Returns whether an error is that of the process, and not that of a scenario.
fn is_privilege(error: &RunError) -> bool {
    matches!(error, RunError::Live(LiveError::Privilege(_)))
}

fn broken(file: &Path, errors: ScenarioErrors) -> Failure {
    Failure {
        what: file.display().to_string(),
        error: errors.into(),
    }
}

/// Returns the last component of a path, without its ending.
fn stem(path: &Path) -> String {
    let whole = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let word = match path.is_dir() {
        true => whole.file_name(),
        // A symbolic link to a file is identified by its own name.
        false => path.file_stem(),
    };
    word.unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned()
}

/// Returns the scenarios in `folder` and its subfolders, sorted. Hidden ones are left out, and
/// links to folders are not followed, since they may form a cycle.
fn find(folder: &Path, found: &mut Vec<PathBuf>) -> Result<(), PlanError> {
    let fail = |error| PlanError::Folder {
        path: folder.to_owned(),
        error,
    };
    let mut entries = fs::read_dir(folder)
        .and_then(Iterator::collect::<io::Result<Vec<_>>>)
        .map_err(fail)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        if entry.file_name().to_string_lossy().starts_with('.') {
            continue;
        }
        if entry.file_type().map_err(fail)?.is_dir() {
            find(&path, found)?;
        } else if path.extension().is_some_and(|ending| ending == "toml") {
            found.push(path);
        }
    }
    Ok(())
}

/// The most runs of a scenario with repetitions: ten of each variant of the largest matrix.
const MOST_RUNS: u64 = 100_000;
/// The largest seed, as TOML and `run.json` have it.
const LARGEST_SEED: u64 = i64::MAX as u64;
/// The most variants that an error names.
const MOST_NAMES: usize = 3;
