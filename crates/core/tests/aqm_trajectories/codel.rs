//! CoDel's `ce_threshold` and variants, one queue at a time.

use std::sync::Arc;

use sluice_core::aqm::codel::{Codel, CodelParams};
use sluice_core::aqm::{AqmAlgorithm, Verdict};
use sluice_core::param::Variant;
use sluice_core::{Ecn, Span, Time};

use crate::bed::Bed;

#[test]
fn a_ce_threshold_marks_whatever_the_state() {
    for variant in ["rfc", "linux", "dummynet"] {
        let words = format!("codel variant {variant} ce_threshold 1ms noecn");
        let mut bed = Bed::<Codel>::new(&words);
        bed.hold(100);
        // 2^30 ns are whole ticks of 1024 ns.
        bed.now = Time::from_ns(1 << 30);
        assert_eq!(
            bed.leave(Span::from_ms(2), Ecn::Ect0),
            Verdict::Mark,
            "{variant}"
        );
        assert_eq!(
            bed.leave(Span::from_ms(2), Ecn::NotEct),
            Verdict::Pass,
            "{variant}"
        );
        assert_eq!(
            bed.leave(Span::from_us(900), Ecn::Ect0),
            Verdict::Pass,
            "{variant}"
        );
    }
    // 1 ms is 976 whole ticks, 999 424 ns: in Linux only more than 976 ticks are beyond it.
    let mut bed = Bed::<Codel>::new("codel variant linux ce_threshold 1ms");
    bed.hold(100);
    bed.now = Time::from_ns(1 << 30);
    assert_eq!(bed.leave(Span::from_ns(999_424), Ecn::Ect0), Verdict::Pass);
    assert_eq!(bed.leave(Span::from_ns(999_425), Ecn::Ect0), Verdict::Mark);
}

#[test]
fn without_a_ce_threshold_nothing_is_marked_below_target() {
    let mut bed = Bed::<Codel>::new("codel ecn");
    bed.hold(100);
    bed.now = Time::from_ns(1 << 30);
    assert_eq!(bed.leave(Span::from_us(4999), Ecn::Ect0), Verdict::Pass);
}

/// Two packets, an interval apart, that waited 20 ms and leave their queue empty while others hold
/// 100 kB.
fn last_of_its_queue(bed: &mut Bed<Codel>) -> Verdict {
    bed.hold(0);
    bed.queue.total_bytes = 100_000;
    bed.now = Time::from_ns(1 << 30);
    bed.leave(Span::from_ms(20), Ecn::NotEct);
    bed.now += Span::from_ms(101);
    bed.leave(Span::from_ms(20), Ecn::NotEct)
}

#[test]
fn linux_counts_the_whole_discipline_in_flow_queues_only() {
    let params = Arc::new(CodelParams {
        variant: Variant::Linux,
        ..CodelParams::default()
    });
    let mut bed = Bed::<Codel>::new("codel variant linux");
    assert_eq!(last_of_its_queue(&mut bed), Verdict::Pass);
    bed.aqm = Codel::for_flow(&params);
    assert!(matches!(last_of_its_queue(&mut bed), Verdict::Drop(_)));
}
