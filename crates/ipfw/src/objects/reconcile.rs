//! Applies a changed layout while packets are inside.
//!
//! Objects that did not change are not touched: queues keep their packets, AQMs their state. New
//! limits, AQMs, shares, rates and delays take effect in place. A deeper change - another type of
//! scheduler, other masks, a queue that moves to another scheduler - takes the packets out of the
//! old queues and inserts them into the new ones in the order of their arrival. A packet that has
//! left its queue is on the link and arrives, even if its pipe is deleted.
//!
//! A packet is dropped, with the reason `reconfigured`, only if the new limits leave no room for it
//! or its pipe or queue no longer exists.

use std::collections::BTreeSet;
use std::mem;
use std::rc::Rc;

use sluice_core::event::Cx;
use sluice_core::packet::Packet;
use sluice_core::units::Rate;

use super::discipline;
use super::instance::{LossState, NONE};
use super::layout::{FlowsetConfig, Layout, STRIDE, Touched};
use super::runtime::{Flowset, Runtime, Scheduler};
use super::share::Purpose;
use super::stats::Counters;
use crate::flow::FlowId;
use crate::hash::Map;

impl Runtime {
    /// Makes the running objects match `layout`. Objects that are not running are created with their
    /// first packets ([`Runtime::ensure`]), so that a change of many costs little. Returns the lists
    /// of what was touched: freeing long ones takes milliseconds.
    pub fn apply(&mut self, layout: &mut Layout, cx: &mut Cx<'_>) -> [Touched; 2] {
        let lists = [
            mem::take(&mut layout.touched),
            mem::take(&mut layout.touched_flowsets),
        ];
        let touched = lists[0].running(&self.scheduler_slots);
        let touched_flowsets = lists[1].running(&self.flowsets);
        let layout = &*layout;
        let rebuilt = self.to_be_rebuilt(layout, &touched, &touched_flowsets);
        let mut moved = Vec::new();
        for number in &rebuilt {
            self.empty(*number, layout, &mut moved, cx);
        }
        for number in &touched {
            self.apply_scheduler(*number, layout, &rebuilt, cx);
        }
        for number in &touched_flowsets {
            self.apply_flowset(*number, layout, &rebuilt, cx);
        }
        // Flowsets that waited for a scheduler, or whose scheduler was deleted.
        for scheduler in &touched {
            let slot = self.scheduler_slots.get(scheduler).copied();
            for (number, _) in layout.flowsets.of_scheduler(*scheduler) {
                if let Some(flowset) = self.flowsets.get_mut(&number) {
                    flowset.scheduler = slot.unwrap_or(NONE);
                }
            }
        }
        moved.sort_by_key(|packet: &Packet| packet.arrival);
        for packet in moved {
            // Before the passage goes with the packet to another worker.
            self.passages.leave(packet.slot);
            let passage = self.passages.of(&packet).clone();
            let number = passage.flowset;
            let flow = FlowId::of(&passage.headers, number % STRIDE);
            self.ensure(number, layout);
            match self.other_owner(number, &passage.headers) {
                Some(owner) => self.hand_over(owner, packet, passage, Purpose::Move, cx.now),
                None => {
                    self.admit(packet, number, flow, NONE, false, cx);
                }
            }
        }
        lists
    }

    /// Creates the running flowset `number` and its scheduler, if the layout has them and they are
    /// not running yet.
    pub fn ensure(&mut self, number: u32, layout: &Layout) {
        let running = self.flowsets.get(&number);
        if running.is_none_or(|flowset| flowset.scheduler == NONE) {
            self.create(number, layout);
        }
    }

    #[cold]
    fn create(&mut self, number: u32, layout: &Layout) {
        let Some(config) = layout.flowsets.get(&number) else {
            return;
        };
        let slot = self.create_scheduler(config.scheduler, layout);
        let flowset = self.flowsets.entry(number).or_insert_with(|| Flowset {
            config: Rc::new(config.clone()),
            scheduler: NONE,
            aqm_bytes: 0,
        });
        flowset.scheduler = slot.unwrap_or(NONE);
    }

    /// Returns the slot of a scheduler, which is created if the layout has it.
    fn create_scheduler(&mut self, number: u32, layout: &Layout) -> Option<u32> {
        if let Some(slot) = self.scheduler_slots.get(&number) {
            return Some(*slot);
        }
        let config = layout.schedulers.get(&number)?;
        let link = layout.link_of(number);
        let internal = config.internal.and_then(|n| layout.flowsets.get(&n));
        let scheduler = Scheduler {
            number,
            config: Rc::new(config.clone()),
            link: Rc::new(link.clone()),
            internal: internal.cloned().map(Rc::new),
            model: super::runtime::build(config, internal, link),
            single: NONE,
            by_flow: Map::with_hasher(self.hash),
            forgotten: Counters::default(),
            link_bytes: 0,
        };
        let slot = match self.free_schedulers.pop() {
            Some(slot) => {
                self.schedulers[slot as usize] = Some(scheduler);
                slot
            }
            None => {
                self.schedulers.push(Some(scheduler));
                self.schedulers.len() as u32 - 1
            }
        };
        self.scheduler_slots.insert(number, slot);
        Some(slot)
    }

