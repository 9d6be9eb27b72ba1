//! A module that ranks packets: a scheduler on the push-in queue of `pifo` and `pieo`.

use sluice_core::aqm::{Aqm as _, QueueView};
use sluice_core::event::{Backlog, StateValue};
use sluice_core::sched::rank::Place;
use sluice_core::{Cx, Packet};
use sluice_loader::Ranks;

use crate::instance::{InQueue, Note};

/// The ranks of one queue.
pub(crate) struct Scheduler {
    pub module: InQueue,
    /// Wire packets that the queue holds.
    pub limit: u64,
}

impl Scheduler {
    /// Returns the queue as the module sees it.
    fn view(&self, queue: Backlog) -> QueueView {
        QueueView {
            packets: queue.packets,
            bytes: queue.bytes,
            total_bytes: queue.bytes,
            limit_packets: self.limit,
            limit_bytes: u64::MAX,
        }
    }
}

impl Ranks for Scheduler {
    fn place(&mut self, packet: &Packet, queue: Backlog, cx: &mut Cx<'_>) -> Option<Place> {
        self.module.place(packet, &self.view(queue), cx)
    }

    fn accepted(&mut self, packet: &Packet, rank: u64, queue: Backlog, cx: &mut Cx<'_>) {
        let queue = self.view(queue);
        self.module.note(Note::Accepted, packet, rank, &queue, cx);
    }

    fn left(&mut self, packet: &Packet, rank: u64, queue: Backlog, cx: &mut Cx<'_>) {
        let queue = self.view(queue);
        self.module.note(Note::Left, packet, rank, &queue, cx);
    }

    fn memory(&self) -> usize {
        self.module.memory()
    }

    fn state(&self, visit: &mut dyn FnMut(&'static str, StateValue)) {
        self.module.state(visit);
    }
}
