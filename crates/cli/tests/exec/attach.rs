//! `sluice attach` in front of a namespace that is joined to a machine by a veth pair.

use std::fmt::Write as _;
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sluice_net::namespace::{Mac, Namespace, VethEnd, create_veth, is_of_link};

use super::{accept, greet, stderr, wait_for};

/// A container with `eth0`, and a machine with the other end, `vm0`.
struct Site {
    machine: Namespace,
    container: Namespace,
    /// The interface that has the machine's address: `vm0`, or a bridge that contains `vm0`.
    holder: &'static str,
}

const MACHINE: &str = "10.77.0.1";
const CONTAINER: &str = "10.77.0.2";
/// A host behind the container.
const BEHIND: &str = "10.88.0.1";

impl Site {
    fn new(holder: &'static str) -> Site {
        Site::with_end("vm0", holder)
    }

    /// Like [`Site::new`], with another name of the machine's end.
    fn with_end(name: &'static str, holder: &'static str) -> Site {
        let site = Site {
            machine: Namespace::create("machine").unwrap(),
            container: Namespace::create("container").unwrap(),
            holder,
        };
        let end = |namespace, name, number| VethEnd {
            namespace,
            name,
            mac: Mac([2, 0, 0, 0, 2, number]),
        };
        create_veth(end(&site.machine, name, 1), end(&site.container, "eth0", 2)).unwrap();
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let mut links = site.machine.links().unwrap();
        links.set_up("lo", true).unwrap();
        if holder != name {
            links.create_bridge(holder, &[name]).unwrap();
        }
        links.set_up(name, true).unwrap();
        links.add_address(holder, address(MACHINE), 24).unwrap();
        let gateway = Some(address(CONTAINER));
        links
            .add_route(holder, address("10.88.0.0"), 16, gateway, None)
            .unwrap();
        let mut links = site.container.links().unwrap();
        links.set_up("eth0", true).unwrap();
        links.add_address("eth0", address(CONTAINER), 24).unwrap();
        let listener = site.machine.enter(|| TcpListener::bind((MACHINE, 80)));
        accept(listener.unwrap().unwrap(), greet);
        // The kernel gives the interface its link-local address some time after it has a carrier.
        let setting = |key: &str| site.machine.sysctl(&format!("net.ipv6.conf.{name}.{key}"));
        let is = |key: &str, value: &str| setting(key).is_ok_and(|set| set == value);
        if is("disable_ipv6", "0") && is("addr_gen_mode", "0") {
            let mut links = site.machine.links().unwrap();
            wait_for("the end has its link-local address", || {
                let addresses = links.addresses(name).unwrap();
                addresses.iter().any(is_of_link)
            });
        }
        site
    }

    fn attach(&self, options: &[&str]) -> Child {
        let path = format!(
            "/proc/{}/fd/{}",
            std::process::id(),
            self.container.as_fd().as_raw_fd()
        );
        // As under nohup.
        let mut command = Command::new("env");
        command.args(["--ignore-signal=HUP", env!("CARGO_BIN_EXE_sluice")]);
        command.args(["attach", "--netns", &path]).args(options);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        self.machine.enter(|| command.spawn()).unwrap().unwrap()
    }

    /// Connects from the container to the machine. Returns the time that this took.
    fn connect(&self) -> Duration {
        let connect = || {
            let start = Instant::now();
            let patience = Duration::from_secs(20);
            TcpStream::connect_timeout(&format!("{MACHINE}:80").parse().unwrap(), patience)
                .unwrap();
            start.elapsed()
        };
        self.container.enter(connect).unwrap()
    }

    /// Describes the machine's interfaces, and whether it has a route behind the container.
    fn state(&self) -> String {
        let mut links = self.machine.links().unwrap();
        let mut text = String::new();
        for interface in links.interfaces().unwrap() {
            let addresses = links.addresses(&interface.name).unwrap();
            let _ = writeln!(
                text,
                "{} {} {:?} {:?} {:?} {} {addresses:?}",
                interface.index,
                interface.name,
                interface.kind,
                interface.mac,
                interface.peer,
                interface.is_up,
            );
        }
        let routed = || {
            UdpSocket::bind("0.0.0.0:0")
                .unwrap()
                .connect((BEHIND, 9))
                .is_ok()
        };
        let _ = writeln!(text, "{}", self.machine.enter(routed).unwrap());
        text
    }
}

