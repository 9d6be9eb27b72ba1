//! The data of a report, as the page receives it.
//!
//! `web/src/model.ts` is generated from these types (`super::typescript`). Units are part of the
//! names. `None` means "not measured"; a `NaN` in a series is a gap.

mod gaps;
mod packets;
mod sums;
mod transfers;

use serde::Serialize;
#[cfg(test)]
use {serde::Deserialize, ts_rs::TS};

pub use packets::{PacketRow, Packets, Verdict};
pub use sluice_scenario::Direction;
pub use transfers::Transfers;

/// Version of these types. The page refuses any other.
pub const SCHEMA: u32 = 11;

/// One or several runs (variants), drawn over each other.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize, TS), serde(deny_unknown_fields))]
pub struct Report {
    /// Version of the types, [`SCHEMA`].
    pub schema: u32,
    /// The scenario's name.
    pub title: String,
    /// The program that wrote the report, with its version.
    pub generated_by: String,
    /// The hosts at the two ends of the path.
    pub ends: Ends,
    /// The runs, in the order in which they are listed and coloured.
    pub runs: Vec<Run>,
    /// The figures over the axes of the matrix; empty if the runs are no sweep.
    pub sweeps: Vec<SweepPicture>,
    /// Start of the time that a picture shows; 0 except in pictures of a window.
    #[serde(skip)]
    pub start_s: f64,
    /// Whether it shows a window of time only.
    #[serde(skip)]
    pub is_window: bool,
}

impl Report {
    /// A report without runs.
    pub fn new(title: impl Into<String>, ends: Ends) -> Self {
        Report {
            schema: SCHEMA,
            title: title.into(),
            generated_by: concat!("sluice ", env!("CARGO_PKG_VERSION")).to_owned(),
            ends,
            runs: Vec::new(),
            sweeps: Vec::new(),
            start_s: 0.0,
            is_window: false,
        }
    }
}

/// A figure over the axes of a matrix.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize, TS), serde(deny_unknown_fields))]
pub struct SweepPicture {
    /// What it shows.
    pub caption: String,
    /// The picture, an SVG document.
    pub svg: String,
}

/// The hosts at the two ends of the path.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize, TS), serde(deny_unknown_fields))]
pub struct Ends {
    /// The source of packets that go up.
    pub left: String,
    /// The destination of packets that go up.
    pub right: String,
}

/// The backend of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(Deserialize, TS))]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// Simulated, in virtual time.
    #[default]
    Sim,
    /// With real packets, in real time.
    Live,
}

/// One line that describes the scenario, such as "delay: 10 ms each way".
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize, TS), serde(deny_unknown_fields))]
pub struct Fact {
    /// The subject of the line.
    pub label: String,
    /// The description.
    pub value: String,
}

impl Fact {
    /// A line with the given label and value.
    pub fn new(label: impl Into<String>, value: impl Into<String>) -> Self {
        Fact {
            label: label.into(),
            value: value.into(),
        }
    }
}

