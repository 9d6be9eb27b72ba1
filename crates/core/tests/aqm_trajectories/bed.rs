//! One AQM without a discipline: the tests define the state of the queue.

use sluice_core::aqm::{AqmAlgorithm, QueueView, Verdict};
use sluice_core::param::Params;
use sluice_core::registry;
use sluice_core::{Cx, DropCounter, Ecn, Packet, Rng, Span, Time};

pub struct Bed<A> {
    pub aqm: A,
    pub now: Time,
    pub queue: QueueView,
    pub rng: Rng,
    sink: DropCounter,
}

pub const LEN: u32 = 1000;

impl<A: AqmAlgorithm> Bed<A> {
    /// Creates the AQM that `words` describe, `red min 5` and the like.
    pub fn new(words: &str) -> Self {
        let spec = registry::Spec::parse(words).unwrap_or_else(|e| panic!("`{words}`: {e}"));
        let mut values = sluice_core::param::Values::new();
        for decl in spec.algorithm.params() {
            values.set(decl.name, spec.value(decl.name).expect("it is declared"));
        }
        let params = A::Params::from_values(&values).expect("the spec was checked");
        Bed {
            aqm: A::new(&params),
            now: Time::ZERO,
            queue: QueueView {
                limit_packets: u64::MAX,
                limit_bytes: u64::MAX,
                ..QueueView::default()
            },
            rng: Rng::from_seed(1),
            sink: DropCounter::default(),
        }
    }

    /// Sets the queue to `packets` packets of [`LEN`] bytes.
    pub fn hold(&mut self, packets: u64) {
        self.queue.packets = packets;
        self.queue.bytes = packets * u64::from(LEN);
        self.queue.total_bytes = self.queue.bytes;
    }

    pub fn arrive(&mut self, ecn: Ecn) -> Verdict {
        let packet = self.packet(self.now, ecn);
        let mut cx = Cx::new(self.now, &mut self.rng, &mut self.sink);
        self.aqm.on_enqueue(&packet, &self.queue, &mut cx)
    }

    pub fn refuse(&mut self) {
        let packet = self.packet(self.now, Ecn::NotEct);
        let mut cx = Cx::new(self.now, &mut self.rng, &mut self.sink);
        self.aqm.on_refused(&packet, &self.queue, &mut cx);
    }

    /// Lets a packet leave that waited for `sojourn`.
    pub fn leave(&mut self, sojourn: Span, ecn: Ecn) -> Verdict {
        let arrival = Time::from_ns(self.now.as_ns() - sojourn.as_ns());
        let packet = self.packet(arrival, ecn);
        let mut cx = Cx::new(self.now, &mut self.rng, &mut self.sink);
        self.aqm.on_dequeue(&packet, &self.queue, &mut cx)
    }

    pub fn find_empty(&mut self) {
        let mut cx = Cx::new(self.now, &mut self.rng, &mut self.sink);
        self.aqm.on_empty(&mut cx);
    }

    /// Advances to the next timer and calls it.
    pub fn tick(&mut self) {
        self.now = self.aqm.next_timer().expect("it has a timer");
        let mut cx = Cx::new(self.now, &mut self.rng, &mut self.sink);
        self.aqm.on_timer(&self.queue, &mut cx);
    }

    /// Calls timers with nothing queued, so that packets can have waited, then fills the queue.
    pub fn warm(mut self) -> Self {
        self.hold(0);
        while self.now < Time::ZERO + Span::from_secs(2) {
            self.tick();
        }
        self.hold(100);
        self
    }

    /// Returns a variable as a number.
    pub fn value(&self, wanted: &str) -> f64 {
        let mut found = None;
        self.aqm.state(&mut |name, value| {
            if name == wanted {
                found = Some(value.as_f64());
            }
        });
        found.unwrap_or_else(|| panic!("there is no variable `{wanted}`"))
    }

    fn packet(&self, arrival: Time, ecn: Ecn) -> Packet {
        let mut packet = Packet::new(0, LEN);
        packet.arrival = arrival;
        packet.ecn = ecn;
        packet
    }
}

/// Checks that two numbers are within `tolerance` of each other.
pub fn assert_near(got: f64, expected: f64, tolerance: f64, what: &str) {
    let difference = (got - expected).abs();
    assert!(difference <= tolerance, "{what}: {got}, not {expected}");
}
