//! The progress of a suite, as bars on standard error.

use std::fmt;
use std::sync::Mutex;
use std::time::Duration;

use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};
use sluice_core::Span;
use sluice_lab::suite::{Experiment, Planned, Progress, Suite};
use sluice_scenario::Backend;

use crate::terminal::clean_line;

/// A bar for the simulations, then one for the live runs: their speeds differ too much for one
/// estimate.
pub struct Bars {
    state: Mutex<State>,
}

struct State {
    runs: Vec<Run>,
    phases: [Phase; 2],
    is_quiet: bool,
}

struct Run {
    name: String,
    phase: usize,
    length_ms: u64,
    position_ms: u64,
    is_under_way: bool,
}

#[derive(Default)]
struct Phase {
    bar: Option<ProgressBar>,
    length_ms: u64,
    runs: usize,
    ended: usize,
}

impl Bars {
    /// Creates bars for the runs of `suite`. Nothing is drawn if `quiet`, or if standard error is
    /// not a terminal.
    pub fn new(suite: &Suite, is_quiet: bool) -> Bars {
        let mut phases = [Phase::default(), Phase::default()];
        let mut runs = Vec::new();
        for experiment in &suite.experiments {
            for planned in &experiment.runs {
                let run = Run {
                    name: clean_line(&name(suite, experiment, planned)),
                    phase: phase(planned),
                    length_ms: ms(planned.variant.scenario.duration),
                    position_ms: 0,
                    is_under_way: false,
                };
                phases[run.phase].length_ms += run.length_ms;
                phases[run.phase].runs += 1;
                runs.push(run);
            }
        }
        Bars {
            state: Mutex::new(State {
                runs,
                phases,
                is_quiet,
            }),
        }
    }

    /// Updates the bars.
    pub fn tell(&self, progress: &Progress<'_>) {
        let mut state = self.state.lock().expect("nobody panics with the lock");
        match *progress {
            Progress::Begun(run, _) => state.runs[run].is_under_way = true,
            Progress::Watched(..) => {}
            Progress::At(run, elapsed) => state.runs[run].position_ms = ms(elapsed),
            Progress::Ended(run, finished) => state.end(run, finished.is_reused),
            Progress::Failed(run) => state.end(run, true),
        }
        let (Progress::Begun(run, _)
        | Progress::Watched(run, _)
        | Progress::At(run, _)
        | Progress::Ended(run, _)
        | Progress::Failed(run)) = *progress;
        let phase = state.runs[run].phase;
        state.draw(phase);
    }
}

impl State {
    /// A reused run takes no time, so it must not enter the estimate for the remaining runs.
    fn end(&mut self, run: usize, took_no_time: bool) {
        let run = &mut self.runs[run];
        let phase = &mut self.phases[run.phase];
        run.is_under_way = false;
        phase.ended += 1;
        if took_no_time {
            phase.length_ms -= run.length_ms;
            run.length_ms = 0;
        }
        run.position_ms = run.length_ms;
    }

    fn draw(&mut self, number: usize) {
        let of_it = || self.runs.iter().filter(|run| run.phase == number);
        let position = of_it().map(|run| run.position_ms).sum();
        let names: Vec<&str> = of_it()
            .filter(|run| run.is_under_way)
            .map(|run| run.name.as_str())
            .collect();
        let message = names.join(", ");
        let phase = &mut self.phases[number];
        let bar = phase.bar.get_or_insert_with(|| match self.is_quiet {
            true => ProgressBar::hidden(),
            false => ProgressBar::new(phase.length_ms).with_style(style(number)),
        });
        bar.set_length(phase.length_ms);
        bar.set_prefix(format!("{}/{}", phase.ended, phase.runs));
        bar.set_message(message);
        bar.set_position(position);
        if phase.ended == phase.runs {
            bar.finish_and_clear();
        }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        // An interruption leaves the bar unfinished.
        for bar in self.phases.iter().filter_map(|phase| phase.bar.as_ref()) {
            bar.finish_and_clear();
        }
    }
}

fn style(phase: usize) -> ProgressStyle {
    ProgressStyle::with_template("{prefix} {bar:30} {percent:>3} %, {left}  {wide_msg}")
        .expect("the template is a constant")
        .with_key(
            "left",
            move |state: &ProgressState, out: &mut dyn fmt::Write| {
                // A cell that cannot be written stays empty.
                let _ = out.write_str(&left(phase, state.pos(), state.len(), state.elapsed()));
            },
        )
}

/// Returns the remaining time in words. A live run takes as long as it lasts. The speed of the
/// simulator is known only after a while.
fn left(phase: usize, position_ms: u64, length_ms: Option<u64>, elapsed: Duration) -> String {
    let rest_ms = length_ms.unwrap_or(0).saturating_sub(position_ms);
    let rest = match phase {
        LIVE => Duration::from_millis(rest_ms),
        _ if position_ms == 0 || elapsed < KNOWN_AFTER => return "estimating".to_owned(),
        _ => elapsed.mul_f64(rest_ms as f64 / position_ms as f64),
    };
    format!("{:#} left", HumanDuration(rest))
}

/// The time after which the speed of the simulator is known.
const KNOWN_AFTER: Duration = Duration::from_secs(1);

const fn phase(planned: &Planned) -> usize {
    match planned.backend {
        Backend::Sim => 0,
        Backend::Live => LIVE,
    }
}

/// The phase of live runs.
const LIVE: usize = 1;

/// Returns the name of a run among all of `suite`.
pub fn name(suite: &Suite, experiment: &Experiment, planned: &Planned) -> String {
    match suite.is_many {
        true => format!("{} {}", experiment.name, planned.variant.name),
        false => planned.variant.name.clone(),
    }
}

pub fn ms(span: Span) -> u64 {
    span.as_ns() / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_a_live_run_is_known_from_the_start() {
        // Seven minutes of live runs, none of which has ended.
        let at_once = left(LIVE, 0, Some(420_000), Duration::ZERO);
        assert_eq!(at_once, "7m left");
        // A slow setup does not make live runs seem longer.
        let slow = left(LIVE, 120_000, Some(420_000), Duration::from_secs(200));
        assert_eq!(slow, "5m left");
    }

    #[test]
    fn simulations_have_no_estimate_before_they_have_a_speed() {
        assert_eq!(
            left(0, 0, Some(420_000), Duration::from_secs(5)),
            "estimating"
        );
        assert_eq!(
            left(0, 10, Some(420_000), Duration::from_millis(3)),
            "estimating"
        );
        // A quarter took 10 s, so the rest takes 30 s.
        let quarter = left(0, 105_000, Some(420_000), Duration::from_secs(10));
        assert_eq!(quarter, "30s left");
    }
}
