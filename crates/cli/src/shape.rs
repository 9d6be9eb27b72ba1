//! `sluice shape`: the uplink of this machine, shaped in both directions by one command.
//!
//! The command is `sluice router --forward IFACE --local IFACE` with rules for one interface. It
//! prints both, so that a user can start from there.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use clap_complete::engine::CompletionCandidate;
use sluice_bench::{self as bench, BenchError, UPLINK, Uplink, UplinkPlan};
use sluice_core::registry::{Form, Spec};
use sluice_core::{Rate, Span, Stop};
use sluice_ipfw::{NoFiles, Prepared};
use sluice_lab::replay::{QueueError, parse_queue};
use sluice_router::process::MOST_WORKERS;

use crate::completion;
use crate::number::whole;
use crate::router;

/// What to shape, and how.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The interface of the uplink
    #[arg(required_unless_present = "test")]
    interface: Option<String>,
    /// Rate of what leaves by the interface: somewhat below that of the line, so that packets wait
    /// here and not in the modem
    #[arg(long, value_name = "RATE", value_parser = Rate::parse, required_unless_present = "down")]
    up: Option<Rate>,
    /// Rate of what arrives by the interface: some 10 % below that of the line
    #[arg(long, value_name = "RATE", value_parser = Rate::parse)]
    down: Option<Rate>,
    /// Queue of both directions, written as in `sluice list`
    #[arg(long, value_name = "QUEUE", default_value = "cake",
          add = clap_complete::engine::ArgValueCandidates::new(completion::queues))]
    queue: String,
    /// What the line adds to each packet: a number of bytes, or a word of tc-cake(8) such as
    /// `pppoe-llcsnap` (or `adsl`), `pppoe-ptm` (or `vdsl`), `docsis`, `ethernet`
    #[arg(long, value_name = "WORD|BYTES", value_parser = overhead, default_value = "raw",
          add = clap_complete::engine::ArgValueCandidates::new(overheads))]
    overhead: Overhead,
    /// The namespace of the interface: a name of `ip netns`, or a file such as /proc/PID/ns/net
    #[arg(long, value_name = "NAME|PATH")]
    netns: Option<OsString>,
    /// Socket for commands [default: sluice.sock in XDG_RUNTIME_DIR or /run]
    #[arg(long, value_name = "PATH", env = "SLUICE_SOCKET")]
    socket: Option<OsString>,
    /// Number of the kernel's queue; each router needs its own
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole(0..=u16::MAX))]
    nfqueue: u16,
    /// Share the work among this many loops, each with a queue of the kernel: flows are spread over
    /// them, and each direction belongs to one of them
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = whole(1..=MOST_WORKERS))]
    workers: usize,
    /// Shape nothing here. Instead, show the effect in temporary namespaces: a ping while four TCP
    /// transfers in each direction fill a line, with the line's own large FIFO, and then shaped. The
    /// line is 5 % faster than `--up`, and 10 % faster than `--down`
    #[arg(long, requires_all = ["up", "down"], conflicts_with = "interface")]
    test: bool,
    /// Length of each measurement of `--test`
    #[arg(long, value_name = "TIME", value_parser = Span::parse, default_value = "8s",
          requires = "test")]
    duration: Span,
    /// Print the rules and the equivalent command, and change nothing
    #[arg(short = 'n', long)]
    dry_run: bool,
    /// Print nothing but errors, and no summary line while running
    #[arg(short, long)]
    quiet: bool,
}

/// What a line adds to each packet, in words of a pipe.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Overhead(String);

/// The words of tc-cake(8), with their bytes per packet and their cells, and the short names of the
/// most frequent lines.
const OVERHEADS: &[(&str, &str)] = &[
    ("raw", ""),
    ("conservative", "overhead 48 atm"),
    ("ipoa-vcmux", "overhead 8 atm"),
    ("ipoa-llcsnap", "overhead 16 atm"),
    ("bridged-vcmux", "overhead 24 atm"),
    ("bridged-llcsnap", "overhead 32 atm"),
    ("pppoa-vcmux", "overhead 10 atm"),
    ("pppoa-llc", "overhead 14 atm"),
    ("pppoe-vcmux", "overhead 32 atm"),
    ("pppoe-llcsnap", "overhead 40 atm"),
    ("adsl", "overhead 40 atm"),
    ("pppoe-ptm", "overhead 30 ptm"),
    ("bridged-ptm", "overhead 22 ptm"),
    ("vdsl", "overhead 30 ptm"),
    ("docsis", "overhead 18 mpu 64"),
    ("ethernet", "overhead 38 mpu 84"),
    ("ether-vlan", "overhead 42 mpu 84"),
];

