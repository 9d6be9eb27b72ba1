//! Expected values are those of the draft, or follow from them by the arithmetic shown.

use super::*;
use crate::cc::testing::{self, MSS, ack_of_round as ack};

/// A flow that has found 1 MB/s and 20 ms, a bandwidth-delay product of 20 segments, and is in
/// `ProbeBW_CRUISE` after `rounds` rounds.
fn cruising() -> (Bbr3, Window, u64) {
    let mut bbr = Bbr3::new(&testing::PARAMS);
    let mut window = testing::window(10);
    let mut round = 0;
    while bbr.state != State::ProbeCruise {
        round += 1;
        assert!(round < 20, "{:?}", bbr.state);
        bbr.on_ack(&ack(round, 1_000_000), &mut window);
    }
    (bbr, window, round)
}

#[test]
fn gains_are_those_of_the_table() {
    // §5.6.1
    let mut bbr = Bbr3::new(&testing::PARAMS);
    for (state, pacing, cwnd) in [
        (State::Startup, 277, 200),
        (State::Drain, 50, 200),
        (State::ProbeDown, 90, 200),
        (State::ProbeCruise, 100, 200),
        (State::ProbeRefill, 100, 200),
        (State::ProbeUp, 125, 225),
        (State::ProbeRtt, 100, 50),
    ] {
        bbr.state = state;
        assert_eq!(
            (bbr.pacing_gain(), bbr.cwnd_gain()),
            (pacing, cwnd),
            "{state:?}"
        );
    }
}

#[test]
fn startup_ends_after_three_rounds_without_growth_and_drain_at_the_product() {
    let mut bbr = Bbr3::new(&testing::PARAMS);
    let mut window = testing::window(10);
    bbr.on_ack(&ack(1, 1_000_000), &mut window);
    // §5.6.2: 2.77 * 1 MB/s, less 1 %
    assert_eq!(bbr.pacing_rate, 2_742_300);
    // §5.3.1.2: 24 % more is no growth
    bbr.on_ack(&ack(2, 1_240_000), &mut window);
    bbr.on_ack(&ack(3, 1_240_000), &mut window);
    assert_eq!(bbr.state, State::Startup);
    let full = Ack {
        in_flight: 30_000,
        ..ack(4, 1_240_000)
    };
    bbr.on_ack(&full, &mut window);
    assert_eq!((bbr.state, bbr.full_bw_reached), (State::Drain, true));
    // 1.24 MB/s * 20 ms = 24800 bytes; half the rate, less 1 %
    assert_eq!(bbr.pacing_rate, 613_800);
    let above = Ack {
        in_flight: 24_801,
        ..ack(5, 1_240_000)
    };
    bbr.on_ack(&above, &mut window);
    assert_eq!(bbr.state, State::Drain);
    let at = Ack {
        in_flight: 24_800,
        ..ack(6, 1_240_000)
    };
    bbr.on_ack(&at, &mut window);
    assert!(bbr.is_in_probe_bw());
}

#[test]
fn losses_are_too_many_above_two_percent() {
    // §5.5.10.2: RS.lost > RS.tx_in_flight * 0.02
    let sample = |lost_since| Sample {
        rate: 1,
        sent: Sent {
            in_flight: 100_000,
            lost: 0,
        },
        lost_since,
        is_app_limited: false,
    };
    assert!(!Bbr3::is_inflight_too_high(&sample(2_000)));
    assert!(Bbr3::is_inflight_too_high(&sample(2_001)));
    // Before the lost segment of 1000 bytes: 99000 in flight and 1500 lost. (0.02 * 99000 - 1500)
    // / 0.98 = 489.8
    let bbr = Bbr3::new(&testing::PARAMS);
    assert_eq!(bbr.inflight_at_loss(&sample(2_500)), 99_489);
}

#[test]
fn a_probe_that_loses_too_much_sets_the_long_term_bound_and_ends() {
    for (in_flight, expected) in [(18_000, 18_000), (10_000, 14_000)] {
        let (mut bbr, _, round) = cruising();
        let window = testing::window(40);
        bbr.state = State::ProbeUp;
        bbr.is_probe_sample = true;
        let sample = Sample {
            rate: 1_000_000,
            sent: Sent { in_flight, lost: 0 },
            lost_since: 2_000,
            is_app_limited: false,
        };
        bbr.handle_inflight_too_high(&ack(round + 1, 1_000_000), &sample, &window);
        // §5.5.10.2: the bytes in flight, but at least 0.7 of the bandwidth-delay product of 20000
        assert_eq!(bbr.inflight_longterm, expected);
        assert_eq!(bbr.state, State::ProbeDown);
        assert!(bbr.prev_probe_too_high && !bbr.is_probe_sample);
    }
}

#[test]
fn cruising_leaves_headroom_below_the_long_term_bound() {
    let (mut bbr, mut window, round) = cruising();
    // §5.3.3.9: 15 %, at least a segment, and four segments are left
    for (longterm, expected) in [(100_000, 85_000), (6_000, 5_000), (4_500, 4_000)] {
        bbr.inflight_longterm = longterm;
        assert_eq!(bbr.inflight_with_headroom(), expected);
    }
    bbr.inflight_longterm = 20_000;
    window.cwnd = 40_000;
    bbr.set_cwnd(&ack(round + 1, 1_000_000), &mut window);
    assert_eq!(window.cwnd, 17_000);
    bbr.state = State::ProbeRefill;
    window.cwnd = 40_000;
    bbr.set_cwnd(&ack(round + 1, 1_000_000), &mut window);
    assert_eq!(window.cwnd, 20_000);
}