    /// Returns the schedulers whose packets must be moved.
    fn to_be_rebuilt(
        &self,
        layout: &Layout,
        touched: &BTreeSet<u32>,
        touched_flowsets: &BTreeSet<u32>,
    ) -> BTreeSet<u32> {
        let mut rebuilt = BTreeSet::new();
        for number in touched {
            let Some(old) = self.scheduler(*number) else {
                continue;
            };
            let is_same = layout.schedulers.get(number).is_some_and(|new| {
                new.mask == old.config.mask
                    && new.spec.algorithm.name == old.config.spec.algorithm.name
                    && (new.spec == old.config.spec || !new.is_multi_queue)
            });
            if !is_same {
                rebuilt.insert(*number);
            }
        }
        for number in touched_flowsets {
            let Some(old) = self.flowsets.get(number).map(|f| &f.config) else {
                continue;
            };
            let Some(scheduler) = self.scheduler(old.scheduler) else {
                continue;
            };
            let is_same = layout.flowsets.get(number).is_some_and(|new| {
                new.scheduler == old.scheduler
                    && (new.mask == old.mask || !scheduler.config.is_multi_queue)
            });
            if !is_same {
                rebuilt.insert(old.scheduler);
            }
        }
        rebuilt
    }

    pub fn scheduler(&self, number: u32) -> Option<&Scheduler> {
        let slot = *self.scheduler_slots.get(&number)?;
        self.schedulers[slot as usize].as_ref()
    }

    /// Returns all instances of a scheduler in the order of their slots.
    pub fn instances_of(&self, number: u32) -> Vec<u32> {
        let Some(scheduler) = self.scheduler(number) else {
            return Vec::new();
        };
        let mut all: Vec<u32> = scheduler.by_flow.values().copied().collect();
        all.extend((scheduler.single != NONE).then_some(scheduler.single));
        all.sort_unstable();
        all
    }

    /// Takes all packets out of a scheduler's queues. Instances that still fit stay; others are
    /// removed as soon as their delay lines are empty.
    fn empty(&mut self, number: u32, layout: &Layout, moved: &mut Vec<Packet>, cx: &mut Cx<'_>) {
        let slot = self.scheduler_slots[&number];
        let new = layout.schedulers.get(&number);
        let keeps_instances = {
            let old = self.schedulers[slot as usize]
                .as_ref()
                .expect("a slot in use has a scheduler");
            new.is_some_and(|new| new.mask == old.config.mask)
        };
        for instance in self.instances_of(number) {
            if self.instances[instance as usize].link.is_some() {
                self.with_link(instance, true, cx, |link, cx| {
                    let queue = link.queue_mut(cx);
                    while let Some(packet) = queue.pull() {
                        moved.push(packet);
                    }
                });
            }
            while let Some(queue) = self.instances[instance as usize].queues.last() {
                self.forget_queue(*queue);
            }
            if !keeps_instances {
                let record = &mut self.instances[instance as usize];
                record.scheduler = NONE;
                let counters = record.counters;
                let is_empty = record.is_empty();
                let scheduler = self.schedulers[slot as usize]
                    .as_mut()
                    .expect("a slot in use has a scheduler");
                scheduler.forgotten.absorb(&counters);
                if is_empty {
                    self.free(instance);
                }
            }
        }
        if !keeps_instances {
            let scheduler = self.schedulers[slot as usize]
                .as_mut()
                .expect("a slot in use has a scheduler");
            scheduler.single = NONE;
            scheduler.by_flow.clear();
        }
    }

