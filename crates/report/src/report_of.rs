//! Creates reports from recordings: all curves as they were recorded, and the figures of the
//! summary.
//!
//! The curves show the whole run. The figures leave out the warm-up, as everywhere.

use std::borrow::Cow;
use std::collections::BTreeMap;

use sluice_core::record::Fate;
use sluice_core::{Span, Time};

use crate::Report;
use crate::judgement::{Candidate, Subject, judge};
use crate::model::{
    Accuracy, Backend, Count, DirectionTotal, Ends, Expectation, Figure, Flow, FlowFigures,
    Judgement, PacketRow, Packets, Ping, Quantiles, Queue, Run, Series, State, Verdict,
};
use sluice_recording::expect;
use sluice_recording::figures::{
    Probes, Repeated, busiest_of, figures_of, median, repeated, rounded, typical,
};
use sluice_recording::metrics::{goodput_series, longest_gap, measure};
use sluice_recording::{
    BACKLOG_BYTES, BACKLOG_PACKETS, Passage, QueueSample, ReadError, Recording, RunFile, Status,
    if_recorded,
};
use sluice_scenario::metric::{FlowSummary, Percentiles, PipeSummary, Summary};
use sluice_scenario::{self as scenario, Direction, FlowInstance, Measured, Pipe, PipeId};

/// The repetition that [`report_with`] shows among runs that differ only in their seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Choice {
    /// The seed of the run whose curves are drawn; `None` for the first of each variant.
    pub seed: Option<u64>,
}

/// Makes one report of all `recordings`, in their order. Recordings that differ only in their seed
/// become one run. Its figures are medians with their spread; its curves are those of the first
/// recording.
///
/// # Errors
/// A table of a recording cannot be read.
pub fn report_of(recordings: &[&Recording]) -> Result<Report, ReadError> {
    report_with(recordings, Choice::default())
}

/// Does the same as [`report_of`], with a choice of the curves.
///
/// # Errors
/// A table of a recording cannot be read.
pub fn report_with(recordings: &[&Recording], choice: Choice) -> Result<Report, ReadError> {
    let mut titles: Vec<&str> = Vec::new();
    for recording in recordings {
        let title = recording.run().title.as_str();
        if !titles.contains(&title) {
            titles.push(title);
        }
    }
    let [left, right] = match recordings {
        [first, ..] => first.run().ends.clone(),
        [] => Default::default(),
    };
    let ends = Ends { left, right };
    let mut report = Report::new(titles.join(", "), ends);
    let groups = repetitions(recordings);
    let mut all = Vec::new();
    for (_, group) in &groups {
        all.push(match group.len() {
            1 => vec![measure(group[0])?],
            _ => repeats::summaries(group)?,
        });
    }
    let flat: Vec<&Summary> = all.iter().flatten().collect();
    let subject = Subject::of(&flat);
    let busiest = [Direction::Up, Direction::Down].map(|way| busiest_of(&flat, way));
    let firsts: Vec<&Recording> = groups.iter().map(|(_, group)| group[0]).collect();
    let looks = looks(&firsts);
    let mut candidates = Vec::new();
    for (((name, group), summaries), look) in groups.iter().zip(&all).zip(looks) {
        let summaries: Vec<&Summary> = summaries.iter().collect();
        let is_chosen = |one: &&&Recording| Some(one.run().seed) == choice.seed;
        let shown = group.iter().find(is_chosen).unwrap_or(&group[0]);
        let typical = typical(&summaries);
        let mut run = run(shown, name.clone(), &typical, busiest, &subject.probes)?;
        run.look = look;
        boxes::fill(&mut run, group, shown)?;
        if group.len() > 1 {
            run.repeats = repeats::figures(&summaries, &flat, busiest, &subject.probes);
            run.expectations = expectations(shown, &summaries);
            run.figures = repeated_figures(&shown.run().scenario, &summaries);
            run.repetitions = group.iter().map(|one| one.run().seed).collect();
            run.shown_seed = shown.run().seed;
        }
        if let Some(one) = group.iter().find(|one| !one.run().stopped.is_empty()) {
            run.stopped.clone_from(&one.run().stopped);
        }
        let is_complete = |recording: &&Recording| {
            let run = recording.run();
            run.status == Status::Complete && run.stopped.is_empty()
        };
        let is_complete = group.iter().all(is_complete);
        let first = group[0].run();
        let candidate = Candidate::of(name.clone(), first, &summaries, is_complete, &subject);
        run.drops = candidate.figures.drops;
        run.marks = candidate.figures.marks;
        let each = summaries.iter().filter_map(|summary| summary.retransmits());
        run.retransmits = median(&each.map(|segments| segments as f64).collect::<Vec<_>>());
        candidates.push(candidate);
        report.runs.push(run);
    }
    let candidates: Vec<&Candidate> = candidates.iter().collect();
    let assessments = judge(&candidates);
    let conditions = conditions(&candidates);
    let words = condition_words(&firsts);
    for (at, (run, assessment)) in report.runs.iter_mut().zip(assessments).enumerate() {
        run.judgement = assessment.in_words();
        run.condition = conditions[at];
        run.condition_words.clone_from(&words[at]);
    }
    name_conditions(&mut report.runs);
    Ok(report)
}

