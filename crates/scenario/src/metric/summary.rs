//! The results of a run: the figures of `summary.json`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::unit::Unit;
use crate::{Direction, PipeId};

/// Percentiles of a span of time.
///
/// A percentile is an observed value: the smallest value such that at least that part of all values
/// is not larger (RFC 2330 section 11.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Percentiles {
    /// The number of values.
    pub count: u64,
    /// The smallest value.
    pub min_ns: u64,
    /// The median.
    pub p50_ns: u64,
    /// The 95th percentile.
    pub p95_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
    /// The largest value.
    pub max_ns: u64,
    /// The mean, rounded down.
    pub mean_ns: u64,
    /// The standard deviation, with n - 1 and rounded; 0 for a single value.
    pub deviation_ns: u64,
}

/// Of more flows of one type and direction than this, [`Summary::crowds`] has the completion times
/// over all of them: a page shows no more of them one by one.
pub const MOST_TRANSFERS: usize = 8;

/// The figures of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The variant.
    pub variant: String,
    /// The time over which figures are taken.
    pub window: Window,
    /// Every single flow.
    pub flows: Vec<FlowSummary>,
    /// Flows with a `count`, taken together.
    pub groups: Vec<FlowSummary>,
    /// The completion times of the transfers and pages of each type and direction of which the
    /// scenario declares more than [`MOST_TRANSFERS`] flows, over all of them. Other figures are
    /// left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub crowds: Vec<FlowSummary>,
    /// Both directions of the link.
    pub pipes: Vec<PipeSummary>,
    /// Payload per second of all flows in both directions.
    pub total_goodput_bps: Option<f64>,
    /// The directions that carry payload.
    pub directions: Vec<DirectionSummary>,
    /// The smaller [`DirectionSummary::jain`] of both directions.
    pub jain: Option<f64>,
    /// The smaller [`DirectionSummary::jain_min`] of both directions.
    pub jain_min: Option<f64>,
    /// The smaller [`DirectionSummary::jain_mean`] of both directions.
    pub jain_mean: Option<f64>,
    /// The accuracy of the emulation; `None` in a simulation.
    pub accuracy: Option<Accuracy>,
}

impl Summary {
    /// Returns the number of segments that all TCP flows sent again; `None` without such flows.
    pub fn retransmits(&self) -> Option<u64> {
        let each = self.flows.iter().filter_map(|flow| flow.retransmits);
        each.reduce(|a, b| a + b)
    }

    /// Returns the flows as the scenario declares them, in its order: the flows of a `count`
    /// together, and every other flow by itself.
    pub fn declared(&self) -> Vec<&FlowSummary> {
        let mut groups = self.groups.iter().peekable();
        let mut declared: Vec<&FlowSummary> = Vec::new();
        let mut rest = self.flows.as_slice();
        while let [flow, ..] = rest {
            // The flows of a group follow each other.
            let members = groups.peek().map_or(0, |group| group.members(rest));
            let next = match members {
                0 => None,
                _ => groups.next(),
            };
            declared.push(next.unwrap_or(flow));
            rest = &rest[members.max(1)..];
        }
        declared
    }

    /// Returns the flows with transfers or pages as the scenario declares them; in place of more
    /// than `most` of one type and direction, which is [`MOST_TRANSFERS`] or more, what
    /// [`Summary::crowds`] has of them.
    pub fn transfers(&self, most: usize) -> Vec<&FlowSummary> {
        let mut declared = self.declared();
        declared.retain(|flow| flow.has_transfers());
        let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        for flow in &declared {
            *counts.entry(flow.kind()).or_default() += 1;
        }
        let is_many = |crowd: &&FlowSummary| counts.get(&crowd.kind()) > Some(&most);
        let mut shown: Vec<&FlowSummary> = self.crowds.iter().filter(is_many).collect();
        declared.retain(|flow| shown.iter().all(|crowd| crowd.kind() != flow.kind()));
        shown.extend(declared);
        shown
    }
}

/// The figures of all flows of a direction together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct DirectionSummary {
    /// The direction.
    pub direction: Direction,
    /// Payload that arrived, per second.
    pub goodput_bps: f64,
    /// Jain's fairness index over the goodputs of the TCP flows that last until they are stopped;
    /// `None` with fewer than two.
    pub jain: Option<f64>,
    /// The smallest index over the windows of goodput in which at least two of them were active.
    pub jain_min: Option<f64>,
    /// The mean index over these windows.
    pub jain_mean: Option<f64>,
}

