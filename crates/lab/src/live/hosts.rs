//! The traffic of a live run: each flow of the scenario as sources on the hosts.

use sluice_core::{Stop, Time};
use sluice_load::ping::{self, Ping, PingReport};
use sluice_load::rr::{RrFlow, RrReport};
use sluice_load::tcp::{Ecn, TcpFlow, TcpReport};
use sluice_load::udp::{self, UdpFlow, UdpReport};
use sluice_load::web::{self, WebFlow, WebReport};
use sluice_load::{Identity, Running, TrafficError};
use sluice_net::Clock;

use super::topology::{Host, Topology};
use sluice_scenario::{
    Direction, Flow, FlowInstance, FlowKind, ObjectSize, Protocol, Scenario, Spacing, TcpEcn, Voip,
};

/// What a flow measured.
#[derive(Debug)]
pub enum FlowReport {
    /// A TCP transfer, or several one after the other.
    Tcp(TcpReport),
    /// UDP that nothing slows down, or a call.
    Udp(UdpReport),
    /// Probes.
    Ping(PingReport),
    /// Requests and responses.
    Rr(RrReport),
    /// Pages.
    Web(WebReport),
}

/// The congestion control that a flow asks the kernel for.
pub(super) fn congestion_control(flow: &Flow) -> Option<&str> {
    flow.kind.tcp().map(|(cc, _)| cc.0.as_str())
}

/// A flow under way.
pub(super) enum Source {
    Tcp(Running<TcpReport>),
    Udp(Running<UdpReport>),
    Ping(Running<PingReport>),
    Rr(Running<RrReport>),
    Web(Running<WebReport>),
}

impl Source {
    /// Starts a flow on the addresses of its way.
    pub(super) fn start(
        instance: &FlowInstance<'_>,
        scenario: &Scenario,
        topology: &Topology,
        way: u8,
        clock: &Clock,
        stop: &Stop,
    ) -> Result<Source, TrafficError> {
        let flow = instance.flow;
        let (from, to): (&Host, &Host) = match flow.direction {
            Direction::Up => (&topology.h2, &topology.h3),
            Direction::Down => (&topology.h3, &topology.h2),
        };
        let (source, destination) = (from.address(way), to.address(way));
        let (start, end) = (Time::ZERO + instance.start, Time::ZERO + instance.stop);
        let (from, to) = (&from.namespace, &to.namespace);
        // Flows draw apart from one another and from the router, whose streams are numbered from 1.
        let seed = scenario.seed.wrapping_add(u64::from(instance.id) << 32);
        match &flow.kind {
            FlowKind::Tcp(kind) => {
                let mut tcp = TcpFlow::new(source, destination, start);
                tcp.congestion_control = Some(kind.cc.0.clone());
                tcp.ecn = ecn(kind.ecn);
                tcp.dscp = kind.dscp.value();
                tcp.stop = Some(end);
                tcp.info_interval = scenario.measure.interval;
                tcp.bytes = kind.bytes.map(|bytes| bytes.as_u64());
                tcp.repeat = kind.pause;
                tcp.start(from, to, clock, stop).map(Source::Tcp)
            }
            FlowKind::Udp(kind) => {
                let size = kind.size as usize;
                let mut udp = UdpFlow::new(source, destination, kind.rate, size, start);
                let bursts = (kind.on.unwrap_or_default(), kind.off.unwrap_or_default());
                udp.spacing = match (kind.spacing, bursts) {
                    (Spacing::Constant, _) => udp::Spacing::Constant,
                    (Spacing::Poisson, _) => udp::Spacing::Poisson,
                    (Spacing::OnOff, (on, off)) => udp::Spacing::OnOff { on, off },
                    (Spacing::RandomOnOff, (on, off)) => udp::Spacing::RandomOnOff { on, off },
                };
                udp.seed = seed;
                udp.dscp = kind.dscp.value();
                udp.ecn = if kind.ect { ECT_0 } else { 0 };
                udp.stop = Some(end);
                udp.start(from, to, clock, stop).map(Source::Udp)
            }
            FlowKind::Voip(kind) => {
                let size = Voip::SIZE as usize;
                let mut udp = UdpFlow::new(source, destination, Voip::rate(), size, start);
                udp.dscp = kind.dscp.value();
                udp.stop = Some(end);
                udp.start(from, to, clock, stop).map(Source::Udp)
            }
            FlowKind::Pcap(kind) => {
                // Its packets say rate and size themselves.
                let (rate, size) = (Voip::rate(), udp::LEAST_PAYLOAD);
                let mut udp = UdpFlow::new(source, destination, rate, size, start);
                let listed = kind.file.flow(instance.number).iter();
                let listed = listed.map(|packet| udp::ListedPacket {
                    after: packet.after,
                    payload: packet.payload,
                    ecn: packet.ecn,
                });
                udp.listed = Some(listed.collect());
                udp.dscp = kind.dscp.value();
                udp.stop = Some(end);
                udp.start(from, to, clock, stop).map(Source::Udp)
            }
            FlowKind::Ping(kind) => {
                let mut ping = Ping::new(source, destination, kind.interval, start);
                ping.protocol = match kind.protocol {
                    Protocol::Icmp => ping::Protocol::Icmp,
                    Protocol::Udp => ping::Protocol::Udp,
                };
                ping.payload = kind.size as usize;
                ping.dscp = kind.dscp.value();
                ping.stop = Some(end);
                ping.start(from, to, clock, stop).map(Source::Ping)
            }
            FlowKind::Rr(kind) => {
                let rr = RrFlow {
                    source,
                    destination,
                    request: kind.request.as_u64(),
                    response: kind.response.as_u64(),
                    think: kind.think,
                    congestion_control: Some(kind.cc.0.clone()),
                    ecn: ecn(kind.ecn),
                    dscp: kind.dscp.value(),
                    start,
                    stop: Some(end),
                };
                rr.start(from, to, clock, stop).map(Source::Rr)
            }
            FlowKind::Web(kind) => {
                let web = WebFlow {
                    server: source,
                    client: destination,
                    interval: kind.interval,
                    objects: kind.objects as u32,
                    size: size(kind.size),
                    request: kind.request.as_u64(),
                    seed,
                    congestion_control: Some(kind.cc.0.clone()),
                    ecn: ecn(kind.ecn),
                    dscp: kind.dscp.value(),
                    start,
                    stop: Some(end),
                };
                web.start(from, to, clock, stop).map(Source::Web)
            }
        }
    }

