//! The guarantees of every scheduler with classes: opening, closing, limits, AQMs, and all changes
//! while packets are held.

use sluice_core::aqm::{Aqm, QueueView, Verdict};
use sluice_core::event::StateValue;
use sluice_core::registry::{self, Spec};
use sluice_core::sched::fifo::FifoParams;
use sluice_core::sched::{Classful, Discipline, Share, ShareError};
use sluice_core::units::Bytes;
use sluice_core::{Cx, DropCounter, DropReason, Ecn, Packet, Rng, Span, Time};

/// Returns every registered scheduler with classes.
fn schedulers() -> Vec<Box<dyn Discipline>> {
    let all = registry::algorithms().map(|a| Spec::parse(a.name).unwrap().build().unwrap());
    let classful: Vec<_> = all
        .filter_map(|mut d| d.as_classful().is_some().then_some(d))
        .collect();
    assert!(classful.len() >= 4, "prio, rr, wf2q+, qfq");
    classful
}

/// A scheduler with the arguments of its calls.
struct Bench {
    discipline: Box<dyn Discipline>,
    rng: Rng,
    sink: DropCounter,
    now: Time,
}

impl Bench {
    fn new(discipline: Box<dyn Discipline>) -> Self {
        Bench {
            discipline,
            rng: Rng::from_seed(1),
            sink: DropCounter::default(),
            now: Time::ZERO,
        }
    }

    fn classful(&mut self) -> &mut dyn Classful {
        self.discipline.as_classful().unwrap()
    }

    fn open(&mut self, class: u32, limit: u64, aqm: &str) -> Result<(), ShareError> {
        let aqm = registry::find(aqm).unwrap();
        let aqm = aqm.build_aqm(&Default::default()).unwrap().unwrap();
        self.classful()
            .open(class, Share::default(), &limits(limit), aqm)
    }

    fn offer(&mut self, class: u32, slot: u32) {
        let mut packet = Packet::new(slot, 1000);
        packet.class = class;
        packet.arrival = self.now;
        let mut cx = Cx::new(self.now, &mut self.rng, &mut self.sink);
        self.discipline.enqueue(packet, &mut cx);
    }

