//! The settings of the simulator's TCP.

use sluice_tcp::rtt::RtoFloor;

use super::super::*;
use super::errors::errors;
use super::{PLAIN, names, variants};

#[test]
fn a_growth_without_cubic_is_told_to_change_nothing() {
    for (cc, is_told) in [("cubic", false), ("reno", true)] {
        let text = format!("{PLAIN}cc = \"{cc}\"\ngrowth = \"bytes\"");
        let flow = variants(&text, &[])[0].scenario.flows[0].clone();
        let expected = "`growth` applies to `cc = \"cubic\"`; with `reno` it has no effect";
        let told: &[&str] = if is_told { &[expected] } else { &[] };
        assert_eq!(flow.warnings(), told);
        assert_eq!(flow.beyond_kernel().is_none(), is_told);
    }
}

#[test]
fn an_initial_window_beyond_the_window_of_a_syn_ack_is_told_to_have_no_effect() {
    // 65535 / 1448 = 45.3
    for (segments, is_told) in [(45, false), (46, true)] {
        let text = format!("{PLAIN}initial_window = {segments}");
        let warnings = variants(&text, &[])[0].scenario.flows[0].warnings();
        let told: Vec<bool> = warnings
            .iter()
            .map(|text| text.starts_with("`initial_window` 46 acts like 45: "))
            .collect();
        assert_eq!(told, vec![true; usize::from(is_told)], "{warnings:?}");
    }
}

#[test]
fn abe_without_marks_is_told_to_change_nothing() {
    for (ecn, is_told) in [("false", true), ("true", false), ("\"accurate\"", false)] {
        let text = format!("{PLAIN}abe = true\necn = {ecn}");
        let expected = "`abe` applies to marks; without `ecn` it has no effect";
        let told: &[&str] = if is_told { &[expected] } else { &[] };
        assert_eq!(variants(&text, &[])[0].scenario.flows[0].warnings(), told);
    }
}

#[test]
fn every_flow_over_tcp_takes_the_settings_of_tcp() {
    for flow in ["tcp\"", "rr\"", "web\"\ninterval = \"1s\""] {
        let text = PLAIN.replace("tcp\"", flow);
        let keys = "abe = true\nslow_start = \"hystart_plus_plus\"\npacing = true\nrto_floor = { total = \"1s\" }\n";
        let scenario = &variants(&format!("{text}{keys}"), &[])[0].scenario;
        let expected = TcpSettings {
            growth: Growth::Segments,
            abe: true,
            slow_start: Some(SlowStart::HystartPlusPlus),
            pacing: Some(true),
            rto_floor: RtoFloor::Total(Span::from_secs(1)),
        };
        assert_eq!(scenario.flows[0].tcp, Some(expected), "{flow}");
    }
    assert_eq!(
        variants(&PLAIN.replace("tcp", "voip"), &[])[0]
            .scenario
            .flows[0]
            .tcp,
        None
    );
}

#[test]
fn a_growth_that_cubic_does_not_have_is_answered_with_those_that_it_has() {
    assert_eq!(
        errors(&format!("{PLAIN}growth = \"byte\""), &[]),
        "\
error: `growth` cannot be `byte`
  --> x.toml:10:10
   |
10 | growth = \"byte\"
   |          ^^^^^^ did you mean `bytes`?"
    );
}

#[test]
fn a_setting_that_the_congestion_control_does_not_have_is_answered_with_those_that_have_it() {
    assert_eq!(
        errors(&format!("{PLAIN}cc = \"bbr\"\nabe = true"), &[]),
        "\
error: `cc` bbr has no `abe`
  --> x.toml:11:7
   |
11 | abe = true
   |       ^^^^ it belongs to `reno` and `cubic`"
    );
    assert_eq!(
        errors(
            &format!("{PLAIN}cc = \"dctcp\"\nslow_start = \"hystart\""),
            &[]
        ),
        "\
error: `cc` dctcp has no `slow_start`
  --> x.toml:11:14
   |
11 | slow_start = \"hystart\"
   |              ^^^^^^^^^ it belongs to `reno` and `cubic`"
    );
    // A setting that is off is accepted for every congestion control.
    let off = format!("{PLAIN}cc = \"bbr\"\nabe = false");
    assert!(Scenario::parse("x.toml", &off, &[]).is_ok());
}

#[test]
fn a_setting_of_tcp_with_a_wrong_value_is_told_what_is_accepted() {
    for (line, message, hint) in [
        (
            "abe = 1",
            "`abe` takes true or false, not a whole number",
            "",
        ),
        (
            "pacing = \"on\"",
            "`pacing` takes true or false, not a string",
            "",
        ),
        (
            "slow_start = \"hystrat\"",
            "`slow_start` cannot be `hystrat`",
            "did you mean `hystart`?",
        ),
        (
            "rto_floor = \"100us\"",
            "`rto_floor` cannot be 100us",
            "1ms to 60s is accepted",
        ),
        (
            "rto_floor = { total = \"61s\" }",
            "`rto_floor` cannot be 61s",
            "1ms to 60s is accepted",
        ),
        (
            "rto_floor = { whole = \"1s\" }",
            "`rto_floor` as a table has other keys",
            "write \"200ms\" or { total = \"1s\" }",
        ),
    ] {
        let told = errors(&format!("{PLAIN}{line}"), &[]);
        let column = line.find("= ").unwrap() + 3;
        assert!(told.starts_with(&format!("error: {message}\n")), "{told}");
        assert!(told.contains(&format!("x.toml:10:{column}\n")), "{told}");
        assert!(told.trim_end().ends_with(hint), "{told}");
    }
    // UDP has no such setting.
    let text = PLAIN.replace("tcp\"", "udp\"\nrate = \"1Mbit/s\"");
    let told = errors(&format!("{text}abe = true"), &[]);
    assert!(
        told.starts_with("error: unknown key `abe` in a flow of type `udp`"),
        "{told}"
    );
}

