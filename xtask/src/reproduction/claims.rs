//! Claims: the statements of a sentence about figures, as comparisons that are checked.
//!
//! ```text
//! newreno.goodput >= 0.87 * 9.65Mbit/s
//! up.drops@dummynet = up.drops@linux within 5 %
//! sim: up.sojourn.p99@fq_codel overlaps up.sojourn.p99@codel
//! ```
//!
//! A side is a quantity (a rate, a time, a number, a percentage), or a figure of `docs/metrics.md`
//! and, behind `@`, the last part of the folder of a run of the experiment, or the path of any run;
//! or a number times one of them. `value` is the figure of the row. The relations are `<`, `<=`,
//! `>`, `>=`, `=` with `within N %` of the right side, and `overlaps`, which compares the ranges of
//! repeated runs. The others compare medians. `sim:` and `live:` restrict a claim to one backend.
//!
//! In an experiment with `measured`, `FIGURE@NAME` is a figure of that file, which counts as live.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use sluice_core::{Rate, Span};
use sluice_recording::metrics::measure;
use sluice_recording::{ReadError, Recording};
use sluice_scenario::metric::Metric;

/// A claim.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    text: String,
    /// The only backend to which it applies.
    backend: Option<String>,
    left: Side,
    relation: Relation,
    right: Side,
}

#[derive(Clone, Debug, PartialEq)]
struct Side {
    factor: f64,
    term: Term,
}

#[derive(Clone, Debug, PartialEq)]
enum Term {
    Quantity(f64),
    /// The figure of the row.
    Value,
    Figure {
        metric: String,
        /// The run as it is written; the run of the row if there is none.
        run: Option<String>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Relation {
    Less,
    AtMost,
    Greater,
    AtLeast,
    /// Within this part of the right side.
    Near(f64),
    Overlaps,
}

/// The reason why a claim is malformed or does not hold.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// The claim is malformed.
    #[error("`{claim}` is not a claim: {reason}")]
    Syntax {
        /// The claim.
        claim: String,
        /// The reason.
        reason: String,
    },
    /// A run does not belong to the experiment.
    #[error("`{claim}`: there is no run `{run}`, but {known}")]
    Run {
        /// The claim.
        claim: String,
        /// The run.
        run: String,
        /// Its runs.
        known: String,
    },
    /// A run has no such figure.
    #[error("`{claim}`: `{metric}` is not a figure of `{}`: {reason}", run.display())]
    Figure {
        /// The claim.
        claim: String,
        /// The figure.
        metric: String,
        /// The run.
        run: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A run cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The figures contradict the claim.
    #[error("`{claim}` does not hold ({backend}): {left} and {right}")]
    False {
        /// The claim.
        claim: String,
        /// The backend.
        backend: String,
        /// The left side's values.
        left: Values,
        /// The right side's values.
        right: Values,
    },
}

/// The values of a side in all repeated runs, in rising order.
#[derive(Clone, Debug, PartialEq)]
pub struct Values(Vec<f64>);

impl Values {
    fn median(&self) -> f64 {
        let all = &self.0;
        f64::midpoint(all[(all.len() - 1) / 2], all[all.len() / 2])
    }

    fn range(&self) -> (f64, f64) {
        (self.0[0], self.0[self.0.len() - 1])
    }
}

impl fmt::Display for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (low, high) = self.range();
        write!(f, "{}", self.median())?;
        if self.0.len() > 1 {
            write!(f, " ({low} to {high})")?;
        }
        Ok(())
    }
}

/// Figures of a command of its own, by method and figure: the median, the least and the most.
pub type Measured = BTreeMap<String, BTreeMap<String, [f64; 3]>>;

/// Finds the repeated runs of a folder; none if it was not run.
pub trait Runs {
    /// Returns the runs of `folder`, which is a path below the folder of all runs.
    ///
    /// # Errors
    /// A run cannot be read.
    fn find(&self, folder: &Path) -> Result<Vec<Recording>, ReadError>;
}

/// The row that a claim belongs to.
pub struct Row<'a> {
    /// The word of the backend.
    pub backend: &'a str,
    /// The runs of the experiment.
    pub runs: &'a [PathBuf],
    /// The runs of all experiments.
    pub all_runs: &'a [&'a Path],
    /// The run of the row.
    pub run: Option<&'a Path>,
    /// The figure of the row.
    pub metric: Option<&'a str>,
    /// The figures that a command of its own has measured.
    pub measured: Option<&'a Measured>,
}

