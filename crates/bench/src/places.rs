//! The loop of a measurement, and the cores of the loop and of the hosts.

use sluice_core::link::PipeParams;
use sluice_net::Clock;
use sluice_net::cores::{self, Stay};
use sluice_net::namespace::Offloads;
use sluice_net::port::{Pool, Spin};

use super::contender::{Loop, LoopReport, POOL, Pipes, packet_ports};
use super::figures::{Figures, Places};
use super::network::Network;
use super::{BenchError, BenchPlan};

impl Places {
    /// Assigns the loop to the plan's core, or to the last one, and everything else to the other
    /// cores, if there are at least two.
    pub fn of(plan: &BenchPlan, figures: &mut Figures) -> Result<Places, BenchError> {
        let mut hosts = cores::allowed()?;
        let Some(own) = plan.core(0).or(hosts.last().copied()) else {
            return Ok(Places::default());
        };
        hosts.retain(|core| *core != own);
        if hosts.is_empty() {
            return Ok(Places::default());
        }
        let receives_apart = match Network::with_apart_veths(Offloads::ON, &hosts) {
            Ok(_) => true,
            Err(error) => {
                figures.note(format!(
                    "the delay with hosts that receive on cores of their own: {error}"
                ));
                false
            }
        };
        Ok(Places {
            forwarding: Some(own),
            hosts,
            receives_apart,
        })
    }

    /// Creates a network for the delay, in which a host's work does not keep the loop from its next
    /// packet.
    pub fn delayed_network(&self) -> Result<Network, BenchError> {
        if self.receives_apart {
            Network::with_apart_veths(Offloads::ON, &self.hosts)
        } else {
            Network::with_veths(Offloads::ON)
        }
    }

    /// Pins threads started meanwhile to the hosts' cores.
    pub fn hosts(&self) -> Result<Option<Stay>, BenchError> {
        Ok(match self.hosts[..] {
            [] => None,
            _ => Some(Stay::on(&self.hosts)?),
        })
    }

    /// Pins threads started meanwhile to the loop's core.
    pub fn own(&self) -> Result<Option<Stay>, BenchError> {
        Ok(self.forwarding.map(|core| Stay::on(&[core])).transpose()?)
    }

    /// Measures through a pipe up with `queue`.
    pub(super) fn through<T>(
        &self,
        network: Network,
        up: PipeParams,
        queue: &'static str,
        spin: Spin,
        work: impl FnOnce(&Network) -> Result<T, BenchError>,
    ) -> Result<(T, LoopReport), BenchError> {
        through(network, up, queue, spin, self.forwarding, |network| {
            let _stay = self.hosts()?;
            work(network)
        })
    }
}

/// Measures through a pipe up with `queue`. The loop has a core of its own or runs anywhere.
pub(super) fn through<T>(
    network: Network,
    up: PipeParams,
    queue: &'static str,
    spin: Spin,
    core: Option<usize>,
    work: impl FnOnce(&Network) -> Result<T, BenchError>,
) -> Result<(T, LoopReport), BenchError> {
    let clock = Clock::start();
    let ports = packet_ports(&network, true, Some(clock))?;
    let pipes = Pipes {
        up,
        queue,
        exits: [1, 0],
        spin,
        real_time: true,
        core,
    };
    let running = Loop::start(pipes, ports, Pool::new(POOL)?, clock)?;
    let result = work(&network);
    let report = running.finish();
    Ok((result?, report))
}

/// The ways of meeting deadlines.
pub const SPINS: [(Spin, &str); 3] = [
    (Spin::None, "none"),
    (Spin::Adaptive, "adaptive"),
    (Spin::Always, "always"),
];
