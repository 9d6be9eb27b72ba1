//! `sluice bench`: measures the packet path on this machine.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::spin::SpinWord;
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use indicatif::{ProgressBar, ProgressStyle};
use sluice_bench::{self as bench, BenchError, BenchPlan, CONTENDERS, METRICS, Progress, Section};
use sluice_core::{Span, Stop};

/// What to measure.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Measure everything once, for a short time
    #[arg(long)]
    quick: bool,
    /// Measure only these: path, time, shaped, overload, cores, or a forwarding method (kernel,
    /// bridge, "raw socket", packet, tun, "packet fq_codel", "packet 2 workers" ...), with kernel
    /// forwarding for comparison
    #[arg(long, value_name = "WHAT", value_delimiter = ',',
          add = ArgValueCandidates::new(measured))]
    only: Vec<String>,
    /// Measure only these figures of the forwarding methods, by their names in the JSON
    /// (cubic_4_gbps, plain_cubic_1_gbps, udp_64_clean_kpps ...)
    #[arg(long, value_name = "FIGURE", value_delimiter = ',',
          add = ArgValueCandidates::new(metrics))]
    figures: Vec<String>,
    /// Number of measurements of each forwarding method [default: 3; with --quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// How to wait for due packets: sleep, busy-poll for the last microseconds, or busy-poll always
    #[arg(long, value_enum, default_value_t = SpinWord::Adaptive)]
    spin: SpinWord,
    /// Give the loop real-time priority in the path section too, as in the other sections and in a
    /// router: more exact, but reduces throughput if hosts run on the same cores
    #[arg(long)]
    real_time: bool,
    /// Pin Sluice's workers to these cores, one core each in turn (0,1 ...). In the time section,
    /// the loop has the first of them to itself [default there: the last core]
    #[arg(long, value_name = "CORE", value_delimiter = ',')]
    cpus: Vec<usize>,
    /// Keep all cores of the machine out of idle states with a longer exit latency than this during
    /// the whole bench (20us; on a virtual machine 0us). Requires write access to
    /// /dev/cpu_dma_latency, as root has [default: no limit; the idle round trip is also measured
    /// with 0us]
    #[arg(long, value_name = "TIME", value_parser = Span::parse)]
    cpu_latency: Option<Span>,
    /// Set this on both hosts of the path section (net.ipv4.tcp_notsent_lowat=131072); may be
    /// repeated
    #[arg(long, value_name = "NAME=VALUE", value_parser = setting)]
    host_sysctl: Vec<(String, String)>,
    /// Serve each TCP flow by a thread of its own on both hosts of the path section, as iperf3 does
    /// since 3.16 [default: one thread for all flows, except in the column "threads"]
    #[arg(long)]
    thread_per_flow: bool,
    /// Write a chart of the path section to this file (.svg or .png)
    #[arg(long, value_name = "FILE")]
    chart: Option<PathBuf>,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
    /// Show no progress
    #[arg(short, long)]
    quiet: bool,
}

/// Returns the words of `--only`.
fn measured() -> Vec<CompletionCandidate> {
    let sections = Section::ALL.iter().map(|section| section.name().to_owned());
    let methods = CONTENDERS.iter().map(|contender| contender.name());
    sections
        .chain(methods)
        .map(CompletionCandidate::new)
        .collect()
}

/// Returns the words of `--figures`.
fn metrics() -> Vec<CompletionCandidate> {
    let names = METRICS.iter().map(|metric| metric.name);
    names.map(CompletionCandidate::new).collect()
}

/// A setting of a host.
fn setting(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once('=').filter(|(name, value)| {
        let is_path = name.split('.').all(|part| !part.is_empty()) && !name.contains('/');
        name.starts_with("net.") && is_path && !value.is_empty()
    });
    let (name, value) = parts.ok_or(
        "expected a setting of a network namespace and its value, such as net.ipv4.tcp_ecn=1",
    )?;
    Ok((name.to_owned(), value.to_owned()))
}

/// The reason why nothing was measured.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The word names neither a section nor a forwarding method nor a figure.
    #[error("there is no {word:?} to measure; expected {expected}")]
    Word {
        /// The word as given.
        word: String,
        /// The words that are accepted.
        expected: String,
    },
    /// The option has no effect on the sections that are measured.
    #[error(
        "{option} applies to the {sections}, which --only leaves out; add {add} or a forwarding method to --only"
    )]
    LeftOut {
        /// The option.
        option: &'static str,
        /// The sections on which it has an effect.
        sections: &'static str,
        /// What `--only` lacks.
        add: &'static str,
    },
    /// The chart's name has another ending.
    #[error("chart {}: expected a name that ends in .svg or .png", .0.display())]
    Ending(PathBuf),
    /// The bench could not run.
    #[error(transparent)]
    Bench(#[from] BenchError),
    /// The chart could not be drawn.
    #[error("cannot draw the chart: {0}")]
    Draw(String),
    /// The chart could not be written.
    #[error("cannot write {}: {error}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// Ctrl-C cannot be caught.
    #[error("cannot catch Ctrl-C: {0}")]
    Signal(io::Error),
    /// Standard output cannot be written.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
}

