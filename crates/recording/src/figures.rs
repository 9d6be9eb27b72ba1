//! All figures of a run by name, and how they vary over repetitions.

use serde::{Serialize, Serializer};

use crate::metrics::Spread;
use sluice_scenario::Direction;
use sluice_scenario::metric::{
    Chart, ChartLink, FLOW_METRICS, Key, MetricDecl, RUN_METRICS, Summary, Unit, pipe_metrics,
};

/// A figure of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Its name, as `[[expect]]` writes it.
    pub name: String,
    /// What it is measured in.
    pub unit: Unit,
    /// In nanoseconds, bits per second, parts of one, or things.
    pub value: f64,
    /// What it says.
    pub doc: &'static str,
    /// Where in the report it is seen.
    pub chart: ChartLink,
}

impl Figure {
    fn of<T>(name: String, decl: &MetricDecl<T>, subject: &T, way: Direction) -> Option<Figure> {
        Some(Figure {
            name,
            unit: decl.unit,
            value: decl.of(subject)?,
            doc: decl.doc,
            chart: decl.chart.of(way),
        })
    }
}

/// Every figure that was measured, in the order of the vocabulary.
pub fn figures_of(summary: &Summary) -> Vec<Figure> {
    let mut figures = Vec::new();
    for decl in RUN_METRICS {
        figures.extend(Figure::of(
            decl.name.to_owned(),
            decl,
            summary,
            Direction::Up,
        ));
    }
    for pipe in &summary.pipes {
        for decl in pipe_metrics() {
            let name = format!("{}.{}", pipe.name, decl.name);
            figures.extend(Figure::of(name, decl, pipe, pipe.way()));
        }
        figures.extend(pipe.drops.iter().map(|(reason, packets)| Figure {
            name: format!("{}.drops.{reason}", pipe.name),
            unit: Unit::Count,
            value: *packets as f64,
            doc: "wire packets dropped for this reason",
            chart: Chart::Packets.of(pipe.way()),
        }));
    }
    for flow in summary.groups.iter().chain(&summary.flows) {
        for decl in FLOW_METRICS {
            let name = format!("{}.{}", flow.name, decl.name);
            figures.extend(Figure::of(name, decl, flow, flow.way()));
        }
    }
    figures
}

/// The names of the key figures: of the run, of the first link in the directions that carry payload,
/// and, of each key figure of a flow, that of the first flow that has it.
pub fn key_figures(summary: &Summary) -> Vec<(String, Key)> {
    let run = RUN_METRICS
        .iter()
        .map(|decl| (decl.name.to_owned(), decl.key));
    let pipes = summary.directions.iter().flat_map(|total| {
        pipe_metrics().map(|decl| (format!("{}.{}", total.direction, decl.name), decl.key))
    });
    let flows = FLOW_METRICS.iter().filter_map(|decl| {
        let has_it = summary.flows.iter().find(|flow| decl.of(flow).is_some())?;
        Some((format!("{}.{}", has_it.name, decl.name), decl.key))
    });
    let all = run.chain(pipes).chain(flows);
    all.filter(|(_, key)| *key != Key::No).collect()
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
