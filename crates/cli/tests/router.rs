//! `sluice router` and `sluice ipfw` as processes, in namespaces that the tests create.
//!
//! These tests need root or its capabilities and fail without them. They run one at a time (`make
//! test-live`).

#[path = "router/bridges.rs"]
mod bridges;
#[path = "router/fail_open.rs"]
mod fail_open;
#[path = "router/flows.rs"]
mod flows;
#[path = "router/limits.rs"]
mod limits;
mod numbered;
#[path = "router/privileges.rs"]
mod privileges;
#[path = "router/reload.rs"]
mod reload;
#[path = "router/rtt.rs"]
mod rtt;
#[path = "router/service.rs"]
mod service;
#[path = "router/single.rs"]
mod single;
#[path = "router/starting.rs"]
mod starting;
#[path = "router/stopped.rs"]
mod stopped;
#[path = "router/terminal.rs"]
mod terminal;
mod verdict;
#[path = "router/watch.rs"]
mod watch;
#[path = "router/workers.rs"]
mod workers;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::UdpSocket;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use serde_json::Value;
use sluice_core::Span;
use sluice_net::cores::IdleLimit;
use sluice_net::namespace::{Mac, Namespace, VethEnd, create_veth};

const SLUICE: &str = env!("CARGO_BIN_EXE_sluice");

/// A router between two interfaces without a peer.
struct Running {
    child: Option<Child>,
    stderr: BufReader<ChildStderr>,
    /// What the router printed when it started.
    heard: String,
    folder: tempfile::TempDir,
    namespace: Namespace,
}

impl Running {
    fn start(config: Option<&str>, more: &[&str]) -> Running {
        Running::start_in(config, more, &[])
    }

    /// Starts a router with these variables in its environment.
    fn start_in(config: Option<&str>, more: &[&str], environment: &[(&str, &str)]) -> Running {
        Running::start_between(wired(), config, more, environment)
    }

    /// Starts a router between `em0` and `em1` of a namespace.
    fn start_between(
        namespace: Namespace,
        config: Option<&str>,
        more: &[&str],
        environment: &[(&str, &str)],
    ) -> Running {
        Running::start_ports(namespace, ["em0", "em1"], config, more, environment)
    }

    /// Starts a router between two ports of a namespace.
    fn start_ports(
        namespace: Namespace,
        ports: [&str; 2],
        config: Option<&str>,
        more: &[&str],
        environment: &[(&str, &str)],
    ) -> Running {
        let mut command = Command::new(SLUICE);
        command.envs(environment.iter().copied());
        Running::start_as(command, namespace, ports, config, more)
    }

    /// Starts a router by a command that lacks its arguments.
    fn start_as(
        mut command: Command,
        namespace: Namespace,
        ports: [&str; 2],
        config: Option<&str>,
        more: &[&str],
    ) -> Running {
        let folder = tempfile::tempdir().unwrap();
        let descriptor = namespace.as_fd().as_raw_fd();
        command
            .args(["router", ports[0], ports[1], "--json", "--netns"])
            .arg(format!("/proc/{}/fd/{descriptor}", std::process::id()))
            .arg("--socket")
            .arg(folder.path().join("s"))
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if let Some(text) = config {
            fs::write(folder.path().join("r.conf"), text).unwrap();
            command.arg("--config").arg(folder.path().join("r.conf"));
        }
        let mut child = command.spawn().expect("the binary starts");
        let stderr = BufReader::new(child.stderr.take().expect("it is a pipe"));
        let mut running = Running {
            child: Some(child),
            stderr,
            heard: String::new(),
            folder,
            namespace,
        };
        let [one, other] = ports;
        running.heard = running.hear(&format!("sluice: routing {one} - {other}"));
        running
    }

    /// Sets these interfaces up, and makes the host behind `far0` a sender. Returns its address and
    /// that of a receiver, which need not exist.
    fn sender(&self, up: &[&str]) -> (&'static str, &'static str) {
        self.sender_at("far0", up)
    }

