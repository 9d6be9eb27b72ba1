//! The exchange of a watcher's tables, in steps with packets in between.

use sluice_core::event::Cx;
use sluice_core::units::Time;

use crate::engine::Firewall;
use crate::objects::layout::STRIDE;
use crate::objects::watch::{ObjectName, Place, WatchTable};
use crate::show::collect::{Collector, instance_state};
use crate::show::{FlowState, LinkState, policy};

/// The counters of a pipe or queue that determine its rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    /// The place.
    pub place: Place,
    /// The object.
    pub object: ObjectName,
    /// Bytes that have arrived.
    pub bytes: u64,
    /// Packets that were dropped.
    pub dropped: u64,
    /// Packets that wait.
    pub queued_packets: u64,
}

/// The state of a pipe or queue that has a row of its own.
#[derive(Clone, Debug)]
pub struct Detail {
    /// The place.
    pub place: Place,
    /// The object.
    pub object: ObjectName,
    /// The scheduler of a queue.
    pub parent: Option<ObjectName>,
    /// The link.
    pub link: LinkState,
    /// The scheduler, or the policy of the queue, in dummynet's words.
    pub words: String,
    /// Whether the object has a mask, so that this is one of its flows.
    pub is_masked: bool,
    /// The flow and its counters.
    pub state: FlowState,
}

/// An exchange of tables in progress, and its result.
#[derive(Debug, Default)]
pub struct Watching {
    /// The table for the next interval; `None` ends the watch.
    fresh: Option<Box<WatchTable>>,
    stage: Stage,
    next: usize,
    /// The instant of the exchange.
    pub at: Time,
    /// All pipes and queues.
    pub tallies: Vec<Tally>,
    /// The state of the places of [`Watching::table`].
    pub details: Vec<Detail>,
    /// The table of the interval that has ended.
    pub table: Option<Box<WatchTable>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Links,
    Queues,
    Details,
}

impl Watching {
    /// Creates an exchange for this table, which is empty.
    pub fn new(fresh: Option<Box<WatchTable>>) -> Watching {
        Watching {
            fresh,
            ..Watching::default()
        }
    }

    /// Returns the exchanges of several workers, which together are this one.
    pub fn split(self, workers: u32) -> Vec<Watching> {
        let fresh = self.fresh.as_ref();
        let of_worker = |worker| fresh.map(|table| Box::new(table.for_worker(worker)));
        let all = 0..workers;
        all.map(|worker| Watching::new(of_worker(worker))).collect()
    }

    /// Returns what the exchanges of [`Watching::split`] have become as one.
    pub fn join(all: Vec<Watching>) -> Watching {
        let mut whole = Watching::default();
        for (worker, mut one) in (0..).zip(all) {
            let tallies = one.tallies.iter_mut().map(|tally| &mut tally.place);
            let details = one.details.iter_mut().map(|detail| &mut detail.place);
            for place in tallies.chain(details) {
                *place = place.of_worker(worker);
            }
            whole.tallies.append(&mut one.tallies);
            whole.details.append(&mut one.details);
            whole.at = whole.at.max(one.at);
            if let Some(table) = &mut one.table {
                let sum = whole
                    .table
                    .get_or_insert_with(|| Box::new(WatchTable::new(Vec::new())));
                sum.absorb(worker, table);
            }
        }
        whole
    }

    /// Ends the exchange at once, for a host that has links but no rules: `table` is that of the
    /// interval that ends at `at`. Returns the table of the next one, unless the watch ends.
    pub fn exchange(
        &mut self,
        table: Option<Box<WatchTable>>,
        links: Vec<(Tally, Detail)>,
        at: Time,
    ) -> Option<Box<WatchTable>> {
        (self.tallies, self.details) = links.into_iter().unzip();
        let mut fresh = self.fresh.take();
        if let Some(fresh) = &mut fresh {
            fresh.follow(table.as_deref(), at);
        }
        self.at = at;
        self.table = table;
        fresh
    }
}

