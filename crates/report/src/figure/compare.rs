//! Charts that compare: flows of a run, the variables of an AQM below the packets, fairness, boxes,
//! bars, and goodput against delay.

use super::FlowLines;
use super::color;
use super::flow_looks;
use super::panel::{Fill, FillStyle, Line, Look, Note, Panel};
use super::repeats::run_columns;
use super::scale::Scale;
use super::select::{
    DIRECTIONS, chosen_queues, goodput_panel, has_values, is_spread, largest, main_ping, over_time,
    smallest, sojourn_panel,
};
use super::words::Words;
use super::{Figure, FigureKind};
use crate::model::{Cdf, Direction, DirectionTotal, Flow, Queue, Report, Run, Series, State};

/// The part of the caption that explains a kind of figure, which has these panels.
pub fn explain(report: &Report, figure: &Figure, panels: &[Panel]) -> Option<String> {
    match figure.kind {
        FigureKind::Fairness => {
            let windows: Vec<f64> = report.runs.iter().map(|r| r.goodput_window_s).collect();
            let window = windows.first().copied().unwrap_or_default();
            Some(format!(
                "Jain's index of the bulk flows that were active throughout the last {window} s: 1 if all get \
                 the same, 1/n if one of n gets everything."
            ))
        }
        FigureKind::Tradeoff if report.runs.len() > MOST_CLOUDS => Some(
            "Numbers: mean goodput and sojourn time of the runs in the legend; thin ellipses: one standard deviation. \
             Up and left is better."
                .to_owned()
                + &bottlenecks(report),
        ),
        FigureKind::Tradeoff => Some(
            "Each dot is the goodput and the mean sojourn time of one window; the ellipse is one standard \
             deviation of their common Gaussian around the mean, over the logarithm of the delay if the axis is \
             logarithmic. Up and left is better."
                .to_owned()
                + &bottlenecks(report),
        ),
        FigureKind::Box if report.runs.iter().any(|run| run.repetitions.len() > 1 && run.has_boxes()) => Some(
            "Boxes hold the middle half of the samples, the line is the median, whiskers reach from 5 % to 95 %; \
             each is the median of these quantiles of the repetitions."
                .to_owned(),
        ),
        FigureKind::Box => Some(
            "Boxes hold the middle half of the samples, the line is the median, whiskers reach from 5 % to 95 %."
                .to_owned(),
        ),
        FigureKind::Repetitions => {
            let runs = report.runs.iter().map(|run| run.repetitions.len()).max();
            let runs = runs.unwrap_or(0);
            let repeats = report.runs.iter().flat_map(|run| &run.repeats);
            let least = repeats.map(|repeat| repeat.values.len()).min();
            let marks = figure.marks.explained(least.unwrap_or(runs), runs);
            Some(marks + &partly_measured(report))
        }
        FigureKind::Totals if report.runs.iter().any(|run| !run.repeats.is_empty()) => Some(
            "Bars: medians over the repetitions; lines reach from the smallest to the largest.".to_owned(),
        ),
        FigureKind::State => Some(
            "Below: the variables of the queue's algorithm, at the same times; each queue of a run is a line of its \
             colour."
                .to_owned()
                + &left_out(report, panels),
        ),
        _ => None,
    }
}

/// Names the queues of which the delays are; empty if each direction has one link.
fn bottlenecks(report: &Report) -> String {
    let totals = report.runs.iter().flat_map(|run| &run.directions);
    let queue = |total: &DirectionTotal| {
        let queue = &total.tradeoff.as_ref()?.queue;
        (!queue.is_empty() && *queue != total.direction.word()).then(|| queue.clone())
    };
    let mut names: Vec<String> = totals.filter_map(queue).collect();
    names.sort_unstable();
    names.dedup();
    match names.is_empty() {
        true => String::new(),
        false => format!(" Delay: of the queue {}.", names.join(", ")),
    }
}

