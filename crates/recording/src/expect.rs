//! Compares the figures of runs with the expectations.

use std::fmt;

use serde::Serialize;

use crate::figures::median;
use sluice_scenario::metric::{Chart, ChartLink, Summary, Unit};
use sluice_scenario::{Backend, Direction, Expect};

/// An expectation and the measured figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// The variant.
    pub variant: String,
    /// The figure.
    pub metric: String,
    /// The number of runs; the measured value is their median.
    pub runs: usize,
    /// The number of runs that measured the figure.
    pub measured_in: usize,
    /// The unit.
    pub unit: Unit,
    /// The measured value in nanoseconds, in bits per second, as a ratio or as a count; `None` if
    /// nothing was measured.
    pub measured: Option<f64>,
    /// The smallest value that passes.
    pub min: Option<f64>,
    /// The largest value that passes.
    pub max: Option<f64>,
    /// Whether the measured value is within the bounds.
    pub passed: bool,
    /// The chart of the report that shows the figure.
    pub chart: ChartLink,
    /// The bounds in words.
    #[serde(skip)]
    pub bounds: String,
    /// Why nothing was measured, if that is clear.
    #[serde(skip)]
    pub why_missing: Option<&'static str>,
}

impl Outcome {
    /// Returns the outcome in words. With several backends, it names the one of the run.
    pub fn text(&self, backend: Option<Backend>) -> String {
        match backend {
            None => self.to_string(),
            Some(backend) => self.words(&format!(" ({})", backend.word())),
        }
    }

    fn words(&self, backend: &str) -> String {
        let Outcome {
            variant,
            metric,
            bounds,
            ..
        } = self;
        let word = if self.passed { "met" } else { "not met" };
        let value = match self.measured {
            Some(value) => {
                let value = self.unit.show(value);
                match (self.measured_in, self.runs) {
                    (_, 0 | 1) => format!("is {value}"),
                    (k, n) if k == n => format!("is {value} in the median of {n} runs"),
                    (1, n) => format!("is {value} in 1 of {n} runs{MISSING}"),
                    (k, n) => format!("is {value} in the median of {k} of {n} runs{MISSING}"),
                }
            }
            None => match self.why_missing {
                Some(why) => format!("was not measured: {why}"),
                None => "was not measured".to_owned(),
            },
        };
        let chart = match self.passed {
            true => String::new(),
            false => format!("; see \"{}\" in the report", self.chart),
        };
        format!("{word}: `{metric}` of `{variant}`{backend} {value}; expected {bounds}{chart}")
    }

    /// Returns the measured value with its unit, and in how many runs it was measured unless it was
    /// in all.
    pub fn measured_words(&self) -> Option<String> {
        let value = self.unit.show(self.measured?);
        Some(match (self.measured_in, self.runs) {
            (k, n) if k < n => format!("{value} (in {k} of {n} runs)"),
            _ => value,
        })
    }

    /// An expectation that was not met, for tests of its output.
    pub fn new(
        variant: &str,
        metric: &str,
        unit: Unit,
        measured: Option<f64>,
        bounds: &str,
    ) -> Outcome {
        Outcome {
            variant: variant.into(),
            metric: metric.into(),
            runs: 1,
            measured_in: measured.iter().count(),
            unit,
            measured,
            min: None,
            max: None,
            passed: false,
            chart: Chart::Summary.of(Direction::Up),
            bounds: bounds.into(),
            why_missing: None,
        }
    }
}

/// Compares the runs of a variant on `backend` with every expectation that applies to the variant.
/// The median of several runs counts. A figure that was not measured does not pass: a run without it
/// counts as one beyond each bound. Otherwise the worse a queue, the fewer runs would decide.
pub fn check(expectations: &[Expect], backend: Backend, summaries: &[&Summary]) -> Vec<Outcome> {
    let outcome = |expect: &Expect| {
        let value = |s: &&Summary| expect.metric.value(s).filter(|value| value.is_finite());
        let values: Vec<Option<f64>> = summaries.iter().map(value).collect();
        let measured: Vec<f64> = values.iter().copied().flatten().collect();
        let measured_in = measured.len();
        let measured = median(&measured);
        // The largest finite value: a median leaves out those that are not finite.
        let median_with = |missing: f64| {
            let all: Vec<f64> = values.iter().map(|v| v.unwrap_or(missing)).collect();
            median(&all)
        };
        let (min, max) = (
            expect.min.map(|q| q.as_f64()),
            expect.max.map(|q| q.as_f64()),
        );
        let is_above = |min: f64| median_with(f64::MIN).is_some_and(|value| value >= min);
        let is_below = |max: f64| median_with(f64::MAX).is_some_and(|value| value <= max);
        let is_within = min.is_none_or(is_above) && max.is_none_or(is_below);
        Outcome {
            variant: summaries.first().map_or("", |s| &s.variant).to_owned(),
            runs: summaries.len(),
            measured_in,
            metric: expect.metric.to_string(),
            unit: expect.metric.unit(),
            measured,
            min,
            max,
            passed: measured.is_some() && is_within,
            chart: expect.metric.chart(summaries),
            bounds: expect.bounds(),
            why_missing: expect.metric.why_missing(),
        }
    };
    let is_for = |expect: &&Expect| expect.backend.is_none_or(|named| named == backend);
    expectations.iter().filter(is_for).map(outcome).collect()
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words(""))
    }
}

/// Follows the figure of those runs that measured it.
const MISSING: &str = ", and was not measured in the others";
