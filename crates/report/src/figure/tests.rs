//! The texts of a figure, and the number of runs that it can show.

use std::collections::BTreeSet;

use resvg::usvg;
use usvg::Rect;

use super::*;
use crate::model::{Packets, Repeat, Series, State, Verdict};
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
fn a_caption_names_the_window_of_the_delays_instead_of_the_warm_up() {
    let mut report = drawable();
    for run in &mut report.runs {
        run.facts = vec![crate::model::Fact::new("figures", "without the first 6s")];
    }
    let caption = |report: &Report, kind| {
        let figure = Figure::of(kind);
        let panels = figure.kind.panels(report, &figure);
        select::caption(report, &figure, &panels)
    };
    let whole = caption(&report, FigureKind::Distribution);
    assert!(
        whole.contains("figures without the first 6s") && !whole.contains("Delays:"),
        "{whole}"
    );
    (report.is_window, report.start_s) = (true, 2.5);
    let window = caption(&report, FigureKind::Distribution);
    assert!(
        window.contains("Delays: those from 2.5 to 10 s.") && !window.contains("figures"),
        "{window}"
    );
    // Totals are those of the whole run.
    let totals = caption(&report, FigureKind::Totals);
    assert!(totals.contains("figures without the first 6s"), "{totals}");
}

#[test]
fn goodput_above_the_rate_of_the_link_is_explained() {
    let mut report = drawable();
    let explained = |report: &Report| {
        let drawn = svg(report, &Figure::time()).expect("there is something to draw");
        ["above the rate of the link", "a lost packet", "few of them"]
            .map(|why| drawn.contains(why))
    };
    // 9.5 Mbit/s over 10 Mbit/s.
    assert_eq!(explained(&report), [false; 3]);
    report.runs[0].flows[0].goodput_mbps = Series::new(vec![1.0, 2.0], vec![9.5, 11.0]);
    report.runs[0].drops = 0.0;
    assert_eq!(explained(&report), [true, false, true]);
    report.runs[0].drops = 1.0;
    assert_eq!(explained(&report), [true, true, false]);
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
    assert_eq!(
        titles,
        ["count", "lastcount", "drop_next", "first_above_next"]
    );
}

#[test]
fn the_state_has_eight_variables_and_its_caption_names_the_others() {
    let mut report = comparable();
    let figure = Figure::of(FigureKind::State);
    let mut drawn = |names: &[&str]| {
        for run in &mut report.runs {
            let state = |name: &&str| State {
                name: (*name).to_owned(),
                unit: String::new(),
                series: Series::new(vec![0.0, 1.0], vec![1.0, 2.0]),
            };
            run.queues[0].state = names.iter().map(state).collect();
            // A variable without values needs no room.
            run.queues[0].state.push(State {
                name: "average".to_owned(),
                unit: String::new(),
                series: Series::new(vec![0.0], vec![f64::NAN]),
            });
        }
        let panels = compare::state_panels(&report);
        let caption = select::caption(&report, &figure, &panels);
        let titles: Vec<String> = panels
            .into_iter()
            .skip(1)
            .map(|panel| panel.title)
            .collect();
        (titles.join(" "), caption)
    };
    let (titles, caption) = drawn(&["h", "g", "f", "e", "d", "c", "b", "a"]);
    assert_eq!(titles, "a b c d e f g h");
    assert!(!caption.contains("Not drawn"), "{caption}");
    let (titles, caption) = drawn(&["j", "i", "h", "g", "f", "e", "d", "c", "b", "delay_ms"]);
    assert_eq!(titles, "delay_ms b c d e f g h");
    assert!(caption.contains("Not drawn: i, j."), "{caption}");
}

