//! Earlier runs that need not be carried out again.
//!
//! A run is the same as an earlier one if the scenario with everything set is, its seed among it, and
//! the backend, and the program to the bit; a live one moreover on the same machine with the same
//! kernel. Its tables must be the ones that were written: a damaged recording is made anew.

use std::path::Path;

use crate::run::Finished;
use sluice_recording::{Environment, ReadError, Recording, Status};
use sluice_scenario::{Backend, Variant};

/// Why an earlier run does not do.
#[derive(Debug, thiserror::Error)]
pub enum Stale {
    /// There is none.
    #[error("there is no earlier run")]
    None,
    /// It did not run to its end.
    #[error("the earlier run is not complete")]
    Incomplete,
    /// Another backend carried it out.
    #[error("the earlier run was {}", .0.word())]
    Backend(Backend),
    /// The scenario or its seed is another.
    #[error("the scenario has changed")]
    Scenario,
    /// It was made by another program.
    #[error("the program has changed")]
    Program,
    /// It was made elsewhere, which matters to a live run.
    #[error("the machine or its kernel has changed")]
    Machine,
    /// It cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// The run of `variant` on `backend` that the folder `dir` holds.
///
/// # Errors
/// Why it must be carried out anew.
pub fn earlier(variant: &Variant, backend: Backend, dir: &Path) -> Result<Finished, Stale> {
    if !dir.join("run.json").is_file() {
        return Err(Stale::None);
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
    // Without a checksum nobody knows which program it was.
    if then.program_sha256.is_none() || then.program_sha256 != here.program_sha256 {
        return Err(Stale::Program);
    }
    if run.scenario != variant.scenario || run.variant != variant.name {
        return Err(Stale::Scenario);
    }
    let is_elsewhere = (&then.host, &then.kernel) != (&here.host, &here.kernel);
    if backend == Backend::Live && is_elsewhere {
        return Err(Stale::Machine);
    }
    recording.check_all()?;
    // The same program stored it.
    let summary = recording.stored_summary()?.ok_or(Stale::Incomplete)?;
    Ok(Finished {
        recording,
        summary,
        is_reused: true,
    })
}
