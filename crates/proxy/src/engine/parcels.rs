//! The contents of the packets on the link, by slot.

use sluice_core::ack::Ack;
use sluice_core::{DropReason, Packet, Sink, Time};
use sluice_scenario::PipeId;
use sluice_tcp::{Flags, Segment};

use super::{Id, Refusal, Side};

/// The contents of a packet.
#[derive(Clone, Copy, Debug)]
pub enum Load {
    /// A segment of a connection.
    Segment(Segment),
    /// The answer of a host or a router that refuses a connection.
    Refusal(Refusal),
    /// A question or an answer about a name.
    Datagram,
}

/// A packet on the link.
#[derive(Clone, Copy, Debug)]
pub struct Parcel {
    /// The connection, or the number of a datagram.
    pub id: Id,
    /// The end that receives it.
    pub to: Side,
    pub load: Load,
    /// Whether the receiver discards it because of a wrong checksum.
    pub is_damaged: bool,
}

/// The packets on both directions. The slot that was freed last is reused first.
#[derive(Debug, Default)]
pub struct Parcels {
    stored: Vec<Parcel>,
    free: Vec<u32>,
    /// The direction of a link whose queue is called.
    pub pipe: Option<PipeId>,
    /// Packets dropped on the way to the near and to the far end.
    pub dropped: [u64; 2],
}

impl Parcels {
    /// Stores a packet. Returns its slot.
    pub fn put(&mut self, parcel: Parcel) -> u32 {
        if let Some(slot) = self.free.pop() {
            self.stored[slot as usize] = parcel;
            return slot;
        }
        self.stored.push(parcel);
        (self.stored.len() - 1) as u32
    }

    /// Removes a packet.
    pub fn take(&mut self, slot: u32) -> Parcel {
        self.free.push(slot);
        self.stored[slot as usize]
    }

    /// Returns the contents of a packet.
    pub fn get(&self, slot: u32) -> &Parcel {
        &self.stored[slot as usize]
    }

    /// Returns the packets on the link.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.stored.len() - self.free.len()
    }

    fn segment(&self, packet: &Packet) -> Option<(&Parcel, &Segment)> {
        let parcel = &self.stored[packet.slot as usize];
        match &parcel.load {
            Load::Segment(segment) => Some((parcel, segment)),
            Load::Refusal(_) | Load::Datagram => None,
        }
    }
}

impl Sink for Parcels {
    fn discard(&mut self, _now: Time, packet: Packet, _reason: DropReason) {
        let parcel = self.take(packet.slot);
        self.dropped[parcel.to.index()] += 1;
    }

    fn copy(&mut self, _now: Time, packet: &Packet) -> Option<u32> {
        let parcel = self.stored[packet.slot as usize];
        Some(self.put(parcel))
    }

    fn corrupt(&mut self, _now: Time, packet: &Packet, _bit: u64) {
        self.stored[packet.slot as usize].is_damaged = true;
    }

    fn is_pure_ack(&self, packet: &Packet) -> bool {
        let only = Flags::ACK.with(Flags::ECE).with(Flags::CWR);
        self.segment(packet).is_some_and(|(_, segment)| {
            segment.len == 0 && segment.flags.has(Flags::ACK) && only.has(segment.flags)
        })
    }

    fn supersedes(&self, newer: &Packet, older: &Packet) -> bool {
        let (Some((a, newer)), Some((b, older))) = (self.segment(newer), self.segment(older))
        else {
            return false;
        };
        (a.id, a.to) == (b.id, b.to) && ack(newer).supersedes(&ack(older))
    }

    fn pipe_name(&self) -> Option<String> {
        self.pipe.map(|pipe| pipe.word().to_owned())
    }
}

/// Returns the fields that an ACK filter compares. Timestamps tick in milliseconds, as in Linux.
fn ack(segment: &Segment) -> Ack {
    let tick = |time: Time| (time.as_ns() / 1_000_000) as u32;
    let mut blocks = [[0; 2]; 4];
    for (block, sack) in blocks.iter_mut().zip(segment.sacks()) {
        *block = [sack.start, sack.end];
    }
    Ack {
        acked: segment.ack,
        ecn_flags: [segment.flags.has(Flags::ECE), segment.flags.has(Flags::CWR)],
        timestamps: Some([tick(segment.ts), tick(segment.ts_echo)]),
        blocks,
    }
}
