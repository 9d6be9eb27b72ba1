//! Packets that find no room because of a limit of the whole engine. They count as arrivals and drops of
//! the pipe and queue that they are for, as far as these exist.

use sluice_core::event::{Cx, DropReason};
use sluice_core::packet::Packet;

use super::instance::NONE;
use super::layout::FlowsetConfig;
use super::runtime::{QueueKey, Runtime};
use super::watch::{NO_ROW, ObjectName, Rows};
use crate::flow::FlowId;

/// Where a packet was to go.
#[derive(Clone, Copy)]
pub(super) struct Goal {
    /// The slot of the scheduler.
    pub scheduler: u32,
    /// Its instance, or [`NONE`] if there is none for the flow.
    pub instance: u32,
    /// The queue, or [`NONE`] if there is none for the flow, or the scheduler has only one.
    pub queue: u32,
}

impl Runtime {
    /// Returns where a packet of `flow` goes from flowset `number`, as far as it exists.
    #[cold]
    pub(super) fn existing(
        &self,
        scheduler: u32,
        number: u32,
        flowset: &FlowsetConfig,
        flow: FlowId,
    ) -> Goal {
        let found = self.schedulers[scheduler as usize]
            .as_ref()
            .expect("a flowset's scheduler exists");
        let mask = &found.config.mask;
        let instance = match mask.is_empty() {
            true => found.single,
            false => {
                let of_flow = found.by_flow.get(&flow.masked(mask));
                of_flow.copied().unwrap_or(NONE)
            }
        };
        // Only schedulers with several queues have some in this table.
        let key = QueueKey {
            instance,
            flowset: number,
            flow: flow.masked(&flowset.mask.or(mask)),
        };
        Goal {
            scheduler,
            instance,
            queue: self.queue_slots.get(&key).copied().unwrap_or(NONE),
        }
    }

    /// Drops a packet for a pipe that holds its share of the packet memory.
    #[cold]
    pub(super) fn refuse_share(&mut self, packet: Packet, goal: Goal, cx: &mut Cx<'_>) {
        self.budget.refused.pipe_share += 1;
        let scheduler = self.schedulers[goal.scheduler as usize].as_ref();
        self.budget.last_over_share = scheduler.map(|s| ObjectName::of_scheduler(s.number));
        self.totals.dropped += u64::from(packet.segments);
        self.count_refusal(&packet, goal, DropReason::Overflow, true);
        cx.discard(packet, DropReason::Overflow);
    }

    /// Drops a packet for which something cannot be created or has no memory.
    #[cold]
    pub(super) fn refuse_at(&mut self, packet: Packet, goal: Goal, is_new: bool, cx: &mut Cx<'_>) {
        self.count_refusal(&packet, goal, reason(is_new), is_new);
        self.refuse(packet, is_new, cx);
    }

    /// Drops a packet for which there is no pipe.
    pub(super) fn refuse(&mut self, packet: Packet, is_new: bool, cx: &mut Cx<'_>) {
        self.totals.dropped += u64::from(packet.segments);
        self.passages.leave(packet.slot);
        cx.discard(packet, reason(is_new));
    }

    /// Counts a drop at the pipe and queue and, if the packet is new there, its arrival. Without an
    /// instance, these count at the scheduler.
    fn count_refusal(&mut self, packet: &Packet, goal: Goal, reason: DropReason, is_new: bool) {
        if self.watch.is_some() {
            self.watch_refusal(packet, goal, reason, is_new);
        }
        let of_link = match self.instances.get_mut(goal.instance as usize) {
            Some(record) => Some(&mut record.counters),
            None => {
                let scheduler = self.schedulers[goal.scheduler as usize].as_mut();
                scheduler.map(|scheduler| &mut scheduler.forgotten)
            }
        };
        let queue = self.queues.get_mut(goal.queue as usize);
        let of_queue = queue.map(|record| &mut record.counters);
        for counters in of_link.into_iter().chain(of_queue) {
            if is_new {
                counters.arrive(packet.segments, packet.len);
            }
            counters.drop(packet.segments, reason);
        }
    }

    /// The same for the watcher. Without an instance, there is no row.
    fn watch_refusal(&mut self, packet: &Packet, goal: Goal, reason: DropReason, is_new: bool) {
        let has_instance = goal.instance != NONE;
        if is_new && has_instance {
            self.watch_arrival(packet, goal.instance, goal.queue);
        }
        let record = self.instances.get(goal.instance as usize);
        let link = record.map_or(NO_ROW, |record| record.watch_row);
        let queue = self.queues.get(goal.queue as usize);
        let queue = queue.map(|record| record.watch_row);
        let scheduler = self.schedulers[goal.scheduler as usize].as_ref();
        let (Some(table), Some(scheduler)) = (self.watch.as_deref_mut(), scheduler) else {
            return;
        };
        let headers = &self.passages.of(packet).headers;
        let mut rows = Rows {
            table,
            object: scheduler.number,
            link,
        };
        if is_new && !has_instance {
            rows.arrive(packet, queue, headers);
        }
        rows.discard(packet, reason, queue, headers);
    }
}

/// Returns why a packet is dropped that has no place.
const fn reason(is_new: bool) -> DropReason {
    match is_new {
        true => DropReason::NoRoute,
        false => DropReason::Reconfigured,
    }
}
