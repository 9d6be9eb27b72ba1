//! The simulated backend: the same pipes and queues in virtual time, with Sluice's own TCP.
//!
//! A scenario becomes the configuration of a simulation, and what the simulation tells becomes rows
//! of the recording: the same tables as a live run's, but for the releases, since nothing is late.

use sluice_core::record::Tracer;
use sluice_core::{DropReason, Event, Packet, Rate, Span, Time};
use sluice_net::traffic::Stop;
use sluice_sim::{
    Config, ConfigError, Datagram, Echo, FlowId, Link, LinkId, LinkSample, Observer, Ping, Route,
    Simulation, Tcp, TcpSample, Traffic, Udp,
};
use sluice_tcp::{EcnMode, cc};

use crate::recording::{FlowSample, PingSample, QueueSample, RecordError, RunWriter};
use crate::scenario::{Direction, FlowInstance, FlowKind, Pipe, Scenario};

/// Why a scenario cannot be simulated.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// The simulator has no such congestion control.
    #[error(
        "flow `{flow}`: the simulator has no congestion control `{name}`; it has {}",
        known()
    )]
    CongestionControl {
        /// Which flow.
        flow: String,
        /// What was asked for.
        name: String,
    },
    /// The simulator refuses the configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The recording cannot be written.
    #[error(transparent)]
    Record(#[from] RecordError),
}

fn known() -> String {
    let names: Vec<&str> = cc::REGISTRY.iter().map(|entry| entry.name).collect();
    names.join(", ")
}

/// Says what would keep `scenario` from being simulated.
///
/// # Errors
/// [`SimError`], by name.
pub fn check(scenario: &Scenario) -> Result<(), SimError> {
    Simulation::new(&config(scenario)?)?;
    Ok(())
}

/// Simulates `scenario` to its end, or until `interrupt`; gives when it ended.
///
/// # Errors
/// [`SimError`].
pub fn run(
    scenario: &Scenario,
    writer: &mut RunWriter,
    interrupt: &Stop,
    progress: &mut dyn FnMut(Span),
) -> Result<Time, SimError> {
    let mut simulation = Simulation::new(&config(scenario)?)?;
    let mut recorder = Recorder::new(scenario, writer);
    let end = Time::ZERO + scenario.duration;
    while !interrupt.is_stopped() {
        let is_over = simulation.run_until(simulation.now() + STRETCH, &mut recorder);
        recorder.flush();
        progress(simulation.now().since(Time::ZERO));
        if is_over || recorder.failed.is_some() {
            break;
        }
    }
    let now = simulation.now().min(end);
    recorder.finish(scenario, now)?;
    Ok(now)
}

/// Virtual time between two looks at `interrupt`.
const STRETCH: Span = Span::from_ms(200);

fn config(scenario: &Scenario) -> Result<Config, SimError> {
    let flows = scenario
        .instances()
        .map(|instance| flow(&instance))
        .collect::<Result<_, _>>()?;
    Ok(Config {
        duration: scenario.duration,
        seed: scenario.seed,
        links: vec![link(&scenario.link.up)?, link(&scenario.link.down)?],
        flows,
        sample_interval: Some(scenario.measure.interval),
        // The link counts IP packets, as the live one does.
        frame_overhead: 0,
        ..Config::default()
    })
}

fn link(pipe: &Pipe) -> Result<Link, ConfigError> {
    let steps: Vec<(Time, Rate)> = pipe
        .rate
        .steps()
        .iter()
        .map(|(at, rate)| (Time::ZERO + *at, *rate))
        .collect();
    let mut link = Link::new(pipe.rate.at(Span::ZERO), pipe.delay, pipe.queue.0.clone());
    link.params.pipe.burst = pipe.burst;
    if steps.len() > 1 {
        link = link.with_rates(&steps)?;
    }
    Ok(link)
}

