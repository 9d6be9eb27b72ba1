//! The body of the fuzz target `commands`, so that a normal test can replay its corpus.

use sluice_ipfw::grammar;

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
        // In any case, packets inside leave, or are in flight for at most an hour.
        bench.ok("-q pipe flush");
    }
}
