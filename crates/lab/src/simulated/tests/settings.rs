//! Effects of the settings of the simulator's TCP.

use super::{LiveOptions, MS, Target, metric, run, simulate};
use sluice_core::Stop;
use sluice_recording::Keep;
use sluice_scenario::{Backend, Scenario};

/// The first slow-start threshold of the only flow.
fn first_threshold(text: &str) -> Option<u64> {
    let (_folder, recording) = simulate(text);
    let mut rows = recording.flow_samples().unwrap().map(Result::unwrap);
    rows.find_map(|row| row.ssthresh)
}

#[test]
fn a_last_segment_lost_twice_is_repeated_after_the_floor() {
    // The SYN and the first segment pass; the second segment and its probe are lost. Both round
    // trips take 20 ms, so at the ACK of the first segment, at 40 ms, SRTT is 20 ms and RTTVAR is
    // 3/4 of 10 ms. The probe leaves after 2 SRTT and the 200 ms of a late ACK, 240 ms, or at the
    // timeout if that is earlier (RFC 8985 §7.2). The third copy leaves one timeout after the probe
    // and takes 10 ms.
    for (floor, ms) in [
        // The timeout is SRTT plus the floor.
        ("", 40 + 220 + 220 + 10),
        ("rto_floor = \"200ms\"", 40 + 220 + 220 + 10),
        ("rto_floor = \"100ms\"", 40 + 120 + 120 + 10),
        ("rto_floor = \"500ms\"", 40 + 240 + 520 + 10),
        // RFC 6298 §2.3: the timeout is SRTT + 4 RTTVAR, 50 ms; §2.4: at least the floor.
        ("rto_floor = { total = \"10ms\" }", 40 + 50 + 50 + 10),
        ("rto_floor = { total = \"200ms\" }", 40 + 200 + 200 + 10),
        ("rto_floor = { total = \"1s\" }", 40 + 240 + 1000 + 10),
    ] {
        let (_folder, recording) = simulate(&format!(
            r#"
duration = "3s"
[link]
rate = "1Gbit/s"
rtt = "20ms"
[link.up]
lose_every = 1000
lose_from = 3
lose_run = 2
[[flow]]
type = "tcp"
name = "short"
bytes = "2896B"
{floor}
"#
        ));
        let fct = metric(&recording, "short.fct") / MS;
        // Hosts take up to 50 us each time, four times per round trip: up to 0.2 ms in each of the
        // two round trips and in SRTT, and 0.5 ms in a timeout of SRTT + 4 RTTVAR, which passes
        // twice.
        let expected = f64::from(ms);
        assert!(
            (expected..expected + 1.5).contains(&fct),
            "{floor}: {fct} ms"
        );
    }
}

#[test]
fn with_abe_a_mark_costs_less_than_a_loss() {
    let threshold = |keys: &str| {
        first_threshold(&format!(
            r#"
duration = "3s"
[link]
rate = "10Mbit/s"
rtt = "100ms"
queue = "codel ecn"
[measure]
interval = "1ms"
[[flow]]
type = "tcp"
ecn = true
slow_start = "standard"
{keys}
"#
        ))
        .unwrap()
    };
    // Until the first mark both runs are the same, with a window of W segments. RFC 5681 §3.1 and
    // RFC 9438 §4.6 leave 0.5 W and 0.7 W; RFC 8511 §3.1 leaves 0.8 W and 0.85 W; in whole
    // segments.
    for (cc, plain, ecn) in [("reno", 50, 80), ("cubic", 70, 85)] {
        let seen =
            ["abe = false", "abe = true"].map(|abe| threshold(&format!("cc = \"{cc}\"\n{abe}")));
        let windows = (20..2000).filter(|window| window * plain / 100 == seen[0]);
        let expected: Vec<u64> = windows.map(|window| window * ecn / 100).collect();
        assert!(expected.contains(&seen[1]), "{cc}: {seen:?}, {expected:?}");
    }
}

