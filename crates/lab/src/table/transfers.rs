//! The completion times of transfers and pages.

use std::collections::BTreeMap;

use sluice_scenario::metric::FlowSummary;

use super::flows::MOST_FLOWS;
use super::{Column, Line, Row, WIDTH, column, count, median, ms, of};
use super::{flow_heads, write_table};

/// Formats a line for each flow of the scenario that has transfers or pages; empty if there is none.
/// Those of several flows with one declaration are taken together, since a transfer of a number of bytes
/// has one time only, and so are those of many flows of one type and direction.
pub(super) fn table(rows: &[Row<'_>]) -> String {
    let columns: [Column<'_, FlowSummary>; 4] = [
        column(
            ["completion", "p50 ms"],
            12,
            |f: &FlowSummary| of(f.fct, |p| p.p50_ns),
            ms,
        ),
        column(
            ["", "p95 ms"],
            8,
            |f: &FlowSummary| of(f.fct, |p| p.p95_ns),
            ms,
        ),
        column(
            ["", "complete"],
            10,
            |f: &FlowSummary| Some(f.fct.map_or(0, |p| p.count) as f64),
            count,
        ),
        column(
            ["", "open"],
            7,
            |f: &FlowSummary| f.open.map(|n| n as f64),
            count,
        ),
    ];
    let numbers: usize = columns.iter().map(|column| column.width).sum();
    let mut lines: Vec<Line<'_, FlowSummary>> = Vec::new();
    for row in rows {
        let mut variant = row.name.as_str();
        let mut places: BTreeMap<[&str; 3], usize> = BTreeMap::new();
        for flow in row.runs.iter().flat_map(|run| run.transfers(MOST_FLOWS)) {
            let key = [&flow.type_name, &flow.direction, &flow.name].map(String::as_str);
            let place = *places.entry(key).or_insert(lines.len());
            if place == lines.len() {
                lines.push(Line {
                    words: vec![std::mem::take(&mut variant), &flow.name, &flow.direction],
                    runs: Vec::new(),
                    pick: median,
                });
            }
            lines[place].runs.push(flow);
        }
    }
    if lines.is_empty() {
        return String::new();
    }
    let heads = flow_heads("transfers", WIDTH - numbers, 6, &lines);
    write_table(&heads, &lines, &columns)
}
