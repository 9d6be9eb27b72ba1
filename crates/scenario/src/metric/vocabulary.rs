//! The names of figures, which `[[expect]]` and comparisons use.

use std::fmt;
use std::ops::Range;

use sluice_core::DropReason;

use super::chart::{Chart, ChartLink};
use super::meter::METERS;
use super::summary::{FlowSummary, Percentiles, PipeSummary, Summary};
use crate::unit::Unit;
use crate::{Direction, Flow, PipeId, instance_names};

/// Whether a figure is one of the few that describe a run over its repetitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// Not a key figure.
    No,
    /// Always a key figure.
    Always,
    /// A key figure if it is not zero in every repetition.
    UnlessZero,
}

/// A figure of `T`.
pub struct MetricDecl<T: 'static> {
    /// The name, without that of the flow or direction.
    pub name: &'static str,
    /// The unit.
    pub unit: Unit,
    /// The chart or section of the report's page that shows it.
    pub chart: Chart,
    /// Whether it is a key figure.
    pub key: Key,
    /// The meaning.
    pub doc: &'static str,
    /// The source of its values, or the document that defines it.
    pub source: &'static str,
    /// Returns the value, given the figure's name; `None` if nothing was measured.
    pub value: fn(&T, &str) -> Option<f64>,
}

impl<T> MetricDecl<T> {
    /// Returns the figure of `subject`; `None` if nothing was measured.
    pub fn of(&self, subject: &T) -> Option<f64> {
        (self.value)(subject, self.name)
    }
}

impl MetricDecl<FlowSummary> {
    /// Returns the chart that shows the figure of `flow`. A flow without round trips, such as a call,
    /// is not in the chart of the pings: its figures are in the table of all figures.
    pub fn chart_of(&self, flow: &FlowSummary) -> ChartLink {
        let chart = match self.chart {
            Chart::Ping if flow.rtt.is_none() => Chart::Figures,
            chart => chart,
        };
        chart.of(flow.way())
    }
}

// A row is: `key` or `key_unless_zero` for a key figure, name, unit, chart, meaning, source, value.
macro_rules! metrics {
    (for $of:ty; $($($key:ident)? $name:literal, $unit:ident, $chart:ident, $doc:literal, $source:tt $($section:literal)?, $value:expr;)+) => {
        &[$(MetricDecl {
            name: $name,
            unit: Unit::$unit,
            chart: Chart::$chart,
            key: metrics!(@key $($key)?),
            doc: $doc,
            source: metrics!(@source $source $($section)?),
            value: |subject, _| {
                let value: fn(&$of) -> Option<f64> = $value;
                value(subject)
            },
        },)+]
    };
    (@key) => { Key::No };
    (@key key) => { Key::Always };
    (@key key_unless_zero) => { Key::UnlessZero };
    (@source RFC7928 $section:literal) => { concat!("RFC 7928 section ", $section) };
    (@source $source:tt) => { $source };
}

type Pick = fn(&Percentiles) -> u64;
const P50: Pick = |p| p.p50_ns;
const P95: Pick = |p| p.p95_ns;
const P99: Pick = |p| p.p99_ns;
const MAX: Pick = |p| p.max_ns;
const MIN: Pick = |p| p.min_ns;
const MEAN: Pick = |p| p.mean_ns;
const DEVIATION: Pick = |p| p.deviation_ns;

fn time(percentiles: Option<Percentiles>, pick: Pick) -> Option<f64> {
    percentiles.as_ref().map(|p| pick(p) as f64)
}

fn count(n: Option<u64>) -> Option<f64> {
    n.map(|n| n as f64)
}

