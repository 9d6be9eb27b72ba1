//! PIE and PI2: the probability at every update.

use sluice_core::aqm::pi2::Pi2;
use sluice_core::aqm::pie::Pie;
use sluice_core::aqm::{Aqm, Verdict};
use sluice_core::registry::Spec;
use sluice_core::{Cx, Discipline, DropCounter, DropReason, Ecn, Packet, Rng, Span, Time};

use crate::bed::{Bed, assert_near};

/// Delays of 20, 20, 30 and 10 ms and their probabilities by RFC 8033 section 4.2.
#[test]
fn pie_moves_by_hand_computed_steps() {
    let mut bed = Bed::<Pie>::new("pie").warm();
    // alpha (20 - 15) ms + beta (20 - 0) ms = 0.125 * 0.005 + 1.25 * 0.020 = 0.025625; p was 0, so
    // / 2048: 1.251220703125e-5.
    // Then 0.125 * 0.005 = 0.000625; p is below 1e-4, so / 128: 4.8828125e-6 more.
    // Then 0.125 * 0.015 + 1.25 * 0.010 = 0.014375, / 128: 1.1230468750e-4 more.
    // Then 0.125 * -0.005 + 1.25 * -0.020 = -0.025625; p = 1.297e-4 is below 1e-3, so / 32:
    // -8.0078125e-4, which leads below 0.
    let expected = [
        1.251220703125e-5,
        1.739501953125e-5,
        1.2969970703125e-4,
        0.0,
    ];
    for (ms, expected) in [20, 20, 30, 10].into_iter().zip(expected) {
        bed.now = bed.aqm.next_timer().expect("PIE has a timer");
        bed.now = Time::from_ns(bed.now.as_ns() - 1);
        bed.leave(Span::from_ms(ms), Ecn::NotEct);
        bed.tick();
        // Sums of products of fractions of 2^-56.
        assert_near(bed.value("probability"), expected, 1e-15, "probability");
    }
}

/// Applies `delay` ms at each of `updates` updates and returns the probability.
fn steady(bed: &mut Bed<Pie>, delay: u64, updates: usize) -> f64 {
    update(bed, delay, updates);
    bed.value("probability")
}

/// Like [`steady`], but returns the controller's variable, which may exceed 1.
fn steady_base(bed: &mut Bed<Pie>, delay: u64, updates: usize) -> f64 {
    update(bed, delay, updates);
    bed.value("p_base")
}

/// Applies `delay` ms at each of `updates` updates.
fn update(bed: &mut Bed<Pie>, delay: u64, updates: usize) {
    for _ in 0..updates {
        let due = bed.aqm.next_timer().expect("PIE has a timer");
        bed.now = Time::from_ns(due.as_ns() - 1);
        bed.leave(Span::from_ms(delay), Ecn::NotEct);
        bed.tick();
    }
}

#[test]
fn pie_rises_by_two_percent_at_most_from_ten_percent_on() {
    let mut bed = Bed::<Pie>::new("pie").warm();
    // 200 ms: 0.125 * 0.185 = 0.023125 per update, more than 2 %, as soon as p is 0.1.
    while steady(&mut bed, 200, 1) < 0.1 {}
    let before = bed.value("probability");
    assert_near(
        steady(&mut bed, 200, 1),
        before + 0.02,
        1e-15,
        "with capdrop",
    );
    let mut uncapped = Bed::<Pie>::new("pie nocapdrop").warm();
    while steady(&mut uncapped, 200, 1) < 0.1 {}
    let before = uncapped.value("probability");
    let after = steady(&mut uncapped, 200, 1);
    assert_near(after, before + 0.023125, 1e-15, "without");
}

