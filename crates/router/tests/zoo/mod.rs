//! Odd frames that no well-behaved host sends, and the fate of each.
//!
//! Layouts: RFC 791, RFC 8200, RFC 4302 (AH), RFC 768, RFC 9293, IEEE 802.1Q and 802.1ad.

#![allow(dead_code)] // Each test file uses its part.

/// What a bridge with queues does with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is forwarded.
    Passes,
    /// It is forwarded, and counted as damaged in this way.
    Counted(&'static str),
    /// It is forwarded without the bytes behind its IP packet, which has this length, except padding. It
    /// may be counted as damaged in this way.
    Trimmed(Option<&'static str>, usize),
    /// It is lost, and counted under this cause.
    Lost(&'static str),
}

/// A frame with its name.
#[derive(Clone, Debug)]
pub struct Beast {
    pub name: String,
    pub frame: Vec<u8>,
    pub fate: Fate,
}

use Fate::{Counted, Lost, Passes, Trimmed};

pub const V4: u16 = 0x0800;
pub const V6: u16 = 0x86dd;

/// Addresses that nobody uses: no stack answers packets from them.
pub fn ethernet(ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 0x99, 2, 0, 0, 0, 0, 0x98];
    frame.extend(ethertype.to_be_bytes());
    frame.extend(payload);
    frame
}

pub fn tagged(tags: &[(u16, u16)], payload: &[u8]) -> Vec<u8> {
    let mut frame = ethernet(V4, payload);
    frame.truncate(12);
    for (protocol, tci) in tags {
        frame.extend(protocol.to_be_bytes());
        frame.extend(tci.to_be_bytes());
    }
    frame.extend(V4.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A packet in a session of PPPoE, behind the protocol of PPP.
pub fn pppoe(protocol: &[u8], packet: &[u8]) -> Vec<u8> {
    let length = (protocol.len() + packet.len()) as u16;
    let mut payload = vec![0x11, 0, 0, 7];
    payload.extend(length.to_be_bytes());
    payload.extend(protocol);
    payload.extend(packet);
    ethernet(0x8864, &payload)
}

/// A packet behind labels of MPLS, of which the last has the bit S.
pub fn mpls(labels: usize, packet: &[u8]) -> Vec<u8> {
    let mut payload = Vec::new();
    for left in (0..labels).rev() {
        payload.extend([0, 1, 0xe0 | u8::from(left == 0), 64]);
    }
    payload.extend(packet);
    ethernet(0x8847, &payload)
}

/// An Ethernet frame to this address in a pseudowire without a control word (RFC 4448).
pub fn pseudowire(destination: [u8; 6]) -> Vec<u8> {
    let inner = ethernet(V4, &ipv4(17, &udp(100)));
    mpls(2, &with(inner, 0, &destination))
}

/// Ethernet addresses that begin like an IP packet: two like IPv4 with an IHL below 5, one like IPv4, one
/// like IPv6.
pub const LIKE_IP: [[u8; 6]; 4] = [
    [0x40, 0xa6, 0xb7, 0, 0, 1],
    [0x44, 0x38, 0x39, 0, 0, 1],
    [0x45, 0x02, 0, 64, 0, 1],
    [0x60, 0x20, 1, 2, 0, 32],
];

pub fn ipv4(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let length = (20 + payload.len()) as u16;
    let mut packet = vec![0x45, 2];
    packet.extend(length.to_be_bytes());
    packet.extend([0, 7, 0, 0, 64, protocol, 0, 0]);
    packet.extend([192, 0, 2, 1, 192, 0, 2, 2]);
    let sum: u32 = packet
        .chunks(2)
        .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]))
        .sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    packet[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    packet.extend(payload);
    packet
}

pub fn ipv6(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x60, 0x20, 0, 0];
    packet.extend((payload.len() as u16).to_be_bytes());
    packet.extend([next, 64]);
    // RFC 3849: for documentation.
    for last in [1, 2] {
        packet.extend([
            0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last,
        ]);
    }
    packet.extend(payload);
    packet
}

