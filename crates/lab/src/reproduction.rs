//! A page of evidence: published figures and numbers, and beside them what the runs of their scenarios
//! came to, simulated and live.
//!
//! What to compare is declared in one TOML file, so that adding an experiment is adding a table:
//!
//! ```toml
//! [[experiment]]
//! name = "s1"                              # of its pictures
//! title = "One NewReno flow over CoDel"
//! source = "TR 160226A, section VI.A.1, figure 2"
//! shown = "Throughput stays near the rate."  # what was published, in a sentence
//! why = "Same parameters and arithmetic."    # why ours agrees or differs
//! runs = ["seeds/s1/codel"]                # folders of runs, below the folder of all runs
//! figures = ["flows"]                      # kinds of picture of these runs together
//! [[experiment.number]]
//! what = "goodput"
//! published = "about 9.5 Mbit/s"
//! metric = "bulk.goodput"                  # a figure of docs/metrics.md
//! run = "seeds/s1/codel"                   # left out: the first of `runs`
//! why = "Headers are not counted."         # left out: what is said of the experiment
//! ```
//!
//! The live run of a folder `R` is the folder `R.live`, as `sluice run --backend both` leaves it; further
//! runs of either with other seeds, which `--repeat` leaves in `R.seed-N` and `R.live.seed-N`, make of a figure a
//! median with its smallest and largest.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::metrics::{Metric, Summary};
use crate::recording::{ReadError, Recording, Status};
use crate::report::{self, Figure, FigureError, FigureKind, FlowLines};
use crate::report_of::report_of;

/// What to compare.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Evidence {
    /// Stands under the page's title.
    pub introduction: String,
    /// One section each.
    pub experiment: Vec<Experiment>,
}

/// A published experiment.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Of its pictures.
    pub name: String,
    /// The section's heading.
    pub title: String,
    /// Where it was published.
    pub source: String,
    /// What was published, in a sentence.
    pub shown: String,
    /// Why ours agrees or differs, in a sentence.
    pub why: String,
    /// Folders of runs, below the folder of all runs.
    pub runs: Vec<PathBuf>,
    /// Kinds of picture.
    #[serde(default)]
    pub figures: Vec<Kind>,
    /// Numbers to compare.
    #[serde(default)]
    pub number: Vec<Number>,
    /// What else there is to say, as Markdown behind all of it.
    #[serde(default)]
    pub more: String,
}

/// A number that was published, or follows from what was.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Number {
    /// What it is.
    pub what: String,
    /// As it was published; a dash where only a picture was.
    pub published: String,
    /// The figure of ours.
    pub metric: String,
    /// Of which run; the first one of the experiment if it is not given.
    pub run: Option<PathBuf>,
    /// Why ours agrees or differs, if that is not said of the whole experiment.
    #[serde(default)]
    pub why: String,
}

