//! BLUE's probability, COBALT's schedule, the step.

use sluice_core::aqm::blue::Blue;
use sluice_core::aqm::cobalt::Cobalt;
use sluice_core::aqm::step::Step;
use sluice_core::aqm::{Aqm, Verdict};
use sluice_core::{DropReason, Ecn, Span, Time};

use crate::bed::{Bed, assert_near};

const MS: u64 = 1_000_000;

#[test]
fn blue_grows_with_losses_and_falls_when_idle_once_per_freeze_time() {
    let mut bed = Bed::<Blue>::new("blue");
    // Losses every 30 ms for 1 s: one change at 0, then whenever more than 100 ms have passed, at
    // 120, 240 ... 960 ms: nine in all.
    for i in 0..34 {
        bed.now = Time::from_ns(i * 30 * MS);
        bed.refuse();
    }
    assert_near(
        bed.value("probability"),
        9.0 * 0.0025,
        1e-15,
        "after losses",
    );
    // Idle from 1000 ms on: less than 100 ms since 960 ms, so no event yet. A packet at 1300 ms
    // finds that three freeze times passed (1060, 1160, 1260).
    bed.now = Time::from_ns(1000 * MS);
    bed.find_empty();
    bed.find_empty();
    assert_near(bed.value("probability"), 0.0225, 1e-15, "frozen");
    bed.now = Time::from_ns(1300 * MS);
    bed.hold(0);
    bed.arrive(Ecn::NotEct);
    assert_near(
        bed.value("probability"),
        0.0225 - 3.0 * 0.00025,
        1e-15,
        "idle",
    );
}

#[test]
fn blue_drops_with_its_probability() {
    let mut bed = Bed::<Blue>::new("blue increment 0.1 ecn");
    bed.now = Time::from_ns(1);
    bed.refuse();
    let drops = (0..20_000).filter(|_| bed.arrive(Ecn::NotEct) != Verdict::Pass);
    // Four standard deviations: 4 sqrt(0.1 * 0.9 / 20000) = 0.0085.
    assert_near(drops.count() as f64 / 20_000.0, 0.1, 0.0085, "drops");
    assert!((0..1000).any(|_| bed.arrive(Ecn::Ect0) == Verdict::Mark));
}

#[test]
fn cobalt_signals_by_codels_law() {
    // After one packet that did not wait, packets that waited 20 ms leave every 100 us. The first
    // of them starts the schedule: a signal 100 ms later, then after 100 / sqrt(2), 100 / sqrt(3)
    // ms ...
    let mut bed = Bed::<Cobalt>::new("cobalt noecn");
    bed.hold(100);
    bed.now = Time::from_ns(50 * MS);
    assert_eq!(bed.leave(Span::ZERO, Ecn::NotEct), Verdict::Pass);
    let mut signals = Vec::new();
    for _ in 0..6000 {
        bed.now += Span::from_us(100);
        if let Verdict::Drop(reason) = bed.leave(Span::from_ms(20), Ecn::NotEct) {
            assert_eq!(reason, DropReason::Congestion);
            signals.push(bed.now.as_ns() as f64 / 1e6);
        }
    }
    let mut due = 50.1;
    for (count, at) in (1..).zip(&signals).take(10) {
        due += 100.0 / f64::from(count).sqrt();
        // Signals wait for the next packet, each 100 us.
        assert!(
            (0.0..0.1001).contains(&(at - due)),
            "signal {count}: {at}, due {due}"
        );
    }
    // Below target it winds down step by step, without a signal.
    let before = bed.value("count");
    for _ in 0..6000 {
        bed.now += Span::from_us(100);
        assert_eq!(bed.leave(Span::from_ms(1), Ecn::NotEct), Verdict::Pass);
    }
    assert!(before > 8.0 && bed.value("count") < before / 2.0);
}

