use std::fs;
use std::path::Path;

use sluice_core::Stop;

use super::*;
use crate::suite::{Options, Request, execute};
use sluice_recording::outdated_runs;
use sluice_recording::runs::runs_in;

/// Packets that arrive at random at a queue of four: figures vary with the seed.
const SCENARIO: &str = r#"
duration = "2s"
[link]
rate = "1Mbit/s"
rtt = "20ms"
queue = "red min 2 max 8 max_p 0.5 wq 0.2"
[measure]
warmup = "0s"
[[flow]]
type = "udp"
rate = "1100kbit/s"
size = 500
[[flow]]
type = "ping"
interval = "50ms"
[[expect]]
metric = "total.goodput"
min = "700kbit/s"
"#;

fn run(folder: &Path, name: &str, sets: &[&str], repeat: u32) -> Vec<Place> {
    let file = folder.join("s.toml");
    fs::write(&file, SCENARIO).expect("writable");
    let out = folder.join(name);
    let request = Request {
        paths: vec![file],
        sets: sets.iter().map(|set| (*set).to_owned()).collect(),
        repeat,
        output: Some(out.clone()),
        ..Request::default()
    };
    let options = Options {
        is_fresh: false,
        threads: None,
        core: None,
        is_watched: false,
        keep: None,
        pages: None,
        has_all_pages: false,
        interrupt: &Stop::new(),
        watch: &|_| {},
    };
    let executed = execute(&request.plan().expect("a plan"), &options);
    assert!(
        executed[0].failures.is_empty(),
        "{:?}",
        executed[0].failures
    );
    runs_in(&out).expect("runs")
}

fn verdict(comparison: &Comparison, metric: &str) -> Verdict {
    let mut figures = comparison.pairs.iter().flat_map(|pair| &pair.figures);
    figures
        .find(|f| f.metric == metric)
        .expect("the figure")
        .verdict
}

#[test]
fn runs_of_an_earlier_version_of_the_scenario_are_left_out() {
    let folder = tempfile::tempdir().expect("a folder");
    run(folder.path(), "a", &["link.rate=10Mbit/s"], 3);
    let found = run(folder.path(), "a", &["link.rate=5Mbit/s"], 2);
    let [place] = &found[..] else {
        panic!("{found:?}");
    };
    let runs = |results: &[Found]| -> Vec<usize> {
        results.iter().map(|one| one.result.runs.len()).collect()
    };
    assert_eq!(runs(&place.results), [2]);
    let outdated = outdated_runs(&folder.path().join("a"));
    assert_eq!(outdated.len(), 1, "{outdated:?}");
    let name = outdated[0].file_name().expect("a name").to_string_lossy();
    assert!(name.ends_with("seed-3"), "{name}");

    // Repetitions of the present version stay, even if the last run made fewer.
    let found = run(folder.path(), "a", &["link.rate=5Mbit/s"], 1);
    assert_eq!(runs(&found[0].results), [2]);
}

#[test]
fn a_simulation_with_the_same_seed_in_another_folder_is_no_repetition() {
    let folder = tempfile::tempdir().expect("a folder");
    run(folder.path(), "a", &[], 3);
    // The folder of seed 1 now has seed 3, beside that of seed 3 among the repetitions.
    let found = run(folder.path(), "a", &["seed=3"], 3);
    let runs = &found[0].results[0].result.runs;
    let seeds: Vec<u64> = runs.iter().map(|run| run.seed).collect();
    assert_eq!(seeds, [2, 3, 4, 5]);
    let name = runs[1]
        .folder
        .file_name()
        .expect("a name")
        .to_string_lossy();
    assert!(!name.contains("seed"), "the last run of seed 3: {name}");
}

