//! Earliest deadline first, like `pifo rank edf` of Sluice.
#![no_std]

use sluice_sdk::sluice::host;
use sluice_sdk::{Packet, Params, Queue, Rank, scheduler};

/// It has no state.
#[derive(Default)]
struct Edf;

impl Rank for Edf {
    fn rank(&mut self, packet: &Packet, _queue: &Queue, params: &Params) -> u64 {
        // SAFETY: the function has no conditions.
        let tag = unsafe { host::tag() };
        // The tag of a packet is its deadline in microseconds after the arrival.
        let within = match tag {
            0 => params.get(0),
            us => us * 1000,
        };
        (packet.now_ns - packet.sojourn_ns + within) as u64
    }
}

scheduler! {
    Edf:;
    "abi 1
doc the packet whose deadline is next leaves first
param deadline span 10ms 0s 100s deadline of a packet for which the host gave none"
}
