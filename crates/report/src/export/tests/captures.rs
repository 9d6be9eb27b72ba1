//! Captures with real headers, and of several links.

use sluice_core::record::{Fate, PacketRecord};
use sluice_core::{DropReason, Ecn, Time};
use sluice_recording::headers::{ACK, HeaderCoder, SYN, TcpHeader};
use sluice_recording::{End, Environment, Header, Recording, RunWriter};
use sluice_scenario::{Backend, Direction, PipeId};

use super::*;

/// A run of `text`, with packets of one place each: pipe, number, flow, length, arrival and end in
/// ms, fate.
fn recorded(
    text: &str,
    headers: &[Header],
    rows: &[(PipeId, u64, u32, u32, u64, u64, Fate)],
) -> Recording {
    let variant = Scenario::parse("x", text, &[]).unwrap().remove(0);
    let environment = Environment::here(Backend::Sim, "1970-01-01T00:00:00Z".into());
    let mut writer = RunWriter::in_memory(&variant, &environment).unwrap();
    for header in headers {
        writer.header(header.clone()).unwrap();
    }
    for &(pipe, packet, flow, len, arrival, at, fate) in rows {
        let record = PacketRecord {
            seq: 0,
            packet: Some(packet),
            arrival: Time::from_ns(arrival * 1_000_000),
            flow,
            len,
            segments: 1,
            ecn: Ecn::Ect0,
            class: 0,
            fate,
            at: Time::from_ns(at * 1_000_000),
        };
        writer.packet(pipe, &record).unwrap();
    }
    let end = End::complete(Time::from_ns(10_000_000_000));
    writer.finish(end).unwrap()
}

const LINK: &str = "duration = \"10s\"\n[link]\nrate = \"8Mbit/s\"\nrtt = \"20ms\"\n";
const FLOWS: &str = "[[flow]]\ntype = \"tcp\"\n[[flow]]\ntype = \"ping\"\n";

fn up() -> PipeId {
    PipeId::new(Direction::Up, 0)
}

fn down() -> PipeId {
    PipeId::new(Direction::Down, 0)
}

/// RFC 1071: the sum over bytes with a right checksum is 0xffff.
fn sum(pieces: &[&[u8]]) -> u32 {
    let bytes = pieces.concat();
    let words = bytes.chunks(2).map(|word| {
        let low = word.get(1).copied().unwrap_or(0);
        u32::from(word[0]) << 8 | u32::from(low)
    });
    let sum: u32 = words.sum();
    (sum & 0xffff) + (sum >> 16)
}

