//! Frames: a byte that chooses the link, ten bytes of an offload header, and the frame. What is read
//! stays inside the frame, and segments of a super-packet have the lengths that they state.
#![no_main]

use sluice_wire::frame::{
    Checksums, FlowHasher, Gather, Link, SuperPacket, View, VnetHeader, parse_head, pure_ack, quic,
    set_ce, timestamps, trim,
};

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    let Some((&[which, ref vnet @ ..], frame)) = input.split_first_chunk::<11>() else {
        return;
    };
    let link = match which & 1 {
        0 => Link::Ethernet,
        _ => Link::Ip,
    };
    let word = |at: usize| u16::from_le_bytes([vnet[at], vnet[at + 1]]);
    let vnet = VnetHeader {
        flags: vnet[0],
        gso_type: vnet[1],
        hdr_len: word(2),
        gso_size: word(4),
        csum_start: word(6),
        csum_offset: word(8),
    };
    // A router also reads the beginning of a frame whose rest lies elsewhere.
    let head = &frame[..frame.len() * usize::from(which >> 1) / 127];
    for (head, frame_len) in [(frame, frame.len()), (head, frame.len())] {
        let view = parse_head(head, frame_len, link);
        check(&view, head, frame_len);
        if let Ok(whole) = SuperPacket::new(&view, &vnet) {
            segments(&whole, head, &frame[head.len()..]);
        }
        if let Ok(whole) = SuperPacket::in_tunnel(&view, &vnet, head) {
            segments(&whole, head, &frame[head.len()..]);
        }
        let (mut trimmed, mut shorter) = (head.to_vec(), view);
        if trim(&mut trimmed, &mut shorter, &vnet) {
            let again = parse_head(&trimmed, shorter.frame_len as usize, link);
            assert_eq!(again, shorter);
        }
        let mut marked = head.to_vec();
        let _ = set_ce(&mut marked, &view);
        let again = parse_head(&marked, frame_len, link);
        assert_eq!(
            (again.addresses, again.ports()),
            (view.addresses, view.ports())
        );
    }
});

fn check(view: &View, head: &[u8], frame_len: usize) {
    assert_eq!(view.frame_len as usize, frame_len);
    assert!(usize::from(view.network) + view.ip_len as usize <= frame_len || !view.is_ip());
    assert!(view.ports().is_none() || view.is_ip());
    // Whatever is evasive has a fault or is a fragment.
    assert!(!view.is_evasive() || view.fault.is_some() || view.fragment.is_some());
    let hasher = FlowHasher::new(1);
    assert_eq!(hasher.flow(view), hasher.flow(view));
    let _ = (hasher.source(view), hasher.destination(view));
    let _ = (
        pure_ack(view, head),
        timestamps(view, head),
        quic(view, head),
    );
}

fn segments(whole: &SuperPacket, head: &[u8], tail: &[u8]) {
    let count = whole.segments();
    // No frame becomes more packets than one that is legitimate (64 KiB in segments of 48 bytes).
    assert!((1..=1366).contains(&count), "{count} segments");
    let lengths: u32 = (0..count).map(|index| whole.segment_len(index)).sum();
    assert_eq!(lengths, whole.wire_len());
    let mut out = vec![0; 70_000];
    for index in [0, count / 2, count - 1] {
        for checksums in [Checksums::Complete, Checksums::Partial] {
            let gather = Gather { head, tail };
            if let Some((length, _)) = whole.write_segment(index, gather, checksums, &mut out) {
                assert_eq!(length, whole.segment_len(index));
            }
        }
    }
}
