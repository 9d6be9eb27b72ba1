//! Carrying out one variant of a scenario and recording it.
//!
//! The backend runs, its observations become rows of the recording as they come, and what flows
//! measured follows at the end. A run that is interrupted, or whose recording cannot be written any
//! more, ends early and is marked partial.

use std::path::Path;

use sluice_core::{Span, Stop, Time};
use sluice_load::ping::PingReport;
use sluice_load::rr::RrReport;
use sluice_load::tcp::TcpReport;
use sluice_load::udp::UdpReport;
use sluice_load::web::WebReport;

use crate::live::{self, FlowReport, Listener, LiveError, Observation};
use crate::simulated::{self, SimError};
use sluice_recording::metrics::measure;
use sluice_recording::{
    End, Environment, FlowSample, PingSample, QueueSample, ReadError, RecordError, Recording,
    RunWriter, Status, Transfer,
};
use sluice_scenario::metric::Summary;
use sluice_scenario::{
    Backend, Direction, FlowInstance, FlowKind, Payloads, Scenario, Variant, Voip,
};

/// Why a run gave no result.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The recording could not be begun or written.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The recording could not be read back.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The live backend.
    #[error(transparent)]
    Live(#[from] LiveError),
    /// The simulator.
    #[error(transparent)]
    Sim(#[from] SimError),
}

/// A run that has ended.
#[derive(Debug)]
pub struct Finished {
    /// What it wrote.
    pub recording: Recording,
    /// Its figures.
    pub summary: Summary,
    /// Whether it is an earlier run, of the same scenario by the same program.
    pub is_reused: bool,
}

impl Finished {
    /// Whether it was ended by request, before its time.
    pub fn is_interrupted(&self) -> bool {
        self.recording.run().status != Status::Complete
    }
}

/// Says what would keep `variant` from running on `backend`, without starting anything.
///
/// # Errors
/// A missing privilege or congestion control, by name.
pub fn check(variant: &Variant, backend: Backend) -> Result<(), RunError> {
    match backend {
        Backend::Live => live::check(&variant.scenario)?,
        Backend::Sim => simulated::check(&variant.scenario)?,
    }
    Ok(())
}

/// What carries a variant out.
#[derive(Clone, Copy, Debug)]
pub struct Carrier {
    /// The simulator or the kernel.
    pub backend: Backend,
    /// The core that the router of a live run stays on; the kernel chooses if there is none.
    pub core: Option<usize>,
}

impl From<Backend> for Carrier {
    fn from(backend: Backend) -> Carrier {
        Carrier {
            backend,
            core: None,
        }
    }
}

/// Carries `variant` out by `carrier` and records it in the folder `dir`.
///
/// # Errors
/// [`RunError`]. What was recorded until then is kept and marked partial.
pub fn run(
    variant: &Variant,
    carrier: impl Into<Carrier>,
    dir: &Path,
    started_at: String,
    interrupt: &Stop,
    progress: &mut dyn FnMut(Span),
) -> Result<Finished, RunError> {
    let carrier = carrier.into();
    let environment = Environment::here(carrier.backend, started_at);
    let writer = RunWriter::create(dir, variant, &environment)?;
    let scenario = &variant.scenario;
    let recording = match carrier.backend {
        Backend::Live => run_live(scenario, carrier.core, writer, interrupt, progress)?,
        Backend::Sim => run_simulated(scenario, writer, interrupt, progress)?,
    };
    let summary = measure(&recording)?;
    recording.store_summary(&summary)?;
    Ok(Finished {
        recording,
        summary,
        is_reused: false,
    })
}

fn run_simulated(
    scenario: &Scenario,
    mut writer: RunWriter,
    interrupt: &Stop,
    progress: &mut dyn FnMut(Span),
) -> Result<Recording, RunError> {
    let at = match simulated::run(scenario, &mut writer, interrupt, progress) {
        Ok(at) => at,
        Err(error) => {
            // The error of the run is the one to tell; the partial recording says it too.
            let _ = writer.finish(End::partial(Time::ZERO, error.to_string()));
            return Err(error.into());
        }
    };
    let end = if at < Time::ZERO + scenario.duration {
        End::partial(at, INTERRUPTED)
    } else {
        End::complete(at)
    };
    Ok(writer.finish(end)?)
}

fn run_live(
    scenario: &Scenario,
    core: Option<usize>,
    writer: RunWriter,
    interrupt: &Stop,
    progress: &mut dyn FnMut(Span),
) -> Result<Recording, RunError> {
    let mut recorder = Recorder {
        writer,
        failed: None,
        interrupt,
        progress,
    };
    let outcome = match live::run(scenario, core, interrupt, &mut recorder) {
        Ok(outcome) => outcome,
        Err(error) => {
            // The error of the run is the one to tell; the partial recording says it too.
            let _ = recorder
                .writer
                .finish(End::partial(Time::ZERO, error.to_string()));
            return Err(error.into());
        }
    };
    if let Some(error) = recorder.failed {
        return Err(error.into());
    }
    let mut writer = recorder.writer;
    for (instance, report) in scenario.instances().zip(&outcome.flows) {
        match report {
            FlowReport::Tcp(report) => write_tcp(&mut writer, instance.id, report)?,
            FlowReport::Udp(report) => match (&instance.flow.kind, instance.payloads()) {
                (FlowKind::Udp(_) | FlowKind::Pcap(_), Some(payloads)) => {
                    let interval = scenario.measure.interval;
                    write_udp(&mut writer, instance.id, report, &payloads, interval)?;
                }
                _ => write_call(&mut writer, &instance, report)?,
            },
            FlowReport::Rr(report) => write_exchanges(&mut writer, instance.id, report)?,
            FlowReport::Web(report) => write_pages(&mut writer, instance.id, report)?,
            FlowReport::Ping(report) => {
                write_pings(&mut writer, instance.id, report, instance.flow.direction)?;
            }
        }
    }
    let mut end = if outcome.is_interrupted {
        End::partial(outcome.end, INTERRUPTED)
    } else {
        End::complete(Time::ZERO + scenario.duration)
    };
    for lane in [outcome.router.up, outcome.router.down] {
        for (cause, frames) in lane.lost {
            *end.lost.entry(cause).or_default() += frames;
        }
    }
    Ok(writer.finish(end)?)
}

/// Why a run that the user ended is partial.
const INTERRUPTED: &str = "interrupted";

/// Writes what the router saw; the first failure ends the run.
struct Recorder<'a> {
    writer: RunWriter,
    failed: Option<RecordError>,
    interrupt: &'a Stop,
    progress: &'a mut dyn FnMut(Span),
}

