//! All functions of the crate that make system calls, and what lets them fail.
//!
//! The list is compared with the source: a new function, or a new file, must be added to it. Each test
//! of this program checks that a call has failed in each function which the list assigns to it, and
//! `tests/processes` that the calls of its functions have failed in their scenarios.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::calls::CALLS_OF;

/// A file below `src`, functions in it, and what lets them fail: a scenario of this program, a scenario
/// of `tests/processes` (`processes NAME`), or nothing, with the reason in brackets.
const SITES: &[(&str, &str, &str)] = &[
    ("clock.rs", "sleep_until precise_wakeups real_time", "clock"),
    (
        "confine.rs",
        "confine restrict_files install_filters",
        "processes confine",
    ),
    (
        "confine.rs",
        "keep_broker restrict_broker",
        "processes first_ports",
    ),
    (
        "confine.rs",
        "privileged_apart",
        "(without a thread, the caller gets the error)",
    ),
    ("contained.rs", "start read", "processes contained"),
    (
        "contained.rs",
        "interrupt",
        "(a signal; the program may have ended)",
    ),
    (
        "contained.rs",
        "is_port_open",
        "(a list that cannot be read has no port)",
    ),
    ("cores.rs", "present on drop", "cores"),
    ("cores/idle.rs", "in_force hold_at", "cores"),
    (
        "descendants.rs",
        "adopt kill parents",
        "(a search that fails is repeated)",
    ),
    ("errand.rs", "send_to_helper", "processes first_ports"),
    ("guardian.rs", "start", "processes guardian"),
    ("guardian.rs", "is_readable", "processes take_over"),
    ("namespace/link.rs", "links converse", "links"),
    (
        "namespace/mod.rs",
        "create current try_clone open enter spawn join",
        "namespace",
    ),
    (
        "namespace/mod.rs",
        "identity",
        "(ports of a namespace that is not recognised take no interface from each other)",
    ),
    (
        "namespace/offload.rs",
        "ethtool_socket ethtool_call",
        "links",
    ),
    (
        "namespace/privilege.rs",
        "try_in_child enter write_map stage effective_capabilities",
        "processes namespace_of_users",
    ),
    (
        "namespace/privilege.rs",
        "obstacle",
        "(after a refusal; a setting that cannot be read is not the reason)",
    ),
    (
        "namespace/privilege.rs",
        "enter_user_namespace_of",
        "processes namespace_as_self",
    ),
    ("namespace/sysctl.rs", "set_sysctl sysctl", "namespace"),
    (
        "namespace/sysctl.rs",
        "interface_settings restore_interface",
        "(a setting that fails is left out)",
    ),
    ("namespace/tcx.rs", "programs", "seat"),
    ("port/inject.rs", "open", "injector"),
    ("port/messages.rs", "receive send", "packet, no ring"),
    ("port/nfqueue.rs", "new", "nfqueue"),
    ("port/nfqueue/interfaces.rs", "name_of", "nfqueue"),
    (
        "port/nfqueue/socket.rs",
        "bind_queue converse netfilter_socket send receive",
        "nfqueue",
    ),
    (
        "port/name_watch.rs",
        "look",
        "(without a handle of the namespace, it is asked later)",
    ),
    ("port/packet.rs", "open_at open_segmenting", "packet"),
    ("port/packet.rs", "group", "group"),
    ("port/packet/absence.rs", "look_for_it", "packet returns"),
    ("port/packet/inward.rs", "count_dropped", "packet"),
    ("port/packet/ring.rs", "open request", "packet"),
    ("port/pcap/create.rs", "create create_capture", "pcap"),
    (
        "port/pcap/create.rs",
        "append_privately",
        "(opens as create_capture does)",
    ),
    ("port/pcap/spec.rs", "of", "pcap"),
    ("port/pcap.rs", "open", "processes first_ports"),
    ("port/pcap.rs", "arm", "(a timer takes every valid time)"),
    ("port/pcap/behind.rs", "start", "pcap"),
    (
        "port/pcap/behind.rs",
        "cut",
        "(after a refused write; the file then ends inside a packet)",
    ),
    ("port/pcap/scan.rs", "open", "pcap"),
    ("port/promiscuous.rs", "join", "packet"),
    (
        "port/promiscuous.rs",
        "leave",
        "(an interface that is gone has no requests)",
    ),
    ("port/promiscuous.rs", "socket", "xdp"),
    (
        "port/remedy.rs",
        "remedy",
        "(after a refusal for lack of privileges)",
    ),
    ("port/tun.rs", "attach set_offloads", "tap"),
    ("port/tun.rs", "try_clone", "(by the standard library)"),
    (
        "port/tun.rs",
        "end_batch",
        "(for a device that was deleted; repeated with the next read)",
    ),
    (
        "port/wait.rs",
        "new pause_after wait_until sleep look",
        "waiter",
    ),
    (
        "port/wait/budget.rs",
        "of_thread lower may_move may_return_to",
        "waiter",
    ),
    ("port/xdp.rs", "open_at", "xdp"),
    ("port/xdp.rs", "open_halves", "xdp halves"),
    ("port/xdp/absence.rs", "take_rings search", "xdp returns"),
    ("port/xdp/program.rs", "call", "xdp"),
    (
        "port/xdp/socket.rs",
        "connect_as wake_receive wake_transmit statistics xdp_socket places bind",
        "xdp",
    ),
    (
        "port/xdp/socket.rs",
        "is_zero_copy",
        "(only beside a card; a failure is the slower mode)",
    ),
    (
        "process.rs",
        "is_session_leader",
        "(a process can always ask for its own session)",
    ),
    (
        "process.rs",
        "spawn enter mount_files create_file drop_capabilities",
        "processes spawn",
    ),
    (
        "process.rs",
        "mount_on_link",
        "(a failure is that of an old kernel, and is ignored)",
    ),
    (
        "process.rs",
        "create_folder",
        "(`tests/processes` lets no such call fail; an error is returned as that of a file)",
    ),
    (
        "process.rs",
        "new empty changed_child",
        "(called before and after the calls that fail; an error is returned at once)",
    ),
    (
        "process.rs",
        "raise set set_for catch next next_within stop_like ignores_hang_up",
        "(limits and signals, at which `tests/processes` lets no call fail)",
    ),
    ("process/guard.rs", "start", "processes guard, watchdog"),
    (
        "process/guard.rs",
        "watch reap receive identity kill_in",
        "processes guard",
    ),
    ("socket/diag.rs", "open connections ended", "sockets"),
    (
        "socket/mod.rs",
        "discard grant_receive_buffer receive_icmp_only",
        "sockets",
    ),
    (
        "socket/mod.rs",
        "poll",
        "(a failure is a time-out, see `sys.rs: poll`)",
    ),
    (
        "socket/stamped.rs",
        "new of_departures receive_from",
        "sockets",
    ),
    ("socket/stamped.rs", "of", "(it makes no call)"),
    ("socket/tcp_info.rs", "read", "sockets"),
    (
        "sys.rs",
        "unshare set_network_namespace network_namespace",
        "namespace",
    ),
    ("sys.rs", "enter_in_child", "processes namespace_of_users"),
    ("sys.rs", "sleep_until", "clock"),
    ("sys.rs", "poll", "nfqueue"),
    ("sys.rs", "set_option_with_addresses option", "xdp"),
    ("sys.rs", "discard", "sockets"),
    ("sys.rs", "event", "xdp returns"),
    ("sys.rs", "map", "packet"),
    (
        "sys/process.rs",
        "other_threads in_child",
        "processes guardian, guard, watchdog",
    ),
    ("sys/process.rs", "close_all_but", "processes guard"),
    (
        "sys/process.rs",
        "fork_as become_child_of_first_process",
        "processes contained",
    ),
    (
        "sys/process.rs",
        "close_some",
        "(what is not open is closed)",
    ),
    (
        "sys/process.rs",
        "block_signals set_signal_mask default_child_signal is_ignored wait_for_signal \
         wait_for_signal_within",
        "(signals, at which `tests/processes` lets no call fail)",
    ),
    ("sys/thread.rs", "set_timer_slack", "clock"),
    ("sys/thread.rs", "of_thread take", "cores"),
    ("sys/thread.rs", "take_short_turns", "waiter"),
    ("sys/thread.rs", "here", "(it makes no call)"),
    ("user.rs", "find take_over", "processes user"),
];