pub fn udp(payload: usize) -> Vec<u8> {
    let mut bytes = vec![0x30, 0x39, 0x00, 0x09];
    bytes.extend((8 + payload as u16).to_be_bytes());
    bytes.extend([0, 0]);
    bytes.resize(8 + payload, 0x5a);
    bytes
}

pub fn tcp(payload: usize) -> Vec<u8> {
    let mut bytes = vec![0x30, 0x39, 0x00, 0x50, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x18];
    bytes.extend([0xff, 0xff, 0, 0, 0, 0]);
    bytes.resize(20 + payload, 0xa5);
    bytes
}

/// Returns `bytes` with some of them replaced.
fn with(mut bytes: Vec<u8>, at: usize, new: &[u8]) -> Vec<u8> {
    bytes[at..at + new.len()].copy_from_slice(new);
    bytes
}

/// Returns all frames.
pub fn all() -> Vec<Beast> {
    let mut zoo = Vec::new();
    let mut add = |name: &str, frame: Vec<u8>, fate| {
        let name = name.to_owned();
        zoo.push(Beast { name, frame, fate });
    };
    let v4 = |packet: Vec<u8>| ethernet(V4, &packet);
    let v6 = |packet: Vec<u8>| ethernet(V6, &packet);
    let good = || ipv4(17, &udp(100));

    // Lengths of the IPv4 header.
    add("only Ethernet", ethernet(V4, &[]), Lost("truncated"));
    add(
        "half an IPv4 header",
        v4(good()[..10].to_vec()),
        Lost("truncated"),
    );
    let total = |length: u16| v4(with(good(), 2, &length.to_be_bytes()));
    add(
        "total length past the frame",
        total(1400),
        Counted("ip_length_beyond_frame"),
    );
    add(
        "total length 65535",
        total(65_535),
        Counted("ip_length_beyond_frame"),
    );
    add("total length 0", total(0), Counted("ip_length_short"));
    add("total length 19", total(19), Counted("ip_length_short"));
    let ends_in_udp = Trimmed(Some("truncated"), 24);
    add("total length ends in UDP", total(24), ends_in_udp);
    let padded = [ipv4(17, &udp(4)), vec![0xee; 14]].concat();
    add("padding", v4(padded), Trimmed(None, 32));
    add(
        "version 5",
        v4(with(good(), 0, &[0x55])),
        Lost("ip_version"),
    );
    add(
        "version 6 in IPv4",
        v4(with(good(), 0, &[0x65])),
        Lost("ip_version"),
    );
    add("IHL 4", v4(with(good(), 0, &[0x44])), Lost("header_length"));
    add("IHL 0", v4(with(good(), 0, &[0x40])), Lost("header_length"));
    let short = with(ipv4(17, &udp(0)), 0, &[0x4f]);
    add("IHL 15 in 28 bytes", v4(short), Counted("ip_length_short"));
    let options = [vec![1; 40], udp(20)].concat();
    add(
        "40 bytes of options",
        v4(with(ipv4(17, &options), 0, &[0x4f])),
        Passes,
    );

    // Transport headers.
    let length = |length: u16| v4(ipv4(17, &with(udp(100), 4, &length.to_be_bytes())));
    for lie in [0, 7, 109, 65_535] {
        add(
            &format!("UDP length {lie}"),
            length(lie),
            Counted("udp_length"),
        );
    }
    add("UDP length below the packet's", length(50), Passes);
    add(
        "4 bytes of UDP",
        v4(ipv4(17, &udp(0)[..4])),
        Counted("truncated"),
    );
    add("no UDP", v4(ipv4(17, &[])), Counted("truncated"));
    let offset = |words: u8| v4(ipv4(6, &with(tcp(10), 12, &[words << 4])));
    for lie in [0, 4, 8, 15] {
        add(
            &format!("data offset {lie}"),
            offset(lie),
            Counted("header_length"),
        );
    }
    add("data offset 7", offset(7), Passes);
    add(
        "10 bytes of TCP",
        v4(ipv4(6, &tcp(0)[..10])),
        Counted("truncated"),
    );
    let xmas = v4(ipv4(6, &with(tcp(10), 13, &[0xff])));
    add("every TCP flag", xmas, Passes);
    for protocol in [
        0, 2, 3, 4, 41, 47, 50, 51, 89, 94, 112, 132, 143, 200, 253, 255,
    ] {
        add(
            &format!("IP protocol {protocol}"),
            v4(ipv4(protocol, &[7; 60])),
            Passes,
        );
    }
    add("ICMP of one byte", v4(ipv4(1, &[8])), Counted("truncated"));

    // Types and tags.
    for ethertype in [0, 0x0042, 0x0805, 0x22f0, 0x88b5, 0x88cc, 0x8847, 0xffff] {
        add(
            &format!("EtherType {ethertype:#06x}"),
            ethernet(ethertype, &[3; 60]),
            Passes,
        );
    }
    let mut arp = vec![0, 1, 8, 0, 6, 4, 0, 1];
    arp.resize(28, 2);
    add("ARP", ethernet(0x0806, &arp), Passes);
    add("half an ARP", ethernet(0x0806, &arp[..10]), Passes);
    let (customer, service, old) = ((0x8100, 5), (0x88a8, 9), (0x9100, 7));
    add("802.1Q", tagged(&[customer], &good()), Passes);
    add("priority tag", tagged(&[(0x8100, 0xe000)], &good()), Passes);
    add("802.1ad", tagged(&[service], &good()), Passes);
    add("QinQ", tagged(&[service, customer], &good()), Passes);
    add("old QinQ", tagged(&[old, customer], &good()), Passes);
    add("8 tags", tagged(&[customer; 8], &good()), Passes);
    add(
        "9 tags",
        tagged(&[customer; 9], &good()),
        Lost("vlan_depth"),
    );
    add(
        "tags and nothing",
        tagged(&[service, customer], &[]),
        Lost("truncated"),
    );
    let lying = with(good(), 2, &1400u16.to_be_bytes());
    add(
        "wrong length behind tags",
        tagged(&[service, customer], &lying),
        Counted("ip_length_beyond_frame"),
    );

    // PPPoE (RFC 2516) and MPLS (RFC 3032).
    let inside = pppoe(&[0, 0x21], &good());
    add("IPv4 in PPPoE", inside.clone(), Passes);
    add("IPv4 in PPPoE, one byte", pppoe(&[0x21], &good()), Passes);
    add("LCP", pppoe(&[0xc0, 0x21], &[1, 1, 0, 4]), Passes);
    add(
        "half a PPPoE header",
        inside[..18].to_vec(),
        Lost("truncated"),
    );
    let half = pppoe(&[0, 0x57], &ipv6(17, &udp(9))[..20]);
    add("half an IPv6 header in PPPoE", half, Lost("truncated"));
    add("IPv4 behind a label", mpls(1, &good()), Passes);
    add("IPv6 behind labels", mpls(16, &ipv6(17, &udp(9))), Passes);
    add("17 labels", mpls(17, &good()), Lost("label_depth"));
    add("a pseudowire", mpls(2, &[0, 0, 0, 1, 2, 2]), Passes);
    for address in LIKE_IP {
        let name = format!("a pseudowire to {address:02x?}");
        add(&name, pseudowire(address), Passes);
    }
    add("labels and nothing", mpls(2, &[]), Lost("truncated"));

    // Fragments of IPv4: offset in eights, 0x2000 for more.
    for (name, word, fate) in [
        ("first fragment", 0x2000, Passes),
        ("middle fragment", 0x2010, Passes),
        ("last fragment", 0x0010, Passes),
        ("fragment past 65535", 0x1fff, Passes),
        ("fragment with DF set", 0x6000, Passes),
        ("reserved bit", 0x8000, Passes),
        ("offset 1", 0x2001, Passes),
    ] {
        add(name, v4(with(good(), 6, &u16::to_be_bytes(word))), fate);
    }
    let tiny = with(ipv4(6, &tcp(0)[..8]), 6, &[0x20, 0]);
    add("tiny first fragment", v4(tiny), Counted("truncated"));

    // IPv6 and its chains.
    add(
        "half an IPv6 header",
        v6(ipv6(17, &udp(100))[..20].to_vec()),
        Lost("truncated"),
    );
    add(
        "version 4 in IPv6",
        v6(with(ipv6(17, &udp(100)), 0, &[0x40])),
        Lost("ip_version"),
    );
    let payload = |length: u16| v6(with(ipv6(17, &udp(100)), 4, &length.to_be_bytes()));
    add(
        "payload past the frame",
        payload(1400),
        Counted("ip_length_beyond_frame"),
    );
    add(
        "payload length 0",
        payload(0),
        Trimmed(Some("truncated"), 40),
    );
    let chain = |first: u8, headers: &[&[u8]]| {
        let mut bytes = headers.concat();
        bytes.extend(udp(40));
        v6(ipv6(first, &bytes))
    };
    let empty = |next: u8| [next, 0, 1, 4, 0, 0, 0, 0];
    add("hop-by-hop", chain(0, &[&empty(17)]), Passes);
    add("destination options", chain(60, &[&empty(17)]), Passes);
    let routing = |next: u8, left: u8| {
        [
            next, 2, 0, left, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
        ]
    };
    add("routing", chain(43, &[&routing(17, 0)]), Passes);
    add(
        "routing with segments left",
        chain(43, &[&routing(17, 9)]),
        Passes,
    );
    add(
        "AH",
        chain(51, &[&[17, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2]]),
        Passes,
    );
    let every = [
        &empty(60)[..],
        &empty(43),
        &routing(44, 1),
        &[51, 0, 0, 0, 0, 0, 0, 9],
        &[60, 1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2],
        &empty(17),
    ];
    add("every header once", chain(0, &every), Passes);
    for (name, word, fate) in [
        ("atomic fragment", 0u16, Passes),
        ("first fragment of IPv6", 1, Passes),
        ("middle fragment of IPv6", 8 * 20 + 1, Passes),
        ("last fragment of IPv6", 8 * 20, Passes),
        ("last fragment past 65535", 0xfff8, Passes),
    ] {
        let [high, low] = word.to_be_bytes();
        add(name, chain(44, &[&[17, 0, high, low, 0, 0, 0, 1]]), fate);
    }
    let twice = [[44, 0, 0, 1, 0, 0, 0, 1], [17, 0, 0, 0, 0, 0, 0, 1]];
    add(
        "two fragment headers",
        chain(44, &[&twice.concat()]),
        Counted("fragment_twice"),
    );
    let sixteen: Vec<u8> = (0..16)
        .flat_map(|n| empty(if n < 15 { 60 } else { 17 }))
        .collect();
    add("16 options headers", chain(60, &[&sixteen]), Passes);
    let hundred: Vec<u8> = (0..100)
        .flat_map(|n| empty(if n < 99 { 60 } else { 17 }))
        .collect();
    add(
        "100 options headers",
        chain(60, &[&hundred]),
        Counted("extension_depth"),
    );
    let circle: Vec<u8> = (0..100).flat_map(|_| empty(0)).collect();
    add(
        "hop-by-hop forever",
        chain(0, &[&circle]),
        Counted("extension_depth"),
    );
    add(
        "a chain that ends",
        v6(ipv6(0, &empty(60))),
        Counted("truncated"),
    );
    add(
        "an option past the end",
        chain(60, &[&[17, 255, 0, 0, 0, 0, 0, 0]]),
        Counted("truncated"),
    );
    add("nothing follows", v6(ipv6(59, &[1; 20])), Passes);
    let mut solicitation = vec![135, 0, 0, 0, 0, 0, 0, 0];
    solicitation.resize(24, 0xfe);
    add(
        "neighbour solicitation",
        v6(ipv6(58, &solicitation)),
        Passes,
    );
    add(
        "ICMPv6 of one byte",
        v6(ipv6(58, &[135])),
        Counted("truncated"),
    );
    zoo
}