/// Says which figures only some of the repetitions measured; empty if there are none.
fn partly_measured(report: &Report) -> String {
    let mut parts: Vec<String> = Vec::new();
    for run in &report.runs {
        let all = run.repetitions.len();
        for repeat in run
            .repeats
            .iter()
            .filter(|repeat| repeat.values.len() < all)
        {
            let (count, figure) = (repeat.values.len(), &repeat.figure);
            parts.push(format!("{figure} of {} in {count} of {all}", run.name));
        }
    }
    match parts.is_empty() {
        true => String::new(),
        false => format!(" Not measured in all: {}.", parts.join(", ")),
    }
}

/// Goodput, congestion window and smoothed RTT of every flow.
pub fn flow_panels(report: &Report) -> Vec<Panel> {
    let mut panels = Vec::new();
    for direction in DIRECTIONS {
        panels.push(goodput_panel(report, direction, FlowLines::Each));
        let cwnd = |flow: &Flow| flow.cwnd_segments.clone();
        let srtt = |flow: &Flow| flow.srtt_ms.clone();
        panels.push(each_flow(
            report,
            direction,
            "Congestion window",
            "segments",
            cwnd,
        ));
        panels.push(each_flow(report, direction, "Smoothed RTT", "ms", srtt));
    }
    panels.retain(has_values);
    panels
}

fn each_flow(
    report: &Report,
    direction: Direction,
    title: &str,
    unit: &'static str,
    pick: fn(&Flow) -> Option<Series>,
) -> Panel {
    let flows = flow_looks::of_direction(report, direction).into_iter();
    let lines = flows.filter_map(|(look, flow)| Some(Line::of(look, &pick(flow)?)));
    let lines: Vec<Line> = lines.collect();
    Panel {
        height: 150,
        title: format!("{title} {direction}"),
        y_label: unit.into(),
        y: Scale::linear(largest(&lines), 5),
        ..over_time(report, lines)
    }
}

/// The packets, and below them the first variables of the AQM.
pub fn state_panels(report: &Report) -> Vec<Panel> {
    let mut panels = vec![sojourn_panel(report)];
    for (name, unit) in variables(report).into_iter().take(MOST_VARIABLES) {
        let lines: Vec<Line> = chosen_queues(report)
            .flat_map(|(variant, queue)| {
                let of_it = queue.state.iter();
                let of_it =
                    of_it.filter(|state| variable(&state.name) == name && state.unit == unit);
                of_it.map(move |state| Line::of(Look::Variant(variant), &state.series))
            })
            .collect();
        panels.push(Panel {
            height: 120,
            y_label: unit.into(),
            y: Scale::linear(largest(&lines), 4),
            title: name,
            ..over_time(report, lines)
        });
    }
    panels.retain(has_values);
    panels
}

/// Names and units of the variables that have values, in the order of their panels.
fn variables(report: &Report) -> Vec<(String, String)> {
    let mut names: Vec<(String, String)> = Vec::new();
    for (_, queue) in chosen_queues(report) {
        let is_drawable = |state: &&State| state.series.value.iter().any(|v| v.is_finite());
        for state in queue.state.iter().filter(is_drawable) {
            let key = (variable(&state.name).to_owned(), state.unit.clone());
            if !names.contains(&key) {
                names.push(key);
            }
        }
    }
    names.sort_by_key(|(name, _)| (rank(name), name.clone()));
    names
}

/// Names the variables that have no panel; empty if there are none.
fn left_out(report: &Report, panels: &[Panel]) -> String {
    let all = variables(report);
    let is_left_out = |(name, unit): &&(String, String)| {
        let is_its = |panel: &Panel| panel.title == *name && panel.y_label == *unit;
        !panels.iter().any(is_its)
    };
    let names = all.iter().filter(is_left_out);
    let names: Vec<&str> = names.map(|(name, _)| name.as_str()).collect();
    match names.is_empty() {
        true => String::new(),
        false => format!(" Not drawn: {}.", names.join(", ")),
    }
}

/// The variable of a state: `drop_next` of `drop_next of queue 3`.
fn variable(name: &str) -> &str {
    name.split_once(" of queue ")
        .map_or(name, |(variable, _)| variable)
}

