//! TCP segments as a bulk sender makes them, with checksums by etherparse. Tests inside the crate
//! use this file too.
#![allow(dead_code)]

use etherparse::{IpNumber, Ipv4Header, Ipv6Header, TcpHeader};

/// The shape of a segment, without its position in its flow.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// The number of the flow, which is part of addresses and ports.
    pub flow: u8,
    pub is_v6: bool,
    pub tags: &'static [[u8; 4]],
    pub flags: u8,
    pub ecn: u8,
    pub ttl: u8,
    pub acknowledged: u32,
    pub window: u16,
    /// Words of TCP options.
    pub options: u8,
}

pub const PLAIN: Shape = Shape {
    flow: 1,
    is_v6: false,
    tags: &[],
    flags: ACK,
    ecn: 2,
    ttl: 64,
    acknowledged: 77,
    window: 500,
    options: 3,
};
pub const V6: Shape = Shape {
    is_v6: true,
    ..PLAIN
};
pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const PSH: u8 = 8;
pub const ACK: u8 = 16;
pub const URG: u8 = 32;
pub const ECE: u8 = 64;
pub const CWR: u8 = 128;

/// Returns a segment with correct checksums.
pub fn segment(shape: Shape, sequence: u32, id: u16, payload: &[u8]) -> Vec<u8> {
    let mut tcp = TcpHeader::new(1000 + u16::from(shape.flow), 80, sequence, shape.window);
    tcp.acknowledgment_number = shape.acknowledged;
    let has = |flag| shape.flags & flag != 0;
    (tcp.fin, tcp.syn, tcp.psh, tcp.ack) = (has(FIN), has(SYN), has(PSH), has(ACK));
    (tcp.urg, tcp.ece, tcp.cwr, tcp.rst) = (has(URG), has(ECE), has(CWR), has(RST));
    tcp.set_options_raw(&vec![1; usize::from(shape.options) * 4])
        .expect("at most 40 bytes of options");
    let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    bytes.extend(shape.tags.iter().flatten());
    let tcp_len = (tcp.header_len() + payload.len()) as u16;
    if shape.is_v6 {
        let mut ip = Ipv6Header {
            traffic_class: shape.ecn,
            payload_length: tcp_len,
            next_header: IpNumber::TCP,
            hop_limit: shape.ttl,
            ..Ipv6Header::default()
        };
        ip.destination[15] = shape.flow;
        tcp.checksum = tcp.calc_checksum_ipv6(&ip, payload).unwrap();
        bytes.extend([0x86, 0xdd]);
        ip.write(&mut bytes).unwrap();
    } else {
        let (from, to) = ([10, 0, 0, 1], [10, 0, 0, shape.flow]);
        let mut ip = Ipv4Header::new(tcp_len, shape.ttl, IpNumber::TCP, from, to).unwrap();
        ip.ecn = shape.ecn.try_into().unwrap();
        ip.identification = id;
        ip.header_checksum = ip.calc_header_checksum();
        tcp.checksum = tcp.calc_checksum_ipv4(&ip, payload).unwrap();
        bytes.extend([8, 0]);
        ip.write(&mut bytes).unwrap();
    }
    tcp.write(&mut bytes).unwrap();
    bytes.extend(payload);
    bytes
}

/// Returns consecutive segments of one flow, with payloads of these lengths.
pub fn flow(shape: Shape, lengths: &[usize]) -> Vec<Vec<u8>> {
    // Sequence number and identification wrap around within the first two segments.
    let (mut sequence, mut id) = (u32::MAX - 100, u16::MAX);
    let mut frames = Vec::new();
    for length in lengths {
        let payload: Vec<u8> = (0..*length).map(|at| (at * 7 + length) as u8).collect();
        frames.push(segment(shape, sequence, id, &payload));
        sequence = sequence.wrapping_add(*length as u32);
        id = id.wrapping_add(1);
    }
    frames
}
