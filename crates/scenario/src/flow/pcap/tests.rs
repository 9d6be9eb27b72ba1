use std::fs;
use std::path::Path;

use super::two_flows::{PACKETS, SCENARIO, capture};
use crate::{FlowKind, Scenario, Variant};

fn read(folder: &Path, text: &str) -> Result<Variant, String> {
    let file = folder.join("s.toml").display().to_string();
    let variants = Scenario::parse(&file, text, &[]).map_err(|error| error.to_string())?;
    Ok(variants.into_iter().next().expect("one variant"))
}

#[test]
fn each_flow_of_a_capture_is_a_flow_with_its_sizes_times_and_ecn() {
    let temp = tempfile::tempdir().unwrap();
    fs::write(temp.path().join("old.pcap"), capture(&PACKETS)).unwrap();
    let scenario = read(temp.path(), SCENARIO).unwrap().scenario;
    let names: Vec<String> = scenario.instances().map(|i| i.name).collect();
    assert_eq!(names, ["old-1", "old-2"]);
    let FlowKind::Pcap(pcap) = &scenario.flows[0].kind else {
        panic!("it is a capture");
    };
    let of = |number| -> Vec<_> {
        let packets = pcap.file.flow(number).iter();
        packets
            .map(|p| (p.after.as_ns(), p.payload, p.ecn))
            .collect()
    };
    // Minus 28 bytes of headers; 4000 bytes become 1500, 1500 and 1000; 40 become 52.
    let at = 100_000_000;
    let first = [(0, 1000, 2), (at, 1472, 3), (at, 1472, 3), (at, 972, 3)];
    assert_eq!(of(0), first);
    assert_eq!(of(1), [(at, 24, 0), (3 * at, 500, 1)]);
    assert_eq!(
        scenario.flows[0].kind.warnings(),
        [
            "`old.pcap`: packets shorter than 52 bytes, sent with 52: 1",
            "`old.pcap`: packets longer than 1500 bytes, sent as several: 1"
        ]
    );
    // A recording stores the packets without the file.
    let text = scenario.to_toml();
    assert!(text.contains("100000000,0,4000,3"), "{text}");
    assert_eq!(
        read(Path::new("/nowhere"), &text).unwrap().scenario,
        scenario
    );
}

#[test]
fn what_is_wrong_with_a_capture_is_said_where_it_is_named() {
    let temp = tempfile::tempdir().unwrap();
    let fails = |text: &str, words: &[&str]| {
        let error = read(temp.path(), text).unwrap_err();
        for word in words {
            assert!(error.contains(word), "{error}");
        }
    };
    fails(SCENARIO, &["s.toml:13:", "old.pcap", "paths are relative"]);
    let write = |bytes: &[u8]| fs::write(temp.path().join("old.pcap"), bytes).unwrap();
    write(b"time_ns,flow,size_bytes,ecn\n0,1,1500,0\n");
    fails(SCENARIO, &["is not a capture; expected pcap or pcapng"]);
    write(&capture(&PACKETS)[..60]);
    fails(SCENARIO, &["truncated"]);
    write(&capture(&[]));
    fails(SCENARIO, &["has no IP packets (it has 0 other packets)"]);
    write(&capture(&PACKETS));
    let text = format!("{SCENARIO}count = 3\n");
    fails(&text, &["the capture's number of flows, 2", "leave it out"]);
    fails(
        &SCENARIO.replace("file = \"old.pcap\"", ""),
        &["needs `file`"],
    );
}
