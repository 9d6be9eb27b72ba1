//! Checks of the workspace beyond the compiler's, and the generator of pages: `cargo xtask --help`.

use std::process::ExitCode;

use clap::Parser as _;

mod contributing;
mod kernels;
mod layers;
mod reproduce;
mod reproduction;
mod tutorials;

/// Checks of the workspace beyond the compiler's, and the generator of pages.
#[derive(clap::Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Task {
    /// Check that every dependency between crates is an arrow of the architecture
    Layers,
    /// Build the examples of CONTRIBUTING.md in a copy of the source
    Contributing,
    /// Run the commands of the tutorials and guides as they are printed
    Tutorials,
    /// Compare queues with those of real kernels
    Kernels(kernels::Args),
    /// Write the page that compares published figures with those of our runs
    Reproduce(reproduce::Args),
}

fn main() -> ExitCode {
    let (name, outcome) = match Task::parse() {
        Task::Layers => (
            "layers",
            layers::check().map_err(|problems| problems.join("\n")),
        ),
        Task::Contributing => ("contributing", contributing::check()),
        Task::Tutorials => (
            "tutorials",
            tutorials::check().map(|n| format!("{n} commands, all as printed")),
        ),
        Task::Kernels(args) => ("kernels", kernels::run(&args)),
        Task::Reproduce(args) => ("reproduce", reproduce::run(&args)),
    };
    match outcome {
        Ok(said) => {
            println!("{name}: {said}");
            ExitCode::SUCCESS
        }
        Err(problems) => {
            for problem in problems.lines() {
                eprintln!("{name}: {problem}");
            }
            ExitCode::FAILURE
        }
    }
}
