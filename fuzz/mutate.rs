//! Changes the inputs of a corpus at random, for tests on stable Rust: it does not measure coverage,
//! which the targets in this folder do, but it needs no other compiler and no other build.
//!
//! A test includes this file and calls [`check`]. It takes a fraction of a second, or at most
//! `SLUICE_FUZZ_SECONDS` for each corpus. The same seed gives the same inputs: the default one always
//! those that [`INPUTS`] counts, on fast machines too (`make test-rust`). A seed in
//! `SLUICE_FUZZ_SEED` gives new ones until the time is over (`make fuzz`).

#![allow(dead_code)] // Each test uses its part.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Returns the contents of [`files`].
pub fn corpus(folder: &str, ending: &str) -> Vec<Vec<u8>> {
    let read = |path: &PathBuf| std::fs::read(path).expect("the file can be read");
    files(folder, ending).iter().map(read).collect()
}

/// Returns the files in a folder whose names end with `ending`, and in its folders, in order.
pub fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut paths = Vec::new();
    collect(&top.join(folder), ending, &mut paths);
    paths.sort();
    paths
}

fn collect(folder: &Path, ending: &str, paths: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder);
    let entries = entries.unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries {
        let path = entry.expect("the folder can be read").path();
        if path.is_dir() {
            collect(&path, ending, paths);
        } else if path.to_string_lossy().ends_with(ending) {
            paths.push(path);
        }
    }
}

/// Passes every input of `corpus` to `check`, and then changed ones. If `check` panics, the input is
/// kept in a file, whose path is printed.
pub fn check(name: &str, corpus: &[Vec<u8>], mut check: impl FnMut(&[u8])) {
    assert!(!corpus.is_empty(), "the corpus {name} is empty");
    let number = |variable: &str| {
        std::env::var(variable)
            .ok()
            .and_then(|text| text.parse().ok())
    };
    let patience = match number("SLUICE_FUZZ_SECONDS") {
        Some(seconds) => Duration::from_secs(seconds),
        None => Duration::from_millis(300),
    };
    let seed = number("SLUICE_FUZZ_SEED");
    let most = if seed.is_some() {
        u64::MAX
    } else {
        let found = INPUTS.iter().find(|(corpus, _)| *corpus == name);
        found.expect("every corpus has a number of inputs").1
    };
    let mut random = Random(seed.unwrap_or(1).max(1));
    let (end, mut count) = (Instant::now() + patience, 0_u64);
    let mut run = |input: &[u8]| {
        let kept = Kept { name, input };
        check(input);
        std::mem::forget(kept);
        count += 1;
    };
    corpus.iter().for_each(|input| run(input));
    let mut changed = 0;
    while changed < most && Instant::now() < end {
        // The clock is read once for some inputs.
        for _ in 0..16 {
            let mut input = corpus[random.below(corpus.len())].clone();
            for _ in 0..=random.below(6) {
                mutate(&mut input, corpus, &mut random);
            }
            run(&input);
        }
        changed += 16;
    }
    eprintln!("{name}: {count} inputs");
}

/// Writes the input to a file when it is dropped, which happens only in a panic.
struct Kept<'a> {
    name: &'a str,
    input: &'a [u8],
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        let folder = option_env!("CARGO_TARGET_TMPDIR");
        let folder = folder.map_or_else(std::env::temp_dir, PathBuf::from);
        let path = folder.join(format!("fuzz-{}", self.name));
        let kept = std::fs::write(&path, self.input);
        eprintln!("the input is in {} ({kept:?})", path.display());
    }
}

fn mutate(input: &mut Vec<u8>, corpus: &[Vec<u8>], random: &mut Random) {
    let length = input.len();
    if length == 0 {
        input.push(random.next() as u8);
        return;
    }
    let at = random.below(length);
    // Pieces are short more often than long.
    let limit = 1 + random.below(length - at);
    let piece = at..at + 1 + random.below(limit).min(random.below(64));
    match random.below(10) {
        0 => input[at] ^= 1 << random.below(8),
        1 => input[at] = random.next() as u8,
        2 => {
            input[at] = input[at]
                .wrapping_add(1 + random.below(4) as u8)
                .wrapping_sub(2)
        }
        3 => {
            let number = NUMBERS[random.below(NUMBERS.len())];
            let bytes = match random.below(4) {
                0 => number.to_be_bytes()[6..].to_vec(),
                1 => number.to_le_bytes()[..2].to_vec(),
                2 => number.to_be_bytes()[4..].to_vec(),
                _ => number.to_le_bytes()[..4].to_vec(),
            };
            for (place, byte) in input[at..].iter_mut().zip(bytes) {
                *place = byte;
            }
        }
        4 => drop(input.drain(piece)),
        5 => {
            let copy = input[piece].to_vec();
            let to = random.below(length);
            input.splice(to..to, copy);
        }
        6 => {
            let other = &corpus[random.below(corpus.len())];
            let from = random.below(other.len().max(1)).min(other.len());
            let taken = other[from..].iter().copied().take(piece.len() * 2);
            input.splice(at..at, taken);
        }
        7 => input.truncate(at),
        8 => {
            let copy = input[piece].to_vec();
            let to = random.below(length);
            for (place, byte) in input[to..].iter_mut().zip(copy) {
                *place = byte;
            }
        }
        // In a text, a number becomes another one.
        _ => {
            let Some(digit) = input[at..].iter().position(u8::is_ascii_digit) else {
                return;
            };
            let words = [
                "-1",
                "0",
                "1e308",
                "18446744073709551616",
                "0.0000001",
                "nan",
            ];
            let word = words[random.below(words.len())].bytes();
            input.splice(at + digit..at + digit + 1, word);
        }
    }
    input.truncate(LONGEST);
}

/// Xorshift (Marsaglia 2003).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Returns a number below `limit`, or 0.
    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit.max(1) as u64) as usize
    }
}

/// The corpora, and how many changed inputs a test passes: what takes some seconds without
/// optimisation.
const INPUTS: [(&str, u64); 6] = [
    ("frames", 200_000),
    ("netlink", 200_000),
    ("nfqueue", 2_000_000),
    ("parquet", 8_000),
    ("run", 8_000),
    ("scenario", 10_000),
];
/// Numbers at which lengths and counts change their meaning.
const NUMBERS: [u64; 12] = [
    0,
    1,
    0x7f,
    0x80,
    0xff,
    0x100,
    0x7fff,
    0x8000,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
];
/// The largest input.
const LONGEST: usize = 1 << 18;
