//! From a scenario to the configuration of a simulation.

use std::net::IpAddr;

use sluice_core::param::Ratio;
use sluice_core::traffic::{ObjectSize as Size, Spacing};
use sluice_core::{Ecn, Span, Time};
use sluice_sim::{
    Config, ConfigError, Link, LinkId, Listed, ListedDatagram, Ping, Route, Router, Rr, Side,
    Stalls, Tcp, Traffic, Udp, Web,
};
use sluice_tcp::{self as tcp, EcnMode, cc};

use super::SimError;
use sluice_scenario::{
    self as scenario, Direction, FlowInstance, FlowKind, ObjectSize, Pipe, PipeId, Protocol, Rules,
    Scenario, TcpEcn, Voip, Word,
};

/// The link of the simulation that a pipe is.
pub(super) const fn link_of(pipe: PipeId) -> LinkId {
    let backwards = match pipe.direction() {
        Direction::Up => 0,
        Direction::Down => 1,
    };
    pipe.hop() * 2 + backwards
}

/// The pipe that a link of the simulation is.
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
        .map(|instance| flow(scenario, &instance))
        .collect::<Result<_, _>>()?;
    let links = scenario.pipes().map(|(_, pipe)| link(pipe));
    let (links, routers) = match &scenario.rules {
        Some(rules) => (Vec::new(), vec![router(rules, scenario.seed)]),
        None => (links.collect::<Result<_, _>>()?, Vec::new()),
    };
    Ok(Config {
        duration: scenario.duration,
        seed: scenario.seed,
        links,
        routers,
        flows,
        jitter: scenario.hosts.jitter,
        stalls: Stalls {
            share: scenario.hosts.stall_share,
            mean: scenario.hosts.stall,
        },
        sample_interval: Some(scenario.measure.interval),
        // The link counts IP packets, as the live one does.
        frame_overhead: 0,
    })
}

fn link(pipe: &Pipe) -> Result<Link, ConfigError> {
    let later = pipe.delay.steps().iter().skip(1);
    Ok(Link {
        params: pipe.params(),
        files: pipe.files(),
        queue: pipe.queue.0.clone(),
        delays: later
            .map(|(at, delay)| (Time::ZERO + *at, *delay))
            .collect(),
    })
}

fn router(rules: &Rules, seed: u64) -> Router {
    let mut router = Router {
        interfaces: Rules::INTERFACES.map(str::to_owned),
        commands: rules.text.clone(),
        ..Router::default()
    };
    router.settings.seed = seed;
    router
}

/// The way of a flow whose client is at the start of `direction`.
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
        // The router is numbered after the links, of which there are none.
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

