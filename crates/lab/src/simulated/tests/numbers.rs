//! The number of a packet over several queues, and the headers of what hosts send.

use std::collections::BTreeMap;

use sluice_recording::headers::{ACK, FIN, HeaderCoder, SYN, TcpHeader};
use sluice_recording::{Header, PacketRow};

use super::*;

fn packets(recording: &Recording) -> Vec<PacketRow> {
    recording.packets().unwrap().map(Result::unwrap).collect()
}

fn headers(recording: &Recording) -> Vec<Header> {
    recording.headers().unwrap().map(Result::unwrap).collect()
}

/// Two links: the second one is slower and drops.
const TWO_HOPS: &str = r#"
duration = "3s"
[link]
rate = "10Mbit/s"
rtt = "10ms"
queue = "fifo limit 1000"
[[hop]]
rate = "5Mbit/s"
rtt = "10ms"
queue = "fifo limit 10"
[[flow]]
type = "tcp"
[[flow]]
type = "ping"
"#;

#[test]
fn a_packet_keeps_its_number_over_both_links() {
    let (_folder, recording) = simulate(TWO_HOPS);
    let mut paths: BTreeMap<u64, Vec<PacketRow>> = BTreeMap::new();
    for row in packets(&recording) {
        let number = row.record.packet.expect("a simulated packet has a number");
        paths.entry(number).or_default().push(row);
    }
    let (mut whole, mut dropped) = (0, 0);
    for (number, mut rows) in paths {
        rows.sort_by_key(|row| row.record.arrival);
        let words: Vec<&str> = rows.iter().map(|row| row.pipe.word()).collect();
        let first = &rows[0].record;
        match words.as_slice() {
            ["up", "up2"] | ["down2", "down"] => {
                let second = &rows[1].record;
                // It reaches the second link after it has left the first: 5 ms of delay and its
                // transmission, at 8 bits per 10 Mbit/s or 5 Mbit/s.
                let ns_per_byte = if words[0] == "up" { 800 } else { 1600 };
                let took = Span::from_ns(u64::from(first.len) * ns_per_byte) + Span::from_ms(5);
                assert_eq!(second.arrival, first.at + took, "{number}");
                assert_eq!((first.len, first.flow), (second.len, second.flow));
                whole += 1;
                dropped += u64::from(matches!(second.fate, Fate::Dropped(_)));
            }
            // It was still on the first link at the end.
            ["up"] | ["down2"] => assert!(first.at.as_ns() > 2_900_000_000, "{first:?}"),
            other => panic!("packet {number} was in {other:?}"),
        }
    }
    assert!(whole > 1000, "{whole}");
    assert!(dropped > 10, "{dropped}");
}

#[test]
fn rules_and_duplicates_keep_numbers() {
    let rules = r#"
duration = "2s"
rules = """
pipe 1 config bw 10Mbit/s delay 5ms
pipe 2 config bw 5Mbit/s delay 5ms
add 1000 pipe 1 ip from any to any in recv h2
add 2000 pipe 2 ip from any to any out xmit h3
add 3000 allow ip from any to any
"""
[[flow]]
type = "udp"
rate = "1Mbit/s"
"#;
    let (_folder, recording) = simulate(rules);
    let mut times: BTreeMap<Option<u64>, u64> = BTreeMap::new();
    for row in packets(&recording) {
        *times.entry(row.record.packet).or_default() += 1;
    }
    // 1 Mbit/s in packets of 1228 bytes for 2 s, each in both pipes; the last few in one.
    assert!((190..220).contains(&times.len()), "{}", times.len());
    assert!(times.values().filter(|n| **n == 2).count() > 190);
    assert!(times.keys().all(Option::is_some));

    let (_folder, recording) = simulate(
        "duration = \"2s\"\n[link]\nrate = \"10Mbit/s\"\nrtt = \"10ms\"\nduplicate = \"10%\"\n\
         [[flow]]\ntype = \"udp\"\nrate = \"1Mbit/s\"\n",
    );
    let rows = packets(&recording);
    let mut numbers: Vec<u64> = rows.iter().map(|row| row.record.packet.unwrap()).collect();
    let all = numbers.len();
    numbers.sort_unstable();
    numbers.dedup();
    // About 204 packets, and a tenth of them twice.
    assert!((5..40).contains(&(all - numbers.len())), "{all}");
    assert!((190..220).contains(&numbers.len()), "{}", numbers.len());
}

#[test]
fn the_headers_of_a_transfer_are_those_of_a_connection() {
    let text = "duration = \"3s\"\n[link]\nrate = \"10Mbit/s\"\nrtt = \"20ms\"\nqueue = \"fifo limit \
                10\"\n[[flow]]\ntype = \"tcp\"\nbytes = \"500kB\"\n";
    let (_folder, recording) = simulate(text);
    let rows = headers(&recording);
    let mut coder = HeaderCoder::new();
    let segments: Vec<(bool, TcpHeader)> = rows
        .iter()
        .map(|row| (row.is_from_client, coder.decode(row).unwrap()))
        .collect();
    // SYN and SYN-ACK; the acknowledgement of the latter comes with the first data.
    let shape = |(client, tcp): &(bool, TcpHeader)| (*client, tcp.flags & (SYN | ACK), tcp.payload);
    let first: Vec<_> = segments[..3].iter().map(shape).collect();
    assert_eq!(
        first,
        [(true, SYN, 0), (false, SYN | ACK, 0), (true, ACK, 1448)]
    );
    let (mss, _) = segments[0].1.syn.unwrap();
    assert_eq!(mss, 1460);
    let start = segments[0].1.seq.wrapping_add(1);
    assert_eq!(segments[1].1.ack, start);
    // The payload covers 500 000 bytes without a hole, and the FIN follows.
    let data = segments.iter().filter(|(client, _)| *client);
    let end = data
        .clone()
        .filter(|(_, tcp)| tcp.flags & FIN != 0)
        .map(|(_, tcp)| tcp.seq.wrapping_add(tcp.payload).wrapping_sub(start));
    assert_eq!(end.max(), Some(500_000));
    let sent: u64 = data.map(|(_, tcp)| u64::from(tcp.payload)).sum();
    let again = rows
        .iter()
        .filter(|row| row.is_from_client && row.jump < Some(0));
    let again: u64 = again.map(|row| u64::from(row.payload.unwrap())).sum();
    assert_eq!(sent - again, 500_000);
    assert!(again > 0, "the queue of ten packets overflows");
    assert!(
        segments
            .iter()
            .any(|(client, tcp)| !client && tcp.sack_count > 0)
    );
    // The receiver acknowledges all bytes and the FIN.
    let last = segments.iter().rfind(|(client, _)| !client).unwrap();
    assert_eq!(last.1.ack, start.wrapping_add(500_001));
    // A header per packet, and no packet without one.
    let mut numbers: Vec<u64> = packets(&recording)
        .iter()
        .filter_map(|row| row.record.packet)
        .collect();
    numbers.sort_unstable();
    assert!(rows.iter().map(|row| row.packet).eq(numbers));
}

#[test]
fn echo_messages_have_the_number_of_their_probe() {
    let text = format!("{PLAIN}[[flow]]\ntype = \"ping\"\ninterval = \"1s\"\n");
    let (_folder, recording) = simulate(&text);
    let rows = headers(&recording);
    let seen: Vec<_> = rows
        .iter()
        .map(|row| (row.probe, row.is_from_client))
        .collect();
    let expected = (0..5).flat_map(|probe| [(Some(probe), true), (Some(probe), false)]);
    assert!(seen.iter().copied().eq(expected), "{seen:?}");
}
