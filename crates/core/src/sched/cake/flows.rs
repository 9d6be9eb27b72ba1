//! The flow queues of a tin, in sets that are created with their first packet.
//!
//! A set holds the queues among which a hash can choose. Memory for all sets is allocated at once, so
//! that a limit of the memory of many links holds when their flows spread later. But of the 1024 queues
//! of a subscriber's link rarely more than a few see a packet, and only these are written: 1 KiB for a
//! new link and not 100.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::{Index, IndexMut};

use super::tin::QUEUES;
use crate::aqm::cobalt::{Cobalt, CobaltParams};
use crate::aqm::{AqmAlgorithm, QueueView};
use crate::event::Backlog;
use crate::sched::allocated;
use crate::sched::pool::{Chain, NONE};

/// Queues among which a hash can choose. That many flows must collide before two share a queue.
pub(super) const WAYS: u32 = 8;

const SETS: usize = (QUEUES / WAYS) as usize;

/// The queues of a tin, by number.
#[derive(Default)]
pub(super) struct Flows {
    /// For each set its place among those that exist, from 1, or 0.
    places: Vec<u8>,
    /// The queues of the sets that exist.
    flows: Vec<Flow>,
}

const _: () = assert!(SETS <= u8::MAX as usize);

/// A flow queue.
pub(super) struct Flow {
    /// Hash of the flow that owns the queue.
    pub(super) tag: u32,
    pub(super) chain: Chain,
    pub(super) backlog: Backlog,
    /// Bytes that may still be sent in this turn, with [`FRACTION`](super::tin::FRACTION) bits.
    pub(super) deficit: i64,
    pub(super) turn: Turn,
    pub(super) hosts: [u16; 2],
    /// Nodes of the last two pure acknowledgements, older first, or [`NONE`].
    pub(super) acks: [u32; 2],
    pub(super) aqm: Cobalt,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// On no list.
    Off,
    /// On the new list.
    Sparse,
    /// On the old list to pay off its deficit, but empty: it does not count as bulk.
    SparseWait,
    /// On the old list.
    Bulk,
}

impl Flows {
    /// Returns whether no queue has seen a packet.
    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Allocates memory for all sets.
    pub(super) fn allocate(&mut self) {
        self.places.resize(SETS, 0);
        self.flows.reserve_exact(QUEUES as usize);
    }

    /// Returns the bytes that have been allocated.
    pub(super) fn memory(&self) -> usize {
        allocated(&self.places) + allocated(&self.flows)
    }

    /// Creates the set of queue `id` if it does not exist.
    #[inline]
    pub(super) fn ensure(&mut self, id: u32, aqm: &Arc<CobaltParams>) {
        if self.places[(id / WAYS) as usize] == 0 {
            self.create(id, aqm);
        }
    }

    #[cold]
    fn create(&mut self, id: u32, aqm: &Arc<CobaltParams>) {
        let flows = (0..WAYS).map(|_| Flow {
            tag: 0,
            chain: Chain::EMPTY,
            backlog: Backlog::default(),
            deficit: 0,
            turn: Turn::Off,
            hosts: [0; 2],
            acks: [NONE; 2],
            aqm: Cobalt::for_flow(aqm),
        });
        self.flows.extend(flows);
        self.places[(id / WAYS) as usize] = (self.flows.len() / WAYS as usize) as u8;
    }

    /// Iterates over the queues of the sets that exist.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Flow)> {
        let sets = (0..).step_by(WAYS as usize).zip(&self.places);
        sets.filter(|(_, place)| **place > 0)
            .flat_map(|(first, place)| {
                let from = (usize::from(*place) - 1) * WAYS as usize;
                (first..).zip(&self.flows[from..from + WAYS as usize])
            })
    }

    /// Returns the place of a queue whose set exists.
    #[inline]
    fn place(&self, id: usize) -> usize {
        let set = usize::from(self.places[id / WAYS as usize]);
        (set - 1) * WAYS as usize + id % WAYS as usize
    }
}

impl Index<usize> for Flows {
    type Output = Flow;

    #[inline]
    fn index(&self, id: usize) -> &Flow {
        &self.flows[self.place(id)]
    }
}

impl IndexMut<usize> for Flows {
    #[inline]
    fn index_mut(&mut self, id: usize) -> &mut Flow {
        let place = self.place(id);
        &mut self.flows[place]
    }
}

impl Flow {
    /// Returns what the AQM of a flow sees; all queues hold `total`.
    #[inline]
    pub(super) fn view(&self, total: &Backlog, limit: &Backlog) -> QueueView {
        QueueView {
            packets: self.backlog.packets,
            bytes: self.backlog.bytes,
            total_bytes: total.bytes,
            limit_packets: limit.packets,
            limit_bytes: limit.bytes,
        }
    }

    /// Forgets the packet in `node`, which leaves, if it is a remembered acknowledgement.
    #[inline]
    pub(super) fn forget_ack(&mut self, node: u32) {
        for ack in &mut self.acks {
            if *ack == node {
                *ack = NONE;
            }
        }
    }
}