#[test]
fn pie_decays_by_two_percent_when_there_is_no_delay() {
    // Linux truncates its gains per tick to 4e-10 of themselves, dummynet has 31 bits.
    for (variant, kept, tolerance) in [
        ("rfc", 0.98, 1e-15),
        ("linux", 63.0 / 64.0, 1e-11),
        ("dummynet", 63.0 / 64.0, 1e-9),
    ] {
        let mut bed = Bed::<Pie>::new(&format!("pie variant {variant} ts")).warm();
        while steady(&mut bed, 200, 1) < 0.6 {}
        bed.hold(0);
        // The first update without delay also falls by beta; then alpha * -15 ms = -0.001875.
        steady(&mut bed, 0, 1);
        let before = bed.value("probability");
        let expected = (before - 0.001875) * kept;
        assert_near(steady(&mut bed, 0, 1), expected, tolerance, variant);
    }
}

#[test]
fn linux_pie_adds_two_percent_above_250_ms_and_passes_one() {
    let mut bed = Bed::<Pie>::new("pie variant linux").warm();
    while steady(&mut bed, 300, 1) < 0.2 {}
    let before = bed.value("probability");
    // 0.125 * 0.285 = 0.0356 is capped to 0.02; another 0.02 is added. Percents are truncated to
    // 2^-56.
    assert_near(
        steady(&mut bed, 300, 1),
        before + 0.04,
        1e-14,
        "above 250 ms",
    );
    assert!(steady(&mut bed, 300, 50) > 1.5);
    let mut rfc = Bed::<Pie>::new("pie").warm();
    assert_eq!(steady(&mut rfc, 300, 200), 1.0);
}

#[test]
fn linux_pie_updates_first_at_500_ms_and_the_others_at_once_per_tupdate() {
    for (variant, first) in [("rfc", 15), ("dummynet", 15), ("linux", 500)] {
        let mut bed = Bed::<Pie>::new(&format!("pie variant {variant}"));
        bed.tick();
        assert_eq!(bed.now, Time::ZERO + Span::from_ms(first));
        bed.tick();
        assert_eq!(bed.now, Time::ZERO + Span::from_ms(first + 15));
    }
    // Kernel timers count milliseconds.
    let mut odd = Bed::<Pie>::new("pie variant linux tupdate 1500us");
    odd.tick();
    odd.tick();
    assert_eq!(odd.now, Time::ZERO + Span::from_ms(502));
}

#[test]
fn docsis_pie_has_its_constants_and_extras() {
    // RFC 8034 appendix A: A 0.25, B 2.5, target 10 ms, 16 ms.
    let mut bed = Bed::<Pie>::new("pie preset docsis").warm();
    // 0.25 * (0.040 - 0.010) + 2.5 * 0.040 = 0.1075, / 2048.
    let first = steady_base(&mut bed, 40, 1);
    assert_near(first, 0.1075 / 2048.0, 1e-15, "first step");
    // At 0.1 and above the step counts twice, and 0.02 more above 200 ms: at 210 ms,
    // 0.25 * 0.2 * 2 = 0.1 is capped to 0.02.
    steady_base(&mut bed, 40, 60);
    while steady_base(&mut bed, 210, 1) < 0.2 {}
    let before = bed.value("p_base");
    assert_near(
        steady_base(&mut bed, 210, 1),
        before + 0.04,
        1e-14,
        "above 200 ms",
    );
    // It may rise to 0.85 * 1024 / 64 = 13.6.
    assert_near(steady_base(&mut bed, 900, 2000), 13.6, 1e-12, "limit");
    // That of a packet of mean size is at most 0.85 (RFC 8034 section 4.2).
    assert_near(bed.value("probability"), 0.85, 1e-12, "limit of a packet");
    // Down again: from 10 on the step counts 32 times, 0.25 * -0.002 * 32 = -0.016. The change from
    // 900 ms to 8 ms before it would lead to 0 at once; a gain of 0 excludes it.
    let mut bed = Bed::<Pie>::new("pie preset docsis beta 0").warm();
    assert_near(steady_base(&mut bed, 900, 2000), 13.6, 1e-12, "limit");
    assert_near(steady_base(&mut bed, 8, 1), 13.584, 1e-12, "from 10 on");
    while steady_base(&mut bed, 8, 1) >= 10.0 {}
    let before = bed.value("p_base");
    // 0.25 * -0.002 * 8 = -0.004.
    assert_near(
        steady_base(&mut bed, 8, 1),
        before - 0.004,
        1e-12,
        "from 1 on",
    );
    // Below 5 ms twice: (p + 0.25 * -0.007 * 8) * 0.98.
    steady_base(&mut bed, 3, 1);
    let before = bed.value("p_base");
    let expected = (before - 0.014) * 0.98;
    assert_near(steady_base(&mut bed, 3, 1), expected, 1e-12, "decay");
}

