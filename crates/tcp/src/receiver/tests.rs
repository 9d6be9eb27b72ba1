use alloc::vec::Vec;

use super::*;
use crate::segment::SackBlock;

fn receiver() -> Receiver {
    let mut receiver = Receiver::new(&Config {
        mss: 100,
        quick_acks: 0,
        // A growing window would request an ACK for each segment.
        initial_receive_window: 6 << 20,
        ..Config::default()
    });
    receiver.set_path_rtt(Span::from_ms(40));
    receiver.open(1000, Time::ZERO);
    // The handshake offers the whole buffer.
    let mut ack = Segment::default();
    receiver.stamp(&mut ack);
    receiver
}

fn data(seq: u32, len: u32) -> Segment {
    Segment {
        seq,
        len,
        ..Segment::default()
    }
}

fn ack(receiver: &mut Receiver) -> Segment {
    let mut segment = Segment::default();
    receiver.stamp(&mut segment);
    segment
}

const NOW: Time = Time::from_ns(1_000_000);
const IDLE: fn() -> Span = || Span::from_secs(1);

#[test]
fn every_second_full_segment_is_acknowledged() {
    let mut receiver = receiver();
    assert_eq!(receiver.handle(NOW, &data(1000, 100), IDLE), 100);
    assert!(!receiver.wants_ack(NOW));
    assert_eq!(receiver.ack_due(), NOW + Span::from_ms(40));
    assert_eq!(receiver.handle(NOW, &data(1100, 100), IDLE), 100);
    assert!(receiver.wants_ack(NOW));
    assert_eq!(ack(&mut receiver).ack, 1200);
    assert_eq!(receiver.ack_due(), Time::MAX);
}

#[test]
fn quick_acks_do_not_run_out_while_the_window_opens() {
    let mut receiver = Receiver::new(&Config {
        mss: 1000,
        quick_acks: 5,
        initial_receive_window: 10_000,
        ..Config::default()
    });
    receiver.open(0, Time::ZERO);
    // The ACK of the handshake offers the window and is one of the five.
    ack(&mut receiver);
    // The first segment makes the buffer 12 500 bytes. Two segments open the window by 2000 and 500
    // bytes. Each time, the four remaining quick ACKs become five and then four again. Four more
    // ACKs follow, and the ACK of the seventh segment waits.
    for number in 0..7 {
        receiver.handle(NOW, &data(number * 1000, 1000), IDLE);
        assert_eq!(receiver.wants_ack(NOW), number < 6, "segment {number}");
        if number < 6 {
            ack(&mut receiver);
        }
    }
}

#[test]
fn segments_beyond_a_gap_open_the_window_and_take_room_in_it() {
    let mut receiver = Receiver::new(&Config {
        mss: 1000,
        initial_receive_window: 10_000,
        ..Config::default()
    });
    receiver.open(0, Time::ZERO);
    assert_eq!(ack(&mut receiver).window, 10_000 >> 7);
    // A buffer of 12 500 bytes less 2000 up to the end of the segment: 10 500, in units of 128.
    receiver.handle(NOW, &data(1000, 1000), IDLE);
    assert_eq!(receiver.limit, 12_000);
    assert_eq!(ack(&mut receiver).window, 10_500 >> 7);
}

#[test]
fn a_segment_with_cwr_is_acknowledged_at_once() {
    let mut receiver = receiver();
    receiver.set_ecn(EcnMode::Classic);
    let mut segment = data(1000, 100);
    segment.flags = Flags::CWR;
    receiver.handle(NOW, &segment, IDLE);
    assert!(receiver.wants_ack(NOW));
}

#[test]
fn the_end_of_a_write_is_acknowledged_at_once() {
    let mut receiver = receiver();
    let mut pushed = data(1000, 100);
    pushed.flags = Flags::PSH;
    receiver.handle(NOW, &pushed, IDLE);
    assert!(receiver.wants_ack(NOW));
}

