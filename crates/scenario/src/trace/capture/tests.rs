use std::fs;
use std::io::Cursor;
use std::path::PathBuf;

use sluice_wire::capture::Writer;

use super::super::{Hash, Trace};
use super::*;

/// An Ethernet frame with IPv4 and UDP, ECT(0), and a correct checksum.
fn udp(source: u8, port: u16, payload: usize) -> Vec<u8> {
    let mut frame = vec![0x02; 12];
    frame.extend([0x08, 0x00]);
    let total = (28 + payload) as u16;
    let mut ip = vec![0x45, 0x02];
    ip.extend(total.to_be_bytes());
    ip.extend([0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, source, 10, 0, 1, 1]);
    let checksum = !sum(&ip);
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    frame.extend(ip);
    frame.extend(port.to_be_bytes());
    frame.extend(53u16.to_be_bytes());
    frame.extend(((8 + payload) as u16).to_be_bytes());
    frame.extend([0, 0]);
    frame.resize(frame.len() + payload, 0x55);
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

/// A pcap file with packets of `(ns since 1970, bytes)`.
fn pcap(link: u32, packets: &[(i128, Vec<u8>)]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), link).unwrap();
    for (time, bytes) in packets {
        let length = bytes.len() as u32;
        writer.packet(*time, [bytes, &[]], length).unwrap();
    }
    writer.into_inner()
}

/// A block of a pcapng file.
fn block(kind: u32, body: &[u8]) -> Vec<u8> {
    let mut body = body.to_vec();
    body.resize(body.len().next_multiple_of(4), 0);
    let len = (body.len() + 12) as u32;
    [
        kind.to_le_bytes().to_vec(),
        len.to_le_bytes().to_vec(),
        body,
        len.to_le_bytes().to_vec(),
    ]
    .concat()
}

fn section() -> Vec<u8> {
    let mut body = 0x1a2b_3c4d_u32.to_le_bytes().to_vec();
    body.extend([1, 0, 0, 0]);
    body.extend([0xff; 8]);
    block(0x0a0d_0d0a, &body)
}

/// An interface whose clock has `resolution` (`if_tsresol`, option 9).
fn interface(link: u16, resolution: u8) -> Vec<u8> {
    let mut body = link.to_le_bytes().to_vec();
    body.extend([0; 6]);
    body.extend([9, 0, 1, 0, resolution, 0, 0, 0, 0, 0, 0, 0]);
    block(1, &body)
}

fn enhanced(interface: u32, ticks: u64, bytes: &[u8]) -> Vec<u8> {
    let mut body = interface.to_le_bytes().to_vec();
    body.extend(((ticks >> 32) as u32).to_le_bytes());
    body.extend((ticks as u32).to_le_bytes());
    body.extend((bytes.len() as u32).to_le_bytes());
    body.extend((bytes.len() as u32).to_le_bytes());
    body.extend(bytes);
    block(6, &body)
}

fn read(file: Vec<u8>) -> Result<Vec<Arrival>, String> {
    let path = PathBuf::from("x");
    let mut capture =
        Capture::new(Cursor::new(file), &path, Hash::Flow, 1).map_err(|error| error.to_string())?;
    let mut all = Vec::new();
    while let Some(arrival) = capture.read().map_err(|error| error.to_string())? {
        all.push(arrival);
    }
    Ok(all)
}

const EPOCH: i128 = 1_700_000_000_000_000_000;

#[test]
fn flows_are_numbered_as_they_appear_and_time_counts_from_the_first_packet() {
    let file = pcap(
        1,
        &[
            (EPOCH, udp(1, 1000, 100)),
            (EPOCH + 5, udp(2, 1000, 100)),
            (EPOCH + 7, udp(1, 1000, 58)),
            (EPOCH + 2_000_000_000, udp(1, 1001, 0)),
        ],
    );
    let all = read(file).unwrap();
    let flows: Vec<u32> = all.iter().map(|a| a.flow).collect();
    assert_eq!(flows, [0, 1, 0, 2]);
    let times: Vec<u64> = all.iter().map(|a| a.time.as_ns()).collect();
    assert_eq!(times, [0, 5, 7, 2_000_000_000]);
    // 14 B Ethernet, 20 B IPv4, 8 B UDP.
    assert_eq!((all[0].len, all[2].len), (142, 100));
    assert_eq!(all[0].ecn, Ecn::Ect0);
    // Packets of one host have one hash for it.
    assert_eq!(all[0].hashes[1], all[3].hashes[1]);
    assert_ne!(all[0].hashes[1], all[1].hashes[1]);
}