    fn with_cx<T>(&mut self, f: impl FnOnce(&mut dyn Classful, &mut Cx<'_>) -> T) -> T {
        let mut cx = Cx::new(self.now, &mut self.rng, &mut self.sink);
        f(self.discipline.as_classful().unwrap(), &mut cx)
    }

    /// Dequeues all packets; returns class and slot in the order in which they leave.
    fn drain(&mut self) -> Vec<(u32, u32)> {
        let mut cx = Cx::new(self.now, &mut self.rng, &mut self.sink);
        std::iter::from_fn(|| self.discipline.dequeue(&mut cx))
            .map(|p| (p.class, p.slot))
            .collect()
    }

    fn slots_of(&mut self, class: u32) -> Vec<u32> {
        let all = self.drain();
        all.iter()
            .filter(|(c, _)| *c == class)
            .map(|(_, slot)| *slot)
            .collect()
    }

    fn backlog_of(&mut self, class: u32) -> Option<u64> {
        self.classful().class_backlog(class).map(|b| b.packets)
    }
}

fn limits(packets: u64) -> FifoParams {
    FifoParams {
        limit: packets,
        ..FifoParams::default()
    }
}

#[test]
fn a_packet_opens_its_class_and_closing_gives_it_back() {
    for discipline in schedulers() {
        let mut bench = Bench::new(discipline);
        bench.offer(7, 1);
        bench.offer(7, 2);
        bench.offer(9, 3);
        assert_eq!(bench.backlog_of(7), Some(2));
        assert_eq!(bench.backlog_of(8), None);
        let mut open = Vec::new();
        bench.classful().classes(&mut |class| open.push(class));
        assert_eq!(open, [7, 9]);

        bench.with_cx(|d, cx| d.close(7, cx));
        assert_eq!(bench.backlog_of(7), None);
        assert_eq!(bench.sink.count(DropReason::Reconfigured), 2);
        assert_eq!(bench.drain(), [(9, 3)]);
        assert!(bench.discipline.backlog().is_empty());
    }
}

#[test]
fn each_class_has_its_own_limit_and_counters() {
    for discipline in schedulers() {
        let mut bench = Bench::new(discipline);
        bench.open(1, 2, "droptail").unwrap();
        bench.open(2, 2, "headdrop").unwrap();
        for slot in 0..4 {
            bench.offer(1, slot);
            bench.offer(2, slot);
        }
        assert_eq!(bench.sink.count(DropReason::Overflow), 2);
        assert_eq!(bench.sink.count(DropReason::Evicted), 2);
        let counters = bench.classful().class_counters(1).unwrap();
        assert_eq!(
            (counters.arrived_packets, counters.arrived_bytes),
            (4, 4000)
        );
        assert_eq!(
            (counters.dropped_packets, counters.dropped_bytes),
            (2, 2000)
        );
        let mut left = bench.drain();
        left.sort_unstable();
        assert_eq!(left, [(1, 0), (1, 1), (2, 2), (2, 3)]);
    }
}

#[test]
fn a_share_can_be_changed_under_load_and_a_wrong_one_changes_nothing() {
    for discipline in schedulers() {
        let mut bench = Bench::new(discipline);
        for slot in 0..10 {
            bench.offer(1, slot);
            bench.offer(2, slot);
        }
        let share = Share {
            weight: 5,
            max_len: 3000,
        };
        bench.classful().set_share(1, share).unwrap();
        let wrong = Share {
            weight: u32::MAX,
            ..share
        };
        assert!(matches!(
            bench.classful().set_share(1, wrong),
            Err(ShareError::Weight {
                weight: u32::MAX,
                ..
            })
        ));
        assert_eq!(bench.classful().class_share(1), Some(share));
        assert_eq!(bench.slots_of(1), (0..10).collect::<Vec<_>>());
        assert_eq!(bench.sink.total(), 0);
    }
}

#[test]
fn smaller_limits_drop_the_youngest() {
    for discipline in schedulers() {
        let mut bench = Bench::new(discipline);
        for slot in 0..10 {
            bench.offer(1, slot);
            bench.offer(2, slot);
        }
        bench.with_cx(|d, cx| d.set_limits(1, &limits(3), cx));
        let bytes = FifoParams {
            limit_bytes: Bytes::new(999),
            ..FifoParams::default()
        };
        bench.with_cx(|d, cx| d.set_limits(2, &bytes, cx));
        assert_eq!(bench.sink.count(DropReason::Reconfigured), 7 + 10);
        assert_eq!(bench.drain(), [(1, 0), (1, 1), (1, 2)]);
    }
}

#[test]
fn opening_again_keeps_the_packets() {
    for discipline in schedulers() {
        let mut bench = Bench::new(discipline);
        for slot in 0..5 {
            bench.offer(1, slot);
        }
        bench.open(1, 2, "codel").unwrap();
        let mut names = Vec::new();
        bench
            .classful()
            .class_state(1, &mut |name, _| names.push(name));
        assert!(names.contains(&"drop_next"), "CoDel is in force: {names:?}");
        bench.offer(1, 5);
        assert_eq!(bench.sink.count(DropReason::Overflow), 1);
        assert_eq!(bench.slots_of(1), [0, 1, 2, 3, 4]);
    }
}

/// Drops every second packet at the head and marks the others. Has a timer every 10 ms while it has
/// packets.
struct Nasty {
    seen: u64,
    timer: Option<Time>,
    ticks: u64,
}

const TICK: Span = Span::from_ms(10);

impl Aqm for Nasty {
    fn on_enqueue(&mut self, _: &Packet, _: &QueueView, cx: &mut Cx<'_>) -> Verdict {
        self.timer.get_or_insert(cx.now + TICK);
        Verdict::Pass
    }

    fn on_dequeue(&mut self, packet: &Packet, _: &QueueView, _: &mut Cx<'_>) -> Verdict {
        self.seen += 1;
        if self.seen % 2 == 1 {
            Verdict::Drop(DropReason::Congestion)
        } else if packet.ecn.is_capable() {
            Verdict::Mark
        } else {
            Verdict::Pass
        }
    }

    fn next_timer(&self) -> Option<Time> {
        self.timer
    }

    fn on_timer(&mut self, queue: &QueueView, cx: &mut Cx<'_>) {
        self.ticks += 1;
        self.timer = (queue.packets > 0).then_some(cx.now + TICK);
    }