#[test]
fn a_simulated_segment_has_its_header_and_a_right_checksum() {
    let mut coder = HeaderCoder::new();
    let syn = TcpHeader {
        connection: 1,
        flags: SYN | 0x40 | 0x80,
        seq: 0x0102_0304,
        window: 64_240,
        syn: Some((1460, 7)),
        ..TcpHeader::default()
    };
    let mut ack = TcpHeader {
        connection: 1,
        flags: ACK,
        seq: 77,
        ack: 0x0102_0305,
        window: 500,
        echo_age: Some(25),
        sack_count: 2,
        ..TcpHeader::default()
    };
    ack.sack[0] = (0x0102_1000, 0x0102_2000);
    ack.sack[1] = (0x0102_0000, 0x0102_0100);
    let headers = [
        coder.encode(0, 0, true, &syn),
        coder.encode(1, 0, false, &ack),
    ];
    let rows = [
        (up(), 0, 0, 60, 500, 500, Fate::Sent),
        (down(), 1, 0, 72, 525, 525, Fate::Sent),
    ];
    let recording = recorded(&format!("{LINK}{FLOWS}"), &headers, &rows);
    let temp = tempfile::tempdir().unwrap();
    let files = pcapng::write(&recording, temp.path(), "run").unwrap();
    let h2 = packets(&files[0]);
    let (time, bytes, length, _) = &h2[0];
    assert_eq!((*time, bytes.len(), *length), (500_000_000, 60, 60));
    // Port 49153 of the first connection to 5000; numbers; 40 bytes of header, ECE, CWR and SYN.
    let expected = [
        &[
            0xc0, 0x01, 0x13, 0x88, 1, 2, 3, 4, 0, 0, 0, 0, 0xa0, 0xc2, 0xfa, 0xf0,
        ][..],
        // MSS 1460, SACK permitted, the time 500 ms after a start of 1000, no echo, NOP, scale 7.
        &[
            2, 4, 0x05, 0xb4, 4, 2, 8, 10, 0, 0, 0x05, 0xdc, 0, 0, 0, 0, 1, 3, 3, 7,
        ][..],
    ];
    assert_eq!([&bytes[20..36], &bytes[40..]], expected);
    let pseudo = |bytes: &[u8]| {
        let length = (bytes.len() as u16 - 20).to_be_bytes();
        [&bytes[12..20], &[0, 6], &length].concat()
    };
    assert_eq!(sum(&[&pseudo(bytes), &bytes[20..]]), 0xffff);

    // 10 ms of delay and 72 us of transmission later.
    let (time, bytes, ..) = &h2[1];
    assert_eq!((*time, bytes.len()), (535_072_000, 72));
    assert_eq!(bytes[20..24], [0x13, 0x88, 0xc0, 0x01]);
    assert_eq!(bytes[28..34], [1, 2, 3, 5, 0xd0, 0x10]);
    // The echo is 25 ms older; then two blocks (RFC 2018 section 3).
    let options = [
        &[1, 1, 8, 10, 0, 0, 0x05, 0xf5, 0, 0, 0x05, 0xdc, 1, 1, 5, 18][..],
        &[1, 2, 0x10, 0, 1, 2, 0x20, 0, 1, 2, 0, 0, 1, 2, 1, 0][..],
    ];
    assert_eq!(bytes[40..], options.concat());
    assert_eq!(sum(&[&pseudo(bytes), &bytes[20..]]), 0xffff);
}

#[test]
fn a_simulated_ping_is_an_echo_message() {
    let headers = [true, false].map(|is_from_client| Header {
        probe: Some(0x0123),
        ..Header::empty(u64::from(!is_from_client), 1, is_from_client)
    });
    let rows = [
        (up(), 0, 1, 84, 0, 0, Fate::Sent),
        (down(), 1, 1, 84, 20, 20, Fate::Sent),
    ];
    let recording = recorded(&format!("{LINK}{FLOWS}"), &headers, &rows);
    let temp = tempfile::tempdir().unwrap();
    let files = pcapng::write(&recording, temp.path(), "run").unwrap();
    let h2 = packets(&files[0]);
    for ((_, bytes, length, _), kind) in h2.iter().zip([8, 0]) {
        // RFC 792: type, code; identifier 1 for the second flow; number 0x123.
        assert_eq!((bytes[9], bytes.len(), *length), (1, 28, 84));
        assert_eq!(bytes[20..22], [kind, 0]);
        assert_eq!(bytes[24..], [0, 1, 0x01, 0x23]);
        assert_eq!(sum(&[&bytes[20..]]), 0xffff);
    }
}

