//! Faults of networks, live: odd frames, and interfaces that are removed and return under load.
//!
//! `h2 -- router -- h3`, each in a namespace of its own, for each kind of port. In every case,
//! concurrent pings are answered, all slots of packet memory are freed, and counters show every
//! loss. The tests need root or its capabilities, and fail without them (`make test-live`).

mod rules;
mod zoo;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use sluice_core::link::PipeParams;
use sluice_core::registry::Spec;
use sluice_core::{Rate, Rng, Span, Stop};
use sluice_load::ping::{Ping, PingReport};
use sluice_net::Clock;
use sluice_net::namespace::{Mac, Namespace, Privilege, VethEnd, create_veth};
use sluice_net::port::nfqueue::{Hook, NfqueueOptions, Traffic};
use sluice_net::port::packet::PacketOptions;
use sluice_net::port::tun::TunOptions;
use sluice_net::port::xdp::XdpOptions;
use sluice_net::port::{
    Counters, Injector, Loss, NfqueuePort, PacketPort, Pool, PoolSize, Port, Spin, TunPort, XdpPort,
};
use sluice_router::forward::{Forwarder, LaneCounts, LaneOptions, LostFrame, Piped, Queueing};
use sluice_router::process::Ruled;
use sluice_wire::frame::Link;
use sluice_wire::frame::VnetHeader;

const H2: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 25, 0, 2));
const H3: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 25, 0, 3));

const SIZE: PoolSize = PoolSize {
    slots: 8192,
    large: 64,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Packet,
    Xdp,
    Tap,
    Tun,
}

/// The namespaces, and the files that the router has open.
struct Site {
    h2: Namespace,
    h3: Namespace,
    middle: Namespace,
}

type BoxedPort = Box<dyn Port + Send>;

fn mac(number: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, number])
}

impl Site {
    fn new() -> Site {
        let privilege = Privilege::probe();
        assert_eq!(privilege, Privilege::Capable, "this live test {privilege}");
        let create = |name| Namespace::create(name).unwrap();
        let site = Site {
            h2: create("h2"),
            h3: create("h3"),
            middle: create("middle"),
        };
        for namespace in [&site.h2, &site.h3, &site.middle] {
            namespace.silence_ipv6().unwrap();
        }
        site
    }

    /// Creates the wire between the router's `port` and a host.
    fn wire(&self, port: &str) {
        let (host, address, number) = match port {
            "left" => (&self.h2, H2, 2),
            _ => (&self.h3, H3, 3),
        };
        let end = |namespace, name, number| VethEnd {
            namespace,
            name,
            mac: mac(number),
        };
        create_veth(
            end(host, "eth0", number),
            end(&self.middle, port, number + 10),
        )
        .unwrap();
        let mut links = host.links().unwrap();
        links.set_up("eth0", true).unwrap();
        links.add_address("eth0", address, 24).unwrap();
        self.middle.links().unwrap().set_up(port, true).unwrap();
    }

    /// The router's two ports.
    fn ports(&self, kind: Kind, pool: &mut Pool) -> Vec<BoxedPort> {
        if matches!(kind, Kind::Tap | Kind::Tun) {
            let options = TunOptions {
                link: match kind {
                    Kind::Tap => Link::Ethernet,
                    _ => Link::Ip,
                },
                ..TunOptions::default()
            };
            let hosts = [(&self.h2, H2), (&self.h3, H3)];
            return hosts
                .map(|(host, address)| {
                    let port = TunPort::create(host, "eth0", options).unwrap();
                    let mut links = host.links().unwrap();
                    links.set_up("eth0", true).unwrap();
                    links.add_address("eth0", address, 24).unwrap();
                    Box::new(port) as BoxedPort
                })
                .into();
        }
        ["left", "right"]
            .map(|name| {
                self.wire(name);
                match kind {
                    Kind::Xdp => {
                        let options = XdpOptions::default();
                        Box::new(XdpPort::open(&self.middle, name, pool, options).unwrap())
                            as BoxedPort
                    }
                    _ => {
                        let options = PacketOptions::default();
                        Box::new(PacketPort::open(&self.middle, name, options).unwrap())
                    }
                }
            })
            .into()
    }

    /// Echo requests from h2 to h3 every 5 ms, starting 300 ms from now.
    fn ping(&self, clock: &Clock, count: u64) -> sluice_load::Running<PingReport> {
        let start = clock.now() + Span::from_ms(300);
        let ping = Ping {
            count: Some(count),
            linger: Span::from_ms(500),
            ..Ping::new(H2, H3, Span::from_ms(5), start)
        };
        ping.start(&self.h2, &self.h3, clock, &Stop::new()).unwrap()
    }

