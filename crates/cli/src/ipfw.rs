//! `sluice ipfw`: dummynet's command, for a running router.
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

/// The command, and the router that executes it.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true, override_usage = USAGE, after_help = COMMANDS)]
pub struct Args {
    /// The command, as for ipfw; `--socket PATH` before it selects the router
    #[arg(
        value_name = "COMMAND",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    words: Vec<OsString>,
}

/// The reason why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The router cannot be reached or did not answer.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// An argument is not UTF-8.
    #[error("argument {0:?} is not valid UTF-8")]
    Text(OsString),
    /// `--socket` without a path.
    #[error("--socket expects the path of a router's socket")]
    Socket,
    /// Standard output cannot be written.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
}

impl Error {
    /// Returns the exit status; those of usage are ipfw's.
    pub fn exit_status(&self) -> u8 {
        match self {
            Error::Ask(error) => error.exit_code(),
            Error::Text(_) | Error::Socket => 64,
            Error::Output(_) => 1,
        }
    }
}

/// Returns the command that the binary's name stands for: `ipfw`, or `dnctl`, which has only pipes,
/// queues and schedulers.
pub fn name_of(program: &Path) -> Option<&'static str> {
    match program.file_name()?.to_str()? {
        "ipfw" => Some("ipfw"),
        "dnctl" => Some("dnctl"),
        _ => None,
    }
}

/// Runs the command of `sluice ipfw`; see [`run`].
///
/// # Errors
/// [`Error`].
pub fn run_args(args: Args) -> Result<ExitCode, Error> {
    run("ipfw", args.words)
}

/// Has the router execute a command and prints its answer.
///
/// # Errors
/// [`Error`]. A refusal by the router is printed, and its exit status is returned.
pub fn run(program: &str, words: Vec<OsString>) -> Result<ExitCode, Error> {
    let mut words = words
        .into_iter()
        .map(|word| word.into_string().map_err(Error::Text))
        .collect::<Result<Vec<_>, _>>()?;
    let socket = take_socket(&mut words)?;
    if words.iter().any(|word| word == "--help") {
        crate::print(&format!("usage: {USAGE}\n\n{COMMANDS}\n"))?;
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
        // The router reports the same error, perhaps with more context.
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

/// Returns the prefix of a warning about a line of a file.
fn prefix(is_batch: bool, place: &Place) -> String {
    match place.line {
        line if is_batch && line > 0 => format!("Line {line}: column {}: ", place.column),
        _ => String::new(),
    }
}

/// Takes `--socket PATH` from the beginning of the arguments. Without it, the environment variable
/// names the socket, else the default applies.
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

/// Asks for confirmation if standard input is a terminal. A script is not asked.
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

const USAGE: &str = "\
sluice ipfw [--socket PATH] [-abcdDefnNqStTv] [--json] [--atomic] COMMAND";

const COMMANDS: &str = "\
Commands:
  {pipe | queue | sched} N config OPTION...     make or change an object
  {pipe | queue | sched} {show | list | delete | flush} [N...]
  add [N] ACTION PROTOCOL from SOURCE to DESTINATION [OPTION...]
  {list | show | delete | zero | resetlog} [N...], flush
  table NAME {create | add | delete | list | info | lookup | flush | destroy |
              swap}
  set {show | enable | disable | move | swap}
  {enable | disable} {firewall | one_pass | ...}
  sysctl [NAME[=VALUE]...]
  /path/of/a/file                             its lines, one command each;
                                              with --atomic all or none

The router is the one whose socket SLUICE_SOCKET names, or the default one.
--json prints the state with what `show` lacks: drops and marks by reason,
delays, variables of algorithms, rates, packets in flight. docs/dummynet.md
lists how Sluice differs from dummynet.

Examples:
  sluice ipfw pipe 1 config bw 10Mbit/s delay 20ms codel
  sluice ipfw add 100 pipe 1 ip from any to any out
  sluice ipfw --socket /run/lan.sock pipe show
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
