//! Idle instances and queues: their memory is released, and they are deleted when there are too
//! many.
//!
//! A sleeping instance keeps its counters and the states of its link's effects, and releases the
//! memory of its link and queue. Each
//! packet from outside triggers a small part of the search, so the outcome depends on the traffic
//! alone.

use sluice_core::event::Cx;
use sluice_core::units::{Span, Time};

use super::instance::{Instance, NONE};
use super::runtime::{QueueKey, Runtime};
use crate::flow::FlowId;

/// The state of the slow search for idle instances and queues.
#[derive(Default)]
pub(super) struct Sweep {
    next: Time,
    instance: usize,
    queue: usize,
}

/// The number of instances and queues that a sweep visits, and the interval of sweeps.
const SWEEP_SIZE: usize = 64;
const SWEEP_EVERY: Span = Span::from_ms(1);
/// How long an instance must be idle before its memory is released, per unit of `expire`. CoDel
/// remembers a dropping state for 16 intervals (RFC 8289 section 5.5): 1.6 s at 100 ms.
const IDLE: Span = Span::from_secs(10);
/// The same under `compat`: dummynet visits one of 64 buckets per tick of 1 ms.
const IDLE_COMPAT: Span = Span::from_ms(64);

impl Runtime {
    /// Visits some instances and queues and releases the memory of those that have been idle for
    /// long. Their counters stay. Runs for every packet from outside, so the outcome depends on the
    /// traffic alone.
    pub fn sweep(&mut self, expire: u64, is_compat: bool, cx: &mut Cx<'_>) {
        if expire == 0 || cx.now < self.sweep.next {
            return;
        }
        self.sweep.next = cx.now.saturating_add(SWEEP_EVERY);
        let idle = if is_compat { IDLE_COMPAT } else { IDLE };
        let idle = Span::from_ns(idle.as_ns().saturating_mul(expire));
        for _ in 0..SWEEP_SIZE.min(self.instances.len()) {
            let index = self.next_visited();
            self.account(index);
            let record = &self.instances[index as usize];
            let is_old = record.is_used && cx.now.since(record.last_active) >= idle;
            if is_old && record.link.is_some() && record.is_empty() {
                self.put_to_sleep(index);
                if is_compat {
                    self.forget(index);
                }
            }
        }
        for _ in 0..SWEEP_SIZE.min(self.queues.len()) {
            self.sweep.queue = (self.sweep.queue + 1) % self.queues.len();
            let queue = &self.queues[self.sweep.queue];
            let is_old = queue.is_used && cx.now.since(queue.last_active) >= idle;
            if is_old
                && queue.is_open
                && self.close_if_empty(self.sweep.queue as u32, cx)
                && is_compat
            {
                self.forget_queue(self.sweep.queue as u32);
            }
        }
    }

    /// Returns the next instance of the search.
    pub(super) fn next_visited(&mut self) -> u32 {
        self.sweep.instance = (self.sweep.instance + 1) % self.instances.len();
        self.sweep.instance as u32
    }

    /// Releases the memory of an empty instance.
    pub(super) fn put_to_sleep(&mut self, instance: u32) {
        self.totals.expired += 1;
        self.unschedule(instance);
        let link = self.instances[instance as usize].link.take();
        let effects = link.and_then(|mut link| link.effects());
        self.keep_effects(instance, effects.map(Box::new));
        let record = &self.instances[instance as usize];
        for queue in &record.queues {
            self.queues[*queue as usize].is_open = false;
        }
        self.account(instance);
    }

    /// Removes an instance from all structures that would schedule it.
    fn unschedule(&mut self, instance: u32) {
        self.agenda.remove(instance);
        if std::mem::replace(&mut self.instances[instance as usize].is_ready, false) {
            self.ready.retain(|i| *i != instance);
        }
    }

    /// Closes a queue of a scheduler with several queues if the queue is empty. Returns whether it
    /// was.
    fn close_if_empty(&mut self, queue: u32, cx: &mut Cx<'_>) -> bool {
        let instance = self.queues[queue as usize].instance;
        if self.instances[instance as usize].link.is_none() {
            self.queues[queue as usize].is_open = false;
            return true;
        }
        let is_closed = self.with_link(instance, true, cx, |link, cx| {
            let Some(classful) = link.queue_mut(cx).as_classful() else {
                return true;
            };
            let is_empty = classful.class_backlog(queue).is_none_or(|b| b.is_empty());
            if is_empty {
                classful.close(queue, cx);
            }
            is_empty
        });
        if is_closed {
            self.queues[queue as usize].is_open = false;
        }
        is_closed
    }