#[test]
fn cobalts_blue_drops_what_does_not_respond_even_if_it_could_be_marked() {
    let mut bed = Bed::<Cobalt>::new("cobalt increment 0.5 decrement 0.125");
    bed.hold(100);
    bed.now = Time::from_ns(10 * MS);
    bed.refuse();
    assert_eq!(bed.value("blue"), 0.5);
    // At most once per target of 5 ms.
    bed.refuse();
    assert_eq!(bed.value("blue"), 0.5);
    let overloads = (0..2000)
        .filter(|_| {
            bed.now += Span::from_us(1);
            bed.leave(Span::ZERO, Ecn::Ect0) == Verdict::Drop(DropReason::Overload)
        })
        .count();
    // Four standard deviations: 4 sqrt(0.5 * 0.5 / 2000) = 0.045.
    assert_near(overloads as f64 / 2000.0, 0.5, 0.045, "drops");
    bed.now += Span::from_ms(20);
    bed.hold(0);
    bed.find_empty();
    bed.find_empty();
    assert_eq!(bed.value("blue"), 0.375);
}

/// A queue that was not asked while it was empty behaves like one that was asked all the time.
#[test]
fn cobalt_calms_down_while_its_queue_is_empty() {
    let mut bed = Bed::<Cobalt>::new("cobalt increment 0.5 decrement 0.125");
    bed.hold(100);
    bed.now = Time::from_ns(10 * MS);
    bed.refuse();
    bed.refuse();
    assert_eq!(bed.value("blue"), 0.5);
    assert_eq!(bed.value("count"), 1.0);
    bed.hold(0);
    bed.now += Span::from_ms(2);
    bed.find_empty();
    // BLUE changed 2 ms ago, which is within the target. The schedule was due at 10 ms, and falls
    // to 0.
    assert_eq!(bed.value("blue"), 0.5);
    assert_eq!(bed.value("count"), 0.0);
    // It falls at 10 + 5.000001 ms and every 5.000001 ms after it: three times until 25.000003 ms.
    bed.now = Time::from_ns(25 * MS + 2);
    let _ = bed.arrive(Ecn::NotEct);
    assert_eq!(bed.value("blue"), 0.25);
    let _ = bed.arrive(Ecn::NotEct);
    bed.now += Span::from_secs(1);
    let _ = bed.arrive(Ecn::NotEct);
    assert_eq!(bed.value("blue"), 0.25, "the queue is not empty");
    bed.find_empty();
    assert_eq!(bed.value("blue"), 0.125);
    bed.now += Span::from_secs(3600);
    let _ = bed.arrive(Ecn::NotEct);
    assert_eq!(bed.value("blue"), 0.0);
}

#[test]
fn cobalt_spares_what_is_below_four_packet_times() {
    let mut bed = Bed::<Cobalt>::new("cobalt mtu_time 12ms");
    bed.hold(100);
    for _ in 0..4000 {
        bed.now += Span::from_ms(1);
        if bed.now > Time::ZERO + Span::from_ms(48) {
            // 48 ms are four packets at 1 Mbit/s.
            assert_eq!(bed.leave(Span::from_ms(48), Ecn::NotEct), Verdict::Pass);
        }
    }
}

#[test]
fn a_step_marks_beyond_its_threshold_and_never_drops_unless_told() {
    let mut bed = Bed::<Step>::new("step");
    bed.now = Time::from_ns(100 * MS);
    assert_eq!(bed.leave(Span::from_ms(1), Ecn::Ect1), Verdict::Pass);
    let over = Span::from_ns(MS + 1);
    assert_eq!(bed.leave(over, Ecn::Ect1), Verdict::Mark);
    assert_eq!(bed.leave(over, Ecn::Ect0), Verdict::Mark);
    assert_eq!(bed.leave(over, Ecn::NotEct), Verdict::Pass);
    let mut l4s = Bed::<Step>::new("step l4s drop");
    l4s.now = bed.now;
    assert_eq!(l4s.leave(over, Ecn::Ect1), Verdict::Mark);
    assert!(matches!(l4s.leave(over, Ecn::Ect0), Verdict::Drop(_)));
    // RFC 8257 section 3.1: more than K bytes on arrival.
    let mut bytes = Bed::<Step>::new("step threshold unlimited threshold_bytes 30000B");
    bytes.hold(30);
    assert_eq!(bytes.arrive(Ecn::Ect0), Verdict::Pass);
    bytes.hold(31);
    assert_eq!(bytes.arrive(Ecn::Ect0), Verdict::Mark);
}

#[test]
fn no_aqm_has_a_timer_that_it_does_not_need() {
    assert!(Bed::<Blue>::new("blue").aqm.next_timer().is_none());
    assert!(Bed::<Cobalt>::new("cobalt").aqm.next_timer().is_none());
}
