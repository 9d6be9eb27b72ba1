//! Whole transfers over a small network.

mod common;

use common::{Dice, Fate, Net, secs, transfer};
use proptest::prelude::*;
use sluice_core::{Rate, Span, Time};
use sluice_tcp::cc::{self, Phase};
use sluice_tcp::{
    Config, EcnMode, Flags, LossDetection, Pacing, Reading, Segment, SlowStart, State,
};

fn config(name: &str) -> Config {
    Config {
        congestion_control: cc::find(name).unwrap(),
        ..Config::default()
    }
}

#[test]
fn a_clean_path_sees_no_retransmission() {
    for descriptor in cc::REGISTRY {
        let config = Config {
            congestion_control: descriptor,
            ecn: descriptor.ecn,
            ..Config::default()
        };
        let mut net = transfer(&config, 3_000_000, Span::from_ms(10), |_, _| Fate::Deliver);
        net.rate = Rate::from_bps(50_000_000);
        assert!(net.run(secs(60)), "{descriptor:?}");
        let counters = net.client.counters();
        assert_eq!(net.server.received(), 3_000_000, "{descriptor:?}");
        assert_eq!(counters.retransmits, 0, "{descriptor:?}");
        assert_eq!(counters.timeouts, 0, "{descriptor:?}");
        assert_eq!(net.server.duplicate_bytes(), 0, "{descriptor:?}");
    }
}

#[test]
fn slow_start_doubles_each_round_trip() {
    // 70 segments at IW 10 need 10 + 20 + 40: three flights. The handshake takes one round trip of
    // 100 ms, so the last data arrive at 50 + 100 * 3 ms and are acknowledged at 400 ms.
    let mut net = transfer(&config("reno"), 70 * 1448, Span::from_ms(50), |_, _| {
        Fate::Deliver
    });
    net.flush();
    while net.server.received() < 70 * 1448 {
        assert!(net.step(secs(1)));
    }
    assert_eq!(net.now, Time::ZERO + Span::from_ms(350));
}

#[test]
fn the_last_segment_of_a_super_packet_is_pushed() {
    let mut net = transfer(&config("reno"), 1_000_000, Span::from_ms(10), |_, _| {
        Fate::Deliver
    });
    net.trace = Some(Vec::new());
    assert!(net.run(secs(60)));
    let data = |line: &&common::Line| line.to_server && line.segment.len > 0;
    let sent: Vec<_> = net.trace.iter().flatten().filter(data).collect();
    let is_pushed = |i: usize| sent[i].segment.flags.has(Flags::PSH);
    // The handshake took 20 ms: 2 * 10 * 1448 bytes / 20 ms * 2^-10 s = 1414 bytes, and the minimum
    // is two segments.
    assert_eq!(
        (0..10).filter(|i| is_pushed(*i)).collect::<Vec<_>>(),
        [1, 3, 5, 7, 9]
    );
    // Each ACK of a segment then releases two.
    assert_eq!(
        (10..20).filter(|i| is_pushed(*i)).collect::<Vec<_>>(),
        [11, 13, 15, 17, 19]
    );
}

#[test]
fn one_loss_costs_one_retransmission_and_halves_reno() {
    let mut sent = 0;
    let mut net = transfer(&config("reno"), 1_000_000, Span::from_ms(10), |up, s| {
        sent += u32::from(up && s.len > 0);
        if up && s.len > 0 && sent == 50 {
            Fate::Drop
        } else {
            Fate::Deliver
        }
    });
    assert!(net.run(secs(10)));
    let counters = net.client.counters();
    assert_eq!(counters.retransmits, 1);
    assert_eq!(counters.recoveries, 1);
    assert_eq!(counters.timeouts, 0);
}

#[test]
fn a_reduction_sends_half_of_what_arrives_when_acks_report_many_holes() {
    // 100 Mbit/s x 600 ms = 5000 segments of 1500 bytes, and a queue of 4166 more. Slow start sends
    // twice what the link carries, so about every second segment is dropped, and an ACK, which waits
    // for 1 ms, reports several new holes in its three blocks.
    let config = Config {
        receive_buffer: 40 << 20,
        ..config("reno")
    };
    let mut net = transfer(&config, 80_000_000, Span::from_ms(300), |_, _| {
        Fate::Deliver
    });
    net.rate = Rate::from_bps(100_000_000);
    net.queue_limit = 4166;
    net.flush();
    while net.client.counters().recoveries == 0 {
        assert!(net.step(secs(60)));
    }
    let sent_from = net.now + Span::from_ms(100);
    net.run_until(sent_from);
    let before = net.client.counters().segments;
    net.run_until(sent_from + Span::from_ms(400));
    let sent = net.client.counters().segments - before;
    // The window is still above ssthresh, so Reno sends one segment for two that arrive (RFC 6937
    // §3). 100 Mbit/s x 400 ms are 3333 segments. An ACK covers those of 1.1 ms, about ten, so the
    // number differs by up to ten.
    let window = net.client.snapshot().window;
    assert!(window.cwnd > window.ssthresh, "{window:?}");
    assert!(sent.abs_diff(3333 / 2) <= 10, "{sent}");
}

