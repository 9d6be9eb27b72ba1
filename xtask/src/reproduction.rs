//! A page of evidence: published figures and numbers, compared with the results of our runs,
//! simulated and live.
//!
//! One TOML file declares the comparisons, so that adding an experiment is adding a table:
//!
//! ```toml
//! [[experiment]]
//! name = "s1"                              # of its pictures
//! title = "One NewReno flow over CoDel"
//! source = "TR 160226A, section VI.A.1, figure 2"
//! shown = "Throughput stays near the rate."  # the published result, in a sentence
//! why = "Same parameters and arithmetic."    # why ours agrees or differs
//! claims = ["bulk.srtt.p50@codel > 20ms"]  # what `why` says, as comparisons (`claims.rs`)
//! runs = ["seeds/s1/codel"]                # folders of runs, below the folder of all runs
//! figures = ["flows"]                      # kinds of picture of these runs together
//! [[experiment.number]]
//! what = "goodput"
//! published = "about 9.5 Mbit/s"
//! metric = "bulk.goodput"                  # a figure of docs/metrics.md
//! run = "seeds/s1/codel"                   # default: the first of `runs`
//! why = "Headers are not counted."         # default: the `why` of the experiment
//! claims = ["value < 10Mbit/s"]
//! ```
//!
//! Each `why` about runs has claims. They are checked on both backends. A claim that does not hold
//! is an error, but the page is written nevertheless, to show the figures.
//!
//! An experiment that no scenario can describe has `measured = "FILE"`, a JSON file beside the list
//! with `methods.NAME.FIGURE = [median, least, most]`, and a table `FILE.md` and a picture that its
//! own command makes. Its claims name the figures as `FIGURE@NAME`.
//!
//! The live run of a folder `R` is the folder `R.live`, as `sluice run --backend both` writes it.
//! Further runs of either with other seeds, which `--repeat` writes to `R.seed-N` and
//! `R.live.seed-N`, turn a figure into a median with its smallest and largest value.
//!
//! Live runs are not repeated by everyone who makes the page. Their `run.json` and `summary.json` are
//! kept in `reproduction/live` beside the list (`--keep` copies them there), and are used where the
//! folder of all runs has no live run. Their pictures stay as they are.
//!
//! The runs may be of different programs, so that simulations can be repeated while live runs are
//! kept. The page names the program of each run; a live run of another scenario than its simulation
//! is an error.

mod claims;
mod folders;
mod provenance;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use toml::Spanned;

use claims::{Claim, ClaimError, Measured, Row};
pub use folders::keep;
use folders::{Below, Folders, folder};
use provenance::Provenance;
use sluice_recording::figures::rounded;
use sluice_recording::metrics::measure;
use sluice_recording::{ReadError, Recording, Status};
use sluice_report::model::Report;
use sluice_report::report_of::report_of;
use sluice_report::{self as report, Figure, FigureError, FigureKind, FlowLines};
use sluice_scenario::Scenario;
use sluice_scenario::metric::Metric;

/// The comparisons.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evidence {
    /// The text below the page's title. `{lateness}` stands for the lateness of the live runs.
    pub introduction: String,
    /// One section for each.
    pub experiment: Vec<Experiment>,
    /// The file, in which claims have their places.
    #[serde(skip)]
    text: String,
}

impl Evidence {
    /// Returns the number of the line with the byte at `offset`.
    fn line(&self, offset: usize) -> usize {
        1 + self.text[..offset].matches('\n').count()
    }
}

/// A published experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// The prefix of its figures' files.
    pub name: String,
    /// The section's heading.
    pub title: String,
    /// The publication.
    pub source: String,
    /// The published result, in a sentence.
    pub shown: String,
    /// The reason why ours agrees or differs, in a sentence.
    pub why: String,
    /// The statements of `why` about figures, to be checked.
    #[serde(default)]
    pub claims: Vec<Spanned<String>>,
    /// Folders of runs, below the folder of all runs.
    pub runs: Vec<PathBuf>,
    /// Kinds of figures.
    #[serde(default)]
    pub figures: Vec<FigureKind>,
    /// File with the figures of a command of its own, beside the list; a table of the same name with
    /// the ending `.md` belongs to it.
    pub measured: Option<PathBuf>,
    /// A picture that is there already, by its name in `images/reproduction`.
    pub picture: Option<String>,
    /// How often live runs were repeated, and why.
    #[serde(default)]
    pub repeated: String,
    /// Numbers to compare.
    #[serde(default)]
    pub number: Vec<Number>,
    /// Further remarks, as Markdown at the end.
    #[serde(default)]
    pub more: String,
}

