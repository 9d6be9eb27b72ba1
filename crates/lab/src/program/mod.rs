//! Runs a program behind a link (`sluice_exec`) and records it like a live run: the packets,
//! queues, arrivals and releases of both directions, and the kernel's samples of both ends of every
//! TCP connection.
//!
//! The scenario of the recording describes the run. Each connection is a flow of type `tcp` with
//! the payload that it carried, named after its far end. UDP flows and pings are flows of type
//! `udp` and `ping`. Their packets are known, but the program's own measurements are not.

mod connections;
mod datagrams;
mod names;
mod proxied;

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use sluice_core::packet::SPLIT_BELOW;
use sluice_core::{Span, Time};
use sluice_exec::{
    Carrier, CarrierLoop, Counter, ExecError, Ground, Outcome, Recorder, Settings, Show,
};
use sluice_loader::Ending;
use sluice_net::Clock;
use sluice_net::namespace::Namespace;
use sluice_net::port::{Counters, Loss, Spin};
use sluice_net::socket::TcpDiag;
use sluice_recording::metrics::measure;
use sluice_recording::{
    End, Environment, PROGRAM_ENDS, ReadError, RecordError, Recording, RunWriter,
};
use sluice_router::forward::{LaneCounts, LostFrame, PortNumber};
use sluice_router::process::watch::links::LinkView;
use sluice_scenario::{Backend, Direction, Scenario, Variant};

use crate::live::{
    Chain, FlowPath, LaneObserver, NOT_RECORDED, Observation, ObservationReceiver,
    ObservationSender, Recorded as _, RouterSettings, observations, sample,
};
use crate::run::write_observation;
use connections::{Connections, Flow, Side};
use datagrams::Protocol;
use names::Names;
pub use proxied::{ProxyRecordError, ProxyRecorder};

/// The reason why a program has no recording.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// The program did not run.
    #[error(transparent)]
    Exec(#[from] ExecError),
    /// The recording could not be written or read back. The program has ended with this status.
    #[error("{error}; the program's exit status was {status}")]
    Record {
        /// The program's exit status.
        status: u8,
        /// The reason.
        error: RecordError,
    },
}

/// A program that has ended, and its recording.
#[derive(Debug)]
pub struct Recorded {
    /// The result of the program.
    pub outcome: Outcome,
    /// The recording.
    pub recording: Recording,
    /// The reason, if the recording has no data of connections.
    pub warning: Option<String>,
}

