//! What packets carry: the host's side of a packet handle's slot.

use sluice_core::{Ecn, Time};
use sluice_tcp::Segment;

/// What is inside a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Payload {
    /// A segment of a connection. The generation tells a connection from a later one that uses
    /// the same place.
    Tcp {
        connection: u32,
        generation: u32,
        segment: Segment,
    },
    Datagram {
        sequence: u64,
        sent: Time,
    },
    /// An echo request, or its reply once it has `reached` the server.
    Echo {
        sequence: u64,
        sent: Time,
        reached: Option<Time>,
    },
}

/// What the network must know of a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tag {
    pub flow: u32,
    pub hash: u32,
    /// Bytes on the link.
    pub len: u32,
    /// Links that it has passed.
    pub hop: u8,
    pub to_server: bool,
    pub ecn: Ecn,
}

/// All packets on their way, by slot: tags, which every link touches, apart from what only the
/// hosts touch. Slots are used again, the last freed first, so the memory that is touched stays
/// as small as the number of packets in flight.
#[derive(Debug, Default)]
pub(crate) struct Hold {
    tags: Vec<Tag>,
    payloads: Vec<Payload>,
    free: Vec<u32>,
}

impl Hold {
    pub fn put(&mut self, tag: Tag, payload: Payload) -> u32 {
        match self.free.pop() {
            Some(slot) => {
                self.tags[slot as usize] = tag;
                self.payloads[slot as usize] = payload;
                slot
            }
            None => {
                self.tags.push(tag);
                self.payloads.push(payload);
                u32::try_from(self.tags.len() - 1).expect("fewer than 2^32 packets are in flight")
            }
        }
    }

    pub fn tag(&self, slot: u32) -> &Tag {
        &self.tags[slot as usize]
    }

    pub fn tag_mut(&mut self, slot: u32) -> &mut Tag {
        &mut self.tags[slot as usize]
    }

    /// Takes what is in `slot` and frees it.
    pub fn take(&mut self, slot: u32) -> (Tag, Payload) {
        (self.free(slot), self.payloads[slot as usize])
    }

    /// Frees `slot`.
    pub fn free(&mut self, slot: u32) -> Tag {
        self.free.push(slot);
        self.tags[slot as usize]
    }

    /// Packets on their way.
    pub fn len(&self) -> usize {
        self.tags.len() - self.free.len()
    }
}
