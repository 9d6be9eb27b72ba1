//! The state of everything as plain values: for `--json`, dashboards and the text of `show`.
//!
//! Times are in nanoseconds and rates in bits per second (0: no limit). A super-packet counts as
//! its segments.

use std::net::IpAddr;

use sluice_core::event::StateValue;

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
    /// The states of rules; `list` has them with `-d` or `-D` only.
    pub states: Vec<DynamicRuleState>,
    /// The groups by which rules with `limit` count these states.
    pub groups: Vec<GroupState>,
}

/// A pipe: its link, and the FIFO before it.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct PipeState {
    /// The link.
    pub link: LinkState,
    /// The flowset that a `pipe` rule names.
    pub flowset: FlowsetState,
    /// The FIFO in front of the link.
    pub scheduler: SchedulerLine,
    /// One row per flow of the mask.
    pub flows: Vec<FlowState>,
}

/// A scheduler with its link.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct SchedulerState {
    /// The link with the same number.
    pub link: LinkState,
    /// The flowset of the single queue, if the scheduler has one queue.
    pub flowset: Option<FlowsetState>,
    /// The scheduler.
    pub scheduler: SchedulerLine,
    /// Numbers of the queues that use the scheduler.
    pub children: Vec<u32>,
    /// One row per flow of the mask.
    pub flows: Vec<FlowState>,
}

/// A queue, with one row per flow of its mask.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct QueueState {
    /// The flowset.
    pub flowset: FlowsetState,
    /// One row per flow of the mask.
    pub flows: Vec<FlowState>,
}

/// A link.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct LinkState {
    /// The pipe's number.
    pub number: u32,
    /// Bits per second; 0 means no limit.
    pub rate_bps: u64,
    /// Propagation delay.
    pub delay_ns: u64,
    /// Burst credit.
    pub burst_bytes: u64,
    /// The delay profile.
    pub profile: Option<ProfileState>,
    /// Further effects, in the words of the command.
    pub effects: Vec<String>,
}

/// A delay profile.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct ProfileState {
    /// Name.
    pub name: String,
    /// The fraction of the packets that is not lost.
    pub loss_level: f64,
    /// The number of samples.
    pub samples: usize,
}

/// A flowset.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct FlowsetState {
    /// Number.
    pub number: u32,
    /// The number of packets that each queue holds, if the limit counts packets.
    pub limit_packets: Option<u64>,
    /// The number of bytes that each queue holds, if the limit counts bytes.
    pub limit_bytes: Option<u64>,
    /// Loss in front of the queue: one probability, or the four of a Markov chain.
    pub loss: Vec<f64>,
    /// Number of active queues.
    pub active: usize,
    /// Configured size of dummynet's table.
    pub buckets: u32,
    /// The scheduler that serves the queues.
    pub scheduler: u32,
    /// Weight, or priority.
    pub weight: u32,
    /// Longest packet.
    pub max_len: u32,
    /// Stored, but not used.
    pub priority: u32,
    /// The policy that drops or marks before the queue is full, in dummynet's words.
    pub policy: String,
    /// The mask in the words of the command; empty if there is none.
    pub mask: String,
    /// The mask, for the text of `show`.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub mask_bits: crate::flow::Mask,
}

/// The part of a scheduler that is shown on its own line.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct SchedulerLine {
    /// Number.
    pub number: u32,
    /// The discipline.
    pub kind: &'static str,
    /// Parameters in dummynet's words; empty if it has none.
    pub parameters: String,
    /// Configured size of dummynet's table.
    pub buckets: u32,
    /// Instances at work.
    pub active: usize,
    /// The mask in the words of the command; empty if there is none.
    pub mask: String,
    /// The mask, for the text of `show`.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub mask_bits: crate::flow::Mask,
    /// The counters of flows that were deleted, and of packets for flows that could get no instance.
    pub forgotten: CounterState,
}

