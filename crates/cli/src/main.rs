//! The `sluice` command.

use std::error::Error;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod list;
mod replay;

/// Packet queueing in user space: algorithms, simulator, live router, laboratory.
#[derive(Debug, Parser)]
#[command(name = "sluice", version)]
struct Sluice {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the algorithms with their parameters, units, ranges and defaults
    List(list::Args),
    /// Run a recorded arrival trace through one queue and link, in virtual time
    Replay(replay::Args),
}

fn main() -> ExitCode {
    let outcome: Result<ExitCode, Box<dyn Error>> = match Sluice::parse().command {
        Command::List(args) => list::run(&args).map_err(Into::into),
        Command::Replay(args) => replay::run(args).map_err(Into::into),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("sluice: {error}");
        ExitCode::FAILURE
    })
}
