use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::read::DeflateDecoder;
use serde_json::Value;

use super::model::{
    Cdf, Direction, Ends, PacketRow, Packets, Ping, Quantiles, Queue, Report, Run, Series,
    Tradeoff, Verdict,
};
use super::{Figure, FigureError, FigureKind, html, packed, png, svg, thin};

/// The same file is read by `web/test/model.test.ts`.
const FIXTURE: &str = include_str!("../../../web/test/fixture.json");

fn fixture() -> Report {
    serde_json::from_str(FIXTURE).expect("the fixture fits the model")
}

#[test]
fn the_fixture_survives_both_ways_unchanged() {
    let written = serde_json::to_value(fixture()).expect("reports are JSON");
    let read: Value = serde_json::from_str(FIXTURE).expect("the fixture is JSON");
    assert_eq!(written, read);
}

#[test]
fn packed_columns_of_the_fixture_hold_what_its_author_put_in() {
    let packets = &fixture().runs[0].queues[0].packets;
    // The same numbers stand in web/test/model.test.ts.
    assert_eq!(
        packets.at_ns,
        [
            1_500_000,
            2_700_000,
            2_700_000,
            3_900_000,
            1_000_003_900_000
        ]
    );
    assert_eq!(
        packets.sojourn_ns,
        [0, 1_200_000, 0, 2_400_000, 5_000_000_000]
    );
    assert_eq!(packets.size_bytes, [1514, 1514, 98, 1514, 65_226]);
    assert_eq!(packets.flow, [0, 0, 1, 0, 0]);
    use Verdict::{Dropped, Marked, Sent};
    assert_eq!(packets.verdict, [Sent, Marked, Dropped, Sent, Dropped]);
    assert_eq!(packets.reason, [0, 1, 0, 0, 1]);
    assert_eq!(packets.number, [8, 9, 12, 13, 70_001]);
}

#[test]
fn packing_is_exact_over_the_whole_range() {
    let columns: [&[u64]; 4] = [
        &[],
        &[0],
        // Lengths change at 5 bits less the sign: 15 is one character, 16 two.
        &[15, 31, 32, 16, 0, 1 << 52, 0],
        &[u64::MAX, 0, u64::MAX, 1 << 63, 5],
    ];
    for column in columns {
        let text = packed::pack(column.iter().copied());
        assert_eq!(packed::unpack(&text).as_deref(), Ok(column));
    }
}

#[test]
fn a_cut_packed_column_is_refused() {
    // zigzag(16) = 32 = 0 + 1 * 32: the groups 0 with "more follows" (32, "g") and 1 ("B").
    assert_eq!(packed::pack([16].into_iter()), "gB");
    assert_eq!(
        packed::unpack("g"),
        Err("packed column ends within a number".to_owned())
    );
    assert!(packed::unpack(&"/".repeat(14)).is_err(), "70 bits");
    assert!(packed::unpack("A-").is_err(), "not of the alphabet");
}

/// The model inside a page.
pub(crate) fn embedded(page: &str) -> Value {
    let (_, rest) = page
        .split_once("<script id=\"model\" type=\"application/octet-stream\">")
        .expect("the page has a place for its model");
    let (encoded, _) = rest.split_once("</script>").expect("scripts end");
    let deflated = STANDARD.decode(encoded).expect("base64");
    let mut json = String::new();
    DeflateDecoder::new(deflated.as_slice())
        .read_to_string(&mut json)
        .expect("raw deflate of text");
    serde_json::from_str(&json).expect("JSON")
}

#[test]
fn the_page_holds_the_report_and_no_name_breaks_out_of_it() {
    let report = fixture();
    let page = html(report.clone());
    let mut expected = serde_json::to_value(&report).expect("reports are JSON");
    // Taken from its packets, of which it has none.
    expected["runs"][1]["queues"][0]["sojourn_cdf"] =
        serde_json::json!({"count": 0, "value": [], "fraction": []});
    assert_eq!(embedded(&page), expected);
    assert!(page.contains("<title>Both sides read this &lt;/title&gt;&lt;script&gt;</title>"));
    let template_scripts = html(Report::new("", Ends::default()))
        .matches("</script")
        .count();
    assert_eq!(page.matches("</script").count(), template_scripts);
    assert!(!page.contains("{{"), "a marker of the template is left");
}

