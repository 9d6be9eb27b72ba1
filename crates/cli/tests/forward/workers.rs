//! `sluice router --forward --workers`: several loops decide about what the kernel routes.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::Value;

use super::numbered::{
    FIRST_PORT, FLOWS, SEED_WITHOUT_COLLISIONS, Sets, assert_all_work, assert_in_order,
    assert_shared_fairly, has_room, have_arrived, send,
};
use super::*;

impl Network {
    /// Starts a router with two workers for what is forwarded.
    fn start_two(&self, config: &str, more: &[&str]) -> Running {
        fs::write(self.path("c"), config).unwrap();
        let path = self.path("c");
        let words = ["router", "--forward", "r3", "--workers", "2", "--config"];
        let words = words.iter().copied();
        let words = words.chain([path.to_str().unwrap()]);
        self.start(&words.chain(more.iter().copied()).collect::<Vec<_>>())
    }

    /// Runs a command for the router, and returns what it prints.
    fn ask(&self, words: &str) -> String {
        let mut command = Command::new(SLUICE);
        command
            .args(words.split_whitespace())
            .env("SLUICE_SOCKET", self.path("s"));
        let output = command.output().unwrap();
        assert!(output.status.success(), "{words}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn status(&self) -> Value {
        let sample: Value = serde_json::from_str(&self.ask("router status --json")).unwrap();
        sample["status"].clone()
    }
}

/// Receives numbered packets at h3 until `end`, and returns flow and number of each. Keeps the number of
/// those that have `arrived`.
fn receive(socket: &UdpSocket, end: &AtomicBool, arrived: &AtomicU64) -> Vec<(u16, u32)> {
    let (mut room, mut seen) = ([0; 1500], Vec::new());
    loop {
        // What was sent before the end is in the socket by then.
        let is_last = end.load(Ordering::Acquire);
        match socket.recv_from(&mut room) {
            Ok((_, from)) => {
                let number = u32::from_be_bytes(*room.first_chunk().unwrap());
                seen.push((from.port() - FIRST_PORT, number));
                arrived.store(seen.len() as u64, Ordering::Release);
            }
            Err(_) if is_last => return seen,
            Err(_) => {}
        }
    }
}

fn receiver(network: &Network) -> UdpSocket {
    let socket = network.h3.enter(|| UdpSocket::bind((H3, 9)).unwrap());
    let socket = socket.unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 64 << 20).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(50)))
        .unwrap();
    socket
}

#[test]
fn changes_reach_all_workers_and_no_routed_packet_is_lost_or_overtaken() {
    let network = Network::new();
    // The pipes of the mask are spread over the workers; the other has one owner.
    let config = "sysctl net.inet.ip.fw.one_pass=0\n\
                  pipe 1 config bw 900Mbit/s queue 1000\n\
                  pipe 2 config bw 900Mbit/s queue 1000 mask src-port 0xffff\n\
                  add 100 pipe 1 udp from any to any in\n\
                  add 200 pipe 2 udp from any to any out\n\
                  add 300 count udp from any to any out keep-state\n\
                  add 400 allow ip from any to any\n";
    let router = network.start_two(config, &[]);
    let socket = receiver(&network);
    let (has_changed, has_ended) = (AtomicBool::new(false), AtomicBool::new(false));
    let arrived = AtomicU64::new(0);
    let (sent, seen) = std::thread::scope(|scope| {
        let _ends = [Sets(&has_changed), Sets(&has_ended)];
        let receiver = scope.spawn(|| receive(&socket, &has_ended, &arrived));
        let sender = scope.spawn(|| {
            let way = ("10.41.2.2", ("10.41.3.2", 9));
            send(&network.h2, way, 900, |round| {
                let goes_on = !has_changed.load(Ordering::Acquire) && has_room(&arrived, round);
                goes_on.then_some(Duration::from_millis(2))
            })
        });
        for bw in [800, 700, 600] {
            network.ask(&format!("ipfw pipe 1 config bw {bw}Mbit/s queue 1000"));
            network.ask("ipfw -q add 150 count ip from any to any");
            kill_process(Pid::from_child(&router.child), Signal::HUP).unwrap();
            network.ask("ipfw -q table t add 10.0.0.0/8");
            network.ask("ipfw pipe show");
        }
        has_changed.store(true, Ordering::Release);
        let sent = sender.join().unwrap();
        let packets = u64::from(sent) * u64::from(FLOWS);
        // Those that are missing show below.
        have_arrived(&arrived, packets);
        has_ended.store(true, Ordering::Release);
        (packets, receiver.join().unwrap())
    });
    assert_eq!(seen.len() as u64, sent);
    assert_in_order(&seen);
    let states = network.ask("ipfw -d list").matches(" STATE udp ").count();
    assert_eq!(states, usize::from(FLOWS));
    let status = network.status();
    assert_eq!(status["dropped"], serde_json::json!({}));
    assert_all_work(&status, 2);
    assert_eq!(status["ports"][0]["name"], "nfqueue 0-1");
    router.end(Signal::INT);
}

