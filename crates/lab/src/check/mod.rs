//! The conformance of one algorithm, its cost, and its effect on the standard traffic.

use std::hash::{DefaultHasher, Hasher as _};
use std::time::Instant;

use sluice_core::conformance::Property;
use sluice_core::param::{Kind, Value};
use sluice_core::registry::Spec;
use sluice_core::{Cx, DropCounter, Ecn, Packet, Rng, Span, Stop, Time};
use sluice_loader::Ending;
use sluice_recording::{Environment, ReadError, Recording, RunWriter};
use sluice_scenario::metric::Summary;
use sluice_scenario::{Backend, Scenario, ScenarioErrors, Variant, toml_text};

use crate::live::LiveOptions;
use crate::run::{self, RunError};

/// A property that was checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its name.
    pub name: &'static str,
    /// The property in words.
    pub about: String,
    /// The violation, if one was found.
    pub breach: Option<String>,
}

/// The findings about an algorithm.
#[derive(Debug)]
pub struct Checked {
    /// The properties.
    pub findings: Vec<Finding>,
    /// Cost of a packet that enters and leaves, and of the same packet in `fifo`.
    pub cost: Option<[Span; 2]>,
    /// The standard traffic through the queue.
    pub traffic: Option<(Recording, Summary)>,
}

impl Checked {
    /// Returns whether a property is violated.
    pub fn has_failed(&self) -> bool {
        self.findings.iter().any(|found| found.breach.is_some())
    }
}

