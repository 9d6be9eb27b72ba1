//! Runs that an earlier version of a scenario left in its folder.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use crate::{RUN_JSON, Recording};
use sluice_scenario::Scenario;

/// Takes from `recordings` the runs of an earlier version of their scenario, and returns their
/// folders.
///
/// `sluice run` lists its runs in the `summary.json` of the folder above them. A run that is not in
/// this list belongs to it only if it has the same setting as a run of the list: it is a repetition,
/// or a run on the other backend. Without a list, all runs belong together.
pub fn take_outdated(recordings: &mut Vec<Recording>) -> Vec<PathBuf> {
    let mut above: BTreeMap<PathBuf, Vec<usize>> = BTreeMap::new();
    for (place, recording) in recordings.iter().enumerate() {
        if let Some(folder) = recording.dir().parent() {
            above.entry(folder.to_owned()).or_default().push(place);
        }
    }
    let mut outdated: BTreeSet<usize> = BTreeSet::new();
    for (folder, places) in above {
        let listed = listed(&folder);
        let is_listed = |place: &&usize| {
            let name = recordings[**place].dir().file_name();
            name.is_some_and(|name| listed.contains(name))
        };
        let current: Vec<Scenario> = places
            .iter()
            .filter(&is_listed)
            .map(|place| setting(&recordings[*place]))
            .collect();
        if current.is_empty() {
            continue;
        }
        let is_outdated =
            |place: &&usize| !is_listed(place) && !current.contains(&setting(&recordings[**place]));
        outdated.extend(places.iter().filter(is_outdated));
    }
    let mut place = 0;
    let mut folders = Vec::new();
    recordings.retain(|recording| {
        let is_outdated = outdated.contains(&place);
        place += 1;
        if is_outdated {
            folders.push(recording.dir().to_owned());
        }
        !is_outdated
    });
    folders
}

/// Returns the folders of such runs in the folder of a scenario. Runs that cannot be read are
/// skipped.
pub fn outdated_runs(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut dirs: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|dir| dir.join(RUN_JSON).is_file())
        .collect();
    let listed = listed(folder);
    let is_listed = |dir: &PathBuf| dir.file_name().is_some_and(|name| listed.contains(name));
    if dirs.iter().all(is_listed) {
        return Vec::new();
    }
    dirs.sort();
    let opened = dirs.iter().map(|dir| Recording::open(dir));
    let mut recordings: Vec<Recording> = opened.flatten().collect();
    take_outdated(&mut recordings)
}

/// Says that the runs in `folders` were left out; `None` if there are none.
pub fn outdated_in_words(folders: &[PathBuf]) -> Option<String> {
    let first = folders.first()?;
    let above = first.parent().unwrap_or(Path::new(""));
    let name = |dir: &PathBuf| {
        let name = dir.file_name().unwrap_or_default().to_string_lossy();
        format!("`{name}`")
    };
    let mut names: Vec<String> = folders.iter().take(MOST_NAMED).map(name).collect();
    if let more @ 1.. = folders.len().saturating_sub(MOST_NAMED) {
        names.push(format!("{more} more"));
    }
    Some(format!(
        "`{}` has runs of an earlier version of the scenario, which reports, exports and comparisons \
         leave out: {}; remove their folders, or choose another folder (-o DIR)",
        above.display(),
        names.join(", ")
    ))
}

/// The names of the folders that the last `sluice run` into `folder` has written or reused.
fn listed(folder: &Path) -> BTreeSet<OsString> {
    let text = fs::read_to_string(folder.join("summary.json")).unwrap_or_default();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    let variants = value.as_array().into_iter().flatten();
    let runs = variants.filter_map(|variant| variant["runs"].as_array());
    runs.flatten()
        .filter_map(|run| Some(Path::new(run["folder"].as_str()?).file_name()?.to_owned()))
        .collect()
}

/// The scenario of a run, without what differs between repetitions and backends.
fn setting(recording: &Recording) -> Scenario {
    Scenario {
        seed: 0,
        backend: None,
        ..recording.run().scenario.clone()
    }
}

/// The most runs that a message names.
const MOST_NAMED: usize = 5;
