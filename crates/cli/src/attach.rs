//! `sluice attach`: puts a link in front of a running network namespace or container.

use std::process::ExitCode;

use sluice_core::Span;
use sluice_exec::attach::{AttachError, AttachSettings, Target, attach};
use sluice_exec::link::LinkError;
use sluice_exec::{ENDED, FAILED};

use crate::exec::exit_if_abandoned;
use crate::link_args::LinkArgs;
use crate::number::whole;
use crate::proxy::TOO_LATE;

/// The namespace, and the link to put in front of it.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[command(group(clap::ArgGroup::new("target").required(true).args(["netns", "pid"])))]
pub struct Args {
    #[command(flatten)]
    link: LinkArgs,
    /// A network namespace by its name in /run/netns, or by the path of its file
    #[arg(long, value_name = "NAME|FILE")]
    netns: Option<String>,
    /// The network namespace of a process, such as the first one of a container
    #[arg(long, value_name = "PID", value_parser = whole(1..=LARGEST_PID))]
    pid: Option<u32>,
    /// Its interface, an end of a veth pair [default: the only one]
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    /// Print how late packets were; exit with 75 if more than 0.1 % exceed this, or the machine
    /// lost any
    #[arg(long, value_name = "TIME", value_parser = Span::parse)]
    max_late: Option<Span>,
}

#[derive(Debug, thiserror::Error)]
enum Error {
    /// No option describes a link.
    #[error(
        "no link is described, so nothing would change: give --link NAME (`sluice list links`), or \
         --rate, --rtt, --loss, --queue or another option of the link"
    )]
    NoLink,
    /// The link.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// Everything else.
    #[error(transparent)]
    Attach(#[from] AttachError),
}

/// Attaches the link until a signal. Returns the exit status.
pub fn run(args: &Args) -> ExitCode {
    let status = match try_run(args) {
        Ok(status) => status,
        Err(error) => {
            eprintln!("sluice: {error}");
            FAILED
        }
    };
    exit_if_abandoned(status);
    status.into()
}

fn try_run(args: &Args) -> Result<u8, Error> {
    if !args.link.is_given() {
        return Err(Error::NoLink);
    }
    args.link.warn();
    let target = match (&args.netns, args.pid) {
        (Some(name), _) => Target::Name(name.clone()),
        (None, pid) => Target::Process(pid.unwrap_or_default()),
    };
    let scenario = args.link.words().scenario()?;
    let settings = AttachSettings {
        target,
        interface: args.interface.clone(),
        links: scenario.links().cloned().collect(),
        seed: scenario.seed,
        max_late: args.max_late,
    };
    let detached = attach(&settings, |inner, outer| {
        eprintln!("sluice: the link is between {inner} and {outer}; Ctrl-C detaches it");
    })?;
    if detached.has_ended {
        eprintln!("sluice: the namespace has ended, and the link with it");
    }
    if let Some(why) = &detached.ended {
        eprintln!("sluice: the link was ended: {why}");
        return Ok(ENDED);
    }
    let verdict = &detached.verdict;
    if settings.max_late.is_some() {
        eprintln!("sluice: {verdict}");
    }
    Ok(match verdict.holds() {
        true => 0,
        false => {
            eprintln!("sluice: the machine was too busy: measurements of this time do not count");
            TOO_LATE
        }
    })
}

/// The largest `pid_t`.
const LARGEST_PID: u32 = i32::MAX as u32;

const EXAMPLES: &str = "\
Examples:
  sluice attach --netns blue --link wpt/dsl
  sluice attach --pid $(docker inspect -f '{{.State.Pid}}' web) --link wpt/lte
  sluice attach --pid 4711 --interface eth1 --rate 10Mbit/s --rtt 60ms

The link is between the container's veth interface and the machine's end of the
pair. Ctrl-C, SIGTERM and the end of the container detach it; after kill -9, a
watchdog puts everything back.";
