//! Limits of the memory that the running objects take together, so that one mask or one flood does
//! not take all of it.
//!
//! 1. The pipes and queues that masks create hold at most [`Settings::dynamic_bytes`]. Each link
//!    reports what it holds. New pipes get up to 3/4 of the memory: the rest is for pipes that grow.
//!    When the memory is used up, idle pipes are removed. If there are too few, no new one is
//!    created, and no pipe that holds more than an equal share of the memory accepts a packet.
//! 2. A pipe, with all pipes that its mask creates, holds at most [`PIPE_SHARE`] times as many packets
//!    as the host has room for. So a single pipe gets up to 4/5 of the memory, and two get up to 4/9
//!    each. The rule is that of Choudhury and Hahne, "Dynamic Queue Length Thresholds for
//!    Shared-Memory Packet Switches" (IEEE/ACM Transactions on Networking 6(2), 1998).
//!
//! [`Settings::dynamic_bytes`]: crate::Settings::dynamic_bytes

use sluice_core::event::Cx;
use sluice_core::link::Effects;

use super::instance::{Instance, NONE, Queue};
use super::runtime::{MOST, QueueKey, Runtime};
use super::watch::ObjectName;
use crate::flow::FlowId;

/// Packets that a pipe may hold for each one that the host still has room for.
const PIPE_SHARE: u64 = 4;
/// The record of an instance, and its place in the table of its scheduler, of which 7/8 are used.
const INSTANCE_BYTES: u64 =
    size_of::<Instance>() as u64 + size_of::<(FlowId, u32)>() as u64 * 8 / 7;
/// The same for a queue.
const QUEUE_BYTES: u64 = size_of::<Queue>() as u64
    + size_of::<(QueueKey, u32)>() as u64 * 8 / 7
    + 2 * size_of::<u32>() as u64;
/// Instances that are visited to find idle ones when the memory is used up.
const LOOKS: usize = 64;

/// Packets that a limit of the whole engine refused although their own queue had room, by limit. A
/// super-packet counts once, as among the packets that the host drops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    /// The pipe held its share of the packet memory.
    pub pipe_share: u64,
    /// There was no memory for another pipe or queue of a mask.
    pub dynamic_memory: u64,
    /// There were as many pipes, or queues, as are possible.
    pub dynamic_number: u64,
    /// The table of states was full of answered flows.
    pub states_full: u64,
    /// States of unanswered flows that were removed from the full table for new flows. No packet was lost.
    pub states_evicted: u64,
    /// The source owned too many states.
    pub states_source: u64,
    /// The group of a `limit` option was full.
    pub states_limit: u64,
    /// The packet had passed through as many pipes as a packet may. It was dropped.
    pub pipe_loop: u64,
    /// A `call` had no effect, because too many were open or had been made. The packet went on.
    pub call_loop: u64,
}

impl Refusals {
    /// Returns every counter with the name of its limit.
    pub const fn counts(&self) -> [(&'static str, u64); 9] {
        [
            ("pipe_share", self.pipe_share),
            ("dynamic_memory", self.dynamic_memory),
            ("dynamic_number", self.dynamic_number),
            ("states_full", self.states_full),
            ("states_evicted", self.states_evicted),
            ("states_source", self.states_source),
            ("states_limit", self.states_limit),
            ("pipe_loop", self.pipe_loop),
            ("call_loop", self.call_loop),
        ]
    }
}

/// What met a limit last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastRefused {
    /// The pipe that held its share of the packet memory.
    pub pipe_share: Option<ObjectName>,
    /// The number of the rule whose `limit` was full, and that limit.
    pub states_limit: Option<(u32, u32)>,
}

/// What [`Refusals`] are about: the sizes of these limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the pipes and queues that masks create.
    pub dynamic_memory: u64,
    /// Pipes, and queues.
    pub dynamic_number: u64,
    /// States of all flows.
    pub states_full: u64,
    /// States that the packets of one address may create; 0 means no limit.
    pub states_source: u64,
    /// Pipes that one packet may pass through.
    pub pipe_loop: u64,
    /// Calls of one packet that may be open at a time.
    pub call_loop: u64,
}

