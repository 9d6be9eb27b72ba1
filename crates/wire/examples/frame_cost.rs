//! Measures the nanoseconds per frame of the steps of the packet path.
//!
//! `cargo run --release -p sluice-wire --example frame_cost`

use sluice_wire::frame::{
    Checksums, FlowHasher, Gather, Sum, SuperPacket, VnetHeader, parse, set_ce,
};
use std::hint::black_box;
use std::time::Instant;

fn main() {
    let v4 = frame_v4(1448);
    let v6 = frame_v6(1428);
    let hasher = FlowHasher::new(1);
    let (view, view_v6) = (parse(&v4), parse(&v6));
    cost("parse IPv4 TCP", || parse(black_box(&v4)).ip_len);
    cost("parse IPv6 TCP", || parse(black_box(&v6)).ip_len);
    cost("flow hash IPv4", || hasher.flow(black_box(&view)));
    cost("flow hash IPv6", || hasher.flow(black_box(&view_v6)));
    let mut marked = v4.clone();
    cost("set CE, IPv4", || {
        u32::from(set_ce(black_box(&mut marked), &view))
    });
    cost("checksum of 1448 B", || {
        let mut sum = Sum::new();
        sum.add(black_box(&v4[54..1502]));
        u32::from(sum.finish())
    });
    let large = frame_v4(44 * 1448);
    let vnet = VnetHeader {
        gso_type: 1,
        gso_size: 1448,
        ..VnetHeader::default()
    };
    let packet = SuperPacket::new(&parse(&large), &vnet).unwrap();
    let gather = Gather {
        head: &large,
        tail: &[],
    };
    let mut out = [0; 2048];
    for checksums in [Checksums::Partial, Checksums::Complete] {
        let mut index = 0;
        cost(&format!("segment of 1448 B, {checksums:?}"), || {
            index = (index + 1) % packet.segments();
            let segment = packet.write_segment(index, black_box(gather), checksums, &mut out);
            segment.unwrap().0
        });
    }
}

fn cost(name: &str, mut work: impl FnMut() -> u32) {
    const TIMES: u64 = 2_000_000;
    // The lowest of five measurements, because other load only adds time.
    let best = (0..5)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..TIMES {
                black_box(work());
            }
            start.elapsed().as_nanos() as u64
        })
        .min()
        .unwrap();
    println!("{name:<28} {:>7.1} ns", best as f64 / TIMES as f64);
}

fn frame_v4(payload: usize) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend([0x08, 0x00, 0x45, 2]);
    frame.extend(((40 + payload) as u16).to_be_bytes());
    frame.extend([0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend(tcp());
    frame.resize(54 + payload, 7);
    frame
}

fn frame_v6(payload: usize) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
    frame.extend(((20 + payload) as u16).to_be_bytes());
    frame.extend([6, 64]);
    frame.extend([0xfd; 32]);
    frame.extend(tcp());
    frame.resize(74 + payload, 7);
    frame
}

fn tcp() -> [u8; 20] {
    let mut tcp = [0; 20];
    tcp[..4].copy_from_slice(&[0x12, 0x34, 0, 80]);
    tcp[12] = 0x50;
    tcp[13] = 0x10;
    tcp
}
