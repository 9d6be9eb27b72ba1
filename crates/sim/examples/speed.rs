//! How fast the simulator is, in the scenarios that are compared with ns-3.
#![allow(clippy::disallowed_types)] // it measures real time

use sluice_core::registry::Spec;
use sluice_core::{Rate, Span};
use sluice_sim::{Config, Flow, Simulation, Tcp, Traffic, dumbbell, dumbbell_route};
use sluice_tcp::cc;
use std::time::{Duration, Instant};

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

/// Time that this thread has been running on a processor (Linux: proc(5), schedstat).
fn cpu_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let ns = text.split_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(ns))
}

fn main() {
    println!("flows  Mbit/s  seconds     run ms     events  ns/event  ns/packet  goodput %  drops");
    let cases = [
        (4, 10, 60),
        (4, 100, 60),
        (16, 1000, 10),
        (10, 1000, 10),
        (10_000, 1000, 10),
        (10, 10_000, 1),
        (1000, 10_000, 1),
        (10_000, 10_000, 1),
    ];
    // A number chooses one of them.
    let only: Option<usize> = std::env::args().nth(1).and_then(|n| n.parse().ok());
    for (number, (flows, mbps, seconds)) in cases.into_iter().enumerate() {
        if only.is_some_and(|only| only != number) {
            continue;
        }
        let config = scenario(flows, mbps, seconds);
        // The best of three: the machine may be busy otherwise.
        let mut best = f64::MAX;
        let mut line = String::new();
        for _ in 0..std::env::args()
            .nth(2)
            .and_then(|n| n.parse().ok())
            .unwrap_or(3)
        {
            let (start, busy) = (Instant::now(), cpu_time());
            let mut simulation = Simulation::new(&config).expect("a valid configuration");
            simulation.run(&mut ());
            // What this process had of the processor, where the system tells; else the clock.
            let ns = match (busy, cpu_time()) {
                (Some(before), Some(after)) => after - before,
                _ => start.elapsed(),
            }
            .as_nanos() as f64;
            if ns < best {
                best = ns;
                let totals = (0..flows).map(|flow| simulation.totals(flow));
                let (mut bytes, mut packets, mut drops) = (0, 0, 0);
                for total in totals {
                    bytes += total.bytes_received;
                    packets += total.packets_sent;
                    drops += total.packets_dropped;
                }
                let capacity = (mbps * 1_000_000 * seconds / 8) as f64 * 1448.0 / 1514.0;
                line = format!(
                    "{flows:>5} {mbps:>7} {seconds:>8} {:>10.1} {:>10} {:>9.1} {:>10.1} {:>10.2} {drops:>6}",
                    ns / 1e6,
                    simulation.events(),
                    ns / simulation.events() as f64,
                    ns / packets as f64,
                    bytes as f64 / capacity * 100.0,
                );
            }
        }
        println!("{line}");
    }
}
