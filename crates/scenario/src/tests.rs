//! The meaning of scenarios. [`bounds`] tests what would take all memory, [`errors`] the messages about
//! errors, [`figures`] the figures of expectations, [`print`] that scenarios print back, [`rates`] rates
//! from files, [`ratios`] numbers without a unit, [`settings`] the TCP settings, [`sweeps`] what variants set
//! together.

mod bounds;
mod errors;
mod figures;
mod print;
mod rates;
mod ratios;
mod settings;
mod sweeps;

use sluice_core::Rate;

use super::*;

const PLAIN: &str = r#"title = "t"
duration = "10s"

[link]
rate = "10Mbit/s"
rtt = "20ms"

[[flow]]
type = "tcp"
"#;

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
    // UPDATE_EXPECT=1 rewrites the page.
    expect_test::expect_file!["../../../docs/scenario.md"].assert_eq(&reference());
}

#[test]
fn the_round_trip_time_is_split_between_the_directions() {
    let scenario = &variants(&PLAIN.replace("20ms", "3ns"), &[])[0].scenario;
    assert_eq!(scenario.link.up.delay.first(), Span::from_ns(2));
    assert_eq!(scenario.link.down.delay.first(), Span::from_ns(1));
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
    assert_eq!(link.down.delay.first(), Span::from_ms(10));
}

#[test]
fn a_schedule_holds_each_rate_until_the_next() {
    let rate = r#"[["0s", "100Mbit/s"], ["2s", "10Mbit/s"], ["5s", "50Mbit/s"]]"#;
    let text = PLAIN.replace(r#""10Mbit/s""#, rate);
    let rate = &variants(&text, &[])[0].scenario.link.up.rate;
    let at = |ms| rate.at(Span::from_ms(ms)).unwrap().as_bps() / 1_000_000;
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
    assert!(!tcp.ecn.is_on());
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

#[test]
fn no_name_of_a_variant_leads_out_of_the_folder() {
    let folders = ["..", ".", "../../x", "a/../b", ".hidden"].map(crate::folder::slug);
    assert_eq!(folders, ["-.", "-", "-.-..-x", "a-..-b", "-hidden"]);
}
