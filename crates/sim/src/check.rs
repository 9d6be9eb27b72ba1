//! Checks of a configuration.

use crate::config::{Config, Flow, FlowId, Link, LinkId};
use sluice_core::param::Ratio;
use sluice_core::{Span, Time};
use sluice_tcp as tcp;
use std::net::IpAddr;

/// Why a configuration cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The duration is zero.
    #[error("the duration is zero")]
    NoDuration,
    /// A flow uses a link that does not exist.
    #[error("flow {flow} uses link {link}, but there are only {links} (numbered from 0)")]
    NoSuchLink {
        /// The flow.
        flow: FlowId,
        /// The number of the link.
        link: LinkId,
        /// How many links there are.
        links: usize,
    },
    /// A link occurs twice in one direction of a route.
    #[error("flow {flow} passes link {link} twice in one direction")]
    Loop {
        /// The flow.
        flow: FlowId,
        /// The link.
        link: LinkId,
    },
    /// A route has more links than a packet can count.
    #[error("flow {flow} passes {hops} links in one direction (at most 250)")]
    TooManyHops {
        /// The flow.
        flow: FlowId,
        /// Links in one direction of its route.
        hops: usize,
    },
    /// Nothing limits the path, so an endless source would send forever at one instant.
    #[error(
        "flow {flow}: no link on its path has a rate or a delay, so a round trip would take no time"
    )]
    NoTime {
        /// The flow.
        flow: FlowId,
    },
    /// The settings of a TCP endpoint are wrong.
    #[error("flow {flow}: {error}")]
    Tcp {
        /// The flow.
        flow: FlowId,
        /// What is wrong.
        error: tcp::ConfigError,
    },
    /// A value is zero, so that a source would send forever at one instant, or never.
    #[error("flow {flow}: {what} must be more than zero")]
    Zero {
        /// The flow.
        flow: FlowId,
        /// Which value.
        what: &'static str,
    },
    /// A datagram does not fit an IP packet.
    #[error("flow {flow}: payload of {payload} bytes (at most 65000)")]
    Payload {
        /// The flow.
        flow: FlowId,
        /// The bytes.
        payload: u32,
    },
    /// A DSCP is out of range.
    #[error("flow {flow}: dscp {dscp} (0 to 63 are possible)")]
    Dscp {
        /// The flow.
        flow: FlowId,
        /// The number.
        dscp: u8,
    },
    /// A schedule has no rates, or its times do not increase.
    #[error("a schedule needs at least one rate, and increasing times")]
    Schedule,
    /// The times of delays, commands or datagrams decrease.
    #[error("the times of the {what} decrease from {before} to {after}")]
    Backwards {
        /// Whose times these are.
        what: String,
        /// An instant.
        before: Time,
        /// The earlier one after it.
        after: Time,
    },
    /// A router has refused a command.
    #[error("router {router}: {message}")]
    Command {
        /// Number of the router in [`Config::routers`].
        router: usize,
        /// Its message.
        message: String,
    },
    /// Client and server of a flow have addresses of different families.
    #[error("flow {flow}: addresses {client} and {server} are not of the same family")]
    Families {
        /// The flow.
        flow: FlowId,
        /// The client's address.
        client: IpAddr,
        /// The server's.
        server: IpAddr,
    },
    /// The parameters of a queue contradict each other.
    #[error("link {link}: {error}")]
    Queue {
        /// The link.
        link: LinkId,
        /// The error of the algorithm.
        error: sluice_core::param::ParamError,
    },
    /// The share of stalled packets is above 1.
    #[error("share of stalled packets: {share} (at most 1)")]
    Stalls {
        /// The share.
        share: Ratio,
    },
    /// The sample interval is zero.
    #[error("the sample interval is zero")]
    SampleInterval,
}

impl Config {
    /// Checks whether the configuration can be simulated.
    ///
    /// # Errors
    /// Names the first thing that is wrong.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.duration == Span::ZERO {
            return Err(ConfigError::NoDuration);
        }
        if self.sample_interval == Some(Span::ZERO) {
            return Err(ConfigError::SampleInterval);
        }
        if self.stalls.share > Ratio::ONE {
            let share = self.stalls.share;
            return Err(ConfigError::Stalls { share });
        }
        for (link, settings) in self.links.iter().enumerate() {
            let times = settings.delays.iter().map(|(at, _)| *at);
            check_order(times, || format!("delays of link {link}"))?;
        }
        for (router, settings) in self.routers.iter().enumerate() {
            let times = settings.later.iter().map(|(at, _)| *at);
            check_order(times, || format!("commands of router {router}"))?;
        }
        for (flow, settings) in self.flows.iter().enumerate() {
            self.validate_route(flow, settings)?;
            settings.traffic.check(flow)?;
            let (client, server) = settings.addresses;
            if client.is_ipv4() != server.is_ipv4() {
                return Err(ConfigError::Families {
                    flow,
                    client,
                    server,
                });
            }
            if settings.dscp > 63 {
                return Err(ConfigError::Dscp {
                    flow,
                    dscp: settings.dscp,
                });
            }
        }
        Ok(())
    }

    fn validate_route(&self, flow: FlowId, settings: &Flow) -> Result<(), ConfigError> {
        let route = &settings.route;
        let mut takes_time = route.forward_delay + route.backward_delay > Span::ZERO;
        for way in [&route.forward, &route.backward] {
            if way.len() > 250 {
                let hops = way.len();
                return Err(ConfigError::TooManyHops { flow, hops });
            }
            for (i, &link) in way.iter().enumerate() {
                let links = self.links.len() + self.routers.len();
                if link >= links {
                    return Err(ConfigError::NoSuchLink { flow, link, links });
                }
                if way[..i].contains(&link) {
                    return Err(ConfigError::Loop { flow, link });
                }
                takes_time |= match self.links.get(link) {
                    Some(Link { params, files, .. }) => {
                        let pipe = &params.pipe;
                        let has_rate = !pipe.rate.is_unlimited() || files.rate.is_some();
                        pipe.delay > Span::ZERO || has_rate || files.profile.is_some()
                    }
                    // The effect of a router's pipes is unknown here.
                    None => true,
                };
            }
        }
        if takes_time {
            Ok(())
        } else {
            Err(ConfigError::NoTime { flow })
        }
    }
}

pub(crate) fn check_order(
    times: impl Iterator<Item = Time>,
    what: impl Fn() -> String,
) -> Result<(), ConfigError> {
    let mut before = Time::ZERO;
    for after in times {
        if after < before {
            let what = what();
            return Err(ConfigError::Backwards {
                what,
                before,
                after,
            });
        }
        before = after;
    }
    Ok(())
}
