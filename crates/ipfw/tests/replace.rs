//! A configuration replaces another, as a reload does.

mod common;

use common::{Bench, MS, udp};
use sluice_core::{Cx, Time};
use sluice_ipfw::{CommandError, Mode, Output};

fn replace(bench: &mut Bench, text: &str) -> (Output, Result<(), CommandError>) {
    let mut output = Output::default();
    let mut cx = Cx::new(Time::from_ns(bench.now), &mut bench.rng, &mut bench.dropped);
    let result =
        bench
            .firewall
            .execute(text, Mode::Replace, &mut bench.files, &mut output, &mut cx);
    (output, result)
}

const TWO_PIPES: &str = "sysctl net.inet.ip.fw.one_pass=0
pipe 1 config bw 10Mbit/s delay 20
pipe 2 config delay 5
add 100 pipe 1 ip from any to any
add 200 pipe 2 ip from any to any
add 300 allow ip from any to any
";

#[test]
fn packets_inside_continue_behind_the_rule_that_sent_them() {
    let mut bench = Bench::new();
    replace(&mut bench, TWO_PIPES).1.unwrap();
    bench.send(1250, &udp(1));
    bench.now = 10 * MS;
    replace(&mut bench, TWO_PIPES).1.unwrap();
    bench.drain();
    // 1 ms on the link of pipe 1, 20 ms of its delay, then 5 ms of pipe 2, each only once.
    assert_eq!(bench.out, [(26 * MS, 0, 1250)]);
    let shown = bench.ok("show");
    let rows: Vec<Vec<&str>> = shown
        .lines()
        .map(|l| l.split_whitespace().take(2).collect())
        .collect();
    assert_eq!(
        rows,
        [
            ["00100", "1"],
            ["00200", "1"],
            ["00300", "1"],
            ["65535", "0"]
        ]
    );
}

#[test]
fn objects_missing_from_the_new_text_are_deleted() {
    let mut bench = Bench::new();
    bench.script(
        "table 7 create type addr\ntable 7 add 10.0.0.0/8\nset disable 3\nadd 50 set 3 deny ip from any to any
add 60 set 31 count ip from any to any\nsysctl net.inet.ip.fw.one_pass=0\npipe 9 config delay 1",
    );
    replace(&mut bench, "pipe 1 config delay 3\n").1.unwrap();
    assert_eq!(
        bench.ok("-S list"),
        "65535 set 31 deny ip from any to any\n"
    );
    assert_eq!(bench.ok("sysctl -n net.inet.ip.fw.one_pass"), "1\n");
    assert_eq!(
        bench.ok("pipe show").lines().next(),
        Some("00001: unlimited         3 ms burst 0 ")
    );
    assert!(bench.refusal("table 7 list").0.contains("7"));
    assert!(!bench.ok("set show").contains("disable"));
}

#[test]
fn a_refused_text_changes_nothing_and_names_file_and_place() {
    let mut bench = Bench::new();
    replace(&mut bench, TWO_PIPES).1.unwrap();
    let before = (bench.ok("list"), bench.ok("pipe show"));
    bench.files.0.push((
        "/etc/more.rules",
        "pipe 3 config\npipe 4 config bw 1Mbit/s dealy 3".into(),
    ));
    let (output, result) = replace(
        &mut bench,
        "pipe 7 config burst 10k buckets 8\n/etc/more.rules\n",
    );
    let error = result.unwrap_err();
    assert_eq!(error.file.as_deref(), Some("/etc/more.rules"));
    assert_eq!(error.at.unwrap().to_string(), "2:26");
    assert_eq!(
        error.message(),
        "unrecognised option ``dealy'' (did you mean ``delay''?)"
    );
    assert!(output.warnings.iter().all(|w| w.file.is_none()));
    assert_eq!((bench.ok("list"), bench.ok("pipe show")), before);
}

#[test]
fn rules_that_stay_keep_their_states_and_counters_and_others_lose_them() {
    let mut bench = Bench::new();
    let text = "add 10 check-state\nadd 20 allow udp from 10.0.1.1 to any keep-state\nadd 20 allow udp from 10.0.1.2 to any keep-state\n";
    replace(&mut bench, text).1.unwrap();
    bench.send(100, &udp(1));
    bench.send(100, &udp(2));
    let changed = "add 10 check-state\nadd 20 allow udp from 10.0.1.1 to any keep-state\nadd 20 deny udp from 10.0.1.2 to any\n";
    replace(&mut bench, changed).1.unwrap();
    let shown = bench.ok("-d show");
    assert!(shown.contains("10.0.1.1 1000"), "{shown}");
    assert!(!shown.contains("10.0.1.2 1000"), "{shown}");
    bench.send(100, &udp(2));
    assert_eq!(bench.dropped.0.len(), 1, "the new rule denies it");
}

#[test]
fn output_before_a_refusal_is_kept() {
    let mut bench = Bench::new();
    let mut output = Output::default();
    let mut cx = Cx::new(Time::ZERO, &mut bench.rng, &mut bench.dropped);
    let text = "add 5 count ip from any to any\nadd pipe 9 ip from any to any\nbad\n";
    let result = bench
        .firewall
        .execute(text, Mode::Batch, &mut bench.files, &mut output, &mut cx);
    assert_eq!(
        result.unwrap_err().to_string(),
        "Line 3: column 1: bad command `bad'"
    );
    assert_eq!(
        output.stdout,
        "00005 count ip from any to any\n00105 pipe 9 ip from any to any\n"
    );
    assert_eq!(output.warnings.len(), 1);
}
