use super::*;
use sluice_recording::Status;
use sluice_recording::results::RunResult;
use sluice_scenario::metric::{Summary, Window};

/// The results of two runs at each rate, which measured these goodputs in Mbit/s.
fn results(goodputs: &[(&str, Option<f64>)]) -> Vec<VariantResult> {
    let run = |goodput: Option<f64>, seed: u64| RunResult {
        seed,
        folder: "test".into(),
        status: Status::Complete,
        reused: false,
        stopped: Vec::new(),
        summary: Summary {
            variant: String::new(),
            window: Window {
                warmup_ns: 0,
                end_ns: 0,
            },
            flows: Vec::new(),
            groups: Vec::new(),
            crowds: Vec::new(),
            pipes: Vec::new(),
            total_goodput_bps: goodput.map(|mbps| mbps * 1e6),
            directions: Vec::new(),
            jain: None,
            jain_min: None,
            jain_mean: None,
            accuracy: None,
        },
    };
    let result = |(rate, goodput): &(&str, Option<f64>)| VariantResult {
        scenario: "test".into(),
        variant: (*rate).to_owned(),
        coordinates: vec![Coordinate {
            key: "link.rate".into(),
            value: (*rate).to_owned(),
            name: (*rate).to_owned(),
        }],
        backend: Backend::Sim,
        runs: vec![run(*goodput, 1), run(*goodput, 2)],
        expect: Vec::new(),
    };
    goodputs.iter().map(result).collect()
}

#[test]
fn a_curve_has_a_gap_where_nothing_was_measured() {
    let axes = Axes {
        x: "link.rate".into(),
        y: "total.goodput".into(),
        ..Axes::default()
    };
    let own = Words { own: &[] };
    let drawn = |goodputs: &[(&str, Option<f64>)]| {
        let sweep = Sweep::of(&results(goodputs), &axes).expect("a sweep");
        let panel = curves(&sweep, &axes, &Figure::time()).remove(0);
        let pieces = panel.lines[0].pieces.iter();
        let mbps = |piece: &Vec<(f64, f64)>| piece.iter().map(|at| at.1.round()).collect();
        let pieces: Vec<Vec<f64>> = pieces.map(mbps).collect();
        let caption = caption(&sweep, &axes, (Form::Curve, Marks::Auto, own), false);
        (pieces, panel.fills.len(), caption)
    };
    let mut goodputs = [
        ("1Mbit/s", Some(1.0)),
        ("2Mbit/s", Some(2.0)),
        ("5Mbit/s", Some(5.0)),
        ("10Mbit/s", Some(10.0)),
    ];
    let (pieces, bands, caption) = drawn(&goodputs);
    assert_eq!((pieces, bands), (vec![vec![1.0, 2.0, 5.0, 10.0]], 1));
    assert!(!caption.contains("run measured"), "{caption}");

    goodputs[1].1 = None;
    let (pieces, bands, caption) = drawn(&goodputs);
    assert_eq!((pieces, bands), (vec![vec![1.0], vec![5.0, 10.0]], 2));
    let end = " No run measured it at Link rate 2\u{a0}Mbit/s.";
    assert!(caption.ends_with(end), "{caption}");

    // At an end, nothing is cut in two.
    goodputs[0].1 = None;
    let (pieces, bands, caption) = drawn(&goodputs);
    assert_eq!((pieces, bands), (vec![vec![5.0, 10.0]], 1));
    let end = " at Link rate 1\u{a0}Mbit/s; Link rate 2\u{a0}Mbit/s.";
    assert!(caption.ends_with(end), "{caption}");
}

#[test]
fn the_caption_of_bands_counts_the_runs_that_measured_the_figure() {
    let axes = Axes {
        x: "link.rate".into(),
        y: "total.goodput".into(),
        ..Axes::default()
    };
    let own = Words { own: &[] };
    let caption = |results: &[VariantResult]| {
        let sweep = Sweep::of(results, &axes).expect("a sweep");
        caption(&sweep, &axes, (Form::Curve, Marks::Auto, own), false)
    };
    let mut results = results(&[("1Mbit/s", Some(1.0)), ("2Mbit/s", Some(2.0))]);
    // 1 - 2 / 2^2.
    let all = caption(&results);
    assert!(
        all.contains("of the 2, a 50 % confidence interval"),
        "{all}"
    );
    results[0].runs[1].summary.total_goodput_bps = None;
    let some = caption(&results);
    assert!(some.contains("median of less than 95 %."), "{some}");
}

