//! No queue allocates per packet once it has held its largest backlog.

use std::alloc::System;

use sluice_core::registry::{self, Spec};
use sluice_core::{Cx, Discipline, DropCounter, Ecn, Packet, Rng, Span, Time};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// A load that is a little too high for the link, of 50 flows, with all timers.
struct Load {
    queue: Box<dyn Discipline>,
    rng: Rng,
    drops: DropCounter,
    now: Time,
    next: u32,
}

impl Load {
    fn enqueue(&mut self) {
        let i = self.next;
        self.next += 1;
        let mut packet = Packet::new(i, 100 + i % 1400);
        packet.flow = i % 50;
        packet.src = i % 10;
        packet.dst = i % 7;
        packet.class = i % 5;
        packet.ecn = Ecn::from_bits(i as u8);
        packet.arrival = self.now;
        let mut cx = Cx::new(self.now, &mut self.rng, &mut self.drops);
        self.queue.enqueue(packet, &mut cx);
    }

    /// Time for one packet on the link passes.
    fn slot(&mut self) {
        self.now += Span::from_us(100);
        while let Some(due) = self.queue.next_timer().filter(|due| *due <= self.now) {
            let mut cx = Cx::new(due, &mut self.rng, &mut self.drops);
            self.queue.on_timer(&mut cx);
        }
        self.enqueue();
        if self.next.is_multiple_of(9) {
            self.enqueue();
        }
        let mut cx = Cx::new(self.now, &mut self.rng, &mut self.drops);
        let _ = self.queue.dequeue(&mut cx);
    }
}

#[test]
fn no_queue_allocates_per_packet_in_steady_state() {
    for algorithm in registry::algorithms() {
        let mut words = vec![String::from(algorithm.name)];
        if algorithm.params().any(|decl| decl.name == "limit") {
            words.push("limit 500".into());
        }
        let spec = Spec::parse(&words.join(" ")).expect("every queue has a limit or none");
        let mut load = Load {
            queue: spec.build().expect("a parsed queue is built"),
            rng: Rng::from_seed(1),
            drops: DropCounter::default(),
            now: Time::from_ns(1),
            next: 0,
        };
        // A burst beyond any limit, then 2 s of load.
        for _ in 0..3000 {
            load.enqueue();
        }
        for _ in 0..20_000 {
            load.slot();
        }
        let region = Region::new(ALLOCATOR);
        for _ in 0..20_000 {
            load.slot();
        }
        let stats = region.change();
        assert_eq!(
            (stats.allocations, stats.reallocations),
            (0, 0),
            "{} allocates",
            algorithm.name
        );
        assert!(load.next > 45_000);
    }
}
