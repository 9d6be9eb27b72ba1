//! The handle of a packet: what a queue must know about it, and where the host keeps its bytes.

use crate::units::{Rate, Span, Time};

/// The ECN codepoint of an IP header (RFC 3168 section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Ecn {
    /// The sender does not support ECN; congestion is signalled by a drop.
    #[default]
    NotEct = 0,
    /// ECN-capable, and an L4S sender (RFC 9331).
    Ect1 = 1,
    /// ECN-capable.
    Ect0 = 2,
    /// Congestion experienced.
    Ce = 3,
}

impl Ecn {
    /// Returns the codepoint in the two low bits of a TOS or traffic-class octet.
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Ecn::NotEct,
            1 => Ecn::Ect1,
            2 => Ecn::Ect0,
            _ => Ecn::Ce,
        }
    }

    /// Returns whether a mark may signal congestion.
    pub const fn is_capable(self) -> bool {
        !matches!(self, Ecn::NotEct)
    }
}

/// One packet in a queue: a small handle that is moved, never copied.
///
/// A super-packet (GSO/GRO) is one handle; its `len` and `segments` count what will be on the wire.
/// A packet leaves a queue only through `dequeue` or the sink of dropped packets, so a slot can
/// neither leak nor be freed twice.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a packet leaves by being returned or by being handed to the sink"]
pub struct Packet {
    /// The arrival at the queue; set by the host. Sojourn times count from here.
    pub arrival: Time,
    /// The slot in which the host keeps the bytes.
    pub slot: u32,
    /// Bytes on the link, all segments together. The host decides which headers count.
    pub len: u32,
    /// Hash of the flow (5-tuple).
    pub flow: u32,
    /// Hash of the source host.
    pub src: u32,
    /// Hash of the destination host.
    pub dst: u32,
    /// The class that a classifier chose, for a scheduler with several queues.
    pub class: u32,
    /// Information for a rank function (`pifo`, `pieo`) that no header carries: the bytes that the
    /// flow has still to send, including this packet (`srpt`), or the microseconds after its
    /// arrival by which the packet should leave (`edf`). 0 if unknown.
    pub tag: u32,
    /// Wire packets in this handle: more than 1 for a super-packet.
    pub segments: u16,
    /// ECN codepoint. The host writes a mark into the header when it transmits.
    pub ecn: Ecn,
    /// Differentiated services codepoint (RFC 2474), 0 to 63.
    pub dscp: u8,
}

impl Packet {
    /// Creates a packet of `len` bytes, at least 1, stored in `slot`. All other fields are zero.
    pub const fn new(slot: u32, len: u32) -> Self {
        Packet {
            arrival: Time::ZERO,
            slot,
            len,
            flow: 0,
            src: 0,
            dst: 0,
            class: 0,
            tag: 0,
            segments: 1,
            ecn: Ecn::NotEct,
            dscp: 0,
        }
    }

    /// Returns how long the packet has been in the queue.
    pub const fn sojourn(&self, now: Time) -> Span {
        now.since(self.arrival)
    }

    /// Copies the handle field by field, into or out of storage that is not read again before it is
    /// written. Moving the whole handle would use loads wider than the stores that filled the
    /// fields (or that took it out of an `Option`). Such a load stalls until those stores reach the
    /// cache.
    #[inline(always)]
    pub(crate) const fn moved(&self) -> Packet {
        Packet { ..*self }
    }

    /// Returns the bytes of one wire packet of this handle, rounded up.
    pub const fn segment_len(&self) -> u32 {
        if self.segments > 1 {
            self.len.div_ceil(self.segments as u32)
        } else {
            self.len
        }
    }
}

/// A handle must stay small: a queue of 100 000 handles takes 4 MB.
const _: () = assert!(core::mem::size_of::<Packet>() <= 40);

/// Rate below which a host splits super-packets into wire packets before it queues them, so that
/// none delays the others for long. CAKE has the same threshold.
pub const SPLIT_BELOW: Rate = Rate::from_bps(1_000_000_000);
