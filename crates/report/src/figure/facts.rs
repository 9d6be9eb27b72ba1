//! The facts about runs that a caption names.

use super::words::Words;
use crate::model::{Backend, Fact, Report};

/// The facts that all runs share, as "link 10 Mbit/s; delay 10 ms". In a picture of a window, the
/// warm-up that figures leave out is none of them.
pub fn shared(report: &Report, is_of_window: bool) -> String {
    let Some((first, others)) = report.runs.split_first() else {
        return String::new();
    };
    // A simulation gives the same figures on every machine.
    let is_live = report.runs.iter().any(|run| run.backend != Backend::Sim);
    let is_repeated = report.runs.iter().any(|run| run.repetitions.len() > 1);
    let matters = |fact: &&Fact| {
        let label = fact.label.as_str();
        let is_other = (is_repeated && label == "seed") || (is_of_window && label == "figures");
        (is_live || !MACHINE.contains(&label)) && !is_other
    };
    let shared: Vec<String> = first
        .facts
        .iter()
        .filter(matters)
        .filter(|fact| others.iter().all(|run| run.facts.contains(fact)))
        .map(|fact| format!("{} {}", fact.label, fact.value))
        .collect();
    shared.join("; ")
}

/// The settings of queues that differ between the runs, each behind the names of its runs, as "short: fifo
/// limit 20 each way; long: fifo limit 200 each way". Names that say the settings need no others.
pub fn queues(report: &Report, words: Words<'_>) -> String {
    let mut settings: Vec<(String, Vec<String>)> = Vec::new();
    for run in &report.runs {
        let is_shared = |fact: &&Fact| report.runs.iter().all(|run| run.facts.contains(*fact));
        for fact in run.facts.iter().filter(|fact| !is_shared(fact)) {
            let text = match fact.label.as_str() {
                "queue" => fact.value.clone(),
                label if label.starts_with("link ") && label.ends_with(" queue") => {
                    format!("{label} {}", fact.value)
                }
                _ => continue,
            };
            if says(&run.name, &fact.value) {
                continue;
            }
            let name = words.value(&run.name);
            match settings.iter_mut().find(|(known, _)| *known == text) {
                Some((_, names)) => names.push(name),
                None => settings.push((text, vec![name])),
            }
        }
    }
    let parts = settings
        .iter()
        .map(|(text, names)| format!("{}: {text}", names.join(", ")));
    parts.collect::<Vec<String>>().join("; ")
}

/// Whether the name of a run contains the settings of its queue, whatever stands between their words.
fn says(name: &str, settings: &str) -> bool {
    let plain = |text: &str| text.replace(|c: char| !c.is_alphanumeric() && c != '_', " ");
    let settings = settings.strip_suffix(" each way").unwrap_or(settings);
    format!(" {} ", plain(name)).contains(&format!(" {} ", plain(settings)))
}

/// The facts about the machine that ran an experiment.
const MACHINE: [&str; 3] = ["host", "kernel", "started"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::drawable;

    #[test]
    fn a_caption_has_the_queues_that_the_names_of_runs_do_not_say() {
        let of = |names: [&str; 2], queues: [&str; 2]| {
            let mut report = drawable();
            for ((run, name), queue) in report.runs.iter_mut().zip(names).zip(queues) {
                run.name = name.to_owned();
                run.facts = vec![
                    Fact::new("rate", "10Mbit/s each way"),
                    Fact::new("queue", queue),
                ];
            }
            super::queues(&report, Words { own: &[] })
        };
        assert_eq!(
            of(
                ["fifo", "fq_codel"],
                ["fifo limit 200 each way", "fq_codel each way"]
            ),
            "fifo: fifo limit 200 each way"
        );
        // `codel` is not a word of `fq_codel`.
        assert_eq!(
            of(["fq_codel", "b"], ["codel each way", "fifo up, codel down"]),
            "fq_codel: codel each way; b: fifo up, codel down"
        );
        assert_eq!(
            of(
                ["fifo-limit-200", "rate=1Mbit/s pie"],
                ["fifo limit 200 each way", "pie each way"]
            ),
            ""
        );
        // What all runs share is not repeated.
        assert_eq!(of(["a", "b"], ["pie each way", "pie each way"]), "");
    }
}
