//! Selects the numbers of a report that a figure shows.

use std::collections::BTreeMap;

use super::panel::{Cloud, Line, Look, Panel};
use super::scale::Scale;
use super::{Figure, FigureKind, FlowLines, compare, facts, flow_looks};
use crate::model::{Cdf, Direction, Flow, Ping, Queue, Report, Run, Series, Verdict};
use crate::thin::thin_series;

/// Delays get a logarithmic axis if the medians of the variants differ by more than this factor.
pub const LOG_BEYOND: f64 = 8.0;
/// The most values of a line, which are more than a figure of ordinary width can show.
const MOST_VALUES: usize = 4000;
pub(super) const DIRECTIONS: [Direction; 2] = [Direction::Up, Direction::Down];

/// Goodput per loaded direction, ping, sojourn time and backlog, as far as they were measured.
pub fn time_panels(report: &Report, flows: FlowLines) -> Vec<Panel> {
    let mut panels: Vec<Panel> = DIRECTIONS
        .into_iter()
        .map(|direction| goodput_panel(report, direction, flows))
        .collect();
    panels.push(ping_panel(report, flows));
    panels.push(sojourn_panel(report));
    panels.push(backlog_panel(report));
    panels.retain(has_values);
    panels
}

/// Round-trip time, one-way delay up and sojourn time, as far as they were measured.
pub fn distribution_panels(report: &Report, is_tail: bool) -> Vec<Panel> {
    let ping = |pick: fn(&Ping) -> Option<&Series>| {
        let runs = report.runs.iter();
        let curve = |run: &Run| {
            let ping = main_ping(run)?;
            Some((run.look as usize, ping.distribution(pick(ping)?)))
        };
        runs.filter_map(curve).collect()
    };
    let sojourn = chosen_queues(report)
        .map(|(variant, queue)| {
            let cdf = queue.sojourn_cdf.clone();
            (
                variant,
                cdf.unwrap_or_else(|| Cdf::of_sojourn(&queue.packets)),
            )
        })
        .collect();
    let completion = report.runs.iter();
    let completion = completion
        .filter_map(|run| Some((run.look as usize, run.completion_ms.clone()?)))
        .collect();
    let is_log = is_tail || is_spread(report);
    let mut panels = vec![
        cdf_panel("Ping", ping(|ping| Some(&ping.two_way_ms)), is_log, is_tail),
        cdf_panel(
            "One-way delay up",
            ping(|ping| ping.up_ms.as_ref()),
            is_log,
            is_tail,
        ),
        cdf_panel("Sojourn time", sojourn, is_log, is_tail),
        cdf_panel("Flow completion time", completion, is_log, is_tail),
    ];
    panels.retain(has_values);
    panels
}

/// Returns a sentence that says which repetition the curves and samples of a picture are from, if there
/// are several.
pub fn shown_repetition(report: &Report, kind: FigureKind) -> Option<String> {
    let has_all_boxes = report.runs.iter().all(Run::has_boxes);
    match kind {
        FigureKind::Repetitions | FigureKind::Totals => return None,
        FigureKind::Box if has_all_boxes => return None,
        _ => {}
    }
    let run = report.runs.iter().find(|run| run.repetitions.len() > 1)?;
    Some(format!(
        "Drawn is the repetition with seed {}, one of {}.",
        run.shown_seed,
        run.repetitions.len()
    ))
}

