//! Floods that want all memory of a router, or all of its time, live.
//!
//! A sender of spoofed packets, and a pair of hosts behind another bridge of the same router, each
//! in its own namespace. The tests need root or its capabilities and fail without them. They run
//! one at a time (`make test-live`).

use std::collections::BTreeMap;
use std::env;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sluice_core::{Span, Stop};
use sluice_load::ping::Ping;
use sluice_net::Clock;
use sluice_net::namespace::{Mac, Namespace, Privilege, VethEnd, create_veth};
use sluice_net::port::packet::PacketOptions;
use sluice_net::port::{PacketPort, Pool, PoolSize, Port};
use sluice_router::process::{Router, Settings, Status};
use sluice_wire::frame::VnetHeader;

const NEAR: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 1, 2));
const FAR: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 2, 2));

/// Two bridges: `flood - drain` in front of a sender, and `left - right` between two hosts.
struct Network {
    flood: Namespace,
    near: Namespace,
    far: Namespace,
    _middle: Namespace,
    _folder: tempfile::TempDir,
    router: Router,
}

impl Network {
    fn new(commands: &str) -> Network {
        Network::with(commands, |_| {})
    }

    /// Starts a router with other settings.
    fn with(commands: &str, change: impl FnOnce(&mut Settings)) -> Network {
        let privilege = Privilege::probe();
        assert_eq!(privilege, Privilege::Capable, "this live test {privilege}");
        let new = |name| {
            let namespace = Namespace::create(name).unwrap();
            namespace.silence_ipv6().unwrap();
            namespace
        };
        let (flood, drain, near, far) = (new("flood"), new("drain"), new("near"), new("far"));
        let middle = new("middle");
        let hosts = [
            (&flood, "flood"),
            (&drain, "drain"),
            (&near, "left"),
            (&far, "right"),
        ];
        for (number, (host, port)) in (1..).zip(hosts) {
            let end = |namespace, name, number| VethEnd {
                namespace,
                name,
                mac: Mac([2, 0, 0, 0, 0, number]),
            };
            create_veth(end(host, "eth0", number), end(&middle, port, number + 10)).unwrap();
            host.links().unwrap().set_up("eth0", true).unwrap();
            middle.links().unwrap().set_up(port, true).unwrap();
        }
        for (host, own, other, number) in [(&near, NEAR, FAR, 4), (&far, FAR, NEAR, 3)] {
            let mut links = host.links().unwrap();
            links.add_address("eth0", own, 16).unwrap();
            let mac = Mac([2, 0, 0, 0, 0, number]);
            links.add_neighbour("eth0", other, mac).unwrap();
        }
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("r.conf");
        std::fs::write(&config, commands).unwrap();
        let mut settings = Settings::new("flood".parse().unwrap(), "drain".parse().unwrap());
        settings.ports.push("left".parse().unwrap());
        settings.ports.push("right".parse().unwrap());
        settings.namespace = Some(path_of(&middle));
        settings.config = Some(config);
        settings.engine.accepts_by_default = true;
        change(&mut settings);
        let router = Router::start(&settings).unwrap();
        Network {
            flood,
            near,
            far,
            _middle: middle,
            _folder: folder,
            router,
        }
    }
}

fn path_of(namespace: &Namespace) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", namespace.as_fd().as_raw_fd()))
}

/// A UDP packet of 100 bytes from `source`.
fn spoofed(source: u32) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    let mut header = vec![0x45, 0, 0, 100, 0, 0, 0, 0, 64, 17, 0, 0];
    header.extend(source.to_be_bytes());
    header.extend([10, 0, 2, 9]);
    let words = header
        .chunks(2)
        .map(|word| u16::from_be_bytes([word[0], word[1]]));
    let sum: u32 = words.map(u32::from).sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    frame.extend(header);
    frame.extend([0, 7, 0, 9, 0, 80, 0, 0]);
    frame.resize(14 + 100, 0);
    frame
}

/// Sends packets from `sources` addresses, in turn, until each has sent one and `stop` is set: 32 at a time,
/// then it sleeps for `pause`.
fn flood(namespace: &Namespace, sources: u32, pause: Duration, stop: &AtomicBool) {
    let mut port = PacketPort::open(namespace, "eth0", PacketOptions::default()).unwrap();
    let size = PoolSize {
        slots: 64,
        large: 1,
    };
    let mut pool = Pool::new(size).unwrap();
    let mut sent = 0u32;
    while sent < sources || !stop.load(Ordering::Relaxed) {
        let batch = (0..32).map(|number| {
            let frame = spoofed(0x0a42_0000 + (sent + number) % sources);
            let slot = pool.allocate().unwrap();
            pool.room_mut(slot)[..frame.len()].copy_from_slice(&frame);
            pool.set_frame(slot, frame.len() as u32, VnetHeader::default());
            slot
        });
        let batch: Vec<_> = batch.collect();
        let taken = port.transmit(&mut pool, &batch);
        batch[taken..].iter().for_each(|slot| pool.free(*slot));
        sent += taken as u32;
        std::thread::sleep(pause);
    }
}

