//! Runs the tests of ports without privileges, in a user namespace, and checks that a killed
//! process leaves nothing behind.
//!
//! Only a process with one thread can enter a user namespace, so this file is a separate program.
//! It executes itself again, as an unprivileged user if it was started by root.

#[path = "../../net/tests/common/mod.rs"]
mod common;

use common::forwarder::{Forwarder, Mode};
use common::{H2, H3, Topology};
use sluice_core::{Span, Stop, Time};
use sluice_load::ping::Ping;
use sluice_load::tcp::{TcpFlow, TcpSettings};
use sluice_net::Clock;
use sluice_net::namespace::{
    Namespace, Offloads, Privilege, VethEnd, create_veth, enter_user_namespace,
};
use sluice_net::port::nfqueue::NfqueueOptions;
use sluice_net::port::packet::PacketOptions;
use sluice_net::port::registry::{Kind, Role, Site};
use sluice_net::port::{KINDS, NfqueuePort, OpenError, Pool, PoolSize, PortSpec};
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("inside") => inside(),
        Some("late") => late(),
        Some("lacking") => lacking(),
        Some("doomed") => doomed(),
        _ => {
            for (name, test) in [
                ("unprivileged_user_runs_an_experiment", unprivileged as fn()),
                ("threads_are_named_as_the_obstacle", too_late),
                ("each_port_says_what_it_lacks", without),
                ("kill_9_leaves_nothing", killed),
            ] {
                test();
                println!("test {name} ... ok");
            }
        }
    }
}

/// Returns a command that runs this program, as user 65534 if this process is root's.
fn again(word: &str) -> Command {
    // That user may have no access to the program's folder, so the program is copied.
    let copy = std::env::temp_dir().join(format!("sluice-test-{}-{word}", std::process::id()));
    std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    let mut command = Command::new(&copy);
    command.arg(word).current_dir("/");
    command
}

fn as_nobody(mut command: Command) -> Command {
    if std::fs::metadata("/proc/self")
        .is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
    {
        command.uid(65534).gid(65534);
    }
    command
}

fn remove_copy(command: &Command) {
    std::fs::remove_file(command.get_program()).unwrap();
}

