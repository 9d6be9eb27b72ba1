//! Nanoseconds per packet (one enqueue and one dequeue) for every registered algorithm, in steady
//! state, beside the cost of touching the same number of random cache lines in the same run.
//!
//! `cargo bench -p sluice-core --bench queues [-- NAME...]` measures the named algorithms only.
//!
//! A packet in a flow-queueing discipline needs at least four lines that are in no cache: its queue
//! and a node of storage on the way in, and both again on the way out. The columns `lines` and
//! `chased` give the cost of four random read-modify-writes in memory of the same size: `lines`
//! when the processor may overlap them, `chased` when each line names the next one.
//!
//! `overflow` is permanent: two packets arrive for each that leaves, so every second one is
//! dropped. Its figure is nanoseconds per arriving packet, and `ratio` is `overflow / steady`. Half
//! of those packets pass as in steady state, so `overflow` is the mean of a normal and an
//! overflowing packet. The cost of one overflowing packet by itself, its arrival and the drop, is
//! the difference between a slot with two arrivals and a slot with one:
//! `single = 2 overflow - steady`. Its ratio to `steady` is in the next column. By either measure,
//! overflow should cost at most twice a normal packet: a ratio above 2 is marked with `!`. A `~`
//! marks a backlog that the AQM let fall below half.

use std::hint::black_box;
use std::time::{Duration, Instant};

use sluice_core::registry::{self, Algorithm, Spec};
use sluice_core::{Cx, Discipline, DropCounter, Packet, Rng, Span, Time};

const BACKLOGS: [usize; 2] = [1_000, 100_000];
const FLOWS: [u32; 4] = [1, 64, 1_024, 65_536];
/// Packets per measurement, and measurements per figure; the best counts. A measurement is shorter
/// than a time slice, so that some are undisturbed on a machine that is not idle.
const PACKETS: usize = 10_000;
const ROUNDS: usize = 120;
/// Consecutive measurements of one column before the next column follows.
const TURN: usize = 30;
/// Packets wait for less than any algorithm's target, so that storage is measured and not dropping.
const SOJOURN: Span = Span::from_us(200);

fn main() {
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with('-'))
        .collect();
    println!("ns per packet, best of {ROUNDS} times {PACKETS} packets\n");
    println!(
        "{:<16} {:>8} {:>7} {:>8} {:>9} {:>6} {:>8} {:>6}  {:>7} {:>7}",
        "algorithm",
        "backlog",
        "flows",
        "steady",
        "overflow",
        "ratio",
        "single",
        "ratio",
        "lines",
        "chased"
    );
    for algorithm in registry::algorithms() {
        if !wanted.is_empty() && !wanted.iter().any(|name| name == algorithm.name) {
            continue;
        }
        for backlog in BACKLOGS {
            for flows in FLOWS.into_iter().filter(|n| is_meaningful(algorithm, *n)) {
                row(algorithm, backlog, flows);
            }
        }
    }
}

/// Returns the number of flows. A single queue does not distinguish them; classes are configured
/// one by one; CAKE has 1024 queues in each tin.
fn is_meaningful(algorithm: &Algorithm, flows: u32) -> bool {
    let is_fair = algorithm.params().any(|decl| decl.name == "flows");
    let isolates = algorithm.params().any(|decl| decl.name == "isolation");
    flows == 1 || is_fair || (is_classful(algorithm) && flows <= 64) || (isolates && flows <= 1024)
}

/// Returns whether each class has a limit of its own.
fn is_classful(algorithm: &Algorithm) -> bool {
    Spec::parse(algorithm.name)
        .and_then(|spec| spec.build().map_err(|_| unreachable!("it was built")))
        .is_ok_and(|mut queue| queue.as_classful().is_some())
}

/// The columns take turns, so that a disturbance affects all of them. Each turn is long enough to
/// fill the caches with its own data.
fn row(algorithm: &Algorithm, backlog: usize, flows: u32) {
    let mut steady = Bench::new(algorithm, backlog, flows, 2 * backlog);
    let mut overflow = Bench::new(algorithm, backlog, flows, backlog);
    let mut memory = Memory::new(backlog + flows as usize);
    // The first rounds settle the order of the flows and the storage.
    steady.run(2 * backlog, 1);
    overflow.run(2 * backlog, 2);
    let mut best = [f64::INFINITY; 4];
    for round in 0..4 * ROUNDS {
        let column = round / TURN % 4;
        let time = match column {
            0 => steady.run(PACKETS, 1),
            1 => overflow.run(PACKETS / 2, 2),
            2 => 4 * memory.visit(PACKETS, false),
            _ => 4 * memory.visit(PACKETS, true),
        };
        best[column] = best[column].min(time.as_nanos() as f64 / PACKETS as f64);
    }
    let [steady_ns, overflow_ns, lines, chased] = best;
    let single_ns = 2.0 * overflow_ns - steady_ns;
    let times = |ns: f64| {
        let ratio = ns / steady_ns;
        format!("{ratio:>5.2}{}", if ratio > 2.0 { '!' } else { ' ' })
    };
    let sign = |bench: &Bench| match bench.queue.backlog().packets as usize * 2 < backlog {
        true => '~',
        false => ' ',
    };
    println!(
        "{:<16} {backlog:>8} {flows:>7} {steady_ns:>7.1}{} {overflow_ns:>8.1}{} {} {single_ns:>8.1} {}  {lines:>7.1} {chased:>7.1}",
        algorithm.name,
        sign(&steady),
        sign(&overflow),
        times(overflow_ns),
        times(single_ns),
    );
}

