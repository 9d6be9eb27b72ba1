//! The expected cost of a simulation.

use std::collections::BTreeMap;

use crate::config::Config;
use crate::demand::{Data, Links, Outlook};
use crate::ids::LinkId;
use crate::topology::Link;
use sluice_core::Time;
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
        let mut connections = 0_u64;
        let mut shared: BTreeMap<LinkId, Share> = BTreeMap::new();
        let links = Links::new(&self.links, &self.routers);
        for flow in &self.flows {
            let end = Time::ZERO + self.duration;
            let stop = flow.stop.map_or(end, |stop| stop.min(end));
            let outlook = Outlook {
                duration: stop.since(flow.start.min(stop)),
                links: &links,
                route: &flow.route,
            };
            let demand = flow.traffic.demand(&outlook);
            packets = packets.saturating_add(demand.packets);
            connections = connections.saturating_add(demand.connections);
            if let Some(data) = demand.data {
                shared.entry(data.link).or_default().add(&data);
            }
            if let Some((link, bytes)) = demand.fixed {
                shared.entry(link).or_default().fixed += u128::from(bytes);
            }
        }
        // However many flows share a link, no more passes than its rate allows.
        for (link, share) in shared {
            let capacity = links.capacity(link, self.duration);
            packets = packets.saturating_add(share.packets(capacity));
        }
        // A queue may have no limit.
        let held = self.links.iter().map(held).fold(0, u64::saturating_add);
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

/// What flows would send over a link.
#[derive(Default)]
struct Share {
    segments: u128,
    acks: u128,
    bytes: u128,
    /// The bytes of flows that do not yield to others.
    fixed: u128,
}

impl Share {
    fn add(&mut self, data: &Data) {
        let segments = u128::from(data.segments);
        self.segments += segments;
        self.acks += segments / u128::from(data.ack_every.max(1));
        self.bytes += segments * u128::from(data.segment_bytes);
    }

    /// Returns the packets that hosts send if the link can carry `capacity` bytes, without those of
    /// flows that do not yield. A quarter is added for segments sent again and for the ACKs that losses
    /// cause. Flows that yield get at least a quarter of the link: nothing from most FIFOs beside a
    /// flood, half of a fair queue.
    fn packets(&self, capacity: Option<u64>) -> u64 {
        let bytes = self.bytes.max(1);
        let passing = capacity.map_or(bytes, |capacity| {
            let capacity = u128::from(capacity);
            let left = capacity.saturating_sub(self.fixed).max(capacity / 4);
            bytes.min(left)
        });
        let wished = (self.segments + self.acks) as f64 * 1.25;
        (wished * (passing as f64 / bytes as f64)) as u64
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
