//! The simulated backend: the same pipes and queues in virtual time, with Sluice's own TCP.
//!
//! A scenario becomes the configuration of a simulation, and its observations become rows of the
//! recording. The tables are those of a live run, without the releases, because nothing is late in
//! a simulation.

mod network;
mod recorder;
mod stepped;

#[cfg(test)]
mod tests;

use sluice_core::event::StateValue;
use sluice_core::{Span, Stop, Time};
use sluice_loader::Ending;
use sluice_sim::{ConfigError, Estimate, FlowId, OpenPage, Simulation};

use crate::flow::{NotSimulated, SentPackets};
use recorder::Recorder;
use sluice_recording::{RecordError, RunWriter};
use sluice_scenario::Scenario;
pub use stepped::{Passed, StepError, Stepped};

/// The reason why a scenario cannot be simulated.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// A flow needs something that the simulator lacks.
    #[error(transparent)]
    Flow(#[from] NotSimulated),
    /// The simulation would be too large.
    #[error(
        "the simulation would send about {packets} packets and take {} MiB of memory, where at most \
         {MOST_PACKETS} packets and {} MiB are accepted: shorten it, lower its rates, or let `sluice run --yes` go ahead",
        memory_bytes >> 20,
        MOST_MEMORY >> 20
    )]
    TooLarge {
        /// The number of packets that hosts would send.
        packets: u64,
        /// Bytes of memory.
        memory_bytes: u64,
    },
    /// The simulator refuses the configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The rules let a flow pass beside all pipes, or its pipes have no rate and no delay.
    #[error(
        "flow `{flow}` sends more than 20 packets per microsecond: no pipe with a `bw` or a `delay` \
         slows it down; check which rule its packets match first"
    )]
    Haste {
        /// The name of the flow.
        flow: String,
    },
    /// The recording cannot be written.
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// Checks whether `scenario` can be simulated, at `any_size` or only if it is not too large.
///
/// # Errors
/// [`SimError`].
pub fn check(scenario: &Scenario, any_size: bool) -> Result<(), SimError> {
    let config = network::config(scenario)?;
    let estimate = config.estimate();
    let is_large = estimate.packets > MOST_PACKETS || estimate.memory_bytes > MOST_MEMORY;
    if is_large && !any_size {
        return Err(SimError::TooLarge {
            packets: estimate.packets,
            memory_bytes: estimate.memory_bytes,
        });
    }
    Simulation::new(&config)?;
    Ok(())
}

/// Estimates the cost of a simulation of `scenario`.
///
/// # Errors
/// [`SimError`].
pub fn estimate(scenario: &Scenario) -> Result<Estimate, SimError> {
    Ok(network::config(scenario)?.estimate())
}

/// The end of a simulation.
#[derive(Debug)]
pub struct Ended {
    /// The instant.
    pub at: Time,
    /// What the figures do not show, in words: connections that gave up.
    pub remarks: Vec<String>,
}

/// Simulates `scenario` to its end, or until `interrupt` or an algorithm ends it.
///
/// # Errors
/// [`SimError`].
pub fn run(
    scenario: &Scenario,
    writer: &mut RunWriter,
    interrupt: &Stop,
    ending: &Ending,
    progress: &mut dyn FnMut(Span),
) -> Result<Ended, SimError> {
    let goes_on = || !interrupt.is_stopped() && ending.why().is_none();
    ending.within(|| run_while(scenario, writer, &goes_on, progress))
}

