//! Tests the file formats byte by byte. Whole traces are tested where they are replayed.

use super::*;

/// 2023-11-14T22:13:20Z.
const EPOCH_NS: i128 = 1_700_000_000_000_000_000;

fn pcap(link: u32, packets: &[(i128, &[u8])]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), link).expect("memory takes everything");
    for (time_ns, bytes) in packets {
        let written = writer.packet(*time_ns, [bytes, &[]], bytes.len() as u32);
        written.expect("memory takes everything");
    }
    writer.into_inner()
}

fn read_all(file: &[u8]) -> (Vec<(Record, Vec<u8>)>, Option<ReadError>) {
    let mut reader = match Reader::new(file) {
        Ok(reader) => reader,
        Err(error) => return (Vec::new(), Some(error)),
    };
    let (mut all, mut bytes) = (Vec::new(), Vec::new());
    loop {
        match reader.read(&mut bytes) {
            Ok(Some(record)) => all.push((record, bytes.clone())),
            Ok(None) => return (all, None),
            Err(error) => return (all, Some(error)),
        }
    }
}

/// draft-ietf-opsawg-pcap sections 4 and 5: the file of one packet, written out.
#[test]
fn what_is_written_is_classic_pcap_with_nanoseconds() {
    let mut expected = vec![0x4d, 0x3c, 0xb2, 0xa1, 2, 0, 4, 0];
    expected.extend([0; 8]);
    expected.extend([0, 0, 0, 1, 101, 0, 0, 0]);
    // 1 700 000 000 s is 0x6553f100.
    expected.extend([0x00, 0xf1, 0x53, 0x65, 7, 0, 0, 0, 3, 0, 0, 0, 5, 0, 0, 0]);
    expected.extend([1, 2, 3]);
    let mut writer = Writer::new(Vec::new(), link_type::RAW).unwrap();
    writer.packet(EPOCH_NS + 7, [&[1], &[2, 3]], 5).unwrap();
    assert_eq!(writer.into_inner(), expected);
    assert!(is_capture(&expected));
}

#[test]
fn nanoseconds_survive_and_microseconds_are_scaled() {
    let file = pcap(1, &[(EPOCH_NS + 123_456_789, &[1; 20])]);
    let (all, error) = read_all(&file);
    assert_eq!((all.len(), error), (1, None));
    assert_eq!(all[0].0.time_ns, EPOCH_NS + 123_456_789);
    // The same file with the magic number of microseconds: 456 of them.
    let mut micro = pcap(1, &[(EPOCH_NS + 456, &[1; 20])]);
    micro[..4].copy_from_slice(&0xa1b2_c3d4_u32.to_le_bytes());
    assert_eq!(read_all(&micro).0[0].0.time_ns, EPOCH_NS + 456_000);
}

#[test]
fn a_file_that_ends_inside_a_packet_gives_the_packets_before_it() {
    let file = pcap(1, &[(EPOCH_NS, &[1; 20]), (EPOCH_NS, &[2; 20])]);
    // Cut inside the second packet's bytes, and inside its header of 16.
    for cut in [1, 19, 20, 30] {
        let (all, error) = read_all(&file[..file.len() - cut]);
        assert_eq!((all.len(), error), (1, Some(ReadError::Truncated)), "{cut}");
    }
    assert_eq!(read_all(&file[..file.len() - 36]).1, None);
}

#[test]
fn the_link_type_of_an_empty_file_is_known() {
    let file = pcap(113, &[]);
    assert_eq!(Reader::new(&file[..]).unwrap().link(), Some(113));
}

#[test]
fn any_bytes_end_the_reading() {
    let file = pcap(1, &[(EPOCH_NS, &[1; 20]), (EPOCH_NS, &[2; 20])]);
    for at in 0..file.len() {
        for value in [0, 1, 0x7f, 0xff] {
            let mut file = file.clone();
            file[at] = value;
            assert!(read_all(&file).0.len() <= 2, "{at} {value}");
        }
    }
}
