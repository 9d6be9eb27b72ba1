//! `sluice run --http`: which runs are done, running or waiting, for the page.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;
use sluice_http::Board;
use sluice_lab::suite::{Progress, Suite};
use sluice_recording::PAGE;
use sluice_scenario::Backend;

use crate::progress::{ms, name};

/// The runs of a suite.
pub struct Runs(Mutex<State>);

struct State {
    runs: Vec<Run>,
    /// The start of the first run.
    began: Option<Instant>,
    /// The live run that can be watched.
    live: Option<usize>,
    /// Whether no run goes on or will begin.
    is_over: bool,
}

struct Run {
    name: String,
    backend: Backend,
    report: PathBuf,
    state: Word,
    length_ms: u64,
    position_ms: u64,
    /// Whether it took no time, so that nothing is learnt from it.
    is_reused: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    Waiting,
    Running,
    Done,
    Failed,
}

/// The time after which the speed of the simulator is known.
const KNOWN_AFTER: Duration = Duration::from_secs(1);

impl Runs {
    /// Creates the list of the runs of `suite`, none of which has begun.
    pub fn new(suite: &Suite) -> Runs {
        let mut runs = Vec::new();
        for experiment in &suite.experiments {
            for planned in &experiment.runs {
                runs.push(Run {
                    name: name(suite, experiment, planned),
                    backend: planned.backend,
                    report: planned.dir.join(PAGE),
                    state: Word::Waiting,
                    length_ms: ms(planned.variant.scenario.duration),
                    position_ms: 0,
                    is_reused: false,
                });
            }
        }
        Runs(Mutex::new(State {
            runs,
            began: None,
            live: None,
            is_over: false,
        }))
    }

    /// Updates the list.
    pub fn tell(&self, progress: &Progress<'_>) {
        let mut state = self.lock();
        match *progress {
            Progress::Begun(run, _) => {
                state.runs[run].state = Word::Running;
                state.began.get_or_insert_with(Instant::now);
            }
            Progress::Watched(run, _) => state.live = Some(run),
            Progress::At(run, elapsed) => state.runs[run].position_ms = ms(elapsed),
            Progress::Ended(run, finished) => {
                state.live = state.live.filter(|live| *live != run);
                let run = &mut state.runs[run];
                run.state = Word::Done;
                run.position_ms = run.length_ms;
                run.is_reused = finished.is_reused;
            }
            Progress::Failed(run) => {
                state.live = state.live.filter(|live| *live != run);
                state.runs[run].state = Word::Failed;
            }
        }
    }

