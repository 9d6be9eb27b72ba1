//! `show` in pieces: a look at a hundred thousand flows must not hold up packets.
//!
//! A host begins with [`Firewall::survey`], lets the engine look at some flows at a time with
//! [`Firewall::look`] while packets go on in between, and puts the answer together with
//! [`Survey::finish`], which needs the engine no more. Each row is of the instant at which it was looked
//! at; a flow that comes in the meantime may be missing.

use std::collections::BTreeMap;
use std::ops::Range;

use sluice_core::event::Cx;
use sluice_core::units::Time;

use super::collect::{Collector, Rows, instance_state, is_selected};
use super::text::Writer;
use super::{FlowState, Snapshot};
use crate::engine::{Firewall, Output};
use crate::flow::FlowId;
use crate::grammar::{self, Command, ObjectKind};
use crate::objects::layout::STRIDE;

/// A `show` of pipes, schedulers or queues under way.
#[derive(Debug)]
pub struct Survey {
    kind: ObjectKind,
    is_json: bool,
    is_verbose: bool,
    /// The objects, without their flows.
    objects: Snapshot,
    /// The instance, or queue, that is looked at next.
    next: u32,
    /// Rows in the order in which they were found, a piece each: growing one list would copy it.
    pieces: Vec<Vec<Row>>,
}

/// A flow of a scheduler or flowset of this number.
#[derive(Debug)]
struct Row {
    object: u32,
    key: FlowId,
    flow: FlowState,
}

impl Firewall {
    /// Begins with a command, if it is one that only shows pipes, schedulers or queues and says
    /// nothing else; all others are for [`Firewall::execute`].
    pub fn survey(&mut self, text: &str, cx: &mut Cx<'_>) -> Option<Survey> {
        if text.trim_end().contains('\n') {
            return None;
        }
        let line = grammar::parse(text, 1, self.switches.is_compat).ok()?;
        let invocation = line.invocation.filter(|i| !i.flags.check_only)?;
        let Command::ShowObjects(kind, spans) = &invocation.command else {
            return None;
        };
        if !line.warnings.is_empty() || !line.notices.is_empty() {
            return None;
        }
        let now = cx.now;
        self.advance(|at| at < now, cx);
        let mut objects = Snapshot {
            now_ns: now.as_ns(),
            ..Snapshot::default()
        };
        let collector = Collector {
            layout: &self.layout,
            runtime: &mut self.runtime,
            is_compat: self.switches.is_compat,
        };
        let links = collector.layout.links.keys().copied();
        let numbers = links.filter(|n| is_selected(*n, spans));
        match kind {
            ObjectKind::Pipe => {
                objects.pipes = numbers.filter_map(|n| collector.pipe_head(n)).collect();
            }
            ObjectKind::Scheduler => {
                let heads = numbers.filter_map(|n| collector.scheduler_head(n));
                objects.schedulers = heads.collect();
            }
            ObjectKind::Queue => {
                let queues = collector.layout.queues().map(|(n, _)| n);
                let numbers = queues.filter(|n| is_selected(*n, spans));
                objects.queues = numbers.filter_map(|n| collector.queue_head(n)).collect();
            }
        }
        Some(Survey {
            kind: *kind,
            is_json: invocation.flags.json,
            is_verbose: invocation.flags.verbose,
            objects,
            next: 0,
            pieces: Vec::new(),
        })
    }

    /// Looks at the next `count` flows. Gives whether there are more.
    pub fn look(&mut self, survey: &mut Survey, count: u32, cx: &mut Cx<'_>) -> bool {
        let now = cx.now;
        self.advance(|at| at < now, cx);
        let all = match survey.kind {
            ObjectKind::Queue => self.runtime.queues.len(),
            ObjectKind::Pipe | ObjectKind::Scheduler => self.runtime.instances.len(),
        } as u32;
        let end = survey.next.saturating_add(count).min(all);
        let indexes = survey.next..end;
        survey.pieces.push(match survey.kind {
            ObjectKind::Queue => self.queue_rows(indexes, cx),
            // Those above are the FIFOs beside the schedulers: what `pipe show` is about.
            ObjectKind::Pipe => self.instance_rows(indexes, now, |number| number >= STRIDE),
            ObjectKind::Scheduler => self.instance_rows(indexes, now, |number| number < STRIDE),
        });
        survey.next = end;
        end < all
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
            // Those above are the queues of pipes.
            if queue.is_used && object < STRIDE {
                let (key, flow) = collector.queue_row(index, cx);
                rows.push(Row { object, key, flow });
            }
        }
        rows
    }
}

impl Survey {
    /// The answer: what the command would have said.
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
