//! Storage of packets for disciplines with many queues.
//!
//! All queues of a discipline are chains through one vector of nodes. No queue owns an allocation,
//! an emptied queue costs nothing, and the memory is that of the largest backlog so far. Freed
//! nodes are reused last in, first out, while they are still in the cache.

use alloc::vec::Vec;

use super::allocated;
use crate::packet::Packet;

/// No node, no queue.
pub(crate) const NONE: u32 = u32::MAX;

/// The packets of one queue, oldest first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain {
    head: u32,
    tail: u32,
}

/// The nodes of all chains.
#[derive(Debug)]
pub(crate) struct Pool {
    nodes: Vec<Node>,
    free: u32,
}

/// A packet and its neighbours. One cache line, so that a visit costs one miss and not two.
#[derive(Debug)]
#[repr(align(64))]
struct Node {
    /// Of a free node: stale.
    packet: Packet,
    next: u32,
    prev: u32,
}

const _: () = assert!(core::mem::size_of::<Node>() == 64);

impl Chain {
    pub(crate) const EMPTY: Chain = Chain {
        head: NONE,
        tail: NONE,
    };

    pub(crate) const fn is_empty(&self) -> bool {
        self.head == NONE
    }

    /// Returns the node of the oldest packet.
    pub(crate) const fn first(&self) -> u32 {
        self.head
    }

    /// Returns the node of the youngest packet.
    pub(crate) const fn last(&self) -> u32 {
        self.tail
    }
}

impl Pool {
    pub(crate) const fn new() -> Self {
        Pool {
            nodes: Vec::new(),
            free: NONE,
        }
    }

    /// Returns the bytes that have been allocated.
    pub(crate) fn memory(&self) -> usize {
        allocated(&self.nodes)
    }

    /// Appends `packet` to `chain` and returns its node.
    #[inline]
    pub(crate) fn push_back(&mut self, chain: &mut Chain, packet: Packet) -> u32 {
        let node = self.take_free(packet, chain.tail);
        if chain.tail == NONE {
            chain.head = node;
        } else {
            self.nodes[chain.tail as usize].next = node;
        }
        chain.tail = node;
        node
    }

    /// Removes the oldest packet of `chain`.
    #[inline]
    pub(crate) fn pop_front(&mut self, chain: &mut Chain) -> Option<Packet> {
        if chain.head == NONE {
            return None;
        }
        Some(self.take_front(chain))
    }

    /// Removes the oldest packet of `chain`, which has one.
    #[inline]
    pub(crate) fn take_front(&mut self, chain: &mut Chain) -> Packet {
        let (packet, next) = self.release(chain.head);
        chain.head = next;
        match self.nodes.get_mut(next as usize) {
            // Also fetches the line of the packet that follows, without waiting for it.
            Some(node) => node.prev = NONE,
            None => chain.tail = NONE,
        }
        packet
    }

    /// Removes the packet in `node` from the middle of `chain`, to which it belongs.
    pub(crate) fn remove(&mut self, chain: &mut Chain, node: u32) -> Packet {
        let prev = self.nodes[node as usize].prev;
        let (packet, next) = self.release(node);
        match prev {
            NONE => chain.head = next,
            prev => self.nodes[prev as usize].next = next,
        }
        match next {
            NONE => chain.tail = prev,
            next => self.nodes[next as usize].prev = prev,
        }
        packet
    }

    /// Returns the packet that [`Pool::pop_front`] would remove.
    #[inline]
    pub(crate) fn front(&self, chain: &Chain) -> Option<&Packet> {
        self.nodes.get(chain.head as usize).map(|node| &node.packet)
    }

    /// Returns the packet in `node`.
    pub(crate) fn packet(&self, node: u32) -> &Packet {
        &self.nodes[node as usize].packet
    }

    /// Returns the node before `node` in its chain, or [`NONE`].
    pub(crate) fn previous(&self, node: u32) -> u32 {
        self.nodes[node as usize].prev
    }

    /// Stores a packet that belongs to no chain.
    #[inline]
    pub(crate) fn put_single(&mut self, packet: Packet) -> u32 {
        self.take_free(packet, NONE)
    }

    /// Removes a packet that belongs to no chain.
    #[inline]
    pub(crate) fn take_single(&mut self, node: u32) -> Packet {
        self.release(node).0
    }

    #[inline]
    fn take_free(&mut self, packet: Packet, prev: u32) -> u32 {
        let index = match self.free {
            NONE => self.grow(),
            index => {
                self.free = self.nodes[index as usize].next;
                index
            }
        };
        let node = &mut self.nodes[index as usize];
        node.packet = packet.moved();
        node.next = NONE;
        node.prev = prev;
        index
    }

    /// Adds a node.
    #[cold]
    #[inline(never)]
    fn grow(&mut self) -> u32 {
        self.nodes.push(Node {
            packet: Packet::new(0, 0),
            next: NONE,
            prev: NONE,
        });
        self.nodes.len() as u32 - 1
    }

    /// Frees `node`, which holds a packet. Returns the packet and the node behind it.
    #[inline]
    fn release(&mut self, node: u32) -> (Packet, u32) {
        let place = &mut self.nodes[node as usize];
        let packet = place.packet.moved();
        let next = core::mem::replace(&mut place.next, self.free);
        self.free = node;
        (packet, next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slots(pool: &mut Pool, chain: &mut Chain) -> Vec<u32> {
        core::iter::from_fn(|| pool.pop_front(chain))
            .map(|p| p.slot)
            .collect()
    }

    #[test]
    fn chains_share_nodes_and_keep_their_order() {
        let mut pool = Pool::new();
        let mut chains = [Chain::EMPTY, Chain::EMPTY];
        for slot in 0..10 {
            let _ = pool.push_back(&mut chains[slot as usize % 2], Packet::new(slot, 1));
        }
        assert_eq!(slots(&mut pool, &mut chains[0]), [0, 2, 4, 6, 8]);
        for slot in 10..15 {
            let _ = pool.push_back(&mut chains[0], Packet::new(slot, 1));
        }
        assert_eq!(pool.nodes.len(), 10, "freed nodes are used again");
        assert_eq!(slots(&mut pool, &mut chains[1]), [1, 3, 5, 7, 9]);
        assert_eq!(slots(&mut pool, &mut chains[0]), [10, 11, 12, 13, 14]);
        assert!(chains[0].is_empty() && chains[1].is_empty());
    }

    #[test]
    fn any_packet_of_a_chain_can_be_taken_out() {
        // Head, middle and tail in turn; the others keep their order.
        for (gone, left) in [(0, [1, 2, 3]), (2, [0, 1, 3]), (3, [0, 1, 2])] {
            let (mut pool, mut chain) = (Pool::new(), Chain::EMPTY);
            let nodes: Vec<u32> = (0..4)
                .map(|slot| pool.push_back(&mut chain, Packet::new(slot, 1)))
                .collect();
            assert_eq!(pool.remove(&mut chain, nodes[gone]).slot, gone as u32);
            let _ = pool.push_back(&mut chain, Packet::new(9, 1));
            let mut expected = left.to_vec();
            expected.push(9);
            assert_eq!(slots(&mut pool, &mut chain), expected);
        }
    }
}
