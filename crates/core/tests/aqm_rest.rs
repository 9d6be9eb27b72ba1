//! An AQM at rest has no timer and misses nothing. Its timer may be called at every instant at
//! which an update could be due, or only when the AQM requests it: every packet has the same fate,
//! and every variable the same value.

use sluice_core::event::{Event, StateValue};
use sluice_core::registry::Spec;
use sluice_core::{Cx, Discipline, DropReason, Ecn, Packet, Rng, Sink, Time};

/// All queues that have a timer.
const QUEUES: [&str; 17] = [
    "pie",
    "pie dre ecn",
    "pie onoff limit 9",
    "pie preset docsis",
    "pie preset docsis noonoff limit 40",
    "pie preset docsis limit 9 msr 2Mbit/s peak_rate 3Mbit/s msr_burst 20000",
    "fq_pie flows 3 limit 40 preset docsis",
    "pie alpha 0 beta 0.5",
    "pie variant linux",
    "pie variant linux dre",
    "pie variant dummynet",
    "pie variant dummynet ts onoff limit 9",
    "fq_pie flows 3 limit 40",
    "fq_pie flows 3 limit 40 variant dummynet",
    "pi2 ecn",
    "red adaptive min 2 max 6",
    "dualpi2",
];

/// An update can be due at its multiples: the periods are 15, 16 and 500 ms.
const STEP: u64 = 1_000_000;