/// Runs a part of this program without privileges. The part must pass.
fn pass_as_nobody(word: &str) {
    let mut command = as_nobody(again(word));
    let output = command.output().unwrap();
    remove_copy(&command);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn unprivileged() {
    pass_as_nobody("inside");
}

fn inside() {
    assert_eq!(Privilege::probe(), Privilege::UserNamespace);
    let message = Namespace::create("early").unwrap_err().to_string();
    assert!(message.contains("which this user may enter"), "{message}");
    enter_user_namespace().unwrap();
    assert_eq!(Privilege::probe(), Privilege::Capable);
    let topology = Topology::new(Offloads::ON);
    let forwarder = Forwarder::start(&topology, Mode::Whole, PacketOptions::default());
    let (clock, stop) = (Clock::start(), Stop::new());
    let start = clock.now() + Span::from_ms(5);
    let ping = Ping {
        count: Some(10),
        ..Ping::new(H2, H3, Span::from_ms(2), start)
    };
    let tcp = TcpFlow {
        bytes: Some(10_000_000),
        stop: Some(Time::from_ns(start.as_ns() + 20_000_000_000)),
        tcp: TcpSettings::with_congestion_control("cubic"),
        ..TcpFlow::new(H2, H3, start)
    };
    let ping = ping
        .start(&topology.h2, &topology.h3, &clock, &stop)
        .unwrap();
    let tcp = tcp
        .start(&topology.h2, &topology.h3, &clock, &stop)
        .unwrap();
    let tcp = tcp.join().unwrap();
    assert_eq!(tcp.goodput.last().unwrap().bytes, 10_000_000);
    let ping = ping.join().unwrap();
    assert!(ping.arrived > 0 && ping.received > 0, "{ping:?}");
    let outcome = forwarder.finish();
    assert!(outcome.ports[0].received_super > 0);
}

/// The messages of ports without privileges, and inside a user namespace.
fn without() {
    pass_as_nobody("lacking");
}

fn lacking() {
    let here = Namespace::current().unwrap();
    for kind in KINDS {
        let opened = open(kind, &here);
        if kind.needs_nothing() {
            assert!(opened.is_ok(), "{kind:?}: {}", opened.unwrap_err());
            continue;
        }
        let message = opened.expect_err(kind.name).to_string();
        let parts = match closed_device(kind) {
            Some(path) => [
                format!("cannot open {path}"),
                "readable and writable by this user".to_owned(),
            ],
            None => [
                "the process lacks CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF".to_owned(),
                "ports need nothing".to_owned(),
            ],
        };
        // AF_XDP does not support the MTU of this interface, and checks that before any privilege.
        for part in parts.iter().filter(|_| kind.in_user_namespace) {
            assert!(message.contains(part), "{kind:?}: {message}");
        }
    }

    enter_user_namespace().unwrap();
    let here = Namespace::current().unwrap();
    let mut links = here.links().unwrap();
    links.set_up("lo", true).unwrap();
    // Within the MTUs that AF_XDP supports.
    links.set_mtu("lo", 1500).unwrap();
    for kind in KINDS {
        let opened = open(kind, &here);
        if kind.in_user_namespace {
            let is_open = opened.is_ok() || closed_device(kind).is_some();
            assert!(is_open, "{kind:?}: {}", opened.unwrap_err());
        } else {
            let message = opened.expect_err(kind.name).to_string();
            let expected = "; in a user namespace AF_XDP is not allowed: ";
            assert!(message.contains(expected), "{kind:?}: {message}");
        }
    }
}

/// Opens a port of a kind here, and closes it.
fn open(kind: &Kind, here: &Namespace) -> Result<(), OpenError> {
    let path = std::env::temp_dir().join(format!("sluice-test-{}.pcap", std::process::id()));
    let argument = match kind.role {
        Role::Interface(_) => "lo".to_owned(),
        Role::Device(_) => format!("sluice-{}0", kind.name),
        Role::Files => format!(":{}", path.display()),
        // No router opens such a port by name.
        Role::Queue => {
            return Ok(NfqueuePort::open(here, &NfqueueOptions::default()).map(drop)?);
        }
    };
    let mut pool = Pool::new(PoolSize { slots: 8, large: 1 })?;
    let mut site = Site {
        namespace: here,
        pool: &mut pool,
        clock: Clock::start(),
        link: None,
    };
    let spec: PortSpec = format!("{}:{argument}", kind.name).parse()?;
    let opened = spec.open(&mut site).map(drop);
    let _ = std::fs::remove_file(&path);
    opened
}

/// Returns the device that a kind needs, if this user may not open it: some systems restrict it to
/// root, whatever the capabilities.
fn closed_device(kind: &Kind) -> Option<&'static str> {
    let mut needs = kind.needs.split(", ").map(|need| need.trim_matches('`'));
    let path = needs.find(|need| need.starts_with("/dev/"))?;
    let device = OpenOptions::new().read(true).write(true).open(path);
    device.is_err().then_some(path)
}

fn too_late() {
    pass_as_nobody("late");
}

fn late() {
    let (end, wait) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || wait.recv().is_ok());
    let message = enter_user_namespace().unwrap_err().to_string();
    assert_eq!(
        message,
        "a user namespace can only be entered while the process has one thread, and it has 2"
    );
    end.send(()).unwrap();
    thread.join().unwrap();
    // The kernel may still count a thread that was joined.
    enter_user_namespace().unwrap();
}

fn killed() {
    common::require_privilege();
    // The victim starts inside this namespace and connects one of its interfaces with an interface
    // in its own namespace.
    let witness = Namespace::create("witness").unwrap();
    let mut command = again("doomed");
    command.stdout(Stdio::piped());
    let mut child = witness.enter(|| command.spawn()).unwrap().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let mut links = witness.links().unwrap();
    let is_there = links.interface("witness0");
    child.kill().unwrap();
    child.wait().unwrap();
    remove_copy(&command);
    assert_eq!(line.trim(), "the pair exists");
    assert!(is_there.is_ok(), "{is_there:?}");
    // When the kernel has freed the victim's namespace, the pair is gone from this one too. It
    // does so in the background.
    for _ in 0..500 {
        if links.interface("witness0").is_err() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("a killed process's namespace outlived it by 5 s");
}

fn doomed() {
    let witness = Namespace::current().unwrap();
    let own = Namespace::create("doomed").unwrap();
    let end = |namespace, name, number| VethEnd {
        namespace,
        name,
        mac: common::mac(number),
    };
    create_veth(end(&witness, "witness0", 1), end(&own, "doomed0", 2)).unwrap();
    println!("the pair exists");
    loop {
        std::thread::park();
    }
}
