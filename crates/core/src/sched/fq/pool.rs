//! Storage of the packets of all queues: chains through one array, so that no queue owns an
//! allocation and none is made once the array has the size of the largest backlog.

use alloc::vec::Vec;

use crate::packet::Packet;

/// No node, no queue.
pub(super) const NONE: u32 = u32::MAX;

/// All nodes, those in use and those that are free.
#[derive(Debug)]
pub(super) struct Pool {
    nodes: Vec<Node>,
    free: u32,
}

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
        free: NONE,
    };

    /// Stores `packet` and gives its node, the last one of its chain.
    pub(super) fn put(&mut self, packet: Packet) -> u32 {
        let node = Node {
            packet: Some(packet),
            next: NONE,
        };
        if self.free == NONE {
            self.nodes.push(node);
            return self.nodes.len() as u32 - 1;
        }
        let index = self.free;
        let slot = &mut self.nodes[index as usize];
        self.free = slot.next;
        *slot = node;
        index
    }

    /// Reads where the next packet will be stored.
    pub(super) fn touch(&self) -> u64 {
        let node = self.nodes.get(self.free as usize);
        node.map_or(0, |node| u64::from(node.next))
    }

    /// Puts `node` behind `tail`.
    pub(super) fn link(&mut self, tail: u32, node: u32) {
        self.nodes[tail as usize].next = node;
    }

    /// Takes out the packet of a node; gives the next one of its chain.
    pub(super) fn take(&mut self, index: u32) -> (Packet, u32) {
        let node = &mut self.nodes[index as usize];
        let packet = node.packet.take().expect("a chained node holds a packet");
        let next = core::mem::replace(&mut node.next, self.free);
        self.free = index;
        (packet, next)
    }
}
