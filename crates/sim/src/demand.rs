//! The most that a flow will send within the limits of its path.

use crate::ids::{LinkId, Side};
use crate::stage::Stage;
use crate::topology::{Link, Route, Router};
use sluice_core::{Rate, Rng, Span};

/// Assumed rate of a router without a limited pipe.
const ROUTER_RATE: Rate = Rate::from_bps(1_000_000_000);

/// The cost of one flow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Demand {
    /// Packets that it sends by itself.
    pub packets: u64,
    /// Connections that are open at once.
    pub connections: u64,
    /// The data that it would send if its slowest link had no other flows.
    pub data: Option<Data>,
    /// The bytes that it sends over its slowest link whatever the other flows do.
    pub fixed: Option<(LinkId, u64)>,
}

/// The data that a flow sends over its slowest link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Data {
    /// The slowest link.
    pub link: LinkId,
    /// Segments.
    pub segments: u64,
    /// Bytes of a segment on the link.
    pub segment_bytes: u64,
    /// Segments for each ACK.
    pub ack_every: u32,
}

/// The limits that the path imposes on a flow.
pub(crate) struct Outlook<'a> {
    /// Time between the start and the end of the flow.
    pub duration: Span,
    pub links: &'a Links<'a>,
    pub route: &'a Route,
}

/// The links and routers of a simulation.
pub(crate) struct Links<'a> {
    links: &'a [Link],
    /// What each router can pass.
    routers: Vec<Rate>,
}

impl Outlook<'_> {
    /// How often something happens at this interval, the first time at the start.
    pub fn count(&self, interval: Span) -> u64 {
        self.duration.as_ns() / interval.as_ns().max(1) + 1
    }

    /// The delays of the path in both directions.
    pub fn round_trip(&self) -> Span {
        let route = self.route;
        let mut sum = route.forward_delay.saturating_add(route.backward_delay);
        for link in route.forward.iter().chain(&route.backward) {
            if let Some(link) = self.links.links.get(*link) {
                sum = sum.saturating_add(link.params.pipe.delay);
            }
        }
        sum
    }

    /// The slowest link in the direction from `sender`, and the bytes that it can send in the run.
    pub fn bottleneck(&self, sender: Side) -> Option<(LinkId, u64)> {
        let links = match sender {
            Side::Client => &self.route.forward,
            Side::Server => &self.route.backward,
        };
        let limited = |link: &LinkId| Some((*link, self.links.capacity(*link, self.duration)?));
        links
            .iter()
            .filter_map(limited)
            .min_by_key(|(_, bytes)| *bytes)
    }
}

impl<'a> Links<'a> {
    pub fn new(links: &'a [Link], routers: &[Router]) -> Self {
        let rate = |router| pipe_rates(router).unwrap_or(ROUTER_RATE);
        let routers = routers.iter().map(rate).collect();
        Links { links, routers }
    }

    /// Bytes that a link can send in the whole run; none without a rate.
    pub fn capacity(&self, link: LinkId, duration: Span) -> Option<u64> {
        let Some(own) = self.links.get(link) else {
            let rate = self.routers.get(link - self.links.len())?;
            return Some(rate.bytes_in(duration));
        };
        let pipe = &own.params.pipe;
        match &own.files.rate {
            Some(source) => Some(source.bytes_in(duration)),
            None => (!pipe.rate.is_unlimited()).then(|| pipe.rate.bytes_in(duration)),
        }
    }
}

/// Returns the sum of the rates of all limited pipes of `router`; `None` if there are none, or if its
/// commands are wrong. A pipe with a mask counts once.
fn pipe_rates(router: &Router) -> Option<Rate> {
    let mut stage = Stage::router(0, router, &Rng::from_seed(0)).ok()?;
    let sum = stage.pipe_rates();
    (sum > 0).then(|| Rate::from_bps(sum))
}
