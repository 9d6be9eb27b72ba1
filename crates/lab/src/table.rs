//! The table at the end of a run: 80 columns, one line per variant.

mod flows;
mod format;
#[cfg(test)]
mod tests;
mod transfers;

use std::fmt::Write as _;

use unicode_width::UnicodeWidthStr;

use self::format::{count, fit, mega, ms, of, percent, us};
pub(crate) use self::format::{cut, wrap};
use sluice_recording::figures::{
    FlowNames, Probes, Repeated, is_key_figure, median, pipe_under_test, repeated,
};
use sluice_recording::results::VariantResult;
use sluice_scenario::metric::{Accuracy, FlowSummary, PipeSummary, Summary};

/// Formats the results as JSON.
///
/// # Panics
/// Never: figures are numbers and names.
pub fn json(results: &[VariantResult]) -> String {
    serde_json::to_string_pretty(results).expect("results have only words for keys") + "\n"
}

/// Formats the results as text of at most 80 columns: a line per variant; the single flows if several
/// have a payload, or quantiles over many; the figures that programs reported; the calls; the times of
/// transfers and pages; the accuracy of a live run; and the expectations that were not met. Several
/// runs of a variant are shown by their medians, with the smallest and the largest figure below.
pub fn text(results: &[VariantResult]) -> String {
    let rows: Vec<Row<'_>> = rows(results);
    let mut out = variants(&rows);
    if busy_queues(&rows).len() > 1 {
        out.push('\n');
        out.push_str(&queues(&rows));
    }
    let carries = |summary: &Summary| summary.flows.iter().filter(|f| f.bytes.is_some()).count();
    if rows.iter().any(|row| carries(row.runs[0]) > 1) {
        out.push('\n');
        out.push_str(&flows::table(&rows));
    }
    let reported = reported(&rows);
    if !reported.is_empty() {
        out.push('\n');
        out.push_str(&reported);
    }
    let calls = calls(&rows);
    if !calls.is_empty() {
        out.push('\n');
        out.push_str(&calls);
    }
    let transfers = transfers::table(&rows);
    if !transfers.is_empty() {
        out.push('\n');
        out.push_str(&transfers);
    }
    if rows.iter().any(|row| row.runs[0].accuracy.is_some()) {
        out.push('\n');
        out.push_str(&accuracy(&rows));
    }
    let parts: String = rows.iter().filter_map(partly_measured).collect();
    if !parts.is_empty() {
        out.push('\n');
        out.push_str(&parts);
    }
    for (row, result) in rows.iter().zip(results).filter(|(row, _)| row.is_stopped) {
        out.push('\n');
        for why in result.stopped() {
            out.push_str(&wrap(&format!("not measured: {}: {why}", row.name)));
        }
    }
    let is_mixed = is_mixed(results);
    let failed: Vec<String> = results
        .iter()
        .flat_map(|r| {
            r.failed()
                .map(|outcome| outcome.text(is_mixed.then_some(r.backend)))
        })
        .collect();
    if !failed.is_empty() {
        out.push('\n');
        for outcome in failed {
            out.push_str(&wrap(&outcome));
        }
        if let Some(delay) = machine_delay(results) {
            out.push_str(&wrap(&disturbance(delay)));
        }
    }
    out
}

/// Returns the largest 99th percentile of the lateness of the runs with figures out of bounds, in
/// nanoseconds, if it is large enough to explain them.
fn machine_delay(results: &[VariantResult]) -> Option<u64> {
    let missed = results
        .iter()
        .filter(|result| result.failed().next().is_some());
    missed
        .flat_map(|result| &result.runs)
        .filter_map(|run| Some(run.summary.accuracy.as_ref()?.lateness?.p99_ns))
        .max()
        .filter(|delay| *delay >= NOTABLE_DELAY_NS)
}

fn disturbance(delay: u64) -> String {
    format!(
        "the machine was busy: the router sent 1 % of the packets more than {} ms late, each of \
         which delays a packet and those behind it; that is not the queue's doing, so repeat the \
         run on a quiet machine before you judge the queue",
        ms(delay as f64)
    )
}