/// The reason why an algorithm cannot be checked.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The queue cannot be part of a scenario.
    #[error(transparent)]
    Scenario(#[from] ScenarioErrors),
    /// The standard traffic cannot be simulated.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The recording cannot be read back.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// Checks a queue. `seed` selects the operations. An error of an algorithm from a file is a finding,
/// whatever its `on_error` is.
///
/// # Errors
/// [`CheckError`]. A violated property is a finding and not an error.
pub fn check(spec: &Spec, seed: u64) -> Result<Checked, CheckError> {
    let strict = strict(spec);
    let mut findings = Vec::new();
    // An error in the algorithm's code makes all other findings worthless.
    let mut error = None;
    for property in Property::ALL {
        let breach = (0..SEQUENCES).find_map(|case| {
            let ending = Ending::new();
            let result = ending.within(|| property.check(&strict, LENGTH, seed.wrapping_add(case)));
            error = ending.why().map(str::to_owned);
            match &error {
                Some(_) => Some(String::new()),
                None => result
                    .err()
                    .map(|breach| format!("sequence {case}: {breach}")),
            }
        });
        if error.is_some() {
            break;
        }
        findings.push(Finding {
            breach,
            ..finding_of(property)
        });
    }
    let mut traffic = None;
    let mut cost = None;
    if error.is_none() {
        match [simulate(&strict, seed), simulate(&strict, seed)] {
            [Ok(first), Ok(second)] => {
                let digests = [digest(&first.0)?, digest(&second.0)?];
                findings.push(Finding {
                    name: "same run",
                    about: format!(
                        "two simulations of the standard traffic have the digest {:016x}",
                        digests[0]
                    ),
                    breach: (digests[0] != digests[1]).then(|| {
                        format!(
                            "two simulations with one seed differ: does the algorithm use a clock or \
                             randomness of its own? Only `cx.random()` (in a module: `random`) \
                             depends on the seed. Digests {:016x} and {:016x}",
                            digests[0], digests[1]
                        )
                    }),
                });
                let fifo = Spec::parse("fifo").expect("fifo is a queue");
                cost = Some([measure(spec), measure(&fifo)]);
                traffic = Some(first);
            }
            [Err(CheckError::Run(RunError::Algorithm(why))), _]
            | [_, Err(CheckError::Run(RunError::Algorithm(why)))] => error = Some(why),
            [Err(error), _] | [_, Err(error)] => return Err(error),
        }
    }
    findings.push(Finding {
        name: "no errors",
        about: "no call failed, every verdict is one, and only ECN-capable packets are marked"
            .to_owned(),
        breach: error,
    });
    Ok(Checked {
        findings,
        cost,
        traffic,
    })
}

/// Returns the queue with `on_error end`, so that an error in its code ends the run and is found.
fn strict(spec: &Spec) -> Spec {
    let mut strict = spec.clone();
    let on_error = spec.algorithm.params().find(|decl| decl.name == ON_ERROR);
    if let Some(decl) = on_error
        && let Kind::Choice(_) = decl.kind
    {
        strict.values.set(decl.name, Value::Choice("end"));
    }
    strict
}

/// The parameter of algorithms from files.
const ON_ERROR: &str = "on_error";

fn finding_of(property: Property) -> Finding {
    let (name, about) = match property {
        Property::Conservation => (
            "conservation",
            "every packet leaves once, and the queue's counters are true",
        ),
        Property::Determinism => ("determinism", "the same seed gives the same packets"),
        Property::SpuriousWakes => ("spurious wake-ups", "waking up early changes nothing"),
        Property::Listener => ("recording", "recording the queue changes nothing"),
    };
    Finding {
        name,
        about: format!("{about} ({SEQUENCES} sequences of operations)"),
        breach: None,
    }
}

fn simulate(spec: &Spec, seed: u64) -> Result<(Recording, Summary), CheckError> {
    let queue = toml_text(&spec.to_string());
    // A scenario's seed has 63 bits, as TOML's integers have.
    let seed = seed % (1 << 63);
    let sets = [format!("link.queue={queue}"), format!("seed={seed}")];
    let mut variants = Scenario::parse("standard traffic", STANDARD, &sets)?;
    let variant: Variant = variants.remove(0);
    let environment = Environment::here(Backend::Sim, String::new());
    let writer = RunWriter::in_memory(&variant, &environment).map_err(RunError::from)?;
    let done = run::record(
        &variant,
        Backend::Sim,
        LiveOptions::default(),
        writer,
        &Stop::new(),
        &mut |_| {},
    )
    .map_err(|failed| failed.error)?;
    Ok((done.recording, done.summary))
}

fn digest(recording: &Recording) -> Result<u64, ReadError> {
    let mut hasher = DefaultHasher::new();
    for table in ["packets", "queues"] {
        hasher.write(&recording.parquet(table)?);
    }
    Ok(hasher.finish())
}

/// Returns the time that a packet takes to enter and to leave a queue of [`STANDING`] packets.
fn measure(spec: &Spec) -> Span {
    let mut rounds: Vec<u64> = (0..ROUNDS)
        .map(|_| Ending::new().within(|| measure_once(spec)))
        .collect();
    rounds.sort_unstable();
    Span::from_ns(rounds[ROUNDS / 2] / PACKETS)
}

fn measure_once(spec: &Spec) -> u64 {
    let mut queue = spec.build().expect("a queue that was parsed can be built");
    let (mut rng, mut dropped) = (Rng::from_seed(1), DropCounter::default());
    let mut cx = Cx::new(Time::ZERO, &mut rng, &mut dropped);
    let arrive = |slot: u64, now: Time| {
        let mut packet = Packet::new(slot as u32, 1500);
        packet.arrival = now;
        packet.flow = slot as u32 % 7;
        packet.ecn = Ecn::from_bits(slot as u8 & 2);
        packet
    };
    for slot in 0..STANDING {
        queue.enqueue(arrive(slot, Time::ZERO), &mut cx);
    }
    let start = Instant::now();
    for slot in STANDING..STANDING + PACKETS {
        // Full packets at 10 Gbit/s; a standing queue of 50 waits 60 us.
        cx.now = Time::from_ns(slot * 1_200);
        while queue.next_timer().is_some_and(|due| due <= cx.now) {
            queue.on_timer(&mut cx);
        }
        queue.enqueue(arrive(slot, cx.now), &mut cx);
        std::hint::black_box(queue.dequeue(&mut cx));
    }
    start.elapsed().as_nanos() as u64
}

const STANDARD: &str = include_str!("standard.toml");
/// Sequences of operations per property.
const SEQUENCES: u64 = 64;
/// Longest sequence.
const LENGTH: u64 = 250;
const STANDING: u64 = 50;
const PACKETS: u64 = 20_000;
const ROUNDS: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_built_in_queue_conforms_and_the_standard_traffic_makes_it_signal() {
        let spec = Spec::parse("codel ecn").unwrap();
        let checked = check(&spec, 1).unwrap();
        assert!(!checked.has_failed(), "{:?}", checked.findings);
        assert_eq!(checked.findings.len(), Property::ALL.len() + 2);
        let [codel, fifo] = checked.cost.unwrap();
        assert!(codel > Span::ZERO && fifo > Span::ZERO);
        let (recording, _) = checked.traffic.unwrap();
        assert!(!recording.parquet("packets").unwrap().is_empty());
    }

    #[test]
    fn the_standard_traffic_takes_every_seed() {
        let spec = Spec::parse("fifo").unwrap();
        for (seed, of_scenario) in [(7, 7), (u64::MAX, i64::MAX as u64)] {
            let (recording, _) = simulate(&spec, seed).unwrap();
            assert_eq!(recording.run().seed, of_scenario);
        }
    }
}