#[test]
fn each_flow_has_the_addresses_of_its_hosts() {
    let text = format!(
        "{LINK}[hosts]\nup = 3\ndown = 2\n[[flow]]\ntype = \"tcp\"\nhost_up = 3\nhost_down = 2\n\
         [[flow]]\ntype = \"ping\"\n"
    );
    let rows = [
        (up(), 0, 0, 1000, 0, 0, Fate::Sent),
        (down(), 1, 0, 52, 20, 20, Fate::Sent),
        (up(), 2, 1, 84, 40, 40, Fate::Sent),
    ];
    let recording = recorded(&text, &[], &rows);
    let temp = tempfile::tempdir().unwrap();
    let files = pcapng::write(&recording, temp.path(), "run").unwrap();
    let h2 = packets(&files[0]);
    // docs/scenario.md: the side up has 10.0.23.2, .4 and .6, the side down 10.0.23.3 and .5.
    let (third, second) = ([10, 0, 23, 6], [10, 0, 23, 5]);
    let first = ([10, 0, 23, 2], [10, 0, 23, 3]);
    let expected = [(third, second), (second, third), first];
    for ((_, bytes, ..), (source, destination)) in h2.iter().zip(expected) {
        assert_eq!(
            (&bytes[12..16], &bytes[16..20]),
            (&source[..], &destination[..])
        );
    }
}

#[test]
fn a_packet_is_found_by_its_number_at_every_place_of_a_path() {
    let hop = "[[hop]]\nrate = \"8Mbit/s\"\nrtt = \"20ms\"\n";
    let up2 = PipeId::new(Direction::Up, 1);
    let dropped = Fate::Dropped(DropReason::Overflow);
    let rows = [
        (up(), 70_000, 0, 1000, 0, 5, Fate::Sent),
        (up(), 70_001, 0, 1000, 1, 6, Fate::Sent),
        (up2, 70_000, 0, 1000, 16, 20, Fate::Sent),
        (up2, 70_001, 0, 1000, 17, 17, dropped),
    ];
    let recording = recorded(&format!("{LINK}{hop}{FLOWS}"), &[], &rows);
    let temp = tempfile::tempdir().unwrap();
    let files = pcapng::write(&recording, temp.path(), "run").unwrap();
    let names: Vec<_> = files.iter().map(|f| f.file_name().unwrap()).collect();
    assert_eq!(
        names,
        ["run-h2.pcapng", "run-link1-link2.pcapng", "run-h3.pcapng"]
    );
    let seen = |place: usize| numbers(&files[place]);
    assert_eq!(seen(0), [(0, 70_000), (1, 70_001)]);
    assert_eq!(seen(1), [(16, 70_000), (17, 70_001)]);
    // 1 ms of transmission and 10 ms of delay.
    assert_eq!(seen(2), [(31, 70_000)]);
    let comment = packets(&files[1])[1].3.clone().unwrap();
    assert!(
        comment.ends_with("by queue up2 at 0.017000 s after 0.000 ms there, packet 70001"),
        "{comment}"
    );
    // The identification of the IP header: 70 001 - 65 536.
    assert_eq!(packets(&files[0])[1].1[4..6], 4465_u16.to_be_bytes());
}

/// Returns the milliseconds at which 1000 B packets that arrived at `arrival` and left their queue at
/// the given ones leave a link, whose one-way delay is 10 ms.
fn leaving(link: &str, arrival: u64, left: &[u64]) -> Vec<u64> {
    let row = |(number, at): (u64, &u64)| (up(), number, 0_u32, 1000_u32, arrival, *at, Fate::Sent);
    let rows: Vec<_> = (0..).zip(left).map(row).collect();
    let text = format!("duration = \"10s\"\n[link]\nrtt = \"20ms\"\n{link}{FLOWS}");
    let recording = recorded(&text, &[], &rows);
    let temp = tempfile::tempdir().unwrap();
    let files = pcapng::write(&recording, temp.path(), "run").unwrap();
    let (times, seen): (Vec<u64>, Vec<u64>) = numbers(&files[1]).into_iter().unzip();
    assert!(seen.into_iter().eq(0..left.len() as u64));
    times
}

#[test]
fn packets_leave_a_link_one_after_the_other_also_through_a_device() {
    // A device of 2000 B takes two packets at once. The third leaves the queue when the first has
    // been sent. Each takes 1 ms.
    let link = "rate = \"8Mbit/s\"\ndriver = \"2000B\"\n";
    assert_eq!(leaving(link, 0, &[0, 0, 1]), [11, 12, 13]);
    // The credit of an idle link pays for two packets; the third takes 1 ms.
    let link = "rate = \"8Mbit/s\"\nburst = \"2000B\"\n";
    assert_eq!(leaving(link, 500, &[500, 500, 500]), [510, 510, 511]);
}