/// The caption: the information that the picture itself does not contain.
pub fn caption(report: &Report, figure: &Figure, panels: &[Panel]) -> String {
    let mut sentences: Vec<String> = Vec::new();
    for run in report.runs.iter().filter(|run| run.partial.is_some()) {
        let why = run.partial.as_deref().unwrap_or_default();
        sentences.push(format!("{} is partial: {why}.", run.name));
    }
    for run in report.runs.iter().filter(|run| !run.stopped.is_empty()) {
        let why = run.stopped.join(". ");
        sentences.push(format!("{} is not what its queue does: {why}.", run.name));
    }
    if matches!(figure.kind, FigureKind::Time | FigureKind::Flows) {
        let windows = distinct(report.runs.iter().map(|run| {
            format!(
                "averaged over the last {} s every {} s, counting {}",
                run.goodput_window_s, run.goodput_step_s, run.length_counted
            )
        }));
        let is_sum = sums_flows(report, figure.flows) && figure.kind == FigureKind::Time;
        let subject = if is_sum { "all flows together, " } else { "" };
        sentences.push(format!("Goodput: {subject}{windows}."));
        if has_dashed_flows(report, figure) {
            sentences.push("Colours: runs; dashes: flows.".to_owned());
            sentences.extend(flow_looks::repeated(report));
        }
        sentences.extend(above_link(report, figure.flows));
        if panels
            .iter()
            .any(|panel| panel.lines.iter().any(|line| line.look == Look::Reference))
        {
            sentences.push("Dotted: the rate of the link.".to_owned());
        }
    }
    if shows_one_queue(figure.kind)
        && let Some((_, queue)) = chosen_queues(report).next()
    {
        let way = queue.direction;
        sentences.push(match queue.name == way.word() {
            true => format!("Queue: {way}."),
            false => format!("Queue: {}, {way}.", queue.name),
        });
    }
    sentences.extend(ways(report, panels, &sentences));
    if panels
        .iter()
        .any(|panel| panel.clouds.iter().any(|cloud| !cloud.dropped.is_empty()))
    {
        sentences.push(
            "Crosses: dropped packets, at the time of the drop and with their wait until then; packets dropped on \
             arrival lie on the axis."
                .to_owned(),
        );
    }
    if panels
        .iter()
        .any(|panel| panel.clouds.iter().any(|cloud| !cloud.marked.is_empty()))
    {
        sentences.push("Triangles: CE-marked packets.".to_owned());
    }
    sentences.extend(compare::explain(report, figure, panels));
    sentences.extend(shown_repetition(report, figure.kind));
    let is_of_window = report.is_window && has_delays(figure.kind);
    if is_of_window {
        let ends = report.runs.iter().map(|run| run.duration_s);
        let (from, to) = (report.start_s, ends.fold(0.0, f64::max));
        sentences.push(format!("Delays: those from {from} to {to} s."));
    }
    let shared = facts::shared(report, is_of_window);
    if !shared.is_empty() {
        sentences.push(format!("In all runs: {shared}."));
    }
    let queues = facts::queues(report, figure.words());
    if !queues.is_empty() {
        sentences.push(format!("Queues: {queues}."));
    }
    sentences.join(" ")
}

/// The ends of the directions that titles and caption name.
fn ways(report: &Report, panels: &[Panel], sentences: &[String]) -> Option<String> {
    let texts = || {
        let titles = panels.iter().map(|panel| &panel.title);
        titles.chain(sentences)
    };
    let is_named = |way: &Direction| {
        let end = |text: &String| {
            let text = text.trim_end_matches('.');
            text.ends_with(&format!(" {way}"))
        };
        texts().any(end)
    };
    let named = DIRECTIONS.into_iter().filter(is_named);
    let ways: Vec<String> = named
        .map(|way| format!("{way}: {}", route(report, way)))
        .collect();
    let (first, rest) = ways
        .join("; ")
        .split_at_checked(1)
        .map(|(a, b)| (a.to_uppercase(), b.to_owned()))?;
    Some(format!("{first}{rest}."))
}

/// Whether a kind of figure has charts of the packets of one queue.
const fn shows_one_queue(kind: FigureKind) -> bool {
    matches!(
        kind,
        FigureKind::Time
            | FigureKind::Distribution
            | FigureKind::Tail
            | FigureKind::State
            | FigureKind::Box
    )
}

