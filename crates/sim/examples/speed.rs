//! How fast the simulator is, in the scenarios that are compared with ns-3.
#![allow(clippy::disallowed_types)] // it measures real time

use sluice_core::registry::Spec;
use sluice_core::{Rate, Span};
use sluice_sim::{Config, Flow, Simulation, Tcp, Traffic, dumbbell, dumbbell_route};
use sluice_tcp::cc;
use std::time::Duration;

fn scenario(flows: usize, mbps: u64, seconds: u64) -> Config {
    let queue = Spec::parse("fq_codel").expect("a registered queue");
    let flow = Flow::new(
        Traffic::Tcp(Tcp::bulk(&cc::CUBIC).into()),
        dumbbell_route(Span::ZERO),
    );
    Config {
        duration: Span::from_secs(seconds),
        links: dumbbell(Rate::from_bps(mbps * 1_000_000), Span::from_ms(20), &queue),
        flows: vec![flow; flows],
        ..Config::default()
    }
}

/// A scenario's best run.
struct Best {
    busy: Duration,
    events: u64,
    packets: u64,
    bytes: u64,
    drops: u64,
}

impl Best {
    fn ns_per_event(&self) -> f64 {
        self.busy.as_nanos() as f64 / self.events as f64
    }
}

/// Time that this thread has had of a processor.
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
    };
    for flow in 0..config.flows.len() {
        let totals = simulation.totals(flow);
        done.bytes += totals.bytes_received;
        done.packets += totals.packets_sent;
        done.drops += totals.packets_dropped;
    }
    done
}

const CASES: [(usize, u64, u64); 8] = [
    (4, 10, 60),
    (4, 100, 60),
    (16, 1000, 10),
    (10, 1000, 10),
    (10_000, 1000, 10),
    (10, 10_000, 1),
    (1000, 10_000, 1),
    (10_000, 10_000, 1),
];

/// Arguments: the number of a case, or `all`; how many rounds.
fn main() {
    let mut arguments = std::env::args().skip(1);
    let only: Option<usize> = arguments.next().and_then(|n| n.parse().ok());
    let rounds: usize = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(5);
    let chosen = || (0..CASES.len()).filter(|case| only.is_none_or(|only| only == *case));
    let mut best: [Option<Best>; CASES.len()] = Default::default();
    // One case after the other in each round, so that what else the machine does meets all alike.
    for round in 1..=rounds {
        eprint!("\rround {round} of {rounds} ");
        for case in chosen() {
            let (flows, mbps, seconds) = CASES[case];
            let done = run(&scenario(flows, mbps, seconds));
            if best[case].as_ref().is_none_or(|best| done.busy < best.busy) {
                best[case] = Some(done);
            }
        }
    }
    eprintln!();
    println!("flows  Mbit/s  seconds     run ms     events  ns/event  ns/packet  goodput %  drops");
    for case in chosen() {
        let (flows, mbps, seconds) = CASES[case];
        let Some(best) = &best[case] else { continue };
        let ns = best.busy.as_nanos() as f64;
        let capacity = (mbps * 1_000_000 * seconds / 8) as f64 * 1448.0 / 1514.0;
        println!(
            "{flows:>5} {mbps:>7} {seconds:>8} {:>10.1} {:>10} {:>9.1} {:>10.1} {:>10.2} {:>6}",
            ns / 1e6,
            best.events,
            best.ns_per_event(),
            ns / best.packets as f64,
            best.bytes as f64 / capacity * 100.0,
            best.drops,
        );
    }
    if let (Some(few), Some(many)) = (&best[5], &best[7]) {
        let ratio = many.ns_per_event() / few.ns_per_event();
        println!("10 Gbit/s: an event costs {ratio:.2} times as much with 10 000 flows as with 10");
    }
}
