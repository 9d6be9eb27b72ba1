//! `sluice router --forward` as a process: a kernel that routes between two hosts, and whose
//! packets the router queues.
//!
//! These tests need root or its capabilities and fail without them. They create all namespaces
//! that they change.

mod numbered;
#[path = "forward/workers.rs"]
mod workers;

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sluice_net::namespace::{Mac, Namespace, VethEnd, create_veth};
use sluice_net::port::NfqueuePort;
use sluice_net::port::nfqueue::{Hook, IfDead, NfqueueOptions, Traffic};

const SLUICE: &str = env!("CARGO_BIN_EXE_sluice");
const H2: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 41, 2, 2));
const H3: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 41, 3, 2));
const R2: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 41, 2, 1));
const R3: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 41, 3, 1));

/// Two hosts in different networks, and a kernel that routes between them.
struct Network {
    h2: Namespace,
    middle: Namespace,
    h3: Namespace,
    folder: tempfile::TempDir,
}

impl Network {
    fn new() -> Network {
        let create = |name| Namespace::create(name).expect("the test may create namespaces");
        let network = Network {
            h2: create("h2"),
            middle: create("middle"),
            h3: create("h3"),
            folder: tempfile::tempdir().unwrap(),
        };
        for namespace in [&network.h2, &network.middle, &network.h3] {
            namespace.silence_ipv6().unwrap();
            namespace.links().unwrap().set_up("lo", true).unwrap();
        }
        let ends = [
            (&network.h2, 2, "r2", H2, R2),
            (&network.h3, 3, "r3", H3, R3),
        ];
        for (host, number, port, address, gateway) in ends {
            let end = |namespace, name, number| VethEnd {
                namespace,
                name,
                mac: Mac([2, 0, 0, 0, 0, number]),
            };
            create_veth(
                end(host, "eth0", number),
                end(&network.middle, port, number + 10),
            )
            .unwrap();
            let mut links = host.links().unwrap();
            links.set_up("eth0", true).unwrap();
            links.add_address("eth0", address, 24).unwrap();
            let mut middle = network.middle.links().unwrap();
            middle.set_up(port, true).unwrap();
            middle.add_address(port, gateway, 24).unwrap();
            let anywhere = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
            links
                .add_route("eth0", anywhere, 0, Some(gateway), None)
                .unwrap();
        }
        network
            .middle
            .set_sysctl("net.ipv4.ip_forward", "1")
            .unwrap();
        network
    }

    /// A socket of h2 that sends to one of h3.
    fn sockets(&self) -> (UdpSocket, UdpSocket) {
        let sender = self.h2.enter(|| UdpSocket::bind((H2, 0)).unwrap()).unwrap();
        let receiver = self.h3.enter(|| UdpSocket::bind((H3, 0)).unwrap()).unwrap();
        sender.connect(receiver.local_addr().unwrap()).unwrap();
        receiver
            .set_read_timeout(Some(Duration::from_millis(300)))
            .unwrap();
        (sender, receiver)
    }

    /// Returns whether packets pass from h2 to h3: whether one of a few does.
    fn passes(&self) -> bool {
        let (sender, receiver) = self.sockets();
        (0..4).any(|_| {
            // A full or unattended queue can refuse the packet.
            let _ = sender.send(b"probe");
            receiver.recv(&mut [0; 16]).is_ok()
        })
    }

    fn command(&self, words: &[&str]) -> Command {
        let descriptor = self.middle.as_fd().as_raw_fd();
        let mut command = Command::new(SLUICE);
        command
            .args([words[0], "--netns"])
            .arg(format!("/proc/{}/fd/{descriptor}", std::process::id()))
            .arg("--socket")
            .arg(self.path("s"))
            .args(&words[1..])
            .stdin(Stdio::null());
        command
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts a router of this network's middle.
    fn start(&self, words: &[&str]) -> Running {
        let mut command = self.command(words);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary starts");
        let stderr = BufReader::new(child.stderr.take().expect("it is a pipe"));
        let mut running = Running {
            child,
            stderr,
            heard: String::new(),
        };
        running.hear("sluice: routing ");
        running
    }

    /// Runs a router that is expected to refuse its arguments.
    fn refused(&self, words: &[&str]) -> String {
        let Output { status, stderr, .. } = self.command(words).output().unwrap();
        assert!(!status.success(), "{words:?}");
        String::from_utf8(stderr).unwrap()
    }
}

struct Running {
    child: Child,
    stderr: BufReader<ChildStderr>,
    heard: String,
}

impl Running {
    /// Reads up to the line with this beginning.
    fn hear(&mut self, beginning: &str) {
        loop {
            let mut line = String::new();
            let count = self.stderr.read_line(&mut line).unwrap();
            assert!(count > 0, "no `{beginning}` but `{}`", self.heard);
            self.heard.push_str(&line);
            if line.starts_with(beginning) {
                return;
            }
        }
    }