#[test]
fn both_forms_of_the_floor_can_be_varied_and_set() {
    let matrix =
        "[matrix]\n\"flow.tcp.rto_floor\" = { linux = \"200ms\", rfc = { total = \"1s\" } }\n";
    let varied = variants(&format!("{PLAIN}{matrix}"), &[]);
    assert_eq!(names(&varied), ["linux", "rfc"]);
    let floor = |variant: &Variant| variant.scenario.flows[0].tcp.as_ref().unwrap().rto_floor;
    let total = RtoFloor::Total(Span::from_secs(1));
    assert_eq!(
        varied.iter().map(floor).collect::<Vec<_>>(),
        [RtoFloor::Variance(Span::from_ms(200)), total]
    );
    let set = variants(PLAIN, &["flow.tcp.rto_floor={ total = \"1s\" }"]);
    assert_eq!(floor(&set[0]), total);
}

#[test]
fn simulated_hosts_are_as_they_always_were_unless_something_else_is_said() {
    let plain = &variants(PLAIN, &[])[0].scenario.hosts;
    assert_eq!(plain.jitter, Span::from_us(50));
    assert_eq!(plain.stall_share, Ratio::from_billionths(0));
    let text = format!("{PLAIN}[hosts]\njitter = \"0ns\"\nstall_share = \"1%\"\n");
    let said = &variants(&text, &["hosts.stall=300us"])[0].scenario.hosts;
    assert_eq!(said.jitter, Span::ZERO);
    assert_eq!(said.stall_share, Ratio::from_billionths(10_000_000));
    assert_eq!(said.stall, Span::from_us(300));
    let matrix = "[matrix]\nhosts.stall_share = [0, 0.01]\n";
    let varied = variants(&format!("{PLAIN}{matrix}"), &[]);
    assert_eq!(names(&varied), ["stall_share=0", "stall_share=0.01"]);
}

#[test]
fn more_packets_than_all_cannot_be_stalled() {
    assert_eq!(
        errors(&format!("{PLAIN}[hosts]\nstall_share = 1.5"), &[]),
        "\
error: a `stall_share` of 1.5 is more than all packets
  --> x.toml:11:15
   |
11 | stall_share = 1.5
   |               ^^^ write 0.01 or \"1%\" for one packet in a hundred"
    );
}

#[test]
fn the_addresses_of_hosts_are_even_on_one_side_and_odd_on_the_other() {
    use crate::{Direction, Hosts};
    let address = |side, number| Hosts::address(side, number).to_string();
    assert_eq!(address(Direction::Up, 1), "10.0.23.2");
    assert_eq!(address(Direction::Down, 1), "10.0.23.3");
    assert_eq!(address(Direction::Up, 3), "10.0.23.6");
    // 3 + 2 * 99, the last host that is allowed.
    assert_eq!(address(Direction::Down, 100), "10.0.23.201");
}

#[test]
fn a_description_of_a_flow_names_every_key_beyond_its_default() {
    let rest = "type = \"tcp\"\n";
    for (keys, expected) in [
        (rest, "tcp cubic"),
        (
            "type = \"udp\"\nrate = \"3Mbit/s\"\nspacing = \"random_on_off\"\non = \"100ms\"\noff = \"300ms\"",
            "udp 3Mbit/s, 1200 B, spacing random_on_off, on 100ms, off 300ms",
        ),
        (
            "type = \"udp\"\nrate = \"1Mbit/s\"\nect = true\ndscp = \"ef\"\nclass = 3",
            "udp 1Mbit/s, 1200 B, ect, dscp ef, class 3",
        ),
        (
            "type = \"tcp\"\ncc = \"prague\"\necn = \"accurate\"\ncount = 2\nstagger = \"1s\"",
            "tcp prague, accurate ECN, stagger 1s",
        ),
        (
            "type = \"tcp\"\nbytes = \"100kB\"\npause = \"500ms\"\nrto_floor = \"10ms\"\nrtt = \"80ms\"",
            "tcp cubic, 100000B, pause 500ms, rto_floor 10ms, rtt 80ms",
        ),
        (
            "type = \"web\"\ninterval = \"700ms\"\nsize = { mean = \"20kB\" }",
            "pages of 6 objects every 700ms (Poisson), size { mean = \"20000B\" }",
        ),
        (
            "type = \"rr\"\nrequest = \"100B\"\nresponse = \"2kB\"\nthink = \"20ms\"\necn = true",
            "requests of 100B for 2000B, think 20ms, ecn",
        ),
        ("type = \"voip\"", "one direction of a call with G.711"),
    ] {
        let text = PLAIN.replace(rest, &format!("{keys}\n"));
        let flow = &variants(&text, &[])[0].scenario.flows[0];
        assert_eq!(flow.describe(), expected);
    }
}
