//! The completion times of transfers and pages.

use sluice_scenario::metric::FlowSummary;

use super::{Column, Line, Row, WIDTH, column, count, median, ms, of};
use super::{flow_heads, write_table};

/// Formats a line for each flow of the scenario that has transfers or pages; empty if there is none.
/// Those of several flows with one declaration are taken together: a transfer of a number of bytes
/// has one time only.
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
        let runs: Vec<Vec<&FlowSummary>> = row.runs.iter().map(|run| run.declared()).collect();
        for (i, flow) in runs[0].iter().enumerate() {
            let of_it: Vec<&FlowSummary> =
                runs.iter().filter_map(|run| run.get(i).copied()).collect();
            // A run in which no transfer was complete has no times.
            if of_it.iter().any(|flow| flow.has_transfers()) {
                lines.push(Line {
                    words: vec![std::mem::take(&mut variant), &flow.name, &flow.direction],
                    runs: of_it,
                    pick: median,
                });
            }
        }
    }
    if lines.is_empty() {
        return String::new();
    }
    let heads = flow_heads("transfers", WIDTH - numbers, 6, &lines);
    write_table(&heads, &lines, &columns)
}
