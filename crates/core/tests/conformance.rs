//! Properties of every registered algorithm under any operations.
//!
//! A new algorithm is tested once it is in the registry. More cases: `PROPTEST_CASES=100000 cargo
//! test -p sluice-core --release --test conformance`; another seed: `PROPTEST_RNG_SEED=7`.

mod common;

use std::collections::BTreeMap;

use common::compose::{compose, schedulers};
use common::drive::{Manner, Step, drive, drive_queue};
use common::ops::{Arrival, Op, Setting, spec};
use proptest::prelude::*;
use proptest::test_runner::{RngSeed, TestRunner};
use sluice_core::conformance::same;
use sluice_core::link::{Pipe, PipeParams};
use sluice_core::param::Kind;
use sluice_core::registry::{self, Algorithm, Form, Spec};
use sluice_core::{Cx, Discipline, DropReason, Ecn, Packet, Rate, Rng, Sink, Span, Time, Wake};

/// Longest operation sequence.
const OPS: usize = 250;
/// Parameters that a case may set: more than any algorithm has.
const PARAMS: usize = 64;

/// Runs `property` over every algorithm with random parameters and operations. The seed is fixed,
/// so that a failure belongs to the change that caused it; the fuzzer looks for new ones.
fn for_every_algorithm(property: fn(&Spec, &[Op], u64) -> Result<(), String>) {
    let mut config = ProptestConfig {
        cases: 96,
        ..ProptestConfig::default()
    };
    if let Some(cases) = std::env::var("PROPTEST_CASES")
        .ok()
        .and_then(|n| n.parse().ok())
    {
        config.cases = cases;
    }
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(0x51_u64);
    }
    config.failure_persistence = None;
    let setting = prop::option::of(any::<(u8, u64)>());
    let settings = prop::collection::vec(setting, PARAMS);
    let op = any::<(u8, u64)>().prop_map(|(kind, bits)| Op::from_bits(kind, bits));
    let ops = prop::collection::vec(op, 0..OPS);
    let case = (settings, ops, any::<u64>());
    for algorithm in registry::algorithms() {
        let result = TestRunner::new(config.clone()).run(&case, |(settings, ops, seed)| {
            property(&chosen(algorithm, &settings), &ops, seed).map_err(TestCaseError::fail)
        });
        if let Err(failure) = result {
            panic!("{}: {failure}", algorithm.name);
        }
    }
}

/// Every fourth case has the defaults, which most users run.
fn chosen(algorithm: &'static Algorithm, settings: &[Setting]) -> Spec {
    assert!(algorithm.params().count() <= PARAMS, "raise PARAMS");
    match settings.last() {
        Some(Some((0..=127, _))) => spec(algorithm, &[]),
        _ => spec(algorithm, settings),
    }
}

const PLAIN: Manner = Manner {
    seed: 0,
    is_spurious: false,
    is_listening: true,
};

#[test]
fn packets_are_conserved_and_backlog_and_wakes_are_true() {
    for_every_algorithm(|spec, ops, seed| drive(spec, ops, Manner { seed, ..PLAIN }).map(drop));
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for_every_algorithm(|spec, ops, seed| {
        let manner = Manner { seed, ..PLAIN };
        same(&drive(spec, ops, manner)?, &drive(spec, ops, manner)?)
    });
}

#[test]
fn spurious_dequeues_change_nothing() {
    for_every_algorithm(|spec, ops, seed| {
        let manner = Manner { seed, ..PLAIN };
        let spurious = Manner {
            is_spurious: true,
            ..manner
        };
        same(&drive(spec, ops, manner)?, &drive(spec, ops, spurious)?)
    });
}

#[test]
fn a_listener_changes_nothing() {
    for_every_algorithm(|spec, ops, seed| {
        let manner = Manner { seed, ..PLAIN };
        let deaf = Manner {
            is_listening: false,
            ..manner
        };
        same(&drive(spec, ops, manner)?, &drive(spec, ops, deaf)?)
    });
}