fn row(at_ns: u64, sojourn_ns: u64, verdict: Verdict) -> PacketRow {
    PacketRow {
        at_ns,
        sojourn_ns,
        size_bytes: 1514,
        segments: 1,
        flow: 0,
        number: 0,
        verdict,
        reason: 0,
    }
}

/// One packet per microsecond; the wait is a sawtooth of 97 steps, every `every`th is dropped.
fn many(count: u64, every: u64) -> Packets {
    let mut packets = Packets::default();
    for at in 0..count {
        let verdict = if at % every == 0 {
            Verdict::Dropped
        } else {
            Verdict::Sent
        };
        packets.push(row(at * 1000, at % 97, verdict));
    }
    packets
}

/// The model of a long page is compressed in pieces of 1 MiB.
#[test]
fn a_long_page_holds_every_packet() {
    let mut rng = sluice_core::Rng::from_seed(1);
    let mut report = fixture();
    let packets = &mut report.runs[0].queues[0].packets;
    // The model has no wire packets.
    packets.segments = vec![1; packets.len()];
    // Waits of random bits take at least 4 bytes each: more than 2 MB.
    for at in 0..200_000 {
        packets.push(row(at, rng.below(1 << 56), Verdict::Sent));
    }
    let shown = packets.clone();
    let page = html(report);
    let model = embedded(&page);
    let found = &model["runs"][0]["queues"][0]["packets"]["sojourn_ns"];
    let found = packed::unpack(found.as_str().expect("a packed column")).unwrap();
    assert_eq!(found, thin::thin_packets(&shown, usize::MAX).sojourn_ns);
}

#[test]
fn few_packets_are_sorted_and_all_kept() {
    let mut packets = Packets::default();
    packets.push(row(30, 5, Verdict::Sent));
    packets.push(row(10, 7, Verdict::Marked));
    let shown = thin::thin_packets(&packets, 10);
    assert_eq!(shown.at_ns, [10, 30]);
    assert_eq!(shown.sojourn_ns, [7, 5]);
    assert_eq!(shown.thinned_from, None);
}

#[test]
fn thinning_keeps_extremes_and_every_drop_and_says_how_many_there_were() {
    let packets = many(100_000, 1000);
    let shown = thin::thin_packets(&packets, 2000);
    assert!(shown.len() <= 2000, "{}", shown.len());
    assert_eq!(shown.thinned_from, Some(100_000));
    let drops = shown.verdict.iter().filter(|v| **v == Verdict::Dropped);
    assert_eq!(drops.count(), 100);
    // 1900 left for sent packets make 950 slices of 105 packets: longer than a sawtooth of 97, so
    // every slice holds one of its extremes, 0 or 96, and the whole holds both often.
    let sent: Vec<u64> = shown
        .rows()
        .filter(|row| row.verdict == Verdict::Sent)
        .map(|row| row.sojourn_ns)
        .collect();
    let peaks = sent.iter().filter(|wait| **wait == 96).count();
    assert!(peaks >= 900, "{peaks}");
    assert!(shown.at_ns.is_sorted());
}

#[test]
fn short_queues_leave_their_room_to_long_ones() {
    // 10 and 20 fit; the other two share the 70 that are left.
    assert_eq!(thin::fair_limit([500, 10, 400, 20].into_iter(), 100), 35);
    assert_eq!(thin::fair_limit([50, 50].into_iter(), 100), usize::MAX);
    assert_eq!(thin::fair_limit([].into_iter(), 100), usize::MAX);
}

#[test]
fn a_flood_of_drops_is_thinned_too() {
    let packets = many(100_000, 2);
    let shown = thin::thin_packets(&packets, 2000);
    assert!(shown.len() <= 2000, "{}", shown.len());
    let drops = shown.verdict.iter().filter(|v| **v == Verdict::Dropped);
    // A quarter of the limit for each kind of signal.
    assert!((400..=500).contains(&drops.count()));
}

