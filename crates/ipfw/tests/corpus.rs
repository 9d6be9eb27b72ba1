//! Replays the corpus of the fuzz target `commands` (`fuzz/corpus/commands`) in every test run,
//! also with words swapped, doubled, cut and omitted.

mod common;

use std::fs;
use std::path::Path;

use common::fuzz;
use sluice_core::Rng;

fn corpus() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/commands");
    let mut files: Vec<_> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.expect("the folder can be read").path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    files
        .iter()
        .map(|file| fs::read_to_string(file).expect("a file of the corpus is text"))
        .collect()
}

#[test]
fn commands_of_the_corpus_are_read_or_refused() {
    for text in corpus() {
        fuzz::commands(&text);
    }
}

#[test]
fn commands_with_damage_are_read_or_refused() {
    let corpus = corpus();
    let words: Vec<&str> = corpus
        .iter()
        .flat_map(|text| text.split_whitespace())
        .collect();
    let lines: Vec<&str> = corpus.iter().flat_map(|text| text.lines()).collect();
    let mut rng = Rng::from_seed(4);
    for _ in 0..3000 {
        let line = lines[rng.below(lines.len() as u64) as usize];
        let mut parts: Vec<String> = line.split(' ').map(str::to_owned).collect();
        for _ in 0..=rng.below(3) {
            let at = rng.below(parts.len() as u64) as usize;
            let other = words[rng.below(words.len() as u64) as usize].to_owned();
            match rng.below(5) {
                0 => parts[at] = other,
                1 => parts.insert(at, other),
                2 => parts[at].push_str(&other),
                3 => {
                    let cut = rng.below(parts[at].chars().count() as u64 + 1) as usize;
                    parts[at] = parts[at].chars().take(cut).collect();
                }
                _ if parts.len() > 1 => drop(parts.remove(at)),
                _ => {}
            }
        }
        let text = parts.join(" ");
        // On a failure, the text is the last line of the output.
        println!("{text}");
        fuzz::commands(&text);
    }
}
