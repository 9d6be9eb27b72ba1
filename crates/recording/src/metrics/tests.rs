mod directions;
mod transfers;

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_core::{Span, Time};

use super::samples::Parts;
use super::*;
use crate::expect;
use crate::testing::recording;
use crate::{End, PingSample, Recording, Release, RunWriter};
use sluice_scenario::metric::{Measured, Metric, PipeSummary, Summary, Unit, reference};
use sluice_scenario::{Backend, Direction, Scenario};

const MS: u64 = 1_000_000;

#[test]
fn a_percentile_is_the_value_of_its_rank() {
    // Ranks of 1..=200: 50 % -> 100, 95 % -> 190, 99 % -> 198.
    let values: Vec<u64> = (1..=200).rev().collect();
    let p = percentiles(&values).unwrap();
    assert_eq!(
        (p.p50_ns, p.p95_ns, p.p99_ns, p.max_ns),
        (100, 190, 198, 200)
    );
    // ceil(0.5 * 3) = 2, ceil(0.95 * 3) = 3.
    let p = percentiles(&[7, 9, 8]).unwrap();
    assert_eq!((p.p50_ns, p.p95_ns), (8, 9));
    let p = percentiles(&[u64::MAX, u64::MAX]).unwrap();
    assert_eq!(p.mean_ns, u64::MAX);
    assert_eq!(percentiles(&[]), None);
}

#[test]
fn percentiles_are_those_of_the_sorted_values() {
    let mut rng = sluice_core::Rng::from_seed(1);
    let widths = [1, 2, 63, 64, 65, 129, 5000, 50_000_000, u64::MAX];
    for (width, length) in widths.into_iter().flat_map(|w| [(w, 900), (w, 5000)]) {
        // Two clusters, so that ranks share a slot and slots are empty.
        let far = u64::MAX / 2 - width / 2;
        let mut values: Vec<u64> = (0..length)
            .map(|_| rng.below(width) / 2 + if rng.below(16) == 0 { far } else { 0 })
            .collect();
        let (one, other) = values.split_at(length / 3);
        let p = super::percentile::percentiles_of(&Parts {
            long: vec![one, &[], other],
            ..Parts::default()
        });
        let p = p.unwrap();
        values.sort_unstable();
        // RFC 2330 section 11.3: rank ceil(y * n / 100), counted from 1.
        let of_rank = |percent: usize| values[(percent * length).div_ceil(100) - 1];
        assert_eq!(
            (p.min_ns, p.p50_ns, p.p95_ns, p.p99_ns, p.max_ns),
            (
                values[0],
                of_rank(50),
                of_rank(95),
                of_rank(99),
                values[length - 1]
            ),
            "{length} values below {width}"
        );
    }
}

#[test]
fn the_fairness_index_is_1_for_equals_and_1_over_n_for_one() {
    assert_eq!(jain(&[2.0; 4]), Some(1.0));
    assert_eq!(jain(&[5.0, 0.0, 0.0, 0.0]), Some(0.25));
    assert_eq!(jain(&[5.0]), None);
    assert_eq!(jain(&[0.0, 0.0]), None);
}

fn arrived(points: &[(u64, u64)]) -> Vec<Arrived> {
    points
        .iter()
        .map(|(ms, bytes)| (Time::from_ns(ms * MS), *bytes))
        .collect()
}

#[test]
fn goodput_is_what_arrived_in_the_time_divided_by_the_time() {
    let samples = arrived(&[(0, 0), (400, 1000), (900, 6000), (1600, 9000), (2000, 9500)]);
    let goodput = |from, to| {
        let even = Span::from_ms(500);
        goodput(
            &samples,
            even,
            Time::from_ns(from * MS),
            Time::from_ns(to * MS),
        )
    };
    // Half of the 1000 B until 0.4 s have arrived at 0.2 s. All of the 3000 B that follow a gap of
    // 0.7 s arrive at 1.6 s. Nothing arrives after the last sample.
    assert_eq!(goodput(200, 1200), Some((6000.0 - 500.0) * 8.0));
    assert_eq!(goodput(1000, 2000), Some((9500.0 - 6000.0) * 8.0));
    assert_eq!(goodput(2000, 3000), Some(0.0));
    assert_eq!(goodput(401, 401), None);
}

