//! `sluice sweep`: runs a scenario over a grid of settings, with the Python package.

use std::ffi::OsString;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;
use std::process::ExitCode;

use crate::number::{MOST_JOBS, whole};
use crate::python::{PythonError, become_package};

/// What to sweep.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Scenario (TOML)
    #[arg(value_name = "FILE")]
    scenario: PathBuf,
    /// Values of a key: a list, as in link.queue=fifo,codel, or a range, as in
    /// link.rate=1..100Mbit/s:log:9 and link.rtt=10..50ms:lin:5. Several keys are crossed
    #[arg(long, required = true, value_name = "KEY=VALUES")]
    over: Vec<String>,
    /// Override a key of the scenario, e.g. --set duration=10s
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// Run each combination this many times, with consecutive seeds
    #[arg(long, value_name = "N", default_value = "1", value_parser = whole(NonZeroU32::MIN..=NonZeroU32::MAX))]
    seeds: NonZeroU32,
    /// Number of processes [default: one per core]
    #[arg(short, long, value_name = "N", conflicts_with = "dask",
          value_parser = whole(NonZeroUsize::MIN..=MOST_JOBS))]
    jobs: Option<NonZeroUsize>,
    /// Address of a Dask scheduler, whose workers do the runs; they need the same Python package
    #[arg(long, value_name = "ADDRESS")]
    dask: Option<String>,
    /// Folder for the results; runs that are already there are not repeated [default:
    /// runs/NAME-sweep]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Show no progress
    #[arg(short, long)]
    quiet: bool,
}

/// Replaces this process by the Python package's command.
///
/// # Errors
/// [`PythonError`].
pub fn run(args: &Args) -> Result<ExitCode, PythonError> {
    Err(become_package(words(args)))
}

/// Returns the words of the command.
fn words(args: &Args) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec!["sweep".into()];
    // With `=`, no value can be mistaken for an option.
    let mut option = |name: &str, value: &dyn AsRef<std::ffi::OsStr>| {
        let mut word = OsString::from(format!("--{name}="));
        word.push(value);
        words.push(word);
    };
    for over in &args.over {
        option("over", over);
    }
    for set in &args.sets {
        option("set", set);
    }
    option("seeds", &args.seeds.to_string());
    if let Some(jobs) = args.jobs {
        option("jobs", &jobs.to_string());
    }
    if let Some(address) = &args.dask {
        option("dask", address);
    }
    if let Some(folder) = &args.output {
        option("output", folder);
    }
    if args.quiet {
        words.push("--quiet".into());
    }
    words.extend(["--".into(), args.scenario.clone().into()]);
    words
}

const EXAMPLES: &str = "\
Examples:
  sluice sweep a.toml --over link.queue=fifo,fq_codel
  sluice sweep a.toml --over link.rate=1..100Mbit/s:log:9 --seeds 5";
