//! `sluice exec`: runs a program behind an emulated link.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap_complete::engine::ArgValueCandidates;
use sluice_core::Span;
use sluice_exec::link::LinkError;
use sluice_exec::{ENDED, ExecError, FAILED, Settings, Show, Verdict};
use sluice_lab::program::{self, ProgramError, Recorded};
use sluice_report::pages::PageError;

use crate::completion;
use crate::link_args::{LINK, LinkArgs};
use crate::number::whole;
use crate::page::{self, Page};
use crate::proxy::{self, Report, TOO_LATE, warn_of_earlier, write_report};

/// The program and the link.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    link: LinkArgs,
    /// Congestion control of both ends of the link [default: the machine's]
    #[arg(long, value_name = "NAME", help_heading = LINK,
          add = ArgValueCandidates::new(completion::kernel_controls))]
    cc: Option<String>,
    /// Make host.sluice, the machine's loopback, unreachable
    #[arg(long)]
    no_host: bool,
    /// Forward the machine's localhost:PORT to the program
    #[arg(long, value_name = "PORT", value_parser = whole(1..=u16::MAX))]
    forward: Vec<u16>,
    /// Shell command that runs on the far side, as server.sluice; the program starts when it
    /// listens
    #[arg(long, value_name = "COMMAND")]
    server: Option<OsString>,
    /// Print how late packets were; exit with 75 if more than 0.1 % exceed this, or the machine
    /// lost any
    #[arg(long, value_name = "TIME", value_parser = Span::parse)]
    max_late: Option<Span>,
    /// Use a proxy (http_proxy), not namespaces
    #[arg(long)]
    proxy: bool,
    /// Record the run in this folder, with report.html
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Capture what passes the program's interface
    #[arg(long, value_name = "FILE")]
    pcapng: Option<PathBuf>,
    #[command(flatten)]
    page: Page,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
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
    /// An option beside `--proxy`.
    #[error(
        "{0} needs network namespaces, and --proxy does without them: leave one of the two out"
    )]
    BesideProxy(&'static str),
    /// The recording.
    #[error(transparent)]
    Record(ProgramError),
    /// The page cannot be served.
    #[error(transparent)]
    Http(#[from] page::Error),
    /// The page of the recording.
    #[error("{error}; the program's exit status was {status}")]
    Page {
        /// The program's exit status.
        status: u8,
        /// The reason.
        error: PageError,
    },
}

impl From<ProgramError> for Error {
    fn from(error: ProgramError) -> Self {
        match error {
            ProgramError::Exec(error) => Error::Exec(error),
            error => Error::Record(error),
        }
    }
}

/// Runs the program until it ends. Returns its exit status.
pub fn run(args: &Args) -> ExitCode {
    let status = match try_run(args) {
        Ok(status) => status,
        Err(error) => {
            eprintln!("sluice: {error}");
            match error {
                Error::Exec(error) | Error::Proxy(proxy::Error::Program(error)) => error.status(),
                _ => FAILED,
            }
        }
    };
    exit_if_abandoned(status);
    status.into()
}

/// Ends this process with `status` if it has a thread in which an algorithm does not return: an
/// interpreter would wait for it.
pub(crate) fn exit_if_abandoned(status: u8) {
    if sluice_loader::has_abandoned() {
        std::process::exit(status.into());
    }
}

fn try_run(args: &Args) -> Result<u8, Error> {
    args.link.warn();
    if args.proxy {
        return through_proxy(args);
    }
    let mut scenario = args.link.words().scenario()?;
    if let Some(obstacle) = sluice_exec::obstacle() {
        eprintln!("sluice: warning: {obstacle}");
        return through_proxy(args);
    }
    let settings = Settings {
        links: scenario.links().cloned().collect(),
        seed: scenario.seed,
        congestion_control: args.cc.clone(),
        has_host: !args.no_host,
        forwards: args.forward.clone(),
        server: args.server.clone(),
        on_wait: |what| eprintln!("sluice: {what}"),
        on_restriction: |what| eprintln!("sluice: warning: {what}"),
        program: args.program.clone(),
        max_late: args.max_late,
        capture: args.pcapng.clone(),
    };
    // The address is that of the machine's network, which this process leaves later.
    let page = page::prepare(&args.page, false)?;
    let mut failure = None;
    let show = page.map(|page| -> Show<'_> {
        let failure = &mut failure;
        Box::new(move |watcher| match page.serve(watcher, None) {
            Ok(server) => {
                eprintln!("sluice: page and metrics at {}", server.address());
                Box::new(server)
            }
            Err(error) => {
                *failure = Some(error);
                Box::new(())
            }
        })
    });
    let outcome = match &args.report {
        Some(dir) => {
            scenario.title = in_words(&args.program);
            let name = args.link.name().unwrap_or("exec");
            let now = crate::now();
            let recorded =
                program::run(&settings, &scenario, name, dir, warn_of_earlier, now, show)?;
            report(&recorded, dir)?;
            recorded.outcome
        }
        None => sluice_exec::run(&settings, show)?,
    };
    if let Some(error) = failure {
        eprintln!("sluice: warning: the page was not served: {error}");
    }
    if outcome.refused > 0 {
        eprintln!(
            "sluice: warning: {} connections were reset, because this process may open no more files; \
             `ulimit -Hn` shows its limit, and each connection takes six",
            outcome.refused
        );
    }
    if !outcome.replaced.is_empty() {
        eprintln!(
            "sluice: warning: the machine replaced {} during the run; after that, the program used the \
             machine's file, so host.sluice may have been unknown, and names may not have been resolved",
            outcome.replaced.join(" and ")
        );
    }
    let ended = outcome.ended.as_deref();
    Ok(judge(args, outcome.status, ended, &outcome.verdict))
}

