//! A link in virtual time: rate, delay, loss and a queue, driven by an event loop of a few lines.
//!
//! `cargo run -p sluice-core --example pipe`
//!
//! A link never reads a clock. The host calls `enqueue` and `poll` with the time, and `next_wake`
//! says when the next call has something to do; a simulator jumps there, a router sleeps until
//! then. With the same seed the results are the same everywhere.

use sluice_core::link::{Link, LinkFiles, LinkParams};
use sluice_core::registry::Spec;
use sluice_core::{Cx, DropCounter, DropReason, Packet, Rng, Time, Wake};

/// Runs the example.
pub fn main() {
    let params = LinkParams::parse("rate 12Mbit/s delay 5ms lose_every 4").expect("it is a link");
    let spec = Spec::parse("fifo").expect("the word names a queue");
    let queue = spec.build().expect("its defaults agree");
    let (mut rng, mut sink) = (Rng::from_seed(1), DropCounter::default());
    let mut link = Link::new(&params, LinkFiles::default(), queue, &rng);

    // Eight packets arrive at once; the pattern loses the fourth and the eighth.
    let mut cx = Cx::new(Time::ZERO, &mut rng, &mut sink);
    for slot in 0..8 {
        link.enqueue(Packet::new(slot, 1500), &mut cx);
    }

    let mut arrivals = Vec::new();
    loop {
        while let Some(departure) = link.poll(&mut cx) {
            println!(
                "packet {} arrives at {}",
                departure.packet.slot, departure.due
            );
            arrivals.push((departure.packet.slot, departure.due.as_ns() / 1_000_000));
        }
        match link.next_wake() {
            Wake::Now => {}
            Wake::At(at) => cx.now = at,
            Wake::OnEnqueue => break,
        }
    }

    // 1500 B at 12 Mbit/s take 1 ms: one packet per ms, each 5 ms after its transmission.
    assert_eq!(arrivals, [(0, 6), (1, 7), (2, 8), (4, 9), (5, 10), (6, 11)]);
    assert_eq!(sink.count(DropReason::Loss), 2);
}