#[test]
fn a_change_of_the_rate_acts_on_the_packet_in_transmission() {
    // At 4 Mbit/s, 500 B take 1 ms; at 2 Mbit/s, 2 ms.
    let rate = "rate = [[\"0s\", \"4Mbit/s\"], [\"100ms\", \"2Mbit/s\"]]\n";
    assert_eq!(leaving(rate, 99, &[99, 102]), [112, 116]);
    // 500 B pass before the outage, and 500 B after it.
    let rate =
        "rate = [[\"0s\", \"4Mbit/s\"], [\"100ms\", \"outage\"], [\"200ms\", \"4Mbit/s\"]]\n";
    assert_eq!(leaving(rate, 99, &[99]), [211]);
}

#[test]
fn packets_leave_a_link_with_a_trace_at_its_opportunities() {
    // 1500 B may pass at 5 ms, at 10 ms, and so on. The second packet has the last 500 B of the first
    // opportunity and 500 B of the next one.
    let link = "rate = { trace = { path = \"t\", text = \"5\\n\" } }\n";
    assert_eq!(leaving(link, 0, &[5, 5]), [15, 20]);
}

#[test]
fn a_rate_that_was_raised_during_the_run_delays_no_packet_behind_the_next_one() {
    // The scenario has 1 Mbit/s, at which a packet takes 8 ms. Each left its queue 1 ms after the one
    // before, which had then been sent. Only the last has no successor.
    let link = "rate = \"1Mbit/s\"\n";
    assert_eq!(leaving(link, 0, &[0, 1, 2])[..2], [11, 12]);
}

#[test]
fn effects_that_captures_leave_out_are_named() {
    let of = |link: &str| {
        let text = format!("duration = \"10s\"\n{link}\n[[flow]]\ntype = \"ping\"\n");
        let variant = Scenario::parse("x", &text, &[]).unwrap().remove(0);
        pcapng::left_out(&variant.scenario)
    };
    let plain = "[link]\nrate = \"8Mbit/s\"\nrtt = \"20ms\"\nloss = 0.01\nduplicate = 0.01\n";
    assert_eq!(of(plain), Vec::<String>::new());
    let both = of(&format!("{plain}jitter = \"2ms\"\n"));
    assert_eq!(both, ["jitter of up", "jitter of down"]);
    let hop = "[[hop]]\nrate = \"8Mbit/s\"\n[hop.down]\njitter = \"1ms\"\nreorder = 0.1\n";
    assert_eq!(of(&format!("{plain}{hop}")), ["jitter, reorder of down2"]);
    let rules = of("rules = \"pipe 1 config bw 1Mbit/s\"");
    assert_eq!(rules, ["transmission and delay of the pipes"]);
}

/// The time in ms and `epb_packetid` (option 5 of an enhanced packet block) of each packet.
fn numbers(path: &Path) -> Vec<(u64, u64)> {
    let mut reader = PcapNGReader::new(1 << 16, File::open(path).unwrap()).unwrap();
    let mut numbers = Vec::new();
    loop {
        match reader.next() {
            Ok((length, block)) => {
                if let PcapBlockOwned::NG(Block::EnhancedPacket(packet)) = &block {
                    let number = packet.options.iter().find(|option| option.code.0 == 5);
                    let number = number.unwrap().value[..8].try_into().unwrap();
                    let time = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
                    numbers.push((time / 1_000_000, u64::from_le_bytes(number)));
                }
                reader.consume(length);
            }
            Err(PcapError::Eof) => return numbers,
            Err(PcapError::Incomplete(_)) => reader.refill().unwrap(),
            Err(error) => panic!("{error:?}"),
        }
    }
}
