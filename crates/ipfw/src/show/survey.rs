//! `show` in pieces: a look at a hundred thousand flows must not hold up packets.
//!
//! A host begins with [`Firewall::survey`], lets the engine look at some flows at a time with
//! [`Firewall::look`] while packets go on in between, and puts the answer together with
//! [`Survey::finish`], which needs the engine no more. Each row is of the instant at which it was looked
//! at; a flow that comes in the meantime may be missing.

use std::collections::BTreeMap;

use sluice_core::event::Cx;

use super::collect::{Collector, instance_state, is_selected};
use super::text::Writer;
use super::{FlowState, Snapshot};
use crate::engine::{Firewall, Output};
use crate::flow::FlowId;
use crate::grammar::{self, Command, ObjectKind};
use crate::objects::layout::STRIDE;

/// A `show` of pipes or schedulers under way.
#[derive(Debug)]
pub struct Survey {
    is_json: bool,
    is_verbose: bool,
    /// The objects, without their flows.
    objects: Snapshot,
    /// The instance that is looked at next.
    next: u32,
    /// Rows in the order in which they were found, a piece each: growing one list would copy it.
    pieces: Vec<Vec<Row>>,
}

/// A flow of a scheduler of this number.
#[derive(Debug)]
struct Row {
    scheduler: u32,
    key: FlowId,
    flow: FlowState,
}

impl Firewall {
    /// Begins with a command, if it is one that only shows pipes or schedulers and says nothing
    /// else; all others are for [`Firewall::execute`].
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
            ObjectKind::Queue => return None,
        }
        Some(Survey {
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
        let all = self.runtime.instances.len() as u32;
        let end = survey.next.saturating_add(count).min(all);
        let is_pipes = survey.objects.schedulers.is_empty();
        let mut piece = Vec::new();
        for index in survey.next..end {
            let instance = self.runtime.instance_at(index);
            let slot = instance.scheduler as usize;
            let Some(Some(scheduler)) = self.runtime.schedulers.get(slot) else {
                continue;
            };
            // Those above are the FIFOs beside the schedulers: what `pipe show` is about.
            if (scheduler.number >= STRIDE) == is_pipes {
                piece.push(Row {
                    scheduler: scheduler.number,
                    key: instance.key,
                    flow: instance_state(instance, scheduler.config.buckets, now),
                });
            }
        }
        survey.pieces.push(piece);
        survey.next = end;
        end < all
    }
}

impl Survey {
    /// The answer: what the command would have said.
    pub fn finish(self) -> Output {
        let mut flows: BTreeMap<u32, Vec<(FlowId, FlowState)>> = BTreeMap::new();
        for row in self.pieces.into_iter().flatten() {
            let of_object = flows.entry(row.scheduler).or_default();
            of_object.push((row.key, row.flow));
        }
        let mut take = |number: u32| {
            let mut rows = flows.remove(&number).unwrap_or_default();
            rows.sort_by_key(|(key, _)| *key);
            let active = rows.iter().filter(|(_, flow)| flow.is_active).count();
            let rows: Vec<FlowState> = rows.into_iter().map(|(_, flow)| flow).collect();
            (active, rows)
        };
        let mut snapshot = self.objects;
        let mut writer = Writer::new(self.is_verbose);
        for pipe in &mut snapshot.pipes {
            (pipe.scheduler.active, pipe.flows) = take(pipe.scheduler.number);
        }
        for object in &mut snapshot.schedulers {
            (object.scheduler.active, object.flows) = take(object.scheduler.number);
        }
        if self.is_json {
            return Output {
                snapshot: Some(Box::new(snapshot)),
                ..Output::default()
            };
        }
        snapshot.pipes.iter().for_each(|pipe| writer.pipe(pipe));
        let schedulers = snapshot.schedulers.iter();
        schedulers.for_each(|scheduler| writer.scheduler_object(scheduler));
        Output {
            stdout: writer.finish(),
            ..Output::default()
        }
    }
}
