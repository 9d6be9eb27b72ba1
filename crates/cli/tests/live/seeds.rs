//! The seeds with durations of seconds instead of minutes, and accordingly wider bounds. The
//! scenarios themselves have the bounds for the full duration.

use std::fs;

use super::{expect, run_until_undisturbed, scenario};

/// A scenario of `scenarios/seeds` without its expectations, and the changes to it.
struct Short<'a> {
    name: &'a str,
    /// Texts, each with its replacement.
    changes: &'a [(&'a str, &'a str)],
    /// Lines that replace the lines with the same key.
    lines: &'a [&'a str],
    /// Figures, their variants and their bounds.
    expect: &'a [(&'a str, &'a str, &'a str)],
}

impl Short<'_> {
    fn run(&self) {
        let name = self.name;
        let text = fs::read_to_string(scenario(&format!("seeds/{name}.toml"))).expect("a scenario");
        let traffic = text.split("[[expect]]").next();
        let mut text = traffic.expect("the traffic").to_owned();
        for (from, to) in self.changes {
            assert!(text.contains(from), "{name} has `{from}`");
            text = text.replace(from, to);
        }
        for line in self.lines {
            let key = line.split_inclusive('=').next().expect("a key");
            let is_it = |old: &str| old.starts_with(key);
            assert!(text.lines().any(is_it), "{name} has `{key}`");
            let new = text.lines().map(|old| if is_it(old) { line } else { old });
            text = new.collect::<Vec<_>>().join("\n");
        }
        for (metric, variant, bounds) in self.expect {
            text.push('\n');
            text.push_str(&expect(metric, variant, bounds));
        }
        let temp = tempfile::tempdir().expect("a folder");
        let file = temp.path().join("s.toml");
        fs::write(&file, text).expect("writable");
        let figures = run_until_undisturbed(&file, &temp.path().join("out"));
        let results = figures.as_array().expect("variants");
        assert!(!results.is_empty(), "{name}");
        for result in results {
            assert_eq!(result["runs"][0]["status"], "complete", "{name}: {result}");
        }
    }
}

#[test]
fn the_codel_seeds_hold_live_in_a_shortened_form() {
    let changes = [("duration = \"60s\"", "duration = \"7s\"")];
    // RFC 8289 section 3.2 gives Reno 0.83 of 9.65 Mbit/s over 40 ms in the long run; slow start
    // and one loss have a larger effect in 6 s.
    let drops = [
        ("newreno.goodput", "", "min = \"6Mbit/s\""),
        ("up.sojourn.p50", "", "max = \"10ms\""),
        ("up.drops.congestion", "", "min = 1"),
    ];
    let marks = [("up.drops", "", "max = 0"), ("up.marks", "", "min = 1")];
    for (name, queue, expect) in [
        (
            "000-1-newreno-codel-20ms",
            "\"link.queue\" = { dummynet = \"codel noecn variant dummynet\" }",
            &drops[..],
        ),
        (
            "000-2-newreno-codel-40ms",
            "\"link.queue\" = { linux = \"codel noecn variant linux\" }",
            &drops,
        ),
        (
            "000-3-cubic-codel-ecn",
            "\"link.queue\" = { rfc = \"codel target 10ms ecn\" }",
            &marks,
        ),
    ] {
        Short {
            name,
            changes: &changes,
            lines: &[queue],
            expect,
        }
        .run();
    }
}

#[test]
fn the_fq_codel_seeds_share_evenly_live_in_a_shortened_form() {
    for name in ["000-4-cubic-fq_codel-10mbit", "000-5-cubic-fq_codel-1mbit"] {
        Short {
            name,
            changes: &[
                ("\"10s\"", "\"1s\""),
                ("\"20s\"", "\"2s\""),
                ("\"30s\"", "\"3s\""),
                ("\"60s\"", "\"9s\""),
                ("\"70s\"", "\"10s\""),
                ("\"80s\"", "\"11s\""),
                ("\"90s\"", "\"12s\""),
            ],
            lines: &["\"link.queue\" = { dummynet = \"fq_codel noecn variant dummynet\" }"],
            // Slow start is a tenth of each flow here; a spread of 23 % of the mean is an index of
            // 0.95.
            expect: &[("jain.mean", "", "min = 0.95")],
        }
        .run();
    }
}

