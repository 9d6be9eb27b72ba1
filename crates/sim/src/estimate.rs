//! The expected cost of a simulation.

use crate::config::Config;
use crate::demand::{Outlook, capacity};
use crate::topology::Link;
use sluice_core::param::Value;

/// Upper bounds of the cost of a simulation, within a small factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// Packets that hosts will send. Each takes about 0.3 us, and a row per link in a recording.
    pub packets: u64,
    /// Bytes of memory, without recordings.
    pub memory_bytes: u64,
}

/// Bytes of a full TCP packet, and of memory per packet in flight and per connection.
const FULL_PACKET: u64 = 1500;
const PER_PACKET: u64 = 200;
const PER_CONNECTION: u64 = 6_000;
/// Assumed length of a queue without a declared limit.
const QUEUE_PACKETS: u64 = 10_000;

impl Config {
    /// Estimates the cost of the simulation, so that a host can refuse it.
    pub fn estimate(&self) -> Estimate {
        let mut packets = 0_u64;
        // TCP flows fill a link, no matter how many share it.
        let mut is_filled = vec![false; self.links.len() + self.routers.len()];
        let mut connections = 0_u64;
        for flow in &self.flows {
            let outlook = Outlook {
                duration: self.duration,
                links: &self.links,
                route: &flow.route,
            };
            let demand = flow.traffic.demand(&outlook);
            packets = packets.saturating_add(demand.packets);
            connections = connections.saturating_add(demand.connections);
            if let Some(link) = demand.filled {
                is_filled[link] = true;
            }
        }
        for (link, _) in is_filled.iter().enumerate().filter(|(_, filled)| **filled) {
            if let Some(bytes) = capacity(&self.links, link, self.duration) {
                // A full packet, and an ACK for each when much is lost
                packets = packets.saturating_add(bytes / FULL_PACKET * 2);
            }
        }
        let held: u64 = self.links.iter().map(held).sum();
        let memory_bytes = held
            .min(packets)
            .saturating_mul(PER_PACKET)
            .saturating_add(connections.saturating_mul(PER_CONNECTION))
            .saturating_add(1 << 20);
        Estimate {
            packets,
            memory_bytes,
        }
    }
}

/// Packets that a link and its queue can hold.
fn held(link: &Link) -> u64 {
    let pipe = &link.params.pipe;
    let on_the_way = if pipe.rate.is_unlimited() {
        QUEUE_PACKETS
    } else {
        pipe.rate.bytes_in(pipe.delay) / FULL_PACKET
    };
    let waiting = match link.queue.value("limit") {
        Some(Value::Count(limit)) => limit,
        _ => QUEUE_PACKETS,
    };
    on_the_way.saturating_add(waiting)
}