/// Waits until a link is in place.
fn wait_until_attached(child: &mut Child) {
    let line = first_line(child);
    assert!(line.contains("between eth0 and vm0"), "{line}");
}

/// Returns the first line that a link prints.
fn first_line(child: &mut Child) -> String {
    let mut line = String::new();
    let stderr = child.stderr.as_mut().unwrap();
    let mut reader = std::io::BufReader::new(stderr);
    std::io::BufRead::read_line(&mut reader, &mut line).unwrap();
    line
}

#[test]
fn an_attached_link_delays_and_leaves_everything_as_it_was() {
    for holder in ["vm0", "br0"] {
        let site = Site::new(holder);
        let before = site.state();
        let mut child = site.attach(&["--rtt", "100ms"]);
        wait_until_attached(&mut child);
        // The handshake takes one round trip.
        let took = site.connect();
        assert!(took >= Duration::from_millis(100), "{took:?}");
        assert_ne!(site.state(), before);
        kill_process(Pid::from_child(&child), Signal::HUP).unwrap();
        assert!(site.connect() >= Duration::from_millis(100));
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(0));
        assert_eq!(site.state(), before, "{}", site.holder);
        site.connect();
    }
}

/// The end of the new pair in the namespace between usually has this name.
#[test]
fn a_link_leaves_an_end_called_outside_as_it_was() {
    let site = Site::with_end("outside", "outside");
    let before = site.state();
    let mut child = site.attach(&["--rtt", "100ms"]);
    let line = first_line(&mut child);
    assert!(line.contains("between eth0 and outside"), "{line}");
    let took = site.connect();
    assert!(took >= Duration::from_millis(100), "{took:?}");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(site.state(), before);
    site.connect();
}

#[test]
fn a_second_link_at_the_same_place_names_the_first() {
    let site = Site::new("vm0");
    let mut first = site.attach(&["--rtt", "10ms"]);
    wait_until_attached(&mut first);
    let second = site.attach(&["--rtt", "10ms"]).wait_with_output().unwrap();
    let text = stderr(&second);
    assert!(!second.status.success(), "{text}");
    let expected = format!("process {}, has a link at `eth0`", first.id());
    assert!(text.contains(&expected), "{text}");
    site.connect();
    kill_process(Pid::from_child(&first), Signal::INT).unwrap();
    assert_eq!(first.wait().unwrap().code(), Some(0));
}

/// As `netplan apply` or a restart of the network does while a link is attached.
#[test]
fn a_bridge_that_was_made_again_gets_the_old_end() {
    let site = Site::new("br0");
    let mut child = site.attach(&["--rtt", "10ms"]);
    wait_until_attached(&mut child);
    for words in [
        "ip link del br0",
        "ip link add br0 type bridge",
        "ip link set vm0 master br0",
        "ip link set br0 up",
    ] {
        on_machine(&site, words);
    }
    on_machine(&site, &format!("ip address add {MACHINE}/24 dev br0"));
    site.connect();
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    site.connect();
    assert!(on_machine(&site, "ip link show vm0").contains("master br0"));
}

/// Runs ip(8) or tc(8) on the machine.
fn on_machine(site: &Site, words: &str) -> String {
    let words: Vec<&str> = words.split_whitespace().collect();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    let output = site.machine.enter(|| command.output()).unwrap().unwrap();
    assert!(output.status.success(), "{words:?}: {}", stderr(&output));
    super::stdout(&output)
}

