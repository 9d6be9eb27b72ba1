//! Bytes behind the IP packets of frames: they do not leave, so they take no time of a link.

use super::*;

/// Sends frames through a queue at 10 Gbit/s.
fn crossed(link: Link, frames: Vec<(Vec<u8>, VnetHeader)>) -> Outcome {
    let params = PipeParams {
        rate: Rate::from_bps(10_000_000_000),
        ..PipeParams::default()
    };
    cross(link, frames.into(), piped("fifo", &params))
}

/// The lengths are those of RFC 791, RFC 8200, RFC 2516 and IEEE 802.3.
#[test]
fn a_frame_leaves_with_its_packet_and_the_padding_of_the_shortest_frame() {
    let (short, long) = (zoo::ipv4(17, &zoo::udp(0)), zoo::ipv4(17, &zoo::udp(100)));
    let nothing = zoo::ipv6(59, &[]);
    let trailer = [0xee; 1400];
    let tags = [(0x88a8, 9), (0x8100, 5)];
    let mut cases: Vec<(Vec<u8>, usize)> = [
        // 14 + 28, 14 + 40: padded to 60; with two tags to 68.
        (zoo::ethernet(zoo::V4, &short), 60),
        (zoo::ethernet(zoo::V6, &nothing), 60),
        (zoo::tagged(&tags, &short), 68),
        // 14 + 128, and a label, or 6 bytes of PPPoE with 2 of PPP.
        (zoo::ethernet(zoo::V4, &long), 142),
        (zoo::mpls(1, &long), 146),
        (zoo::pppoe(&[0, 0x21], &long), 150),
    ]
    .into_iter()
    .map(|(frame, length)| ([&frame[..], &trailer].concat(), length))
    .collect();
    let ends = cases
        .iter()
        .map(|(frame, length)| frame[..*length].to_vec());
    let mut expected: Vec<Vec<u8>> = ends.collect();
    // Padding that PPPoE counts as its own.
    let padded = [&long[..], &trailer].concat();
    cases.push((zoo::pppoe(&[0, 0x21], &padded), 150));
    expected.push(zoo::pppoe(&[0, 0x21], &long));

    let frames = cases.into_iter();
    let frames = frames.map(|(frame, _)| (frame, VnetHeader::default()));
    let outcome = crossed(Link::Ethernet, frames.collect());
    assert_eq!(counted(&outcome.counts), BTreeMap::new());
    assert_eq!(outcome.sent, expected);
}

#[test]
fn a_super_packet_leaves_without_bytes_that_would_become_payload() {
    // Three datagrams of up to 400 bytes.
    let packet = zoo::ipv4(17, &zoo::udp(1000));
    let vnet = VnetHeader {
        gso_type: 5,
        hdr_len: 42,
        gso_size: 400,
        ..VnetHeader::default()
    };
    let whole = zoo::ethernet(zoo::V4, &packet);
    let frame = [&whole[..], &[0xee; 600]].concat();
    let outcome = crossed(Link::Ethernet, vec![(frame, vnet)]);
    // The kernel requires a checksum, which the packet did not have (RFC 768): addresses, protocol, length,
    // header and 500 words.
    let sum = 0xc000 + 0x0201 + 0xc000 + 0x0202 + 17 + 1008 + 0x3039 + 9 + 1008 + 500 * 0x5a5a;
    let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
    let mut expected = whole;
    expected[14 + 20 + 6..14 + 20 + 8].copy_from_slice(&checksum.to_be_bytes());
    assert_eq!(outcome.sent, [expected]);
    assert_eq!(outcome.counts.whole, 1);
}