/// What a line with a system call contains. Functions of `sys` that make none are in [`HARMLESS`].
const MARKS: &[&str] = &[
    "libc::",
    "sys::",
    "Affinity::",
    "Scheduling::",
    "rustix::",
    "thread::set_",
    "unistd::",
    "fcntl_",
    "timerfd_",
    "kill_process",
    "fs::",
    "File::",
    "OpenOptions::",
    "Socket::",
    "UnixStream::",
    "UnixDatagram::",
    "Command::",
    "Builder::new",
    "thread::spawn",
    ".spawn(",
    "pipe()",
    "try_clone",
    ".read_exact(",
    ".read_to_string(",
    ".write_all(",
    "recv_from_full(",
    "recvmsg(",
    "sendmsg(",
    "waitid(",
    "getrlimit(",
    "setrlimit(",
    "dup(",
    ".restrict_self(",
    "apply_filter(",
];

/// Functions that make no system call, cannot fail, or are noted where they are called.
const HARMLESS: &[&str] = &[
    "check",
    "clock_ns",
    "signal_set",
    "stamp_ns",
    "control_messages",
    "run_elsewhere",
    "effective_ids",
    "configured_cores",
    "yield_core",
    "geteuid",
    "getegid",
    "clock_gettime",
    "sched_getcpu",
    "sched_yield",
    "sysconf",
    "sigemptyset",
    "sigaddset",
    "WEXITSTATUS",
    "_exit",
    "munmap",
    "__errno_location",
];