/// Sorts variables that decide about packets before counters.
fn rank(variable: &str) -> usize {
    const FIRST: [&str; 4] = ["prob", "delay", "count", "average"];
    let place = FIRST.iter().position(|first| variable.starts_with(first));
    // A variable that is an instant, such as that of the next drop, is a straight line, so it comes
    // last.
    let last = usize::from(variable.ends_with("_next"));
    place.unwrap_or(FIRST.len()) + last
}

/// The most panels of variables. The caption names further variables.
const MOST_VARIABLES: usize = 8;

/// The fewest panels that remain where a height has no room for all: the packets and a variable.
pub const FEWEST_OF_STATE: usize = 2;

/// Jain's index over time.
pub fn fairness_panels(report: &Report) -> Vec<Panel> {
    let panel = |direction| {
        let lines = totals(report, direction).filter_map(|(variant, total)| {
            Some(Line::of(
                Look::Variant(variant),
                total.jain_over_time.as_ref()?,
            ))
        });
        Panel {
            height: 220,
            title: format!("Fairness {direction}"),
            y_label: "Jain's index".into(),
            y: Scale::between(0.0, 1.03, 5),
            ..over_time(report, lines.collect())
        }
    };
    let mut panels: Vec<Panel> = DIRECTIONS.into_iter().map(panel).collect();
    panels.retain(has_values);
    panels
}

fn totals(
    report: &Report,
    direction: Direction,
) -> impl Iterator<Item = (usize, &crate::model::DirectionTotal)> {
    report.runs.iter().filter_map(move |run| {
        let total = run
            .directions
            .iter()
            .find(|total| total.direction == direction)?;
        Some((run.look as usize, total))
    })
}

/// With more runs than this, a chart of points shows only their means, with numbers.
pub const MOST_CLOUDS: usize = 8;

/// Goodput against delay.
pub fn tradeoff_panels(report: &Report) -> Vec<Panel> {
    let is_few = report.runs.len() <= MOST_CLOUDS;
    let panel = |direction| {
        let mut panel = beside(&format!("Goodput and delay {direction}"));
        let (mut most_delay, mut least_delay) = (0.0_f64, f64::INFINITY);
        let (mut most, mut least) = (0.0_f64, f64::INFINITY);
        for (variant, total) in totals(report, direction) {
            let Some(tradeoff) = &total.tradeoff else {
                continue;
            };
            let corners = tradeoff.contour(is_spread(report));
            let points = tradeoff
                .delay_ms
                .iter()
                .copied()
                .zip(tradeoff.goodput_mbps.iter().copied());
            // The dots and ellipses of many runs would hide one another.
            let shown = points.clone().filter(|_| is_few);
            for (delay, mbps) in corners.iter().copied().chain(shown) {
                most_delay = most_delay.max(delay);
                (most, least) = (most.max(mbps), least.min(mbps));
                if delay > 0.0 {
                    least_delay = least_delay.min(delay);
                }
            }
            panel.fills.push(Fill {
                variant,
                corners,
                style: match is_few {
                    true => FillStyle::Outlined,
                    false => FillStyle::Thin,
                },
            });
            let dot = |at| Line {
                look: Look::Variant(variant),
                pieces: vec![vec![at]],
                has_dots: true,
            };
            if is_few {
                panel.lines.extend(points.map(dot));
                continue;
            }
            let mean = match is_spread(report) {
                true => tradeoff.log_mean(),
                false => (tradeoff.mean_delay_ms, tradeoff.mean_goodput_mbps),
            };
            panel.lines.push(dot(mean));
            // The number beside the dot is in the legend, too.
            let number = report
                .runs
                .iter()
                .position(|run| run.look as usize == variant);
            panel.texts.push(Note {
                at: mean,
                text: format!("{}", number.unwrap_or_default() + 1),
                tint: color(variant),
                is_beside: true,
            });
        }
        let is_log = is_spread(report);
        panel.x = if is_log {
            Scale::log(least_delay, most_delay)
        } else {
            Scale::linear(most_delay, 6)
        };
        panel.x_label = if is_log {
            "mean sojourn time (ms, logarithmic)".into()
        } else {
            "mean sojourn time (ms)".into()
        };
        // The axis starts at zero, unless that would flatten all ellipses.
        panel.y = if least > 0.5 * most {
            let room = (most - least).mul_add(0.15, 0.02 * most);
            Scale::between(least - room, most + room, 5)
        } else {
            Scale::linear(most, 5)
        };
        panel.y_label = "Mbit/s".into();
        panel
    };
    let mut panels: Vec<Panel> = DIRECTIONS.into_iter().map(panel).collect();
    panels.retain(has_values);
    panels
}

