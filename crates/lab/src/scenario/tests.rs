use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use sluice_core::param::{Kind, ParamDecl, Value as ParamValue, Values};
use sluice_core::registry::{self, Spec};
use sluice_core::{Bytes, Rate};

use super::*;

const PLAIN: &str = r#"title = "t"
duration = "10s"

[link]
rate = "10Mbit/s"
rtt = "20ms"

[[flow]]
type = "tcp"
"#;

fn errors(text: &str, sets: &[&str]) -> String {
    let sets: Vec<String> = sets.iter().map(|s| (*s).to_owned()).collect();
    match Scenario::parse("x.toml", text, &sets) {
        Ok(variants) => panic!("nothing is wrong with {variants:?}"),
        Err(errors) => errors.to_string(),
    }
}

fn variants(text: &str, sets: &[&str]) -> Vec<Variant> {
    let sets: Vec<String> = sets.iter().map(|s| (*s).to_owned()).collect();
    Scenario::parse("x.toml", text, &sets).unwrap_or_else(|errors| panic!("{errors}"))
}

fn names(variants: &[Variant]) -> Vec<&str> {
    variants.iter().map(|v| v.name.as_str()).collect()
}

#[test]
fn the_first_scenario_has_three_variants() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../scenarios/first-light.toml"
    );
    let variants = Scenario::load(path.as_ref(), &[]).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(names(&variants), ["fifo", "codel", "fq_codel"]);
    let bounds = |v: &Variant| {
        v.scenario
            .expect
            .iter()
            .map(Expect::bounds)
            .collect::<Vec<_>>()
    };
    let goodput = "at least 9.364Mbit/s and at most 9.943Mbit/s";
    assert_eq!(bounds(&variants[0]), ["at least 200ms", goodput]);
    assert_eq!(bounds(&variants[2]), ["at most 23ms", goodput]);
}

#[test]
fn the_reference_page_is_current() {
    // UPDATE_EXPECT=1 writes the page anew.
    expect_test::expect_file!["../../../../docs/scenario.md"].assert_eq(&reference());
}

// What a scenario means.

#[test]
fn the_round_trip_time_is_split_between_the_directions() {
    let scenario = &variants(&PLAIN.replace("20ms", "3ns"), &[])[0].scenario;
    assert_eq!(scenario.link.up.delay, Span::from_ns(2));
    assert_eq!(scenario.link.down.delay, Span::from_ns(1));
    assert_eq!(scenario.link.rtt(), Span::from_ns(3));
}

#[test]
fn a_direction_overrides_the_link_key_by_key() {
    let text = format!("{PLAIN}[link.down]\nrate = \"1Mbit/s\"\nqueue = \"codel target 7ms\"\n");
    let link = &variants(&text, &[])[0].scenario.link;
    assert_eq!(link.up.rate, Schedule::constant(Rate::from_bps(10_000_000)));
    assert_eq!(link.up.queue.to_string(), "fifo");
    assert_eq!(
        link.down.rate,
        Schedule::constant(Rate::from_bps(1_000_000))
    );
    assert_eq!(link.down.queue.to_string(), "codel target 7ms");
    assert_eq!(link.down.delay, Span::from_ms(10));
}

