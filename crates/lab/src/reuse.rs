//! Reuse of earlier runs.
//!
//! A run is the same as an earlier one if the resolved scenario, including the seed, the backend
//! and the program's binary are the same. A live run also needs the same machine and kernel. A run
//! with a program (`type = "command"`) or an algorithm from a file is never reused: the scenario names
//! the file, but does not contain it, nor the files that it reads or imports. Its
//! tables must be unchanged: a damaged recording is not reused. Their lengths and times show that,
//! so that they are not read; a table whose time is later than the end of the run is read.

use std::path::Path;

use crate::run::Finished;
use sluice_loader::loaders;
use sluice_recording::{Environment, Keep, ReadError, Recording, Status};
use sluice_scenario::{Backend, Variant};

/// The reason why an earlier run cannot be reused.
#[derive(Debug, thiserror::Error)]
pub enum Stale {
    /// There is no earlier run.
    #[error("there is no earlier run")]
    None,
    /// The earlier run did not end normally.
    #[error("the earlier run is not complete")]
    Incomplete,
    /// Another backend ran it.
    #[error("the earlier run was {}", .0.word())]
    Backend(Backend),
    /// The scenario or its seed differs.
    #[error("the scenario has changed")]
    Scenario,
    /// Another program made the earlier run.
    #[error("the program has changed")]
    Program,
    /// Programs or algorithms from outside the scenario ran in it.
    #[error("a program or an algorithm of the scenario may have changed")]
    Outside,
    /// The run was made on another machine or kernel, which matters to a live run.
    #[error("the machine or its kernel has changed")]
    Machine,
    /// Less was recorded than is wanted now.
    #[error("the earlier run recorded less")]
    Tables,
    /// The recording cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// Returns the run of `variant` on `backend` in the folder `dir`, recorded at least as `keep` says.
///
/// # Errors
/// The reason why the variant must be run again.
pub fn earlier(
    variant: &Variant,
    backend: Backend,
    dir: &Path,
    keep: Keep,
) -> Result<Finished, Stale> {
    if !dir.join("run.json").is_file() {
        return Err(Stale::None);
    }
    if variant.scenario.flows.iter().any(|f| f.kind.is_program()) {
        return Err(Stale::Outside);
    }
    let recording = Recording::open(dir)?;
    let run = recording.run();
    let here = Environment::here(backend, String::new());
    let then = &run.environment;
    if run.status != Status::Complete {
        return Err(Stale::Incomplete);
    }
    if then.backend != backend {
        return Err(Stale::Backend(then.backend));
    }
    // Without an identity the program is unknown.
    if then.program_id.is_none() || then.program_id != here.program_id {
        return Err(Stale::Program);
    }
    let is_same = run.variant == variant.name && run.coordinates == variant.coordinates;
    if run.scenario != variant.scenario || !is_same {
        return Err(Stale::Scenario);
    }
    // Wherever the word stands: a queue, a rule. A title with such a word costs a run.
    let mut schemes = loaders()
        .iter()
        .map(|loader| format!("{}:", loader.scheme()));
    if schemes.any(|scheme| run.scenario_toml.contains(&scheme)) {
        return Err(Stale::Outside);
    }
    let is_elsewhere = (&then.host, &then.kernel) != (&here.host, &here.kernel);
    if backend == Backend::Live && is_elsewhere {
        return Err(Stale::Machine);
    }
    if !recording.has(keep) {
        return Err(Stale::Tables);
    }
    recording.check_unchanged()?;
    // The same program stored it.
    let summary = recording.stored_summary()?.ok_or(Stale::Incomplete)?;
    Ok(Finished {
        recording,
        summary,
        is_reused: true,
        remarks: Vec::new(),
    })
}
