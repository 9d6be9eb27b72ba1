//! A sample: the state of a router over one interval, as values.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use sluice_core::{DropReason, Span};
use sluice_ipfw::watch::{Traffic, Waits};

use super::{FlowExport, FlowFile};
use crate::control::Change;
use crate::process::Status;
use crate::rtt::RttSource;

/// The state of a router over one interval. Rates are in bits per second, times in nanoseconds. A
/// super-packet counts as its segments in objects and flows, and once in the status, in the ports and in
/// the lateness.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The number of the sample, from 1.
    pub number: u64,
    /// The end of the interval, in milliseconds since the Unix epoch.
    pub unix_ms: u64,
    /// The length of the interval.
    pub interval_ns: u64,
    /// The status at the end of the interval.
    pub status: Status,
    /// The traffic of the ports, in the order of the status.
    pub ports: Vec<PortSample>,
    /// The lateness of the packets that left.
    pub lateness: LatenessSample,
    /// Pipes, schedulers and queues, and the flows of their masks, by number; the busiest ones if
    /// there are many.
    pub objects: Vec<ObjectSample>,
    /// Pipes, schedulers and queues without a row.
    pub unlisted: u64,
    /// The traffic of pipes and schedulers without a row.
    pub other: TrafficSample,
    /// The traffic of all pipes and schedulers since the watch began, with and without a row.
    pub all_total: TotalTraffic,
    /// The busiest flows through pipes, busiest first.
    pub flows: Vec<FlowSample>,
    /// The traffic of all flows without a row.
    pub other_flows: TrafficSample,
    /// Round-trip times of the last 30 to 60 intervals, if they are measured (`--rtt`).
    pub rtt: Option<RttSample>,
    /// The fate of the records of flows that are sent to a collector, if they are
    /// (`--flow-export`).
    #[serde(default)]
    pub flow_export: Option<FlowExport>,
    /// The fate of the records of flows that are written to a file, if they are (`--flow-log`).
    #[serde(default)]
    pub flow_log: Option<FlowFile>,
    /// Events that were logged since the start, if they are logged.
    #[serde(default)]
    pub events: Option<u64>,
    /// The last changes of the configuration, oldest first.
    pub changes: Vec<Change>,
    /// Changes of the configuration since the start.
    #[serde(default)]
    pub changes_total: u64,
}

/// The traffic of a port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PortSample {
    /// The name of the port.
    pub name: String,
    /// The rate received.
    pub received_bps: u64,
    /// The rate sent.
    pub sent_bps: u64,
    /// Frames received per second.
    pub received_per_s: u64,
    /// Frames sent per second.
    pub sent_per_s: u64,
    /// Frames that the port or the kernel lost in the interval.
    pub lost: u64,
}

/// The lateness of packets: upper bounds, at most an eighth above the true values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatenessSample {
    /// Packets that left.
    pub packets: u64,
    /// The median.
    pub p50_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
    /// The 99.9th percentile.
    pub p999_ns: u64,
    /// For each power of two, the packets since the start that were less late than 2^i ns and not
    /// counted in an earlier element.
    pub since_start: Vec<u64>,
}

/// Traffic in the interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrafficSample {
    /// The rate of arrivals, including dropped packets.
    pub arrived_bps: u64,
    /// The rate at which packets left the queue.
    pub rate_bps: u64,
    /// Packets per second that left the queue.
    pub packets_per_s: u64,
    /// Packets that arrived.
    pub arrived_packets: u64,
    /// Packets that left the queue.
    pub packets: u64,
    /// Bytes that left the queue.
    pub bytes: u64,
    /// Packets that were CE-marked.
    pub marked: u64,
    /// Packets that were dropped, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Sojourn times of the packets that left the queue, if any did.
    pub sojourn: Option<Sojourn>,
}

/// Round-trip times of flows, from the router to the host that answers and back. Each source has rows
/// of its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RttSample {
    /// Those of all hosts.
    pub all: Vec<RttRow>,
    /// By the pipe or queue that the packets entered.
    pub objects: Vec<RttRow>,
    /// The hosts with most samples.
    pub hosts: Vec<RttRow>,
}

/// Round-trip times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RttRow {
    /// The pipe or queue, or the address of the host.
    pub name: String,
    /// The signal that they are measured from.
    pub source: RttSource,
    /// The number of round-trip times.
    pub samples: u64,
    /// The round-trip times, if there are any.
    pub rtt: Option<Sojourn>,
    /// A histogram of all round-trip times since the watch began.
    pub total_rtt: SojournCounts,
}

/// Traffic since the watch began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TotalTraffic {
    /// Packets that arrived, including dropped ones.
    pub total_packets: u64,
    /// Bytes that arrived.
    pub total_bytes: u64,
    /// Packets that were CE-marked.
    pub total_marked: u64,
    /// Packets that were dropped, by reason.
    pub total_dropped: BTreeMap<String, u64>,
    /// Sojourn times of the packets that left.
    pub total_sojourn: SojournCounts,
}

impl TotalTraffic {
    pub(super) fn absorb(&mut self, traffic: &Traffic) {
        self.total_packets += traffic.arrived_packets;
        self.total_bytes += traffic.arrived_bytes;
        self.total_marked += traffic.marked;
        for reason in DropReason::ALL {
            let count = traffic.dropped(*reason);
            if count > 0 {
                *self
                    .total_dropped
                    .entry(reason.name().to_owned())
                    .or_default() += count;
            }
        }
        self.total_sojourn.absorb(&traffic.waits);
    }
}