impl Limits {
    /// Returns the packets that one pipe may hold if the host has room for `packets`.
    pub const fn pipe_share(&self, packets: u64) -> u64 {
        packets * PIPE_SHARE / (PIPE_SHARE + 1)
    }
}

/// The memory of dynamic objects.
pub(super) struct Budget {
    limit: u64,
    held: u64,
    /// Instances that have a link.
    awake: u64,
    /// Packets that the host has room for.
    pub free_packets: u64,
    pub refused: Refusals,
    /// The pipe that held its share of the packet memory last.
    pub last_over_share: Option<ObjectName>,
}

impl Budget {
    pub(super) const fn new(limit: u64) -> Budget {
        Budget {
            limit,
            held: 0,
            awake: 0,
            free_packets: u64::MAX,
            refused: Refusals {
                pipe_share: 0,
                dynamic_memory: 0,
                dynamic_number: 0,
                states_full: 0,
                states_evicted: 0,
                states_source: 0,
                states_limit: 0,
                pipe_loop: 0,
                call_loop: 0,
            },
            last_over_share: None,
        }
    }

    /// Whether a pipe that holds `held` packets may hold another.
    pub(super) const fn pipe_has_share(&self, held: u32) -> bool {
        (held as u64)
            < self
                .free_packets
                .saturating_add(1)
                .saturating_mul(PIPE_SHARE)
    }

    /// Whether there is memory for something new.
    const fn has(&self, bytes: u64) -> bool {
        self.held.saturating_add(bytes) <= self.limit / 4 * 3
    }

    /// Whether what pipes hold must be counted for every packet.
    pub(super) const fn is_tight(&self) -> bool {
        self.held > self.limit / 2
    }
}

impl Runtime {
    /// Whether there is memory for another record of an instance.
    pub(super) fn has_instance_memory(&self) -> bool {
        self.budget.has(INSTANCE_BYTES)
    }

    /// Whether there is memory for another record of a queue, and for the queue in its discipline.
    pub(super) fn has_queue_memory(&self) -> bool {
        self.budget.has(2 * QUEUE_BYTES)
    }

    pub(super) fn count_instance(&mut self) {
        self.budget.held += INSTANCE_BYTES;
    }

    pub(super) fn count_queue(&mut self) {
        self.budget.held += QUEUE_BYTES;
    }

    /// Whether an instance of a mask has memory for another packet, and for its link if it sleeps. It
    /// may sleep afterwards.
    #[inline]
    pub(super) fn has_memory(&mut self, instance: u32) -> bool {
        let record = &self.instances[instance as usize];
        match record.link.is_none() {
            true => self.has_link_memory(record.scheduler),
            false => !self.budget.is_tight() || self.may_grow(instance),
        }
    }

    /// Whether there is memory to open a queue of a mask, unless it is open, after idle ones have been
    /// closed.
    #[inline]
    pub(super) fn has_opening_memory(&mut self, queue: u32, cx: &mut Cx<'_>) -> bool {
        let record = &self.queues[queue as usize];
        record.is_open || self.has_aqm_memory(record.flowset, cx)
    }

    fn has_aqm_memory(&mut self, flowset: u32, cx: &mut Cx<'_>) -> bool {
        let typical = self.flowsets.get(&flowset).map_or(0, |f| f.aqm_bytes);
        if typical <= QUEUE_BYTES {
            // The record was admitted together with so much.
            return true;
        }
        for _ in 0..LOOKS.min(self.queues.len()) {
            if self.budget.has(typical) {
                return true;
            }
            self.close_next_if_empty(cx);
        }
        self.budget.has(typical)
    }