/// Groups recordings that differ only in their seed, as [`sluice_recording::repetitions()`] does. Each
/// group has the unique name of its variant.
pub fn repetitions<'a>(recordings: &[&'a Recording]) -> Vec<(String, Vec<&'a Recording>)> {
    let groups = sluice_recording::repetitions(recordings.iter().copied());
    let firsts: Vec<&Recording> = groups.iter().map(|group| group[0]).collect();
    names(&firsts).into_iter().zip(groups).collect()
}

/// Makes the run of a recording. `busiest` names the bottleneck of each direction, up and down; the
/// main ping is that of `probes`.
fn run(
    recording: &Recording,
    name: String,
    summary: &Summary,
    busiest: [&str; 2],
    probes: &Probes<'_>,
) -> Result<Run, ReadError> {
    let main_ping = probes.main(summary).map(|flow| flow.name.clone());
    let file = recording.run();
    let end = Time::from_ns(file.end_ns);
    let scenario = &file.scenario;
    let instances: Vec<FlowInstance<'_>> = scenario.instances().collect();
    let starts = instances.iter().map(|flow| Time::ZERO + flow.start);
    let mut samples: Vec<Samples> = starts.map(Samples::new).collect();
    for sample in if_recorded(recording.flow_samples())?.bounded()? {
        let sample = sample?;
        if sample.time > end {
            continue;
        }
        if let Some(of_flow) = samples.get_mut(sample.flow as usize) {
            of_flow.push(&sample);
        }
    }
    let mut replies: Vec<Echoes> = instances.iter().map(|_| Echoes::default()).collect();
    for probe in if_recorded(recording.pings())?.bounded()? {
        let probe = probe?;
        if let Some(of_flow) = replies.get_mut(probe.flow as usize) {
            of_flow.push(&probe);
        }
    }
    let mut curves = scenario.measure.clone();
    curves.step = step_of_curves(&instances, &samples, curves.step);
    let mut flows = Vec::new();
    let mut pings = Vec::new();
    for (instance, figures) in instances.iter().zip(&summary.flows) {
        let id = instance.id as usize;
        match instance.flow.kind.measured() {
            Measured::Delays => {
                pings.push(ping(
                    instance,
                    std::mem::take(&mut replies[id]),
                    scenario.measure.warmup,
                    figures,
                ));
            }
            Measured::Connections | Measured::Datagrams => {
                flows.push(flow(instance, &mut samples[id], &curves, figures));
            }
            // Its figures are in the table of all figures.
            Measured::Nothing => {}
        }
    }
    let queues = queues(recording, summary, &instances)?;
    let completions = completions::of(recording, summary, &instances)?;
    let comparison = Comparison::new(&instances, &samples, &scenario.measure, end);
    Ok(Run {
        name,
        backend: match file.environment.backend {
            scenario::Backend::Sim => Backend::Sim,
            scenario::Backend::Live => Backend::Live,
        },
        facts: facts::of(file),
        duration_s: file.end_ns as f64 / 1e9,
        base_rtt_ms: facts::base_rtt(scenario, main_ping.as_deref()).map(|rtt| rtt.as_ms_f64()),
        partial: match &file.status {
            Status::Complete => None,
            Status::Partial { reason } => Some(reason.clone()),
            Status::Running(process) => Some(format!("process {} is recording it", process.pid)),
        },
        stopped: file.stopped.clone(),
        length_counted: "payload, where the link counts whole IP packets".into(),
        goodput_window_s: scenario.measure.window.as_secs_f64(),
        goodput_step_s: curves.step.as_secs_f64(),
        accuracy: accuracy(summary),
        judgement: Judgement::default(),
        expectations: expectations(recording, &[summary]),
        figures: figures(scenario, summary),
        directions: summary
            .directions
            .iter()
            .map(|total| DirectionTotal {
                direction: total.direction,
                goodput_mbps: total.goodput_bps / 1e6,
                jain: total.jain,
                jain_over_time: comparison.fairness(total.direction),
                tradeoff: comparison.tradeoff(total.direction, &queues, busiest),
            })
            .collect(),
        flows,
        crowds: Vec::new(),
        sums: Vec::new(),
        pings,
        main_ping,
        transfers: completions::by_flow(summary),
        retransmits: None,
        drops: 0.0,
        marks: 0.0,
        queues,
        completion_ms: completions::distribution(&completions),
        completions,
        repeats: Vec::new(),
        repetitions: Vec::new(),
        shown_seed: file.seed,
        links: Vec::new(),
        look: 0,
        condition: 0,
        condition_words: String::new(),
    })
}

