//! What cannot be simulated, and why.

use crate::config::{Config, Flow, FlowId, Link, LinkId};
use sluice_core::param::Ratio;
use sluice_core::{Span, Time};
use sluice_tcp as tcp;
use std::net::IpAddr;

/// Why something cannot be simulated.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Nothing would happen.
    #[error("a simulation of no length")]
    NoDuration,
    /// A flow uses a link that is not there.
    #[error("flow {flow} uses link {link}, but there are only {links} (numbered from 0)")]
    NoSuchLink {
        /// The flow.
        flow: FlowId,
        /// The number it has.
        link: LinkId,
        /// How many links there are.
        links: usize,
    },
    /// The same link twice on one way.
    #[error("flow {flow} passes link {link} twice in one direction")]
    Loop {
        /// The flow.
        flow: FlowId,
        /// The link.
        link: LinkId,
    },
    /// A route longer than a packet can count.
    #[error("flow {flow} passes {hops} links in one direction (at most 250)")]
    TooManyHops {
        /// The flow.
        flow: FlowId,
        /// Links on its way.
        hops: usize,
    },
    /// Nothing limits the path, so an endless source would send without end at one instant.
    #[error("flow {flow} passes neither a rate nor a delay: its round trip would take no time")]
    NoTime {
        /// The flow.
        flow: FlowId,
    },
    /// The settings of an end of a connection.
    #[error("flow {flow}: {error}")]
    Tcp {
        /// The flow.
        flow: FlowId,
        /// What is wrong with them.
        error: tcp::ConfigError,
    },
    /// A source that would never stop sending at one instant, or never send.
    #[error("flow {flow}: {what} must be more than zero")]
    Zero {
        /// The flow.
        flow: FlowId,
        /// Which value.
        what: &'static str,
    },
    /// A datagram that does not fit an IP packet.
    #[error("flow {flow}: payload of {payload} bytes (at most 65000)")]
    Payload {
        /// The flow.
        flow: FlowId,
        /// The bytes.
        payload: u32,
    },
    /// A codepoint that does not exist.
    #[error("flow {flow}: dscp {dscp} (0 to 63 are possible)")]
    Dscp {
        /// The flow.
        flow: FlowId,
        /// The number.
        dscp: u8,
    },
    /// Rates that are none, or whose times do not rise.
    #[error("a schedule of rates needs at least one, and rising times")]
    Schedule,
    /// Delays or commands that go back in time.
    #[error("{what} goes back from {before} to {after}")]
    Backwards {
        /// Delays or commands, and whose.
        what: String,
        /// An instant.
        before: Time,
        /// The earlier one after it.
        after: Time,
    },
    /// A router refuses its commands.
    #[error("router {router}: {message}")]
    Command {
        /// Number of the router in [`Config::routers`].
        router: usize,
        /// What it says.
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
    /// The parameters of the queue contradict each other.
    #[error("link {link}: {error}")]
    Queue {
        /// The link.
        link: LinkId,
        /// What the algorithm says.
        error: sluice_core::param::ParamError,
    },
    /// More packets than there are cannot be stalled.
    #[error("a share of {share} of all packets is stalled (at most 1)")]
    Stalls {
        /// The share.
        share: Ratio,
    },
    /// Reporting would take forever.
    #[error("a sample interval of zero")]
    SampleInterval,
}

impl Config {
    /// Whether it can be simulated.
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
                    // What its pipes do is known to its commands only.
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