/// Says why the goodput of some runs is above the rate of the link, as the page does (`aboveLink`).
fn above_link(report: &Report, flows: FlowLines) -> Option<String> {
    let of = |direction| exceeding(report, direction, flows);
    let mut runs = DIRECTIONS.into_iter().flat_map(of).peekable();
    runs.peek()?;
    let why = if runs.any(|run| run.drops > 0.0) {
        "TCP delivers in order, so the arrival of a lost packet's copy releases all bytes behind it at once"
    } else {
        "it counts whole packets, and few of them fit into the time over which it is averaged"
    };
    Some(format!("Goodput above the rate of the link: {why}."))
}

/// Returns the runs of which a line of goodput is above the rate of the link by more than rounding.
fn exceeding(report: &Report, direction: Direction, flows: FlowLines) -> Vec<&Run> {
    let links = link_lines(report, direction);
    let points = links.iter().flat_map(|line| line.pieces.iter().flatten());
    let rate = points.map(|(_, value)| *value).fold(f64::NAN, f64::max);
    let is_above = |run: &&Run| {
        let goodput = run.flows.iter();
        let goodput = goodput.filter(|flow| flow.direction == direction);
        let goodput = goodput.map(|flow| &flow.goodput_mbps);
        let most = |series: &Series| series.value.iter().copied().fold(f64::NAN, f64::max);
        // Without a common rate, the comparison with NaN is false.
        let is_above = |series: &Series| most(series) > rate * 1.005;
        match sums_flows(report, flows) {
            true => is_above(&Series::sum(goodput, run.goodput_step_s)),
            false => goodput.into_iter().any(is_above),
        }
    };
    report.runs.iter().filter(is_above).collect()
}

/// Whether a kind of figure has statistics of delays. In a window of time, they are of all its delays.
const fn has_delays(kind: FigureKind) -> bool {
    matches!(
        kind,
        FigureKind::Distribution | FigureKind::Tail | FigureKind::Box
    )
}

pub(super) fn goodput_panel(report: &Report, direction: Direction, flows: FlowLines) -> Panel {
    let mut lines = link_lines(report, direction);
    if sums_flows(report, flows) {
        for run in &report.runs {
            let of_direction: Vec<&Flow> = run
                .flows
                .iter()
                .filter(|flow| flow.direction == direction)
                .collect();
            if of_direction.is_empty() {
                continue;
            }
            let sum = Series::sum(
                of_direction.iter().map(|flow| &flow.goodput_mbps),
                run.goodput_step_s,
            );
            lines.push(Line::of(Look::Variant(run.look as usize), &sum));
        }
    } else {
        let flows = flow_looks::of_direction(report, direction).into_iter();
        lines.extend(flows.map(|(look, flow)| Line::of(look, &flow.goodput_mbps)));
    }
    if lines.iter().all(|line| line.look == Look::Reference) {
        lines.clear();
    }
    Panel {
        height: 150,
        title: format!("Goodput {direction}"),
        y_label: "Mbit/s".into(),
        y: Scale::linear(largest(&lines), 5),
        ..over_time(report, lines)
    }
}

fn ping_panel(report: &Report, flows: FlowLines) -> Panel {
    let series: Vec<(usize, &Series)> = match pings_of_one(report, flows) {
        Some((first, pings)) => (first..).zip(pings.iter().map(|p| &p.two_way_ms)).collect(),
        None => each_ping(report, |ping| Some(&ping.two_way_ms)).collect(),
    };
    let lines: Vec<Line> = series
        .into_iter()
        .map(|(variant, series)| Line {
            has_dots: series.value.len() < 400,
            ..Line::of(Look::Variant(variant), series)
        })
        .collect();
    Panel {
        height: 165,
        title: "Ping, round trip".to_owned(),
        y_label: delay_label(report).into(),
        y: if is_spread(report) {
            Scale::log(smallest(&lines), largest(&lines))
        } else {
            Scale::linear(largest(&lines), 5)
        },
        ..over_time(report, lines)
    }
}