/// The expectations of the scenario with their outcomes, those not met first.
fn expectations(recording: &Recording, summaries: &[&Summary]) -> Vec<Expectation> {
    let run = recording.run();
    let mut outcomes = expect::check(&run.scenario.expect, run.environment.backend, summaries);
    outcomes.sort_by_key(|outcome| outcome.passed);
    outcomes
        .into_iter()
        .map(|outcome| Expectation {
            measured: outcome.measured_words(),
            metric: outcome.metric,
            bounds: outcome.bounds,
            passed: outcome.passed,
            chart: outcome.chart.id(),
        })
        .collect()
}

/// The figures of the run, of the directions of its links, and of the flows of its scenario. A flow
/// with a `count` of ten thousand is one line.
fn figures(scenario: &scenario::Scenario, summary: &Summary) -> Vec<Figure> {
    let is_named = |flow: &FlowSummary| scenario.flows.iter().any(|named| named.name == flow.name);
    let mut named = summary.clone();
    named.flows.retain(is_named);
    let figure = |figure: sluice_recording::figures::Figure| Figure {
        name: figure.name,
        value: figure.unit.show(rounded(figure.value)),
        doc: figure.doc.to_owned(),
        chart: figure.chart.id(),
    };
    figures_of(&named).into_iter().map(figure).collect()
}

/// The figures over repetitions: the median, the smallest and the largest, and in how many runs they
/// were measured unless in all.
fn repeated_figures(scenario: &scenario::Scenario, summaries: &[&Summary]) -> Vec<Figure> {
    let spread: BTreeMap<String, Repeated> = repeated(summaries).into_iter().collect();
    let mut figures = figures(scenario, &typical(summaries));
    for figure in &mut figures {
        let Some(of_it) = spread.get(&figure.name) else {
            continue;
        };
        let [median, min, max] = [of_it.spread.median, of_it.spread.min, of_it.spread.max]
            .map(|value| of_it.unit.show(rounded(value)));
        let part = of_it.measured_in().map(|part| format!(", {part} runs"));
        let part = part.unwrap_or_default();
        figure.value = match min == max {
            true => median + &part,
            false => format!("{median} ({min} to {max}){part}"),
        };
    }
    figures
}

