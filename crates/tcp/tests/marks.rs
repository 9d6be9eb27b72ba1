//! The marks that a sender counts from the three bits of accurate ECN.

use sluice_core::{Span, Time};
use sluice_tcp::{Config, EcnMode, Endpoint, Flags, Segment, cc};

/// Sends everything that may be sent.
fn flush(client: &mut Endpoint, now: Time) {
    while client.poll_transmit(now).is_some() {}
}

/// Returns the marks that a sender counts, if each ACK acknowledges this many segments and adds this
/// many marks to the counter.
fn counted(acks: &[(u32, u32)]) -> u64 {
    let config = Config {
        mss: 1000,
        initial_window: 100,
        ecn: EcnMode::Accurate,
        congestion_control: cc::find("reno").unwrap(),
        ..Config::default()
    };
    let mut client = Endpoint::client(&config).unwrap();
    let mut now = Time::ZERO;
    client.open(now);
    client.write(100_000);
    let syn = client.poll_transmit(now).unwrap();
    now += Span::from_ms(10);
    // The window holds 65 segments.
    let mut answer = Segment {
        seq: 1,
        ack: syn.seq.wrapping_add(1),
        window: 65_535,
        mss: 1000,
        ts: now,
        ts_echo: syn.ts,
        // RFC 9768 §3.1.2: CWR without ECE accepts accurate ECN.
        flags: Flags::SYN.with(Flags::ACK).with(Flags::CWR),
        ..Segment::default()
    };
    client.handle_segment(now, &answer);
    flush(&mut client, now);
    // RFC 9768 §3.2.1: the counter starts at 5.
    let mut counter = 5;
    answer.seq = 2;
    for (segments, marks) in acks {
        now += Span::from_ms(1);
        counter += marks;
        answer.ack = answer.ack.wrapping_add(segments * 1000);
        answer.flags = Flags::ACK.with_ace(counter);
        answer.ts = now;
        answer.ts_echo = Time::ZERO;
        client.handle_segment(now, &answer);
        flush(&mut client, now);
    }
    client.counters().ce_segments
}

/// RFC 9768 §3.2.2.5.2: an ACK for more than seven segments may report eight marks more than its
/// three bits show. The share of marks before it decides.
#[test]
fn marks_whose_acks_are_lost_are_counted_as_often_as_those_before() {
    let after = |before: &[(u32, u32)], last| counted(&[before, &[last]].concat());
    // All 40 segments are marked, then all of 16, or 12: the three bits show 0, or 4.
    assert_eq!(after(&[(2, 2); 20], (16, 16)), 56);
    assert_eq!(after(&[(2, 2); 20], (12, 12)), 52);
    // Seven segments leave no doubt.
    assert_eq!(after(&[(2, 0); 20], (7, 7)), 7);
    // None is marked.
    assert_eq!(after(&[(2, 0); 20], (16, 0)), 0);
    // Half of them: 8 of 16 are expected, and 1 or 9 are possible. An eighth: 2 of 16, and 1 or 9.
    assert_eq!(after(&[(2, 1); 20], (16, 9)), 29);
    let eighth: Vec<(u32, u32)> = [(4, 1), (4, 0)].repeat(5);
    assert_eq!(after(&eighth, (16, 1)), 6);
}

/// The share is that of the ACKs that leave no doubt, whatever was counted for the others.
#[test]
fn doubtful_marks_do_not_change_the_share() {
    // 8 of 16 segments are marked, and 8 of each 16 after them, of which the three bits show none.
    let acks = [&[(2, 1); 8][..], &[(16, 8), (16, 8)]].concat();
    assert_eq!(counted(&acks), 24);
}
