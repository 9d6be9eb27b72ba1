//! `sluice replay`: replays a recorded arrival trace through one queue and link, in virtual time;
//! or the arrivals of a live run through its own queues, to compare the verdicts with those of the
//! run.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use clap_complete::engine::ArgValueCandidates;
use indicatif::{ProgressBar, ProgressStyle};
use sluice_core::registry::Spec;
use sluice_lab::replay::{self, Draws, Job, LinkRate, Outputs, ReplayError, Replayed};
use sluice_lab::replay_run::{ReplayRunError, replay_run};
use sluice_recording::{PAGE, ReadError, Recording};
use sluice_report::pages::{PageError, write_page};
use sluice_scenario::trace::Hash;

use crate::completion;

/// What to replay, and how.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// A trace: CSV with time_ns,flow,size_bytes,ecn, or a pcap or pcapng capture. Or the folder of
    /// a live run: its arrivals are replayed through its own queues, and the verdicts are compared
    /// with those of the run
    #[arg(value_name = "TRACE|RUN")]
    trace: PathBuf,
    /// The queue of a trace, written as in `sluice list`: "codel target 5ms"
    #[arg(long, value_name = "WORDS", value_parser = replay::parse_queue,
          add = ArgValueCandidates::new(completion::queues))]
    queue: Option<Spec>,
    /// The link's rate ("10Mbit/s"), or a CSV file with time_ns,bits_per_second
    #[arg(long, value_name = "RATE|FILE", value_parser = replay::parse_rate)]
    rate: Option<LinkRate>,
    /// How the queue identifies a flow [default: seeded]
    #[arg(long, value_enum)]
    hash: Option<FlowHash>,
    /// Seed of all random numbers [default: 1]
    #[arg(long)]
    seed: Option<u64>,
    /// The numbers that the queue draws, instead of those of the seed: one of 64 bits per line
    #[arg(long, value_name = "FILE", value_parser = replay::parse_draws)]
    draws: Option<Draws>,
    /// Write a row per packet (.csv or .parquet)
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write the algorithm's variables over time (.csv or .parquet)
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Write the packets that left, with CE marks (.pcap); only if the trace is a capture
    #[arg(long, value_name = "FILE")]
    pcap_out: Option<PathBuf>,
    /// Record packets, flows and the algorithm's variables in this folder, with report.html
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Execute the Python files that the queues of a RUN name (py:), with all your rights
    #[arg(long)]
    execute_python: bool,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

/// A flow's identity in a queue.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum FlowHash {
    /// A hash keyed by the seed, as on a live router
    Seeded,
    /// The flow's number: flow f is in bucket f mod `flows`
    Flow,
}

