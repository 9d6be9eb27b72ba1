//! A scenario reads back from its printed form, whatever it contains.

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use sluice_core::param::{Kind, ParamDecl, Value as ParamValue, Values};
use sluice_core::registry::{self, Spec};
use sluice_core::{Bytes, Rate};
use sluice_tcp::rtt::RtoFloor;

use super::super::effects::Effects;
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
        // Values that are each in range may contradict one another, or need too much memory.
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

fn effects() -> impl Strategy<Value = Effects> {
    let decls: Vec<&'static ParamDecl> = Effects::decls().collect();
    let setting = |decl: &'static ParamDecl| {
        option::weighted(0.2, value_in_range(decl)).prop_map(move |v| (decl.name, v))
    };
    let settings: Vec<_> = decls.into_iter().map(setting).collect();
    settings.prop_filter_map("the values do not contradict one another", |settings| {
        let mut values = Values::new();
        for (name, value) in settings {
            if let Some(value) = value {
                values.set(name, value);
            }
        }
        Effects::from_values(values).ok()
    })
}

fn schedule(duration: Span) -> impl Strategy<Value = Schedule> {
    let later = prop::collection::btree_map(1..duration.as_ns(), option::of(rate()), 0..3);
    (rate(), later).prop_map(|(first, later)| {
        let later = later
            .into_iter()
            .map(|(at, rate)| (Span::from_ns(at), rate));
        let first = std::iter::once((Span::ZERO, Some(first)));
        Schedule::from_steps(first.chain(later).collect())
    })
}

fn pipe(duration: Span) -> impl Strategy<Value = Pipe> {
    let delay = span(0, 60 * SECOND).prop_map(Delays::constant);
    (schedule(duration), delay, effects(), queue()).prop_map(|(rate, delay, effects, queue)| Pipe {
        rate,
        delay,
        effects,
        queue,
        ..Pipe::unlimited()
    })
}

fn link(duration: Span) -> impl Strategy<Value = Link> {
    (pipe(duration), pipe(duration), any::<bool>()).prop_map(|(up, down, is_symmetric)| Link {
        down: if is_symmetric { up.clone() } else { down },
        up,
    })
}

fn size() -> impl Strategy<Value = ObjectSize> {
    let bytes = || (1..1_u64 << 40).prop_map(Bytes::new);
    prop_oneof![
        bytes().prop_map(ObjectSize::Fixed),
        bytes().prop_map(|mean| ObjectSize::Exponential { mean }),
        (bytes(), 0..1_u64 << 40, 1_000_000..10_000_000_000_u64).prop_map(|(min, more, shape)| {
            ObjectSize::Pareto {
                min,
                max: Bytes::new(min.as_u64() + more),
                shape: sluice_core::param::Ratio::from_billionths(shape),
            }
        }),
    ]
}

fn settings() -> impl Strategy<Value = TcpSettings> {
    let floor = prop_oneof![
        span(1_000_000, 60 * SECOND).prop_map(RtoFloor::Variance),
        span(1_000_000, 60 * SECOND).prop_map(RtoFloor::Total),
    ];
    let slow_start = prop::sample::select(vec![
        SlowStart::Standard,
        SlowStart::Hystart,
        SlowStart::HystartPlusPlus,
    ]);
    (
        prop::sample::select(vec![Growth::Segments, Growth::Bytes]),
        any::<bool>(),
        option::of(slow_start),
        option::of(any::<bool>()),
        floor,
    )
        .prop_map(|(growth, abe, slow_start, pacing, rto_floor)| TcpSettings {
            growth,
            abe,
            slow_start,
            pacing,
            rto_floor,
        })
}

/// Returns the part of `settings` that a flow of this kind accepts.
fn settings_of(kind: &FlowKind, mut settings: TcpSettings) -> Option<TcpSettings> {
    let (cc, _) = kind.tcp()?;
    if !["reno", "cubic"].contains(&cc.0.as_str()) {
        settings.abe = false;
        settings.slow_start = None;
    }
    Some(settings)
}