#[test]
fn a_lost_tail_is_probed_without_a_timeout() {
    // The last segment (with FIN) is lost: nothing is SACKed, so only a probe can detect it.
    let mut first = true;
    let judge = |up: bool, s: &Segment| {
        if up && s.flags.has(Flags::FIN) && std::mem::take(&mut first) {
            Fate::Drop
        } else {
            Fate::Deliver
        }
    };
    let mut net = transfer(&config("cubic"), 5 * 1448, Span::from_ms(10), judge);
    assert!(net.run(secs(10)));
    let counters = net.client.counters();
    assert_eq!((counters.probes, counters.timeouts), (1, 0));
}

#[test]
fn without_rack_a_lost_tail_takes_a_timeout() {
    let mut first = true;
    let judge = |up: bool, s: &Segment| {
        if up && s.flags.has(Flags::FIN) && std::mem::take(&mut first) {
            Fate::Drop
        } else {
            Fate::Deliver
        }
    };
    let config = Config {
        loss_detection: LossDetection::DupAck,
        ..config("cubic")
    };
    let mut net = transfer(&config, 5 * 1448, Span::from_ms(10), judge);
    assert!(net.run(secs(10)));
    let counters = net.client.counters();
    assert_eq!((counters.probes, counters.timeouts), (0, 1));
}

#[test]
fn the_timeout_backs_off_exponentially_until_the_peer_answers() {
    // The path loses everything from 50 ms to 5 s.
    let mut net = transfer(&config("cubic"), 500_000, Span::from_ms(10), |_, _| {
        Fate::Deliver
    });
    net.flush();
    while net.now < Time::ZERO + Span::from_ms(50) {
        assert!(net.step(secs(1)));
    }
    let dead = std::cell::Cell::new(true);
    let dead = &dead;
    let mut retransmitted = Vec::new();
    let mut other = Net::new(
        &config("cubic"),
        &config("cubic"),
        Span::from_ms(10),
        |_, _| {
            if dead.get() {
                Fate::Drop
            } else {
                Fate::Deliver
            }
        },
    );
    std::mem::swap(&mut other.client, &mut net.client);
    std::mem::swap(&mut other.server, &mut net.server);
    other.now = net.now;
    let mut seen = 0;
    while other.now < secs(5) {
        if !other.step(secs(100)) {
            break;
        }
        let count = other.client.counters().timeouts;
        if count > seen {
            seen = count;
            retransmitted.push(other.now);
        }
    }
    let gaps: Vec<u64> = retransmitted
        .windows(2)
        .map(|w| w[1].since(w[0]).as_ns())
        .collect();
    for pair in gaps.windows(2) {
        // RFC 6298 §5.5
        assert_eq!(pair[1], 2 * pair[0]);
    }
    assert!(gaps.len() >= 3);
    dead.set(false);
    assert!(other.run(secs(100)));
    assert_eq!(other.server.received(), 500_000);
}

#[test]
fn a_dead_peer_is_given_up() {
    let config = Config {
        max_retries: 4,
        ..config("cubic")
    };
    let mut sent = 0;
    let mut net = transfer(&config, 50_000, Span::from_ms(10), |_, _| {
        sent += 1;
        if sent > 3 { Fate::Drop } else { Fate::Deliver }
    });
    net.run_until(secs(1000));
    assert_eq!(net.client.state(), State::Failed);
}