#[test]
fn thinning_a_series_keeps_its_peak_and_its_gap() {
    let count = 5 * thin::MOST_VALUES;
    let mut value: Vec<f64> = (0..count).map(|at| (at % 13) as f64).collect();
    value[54_321] = 1e6;
    // As long as three slices of ten values: at least two of them lie wholly within.
    value[70_000..70_030].fill(f64::NAN);
    let mut series = Series::new((0..count).map(|at| at as f64).collect(), value);
    thin::thin_series(&mut series, thin::MOST_VALUES);
    assert!(series.value.len() <= thin::MOST_VALUES);
    assert_eq!(series.thinned_from, Some(count as u64));
    let peak = series.points().find(|(_, value)| *value == 1e6);
    assert_eq!(peak, Some((54_321.0, 1e6)));
    assert!(series.value.iter().any(|value| value.is_nan()));
    assert!(series.time_s.is_sorted());
}

#[test]
fn a_small_distribution_is_exact() {
    let cdf = Cdf::of(vec![3.0, 1.0, f64::NAN, 3.0, 2.0]);
    assert_eq!(cdf.count, 4);
    assert_eq!(cdf.value, [1.0, 2.0, 3.0]);
    assert_eq!(cdf.fraction, [0.25, 0.5, 1.0]);
    assert_eq!(Cdf::of(Vec::new()), Cdf::default());
}

#[test]
fn points_of_a_large_distribution_lie_on_it() {
    // 0, 1, ... 99 999: the share of samples at most v is (v + 1) / 100 000.
    let cdf = Cdf::of((0..100_000).rev().map(f64::from).collect());
    assert!(cdf.value.len() < 600, "{}", cdf.value.len());
    for (value, fraction) in cdf.value.iter().zip(&cdf.fraction) {
        assert!(
            (fraction - (value + 1.0) / 1e5).abs() < 1e-12,
            "{value} {fraction}"
        );
    }
    assert_eq!(cdf.value.first(), Some(&0.0));
    assert_eq!(cdf.value.last(), Some(&99_999.0));
    // Fine enough in the tail to distinguish 99.99 % from 99.9 %: ten points for each decade.
    let tail = cdf.fraction.iter().filter(|f| (0.999..0.9999).contains(*f));
    assert!(tail.count() >= 9);
}

#[test]
fn dropped_packets_have_no_part_in_the_sojourn_distribution() {
    let mut packets = Packets::default();
    packets.push(row(1, 2_000_000, Verdict::Sent));
    packets.push(row(2, 4_000_000, Verdict::Marked));
    packets.push(row(3, 9_000_000, Verdict::Dropped));
    assert_eq!(Cdf::of_sojourn(&packets).value, [2.0, 4.0]);
}

#[test]
fn a_super_packet_counts_as_its_wire_packets_in_the_sojourn_distribution() {
    let mut packets = Packets::default();
    packets.push(PacketRow {
        segments: 40,
        ..row(1, 2_000_000, Verdict::Sent)
    });
    for at in 0..10 {
        packets.push(row(2 + at, 0, Verdict::Sent));
    }
    let cdf = Cdf::of_sojourn(&packets);
    assert_eq!((cdf.count, cdf.quantile(0.5)), (50, Some(2.0)));
    assert_eq!(cdf.fraction, [0.2, 1.0]);
}

