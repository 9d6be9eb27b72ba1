//! The expected cost of a simulation.

use crate::config::{Config, Flow, Link, LinkId, Side};
use sluice_core::param::Value;
use sluice_core::{Rate, Span};

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
/// Assumed rate of a router: its rules make a bottleneck.
const ROUTER_RATE: Rate = Rate::from_bps(1_000_000_000);
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
            let outlook = Outlook { config: self, flow };
            let demand = flow.traffic.demand(&outlook);
            packets = packets.saturating_add(demand.packets);
            connections = connections.saturating_add(demand.connections);
            if let Some(link) = demand.filled {
                is_filled[link] = true;
            }
        }
        for (link, _) in is_filled.iter().enumerate().filter(|(_, filled)| **filled) {
            if let Some(bytes) = self.capacity(link) {
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

    /// Bytes that a link can send in the whole run; none without a rate. The rate of a router is
    /// not known; [`ROUTER_RATE`] is assumed.
    fn capacity(&self, link: LinkId) -> Option<u64> {
        let Some(link) = self.links.get(link) else {
            return Some(ROUTER_RATE.bytes_in(self.duration));
        };
        let pipe = &link.params.pipe;
        (!pipe.rate.is_unlimited()).then(|| pipe.rate.bytes_in(self.duration))
    }
}

/// The cost of one flow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Demand {
    /// Packets that it sends by itself.
    pub packets: u64,
    /// Connections that are open at once.
    pub connections: u64,
    /// The link that it fills instead, if it sends as much as possible.
    pub filled: Option<LinkId>,
}

/// The limits that the path sets to a flow.
pub(crate) struct Outlook<'a> {
    config: &'a Config,
    flow: &'a Flow,
}

impl Outlook<'_> {
    /// Length of the run.
    pub fn duration(&self) -> Span {
        self.config.duration
    }

    /// How often something happens at this interval, the first time at the start.
    pub fn count(&self, interval: Span) -> u64 {
        self.config.duration.as_ns() / interval.as_ns().max(1) + 1
    }

    /// The delays of the path in both directions.
    pub fn round_trip(&self) -> Span {
        let route = &self.flow.route;
        let mut sum = route.forward_delay.saturating_add(route.backward_delay);
        for link in route.forward.iter().chain(&route.backward) {
            if let Some(link) = self.config.links.get(*link) {
                sum = sum.saturating_add(link.params.pipe.delay);
            }
        }
        sum
    }

    /// The slowest link in the direction from `sender`, and the bytes that it can send in the run.
    pub fn bottleneck(&self, sender: Side) -> Option<(LinkId, u64)> {
        let links = match sender {
            Side::Client => &self.flow.route.forward,
            Side::Server => &self.flow.route.backward,
        };
        let limited = |link: &LinkId| Some((*link, self.config.capacity(*link)?));
        links
            .iter()
            .filter_map(limited)
            .min_by_key(|(_, bytes)| *bytes)
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
