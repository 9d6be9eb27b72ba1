//! Collects a [`Snapshot`](super::Snapshot) from the objects at work.

use sluice_core::event::{Cx, DropReason};
use sluice_core::units::Time;

use super::policy;
use super::{
    CounterState, FlowState, FlowsetState, LinkState, PipeState, ProfileState, QueueState,
    SchedulerLine, SchedulerState, WaitState,
};
use crate::flow::{FlowId, Mask, real_buckets};
use crate::grammar::{At, Loss, NumberSpan, QueueSize};
use crate::objects::instance::Instance;
use crate::objects::layout::{FlowsetConfig, Layout, LinkConfig, STRIDE};
use crate::objects::runtime::Runtime;
use crate::objects::stats::{Counters, Histogram};
use crate::visits::visit;

/// Reads the objects.
pub(crate) struct Collector<'a> {
    pub layout: &'a Layout,
    pub runtime: &'a mut Runtime,
    pub is_compat: bool,
}

impl Collector<'_> {
    pub fn pipe(&mut self, number: u32, now: Time) -> Option<PipeState> {
        let mut pipe = self.pipe_head(number)?;
        pipe.fill(self.instances(number + STRIDE, now));
        Some(pipe)
    }

    /// Returns a pipe without its flows.
    pub fn pipe_head(&self, number: u32) -> Option<PipeState> {
        let link = self.layout.links.get(&number)?;
        let flowset = self.layout.flowsets.get(&(number + 2 * STRIDE))?;
        Some(PipeState {
            link: link_state(number, link),
            flowset: self.counted_flowset(number + 2 * STRIDE, flowset),
            scheduler: self.scheduler_line(number + STRIDE)?,
            flows: Vec::new(),
        })
    }

    pub fn scheduler(&mut self, number: u32, now: Time) -> Option<SchedulerState> {
        let mut scheduler = self.scheduler_head(number)?;
        scheduler.fill(self.instances(number, now));
        Some(scheduler)
    }

    /// Returns a scheduler without its flows.
    pub fn scheduler_head(&self, number: u32) -> Option<SchedulerState> {
        let config = self.layout.schedulers.get(&number)?;
        let internal = config
            .internal
            .and_then(|n| Some((n, self.layout.flowsets.get(&n)?)));
        // Higher numbers are the queues of pipes.
        let queues = self.layout.flowsets.numbers_of(number, ..STRIDE);
        Some(SchedulerState {
            link: link_state(number, self.layout.link_of(number)),
            children: queues.filter(|n| config.internal != Some(*n)).collect(),
            flowset: internal.map(|(n, flowset)| self.counted_flowset(n, flowset)),
            scheduler: self.scheduler_line(number)?,
            flows: Vec::new(),
        })
    }

    pub fn queue(&mut self, number: u32, cx: &mut Cx<'_>) -> Option<QueueState> {
        let mut queue = self.queue_head(number)?;
        let indexes = self.runtime.queues_of(number);
        let rows = indexes.into_iter().map(|index| self.queue_row(index, cx));
        queue.fill(rows.collect());
        Some(queue)
    }

    /// Returns a queue without its flows.
    pub fn queue_head(&self, number: u32) -> Option<QueueState> {
        let config = self.layout.flowsets.get(&number)?;
        Some(QueueState {
            flowset: self.flowset(number, config, 0),
            flows: Vec::new(),
        })
    }

    /// Returns a flowset with the number of its open queues.
    fn counted_flowset(&self, number: u32, config: &FlowsetConfig) -> FlowsetState {
        self.flowset(number, config, self.runtime.open_queues(number))
    }

    fn flowset(&self, number: u32, config: &FlowsetConfig, active: usize) -> FlowsetState {
        let (limit_packets, limit_bytes) = match config.queue {
            QueueSize::Slots(n) => (Some(n), None),
            QueueSize::Bytes(n) => (None, Some(n)),
        };
        FlowsetState {
            number,
            limit_packets,
            limit_bytes,
            loss: match config.loss {
                None => Vec::new(),
                Some(Loss::Independent(p)) => vec![p.as_f64()],
                Some(Loss::TwoState {
                    good,
                    to_bad,
                    bad,
                    to_good,
                }) => [good, to_bad, bad, to_good].map(|p| p.as_f64()).to_vec(),
            },
            active,
            buckets: config.buckets,
            scheduler: config.scheduler,
            weight: config.weight,
            max_len: config.max_len,
            priority: config.priority,
            policy: policy::policy(config.policy.as_ref(), config.aqm.as_ref(), self.is_compat),
            mask: words(&config.mask),
            mask_bits: config.mask,
        }
    }

    fn scheduler_line(&self, number: u32) -> Option<SchedulerLine> {
        let config = self.layout.schedulers.get(&number)?;
        let at_work = self.runtime.scheduler(number);
        Some(SchedulerLine {
            number,
            kind: config.spec.algorithm.name,
            parameters: policy::scheduler(&config.spec, self.is_compat),
            buckets: config.buckets,
            active: 0,
            mask: words(&config.mask),
            mask_bits: config.mask,
            forgotten: at_work.map_or_else(CounterState::default, |s| counters(&s.forgotten)),
        })
    }

    fn instances(&self, number: u32, now: Time) -> Rows {
        let buckets = self.layout.schedulers.get(&number).map_or(0, |s| s.buckets);
        let indexes = self.runtime.instances_of(number).into_iter();
        let rows = indexes.map(|i| {
            let instance = self.runtime.instance_at(i);
            (instance.key, instance_state(instance, buckets, now))
        });
        rows.collect()
    }

    /// Returns one queue of a flowset.
    pub fn queue_row(&mut self, index: u32, cx: &mut Cx<'_>) -> (FlowId, FlowState) {
        let queue = self.runtime.queue_at(index);
        let (key, instance) = (queue.key, queue.instance);
        let flowset = self.layout.flowsets.get(&queue.flowset);
        let mut flow = flow_state(key, flowset.map_or(1, |f| f.buckets));
        flow.counters = counters(&queue.counters);
        flow.is_active = queue.is_open;
        if flow.is_active && self.runtime.instance_at(instance).link.is_some() {
            self.runtime.with_link(instance, true, cx, |link, cx| {
                let Some(classful) = link.queue_mut(cx).as_classful() else {
                    return;
                };
                let held = classful.class_backlog(index).unwrap_or_default();
                flow.queued_packets = held.packets;
                flow.queued_bytes = held.bytes;
                classful.class_state(index, &mut |name, value| {
                    flow.variables.push((0, name, value));
                });
            });
        }
        (key, flow)
    }
}