/// The reason why nothing was replayed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The trace is malformed, or a file cannot be written.
    #[error(transparent)]
    Trace(#[from] ReplayError),
    /// A run cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// A run cannot be replayed.
    #[error(transparent)]
    Run(ReplayRunError),
    /// A run names Python files, which are not executed unless the user says so.
    #[error("{0}; add --execute-python if you trust this code")]
    Unasked(ReplayRunError),
    /// A trace names neither queue nor link.
    #[error("`{}` is a trace: {option} is required", trace.display())]
    Needed {
        /// The trace.
        trace: PathBuf,
        /// The missing option.
        option: &'static str,
    },
    /// A run has its own queues and its own output files.
    #[error("`{}` is the folder of a run, whose own queues are used: {option} is for traces", dir.display())]
    OnlyTrace {
        /// The folder.
        dir: PathBuf,
        /// The superfluous option.
        option: &'static str,
    },
    /// The queue of a trace is that of the command line.
    #[error("`{}` is a trace, whose queue --queue names: --execute-python is for runs", trace.display())]
    OnlyRun {
        /// The trace.
        trace: PathBuf,
    },
    /// The page of a recording cannot be written.
    #[error(transparent)]
    Page(#[from] PageError),
    /// Ctrl-C cannot be caught.
    #[error("cannot catch Ctrl-C: {0}")]
    Signal(io::Error),
    /// Standard output cannot be written.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
}

/// Replays a trace and prints a summary, or replays a run and prints whether its verdicts are the
/// same. Ctrl-C ends the replay at once and leaves no unfinished files.
///
/// # Errors
/// [`Error`].
pub fn run(args: Args) -> Result<ExitCode, Error> {
    if args.trace.is_dir() {
        return replay_folder(&args);
    }
    if args.execute_python {
        return Err(Error::OnlyRun { trace: args.trace });
    }
    let needed = |option| Error::Needed {
        trace: args.trace.clone(),
        option,
    };
    let queue = args.queue.ok_or_else(|| needed("--queue"))?;
    let rate = args.rate.ok_or_else(|| needed("--rate"))?;
    let job = Job {
        trace: args.trace,
        queue,
        rate,
        hash: match args.hash {
            Some(FlowHash::Flow) => Hash::Flow,
            Some(FlowHash::Seeded) | None => Hash::Seeded,
        },
        seed: args.seed.unwrap_or(1),
        draws: args.draws,
        outputs: Outputs {
            rows: args.out,
            state: args.state,
            capture: args.pcap_out,
        },
        record: args.report.map(|dir| (dir, crate::now())),
    };
    let outputs = job.outputs.clone();
    crate::signals::on_end(move || {
        outputs.discard();
        std::process::exit(INTERRUPTED);
    })
    .map_err(Error::Signal)?;
    // Nothing is drawn if standard error is not a terminal.
    let bar = ProgressBar::new(0).with_style(
        ProgressStyle::with_template("{bar:40} {percent:>3} % of {total_bytes}, {eta} left")
            .expect("the template is right"),
    );
    let replayed = replay::run(&job, &mut |read, size| {
        bar.set_length(size);
        bar.set_position(read);
    });
    bar.finish_and_clear();
    let Replayed { summary, recording } = replayed?;
    for warning in &summary.warnings {
        eprintln!("sluice: {}: {warning}", job.trace.display());
    }
    if let Some(recording) = &recording {
        let page = recording.dir().join(PAGE);
        write_page(&page, &[recording])?;
        eprintln!("sluice: report: {}", page.display());
    }
    let text = if args.json {
        format!("{:#}\n", summary.to_json())
    } else {
        summary.to_string()
    };
    crate::print(&text)?;
    if summary.stopped.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("sluice: the figures are not those of the queue, which an error stopped");
    Ok(ExitCode::FAILURE)
}

fn replay_folder(args: &Args) -> Result<ExitCode, Error> {
    let given = [
        ("--queue", args.queue.is_some()),
        ("--rate", args.rate.is_some()),
        ("--hash", args.hash.is_some()),
        ("--seed", args.seed.is_some()),
        ("--draws", args.draws.is_some()),
        ("--out", args.out.is_some()),
        ("--state", args.state.is_some()),
        ("--pcap-out", args.pcap_out.is_some()),
        ("--report", args.report.is_some()),
    ];
    if let Some((option, _)) = given.into_iter().find(|(_, is_given)| *is_given) {
        return Err(Error::OnlyTrace {
            dir: args.trace.clone(),
            option,
        });
    }
    let replay = replay_run(&Recording::open(&args.trace)?, args.execute_python);
    let replay = replay.map_err(|error| match error {
        ReplayRunError::Executes { .. } => Error::Unasked(error),
        error => Error::Run(error),
    })?;
    crate::print(&if args.json {
        replay.to_json()
    } else {
        replay.to_string()
    })?;
    Ok(match replay.is_same() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

/// The conventional exit status after SIGINT.
const INTERRUPTED: i32 = 130;

const EXAMPLES: &str = "\
Examples:
  sluice replay trace.pcap --queue fq_codel --rate 10Mbit/s
  sluice replay trace.csv --queue \"codel ecn\" --rate 1Gbit/s --out rows.csv";
