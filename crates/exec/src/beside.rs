//! A program without namespaces: it has the machine's network, and variables.

use std::ffi::OsString;
use std::process::Command;

use rustix::process::Pid;
use sluice_net::process::{Signals, SpawnError};

use crate::program::attend;
use crate::{ExecError, ProgramError};

/// Runs a program with more variables until it ends, and passes signals on to it. Returns its exit
/// status as [`run`](crate::run()) does. `variables` is called before the program starts, on the
/// main thread; threads that it starts receive no signals.
///
/// # Errors
/// That of `variables`, or [`ExecError`].
pub fn run_beside<E: From<ExecError>>(
    program: &[OsString],
    variables: impl FnOnce() -> Result<Vec<(String, String)>, E>,
) -> Result<u8, E> {
    let signals = Signals::catch().map_err(|source| ExecError::Kernel {
        step: "block signals",
        source,
    })?;
    let variables = variables()?;
    let (name, arguments) = program.split_first().expect("there is a program to run");
    let mut command = Command::new(name);
    command.args(arguments).envs(variables);
    signals.before().set_for(&mut command);
    let child = command.spawn().map_err(|error| {
        ExecError::from(ProgramError::Spawn {
            program: name.clone(),
            source: SpawnError::Program(error),
        })
    })?;
    let status = attend(Pid::from_child(&child), &signals);
    Ok(status.map_err(ExecError::from)?)
}
