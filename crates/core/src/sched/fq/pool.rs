//! Storage of the packets of all queues: chains through one array, so that no queue owns an
//! allocation and none is made once the array has the size of the largest backlog.
//!
//! Nodes that were freed lately are used again first, and in the order in which they were freed: they are
//! still in the cache, and the packets of a queue, which come and go in order, stay in order in memory,
//! where the processor fetches them ahead. Last in, first out would shuffle them a little with every lap,
//! most of all when overflow frees many at once. A pool of few nodes is in the cache as a whole, or, of a
//! link of very many, not at all: it does without, and without the memory.
//!
//! Who takes a packet out fetches the node behind it, which the next turn of the queue will need.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::packet::Packet;
use crate::prefetch;

/// No node, no queue.
pub(super) const NONE: u32 = u32::MAX;

/// All nodes, those in use and those that are free.
#[derive(Debug)]
pub(super) struct Pool {
    nodes: Vec<Node>,
    /// Nodes that were freed lately: a ring, which begins at `recent_first` and has `recent_len`.
    /// It has no room before there are more nodes than it holds.
    recent: Option<Box<[u32; RECENT]>>,
    recent_first: u32,
    recent_len: u32,
    /// The others, linked through [`Node::next`].
    free: u32,
}

/// Twice what an overflow frees at once.
const RECENT: usize = 128;

/// A packet and the one behind it. One cache line, so that a visit costs one miss and not two.
#[derive(Debug)]
#[repr(align(64))]
struct Node {
    /// Of a free node: what is gone.
    packet: Packet,
    next: u32,
    /// Written to have the line in the cache; it says no more.
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

    /// Stores `packet` behind the node `tail`, or behind [`NONE`], and gives its node.
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
        // Without a tail it is linked to itself until the next line: there is nothing to branch for.
        let behind = if tail == NONE { index } else { tail };
        self.nodes[behind as usize].next = index;
        let node = &mut self.nodes[index as usize];
        node.packet = packet.moved();
        node.next = NONE;
        index
    }

    /// Another node.
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

    /// Prefetches the node in which the next packet will be stored.
    pub(super) fn prefetch_store(&self) {
        let index = match &self.recent {
            Some(recent) if self.recent_len > 0 => recent[self.recent_first as usize % RECENT],
            _ => self.free,
        };
        self.prefetch_take(index);
    }

    /// Prefetches a node, whose packet will be taken out.
    pub(super) fn prefetch_take(&self, index: u32) {
        prefetch::index(&self.nodes, index as usize);
    }

    /// Takes out the packet of a node, which holds one; gives the next one of its chain.
    #[inline]
    pub(super) fn take(&mut self, index: u32) -> (Packet, u32) {
        let has_order = self.nodes.len() > RECENT;
        let node = &mut self.nodes[index as usize];
        let packet = node.packet.moved();
        let next = node.next;
        // A store, for which nothing waits, fetches the line that this queue will need next.
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