/// A published number, or one that follows from a publication.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Number {
    /// The quantity.
    pub what: String,
    /// The published value; a dash where only a figure was published.
    pub published: String,
    /// Our figure.
    pub metric: String,
    /// The run; the first one of the experiment by default.
    pub run: Option<PathBuf>,
    /// The reason why ours agrees or differs, if the experiment's reason does not apply.
    #[serde(default)]
    pub why: String,
    /// The statements of `why` about figures, to be checked.
    #[serde(default)]
    pub claims: Vec<Spanned<String>>,
}

/// The reason why no page was written.
#[derive(Debug, thiserror::Error)]
pub enum ReproductionError {
    /// A file cannot be read.
    #[error("cannot read `{}`: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
    /// The list is malformed.
    #[error("`{}`: {error}", path.display())]
    List {
        /// The file.
        path: PathBuf,
        /// The error, with line and column.
        error: Box<toml::de::Error>,
    },
    /// A file of measured figures is malformed.
    #[error("`{}`: {error}", path.display())]
    Measured {
        /// The file.
        path: PathBuf,
        /// The error, with line and column.
        error: serde_json::Error,
    },
    /// A run cannot be read.
    #[error(transparent)]
    Run(#[from] ReadError),
    /// A figure cannot be drawn.
    #[error("experiment `{name}`: {error}")]
    Figure {
        /// The experiment.
        name: String,
        /// The error.
        error: FigureError,
    },
    /// A run has no such figure.
    #[error("experiment `{name}`: `{metric}` is not a figure of `{}`: {reason}", run.display())]
    Metric {
        /// The experiment.
        name: String,
        /// The figure.
        metric: String,
        /// The run.
        run: PathBuf,
        /// The error.
        reason: String,
    },
    /// No run exists.
    #[error(
        "none of the runs that `{}` names exists in `{}`: `sluice run DIR --backend both -o {}` makes them",
        list.display(), runs.display(), runs.display()
    )]
    NoRuns {
        /// The list.
        list: PathBuf,
        /// The folder that was searched.
        runs: PathBuf,
    },
    /// A live run has another scenario than the simulation that it would be compared with.
    #[error(
        "`{}` is a run of another scenario than `{}`: `sluice compare` of both shows what differs; \
         run the older of the two again",
        run.display(), other.display()
    )]
    Scenario {
        /// The live run.
        run: PathBuf,
        /// The simulated one.
        other: PathBuf,
    },
    /// A sentence has no claims to check.
    #[error("{at}: `why` has no claims: {why}")]
    Unchecked {
        /// The experiment and the row.
        at: String,
        /// The sentence.
        why: String,
    },
    /// Claims that are malformed or do not hold.
    #[error("{}", .0.join("\n"))]
    Claims(Vec<String>),
    /// A file cannot be written.
    #[error("cannot write `{}`: {error}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        error: io::Error,
    },
}

/// The backends, with the endings of their folders' names.
const BACKENDS: [(&str, &str); 2] = [("sim", ""), ("live", folders::LIVE)];

/// Checks the claims in `list` about the runs below `runs`, without a page. Returns the number of
/// claims that were compared with figures.
///
/// # Errors
/// [`ReproductionError`].
pub fn check(list: &Path, runs: &Path) -> Result<usize, ReproductionError> {
    check_claims(list, &read(list, runs)?, &Folders::of(list, runs))
}

