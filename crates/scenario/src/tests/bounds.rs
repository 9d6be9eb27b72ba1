//! Scenarios of a few lines that would take all memory are refused.

use super::super::*;
use super::errors::errors;
use super::{PLAIN, variants};

/// Rates that take turns every 100 us, the shortest time.
const FAST: &str = r#"{ every = "100us", rates = ["1Mbit/s", "2Mbit/s"] }"#;

#[test]
fn a_long_key_is_shortened_in_messages() {
    let long = "a".repeat(100_000);
    let found = |text: &str| match Scenario::parse("x.toml", text, &[]) {
        Err(ScenarioErrors::Invalid(found)) => found,
        other => panic!("{other:?}"),
    };
    let of_link = found(&PLAIN.replace("[link]\n", &format!("[link]\n{long} = 1\n")));
    let expected = format!("unknown key `{}...` in [link]", &long[..40]);
    assert_eq!(of_link[0].message, expected);
    let of_matrix = found(&format!("{PLAIN}[matrix]\n{long} = 1\n"));
    let message = &of_matrix[0].message;
    assert!(message.contains("` in [matrix] takes a list"), "{message}");
    // Two halves of 2000 characters, and ` ... `.
    assert_eq!(message.len(), 4005);
}

#[test]
fn values_that_take_turns_have_a_limited_number_of_steps() {
    // 1000 h are 3.6e6 s, with 10^4 steps each.
    let text = PLAIN.replace("10s", "1000h");
    let fast = text.replace("\"10Mbit/s\"", FAST);
    let Err(ScenarioErrors::Invalid(found)) = Scenario::parse("x.toml", &fast, &[]) else {
        panic!("the scenario is refused");
    };
    let message = "values that take turns make more than 50000000 steps";
    assert_eq!(found[0].message, message);
    let hint = found[0].hint.as_deref().unwrap_or_default();
    assert!(hint.starts_with("the rate makes 36000000000 in"), "{hint}");
    assert_eq!(found[0].position.map(|(line, _)| line), Some(5));
    let delay = text.replace(
        "rtt = \"20ms\"",
        r#"delay = { every = "100us", delays = ["1ms", "2ms"] }"#,
    );
    let found = errors(&delay, &[]);
    assert!(found.contains("the delay makes 36000000000 in"), "{found}");
}

#[test]
fn variants_share_the_limit_of_steps() {
    // In 2500 s and each direction, `a` makes 250 000 steps and `b` 25 million.
    let slow = FAST.replace("100us", "10ms");
    let matrix = format!("[matrix]\n\"link.rate\" = {{ a = {slow}, b = {FAST} }}\n");
    let text = PLAIN.replace("10s", "2500s");
    let found = errors(&format!("{text}{matrix}"), &[]);
    assert!(found.contains("make more than 50000000 steps"), "{found}");
    assert!(found.contains("the rate makes 25000000 in"), "{found}");
}

#[test]
fn values_that_take_turns_last_until_the_end_of_the_run() {
    let every = FAST.replace("100us", "4s");
    let text = PLAIN.replace("\"10Mbit/s\"", &every);
    let scenario = &variants(&text, &[])[0].scenario;
    let steps = scenario.link.up.rate.steps().iter();
    // 10 s: two whole turns of 4 s, and half of one.
    let instants: Vec<u64> = steps.map(|(at, _)| at.as_ns() / 1_000_000_000).collect();
    assert_eq!(instants, [0, 4, 8]);
}

#[test]
fn a_recorded_scenario_repeats_its_values_for_a_limited_number_of_steps() {
    let text = PLAIN.replace("\"10Mbit/s\"", FAST);
    let link = &variants(&text, &[])[0].scenario.link;
    let until = |seconds| checks::fitting_turns(&[link], Span::from_secs(seconds));
    // 20 000 steps a second in both directions, and 50 million at most.
    assert_eq!(until(2_500), Span::from_secs(2_500));
    assert_eq!(until(3_600_000), Span::from_secs(2_500));
}

#[test]
fn bulk_flows_are_compared_in_a_limited_number_of_windows() {
    // 1000 h have 14.4 million windows, one each 250 ms, with 20 flows: 24 values each.
    let long = PLAIN.replace("10s", "1000h");
    let found = errors(&format!("{long}count = 20\n"), &[]);
    assert!(found.contains("more than 100000000 values"), "{found}");
    assert!(found.contains("they are 345600000 in a run of"), "{found}");
    assert!(found.contains("x.toml:2:"), "{found}");
    // A single flow is compared with no other, and a recorded run may have been stopped.
    let single = &variants(&long, &[])[0].scenario;
    let mut json = serde_json::to_value(single).unwrap();
    json["flow"][0]["count"] = 20.into();
    assert!(serde_json::from_value::<Scenario>(json).is_ok());
}

#[test]
fn a_scenario_names_regular_files_only() {
    let rate = |key| {
        let rate = format!("rate = {{ {key} = \"/dev/zero\" }}");
        PLAIN.replace("rate = \"10Mbit/s\"", &rate)
    };
    let capture = format!("{PLAIN}[[flow]]\ntype = \"pcap\"\nfile = \"/dev/zero\"\n");
    // It has no end.
    for text in [rate("csv"), rate("trace"), capture] {
        let found = errors(&text, &[]);
        let expected = "cannot read `/dev/zero`: it is not a regular file";
        assert!(found.contains(expected), "{found}");
    }
}
