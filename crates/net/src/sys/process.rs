//! Signals and children.

use std::io;
use std::os::fd::RawFd;

use super::check;

/// Returns the set of `signals`.
pub(crate) fn signal_set(signals: &[libc::c_int]) -> libc::sigset_t {
    // SAFETY: a signal set consists of integers; sigemptyset and sigaddset write to it only.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in signals {
            libc::sigaddset(&mut set, *signal);
        }
        set
    }
}

/// Blocks signals in the calling thread. Returns those that were blocked before.
pub(crate) fn block_signals(set: &libc::sigset_t) -> io::Result<libc::sigset_t> {
    let mut before = signal_set(&[]);
    // SAFETY: both sets are valid, one for reading, the other for writing.
    match unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, set, &mut before) } {
        0 => Ok(before),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Blocks exactly these signals in the calling thread. Async-signal-safe.
pub(crate) fn set_signal_mask(set: &libc::sigset_t) -> io::Result<()> {
    // SAFETY: the set is valid for reading; the previous one is not asked for.
    match unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, set, std::ptr::null_mut()) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Gives SIGCHLD its default action.
pub(crate) fn default_child_signal() -> io::Result<()> {
    // SAFETY: the default action runs no code of ours.
    match unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) } {
        libc::SIG_ERR => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Waits for one of these signals, which are blocked. Returns its number and its code.
pub(crate) fn wait_for_signal(set: &libc::sigset_t) -> io::Result<(libc::c_int, libc::c_int)> {
    loop {
        // SAFETY: all-zero bytes are a valid `siginfo_t`, and both places are valid.
        let (number, code) = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            (libc::sigwaitinfo(set, &mut info), info.si_code)
        };
        match check(number) {
            Ok(number) => return Ok((number, code)),
            // A signal that stopped the process, or a debugger.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Runs `work` in a child process, which ends afterwards.
///
/// # Errors
/// When the calling process has other threads, whose locks would stay locked in the child, or the
/// kernel refuses.
pub(crate) fn in_child(work: impl FnOnce()) -> io::Result<()> {
    if std::fs::read_dir("/proc/self/task")?.count() != 1 {
        return Err(io::Error::other("the process has several threads already"));
    }
    // SAFETY: there is one thread, so the child finds no lock held by a thread that it lacks, and
    // may do everything that this process may.
    let child = check(unsafe { libc::fork() })?;
    if child == 0 {
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        // SAFETY: ends the process without running anything of the parent's.
        unsafe { libc::_exit(0) };
    }
    Ok(())
}

/// Closes every descriptor except one.
pub(crate) fn close_all_but(kept: RawFd) {
    let kept = kept as libc::c_uint;
    let close = |first: libc::c_uint, last: libc::c_uint| {
        // SAFETY: takes no pointers. The caller uses no other descriptor from here on.
        let result = unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
        if result != 0 {
            // Linux before 5.9 has no such call.
            for descriptor in first..=last.min(MOST_DESCRIPTORS) {
                // SAFETY: as above.
                unsafe { libc::close(descriptor as RawFd) };
            }
        }
    };
    if kept > 0 {
        close(0, kept - 1);
    }
    close(kept + 1, libc::c_uint::MAX);
}

/// Descriptors that a process has at most when it has just started.
const MOST_DESCRIPTORS: libc::c_uint = 1024;
