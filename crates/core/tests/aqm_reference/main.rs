//! CoDel, PIE and flow queueing over them against models that share nothing with the
//! implementation, packet for packet and nanosecond for nanosecond.
//!
//! [`rfc`] is RFC 8289 and RFC 8290 transcribed line by line; [`linux`] and [`dummynet`] are the
//! plainest loops that follow the lists of their deviations; [`pie`] has the same for RFC 8033 and
//! [`docsis`] RFC 8034, [`dualpi2`] RFC 9332.

mod docsis;
mod dualpi2;
mod dummynet;
mod link;
mod linux;
mod ours;
mod pie;
mod rfc;
mod traces;

use link::{Arrival, Fate, Queue, Scene, run};
use ours::Ours;
use proptest::prelude::*;

/// What is set for one comparison.
#[derive(Clone, Copy, Debug)]
struct Setup {
    variant: &'static str,
    is_fair: bool,
    ecn: bool,
    target_us: u64,
    interval_us: u64,
    mtu: u64,
    limit: usize,
    flows: usize,
    quantum: u64,
    drop_batch: usize,
    /// `linux` alone.
    ce_threshold_us: Option<u64>,
}

const DEFAULTS: Setup = Setup {
    variant: "rfc",
    is_fair: false,
    ecn: false,
    target_us: 5_000,
    interval_us: 100_000,
    mtu: 1514,
    limit: 1000,
    flows: 5,
    quantum: 1514,
    drop_batch: 64,
    ce_threshold_us: None,
};

impl Setup {
    fn spec(&self) -> String {
        let no = if self.ecn { "" } else { "no" };
        let mut codel = format!(
            "codel variant {} target {}us interval {}us mtu {} limit {} {no}ecn",
            self.variant, self.target_us, self.interval_us, self.mtu, self.limit
        );
        if let Some(us) = self.ce_threshold_us {
            codel += &format!(" ce_threshold {us}us");
        }
        if self.is_fair {
            format!(
                "fq_{codel} flows {} quantum {} drop_batch {}",
                self.flows, self.quantum, self.drop_batch
            )
        } else {
            codel
        }
    }

    fn model(&self) -> Box<dyn Queue> {
        let quantum = self.quantum as i64;
        match self.variant {
            "rfc" => {
                let settings = rfc::Settings {
                    target: self.target_us as i64 * 1000,
                    interval: self.interval_us as i64 * 1000,
                    maxpacket: self.mtu as i64,
                    ecn: self.ecn,
                };
                if self.is_fair {
                    let (flows, limit, batch) = (self.flows, self.limit, self.drop_batch);
                    Box::new(rfc::FqCodel::new(settings, flows, quantum, limit, batch))
                } else {
                    Box::new(rfc::Codel::new(settings, self.limit))
                }
            }
            "linux" => {
                let settings = linux::Settings {
                    target_ns: self.target_us * 1000,
                    interval_ns: self.interval_us * 1000,
                    mtu: self.mtu,
                    ecn: self.ecn,
                    ce_threshold_ns: self.ce_threshold_us.map(|us| us * 1000),
                };
                if self.is_fair {
                    let (flows, limit, batch) = (self.flows, self.limit, self.drop_batch);
                    Box::new(linux::FqCodel::new(settings, flows, quantum, limit, batch))
                } else {
                    Box::new(linux::Codel::new(settings, self.limit))
                }
            }
            _ => {
                let settings = dummynet::Settings {
                    target_us: self.target_us as u32,
                    interval_us: self.interval_us as u32,
                    ecn: self.ecn,
                };
                if self.is_fair {
                    let (flows, limit) = (self.flows, self.limit);
                    Box::new(dummynet::FqCodel::new(settings, flows, quantum, limit))
                } else {
                    Box::new(dummynet::Codel::new(settings, self.limit))
                }
            }
        }
    }
}

