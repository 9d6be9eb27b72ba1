//! The running pipes and queues: the admission of packets, the order of events, expiry.

use std::rc::Rc;

use sluice_core::event::{Cx, DropReason};
use sluice_core::link::{Departure, Link, LinkFiles};
use sluice_core::packet::Packet;
use sluice_core::prefetch::{self, Place};
use sluice_core::sched::Wake;
use sluice_core::units::{Rate, Time};
use sluice_core::{Discipline, Rng};

use super::budget::Budget;
use super::discipline;
use super::expiry::Sweep;
use super::heap::Agenda;
use super::instance::{Instance, LossState, NONE, Queue};
use super::layout::{FlowsetConfig, LinkConfig, STRIDE, SchedulerConfig};
use super::packets::{Passage, Passages, Tap, Totals};
use super::places::Places;
use super::refused::Goal;
use super::share::{Handed, Worker};
use super::stats::Counters;
use super::watch::{NO_ROW, ObjectName, Rows, WatchTable};
use crate::flow::{FlowId, Mask};
use crate::hash::{KeyedHash, Map};

/// A scheduler with its instances.
pub(crate) struct Scheduler {
    pub number: u32,
    pub config: Rc<SchedulerConfig>,
    pub link: Rc<LinkConfig>,
    /// The flowset of the single queue.
    pub internal: Option<Rc<FlowsetConfig>>,
    /// The discipline that new instances are created like.
    pub model: Box<dyn Discipline>,
    /// Without a mask: the only instance, or [`NONE`] before its first packet.
    pub single: u32,
    /// With a mask: the instances by flow.
    pub by_flow: Map<FlowId, u32>,
    /// The counters of deleted instances, and of packets for which none could be created.
    pub forgotten: Counters,
    /// The bytes that the link of an instance held when one was last counted.
    pub link_bytes: u64,
}

/// A flowset.
pub(crate) struct Flowset {
    pub config: Rc<FlowsetConfig>,
    /// The slot of the scheduler, or [`NONE`].
    pub scheduler: u32,
    /// The bytes of the AQM of the queue that was opened last.
    pub aqm_bytes: u64,
}

/// The key of a queue of a scheduler with several queues.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct QueueKey {
    pub instance: u32,
    pub flowset: u32,
    pub flow: FlowId,
}

/// All running objects.
pub(crate) struct Runtime {
    pub(super) hash: KeyedHash,
    pub(crate) schedulers: Vec<Option<Scheduler>>,
    pub(super) free_schedulers: Vec<u32>,
    pub(super) scheduler_slots: Map<u32, u32>,
    pub(super) flowsets: Map<u32, Flowset>,
    pub(crate) instances: Vec<Instance>,
    pub(super) free_instances: Vec<u32>,
    pub(crate) queues: Vec<Queue>,
    pub(super) free_queues: Vec<u32>,
    pub(super) queue_slots: Map<QueueKey, u32>,
    /// The queues of each flowset that has some.
    pub(super) by_flowset: Map<u32, Vec<u32>>,
    pub(super) agenda: Agenda,
    pub(super) places: Places,
    /// Whether the packet that is handled was announced, so that its memory is on its way.
    pub is_announced: bool,
    /// Instances with work at `ready_at`, which is no later than any event on the agenda. They are
    /// idle links that have just received packets.
    pub(super) ready: std::collections::VecDeque<u32>,
    ready_at: Time,
    pub passages: Passages,
    pub totals: Totals,
    pub(super) sweep: Sweep,
    pub(super) budget: Budget,
    /// The source of the links' own random streams.
    pub(super) seed: Rng,
    /// What is counted while somebody watches.
    pub watch: Option<Box<WatchTable>>,
    /// Which of several workers this is, if there are several.
    pub worker: Option<Worker>,
    /// Packets for pipes of other workers.
    pub handed: std::collections::VecDeque<Handed>,
}

/// The most instances, and the most queues. Beyond this limit idle ones are deleted; if none is
/// idle, the packet is dropped.
pub(crate) const MOST: usize = 1 << 18;
/// Above this number the instances, of two kilobytes each, exceed a level-two cache by far.
const WIDE: usize = 2048;