#[test]
fn settings_and_neighbours_of_the_old_end_are_kept() {
    let site = Site::new("vm0");
    // A new namespace has some defaults of the test's own, so each setting has a second value.
    let settings = [
        ("net.ipv4.conf.vm0.proxy_arp", ["1", "0"]),
        ("net.ipv4.conf.vm0.rp_filter", ["2", "1"]),
        ("net.ipv6.conf.vm0.accept_ra", ["0", "1"]),
        ("net.ipv4.neigh.vm0.gc_stale_time", ["77", "78"]),
    ]
    .map(|(name, values)| {
        let default = site.machine.sysctl(name).unwrap();
        let other = values.into_iter().find(|value| *value != default);
        let value = other.expect("two values differ");
        site.machine.set_sysctl(name, value).unwrap();
        (name, value)
    });
    on_machine(
        &site,
        "ip neigh add 10.77.0.9 lladdr 02:00:00:00:00:09 dev vm0 nud permanent",
    );
    let check = |when: &str| {
        for (name, value) in settings {
            assert_eq!(site.machine.sysctl(name).unwrap(), value, "{when}: {name}");
        }
        let neighbours = on_machine(&site, "ip neigh show dev vm0 nud permanent");
        let expected = "10.77.0.9 lladdr 02:00:00:00:00:09 PERMANENT";
        assert!(neighbours.contains(expected), "{when}: {neighbours}");
    };
    let mut child = site.attach(&["--rtt", "10ms"]);
    wait_until_attached(&mut child);
    check("attached");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    check("detached");
}

#[test]
fn an_end_with_a_queueing_discipline_stays_where_it_is() {
    let site = Site::new("vm0");
    on_machine(&site, "tc qdisc add dev vm0 root pfifo limit 77");
    let before = site.state();
    let output = site.attach(&["--rtt", "1ms"]).wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    let expected = "`vm0` would lose its queueing discipline for good when it moves";
    assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    assert_eq!(site.state(), before);
    assert!(on_machine(&site, "tc qdisc show dev vm0").contains("limit 77p"));
}

#[test]
fn an_end_with_tc_filters_stays_where_it_is() {
    let site = Site::new("vm0");
    let refused = |expected: &str| {
        let before = site.state();
        let mut child = site.attach(&["--rtt", "1ms"]);
        let line = first_line(&mut child);
        // A link that is attached would stay.
        let _ = child.kill();
        child.wait().unwrap();
        assert!(line.contains(expected), "{line}");
        assert_eq!(site.state(), before);
    };
    for kind in ["clsact", "ingress"] {
        on_machine(&site, &format!("tc qdisc add dev vm0 {kind}"));
        refused("`vm0` would lose its tc filters (`clsact` or `ingress`) for good when it moves");
        assert!(on_machine(&site, "tc qdisc show dev vm0").contains(kind));
        on_machine(&site, &format!("tc qdisc del dev vm0 {kind}"));
    }
    // A program that lets all packets pass, for as long as the process reads its input.
    let mut python = Command::new("python3");
    python.args(["-c", TCX]).stdin(Stdio::piped());
    python.stdout(Stdio::piped());
    let mut holder = site.machine.enter(|| python.spawn()).unwrap().unwrap();
    let mut answer = String::new();
    let stdout = holder.stdout.as_mut().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut answer).unwrap();
    match answer.trim() {
        "attached" => {
            refused(
                "packets would not pass the BPF programs (tcx) of `vm0` while the link is attached",
            );
        }
        // Without privileges outside all user namespaces, and before Linux 6.6.
        "Operation not permitted" | "Invalid argument" => eprintln!("NOT RUN: tcx: {answer}"),
        other => panic!("{other}"),
    }
    drop(holder.stdin.take());
    holder.wait().unwrap();
    // Nothing of them is left.
    let mut child = site.attach(&["--rtt", "1ms"]);
    wait_until_attached(&mut child);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// Attaches a BPF program to `vm0` as tcx. Numbers are those of linux/bpf.h.
const TCX: &str = r#"
import ctypes, os, platform, socket, struct, sys
number = {"x86_64": 321, "aarch64": 280}[platform.machine()]
libc = ctypes.CDLL(None, use_errno=True)
def bpf(command, attributes):
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    result = libc.syscall(number, command, buffer, len(attributes))
    if result < 0:
        print(os.strerror(ctypes.get_errno()), flush=True)
        sys.exit(1)
    return result