fn flow(instance: &FlowInstance<'_>) -> Result<sluice_sim::Flow, SimError> {
    let flow = instance.flow;
    // The client is where the payload comes from, so that every flow goes up on its own route.
    let (forward, backward) = match flow.direction {
        Direction::Up => (UP, DOWN),
        Direction::Down => (DOWN, UP),
    };
    let route = Route {
        forward: vec![forward],
        backward: vec![backward],
        ..Route::default()
    };
    let (traffic, dscp) = match &flow.kind {
        FlowKind::Tcp(kind) => {
            let found = cc::find(&kind.cc.0).ok_or_else(|| SimError::CongestionControl {
                flow: instance.name.clone(),
                name: kind.cc.0.clone(),
            })?;
            let mut tcp = Tcp::bulk(found);
            if kind.ecn && tcp.config.ecn == EcnMode::Off {
                tcp.config.ecn = EcnMode::Classic;
            }
            tcp.bytes = kind.bytes.map(|bytes| bytes.as_u64());
            (Traffic::Tcp(Box::new(tcp)), kind.dscp)
        }
        FlowKind::Udp(kind) => {
            let udp = Udp::constant(kind.rate, kind.size as u32);
            (Traffic::Udp(udp), kind.dscp)
        }
        FlowKind::Ping(kind) => {
            let ping = Ping {
                interval: kind.interval,
                payload: kind.size as u32,
                count: None,
            };
            (Traffic::Ping(ping), kind.dscp)
        }
    };
    Ok(sluice_sim::Flow {
        start: Time::ZERO + flow.start,
        stop: Some(Time::ZERO + flow.stop),
        dscp: dscp.value(),
        ..sluice_sim::Flow::new(traffic, route)
    })
}

const UP: LinkId = 0;
const DOWN: LinkId = 1;

const fn direction(link: LinkId) -> Direction {
    match link {
        UP => Direction::Up,
        _ => Direction::Down,
    }
}

/// Writes what the simulation tells; after the first failure nothing more.
struct Recorder<'a> {
    writer: &'a mut RunWriter,
    failed: Option<RecordError>,
    tracers: [Tracer; 2],
    /// Per flow.
    received: Vec<u64>,
    next_sample: Vec<Time>,
    interval: Span,
    payload: Vec<u64>,
    echoes: Vec<Vec<Echo>>,
}

impl<'a> Recorder<'a> {
    fn new(scenario: &Scenario, writer: &'a mut RunWriter) -> Self {
        let payload = |instance: FlowInstance<'_>| match &instance.flow.kind {
            FlowKind::Udp(udp) => udp.size,
            FlowKind::Tcp(_) | FlowKind::Ping(_) => 0,
        };
        let flows = scenario.instances().count();
        Recorder {
            writer,
            failed: None,
            tracers: [Tracer::new(), Tracer::new()],
            received: vec![0; flows],
            next_sample: vec![Time::ZERO; flows],
            interval: scenario.measure.interval,
            payload: scenario.instances().map(payload).collect(),
            echoes: vec![Vec::new(); flows],
        }
    }

    fn write(&mut self, write: impl FnOnce(&mut RunWriter) -> Result<(), RecordError>) {
        if self.failed.is_none()
            && let Err(error) = write(self.writer)
        {
            self.failed = Some(error);
        }
    }

    /// Writes the packets whose way is over.
    fn flush(&mut self) {
        for link in [UP, DOWN] {
            let rows: Vec<_> = self.tracers[link].take_settled().collect();
            self.write(|writer| {
                rows.iter()
                    .try_for_each(|row| writer.packet(direction(link), row))
            });
        }
    }

    fn finish(mut self, scenario: &Scenario, now: Time) -> Result<(), RecordError> {
        self.flush();
        for (link, tracer) in self.tracers.into_iter().enumerate() {
            for row in tracer.into_rows() {
                self.writer.packet(direction(link), &row)?;
            }
        }
        for instance in scenario.instances() {
            let id = instance.id as usize;
            match &instance.flow.kind {
                FlowKind::Ping(ping) => {
                    write_pings(self.writer, &instance, ping.interval, &self.echoes[id], now)?;
                }
                FlowKind::Udp(udp) => {
                    let end = now.min(Time::ZERO + instance.flow.stop);
                    let life = end.since(Time::ZERO + instance.flow.start);
                    // Payload, 8 bytes of UDP and 20 of IPv4 header.
                    let sent = life
                        .as_ns()
                        .div_ceil(udp.rate.transmission(udp.size + 28).as_ns().max(1));
                    let received = self.received[id];
                    self.writer.flow_sample(&FlowSample {
                        sent_packets: Some(sent),
                        received_packets: Some(received),
                        received_bytes: Some(received * udp.size),
                        ..FlowSample::empty(now, instance.id)
                    })?;
                }
                FlowKind::Tcp(_) => {}
            }
        }
        self.failed.map_or(Ok(()), Err)
    }
}

