//! What a router refuses is in its log, with the limit, its size and a remedy, and in its status.

use std::io::Read;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, Rlimit, prlimit};

use super::watch::page_of;
use super::*;

/// Waits for a line about a limit, and returns it.
fn hear_limit(running: &mut Running, limit: &str) -> Value {
    loop {
        let value = running.hear_json("limit");
        if value["limit"] == limit {
            return value;
        }
    }
}

#[test]
fn flows_above_the_limit_of_a_rule_are_logged_with_the_rule_and_its_limit() {
    let config = "\
        add 100 allow udp from any to any in limit src-addr 2\n\
        add 200 allow ip from any to any\n";
    let mut running = Running::start(Some(config), &[]);
    let (here, there) = running.sender(&["em0", "far0"]);
    let send = move || {
        for port in 1000..1005 {
            let socket = UdpSocket::bind((here, port)).unwrap();
            socket.send_to(b"hello", (there, 9)).unwrap();
        }
    };
    running.namespace.enter(send).unwrap();
    // Two of five flows have states. A look at the counters may come between the packets.
    let mut lost = 0;
    while lost < 3 {
        let line = hear_limit(&mut running, "states_limit");
        lost += line["lost"].as_u64().unwrap();
        assert_eq!(
            (&line["size"], &line["at"]),
            (&2.into(), &"rule 100".into())
        );
        let text = "flows are above the `limit` of a rule, 2; raise it in the rule";
        assert_eq!(line["text"], text);
    }
    assert_eq!(lost, 3);
    let shown = running.run(&mut Command::new(SLUICE), "router status");
    let shown = text(&shown.stdout);
    assert!(
        shown.contains("refused since the start: states_limit 3\n"),
        "{shown}"
    );
    let status = running.end();
    assert_eq!(status["refused"], serde_json::json!({"states_limit": 3}));
    assert_eq!(status["limits"]["states_limit"], 2);
    assert_eq!(status["last_refused"]["states_limit"], "rule 100");
}

/// A flood makes entries faster than they are written.
#[test]
fn entries_that_the_log_loses_are_counted_and_reported() {
    let config = "\
        sysctl net.inet.ip.fw.verbose=1\n\
        add 100 deny log logamount 0 udp from any to any dst-port 9 in\n\
        add 200 allow ip from any to any\n";
    let mut running = Running::start(Some(config), &[]);
    let (here, there) = running.sender(&["em0", "far0"]);
    let bind = move || UdpSocket::bind((here, 7));
    let socket = running.namespace.enter(bind).unwrap().unwrap();
    let is_enough = Arc::new(AtomicBool::new(false));
    let end = Arc::clone(&is_enough);
    let flood = std::thread::spawn(move || {
        while !end.load(Ordering::Relaxed) {
            // The kernel may have no room for a moment.
            let _ = socket.send_to(b"hello", (there, 9));
        }
    });
    let line = hear_limit(&mut running, "log_lost");
    is_enough.store(true, Ordering::Relaxed);
    flood.join().unwrap();
    // The size of the channel to the thread that writes.
    assert_eq!(line["size"], 4096);
    assert!(line["lost"].as_u64() > Some(0), "{line}");
    let status = running.end();
    let count = |value: &Value| value.as_u64().unwrap();
    assert!(
        status["log_lost"].as_u64() >= line["lost"].as_u64(),
        "{status}"
    );
    // Each denied packet has an entry, which is written or lost.
    assert_eq!(
        count(&status["logged"]) + count(&status["log_lost"]),
        count(&status["dropped"]["denied"])
    );
}

/// The router may not open another file, so that it accepts no connection until it may again.
#[test]
fn connections_that_the_system_does_not_accept_are_counted_and_reported() {
    let mut running = Running::start(None, &["--accept", "--http", "127.0.0.1:0"]);
    let pid = Pid::from_child(running.child.as_ref().unwrap());
    let limits = fs::read_to_string(format!("/proc/{}/limits", pid.as_raw_nonzero())).unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let mut words = line.unwrap().split_whitespace().skip(3);
    let mut next = || words.next().and_then(|word| word.parse::<u64>().ok());
    let (current, maximum) = (next(), next());
    let limit = |current| prlimit(Some(pid), Resource::Nofile, Rlimit { current, maximum });
    // Not lower than the number of any open file: poll(2) refuses more files than the limit.
    let open = |number: &u64| {
        let link = format!("/proc/{}/fd/{number}", pid.as_raw_nonzero());
        fs::symlink_metadata(link).is_ok()
    };
    limit((0..).find(|number| !open(number))).unwrap();
    // One more may be accepted by each socket, by the call that waits for it already.
    let waiting = (
        UnixStream::connect(running.path("s")).unwrap(),
        TcpStream::connect(page_of(&running)).unwrap(),
    );
    let names = ["accept", "http_accept"];
    hear_lost(&mut running, names);
    limit(current).unwrap();
    drop(waiting);
    running.ok("pipe show");
    check_refused(running, names);
}

