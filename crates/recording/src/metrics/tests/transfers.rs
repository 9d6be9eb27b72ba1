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

/// Measures a run of 60 s with this many files of 100 kB, the first of which are two. The flows are
/// complete after 1 s, 2 s and so on, and the last one never.
fn with_files(declared: usize, ends: Option<[&str; 2]>) -> Summary {
    let file = |n: usize| {
        let count = if n == 0 { "count = 2\n" } else { "" };
        format!("[[flow]]\ntype = \"tcp\"\nname = \"f{n}\"\nbytes = \"100kB\"\n{count}")
    };
    let flows: String = (0..declared).map(file).collect();
    let text = format!("duration = \"60s\"\n[link]\nrate = \"10Mbit/s\"\n{flows}");
    let variant = Scenario::parse("x.toml", &text, &[]).unwrap().remove(0);
    let environment = crate::Environment::here(Backend::Sim, "2026-01-02T03:04:05Z".into());
    let temp = tempfile::tempdir().unwrap();
    let mut writer = RunWriter::create(temp.path(), &variant, &environment).unwrap();
    if let Some(ends) = ends {
        writer.set_ends(ends);
    }
    for (flow, second) in (0..).zip(1..=declared as u64) {
        let sample = crate::FlowSample {
            received_bytes: Some(100_000),
            ..crate::FlowSample::empty(Time::from_ns(1000 * second * MS), flow)
        };
        writer.flow_sample(&sample).unwrap();
    }
    let end = End::complete(Time::from_ns(60_000 * MS));
    measure(&writer.finish(end).unwrap()).unwrap()
}

#[test]
fn many_flows_with_transfers_are_measured_together() {
    let summary = with_files(9, None);
    let [crowd] = summary.crowds.as_slice() else {
        panic!("all have one type and direction: {:?}", summary.crowds);
    };
    // Of ten flows, the last is open after 60 s, longer than the others, which took 1 s to 9 s. The
    // median has rank 5, and the 95th percentile rank 10: 0.95 * 10 = 9.5.
    let (name, count, open) = (crowd.name.as_str(), crowd.count, crowd.open);
    assert_eq!((name, count, open), ("10 flows", Some(10), Some(1)));
    let fct = crowd.fct.unwrap();
    let found = (fct.count, fct.p50_ns, fct.p95_ns);
    assert_eq!(found, (9, 5000 * MS, 60_000 * MS));
    assert_eq!(summary.transfers(8), [crowd]);
    // Where the limit is higher, each declaration has its own.
    let names = |summary: &Summary, most| -> Vec<String> {
        let shown = summary.transfers(most).into_iter();
        shown.map(|flow| flow.name.clone()).collect()
    };
    let each = ["f0", "f1", "f2", "f3", "f4", "f5", "f6", "f7", "f8"];
    assert_eq!(names(&summary, 9), each);
    // Eight declarations are few.
    let few = with_files(8, None);
    assert_eq!(few.crowds, []);
    assert_eq!(names(&few, 8), each[..8]);
}

#[test]
fn connections_of_a_recorded_program_are_no_transfers() {
    let summary = with_files(9, Some(crate::PROGRAM_ENDS));
    assert_eq!(summary.crowds, []);
    assert!(summary.transfers(24).is_empty());
    // How long they lasted stays known.
    assert_eq!(summary.flows[2].fct_ns, Some(3000 * MS));
}