/// Sojourn times: enqueue to dequeue. Percentiles are at most 1/16 off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sojourn {
    /// The mean.
    pub mean_ns: u64,
    /// The median.
    pub p50_ns: u64,
    /// The 95th percentile.
    pub p95_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// A histogram of sojourn times.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SojournCounts {
    /// Packets that left the queue.
    pub packets: u64,
    /// The sum of their sojourn times.
    pub sum_ns: u64,
    /// For each of [`SojournCounts::LIMITS`], the packets that waited for less.
    pub below: Vec<u64>,
}

impl SojournCounts {
    /// The limits in nanoseconds: powers of two from 131 us to 8.6 s, at which counts are exact.
    pub const LIMITS: [u64; 17] = {
        let mut limits = [0; 17];
        let mut i = 0;
        while i < limits.len() {
            limits[i] = 1 << (i + 17);
            i += 1;
        }
        limits
    };

    pub(super) fn absorb(&mut self, waits: &Waits) {
        self.packets += waits.packets();
        let sum_ns = u64::try_from(waits.sum_ns()).unwrap_or(u64::MAX);
        self.sum_ns = self.sum_ns.saturating_add(sum_ns);
        self.below.resize(Self::LIMITS.len(), 0);
        for (count, limit) in self.below.iter_mut().zip(Self::LIMITS) {
            *count += waits.below(Span::from_ns(limit));
        }
    }
}

/// A pipe, scheduler or queue, or one flow of its mask.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ObjectSample {
    /// The name as in commands: `pipe 1`, `sched 1` or `queue 1`.
    pub name: String,
    /// The masked flow, for an object with a mask.
    pub flow: Option<String>,
    /// The scheduler of a queue.
    pub parent: Option<String>,
    /// The algorithm with its parameters, in the words of the command.
    pub words: String,
    /// The rate of the link; 0 without a limit.
    pub link_bps: u64,
    /// The delay of the link.
    pub delay_ns: u64,
    /// Packets that wait.
    pub backlog_packets: u64,
    /// Bytes that wait.
    pub backlog_bytes: u64,
    /// Packets on the link.
    pub in_flight_packets: u64,
    /// Whether the object has a queue at work; otherwise only its counters are kept.
    pub is_active: bool,
    /// Packets that arrived since the object exists.
    pub total_packets: u64,
    /// Bytes that arrived since the object exists.
    pub total_bytes: u64,
    /// Packets that were marked since the object exists.
    pub total_marked: u64,
    /// Packets that were dropped since the object exists, by reason.
    pub total_dropped: BTreeMap<String, u64>,
    /// The sojourn times of the packets that left while the object had a row, since it was first watched.
    pub total_sojourn: SojournCounts,
    /// The variables of the algorithm; of several queues, the largest value. Times are in
    /// nanoseconds; an instant is relative to the end of the interval, and missing if it had passed
    /// when the interval began.
    pub state: BTreeMap<String, f64>,
    /// The kinds of these variables: `count`, `instant`, `span`, `ratio` or `flag`.
    #[serde(default)]
    pub state_kinds: BTreeMap<String, String>,
    /// The traffic.
    #[serde(flatten)]
    pub traffic: TrafficSample,
}

/// A flow through a pipe or scheduler.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FlowSample {
    /// The pipe or scheduler.
    pub object: String,
    /// Source address.
    pub src: IpAddr,
    /// Source port; 0 without ports.
    pub src_port: u16,
    /// Destination address.
    pub dst: IpAddr,
    /// Destination port; 0 without ports.
    pub dst_port: u16,
    /// Protocol number.
    pub proto: u8,
    /// Identifier of ICMP echo requests and replies.
    #[serde(default)]
    pub icmp_id: Option<u16>,
    /// Packets that wait, of those that arrived since the watch began. These are all of them once those
    /// from before it have left.
    pub backlog_packets: u64,
    /// The traffic.
    #[serde(flatten)]
    pub traffic: TrafficSample,
}

impl TrafficSample {
    /// Packets that were dropped for any reason.
    pub fn dropped_total(&self) -> u64 {
        self.dropped.values().sum()
    }
}

impl ObjectSample {
    /// Returns the reasons for which a pipe, scheduler or queue drops packets. Rules and ports have the
    /// other reasons.
    pub fn drop_names() -> impl Iterator<Item = &'static str> {
        let of_others = [DropReason::Denied, DropReason::Port, DropReason::Malformed];
        let own = DropReason::ALL.iter();
        let own = own.filter(move |reason| !of_others.contains(reason));
        own.map(|reason| reason.name())
    }

    /// Returns the name, with the flow of a mask.
    pub fn label(&self) -> String {
        match &self.flow {
            Some(flow) => format!("{} {flow}", self.name),
            None => self.name.clone(),
        }
    }
}

impl FlowSample {
    /// Returns the flow as text: `udp 10.0.0.1:7 > 10.0.0.2:9`, `icmp 10.0.0.1 > 10.0.0.2 id 7`.
    pub fn label(&self) -> String {
        let proto = match self.proto {
            1 => "icmp".to_owned(),
            6 => "tcp".to_owned(),
            17 => "udp".to_owned(),
            58 => "icmp6".to_owned(),
            other => format!("proto {other}"),
        };
        let src = end(self.src, self.src_port);
        let id = self.icmp_id.map_or(String::new(), |id| format!(" id {id}"));
        format!("{proto} {src} > {}{id}", end(self.dst, self.dst_port))
    }
}

/// Returns an address with its port, if there is one.
pub(super) fn end(address: IpAddr, port: u16) -> String {
    match (address, port) {
        (address, 0) => address.to_string(),
        (IpAddr::V6(address), port) => format!("[{address}]:{port}"),
        (address, port) => format!("{address}:{port}"),
    }
}