/// Returns the words of `--overhead`.
fn overheads() -> Vec<CompletionCandidate> {
    let words = OVERHEADS.iter();
    words
        .map(|(name, _)| CompletionCandidate::new(*name))
        .collect()
}

fn overhead(text: &str) -> Result<Overhead, String> {
    if let Some((_, words)) = OVERHEADS.iter().find(|(name, _)| *name == text) {
        return Ok(Overhead((*words).to_owned()));
    }
    match text.parse::<u8>() {
        Ok(bytes) => Ok(Overhead(format!("overhead {bytes}"))),
        Err(_) => {
            let words: Vec<&str> = OVERHEADS.iter().map(|(name, _)| *name).collect();
            Err(format!(
                "`{text}` is no overhead: expected 0 to 255 bytes, or one of {}",
                words.join(", ")
            ))
        }
    }
}

/// The reasons why nothing is shaped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The queue does not exist.
    #[error("--queue: {0}")]
    Queue(QueueError),
    /// The queue is none of a router's pipes.
    #[error("--queue: a pipe cannot have the queue `{queue}`: {reason}")]
    NoPipe {
        /// The queue.
        queue: String,
        /// The reason of the rules' language.
        reason: String,
    },
    /// The test cannot measure.
    #[error(transparent)]
    Test(#[from] BenchError),
    /// The router does not start, or ends with an error.
    #[error(transparent)]
    Router(#[from] router::Error),
    /// Standard output cannot be written.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] std::io::Error),
}

/// Shapes until a signal ends it.
///
/// # Errors
/// [`Error`].
pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let spec = parse_queue(&args.queue).map_err(Error::Queue)?;
    check(args, &spec)?;
    if args.test {
        return test(args, &spec);
    }
    let interface = args.interface.as_deref().expect("clap requires it");
    let rules = rules(args, &spec, interface);
    let words = words(args, interface);
    if !args.quiet || args.dry_run {
        let command: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        let lines: String = rules.lines().map(|line| format!("    {line}\n")).collect();
        let text = format!("sluice {} with these rules:\n{lines}", command.join(" "));
        if args.dry_run {
            crate::print(&text)?;
            return Ok(ExitCode::SUCCESS);
        }
        eprint!("sluice: {text}");
    }
    let line = Line::parse_from(words);
    let code = router::route(&line.router, Some(rules))?;
    if !args.quiet {
        eprintln!("sluice: {interface} is as it was before");
    }
    Ok(code)
}

/// Measures a ping beside transfers through a line, before and after.
fn test(args: &Args, spec: &Spec) -> Result<ExitCode, Error> {
    bench::prepare()?;
    let rate = |rate: Option<Rate>, percent: u64| {
        let bps = rate.expect("clap requires it").as_bps();
        Rate::from_bps(bps / 100 * percent)
    };
    let plan = UplinkPlan {
        rules: rules(args, spec, UPLINK),
        up: rate(args.up, 105),
        down: rate(args.down, 110),
        length: args.duration,
    };
    let interrupt = Stop::new();
    let found = bench::uplink(&plan, &interrupt)?;
    crate::print(&table(&plan, &args.queue, &found))?;
    Ok(ExitCode::SUCCESS)
}