#[test]
fn a_delayed_burst_is_recognised_as_no_loss_and_the_window_restored() {
    // Segments sent between 300 and 700 ms arrive after 700 ms. The timeout of 20 + 200 ms expires
    // meanwhile, and the late ACKs show that it was spurious.
    let now = std::cell::Cell::new(0_u64);
    let now = &now;
    // The receive buffer makes the transfer last until then: 100 kB per 20 ms.
    let config = Config {
        receive_buffer: 100_000,
        ..config("cubic")
    };
    let mut net = transfer(&config, 3_000_000, Span::from_ms(10), move |up, s| {
        if up && s.len > 0 && (300..700).contains(&now.get()) {
            Fate::Late(Span::from_ms(700 - now.get()))
        } else {
            Fate::Deliver
        }
    });
    net.flush();
    let mut before = 0;
    while !net.client.is_closed() {
        now.set(net.now.as_ns() / 1_000_000);
        if now.get() < 300 {
            before = net.client.snapshot().window.cwnd;
        }
        assert!(net.step(secs(20)));
    }
    let counters = net.client.counters();
    assert!(counters.timeouts >= 1);
    assert!(counters.undos >= 1);
    assert!(net.client.snapshot().window.cwnd >= before);
}

#[test]
fn a_closed_window_is_probed_and_the_lost_update_does_not_stall() {
    let server = Config {
        receive_buffer: 10_000,
        reading: Reading::Explicit,
        ..config("cubic")
    };
    // The first window update is lost.
    let mut updates = 0;
    let mut net = Net::new(&config("cubic"), &server, Span::from_ms(10), |up, s| {
        if !up && s.window > 0 && s.ack.wrapping_sub(1) as usize >= 10_000 {
            updates += 1;
            if updates == 1 {
                return Fate::Drop;
            }
        }
        Fate::Deliver
    });
    net.client.open(Time::ZERO);
    net.client.write(20_000);
    net.client.close();
    net.server.close();
    net.run_until(secs(1));
    assert_eq!(net.server.unread(), 10_000);
    assert_eq!(net.server.read(10_000), 10_000);
    net.run_until(secs(4));
    assert_eq!(net.server.received(), 20_000);
    net.server.read(u64::MAX);
    assert!(net.run(secs(10)));
}

#[test]
fn reading_with_room_is_like_reading_at_once() {
    let run = |reading| {
        let server = Config {
            reading,
            ..config("cubic")
        };
        let mut dropped = 0;
        let mut net = Net::new(
            &config("cubic"),
            &server,
            Span::from_ms(10),
            |up, segment| {
                dropped += u32::from(up && segment.len > 0);
                if dropped % 97 == 96 {
                    Fate::Drop
                } else {
                    Fate::Deliver
                }
            },
        );
        net.server.allow_reading(1 << 30);
        net.client.open(Time::ZERO);
        net.client.write(2_000_000);
        net.client.close();
        net.server.close();
        assert!(net.run(secs(60)));
        (net.now, net.client.counters())
    };
    assert_eq!(run(Reading::Allowed), run(Reading::Immediate));
}

#[test]
fn an_application_that_writes_little_never_grows_its_window() {
    let mut net = Net::new(
        &config("reno"),
        &config("reno"),
        Span::from_ms(10),
        |_, _| Fate::Deliver,
    );
    net.client.open(Time::ZERO);
    for i in 1..100 {
        net.client.write(1448);
        net.run_until(Time::ZERO + Span::from_ms(50 * i));
    }
    // RFC 7661: one segment per round trip does not grow the window beyond its initial size.
    assert_eq!(net.client.snapshot().window.cwnd, 10 * 1448);
    assert_eq!(net.server.received(), 99 * 1448);
}

#[test]
fn both_directions_carry_data_at_once() {
    let mut net = transfer(&config("cubic"), 400_000, Span::from_ms(5), |_, _| {
        Fate::Deliver
    });
    net.server = sluice_tcp::Endpoint::server(&config("cubic")).unwrap();
    net.server.write(300_000);
    net.server.close();
    assert!(net.run(secs(10)));
    assert_eq!(net.server.received(), 400_000);
    assert_eq!(net.client.received(), 300_000);
    assert_eq!(net.client.counters().retransmits, 0);
    assert_eq!(net.server.counters().retransmits, 0);
}

#[test]
fn a_mark_reduces_once_per_window_without_a_retransmission() {
    let config = Config {
        ecn: EcnMode::Classic,
        ..config("reno")
    };
    let mut sent = 0;
    let mut net = transfer(&config, 400_000, Span::from_ms(10), |up, s| {
        sent += u32::from(up && s.len > 0);
        // Three marks in one window.
        if up && (60..63).contains(&sent) {
            Fate::Mark
        } else {
            Fate::Deliver
        }
    });
    assert!(net.run(secs(10)));
    let counters = net.client.counters();
    assert_eq!(counters.ecn_reductions, 1);
    assert_eq!(counters.retransmits, 0);
    assert_eq!(net.client.snapshot().phase, Phase::Open);
}

