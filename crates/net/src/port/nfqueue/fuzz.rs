//! Changed messages of the kernel's queue are read or skipped.

use super::message::messages;
use super::{Link, Packet, parse_head};
use crate::mutate;

#[test]
fn changed_messages_are_read_or_skipped() {
    let corpus = mutate::corpus("fuzz/corpus/nfqueue", "");
    let mut read = 0_u64;
    mutate::check("nfqueue", &corpus, |input| {
        for message in messages(input) {
            let Some(packet) = Packet::read(&message) else {
                continue;
            };
            read += 1;
            let length = packet.payload.len().min(packet.length);
            let view = parse_head(&packet.payload[..length], packet.length, Link::Ip);
            assert!(usize::from(view.transport_at) <= packet.length.max(1 << 16));
        }
    });
    assert!(read >= 6, "packets of the corpus");
}
