//! Figures that are compared with the packets of their run, or with arithmetic.

use sluice_recording::{Header, Recording};

use super::{MS, metric, simulate, simulate_in};

/// Returns how many segments with data the client sent again.
fn sent_again(recording: &Recording) -> f64 {
    let is_again = |header: &Header| {
        let goes_back = header.jump.is_some_and(|by| by < 0);
        header.is_from_client && goes_back && header.payload > Some(0)
    };
    let headers = recording.headers().unwrap().map(Result::unwrap);
    headers.filter(is_again).count() as f64
}

#[test]
fn every_retransmission_of_a_transfer_counts() {
    let losses = "[link]\nrate = \"10Mbit/s\"\nrtt = \"20ms\"\n[link.up]\nloss = 0.1\n[measure]\nwarmup = \"0s\"\n";
    // A transfer takes fewer intervals than it has retransmissions, or not even one interval.
    for keys in [
        "bytes = \"100kB\"",
        "bytes = \"20kB\"\npause = \"10ms\"",
        "start = \"1s\"\nstop = \"7.01s\"",
    ] {
        let (_folder, recording) = simulate(&format!(
            "duration = \"8s\"\n{losses}[[flow]]\ntype = \"tcp\"\n{keys}\n"
        ));
        let expected = sent_again(&recording);
        assert!(expected > 2.0, "{keys}: {expected}");
        assert_eq!(metric(&recording, "tcp.retransmits"), expected, "{keys}");
    }
}

/// 12 Mbit/s for 4 s, then 120 Mbit/s: the run sees only the first part.
#[test]
fn a_trace_allows_what_its_opportunities_carry() {
    let folder = tempfile::tempdir().unwrap();
    let slow = (1..=4000).map(|ms| format!("{ms}\n"));
    let fast = (4001..=8000).map(|ms| format!("{ms}\n").repeat(10));
    let trace: String = slow.chain(fast).collect();
    std::fs::write(folder.path().join("two.mahi"), trace).unwrap();
    let text = "duration = \"4s\"\n[link]\nrate = { trace = \"two.mahi\" }\nrtt = \"20ms\"\n\
                [[flow]]\ntype = \"udp\"\nrate = \"100Mbit/s\"\nsize = 1472\n";
    let recording = simulate_in(folder.path(), text).unwrap();
    // Packets of 1500 bytes use every opportunity.
    let used = metric(&recording, "up.utilisation");
    assert!((0.999..=1.0).contains(&used), "{used}");
}

/// From 5 s on, packets of a higher class fill the link three times over. Nothing else passes.
#[test]
fn flows_that_starve_have_slow_transfers() {
    let (_folder, recording) = simulate(
        "duration = \"15s\"\n[link]\nrate = \"2Mbit/s\"\nrtt = \"20ms\"\nqueue = \"prio\"\n\
         [[flow]]\ntype = \"udp\"\nrate = \"6Mbit/s\"\nstart = \"5s\"\nclass = 0\n\
         [[flow]]\ntype = \"rr\"\nclass = 1\n\
         [[flow]]\ntype = \"tcp\"\nbytes = \"20kB\"\npause = \"200ms\"\nclass = 1\n",
    );
    // Requests and transfers of the first 5 s take well below a second. The last ones have been open
    // for almost 10 s at the end.
    for (low, high) in [("rr.p50", "rr.max"), ("tcp.fct.p50", "tcp.fct.max")] {
        let (low, high) = (metric(&recording, low), metric(&recording, high));
        assert!(low < 1000.0 * MS, "{low}");
        assert!((8000.0 * MS..10_000.0 * MS).contains(&high), "{high}");
    }
}