/// Checks all claims, and reports all that do not hold.
fn check_claims(
    list: &Path,
    evidence: &Evidence,
    folders: &Folders<'_>,
) -> Result<usize, ReproductionError> {
    let all_runs: Vec<&Path> = evidence
        .experiment
        .iter()
        .flat_map(|experiment| experiment.runs.iter().map(PathBuf::as_path))
        .collect();
    let mut failed = Vec::new();
    let mut compared = 0;
    for experiment in &evidence.experiment {
        let at = format!("experiment `{}`", experiment.name);
        let measured = match &experiment.measured {
            Some(file) => Some(measured(&folders.list.join(file))?),
            None => None,
        };
        let rows = experiment.number.iter().map(|number| {
            let run = number.run.as_ref().or(experiment.runs.first());
            let at = format!("{at}, row `{}`", number.what);
            (at, &number.why, &number.claims, run, Some(&number.metric))
        });
        let only = match experiment.runs.as_slice() {
            [run] => Some(run),
            _ => None,
        };
        let own = (at.clone(), &experiment.why, &experiment.claims, only, None);
        for (at, why, claims, run, metric) in std::iter::once(own).chain(rows) {
            let has_figures = measured.is_some() || !experiment.runs.is_empty();
            if !why.is_empty() && claims.is_empty() && has_figures {
                let why = why.clone();
                return Err(ReproductionError::Unchecked { at, why });
            }
            for claim in claims {
                let line = evidence.line(claim.span().start);
                let at = format!("{}:{line}: {at}", list.display());
                let text = claim.get_ref();
                for (backend, ending) in BACKENDS {
                    let row = Row {
                        backend,
                        runs: &experiment.runs,
                        all_runs: &all_runs,
                        run: run.map(PathBuf::as_path),
                        metric: metric.map(String::as_str),
                        measured: measured.as_ref(),
                    };
                    let all = Below { folders, ending };
                    match Claim::parse(text).and_then(|claim| claim.check(&row, &all)) {
                        Ok(is_compared) => compared += usize::from(is_compared),
                        // A malformed claim is so on both backends, so it is reported once.
                        Err(error @ (ClaimError::Syntax { .. } | ClaimError::Run { .. }))
                            if ending.is_empty() =>
                        {
                            failed.push(format!("{at}: {error}"));
                        }
                        Err(ClaimError::Syntax { .. } | ClaimError::Run { .. }) => {}
                        Err(error) => failed.push(format!("{at}: {error}")),
                    }
                }
            }
        }
    }
    match failed.is_empty() {
        true => Ok(compared),
        false => Err(ReproductionError::Claims(failed)),
    }
}

/// Reads the figures of a command of its own: by method and figure, the median and both extremes.
fn measured(path: &Path) -> Result<Measured, ReproductionError> {
    #[derive(Deserialize)]
    struct File {
        methods: Measured,
    }
    let text = fs::read_to_string(path).map_err(|error| ReproductionError::Read {
        path: path.to_owned(),
        error,
    })?;
    let file: Result<File, _> = serde_json::from_str(&text);
    let file = file.map_err(|error| ReproductionError::Measured {
        path: path.to_owned(),
        error,
    })?;
    Ok(file.methods)
}

/// Reads the list, some runs of which must exist.
fn read(list: &Path, runs: &Path) -> Result<Evidence, ReproductionError> {
    let text = fs::read_to_string(list).map_err(|error| ReproductionError::Read {
        path: list.to_owned(),
        error,
    })?;
    let mut evidence: Evidence =
        toml::from_str(&text).map_err(|error| ReproductionError::List {
            path: list.to_owned(),
            error: Box::new(error),
        })?;
    evidence.text = text;
    let mut named = evidence.experiment.iter().flat_map(|e| &e.runs);
    let is_there = |run: &PathBuf| {
        let mut folders = BACKENDS.iter().map(|(_, ending)| folder(runs, run, ending));
        folders.any(|dir| dir.join("run.json").is_file())
    };
    if !named.any(is_there) {
        return Err(ReproductionError::NoRuns {
            list: list.to_owned(),
            runs: runs.to_owned(),
        });
    }
    Ok(evidence)
}

/// Writes the page `page` for the comparisons in `list`, with the runs below `runs`; its figures go
/// into `images/reproduction` beside it. The page marks missing runs. Returns the missing runs.
///
/// # Errors
/// [`ReproductionError`]; with [`ReproductionError::Claims`] the page has been written.
pub fn write(list: &Path, runs: &Path, page: &Path) -> Result<Vec<PathBuf>, ReproductionError> {
    let evidence = read(list, runs)?;
    let images = page.parent().unwrap_or(Path::new("")).join(IMAGES);
    let create = |error| ReproductionError::Write {
        path: images.clone(),
        error,
    };
    fs::create_dir_all(&images).map_err(create)?;
    let mut writer = Writer {
        folders: Folders::of(list, runs),
        images: &images,
        text: String::new(),
        missing: Vec::new(),
        provenance: Provenance::default(),
    };
    let lateness = lateness(&evidence, &writer.folders)?;
    let introduction = evidence.introduction.replace("{lateness}", &lateness);
    let _ = writeln!(writer.text, "{HEAD}\n{}", introduction.trim());
    for experiment in &evidence.experiment {
        writer.section(experiment)?;
    }
    let made = writer.provenance.section();
    writer.text.push_str(&made);
    write_file(page, writer.text.as_bytes())?;
    check_claims(list, &evidence, &writer.folders)?;
    Ok(writer.missing)
}

