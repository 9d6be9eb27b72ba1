//! Replays the fuzzers' corpus (`fuzz/corpus`) in every test run.

mod common;

use std::fs;
use std::path::Path;

use common::fuzz::{self, Case};

/// Passes every file of a target's corpus to `check`.
fn replay(target: &str, check: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../fuzz/corpus")
        .join(target);
    let mut files: Vec<_> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("the folder can be read").path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    for file in files {
        // The last line of the output names the file that fails.
        println!("{}", file.display());
        check(&fs::read(&file).expect("the file can be read"));
    }
}

fn text(check: fn(&str)) -> impl Fn(&[u8]) {
    move |bytes| check(&String::from_utf8_lossy(bytes))
}

#[test]
fn operations_of_the_corpus_breach_nothing() {
    replay("operations", |bytes| Case::from_bytes(bytes).check());
}

#[test]
fn queues_of_the_corpus_parse_or_are_refused() {
    replay("queue", text(fuzz::queue));
}

#[test]
fn links_of_the_corpus_parse_or_are_refused() {
    replay("link", text(fuzz::link));
}

#[test]
fn files_of_the_corpus_parse_or_are_refused() {
    replay("files", text(fuzz::files));
}