/// The fates that both agree on, or the first packet on which they do not.
fn compare(scene: &Scene, setup: &Setup) -> Result<Vec<Fate>, String> {
    let expected = run(scene, &mut *setup.model());
    let got = run(scene, &mut Ours::new(&setup.spec()));
    let differs = (0..got.len()).find(|i| got[*i] != expected[*i]);
    match differs {
        None => Ok(got),
        Some(i) => Err(format!(
            "`{}` on {}: packet {i}, {:?}: {:?}, but the model says {:?}",
            setup.spec(),
            scene.name,
            scene.arrivals[i],
            got[i],
            expected[i]
        )),
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    marked: usize,
    dropped: usize,
    refused: usize,
    evicted: usize,
}

fn tally(fates: &[Fate]) -> Tally {
    let count = |of: fn(&Fate) -> bool| fates.iter().filter(|fate| of(fate)).count();
    Tally {
        marked: count(|f| matches!(f, Fate::Marked(_))),
        dropped: count(|f| matches!(f, Fate::Dropped(_))),
        refused: count(|f| matches!(f, Fate::Refused(_))),
        evicted: count(|f| matches!(f, Fate::Evicted(_))),
    }
}

/// Every trace, plain and flow-queued, dropping and marking, with room and without.
fn compare_all(variant: &'static str) {
    let mut seen = Tally::default();
    for scene in traces::all() {
        for is_fair in [false, true] {
            let mut signals = 0;
            for (ecn, limit) in [(false, 1000), (true, 1000), (false, 61)] {
                let setup = Setup {
                    variant,
                    is_fair,
                    ecn,
                    limit,
                    ..DEFAULTS
                };
                let fates = compare(&scene, &setup).unwrap_or_else(|breach| panic!("{breach}"));
                let t = tally(&fates);
                assert!(ecn || t.marked == 0);
                signals += t.marked + t.dropped;
                seen.marked += t.marked;
                seen.dropped += t.dropped;
                seen.refused += t.refused;
                seen.evicted += t.evicted;
            }
            assert!(signals > 20, "{} shows only {signals} signals", scene.name);
        }
    }
    // A comparison of queues that never act would prove nothing.
    let Tally {
        marked,
        dropped,
        refused,
        evicted,
    } = seen;
    assert!(
        marked > 500 && dropped > 5000 && refused > 500 && evicted > 500,
        "{seen:?}"
    );
}

#[test]
fn the_rfc_variant_equals_the_transcribed_pseudo_code() {
    compare_all("rfc");
}

#[test]
fn the_linux_variant_equals_its_model() {
    compare_all("linux");
}

#[test]
fn the_dummynet_variant_equals_its_model() {
    compare_all("dummynet");
}

/// If two variants agreed everywhere, the traces would not tell them apart.
#[test]
fn the_traces_tell_the_variants_apart() {
    for is_fair in [false, true] {
        let differing = traces::all()
            .iter()
            .filter(|scene| {
                let fates = |variant| {
                    let setup = Setup {
                        variant,
                        is_fair,
                        ..DEFAULTS
                    };
                    run(scene, &mut Ours::new(&setup.spec()))
                };
                let (rfc, linux, dummynet) = (fates("rfc"), fates("linux"), fates("dummynet"));
                rfc != linux && linux != dummynet && dummynet != rfc
            })
            .count();
        assert!(differing >= 18, "fair {is_fair}: only {differing} traces");
    }
}

/// PIE with `settings`, plain or in five flow queues.
fn pie_spec(variant: &str, is_fair: bool, s: &pie::Settings) -> String {
    let flag = |is_on: bool, word: &str| format!(" {}{word}", if is_on { "" } else { "no" });
    let mut spec = format!("pie variant {variant} limit {}", s.limit);
    for (is_on, word) in [
        (s.ecn, "ecn"),
        (s.capdrop, "capdrop"),
        (s.derand, "derand"),
        (s.onoff, "onoff"),
        (s.bytemode, "bytemode"),
    ] {
        spec += &flag(is_on, word);
    }
    spec += if s.dre { " dre" } else { " ts" };
    if is_fair {
        format!("fq_{spec} flows 5")
    } else {
        spec
    }
}

fn pie_controller(variant: &str, is_flow: bool, s: pie::Settings) -> Box<dyn pie::Controller> {
    match variant {
        "rfc" => Box::new(pie::Rfc::new(s)),
        "linux" => Box::new(pie::Linux::new(s)),
        _ => Box::new(pie::Dummynet::new(s, is_flow)),
    }
}

/// Every switch by itself, and some together, as far as the variant has them.
fn pie_settings(variant: &str) -> Vec<pie::Settings> {
    let d = pie::Settings::DEFAULTS;
    let all = vec![
        d,
        pie::Settings { ecn: true, ..d },
        pie::Settings { dre: true, ..d },
        pie::Settings { limit: 61, ..d },
        pie::Settings {
            bytemode: true,
            ..d
        },
        pie::Settings {
            capdrop: false,
            ..d
        },
        pie::Settings { derand: false, ..d },
        pie::Settings {
            onoff: true,
            limit: 90,
            ..d
        },
        pie::Settings {
            onoff: true,
            dre: true,
            ecn: true,
            limit: 60,
            ..d
        },
    ];
    all.into_iter()
        .filter(|s| variant != "dummynet" || !s.bytemode)
        .filter(|s| variant != "linux" || (s.capdrop && s.derand && !s.onoff))
        .collect()
}

fn compare_pie(variant: &'static str) {
    let mut seen = Tally::default();
    for scene in traces::all() {
        // Only dummynet's clock of microseconds has 32 bits.
        if scene.name.contains("clock") && variant != "dummynet" {
            continue;
        }
        for s in pie_settings(variant) {
            let spec = pie_spec(variant, false, &s);
            let mut model = pie::Plain::new(pie_controller(variant, false, s), s.limit);
            let mut ours = Ours::new(&spec);
            let (expected, got) = (run(&scene, &mut model), run(&scene, &mut ours));
            let name = scene.name;
            // The first probability that differs says more than the first packet.
            same_updates(&ours.told, &model.told, &format!("`{spec}` on {name}"));
            same_fates(&scene, &spec, &got, &expected);
            let t = tally(&got);
            seen.marked += t.marked;
            seen.dropped += t.dropped;
            seen.refused += t.refused;
        }
    }
    assert!(
        seen.marked > 100 && seen.dropped > 5000 && seen.refused > 500,
        "{seen:?}"
    );
}

/// Every update of the model is told at its instant, but for those after a thousand that changed
/// nothing, which change nothing either.
fn same_updates(ours: &[(u64, f64)], model: &[(u64, f64)], what: &str) {
    let mut ours = ours.iter().peekable();
    let (mut last, mut repetitions) = (f64::NAN, 0);
    for (due, expected) in model {
        let got = match ours.next_if(|(at, _)| at == due) {
            Some((_, got)) => *got,
            None => {
                assert!(repetitions >= 999, "{what}: nothing is told at {due}");
                last
            }
        };
        // The model of the RFC is in floating point, with its rounding.
        assert!(
            (got - expected).abs() <= 1e-12,
            "{what} at {due}: {got}, but the model says {expected}"
        );
        repetitions = if got == last { repetitions + 1 } else { 0 };
        last = got;
    }
    assert_eq!(ours.next(), None, "{what}");
}

fn same_fates(scene: &Scene, spec: &str, got: &[Fate], expected: &[Fate]) {
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        assert_eq!(got, expected, "`{spec}` on {}: packet {i}", scene.name);
    }
}