    /// A packet socket that sends any frame from h2.
    fn intruder(&self) -> Intruder {
        Intruder(Injector::open(&self.h2, "eth0").unwrap())
    }

    fn received_by_h3(&self) -> u64 {
        let link = self.h3.links().unwrap().interface("eth0");
        link.map_or(0, |link| link.traffic.received)
    }
}

struct Intruder(Injector);

impl Intruder {
    /// Sends a frame, unless the kernel refuses it.
    fn send(&self, frame: &[u8]) {
        let _ = self.0.send(frame);
    }
}

/// A router on a thread.
struct Running {
    stop: Arc<AtomicBool>,
    /// The counters of the last port.
    last: Arc<Mutex<Counters>>,
    thread: JoinHandle<Outcome>,
}

#[derive(Debug)]
struct Outcome {
    counts: LaneCounts,
    ports: Vec<Counters>,
    missing: usize,
}

fn start<Q: Queueing>(
    ports: Vec<BoxedPort>,
    pool: Pool,
    clock: Clock,
    queueing: impl FnOnce() -> Q + Send + 'static,
) -> Running {
    let stop = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&stop);
    let counters = Arc::new(Mutex::new(Counters::default()));
    let last_port = Arc::clone(&counters);
    let thread = std::thread::spawn(move || {
        let all: Vec<usize> = (0..ports.len()).collect();
        let mut forwarder = Forwarder::new(ports, pool, clock, Spin::None);
        let options = LaneOptions {
            from: &all,
            seed: 1,
            rng: Rng::from_seed(1),
        };
        forwarder.add_lane(queueing(), (), options);
        let mut last = None;
        // Packets in transit when the load stops are still sent.
        while last.is_none_or(|last| clock.now() < last) {
            let soon = clock.now() + Span::from_ms(5);
            forwarder.turn(Some(soon), None);
            *last_port.lock().unwrap() = forwarder.counters(all.len() - 1);
            if last.is_none() && seen.load(Ordering::Relaxed) {
                last = Some(clock.now() + Span::from_ms(100));
            }
        }
        forwarder.release_ports();
        let missing =
            forwarder.pool().held() + (SIZE.large as usize - forwarder.pool().available_large());
        let counts = *forwarder.lanes()[0].counts();
        let (_, ports) = forwarder.finish();
        Outcome {
            counts,
            ports,
            missing,
        }
    });
    Running {
        stop,
        last: counters,
        thread,
    }
}

impl Running {
    /// Waits until the last port has lost frames for this reason, for at most 5 s.
    fn assert_loses(&self, reason: Loss, what: &str) {
        let start = Instant::now();
        let lost = || self.last.lock().unwrap().lost(reason);
        while lost() == 0 {
            let waited = start.elapsed();
            assert!(waited < Duration::from_secs(5), "{what}: no {reason:?}");
            sleep(Duration::from_millis(10));
        }
    }