/// Formats the figures of the test.
fn table(plan: &UplinkPlan, queue: &str, found: &Uplink) -> String {
    let mut text = format!(
        "a line of {} up and {} down, with 20 ms of round trip and 500 ms of buffer\n\n\
         {:<24}{:>12}{:>12}{:>12}{:>12}\n{:<24}{:>12}{:>12}{:>12}{:>12}\n",
        plan.up,
        plan.down,
        "",
        "ping median",
        "ping p95",
        "up",
        "down",
        "",
        "ms",
        "ms",
        "Mbit/s",
        "Mbit/s",
    );
    for (name, figures) in [
        ("idle", &found.idle),
        ("loaded, before", &found.before),
        ("loaded, after", &found.after),
    ] {
        let name = match name {
            "loaded, after" => format!("{name}: {queue}"),
            _ => name.to_owned(),
        };
        text.push_str(&format!(
            "{name:<24}{:>12.1}{:>12.1}{:>12.1}{:>12.1}\n",
            figures.ping_p50_ms, figures.ping_p95_ms, figures.up_mbps, figures.down_mbps
        ));
    }
    text
}

/// The words of the equivalent router.
#[derive(Parser)]
struct Line {
    #[command(flatten)]
    router: router::Args,
}

/// Returns the equivalent command line, without its rules.
fn words(args: &Args, interface: &str) -> Vec<OsString> {
    let interface = OsString::from(interface);
    let mut words: Vec<OsString> = vec![
        "router".into(),
        "--forward".into(),
        interface.clone(),
        "--local".into(),
        interface,
        "--accept".into(),
    ];
    if args.nfqueue != 0 {
        words.extend(["--nfqueue".into(), args.nfqueue.to_string().into()]);
    }
    if args.workers != 1 {
        words.extend(["--workers".into(), args.workers.to_string().into()]);
    }
    let options = [("--netns", &args.netns), ("--socket", &args.socket)];
    for (name, value) in options {
        if let Some(value) = value {
            words.extend([name.into(), value.clone()]);
        }
    }
    if args.quiet {
        words.push("--quiet".into());
    }
    words
}

/// Checks the rules before anything is printed or changed.
fn check(args: &Args, spec: &Spec) -> Result<(), Error> {
    let (settings, rules) = (sluice_ipfw::Settings::default(), rules(args, spec, "any0"));
    let mut output = sluice_ipfw::Output::default();
    let refused = Prepared::check(&settings, Vec::new(), &rules, &mut NoFiles, &mut output);
    match refused.first() {
        Some(error) => Err(Error::NoPipe {
            queue: args.queue.clone(),
            reason: error.message(),
        }),
        None => Ok(()),
    }
}

/// Returns the rules, in the language of `sluice ipfw`. `spec` is the queue of `args`.
fn rules(args: &Args, spec: &Spec, interface: &str) -> String {
    let way = |number: u32, rate: Option<Rate>, way: &str| {
        let Some(rate) = rate else {
            return String::new();
        };
        let (framing, queue) = (&args.overhead.0, &args.queue);
        let pipe = format!("pipe {number} config bw {rate} {framing}");
        let (pipe, packets) = (
            pipe.trim_end(),
            format!("ip from any to any {way} {interface}"),
        );
        if spec.algorithm.form == Form::Aqm {
            return format!("{pipe} {queue}\nadd {number}00 pipe {number} {packets}\n");
        }
        let queue = match spec.algorithm.name {
            "cake" => cake(queue, rate, framing),
            _ => queue.clone(),
        };
        format!(
            "{pipe}\n\
             sched {number} config pipe {number} type {queue}\n\
             queue {number} config sched {number}\n\
             add {number}00 queue {number} {packets}\n",
        )
    };
    way(1, args.up, "out xmit") + &way(2, args.down, "in recv")
}

/// Returns the words of a CAKE that knows the rate and the framing of its pipe: its target is never
/// below 1.5 transmission times of a full packet, and its priorities are shares of the rate.
fn cake(queue: &str, rate: Rate, framing: &str) -> String {
    let has = |word: &str| queue.split_whitespace().any(|own| own == word);
    if has("bandwidth") {
        return queue.to_owned();
    }
    let mut words = format!("{queue} bandwidth {rate}");
    if !["overhead", "mpu", "cells"].into_iter().any(has) {
        for word in framing.split_whitespace() {
            let cells = if matches!(word, "atm" | "ptm") {
                "cells "
            } else {
                ""
            };
            words += &format!(" {cells}{word}");
        }
    }
    words
}