/// A filled queue and its input.
struct Bench {
    queue: Box<dyn Discipline>,
    /// Flows in random order, drawn in advance so that the generator is not measured.
    flows: Vec<u32>,
    next: usize,
    now: Time,
    step: Span,
    rng: Rng,
    drops: DropCounter,
}

impl Bench {
    fn new(algorithm: &Algorithm, backlog: usize, flows: u32, limit: usize) -> Self {
        let mut text = String::from(algorithm.name);
        let limit = match is_classful(algorithm) {
            true => limit.div_ceil(flows as usize),
            false => limit,
        };
        for (name, value) in [("limit", limit as u64), ("flows", u64::from(flows))] {
            if algorithm.params().any(|decl| decl.name == name) {
                text += &format!(" {name} {value}");
            }
        }
        let spec = Spec::parse(&text).unwrap_or_else(|error| panic!("`{text}`: {error}"));
        let mut rng = Rng::from_seed(1);
        let mut bench = Bench {
            queue: spec.build().expect("a parsed queue is built"),
            flows: (0..1 << 20)
                .map(|_| rng.below(u64::from(flows)) as u32)
                .collect(),
            next: 0,
            now: Time::from_ns(1),
            step: Span::from_ns(SOJOURN.as_ns() / backlog as u64),
            rng,
            drops: DropCounter::default(),
        };
        while (bench.queue.backlog().packets as usize) < backlog && bench.next < 2 * backlog {
            bench.enqueue();
        }
        bench
    }

    fn enqueue(&mut self) {
        let mut packet = Packet::new(self.next as u32, 1500);
        packet.flow = self.flows[self.next & ((1 << 20) - 1)];
        packet.class = packet.flow;
        // One host per flow: CAKE divides the turns of one host's flows by their number.
        (packet.src, packet.dst) = (packet.flow, packet.flow);
        packet.arrival = self.now;
        self.next += 1;
        let mut cx = Cx::new(self.now, &mut self.rng, &mut self.drops);
        self.queue.enqueue(packet, &mut cx);
    }

    fn dequeue(&mut self) {
        let mut cx = Cx::new(self.now, &mut self.rng, &mut self.drops);
        black_box(self.queue.dequeue(&mut cx));
    }

    /// Advances by one packet's slot on the link.
    fn pass(&mut self) {
        self.now += self.step;
        if self.queue.next_timer().is_some_and(|due| due <= self.now) {
            let mut cx = Cx::new(self.now, &mut self.rng, &mut self.drops);
            self.queue.on_timer(&mut cx);
        }
    }

    fn run(&mut self, slots: usize, arrivals: usize) -> Duration {
        let start = Instant::now();
        for _ in 0..slots {
            self.pass();
            for _ in 0..arrivals {
                self.enqueue();
            }
            self.dequeue();
        }
        start.elapsed()
    }
}

/// As many cache lines as the queue has, linked into one cycle in random order.
struct Memory {
    lines: Vec<Line>,
    order: Vec<u32>,
    /// The position in the order and the line at which the last visit ended.
    next: usize,
    at: u32,
}

/// The next line to visit, and a number to change.
#[derive(Clone)]
#[repr(align(64))]
struct Line(u32, u32);

impl Memory {
    fn new(lines: usize) -> Self {
        // One cycle through all lines (Sattolo).
        let mut rng = Rng::from_seed(2);
        let mut order: Vec<u32> = (0..lines as u32).collect();
        for i in (1..lines).rev() {
            order.swap(i, rng.below(i as u64) as usize);
        }
        let mut memory = vec![Line(0, 0); lines];
        for (from, to) in order.iter().zip(order.iter().cycle().skip(1)) {
            memory[*from as usize].0 = *to;
        }
        Memory {
            lines: memory,
            order,
            next: 0,
            at: 0,
        }
    }

    /// Changes `visits` lines. Each is found through the previous line or through the order.
    fn visit(&mut self, visits: usize, is_chased: bool) -> Duration {
        let start = Instant::now();
        for _ in 0..visits {
            if !is_chased {
                self.next = (self.next + 1) % self.order.len();
                self.at = self.order[self.next];
            }
            let line = &mut self.lines[self.at as usize];
            line.1 += 1;
            self.at = line.0;
        }
        black_box(self.at);
        start.elapsed()
    }
}
