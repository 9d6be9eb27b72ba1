//! Replays the corpus of the fuzz target `control` (`fuzz/corpus/control`) in every test run, also
//! with bytes changed and cut off.

mod common;

use std::fs;
use std::path::Path;

use sluice_core::Rng;

#[test]
fn requests_of_the_corpus_are_answered_also_with_damage() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/control");
    let mut files: Vec<_> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("the folder can be read").path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    let mut rng = Rng::from_seed(5);
    for file in files {
        let whole = fs::read(&file).expect("the file can be read");
        common::requests(&whole);
        for _ in 0..500 {
            let mut bytes = whole.clone();
            for _ in 0..=rng.below(4) {
                let at = rng.below(bytes.len() as u64) as usize;
                bytes[at] = rng.next_u32() as u8;
            }
            bytes.truncate(rng.below(bytes.len() as u64 + 1) as usize);
            common::requests(&bytes);
        }
    }
}