#[test]
fn the_window_becomes_twice_what_is_read_in_an_rtt_and_twice_the_next_growth() {
    let mut receiver = Receiver::new(&Config {
        mss: 5000,
        quick_acks: 0,
        ..Config::default()
    });
    receiver.open(1000, Time::ZERO);
    // 64 KiB of window, in units of 2^7 bytes: 6 MiB need a scale of 7.
    assert_eq!(ack(&mut receiver).window, 512);
    // 12 segments in each RTT of 10 ms, and the one that ends the first measurement, are 65 kB,
    // where the ten of an initial window, 50 kB, were expected: 2 * 65 kB, and 2 * 130 kB * (65 -
    // 50) / 50 for another such growth: 208 kB.
    let mut seq = 1000;
    for round in 0..3_u64 {
        for _ in 0..12 {
            let mut segment = data(seq, 5000);
            segment.ts_echo = NOW + Span::from_ms(10 * round);
            let now = segment.ts_echo + Span::from_ms(10);
            receiver.handle(now, &segment, IDLE);
            ack(&mut receiver);
            seq += 5000;
        }
        if round == 0 {
            // The first segment has set it to five eighths of 128 KiB instead of a half.
            assert_eq!(receiver.limit, 80 << 10);
        }
    }
    // From then on the window opens by two bytes for each byte that arrives.
    assert_eq!(ack(&mut receiver).window, (208_000 >> 7) as u16);
    assert_eq!(receiver.limit, 208_000);
}

#[test]
fn blocks_are_reported_latest_first_and_merge() {
    // RFC 2018 §8, case 2: every other segment is lost.
    let mut receiver = receiver();
    let block = |start, end| SackBlock { start, end };
    receiver.handle(NOW, &data(1100, 100), IDLE);
    assert_eq!(ack(&mut receiver).sacks(), [block(1100, 1200)]);
    receiver.handle(NOW, &data(1300, 100), IDLE);
    assert_eq!(
        ack(&mut receiver).sacks(),
        [block(1300, 1400), block(1100, 1200)]
    );
    receiver.handle(NOW, &data(1500, 100), IDLE);
    receiver.handle(NOW, &data(1700, 100), IDLE);
    assert_eq!(
        ack(&mut receiver).sacks(),
        [block(1700, 1800), block(1500, 1600), block(1300, 1400)]
    );
    // Filling 1400..1500 merges two of them.
    receiver.handle(NOW, &data(1400, 100), IDLE);
    let report = ack(&mut receiver);
    assert_eq!(report.sacks(), [block(1300, 1600), block(1700, 1800)]);
    assert_eq!(report.ack, 1000);
    // Filling the first hole makes 1000..1200 readable.
    assert_eq!(receiver.handle(NOW, &data(1000, 100), IDLE), 200);
    let report = ack(&mut receiver);
    assert_eq!(report.ack, 1200);
    assert_eq!(report.sacks(), [block(1300, 1600), block(1700, 1800)]);
}

#[test]
fn a_duplicate_is_reported_once_and_first() {
    let mut receiver = receiver();
    receiver.handle(NOW, &data(1000, 100), IDLE);
    receiver.handle(NOW, &data(1200, 100), IDLE);
    assert_eq!(receiver.handle(NOW, &data(1000, 100), IDLE), 0);
    let report = ack(&mut receiver);
    // RFC 2883 §4.1: below the cumulative ACK
    assert_eq!(
        report.sacks()[0],
        SackBlock {
            start: 1000,
            end: 1100
        }
    );
    assert_eq!(
        report.sacks()[1],
        SackBlock {
            start: 1200,
            end: 1300
        }
    );
    assert_eq!(ack(&mut receiver).sacks().len(), 1);
    assert_eq!(receiver.duplicate_bytes(), 100);
}

#[test]
fn after_three_acks_for_a_gap_the_others_are_compressed() {
    let mut receiver = receiver();
    receiver.rtt = Span::from_ms(10);
    receiver.measured_at = Time::MAX;
    for i in 1..=3 {
        receiver.handle(NOW, &data(1000 + i * 100, 100), IDLE);
        assert!(receiver.wants_ack(NOW));
        ack(&mut receiver);
    }
    // min(1 ms, 10 ms / 20) and 100 us of slack, from the first that waits
    receiver.handle(NOW, &data(1400, 100), IDLE);
    receiver.handle(NOW + Span::from_us(100), &data(1500, 100), IDLE);
    assert_eq!(receiver.ack_due(), NOW + Span::from_us(600));
    let report = ack(&mut receiver);
    let block = |start, end| SackBlock { start, end };
    assert_eq!(report.sacks(), [block(1100, 1600)]);
    // At most 44 wait.
    for i in 0..44 {
        receiver.handle(NOW, &data(1600 + i * 100, 100), IDLE);
        assert!(!receiver.wants_ack(NOW));
    }
    receiver.handle(NOW, &data(1600 + 4400, 100), IDLE);
    assert!(receiver.wants_ack(NOW));
    ack(&mut receiver);
    // A segment that fills the gap is acknowledged at once.
    receiver.handle(NOW, &data(1000, 100), IDLE);
    assert!(receiver.wants_ack(NOW));
    assert_eq!(ack(&mut receiver).ack, 1600 + 4500);
}

