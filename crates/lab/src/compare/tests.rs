use std::fs;
use std::path::Path;

use sluice_core::Stop;

use super::*;
use crate::suite::{Options, Request, execute};
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
        keep: None,
        pages: None,
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
fn the_same_runs_are_the_same() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = run(folder.path(), "a", &[], 1);
    let second = run(folder.path(), "b", &[], 1);
    let comparison = compare(&first, &second, 0.0);
    assert!(!comparison.has_changes(), "{}", comparison.text(true));
    assert_eq!(comparison.pairs[0].differences, []);
    assert!(comparison.text(false).contains("nothing has changed"));
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
        chance.text(true)
    );
    let changed = compare(&first, &slower, 0.0);
    assert_eq!(
        verdict(&changed, "total.goodput"),
        Verdict::BeyondSpread,
        "{}",
        changed.text(true)
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
    let text = changed.text(true);
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
fn single_flows_of_a_count_are_left_out_of_the_text() {
    let folder = tempfile::tempdir().expect("a folder");
    let count = "flow.udp.count=2";
    let first = run(folder.path(), "a", &[count], 1);
    let second = run(folder.path(), "b", &[count, "link.rate=500kbit/s"], 1);
    let comparison = compare(&first, &second, 0.0);
    let text = comparison.text(false);
    assert!(text.contains("  udp.goodput "), "{text}");
    assert!(!text.contains("udp-1."), "{text}");
    assert!(
        text.contains("of single flows are left out (--all)"),
        "{text}"
    );
    assert!(comparison.text(true).contains("udp-1.goodput"));
}

#[test]
fn with_one_run_the_spread_is_unknown_and_a_tolerance_helps() {
    let folder = tempfile::tempdir().expect("a folder");
    let first = run(folder.path(), "a", &[], 1);
    let second = run(folder.path(), "b", &["link.rate=999kbit/s"], 1);
    let comparison = compare(&first, &second, 0.0);
    assert_eq!(verdict(&comparison, "up.utilisation"), Verdict::Differs);
    assert!(comparison.text(false).contains("spread unknown"));
    let tolerant = compare(&first, &second, 0.05);
    assert_eq!(verdict(&tolerant, "up.utilisation"), Verdict::Same);
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
