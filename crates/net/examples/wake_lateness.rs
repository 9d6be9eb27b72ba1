//! Measures how late waits end on this machine, and the cost.
//!
//! `cargo run --release -p sluice-net --example wake_lateness [SECONDS [PRIORITY]]`, with a
//! real-time PRIORITY of 1 to 99 if the process may.

use sluice_core::{Span, Time};
use sluice_net::port::{Spin, Waiter};
use sluice_net::{Clock, real_time};

fn main() {
    let seconds = std::env::args().nth(1).map_or(2, |word| {
        word.parse()
            .unwrap_or_else(|_| panic!("{word:?} is not a number of seconds"))
    });
    if let Some(word) = std::env::args().nth(2) {
        let priority = word
            .parse()
            .unwrap_or_else(|_| panic!("{word:?} is not a priority"));
        real_time(priority).unwrap();
    }
    println!(
        "{:<10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "spin", "every us", "p50 us", "p99 us", "p99.9 us", "max us", "cpu %"
    );
    // With real-time priority, spinning always would stop everything else on the core.
    let spins = match std::env::args().nth(2) {
        Some(_) => &[Spin::None, Spin::Adaptive][..],
        None => &[Spin::None, Spin::Adaptive, Spin::Always],
    };
    for spin in spins.iter().copied() {
        for interval in [Span::from_us(200), Span::from_ms(1), Span::from_ms(10)] {
            measure(spin, interval, Span::from_secs(seconds));
        }
    }
}

fn measure(spin: Spin, interval: Span, length: Span) {
    let clock = Clock::start();
    let mut waiter = Waiter::new(spin);
    let mut late = Vec::with_capacity((length.as_ns() / interval.as_ns()) as usize);
    let busy = busy_ticks();
    let mut deadline = Time::ZERO + interval;
    while deadline < Time::ZERO + length {
        let wake = waiter.wait(&[], Some(deadline), &clock);
        late.push(wake.now.since(deadline));
        while deadline <= wake.now {
            deadline += interval;
        }
    }
    // USER_HZ is 100 on every architecture.
    let cpu = (busy_ticks() - busy) as f64 / length.as_secs_f64();
    late.sort();
    let at = |share: f64| late[((late.len() - 1) as f64 * share) as usize].as_ns() as f64 / 1e3;
    println!(
        "{:<10} {:>9} {:>9.1} {:>9.1} {:>9.1} {:>9.1} {cpu:>9.1}",
        format!("{spin:?}"),
        interval.as_ns() / 1000,
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0),
    );
}

/// User and system time of this process so far (proc(5), fields 14 and 15).
fn busy_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let fields: Vec<_> = fields.split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}