    pub(super) fn identity(&self) -> Identity {
        match self {
            Source::Tcp(running) => running.identity(),
            Source::Udp(running) => running.identity(),
            Source::Ping(running) => running.identity(),
            Source::Rr(running) => running.identity(),
            Source::Web(running) => running.identity(),
        }
    }

    pub(super) fn is_finished(&self) -> bool {
        match self {
            Source::Tcp(running) => running.is_finished(),
            Source::Udp(running) => running.is_finished(),
            Source::Ping(running) => running.is_finished(),
            Source::Rr(running) => running.is_finished(),
            Source::Web(running) => running.is_finished(),
        }
    }

    pub(super) fn join(self) -> Result<FlowReport, TrafficError> {
        Ok(match self {
            Source::Tcp(running) => FlowReport::Tcp(running.join()?),
            Source::Udp(running) => FlowReport::Udp(running.join()?),
            Source::Ping(running) => FlowReport::Ping(running.join()?),
            Source::Rr(running) => FlowReport::Rr(running.join()?),
            Source::Web(running) => FlowReport::Web(running.join()?),
        })
    }
}

fn ecn(ecn: TcpEcn) -> Ecn {
    match ecn {
        TcpEcn::Off => Ecn::Off,
        TcpEcn::On => Ecn::On,
        TcpEcn::Accurate => Ecn::Accurate,
    }
}

fn size(size: ObjectSize) -> web::Size {
    match size {
        ObjectSize::Fixed(bytes) => web::Size::Fixed(bytes.as_u64()),
        ObjectSize::Exponential { mean } => web::Size::Exponential(mean.as_u64()),
        ObjectSize::Pareto { min, max, shape } => web::Size::Pareto {
            min: min.as_u64(),
            max: max.as_u64(),
            shape: shape.as_f64(),
        },
    }
}

/// RFC 3168 section 5.
const ECT_0: u8 = 2;
