//! Runs that an earlier version of a scenario, of the program or of its algorithms left in a folder.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use crate::repetitions::Version;
use crate::{RUN_JSON, Recording, read_text, repetitions, take_unfinished};

/// Takes from `recordings` the runs of an earlier version of their scenario, their program or its
/// algorithms, and returns their folders.
///
/// `sluice run` lists its runs in the `summary.json` of the folder above them. A run that is not in
/// this list belongs to it only if the same program, with the same files of algorithms, made it with
/// the setting of a run of the list: it is a repetition, or a run on the other backend. A repetition of
/// a live run is also from the same machine and kernel. Without a list, all runs belong together.
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
        let current: Vec<Version> = places
            .iter()
            .filter(&is_listed)
            .map(|place| Version::of(&recordings[*place]))
            .collect();
        if current.is_empty() {
            continue;
        }
        for place in places.iter().filter(|place| !is_listed(place)) {
            let version = Version::of(&recordings[*place]);
            if !version.belongs_to(&current) {
                outdated.insert(*place);
            }
        }
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

/// Returns the folders of such runs in the folder of a scenario. Runs that cannot be read are skipped.
pub fn outdated_runs(folder: &Path) -> Vec<PathBuf> {
    take_outdated(&mut beside_listed(folder))
}

/// Returns the folders of the runs that the last `sluice run` into `folder` has neither written nor reused,
/// although they are repetitions of its runs: they are complete, and only their seeds differ. Reports,
/// exports and comparisons count them.
pub fn other_repetitions(folder: &Path) -> Vec<PathBuf> {
    let mut recordings = beside_listed(folder);
    take_outdated(&mut recordings);
    take_unfinished(&mut recordings);
    let listed = listed(folder);
    let is_listed = |one: &Recording| {
        one.dir()
            .file_name()
            .is_some_and(|name| listed.contains(name))
    };
    let mut others: Vec<PathBuf> = Vec::new();
    for group in repetitions(recordings) {
        if group.iter().any(is_listed) {
            let unlisted = group.iter().filter(|one| !is_listed(one));
            others.extend(unlisted.map(|one| one.dir().to_owned()));
        }
    }
    others.sort();
    others
}

/// Returns the folders of the runs that the last `sluice run` into `folder` has written or reused, and that are
/// no longer there.
pub fn missing_runs(folder: &Path) -> Vec<PathBuf> {
    let listed = listed(folder).into_iter().map(|name| folder.join(name));
    listed.filter(|dir| !dir.join(RUN_JSON).is_file()).collect()
}

/// Says that the runs in `folders` are missing; `None` if there are none.
pub fn missing_in_words(folders: &[PathBuf]) -> Option<String> {
    let above = folders.first()?.parent().unwrap_or(Path::new(""));
    Some(format!(
        "`{}` lacks runs that its summary.json lists: {}; `sluice run` makes them again",
        above.display(),
        names(folders)
    ))
}

/// Returns the runs in the folder of a scenario, if some of them are not in its list. Runs that cannot be
/// read are skipped.
fn beside_listed(folder: &Path) -> Vec<Recording> {
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
    opened.flatten().collect()
}

/// Says that the runs in `folders` were left out; `None` if there are none.
pub fn outdated_in_words(folders: &[PathBuf]) -> Option<String> {
    let above = folders.first()?.parent().unwrap_or(Path::new(""));
    Some(format!(
        "`{}` has runs of an earlier version of the scenario, the program or its algorithms, or of \
         another kernel, which reports, exports and comparisons leave out: {}; remove their folders, or \
         choose another folder (-o DIR)",
        above.display(),
        names(folders)
    ))
}

/// Says that the runs in `folders` are further repetitions; `None` if there are none.
pub fn repetitions_in_words(folders: &[PathBuf]) -> Option<String> {
    let above = folders.first()?.parent().unwrap_or(Path::new(""));
    Some(format!(
        "`{}` has further repetitions, with other seeds, that reports, exports and comparisons count and the \
         figures, expectations and pictures of `sluice run` do not: {}; remove their folders, or choose another \
         folder (-o DIR)",
        above.display(),
        names(folders)
    ))
}

/// Names the first runs.
fn names(folders: &[PathBuf]) -> String {
    let name = |dir: &PathBuf| {
        let name = dir.file_name().unwrap_or_default().to_string_lossy();
        format!("`{name}`")
    };
    let mut names: Vec<String> = folders.iter().take(MOST_NAMED).map(name).collect();
    if let more @ 1.. = folders.len().saturating_sub(MOST_NAMED) {
        names.push(format!("{more} more"));
    }
    names.join(", ")
}

/// The names of the folders that the last `sluice run` into `folder` has written or reused.
fn listed(folder: &Path) -> BTreeSet<OsString> {
    let text = read_text(&folder.join("summary.json")).unwrap_or_default();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
    let variants = value.as_array().into_iter().flatten();
    let runs = variants.filter_map(|variant| variant["runs"].as_array());
    runs.flatten()
        .filter_map(|run| Some(Path::new(run["folder"].as_str()?).file_name()?.to_owned()))
        .collect()
}