#[test]
fn routed_flows_of_all_workers_share_a_pipe_fairly() {
    let network = Network::new();
    // 64 flows of 1.6 Mbit/s each.
    let config = "pipe 1 config bw 50Mbit/s\n\
                  sched 1 config pipe 1 type fq_codel flows 65535 limit 20000\n\
                  queue 1 config sched 1\n\
                  add queue 1 udp from any to any in\nadd allow ip from any to any\n";
    let more = ["--headers-only", "--seed", SEED_WITHOUT_COLLISIONS];
    let router = network.start_two(config, &more);
    let (socket, has_ended) = (receiver(&network), AtomicBool::new(false));
    let arrived = AtomicU64::new(0);
    let seen = std::thread::scope(|scope| {
        let _ends = Sets(&has_ended);
        let receiver = scope.spawn(|| receive(&socket, &has_ended, &arrived));
        let way = ("10.41.2.2", ("10.41.3.2", 9));
        send(&network.h2, way, 972, |round| {
            (round < 600).then_some(Duration::from_millis(5))
        });
        has_ended.store(true, Ordering::Release);
        receiver.join().unwrap()
    });
    assert_in_order(&seen);
    assert_shared_fairly(&seen);
    let status = network.status();
    assert!(
        status["dropped"]["congestion"].as_u64() > Some(0),
        "{status}"
    );
    assert_eq!(status["lost"], serde_json::json!({}));
    router.end(Signal::INT);
}

/// Bytes of each transfer.
const TRANSFER: usize = 700_000;
/// The kernel's random hash puts this number of transfers into one of two queues in one of 2^23 runs.
const TRANSFERS: usize = 24;

fn transfer(mut from: TcpStream, mut to: TcpStream, received: &AtomicU64) {
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let bytes: Vec<u8> = (0..TRANSFER).map(|i| (i % 251) as u8).collect();
            from.write_all(&bytes).unwrap();
        });
        let (mut room, mut at) = (vec![0; 65_536], 0);
        loop {
            let count = to.read(&mut room).unwrap();
            if count == 0 {
                break;
            }
            let is_right = (room[..count].iter().enumerate())
                .all(|(i, byte)| usize::from(*byte) == (at + i) % 251);
            assert!(is_right, "between {at} and {}", at + count);
            at += count;
            received.fetch_add(count as u64, Ordering::Relaxed);
        }
        assert_eq!(at, TRANSFER);
    });
}

#[test]
fn tcp_passes_both_ways_through_a_pipe_that_workers_share() {
    let network = Network::new();
    for host in [&network.h2, &network.h3] {
        host.set_sysctl("net.ipv4.tcp_ecn", "1").unwrap();
    }
    let config = "pipe 1 config bw 80Mbit/s\n\
                  sched 1 config pipe 1 type fq_codel ecn\n\
                  queue 1 config sched 1\n\
                  add queue 1 tcp from any to any in\nadd allow ip from any to any\n";
    let router = network.start_two(config, &[]);
    let listener = network.h3.enter(|| TcpListener::bind((H3, 9)).unwrap());
    let listener = listener.unwrap();
    let pairs: Vec<(TcpStream, TcpStream)> = (0..TRANSFERS)
        .map(|_| {
            let near = network.h2.enter(|| TcpStream::connect((H3, 9)).unwrap());
            (near.unwrap(), listener.accept().unwrap().0)
        })
        .collect();
    let (begin, received) = (Instant::now(), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for (number, (near, far)) in pairs.into_iter().enumerate() {
            let (from, to) = if number % 2 == 0 {
                (near, far)
            } else {
                (far, near)
            };
            scope.spawn(|| transfer(from, to, &received));
        }
    });
    let took = begin.elapsed();
    let bytes = received.load(Ordering::Relaxed);
    assert_eq!(bytes, (TRANSFERS * TRANSFER) as u64);
    // Headers come on top, so the payload is slower than the pipe.
    assert!(bytes as f64 * 8.0 / took.as_secs_f64() < 80e6, "{took:?}");
    let status = network.status();
    // Pipe 1 belongs to worker 1, which decides about everything.
    let [one, other] = [0, 1].map(|worker| &status["workers"][worker]);
    assert!(one["handed_over"].as_u64() > Some(0), "{status}");
    assert_eq!(one["handed_over"], one["received"]);
    assert_eq!((&one["sent"], &other["sent"]), (&0.into(), &status["sent"]));
    assert_eq!(status["lost"], serde_json::json!({}));
    // A mark changes a packet that may have come by the other worker's queue.
    let shown = network.ask("ipfw --json sched show");
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert!(marks(&shown) > 0, "{shown}");
    router.end(Signal::INT);
    assert!(network.passes());
}

/// Returns the sum of all numbers called `marked`.
fn marks(shown: &Value) -> u64 {
    match shown {
        Value::Array(all) => all.iter().map(marks).sum(),
        Value::Object(all) => {
            let own = all.get("marked").and_then(Value::as_u64).unwrap_or(0);
            own + all.values().map(marks).sum::<u64>()
        }
        _ => 0,
    }
}

#[test]
fn several_queues_are_taken_over_after_a_kill() {
    let network = Network::new();
    let words = "router --forward r3 --accept --workers 3 --nfqueue 4";
    let words: Vec<&str> = words.split(' ').collect();
    let closed: Vec<&str> = words.iter().copied().chain(["--fail", "closed"]).collect();
    network.start(&words).end(Signal::KILL);
    assert!(network.passes(), "the rules disappear with the process");
    network.start(&closed).end(Signal::KILL);
    assert!(!network.passes());
    let again = network.start(&words);
    let remark = "replaced the nft table that a killed router had left";
    assert!(again.heard.contains(remark), "{}", again.heard);
    assert!(network.passes());
    let in_use = network.refused(&["router", "--forward", "--accept", "--nfqueue", "6"]);
    assert!(in_use.contains("another program has queue 6,"), "{in_use}");
    again.end(Signal::TERM);
    assert!(network.passes());
}