/// The time over which figures are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Window {
    /// The time left out at the start of the run, and of each flow that does not end by itself.
    pub warmup_ns: u64,
    /// The actual end of the run, which is earlier than planned if the run was stopped.
    pub end_ns: u64,
}

/// The figures of a flow. Figures that its type does not have are `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowSummary {
    /// The name.
    pub name: String,
    /// The type.
    #[serde(rename = "type")]
    pub type_name: String,
    /// `up` or `down`.
    pub direction: String,
    /// The number of flows that are taken together; `None` for a single one, and in the results of
    /// older programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Payload that arrived, per second of the measured time.
    pub goodput_bps: Option<f64>,
    /// Payload that arrived from the start of the flow to its end.
    pub bytes: Option<u64>,
    /// Segments sent again in the measured time.
    pub retransmits: Option<u64>,
    /// Time from the start to the last byte, if the flow had a number of bytes and completed them.
    pub fct_ns: Option<u64>,
    /// The completion times of all transfers of the flow.
    pub fct: Option<Percentiles>,
    /// Transfers or pages that had begun and were not complete at the end; `None` for a flow without
    /// them, for a connection of a recorded program, and in the results of older programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open: Option<u64>,
    /// The sender's smoothed round-trip time, over its samples.
    pub srtt: Option<Percentiles>,
    /// Round-trip time of the probes.
    pub rtt: Option<Percentiles>,
    /// Delay of the probes in the direction up.
    pub up: Option<Percentiles>,
    /// Delay of the probes in the direction down.
    pub down: Option<Percentiles>,
    /// Share of the packets sent that did not arrive; for probes, share without a reply.
    pub loss: Option<f64>,
    /// Time from arrival at the queue of the flow's direction to departure, over the flow's
    /// packets; of several queues, at that in which they waited longest.
    pub sojourn: Option<Percentiles>,
    /// Wire packets of the flow that the queues of its direction dropped.
    pub drops: u64,
    /// Wire packets of the flow that the queues of its direction marked.
    pub marks: u64,
    /// Mean interarrival jitter: of the packets of a call or of other UDP packets, or of the probes'
    /// round trips.
    pub jitter_ns: Option<u64>,
    /// The mean opinion score of a voice call in its direction, 1 to 4.5.
    pub mos: Option<f64>,
    /// Time from the start until the flow first had about an equal share.
    pub convergence_ns: Option<u64>,
    /// Time from the start of a program to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_ns: Option<u64>,
    /// The figures that a program reported, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reported: BTreeMap<String, Reported>,
}

/// A figure that a program reported.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reported {
    /// The unit.
    pub unit: Unit,
    /// The value in nanoseconds, in bits per second, as a ratio or as a count.
    pub value: f64,
}

/// The figures of one direction of the link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PipeSummary {
    /// `up` or `down`.
    pub name: String,
    /// Bytes that left the queue, divided by those that the rate allows; `None` without a rate.
    pub utilisation: Option<f64>,
    /// Time from arrival to departure, over the packets that left.
    pub sojourn: Option<Percentiles>,
    /// Share of the wire packets that were dropped, among those that left or were dropped.
    pub loss: Option<f64>,
    /// Share of the wire packets that left with a CE mark from the queue.
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
    /// Wire packets that the queue marked with CE.
    pub marks: u64,
}

impl FlowSummary {
    /// Returns whether the flow is a call, by its type: it has a score and the delays of one
    /// direction, and no round trips. Other flows have a score, too: that of a call on their path.
    pub fn is_call(&self) -> bool {
        self.has_figure("mos") && self.has_figure("up.p50") && !self.has_figure("p50")
    }

    /// Returns whether the flow is a ping, by its type: it has round trips and the delays of one
    /// direction. Exchanges over a connection have round trips only.
    pub fn is_ping(&self) -> bool {
        self.has_figure("p50") && self.has_figure("up.p50")
    }

    /// Returns whether the flow loads pages, by its type: they have completion times, and none of
    /// them is the time of the flow.
    pub fn is_pages(&self) -> bool {
        self.has_figure("fct.p50") && !self.has_figure("fct")
    }

    /// Returns whether the flow has transfers or pages, of which some may be open. A connection of a
    /// program that was recorded has none: it lasts as long as the program keeps it open.
    pub fn has_transfers(&self) -> bool {
        self.open.is_some()
    }

    /// Returns the type and the direction.
    fn kind(&self) -> (&str, &str) {
        (&self.type_name, &self.direction)
    }

