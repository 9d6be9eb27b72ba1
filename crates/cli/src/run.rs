//! `sluice run`: runs scenarios and prints their results.

use std::fmt::Write as _;
use std::io;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use sluice_core::{Span, Stop};
use sluice_http::Address;
use sluice_lab::agreement;
use sluice_lab::suite::{
    Backends, Executed, Experiment, Failure, Options, PlanError, PrepareError, Progress, Request,
    Suite, execute,
};
use sluice_lab::table;
use sluice_recording::expect::Outcome;
use sluice_recording::results::VariantResult;
use sluice_recording::{
    FolderLock, Keep, PAGE, RecordError, Recording, other_repetitions, outdated_runs,
    repetitions_in_words, settle_abandoned,
};
use sluice_report::export::figures::tidy;
use sluice_report::index::write_index;
use sluice_report::pages::{HtmlPages, write_own};
use sluice_report::picture::PlannedRun;
use sluice_router::process::watch::Watcher;
use sluice_scenario::Backend;

use crate::board::Runs;
use crate::failures::say_failures;
use crate::number::{MOST_JOBS, whole};
use crate::page::{self, Page};
use crate::pictures::{Pictures, PicturesError};
use crate::progress::Bars;
use crate::report::say_outdated;

/// What to run.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Scenarios (TOML), and folders of them; docs/scenario.md lists their keys
    #[arg(required = true, value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,
    /// Override a key of the scenarios, e.g. --set link.rate=1Mbit/s
    #[arg(long = "set", value_name = "KEY=VALUE")]
    sets: Vec<String>,
    /// Backend for all scenarios [default: the scenario's `backend`, else sim]
    #[arg(long, value_enum, value_name = "BACKEND")]
    backend: Option<BackendWord>,
    /// Run each variant this many times, with consecutive seeds, and report medians and spread
    #[arg(long, value_name = "N", default_value = "1", value_parser = whole(NonZeroU32::MIN..=NonZeroU32::MAX))]
    repeat: NonZeroU32,
    /// Seed of all random numbers; the same as --set seed=N
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Folder for the recordings and the report [default: runs/NAME]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Run everything, including runs already recorded from the same scenario and program, and replace
    /// live runs of other settings
    #[arg(long)]
    fresh: bool,
    /// What to record: figures; flows, with the samples of flows and queues; or packets, with every
    /// packet [default: packets; figures for a scenario with more than 50 runs]
    #[arg(long, value_name = "LEVEL", value_parser = Keep::from_word)]
    record: Option<Keep>,
    /// Write report pages also with --json, and for scenarios with more than 16 runs [default: `sluice
    /// report DIR` draws them later]
    #[arg(long)]
    report: bool,
    /// Also run simulations that would take very long or much memory
    #[arg(short, long)]
    yes: bool,
    /// Number of simulations at a time [default: one per core]
    #[arg(short, long, value_name = "N", value_parser = whole(NonZeroUsize::MIN..=MOST_JOBS))]
    jobs: Option<NonZeroUsize>,
    /// Pin the router of live runs to this core (CPU affinity)
    #[arg(long, value_name = "CORE")]
    cpu: Option<usize>,
    /// Keep all cores of the machine out of idle states with a longer exit latency than this during
    /// live runs (20us; on a virtual machine 0us, since the hypervisor's own latency is unknown).
    /// Hosts and router wake up sooner, but the machine uses more power; with 0us, cores are never
    /// idle. Requires write access to /dev/cpu_dma_latency, as root has [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = Span::parse)]
    cpu_latency: Option<Span>,
    /// Serve a page with the progress of the runs, live charts of the current live run, and the
    /// reports of finished runs, at IP:PORT or unix:PATH
    #[arg(long, value_name = "ADDRESS")]
    http: Option<Address>,
    /// File with the token that clients must send; required unless --http is a loopback address or a
    /// Unix socket
    #[arg(long, value_name = "FILE", requires = "http")]
    http_token: Option<PathBuf>,
    /// Only check whether everything could be run
    #[arg(long)]
    check: bool,
    /// Print the figures as JSON
    #[arg(long, conflicts_with = "check")]
    json: bool,
    /// Show no progress
    #[arg(short, long)]
    quiet: bool,
}

