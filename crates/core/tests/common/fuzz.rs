//! The bodies of the fuzz targets in `fuzz/`, so that a normal test can replay their corpus.

use sluice_core::link::{LinkParams, Opportunities, Profile, Schedule, Table};
use sluice_core::registry::{self, Algorithm, Form, Spec};
use sluice_core::{Rng, Time};

use super::compose::{compose, schedulers};
use super::drive::{Manner, Step, drive, drive_queue};
use super::ops::{Op, Setting, spec};

/// Operations on an algorithm with parameters.
#[derive(Debug)]
pub struct Case {
    spec: Spec,
    /// The scheduler whose queues have the AQM of `spec`; `None` for the algorithm by itself.
    scheduler: Option<&'static Algorithm>,
    seed: u64,
    ops: Vec<Op>,
}

impl Case {
    /// Decodes a case; any bytes are valid. Two bytes choose an algorithm or an AQM in a scheduler,
    /// eight are the seed; then come the settings, and operations until the bytes end.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let mut bytes = Bytes(bytes);
        let key = [bytes.next(), bytes.next()];
        // The choice does not change when new algorithms are added, unless it falls on one of them.
        let (algorithm, scheduler) = subjects()
            .min_by_key(|(algorithm, scheduler)| {
                let scheduler = scheduler.map_or("", |s| s.name);
                fnv1a(&format!("{}{scheduler}", algorithm.name), key)
            })
            .expect("there are algorithms");
        let seed = bytes.number();
        let settings: Vec<Setting> = algorithm.params().map(|_| bytes.setting()).collect();
        let mut ops = Vec::new();
        while !bytes.0.is_empty() && ops.len() < MAX_OPS {
            let kind = bytes.next();
            // Only arrivals and times need more than a byte.
            let bits = match Op::from_bits(kind, 0) {
                Op::Arrive(_) | Op::Pass(_) | Op::PassLate(_) => bytes.number(),
                _ => 0,
            };
            ops.push(Op::from_bits(kind, bits));
        }
        Case {
            spec: spec(algorithm, &settings),
            scheduler,
            seed,
            ops,
        }
    }

    /// Checks every property of the conformance suite.
    pub fn check(&self) {
        let plain = Manner {
            seed: self.seed,
            is_spurious: false,
            is_listening: true,
        };
        let run = |manner| self.run(manner).unwrap_or_else(|breach| panic!("{breach}"));
        let steps = run(plain);
        let spurious = Manner {
            is_spurious: true,
            ..plain
        };
        let deaf = Manner {
            is_listening: false,
            ..plain
        };
        assert_eq!(steps, run(plain), "the same seed gave another trace");
        assert_eq!(steps, run(spurious), "spurious calls changed the trace");
        assert_eq!(steps, run(deaf), "a listener changed the trace");
    }
}

impl Case {
    fn run(&self, manner: Manner) -> Result<Vec<Step>, String> {
        let (spec, ops) = (&self.spec, &self.ops);
        match self.scheduler {
            None => drive(spec, ops, manner),
            Some(scheduler) => drive_queue(compose(spec, scheduler), ops, manner)
                .map_err(|breach| format!("`{spec}` in {}, {breach}", scheduler.name)),
        }
    }
}

/// Returns every algorithm, and every AQM in every scheduler.
fn subjects() -> impl Iterator<Item = (&'static Algorithm, Option<&'static Algorithm>)> {
    let alone = registry::algorithms().map(|algorithm| (algorithm, None));
    let aqms = registry::algorithms().filter(|algorithm| algorithm.form == Form::Aqm);
    let composed = aqms.flat_map(|aqm| schedulers().map(move |s| (aqm, Some(s))));
    alone.chain(composed)
}

/// Checks that any text is a queue or an error with its position, and that the text of a queue
/// parses back to the same queue.
pub fn queue(text: &str) {
    match Spec::parse(text) {
        Ok(spec) => {
            let back = Spec::parse(&spec.to_string()).expect("a printed queue is a queue");
            assert_eq!(back.values, spec.values);
            assert_eq!(back.algorithm.name, spec.algorithm.name);
        }
        Err(error) => {
            assert!(text.get(error.span.clone()).is_some(), "{error:?}");
            let _ = error.candidates();
        }
    }
}

/// Checks that any text is a link or an error with its position.
pub fn link(text: &str) {
    if let Err(error) = LinkParams::parse(text) {
        assert!(text.get(error.span.clone()).is_some(), "{error:?}");
    }
}

/// Checks that any text is a schedule, a trace, a table, a profile, or an error, and that a parsed
/// file can be used.
pub fn files(text: &str) {
    if let Ok(mut schedule) = Schedule::parse(text) {
        for ns in [0, 1, 1 << 20, 1 << 40, 1 << 62] {
            let now = Time::from_ns(ns);
            assert!(schedule.ready_at(now) >= now);
        }
    }
    if let Ok(mut trace) = Opportunities::parse(text) {
        let mut now = Time::ZERO;
        for bytes in [0, 1, 1499, 1500, 1501, 64_000] {
            let ready = trace.ready_at(now);
            assert!(ready >= now);
            now = trace.transmit(ready, bytes);
            assert!(now >= ready);
        }
        assert!(trace.ready_at(Time::from_ns(1 << 60)) >= Time::from_ns(1 << 60));
    }
    if let Ok(table) = Table::parse(text) {
        assert_eq!(Table::parse(&table.to_string()), Ok(table));
    }
    if let Ok(profile) = Profile::parse(text) {
        assert!(profile.loss_level() <= profile.samples_ms().len() as u64);
    }
}

/// A reader that returns zeros at its end.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn next(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    fn number(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.next()))
    }

    /// Decodes one byte that selects whether there is a setting, then shape and bits.
    fn setting(&mut self) -> Setting {
        (self.next() >= 128).then(|| (self.next(), self.number()))
    }
}

fn fnv1a(name: &str, key: [u8; 2]) -> u64 {
    let bytes = name.bytes().chain(key);
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    // The last byte of the key must reach the high bits, which decide the order.
    Rng::from_seed(hash).next_u64()
}

/// The limit of operations. Longer sequences are slower and find no further problems.
const MAX_OPS: usize = 1000;