pub(super) fn sojourn_panel(report: &Report) -> Panel {
    let clouds: Vec<Cloud> = chosen_queues(report)
        .map(|(variant, queue)| {
            let mut cloud = Cloud {
                variant,
                ..Cloud::default()
            };
            for row in queue.packets.rows() {
                let at = (row.at_ns as f64 / 1e9, row.sojourn_ns as f64 / 1e6);
                match row.verdict {
                    Verdict::Sent => cloud.sent.push(at),
                    Verdict::Marked => cloud.marked.push(at),
                    Verdict::Dropped => cloud.dropped.push(at),
                }
            }
            cloud
        })
        .collect();
    let waits = || {
        clouds
            .iter()
            .flat_map(|cloud| [&cloud.sent, &cloud.marked, &cloud.dropped])
            .flatten()
            .map(|&(_, wait)| wait)
    };
    let y = if is_spread(report) {
        let smallest = waits()
            .filter(|wait| *wait > 0.0)
            .fold(f64::INFINITY, f64::min);
        Scale::log(smallest, waits().fold(0.0, f64::max))
    } else {
        Scale::linear(waits().fold(0.0, f64::max), 5)
    };
    Panel {
        height: 230,
        title: "Sojourn time of every packet".to_owned(),
        y_label: delay_label(report).into(),
        y,
        clouds,
        ..over_time(report, Vec::new())
    }
}

fn backlog_panel(report: &Report) -> Panel {
    let lines: Vec<Line> = chosen_queues(report)
        .map(|(variant, queue)| Line::of(Look::Variant(variant), &queue.backlog_packets))
        .collect();
    Panel {
        height: 140,
        title: "Backlog".to_owned(),
        y_label: "packets".into(),
        y: Scale::linear(largest(&lines), 4),
        ..over_time(report, lines)
    }
}

pub(super) fn over_time(report: &Report, lines: Vec<Line>) -> Panel {
    let end = report
        .runs
        .iter()
        .map(|run| run.duration_s)
        .fold(1e-3, f64::max);
    Panel {
        height: 0,
        title: String::new(),
        x: Scale::between(report.start_s, end, 12),
        x_label: "time (s)".into(),
        y: Scale::linear(1.0, 2),
        y_label: "".into(),
        fills: Vec::new(),
        lines,
        clouds: Vec::new(),
        texts: Vec::new(),
    }
}

fn cdf_panel(title: &str, curves: Vec<(usize, Cdf)>, is_log: bool, is_tail: bool) -> Panel {
    let values = || curves.iter().flat_map(|(_, cdf)| cdf.value.iter().copied());
    let most = values().fold(0.0, f64::max);
    let x = if is_log {
        let least = values()
            .filter(|value| *value > 0.0)
            .fold(f64::INFINITY, f64::min);
        Scale::log(least, most)
    } else {
        Scale::linear(most, 6)
    };
    let rarest = curves.iter().map(|(_, cdf)| cdf.count).max().unwrap_or(0);
    let rarest = rarest.max(10);
    let lines = curves
        .iter()
        .filter(|(_, cdf)| cdf.count > 0)
        .map(|(variant, cdf)| {
            let mut steps = Vec::with_capacity(2 * cdf.value.len());
            let share = |fraction: f64| if is_tail { 1.0 - fraction } else { fraction };
            let mut below = 0.0;
            for (&value, &fraction) in cdf.value.iter().zip(&cdf.fraction) {
                steps.push((value, share(below)));
                steps.push((value, share(fraction)));
                below = fraction;
            }
            if is_tail {
                // The share above the largest value is zero, which has no logarithm.
                steps.retain(|(_, share)| *share > 1e-12);
            }
            Line {
                look: Look::Variant(*variant),
                pieces: vec![steps],
                has_dots: false,
            }
        })
        .collect();
    Panel {
        height: 0,
        title: title.to_owned(),
        x,
        x_label: if is_log { "ms, logarithmic" } else { "ms" }.into(),
        y: if is_tail {
            Scale::log(0.8 / rarest as f64, 0.8)
        } else {
            Scale::between(0.0, 1.0, 5)
        },
        y_label: if is_tail {
            "share of samples above".into()
        } else {
            "share of samples up to".into()
        },
        fills: Vec::new(),
        lines,
        clouds: Vec::new(),
        texts: Vec::new(),
    }
}

