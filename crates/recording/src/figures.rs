//! All figures of a run by name, and their spread over repetitions.

use std::collections::BTreeSet;

use indexmap::IndexMap;
use serde::Serialize;
use serde_json::Value;

use crate::metrics::Spread;
use sluice_scenario::metric::{
    Chart, ChartLink, FLOW_METRICS, FlowSummary, Key, MetricDecl, PipeSummary, RUN_METRICS,
    Summary, Unit, pipe_metrics,
};
use sluice_scenario::{Direction, PipeId};

/// A figure of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// The name, as in `[[expect]]`.
    pub name: String,
    /// The unit.
    pub unit: Unit,
    /// The value in nanoseconds, in bits per second, as a ratio or as a count.
    pub value: f64,
    /// The meaning.
    pub doc: &'static str,
    /// The chart of the report that shows the figure.
    pub chart: ChartLink,
}

impl Figure {
    fn of<T>(name: String, decl: &MetricDecl<T>, subject: &T, way: Direction) -> Option<Figure> {
        Some(Figure {
            name,
            unit: decl.unit,
            value: decl.of(subject)?,
            doc: decl.doc,
            chart: decl.chart.of(way),
        })
    }
}

/// Returns every figure that was measured, in the order of the vocabulary.
pub fn figures_of(summary: &Summary) -> Vec<Figure> {
    let mut figures = Vec::new();
    for decl in RUN_METRICS {
        figures.extend(Figure::of(
            decl.name.to_owned(),
            decl,
            summary,
            Direction::Up,
        ));
    }
    for pipe in &summary.pipes {
        for decl in pipe_metrics() {
            let name = format!("{}.{}", pipe.name, decl.name);
            figures.extend(Figure::of(name, decl, pipe, pipe.way()));
        }
        figures.extend(pipe.drops.iter().map(|(reason, packets)| Figure {
            name: format!("{}.drops.{reason}", pipe.name),
            unit: Unit::Count,
            value: *packets as f64,
            doc: "wire packets dropped for this reason",
            chart: Chart::Packets.of(pipe.way()),
        }));
    }
    for flow in summary.groups.iter().chain(&summary.flows) {
        for decl in FLOW_METRICS {
            let name = format!("{}.{}", flow.name, decl.name);
            let figure = Figure::of(name, decl, flow, flow.way());
            figures.extend(figure.map(|figure| Figure {
                chart: decl.chart_of(flow),
                ..figure
            }));
        }
        figures.extend(flow.reported.iter().map(|(name, reported)| Figure {
            name: format!("{}.{name}", flow.name),
            unit: reported.unit,
            value: reported.value,
            doc: "number in the output of the program; for several, the mean",
            chart: Chart::Figures.of(flow.way()),
        }));
    }
    figures
}

/// Returns the names of the key figures: of the run; of the first link, in the directions that
/// carry payload; and each key figure of a flow, for the first flow that has it.
pub fn key_figures(summary: &Summary) -> Vec<(String, Key)> {
    let run = RUN_METRICS
        .iter()
        .map(|decl| (decl.name.to_owned(), decl.key));
    let pipes = summary.directions.iter().flat_map(|total| {
        pipe_metrics().map(|decl| (format!("{}.{}", total.direction, decl.name), decl.key))
    });
    let flows = FLOW_METRICS.iter().filter_map(|decl| {
        let has_it = summary.flows.iter().find(|flow| decl.of(flow).is_some())?;
        Some((format!("{}.{}", has_it.name, decl.name), decl.key))
    });
    let all = run.chain(pipes).chain(flows);
    all.filter(|(_, key)| *key != Key::No).collect()
}

/// The names of flows. They may have dots of their own, so that the name of a figure does not tell by
/// itself where that of its flow ends.
#[derive(Clone, Debug, Default)]
pub struct FlowNames(BTreeSet<String>);

impl FlowNames {
    /// Returns the names of all flows of `runs`, and those of several flows together.
    pub fn of(runs: &[&Summary]) -> FlowNames {
        let flows = runs
            .iter()
            .flat_map(|run| run.groups.iter().chain(&run.flows));
        flows.map(|flow| flow.name.clone()).collect()
    }

    /// Splits the name of a figure into that of its flow and its own: `ping.eu` and `p95`. `None` for
    /// a figure of the run or of a link. Of several flows, it is the one with the longest name.
    pub fn split<'n>(&self, figure: &'n str) -> Option<(&'n str, &'n str)> {
        let mut ends = figure.match_indices('.').map(|(at, _)| at).rev();
        let end = ends.find(|end| self.0.contains(&figure[..*end]))?;
        Some((&figure[..end], &figure[end + 1..]))
    }
}

