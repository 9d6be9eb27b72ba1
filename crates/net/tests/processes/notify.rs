//! System calls of a whole tree of processes that fail on demand, however they are made.
//!
//! A filter (seccomp) of the tested process makes the kernel ask this program about each call of
//! [`CALLS`], and so about those of its children, and of libraries that do not use the C library. This
//! program numbers the calls, and lets one fail. Reference: seccomp_unotify(2).
#![allow(unsafe_code)]

use std::collections::BTreeSet;
use std::ffi::{c_int, c_long, c_ulong, c_void};
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The calls that are numbered. The C library and the standard library make others (memory, threads,
/// signals) at which a program cannot react to a failure.
const CALLS: &[c_long] = &[
    libc::SYS_bind,
    libc::SYS_capget,
    libc::SYS_capset,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_close_range,
    libc::SYS_connect,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_execve,
    libc::SYS_fcntl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_fork,
    libc::SYS_getdents64,
    libc::SYS_getpriority,
    libc::SYS_getsockname,
    libc::SYS_ioctl,
    libc::SYS_landlock_add_rule,
    libc::SYS_landlock_create_ruleset,
    libc::SYS_landlock_restrict_self,
    libc::SYS_mount,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_pipe2,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    libc::SYS_ppoll,
    libc::SYS_prctl,
    libc::SYS_read,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_seccomp,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setgroups,
    libc::SYS_setns,
    libc::SYS_setresgid,
    libc::SYS_setresuid,
    libc::SYS_setsid,
    libc::SYS_setsockopt,
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_statx,
    libc::SYS_timerfd_create,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_wait4,
    libc::SYS_write,
];

/// The first argument of a `getpriority`, which nothing else has, and the second ones: calls are
/// numbered from here on; the calls of this process are numbered, or not.
const MARK: c_int = 0x534c;
const COUNT: c_int = 1;
const NUMBER: c_int = 2;
const EXEMPT: c_int = 3;

fn mark(what: c_int) {
    // SAFETY: takes no pointers. The answer comes from the other process.
    unsafe { libc::syscall(libc::SYS_getpriority, MARK, what) };
}

/// Begins to number calls.
pub fn count_from_here() {
    mark(COUNT);
}

/// Does something for the test itself: meanwhile no call of this process is numbered. May be nested.
pub fn exempt<T>(work: impl FnOnce() -> T) -> T {
    if DEPTH.fetch_add(1, Ordering::Relaxed) == 0 {
        mark(EXEMPT);
    }
    let result = work();
    if DEPTH.fetch_sub(1, Ordering::Relaxed) == 1 {
        mark(NUMBER);
    }
    result
}

static DEPTH: AtomicU32 = AtomicU32::new(0);

/// Installs the filter in this process, and sends its descriptor through `to`.
pub fn arm(to: &UnixStream) {
    let load = |offset: usize| statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, offset as u32);
    let answer = |answer| statement(libc::BPF_RET | libc::BPF_K, answer);
    let calls = CALLS.len() as u8;
    let equal = |value, yes, no| libc::sock_filter {
        code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
        jt: yes,
        jf: no,
        k: value,
    };
    let mut program = vec![load(0)];
    for (number, call) in (0..).zip(CALLS) {
        program.push(equal(*call as u32, calls - number, 0));
    }
    program.push(answer(libc::SECCOMP_RET_ALLOW));
    // The message that carries the descriptor is sent before anybody answers.
    program.push(load(std::mem::offset_of!(libc::seccomp_data, args)));
    program.push(equal(to.as_raw_fd() as u32, 0, 1));
    program.push(answer(libc::SECCOMP_RET_ALLOW));
    program.push(answer(libc::SECCOMP_RET_USER_NOTIF));
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the program is valid during the call.
    let listener = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_NEW_LISTENER,
            std::ptr::from_ref(&filter),
        )
    };
    assert!(listener >= 0, "{}", io::Error::last_os_error());
    // SAFETY: the kernel has just made this descriptor.
    let listener = unsafe { OwnedFd::from_raw_fd(listener as RawFd) };
    let sent = with_message(|message, control| {
        control.copy_from_slice(&listener.as_raw_fd().to_ne_bytes());
        // SAFETY: the message and what it names are valid during the call.
        unsafe { libc::sendmsg(to.as_raw_fd(), message, 0) }
    });
    assert_eq!(sent, 1, "{}", io::Error::last_os_error());
}

fn statement(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    }
}

/// Receives the descriptor of a filter.
fn receive(from: &UnixStream) -> io::Result<OwnedFd> {
    let mut number = [0; 4];
    let received = with_message(|message, control| {
        // SAFETY: the message and what it names are valid during the call.
        let received = unsafe { libc::recvmsg(from.as_raw_fd(), message, libc::MSG_CMSG_CLOEXEC) };
        number.copy_from_slice(control);
        received
    });
    if received != 1 {
        return Err(io::Error::other("the process ended before it had a filter"));
    }
    // SAFETY: the kernel has just made this descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(RawFd::from_ne_bytes(number)) })
}

