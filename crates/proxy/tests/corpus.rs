//! Replays the corpus of the fuzz target `proxy` (`fuzz/corpus/proxy`), also cut short and changed.

mod common;

use std::fs;
use std::path::Path;

#[test]
fn the_corpus_holds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/proxy");
    let mut inputs = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let bytes = fs::read(entry.unwrap().path()).unwrap();
        for len in 0..=bytes.len() {
            common::conversation(&bytes[..len]);
        }
        for at in 0..bytes.len() {
            for change in [1, 0x20, 0x80, 0xff] {
                let mut changed = bytes.clone();
                changed[at] ^= change;
                common::conversation(&changed);
            }
        }
        inputs += 1;
    }
    assert!(inputs >= 8, "{inputs}");
}