#[test]
fn a_round_with_losses_lowers_the_short_term_bounds_to_seven_tenths_at_most() {
    // §5.5.10.3: one case in which less than 0.7 was delivered in the round, and one with more
    for (delivered_rate, bandwidth) in [(500_000, 700_000), (900_000, 900_000)] {
        let (mut bbr, mut window, _) = cruising();
        window.cwnd = 40_000;
        bbr.bw_latest = delivered_rate;
        bbr.inflight_latest = delivered_rate / 50;
        bbr.is_loss_in_round = true;
        bbr.is_loss_round_start = true;
        bbr.adapt_to_losses(&window);
        assert_eq!(bbr.bw_shortterm, bandwidth);
        // 0.7 of the window of 40000 bytes
        assert_eq!(bbr.inflight_shortterm, 28_000);
    }
    // A probe ignores them until it ends.
    let (mut bbr, window, _) = cruising();
    bbr.state = State::ProbeUp;
    bbr.is_loss_in_round = true;
    bbr.is_loss_round_start = true;
    bbr.adapt_to_losses(&window);
    assert_eq!(bbr.bw_shortterm, u64::MAX);
}

#[test]
fn probes_are_two_to_three_seconds_apart_or_as_many_rounds_as_reno_needs() {
    let (mut bbr, _, round) = cruising();
    let window = testing::window(40);
    for _ in 0..100 {
        bbr.start_down_at(Time::ZERO, 0);
        assert!(bbr.rounds_since_probe_up <= 1);
        assert!(bbr.probe_wait >= Span::from_secs(2) && bbr.probe_wait < Span::from_secs(3));
    }
    // §5.3.3.8.3: min(BDP, cwnd) is 20 segments, so the probe starts after 20 rounds.
    let now = ack(round + 1, 1_000_000);
    bbr.cycle_at = now.now;
    bbr.rounds_since_probe_up = 19;
    assert!(!bbr.check_probe_time(&now, &window));
    bbr.rounds_since_probe_up = 20;
    assert!(bbr.check_probe_time(&now, &window));
    assert_eq!(bbr.state, State::ProbeRefill);
    // With a product of 100 segments, after 63.
    bbr.bw = 5_000_000;
    let window = testing::window(200);
    bbr.rounds_since_probe_up = 62;
    assert!(!bbr.check_probe_time(&now, &window));
    bbr.rounds_since_probe_up = 63;
    assert!(bbr.check_probe_time(&now, &window));
}

#[test]
fn a_refill_lasts_one_round_and_a_probe_raises_the_bound_by_one_two_four_segments() {
    let (mut bbr, mut window, round) = cruising();
    bbr.inflight_longterm = 20_000;
    bbr.start_refill(20_000 * round);
    assert_eq!(bbr.bw_shortterm, u64::MAX);
    bbr.on_ack(&ack(round + 1, 1_000_000), &mut window);
    assert_eq!(bbr.state, State::ProbeUp);
    // §5.3.3.9: a window of ACKs raises the bound by a segment, in the next round by two, by four
    window.cwnd = 20_000;
    bbr.is_round_start = false;
    for growth in [1, 2, 4] {
        let before = bbr.inflight_longterm;
        for _ in 0..20 {
            window.cwnd = bbr.inflight_longterm;
            let full = Ack {
                prior_in_flight: window.cwnd,
                ..ack(round + 2, 1_000_000)
            };
            bbr.probe_up_acked_per_inc = 20_000 / growth;
            bbr.probe_upward(&full, &window);
        }
        assert_eq!(bbr.inflight_longterm - before, growth * MSS);
    }
    window.cwnd = 20_000;
    bbr.probe_up_rounds = 0;
    for divisor in [1, 2, 4, 8] {
        bbr.raise_slope(&window);
        assert_eq!(bbr.probe_up_acked_per_inc, 20_000 / divisor);
    }
}

#[test]
fn an_rtt_that_is_ten_seconds_old_is_probed_with_half_of_the_product() {
    let (mut bbr, mut window, round) = cruising();
    window.cwnd = 40_000;
    let late = Time::ZERO + Span::from_ms(20 * round) + Span::from_secs(11);
    let stale = Ack {
        now: late,
        rtt: Some(Span::from_ms(40)),
        ..ack(round + 1, 1_000_000)
    };
    bbr.on_ack(&stale, &mut window);
    assert_eq!(bbr.state, State::ProbeRtt);
    // §5.3.4.3: half of 20 segments, computed from the RTT before the queue raised it
    assert_eq!((bbr.probe_rtt_cwnd, window.cwnd), (10_000, 10_000));
    assert!(bbr.limits_samples());
    // At most that much is in flight for 200 ms and a round; then the window returns.
    let low = |ms, round| Ack {
        now: late + Span::from_ms(ms),
        in_flight: 10_000,
        ..ack(round, 1_000_000)
    };
    bbr.on_ack(&low(20, round + 2), &mut window);
    bbr.on_ack(&low(220, round + 3), &mut window);
    assert_eq!(bbr.state, State::ProbeRtt);
    bbr.on_ack(&low(221, round + 4), &mut window);
    assert_eq!(bbr.state, State::ProbeCruise);
    assert!(window.cwnd >= 40_000);
}

#[test]
fn history_knows_the_bytes_in_flight_and_lost_when_a_segment_left() {
    let mut history = History::default();
    history.end_burst(10_000);
    history.start_burst(1_000, 9_000, 0);
    history.end_burst(12_000);
    history.start_burst(3_000, 10_000, 2_000);
    history.end_burst(11_000);
    let sent = |in_flight, lost| Sent { in_flight, lost };
    assert_eq!(history.find(0), sent(10_000, 0));
    assert_eq!(history.find(1_000), sent(12_000, 0));
    assert_eq!(history.find(3_000), sent(11_000, 2_000));
    assert_eq!(history.delivered(), 3_000);
}