#[test]
fn pie_equals_rfc_8033_in_floating_point() {
    compare_pie("rfc");
}

#[test]
fn pie_equals_its_linux_model() {
    compare_pie("linux");
}

#[test]
fn pie_equals_its_dummynet_model() {
    compare_pie("dummynet");
}

/// RFC 8034 in floating point: its three states, delays from time stamps and from the tokens of a
/// shaper that is as fast as the link, slower and faster.
#[test]
fn docsis_pie_equals_rfc_8034_in_floating_point() {
    let plain = docsis::Modem {
        limit: 1000,
        shaper: None,
        has_inactive: true,
    };
    let told = |msr, peak, burst| Some((msr, peak, burst));
    let modems = [
        plain,
        docsis::Modem { limit: 90, ..plain },
        docsis::Modem { limit: 40, ..plain },
        docsis::Modem {
            has_inactive: false,
            ..plain
        },
        docsis::Modem {
            has_inactive: false,
            shaper: told(1_000_000, 1_000_000, 0),
            ..plain
        },
        docsis::Modem {
            limit: 90,
            shaper: told(10_000_000, 20_000_000, 30_000),
            ..plain
        },
        docsis::Modem {
            limit: 200,
            shaper: told(4_000_000, 10_000_000, 500_000),
            ..plain
        },
    ];
    for modem in modems {
        let mut seen = Tally::default();
        for scene in traces::all().into_iter().chain(dualpi2::scenes()) {
            if scene.name.contains("clock") {
                continue;
            }
            let spec = modem.spec();
            let controller = Box::new(docsis::Docsis::new(modem));
            let mut model = pie::Plain::new(controller, modem.limit);
            let mut ours = Ours::new(&spec);
            let (expected, got) = (run(&scene, &mut model), run(&scene, &mut ours));
            let name = scene.name;
            same_updates(&ours.told, &model.told, &format!("`{spec}` on {name}"));
            same_fates(&scene, &spec, &got, &expected);
            let t = tally(&got);
            seen.dropped += t.dropped;
        }
        assert!(seen.dropped > 200, "{modem:?}: {seen:?}");
    }
}