/// Returns the meters of the flows of a run of 60 s over 10 Mbit/s, whose samples in ms and bytes are
/// `samples`.
fn meters(flows: &str, samples: &[&[(u64, u64)]]) -> Vec<flow_meter::FlowMeter> {
    let text = format!("duration = \"60s\"\n[link]\nrate = \"10Mbit/s\"\n{flows}");
    let scenario = Scenario::parse("x.toml", &text, &[]).unwrap().remove(0);
    let scenario = scenario.scenario;
    let end = Time::from_ns(60_000 * MS);
    let meter = |(instance, samples): (sluice_scenario::FlowInstance<'_>, &&[(u64, u64)])| {
        let flow = Arc::new(instance.flow.clone());
        let id = instance.id;
        let mut meter = flow_meter::FlowMeter::new(instance, flow, 0..1, &scenario.measure, end);
        for (ms, bytes) in *samples {
            meter.sample(&crate::FlowSample {
                received_bytes: Some(*bytes),
                ..crate::FlowSample::empty(Time::from_ns(ms * MS), id)
            });
        }
        meter
    };
    scenario.instances().zip(samples).map(meter).collect()
}

const WARM: Time = Time::from_ns(1000 * MS);

#[test]
fn the_pauses_of_a_flow_count_in_its_goodput() {
    // 500 kB in the warm-up and until 51.5 s: one of them in the measured 59 s.
    let transfers: &[(u64, u64)] = &[(500, 500_000), (51_000, 500_000), (51_500, 1_000_000)];
    let flow = "[[flow]]\ntype = \"tcp\"\nbytes = \"500kB\"\npause = \"50s\"\n";
    let all = meters(flow, &[transfers]);
    let one = flow_meter::summarise("tcp", &[&all[0]], WARM);
    assert_eq!(one.goodput_bps, Some(4_000_000.0 / 59.0));
    let total = flow_meter::goodput_together(&[&all[0]], WARM);
    assert_eq!(total, one.goodput_bps);
    // Two pages, of which the first is the first byte that the flow receives.
    let all = meters(
        "[[flow]]\ntype = \"web\"\ninterval = \"20s\"\n",
        &[&[(8000, 50_000), (9000, 100_000)]],
    );
    let web = flow_meter::summarise("web", &[&all[0]], WARM);
    assert_eq!(web.goodput_bps, Some(800_000.0 / 59.0));
}

#[test]
fn the_payload_of_a_flow_in_its_own_warm_up_is_payload_of_all() {
    // Each of three flows has the link for 20 s, and brings 1 MB/s.
    let flow = "[[flow]]\ntype = \"tcp\"\ncount = 3\nstagger = \"20s\"\nstop = \"20s\"\n";
    let at = |start: u64| (0..=400).map(move |n| (start + 50 * n, 50_000 * n));
    let samples: Vec<Vec<(u64, u64)>> = [0, 20_000, 40_000].map(|s| at(s).collect()).into();
    let samples: Vec<&[(u64, u64)]> = samples.iter().map(Vec::as_slice).collect();
    let all = meters(flow, &samples);
    let all: Vec<_> = all.iter().collect();
    let close = |found: Option<f64>| (found.unwrap() - 8e6).abs() < 1e-3;
    assert!(close(flow_meter::goodput_together(&all, WARM)));
    let group = flow_meter::summarise("tcp", &all, WARM);
    assert!(close(group.goodput_bps));
    // A transfer has no warm-up.
    let flow = "[[flow]]\ntype = \"tcp\"\nbytes = \"500kB\"\n";
    let all = meters(flow, &[&[(1000, 100_000), (2000, 500_000)]]);
    let total = flow_meter::goodput_together(&[&all[0]], WARM);
    assert_eq!(total, Some(4_000_000.0 / 2.0));
}

