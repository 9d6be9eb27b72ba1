//! What the threads of a router may do.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;

use rustix::process::{Signal, geteuid};

use super::Running;

/// Reads a field of /proc/PID/task/TID/status.
fn field(status: &str, name: &str) -> String {
    let line = status.lines().find(|line| line.starts_with(name));
    let (_, value) = line.and_then(|line| line.split_once(':')).expect("a field");
    value.trim().to_owned()
}

#[test]
fn all_threads_but_the_broker_are_without_privileges() {
    // The last option adds the work of the cache warmer.
    let running = Running::start(None, &["--accept", "--spin", "always"]);
    // A client's thread, which stays until its connection is closed.
    let _client = UnixStream::connect(running.path("s")).unwrap();
    running.ok("list");
    let pid = running.child.as_ref().unwrap().id();
    let mut brokers = 0;
    let mut others = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten() {
        // The thread of a client that is done may end meanwhile.
        let Ok(status) = fs::read_to_string(task.path().join("status")) else {
            continue;
        };
        let name = field(&status, "Name");
        if name == "broker" {
            brokers += 1;
            continue;
        }
        let capabilities = ["CapEff", "CapPrm", "CapInh", "CapAmb"].map(|set| field(&status, set));
        assert_eq!(capabilities, ["0000000000000000"; 4], "{name}");
        assert_eq!(field(&status, "NoNewPrivs"), "1", "{name}");
        // SECCOMP_MODE_FILTER of linux/seccomp.h.
        assert_eq!(field(&status, "Seccomp"), "2", "{name}");
        others.push(name);
    }
    assert_eq!(brokers, 1);
    for name in ["sluice", "router", "control", "client", "signals"] {
        assert!(
            others.iter().any(|other| other == name),
            "{name} of {others:?}"
        );
    }
    let status = running.end();
    let given_up = status["given_up"].as_array().unwrap();
    assert!(given_up.contains(&"capabilities".into()), "{status}");
    let running = Running::start(None, &["--accept", "--unconfined"]);
    let pid = running.child.as_ref().unwrap().id();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    assert_eq!(field(&status, "Seccomp"), "0");
    running.end();
}

#[test]
fn all_threads_but_the_broker_become_the_given_user() {
    assert!(geteuid().is_root(), "only root can become another user");
    // No user has this number, and the configuration can be read by root alone.
    let rules = "add allow ip from any to any\n";
    let mut running = Running::start(Some(rules), &["--user", "54321"]);
    let _client = UnixStream::connect(running.path("s")).unwrap();
    let private = fs::Permissions::from_mode(0o600);
    fs::set_permissions(running.path("r.conf"), private).unwrap();
    fs::write(running.path("r.conf"), "add 7 allow ip from any to any\n").unwrap();
    running.signal(Signal::HUP);
    let config = running.path("r.conf");
    running.hear(&format!("sluice: {} is active", config.display()));
    assert!(running.ok("list").starts_with("00007 allow"));
    let pid = running.child.as_ref().unwrap().id();
    let mut users = BTreeMap::<String, Vec<String>>::new();
    for task in fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten() {
        let Ok(status) = fs::read_to_string(task.path().join("status")) else {
            continue;
        };
        let user = ["Uid", "Gid", "Groups"].map(|name| field(&status, name));
        let names = users.entry(user.join(" ")).or_default();
        names.push(field(&status, "Name"));
    }
    let other = users.remove("54321\t54321\t54321\t54321 54321\t54321\t54321\t54321 ");
    let other = other.expect("the user's threads");
    for name in ["sluice", "router", "control", "client", "signals"] {
        assert!(
            other.iter().any(|other| other == name),
            "{name} of {other:?}"
        );
    }
    let all: Vec<&String> = users.values().flatten().collect();
    assert_eq!(all, ["broker"]);
    let status = running.end();
    let given_up = status["given_up"].as_array().unwrap();
    assert!(given_up.contains(&"user".into()), "{status}");
}