#[test]
fn the_same_runs_are_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = run(folder.path(), "a", &[], 1);
    let second = run(folder.path(), "b", &[], 1);
    let comparison = compare(&first, &second, 0.0);
    assert!(
        !comparison.has_changes(),
        "{}",
        comparison.text(&Shown::All)
    );
    assert_eq!(comparison.pairs[0].differences, []);
    assert!(comparison.text(&Shown::Key).contains("nothing has changed"));
}

#[test]
fn a_change_is_distinguished_from_variation_between_seeds() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = run(folder.path(), "a", &[], 4);
    let seeds = run(folder.path(), "b", &["seed=101"], 4);
    let slower = run(folder.path(), "c", &["link.rate=500kbit/s"], 4);
    assert_eq!(first[0].results[0].result.runs.len(), 4);

    let chance = compare(&first, &seeds, 0.0);
    assert_eq!(
        verdict(&chance, "up.drops"),
        Verdict::WithinSpread,
        "{}",
        chance.text(&Shown::All)
    );
    let changed = compare(&first, &slower, 0.0);
    assert_eq!(
        verdict(&changed, "total.goodput"),
        Verdict::BeyondSpread,
        "{}",
        changed.text(&Shown::All)
    );
    assert!(changed.has_changes());
    let lines = &changed.pairs[0].differences;
    assert!(
        lines
            .iter()
            .any(|line| line.is_first && line.text.contains("1Mbit/s"))
    );
    assert!(
        lines
            .iter()
            .any(|line| !line.is_first && line.text.contains("500kbit/s"))
    );
    // 1 Mbit/s carries more than is expected, 500 kbit/s cannot.
    let turned = Turned {
        metric: "total.goodput".into(),
        bounds: "at least 700kbit/s".into(),
        is_met: false,
    };
    assert_eq!(changed.pairs[0].expectations, [turned]);
    let text = changed.text(&Shown::All);
    assert!(
        text.contains("  met, then not met: total.goodput at least 700kbit/s\n"),
        "{text}"
    );
    assert!(text.contains("  - link.rate = \"1Mbit/s\"\n"), "{text}");
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
}

#[test]
fn expectations_are_no_differences_and_settings_have_their_places() {
    let toml = "duration = \"2s\"\n\n[link.up]\nrate = \"1Mbit/s\"\n\n[[hop]]\n\n[hop.up]\nrate = \"2Mbit/s\"\n\n\
        [[flow]]\ntype = \"tcp\"\nname = \"bulk\"\n\n[[expect]]\nmetric = \"jain\"\nmin = 0.9\n";
    let expected = [
        "duration = \"2s\"",
        "link.up.rate = \"1Mbit/s\"",
        "hop.2.up.rate = \"2Mbit/s\"",
        "flow.bulk.type = \"tcp\"",
        "flow.bulk.name = \"bulk\"",
    ];
    assert_eq!(settings(toml), expected);
}

#[test]
fn the_text_shows_key_figures_all_or_those_that_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let count = "flow.udp.count=2";
    let first = run(folder.path(), "a", &[count], 1);
    let second = run(folder.path(), "b", &[count, "link.rate=500kbit/s"], 1);
    let comparison = compare(&first, &second, 0.0);
    let text = comparison.text(&Shown::Key);
    assert!(text.contains("  total.goodput "), "{text}");
    assert!(text.contains("  up.sojourn.p95 "), "{text}");
    assert!(!text.contains("udp.goodput"), "{text}");
    assert!(!text.contains("ping.sojourn.p95"), "{text}");
    assert!(
        text.contains("the key figures among them are shown (--all, --figures)"),
        "{text}"
    );
    let all = comparison.text(&Shown::All);
    assert!(all.contains("  udp.goodput ") && all.contains("udp-1.goodput"));
    let named = comparison.text(&Shown::Named(vec!["udp-1.goodput".into()]));
    assert!(named.contains("udp-1.goodput") && !named.contains("udp-2.goodput"));
}

