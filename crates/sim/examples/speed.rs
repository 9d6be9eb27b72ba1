//! Measures the speed of the simulator, in the scenarios that are compared with ns-3.
//!
//! ```text
//! cargo run --release -p sluice-sim --example speed [CASE|all] [ROUNDS]
//! ```
//!
//! Prints the best of five rounds, or of `ROUNDS`, in processor time. The ratios at the end show how
//! much caches matter: the same link with 10 and with 10 000 flows, and a link of 100 Gbit/s with
//! 100 000 flows, which runs in the first two rounds only.
#![allow(clippy::disallowed_types)] // it measures real time

use sluice_core::registry::Spec;
use sluice_core::{Rate, Span};
use sluice_sim::{Config, Flow, Simulation, Tcp, dumbbell, dumbbell_route};
use sluice_tcp::cc;
use std::process::Command;
use std::time::Duration;

fn scenario(flows: usize, mbps: u64, seconds: u64) -> Config {
    let queue = Spec::parse("fq_codel").expect("a registered queue");
    let flow = Flow::new(Tcp::bulk(&cc::CUBIC), dumbbell_route(Span::ZERO));
    Config {
        duration: Span::from_secs(seconds),
        links: dumbbell(Rate::from_bps(mbps * 1_000_000), Span::from_ms(20), &queue),
        flows: vec![flow; flows],
        ..Config::default()
    }
}

/// The best run of a case.
struct Best {
    busy: Duration,
    events: u64,
    packets: u64,
    bytes: u64,
    drops: u64,
    /// The most memory of the process.
    memory: u64,
}

impl Best {
    fn ns_per_event(&self) -> f64 {
        self.busy.as_nanos() as f64 / self.events as f64
    }
}

/// Processor time of this thread.
fn busy() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn run(config: &Config) -> Best {
    let start = busy();
    let mut simulation = Simulation::new(config).expect("a valid configuration");
    simulation.run(&mut ());
    let mut done = Best {
        busy: busy() - start,
        events: simulation.events(),
        packets: 0,
        bytes: 0,
        drops: 0,
        memory: 0,
    };
    for flow in 0..config.flows.len() {
        let totals = simulation.totals(flow);
        done.bytes += totals.bytes_received;
        done.packets += totals.packets_sent;
        done.drops += totals.packets_dropped;
    }
    done
}

const CASES: [(usize, u64, u64); 9] = [
    (4, 10, 60),
    (4, 100, 60),
    (16, 1000, 10),
    (10, 1000, 10),
    (10_000, 1000, 10),
    (10, 10_000, 1),
    (1000, 10_000, 1),
    (10_000, 10_000, 1),
    (100_000, 100_000, 1),
];
/// The cases that are compared: 10, 10 000 and 100 000 flows.
const FEW: usize = 5;
const MANY: usize = 7;
const MOST: usize = 8;
/// Rounds in which the largest case runs.
const MOST_ROUNDS: usize = 2;

/// Runs a case in a process of its own, so that every run starts with fresh memory.
fn run_apart(case: usize) -> Best {
    let own = std::env::current_exe().expect("this program");
    let child = Command::new(own).args([&case.to_string(), RAW]).output();
    let output = child.expect("a process").stdout;
    let text = String::from_utf8(output).expect("numbers");
    let numbers: Vec<u64> = text.split_whitespace().flat_map(str::parse).collect();
    let [ns, events, packets, bytes, drops, memory] = numbers[..] else {
        panic!("six numbers, not {text:?}");
    };
    Best {
        busy: Duration::from_nanos(ns),
        events,
        packets,
        bytes,
        drops,
        memory,
    }
}

/// Instead of the number of rounds: run once, and print only the numbers.
const RAW: &str = "raw";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let only: Option<usize> = arguments.first().and_then(|n| n.parse().ok());
    if let (Some(case), true) = (only, arguments.get(1).is_some_and(|word| word == RAW)) {
        let (flows, mbps, seconds) = CASES[case];
        let done = run(&scenario(flows, mbps, seconds));
        let ns = done.busy.as_nanos();
        let (events, packets) = (done.events, done.packets);
        let (bytes, drops, memory) = (done.bytes, done.drops, peak_memory());
        println!("{ns} {events} {packets} {bytes} {drops} {memory}");
        return;
    }
    let rounds: usize = arguments.get(1).and_then(|n| n.parse().ok()).unwrap_or(5);
    let chosen = || (0..CASES.len()).filter(|case| only.is_none_or(|only| only == *case));
    let mut best: [Option<Best>; CASES.len()] = Default::default();
    let mut each: [Vec<f64>; CASES.len()] = Default::default();
    // Each round runs all cases, so that other load on the machine affects them alike.
    for round in 1..=rounds {
        eprint!("\rround {round} of {rounds} ");
        for case in chosen() {
            if case == MOST && round > MOST_ROUNDS {
                continue;
            }
            let done = run_apart(case);
            each[case].push(done.ns_per_event());
            if best[case].as_ref().is_none_or(|best| done.busy < best.busy) {
                best[case] = Some(done);
            }
        }
    }
    eprintln!();
    println!(
        " flows  Mbit/s  seconds     run ms     events  ns/event  ns/packet  goodput %    drops    MiB"
    );
    for case in chosen() {
        let (flows, mbps, seconds) = CASES[case];
        let Some(best) = &best[case] else { continue };
        let ns = best.busy.as_nanos() as f64;
        let capacity = (mbps * 1_000_000 * seconds / 8) as f64 * 1448.0 / 1514.0;
        println!(
            "{flows:>6} {mbps:>7} {seconds:>8} {:>10.1} {:>10} {:>9.1} {:>10.1} {:>10.2} {:>8} {:>6}",
            ns / 1e6,
            best.events,
            best.ns_per_event(),
            ns / best.packets as f64,
            best.bytes as f64 / capacity * 100.0,
            best.drops,
            best.memory >> 20,
        );
    }
    // The ratio within a round, whose runs are some seconds apart, since the load of the machine
    // changes within minutes; and the ratio of the best runs, which may be of different rounds.
    for case in [MANY, MOST] {
        let (flows, mbps, _) = CASES[case];
        let pairs = each[FEW].iter().zip(&each[case]);
        let mut ratios: Vec<f64> = pairs.map(|(few, many)| many / few).collect();
        ratios.sort_by(f64::total_cmp);
        if let ([least, .., most], Some(few), Some(many)) = (&ratios[..], &best[FEW], &best[case]) {
            let median = ratios[ratios.len() / 2];
            let of_best = many.ns_per_event() / few.ns_per_event();
            println!(
                "{flows} flows at {} Gbit/s: an event costs {median:.2} times as much as with 10 flows at 10 Gbit/s",
                mbps / 1000
            );
            println!(
                "(median of {} rounds, {least:.2} to {most:.2}; of the best runs {of_best:.2})",
                ratios.len()
            );
        }
    }
}

/// The most memory that this process has had, in bytes.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}