fn flow(scenario: &Scenario, instance: &FlowInstance<'_>) -> Result<sluice_sim::Flow, SimError> {
    let flow = instance.flow;
    let tcp = |name: &Word, ecn| tcp_config(instance, name, ecn);
    // The client is where the payload comes from, so that every flow goes up on its own route; the
    // client of web pages is where they go.
    let mut client = flow.direction;
    let (traffic, dscp): (Traffic, _) = match &flow.kind {
        FlowKind::Tcp(kind) => {
            let transfer = Tcp {
                config: tcp(&kind.cc, kind.ecn)?,
                bytes: kind.bytes.map(|bytes| bytes.as_u64()),
                repeat: kind.pause,
                ..Tcp::default()
            };
            (transfer.into(), kind.dscp)
        }
        FlowKind::Udp(kind) => {
            let mut udp = Udp::constant(kind.rate, kind.size as u32);
            let bursts = (kind.on.unwrap_or_default(), kind.off.unwrap_or_default());
            udp.spacing = match (kind.spacing, bursts) {
                (scenario::Spacing::Constant, _) => Spacing::Constant,
                (scenario::Spacing::Poisson, _) => Spacing::Poisson,
                (scenario::Spacing::OnOff, (on, off)) => Spacing::OnOff { on, off },
                (scenario::Spacing::RandomOnOff, (on, off)) => Spacing::RandomOnOff { on, off },
            };
            udp.ecn = if kind.ect { Ecn::Ect0 } else { Ecn::NotEct };
            (udp.into(), kind.dscp)
        }
        FlowKind::Voip(kind) => {
            let udp = Udp::constant(Voip::rate(), Voip::SIZE as u32);
            (udp.into(), kind.dscp)
        }
        FlowKind::Pcap(kind) => {
            let listed = kind.file.flow(instance.number).iter();
            let listed = listed.map(|packet| ListedDatagram {
                after: packet.after,
                payload: u32::from(packet.payload),
                ecn: Ecn::from_bits(packet.ecn),
            });
            let listed = Listed {
                datagrams: listed.collect(),
                sender: Side::Client,
            };
            (listed.into(), kind.dscp)
        }
        FlowKind::Ping(kind) => {
            let ping = Ping {
                interval: kind.interval,
                payload: kind.size as u32,
                count: None,
                is_udp: kind.protocol == Protocol::Udp,
            };
            (ping.into(), kind.dscp)
        }
        FlowKind::Rr(kind) => {
            let exchange = Rr {
                config: tcp::Config {
                    // TCP_NODELAY, as programs of this kind set.
                    nagle: false,
                    ..tcp(&kind.cc, kind.ecn)?
                },
                request: kind.request.as_u64(),
                response: kind.response.as_u64(),
                think: kind.think,
            };
            (exchange.into(), kind.dscp)
        }
        FlowKind::Web(kind) => {
            client = match flow.direction {
                Direction::Up => Direction::Down,
                Direction::Down => Direction::Up,
            };
            let web = Web {
                config: tcp(&kind.cc, kind.ecn)?,
                interval: kind.interval,
                objects: kind.objects as u32,
                size: size(kind.size),
                request: kind.request.as_u64(),
            };
            (web.into(), kind.dscp)
        }
    };
    let addresses = match client {
        Direction::Up => (H2, H3),
        Direction::Down => (H3, H2),
    };
    Ok(sluice_sim::Flow {
        start: Time::ZERO + instance.start,
        stop: Some(Time::ZERO + instance.stop),
        dscp: dscp.value(),
        class: flow.class as u32,
        addresses,
        ..sluice_sim::Flow::new(traffic, route(scenario, flow, client))
    })
}

fn tcp_config(
    instance: &FlowInstance<'_>,
    name: &Word,
    ecn: TcpEcn,
) -> Result<tcp::Config, SimError> {
    let found = cc::find(&name.0).ok_or_else(|| SimError::CongestionControl {
        place: name.place().unwrap_or("the default of `cc`").to_owned(),
        flow: instance.name.clone(),
        name: name.0.clone(),
    })?;
    let mut config = Tcp::bulk(found).config;
    if let Some(segments) = instance.flow.kind.initial_window() {
        config.initial_window = segments;
    }
    if let Some(settings) = &instance.flow.tcp {
        config.growth = match settings.growth {
            scenario::Growth::Segments => tcp::Growth::Segments,
            scenario::Growth::Bytes => tcp::Growth::Bytes,
        };
        config.abe = settings.abe;
        config.slow_start = settings
            .slow_start
            .map(tcp::SlowStart::from)
            .unwrap_or_default();
        config.pacing = match settings.pacing {
            None => tcp::Pacing::Auto,
            Some(false) => tcp::Pacing::Off,
            Some(true) => tcp::Pacing::On,
        };
        config.rto_floor = settings.rto_floor;
    }
    match ecn {
        TcpEcn::Off => {}
        TcpEcn::On if config.ecn == EcnMode::Off => config.ecn = EcnMode::Classic,
        TcpEcn::On => {}
        TcpEcn::Accurate => config.ecn = EcnMode::Accurate,
    }
    Ok(config)
}

fn size(size: ObjectSize) -> Size {
    match size {
        ObjectSize::Fixed(bytes) => Size::Fixed(bytes.as_u64().max(1)),
        ObjectSize::Exponential { mean } => Size::Exponential(mean.as_u64()),
        ObjectSize::Pareto { min, max, shape } => Size::Pareto {
            min: min.as_u64(),
            shape_milli: u32::try_from(shape.as_billionths() / (Ratio::ONE.as_billionths() / 1000))
                .unwrap_or(u32::MAX),
            max: max.as_u64(),
        },
    }
}

/// The addresses of the live hosts, for rules and for fairness among hosts.
const H2: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 23, 2));
const H3: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 23, 3));
