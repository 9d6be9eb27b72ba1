//! Signals and children.

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use rustix::process::Pid;

use super::{SharedMap, check};

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

/// Returns whether this process ignores a signal.
pub(crate) fn is_ignored(signal: libc::c_int) -> bool {
    // SAFETY: all-zero bytes are a valid `sigaction`, which the kernel fills; nothing is changed.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut now) == 0
            && now.sa_sigaction == libc::SIG_IGN
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

/// Does the same as [`wait_for_signal`] for at most `patience`.
pub(crate) fn wait_for_signal_within(
    set: &libc::sigset_t,
    patience: std::time::Duration,
) -> io::Result<Option<(libc::c_int, libc::c_int)>> {
    let patience = libc::timespec {
        tv_sec: patience.as_secs() as libc::time_t,
        tv_nsec: patience.subsec_nanos().into(),
    };
    // SAFETY: all-zero bytes are a valid `siginfo_t`, and all places are valid.
    let (number, code) = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        (libc::sigtimedwait(set, &mut info, &patience), info.si_code)
    };
    match check(number) {
        Ok(number) => Ok(Some((number, code))),
        Err(error)
            if error.kind() == io::ErrorKind::Interrupted
                || error.raw_os_error() == Some(libc::EAGAIN) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// How long the kernel may still count a thread that has ended.
const LAST_THREADS: Duration = Duration::from_millis(200);

/// Returns the number of other threads of this process.
///
/// A thread that was joined may count for a moment: the kernel wakes up who waits for it
/// (kernel/fork.c, `mm_release`) before it takes it off the process's list (kernel/exit.c,
/// `release_task`). So this function waits a little for the others to go.
///
/// # Errors
/// /proc cannot be read.
pub(crate) fn other_threads() -> io::Result<usize> {
    let end = Instant::now() + LAST_THREADS;
    loop {
        let others = std::fs::read_dir("/proc/self/task")?.count() - 1;
        if others == 0 || Instant::now() >= end {
            return Ok(others);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Runs `work` in a child process, which ends afterwards. Returns the child.
///
/// # Errors
/// When the calling process has other threads, whose locks would stay locked in the child, or the
/// kernel refuses.
pub(crate) fn in_child(work: impl FnOnce()) -> io::Result<Pid> {
    if other_threads()? != 0 {
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
    Ok(Pid::from_raw(child).expect("a child has a number above 0"))
}

/// A number that this process and its later children share, zero at first.
#[derive(Clone)]
pub(crate) struct SharedNumber(SharedMap);

impl SharedNumber {
    pub(crate) fn new() -> io::Result<SharedNumber> {
        SharedMap::anonymous(size_of::<AtomicU64>()).map(SharedNumber)
    }

    pub(crate) fn get(&self) -> &AtomicU64 {
        // SAFETY: the mapping begins at a page, lives as long as `self`, and is only accessed here.
        unsafe { AtomicU64::from_ptr(self.0.at(0).cast()) }
    }
}

/// Closes descriptors that nothing else in this process uses.
pub(crate) fn close_some(descriptors: &[RawFd]) {
    for descriptor in descriptors {
        // SAFETY: takes no pointers. The caller uses none of them from here on.
        unsafe { libc::close(*descriptor) };
    }
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

/// The largest number of descriptors of a process that has just started.
const MOST_DESCRIPTORS: libc::c_uint = 1024;

/// Forks; the child has this number, unless the kernel refuses that. Async-signal-safe.
fn fork_as(number: libc::pid_t) -> io::Result<libc::pid_t> {
    // SAFETY: as `fork`, without its handlers, which are not async-signal-safe: the child executes a
    // program soon, the parent makes system calls only. All-zero arguments are valid, and the number
    // outlives the call.
    unsafe {
        let mut how: libc::clone_args = std::mem::zeroed();
        how.exit_signal = libc::SIGCHLD as u64;
        how.set_tid = std::ptr::from_ref(&number) as u64;
        how.set_tid_size = 1;
        let size = size_of::<libc::clone_args>();
        let child = libc::syscall(libc::SYS_clone3, std::ptr::from_ref(&how), size);
        if child >= 0 {
            return Ok(child as libc::pid_t);
        }
        // Linux before 5.5, or a filter of system calls.
        let signal = libc::c_long::from(libc::SIGCHLD);
        check(libc::syscall(libc::SYS_clone, signal, 0, 0, 0, 0) as libc::c_int)
    }
}

/// Splits the calling process, the first one of a new process namespace, in two: its child, with the
/// number `number` in the namespace if the kernel allows it, returns, and the process itself waits for the child's end, writes the wait status to `status` and ends. It
/// reaps orphans meanwhile, passes SIGINT on to all processes of the namespace, and is killed when
/// the thread that started it ends. Async-signal-safe.
///
/// # Errors
/// When the kernel refuses.
pub(crate) fn become_child_of_first_process(status: RawFd, number: libc::pid_t) -> io::Result<()> {
    let own = signal_set(&[libc::SIGCHLD, libc::SIGINT]);
    // SAFETY: no call takes a pointer except to `own`, the constant strings and null. A failed
    // mount is of no consequence: /proc then shows the processes of the machine.
    unsafe {
        check(libc::setsid())?;
        check(libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL))?;
        if libc::unshare(libc::CLONE_NEWNS) == 0
            && libc::mount(
                c"none".as_ptr(),
                c"/".as_ptr(),
                std::ptr::null(),
                libc::MS_REC | libc::MS_SLAVE,
                std::ptr::null(),
            ) == 0
        {
            let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
            let name = c"proc".as_ptr();
            libc::mount(name, c"/proc".as_ptr(), name, flags, std::ptr::null());
        }
    }
    // Blocked signals are kept for `sigwaitinfo`, and are not ignored even by a first process.
    set_signal_mask(&own)?;
    let child = fork_as(number)?;
    if child == 0 {
        return set_signal_mask(&signal_set(&[]));
    }
    close_all_but(status);
    let mut peer = [libc::pollfd {
        fd: status,
        events: 0,
        revents: 0,
    }];
    // If the starter ended before it could be noticed, its end of the stream is closed.
    // SAFETY: `peer` is valid, for one descriptor.
    let is_orphan = unsafe { libc::poll(peer.as_mut_ptr(), 1, 0) } > 0;
    if is_orphan {
        exit();
    }
    loop {
        let mut how = 0;
        // SAFETY: `how` is valid for writing, `own` for reading; no other pointers.
        unsafe {
            match libc::waitpid(-1, &mut how, libc::WNOHANG) {
                ended if ended == child => {
                    let how = how.to_ne_bytes();
                    libc::write(status, how.as_ptr().cast(), how.len());
                    break;
                }
                ended if ended > 0 => {}
                // The signal may be taken already, so waiting for it could last forever. There is a
                // child to wait for, so the next call does not fail.
                -1 => {}
                _ if libc::sigwaitinfo(&own, std::ptr::null_mut()) == libc::SIGINT => {
                    libc::kill(-1, libc::SIGINT);
                }
                _ => {}
            }
        }
    }
    exit()
}

/// Ends the process at once. The kernel then kills all others of its process namespace, if it is the
/// first one.
fn exit() -> ! {
    // SAFETY: runs no handlers, and does not return.
    unsafe { libc::_exit(0) }
}
