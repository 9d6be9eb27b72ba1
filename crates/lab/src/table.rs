//! The table at the end of a run: 80 columns, one line per variant.

#[cfg(test)]
mod tests;

use std::fmt::Write as _;

use serde::Serialize;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::expect::Outcome;
use crate::metrics::{Accuracy, FlowSummary, Percentiles, PipeSummary, Summary};

/// A variant's figures, and whether they are as expected.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VariantResult {
    /// The figures.
    pub summary: Summary,
    /// The expectations.
    pub expect: Vec<Outcome>,
}

/// The results as JSON.
///
/// # Panics
/// Never: figures are numbers and names.
pub fn json(results: &[VariantResult]) -> String {
    serde_json::to_string_pretty(results).expect("results have only words for keys") + "\n"
}

/// The results as text of at most 80 columns: a line per variant, the single flows where there are
/// several with a payload, the accuracy of a live run, and the expectations that were not met.
pub fn text(results: &[VariantResult]) -> String {
    let mut out = variants(results);
    let carries = |summary: &Summary| summary.flows.iter().filter(|f| f.bytes.is_some()).count();
    if results.iter().any(|result| carries(&result.summary) > 1) {
        out.push('\n');
        out.push_str(&flows(results));
    }
    let accuracies: Vec<(&str, &Accuracy)> = results
        .iter()
        .filter_map(|r| Some((r.summary.variant.as_str(), r.summary.accuracy.as_ref()?)))
        .collect();
    if !accuracies.is_empty() {
        out.push('\n');
        out.push_str(&accuracy(&accuracies));
    }
    let failed: Vec<&Outcome> = results
        .iter()
        .flat_map(|r| &r.expect)
        .filter(|outcome| !outcome.passed)
        .collect();
    if !failed.is_empty() {
        out.push('\n');
        for outcome in failed {
            out.push_str(&wrap(&outcome.to_string()));
        }
    }
    out
}

/// The width that no line exceeds.
const WIDTH: usize = 80;

