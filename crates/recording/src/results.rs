//! The results of runs, grouped by variant: figures and expectations.

use std::path::PathBuf;

use serde::Serialize;

use crate::expect::{self, Outcome};
use crate::figures::{Repeated, repeated};
use crate::{Recording, Status};
use sluice_scenario::metric::Summary;
use sluice_scenario::{Backend, Coordinate};

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RunResult {
    /// The seed of all its random numbers.
    pub seed: u64,
    /// The folder of the recording.
    pub folder: PathBuf,
    /// The status.
    #[serde(flatten)]
    pub status: Status,
    /// Whether it is an earlier run with the same input, which was not repeated.
    pub reused: bool,
    /// The algorithms from files that an error stopped, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stopped: Vec<String>,
    /// The figures, as in the run's summary.json.
    #[serde(skip)]
    pub summary: Summary,
}

/// A variant on a backend, in one run or in several that differ only in their seed.
#[derive(Clone, Debug, PartialEq)]
pub struct VariantResult {
    /// The scenario: its path within the suite, or its title.
    pub scenario: String,
    /// The variant.
    pub variant: String,
    /// The variant's place on the axes of the scenario's matrix.
    pub coordinates: Vec<Coordinate>,
    /// The backend.
    pub backend: Backend,
    /// The runs, at least one.
    pub runs: Vec<RunResult>,
    /// The expectations, compared with the medians of the runs.
    pub expect: Vec<Outcome>,
}

impl VariantResult {
    /// Creates the result of a single recording.
    pub fn of_one(recording: &Recording, summary: Summary) -> VariantResult {
        let scenario = recording.run().title.clone();
        VariantResult::of(scenario, vec![(recording.clone(), summary, false)])
    }

    /// Creates the result of recordings of the same variant, each with its figures and whether it
    /// existed before.
    ///
    /// # Panics
    /// There is no recording.
    pub fn of(scenario: String, recordings: Vec<(Recording, Summary, bool)>) -> VariantResult {
        let (first, ..) = recordings.first().expect("a result has at least one run");
        let run = first.run().clone();
        let runs: Vec<RunResult> = recordings
            .into_iter()
            .map(|(recording, summary, reused)| RunResult {
                seed: recording.run().seed,
                folder: recording.dir().to_owned(),
                status: recording.run().status.clone(),
                reused,
                stopped: recording.run().stopped.clone(),
                summary,
            })
            .collect();
        let summaries: Vec<&Summary> = runs.iter().map(|run| &run.summary).collect();
        VariantResult {
            expect: expect::check(&run.scenario.expect, run.environment.backend, &summaries),
            scenario,
            variant: run.variant,
            coordinates: run.coordinates,
            backend: run.environment.backend,
            runs,
        }
    }

    /// Returns the figures of each run.
    pub fn summaries(&self) -> Vec<&Summary> {
        self.runs.iter().map(|run| &run.summary).collect()
    }

    /// Returns the algorithms from files that an error stopped in any of the runs, in words, each
    /// once: runs that differ in their seed have the same ones.
    pub fn stopped(&self) -> impl Iterator<Item = &str> {
        let first = self.runs.iter().find(|run| !run.stopped.is_empty());
        first
            .into_iter()
            .flat_map(|run| &run.stopped)
            .map(String::as_str)
    }

    /// Returns the expectations that were not met.
    pub fn failed(&self) -> impl Iterator<Item = &Outcome> {
        self.expect.iter().filter(|outcome| !outcome.passed)
    }

    /// The figures over all runs, for JSON.
    pub fn repeated(&self) -> Vec<(String, Repeated)> {
        repeated(&self.summaries())
    }
}

impl Serialize for VariantResult {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Json<'a> {
            scenario: &'a str,
            variant: &'a str,
            /// The values of the matrix, by key.
            #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
            matrix: serde_json::Map<String, serde_json::Value>,
            backend: Backend,
            runs: &'a [RunResult],
            /// The figures of the first run.
            summary: &'a Summary,
            /// Medians and spread, if there are several runs.
            #[serde(skip_serializing_if = "Option::is_none")]
            figures: Option<serde_json::Map<String, serde_json::Value>>,
            expect: &'a [Outcome],
        }
        let figures = || {
            let json = |figure| serde_json::to_value(figure).expect("a figure is numbers");
            let named = |(name, figure): (String, Repeated)| (name, json(figure));
            self.repeated().into_iter().map(named).collect()
        };
        let coordinate = |at: &Coordinate| (at.key.clone(), at.value.as_str().into());
        Json {
            scenario: &self.scenario,
            variant: &self.variant,
            matrix: self.coordinates.iter().map(coordinate).collect(),
            backend: self.backend,
            runs: &self.runs,
            summary: &self.runs[0].summary,
            figures: (self.runs.len() > 1).then(figures),
            expect: &self.expect,
        }
        .serialize(serializer)
    }
}
