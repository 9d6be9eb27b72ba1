//! Storage of the packets of all queues: chains through one array, so that no queue owns an
//! allocation and none is made once the array has the size of the largest backlog.
//!
//! Nodes that were freed lately are used again first, and in the order in which they were freed: they are
//! still in the cache, and the packets of a queue, which come and go in order, stay in order in memory,
//! where the processor fetches them ahead. Last in, first out would shuffle them a little with every lap,
//! most of all when overflow frees many at once. A pool of few nodes is in the cache as a whole, or, of a
//! link of very many, not at all: it does without, and without the memory.

use alloc::vec;
use alloc::vec::Vec;

use crate::packet::Packet;

/// No node, no queue.
pub(super) const NONE: u32 = u32::MAX;

/// All nodes, those in use and those that are free.
#[derive(Debug)]
pub(super) struct Pool {
    nodes: Vec<Node>,
    /// Nodes that were freed lately: a ring, which begins at `recent_first` and has `recent_len`.
    /// It has no room before there are more nodes than it holds.
    recent: Vec<u32>,
    recent_first: usize,
    recent_len: usize,
    /// The others, linked through [`Node::next`].
    free: u32,
}

/// Twice what an overflow frees at once.
const RECENT: usize = 128;

/// A packet and the one behind it. One cache line, so that a visit costs one miss and not two.
#[derive(Debug)]
#[repr(align(64))]
struct Node {
    packet: Option<Packet>,
    next: u32,
}

impl Pool {
    pub(super) const EMPTY: Pool = Pool {
        nodes: Vec::new(),
        recent: Vec::new(),
        recent_first: 0,
        recent_len: 0,
        free: NONE,
    };

    /// Stores `packet` and gives its node, the last one of its chain.
    pub(super) fn put(&mut self, packet: Packet) -> u32 {
        let node = Node {
            packet: Some(packet),
            next: NONE,
        };
        let index = if self.recent_len > 0 {
            let index = self.recent[self.recent_first % RECENT];
            self.recent_first += 1;
            self.recent_len -= 1;
            index
        } else if self.free != NONE {
            let index = self.free;
            self.free = self.nodes[index as usize].next;
            index
        } else {
            self.nodes.push(node);
            return self.nodes.len() as u32 - 1;
        };
        self.nodes[index as usize] = node;
        index
    }

    /// Reads where the next packet will be stored.
    pub(super) fn touch(&self) -> u64 {
        let index = match self.recent_len {
            0 => self.free,
            _ => self.recent[self.recent_first % RECENT],
        };
        self.touch_node(index)
    }

    /// Reads a node, if it is one.
    pub(super) fn touch_node(&self, index: u32) -> u64 {
        let node = self.nodes.get(index as usize);
        node.map_or(0, |node| u64::from(node.next))
    }

    /// Puts `node` behind `tail`.
    pub(super) fn link(&mut self, tail: u32, node: u32) {
        self.nodes[tail as usize].next = node;
    }

    /// Takes out the packet of a node; gives the next one of its chain.
    pub(super) fn take(&mut self, index: u32) -> (Packet, u32) {
        let has_order = self.nodes.len() > RECENT;
        let node = &mut self.nodes[index as usize];
        let packet = node.packet.take().expect("a chained node holds a packet");
        let next = node.next;
        if has_order && self.recent_len < RECENT {
            if self.recent.is_empty() {
                self.recent = vec![NONE; RECENT];
            }
            self.recent[(self.recent_first + self.recent_len) % RECENT] = index;
            self.recent_len += 1;
        } else {
            node.next = core::mem::replace(&mut self.free, index);
        }
        (packet, next)
    }
}
