//! Rates from files, and what a link carries with them.

use std::path::Path;

use sluice_core::{Rate, Span};

use super::super::*;

/// Returns the scenario of a run of 10 s with these keys in `[link]`, beside the file `name`.
fn with_file(folder: &Path, name: &str, content: &str, keys: &str) -> Scenario {
    std::fs::write(folder.join(name), content).unwrap();
    let text =
        format!("duration = \"10s\"\n[link]\n{keys}\nrtt = \"20ms\"\n[[flow]]\ntype = \"tcp\"\n");
    let file = folder.join("x.toml").display().to_string();
    let variants = Scenario::parse(&file, &text, &[]);
    let mut variants = variants.unwrap_or_else(|errors| panic!("{errors}"));
    variants.remove(0).scenario
}

/// One opportunity per millisecond for 4 s, then ten: 12 Mbit/s and 120 Mbit/s.
fn trace() -> String {
    let slow = (1..=4000).map(|ms| format!("{ms}\n"));
    let fast = (4001..=8000).map(|ms| format!("{ms}\n").repeat(10));
    slow.chain(fast).collect()
}

#[test]
fn a_trace_carries_the_opportunities_of_the_time() {
    let folder = tempfile::tempdir().unwrap();
    let keys = "rate = { trace = \"two.mahi\" }";
    let scenario = with_file(folder.path(), "two.mahi", &trace(), keys);
    let rate = &scenario.link.up.rate;
    let ms = Span::from_ms;
    let packets = |from, to| rate.bits_between(from, to).map(|bits| bits / 12_000.0);
    // Both ends count: 1, 2, ... 10 ms.
    assert_eq!(packets(ms(1), ms(10)), Some(10.0));
    assert_eq!(packets(Span::ZERO, ms(4000)), Some(4000.0));
    assert_eq!(packets(ms(4001), ms(4002)), Some(20.0));
    // The trace begins again after 8 s.
    assert_eq!(packets(ms(8001), ms(10_000)), Some(2000.0));
    // Means of 1 s each, every 500 ms; the window that ends at 4.5 s has half of each rate.
    let shown = rate.shown(Span::from_secs(1), ms(500), Span::from_secs(5));
    let mbps = |bps: f64| Some(Rate::from_bps((bps * 1e6) as u64));
    let expected = [
        (Span::ZERO, mbps(12.0)),
        (ms(1500), mbps(12.0)),
        (ms(2000), mbps(12.0)),
        (ms(2500), mbps(12.0)),
        (ms(3000), mbps(12.0)),
        (ms(3500), mbps(12.0)),
        (ms(4000), mbps(12.0)),
        (ms(4500), mbps(66.0)),
        (ms(5000), mbps(120.0)),
    ];
    assert_eq!(shown, expected);
}

#[test]
fn a_file_of_rates_has_a_rate() {
    let folder = tempfile::tempdir().unwrap();
    let keys = "rate = { csv = \"r.csv\" }";
    let ended = with_file(folder.path(), "r.csv", "0,8000000\n1000,0\n", keys);
    assert_eq!(ended.link.up.rate.at(Span::from_secs(1)), None);
    std::fs::write(folder.path().join("r.csv"), "0,0\n1000,0\n").unwrap();
    let text = format!("duration = \"2s\"\n[link]\n{keys}\n[[flow]]\ntype = \"tcp\"\n");
    let file = folder.path().join("x.toml").display().to_string();
    let told = Scenario::parse(&file, &text, &[]).unwrap_err().to_string();
    assert!(told.contains("`r.csv` has outages and no rate"), "{told}");
}

#[test]
fn the_rate_of_a_profile_is_that_of_its_link() {
    let folder = tempfile::tempdir().unwrap();
    let profile = "name modem\nbw 2Mbps\nsamples 4\nloss-level 1\nprob delay\n0 0\n1 1\n";
    for rate in [
        "\"100Mbit/s\"",
        "[[\"0s\", \"5Mbit/s\"], [\"2s\", \"7Mbit/s\"]]",
    ] {
        let keys = format!("rate = {rate}\nprofile = \"modem\"");
        let scenario = with_file(folder.path(), "modem", profile, &keys);
        let expected = Schedule::constant(Rate::from_bps(2_000_000));
        assert_eq!(scenario.link.up.rate, expected);
    }
    // Without one, the link keeps its own.
    let plain = profile.replace("bw 2Mbps\n", "");
    let keys = "rate = \"5Mbit/s\"\nprofile = \"plain\"";
    let scenario = with_file(folder.path(), "plain", &plain, keys);
    let expected = Schedule::constant(Rate::from_bps(5_000_000));
    assert_eq!(scenario.link.down.rate, expected);
}