/// Figures of a flow. Each type of flow names the figures that it has.
pub static FLOW_METRICS: &[MetricDecl<FlowSummary>] = metrics! {
    for FlowSummary;
    "goodput", Rate, Goodput, "payload that arrived, per second", RFC7928 "2.5", |f| f.goodput_bps;
    "retransmits", Count, Window, "segments sent again", TCP_INFO, |f| count(f.retransmits);
    "transfers", Count, Completion, "transfers or pages that were completed", RFC7928 "2.1", |f| f.fct.as_ref().map(|p| p.count as f64);
    "fct", Time, Completion, "flow completion time, of a flow with `bytes`", RFC7928 "2.1", |f| count(f.fct_ns);
    "fct.p50", Time, Completion, "median flow completion time of the flow's transfers", RFC7928 "2.1", |f| time(f.fct, P50);
    "fct.p95", Time, Completion, "its 95th percentile", RFC7928 "2.1", |f| time(f.fct, P95);
    "fct.p99", Time, Completion, "its 99th percentile", RFC7928 "2.1", |f| time(f.fct, P99);
    "fct.max", Time, Completion, "its maximum", RFC7928 "2.1", |f| time(f.fct, MAX);
    "loss", Ratio, Ping, "share of the packets that did not arrive, without those that were still on their way at the end; for probes, share without a reply", RFC7928 "2.3", |f| f.loss;
    "srtt.p50", Time, SmoothedRtt, "median of the sender's smoothed RTT", TCP_INFO, |f| time(f.srtt, P50);
    "srtt.p95", Time, SmoothedRtt, "its 95th percentile", TCP_INFO, |f| time(f.srtt, P95);
    "srtt.p99", Time, SmoothedRtt, "its 99th percentile", TCP_INFO, |f| time(f.srtt, P99);
    "sojourn.p50", Time, Packets, "median sojourn time of the flow's packets in the queue of its direction; on a path of several links, in the queue where they wait longest", EVENTS, |f| time(f.sojourn, P50);
    "sojourn.p95", Time, Packets, "its 95th percentile", EVENTS, |f| time(f.sojourn, P95);
    "sojourn.p99", Time, Packets, "its 99th percentile", EVENTS, |f| time(f.sojourn, P99);
    "sojourn.max", Time, Packets, "its maximum", EVENTS, |f| time(f.sojourn, MAX);
    "drops", Count, Packets, "wire packets of the flow that the queues of its direction dropped", EVENTS, |f| Some(f.drops as f64);
    "marks", Count, Packets, "wire packets of the flow that the queues of its direction marked", EVENTS, |f| Some(f.marks as f64);
    "convergence", Time, Fairness, "time from the flow's start until its goodput in a window was first within 20 % of the mean of all bulk TCP flows of its direction; for several flows, that of the slowest", "RFC 5166 section 2.3, delta-fair convergence with delta = 0.2", |f| count(f.convergence_ns);
    "runtime", Time, Figures, "time from the start of a program to its end; for several, the mean", "the program's process", |f| count(f.runtime_ns);
    "jitter", Time, Ping, "mean interarrival jitter: of the packets of a call or of other UDP packets, or of the probes' round trips; the estimator runs from the start of the flow, and its mean is that of the measured time", "RFC 3550 section 6.4.1", |f| count(f.jitter_ns);
    "mos", Score, Ping, "mean opinion score of a G.711 call in its direction: its delay is the mean one-way delay plus twice the mean difference between consecutive delays, and its loss is that of its direction", "ITU-T G.107 (06/2015), as flent's voip test", |f| f.mos;
    "min", Time, Ping, "smallest round-trip time of the probes", RTT, |f| time(f.rtt, MIN);
    "p50", Time, Ping, "its median", RTT, |f| time(f.rtt, P50);
    key "p95", Time, Ping, "its 95th percentile", RTT, |f| time(f.rtt, P95);
    "p99", Time, Ping, "its 99th percentile", RTT, |f| time(f.rtt, P99);
    "max", Time, Ping, "its maximum", RTT, |f| time(f.rtt, MAX);
    "mean", Time, Ping, "its mean", RTT, |f| time(f.rtt, MEAN);
    "deviation", Time, Ping, "its standard deviation", RTT, |f| time(f.rtt, DEVIATION);
    "up.p50", Time, Ping, "median delay in the direction up", ONE_WAY, |f| time(f.up, P50);
    "up.p95", Time, Ping, "its 95th percentile", ONE_WAY, |f| time(f.up, P95);
    "up.p99", Time, Ping, "its 99th percentile", ONE_WAY, |f| time(f.up, P99);
    "up.max", Time, Ping, "its maximum", ONE_WAY, |f| time(f.up, MAX);
    "up.mean", Time, Ping, "its mean", ONE_WAY, |f| time(f.up, MEAN);
    "up.deviation", Time, Ping, "its standard deviation", ONE_WAY, |f| time(f.up, DEVIATION);
    "down.p50", Time, Ping, "median delay in the direction down", ONE_WAY, |f| time(f.down, P50);
    "down.p95", Time, Ping, "its 95th percentile", ONE_WAY, |f| time(f.down, P95);
    "down.p99", Time, Ping, "its 99th percentile", ONE_WAY, |f| time(f.down, P99);
    "down.max", Time, Ping, "its maximum", ONE_WAY, |f| time(f.down, MAX);
    "down.mean", Time, Ping, "its mean", ONE_WAY, |f| time(f.down, MEAN);
    "down.deviation", Time, Ping, "its standard deviation", ONE_WAY, |f| time(f.down, DEVIATION);
};