/// The lateness from which on it is reported: 1 ms is the transmission time of 1500 bytes at 12
/// Mbit/s. On an idle machine, the lateness is below a quarter of this.
pub(crate) const NOTABLE_DELAY_NS: u64 = 1_000_000;

/// A variant and its runs, at least one.
struct Row<'a> {
    name: String,
    /// Whether an error stopped the algorithm of one of its queues.
    is_stopped: bool,
    runs: Vec<&'a Summary>,
}

/// Returns whether the results are of several backends.
fn is_mixed(results: &[VariantResult]) -> bool {
    results.iter().any(|r| r.backend != results[0].backend)
}

/// With several backends, the names of variants include theirs. The name of a variant whose
/// algorithm was stopped says so.
fn rows(results: &[VariantResult]) -> Vec<Row<'_>> {
    let is_mixed = is_mixed(results);
    let name = |result: &VariantResult| match is_mixed {
        true => format!("{} {}", result.variant, result.backend.word()),
        false => result.variant.clone(),
    };
    let row = |result| {
        let is_stopped = VariantResult::stopped(result).next().is_some();
        let mark = if is_stopped { " (stopped)" } else { "" };
        Row {
            name: name(result) + mark,
            is_stopped,
            runs: result.summaries(),
        }
    };
    results.iter().map(row).collect()
}

/// The width that no line exceeds.
const WIDTH: usize = 80;

/// Returns the number of a line.
type Value<'a, T> = Box<dyn Fn(&T) -> Option<f64> + 'a>;

/// A column of numbers, right-aligned under two lines of heading.
struct Column<'a, T> {
    heading: [String; 2],
    width: usize,
    value: Value<'a, T>,
    show: fn(f64) -> String,
}

fn column<'a, T>(
    heading: [&str; 2],
    width: usize,
    value: impl Fn(&T) -> Option<f64> + 'a,
    show: fn(f64) -> String,
) -> Column<'a, T> {
    Column {
        heading: heading.map(str::to_owned),
        width,
        value: Box::new(value),
        show,
    }
}

/// The statistic of several runs that a line shows.
type Pick = fn(&[f64]) -> Option<f64>;

/// A line: its first words, and the runs that it shows.
struct Line<'a, T> {
    words: Vec<&'a str>,
    runs: Vec<&'a T>,
    pick: Pick,
}

/// Divides `room` among a variant, a flow called `head`, and its direction, which takes `way`. The
/// flow takes half of the room or what its longest name takes, but leaves a quarter to the variant.
fn flow_heads<'h, T>(
    head: &'h str,
    room: usize,
    way: usize,
    lines: &[Line<'_, T>],
) -> [(&'h str, usize); 3] {
    let longest = lines.iter().map(|line| line.words[1].width() + 1).max();
    let half = room - room / 2 - way;
    let flow = longest.unwrap_or(0).clamp(half, room - room / 4 - way);
    [("variant", room - flow - way), (head, flow), ("way", way)]
}

/// Writes `lines` in columns of the given widths.
fn write_table<T>(
    heads: &[(&str, usize)],
    lines: &[Line<'_, T>],
    columns: &[Column<'_, T>],
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
    for line in lines {
        let mut text = String::new();
        let mut used = 0;
        for (word, (_, width)) in line.words.iter().zip(heads) {
            if word.width() >= *width {
                // A long name ends its line, and the rest follows below.
                text.push_str(&fit(word, WIDTH + 1 - used));
                out.push_str(text.trim_end());
                out.push('\n');
                text = fit("", used + width);
            } else {
                text.push_str(&fit(word, *width));
            }
            used += width;
        }
        for column in columns {
            let values: Vec<f64> = line.runs.iter().filter_map(|r| (column.value)(r)).collect();
            let cell = (line.pick)(&values).map_or(NONE.into(), column.show);
            let _ = write!(text, "{cell:>width$}", width = column.width);
        }
        out.push_str(text.trim_end());
        out.push('\n');
    }
    out
}

/// Returns the summaries of all runs.
fn summaries<'a>(rows: &[Row<'a>]) -> Vec<&'a Summary> {
    let runs = rows.iter().flat_map(|row| &row.runs);
    runs.copied().collect()
}

