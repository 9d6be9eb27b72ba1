//! The body of the fuzz target `commands`, so that a normal test can replay its corpus.

use std::collections::BTreeMap;

use sluice_core::{Cx, Time};
use sluice_ipfw::{Files, Mode, Output, grammar};

use super::{Bench, MS, Texts, udp};

/// Parses lines in both modes, writes, reparses and executes them with packets in between. Nothing
/// panics, and written commands read as the same command.
pub fn commands(text: &str) {
    for line in text.lines() {
        for is_compat in [false, true] {
            let Ok(line) = grammar::parse(line, 1, is_compat) else {
                continue;
            };
            let Some(first) = line.invocation.filter(|_| !is_compat) else {
                continue;
            };
            let written = first.to_string();
            match grammar::parse(&written, 1, false) {
                Ok(again) => assert_eq!(again.invocation.as_ref(), Some(&first), "`{written}`"),
                Err(error) => panic!("`{written}` is refused: {error}"),
            }
        }
    }
    for mut bench in [Bench::new(), Bench::compat()] {
        bench.files = Texts(vec![
            (
                "/p",
                "samples 10\nloss-level 0.9\nprob delay\n0 1\n1 20\n".into(),
            ),
            ("/r", "pipe 1 config delay 3\n/r\n".into()),
        ]);
        bench.script("pipe 1 config bw 1Mbit/s\nadd 60000 pipe 1 ip from any to any");
        for line in text.lines() {
            // A refusal is a valid outcome.
            let _ = bench.run(line);
            for host in 1..4 {
                bench.send(1000, &udp(host));
            }
            bench.run_until(bench.now + 20 * MS);
        }
        for question in ["--json pipe show", "--json show", "sched show", "-d show"] {
            bench.ok(question);
        }
        written_configuration_reads_as_the_same(&mut bench);
        // In any case, packets inside leave, or are in flight for at most an hour.
        bench.ok("-q pipe flush");
    }
}

/// The configuration of an engine, written as commands, gives another engine the same one: a new one
/// with the default settings, and one that starts with compat if this one did or has set it.
pub fn written_configuration_reads_as_the_same(bench: &mut Bench) {
    let is_compat_set = bench.firewall.configuration().commands().contains(COMPAT);
    reads_as_the_same(bench, Bench::new());
    if is_compat_set {
        reads_as_the_same(bench, Bench::compat());
    }
}

/// The variable that an engine sets when it starts with compat.
const COMPAT: &str = "sysctl net.inet.ip.dummynet.compat=";

/// The configuration of an engine, written as commands, gives a new one the same configuration.
fn reads_as_the_same(bench: &mut Bench, mut other: Bench) {
    let before = bench.firewall.configuration();
    let (text, files) = (before.commands(), before.files());
    other.files = Texts(Vec::new());
    let mut given = Read(&files);
    let mut cx = Cx::new(Time::ZERO, &mut other.rng, &mut other.dropped);
    let mut output = Output::default();
    let read = other
        .firewall
        .execute(&text, Mode::Replace, &mut given, &mut output, &mut cx);
    if let Err(error) = read {
        panic!("{error} in\n{text}");
    }
    let after = other.firewall.configuration();
    assert_eq!(after.commands(), text);
    assert_eq!(after.files(), files);
    assert_eq!(settings(bench), settings(&mut other), "{text}");
}

/// Returns what an engine shows of its configuration.
fn settings(bench: &mut Bench) -> Vec<String> {
    let questions = [
        "-S list",
        "table all list",
        "set show",
        "sysctl -n net.inet.ip.fw.one_pass",
    ];
    let mut answers: Vec<String> = questions.map(|question| bench.ok(question)).to_vec();
    for object in ["pipe", "sched", "queue"] {
        // Without the flows and their number, which belong to the packets.
        let shown = bench.ok(&format!("{object} show"));
        let lines = shown.lines().filter(|line| !is_flow(line));
        answers.extend(lines.map(without_counts));
    }
    answers
}

/// Returns whether a line of `show` is a flow or its header.
fn is_flow(line: &str) -> bool {
    line.starts_with("BKT")
        || line.starts_with(|c: char| c == ' ' || c.is_ascii_digit()) && {
            let words: Vec<&str> = line.split_whitespace().collect();
            words.iter().filter(|word| word.contains('/')).count() >= 2 && !line.contains("mask")
        }
}

/// Returns a line of `show` without numbers of active queues.
fn without_counts(line: &str) -> String {
    let mut words: Vec<&str> = line.split_whitespace().collect();
    for word in ["flows", "active"] {
        if let Some(at) = words.iter().position(|w| *w == word) {
            words[at - 1] = "-";
        }
    }
    words.join(" ")
}

struct Read<'a>(&'a BTreeMap<String, String>);

impl Files for Read<'_> {
    fn read(&mut self, path: &str) -> Result<String, String> {
        self.0
            .get(path)
            .cloned()
            .ok_or_else(|| "it is not there".to_owned())
    }
}