/// Ping and sojourn time as boxes.
pub fn box_panels(report: &Report, words: Words<'_>) -> Vec<Panel> {
    let columns = run_columns(report, words);
    let boxes = |title: &str, of: Vec<(usize, [f64; 5])>| boxes(report, title, &columns, of);
    let pings = report.runs.iter().filter_map(|run| {
        let (ping, look) = (main_ping(run)?, run.look as usize);
        let quantiles = ping
            .box_ms
            .or_else(|| quantiles(&ping.distribution(&ping.two_way_ms)))?;
        Some((look, quantiles))
    });
    let sojourns = chosen_queues(report).filter_map(|(look, queue)| {
        let cdf = || {
            let cdf = queue.sojourn_cdf.clone();
            cdf.unwrap_or_else(|| Cdf::of_sojourn(&queue.packets))
        };
        let quantiles = queue.box_ms.or_else(|| quantiles(&cdf()))?;
        Some((look, quantiles))
    });
    let mut panels = vec![
        boxes("Ping, round trip", pings.collect()),
        boxes("Sojourn time", sojourns.collect()),
    ];
    panels.retain(has_values);
    panels
}

/// The ends of whiskers and box, and the median between.
fn quantiles(cdf: &Cdf) -> Option<[f64; 5]> {
    let at = |share| cdf.quantile(share);
    Some([at(0.05)?, at(0.25)?, at(0.5)?, at(0.75)?, at(0.95)?])
}

fn boxes(report: &Report, title: &str, columns: &Scale, of: Vec<(usize, [f64; 5])>) -> Panel {
    let mut panel = beside(title);
    for (variant, [low, q1, median, q3, high]) in of {
        let x = column_of(report, variant);
        panel
            .fills
            .push(rectangle(variant, (x - 0.28, x + 0.28), (q1, q3)));
        for stroke in [
            [(x - 0.28, median), (x + 0.28, median)],
            [(x, q3), (x, high)],
            [(x, q1), (x, low)],
            [(x - 0.12, high), (x + 0.12, high)],
            [(x - 0.12, low), (x + 0.12, low)],
        ] {
            panel.lines.push(Line {
                look: Look::Variant(variant),
                pieces: vec![stroke.to_vec()],
                has_dots: false,
            });
        }
    }
    panel.x = columns.clone();
    // On a linear axis, a queue of seconds would flatten the boxes of all others.
    let (least, most) = (smallest(&panel.lines), largest(&panel.lines));
    (panel.y, panel.y_label) = if most > BOX_LOG_BEYOND * least && least > 0.0 {
        (Scale::log(least, most), "ms, logarithmic".into())
    } else {
        (Scale::linear(most, 5), "ms".into())
    };
    panel
}

/// Boxes get a logarithmic axis if their ends differ by more than this factor.
const BOX_LOG_BEYOND: f64 = 30.0;

