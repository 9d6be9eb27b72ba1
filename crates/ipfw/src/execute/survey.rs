//! `show` in pieces, so that showing a hundred thousand flows does not delay packets.
//!
//! A host starts with [`Firewall::survey`], lets the engine visit some flows at a time with
//! [`Firewall::look`] while packets continue in between, and builds the answer with
//! [`Survey::finish`], which does not need the engine. Each row shows the instant of its visit; a
//! flow that appears in the meantime may be missing.

use std::collections::BTreeMap;
use std::ops::Range;

use sluice_core::event::Cx;
use sluice_core::registry::NoLoaders;
use sluice_core::units::Time;

use crate::engine::{Firewall, Output};
use crate::flow::FlowId;
use crate::grammar::{self, Command, ObjectKind};
use crate::objects::layout::STRIDE;
use crate::show::collect::{Collector, Rows, Selection, instance_state};
use crate::show::text::Writer;
use crate::show::{FlowState, Snapshot};

/// A `show` of pipes, schedulers or queues in progress.
#[derive(Debug)]
pub struct Survey {
    kind: ObjectKind,
    is_json: bool,
    is_verbose: bool,
    /// The numbers of the objects, and how many of these are among `objects`.
    numbers: Vec<u32>,
    begun: usize,
    /// The objects, without their flows.
    objects: Snapshot,
    /// The next instance or queue to visit.
    next: u32,
    /// Rows in the order in which they were found, in pieces, because one growing list would be
    /// copied.
    pieces: Vec<Vec<Row>>,
}

/// A flow of the scheduler or flowset of this number.
#[derive(Debug)]
struct Row {
    object: u32,
    key: FlowId,
    flow: FlowState,
}

impl Firewall {
    /// Starts a survey if the command only shows pipes, schedulers or queues and gives no warning.
    /// [`Firewall::execute`] handles all others.
    pub fn survey(&mut self, text: &str, cx: &mut Cx<'_>) -> Option<Survey> {
        if text.trim_end().contains('\n') {
            return None;
        }
        // A command that shows something loads no algorithm.
        let line = grammar::parse_with(&NoLoaders, text, 1, self.switches.is_compat).ok()?;
        let invocation = line.invocation.filter(|i| !i.flags.check_only)?;
        let Command::ShowObjects(kind, spans) = &invocation.command else {
            return None;
        };
        if !line.warnings.is_empty() || !line.notices.is_empty() {
            return None;
        }
        let now = cx.now;
        self.advance(|at| at < now, cx);
        let selection = Selection::new(spans);
        let is_meant = |number: &u32| selection.has(*number);
        let numbers: Vec<u32> = match kind {
            ObjectKind::Pipe | ObjectKind::Scheduler => {
                self.layout.links.keys().copied().filter(is_meant).collect()
            }
            ObjectKind::Queue => {
                let queues = self.layout.queues().map(|(number, _)| number);
                queues.filter(is_meant).collect()
            }
        };
        let mut objects = Snapshot {
            now_ns: now.as_ns(),
            ..Snapshot::default()
        };
        // A growing list would be copied.
        match kind {
            ObjectKind::Pipe => objects.pipes.reserve_exact(numbers.len()),
            ObjectKind::Scheduler => objects.schedulers.reserve_exact(numbers.len()),
            ObjectKind::Queue => objects.queues.reserve_exact(numbers.len()),
        }
        Some(Survey {
            kind: *kind,
            is_json: invocation.flags.json,
            is_verbose: invocation.flags.verbose,
            numbers,
            begun: 0,
            objects,
            next: 0,
            pieces: Vec::new(),
        })
    }

    /// Visits the next `count` objects or flows. Returns whether more are left.
    pub fn look(&mut self, survey: &mut Survey, count: u32, cx: &mut Cx<'_>) -> bool {
        let now = cx.now;
        self.advance(|at| at < now, cx);
        if survey.begun < survey.numbers.len() {
            self.begin_objects(survey, count as usize);
            return true;
        }
        let all = match survey.kind {
            ObjectKind::Queue => self.runtime.queues.len(),
            ObjectKind::Pipe | ObjectKind::Scheduler => self.runtime.instances.len(),
        } as u32;
        let end = survey.next.saturating_add(count).min(all);
        let indexes = survey.next..end;
        survey.pieces.push(match survey.kind {
            ObjectKind::Queue => self.queue_rows(indexes, cx),
            // Higher numbers are the FIFOs beside the schedulers, which `pipe show` shows.
            ObjectKind::Pipe => self.instance_rows(indexes, now, |number| number >= STRIDE),
            ObjectKind::Scheduler => self.instance_rows(indexes, now, |number| number < STRIDE),
        });
        survey.next = end;
        end < all
    }