/// A column of numbers, right-aligned under two lines of heading.
struct Column<T> {
    heading: [&'static str; 2],
    width: usize,
    cell: fn(&T) -> String,
}

/// Writes `rows`, each with the words that it begins with, in columns of the given widths.
fn write_table<T>(
    heads: &[(&str, usize)],
    rows: &[(Vec<&str>, &T)],
    columns: &[Column<T>],
) -> String {
    let mut out = String::new();
    for line in 0..2 {
        let mut text = String::new();
        for (head, width) in heads {
            let head = if line == 1 { head } else { "" };
            let _ = write!(text, "{}", fit(head, *width));
        }
        for column in columns {
            let _ = write!(
                text,
                "{:>width$}",
                column.heading[line],
                width = column.width
            );
        }
        out.push_str(text.trim_end());
        out.push('\n');
    }
    for (words, row) in rows {
        let mut text = String::new();
        for (i, (word, (_, width))) in words.iter().zip(heads).enumerate() {
            if i == 0 && word.width() >= *width {
                // A long name takes a line of its own, and the rest comes below.
                out.push_str(fit(word, WIDTH + 1).trim_end());
                out.push('\n');
                text.push_str(&fit("", *width));
            } else {
                text.push_str(&fit(word, *width));
            }
        }
        for column in columns {
            let _ = write!(text, "{:>width$}", (column.cell)(row), width = column.width);
        }
        out.push_str(text.trim_end());
        out.push('\n');
    }
    out
}

fn variants(results: &[VariantResult]) -> String {
    let columns: [Column<Summary>; 9] = [
        Column {
            heading: ["goodput", "Mbit/s"],
            width: 8,
            cell: |s| {
                s.total_goodput_bps
                    .map_or(NONE.into(), |bps| digits(bps / 1e6))
            },
        },
        Column {
            heading: ["used", "%"],
            width: 6,
            cell: |s| {
                let used = busiest(s).and_then(|pipe| pipe.utilisation);
                used.map_or(NONE.into(), |u| digits(u * 100.0))
            },
        },
        Column {
            heading: ["ping", "p50 ms"],
            width: 8,
            cell: |s| ms(ping(s), |p| p.p50_ns),
        },
        Column {
            heading: ["", "p99 ms"],
            width: 8,
            cell: |s| ms(ping(s), |p| p.p99_ns),
        },
        Column {
            heading: ["sojourn", "p50 ms"],
            width: 9,
            cell: |s| ms(busiest(s).and_then(|pipe| pipe.sojourn), |p| p.p50_ns),
        },
        Column {
            heading: ["", "p99 ms"],
            width: 8,
            cell: |s| ms(busiest(s).and_then(|pipe| pipe.sojourn), |p| p.p99_ns),
        },
        Column {
            heading: ["", "drops"],
            width: 7,
            cell: |s| count(s.pipes.iter().flat_map(|p| p.drops.values()).sum()),
        },
        Column {
            heading: ["", "marks"],
            width: 7,
            cell: |s| count(s.pipes.iter().map(|pipe| pipe.marks).sum()),
        },
        Column {
            heading: ["", "Jain"],
            width: 6,
            cell: |s| s.jain.map_or(NONE.into(), |jain| format!("{jain:.3}")),
        },
    ];
    let numbers: usize = columns.iter().map(|column| column.width).sum();
    let rows: Vec<(Vec<&str>, &Summary)> = results
        .iter()
        .map(|r| (vec![r.summary.variant.as_str()], &r.summary))
        .collect();
    write_table(&[("variant", WIDTH - numbers)], &rows, &columns)
}

fn flows(results: &[VariantResult]) -> String {
    let columns: [Column<FlowSummary>; 5] = [
        Column {
            heading: ["goodput", "Mbit/s"],
            width: 9,
            cell: |f| f.goodput_bps.map_or(NONE.into(), |bps| digits(bps / 1e6)),
        },
        Column {
            heading: ["sent", "again"],
            width: 8,
            cell: |f| f.retransmits.map_or(NONE.into(), count),
        },
        Column {
            heading: ["RTT", "p50 ms"],
            width: 8,
            cell: |f| ms(f.srtt.or(f.rtt), |p| p.p50_ns),
        },
        Column {
            heading: ["", "p99 ms"],
            width: 8,
            cell: |f| ms(f.srtt.or(f.rtt), |p| p.p99_ns),
        },
        Column {
            heading: ["loss", "%"],
            width: 7,
            cell: |f| f.loss.map_or(NONE.into(), |loss| digits(loss * 100.0)),
        },
    ];
    let numbers: usize = columns.iter().map(|column| column.width).sum();
    let words = WIDTH - numbers;
    let heads = [
        ("variant", words / 2),
        ("flow", words - words / 2 - 6),
        ("way", 6),
    ];
    let mut rows: Vec<(Vec<&str>, &FlowSummary)> = Vec::new();
    for result in results {
        for (i, flow) in result.summary.flows.iter().enumerate() {
            let variant = if i == 0 {
                result.summary.variant.as_str()
            } else {
                ""
            };
            rows.push((vec![variant, &flow.name, &flow.direction], flow));
        }
    }
    write_table(&heads, &rows, &columns)
}

fn accuracy(accuracies: &[(&str, &Accuracy)]) -> String {
    let columns: [Column<Accuracy>; 5] = [
        Column {
            heading: ["rate", "error %"],
            width: 9,
            cell: |a| {
                a.rate_error
                    .map_or(NONE.into(), |error| format!("{:+.3}", error * 100.0))
            },
        },
        Column {
            heading: ["late", "p50 us"],
            width: 9,
            cell: |a| late(a, |p| p.p50_ns),
        },
        Column {
            heading: ["", "p99 us"],
            width: 9,
            cell: |a| late(a, |p| p.p99_ns),
        },
        Column {
            heading: ["", "max us"],
            width: 9,
            cell: |a| late(a, |p| p.max_ns),
        },
        Column {
            heading: ["lost", "elsewhere"],
            width: 11,
            cell: |a| count(a.lost.values().sum()),
        },
    ];
    let numbers: usize = columns.iter().map(|column| column.width).sum();
    let rows: Vec<(Vec<&str>, &Accuracy)> = accuracies
        .iter()
        .map(|(name, a)| (vec![*name], *a))
        .collect();
    write_table(&[("accuracy", WIDTH - numbers)], &rows, &columns)
}

const NONE: &str = "-";

/// The first flow of probes.
fn ping(summary: &Summary) -> Option<Percentiles> {
    summary.flows.iter().find_map(|flow| flow.rtt)
}

/// The direction that is used most: the one under test.
fn busiest(summary: &Summary) -> Option<&PipeSummary> {
    summary.pipes.iter().max_by(|a, b| {
        let key = |pipe: &PipeSummary| pipe.utilisation.unwrap_or(pipe.packets as f64);
        key(a).total_cmp(&key(b))
    })
}

fn late(accuracy: &Accuracy, pick: fn(&Percentiles) -> u64) -> String {
    let late = accuracy.lateness.as_ref().map(pick);
    late.map_or(NONE.into(), |ns| digits(ns as f64 / 1e3))
}

fn ms(percentiles: Option<Percentiles>, pick: fn(&Percentiles) -> u64) -> String {
    percentiles.map_or(NONE.into(), |p| digits(pick(&p) as f64 / 1e6))
}

/// Three digits or more, in at most six characters.
fn digits(x: f64) -> String {
    match x.abs() {
        a if a < 9.995 => format!("{x:.2}"),
        a if a < 99.95 => format!("{x:.1}"),
        a if a < 99_999.5 => format!("{x:.0}"),
        _ => format!("{x:.0e}"),
    }
}

/// A number of things in at most five characters.
fn count(n: u64) -> String {
    match n {
        0..100_000 => n.to_string(),
        100_000..10_000_000 => format!("{}k", n / 1000),
        10_000_000..10_000_000_000 => format!("{}M", n / 1_000_000),
        _ => format!("{}G", n / 1_000_000_000),
    }
}

/// Fills `word` up to `width` columns, or cuts it, leaving one column free.
fn fit(word: &str, width: usize) -> String {
    let of = |c: char| c.width().unwrap_or(0);
    let whole = word.width();
    let mut out = String::new();
    let mut used = 0;
    for c in word.chars() {
        // One column stays free, and one is for the mark of a cut.
        let room = if whole < width { width } else { width - 2 };
        if used + of(c) > room {
            break;
        }
        used += of(c);
        out.push(c);
    }
    if whole >= width {
        out.push('…');
        used += 1;
    }
    out.extend(std::iter::repeat_n(' ', width.saturating_sub(used)));
    out
}

/// Breaks a sentence into lines.
fn wrap(text: &str) -> String {
    let mut out = String::new();
    let mut used = 0;
    for word in text.split(' ') {
        let width = word.width();
        if used > 0 && used + 1 + width > WIDTH {
            out.push_str("\n    ");
            used = 4;
        } else if used > 0 {
            out.push(' ');
            used += 1;
        }
        out.push_str(word);
        used += width;
    }
    out.push('\n');
    out
}