fn flow(number: usize, duration: Span, warmup: Span) -> impl Strategy<Value = Flow> {
    let dscp = || (0_u8..64).prop_map(|n| Dscp::new(n).unwrap());
    let ecn = || prop::sample::select(vec![TcpEcn::Off, TcpEcn::On, TcpEcn::Accurate]);
    let cc = || {
        prop_oneof!["[a-z0-9_]{1,8}", Just("cubic".to_owned())].prop_map(|word| Word::new(&word))
    };
    let window = || option::of(1..=1000_u64);
    let sized = option::of((1..1_u64 << 40, option::of(span(0, SECOND))));
    let kind = prop_oneof![
        (cc(), ecn(), sized, window(), dscp()).prop_map(
            |(cc, ecn, sized, initial_window, dscp)| FlowKind::Tcp(Tcp {
                cc,
                initial_window,
                ecn,
                bytes: sized.map(|(bytes, _)| Bytes::new(bytes)),
                pause: sized.and_then(|(_, pause)| pause),
                dscp,
            })
        ),
        (
            1..1_u64 << 39,
            24..=1472_u64,
            span(1000, SECOND),
            any::<bool>(),
            dscp()
        )
            .prop_map(|(rate, size, on, ect, dscp)| {
                let has_bursts = rate % 2 == 0;
                FlowKind::Udp(Udp {
                    rate: Rate::from_bps(rate),
                    size,
                    spacing: if has_bursts {
                        SpacingWord::RandomOnOff
                    } else {
                        SpacingWord::Poisson
                    },
                    on: has_bursts.then_some(on),
                    off: has_bursts.then_some(Span::ZERO),
                    ect,
                    dscp,
                })
            }),
        dscp().prop_map(|dscp| FlowKind::Voip(Voip { dscp })),
        (span(100_000, 60 * SECOND), 24..=1472_u64, dscp()).prop_map(|(interval, size, dscp)| {
            FlowKind::Ping(Ping {
                interval,
                size,
                protocol: if size % 2 == 0 {
                    Protocol::Icmp
                } else {
                    Protocol::Udp
                },
                dscp,
            })
        }),
        (
            1..1_u64 << 30,
            span(0, SECOND),
            cc(),
            window(),
            ecn(),
            dscp()
        )
            .prop_map(
                |(bytes, think, cc, initial_window, ecn, dscp)| FlowKind::Rr(Rr {
                    request: Bytes::new(bytes),
                    response: Bytes::new(1),
                    think,
                    cc,
                    initial_window,
                    ecn,
                    dscp,
                })
            ),
        (span(10_000, SECOND), 1..=1000_u64, size(), ecn()).prop_map(
            |(interval, objects, size, ecn)| FlowKind::Web(Web {
                interval,
                objects,
                size,
                request: Bytes::new(objects),
                cc: Word::new("reno"),
                initial_window: Some(objects),
                ecn,
                dscp: Dscp::default(),
            })
        ),
    ];
    let shortest = warmup.as_ns() + 1;
    let times = (0..duration.as_ns() - shortest)
        .prop_flat_map(move |start| (Just(start), start + shortest..=duration.as_ns()));
    let direction = prop_oneof![Just(Direction::Up), Just(Direction::Down)];
    (times, 1..5_u64, 0..=65_535_u64, direction, kind, settings()).prop_map(
        move |((start, stop), count, class, direction, kind, settings)| Flow {
            tcp: settings_of(&kind, settings),
            name: format!("flow_{number}"),
            count,
            direction,
            // The last of them starts in time.
            stagger: Span::from_ns((duration.as_ns() - 1 - start) / count),
            start: Span::from_ns(start),
            stop: Span::from_ns(stop),
            rtt: None,
            hops: (class % 2 == 0).then_some(Hops { first: 1, last: 1 }),
            host_up: 1 + class % 3,
            host_down: 1 + class % 2,
            class,
            places: crate::flow::Places::default(),
            kind,
        },
    )
}

fn scenario() -> impl Strategy<Value = Scenario> {
    (10_000_000..1000 * SECOND)
        .prop_flat_map(|duration| {
            let warmup = Span::from_ns(duration / 3);
            let duration = Span::from_ns(duration);
            let flows: Vec<_> = (0..3).map(|i| flow(i, duration, warmup)).collect();
            (
                (Just(duration), Just(warmup), any::<u32>()),
                (".{0,12}", option::of(any::<String>())),
                (link(duration), vec(link(duration), 0..2)),
                (flows, 1..=3_usize),
                option::of(prop_oneof![Just(Backend::Sim), Just(Backend::Live)]),
                (vec(1_000_000..SECOND, 3), vec((0..SECOND, 0..SECOND), 0..3)),
            )
        })
        .prop_map(
            |(fixed, texts, (link, hops), (mut flows, kept), backend, (times, bounds))| {
                let (duration, warmup, seed) = fixed;
                flows.truncate(kept);
                let bound = |(low, width): (u64, u64)| Expect {
                    metric: crate::metric::Metric::parse("up.sojourn.p99", &flows).unwrap(),
                    min: Some(Quantity::Time(Span::from_ns(low))),
                    max: Some(Quantity::Time(Span::from_ns(low + width))),
                    backend: (low % 2 == 0).then_some(Backend::Live),
                };
                let expect = bounds.into_iter().map(bound).collect();
                Scenario {
                    title: texts.0,
                    about: texts.1,
                    duration,
                    lead: Span::from_ns(times[0] % SECOND),
                    seed: u64::from(seed),
                    backend,
                    link,
                    hops,
                    rules: None,
                    hosts: Hosts {
                        up: 3,
                        down: 2,
                        jitter: Span::from_ns(times[0] % SECOND),
                        stall_share: Ratio::from_billionths(times[1] % 1_000_000_001),
                        stall: Span::from_ns(times[2] % SECOND),
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
        // A scenario with an inserted text or an override does not make it panic either.
        let mut broken = PLAIN.to_owned();
        broken.insert_str(at, &text);
        let _ = Scenario::parse("x.toml", &broken, &[]);
        let _ = Scenario::parse("x.toml", PLAIN, &[text]);
    }
}
