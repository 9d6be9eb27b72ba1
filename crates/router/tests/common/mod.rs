//! The body of the fuzz target `control`, so that a normal test can replay its corpus.

use sluice_core::{Cx, DropCounter, Rng, Time};
use sluice_ipfw::{Firewall, Output, Settings};
use sluice_router::control::{Asked, Given, Reply, Work, read_request};

/// Executes requests, one per line: every line is answered, and each answer is one line that a
/// client can read.
pub fn requests(bytes: &[u8]) {
    let mut firewall = Firewall::new(&Settings::default());
    let (mut rng, mut sink) = (Rng::from_seed(1), DropCounter::default());
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let reply: Reply<_, u32> = match read_request(line) {
            Ok(Asked::Work(Work::Status)) => Reply {
                status: Some(7),
                ..Reply::refusal(String::new(), 0)
            },
            Ok(Asked::Commands { text, mode, files }) => {
                let mut output = Output::default();
                let mut cx = Cx::new(Time::ZERO, &mut rng, &mut sink);
                let result =
                    firewall.execute(&text, mode, &mut Given(&files), &mut output, &mut cx);
                Reply {
                    stdout: output.stdout,
                    warnings: output.warnings.iter().map(Into::into).collect(),
                    error: result.err().as_ref().map(Into::into),
                    state: output.snapshot,
                    status: None,
                    sample: None,
                }
            }
            Ok(Asked::Work(Work::Draft)) => Reply {
                stdout: firewall.configuration().commands(),
                ..Reply::empty()
            },
            Ok(Asked::Sample { .. }) => Reply::refusal(String::new(), 0),
            Ok(Asked::Work(
                Work::Commands { .. }
                | Work::Replace(_)
                | Work::Watch(_)
                | Work::Exchange(_)
                | Work::Report,
            )) => {
                unreachable!("requests carry text")
            }
            Err(why) => Reply::refusal(why, 76),
        };
        let written = serde_json::to_string(&reply).expect("a reply can be written");
        assert!(!written.contains('\n'), "a reply is one line: {written}");
        let read: Reply = serde_json::from_str(&written).expect("a reply can be read");
        assert_eq!((read.stdout, read.error), (reply.stdout, reply.error));
    }
}