/// A flow of a mask, with its counters.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct FlowState {
    /// Number of dummynet's bucket.
    pub bucket: u32,
    /// Whether the mask distinguishes flowsets.
    pub has_extra: bool,
    /// The flowset, if the mask distinguishes flowsets; otherwise 0.
    pub flowset: u32,
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
    /// Whether the flow is at work; otherwise only its counters are kept.
    pub is_active: bool,
    /// The counters.
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
    /// Time in the queue; `None` before the first packet has left it.
    pub wait: Option<WaitState>,
    /// Variables of the algorithm: queue, name, value. As JSON, times are in nanoseconds.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_numbers"))]
    pub variables: Vec<(u32, &'static str, StateValue)>,
}

#[cfg(feature = "serde")]
fn as_numbers<S: serde::Serializer>(
    variables: &[(u32, &'static str, StateValue)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(
        variables
            .iter()
            .map(|(queue, name, value)| (queue, name, value.as_f64())),
    )
}

/// Percentiles of the time in the queue, at most an eighth too high.
#[derive(Clone, Copy, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct WaitState {
    /// 50 % of the packets waited no longer.
    pub p50_ns: u64,
    /// 95 % of the packets waited no longer.
    pub p95_ns: u64,
    /// 99 % of the packets waited no longer.
    pub p99_ns: u64,
    /// The longest wait.
    pub max_ns: u64,
}

/// The counters.
#[derive(Clone, Debug, Default, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct CounterState {
    /// Packets that arrived, including dropped ones.
    pub packets: u64,
    /// Bytes of these packets.
    pub bytes: u64,
    /// Packets that reached the far end.
    pub departed: u64,
    /// Packets that were CE-marked here.
    pub marked: u64,
    /// Packets that were dropped.
    pub dropped: u64,
    /// Drops by reason, without zeros.
    pub dropped_for: Vec<(&'static str, u64)>,
}

impl CounterState {
    /// Adds the counters of the same object at another worker.
    pub(crate) fn absorb(&mut self, other: &CounterState) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.departed += other.departed;
        self.marked += other.marked;
        self.dropped += other.dropped;
        for (reason, more) in &other.dropped_for {
            let known = self.dropped_for.iter_mut().find(|(name, _)| name == reason);
            match known {
                Some((_, count)) => *count += more,
                None => self.dropped_for.push((reason, *more)),
            }
        }
    }
}

/// A rule.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct RuleState {
    /// Number.
    pub number: u32,
    /// Set.
    pub set: u8,
    /// Whether its set is enabled.
    pub is_enabled: bool,
    /// Packets that matched.
    pub packets: u64,
    /// Bytes of these packets.
    pub bytes: u64,
    /// The instant at which the rule last matched.
    pub last_match_ns: Option<u64>,
    /// The rule as `list` writes it.
    pub text: String,
}

/// A state that a rule with `keep-state` or `limit` has created: a dynamic rule.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct DynamicRuleState {
    /// Number of the rule.
    pub rule: u32,
    /// The word that has created the state: `keep-state` or `limit`.
    pub kind: &'static str,
    /// Name of the state, `default` if the rule has none.
    pub name: String,
    /// Protocol.
    pub proto: u8,
    /// Address of the end that sent the first packet.
    pub src: IpAddr,
    /// Its port; 0 if the protocol has no ports.
    pub src_port: u16,
    /// Address of the other end.
    pub dst: IpAddr,
    /// Its port.
    pub dst_port: u16,
    /// Packets in both directions.
    pub packets: u64,
    /// Bytes of these packets.
    pub bytes: u64,
    /// The time until the state expires; 0 if it has expired.
    pub expires_in_ns: u64,
}

/// The states of a rule with `limit` that have the rule's fields in common. Fields that the rule does
/// not name are unspecified addresses, and ports of 0.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct GroupState {
    /// Number of the rule.
    pub rule: u32,
    /// Name of the states.
    pub name: String,
    /// Protocol.
    pub proto: u8,
    /// Address of the ends that sent the first packets.
    pub src: IpAddr,
    /// Their port.
    pub src_port: u16,
    /// Address of the other ends.
    pub dst: IpAddr,
    /// Their port.
    pub dst_port: u16,
    /// The number of states.
    pub states: u32,
}