#[test]
fn acks_for_many_gaps_do_not_wait_until_blocks_are_forgotten() {
    let mut receiver = receiver();
    receiver.rtt = Span::from_ms(10);
    receiver.measured_at = Time::MAX;
    // Every second segment arrives. The first three ACKs leave at once in any case.
    let mut reported = Vec::new();
    for i in 0..20 {
        receiver.handle(NOW, &data(1100 + i * 200, 100), IDLE);
        assert!(receiver.wants_ack(NOW), "segment {i}");
        reported.extend(ack(&mut receiver).sacks().iter().map(|block| block.start));
    }
    let arrived: Vec<u32> = (0..20).map(|i| 1100 + i * 200).collect();
    reported.sort_unstable();
    reported.dedup();
    assert_eq!(reported, arrived);
    // A segment that extends one of the two latest blocks waits.
    receiver.handle(NOW, &data(1200 + 19 * 200, 50), IDLE);
    assert!(!receiver.wants_ack(NOW));
    receiver.handle(NOW, &data(1200 + 18 * 200, 50), IDLE);
    assert!(!receiver.wants_ack(NOW));
    // One that extends an earlier block does not.
    receiver.handle(NOW, &data(1200 + 17 * 200, 50), IDLE);
    assert!(receiver.wants_ack(NOW));
}

#[test]
fn a_new_gap_has_three_acks_at_once_again() {
    let mut receiver = receiver();
    receiver.rtt = Span::from_ms(10);
    receiver.measured_at = Time::MAX;
    for i in [1, 2, 3, 5, 6] {
        receiver.handle(NOW, &data(1000 + i * 100, 100), IDLE);
        receiver.wants_ack(NOW).then(|| ack(&mut receiver));
    }
    assert!(!receiver.wants_ack(NOW));
    // The first gap is filled, the second remains: RCV.NXT has moved.
    receiver.handle(NOW, &data(1000, 100), IDLE);
    assert!(receiver.wants_ack(NOW));
    ack(&mut receiver);
    receiver.handle(NOW, &data(1700, 100), IDLE);
    assert!(receiver.wants_ack(NOW));
}

/// A receiver with a buffer of ten segments, all of it offered, that the application reads from
/// explicitly.
fn slow_reader() -> Receiver {
    let mut receiver = Receiver::new(&Config {
        mss: 100,
        receive_buffer: 1000,
        reading: Reading::Explicit,
        ..Config::default()
    });
    receiver.open(1000, Time::ZERO);
    assert_eq!(ack(&mut receiver).window, 1000);
    receiver
}

#[test]
fn the_window_closes_and_opens_with_the_reader() {
    let mut receiver = slow_reader();
    for i in 0..10 {
        assert_eq!(receiver.handle(NOW, &data(1000 + i * 100, 100), IDLE), 100);
    }
    assert_eq!(ack(&mut receiver).window, 0);
    // The window is not updated for less than a segment (RFC 9293 §3.8.6.2.2).
    assert_eq!(receiver.read(50), 50);
    assert!(!receiver.wants_ack(NOW));
    assert_eq!(receiver.read(450), 450);
    assert!(receiver.wants_ack(NOW));
    assert_eq!(ack(&mut receiver).window, 500);
}

