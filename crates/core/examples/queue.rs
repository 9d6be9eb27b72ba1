//! A queue in ten lines. Time is an argument of each call.
//!
//! `cargo run -p sluice-core --example queue`
//!
//! The queue is written in words, as on the command line; any registered algorithm works. A packet
//! is a handle: `slot` says where its bytes are. Every packet comes back, from `dequeue` or through
//! the sink, which here only counts.

use sluice_core::registry::Spec;
use sluice_core::{Cx, DropCounter, DropReason, Packet, Rng, Time};

/// Runs the example.
pub fn main() {
    let spec = Spec::parse("fq_codel limit 3").expect("the words name a queue");
    let mut queue = spec.build().expect("its parameters agree");
    let (mut rng, mut sink) = (Rng::from_seed(1), DropCounter::default());
    let mut cx = Cx::new(Time::ZERO, &mut rng, &mut sink);
    for slot in 0..4 {
        let mut packet = Packet::new(slot, 1500);
        packet.flow = slot / 2; // two flows of two packets each
        queue.enqueue(packet, &mut cx);
    }
    let left: Vec<u32> = std::iter::from_fn(|| queue.dequeue(&mut cx).map(|p| p.slot)).collect();

    // The fourth packet exceeded the limit: the fattest queue, of flow 0, lost its head, packet 0.
    println!("packets {left:?} left, {} was dropped", sink.total());
    assert_eq!(left, [1, 2, 3]);
    assert_eq!(sink.count(DropReason::Evicted), 1);
}