/// Goodput, ping, drops and marks as bars.
pub fn total_panels(report: &Report, words: Words<'_>) -> Vec<Panel> {
    let columns = run_columns(report, words);
    let bars = |report: &Report, title: &str, unit, value: &dyn Fn(&Run) -> Option<f64>| {
        bars(report, (title, unit), &columns, value)
    };
    let goodput = |direction: Direction| {
        move |run: &Run| {
            let total = run
                .directions
                .iter()
                .find(|total| total.direction == direction)?;
            Some(total.goodput_mbps)
        }
    };
    let share = |direction: Direction, pick: fn(&Queue) -> Option<f64>| {
        move |run: &Run| {
            let queues = run.queues.iter();
            let shares = queues.filter(|queue| queue.direction == direction);
            // Over several links, the share of the packets that reach the end is a product.
            let both = |a: f64, b: f64| a + b - a * b;
            Some(shares.filter_map(pick).reduce(both)? * 100.0)
        }
    };
    let mut panels = vec![
        bars(report, "Goodput up", "Mbit/s", &goodput(Direction::Up)),
        bars(report, "Goodput down", "Mbit/s", &goodput(Direction::Down)),
        bars(report, "Ping, median", "ms", &|run| {
            Some(main_ping(run)?.two_way?.p50)
        }),
    ];
    for direction in DIRECTIONS {
        let dropped = share(direction, |queue| queue.loss);
        let marked = share(direction, |queue| queue.mark_ratio);
        for (what, value) in [("dropped", &dropped), ("CE-marked", &marked)] {
            let title = format!("Packets {what} {direction}");
            panels.push(bars(report, &title, "% of packets", value));
        }
    }
    panels.retain(|panel| {
        panel
            .fills
            .iter()
            .any(|fill| fill.corners.iter().any(|c| c.1 > 0.0))
    });
    panels
}

fn bars(
    report: &Report,
    (title, unit): (&str, &'static str),
    columns: &Scale,
    value: &dyn Fn(&Run) -> Option<f64>,
) -> Panel {
    let mut panel = beside(title);
    let mut most = 0.0_f64;
    for run in &report.runs {
        let Some(value) = value(run) else { continue };
        let variant = run.look as usize;
        most = most.max(value);
        let x = column_of(report, variant);
        panel
            .fills
            .push(rectangle(variant, (x - 0.32, x + 0.32), (0.0, value)));
        if let Some(repeat) = run.repeats.iter().find(|repeat| repeat.figure == title) {
            most = most.max(largest_of(&repeat.values));
            panel.lines.extend(error_bar(variant, x, &repeat.values));
        }
    }
    panel.x = columns.clone();
    panel.y = Scale::linear(most, 4);
    panel.y_label = unit.into();
    panel
}

/// The range of the repetitions, as a line with two ends.
fn error_bar(variant: usize, x: f64, values: &[f64]) -> Vec<Line> {
    let low = values.iter().copied().fold(f64::INFINITY, f64::min);
    let high = largest_of(values);
    let strokes = [
        [(x, low), (x, high)],
        [(x - 0.1, low), (x + 0.1, low)],
        [(x - 0.1, high), (x + 0.1, high)],
    ];
    let line = |stroke: [(f64, f64); 2]| Line {
        look: Look::Variant(variant),
        pieces: vec![stroke.to_vec()],
        has_dots: false,
    };
    strokes.map(line).into()
}

fn largest_of(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}

/// The middle of a run's column, by its look.
fn column_of(report: &Report, look: usize) -> f64 {
    let place = report.runs.iter().position(|run| run.look as usize == look);
    place.unwrap_or_default() as f64 + 0.5
}

fn rectangle(variant: usize, (left, right): (f64, f64), (bottom, top): (f64, f64)) -> Fill {
    let corners = vec![
        (left, bottom),
        (right, bottom),
        (right, top),
        (left, top),
        (left, bottom),
    ];
    Fill {
        variant,
        corners,
        style: FillStyle::Outlined,
    }
}

/// A panel beside others.
fn beside(title: &str) -> Panel {
    Panel {
        height: 0,
        title: title.to_owned(),
        x: Scale::linear(1.0, 2),
        x_label: "".into(),
        y: Scale::linear(1.0, 2),
        y_label: "".into(),
        fills: Vec::new(),
        lines: Vec::new(),
        clouds: Vec::new(),
        texts: Vec::new(),
    }
}