#[test]
fn an_application_without_room_closes_the_window_until_it_has_some() {
    let mut receiver = Receiver::new(&Config {
        mss: 100,
        receive_buffer: 1000,
        reading: Reading::Allowed,
        ..Config::default()
    });
    receiver.allow_reading(300);
    receiver.open(1000, Time::ZERO);
    assert_eq!(ack(&mut receiver).window, 1000);
    for i in 0..3 {
        receiver.handle(NOW, &data(1000 + i * 100, 100), IDLE);
        assert_eq!(receiver.unread(), 0);
        assert_eq!(ack(&mut receiver).window, 1000);
    }
    for i in 3..13 {
        receiver.handle(NOW, &data(1000 + i * 100, 100), IDLE);
    }
    assert_eq!(receiver.unread(), 1000);
    assert_eq!(ack(&mut receiver).window, 0);
    // Less than a segment does not open it (RFC 9293 §3.8.6.2.2).
    receiver.allow_reading(50);
    assert!(!receiver.wants_ack(NOW));
    receiver.allow_reading(450);
    assert_eq!(receiver.unread(), 500);
    assert!(receiver.wants_ack(NOW));
    assert_eq!(ack(&mut receiver).window, 500);
}

#[test]
fn the_scale_is_the_least_that_can_express_the_buffer() {
    assert_eq!(window_scale(65_535), 0);
    assert_eq!(window_scale(65_536), 1);
    // 65535 << 7 = 8388480 is the first value above 6 MiB = 6291456
    assert_eq!(window_scale(6 << 20), 7);
    assert_eq!(window_scale(1 << 30), 14);
}

#[test]
fn the_classic_echo_lasts_until_cwr() {
    let mut receiver = receiver();
    receiver.set_ecn(EcnMode::Classic);
    let mut segment = data(1000, 100);
    segment.ecn = Ecn::Ce;
    receiver.handle(NOW, &segment, IDLE);
    assert!(ack(&mut receiver).flags.has(Flags::ECE));
    receiver.handle(NOW, &data(1100, 100), IDLE);
    assert!(ack(&mut receiver).flags.has(Flags::ECE));
    let mut segment = data(1200, 100);
    segment.flags = Flags::CWR;
    receiver.handle(NOW, &segment, IDLE);
    assert!(!ack(&mut receiver).flags.has(Flags::ECE));
}

#[test]
fn the_first_of_a_run_of_marks_and_every_second_asks_for_an_ack() {
    let mut receiver = receiver();
    receiver.set_ecn(EcnMode::Accurate);
    // RFC 9768 §3.2.1: r.cep starts at 5; an ACK reports three bits of it. Expected: those bits, if
    // an ACK is sent.
    for (seq, is_ce, expected) in [
        (1000, false, None),
        // RFC 9768 §3.2.2.5.1: a change to CE, then two marks since the last ACK
        (1010, true, Some(6)),
        (1020, true, None),
        (1030, true, Some(0)),
        (1040, false, None),
        (1050, true, Some(1)),
    ] {
        let mut segment = data(seq, 10);
        segment.ecn = if is_ce { Ecn::Ce } else { Ecn::Ect1 };
        receiver.handle(NOW, &segment, IDLE);
        let seen = receiver
            .wants_ack(NOW)
            .then(|| ack(&mut receiver).flags.ace());
        assert_eq!(seen, expected, "{seq}");
    }
}

#[test]
fn a_mark_outside_the_window_means_nothing() {
    // RFC 3168 §6.1.5, RFC 9768 §3.2: the second copy of a segment is outside of the window.
    for mode in [EcnMode::Classic, EcnMode::Dctcp, EcnMode::Accurate] {
        let mut receiver = receiver();
        receiver.set_ecn(mode);
        let mut segment = data(1000, 100);
        receiver.handle(NOW, &segment, IDLE);
        let before = ack(&mut receiver).flags;
        segment.ecn = Ecn::Ce;
        receiver.handle(NOW, &segment, IDLE);
        assert!(receiver.wants_ack(NOW));
        assert_eq!(ack(&mut receiver).flags, before, "{mode:?}");
    }
}

#[test]
fn a_slow_reader_does_not_open_the_window_by_less_than_a_segment() {
    let mut receiver = slow_reader();
    // RFC 9293 §3.8.6.2.2: min(half of 1000, a segment of 100) must be free before the edge at 2000
    // moves, whatever ACKs are sent meanwhile. The fourth time 120 are free.
    for (number, window) in [(0, 900), (1, 800), (2, 700), (3, 600 + 120)] {
        receiver.handle(NOW, &data(1000 + number * 100, 100), IDLE);
        receiver.read(30);
        assert_eq!(ack(&mut receiver).window, window, "{number}");
    }
}