impl Claim {
    /// Reads a claim.
    ///
    /// # Errors
    /// [`ClaimError::Syntax`].
    pub fn parse(text: &str) -> Result<Claim, ClaimError> {
        Claim::read(text).map_err(|reason| ClaimError::Syntax {
            claim: text.to_owned(),
            reason,
        })
    }

    fn read(text: &str) -> Result<Claim, String> {
        let mut words: Vec<&str> = text.split_whitespace().collect();
        let backend = match words.first() {
            Some(&("sim:" | "live:")) => Some(words.remove(0).trim_end_matches(':').to_owned()),
            _ => None,
        };
        let place = words
            .iter()
            .position(|word| matches!(*word, "<" | "<=" | ">" | ">=" | "=" | "overlaps"))
            .ok_or("one of < <= > >= = overlaps is missing")?;
        let (left, rest) = words.split_at(place);
        let (word, mut right) = (rest[0], &rest[1..]);
        let mut tolerance = None;
        if let [others @ .., "within", part, "%"] = right {
            let part: f64 = number(part)?;
            tolerance = Some(part / 100.0);
            right = others;
        }
        let relation = match (word, tolerance) {
            ("<", None) => Relation::Less,
            ("<=", None) => Relation::AtMost,
            (">", None) => Relation::Greater,
            (">=", None) => Relation::AtLeast,
            ("overlaps", None) => Relation::Overlaps,
            ("=", Some(part)) => Relation::Near(part),
            ("=", None) => return Err("`=` needs `within N %`".into()),
            (word, Some(_)) => return Err(format!("`within` does not belong to `{word}`")),
            (word, None) => return Err(format!("`{word}` is not a relation")),
        };
        Ok(Claim {
            text: text.to_owned(),
            backend,
            left: Side::read(left)?,
            relation,
            right: Side::read(right)?,
        })
    }

    /// Checks the claim on the backend of `row`; a run that is missing there makes it hold. Returns
    /// whether figures were compared.
    ///
    /// # Errors
    /// [`ClaimError`].
    pub fn check(&self, row: &Row<'_>, runs: &dyn Runs) -> Result<bool, ClaimError> {
        if self
            .backend
            .as_ref()
            .is_some_and(|word| word != row.backend)
        {
            return Ok(false);
        }
        let left = self.values(&self.left, row, runs)?;
        let right = self.values(&self.right, row, runs)?;
        let (Some(left), Some(right)) = (left, right) else {
            return Ok(false);
        };
        let (a, b) = (left.median(), right.median());
        let holds = match self.relation {
            Relation::Less => a < b,
            Relation::AtMost => a <= b,
            Relation::Greater => a > b,
            Relation::AtLeast => a >= b,
            Relation::Near(part) => (a - b).abs() <= part * b.abs(),
            Relation::Overlaps => {
                if left.0.len().min(right.0.len()) < 2 {
                    return Ok(false);
                }
                let ((low, high), (least, most)) = (left.range(), right.range());
                low <= most && least <= high
            }
        };
        if holds {
            return Ok(true);
        }
        Err(ClaimError::False {
            claim: self.text.clone(),
            backend: row.backend.to_owned(),
            left,
            right,
        })
    }

    /// Returns the values of a side; `None` if its run is missing.
    fn values(
        &self,
        side: &Side,
        row: &Row<'_>,
        runs: &dyn Runs,
    ) -> Result<Option<Values>, ClaimError> {
        let syntax = |reason: &str| ClaimError::Syntax {
            claim: self.text.clone(),
            reason: reason.to_owned(),
        };
        if let (
            Some(measured),
            Term::Figure {
                metric,
                run: Some(name),
            },
        ) = (row.measured, &side.term)
        {
            return self.measured(measured, side.factor, metric, name, row.backend);
        }
        let (metric, run) = match &side.term {
            Term::Quantity(value) => return Ok(Some(Values(vec![side.factor * value]))),
            Term::Value => (
                row.metric.ok_or_else(|| {
                    syntax("`value` is the figure of a row, and this is not a row")
                })?,
                row.run,
            ),
            Term::Figure { metric, run: None } => (metric.as_str(), row.run),
            Term::Figure {
                metric,
                run: Some(run),
            } => (metric.as_str(), Some(self.run(run, row)?)),
        };
        let run = run.ok_or_else(|| syntax("a figure needs `@RUN`"))?;
        let mut values = Vec::new();
        for recording in runs.find(run)? {
            let not_a_figure = |reason: String| ClaimError::Figure {
                claim: self.text.clone(),
                metric: metric.to_owned(),
                run: run.to_owned(),
                reason,
            };
            let metric = Metric::parse(metric, &recording.run().scenario.flows)
                .map_err(|error| not_a_figure(error.message))?;
            let summary = match recording.stored_summary()? {
                Some(summary) => summary,
                None => measure(&recording)?,
            };
            let value = metric
                .value(&summary)
                .ok_or_else(|| not_a_figure("it was not measured".into()))?;
            values.push(side.factor * value);
        }
        values.sort_by(f64::total_cmp);
        Ok((!values.is_empty()).then_some(Values(values)))
    }

