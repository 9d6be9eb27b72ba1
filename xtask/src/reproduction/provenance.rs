//! The programs that made the runs of a page.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use sluice_recording::Recording;

/// The programs, by backend, with their runs.
#[derive(Debug, Default)]
pub(super) struct Provenance(BTreeMap<Maker, Made>);

/// A program that made runs.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Maker {
    /// `sim` before `live`.
    is_live: bool,
    /// The program, the beginning of its checksum, and the kernel of a live run.
    words: String,
}

/// The number of runs, and the dates of the first and the last.
#[derive(Debug)]
struct Made {
    count: usize,
    first: String,
    last: String,
}

impl Provenance {
    /// Adds runs of the page.
    pub fn add(&mut self, backend: &str, recordings: &[Recording]) {
        for recording in recordings {
            let here = &recording.run().environment;
            let is_live = backend == "live";
            let sum = here.program_id.as_deref().unwrap_or("of an unknown file");
            let mut words = format!("{} ({})", here.program, sum.get(..12).unwrap_or(sum));
            if is_live {
                // The release without its patches.
                let kernel: Vec<&str> = here.kernel.splitn(3, '.').take(2).collect();
                let _ = write!(words, ", {}", kernel.join("."));
            }
            let date = here.started_at.get(..10).unwrap_or(&here.started_at);
            let made = self.0.entry(Maker { is_live, words }).or_insert(Made {
                count: 0,
                first: date.to_owned(),
                last: date.to_owned(),
            });
            made.count += 1;
            made.first = made.first.as_str().min(date).to_owned();
            made.last = made.last.as_str().max(date).to_owned();
        }
    }

    /// Formats the section about the programs; empty without runs.
    pub fn section(&self) -> String {
        if self.0.is_empty() {
            return String::new();
        }
        let mut text = HEAD.to_owned();
        for (Maker { is_live, words }, made) in &self.0 {
            let backend = if *is_live { "live" } else { "simulated" };
            let Made { count, first, last } = made;
            let dates = match first == last {
                true => first.clone(),
                false => format!("{first} to {last}"),
            };
            let _ = writeln!(text, "| {backend} | {words} | {count} | {dates} |");
        }
        text
    }
}

const HEAD: &str = "
## Which programs made these runs

A program is identified by the first digits of its build ID or SHA-256. `make reproduction-sim` repeats the simulations and
keeps the live runs, which take about two hours: a simulation shows the present algorithms, a live run those of
the program named here. A check ensures that both are of the same scenario.

| runs | program | number | made |
|---|---|---|---|
";
