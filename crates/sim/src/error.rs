//! Errors of a configuration.

use crate::ids::{FlowId, LinkId};
use sluice_core::Time;
use sluice_core::param::Ratio;
use sluice_tcp as tcp;
use std::net::IpAddr;

/// The reason why a configuration cannot be simulated.
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
        /// The number of links.
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
        /// The error.
        error: tcp::ConfigError,
    },
    /// A value is zero, so that a source would send forever at one instant, or never.
    #[error("flow {flow}: {what} must be more than zero")]
    Zero {
        /// The flow.
        flow: FlowId,
        /// The value.
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
        /// The owner of these times.
        what: String,
        /// An instant.
        before: Time,
        /// The earlier one after it.
        after: Time,
    },
    /// A router has refused a command.
    #[error("router {router}: {message}")]
    Command {
        /// Number of the router in [`crate::Config::routers`].
        router: usize,
        /// Message.
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

/// Returns [`ConfigError::Backwards`] if the times decrease.
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
