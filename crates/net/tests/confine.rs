//! Threads without privileges. Each test runs in a process of its own, which it starts.

use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, ExitStatus};
use std::thread;

use sluice_net::confine::{Keep, confine, keep_broker};
use sluice_net::namespace::Namespace;

/// Runs the test `name` again in a child, with a variable that is its role.
fn in_child(name: &str) -> Option<ExitStatus> {
    if std::env::var_os(ROLE).is_some() {
        return None;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([name, "--exact"]).env(ROLE, "1");
    Some(command.status().unwrap())
}

const ROLE: &str = "SLUICE_TEST_IN_CHILD";

#[test]
fn an_execve_of_a_confined_thread_kills_the_process() {
    if let Some(status) = in_child("an_execve_of_a_confined_thread_kills_the_process") {
        assert_eq!(status.signal(), Some(libc::SIGSYS), "{status}");
        return;
    }
    let thread = thread::spawn(|| {
        confine(Keep::Nothing).unwrap();
        // Without the filter, this process becomes `true` and ends with status 0.
        Command::new("/bin/true").exec()
    });
    panic!("{:?}", thread.join());
}

#[test]
fn a_confined_thread_gets_into_a_namespace_by_the_broker_only() {
    if let Some(status) = in_child("a_confined_thread_gets_into_a_namespace_by_the_broker_only") {
        assert!(status.success(), "{status}");
        return;
    }
    let namespace = Namespace::create("other").expect("the test may make namespaces");
    keep_broker().unwrap();
    let thread = thread::spawn(move || {
        confine(Keep::Nothing).unwrap();
        // Files and other calls work as before, and so do threads.
        std::fs::read_to_string("/proc/self/status").unwrap();
        let links = namespace.links().unwrap().interfaces().unwrap();
        assert_eq!(links.len(), 1, "only the loopback: {links:?}");
        let named = namespace.enter(|| thread::current().name().map(str::to_owned));
        assert_eq!(named.unwrap().as_deref(), Some("broker"));
        let panics = std::panic::catch_unwind(|| namespace.enter(|| panic!("passed on")));
        assert!(panics.is_err());
        assert!(namespace.enter(|| ()).is_ok(), "the broker is still there");
    });
    thread.join().unwrap();
}