/// The pictures that a page can have.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Goodput, ping, sojourn times and backlog.
    Time,
    /// Goodput, congestion window and smoothed RTT of every flow.
    Flows,
    /// Every packet and the AQM's state.
    State,
    /// Distributions.
    Distribution,
    /// Fairness over time.
    Fairness,
    /// Goodput against delay.
    Tradeoff,
    /// Delays as boxes.
    Box,
    /// Totals as bars.
    Totals,
}

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub enum ReproductionError {
    /// A file cannot be read.
    #[error("cannot read `{}`: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// The list makes no sense.
    #[error("`{}`: {error}", path.display())]
    List {
        /// The file.
        path: PathBuf,
        /// What is wrong, with line and column.
        error: Box<toml::de::Error>,
    },
    /// A run cannot be read.
    #[error(transparent)]
    Run(#[from] ReadError),
    /// A picture cannot be drawn.
    #[error("experiment `{name}`: {error}")]
    Figure {
        /// The experiment.
        name: String,
        /// Why.
        error: FigureError,
    },
    /// A run has no such figure.
    #[error("experiment `{name}`: `{metric}` is no figure of `{}`: {reason}", run.display())]
    Metric {
        /// The experiment.
        name: String,
        /// The figure.
        metric: String,
        /// The run.
        run: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A file cannot be written.
    #[error("cannot write `{}`: {error}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
}

/// The two ways a run is carried out, and what its folder's name ends in.
const BACKENDS: [(&str, &str); 2] = [("sim", ""), ("live", ".live")];

/// Writes the page `page` over what `list` declares, with the runs below `runs`; its pictures go into
/// `images/reproduction` beside it. A run that is not there is said to be missing. Gives the runs that are
/// missing.
///
/// # Errors
/// [`ReproductionError`].
pub fn write(list: &Path, runs: &Path, page: &Path) -> Result<Vec<PathBuf>, ReproductionError> {
    let text = fs::read_to_string(list).map_err(|error| ReproductionError::Read {
        path: list.to_owned(),
        error,
    })?;
    let evidence: Evidence = toml::from_str(&text).map_err(|error| ReproductionError::List {
        path: list.to_owned(),
        error: Box::new(error),
    })?;
    let images = page.parent().unwrap_or(Path::new("")).join(IMAGES);
    let create = |error| ReproductionError::Write {
        path: images.clone(),
        error,
    };
    fs::create_dir_all(&images).map_err(create)?;
    let mut writer = Writer {
        runs,
        images: &images,
        text: format!("{HEAD}\n{}\n", evidence.introduction.trim()),
        missing: Vec::new(),
    };
    for experiment in &evidence.experiment {
        writer.section(experiment)?;
    }
    write_file(page, writer.text.as_bytes())?;
    Ok(writer.missing)
}

struct Writer<'a> {
    runs: &'a Path,
    images: &'a Path,
    text: String,
    missing: Vec<PathBuf>,
}

/// The runs of an experiment on one backend.
struct Side {
    word: &'static str,
    /// By their place in the experiment's list: those of all seeds, the first of which is drawn.
    recordings: Vec<Vec<Recording>>,
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
        let sides = BACKENDS
            .into_iter()
            .map(|(word, ending)| self.side(experiment, word, ending))
            .collect::<Result<Vec<Side>, _>>()?;
        for side in &sides {
            let there: Vec<&Recording> = side
                .recordings
                .iter()
                .filter_map(|all| all.first())
                .collect();
            if there.is_empty() {
                continue;
            }
            let report = report_of(&there)?;
            for kind in &experiment.figures {
                let figure = Figure {
                    width: 800,
                    flows: FlowLines::Auto,
                    ..Figure::of(kind.figure()).bare()
                };
                let fail = |error| ReproductionError::Figure {
                    name: name.clone(),
                    error,
                };
                let bytes = report::png(&report, &figure, 1.25).map_err(fail)?;
                let file = format!("{name}-{}-{}.png", kind.word(), side.word);
                write_file(&self.images.join(&file), &bytes)?;
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
    ) -> Result<Side, ReproductionError> {
        let mut recordings = Vec::new();
        for run in &experiment.runs {
            let mut name = self.runs.join(run).into_os_string();
            name.push(ending);
            let dir = PathBuf::from(name);
            let mut all = Vec::new();
            for dir in std::iter::once(dir.clone()).chain(repeats(&dir)) {
                if dir.join("run.json").is_file() {
                    all.push(Recording::open(&dir)?);
                }
            }
            if all.is_empty() {
                self.missing.push(dir);
            }
            recordings.push(all);
        }
        Ok(Side { word, recordings })
    }
}

/// The folders of further runs of `dir`, by their seeds.
fn repeats(dir: &Path) -> Vec<PathBuf> {
    let (Some(parent), Some(name)) = (dir.parent(), dir.file_name()) else {
        return Vec::new();
    };
    let stem = format!("{}.seed-", name.to_string_lossy());
    let seed = |entry: fs::DirEntry| -> Option<(u64, PathBuf)> {
        let seed = entry.file_name().to_str()?.strip_prefix(&stem)?.parse();
        Some((seed.ok()?, entry.path()))
    };
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let mut found: Vec<(u64, PathBuf)> = entries.filter_map(seed).collect();
    found.sort();
    found.into_iter().map(|(_, path)| path).collect()
}

/// A figure of the runs of a variant, as people write it: of several the median and both ends.
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
            None => Summary::of(recording)?,
        };
        values.extend(metric.value(&summary));
        is_partial |= recording.run().status != Status::Complete;
    }
    values.sort_by(f64::total_cmp);
    let show = |value: f64| metric.unit().show(rounded(value));
    let text = match values.as_slice() {
        [] => "not measured".into(),
        [one] => show(*one),
        [least, .., most] => {
            let (low, high) = (values[(values.len() - 1) / 2], values[values.len() / 2]);
            let (median, count) = (show((low + high) / 2.0), values.len());
            format!(
                "{median} ({} to {}, {count} runs)",
                show(*least),
                show(*most)
            )
        }
    };
    let partial = if is_partial { " (partial run)" } else { "" };
    Ok(text + partial)
}