const EXAMPLES: &str = "\
Examples:
  sluice shape eth0 --up 9Mbit/s --down 90Mbit/s
  sluice shape --test --up 9Mbit/s --down 90Mbit/s --queue fq_codel";

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Parser)]
    struct Shape {
        #[command(flatten)]
        args: Args,
    }

    fn parse(words: &str) -> Args {
        Shape::parse_from(words.split_whitespace()).args
    }

    fn rules_of(args: &Args) -> String {
        rules(args, &parse_queue(&args.queue).unwrap(), "wan")
    }

    #[test]
    fn cake_keeps_what_the_user_says() {
        let args = parse("shape wan --up 1Mbit/s --overhead docsis");
        let with = |queue: &str| {
            let rate = Rate::from_bps(1_000_000);
            cake(queue, rate, &args.overhead.0)
        };
        assert_eq!(
            with("cake tins besteffort"),
            "cake tins besteffort bandwidth 1Mbit/s overhead 18 mpu 64"
        );
        assert_eq!(with("cake overhead 8"), "cake overhead 8 bandwidth 1Mbit/s");
        assert_eq!(with("cake bandwidth 900kbit/s"), "cake bandwidth 900kbit/s");
    }

    #[test]
    fn an_aqm_is_that_of_the_pipe() {
        let mut args = parse("shape wan --up 1Mbit/s");
        args.queue = "codel target 20ms".into();
        assert_eq!(
            rules_of(&args),
            "pipe 1 config bw 1Mbit/s codel target 20ms\n\
             add 100 pipe 1 ip from any to any out xmit wan\n"
        );
    }

    #[test]
    fn both_directions_get_their_own_pipe() {
        let args = parse("shape wan --up 18Mbit/s --down 90Mbit/s --overhead adsl");
        assert_eq!(
            rules_of(&args),
            "pipe 1 config bw 18Mbit/s overhead 40 atm\n\
             sched 1 config pipe 1 type cake bandwidth 18Mbit/s overhead 40 cells atm\n\
             queue 1 config sched 1\n\
             add 100 queue 1 ip from any to any out xmit wan\n\
             pipe 2 config bw 90Mbit/s overhead 40 atm\n\
             sched 2 config pipe 2 type cake bandwidth 90Mbit/s overhead 40 cells atm\n\
             queue 2 config sched 2\n\
             add 200 queue 2 ip from any to any in recv wan\n"
        );
    }

    #[test]
    fn rules_are_valid_whatever_the_queue_and_the_overhead() {
        let mut args = parse("shape wan --up 18Mbit/s --down 90Mbit/s");
        for algorithm in sluice_core::registry::algorithms() {
            args.queue = algorithm.name.into();
            for (word, _) in OVERHEADS {
                args.overhead = overhead(word).unwrap();
                let checked = check(&args, &parse_queue(&args.queue).unwrap());
                match algorithm.name {
                    // In dummynet, these have parameters without defaults.
                    "red" | "gred" => assert!(checked.is_err()),
                    name => assert!(checked.is_ok(), "{name} {word}: {checked:?}"),
                }
            }
        }
    }

    #[test]
    fn a_queue_that_no_pipe_can_have_is_refused_at_once() {
        let mut args = parse("shape wan --up 18Mbit/s");
        args.queue = "fifo limit 1000".into();
        let error = check(&args, &parse_queue(&args.queue).unwrap()).unwrap_err();
        let error = error.to_string();
        assert!(
            error.starts_with("--queue: a pipe cannot have the queue `fifo limit 1000`: "),
            "{error}"
        );
    }

    #[test]
    fn an_unknown_overhead_is_answered_with_the_words() {
        assert_eq!(overhead("27"), Ok(Overhead("overhead 27".into())));
        let error = overhead("isdn").unwrap_err();
        assert!(
            error.contains("`isdn`") && error.contains("docsis"),
            "{error}"
        );
    }

    #[test]
    fn the_equivalent_router_can_be_parsed() {
        let args = parse("shape wan --up 1Mbit/s --nfqueue 3 --workers 2 --netns box --quiet");
        let words = words(&args, "wan");
        let line = Line::parse_from(&words);
        assert!(line.router.queues_the_host());
        let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
        let expected =
            "router --forward wan --local wan --accept --nfqueue 3 --workers 2 --netns box --quiet";
        assert_eq!(words.join(" "), expected);
    }
}
