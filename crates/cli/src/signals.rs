//! The signals that ask a command to end.

use std::io;
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use sluice_router::process::ignores_hang_up;

/// Calls `work` on a thread of its own at each SIGINT, SIGTERM and SIGHUP. A SIGHUP that the process
/// ignores, as under `nohup`, stays ignored.
///
/// # Errors
/// When the kernel has no more threads or descriptors.
pub(crate) fn on_end(mut work: impl FnMut() + Send + 'static) -> io::Result<()> {
    let hang_up = (!ignores_hang_up()).then_some(SIGHUP);
    let mut signals = Signals::new([SIGINT, SIGTERM].into_iter().chain(hang_up))?;
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || signals.forever().for_each(|_| work()))?;
    Ok(())
}