fn variants(rows: &[Row<'_>]) -> String {
    // All lines show the same queue, which the heading names: queues of different directions are
    // not comparable.
    let all = summaries(rows);
    let name = pipe_under_test(&all);
    // So do they show the same ping, also where none was answered.
    let probes = Probes::of(&all);
    let ping = |s: &Summary| probes.main(s)?.rtt;
    let queue = move |s: &Summary| s.pipes.iter().find(|pipe| pipe.name == name).cloned();
    let used = format!("{name} %");
    let wait = format!(" {name:<7}");
    let columns: [Column<'_, Summary>; 9] = [
        column(
            ["goodput", "Mbit/s"],
            8,
            |s: &Summary| s.total_goodput_bps,
            mega,
        ),
        column(
            ["used", &used],
            // The names of the directions of a [[hop]] are longer.
            used.width().max(6) + 1,
            move |s: &Summary| queue(s).and_then(|pipe| pipe.utilisation),
            percent,
        ),
        column(
            ["ping", "p50 ms"],
            8,
            move |s: &Summary| of(ping(s), |p| p.p50_ns),
            ms,
        ),
        column(
            ["", "p99 ms"],
            8,
            move |s: &Summary| of(ping(s), |p| p.p99_ns),
            ms,
        ),
        column(
            ["sojourn", "p50 ms"],
            9,
            move |s: &Summary| of(queue(s).and_then(|pipe| pipe.sojourn), |p| p.p50_ns),
            ms,
        ),
        column(
            [&wait, "p99 ms"],
            8,
            move |s: &Summary| of(queue(s).and_then(|pipe| pipe.sojourn), |p| p.p99_ns),
            ms,
        ),
        column(
            ["", "drops"],
            7,
            |s: &Summary| Some(s.pipes.iter().flat_map(|p| p.drops.values()).sum::<u64>() as f64),
            count,
        ),
        column(
            ["", "marks"],
            7,
            |s: &Summary| Some(s.pipes.iter().map(|pipe| pipe.marks).sum::<u64>() as f64),
            count,
        ),
        column(
            ["", "Jain"],
            6,
            |s: &Summary| s.jain,
            |jain| format!("{jain:.3}"),
        ),
    ];
    let numbers: usize = columns.iter().map(|column| column.width).sum();
    let mut lines = Vec::new();
    for row in rows {
        let mut line = |word, pick: Pick| {
            lines.push(Line {
                words: vec![word],
                runs: row.runs.clone(),
                pick,
            });
        };
        line(row.name.as_str(), median);
        if row.runs.len() > 1 {
            line("  smallest", |values| {
                values.iter().copied().reduce(f64::min)
            });
            line("  largest", |values| {
                values.iter().copied().reduce(f64::max)
            });
        }
    }
    let mut out = write_table(&[("variant", WIDTH - numbers)], &lines, &columns);
    if let Some(most) = rows.iter().map(|row| row.runs.len()).max()
        && most > 1
    {
        let _ = writeln!(
            out,
            "medians of {most} runs, with the smallest and the largest"
        );
    }
    out
}

/// Names the figures that only some of the runs of a variant measured: their medians are over those
/// runs.
fn partly_measured(row: &Row<'_>) -> Option<String> {
    let figures = repeated(&row.runs);
    let part = |(name, figure): &(String, Repeated)| Some((name.clone(), figure.measured_in()?));
    let mut parts: Vec<(String, String)> = figures.iter().filter_map(part).collect();
    let flows = FlowNames::of(&row.runs);
    parts.sort_by_key(|(name, _)| !is_key_figure(name, &flows));
    // The percentiles of a figure, such as `bulk.fct.p95`, follow from it.
    let mut seen: Vec<(String, String)> = Vec::new();
    parts.retain(|(name, part)| {
        let flow = flows.split(name).map_or("", |(flow, _)| flow);
        let family: Vec<&str> = name[flow.len()..].split('.').take(2).collect();
        let own = (flow.to_owned() + &family.join("."), part.clone());
        let is_new = !seen.contains(&own);
        seen.push(own);
        is_new
    });
    let more = parts.len().saturating_sub(MOST_PARTS);
    let shown = parts.iter().take(MOST_PARTS);
    let mut words: Vec<String> = shown.map(|(name, part)| format!("{name} {part}")).collect();
    if more > 0 {
        words.push(format!("{more} more"));
    }
    let text = format!(
        "not measured in all runs of {}: {}",
        row.name,
        words.join(", ")
    );
    (!parts.is_empty()).then(|| wrap(&text))
}

/// The most figures of a variant that are named as measured in some runs only.
const MOST_PARTS: usize = 6;

/// Returns the names of the queues that were busy in any run.
fn busy_queues<'a>(rows: &[Row<'a>]) -> Vec<&'a str> {
    let mut names: Vec<&str> = Vec::new();
    let pipes = rows
        .iter()
        .flat_map(|row| &row.runs)
        .flat_map(|run| &run.pipes);
    for pipe in pipes {
        let is_busy = pipe.utilisation.is_some_and(|part| part >= BUSY);
        if is_busy && !names.contains(&pipe.name.as_str()) {
            names.push(&pipe.name);
        }
    }
    names
}