/// Floods the first bridge, from each of `sources` addresses at least once, and sends 1000 pings through the
/// second as soon as `full` packets have come. Returns the number of pings lost, and the router's status.
fn pings_lost_beside(
    network: Network,
    sources: u32,
    pause: Duration,
    full: u64,
) -> (usize, Status) {
    let (clock, stop) = (Clock::start(), AtomicBool::new(false));
    let lost = std::thread::scope(|scope| {
        scope.spawn(|| flood(&network.flood, sources, pause, &stop));
        // The pipes are to be full before the first ping.
        while network.router.status().unwrap().admitted < full {
            std::thread::sleep(Duration::from_millis(20));
        }
        let start = clock.now() + Span::from_ms(300);
        let ping = Ping {
            count: Some(1000),
            linger: Span::from_ms(500),
            ..Ping::new(NEAR, FAR, Span::from_ms(2), start)
        };
        let ping = ping.start(&network.near, &network.far, &clock, &Stop::new());
        let report = ping.unwrap().join().unwrap();
        stop.store(true, Ordering::Relaxed);
        assert_eq!(report.samples.len(), 1000);
        1000 - report.received as usize
    });
    (lost, network.router.stop())
}

/// 1000 pipes of 50 packets hold more than the 32 768 packets for which there is memory. One mask
/// gets 4/5 of that. Eight masks could take 32 times as much as they leave, so the share of their
/// port, 16 times as much, limits them.
#[test]
fn spoofed_sources_that_fill_masked_pipes_cost_another_bridge_nothing() {
    let one = "pipe 1 config bw 1Kbit/s mask src-ip 0xffffffff\n\
               add pipe 1 ip from 10.66.0.0/16 to any in\n";
    let eight: String = (0..8)
        .map(|n| {
            let from = format!("10.66.{}.{}/25", n / 2, n % 2 * 128);
            format!(
                "pipe {} config bw 1Kbit/s mask src-ip 0xffffffff\nadd pipe {0} ip from {from} to any in\n",
                n + 1
            )
        })
        .collect();
    for (commands, most) in [(one, 26_214), (&eight, 30_840)] {
        let network = Network::new(commands);
        let (lost, status) = pings_lost_beside(network, 1000, SHORT, most - 1000);
        assert_eq!(lost, 0, "{status}");
        let (over, limit, at) = if commands == one {
            (status.refused["pipe_share"], "pipe_share", "pipe 1")
        } else {
            (status.lost["over_share"], "over_share", "flood")
        };
        assert!(over > 1000, "{status}");
        assert_eq!(status.last_refused[limit], at, "{status}");
        for port in &status.ports {
            assert_eq!(port.lost.get("no_slot"), None, "{status}");
        }
    }
}

/// Four queues of 10 240 packets, the default of `fq_codel`, could hold 40 960 of the 32 768 packets for
/// which there is memory. Each may hold four times what is free: 4 / 17 of the memory, 30 840 packets
/// together.
#[test]
fn four_full_queues_cost_another_bridge_nothing() {
    let commands: String = (0..4)
        .map(|n| {
            let number = n + 1;
            format!(
                "pipe {number} config bw 1Kbit/s\n\
                 sched {number} config pipe {number} type fq_codel\n\
                 queue {number} config sched {number}\n\
                 add queue {number} ip from 10.66.0.{n} to any in\n"
            )
        })
        .collect();
    let (lost, status) = pings_lost_beside(Network::new(&commands), 4, LONG, 30_000);
    assert_eq!(lost, 0, "{status}");
    let count = |counts: &BTreeMap<String, u64>, name: &str| counts.get(name).copied().unwrap_or(0);
    let refused = count(&status.refused, "pipe_share") + count(&status.lost, "over_share");
    assert!(refused > 1000, "{status}");
    for port in &status.ports {
        assert_eq!(port.lost.get("no_slot"), None, "{status}");
    }
}

/// Set in the process of a test that needs one of its own.
const ALONE: &str = "SLUICE_TEST_ALONE";

/// The number of bytes in a line of `/proc/self/status`.
fn own(name: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kib.unwrap().parse::<u64>().unwrap() * 1024
}