    /// Visits a queue, and closes it if it is empty. Returns its number.
    pub(super) fn close_next_if_empty(&mut self, cx: &mut Cx<'_>) -> u32 {
        self.sweep.queue = (self.sweep.queue + 1) % self.queues.len();
        let (index, queue) = (self.sweep.queue as u32, &self.queues[self.sweep.queue]);
        let instance = queue.instance;
        if queue.is_used && queue.is_open && self.close_if_empty(index, cx) {
            self.account(instance);
        }
        index
    }

    /// Deletes an instance. Its counters are added to those of its scheduler.
    pub(super) fn forget(&mut self, instance: u32) {
        let record = &self.instances[instance as usize];
        let (slot, key, counters) = (record.scheduler, record.key, record.counters);
        if let Some(Some(scheduler)) = self.schedulers.get_mut(slot as usize) {
            scheduler.forgotten.absorb(&counters);
            if scheduler.single == instance {
                scheduler.single = NONE;
            }
            if scheduler.by_flow.get(&key) == Some(&instance) {
                scheduler.by_flow.remove(&key);
            }
        }
        while let Some(queue) = self.instances[instance as usize].queues.last() {
            self.forget_queue(*queue);
        }
        self.free(instance);
    }

    /// Frees the slot of an instance without references.
    pub(super) fn free(&mut self, instance: u32) {
        self.unschedule(instance);
        self.instances[instance as usize].link = None;
        self.keep_effects(instance, None);
        self.account(instance);
        let record = &mut self.instances[instance as usize];
        *record = Instance::new(NONE, FlowId::default(), Time::ZERO);
        record.is_used = false;
        self.free_instances.push(instance);
    }

    /// Deletes a queue with its counters.
    pub(super) fn forget_queue(&mut self, queue: u32) {
        let record = &self.queues[queue as usize];
        let (instance, place) = (record.instance, record.place as usize);
        let of_instance = &mut self.instances[instance as usize].queues;
        of_instance.swap_remove(place);
        if let Some(moved) = of_instance.get(place) {
            self.queues[*moved as usize].place = place as u32;
        }
        let record = &self.queues[queue as usize];
        let (flowset, place) = (record.flowset, record.flowset_place as usize);
        if let Some(of_flowset) = self.by_flowset.get_mut(&flowset) {
            of_flowset.swap_remove(place);
            if let Some(moved) = of_flowset.get(place) {
                self.queues[*moved as usize].flowset_place = place as u32;
            } else if of_flowset.is_empty() {
                self.by_flowset.remove(&flowset);
            }
        }
        let record = &mut self.queues[queue as usize];
        let key = QueueKey {
            instance: record.instance,
            flowset: record.flowset,
            flow: record.key,
        };
        record.is_used = false;
        record.is_open = false;
        if self.queue_slots.get(&key) == Some(&queue) {
            self.queue_slots.remove(&key);
        }
        self.free_queues.push(queue);
    }

    /// Makes room for a new instance by deleting a sleeping or idle one.
    pub(super) fn forget_an_instance(&mut self) -> Option<u32> {
        for _ in 0..SWEEP_SIZE.min(self.instances.len()) {
            let index = self.next_visited();
            let record = &self.instances[index as usize];
            if record.is_used && record.scheduler != NONE && record.is_empty() {
                self.put_to_sleep(index);
                self.forget(index);
                return self.free_instances.pop();
            }
        }
        None
    }

    /// Makes room for a new queue by deleting one that is closed or empty.
    pub(super) fn forget_a_queue(&mut self, cx: &mut Cx<'_>) -> Option<u32> {
        for _ in 0..SWEEP_SIZE.min(self.queues.len()) {
            let index = self.close_next_if_empty(cx);
            let queue = &self.queues[index as usize];
            if queue.is_used && !queue.is_open {
                self.forget_queue(index);
                return self.free_queues.pop();
            }
        }
        None
    }
}