    fn sender_at(&self, interface: &str, up: &[&str]) -> (&'static str, &'static str) {
        let (here, there) = ("10.0.0.1", "10.0.0.2");
        let mut links = self.namespace.links().unwrap();
        for name in up {
            links.set_up(name, true).unwrap();
        }
        let (own, peer) = (here.parse().unwrap(), there.parse().unwrap());
        links.add_address(interface, own, 24).unwrap();
        let mac = Mac([2, 0, 0, 0, 0, 9]);
        links.add_neighbour(interface, peer, mac).unwrap();
        (here, there)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Waits for a line with this beginning. Returns it with the lines before it.
    fn hear(&mut self, beginning: &str) -> String {
        let mut heard = String::new();
        loop {
            let mut line = String::new();
            let count = self.stderr.read_line(&mut line).unwrap();
            assert!(count > 0, "no `{beginning}` but `{heard}`");
            heard.push_str(&line);
            if line.starts_with(beginning) {
                return heard;
            }
        }
    }

    /// Waits for an object in the log that is of this kind, and returns it.
    fn hear_json(&mut self, kind: &str) -> Value {
        loop {
            let heard = self.hear("{");
            let line = heard.lines().last().expect("it has heard a line");
            let value: Value = serde_json::from_str(line).unwrap();
            if value["log"] == kind {
                return value;
            }
        }
    }

    fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().expect("it runs");
        kill_process(Pid::from_child(child), signal).unwrap();
    }

    /// Runs `ipfw` with words as a shell would split them.
    fn ipfw(&self, words: &str) -> Output {
        self.run(Command::new(SLUICE).arg("ipfw"), words)
    }

    fn run(&self, command: &mut Command, words: &str) -> Output {
        command
            .args(words.split_whitespace())
            .env("SLUICE_SOCKET", self.path("s"))
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .output()
            .expect("the binary starts")
    }

    fn ok(&self, words: &str) -> String {
        let output = self.ipfw(words);
        assert!(output.status.success(), "{words}: {output:?}");
        text(&output.stdout)
    }