/// The most runs that a message names.
const MOST_NAMED: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{End, Environment, RunWriter};
    use serde_json::{Value, json};
    use sluice_core::Time;
    use sluice_scenario::{Backend, Scenario};

    /// Records a run in the folder `dir`, and gives it a program, a kernel and an algorithm's file.
    fn run(dir: &Path, backend: Backend, [program, kernel, file]: [&str; 3]) {
        let (_, seed) = dir.to_str().unwrap().rsplit_once('-').unwrap();
        let text = format!(
            "duration = \"2s\"\nseed = {seed}\n[link]\nrate = \"1Mbit/s\"\n[[flow]]\ntype = \"ping\"\n"
        );
        let variant = Scenario::parse("x.toml", &text, &[]).unwrap().remove(0);
        let environment = Environment::here(backend, "2026-01-02T03:04:05Z".into());
        let writer = RunWriter::create(dir, &variant, &environment).unwrap();
        let end = End::complete(Time::from_ns(2_000_000_000));
        writer.finish(end).unwrap();
        let path = dir.join(RUN_JSON);
        let mut run: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        run["environment"]["program_id"] = json!(program);
        run["environment"]["kernel"] = json!(kernel);
        run["algorithms"] = json!({ "wasm:a.wasm": file });
        fs::write(&path, run.to_string()).unwrap();
    }

    #[test]
    fn the_runs_of_another_program_file_or_kernel_are_not_those_of_the_list() {
        use Backend::{Live, Sim};
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| temp.path().join(name);
        let current = ["new", "Linux 7", "new"];
        for (name, backend, made) in [
            ("a.seed-1", Sim, current),
            ("a.seed-2", Sim, current),
            ("a.seed-3", Sim, ["old", "Linux 7", "new"]),
            ("a.seed-4", Sim, ["new", "Linux 7", "old"]),
            // The kernel has no part in a simulation.
            ("a.seed-5", Sim, ["new", "Linux 6", "new"]),
            ("b.seed-1", Live, current),
            ("b.seed-2", Live, current),
            ("b.seed-3", Live, ["new", "Linux 6", "new"]),
        ] {
            run(&at(name), backend, made);
        }
        let listed = ["a.seed-1", "b.seed-1"].map(|name| json!({ "folder": at(name) }));
        let summary = json!([{ "runs": listed }]).to_string();
        fs::write(at("summary.json"), summary).unwrap();
        let left = ["a.seed-3", "a.seed-4", "b.seed-3"].map(at);
        assert_eq!(outdated_runs(temp.path()), left);
        // The other runs differ from those of the list in their seed only. An unfinished one is none.
        let others = ["a.seed-2", "a.seed-5", "b.seed-2"].map(at);
        assert_eq!(other_repetitions(temp.path()), others);
        let words = repetitions_in_words(&others).unwrap();
        assert!(
            words.contains("count and the figures, expectations and pictures of `sluice run` do not: `a.seed-2`, `a.seed-5`, `b.seed-2`;"),
            "{words}"
        );
        run(&at("a.seed-6"), Sim, current);
        let path = at("a.seed-6").join(RUN_JSON);
        let mut partial: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        partial["status"] = json!("partial");
        partial["reason"] = json!("interrupted");
        fs::write(&path, partial.to_string()).unwrap();
        assert_eq!(other_repetitions(temp.path()), others);
        fs::remove_dir_all(at("a.seed-6")).unwrap();
        // Runs without a place in the list are not missed, and one of the list is.
        assert_eq!(missing_runs(temp.path()), Vec::<PathBuf>::new());
        let (listed, moved) = (at("b.seed-1"), at("moved"));
        fs::rename(&listed, &moved).unwrap();
        let missing = missing_runs(temp.path());
        assert_eq!(missing, std::slice::from_ref(&listed));
        let words = missing_in_words(&missing).unwrap();
        assert!(words.contains("lists: `b.seed-1`;"), "{words}");
        fs::rename(&moved, &listed).unwrap();

        // Without a list, all are shown, and are no repetitions of each other.
        let mut names = ["a.seed-1", "a.seed-2", "a.seed-5"].map(at).to_vec();
        names.extend(left);
        let opened = names.iter().map(|dir| Recording::open(dir).unwrap());
        let groups = repetitions(opened);
        let counts: Vec<usize> = groups.iter().map(Vec::len).collect();
        assert_eq!(counts, [3, 1, 1, 1]);
    }

    #[test]
    fn old_runs_without_these_properties_are_repetitions() {
        let temp = tempfile::tempdir().unwrap();
        let names = ["a.seed-1", "a.seed-2"].map(|name| temp.path().join(name));
        let opened = names.map(|dir| {
            run(&dir, Backend::Sim, ["", "", ""]);
            let path = dir.join(RUN_JSON);
            let mut run: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
            run.as_object_mut().unwrap().remove("algorithms");
            let environment = run["environment"].as_object_mut().unwrap();
            environment.remove("program_id");
            fs::write(&path, run.to_string()).unwrap();
            Recording::open(&dir).unwrap()
        });
        assert_eq!(repetitions(opened).len(), 1);
    }
}