    fn apply_scheduler(
        &mut self,
        number: u32,
        layout: &Layout,
        rebuilt: &BTreeSet<u32>,
        cx: &mut Cx<'_>,
    ) {
        let Some(config) = layout.schedulers.get(&number) else {
            if let Some(slot) = self.scheduler_slots.remove(&number) {
                self.schedulers[slot as usize] = None;
                self.free_schedulers.push(slot);
            }
            return;
        };
        let link = layout.link_of(number);
        let internal = config.internal.and_then(|n| layout.flowsets.get(&n));
        let Some(slot) = self.scheduler_slots.get(&number).copied() else {
            return;
        };
        let scheduler = self.schedulers[slot as usize]
            .as_mut()
            .expect("a slot in use has a scheduler");
        let has_new_link = *scheduler.link != *link;
        let has_new_rate = scheduler.link.rate != link.rate;
        let has_new_choice = scheduler.config.spec != config.spec;
        let old = scheduler.internal.as_deref();
        let is_fifo = config.spec.algorithm.name == "fifo";
        let has_new_queue = is_fifo && !is_same_queue(old, internal);
        let has_new_loss = is_fifo && old.and_then(|f| f.loss) != internal.and_then(|f| f.loss);
        if has_new_link {
            scheduler.link = Rc::new(link.clone());
        }
        if *scheduler.config != *config {
            scheduler.config = Rc::new(config.clone());
        }
        scheduler.internal = internal.cloned().map(Rc::new);
        scheduler.refresh_model();
        let replaces = rebuilt.contains(&number)
            || (has_new_choice && !config.is_multi_queue)
            || has_new_queue;
        if !(has_new_link || has_new_loss || replaces) {
            return;
        }
        for instance in self.instances_of(number) {
            let scheduler = self.schedulers[slot as usize]
                .as_ref()
                .expect("a slot in use has a scheduler");
            if has_new_loss || rebuilt.contains(&number) {
                let loss = internal.filter(|_| is_fifo).and_then(|f| f.loss.as_ref());
                self.instances[instance as usize].set_loss(LossState::new(loss));
            }
            if self.instances[instance as usize].link.is_none() {
                continue;
            }
            let discipline = replaces.then(|| scheduler.discipline());
            let params = has_new_link.then(|| (scheduler.link.params(), scheduler.link_files()));
            let follows = internal.is_some_and(FlowsetConfig::follows_link);
            let rate = (has_new_rate && is_fifo && follows).then_some(scheduler.link.rate);
            self.with_link(instance, true, cx, |link, cx| {
                if let Some((params, files)) = params {
                    link.set_params(&params, files, cx);
                }
                if let Some(discipline) = discipline {
                    link.replace_queue(discipline, cx);
                } else if let Some(rate) = rate {
                    link.queue_mut(cx).on_rate(rate);
                }
            });
            self.schedule(instance, cx.now);
        }
        if has_new_rate && config.is_multi_queue {
            let rate = link.rate;
            let flowsets = layout.flowsets.of_scheduler(number);
            for (flowset, _) in flowsets.filter(|(_, f)| f.follows_link()) {
                self.tell_rate(flowset, rate, cx);
            }
        }
    }

    /// Tells the AQMs of a flowset's queues that the link has another rate.
    fn tell_rate(&mut self, flowset: u32, rate: Rate, cx: &mut Cx<'_>) {
        for queue in self.queues_of(flowset) {
            let record = &self.queues[queue as usize];
            if !record.is_open {
                continue;
            }
            self.with_link(record.instance, true, cx, |link, cx| {
                let classful = link.queue_mut(cx).as_classful();
                let classful = classful.expect("queues are of schedulers with several");
                classful.on_class_rate(queue, rate);
            });
        }
    }

    fn apply_flowset(
        &mut self,
        number: u32,
        layout: &Layout,
        rebuilt: &BTreeSet<u32>,
        cx: &mut Cx<'_>,
    ) {
        let Some(config) = layout.flowsets.get(&number) else {
            self.flowsets.remove(&number);
            return;
        };
        let Some(old) = self.flowsets.get(&number) else {
            return;
        };
        let old = Rc::clone(&old.config);
        let slot = self
            .scheduler_slots
            .get(&config.scheduler)
            .copied()
            .unwrap_or(NONE);
        let config = Rc::new(config.clone());
        let new = Flowset {
            config: Rc::clone(&config),
            scheduler: slot,
            aqm_bytes: 0,
        };
        self.flowsets.insert(number, new);
        let is_multi_queue = layout
            .schedulers
            .get(&config.scheduler)
            .is_some_and(|s| s.is_multi_queue);
        if !is_multi_queue || rebuilt.contains(&config.scheduler) || *old == *config {
            return;
        }
        let has_new_share = discipline::share(&old) != discipline::share(&config);
        let has_new_limits = old.queue != config.queue;
        let has_new_aqm = old.aqm != config.aqm;
        let has_new_loss = old.loss != config.loss;
        for queue in self.queues_of(number) {
            let record = &mut self.queues[queue as usize];
            if has_new_loss {
                record.loss = LossState::new(config.loss.as_ref());
            }
            let (instance, is_open) = (record.instance, record.is_open);
            if !is_open {
                continue;
            }
            let config = Rc::clone(&config);
            let rate = self.rate_of(instance);
            let kept = self.with_link(instance, true, cx, |link, cx| {
                let now = cx.now;
                let queue_of = link.queue_mut(cx);
                let classful = queue_of
                    .as_classful()
                    .expect("queues are of schedulers with several");
                let mut is_kept = true;
                if has_new_share {
                    is_kept = classful
                        .set_share(queue, discipline::share(&config))
                        .is_ok();
                }
                if has_new_aqm {
                    classful.set_aqm(queue, discipline::build_aqm(&config, rate));
                }
                if has_new_limits {
                    classful.set_limits(queue, &discipline::limits(&config), cx);
                }
                debug_assert_eq!(now, cx.now);
                is_kept
            });
            // Shares are checked when they are configured, for one queue of each flowset. A mask
            // may create many; then a refused change keeps the old share.
            let _ = kept;
            self.schedule(instance, cx.now);
        }
    }
}

/// Whether the single queue of a FIFO stays the same.
fn is_same_queue(old: Option<&FlowsetConfig>, new: Option<&FlowsetConfig>) -> bool {
    match (old, new) {
        (Some(old), Some(new)) => old.queue == new.queue && old.aqm == new.aqm,
        (None, None) => true,
        _ => false,
    }
}