    fn end(self) -> Outcome {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// Two pipes, a queue in front of each, and rules that match header fields.
const RULES: &str = "
pipe 1 config bw 900Mbit/s
sched 1 config pipe 1 type fq_codel
queue 1 config sched 1
add 100 count tcp from any to any tcpflags syn
add 200 count ip from any to any frag
add 300 queue 1 ip from any to any out
";

fn ruled() -> Ruled {
    rules::between_left_and_right(RULES)
}

fn assert_answered(report: &PingReport, what: &str) {
    assert!(!report.samples.is_empty(), "{what}: no ping was sent");
    assert_eq!(report.lost(), 0, "{what}: pings were lost");
}

fn faults(counts: &LaneCounts) -> Vec<&'static str> {
    counts
        .faulty()
        .filter_map(|(name, n)| (n > 0).then_some(name))
        .collect()
}

fn pool() -> Pool {
    Pool::new(SIZE).unwrap()
}

#[test]
fn odd_frames_harm_nobody_on_any_port() {
    for kind in [Kind::Packet, Kind::Xdp, Kind::Tap, Kind::Tun] {
        let what = format!("{kind:?}");
        let site = Site::new();
        let mut pool = pool();
        let ports = site.ports(kind, &mut pool);
        let clock = Clock::start();
        let router = start(ports, pool, clock, ruled);
        let intruder = site.intruder();
        let ping = site.ping(&clock, 200);
        for _ in 0..5 {
            for beast in zoo::all() {
                let is_ip = matches!(beast.frame[12..14], [0x08, 0x00] | [0x86, 0xdd]);
                match kind {
                    // A device of IP packets cannot carry the others.
                    Kind::Tun if is_ip && beast.frame.len() > 14 => {
                        intruder.send(&beast.frame[14..]);
                    }
                    Kind::Tun => {}
                    _ => intruder.send(&beast.frame),
                }
                sleep(Duration::from_millis(2));
            }
        }
        assert_answered(&ping.join().unwrap(), &what);
        let outcome = router.end();
        assert_eq!(outcome.missing, 0, "{what}: slots are missing: {outcome:?}");
        assert!(outcome.counts.lost(LostFrame::Malformed) > 0, "{outcome:?}");
        let seen = faults(&outcome.counts);
        for fault in [
            "truncated",
            "ip_version",
            "header_length",
            "ip_length_short",
            "ip_length_beyond_frame",
            "udp_length",
            "extension_depth",
        ] {
            assert!(seen.contains(&fault), "{what}: no {fault} in {seen:?}");
        }
        if kind != Kind::Tun {
            assert!(outcome.counts.bypassed > 0, "{what}: {outcome:?}");
        }
    }
}

/// Returns an IPv4 packet to `h3`, with a correct header checksum.
fn aimed(mut frame: Vec<u8>) -> Vec<u8> {
    frame[..6].copy_from_slice(&mac(3).0);
    frame[26..34].copy_from_slice(&[10, 25, 0, 2, 10, 25, 0, 3]);
    frame[24..26].fill(0);
    let words = frame[14..34].chunks(2);
    let sum: u32 = words.map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    frame[24..26].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    frame
}

#[test]
fn odd_packets_in_the_kernels_queue_get_their_verdicts() {
    let site = Site::new();
    let end = |namespace, number| VethEnd {
        namespace,
        name: "eth0",
        mac: mac(number),
    };
    create_veth(end(&site.h2, 2), end(&site.h3, 3)).unwrap();
    for (host, address) in [(&site.h2, H2), (&site.h3, H3)] {
        let mut links = host.links().unwrap();
        links.set_up("eth0", true).unwrap();
        links.add_address("eth0", address, 24).unwrap();
    }
    let options = NfqueueOptions {
        traffic: Some(Traffic {
            hooks: vec![Hook::Input],
            entering: vec!["eth0".to_owned()],
            ..Traffic::default()
        }),
        ..NfqueueOptions::default()
    };
    let port = NfqueuePort::open(&site.h3, &options).unwrap();
    let clock = Clock::start();
    let router = start(vec![Box::new(port)], pool(), clock, || {
        let queue = Spec::parse("fq_codel").unwrap();
        // A super-packet has one verdict, so none is split.
        Piped::new(
            &PipeParams::default(),
            Vec::new(),
            &queue,
            0,
            Rate::from_bps(1),
        )
    });
    let intruder = site.intruder();
    let ping = site.ping(&clock, 200);
    for beast in zoo::all() {
        if beast.frame.len() >= 34 && beast.frame[12..15] == [0x08, 0x00, 0x45] {
            intruder.send(&aimed(beast.frame));
            sleep(Duration::from_millis(2));
        }
    }
    assert_answered(&ping.join().unwrap(), "nfqueue");
    let outcome = router.end();
    assert_eq!(outcome.missing, 0, "{outcome:?}");
    // The stack refuses packets with malformed IP headers itself; other malformed headers reach the
    // router.
    let seen = faults(&outcome.counts);
    assert!(
        seen.contains(&"udp_length") && seen.contains(&"truncated"),
        "{outcome:?}"
    );
    assert_eq!(
        outcome.ports[0].received, outcome.ports[0].sent,
        "{outcome:?}"
    );
}

/// Sends frames of 1200 bytes from h2 that nobody answers, until it is stopped.
fn flood(site: &Site) -> (Arc<AtomicBool>, JoinHandle<()>) {
    let stop = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&stop);
    let intruder = site.intruder();
    let thread = std::thread::spawn(move || {
        let frame = zoo::ethernet(zoo::V4, &zoo::ipv4(17, &zoo::udp(1200)));
        while !seen.load(Ordering::Relaxed) {
            for _ in 0..8 {
                intruder.send(&frame);
            }
            sleep(Duration::from_millis(1));
        }
    });
    (stop, thread)
}

