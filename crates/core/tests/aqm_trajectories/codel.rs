//! CoDel's `ce_threshold` and variants, one queue at a time.

use sluice_core::aqm::Verdict;
use sluice_core::aqm::codel::Codel;
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