#[test]
fn drops_for_a_reason_that_one_side_does_not_have_are_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = run(folder.path(), "a", &[], 2);
    let second = run(folder.path(), "b", &["link.queue=fifo limit 3"], 2);
    let comparison = compare(&first, &second, 0.0);
    let mut figures = comparison.pairs[0].figures.iter();
    // RED drops on purpose, a FIFO only when it is full.
    let drops = figures
        .find(|figure| figure.metric == "up.drops.overflow")
        .expect("the figure");
    let values = |side: &Option<Repeated>| side.as_ref().expect("both sides").values.clone();
    assert_eq!(values(&drops.first), [0.0, 0.0]);
    assert!(values(&drops.second)[0] > 0.0);
    assert!(drops.p.is_some_and(|p| p < 0.05), "{:?}", drops.p);
}

/// A figure of two sides with these values.
fn figure(metric: &str, first: &[f64], second: &[f64]) -> Compared {
    let sides =
        [first, second].map(|values| Repeated::of(Unit::Time, values.to_vec(), values.len()));
    let [first, second] = sides;
    compared(metric, &flows(), (first, second), None, 0.0)
}

/// The flows of the figures in these tests.
fn flows() -> FlowNames {
    let names = ["ping", "ping.eu", "call", "call-up", "flood", "rr", "short"];
    names.map(str::to_owned).into_iter().collect()
}

fn of_call(figure: Compared) -> Compared {
    Compared {
        is_of_call: true,
        ..figure
    }
}

fn answer(figures: Vec<Compared>) -> String {
    answer::lines(&Pair {
        name: "a against b".into(),
        sides: ["a", "b"].map(str::to_owned),
        runs: [3, 3],
        differences: Vec::new(),
        expectations: Vec::new(),
        figures,
    })
}

#[test]
fn the_answer_names_what_speaks_against_it_and_what_is_too_small() {
    let ms = |values: [f64; 3]| values.map(|ms| ms * 1e6);
    // 26.0 to 25.3 ms is 2.7 % less, with any seed: a real difference, but not one that matters. The
    // queue's own delay is longer by half.
    let small = figure("ping.p95", &ms([26.0, 26.0, 26.1]), &ms([25.3, 25.3, 25.4]));
    let longer = figure("up.sojourn.p95", &ms([4.0, 4.0, 4.1]), &ms([6.0, 6.0, 6.1]));
    let text = answer(vec![small, longer]);
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    assert_eq!(
        lines[0],
        "neither is better: the deciding figures are about the same"
    );
    assert_eq!(
        lines[1],
        "a, but: up.sojourn.p95 4ms to 6ms (+50.0 %, p < 0.001)"
    );
    assert_eq!(
        lines[2],
        "about the same: ping.p95 26ms to 25.3ms (-2.7 %, p < 0.001)"
    );
    // A call's score decides before that of probes; the queue's delay speaks against the answer.
    let text = answer(vec![
        figure("ping.p95", &ms([40.0, 41.0, 42.0]), &ms([20.0, 21.0, 22.0])),
        figure("ping.mos", &[1.0, 1.0, 1.1], &[4.0, 4.0, 4.1]),
        of_call(figure("call-up.mos", &[4.4, 4.4, 4.4], &[4.4, 4.4, 4.5])),
        figure("up.sojourn.p95", &ms([4.0, 4.0, 4.1]), &ms([6.0, 6.0, 6.1])),
    ]);
    assert!(
        text.contains("  b is better (more than chance)\n"),
        "{text}"
    );
    assert!(text.contains("    a, but: up.sojourn.p95 "), "{text}");
    assert!(
        text.contains("call-up.mos") && !text.contains("ping.mos"),
        "{text}"
    );
    // Without probes, the queue's delay decides.
    let text = answer(vec![figure(
        "up.sojourn.p95",
        &ms([4.0, 4.0, 4.1]),
        &ms([6.0, 6.0, 6.1]),
    )]);
    assert!(
        text.contains("  a is better (more than chance)\n"),
        "{text}"
    );
}