/// Returns the number of arrivals until one is dropped, that one included.
fn arrivals_to_a_drop(bed: &mut Bed<Pie>) -> u32 {
    for n in 1.. {
        if bed.arrive(Ecn::NotEct) != Verdict::Pass {
            return n;
        }
    }
    unreachable!("one is dropped at last")
}

/// RFC 8034 section 4.3 and appendix A, the course of one burst.
#[test]
fn docsis_pie_drops_once_before_the_burst_and_forgets_it_after_a_second() {
    let mut bed = Bed::<Pie>::new("pie preset docsis").warm();
    bed.queue.limit_bytes = 300_000;
    let (inactive, quiescent, active) = (0.0, 1.0, 2.0);
    // 40 ms for 40 updates.
    assert!(steady(&mut bed, 40, 40) > 0.01);
    assert_eq!(bed.value("activity"), inactive);
    assert_eq!(bed.value("burst_allowance"), 0.0);
    // Inactive below a third of the buffer, whatever the probability, and nothing accumulates.
    bed.hold(99);
    for _ in 0..10_000 {
        assert_eq!(bed.arrive(Ecn::NotEct), Verdict::Pass);
    }
    assert_eq!(bed.value("activity"), inactive);
    // From a third on one packet is dropped: not before 0.85 have accumulated, and not after 8.5.
    bed.hold(100);
    let p1 = bed.value("probability") * 1000.0 / 1024.0;
    let n = f64::from(arrivals_to_a_drop(&mut bed));
    assert!((0.85 / p1).floor() <= n && n <= (8.5 / p1).ceil(), "{n}");
    assert_eq!(bed.value("activity"), active);
    assert_eq!(bed.value("burst_allowance"), 142e6);
    // 142 ms last through nine updates of 16 ms: eight leave 14 ms.
    for left in [126, 110, 94, 78, 62, 46, 30, 14, 0] {
        assert_eq!(bed.arrive(Ecn::NotEct), Verdict::Pass);
        assert_eq!(steady(&mut bed, 4, 1), 0.0);
        assert_eq!(bed.value("burst_allowance"), f64::from(left) * 1e6);
    }
    // 4 ms is below half the target, and already was at the update before: quiet at once.
    assert_eq!(bed.value("activity"), quiescent);
    // 40 quiet updates no longer count after one that is not quiet: 0.25 * -0.004 + 2.5 * 0.002 =
    // 0.004 is positive. The one after it is not quiet either, with 6 ms before it.
    assert_eq!(steady(&mut bed, 4, 40), 0.0);
    assert_near(steady(&mut bed, 6, 1), 0.004 / 2048.0, 1e-15, "a bump");
    assert_eq!(steady(&mut bed, 4, 1), 0.0);
    // 62 quiet updates are 0.992 s; the 63rd makes it more than 1 s.
    assert_eq!(steady(&mut bed, 4, 62), 0.0);
    assert_eq!(bed.value("activity"), quiescent);
    steady(&mut bed, 4, 1);
    assert_eq!(bed.value("activity"), inactive);
    // Within this second, a drop starts the next protection at once, even with a short queue.
    let mut bed = Bed::<Pie>::new("pie preset docsis noonoff max_burst 20ms").warm();
    bed.hold(3);
    assert!(steady(&mut bed, 40, 60) > 0.01);
    assert_eq!(bed.value("activity"), quiescent);
    arrivals_to_a_drop(&mut bed);
    assert_eq!(bed.value("activity"), active);
    assert_eq!(bed.value("burst_allowance"), 20e6);
}