#[test]
fn pcapng_clocks_are_read_in_their_own_resolution() {
    // Interface 0 counts us, interface 1 units of 2^-10 s: 1.5 s is 1 500 000 and 1536.
    let file = [
        section(),
        interface(1, 6),
        interface(1, 0x8a),
        enhanced(0, 1_000_000, &udp(1, 1, 10)),
        enhanced(1, 1536, &udp(1, 1, 10)),
        block(0x0bad, &[1, 2, 3, 4]),
        enhanced(0, 2_000_001, &udp(1, 1, 10)),
    ]
    .concat();
    let times: Vec<u64> = read(file).unwrap().iter().map(|a| a.time.as_ns()).collect();
    assert_eq!(times, [0, 500_000_000, 1_000_001_000]);
}

#[test]
fn raw_and_cooked_packets_are_measured_without_their_link_header() {
    let ip = udp(1, 1000, 100)[14..].to_vec();
    let raw = read(pcap(101, &[(EPOCH, ip.clone())])).unwrap();
    // 16 B: type, hardware type, address length, address, protocol.
    let cooked = [vec![0; 14], vec![0x08, 0x00], ip.clone()].concat();
    let cooked = read(pcap(113, &[(EPOCH, cooked)])).unwrap();
    // 20 B, the protocol first.
    let cooked2 = [vec![0x08, 0x00], vec![0; 18], ip].concat();
    let cooked2 = read(pcap(276, &[(EPOCH, cooked2)])).unwrap();
    assert_eq!(raw[0].len, 128);
    assert_eq!(raw, cooked);
    assert_eq!(raw, cooked2);
    assert_eq!(raw[0].ecn, Ecn::Ect0);
}

#[test]
fn a_packet_that_is_cut_off_has_its_length_on_the_wire() {
    let mut writer = Writer::new(Vec::new(), 1).unwrap();
    let part = &udp(1, 7, 1000)[..60];
    writer.packet(EPOCH, [part, &[]], 1042).unwrap();
    let all = read(writer.into_inner()).unwrap();
    assert_eq!((all[0].len, all[0].ecn), (1042, Ecn::Ect0));
}

#[test]
fn times_that_go_back_are_counted() {
    let file = pcap(
        1,
        &[
            (EPOCH, udp(1, 1, 1)),
            (EPOCH + 50, udp(1, 1, 1)),
            (EPOCH + 20, udp(1, 1, 1)),
        ],
    );
    let path = PathBuf::from("x");
    let mut capture = Capture::new(Cursor::new(file), &path, Hash::Flow, 1).unwrap();
    let times: Vec<u64> = std::iter::from_fn(|| capture.read().unwrap())
        .map(|a| a.time.as_ns())
        .collect();
    assert_eq!(times, [0, 50, 50]);
    let warnings = capture.warnings();
    assert!(
        warnings[0].starts_with("timestamps earlier than the previous packet's: 1,"),
        "{warnings:?}"
    );
    assert!(warnings[0].contains("30 ns"), "{warnings:?}");
}

/// Reads a file that is cut, and returns the packets before the cut and the warnings.
fn read_cut(file: &[u8]) -> (usize, Vec<String>) {
    let path = PathBuf::from("x");
    let file = Cursor::new(file.to_vec());
    let mut capture = Capture::new(file, &path, Hash::Flow, 1).unwrap();
    let packets = std::iter::from_fn(|| capture.read().unwrap()).count();
    assert_eq!(capture.read().unwrap(), None, "a cut stays a cut");
    (packets, capture.warnings())
}

