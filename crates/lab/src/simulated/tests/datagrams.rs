//! The figures of flows of datagrams.

use std::collections::BTreeSet;

use sluice_core::record::Fate;

use super::{metric, simulate};
use sluice_recording::metrics::measure;

/// The link is too slow for the flow in the first 3 s, and twenty times as fast as the flow from then
/// on. Every packet of the measured time arrives.
#[test]
fn losses_of_the_warm_up_are_no_losses_of_a_flow() {
    let (_folder, recording) = simulate(
        "duration = \"8s\"\n[link]\nrate = [[\"0s\", \"64kbit/s\"], [\"3s\", \"20Mbit/s\"]]\nrtt = \"20ms\"\nqueue = \"fifo limit 50\"\n\
         [measure]\nwarmup = \"4s\"\n[[flow]]\ntype = \"udp\"\nrate = \"1Mbit/s\"\n",
    );
    let packets = recording.packets().unwrap().map(Result::unwrap);
    let dropped = packets.filter(|row| matches!(row.record.fate, Fate::Dropped(_)));
    assert!(dropped.count() > 100);
    assert_eq!(metric(&recording, "udp.loss"), 0.0);
    // 10 ms, and 1228 bytes at 20 Mbit/s (0.5 ms), without loss and jitter: E-model's best score.
    let best = sluice_recording::metrics::mean_opinion_score(10.5, 0.0);
    let score = metric(&recording, "udp.mos");
    assert!((score - best).abs() < 0.01, "{score}, not {best}");
}

/// Each second begins with a burst of 30 ms: packets of 1000 bytes leave at 0, 8, 16 and 24 ms.
#[test]
fn a_burst_in_the_warm_up_is_not_measured() {
    let (_folder, recording) = simulate(
        "duration = \"10s\"\n[link]\nrate = \"10Mbit/s\"\nrtt = \"20ms\"\n[measure]\nwarmup = \"1s\"\n\
         [[flow]]\ntype = \"udp\"\nrate = \"1Mbit/s\"\nsize = 972\n\
         spacing = \"on_off\"\non = \"30ms\"\noff = \"970ms\"\n",
    );
    // Nine bursts of four packets in 9 s.
    assert_eq!(metric(&recording, "udp.goodput"), 4.0 * 972.0 * 8.0);
}

/// A packet has arrived if one of its copies has.
#[test]
fn a_copy_does_not_replace_a_lost_packet() {
    let (_folder, recording) = simulate(
        "duration = \"6s\"\n[link]\nrate = \"10Mbit/s\"\nrtt = \"20ms\"\nloss = 0.03\nduplicate = 0.05\n\
         [measure]\nwarmup = \"0s\"\n\
         [[flow]]\ntype = \"udp\"\nrate = \"2Mbit/s\"\nsize = 972\nstop = \"5s\"\n",
    );
    let (mut sent, mut arrived) = (BTreeSet::new(), BTreeSet::new());
    for row in recording.packets().unwrap() {
        let record = row.unwrap().record;
        sent.insert(record.packet.unwrap());
        if record.fate == Fate::Sent {
            arrived.insert(record.packet.unwrap());
        }
    }
    // 2 Mbit/s of 1000-byte packets for 5 s.
    assert_eq!(sent.len(), 1250);
    let lost = (sent.len() - arrived.len()) as f64;
    assert!(lost > 10.0, "{lost}");
    assert_eq!(metric(&recording, "udp.loss"), lost / 1250.0);
    // The last sample is that of the last arrival that is recorded; all have the same size.
    let bytes = recording.flow_samples().unwrap().last().unwrap().unwrap();
    assert_eq!(bytes.received_bytes, Some(arrived.len() as u64 * 972));
}

/// Each packet is 1 s on its way, twice: 250 packets and their copies are in flight at the end.
#[test]
fn copies_that_are_on_their_way_at_the_end_are_counted_once() {
    let (_folder, recording) = simulate(
        "duration = \"4s\"\n[link]\nrate = \"10Mbit/s\"\nrtt = \"2s\"\nduplicate = 1.0\n\
         [measure]\nwarmup = \"0s\"\n[[flow]]\ntype = \"udp\"\nrate = \"2Mbit/s\"\nsize = 972\n",
    );
    let last = recording.flow_samples().unwrap().last().unwrap().unwrap();
    let (sent, received) = (last.sent_packets.unwrap(), last.received_packets.unwrap());
    assert_eq!(sent, received);
    // 3 s of arrivals, less the time that a packet takes on the link.
    assert!((748..=750).contains(&received), "{received}");
}

/// The second link has a bottleneck, and one flow has a round trip of its own.
const PATH: &str = "duration = \"8s\"\n[link]\nrate = \"100Mbit/s\"\nrtt = \"10ms\"\n\
    [[hop]]\nrate = \"1Mbit/s\"\nrtt = \"10ms\"\nqueue = \"fifo limit 20\"\n";

