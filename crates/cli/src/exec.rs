//! `sluice exec`: runs a program behind an emulated link.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap_complete::engine::ArgValueCandidates;
use sluice_core::{Rate, Span};
use sluice_exec::link::{LinkError, LinkWords};
use sluice_exec::{ExecError, FAILED, Settings};

use crate::completion;

/// Which program, behind which link.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A link by its name, or a scenario whose `[link]` is used
    #[arg(long, value_name = "NAME|FILE", help_heading = LINK,
          add = ArgValueCandidates::new(completion::links))]
    link: Option<String>,
    /// Rate of both directions [default: unlimited]
    #[arg(long, value_name = "RATE", value_parser = Rate::parse, help_heading = LINK)]
    rate: Option<Rate>,
    /// Rate of the direction from the program
    #[arg(long, value_name = "RATE", value_parser = Rate::parse, help_heading = LINK)]
    up: Option<Rate>,
    /// Round-trip time of the link: half of it is the delay of each direction
    #[arg(long, value_name = "TIME", value_parser = Span::parse, conflicts_with = "delay",
          help_heading = LINK)]
    rtt: Option<Span>,
    /// Delay of each direction
    #[arg(long, value_name = "TIME", value_parser = Span::parse, help_heading = LINK)]
    delay: Option<Span>,
    /// Packets lost at random in each direction, e.g. 0.5%
    #[arg(long, value_name = "SHARE", help_heading = LINK)]
    loss: Option<String>,
    /// The queue of both directions, in the words of `sluice list`
    #[arg(long, value_name = "QUEUE", help_heading = LINK,
          add = ArgValueCandidates::new(completion::queues))]
    queue: Option<String>,
    /// Mahimahi trace of the direction to the program
    #[arg(long, value_name = "FILE", conflicts_with = "rate", help_heading = LINK)]
    trace: Option<PathBuf>,
    /// Mahimahi trace of the direction from the program
    #[arg(long, value_name = "FILE", conflicts_with = "up", help_heading = LINK)]
    up_trace: Option<PathBuf>,
    /// Set a key of `[link]`, of both directions or of one, e.g. --set down.queue=fq_codel
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_and_value,
          help_heading = LINK)]
    sets: Vec<(String, String)>,
    /// Congestion control of both ends of the link [default: the machine's]
    #[arg(long, value_name = "NAME", help_heading = LINK)]
    cc: Option<String>,
    /// Make host.sluice, the machine's own loopback, unreachable
    #[arg(long)]
    no_host: bool,
    /// Let the machine's localhost:PORT reach the program's own server, across the link
    #[arg(long, value_name = "PORT")]
    forward: Vec<u16>,
    /// Shell command that runs on the far side, as server.sluice; the program starts when it
    /// listens
    #[arg(long, value_name = "COMMAND")]
    server: Option<OsString>,
    /// Print how exact the emulation was; exit with 75 (the result is not valid) if more than one
    /// packet in a thousand left later than this, or the machine lost packets
    #[arg(long, value_name = "TIME", value_parser = Span::parse)]
    max_late: Option<Span>,
    /// The program and its arguments
    #[arg(required = true, last = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Why the program did not run.
#[derive(Debug, thiserror::Error)]
enum Error {
    /// The link.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// Everything else.
    #[error(transparent)]
    Exec(#[from] ExecError),
}

/// Runs the program until it ends. Returns its exit status.
pub fn run(args: &Args) -> ExitCode {
    match try_run(args) {
        Ok(status) => status.into(),
        Err(error) => {
            eprintln!("sluice: {error}");
            match error {
                Error::Link(_) => FAILED.into(),
                Error::Exec(error) => error.status().into(),
            }
        }
    }
}

fn try_run(args: &Args) -> Result<u8, Error> {
    let words = LinkWords {
        link: args.link.clone(),
        sets: sets(args),
        traces: [args.trace.clone(), args.up_trace.clone()],
    };
    let settings = Settings {
        link: words.resolve()?,
        congestion_control: args.cc.clone(),
        has_host: !args.no_host,
        forwards: args.forward.clone(),
        server: args.server.clone(),
        program: args.program.clone(),
        max_late: args.max_late,
    };
    let outcome = sluice_exec::run(&settings)?;
    let verdict = &outcome.verdict;
    if settings.max_late.is_some() {
        eprintln!("sluice: {verdict}");
    }
    if !verdict.holds() {
        eprintln!(
            "sluice: the machine was too busy: the result, exit status {}, does not count",
            outcome.status
        );
        return Ok(TOO_LATE);
    }
    Ok(outcome.status)
}

/// Returns the keys that options set; later ones take precedence.
fn sets(args: &Args) -> Vec<(String, String)> {
    let key = |key: &str, value: Option<String>| Some((key.to_owned(), value?));
    let words = [
        key("rate", args.rate.map(|rate| rate.to_string())),
        key("up.rate", args.up.map(|rate| rate.to_string())),
        key("delay", args.delay.map(|delay| delay.to_string())),
        key("rtt", args.rtt.map(|rtt| format!("{}ns", rtt.as_ns()))),
        key("loss", args.loss.clone()),
        key("queue", args.queue.clone()),
    ];
    let words = words.into_iter().flatten();
    words.chain(args.sets.iter().cloned()).collect()
}

fn key_and_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() => {
            Ok((key.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err("write it as KEY=VALUE, such as down.queue=fq_codel".to_owned()),
    }
}

/// The exit status if packets were late: EX_TEMPFAIL of sysexits.h, try again.
const TOO_LATE: u8 = 75;

/// The heading of the options that describe the link.
const LINK: &str = "The link";

const EXAMPLES: &str = "\
Examples:
  sluice exec --rate 10Mbit/s --up 1Mbit/s --rtt 60ms -- pytest tests/
  sluice exec --rate 5Mbit/s --loss 0.5% --queue fq_codel -- curl -O https://example.org/
  sluice exec --link office.toml --set down.queue=fq_codel --cc bbr -- ./app
  sluice exec --trace down.trace --up-trace up.trace -- ./app
  sluice exec --rtt 80ms --server './server --port 80' -- ./client http://server.sluice/

Exit status: that of the program, or 128 and the number of the signal that ended it;
127 if there is no such program, 126 if it cannot be executed, 125 if Sluice fails, and
75 if packets were later than --max-late.";