#[test]
fn the_score_of_other_udp_packets_has_no_part_in_the_answer() {
    let ms = |values: [f64; 3]| values.map(|ms| ms * 1e6);
    let ping = || figure("ping.p95", &ms([40.0, 41.0, 42.0]), &ms([20.0, 21.0, 22.0]));
    let flood = || figure("flood.mos", &[4.0, 4.0, 4.1], &[1.0, 1.0, 1.1]);
    let text = answer(vec![ping(), flood()]);
    assert!(
        text.contains("  b is better (more than chance)\n") && !text.contains("flood.mos"),
        "{text}"
    );
    let call = figure("call.mos", &[1.2, 1.2, 1.3], &[4.4, 4.4, 4.4]);
    let text = answer(vec![flood(), of_call(call)]);
    assert!(
        text.contains("    b: call.mos ") && !text.contains("flood.mos"),
        "{text}"
    );
}

#[test]
fn figures_of_a_flow_whose_name_has_dots_decide_too() {
    let ms = |values: [f64; 3]| values.map(|ms| ms * 1e6);
    let pings = |name: &str| figure(name, &ms([40.0, 41.0, 42.0]), &ms([20.0, 21.0, 22.0]));
    let score = figure("ping.eu.mos", &[1.0, 1.0, 1.1], &[4.0, 4.0, 4.1]);
    let text = answer(vec![pings("ping.eu.p95"), score]);
    assert!(
        text.contains("    b: ping.eu.p95 ") && text.contains("    b: ping.eu.mos "),
        "{text}"
    );
    // The delay of `ping` in one direction has no part in it.
    assert_eq!(answer(vec![pings("ping.up.p95")]), "");
}

#[test]
fn calls_are_known_by_their_type() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut places = run(folder.path(), "a", &[], 1);
    let found = &mut places[0].results[0];
    // Its `udp` flow and its ping have a score, but are no calls.
    let calls = |found: &Found| flows_that(found, FlowSummary::is_call);
    assert_eq!(calls(found), BTreeSet::new());
    let flows = &mut found.result.runs[0].summary.flows;
    assert!(flows.iter().all(|flow| flow.mos.is_some()), "{flows:?}");
    flows[0].type_name = "voip".into();
    assert_eq!(calls(found), BTreeSet::from(["udp".to_owned()]));
}

#[test]
fn a_ping_decides_before_exchanges_that_are_declared_before_it() {
    let ms = |values: [f64; 3]| values.map(|ms| ms * 1e6);
    let exchanges = || figure("rr.p95", &ms([20.0, 21.0, 22.0]), &ms([40.0, 41.0, 42.0]));
    let mut ping = figure("ping.p95", &ms([40.0, 41.0, 42.0]), &ms([20.0, 21.0, 22.0]));
    ping.is_of_ping = true;
    let text = answer(vec![exchanges(), ping]);
    assert!(
        text.contains("    b: ping.p95 ") && !text.contains("rr.p95"),
        "{text}"
    );
    assert!(answer(vec![exchanges()]).contains("    a: rr.p95 "));
}

/// A figure that `values` of `runs` runs measured on each side.
fn partly(metric: &str, first: (&[f64], usize), second: (&[f64], usize)) -> Compared {
    let runs = [first.1, second.1];
    let [first, second] =
        [first, second].map(|(values, runs)| Repeated::of(Unit::Time, values.to_vec(), runs));
    compared(metric, &flows(), (first, second), Some(runs), 0.0)
}

