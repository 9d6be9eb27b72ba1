//! Checks of a configuration.

use crate::config::{Config, Flow};
use crate::error::{ConfigError, check_order};
use crate::ids::FlowId;
use crate::topology::Link;
use sluice_core::Span;
use sluice_core::param::Ratio;

impl Config {
    /// Checks whether the configuration can be simulated.
    ///
    /// # Errors
    /// The first error that is found.
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