/// Returns the figures of the direction up of a run of 2 s over `link`, from packets of `len` bytes in
/// `segments` that leave at `at` ms after `waited` ms.
fn figures_of_queue(link: &str, packets: &[(u64, u64, u32, u16)]) -> PipeSummary {
    let text = format!(
        "duration = \"2s\"\n[link]\n{link}\n[measure]\nwarmup = \"0s\"\n[[flow]]\ntype = \"ping\"\n"
    );
    let scenario = Scenario::parse("x.toml", &text, &[]).unwrap().remove(0);
    let scenario = scenario.scenario;
    let end = Time::from_ns(2000 * MS);
    let mut meter = pipe_meter::PipeMeter::new(&scenario.link.up, Time::ZERO, end);
    for (seq, (at, waited, len, segments)) in (0..).zip(packets.iter().copied()) {
        meter.packet(&sluice_core::record::PacketRecord {
            seq,
            packet: None,
            arrival: Time::from_ns((at - waited) * MS),
            flow: 0,
            len,
            segments,
            ecn: sluice_core::Ecn::NotEct,
            class: 0,
            fate: sluice_core::record::Fate::Sent,
            at: Time::from_ns(at * MS),
        });
    }
    let run = Measured {
        scenario: &scenario,
        pipe: Direction::Up.into(),
        from: Time::ZERO,
        to: end,
    };
    meter.finish(&scenario.link.up, &run)
}

#[test]
fn a_super_packet_counts_as_its_wire_packets_in_the_sojourn_time() {
    let mut packets = vec![(100, 2, 60_000, 40)];
    packets.extend([(200, 0, 100, 1); 10]);
    let sojourn = figures_of_queue("rate = \"10Mbit/s\"", &packets).sojourn;
    let sojourn = sojourn.unwrap();
    // 40 wire packets waited 2 ms, and ten did not wait.
    assert_eq!((sojourn.count, sojourn.p50_ns), (50, 2 * MS));
    assert_eq!(sojourn.mean_ns, 8 * MS / 5);
}

#[test]
fn a_link_is_busy_with_its_framing_too() {
    // 92 + 8 bytes take three cells of 53. In 2 s, 2 Mbit/s carry 500 000 bytes.
    let link = "rate = \"2Mbit/s\"\ncells = \"atm\"\noverhead = 8";
    let used = figures_of_queue(link, &[(100, 1, 92, 1); 1000]).utilisation;
    assert_eq!(used, Some(159_000.0 / 500_000.0));
    // Each segment is framed.
    let used = figures_of_queue(link, &[(100, 1, 920, 10); 100]).utilisation;
    assert_eq!(used, Some(159_000.0 / 500_000.0));
}

#[test]
fn each_call_has_its_own_score() {
    let flow = "[[flow]]\ntype = \"voip\"\ncount = 2\n";
    let mut all = meters(flow, &[&[], &[]]);
    for (number, meter) in all.iter_mut().enumerate() {
        for seq in 0..100 {
            // Half of the packets of the first call are lost.
            let is_lost = number == 0 && seq % 2 == 0;
            meter.probe(&PingSample {
                time: Time::from_ns((2000 + 20 * seq) * MS),
                flow: 0,
                seq,
                rtt: None,
                up: (!is_lost).then(|| Span::from_ms(10)),
                down: None,
                is_lost,
            });
        }
    }
    let call = flow_meter::summarise("voip", &all.iter().collect::<Vec<_>>(), WARM);
    assert_eq!(call.loss, Some(0.25));
    let mean = (mean_opinion_score(10.0, 0.5) + mean_opinion_score(10.0, 0.0)) / 2.0;
    assert_eq!(call.mos, Some(mean));
}

#[test]
fn the_score_of_a_ping_counts_the_requests_that_were_lost_and_not_the_answers() {
    let mut all = meters("[[flow]]\ntype = \"ping\"\n", &[&[]]);
    let ping = &mut all[0];
    for seq in 0..100 {
        // Of four that got no answer, the queue dropped one request.
        let is_lost = seq % 25 == 0;
        let at = Time::from_ns((2000 + 20 * seq) * MS);
        let delay = |ms| (!is_lost).then(|| Span::from_ms(ms));
        ping.probe(&PingSample {
            time: at,
            flow: 0,
            seq,
            rtt: delay(20),
            up: delay(10),
            down: delay(10),
            is_lost,
        });
        if seq == 25 {
            let record = sluice_core::record::PacketRecord {
                seq,
                packet: None,
                arrival: at,
                flow: 0,
                len: 84,
                segments: 1,
                ecn: sluice_core::Ecn::NotEct,
                class: 0,
                fate: sluice_core::record::Fate::Dropped(sluice_core::DropReason::Overflow),
                at,
            };
            ping.packet(0, &record, || Span::ZERO);
        }
    }
    let ping = flow_meter::summarise("ping", &[&all[0]], WARM);
    assert_eq!(ping.loss, Some(0.04));
    assert_eq!(ping.mos, Some(mean_opinion_score(10.0, 0.01)));
}