impl FromIterator<String> for FlowNames {
    fn from_iter<I: IntoIterator<Item = String>>(names: I) -> Self {
        FlowNames(names.into_iter().collect())
    }
}

/// Returns whether `name` is that of a key figure, of whichever link or of one of `flows`.
pub fn is_key_figure(name: &str, flows: &FlowNames) -> bool {
    let is_key = |key: Key| key != Key::No;
    let of_flow = flows.split(name).map_or("", |(_, own)| own);
    // `up.drops` is a figure of a link, and `bulk.drops` one of a flow.
    let of_pipe = |decl: &MetricDecl<_>| {
        let pipe = name.strip_suffix(decl.name);
        let pipe = pipe.and_then(|pipe| pipe.strip_suffix('.'));
        pipe.and_then(PipeId::from_word).is_some()
    };
    RUN_METRICS
        .iter()
        .any(|decl| is_key(decl.key) && decl.name == name)
        || FLOW_METRICS
            .iter()
            .any(|decl| is_key(decl.key) && decl.name == of_flow)
        || pipe_metrics().any(|decl| is_key(decl.key) && of_pipe(decl))
}

/// Returns the name of the queue under test: the busiest one over all of `runs`, the first of equal
/// ones. Pass all runs that are compared, so that figures of different directions are never shown
/// side by side.
pub fn pipe_under_test<'a>(runs: &[&'a Summary]) -> &'a str {
    busiest(runs, |_| true).unwrap_or(Direction::Up.word())
}

/// Returns the name of the busiest queue of a direction over all of `runs`: on a path of several links,
/// the bottleneck.
pub fn busiest_of<'a>(runs: &[&'a Summary], direction: Direction) -> &'a str {
    busiest(runs, |pipe| pipe.way() == direction).unwrap_or(direction.word())
}

fn busiest<'a>(runs: &[&'a Summary], is_its: impl Fn(&PipeSummary) -> bool) -> Option<&'a str> {
    let mut busy: Vec<(&str, (f64, u64))> = Vec::new();
    let pipes = runs.iter().flat_map(|run| &run.pipes);
    for pipe in pipes.filter(|pipe| is_its(pipe)) {
        let used = pipe.utilisation.unwrap_or(0.0);
        match busy.iter_mut().find(|(name, _)| *name == pipe.name) {
            Some((_, (sum, packets))) => {
                *sum += used;
                *packets += pipe.packets;
            }
            None => busy.push((&pipe.name, (used, pipe.packets))),
        }
    }
    let most = busy
        .into_iter()
        .reduce(|a, b| if b.1 > a.1 { b } else { a });
    most.map(|(name, _)| name)
}

/// The flows of probes of several runs: those of which any run has a reply. A run without a reply has
/// lost all of their probes.
#[derive(Clone, Debug)]
pub struct Probes<'a>(BTreeSet<&'a str>);

impl<'a> Probes<'a> {
    /// Finds them in all runs that are compared.
    pub fn of(runs: &[&'a Summary]) -> Probes<'a> {
        let flows = runs.iter().flat_map(|run| &run.flows);
        let answered = flows.filter(|flow| flow.rtt.is_some());
        Probes(answered.map(|flow| flow.name.as_str()).collect())
    }

    /// Returns the flow of a run whose round trips are called the ping: the first ping, and without
    /// pings the first exchanges over a connection. It is the same flow in all runs of a scenario, also
    /// in one without a reply.
    pub fn main<'s>(&self, run: &'s Summary) -> Option<&'s FlowSummary> {
        let is_probe = |flow: &&FlowSummary| self.0.contains(flow.name.as_str());
        let own = || run.flows.iter().filter(is_probe);
        own().find(|flow| flow.is_ping()).or_else(|| own().next())
    }
}

/// A figure over runs that differ only in their seed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Repeated {
    /// The unit.
    pub unit: Unit,
    /// Median, range, mean and standard deviation.
    #[serde(flatten)]
    pub spread: Spread,
    /// The 95 % confidence interval of the mean; `None` for a single run.
    pub interval: Option<(f64, f64)>,
    /// The number of runs, with those that did not measure the figure.
    pub runs: usize,
    /// The values of those runs that measured the figure, in the order of the runs.
    pub values: Vec<f64>,
}

impl Repeated {
    /// Computes the spread of the `values` that some of several `runs` measured; `None` for no values.
    pub fn of(unit: Unit, values: Vec<f64>, runs: usize) -> Option<Repeated> {
        let spread = Spread::of(&values)?;
        Some(Repeated {
            unit,
            interval: spread.interval(),
            spread,
            runs,
            values,
        })
    }

