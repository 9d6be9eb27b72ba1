//! Records a replay like a run, so that it can be drawn.
//!
//! The recording is collected in memory and saved when the replay has ended, so an error leaves no
//! files. Its scenario describes the replay: each flow of the trace is a flow of type `udp` with
//! its mean arrival rate. The link is the direction `up`; the direction `down` has no traffic.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use sluice_core::event::StateValue;
use sluice_core::record::{Fate, PacketRecord};
use sluice_core::{Backlog, Rate, Span, Time};
use sluice_recording::metrics::measure;
use sluice_recording::{End, Environment, FlowSample, NO_FLOW, QueueSample, Recording, RunWriter};
use sluice_scenario::trace::Trace;
use sluice_scenario::{Backend, Direction, Scenario, ScenarioErrors, Variant, toml_text};

use super::{Job, LinkRate, ReplayError};

/// A recording in progress.
pub(super) struct Recorder {
    writer: RunWriter,
    job: Job,
    flows: BTreeMap<u32, Flow>,
    /// Packets of flows beyond the first [`MOST_FLOWS`].
    others: u64,
    steps: Steps,
    end: Time,
}

/// A flow of the trace.
struct Flow {
    /// Its number in the recording.
    number: u32,
    first: Time,
    last: Time,
    bytes: u64,
    packets: u64,
}

/// The counts of each step of time. When there are many steps, they become longer, so that memory
/// does not grow with the length of the trace.
struct Steps {
    step: Span,
    /// Packets and bytes that entered and left the queue, by the number of the step at whose end
    /// they become visible.
    queued: BTreeMap<u64, [u64; 4]>,
    /// Bytes that left, by step and flow.
    left: BTreeMap<(u64, u32), u64>,
}

impl Recorder {
    /// Begins the recording of `job` at the time `started_at`.
    pub(super) fn begin(job: &Job, started_at: &str) -> Result<Self, ReplayError> {
        // Neither the end nor the flows are known yet.
        let last = match &job.rate {
            LinkRate::Schedule { schedule, .. } => schedule.steps().last().map(|(at, _)| *at),
            LinkRate::Constant(_) => None,
        };
        let end = last.unwrap_or(Time::ZERO) + Span::from_secs(1);
        let flow = "[[flow]]\ntype = \"udp\"\nrate = \"1kbit/s\"\n";
        let first = scenario(job, end, flow)?;
        let variant = Variant {
            name: job.queue.algorithm.name.to_owned(),
            coordinates: Vec::default(),
            scenario: first,
        };
        let environment = Environment::here(Backend::Sim, started_at.to_owned());
        Ok(Recorder {
            writer: RunWriter::in_memory(&variant, &environment)?,
            job: job.clone(),
            flows: BTreeMap::new(),
            others: 0,
            steps: Steps::new(),
            end: Time::ZERO,
        })
    }

    /// Records a packet of the trace and its fate.
    pub(super) fn packet(&mut self, row: &PacketRecord) -> Result<(), ReplayError> {
        let mut record = row.clone();
        record.packet = Some(row.seq);
        record.flow = self.flow(row);
        self.end = self.end.max(row.at);
        if record.flow != NO_FLOW && matches!(row.fate, Fate::Sent | Fate::Marked) {
            self.steps.leave(row.at, record.flow, row.len);
        }
        self.steps.queue(row);
        self.writer.packet(Direction::Up, &record)?;
        Ok(())
    }

    /// Records a variable of the algorithm.
    pub(super) fn state(
        &mut self,
        now: Time,
        queue: u32,
        name: &'static str,
        value: StateValue,
    ) -> Result<(), ReplayError> {
        let sample = QueueSample::state(now, Direction::Up, queue, name, value);
        self.writer.queue_sample(&sample)?;
        Ok(())
    }

