//! Converts a scenario to the configuration of a simulation.
//!
//! Queues and their timers exist for [`Scenario::lead`] before the run starts, as they do on a real
//! router. So the simulation's time is that of the run plus the lead.

use std::net::IpAddr;

use sluice_core::{Span, Time};
use sluice_sim::{Config, ConfigError, Link, LinkId, Route, Router, Stalls};

use super::SimError;
use crate::flow;
use sluice_scenario::{
    self as scenario, Direction, FlowInstance, Hosts, Pipe, PipeId, Rules, Scenario,
};

/// Returns the simulation's link for a pipe.
pub(super) const fn link_of(pipe: PipeId) -> LinkId {
    let backwards = match pipe.direction() {
        Direction::Up => 0,
        Direction::Down => 1,
    };
    pipe.hop() * 2 + backwards
}

/// Returns the pipe for a link of the simulation.
pub(super) const fn pipe_of(link: LinkId) -> PipeId {
    let direction = if link.is_multiple_of(2) {
        Direction::Up
    } else {
        Direction::Down
    };
    PipeId::new(direction, link / 2)
}

pub(super) fn config(scenario: &Scenario) -> Result<Config, SimError> {
    let flows = scenario
        .instances()
        .map(|instance| flow_of(scenario, &instance))
        .collect::<Result<_, _>>()?;
    let links = scenario.pipes().map(|(_, pipe)| link(pipe, scenario.lead));
    let (links, routers) = match &scenario.rules {
        Some(rules) => (Vec::new(), vec![router(rules, scenario.seed)]),
        None => (links.collect::<Result<_, _>>()?, Vec::new()),
    };
    Ok(Config {
        duration: scenario.lead.saturating_add(scenario.duration),
        seed: scenario.seed,
        links,
        routers,
        flows,
        jitter: scenario.hosts.jitter,
        stalls: Stalls {
            share: scenario.hosts.stall_share,
            mean: scenario.hosts.stall,
        },
        samples_from: Time::ZERO + scenario.lead,
        sample_interval: Some(scenario.measure.interval),
        // The link counts IP packets, as in a live run.
        frame_overhead: 0,
    })
}

/// Returns the link for a pipe. All its changes are later by `lead`.
fn link(pipe: &Pipe, lead: Span) -> Result<Link, ConfigError> {
    let later = pipe.delay.steps().iter().skip(1);
    let mut files = pipe.files();
    files.rate = files.rate.map(|rate| rate.later(lead));
    Ok(Link {
        params: pipe.params(),
        files,
        queue: pipe.queue.0.clone(),
        delays: later
            .map(|(at, delay)| (Time::ZERO + lead + *at, *delay))
            .collect(),
    })
}

fn router(rules: &Rules, seed: u64) -> Router {
    let mut router = Router {
        interfaces: Rules::INTERFACES.map(str::to_owned),
        commands: rules.text.clone(),
        folder: rules.folder.clone(),
        ..Router::default()
    };
    router.settings.seed = seed;
    router
}

/// Returns the route of a flow whose client is at the start of `direction`.
fn route(scenario: &Scenario, flow: &scenario::Flow, direction: Direction) -> Route {
    let extra = scenario.extra_rtt(flow);
    let half = Span::from_ns(extra.as_ns() / 2);
    let mut route = Route {
        forward_delay: half,
        backward_delay: extra.saturating_sub(half),
        is_reversed: direction == Direction::Down,
        ..Route::default()
    };
    if scenario.rules.is_some() {
        // The router's number follows those of the links; there are no links.
        route.forward = vec![0];
        route.backward = vec![0];
        return route;
    }
    let links = |direction, hops: &mut dyn Iterator<Item = usize>| -> Vec<LinkId> {
        hops.map(|hop| link_of(PipeId::new(direction, hop)))
            .collect()
    };
    let hops = scenario.hops_of(flow);
    let up = links(Direction::Up, &mut hops.clone());
    let down = links(Direction::Down, &mut hops.rev());
    (route.forward, route.backward) = match direction {
        Direction::Up => (up, down),
        Direction::Down => (down, up),
    };
    route
}

/// The server's port of the first flow, that of iperf, and the number of ports from there up to the
/// dynamic ones.
const FIRST_SERVER_PORT: u16 = 5001;
const SERVER_PORTS: u32 = 49_152 - FIRST_SERVER_PORT as u32;

fn flow_of(scenario: &Scenario, instance: &FlowInstance<'_>) -> Result<sluice_sim::Flow, SimError> {
    let flow = instance.flow;
    let form = flow::of(&flow.kind);
    let traffic = form.traffic(instance)?;
    // Every flow has its own route up, starting at its client.
    let client = form.client(flow.direction);
    let up = IpAddr::V4(Hosts::address(Direction::Up, flow.host_up));
    let down = IpAddr::V4(Hosts::address(Direction::Down, flow.host_down));
    // The addresses of live hosts, for rules and for fairness between hosts.
    let addresses = match client {
        Direction::Up => (up, down),
        Direction::Down => (down, up),
    };
    Ok(sluice_sim::Flow {
        start: Time::ZERO + scenario.lead + instance.start,
        stop: Some(Time::ZERO + scenario.lead + instance.stop),
        dscp: flow.kind.dscp().value(),
        class: flow.class as u32,
        addresses,
        // As in a live run, each flow has a server of its own.
        server_port: FIRST_SERVER_PORT + (instance.id % SERVER_PORTS) as u16,
        ..sluice_sim::Flow::new(traffic, route(scenario, flow, client))
    })
}