    fn end(mut self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_kernel_routes_and_rules_decide_by_its_interfaces() {
    let network = Network::new();
    // A forwarded packet crosses the rules on its way in and on its way out.
    let config = "add 100 count ip from any to any in recv r2\n\
                  add 200 count ip from any to any out recv r2 xmit r3\n\
                  add 300 deny udp from any to any dst-port 9 out xmit r3\n\
                  add 400 deny ip from any to any in xmit r3\n\
                  add 500 allow ip from any to any\n";
    fs::write(network.path("c"), config).unwrap();
    let path = network.path("c");
    let router = network.start(&[
        "router",
        "--forward",
        "r3",
        "--config",
        path.to_str().unwrap(),
    ]);
    assert!(network.passes());
    let (sender, receiver) = network.sockets();
    let closed = network.h3.enter(|| UdpSocket::bind((H3, 9)).unwrap());
    let closed = closed.unwrap();
    closed
        .set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    let _ = sender.send_to(b"denied", (H3, 9));
    assert!(closed.recv(&mut [0; 16]).is_err());
    sender.send(b"allowed").unwrap();
    assert_eq!(receiver.recv(&mut [0; 16]).unwrap(), 7);
    let shown = Command::new(SLUICE)
        .args(["ipfw", "show"])
        .env("SLUICE_SOCKET", network.path("s"))
        .output()
        .unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    let count = |rule: &str| -> u64 {
        let line = shown.lines().find(|line| line.starts_with(rule));
        let line = line.unwrap_or_else(|| panic!("{shown}"));
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    assert!(count("00100") >= 3, "{shown}");
    assert_eq!(count("00100"), count("00200"), "{shown}");
    assert_eq!(count("00300"), 1, "{shown}");
    assert_eq!(count("00400"), 0, "{shown}");
    router.end(Signal::INT);
    assert!(network.passes());
}

#[test]
fn a_firewall_of_the_user_stays_in_force() {
    let network = Network::new();
    let router = network.start(&["router", "--forward", "--accept"]);
    assert!(network.passes());
    // Rules of another table, for packets to which nobody ever gives a verdict.
    let options = NfqueueOptions {
        number: 7,
        traffic: Some(Traffic {
            hooks: vec![Hook::Forward],
            entering: vec!["r2".into()],
            ..Traffic::default()
        }),
        if_dead: IfDead::Closed,
        ..NfqueueOptions::default()
    };
    let firewall = NfqueuePort::open(&network.middle, &options).unwrap();
    assert!(!network.passes());
    router.end(Signal::INT);
    assert!(!network.passes(), "Sluice removed a table of somebody else");
    drop(firewall);
    assert!(network.passes());
}

#[test]
fn packets_pass_after_a_kill_and_the_next_start_takes_over() {
    let network = Network::new();
    let words = ["router", "--forward", "r2,r3", "--accept"];
    network.start(&words).end(Signal::KILL);
    assert!(network.passes());
    let again = network.start(&words);
    assert!(network.passes());
    again.end(Signal::TERM);
    assert!(network.passes());
}

#[test]
fn a_closed_router_drops_after_a_kill_until_the_next_start() {
    let network = Network::new();
    let words = ["router", "--forward", "r3", "--accept", "--fail", "closed"];
    network.start(&words).end(Signal::KILL);
    assert!(!network.passes());
    let again = network.start(&words);
    let remark = "replaced the nft table that a killed router had left";
    assert!(again.heard.contains(remark), "{}", again.heard);
    assert!(network.passes());
    again.end(Signal::INT);
    assert!(network.passes(), "the rules disappear with an orderly end");
    let fresh = network.start(&words);
    assert!(!fresh.heard.contains(remark), "{}", fresh.heard);
    fresh.end(Signal::INT);
}

/// Checks the rate of a pipe that `senders` sockets fill, with so many workers.
fn hold_rate(workers: &str, senders: usize) {
    let network = Network::new();
    let config = "pipe 1 config bw 10Mbit/s queue 1000\n\
                  add 100 pipe 1 udp from any to any out xmit r3\n\
                  add 200 allow ip from any to any\n";
    fs::write(network.path("c"), config).unwrap();
    let path = network.path("c");
    let router = network.start(&[
        "router",
        "--forward",
        "r3",
        "--config",
        path.to_str().unwrap(),
        "--workers",
        workers,
    ]);
    let (sender, receiver) = network.sockets();
    // Packets wait here while the test does not run.
    rustix::net::sockopt::set_socket_recv_buffer_size_force(&receiver, 64 << 20).unwrap();
    let patience = Some(Duration::from_secs(5));
    receiver.set_read_timeout(patience).unwrap();
    let more = (1..senders).map(|_| {
        let more = network
            .h2
            .enter(|| UdpSocket::bind((H2, 0)).unwrap())
            .unwrap();
        more.connect(receiver.local_addr().unwrap()).unwrap();
        more
    });
    let senders: Vec<UdpSocket> = std::iter::once(sender).chain(more).collect();
    // More than twice the rate is offered, and the queue holds 0.8 s, so it does not drain if the sender
    // is delayed.
    let stop = std::sync::atomic::AtomicBool::new(false);
    let late = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                for sender in senders.iter().cycle().take(16) {
                    let _ = sender.send(&[0; 1000]);
                }
                std::thread::sleep(Duration::from_millis(4));
            }
        });
        let (mut room, begin) = ([0; 1500], Instant::now());
        let late = (0..2 * WINDOW + PACKETS).map(|number| {
            let due = Duration::from_nanos(SLOT_NS * u64::from(number)).as_secs_f64();
            let received = receiver.recv(&mut room);
            received.map(|_| begin.elapsed().as_secs_f64() - due)
        });
        let late: std::io::Result<Vec<f64>> = late.collect();
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        late.unwrap()
    });
    router.end(Signal::INT);
    // A thread that is held up makes packets later than the link's clock, never earlier. The least lateness of
    // 0.4 s is that of the link. The first packets find an empty queue.
    let window = WINDOW as usize;
    let (first, last) = (&late[window..2 * window], &late[late.len() - window..]);
    let least = |window: &[f64]| window.iter().copied().fold(f64::INFINITY, f64::min);
    let expected = Duration::from_nanos(SLOT_NS * u64::from(PACKETS)).as_secs_f64();
    let off = (least(last) - least(first)) / expected;
    assert!(off.abs() < 0.01, "{off:+.4}");
}