/// Every figure of one direction of the link, as `up.NAME` and `down.NAME`: the figures in a
/// [`PipeSummary`], then those that have a meter of their own.
pub fn pipe_metrics() -> impl Iterator<Item = &'static MetricDecl<PipeSummary>> {
    PIPE_METRICS
        .iter()
        .chain(METERS.iter().map(|meter| &meter.figure))
}

static PIPE_METRICS: &[MetricDecl<PipeSummary>] = metrics! {
    for PipeSummary;
    "utilisation", Ratio, Goodput, "bytes that left the queue, with the framing of the link, divided by those that the rate allows", EVENTS, |p| p.utilisation;
    "sojourn.p50", Time, Packets, "median of the time in the queue", EVENTS, |p| time(p.sojourn, P50);
    key "sojourn.p95", Time, Packets, "its 95th percentile", EVENTS, |p| time(p.sojourn, P95);
    "sojourn.p99", Time, Packets, "its 99th percentile", EVENTS, |p| time(p.sojourn, P99);
    "sojourn.max", Time, Packets, "its maximum", EVENTS, |p| time(p.sojourn, MAX);
    "packets", Count, Packets, "wire packets that arrived", EVENTS, |p| Some(p.packets as f64);
    key_unless_zero "drops", Count, Packets, "wire packets dropped, for any reason", EVENTS, |p| Some(p.drops.values().sum::<u64>() as f64);
    key_unless_zero "marks", Count, Packets, "wire packets that were marked with CE", EVENTS, |p| Some(p.marks as f64);
    "loss", Ratio, Packets, "share of the wire packets that were dropped, among those that left or were dropped", RFC7928 "2.3", |p| p.loss;
    "mark_ratio", Ratio, Packets, "share of the wire packets that left with a CE mark from this queue", EVENTS, |p| p.mark_ratio;
};

/// Figures of the whole run.
pub static RUN_METRICS: &[MetricDecl<Summary>] = metrics! {
    for Summary;
    key "total.goodput", Rate, Summary, "payload of all flows, per second, without calls and probes, from the end of the warm-up until the last flow ends", RFC7928 "2.5", |s| s.total_goodput_bps;
    "total.retransmits", Count, Summary, "segments that all TCP flows sent again", TCP_INFO, |s| count(s.retransmits());
    key "jain", Ratio, Summary, "Jain's fairness index over the goodputs of the bulk TCP flows, in the worse direction", "RFC 5166 section 2.3.1", |s| s.jain;
    "jain.min", Ratio, Summary, "smallest index of all windows of goodput in which at least two of these flows were active", "RFC 5166 section 2.3.1", |s| s.jain_min;
    "jain.mean", Ratio, Summary, "mean index of these windows", "RFC 5166 section 2.3.1", |s| s.jain_mean;
    "accuracy.rate_error", Ratio, Accuracy, "absolute relative error of the rate over the busy periods", RELEASES, |s| {
        s.accuracy.as_ref()?.rate_error.map(f64::abs)
    };
    "accuracy.late.p50", Time, Accuracy, "median lateness of the packets", RELEASES, |s| {
        time(s.accuracy.as_ref()?.lateness, P50)
    };
    "accuracy.late.p99", Time, Accuracy, "its 99th percentile", RELEASES, |s| time(s.accuracy.as_ref()?.lateness, P99);
    "accuracy.late.max", Time, Accuracy, "its maximum", RELEASES, |s| time(s.accuracy.as_ref()?.lateness, MAX);
    "accuracy.lost", Count, Accuracy, "packets lost anywhere but in the queue: at the router's ports, in a receiver's full socket (`receiver_overflow`), or refused by a sender's kernel (`sender_refused`), the last two of which are no `loss` of their flow, except that a call counts an overflow as loss; and rows that were not recorded because the disk was too slow (`not_recorded`)", "counters of the router's ports and of the flows' hosts", |s| {
        Some(s.accuracy.as_ref()?.lost.values().sum::<u64>() as f64)
    };
};