/// One execution of one variant of the scenario.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize, TS), serde(deny_unknown_fields))]
pub struct Run {
    /// The variant's name, unique within a report.
    pub name: String,
    /// The backend.
    pub backend: Backend,
    /// Link, delay, queue, flows, seed, versions, host, kernel ... in reading order. The page shows
    /// facts that all runs share once, and the others side by side.
    pub facts: Vec<Fact>,
    /// Duration.
    pub duration_s: f64,
    /// Round-trip time of the empty path, as configured.
    pub base_rtt_ms: Option<f64>,
    /// The reason why the run ended early; `None` for a complete one.
    pub partial: Option<String>,
    /// The algorithms from files that an error stopped, in words: the figures are not theirs.
    pub stopped: Vec<String>,
    /// The bytes that goodput counts, such as "TCP payload (1448 of 1514 bytes on the link)".
    pub length_counted: String,
    /// Each goodput value is the average over a window of this length that ends at its time.
    pub goodput_window_s: f64,
    /// Time between two goodput values.
    pub goodput_step_s: f64,
    /// The accuracy of the emulation.
    pub accuracy: Accuracy,
    /// The comparison of the queue with those of the other runs.
    pub judgement: Judgement,
    /// The scenario's expectations and their outcomes, those not met first.
    pub expectations: Vec<Expectation>,
    /// The figures of the run, of the directions of its links, and of the flows of its scenario; a
    /// flow with a `count` is one entry.
    pub figures: Vec<Figure>,
    /// Totals per direction that carries load.
    pub directions: Vec<DirectionTotal>,
    /// The flows, without pings. Of a direction that has a crowd, the fastest and the slowest.
    pub flows: Vec<Flow>,
    /// What stands for the flows of a direction that are too many to draw each.
    pub crowds: Vec<Crowd>,
    /// The sum of the goodputs of each direction with several flows whose curves were thinned. The
    /// page adds the curves of other flows itself.
    pub sums: Vec<GoodputSum>,
    /// The probes.
    pub pings: Vec<Ping>,
    /// Name of the probes whose round trips are compared, the same in all runs of a scenario. `None` if
    /// no run has a reply.
    pub main_ping: Option<String>,
    /// The transfers and pages of each flow of the scenario that has some.
    pub transfers: Vec<Transfers>,
    /// Segments that all TCP flows sent again; `None` without such flows.
    pub retransmits: Option<f64>,
    /// Packets that all queues dropped.
    pub drops: f64,
    /// Packets that all queues marked with CE.
    pub marks: f64,
    /// The queues of the path, in the order in which a packet passes them.
    pub queues: Vec<Queue>,
    /// The start in seconds and the completion time in milliseconds of each transfer in
    /// `completion_ms`, for pictures of a window.
    #[serde(skip)]
    #[cfg_attr(test, ts(skip))]
    pub completions: Vec<(f64, f64)>,
    /// Completion times of the transfers that had a fixed number of bytes to carry; `None` if there
    /// were none.
    pub completion_ms: Option<Cdf>,
    /// Figures over the repetitions of this run; empty if there was only one. Other figures are
    /// medians over the repetitions; curves and packets are those of one of them.
    pub repeats: Vec<Repeat>,
    /// The seeds of the repetitions; empty if there was only one run.
    pub repetitions: Vec<u64>,
    /// The seed of the run whose curves and packets are shown.
    pub shown_seed: u64,
    /// Relative URLs of the pages of the single repetitions; empty if there are none.
    pub links: Vec<RepetitionLink>,
    /// Number of its colour and line, unique within a report: colour `look % 7`, and a pattern of
    /// dashes for each further round.
    pub look: u32,
    /// Number of its condition. Runs with the same number differ only in their queues and can be
    /// compared; a link's round-trip time is a condition, for example, and no queue's merit.
    pub condition: u32,
    /// The condition in words, such as `link.rtt 20ms`; empty if the scenario has only one.
    pub condition_words: String,
}

impl Run {
    /// Whether it has boxes over all repetitions.
    pub fn has_boxes(&self) -> bool {
        self.pings.iter().any(|ping| ping.box_ms.is_some())
            || self.queues.iter().any(|queue| queue.box_ms.is_some())
    }
}

/// The page of a repetition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(Deserialize, TS), serde(deny_unknown_fields))]
pub struct RepetitionLink {
    /// Its seed.
    pub seed: u64,
    /// Relative URL.
    pub link: String,
}

/// The comparison of a queue with the queues of runs that differ from its run only in the queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(Deserialize, TS), serde(deny_unknown_fields))]
pub struct Judgement {
    /// The result in a few words, such as "best for calls". Empty if there is no queue to compare
    /// with.
    pub outcome: String,
    /// Whether the queue is the best for something.
    pub is_best: bool,
    /// The measured figures, in words.
    pub why: String,
}

/// A figure over the repetitions of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize, TS), serde(deny_unknown_fields))]
pub struct Repeat {
    /// Name.
    pub figure: String,
    /// `ms`, `Mbit/s`, `%`, or empty for a bare number.
    pub unit: String,
    /// One value per repetition that measured it, in order.
    pub values: Vec<f64>,
    /// Median of the values.
    pub median: f64,
    /// A confidence interval of their median, between two of them: of 95 % from six values on, of fewer
    /// their range. `None` for a single value.
    pub interval: Option<(f64, f64)>,
    /// The direction that it belongs to, for pictures of one direction.
    #[serde(skip)]
    #[cfg_attr(test, ts(skip))]
    pub direction: Option<Direction>,
}