#[test]
fn a_side_that_never_measured_a_figure_is_the_worse_one() {
    let ms = |values: &[f64]| -> Vec<f64> { values.iter().map(|ms| ms * 1e6).collect() };
    // No ping returned through the first queue, whose packets waited for a shorter time.
    let waited = || {
        figure(
            "up.sojourn.p95",
            &ms(&[4.0, 4.0, 4.1]),
            &ms(&[6.0, 6.0, 6.1]),
        )
    };
    let ping = partly("ping.p95", (&[], 5), (&ms(&[30.0; 5]), 5));
    assert_eq!(ping.verdict, Verdict::Missing);
    // None of five against all: p = 2 / C(10, 5) = 2 / 252 = 0.0079.
    assert!((ping.p.unwrap() - 2.0 / 252.0).abs() < 1e-9);
    let text = answer(vec![ping, waited()]);
    assert!(
        text.contains("  b is better (more than chance)\n"),
        "{text}"
    );
    assert!(
        text.contains("    b: ping.p95 - to 30ms (p = 0.008, in 0 and 5 of 5)\n"),
        "{text}"
    );
    assert!(text.contains("    a, but: up.sojourn.p95 "), "{text}");
    // One run on each side has no p.
    let text = answer(vec![partly("ping.p95", (&[], 1), (&ms(&[30.0]), 1))]);
    assert!(text.contains("  b is better "), "{text}");
    // Of a flow that the first side does not have, nothing is known.
    let text = answer(vec![figure("ping.p95", &[], &ms(&[30.0; 3])), waited()]);
    assert!(
        text.contains("  a is better (more than chance)\n"),
        "{text}"
    );
}

#[test]
fn flows_with_the_same_settings_are_those_of_both_sides() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = run(folder.path(), "a", &["flow.udp.count=2"], 1);
    let second = run(
        folder.path(),
        "b",
        &["flow.udp.count=2", "flow.ping.interval=70ms"],
        1,
    );
    let found = |places: &[Place]| shared(&places[0].results[0], &places[0].results[0]);
    let both: Vec<String> = found(&first).into_iter().collect();
    assert_eq!(both, ["ping.", "udp-1.", "udp-2.", "udp."]);
    let same = shared(&first[0].results[0], &second[0].results[0]);
    assert!(!same.contains("ping.") && same.contains("udp."), "{same:?}");
    assert!(is_of("udp-2.goodput", &same) && !is_of("up.drops", &same));
}

#[test]
fn runs_that_did_not_measure_a_figure_are_named_and_do_not_make_a_side_better() {
    let ms = |values: &[f64]| -> Vec<f64> { values.iter().map(|ms| ms * 1e6).collect() };
    // The five transfers of the second side that ended were faster than those of the first.
    let (all, some) = (ms(&[950.0; 8]), ms(&[790.0; 5]));
    let figure = partly("short.fct", (&all, 8), (&some, 8));
    assert_eq!(figure.verdict, Verdict::Missing);
    assert_eq!(figure.change, None);
    // Eight against five of eight may be chance: p = 2 * C(8, 5) / C(16, 13) = 2 * 56 / 560 = 0.2.
    assert!((figure.p.unwrap() - 0.2).abs() < 1e-9);
    let mut pair = Pair {
        name: "a against b".into(),
        sides: ["a", "b"].map(str::to_owned),
        runs: [8, 8],
        differences: Vec::new(),
        expectations: Vec::new(),
        figures: vec![figure],
    };
    let text = |pair: &Pair| {
        let mut out = String::new();
        write_pair(&mut out, pair, &Shown::Key);
        out
    };
    let shown = text(&pair);
    assert!(shown.contains("  in 8 and 5 of 8, p = 0.200\n"), "{shown}");
    assert!(shown.contains("  neither is better"), "{shown}");
    let comparison = |pair: Pair| Comparison {
        pairs: vec![pair],
        only_first: Vec::new(),
        only_second: Vec::new(),
    };
    let mut one = comparison(pair);
    assert!(!one.has_changes());
    pair = one.pairs.remove(0);
    // Twelve against four of twelve is not: p = 2 * C(12, 4) / C(24, 16) = 2 * 495 / 735471 = 0.0013.
    let (all, few) = (ms(&[950.0; 12]), ms(&[790.0; 4]));
    pair.figures = vec![partly("short.fct", (&all, 12), (&few, 12))];
    let shown = text(&pair);
    assert!(
        shown.contains("  a is better (more than chance)"),
        "{shown}"
    );
    assert!(
        shown.contains("    a: short.fct 950ms to 790ms (p = 0.001, in 12 and 4 of 12)\n"),
        "{shown}"
    );
    assert!(comparison(pair).has_changes());
    // The same part on both sides: the values are compared.
    let (first, second) = (ms(&[950.0, 960.0]), ms(&[790.0, 800.0, 795.0, 790.0]));
    let same = partly("short.fct", (&first, 4), (&second, 8));
    assert_eq!(same.verdict, Verdict::BeyondSpread);
    assert_eq!(same.measured_in().as_deref(), Some("in 2 of 4, 4 of 8"));
}

