//! What packets carry: the host's side of a packet handle's slot.

use crate::prefetch::{Cause, Expected};
use sluice_core::prefetch;
use sluice_core::{Ecn, Time};
use sluice_tcp::{Flags, SackBlock, Segment};

/// What the host has written on a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tag {
    pub flow: u32,
    /// The route of the flow, one of [`crate::network::Network::paths`].
    pub path: u32,
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
    pub to_server: bool,
    pub ecn: Ecn,
}

/// What a link needs of a packet that leaves it or is dropped. Eight of them are in a cache line: those
/// of all packets on their way stay near the processor, where the packets themselves do not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transit {
    pub flow: u32,
    /// Links ahead of it, the next included; [`NOT_STARTED`] before the first.
    pub links_left: u8,
    pub to_server: bool,
    pub is_corrupt: bool,
    /// The ECN field by now.
    pub ecn: Ecn,
}

const _: () = assert!(size_of::<Transit>() == 8);

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

impl Datagram {
    pub const fn new(sequence: u64, sent: Time) -> Self {
        Datagram {
            sequence,
            sent,
            reached: Time::MAX,
        }
    }
}

/// What hosts read of most segments.
#[derive(Clone, Copy, Debug, Default)]
struct Head {
    ts: Time,
    ts_echo: Time,
    seq: u32,
    ack: u32,
    len: u16,
    window: u16,
    flags: Flags,
    sack_count: u8,
    wscale: u8,
}

/// What the others have besides.
#[derive(Clone, Copy, Debug, Default)]
struct Options {
    sack: [SackBlock; sluice_tcp::MAX_SACK_BLOCKS],
    mss: u16,
}

/// A packet in a cache line: among thousands of flows each link and each host finds it far from
/// the processor.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct StoredPacket {
    tag: Tag,
    head: Head,
}

const _: () = assert!(size_of::<StoredPacket>() == 64);

/// All packets on their way, by slot. Slots are used again, the last freed first, so the memory
/// that is touched stays as small as the number of packets in flight.
#[derive(Debug, Default)]
pub(crate) struct Packets {
    stored: Vec<StoredPacket>,
    transits: Vec<Transit>,
    /// Of segments with SYN or SACK blocks.
    options: Vec<Options>,
    datagrams: Vec<Datagram>,
    free: Vec<u32>,
}

impl Packets {
    pub fn put_segment(&mut self, tag: Tag, segment: &Segment) -> u32 {
        let head = Head {
            ts: segment.ts,
            ts_echo: segment.ts_echo,
            seq: segment.seq,
            ack: segment.ack,
            len: u16::try_from(segment.len).expect("a segment fits an IP packet"),
            window: segment.window,
            flags: segment.flags,
            sack_count: segment.sack_count,
            wscale: segment.wscale,
        };
        let slot = self.put(tag, head);
        if head.has_options() {
            self.options[slot as usize] = Options {
                sack: segment.sack,
                mss: segment.mss,
            };
        }
        slot
    }

    pub fn put_datagram(&mut self, tag: Tag, datagram: Datagram) -> u32 {
        let slot = self.put(tag, Head::default());
        self.datagrams[slot as usize] = datagram;
        slot
    }

    pub fn tag(&self, slot: u32) -> &Tag {
        &self.stored[slot as usize].tag
    }

    pub fn transit(&self, slot: u32) -> &Transit {
        &self.transits[slot as usize]
    }

    pub fn transit_mut(&mut self, slot: u32) -> &mut Transit {
        &mut self.transits[slot as usize]
    }

    /// Has the packet in `slot` fetched.
    pub fn fetch(&self, slot: u32) {
        prefetch::index(&self.stored, slot as usize);
        self.fetch_transit(slot);
    }

    /// Has that of it fetched which its links need.
    pub fn fetch_transit(&self, slot: u32) {
        prefetch::index(&self.transits, slot as usize);
    }

    /// Has what else the host at the end of the way is going to need fetched; tells for which end of
    /// which connection it is. None for a datagram.
    pub fn expected(&self, slot: u32) -> Option<Expected> {
        let StoredPacket { tag, head } = &self.stored[slot as usize];
        if tag.connection == NOT_TCP {
            return None;
        }
        if head.has_options() {
            prefetch::index(&self.options, slot as usize);
        }
        Some(Expected {
            connection: tag.connection,
            to_server: tag.to_server,
            cause: if head.len > 0 {
                Cause::Payload
            } else {
                Cause::Ack
            },
        })
    }

    /// The segment in `slot`, with the ECN field that it has by now.
    pub fn segment(&self, slot: u32) -> Segment {
        let StoredPacket { head, .. } = &self.stored[slot as usize];
        let mut segment = Segment {
            seq: head.seq,
            ack: head.ack,
            len: u32::from(head.len),
            window: head.window,
            flags: head.flags,
            wscale: head.wscale,
            ecn: self.transits[slot as usize].ecn,
            sack_count: head.sack_count,
            ts: head.ts,
            ts_echo: head.ts_echo,
            ..Segment::default()
        };
        if head.has_options() {
            let options = &self.options[slot as usize];
            (segment.sack, segment.mss) = (options.sack, options.mss);
        }
        segment
    }

    pub fn datagram(&self, slot: u32) -> &Datagram {
        &self.datagrams[slot as usize]
    }

    /// Copies what is in `slot` to another one.
    pub fn copy(&mut self, slot: u32) -> u32 {
        let StoredPacket { tag, head } = self.stored[slot as usize];
        let copy = self.put(tag, head);
        self.transits[copy as usize] = self.transits[slot as usize];
        self.options[copy as usize] = self.options[slot as usize];
        self.datagrams[copy as usize] = self.datagrams[slot as usize];
        copy
    }

    /// Frees `slot`; what was in it stays readable until something is put there.
    pub fn free(&mut self, slot: u32) -> Transit {
        self.free.push(slot);
        *self.transit(slot)
    }

    /// Packets on their way.
    pub fn len(&self) -> usize {
        self.stored.len() - self.free.len()
    }

    fn put(&mut self, tag: Tag, head: Head) -> u32 {
        let packet = StoredPacket { tag, head };
        let transit = Transit {
            flow: tag.flow,
            links_left: NOT_STARTED,
            to_server: tag.to_server,
            is_corrupt: false,
            ecn: tag.ecn,
        };
        if let Some(slot) = self.free.pop() {
            self.stored[slot as usize] = packet;
            self.transits[slot as usize] = transit;
            return slot;
        }
        self.stored.push(packet);
        self.transits.push(transit);
        self.options.push(Options::default());
        self.datagrams.push(Datagram::new(0, Time::ZERO));
        u32::try_from(self.stored.len() - 1).expect("fewer than 2^32 packets are in flight")
    }
}

impl Head {
    fn has_options(&self) -> bool {
        self.sack_count > 0 || self.flags.has(Flags::SYN)
    }
}