const TCP_INFO: &str = "the sender: TCP_INFO of the kernel, or the simulator's own sender";
pub(super) const EVENTS: &str = "events of the queue (packets.parquet)";
const RTT: &str = "probes; RFC 2681, percentiles as in RFC 2330 section 11.3";
const ONE_WAY: &str = "probes, whose ends share a clock; RFC 7679";
const RELEASES: &str = "the live router (releases.parquet)";

/// The name of a figure, such as `ping.p50`.
#[derive(Clone)]
pub struct Metric {
    name: String,
    kind: Kind,
}

#[derive(Clone)]
enum Kind {
    Run(&'static MetricDecl<Summary>),
    Pipe(PipeId, &'static MetricDecl<PipeSummary>),
    Drops(PipeId, DropReason),
    Flow(String, &'static MetricDecl<FlowSummary>),
    /// A figure that the settings of a flow declare.
    Own(String, String, Unit),
}

/// Splits the name of a figure into its subject and the rest. The names of flows may contain dots;
/// of several names that match, the longest is taken.
fn split<'n>(name: &'n str, flows: &[Flow]) -> (&'n str, &'n str) {
    let of_flow = |instance: String| {
        let rest = name.strip_prefix(instance.as_str())?.strip_prefix('.')?;
        instance.contains('.').then(|| name.len() - rest.len())
    };
    let starts = flows.iter().flat_map(instance_names).filter_map(of_flow);
    match starts.max() {
        Some(at) => (&name[..at - 1], &name[at..]),
        None => name.split_once('.').unwrap_or((name, "")),
    }
}

/// Returns whether `subject` names a flow: one, or all of several.
fn is_named(flow: &Flow, subject: &str) -> bool {
    flow.name == subject || instance_names(flow).any(|instance| instance == subject)
}

/// Returns whether a figure is that of transfers that end.
fn is_of_transfers(decl: &MetricDecl<FlowSummary>) -> bool {
    matches!(decl.chart, Chart::Completion)
}

/// Returns the number of bulk TCP flows of a direction.
fn bulk_flows(flows: &[Flow], direction: Direction) -> u64 {
    let bulk = flows.iter().filter(|flow| flow.kind.is_bulk());
    let of_it = bulk.filter(|flow| flow.direction == direction);
    of_it.map(|flow| flow.count).fold(0, u64::saturating_add)
}

/// The reason why a text does not name a figure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricError {
    /// The wrong word, as a place in the text.
    pub span: Range<usize>,
    /// The word.
    pub word: String,
    /// The message.
    pub message: String,
    /// The accepted words.
    pub candidates: Vec<String>,
}

impl Metric {
    /// Reads the name of a figure in a run with `flows` and any number of links.
    ///
    /// # Errors
    /// A word has no meaning; the error has the accepted words.
    pub fn parse(name: &str, flows: &[Flow]) -> Result<Metric, MetricError> {
        Self::parse_among(name, flows, None)
    }

    /// Reads the name of a figure in a run with `flows` over a path of `links`.
    ///
    /// # Errors
    /// As [`Metric::parse`]; also the name of a link that is not on the path.
    pub fn parse_on_path(name: &str, flows: &[Flow], links: usize) -> Result<Metric, MetricError> {
        Self::parse_among(name, flows, Some(links))
    }

