//! The cost of a packet as rules and dynamic pipes grow in number, and the memory of a pipe.
//!
//! `cargo bench -p sluice-ipfw --bench scale [-- rules|pipes|memory|show|configure]`
//!
//! *Rules*: the given number of `count` rules, each for another destination, and one rule that
//! passes the packet. A known flow is one of 64 that recur; a new flow appears for the first time.
//! *With states*: the same with `allow` rules and `keep-state`, so that each flow looks up a state among
//! those of other flows.
//! *Pipes*: `sched 1 config mask src-ip 0xffffffff type fq_codel`, so that each source has a link
//! of 100 Gbit/s with an FQ-CoDel of its own. One packet per microsecond comes from a random
//! source. The cost covers both enqueueing and dequeueing. *In trains*: 20 consecutive packets of a
//! source, like a window of TCP. *In batches*: 32 packets, each from a random source; the engine
//! knows all of them before the first (`Firewall::expect`), as in a router that receives batches.
//! *One by one*: each packet from a random source, not announced. In the last two cases, each packet
//! enters a pipe that was not used for a long time, and pays for every cache line. The *floor* for comparison is the cost of the same number of random
//! read-modify-writes in the same amount of memory ([`LINES`] lines, in [`REGIONS`] independent
//! places). *Show*: how long commands about 100 000 pipes take. *Configure*: how long 20 000 lines
//! take that create the queues of one scheduler, and that change them, each queue with packets.
//!
//! *Memory*: the heap per pipe when empty after a packet, when inactive, and with four packets.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use sluice_core::{Cx, DropCounter, Packet, Rng, Time};
use sluice_ipfw::headers::UDP;
use sluice_ipfw::{
    Amendment, Direction, Disposition, Firewall, Headers, Mode, NoFiles, Output, Prepared, Settings,
};

/// Rounds are short, so that at least one of many is not interrupted, even on a busy machine.
const ROUNDS: usize = 300;
const PACKETS: usize = 1_000;

fn main() {
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with('-'))
        .collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|w| w == name);
    println!("ns per packet, best of {ROUNDS} times {PACKETS} packets\n");
    if is_wanted("rules") {
        rules();
    }
    if is_wanted("pipes") {
        pipes();
    }
    if is_wanted("memory") {
        memory();
    }
    if is_wanted("show") {
        show();
    }
    if is_wanted("configure") {
        configure();
        exchange();
        replace();
    }
}

struct Engine {
    firewall: Firewall,
    rng: Rng,
    sink: DropCounter,
    now_ns: u64,
    free: Vec<u32>,
}

impl Engine {
    fn new(commands: &str) -> Engine {
        let mut engine = Engine {
            firewall: Firewall::new(&Settings::default()),
            rng: Rng::from_seed(1),
            sink: DropCounter::default(),
            now_ns: 0,
            free: (0..1 << 20).rev().collect(),
        };
        let mut cx = Cx::new(Time::ZERO, &mut engine.rng, &mut engine.sink);
        let done = engine.firewall.batch(commands, true, &mut NoFiles, &mut cx);
        if let Err(error) = done {
            panic!("the commands of a benchmark are right: {error}");
        }
        engine
    }

    /// Executes commands, one per line. Returns the milliseconds that they take.
    fn command(&mut self, text: &str) -> f64 {
        let now = Time::from_ns(self.now_ns);
        let mut cx = Cx::new(now, &mut self.rng, &mut self.sink);
        let start = Instant::now();
        let done = self.firewall.batch(text, false, &mut NoFiles, &mut cx);
        done.expect("the commands of a benchmark are right");
        start.elapsed().as_secs_f64() * 1e3
    }

    fn send(&mut self, headers: &Headers) {
        let slot = self.free.pop().expect("fewer packets wait than slots");
        let mut packet = Packet::new(slot, 1000);
        packet.flow = u32::from(headers.src_port);
        let mut cx = Cx::new(Time::from_ns(self.now_ns), &mut self.rng, &mut self.sink);
        match self.firewall.handle(packet, headers, &mut cx) {
            Disposition::Pass(packet) => self.free.push(packet.slot),
            Disposition::Taken => {}
            Disposition::Dropped(reason) => panic!("nothing is dropped here: {reason:?}"),
        }
    }

    /// Returns whether every packet has left or is held.
    fn is_complete(&self, waiting: usize) -> bool {
        self.sink.total() == 0 && self.free.len() + waiting == 1 << 20
    }

