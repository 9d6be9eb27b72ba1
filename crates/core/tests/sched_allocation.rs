//! No algorithm allocates per packet: once a queue has had its largest backlog, packets arrive and
//! leave without calls of the allocator.

use sluice_core::param::{Kind, Value, Values};
use sluice_core::registry::{self, Algorithm};
use sluice_core::{Cx, Discipline, DropCounter, Ecn, Packet, Rng, Span, Time, Wake};

/// Packets that are held, and the number of their flows and classes.
const BACKLOG: u32 = 1000;
const FLOWS: u32 = 64;

struct Bench {
    queue: Box<dyn Discipline>,
    rng: Rng,
    sink: DropCounter,
    now: Time,
    sent: u32,
}

impl Bench {
    fn offer(&mut self) {
        let n = self.sent;
        self.sent += 1;
        let mut packet = Packet::new(n, 60 + n % 7 * 240);
        packet.arrival = self.now;
        packet.flow = n.wrapping_mul(0x9E37_79B9) % FLOWS;
        packet.src = packet.flow / 4;
        packet.dst = packet.flow / 8;
        packet.class = packet.flow;
        packet.dscp = (packet.flow % 64) as u8;
        packet.tag = packet.flow * 1000;
        packet.ecn = Ecn::from_bits(packet.flow as u8);
        packet.segments = if n.is_multiple_of(11) { 3 } else { 1 };
        let mut cx = Cx::new(self.now, &mut self.rng, &mut self.sink);
        self.queue.enqueue(packet, &mut cx);
    }

    fn step(&mut self, backlog: u64) {
        self.now += Span::from_us(10);
        while self.queue.next_timer().is_some_and(|at| at <= self.now) {
            let mut cx = Cx::new(self.now, &mut self.rng, &mut self.sink);
            self.queue.on_timer(&mut cx);
        }
        while self.queue.backlog().packets < backlog {
            let before = self.queue.backlog();
            self.offer();
            if self.queue.backlog() == before {
                break;
            }
        }
        // One packet more, so that full queues refuse or evict.
        self.offer();
        if self.queue.next_wake() == Wake::OnEnqueue {
            return;
        }
        let mut cx = Cx::new(self.now, &mut self.rng, &mut self.sink);
        let _ = self.queue.dequeue(&mut cx);
    }
}

/// Returns the defaults, and a limit that overflows all the time under the rules of every variant.
fn settings(algorithm: &Algorithm) -> Vec<Values> {
    let find = |name| algorithm.params().find(|decl| decl.name == name);
    let mut full = Values::new();
    if find("limit").is_some() {
        full.set("limit", Value::Count(u64::from(BACKLOG) / 4));
    }
    let mut all = vec![Values::new(), full.clone()];
    if let Some(Kind::Choice(variants)) = find("variant").map(|decl| decl.kind) {
        for variant in variants {
            full.set("variant", Value::Choice(variant));
            all.push(full.clone());
        }
    }
    all
}

/// A full queue never holds more, and one offer beyond it is made at every step.
fn most_held(values: &Values) -> u64 {
    u64::from(BACKLOG) / if values.find("limit").is_some() { 4 } else { 1 }
}

fn allocations(algorithm: &Algorithm, values: &Values) -> u64 {
    let queue = algorithm.build(values).unwrap();
    let held = most_held(values);
    let mut bench = Bench {
        queue,
        rng: Rng::from_seed(1),
        sink: DropCounter::default(),
        now: Time::ZERO,
        sent: 0,
    };
    let run = |bench: &mut Bench| {
        for n in 0..20_000 {
            // Waves, so that queues empty and fill again.
            let wave = u64::from(n % 2000 < 1500);
            bench.step(held * wave);
            if wave == 0 {
                let mut cx = Cx::new(bench.now, &mut bench.rng, &mut bench.sink);
                while let Some(packet) = bench.queue.dequeue(&mut cx) {
                    drop(packet);
                }
            }
        }
    };
    run(&mut bench);
    run(&mut bench);
    allocation_counter::measure(|| run(&mut bench)).count_total
}

#[test]
fn no_algorithm_allocates_in_steady_state() {
    for algorithm in registry::algorithms() {
        for values in settings(algorithm) {
            let name = algorithm.name;
            assert_eq!(allocations(algorithm, &values), 0, "{name} {values:?}");
        }
    }
}

/// Hosts limit the memory of very many queues by what each reports. What several share, such as
/// tables made from parameters, is not reported.
#[test]
fn every_discipline_reports_the_memory_that_it_holds() {
    for algorithm in registry::algorithms() {
        for values in settings(algorithm) {
            let name = algorithm.name;
            let most = most_held(&values);
            let model = algorithm.build(&values).unwrap();
            let mut kept = None;
            let info = allocation_counter::measure(|| {
                let mut bench = Bench {
                    queue: model
                        .blank()
                        .unwrap_or_else(|| algorithm.build(&values).unwrap()),
                    rng: Rng::from_seed(1),
                    sink: DropCounter::default(),
                    now: Time::ZERO,
                    sent: 0,
                };
                (0..2000).for_each(|_| bench.step(most));
                kept = Some(bench);
            });
            let bench = kept.expect("it was kept");
            let (held, reported) = (info.bytes_current, bench.queue.memory() as i64);
            let tolerance = 1024 + held / 20;
            assert!(
                (reported - held).abs() <= tolerance,
                "{name} {values:?} reports {reported} of {held} bytes"
            );
        }
    }
}

#[test]
fn the_counter_counts() {
    let info = allocation_counter::measure(|| drop(std::hint::black_box(Box::new(1))));
    assert_eq!(info.count_total, 1);
}
