//! Tests that run in several processes.
//!
//! Calls are numbered in a whole process, so one scenario runs in it at a time. Scenarios mostly wait for
//! the kernel, which frees what a call removes only when no processor uses it any more. So the calls of a
//! scenario are dealt out to several processes, which wait at the same time.
//!
//! Programs for XDP are an exception. The kernel waits under the lock of all network settings (RTNL) each
//! time one of them is attached or detached (`bpf_dispatcher_change_prog` in Linux's
//! kernel/bpf/dispatcher.c), so more processes do not make these scenarios faster.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::process::{Command, Output};
use std::thread;

use super::interpose::{failed, take_lines};
use super::{ERRORS, sites};

/// The part of a scenario that this process runs.
#[derive(Clone, Copy)]
pub struct Part {
    pub what: &'static str,
    number: usize,
    of: usize,
}

/// Returns the [`Part`] of the test that this process is to run. Otherwise, runs all parts of it as
/// processes, fails if one of them fails, and returns `None`.
///
/// A process takes a tenth of a second of processor time to start and to find out which lines have led to
/// calls that failed. So only scenarios that wait for long have more than one part.
macro_rules! part {
    ($what:expr, $parts:expr) => {{
        fn here() {}
        $crate::parts::own(std::any::type_name_of_val(&here), $what, $parts)
    }};
}
pub(crate) use part;

/// See [`part!`]. `place` is the path of an item of the test.
pub fn own(place: &str, what: &'static str, parts: usize) -> Option<Part> {
    if let Ok(number) = env::var(NUMBER) {
        let number = number.parse().expect("the parent gives a number");
        return Some(Part {
            what,
            number,
            of: parts,
        });
    }
    let (test, _) = place.rsplit_once("::").expect("an item of a test");
    let (_, test) = test.split_once("::").expect("a test of this program");
    let mut calls = BTreeMap::<String, u32>::new();
    let mut lines = BTreeSet::new();
    let mut missing = Vec::new();
    // A helper that is faster or slower changes the numbers of the calls, so that one may be passed over. Each
    // round lets others fail.
    for round in 0..ROUNDS {
        run_parts(test, parts, round, &mut calls, &mut lines);
        missing = sites::missing(what, &lines);
        if missing.is_empty() {
            break;
        }
    }
    let made = calls.iter().map(|(name, count)| format!("{name} {count}"));
    eprintln!("{what}: {}", made.collect::<Vec<_>>().join(", "));
    assert!(
        !lines.is_empty() || missing.is_empty(),
        "{what}: no line of this crate is known: these tests need its line tables (`debug` of its profile)"
    );
    assert!(
        missing.is_empty(),
        "{what}: no call of these has failed: {missing:?}; {lines:?}"
    );
    None
}

/// Runs all parts, and adds the names of the calls that have failed, and the lines that have led to them.
fn run_parts(
    test: &str,
    parts: usize,
    round: usize,
    calls: &mut BTreeMap<String, u32>,
    lines: &mut BTreeSet<(String, usize)>,
) {
    let outputs: Vec<Output> = thread::scope(|scope| {
        let start = |number| scope.spawn(move || process(test, number, round));
        let running: Vec<_> = (0..parts).map(start).collect();
        let ended = running.into_iter().map(|thread| thread.join().unwrap());
        ended.collect()
    });
    for output in outputs {
        let text = String::from_utf8_lossy(&output.stdout);
        let is_passed = output.status.success() && text.contains("\ntest result: ok. 1 passed");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(is_passed, "{}: {text}{errors}", output.status);
        for line in text.lines() {
            match line.split(' ').collect::<Vec<_>>()[..] {
                [CALL, name, count] => {
                    let count: u32 = count.parse().unwrap();
                    *calls.entry(name.to_owned()).or_default() += count;
                }
                [LINE, file, line] => {
                    lines.insert((file.to_owned(), line.parse().unwrap()));
                }
                _ => {}
            }
        }
    }
}

/// Runs a part.
fn process(test: &str, number: usize, round: usize) -> Output {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads", "1"])
        .env(NUMBER, number.to_string())
        .env(ROUND, round.to_string())
        .output()
        .unwrap()
}

impl Part {
    /// Returns the errors of this part, each with the numbers of the calls that are to fail with it, until
    /// there are no more calls.
    pub fn cases(self) -> impl Iterator<Item = ((&'static str, i32), impl Iterator<Item = u32>)> {
        let stride = match env::var_os("SLUICE_EVERY_ERROR") {
            Some(_) => 1,
            None => 3,
        };
        // First the errors are dealt out, then the calls of each.
        let round: usize = env::var(ROUND).map_or(0, |round| round.parse().unwrap());
        let groups = self.of.min(ERRORS.len());
        let (group, turn) = (self.number % groups, self.number / groups);
        let turns = self.of / groups;
        let errors = ERRORS.into_iter().enumerate().skip(group);
        errors.step_by(groups).map(move |(place, error)| {
            let first = (place + round) % stride + turn * stride;
            (error, (first as u32..).step_by(stride * turns))
        })
    }

    /// Prints what has failed, for the parent.
    pub fn report(self) {
        println!();
        for (name, count) in failed() {
            println!("{CALL} {name} {count}");
        }
        for (file, line) in take_lines() {
            println!("{LINE} {file} {line}");
        }
    }
}

/// The variables with the number of a part and that of the round.
const NUMBER: &str = "SLUICE_PART";
const ROUND: &str = "SLUICE_ROUND";
/// The most rounds.
const ROUNDS: usize = 3;
const CALL: &str = "failed-call";
const LINE: &str = "failed-line";