/// Waits until h3 receives frames of the flood, for at most 5 s.
fn assert_flows(site: &Site, what: &str) {
    let (start, before) = (Instant::now(), site.received_by_h3());
    while site.received_by_h3() < before + 50 {
        assert!(
            start.elapsed() < Duration::from_secs(5),
            "{what}: nothing flows"
        );
        sleep(Duration::from_millis(10));
    }
}

#[test]
fn an_interface_may_go_down_change_its_mtu_and_come_back_under_load() {
    for kind in [Kind::Packet, Kind::Xdp, Kind::Tap] {
        let what = format!("{kind:?}");
        let site = Site::new();
        let mut pool = pool();
        let ports = site.ports(kind, &mut pool);
        let clock = Clock::start();
        let router = start(ports, pool, clock, ruled);
        let (stop, thread) = flood(&site);
        assert_flows(&site, &what);

        // The far interface: the router's own end, or the device itself if the port is a device.
        let (namespace, far) = match kind {
            Kind::Tap => (&site.h3, "eth0"),
            _ => (&site.middle, "right"),
        };
        let mut links = namespace.links().unwrap();
        links.set_up(far, false).unwrap();
        sleep(Duration::from_millis(100));
        if kind != Kind::Xdp {
            router.assert_loses(Loss::Down, &what);
        }
        links.set_up(far, true).unwrap();
        assert_flows(&site, &format!("{what}, up again"));
        links.set_mtu(far, 600).unwrap();
        sleep(Duration::from_millis(100));
        if kind == Kind::Packet {
            router.assert_loses(Loss::TooLong, &what);
        }
        links.set_mtu(far, 1500).unwrap();
        assert_flows(&site, &format!("{what}, with its MTU again"));

        stop.store(true, Ordering::Relaxed);
        thread.join().unwrap();
        let ping = site.ping(&clock, 50);
        assert_answered(&ping.join().unwrap(), &what);
        let outcome = router.end();
        assert_eq!(outcome.missing, 0, "{what}: {outcome:?}");
    }
}

#[test]
fn an_interface_may_disappear_and_come_back_under_load() {
    for kind in [Kind::Packet, Kind::Xdp] {
        let what = format!("{kind:?}");
        let site = Site::new();
        let mut pool = pool();
        let ports = site.ports(kind, &mut pool);
        let clock = Clock::start();
        let router = start(ports, pool, clock, ruled);
        let (stop, thread) = flood(&site);
        assert_flows(&site, &what);
        site.middle.links().unwrap().remove("right").unwrap();
        sleep(Duration::from_millis(150));
        router.assert_loses(Loss::Down, &what);
        site.wire("right");
        assert_flows(&site, &format!("{what}, made again"));
        stop.store(true, Ordering::Relaxed);
        thread.join().unwrap();
        let ping = site.ping(&clock, 50);
        assert_answered(&ping.join().unwrap(), &what);
        let outcome = router.end();
        assert_eq!(outcome.missing, 0, "{what}: {outcome:?}");
    }
}

/// Packets of 8000 bytes are forwarded if both sides support them, and counted as lost otherwise.
#[test]
fn jumbo_packets_cross_or_are_counted() {
    let site = Site::new();
    let mut pool = pool();
    let ports = site.ports(Kind::Packet, &mut pool);
    for (namespace, name) in [(&site.h2, "eth0"), (&site.middle, "left")] {
        namespace.links().unwrap().set_mtu(name, 9000).unwrap();
    }
    let clock = Clock::start();
    let router = start(ports, pool, clock, ruled);
    // The first neighbour request may be sent before the wire is up.
    site.ping(&clock, 10).join().unwrap();
    let send = || {
        let socket = site
            .h2
            .enter(|| std::net::UdpSocket::bind((H2, 0)).unwrap())
            .unwrap();
        for _ in 0..50 {
            socket.send_to(&[0; 8000], (H3, 9)).unwrap();
            sleep(Duration::from_millis(2));
        }
    };
    send();
    for (namespace, name) in [(&site.h3, "eth0"), (&site.middle, "right")] {
        namespace.links().unwrap().set_mtu(name, 9000).unwrap();
    }
    let receiver = site
        .h3
        .enter(|| std::net::UdpSocket::bind((H3, 9)).unwrap())
        .unwrap();
    receiver
        .set_read_timeout(Some(Duration::from_secs(2)))
        .unwrap();
    send();
    assert_eq!(receiver.recv(&mut [0; 9000]).unwrap(), 8000);
    let outcome = router.end();
    assert!(outcome.ports[1].lost(Loss::TooLong) > 0, "{outcome:?}");
    assert_eq!(outcome.missing, 0, "{outcome:?}");
}