#[test]
fn the_rate_of_a_pipe_is_held() {
    hold_rate("1", 1);
}

#[test]
fn the_rate_of_a_pipe_that_workers_share_is_held() {
    hold_rate("2", 8);
}

/// 1000 bytes are 1028 with the headers of IPv4 and UDP: 0.8224 ms at 10 Mbit/s.
const SLOT_NS: u64 = 822_400;
/// 2.5 seconds of 10 Mbit/s.
const PACKETS: u32 = 3040;
/// The packets before the measurement, and those at each of its ends whose least lateness counts.
const WINDOW: u32 = 500;

#[test]
fn traffic_of_the_machine_itself_is_queued_in_both_directions() {
    let network = Network::new();
    let config = "add 100 count udp from any to any in recv r3\n\
                  add 200 count udp from any to any out xmit r3\n\
                  add 300 allow ip from any to any\n";
    fs::write(network.path("c"), config).unwrap();
    let path = network.path("c");
    let router = network.start(&[
        "router",
        "--local",
        "r3",
        "--config",
        path.to_str().unwrap(),
    ]);
    let own = network.middle.enter(|| UdpSocket::bind((R3, 0)).unwrap());
    let (own, peer) = (
        own.unwrap(),
        network
            .h3
            .enter(|| UdpSocket::bind((H3, 0)).unwrap())
            .unwrap(),
    );
    for socket in [&own, &peer] {
        socket
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
    }
    own.send_to(b"there", peer.local_addr().unwrap()).unwrap();
    peer.recv(&mut [0; 16]).unwrap();
    peer.send_to(b"back", own.local_addr().unwrap()).unwrap();
    own.recv(&mut [0; 16]).unwrap();
    let shown = Command::new(SLUICE)
        .args(["ipfw", "show"])
        .env("SLUICE_SOCKET", network.path("s"))
        .output()
        .unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    for rule in ["00100", "00200"] {
        let line = shown.lines().find(|line| line.starts_with(rule)).unwrap();
        assert_eq!(line.split_whitespace().nth(1), Some("1"), "{shown}");
    }
    router.end(Signal::INT);
}