#[test]
fn the_x_axis_of_a_curve_says_that_it_is_logarithmic() {
    let axes = Axes {
        x: "link.rate".into(),
        y: "total.goodput".into(),
        ..Axes::default()
    };
    let label = |most| {
        let goodputs = [("1Mbit/s", Some(1.0)), (most, Some(1.0))];
        let sweep = Sweep::of(&results(&goodputs), &axes).expect("a sweep");
        let panel = curves(&sweep, &axes, &Figure::time()).remove(0);
        panel.x_label.into_owned()
    };
    assert_eq!(label("10Mbit/s"), "Link rate (Mbit/s)");
    // The settings differ by more than a factor of ten.
    assert_eq!(label("20Mbit/s"), "Link rate (Mbit/s, logarithmic)");
}

#[test]
fn a_curve_has_a_gap_where_no_run_was_made() {
    let of = |queue: &str, goodputs: &[(&str, Option<f64>)]| {
        let mut results = results(goodputs);
        for result in &mut results {
            result.coordinates.push(Coordinate {
                key: "link.queue".into(),
                value: queue.into(),
                name: queue.into(),
            });
        }
        results
    };
    let ends = [("1Mbit/s", Some(1.0)), ("5Mbit/s", Some(5.0))];
    let mut all = of("codel", &[ends[0], ("2Mbit/s", Some(2.0)), ends[1]]);
    // The run at 2 Mbit/s has failed, so it has no result.
    all.extend(of("fq_codel", &ends));
    // A sweep in another folder has settings of its own.
    let mut apart = of("pie", &ends);
    for run in apart.iter_mut().flat_map(|result| &mut result.runs) {
        run.folder = "apart/test".into();
    }
    all.extend(apart);
    let axes = Axes {
        x: "link.rate".into(),
        y: "total.goodput".into(),
        by: Some("link.queue".into()),
        ..Axes::default()
    };
    let sweep = Sweep::of(&all, &axes).expect("a sweep");
    let panel = curves(&sweep, &axes, &Figure::time()).remove(0);
    let mbps = |piece: &Vec<(f64, f64)>| piece.iter().map(|at| at.1.round()).collect();
    let pieces: Vec<Vec<Vec<f64>>> = panel
        .lines
        .iter()
        .map(|line| line.pieces.iter().map(mbps).collect())
        .collect();
    let (whole, cut) = (vec![vec![1.0, 2.0, 5.0]], vec![vec![1.0], vec![5.0]]);
    assert_eq!(pieces, [whole, cut, vec![vec![1.0, 5.0]]]);
    let own = Words { own: &[] };
    let caption = caption(&sweep, &axes, (Form::Curve, Marks::Auto, own), false);
    let expected = " No run measured it at Link rate 2\u{a0}Mbit/s, ";
    assert!(caption.contains(expected), "{caption}");
}

#[test]
fn a_heat_map_has_the_names_of_values() {
    let named = |queue: &str, name: &str| {
        let mut results = results(&[("1Mbit/s", Some(1.0)), ("2Mbit/s", Some(2.0))]);
        for result in &mut results {
            result.coordinates.push(Coordinate {
                key: "link.queue".into(),
                value: queue.into(),
                name: name.into(),
            });
        }
        results
    };
    // As `[matrix] "link.queue" = { short = "fifo limit 20", long = "fifo limit 200" }`.
    let mut all = named("fifo limit 20", "short");
    all.extend(named("fifo limit 200", "long"));
    let axes = Axes {
        x: "link.rate".into(),
        y: "total.goodput".into(),
        by: Some("link.queue".into()),
        ..Axes::default()
    };
    let sweep = Sweep::of(&all, &axes).expect("a sweep");
    let maps = heat_maps(&sweep, &axes, &all, Words { own: &[] }).expect("a map");
    assert_eq!(maps[0].y.labels(), ["short", "long"]);
    assert_eq!(maps[0].x.labels(), ["1", "2"]);
}
