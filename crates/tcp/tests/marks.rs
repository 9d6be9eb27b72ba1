//! The marks that a sender counts from the three bits of accurate ECN.

use sluice_core::{Span, Time};
use sluice_tcp::{Config, EcnMode, Endpoint, Flags, Segment, cc};

/// Bytes of a segment.
const MSS: u32 = 300;

/// Sends everything that may be sent.
fn flush(client: &mut Endpoint, now: Time) {
    while client.poll_transmit(now).is_some() {}
}

/// Returns the marks that a sender counts, if each ACK acknowledges this many segments and adds this
/// many marks to the counter.
fn counted(acks: &[(u32, u32)]) -> u64 {
    let config = Config {
        mss: MSS,
        initial_window: 400,
        ecn: EcnMode::Accurate,
        congestion_control: cc::find("reno").unwrap(),
        ..Config::default()
    };
    let mut client = Endpoint::client(&config).unwrap();
    let mut now = Time::ZERO;
    client.open(now);
    client.write(1_000_000);
    let syn = client.poll_transmit(now).unwrap();
    now += Span::from_ms(10);
    // The window holds 218 segments.
    let mut answer = Segment {
        seq: 1,
        ack: syn.seq.wrapping_add(1),
        window: 65_535,
        mss: MSS as u16,
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
        answer.ack = answer.ack.wrapping_add(segments * MSS);
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

/// Without an ACK that leaves no doubt, the share is out of date after 16 ACKs (`MOST_DOUBTFUL`).
#[test]
fn an_old_share_of_marks_does_not_make_up_marks_for_ever() {
    // All of 20 segments are marked. Then none is: of 8 segments, 8 marks are expected, and 0 or 8 are
    // possible. The marks of the last ACK show that all of them were valid.
    let before = [(2, 2); 10];
    let after = |acks: usize| {
        let doubtful = vec![(8, 0); acks];
        counted(&[&before[..], &doubtful, &[(8, 3)]].concat())
    };
    assert_eq!(after(0), 20 + 3);
    assert_eq!(after(1), 20 + 8 + 3);
    assert_eq!(after(15), 20 + 15 * 8 + 3);
    assert_eq!(after(17), 20 + 16 * 8 + 3);
}
