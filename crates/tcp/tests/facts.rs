//! Single rules of the specifications, as a peer sees them.

mod common;

use common::{Dice, Fate, Line, Net, secs, transfer};
use sluice_core::{Rate, Span, Time};
use sluice_tcp::{Config, EcnMode, Flags, LossDetection, Reading, Segment, cc};

fn reno() -> Config {
    Config {
        mss: 1000,
        congestion_control: cc::find("reno").unwrap(),
        ..Config::default()
    }
}

const fn ms(n: u64) -> Span {
    Span::from_ms(n)
}

/// The data segments of the client, as numbers of 1000 bytes.
fn numbers(net: &Net<'_>) -> Vec<u32> {
    let is_data = |line: &&Line| line.to_server && line.segment.len > 0;
    let sent = net.trace.iter().flatten().filter(is_data);
    sent.map(|line| line.segment.seq.wrapping_sub(1) / 1000)
        .collect()
}

#[test]
fn a_clean_path_sees_nothing_twice_whatever_its_rtt_and_the_delay_of_acks() {
    for descriptor in cc::REGISTRY {
        for rtt in [2, 20, 100, 600] {
            for (ack_every, ack_delay, quick_acks) in [(1, 40, 16), (2, 40, 0), (2, 200, 0)] {
                let config = Config {
                    congestion_control: descriptor,
                    ecn: descriptor.ecn,
                    ack_every,
                    ack_delay: ms(ack_delay),
                    quick_acks,
                    ..Config::default()
                };
                let about = format!("{descriptor:?} {rtt} ms, {ack_every}, {ack_delay} ms");
                let delay = Span::from_us(rtt * 500);
                let mut net = transfer(&config, 1_000_001, delay, |_, _| Fate::Deliver);
                net.rate = Rate::from_bps(20_000_000);
                assert!(net.run(secs(600)), "{about}");
                let counters = net.client.counters();
                assert_eq!(counters.retransmits, 0, "{about}");
                assert_eq!(counters.timeouts, 0, "{about}");
                assert_eq!(net.server.duplicate_bytes(), 0, "{about}");
            }
        }
    }
}

#[test]
fn a_segment_now_and_then_is_not_sent_twice_because_its_ack_is_delayed() {
    // RFC 8985 §7.2: the probe of a single segment leaves time for a delayed ACK, 200 ms at worst; the timeout
    // with Linux's floor of 200 ms above the smoothed RTT does so, too.
    for rtt in [2, 20, 100, 600] {
        let config = Config {
            quick_acks: 0,
            ack_delay: ms(150),
            // Who reads at once acknowledges the end of each write at once.
            reading: Reading::Explicit,
            // A window that opens would ask for an ACK of each segment.
            initial_receive_window: Config::default().receive_buffer,
            ..reno()
        };
        let mut net = Net::new(&config, &config, Span::from_us(rtt * 500), |_, _| {
            Fate::Deliver
        });
        net.client.open(Time::ZERO);
        for i in 1..=20 {
            net.client.write(500);
            net.run_until(Time::ZERO + ms(1500) * i);
        }
        let counters = net.client.counters();
        let sent_again = (counters.retransmits, counters.timeouts, counters.probes);
        assert_eq!(sent_again, (0, 0, 0), "{rtt} ms");
        assert_eq!(net.server.received(), 20 * 500);
    }
}

#[test]
fn two_duplicate_acks_let_two_new_segments_out_and_the_third_the_lost_one() {
    // RFC 3042 §2, RFC 6675 §5. ACKs come 1.7 ms apart, each for one segment of the initial ten.
    let config = Config {
        loss_detection: LossDetection::DupAck,
        sack_delay: Span::ZERO,
        ..reno()
    };
    let mut is_first = true;
    let mut net = transfer(&config, 60_000, ms(50), |up, s| {
        if up && s.len > 0 && std::mem::take(&mut is_first) {
            Fate::Drop
        } else {
            Fate::Deliver
        }
    });
    net.rate = Rate::from_bps(5_000_000);
    net.trace = Some(Vec::new());
    net.flush();
    while numbers(&net).len() < 13 {
        assert!(net.step(secs(1)));
    }
    assert_eq!(numbers(&net)[10..], [10, 11, 0]);
    // RFC 5681 §3.2, step 2: those two do not count. 10 / 2 segments
    assert_eq!(net.client.snapshot().window.ssthresh, 5_000);
}

#[test]
fn a_timeout_halves_ssthresh_once_and_starts_from_one_segment() {
    // All ten segments are lost, and the first one again.
    let config = Config {
        loss_detection: LossDetection::DupAck,
        ..reno()
    };
    let mut sent = 0;
    let mut net = transfer(&config, 30_000, ms(50), |up, s| {
        sent += u32::from(up && s.len > 0);
        if up && s.len > 0 && sent <= 11 {
            Fate::Drop
        } else {
            Fate::Deliver
        }
    });
    net.trace = Some(Vec::new());
    net.flush();
    let mut timeouts = Vec::new();
    while timeouts.len() < 2 {
        assert!(net.step(secs(10)));
        if net.client.counters().timeouts > timeouts.len() as u64 {
            let window = net.client.snapshot().window;
            timeouts.push((net.now, window.cwnd, window.ssthresh));
        }
    }
    // Sent at 100 ms. RFC 6298 §2.2 and §5.5: 100 ms and the floor of 200 ms, then twice that.
    // RFC 5681 §3.1: the loss window, and max(FlightSize / 2, 2 * SMSS) for the first timeout only.
    let at = |n| Time::ZERO + ms(n);
    assert_eq!(timeouts, [(at(400), 1000, 5000), (at(1000), 1000, 5000)]);
    // The delivery rate counts from when the flight left (draft-cheng-iccrg-delivery-rate-estimation §3.2):
    // one segment from 100 to 1100 ms.
    net.run_until(at(1100));
    assert_eq!(
        net.client.snapshot().delivery_rate,
        Some(Rate::from_bps(8_000))
    );
    // Slow start from one segment: 1, 2, and 4 in the next round trips.
    net.run_until(at(1000 + 299));
    assert_eq!(numbers(&net)[10..], [0, 0, 1, 2, 3, 4, 5, 6]);
}

