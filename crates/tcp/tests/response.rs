//! The average window against the loss rate follows the response functions of Reno and CUBIC.
//!
//! Both are derived for one loss in every 1/p segments, so exactly that is simulated: an endless
//! sender over a path with a fixed RTT and no queue, where every (1/p)-th segment is dropped. The
//! average window is the number of segments delivered per RTT.

mod common;

use common::{Fate, Net, secs};
use sluice_core::{Span, Time};
use sluice_tcp::{Config, Growth, cc};

/// Segments delivered per RTT, over whole loss periods after the first few. The first loss comes
/// after `first` segments, so that slow start ends near the expected window.
fn average_window(
    name: &str,
    growth: Growth,
    rtt: Span,
    period: u64,
    periods: u64,
    first: u64,
) -> f64 {
    let config = Config {
        congestion_control: cc::find(name).unwrap(),
        growth,
        receive_buffer: 1 << 30,
        // The derivations assume an ACK for each segment; a delayed ACK would lengthen the RTT of
        // every odd segment by 40 ms.
        ack_every: 1,
        ..Config::default()
    };
    let drops = std::cell::Cell::new(0_u64);
    let seen = &drops;
    let mut next = 0_u32;
    let mut sent = period.saturating_sub(first);
    let start_at = sent;
    let half = Span::from_ns(rtt.as_ns() / 2);
    let mut net = Net::new(&config, &config, half, |up, s| {
        // Only first transmissions are counted and dropped: retransmissions have lower numbers.
        if !up || s.len == 0 || (sent > start_at && s.seq.wrapping_sub(next) as i32 > 0x4000_0000) {
            return Fate::Deliver;
        }
        if (s.seq.wrapping_sub(next) as i32) < 0 {
            return Fate::Deliver;
        }
        next = s.seq.wrapping_add(s.len);
        sent += 1;
        if sent.is_multiple_of(period) {
            seen.set(seen.get() + 1);
            Fate::Drop
        } else {
            Fate::Deliver
        }
    });
    net.client.open(Time::ZERO);
    net.client.write_forever();
    net.flush();
    let mut start = None;
    loop {
        assert!(net.step(secs(1_000_000)));
        let losses = seen.get();
        if losses == WARM_UP && start.is_none() {
            start = Some((net.now, net.server.received()));
        }
        if losses == WARM_UP + periods {
            break;
        }
    }
    let (from, bytes) = start.expect("the warm-up came first");
    let delivered = (net.server.received() - bytes) as f64 / 1448.0;
    assert_eq!(net.client.counters().timeouts, 0, "{name} at 1/{period}");
    delivered / (net.now.since(from).as_ns() as f64 / rtt.as_ns() as f64)
}

const WARM_UP: u64 = 6;

fn measure(name: &str, growth: Growth, rtt_ms: u64, period: u64, expected: f64) -> f64 {
    let periods = (200_000 / period).clamp(5, 200);
    let rtt = Span::from_ms(rtt_ms);
    average_window(name, growth, rtt, period, periods, 3 * expected as u64)
}

fn check(name: &str, growth: Growth, rtt_ms: u64, period: u64, expected: f64) {
    let seen = measure(name, growth, rtt_ms, period, expected);
    let error = seen / expected - 1.0;
    // The models ignore the RTT that each recovery takes at the reduced window. It matters most
    // where a cycle has few RTTs, at p = 1e-2 (a tenth of the cycle).
    assert!(
        error.abs() < 0.15,
        "{name} at {rtt_ms} ms, 1/{period}: {seen:.1} instead of {expected:.1}"
    );
}

#[test]
fn reno_follows_the_inverse_square_root_of_the_loss_rate() {
    // RFC 8312 Table 1: 1.2 / sqrt(p) = 12, 38, 120, 379
    for (period, window) in [(100, 12.0), (1000, 38.0), (10_000, 120.0), (100_000, 379.0)] {
        check("reno", Growth::Bytes, 100, period, window);
    }
}

#[test]
fn cubic_follows_its_response_function_where_it_exceeds_reno() {
    // RFC 8312 Table 1 (RTT 100 ms, C = 0.4): 1.054 * RTT^0.75 / p^0.75 = 187 and 1054 at 1e-4
    // and 1e-5; at 1e-2 and 1e-3 the Reno-friendly region gives Reno's 12 and 38.
    for (period, window) in [
        (100, 12.0),
        (1000, 38.0),
        (10_000, 187.0),
        (100_000, 1054.0),
    ] {
        check("cubic", Growth::Bytes, 100, period, window);
    }
    // In whole segments, except for one point; see below.
    for (period, window) in [(100, 12.0), (10_000, 187.0), (100_000, 1054.0)] {
        check("cubic", Growth::Segments, 100, period, window);
    }
}

#[test]
fn cubic_on_a_short_path_is_reno() {
    // RFC 8312 Table 2 (RTT 10 ms): the Reno-friendly region down to 1e-5
    for (period, window) in [(100, 12.0), (1000, 38.0), (10_000, 120.0), (100_000, 379.0)] {
        check("cubic", Growth::Bytes, 10, period, window);
    }
    // In whole segments, except for one point; see below.
    for (period, window) in [(1000, 38.0), (10_000, 120.0), (100_000, 379.0)] {
        check("cubic", Growth::Segments, 10, period, window);
    }
}

#[test]
fn whole_segments_lie_outside_in_two_points() {
    // Checks the deviation that docs/explanation/validation.md states. At 1e-3 and 100 ms a target
    // that is a fraction of a segment ahead counts as one segment, which has an effect where the
    // curve grows by less than one per RTT. At 1e-2 and 10 ms, 0.7 of 11 is 7, and the window
    // follows that of Reno with a delay of up to 1/32 s, three RTTs.
    let seen = measure("cubic", Growth::Segments, 100, 1000, 38.0);
    assert!((45.0..47.0).contains(&seen), "{seen:.1}");
    let seen = measure("cubic", Growth::Segments, 10, 100, 12.0);
    assert!((8.0..9.0).contains(&seen), "{seen:.1}");
}