#[test]
fn sequence_numbers_may_wrap() {
    let config = Config {
        isn: u32::MAX - 100_000,
        ..config("cubic")
    };
    let mut sent = 0;
    let mut net = transfer(&config, 1_000_000, Span::from_ms(10), |up, s| {
        sent += u32::from(up && s.len > 0);
        if up && s.len > 0 && sent % 37 == 0 {
            Fate::Drop
        } else {
            Fate::Deliver
        }
    });
    assert!(net.run(secs(60)));
    assert_eq!(net.server.received(), 1_000_000);
}

#[test]
fn paced_segments_are_spread_over_the_round_trip() {
    // A peer's window of 100 kB and an RTT of 20 ms. Linux paces at 1.2 times that rate in
    // congestion avoidance and at 2 times in slow start; an unpaced sender sends nearly the whole
    // window in one burst.
    let longest_burst = |pacing| {
        let config = Config {
            pacing,
            receive_buffer: 100_000,
            initial_receive_window: 100_000,
            ..config("reno")
        };
        let mut net = transfer(&config, 5_000_000, Span::from_ms(10), |_, _| Fate::Deliver);
        net.trace = Some(Vec::new());
        assert!(net.run(secs(60)));
        let mut longest = 0;
        let (mut now, mut burst) = (Time::ZERO, 0);
        for line in net.trace.iter().flatten() {
            if !line.to_server || line.at < Time::ZERO + Span::from_ms(500) {
                continue;
            }
            burst = if line.at == now {
                burst + line.segment.len
            } else {
                0
            };
            now = line.at;
            longest = longest.max(burst);
        }
        longest
    };
    assert!(longest_burst(Pacing::Off) > 80_000);
    // A burst is that of one millisecond, here at most 100 kB * 2 / 20 = 10 kB.
    assert!(longest_burst(Pacing::On) <= 10_000 + 1448);
}

#[test]
fn the_first_segments_are_not_paced() {
    // Linux `tcp_update_skb_after_send` paces once ten segments have been sent: the next ones wait
    // until those of the super-packet with the tenth have passed.
    let sent = |rtt: u64| {
        let config = Config {
            pacing: Pacing::On,
            initial_window: 20,
            ..config("reno")
        };
        let delay = Span::from_ms(rtt / 2);
        let mut net = transfer(&config, 1_000_000, delay, |_, _| Fate::Deliver);
        net.trace = Some(Vec::new());
        // The handshake takes one round trip; after a second one, ACKs arrive.
        net.run_until(Time::ZERO + Span::from_ms(2 * rtt - 1));
        let data = |line: &&common::Line| line.to_server && line.segment.len > 0;
        let lines = net.trace.iter().flatten().filter(data);
        let ms = |line: &common::Line| line.at.since(Time::ZERO).as_ns() / 1_000_000 - rtt;
        lines.map(ms).collect::<Vec<_>>()
    };
    // 20 segments in an RTT of 600 ms, paced at twice that rate in slow start: one in 600 / 40 =
    // 15 ms. Below 1.2 Mbit/s, a super-packet is one segment.
    let paced = (1..=10).map(|segment| segment * 15);
    let expected = std::iter::repeat_n(0, 10).chain(paced);
    assert!(sent(600).into_iter().eq(expected));
    // In an RTT of 60 ms: one in 1.5 ms, two at a time.
    let paced = (1..=5).flat_map(|pair| [pair * 3; 2]);
    let expected = std::iter::repeat_n(0, 10).chain(paced);
    assert!(sent(60).into_iter().eq(expected));
}

#[test]
fn the_delivery_rate_is_that_of_the_bottleneck() {
    let mut net = transfer(&config("cubic"), 20_000_000, Span::from_ms(10), |_, _| {
        Fate::Deliver
    });
    net.rate = Rate::from_bps(20_000_000);
    net.queue_limit = 60;
    net.run_until(secs(5));
    // 1448 of 1500 bytes are payload; samples span a round trip of a busy link, and one
    // delayed ACK of two segments more or less is 4 % of its 50 segments.
    let rate = net.client.snapshot().delivery_rate.unwrap().as_bps();
    let expected = 20_000_000 * 1448 / 1500;
    assert!(rate.abs_diff(expected) < expected / 20, "{rate}");
}