# r0 = TCX_NEXT; exit
code = struct.pack("=BBhi", 0xb7, 0, 0, -1) + struct.pack("=BBhi", 0x95, 0, 0, 0)
code, license = ctypes.create_string_buffer(code), ctypes.create_string_buffer(b"GPL")
load = struct.pack("=IIQQ", 3, 2, ctypes.addressof(code), ctypes.addressof(license))
program = bpf(5, load)
link = bpf(28, struct.pack("=IIIIQQ", program, socket.if_nametoindex("vm0"), 46, 0, 0, 0))
print("attached", flush=True)
sys.stdin.read()
"#;

#[test]
fn a_watchdog_detaches_after_kill_9() {
    let site = Site::new("vm0");
    let before = site.state();
    let mut child = site.attach(&["--rtt", "100ms"]);
    wait_until_attached(&mut child);
    kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
    child.wait().unwrap();
    wait_for("the old end is back", || site.state() == before);
    site.connect();
}

#[test]
fn the_end_of_the_container_ends_the_link() {
    let site = Site::new("vm0");
    let mut child = site.attach(&["--link", "dsl"]);
    wait_until_attached(&mut child);
    let Site {
        machine, container, ..
    } = site;
    drop(container);
    let mut status = None;
    wait_for("the link ends", || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    assert_eq!(status.unwrap().code(), Some(0));
    let left = machine.links().unwrap().interfaces().unwrap();
    let names: Vec<&str> = left
        .iter()
        .map(|interface| interface.name.as_str())
        .collect();
    assert_eq!(names, ["lo"]);
}

#[test]
fn a_container_that_ends_at_any_instant_leaves_nothing_behind() {
    // The test starts before the link is in place and ends after it was removed.
    for delay_ms in [0, 3, 6, 10, 15, 20, 30, 50, 200] {
        let site = Site::new("vm0");
        let mut sleep = Command::new("sleep");
        let mut process = site.container.enter(|| sleep.arg("60").spawn());
        let process = process.as_mut().unwrap().as_mut().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
        command.args([
            "attach",
            "--pid",
            &process.id().to_string(),
            "--link",
            "dsl",
        ]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let Site {
            machine, container, ..
        } = site;
        let child = machine.enter(|| command.spawn()).unwrap().unwrap();
        // Only the process keeps the namespace in existence.
        drop(container);
        std::thread::sleep(Duration::from_millis(delay_ms));
        process.kill().unwrap();
        process.wait().unwrap();
        let output = child.wait_with_output().unwrap();
        let text = stderr(&output);
        match output.status.code() {
            Some(0) => {}
            Some(125) => {
                assert!(text.starts_with("sluice: "), "{delay_ms} ms: {text}");
                assert_eq!(text.lines().count(), 1, "{delay_ms} ms: {text}");
            }
            status => panic!("{delay_ms} ms: {status:?} {text}"),
        }
        // The pair vanishes with the namespace, which the kernel frees a little later.
        wait_for("the machine's interfaces are gone", || {
            let left = machine.links().unwrap().interfaces().unwrap();
            left.iter().all(|interface| interface.name == "lo")
        });
    }
}

#[test]
fn what_cannot_be_attached_is_refused_with_what_there_is() {
    let site = Site::new("vm0");
    for (options, expected) in [
        (
            &["--rtt", "1ms", "--interface", "eth9"][..],
            "no veth interface `eth9`; it has eth0",
        ),
        (&["--link", "ltee"], "did you mean `lte`?"),
    ] {
        let output = site.attach(options).wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(125));
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    }
    for (target, expected) in [
        (
            ["--netns", "no-such-name"],
            "there is no namespace `no-such-name`",
        ),
        (["--pid", "4194305"], "there is no process 4194305"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sluice"));
        let output = command
            .args(["attach", "--rtt", "1ms"])
            .args(target)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(125));
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    }
}