/// Flows with their sort keys.
pub(crate) type Rows = Vec<(FlowId, FlowState)>;

impl PipeState {
    pub(crate) fn fill(&mut self, rows: Rows) {
        self.flows = sorted(rows);
        self.scheduler.active = active(&self.flows);
    }
}

impl SchedulerState {
    pub(crate) fn fill(&mut self, rows: Rows) {
        self.flows = sorted(rows);
        self.scheduler.active = active(&self.flows);
    }
}

impl QueueState {
    /// Sets the rows. A flow whose queue is open counts as active.
    pub(crate) fn fill(&mut self, rows: Rows) {
        self.flows = sorted(rows);
        self.flowset.active = active(&self.flows);
    }
}

fn sorted(mut rows: Rows) -> Vec<FlowState> {
    rows.sort_by_key(|(key, _)| *key);
    rows.into_iter().map(|(_, flow)| flow).collect()
}

/// Returns the number of active flows.
fn active(flows: &[FlowState]) -> usize {
    flows.iter().filter(|flow| flow.is_active).count()
}

fn words(mask: &Mask) -> String {
    if mask.is_empty() {
        String::new()
    } else {
        mask.to_string()
    }
}

pub(crate) fn link_state(number: u32, link: &LinkConfig) -> LinkState {
    LinkState {
        number,
        rate_bps: if link.rate.is_unlimited() {
            0
        } else {
            link.rate.as_bps()
        },
        delay_ns: link.delay.as_ns(),
        burst_bytes: link.burst,
        profile: link.profile.as_ref().map(|profile| ProfileState {
            name: profile.name.clone(),
            loss_level: profile.loss_level() as f64 / profile.samples_ms().len().max(1) as f64,
            samples: profile.samples_ms().len(),
        }),
        effects: crate::grammar::words_of(&link.effects),
    }
}