#[test]
fn drops_of_every_link_of_a_flow_are_counted() {
    for direction in ["up", "down"] {
        let (_folder, recording) = simulate(&format!(
            "{PATH}[measure]\nwarmup = \"0s\"\n\
             [[flow]]\ntype = \"udp\"\nname = \"cross\"\nrate = \"1.3Mbit/s\"\nhops = 2\n\
             direction = \"{direction}\"\n\
             [[flow]]\ntype = \"udp\"\nname = \"long\"\nrate = \"100kbit/s\"\n\
             direction = \"{direction}\"\n\
             [[flow]]\ntype = \"udp\"\nname = \"first\"\nrate = \"100kbit/s\"\nhops = 1\n\
             direction = \"{direction}\"\n"
        ));
        let [cross, long, first] =
            ["cross", "long", "first"].map(|flow| metric(&recording, &format!("{flow}.drops")));
        assert_eq!(first, 0.0);
        assert!(cross > 100.0, "{cross}");
        assert_eq!(
            cross + long,
            metric(&recording, &format!("{direction}2.drops"))
        );
        // The packets of `long` wait at the second link only; the first one is never busy.
        let waits = recording.packets().unwrap().map(|row| row.unwrap());
        let waits = waits.filter(|row| row.pipe.hop() == 1 && row.record.flow == 1);
        let longest = waits.filter(|row| row.record.fate == Fate::Sent);
        let longest = longest.map(|row| row.record.sojourn().as_ns()).max();
        assert!(longest > Some(50_000_000), "{longest:?}");
        let found = metric(&recording, "long.sojourn.max");
        assert_eq!(Some(found), longest.map(|ns| ns as f64));
    }
}

/// Datagrams as large and frequent as those of a call have its score and its jitter.
#[test]
fn the_score_of_datagrams_is_that_of_a_call_on_their_path() {
    let (_folder, recording) = simulate(
        "duration = \"8s\"\n[link]\nrate = \"10Mbit/s\"\nrtt = \"10ms\"\njitter = \"4ms\"\n\
         [[hop]]\nrate = \"10Mbit/s\"\nrtt = \"10ms\"\n\
         [[flow]]\ntype = \"voip\"\nname = \"call\"\nrtt = \"700ms\"\n\
         [[flow]]\ntype = \"udp\"\nname = \"game\"\nrate = \"80kbit/s\"\nsize = 172\nrtt = \"700ms\"\n",
    );
    let both =
        |figure| ["call", "game"].map(|flow| metric(&recording, &format!("{flow}.{figure}")));
    // One way 350 ms and twice 0.16 ms: far from 4.4, the score without delay.
    let [call, game] = both("mos");
    assert!((call - game).abs() < 0.05, "{call} and {game}");
    assert!(game < 3.6, "{game}");
    let [call, game] = both("jitter");
    assert!(
        call > 1e6 && (call / game - 1.0).abs() < 0.25,
        "{call} and {game}"
    );
}

/// The link loses a fifth of all packets, and for half a second its delay is 6 s.
#[test]
fn one_slow_probe_does_not_hide_the_losses_after_it() {
    let (_folder, recording) = simulate(
        "duration = \"10s\"\n[link]\nrate = \"10Mbit/s\"\n[link.up]\nloss = 0.2\n\
         delay = [[\"0s\", \"10ms\"], [\"1s\", \"6s\"], [\"1500ms\", \"10ms\"]]\n\
         [measure]\nwarmup = \"0s\"\n\
         [[flow]]\ntype = \"ping\"\n[[flow]]\ntype = \"voip\"\n",
    );
    let mut dropped = [0_u64; 2];
    for row in recording.packets().unwrap() {
        let record = row.unwrap().record;
        if matches!(record.fate, Fate::Dropped(_)) {
            dropped[record.flow as usize] += 1;
        }
    }
    let mut lost = [0_u64; 2];
    for probe in recording.pings().unwrap() {
        let probe = probe.unwrap();
        lost[probe.flow as usize] += u64::from(probe.is_lost);
    }
    assert_eq!(lost, dropped);
    // A fifth of the 500 packets of the call; the standard deviation is 9.
    assert!((55..=145).contains(&lost[1]), "{lost:?}");
}

/// A queue that holds 6 s of traffic is full only near the end of the run.
#[test]
fn what_a_full_queue_drops_at_the_end_is_lost() {
    let (_folder, recording) = simulate(
        "duration = \"8s\"\n[link]\nrate = \"2Mbit/s\"\nrtt = \"20ms\"\nqueue = \"fifo limit 1000\"\n\
         [measure]\nwarmup = \"0s\"\n\
         [[flow]]\nname = \"flood\"\ntype = \"udp\"\nrate = \"3Mbit/s\"\n\
         [[flow]]\ntype = \"ping\"\n[[flow]]\ntype = \"voip\"\n",
    );
    let summary = measure(&recording).unwrap();
    let mut lost = [0_u64; 3];
    for probe in recording.pings().unwrap() {
        let probe = probe.unwrap();
        lost[probe.flow as usize] += u64::from(probe.is_lost);
    }
    assert!(summary.flows[2].drops > 10);
    assert_eq!(
        [lost[1], lost[2]],
        [summary.flows[1].drops, summary.flows[2].drops]
    );
}