/// RFC 9332 in floating point: classification, coupling, the ramp, the step, overload, both schedulers
/// and the common limit.
#[test]
fn dualpi2_equals_rfc_9332_in_floating_point() {
    let d = dualpi2::Settings::DEFAULTS;
    let settings = [
        d,
        dualpi2::Settings {
            is_tsfifo: true,
            ..d
        },
        dualpi2::Settings {
            min_th_us: 1000,
            range_us: 0,
            ..d
        },
        dualpi2::Settings {
            min_th_us: 5_000,
            range_us: 30_000,
            th_len: 4,
            ..d
        },
        dualpi2::Settings {
            k: 1.0,
            th_len: 0,
            ..d
        },
        dualpi2::Settings { k: 4.0, ..d },
        dualpi2::Settings {
            any_ect: true,
            limit: 30,
            ..d
        },
        dualpi2::Settings {
            limit_bytes: 20_000,
            ..d
        },
    ];
    for s in settings {
        let mut seen = Tally::default();
        let (mut most, spec) = (0.0f64, s.spec());
        for scene in dualpi2::scenes() {
            let mut model = dualpi2::DualPi2::new(s);
            let mut ours = Ours::new(&spec);
            let (expected, got) = (run(&scene, &mut model), run(&scene, &mut ours));
            let what = format!("`{spec}` on {}", scene.name);
            let mut told = ours.told.iter().peekable();
            let mut last = 0.0;
            for (due, expected) in &model.told {
                // Updates that change nothing are left out while nothing is queued.
                if let Some((_, p)) = told.next_if(|(at, _)| at == due) {
                    last = *p;
                }
                let difference = (last - expected).abs();
                assert!(
                    difference <= 1e-12,
                    "{what} at {due}: {last}, not {expected}"
                );
                most = most.max(*expected);
            }
            assert_eq!(told.next(), None, "{what}");
            same_fates(&scene, &spec, &got, &expected);
            let t = tally(&got);
            seen.marked += t.marked;
            seen.dropped += t.dropped;
            seen.refused += t.refused;
        }
        let has_limit = s.limit < d.limit || s.limit_bytes < d.limit_bytes;
        assert!(seen.marked > 500, "{spec}: {seen:?}");
        assert!(
            has_limit || (seen.dropped > 1000 && most > 0.5),
            "{spec}: {seen:?}, {most}"
        );
        assert_eq!(has_limit, seen.refused > 0, "{spec}: {seen:?}");
    }
}