/// The events: `(when, what, slot)`, and the variables.
type Story = Vec<(u64, &'static str, u64)>;

#[derive(Default)]
struct Witness {
    story: Story,
    is_listening: bool,
}

impl Sink for Witness {
    fn discard(&mut self, now: Time, packet: Packet, reason: DropReason) {
        self.story
            .push((now.as_ns(), reason.name(), u64::from(packet.slot)));
    }

    fn is_listening(&self) -> bool {
        self.is_listening
    }

    fn on_event(&mut self, now: Time, event: &Event<'_>) {
        if let Event::Mark { packet } = event {
            self.story
                .push((now.as_ns(), "marked", u64::from(packet.slot)));
        }
    }
}

#[derive(Clone, Copy)]
enum Manner {
    /// The timer is also called at every multiple of [`STEP`].
    Always,
    /// The timer is called at the instants that the AQM requests.
    WhenAsked,
}

struct Bench {
    queue: Box<dyn Discipline>,
    rng: Rng,
    witness: Witness,
    manner: Manner,
    /// Timers before this instant were called.
    done: u64,
    calls: u64,
}

impl Bench {
    fn new(spec: &str, manner: Manner, is_listening: bool) -> Self {
        Bench {
            queue: Spec::parse(spec).unwrap().build().unwrap(),
            rng: Rng::from_seed(5),
            witness: Witness {
                is_listening,
                ..Witness::default()
            },
            manner,
            done: 0,
            calls: 0,
        }
    }

    fn call<T>(&mut self, at: u64, f: impl FnOnce(&mut dyn Discipline, &mut Cx<'_>) -> T) -> T {
        let mut cx = Cx::new(Time::from_ns(at), &mut self.rng, &mut self.witness);
        f(&mut *self.queue, &mut cx)
    }

    /// Calls the timers that are due before `end`.
    fn timers_before(&mut self, end: u64) {
        loop {
            let asked = self.queue.next_timer().map_or(u64::MAX, Time::as_ns);
            let due = match self.manner {
                Manner::Always => asked.min(self.done.div_ceil(STEP) * STEP),
                Manner::WhenAsked => asked,
            };
            if due >= end {
                self.done = self.done.max(end);
                return;
            }
            self.calls += 1;
            self.done = due + 1;
            self.call(due, |queue, cx| queue.on_timer(cx));
        }
    }

    fn arrive(&mut self, at: u64, slot: u32, flow: u32, ecn: Ecn) {
        let mut packet = Packet::new(slot, 1500);
        packet.arrival = Time::from_ns(at);
        packet.flow = flow;
        packet.ecn = ecn;
        self.call(at, |queue, cx| queue.enqueue(packet, cx));
    }

    fn serve(&mut self, at: u64) {
        if let Some(packet) = self.call(at, |queue, cx| queue.dequeue(cx)) {
            let slot = u64::from(packet.slot);
            self.witness.story.push((at, "sent", slot));
        }
    }

    fn note_variables(&mut self, at: u64) {
        let story = &mut self.witness.story;
        self.queue.state(&mut |_, name, value| {
            let value = match value {
                StateValue::Count(n) => n,
                StateValue::Time(time) => time.as_ns(),
                StateValue::Span(span) => span.as_ns(),
                StateValue::Ratio(ratio) => ratio.to_bits(),
                StateValue::Flag(flag) => u64::from(flag),
            };
            story.push((at, name, value));
        });
    }
}

/// Bursts, trickles and pauses, in which a queue drains or does not change.
fn run(spec: &str, manner: Manner, is_listening: bool, seed: u64) -> (Story, u64) {
    let mut bench = Bench::new(spec, manner, is_listening);
    let mut draw = Rng::from_seed(seed);
    let mut now = 0;
    let mut slot = 0;
    for _ in 0..60 {
        now += match draw.below(6) {
            // 70 s are 4666 updates of 15 ms, long after the last one that is reported.
            0 => 70_000_000_000 + draw.below(STEP),
            1 => 3_000_000_000,
            // Coincides with an update.
            2 => (now / 15_000_000 + 2) * 15_000_000 - now,
            _ => draw.below(50_000_000),
        };
        let load = draw.below(4);
        for _ in 0..draw.below(40) {
            bench.timers_before(now);
            for _ in 0..draw.below(1 + load) {
                let ecn = Ecn::from_bits(draw.below(4) as u8);
                let flow = draw.below(5) as u32;
                bench.arrive(now, slot, flow, ecn);
                slot += 1;
            }
            bench.timers_before(now + 1);
            bench.serve(now);
            now += 4_000_000 + draw.below(2) * 1_000_000;
        }
        if draw.below(3) > 0 {
            bench.timers_before(now);
            while !bench.queue.backlog().is_empty() {
                bench.serve(now);
            }
            bench.serve(now);
        }
        bench.note_variables(now);
    }
    (bench.witness.story, bench.calls)
}

#[test]
fn a_timer_that_is_not_asked_for_would_have_changed_nothing() {
    for spec in QUEUES {
        for seed in 0..3 {
            // A listener must not change anything.
            let (stepped, all) = run(spec, Manner::Always, true, seed);
            let (asked, some) = run(spec, Manner::WhenAsked, true, seed);
            let (unheard, few) = run(spec, Manner::WhenAsked, false, seed);
            assert_eq!(asked, stepped, "`{spec}`, seed {seed}");
            let marks = |story: Story| -> Story {
                let is_told = |row: &(u64, &str, u64)| row.1 == "marked";
                story.into_iter().filter(|row| !is_told(row)).collect()
            };
            assert_eq!(marks(unheard), marks(stepped), "`{spec}`, seed {seed}");
            assert!(few == some && some < all, "`{spec}`: {few}, {some}, {all}");
        }
    }
}

#[test]
fn an_idle_queue_asks_for_no_timer_after_a_thousand_repetitions() {
    for spec in QUEUES {
        let mut bench = Bench::new(spec, Manner::WhenAsked, true);
        for slot in 0..20 {
            bench.arrive(7, slot, slot, Ecn::NotEct);
        }
        for at in 8..40 {
            bench.serve(at);
        }
        // Three years; a thousand reported repetitions, and the decay before them.
        bench.timers_before(100_000_000_000_000_000);
        assert!(bench.calls < 1_500, "`{spec}`: {} calls", bench.calls);
        assert_eq!(bench.queue.next_timer(), None, "`{spec}`");
    }
}