#[test]
fn the_dummynet_seeds_hold_live_in_a_shortened_form() {
    Short {
        name: "001-0-bare",
        changes: &[
            ("\"24s\"", "\"4s\""),
            ("\"11s\"", "\"2s\""),
            ("\"12s\"", "\"3s\""),
        ],
        lines: &[],
        expect: &[("alone.p50", "", "max = \"1ms\"")],
    }
    .run();
    let times = |from: [&str; 2], to: [&str; 2]| {
        let both = |[start, stop]: [&str; 2]| format!("start = \"{start}\"\nstop = \"{stop}\"");
        (both(from), both(to))
    };
    let fifo = [
        times(["11s", "23s"], ["2s", "7s"]),
        times(["12s", "23s"], ["3s", "7s"]),
        times(["25s", "40s"], ["8s", "14s"]),
        times(["29s", "40s"], ["11.5s", "14s"]),
        times(["52s", "64s"], ["15s", "17s"]),
        times(["52.5s", "63.5s"], ["15.5s", "17s"]),
    ];
    let mut changes = vec![("stop = \"10.05s\"", "stop = \"2s\"")];
    changes.extend(fifo.iter().map(|(from, to)| (from.as_str(), to.as_str())));
    changes.push(("\"66s\"", "\"18s\""));
    Short {
        name: "001-1-fifo",
        changes: &changes,
        lines: &[],
        // 10 ms, and up to 50 packets of 1.2 ms.
        expect: &[
            ("idle.p50", "", "min = \"10ms\"\nmax = \"12ms\""),
            ("behind_tcp.max", "", "min = \"40ms\"\nmax = \"75ms\""),
            ("behind_10m.p50", "", "min = \"50ms\"\nmax = \"75ms\""),
        ],
    }
    .run();
    let wf2q = [
        times(["1s", "12s"], ["1s", "3s"]),
        times(["14s", "27s"], ["3.5s", "6s"]),
        times(["15s", "26s"], ["4s", "6s"]),
        times(["28s", "50s"], ["6.5s", "13.5s"]),
        times(["30s", "41s"], ["7.5s", "13s"]),
    ];
    let mut changes = vec![("stop = \"13s\"", "stop = \"3s\"")];
    changes.extend(wf2q.iter().map(|(from, to)| (from.as_str(), to.as_str())));
    changes.push(("duration = \"51s\"", "duration = \"14s\""));
    Short {
        name: "001-2-wf2q",
        changes: &changes,
        lines: &[],
        // 6.73 and 2.97 Mbit/s are the shares by weight; TCP takes a second of seven to find its
        // own.
        expect: &[
            ("tcp.goodput", "", "min = \"5.4Mbit/s\"\nmax = \"7Mbit/s\""),
            (
                "udp.goodput",
                "",
                "min = \"2.8Mbit/s\"\nmax = \"4.4Mbit/s\"",
            ),
            ("beside_both.max", "", "max = \"22ms\""),
            ("beside_both.loss", "", "max = 0"),
        ],
    }
    .run();
}

#[test]
fn the_changing_link_seeds_hold_live_in_a_shortened_form() {
    // Steps of 3 s: tail drop holds a second of packets or more when the rate is 1 Mbit/s.
    Short {
        name: "002-1-changing-rate",
        changes: &[
            ("\"15s\", \"10Mbit/s\"", "\"3s\", \"10Mbit/s\""),
            ("\"30s\"", "\"6s\""),
            ("\"45s\"", "\"9s\""),
            ("\"60s\"", "\"12s\""),
            ("\"75s\"", "\"15s\""),
            ("duration = \"90s\"", "duration = \"18s\""),
        ],
        lines: &[
            "\"link.up.queue\" = { droptail = \"fifo limit 830\", codel = \"codel limit 830\" }",
        ],
        expect: &[
            ("up.sojourn.max", "droptail", "min = \"1s\""),
            ("up.sojourn.p50", "codel", "max = \"20ms\""),
        ],
    }
    .run();
    Short {
        name: "002-2-other-traffic",
        changes: &[("duration = \"60s\"", "duration = \"8s\"")],
        lines: &["\"link.queue\" = { fq_codel = \"fq_codel target 35ms quantum 300 noecn\" }"],
        expect: &[("talk.mos", "", "min = 3.5")],
    }
    .run();
    Short {
        name: "002-3-two-routers",
        changes: &[("duration = \"30s\"", "duration = \"6s\"")],
        lines: &[
            "\"link.up.queue\" = { codel = \"codel\" }",
            "\"hop.2.up.queue\" = { then_fq_codel = \"fq_codel noecn\" }",
        ],
        // 40 ms without queues; 240 ms behind one FIFO of the scenario.
        expect: &[("ping.p50", "", "max = \"90ms\"")],
    }
    .run();
}

#[test]
fn the_front_drop_and_rrul_seeds_hold_live_in_a_shortened_form() {
    Short {
        name: "003-1-front-drop",
        changes: &[("duration = \"60s\"", "duration = \"8s\"")],
        lines: &[],
        expect: &[
            ("up.drops.overflow", "tail", "min = 1"),
            ("up.drops.overflow", "front", "max = 0"),
            ("up.drops.evicted", "front", "min = 1"),
        ],
    }
    .run();
    Short {
        name: "004-1-request-response",
        changes: &[
            ("duration = \"70s\"", "duration = \"8s\""),
            ("\"5s\"", "\"2s\""),
            ("\"65s\"", "\"7s\""),
        ],
        lines: &["\"link.driver\" = { bql_1500 = \"1500B\" }"],
        // 2.5 ms and 1.2 ms of another packet each way; behind the FIFO hundreds of them.
        expect: &[
            ("rr.max", "pfifo_fast bql_1500", "min = \"100ms\""),
            ("rr.p95", "fq_codel bql_1500", "max = \"8ms\""),
        ],
    }
    .run();
    Short {
        name: "004-2-rrul",
        changes: &[("duration = \"30s\"", "duration = \"7s\"")],
        lines: &["\"link.rate\" = { at_10 = \"10Mbit/s\" }"],
        expect: &[
            ("icmp.p50", "at_10 pfifo", "min = \"100ms\""),
            ("icmp.p50", "at_10 fq_codel", "max = \"40ms\""),
        ],
    }
    .run();
}
