//! Repetitions: runs that differ only in their seed.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::{Recording, RunFile};
use sluice_scenario::{Backend, Scenario};

/// Groups the repetitions among `recordings`: runs of one variant on one backend, in one folder, that
/// differ only in their seed. The program, its algorithms from files and, for live runs, the machine
/// and its kernel are the same. The groups are in the order of their first recordings.
///
/// Runs with the same seed are in one group only if their folders have the names that `sluice run` gives
/// to runs of one variant (`NAME`, `NAME.seed-2`): others may be of a program behind a link, or of a
/// trace, before and after a change. Of simulations among them, the one that began last is kept: they
/// are one run, not repetitions.
pub fn repetitions<R: Borrow<Recording>>(recordings: impl IntoIterator<Item = R>) -> Vec<Vec<R>> {
    let mut groups: Vec<(Common, Vec<R>)> = Vec::new();
    for recording in recordings {
        let common = Common::of(recording.borrow());
        let takes = |(known, group): &&mut (Common, Vec<R>)| {
            *known == common
                && group
                    .iter()
                    .all(|one| are_alike(one.borrow(), recording.borrow()))
        };
        match groups.iter_mut().find(takes) {
            Some((_, group)) => add(group, recording),
            None => groups.push((common, vec![recording])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// Returns whether two runs that have everything in common but their seeds can be in one group.
fn are_alike(one: &Recording, other: &Recording) -> bool {
    one.run().seed != other.run().seed || family(one) == family(other)
}

/// Adds a run to its group. Of simulations with the same seed, the one that began last stays.
fn add<R: Borrow<Recording>>(group: &mut Vec<R>, new: R) {
    let run: &RunFile = new.borrow().run();
    let is_same = |one: &R| {
        let other: &RunFile = one.borrow().run();
        other.environment.backend == Backend::Sim && other.seed == run.seed
    };
    let Some(at) = group.iter().position(is_same) else {
        group.push(new);
        return;
    };
    let before: &RunFile = group[at].borrow().run();
    if before.environment.started_at <= run.environment.started_at {
        group[at] = new;
    }
}

/// Returns the name of a run's folder without what `sluice run` adds for a live run and a further seed.
fn family(recording: &Recording) -> String {
    let name = recording.dir().file_name().unwrap_or_default();
    let name = name.to_string_lossy();
    let stem = name.rsplit_once(".seed-").map_or(&*name, |(stem, _)| stem);
    stem.strip_suffix(".live").unwrap_or(stem).to_owned()
}

/// What repetitions have in common.
#[derive(Debug, PartialEq)]
pub(crate) struct Common {
    variant: String,
    /// The folder above that of the run.
    above: PathBuf,
    version: Version,
}

impl Common {
    pub(crate) fn of(recording: &Recording) -> Common {
        let dir = recording.dir();
        // The same folder may have been named in several ways.
        let dir = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
        Common {
            variant: recording.run().variant.clone(),
            above: dir.parent().unwrap_or(Path::new("")).to_owned(),
            version: Version::of(recording),
        }
    }
}

/// A setting, and what carried it out.
#[derive(Debug, PartialEq)]
pub(crate) struct Version {
    backend: Backend,
    /// The name and the kernel of the machine of a live run; a simulation is the same on all.
    machine: Option<[String; 2]>,
    /// The identity of the program, and its name and version. Old runs have no identity.
    program: (Option<String>, String),
    /// The algorithms from files.
    algorithms: BTreeMap<String, String>,
    /// The scenario without its seed and its choice of a backend.
    scenario: Scenario,
}

impl Version {
    pub(crate) fn of(recording: &Recording) -> Version {
        let run = recording.run();
        let made = &run.environment;
        let is_live = made.backend == Backend::Live;
        Version {
            backend: made.backend,
            machine: is_live.then(|| [made.host.clone(), made.kernel.clone()]),
            program: (made.program_id.clone(), made.program.clone()),
            algorithms: run.algorithms.clone(),
            scenario: Scenario {
                seed: 0,
                backend: None,
                ..run.scenario.clone()
            },
        }
    }

    /// Returns whether one of the `listed` runs has the same setting of the same program, perhaps on the
    /// other backend. If some of these are on the same backend, one of them must be of the same machine.
    pub(crate) fn belongs_to(&self, listed: &[Version]) -> bool {
        let is_alike = |other: &&Version| {
            self.program == other.program
                && self.algorithms == other.algorithms
                && self.scenario == other.scenario
        };
        let alike: Vec<&Version> = listed.iter().filter(is_alike).collect();
        let is_own = |other: &&&Version| other.backend == self.backend;
        let mut own = alike.iter().filter(is_own).peekable();
        if own.peek().is_some() {
            own.any(|other| other.machine == self.machine)
        } else {
            !alike.is_empty()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{End, Environment, RunWriter};
    use sluice_core::Time;

    /// Records a run in the folder `dir`, which began at this second.
    fn run(dir: &Path, seed: u64, backend: Backend, second: u32) -> Recording {
        let text = format!(
            "duration = \"2s\"\nseed = {seed}\n[link]\nrate = \"1Mbit/s\"\n[[flow]]\ntype = \"ping\"\n"
        );
        let variant = Scenario::parse("x.toml", &text, &[]).unwrap().remove(0);
        let environment = Environment::here(backend, format!("2026-01-02T03:04:{second:02}Z"));
        let writer = RunWriter::create(dir, &variant, &environment).unwrap();
        let end = End::complete(Time::from_ns(2_000_000_000));
        writer.finish(end).unwrap()
    }

    /// Groups recordings and returns their folders below `folder`.
    fn grouped<'a>(folder: &Path, recordings: &[&'a Recording]) -> Vec<Vec<&'a str>> {
        let name = |one: &&'a Recording| {
            let below = one.dir().strip_prefix(folder).unwrap();
            below.to_str().unwrap()
        };
        let groups = repetitions(recordings.iter().copied());
        groups
            .iter()
            .map(|group| group.iter().map(name).collect())
            .collect()
    }

    #[test]
    fn the_runs_of_two_folders_are_no_repetitions_of_each_other() {
        let temp = tempfile::tempdir().unwrap();
        // The same seeds before and after, and others.
        for (after, seeds) in [("after", [1, 2, 3]), ("others", [6, 7, 8])] {
            let folders = [("before", [1, 2, 3]), (after, seeds)];
            let runs: Vec<Recording> = folders
                .iter()
                .flat_map(|(above, seeds)| seeds.iter().map(move |seed| (above, *seed)))
                .map(|(above, seed)| {
                    let dir = temp.path().join(above).join(format!("fifo.seed-{seed}"));
                    run(&dir, seed, Backend::Sim, 0)
                })
                .collect();
            let all: Vec<&Recording> = runs.iter().collect();
            let expected: Vec<Vec<String>> = folders
                .iter()
                .map(|(above, seeds)| {
                    let name = |seed: &u64| format!("{above}/fifo.seed-{seed}");
                    seeds.iter().map(name).collect()
                })
                .collect();
            assert_eq!(grouped(temp.path(), &all), expected);
        }
    }

    #[test]
    fn of_simulations_with_one_seed_the_later_one_is_kept() {
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| temp.path().join(name);
        // `--repeat 3`, then `--seed 2`, which is in the folder of seed 1.
        let runs = [
            run(&at("fifo"), 2, Backend::Sim, 9),
            run(&at("fifo.seed-2"), 2, Backend::Sim, 2),
            run(&at("fifo.seed-3"), 3, Backend::Sim, 3),
        ];
        let [first, second, third] = &runs;
        assert_eq!(
            grouped(temp.path(), &[first, second, third]),
            [["fifo", "fifo.seed-3"]]
        );
        assert_eq!(
            grouped(temp.path(), &[third, second, first]),
            [["fifo.seed-3", "fifo"]]
        );
    }

    #[test]
    fn runs_with_one_seed_are_alike_only_if_their_names_say_so() {
        let temp = tempfile::tempdir().unwrap();
        let names = ["fifo.live", "before", "fifo.seed-2", "after"];
        for (backend, of_fifo) in [
            (Backend::Live, &["fifo.live", "fifo.seed-2"][..]),
            (Backend::Sim, &["fifo.seed-2"][..]),
        ] {
            let runs = names.map(|name| run(&temp.path().join(name), 2, backend, 0));
            let all: Vec<&Recording> = runs.iter().collect();
            let expected = [of_fifo, &["before"], &["after"]];
            assert_eq!(grouped(temp.path(), &all), expected);
        }
    }
}