/// In flow queues nobody calls the timers of idle queues; they must come out as if somebody did.
#[test]
fn flow_queued_pie_equals_models_that_are_updated_when_idle_too() {
    let mut evicted = 0;
    for variant in ["rfc", "linux", "dummynet"] {
        for scene in traces::all() {
            // A turn of a clock takes 300 000 updates of every idle model.
            if scene.name.contains("clock") {
                continue;
            }
            for s in pie_settings(variant) {
                let spec = pie_spec(variant, true, &s);
                let controller = || pie_controller(variant, true, s);
                let mut model = pie::Fair::new(variant, 5, s.limit, controller);
                let got = run(&scene, &mut Ours::new(&spec));
                same_fates(&scene, &spec, &got, &run(&scene, &mut model));
                evicted += tally(&got).evicted;
            }
        }
    }
    assert!(evicted > 1000, "{evicted}");
}

/// Random arrivals: bursts, trickles and pauses, any size, any codepoint.
fn scenes() -> impl Strategy<Value = Scene> {
    let gap = prop_oneof![
        4 => Just(0u64),
        8 => 1_000u64..3_000_000,
        2 => 3_000_000u64..200_000_000,
        1 => 200_000_000u64..3_000_000_000,
    ];
    let size = prop_oneof![3 => Just(1514u32), 1 => Just(64u32), 2 => 40u32..1515];
    let one = (gap, 0u32..8, size, 0u8..4, 1usize..40);
    let groups = prop::collection::vec(one, 20..120);
    let rate = prop_oneof![Just(1_000_000u64), 300_000u64..30_000_000];
    (groups, prop::collection::vec(rate, 3)).prop_map(|(groups, rates)| {
        let mut arrivals = Vec::new();
        let mut now = 0;
        for (gap, flow, size, ecn, times) in groups {
            now += gap;
            for i in 0..times {
                arrivals.push(Arrival {
                    at: now + i as u64 * (gap % 900_000),
                    flow,
                    size,
                    ecn,
                });
            }
        }
        arrivals.sort_by_key(|a| a.at);
        Scene {
            name: "a random trace",
            arrivals,
            rates: vec![(0, rates[0]), (now / 3, rates[1]), (now / 2, rates[2])],
        }
    })
}

fn setups() -> impl Strategy<Value = Setup> {
    let variant = prop_oneof![Just("rfc"), Just("linux"), Just("dummynet")];
    let times = prop_oneof![
        2 => Just((5_000u64, 100_000u64)),
        1 => (1u64..20_000, 1u64..300_000),
        1 => (1u64..50, 1u64..5_000),
    ];
    let mtu = prop_oneof![2 => Just(1514u64), 1 => 0u64..9000];
    let limit = prop_oneof![1 => Just(1000usize), 2 => 1usize..100];
    let quantum = prop_oneof![2 => Just(1514u64), 1 => 1u64..5000];
    let queues = (limit, 1usize..9, quantum, 1usize..80);
    let ce = prop::option::of(1u64..30_000);
    (
        variant,
        any::<bool>(),
        any::<bool>(),
        times,
        mtu,
        queues,
        ce,
    )
        .prop_map(
            |(variant, is_fair, ecn, (target_us, interval_us), mtu, queues, ce)| Setup {
                variant,
                is_fair,
                ecn,
                target_us,
                interval_us,
                mtu,
                limit: queues.0,
                flows: queues.1,
                quantum: queues.2,
                drop_batch: queues.3,
                ce_threshold_us: ce.filter(|_| variant == "linux"),
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(8290),
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_variant_equals_its_model_on_random_traces(scene in scenes(), setup in setups()) {
        compare(&scene, &setup).map_err(TestCaseError::fail)?;
    }
}
