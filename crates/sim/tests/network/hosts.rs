//! When hosts process packets that have arrived.

use super::*;

/// By how much each round trip time exceeds 20 ms.
fn beyond_20_ms(notes: &Notes) -> Vec<u64> {
    let of = |echo: &Echo| echo.round_trip.as_ns() - 20_000_000;
    notes.echoes.iter().map(of).collect()
}

#[test]
fn jitter_only_adds_and_stays_below_its_bound() {
    let links = dumbbell(Rate::UNLIMITED, Span::from_ms(20), &queue("fifo"));
    let config = Config {
        jitter: Span::from_us(100),
        ..exact(links, vec![ping(Span::from_ms(10))], 10)
    };
    let (_, notes) = run(&config);
    let extra = beyond_20_ms(&notes);
    assert!(extra.iter().all(|ns| *ns <= 200_000));
    // The sum of two uniform draws below 100 us has a mean of 100 us and a standard deviation of 41
    // us; the mean of 1000 sums has one of 1.3 us, taken five times.
    let mean = extra.iter().sum::<u64>() / extra.len() as u64;
    assert!(mean.abs_diff(100_000) < 6_500, "{mean}");
}

#[test]
fn a_host_is_away_as_often_and_as_long_as_the_stalls_say() {
    let links = dumbbell(Rate::UNLIMITED, Span::from_ms(20), &queue("fifo"));
    let config = Config {
        stalls: Stalls {
            share: Ratio::from_billionths(100_000_000),
            mean: Span::from_us(200),
        },
        ..exact(links, vec![ping(Span::from_ms(10))], 101)
    };
    let (_, notes) = run(&config);
    let mut extra = beyond_20_ms(&notes);
    // Those of the last instants are still in flight.
    extra.truncate(10_000);
    // 10 000 round trips, each with two packets that a host receives: neither is stalled in 0.9 *
    // 0.9 = 81 % of them, with a standard deviation of sqrt(10 000 * 0.81 * 0.19) = 39.
    let free = extra.iter().filter(|ns| **ns == 0).count();
    assert_eq!(extra.len(), 10_000);
    assert!(free.abs_diff(8_100) < 5 * 39, "{free}");
    // 20 000 packets wait 0.1 * 200 us on average. The variance of one is 2 * 0.1 * 200^2 - 20^2 =
    // 87^2 us^2, so the mean of 10 000 round trips, with two packets each, deviates by 87 * sqrt(2
    // / 10 000) = 1.2 us from 40.
    let mean = extra.iter().sum::<u64>() / extra.len() as u64;
    assert!(mean.abs_diff(40_000) < 5 * 1_230, "{mean}");
}

#[test]
fn jitter_of_a_transmission_time_breaks_the_phase_of_equal_flows() {
    // Floyd and Jacobson 1992: packets of flows with equal round trip times arrive at fixed phases
    // of the bottleneck's departures, so runs are the same whatever the seed. A random delay of up
    // to one transmission time at the hosts (6 ms here) prevents that.
    let received = |jitter, seed| {
        let links = dumbbell(mbit(2), Span::from_ms(50), &queue("fifo limit 15"));
        let config = Config {
            jitter,
            seed,
            ..exact(links, vec![bulk("reno"), bulk("reno")], 60)
        };
        let mut simulation = Simulation::new(&config).unwrap();
        simulation.run(&mut ());
        [0, 1].map(|flow| simulation.totals(flow).bytes_received)
    };
    assert_eq!(received(Span::ZERO, 1), received(Span::ZERO, 2));
    let random = received(Span::from_ms(6), 1);
    assert_ne!(random, received(Span::from_ms(6), 2));
    // Together they still fill the link: 1448 of 1500 bytes at 2 Mbit/s for 60 s, less one second
    // of slow start.
    let capacity = 2_000_000 / 8 * 59 * 1448 / 1500;
    assert!(random[0] + random[1] > capacity * 98 / 100, "{random:?}");
}
