//! The list of cases, and the files of the folder.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

/// `cases.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cases {
    /// The rate of all links.
    pub rate: String,
    pub implementation: Vec<Implementation>,
    pub case: Vec<Case>,
    pub known: Vec<Known>,
    pub quick: Quick,
    /// The runs of the booted kernel, and ours.
    #[serde(rename = "loop")]
    pub loops: Vec<Loop>,
    /// The folder.
    #[serde(skip)]
    pub folder: PathBuf,
}

/// An implementation.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Implementation {
    /// The folder of its decisions.
    pub folder: String,
    pub title: String,
    /// Our variant with its rules.
    pub variant: String,
    pub about: String,
}

/// A queue.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// The name in the file.
    pub name: String,
    /// The trace, if the words differ from those of other traces.
    pub trace: Option<String>,
    /// The queue in our words, without the variant.
    pub queue: String,
    /// Our variant, if it is not that of the implementation.
    pub variant: Option<String>,
    /// The random numbers.
    pub draws: Option<Draws>,
}

/// Decisions that differ, and why.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    /// Files with one reason, as in [`Quick`].
    pub files: Vec<String>,
    pub why: String,
}

/// The random numbers of a run.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Draws {
    /// The outputs of SplitMix64, seeded with 0.
    Sequence,
    Largest,
    Zero,
    Half,
}

/// The files that are compared in every test.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quick {
    pub files: Vec<String>,
}

/// A scenario on a booted kernel.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Loop {
    /// Its name in `closed-loop.csv`.
    pub kernel: String,
    /// Our run: the scenario in `scenarios/kernels`, and the variant.
    pub run: String,
    /// Why figures differ, if they do.
    #[serde(default)]
    pub remark: String,
}

impl Draws {
    /// Returns the first `count` numbers, one per line.
    pub fn text(self, count: usize) -> String {
        let mut state = 0u64;
        let mut text = String::with_capacity(count * 21);
        for _ in 0..count {
            let number = match self {
                Draws::Sequence => split_mix(&mut state),
                Draws::Largest => u64::MAX,
                Draws::Zero => 0,
                Draws::Half => 1 << 63,
            };
            text.push_str(&number.to_string());
            text.push('\n');
        }
        text
    }
}

/// Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators" (2014), figure 17.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Cases {
    /// Reads the list, and checks every file of the folder.
    ///
    /// # Errors
    /// The list is malformed, or a file is missing or has another checksum.
    pub fn read(folder: &Path) -> Result<Cases, String> {
        let list = folder.join("cases.toml");
        let text = read(&list)?;
        let mut cases: Cases =
            toml::from_str(&text).map_err(|error| format!("{}: {error}", list.display()))?;
        folder.clone_into(&mut cases.folder);
        check_sums(folder)?;
        Ok(cases)
    }

    /// Returns why the decisions in `file` differ from ours.
    pub fn known(&self, file: &str) -> Option<&str> {
        let is_in = |known: &&Known| known.files.iter().any(|one| one == file);
        self.known
            .iter()
            .find(is_in)
            .map(|known| known.why.as_str())
    }

    /// Returns the first case for the queue `name` on `trace`.
    pub fn find(&self, trace: &str, name: &str) -> Option<&Case> {
        let is_it = |case: &&Case| {
            case.name == name && case.trace.as_ref().is_none_or(|only| only == trace)
        };
        self.case.iter().find(is_it)
    }
}

/// Compares every file with its line of `SHA256SUMS`, and reports all that differ.
fn check_sums(folder: &Path) -> Result<(), String> {
    let sums = folder.join("SHA256SUMS");
    let mut wrong = Vec::new();
    for (index, line) in read(&sums)?.lines().enumerate() {
        let at = format!("{}:{}:1", sums.display(), index + 1);
        let (sum, name) = line
            .split_once("  ")
            .ok_or_else(|| format!("{at}: `{line}` is not a checksum and a name"))?;
        let path = folder.join(name);
        let bytes =
            fs::read(&path).map_err(|error| format!("{at}: {}: {error}", path.display()))?;
        let found: String = Sha256::digest(&bytes)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        if found != sum {
            wrong.push(format!(
                "{at}: {} has the checksum {found}, not {sum}: restore the file",
                path.display()
            ));
        }
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("\n"))
    }
}

/// Reads a text.
pub fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("cannot read `{}`: {error}", path.display()))
}

/// Reads a compressed text.
pub fn unpack(path: &Path) -> Result<String, String> {
    let complain = |error| format!("cannot read `{}`: {error}", path.display());
    let file = fs::File::open(path).map_err(complain)?;
    let mut text = String::new();
    GzDecoder::new(file)
        .read_to_string(&mut text)
        .map_err(complain)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_that_of_the_reference() {
        // The first outputs for seed 0 in the reference implementation of SplitMix64.
        let numbers = Draws::Sequence.text(3);
        let expected = [
            0xe220_a839_7b1d_cdafu64,
            0x6e78_9e6a_a1b9_65f4,
            0x06c4_5d18_8009_454f,
        ];
        let expected: String = expected.iter().map(|n| format!("{n}\n")).collect();
        assert_eq!(numbers, expected);
    }

    #[test]
    fn a_damaged_file_is_named_with_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("good", "abc");
        write("bad", "abd");
        // FIPS 180-2, appendix B.1: the hash of "abc"
        let sum = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        write("SHA256SUMS", &format!("{sum}  good\n{sum}  bad\n"));
        let error = check_sums(folder.path()).unwrap_err();
        assert!(error.contains("SHA256SUMS:2:1: "), "{error}");
        assert!(error.contains("bad has the checksum"), "{error}");
        assert!(!error.contains("good has"), "{error}");
    }

    #[test]
    fn every_stored_decision_has_its_words() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench/kernels");
        let cases = Cases::read(&folder).unwrap();
        let mut files = 0;
        for implementation in &cases.implementation {
            for entry in fs::read_dir(folder.join(&implementation.folder)).unwrap() {
                let name = entry.unwrap().file_name().into_string().unwrap();
                let (trace, rest) = name.split_once('.').unwrap();
                let case = rest.strip_suffix(".csv.gz").unwrap();
                assert!(cases.find(trace, case).is_some(), "{name}");
                files += 1;
            }
        }
        let known = cases.known.iter().flat_map(|known| &known.files);
        for file in cases.quick.files.iter().chain(known) {
            assert!(folder.join(format!("{file}.csv.gz")).is_file(), "{file}");
        }
        assert!(files > 100);
    }
}