#[test]
fn a_goodput_curve_averages_over_its_window() {
    // 1000 B/s for 2 s, then nothing for 2 s; a window of 2 s that steps by 1 s.
    let samples = arrived(&[(0, 0), (2000, 2000), (4000, 2000)]);
    let [window, step] = [2, 1].map(Span::from_secs);
    let series = |samples: &[Arrived]| goodput_series(samples, window, window, step);
    let expected = [(2.0, 8000.0), (3.0, 4000.0), (4.0, 0.0)];
    assert_eq!(series(&samples), expected);
    assert!(series(&[]).is_empty());
}

fn release(due_us: u64, late_us: u64) -> Release {
    Release {
        due: Time::from_ns(due_us * 1000),
        pipe: Direction::Up.into(),
        len: 1500,
        late: Span::from_us(late_us),
    }
}

#[test]
fn the_rate_error_is_taken_over_busy_periods() {
    let text = "duration = \"1s\"\n[link]\nrate = \"10Mbit/s\"\ndelay = \"5ms\"\n[measure]\nwarmup = \"0s\"\n[[flow]]\ntype = \"ping\"\n";
    let scenario = Scenario::parse("x", text, &[]).unwrap().remove(0).scenario;
    let mut meter = AccuracyMeter::new(scenario.link);
    // 1500 B take 1.2 ms. Two busy periods of two packets: due 1.2 ms apart, sent 1.212 ms and 1.2 ms
    // apart. Between the periods the link is idle, and the lateness of 500 us there does not count.
    for (due, late) in [(10_000, 0), (11_200, 12), (50_000, 500), (51_200, 500)] {
        meter.release(&release(due, late));
    }
    let accuracy = meter.finish(BTreeMap::new());
    assert_eq!(accuracy.busy_ns, 2_400_000);
    // 2.4 ms of transmissions in 2.412 ms.
    let expected = 2400.0 / 2412.0 - 1.0;
    assert!((accuracy.rate_error.unwrap() - expected).abs() < 1e-12);
    let late = accuracy.lateness.unwrap();
    assert_eq!((late.p50_ns, late.max_ns), (12_000, 500_000));
}

#[test]
fn the_rate_error_includes_the_framing() {
    let text = "duration = \"1s\"\n[link]\nrate = \"2Mbit/s\"\ncells = \"atm\"\noverhead = 8\ndelay = \"5ms\"\n\
                [measure]\nwarmup = \"0s\"\n[[flow]]\ntype = \"ping\"\n";
    let scenario = Scenario::parse("x", text, &[]).unwrap().remove(0).scenario;
    let mut meter = AccuracyMeter::new(scenario.link);
    // 1500 + 8 bytes are 32 cells of 53 bytes, which take 6.784 ms.
    for due in [10_000, 16_784] {
        meter.release(&release(due, 3));
    }
    let accuracy = meter.finish(BTreeMap::new());
    assert_eq!(accuracy.busy_ns, 6_784_000);
}

#[test]
fn the_rate_error_follows_a_schedule() {
    let text = "duration = \"1s\"\n[link]\nrate = [[\"0s\", \"10Mbit/s\"], [\"20ms\", \"5Mbit/s\"]]\n\
                delay = \"5ms\"\n[measure]\nwarmup = \"0s\"\n[[flow]]\ntype = \"ping\"\n";
    let scenario = Scenario::parse("x", text, &[]).unwrap().remove(0).scenario;
    let mut meter = AccuracyMeter::new(scenario.link);
    // With 5 ms of delay the slots end at 18, 19.2, 20.4 and 22.8 ms. The third began before the change
    // and keeps its 1.2 ms; the fourth takes 2.4 ms.
    for due in [23_000, 24_200, 25_400, 27_800] {
        meter.release(&release(due, 3));
    }
    let accuracy = meter.finish(BTreeMap::new());
    assert_eq!(accuracy.busy_ns, 4_800_000);
    assert_eq!(accuracy.rate_error, Some(0.0));
}