struct Writer<'a> {
    folders: Folders<'a>,
    images: &'a Path,
    text: String,
    missing: Vec<PathBuf>,
    provenance: Provenance,
}

/// The runs of an experiment on one backend.
struct Side {
    word: &'static str,
    /// By index in the experiment's list: the runs of all seeds, the first of which is drawn.
    recordings: Vec<Vec<Recording>>,
    /// Whether only the summaries of these runs are kept.
    is_kept: bool,
}

impl Writer<'_> {
    fn section(&mut self, experiment: &Experiment) -> Result<(), ReproductionError> {
        let Experiment {
            name,
            title,
            source,
            shown,
            why,
            ..
        } = experiment;
        let _ = write!(
            self.text,
            "\n## {title}\n\n**Published** ({source}). {shown}\n\n**Ours.** {why}\n"
        );
        let mut sides = Vec::new();
        for (word, ending) in BACKENDS {
            sides.push(self.side(experiment, word, ending, sides.first())?);
        }
        for side in &sides {
            let there: Vec<&Recording> = side
                .recordings
                .iter()
                .filter_map(|all| all.first())
                .collect();
            if there.is_empty() {
                continue;
            }
            let report = (!side.is_kept).then(|| report_of(&there)).transpose()?;
            for kind in &experiment.figures {
                let file = format!("{name}-{}-{}.png", kind.word(), side.word);
                let path = self.images.join(&file);
                match &report {
                    Some(report) => write_file(&path, &draw(experiment, *kind, report)?)?,
                    None if !path.is_file() => continue,
                    None => {}
                }
                let what = if side.word == "sim" {
                    "simulated"
                } else {
                    "live"
                };
                let _ = write!(
                    self.text,
                    "\n{what}:\n\n![{title}, {}, {what}]({IMAGES}/{file})\n",
                    kind.word()
                );
            }
        }
        if let Some(picture) = &experiment.picture {
            let _ = write!(self.text, "\n![{title}]({IMAGES}/{picture})\n");
        }
        if let Some(file) = &experiment.measured {
            let path = self.folders.list.join(file.with_extension("md"));
            let table = fs::read_to_string(&path);
            let table = table.map_err(|error| ReproductionError::Read { path, error })?;
            let _ = write!(self.text, "\n{}\n", table.trim());
        }
        if !experiment.number.is_empty() {
            self.text.push_str(
                "\n| figure | published | simulated | live | why |\n|---|---|---|---|---|\n",
            );
        }
        for number in &experiment.number {
            let place = match &number.run {
                Some(run) => experiment.runs.iter().position(|other| other == run),
                None => Some(0),
            };
            let place = place.ok_or_else(|| ReproductionError::Metric {
                name: name.clone(),
                metric: number.metric.clone(),
                run: number.run.clone().unwrap_or_default(),
                reason: "the experiment does not list this run".into(),
            })?;
            let mut cells = Vec::new();
            for side in &sides {
                let all = side.recordings.get(place).map_or(&[][..], Vec::as_slice);
                cells.push(cell(experiment, number, all)?);
            }
            let Number {
                what,
                published,
                metric,
                why,
                ..
            } = number;
            let _ = writeln!(
                self.text,
                "| {what} (`{metric}`) | {published} | {} | {why} |",
                cells.join(" | ")
            );
        }
        if !experiment.repeated.is_empty() {
            let _ = write!(self.text, "\n**Live runs.** {}\n", experiment.repeated);
        }
        if !experiment.more.is_empty() {
            let _ = write!(self.text, "\n{}\n", experiment.more.trim());
        }
        Ok(())
    }

    fn side(
        &mut self,
        experiment: &Experiment,
        word: &'static str,
        ending: &str,
        simulated: Option<&Side>,
    ) -> Result<Side, ReproductionError> {
        let mut found = Vec::new();
        let mut is_kept = false;
        for (place, run) in experiment.runs.iter().enumerate() {
            let others = simulated.and_then(|side| side.recordings[place].first());
            let dir = folder(self.folders.runs, run, ending);
            let (all, of_tree) = self.folders.find(run, ending)?;
            is_kept |= of_tree && !all.is_empty();
            if all.is_empty() {
                self.missing.push(dir.clone());
            }
            if let (Some(other), Some(here)) = (others, all.first())
                && of_any_seed(other) != of_any_seed(here)
            {
                return Err(ReproductionError::Scenario {
                    run: dir,
                    other: other.dir().to_owned(),
                });
            }
            self.provenance.add(word, &all);
            found.push(all);
        }
        Ok(Side {
            word,
            recordings: found,
            is_kept,
        })
    }
}

