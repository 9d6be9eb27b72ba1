//! The `sluice` command, as a function: the program `sluice` and the Python package call it.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

// Before all others, because of its macro.
#[macro_use]
mod terminal;

mod attach;
mod bench;
mod board;
mod check;
mod compare;
mod completion;
mod doctor;
#[cfg(test)]
#[path = "../tests/documented/mod.rs"]
mod documented;
mod exec;
mod export;
mod failures;
mod index;
mod ipfw;
mod link_args;
mod list;
mod manual;
mod new;
mod number;
mod page;
mod pictures;
#[cfg(test)]
mod printed;
mod progress;
mod proxy;
mod python;
mod replay;
mod report;
mod router;
mod run;
mod shape;
mod signals;
mod spin;
mod sweep;
mod top;
mod watch;

pub use python::Redirect;

/// Packet queueing in user space: algorithms, simulator, live router, experiments.
#[derive(Debug, Parser)]
#[command(name = "sluice", version, max_term_width = 80)]
struct Sluice {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a program behind an emulated link, without root
    Exec(exec::Args),
    /// Put a link in front of an existing network namespace or a running container
    Attach(attach::Args),
    /// Put a link behind a proxy, where namespaces are forbidden
    Proxy(proxy::Args),
    /// Run scenarios: build the network, send the traffic, measure, draw the results
    Run(run::Args),
    /// Run a scenario over a grid of settings and seeds, on this machine or a Dask cluster
    ///
    /// This needs the Python package (docs/how-to/install.md). SLUICE_PYTHON names the interpreter
    /// that has it [default: python3].
    Sweep(sweep::Args),
    /// Write a working scenario or AQM to start from
    New(new::Args),
    /// Check that an algorithm obeys the rules for queues, measure its cost, and draw its queue
    Check(check::Args),
    /// Draw recorded runs again, or several runs together
    Report(report::Args),
    /// Write recorded runs in the formats of other tools: flent, pcapng, CSV
    Export(export::Args),
    /// Report which figures differ between two sets of runs by more than chance
    Compare(compare::Args),
    /// Write a page over all runs of a folder that shows which queue suits which conditions
    Index(index::Args),
    /// List algorithms and named links with their parameters, units, ranges and defaults
    List(list::Args),
    /// Replay a recorded arrival trace, or the arrivals of a live run, through a queue
    Replay(replay::Args),
    /// Bridge interfaces, or queue what the kernel forwards, with dummynet's rules and pipes
    Router(router::Args),
    /// Shape the uplink of this machine in both directions, until Ctrl-C
    Shape(shape::Args),
    /// Show what a running router does, live: pipes, queues and flows
    Top(top::Args),
    /// Print a Grafana dashboard for the metrics of routers
    ///
    /// Import it with Dashboards > New > Import. It asks for the Prometheus data source that collects
    /// /metrics of `sluice router --http`.
    Grafana,
    /// Send a command in dummynet's language to a router
    Ipfw(ipfw::Args),
    /// Report what this machine allows, and how to allow the rest
    Doctor(doctor::Args),
    /// Measure Sluice's packet path and the kernel's, in temporary namespaces
    Bench(bench::Args),
    /// Print a shell's completion script
    Completion(completion::Args),
    /// Write the manual pages of this command to a folder
    Manual(manual::Args),
}