#[test]
fn packets_are_drawn_also_if_all_of_them_were_marked_or_dropped() {
    for verdict in [Verdict::Marked, Verdict::Dropped] {
        let mut report = drawable();
        for run in &mut report.runs {
            run.queues[0].packets.verdict.fill(verdict);
        }
        let titles = |panels: Vec<Panel>| -> Vec<String> {
            panels.into_iter().map(|panel| panel.title).collect()
        };
        assert_eq!(titles(compare::state_panels(&report)), [PACKETS]);
        let over_time = titles(select::time_panels(&report, FlowLines::Sum));
        assert!(
            over_time.iter().any(|title| title == PACKETS),
            "{over_time:?}"
        );
        svg(&report, &Figure::of(FigureKind::State)).expect("the packets are drawn");
    }
}

#[test]
fn the_rate_of_the_link_alone_is_no_figure() {
    // Of a run of which only the figures are recorded.
    let mut report = drawable();
    for run in &mut report.runs {
        run.flows[0].goodput_mbps = Series::default();
        run.pings[0].two_way_ms = Series::default();
        run.queues[0].backlog_packets = Series::default();
        run.queues[0].packets = Packets::default();
    }
    for kind in [FigureKind::Time, FigureKind::Flows] {
        let drawn = svg(&report, &Figure::of(kind));
        assert!(
            matches!(drawn, Err(FigureError::NoValues { .. })),
            "{kind:?}: {drawn:?}"
        );
    }
    // Beside values, it is drawn.
    report.runs[0].flows[0].goodput_mbps = Series::new(vec![1.0, 2.0], vec![9.5, 9.5]);
    let panels = select::time_panels(&report, FlowLines::Auto);
    let [goodput] = panels.as_slice() else {
        panic!("one panel has values, not {}", panels.len());
    };
    let is_reference = |line: &panel::Line| line.look == panel::Look::Reference;
    assert!(goodput.lines.iter().any(is_reference));
}

const PACKETS: &str = "Sojourn time of every packet";

