//! Simulates every scenario with its own seed and compares the figures with those in
//! `scenarios/golden`.
//!
//! A simulation gives the same figures on every machine, so any change of them is the change of an
//! algorithm, of TCP, or of a measurement. If the change is intended, `make golden` rewrites the
//! tables, and the changelog gives the reason in a line with the digest of all tables.
//!
//! The figures are computed while a run is written. Those of its tables are compared with them.
//!
//! The measurements of the runs are kept in `target/tmp/golden`, so that `make test-claims` can
//! check the sentences of the page of published experiments against it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use sluice_core::Stop;
use sluice_lab::simulated::estimate;
use sluice_lab::suite::{Backends, Options, Request, execute};
use sluice_lab::table;
use sluice_recording::figures::figures_of;
use sluice_recording::metrics::measure;
use sluice_recording::results::{RunResult, VariantResult};
use sluice_recording::{Keep, Recording};
use sluice_scenario::Backend;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn figures_are_those_that_the_changelog_knows() {
    let golden = root().join("scenarios/golden");
    let tables = simulate();
    let is_update = std::env::var_os("UPDATE_EXPECT").is_some();
    let kept = files(&golden);
    let mut changed = Vec::new();
    for name in tables.keys().chain(kept.keys()).collect::<BTreeSet<_>>() {
        let (new, old) = (tables.get(name), kept.get(name));
        if new == old {
            continue;
        }
        let path = golden.join(name);
        match new {
            Some(text) if is_update => {
                fs::create_dir_all(path.parent().expect("a folder")).expect("writable");
                fs::write(&path, text).expect("writable");
            }
            None if is_update => fs::remove_file(&path).expect("writable"),
            _ => changed.push(difference(name, old, new)),
        }
    }
    assert!(
        changed.is_empty(),
        "{}\nif this change is intended: `make golden`, and give the reason in CHANGELOG.md",
        changed.join("\n")
    );
    let digest = digest(&tables);
    let changelog = fs::read_to_string(root().join("CHANGELOG.md")).expect("the changelog");
    let is_known = changelog.contains(&format!("golden tables {digest}"));
    let ask = format!("CHANGELOG.md needs a line `golden tables {digest}: why they changed`");
    if is_update && !is_known {
        println!("{ask}");
    }
    assert!(is_update || is_known, "{ask}");
}

/// Returns the table of every scenario, by the name of its golden file.
fn simulate() -> BTreeMap<String, String> {
    let folder = tempfile::tempdir().expect("a folder");
    let scenarios = root().join("scenarios");
    let request = Request {
        paths: vec![scenarios.clone()],
        backends: Some(Backends::One(Backend::Sim)),
        repeat: 1,
        output: Some(folder.path().to_owned()),
        ..Request::default()
    };
    let mut suite = request.plan().expect("scenarios");
    let mut tables = BTreeMap::new();
    let names: Vec<String> = suite.experiments.iter().map(|e| e.name.clone()).collect();
    suite.check(false);
    // A scenario that cannot be simulated is recorded as such.
    let possible: BTreeSet<&str> = suite.experiments.iter().map(|e| e.name.as_str()).collect();
    for name in names
        .iter()
        .filter(|name| !possible.contains(name.as_str()))
    {
        tables.insert(format!("{name}.txt"), "cannot be simulated\n".to_owned());
    }
    let interrupt = Stop::new();
    let options = Options {
        is_fresh: true,
        threads: None,
        core: None,
        is_watched: false,
        keep: Some(Keep::Packets),
        pages: None,
        has_all_pages: false,
        interrupt: &interrupt,
        watch: &|_| {},
    };
    let executed = execute(&suite, &options);
    for (experiment, executed) in suite.experiments.iter().zip(executed) {
        let failed: Vec<String> = executed
            .failures
            .iter()
            .map(|failure| format!("{}: {}", failure.what, failure.error))
            .collect();
        assert!(failed.is_empty(), "{failed:?}");
        executed.results.iter().for_each(check_figures);
        check_estimates(&executed.results);
        tables.insert(format!("{}.txt", experiment.name), text(&executed.results));
    }
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join("golden");
    let _ = fs::remove_dir_all(&kept);
    keep(folder.path(), &kept);
    tables
}

