//! What a report is made of.
//!
//! The same structures are `web/src/model.ts`. Both sides read `web/test/fixture.json` in their
//! tests and refuse missing and unknown keys, so that one cannot change without the other. Units
//! are part of the names; `None` means "not measured", and a `NaN` in a series is a gap.

use serde::{Deserialize, Serialize};

use super::packed;

/// Version of this contract; the page refuses any other.
pub const SCHEMA: u32 = 2;

/// One or several runs (variants), drawn over each other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The scenario's name.
    pub title: String,
    /// Program and version that wrote the report.
    pub generated_by: String,
    /// What the two directions mean.
    pub ends: Ends,
    /// The runs, in the order in which they are listed and coloured.
    pub runs: Vec<Run>,
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
        }
    }
}

/// The ends of the path: [`Direction::Up`] is from left to right.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ends {
    /// Where packets that go up come from.
    pub left: String,
    /// Where they go.
    pub right: String,
}

/// Which way packets go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// From the left end to the right one.
    #[default]
    Up,
    /// From the right end to the left one.
    Down,
}

/// Where a run took place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// In virtual time.
    #[default]
    Sim,
    /// With real packets.
    Live,
}

/// A line of the scenario's description, such as "delay" and "10 ms each way".
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fact {
    /// What is described.
    pub label: String,
    /// The description.
    pub value: String,
}

impl Fact {
    /// A line of the description.
    pub fn new(label: impl Into<String>, value: impl Into<String>) -> Self {
        Fact {
            label: label.into(),
            value: value.into(),
        }
    }
}

/// One execution of one variant of the scenario.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// The variant's name, unique within a report.
    pub name: String,
    /// Where it ran.
    pub backend: Backend,
    /// Link, delay, queue, flows, seed, versions, host, kernel ... in reading order. The page shows
    /// once what all runs share, and side by side what differs.
    pub facts: Vec<Fact>,
    /// How long it lasted.
    pub duration_s: f64,
    /// Round trip of an empty path, as configured.
    pub base_rtt_ms: Option<f64>,
    /// Why the run ended early; `None` for a complete one.
    pub partial: Option<String>,
    /// Which bytes goodput counts, such as "TCP payload (1448 of 1514 bytes on the link)".
    pub length_counted: String,
    /// Each goodput value is an average over this long, ending at its time.
    pub goodput_window_s: f64,
    /// Distance of two goodput values.
    pub goodput_step_s: f64,
    /// How far the emulation was from what was asked of it.
    pub accuracy: Accuracy,
    /// What was expected of the run, and what came out.
    pub expectations: Vec<Expectation>,
    /// Totals per direction that carries load.
    pub directions: Vec<DirectionTotal>,
    /// The flows, without pings.
    pub flows: Vec<Flow>,
    /// The probes.
    pub pings: Vec<Ping>,
    /// The queues of the path, in the order in which a packet meets them.
    pub queues: Vec<Queue>,
    /// How long the transfers took that were to carry a number of bytes; `None` without any.
    pub completion_ms: Option<Cdf>,
    /// What the repetitions of this run came to; empty if it was carried out once. Everything else is
    /// that of the first of them.
    pub repeats: Vec<Repeat>,
}

/// A figure over the repetitions of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Repeat {
    /// What it is.
    pub figure: String,
    /// `ms`, `Mbit/s`, `%`, or empty for a number of things.
    pub unit: String,
    /// Of each repetition that measured it, in their order.
    pub values: Vec<f64>,
    /// Their median.
    pub median: f64,
    /// The 95 % confidence interval of their mean; `None` for a single one.
    pub interval: Option<(f64, f64)>,
}

/// A bound of the scenario, and whether the run kept it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expectation {
    /// The figure's name, such as `ping.p50`.
    pub metric: String,
    /// What was measured, with its unit; `None` if nothing was.
    pub measured: Option<String>,
    /// The bounds in words.
    pub bounds: String,
    /// Whether the measured value is within them.
    pub passed: bool,
    /// The chart or section of the page that shows it.
    pub chart: String,
}

/// How far the emulation itself was from what was asked of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Accuracy {
    /// Measured rate / configured rate - 1, over the time the link was busy.
    pub rate_error: Option<f64>,
    /// How late packets left the delay line, after the instant they were due.
    pub release_lateness_us: Option<Quantiles>,
    /// Packets lost to anything but a queue, by reason.
    pub lost_elsewhere: Vec<Count>,
    /// Anything else the reader should know before trusting the numbers.
    pub notes: Vec<String>,
}

/// Some quantiles of a distribution, in the unit of the field's name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
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

/// How many packets something happened to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Count {
    /// Why.
    pub reason: String,
    /// How many.
    pub packets: u64,
}