    /// Says that no run goes on or will begin, even if some were not run.
    pub fn end(&self) {
        let mut state = self.lock();
        state.live = None;
        state.is_over = true;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock can panic halfway.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Board for Runs {
    fn json(&self) -> String {
        let state = self.lock();
        let count = |word: Word| state.runs.iter().filter(|run| run.state == word).count();
        let runs: Vec<_> = state.runs.iter().enumerate().map(Run::json).collect();
        let elapsed = state.began.map_or(Duration::ZERO, |began| began.elapsed());
        let value = json!({
            "total": state.runs.len(),
            "done": count(Word::Done),
            "failed": count(Word::Failed),
            "is_over": state.is_over,
            "left_s": left_s(&state.runs, elapsed),
            "live": state.live.map(|number| {
                let run = &state.runs[number];
                json!({
                    "number": number,
                    "name": run.name,
                    "elapsed_s": run.position_ms as f64 / 1e3,
                    "length_s": run.length_ms as f64 / 1e3,
                })
            }),
            "runs": runs,
        });
        value.to_string()
    }

    fn report(&self, run: usize) -> Option<PathBuf> {
        let state = self.lock();
        let run = state.runs.get(run).filter(|run| run.state == Word::Done);
        run.map(|run| run.report.clone())
    }
}

impl Run {
    fn json((number, run): (usize, &Run)) -> serde_json::Value {
        let part = match (run.state, run.length_ms) {
            (Word::Done | Word::Failed, _) => 1.0,
            (_, 0) => 0.0,
            (_, length) => run.position_ms as f64 / length as f64,
        };
        let state = match run.state {
            Word::Waiting => "waiting",
            Word::Running => "running",
            Word::Done => "done",
            Word::Failed => "failed",
        };
        json!({
            "number": number,
            "name": run.name,
            "state": state,
            "part": part.min(1.0),
            "folder": run.report.parent().map(|dir| dir.display().to_string()),
            "has_report": run.state == Word::Done && run.report.is_file(),
        })
    }
}

/// Returns the seconds until the end, after `elapsed` since the first run began. A live run takes as
/// long as it lasts; the speed of the simulator is that so far. Simulations come first.
fn left_s(runs: &[Run], elapsed: Duration) -> Option<f64> {
    let is_open = |run: &&Run| matches!(run.state, Word::Waiting | Word::Running);
    let rest_of = |backend: Backend| -> f64 {
        let open = runs.iter().filter(is_open);
        let open = open.filter(|run| run.backend == backend);
        let rest = open.map(|run| run.length_ms.saturating_sub(run.position_ms));
        rest.sum::<u64>() as f64 / 1e3
    };
    let (simulated, live) = (rest_of(Backend::Sim), rest_of(Backend::Live));
    if simulated == 0.0 {
        return Some(live);
    }
    let own = runs
        .iter()
        .filter(|run| run.backend == Backend::Sim && !run.is_reused);
    let past = own.map(|run| run.position_ms).sum::<u64>() as f64 / 1e3;
    let is_known = past > 0.0 && elapsed >= KNOWN_AFTER;
    is_known.then(|| elapsed.as_secs_f64() * simulated / past + live)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(backend: Backend, state: Word, position_ms: u64) -> Run {
        Run {
            name: "a".into(),
            backend,
            report: PathBuf::from("/nowhere/report.html"),
            state,
            length_ms: 60_000,
            position_ms,
            is_reused: false,
        }
    }

    #[test]
    fn the_rest_of_simulations_follows_from_their_speed_and_that_of_live_runs_is_their_length() {
        let runs = [
            run(Backend::Sim, Word::Done, 60_000),
            run(Backend::Sim, Word::Running, 30_000),
            run(Backend::Live, Word::Waiting, 0),
        ];
        // 90 s took 3 s, so the other 30 take 1 s; then there are 60 s of the live run.
        assert_eq!(left_s(&runs, Duration::from_secs(3)), Some(61.0));
        assert_eq!(left_s(&runs, Duration::from_millis(500)), None);
        assert_eq!(left_s(&runs[2..], Duration::ZERO), Some(60.0));
    }

    #[test]
    fn the_state_counts_runs_and_has_reports_of_those_that_are_done() {
        let folder = tempfile::tempdir().unwrap();
        let report = folder.path().join(PAGE);
        std::fs::write(&report, "page").unwrap();
        let mut done = run(Backend::Sim, Word::Done, 60_000);
        done.report = report.clone();
        let mut running = run(Backend::Sim, Word::Running, 15_000);
        running.report = report.clone();
        let all = vec![done, running, run(Backend::Sim, Word::Failed, 0)];
        let runs = Runs(Mutex::new(State {
            runs: all,
            began: None,
            live: Some(1),
            is_over: false,
        }));
        let state: serde_json::Value = serde_json::from_str(&runs.json()).unwrap();
        assert_eq!(
            [&state["total"], &state["done"], &state["failed"]],
            [3, 1, 1]
        );
        let row = |n: usize| {
            let row = &state["runs"][n];
            (
                row["state"].as_str().unwrap(),
                row["part"].as_f64().unwrap(),
                row["has_report"] == true,
            )
        };
        let live = json!({"number": 1, "name": "a", "elapsed_s": 15.0, "length_s": 60.0});
        assert_eq!(state["live"], live);
        assert_eq!(
            state["runs"][0]["folder"],
            folder.path().display().to_string()
        );
        // A quarter of 60 s; an older report of a run under way is not its own.
        assert_eq!(row(0), ("done", 1.0, true));
        assert_eq!(row(1), ("running", 0.25, false));
        assert_eq!(row(2), ("failed", 1.0, false));
        assert_eq!(runs.report(0), Some(report));
        assert_eq!((runs.report(1), runs.report(9)), (None, None));
        assert_eq!(state["is_over"], false);
        // The second run was interrupted: it will not go on.
        runs.end();
        let state: serde_json::Value = serde_json::from_str(&runs.json()).unwrap();
        assert_eq!(
            (&state["is_over"], &state["live"]),
            (&json!(true), &json!(null))
        );
        assert_eq!(state["runs"][1]["state"], "running");
    }
}
