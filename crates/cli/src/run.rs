//! `sluice run`: carries out a scenario and says what came out.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use indicatif::{ProgressBar, ProgressStyle};
use sluice_lab::expect::Outcome;
use sluice_lab::recording::{RecordError, settle_abandoned};
use sluice_lab::run::{self, Finished, RunError};
use sluice_lab::scenario::{Backend, Scenario, ScenarioErrors, Variant};
use sluice_lab::table;
use sluice_net::namespace::{Privilege, PrivilegeError, enter_user_namespace};
use sluice_net::traffic::Stop;

use crate::report::{self, ReportError};

/// What to run.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The scenario (TOML); docs/scenario.md lists its keys
    file: PathBuf,
    /// Override a key of the scenario, e.g. --set link.rate=1Mbit/s
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// What carries it out: real packets in namespaces of its own, or virtual time
    /// [default: the scenario's `backend`, else live]
    #[arg(long, value_enum, value_name = "BACKEND")]
    backend: Option<BackendWord>,
    /// Folder for the recordings and the report [default: runs/NAME-OF-THE-FILE]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
    /// Show no progress
    #[arg(short, long)]
    quiet: bool,
}

/// The words for a backend.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum BackendWord {
    /// Kernel TCP across a queue in this process
    Live,
    /// The simulator
    Sim,
}

/// Why nothing came out.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The scenario is wrong.
    #[error(transparent)]
    Scenario(#[from] ScenarioErrors),
    /// No user namespace.
    #[error(transparent)]
    Privilege(#[from] PrivilegeError),
    /// The folder of an older run.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A variant could not be carried out.
    #[error("{variant}: {error}")]
    Run {
        /// Which variant.
        variant: String,
        /// Why.
        error: Box<RunError>,
    },
    /// Something that every variant needs is missing.
    #[error(transparent)]
    Check(Box<RunError>),
    /// The report could not be made.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// Ctrl-C cannot be caught.
    #[error("cannot catch Ctrl-C: {0}")]
    Signal(#[from] ctrlc::Error),
    /// Standard output cannot be written.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] std::io::Error),
}

/// Runs all variants, one after another.
///
/// # Errors
/// [`Error`]. Before the first variant starts, everything that can be checked has been.
pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let variants = Scenario::load(&args.file, &args.sets)?;
    let backend = match args.backend {
        Some(BackendWord::Live) => Backend::Live,
        Some(BackendWord::Sim) => Backend::Sim,
        // The matrix varies no backend: all variants have the scenario's.
        None => variants
            .first()
            .and_then(|variant| variant.scenario.backend)
            .unwrap_or(Backend::Live),
    };
    // Only a process with one thread may enter a user namespace.
    if backend == Backend::Live && Privilege::probe() == Privilege::UserNamespace {
        enter_user_namespace()?;
    }
    run::check(&variants, backend).map_err(|error| Error::Check(Box::new(error)))?;
    let output = args
        .output
        .clone()
        .unwrap_or_else(|| default_output(&args.file));
    for left in settle_abandoned(&output)? {
        eprintln!(
            "sluice: {} was left by a run that was killed; marked as partial",
            left.display()
        );
    }
    let interrupt = Stop::new();
    catch_signals(&interrupt)?;

    let mut finished: Vec<Finished> = Vec::new();
    for (number, variant) in variants.iter().enumerate() {
        let dir = output.join(variant.folder());
        let bar = progress_bar(args, variant, number, variants.len());
        let started_at = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        let result = run::run(
            variant,
            backend,
            &dir,
            started_at,
            &interrupt,
            &mut |elapsed| {
                bar.set_position(elapsed.as_ns() / NS_PER_MS);
            },
        );
        bar.finish_and_clear();
        let result = result.map_err(|error| Error::Run {
            variant: variant.name.clone(),
            error: Box::new(error),
        })?;
        let is_interrupted = result.is_interrupted;
        finished.push(result);
        if is_interrupted {
            break;
        }
    }
    let page = report::write(&finished, &output)?;
    conclude(args, finished, variants.len(), &page)
}

/// Prints the figures; the exit status tells whether everything went as expected.
fn conclude(
    args: &Args,
    finished: Vec<Finished>,
    planned: usize,
    page: &Path,
) -> Result<ExitCode, Error> {
    let is_interrupted = finished.iter().any(|f| f.is_interrupted);
    let done = finished.len();
    let results: Vec<_> = finished.into_iter().map(|f| f.result).collect();
    let mut text = if args.json {
        table::json(&results)
    } else {
        table::text(&results)
    };
    if !args.json {
        text.push_str(&format!("\nreport: {}\n", page.display()));
    }
    crate::print(&text)?;
    if is_interrupted {
        eprintln!("sluice: interrupted in run {done} of {planned}; what was recorded is kept");
        return Ok(ExitCode::from(INTERRUPTED));
    }
    let failed: Vec<&Outcome> = results
        .iter()
        .flat_map(|result| &result.expect)
        .filter(|outcome| !outcome.passed)
        .collect();
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    for outcome in &failed {
        eprintln!("sluice: {outcome}");
    }
    eprintln!(
        "sluice: {} of the scenario's expectations failed; see {}",
        failed.len(),
        page.display()
    );
    Ok(ExitCode::FAILURE)
}

fn default_output(file: &Path) -> PathBuf {
    Path::new("runs").join(file.file_stem().unwrap_or(file.as_os_str()))
}

/// The first Ctrl-C ends the run in order, the second at once: the kernel frees the namespaces.
pub(crate) fn catch_signals(interrupt: &Stop) -> Result<(), ctrlc::Error> {
    let interrupt = interrupt.clone();
    ctrlc::set_handler(move || {
        if interrupt.is_stopped() {
            std::process::exit(i32::from(INTERRUPTED));
        }
        interrupt.stop();
    })
}

fn progress_bar(args: &Args, variant: &Variant, number: usize, planned: usize) -> ProgressBar {
    if args.quiet {
        return ProgressBar::hidden();
    }
    let duration = variant.scenario.duration;
    let style = ProgressStyle::with_template("{prefix} {wide_bar} {msg}")
        .expect("the template is a constant");
    // Drawn to standard error, and only if that is a terminal.
    ProgressBar::new(duration.as_ns() / NS_PER_MS)
        .with_style(style)
        .with_prefix(format!("{}/{planned} {}", number + 1, variant.name))
        .with_message(duration.to_string())
}

const NS_PER_MS: u64 = 1_000_000;
/// The customary status after SIGINT.
pub(crate) const INTERRUPTED: u8 = 130;
