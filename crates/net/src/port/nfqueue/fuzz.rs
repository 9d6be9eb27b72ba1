//! Changed messages of the kernel's queue are read or skipped.

use super::message::messages;
use super::{Link, Packet, parse_head};
use crate::mutate;

#[test]
fn changed_messages_are_read_or_skipped() {
    let corpus = mutate::corpus("fuzz/corpus/nfqueue", "");
    let read = mutate::check("nfqueue", &corpus, u64::default, |read, input| {
        for message in messages(input) {
            let Some(packet) = Packet::read(&message) else {
                continue;
            };
            *read += 1;
            let length = packet.payload.len().min(packet.length);
            let view = parse_head(&packet.payload[..length], packet.length, Link::Ip);
            assert!(usize::from(view.transport_at) <= packet.length.max(1 << 16));
        }
    });
    assert!(read.iter().sum::<u64>() >= 6, "packets of the corpus");
}
