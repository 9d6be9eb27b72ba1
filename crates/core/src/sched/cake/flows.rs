//! The flow queues of a tin, in sets that are allocated with their first packet.
//!
//! A set holds the queues among which a hash can choose. Of the 1024 queues of a subscriber's link
//! rarely more than a few have seen a packet, so a new link costs the time for 1 KiB and not for 100.

use alloc::boxed::Box;
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

type Set = [Flow; WAYS as usize];

/// The queues of a tin, by number.
#[derive(Default)]
pub(super) struct Flows(Vec<Option<Box<Set>>>);

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
        self.0.is_empty()
    }

    /// Makes room for the sets, which take no memory yet.
    pub(super) fn allocate(&mut self) {
        self.0.resize_with((QUEUES / WAYS) as usize, || None);
    }

    /// Returns the bytes that all sets take, also those that are not allocated yet. So a limit of the
    /// memory of many links holds when their flows spread later.
    pub(super) fn memory(&self) -> usize {
        allocated(&self.0) + self.0.len() * size_of::<Set>()
    }

    /// Allocates the set of queue `id` if it has none.
    #[inline]
    pub(super) fn ensure(&mut self, id: u32, aqm: &Arc<CobaltParams>) {
        let set = &mut self.0[(id / WAYS) as usize];
        if set.is_none() {
            *set = Some(make_set(aqm));
        }
    }

    /// Iterates over the queues that have memory.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Flow)> {
        let sets = (0..).step_by(WAYS as usize).zip(&self.0);
        sets.filter_map(|(first, set)| Some((first, set.as_ref()?)))
            .flat_map(|(first, set)| (first..).zip(set.iter()))
    }
}

impl Index<usize> for Flows {
    type Output = Flow;

    #[inline]
    fn index(&self, id: usize) -> &Flow {
        let set = self.0[id / WAYS as usize].as_ref().expect(ENSURED);
        &set[id % WAYS as usize]
    }
}

impl IndexMut<usize> for Flows {
    #[inline]
    fn index_mut(&mut self, id: usize) -> &mut Flow {
        let set = self.0[id / WAYS as usize].as_mut().expect(ENSURED);
        &mut set[id % WAYS as usize]
    }
}

const ENSURED: &str = "the set of a flow is allocated with its first packet";

#[cold]
fn make_set(aqm: &Arc<CobaltParams>) -> Box<Set> {
    Box::new(core::array::from_fn(|_| Flow {
        tag: 0,
        chain: Chain::EMPTY,
        backlog: Backlog::default(),
        deficit: 0,
        turn: Turn::Off,
        hosts: [0; 2],
        acks: [NONE; 2],
        aqm: Cobalt::for_flow(aqm),
    }))
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