impl Recorder<'_> {
    fn write(&mut self, observation: &Observation) -> Result<(), RecordError> {
        match observation {
            Observation::Packets(pipe, records) => {
                for record in records {
                    self.writer.packet(*pipe, record)?;
                }
            }
            Observation::Releases(releases) => {
                for release in releases {
                    self.writer.release(release)?;
                }
            }
            Observation::Arrivals(arrivals) => {
                for arrival in arrivals {
                    self.writer.arrival(arrival)?;
                }
            }
            Observation::Queue {
                pipe,
                at,
                backlog,
                state,
            } => {
                for sample in QueueSample::backlog(*at, *pipe, *backlog) {
                    self.writer.queue_sample(&sample)?;
                }
                for (queue, variable, value) in state {
                    let sample = QueueSample::state(*at, *pipe, *queue, variable, *value);
                    self.writer.queue_sample(&sample)?;
                }
            }
            Observation::Flow(..) => {}
        }
        Ok(())
    }
}

impl Listener for Recorder<'_> {
    fn observe(&mut self, observation: Observation) {
        if self.failed.is_none()
            && let Err(error) = self.write(&observation)
        {
            self.failed = Some(error);
            self.interrupt.stop();
        }
    }

    fn progress(&mut self, elapsed: Span) {
        (self.progress)(elapsed);
    }
}

fn write_tcp(writer: &mut RunWriter, flow: u32, report: &TcpReport) -> Result<(), RecordError> {
    write_transfers(writer, flow, &report.transfers)?;
    for arrived in &report.goodput {
        writer.flow_sample(&FlowSample {
            received_bytes: Some(arrived.bytes),
            ..FlowSample::empty(arrived.time, flow)
        })?;
    }
    for state in &report.info {
        writer.flow_sample(&FlowSample {
            cwnd: Some(u64::from(state.cwnd)),
            // Linux: TCP_INFINITE_SSTHRESH before the first reduction
            ssthresh: Some(u64::from(state.ssthresh)).filter(|ssthresh| *ssthresh < 0x7fff_ffff),
            mss: Some(u64::from(state.mss)),
            srtt: Some(state.srtt),
            min_rtt: Some(state.min_rtt),
            retransmits: Some(u64::from(state.retransmits)),
            delivery_rate: Some(state.delivery_rate_bps),
            ..FlowSample::empty(state.time, flow)
        })?;
    }
    Ok(())
}