/// Returns the functions of one scenario that have not failed.
pub fn missing(scenario: &str, lines: &BTreeSet<(String, usize)>) -> Vec<String> {
    let failed: BTreeSet<(String, String)> = lines
        .iter()
        .filter_map(|(file, line)| Some((file.clone(), function_at(file, *line)?)))
        .collect();
    let rows = SITES.iter().filter(|row| row.2 == scenario);
    rows.flat_map(|(file, functions, _)| functions.split(' ').map(move |name| (*file, name)))
        .filter(|(file, name)| !failed.contains(&((*file).to_owned(), (*name).to_owned())))
        .map(|(file, name)| format!("{file}: {name}"))
        .collect()
}

#[test]
fn the_list_of_system_calls_is_that_of_the_source() {
    let mut listed = BTreeSet::new();
    for (file, functions, _) in SITES {
        for name in functions.split(' ') {
            assert!(
                listed.insert(format!("{file}: {name}")),
                "{file}: {name} is listed twice"
            );
        }
    }
    let mut found = BTreeSet::new();
    for path in sources(Path::new("src")) {
        let file = path.strip_prefix("src").unwrap().display().to_string();
        let text = fs::read_to_string(&path).unwrap();
        for (line, name) in functions(&text) {
            if !name.is_empty() && makes_calls(line) {
                found.insert(format!("{file}: {name}"));
            }
        }
    }
    let new: Vec<_> = found.difference(&listed).collect();
    let old: Vec<_> = listed.difference(&found).collect();
    assert!(
        new.is_empty() && old.is_empty(),
        "not listed: {new:#?}; not in the source: {old:#?}"
    );
}

/// `tests/processes` checks that calls of its functions have failed.
#[test]
fn the_functions_of_processes_are_those_of_its_own_list() {
    let mut ours = BTreeSet::new();
    for (file, functions, what) in SITES {
        let Some(scenarios) = what.strip_prefix("processes ") else {
            continue;
        };
        for scenario in scenarios.split(", ") {
            let named = functions
                .split(' ')
                .map(|name| format!("{scenario}: {file}: {name}"));
            ours.extend(named);
        }
    }
    let mut theirs = BTreeSet::new();
    for (scenario, file, functions, calls) in CALLS_OF {
        assert!(!calls.is_empty(), "{scenario}: {file}: {functions}");
        let named = functions
            .split(' ')
            .map(|name| format!("{scenario}: {file}: {name}"));
        theirs.extend(named);
    }
    assert_eq!(ours, theirs);
}

fn function_at(file: &str, line: usize) -> Option<String> {
    let text = fs::read_to_string(Path::new("src").join(file)).ok()?;
    let mut name = None;
    for (number, text) in (1..=line).zip(text.lines()) {
        let _ = number;
        name = function(text).or(name);
    }
    name.map(str::to_owned)
}

/// Returns the lines of a file without its tests, each with the function that it belongs to.
fn functions(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let code = text
        .split("#[cfg(test)]\nmod tests {")
        .next()
        .unwrap_or_default();
    let mut name = "";
    code.lines().map(move |line| {
        name = function(line).unwrap_or(name);
        (line, name)
    })
}

/// Returns the name of the function that a line begins.
fn function(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let (before, rest) = line.split_once("fn ")?;
    let words = before.split_whitespace();
    let is_head = words.into_iter().all(|word| {
        [
            "pub",
            "pub(crate)",
            "pub(super)",
            "pub(in",
            "const",
            "unsafe",
            "extern",
        ]
        .contains(&word)
    });
    let end = rest.find(['(', '<'])?;
    is_head.then_some(&rest[..end])
}

fn makes_calls(line: &str) -> bool {
    let line = line.split("//").next().unwrap_or_default();
    let is_use = line.trim_start().starts_with("use ") || line.trim_start().starts_with("pub use ");
    if is_use || function(line).is_some() {
        return false;
    }
    MARKS.iter().any(|mark| {
        line.match_indices(mark).any(|(at, _)| {
            let is_word =
                line[..at].ends_with(|before: char| before.is_alphanumeric() || before == '_');
            let call = &line[at + mark.len()..];
            // A path ends with the function; constants and types are not called.
            let path = match mark.ends_with(':') {
                true => call
                    .split(|other: char| !other.is_alphanumeric() && other != '_' && other != ':'),
                false => return !is_word,
            };
            let path = path.into_iter().next().unwrap_or_default();
            let name = path.rsplit("::").next().unwrap_or_default();
            let is_called = call[path.len()..].starts_with('(');
            !is_word && is_called && !HARMLESS.contains(&name)
        })
    })
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if name.ends_with(".rs")
            && !["tests.rs", "fuzz.rs", "live.rs"].contains(&name.as_str())
        {
            found.push(path);
        }
    }
    found
}
