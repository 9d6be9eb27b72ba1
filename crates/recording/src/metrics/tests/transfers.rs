//! Transfers and pages that ended, and those that were open at the end.

use super::*;

/// A transfer or page from `start` that has taken `took` ms, and is complete or open.
fn transfer(start: u64, took: u64, is_open: bool) -> crate::Transfer {
    crate::Transfer {
        start: Time::from_ns(start * MS),
        flow: 0,
        seq: 0,
        took: Span::from_ms(took),
        bytes: 100_000,
        open: Some(is_open),
    }
}

#[test]
fn a_transfer_that_never_ends_is_slower_than_all_that_did() {
    // Transfers from 2, 2.7 and 3.4 s, of 0.5 s each; the next one begins at 4.1 s and is open at 60 s.
    let flow = "[[flow]]\ntype = \"tcp\"\nbytes = \"100kB\"\npause = \"200ms\"\n";
    let mut all = meters(flow, &[&[]]);
    for start in [2000, 2700, 3400] {
        all[0].transfer(&transfer(start, 500, false));
    }
    let one = flow_meter::summarise("tcp", &[&all[0]], WARM);
    let fct = one.fct.unwrap();
    assert_eq!(
        (fct.count, fct.p50_ns, fct.max_ns),
        (3, 500 * MS, 55_900 * MS)
    );
    assert_eq!(one.open, Some(1));
    // Exchanges at 2 and 3 s; with a second of thought, the next request is sent 10 ms after 4 s.
    let mut all = meters("[[flow]]\ntype = \"rr\"\nthink = \"1s\"\n", &[&[]]);
    for seq in 0..2 {
        all[0].probe(&PingSample {
            time: Time::from_ns((2000 + 1000 * seq) * MS),
            flow: 0,
            seq,
            rtt: Some(Span::from_ms(10)),
            up: None,
            down: None,
            is_lost: false,
        });
    }
    let one = flow_meter::summarise("rr", &[&all[0]], WARM);
    let rtt = one.rtt.unwrap();
    assert_eq!(
        (rtt.count, rtt.p50_ns, rtt.max_ns),
        (2, 10 * MS, 55_990 * MS)
    );
    assert_eq!(one.open, None, "an exchange is no transfer");
    // It is not known how long the next one takes that has just begun.
    all[0].end_at(Time::from_ns(4015 * MS));
    let rtt = flow_meter::summarise("rr", &[&all[0]], WARM).rtt.unwrap();
    assert_eq!(rtt.max_ns, 10 * MS);
}

#[test]
fn pages_that_are_never_complete_are_slower_than_all_that_were() {
    // A page of the warm-up and two others are open at 60 s.
    let mut all = meters("[[flow]]\ntype = \"web\"\ninterval = \"1s\"\n", &[&[]]);
    for (start, took, is_open) in [
        (500, 59_500, true),
        (2000, 500, false),
        (3000, 500, false),
        (20_000, 40_000, true),
        (59_600, 400, true),
    ] {
        all[0].transfer(&transfer(start, took, is_open));
    }
    let one = flow_meter::summarise("web", &[&all[0]], WARM);
    let fct = one.fct.unwrap();
    // One of the two is older than 0.5 s: of three times, the second is the median.
    let found = (fct.count, fct.p50_ns, fct.max_ns);
    assert_eq!(found, (2, 500 * MS, 40_000 * MS));
    // Both are open, however old they are. That of the warm-up does not count.
    assert_eq!(one.open, Some(2));
}

#[test]
fn only_flows_with_transfers_have_open_ones() {
    let open = |flow: &str, samples: &[&[(u64, u64)]]| {
        let all = meters(flow, samples);
        let all: Vec<_> = all.iter().collect();
        let group = flow_meter::summarise("tcp", &all, WARM);
        (group.fct.map_or(0, |fct| fct.count), group.open)
    };
    // A bulk flow lasts until it is stopped, and has none.
    let bulk = "[[flow]]\ntype = \"tcp\"\n";
    assert_eq!(open(bulk, &[&[(1000, 500_000)]]), (0, None));
    // Of three transfers of 500 kB, one is complete after 2 s, and two have fewer bytes at the end.
    let sized = "[[flow]]\ntype = \"tcp\"\nbytes = \"500kB\"\ncount = 3\n";
    let samples: &[&[(u64, u64)]] = &[
        &[(1000, 100_000), (2000, 500_000)],
        &[(60_000, 499_999)],
        &[(60_000, 20_000)],
    ];
    assert_eq!(open(sized, samples), (1, Some(2)));
}

#[test]
fn a_group_has_the_number_of_its_flows() {
    let all = meters("[[flow]]\ntype = \"tcp\"\ncount = 3\n", &[&[], &[], &[]]);
    let all: Vec<_> = all.iter().collect();
    assert_eq!(flow_meter::summarise("tcp", &all, WARM).count, Some(3));
    assert_eq!(flow_meter::summarise("tcp-1", &all[..1], WARM).count, None);
}