/// Two variants whose delays differ by a factor of 40, with drops and a mark.
pub(crate) fn drawable() -> Report {
    let mut report = Report::new(
        "Two queues & one <flow>",
        Ends {
            left: "h2".to_owned(),
            right: "h3".to_owned(),
        },
    );
    for (name, wait_ms) in [("fifo", 800), ("codel", 0)] {
        let rtt = 20.0 + f64::from(wait_ms);
        let time: Vec<f64> = (0..100).map(|k| f64::from(k) / 10.0).collect();
        let mut packets = Packets::default();
        for at in 0..1000 {
            let verdict = match at % 100 {
                50 => Verdict::Dropped,
                75 => Verdict::Marked,
                _ => Verdict::Sent,
            };
            packets.push(row(
                at * 10_000_000,
                (wait_ms as u64 + at % 5) * 1_000_000,
                verdict,
            ));
        }
        let flow = super::model::Flow {
            goodput_mbps: Series::new(time.clone(), vec![9.5; 100]),
            ..Default::default()
        };
        let quantiles = Some(Quantiles {
            count: 100,
            p50: rtt,
            p95: rtt,
            p99: rtt,
            max: rtt,
        });
        report.runs.push(Run {
            look: report.runs.len() as u32,
            name: name.to_owned(),
            duration_s: 10.0,
            goodput_window_s: 1.0,
            goodput_step_s: 0.1,
            flows: vec![flow],
            pings: vec![Ping {
                two_way_ms: Series::new(time.clone(), vec![rtt; 100]),
                two_way: quantiles,
                ..Ping::default()
            }],
            main_ping: Some(String::new()),
            queues: vec![Queue {
                name: "bottleneck".to_owned(),
                direction: Direction::Up,
                link_mbps: Series::constant(10.0),
                backlog_packets: Series::new(time, vec![f64::from(wait_ms); 100]),
                packets,
                ..Queue::default()
            }],
            ..Run::default()
        });
    }
    report
}

#[test]
fn the_main_figure_has_every_panel_and_every_variant() {
    let drawn = svg(&drawable(), &Figure::time()).expect("there is something to draw");
    for text in [
        "Two queues &amp; one &lt;flow&gt;",
        "Goodput up",
        "Ping, round trip",
        "Sojourn time of every packet",
        "Backlog",
        "fifo",
        "codel",
        "Mbit/s",
        "time (s)",
    ] {
        assert!(drawn.contains(text), "no {text:?} in the figure");
    }
    // Lines of both variants and the rate of the link.
    for tint in ["#0072B2", "#D55E00", "#505860"] {
        assert!(drawn.contains(tint), "nothing is drawn in {tint}");
    }
}

#[test]
fn characters_that_xml_does_not_have_are_replaced() {
    let mut report = drawable();
    report.title = "a\u{1}title\twith\u{b}controls\u{ffff}".to_owned();
    report.runs[0].name = "fi\u{7}fo".to_owned();
    let drawn = svg(&report, &Figure::time()).expect("there is something to draw");
    let title = "<title>a\u{fffd}title\twith\u{fffd}controls\u{fffd}</title>";
    assert!(drawn.contains(title), "{drawn}");
    assert!(drawn.contains("fi\u{fffd}fo"), "the legend has the name");
    let is_control = |c: char| c.is_control() && !matches!(c, '\t' | '\n' | '\r');
    assert!(!drawn.contains(is_control), "{drawn}");
    // A program that reads XML reads it.
    png(&report, &Figure::time(), 1.0).expect("a picture");
}

/// Everything that the charts that compare are made of.
pub(crate) fn comparable() -> Report {
    let mut report = drawable();
    for (at, run) in (0..).zip(&mut report.runs) {
        let time: Vec<f64> = (0..100).map(|k| f64::from(k) / 10.0).collect();
        let points: Vec<(f64, f64)> = (0..9)
            .map(|k| (f64::from(k % 3) + 4.0, 9.0 + f64::from(k / 3) / 10.0))
            .collect();
        run.directions = vec![super::model::DirectionTotal {
            goodput_mbps: 9.5 - f64::from(at),
            jain_over_time: Some(Series::new(time.clone(), vec![0.8; 100])),
            tradeoff: Tradeoff::of(&points),
            ..Default::default()
        }];
        run.flows[0].cwnd_segments = Some(Series::new(time.clone(), vec![12.0; 100]));
        run.flows[0].srtt_ms = Some(Series::new(time.clone(), vec![25.0; 100]));
        run.completion_ms = Some(Cdf::of(vec![10.0, 20.0, 40.0]));
        run.queues[0].sent = 900;
        run.queues[0].loss = Some(0.1);
        run.queues[0].drops = vec![super::model::Count {
            reason: "overflow".to_owned(),
            packets: 100,
        }];
        for name in ["drop_next of queue 3", "drop_next of queue 7", "zeal"] {
            run.queues[0].state.push(super::model::State {
                name: name.to_owned(),
                unit: "s".to_owned(),
                series: Series::new(time.clone(), vec![1.0; 100]),
            });
        }
    }
    report
}

