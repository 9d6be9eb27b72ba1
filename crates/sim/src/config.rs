//! The configuration of a simulation: links, routers, flows, duration, seed.

use crate::topology::{Link, Route, Router};
use crate::traffic::Traffic;
use sluice_core::param::Ratio;
use sluice_core::traffic::HOST_JITTER;
use sluice_core::{Span, Time};
use std::net::{IpAddr, Ipv4Addr};

/// The configuration of a simulation.
#[derive(Clone, Debug)]
pub struct Config {
    /// Length in virtual time.
    pub duration: Span,
    /// The seed of all randomness: the same seed gives the same run, bit for bit.
    pub seed: u64,
    /// Unidirectional links, each a queue, a rate and a delay.
    pub links: Vec<Link>,
    /// Routers with rules. Both directions of a flow may pass the same router.
    pub routers: Vec<Router>,
    /// The traffic, and which links it passes.
    pub flows: Vec<Flow>,
    /// Longest time that a packet waits at the host that receives it. The time is drawn uniformly;
    /// packets do not overtake each other. Real hosts have such a jitter. Without it, flows with
    /// the same RTT lock into phase with the departures of the bottleneck and see unrealistic loss
    /// patterns (Floyd and Jacobson, "On Traffic Phase Effects in Packet-Switched Gateways", 1992).
    /// To break the phases of a slow tail-drop queue reliably, the jitter must reach the
    /// transmission time of a packet on its link. The default is typical of real hosts and
    /// lengthens an RTT by 50 us on average.
    pub jitter: Span,
    /// The stalls of a receiving host.
    pub stalls: Stalls,
    /// The samples start one interval after this instant.
    pub samples_from: Time,
    /// Interval at which TCP variables, link backlogs and algorithm states are reported.
    pub sample_interval: Option<Span>,
    /// Bytes that a packet has on the link beyond its IP length: 14 for an Ethernet header.
    pub frame_overhead: u32,
}

/// Stalls of a host that is busy when a packet arrives, for example with an interrupt, another
/// program or, on a virtual machine, other machines on the same computer. The packet and later
/// packets of its flow then wait longer than [`Config::jitter`]. There are none by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stalls {
    /// The share of packets that are stalled.
    pub share: Ratio,
    /// The mean of the waiting time, which is exponentially distributed.
    pub mean: Span,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            duration: Span::from_secs(60),
            seed: 1,
            links: Vec::new(),
            routers: Vec::new(),
            flows: Vec::new(),
            jitter: HOST_JITTER,
            stalls: Stalls::default(),
            samples_from: Time::ZERO,
            sample_interval: None,
            frame_overhead: 14,
        }
    }
}

/// One source of traffic.
#[derive(Clone, Debug)]
pub struct Flow {
    /// The traffic.
    pub traffic: Traffic,
    /// The start.
    pub start: Time,
    /// The end, unless it ends by itself.
    pub stop: Option<Time>,
    /// The path of its packets.
    pub route: Route,
    /// Differentiated services codepoint of all its packets.
    pub dscp: u8,
    /// Queue in a scheduler with several ([`sluice_core::Packet::class`]).
    pub class: u32,
    /// Addresses of the client and the server, for rules and for fairness among hosts.
    pub addresses: (IpAddr, IpAddr),
    /// Port of the server. Clients have the dynamic ports from 49152 on; the first port of each flow
    /// differs from those of the others.
    pub server_port: u16,
}

impl Flow {
    /// A flow from the start to the end of the simulation.
    pub fn new(traffic: impl Into<Traffic>, route: Route) -> Self {
        Flow {
            traffic: traffic.into(),
            start: Time::ZERO,
            stop: None,
            route,
            dscp: 0,
            class: 0,
            // RFC 5737: addresses for documentation
            addresses: (
                IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
                IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1)),
            ),
            server_port: 5001,
        }
    }
}
