//! Runs a program without namespaces: in the machine's network, with additional environment
//! variables.

use std::ffi::OsString;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sluice_loader::{Ending, HookWatch};
use sluice_net::process::{Signals, SpawnError};

use crate::program::{attend, check, ending_within};
use crate::{ENDED, ExecError, ProgramError};

/// Runs a program with additional environment variables until it ends, and passes signals on to it.
/// Returns its exit status as [`run`](crate::run()) does, and the signals, which remain blocked.
/// `variables` is called on the main thread when the program was found, and before it starts, with the
/// signals that this thread receives; threads that `variables` starts receive none. If `ending` has a
/// reason to end the program, the program is terminated, and the status is [`ENDED`].
///
/// # Errors
/// The error of `variables`, or [`ExecError`].
pub fn run_beside<E: From<ExecError>>(
    program: &[OsString],
    ending: &Ending,
    variables: impl FnOnce(&Signals) -> Result<Vec<(String, String)>, E>,
) -> Result<(u8, Signals), E> {
    check(program).map_err(ExecError::from)?;
    let signals = Signals::catch().map_err(|source| ExecError::Kernel {
        step: "block signals",
        source,
    })?;
    let variables = variables(&signals)?;
    let (name, arguments) = program.split_first().expect("there is a program to run");
    let mut command = Command::new(name);
    command.args(arguments).envs(variables);
    signals.before().set_for(&mut command);
    let mut child = command.spawn().map_err(|error| {
        ExecError::from(ProgramError::Spawn {
            program: name.clone(),
            source: SpawnError::Program(error),
        })
    })?;
    let mut hooks = HookWatch::new(ending, Instant::now());
    let status = attend(Pid::from_child(&child), &signals, &mut hooks).map_err(ExecError::from)?;
    let status = status.unwrap_or_else(|| {
        terminate(&mut child);
        ENDED
    });
    Ok((status, signals))
}

/// Waits, after the program of [`run_beside`], until `has_ended` returns true. Calls `hurry` at each signal
/// that would end this process; earlier ones were for the program.
pub fn wait_beside(
    signals: &Signals,
    mut has_ended: impl FnMut() -> bool,
    mut hurry: impl FnMut(),
) {
    while matches!(signals.next_within(Duration::ZERO), Ok(Some(_))) {}
    while !has_ended() {
        match ending_within(signals, PAUSE) {
            Ok(None) => {}
            Ok(Some(_)) => hurry(),
            // No signal can be received.
            Err(_) => return,
        }
    }
}

/// Asks a program to end, and kills it if it does not.
fn terminate(child: &mut Child) {
    let start = Instant::now();
    let _ = kill_process(Pid::from_child(child), Signal::TERM);
    while matches!(child.try_wait(), Ok(None)) {
        if start.elapsed() > PATIENCE {
            let _ = child.kill();
        }
        sleep(Duration::from_millis(5));
    }
}

/// How long a program may take to end.
const PATIENCE: Duration = Duration::from_secs(2);
/// The interval between two looks whether the end has come.
const PAUSE: Duration = Duration::from_millis(2);