/// One of the scenario's expectations and its outcome.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize, TS), serde(deny_unknown_fields))]
pub struct Expectation {
    /// The figure's name, such as `ping.p50`.
    pub metric: String,
    /// The measured value with its unit, and in how many runs it was measured unless it was in all.
    pub measured: Option<String>,
    /// The bounds in words.
    pub bounds: String,
    /// Whether the measured value is within them.
    pub passed: bool,
    /// The chart or section of the page that shows the figure.
    pub chart: String,
}

/// A figure of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize, TS), serde(deny_unknown_fields))]
pub struct Figure {
    /// Name, as `[[expect]]` writes it.
    pub name: String,
    /// The measured value with its unit.
    pub value: String,
    /// The meaning.
    pub doc: String,
    /// The chart or section of the page that shows it.
    pub chart: String,
}

/// The accuracy of the emulation, compared with its configuration.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize, TS), serde(deny_unknown_fields))]
pub struct Accuracy {
    /// Measured rate / configured rate - 1, while the link was busy.
    pub rate_error: Option<f64>,
    /// Delay between the instant at which a packet was due to leave the delay line and its departure.
    pub release_lateness_us: Option<Quantiles>,
    /// Packets lost outside the queues, by reason.
    pub lost_elsewhere: Vec<Count>,
    /// Other remarks that matter for the reliability of the numbers.
    pub notes: Vec<String>,
}

/// Some quantiles of a distribution, in the unit of the field's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize, TS), serde(deny_unknown_fields))]
pub struct Quantiles {
    /// Number of samples.
    pub count: u64,
    /// Median.
    pub p50: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Largest sample.
    pub max: f64,
}

/// A number of packets.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize, TS), serde(deny_unknown_fields))]
pub struct Count {
    /// The reason for the marks, drops or losses.
    pub reason: String,
    /// Number of these packets.
    pub packets: u64,
}

/// Totals of all flows of one direction over the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize, TS), serde(deny_unknown_fields))]
pub struct DirectionTotal {
    /// The direction.
    #[cfg_attr(test, ts(type = "Direction"))]
    pub direction: Direction,
    /// Sum of the flows' goodputs.
    pub goodput_mbps: f64,
    /// Jain's index over the flows' goodputs; `None` with fewer than two flows.
    pub jain: Option<f64>,
    /// The index over the bulk flows that were active in each window; `None` if there were never two
    /// at a time.
    pub jain_over_time: Option<Series>,
    /// Delay against goodput, window by window.
    pub tradeoff: Option<Tradeoff>,
}

/// Goodput against delay (RFC 7928 section 2.7): one point per window, and the moments of the
/// Gaussian whose ellipse of one standard deviation is drawn.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize, TS), serde(deny_unknown_fields))]
pub struct Tradeoff {
    /// The queue: of several in the direction, the busiest.
    pub queue: String,
    /// The end of each window, in seconds.
    #[serde(skip)]
    #[cfg_attr(test, ts(skip))]
    pub at_s: Vec<f64>,
    /// Mean sojourn time of the packets that left in each window.
    pub delay_ms: Vec<f64>,
    /// Goodput of all flows, without calls and probes, in the same window.
    pub goodput_mbps: Vec<f64>,
    /// Mean of the delays.
    pub mean_delay_ms: f64,
    /// Mean of the goodputs.
    pub mean_goodput_mbps: f64,
    /// Standard deviation of the delays.
    pub delay_deviation_ms: f64,
    /// Standard deviation of the goodputs.
    pub goodput_deviation_mbps: f64,
    /// Correlation of delay and goodput, -1 to 1.
    pub correlation: f64,
}

