//! The folders of runs: those that were made, and the summaries of live runs that are kept in the
//! tree.

use std::fs;
use std::path::{Component, Path, PathBuf};

use sluice_recording::{ReadError, Recording};

use super::claims::Runs;
use super::{ReproductionError, read};

/// Copies the summaries of all live runs below `runs` that `list` names into the tree. Returns the
/// number of runs.
///
/// # Errors
/// [`ReproductionError`].
pub fn keep(list: &Path, runs: &Path) -> Result<usize, ReproductionError> {
    let evidence = read(list, runs)?;
    let folders = Folders::of(list, runs);
    let mut count = 0;
    for run in evidence.experiment.iter().flat_map(|e| &e.runs) {
        let dir = folder(runs, run, LIVE);
        let mut there = all_of(&dir);
        // A run that was interrupted has no summary.
        there.retain(|dir| dir.join("summary.json").is_file());
        if there.is_empty() {
            continue;
        }
        let kept = folder(&folders.kept, &inside(run), LIVE);
        for old in all_of(&kept) {
            let error = |error| ReproductionError::Write {
                path: old.clone(),
                error,
            };
            fs::remove_dir_all(&old).map_err(error)?;
        }
        for from in there {
            let ending = from.to_string_lossy()[dir.to_string_lossy().len()..].to_owned();
            let mut to = kept.clone().into_os_string();
            to.push(&ending);
            let to = PathBuf::from(to);
            let fail = |error| ReproductionError::Write {
                path: to.clone(),
                error,
            };
            fs::create_dir_all(&to).map_err(fail)?;
            for file in KEPT_FILES {
                fs::copy(from.join(file), to.join(file)).map_err(fail)?;
            }
            count += 1;
        }
    }
    Ok(count)
}

/// Where runs are found.
pub(super) struct Folders<'a> {
    pub runs: &'a Path,
    /// Live runs that are kept in the tree.
    kept: PathBuf,
    /// The folder of the list.
    pub list: &'a Path,
}

impl Folders<'_> {
    pub fn of<'a>(list: &'a Path, runs: &'a Path) -> Folders<'a> {
        let beside = list.parent().unwrap_or(Path::new(""));
        Folders {
            runs,
            kept: beside.join(KEPT),
            list: beside,
        }
    }

    /// Returns the run `run` and its repetitions, and whether they are the kept ones.
    pub fn find(&self, run: &Path, ending: &str) -> Result<(Vec<Recording>, bool), ReadError> {
        let found = recordings(&folder(self.runs, run, ending))?;
        if !found.is_empty() || ending != LIVE {
            return Ok((found, false));
        }
        Ok((recordings(&folder(&self.kept, &inside(run), ending))?, true))
    }
}

/// Returns the path of a run without `..`, as it is below the folder of kept runs.
pub(super) fn inside(run: &Path) -> PathBuf {
    let parts = run
        .components()
        .filter(|part| *part != Component::ParentDir);
    parts.collect()
}

/// The runs of one backend below a folder.
pub(super) struct Below<'a> {
    pub folders: &'a Folders<'a>,
    pub ending: &'static str,
}

impl Runs for Below<'_> {
    fn find(&self, run: &Path) -> Result<Vec<Recording>, ReadError> {
        self.folders.find(run, self.ending).map(|(found, _)| found)
    }
}

/// Returns the run in `dir` and its repetitions with other seeds.
fn recordings(dir: &Path) -> Result<Vec<Recording>, ReadError> {
    let all = all_of(dir);
    all.iter().map(|dir| Recording::open(dir)).collect()
}

/// Returns the folders of the run in `dir` and of its repetitions.
fn all_of(dir: &Path) -> Vec<PathBuf> {
    std::iter::once(dir.to_owned())
        .chain(repeats(dir))
        .filter(|dir| dir.join("run.json").is_file())
        .collect()
}

/// Returns the folder of a run; `ending` gives the backend.
pub(super) fn folder(runs: &Path, run: &Path, ending: &str) -> PathBuf {
    let mut name = runs.join(run).into_os_string();
    name.push(ending);
    PathBuf::from(name)
}

/// Returns the folders of further runs of `dir`, by their seeds.
pub(super) fn repeats(dir: &Path) -> Vec<PathBuf> {
    let (Some(parent), Some(name)) = (dir.parent(), dir.file_name()) else {
        return Vec::new();
    };
    let stem = format!("{}.seed-", name.to_string_lossy());
    let seed = |entry: fs::DirEntry| -> Option<(u64, PathBuf)> {
        let seed = entry.file_name().to_str()?.strip_prefix(&stem)?.parse();
        Some((seed.ok()?, entry.path()))
    };
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let mut found: Vec<(u64, PathBuf)> = entries.filter_map(seed).collect();
    found.sort();
    found.into_iter().map(|(_, path)| path).collect()
}

/// The ending of the folders of live runs.
pub(super) const LIVE: &str = ".live";
/// The folder of the live runs that are kept, beside the list.
const KEPT: &str = "reproduction/live";
/// The files of a run that are kept.
pub(super) const KEPT_FILES: [&str; 2] = ["run.json", "summary.json"];
