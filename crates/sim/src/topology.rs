//! Links, routers, and the routes of flows over them.

use crate::error::ConfigError;
use crate::ids::LinkId;
use sluice_core::link::{LinkFiles, LinkParams, RateSource, Schedule};
use sluice_core::registry::Spec;
use sluice_core::{Rate, Span, Time};
use std::collections::BTreeMap;
use std::path::PathBuf;

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
    /// The folder that the paths of algorithms in the commands are relative to.
    pub folder: PathBuf,
}

impl Default for Router {
    fn default() -> Self {
        Router {
            interfaces: ["clients", "servers"].map(str::to_owned),
            settings: sluice_ipfw::Settings::default(),
            commands: String::new(),
            later: Vec::new(),
            files: BTreeMap::new(),
            folder: PathBuf::new(),
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