/// The backends.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum BackendWord {
    /// The simulator: virtual time, reproducible results, no privilege
    Sim,
    /// Kernel TCP through a queue in this process, in network namespaces
    Live,
    /// Both, side by side with their differences
    Both,
}

/// The reason why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The scenarios cannot be planned.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The only scenario cannot be run.
    #[error("{0}")]
    Scenario(Box<dyn std::error::Error + Send + Sync>),
    /// The process cannot be prepared for live runs.
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    /// The folder of an older run.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// A picture of the scenario cannot be drawn from its runs.
    #[error(transparent)]
    Pictures(#[from] PicturesError),
    /// The page with the progress cannot be served.
    #[error(transparent)]
    Http(#[from] page::Error),
    /// Ctrl-C cannot be caught.
    #[error("cannot catch Ctrl-C: {0}")]
    Signal(io::Error),
    /// Standard output cannot be written.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
}

/// Runs all variants of all scenarios.
///
/// # Errors
/// [`Error`]. Everything that can be checked is checked before the first run starts.
pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let mut suite = request(args).plan()?;
    crate::python::has_begun();
    let is_live = suite.is_live();
    let limit = suite.prepare(args.cpu_latency)?;
    suite.check(args.yes);
    // A check says only what can be run.
    let replaced = match args.fresh || args.check {
        true => Vec::new(),
        false => suite.keep_live_runs(),
    };
    if suite.is_empty() && suite.failures.len() == 1 {
        let failure = suite.failures.remove(0);
        return Err(Error::Scenario(failure.error));
    }
    let of_live_runs = [
        ("--cpu", args.cpu.is_some()),
        ("--cpu-latency", args.cpu_latency.is_some()),
    ];
    for (option, _) in of_live_runs.iter().filter(|(_, given)| *given && !is_live) {
        eprintln!(
            "sluice: warning: {option} applies to live runs only, and none of these runs is live"
        );
    }
    say_warnings(&suite.warnings(), args.check);
    say_time(&suite, args.jobs);
    if args.record.is_none() {
        say_figures_only(&suite);
    }
    // A check says nothing about the number of repetitions.
    let repeat = (!args.check).then(|| args.repeat.get());
    let pictures = load_pictures(&suite, repeat, args.record)?;
    if args.check {
        return say_checked(&suite);
    }
    for words in &replaced {
        eprintln!("sluice: {words}");
    }
    // Held until the end.
    let folders = suite.experiments.iter().map(|one| &one.output);
    let _locks: Vec<FolderLock> = folders
        .map(|folder| FolderLock::take(folder))
        .collect::<Result<_, _>>()?;
    for experiment in &suite.experiments {
        for left in settle_abandoned(&experiment.output)? {
            eprintln!(
                "sluice: {} was left by a run that was killed; marked as partial",
                left.display()
            );
        }
    }
    let interrupt = Stop::new();
    catch_signals(&interrupt).map_err(Error::Signal)?;
    let bars = Bars::new(&suite, args.quiet);
    let runs = Arc::new(Runs::new(&suite));
    let prepared = page::prepare(&Page::at(args.http.clone(), args.http_token.clone()), false)?;
    let server = prepared.map(|page| page.show_runs(Arc::clone(&runs) as _));
    let server = server.transpose()?;
    if let Some(server) = &server {
        eprintln!("sluice: progress at {}", server.address());
    }
    let options = Options {
        is_fresh: args.fresh,
        threads: args.jobs,
        core: args.cpu,
        is_watched: server.is_some(),
        keep: args.record,
        pages: (args.report || !args.json).then_some(&HtmlPages as _),
        has_all_pages: args.report,
        interrupt: &interrupt,
        watch: &|progress| {
            if let (Progress::Watched(_, watcher), Some(server)) = (&progress, &server) {
                server.watch(Watcher::clone(watcher));
            }
            runs.tell(&progress);
            bars.tell(&progress);
        },
    };
    let executed = execute(&suite, &options);
    drop(limit);
    drop(bars);
    runs.end();
    let concluded = conclude(args, suite, executed, &pictures);
    if let Some(server) = server {
        server.finish();
    }
    concluded
}