impl Tradeoff {
    /// Computes the moments of points, each with the end of its window in seconds before delay and
    /// goodput; `None` for fewer than three points.
    pub fn over_time(points: &[(f64, f64, f64)], queue: &str) -> Option<Self> {
        let pairs: Vec<(f64, f64)> = points.iter().map(|(_, x, y)| (*x, *y)).collect();
        Some(Tradeoff {
            queue: queue.to_owned(),
            at_s: points.iter().map(|(at, ..)| *at).collect(),
            ..Tradeoff::of(&pairs)?
        })
    }

    /// Returns what remains of it between two instants in seconds, in windows of `window_s`; `None` if
    /// fewer than three points remain.
    pub fn between(&self, from_s: f64, to_s: f64, window_s: f64) -> Option<Self> {
        let values = self.delay_ms.iter().zip(&self.goodput_mbps);
        let points = self.at_s.iter().zip(values);
        // Ends of windows are sums of steps, so the last digits may differ.
        let is_within = |at: f64| at - window_s >= from_s - 1e-6 && at <= to_s + 1e-6;
        let kept: Vec<(f64, f64, f64)> = points
            .filter(|(at, _)| is_within(**at))
            .map(|(at, (delay, mbps))| (*at, *delay, *mbps))
            .collect();
        Tradeoff::over_time(&kept, &self.queue)
    }

    /// Computes the moments of points in order of time; `None` for fewer than three points, through
    /// which any ellipse fits.
    pub fn of(points: &[(f64, f64)]) -> Option<Self> {
        let n = points.len() as f64;
        if points.len() < 3 {
            return None;
        }
        let mean = |pick: fn(&(f64, f64)) -> f64| points.iter().map(pick).sum::<f64>() / n;
        let (x, y) = (mean(|p| p.0), mean(|p| p.1));
        let moment = |of: &dyn Fn(f64, f64) -> f64| {
            let sum: f64 = points.iter().map(|(a, b)| of(a - x, b - y)).sum();
            sum / (n - 1.0)
        };
        let (sx, sy) = (moment(&|a, _| a * a).sqrt(), moment(&|_, b| b * b).sqrt());
        let both = sx * sy;
        Some(Tradeoff {
            queue: String::new(),
            at_s: Vec::new(),
            delay_ms: points.iter().map(|p| p.0).collect(),
            goodput_mbps: points.iter().map(|p| p.1).collect(),
            mean_delay_ms: x,
            mean_goodput_mbps: y,
            delay_deviation_ms: sx,
            goodput_deviation_mbps: sy,
            correlation: if both > 0.0 {
                (moment(&|a, b| a * b) / both).clamp(-1.0, 1.0)
            } else {
                0.0
            },
        })
    }

    /// Returns the middle of the ellipse over the logarithms of the delays.
    pub fn log_mean(&self) -> (f64, f64) {
        let logs: f64 = self
            .delay_ms
            .iter()
            .map(|delay| delay.max(1e-3).log10())
            .sum();
        let mean = logs / self.delay_ms.len() as f64;
        (10_f64.powf(mean), self.mean_goodput_mbps)
    }

    /// Returns the ellipse as a closed line of delays and goodputs. For a logarithmic axis of delays,
    /// it is computed from the logarithms of the delays: a symmetric one would reach below zero. It is
    /// cut at zero, since no delay and no goodput is negative.
    pub fn contour(&self, is_log: bool) -> Vec<(f64, f64)> {
        let cut = |(delay, mbps): (f64, f64)| (delay.max(0.0), mbps.max(0.0));
        if is_log {
            let logs = self.delay_ms.iter().map(|delay| delay.max(1e-3).log10());
            let points: Vec<(f64, f64)> = logs.zip(self.goodput_mbps.iter().copied()).collect();
            let of_logs = Tradeoff::of(&points).map_or_else(Vec::new, |t| t.corners());
            return of_logs
                .into_iter()
                .map(|(log, mbps)| cut((10_f64.powf(log), mbps)))
                .collect();
        }
        self.corners().into_iter().map(cut).collect()
    }

