//! Changes the inputs of a corpus at random, for tests on stable Rust: it does not measure coverage,
//! which the targets in this folder do, but it needs no other compiler and no other build.
//!
//! A test includes this file and calls [`check`]. It takes a fraction of a second, or at most
//! `SLUICE_FUZZ_SECONDS` of processor time for each corpus, on as many threads as the machine has processors.
//!
//! Inputs are changed in batches. The seed and the number of a batch decide its inputs, whatever the machine and
//! its number of threads. The default seed gives at most as many as [`INPUTS`] counts, the same in each run. With
//! a seed in `SLUICE_FUZZ_NEW`, the rest of the time, a quarter at least, is for inputs of that seed (`make
//! test-rust`). With a seed in `SLUICE_FUZZ_SEED`, all inputs are of that seed (`make fuzz`), from the batch
//! `SLUICE_FUZZ_BATCH` on. A failure prints seed and batch.

#![allow(dead_code)] // Each test uses its part.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
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

/// Passes every input of `corpus` to `check`, and then changed ones. Each thread has a state of its own; they are
/// returned. If `check` panics, the input is kept in a file, whose path is printed.
pub fn check<S: Send>(
    name: &str,
    corpus: &[Vec<u8>],
    state: impl Fn() -> S + Sync,
    check: impl Fn(&mut S, &[u8]) + Sync,
) -> Vec<S> {
    check_batches(name, corpus, state, |state, batch| {
        for (at, input) in batch.inputs.iter().enumerate() {
            let kept = Kept {
                batch,
                from: at,
                to: at + 1,
            };
            check(state, input);
            std::mem::forget(kept);
        }
    })
}

/// As [`check`], but for tests that need several inputs at a time. If `check` panics, all of them are kept.
pub fn check_together(name: &str, corpus: &[Vec<u8>], check: impl Fn(u64, &[Vec<u8>]) + Sync) {
    let none = || ();
    check_batches(name, corpus, none, |(), batch| {
        let kept = Kept {
            batch,
            from: 0,
            to: batch.inputs.len(),
        };
        check(batch.number, &batch.inputs);
        std::mem::forget(kept);
    });
}

/// Inputs that are checked on one thread, one after another.
struct Batch<'a> {
    name: &'a str,
    /// That of changed inputs.
    seed: Option<u64>,
    number: u64,
    inputs: Vec<Vec<u8>>,
}

/// Inputs of one seed.
struct Phase {
    seed: u64,
    next: AtomicU64,
    /// The number of the batch after the last one.
    end: u64,
    /// When the phase ends, from the start of a thread.
    until: Duration,
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    let number = text.parse::<u64>();
    Some(number.unwrap_or_else(|_| panic!("{variable} is `{text}`, not a number")))
}

/// Returns the phases of a test. Each thread has this share of its time.
fn phases(name: &str, share: Duration) -> Vec<Phase> {
    let phase = |seed, from, end, until| Phase {
        seed,
        next: AtomicU64::new(from),
        end,
        until,
    };
    if let Some(seed) = number("SLUICE_FUZZ_SEED") {
        let from = number("SLUICE_FUZZ_BATCH").unwrap_or(0);
        return vec![phase(seed, from, u64::MAX, share)];
    }
    let found = INPUTS.iter().find(|(corpus, _)| *corpus == name);
    let most = found.expect("every corpus has a number of inputs").1;
    let end = most.div_ceil(BATCH as u64);
    match number("SLUICE_FUZZ_NEW") {
        None => vec![phase(DEFAULT_SEED, 0, end, share)],
        Some(new) => vec![
            phase(DEFAULT_SEED, 0, end, share * 3 / 4),
            phase(new, 0, u64::MAX, share),
        ],
    }
}