impl Runtime {
    pub fn new(seed: &Rng, hash: KeyedHash, dynamic_bytes: u64) -> Self {
        Runtime {
            hash,
            schedulers: Vec::new(),
            free_schedulers: Vec::new(),
            scheduler_slots: Map::with_hasher(hash),
            flowsets: Map::with_hasher(hash),
            instances: Vec::new(),
            free_instances: Vec::new(),
            queues: Vec::new(),
            free_queues: Vec::new(),
            queue_slots: Map::with_hasher(hash),
            by_flowset: Map::with_hasher(hash),
            agenda: Agenda::default(),
            places: Places::default(),
            is_announced: false,
            ready: std::collections::VecDeque::new(),
            ready_at: Time::ZERO,
            passages: Passages::default(),
            totals: Totals::default(),
            sweep: Sweep::default(),
            budget: Budget::new(dynamic_bytes),
            seed: seed.clone(),
            watch: None,
            worker: None,
            handed: std::collections::VecDeque::new(),
        }
    }

    pub fn instance_at(&self, instance: u32) -> &Instance {
        &self.instances[instance as usize]
    }

    pub fn queue_at(&self, queue: u32) -> &Queue {
        &self.queues[queue as usize]
    }

    /// Returns the queues of a flowset in the order of their slots.
    pub fn queues_of(&self, flowset: u32) -> Vec<u32> {
        let mut all = self.by_flowset.get(&flowset).cloned().unwrap_or_default();
        all.sort_unstable();
        all
    }

    /// Returns the number of queues of a flowset that are open in their schedulers.
    pub fn open_queues(&self, flowset: u32) -> usize {
        let all = self.by_flowset.get(&flowset).into_iter().flatten();
        all.filter(|queue| self.queues[**queue as usize].is_open)
            .count()
    }

    /// Returns the numbers of running instances and open queues.
    pub fn population(&self) -> [usize; 2] {
        [
            self.instances.iter().filter(|i| i.link.is_some()).count(),
            self.queues.iter().filter(|q| q.is_open).count(),
        ]
    }

    /// Whether super-packets must be split before they enter a flowset; `None` if it is not running.
    pub fn wants_single_packets(&self, flowset: u32, threshold: Rate) -> Option<bool> {
        let flowset = self.flowsets.get(&flowset)?;
        let scheduler = self.schedulers.get(flowset.scheduler as usize)?;
        let scheduler = scheduler.as_ref().expect("a flowset's scheduler exists");
        let is_lossy = flowset.config.loss.is_some();
        Some(is_lossy || scheduler.link.wants_single_packets(threshold))
    }

    /// Returns when the next event is due.
    pub fn next_event(&self) -> Option<Time> {
        let agenda = self.agenda.first().map(|(at, _)| at);
        if self.ready.is_empty() {
            return agenda;
        }
        Some(agenda.map_or(self.ready_at, |at| at.min(self.ready_at)))
    }

    /// Whether the instances exceed the processor's caches.
    pub fn is_wide(&self) -> bool {
        self.instances.len() > WIDE
    }

    /// Prefetches what [`Runtime::hinted`] reads.
    #[inline]
    pub fn prefetch_hinted(&self, hint: u32) {
        prefetch::index(&self.queues, hint as usize);
    }

    /// Returns the instance that a hint refers to.
    #[inline]
    pub fn hinted(&self, hint: u32) -> u32 {
        let queue = self.queues.get(hint as usize).filter(|q| q.is_used);
        queue.map_or(hint, |queue| queue.instance)
    }

    /// Prefetches the record of an instance, and what [`Runtime::prefetch_parts`] reads.
    #[inline]
    pub fn prefetch_record(&self, instance: u32) {
        self.places.prefetch_fetch(instance);
        if let Some(record) = self.instances.get(instance as usize) {
            Place::first_of(record, Instance::HOT_BYTES).fetch();
        }
        self.agenda.prefetch_set(instance);
    }

    /// Prefetches what a packet needs of an instance beside the record.
    #[inline]
    pub fn prefetch_parts(&self, instance: u32) {
        self.places.fetch(instance);
    }

