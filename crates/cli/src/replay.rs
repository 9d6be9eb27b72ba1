//! `sluice replay`: a recorded arrival trace through one queue and link, in virtual time.

use std::path::PathBuf;
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};
use sluice_core::registry::Spec;
use sluice_lab::replay::{self, Hash, Job, LinkRate, Outputs, ReplayError};

/// What to replay, and how.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The trace: CSV with time_ns,flow,size_bytes,ecn, or a pcap or pcapng capture
    trace: PathBuf,
    /// The queue, in the words of `sluice list`: "codel target 5ms"
    #[arg(long, value_name = "WORDS", value_parser = replay::parse_queue)]
    queue: Spec,
    /// The link's rate ("10Mbit/s"), or a CSV file with time_ns,bits_per_second
    #[arg(long, value_name = "RATE|FILE", value_parser = replay::parse_rate)]
    rate: LinkRate,
    /// What the queue sees of a flow: a hash under the seed, or its number
    #[arg(long, value_enum, default_value_t = FlowHash::Seeded)]
    hash: FlowHash,
    /// Seed of everything that is drawn
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write a row per packet (.csv or .parquet)
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write the algorithm's variables over time (.csv or .parquet)
    #[arg(long, value_name = "FILE")]
    state: Option<PathBuf>,
    /// Write what left, with CE marks (.pcap); only if the trace is a capture
    #[arg(long, value_name = "FILE")]
    pcap_out: Option<PathBuf>,
    /// Print the summary as JSON
    #[arg(long)]
    json: bool,
}

/// What a queue sees of a flow.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum FlowHash {
    /// A hash under the seed, as on a live router
    Seeded,
    /// The flow's number: flow f is in bucket f mod `flows`
    Flow,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The replay failed.
    #[error(transparent)]
    Replay(#[from] ReplayError),
    /// Ctrl-C cannot be caught.
    #[error("cannot catch Ctrl-C: {0}")]
    Signal(#[from] ctrlc::Error),
    /// Standard output cannot be written.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] std::io::Error),
}

/// Replays the trace and prints a summary. Ctrl-C ends it at once and leaves no unfinished files.
///
/// # Errors
/// [`Error`]: what is wrong with the trace, or which file cannot be written.
pub fn run(args: Args) -> Result<ExitCode, Error> {
    let job = Job {
        trace: args.trace,
        queue: args.queue,
        rate: args.rate,
        hash: match args.hash {
            FlowHash::Seeded => Hash::Seeded,
            FlowHash::Flow => Hash::Flow,
        },
        seed: args.seed,
        outputs: Outputs {
            rows: args.out,
            state: args.state,
            capture: args.pcap_out,
        },
    };
    let outputs = job.outputs.clone();
    ctrlc::set_handler(move || {
        outputs.discard();
        std::process::exit(INTERRUPTED);
    })?;
    // Nothing is drawn where standard error is no terminal.
    let bar = ProgressBar::new(0).with_style(
        ProgressStyle::with_template("{bar:40} {percent:>3} % of {total_bytes}, {eta} left")
            .expect("the template is right"),
    );
    let summary = replay::run(&job, &mut |read, size| {
        bar.set_length(size);
        bar.set_position(read);
    });
    bar.finish_and_clear();
    let summary = summary?;
    for warning in &summary.warnings {
        eprintln!("sluice: {}: {warning}", job.trace.display());
    }
    let text = if args.json {
        format!("{:#}\n", summary.to_json())
    } else {
        summary.to_string()
    };
    crate::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// The customary status after SIGINT.
const INTERRUPTED: i32 = 130;
