//! Contents of the packets in flight, by the slot of their handles.

use sluice_core::prefetch;
use sluice_core::{Ecn, Time};
use sluice_tcp::{Flags, Next, SackBlock, Segment};

/// The content of a packet, as written by the sending host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tag {
    pub flow: u32,
    /// The route of the flow, one of [`crate::network::Network::paths`].
    pub path: u32,
    pub hash: u32,
    /// Bytes on the link.
    pub len: u32,
    /// Bytes that the flow has still to send, including those of this packet; 0 if it has no end.
    pub remaining: u32,
    /// The connection of a segment; [`NOT_TCP`] for a datagram. The generation distinguishes it
    /// from a later connection with the same index.
    pub connection: u32,
    pub generation: u16,
    /// Number of the connection within its flow, for its port.
    pub serial: u16,
    pub to_server: bool,
    pub ecn: Ecn,
}

/// The part of a packet that a link needs when the packet leaves or is dropped. Eight of them fit
/// into a cache line, so those of all packets in flight stay in the caches. The packets themselves
/// do not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transit {
    pub flow: u32,
    /// Links ahead of it, including the next; [`NOT_STARTED`] before the first.
    pub links_left: u8,
    pub to_server: bool,
    pub is_corrupt: bool,
    /// The current ECN field.
    pub ecn: Ecn,
}

const _: () = assert!(size_of::<Transit>() == 8);

/// [`Transit::links_left`] of a packet that its host has not sent yet.
pub(crate) const NOT_STARTED: u8 = u8::MAX;

/// The connection of packets that belong to none.
pub(crate) const NOT_TCP: u32 = u32::MAX;

/// A datagram, an echo request, or its reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DatagramBody {
    pub sequence: u64,
    pub sent: Time,
    /// When an echo request reached the server; [`Time::MAX`] before that.
    pub reached: Time,
}

impl DatagramBody {
    pub const fn new(sequence: u64, sent: Time) -> Self {
        DatagramBody {
            sequence,
            sent,
            reached: Time::MAX,
        }
    }
}

/// An event that one end of a connection will process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expected {
    pub connection: u32,
    pub to_server: bool,
    pub next: Next,
}

/// The fields of most segments. None is next to a field that is its neighbour in [`Segment`]:
/// otherwise the compiler would copy both at once, and the processor would wait for the stores that
/// have just filled them.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Head {
    ts: Time,
    seq: u32,
    len: u16,
    window: u16,
    ts_echo: Time,
    ack: u32,
    flags: Flags,
    sack_count: u8,
    wscale: u8,
}

/// The additional fields of other segments.
#[derive(Clone, Copy, Debug, Default)]
struct Options {
    sack: [SackBlock; sluice_tcp::MAX_SACK_BLOCKS],
    mss: u16,
}

/// A packet in one cache line: among thousands of flows it is rarely in the caches when a link or
/// host needs it.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct StoredPacket {
    tag: Tag,
    head: Head,
}

const _: () = assert!(size_of::<StoredPacket>() == 64);

/// All packets in flight, by slot. The slot freed last is reused first, so the memory in use is
/// proportional to the number of packets in flight.
#[derive(Debug, Default)]
pub(crate) struct Packets {
    stored: Vec<StoredPacket>,
    transits: Vec<Transit>,
    /// Options of segments with SYN or SACK blocks.
    options: Vec<Options>,
    datagrams: Vec<DatagramBody>,
    free: Vec<u32>,
}

impl Packets {
    #[inline(always)]
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

    pub fn put_datagram(&mut self, tag: Tag, datagram: DatagramBody) -> u32 {
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

    /// Prefetches the packet in `slot`.
    pub fn prefetch(&self, slot: u32) {
        prefetch::index(&self.stored, slot as usize);
        self.prefetch_transit(slot);
    }

    /// Prefetches the part of it that links need.
    pub fn prefetch_transit(&self, slot: u32) {
        prefetch::index(&self.transits, slot as usize);
    }

    /// Prefetches the other parts of the packet that the receiving host will need. Returns the
    /// receiving end of the connection, or `None` for a datagram.
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
            next: if head.len > 0 {
                Next::Payload
            } else {
                Next::Ack
            },
        })
    }

    /// Returns the segment in `slot`, with its current ECN field.
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

    pub fn datagram(&self, slot: u32) -> &DatagramBody {
        &self.datagrams[slot as usize]
    }

    /// Copies the contents of `slot` to another slot.
    pub fn copy(&mut self, slot: u32) -> u32 {
        let StoredPacket { tag, head } = self.stored[slot as usize];
        let copy = self.put(tag, head);
        self.transits[copy as usize] = self.transits[slot as usize];
        self.options[copy as usize] = self.options[slot as usize];
        self.datagrams[copy as usize] = self.datagrams[slot as usize];
        copy
    }

    /// Frees `slot`. Its contents stay readable until the slot is reused.
    pub fn free(&mut self, slot: u32) -> Transit {
        self.free.push(slot);
        *self.transit(slot)
    }

    /// Returns the tags of all packets in flight, each with its datagram, which a segment does not
    /// have.
    pub fn in_flight(&self) -> impl Iterator<Item = (&Tag, &DatagramBody)> {
        let mut is_free = vec![false; self.stored.len()];
        for slot in &self.free {
            is_free[*slot as usize] = true;
        }
        let slots = self.stored.iter().zip(&self.datagrams).zip(is_free);
        slots.filter_map(|((packet, datagram), is_free)| {
            (!is_free).then_some((&packet.tag, datagram))
        })
    }

    /// Number of packets in flight.
    pub fn len(&self) -> usize {
        self.stored.len() - self.free.len()
    }

    // Inlined, so that the fields of a packet are stored once.
    #[inline(always)]
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
        self.grow(packet, transit)
    }

    /// Adds a slot.
    #[cold]
    #[inline(never)]
    fn grow(&mut self, packet: StoredPacket, transit: Transit) -> u32 {
        self.stored.push(packet);
        self.transits.push(transit);
        self.options.push(Options::default());
        self.datagrams.push(DatagramBody::new(0, Time::ZERO));
        u32::try_from(self.stored.len() - 1).expect("fewer than 2^32 packets are in flight")
    }
}

impl Head {
    fn has_options(&self) -> bool {
        self.sack_count > 0 || self.flags.has(Flags::SYN)
    }
}
