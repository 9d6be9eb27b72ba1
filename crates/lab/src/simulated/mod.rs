//! The simulated backend: the same pipes and queues in virtual time, with Sluice's own TCP.
//!
//! A scenario becomes the configuration of a simulation, and what the simulation tells becomes rows
//! of the recording: the same tables as a live run's, but for the releases, since nothing is late.

mod network;
mod recorder;

#[cfg(test)]
mod tests;

use sluice_core::{Span, Stop, Time};
use sluice_sim::{ConfigError, Simulation};

use crate::flow::UnknownCongestionControl;
use recorder::Recorder;
use sluice_recording::{RecordError, RunWriter};
use sluice_scenario::Scenario;

/// Why a scenario cannot be simulated.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    /// The simulator has no such congestion control.
    #[error(transparent)]
    CongestionControl(#[from] UnknownCongestionControl),
    /// It would take more than sensible.
    #[error(
        "the simulation would send about {packets} packets and take {} MiB of memory, where at most \
         {MOST_PACKETS} packets and {} MiB are accepted: shorten it, or lower its rates",
        memory_bytes >> 20,
        MOST_MEMORY >> 20
    )]
    TooLarge {
        /// Packets that hosts would send.
        packets: u64,
        /// Bytes of memory.
        memory_bytes: u64,
    },
    /// The simulator refuses the configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The recording cannot be written.
    #[error(transparent)]
    Record(#[from] RecordError),
}

/// Says what would keep `scenario` from being simulated.
///
/// # Errors
/// [`SimError`], by name.
pub fn check(scenario: &Scenario) -> Result<(), SimError> {
    let config = network::config(scenario)?;
    let estimate = config.estimate();
    if estimate.packets > MOST_PACKETS || estimate.memory_bytes > MOST_MEMORY {
        return Err(SimError::TooLarge {
            packets: estimate.packets,
            memory_bytes: estimate.memory_bytes,
        });
    }
    Simulation::new(&config)?;
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
    let mut simulation = Simulation::new(&network::config(scenario)?)?;
    let mut recorder = Recorder::new(scenario, writer);
    let end = Time::ZERO + scenario.duration;
    while !interrupt.is_stopped() {
        let is_over = simulation.run_until(simulation.now() + STRETCH, &mut recorder);
        recorder.flush();
        progress(simulation.now().since(Time::ZERO));
        if is_over || recorder.has_failed() {
            break;
        }
    }
    let now = simulation.now().min(end);
    recorder.finish(now, |flow| simulation.totals(flow).packets_sent)?;
    Ok(now)
}

/// Simulates `scenario` and records nothing, to see what recording costs; gives when it ended.
///
/// # Errors
/// [`SimError`].
pub fn run_unrecorded(scenario: &Scenario, interrupt: &Stop) -> Result<Time, SimError> {
    let mut simulation = Simulation::new(&network::config(scenario)?)?;
    while !interrupt.is_stopped() {
        if simulation.run_until(simulation.now() + STRETCH, &mut ()) {
            break;
        }
    }
    Ok(simulation.now())
}

/// Virtual time between two looks at `interrupt`.
const STRETCH: Span = Span::from_ms(200);
/// A packet and its row take about a microsecond and some bytes: more than an hour, or a disk full.
const MOST_PACKETS: u64 = 4_000_000_000;
/// What a small machine has.
const MOST_MEMORY: u64 = 8 << 30;
