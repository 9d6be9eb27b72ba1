//! The seal of `summary.json`: the figures are those that were computed of this run, and nobody has edited
//! them since. It is the SHA-256 of the figures, of the run's scenario and of the checksums of its tables.
//!
//! It reveals mistakes, not forgery: a program that can write the folder can seal other figures.

use std::io::{self, Write as _};

use super::checksum::Summing;
use super::run_file::RunFile;

/// Adds the seal of `run` to `figures`, a JSON object with a key per line, as its last key.
pub(crate) fn sealed(figures: &str, run: &RunFile) -> String {
    let begin = figures.trim_end().strip_suffix(END);
    let begin = begin.expect("the figures are an object with a key per line");
    format!("{begin}{KEY}\"{}\"{END}\n", seal(begin, run))
}

/// Returns whether a text has the seal of `run`. One without any is that of an older program, and is
/// accepted.
pub(crate) fn fits(text: &str, run: &RunFile) -> bool {
    let Some(at) = text.rfind(KEY) else {
        // Another program may have written it again, in another form.
        return !text.contains("\"seal\":");
    };
    let (begin, rest) = text.split_at(at);
    rest.trim_end() == format!("{KEY}\"{}\"{END}", seal(begin, run))
}

fn seal(begin: &str, run: &RunFile) -> String {
    let mut sum = Summing::new(io::sink());
    let mut add = |text: &str| {
        write!(sum, "{}\n{text}", text.len()).expect("a sink accepts all bytes");
    };
    add(begin);
    add(&run.scenario_toml);
    for (table, checksum) in &run.tables {
        add(table);
        add(&checksum.sha256);
    }
    sum.checksum().sha256
}

/// What precedes the seal: no text in JSON has a line break of its own.
const KEY: &str = ",\n  \"seal\": ";
const END: &str = "\n}";

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use sluice_core::Time;
    use sluice_scenario::{Backend, Scenario};

    use crate::metrics::measure;
    use crate::runs::runs_in;
    use crate::testing::recording;
    use crate::{End, Environment, Keep, Recording, RunWriter, SUMMARY_JSON};

    #[test]
    fn edited_figures_are_computed_again_from_the_tables() {
        let temp = tempfile::tempdir().unwrap();
        recording(temp.path());
        let recording = Recording::open(temp.path()).unwrap();
        let summary = measure(&recording).unwrap();
        recording.store_summary(&summary).unwrap();
        let path = temp.path().join(SUMMARY_JSON);
        let text = fs::read_to_string(&path).unwrap();
        let stored = |text: &str| {
            fs::write(&path, text).unwrap();
            Recording::open(temp.path()).unwrap().stored_summary()
        };
        assert_eq!(stored(&text).unwrap(), Some(summary.clone()));
        // The first number of all figures, with another first digit.
        let mut values = text.match_indices("\": ").map(|(at, mark)| at + mark.len());
        let number = values.find(|at| text[*at..].starts_with(|c: char| c.is_ascii_digit()));
        let number = number.unwrap();
        let other = match &text[number..=number] {
            "1" => "2",
            _ => "1",
        };
        let mut edited = text.clone();
        edited.replace_range(number..=number, other);
        let compact = text.replace('\n', "");
        for changed in [&edited, &compact] {
            assert_eq!(stored(changed).unwrap(), None, "{changed}");
            let places = runs_in(temp.path()).unwrap();
            let runs = &places[0].results[0].result.runs;
            assert_eq!(runs[0].summary, summary);
        }
        // An older program wrote no seal.
        let at = text.rfind(super::KEY).unwrap();
        let old = format!("{}\n}}\n", &text[..at]);
        assert_eq!(stored(&old).unwrap(), Some(summary));
        // But it had the figures of every pipe and flow.
        for key in ["pipes", "flows"] {
            let mut figures: serde_json::Value = serde_json::from_str(&old).unwrap();
            figures[key].as_array_mut().unwrap().pop();
            assert_eq!(stored(&figures.to_string()).unwrap(), None, "{key}");
        }
    }

    #[test]
    fn figures_of_another_run_are_not_those_of_this_one() {
        let temp = tempfile::tempdir().unwrap();
        let run = |name: &str, rate: &str, keep| {
            let text = format!(
                "duration = \"2s\"\n[link]\nrate = \"{rate}\"\n[[flow]]\ntype = \"ping\"\n"
            );
            let variant = Scenario::parse("x", &text, &[]).unwrap().remove(0);
            let environment = Environment::here(Backend::Sim, String::new());
            let dir = temp.path().join(name);
            let writer = RunWriter::create_keeping(keep, &dir, &variant, &environment);
            let end = End::complete(Time::ZERO + variant.scenario.duration);
            let recording = writer.unwrap().finish(end).unwrap();
            let summary = measure(&recording).unwrap();
            recording.store_summary(&summary).unwrap();
            dir
        };
        let one = run("one", "1Mbit/s", Keep::Figures);
        let other = run("other", "2Mbit/s", Keep::Figures);
        let figures = |dir: &Path| Recording::open(dir).unwrap().stored_summary();
        assert!(figures(&one).unwrap().is_some());
        fs::copy(other.join(SUMMARY_JSON), one.join(SUMMARY_JSON)).unwrap();
        let error = figures(&one).unwrap_err().to_string();
        assert!(error.contains("was edited or is of another run"), "{error}");
        // The same with tables.
        let tables = run("tables", "1Mbit/s", Keep::Packets);
        fs::copy(other.join(SUMMARY_JSON), tables.join(SUMMARY_JSON)).unwrap();
        assert_eq!(figures(&tables).unwrap(), None);
    }
}
