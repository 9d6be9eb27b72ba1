//! Flows of type `pcap`.

use std::fs;

use sluice_recording::metrics::measure;

use super::simulate_in;
use two_flows::{PACKETS, SCENARIO, capture};

#[path = "../../../../scenario/src/flow/pcap/two_flows.rs"]
mod two_flows;

#[test]
fn a_simulated_run_replays_a_capture() {
    let temp = tempfile::tempdir().unwrap();
    fs::write(temp.path().join("old.pcap"), capture(&PACKETS)).unwrap();
    let recording = simulate_in(temp.path(), SCENARIO).unwrap();
    let mut seen: Vec<_> = recording
        .packets()
        .unwrap()
        .map(|row| row.unwrap().record)
        .map(|packet| (packet.flow, packet.len, packet.arrival.as_ns() / 1_000_000))
        .collect();
    seen.sort_unstable();
    // 12 ms for 1500 bytes at 1 Mbit/s: the three packets of the long one queue behind one another.
    let mut expected = [
        (0, 1028, 0),
        (1, 52, 100),
        (0, 1500, 100),
        (0, 1500, 100),
        (0, 1000, 100),
        (1, 528, 300),
    ];
    expected.sort_unstable();
    assert_eq!(seen, expected);
    let summary = measure(&recording).unwrap();
    let flow = |name: &str| summary.flows.iter().find(|flow| flow.name == name).unwrap();
    assert_eq!(flow("old-1").bytes, Some(1000 + 1472 + 1472 + 972));
    assert_eq!(
        (flow("old-2").bytes, flow("old-2").loss),
        (Some(524), Some(0.0))
    );
}