#[test]
fn with_one_run_the_spread_is_unknown_and_a_tolerance_helps() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = run(folder.path(), "a", &[], 1);
    let second = run(folder.path(), "b", &["link.rate=999kbit/s"], 1);
    let comparison = compare(&first, &second, 0.0);
    assert_eq!(verdict(&comparison, "up.utilisation"), Verdict::Differs);
    assert!(comparison.text(&Shown::Key).contains("spread unknown"));
    let tolerant = compare(&first, &second, 0.05);
    assert_eq!(verdict(&tolerant, "up.utilisation"), Verdict::Same);
}

/// The 15 p values of section 4.1 of Benjamini and Hochberg 1995, of which the first four are
/// significant there.
#[test]
fn p_values_of_many_figures_are_judged_together() {
    let published = [
        0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262,
        0.5719, 0.6528, 0.7590, 1.0,
    ];
    let mut shuffled = published.to_vec();
    shuffled.reverse();
    assert_eq!(highest_significant(shuffled), Some(0.0095));
    assert_eq!(highest_significant(vec![0.04]), Some(0.04));
    // Half of the level is required of the lower of two.
    assert_eq!(highest_significant(vec![0.06, 0.026]), None);
    assert_eq!(highest_significant(vec![0.05, 0.04]), Some(0.05));
    assert_eq!(highest_significant(Vec::new()), None);
}

/// Two sets of the same queue with other seeds differ by chance only, in some of about a hundred
/// figures.
#[test]
fn equal_sets_have_no_changes() {
    let folder = tempfile::tempdir().expect("a folder");
    let pairs = (0..10).map(|n| {
        let of = |side: u32| {
            let seed = format!("seed={}", 1000 * side + 10 * n);
            run(folder.path(), &format!("{side}-{n}"), &[&seed], 4)
        };
        compare(&of(1), &of(2), 0.0)
    });
    let pairs: Vec<Comparison> = pairs.collect();
    let has_beyond = |comparison: &&Comparison| {
        let mut figures = comparison.pairs.iter().flat_map(|pair| &pair.figures);
        figures.any(|figure| figure.verdict == Verdict::BeyondSpread)
    };
    let beyond = pairs.iter().filter(has_beyond).count();
    let changed = pairs.iter().filter(|pair| pair.has_changes()).count();
    // Figures of one run depend on each other. If one in twenty were independent of the rest, 10
    // pairs would have 2 with a change in 9 % of the cases.
    assert!(
        changed <= 2 && changed < beyond,
        "{changed} of 10, {beyond}"
    );
}

#[test]
fn variants_of_one_side_only_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let queues = "matrix.link.queue=[\"fifo\", \"codel\"]";
    let first = run(folder.path(), "a", &[queues], 1);
    let queues = "matrix.link.queue=[\"codel\", \"pie\"]";
    let second = run(folder.path(), "b", &[queues], 1);
    let comparison = compare(&first, &second, 0.0);
    assert_eq!(comparison.only_first, ["fifo"]);
    assert_eq!(comparison.only_second, ["pie"]);
    assert_eq!(comparison.pairs.len(), 1);
    assert!(comparison.has_changes());
}
