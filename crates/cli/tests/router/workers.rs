//! `sluice router --workers`: several loops act as one router.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use sluice_net::port::packet::PacketOptions;
use sluice_net::port::{PacketPort, Pool, PoolSize, Port};

use super::numbered::{
    FIRST_PORT, FLOWS, SEED_WITHOUT_COLLISIONS, Sets, assert_all_work, assert_in_order,
    assert_shared_fairly, has_room, have_arrived,
};
use super::*;

/// Bytes of the packets: Ethernet, IPv4, UDP and payload.
const FRAME: usize = 14 + PACKET;
const PACKET: usize = 1000;

/// What arrives at the far end of the second interface: flow and sequence number.
struct Receiver {
    thread: JoinHandle<Vec<(u16, u32)>>,
    end: Arc<AtomicBool>,
    /// Packets that have arrived.
    arrived: Arc<AtomicU64>,
}

impl Receiver {
    fn start(router: &Running) -> Receiver {
        let options = PacketOptions {
            offloads: false,
            ring: 0,
            receive_buffer: 64 << 20,
            ..PacketOptions::default()
        };
        let mut port = PacketPort::open(&router.namespace, "far1", options).unwrap();
        let end = Arc::new(AtomicBool::new(false));
        let has_ended = Arc::clone(&end);
        let arrived = Arc::new(AtomicU64::new(0));
        let so_far = Arc::clone(&arrived);
        let thread = std::thread::spawn(move || {
            let mut pool = Pool::new(PoolSize {
                slots: 256,
                large: 1,
            })
            .unwrap();
            let (mut slots, mut seen) = (Vec::new(), Vec::new());
            loop {
                // What was sent before the end is in the socket by then.
                let is_last = has_ended.load(Ordering::Acquire);
                let count = port.receive(&mut pool, &mut slots);
                for slot in slots.drain(..) {
                    let frame = pool.head(slot);
                    if frame.len() == FRAME {
                        let word = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
                        let number = u32::from(word(42)) << 16 | u32::from(word(44));
                        seen.push((word(34) - FIRST_PORT, number));
                    }
                    pool.free(slot);
                }
                so_far.store(seen.len() as u64, Ordering::Release);
                if count == 0 {
                    if is_last {
                        return seen;
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        });
        Receiver {
            thread,
            end,
            arrived,
        }
    }

    fn finish(self) -> Vec<(u16, u32)> {
        self.end.store(true, Ordering::Release);
        self.thread.join().unwrap()
    }
}

fn send(router: &Running, next: impl FnMut(u32) -> Option<Duration> + Send) -> u32 {
    let way = ("10.0.0.1", ("10.0.0.2", 9));
    numbered::send(&router.namespace, way, PACKET - 28, next)
}

#[test]
fn changes_reach_all_workers_under_traffic_and_nothing_is_lost() {
    // The pipes of the mask are spread over the workers; the others have one owner each.
    let config = "sysctl net.inet.ip.fw.one_pass=0\n\
                  pipe 1 config bw 900Mbit/s queue 1000\n\
                  pipe 2 config bw 900Mbit/s queue 1000 mask src-port 0xffff\n\
                  add 100 pipe 1 udp from any to any in\n\
                  add 200 pipe 2 udp from any to any out\n\
                  add 300 count udp from any to any out keep-state\n\
                  add 400 allow ip from any to any\n";
    let router = Running::start(Some(config), &["--workers", "2", "--unconfined"]);
    router.sender(&["em0", "far0", "em1", "far1"]);
    let receiver = Receiver::start(&router);
    let arrived = Arc::clone(&receiver.arrived);
    let has_changed = AtomicBool::new(false);
    let sent = std::thread::scope(|scope| {
        let _ends = Sets(&has_changed);
        let sender = scope.spawn(|| {
            send(&router, |round| {
                let goes_on = !has_changed.load(Ordering::Acquire) && has_room(&arrived, round);
                goes_on.then_some(Duration::from_millis(2))
            })
        });
        for bw in [800, 700, 600] {
            router.ok(&format!("pipe 1 config bw {bw}Mbit/s queue 1000"));
            router.ok("-q add 150 count ip from any to any");
            router.signal(Signal::HUP);
            router.ok("-q table t add 10.0.0.0/8");
            router.ok("pipe show");
        }
        has_changed.store(true, Ordering::Release);
        sender.join().unwrap()
    });
    let packets = u64::from(sent) * u64::from(FLOWS);
    let are_all_there = have_arrived(&arrived, packets);
    let seen = receiver.finish();
    assert_eq!((seen.len() as u64, are_all_there), (packets, true));
    assert_in_order(&seen);
    // Rule 400 was there all the time; each packet crossed it in both passes.
    let counted = router.ok("-a list 400");
    let words: Vec<&str> = counted.split_whitespace().collect();
    assert!(words[1].parse::<u64>().unwrap() >= 2 * packets, "{counted}");
    // The states of both workers.
    let states = router.ok("-d list").matches(" STATE udp ").count();
    assert_eq!(states, usize::from(FLOWS));
    // Each flow has its pipe, at one of the workers.
    let shown: Value = serde_json::from_str(&router.ok("--json pipe 2 show")).unwrap();
    let flows = shown["pipes"][0]["flows"].as_array().unwrap();
    assert_eq!(flows.len(), usize::from(FLOWS));
    let status = router.end();
    assert_eq!(status["dropped"], serde_json::json!({}));
    assert_all_work(&status, 2);
}

#[test]
fn flows_of_all_workers_share_a_pipe_fairly() {
    // 64 flows of 1.6 Mbit/s each.
    let config = "pipe 1 config bw 50Mbit/s\n\
                  sched 1 config pipe 1 type fq_codel flows 65535 limit 20000\n\
                  queue 1 config sched 1\n\
                  add queue 1 udp from any to any in\nadd allow ip from any to any\n";
    let more = [
        "--workers",
        "2",
        "--unconfined",
        "--seed",
        SEED_WITHOUT_COLLISIONS,
    ];
    let router = Running::start(Some(config), &more);
    router.sender(&["em0", "far0", "em1", "far1"]);
    let receiver = Receiver::start(&router);
    send(&router, |round| {
        (round < 600).then_some(Duration::from_millis(5))
    });
    let seen = receiver.finish();
    assert_in_order(&seen);
    assert_shared_fairly(&seen);
    let status = router.end();
    assert!(
        status["dropped"]["congestion"].as_u64() > Some(0),
        "{status}"
    );
    assert_eq!(status["lost"], serde_json::json!({}));
}

/// Only a worker that has the state of a flow lets its other direction pass. The pipes of the mask belong
/// to all workers.
const KEEP_STATE: &str = "pipe 1 config bw 100Mbit/s mask all\n\
                          add 100 check-state\n\
                          add 200 pipe 1 udp from 10.0.0.1 to any 9 in recv em0 keep-state\n";

/// Sends packets of all flows through the router, from the host behind the first interface, until the
/// host behind the second one has returned one of each.
fn pass_and_return(router: &Running, [near, far]: [&str; 2]) {
    let open = |interface| {
        let options = PacketOptions {
            offloads: false,
            ring: 0,
            ..PacketOptions::default()
        };
        PacketPort::open(&router.namespace, interface, options).unwrap()
    };
    let (mut near, mut far) = (open(near), open(far));
    let mut pool = Pool::new(PoolSize {
        slots: 1024,
        large: 64,
    })
    .unwrap();
    let (mut slots, mut returned) = (Vec::new(), BTreeSet::new());
    let start = Instant::now();
    while returned.len() < usize::from(FLOWS) {
        assert!(start.elapsed() < Duration::from_secs(20), "{returned:?}");
        send(router, |round| {
            (round == 0).then_some(Duration::from_millis(20))
        });
        while far.receive(&mut pool, &mut slots) > 0 {}
        for slot in slots.drain(..) {
            let frame = pool.head_mut(slot);
            if frame.len() != FRAME || frame[36..38] != 9u16.to_be_bytes() {
                pool.free(slot);
                continue;
            }
            // Ethernet addresses, IPv4 addresses and ports change places; checksums stay the same.
            for (one, other, length) in [(0, 6, 6), (26, 30, 4), (34, 36, 2)] {
                (0..length).for_each(|at| frame.swap(one + at, other + at));
            }
            assert_eq!(far.transmit(&mut pool, &[slot]), 1);
        }
        std::thread::sleep(Duration::from_millis(20));
        while near.receive(&mut pool, &mut slots) > 0 {}
        for slot in slots.drain(..) {
            let frame = pool.head(slot);
            if frame.len() == FRAME && frame[34..36] == 9u16.to_be_bytes() {
                let flow = u16::from_be_bytes([frame[36], frame[37]]);
                returned.insert(flow - FIRST_PORT);
            }
            pool.free(slot);
        }
    }
}

#[test]
fn an_interface_that_is_created_again_is_used_by_all_workers_again() {
    for more in [&["--workers", "2"][..], &["--workers", "3", "--unconfined"]] {
        let router = Running::start(Some(KEEP_STATE), more);
        router.sender(&["em0", "far0", "em1", "far1"]);
        pass_and_return(&router, ["far0", "far1"]);
        for (near, far) in [("em0", "far0"), ("em1", "far1"), ("em0", "far0")] {
            router.namespace.links().unwrap().remove(near).unwrap();
            let end = |name, number| VethEnd {
                namespace: &router.namespace,
                name,
                mac: Mac([2, 0, 0, 0, 0, number]),
            };
            create_veth(end(near, 1), end(far, 2)).unwrap();
            let mut links = router.namespace.links().unwrap();
            for name in [near, far] {
                links.set_up(name, true).unwrap();
            }
            drop(links);
            if far == "far0" {
                router.sender(&[]);
            }
            pass_and_return(&router, ["far0", "far1"]);
        }
        let status = router.end();
        for worker in status["workers"].as_array().unwrap() {
            assert!(worker["received"].as_u64() > Some(0), "{status}");
        }
    }
}

#[test]
fn devices_have_a_queue_for_each_worker() {
    let namespace = Namespace::create("middle").unwrap();
    let ports = ["tap:em0", "tap:em1"];
    let more = ["--workers", "2"];
    let router = Running::start_ports(namespace, ports, Some(KEEP_STATE), &more, &[]);
    // The hosts are the stack behind the two devices.
    router.sender_at("em0", &[]);
    pass_and_return(&router, ["em0", "em1"]);
    let status = router.end();
    assert_all_work(&status, 2);
    assert_eq!(status["lost"], serde_json::json!({}));
}

/// Creates a wire whose ends have so many queues.
fn wire_with_queues(namespace: &Namespace, [one, other]: [&str; 2], queues: u32) {
    let queues = format!("numrxqueues {queues} numtxqueues {queues}");
    let words = format!("link add {one} {queues} type veth peer name {other} {queues}");
    let words: Vec<&str> = words.split(' ').collect();
    let added = namespace.enter(|| Command::new("ip").args(&words).status());
    assert!(added.unwrap().unwrap().success());
}

#[test]
fn each_worker_serves_a_queue_of_an_af_xdp_interface() {
    let wires = [["em0", "far0"], ["em1", "far1"]];
    let ports = ["xdp:em0", "xdp:em1"];
    let namespace = Namespace::create("middle").unwrap();
    for ends in wires {
        wire_with_queues(&namespace, ends, 2);
    }
    let more = ["--workers", "2"];
    let router = Running::start_ports(namespace, ports, Some(KEEP_STATE), &more, &[]);
    router.sender(&["em0", "far0", "em1", "far1"]);
    pass_and_return(&router, ["far0", "far1"]);
    for ends in wires {
        let mut links = router.namespace.links().unwrap();
        links.remove(ends[0]).unwrap();
        wire_with_queues(&router.namespace, ends, 2);
        for end in ends {
            links.set_up(end, true).unwrap();
        }
        if ends[1] == "far0" {
            router.sender(&[]);
        }
        pass_and_return(&router, ["far0", "far1"]);
    }
    let status = router.end();
    assert_all_work(&status, 2);
    // Without one queue for each worker, it does not start.
    let namespace = Namespace::create("middle").unwrap();
    for ends in wires {
        wire_with_queues(&namespace, ends, 1);
    }
    let descriptor = namespace.as_fd().as_raw_fd();
    let mut command = Command::new(SLUICE);
    command.arg("router").args(ports).args(more).arg("--netns");
    command.arg(format!("/proc/{}/fd/{descriptor}", std::process::id()));
    let (_, error) = refusal(&command.arg("--socket").arg("/nowhere/s").output().unwrap());
    let expected = "interface \"em0\" has 1 receive queues for 2 workers, and AF_XDP needs one for each \
                    (`ethtool -L em0 combined 2`, or `--workers 1`)";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn what_several_workers_cannot_do_is_refused() {
    for (arguments, expected) in [
        (
            "pcap:/dev/null:/nowhere/a pcap:/dev/null:/nowhere/b --workers 2",
            "pcap:/dev/null:/nowhere/a serves one worker, not 2: use --workers 1",
        ),
        (
            "em0 em1 --workers 0",
            "expected a whole number from 1 to 128, or per-bridge",
        ),
        (
            "em0 em1 --workers 2 --cpu 0",
            "--cpu names 1 cores for 2 workers: name one for each, or none",
        ),
        (
            "em0 em1 em2 em3 --workers per-bridge --cpu 0",
            "--cpu names 1 cores for 2 workers: name one for each, or none",
        ),
        (
            "--forward --workers per-bridge",
            "--workers per-bridge is for bridges between ports",
        ),
        (
            "tap:em0 tap:em1 tap:em2 tap:em3 --workers per-bridge",
            "every worker receives from a queue of its own of `tap` ports: for --workers per-bridge, use \
             `packet` ports",
        ),
    ] {
        let mut command = Command::new(SLUICE);
        command.arg("router").args(arguments.split_whitespace());
        let refused = command.arg("--socket").arg("/nowhere/s").output().unwrap();
        let (_, error) = refusal(&refused);
        assert!(error.contains(expected), "{arguments}: {error}");
    }
}