#[test]
fn a_recording_comes_to_its_figures() {
    let temp = tempfile::tempdir().unwrap();
    let summary = measure(&recording(temp.path())).unwrap();
    let flow = |name: &str| {
        let mut all = summary.groups.iter().chain(&summary.flows);
        all.find(|flow| flow.name == name).unwrap()
    };

    // 100 kB/s and 25 kB/s; 8 seconds of one retransmission each.
    assert_eq!(flow("bulk-1").goodput_bps, Some(800_000.0));
    assert_eq!(flow("bulk-2").goodput_bps, Some(200_000.0));
    assert_eq!(flow("bulk-2").retransmits, Some(8));
    assert_eq!(flow("bulk").goodput_bps, Some(1_000_000.0));
    assert_eq!(flow("bulk").retransmits, Some(16));
    assert_eq!(flow("bulk").bytes, Some(1_250_000));
    // Samples at 2 ..= 10 s: 22 ..= 30 ms, 9 values, twice.
    let srtt = flow("bulk").srtt.unwrap();
    assert_eq!((srtt.count, srtt.p50_ns), (18, 26 * MS));
    // (800 + 200)^2 / (2 * (800^2 + 200^2)) = 1000000/1360000
    assert!((summary.jain.unwrap() - 1000.0 / 1360.0).abs() < 1e-12);

    assert_eq!(summary.directions.len(), 1);
    assert_eq!(summary.directions[0].jain, summary.jain);

    // 3000 B in 0.24 s, from its start on although that is in the warm-up.
    assert_eq!(flow("page").fct_ns, Some(240 * MS));
    assert!((flow("page").goodput_bps.unwrap() - 100_000.0).abs() < 1e-6);
    // 9600 B/s of UDP; 20 of 100 packets lost.
    assert_eq!(flow("udp").goodput_bps, Some(76_800.0));
    assert_eq!(flow("udp").loss, Some(0.2));
    // The page was complete before the measured time.
    let total = 1_000_000.0 + 76_800.0;
    let found = summary.total_goodput_bps.unwrap();
    assert!((found - total).abs() < 1e-6, "{found}");

    // Probes of 2 ..= 10 s without 5 s: 22 23 24 26 27 28 29 30 ms. Rank 4 of 8.
    let rtt = flow("ping").rtt.unwrap();
    assert_eq!((rtt.count, rtt.p50_ns, rtt.max_ns), (8, 26 * MS, 30 * MS));
    assert_eq!(flow("ping").up.unwrap().p50_ns, 16 * MS);
    assert_eq!(flow("ping").down.unwrap().max_ns, 10 * MS);
    assert_eq!(flow("ping").loss, Some(1.0 / 9.0));

    let up = &summary.pipes[0];
    // Left in the measured time: two wire packets each 20, 30 and 40 ms after their arrival.
    let sojourn = up.sojourn.unwrap();
    assert_eq!(
        (sojourn.count, sojourn.p50_ns, sojourn.max_ns),
        (6, 30 * MS, 40 * MS)
    );
    // Three super-packets of 3000 B in 8 s at 1.2 Mbit/s.
    assert!((up.utilisation.unwrap() - 72_000.0 / 9_600_000.0).abs() < 1e-12);
    // Each counts its two wire packets; the first one arrived before.
    assert_eq!((up.packets, up.sent), (8, 6));
    assert_eq!(up.drops, BTreeMap::from([("congestion".to_owned(), 2)]));
    assert_eq!(up.marks, 2);
    assert_eq!(summary.pipes[1].sojourn, None);
    assert_eq!(summary.accuracy.unwrap().lost["port"], 3);
}