    /// Ends the router by SIGTERM and returns what it printed.
    fn end(mut self) -> Value {
        self.signal(Signal::TERM);
        let child = self.child.take().expect("it runs");
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert!(!self.path("s").exists(), "the socket goes with the router");
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Returns a namespace with `em0` and `em1`, and `far0` and `far1` at their other ends.
fn wired() -> Namespace {
    let namespace = Namespace::create("middle").expect("the test may make namespaces");
    let end = |name, number| VethEnd {
        namespace: &namespace,
        name,
        mac: Mac([2, 0, 0, 0, 0, number]),
    };
    create_veth(end("em0", 1), end("far0", 2)).unwrap();
    create_veth(end("em1", 3), end("far1", 4)).unwrap();
    namespace
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns exit status and standard error.
fn refusal(output: &Output) -> (i32, String) {
    (
        output.status.code().expect("it ended by itself"),
        text(&output.stderr),
    )
}

#[test]
fn check_reports_errors_with_their_places_and_runs_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let check = |text: &str| {
        let path = folder.path().join("r.conf");
        fs::write(&path, text).unwrap();
        let mut command = Command::new(SLUICE);
        command.arg("router").arg("--check").arg(&path);
        let output = command.current_dir(&folder).output().unwrap();
        (
            output.status.code(),
            self::text(&output.stderr).replace(path.to_str().unwrap(), "r.conf"),
        )
    };
    let good =
        "# two lines\npipe 1 config bw 10Mbit/s delay 10\nadd 100 pipe 1 ip from any to any\n";
    assert_eq!(check(good), (Some(0), String::new()));
    assert_eq!(
        check("pipe 1 config bw 10Mbit/s\nadd 100 pipe 1 ip from any too any\n"),
        (
            Some(65),
            "sluice: r.conf:2:28: unrecognised option ``too'' (did you mean ``to''?)\n".to_string()
        )
    );
    let (code, errors) = check("pipe 1 config bw 10Mbit/x\nadd 100 pipe 1 ip from any too any\n");
    assert_eq!((code, errors.lines().count()), (Some(65), 2), "{errors}");
    let (code, warning) = check("add 100 pipe 7 ip from any to any\n");
    assert_eq!(code, Some(0));
    assert_eq!(
        warning,
        "sluice: r.conf:1:5: warning: pipe 7 does not exist: packets that match are dropped until it does\n"
    );
}

#[test]
fn signals_reload_the_configuration_and_end_the_router() {
    let mut running = Running::start(
        Some("pipe 1 config bw 10Mbit/s\nadd 100 pipe 1 ip from any to any\n"),
        &[],
    );
    assert_eq!(running.ok("list 100"), "00100 pipe 1 ip from any to any\n");
    running.ok("-q add 200 deny ip from any to any");
    let config = running.path("r.conf");
    fs::write(
        &config,
        "pipe 1 config bw 20Mbit/s\nadd 100 pipe 1 ip from any to any\n",
    )
    .unwrap();
    running.signal(Signal::HUP);
    running.hear(&format!("sluice: {} is active", config.display()));
    assert!(
        running
            .ok("pipe show")
            .starts_with("00001:  20.000 Mbit/s    0 ms burst 0 \n")
    );
    assert!(
        !running.ok("list").contains("00200"),
        "the file has the last word"
    );
    // A file with an error changes nothing.
    fs::write(
        &config,
        "pipe 1 config bw 30Mbit/s\npipe 2 config dealy 3\n",
    )
    .unwrap();
    running.signal(Signal::HUP);
    let expected = format!(
        "sluice: {}:2:15: unrecognised option ``dealy'' (did you mean ``delay''?); the old configuration remains active",
        config.display()
    );
    running.hear(&expected);
    assert!(running.ok("pipe show").starts_with("00001:  20.000 Mbit/s"));
    let status = running.end();
    assert_eq!(status["ports"][1]["name"], "em1");
    assert_eq!(status["dropped"], serde_json::json!({}));
    assert_eq!(status["clients_refused"], serde_json::json!({"reload": 1}));
}

#[test]
fn ipfw_prints_and_exits_as_dummynets_does() {
    let running = Running::start(None, &["--accept"]);
    assert_eq!(running.ok("pipe 1 config bw 10Mbit/s delay 20 codel"), "");
    assert_eq!(
        running.ok("pipe 1 show"),
        "00001:  10.000 Mbit/s   20 ms burst 0 \n\
         q131073  50 sl. 0 flows (1 buckets) sched 65537 weight 0 lmax 0 pri 0  AQM CoDel target 5ms interval 100ms NoECN\n \
         sched 65537 type FIFO flags 0x0 0 buckets 0 active\n"
    );
    assert_eq!(
        running.ok("add 100 set 3 pipe 1 ip from any to any out"),
        "00100 pipe 1 ip from any to any out\n"
    );
    assert_eq!(running.ok("-q add 110 count ip from any to any"), "");
    assert_eq!(
        running.ok("-S list 100"),
        "00100 set 3 pipe 1 ip from any to any out\n"
    );
    assert_eq!(
        running.ok("-a list 100"),
        "00100 0 0 pipe 1 ip from any to any out\n"
    );
    // `-n` checks and changes nothing.
    assert_eq!(running.ok("-n add 120 count ip from any to any"), "");
    assert_eq!(
        refusal(&running.ipfw("-n pipe 1 config bw 10Mbit/s dealy 1")).0,
        65
    );
    for (words, code, message) in [
        (
            "pipe 1 config bw",
            64,
            "ipfw: bw needs bandwidth or interface\n",
        ),
        (
            "pipe 1 config dealy 3",
            65,
            "ipfw: unrecognised option ``dealy'' (did you mean ``delay''?)\n",
        ),
        ("list 120", 69, "ipfw: rule 120 does not exist\n"),
        (
            "queue 9 config weight 5",
            1,
            "ipfw: setsockopt(IP_DUMMYNET_CONFIGURE): Operation not permitted (queue 9 is new: name its scheduler with `pipe M` or `sched M`)\n",
        ),
        (
            "/nowhere.rules",
            69,
            "ipfw: fopen: /nowhere.rules: No such file or directory\n",
        ),
    ] {
        assert_eq!(
            refusal(&running.ipfw(words)),
            (code, message.to_string()),
            "{words}"
        );
    }
    // A warning does not change the exit status.
    let output = running.ipfw("queue 5 config sched 44 weight 2");
    assert_eq!(refusal(&output), (0, "ipfw: warning: scheduler 44 does not exist: packets of queue 5 are dropped until it does\n".into()));
    let state: Value = serde_json::from_str(&running.ok("--json pipe show")).unwrap();
    assert_eq!(state["pipes"][0]["link"]["delay_ns"], 20_000_000);
    // Without a terminal, no question is asked.
    assert_eq!(running.ok("flush"), "Flushed all rules.\n");
    assert_eq!(running.ok("list"), "65535 allow ip from any to any\n");
    running.end();
}

#[test]
fn files_are_the_callers_and_stop_at_the_first_error_or_change_nothing() {
    let running = Running::start(None, &["--accept"]);
    let write = |name: &str, text: &str| fs::write(running.path(name), text).unwrap();
    write(
        "p.txt",
        "samples 10\nloss-level 1\nprob delay\n0 10\n1 20\n",
    );
    write("more", "pipe 2 config bw 2Mbit/s\n");
    write(
        "rules",
        &format!(
            "# a comment\npipe 1 config bw 1Mbit/s profile p.txt\n{}\nadd 10 pipe 2 ip from any to any\npipe 3 config dealy\n",
            running.path("more").display()
        ),
    );
    let path = running.path("rules");
    let path = path.to_str().unwrap();
    let expected =
        "ipfw: Line 5: column 15: unrecognised option ``dealy'' (did you mean ``delay''?)\n";
    assert_eq!(
        refusal(&running.ipfw(&format!("--atomic {path}"))),
        (65, expected.to_string())
    );
    assert_eq!(running.ok("pipe show"), "");
    let output = running.ipfw(path);
    assert_eq!(refusal(&output), (65, expected.to_string()));
    assert_eq!(text(&output.stdout), "00010 pipe 2 ip from any to any\n");
    let shown = running.ok("pipe show");
    assert!(
        shown.contains("profile: name") && shown.contains("00002:   2.000 Mbit/s"),
        "{shown}"
    );
    running.end();
}

#[test]
fn the_binary_is_ipfw_and_dnctl_under_these_names() {
    let running = Running::start(None, &["--accept"]);
    for name in ["ipfw", "dnctl"] {
        symlink(SLUICE, running.path(name)).unwrap();
    }
    let call = |name: &str, words: &str| running.run(&mut Command::new(running.path(name)), words);
    assert!(call("dnctl", "pipe 4 config bw 1Mbit/s").status.success());
    assert!(text(&call("ipfw", "pipe 4 show").stdout).starts_with("00004:   1.000 Mbit/s"));
    assert_eq!(
        refusal(&call("dnctl", "add allow ip from any to any")),
        (64, "dnctl: bad command `add'\n".into())
    );
    running.end();
    let output = Command::new(SLUICE)
        .args(["ipfw", "--socket", "/nowhere/s", "pipe", "show"])
        .output()
        .unwrap();
    let (code, message) = refusal(&output);
    assert_eq!(code, 75);
    assert!(
        message.starts_with("sluice: no router listens at /nowhere/s (No such file"),
        "{message}"
    );
}

/// Four packets match a rule with a limit of two: two entries are written and sent to syslog.
#[test]
fn log_rules_reach_standard_error_and_syslog_up_to_their_limit() {
    let temp = tempfile::tempdir().unwrap();
    let daemon = UnixDatagram::bind(temp.path().join("log")).unwrap();
    let config = "\
        sysctl net.inet.ip.fw.verbose=1\n\
        add 100 deny log logamount 2 udp from any to any dst-port 9 in\n\
        add 200 allow ip from any to any\n";
    let syslog = format!("--syslog={}", temp.path().join("log").display());
    let mut router = Running::start(Some(config), &[&syslog]);
    let (here, there) = router.sender(&["em0", "far0"]);
    let send = move || {
        let socket = UdpSocket::bind((here, 7)).unwrap();
        for _ in 0..4 {
            socket.send_to(b"hello", (there, 9)).unwrap();
        }
    };
    router.namespace.enter(send).unwrap();
    let (first, last) = (router.hear_json("ipfw"), router.hear_json("ipfw"));
    assert_eq!(first["rule"], 100);
    assert_eq!(first["source"], here);
    assert_eq!(first["source_port"], 7);
    assert_eq!(first["destination_port"], 9);
    assert_eq!(first["interface"], "em0");
    assert!(first["limit"].is_null());
    // 20 bytes of IPv4, 8 of UDP, 5 of payload.
    assert_eq!(first["bytes"], 33);
    assert_eq!(last["limit"], 2);
    let heard = || {
        let mut buffer = [0; 256];
        let length = daemon.recv(&mut buffer).unwrap();
        text(&buffer[..length])
    };
    let line = "<38>ipfw: 100 Deny UDP 10.0.0.1:7 10.0.0.2:9 in via em0";
    assert_eq!([heard(), heard()], [line; 2]);
    assert_eq!(heard(), "<38>ipfw: limit 2 reached on entry 100");
    let status = router.end();
    assert_eq!(status["logged"], 2);
    assert_eq!(status["log_lost"], 0);
    assert_eq!(status["dropped"]["denied"], 4);
}

#[test]
fn the_idle_limit_ends_however_the_router_ends() {
    let in_force = || IdleLimit::in_force().expect("root may read what is in force");
    // Longer than any exit latency, so that the test changes nothing for others. Where limits
    // differ, the smallest applies.
    let asked = Span::from_us(1_234_567);
    let before = in_force();
    let held = Some(before.map_or(asked, |before| before.min(asked)));
    let start = || Running::start(None, &["--accept", "--cpu-latency", "1234567us"]);

    let running = start();
    assert_eq!(in_force(), held);
    assert!(
        running.heard.contains(
            "sluice: all cores of this machine are kept out of idle states that take longer than 1234567 us to leave\n"
        ),
        "{}",
        running.heard
    );
    assert_eq!(running.end()["cpu_latency_ns"], asked.as_ns());
    assert_eq!(in_force(), before);

    let mut running = start();
    assert_eq!(in_force(), held);
    running.signal(Signal::KILL);
    let mut child = running.child.take().expect("it runs");
    assert!(!child.wait().unwrap().success());
    assert_eq!(in_force(), before, "the kernel has taken it back");

    let running = Running::start(None, &["--accept"]);
    assert_eq!(in_force(), before, "nobody has asked");
    assert_eq!(running.end()["cpu_latency_ns"], Value::Null);
}

#[test]
fn interfaces_are_promiscuous_as_long_as_the_router_lives() {
    let is_promiscuous = |running: &Running| {
        let mut links = running.namespace.links().unwrap();
        ["em0", "em1"].map(|name| links.interface(name).unwrap().is_promiscuous)
    };
    // A packet port requests it by the socket with which it receives, an AF_XDP port by another one.
    for ports in [["packet:em0", "packet:em1"], ["xdp:em0", "xdp:em1"]] {
        let start = || Running::start_ports(wired(), ports, None, &["--accept"], &[]);
        let mut running = start();
        assert_eq!(is_promiscuous(&running), [true; 2], "{ports:?}");
        assert!(!running.heard.contains("promiscuous"), "{}", running.heard);
        running.signal(Signal::KILL);
        let mut child = running.child.take().expect("it runs");
        assert!(!child.wait().unwrap().success());
        assert_eq!(
            is_promiscuous(&running),
            [false; 2],
            "{ports:?}: the kernel has taken it back"
        );

        let status = start().end();
        for port in 0..2 {
            assert_eq!(status["ports"][port]["promiscuous"], true, "{status}");
        }
    }
}

#[test]
fn a_busy_polling_router_reports_its_warmth_requests() {
    let running = Running::start(None, &["--accept", "--spin", "always"]);
    let start = Instant::now();
    loop {
        let shown = running.run(&mut Command::new(SLUICE), "router status --json");
        let sample: Value = serde_json::from_slice(&shown.stdout).unwrap();
        if sample["status"]["warmth_requests"].as_u64() > Some(0) {
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "{sample}");
    }
    let status = running.end();
    assert!(
        status["warmth_requests"].as_u64() > Some(0),
        "{}",
        status["warmth_requests"]
    );
    let status = Running::start(None, &["--accept"]).end();
    assert_eq!(status["warmth_requests"], Value::Null);
}

#[test]
fn a_router_does_not_start_without_the_requested_idle_limit() {
    assert!(geteuid().is_root(), "only root can become another user");
    let folder = tempfile::tempdir().unwrap();
    let open =
        |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    open(folder.path(), 0o755);
    // A copy, where every user may run it.
    let sluice = folder.path().join("sluice");
    fs::copy(SLUICE, &sluice).unwrap();
    open(&sluice, 0o755);
    let mut command = Command::new(&sluice);
    command.args(["router", "left", "right", "--cpu-latency", "0us"]);
    let output = command.uid(65534).output().expect("the binary starts");
    let expected = "sluice: cannot limit the idle states of cores: /dev/cpu_dma_latency: Permission denied (os error 13); run as root, or give a group of this user write access to the device; a container must be given the device too\n";
    assert_eq!(refusal(&output), (1, expected.to_owned()));
}

#[test]
fn another_user_is_refused_even_where_the_socket_is_open_to_all() {
    assert!(geteuid().is_root(), "only root can become another user");
    let running = Running::start(None, &["--accept"]);
    let open =
        |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    open(running.folder.path(), 0o755);
    // A copy, where every user may run it.
    fs::copy(SLUICE, running.path("ipfw")).unwrap();
    open(&running.path("ipfw"), 0o755);
    let mut as_nobody = Command::new(running.path("ipfw"));
    let output = running.run(as_nobody.uid(65534), "pipe show");
    let (_, said) = refusal(&output);
    assert!(
        said.starts_with("ipfw: this user may not use the socket ")
            && said.contains(" (Permission denied"),
        "{said}"
    );
    open(&running.path("s"), 0o666);
    let mut as_nobody = Command::new(running.path("ipfw"));
    let output = running.run(as_nobody.uid(65534), "pipe show");
    assert_eq!(
        refusal(&output),
        (77, "ipfw: this router belongs to another user\n".into())
    );
    let status = running.end();
    let refused = serde_json::json!({"other_user": 1});
    assert_eq!(status["clients_refused"], refused);
}

#[test]
fn abuse_of_the_socket_leaves_the_router_as_it_was() {
    let running = Running::start(None, &["--accept"]);
    let connect = || UnixStream::connect(running.path("s")).unwrap();
    let mut flood = Vec::new();
    for round in 0..300 {
        let mut stream = connect();
        stream
            .set_write_timeout(Some(Duration::from_millis(100)))
            .unwrap();
        let _ = match round % 3 {
            0 => stream.write_all(b"{\"do\":\"commands\",\"commands\":\"pipe 1 con"),
            1 => stream.write_all(&vec![0xff; 100_000]),
            _ => Ok(()),
        };
        flood.push(stream);
        if round % 50 == 49 {
            assert_eq!(running.ok("list"), "65535 allow ip from any to any\n");
        }
    }
    drop(flood);
    assert_eq!(running.ok("pipe show"), "");
    let status = running.end();
    assert_eq!(status["commands"], 7, "{status}");
}