    /// Notes what a packet of `flow` needs of an instance, for the next one.
    fn note_places(&mut self, instance: u32, flow: u32) {
        let link = self.instances[instance as usize].link.as_deref();
        if let Some(link) = link {
            self.places
                .note(instance, self.instances.len(), link.places(flow));
        }
    }

    /// Puts a packet into flowset `number` of this worker at `cx.now`. `hint` is the hint of the previous
    /// packet of its flow; the new one is kept for the next packet.
    pub fn enter_here(
        &mut self,
        mut packet: Packet,
        number: u32,
        passage: Passage,
        hint: u32,
        cx: &mut Cx<'_>,
    ) -> u32 {
        self.totals.packets += u64::from(packet.segments);
        packet.arrival = cx.now;
        let flow = FlowId::of(&passage.headers, number % STRIDE);
        self.passages.put(packet.slot, passage);
        self.admit(packet, number, flow, hint, true, cx)
    }

    /// Like [`Runtime::enter`], for a packet with a known passage. Moved packets are not counted
    /// again and are not subject to loss.
    pub(crate) fn admit(
        &mut self,
        mut packet: Packet,
        number: u32,
        flow: FlowId,
        hint: u32,
        is_new: bool,
        cx: &mut Cx<'_>,
    ) -> u32 {
        let place = self
            .flowsets
            .get(&number)
            .and_then(|f| (f.scheduler != NONE).then(|| (f.scheduler, Rc::clone(&f.config))));
        let Some((slot, flowset)) = place else {
            self.refuse(packet, is_new, cx);
            return NONE;
        };
        let scheduler = self.schedulers[slot as usize]
            .as_ref()
            .expect("a flowset's scheduler exists");
        let config = Rc::clone(&scheduler.config);
        if is_new && !self.budget.pipe_has_share(self.passages.held(slot)) {
            let goal = self.existing(slot, number, &flowset, flow);
            self.refuse_share(packet, goal, cx);
            return hint;
        }
        let key = flow.masked(&config.mask);
        // A hint is the queue, or else the instance, that the flow's previous packet entered.
        let hinted = if config.is_multi_queue {
            self.queues
                .get(hint as usize)
                .map_or(NONE, |queue| queue.instance)
        } else {
            hint
        };
        let is_wide = self.is_wide();
        if is_wide && !self.is_announced {
            self.prefetch_record(hinted);
            self.prefetch_parts(hinted);
        }
        let mut goal = Goal {
            scheduler: slot,
            instance: NONE,
            queue: NONE,
        };
        let Some(instance) = self.instance(slot, &config.mask, key, hinted, cx.now) else {
            self.refuse_at(packet, goal, is_new, cx);
            return NONE;
        };
        goal.instance = instance;
        let mut queue = NONE;
        if config.is_multi_queue {
            let mask = flowset.mask.or(&config.mask);
            let queue_key = QueueKey {
                instance,
                flowset: number,
                flow: flow.masked(&mask),
            };
            let is_dynamic = !mask.is_empty();
            match self.queue(queue_key, &flowset, is_dynamic, hint, cx) {
                Some(found) => queue = found,
                None => {
                    self.refuse_at(packet, goal, is_new, cx);
                    return NONE;
                }
            }
            packet.class = queue;
        } else {
            // Disciplines that rank packets by class rank these by the weight of their queue.
            packet.class = flowset.weight;
        }
        let is_dynamic = !config.mask.is_empty();
        let has_memory = (!is_dynamic || self.has_memory(instance))
            && (queue == NONE
                || !is_dynamic && flowset.mask.is_empty()
                || self.has_opening_memory(queue, cx));
        if !has_memory {
            self.budget.refused.dynamic_memory += 1;
            goal.queue = queue;
            self.refuse_at(packet, goal, is_new, cx);
            return NONE;
        }
        // The instance may have been put to sleep to release its memory.
        let wakes = self.instances[instance as usize].link.is_none();
        if wakes {
            self.wake_up(instance, cx.now);
        }
        if queue != NONE && !self.queues[queue as usize].is_open {
            self.open(queue, &flowset, cx);
        }
        self.passages.hold(&packet, slot);
        let record = &mut self.instances[instance as usize];
        record.last_active = cx.now;
        let mut is_lost = false;
        if is_new {
            record.counters.arrive(packet.segments, packet.len);
            let loss = match self.queues.get_mut(queue as usize) {
                Some(queue) => {
                    queue.counters.arrive(packet.segments, packet.len);
                    queue.last_active = cx.now;
                    Some(&mut queue.loss)
                }
                None => record.loss(),
            };
            is_lost = loss.is_some_and(|loss| loss.loses(cx.rng));
            if self.watch.is_some() {
                self.watch_arrival(&packet, instance, queue);
            }
        }
        if is_wide {
            self.note_places(instance, packet.flow);
        }
        self.with_link(instance, !is_new, cx, |link, cx| {
            if is_lost {
                // A lost packet takes no room in the queue and no time on the link.
                cx.discard(packet, DropReason::Loss);
            } else {
                link.enqueue(packet, cx);
            }
        });
        if wakes || (is_dynamic && self.budget.is_tight()) {
            self.account(instance);
        }
        self.schedule(instance, cx.now);
        if queue != NONE { queue } else { instance }
    }