fn run_while(
    scenario: &Scenario,
    writer: &mut RunWriter,
    goes_on: &dyn Fn() -> bool,
    progress: &mut dyn FnMut(Span),
) -> Result<Ended, SimError> {
    let config = network::config(scenario)?;
    let stretch = stretch(config.estimate().packets, config.duration);
    let mut simulation = Simulation::new(&config)?;
    let mut recorder = Recorder::new(scenario, writer);
    let end = Time::ZERO + scenario.duration;
    let lead = scenario.lead;
    while goes_on() {
        let is_over = simulation.run_until(simulation.now() + stretch, &mut recorder);
        recorder.flush();
        progress(simulation.now().since(Time::ZERO + lead));
        if is_over || recorder.has_failed() {
            break;
        }
    }
    let now = since_lead(simulation.now(), lead).min(end);
    let in_flight = simulation.datagrams_in_flight();
    let open_pages: Vec<_> = (0..in_flight.len())
        .map(|flow| open_pages(&simulation, flow, lead))
        .collect();
    recorder.finish(now, |flow| {
        let totals = simulation.totals(flow);
        SentPackets {
            packets: totals.packets_sent,
            retransmits: totals.retransmits,
            received: totals.bytes_received,
            in_flight: &in_flight[flow],
            open_pages: &open_pages[flow],
        }
    })?;
    check_haste(scenario, &simulation)?;
    Ok(Ended {
        at: now,
        remarks: failures(scenario, &simulation),
    })
}

/// Returns the open pages of a flow, with instants of the run.
fn open_pages(simulation: &Simulation, flow: FlowId, lead: Span) -> Vec<OpenPage> {
    let pages = simulation.open_pages(flow).into_iter();
    let pages = pages.map(|page| OpenPage {
        start: since_lead(page.start, lead),
        ..page
    });
    pages.collect()
}

/// Names the flows with connections that gave up. Only `web` opens another one.
fn failures(scenario: &Scenario, simulation: &Simulation) -> Vec<String> {
    let instances = scenario.instances();
    let failed = instances.filter_map(|flow| {
        let count = simulation.totals(flow.id as usize).failures;
        let name = flow.name;
        match count {
            0 => None,
            1 => Some(format!(
                "flow `{name}`: a connection gave up after many timeouts"
            )),
            _ => Some(format!(
                "flow `{name}`: {count} connections gave up after many timeouts"
            )),
        }
    });
    failed.collect()
}

/// Returns the error of a simulation that ended early because of a flow that nothing slows down.
fn check_haste(scenario: &Scenario, simulation: &Simulation) -> Result<(), SimError> {
    let Some(number) = simulation.hasty_flow() else {
        return Ok(());
    };
    let flow = scenario.instances().find(|flow| flow.id as usize == number);
    Err(SimError::Haste {
        flow: flow.map_or_else(|| number.to_string(), |flow| flow.name),
    })
}

/// Simulates `scenario` without recording, to measure the cost of recording, and returns the end.
///
/// # Errors
/// [`SimError`].
pub fn run_unrecorded(scenario: &Scenario, interrupt: &Stop) -> Result<Time, SimError> {
    let config = network::config(scenario)?;
    let stretch = stretch(config.estimate().packets, config.duration);
    let mut simulation = Simulation::new(&config)?;
    while !interrupt.is_stopped() {
        if simulation.run_until(simulation.now() + stretch, &mut ()) {
            break;
        }
    }
    check_haste(scenario, &simulation)?;
    Ok(since_lead(simulation.now(), scenario.lead))
}

/// Converts an instant of the simulation to one of the run; those before its start become its start.
const fn since_lead(at: Time, lead: Span) -> Time {
    Time::from_ns(at.as_ns().saturating_sub(lead.as_ns()))
}

/// Converts the instant in a variable of an algorithm; none stays none.
fn shown(value: StateValue, lead: Span) -> StateValue {
    match value {
        StateValue::Time(at) => StateValue::Time(since_lead(at, lead)),
        other => other,
    }
}

/// Returns the virtual time between two checks of `interrupt`, in which a simulation of `packets` and
/// this duration sends a million packets at most: about a second.
fn stretch(packets: u64, duration: Span) -> Span {
    let millions = packets.div_ceil(1_000_000).max(1);
    let of_a_million = Span::from_ns((duration.as_ns() / millions).max(1_000));
    of_a_million.min(STRETCH)
}

/// The most virtual time between two checks of `interrupt`.
const STRETCH: Span = Span::from_ms(200);
/// A packet and its row take about a microsecond and some bytes. More packets would take over an
/// hour, or fill a disk.
const MOST_PACKETS: u64 = 4_000_000_000;
/// The memory of a small machine.
const MOST_MEMORY: u64 = 8 << 30;