/// Packets that no rule can distinguish leave in the order in which they arrived.
#[test]
fn equal_packets_of_a_flow_are_not_reordered() {
    for_every_algorithm(|spec, ops, seed| {
        let steps = drive(spec, ops, Manner { seed, ..PLAIN })?;
        let arrivals: Vec<&Arrival> = ops
            .iter()
            .filter_map(|op| match op {
                Op::Arrive(arrival) => Some(arrival),
                _ => None,
            })
            .collect();
        let mut last: BTreeMap<String, u32> = BTreeMap::new();
        for step in steps {
            let Step::Out { slot, .. } = step else {
                continue;
            };
            let key = format!("{:?}", arrivals[slot as usize]);
            if let Some(before) = last.insert(key, slot)
                && before > slot
            {
                return Err(format!("`{spec}`: slot {before} left before slot {slot}"));
            }
        }
        Ok(())
    });
}

#[test]
fn a_spec_parses_back_from_its_text() {
    for_every_algorithm(|spec, _, _| {
        let text = spec.to_string();
        let back = Spec::parse(&text).map_err(|error| format!("`{text}`: {error}"))?;
        if back.values == spec.values && back.algorithm.name == spec.algorithm.name {
            Ok(())
        } else {
            Err(format!("`{text}` parses to `{back}`"))
        }
    });
}

/// Any AQM in the queues of any scheduler.
#[test]
fn compositions_conform_too() {
    for_every_algorithm(|spec, ops, seed| {
        if spec.algorithm.form != Form::Aqm {
            return Ok(());
        }
        let manner = Manner { seed, ..PLAIN };
        let spurious = Manner {
            is_spurious: true,
            ..manner
        };
        for scheduler in schedulers() {
            let at = |breach: String| format!("`{spec}` in {}: {breach}", scheduler.name);
            let plain = drive_queue(compose(spec, scheduler), ops, manner).map_err(at)?;
            let other = drive_queue(compose(spec, scheduler), ops, spurious).map_err(at)?;
            same(&plain, &other).map_err(at)?;
        }
        Ok(())
    });
}

#[test]
fn every_declaration_is_complete() {
    let mut names: Vec<&str> = Vec::new();
    for algorithm in registry::algorithms() {
        let name = algorithm.name;
        assert!(!names.contains(&name), "`{name}` is registered twice");
        names.push(name);
        assert!(!algorithm.doc.trim().is_empty(), "`{name}` has no doc");
        let decls: Vec<_> = algorithm.params().collect();
        for (i, decl) in decls.iter().enumerate() {
            let at = format!("`{name} {}`", decl.name);
            let is_unique = decls[..i].iter().all(|d| d.name != decl.name);
            assert!(is_unique, "{at} is declared twice");
            assert!(!decl.doc.trim().is_empty(), "{at} has no doc");
            assert!(!decl.source.trim().is_empty(), "{at} has no source");
            let is_number = !matches!(decl.kind, Kind::Flag | Kind::Choice(_));
            assert_eq!(decl.range.is_some(), is_number, "{at}: range");
            if let Some((low, high)) = decl.range {
                assert!(low <= high, "{at}: {low} to {high}");
            }
            for default in [decl.default, algorithm.default_of(decl)] {
                assert_eq!(decl.check(default), Ok(()), "{at}: default");
                assert_eq!(
                    decl.parse(&default.to_string()),
                    Ok(default),
                    "{at}: default as text"
                );
            }
            let is_ambiguous = decls
                .iter()
                .any(|d| decl.kind == Kind::Flag && d.name == format!("no{}", decl.name));
            assert!(!is_ambiguous, "{at}: its negation is another parameter");
        }
        assert!(spec(algorithm, &[]).build().is_ok(), "`{name}` by default");
    }
}

/// The instants at which a pipe is polled.
#[derive(Clone, Copy, Debug)]
enum Polls {
    /// At the instants that the pipe requests.
    OnTime,
    /// At the instants that the pipe requests, and at others.
    Often,
    /// At some arrivals only, and at the end.
    Late,
}

#[derive(Default)]
struct Drops(Vec<Step>);

impl Sink for Drops {
    fn discard(&mut self, now: Time, packet: Packet, reason: DropReason) {
        self.0.push(Step::Dropped {
            at: now,
            slot: packet.slot,
            reason,
        });
    }
}