fn request(args: &Args) -> Request {
    let seed = args.seed.map(|seed| format!("seed={seed}"));
    Request {
        paths: args.paths.clone(),
        sets: args.sets.iter().cloned().chain(seed).collect(),
        backends: args.backend.map(|word| match word {
            BackendWord::Sim => Backends::One(Backend::Sim),
            BackendWord::Live => Backends::One(Backend::Live),
            BackendWord::Both => Backends::Both,
        }),
        repeat: args.repeat.get(),
        output: args.output.clone(),
    }
}

/// Prints the warnings: all of them for a check, else the first few.
fn say_warnings(warnings: &[String], is_check: bool) {
    let shown = match is_check || warnings.len() <= MOST_WARNINGS {
        true => warnings.len(),
        false => MOST_WARNINGS - 1,
    };
    for warning in &warnings[..shown] {
        eprintln!("sluice: warning: {warning}");
    }
    if let more @ 1.. = warnings.len() - shown {
        eprintln!("sluice: {more} more warnings: `sluice run --check` prints all");
    }
}

/// The most lines of warnings before the runs start.
const MOST_WARNINGS: usize = 5;

/// Says how long the runs will take, if that is long.
fn say_time(suite: &Suite, threads: Option<NonZeroUsize>) {
    let (packets, live) = suite.cost();
    let cores = || thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let threads = threads.unwrap_or_else(cores).get().min(suite.len()).max(1);
    let simulated = Span::from_us(packets / threads as u64);
    if simulated >= LONG {
        eprintln!(
            "sluice: the simulations send up to {packets} packets, which takes about {} on {}",
            in_words(simulated),
            count(threads, "core")
        );
    }
    if live >= LONG {
        eprintln!("sluice: the live runs take {}", in_words(live));
    }
}

/// The time from which on it is said before the runs start.
const LONG: Span = Span::from_secs(120);

/// Formats a time of some minutes or more.
fn in_words(time: Span) -> String {
    let minutes = time.as_ns().div_ceil(60_000_000_000);
    match minutes {
        0..120 => format!("{minutes} min"),
        _ => format!("{} h", minutes.div_ceil(60)),
    }
}

/// Names the scenarios that have too many runs to record more than their figures by default.
fn say_figures_only(suite: &Suite) {
    for experiment in &suite.experiments {
        if experiment.keep(None) == Keep::Figures {
            let runs = count(experiment.runs.len(), "run");
            eprintln!(
                "sluice: {}: of its {runs}, only the figures are recorded (--record packets records \
                 everything)",
                experiment.name
            );
        }
    }
}

