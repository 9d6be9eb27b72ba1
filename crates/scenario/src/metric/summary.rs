//! What a run comes to: the figures of `summary.json`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Direction, PipeId};

/// Percentiles of a length of time.
///
/// A percentile is an observed value: the smallest for which at least that part of all values is
/// not larger (RFC 2330 section 11.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Percentiles {
    /// How many values.
    pub count: u64,
    /// The smallest.
    pub min_ns: u64,
    /// Half of them are not larger.
    pub p50_ns: u64,
    /// 95 % of them are not larger.
    pub p95_ns: u64,
    /// 99 % of them are not larger.
    pub p99_ns: u64,
    /// The largest.
    pub max_ns: u64,
    /// Their mean, rounded down.
    pub mean_ns: u64,
}

/// A run in figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The variant.
    pub variant: String,
    /// What was measured over which time.
    pub window: Window,
    /// Every single flow.
    pub flows: Vec<FlowSummary>,
    /// Flows with a `count`, taken together.
    pub groups: Vec<FlowSummary>,
    /// Both directions of the link.
    pub pipes: Vec<PipeSummary>,
    /// Payload of all flows that carry any, both directions, per second.
    pub total_goodput_bps: Option<f64>,
    /// The directions that carry payload.
    pub directions: Vec<DirectionSummary>,
    /// The smaller [`DirectionSummary::jain`] of both directions.
    pub jain: Option<f64>,
    /// The smaller [`DirectionSummary::jain_min`] of both directions.
    pub jain_min: Option<f64>,
    /// The smaller [`DirectionSummary::jain_mean`] of both directions.
    pub jain_mean: Option<f64>,
    /// How far the emulation can be trusted; none in a simulation.
    pub accuracy: Option<Accuracy>,
}

/// All flows of a direction together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DirectionSummary {
    /// Which.
    pub direction: Direction,
    /// Payload that arrived, per second.
    pub goodput_bps: f64,
    /// Jain's fairness index over the goodputs of the TCP flows that last until they are stopped; none
    /// with fewer than two.
    pub jain: Option<f64>,
    /// The smallest index over the windows of goodput in which at least two of them were active.
    pub jain_min: Option<f64>,
    /// The mean index over these windows.
    pub jain_mean: Option<f64>,
}

/// The time that figures are taken over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// Left out at the start of the run, and of each flow that does not end by itself.
    pub warmup_ns: u64,
    /// The end of the run as it was: earlier than planned if it was stopped.
    pub end_ns: u64,
}

/// A flow in figures; those that its type does not have are none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowSummary {
    /// Its name.
    pub name: String,
    /// Its type.
    #[serde(rename = "type")]
    pub type_name: String,
    /// `up` or `down`.
    pub direction: String,
    /// Payload that arrived, per second of the window.
    pub goodput_bps: Option<f64>,
    /// Payload that arrived over the whole life.
    pub bytes: Option<u64>,
    /// Segments sent again in the window.
    pub retransmits: Option<u64>,
    /// From the start to the last byte, if the flow was to carry a number of bytes and did.
    pub fct_ns: Option<u64>,
    /// The same over all transfers of it.
    pub fct: Option<Percentiles>,
    /// The sender's smoothed round-trip time, over its samples.
    pub srtt: Option<Percentiles>,
    /// Round-trip time of the probes.
    pub rtt: Option<Percentiles>,
    /// Delay of the probes' way up.
    pub up: Option<Percentiles>,
    /// Delay of the probes' way down.
    pub down: Option<Percentiles>,
    /// Part of the packets sent that did not arrive (answers, for probes).
    pub loss: Option<f64>,
    /// From arrival at the queue of its direction to leaving it, of its own packets.
    pub sojourn: Option<Percentiles>,
    /// Its wire packets that the queue of its direction dropped.
    pub drops: u64,
    /// Its wire packets that the queue of its direction marked.
    pub marks: u64,
    /// Mean interarrival jitter: of the probes' round trips, or of UDP packets.
    pub jitter_ns: Option<u64>,
    /// What a voice call in its direction would be worth, 1 to 4.5.
    pub mos: Option<f64>,
    /// From its start until it had about its share.
    pub convergence_ns: Option<u64>,
}

/// One direction of the link in figures.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PipeSummary {
    /// `up` or `down`.
    pub name: String,
    /// Bytes that left the queue against those that the rate allows; none without a rate.
    pub utilisation: Option<f64>,
    /// From arrival to leaving the queue, of packets that left it.
    pub sojourn: Option<Percentiles>,
    /// Part of the wire packets that were dropped, of those that left or were dropped.
    pub loss: Option<f64>,
    /// Part of the wire packets that left that were given a CE mark.
    pub mark_ratio: Option<f64>,
    /// The figures that have a meter of their own, by name.
    #[serde(flatten)]
    pub metered: BTreeMap<String, Option<f64>>,
    /// Wire packets that arrived.
    pub packets: u64,
    /// Wire packets that left through the link.
    pub sent: u64,
    /// Wire packets dropped, by reason.
    pub drops: BTreeMap<String, u64>,
    /// Wire packets that were given a CE mark.
    pub marks: u64,
}

impl FlowSummary {
    /// Its direction.
    pub fn way(&self) -> Direction {
        Direction::from_word(&self.direction).unwrap_or(Direction::Up)
    }
}

impl PipeSummary {
    /// The figure that the meter of this name measured; none if it measured nothing.
    pub fn metered(&self, name: &str) -> Option<f64> {
        self.metered.get(name).copied().flatten()
    }

    /// Its direction.
    pub fn way(&self) -> Direction {
        PipeId::from_word(&self.name).map_or(Direction::Up, PipeId::direction)
    }
}

/// The error of the emulation itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Accuracy {
    /// Rate over the busy periods against the configured one, as a part of it; negative when slow.
    pub rate_error: Option<f64>,
    /// How long the busy periods were in all.
    pub busy_ns: u64,
    /// How late packets were released.
    pub lateness: Option<Percentiles>,
    /// Packets lost to anything but the queue, by cause.
    pub lost: BTreeMap<String, u64>,
}