    /// Ends the recording of `trace`, saves it in the folder `dir` with its summary, and returns it with
    /// the number of packets whose flow has no number. `stopped` are the algorithms that an error stopped.
    pub(super) fn finish(
        mut self,
        end: Time,
        stopped: Vec<String>,
        (trace, dir): (&Trace, &Path),
    ) -> Result<(Recording, u64), ReplayError> {
        // A flow starts before the end.
        let end = self.end.max(end).max(SHORTEST) + Span::from_ns(1);
        self.write_steps()?;
        let described = scenario(&self.job, end, &self.flows_as_text(trace))?;
        self.writer.set_scenario(&described);
        self.writer.set_ends(["sender", "receiver"]);
        let mut end = End::complete(end);
        end.stopped = stopped;
        let recording = self.writer.finish(end)?.save(dir)?;
        recording.store_summary(&measure(&recording)?)?;
        Ok((recording, self.others))
    }

    /// Returns the number of a packet's flow, in the order of first packets.
    fn flow(&mut self, row: &PacketRecord) -> u32 {
        let next = self.flows.len();
        if next == MOST_FLOWS && !self.flows.contains_key(&row.flow) {
            self.others += 1;
            return NO_FLOW;
        }
        let flow = self.flows.entry(row.flow).or_insert(Flow {
            number: next as u32,
            first: row.arrival,
            last: row.arrival,
            bytes: 0,
            packets: 0,
        });
        flow.last = row.arrival;
        flow.bytes += u64::from(row.len);
        flow.packets += u64::from(row.segments);
        flow.number
    }

    fn write_steps(&mut self) -> Result<(), ReplayError> {
        let step = self.steps.step.as_ns();
        let mut held = Backlog::default();
        for (number, [packets, bytes, less_packets, less_bytes]) in &self.steps.queued {
            held.packets = held.packets + packets - less_packets;
            held.bytes = held.bytes + bytes - less_bytes;
            let at = Time::from_ns(number * step);
            for sample in QueueSample::backlog(at, Direction::Up, held) {
                self.writer.queue_sample(&sample)?;
            }
        }
        let mut received: BTreeMap<u32, u64> = BTreeMap::new();
        for flow in self.flows.values() {
            let start = FlowSample {
                received_bytes: Some(0),
                ..FlowSample::empty(flow.first, flow.number)
            };
            self.writer.flow_sample(&start)?;
        }
        for ((number, flow), bytes) in &self.steps.left {
            let sum = received.entry(*flow).or_default();
            *sum += bytes;
            let sample = FlowSample {
                received_bytes: Some(*sum),
                ..FlowSample::empty(Time::from_ns(number * step), *flow)
            };
            self.writer.flow_sample(&sample)?;
        }
        Ok(())
    }

    /// Returns the flows in the order of their numbers, as a scenario has them.
    fn flows_as_text(&self, trace: &Trace) -> String {
        let mut text = String::new();
        let mut names = trace.flow_names(|id| self.flows.contains_key(&id));
        let mut taken = BTreeSet::new();
        let mut flows: Vec<(&u32, &Flow)> = self.flows.iter().collect();
        flows.sort_by_key(|(_, flow)| flow.number);
        for (id, flow) in flows {
            let lasted = flow.last.since(flow.first).max(Span::from_ms(1));
            let bps = u128::from(flow.bytes) * 8_000_000_000 / u128::from(lasted.as_ns());
            let name = match names.remove(id) {
                None => format!("flow-{id}"),
                Some(name) if taken.insert(name.clone()) => name,
                Some(name) => format!("{name}-{id}"),
            };
            let size = (flow.bytes / flow.packets.max(1)).clamp(24, 1472);
            // Writing into a string does not fail.
            let _ = write!(
                text,
                "[[flow]]\ntype = \"udp\"\nname = \"{name}\"\nrate = \"{}bit/s\"\nsize = \
                 {size}\nstart = \"{}ns\"\n",
                bps.clamp(1, MOST_BPS),
                flow.first.as_ns()
            );
        }
        text
    }
}

impl Steps {
    fn new() -> Self {
        Steps {
            step: Span::from_us(100),
            queued: BTreeMap::new(),
            left: BTreeMap::new(),
        }
    }