fn flow_state(key: FlowId, buckets: u32) -> FlowState {
    FlowState {
        // Without a mask there is no table, and everything is in bucket 0.
        bucket: if buckets <= 1 {
            0
        } else {
            key.bucket_hash() & (real_buckets(buckets) - 1) & 0xff
        },
        has_extra: key.extra != 0,
        flowset: key.extra,
        proto: key.proto,
        src: key.address(key.src),
        src_port: key.src_port,
        dst: key.address(key.dst),
        dst_port: key.dst_port,
        flow_label: key.flow_label,
        is_active: false,
        counters: CounterState::default(),
        queued_packets: 0,
        queued_bytes: 0,
        in_flight_packets: 0,
        in_flight_bytes: 0,
        rate_bps: 0,
        wait: None,
        variables: Vec::new(),
    }
}

pub(crate) fn instance_state(instance: &Instance, buckets: u32, now: Time) -> FlowState {
    let mut flow = flow_state(instance.key, buckets);
    flow.counters = counters(&instance.counters);
    flow.rate_bps = instance.meter.bps(now);
    flow.wait = (!instance.waits.is_empty()).then(|| wait(&instance.waits));
    if let Some(link) = &instance.link {
        let (held, in_flight) = (link.backlog(), link.in_flight());
        flow.is_active = true;
        flow.queued_packets = held.packets;
        flow.queued_bytes = held.bytes;
        flow.in_flight_packets = in_flight.packets;
        flow.in_flight_bytes = in_flight.bytes;
        link.queue().state(&mut |queue, name, value| {
            flow.variables.push((queue, name, value));
        });
    }
    flow
}

fn wait(waits: &Histogram) -> WaitState {
    WaitState {
        p50_ns: waits.percentile(50).as_ns(),
        p95_ns: waits.percentile(95).as_ns(),
        p99_ns: waits.percentile(99).as_ns(),
        max_ns: waits.longest().as_ns(),
    }
}

fn counters(counters: &Counters) -> CounterState {
    let reasons = DropReason::ALL.iter().copied();
    CounterState {
        packets: counters.packets,
        bytes: counters.bytes,
        departed: counters.departed,
        marked: counters.marked,
        dropped: counters.dropped(),
        dropped_for: reasons
            .map(|reason| (reason.name(), counters.dropped_for(reason)))
            .filter(|(_, count)| *count > 0)
            .collect(),
    }
}

/// The numbers that a command requests; without a request, all.
pub(crate) struct Selection {
    /// Ranges in order, of which none touches another.
    ranges: Vec<(u32, u32)>,
}

impl Selection {
    pub fn new(spans: &[At<NumberSpan>]) -> Selection {
        let ranges = spans.iter().map(|span| (span.value.first, span.value.last));
        let mut ranges: Vec<(u32, u32)> = ranges.collect();
        ranges.sort_unstable();
        ranges.dedup_by(|next, before| {
            let continues = next.0 <= before.1;
            if continues {
                before.1 = before.1.max(next.1);
            }
            continues
        });
        Selection { ranges }
    }

    pub fn has(&self, number: u32) -> bool {
        let behind = self.ranges.partition_point(|(first, _)| {
            visit();
            *first <= number
        });
        let range = behind.checked_sub(1).map(|at| self.ranges[at]);
        self.ranges.is_empty() || range.is_some_and(|(_, last)| number <= last)
    }
}
