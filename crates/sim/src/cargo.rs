//! What packets carry: the host's side of a packet handle's slot.

use sluice_core::{Ecn, Time};
use sluice_tcp::Segment;

/// What the network must know of a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tag {
    pub flow: u32,
    pub hash: u32,
    /// Bytes on the link.
    pub len: u32,
    /// Bytes that the flow has still to send, this packet's included; 0 if it has no end.
    pub remaining: u32,
    /// The connection of a segment; [`NOT_TCP`] for a datagram. The generation tells it from a
    /// later connection in the same place.
    pub connection: u32,
    pub generation: u16,
    /// Number of the connection within its flow, for its port.
    pub serial: u16,
    /// Links ahead of it, the next included; [`NOT_STARTED`] before the first.
    pub links_left: u8,
    pub to_server: bool,
    pub is_corrupt: bool,
    pub ecn: Ecn,
}

/// A packet that its host has not given to a link yet.
pub(crate) const NOT_STARTED: u8 = u8::MAX;

/// The connection of packets that belong to none.
pub(crate) const NOT_TCP: u32 = u32::MAX;

/// A datagram, an echo request, or its reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Datagram {
    pub sequence: u64,
    pub sent: Time,
    /// When an echo request reached the server; [`Time::MAX`] before that.
    pub reached: Time,
}

/// A segment in a cache line of its own.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Line(Segment);

/// All packets on their way, by slot: tags, which every link touches, apart from what only the
/// hosts touch. Slots are used again, the last freed first, so the memory that is touched stays
/// as small as the number of packets in flight.
#[derive(Debug, Default)]
pub(crate) struct Hold {
    tags: Vec<Tag>,
    segments: Vec<Line>,
    datagrams: Vec<Datagram>,
    free: Vec<u32>,
}

impl Hold {
    pub fn put_segment(&mut self, tag: Tag, segment: Segment) -> u32 {
        let slot = self.put(tag);
        self.segments[slot as usize].0 = segment;
        slot
    }

    pub fn put_datagram(&mut self, tag: Tag, datagram: Datagram) -> u32 {
        let slot = self.put(tag);
        self.datagrams[slot as usize] = datagram;
        slot
    }

    pub fn tag(&self, slot: u32) -> &Tag {
        &self.tags[slot as usize]
    }

    pub fn tag_mut(&mut self, slot: u32) -> &mut Tag {
        &mut self.tags[slot as usize]
    }

    pub fn segment(&self, slot: u32) -> &Segment {
        &self.segments[slot as usize].0
    }

    pub fn datagram(&self, slot: u32) -> &Datagram {
        &self.datagrams[slot as usize]
    }

    /// Copies what is in `slot` to another one.
    pub fn copy(&mut self, slot: u32) -> u32 {
        let (tag, segment) = (*self.tag(slot), *self.segment(slot));
        let datagram = *self.datagram(slot);
        let copy = self.put(tag);
        self.segments[copy as usize].0 = segment;
        self.datagrams[copy as usize] = datagram;
        copy
    }

    /// Frees `slot`; what was in it stays readable until something is put there.
    pub fn free(&mut self, slot: u32) -> Tag {
        self.free.push(slot);
        self.tags[slot as usize]
    }

    /// Packets on their way.
    pub fn len(&self) -> usize {
        self.tags.len() - self.free.len()
    }

    fn put(&mut self, tag: Tag) -> u32 {
        if let Some(slot) = self.free.pop() {
            self.tags[slot as usize] = tag;
            return slot;
        }
        self.tags.push(tag);
        self.segments.push(Line(Segment::default()));
        self.datagrams.push(Datagram {
            sequence: 0,
            sent: Time::ZERO,
            reached: Time::MAX,
        });
        u32::try_from(self.tags.len() - 1).expect("fewer than 2^32 packets are in flight")
    }
}
