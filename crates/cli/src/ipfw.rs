//! `sluice ipfw`: dummynet's command, to a router that runs.
//!
//! The binary is the same command under the names `ipfw` and `dnctl`, without `sluice` before it.

use std::ffi::OsString;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use sluice_ipfw::grammar;
use sluice_router::control::{
    AskError, Failure, How, Place, Remark, Reply, Request, ask, default_socket, files_of,
};

/// What to tell the router.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub struct Args {
    /// The command, as for ipfw; `--socket PATH` before it names the router
    #[arg(
        value_name = "COMMAND",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    words: Vec<OsString>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The router cannot be asked.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// An argument is no text.
    #[error("argument {0:?} is no UTF-8")]
    Text(OsString),
    /// The socket is not named.
    #[error("--socket needs the path of a router's socket")]
    Socket,
    /// Standard output cannot be written.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
}

/// Under which name the binary is ipfw, or its half that knows only pipes, queues and schedulers.
pub fn name_of(program: &Path) -> Option<&'static str> {
    match program.file_name()?.to_str()? {
        "ipfw" => Some("ipfw"),
        "dnctl" => Some("dnctl"),
        _ => None,
    }
}

/// As [`run`], for `sluice ipfw`.
///
/// # Errors
/// [`Error`].
pub fn run_args(args: Args) -> Result<ExitCode, Error> {
    run("ipfw", args.words)
}

/// Has the router carry out a command and prints what it says.
///
/// # Errors
/// [`Error`]. What the router refuses is printed, and its exit status handed on.
pub fn run(program: &str, words: Vec<OsString>) -> Result<ExitCode, Error> {
    let mut words = words
        .into_iter()
        .map(|word| word.into_string().map_err(Error::Text))
        .collect::<Result<Vec<_>, _>>()?;
    let socket = take_socket(&mut words)?;
    if words.iter().any(|word| word == "--help") {
        crate::print(HELP)?;
        return Ok(ExitCode::SUCCESS);
    }
    let command = format!("{program} {}", words.join(" "));
    let is_batch = match grammar::parse(&command, 1, false) {
        Ok(line) => match line.invocation {
            Some(invocation) => {
                if invocation.needs_confirmation() && !is_confirmed()? {
                    return Ok(ExitCode::SUCCESS);
                }
                matches!(invocation.command, grammar::Command::Batch(_))
            }
            None => false,
        },
        // The router says the same, or knows more.
        Err(_) => false,
    };
    let request = Request::Commands {
        files: files_of(&command, &mut |path| fs::read_to_string(path)),
        commands: command,
        how: How::Command,
    };
    let reply = ask(&socket, &request)?;
    tell(program, is_batch, &reply)
}

fn tell(program: &str, is_batch: bool, reply: &Reply) -> Result<ExitCode, Error> {
    for Remark { place, text } in &reply.warnings {
        eprintln!("{program}: {}warning: {text}", prefix(is_batch, place));
    }
    crate::print(&reply.stdout)?;
    if let Some(state) = &reply.state {
        let value: serde_json::Value =
            serde_json::from_str(state.get()).map_err(io::Error::from)?;
        crate::print(&format!("{value:#}\n"))?;
    }
    match &reply.error {
        None => Ok(ExitCode::SUCCESS),
        Some(Failure {
            message, exit_code, ..
        }) => {
            eprintln!("{program}: {message}");
            Ok(ExitCode::from(*exit_code))
        }
    }
}

/// What stands before a warning about a line of a file.
fn prefix(is_batch: bool, place: &Place) -> String {
    match place.line {
        line if is_batch && line > 0 => format!("Line {line}: column {}: ", place.column),
        _ => String::new(),
    }
}

/// Takes `--socket PATH` from the beginning; otherwise the environment says, or the default.
fn take_socket(words: &mut Vec<String>) -> Result<PathBuf, Error> {
    if words.first().is_some_and(|word| word == "--socket") {
        if words.len() < 2 {
            return Err(Error::Socket);
        }
        let path = PathBuf::from(words.remove(1));
        words.remove(0);
        return Ok(path);
    }
    if let Some(path) = words
        .first()
        .and_then(|word| word.strip_prefix("--socket="))
    {
        let path = PathBuf::from(path);
        words.remove(0);
        return Ok(path);
    }
    let named = std::env::var_os("SLUICE_SOCKET").filter(|path| !path.is_empty());
    Ok(named.map_or_else(default_socket, PathBuf::from))
}

/// Asks, if there is somebody to ask; a script has made up its mind.
fn is_confirmed() -> Result<bool, Error> {
    let input = io::stdin();
    if !input.is_terminal() {
        return Ok(true);
    }
    loop {
        print!("Are you sure? [yn] ");
        io::stdout().flush()?;
        let mut answer = String::new();
        if input.read_line(&mut answer)? == 0 {
            return Ok(false);
        }
        match answer.trim().chars().next() {
            Some('y' | 'Y') => return Ok(true),
            Some('n' | 'N') => return Ok(false),
            _ => {}
        }
    }
}

const HELP: &str = "\
usage: sluice ipfw [--socket PATH] [-abcdDefnNqStTv] [--json] [--atomic] COMMAND

  {pipe | queue | sched} N config OPTION...   make or change an object
  {pipe | queue | sched} {show | list | delete | flush} [N...]
  add [N] ACTION PROTOCOL from SOURCE to DESTINATION [OPTION...]
  {list | show | delete | zero | resetlog} [N...], flush
  table NAME {create | add | delete | list | info | lookup | flush | destroy | swap}
  set {show | enable | disable | move | swap}, {enable | disable} {firewall | one_pass | ...}
  sysctl [NAME[=VALUE]...]
  /path/of/a/file                             its lines, one command each; with --atomic all or none

The router is the one whose socket SLUICE_SOCKET names, or the default one. --json prints states with what
`show` lacks: drops and marks by reason, waiting times, variables of algorithms, rates, packets under way.
docs/dummynet.md tells where Sluice differs from dummynet.
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_is_taken_from_the_beginning_only() {
        let words = |text: &str| -> Vec<String> { text.split(' ').map(str::to_owned).collect() };
        for (text, path, rest) in [
            ("--socket /a pipe show", "/a", "pipe show"),
            ("--socket=/b pipe show", "/b", "pipe show"),
        ] {
            let mut all = words(text);
            assert_eq!(take_socket(&mut all).unwrap(), Path::new(path));
            assert_eq!(all.join(" "), rest);
        }
        assert!(take_socket(&mut words("--socket")).is_err());
        let mut all = words("pipe show --socket /a");
        let _ = take_socket(&mut all).unwrap();
        assert_eq!(all.len(), 4);
    }

    #[test]
    fn the_program_is_what_it_is_called() {
        assert_eq!(name_of(Path::new("/usr/local/bin/ipfw")), Some("ipfw"));
        assert_eq!(name_of(Path::new("dnctl")), Some("dnctl"));
        assert_eq!(name_of(Path::new("target/sluice")), None);
    }
}