    fn poll(&mut self) {
        let mut cx = Cx::new(Time::from_ns(self.now_ns), &mut self.rng, &mut self.sink);
        while let Some(departure) = self.firewall.poll(&mut cx) {
            self.free.push(departure.packet.slot);
        }
    }
}

fn headers(source: u32, port: u16) -> Headers {
    Headers {
        src_port: port,
        dst_port: 53,
        ip_len: 1000,
        ..Headers::new(
            Direction::Out,
            UDP,
            IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + source)),
            IpAddr::from([192, 0, 2, 1]),
        )
    }
}

/// Returns the nanoseconds per packet of `work`, which handles [`PACKETS`].
fn best(mut work: impl FnMut()) -> f64 {
    let mut best = Duration::MAX;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        work();
        best = best.min(start.elapsed());
    }
    best.as_nanos() as f64 / PACKETS as f64
}

fn rules() {
    println!(
        "{:>10} {:>12} {:>12} {:>12} {:>12}",
        "rules", "known flow", "new flow", "with states", "new flow"
    );
    for count in [1, 100, 10_000] {
        let [known, new] = known_and_new("count udp from any to", "", count);
        let [with_states, new_with] = known_and_new("allow udp from any to", "keep-state", count);
        println!("{count:>10} {known:>12.1} {new:>12.1} {with_states:>12.1} {new_with:>12.1}");
    }
    println!();
}

/// Measures a packet of a known flow and of a new one that match none of `count - 1` rules for other
/// destinations.
fn known_and_new(before: &str, behind: &str, count: u32) -> [f64; 2] {
    let mut text = String::new();
    for rule in 1..count {
        let to = Ipv4Addr::from(0xc0a8_0000 + rule);
        text.push_str(&format!("add {rule} {before} {to} {behind}\n"));
    }
    text.push_str("add 60000 allow ip from any to any\n");
    let mut engine = Engine::new(&text);
    // With states, one flow has one: an empty table is not searched.
    let mut first = headers(0, 1000);
    first.dst = Ipv4Addr::from(0xc0a8_0001).into();
    engine.send(&first);
    let known: Vec<Headers> = (0..64).map(|i| headers(i, 1000)).collect();
    let known = best(|| {
        for i in 0..PACKETS {
            engine.send(black_box(&known[i % 64]));
        }
    });
    let mut next = 1000;
    let mut new = || {
        for _ in 0..PACKETS.min(PACKETS_NEW) {
            next += 1;
            engine.send(&headers(next, (next % 60_000) as u16));
        }
    };
    let new = best(&mut new) * PACKETS as f64 / PACKETS.min(PACKETS_NEW) as f64;
    [known, new]
}

/// The rules are indexed after the first flows.
const PACKETS_NEW: usize = 100;

/// A packet of 1000 bytes takes 80 ns, so a single source causes no overload.
const PER_SOURCE: &str = "pipe 1 config bw 100Gbit/s
sched 1 config pipe 1 mask src-ip 0xffffffff type fq_codel
queue 1 config sched 1
add 100 queue 1 ip from any to any
";

fn pipes() {
    println!(
        "{:>8} {:>10} {:>7} {:>11} {:>7} {:>11} {:>7} {:>10}",
        "pipes", "in trains", "growth", "in batches", "growth", "one by one", "growth", "floor"
    );
    let mut first = None;
    for count in [1_u32, 1_000, 100_000] {
        let mut engine = Engine::new(PER_SOURCE);
        for source in 0..count {
            engine.now_ns += 1_000;
            engine.send(&headers(source, 1000));
            engine.poll();
        }
        let mut order = Rng::from_seed(2);
        let mut turns = |train: usize| {
            best(|| {
                for _ in 0..PACKETS / train {
                    let source = order.below(u64::from(count)) as u32;
                    for _ in 0..train {
                        engine.now_ns += 1_000;
                        engine.send(&headers(source, 1000));
                        engine.poll();
                    }
                }
            })
        };
        let (single, train) = (turns(1), turns(TRAIN));
        let mut coming = Vec::with_capacity(BATCH);
        let batch = best(|| {
            for _ in 0..PACKETS / BATCH {
                let sources = (0..BATCH).map(|_| order.below(u64::from(count)) as u32);
                coming.extend(sources.map(|source| headers(source, 1000)));
                // Like the router: with few pipes there is nothing to fetch.
                if engine.firewall.is_wide() {
                    engine.firewall.expect(&coming);
                }
                for headers in coming.drain(..) {
                    engine.now_ns += 1_000;
                    engine.send(&headers);
                    engine.poll();
                }
            }
        });
        let batch = batch * PACKETS as f64 / (PACKETS / BATCH * BATCH) as f64;
        engine.now_ns += 1_000_000;
        engine.poll();
        assert!(engine.is_complete(0), "what is measured drops nothing");
        let (first_single, first_batch, first_train) = *first.get_or_insert((single, batch, train));
        let floor = floor(count as usize);
        println!(
            "{count:>8} {train:>10.1} {:>7.2} {batch:>11.1} {:>7.2} {single:>11.1} {:>7.2} {floor:>10.1}",
            train / first_train,
            batch / first_batch,
            single / first_single
        );
    }
    println!();
}

