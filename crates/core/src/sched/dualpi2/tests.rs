use super::*;
use crate::event::{DropCounter, Event, Sink};
use crate::rng::Rng;
use alloc::vec::Vec;

const MS: u64 = 1_000_000;

/// A discipline, its clock, and what happened to packets.
struct Bench {
    dualpi2: DualPi2,
    rng: Rng,
    sink: Marks,
    now: Time,
}

#[derive(Default)]
struct Marks {
    drops: DropCounter,
    marked: Vec<u32>,
}

impl Sink for Marks {
    fn discard(&mut self, now: Time, packet: Packet, reason: DropReason) {
        self.drops.discard(now, packet, reason);
    }
    fn is_listening(&self) -> bool {
        true
    }
    fn on_event(&mut self, _now: Time, event: &Event<'_>) {
        if let Event::Mark { packet } = event {
            self.marked.push(packet.slot);
        }
    }
}

impl Bench {
    fn new(params: &DualPi2Params) -> Self {
        Bench {
            dualpi2: DualPi2::new(params),
            rng: Rng::from_seed(1),
            sink: Marks::default(),
            now: Time::ZERO,
        }
    }

    fn call<T>(&mut self, f: impl FnOnce(&mut DualPi2, &mut Cx<'_>) -> T) -> T {
        let mut cx = Cx::new(self.now, &mut self.rng, &mut self.sink);
        f(&mut self.dualpi2, &mut cx)
    }

    fn at(&mut self, ns: u64) -> &mut Self {
        self.now = Time::from_ns(ns);
        self
    }

    fn offer(&mut self, slot: u32, ecn: Ecn) {
        let mut packet = Packet::new(slot, 1500);
        packet.ecn = ecn;
        packet.arrival = self.now;
        self.call(|d, cx| d.enqueue(packet, cx));
    }

    fn take(&mut self) -> Option<u32> {
        self.call(|d, cx| d.dequeue(cx)).map(|p| p.slot)
    }

    /// Runs the timers up to `ns` and returns p' after each, in units of 10^-5.
    fn updates(&mut self, ns: u64) -> Vec<u64> {
        let mut seen = Vec::new();
        while let Some(due) = self.dualpi2.next_timer().filter(|t| t.as_ns() <= ns) {
            self.now = due;
            self.call(|d, cx| d.on_timer(cx));
            seen.push(self.dualpi2.base / (ONE / 100_000));
        }
        self.now = Time::from_ns(ns);
        seen
    }
}

#[test]
fn the_base_probability_follows_the_hand_computed_trajectory() {
    let mut bench = Bench::new(&DualPi2Params::default());
    bench.offer(0, Ecn::NotEct);
    bench.offer(1, Ecn::NotEct);
    // The head waits: 16, 32, 48 ms at the updates. With alpha 0.16, beta 3.2, target 15 ms:
    // p1 = 0.16 * 0.001 + 3.2 * 0.016          = 0.05136
    // p2 = p1 + 0.16 * 0.017 + 3.2 * 0.016     = 0.10528
    // p3 = p2 + 0.16 * 0.033 + 3.2 * 0.016     = 0.16176
    assert_eq!(bench.updates(48 * MS), [5136, 10528, 16176]);
    // p_C = p'^2 = 0.0261662..., p_CL = 2 p' = 0.32352.
    assert_eq!(bench.dualpi2.p_classic(), 26_166_297_600_000_000);
    assert_eq!(bench.dualpi2.p_coupled(), 323_520_000_000_000_000);
    // Empty from here on: the delay falls from 48 ms to 0, then p' decays by 0.16 * 0.015 = 0.0024.
    // p4 = p3 - 0.0024 - 3.2 * 0.048           = 0.00576
    assert!(bench.take().is_some() && bench.take().is_some());
    assert_eq!(bench.updates(200 * MS), [576, 336, 96, 0]);
    assert_eq!(bench.dualpi2.next_timer(), None, "nothing left to decay");
    // The clock continues: the next update is due at a multiple of 16 ms.
    bench.at(205 * MS).offer(2, Ecn::NotEct);
    assert_eq!(bench.dualpi2.next_timer(), Some(Time::from_ns(208 * MS)));
}

#[test]
fn classic_signals_come_by_the_square_and_evenly() {
    let mut bench = Bench::new(&DualPi2Params::default());
    // p' = 0.2: p_C = 0.04, the accumulator exceeds 1 with the 26th packet, and then every 25th.
    bench.dualpi2.base = ONE / 5;
    for slot in 0..100 {
        bench.offer(slot, Ecn::Ect0);
    }
    while bench.take().is_some() {}
    assert_eq!(bench.sink.marked, [25, 50, 75]);
    for slot in 0..100 {
        bench.offer(slot, Ecn::NotEct);
    }
    while bench.take().is_some() {}
    // 100 * 0.04 are four more signals, with the remainder: at 101, 126, 151, 176.
    assert_eq!(bench.sink.drops.count(DropReason::Congestion), 4);
}

#[test]
fn coupled_marks_are_linear_and_k_times_the_base() {
    let mut bench = Bench::new(&DualPi2Params::default());
    // p' = 0.2: p_CL = 0.4; the accumulator passes 1 at 1.2 (3rd), 2.0 is not more than 2, 2.4
    // (6th), 3.2 (8th), 4.0 is not, 4.4 (11th) ...
    bench.dualpi2.base = ONE / 5;
    for slot in 0..11 {
        bench.offer(slot, Ecn::Ect1);
    }
    while bench.take().is_some() {}
    assert_eq!(bench.sink.marked, [2, 5, 7, 10]);
}

#[test]
fn the_ramp_marks_by_delay_and_spares_a_single_packet() {
    let p_own = |us| {
        let bench = Bench::new(&DualPi2Params::default());
        bench.dualpi2.p_own(Span::from_us(us))
    };
    // minTh 800 us, range 400 us.
    assert_eq!(p_own(800), 0);
    assert_eq!(p_own(900), ONE / 4);
    assert_eq!(p_own(1000), ONE / 2);
    assert_eq!(p_own(1200), ONE);

    let mut bench = Bench::new(&DualPi2Params::default());
    for slot in 0..5 {
        bench.offer(slot, Ecn::Ect1);
    }
    bench.at(5 * MS);
    while bench.take().is_some() {}
    // Probability 1 while more than one packet is left: packets 0, 1 and 2. The accumulator must
    // exceed 1, so the first one passes.
    assert_eq!(bench.sink.marked, [1, 2]);
}

#[test]
fn the_step_marks_above_its_threshold() {
    let params = DualPi2Params {
        laqm: Laqm::Step,
        ..DualPi2Params::default()
    };
    let bench = Bench::new(&params);
    assert_eq!(bench.dualpi2.p_own(Span::from_ms(1)), 0);
    assert_eq!(bench.dualpi2.p_own(Span::from_ns(MS + 1)), ONE);
}

#[test]
fn a_ramp_without_a_range_is_a_step() {
    let params = DualPi2Params {
        min_th: Span::from_ms(1),
        range: Span::ZERO,
        ..DualPi2Params::default()
    };
    // RFC 9332 appendix A.1, note c: 1 from maxTh = minTh on.
    let bench = Bench::new(&params);
    assert_eq!(bench.dualpi2.p_own(Span::ZERO), 0);
    assert_eq!(bench.dualpi2.p_own(Span::from_ns(MS - 1)), 0);
    assert_eq!(bench.dualpi2.p_own(Span::from_ms(1)), ONE);
}

/// RFC 9332 appendix A.1: `lq.byt() + cq.byt() + MTU > limit`, regardless of the packet's size.
#[test]
fn a_packet_needs_the_room_of_a_full_one() {
    let params = DualPi2Params {
        limit_bytes: Bytes::new(4514),
        ..DualPi2Params::default()
    };
    let mut bench = Bench::new(&params);
    let mut offer = |slot, len| {
        let packet = Packet::new(slot, len);
        bench.call(|d, cx| d.enqueue(packet, cx));
        bench.dualpi2.backlog().bytes
    };
    // 1500 + 1500 + 1514 is the limit. With one byte more, a small packet is refused as a full one
    // is.
    assert_eq!(offer(0, 1500), 1500);
    assert_eq!(offer(1, 1500), 3000);
    assert_eq!(offer(2, 1), 3001);
    assert_eq!(offer(3, 64), 3001);
    assert_eq!(offer(4, 1514), 3001);
    assert_eq!(bench.sink.drops.count(DropReason::Overflow), 2);
}

#[test]
fn packets_are_classified_by_their_codepoint() {
    let mut bench = Bench::new(&DualPi2Params::default());
    for (slot, ecn) in [Ecn::NotEct, Ecn::Ect1, Ecn::Ect0, Ecn::Ce]
        .into_iter()
        .enumerate()
    {
        bench.offer(slot as u32, ecn);
    }
    assert_eq!(bench.dualpi2.l4s.segments, 2);
    // L4S first: 10 % of the link for the classic queue comes later.
    let order: Vec<u32> = core::iter::from_fn(|| bench.take()).collect();
    assert_eq!(order, [1, 3, 0, 2]);
}

#[test]
fn round_robin_gives_the_classic_queue_its_share() {
    let mut bench = Bench::new(&DualPi2Params::default());
    for slot in 0..2000 {
        bench.offer(slot, if slot < 1000 { Ecn::Ect1 } else { Ecn::NotEct });
    }
    let classic = (0..1000)
        .filter(|_| bench.take().is_some_and(|slot| slot >= 1000))
        .count();
    // A tenth of 1000 equal packets, within the head start of one MTU.
    assert!((99..=101).contains(&classic), "{classic}");
}

#[test]
fn the_time_shift_lets_l4s_packets_go_first() {
    let params = DualPi2Params {
        scheduler: DualScheduler::Tsfifo,
        ..DualPi2Params::default()
    };
    let mut bench = Bench::new(&params);
    bench.offer(0, Ecn::NotEct);
    bench.offer(1, Ecn::NotEct);
    bench.at(50 * MS).offer(2, Ecn::Ect1);
    bench.at(51 * MS).offer(3, Ecn::Ect1);
    // Packet 2 arrived 50 ms after 0, which is the shift: it leaves first. Packet 3 arrived later
    // than that.
    let order: Vec<u32> = core::iter::from_fn(|| bench.take()).collect();
    assert_eq!(order, [2, 0, 1, 3]);
}

#[test]
fn overload_drops_what_marks_no_longer_control() {
    // p' = 0.5: p_CL = 1 and p_C = 0.25 = p_Cmax = 1/k^2. ECN is off in the classic queue; L4S
    // packets are dropped with p_C and otherwise marked.
    let mut bench = Bench::new(&DualPi2Params::default());
    bench.dualpi2.base = ONE / 2;
    for slot in 0..100 {
        bench.offer(slot, Ecn::Ect0);
    }
    while bench.take().is_some() {}
    // The accumulator passes 1 at the 5th packet and then at every 4th: 24 of 100.
    assert_eq!(bench.sink.drops.count(DropReason::Overload), 24);
    assert!(bench.sink.marked.is_empty());

    let mut bench = Bench::new(&DualPi2Params::default());
    bench.dualpi2.base = ONE / 2;
    for slot in 0..100 {
        bench.offer(slot, Ecn::Ect1);
    }
    while bench.take().is_some() {}
    // One accumulator for both draws: 0.25, mark at 1.25; 0.5, mark at 1.5; 0.75, mark; 1, mark at
    // 2; 1.25, drop. So the 5th packet and then every 4th are dropped, and all others marked.
    assert_eq!(bench.sink.drops.count(DropReason::Overload), 24);
    assert_eq!(bench.sink.marked.len(), 76);
    assert!(
        (0..100)
            .filter(|slot| slot % 4 == 0 && *slot > 0)
            .all(|s| !bench.sink.marked.contains(&s))
    );
}

#[test]
fn just_below_overload_ecn_still_works() {
    let mut bench = Bench::new(&DualPi2Params::default());
    bench.dualpi2.base = ONE / 2 - 1;
    for slot in 0..100 {
        bench.offer(slot, if slot % 2 == 0 { Ecn::Ect0 } else { Ecn::Ect1 });
    }
    while bench.take().is_some() {}
    assert_eq!(bench.sink.drops.total(), 0);
    assert!(bench.sink.marked.len() > 50);
}

#[test]
fn both_queues_share_one_limit() {
    let params = DualPi2Params {
        limit: 3,
        ..DualPi2Params::default()
    };
    let mut bench = Bench::new(&params);
    for slot in 0..4 {
        bench.offer(
            slot,
            if slot % 2 == 0 {
                Ecn::NotEct
            } else {
                Ecn::Ect1
            },
        );
    }
    assert_eq!(bench.sink.drops.count(DropReason::Overflow), 1);
    assert_eq!(bench.dualpi2.backlog().packets, 3);
}
