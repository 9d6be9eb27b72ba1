//! The configuration of a simulation: links, routers, flows, duration, seed.

use crate::check::ConfigError;
use crate::traffic::Traffic;
use sluice_core::link::{LinkFiles, LinkParams, RateSource, Schedule};
use sluice_core::param::Ratio;
use sluice_core::registry::Spec;
use sluice_core::traffic::HOST_JITTER;
use sluice_core::{Rate, Span, Time};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

/// Number of a link in [`Config::links`], or of a router: routers are numbered after the links.
pub type LinkId = usize;
/// Number of a flow in [`Config::flows`].
pub type FlowId = usize;

/// The configuration of a simulation.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its length in virtual time.
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
    /// To break the phases of a slow tail-drop queue reliably it must reach the transmission time
    /// of a packet there. The default is that of real hosts and lengthens an RTT by 50 us on
    /// average.
    pub jitter: Span,
    /// How often, and for how long, a receiving host is busy with something else.
    pub stalls: Stalls,
    /// Interval at which TCP variables, link backlogs and algorithm states are reported.
    pub sample_interval: Option<Span>,
    /// Bytes that a packet has on the link beyond its IP length: 14 for an Ethernet header.
    pub frame_overhead: u32,
}

/// Stalls of a host that is busy with something else when a packet arrives: an interrupt, another
/// program or, on a virtual machine, other machines of the same computer. The packet and those of
/// its flow behind it then wait longer than [`Config::jitter`]. There are none by default.
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
            sample_interval: None,
            frame_overhead: 14,
        }
    }
}

/// One direction of a link.
#[derive(Clone, Debug)]
pub struct Link {
    /// Rate, delay, burst credit and all other effects of the link.
    pub params: LinkParams,
    /// A rate that changes with time or a trace, a delay profile, a table of jitter.
    pub files: LinkFiles,
    /// The queue in front of it.
    pub queue: Spec,
    /// Later changes of the delay, in the order of time.
    pub delays: Vec<(Time, Span)>,
}

impl Link {
    /// A link with a constant rate and delay.
    pub fn new(rate: Rate, delay: Span, queue: Spec) -> Self {
        let mut params = LinkParams::default();
        params.pipe.rate = rate;
        params.pipe.delay = delay;
        Link {
            params,
            files: LinkFiles::default(),
            queue,
            delays: Vec::new(),
        }
    }

    /// Gives the link a rate that changes with time. Each rate holds from its instant until the
    /// next; the first one also holds before its instant.
    ///
    /// # Errors
    /// [`ConfigError::Schedule`] if there are no steps, or if their times do not increase.
    pub fn with_rates(mut self, steps: &[(Time, Rate)]) -> Result<Self, ConfigError> {
        let steps = steps.iter().map(|(at, rate)| (*at, Some(*rate))).collect();
        let schedule = Schedule::new(steps).ok_or(ConfigError::Schedule)?;
        self.files.rate = Some(RateSource::Schedule(schedule));
        Ok(self)
    }

    /// Whether the delay is the same for all packets, so that it can be added to the delay of the
    /// access network and needs no event of its own.
    pub(crate) fn has_plain_delay(&self) -> bool {
        self.params.jitter.jitter == Span::ZERO
            && self.params.reorder.reorder.as_billionths() == 0
            && self.files.profile.is_none()
    }
}

/// A router between clients and servers, with rules, pipes and queues in dummynet's words.
///
/// A packet makes both passes through the rules: `in recv clients`, then `out xmit servers`; a
/// packet from the servers passes them with the interfaces exchanged. No packet passes unless a
/// rule allows it.
#[derive(Clone, Debug)]
pub struct Router {
    /// Names of its interfaces, towards the clients and towards the servers.
    pub interfaces: [String; 2],
    /// Initial settings of the engine.
    pub settings: sluice_ipfw::Settings,
    /// Commands, one per line, executed at the start.
    pub commands: String,
    /// Later commands, in the order of time.
    pub later: Vec<(Time, String)>,
    /// Contents of the files that the commands name.
    pub files: BTreeMap<String, String>,
}

impl Default for Router {
    fn default() -> Self {
        Router {
            interfaces: ["clients", "servers"].map(str::to_owned),
            settings: sluice_ipfw::Settings::default(),
            commands: String::new(),
            later: Vec::new(),
            files: BTreeMap::new(),
        }
    }
}

/// The path of a flow's packets. The client is the end that opens connections or sends requests.
#[derive(Clone, Debug, Default)]
pub struct Route {
    /// Links from the client to the server.
    pub forward: Vec<LinkId>,
    /// Links from the server to the client.
    pub backward: Vec<LinkId>,
    /// Delay of the access network, from the client to the server.
    pub forward_delay: Span,
    /// Delay of the access network, from the server to the client.
    pub backward_delay: Span,
    /// Whether the client is on the servers' side of routers, and the server on the clients' side.
    pub is_reversed: bool,
}

/// One of the two ends of a flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Side {
    /// The end that opens connections, or sends requests.
    #[default]
    Client,
    /// The end that answers.
    Server,
}

impl Side {
    /// The peer.
    pub const fn other(self) -> Side {
        match self {
            Side::Client => Side::Server,
            Side::Server => Side::Client,
        }
    }
}

/// One source of traffic.
#[derive(Clone, Debug)]
pub struct Flow {
    /// What it sends.
    pub traffic: Traffic,
    /// When it begins.
    pub start: Time,
    /// When it stops, unless it ends by itself.
    pub stop: Option<Time>,
    /// The path of its packets.
    pub route: Route,
    /// Differentiated services codepoint of all its packets.
    pub dscp: u8,
    /// Queue in a scheduler with several ([`sluice_core::Packet::class`]).
    pub class: u32,
    /// Addresses of the client and the server, for rules and for fairness among hosts.
    pub addresses: (IpAddr, IpAddr),
    /// Port of the server; the client's ports count up from 49152.
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

/// Creates the two directions of a bottleneck with the same rate and queue: link 0 from the clients
/// to the servers, link 1 back. `rtt` is the round trip time without queueing and transmission;
/// each direction has half of it.
pub fn dumbbell(rate: Rate, rtt: Span, queue: &Spec) -> Vec<Link> {
    let half = Span::from_ns(rtt.as_ns() / 2);
    let up = Link::new(rate, half, queue.clone());
    let down = Link::new(rate, rtt.saturating_sub(half), queue.clone());
    vec![up, down]
}

/// The route of a flow in a dumbbell. Its access network adds `extra` to the round trip time.
pub fn dumbbell_route(extra: Span) -> Route {
    let half = Span::from_ns(extra.as_ns() / 2);
    Route {
        forward: vec![0],
        backward: vec![1],
        forward_delay: half,
        backward_delay: extra.saturating_sub(half),
        is_reversed: false,
    }
}

/// Creates `hops` bottlenecks in a row: links `0..hops` forward, `hops..2 * hops` back. `rtt` is
/// the round trip time of one hop.
pub fn parking_lot(hops: usize, rate: Rate, rtt: Span, queue: &Spec) -> Vec<Link> {
    let mut up = Vec::new();
    let mut down = Vec::new();
    for _ in 0..hops {
        let mut pair = dumbbell(rate, rtt, queue).into_iter();
        up.extend(pair.next());
        down.extend(pair.next());
    }
    up.append(&mut down);
    up
}

/// The route over hops `first..last` of a parking lot of `hops`.
pub fn parking_lot_route(hops: usize, first: usize, last: usize) -> Route {
    Route {
        forward: (first..last).collect(),
        backward: (first..last).rev().map(|hop| hops + hop).collect(),
        ..Route::default()
    }
}