/// Waits for a line about each of these limits.
fn hear_lost(running: &mut Running, names: [&str; 2]) {
    for name in names {
        let line = hear_limit(running, name);
        assert!(line["lost"].as_u64() > Some(0), "{line}");
    }
}

/// Ends the router, and checks that it refused clients for each of these reasons.
fn check_refused(running: Running, names: [&str; 2]) {
    let status = running.end();
    for name in names {
        let refused = &status["clients_refused"][name];
        assert!(refused.as_u64() > Some(0), "{status}");
    }
}

/// The user of the router may have few threads more than it starts with. Root has no such limit.
#[test]
fn clients_that_get_no_thread_are_answered_counted_and_reported() {
    const USER: &str = "54322";
    assert!(geteuid().is_root(), "only root can become another user");
    let options = ["--accept", "--http", "127.0.0.1:0", "--user", USER];
    let running = Running::start(None, &options);
    let threads = started_threads(&running, USER);
    running.end();

    // Threads come and go, so there are more silent clients than threads for them.
    let mut limited = Command::new("prlimit");
    limited.arg(format!("--nproc={}:", threads + 4)).arg(SLUICE);
    let mut running = Running::start_as(limited, wired(), ["em0", "em1"], None, &options);
    started_threads(&running, USER);
    let connect = |_| UnixStream::connect(running.path("s")).unwrap();
    let mut clients: Vec<UnixStream> = (0..12).map(connect).collect();
    let answer = first_answer(&mut clients);
    let expected = "the router could not start a thread for this client: try again";
    assert!(answer.contains(expected), "{answer}");
    let address = page_of(&running);
    let connect = |_| TcpStream::connect(&address).unwrap();
    let answer = first_answer(&mut (0..12).map(connect).collect::<Vec<TcpStream>>());
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains("no thread could be started"), "{answer}");
    let names = ["thread", "http_thread"];
    hear_lost(&mut running, names);
    drop(clients);
    check_refused(running, names);
}

/// Waits for the last thread of the start, and returns how many threads the user has.
fn started_threads(running: &Running, user: &str) -> usize {
    let pid = running.child.as_ref().unwrap().id();
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        assert!(Instant::now() < deadline, "the router has not started");
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        // A thread may end meanwhile.
        let status = |task: PathBuf| fs::read_to_string(task.join("status")).unwrap_or_default();
        let all: Vec<String> = tasks.map(|task| status(task.unwrap().path())).collect();
        if all
            .iter()
            .any(|status| status.starts_with("Name:\treload\n"))
        {
            let uid = format!("\nUid:\t{user}\t");
            return all.iter().filter(|status| status.contains(&uid)).count();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Returns what is sent to the first of these silent clients that is answered, until its connection is closed.
fn first_answer<S: AsFd + Read>(clients: &mut [S]) -> String {
    let files = clients
        .iter()
        .map(|client| PollFd::new(client, PollFlags::IN));
    let mut files: Vec<PollFd<'_>> = files.collect();
    let patience = Timespec {
        tv_sec: 30,
        tv_nsec: 0,
    };
    assert!(
        poll(&mut files, Some(&patience)).unwrap() > 0,
        "none is answered"
    );
    let first = files.iter().position(|file| !file.revents().is_empty());
    let mut answer = String::new();
    clients[first.unwrap()].read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_start_without_threads_says_which_limit_to_raise() {
    assert!(geteuid().is_root(), "only root can become another user");
    let folder = tempfile::tempdir().unwrap();
    let namespace = wired();
    let mut command = Command::new("prlimit");
    command
        .args(["--nproc=1:", SLUICE, "router", "em0", "em1", "--netns"])
        .arg(format!(
            "/proc/{}/fd/{}",
            std::process::id(),
            namespace.as_fd().as_raw_fd()
        ))
        .arg("--socket")
        .arg(folder.path().join("s"))
        .args(["--user", "54323"]);
    let done = command.output().unwrap();
    let said = text(&done.stderr);
    assert!(
        said.ends_with(
            "sluice: cannot start the thread of the control socket: Resource temporarily unavailable \
             (os error 11); raise the limit of tasks (TasksMax of the unit, or ulimit -u)\n"
        ),
        "{said}"
    );
    assert_eq!(done.status.code(), Some(1));
    assert!(!folder.path().join("s").exists(), "the socket is removed");
}