/// Calls `work` with a message of one byte, and the part of it that holds a descriptor.
fn with_message(work: impl FnOnce(&mut libc::msghdr, &mut [u8]) -> isize) -> isize {
    #[repr(C, align(8))]
    struct Control([u8; 24]);
    let (mut byte, mut control) = ([1u8], Control([0; 24]));
    let mut piece = libc::iovec {
        iov_base: byte.as_mut_ptr().cast(),
        iov_len: 1,
    };
    // struct cmsghdr: the length with 16 bytes of header, SOL_SOCKET, SCM_RIGHTS.
    control.0[..8].copy_from_slice(&20u64.to_ne_bytes());
    control.0[8..12].copy_from_slice(&libc::SOL_SOCKET.to_ne_bytes());
    control.0[12..16].copy_from_slice(&libc::SCM_RIGHTS.to_ne_bytes());
    // SAFETY: all-zero bytes are a valid msghdr.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &mut piece;
    message.msg_iovlen = 1;
    let start = control.0.as_mut_ptr();
    message.msg_control = start.cast();
    message.msg_controllen = 24;
    // SAFETY: four bytes inside the buffer, which nothing else refers to while `work` runs, except the
    // kernel by the address in the message.
    let descriptor = unsafe { std::slice::from_raw_parts_mut(start.add(16), 4) };
    work(&mut message, descriptor)
}

/// The fate of a tree of processes.
pub struct Outcome {
    /// The number of the call that failed, if one did.
    pub failed: Option<c_long>,
    /// Whether all processes have ended.
    pub has_ended: bool,
}

/// Answers the kernel's questions about the process at `from` and those below it, until all have ended.
/// The call with the number `fails` gets `error`. Calls are numbered from the start if `is_counting`,
/// or else from [`count_from_here`] on.
pub fn supervise(
    from: &UnixStream,
    fails: u32,
    error: c_int,
    mut is_counting: bool,
) -> io::Result<Outcome> {
    let listener = receive(from)?;
    let end = Instant::now() + PATIENCE;
    let mut outcome = Outcome {
        failed: None,
        has_ended: false,
    };
    let mut calls = 0;
    // Processes that have executed a program, or are exempt.
    let mut foreign = BTreeSet::new();
    while Instant::now() < end {
        let mut poll = libc::pollfd {
            fd: listener.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: one valid place.
        if unsafe { libc::poll(&mut poll, 1, 100) } <= 0 {
            continue;
        }
        if poll.revents & libc::POLLIN == 0 {
            outcome.has_ended = true;
            return Ok(outcome);
        }
        // SAFETY: all-zero bytes are valid, and expected by the kernel.
        let mut asked: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        if !control(&listener, RECEIVE, std::ptr::from_mut(&mut asked).cast()) {
            // The process was killed meanwhile.
            continue;
        }
        let (call, [first, second, ..]) = (c_long::from(asked.data.nr), asked.data.args);
        let process = process_of(asked.pid);
        let is_mark = call == libc::SYS_getpriority && first as c_int == MARK;
        // The standard library checks its own descriptors by F_GETFD, in debug builds.
        let is_numbered = is_counting
            && !foreign.contains(&process)
            && call != libc::SYS_getpriority
            && !(call == libc::SYS_fcntl && second as c_int == libc::F_GETFD);
        let mut is_due = false;
        if is_mark {
            match second as c_int {
                COUNT => is_counting = true,
                EXEMPT => drop(foreign.insert(process)),
                _ => drop(foreign.remove(&process)),
            }
        } else if is_numbered {
            is_due = calls == fails && outcome.failed.is_none();
            calls += 1;
            if call == libc::SYS_execve && !is_due {
                foreign.insert(process);
            }
        }
        if is_due {
            outcome.failed = Some(call);
        }
        let mut answer = libc::seccomp_notif_resp {
            id: asked.id,
            val: 0,
            error: if is_due { -error } else { 0 },
            flags: if is_due || is_mark { 0 } else { CONTINUE },
        };
        control(&listener, ANSWER, std::ptr::from_mut(&mut answer).cast());
    }
    Ok(outcome)
}

/// Returns the number of the process to which a thread belongs.
fn process_of(thread: u32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"));
    line.and_then(|number| number.trim().parse().ok())
        .unwrap_or(thread)
}

/// Returns whether the kernel accepted a request about a filter.
fn control(listener: &OwnedFd, request: c_ulong, argument: *mut c_void) -> bool {
    // SAFETY: the callers pass the structure of the request.
    unsafe { libc::ioctl(listener.as_raw_fd(), request, argument) == 0 }
}

/// linux/seccomp.h: `_IOWR('!', 0, struct seccomp_notif)`, of 80 bytes, and `_IOWR('!', 1, struct
/// seccomp_notif_resp)`, of 24; `SECCOMP_USER_NOTIF_FLAG_CONTINUE`.
const RECEIVE: c_ulong = 0xc050_2100;
const ANSWER: c_ulong = 0xc018_2101;
const CONTINUE: u32 = 1;
/// A tree of processes that lives longer hangs.
const PATIENCE: Duration = Duration::from_secs(40);
