//! `sluice completion`: shells complete subcommands, options, and the names of queues and links.
//!
//! The script that a shell loads calls this command with the words so far; [`answer`] prints the
//! candidates. So the names are always those of the installed version.

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::process::ExitCode;

use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use clap_complete::env::{CompleteEnv, Shells};
use sluice_core::registry;
use sluice_scenario::Preset;

/// The shell.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// bash, zsh, fish, elvish or powershell
    #[arg(add = ArgValueCandidates::new(shells))]
    shell: String,
}

/// Why no script was printed.
#[derive(Debug, thiserror::Error)]
pub enum CompletionError {
    /// The shell is not supported.
    #[error("no completion for the shell `{shell}`: {known} are known")]
    Unknown {
        /// The shell as given.
        shell: String,
        /// All that are supported.
        known: String,
    },
    /// Standard output cannot be written.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
}

/// Answers a shell that asks for candidates, and exits; returns at once if no shell asks. `words`
/// are those of this process.
pub fn answer(command: impl Fn() -> clap::Command, words: &[OsString]) {
    let folder = std::env::current_dir().ok();
    let shell = CompleteEnv::with_factory(command).var(VARIABLE);
    if shell
        .try_complete(words, folder.as_deref())
        .unwrap_or_else(|error| error.exit())
    {
        std::process::exit(0);
    }
}

/// Prints the script of a shell.
///
/// # Errors
/// [`CompletionError::Unknown`] with the shells that are supported, or [`CompletionError::Output`].
pub fn run(args: &Args) -> Result<ExitCode, CompletionError> {
    let shells = Shells::builtins();
    let Some(shell) = shells.completer(&args.shell) else {
        let known: Vec<&str> = shells.names().collect();
        return Err(CompletionError::Unknown {
            shell: args.shell.clone(),
            known: known.join(", "),
        });
    };
    let mut script = Vec::new();
    shell.write_registration(VARIABLE, NAME, NAME, NAME, &mut script)?;
    io::stdout().write_all(&script)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the names of all queues.
pub fn queues() -> Vec<CompletionCandidate> {
    let queues = registry::algorithms();
    queues
        .map(|queue| candidate(queue.name, queue.doc))
        .collect()
}

/// Returns the names of all links.
pub fn links() -> Vec<CompletionCandidate> {
    Preset::all()
        .flat_map(|preset| {
            let names = preset.names().iter();
            names.map(move |name| candidate(name, preset.source()))
        })
        .collect()
}

/// Returns the congestion controls of Sluice's TCP.
pub fn controls() -> Vec<CompletionCandidate> {
    let names = sluice_proxy::congestion_controls();
    names.map(CompletionCandidate::new).collect()
}

/// Returns the congestion controls that the kernel allows in new namespaces.
pub fn kernel_controls() -> Vec<CompletionCandidate> {
    let names = sluice_exec::allowed_controls().into_iter();
    names.map(CompletionCandidate::new).collect()
}

/// Returns the shells that have a completion.
fn shells() -> Vec<CompletionCandidate> {
    let shells = Shells::builtins();
    shells
        .names()
        .map(|name| CompletionCandidate::new(name.to_owned()))
        .collect()
}

/// Returns what `sluice list` can show.
pub fn listed() -> Vec<CompletionCandidate> {
    let tables = [
        candidate("link", "what can be set for a link"),
        candidate("links", "the links that have names"),
    ];
    queues().into_iter().chain(tables).chain(links()).collect()
}

fn candidate(name: &str, help: &str) -> CompletionCandidate {
    CompletionCandidate::new(OsString::from(name)).help(Some(help.to_owned().into()))
}

/// The variable by which a shell asks for candidates.
const VARIABLE: &str = "SLUICE_COMPLETE";
const NAME: &str = "sluice";