/// Counts at the interval of the scenario, from the packets that arrived.
fn write_udp(
    writer: &mut RunWriter,
    flow: u32,
    report: &UdpReport,
    payloads: &Payloads,
    interval: Span,
) -> Result<(), RecordError> {
    let mut due = Time::ZERO;
    let mut sample = |time, sent: u64, received: u64, bytes: u64| {
        writer.flow_sample(&FlowSample {
            sent_packets: Some(sent),
            received_packets: Some(received),
            received_bytes: Some(bytes),
            ..FlowSample::empty(time, flow)
        })
    };
    let mut bytes = 0;
    for (received, packet) in (1..).zip(&report.samples) {
        bytes += payloads.of(packet.sequence);
        if let Some(at) = packet.received
            && at >= due
        {
            due = at + interval;
            // All packets up to this one had been sent by then, at least.
            sample(at, packet.sequence + 1, received, bytes)?;
        }
    }
    let last = report.samples.iter().rev().find_map(|s| s.received);
    let last = last.unwrap_or(Time::ZERO);
    sample(last, report.sent, report.received, bytes)
}

/// One row for each packet of a call, with its one-way delay.
fn write_call(
    writer: &mut RunWriter,
    instance: &FlowInstance<'_>,
    report: &UdpReport,
) -> Result<(), RecordError> {
    let flow = instance.id;
    let mut samples = report.samples.clone();
    samples.sort_by_key(|sample| sample.sequence);
    let mut samples = samples.into_iter().peekable();
    for seq in 0..report.sent {
        let here = samples.next_if(|sample| sample.sequence == seq);
        let due = Time::ZERO + instance.start + Span::from_ns(Voip::INTERVAL.as_ns() * seq);
        let delay = here.and_then(|sample| Some(sample.received?.since(sample.sent)));
        let (up, down) = match instance.flow.direction {
            Direction::Up => (delay, None),
            Direction::Down => (None, delay),
        };
        writer.ping(&PingSample {
            time: here.map_or(due, |sample| sample.sent),
            flow,
            seq,
            rtt: None,
            up,
            down,
            is_lost: here.is_none(),
        })?;
    }
    let last = report.samples.iter().filter_map(|s| s.received).max();
    writer.flow_sample(&FlowSample {
        received_bytes: Some(report.received * Voip::SIZE),
        ..FlowSample::empty(last.unwrap_or(Time::ZERO), flow)
    })
}

fn write_exchanges(
    writer: &mut RunWriter,
    flow: u32,
    report: &RrReport,
) -> Result<(), RecordError> {
    for (seq, exchange) in (0..).zip(&report.exchanges) {
        writer.ping(&PingSample {
            time: exchange.start,
            flow,
            seq,
            rtt: Some(exchange.took),
            up: None,
            down: None,
            is_lost: false,
        })?;
    }
    Ok(())
}

fn write_pages(writer: &mut RunWriter, flow: u32, report: &WebReport) -> Result<(), RecordError> {
    write_transfers(writer, flow, &report.pages)?;
    let mut received = 0;
    for page in &report.pages {
        received += page.bytes;
        writer.flow_sample(&FlowSample {
            received_bytes: Some(received),
            ..FlowSample::empty(page.start + page.took, flow)
        })?;
    }
    Ok(())
}

fn write_transfers(
    writer: &mut RunWriter,
    flow: u32,
    transfers: &[sluice_load::Transfer],
) -> Result<(), RecordError> {
    for (seq, transfer) in (0..).zip(transfers) {
        writer.transfer(&Transfer {
            start: transfer.start,
            flow,
            seq,
            took: transfer.took,
            bytes: transfer.bytes,
        })?;
    }
    Ok(())
}

fn write_pings(
    writer: &mut RunWriter,
    flow: u32,
    report: &PingReport,
    direction: Direction,
) -> Result<(), RecordError> {
    for probe in &report.samples {
        let (up, down) = match direction {
            Direction::Up => (probe.forward, probe.backward()),
            Direction::Down => (probe.backward(), probe.forward),
        };
        writer.ping(&PingSample {
            time: probe.sent,
            flow,
            seq: probe.sequence,
            rtt: probe.round_trip,
            up,
            down,
            is_lost: probe.round_trip.is_none(),
        })?;
    }
    Ok(())
}
