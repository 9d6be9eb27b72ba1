//! The variants that are compared, with their key figures.

use std::collections::BTreeSet;

use serde::Serialize;
#[cfg(test)]
use ts_rs::TS;

use sluice_recording::RunFile;
use sluice_recording::figures::{Probes, Repeated, median, pipe_under_test};
use sluice_scenario::metric::{FlowSummary, Percentiles, PipeSummary, Summary, Unit};
use sluice_scenario::{Backend, Pipe, Scenario};

/// The queue and the flows whose figures are compared, which are the same for all candidates.
#[derive(Clone, Debug)]
pub(crate) struct Subject<'a> {
    /// The name of the queue under test.
    pub pipe: &'a str,
    /// The flows of probes.
    pub probes: Probes<'a>,
    /// The flows of pages of which any run has a complete one.
    pub pages: BTreeSet<&'a str>,
}

impl<'a> Subject<'a> {
    /// Finds them in all runs that are compared.
    pub fn of(runs: &[&'a Summary]) -> Subject<'a> {
        let flows = runs.iter().copied().flat_map(Summary::declared);
        let loaded = flows.filter(|flow| flow.is_pages() && flow.fct.is_some());
        Subject {
            pipe: pipe_under_test(runs),
            probes: Probes::of(runs),
            pages: loaded.map(|flow| flow.name.as_str()).collect(),
        }
    }
}

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
    /// A variant by its first run and the summaries of all of its runs.
    pub fn of(
        name: String,
        run: &RunFile,
        summaries: &[&Summary],
        is_complete: bool,
        subject: &Subject<'_>,
    ) -> Candidate {
        let scenario = &run.scenario;
        let pipe = scenario.pipes().find(|(id, _)| id.word() == subject.pipe);
        let pipe = pipe.map_or(&scenario.link.up, |(_, pipe)| pipe);
        Candidate {
            name,
            backend: run.environment.backend,
            algorithm: first_word(pipe.queue.0.algorithm.name),
            setting: setting(scenario),
            is_complete,
            figures: Figures::of(summaries, subject),
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
    /// Number of runs.
    pub runs: usize,
    /// Goodput of all flows, in bits per second.
    pub goodput: Option<f64>,
    /// Share of the link that was used.
    pub utilisation: Option<f64>,
    /// The packets on which the delays were measured.
    pub delay_of: DelayOf,
    /// The name of the queue under test.
    pub queue: String,
    /// Median delay in nanoseconds; `None` if no probe came back in half of the runs or more.
    pub p50: Option<f64>,
    /// 95th percentile of the delay.
    pub p95: Option<f64>,
    /// Share of the probes that were lost. Their delays are unknown, so the percentiles are those of
    /// the probes that came back. 0 if the delays are those of packets.
    pub lost_probes: f64,
    /// Mean opinion score of the worst call; `None` without measured calls.
    pub mos: Option<f64>,
    /// Median load time of the pages in nanoseconds; of several flows of pages, that of the slowest.
    /// Infinite if, in half of the runs or more, no page was complete; `None` without measured pages.
    pub page: Option<f64>,
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

/// Returns the name of an algorithm without its parameters, which belong to the name of one that is not
/// loaded.
fn first_word(name: &str) -> String {
    name.split(' ').next().unwrap_or(name).to_owned()
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

/// Returns the score of the worst call. The scores of probes and of other UDP packets only estimate that
/// of a call on their path.
fn worst_call(summary: &Summary) -> Option<f64> {
    let calls = summary.flows.iter().filter(|flow| flow.is_call());
    calls.filter_map(|flow| flow.mos).reduce(f64::min)
}

/// Returns the median load time of the flow of pages with the longest one: infinite if pages were open
/// at the end and none was complete, `None` if none was requested.
fn slowest_pages(summary: &Summary, subject: &Subject<'_>) -> Option<f64> {
    let flows = summary.declared().into_iter();
    let is_measured = |flow: &FlowSummary| subject.pages.contains(flow.name.as_str());
    let pages = flows.filter(|flow| flow.is_pages() && is_measured(flow));
    let load_time = |flow: &FlowSummary| match flow.fct {
        Some(times) => Some(times.p50_ns as f64),
        None => flow.open.filter(|open| *open > 0).map(|_| f64::INFINITY),
    };
    pages.filter_map(load_time).reduce(f64::max)
}

/// Returns the share of the packets of both directions that were dropped.
fn loss(summary: &Summary) -> Option<f64> {
    let total = |of: fn(&PipeSummary) -> u64| summary.pipes.iter().map(of).sum::<u64>();
    let packets = total(|pipe| pipe.packets);
    (packets > 0).then(|| total(|pipe| pipe.drops.values().sum()) as f64 / packets as f64)
}

impl Figures {
    fn of(runs: &[&Summary], subject: &Subject<'_>) -> Figures {
        let over = |value: &dyn Fn(&Summary) -> Option<f64>| {
            median(&runs.iter().filter_map(|run| value(run)).collect::<Vec<_>>())
        };
        let probe = |s: &Summary| subject.probes.main(s).cloned();
        let has_probe = runs.iter().any(|run| probe(run).is_some());
        let queue = |s: &Summary| {
            s.pipes
                .iter()
                .find(|pipe| pipe.name == subject.pipe)
                .cloned()
        };
        let delay = |s: &Summary| match has_probe {
            true => probe(s).and_then(|flow| flow.rtt),
            false => queue(s).and_then(|pipe| pipe.sojourn),
        };
        let percentile = |pick: fn(&Percentiles) -> u64| {
            let known = runs.iter().filter_map(|run| delay(run));
            let values: Vec<f64> = known.map(|delay| pick(&delay) as f64).collect();
            // A run in which no probe came back is the worst of all.
            let all = if has_probe { runs.len() } else { values.len() };
            let middle = Repeated::of(Unit::Time, values, all)?.median_with(f64::INFINITY);
            middle.is_finite().then_some(middle)
        };
        let page = || {
            let times = runs.iter().filter_map(|run| slowest_pages(run, subject));
            let times: Vec<f64> = times.collect();
            let all = times.len();
            match Repeated::of(Unit::Time, times, all) {
                Some(known) => Some(known.median_with(f64::INFINITY)),
                None => (all > 0).then_some(f64::INFINITY),
            }
        };
        let total = |of: &dyn Fn(&PipeSummary) -> u64| {
            over(&|s| Some(s.pipes.iter().map(of).sum::<u64>() as f64)).unwrap_or(0.0)
        };
        Figures {
            runs: runs.len(),
            goodput: over(&|s| s.total_goodput_bps),
            utilisation: over(&|s| queue(s)?.utilisation),
            delay_of: match has_probe {
                true => DelayOf::Pings,
                false => DelayOf::Packets,
            },
            queue: subject.pipe.to_owned(),
            p50: percentile(|p| p.p50_ns),
            p95: percentile(|p| p.p95_ns),
            lost_probes: over(&|s| {
                let flow = probe(s)?;
                flow.rtt.map_or(Some(1.0), |_| flow.loss)
            })
            .unwrap_or(0.0),
            mos: over(&worst_call),
            page: page(),
            jain: over(&|s| s.jain),
            drops: total(&|pipe| pipe.drops.values().sum()),
            marks: total(&|pipe| pipe.marks),
            loss: over(&loss),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_scenario::metric::Window;

    const MS: u64 = 1_000_000;

    fn within(p95_ms: u64) -> Percentiles {
        Percentiles {
            count: 10,
            min_ns: 0,
            p50_ns: 0,
            p95_ns: p95_ms * MS,
            p99_ns: 0,
            max_ns: 0,
            mean_ns: 0,
            deviation_ns: 0,
        }
    }

    /// A run whose packets waited up to 12 ms, and whose pings took `rtt_ms` with a loss of 1 %, or
    /// were all lost.
    fn run(rtt_ms: Option<u64>) -> Summary {
        let pipe = PipeSummary {
            name: "up".into(),
            sojourn: Some(within(12)),
            ..PipeSummary::default()
        };
        let ping = FlowSummary {
            name: "ping".into(),
            type_name: "ping".into(),
            rtt: rtt_ms.map(within),
            loss: Some(rtt_ms.map_or(1.0, |_| 0.01)),
            // A probe that arrived has a delay even if its reply was lost.
            mos: Some(1.5),
            ..FlowSummary::default()
        };
        Summary {
            variant: String::new(),
            window: Window {
                warmup_ns: 0,
                end_ns: 0,
            },
            flows: vec![ping],
            groups: Vec::new(),
            crowds: Vec::new(),
            pipes: vec![pipe],
            total_goodput_bps: None,
            directions: Vec::new(),
            jain: None,
            jain_min: None,
            jain_mean: None,
            accuracy: None,
        }
    }

    #[test]
    fn a_queue_without_a_reply_has_lost_all_probes_if_another_has_replies() {
        let (starving, other) = (run(None), run(Some(30)));
        let subject = Subject::of(&[&starving, &other]);
        let figures = Figures::of(&[&starving], &subject);
        assert_eq!(figures.delay_of, DelayOf::Pings);
        assert_eq!((figures.p95, figures.lost_probes), (None, 1.0));
        assert_eq!(figures.mos, None);
        let figures = Figures::of(&[&other], &subject);
        assert_eq!((figures.p95, figures.lost_probes), (Some(30e6), 0.01));

        // Without a reply anywhere, the delay of the packets is compared.
        let figures = Figures::of(&[&starving], &Subject::of(&[&starving]));
        assert_eq!(figures.delay_of, DelayOf::Packets);
        assert_eq!((figures.p95, figures.lost_probes), (Some(12e6), 0.0));
    }

    #[test]
    fn the_score_of_calls_is_not_that_of_other_udp_packets() {
        let scored = |type_name: &str, mos| FlowSummary {
            name: type_name.into(),
            type_name: type_name.into(),
            mos: Some(mos),
            ..FlowSummary::default()
        };
        let mut busy = run(Some(30));
        busy.flows.extend([scored("udp", 1.0), scored("pcap", 1.2)]);
        let figures = |one: &Summary| Figures::of(&[one], &Subject::of(&[one]));
        assert_eq!(figures(&busy).mos, None);
        busy.flows
            .extend([scored("voip", 4.4), scored("voip", 4.3)]);
        // The worse of the two calls.
        assert_eq!(figures(&busy).mos, Some(4.3));
    }

    /// A run with flows of pages, each by its name and the median load time of its complete pages; the
    /// others have two that are open.
    fn with_pages(pages: &[(&str, Option<u64>)]) -> Summary {
        let flow = |(name, p50_ms): &(&str, Option<u64>)| FlowSummary {
            name: (*name).into(),
            type_name: "web".into(),
            fct: p50_ms.map(|ms| Percentiles {
                p50_ns: ms * MS,
                ..within(2 * ms)
            }),
            open: Some(p50_ms.map_or(2, |_| 0)),
            ..FlowSummary::default()
        };
        let mut run = run(Some(30));
        run.flows.extend(pages.iter().map(flow));
        run
    }

    #[test]
    fn pages_are_those_of_the_slowest_flow() {
        let page = |run: &Summary| Figures::of(&[run], &Subject::of(&[run])).page;
        let both = with_pages(&[("fast", Some(300)), ("slow", Some(900))]);
        assert_eq!(page(&both), Some(900e6));
        assert_eq!(page(&run(Some(30))), None);
        // A transfer of a number of bytes is no page.
        let mut file = with_pages(&[("file", Some(300))]);
        file.flows[1].type_name = "tcp".into();
        assert_eq!(page(&file), None);
        // Flows of one declaration count together: 500 ms, and not the 700 ms of one of them.
        let mut several = with_pages(&[("web-1", Some(100)), ("web-2", Some(700))]);
        several.groups = with_pages(&[("web", Some(500))]).flows.split_off(1);
        assert_eq!(page(&several), Some(500e6));
    }

    #[test]
    fn a_run_without_a_complete_page_counts_as_the_slowest_repetition() {
        let runs = [Some(300), None, Some(400)].map(|ms| with_pages(&[("pages", ms)]));
        let runs: Vec<&Summary> = runs.iter().collect();
        let subject = Subject::of(&runs);
        // The middle one of 300 ms, 400 ms and never.
        let figures = Figures::of(&runs, &subject);
        assert_eq!((figures.runs, figures.page), (3, Some(400e6)));
        // Of 300 ms and never, and of never alone.
        for some in [&runs[..2], &runs[1..2]] {
            assert_eq!(Figures::of(some, &subject).page, Some(f64::INFINITY));
        }
        // Where no page was complete in any run, and where none was requested, none is compared.
        let starved = with_pages(&[("pages", None)]);
        let alone = Subject::of(&[&starved]);
        assert_eq!(Figures::of(&[&starved], &alone).page, None);
        let mut idle = starved;
        idle.flows[1].open = Some(0);
        assert_eq!(Figures::of(&[&idle], &subject).page, None);
    }

    #[test]
    fn a_run_without_a_reply_counts_as_the_worst_repetition() {
        let runs = [run(Some(30)), run(None), run(Some(40))];
        let runs: Vec<&Summary> = runs.iter().collect();
        let subject = Subject::of(&runs);
        // The middle one of 30 ms, 40 ms and never.
        assert_eq!(Figures::of(&runs, &subject).p95, Some(40e6));
        let figures = Figures::of(&runs[..2], &subject);
        assert_eq!((figures.p50, figures.p95), (None, None));
    }
}