impl Line {
    pub(super) fn of(look: Look, series: &Series) -> Self {
        let mut series = series.clone();
        thin_series(&mut series, MOST_VALUES);
        let points = series.time_s.iter().zip(&series.value);
        let pieces = points
            .map(|(&time, &value)| (time, value))
            .collect::<Vec<(f64, f64)>>()
            .split(|(_, value)| !value.is_finite())
            .filter(|piece| !piece.is_empty())
            .map(<[(f64, f64)]>::to_vec)
            .collect();
        Line {
            look,
            pieces,
            has_dots: false,
        }
    }
}

/// The rate of the link, if it is the same in all runs.
fn link_lines(report: &Report, direction: Direction) -> Vec<Line> {
    let mut links = report.runs.iter().map(|run| {
        let mut queues = run
            .queues
            .iter()
            .filter(|queue| queue.direction == direction);
        match (queues.next(), queues.next()) {
            (Some(queue), None) => Some((&queue.link_mbps, run.duration_s)),
            _ => None,
        }
    });
    let Some(Some((link, mut end))) = links.next() else {
        return Vec::new();
    };
    for other in links {
        match other {
            Some((other, other_end)) if other == link => end = end.max(other_end),
            _ => return Vec::new(),
        }
    }
    let mut corners: Vec<(f64, f64)> = Vec::new();
    for (time, rate) in link.points() {
        if let Some(&(_, held)) = corners.last() {
            corners.push((time, held));
        }
        corners.push((time, rate));
    }
    if let Some(&(_, held)) = corners.last() {
        corners.push((end, held));
    }
    vec![Line {
        look: Look::Reference,
        pieces: vec![corners],
        has_dots: false,
    }]
}

fn sums_flows(report: &Report, flows: FlowLines) -> bool {
    match flows {
        FlowLines::Each => false,
        FlowLines::Sum => true,
        FlowLines::Auto => {
            let of = |run: &Run, direction| {
                run.flows
                    .iter()
                    .filter(|flow| flow.direction == direction)
                    .count()
            };
            let is_any_of_several = |run: &Run| {
                DIRECTIONS
                    .into_iter()
                    .any(|direction| of(run, direction) > 1)
            };
            report.runs.len() > 1 && report.runs.iter().any(is_any_of_several)
        }
    }
}

/// Whether a figure has lines of several flows of several runs.
pub(super) fn has_dashed_flows(report: &Report, figure: &Figure) -> bool {
    let is_each = match figure.kind {
        FigureKind::Time => !sums_flows(report, figure.flows),
        kind => kind == FigureKind::Flows,
    };
    is_each && report.runs.len() > 1 && flow_looks::names(report).len() > 1
}

fn each_ping(
    report: &Report,
    pick: fn(&Ping) -> Option<&Series>,
) -> impl Iterator<Item = (usize, &Series)> {
    report
        .runs
        .iter()
        .filter_map(move |run| Some((run.look as usize, pick(main_ping(run)?)?)))
}

/// The pings of a single run that has several, and the number of the first ping's colour, which
/// follows those of the flows. A call has no round trips, and is none.
pub(super) fn pings_of_one(report: &Report, flows: FlowLines) -> Option<(usize, Vec<&Ping>)> {
    let [run] = report.runs.as_slice() else {
        return None;
    };
    let has_round_trips = |ping: &&Ping| ping.two_way_ms.value.iter().any(|rtt| !rtt.is_nan());
    let pings: Vec<&Ping> = run.pings.iter().filter(has_round_trips).collect();
    let is_each = flows != FlowLines::Sum && pings.len() > 1;
    let of = |direction| {
        run.flows
            .iter()
            .filter(|f| f.direction == direction)
            .count()
    };
    let places = DIRECTIONS.map(of).into_iter().max().unwrap_or(0);
    is_each.then_some((places, pings))
}