impl Firewall {
    /// Continues an exchange, which takes some tens of microseconds. Returns whether steps are left.
    /// The last step exchanges the tables.
    pub fn watch(&mut self, watching: &mut Watching, cx: &mut Cx<'_>) -> bool {
        let now = cx.now;
        self.advance(|at| at < now, cx);
        match watching.stage {
            Stage::Links => {
                let end = (watching.next + TALLIES).min(self.runtime.instances.len());
                for index in watching.next..end {
                    watching.tallies.extend(self.tally_link(index));
                }
                watching.next = end;
                if end == self.runtime.instances.len() {
                    (watching.stage, watching.next) = (Stage::Queues, 0);
                }
            }
            Stage::Queues => {
                let end = (watching.next + TALLIES).min(self.runtime.queues.len());
                for index in watching.next..end {
                    watching.tallies.extend(self.tally_queue(index));
                }
                watching.next = end;
                if end == self.runtime.queues.len() {
                    (watching.stage, watching.next) = (Stage::Details, 0);
                }
            }
            Stage::Details => {
                let table = self.runtime.watch.as_deref();
                let places = table.map_or(&[][..], WatchTable::places);
                let end = (watching.next + DETAILS).min(places.len());
                let some = places[watching.next..end].to_vec();
                let is_last = end == places.len();
                for place in some {
                    watching.details.extend(self.detail(place, cx));
                }
                watching.next = end;
                if is_last {
                    watching.at = now;
                    let fresh = watching.fresh.take();
                    watching.table = self.runtime.exchange_watch(fresh, now);
                    return false;
                }
            }
        }
        true
    }

    fn tally_link(&self, index: usize) -> Option<Tally> {
        let instance = &self.runtime.instances[index];
        let slot = instance.scheduler as usize;
        let scheduler = self.runtime.schedulers.get(slot)?.as_ref()?;
        let queued = instance.link.as_ref().map(|link| link.backlog());
        Some(Tally {
            place: Place::Link(index as u32),
            object: ObjectName::of_scheduler(scheduler.number),
            bytes: instance.counters.bytes,
            dropped: instance.counters.dropped(),
            queued_packets: queued.map_or(0, |backlog| backlog.packets),
        })
    }

    fn tally_queue(&self, index: usize) -> Option<Tally> {
        let queue = &self.runtime.queues[index];
        (queue.is_used && queue.flowset < STRIDE).then(|| Tally {
            place: Place::Queue(index as u32),
            object: ObjectName::Queue(queue.flowset),
            bytes: queue.counters.bytes,
            dropped: queue.counters.dropped(),
            queued_packets: 0,
        })
    }

    fn detail(&mut self, place: Place, cx: &mut Cx<'_>) -> Option<Detail> {
        let is_compat = self.switches.is_compat;
        let (slot, queue) = match place {
            Place::Link(index) => (self.runtime.instances.get(index as usize)?.scheduler, None),
            Place::Queue(index) => {
                let queue = self.runtime.queues.get(index as usize)?;
                let instance = self.runtime.instances.get(queue.instance as usize)?;
                (instance.scheduler, queue.is_used.then_some(index))
            }
        };
        let scheduler = self.runtime.schedulers.get(slot as usize)?.as_ref()?;
        let number = scheduler.number;
        let object = ObjectName::of_scheduler(number);
        let buckets = scheduler.config.buckets;
        let (link, config) = (&scheduler.link, &scheduler.config);
        let link = crate::show::collect::link_state(number % STRIDE, link);
        let Place::Queue(_) = place else {
            let internal = scheduler.internal.as_ref().filter(|_| scheduler.is_fifo());
            let words = match internal {
                Some(f) => policy::policy(f.policy.as_ref(), f.aqm.as_ref(), is_compat),
                None => {
                    let parameters = policy::scheduler(&config.spec, is_compat);
                    let name = config.spec.algorithm.name;
                    format!("{name} {parameters}").trim_end().to_owned()
                }
            };
            let Place::Link(index) = place else {
                unreachable!("queues are handled below")
            };
            return Some(Detail {
                place,
                object,
                parent: None,
                link,
                words,
                is_masked: !config.mask.is_empty(),
                state: instance_state(self.runtime.instance_at(index), buckets, cx.now),
            });
        };
        let mask = config.mask;
        let index = queue?;
        let flowset = self.runtime.queue_at(index).flowset;
        let settings = self.layout.flowsets.get(&flowset)?;
        let words = policy::policy(settings.policy.as_ref(), settings.aqm.as_ref(), is_compat);
        let words = format!("weight {} {words}", settings.weight);
        let is_masked = !settings.mask.or(&mask).is_empty();
        let mut collector = Collector {
            layout: &self.layout,
            runtime: &mut self.runtime,
            is_compat,
        };
        let (_, state) = collector.queue_row(index, cx);
        Some(Detail {
            place,
            object: ObjectName::Queue(flowset),
            parent: Some(object),
            link,
            words,
            is_masked,
            state,
        })
    }
}

/// Tallies of one step.
const TALLIES: usize = 256;
/// Details of one step.
const DETAILS: usize = 8;

#[cfg(test)]
mod tests;