/// RFC 8034 sections 3, 4.2 and A.2.
#[test]
fn docsis_pie_tells_the_delay_from_the_tokens_of_its_shaper() {
    let shaper = "msr 8Mbit/s peak_rate 40Mbit/s msr_burst 50000";
    let mut bed = Bed::<Pie>::new(&format!("pie preset docsis {shaper}"));
    // 100 000 bytes, 50 000 of them at 5 bytes per us, the others at 1: 10 ms + 50 ms.
    bed.hold(100);
    bed.tick();
    assert_eq!(bed.value("delay"), 60e6);
    // 40 000 bytes are covered: 8 ms.
    bed.hold(40);
    bed.tick();
    assert_eq!(bed.value("delay"), 8e6);
    // 50 packets of 1000 bytes leave at once; the 16 ms to the next update earn 16 000 bytes:
    // 16 000 / 5 + 24 000 = 27.2 ms.
    for _ in 0..50 {
        bed.leave(Span::ZERO, Ecn::NotEct);
    }
    bed.tick();
    assert_eq!(bed.value("delay"), 27.2e6);
    // The time that packets wait has no effect.
    bed.leave(Span::from_ms(10), Ecn::NotEct);
    assert_eq!(bed.value("delay"), 27.2e6);
    // Another 16 ms earn 16 000 bytes, and 1000 were spent: 31 000 / 5 + 9000 = 15.2 ms.
    bed.tick();
    assert_eq!(bed.value("delay"), 15.2e6);
}

#[test]
fn pie_marks_below_a_tenth_and_drops_above() {
    for (variant, is_inclusive) in [("rfc", false), ("dummynet", false), ("linux", true)] {
        let more = if is_inclusive { "" } else { "noderand" };
        let mut bed = Bed::<Pie>::new(&format!("pie variant {variant} ts ecn {more}")).warm();
        // The allowance is spent first: by updates, or by the time between dequeues.
        let (mut marks, mut drops) = (0, 0);
        for _ in 0..400 {
            let p = steady(&mut bed, 40, 1);
            for _ in 0..50 {
                match bed.arrive(Ecn::Ect0) {
                    Verdict::Mark => {
                        assert!(
                            p < 0.1 || (is_inclusive && p <= 0.1),
                            "{variant} marks at {p}"
                        );
                        marks += 1;
                    }
                    Verdict::Drop(reason) => {
                        assert!(p >= 0.1, "{variant} drops at {p}");
                        assert_eq!(reason, DropReason::Congestion);
                        drops += 1;
                    }
                    Verdict::Pass => {}
                }
            }
        }
        assert!(marks > 20 && drops > 20, "{variant}: {marks} and {drops}");
    }
}

/// PI2 section 4, in floating point, over an invented course of the delay.
#[test]
fn pi2_is_linear_in_what_it_controls() {
    let mut bed = Bed::<Pi2>::new("pi2").warm();
    let start = bed.now;
    let (mut p, mut old) = (0.0f64, 0.0f64);
    for i in 0..300u64 {
        // Up to 60 ms and down again, with a ripple.
        let us = 200 * if i < 150 { 2 * i } else { 600 - 2 * i } + i * 37 % 1000;
        let due = bed.aqm.next_timer().expect("PI2 has a timer");
        assert_eq!(due, start + Span::from_ms(16 * (i + 1)));
        bed.now = Time::from_ns(due.as_ns() - 1);
        bed.leave(Span::from_us(us), Ecn::NotEct);
        bed.tick();
        let delay = us as f64 / 1e6;
        p = (p + 0.16 * (delay - 0.015) + 3.2 * (delay - old)).clamp(0.0, 1.0);
        old = delay;
        // Three hundred sums with errors of 2^-56 and of double precision.
        assert_near(bed.value("probability"), p, 1e-13, "p'");
        assert_near(bed.value("classic"), p * p, 1e-13, "p");
    }
    assert!(p > 0.0, "the course ends under load");
}