fn say_checked(suite: &Suite) -> Result<ExitCode, Error> {
    let scenarios = suite.experiments.len();
    crate::print(&format!(
        "{} of {} can be run\n",
        count(suite.len(), "run"),
        count(scenarios, "scenario")
    ))?;
    Ok(match say_failures(&suite.failures) {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

/// Prints the figures and returns the exit status, which is a failure if an expectation was not met, or
/// something could not be run, drawn or written.
fn conclude(
    args: &Args,
    suite: Suite,
    executed: Vec<Executed>,
    pictures: &[Pictures],
) -> Result<ExitCode, Error> {
    let planned = suite.len();
    let mut text = String::new();
    let mut all: Vec<VariantResult> = Vec::new();
    let mut failures = suite.failures;
    let mut missing = 0;
    let mut remarks = Vec::new();
    for ((experiment, executed), pictures) in suite.experiments.iter().zip(executed).zip(pictures) {
        say_outdated(&outdated_runs(&experiment.output));
        if let Some(words) = repetitions_in_words(&other_repetitions(&experiment.output)) {
            eprintln!("sluice: warning: {words}");
        }
        if suite.is_many && !executed.results.is_empty() {
            let _ = writeln!(text, "{}", experiment.name);
        }
        if !executed.results.is_empty() {
            text.push_str(&table::text(&executed.results));
            let both = agreement::agreements(&executed.results);
            if !both.is_empty() {
                let _ = write!(text, "\n{}", agreement::text(&both).trim_end());
                text.push('\n');
            }
            let page = experiment.output.join(PAGE);
            let page = match page.is_file() {
                true => page.display().to_string(),
                false => format!("`sluice report {}` draws it", experiment.output.display()),
            };
            let _ = writeln!(text, "\n{}report: {page}", reused(&executed));
            failures.extend(write_figures(experiment, &executed.results));
            // Pictures of a sweep would mislead without some of its runs.
            if executed.missing == 0 && executed.failures.is_empty() {
                let (files, failed) = draw_pictures(experiment, &executed.results, pictures);
                for path in files {
                    let _ = writeln!(text, "picture: {}", path.display());
                }
                failures.extend(failed);
            }
            if suite.is_many {
                text.push('\n');
            }
        }
        missing += executed.missing;
        remarks.extend(executed.remarks);
        failures.extend(executed.failures);
        all.extend(executed.results);
    }
    if !all.is_empty() {
        text.push_str(&write_indexes(args, &suite.root, suite.is_many));
    }
    crate::print(&if args.json { table::json(&all) } else { text })?;

    say_warnings(&remarks, false);
    let failed = say_failures(&failures);
    let unmet: Vec<(&VariantResult, &Outcome)> = all
        .iter()
        .flat_map(|result| result.failed().map(move |outcome| (result, outcome)))
        .collect();
    // The tables have already shown it. For a folder, the list at the end names the scenarios.
    if args.json {
        for (result, outcome) in &unmet {
            let outcome = outcome.text(Some(result.backend));
            eprintln!("sluice: {}: {outcome}", result.scenario);
        }
    } else if suite.is_many {
        for experiment in &suite.experiments {
            let of_it = unmet
                .iter()
                .filter(|(result, _)| result.scenario == experiment.name);
            match of_it.count() {
                0 => {}
                n => eprintln!(
                    "sluice: {}: {} not met",
                    experiment.name,
                    count(n, "expectation")
                ),
            }
        }
    }
    if !unmet.is_empty() {
        eprintln!(
            "sluice: {} not met; see {}",
            count(unmet.len(), "expectation"),
            suite.root.display()
        );
    }
    let stopped: Vec<&VariantResult> = all
        .iter()
        .filter(|result| result.stopped().next().is_some())
        .collect();
    for result in &stopped {
        eprintln!(
            "sluice: {}: the figures of `{}` are not those of its queue, which an error stopped{}",
            result.scenario,
            result.variant,
            match result.stopped().next().filter(|_| args.json) {
                Some(why) => format!(": {why}"),
                None => String::new(),
            }
        );
    }
    if missing > 0 {
        eprintln!(
            "sluice: interrupted: {missing} of {planned} runs are missing or partial; the recorded data is kept"
        );
        return Ok(ExitCode::from(INTERRUPTED));
    }
    Ok(match (failed, unmet.len(), stopped.len()) {
        (0, 0, 0) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    })
}

/// Reads the pictures of all scenarios, and checks that they can be drawn of runs that are recorded at
/// the level `record`, or at the scenario's default.
fn load_pictures(
    suite: &Suite,
    repeat: Option<u32>,
    record: Option<Keep>,
) -> Result<Vec<Pictures>, Error> {
    let load = |experiment: &Experiment| {
        let pictures = Pictures::load(&experiment.file)?;
        let runs = experiment.runs.iter();
        let runs: Vec<PlannedRun<'_>> = runs.map(|run| (&run.variant, run.backend)).collect();
        pictures.check(&runs, repeat, experiment.keep(record))?;
        Ok(pictures)
    };
    suite.experiments.iter().map(load).collect()
}

/// Writes the table of all figures of all runs. As in an export of the folder, the scenario is named by its
/// title, which is all that recordings have.
fn write_figures(experiment: &Experiment, results: &[VariantResult]) -> Option<Failure> {
    let path = experiment.output.join(FIGURES);
    let title = experiment.runs.first();
    let title = title.map(|run| run.variant.scenario.title.as_str());
    let written = write_own(&path, tidy(results, title).as_bytes());
    written.err().map(|error| failure(experiment, error))
}

/// The name of the table in the folder of a scenario's runs.
const FIGURES: &str = "figures.csv";

/// Draws the pictures of a scenario. Returns their files, and the failures: a picture that cannot be
/// drawn or written costs no other.
fn draw_pictures(
    experiment: &Experiment,
    results: &[VariantResult],
    pictures: &Pictures,
) -> (Vec<PathBuf>, Vec<Failure>) {
    if pictures.is_empty() {
        return (Vec::new(), Vec::new());
    }
    let runs = results.iter().flat_map(|result| &result.runs);
    let opened = runs.map(|run| Recording::open(&run.folder));
    let recordings = match opened.collect::<Result<Vec<Recording>, _>>() {
        Ok(recordings) => recordings,
        Err(error) => return (Vec::new(), vec![failure(experiment, error)]),
    };
    let all: Vec<&Recording> = recordings.iter().collect();
    let (drawn, mut failures) = pictures.draw(&all, &experiment.output);
    let mut files = Vec::new();
    for (path, content) in drawn {
        match write_own(&path, &content) {
            Ok(()) => files.push(path),
            Err(error) => failures.push(failure(experiment, error)),
        }
    }
    (files, failures)
}

fn failure(
    experiment: &Experiment,
    error: impl std::error::Error + Send + Sync + 'static,
) -> Failure {
    Failure {
        what: experiment.file.display().to_string(),
        error: error.into(),
    }
}

/// Writes the page over all runs of a suite and the page over everything in `runs`, and prints
/// their places. An older run that cannot be read does not make this one fail.
fn write_indexes(args: &Args, root: &Path, is_many: bool) -> String {
    let mut text = String::new();
    let of_suite = is_many.then_some(root);
    let all = Path::new("runs");
    // Of several scenarios without a common folder, the suite is everything in `runs`.
    let of_all = (args.output.is_none() && of_suite != Some(all)).then_some(all);
    for folder in of_suite.into_iter().chain(of_all) {
        match write_index(folder) {
            Ok(page) => {
                let _ = writeln!(text, "index: {}", page.display());
            }
            Err(error) => eprintln!(
                "sluice: cannot write the index of {}: {error}",
                folder.display()
            ),
        }
    }
    text
}

/// Prints which runs were reused.
fn reused(executed: &Executed) -> String {
    let runs = || executed.results.iter().flat_map(|result| &result.runs);
    let reused = runs().filter(|run| run.reused).count();
    match reused {
        0 => String::new(),
        n => format!(
            "{n} of {} reused: same scenario, seed and program (--fresh runs them again)\n",
            count(runs().count(), "run")
        ),
    }
}

fn count(n: usize, what: &str) -> String {
    match n {
        1 => format!("1 {what}"),
        n => format!("{n} {what}s"),
    }
}

/// The first Ctrl-C ends the runs in order, the second at once: the kernel frees the namespaces.
pub(crate) fn catch_signals(interrupt: &Stop) -> io::Result<()> {
    let interrupt = interrupt.clone();
    crate::signals::on_end(move || {
        if interrupt.is_stopped() {
            std::process::exit(i32::from(INTERRUPTED));
        }
        interrupt.stop();
    })
}

/// The conventional exit status after SIGINT.
pub(crate) const INTERRUPTED: u8 = 130;

const EXAMPLES: &str = "\
Examples:
  sluice run scenarios/first-light.toml
  sluice run a.toml --set link.queue=fq_codel --repeat 5 -o runs/a";