#[test]
fn a_closed_window_is_probed_after_a_timeout_and_then_half_as_often_each_time() {
    // Seven segments fill the buffer; nobody reads.
    let server = Config {
        receive_buffer: 7_000,
        reading: Reading::Explicit,
        ..reno()
    };
    let mut net = Net::new(&reno(), &server, ms(10), |_, _| Fate::Deliver);
    net.trace = Some(Vec::new());
    net.client.open(Time::ZERO);
    net.client.write(20_000);
    net.run_until(secs(20));
    let rto = {
        // RFC 6298 with Linux's floor: the smoothed RTT and 200 ms, for the backoff of the last probe.
        let snapshot = net.client.snapshot();
        snapshot.srtt.unwrap() + ms(200)
    };
    let lines = net.trace.iter().flatten();
    let closed = lines
        .clone()
        .find(|line| !line.to_server && line.segment.window == 0);
    let mut last = closed.unwrap().at + ms(10);
    let is_probe = |line: &&Line| line.to_server && line.segment.len == 0 && line.at > last;
    let probes: Vec<Time> = lines.filter(is_probe).map(|line| line.at).collect();
    // RFC 9293 §3.8.6.1: SHLD-29 and SHLD-30
    let mut gap = rto;
    for at in &probes[..5] {
        assert_eq!(at.since(last), gap);
        (last, gap) = (*at, gap * 2);
    }
    // MUST-37: it stays open, and goes on when there is room.
    assert_eq!(net.server.read(7_000), 7_000);
    net.run_until(secs(40));
    assert_eq!(net.server.received(), 14_000);
}

/// The data segments with CWR of a transfer of 60 segments of which `lost` get lost: the place of each in the
/// order of sending and its number. And how many timeouts there were.
fn announcements(ecn: EcnMode, lost: std::ops::RangeInclusive<u32>) -> (Vec<(usize, u32)>, u64) {
    let config = Config {
        ecn,
        loss_detection: LossDetection::DupAck,
        ..reno()
    };
    let mut sent = 0;
    let mut net = transfer(&config, 60_000, ms(10), |up, s| {
        sent += u32::from(up && s.len > 0);
        if up && s.len > 0 && lost.contains(&sent) {
            Fate::Drop
        } else {
            Fate::Deliver
        }
    });
    net.trace = Some(Vec::new());
    assert!(net.run(secs(60)));
    let is_data = |line: &&Line| line.to_server && line.segment.len > 0;
    let sent = net.trace.iter().flatten().filter(is_data).enumerate();
    let seen = sent
        .filter(|(_, line)| line.segment.flags.has(Flags::CWR))
        .map(|(place, line)| (place, line.segment.seq.wrapping_sub(1) / 1000))
        .collect();
    (seen, net.client.counters().timeouts)
}

#[test]
fn whatever_reduced_the_window_the_next_new_segment_says_so() {
    // RFC 3168 §6.1.2: one new segment for one reduction. It comes after what was sent again, so its place in
    // the order of sending lies behind its number. The loss of the whole initial window takes a timeout.
    for (lost, timeouts) in [(15..=15, 0), (1..=10, 1)] {
        let (seen, expired) = announcements(EcnMode::Classic, lost.clone());
        assert_eq!((seen.len(), expired), (1, timeouts), "{lost:?}: {seen:?}");
        let (place, number) = seen[0];
        assert!(place > number as usize, "{lost:?}: {seen:?}");
    }
    assert!(announcements(EcnMode::Off, 15..=15).0.is_empty());
    assert!(announcements(EcnMode::Classic, 0..=0).0.is_empty());
}

#[test]
fn acks_that_others_have_overtaken_say_nothing_about_marks() {
    // RFC 9768 §3.2.2.2. Every third segment is marked, every fifth ACK comes 5 ms late.
    let config = Config {
        ecn: EcnMode::Accurate,
        congestion_control: cc::find("prague").unwrap(),
        ..reno()
    };
    let (mut dice, marks) = (Dice(7), std::cell::Cell::new(0));
    let mut net = transfer(&config, 3_000_000, ms(10), |up, s: &Segment| {
        if up && s.len > 0 && dice.roll().is_multiple_of(3) {
            marks.set(marks.get() + 1);
            Fate::Mark
        } else if !up && s.is_pure_ack() && dice.roll().is_multiple_of(5) {
            Fate::Late(ms(5))
        } else {
            Fate::Deliver
        }
    });
    assert!(net.run(secs(600)));
    assert_eq!(net.client.counters().retransmits, 0);
    assert_eq!(net.client.counters().ce_segments, marks.get());
}
