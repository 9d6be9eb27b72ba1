//! Flows of type `pcap`.

use std::fs::File;

use sluice_recording::metrics::measure;
use sluice_wire::capture::Writer;

use super::simulate_in;

const SCENARIO: &str = r#"
duration = "1s"
[link]
rate = "1Mbit/s"
rtt = "20ms"
[measure]
warmup = "0s"
window = "100ms"
step = "100ms"
[[flow]]
type = "pcap"
name = "old"
file = "old.pcap"
"#;

/// Microseconds, source port, bytes and ECN of two flows with two packets each. One packet was
/// joined by an offload, and one is too short for the measurement.
const PACKETS: [(i128, u16, u16, u8); 4] = [
    (0, 1, 1028, 2),
    (100_000, 2, 40, 0),
    (100_000, 1, 4000, 3),
    (300_000, 2, 528, 1),
];

/// IPv4 and UDP headers of a packet without link header (type 101), as with a snap length of 28.
fn headers(port: u16, bytes: u16, ecn: u8) -> Vec<u8> {
    let [high, low] = bytes.to_be_bytes();
    let mut headers = vec![0x45, ecn, high, low, 0, 0, 0, 0, 64, 17, 0, 0];
    headers.extend([192, 0, 2, 1, 192, 0, 2, 2]);
    headers.extend(port.to_be_bytes());
    headers.extend([0, 53, 0, 0, 0, 0]);
    headers
}

#[test]
fn a_simulated_run_replays_a_capture() {
    let temp = tempfile::tempdir().unwrap();
    let file = File::create(temp.path().join("old.pcap")).unwrap();
    let mut capture = Writer::new(file, 101).unwrap();
    for (us, port, bytes, ecn) in PACKETS {
        let parts = [&headers(port, bytes, ecn)[..], &[]];
        let time_ns = (1_000_000_000 + us) * 1000;
        capture.packet(time_ns, parts, u32::from(bytes)).unwrap();
    }
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
