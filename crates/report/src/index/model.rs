//! The data of the index, as the page receives it.
//!
//! `web/src/model.ts` is generated from these types and from those of a report
//! (`crate::typescript`). `None` means "not measured".

use serde::Serialize;
#[cfg(test)]
use ts_rs::TS;

use super::overall::{Overall, overall};
use super::{Curve, Entry, Row, TraceOf};
use crate::judgement::{Candidate, DelayOf, judge};
use crate::model::{Backend, Judgement, SCHEMA};
use sluice_scenario as scenario;

/// All runs of a folder.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct Index {
    /// Version of the types, [`SCHEMA`].
    pub schema: u32,
    /// The program that wrote the page, with its version.
    pub generated_by: String,
    /// The results of each algorithm over all scenarios, the best first.
    pub overall: Vec<AlgorithmSummary>,
    /// The scenarios, in order of their paths.
    pub scenarios: Vec<IndexedScenario>,
}

/// The results of an algorithm over all scenarios in which it is compared with others.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct AlgorithmSummary {
    /// Name.
    pub algorithm: String,
    /// The result, in words.
    pub sentence: String,
}

/// A scenario of the index.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct IndexedScenario {
    /// Folder below that of the index, unique.
    pub path: String,
    /// Title.
    pub title: String,
    /// Description.
    pub about: Option<String>,
    /// Relative URL of the report of all its runs.
    pub link: Option<String>,
    /// Duration that the traces of its variants span.
    pub duration_s: f64,
    /// Variants on each backend.
    pub variants: Vec<IndexedVariant>,
}

/// The runs of a variant of a scenario on one backend. Figures are medians over the runs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct IndexedVariant {
    /// Name.
    pub name: String,
    /// The backend.
    pub backend: Backend,
    /// Relative URL of the report of its first run.
    pub link: Option<String>,
    /// Number of runs.
    pub runs: usize,
    /// The reason why a run ended early, or how its algorithm was stopped; `None` if all are complete.
    pub partial: Option<String>,
    /// The comparison of its queue with those of the other variants.
    pub judgement: Judgement,
    /// Goodput of all flows together.
    pub goodput_mbps: Option<f64>,
    /// Share of the link that was used, 0 to 1.
    pub utilisation: Option<f64>,
    /// The packets on which the delays were measured.
    pub delay_of: DelayOf,
    /// Median delay.
    pub delay_p50_ms: Option<f64>,
    /// 95th percentile of the delay.
    pub delay_p95_ms: Option<f64>,
    /// Jain's index over the flows' goodputs.
    pub jain: Option<f64>,
    /// Packets dropped, in both directions.
    pub drops: f64,
    /// Packets marked, in both directions.
    pub marks: f64,
    /// Number of expectations that were met.
    pub expectations_met: usize,
    /// The expectations that were not met, in words.
    pub expectations_unmet: Vec<String>,
    /// A small picture of the first run.
    pub trace: Trace,
}

/// A curve over time, reduced to its smallest and largest value in each of equally long columns.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(TS))]
pub struct Trace {
    /// The content of the curve.
    pub of: TraceOf,
    /// Smallest value of each column; `None` if it holds none.
    pub low: Vec<Option<f64>>,
    /// Largest value of each column; `None` if it holds none.
    pub high: Vec<Option<f64>>,
}

impl Index {
    pub(super) fn of(entries: &[Entry]) -> Index {
        Index {
            schema: SCHEMA,
            generated_by: concat!("sluice ", env!("CARGO_PKG_VERSION")).to_owned(),
            overall: overall(entries).iter().map(AlgorithmSummary::of).collect(),
            scenarios: entries.iter().map(IndexedScenario::of).collect(),
        }
    }
}

impl AlgorithmSummary {
    fn of(overall: &Overall) -> AlgorithmSummary {
        AlgorithmSummary {
            algorithm: overall.algorithm.clone(),
            sentence: overall.sentence(),
        }
    }
}

impl IndexedScenario {
    fn of(entry: &Entry) -> IndexedScenario {
        let ends = entry.rows.iter().flat_map(|row| &row.curve.points);
        let duration_s = ends.map(|(at, _)| *at).fold(0.0, f64::max);
        let candidates: Vec<&Candidate> = entry.rows.iter().map(|row| &row.candidate).collect();
        let judgements = judge(&candidates);
        let variants = entry.rows.iter().zip(judgements);
        IndexedScenario {
            path: entry.place.clone(),
            title: entry.title.clone(),
            about: entry.about.clone(),
            link: entry.link.clone(),
            duration_s,
            variants: variants
                .map(|(row, judgement)| IndexedVariant::of(row, judgement.in_words(), duration_s))
                .collect(),
        }
    }
}

impl IndexedVariant {
    fn of(row: &Row, judgement: Judgement, duration_s: f64) -> IndexedVariant {
        let figures = &row.candidate.figures;
        let ms = |ns: Option<f64>| ns.map(|ns| ns / 1e6);
        IndexedVariant {
            name: row.candidate.name.clone(),
            backend: match row.candidate.backend {
                scenario::Backend::Sim => Backend::Sim,
                scenario::Backend::Live => Backend::Live,
            },
            link: row.link.clone(),
            runs: row.runs,
            partial: row.partial.clone(),
            judgement,
            goodput_mbps: figures.goodput.map(|bps| bps / 1e6),
            utilisation: figures.utilisation,
            delay_of: figures.delay_of,
            delay_p50_ms: ms(figures.p50),
            delay_p95_ms: ms(figures.p95),
            jain: figures.jain,
            drops: figures.drops,
            marks: figures.marks,
            expectations_met: row.met,
            expectations_unmet: row.unmet.clone(),
            trace: Trace::of(&row.curve, duration_s),
        }
    }
}

impl Trace {
    /// Columns of a trace: one for every two pixels of its picture.
    const COLUMNS: usize = 90;

    fn of(curve: &Curve, duration_s: f64) -> Trace {
        let mut low = vec![None; Self::COLUMNS];
        let mut high = vec![None; Self::COLUMNS];
        for &(at, value) in &curve.points {
            let column = (at / duration_s * Self::COLUMNS as f64) as usize;
            let column = column.min(Self::COLUMNS - 1);
            let value = rounded(value);
            low[column] = Some(low[column].map_or(value, |low: f64| low.min(value)));
            high[column] = Some(high[column].map_or(value, |high: f64| high.max(value)));
        }
        Trace {
            of: curve.of,
            low,
            high,
        }
    }
}

/// Rounds to a thousandth, which no picture shows, so that the page stays small.
fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}
