//! The network of a configuration, at its start.

use crate::calendar::{Calendar, CalendarEvent};
use crate::config::Config;
use crate::error::ConfigError;
use crate::network::{FlowState, Network, Path, kind, mix};
use crate::observe::FlowTotals;
use crate::packets::Packets;
use crate::stage::Stage;
use sluice_core::{Rng, Span, Time, Wake};
use std::collections::BTreeMap;
use std::net::IpAddr;

impl Network {
    /// Creates the network at its start; `config` has been checked.
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
        let root = Rng::from_seed(config.seed);
        let mut calendar = Calendar::new();
        let mut stages = Vec::with_capacity(config.links.len() + config.routers.len());
        for (id, link) in config.links.iter().enumerate() {
            stages.push(Stage::link(id, link, &root.fork(id as u64))?);
        }
        for (number, router) in config.routers.iter().enumerate() {
            let rng = root.fork(stages.len() as u64);
            stages.push(Stage::router(number, router, &rng)?);
        }
        let draws = (0..stages.len()).map(|id| root.fork(id as u64)).collect();
        let event = |kind: u8, index: usize| CalendarEvent {
            kind,
            index: index as u32,
        };
        for (id, stage) in stages.iter().enumerate() {
            if let Some(at) = stage.next_change() {
                calendar.push(at, event(kind::CHANGE, id));
            }
        }
        let mut flows = Vec::with_capacity(config.flows.len());
        let mut access_delays = Vec::with_capacity(config.flows.len());
        let mut path_of = Vec::with_capacity(config.flows.len());
        let mut paths = BTreeMap::new();
        for (id, flow) in config.flows.iter().enumerate() {
            calendar.push(flow.start, event(kind::START, id));
            flows.push(FlowState {
                addresses: flow.addresses,
                server_port: flow.server_port,
                first_port: FlowState::first_port(id, config.flows.len()),
                is_reversed: flow.route.is_reversed,
                protocol: flow.traffic.protocol(),
                rng: root.fork((1 << 32) + id as u64),
                totals: FlowTotals::default(),
                is_stopped: false,
                is_shaped: false,
                connects: 0,
                open: Vec::new(),
            });
            access_delays.push([flow.route.backward_delay, flow.route.forward_delay]);
            let path = Path {
                links: [flow.route.backward.clone(), flow.route.forward.clone()],
                hosts: (hash(flow.addresses.0), hash(flow.addresses.1)),
                class: flow.class,
                dscp: flow.dscp,
            };
            let next = paths.len() as u32;
            path_of.push(*paths.entry(path).or_insert(next));
            if let Some(at) = flow.stop {
                calendar.push(at, event(kind::STOP, id));
            }
        }
        if let Some(interval) = config.sample_interval {
            calendar.push(config.samples_from + interval, event(kind::SAMPLE, 0));
        }
        if access_delays
            .iter()
            .all(|delays| *delays == [Span::ZERO; 2])
        {
            access_delays.clear();
        }
        Ok(Network {
            now: Time::ZERO,
            calendar,
            packets: Packets::default(),
            wakes: stages
                .iter()
                .map(|stage| match stage.next_wake() {
                    Wake::At(at) => at,
                    Wake::Now => Time::ZERO,
                    Wake::OnEnqueue => Time::MAX,
                })
                .collect(),
            stages,
            draws,
            flows,
            ready_at: vec![[Time::ZERO; 2]; config.flows.len()],
            access_delays,
            path_of,
            paths: in_order(paths),
            // Growing would copy all connections: their alignment does not allow them to be remapped.
            connections: Vec::with_capacity(config.flows.len()),
            free_connections: Vec::new(),
            jitter: config.jitter,
            stalls: (config.stalls.share.as_fixed(32), config.stalls.mean),
            jitter_rng: root.fork(u64::MAX - 1),
            frame_overhead: config.frame_overhead,
            hash_key: root.fork(u64::MAX).next_u64(),
            drops: vec![0; config.flows.len()],
            leaving: [u32::MAX; 2],
            departures: Vec::new(),
            arrivals: Vec::new(),
        })
    }
}

/// The keys in the order of their numbers.
fn in_order(numbered: BTreeMap<Path, u32>) -> Vec<Path> {
    let mut paths: Vec<(u32, Path)> = numbered.into_iter().map(|(path, n)| (n, path)).collect();
    paths.sort_by_key(|(number, _)| *number);
    paths.into_iter().map(|(_, path)| path).collect()
}

/// The number of a host in packets.
fn hash(address: IpAddr) -> u32 {
    let bits = match address {
        IpAddr::V4(v4) => u128::from(u32::from(v4)),
        IpAddr::V6(v6) => u128::from(v6),
    };
    mix((bits >> 64) as u64 ^ mix(bits as u64)) as u32
}
