//! `sluice shape --test`, in namespaces of its own. It needs root or its capabilities.

use std::process::{Command, Stdio};

/// A line of the table: median and 95th percentile of the ping in ms, and Mbit/s up and down.
fn figures(table: &str, name: &str) -> [f64; 4] {
    let line = table.lines().find_map(|line| line.strip_prefix(name));
    let line = line.unwrap_or_else(|| panic!("no `{name}` in\n{table}"));
    let words: Vec<f64> = line
        .split_whitespace()
        .map(|word| word.parse().unwrap())
        .collect();
    words.try_into().expect("four figures")
}

/// A line of 5.25 Mbit/s up and 22 Mbit/s down with 20 ms of round trip. Its queue holds 500 ms in
/// each direction, and four transfers of CUBIC fill at least a quarter of one of them for a while.
#[test]
fn the_test_of_shape_shows_a_full_line_before_and_after() {
    let words = "shape --test --up 5Mbit/s --down 20Mbit/s --queue fq_codel --duration 4s";
    let output = Command::new(env!("CARGO_BIN_EXE_sluice"))
        .args(words.split(' '))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let table = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{table}{errors}");
    let [idle, ..] = figures(&table, "idle");
    let [before, fullest, ..] = figures(&table, "loaded, before");
    let [after, _, up, down] = figures(&table, "loaded, after: fq_codel");
    assert!((20.0..60.0).contains(&idle), "{table}");
    assert!(fullest > idle + 125.0, "{table}");
    assert!(after < before / 2.0, "{table}");
    // Less than the rates, because payload is counted, and most of them.
    assert!((2.5..5.0).contains(&up), "{table}");
    assert!((10.0..20.0).contains(&down), "{table}");
}

#[test]
fn the_test_of_shape_needs_both_rates_and_no_interface() {
    for words in [
        "shape --test --up 5Mbit/s",
        "shape --test --up 5Mbit/s --down 20Mbit/s eth0",
        "shape --up 5Mbit/s --duration 4s eth0",
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_sluice"))
            .args(words.split(' '))
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{words}");
    }
}
