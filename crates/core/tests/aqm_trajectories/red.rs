//! RED and GRED: the average, the probability, the distances between drops.

use sluice_core::aqm::Verdict;
use sluice_core::aqm::gred::Gred;
use sluice_core::aqm::red::Red;
use sluice_core::{Ecn, Span, Time};

use crate::bed::{Bed, assert_near};

#[test]
fn the_average_after_a_burst_is_that_of_the_paper() {
    // Floyd and Jacobson 1993, section VI-A: after a burst of L packets into an empty queue
    // avg = L + 1 + ((1 - w)^(L + 1) - 1) / w, which is 5.0 for L = 50 and w = 0.0042. The i-th
    // packet of the burst is averaged as the i-th of the queue, so L + 1 packets show 0, 1 ... L.
    for (burst, weight, published) in [(50, 0.0042_f64, Some(5.0)), (20, 0.002, None)] {
        let mut bed = Bed::<Red>::new(&format!("red min 100 max 300 wq {weight}"));
        for queued in 0..=burst {
            bed.hold(queued);
            bed.arrive(Ecn::NotEct);
        }
        let l = burst as f64;
        let formula = l + 1.0 + ((1.0 - weight).powf(l + 1.0) - 1.0) / weight;
        // The weight has 32 bits, with an error of 1e-7 of itself.
        assert_near(bed.value("average"), formula, 1e-6, "average");
        if let Some(published) = published {
            // One decimal is published.
            assert_near(bed.value("average"), published, 0.05, "published");
        }
    }
}

#[test]
fn byte_mode_averages_in_mean_packets() {
    // 30 packets of 1000 B are 60 mean packets of 500 B; with w = 1 the average is the queue.
    let mut bed = Bed::<Red>::new("red wq 1 min 100 max 300 bytes mean_packet 500B");
    bed.hold(30);
    bed.arrive(Ecn::NotEct);
    assert_eq!(bed.value("average"), 60.0);
}

/// Returns a bed whose queue becomes empty at 10 ms, when the average is 20 with w = 0.5.
fn emptied_at_20(words: &str) -> Bed<Red> {
    let mut bed = Bed::<Red>::new(words);
    bed.hold(40);
    bed.arrive(Ecn::NotEct);
    assert_eq!(bed.value("average"), 20.0);
    bed.now = Time::from_ns(10_000_000);
    bed.hold(0);
    bed.leave(Span::ZERO, Ecn::NotEct);
    bed
}

#[test]
fn an_idle_link_counts_as_small_packets_at_an_empty_queue() {
    // 1000 B at 8 Mbit/s take 1 ms. After an average of 20 with w = 0.5, an idle time of 3.7 ms
    // counts for three packets: 20 / 8.
    let mut bed = emptied_at_20("red wq 0.5 min 100 max 300 bandwidth 8Mbit/s");
    bed.now = Time::from_ns(13_700_000);
    bed.arrive(Ecn::NotEct);
    assert_eq!(bed.value("average"), 2.5);
}

#[test]
fn packets_that_are_dropped_at_an_empty_queue_do_not_hold_the_average_up() {
    // As above, from an average of 20, but with packets every 0.4 ms. After 4 ms, four packets of 1 ms
    // would have passed, and 20 / 16 is left.
    let mut bed = emptied_at_20("red wq 0.5 min 1 max 2 max_p 0.000001 bandwidth 8Mbit/s");
    for arrival in 1..=10 {
        bed.now = Time::from_ns(10_000_000 + arrival * 400_000);
        let is_dropped = bed.arrive(Ecn::NotEct) != Verdict::Pass;
        // 20, 10, 5, 2.5 at first: above `max` until the fourth millisecond is over.
        assert_eq!(is_dropped, arrival < 10, "arrival {arrival}");
    }
    assert_eq!(bed.value("average"), 1.25);
}

/// Arrivals between drops at a steady average of `queued` packets.
fn distances(words: &str, queued: u64, drops: usize) -> Vec<u64> {
    let mut bed = Bed::<Red>::new(words);
    bed.hold(queued);
    let mut distances = Vec::new();
    let mut since = 0;
    while distances.len() < drops {
        since += 1;
        if bed.arrive(Ecn::NotEct) != Verdict::Pass {
            distances.push(since);
            since = 0;
        }
    }
    distances
}