    /// Returns in how many of the runs the figure was measured, such as `in 5 of 8`; `None` if all
    /// measured it.
    pub fn measured_in(&self) -> Option<String> {
        let count = self.spread.count;
        (count < self.runs).then(|| format!("in {count} of {}", self.runs))
    }

    /// Returns whether the same part of the runs measured `self` and `other`.
    pub fn has_same_part(&self, other: &Repeated) -> bool {
        self.spread.count * other.runs == other.spread.count * self.runs
    }

    /// Returns the median over all runs. Those that did not measure the figure count as `missing`,
    /// which may be infinite.
    pub fn median_with(&self, missing: f64) -> f64 {
        let mut all: Vec<f64> = self
            .values
            .iter()
            .copied()
            .filter(|v| v.is_finite())
            .collect();
        all.resize(self.runs.max(all.len()), missing);
        all.sort_by(f64::total_cmp);
        f64::midpoint(all[(all.len() - 1) / 2], all[all.len() / 2])
    }
}

/// Returns the medians of all figures of several runs of a variant, as the figures of one run. The
/// flows and links are those of the first.
///
/// # Panics
/// There is no run.
pub fn typical(summaries: &[&Summary]) -> Summary {
    let (first, others) = summaries.split_first().expect("there is a run");
    if others.is_empty() {
        return (*first).clone();
    }
    let json = |summary: &&Summary| serde_json::to_value(summary).expect("figures are JSON");
    let all: Vec<Value> = summaries.iter().map(json).collect();
    let middle = merge(&all.iter().collect::<Vec<_>>());
    serde_json::from_value(middle).unwrap_or_else(|_| (*first).clone())
}

/// Merges JSON of the same form. Numbers become their median, over the values that exist;
/// everything else is that of the first.
fn merge(all: &[&Value]) -> Value {
    let all: Vec<&Value> = all
        .iter()
        .copied()
        .filter(|value| !value.is_null())
        .collect();
    let Some(first) = all.first() else {
        return Value::Null;
    };
    let numbers: Vec<f64> = all.iter().filter_map(|value| value.as_f64()).collect();
    if let Some(middle) = median(&numbers) {
        return match all.iter().all(|value| value.is_u64()) {
            true => Value::from(middle.round() as u64),
            false => Value::from(middle),
        };
    }
    match first {
        Value::Array(items) => {
            let at = |place: usize| -> Vec<&Value> {
                all.iter().filter_map(|value| value.get(place)).collect()
            };
            (0..items.len()).map(|place| merge(&at(place))).collect()
        }
        Value::Object(_) => {
            let objects = || all.iter().filter_map(|value| value.as_object());
            let keys: BTreeSet<&String> = objects().flat_map(|object| object.keys()).collect();
            // A run without a reason for drops has no drops for that reason.
            let none = Value::from(0_u64);
            let of = |key: &String| -> Vec<&Value> {
                let is_count = objects().all(|o| o.get(key).is_none_or(Value::is_u64));
                let other = if is_count { &none } else { &Value::Null };
                objects()
                    .map(|object| object.get(key).unwrap_or(other))
                    .collect()
            };
            let merged = keys.into_iter().map(|key| (key.clone(), merge(&of(key))));
            Value::Object(merged.collect())
        }
        other => (*other).clone(),
    }
}

/// Rounds to four significant digits; two runs agree in fewer.
pub fn rounded(value: f64) -> f64 {
    format!("{value:.3e}").parse().unwrap_or(value)
}

/// Returns the median of `values`, as in [`Spread`]; `None` for no values.
pub fn median(values: &[f64]) -> Option<f64> {
    Spread::of(values).map(|spread| spread.median)
}

/// Returns the figures of several runs, in the order in which they first appear. The spread
/// of a figure is over those runs that measured it ([`Repeated::measured_in`]). A run without a drop for a reason has 0 drops for it.
pub fn repeated(summaries: &[&Summary]) -> Vec<(String, Repeated)> {
    repeated_beside(summaries, &[])
}