/// Runs the program of `settings` and records it in the folder `dir`. `scenario` has the links and the
/// seed of `settings`, and a title; its traffic is ignored. `on_begin` is called with the folder before
/// an earlier recording in it is replaced, which happens when nothing but the program's start is left.
/// Call it on the main thread, before any other thread starts.
///
/// # Errors
/// [`ProgramError`]. A recording that has begun then ends partial, with the reason.
pub fn run(
    settings: &Settings,
    scenario: &Scenario,
    name: &str,
    dir: &Path,
    on_begin: fn(&Path),
    started_at: String,
    show: Option<Show<'_>>,
) -> Result<Recorded, ProgramError> {
    let environment = Environment::here(Backend::Live, started_at);
    let variant = without_traffic(scenario, name);
    let work = Arc::default();
    let recorder = Plan {
        variant,
        environment,
        dir,
        on_begin,
        congestion_control: settings.congestion_control.clone(),
        work: Arc::clone(&work),
    };
    let ran = sluice_exec::run_recorded(settings, recorder, show);
    let work: Option<Work> = work.lock().expect("no thread panics with it").take();
    // The router has ended, also after an error, and with it the thread.
    let written = work.map(|work| {
        let written = work.join();
        written.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    let outcome = match ran {
        Ok(outcome) => outcome,
        Err(error) => {
            if let Some(Ok(written)) = written {
                written.finish_after(&error);
            }
            return Err(error.into());
        }
    };
    let fail = |error| ProgramError::Record {
        status: outcome.status,
        error,
    };
    let written = written.expect("the recorder has begun, since the program has ended");
    let Written {
        writer,
        end,
        warning,
    } = written.map_err(fail)?;
    let recording = writer.finish(end).map_err(fail)?;
    store_figures(&recording).map_err(fail)?;
    Ok(Recorded {
        outcome,
        recording,
        warning,
    })
}

/// Computes the figures of a recording and stores them. One with more rows than are kept in memory gets none:
/// the program has run, and the reason is known again when the report is drawn.
fn store_figures(recording: &Recording) -> Result<(), RecordError> {
    match measure(recording) {
        Ok(summary) => recording.store_summary(&summary),
        Err(ReadError::TooMany { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Returns the variant of a recording that begins: its flows are not known yet.
fn without_traffic(scenario: &Scenario, name: &str) -> Variant {
    let mut base = scenario.clone();
    base.flows.clear();
    base.expect.clear();
    base.backend = Some(Backend::Live);
    base.measure.warmup = Span::ZERO;
    // The duration of the program is not known. This value is used only for the estimate of the
    // recording's size.
    base.duration = Span::from_secs(1);
    Variant {
        name: name.to_owned(),
        coordinates: Default::default(),
        scenario: base,
    }
}

/// The thread that writes.
type Work = JoinHandle<Result<Written, RecordError>>;

/// A recording whose rows are written, and which has not been ended.
struct Written {
    writer: RunWriter,
    end: End,
    /// The reason, if the recording has no data of connections.
    warning: Option<String>,
}

impl Written {
    /// Ends the recording of a program after an error, which the caller reports.
    fn finish_after(self, error: &ExecError) {
        match error {
            // Only the capture is not complete.
            ExecError::Captured { .. } => {
                let _ = self.writer.finish(self.end);
            }
            error => self.cut_short(error.to_string()),
        }
    }

    /// Ends the recording of a run that failed. The caller reports the reason.
    fn cut_short(self, reason: String) {
        let end = End {
            cut_short: Some(reason),
            ..self.end
        };
        let _ = self.writer.finish(end);
    }
}

/// A recording that has not begun.
struct Plan<'a> {
    variant: Variant,
    environment: Environment,
    dir: &'a Path,
    on_begin: fn(&Path),
    congestion_control: Option<String>,
    work: Arc<Mutex<Option<Work>>>,
}

impl Recorder for Plan<'_> {
    type Carrier = Observed;

    fn begin(
        self,
        ground: Ground<'_>,
    ) -> Result<Observed, Box<dyn std::error::Error + Send + Sync>> {
        let scenario = &self.variant.scenario;
        let settings = RouterSettings {
            scenario: scenario.clone(),
            ways: vec![FlowPath::whole(scenario.hops.len() + 1)],
            split_below: SPLIT_BELOW,
            spin: Spin::Adaptive,
        };
        let open = |namespace: &Namespace| TcpDiag::open(namespace);
        let (ends, warning) = match open(ground.near).and_then(|n| Ok([n, open(ground.far)?])) {
            Ok(ends) => (Some(ends), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let default = || {
            ground
                .near
                .enter(|| std::fs::read_to_string(DEFAULT_CONTROL))
        };
        let congestion_control = match self.congestion_control {
            Some(name) => name,
            None => default()??.trim().to_owned(),
        };
        (self.on_begin)(self.dir);
        let writer = RunWriter::create(self.dir, &self.variant, &self.environment)?;
        let (sender, observations) = observations();
        let (to_losses, losses) = channel();
        let observed = Observed {
            interval: scenario.measure.interval,
            settings,
            observations: sender,
            losses: to_losses,
        };
        let writing = Writing {
            writer,
            scenario: scenario.clone(),
            congestion_control,
            clock: *ground.clock,
            ending: ground.ending.clone(),
            observations,
            losses,
            answers: ground.names,
            names: Names::default(),
            connections: Connections::forwarding(ground.forwards),
            ends,
            warning,
        };
        let thread = std::thread::Builder::new().name("recorder".to_owned());
        let thread = thread.spawn(move || writing.run())?;
        *self.work.lock().expect("no thread panics with it") = Some(thread);
        Ok(observed)
    }
}

/// Carries packets and reports them.
struct Observed {
    settings: RouterSettings,
    interval: Span,
    observations: ObservationSender,
    losses: Sender<(String, u64)>,
}

impl AsMut<LaneObserver> for Counter<LaneObserver> {
    fn as_mut(&mut self) -> &mut LaneObserver {
        &mut self.next
    }
}

impl Carrier for Observed {
    type Queue = Chain;
    type Observer = LaneObserver;

    fn seed(&self) -> u64 {
        self.settings.scenario.seed
    }

    fn lane(&mut self, direction: Direction, _to: PortNumber) -> (Chain, LaneObserver) {
        let observer =
            LaneObserver::new(direction, self.settings.finder(), self.observations.clone());
        (self.settings.chain(direction), observer)
    }

    fn packets_in(queue: &Chain) -> u64 {
        queue.held().packets
    }

    fn view(queue: &Chain, now: Time) -> LinkView {
        queue.view(now)
    }

    fn interval(&self) -> Option<Span> {
        Some(self.interval)
    }

    fn sample(&mut self, forwarder: &mut CarrierLoop<Self>, now: Time) {
        for lane in 0..forwarder.lanes().len() {
            sample(forwarder, lane, now);
        }
    }

    fn finish(
        &mut self,
        queue: Chain,
        observer: LaneObserver,
        counts: &LaneCounts,
        port: &Counters,
    ) {
        for (pipe, rows) in queue.into_rows() {
            observer.tell(Observation::Packets(pipe, rows));
        }
        let own = LostFrame::ALL
            .iter()
            .map(|cause| (cause.name().to_owned(), counts.lost(*cause)));
        let of_port = Loss::ALL
            .iter()
            .map(|loss| (format!("port_{}", loss.name()), port.lost(*loss)));
        for loss in own.chain(of_port).filter(|(_, frames)| *frames > 0) {
            // If the receiver has given up, its error is reported elsewhere.
            let _ = self.losses.send(loss);
        }
    }
}

/// Writes the recording on a separate thread until the router has ended.
struct Writing {
    writer: RunWriter,
    scenario: Scenario,
    congestion_control: String,
    clock: Clock,
    observations: ObservationReceiver,
    losses: Receiver<(String, u64)>,
    answers: Receiver<Vec<u8>>,
    names: Names,
    connections: Connections,
    ending: Ending,
    /// The connections at the program's end and at the far end.
    ends: Option<[TcpDiag; 2]>,
    warning: Option<String>,
}

impl Writing {
    fn run(mut self) -> Result<Written, RecordError> {
        let interval = Duration::from_nanos(self.scenario.measure.interval.as_ns());
        let mut sample_at = Instant::now();
        loop {
            match self.observations.recv_timeout(LOOK) {
                Ok(observation) => {
                    self.take(observation)?;
                    while let Some(more) = self.observations.try_next() {
                        self.take(more)?;
                    }
                }
                // The router's thread was left behind, with its end of the channel.
                Err(RecvTimeoutError::Timeout) if self.ending.is_abandoned() => break,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.look(Instant::now() >= sample_at);
            if Instant::now() >= sample_at {
                sample_at = Instant::now() + interval;
            }
        }
        self.look(true);
        self.finish()
    }

    /// Records the kernel's samples of connections that have ended and, if `all` is true, of all
    /// others.
    fn look(&mut self, all: bool) {
        for answer in self.answers.try_iter() {
            self.names.learn(&answer);
        }
        let now = self.clock.now();
        let connections = &mut self.connections;
        for (diag, side) in self.ends.iter_mut().flatten().zip([Side::Near, Side::Far]) {
            diag.ended(|connection| connections.sample(side, &connection, now));
            // The kernel could list connections when the recording began. So a failure now is lack
            // of memory, and costs only one sample.
            if all {
                let _ = diag.connections(|connection| connections.sample(side, &connection, now));
            }
        }
    }

    fn take(&mut self, mut observation: Observation) -> Result<(), RecordError> {
        match &mut observation {
            Observation::Flow(hash, key) => {
                let own = sluice_exec::program_addresses();
                let is_own = |end: &SocketAddr| own.contains(&end.ip());
                let (program, remote) = if is_own(&key.source) {
                    (key.source, key.destination)
                } else {
                    (key.destination, key.source)
                };
                if let Some(protocol) = Protocol::of(key.protocol, remote.port()) {
                    self.connections.saw(*hash, protocol, program, remote);
                }
            }
            _ => self.connections.observe(&self.scenario, &mut observation),
        }
        write_observation(&mut self.writer, &observation)
    }

    fn finish(mut self) -> Result<Written, RecordError> {
        let end = self.clock.now();
        let flows = self.connections.into_flows(&self.names);
        let described = describe(&self.scenario, &flows, &self.congestion_control, end);
        write_flows(&mut self.writer, &described, &flows)?;
        let mut end = ended(end, &self.ending);
        for (cause, frames) in self.losses.try_iter() {
            *end.lost.entry(cause).or_default() += frames;
        }
        let rows = self.observations.not_recorded();
        if rows > 0 {
            end.lost.insert(NOT_RECORDED.to_owned(), rows);
        }
        Ok(Written {
            writer: self.writer,
            end,
            warning: self.warning,
        })
    }
}

/// Writes the flows of a recording that ends, and the scenario that describes them.
fn write_flows(
    writer: &mut RunWriter,
    described: &Scenario,
    flows: &[Flow],
) -> Result<(), RecordError> {
    writer.set_scenario(described);
    writer.set_ends(PROGRAM_ENDS);
    for (number, flow) in (0..).zip(flows) {
        if let Some(first) = flow.packets_of {
            writer.set_packets_of(number, first);
        }
        for row in &flow.samples {
            writer.flow_sample(&sluice_recording::FlowSample {
                flow: number,
                ..row.clone()
            })?;
        }
    }
    Ok(())
}

/// Returns the end of a recording at `at`; partial if an algorithm has ended it.
fn ended(at: Time, ending: &Ending) -> End {
    let end = match ending.why() {
        Some(why) => End::partial(at, why.to_owned()),
        None => End::complete(at),
    };
    End {
        stopped: ending.stopped(),
        ..end
    }
}

/// Returns the scenario that describes the run until `end`.
fn describe(base: &Scenario, flows: &[Flow], congestion_control: &str, end: Time) -> Scenario {
    let mut scenario = base.clone();
    let ran = end.since(Time::ZERO).max(SHORTEST) + Span::from_ms(1);
    // A scenario must end after its last change.
    let changes = scenario.last_step().map(|at| at + Span::from_ms(1));
    scenario.duration = ran.max(changes.unwrap_or_default());
    // Connections of programs are short.
    scenario.measure.window = scenario.measure.window.min(WINDOW).min(ran);
    scenario.measure.step = scenario.measure.step.min(STEP).min(ran);
    let mut text = scenario.to_toml();
    for flow in flows {
        let start = flow.start.since(Time::ZERO).as_ns() / MS;
        let stop = flow
            .stop
            .since(Time::ZERO)
            .as_ns()
            .div_ceil(MS)
            .max(start + 1);
        let (name, direction) = (&flow.name, flow.direction);
        let bytes = flow.bytes.max(1);
        let ecn = if flow.has_ecn { "ecn = true\n" } else { "" };
        let (kind, keys) = match flow.protocol {
            Protocol::Tcp => (
                "tcp",
                format!("bytes = \"{bytes}B\"\ncc = \"{congestion_control}\"\n{ecn}"),
            ),
            Protocol::Udp => ("udp", flow.keys.clone()),
            Protocol::Echo => ("ping", flow.keys.clone()),
        };
        let _ = write!(
            text,
            "\n[[flow]]\ntype = \"{kind}\"\nname = \"{name}\"\ndirection = \"{direction}\"\n\
             start = \"{start}ms\"\nstop = \"{stop}ms\"\n{keys}"
        );
    }
    match Scenario::parse_recorded(&text) {
        Ok(scenario) => scenario,
        Err(errors) => panic!("the scenario of a recording is valid: {errors}\n{text}"),
    }
}

/// The interval between checks for connections that have ended.
const LOOK: Duration = Duration::from_millis(5);
/// The shortest duration of the scenario.
const SHORTEST: Span = Span::from_ms(10);
/// Nanoseconds of a millisecond.
const MS: u64 = 1_000_000;
/// The windows of goodput over time.
const WINDOW: Span = Span::from_ms(250);
const STEP: Span = Span::from_ms(50);
/// The congestion control of a namespace's connections.
const DEFAULT_CONTROL: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

#[cfg(test)]
mod tests {
    use sluice_core::record::{Fate, PacketRecord};
    use sluice_core::{DropReason, Ecn};

    use super::*;

    #[test]
    fn a_recording_of_more_packets_than_are_kept_in_memory_has_no_figures() {
        let temp = tempfile::tempdir().unwrap();
        let text = "duration = \"3s\"\n[link]\nrate = \"5Mbit/s\"\n[[flow]]\ntype = \"ping\"\n";
        let scenario = Scenario::parse("x.toml", text, &[]).unwrap().remove(0);
        let variant = without_traffic(&scenario.scenario, "x");
        let recorded = |packets: u64| {
            let environment = Environment::here(Backend::Live, String::new());
            let dir = temp.path().join(packets.to_string());
            let mut writer = RunWriter::create(&dir, &variant, &environment).unwrap();
            for seq in 0..packets {
                let packet = PacketRecord {
                    seq,
                    packet: None,
                    arrival: Time::ZERO,
                    flow: 0,
                    len: 1500,
                    segments: u16::MAX,
                    ecn: Ecn::NotEct,
                    class: 0,
                    fate: Fate::Dropped(DropReason::Loss),
                    at: Time::ZERO,
                };
                writer.packet(Direction::Up, &packet).unwrap();
            }
            writer.set_scenario(&variant.scenario);
            let recording = writer.finish(End::complete(Time::ZERO)).unwrap();
            store_figures(&recording).unwrap();
            recording.stored_summary().unwrap()
        };
        // 8192 * 65535 are fewer than the limit of 2^29 = 8192 * 65536; with one more there are 536 928 255.
        assert!(recorded(8192).is_some());
        assert!(recorded(8193).is_none());
    }

    #[test]
    fn a_recording_has_the_seed_of_its_links() {
        let text = "duration = \"3s\"\nseed = 7\n[link]\nrate = \"5Mbit/s\"\n\
                    [[flow]]\ntype = \"ping\"\n";
        let scenario = Scenario::parse("x.toml", text, &[]).unwrap().remove(0);
        let variant = without_traffic(&scenario.scenario, "x");
        assert_eq!(variant.scenario.seed, 7);
        let described = describe(&variant.scenario, &[], "cubic", Time::ZERO);
        assert_eq!(described.seed, 7);
    }
}
