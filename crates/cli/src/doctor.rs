//! `sluice doctor`: reports what this machine allows.

use std::fmt::Write as _;
use std::io;
use std::process::ExitCode;

use sluice_exec::doctor::{State, examine};

/// No options.
#[derive(Debug, clap::Args)]
pub struct Args {}

/// Prints the findings. The exit status is 1 if `sluice exec` cannot work.
///
/// # Errors
/// Standard output cannot be written.
pub fn run(_args: &Args) -> io::Result<ExitCode> {
    let findings = examine();
    let mut text = String::new();
    for finding in &findings {
        let (name, needed_for) = (finding.name, finding.needed_for);
        let _ = match &finding.state {
            State::Possible(details) => writeln!(text, "yes  {name}: {details}"),
            State::Impossible { why, remedy } => writeln!(
                text,
                "no   {name}: {why}\n     for {needed_for}; to change it: {remedy}"
            ),
        };
    }
    crate::print(&text)?;
    let is_missing = |name: &str| {
        let mut findings = findings.iter();
        findings.any(|finding| {
            finding.name == name && matches!(finding.state, State::Impossible { .. })
        })
    };
    let is_lacking = ["namespaces", "mounts", "packet sockets"]
        .into_iter()
        .any(is_missing);
    Ok(match is_lacking {
        true => ExitCode::FAILURE,
        false => ExitCode::SUCCESS,
    })
}