#[test]
fn packets_are_counted_for_their_flow() {
    let temp = tempfile::tempdir().unwrap();
    let summary = measure(&recording(temp.path())).unwrap();
    let flow = |name: &str| summary.flows.iter().find(|f| f.name == name).unwrap();
    // All packets are of bulk-1; those of the measured time waited 20, 30 and 40 ms.
    let bulk = flow("bulk-1");
    assert_eq!(bulk.sojourn.unwrap().p50_ns, 30 * MS);
    assert_eq!((bulk.drops, bulk.marks), (2, 2));
    assert_eq!((flow("bulk-2").sojourn, flow("bulk-2").drops), (None, 0));
    let up = &summary.pipes[0];
    // 6 wire packets left, 2 of them marked, and 2 were dropped.
    assert_eq!(up.loss, Some(2.0 / 8.0));
    assert_eq!(up.mark_ratio, Some(2.0 / 6.0));
    // One loss event, in which one of the two bulk flows lost packets.
    assert_eq!(up.metered("synchronisation"), Some(0.5));
    assert_eq!(summary.pipes[1].loss, None);
}

#[test]
fn probes_have_jitter_and_a_score() {
    let temp = tempfile::tempdir().unwrap();
    let summary = measure(&recording(temp.path())).unwrap();
    let ping = summary.flows.iter().find(|f| f.name == "ping").unwrap();
    // Round trips of 20 and 21 ms in the warm-up, after which J is 1/16 ms, then of 22 23 24 26 27 28
    // 29 30 ms: distances 1 1 1 2 1 1 1 1. J after each, in ms: 0.12109, 0.17603, 0.22752, 0.33830,
    // 0.37966, 0.41843, 0.45478, 0.48886; the mean is 0.32558.
    let jitter = ping.jitter_ns.unwrap() as f64 / 1e6;
    assert!((jitter - 0.32558).abs() < 1e-5, "{jitter}");
    // Up: a mean of 209/8 - 10 = 16.125 ms and a mean distance of 8/7 ms. One of nine got no
    // answer, but no queue dropped a request.
    let expected = mean_opinion_score(16.125 + 2.0 * 8.0 / 7.0, 0.0);
    assert!((ping.mos.unwrap() - expected).abs() < 1e-9);
}

/// The figures of a call that lost no packet, whose packets were sent every 20 ms and took these times.
fn call(warmup: &str, ways_ms: &[u64]) -> sluice_scenario::metric::FlowSummary {
    let text = format!(
        "duration = \"10s\"\n[link]\nrate = \"1Mbit/s\"\n[measure]\nwarmup = \"{warmup}\"\n\
         [[flow]]\ntype = \"voip\"\n"
    );
    let scenario = Scenario::parse("x.toml", &text, &[])
        .unwrap()
        .remove(0)
        .scenario;
    let instance = scenario.instances().next().unwrap();
    let flow = Arc::new(instance.flow.clone());
    let end = Time::from_ns(10_000 * MS);
    let mut meter = flow_meter::FlowMeter::new(instance, flow, 0..1, &scenario.measure, end);
    for (seq, way) in (0..).zip(ways_ms) {
        meter.probe(&PingSample {
            time: Time::from_ns(20 * MS * seq),
            flow: 0,
            seq,
            rtt: None,
            up: Some(Span::from_ms(*way)),
            down: None,
            is_lost: false,
        });
    }
    flow_meter::summarise("voip", &[&meter], Time::ZERO)
}

#[test]
fn a_call_has_the_jitter_of_its_packets_in_the_order_of_arrival() {
    // The second one, after 50 ms, arrives last.
    let call = call("0s", &[10, 50, 14]);
    // RFC 3550 section 6.4.1, in the order of arrival: transits of 10, 14 and 50 ms. J is
    // 4/16 = 0.25 ms, then 0.25 + (36 - 0.25)/16 = 2.484375 ms; their mean is 1.3671875 ms.
    assert_eq!(call.jitter_ns, Some(1_367_188));
}