#[test]
fn drops_are_spaced_evenly() {
    // min 10, max 30, max_p 0.1 at an average of 20: p_b = 0.1 * 10 / 20 = 0.05. In figure 2 of the
    // paper the first packet after a drop has count 1, so p_a is 0.05 / 0.95, then 0.05 / 0.90 ...:
    // the distance is uniform over 1 ... 19.
    let distances = distances("red wq 1 min 10 max 30 max_p 0.1", 20, 4000);
    // All but the first drop: with no drop before it, it has count 0 and may be at 20.
    let distances = &distances[1..];
    assert_eq!(
        distances.iter().max(),
        Some(&19),
        "never more than 1 / p_b - 1"
    );
    for d in 1..=19 {
        let share = distances.iter().filter(|n| **n == d).count() as f64 / 3999.0;
        // 1 in 19; four standard deviations are 4 sqrt(0.0526 * 0.9474 / 3999) = 0.0142.
        assert_near(share, 1.0 / 19.0, 0.0142, "share of a distance");
    }
}

#[test]
fn the_zones_begin_at_the_thresholds() {
    let verdict = |words: &str, queued| {
        let mut bed = Bed::<Red>::new(&format!("red wq 1 min 10 max 30 max_p 0.000001 {words}"));
        bed.hold(queued);
        bed.arrive(Ecn::Ect0)
    };
    assert_eq!(verdict("", 9), Verdict::Pass);
    assert_eq!(verdict("", 29), Verdict::Pass);
    assert!(matches!(verdict("", 30), Verdict::Drop(_)));
    // RFC 3168 section 7: above the upper threshold packets are dropped; without `harddrop` they
    // are marked.
    assert!(matches!(verdict("ecn", 30), Verdict::Drop(_)));
    assert_eq!(verdict("ecn noharddrop", 30), Verdict::Mark);
    // Gentle: certain only from twice `max`.
    assert!(matches!(verdict("gentle", 60), Verdict::Drop(_)));
    let gentle = distances("red wq 1 min 10 max 30 max_p 0.1 gentle", 32, 4000);
    // p_b = 0.1 + 0.9 * 2 / 30 = 0.16, so the next packet is dropped with 0.16 / 0.84 = 0.1905.
    let ones = gentle.iter().filter(|n| **n == 1).count() as f64 / 4000.0;
    // Four standard deviations: 4 sqrt(0.1905 * 0.8095 / 4000) = 0.0248.
    assert_near(ones, 0.16 / 0.84, 0.0248, "gentle");
}

#[test]
fn adaptive_red_moves_max_p_towards_the_middle() {
    // Floyd, Gummadi and Shenker 2001: above 60 % of the way, max_p grows by min(0.01, max_p / 4),
    // below 40 % it is multiplied by 0.9, every 0.5 s; it stays within 0.01 and 0.5.
    let mut bed = Bed::<Red>::new("red wq 1 min 10 max 30 max_p 0.02 adaptive");
    bed.hold(25);
    bed.arrive(Ecn::NotEct);
    bed.tick();
    assert_eq!(bed.now, Time::ZERO + Span::from_ms(500));
    assert_near(bed.value("max_p"), 0.025, 1e-15, "+ 0.02 / 4");
    for _ in 0..4 {
        bed.tick();
    }
    // 0.025 + 0.00625 = 0.03125, + 0.0078125 = 0.0390625, + 0.009765625 = 0.048828125, + 0.01
    assert_near(bed.value("max_p"), 0.058828125, 1e-15, "five steps");
    for _ in 0..200 {
        bed.tick();
    }
    // It may step over 0.5 once.
    assert!((0.5..0.52).contains(&bed.value("max_p")));
    bed.hold(12);
    bed.arrive(Ecn::NotEct);
    let before = bed.value("max_p");
    bed.tick();
    assert_near(bed.value("max_p"), before * 0.9, 1e-14, "x 0.9");
    for _ in 0..200 {
        bed.tick();
    }
    assert!((0.009..0.01).contains(&bed.value("max_p")));
}

