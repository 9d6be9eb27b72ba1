//! A connection: its two ends and the bytes between them.

use std::collections::VecDeque;
use std::net::SocketAddr;

use sluice_core::Time;
use sluice_tcp::{Endpoint, Segment};

use super::{Id, Refusal, Side, Stage, Target};

/// A connection.
pub struct Pair {
    pub generation: u32,
    /// The near and the far end.
    pub ends: [End; 2],
    /// The bytes that the near and the far end have written.
    pub streams: [Stream; 2],
    pub gate: Gate,
    /// Additional header bytes compared with IPv4.
    pub header: u32,
    /// Hashes of the flows from the near and from the far end.
    pub flows: [u32; 2],
    /// The far host, for queues that are fair to hosts.
    pub host: u32,
    /// The addresses of both ends in captures.
    pub place: [SocketAddr; 2],
    /// The sequence number of both SYNs.
    pub isn: u32,
    pub is_changed: bool,
}

/// One end.
pub struct End {
    pub endpoint: Endpoint,
    pub stage: Stage,
    /// The instant at which the end's timer fires.
    pub timer: Option<Time>,
    /// Whether the end is no longer used.
    pub is_left: bool,
    /// Whether the end has sent or received since it was last sampled.
    pub is_fresh: bool,
}

/// The bytes of one direction.
#[derive(Default)]
pub struct Stream {
    /// Bytes that one end has written and the other has not read.
    pub bytes: VecDeque<u8>,
    taken: u64,
}

/// The reaction of the far end to the first packet.
#[derive(Clone, Copy, Debug)]
pub enum Gate {
    /// The packet has not arrived.
    Nothing,
    /// The packet waits for the answer of the outside.
    Held(Segment),
    /// The outside has accepted.
    Passed,
    /// The outside has refused.
    Refused(Refusal),
}

impl Stream {
    /// Returns the number of bytes that were read.
    pub fn taken(&self) -> u64 {
        self.taken
    }
}

impl Pair {
    pub fn new(id: Id, ends: [Endpoint; 2], header: u32, target: &Target, isn: u32) -> Pair {
        let end = |endpoint| End {
            endpoint,
            stage: Stage::Opening,
            timer: None,
            is_left: false,
            is_fresh: false,
        };
        let flow = |side: Side| mix(u64::from(id.generation) << 32 | side as u64);
        Pair {
            generation: id.generation,
            ends: ends.map(end),
            streams: Default::default(),
            gate: Gate::Nothing,
            header,
            flows: Side::BOTH.map(flow),
            host: target.host,
            place: super::frames::place(id, target.address),
            isn,
            is_changed: false,
        }
    }

    /// Returns whether a reset or a refusal has ended the connection at `side`.
    pub fn is_over(&self, side: Side) -> bool {
        matches!(
            self.ends[side.index()].stage,
            Stage::Refused(_) | Stage::Reset
        )
    }

    /// Returns the bytes that `side` can read.
    pub fn readable(&self, side: Side) -> (&[u8], &[u8]) {
        let stream = &self.streams[side.other().index()];
        let count = self.read_ahead(side);
        let (first, second) = stream.bytes.as_slices();
        let in_first = count.min(first.len());
        (&first[..in_first], &second[..count - in_first])
    }

    /// Removes bytes that `side` has read.
    pub fn consume(&mut self, side: Side, bytes: usize) {
        debug_assert!(bytes <= self.read_ahead(side));
        let stream = &mut self.streams[side.other().index()];
        stream.bytes.drain(..bytes);
        stream.taken += bytes as u64;
        if stream.bytes.is_empty() && stream.bytes.capacity() > KEPT {
            stream.bytes = VecDeque::new();
        }
        self.ends[side.index()].endpoint.allow_reading(bytes as u64);
    }

    /// Returns whether the other end's stream has ended and was read completely.
    pub fn has_ended(&self, side: Side) -> bool {
        let endpoint = &self.ends[side.index()].endpoint;
        endpoint.is_received() && self.streams[side.other().index()].taken == endpoint.received()
    }

    /// Returns whether the connection can be forgotten.
    pub fn is_forgettable(&self) -> bool {
        let near = &self.ends[Side::Near.index()];
        if matches!(self.gate, Gate::Nothing) && near.is_left && self.is_over(Side::Near) {
            // The far end has received no packet of the connection.
            return true;
        }
        self.ends.iter().all(|end| end.is_left)
            && Side::BOTH
                .into_iter()
                .all(|side| self.is_over(side) || self.ends[side.index()].endpoint.is_closed())
    }

    /// Returns the number of bytes that have arrived in order at `side` and were not read.
    fn read_ahead(&self, side: Side) -> usize {
        let endpoint = &self.ends[side.index()].endpoint;
        let taken = self.streams[side.other().index()].taken;
        (endpoint.received() - endpoint.unread() - taken) as usize
    }
}

/// The finaliser of SplitMix64, folded to 32 bits.
pub fn mix(z: u64) -> u32 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) as u32
}

/// The memory that an empty stream keeps.
const KEPT: usize = 256 << 10;
