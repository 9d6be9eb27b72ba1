//! The effect of a queue on the delay of a path: a bulk transfer and a ping share 10 Mbit/s.
//!
//! ```text
//! cargo run -p sluice-sim --example bufferbloat ['QUEUE' ...]
//! ```
//!
//! A queue is written as in a scenario (`fifo limit 1000`, `fq_codel target 5ms`). Without arguments
//! the program compares three. It shows how to build a [`Config`], run a [`Simulation`], and gather
//! results with an [`Observer`].

use sluice_core::registry::Spec;
use sluice_core::{Rate, Span};
use sluice_sim::{
    Config, Echo, Flow, FlowId, Observer, Ping, Simulation, Tcp, dumbbell, dumbbell_route,
};
use sluice_tcp::cc;

/// Keeps the round trip times of pings.
#[derive(Default)]
struct RoundTrips(Vec<Span>);

impl Observer for RoundTrips {
    fn on_echo(&mut self, _flow: FlowId, echo: &Echo) {
        self.0.push(echo.round_trip);
    }
}

fn main() {
    let mut queues: Vec<String> = std::env::args().skip(1).collect();
    if queues.is_empty() {
        queues = ["fifo limit 1000", "codel", "fq_codel"]
            .map(String::from)
            .into();
    }
    println!(
        "{:<24} {:>10} {:>12} {:>12}",
        "queue", "Mbit/s", "median ms", "longest ms"
    );
    for text in queues {
        let queue = Spec::parse(&text).unwrap_or_else(|error| {
            eprintln!("{error}");
            std::process::exit(2);
        });
        let transfer = Tcp::bulk(&cc::CUBIC);
        let ping = Ping {
            interval: Span::from_ms(20),
            payload: 56,
            count: None,
            is_udp: false,
        };
        let config = Config {
            duration: Span::from_secs(30),
            links: dumbbell(Rate::from_bps(10_000_000), Span::from_ms(20), &queue),
            flows: vec![
                Flow::new(transfer, dumbbell_route(Span::ZERO)),
                Flow::new(ping, dumbbell_route(Span::ZERO)),
            ],
            ..Config::default()
        };
        let mut simulation = Simulation::new(&config).expect("a valid configuration");
        let mut round_trips = RoundTrips::default();
        simulation.run(&mut round_trips);
        round_trips.0.sort_unstable();
        let ms = |span: Option<&Span>| span.map_or(0.0, |span| span.as_ns() as f64 / 1e6);
        println!(
            "{text:<24} {:>10.2} {:>12.2} {:>12.2}",
            simulation.totals(0).bytes_received as f64 * 8.0 / 30.0 / 1e6,
            ms(round_trips.0.get(round_trips.0.len() / 2)),
            ms(round_trips.0.last()),
        );
    }
}