/// All flows of a direction together, over the run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DirectionTotal {
    /// Which.
    pub direction: Direction,
    /// Sum of the flows' goodputs.
    pub goodput_mbps: f64,
    /// Jain's index over the flows' goodputs; `None` with fewer than two flows.
    pub jain: Option<f64>,
    /// The index over the bulk flows that were active in each window; `None` where fewer than two ever
    /// were.
    pub jain_over_time: Option<Series>,
    /// Delay against goodput, window by window.
    pub tradeoff: Option<Tradeoff>,
}

/// What goodput a queue gave for what delay (RFC 7928 section 2.7): a point per window, and the ellipse
/// of one standard deviation of the Gaussian with their means and covariance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tradeoff {
    /// Mean sojourn time of the packets that left in each window.
    pub delay_ms: Vec<f64>,
    /// Goodput of all flows in the same window.
    pub goodput_mbps: Vec<f64>,
    /// Means and standard deviations of both.
    pub mean_delay_ms: f64,
    /// See above.
    pub mean_goodput_mbps: f64,
    /// See above.
    pub delay_deviation_ms: f64,
    /// See above.
    pub goodput_deviation_mbps: f64,
    /// Of delay and goodput, -1 to 1.
    pub correlation: f64,
}

impl Tradeoff {
    /// Of points in the order of time; `None` for fewer than three, through which any ellipse fits.
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

    /// The ellipse as a closed line of delays and goodputs. For a logarithmic axis of delays it is that of
    /// their logarithms, since a symmetric one would reach below zero.
    pub fn contour(&self, is_log: bool) -> Vec<(f64, f64)> {
        const CORNERS: usize = 72;
        if is_log {
            let logs = self.delay_ms.iter().map(|delay| delay.max(1e-3).log10());
            let points: Vec<(f64, f64)> = logs.zip(self.goodput_mbps.iter().copied()).collect();
            let of_logs = Tradeoff::of(&points).map_or_else(Vec::new, |t| t.contour(false));
            return of_logs
                .into_iter()
                .map(|(log, mbps)| (10_f64.powf(log), mbps))
                .collect();
        }
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// Increases.
    pub time_s: Vec<f64>,
    /// As many values; `NaN` is a gap.
    #[serde(with = "gaps")]
    pub value: Vec<f64>,
    /// Number of values before thinning for the page (extremes kept); `None`: all are here.
    pub thinned_from: Option<u64>,
}

impl Series {
    /// A series with all its values.
    ///
    /// # Panics
    /// When the columns differ in length.
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

    /// One value that holds from the beginning.
    pub fn constant(value: f64) -> Self {
        Series::new(vec![0.0], vec![value])
    }

    /// Instants and values, without the gaps.
    pub fn points(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        self.time_s
            .iter()
            .copied()
            .zip(self.value.iter().copied())
            .filter(|(_, value)| value.is_finite())
    }
}

/// One flow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flow {
    /// Its name in the scenario.
    pub name: String,
    /// `tcp`, `udp`, `web` ...
    pub kind: String,
    /// Congestion control, for TCP.
    pub cc: Option<String>,
    /// Which way its payload goes.
    pub direction: Direction,
    /// See [`Run::goodput_window_s`].
    pub goodput_mbps: Series,
    /// Congestion window.
    pub cwnd_segments: Option<Series>,
    /// The sender's smoothed round trip time.
    pub srtt_ms: Option<Series>,
    /// Segments retransmitted so far.
    pub retransmits: Option<Series>,
}

/// Probes from one end to the other and back. Lost ones are gaps in the series.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ping {
    /// Its name in the scenario.
    pub name: String,
    /// Number of probes sent.
    pub sent: u64,
    /// Number of probes without an answer.
    pub lost: u64,
    /// At the time each probe was sent.
    pub two_way_ms: Series,
    /// From left to right; `None` where the ends share no clock.
    pub up_ms: Option<Series>,
    /// From right to left; `None` where the ends share no clock.
    pub down_ms: Option<Series>,
    /// Of [`Ping::two_way_ms`].
    pub two_way: Option<Quantiles>,
    /// Of [`Ping::up_ms`].
    pub up: Option<Quantiles>,
    /// Of [`Ping::down_ms`].
    pub down: Option<Quantiles>,
}

