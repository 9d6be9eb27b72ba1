//! Earlier runs in the folder of new ones.

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
