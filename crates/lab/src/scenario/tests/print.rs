//! What a scenario prints reads as the same scenario, whatever it is.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use sluice_core::param::{Kind, ParamDecl, Value as ParamValue, Values};
use sluice_core::registry::{self, Spec};
use sluice_core::{Bytes, Rate};

use super::super::*;
use super::PLAIN;

fn value_in_range(decl: &'static ParamDecl) -> BoxedStrategy<ParamValue> {
    macro_rules! between {
        ($variant:ident, $number:ty, $to:expr, $from:expr) => {
            match decl.range {
                Some((ParamValue::$variant(low), ParamValue::$variant(high))) => {
                    let (low, high): ($number, $number) = ($to(low), $to(high));
                    (low..=high)
                        .prop_map(|n| ParamValue::$variant($from(n)))
                        .boxed()
                }
                _ => Just(decl.default).boxed(),
            }
        };
    }
    match decl.kind {
        Kind::Span => between!(Span, u64, Span::as_ns, Span::from_ns),
        Kind::Rate => between!(Rate, u64, Rate::as_bps, Rate::from_bps),
        Kind::Bytes => between!(Bytes, u64, Bytes::as_u64, Bytes::new),
        Kind::Count => between!(Count, u64, |n| n, |n| n),
        Kind::Ratio => {
            use sluice_core::param::Ratio;
            between!(Ratio, u64, Ratio::as_billionths, Ratio::from_billionths)
        }
        Kind::Flag => any::<bool>().prop_map(ParamValue::Flag).boxed(),
        Kind::Choice(words) => prop::sample::select(words)
            .prop_map(ParamValue::Choice)
            .boxed(),
    }
}

fn queue() -> impl Strategy<Value = Queue> {
    let algorithms: Vec<&'static registry::Algorithm> = registry::algorithms().collect();
    prop::sample::select(algorithms)
        .prop_flat_map(|algorithm| {
            let params: Vec<_> = algorithm
                .params()
                .map(|decl| option::of(value_in_range(decl)).prop_map(move |v| (decl.name, v)))
                .collect();
            (Just(algorithm), params)
        })
        .prop_map(|(algorithm, params)| {
            let mut values = Values::new();
            for (name, value) in params {
                if let Some(value) = value {
                    values.set(name, value);
                }
            }
            Spec { algorithm, values }
        })
        // Values that are each in range may contradict one another, or take too much memory.
        .prop_filter("the queue can be built", |spec| {
            spec.value("flows")
                .is_none_or(|n| n <= ParamValue::Count(4096))
                && spec.build().is_ok()
        })
        .prop_map(Queue)
}

fn span(low: u64, high: u64) -> impl Strategy<Value = Span> {
    (low..=high).prop_map(Span::from_ns)
}

fn rate() -> impl Strategy<Value = Rate> {
    prop_oneof![9 => (1..1_u64 << 44).prop_map(Rate::from_bps), 1 => Just(Rate::UNLIMITED)]
}

const SECOND: u64 = 1_000_000_000;

fn pipe(duration: Span) -> impl Strategy<Value = Pipe> {
    let later = prop::collection::btree_map(1..duration.as_ns(), rate(), 0..3);
    let schedule = (rate(), later).prop_map(|(first, later)| {
        let later = later
            .into_iter()
            .map(|(at, rate)| (Span::from_ns(at), rate));
        Schedule::new(std::iter::once((Span::ZERO, first)).chain(later).collect())
    });
    (schedule, span(0, 60 * SECOND), 0..=1_u64 << 30, queue()).prop_map(
        |(rate, delay, burst, queue)| Pipe {
            rate,
            delay,
            burst: Bytes::new(burst),
            queue,
        },
    )
}