fn accuracy(summary: &Summary) -> Accuracy {
    let Some(accuracy) = &summary.accuracy else {
        return Accuracy {
            notes: vec![
                "virtual time: no packet is late, and none is lost outside the queues".into(),
            ],
            ..Accuracy::default()
        };
    };
    Accuracy {
        rate_error: accuracy.rate_error,
        release_lateness_us: accuracy.lateness.map(|late| quantiles(late, 1e3)),
        lost_elsewhere: counts(&accuracy.lost),
        notes: Vec::new(),
    }
}

/// Returns the time between two points of the goodput of a flow: `step`, or a multiple of it if all curves
/// together would have too many points.
fn step_of_curves(instances: &[FlowInstance<'_>], samples: &[Samples], step: Span) -> Span {
    let points = |instance: &FlowInstance<'_>| {
        let last = samples.get(instance.id as usize)?.last?;
        let lasts = last.since(Time::ZERO + instance.start);
        Some(lasts.as_ns() / step.as_ns().max(1))
    };
    let all = instances.iter().filter_map(points);
    let all = all.fold(0, u64::saturating_add);
    Span::from_ns(step.as_ns().saturating_mul(all / MOST_POINTS + 1))
}

fn flow(
    instance: &FlowInstance<'_>,
    samples: &mut Samples,
    measure: &scenario::Measure,
    figures: &FlowSummary,
) -> Flow {
    // A shorter pause does not show in a window, and the packets of a slow flow are further apart.
    let half = Span::from_ns(measure.window.as_ns() / 2);
    let even = longest_gap(measure.interval).max(half);
    let goodput = goodput_series(&samples.arrived, even, measure.window, measure.step);
    let (time_s, mbps) = goodput.into_iter().map(|(t, bps)| (t, bps / 1e6)).unzip();
    let [cwnd_segments, srtt_ms, retransmits] = samples.take_states();
    Flow {
        name: instance.name.clone(),
        kind: instance.flow.kind.type_name().to_owned(),
        cc: instance.flow.kind.tcp().map(|(cc, _)| cc.0.clone()),
        direction: instance.flow.direction,
        goodput_mbps: Series::new(time_s, mbps),
        cwnd_segments,
        srtt_ms,
        retransmits,
        figures: FlowFigures {
            goodput_mbps: figures.goodput_bps.map(|bps| bps / 1e6),
            retransmits: figures.retransmits.map(|n| n as f64),
            rtt_p50_ms: figures.srtt.map(|p| p.p50_ns as f64 / 1e6),
            rtt_p99_ms: figures.srtt.map(|p| p.p99_ns as f64 / 1e6),
            loss: figures.loss,
        },
    }
}

fn ping(instance: &FlowInstance<'_>, probes: Echoes, warmup: Span, figures: &FlowSummary) -> Ping {
    let (two_way_ms, up_ms, down_ms) = probes.series();
    let ms = |percentiles: Option<Percentiles>| percentiles.map(|p| quantiles(p, 1e6));
    Ping {
        name: instance.name.clone(),
        loss: figures.loss,
        two_way_ms,
        up_ms,
        down_ms,
        measured_from_s: seconds(Time::ZERO + instance.start.saturating_add(warmup)),
        two_way: ms(figures.rtt),
        up: ms(figures.up),
        down: ms(figures.down),
        box_ms: None,
    }
}

