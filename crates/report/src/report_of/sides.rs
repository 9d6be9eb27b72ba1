//! The properties that distinguish the runs of a report: their names, conditions and looks.

use crate::judgement::Candidate;
use crate::model::Run;
use sluice_recording::Recording;
use sluice_scenario::Backend;

/// Numbers the conditions: runs with the same number differ only in their queues.
pub fn conditions(candidates: &[&Candidate]) -> Vec<u32> {
    let mut firsts: Vec<&Candidate> = Vec::new();
    let mut numbers = Vec::new();
    for candidate in candidates {
        let known = firsts
            .iter()
            .position(|first| first.has_same_condition(candidate));
        numbers.push(known.unwrap_or(firsts.len()) as u32);
        if known.is_none() {
            firsts.push(candidate);
        }
    }
    numbers
}

/// Returns the condition of each run in words: its place on the axes of the scenario that are not
/// queues, such as `link.rtt=20ms`, and its backend if there are several.
pub fn condition_words(firsts: &[&Recording]) -> Vec<String> {
    let backend = |one: &&Recording| one.run().environment.backend;
    let is_mixed = firsts.iter().any(|one| backend(one) != backend(&firsts[0]));
    let words = |one: &&Recording| {
        let coordinates = one.run().coordinates.iter();
        let mut words: Vec<String> = coordinates
            .filter(|at| !at.is_choice())
            .map(|at| format!("{} {}", at.key, at.value))
            .collect();
        if is_mixed {
            words.push(backend(one).word().to_owned());
        }
        words.join(", ")
    };
    firsts.iter().map(words).collect()
}

/// Says with each outcome among how many runs it was found, if there are several conditions: it does not
/// hold beyond its own.
pub fn name_conditions(runs: &mut [Run]) {
    let numbers: Vec<u32> = runs.iter().map(|run| run.condition).collect();
    for run in runs {
        let rivals = numbers.iter().filter(|number| **number == run.condition);
        let rivals = rivals.count();
        if rivals < numbers.len() && !run.judgement.outcome.is_empty() {
            let condition = match run.condition_words.as_str() {
                "" => "under the same conditions".to_owned(),
                words => format!("at {words}"),
            };
            let outcome = std::mem::take(&mut run.judgement.outcome);
            run.judgement.outcome = format!("of the {rivals} {condition}: {outcome}");
        }
    }
}

/// Returns the look of each run: the number of its colour and line. The same variant has the same
/// colour on both backends; the line of the live run is dashed.
pub fn looks(firsts: &[&Recording]) -> Vec<u32> {
    let backend = |one: &Recording| one.run().environment.backend;
    let is_mixed = firsts.iter().any(|one| backend(one) != backend(firsts[0]));
    if !is_mixed {
        return (0..firsts.len() as u32).collect();
    }
    const COLOURS: u32 = crate::figure::COLOURS as u32;
    let mut taken: Vec<u32> = Vec::new();
    let mut variants: Vec<&str> = Vec::new();
    for one in firsts {
        let name = one.run().variant.as_str();
        let number = variants.iter().position(|known| *known == name);
        let number = number.unwrap_or_else(|| {
            variants.push(name);
            variants.len() - 1
        }) as u32;
        let is_live = u32::from(backend(one) == Backend::Live);
        let mut look = number % COLOURS + COLOURS * (number / COLOURS * 2 + is_live);
        // This happens if the same variant ran twice on one backend, into different folders.
        while taken.contains(&look) {
            look += 2 * COLOURS;
        }
        taken.push(look);
    }
    taken
}

/// Returns the names of the variants. Equal names are distinguished by their backends or, failing
/// that, their folders.
pub fn names(recordings: &[&Recording]) -> Vec<String> {
    let variant = |recording: &Recording| recording.run().variant.clone();
    let on_backend = |recording: &Recording| {
        let backend = recording.run().environment.backend;
        format!("{} ({})", variant(recording), backend.word())
    };
    let is_only = |recording: &Recording, of: &dyn Fn(&Recording) -> String| {
        let own = of(recording);
        recordings.iter().filter(|other| of(other) == own).count() == 1
    };
    let name = |recording: &&Recording| {
        let name = variant(recording);
        if is_only(recording, &variant) {
            return name;
        }
        if is_only(recording, &on_backend) {
            return on_backend(recording);
        }
        let dir = recording.dir().display().to_string();
        format!("{name} ({dir})")
    };
    recordings.iter().map(name).collect()
}
