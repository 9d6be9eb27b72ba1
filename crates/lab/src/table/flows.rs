//! The single flows of each variant, or quantiles over them if they are many.

use sluice_recording::metrics::percentile;
use sluice_scenario::metric::{FlowSummary, Summary};

use super::{Column, Line, Pick, Row, WIDTH, column, count, median, mega, ms, of, percent};
use super::{flow_heads, wrap, write_table};

/// Of more flows of one type and direction than this, quantiles are shown: no one reads more lines.
pub(super) const MOST_FLOWS: usize = 24;

/// Quantiles: a name, and the value that this percentage of the values does not exceed.
const QUANTILES: [(&str, Pick); 5] = [
    ("largest", |values| quantile(values, 100)),
    ("95 %", |values| quantile(values, 95)),
    ("median", |values| quantile(values, 50)),
    ("5 %", |values| quantile(values, 5)),
    ("smallest", |values| quantile(values, 0)),
];

fn quantile(values: &[f64], percent: usize) -> Option<f64> {
    percentile(&mut values.to_vec(), percent)
}

/// Flows of one type and direction.
struct Kind<'a> {
    type_name: &'a str,
    direction: &'a str,
    /// Their places in the summary.
    places: Vec<usize>,
}

/// Groups the flows of a run by type and direction.
fn kinds(run: &Summary) -> Vec<Kind<'_>> {
    let mut kinds: Vec<Kind<'_>> = Vec::new();
    for (place, flow) in run.flows.iter().enumerate() {
        let is_of_it = |kind: &&mut Kind<'_>| {
            (kind.type_name, kind.direction) == (flow.type_name.as_str(), flow.direction.as_str())
        };
        match kinds.iter_mut().find(is_of_it) {
            Some(kind) => kind.places.push(place),
            None => kinds.push(Kind {
                type_name: &flow.type_name,
                direction: &flow.direction,
                places: vec![place],
            }),
        }
    }
    kinds
}

/// Formats the flows, and says over how many the quantiles are.
pub(super) fn table(rows: &[Row<'_>]) -> String {
    let columns: [Column<'_, FlowSummary>; 5] = [
        column(
            ["goodput", "Mbit/s"],
            9,
            |f: &FlowSummary| f.goodput_bps,
            mega,
        ),
        column(
            ["sent", "again"],
            8,
            |f: &FlowSummary| f.retransmits.map(|n| n as f64),
            count,
        ),
        column(
            ["RTT", "p50 ms"],
            8,
            |f: &FlowSummary| of(f.srtt.or(f.rtt), |p| p.p50_ns),
            ms,
        ),
        column(
            ["", "p99 ms"],
            8,
            |f: &FlowSummary| of(f.srtt.or(f.rtt), |p| p.p99_ns),
            ms,
        ),
        column(["loss", "%"], 7, |f: &FlowSummary| f.loss, percent),
    ];
    let numbers: usize = columns.iter().map(|column| column.width).sum();
    let mut lines: Vec<Line<'_, FlowSummary>> = Vec::new();
    let mut notes: Vec<String> = Vec::new();
    for row in rows {
        let mut variant = row.name.as_str();
        let mut line = |name, way, runs, pick| {
            lines.push(Line {
                words: vec![std::mem::take(&mut variant), name, way],
                runs,
                pick,
            });
        };
        let (many, few): (Vec<Kind<'_>>, Vec<Kind<'_>>) = kinds(row.runs[0])
            .into_iter()
            .partition(|kind| kind.places.len() > MOST_FLOWS);
        for kind in many {
            let all = row.runs.iter().flat_map(|run| {
                let flows = kind.places.iter();
                flows.filter_map(|place| run.flows.get(*place))
            });
            let all: Vec<&FlowSummary> = all.collect();
            for (name, pick) in QUANTILES {
                line(name, kind.direction, all.clone(), pick);
            }
            let (count, type_name, way) = (kind.places.len(), kind.type_name, kind.direction);
            let note = format!("{count} {type_name} flows {way}");
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
        let mut single: Vec<usize> = few.into_iter().flat_map(|kind| kind.places).collect();
        single.sort_unstable();
        for place in single {
            let flow = &row.runs[0].flows[place];
            let runs = row.runs.iter().filter_map(|run| run.flows.get(place));
            line(&flow.name, &flow.direction, runs.collect(), median);
        }
    }
    let heads = flow_heads("flow", WIDTH - numbers, 6, &lines);
    let mut out = write_table(&heads, &lines, &columns);
    if !notes.is_empty() {
        out.push_str(&wrap(&format!(
            "quantiles of each column over {}; summary.json has every flow",
            notes.join(" and ")
        )));
    }
    out
}
