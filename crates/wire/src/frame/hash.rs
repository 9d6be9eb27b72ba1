//! Flow hashes, which identify the packets of a flow.
//!
//! SipHash-1-3 with the seed as its key, over the fields in network order: a run gives the same
//! buckets on every machine, and a sender who does not know the seed cannot aim packets at one
//! bucket. There are three hashes: flow, source host, destination host.

use super::view::{Addresses, Transport, View};
use siphasher::sip::SipHasher13;

/// Hashes flows and hosts under one seed.
#[derive(Clone, Copy, Debug)]
pub struct FlowHasher {
    flow: SipHasher13,
    host: SipHasher13,
}

impl FlowHasher {
    /// Creates a hasher for `seed`.
    pub fn new(seed: u64) -> FlowHasher {
        FlowHasher {
            flow: SipHasher13::new_with_keys(seed, FLOW_KEY),
            host: SipHasher13::new_with_keys(seed, HOST_KEY),
        }
    }

    /// Returns the hash of addresses, protocol and ports (for ICMP echo: the identifier).
    ///
    /// All fragments of a packet, the first one included, have the same hash, so that a flow queue
    /// keeps them in order: the ports of fragments do not count, and their protocol is the header with
    /// which the fragmented part begins. Frames other than IP are one flow per ethertype.
    pub fn flow(&self, view: &View) -> u32 {
        let (first, second) = if view.fragment.is_some() {
            (0, 0)
        } else {
            match view.transport {
                Transport::Icmp { id, .. } => (id.unwrap_or(0), 0),
                _ => view.ports().unwrap_or((0, 0)),
            }
        };
        let protocol = view.fragment.map_or(view.protocol, |part| part.protocol);
        match view.addresses {
            Addresses::V4 {
                source,
                destination,
            } => {
                let mut key = [0; 13];
                key[..4].copy_from_slice(&source.octets());
                key[4..8].copy_from_slice(&destination.octets());
                key[8..10].copy_from_slice(&first.to_be_bytes());
                key[10..12].copy_from_slice(&second.to_be_bytes());
                key[12] = protocol;
                fold(self.flow.hash(&key))
            }
            Addresses::V6 {
                source,
                destination,
            } => {
                let mut key = [0; 37];
                key[..16].copy_from_slice(&source.octets());
                key[16..32].copy_from_slice(&destination.octets());
                key[32..34].copy_from_slice(&first.to_be_bytes());
                key[34..36].copy_from_slice(&second.to_be_bytes());
                key[36] = protocol;
                fold(self.flow.hash(&key))
            }
            Addresses::None => fold(self.flow.hash(&view.ethertype.to_be_bytes())),
        }
    }

    /// Returns the hash of the source address.
    pub fn source(&self, view: &View) -> u32 {
        match view.addresses {
            Addresses::V4 { source, .. } => fold(self.host.hash(&source.octets())),
            Addresses::V6 { source, .. } => fold(self.host.hash(&source.octets())),
            Addresses::None => fold(self.host.hash(&[])),
        }
    }

    /// Returns the hash of the destination address; equal to [`FlowHasher::source`] of the reverse
    /// direction.
    pub fn destination(&self, view: &View) -> u32 {
        match view.addresses {
            Addresses::V4 { destination, .. } => fold(self.host.hash(&destination.octets())),
            Addresses::V6 { destination, .. } => fold(self.host.hash(&destination.octets())),
            Addresses::None => fold(self.host.hash(&[])),
        }
    }
}

fn fold(hash: u64) -> u32 {
    (hash ^ (hash >> 32)) as u32
}

const FLOW_KEY: u64 = 0x666c_6f77;
const HOST_KEY: u64 = 0x686f_7374;
