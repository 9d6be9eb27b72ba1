//! The variants that are compared, with their key figures.

use serde::Serialize;
#[cfg(test)]
use ts_rs::TS;

use sluice_recording::RunFile;
use sluice_recording::figures::median;
use sluice_scenario::metric::{Percentiles, PipeSummary, Summary};
use sluice_scenario::{Backend, Pipe, Scenario};

/// A variant of a scenario on one backend.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub name: String,
    pub backend: Backend,
    /// Name of the algorithm of the queue under test.
    pub algorithm: String,
    /// The scenario without its queues: candidates with the same setting differ only in their
    /// queues.
    pub setting: String,
    /// Whether none of its runs ended early, and no error stopped an algorithm in any.
    pub is_complete: bool,
    pub figures: Figures,
}

impl Candidate {
    /// A variant by its first run and the summaries of all of its runs. `under_test` names the
    /// queue under test, which is the same for all candidates.
    pub fn of(
        name: String,
        run: &RunFile,
        summaries: &[&Summary],
        is_complete: bool,
        under_test: &str,
    ) -> Candidate {
        let scenario = &run.scenario;
        let pipe = scenario.pipes().find(|(id, _)| id.word() == under_test);
        let pipe = pipe.map_or(&scenario.link.up, |(_, pipe)| pipe);
        Candidate {
            name,
            backend: run.environment.backend,
            algorithm: pipe.queue.0.algorithm.name.to_owned(),
            setting: setting(scenario),
            is_complete,
            figures: Figures::of(summaries, under_test),
        }
    }

    /// Whether the two differ in nothing but their queues.
    pub fn is_comparable(&self, other: &Candidate) -> bool {
        let is_complete = self.is_complete && other.is_complete;
        is_complete && self.has_same_condition(other)
    }

    /// Whether both were measured under the same condition: on the same backend, and in the same
    /// setting but for their queues.
    pub fn has_same_condition(&self, other: &Candidate) -> bool {
        self.backend == other.backend && self.setting == other.setting
    }
}

/// The key figures of a variant, as medians over its runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Figures {
    /// Goodput of all flows, in bits per second.
    pub goodput: Option<f64>,
    /// Share of the link that was used.
    pub utilisation: Option<f64>,
    /// The packets on which the delays were measured.
    pub delay_of: DelayOf,
    /// Median delay in nanoseconds.
    pub p50: Option<f64>,
    /// 95th percentile of the delay.
    pub p95: Option<f64>,
    /// Mean opinion score of the worst call; `None` without measured calls.
    pub mos: Option<f64>,
    /// Jain's index.
    pub jain: Option<f64>,
    /// Packets dropped in both directions.
    pub drops: f64,
    /// Packets marked.
    pub marks: f64,
    /// Share of the packets that were dropped, in both directions; `None` without packets.
    pub loss: Option<f64>,
}

/// The packets on which delays are measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(TS))]
#[serde(rename_all = "lowercase")]
pub enum DelayOf {
    /// The round trips of probes.
    #[default]
    Pings,
    /// The sojourn times of packets in the queue.
    Packets,
}

impl DelayOf {
    pub(super) const fn word(self) -> &'static str {
        match self {
            DelayOf::Pings => "pings",
            DelayOf::Packets => "packets",
        }
    }
}

/// The scenario without its queues, its expectations and its seed.
pub(crate) fn setting(scenario: &Scenario) -> String {
    let mut bare = scenario.clone();
    bare.expect.clear();
    bare.seed = 0;
    let queue = Pipe::unlimited().queue;
    for link in std::iter::once(&mut bare.link).chain(&mut bare.hops) {
        link.up.queue = queue.clone();
        link.down.queue = queue.clone();
    }
    if let Some(rules) = &mut bare.rules {
        *rules = rules.without_queues();
    }
    bare.to_toml()
}

/// Returns the score of the worst call. The score of a probe only estimates that of a call.
fn worst_call(summary: &Summary) -> Option<f64> {
    let calls = summary.flows.iter().filter(|flow| flow.rtt.is_none());
    calls.filter_map(|flow| flow.mos).reduce(f64::min)
}

/// Returns the share of the packets of both directions that were dropped.
fn loss(summary: &Summary) -> Option<f64> {
    let total = |of: fn(&PipeSummary) -> u64| summary.pipes.iter().map(of).sum::<u64>();
    let packets = total(|pipe| pipe.packets);
    (packets > 0).then(|| total(|pipe| pipe.drops.values().sum()) as f64 / packets as f64)
}

impl Figures {
    fn of(runs: &[&Summary], under_test: &str) -> Figures {
        let over = |value: &dyn Fn(&Summary) -> Option<f64>| {
            median(&runs.iter().filter_map(|run| value(run)).collect::<Vec<_>>())
        };
        let has_ping = runs.iter().any(|run| run.ping().is_some());
        let queue = |s: &Summary| s.pipes.iter().find(|pipe| pipe.name == under_test).cloned();
        let delay = |s: &Summary| match has_ping {
            true => s.ping(),
            false => queue(s).and_then(|pipe| pipe.sojourn),
        };
        let percentile =
            |pick: fn(&Percentiles) -> u64| over(&|s| delay(s).as_ref().map(|p| pick(p) as f64));
        let total = |of: &dyn Fn(&PipeSummary) -> u64| {
            over(&|s| Some(s.pipes.iter().map(of).sum::<u64>() as f64)).unwrap_or(0.0)
        };
        Figures {
            goodput: over(&|s| s.total_goodput_bps),
            utilisation: over(&|s| queue(s)?.utilisation),
            delay_of: match has_ping {
                true => DelayOf::Pings,
                false => DelayOf::Packets,
            },
            p50: percentile(|p| p.p50_ns),
            p95: percentile(|p| p.p95_ns),
            mos: over(&worst_call),
            jain: over(&|s| s.jain),
            drops: total(&|pipe| pipe.drops.values().sum()),
            marks: total(&|pipe| pipe.marks),
            loss: over(&loss),
        }
    }
}