    /// Returns how many of `flows`, from the first on, are those of this group: their numbers begin
    /// with 1. Without its number of flows, they end where the numbers do.
    fn members(&self, flows: &[FlowSummary]) -> usize {
        let is_member = |(number, flow): &(u64, &FlowSummary)| {
            let own = flow.name.strip_prefix(&self.name);
            own.and_then(|own| own.strip_prefix('-')) == Some(number.to_string().as_str())
        };
        let most = self.count.unwrap_or(u64::MAX);
        (1..=most).zip(flows).take_while(is_member).count()
    }

    fn has_figure(&self, name: &str) -> bool {
        crate::flow_types_with(name).contains(&self.type_name.as_str())
    }

    /// Returns the direction.
    pub fn way(&self) -> Direction {
        Direction::from_word(&self.direction).unwrap_or(Direction::Up)
    }
}

impl PipeSummary {
    /// Returns the figure that the meter of this name measured; `None` if it measured nothing.
    pub fn metered(&self, name: &str) -> Option<f64> {
        self.metered.get(name).copied().flatten()
    }

    /// Returns the direction.
    pub fn way(&self) -> Direction {
        PipeId::from_word(&self.name).map_or(Direction::Up, PipeId::direction)
    }
}

/// The error of the emulation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Accuracy {
    /// The relative error of the rate over the busy periods; negative when slow.
    pub rate_error: Option<f64>,
    /// The sum of the lengths of the busy periods.
    pub busy_ns: u64,
    /// Lateness of the packets.
    pub lateness: Option<Percentiles>,
    /// Packets lost anywhere but in the queue, by cause.
    pub lost: BTreeMap<String, u64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FlowKind;

    #[test]
    fn calls_and_pings_are_known_by_the_figures_of_their_types() {
        let types = |is_it: fn(&FlowSummary) -> bool| -> Vec<&str> {
            let of_type = |type_name: &&str| {
                is_it(&FlowSummary {
                    type_name: (*type_name).to_owned(),
                    ..FlowSummary::default()
                })
            };
            FlowKind::TYPES.iter().copied().filter(of_type).collect()
        };
        // Other UDP packets have a score, too, and exchanges (`rr`) have round trips.
        assert_eq!(types(FlowSummary::is_call), ["voip"]);
        assert_eq!(types(FlowSummary::is_ping), ["ping"]);
        // Transfers of TCP have completion times, too.
        assert_eq!(types(FlowSummary::is_pages), ["web"]);
    }

    #[test]
    fn the_flows_of_a_count_are_declared_together() {
        let flow = |name: &str| FlowSummary {
            name: name.to_owned(),
            ..FlowSummary::default()
        };
        let summary = Summary {
            variant: String::new(),
            window: Window {
                warmup_ns: 0,
                end_ns: 0,
            },
            // `web-9` is no flow of `web`, which has two, and `bulk-1` is no flow of a `count`.
            flows: ["bulk-1", "web-1", "web-2", "web-9", "ping", "a-1", "a-2"]
                .map(flow)
                .into(),
            groups: ["web", "a"].map(flow).into(),
            crowds: Vec::new(),
            pipes: Vec::new(),
            total_goodput_bps: None,
            directions: Vec::new(),
            jain: None,
            jain_min: None,
            jain_mean: None,
            accuracy: None,
        };
        let declared = summary.declared();
        let names: Vec<&str> = declared.iter().map(|flow| flow.name.as_str()).collect();
        assert_eq!(names, ["bulk-1", "web", "web-9", "ping", "a"]);
        // With the number of its flows, a group ends before the next number, too.
        let mut summary = summary;
        summary.groups[0].count = Some(2);
        summary.flows[3].name = "web-3".into();
        let declared = summary.declared();
        let names: Vec<&str> = declared.iter().map(|flow| flow.name.as_str()).collect();
        assert_eq!(names, ["bulk-1", "web", "web-3", "ping", "a"]);
    }

    #[test]
    fn a_summary_of_an_older_program_does_not_know_what_was_open() {
        let flow = FlowSummary::default();
        let json = serde_json::to_string(&flow).unwrap();
        assert!(!json.contains("open"), "{json}");
        let read: FlowSummary = serde_json::from_str(&json).unwrap();
        assert_eq!(read.open, None);
        let open = FlowSummary {
            open: Some(2),
            ..flow
        };
        let json = serde_json::to_string(&open).unwrap();
        assert!(json.contains("\"open\":2"), "{json}");
        assert_eq!(serde_json::from_str::<FlowSummary>(&json).unwrap(), open);
    }
}