/// Executes the command line `words`, the first of which is the name of the program. Loaders of
/// queues from files must be registered before.
///
/// Wrong words, `--help`, `--version` and a shell that requests candidates end the process.
pub fn command(words: &[OsString]) -> ExitCode {
    completion::answer(grammar, words);
    let name = words.first().map(Path::new).and_then(ipfw::name_of);
    if let Some(name) = name {
        return ipfw::run(name, words[1..].to_vec())
            .unwrap_or_else(|error| failed(name, &error, error.exit_status()));
    }
    // This comes before the words are parsed, because a queue may be among them.
    let named = words.get(1).and_then(|word| word.to_str());
    if named.is_some_and(|name| WITH_QUEUES.contains(&name)) {
        python::may_replace(words[1..].to_vec());
    }
    let parsed = grammar()
        .try_get_matches_from(words)
        .and_then(|matches| Sluice::from_arg_matches(&matches));
    let outcome = match parsed.unwrap_or_else(|error| end(&error)).command {
        Command::Exec(args) => Ok(exec::run(&args)),
        Command::Attach(args) => Ok(attach::run(&args)),
        Command::Proxy(args) => Ok(proxy::run(&args)),
        Command::Run(args) => run::run(&args).map_err(Box::<dyn std::error::Error>::from),
        Command::Sweep(args) => sweep::run(&args).map_err(Into::into),
        Command::New(args) => new::run(args).map_err(Into::into),
        Command::Check(args) => check::run(&args).map_err(Into::into),
        Command::Report(args) => report::run(&args).map_err(Into::into),
        Command::Export(args) => export::run(&args).map_err(Into::into),
        Command::Compare(args) => compare::run(&args).map_err(Into::into),
        Command::Index(args) => index::run(&args).map_err(Into::into),
        Command::List(args) => list::run(&args).map_err(Into::into),
        Command::Replay(args) => replay::run(args).map_err(Into::into),
        Command::Router(args) => Ok(ended(router::run(&args), router::Error::exit_status)),
        Command::Shape(args) => shape::run(&args).map_err(Into::into),
        Command::Top(args) => Ok(ended(top::run(&args), top::Error::exit_status)),
        Command::Grafana => print(&sluice_http::dashboard())
            .map(|()| ExitCode::SUCCESS)
            .map_err(Into::into),
        Command::Ipfw(args) => Ok(ended(ipfw::run_args(args), ipfw::Error::exit_status)),
        Command::Doctor(args) => doctor::run(&args).map_err(Into::into),
        Command::Bench(args) => bench::run(&args).map_err(Into::into),
        Command::Completion(args) => completion::run(&args).map_err(Into::into),
        Command::Manual(args) => manual::run(grammar(), &args).map_err(Into::into),
    };
    outcome.unwrap_or_else(|error| failed("sluice", &error, 1))
}

/// Returns the exit status of a command whose errors have statuses of their own.
fn ended<E: Display>(outcome: Result<ExitCode, E>, status: fn(&E) -> u8) -> ExitCode {
    outcome.unwrap_or_else(|error| failed("sluice", &error, status(&error)))
}

/// Prints the error with which a command ends, and returns its exit status.
fn failed(program: &str, error: &dyn Display, status: u8) -> ExitCode {
    eprintln!("{program}: {error}");
    ExitCode::from(status)
}

/// Prints help, or what is wrong with the command line, and ends the process. An error that quotes control
/// characters is printed without colours.
fn end(error: &clap::Error) -> ! {
    let text = terminal::without_colours(&error.render().ansi().to_string());
    if error.use_stderr() && matches!(terminal::clean(&text), Cow::Owned(_)) {
        eprint!("{text}");
        std::process::exit(error.exit_code());
    }
    error.exit()
}

/// Returns the command with all subcommands.
fn grammar() -> clap::Command {
    number::with_signs(Sluice::command())
}

/// The commands that build queues. Others read recordings, which need none.
const WITH_QUEUES: &[&str] = &[
    "attach", "check", "exec", "list", "proxy", "replay", "router", "run", "shape",
];

/// Returns the current time as recordings state it.
fn now() -> String {
    humantime::format_rfc3339_millis(std::time::SystemTime::now()).to_string()
}

/// Prints to standard output. A closed pipe is not an error: the reader may need only the first
/// lines (`sluice list | head`). On a terminal, control characters are made visible.
///
/// # Errors
/// Standard output cannot be written.
fn print(text: &str) -> io::Result<()> {
    match io::stdout().write_all(terminal::for_output(text).as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}
