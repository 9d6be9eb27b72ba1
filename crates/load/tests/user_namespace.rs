//! Everything again without privileges, in a user namespace, and what a killed process leaves.
//!
//! Entering a user namespace takes a process with one thread, so this file is a program of
//! its own: it runs itself again, as an unprivileged user when it is started as root.

#[path = "../../net/tests/common/mod.rs"]
mod common;

use common::forwarder::{Forwarder, Mode};
use common::{H2, H3, Topology};
use sluice_core::{Span, Stop, Time};
use sluice_load::ping::Ping;
use sluice_load::tcp::TcpFlow;
use sluice_net::Clock;
use sluice_net::namespace::{
    Namespace, Offloads, Privilege, VethEnd, create_veth, enter_user_namespace,
};
use sluice_net::port::nfqueue::NfqueueOptions;
use sluice_net::port::packet::PacketOptions;
use sluice_net::port::tun::TunOptions;
use sluice_net::port::xdp::XdpOptions;
use sluice_net::port::{NfqueuePort, PacketPort, PcapPort, Pool, PoolSize, TunPort, XdpPort};
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

/// This program again, as user 65534 if this one is root.
fn again(word: &str) -> Command {
    // Its folder may be closed to that user; a copy of the program is not.
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

fn unprivileged() {
    let mut command = as_nobody(again("inside"));
    let output = command.output().unwrap();
    remove_copy(&command);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
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
        congestion_control: Some("cubic".to_owned()),
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
    let mut command = as_nobody(again("lacking"));
    let output = command.output().unwrap();
    remove_copy(&command);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

fn lacking() {
    let here = Namespace::current().unwrap();
    let mut pool = Pool::new(PoolSize { slots: 8, large: 1 }).unwrap();
    let packet = PacketPort::open(&here, "lo", PacketOptions::default());
    let tun = TunPort::create(&here, "sluice-none0", TunOptions::default());
    let queue = NfqueuePort::open(&here, &NfqueueOptions::default());
    let lacking: &[&str] = &[
        "Operation not permitted",
        "the process lacks CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF",
        "pcap ports need nothing",
    ];
    // Some systems keep the device itself to root, which comes before any capability.
    let device = OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/net/tun");
    let is_open_to_all = device.is_ok();
    let of_tun: &[&str] = match is_open_to_all {
        true => lacking,
        false => &[
            "cannot open /dev/net/tun",
            "readable and writable by this user",
        ],
    };
    for (message, parts) in [
        (packet.err().unwrap().to_string(), lacking),
        (tun.err().unwrap().to_string(), of_tun),
        (queue.err().unwrap().to_string(), lacking),
    ] {
        for part in parts {
            assert!(message.contains(part), "{message}");
        }
    }
    // Files need no privilege at all.
    let path = std::env::temp_dir().join(format!("sluice-test-{}.pcap", std::process::id()));
    let spec = format!(":{}", path.display()).parse().unwrap();
    let port = PcapPort::open(&spec, None, Clock::start()).map(drop);
    std::fs::remove_file(&path).unwrap();
    port.unwrap();

    enter_user_namespace().unwrap();
    let here = Namespace::current().unwrap();
    let mut links = here.links().unwrap();
    links.set_up("lo", true).unwrap();
    drop(PacketPort::open(&here, "lo", PacketOptions::default()).unwrap());
    drop(NfqueuePort::open(&here, &NfqueueOptions::default()).unwrap());
    let tun = TunPort::create(&here, "sluice-tun0", TunOptions::default());
    assert!(tun.is_ok() || !is_open_to_all, "{:?}", tun.err());
    // Its MTU is within what AF_XDP takes.
    links.set_mtu("lo", 1500).unwrap();
    let xdp = XdpPort::open(&here, "lo", &mut pool, XdpOptions::default());
    let message = xdp.err().unwrap().to_string();
    assert!(
        message.contains("AF_XDP is not allowed: packet, tun, tap and nfqueue ports work"),
        "{message}"
    );
}

fn too_late() {
    let mut command = as_nobody(again("late"));
    let output = command.output().unwrap();
    remove_copy(&command);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
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
}

fn killed() {
    common::require_privilege();
    // The victim starts inside this namespace and ties an interface of it to its own.
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
    assert_eq!(line.trim(), "the pair is there");
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
    println!("the pair is there");
    loop {
        std::thread::park();
    }
}