fn marked(marks: Marks) -> Figure {
    Figure {
        marks,
        ..Figure::of(FigureKind::Repetitions)
    }
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
    let panels = repeats::panels(&report, &marked(Marks::Auto));
    assert_eq!(panels.len(), 1);
    let dots = panels[0].lines.iter().filter(|line| line.has_dots).count();
    assert_eq!(
        (dots, panels[0].fills.len()),
        (6, 2),
        "three dots and a band for each of two runs"
    );
    // The bars of the totals have the range as a line with two ends.
    let totals = compare::total_panels(&report, Words { own: &[] });
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
    let of = |marks| repeats::panels(&report, &marked(marks)).remove(0);
    let dots = of(Marks::Dots);
    assert_eq!((dots.lines.len(), dots.fills.len()), (4, 0));
    // A dot in the middle, a line, and a stroke across each of its ends.
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

/// The boxes of all texts of a drawing, in drawing units, and its size.
fn texts(drawn: &str) -> (Vec<(String, Rect)>, (f32, f32)) {
    fn collect(group: &usvg::Group, found: &mut Vec<(String, Rect)>) {
        for node in group.children() {
            match node {
                usvg::Node::Group(inner) => collect(inner, found),
                usvg::Node::Text(text) => {
                    let words = text.chunks().iter().map(|chunk| chunk.text());
                    found.push((words.collect(), text.abs_bounding_box()));
                }
                _ => {}
            }
        }
    }
    let options = crate::raster::options(None).expect("the program's own font");
    let tree = usvg::Tree::from_str(drawn, &options).expect("a drawing");
    let mut found = Vec::new();
    collect(tree.root(), &mut found);
    (found, (tree.size().width(), tree.size().height()))
}

/// A report of three runs with long names, repetitions and a long title.
fn wordy() -> Report {
    let mut report = comparable();
    report.title =
        "A title that is so long that no page of one column holds it on a single line".into();
    let run = report.runs[0].clone();
    let names = [
        "fifo",
        "fq_codel",
        "target=160ms-rtt=300ms-and-a-name-without-end",
    ];
    report.runs = (0..)
        .zip(names)
        .map(|(look, name)| {
            let repeats = [
                ("ping.p50", "ms", 20.0),
                ("call-up.mos", "", 4.2),
                ("Goodput up", "Mbit/s", 9.0),
            ];
            let repeats = repeats.map(|(figure, unit, value)| Repeat {
                figure: figure.to_owned(),
                unit: unit.to_owned(),
                values: vec![value, value * 1.01, value * 0.99],
                median: value,
                interval: None,
                direction: None,
            });
            crate::model::Run {
                name: name.to_owned(),
                look,
                repeats: repeats.to_vec(),
                ..run.clone()
            }
        })
        .collect();
    report
}

#[test]
fn every_text_of_every_figure_is_on_the_sheet_and_covers_no_other() {
    for report in [wordy(), drawable()] {
        for kind in FigureKind::ALL {
            for (width_mm, font_pt) in [
                (85.0, 9.0),
                (85.0, 6.0),
                (64.0, 8.0),
                (180.0, 9.0),
                (265.0, 9.0),
            ] {
                let figure = Figure::of(kind).on_paper(width_mm, font_pt);
                let drawn = match svg(&report, &figure) {
                    Ok(drawn) => drawn,
                    Err(FigureError::NoValues { .. }) => continue,
                    Err(error) => panic!("{kind:?} at {width_mm} mm: {error}"),
                };
                let (texts, (width, height)) = texts(&drawn);
                let place = format!("{kind:?} at {width_mm} mm with {font_pt} pt");
                for (at, (text, of)) in texts.iter().enumerate() {
                    let is_inside = of.left() >= -0.5
                        && of.right() <= width + 0.5
                        && of.top() >= -0.5
                        && of.bottom() <= height + 0.5;
                    assert!(
                        is_inside,
                        "{place}: `{text}` at {of:?} of {width} x {height}"
                    );
                    // The boxes of texts are a little higher than their letters.
                    let covers = |other: &Rect| {
                        of.left() + 0.5 < other.right()
                            && other.left() + 0.5 < of.right()
                            && of.top() + 3.0 < other.bottom()
                            && other.top() + 3.0 < of.bottom()
                    };
                    let other = texts[..at].iter().find(|(_, other)| covers(other));
                    assert!(
                        other.is_none(),
                        "{place}: `{text}` at {of:?} covers {other:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn columns_have_their_names_below_them_and_need_no_legend() {
    let count = |kind| {
        let figure = Figure::of(kind).on_paper(85.0, 9.0);
        let drawn = svg(&wordy(), &figure).expect("there is something to draw");
        texts(&drawn)
            .0
            .iter()
            .filter(|(text, _)| text.trim() == "fq_codel")
            .count()
    };
    // Once in each of three panels; the boxes of ping and sojourn time are two.
    assert_eq!(count(FigureKind::Repetitions), 3);
    assert_eq!(count(FigureKind::Box), 2);
    // Lines over time have a legend.
    assert_eq!(count(FigureKind::Time), 1);
}

#[test]
fn columns_of_a_matrix_of_three_axes_have_different_names() {
    let mut report = wordy();
    let run = report.runs[0].clone();
    let axes = [
        ["rtt=10ms", "rtt=50ms"],
        ["cubic", "reno"],
        ["fifo", "codel"],
    ];
    let name = |at: usize| {
        let [rtt, cc, queue] = [at / 4, at / 2 % 2, at % 2];
        [axes[0][rtt], axes[1][cc], axes[2][queue]].join(" ")
    };
    let names: Vec<String> = (0..8).map(name).collect();
    let of_name = |(look, name): (u32, &String)| crate::model::Run {
        name: name.clone(),
        look,
        ..run.clone()
    };
    report.runs = (0..).zip(&names).map(of_name).collect();
    for kind in [FigureKind::Box, FigureKind::Repetitions, FigureKind::Totals] {
        let figure = Figure::of(kind).on_paper(85.0, 9.0);
        let drawn = svg(&report, &figure).expect("there is something to draw");
        let (texts, _) = texts(&drawn);
        for name in &names {
            let is_there = texts.iter().any(|(text, _)| text.trim() == name);
            assert!(is_there, "no `{name}` in the {kind:?} figure: {texts:?}");
        }
    }
}

#[test]
fn a_height_on_paper_is_that_of_the_picture_or_is_refused() {
    let of = |height_mm| Figure {
        height_mm: Some(height_mm),
        ..Figure::of(FigureKind::Repetitions).on_paper(85.0, 9.0)
    };
    let drawn = svg(&wordy(), &of(200.0)).expect("there is room");
    let height = drawn
        .split("height=\"")
        .nth(1)
        .and_then(|rest| rest.split("mm").next());
    let height: f64 = height.expect("a height").parse().expect("a number");
    // A pixel of the drawing is 85 mm / 321.
    assert!((height - 200.0).abs() < 0.3, "{height}");
    let refused = svg(&wordy(), &of(20.0)).expect_err("three charts need more");
    assert!(matches!(refused, FigureError::Height { .. }), "{refused}");
}

#[test]
fn a_state_of_a_fixed_height_has_the_variables_that_fit() {
    let mut report = drawable();
    let names = ["alpha", "beta", "delta", "gamma"];
    for run in &mut report.runs {
        let state = |name: &str| State {
            name: name.to_owned(),
            unit: String::new(),
            series: Series::new(vec![0.0, 1.0], vec![1.0, 2.0]),
        };
        run.queues[0].state = names.map(state).to_vec();
    }
    let mut counts = Vec::new();
    for height_mm in (60..400).step_by(15).map(f64::from) {
        let figure = Figure {
            height_mm: Some(height_mm),
            ..Figure::of(FigureKind::State).on_paper(85.0, 9.0)
        };
        let drawn = match svg(&report, &figure) {
            Ok(drawn) => drawn,
            // There is no room for the packets and one variable.
            Err(FigureError::Height { .. }) if counts.is_empty() => continue,
            Err(error) => panic!("{height_mm} mm: {error}"),
        };
        let words: Vec<String> = texts(&drawn)
            .0
            .iter()
            .map(|(text, _)| text.trim().to_owned())
            .collect();
        let is_drawn = |name: &&str| words.iter().any(|word| word == name);
        let shown: Vec<&str> = names.into_iter().filter(is_drawn).collect();
        let (first, others) = names.split_at(shown.len());
        assert_eq!(shown, first, "{height_mm} mm");
        let caption = words.join(" ");
        let said = format!("Not drawn: {}.", others.join(", "));
        assert_eq!(caption.contains(&said), !others.is_empty(), "{caption}");
        counts.push(shown.len());
    }
    assert!(counts.is_sorted(), "{counts:?}");
    let (first, last) = (counts.first(), counts.last());
    assert!(first < last && last == Some(&4), "{counts:?}");
}

#[test]
fn a_simulation_names_no_machine() {
    let mut report = drawable();
    let fact = crate::model::Fact {
        label: "kernel".to_owned(),
        value: "Linux 6.1".to_owned(),
    };
    for run in &mut report.runs {
        run.facts.push(fact.clone());
    }
    let of = |backend| {
        let mut report = report.clone();
        report.runs.iter_mut().for_each(|run| run.backend = backend);
        svg(&report, &Figure::time())
            .expect("there is something to draw")
            .contains("Linux 6.1")
    };
    assert!(of(crate::model::Backend::Live) && !of(crate::model::Backend::Sim));
}

#[test]
fn the_legend_of_one_run_has_its_pings_and_not_its_calls() {
    let mut report = drawable();
    report.runs.truncate(1);
    let run = &mut report.runs[0];
    let ping = run.pings[0].clone();
    let named = |name: &str, is_call: bool| {
        let mut own = ping.clone();
        own.name = name.to_owned();
        if is_call {
            own.two_way_ms.value.fill(f64::NAN);
            own.two_way = None;
        }
        own
    };
    run.pings = vec![
        named("call-up", true),
        named("near", false),
        named("far", false),
    ];
    let drawn = svg(&report, &Figure::time()).expect("there is something to draw");
    let words: Vec<String> = texts(&drawn).0.into_iter().map(|(text, _)| text).collect();
    let has = |name: &str| words.iter().any(|text| text.trim() == name);
    assert!(has("near") && has("far") && !has("call-up"), "{words:?}");
}