/// Does the same for runs that are compared with `others`, which may have drops for further reasons.
pub fn repeated_beside(summaries: &[&Summary], others: &[&Summary]) -> Vec<(String, Repeated)> {
    let mut reasons: BTreeSet<(&str, &str)> = BTreeSet::new();
    for pipe in summaries
        .iter()
        .chain(others)
        .flat_map(|summary| &summary.pipes)
    {
        reasons.extend(pipe.drops.keys().map(|reason| (&*pipe.name, &**reason)));
    }
    let mut all: IndexMap<String, (Unit, Vec<f64>)> = IndexMap::new();
    for summary in summaries {
        let mut summary = (*summary).clone();
        for pipe in &mut summary.pipes {
            for (_, reason) in reasons.iter().filter(|(name, _)| *name == pipe.name) {
                pipe.drops.entry((*reason).to_owned()).or_default();
            }
        }
        for figure in figures_of(&summary) {
            let (_, values) = all.entry(figure.name).or_insert((figure.unit, Vec::new()));
            values.push(figure.value);
        }
    }
    all.into_iter()
        .filter_map(|(name, (unit, values))| {
            Some((name, Repeated::of(unit, values, summaries.len())?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_scenario::metric::{Percentiles, Window};

    #[test]
    fn a_median_over_all_runs_counts_those_that_did_not_measure() {
        let of = |values: &[f64], runs| Repeated::of(Unit::Time, values.to_vec(), runs);
        let figure = of(&[1.0, 2.0, 3.0, 4.0, 5.0], 8).expect("values");
        assert_eq!(figure.spread.median, 3.0);
        assert_eq!(figure.measured_in().as_deref(), Some("in 5 of 8"));
        // Of eight values, the median is the mean of the fourth and the fifth.
        assert_eq!(figure.median_with(f64::INFINITY), 4.5);
        assert_eq!(figure.median_with(f64::NEG_INFINITY), 1.5);
        let half = of(&[1.0, 2.0], 4).expect("values");
        assert_eq!(half.median_with(f64::INFINITY), f64::INFINITY);
        assert!(half.has_same_part(&of(&[7.0, 8.0, 9.0], 6).expect("values")));
        assert!(!half.has_same_part(&figure));
        let whole = of(&[1.0, 2.0], 2).expect("values");
        assert_eq!(whole.measured_in(), None);
    }

    #[test]
    fn the_ping_is_the_same_flow_in_all_runs() {
        let rtt = Percentiles {
            count: 1,
            min_ns: 1,
            p50_ns: 1,
            p95_ns: 1,
            p99_ns: 1,
            max_ns: 1,
            mean_ns: 1,
            deviation_ns: 0,
        };
        let flow = |type_name: &str, name: &str, is_answered: bool| FlowSummary {
            name: name.into(),
            type_name: type_name.into(),
            rtt: is_answered.then_some(rtt),
            ..FlowSummary::default()
        };
        let run = |flows: Vec<FlowSummary>| Summary {
            variant: String::new(),
            window: Window {
                warmup_ns: 0,
                end_ns: 0,
            },
            flows,
            groups: Vec::new(),
            crowds: Vec::new(),
            pipes: Vec::new(),
            total_goodput_bps: None,
            directions: Vec::new(),
            jain: None,
            jain_min: None,
            jain_mean: None,
            accuracy: None,
        };
        let of = |far, near| {
            run(vec![
                flow("voip", "call", false),
                flow("rr", "web", true),
                flow("ping", "far", far),
                flow("ping", "near", near),
            ])
        };
        let name = |probes: &Probes<'_>, run: &Summary| Some(probes.main(run)?.name.clone());
        let (both, near) = (of(true, true), of(false, true));
        let probes = Probes::of(&[&both, &near]);
        assert_eq!(name(&probes, &both).as_deref(), Some("far"));
        // No reply of `far` came back: that of `near` is no substitute.
        assert_eq!(name(&probes, &near).as_deref(), Some("far"));
        assert_eq!(name(&Probes::of(&[&near]), &near).as_deref(), Some("near"));
        let neither = of(false, false);
        let alone = Probes::of(&[&neither]);
        assert_eq!(name(&alone, &neither).as_deref(), Some("web"));
        let none = run(vec![flow("ping", "far", false)]);
        assert_eq!(name(&Probes::of(&[&none]), &none), None);
    }

    #[test]
    fn key_figures_of_links_are_not_those_of_flows() {
        let names = ["bulk", "ping", "ping.eu", "backup", "program"];
        let flows: FlowNames = names.map(str::to_owned).into_iter().collect();
        for name in [
            "total.goodput",
            "jain",
            "ping.p95",
            "ping.eu.p95",
            "up.drops",
            "up2.drops",
            "down.sojourn.p95",
        ] {
            assert!(is_key_figure(name, &flows), "{name}");
        }
        for name in [
            "bulk.drops",
            "backup.drops",
            "bulk.sojourn.p95",
            "ping.p50",
            "ping.eu.p50",
            "up.drops.overflow",
            "ping.up.p95",
            // A figure that a program reports.
            "program.latency.p95",
        ] {
            assert!(!is_key_figure(name, &flows), "{name}");
        }
    }
}