/// Runs the program with variables that make it use a proxy behind the link.
fn through_proxy(args: &Args) -> Result<u8, Error> {
    let cannot = [
        ("--server", args.server.is_some()),
        ("--forward", !args.forward.is_empty()),
        ("--http", args.page.is_wanted()),
    ];
    if let Some((option, _)) = cannot.into_iter().find(|(_, is_given)| *is_given) {
        return Err(match args.proxy {
            true => Error::BesideProxy(option),
            false => Error::NeedsNamespaces(option),
        });
    }
    let mut settings = proxy::for_program(
        args.link.words(),
        args.cc.as_deref(),
        !args.no_host,
        args.max_late,
    )?;
    settings.capture = args.pcapng.clone();
    eprintln!("sluice: warning: {LOST}");
    let ending = settings.ending.clone();
    let report = args.report.as_deref();
    let report = report.map(|dir| Report::new(&args.link, dir, in_words(&args.program)));
    let (status, verdict, recording) =
        proxy::run_program(&args.program, settings, report.transpose()?.as_ref())?;
    if let (Some(recording), Some(dir)) = (&recording, &args.report) {
        write_report(recording, dir).map_err(|error| Error::Page { status, error })?;
    }
    Ok(judge(args, status, ending.why(), &verdict))
}

/// Prints the verdict on the emulation, and why an algorithm has ended the program or the link. Returns
/// the exit status.
fn judge(args: &Args, status: u8, ended: Option<&str>, verdict: &Verdict) -> u8 {
    if let Some(why) = ended {
        // The program may have ended by itself.
        let what = match sluice_loader::has_abandoned() {
            true => "link",
            false => "program",
        };
        eprintln!("sluice: the {what} was ended: {why}");
        return ENDED;
    }
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

/// The options that a proxy cannot serve.
const LOST: &str = "the program is behind a proxy: UDP, ping, and programs that ignore the proxy \
                    variables do not cross the link";

/// Draws the page of a recording and prints its place.
fn report(recorded: &Recorded, dir: &Path) -> Result<(), Error> {
    if let Some(warning) = &recorded.warning {
        eprintln!("sluice: warning: the report has no TCP connections: {warning}");
    }
    write_report(&recorded.recording, dir).map_err(|error| Error::Page {
        status: recorded.outcome.status,
        error,
    })
}

/// Returns the program and its arguments as a title, cut to a line.
fn in_words(program: &[OsString]) -> String {
    let words: Vec<_> = program.iter().map(|word| word.to_string_lossy()).collect();
    let line: String = words
        .join(" ")
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    match line.char_indices().nth(LONGEST_TITLE) {
        Some((at, _)) => format!("{} ...", &line[..at]),
        None => line,
    }
}

/// Characters of a title.
const LONGEST_TITLE: usize = 72;

const EXAMPLES: &str = "\
Examples:
  sluice exec --link lte -- npm test
  sluice exec --rate 5Mbit/s --rtt 60ms -- curl -O https://example.org/
  sluice exec --link dsl --set down.queue=fq_codel --report runs/app -- ./app
  sluice exec --trace down.trace --up-trace up.trace --cc bbr -- ./app
  sluice exec --link 3g --server './server 80' -- ./client http://server.sluice/

Exit status: the program's own; 128 + N if signal N ended it; 127 if there is no
such program; 126 if it cannot be executed; 125 if Sluice fails; 75 if packets
were later than --max-late, or lost by the machine; 70 if a queue from a file
(py:, wasm:) failed and has `on_error end`, or does not return.";