    fn corners(&self) -> Vec<(f64, f64)> {
        const CORNERS: usize = 72;
        let across = (1.0 - self.correlation * self.correlation).sqrt();
        let corner = |k: usize| {
            let (sin, cos) = (k as f64 / CORNERS as f64 * std::f64::consts::TAU).sin_cos();
            (
                self.mean_delay_ms + self.delay_deviation_ms * cos,
                self.mean_goodput_mbps
                    + self.goodput_deviation_mbps * (self.correlation * cos + across * sin),
            )
        };
        (0..=CORNERS).map(corner).collect()
    }
}

/// Values over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize, TS), serde(deny_unknown_fields))]
pub struct Series {
    /// The time of each value; ascending.
    pub time_s: Vec<f64>,
    /// One value per time; `null` in JSON is a gap.
    #[serde(with = "gaps")]
    #[cfg_attr(test, ts(as = "Vec<Option<f64>>"))]
    pub value: Vec<f64>,
    /// Number of values before the series was thinned for the page, which keeps the extremes; `None` if
    /// it was not.
    pub thinned_from: Option<u64>,
}

impl Series {
    /// A series with one value per time.
    ///
    /// # Panics
    /// The columns differ in length.
    pub fn new(time_s: Vec<f64>, value: Vec<f64>) -> Self {
        assert_eq!(
            time_s.len(),
            value.len(),
            "a series has one value per instant"
        );
        Series {
            time_s,
            value,
            thinned_from: None,
        }
    }

    /// A single value that holds from the start.
    pub fn constant(value: f64) -> Self {
        Series::new(vec![0.0], vec![value])
    }

    /// Times and values, without the gaps.
    pub fn points(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        self.time_s
            .iter()
            .copied()
            .zip(self.value.iter().copied())
            .filter(|(_, value)| value.is_finite())
    }
}

/// One flow.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize, TS), serde(deny_unknown_fields))]
pub struct Flow {
    /// Name in the scenario.
    pub name: String,
    /// `tcp`, `udp`, `web` ...
    pub kind: String,
    /// Congestion control, for TCP.
    pub cc: Option<String>,
    /// The direction of its payload.
    #[cfg_attr(test, ts(type = "Direction"))]
    pub direction: Direction,
    /// Goodput in windows of [`Run::goodput_window_s`].
    pub goodput_mbps: Series,
    /// Congestion window.
    pub cwnd_segments: Option<Series>,
    /// The sender's smoothed round-trip time.
    pub srtt_ms: Option<Series>,
    /// Segments retransmitted so far.
    pub retransmits: Option<Series>,
    /// Its figures over the run, without the warm-up.
    pub figures: FlowFigures,
}

/// The flows of a direction, if they are too many to draw each.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize, TS), serde(deny_unknown_fields))]
pub struct Crowd {
    /// The direction.
    #[cfg_attr(test, ts(type = "Direction"))]
    pub direction: Direction,
    /// The figures of each flow, in the order of the scenario.
    pub flows: Vec<CrowdFlow>,
    /// The sum of the goodputs.
    pub sum_mbps: Series,
    /// Quantiles of the goodputs over the flows, the largest first.
    pub goodput_mbps: Vec<QuantileLine>,
    /// Quantiles of the congestion windows; empty if no flow has one.
    pub cwnd_segments: Vec<QuantileLine>,
    /// Quantiles of the smoothed round-trip times; empty if no flow has one.
    pub srtt_ms: Vec<QuantileLine>,
}

/// A flow of a crowd.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize, TS), serde(deny_unknown_fields))]
pub struct CrowdFlow {
    /// Name in the scenario, with its number.
    pub name: String,
    /// Its figures over the run, without the warm-up.
    pub figures: FlowFigures,
}

/// The figures of a flow. Those that its type does not have are `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize, TS), serde(deny_unknown_fields))]
pub struct FlowFigures {
    /// Goodput.
    pub goodput_mbps: Option<f64>,
    /// Segments sent again.
    pub retransmits: Option<f64>,
    /// Median of the sender's smoothed round-trip time.
    pub rtt_p50_ms: Option<f64>,
    /// Its 99th percentile.
    pub rtt_p99_ms: Option<f64>,
    /// Share of the packets sent that did not arrive.
    pub loss: Option<f64>,
}