/// A pipe of `cake` takes some 130 KB (crates/ipfw/tests/budget.rs), so 300 000 sources ask for 39 GB.
#[test]
fn spoofed_sources_get_no_more_memory_than_a_router_may_give() {
    // In a process of its own, because other tests take memory, too.
    if env::var_os(ALONE).is_none() {
        let test = "spoofed_sources_get_no_more_memory_than_a_router_may_give";
        let mut alone = Command::new(env::current_exe().unwrap());
        alone.args(["--exact", test, "--nocapture"]).env(ALONE, "1");
        let status = alone.status().unwrap();
        assert!(status.success(), "{status}");
        return;
    }
    let commands = "pipe 1 config bw 1Kbit/s\n\
                    sched 1 config pipe 1 mask src-ip 0xffffffff type cake\n\
                    queue 1 config sched 1\n\
                    add queue 1 ip from 10.64.0.0/13 to any in\n";
    let budget: u64 = 256 << 20;
    // Slots of 2 KiB and large slots of 64 KiB.
    let PoolSize { slots, large } = Settings::new("a".parse().unwrap(), "b".parse().unwrap()).pool;
    let room = budget + 2048 * u64::from(slots) + 65_536 * u64::from(large);
    // A process that wants more than twice as much gets none, and aborts.
    let usual = getrlimit(Resource::Data);
    let limit = Rlimit {
        current: Some(own("VmData:") + 2 * room),
        maximum: usual.maximum,
    };
    setrlimit(Resource::Data, limit).unwrap();
    let network = Network::with(commands, |settings| settings.engine.dynamic_bytes = budget);
    let (lost, status) = pings_lost_beside(network, 300_000, SHORT, 150_000);
    setrlimit(Resource::Data, usual).unwrap();
    // The peak of the whole process, with the sender.
    let taken = own("VmHWM:");
    eprintln!(
        "{} packets, {lost} of 1000 pings lost, {} MiB taken of {}",
        status.admitted,
        taken >> 20,
        room >> 20
    );
    assert!(taken < room * 11 / 10, "{taken} bytes of {room}: {status}");
    // Some 2000 sources have a pipe at any time, for the 0.8 s of a packet of 100 bytes at least.
    let refused = status.refused["dynamic_memory"];
    assert!(refused > status.admitted / 2, "{status}");
}

/// A flow without an answer lives for 10 s, so the table of 16 384 states is soon full, and each new flow
/// takes the place of the oldest one. Of `limit`, all but the first thousand flows are refused.
#[test]
fn states_that_a_flood_asks_for_cost_another_bridge_nothing() {
    for (option, counter) in [
        ("keep-state", "states_evicted"),
        ("limit dst-addr 1000", "states_limit"),
    ] {
        let commands = format!(
            "add 10 allow icmp from any to any\n\
             add 100 allow udp from 10.66.0.0/16 to any in {option}\n"
        );
        // The first ping leaves when 40 000 flows have come: 23 616 more than there are states.
        let (lost, status) = pings_lost_beside(Network::new(&commands), 60_000, SHORT, 40_000);
        eprintln!("{option}: p99 {} us", status.late_p99_ns / 1000);
        assert_eq!(lost, 0, "{status}");
        assert!(status.refused[counter] > 20_000, "{status}");
    }
}

/// The first packet of a flow is compared with the rule that names its network. To compare it with all
/// 10 000 takes 0.08 ms at least, so the loop could not receive more than 12 500 packets a second.
#[test]
fn ten_thousand_rules_that_new_flows_pass_cost_another_bridge_nothing() {
    let rule = |n: u32| {
        format!(
            "add {} count udp from 10.{}.{}.0/24 to any dst-port 9\n",
            100 + n / 100,
            66 + n / 256,
            n % 256
        )
    };
    let rules: String = (0..10_000).map(rule).collect();
    let commands = format!("add 10 allow icmp from any to any\n{rules}");
    let (lost, status) = pings_lost_beside(Network::new(&commands), 50_000, LONG, 10_000);
    assert_eq!(lost, 0, "{status}");
    // All sources have sent. The loop keeps up, except where the machine stops it for a moment.
    let flood = &status.ports[0];
    let late = flood.lost.get("kernel_queue").copied().unwrap_or(0);
    assert!(flood.received > 47_500, "{status}");
    assert!(late < 2500, "{status}");
}

/// Between two batches of a fast flood: both cores have other work, too.
const SHORT: Duration = Duration::from_micros(200);
/// Between two batches of a slow one: 32 packets in 2.1 ms are 15 000 a second. A sleep takes a little
/// longer than it should.
const LONG: Duration = Duration::from_micros(2000);
