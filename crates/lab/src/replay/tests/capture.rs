//! The capture that a replay writes.

use std::fs::{self, File};
use std::io::Cursor;
use std::path::PathBuf;

use sluice_core::Ecn;
use sluice_scenario::trace::Capture;
use sluice_wire::capture::{Writer, link_type};

use super::*;

/// When the packets were captured: 2023-11-14, in nanoseconds since 1970.
const EPOCH: i128 = 1_700_000_000_000_000_000;

/// An Ethernet frame of 1000 B with IPv4 and UDP, ECT(0), and a correct checksum.
fn frame() -> Vec<u8> {
    let mut frame = vec![0x02; 12];
    frame.extend([0x08, 0x00]);
    let mut ip = vec![0x45, 0x02];
    ip.extend(986u16.to_be_bytes());
    ip.extend([0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 1, 1]);
    let checksum = !sum(&ip);
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    frame.extend(ip);
    frame.extend(1000u16.to_be_bytes());
    frame.extend(53u16.to_be_bytes());
    frame.extend(966u16.to_be_bytes());
    frame.extend([0, 0]);
    frame.resize(1000, 0x55);
    frame
}

/// RFC 1071: the ones' complement sum of 16-bit words; 0xffff over a correct header.
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let mut total: u32 = words.sum();
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

#[test]
fn what_leaves_is_written_with_marks_and_right_checksums() {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (
        folder.path().join("in.pcap"),
        folder.path().join("out.pcap"),
    );
    // 40 frames of 1000 B at once: 1 ms each at 8 Mbit/s. CoDel marks packets 11, 21, 29 and 34, as
    // computed beside the tests of whole replays.
    let frames: Vec<(i128, Vec<u8>)> = (0..40).map(|_| (EPOCH, frame())).collect();
    let mut writer = Writer::new(File::create(&input).unwrap(), link_type::ETHERNET).unwrap();
    for (time, bytes) in &frames {
        let length = bytes.len() as u32;
        writer.packet(*time, [bytes, &[]], length).unwrap();
    }
    let job = Job {
        trace: input,
        queue: parse_queue("codel target 1ms interval 10ms mtu 0 ecn").unwrap(),
        rate: parse_rate("8Mbit/s").unwrap(),
        hash: Hash::Flow,
        seed: 1,
        draws: None,
        record: None,
        outputs: Outputs {
            capture: Some(output.clone()),
            ..Outputs::default()
        },
    };
    let summary = run(&job, &mut |_, _| {}).unwrap().summary;
    assert_eq!(summary.marked, 4);
    let written = fs::read(&output).unwrap();
    let path = PathBuf::from("out");
    let mut capture = Capture::new(Cursor::new(written), &path, Hash::Flow, 1).unwrap();
    for k in 0..40u64 {
        let arrival = capture.read().unwrap().expect("all 40 have left");
        assert_eq!(arrival.time.as_ns(), k * 1_000_000);
        let is_marked = [11, 21, 29, 34].contains(&k);
        assert_eq!(arrival.ecn == Ecn::Ce, is_marked, "packet {k}");
        let bytes = capture.frame().bytes();
        assert_eq!(sum(&bytes[14..34]), 0xffff, "packet {k}");
        // Only the TOS octet and the checksum have changed.
        let original = &frames[k as usize].1;
        assert_eq!(bytes[..15], original[..15]);
        assert_eq!(bytes[16..24], original[16..24]);
        assert_eq!(bytes[26..], original[26..]);
    }
    assert_eq!(capture.origin_ns(), EPOCH);
    assert!(capture.read().unwrap().is_none());
}