/// Sends the arrivals of `ops` through a pipe. Returns what was delivered and what was dropped, in
/// the order of time.
fn deliver(spec: &Spec, ops: &[Op], seed: u64, polls: Polls) -> (Vec<Step>, Vec<Step>) {
    let params = PipeParams {
        rate: Rate::from_bps(1_000_000 << (seed % 12)),
        delay: Span::from_us(seed % 5_000),
        ..PipeParams::default()
    };
    let queue = spec.build().expect("the spec was built before");
    let mut pipe = Pipe::new(&params, queue);
    let (mut rng, mut drops) = (Rng::from_seed(seed), Drops::default());
    let mut out = Vec::new();
    let mut now = Time::ZERO;
    let mut slot = 0;
    let mut poll = |pipe: &mut Pipe, drops: &mut Drops, rng: &mut Rng, at: Time| {
        let mut cx = Cx::new(at, rng, drops);
        while let Some(departure) = pipe.poll(&mut cx) {
            out.push(Step::Out {
                at: departure.due,
                slot: departure.packet.slot,
                ecn: departure.packet.ecn,
            });
        }
    };
    for op in ops {
        match op {
            Op::Arrive(arrival) => {
                let packet = arrival.packet(slot, now);
                slot += 1;
                pipe.enqueue(packet, &mut Cx::new(now, &mut rng, &mut drops));
            }
            Op::Pass(ns) | Op::PassLate(ns) => {
                // At most 0.1 s: timers are processed one by one.
                let span = ns % 100_000_000;
                let end = now.saturating_add(Span::from_ns(span));
                if !matches!(polls, Polls::Late) {
                    while let Wake::At(at) = pipe.next_wake()
                        && at < end
                    {
                        poll(&mut pipe, &mut drops, &mut rng, at.max(now));
                    }
                }
                // Before the end: an arrival at the end precedes what the link does at that
                // instant.
                let is_extra = matches!(polls, Polls::Often | Polls::Late) && ns % 3 > 0;
                if is_extra && span > 0 {
                    poll(
                        &mut pipe,
                        &mut drops,
                        &mut rng,
                        Time::from_ns(end.as_ns() - 1),
                    );
                }
                now = end;
            }
            _ => {}
        }
    }
    // Packets that a slow pipe still holds at that time are not compared.
    let end = now.saturating_add(Span::from_ms(50));
    poll(&mut pipe, &mut drops, &mut rng, end);
    (out, drops.0)
}

#[test]
fn polls_of_a_pipe_change_no_verdict_and_no_instant() {
    for_every_algorithm(|spec, ops, seed| {
        // Thousands of timers per second would only make the test slow.
        if spec.build().map_or(true, |queue| {
            queue
                .next_timer()
                .is_some_and(|t| t < Time::from_ns(500_000))
        }) {
            return Ok(());
        }
        let on_time = deliver(spec, ops, seed, Polls::OnTime);
        for polls in [Polls::Often, Polls::Late] {
            let other = deliver(spec, ops, seed, polls);
            same(&on_time.0, &other.0).map_err(|e| format!("`{spec}` {polls:?}: {e}"))?;
            same(&on_time.1, &other.1).map_err(|e| format!("`{spec}` {polls:?}: {e}"))?;
        }
        Ok(())
    });
}

/// The random sequences rarely reach a standing queue of ECN-capable packets; this test does.
#[test]
fn marks_are_only_seen_on_capable_packets() {
    let mut marked = 0;
    for name in ["codel", "fq_codel"] {
        let spec = Spec::parse(&format!("{name} target 1ms interval 5ms ecn mtu 0")).unwrap();
        let mut ops = Vec::new();
        for i in 0..600_u32 {
            let ecn = Ecn::from_bits(i as u8);
            ops.push(Op::Arrive(Arrival {
                len: 1500,
                flow: 1,
                class: 0,
                ecn,
                dscp: 0,
                segments: 1,
            }));
            if i % 2 == 0 {
                ops.extend([Op::Pass(1_000_000), Op::Dequeue]);
            }
        }
        for step in drive(&spec, &ops, PLAIN).unwrap() {
            let (slot, is_dropped, is_ce) = match step {
                Step::Out { slot, ecn, .. } => (slot, false, ecn == Ecn::Ce),
                Step::Dropped { slot, .. } => (slot, true, false),
            };
            let was = Ecn::from_bits(slot as u8);
            assert!(!(is_dropped && was.is_capable()), "slot {slot} was dropped");
            marked += u32::from(is_ce && was != Ecn::Ce);
        }
    }
    assert!(marked > 0, "the sequence must lead to marks");
}
