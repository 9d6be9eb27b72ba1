//! Your own AQM beside the built-in ones, over a pipe in virtual time.
//!
//! `cargo run -p sluice-core --example own_aqm`
//!
//! `Bound` drops every packet that waited longer than a bound. An AQM makes decisions and holds no
//! packets; `Fifo` is the queue around it. It needs no registration. To use it in every grammar,
//! see "Adding an AQM" in CONTRIBUTING.md.
//!
//! 1250-byte packets arrive every 0.8 ms, 12.5 Mbit/s, at a pipe of 10 Mbit/s, for ten seconds. The
//! senders do not respond, so CoDel, which expects them to, lets the delay grow for some time.

use sluice_core::aqm::{Aqm, QueueView, Verdict};
use sluice_core::link::{Pipe, PipeParams};
use sluice_core::registry::Spec;
use sluice_core::sched::fifo::{Fifo, FifoParams};
use sluice_core::{Cx, Discipline, DropCounter, DropReason, Packet, Rate, Rng, Span, Time};

/// Drops packets that waited longer than this.
struct Bound(Span);

impl Aqm for Bound {
    fn on_dequeue(&mut self, packet: &Packet, _queue: &QueueView, cx: &mut Cx<'_>) -> Verdict {
        if packet.sojourn(cx.now) <= self.0 {
            Verdict::Pass
        } else {
            Verdict::Drop(DropReason::Congestion)
        }
    }
}

/// Runs the example.
pub fn main() {
    println!("queue           delivered  dropped  worst delay");
    for name in ["droptail", "codel", "pie"] {
        let spec = Spec::parse(name).expect("it is registered");
        let queue = spec.build().expect("its defaults agree");
        run(name, queue);
    }
    let own = Fifo::new(&FifoParams::default(), Bound(Span::from_ms(20)));
    let worst = run("bound 20ms", Box::new(own));
    // A delivered packet waited at most 20 ms and took 1 ms on the link.
    assert!(worst <= Span::from_ms(21));
}

/// Sends the packets through a pipe with `queue` and returns the longest delay.
fn run(name: &str, queue: Box<dyn Discipline>) -> Span {
    let params = PipeParams {
        rate: Rate::from_bps(10_000_000),
        ..PipeParams::default()
    };
    let mut pipe = Pipe::new(&params, queue);
    let (mut rng, mut sink) = (Rng::from_seed(1), DropCounter::default());
    let (mut delivered, mut worst) = (0, Span::ZERO);
    for slot in 0..12_500 {
        let now = Time::from_ns(u64::from(slot) * 800_000);
        let mut cx = Cx::new(now, &mut rng, &mut sink);
        let mut packet = Packet::new(slot, 1250);
        packet.arrival = now;
        pipe.enqueue(packet, &mut cx);
        while let Some(departure) = pipe.poll(&mut cx) {
            delivered += 1;
            worst = worst.max(departure.due.since(departure.packet.arrival));
        }
    }
    println!(
        "{name:<15} {delivered:>9}  {:>7}  {worst:>11}",
        sink.total()
    );
    worst
}