fn flow(number: usize, duration: Span, warmup: Span) -> impl Strategy<Value = Flow> {
    let dscp = || (0_u8..64).prop_map(|n| Dscp::new(n).unwrap());
    let tcp = (
        "[a-z0-9_]{1,8}",
        any::<bool>(),
        option::of(1..1_u64 << 40),
        dscp(),
    );
    let kind = prop_oneof![
        tcp.prop_map(|(cc, ecn, bytes, dscp)| FlowKind::Tcp(Tcp {
            cc: Word(cc),
            ecn,
            bytes: bytes.map(Bytes::new),
            dscp,
        })),
        (1..1_u64 << 39, 24..=1472_u64, dscp()).prop_map(|(rate, size, dscp)| {
            FlowKind::Udp(Udp {
                rate: Rate::from_bps(rate),
                size,
                dscp,
            })
        }),
        (span(100_000, 60 * SECOND), 24..=1472_u64, dscp()).prop_map(|(interval, size, dscp)| {
            FlowKind::Ping(Ping {
                interval,
                size,
                dscp,
            })
        }),
    ];
    let shortest = warmup.as_ns() + 1;
    let times = (0..duration.as_ns() - shortest)
        .prop_flat_map(move |start| (Just(start), start + shortest..=duration.as_ns()));
    let direction = prop_oneof![Just(Direction::Up), Just(Direction::Down)];
    (times, 1..5_u64, direction, kind).prop_map(move |((start, stop), count, direction, kind)| {
        Flow {
            name: format!("flow_{number}"),
            count,
            direction,
            start: Span::from_ns(start),
            stop: Span::from_ns(stop),
            kind,
        }
    })
}

fn scenario() -> impl Strategy<Value = Scenario> {
    (10_000_000..1000 * SECOND, any::<bool>())
        .prop_flat_map(|(duration, is_symmetric)| {
            let warmup = Span::from_ns(duration / 3);
            let duration = Span::from_ns(duration);
            let flows: Vec<_> = (0..3).map(|i| flow(i, duration, warmup)).collect();
            (
                (
                    Just(duration),
                    Just(warmup),
                    Just(is_symmetric),
                    any::<u32>(),
                ),
                (".{0,12}", option::of(any::<String>())),
                (pipe(duration), pipe(duration)),
                (flows, 1..=3_usize),
                option::of(prop_oneof![Just(Backend::Sim), Just(Backend::Live)]),
                (vec(1_000_000..SECOND, 3), vec((0..SECOND, 0..SECOND), 0..3)),
            )
        })
        .prop_map(
            |(fixed, texts, pipes, (mut flows, kept), backend, (times, bounds))| {
                let (duration, warmup, is_symmetric, seed) = fixed;
                flows.truncate(kept);
                let bound = |(low, width): (u64, u64)| Expect {
                    metric: crate::metrics::Metric::parse("up.sojourn.p99", &flows).unwrap(),
                    min: Some(Quantity::Time(Span::from_ns(low))),
                    max: Some(Quantity::Time(Span::from_ns(low + width))),
                };
                let expect = bounds.into_iter().map(bound).collect();
                Scenario {
                    title: texts.0,
                    about: texts.1,
                    duration,
                    seed: u64::from(seed),
                    backend,
                    link: Link {
                        up: pipes.0.clone(),
                        down: if is_symmetric { pipes.0 } else { pipes.1 },
                    },
                    measure: Measure {
                        interval: Span::from_ns(times[0]),
                        warmup,
                        window: Span::from_ns(times[1]).min(duration),
                        step: Span::from_ns(times[2]).min(duration),
                    },
                    flows,
                    expect,
                }
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn what_a_scenario_prints_reads_as_the_same_scenario(scenario in scenario()) {
        let text = scenario.to_toml();
        let again = match Scenario::parse("printed.toml", &text, &[]) {
            Ok(mut variants) => variants.remove(0).scenario,
            Err(errors) => panic!("{errors}\n{text}"),
        };
        prop_assert_eq!(&again, &scenario);
        let json = serde_json::to_string(&scenario).unwrap();
        let again: Scenario = serde_json::from_str(&json).unwrap();
        prop_assert_eq!(&again, &scenario);
    }

    #[test]
    fn no_text_makes_the_reader_panic(text in "\\PC{0,200}", at in 0..PLAIN.len()) {
        let _ = Scenario::parse("x.toml", &text, &[]);
        // Nor does a scenario with something inserted, or an override.
        let mut broken = PLAIN.to_owned();
        broken.insert_str(at, &text);
        let _ = Scenario::parse("x.toml", &broken, &[]);
        let _ = Scenario::parse("x.toml", PLAIN, &[text]);
    }
}