#[test]
fn every_kind_of_figure_is_drawn_with_its_panels() {
    let report = comparable();
    for (kind, texts) in [
        (
            FigureKind::Tail,
            ["Ping", "Flow completion time", "share of samples above"],
        ),
        (
            FigureKind::Flows,
            ["Goodput up", "Congestion window up", "Smoothed RTT up"],
        ),
        (
            FigureKind::State,
            ["Sojourn time of every packet", "drop_next", "zeal"],
        ),
        (FigureKind::Fairness, ["Fairness up", "index", "bulk flows"]),
        (
            FigureKind::Tradeoff,
            ["Goodput and delay up", "mean sojourn time", "one standard"],
        ),
        (
            FigureKind::Box,
            ["Ping, round trip", "Sojourn time", "5 % to 95 %"],
        ),
        (
            FigureKind::Totals,
            ["Goodput up", "Ping, median", "Packets dropped up"],
        ),
    ] {
        let drawn = svg(&report, &Figure::of(kind)).expect("there is something to draw");
        for text in texts {
            assert!(drawn.contains(text), "no {text:?} in the {kind:?} figure");
        }
        for tint in ["#0072B2", "#D55E00"] {
            assert!(
                drawn.contains(tint),
                "nothing is drawn in {tint} in {kind:?}"
            );
        }
    }
    // Two queues of a run share the panel of their variable.
    let drawn = svg(&report, &Figure::of(FigureKind::State)).unwrap();
    assert!(!drawn.contains("of queue 3"));
    // Nothing was marked, so there are no bars of it.
    let drawn = svg(&report, &Figure::of(FigureKind::Totals)).unwrap();
    assert!(!drawn.contains("CE-marked"));
    assert!(matches!(
        svg(&drawable(), &Figure::of(FigureKind::Fairness)),
        Err(FigureError::NoValues { .. })
    ));
}

#[test]
fn the_legend_of_a_single_run_names_its_flows() {
    let mut report = drawable();
    report.runs.truncate(1);
    let mut second = report.runs[0].flows[0].clone();
    report.runs[0].flows[0].name = "older".to_owned();
    second.name = "younger".to_owned();
    report.runs[0].flows.push(second);
    let drawn = svg(&report, &Figure::of(FigureKind::Flows)).unwrap();
    assert!(drawn.contains("older") && drawn.contains("younger"));
    assert!(
        !drawn.contains("fifo"),
        "one colour does not stand for the run"
    );
}

#[test]
fn a_tradeoff_has_the_moments_of_its_points() {
    // Delays 2 4 6, goodputs 1 2 3: deviations 2 and 1 (n - 1), fully correlated.
    let tradeoff = Tradeoff::of(&[(2.0, 1.0), (4.0, 2.0), (6.0, 3.0)]).unwrap();
    assert_eq!(
        (tradeoff.mean_delay_ms, tradeoff.mean_goodput_mbps),
        (4.0, 2.0)
    );
    assert_eq!(
        (
            tradeoff.delay_deviation_ms,
            tradeoff.goodput_deviation_mbps,
            tradeoff.correlation
        ),
        (2.0, 1.0, 1.0)
    );
    // The ellipse is a line from (6, 3) to (2, 1).
    let corners = tradeoff.contour(false);
    assert_eq!(corners[0], (6.0, 3.0));
    let (x, y) = corners[36];
    assert!((x - 2.0).abs() < 1e-12 && (y - 1.0).abs() < 1e-12);
    // Of 1, 10 and 100 ms the logarithms 0, 1, 2 deviate by 1 around 1: from 1 to 100 ms.
    let tradeoff = Tradeoff::of(&[(1.0, 1.0), (10.0, 1.0), (100.0, 1.0)]).unwrap();
    let (x, y) = tradeoff.contour(true)[0];
    assert!((x - 100.0).abs() < 1e-9 && y == 1.0);
    assert_eq!(Tradeoff::of(&[(1.0, 1.0), (2.0, 2.0)]), None);
}