fn check_batches<S: Send>(
    name: &str,
    corpus: &[Vec<u8>],
    state: impl Fn() -> S + Sync,
    check: impl Fn(&mut S, &Batch) + Sync,
) -> Vec<S> {
    assert!(!corpus.is_empty(), "the corpus {name} is empty");
    let patience = match number("SLUICE_FUZZ_SECONDS") {
        Some(seconds) => Duration::from_secs(seconds),
        None => Duration::from_millis(300),
    };
    let threads = thread::available_parallelism().map_or(1, |n| n.get().min(MOST_THREADS));
    // Together, the threads take as much processor time as one that has all of it.
    let phases = phases(name, patience / threads as u32);
    let (unchanged, count) = (AtomicU64::new(0), AtomicU64::new(0));
    let work = || {
        let (start, mut state) = (Instant::now(), state());
        let mut run = |seed, number, inputs: Vec<Vec<u8>>| {
            count.fetch_add(inputs.len() as u64, Ordering::Relaxed);
            let batch = Batch {
                name,
                seed,
                number,
                inputs,
            };
            check(&mut state, &batch);
        };
        loop {
            let number = unchanged.fetch_add(1, Ordering::Relaxed);
            let Some(inputs) = corpus.chunks(BATCH).nth(number as usize) else {
                break;
            };
            run(None, number, inputs.to_vec());
        }
        for phase in &phases {
            while start.elapsed() < phase.until {
                let number = phase.next.fetch_add(1, Ordering::Relaxed);
                if number >= phase.end {
                    break;
                }
                let inputs = changed(corpus, phase.seed, number);
                run(Some(phase.seed), number, inputs);
            }
        }
        state
    };
    let states = thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let ended = running.into_iter().map(|thread| thread.join());
        let states: Result<Vec<S>, _> = ended.collect();
        states.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    let seeds: Vec<u64> = phases.iter().map(|phase| phase.seed).collect();
    eprintln!("{name}: {} inputs, seeds {seeds:?}", count.into_inner());
    states
}

/// Returns the inputs of a batch.
pub fn changed(corpus: &[Vec<u8>], seed: u64, batch: u64) -> Vec<Vec<u8>> {
    let mut random = Random::of(seed, batch);
    let change = |_| {
        let mut input = corpus[random.below(corpus.len())].clone();
        for _ in 0..=random.below(6) {
            mutate(&mut input, corpus, &mut random);
        }
        input
    };
    (0..BATCH).map(change).collect()
}

/// Writes inputs of a batch to files when it is dropped, which happens only in a panic.
struct Kept<'a> {
    batch: &'a Batch<'a>,
    from: usize,
    to: usize,
}

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        let Batch {
            name,
            seed,
            number,
            inputs,
        } = self.batch;
        let folder = option_env!("CARGO_TARGET_TMPDIR");
        let folder = folder.map_or_else(std::env::temp_dir, PathBuf::from);
        match seed {
            Some(seed) => eprintln!(
                "{name}: seed {seed}, batch {number}; again: make fuzz FUZZ=1 FUZZ_SEED={seed} \
                 FUZZ_BATCH={number}"
            ),
            None => eprintln!("{name}: an unchanged input of the corpus"),
        }
        for (at, input) in inputs.iter().enumerate().take(self.to).skip(self.from) {
            let seed = seed.map_or("corpus".to_owned(), |seed| seed.to_string());
            let path = folder.join(format!("fuzz-{name}-{seed}-{number}-{at}"));
            let kept = std::fs::write(&path, input);
            eprintln!("the input is in {} ({kept:?})", path.display());
        }
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
    /// Returns the generator of a batch, from a state that is far from those of its neighbours (splitmix64).
    fn of(seed: u64, batch: u64) -> Random {
        let mut state = seed.wrapping_add((batch + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Random((state ^ (state >> 31)).max(1))
    }

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

/// The seed of inputs that are the same in every run.
const DEFAULT_SEED: u64 = 1;
/// Inputs that one thread changes and checks at a time.
const BATCH: usize = 32;
/// More are slower, since a test has other tests beside it.
const MOST_THREADS: usize = 8;
/// The corpora, and how many inputs of the default seed a test passes: what takes some seconds without
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