    /// Calls `work` with an instance's link and a context in which all events are counted.
    pub fn with_link<T>(
        &mut self,
        instance: u32,
        is_moving: bool,
        cx: &mut Cx<'_>,
        work: impl FnOnce(&mut Link, &mut Cx<'_>) -> T,
    ) -> T {
        let record = &mut self.instances[instance as usize];
        let link = record
            .link
            .as_mut()
            .expect("an instance at work has a link");
        let now = cx.now;
        let is_listening = cx.is_listening();
        let scheduler = self.schedulers.get(record.scheduler as usize);
        let scheduler = scheduler.and_then(Option::as_ref);
        let has_queues = scheduler.is_some_and(|s| s.config.is_multi_queue);
        let watch = match (self.watch.as_deref_mut(), scheduler) {
            (Some(table), Some(scheduler)) => Some(Rows {
                table,
                object: scheduler.number,
                link: record.watch_row,
            }),
            _ => None,
        };
        let (rng, sink) = cx.parts();
        let mut tap = Tap {
            sink,
            object: scheduler.map(|s| ObjectName::of_scheduler(s.number)),
            is_listening,
            counters: &mut record.counters,
            waits: &mut record.waits,
            queues: has_queues.then_some(&mut self.queues[..]),
            totals: &mut self.totals,
            passages: &mut self.passages,
            watch,
            is_moving,
        };
        work(link, &mut Cx::new(now, rng, &mut tap))
    }

    /// Returns the instance of a scheduler for a flow, creating it if necessary.
    fn instance(
        &mut self,
        slot: u32,
        mask: &Mask,
        key: FlowId,
        hinted: u32,
        now: Time,
    ) -> Option<u32> {
        let scheduler = self.schedulers[slot as usize]
            .as_ref()
            .expect("a flowset's scheduler exists");
        if mask.is_empty() {
            if scheduler.single != NONE {
                return Some(scheduler.single);
            }
        } else {
            if let Some(record) = self.instances.get(hinted as usize)
                && record.scheduler == slot
                && record.key == key
                && record.is_used
            {
                return Some(hinted);
            }
            if let Some(found) = scheduler.by_flow.get(&key) {
                return Some(*found);
            }
        }
        let fifo = scheduler.internal.as_ref().filter(|_| scheduler.is_fifo());
        let loss = LossState::new(fifo.and_then(|f| f.loss.as_ref()));
        let mut instance = Instance::new(slot, key, now);
        instance.set_loss(loss);
        let index = match self.free_instances.pop() {
            Some(index) => {
                self.instances[index as usize] = instance;
                index
            }
            None if mask.is_empty()
                || (self.instances.len() < MOST && self.has_instance_memory()) =>
            {
                self.count_instance();
                self.instances.push(instance);
                self.instances.len() as u32 - 1
            }
            None => {
                let Some(index) = self.forget_an_instance() else {
                    self.refuse_new(self.instances.len());
                    return None;
                };
                self.instances[index as usize] = instance;
                index
            }
        };
        let scheduler = self.schedulers[slot as usize]
            .as_mut()
            .expect("a flowset's scheduler exists");
        if mask.is_empty() {
            scheduler.single = index;
        } else {
            scheduler.by_flow.insert(key, index);
        }
        Some(index)
    }

    /// Returns the queue of a flowset for a flow, creating it if necessary.
    fn queue(
        &mut self,
        key: QueueKey,
        flowset: &FlowsetConfig,
        is_dynamic: bool,
        hint: u32,
        cx: &mut Cx<'_>,
    ) -> Option<u32> {
        if let Some(queue) = self.queues.get(hint as usize)
            && queue.is_used
            && (queue.instance, queue.flowset, queue.key) == (key.instance, key.flowset, key.flow)
        {
            return Some(hint);
        }
        if let Some(found) = self.queue_slots.get(&key) {
            return Some(*found);
        }
        let index = match self.free_queues.pop() {
            Some(index) => index,
            None if self.queues.len() < MOST && (!is_dynamic || self.has_queue_memory()) => {
                self.count_queue();
                self.queues.len() as u32
            }
            None => {
                let Some(index) = self.forget_a_queue(cx) else {
                    self.refuse_new(self.queues.len());
                    return None;
                };
                index
            }
        };
        // The queue that was forgotten may have been of the same instance, or of the same flowset.
        let of_instance = &self.instances[key.instance as usize].queues;
        let of_flowset = self.by_flowset.get(&key.flowset);
        let queue = Queue {
            instance: key.instance,
            place: of_instance.len() as u32,
            flowset: key.flowset,
            flowset_place: of_flowset.map_or(0, Vec::len) as u32,
            key: key.flow,
            counters: Counters::default(),
            loss: LossState::new(flowset.loss.as_ref()),
            is_open: false,
            last_active: cx.now,
            is_used: true,
            watch_row: NO_ROW,
        };
        match self.queues.get_mut(index as usize) {
            Some(record) => *record = queue,
            None => self.queues.push(queue),
        }
        self.instances[key.instance as usize].queues.push(index);
        self.by_flowset.entry(key.flowset).or_default().push(index);
        self.queue_slots.insert(key, index);
        Some(index)
    }

    /// Creates the queue and link of an instance that has none at `now`.
    fn wake_up(&mut self, instance: u32, now: Time) {
        let record = &self.instances[instance as usize];
        let slot = record.scheduler;
        let scheduler = self.schedulers[slot as usize]
            .as_ref()
            .expect("an instance at work has a scheduler");
        let discipline = scheduler.discipline();
        let (params, files) = (scheduler.link.params(), scheduler.link_files());
        // The random streams of a link depend on its identity and the instant, not on how many were
        // created before it. One that was deleted when idle and comes back does not repeat its draws.
        let key = self.hash.of(&record.key.words());
        let own = self.seed.fork(key ^ u64::from(scheduler.number) << 32);
        let mut link = Link::new(&params, files, discipline, &own.fork(now.as_ns()));
        if let Some(effects) = self.keep_effects(instance, None) {
            link.go_on_from(*effects);
        }
        self.instances[instance as usize].link = Some(Box::new(link));
    }

    /// Opens a queue in its scheduler.
    pub(super) fn open(&mut self, queue: u32, flowset: &FlowsetConfig, cx: &mut Cx<'_>) {
        let instance = self.queues[queue as usize].instance;
        let aqm = discipline::build_aqm(flowset, self.rate_of(instance));
        if let Some(flowset) = self.flowsets.get_mut(&self.queues[queue as usize].flowset) {
            flowset.aqm_bytes = (size_of_val(&*aqm) + aqm.memory()) as u64;
        }
        let opened = self.with_link(instance, true, cx, |link, cx| {
            let classful = link.queue_mut(cx).as_classful();
            let classful = classful.expect("queues are of schedulers with several");
            let (share, limits) = (discipline::share(flowset), discipline::limits(flowset));
            classful.open(queue, share, &limits, aqm)
        });
        self.account(instance);
        // A queue that was refused, because the sum of the weights would be too large, stays
        // closed. The scheduler drops its packets as `no_route`.
        self.queues[queue as usize].is_open = opened.is_ok();
    }

    /// Returns the rate of an instance's link.
    pub(super) fn rate_of(&self, instance: u32) -> Rate {
        let slot = self.instances[instance as usize].scheduler;
        let scheduler = self.schedulers[slot as usize]
            .as_ref()
            .expect("an instance at work has a scheduler");
        scheduler.link.rate
    }

    /// Schedules the next event of an instance.
    #[inline]
    pub(super) fn schedule(&mut self, instance: u32, now: Time) {
        let link = self.instances[instance as usize].link.as_ref();
        match link.map_or(Wake::OnEnqueue, |link| link.next_wake()) {
            Wake::At(at) if at > now => self.agenda.set(instance, at),
            Wake::OnEnqueue => self.agenda.remove(instance),
            Wake::At(_) | Wake::Now => {
                self.agenda.remove(instance);
                let record = &mut self.instances[instance as usize];
                if !std::mem::replace(&mut record.is_ready, true) {
                    // Earlier ready instances have been processed before this instant.
                    debug_assert!(self.ready.is_empty() || self.ready_at == now);
                    self.ready_at = now;
                    self.ready.push_back(instance);
                }
            }
        }
    }

    /// Processes the next event for which `is_due` holds, and adds what arrived at the far end to
    /// the list. Returns `false` if there is no such event.
    pub fn advance(
        &mut self,
        is_due: impl Fn(Time) -> bool,
        arrivals: &mut Vec<Departure>,
        cx: &mut Cx<'_>,
    ) -> bool {
        let (at, instance) = match (self.ready.front(), self.agenda.first()) {
            (Some(_), Some((at, instance))) if at < self.ready_at => (at, instance),
            (Some(instance), _) => (self.ready_at, *instance),
            (None, Some(first)) => first,
            (None, None) => return false,
        };
        if !is_due(at) {
            return false;
        }
        if self.ready.front() == Some(&instance) && at == self.ready_at {
            self.ready.pop_front();
            self.instances[instance as usize].is_ready = false;
        }
        let now = std::mem::replace(&mut cx.now, at);
        if self.instances[instance as usize].link.is_some() {
            self.with_link(instance, false, cx, |link, cx| {
                while let Some(departure) = link.poll(cx) {
                    arrivals.push(departure);
                }
            });
            let record = &mut self.instances[instance as usize];
            for departure in arrivals.iter() {
                let packet = &departure.packet;
                self.passages.leave(packet.slot);
                record.counters.departed += u64::from(packet.segments);
                record.meter.add(departure.due, packet.len);
                record.last_active = at;
            }
            self.schedule(instance, at);
            let record = &self.instances[instance as usize];
            if record.scheduler == NONE && record.is_empty() {
                self.free(instance);
            }
        }
        cx.now = now;
        true
    }
}

impl Scheduler {
    /// Whether the single queue has the limits, the AQM and the loss of its flowset.
    pub fn is_fifo(&self) -> bool {
        self.config.spec.algorithm.name == "fifo"
    }

    /// Creates a discipline as configured.
    pub fn discipline(&self) -> Box<dyn Discipline> {
        let blank = self.model.blank();
        blank.unwrap_or_else(|| build(&self.config, self.internal.as_deref(), &self.link))
    }

    /// Must be called after the configuration has changed.
    pub fn refresh_model(&mut self) {
        self.model = build(&self.config, self.internal.as_deref(), &self.link);
    }

    pub fn link_files(&self) -> LinkFiles {
        LinkFiles {
            rate: None,
            profile: self.link.profile.as_deref().cloned(),
            jitter_table: None,
        }
    }
}

/// Builds the discipline of a scheduler from its specification.
pub(super) fn build(
    config: &SchedulerConfig,
    internal: Option<&FlowsetConfig>,
    link: &LinkConfig,
) -> Box<dyn Discipline> {
    match internal {
        Some(flowset) if config.spec.algorithm.name == "fifo" => {
            discipline::build_fifo(flowset, link.rate)
        }
        _ => discipline::build(&config.spec),
    }
}