#[test]
fn adaptations_that_are_made_up_for_are_those_that_were_due() {
    let words = "red wq 1 min 10 max 30 max_p 0.3 adaptive";
    let (mut punctual, mut late) = (Bed::<Red>::new(words), Bed::<Red>::new(words));
    for bed in [&mut punctual, &mut late] {
        bed.hold(12);
        bed.arrive(Ecn::NotEct);
    }
    for _ in 0..7 {
        punctual.tick();
    }
    late.now = Time::from_ns(3_600_000_000);
    late.hold(20);
    late.arrive(Ecn::NotEct);
    // 0.3 * 0.9^7 = 0.14348907; each step is truncated to 2^-56.
    assert_near(late.value("max_p"), 0.14348907, 1e-14, "late");
    assert_eq!(late.value("max_p"), punctual.value("max_p"));
}

#[test]
fn gred_follows_dummynets_fixed_point() {
    // w = 0.002 is 131 / 65536. Averages in 2^-16 for a standing queue of 20:
    // 0 + (20 * 65536 - 0) * 131 >> 16 = 2620; + (1310720 - 2620) * 131 >> 16 = 2614 -> 5234;
    // + (1310720 - 5234) * 131 >> 16 = 2609 -> 7843.
    let mut bed = Bed::<Gred>::new("gred");
    bed.hold(20);
    for expected in [2620.0, 5234.0, 7843.0] {
        bed.arrive(Ecn::NotEct);
        assert_eq!(bed.value("average") * 65536.0, expected);
    }
}

#[test]
fn gred_falls_in_steps_of_its_table() {
    // At 1 Mbit/s 512 B take 4.096 ticks of 1 ms. With w = 1/64 (1024 / 65536):
    // 3 * 4.096 * 64 / 256 = 3.07, so a step is 3 ticks and keeps (63/64)^3.
    // 63/64 = 64512; 64512 * 64512 >> 16 = 63504; * 64512 >> 16 = 62511.
    // An average of 10 (655360): after 7 ticks, two steps: 64512 * 62511 >> 16 = 61534;
    // * 62511 >> 16 = 58693; 655360 * 58693 >> 16 = 586930.
    let mut bed = Bed::<Gred>::new("gred wq 0.015625 bandwidth 1Mbit/s");
    bed.hold(640);
    bed.arrive(Ecn::NotEct);
    assert_eq!(bed.value("average"), 10.0);
    bed.hold(0);
    bed.leave(Span::ZERO, Ecn::NotEct);
    bed.now = Time::from_ns(7_000_000);
    bed.arrive(Ecn::NotEct);
    assert_eq!(bed.value("average") * 65536.0, 586_930.0);
    // From 256 steps on nothing remains.
    bed.now = Time::from_ns(7_000_000 + 768_000_000);
    bed.arrive(Ecn::NotEct);
    assert_eq!(bed.value("average"), 0.0);
}

#[test]
fn gred_is_gentle_and_dummynets_red_is_not() {
    let first_drop = |words: &str, queued| {
        let mut bed = Bed::<Gred>::new(&format!("gred wq 1 min 10 max 30 max_p 0.1 {words}"));
        bed.hold(queued);
        (1..200).find(|_| bed.arrive(Ecn::NotEct) != Verdict::Pass)
    };
    assert_eq!(first_drop("nogentle", 30), Some(1));
    // At twice `max` the probability is 0.9 * 2 - 0.8 = 1: the first packet only draws the random
    // number, which is below 1, so that the second is dropped.
    assert_eq!(first_drop("", 60), Some(2));
    // At 20 it is 0.05: dropped when 0.05 count exceeds a number below 1, after 21 packets at most.
    assert!(first_drop("", 20).is_some_and(|n| n <= 21));
    assert_eq!(first_drop("", 9), None);
}

#[test]
fn gred_with_ecn_is_a_step() {
    let verdict = |queued, ecn| {
        let mut bed = Bed::<Gred>::new("gred wq 1 min 20 max 20 ecn");
        bed.hold(queued);
        bed.arrive(ecn)
    };
    assert_eq!(verdict(19, Ecn::Ect0), Verdict::Pass);
    assert_eq!(verdict(20, Ecn::Ect0), Verdict::Mark);
    assert!(matches!(verdict(20, Ecn::NotEct), Verdict::Drop(_)));
}