#[test]
fn hystart_leaves_slow_start_before_the_queue_overflows() {
    let drops = |slow_start| {
        let config = Config {
            slow_start,
            // A receiver that adapts its window would limit the overshoot.
            initial_receive_window: 6 << 20,
            ..config("cubic")
        };
        let mut net = transfer(&config, 3_000_000, Span::from_ms(25), |_, _| Fate::Deliver);
        net.rate = Rate::from_bps(50_000_000);
        net.queue_limit = 200;
        assert!(net.run(secs(60)));
        net.queue_drops
    };
    // Path and queue hold 208 + 200 packets, and standard slow start overshoots by as many.
    // HyStart++ detects the growth of the RTT as early as HyStart, but continues at a quarter of
    // the pace for five rounds, which is too much here.
    assert!(drops(SlowStart::Standard) > 200);
    assert!(drops(SlowStart::HystartPlusPlus) < drops(SlowStart::Standard));
    assert_eq!(drops(SlowStart::Hystart), 0);
    assert_eq!(drops(SlowStart::Auto), 0);
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        12 => Just(Fate::Deliver),
        3 => Just(Fate::Drop),
        1 => (1_u64..300).prop_map(|ms| Fate::Late(Span::from_ms(ms))),
        1 => (0_u64..100).prop_map(|ms| Fate::Twice(Span::from_ms(ms))),
        1 => Just(Fate::Mark),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever happens to the first 120 segments, every byte arrives exactly once and in order,
    /// both ends close, and nothing panics.
    #[test]
    fn any_pattern_of_faults_delivers_everything(
        fates in prop::collection::vec(fate(), 120),
        bytes in 0_u64..120_000,
        reply in 0_u64..20_000,
        algorithm in 0..cc::REGISTRY.len(),
        mode in prop::sample::select(vec![EcnMode::Off, EcnMode::Classic, EcnMode::Dctcp, EcnMode::Accurate]),
        rack in any::<bool>(),
        buffer in 2_000_u64..70_000,
        isn in any::<u32>(),
    ) {
        let config = Config {
            congestion_control: cc::REGISTRY[algorithm],
            ecn: mode,
            loss_detection: if rack { LossDetection::RackTlp } else { LossDetection::DupAck },
            receive_buffer: buffer,
            isn,
            rto_floor: sluice_tcp::rtt::RtoFloor::Variance(Span::from_ms(50)),
            ..Config::default()
        };
        let mut fates = fates.into_iter();
        let mut net = transfer(&config, bytes, Span::from_ms(10), move |_, _| {
            fates.next().unwrap_or(Fate::Deliver)
        });
        net.rate = Rate::from_bps(20_000_000);
        net.server.write(reply);
        net.server = {
            let mut server = sluice_tcp::Endpoint::server(&config).unwrap();
            server.write(reply);
            server.close();
            server
        };
        let closed = net.run(secs(20_000));
        prop_assert!(closed, "stalled at {} client {:?} server {:?}", net.now, net.client, net.server);
        if net.client.state() != State::Failed && net.server.state() != State::Failed {
            prop_assert_eq!(net.server.received(), bytes);
            prop_assert_eq!(net.client.received(), reply);
            prop_assert_eq!(net.client.snapshot().in_flight, 0);
        }
    }

    /// Calling the timeout handler and polling at other times than requested does not change what
    /// is sent.
    #[test]
    fn spurious_wake_ups_change_nothing(
        seed in 1_u64..,
        algorithm in 0..cc::REGISTRY.len(),
        step_us in 100_u64..20_000,
    ) {
        let config = Config {
            congestion_control: cc::REGISTRY[algorithm],
            ..Config::default()
        };
        let run = |step: Option<Span>| {
            let mut dice = Dice(seed);
            let mut net = transfer(&config, 200_000, Span::from_ms(10), move |_, _| {
                if dice.roll().is_multiple_of(20) { Fate::Drop } else { Fate::Deliver }
            });
            net.rate = Rate::from_bps(20_000_000);
            net.spurious = step;
            net.trace = Some(Vec::new());
            net.run(secs(1000));
            let lines = net.trace.take().unwrap_or_default();
            lines.iter().map(|l| (l.at, l.to_server, l.segment)).collect::<Vec<_>>()
        };
        prop_assert_eq!(run(Some(Span::from_us(step_us))), run(None));
    }
}
