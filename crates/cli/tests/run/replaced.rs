//! Earlier runs in the folder of new ones.

use std::collections::BTreeSet;

use super::*;

#[test]
fn live_runs_are_not_replaced_by_simulations_unless_asked_for() {
    let place = Place::new();
    place.write("s.toml", SCENARIO);
    let run = ["run", "s.toml", "-o", "out"];
    assert!(place.run(&run).status.success());
    let path = place.path("out/codel/run.json");
    let recorded = || fs::read_to_string(&path).expect("run.json");
    let mut live: Value = serde_json::from_str(&recorded()).expect("JSON");
    live["environment"]["backend"] = "live".into();
    fs::write(&path, live.to_string()).expect("writable");
    let refused = place.run(&run);
    assert_eq!(refused.status.code(), Some(1));
    assert_eq!(
        text(&refused.stderr),
        "sluice: the live run in `out/codel` would be replaced by a simulation; choose another folder \
         (-o DIR), or replace it with --fresh\n"
    );
    assert_eq!(recorded(), live.to_string());
    let asked_for = place.run(&[&run[..], &["--fresh"]].concat());
    assert!(asked_for.status.success(), "{}", text(&asked_for.stderr));
    assert_ne!(recorded(), live.to_string());
    // Simulations are replaced, which is said.
    let other = place.run(&[&run[..], &["--seed", "7"]].concat());
    let said = text(&other.stderr);
    assert!(other.status.success(), "{said}");
    let expected = "sluice: the earlier runs in `out/fifo` and 1 more folder are replaced by runs of other settings \
         (there `seed = 1`, here `seed = 7`); another folder (-o DIR) keeps them\n";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn repetitions_of_earlier_commands_that_reports_count_are_named() {
    let place = Place::new();
    place.write("s.toml", &format!("title = \"Two queues\"{SCENARIO}"));
    let run = ["run", "s.toml", "-o", "out", "--repeat", "2"];
    let first = text(&place.run(&run).stderr);
    assert!(!first.contains("further repetitions"), "{first}");
    // Seed 1 is replaced, and seed 2 stays beside seeds 50 and 51.
    let second = text(&place.run(&[&run[..], &["--seed", "50"]].concat()).stderr);
    let named = "sluice: warning: `out` has further repetitions, with other seeds, that reports, exports and \
                 comparisons count and the figures, expectations and pictures of `sluice run` do not: \
                 `codel.seed-2`, `fifo.seed-2`; remove their folders, or choose another folder (-o DIR)\n";
    assert!(second.contains(named), "{second}");
    let tidy = place.run(&["export", "out", "--tidy", "tidy.csv"]);
    assert!(tidy.status.success(), "{}", text(&tidy.stderr));
    let rows = |path: &str| {
        let table = fs::read_to_string(place.path(path)).expect("a table");
        table.lines().count() - 1
    };
    // Two variants with two seeds each, and with three.
    assert_eq!((rows("out/figures.csv"), rows("tidy.csv")), (4, 6));
    // Both tables have the title of the scenario.
    let scenarios = |path: &str| {
        let table = fs::read_to_string(place.path(path)).expect("a table");
        let cells = table
            .lines()
            .skip(1)
            .filter_map(|row| row.split(',').next());
        cells.map(str::to_owned).collect::<BTreeSet<String>>()
    };
    for path in ["out/figures.csv", "tidy.csv"] {
        assert_eq!(scenarios(path), BTreeSet::from(["Two queues".to_owned()]));
    }
}