#[test]
fn a_contour_reaches_no_negative_delay_or_goodput() {
    // Delays of 0, 0 and 9 ms: a mean of 3, and a deviation of the root of (9 + 9 + 36) / 2, 5.2 ms.
    // Goodputs alike.
    let tradeoff = Tradeoff::of(&[(0.0, 9.0), (0.0, 0.0), (9.0, 0.0)]).unwrap();
    let corners = tradeoff.contour(false);
    assert!(corners.iter().all(|(x, y)| *x >= 0.0 && *y >= 0.0));
    assert!(corners.iter().any(|(x, _)| *x == 0.0) && corners.iter().any(|(_, y)| *y == 0.0));
    assert!((corners[0].0 - 3.0 - 27_f64.sqrt()).abs() < 1e-12);
}

#[test]
fn a_quantile_is_a_value_that_occurred() {
    let cdf = Cdf::of(vec![10.0, 20.0, 30.0, 40.0]);
    // Ranks ceil(0.5 * 4) = 2 and ceil(0.51 * 4) = 3.
    assert_eq!(
        (cdf.quantile(0.5), cdf.quantile(0.51)),
        (Some(20.0), Some(30.0))
    );
    assert_eq!(Cdf::default().quantile(0.5), None);
}

#[test]
fn what_happens_after_the_end_is_not_drawn_onto_the_edge() {
    let report = drawable();
    let mut drained = report.clone();
    let queue = &mut drained.runs[0].queues[0];
    queue.backlog_packets.time_s.push(10.5);
    queue.backlog_packets.value.push(0.0);
    queue.packets.push(row(10_500_000_000, 0, Verdict::Sent));
    let draw = |report| svg(report, &Figure::time()).expect("there is something to draw");
    assert_eq!(draw(&drained), draw(&report));
}

#[test]
fn a_figure_without_caption_leaves_the_title_to_the_paper() {
    let bare = svg(&drawable(), &Figure::time().bare()).expect("there is something to draw");
    assert_eq!(
        bare.matches("Two queues").count(),
        1,
        "only the document's own title"
    );
}

#[test]
fn pictures_have_text_without_any_font_on_the_machine() {
    // The same figure with and without its title differs where the title stands: text was drawn.
    let report = drawable();
    let mut untitled = report.clone();
    untitled.title = String::new();
    let pixels = |report: &Report| {
        let bytes = png(report, &Figure::distribution(), 1.0).expect("there is something to draw");
        resvg::tiny_skia::Pixmap::decode_png(&bytes).expect("a PNG")
    };
    let (with, without) = (pixels(&report), pixels(&untitled));
    assert_eq!(with.width(), Figure::distribution().width);
    assert_eq!(with.height(), without.height());
    let row_of = |at: usize| at / with.width() as usize;
    let differing: Vec<usize> = (0..with.pixels().len())
        .filter(|&at| with.pixels()[at] != without.pixels()[at])
        .collect();
    assert!(differing.len() > 200, "{} pixels differ", differing.len());
    assert!(differing.into_iter().all(|at| row_of(at) < 34));
}

#[test]
fn impossible_figures_are_refused_with_the_reason() {
    let empty = Report::new("nothing", Ends::default());
    assert_eq!(
        svg(&empty, &Figure::time()),
        Err(FigureError::NoRuns {
            title: "nothing".to_owned()
        })
    );
    let narrow = Figure {
        width: 10,
        ..Figure::time()
    };
    let error = svg(&drawable(), &narrow).expect_err("ten pixels are not enough");
    assert_eq!(
        error.to_string(),
        "a figure of 10 pixels cannot be drawn: 240 to 4000 are possible; on paper, a width of 60 mm to 700 mm \
         with text of 9 pt"
    );
    let mut blank = empty;
    blank.runs.push(Run::default());
    assert!(matches!(
        svg(&blank, &Figure::distribution()),
        Err(FigureError::NoValues { .. })
    ));
    assert!(png(&drawable(), &Figure::time(), 0.0).is_err());
}

#[test]
fn kinds_of_figures_have_one_name_each() {
    for kind in FigureKind::ALL {
        assert_eq!(kind.word().parse(), Ok(kind));
    }
    let error = "pie".parse::<FigureKind>().expect_err("no such figure");
    assert!(
        error.starts_with("unknown kind of figure `pie`: expected one of time, "),
        "{error}"
    );
}