/// Counts of marks and drops among 20 000 arrivals at a steady p' of 0.2.
fn pi2_at_two_tenths(words: &str, ecn: Ecn) -> (f64, f64) {
    // One update with these gains: 0.16 * (1.265 - 0.015) = 0.2.
    let mut bed = Bed::<Pi2>::new(&format!("pi2 beta 0 {words}"));
    bed.hold(100);
    bed.now = Time::from_ns(2_000_000_000);
    bed.leave(Span::from_ms(1265), ecn);
    // All updates up to 2 s were made before the packet left; this one sees its delay.
    bed.tick();
    assert_near(bed.value("probability"), 0.2, 1e-15, "p'");
    let (mut marks, mut drops) = (0, 0);
    for _ in 0..20_000 {
        match bed.arrive(ecn) {
            Verdict::Mark => marks += 1,
            Verdict::Drop(_) => drops += 1,
            Verdict::Pass => {}
        }
    }
    (f64::from(marks) / 20_000.0, f64::from(drops) / 20_000.0)
}

#[test]
fn pi2_squares_for_classic_and_couples_for_scalable_traffic() {
    // Classic: 0.2^2 = 0.04; Scalable: 2 * 0.2 = 0.4. Four standard deviations of 20 000 draws:
    // 4 sqrt(0.04 * 0.96 / 20000) = 0.0055 and 4 sqrt(0.4 * 0.6 / 20000) = 0.014.
    let (marks, drops) = pi2_at_two_tenths("", Ecn::Ect0);
    assert_eq!(marks, 0.0);
    assert_near(drops, 0.04, 0.0055, "classic drops");
    let (marks, drops) = pi2_at_two_tenths("ecn", Ecn::Ect0);
    assert_eq!(drops, 0.0);
    assert_near(marks, 0.04, 0.0055, "classic marks");
    let (marks, drops) = pi2_at_two_tenths("ecn l4s", Ecn::Ect1);
    assert_eq!(drops, 0.0);
    assert_near(marks, 0.4, 0.014, "scalable marks");
    // Above max_classic nothing is marked any more, and both kinds are dropped alike.
    for ecn in [Ecn::Ect0, Ecn::Ect1] {
        let (marks, drops) = pi2_at_two_tenths("ecn l4s max_classic 0.03", ecn);
        assert_eq!(marks, 0.0);
        assert_near(drops, 0.04, 0.0055, "drops under overload");
    }
}

/// Linux `sch_fq_pie` checks the limit first; `sch_fq_codel` evicts afterwards.
#[test]
fn a_full_fq_pie_refuses_in_linux_and_evicts_elsewhere() {
    for (queue, refused, evicted) in [
        ("fq_pie variant linux", 2, 0),
        ("fq_pie variant rfc", 0, 2),
        ("fq_pie variant dummynet", 0, 2),
        ("fq_codel variant linux", 0, 2),
    ] {
        let spec = Spec::parse(&format!("{queue} limit 3 flows 4")).unwrap();
        let mut queue = spec.build().unwrap();
        let (mut rng, mut drops) = (Rng::from_seed(1), DropCounter::default());
        let mut cx = Cx::new(Time::ZERO, &mut rng, &mut drops);
        for slot in 0..5 {
            let mut packet = Packet::new(slot, 1000);
            packet.flow = u32::from(slot > 2);
            queue.enqueue(packet, &mut cx);
        }
        assert_eq!(queue.backlog().packets, 3, "{spec}");
        assert_eq!(drops.count(DropReason::Overflow), refused, "{spec}");
        assert_eq!(drops.count(DropReason::Evicted), evicted, "{spec}");
    }
}