/// draft-ietf-opsawg-pcap: 24 bytes of file header; 16 bytes of record header and 52 of packet each.
#[test]
fn a_pcap_file_is_read_up_to_its_cut() {
    let (first, second) = (udp(1, 1, 10), udp(1, 1, 10));
    let file = pcap(1, &[(EPOCH, first), (EPOCH + 1_500_000_000, second)]);
    assert_eq!(file.len(), 24 + 2 * (16 + 52));
    // Within the second packet, after its header, and within that.
    for len in [24 + 68 + 67, 24 + 68 + 16, 24 + 68 + 1] {
        let (packets, warnings) = read_cut(&file[..len]);
        let expected = "the file is cut within packet 2; it was read up to packet 1, 0.000000 s \
                        after the first";
        assert_eq!((packets, warnings), (1, vec![expected.to_owned()]), "{len}");
    }
    // At the end of a packet nothing shows that more was there.
    assert_eq!(read_cut(&file[..24 + 68]), (1, Vec::new()));
    let error = "x: packet 1: the file ends inside it; the capture is truncated";
    assert_eq!(read(file[..24 + 67].to_vec()).unwrap_err(), error);
}

/// draft-ietf-opsawg-pcapng section 4.3: a block of 28 bytes around the packet, and the length again.
#[test]
fn a_pcapng_file_is_read_up_to_its_cut() {
    let packets = [0, 1, 3].map(|second| enhanced(0, second, &udp(1, 1, 10)));
    // A clock of seconds: 10^0 ticks.
    let file = [section(), interface(1, 0), packets.concat()].concat();
    let block = packets[0].len();
    assert_eq!(block, 28 + 52 + 4);
    for missing in [1, 4, 5, block - 1] {
        let (packets, warnings) = read_cut(&file[..file.len() - missing]);
        let expected = "the file is cut within packet 3; it was read up to packet 2, 1.000000 s \
                        after the first";
        assert_eq!(
            (packets, warnings),
            (2, vec![expected.to_owned()]),
            "{missing}"
        );
    }
    assert_eq!(read_cut(&file[..file.len() - block]), (2, Vec::new()));
}

#[test]
fn broken_captures_are_refused_with_the_packet() {
    let good = pcap(1, &[(EPOCH, udp(1, 1, 10)), (EPOCH, udp(1, 1, 10))]);
    let error = |file: Vec<u8>| read(file).unwrap_err();
    assert_eq!(
        error(good[..20].to_vec()),
        "x: head: the file ends inside it; the capture is truncated"
    );
    let radio = pcap(127, &[(EPOCH, vec![0; 40])]);
    assert_eq!(
        error(radio),
        "x: packet 1: link type 127 is not understood; Ethernet (1), raw IP (101, 228, 229) and \
         Linux cooked (113, 276) are"
    );
    let mut later = good.clone();
    later[4] = 3;
    assert_eq!(
        error(later),
        "x: packet 1: its format is version 3.4; only version 2 is supported"
    );
    let undescribed = [section(), enhanced(3, 0, &udp(1, 1, 1))].concat();
    assert_eq!(
        error(undescribed),
        "x: packet 1: it belongs to interface 3, which the capture does not describe"
    );
    let simple = [
        section(),
        interface(1, 6),
        block(3, &[4, 0, 0, 0, 1, 2, 3, 4]),
    ]
    .concat();
    assert_eq!(error(simple), "x: packet 1: it carries no time");
    let clock = [section(), interface(1, 25), enhanced(0, 0, &udp(1, 1, 1))].concat();
    assert_eq!(
        error(clock),
        "x: packet 1: its clock has a resolution of 0x19, which is not supported"
    );
}

#[test]
fn a_trace_is_recognised_by_its_first_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    fs::write(&path, pcap(1, &[(EPOCH, udp(1, 1, 10))])).unwrap();
    let mut trace = Trace::open(&path, Hash::Flow, 1).unwrap();
    assert_eq!(trace.read().unwrap().unwrap().len, 52);
    fs::write(&path, "5,1,1500,0\n").unwrap();
    let mut trace = Trace::open(&path, Hash::Flow, 1).unwrap();
    assert_eq!(trace.read().unwrap().unwrap().len, 1500);
}