#[test]
fn slow_start_ends_as_asked_for() {
    let threshold = |keys: &str| {
        first_threshold(&format!(
            r#"
duration = "3s"
[link]
rate = "10Mbit/s"
rtt = "50ms"
queue = "fifo limit 1000"
[measure]
interval = "1ms"
[[flow]]
type = "tcp"
{keys}
"#
        ))
    };
    // The path holds 41.7 packets and the queue 1000. Without HyStart a loss ends slow start, at a
    // window of 1042; reno halves it, cubic keeps 0.7 of it.
    for (keys, least) in [("cc = \"reno\"", 521), ("slow_start = \"standard\"", 729)] {
        let packets = threshold(keys);
        assert!(packets.is_some_and(|n| n >= least), "{keys}: {packets:?}");
    }
    // HyStart: ACKs are 1.2 ms apart. A train of ACKs may last half of the 50 ms and of 1 ms for
    // bursts, which is 21.25 ACKs. The rounds of 10 and 20 are shorter. In the round of 40 the
    // window is 62 after 22 ACKs, or a little more, since an ACK covers two segments.
    for keys in [
        "",
        "slow_start = \"hystart\"",
        "cc = \"reno\"\nslow_start = \"hystart\"",
    ] {
        let packets = threshold(keys);
        assert!(
            packets.is_some_and(|n| (62..=64).contains(&n)),
            "{keys}: {packets:?}"
        );
    }
    // HyStart++: the flight of 80 is the first that takes longer, 96 ms, than the round trip, so
    // the flight of 160 behind it meets 46 ms of queue. RFC 9406 §4.2 and §4.3: the eighth sample
    // of its round, for 8 to 16 segments, starts conservative slow start, which adds a quarter in
    // the rest of this round and in each of four more: 168 * 1.25^4 = 410 at least, 176 * 1.25^5 =
    // 537 at most.
    for cc in ["cubic", "reno"] {
        let packets = threshold(&format!(
            "cc = \"{cc}\"\nslow_start = \"hystart_plus_plus\""
        ));
        assert!(
            packets.is_some_and(|n| (410..=537).contains(&n)),
            "{cc}: {packets:?}"
        );
    }
}

#[test]
fn a_paced_window_does_not_leave_at_once() {
    // An initial window of 20 segments, 1.2 ms each at 10 Mbit/s. The last segment of a burst waits
    // for 19. Pacing begins after ten, whose last one waits for nine. At two windows per round trip
    // of 100 ms, 4.6 Mbit/s, two segments then leave in 5 ms, while four leave the queue.
    for (pacing, ms) in [
        ("", 22.8),
        ("pacing = false", 22.8),
        ("pacing = true", 10.8),
    ] {
        let (_folder, recording) = simulate(&format!(
            r#"
duration = "2s"
[link]
rate = "10Mbit/s"
rtt = "100ms"
[measure]
warmup = "0s"
[[flow]]
type = "tcp"
name = "short"
bytes = "28960B"
initial_window = 20
{pacing}
"#
        ));
        let wait = metric(&recording, "short.sojourn.max") / MS;
        assert!((wait - ms).abs() < 0.1, "{pacing}: {wait} ms");
    }
}

/// What a run of `text` says beside its figures.
fn remarks(text: &str) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let variants = Scenario::parse("x", text, &[]).unwrap_or_else(|errors| panic!("{errors}"));
    let finished = run(
        &variants[0],
        Backend::Sim,
        LiveOptions::default(),
        Target {
            dir: &folder.path().join("run"),
            keep: Keep::Figures,
            has_pages: false,
        },
        "2026-01-02T03:04:05Z".to_owned(),
        &Stop::new(),
        &mut |_| {},
    );
    finished.unwrap().remarks
}

#[test]
fn a_connection_that_gives_up_is_named() {
    // RFC 9293 leaves the number of SYNs open; Linux's last one times out after 131 s.
    let outage = |until: &str| {
        format!(
            "duration = \"200s\"\n[link]\nrtt = \"20ms\"\n\
             rate = [[\"0s\", \"10Mbit/s\"], [\"10s\", \"1bit/s\"], [\"{until}\", \"10Mbit/s\"]]\n\
             [[flow]]\ntype = \"tcp\"\nname = \"late\"\nstart = \"12s\"\nbytes = \"10kB\"\n"
        )
    };
    assert_eq!(
        remarks(&outage("160s")),
        ["flow `late`: a connection gave up after many timeouts"]
    );
    assert_eq!(remarks(&outage("20s")), [""; 0]);
}

#[test]
fn rules_that_let_nothing_through_are_named() {
    // Without `one_pass`, the packets pass the rules again on their way `in`.
    let rules = |second: &str| {
        format!(
            "duration = \"3s\"\nrules = \"\"\"\npipe 1 config bw 10Mbit/s delay 20ms\n\
             add 100 pipe 1 ip from any to any out\n{second}\"\"\"\n\
             [[flow]]\ntype = \"tcp\"\n"
        )
    };
    let shut = remarks(&rules(""));
    assert_eq!(shut.len(), 1, "{shut:?}");
    assert!(
        shut[0].starts_with("no flow got anything through the rules, and "),
        "{shut:?}"
    );
    assert_eq!(
        remarks(&rules("add 200 allow ip from any to any in\n")),
        [""; 0]
    );
}