/// The goodput of all flows of a direction together.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize, TS), serde(deny_unknown_fields))]
pub struct GoodputSum {
    /// The direction.
    #[cfg_attr(test, ts(type = "Direction"))]
    pub direction: Direction,
    /// Values over time.
    pub mbps: Series,
}

/// A quantile over the flows of a crowd, at each time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize, TS), serde(deny_unknown_fields))]
pub struct QuantileLine {
    /// `largest`, `95 %`, `median`, `5 %` or `smallest`.
    pub name: String,
    /// Values over time.
    pub series: Series,
}

/// Probes from one end of the path to the other and back. Lost probes are gaps in the series.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize, TS), serde(deny_unknown_fields))]
pub struct Ping {
    /// Name in the scenario.
    pub name: String,
    /// Share of the probes without an answer.
    pub loss: Option<f64>,
    /// Round-trip time of each probe, at the time it was sent.
    pub two_way_ms: Series,
    /// Delay from left to right; `None` if the ends share no clock.
    pub up_ms: Option<Series>,
    /// Delay from right to left; `None` if the ends share no clock.
    pub down_ms: Option<Series>,
    /// End of its warm-up: distributions begin with the probes that were sent then.
    pub measured_from_s: f64,
    /// Quantiles of [`Ping::two_way_ms`].
    pub two_way: Option<Quantiles>,
    /// Quantiles of [`Ping::up_ms`].
    pub up: Option<Quantiles>,
    /// Quantiles of [`Ping::down_ms`].
    pub down: Option<Quantiles>,
    /// The round-trip times that 5, 25, 50, 75 and 95 % of the probes do not exceed, without the
    /// warm-up: medians over the repetitions. `None` if they are to be computed from `two_way_ms`.
    pub box_ms: Option<[f64; 5]>,
}

/// A queue in front of a link of the path.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize, TS), serde(deny_unknown_fields))]
pub struct Queue {
    /// Name; the same queue has the same name in all runs.
    pub name: String,
    /// The direction of its packets.
    #[cfg_attr(test, ts(type = "Direction"))]
    pub direction: Direction,
    /// The link's rate; each value holds until the next.
    pub link_mbps: Series,
    /// Bytes sent over the link / bytes that its rate allows, over the run, 0 to 1.
    pub utilisation: Option<f64>,
    /// Packets in the queue.
    pub backlog_packets: Series,
    /// Bytes in the queue.
    pub backlog_bytes: Series,
    /// The AQM's own variables over time.
    pub state: Vec<State>,
    /// Packets that left through the link.
    pub sent: u64,
    /// Share of the packets that were dropped, among those that left or were dropped.
    pub loss: Option<f64>,
    /// Share of the packets that left with a CE mark from here.
    pub mark_ratio: Option<f64>,
    /// CE marks set here, by reason.
    pub marks: Vec<Count>,
    /// Packets dropped here, by reason.
    pub drops: Vec<Count>,
    /// Sojourn time of the packets that left through the link.
    pub sojourn_ms: Option<Quantiles>,
    /// Distribution of the sojourn times, without the warm-up. `None` if it is to be computed from all
    /// of `packets`, which must then be complete.
    pub sojourn_cdf: Option<Cdf>,
    /// The sojourn times that 5, 25, 50, 75 and 95 % of these packets do not exceed, without the
    /// warm-up: medians over the repetitions. `None` if they are to be computed from the distribution.
    pub box_ms: Option<[f64; 5]>,
    /// The fate of each packet.
    pub packets: Packets,
}

/// One of an AQM's variables over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize, TS), serde(deny_unknown_fields))]
pub struct State {
    /// Name in the algorithm.
    pub name: String,
    /// Empty for a bare number.
    pub unit: String,
    /// Values over time.
    pub series: Series,
}

/// Points of an empirical distribution: a share `fraction` of `count` samples is at most `value`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(Deserialize, TS), serde(deny_unknown_fields))]
pub struct Cdf {
    /// Number of samples.
    pub count: u64,
    /// Ascending.
    pub value: Vec<f64>,
    /// Ascending, up to 1.
    pub fraction: Vec<f64>,
}