#[test]
fn the_jitter_of_a_call_does_not_start_at_zero_after_the_warm_up() {
    // 10 and 18 ms in turn: each |D| is 8 ms, so J is 8 (1 - (15/16)^k) ms after the k-th. At 4 s, the
    // 201st packet has had 200 of them: (15/16)^200 is 2.5e-6, so all later values are 8 ms.
    let ways: Vec<u64> = (0..210).map(|k| 10 + 8 * (k % 2)).collect();
    let jitter = |warmup| call(warmup, &ways).jitter_ns.unwrap();
    assert!(jitter("4s").abs_diff(8_000_000) < 100, "{}", jitter("4s"));
    // Without a warm-up, the mean of 209 values lacks 8 * 15 / 209 ms, the sum of the series.
    let rise_ns = 8e6 * 15.0 / 209.0;
    assert!(
        (jitter("0s") as f64 - (8e6 - rise_ns)).abs() < 100.0,
        "{}",
        jitter("0s")
    );
    // The score is that of the measured packets: 10 of them, whose differences are 8 ms, too.
    let expected = mean_opinion_score(14.0 + 2.0 * 8.0, 0.0);
    assert!((call("4s", &ways).mos.unwrap() - expected).abs() < 1e-9);
}

#[test]
fn figures_of_the_writer_are_those_of_its_tables() {
    let temp = tempfile::tempdir().unwrap();
    let recording = recording(temp.path());
    let read = Recording::open(temp.path()).unwrap();
    assert_eq!(read.measured(), None);
    assert_eq!(recording.measured(), Some(&measure(&read).unwrap()));
}

#[test]
fn figures_of_a_run_that_ended_early_are_those_of_its_tables() {
    let temp = tempfile::tempdir().unwrap();
    let whole = recording(&temp.path().join("whole"));
    let variant = crate::testing::variant();
    let dir = temp.path().join("early");
    let mut writer = RunWriter::create(&dir, &variant, &whole.run().environment).unwrap();
    for probe in whole.pings().unwrap() {
        writer.ping(&probe.unwrap()).unwrap();
    }
    let early = writer
        .finish(End::partial(Time::from_ns(4500 * MS), "interrupted"))
        .unwrap();
    assert_eq!(early.measured(), None);
    // The warm-up of 2 s is left out, so the probes of 2, 3 and 4 s count: 22, 23 and 24 ms.
    let summary = measure(&early).unwrap();
    let ping = summary.flows.iter().find(|flow| flow.name == "ping");
    let rtt = ping.unwrap().rtt.unwrap();
    assert_eq!((rtt.count, rtt.p50_ns), (3, 23 * MS));
}

#[test]
fn unequal_shares_are_seen_over_time() {
    let temp = tempfile::tempdir().unwrap();
    let summary = measure(&recording(temp.path())).unwrap();
    // 100 kB/s and 25 kB/s in every window, as over the run: 125^2 / (2 * (100^2 + 25^2)).
    let index = 15_625.0 / 21_250.0;
    assert!((summary.jain_min.unwrap() - index).abs() < 1e-12);
    assert!((summary.jain_mean.unwrap() - index).abs() < 1e-12);
    let bulk = summary.flows.iter().find(|f| f.name == "bulk-2").unwrap();
    assert_eq!(bulk.convergence_ns, None, "25 is not within 20 % of 62.5");
}

#[test]
fn the_reference_page_of_the_figures_is_current() {
    // UPDATE_EXPECT=1 writes the page again.
    expect_test::expect_file!["../../../../docs/metrics.md"].assert_eq(&reference());
}

#[test]
fn a_summary_is_stored_and_read_back() {
    let temp = tempfile::tempdir().unwrap();
    let recording = recording(temp.path());
    assert_eq!(recording.stored_summary().unwrap(), None);
    let summary = measure(&recording).unwrap();
    recording.store_summary(&summary).unwrap();
    assert_eq!(recording.stored_summary().unwrap(), Some(summary));
}