/// Says how late the packets of the live runs were.
fn lateness(evidence: &Evidence, folders: &Folders<'_>) -> Result<String, ReproductionError> {
    let (mut half, mut most) = (0, 0);
    for run in evidence.experiment.iter().flat_map(|e| &e.runs) {
        for recording in folders.find(run, folders::LIVE)?.0 {
            let summary = recording.stored_summary()?;
            let late = summary.and_then(|summary| summary.accuracy?.lateness);
            half = half.max(late.map_or(0, |late| late.p50_ns));
            most = most.max(late.map_or(0, |late| late.p99_ns));
        }
    }
    let ms = |ns: u64| rounded(ns as f64 / 1e6);
    Ok(format!(
        "In every live run, half of the packets left at most {} ms late, and 99 % at most {} ms",
        ms(half),
        ms(most)
    ))
}

/// Draws a figure of the runs of an experiment.
fn draw(
    experiment: &Experiment,
    kind: FigureKind,
    report: &Report,
) -> Result<Vec<u8>, ReproductionError> {
    let figure = Figure {
        width: 800,
        flows: FlowLines::Auto,
        ..Figure::of(kind).bare()
    };
    report::png(report, &figure, 1.25).map_err(|error| ReproductionError::Figure {
        name: experiment.name.clone(),
        error,
    })
}

/// Returns the scenario that was run, without its seed, expectations and texts.
fn of_any_seed(recording: &Recording) -> Scenario {
    Scenario {
        title: String::new(),
        about: None,
        seed: 0,
        expect: Vec::new(),
        ..recording.run().scenario.clone()
    }
}

/// Formats a figure of the runs of a variant: with several runs, the median and both extremes.
fn cell(
    experiment: &Experiment,
    number: &Number,
    recordings: &[Recording],
) -> Result<String, ReproductionError> {
    let Some(first) = recordings.first() else {
        return Ok("not run".into());
    };
    let flows = &first.run().scenario.flows;
    let metric =
        Metric::parse(&number.metric, flows).map_err(|error| ReproductionError::Metric {
            name: experiment.name.clone(),
            metric: number.metric.clone(),
            run: first.dir().to_owned(),
            reason: error.message,
        })?;
    let mut values = Vec::new();
    let mut is_partial = false;
    for recording in recordings {
        let summary = match recording.stored_summary()? {
            Some(summary) => summary,
            None => measure(recording)?,
        };
        values.extend(metric.value(&summary));
        is_partial |= recording.run().status != Status::Complete;
    }
    values.sort_by(f64::total_cmp);
    // A loss of 0.6 % is easier to read than one of 0.006. An index, which is a ratio too, is not.
    let is_share = ["loss", "mark_ratio"]
        .iter()
        .any(|word| number.metric.ends_with(word));
    let text = spread(&values, |value| match is_share {
        true => format!("{} %", rounded(value * 100.0)),
        false => metric.unit().show(rounded(value)),
    });
    let partial = if is_partial { " (partial run)" } else { "" };
    Ok(text + partial)
}

/// Formats sorted values: with several, the median and both extremes, which may be equal.
fn spread(values: &[f64], show: impl Fn(f64) -> String) -> String {
    match values {
        [] => "not measured".into(),
        [one] => show(*one),
        [least, .., most] => {
            let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
            let (median, count) = (show((low + high) / 2.0), values.len());
            match (show(*least), show(*most)) {
                (least, most) if least == most => format!("{median} ({count} runs)"),
                (least, most) => format!("{median} ({least} to {most}, {count} runs)"),
            }
        }
    }
}

fn write_file(path: &Path, content: &[u8]) -> Result<(), ReproductionError> {
    fs::write(path, content).map_err(|error| ReproductionError::Write {
        path: path.to_owned(),
        error,
    })
}

const IMAGES: &str = "images/reproduction";

const HEAD: &str = "\
# Published experiments, reproduced

Generated by `make reproduction`; do not edit. The list is `docs/reproduction.toml`.
";
