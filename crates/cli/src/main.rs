//! The `sluice` command.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod list;

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
}

fn main() -> ExitCode {
    let outcome = match Sluice::parse().command {
        Command::List(args) => list::run(&args).map_err(Box::<dyn std::error::Error>::from),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("sluice: {error}");
        ExitCode::FAILURE
    })
}
