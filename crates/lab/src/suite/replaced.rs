//! Earlier runs that the runs of a suite would replace.
//!
//! A run has the folder of its variant, whatever its settings are. A simulation that is replaced can be
//! made again. A live run cannot, so it is replaced only by a live run with its own settings, or if the
//! user asks for it.

use std::path::PathBuf;

use super::plan::{Experiment, Failure, Planned, Suite};
use crate::compare::settings;
use crate::table::cut;
use sluice_recording::{RUN_JSON, Recording, Status};
use sluice_scenario::{Backend, Scenario};

/// The reason why a scenario is not run: it would replace live runs.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} would be replaced by {}; choose another folder (-o DIR), or replace {} with --fresh",
    subject("the live run", "the live runs", folders),
    by,
    pronoun(folders)
)]
pub struct LiveRuns {
    /// The folders of the live runs.
    pub folders: Vec<PathBuf>,
    /// What would replace the first of them, in words.
    pub by: String,
}

impl Suite {
    /// Turns scenarios that would replace complete live runs of other settings, or live runs by
    /// simulations, into failures. Returns in words which other runs of other settings the suite replaces.
    pub fn keep_live_runs(&mut self) -> Vec<String> {
        let mut notes = Vec::new();
        let failures = &mut self.failures;
        self.experiments.retain(|experiment| {
            let (live, others) = replaced_by(experiment);
            if let Some(by) = by(&live) {
                let folders = live.into_iter().map(|one| one.folder).collect();
                failures.push(Failure {
                    what: experiment.file.display().to_string(),
                    error: LiveRuns { folders, by }.into(),
                });
                return false;
            }
            notes.extend(in_words(others));
            true
        });
        notes
    }
}

/// An earlier run in the folder of a planned one.
struct Replaced {
    folder: PathBuf,
    /// What replaces it, in words: one, and several.
    by: [&'static str; 2],
    /// The settings in which both differ, in words.
    differences: Option<String>,
    /// Whether it is a complete live run.
    is_live: bool,
}

/// Returns the complete live runs that the runs of `experiment` would replace, and the other runs.
fn replaced_by(experiment: &Experiment) -> (Vec<Replaced>, Vec<Replaced>) {
    let replaced = experiment.runs.iter().filter_map(Replaced::by);
    replaced.partition(|one| one.is_live)
}

impl Replaced {
    /// Returns the run that `planned` replaces; `None` if there is none, or if it is the same but for the
    /// program, the files outside the scenario, and the machine.
    fn by(planned: &Planned) -> Option<Replaced> {
        if !planned.dir.join(RUN_JSON).is_file() {
            return None;
        }
        // A run that cannot be read is no loss, and one that goes on is not replaced.
        let earlier = Recording::open(&planned.dir).ok()?;
        if earlier.goes_on() || earlier.is_empty() {
            return None;
        }
        let run = earlier.run();
        let is_complete = run.status == Status::Complete;
        let mut differences = None;
        let by = match (run.environment.backend, planned.backend) {
            (Backend::Sim, _) if !is_complete => return None,
            (Backend::Live, Backend::Sim) => ["a simulation", "simulations"],
            (Backend::Sim, Backend::Live) => ["a live run", "live runs"],
            _ if run.scenario == planned.variant.scenario => return None,
            _ => {
                differences = Some(different(&run.scenario, &planned.variant.scenario)?);
                ["a run of other settings", "runs of other settings"]
            }
        };
        Some(Replaced {
            folder: planned.dir.clone(),
            by,
            differences,
            is_live: is_complete && run.environment.backend == Backend::Live,
        })
    }
}

/// Returns the settings in which two scenarios differ, in words; `None` if they have the same.
fn different(there: &Scenario, here: &Scenario) -> Option<String> {
    let of = |scenario: &Scenario| {
        let mut settings = settings(&scenario.to_toml());
        let is_text = |line: &String| TEXTS.iter().any(|key| line.starts_with(key));
        settings.retain(|line| !is_text(line));
        settings
    };
    let (there, here) = (of(there), of(here));
    let only = |these: &[String], those: &[String], word: &str| {
        let mut lines = these.iter().filter(|line| !those.contains(line));
        let first = lines.next()?;
        let more = match lines.count() {
            0 => String::new(),
            n => format!(" and {n} more"),
        };
        Some(format!("{word} `{}`{more}", cut(first, MOST_CHARACTERS)))
    };
    let sides = [only(&there, &here, "there"), only(&here, &there, "here")];
    let sides: Vec<String> = sides.into_iter().flatten().collect();
    (!sides.is_empty()).then(|| sides.join(", "))
}

/// Says what replaces these runs; `None` if there are none. The differences are those of the first.
fn by(replaced: &[Replaced]) -> Option<String> {
    let first = replaced.first()?;
    let [one, several] = first.by;
    let what = if replaced.len() == 1 { one } else { several };
    Some(match &first.differences {
        Some(differences) => format!("{what} ({differences})"),
        None => what.to_owned(),
    })
}

/// Says which runs are replaced by what; `None` if there are none.
fn in_words(replaced: Vec<Replaced>) -> Option<String> {
    let by = by(&replaced)?;
    let are = if replaced.len() == 1 { "is" } else { "are" };
    let folders: Vec<PathBuf> = replaced.into_iter().map(|one| one.folder).collect();
    Some(format!(
        "{} {are} replaced by {by}; another folder (-o DIR) keeps {}",
        subject("the earlier run", "the earlier runs", &folders),
        pronoun(&folders)
    ))
}

/// Names runs by their folders.
fn subject(one: &str, several: &str, folders: &[PathBuf]) -> String {
    let first = folders.first().map(|folder| folder.display());
    let first = first.map_or(String::new(), |folder| folder.to_string());
    match folders.len() {
        0 | 1 => format!("{one} in `{first}`"),
        2 => format!("{several} in `{first}` and 1 more folder"),
        n => format!("{several} in `{first}` and {} more folders", n - 1),
    }
}

fn pronoun(folders: &[PathBuf]) -> &'static str {
    match folders.len() {
        0 | 1 => "it",
        _ => "them",
    }
}

/// The lines of a scenario that set nothing.
const TEXTS: [&str; 3] = ["title = ", "about = ", "backend = "];

/// The most characters of a setting that a message shows.
const MOST_CHARACTERS: usize = 60;
