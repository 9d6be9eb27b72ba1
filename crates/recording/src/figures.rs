//! All figures of a run by name, and their spread over repetitions.

use serde::Serialize;

use crate::metrics::Spread;
use sluice_scenario::Direction;
use sluice_scenario::metric::{
    Chart, ChartLink, FLOW_METRICS, Key, MetricDecl, RUN_METRICS, Summary, Unit, pipe_metrics,
};

/// A figure of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// The name, as in `[[expect]]`.
    pub name: String,
    /// The unit.
    pub unit: Unit,
    /// The value in nanoseconds, bits per second, parts of one, or things.
    pub value: f64,
    /// The meaning.
    pub doc: &'static str,
    /// The chart of the report that shows the figure.
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

/// Returns every figure that was measured, in the order of the vocabulary.
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
        figures.extend(flow.reported.iter().map(|(name, reported)| Figure {
            name: format!("{}.{name}", flow.name),
            unit: reported.unit,
            value: reported.value,
            doc: "number in the output of the program; for several, the mean",
            chart: Chart::Figures.of(flow.way()),
        }));
    }
    figures
}

/// Returns the names of the key figures: of the run; of the first link, in the directions that
/// carry payload; and each key figure of a flow, for the first flow that has it.
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
    /// The unit.
    pub unit: Unit,
    /// Median, range, mean and standard deviation.
    #[serde(flatten)]
    pub spread: Spread,
    /// The 95 % confidence interval of the mean; `None` for a single run.
    pub interval: Option<(f64, f64)>,
    /// The values, in the order of the runs.
    pub values: Vec<f64>,
}

impl Repeated {
    /// Computes the spread of the `values` of several runs; `None` for no values.
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

/// Rounds to four significant digits, which is more than two runs have in common.
pub fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

/// Returns the median of `values`, as in [`Spread`]; `None` for no values.
pub fn median(values: &[f64]) -> Option<f64> {
    Spread::of(values).map(|spread| spread.median)
}

/// Returns the figures of several runs, in the order in which they first appear. Runs that did not
/// measure a figure do not count for it.
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