/// The utilisation from which on a queue has its own line.
const BUSY: f64 = 0.5;

/// Each busy queue by itself, if there are several.
fn queues(rows: &[Row<'_>]) -> String {
    let columns: [Column<'_, PipeSummary>; 6] = [
        column(
            ["used", "%"],
            6,
            |pipe: &PipeSummary| pipe.utilisation,
            percent,
        ),
        column(
            ["sojourn", "p50 ms"],
            9,
            |pipe: &PipeSummary| of(pipe.sojourn, |p| p.p50_ns),
            ms,
        ),
        column(
            ["", "p95 ms"],
            8,
            |pipe: &PipeSummary| of(pipe.sojourn, |p| p.p95_ns),
            ms,
        ),
        column(
            ["", "p99 ms"],
            8,
            |pipe: &PipeSummary| of(pipe.sojourn, |p| p.p99_ns),
            ms,
        ),
        column(
            ["", "drops"],
            7,
            |pipe: &PipeSummary| Some(pipe.drops.values().sum::<u64>() as f64),
            count,
        ),
        column(
            ["", "marks"],
            7,
            |pipe: &PipeSummary| Some(pipe.marks as f64),
            count,
        ),
    ];
    let numbers: usize = columns.iter().map(|column| column.width).sum();
    let heads = [("variant", WIDTH - numbers - QUEUE), ("queue", QUEUE)];
    let names = busy_queues(rows);
    let mut lines: Vec<Line<'_, PipeSummary>> = Vec::new();
    for row in rows {
        for (i, name) in names.iter().enumerate() {
            let variant = if i == 0 { row.name.as_str() } else { "" };
            let pipes = row.runs.iter().flat_map(|run| &run.pipes);
            lines.push(Line {
                words: vec![variant, name],
                runs: pipes.filter(|pipe| pipe.name == *name).collect(),
                pick: median,
            });
        }
    }
    write_table(&heads, &lines, &columns)
}

/// Width of the names of queues.
const QUEUE: usize = 8;

/// The figures that programs reported; empty if there is none.
fn reported(rows: &[Row<'_>]) -> String {
    let mut out = String::new();
    for row in rows {
        let mut variant = row.name.as_str();
        for flow in &row.runs[0].flows {
            for (name, first) in &flow.reported {
                let of_run = |run: &&Summary| {
                    let flow = run.flows.iter().find(|own| own.name == flow.name)?;
                    flow.reported.get(name).map(|reported| reported.value)
                };
                let values: Vec<f64> = row.runs.iter().filter_map(of_run).collect();
                let value = median(&values).unwrap_or(first.value);
                let figure = format!("{}.{name}", flow.name);
                let (words, value) = (fit(variant, 30), first.unit.show(value));
                let _ = writeln!(out, "{words}{}{value:>16}", fit(&figure, 34));
                // The first line names the variant.
                variant = "";
            }
        }
    }
    if out.is_empty() {
        return out;
    }
    format!("{}reported by programs\n{out}", fit("variant", 30))
}

/// The calls; empty if there is none. (Other flows have a score too, which judges their path.)
fn calls(rows: &[Row<'_>]) -> String {
    // A packet of a call is measured in its direction only.
    let one_way = |flow: &FlowSummary| flow.up.or(flow.down);
    let columns: [Column<'_, FlowSummary>; 6] = [
        column(
            ["one-way", "p50 ms"],
            9,
            move |f: &FlowSummary| of(one_way(f), |p| p.p50_ns),
            ms,
        ),
        column(
            ["", "p95 ms"],
            8,
            move |f: &FlowSummary| of(one_way(f), |p| p.p95_ns),
            ms,
        ),
        column(
            ["", "p99 ms"],
            8,
            move |f: &FlowSummary| of(one_way(f), |p| p.p99_ns),
            ms,
        ),
        column(
            ["jitter", "ms"],
            8,
            |f: &FlowSummary| f.jitter_ns.map(|ns| ns as f64),
            ms,
        ),
        column(["loss", "%"], 7, |f: &FlowSummary| f.loss, percent),
        column(
            ["", "MOS"],
            6,
            |f: &FlowSummary| f.mos,
            |mos| format!("{mos:.2}"),
        ),
    ];
    let numbers: usize = columns.iter().map(|column| column.width).sum();
    let mut lines: Vec<Line<'_, FlowSummary>> = Vec::new();
    for row in rows {
        let mut variant = row.name.as_str();
        for (i, flow) in row.runs[0].flows.iter().enumerate() {
            if flow.is_call() {
                lines.push(Line {
                    words: vec![std::mem::take(&mut variant), &flow.name, &flow.direction],
                    runs: row.runs.iter().filter_map(|run| run.flows.get(i)).collect(),
                    pick: median,
                });
            }
        }
    }
    if lines.is_empty() {
        return String::new();
    }
    let heads = flow_heads("call", WIDTH - numbers, 5, &lines);
    write_table(&heads, &lines, &columns)
}

fn accuracy(rows: &[Row<'_>]) -> String {
    let columns: [Column<'_, Accuracy>; 5] = [
        column(
            ["rate", "error %"],
            9,
            |a: &Accuracy| a.rate_error,
            |error| format!("{:+.3}", error * 100.0),
        ),
        column(
            ["late", "p50 us"],
            9,
            |a: &Accuracy| of(a.lateness, |p| p.p50_ns),
            us,
        ),
        column(
            ["", "p99 us"],
            9,
            |a: &Accuracy| of(a.lateness, |p| p.p99_ns),
            us,
        ),
        column(
            ["", "max us"],
            9,
            |a: &Accuracy| of(a.lateness, |p| p.max_ns),
            us,
        ),
        column(
            ["lost", "elsewhere"],
            11,
            |a: &Accuracy| Some(a.lost.values().sum::<u64>() as f64),
            count,
        ),
    ];
    let numbers: usize = columns.iter().map(|column| column.width).sum();
    let measured = |row: &'_ Row<'_>| row.runs[0].accuracy.is_some();
    let lines: Vec<Line<'_, Accuracy>> = rows
        .iter()
        .filter(|row| measured(row))
        .map(|row| Line {
            words: vec![row.name.as_str()],
            runs: row
                .runs
                .iter()
                .filter_map(|s| s.accuracy.as_ref())
                .collect(),
            pick: median,
        })
        .collect();
    write_table(&[("accuracy", WIDTH - numbers)], &lines, &columns)
}

const NONE: &str = "-";
