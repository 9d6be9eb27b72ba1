//! Single rules of the specifications, as observed from outside.

mod common;

use common::{Dice, Fate, Line, Net, secs, transfer};
use sluice_core::{Rate, Span, Time};
use sluice_tcp::{Config, EcnMode, Flags, LossDetection, Reading, Segment, State, cc};

fn config(name: &str) -> Config {
    Config {
        congestion_control: cc::find(name).unwrap(),
        ..Config::default()
    }
}

fn reno() -> Config {
    Config {
        mss: 1000,
        ..config("reno")
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
    // RFC 8985 §7.2: the probe for a single segment leaves time for a delayed ACK, at most 200 ms.
    // So does the timeout with Linux's floor of 200 ms above the smoothed RTT.
    for rtt in [2, 20, 100, 600] {
        let config = Config {
            quick_acks: 0,
            ack_delay: ms(150),
            // With immediate reading the end of each write is acknowledged at once.
            reading: Reading::Explicit,
            // A growing window would request an ACK for each segment.
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
fn a_probe_that_was_not_needed_leaves_the_window_alone() {
    // RFC 8985 §7.4.2. All five segments and the probe, which leaves after two round trips of 20 ms,
    // are late by 100 ms. The ACK of the fifth segment comes before the D-SACK of the probe.
    let mut sent = 0;
    let mut net = Net::new(&reno(), &reno(), ms(10), |up, s| {
        sent += u32::from(up && s.len > 0);
        match up && s.len > 0 && sent <= 6 {
            true => Fate::Late(ms(100)),
            false => Fate::Deliver,
        }
    });
    net.client.open(Time::ZERO);
    net.client.write(5_000);
    net.run_until(Time::ZERO + ms(250));
    assert_eq!(net.server.duplicate_bytes(), 1_000);
    // The next flight is acknowledged beyond the probe.
    net.client.write(5_000);
    net.run_until(Time::ZERO + ms(400));
    let counters = net.client.counters();
    assert_eq!((counters.probes, counters.timeouts), (1, 0));
    assert_eq!(net.server.received(), 10_000);
    assert_eq!(net.client.snapshot().window.ssthresh, u64::MAX);
}

#[test]
fn a_loss_that_a_probe_has_repaired_reduces_the_window_with_the_next_ack() {
    // RFC 8985 §7.4.2: the fifth segment is lost, and its probe arrives alone. It leaves when the
    // timeout would expire, 220 ms after the ACK of the fourth segment at 40 ms.
    let mut sent = 0;
    let mut net = Net::new(&reno(), &reno(), ms(10), |up, s| {
        sent += u32::from(up && s.len > 0);
        match up && s.len > 0 && sent == 5 {
            true => Fate::Drop,
            false => Fate::Deliver,
        }
    });
    net.client.open(Time::ZERO);
    net.client.write(5_000);
    net.run_until(Time::ZERO + ms(400));
    assert_eq!(net.server.received(), 5_000);
    let before = net.client.snapshot().window;
    assert_eq!(before.ssthresh, u64::MAX);
    net.client.write(5_000);
    net.run_until(Time::ZERO + ms(500));
    let counters = net.client.counters();
    assert_eq!((counters.probes, counters.timeouts), (1, 0));
    assert!(net.client.snapshot().window.ssthresh < before.cwnd);
}

#[test]
fn two_duplicate_acks_let_two_new_segments_out_and_the_third_the_lost_one() {
    // RFC 3042 §2, RFC 6675 §5. ACKs arrive every 1.7 ms, each for one segment of the initial ten.
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
    // Sent at 100 ms. RFC 6298 §2.2 and §5.5: 100 ms plus the floor of 200 ms, then twice that. RFC
    // 5681 §3.1: the loss window, and max(FlightSize / 2, 2 * SMSS) for the first timeout only.
    let at = |n| Time::ZERO + ms(n);
    assert_eq!(timeouts, [(at(400), 1000, 5000), (at(1000), 1000, 5000)]);
    // The interval of the delivery rate starts when the flight was sent
    // (draft-cheng-iccrg-delivery-rate-estimation §3.2): one segment from 100 to 1100 ms.
    net.run_until(at(1100));
    assert_eq!(
        net.client.snapshot().delivery_rate,
        Some(Rate::from_bps(8_000))
    );
    // Slow start from one segment: 1, 2 and 4 in the next round trips. The second one has new
    // segments (RFC 5682 §3.1, step 2 b), whose SACKs show that the losses are real.
    net.run_until(at(1000 + 399));
    assert_eq!(numbers(&net)[10..], [0, 0, 10, 11, 1, 2, 3, 4, 5, 6]);
}

#[test]
fn a_closed_window_is_probed_after_a_timeout_and_then_half_as_often_each_time() {
    // Seven segments fill the buffer; the application does not read.
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
        // RFC 6298 with Linux's floor: the smoothed RTT plus 200 ms, without backoff.
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
    // MUST-37: the connection stays open, and continues when there is room.
    assert_eq!(net.server.read(7_000), 7_000);
    net.run_until(secs(40));
    assert_eq!(net.server.received(), 14_000);
}

#[test]
fn a_small_segment_waits_while_anything_is_outstanding_and_a_full_one_does_not() {
    // RFC 9293 §3.7.4 (Nagle). 300 bytes are written at 20, 300 at 22 and 800 at 23 ms. The first
    // are acknowledged at 40 ms, those sent at 23 ms at 43 ms.
    let sent = |nagle| {
        let config = Config { nagle, ..reno() };
        let mut net = Net::new(&config, &config, ms(10), |_, _| Fate::Deliver);
        net.trace = Some(Vec::new());
        net.client.open(Time::ZERO);
        for (at, bytes) in [(20, 300), (22, 300), (23, 800)] {
            net.run_until(Time::ZERO + ms(at));
            net.client.write(bytes);
        }
        net.run_until(secs(1));
        let lines = net.trace.iter().flatten();
        let data = lines.filter(|line| line.to_server && line.segment.len > 0);
        data.map(|line| (line.at.as_ns() / 1_000_000, line.segment.len))
            .collect::<Vec<_>>()
    };
    assert_eq!(sent(true), [(20, 300), (23, 1000), (43, 100)]);
    assert_eq!(sent(false), [(20, 300), (22, 300), (23, 800)]);
}

#[test]
fn an_idle_sender_halves_its_window_for_each_timeout_that_passes() {
    let windows = |timeouts: u64| {
        let mut net = Net::new(&reno(), &reno(), ms(10), |_, _| Fate::Deliver);
        net.trace = Some(Vec::new());
        net.client.open(Time::ZERO);
        net.client.write(200_000);
        // Five round trips of 20 ms after the handshake: 10, 20, 40, 80 and 50 segments
        net.run_until(Time::ZERO + ms(200));
        let before = net.client.snapshot();
        let is_data = |line: &&Line| line.to_server && line.segment.len > 0;
        let last = net.trace.iter().flatten().rfind(is_data);
        net.run_until(last.unwrap().at + before.rto * timeouts + ms(1));
        net.client.write(1000);
        net.flush();
        (before.window.cwnd, net.client.snapshot().window.cwnd)
    };
    // RFC 2861 §3.2: half of it for each timeout, but not below the initial window, as in Linux.
    for (timeouts, halvings) in [(0, 0), (1, 1), (2, 2)] {
        let (before, after) = windows(timeouts);
        assert!(before > 80_000, "{before}");
        assert_eq!(after, before >> halvings, "{timeouts}");
    }
    assert_eq!(windows(20).1, 10_000);
}

#[test]
fn a_repeated_segment_is_measured_by_its_timestamp_only() {
    // RFC 6298 §3, RFC 7323 §4.1. Sent at 20 ms and again at 240 ms, after 20 ms plus the floor of
    // 200. The ACK of the delayed original arrives at 245 ms: an RTT of 225 ms by its timestamp,
    // not 5 ms.
    let config = Config {
        loss_detection: LossDetection::DupAck,
        ..reno()
    };
    let mut is_first = true;
    let mut net = transfer(&config, 1000, ms(10), |up, s| {
        if up && s.len > 0 && std::mem::take(&mut is_first) {
            Fate::Late(ms(205))
        } else {
            Fate::Deliver
        }
    });
    net.run_until(Time::ZERO + ms(246));
    assert_eq!(net.client.counters().timeouts, 1);
    let snapshot = net.client.snapshot();
    assert_eq!(snapshot.latest_rtt, ms(225));
    assert_eq!(snapshot.min_rtt, Some(ms(20)));
}

/// Sends 60 segments, of which those in `lost` are lost. Returns the data segments with CWR
/// (position in the order of sending, number) and the number of timeouts.
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
    // RFC 3168 §6.1.2: one new segment per reduction. It is sent after the retransmissions, so its
    // position in the order of sending is greater than its number. The loss of the whole initial
    // window takes a timeout.
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
    // RFC 9768 §3.2.2.2. Every third segment is marked, every fifth ACK is delayed by 5 ms.
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

#[test]
fn a_lost_syn_is_repeated_after_a_second_and_the_second_one_costs_the_initial_window() {
    // RFC 6298 §2.1, and Linux's four linear timeouts before §5.5: after 1, 2, 3, 4, 5 and 7 s, and
    // one round trip. RFC 6928 §2: an initial window of one segment after more than one
    // retransmission.
    for (lost, seconds, window) in [(0, 0, 10), (1, 1, 10), (2, 2, 1), (5, 5, 1), (6, 7, 1)] {
        let mut left = lost;
        let mut net = transfer(&config("reno"), 1448, Span::from_ms(10), |up, s| {
            if up && s.flags.has(Flags::SYN) && left > 0 {
                left -= 1;
                Fate::Drop
            } else {
                Fate::Deliver
            }
        });
        net.flush();
        while !net.client.is_established() {
            assert!(net.step(secs(10)));
        }
        assert_eq!(net.now, secs(seconds) + Span::from_ms(20));
        let snapshot = net.client.snapshot();
        assert_eq!(snapshot.window.cwnd, window * 1448);
        // RFC 7323 §4.1: the timestamp shows that the last SYN took 20 ms. The floor is 200 ms.
        assert_eq!(snapshot.rto, Span::from_ms(220));
    }
}

#[test]
fn a_slow_handshake_is_not_taken_for_a_lost_one() {
    // The answer to the first SYN arrives after 3.4 s, after repetitions at 1, 2 and 3 s.
    let mut net = transfer(&config("reno"), 1448, ms(1700), |_, _| Fate::Deliver);
    net.flush();
    while !net.client.is_established() {
        assert!(net.step(secs(10)));
    }
    let snapshot = net.client.snapshot();
    assert_eq!(snapshot.window.cwnd, 10 * 1448);
    assert_eq!(snapshot.srtt, Some(ms(3400)));
    // RFC 6298 §2.2: 3400 + 4 * 1700 ms
    assert_eq!(snapshot.rto, ms(10_200));
}

#[test]
fn a_sack_of_a_segment_that_never_was_repeated_undoes_a_timeout() {
    // RFC 5682 §3.1, step 3 b, as in Linux. The first of ten segments is lost, the others are late.
    // The timer expires at 20 + 220 ms; the SACKs of the others arrive from 265 ms on.
    let config = Config {
        loss_detection: LossDetection::DupAck,
        ..reno()
    };
    let mut sent = 0;
    let mut net = transfer(&config, 30_000, ms(10), |up, s| {
        sent += u32::from(up && s.len > 0);
        match sent {
            _ if !up || s.len == 0 => Fate::Deliver,
            1 => Fate::Drop,
            2..=10 => Fate::Late(ms(225)),
            // The retransmission.
            11 => Fate::Late(ms(100)),
            _ => Fate::Deliver,
        }
    });
    net.run_until(Time::ZERO + ms(264));
    assert_eq!(net.client.counters().timeouts, 1);
    assert_eq!(net.client.snapshot().window.cwnd, 1000);
    net.run_until(Time::ZERO + ms(266));
    let counters = net.client.counters();
    assert_eq!((counters.undos, counters.retransmits), (1, 1));
    let window = net.client.snapshot().window;
    assert_eq!((window.cwnd, window.ssthresh), (10_000, u64::MAX));
}

#[test]
fn sacks_of_segments_sent_before_a_retransmission_restart_the_timer() {
    // Ten segments leave at 20 ms. The first one is lost, and so is its retransmission after the
    // third SACK, at 320 ms. The others arrive every 100 ms, the SACK of the last one at 920 ms.
    let config = Config {
        loss_detection: LossDetection::DupAck,
        sack_delay: Span::ZERO,
        ..reno()
    };
    let mut sent = 0;
    let mut net = transfer(&config, 10_000, ms(10), |up, s| {
        sent += u64::from(up && s.len > 0);
        match sent {
            _ if !up || s.len == 0 => Fate::Deliver,
            2..=10 => Fate::Late(ms(80 + 100 * (sent - 2))),
            _ => Fate::Drop,
        }
    });
    let at = |n| Time::ZERO + ms(n);
    net.run_until(at(319));
    assert_eq!(net.client.counters().retransmits, 0);
    net.run_until(at(920));
    let counters = net.client.counters();
    assert_eq!((counters.retransmits, counters.timeouts), (1, 0));
    // The timer runs from the last SACK on, with the timeout of that instant.
    let rto = net.client.snapshot().rto;
    net.run_until(at(920) + Span::from_ns(rto.as_ns() - 1));
    assert_eq!(net.client.counters().timeouts, 0);
    net.run_until(at(920) + rto);
    assert_eq!(net.client.counters().timeouts, 1);
}

#[test]
fn an_aborted_transfer_sends_a_reset_and_answers_late_acks_with_resets() {
    let mut net = transfer(&reno(), 100_000, ms(10), |_, _| Fate::Deliver);
    net.trace = Some(Vec::new());
    // Ten segments left at 20 ms and arrive at 30 ms.
    net.run_until(Time::ZERO + ms(25));
    net.client.abort();
    net.run_until(secs(10));
    assert_eq!(net.client.state(), State::Aborted);
    assert_eq!(net.server.state(), State::Aborted);
    // What was in flight has arrived, and nothing was sent again.
    assert_eq!(net.server.received(), 10_000);
    assert_eq!(net.client.counters().retransmits, 0);
    let resets: Vec<_> = net
        .trace
        .iter()
        .flatten()
        .filter(|line| line.segment.flags.has(Flags::RST))
        .collect();
    let acks = net
        .trace
        .iter()
        .flatten()
        .filter(|line| !line.to_server && line.at >= Time::ZERO + ms(30))
        .count();
    // The abort's has the number after the ten segments (RFC 9293 §3.10.5) and a timestamp: 52
    // bytes. Each ACK is answered by one without options, of 40 bytes (§3.10.7.1).
    assert_eq!(resets[0].segment.seq, 1 + 10_000);
    assert_eq!(resets[0].segment.ip_len(), 52);
    assert_eq!(resets.len(), 1 + acks);
    assert!(resets[1..].iter().all(|line| line.segment.ip_len() == 40));
}

#[test]
fn a_reset_with_another_number_is_answered_by_an_ack() {
    // RFC 5961 §3.2: the exact number ends the connection, another one in the window is challenged,
    // one outside of it is ignored. Ten segments and a FIN have arrived, so RCV.NXT is 10002.
    for (seq, state, answers) in [
        (10_002, State::Aborted, 0),
        (10_003, State::Established, 1),
        (10_001, State::Established, 0),
    ] {
        let mut net = transfer(&reno(), 10_000, ms(10), |_, _| Fate::Deliver);
        net.run_until(Time::ZERO + ms(30));
        let mut server = net.server;
        let reset = Segment {
            seq,
            flags: Flags::RST,
            ..Segment::default()
        };
        while server.poll_transmit(net.now).is_some() {}
        server.handle_segment(net.now, &reset);
        assert_eq!(server.state(), state, "{seq}");
        let sent = core::iter::from_fn(|| server.poll_transmit(net.now)).count();
        assert_eq!(sent, answers, "{seq}");
    }
}

#[test]
fn accurate_feedback_counts_every_mark() {
    let config = Config {
        ecn: EcnMode::Accurate,
        ..config("prague")
    };
    let (mut dice, marks) = (Dice(7), std::cell::Cell::new(0));
    let mut next = 1;
    let mut net = transfer(&config, 3_000_000, Span::from_ms(10), |up, s| {
        // Every third data segment is marked, every fifth ACK is lost. Retransmissions because of
        // that are outside of the window, so their marks would be ignored.
        let is_new = up && s.seq >= next;
        if is_new {
            next = s.seq + s.len;
        }
        if is_new && s.len > 0 && dice.roll().is_multiple_of(3) {
            marks.set(marks.get() + 1);
            Fate::Mark
        } else if !up && s.is_pure_ack() && dice.roll().is_multiple_of(5) {
            Fate::Drop
        } else {
            Fate::Deliver
        }
    });
    assert!(net.run(secs(600)));
    assert_eq!(net.client.counters().ce_segments, marks.get());
}

#[test]
fn dctcp_acknowledges_a_change_of_marks_in_two_parts() {
    let config = Config {
        ecn: EcnMode::Dctcp,
        quick_acks: 0,
        // A growing window would request an ACK for each segment.
        initial_receive_window: Config::default().receive_buffer,
        ..config("dctcp")
    };
    let mut sent = 0;
    let mut net = transfer(&config, 20_000, Span::from_ms(10), |up, s| {
        sent += u32::from(up && s.len > 0);
        if up && s.len > 0 && sent == 4 {
            Fate::Mark
        } else {
            Fate::Deliver
        }
    });
    net.trace = Some(Vec::new());
    assert!(net.run(secs(10)));
    let acks: Vec<(u32, bool)> = net
        .trace
        .iter()
        .flatten()
        .filter(|line| !line.to_server && line.segment.is_pure_ack())
        .map(|line| {
            (
                line.segment.ack.wrapping_sub(1) / 1448,
                line.segment.flags.has(Flags::ECE),
            )
        })
        .collect();
    // The server's FIN acknowledges the first segment. The second is acknowledged at once, as the
    // last of a super-packet. RFC 8257 §3.2: the third waits for its ACK when the marked fourth
    // arrives. It is acknowledged without ECE, the fourth at once with ECE, the fifth without.
    assert_eq!(acks[..4], [(2, false), (3, false), (4, true), (5, false)]);
}

#[test]
fn the_floor_of_rfc_6298_makes_a_timeout_take_a_second() {
    let retransmitted_at = |floor| {
        let config = Config {
            loss_detection: LossDetection::DupAck,
            rto_floor: floor,
            ..config("reno")
        };
        let mut first = true;
        let mut net = transfer(&config, 1448, Span::from_ms(10), |up, s| {
            if up && s.len > 0 && std::mem::take(&mut first) {
                Fate::Drop
            } else {
                Fate::Deliver
            }
        });
        net.trace = Some(Vec::new());
        assert!(net.run(secs(10)));
        let line = net
            .trace
            .iter()
            .flatten()
            .filter(|l| l.segment.len > 0)
            .nth(1);
        line.unwrap().at
    };
    // Sent at 20 ms. One RTT sample of 20 ms: RTO = 20 + max(floor, 4 * 10) as in Linux
    use sluice_tcp::rtt::RtoFloor;
    let ms = Span::from_ms;
    assert_eq!(
        retransmitted_at(RtoFloor::Variance(ms(200))),
        Time::ZERO + ms(20 + 220)
    );
    assert_eq!(
        retransmitted_at(RtoFloor::Total(ms(1000))),
        Time::ZERO + ms(20 + 1000)
    );
}