/// The ping whose round trips are compared; in this run, none may have been answered.
pub(super) fn main_ping(run: &Run) -> Option<&Ping> {
    let name = run.main_ping.as_ref()?;
    run.pings.iter().find(|ping| ping.name == *name)
}

/// In each run, the queue that has the longest waits over all runs.
pub(super) fn chosen_queues(report: &Report) -> impl Iterator<Item = (usize, &Queue)> {
    let mut waits: BTreeMap<(Direction, &str), f64> = BTreeMap::new();
    for queue in report.runs.iter().flat_map(|run| &run.queues) {
        let median = queue.sojourn_ms.map_or(0.0, |quantiles| quantiles.p50);
        *waits.entry((queue.direction, &queue.name)).or_default() += median;
    }
    // Among equal queues, take the first, which is the upward one if no packet waits.
    let busiest = waits
        .iter()
        .fold(
            None,
            |best: Option<(&(Direction, &str), f64)>, (key, &wait)| match best {
                Some((_, most)) if most >= wait => best,
                _ => Some((key, wait)),
            },
        )
        .map(|(key, _)| *key);
    report.runs.iter().filter_map(move |run| {
        let queue = run
            .queues
            .iter()
            .find(|queue| Some((queue.direction, queue.name.as_str())) == busiest)?;
        Some((run.look as usize, queue))
    })
}

pub(super) fn delay_label(report: &Report) -> &'static str {
    if is_spread(report) {
        "ms, logarithmic"
    } else {
        "ms"
    }
}

/// Whether the delays of the variants differ too much for a linear axis.
pub(super) fn is_spread(report: &Report) -> bool {
    let medians: Vec<f64> = report
        .runs
        .iter()
        .filter_map(|run| Some(main_ping(run)?.two_way?.p50))
        .filter(|median| *median > 0.0)
        .collect();
    let largest = medians.iter().copied().fold(0.0, f64::max);
    medians.iter().any(|median| largest > LOG_BEYOND * median)
}

pub(super) fn route(report: &Report, direction: Direction) -> String {
    let (from, to) = match direction {
        Direction::Up => (&report.ends.left, &report.ends.right),
        Direction::Down => (&report.ends.right, &report.ends.left),
    };
    format!("{from} → {to}")
}

fn distinct(texts: impl Iterator<Item = String>) -> String {
    let mut seen: Vec<String> = Vec::new();
    for text in texts {
        if !seen.contains(&text) {
            seen.push(text);
        }
    }
    seen.join("; ")
}

/// Whether a panel has values. The rate of the link is none.
pub(super) fn has_values(panel: &Panel) -> bool {
    let is_measured = |line: &Line| line.look != Look::Reference && !line.pieces.is_empty();
    let has_line = panel.lines.iter().any(is_measured);
    let has_packets = |cloud: &Cloud| {
        [&cloud.sent, &cloud.marked, &cloud.dropped]
            .iter()
            .any(|at| !at.is_empty())
    };
    has_line || !panel.fills.is_empty() || panel.clouds.iter().any(has_packets)
}

fn values(lines: &[Line]) -> impl Iterator<Item = f64> + '_ {
    lines
        .iter()
        .flat_map(|line| &line.pieces)
        .flatten()
        .map(|&(_, value)| value)
}

pub(super) fn largest(lines: &[Line]) -> f64 {
    values(lines).fold(0.0, f64::max)
}

pub(super) fn smallest(lines: &[Line]) -> f64 {
    values(lines)
        .filter(|value| *value > 0.0)
        .fold(f64::INFINITY, f64::min)
}