    /// Returns a figure that a command of its own has measured.
    fn measured(
        &self,
        measured: &Measured,
        factor: f64,
        metric: &str,
        name: &str,
        backend: &str,
    ) -> Result<Option<Values>, ClaimError> {
        let Some(method) = measured.get(name) else {
            let known: Vec<&str> = measured.keys().map(String::as_str).collect();
            return Err(ClaimError::Run {
                claim: self.text.clone(),
                run: name.to_owned(),
                known: known.join(", "),
            });
        };
        let [median, least, most] = *method.get(metric).ok_or_else(|| ClaimError::Figure {
            claim: self.text.clone(),
            metric: metric.to_owned(),
            run: name.into(),
            reason: "it was not measured".into(),
        })?;
        let values = [least, median, most].map(|value| factor * value);
        Ok((backend == "live").then(|| Values(values.to_vec())))
    }

    /// Returns the folder of a run that the claim names.
    fn run<'a>(&self, name: &'a str, row: &Row<'a>) -> Result<&'a Path, ClaimError> {
        let mut named = row
            .runs
            .iter()
            .filter(|run| run.ends_with(name) || run.file_name().is_some_and(|last| last == name));
        match (named.next(), named.next()) {
            (Some(run), None) => Ok(run),
            // A path leads to a run of another experiment.
            (None, _) if row.all_runs.contains(&Path::new(name)) => Ok(Path::new(name)),
            _ => {
                let last = |run: &PathBuf| Some(run.file_name()?.to_string_lossy().into_owned());
                let known: Vec<String> = match name.contains('/') {
                    true => vec![format!("{} others", row.all_runs.len())],
                    false => row.runs.iter().filter_map(last).collect(),
                };
                Err(ClaimError::Run {
                    claim: self.text.clone(),
                    run: name.to_owned(),
                    known: known.join(", "),
                })
            }
        }
    }
}

impl Side {
    fn read(words: &[&str]) -> Result<Side, String> {
        match words {
            [term] => Ok(Side {
                factor: 1.0,
                term: Term::read(term)?,
            }),
            [factor, "*", term] => Ok(Side {
                factor: number(factor)?,
                term: Term::read(term)?,
            }),
            [] => Err("a side is missing".into()),
            _ => Err(format!("`{}` is not a side", words.join(" "))),
        }
    }
}

impl Term {
    fn read(word: &str) -> Result<Term, String> {
        if word == "value" {
            return Ok(Term::Value);
        }
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            return quantity(word).map(Term::Quantity);
        }
        Ok(match word.split_once('@') {
            None => Term::Figure {
                metric: word.to_owned(),
                run: None,
            },
            Some((metric, run)) => Term::Figure {
                metric: metric.to_owned(),
                run: Some(run.to_owned()),
            },
        })
    }
}

/// Reads a quantity, in the units of figures: bits per second, nanoseconds, parts of one.
fn quantity(word: &str) -> Result<f64, String> {
    if let Some(percent) = word.strip_suffix('%') {
        return Ok(number(percent)? / 100.0);
    }
    if let Ok(rate) = Rate::parse(word) {
        return Ok(rate.as_bps() as f64);
    }
    if let Ok(span) = Span::parse(word) {
        return Ok(span.as_ns() as f64);
    }
    number(word)
}

fn number(word: &str) -> Result<f64, String> {
    word.parse()
        .map_err(|_| format!("`{word}` is neither a number nor a quantity"))
}