#[test]
fn an_expectation_that_is_not_met_says_what_was_measured() {
    let temp = tempfile::tempdir().unwrap();
    let recording = recording(temp.path());
    let summary = measure(&recording).unwrap();
    let outcomes = expect::check(&recording.run().scenario.expect, Backend::Live, &[&summary]);
    let lines: Vec<String> = outcomes.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "met: `ping.p50` of `fifo` is 26ms; expected at most 30ms",
            "met: `bulk.goodput` of `fifo` is 1Mbit/s; expected at least 1Mbit/s",
            "met: `up.drops` of `fifo` is 2; expected at least 1 and at most 2",
            "not met: `down.sojourn.p50` of `fifo` was not measured; expected at most 1ms; \
             see \"Sojourn time of every packet\" in the report",
        ]
    );
    let passed: Vec<bool> = outcomes.iter().map(|outcome| outcome.passed).collect();
    assert_eq!(passed, [true, true, true, false]);
}

/// The median of five runs is their third value. A run without the figure is beyond the bound.
#[test]
fn a_run_that_did_not_measure_a_figure_counts_against_an_expectation_of_it() {
    let temp = tempfile::tempdir().unwrap();
    let recording = recording(temp.path());
    let measured = measure(&recording).unwrap();
    let mut starved = measured.clone();
    for flow in &mut starved.flows {
        flow.rtt = None;
        flow.goodput_bps = None;
    }
    starved.groups.clear();
    let with = |count: usize| {
        let runs: Vec<&Summary> = std::iter::repeat_n(&measured, count)
            .chain(std::iter::repeat_n(&starved, 5 - count))
            .collect();
        expect::check(&recording.run().scenario.expect, Backend::Live, &runs)
    };
    let passed = |count: usize| [with(count)[0].passed, with(count)[1].passed];
    let in_runs: Vec<[bool; 2]> = (0..=5).map(passed).collect();
    let (no, yes) = ([false; 2], [true; 2]);
    assert_eq!(in_runs, [no, no, no, yes, yes, yes]);
    let text = |count: usize| with(count)[0].to_string();
    assert_eq!(
        text(1),
        "not met: `ping.p50` of `fifo` is 26ms in 1 of 5 runs, and was not measured in the others; \
         expected at most 30ms; see \"Ping\" in the report"
    );
    assert_eq!(
        text(3),
        "met: `ping.p50` of `fifo` is 26ms in the median of 3 of 5 runs, and was not measured in the \
         others; expected at most 30ms"
    );
    assert_eq!(
        text(5),
        "met: `ping.p50` of `fifo` is 26ms in the median of 5 runs; expected at most 30ms"
    );
    assert_eq!(
        with(1)[0].measured_words().unwrap(),
        "26ms (in 1 of 5 runs)"
    );
    assert_eq!(with(5)[0].measured_words().unwrap(), "26ms");
}

#[test]
fn every_name_of_a_metric_finds_its_figure() {
    let temp = tempfile::tempdir().unwrap();
    let recording = recording(temp.path());
    let summary = measure(&recording).unwrap();
    let flows = &recording.run().scenario.flows;
    let value = |name: &str| Metric::parse(name, flows).unwrap().value(&summary);
    assert_eq!(value("bulk-2.goodput"), Some(200_000.0));
    assert_eq!(value("page.fct"), Some(240e6));
    assert_eq!(value("up.drops.congestion"), Some(2.0));
    assert_eq!(value("up.drops.overflow"), Some(0.0));
    assert_eq!(value("accuracy.lost"), Some(3.0));
    // Each type of flow has only metrics that exist.
    for flow in flows {
        for metric in flow.kind.metrics() {
            Metric::parse(&format!("{}.{metric}", flow.name), flows)
                .unwrap_or_else(|error| panic!("{}", error.message));
        }
    }
    let error = Metric::parse("page.p50", flows).err().unwrap();
    assert_eq!(error.message, "`page` has no metric `p50`");
    assert_eq!(error.span, 5..8);
}

#[test]
fn figures_are_shown_in_the_unit_that_suits_them() {
    assert_eq!(Unit::Time.show(26e6), "26ms");
    assert_eq!(Unit::Time.show(1_234_567.0), "1.2346ms");
    assert_eq!(Unit::Rate.show(9_653_333.0), "9.6533Mbit/s");
    assert_eq!(Unit::Ratio.show(0.9730), "0.973");
    assert_eq!(Unit::Count.show(17.0), "17");
    assert_eq!(Unit::Score.show(4.409), "4.41");
    assert_eq!(Unit::Time.show(0.0), "0ns");
}
