//! Figures that are compared with the packets of their run, or with arithmetic.

use sluice_core::{Span, Stop, Time};
use sluice_recording::{Environment, Header, Recording, RunWriter};
use sluice_scenario::{Backend, Scenario};

use super::{MS, metric, simulate, simulate_in};
use crate::live::LiveOptions;
use crate::run::record;

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

/// Samples are a second apart, and the flow or the run ends between two of them.
const RARE: &str = "[link]\nrate = \"10Mbit/s\"\nrtt = \"20ms\"\nqueue = \"fifo limit 50\"\n\
    [measure]\nwarmup = \"1s\"\ninterval = \"1s\"\nwindow = \"1s\"\n";

/// Whether this is the goodput of a TCP flow that fills the link of 10 Mbit/s: 1448 of 1500 bytes are
/// payload. After a loss, up to 67 packets in flight and in the queue wait for it, which are 1.8 % of
/// 4.4 s, and 3.3 % of 2.4 s.
fn is_full(goodput: f64, tolerance: f64) -> bool {
    (goodput / (1448.0 / 1500.0 * 10e6) - 1.0).abs() < tolerance
}

#[test]
fn all_payload_of_a_transfer_until_its_end_counts() {
    let tcp = "[[flow]]\ntype = \"tcp\"\ncc = \"reno\"\n";
    for (duration, stop) in [("10.9s", ""), ("8s", "stop = \"5.4s\"\n")] {
        let (_folder, recording) =
            simulate(&format!("duration = \"{duration}\"\n{RARE}{tcp}{stop}"));
        let goodput = metric(&recording, "tcp.goodput");
        assert!(is_full(goodput, 0.02), "{duration}: {goodput}");
    }
}

#[test]
fn all_payload_until_a_run_is_stopped_counts() {
    let text = format!("duration = \"8s\"\n{RARE}[[flow]]\ntype = \"tcp\"\ncc = \"reno\"\n");
    let variant = Scenario::parse("x.toml", &text, &[]).unwrap().remove(0);
    let environment = Environment::here(Backend::Sim, "2026-01-02T03:04:05Z".to_owned());
    let writer = RunWriter::in_memory(&variant, &environment).unwrap();
    let stop = Stop::new();
    let mut progress = |at: Span| {
        if at >= Span::from_ms(3400) {
            stop.stop();
        }
    };
    let live = LiveOptions::default();
    let finished = record(&variant, Backend::Sim, live, writer, &stop, &mut progress).unwrap();
    assert!(finished.is_interrupted());
    assert!(finished.recording.run().end_ns < 4_000_000_000);
    let goodput = metric(&finished.recording, "tcp.goodput");
    assert!(is_full(goodput, 0.035), "{goodput}");
}

/// 125 packets per second, of which 972 of 1000 bytes are payload; 4 s of them are measured. One
/// packet is 0.2 % of them.
#[test]
fn all_payload_of_datagrams_until_their_end_counts() {
    let (_folder, recording) = simulate(&format!(
        "duration = \"30s\"\n{RARE}[[flow]]\ntype = \"udp\"\nrate = \"1Mbit/s\"\nsize = 972\nstop = \"5s\"\n"
    ));
    let goodput = metric(&recording, "udp.goodput");
    assert!((goodput / 972e3 - 1.0).abs() < 0.005, "{goodput}");
    // The last row is at the last arrival, 4.992 s and 10.8 ms.
    let rows = recording.flow_samples().unwrap().map(Result::unwrap);
    let last = rows.last().unwrap().time.since(Time::ZERO).as_secs_f64();
    assert!((5.0..5.01).contains(&last), "{last}");
}

/// The link is full, and no page is complete: one alone takes 40 s.
#[test]
fn the_payload_of_pages_that_are_not_complete_counts() {
    let (_folder, recording) = simulate(
        "duration = \"20s\"\n[link]\nrate = \"10Mbit/s\"\nrtt = \"20ms\"\nqueue = \"fq_codel\"\n\
         [measure]\nwarmup = \"5s\"\n\
         [[flow]]\ntype = \"web\"\ndirection = \"up\"\ninterval = \"2s\"\nobjects = 1\nsize = \"50MB\"\n",
    );
    // 1448 of 1500 bytes are payload. Up to a hundred packets are in flight, 1 % of 15 s, and some of
    // them wait for one that is lost.
    let full = 1448.0 / 1500.0 * 10e6 * metric(&recording, "up.utilisation");
    let goodput = metric(&recording, "web.goodput");
    assert!(full > 5e6, "{full}");
    assert!((goodput / full - 1.0).abs() < 0.03, "{goodput} and {full}");
}

/// From 5 s on, packets of a higher class fill the link three times over.
#[test]
fn pages_that_starve_are_slow() {
    let (_folder, recording) = simulate(
        "duration = \"15s\"\n[link]\nrate = \"2Mbit/s\"\nrtt = \"20ms\"\nqueue = \"prio\"\n\
         [[flow]]\ntype = \"udp\"\nrate = \"6Mbit/s\"\nstart = \"5s\"\nclass = 0\n\
         [[flow]]\ntype = \"web\"\ninterval = \"500ms\"\nobjects = 1\nsize = \"5kB\"\nclass = 1\n",
    );
    // Before, a page takes well below half a second. The first one that stays open is one of the nine or
    // so that are requested from 4.5 to 9 s.
    let slowest = metric(&recording, "web.fct.max");
    assert!((6000.0 * MS..10_500.0 * MS).contains(&slowest), "{slowest}");
    let transfers = recording.transfers().unwrap().map(Result::unwrap);
    let (open, complete): (Vec<_>, Vec<_>) = transfers.partition(|page| page.is_open());
    let end = Time::ZERO + Span::from_secs(15);
    assert!(open.iter().all(|page| page.start + page.took == end));
    // Those of the warm-up are not counted.
    let warm = Time::ZERO + Span::from_secs(1);
    let counted = complete.iter().filter(|page| page.start >= warm).count();
    assert_eq!(metric(&recording, "web.transfers"), counted as f64);
}

/// Packets of a higher class fill the link three times over, so that no page's connection is answered.
#[test]
fn pages_that_starve_have_a_goodput_of_zero() {
    let (_folder, recording) = simulate(
        "duration = \"5s\"\n[link]\nrate = \"2Mbit/s\"\nrtt = \"20ms\"\nqueue = \"prio\"\n\
         [[flow]]\ntype = \"udp\"\nrate = \"6Mbit/s\"\nclass = 0\n\
         [[flow]]\ntype = \"web\"\ninterval = \"1s\"\nstart = \"500ms\"\nclass = 1\n",
    );
    assert_eq!(metric(&recording, "web.goodput"), 0.0);
}
