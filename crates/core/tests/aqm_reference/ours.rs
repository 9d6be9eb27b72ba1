//! The registered queue behind the interface of the link.

use sluice_core::registry::Spec;
use sluice_core::{Cx, Discipline, DropReason, Ecn, Event, Packet, Rng, Sink, Time};

use crate::link::{Arrival, Fate, Queue};

pub struct Ours {
    queue: Box<dyn Discipline>,
    rng: Rng,
    /// The probability after each timer.
    pub told: Vec<(u64, f64)>,
}

impl Ours {
    pub fn new(spec: &str) -> Self {
        let spec = Spec::parse(spec).unwrap_or_else(|error| panic!("`{spec}`: {error}"));
        Ours::of(spec.build().expect("a parsed queue is built"))
    }

    pub fn of(queue: Box<dyn Discipline>) -> Self {
        Ours {
            queue,
            rng: Rng::from_seed(1),
            told: Vec::new(),
        }
    }
}

struct Fates<'a>(&'a mut [Option<Fate>]);

impl Sink for Fates<'_> {
    fn discard(&mut self, now: Time, packet: Packet, reason: DropReason) {
        let at = now.as_ns();
        self.0[packet.slot as usize] = Some(match reason {
            DropReason::Congestion | DropReason::Overload => Fate::Dropped(at),
            DropReason::Overflow => Fate::Refused(at),
            DropReason::Evicted => Fate::Evicted(at),
            other => panic!("no rule here drops for {other:?}"),
        });
    }

    fn is_listening(&self) -> bool {
        true
    }

    fn on_event(&mut self, now: Time, event: &Event<'_>) {
        match event {
            Event::Mark { packet } => {
                self.0[packet.slot as usize] = Some(Fate::Marked(now.as_ns()));
            }
            Event::Dequeue { packet } => {
                let fate = &mut self.0[packet.slot as usize];
                fate.get_or_insert(Fate::Sent(now.as_ns()));
            }
            _ => {}
        }
    }
}

impl Queue for Ours {
    fn enqueue(&mut self, now: u64, id: usize, arrival: &Arrival, fates: &mut [Option<Fate>]) {
        let mut packet = Packet::new(id as u32, arrival.size);
        packet.arrival = Time::from_ns(now);
        packet.flow = arrival.flow;
        packet.ecn = Ecn::from_bits(arrival.ecn);
        let mut sink = Fates(fates);
        let mut cx = Cx::new(Time::from_ns(now), &mut self.rng, &mut sink);
        self.queue.enqueue(packet, &mut cx);
    }

    fn dequeue(&mut self, now: u64, fates: &mut [Option<Fate>]) -> Option<usize> {
        let mut sink = Fates(fates);
        let mut cx = Cx::new(Time::from_ns(now), &mut self.rng, &mut sink);
        self.queue
            .dequeue(&mut cx)
            .map(|packet| packet.slot as usize)
    }

    fn due(&self) -> Option<u64> {
        self.queue.next_timer().map(Time::as_ns)
    }

    fn timer(&mut self, now: u64) {
        let mut sink = Fates(&mut []);
        let mut cx = Cx::new(Time::from_ns(now), &mut self.rng, &mut sink);
        self.queue.on_timer(&mut cx);
        let mut probability = None;
        self.queue
            .state(&mut |queue, name, value| match (queue, name) {
                (0, "probability") => probability = probability.or(Some(value.as_f64())),
                // What DOCSIS-PIE and DualPI2 control.
                (0, "p_base") => probability = Some(value.as_f64()),
                _ => {}
            });
        self.told.extend(probability.map(|p| (now, p)));
    }
}
