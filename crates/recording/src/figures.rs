//! All figures of a run by name, and how they vary over repetitions.

use serde::{Serialize, Serializer};

use crate::metrics::Spread;
use sluice_scenario::metric::{FLOW_METRICS, PIPE_METRICS, RUN_METRICS, Summary, Unit};

/// A figure of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Its name, as `[[expect]]` writes it.
    pub name: String,
    /// What it is measured in.
    pub unit: Unit,
    /// In nanoseconds, bits per second, parts of one, or things.
    pub value: f64,
}

/// Every figure that was measured, in the order of the vocabulary.
pub fn figures_of(summary: &Summary) -> Vec<Figure> {
    let mut figures = Vec::new();
    let mut add = |name: String, unit, value: Option<f64>| {
        figures.extend(value.map(|value| Figure { name, unit, value }));
    };
    for decl in RUN_METRICS {
        add(decl.name.to_owned(), decl.unit, decl.of(summary));
    }
    for pipe in &summary.pipes {
        for decl in PIPE_METRICS {
            add(
                format!("{}.{}", pipe.name, decl.name),
                decl.unit,
                decl.of(pipe),
            );
        }
        for (reason, packets) in &pipe.drops {
            let name = format!("{}.drops.{reason}", pipe.name);
            add(name, Unit::Count, Some(*packets as f64));
        }
    }
    for flow in summary.groups.iter().chain(&summary.flows) {
        for decl in FLOW_METRICS {
            add(
                format!("{}.{}", flow.name, decl.name),
                decl.unit,
                decl.of(flow),
            );
        }
    }
    figures
}

/// A figure over runs that differ only in their seed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Repeated {
    /// What it is measured in.
    #[serde(serialize_with = "unit_name")]
    pub unit: Unit,
    /// Its median, range, mean and deviation.
    #[serde(flatten)]
    pub spread: Spread,
    /// The 95 % confidence interval of the mean; none of one run.
    pub interval: Option<(f64, f64)>,
    /// Each run's, in the order of the runs.
    pub values: Vec<f64>,
}

fn unit_name<S: Serializer>(unit: &Unit, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(unit.name())
}

impl Repeated {
    /// Of the `values` of several runs; none of none.
    pub fn of(unit: Unit, values: Vec<f64>) -> Option<Repeated> {
        let spread = Spread::of(&values)?;
        Some(Repeated {
            unit,
            interval: spread.interval(),
            spread,
            values,
        })
    }
}

/// To four significant digits, which is more than two runs share.
pub fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

/// The median of `values`, as of [`Spread`]; none of none.
pub fn median(values: &[f64]) -> Option<f64> {
    Spread::of(values).map(|spread| spread.median)
}

/// The figures of several runs, in the order in which they first appear. Runs that did not measure a
/// figure have no part in it.
pub fn repeated(summaries: &[&Summary]) -> Vec<(String, Repeated)> {
    let mut all: Vec<(String, Unit, Vec<f64>)> = Vec::new();
    for summary in summaries {
        for figure in figures_of(summary) {
            match all.iter_mut().find(|(name, ..)| *name == figure.name) {
                Some((_, _, values)) => values.push(figure.value),
                None => all.push((figure.name, figure.unit, vec![figure.value])),
            }
        }
    }
    all.into_iter()
        .filter_map(|(name, unit, values)| Some((name, Repeated::of(unit, values)?)))
        .collect()
}
