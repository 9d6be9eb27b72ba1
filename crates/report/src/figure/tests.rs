//! The texts of a figure, and the number of runs that it can show.

use std::collections::BTreeSet;

use super::*;
use crate::model::{Repeat, Series, State};
use crate::tests::{comparable, drawable};

#[test]
fn thirty_two_runs_look_different_and_a_tradeoff_numbers_them() {
    let mut report = comparable();
    let run = report.runs[0].clone();
    report.runs = (0..32)
        .map(|look| crate::model::Run {
            name: format!("variant {look}"),
            look,
            ..run.clone()
        })
        .collect();
    let looks: BTreeSet<String> = (0..32)
        .map(|look| format!("{:?} {:?}", color(look), dash(look)))
        .collect();
    assert_eq!(looks.len(), 32, "no two share colour and line");
    let drawn =
        svg(&report, &Figure::of(FigureKind::Tradeoff)).expect("there is something to draw");
    assert!(
        drawn.contains("32 variant 31"),
        "the legend has the numbers"
    );
    // Nine windows of each run would be 288 dots that hide one another: only the means are drawn.
    assert_eq!(drawn.matches("<circle").count(), 32);
}

#[test]
fn a_caption_says_only_what_the_picture_shows() {
    // Each run has one flow, so there is no sum.
    let one = svg(&drawable(), &Figure::time()).expect("there is something to draw");
    assert!(!one.contains("all flows together"));
    assert!(one.contains("Queue: bottleneck"));
    // Bars of both directions show no single queue.
    let totals =
        svg(&comparable(), &Figure::of(FigureKind::Totals)).expect("there is something to draw");
    assert!(!totals.contains("Queue:"));
}

#[test]
fn goodput_above_the_rate_of_the_link_is_explained() {
    let mut report = drawable();
    let explained = |report: &Report| {
        let drawn = svg(report, &Figure::time()).expect("there is something to draw");
        drawn.contains("TCP delivers in order")
    };
    // 9.5 Mbit/s over 10 Mbit/s.
    assert!(!explained(&report));
    report.runs[0].flows[0].goodput_mbps = Series::new(vec![1.0, 2.0], vec![9.5, 11.0]);
    assert!(explained(&report));
}

#[test]
fn the_state_begins_with_what_decides_and_not_with_an_instant() {
    let mut report = comparable();
    for run in &mut report.runs {
        run.queues[0].state = ["drop_next", "count", "first_above_next", "lastcount"]
            .map(|name| State {
                name: name.to_owned(),
                unit: String::new(),
                series: Series::new(vec![0.0, 1.0], vec![1.0, 2.0]),
            })
            .to_vec();
    }
    let panels = compare::state_panels(&report);
    let titles: Vec<&str> = panels[1..]
        .iter()
        .map(|panel| panel.title.as_str())
        .collect();
    assert_eq!(titles, ["count", "lastcount", "drop_next"]);
}

#[test]
fn repetitions_have_dots_a_median_and_a_band() {
    let mut report = comparable();
    for run in &mut report.runs {
        run.repeats = vec![Repeat {
            figure: "Goodput up".to_owned(),
            unit: "Mbit/s".to_owned(),
            values: vec![9.0, 9.5, 9.2],
            median: 9.2,
            interval: Some((8.6, 9.9)),
            direction: None,
        }];
    }
    let panels = repeats::panels(&report, Marks::Auto);
    assert_eq!(panels.len(), 1);
    let dots = panels[0].lines.iter().filter(|line| line.has_dots).count();
    assert_eq!(
        (dots, panels[0].fills.len()),
        (6, 2),
        "three dots and a band for each of two runs"
    );
    // The bars of the totals have the range as a line with two ends.
    let totals = compare::total_panels(&report);
    let goodput = totals
        .iter()
        .find(|panel| panel.title.starts_with("Goodput"))
        .expect("it");
    assert_eq!(goodput.lines.len(), 6);
}

#[test]
fn repetitions_are_drawn_as_dots_error_bars_or_boxes() {
    let mut report = comparable();
    report.runs.truncate(1);
    report.runs[0].repeats = vec![Repeat {
        figure: "Goodput up".to_owned(),
        unit: "Mbit/s".to_owned(),
        values: vec![9.0, 8.0, 5.0, 7.0],
        median: 7.5,
        interval: Some((5.0, 9.6)),
        direction: None,
    }];
    let of = |marks| repeats::panels(&report, marks).remove(0);
    let dots = of(Marks::Dots);
    assert_eq!((dots.lines.len(), dots.fills.len()), (4, 0));
    // A dot at the median, a line, and a stroke across each of its ends.
    let ends = |panel: &Panel| {
        let lines = panel.lines.iter().flat_map(|line| &line.pieces[0]);
        let lows = lines.clone().map(|at| at.1).fold(f64::INFINITY, f64::min);
        (
            panel.lines.len(),
            lows,
            lines.map(|at| at.1).fold(0.0, f64::max),
        )
    };
    assert_eq!(ends(&of(Marks::Range)), (4, 5.0, 9.0));
    // Mean 7.25, deviation 1.708, t of 3 degrees 3.182: 7.25 +- 3.182 * 1.708 / 2.
    let (count, low, high) = ends(&of(Marks::Interval));
    assert_eq!(count, 4);
    assert!(
        (low - 4.533).abs() < 1e-3 && (high - 9.967).abs() < 1e-3,
        "{low} {high}"
    );
    // The quarter and three quarters of four values are the first and the third.
    let boxed = of(Marks::Box);
    let corners: Vec<f64> = boxed.fills[0]
        .corners
        .iter()
        .map(|corner| corner.1)
        .collect();
    assert_eq!(corners, [5.0, 5.0, 8.0, 8.0, 5.0]);
    assert_eq!(ends(&boxed), (5, 5.0, 9.0));
}

#[test]
fn a_width_on_paper_is_that_of_the_picture() {
    let drawn =
        svg(&drawable(), &Figure::time().on_paper(85.0, 8.0)).expect("there is something to draw");
    assert!(drawn.contains("width=\"85mm\""));
    // 85 mm are 321.26 CSS pixels; text of 8 instead of 9 points leaves room for 361.4 units.
    assert_eq!(Figure::time().on_paper(85.0, 8.0).width, 361);
}
