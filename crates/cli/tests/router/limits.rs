//! What a router refuses is in its log, with the limit, its size and a remedy, and in its status.

use std::io::Read;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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

/// The user of the router may have the threads that it starts with, and no other. Root has no such limit.
#[test]
fn clients_that_get_no_thread_are_answered_counted_and_reported() {
    const USER: &str = "54322";
    assert!(geteuid().is_root(), "only root can become another user");
    let options = ["--accept", "--http", "127.0.0.1:0", "--user", USER];
    let running = Running::start(None, &options);
    let pid = running.child.as_ref().unwrap().id();
    let is_of_user = |task: &PathBuf| {
        let status = fs::read_to_string(task.join("status")).unwrap();
        status.contains(&format!("\nUid:\t{USER}\t"))
    };
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let threads = tasks
        .map(|task| task.unwrap().path())
        .filter(is_of_user)
        .count();
    running.end();

    let mut limited = Command::new("prlimit");
    limited.arg(format!("--nproc={threads}:")).arg(SLUICE);
    let mut running = Running::start_as(limited, wired(), ["em0", "em1"], None, &options);
    let client = UnixStream::connect(running.path("s")).unwrap();
    let answer = read_all(client, UnixStream::set_read_timeout);
    let expected = "the router could not start a thread for this client: try again";
    assert!(answer.contains(expected), "{answer}");
    let page = TcpStream::connect(page_of(&running)).unwrap();
    let answer = read_all(page, TcpStream::set_read_timeout);
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains("no thread could be started"), "{answer}");
    let names = ["thread", "http_thread"];
    hear_lost(&mut running, names);
    check_refused(running, names);
}

/// Returns what a server sends until it closes the connection.
fn read_all<S: Read>(
    mut stream: S,
    set_timeout: impl Fn(&S, Option<Duration>) -> std::io::Result<()>,
) -> String {
    set_timeout(&stream, Some(Duration::from_secs(30))).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
