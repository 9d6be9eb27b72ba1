//! The functions of the crate whose calls fail in the scenarios, and calls that they make for certain.
//!
//! Each of these calls must have failed in the scenario. Functions of one scenario that make the same call
//! are not distinguished. `tests/injected/sites.rs` compares the list with that of all functions.

use std::ffi::c_long;

/// A scenario, a file below `src`, functions in it, and their calls.
pub const CALLS_OF: &[(&str, &str, &str, &[c_long])] = &[
    (
        "guardian",
        "guardian.rs",
        "start",
        &[libc::SYS_pipe2, libc::SYS_fcntl, libc::SYS_sendto],
    ),
    ("guardian", "sys/process.rs", "other_threads in_child", FORK),
    (
        "take_over",
        "guardian.rs",
        "is_readable",
        &[libc::SYS_ppoll],
    ),
    (
        "contained",
        "contained.rs",
        "start read",
        &[
            libc::SYS_unshare,
            libc::SYS_socketpair,
            libc::SYS_ioctl,
            libc::SYS_ppoll,
        ],
    ),
    (
        "contained",
        "sys/process.rs",
        "fork_as become_child_of_first_process",
        &[libc::SYS_clone3, libc::SYS_setsid, libc::SYS_prctl],
    ),
    (
        "spawn",
        "process.rs",
        "spawn enter mount_files create_file drop_capabilities",
        &[
            libc::SYS_pipe2,
            libc::SYS_setns,
            libc::SYS_unshare,
            libc::SYS_mount,
            libc::SYS_umount2,
            libc::SYS_openat,
            libc::SYS_write,
            libc::SYS_prctl,
            libc::SYS_capset,
            libc::SYS_execve,
        ],
    ),
    (
        "guard",
        "process/guard.rs",
        "start watch reap receive identity kill_in",
        &[
            libc::SYS_socketpair,
            libc::SYS_setsid,
            libc::SYS_sendmsg,
            libc::SYS_recvmsg,
            libc::SYS_fcntl,
            libc::SYS_statx,
            libc::SYS_openat,
            libc::SYS_getdents64,
            libc::SYS_wait4,
        ],
    ),
    ("guard", "sys/process.rs", "other_threads in_child", FORK),
    (
        "guard",
        "sys/process.rs",
        "close_all_but",
        &[libc::SYS_close_range],
    ),
    (
        "watchdog",
        "process/guard.rs",
        "start",
        &[libc::SYS_pipe2, libc::SYS_setsid, libc::SYS_read],
    ),
    ("watchdog", "sys/process.rs", "other_threads in_child", FORK),
    (
        "confine",
        "confine.rs",
        "confine restrict_files install_filters",
        &[
            libc::SYS_prctl,
            libc::SYS_capget,
            libc::SYS_capset,
            libc::SYS_landlock_create_ruleset,
            libc::SYS_seccomp,
        ],
    ),
    (
        "user",
        "user.rs",
        "find take_over",
        &[
            libc::SYS_openat,
            libc::SYS_setgroups,
            libc::SYS_setresgid,
            libc::SYS_setresuid,
            libc::SYS_prctl,
        ],
    ),
    (
        "namespace_of_users",
        "namespace/privilege.rs",
        "try_in_child enter write_map stage effective_capabilities",
        &[
            libc::SYS_capget,
            libc::SYS_unshare,
            libc::SYS_openat,
            libc::SYS_write,
            libc::SYS_statx,
        ],
    ),
    (
        "namespace_of_users",
        "sys.rs",
        "enter_in_child",
        &[
            libc::SYS_clone,
            libc::SYS_unshare,
            libc::SYS_openat,
            libc::SYS_write,
            libc::SYS_mount,
        ],
    ),
    (
        "namespace_as_self",
        "namespace/privilege.rs",
        "enter_user_namespace_of",
        // The first two are those of the namespace that it enters again.
        &[
            libc::SYS_unshare,
            libc::SYS_write,
            libc::SYS_openat,
            libc::SYS_setns,
        ],
    ),
    (
        "first_ports",
        "confine.rs",
        "keep_broker restrict_broker",
        &[
            libc::SYS_clone3,
            libc::SYS_prctl,
            libc::SYS_capget,
            libc::SYS_capset,
            libc::SYS_seccomp,
        ],
    ),
    (
        "first_ports",
        "errand.rs",
        "send_to_helper",
        &[libc::SYS_clone3],
    ),
    (
        "first_ports",
        "port/pcap.rs",
        "open",
        &[libc::SYS_timerfd_create],
    ),
];

/// A process that counts its threads, and forks as the C library does.
const FORK: &[c_long] = &[libc::SYS_openat, libc::SYS_getdents64, libc::SYS_clone];
