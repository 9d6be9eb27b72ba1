//! Storage of the packets of all queues: chains through one array. No queue owns an allocation, and
//! none is made once the array has the size of the largest backlog.
//!
//! Recently freed nodes are reused first, in the order in which they were freed. They are still in
//! the cache, and the packets of a queue, which arrive and leave in order, stay in order in memory,
//! where the processor prefetches them. Last-in, first-out reuse would shuffle them a little with
//! every round, most of all when an overflow frees many nodes at once. A small pool is either
//! entirely in the cache or, on one of very many links, not at all; it needs no such order and does
//! not allocate the ring.
//!
//! Taking a packet out fetches the node behind it, which the next turn of the queue will need.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::packet::Packet;
use crate::prefetch::{self, Place};
use crate::sched::allocated;

/// No node, no queue.
pub(super) const NONE: u32 = u32::MAX;

/// All nodes, used and free.
#[derive(Debug)]
pub(super) struct Pool {
    nodes: Vec<Node>,
    /// Recently freed nodes: a ring of `recent_len` nodes from `recent_first` on. It is allocated
    /// only when there are more nodes than it holds.
    recent: Option<Box<[u32; RECENT]>>,
    recent_first: u32,
    recent_len: u32,
    /// The other free nodes, linked through [`Node::next`].
    free: u32,
}

/// Twice the number that an overflow frees at once.
const RECENT: usize = 128;

/// A packet and the one behind it. One cache line, so that a visit costs one miss and not two.
#[derive(Debug)]
#[repr(align(64))]
struct Node {
    /// Of a free node: stale.
    packet: Packet,
    next: u32,
    /// Written only to fetch the line into the cache.
    is_near: bool,
}

impl Pool {
    pub(super) const EMPTY: Pool = Pool {
        nodes: Vec::new(),
        recent: None,
        recent_first: 0,
        recent_len: 0,
        free: NONE,
    };

    /// Returns the bytes that have been allocated.
    pub(super) fn memory(&self) -> usize {
        allocated(&self.nodes) + self.recent.as_ref().map_or(0, |ring| size_of_val(&**ring))
    }

    /// Stores `packet` behind the node `tail`, or behind [`NONE`], and returns its node.
    #[inline]
    pub(super) fn put(&mut self, packet: Packet, tail: u32) -> u32 {
        let index = match &self.recent {
            Some(recent) if self.recent_len > 0 => {
                let index = recent[self.recent_first as usize % RECENT];
                self.recent_first = self.recent_first.wrapping_add(1);
                self.recent_len -= 1;
                index
            }
            _ if self.free != NONE => {
                let index = self.free;
                self.free = self.nodes[index as usize].next;
                index
            }
            _ => self.grow(),
        };
        // Without a tail the node is linked to itself until the next line, which avoids a branch.
        let behind = if tail == NONE { index } else { tail };
        self.nodes[behind as usize].next = index;
        let node = &mut self.nodes[index as usize];
        node.packet = packet.moved();
        node.next = NONE;
        index
    }

    /// Adds a node.
    #[cold]
    #[inline(never)]
    fn grow(&mut self) -> u32 {
        self.nodes.push(Node {
            packet: Packet::new(0, 0),
            next: NONE,
            is_near: false,
        });
        self.nodes.len() as u32 - 1
    }

    /// Returns the place of the node in which the next packet will be stored.
    pub(super) fn place(&self) -> Place {
        let index = match &self.recent {
            Some(recent) if self.recent_len > 0 => recent[self.recent_first as usize % RECENT],
            _ => self.free,
        };
        let node = self.nodes.get(index as usize);
        node.map_or(Place::NONE, Place::of)
    }

    /// Prefetches a node whose packet will be taken out.
    pub(super) fn prefetch_take(&self, index: u32) {
        prefetch::index(&self.nodes, index as usize);
    }

    /// Removes the packet of a node, which holds one. Returns it and the next node of its chain.
    #[inline]
    pub(super) fn take(&mut self, index: u32) -> (Packet, u32) {
        let has_order = self.nodes.len() > RECENT;
        let node = &mut self.nodes[index as usize];
        let packet = node.packet.moved();
        let next = node.next;
        // A store fetches the line that this queue will need next; nothing waits for a store.
        let soon = if next == NONE { index } else { next };
        self.nodes[soon as usize].is_near = true;
        let node = &mut self.nodes[index as usize];
        if has_order && (self.recent_len as usize) < RECENT {
            let recent = self.recent.get_or_insert_with(|| Box::new([NONE; RECENT]));
            recent[(self.recent_first.wrapping_add(self.recent_len)) as usize % RECENT] = index;
            self.recent_len += 1;
        } else {
            node.next = core::mem::replace(&mut self.free, index);
        }
        (packet, next)
    }
}