    /// Whether there is memory for the link of another instance of a scheduler, after idle ones have
    /// been put to sleep.
    fn has_link_memory(&mut self, slot: u32) -> bool {
        let scheduler = self.schedulers[slot as usize].as_ref();
        let typical = scheduler.map_or(0, |scheduler| scheduler.link_bytes);
        // A link that grew to more than the limit for new ones may begin again.
        let typical = typical.min(self.budget.limit / 4);
        for _ in 0..LOOKS.min(self.instances.len()) {
            if self.budget.has(typical) {
                return true;
            }
            self.release_if_idle();
        }
        self.budget.has(typical)
    }

    /// Whether an instance that holds packets may accept another, for which it may need memory.
    fn may_grow(&mut self, instance: u32) -> bool {
        for _ in 0..LOOKS {
            let bytes = self.instances[instance as usize].link_bytes;
            let share = self.budget.limit / self.budget.awake.max(1);
            if self.budget.held < self.budget.limit || bytes < share {
                return true;
            }
            self.release_if_idle();
        }
        false
    }

    /// Visits an instance, and releases its link if it is empty.
    fn release_if_idle(&mut self) {
        let index = self.next_visited();
        let record = &self.instances[index as usize];
        let is_idle = record.is_used && record.link.is_some() && record.is_empty();
        if is_idle && record.scheduler != NONE {
            self.put_to_sleep(index);
        }
    }

    /// Counts what the link of an instance holds now.
    pub(super) fn account(&mut self, instance: u32) {
        let record = &mut self.instances[instance as usize];
        let bytes = record.link.as_ref().map_or(0, |link| link.memory() as u64);
        let before = std::mem::replace(&mut record.link_bytes, bytes);
        self.budget.held = (self.budget.held + bytes).saturating_sub(before);
        self.budget.awake += u64::from(bytes > 0 && before == 0);
        self.budget.awake -= u64::from(bytes == 0 && before > 0);
        let slot = record.scheduler as usize;
        if bytes > 0
            && let Some(Some(scheduler)) = self.schedulers.get_mut(slot)
        {
            scheduler.link_bytes = bytes;
        }
    }

    /// Stores the states of the effects of an instance that falls asleep, or `None`. Returns what was
    /// stored before.
    pub(super) fn keep_effects(
        &mut self,
        instance: u32,
        effects: Option<Box<Effects>>,
    ) -> Option<Box<Effects>> {
        let bytes = |effects: &Option<Box<Effects>>| {
            effects
                .as_ref()
                .map_or(0, |effects| effects.memory() as u64)
        };
        let kept = bytes(&effects);
        let before = std::mem::replace(&mut self.instances[instance as usize].effects, effects);
        self.budget.held = (self.budget.held + kept).saturating_sub(bytes(&before));
        before
    }

    /// Counts a packet for which nothing can be created, since there are `count` of its kind, or
    /// because the memory is used up.
    pub(super) fn refuse_new(&mut self, count: usize) {
        match count < MOST {
            true => self.budget.refused.dynamic_memory += 1,
            false => self.budget.refused.dynamic_number += 1,
        }
    }

    /// Returns the bytes that the pipes and queues of masks may hold.
    pub(crate) const fn dynamic_bytes(&self) -> u64 {
        self.budget.limit
    }

    /// Returns the packets refused by limits of the whole engine.
    pub(crate) const fn refusals(&self) -> Refusals {
        self.budget.refused
    }

    /// Returns the pipe that last held its share of the packet memory when another packet came.
    pub(crate) const fn last_over_share(&self) -> Option<ObjectName> {
        self.budget.last_over_share
    }

    /// Counts a packet that has passed through as many pipes as it may.
    pub(crate) fn refuse_loop(&mut self) {
        self.budget.refused.pipe_loop += 1;
    }

    /// Tells for how many more packets the host has room.
    pub(crate) fn set_free_packets(&mut self, packets: u64) {
        self.budget.free_packets = packets;
    }
}
