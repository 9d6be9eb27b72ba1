//! The seeds with durations of seconds instead of minutes, and accordingly wider bounds. The
//! scenarios themselves have the bounds for the full duration.

use std::path::PathBuf;
use std::{fs, thread};

use super::{expect, run_once, run_until_undisturbed, scenario};

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
    /// Returns the text of the scenario.
    fn text(&self) -> String {
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
        text
    }
}

/// Runs the scenarios side by side, because links of some Mbit/s need little of the processor. A scenario
/// that does not meet its expectations beside the others is run again by itself, when its expectations
/// hold as for any other.
fn run(all: &[Short<'_>]) {
    let temp = tempfile::tempdir().expect("a folder");
    let place = |one: &Short<'_>| (temp.path().join(one.name), one.text());
    let places: Vec<_> = all.iter().map(place).collect();
    let first = |(out, text): &(PathBuf, String)| {
        let file = out.with_extension("toml");
        fs::write(&file, text).expect("writable");
        run_once(&file, out)
    };
    let attempts: Vec<_> = thread::scope(|scope| {
        let start = |place| scope.spawn(move || first(place));
        let running: Vec<_> = places.iter().map(start).collect();
        let ended = running.into_iter().map(|thread| thread.join());
        ended.map(|run| run.expect("no panic")).collect()
    });
    for ((one, attempt), (out, _)) in all.iter().zip(attempts).zip(&places) {
        let name = one.name;
        let figures = attempt.unwrap_or_else(|failed| {
            eprintln!("{name}, beside others: {}", failed.said);
            run_until_undisturbed(&out.with_extension("toml"), out)
        });
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
    let lines = [
        "\"link.queue\" = { dummynet = \"codel noecn variant dummynet\" }",
        "\"link.queue\" = { linux = \"codel noecn variant linux\" }",
        "\"link.queue\" = { rfc = \"codel target 10ms ecn\" }",
    ];
    let of = |name, queue, expect| Short {
        name,
        changes: &changes,
        lines: std::slice::from_ref(queue),
        expect,
    };
    run(&[
        of("000-1-newreno-codel-20ms", &lines[0], &drops[..]),
        of("000-2-newreno-codel-40ms", &lines[1], &drops),
        of("000-3-cubic-codel-ecn", &lines[2], &marks),
    ]);
}

#[test]
fn the_fq_codel_seeds_share_evenly_live_in_a_shortened_form() {
    let of = |name| {
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
    };
    run(&[
        of("000-4-cubic-fq_codel-10mbit"),
        of("000-5-cubic-fq_codel-1mbit"),
    ]);
}

#[test]
fn the_dummynet_seeds_hold_live_in_a_shortened_form() {
    let first = Short {
        name: "001-0-bare",
        changes: &[
            ("\"24s\"", "\"4s\""),
            ("\"11s\"", "\"2s\""),
            ("\"12s\"", "\"3s\""),
        ],
        lines: &[],
        expect: &[("alone.p50", "", "max = \"1ms\"")],
    };
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
    let second = Short {
        name: "001-1-fifo",
        changes: &changes,
        lines: &[],
        // 10 ms, and up to 50 packets of 1.2 ms.
        expect: &[
            ("idle.p50", "", "min = \"10ms\"\nmax = \"12ms\""),
            ("behind_tcp.max", "", "min = \"40ms\"\nmax = \"75ms\""),
            ("behind_10m.p50", "", "min = \"50ms\"\nmax = \"75ms\""),
        ],
    };
    let wf2q = [
        times(["1s", "12s"], ["1s", "3s"]),
        times(["14s", "27s"], ["3.5s", "6s"]),
        times(["15s", "26s"], ["4s", "6s"]),
        times(["28s", "50s"], ["6.5s", "13.5s"]),
        times(["30s", "41s"], ["7.5s", "13s"]),
    ];
    let mut wf2q_changes = vec![("stop = \"13s\"", "stop = \"3s\"")];
    wf2q_changes.extend(wf2q.iter().map(|(from, to)| (from.as_str(), to.as_str())));
    wf2q_changes.push(("duration = \"51s\"", "duration = \"14s\""));
    let third = Short {
        name: "001-2-wf2q",
        changes: &wf2q_changes,
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
    };
    run(&[first, second, third]);
}

#[test]
fn the_changing_link_seeds_hold_live_in_a_shortened_form() {
    // Steps of 3 s: tail drop holds a second of packets or more when the rate is 1 Mbit/s.
    let first = Short {
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
    };
    let second = Short {
        name: "002-2-other-traffic",
        changes: &[("duration = \"60s\"", "duration = \"8s\"")],
        lines: &["\"link.queue\" = { fq_codel = \"fq_codel target 35ms quantum 300 noecn\" }"],
        expect: &[("talk.mos", "", "min = 3.5")],
    };
    let third = Short {
        name: "002-3-two-routers",
        changes: &[("duration = \"30s\"", "duration = \"6s\"")],
        lines: &[
            "\"link.up.queue\" = { codel = \"codel\" }",
            "\"hop.2.up.queue\" = { then_fq_codel = \"fq_codel noecn\" }",
        ],
        // 40 ms without queues; 240 ms behind one FIFO of the scenario.
        expect: &[("ping.p50", "", "max = \"90ms\"")],
    };
    run(&[first, second, third]);
}

#[test]
fn the_front_drop_and_rrul_seeds_hold_live_in_a_shortened_form() {
    let first = Short {
        name: "003-1-front-drop",
        changes: &[("duration = \"60s\"", "duration = \"8s\"")],
        lines: &[],
        expect: &[
            ("up.drops.overflow", "tail", "min = 1"),
            ("up.drops.overflow", "front", "max = 0"),
            ("up.drops.evicted", "front", "min = 1"),
        ],
    };
    let second = Short {
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
    };
    let third = Short {
        name: "004-2-rrul",
        changes: &[("duration = \"30s\"", "duration = \"7s\"")],
        lines: &["\"link.rate\" = { at_10 = \"10Mbit/s\" }"],
        expect: &[
            ("icmp.p50", "at_10 pfifo", "min = \"100ms\""),
            ("icmp.p50", "at_10 fq_codel", "max = \"40ms\""),
        ],
    };
    run(&[first, second, third]);
}
