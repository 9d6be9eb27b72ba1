//! What the threads of a router may do.

use std::collections::BTreeMap;
use std::fs;
use std::net::{TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Signal, geteuid};
use sluice_net::confine::{Confinement, confine};

use super::watch::page_of;
use super::{Running, wired};

/// The threads that keep what the process had: the broker, and the one that reads a file for it.
const PRIVILEGED: [&str; 2] = ["broker", "files"];
/// No capability, and only CAP_NET_ADMIN, which has the number 12 (linux/capability.h).
const NONE: &str = "0000000000000000";
const NET_ADMIN: &str = "0000000000001000";

/// Reads a field of /proc/PID/task/TID/status.
fn field(status: &str, name: &str) -> String {
    let line = status.lines().find(|line| line.starts_with(name));
    let (_, value) = line.and_then(|line| line.split_once(':')).expect("a field");
    value.trim().to_owned()
}

/// Checks that all threads of a process but [`PRIVILEGED`] have these capabilities and can gain none.
/// Returns the names of all threads.
fn check_threads(process: u32, capabilities: &str) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let check = |task: fs::DirEntry| {
        // The thread of a client that is done may end meanwhile.
        let status = fs::read_to_string(task.path().join("status")).ok()?;
        let name = field(&status, "Name");
        if !PRIVILEGED.contains(&&*name) {
            let sets = ["CapEff", "CapPrm", "CapInh", "CapAmb"].map(|set| field(&status, set));
            assert_eq!(sets, [capabilities, capabilities, NONE, NONE], "{name}");
            assert_eq!(field(&status, "NoNewPrivs"), "1", "{name}");
            // SECCOMP_MODE_FILTER of linux/seccomp.h.
            assert_eq!(field(&status, "Seccomp"), "2", "{name}");
        }
        Some(name)
    };
    tasks.flatten().filter_map(check).collect()
}

/// Checks the threads of a router until the expected ones are there and, besides these, only the broker is
/// privileged: a thread that reads a file for it ends, and has its name at first. Returns the names of all.
fn expect_threads(running: &Running, expected: &[&str]) -> Vec<String> {
    let process = running.child.as_ref().unwrap().id();
    let most_privileged = 1 + usize::from(expected.contains(&"files"));
    let start = Instant::now();
    loop {
        let names = check_threads(process, NONE);
        let is_there = |name: &&str| names.iter().any(|other| other == *name);
        let privileged = names.iter().filter(|name| PRIVILEGED.contains(&&***name));
        if expected.iter().all(is_there) && privileged.count() == most_privileged {
            return names;
        }
        let waited = start.elapsed();
        assert!(
            waited < Duration::from_secs(20),
            "{expected:?} of {names:?}"
        );
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn all_threads_but_the_broker_are_without_privileges() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name| folder.path().join(name).display().to_string();
    let (flows, capture) = (path("flows.json"), format!("pcap::{}", path("out.pcap")));
    let collector = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = collector.local_addr().unwrap().to_string();
    // What a thread can give up here: whether the kernel has Landlock is tested where the files are.
    let confined = thread::spawn(|| confine(Confinement::STRICT).unwrap());
    let mut given_up = vec!["capabilities", "system_calls"];
    given_up.extend(confined.join().unwrap().has_no_files.then_some("files"));
    let interfaces = ["em0", "em1"];
    let starts: [([&str; 2], &[&str], &[&str]); 8] = [
        // This adds the work of the cache warmer.
        (interfaces, &["--spin", "always"], &["router"]),
        (interfaces, &["--workers", "2"], &["router-0", "router-1"]),
        (
            interfaces,
            &["--http", "127.0.0.1:0"],
            &["router", "http", "http-client", "history"],
        ),
        (
            interfaces,
            &["--flow-log", &flows, "--flow-export", &address],
            &["router", "flow-log", "watch"],
        ),
        (interfaces, &["--events", "--rtt"], &["router"]),
        (
            ["packet:em0", "packet:em1"],
            &["--fail-open"],
            &["router", "heartbeat"],
        ),
        (["em0", &capture], &[], &["router", "capture"]),
        (["xdp:em0", "xdp:em1"], &[], &["router"]),
    ];
    for (ports, options, threads) in starts {
        let more = [&["--accept"][..], options].concat();
        let running = Running::start_ports(wired(), ports, None, &more, &[]);
        // Threads of clients, which stay until their connections are closed.
        let _client = UnixStream::connect(running.path("s")).unwrap();
        let has_page = options.contains(&"--http");
        let _visitor = has_page.then(|| TcpStream::connect(page_of(&running)).unwrap());
        running.ok("list");
        let all = ["sluice", "control", "client", "signals", "screen", "reload"];
        let names = expect_threads(&running, &[&all[..], threads].concat());
        let privileged = names
            .iter()
            .filter(|name| PRIVILEGED.contains(&name.as_str()));
        assert_eq!(privileged.collect::<Vec<_>>(), ["broker"]);
        if options.contains(&"--fail-open") {
            // proc_pid_task(5): the children of the thread that starts the router.
            let process = running.child.as_ref().unwrap().id();
            let children = format!("/proc/{process}/task/{process}/children");
            let children = fs::read_to_string(children).unwrap();
            let guardian = children.trim().parse().expect("there is one child");
            assert_eq!(check_threads(guardian, NET_ADMIN), ["guardian"]);
        }
        let status = running.end();
        assert_eq!(status["given_up"], serde_json::json!(given_up), "{ports:?}");
    }
    let running = Running::start(None, &["--accept", "--unconfined"]);
    let pid = running.child.as_ref().unwrap().id();
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    assert_eq!(field(&status, "Seccomp"), "0");
    running.end();
}

/// Only root may be able to read the configuration. The thread ends when it is read.
#[test]
fn a_thread_with_privileges_reads_the_configuration_and_ends() {
    let mut running = Running::start(Some("add 100 allow ip from any to any\n"), &[]);
    let path = running.path("r.conf");
    fs::remove_file(&path).unwrap();
    let made = Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    running.signal(Signal::HUP);
    expect_threads(&running, &["files", "router"]);
    fs::write(&path, "add 200 allow ip from any to any\n").unwrap();
    running.hear(&format!("sluice: {} is active", path.display()));
    let process = running.child.as_ref().unwrap().id();
    let start = Instant::now();
    while check_threads(process, NONE).contains(&"files".to_owned()) {
        let waited = start.elapsed();
        assert!(waited < Duration::from_secs(20), "it does not end");
        thread::sleep(Duration::from_millis(10));
    }
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