/// One row per probe that was due; those without an echo by `now` are lost.
fn write_pings(
    writer: &mut RunWriter,
    instance: &FlowInstance<'_>,
    interval: Span,
    echoes: &[Echo],
    now: Time,
) -> Result<(), RecordError> {
    let flow = instance.flow;
    let mut echoes = echoes.to_vec();
    echoes.sort_by_key(|echo| echo.sequence);
    let mut echoes = echoes.into_iter().peekable();
    let mut due = Time::ZERO + flow.start;
    let end = now.min(Time::ZERO + flow.stop);
    for seq in 0.. {
        if due >= end {
            break;
        }
        let echo = echoes.next_if(|echo| echo.sequence == seq);
        let forward = echo.map(|echo| echo.forward);
        let backward = echo.map(|echo| echo.round_trip.saturating_sub(echo.forward));
        let (up, down) = match flow.direction {
            Direction::Up => (forward, backward),
            Direction::Down => (backward, forward),
        };
        writer.ping(&PingSample {
            time: echo.map_or(due, |echo| echo.sent),
            flow: instance.id,
            seq,
            rtt: echo.map(|echo| echo.round_trip),
            up,
            down,
            is_lost: echo.is_none(),
        })?;
        due += interval;
    }
    Ok(())
}

impl Observer for Recorder<'_> {
    fn hears_packets(&self) -> bool {
        true
    }

    fn on_arrive(&mut self, link: LinkId, now: Time, packet: &Packet, flow: FlowId) {
        // The row bears the number of the flow, not its hash.
        let mut row = Packet::new(packet.slot, packet.len);
        row.arrival = now;
        row.segments = packet.segments;
        row.ecn = packet.ecn;
        row.class = packet.class;
        row.flow = flow as u32;
        self.tracers[link].arrive(&row);
    }

    fn on_event(&mut self, link: LinkId, now: Time, event: &Event<'_>) {
        self.tracers[link].on_event(now, event);
    }

    fn on_drop(
        &mut self,
        link: LinkId,
        now: Time,
        packet: &Packet,
        _flow: FlowId,
        reason: DropReason,
    ) {
        self.tracers[link].discard(now, packet, reason);
    }

    fn on_tcp(&mut self, flow: FlowId, sample: &TcpSample) {
        let sender = &sample.sender;
        let row = FlowSample {
            received_bytes: Some(sample.received),
            cwnd: sender.window.cwnd.checked_div(sender.mss),
            ssthresh: sender.window.ssthresh.checked_div(sender.mss),
            mss: Some(sender.mss),
            srtt: sender.srtt,
            min_rtt: sender.min_rtt,
            retransmits: Some(sample.counters.retransmits),
            delivery_rate: sender.delivery_rate.map(Rate::as_bps),
            ..FlowSample::empty(sample.time, flow as u32)
        };
        self.write(|writer| writer.flow_sample(&row));
    }

    fn on_link(&mut self, link: LinkId, sample: &LinkSample<'_>) {
        let pipe = direction(link);
        let mut rows: Vec<QueueSample> =
            QueueSample::backlog(sample.time, pipe, sample.backlog).into();
        sample.queue.state(&mut |queue, name, value| {
            rows.push(QueueSample::state(sample.time, pipe, queue, name, value));
        });
        self.write(|writer| rows.iter().try_for_each(|row| writer.queue_sample(row)));
    }

    fn on_datagram(&mut self, flow: FlowId, arrival: &Datagram) {
        self.received[flow] += 1;
        if arrival.received < self.next_sample[flow] {
            return;
        }
        self.next_sample[flow] = arrival.received + self.interval;
        let received = self.received[flow];
        let row = FlowSample {
            // All datagrams up to this one had been sent by then, at least.
            sent_packets: Some(arrival.sequence + 1),
            received_packets: Some(received),
            received_bytes: Some(received * self.payload[flow]),
            ..FlowSample::empty(arrival.received, flow as u32)
        };
        self.write(|writer| writer.flow_sample(&row));
    }

    fn on_echo(&mut self, flow: FlowId, echo: &Echo) {
        self.echoes[flow].push(*echo);
    }
}