/// To four significant digits, which is more than two runs share.
fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

impl Kind {
    const fn figure(self) -> FigureKind {
        match self {
            Kind::Time => FigureKind::Time,
            Kind::Flows => FigureKind::Flows,
            Kind::State => FigureKind::State,
            Kind::Distribution => FigureKind::Distribution,
            Kind::Fairness => FigureKind::Fairness,
            Kind::Tradeoff => FigureKind::Tradeoff,
            Kind::Box => FigureKind::Box,
            Kind::Totals => FigureKind::Totals,
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Kind::Time => "time",
            Kind::Flows => "flows",
            Kind::State => "state",
            Kind::Distribution => "distribution",
            Kind::Fairness => "fairness",
            Kind::Tradeoff => "tradeoff",
            Kind::Box => "box",
            Kind::Totals => "totals",
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
# What was published, and what comes out here

Made by `make reproduction`; do not edit. The list is `docs/reproduction.toml`.
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::tests::recording;

    const LIST: &str = r#"
        introduction = "Two of them."
        [[experiment]]
        name = "one"
        title = "A flow"
        source = "a paper, figure 1"
        shown = "It stays."
        why = "Same numbers."
        runs = ["one/fifo"]
        figures = ["flows"]
        [[experiment.number]]
        what = "goodput"
        published = "1 Mbit/s"
        metric = "bulk.goodput"
        why = "exact"
        [[experiment.number]]
        what = "score"
        published = "-"
        metric = "udp.mos"
    "#;

    fn page(list: &str) -> (tempfile::TempDir, Result<Vec<PathBuf>, ReproductionError>) {
        let temp = tempfile::tempdir().unwrap();
        recording(&temp.path().join("runs/one/fifo"));
        fs::write(temp.path().join("list.toml"), list).unwrap();
        let at = |name: &str| temp.path().join(name);
        let written = write(&at("list.toml"), &at("runs"), &at("page.md"));
        (temp, written)
    }

    #[test]
    fn a_page_holds_what_was_published_beside_what_came_out() {
        let (temp, missing) = page(LIST);
        assert_eq!(missing.unwrap(), [temp.path().join("runs/one/fifo.live")]);
        let text = fs::read_to_string(temp.path().join("page.md")).unwrap();
        assert!(text.contains("## A flow\n\n**Published** (a paper, figure 1). It stays."));
        assert!(
            text.contains("| goodput (`bulk.goodput`) | 1 Mbit/s | 1Mbit/s | not run | exact |")
        );
        assert!(text.contains("| score (`udp.mos`) | - | not measured | not run |  |"));
        assert!(text.contains("](images/reproduction/one-flows-sim.png)"));
        let picture = temp.path().join("images/reproduction/one-flows-sim.png");
        assert!(fs::metadata(picture).unwrap().len() > 1000);
    }

    #[test]
    fn a_figure_of_several_runs_is_their_median_with_both_ends() {
        let temp = tempfile::tempdir().unwrap();
        for run in ["fifo", "fifo.seed-2", "fifo.seed-10", "fifo.live"] {
            recording(&temp.path().join("runs/one").join(run));
        }
        let at = |name: &str| temp.path().join(name);
        fs::write(at("list.toml"), LIST).unwrap();
        write(&at("list.toml"), &at("runs"), &at("page.md")).unwrap();
        let text = fs::read_to_string(at("page.md")).unwrap();
        let row = "| 1 Mbit/s | 1Mbit/s (1Mbit/s to 1Mbit/s, 3 runs) | 1Mbit/s | exact |";
        assert!(text.contains(row), "{text}");
        let dirs = repeats(&at("runs/one/fifo"));
        let names: Vec<_> = dirs.iter().filter_map(|dir| dir.file_name()).collect();
        assert_eq!(names, ["fifo.seed-2", "fifo.seed-10"]);
        assert_eq!(rounded(0.123_449), 0.1234);
    }

    #[test]
    fn what_is_wrong_in_the_list_is_said_with_its_experiment() {
        let (_temp, error) = page(&LIST.replace("udp.mos", "udp.moss"));
        let error = error.unwrap_err().to_string();
        assert!(
            error.starts_with("experiment `one`: `udp.moss` is no figure of"),
            "{error}"
        );
        let (_temp, error) = page(&LIST.replace("shown =", "show ="));
        let error = error.unwrap_err().to_string();
        assert!(error.contains("unknown field `show`"), "{error}");
    }
}
