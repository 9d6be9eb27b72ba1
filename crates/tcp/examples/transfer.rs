//! A transfer between two endpoints, without a simulator.
//!
//! ```text
//! cargo run -p sluice-tcp --example transfer [CONGESTION_CONTROL]
//! ```
//!
//! Shows what a host of this crate does: it carries segments from one [`Endpoint`] to the other, and
//! calls their timers. The path here has 20 ms of round trip time and loses every 200th data segment
//! that is sent. The program prints the sender's variables every 100 ms.

use sluice_core::{Span, Time};
use sluice_tcp::{Config, Endpoint, Segment, cc};
use std::collections::VecDeque;

/// One-way delay of the path.
const DELAY: Span = Span::from_ms(10);
/// Bytes to transfer.
const BYTES: u64 = 10_000_000;

fn main() {
    let name = std::env::args().nth(1).unwrap_or_else(|| "cubic".into());
    let Some(congestion_control) = cc::find(&name) else {
        let known: Vec<&str> = cc::REGISTRY.iter().map(|entry| entry.name).collect();
        eprintln!(
            "no congestion control `{name}`; there are {}",
            known.join(", ")
        );
        std::process::exit(2);
    };
    let config = Config {
        congestion_control,
        ..Config::default()
    };
    let mut client = Endpoint::client(&config).expect("the defaults are valid");
    let mut server = Endpoint::server(&config).expect("the defaults are valid");
    client.open(Time::ZERO);
    client.write(BYTES);
    client.close();
    server.close();

    // Segments in flight in each direction, in the order of their arrival.
    let mut to_server: VecDeque<(Time, Segment)> = VecDeque::new();
    let mut to_client: VecDeque<(Time, Segment)> = VecDeque::new();
    let (mut now, mut report_at, mut sent) = (Time::ZERO, Time::ZERO, 0_u64);
    println!("  ms     cwnd  in flight    srtt  retransmits");
    loop {
        while let Some(segment) = client.poll_transmit(now) {
            sent += u64::from(segment.len > 0);
            if segment.len == 0 || !sent.is_multiple_of(200) {
                to_server.push_back((now + DELAY, segment));
            }
        }
        while let Some(segment) = server.poll_transmit(now) {
            to_client.push_back((now + DELAY, segment));
        }
        if client.is_closed() && server.is_closed() {
            break;
        }
        let arrivals = [to_server.front(), to_client.front()];
        let arrivals = arrivals.into_iter().flatten().map(|(at, _)| *at);
        let timers = [client.next_timeout(), server.next_timeout()];
        now = arrivals.chain(timers).min().unwrap_or(now).max(now);
        if now >= report_at {
            let snapshot = client.snapshot();
            println!(
                "{:>4} {:>8} {:>10} {:>7} {:>12}",
                now.as_ns() / 1_000_000,
                snapshot.window.cwnd,
                snapshot.in_flight,
                snapshot.srtt.unwrap_or_default().to_string(),
                client.counters().retransmits,
            );
            report_at = now + Span::from_ms(100);
        }
        while let Some(segment) = arrived(&mut to_server, now) {
            server.handle_segment(now, &segment);
        }
        while let Some(segment) = arrived(&mut to_client, now) {
            client.handle_segment(now, &segment);
        }
        client.handle_timeout(now);
        server.handle_timeout(now);
    }
    assert_eq!(server.received(), BYTES);
    println!("{BYTES} bytes in {}", now.since(Time::ZERO));
}

/// Takes the next segment that has arrived by `now`.
fn arrived(in_flight: &mut VecDeque<(Time, Segment)>, now: Time) -> Option<Segment> {
    in_flight.front().filter(|(at, _)| *at <= now)?;
    in_flight.pop_front().map(|(_, segment)| segment)
}