    /// Returns the step at whose end a change at `at` becomes visible.
    fn of(&self, at: Time) -> u64 {
        at.as_ns().div_ceil(self.step.as_ns())
    }

    fn queue(&mut self, row: &PacketRecord) {
        let (packets, bytes) = (u64::from(row.segments), u64::from(row.len));
        let (arrival, end) = (self.of(row.arrival), self.of(row.at));
        // A packet that enters and leaves within one step is not visible.
        if arrival == end && row.fate != Fate::Queued {
            return;
        }
        let entered = self.queued.entry(arrival).or_default();
        entered[0] += packets;
        entered[1] += bytes;
        if row.fate != Fate::Queued {
            let left = self.queued.entry(end).or_default();
            left[2] += packets;
            left[3] += bytes;
        }
        while self.queued.len() > MOST_STEPS {
            self.double();
        }
    }

    fn leave(&mut self, at: Time, flow: u32, len: u32) {
        let step = self.of(at);
        *self.left.entry((step, flow)).or_default() += u64::from(len);
        while self.left.len() > MOST_STEPS {
            self.double();
        }
    }

    fn double(&mut self) {
        self.step = Span::from_ns(self.step.as_ns() * 2);
        let half = |number: u64| number.div_ceil(2);
        for (number, counts) in std::mem::take(&mut self.queued) {
            let sum = self.queued.entry(half(number)).or_default();
            sum.iter_mut().zip(counts).for_each(|(sum, n)| *sum += n);
        }
        for ((number, flow), bytes) in std::mem::take(&mut self.left) {
            *self.left.entry((half(number), flow)).or_default() += bytes;
        }
    }
}

/// Returns the scenario of a job until `end`, with `flows` as TOML.
fn scenario(job: &Job, end: Time, flows: &str) -> Result<Scenario, ReplayError> {
    let title = format!("Replay of {}", job.trace.display());
    let rate = match &job.rate {
        LinkRate::Constant(rate) if rate.is_unlimited() => String::new(),
        LinkRate::Constant(rate) => format!("rate = \"{}bit/s\"\n", rate.as_bps()),
        LinkRate::Schedule { schedule, .. } => {
            let steps = schedule.steps().iter().enumerate();
            // The first rate also applies before its instant; a step after the end has no effect.
            let step = |(number, (at, rate)): (usize, &(Time, Option<Rate>))| {
                let at = if number == 0 { Time::ZERO } else { *at };
                let rate = rate.map_or("outage".to_owned(), |r| format!("{}bit/s", r.as_bps()));
                (at < end).then(|| format!("[\"{}ns\", \"{rate}\"]", at.as_ns()))
            };
            let steps: Vec<String> = steps.filter_map(step).collect();
            format!("rate = [{}]\n", steps.join(", "))
        }
    };
    // Windows are not longer than the run.
    let at_most = |span: Span| span.as_ns().min(end.as_ns());
    let text = format!(
        "title = {}\nbackend = \"sim\"\nseed = {}\nduration = \"{}ns\"\n[link]\n{rate}rtt = \
         \"0ms\"\nqueue = {}\n[measure]\nwarmup = \"0s\"\nwindow = \
         \"{}ns\"\nstep = \"{}ns\"\n{flows}",
        toml_text(&title),
        job.seed,
        end.as_ns(),
        toml_text(&job.queue.to_string()),
        at_most(Span::from_secs(1)),
        at_most(Span::from_ms(250)),
    );
    let variants = Scenario::parse("replay", &text, &[]);
    let invalid = |errors: ScenarioErrors| ReplayError::Undrawable(errors.to_string());
    Ok(variants.map_err(invalid)?.swap_remove(0).scenario)
}

/// The most flows that have their own numbers; a chart has no room for more.
pub(super) const MOST_FLOWS: usize = 200;
/// Entries of a table of steps: more than any screen has pixels.
const MOST_STEPS: usize = 20_000;
/// The shortest run.
const SHORTEST: Time = Time::from_ns(10_000_000);
/// The highest rate of a flow in a scenario.
const MOST_BPS: u128 = 1_000_000_000_000;