/// One queue in front of one link of the path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Queue {
    /// Its name; the same queue has the same name in all runs.
    pub name: String,
    /// Which way its packets go.
    pub direction: Direction,
    /// The link's rate: a value holds until the next.
    pub link_mbps: Series,
    /// Bytes on the link / bytes that its rate allows, over the run, 0 to 1.
    pub utilisation: Option<f64>,
    /// Packets waiting.
    pub backlog_packets: Series,
    /// Bytes waiting.
    pub backlog_bytes: Series,
    /// The AQM's own variables over time.
    pub state: Vec<State>,
    /// Packets that left through the link.
    pub sent: u64,
    /// CE marks set here, by reason.
    pub marks: Vec<Count>,
    /// Packets dropped here, by reason.
    pub drops: Vec<Count>,
    /// Sojourn time of the packets that left through the link.
    pub sojourn_ms: Option<Quantiles>,
    /// The same as a distribution. `None`: taken from `packets`, which must then be complete.
    pub sojourn_cdf: Option<Cdf>,
    /// What happened to each packet.
    pub packets: Packets,
}

/// One of an AQM's variables over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Its name in the algorithm.
    pub name: String,
    /// Empty for a bare number.
    pub unit: String,
    /// Its values.
    pub series: Series,
}

/// Points of an empirical distribution: a share `fraction` of `count` samples is at most `value`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cdf {
    /// Number of samples.
    pub count: u64,
    /// Increases.
    pub value: Vec<f64>,
    /// Increases, and ends with 1.
    pub fraction: Vec<f64>,
}

/// What happened to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Verdict {
    /// It left unchanged.
    Sent = 0,
    /// It left with a CE mark that was set here.
    Marked = 1,
    /// It was dropped.
    Dropped = 2,
}

impl From<Verdict> for u64 {
    fn from(verdict: Verdict) -> u64 {
        verdict as u64
    }
}

impl TryFrom<u64> for Verdict {
    type Error = String;

    fn try_from(code: u64) -> Result<Self, String> {
        match code {
            0 => Ok(Verdict::Sent),
            1 => Ok(Verdict::Marked),
            2 => Ok(Verdict::Dropped),
            _ => Err(format!("verdict {code}: expected 0, 1 or 2")),
        }
    }
}

/// One packet's way through a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketRow {
    /// When it left the queue: was sent, or dropped.
    pub at_ns: u64,
    /// How long it had waited by then.
    pub sojourn_ns: u64,
    /// Its size on the link.
    pub size_bytes: u32,
    /// Index into [`Packets::flows`].
    pub flow: u32,
    /// What happened.
    pub verdict: Verdict,
    /// Index into [`Packets::reasons`]; meaningless for a packet that was sent unmarked.
    pub reason: u16,
}

/// Per-packet columns, each packed into a string in JSON. In any order; the page gets them by time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Packets {
    /// The flows' names, pings included.
    pub flows: Vec<String>,
    /// Why packets were marked or dropped.
    pub reasons: Vec<String>,
    /// Number of packets before thinning for the page; `None`: all are here.
    pub thinned_from: Option<u64>,
    /// See [`PacketRow`].
    #[serde(with = "packed")]
    pub at_ns: Vec<u64>,
    /// See [`PacketRow`].
    #[serde(with = "packed")]
    pub sojourn_ns: Vec<u64>,
    /// See [`PacketRow`].
    #[serde(with = "packed")]
    pub size_bytes: Vec<u32>,
    /// See [`PacketRow`].
    #[serde(with = "packed")]
    pub flow: Vec<u32>,
    /// See [`PacketRow`].
    #[serde(with = "packed")]
    pub verdict: Vec<Verdict>,
    /// See [`PacketRow`].
    #[serde(with = "packed")]
    pub reason: Vec<u16>,
}

impl Packets {
    /// Number of packets.
    pub fn len(&self) -> usize {
        self.at_ns.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.at_ns.is_empty()
    }

    /// Adds a packet.
    pub fn push(&mut self, row: PacketRow) {
        self.at_ns.push(row.at_ns);
        self.sojourn_ns.push(row.sojourn_ns);
        self.size_bytes.push(row.size_bytes);
        self.flow.push(row.flow);
        self.verdict.push(row.verdict);
        self.reason.push(row.reason);
    }

    /// The packet at a place.
    pub fn row(&self, at: usize) -> PacketRow {
        PacketRow {
            at_ns: self.at_ns[at],
            sojourn_ns: self.sojourn_ns[at],
            size_bytes: self.size_bytes[at],
            flow: self.flow[at],
            verdict: self.verdict[at],
            reason: self.reason[at],
        }
    }

    /// All packets.
    pub fn rows(&self) -> impl Iterator<Item = PacketRow> + '_ {
        (0..self.len()).map(|at| self.row(at))
    }
}

/// JSON has no NaN: a gap is `null` there.
mod gaps {
    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<S: Serializer>(values: &[f64], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(
            values
                .iter()
                .map(|value| value.is_finite().then_some(*value)),
        )
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<f64>, D::Error> {
        let values = Vec::<Option<f64>>::deserialize(deserializer)?;
        Ok(values
            .into_iter()
            .map(|value| value.unwrap_or(f64::NAN))
            .collect())
    }
}
