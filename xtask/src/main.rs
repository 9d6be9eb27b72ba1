//! Checks of the workspace that no compiler makes: `cargo xtask layers`, `cargo xtask contributing`.

use std::process::ExitCode;

mod contributing;
mod layers;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("layers") => match layers::check() {
            Ok(checked) => {
                println!("layers: {checked}");
                ExitCode::SUCCESS
            }
            Err(problems) => {
                for problem in problems {
                    eprintln!("layers: {problem}");
                }
                ExitCode::FAILURE
            }
        },
        Some("contributing") => match contributing::check() {
            Ok(()) => {
                println!(
                    "contributing: the example is one file and one line, and is found everywhere"
                );
                ExitCode::SUCCESS
            }
            Err(problem) => {
                eprintln!("contributing: {problem}");
                ExitCode::FAILURE
            }
        },
        _ => {
            eprintln!("usage: cargo xtask layers | contributing");
            ExitCode::from(2)
        }
    }
}