/// Consecutive packets of one source: a window of TCP, or a batch of a network card.
const TRAIN: usize = 20;

/// The packets that a port delivers at once.
const BATCH: usize = 32;

/// The cache lines of a pipe that a packet touches, and the memory regions that contain them: the
/// flow, the instance, its link, its discipline, the flow's queue, the packet's passage.
const LINES: usize = 18;
const REGIONS: usize = 6;
/// The approximate memory of a pipe at rest.
const BYTES_PER_PIPE: usize = 2048;

/// Read-modify-writes of as many lines as a packet touches, in as much memory as the pipes have.
fn floor(pipes: usize) -> f64 {
    let each = LINES / REGIONS;
    let runs = (pipes * BYTES_PER_PIPE / 64 / each).max(REGIONS);
    let mut memory = vec![0_u64; runs * each * 8];
    let mut order = Rng::from_seed(3);
    best(|| {
        for _ in 0..PACKETS {
            for _ in 0..REGIONS {
                let run = order.below(runs as u64) as usize * each;
                for line in run..run + each {
                    memory[line * 8] = memory[line * 8].wrapping_add(1);
                }
            }
        }
        black_box(&mut memory);
    })
}

/// Measures the time for which a command about 100 000 pipes blocks packets.
fn show() {
    let mut engine = Engine::new(PER_SOURCE);
    for source in 0..100_000 {
        engine.now_ns += 1_000;
        engine.send(&headers(source, 1000));
        engine.poll();
    }
    println!("\n{:>28} {:>14}", "a command on 100000 pipes", "ms");
    for command in ["list", "pipe show", "sched show", "--json sched show"] {
        let mut shortest = Duration::MAX;
        for _ in 0..5 {
            let mut cx = Cx::new(
                Time::from_ns(engine.now_ns),
                &mut engine.rng,
                &mut engine.sink,
            );
            let start = Instant::now();
            let output = engine.firewall.command(command, &mut NoFiles, &mut cx);
            shortest = shortest.min(start.elapsed());
            assert!(black_box(output).is_ok());
        }
        println!("{command:>28} {:>14.1}", shortest.as_secs_f64() * 1e3);
    }
}

/// Measures how long it takes to create and to change many queues of one scheduler.
fn configure() {
    println!(
        "\n{:>28} {:>14} {:>14}",
        "queues of one scheduler", "create, ms", "change, ms"
    );
    for count in [1_000, 20_000] {
        let mut engine = Engine::new("pipe 1 config bw 1Gbit/s");
        let lines = |weight: u32| -> String {
            let lines = (1..=count).map(|n| format!("queue {n} config pipe 1 weight {weight}\n"));
            lines.collect()
        };
        let created = engine.command(&lines(1));
        let rules: String = (1..=count)
            .map(|n| {
                format!(
                    "add queue {n} ip from {} to any\n",
                    Ipv4Addr::from(0x0a00_0000 + n)
                )
            })
            .collect();
        engine.command(&rules);
        for source in 1..=count {
            engine.send(&headers(source, 1000));
        }
        let changed = engine.command(&lines(2));
        println!("{count:>28} {created:>14.0} {changed:>14.0}");
    }
}