#[test]
fn one_command_shapes_both_directions_and_restores_all() {
    let network = Network::new();
    let shape = ["shape", "r3", "--up", "18Mbit/s", "--down", "90Mbit/s"];
    let router = network.start(&shape);
    for line in ["pipe 1 config bw 18Mbit/s", "out xmit r3", "in recv r3"] {
        assert!(router.heard.contains(line), "{}", router.heard);
    }
    assert!(network.passes());
    let shown = Command::new(SLUICE)
        .args(["ipfw", "--json", "show"])
        .env("SLUICE_SOCKET", network.path("s"))
        .output()
        .unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("queue 1"), "{shown}");
    router.end(Signal::INT);
    assert!(network.passes());
}

#[test]
fn one_command_shapes_with_several_workers() {
    let network = Network::new();
    let shape = "shape r3 --up 18Mbit/s --down 90Mbit/s --workers 2";
    let router = network.start(&shape.split(' ').collect::<Vec<_>>());
    assert!(router.heard.contains("--workers 2"), "{}", router.heard);
    assert!(network.passes());
    let shown = Command::new(SLUICE)
        .args(["router", "status", "--json"])
        .env("SLUICE_SOCKET", network.path("s"))
        .output()
        .unwrap();
    let sample: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    let status = &sample["status"];
    assert_eq!(status["workers"].as_array().unwrap().len(), 2, "{status}");
    assert_eq!(status["ports"][0]["kind"], "nfqueue", "{status}");
    router.end(Signal::INT);
    assert!(network.passes());
}

#[test]
fn only_the_loops_keep_one_capability_and_the_status_says_so() {
    let starts = [
        ("router --forward r3 --accept", 1),
        ("router --local r3 --accept --workers 2", 2),
        ("shape r3 --up 18Mbit/s", 1),
    ];
    for (words, workers) in starts {
        let network = Network::new();
        let router = network.start(&words.split(' ').collect::<Vec<_>>());
        let mut loops = 0;
        let tasks = fs::read_dir(format!("/proc/{}/task", router.child.id())).unwrap();
        for task in tasks.flatten() {
            // A thread may end meanwhile.
            let Ok(status) = fs::read_to_string(task.path().join("status")) else {
                continue;
            };
            let field = |name: &str| {
                let line = status.lines().find(|line| line.starts_with(name));
                let value = line.and_then(|line| line.split_whitespace().nth(1));
                value.expect("a field with a value").to_owned()
            };
            let name = field("Name:");
            if name == "broker" {
                continue;
            }
            let is_loop = name.starts_with("router");
            loops += usize::from(is_loop);
            // CAP_NET_ADMIN has the number 12 (linux/capability.h).
            let kept = if is_loop { 1 << 12 } else { 0 };
            for set in ["CapEff:", "CapPrm:"] {
                let held = u64::from_str_radix(&field(set), 16).unwrap();
                assert_eq!(held, kept, "{set} of {name}: {words}");
            }
            // 2 is a filter (SECCOMP_MODE_FILTER of linux/seccomp.h).
            assert_eq!(field("NoNewPrivs:"), "1", "{name}: {words}");
            assert_eq!(field("Seccomp:"), "2", "{name}: {words}");
        }
        assert_eq!(loops, workers, "{words}");
        let shown = Command::new(SLUICE)
            .args(["router", "status", "--json"])
            .env("SLUICE_SOCKET", network.path("s"))
            .output()
            .unwrap();
        let sample: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
        let given_up = sample["status"]["given_up"].as_array().unwrap();
        assert!(
            given_up.contains(&"capabilities_but_net_admin".into()),
            "{given_up:?}"
        );
        assert!(!given_up.contains(&"capabilities".into()), "{given_up:?}");
        router.end(Signal::INT);
    }
}

#[test]
fn mistakes_are_refused_with_what_would_be_right() {
    let network = Network::new();
    let refused = network.refused(&["router", "--forward", "eth7", "--accept"]);
    assert!(refused.contains("no interface \"eth7\""), "{refused}");
    assert!(
        refused.contains("r2, r3") || refused.contains("r3, r2"),
        "{refused}"
    );
    let different = network.refused(&["router", "--forward", "r2", "--local", "r3"]);
    assert!(different.contains("different interfaces"), "{different}");
    let without = network.refused(&["router", "--fail", "closed", "r2", "r3"]);
    assert!(without.contains("--forward"), "{without}");
    let router = network.start(&["router", "--forward", "--accept"]);
    let in_use = network.refused(&["router", "--forward", "--accept"]);
    assert!(in_use.contains("another program has queue 0,"), "{in_use}");
    router.end(Signal::INT);
    let many = "router --forward --accept --nfqueue 65533 --workers 4";
    let many = network.refused(&many.split(' ').collect::<Vec<_>>());
    let expected = "there are no 4 queues from number 65533 on: the last one is 65535";
    assert!(many.contains(expected), "{many}");
}
