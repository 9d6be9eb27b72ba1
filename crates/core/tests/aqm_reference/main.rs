//! CoDel, PIE and flow queueing over them against models that share nothing with the
//! implementation, packet for packet and nanosecond for nanosecond.
//!
//! [`rfc`] is RFC 8289 and RFC 8290 transcribed line by line. [`linux`] and [`dummynet`] are the
//! simplest loops that follow the lists of their deviations. [`pie`] has the same for RFC 8033,
//! [`docsis`] RFC 8034, [`dualpi2`] RFC 9332.

mod controllers;
mod docsis;
mod dualpi2;
mod dummynet;
mod link;
mod linux;
mod ours;
mod pie;
mod queues;
mod rfc;
mod traces;

use link::{Arrival, Fate, Queue, Scene, run};
use ours::Ours;
use proptest::prelude::*;

/// The settings of one comparison.
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
            "linux" | "linux_2025" => {
                let settings = linux::Settings {
                    target_ns: self.target_us * 1000,
                    interval_ns: self.interval_us * 1000,
                    mtu: self.mtu,
                    ecn: self.ecn,
                    ce_threshold_ns: self.ce_threshold_us.map(|us| us * 1000),
                    resets_when_empty: self.variant == "linux",
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

/// Returns the fates if both agree, otherwise the first packet on which they do not.
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

/// Every trace, plain and flow-queued, dropping and marking, with and without room.
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
fn the_older_linux_variant_equals_its_model() {
    compare_all("linux_2025");
}

#[test]
fn the_dummynet_variant_equals_its_model() {
    compare_all("dummynet");
}

/// If two variants agreed everywhere, the traces could not distinguish them.
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
    let variant = prop_oneof![
        Just("rfc"),
        Just("linux"),
        Just("linux_2025"),
        Just("dummynet")
    ];
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
                ce_threshold_us: ce.filter(|_| variant.starts_with("linux")),
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
