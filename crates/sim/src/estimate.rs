//! What a simulation is going to cost, before it runs.

use crate::config::{Config, Direction, Flow, Link, LinkId, Spacing, Traffic};
use sluice_core::param::Value;
use sluice_core::{Rate, Span};

/// Upper bounds of what a simulation takes, good to a small factor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Estimate {
    /// Packets that hosts will send. One takes about 0.3 us; the recording has a row for each
    /// and link.
    pub packets: u64,
    /// Bytes of memory, recordings not counted.
    pub memory_bytes: u64,
}

/// Bytes of a full TCP packet, and of what the simulator keeps for each in flight and for each
/// connection.
const FULL_PACKET: u64 = 1500;
const PER_PACKET: u64 = 200;
const PER_CONNECTION: u64 = 6_000;
/// What rules are taken to let pass: they are there to make a bottleneck.
const ROUTER_RATE: Rate = Rate::from_bps(1_000_000_000);
/// What a queue without a declared limit is taken to hold.
const QUEUE_PACKETS: u64 = 10_000;

impl Config {
    /// What this simulation is going to cost. A host can refuse what it has not got.
    pub fn estimate(&self) -> Estimate {
        let mut packets = 0_u64;
        // TCP fills the links that it passes, however many flows share them.
        let mut is_filled = vec![false; self.links.len() + self.routers.len()];
        let mut connections = 0_u64;
        for flow in &self.flows {
            let (sent, filled) = self.demand(flow);
            packets = packets.saturating_add(sent);
            connections += match &flow.traffic {
                Traffic::Tcp(_) | Traffic::Exchange(_) => 1,
                // As many as are open at once when a page takes a second or so.
                Traffic::Web(web) => {
                    let pages = Span::from_secs(1).as_ns() / web.interval.as_ns().max(1) + 1;
                    pages.saturating_mul(u64::from(web.objects))
                }
                Traffic::Udp(_) | Traffic::Ping(_) => 0,
            };
            if let Some(link) = filled {
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

    /// The packets that a flow sends by itself, and the link that it fills instead, if it takes
    /// what it gets.
    fn demand(&self, flow: &Flow) -> (u64, Option<LinkId>) {
        let duration = self.duration;
        match &flow.traffic {
            Traffic::Udp(udp) => {
                let bytes = udp.rate.bytes_in(duration);
                let sent = bytes / u64::from(udp.payload + 28);
                let share = match udp.spacing {
                    Spacing::Constant | Spacing::Poisson => 1.0,
                    Spacing::OnOff { on, off } | Spacing::RandomOnOff { on, off } => {
                        on.as_secs_f64() / (on + off).as_secs_f64()
                    }
                };
                ((sent as f64 * share) as u64 + 1, None)
            }
            Traffic::Ping(ping) => {
                let count = duration.as_ns() / ping.interval.as_ns().max(1) + 1;
                (2 * count.min(ping.count.unwrap_or(u64::MAX)), None)
            }
            Traffic::Web(web) => {
                let pages = duration.as_ns() / web.interval.as_ns().max(1) + 1;
                // A handshake, a request, an end, and the object: 20 packets at least
                (pages.saturating_mul(u64::from(web.objects) * 20), None)
            }
            Traffic::Exchange(exchange) => {
                // At most one exchange in a round trip, each of full segments and their ACKs
                let mss = u64::from(exchange.config.mss);
                let segments = exchange.request.div_ceil(mss) + exchange.response.div_ceil(mss);
                let each = self.round_trip(flow).saturating_add(exchange.think);
                let times = duration.as_ns() / each.as_ns().max(10_000) + 1;
                (times.saturating_mul(2 * segments), None)
            }
            Traffic::Tcp(tcp) => {
                let way = match tcp.direction {
                    Direction::Up => &flow.route.forward,
                    Direction::Down => &flow.route.backward,
                };
                let bottleneck = way
                    .iter()
                    .copied()
                    .min_by_key(|link| self.capacity(*link).unwrap_or(u64::MAX));
                let by_path = bottleneck.and_then(|link| self.capacity(link));
                // Without a rate the receive buffer limits what passes in a round trip.
                let round_trip = self.round_trip(flow).as_ns().max(1);
                let by_window = u128::from(tcp.config.receive_buffer)
                    * u128::from(duration.as_ns())
                    / u128::from(round_trip);
                let by_window = u64::try_from(by_window).unwrap_or(u64::MAX);
                let own = tcp.bytes.unwrap_or(u64::MAX).min(by_window);
                match by_path {
                    Some(path) if own > path => (0, bottleneck),
                    _ => (own / u64::from(tcp.config.mss) * 2 + 20, None),
                }
            }
        }
    }

    fn round_trip(&self, flow: &Flow) -> Span {
        let route = &flow.route;
        let mut sum = route.forward_delay.saturating_add(route.backward_delay);
        for link in route.forward.iter().chain(&route.backward) {
            if let Some(link) = self.links.get(*link) {
                sum = sum.saturating_add(link.params.pipe.delay);
            }
        }
        sum
    }

    /// Bytes that a link can send in the whole run; none without a rate. What the rules of a router
    /// let pass is not known, and taken for [`ROUTER_RATE`].
    fn capacity(&self, link: LinkId) -> Option<u64> {
        let Some(link) = self.links.get(link) else {
            return Some(ROUTER_RATE.bytes_in(self.duration));
        };
        let pipe = &link.params.pipe;
        (!pipe.rate.is_unlimited()).then(|| pipe.rate.bytes_in(self.duration))
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