    /// Adds the next `count` objects, without their flows.
    fn begin_objects(&mut self, survey: &mut Survey, count: usize) {
        let collector = Collector {
            layout: &self.layout,
            runtime: &mut self.runtime,
            is_compat: self.switches.is_compat,
        };
        let end = (survey.begun + count).min(survey.numbers.len());
        let next = survey.numbers[survey.begun..end].iter().copied();
        survey.begun = end;
        let objects = &mut survey.objects;
        match survey.kind {
            ObjectKind::Pipe => {
                let heads = next.filter_map(|n| collector.pipe_head(n));
                objects.pipes.extend(heads);
            }
            ObjectKind::Scheduler => {
                let heads = next.filter_map(|n| collector.scheduler_head(n));
                objects.schedulers.extend(heads);
            }
            ObjectKind::Queue => {
                let heads = next.filter_map(|n| collector.queue_head(n));
                objects.queues.extend(heads);
            }
        }
    }

    fn instance_rows(
        &self,
        indexes: Range<u32>,
        now: Time,
        is_shown: impl Fn(u32) -> bool,
    ) -> Vec<Row> {
        let rows = indexes.filter_map(|index| {
            let instance = self.runtime.instance_at(index);
            let slot = instance.scheduler as usize;
            let scheduler = self.runtime.schedulers.get(slot)?.as_ref()?;
            is_shown(scheduler.number).then(|| Row {
                object: scheduler.number,
                key: instance.key,
                flow: instance_state(instance, scheduler.config.buckets, now),
            })
        });
        rows.collect()
    }

    fn queue_rows(&mut self, indexes: Range<u32>, cx: &mut Cx<'_>) -> Vec<Row> {
        let mut collector = Collector {
            layout: &self.layout,
            runtime: &mut self.runtime,
            is_compat: self.switches.is_compat,
        };
        let mut rows = Vec::new();
        for index in indexes {
            let queue = collector.runtime.queue_at(index);
            let object = queue.flowset;
            // Higher numbers are the queues of pipes.
            if queue.is_used && object < STRIDE {
                let (key, flow) = collector.queue_row(index, cx);
                rows.push(Row { object, key, flow });
            }
        }
        rows
    }
}

impl Survey {
    /// Adds the flows of another worker with the same configuration.
    pub fn absorb(&mut self, other: Survey) {
        self.pieces.extend(other.pieces);
        let (own, more) = (&mut self.objects, other.objects);
        for (pipe, more) in own.pipes.iter_mut().zip(more.pipes) {
            pipe.flowset.active += more.flowset.active;
            pipe.scheduler.forgotten.absorb(&more.scheduler.forgotten);
        }
        for (object, more) in own.schedulers.iter_mut().zip(more.schedulers) {
            if let (Some(flowset), Some(more)) = (&mut object.flowset, more.flowset) {
                flowset.active += more.active;
            }
            object.scheduler.forgotten.absorb(&more.scheduler.forgotten);
        }
        // The flows of a queue are counted when the output is made.
    }

    /// Returns the output of the command.
    pub fn finish(self) -> Output {
        let mut flows: BTreeMap<u32, Rows> = BTreeMap::new();
        for row in self.pieces.into_iter().flatten() {
            let of_object = flows.entry(row.object).or_default();
            of_object.push((row.key, row.flow));
        }
        let mut take = |number: u32| flows.remove(&number).unwrap_or_default();
        let mut snapshot = self.objects;
        for pipe in &mut snapshot.pipes {
            pipe.fill(take(pipe.scheduler.number));
        }
        for object in &mut snapshot.schedulers {
            object.fill(take(object.scheduler.number));
        }
        for queue in &mut snapshot.queues {
            queue.fill(take(queue.flowset.number));
        }
        if self.is_json {
            return Output {
                snapshot: Some(Box::new(snapshot)),
                ..Output::default()
            };
        }
        Output {
            stdout: Writer::new(self.is_verbose).objects(&snapshot),
            ..Output::default()
        }
    }
}
