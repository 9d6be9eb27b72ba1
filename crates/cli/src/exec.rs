//! `sluice exec`: runs a program behind an emulated link.

use std::ffi::OsString;
use std::process::ExitCode;

use sluice_core::Span;
use sluice_exec::link::LinkError;
use sluice_exec::{ExecError, FAILED, Settings, Verdict};

use crate::link_args::{LINK, LinkArgs};
use crate::proxy::{self, TOO_LATE};

/// Which program, behind which link.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    link: LinkArgs,
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
    /// Instead of namespaces use a proxy, with variables such as http_proxy; the default where
    /// namespaces are forbidden
    #[arg(long)]
    proxy: bool,
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
    /// The proxy.
    #[error(transparent)]
    Proxy(#[from] proxy::Error),
    /// An option that a proxy cannot serve.
    #[error("{0} needs network namespaces; `sluice doctor` says what forbids them")]
    NeedsNamespaces(&'static str),
}

/// Runs the program until it ends. Returns its exit status.
pub fn run(args: &Args) -> ExitCode {
    match try_run(args) {
        Ok(status) => status.into(),
        Err(error) => {
            eprintln!("sluice: {error}");
            match error {
                Error::Exec(error) | Error::Proxy(proxy::Error::Program(error)) => {
                    error.status().into()
                }
                _ => FAILED.into(),
            }
        }
    }
}

fn try_run(args: &Args) -> Result<u8, Error> {
    if args.proxy {
        return through_proxy(args);
    }
    let settings = Settings {
        link: args.link.words().resolve()?,
        congestion_control: args.cc.clone(),
        has_host: !args.no_host,
        forwards: args.forward.clone(),
        server: args.server.clone(),
        program: args.program.clone(),
        max_late: args.max_late,
    };
    if let Some(obstacle) = sluice_exec::obstacle() {
        eprintln!("sluice: warning: {obstacle}");
        return through_proxy(args);
    }
    let outcome = sluice_exec::run(&settings)?;
    Ok(judge(args, outcome.status, &outcome.verdict))
}

/// Runs the program with variables that make it use a proxy behind the link.
fn through_proxy(args: &Args) -> Result<u8, Error> {
    let cannot = [
        ("--server", args.server.is_some()),
        ("--forward", !args.forward.is_empty()),
    ];
    if let Some((option, _)) = cannot.into_iter().find(|(_, is_given)| *is_given) {
        return Err(Error::NeedsNamespaces(option));
    }
    let settings = proxy::for_program(
        args.link.words(),
        args.cc.as_deref(),
        !args.no_host,
        args.max_late,
    )?;
    eprintln!("sluice: warning: {LOST}");
    let (status, verdict) = proxy::run_program(&args.program, settings)?;
    Ok(judge(args, status, &verdict))
}

/// Prints the verdict on the emulation. Returns the exit status.
fn judge(args: &Args, status: u8, verdict: &Verdict) -> u8 {
    if args.max_late.is_some() {
        eprintln!("sluice: {verdict}");
    }
    if !verdict.holds() {
        eprintln!(
            "sluice: the machine was too busy: the result, exit status {status}, does not count"
        );
        return TOO_LATE;
    }
    status
}

/// What a proxy cannot do.
const LOST: &str = "the program is behind a proxy: UDP, ping, and programs that ignore the proxy \
                    variables do not cross the link";

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