/// Runs the measurements and prints the figures.
///
/// # Errors
/// [`Error`].
pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let plan = plan(args)?;
    if let Some(path) = &args.chart
        && !["svg", "png"].iter().any(|ending| has_ending(path, ending))
    {
        return Err(Error::Ending(path.clone()));
    }
    bench::prepare()?;
    let interrupt = Stop::new();
    crate::run::catch_signals(&interrupt).map_err(Error::Signal)?;
    let mut bar = Bar(progress_bar(args.quiet));
    let figures = bench::run(&plan, &interrupt, &mut bar);
    bar.0.finish_and_clear();
    let figures = figures?;
    crate::print(&if args.json {
        bench::json(&figures)
    } else {
        bench::text(&figures)
    })?;
    if let Some(path) = &args.chart {
        write_chart(path, &figures)?;
    }
    if figures.is_interrupted {
        eprintln!("sluice: interrupted; the figures measured so far are above");
        return Ok(ExitCode::from(crate::run::INTERRUPTED));
    }
    Ok(ExitCode::SUCCESS)
}

fn plan(args: &Args) -> Result<BenchPlan, Error> {
    let mut plan = if args.quick {
        BenchPlan::quick()
    } else {
        BenchPlan::full()
    };
    plan.rounds = args.rounds.unwrap_or(plan.rounds);
    plan.spin = args.spin.into();
    plan.real_time = args.real_time;
    plan.cores.clone_from(&args.cpus);
    plan.cpu_latency = args.cpu_latency;
    plan.host_settings.clone_from(&args.host_sysctl);
    plan.thread_per_flow = args.thread_per_flow;
    for word in &args.figures {
        let known = METRICS.iter().map(|metric| metric.name);
        let Some(name) = known.clone().find(|name| name == word) else {
            return Err(Error::Word {
                word: word.clone(),
                expected: known.collect::<Vec<_>>().join(", "),
            });
        };
        plan.metrics.push(name);
    }
    choose(&mut plan, &args.only)?;
    let of_path = [
        ("--figures", !plan.metrics.is_empty()),
        ("--real-time", plan.real_time),
        ("--host-sysctl", !plan.host_settings.is_empty()),
        ("--thread-per-flow", plan.thread_per_flow),
        ("--chart", args.chart.is_some()),
    ];
    let given = of_path.into_iter().find(|(_, is_given)| *is_given);
    if let Some((option, _)) = given
        && !plan.sections.contains(&Section::Path)
    {
        return Err(Error::LeftOut {
            option,
            sections: "path section",
            add: "path",
        });
    }
    let in_rounds = [Section::Path, Section::Time, Section::Shaped];
    if args.rounds.is_some() && !plan.sections.iter().any(|s| in_rounds.contains(s)) {
        return Err(Error::LeftOut {
            option: "--rounds",
            sections: "path, time and shaped sections",
            add: "one of them",
        });
    }
    Ok(plan)
}

/// Reduces a plan to what `only` names; an empty `only` changes nothing.
fn choose(plan: &mut BenchPlan, only: &[String]) -> Result<(), Error> {
    if only.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = CONTENDERS.iter().map(|c| c.name()).collect();
    plan.sections.clear();
    let mut contenders = Vec::new();
    for word in only {
        if let Some(section) = Section::ALL.iter().find(|s| s.name() == word) {
            plan.sections.push(*section);
            continue;
        }
        let before = contenders.len();
        contenders.extend(names.iter().enumerate().filter_map(|(number, name)| {
            let is_meant = name == word || name.split(' ').next() == Some(word);
            is_meant.then_some(number)
        }));
        if contenders.len() == before {
            let sections = Section::ALL.map(Section::name);
            let expected: Vec<&str> = sections
                .into_iter()
                .chain(names.iter().map(String::as_str))
                .collect();
            return Err(Error::Word {
                word: word.clone(),
                expected: expected.join(", "),
            });
        }
    }
    if !contenders.is_empty() {
        // The reference is always measured with them.
        contenders.push(0);
        contenders.sort_unstable();
        contenders.dedup();
        plan.contenders = contenders;
        if !plan.sections.contains(&Section::Path) {
            plan.sections.push(Section::Path);
        }
    }
    Ok(())
}

fn write_chart(path: &Path, figures: &bench::Figures) -> Result<(), Error> {
    let drawn = if has_ending(path, "png") {
        bench::png(figures, CHART_SCALE)
            .transpose()
            .map_err(Error::Draw)?
    } else {
        bench::svg(figures).map(String::into_bytes)
    };
    let Some(drawn) = drawn else {
        eprintln!("sluice: the path section was not measured, so there is no chart");
        return Ok(());
    };
    std::fs::write(path, drawn).map_err(|error| Error::Write {
        path: path.to_owned(),
        error,
    })
}

fn has_ending(path: &Path, ending: &str) -> bool {
    path.extension()
        .is_some_and(|found| found.eq_ignore_ascii_case(ending))
}

struct Bar(ProgressBar);

impl Progress for Bar {
    fn step(&mut self, number: usize, of: usize, what: &str) {
        self.0.set_length(of as u64);
        self.0.set_position(number as u64 - 1);
        self.0.set_message(what.to_owned());
    }
}

fn progress_bar(quiet: bool) -> ProgressBar {
    if quiet {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{pos}/{len} {wide_bar} {elapsed} {msg}")
        .expect("the template is a constant");
    // Drawn on standard error, and only if that is a terminal.
    ProgressBar::new(1).with_style(style)
}

/// Pixels of a PNG per unit of the drawing.
const CHART_SCALE: f32 = 2.0;

const EXAMPLES: &str = "\
Examples:
  sluice bench --quick
  sluice bench --only path,time --json";