#[test]
fn a_schedule_holds_each_rate_until_the_next() {
    let rate = r#"[["0s", "100Mbit/s"], ["2s", "10Mbit/s"], ["5s", "50Mbit/s"]]"#;
    let text = PLAIN.replace(r#""10Mbit/s""#, rate);
    let rate = &variants(&text, &[])[0].scenario.link.up.rate;
    let at = |ms| rate.at(Span::from_ms(ms)).as_bps() / 1_000_000;
    assert_eq!(
        [at(0), at(1999), at(2000), at(4999), at(5000), at(99_000)],
        [100, 100, 10, 10, 50, 50]
    );
    // 1 s of 100 Mbit/s, 3 s of 10 Mbit/s and 2 s of 50 Mbit/s.
    let bits = rate.bits_between(Span::from_secs(1), Span::from_secs(7));
    assert_eq!(bits, Some(230e6));
}

#[test]
fn the_matrix_is_crossed_and_its_last_key_varies_fastest() {
    let text = format!(
        "{PLAIN}name = \"bulk\"\n[matrix]\n\
         link.queue = [\"fifo limit 10\", \"fifo limit 100\", \"codel\"]\n\
         \"flow.bulk.ecn\" = [true, false]\n"
    );
    let variants = variants(&text, &[]);
    assert_eq!(
        names(&variants),
        [
            "fifo limit 10 ecn=true",
            "fifo limit 10 ecn=false",
            "fifo limit 100 ecn=true",
            "fifo limit 100 ecn=false",
            "codel ecn=true",
            "codel ecn=false",
        ]
    );
    assert_eq!(
        variants[3].scenario.link.down.queue.to_string(),
        "fifo limit 100"
    );
    assert_eq!(variants[3].folder(), "fifo-limit-100-ecn=false");
    let FlowKind::Tcp(tcp) = &variants[3].scenario.flows[0].kind else {
        panic!("the flow is TCP");
    };
    assert!(!tcp.ecn);
}

#[test]
fn the_values_of_a_matrix_can_be_named() {
    let text = format!(
        "{PLAIN}[matrix]\n\"link.rate\" = {{ dsl = \"1Mbit/s\", step = [[\"0s\", \"1Mbit/s\"], [\"1s\", \"2Mbit/s\"]] }}\n\
         \"link.rtt\" = [\"10ms\", \"100ms\"]\n"
    );
    let variants = variants(&text, &[]);
    assert_eq!(
        names(&variants),
        [
            "dsl rtt=10ms",
            "dsl rtt=100ms",
            "step rtt=10ms",
            "step rtt=100ms"
        ]
    );
    assert_eq!(variants[3].scenario.link.up.rate.steps().len(), 2);
}

#[test]
fn flows_without_a_name_are_called_by_their_type() {
    let text = format!(
        "{PLAIN}[[flow]]\ntype = \"ping\"\n[[flow]]\ntype = \"ping\"\n[[flow]]\ntype = \"udp\"\nrate = \"1Mbit/s\"\ncount = 2\n"
    );
    let scenario = variants(&text, &[]).remove(0).scenario;
    let instances: Vec<(u32, String)> = scenario.instances().map(|i| (i.id, i.name)).collect();
    let expected = ["tcp", "ping1", "ping2", "udp-1", "udp-2"];
    let expected: Vec<(u32, String)> = (0..).zip(expected.map(str::to_owned)).collect();
    assert_eq!(instances, expected);
}

#[test]
fn an_override_replaces_a_key_and_its_axis() {
    let text = format!(
        "{PLAIN}[matrix]\n\"link.queue\" = [\"fifo\", \"codel\"]\n\
         [[expect]]\nmetric = \"tcp.goodput\"\nvariant = \"codel\"\nmin = \"9Mbit/s\"\n\
         [[expect]]\nmetric = \"tcp.goodput\"\nvariant = \"fifo\"\nmin = \"8Mbit/s\"\n"
    );
    let one = variants(
        &text,
        &["link.queue=codel target 7ms", "flow.tcp.cc=reno", "seed=7"],
    );
    assert_eq!(names(&one), ["codel"]);
    assert_eq!(one[0].scenario.seed, 7);
    assert_eq!(
        one[0].scenario.link.up.queue.to_string(),
        "codel target 7ms"
    );
    let FlowKind::Tcp(tcp) = &one[0].scenario.flows[0].kind else {
        panic!("the flow is TCP");
    };
    assert_eq!(tcp.cc.0, "reno");
    assert_eq!(
        one[0].scenario.expect.len(),
        1,
        "that of the variant that is left"
    );

    let other = variants(&text, &[r#"matrix.link.queue=["fq_codel", "droptail"]"#]);
    assert_eq!(names(&other), ["fq_codel", "droptail"]);
    assert!(other.iter().all(|v| v.scenario.expect.is_empty()));
}

#[test]
fn a_bound_is_read_in_the_unit_of_its_metric() {
    let text = format!(
        "{PLAIN}[[expect]]\nmetric = \"up.utilisation\"\nmin = \"97.5%\"\n\
         [[expect]]\nmetric = \"up.drops.congestion\"\nmax = 3\n"
    );
    let expect = &variants(&text, &[])[0].scenario.expect;
    assert_eq!(expect[0].min.map(Quantity::as_f64), Some(0.975));
    assert_eq!(expect[1].max, Some(Quantity::Count(3)));
}

// What is wrong with one.

#[test]
fn an_unknown_key_is_answered_with_the_nearest() {
    assert_eq!(
        errors(&PLAIN.replace("rtt", "rte"), &[]),
        "\
error: unknown key `rte` in [link]
 --> x.toml:6:1
  |
6 | rte = \"20ms\"
  | ^^^ did you mean `rate`?"
    );
}

#[test]
fn a_key_like_no_other_is_answered_with_all_of_them() {
    assert_eq!(
        errors(&format!("{PLAIN}colour = \"blue\""), &[]),
        "\
error: unknown key `colour` in a flow of type `tcp`
  --> x.toml:10:1
   |
10 | colour = \"blue\"
   | ^^^^^^ one of: type, name, count, direction, start, stop, cc, ecn, bytes, dscp"
    );
}

#[test]
fn a_missing_key_is_named_with_what_it_takes() {
    assert_eq!(
        errors(&PLAIN.replace("rate = \"10Mbit/s\"\n", ""), &[]),
        "\
error: [link] needs `rate`
 --> x.toml:4:1
  |
4 | [link]
  | ^^^^^^ `rate` is a rate or schedule"
    );
}

#[test]
fn a_value_of_the_wrong_type_is_told_what_is_accepted() {
    assert_eq!(
        errors(&PLAIN.replace("\"10s\"", "true"), &[]),
        "\
error: `duration` takes a time such as \"20ms\", not a truth value
 --> x.toml:2:12
  |
2 | duration = true
  |            ^^^^"
    );
}

#[test]
fn a_missing_unit_is_asked_for() {
    assert_eq!(
        errors(&PLAIN.replace("\"20ms\"", "20"), &[]),
        "\
error: `rtt` has no unit
 --> x.toml:6:7
  |
6 | rtt = 20
  |       ^^ write it as in \"20ms\"; units: ns, us, ms, s, min, h"
    );
    assert_eq!(
        errors(&PLAIN.replace("20ms", "20"), &[]),
        "\
error: `rtt` has no unit
 --> x.toml:6:8
  |
6 | rtt = \"20\"
  |        ^^ units: ns, us, ms, s, min, h"
    );
}

#[test]
fn a_wrong_unit_is_pointed_at_within_its_string() {
    assert_eq!(
        errors(&PLAIN.replace("10Mbit/s", "10 Mbits"), &[]),
        "\
error: `Mbits` is not a unit of rate
 --> x.toml:5:12
  |
5 | rate = \"10 Mbits\"
  |            ^^^^^ did you mean `Mbit/s`?"
    );
}

#[test]
fn an_impossible_value_is_answered_with_the_range() {
    let text = format!("{PLAIN}[[flow]]\ntype = \"ping\"\nsize = 4000\n");
    assert_eq!(
        errors(&text, &[]),
        "\
error: `size` cannot be 4000
  --> x.toml:12:8
   |
12 | size = 4000
   |        ^^^^ 16 to 1472 is accepted"
    );
    assert_eq!(
        errors(&PLAIN.replace("10Mbit/s", "0Mbit/s"), &[]),
        "\
error: `rate` cannot be 0Mbit/s
 --> x.toml:5:9
  |
5 | rate = \"0Mbit/s\"
  |         ^^^^^^^ must be more than zero"
    );
}

#[test]
fn a_delay_contradicts_a_round_trip_time() {
    assert_eq!(
        errors(
            &PLAIN.replace("rtt = \"20ms\"", "rtt = \"20ms\"\ndelay = \"10ms\""),
            &[]
        ),
        "\
error: `delay` contradicts `rtt`
 --> x.toml:7:1
  |
6 | rtt = \"20ms\"
  | --- `rtt` is set
7 | delay = \"10ms\"
  | ^^^^^ give one of them"
    );
}

#[test]
fn a_flow_outside_the_run_is_refused() {
    assert_eq!(
        errors(&format!("{PLAIN}start = \"5s\"\nstop = \"3s\"\n"), &[]),
        "\
error: flow `tcp` stops at 3s before it starts
  --> x.toml:11:8
   |
11 | stop = \"3s\"
   |        ^^^^ it starts at 5s"
    );
    assert_eq!(
        errors(&format!("{PLAIN}start = \"20s\"\n"), &[]),
        "\
error: flow `tcp` starts at 20s, when the run is over
  --> x.toml:10:9
   |
10 | start = \"20s\"
   |         ^^^^^ the run lasts 10s"
    );
}

#[test]
fn a_warm_up_that_leaves_nothing_is_refused() {
    assert_eq!(
        errors(&format!("{PLAIN}[measure]\nwarmup = \"10s\"\n"), &[]),
        "\
error: nothing is left after a warm-up of 10s
  --> x.toml:11:10
   |
11 | warmup = \"10s\"
   |          ^^^^^ the run lasts 10s"
    );
    assert_eq!(
        errors(&format!("{PLAIN}start = \"9.5s\"\n"), &[]),
        "\
error: flow `tcp` lasts 500ms, and its warm-up is 1s
  --> x.toml:10:9
   |
10 | start = \"9.5s\"
   |         ^^^^^^ it must last longer, or `warmup` in [measure] be shorter"
    );
}

#[test]
fn a_queue_is_pointed_at_word_by_word() {
    let queue = |words: &str| errors(PLAIN, &[&format!("link.queue={words}")]);
    assert_eq!(
        queue("codel tarqet 5ms"),
        "\
error: `codel` has no parameter `tarqet`
 |
 | --set link.queue=codel tarqet 5ms
 |                        ^^^^^^ did you mean `target`?"
    );
    assert_eq!(
        queue("codel target"),
        "\
error: `target` needs a value
 |
 | --set link.queue=codel target
 |                        ^^^^^^"
    );
    let text =
        format!("{PLAIN}[matrix]\n\"link.queue\" = [\"fifo\", \"fq_codel  interval 200s\"]\n");
    assert_eq!(
        errors(&text, &[]),
        "\
error: `interval 200s` is outside 1us to 100s
  --> x.toml:11:45
   |
11 | \"link.queue\" = [\"fifo\", \"fq_codel  interval 200s\"]
   |                                             ^^^^"
    );
}

#[test]
fn two_flows_of_one_name_are_refused() {
    let text = format!(
        "{PLAIN}name = \"a-2\"\n[[flow]]\ntype = \"udp\"\nrate = \"1Mbit/s\"\nname = \"a\"\ncount = 3\n"
    );
    assert_eq!(
        errors(&text, &[]),
        "\
error: two flows are named `a-2`
  --> x.toml:14:8
   |
10 | name = \"a-2\"
   |        ----- the first is named
...
14 | name = \"a\"
   |        ^^^"
    );
}

#[test]
fn an_empty_matrix_is_refused() {
    assert_eq!(
        errors(&format!("{PLAIN}[matrix]\n\"link.queue\" = []\n"), &[]),
        "\
error: `link.queue` in [matrix] has no values
  --> x.toml:11:16
   |
11 | \"link.queue\" = []
   |                ^^ give at least one"
    );
    assert_eq!(
        errors(&format!("{PLAIN}[matrix]\n"), &[]),
        "\
error: [matrix] is empty
  --> x.toml:10:2
   |
10 | [matrix]
   |  ^^^^^^ give a key with values, such as \"link.queue\" = [\"fifo\", \"fq_codel\"]"
    );
}

#[test]
fn a_matrix_of_a_key_that_is_not_there_is_refused_once() {
    let text = format!("{PLAIN}[matrix]\n\"link.quue\" = [\"fifo\", \"codel\"]\n");
    assert_eq!(
        errors(&text, &[]),
        "\
error: unknown key `quue` in [link]
  --> x.toml:11:1
   |
11 | \"link.quue\" = [\"fifo\", \"codel\"]
   | ^^^^^^^^^^^ did you mean `queue`?"
    );
}

#[test]
fn an_expectation_of_nothing_is_refused() {
    let text = format!(
        "{PLAIN}[[expect]]\nmetric = \"tcp.goodputs\"\nmin = \"1Mbit/s\"\n\
         [[expect]]\nmetric = \"jain\"\nvariant = \"fifi\"\nmin = 0.9\n\
         [[expect]]\nmetric = \"jain\"\n\
         [[expect]]\nmetric = \"up.sojourn.p50\"\nmin = \"3ms\"\nmax = \"2ms\"\n"
    );
    assert_eq!(
        errors(&text, &[]),
        "\
error: `tcp` has no metric `goodputs`
  --> x.toml:11:15
   |
11 | metric = \"tcp.goodputs\"
   |               ^^^^^^^^ did you mean `goodput`?

error: there is no variant `fifi`
  --> x.toml:15:11
   |
15 | variant = \"fifi\"
   |           ^^^^^^ did you mean `fifo`?

error: [[expect]] has neither `min` nor `max`
  --> x.toml:17:1
   |
17 | [[expect]]
   | ^^^^^^^^^^ give one of them or both

error: no value is at least 3ms and at most 2ms
  --> x.toml:22:7
   |
21 | min = \"3ms\"
   |       ----- `min` is set
22 | max = \"2ms\"
   |       ^^^^^"
    );
}

#[test]
fn errors_of_syntax_are_told_all_at_once() {
    assert_eq!(
        errors("duration = 10s\n[link\nrate = \"1Mbit/s\"\n", &[]),
        "\
error: a string must be quoted
 --> x.toml:1:12
  |
1 | duration = 10s
  |            ^^^ write \"10s\"

error: not TOML: unclosed table, expected `]`
 --> x.toml:2:6
  |
2 | [link
  |      ^"
    );
}

#[test]
fn a_wrong_override_is_shown_as_it_was_given() {
    assert_eq!(
        errors(
            PLAIN,
            &["link.rate", "flow.bulk.cc=bbr", "flow.tcp.start=1"]
        ),
        "\
error: an override needs `=`
 |
 | --set link.rate
 |       ^^^^^^^^^ write it as KEY=VALUE, such as link.rate=10Mbit/s

error: there is no flow `bulk`
 |
 | --set flow.bulk.cc=bbr
 |       ^^^^^^^^^^^^ one of: tcp

error: `start` has no unit
 |
 | --set flow.tcp.start=1
 |                      ^ write it as in \"20ms\"; units: ns, us, ms, s, min, h"
    );
}

#[test]
fn a_schedule_out_of_order_is_refused() {
    let rate = r#"[["0s", "1Mbit/s"], ["3s", "2Mbit/s"], ["2s", "1Mbit/s"]]"#;
    let text = PLAIN.replace(r#""10Mbit/s""#, rate);
    let expected = "error: a step at 2s cannot follow one at 3s\n --> x.toml:5:48\n";
    assert!(
        errors(&text, &[]).starts_with(expected),
        "{}",
        errors(&text, &[])
    );
    let text = PLAIN.replace(
        r#""10Mbit/s""#,
        r#"[["0s", "1Mbit/s"], ["30s", "2Mbit/s"]]"#,
    );
    let expected = "error: the rate's step at 30s comes after the run\n --> x.toml:5:8\n";
    assert!(
        errors(&text, &[]).starts_with(expected),
        "{}",
        errors(&text, &[])
    );
}

#[test]
fn a_file_that_is_not_there_is_named() {
    let error = Scenario::load("no/such.toml".as_ref(), &[])
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("cannot read the scenario `no/such.toml`: "),
        "{error}"
    );
}

#[test]
fn an_empty_file_is_told_what_it_lacks() {
    let errors = errors("", &[]);
    assert!(errors.contains("the scenario needs `duration`"), "{errors}");
    assert!(errors.contains("there is no [link]"), "{errors}");
    assert!(errors.contains("x.toml:1:1"), "{errors}");
}

// Print and parse.

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
        (1..1_u64 << 39, 16..=65507_u64, dscp()).prop_map(|(rate, size, dscp)| {
            FlowKind::Udp(Udp {
                rate: Rate::from_bps(rate),
                size,
                dscp,
            })
        }),
        (span(100_000, 60 * SECOND), 16..=1472_u64, dscp()).prop_map(|(interval, size, dscp)| {
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
                (flows, 0..=3_usize),
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
                        window: Span::from_ns(times[1]),
                        step: Span::from_ns(times[2]),
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
