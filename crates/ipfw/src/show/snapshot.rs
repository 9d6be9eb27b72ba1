//! The state of everything as plain values: for `--json`, dashboards and the text of `show`.
//!
//! Times are in nanoseconds, rates in bits per second (0: no limit), super-packets count their
//! segments.

use std::net::IpAddr;

/// The state at an instant.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Snapshot {
    /// The instant.
    pub now_ns: u64,
    /// Pipes by number.
    pub pipes: Vec<PipeState>,
    /// Schedulers by number, without the FIFOs of pipes.
    pub schedulers: Vec<SchedulerState>,
    /// Queues by number.
    pub queues: Vec<QueueState>,
    /// Rules in order.
    pub rules: Vec<RuleState>,
}

/// A pipe: its link, and the FIFO before it.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct PipeState {
    /// Its link.
    pub link: LinkState,
    /// The flowset that a `pipe` rule goes into.
    pub flowset: FlowsetState,
    /// The FIFO, with one row per flow of the mask.
    pub scheduler: SchedulerLine,
    /// The flows.
    pub flows: Vec<FlowState>,
}

/// A scheduler with its link.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct SchedulerState {
    /// The link of its number.
    pub link: LinkState,
    /// The flowset of its only queue, if it has one queue.
    pub flowset: Option<FlowsetState>,
    /// The scheduler.
    pub scheduler: SchedulerLine,
    /// Numbers of the queues that feed it.
    pub children: Vec<u32>,
    /// One row per flow of its mask.
    pub flows: Vec<FlowState>,
}

/// A queue, with one row per flow of its mask.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct QueueState {
    /// The flowset.
    pub flowset: FlowsetState,
    /// The flows.
    pub flows: Vec<FlowState>,
}

/// A link.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct LinkState {
    /// The pipe's number.
    pub number: u32,
    /// Bits per second; 0 for no limit.
    pub rate_bps: u64,
    /// Propagation delay.
    pub delay_ns: u64,
    /// Burst credit.
    pub burst_bytes: u64,
    /// The delay profile.
    pub profile: Option<ProfileState>,
    /// What else it does, in the words of the command.
    pub effects: Vec<String>,
}

/// A delay profile.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ProfileState {
    /// Its name.
    pub name: String,
    /// The part of the packets that is not lost.
    pub loss_level: f64,
    /// How many samples it has.
    pub samples: usize,
}

/// A flowset.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct FlowsetState {
    /// Its number.
    pub number: u32,
    /// Packets that each queue holds, if packets are counted.
    pub limit_packets: Option<u64>,
    /// Bytes that each queue holds, if bytes are counted.
    pub limit_bytes: Option<u64>,
    /// Loss before the queue: one probability, or the four of a chain.
    pub loss: Vec<f64>,
    /// Queues at work.
    pub active: usize,
    /// Configured size of dummynet's table.
    pub buckets: u32,
    /// The scheduler that it feeds.
    pub scheduler: u32,
    /// Weight, or priority.
    pub weight: u32,
    /// Longest packet.
    pub max_len: u32,
    /// Stored only.
    pub priority: u32,
    /// What drops before the queue is full, in dummynet's words.
    pub policy: String,
    /// The mask in the words of the command; empty without one.
    pub mask: String,
    /// The mask, for the text of `show`.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub mask_bits: crate::flow::Mask,
}

/// A scheduler's own line.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct SchedulerLine {
    /// Its number.
    pub number: u32,
    /// The discipline.
    pub kind: &'static str,
    /// Its parameters in dummynet's words; empty where it has none.
    pub parameters: String,
    /// Configured size of dummynet's table.
    pub buckets: u32,
    /// Instances at work.
    pub active: usize,
    /// The mask in the words of the command; empty without one.
    pub mask: String,
    /// The mask, for the text of `show`.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub mask_bits: crate::flow::Mask,
    /// What was counted by flows that are forgotten.
    pub forgotten: CounterState,
}

/// A flow of a mask, and what it has been through.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct FlowState {
    /// Number of dummynet's bucket.
    pub bucket: u32,
    /// Whether the mask tells flowsets apart.
    pub has_extra: bool,
    /// Protocol, masked; 0 for any.
    pub proto: u8,
    /// Source address, masked.
    pub src: IpAddr,
    /// Source port, masked.
    pub src_port: u16,
    /// Destination address, masked.
    pub dst: IpAddr,
    /// Destination port, masked.
    pub dst_port: u16,
    /// Flow label, masked.
    pub flow_label: u32,
    /// Whether it is at work; if not, only its counters are kept.
    pub is_active: bool,
    /// What was counted.
    pub counters: CounterState,
    /// Packets that wait.
    pub queued_packets: u64,
    /// Bytes that wait.
    pub queued_bytes: u64,
    /// Packets on the link and in the delay line.
    pub in_flight_packets: u64,
    /// Bytes on the link and in the delay line.
    pub in_flight_bytes: u64,
    /// Rate at the far end over the last second.
    pub rate_bps: u64,
    /// Time that packets waited in the queue; none before the first.
    pub wait: Option<WaitState>,
    /// Variables of the algorithm: queue, name, value (times in nanoseconds).
    pub variables: Vec<(u32, &'static str, f64)>,
}

/// Percentiles of the time in the queue, at most an eighth too high.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct WaitState {
    /// Half of the packets waited less.
    pub p50_ns: u64,
    /// 95 of 100 did.
    pub p95_ns: u64,
    /// 99 of 100 did.
    pub p99_ns: u64,
    /// All did.
    pub max_ns: u64,
}

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct CounterState {
    /// Packets that came, dropped ones included.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets that arrived at the far end.
    pub departed: u64,
    /// Packets that were marked here.
    pub marked: u64,
    /// Packets that were dropped, for any reason.
    pub dropped: u64,
    /// By reason, where it is not zero.
    pub dropped_for: Vec<(&'static str, u64)>,
}

/// A rule.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct RuleState {
    /// Its number.
    pub number: u32,
    /// Its set.
    pub set: u8,
    /// Whether its set is enabled.
    pub is_enabled: bool,
    /// Packets that matched.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// When it last matched.
    pub last_match_ns: Option<u64>,
    /// The rule as `list` writes it.
    pub text: String,
}