    fn state(&self, visit: &mut dyn FnMut(&'static str, StateValue)) {
        visit("ticks", StateValue::Count(self.ticks));
    }
}

fn nasty() -> Box<dyn Aqm> {
    Box::new(Nasty {
        seen: 0,
        timer: None,
        ticks: 0,
    })
}

#[test]
fn an_aqm_that_drops_the_head_leaves_the_order_sound() {
    for discipline in schedulers() {
        let mut bench = Bench::new(discipline);
        for class in 0..5 {
            let share = Share {
                weight: 1 + class,
                ..Share::default()
            };
            let open = bench.classful().open(class, share, &limits(100), nasty());
            open.unwrap();
        }
        // Odd numbers of packets: the last drop empties the class without a packet being sent.
        for slot in 0..7 {
            for class in 0..5 {
                let mut packet = Packet::new(slot, 100 + 300 * slot);
                packet.class = class;
                packet.ecn = Ecn::Ect0;
                let mut cx = Cx::new(bench.now, &mut bench.rng, &mut bench.sink);
                bench.discipline.enqueue(packet, &mut cx);
            }
        }
        let sent = bench.drain();
        assert_eq!(sent.len(), 15);
        assert_eq!(bench.sink.count(DropReason::Congestion), 20);
        for class in 0..5 {
            let slots: Vec<u32> = sent.iter().filter(|s| s.0 == class).map(|s| s.1).collect();
            assert_eq!(slots, [1, 3, 5]);
            let counters = bench.classful().class_counters(class).unwrap();
            assert_eq!(counters.marked_packets, 3);
        }
        assert!(bench.discipline.backlog().is_empty());
        bench.offer(3, 9);
        bench.offer(3, 9);
        assert_eq!(bench.drain().len(), 1, "the class is served again");
    }
}

#[test]
fn timers_of_aqms_run_when_due_and_stop_when_idle() {
    for discipline in schedulers() {
        let mut bench = Bench::new(discipline);
        for class in 0..3 {
            let open = bench
                .classful()
                .open(class, Share::default(), &limits(100), nasty());
            open.unwrap();
        }
        assert_eq!(bench.discipline.next_timer(), None);
        for class in 0..3 {
            bench.now = Time::from_ns(u64::from(class) * 1_000_000);
            bench.offer(class, 0);
        }
        // Class 0 is due at 10 ms, class 1 at 11 ms, class 2 at 12 ms.
        assert_eq!(
            bench.discipline.next_timer(),
            Some(Time::from_ns(10_000_000))
        );
        bench.now = Time::from_ns(11_000_000);
        let mut cx = Cx::new(bench.now, &mut bench.rng, &mut bench.sink);
        bench.discipline.on_timer(&mut cx);
        assert_eq!(
            bench.discipline.next_timer(),
            Some(Time::from_ns(12_000_000))
        );
        let ticks = |bench: &mut Bench, class| {
            let mut ticks = None;
            bench
                .classful()
                .class_state(class, &mut |_, value| ticks = Some(value));
            ticks
        };
        assert_eq!(ticks(&mut bench, 0), Some(StateValue::Count(1)));
        assert_eq!(ticks(&mut bench, 2), Some(StateValue::Count(0)));
        bench.with_cx(|d, cx| d.close(2, cx));
        // Once the other classes are empty, their timers expire one more time without a call of an
        // AQM.
        bench.drain();
        bench.now = bench.discipline.next_timer().expect("two are left");
        let mut cx = Cx::new(bench.now, &mut bench.rng, &mut bench.sink);
        bench.discipline.on_timer(&mut cx);
        assert_eq!(bench.discipline.next_timer(), None);
        assert_eq!(ticks(&mut bench, 0), Some(StateValue::Count(1)));
    }
}

#[test]
fn a_class_beyond_the_weight_sum_is_refused_and_its_packets_have_no_route() {
    // QFQ serves at most 2^17 of weight: two classes of 2^16.
    let mut bench = Bench::new(Spec::parse("qfq").unwrap().build().unwrap());
    let share = Share {
        weight: 65536,
        ..Share::default()
    };
    for class in 0..2 {
        let aqm = registry::find("droptail").unwrap();
        let aqm = aqm.build_aqm(&Default::default()).unwrap().unwrap();
        let open = bench.classful().open(class, share, &limits(10), aqm);
        open.unwrap();
    }
    bench.offer(2, 0);
    assert_eq!(bench.sink.count(DropReason::NoRoute), 1);
    assert!(bench.open(2, 10, "droptail").is_err());
    bench.with_cx(|d, cx| d.close(0, cx));
    bench.offer(2, 0);
    assert_eq!(bench.drain(), [(2, 0)]);
}

#[test]
fn a_hundred_thousand_classes_are_opened_used_and_closed() {
    for discipline in schedulers() {
        let mut bench = Bench::new(discipline);
        for class in 0..100_000 {
            bench.offer(class * 31, class);
        }
        assert_eq!(bench.drain().len(), 100_000);
        bench.with_cx(|d, cx| (0..100_000).for_each(|class| d.close(class * 31, cx)));
        bench.offer(5, 5);
        assert_eq!(bench.drain(), [(5, 5)]);
    }
}