fn queues(
    recording: &Recording,
    summary: &Summary,
    instances: &[FlowInstance<'_>],
) -> Result<Vec<Queue>, ReadError> {
    let scenario = &recording.run().scenario;
    let pipes: Vec<(PipeId, &Pipe)> = scenario.pipes().collect();
    let place = |id: PipeId| pipes.iter().position(|(pipe, _)| *pipe == id);
    // The figures count the packets after the warm-up.
    let (warmup, end_ns) = (scenario.measure.warmup.as_ns(), recording.run().end_ns);
    let share = end_ns.saturating_sub(warmup) as f64 / end_ns.max(1) as f64;
    let rows = if_recorded(recording.packets())?.bounded()?;
    // A stored summary may claim any number of packets.
    let mut left = rows.claimed();
    let new = |figures: &PipeSummary| {
        let room = (figures.packets as f64 / share.max(0.1) * 1.1) as usize;
        let room = room.min(left);
        left -= room;
        PacketColumns::new(instances, room)
    };
    let mut packets: Vec<PacketColumns> = summary.pipes.iter().map(new).collect();
    // The charts end with the run. Afterwards the queues only drain.
    let end = Time::from_ns(recording.run().end_ns);
    rows.for_each_passage(|passage| {
        if let Some(place) = place(passage.pipe).filter(|_| passage.at <= end) {
            packets[place].push(&passage);
        }
    })?;
    let mut variables: Vec<Variables> = pipes.iter().map(|_| Variables::default()).collect();
    for sample in if_recorded(recording.queue_samples())?.bounded()? {
        let sample = sample?;
        if let Some(place) = place(sample.pipe).filter(|_| sample.time <= end) {
            variables[place].push(sample);
        }
    }
    let all = pipes.iter().zip(&summary.pipes);
    let queues = all.zip(packets).zip(variables);
    Ok(queues
        .map(|((((id, pipe), figures), packets), variables)| {
            queue(recording.run(), (pipe, *id), figures, packets, variables)
        })
        .collect())
}

fn queue(
    run: &RunFile,
    (pipe, id): (&Pipe, PipeId),
    figures: &PipeSummary,
    packets: PacketColumns,
    variables: Variables,
) -> Queue {
    let measure = &run.scenario.measure;
    let end = Span::from_ns(run.end_ns);
    let steps = pipe.rate.shown(measure.window, measure.step, end);
    let mbps = |rate: Option<sluice_core::Rate>| match rate {
        Some(sluice_core::Rate::UNLIMITED) => f64::NAN,
        Some(rate) => rate.as_bps() as f64 / 1e6,
        None => 0.0,
    };
    Queue {
        name: id.word().to_owned(),
        direction: id.direction(),
        link_mbps: Series::new(
            steps.iter().map(|(at, _)| at.as_secs_f64()).collect(),
            steps.iter().map(|(_, rate)| mbps(*rate)).collect(),
        ),
        utilisation: figures.utilisation,
        backlog_packets: variables.whole(BACKLOG_PACKETS),
        backlog_bytes: variables.whole(BACKLOG_BYTES),
        state: variables.states(),
        sent: figures.sent,
        loss: figures.loss,
        mark_ratio: figures.mark_ratio,
        marks: match figures.marks {
            0 => Vec::new(),
            packets => vec![Count {
                reason: MARK_REASON.into(),
                packets,
            }],
        },
        drops: counts(&figures.drops),
        sojourn_ms: figures.sojourn.map(|p| quantiles(p, 1e6)),
        sojourn_cdf: None,
        box_ms: None,
        packets: packets.columns,
    }
}

/// The reason for marks, the only one in recordings.
const MARK_REASON: &str = "congestion";

/// The packets of a queue, with reasons as indexes.
struct PacketColumns {
    columns: Packets,
    reasons: BTreeMap<&'static str, u16>,
}

impl PacketColumns {
    /// Creates columns with room for about `room` packets.
    fn new(instances: &[FlowInstance<'_>], room: usize) -> Self {
        let names = instances.iter().map(|instance| instance.name.clone());
        let mut columns = Packets {
            flows: names.chain(["other".to_owned()]).collect(),
            ..Packets::default()
        };
        columns.reserve(room);
        PacketColumns {
            columns,
            reasons: BTreeMap::new(),
        }
    }

    fn push(&mut self, passage: &Passage) {
        let (verdict, reason) = match passage.fate {
            Fate::Queued => return,
            Fate::Sent => (Verdict::Sent, None),
            Fate::Marked => (Verdict::Marked, Some(MARK_REASON)),
            Fate::Dropped(reason) => (Verdict::Dropped, Some(reason.name())),
        };
        let reason = reason.map_or(0, |word| {
            let next = self.columns.reasons.len() as u16;
            let number = *self.reasons.entry(word).or_insert(next);
            if number == next {
                self.columns.reasons.push(word.to_owned());
            }
            number
        });
        let other = self.columns.flows.len() as u32 - 1;
        self.columns.push(PacketRow {
            at_ns: passage.at.as_ns(),
            sojourn_ns: passage.sojourn().as_ns(),
            size_bytes: passage.len,
            segments: passage.segments,
            flow: passage.flow.min(other),
            number: passage.number.map_or(0, |number| number + 1),
            verdict,
            reason,
        });
    }
}

/// The samples of a pipe's variables, by variable and queue.
#[derive(Default)]
struct Variables(BTreeMap<(Cow<'static, str>, Option<u32>), Curve>);

#[derive(Default)]
struct Curve {
    unit: String,
    time_s: Vec<f64>,
    value: Vec<f64>,
}

impl Variables {
    fn push(&mut self, sample: QueueSample) {
        let key = (sample.variable, sample.queue);
        let curve = self.0.entry(key).or_default();
        let (unit, factor) = match sample.kind.as_ref() {
            "instant" => ("s", 1e-9),
            "span" => ("ms", 1e-6),
            _ => ("", 1.0),
        };
        unit.clone_into(&mut curve.unit);
        curve.time_s.push(seconds(sample.time));
        curve.value.push(sample.value * factor);
    }

    /// A variable of the pipe as a whole.
    fn whole(&self, variable: &'static str) -> Series {
        let curve = self.0.get(&(Cow::Borrowed(variable), None));
        curve.map_or_else(Series::default, Curve::series)
    }

    /// The variables of the queues. If there are many queues, only those with the most samples.
    fn states(&self) -> Vec<State> {
        let mut samples: BTreeMap<u32, usize> = BTreeMap::new();
        for ((_, queue), curve) in &self.0 {
            if let Some(queue) = queue {
                *samples.entry(*queue).or_default() += curve.value.len();
            }
        }
        let is_single = samples.len() == 1;
        let mut busiest: Vec<(u32, usize)> = samples.into_iter().collect();
        busiest.sort_by_key(|(queue, samples)| (std::cmp::Reverse(*samples), *queue));
        busiest.truncate(MOST_QUEUES);
        let shown = self.0.iter().filter_map(|((variable, queue), curve)| {
            let queue = (*queue)?;
            let is_busy = busiest.iter().any(|(busy, _)| *busy == queue);
            is_busy.then(|| State {
                name: if is_single {
                    variable.clone().into_owned()
                } else {
                    format!("{variable} of queue {queue}")
                },
                unit: curve.unit.clone(),
                series: curve.series(),
            })
        });
        shown.collect()
    }
}

/// Number of queues of a discipline whose variables are drawn.
const MOST_QUEUES: usize = 4;

impl Curve {
    fn series(&self) -> Series {
        Series::new(self.time_s.clone(), self.value.clone())
    }
}

fn counts(by_reason: &BTreeMap<String, u64>) -> Vec<Count> {
    let count = |(reason, packets): (&String, &u64)| Count {
        reason: reason.clone(),
        packets: *packets,
    };
    by_reason.iter().map(count).collect()
}

/// Percentiles in a unit of `unit_ns` nanoseconds.
fn quantiles(p: Percentiles, unit_ns: f64) -> Quantiles {
    Quantiles {
        count: p.count,
        p50: p.p50_ns as f64 / unit_ns,
        p95: p.p95_ns as f64 / unit_ns,
        p99: p.p99_ns as f64 / unit_ns,
        max: p.max_ns as f64 / unit_ns,
    }
}

fn seconds(time: sluice_core::Time) -> f64 {
    time.as_ns() as f64 / 1e9
}

/// The most points of all curves of goodput: 16 bytes each.
const MOST_POINTS: u64 = 20_000_000;

mod boxes;
mod comparison;
pub(crate) mod completions;
mod facts;
mod repeats;
mod samples;
mod sides;
#[cfg(test)]
mod tests;

use comparison::Comparison;
use samples::{Echoes, Samples};
use sides::{condition_words, conditions, looks, name_conditions, names};