/// Measures how long an atomic change of 20 000 lines, built beside the engine, holds the engine.
fn exchange() {
    println!(
        "\n{:>28} {:>14} {:>14}",
        "20 000 lines as one", "build, ms", "exchange, ms"
    );
    let address = |n: u32| Ipv4Addr::from(0x0c00_0000 + n);
    let pipes = |rate: u32| -> String {
        let line = |n| format!("pipe {n} config bw {rate}Mbit/s\n");
        (1..=20_000).map(line).collect()
    };
    let entries: String = (1..=20_000)
        .map(|n| format!("table t add {}\n", address(n)))
        .collect();
    let rules: String = (1..=20_000)
        .map(|n| format!("add {n} pipe {n} ip from {} to any\n", address(n)))
        .collect();
    let delete: String = (1..=20_000).map(|n| format!("delete {n}\n")).collect();
    let mut engine = Engine::new("add 65000 allow ip from any to any");
    for (name, text) in [
        ("new pipes", pipes(1)),
        ("idle pipes change", pipes(2)),
        ("table entries", entries),
        ("new rules", rules),
        ("rules go", delete),
    ] {
        let mut draft = engine.firewall.draft();
        while engine.firewall.continue_draft(&mut draft) {}
        let (settings, mut output) = (Settings::default(), Output::default());
        let start = Instant::now();
        let amended = draft.amend(&settings, &text, Mode::Atomic, &mut NoFiles, &mut output);
        let Ok(Amendment::Change(amended)) = amended else {
            panic!("the commands of a benchmark change something: {amended:?}");
        };
        let built = start.elapsed().as_secs_f64() * 1e3;
        let mut cx = Cx::new(Time::ZERO, &mut engine.rng, &mut engine.sink);
        let start = Instant::now();
        let replaced = engine.firewall.exchange(*amended, &mut cx);
        let held = start.elapsed().as_secs_f64() * 1e3;
        assert!(black_box(replaced).is_ok());
        // What the change left for packets to do.
        let slowest = (0..40).map(|source| {
            let start = Instant::now();
            engine.send(&headers(source, 1000));
            start.elapsed().as_secs_f64() * 1e3
        });
        let slowest = slowest.fold(0.0, f64::max);
        println!("{name:>28} {built:>14.1} {held:>14.2}   slowest of 40 flows {slowest:.2}");
    }
}

/// Measures how long a reload that moves all rules holds the engine, with a full table of states.
fn replace() {
    let rules = |first: u16| -> String {
        let line = |n| {
            format!(
                "add {} allow udp from any {n} to any keep-state\n",
                first + n
            )
        };
        (1..=5000).map(line).collect()
    };
    let mut engine = Engine::new(&rules(0));
    for flow in 0..16_384 {
        engine.send(&headers(flow, 1 + flow as u16 % 5000));
    }
    let (settings, mut output) = (Settings::default(), Output::default());
    let new = Prepared::new(&settings, Vec::new(), &rules(1), &mut NoFiles, &mut output);
    let new = new.expect("the rules of a benchmark are right");
    let mut cx = Cx::new(Time::ZERO, &mut engine.rng, &mut engine.sink);
    let start = Instant::now();
    black_box(engine.firewall.replace(new, &mut cx));
    let held = start.elapsed().as_secs_f64() * 1e3;
    println!("\n5000 rules with 16 384 states are replaced by others: {held:.2} ms");
}

fn memory() {
    const COUNT: u32 = 10_000;
    println!("{:>28} {:>14}", "bytes per pipe", "fq_codel");
    let state = |text: &str, work: &dyn Fn(&mut Engine)| {
        let mut engine = Engine::new(PER_SOURCE);
        let grown = allocation_counter::measure(|| work(&mut engine));
        assert_eq!(engine.sink.total(), 0, "what is measured drops nothing");
        println!(
            "{text:>28} {:>14.0}",
            grown.bytes_current as f64 / f64::from(COUNT)
        );
    };
    state("holding four packets", &|engine| {
        for source in 0..COUNT {
            (0..4).for_each(|_| engine.send(&headers(source, 1000)));
        }
    });
    let rest = |engine: &mut Engine| {
        for source in 0..COUNT {
            for _ in 0..4 {
                engine.send(&headers(source, 1000));
                engine.now_ns += 10_000;
                engine.poll();
            }
        }
    };
    state("at rest", &rest);
    state("asleep", &|engine| {
        rest(engine);
        // Idle for ten seconds; each packet visits 64 flows per millisecond.
        for _ in 0..2 * COUNT / 64 {
            engine.now_ns += 100_000_000;
            engine.send(&headers(0, 1000));
            engine.poll();
        }
    });
}