    fn parse_among(
        name: &str,
        flows: &[Flow],
        links: Option<usize>,
    ) -> Result<Metric, MetricError> {
        let kind = Self::parse_kind(name, flows, links)?;
        Ok(Metric {
            name: name.to_owned(),
            kind,
        })
    }

    fn parse_kind(name: &str, flows: &[Flow], links: Option<usize>) -> Result<Kind, MetricError> {
        if let Some(decl) = RUN_METRICS.iter().find(|decl| decl.name == name) {
            return Ok(Kind::Run(decl));
        }
        let (subject, rest) = split(name, flows);
        let rest_at = (subject.len() + 1).min(name.len());
        let unknown_rest = |candidates: Vec<String>| MetricError {
            span: rest_at..name.len(),
            word: rest.to_owned(),
            message: if rest.is_empty() {
                format!("`{subject}` needs a metric behind it")
            } else {
                format!("`{subject}` has no metric `{rest}`")
            },
            candidates,
        };
        let is_there = |pipe: &PipeId| links.is_none_or(|links| pipe.hop() < links);
        if let Some(pipe) = PipeId::from_word(subject).filter(is_there) {
            if let Some(decl) = pipe_metrics().find(|decl| decl.name == rest) {
                return Ok(Kind::Pipe(pipe, decl));
            }
            let reasons = || DropReason::ALL.iter().copied();
            if let Some(reason) = reasons().find(|r| rest == format!("drops.{}", r.name())) {
                return Ok(Kind::Drops(pipe, reason));
            }
            let plain = pipe_metrics().map(|decl| decl.name.to_owned());
            let drops = reasons().map(|r| format!("drops.{}", r.name()));
            return Err(unknown_rest(plain.chain(drops).collect()));
        }
        if let Some(flow) = flows.iter().find(|flow| is_named(flow, subject)) {
            let own = flow.kind.figures();
            if let Some(figure) = own.iter().find(|figure| figure.name == rest) {
                let (subject, name) = (subject.to_owned(), rest.to_owned());
                return Ok(Kind::Own(subject, name, figure.unit()));
            }
            let names = flow.kind.metrics();
            if names.contains(&rest)
                && let Some(decl) = FLOW_METRICS.iter().find(|decl| decl.name == rest)
            {
                return Ok(Kind::Flow(subject.to_owned(), decl));
            }
            let own = own.iter().map(|figure| figure.name.clone());
            let all = names.iter().map(|name| (*name).to_owned());
            return Err(unknown_rest(all.chain(own).collect()));
        }
        let pipes = (0..links.unwrap_or(1).min(PipeId::MOST_HOPS)).flat_map(|hop| {
            let ways = [Direction::Up, Direction::Down];
            ways.map(|way| PipeId::new(way, hop).word().to_owned())
        });
        let subjects = flows
            .iter()
            .map(|flow| flow.name.clone())
            .chain(pipes)
            .chain(RUN_METRICS.iter().map(|decl| decl.name.to_owned()));
        Err(MetricError {
            span: 0..subject.len(),
            word: if name.starts_with("total") || name.starts_with("accuracy") {
                name.to_owned()
            } else {
                subject.to_owned()
            },
            message: format!(
                "`{subject}` is neither a flow nor a direction nor a metric of the run"
            ),
            candidates: subjects.collect(),
        })
    }

    /// Returns the unit.
    pub fn unit(&self) -> Unit {
        match &self.kind {
            Kind::Run(decl) => decl.unit,
            Kind::Pipe(_, decl) => decl.unit,
            Kind::Drops(..) => Unit::Count,
            Kind::Flow(_, decl) => decl.unit,
            Kind::Own(_, _, unit) => *unit,
        }
    }

    /// Returns whether the figure is a share of a whole, so that it is hardly ever above 1. The ratios
    /// that programs report can have any value.
    pub fn is_share(&self) -> bool {
        self.unit() == Unit::Ratio && !matches!(self.kind, Kind::Own(..))
    }

