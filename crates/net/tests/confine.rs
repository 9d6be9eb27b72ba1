//! Threads without privileges. Each test runs in a process of its own, which it starts.

use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::process::{Command, ExitStatus};
use std::thread;

use sluice_net::confine::{Keep, Reach, confine, keep_broker, privileged};
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
        confine(Keep::Nothing, Reach::Nothing).unwrap();
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
        confine(Keep::Nothing, Reach::Nothing).unwrap();
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

#[test]
fn a_confined_thread_opens_no_file_but_the_broker_does() {
    if let Some(status) = in_child("a_confined_thread_opens_no_file_but_the_broker_does") {
        assert!(status.success(), "{status}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("own");
    std::fs::write(&path, "secret").unwrap();
    keep_broker().unwrap();
    let thread = thread::spawn(move || {
        let confined = confine(Keep::Nothing, Reach::Nothing).unwrap();
        let refusal = |path: &std::path::Path| std::fs::read(path).err().map(|e| e.kind());
        // Root may read /etc/shadow by its user alone, without a capability.
        let denied = confined
            .has_no_files
            .then_some(std::io::ErrorKind::PermissionDenied);
        assert_eq!(refusal(&path), denied);
        if std::path::Path::new("/etc/shadow").exists() {
            let is_root = rustix::process::geteuid().is_root();
            assert!(!is_root || refusal("/etc/shadow".as_ref()) == denied);
        }
        assert_eq!(std::fs::write(&path, "").is_err(), confined.has_no_files);
        assert_eq!(privileged(|| std::fs::read(&path)).unwrap(), b"secret");
        // Threads that it starts are confined as well.
        let other = thread::spawn(move || std::fs::read(&path).is_err());
        assert_eq!(other.join().unwrap(), confined.has_no_files);
    });
    thread.join().unwrap();
}
