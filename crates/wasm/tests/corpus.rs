//! Replays the fuzzer's corpus (`fuzz/corpus/module`).

mod common;

use std::path::Path;

#[test]
fn modules_of_the_corpus_are_refused_or_decide() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/module");
    let mut loaded = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        loaded.push(common::check(&std::fs::read(&path).unwrap()));
    }
    // Both ends are reached.
    assert!(
        loaded.contains(&true) && loaded.contains(&false),
        "{loaded:?}"
    );
}