    /// Returns the chart that shows the figure in the report of a variant's runs.
    pub fn chart(&self, runs: &[&Summary]) -> ChartLink {
        match &self.kind {
            Kind::Run(decl) => decl.chart.of(Direction::Up),
            Kind::Pipe(pipe, decl) => decl.chart.of(pipe.direction()),
            Kind::Drops(pipe, _) => Chart::Packets.of(pipe.direction()),
            Kind::Own(..) => Chart::Figures.of(Direction::Up),
            Kind::Flow(name, decl) => {
                let all = runs.iter().flat_map(|s| s.groups.iter().chain(&s.flows));
                let flow = all.into_iter().find(|flow| flow.name == *name);
                flow.map_or(decl.chart.of(Direction::Up), |flow| decl.chart_of(flow))
            }
        }
    }

    /// Returns why no run with `flows` can measure the figure, and the remedy; `None` if a run may.
    pub(crate) fn never_measured(&self, flows: &[Flow]) -> Option<(String, String)> {
        let name = &self.name;
        let (why, remedy) = match &self.kind {
            Kind::Run(decl) if decl.name == "jain" || decl.name.starts_with("jain.") => {
                let ways = [Direction::Up, Direction::Down];
                if ways.iter().any(|way| bulk_flows(flows, *way) > 1) {
                    return None;
                }
                (
                    "compares bulk TCP flows of one direction, and there are not two".to_owned(),
                    "raise `count` of a flow of type `tcp` without `bytes`, or add one".to_owned(),
                )
            }
            Kind::Flow(subject, decl) => {
                let flow = flows.iter().find(|flow| is_named(flow, subject))?;
                let transfer = flow.kind.transfer()?;
                let is_of_one = decl.name == "fct";
                let of_all =
                    format!("`{subject}.fct.p50` and `{subject}.fct.max` are those of all");
                if transfer.bytes.is_none() && is_of_transfers(decl) {
                    (
                        format!(
                            "needs a transfer that ends, and `{}` has no `bytes`",
                            flow.name
                        ),
                        "give the flow a size, such as bytes = \"1MB\"".to_owned(),
                    )
                } else if is_of_one && transfer.repeats {
                    let several =
                        "is the time of one transfer, and a flow with `pause` has several";
                    (several.to_owned(), of_all)
                } else if is_of_one && flow.count > 1 && flow.name == *subject {
                    (
                        "is the time of one transfer, and several flows have this name".to_owned(),
                        format!("`{subject}-1.fct` is that of the first; {of_all}"),
                    )
                } else {
                    return None;
                }
            }
            _ => return None,
        };
        Some((format!("`{name}` {why}"), remedy))
    }

    /// Returns why the figure has no value where it was not measured, if that is clear.
    pub fn why_missing(&self) -> Option<&'static str> {
        match &self.kind {
            Kind::Flow(_, decl) if is_of_transfers(decl) => {
                Some("no transfer of the flow was complete when the run ended")
            }
            _ => None,
        }
    }

    /// Returns the figure in `summary`; `None` if nothing was measured.
    pub fn value(&self, summary: &Summary) -> Option<f64> {
        let pipe = |id: &PipeId| {
            let name = id.word();
            summary.pipes.iter().find(|pipe| pipe.name == name)
        };
        match &self.kind {
            Kind::Run(decl) => decl.of(summary),
            Kind::Pipe(id, decl) => decl.of(pipe(id)?),
            Kind::Drops(id, reason) => {
                let drops = &pipe(id)?.drops;
                Some(drops.get(reason.name()).copied().unwrap_or(0) as f64)
            }
            Kind::Flow(name, decl) => {
                let mut all = summary.groups.iter().chain(&summary.flows);
                decl.of(all.find(|flow| flow.name == *name)?)
            }
            Kind::Own(name, figure, _) => {
                let mut all = summary.groups.iter().chain(&summary.flows);
                let flow = all.find(|flow| flow.name == *name)?;
                flow.reported.get(figure).map(|reported| reported.value)
            }
        }
    }
}

impl PartialEq for Metric {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl fmt::Debug for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}