#[cfg(test)]
mod tests {
    use sluice_recording::testing::recording;

    use super::*;

    struct Folder(tempfile::TempDir);

    impl Runs for Folder {
        fn find(&self, folder: &Path) -> Result<Vec<Recording>, ReadError> {
            let dir = self.0.path().join(folder);
            match dir.join("run.json").is_file() {
                true => Ok(vec![Recording::open(&dir)?]),
                false => Ok(Vec::new()),
            }
        }
    }

    /// The run of the tests has a flow `bulk` with a goodput of exactly 1 Mbit/s.
    fn check(text: &str) -> Result<bool, ClaimError> {
        let folder = Folder(tempfile::tempdir().unwrap());
        recording(&folder.0.path().join("one/fifo"));
        recording(&folder.0.path().join("two/fifo"));
        let runs = ["one/fifo".into(), "one/codel".into()];
        let all_runs = ["one/fifo", "one/codel", "two/fifo"].map(Path::new);
        let row = Row {
            backend: "sim",
            runs: &runs,
            all_runs: &all_runs,
            run: Some(&runs[0]),
            metric: Some("bulk.goodput"),
            measured: None,
        };
        Claim::parse(text)?.check(&row, &folder)
    }

    #[test]
    fn claims_compare_figures_with_quantities_and_other_figures() {
        for text in [
            "value = 1Mbit/s within 1 %",
            "bulk.goodput >= 1Mbit/s",
            "bulk.goodput <= 0.5 * 2000000",
            "bulk.goodput@fifo = value within 0 %",
            "2 * value > value",
            "bulk.goodput@two/fifo = value within 0 %",
            "sim: value < 1.1Mbit/s",
        ] {
            assert!(check(text).unwrap(), "{text}");
        }
        let error = check("value > 1Mbit/s").unwrap_err().to_string();
        assert_eq!(
            error,
            "`value > 1Mbit/s` does not hold (sim): 1000000 and 1000000"
        );
        assert!(check("value = 1.2Mbit/s within 10 %").is_err());
    }

    #[test]
    fn what_was_not_run_or_is_of_the_other_backend_is_not_compared() {
        for text in [
            "value > bulk.goodput@codel",
            "live: value > 9Mbit/s",
            "value overlaps 1Mbit/s",
        ] {
            assert!(!check(text).unwrap(), "{text}");
        }
    }

    #[test]
    fn figures_of_a_command_are_compared_as_live_ones() {
        let rates = |rates| [("rate".to_owned(), rates)].into();
        let measured: Measured = [
            ("c".to_owned(), rates([400.0, 300.0, 500.0])),
            ("go".to_owned(), rates([450.0, 440.0, 700.0])),
        ]
        .into();
        let folder = Folder(tempfile::tempdir().unwrap());
        let check = |text: &str, backend| {
            let row = Row {
                backend,
                runs: &[],
                all_runs: &[],
                run: None,
                metric: None,
                measured: Some(&measured),
            };
            Claim::parse(text)?.check(&row, &folder)
        };
        assert!(check("rate@go > 1.1 * rate@c", "live").unwrap());
        assert!(check("rate@c overlaps rate@go", "live").unwrap());
        assert!(!check("rate@c > rate@go", "sim").unwrap());
        for (text, said) in [
            (
                "rate@c > rate@go",
                "does not hold (live): 400 (300 to 500) and 450 (440 to 700)",
            ),
            ("rate@zig > 1", "there is no run `zig`, but c, go"),
            (
                "rtt@c > 1",
                "`rtt` is not a figure of `c`: it was not measured",
            ),
        ] {
            let error = check(text, "live").unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (text, said) in [
            ("value about 3", "one of < <= > >= = overlaps is missing"),
            ("value = 3", "`=` needs `within N %`"),
            ("value < 3 within 2 %", "`within` does not belong to `<`"),
            ("value < 3x", "`3x` is neither a number nor a quantity"),
            ("value <", "a side is missing"),
            ("value < 2 + 3", "`2 + 3` is not a side"),
            ("up.drops@pie < 3", "there is no run `pie`, but fifo, codel"),
            ("bulk.goodputt < 3", "`bulk.goodputt` is not a figure of"),
            (
                "up.drops@two/codel < 3",
                "there is no run `two/codel`, but 3 others",
            ),
        ] {
            let error = check(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