/// Checks that the figures that were computed during a run are those of its tables.
fn check_figures(result: &VariantResult) {
    for run in &result.runs {
        let recording = Recording::open(&run.folder).expect("a recording");
        let read = measure(&recording).expect("its tables");
        assert_eq!(read, run.summary, "{} {}", result.scenario, result.variant);
    }
}

/// Checks that the estimate of a scenario's cost is between half and twice of what its fastest
/// queue lets pass; a queue that drops more makes TCP send less, which no estimate can know.
fn check_estimates(results: &[VariantResult]) {
    let runs = results.iter().flat_map(|result| &result.runs);
    let ratio = |run: &RunResult| {
        let recording = Recording::open(&run.folder).expect("a recording");
        let numbers = recording.packets().expect("its packets");
        let last = numbers.filter_map(|row| row.expect("a packet").record.packet);
        let sent = last.max().map_or(0, |last| last + 1);
        let expected = estimate(&recording.run().scenario).expect("it was simulated");
        expected.packets as f64 / sent.max(1) as f64
    };
    let lowest = runs.map(ratio).fold(f64::MAX, f64::min);
    let name = &results[0].scenario;
    assert!((0.5..=2.0).contains(&lowest), "{name}: {lowest:.2} times");
}

/// Copies the descriptions and summaries of all runs, without their tables.
fn keep(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_dir() {
            keep(&path, &to.join(name));
        } else if name == "run.json" || name == "summary.json" {
            fs::create_dir_all(to).expect("writable");
            fs::copy(&path, to.join(name)).expect("writable");
        }
    }
}

/// Returns the table that `sluice run` prints, and a digest of every figure in nine digits: with
/// more, different libraries of logarithms would give different digests. The part about completion
/// times is left out, since the digest has these figures.
fn text(results: &[VariantResult]) -> String {
    let printed = table::text(results);
    let is_kept = |part: &&str| !part.trim_start().starts_with("completion");
    let parts: Vec<&str> = printed.trim_end().split("\n\n").filter(is_kept).collect();
    let mut text = parts.join("\n\n");
    text.push_str("\n\nall figures\n");
    for result in results {
        let mut all = Sha256::new();
        for figure in figures_of(&result.runs[0].summary) {
            all.update(format!("{} {:.8e}\n", figure.name, figure.value));
        }
        let _ = writeln!(text, "{} {}", hex(&all.finalize()), result.variant);
    }
    text
}

fn digest(tables: &BTreeMap<String, String>) -> String {
    let mut all = Sha256::new();
    for (name, text) in tables {
        all.update(name);
        all.update(text);
    }
    hex(&all.finalize())
}

fn hex(digest: &[u8]) -> String {
    digest[..6]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Returns the golden files, by their path below `folder`.
fn files(folder: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(folder).expect("it is below");
            let text = fs::read_to_string(&path).expect("a readable file");
            found.insert(name.to_string_lossy().into_owned(), text);
        }
    }
    found
}

/// Returns the lines that differ.
fn difference(name: &str, old: Option<&String>, new: Option<&String>) -> String {
    let lines = |text: Option<&String>| -> Vec<String> {
        text.map_or_else(Vec::new, |text| text.lines().map(str::to_owned).collect())
    };
    let (old, new) = (lines(old), lines(new));
    let mut out = format!("scenarios/golden/{name}:\n");
    for line in old.iter().filter(|line| !new.contains(line)) {
        let _ = writeln!(out, "- {line}");
    }
    for line in new.iter().filter(|line| !old.contains(line)) {
        let _ = writeln!(out, "+ {line}");
    }
    out
}
