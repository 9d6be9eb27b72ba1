use super::*;
use crate as report;
use sluice_recording::testing::recording;
use sluice_recording::{End, Environment, FlowSample, PingSample, RunWriter};

#[test]
fn the_points_of_very_long_curves_are_further_apart() {
    let temp = tempfile::tempdir().unwrap();
    let recording = recording(temp.path());
    let instances: Vec<FlowInstance<'_>> = recording.run().scenario.instances().collect();
    let starts = instances.iter().map(|flow| Time::ZERO + flow.start);
    let mut samples: Vec<Samples> = starts.map(Samples::new).collect();
    for sample in recording.flow_samples().unwrap() {
        let sample = sample.unwrap();
        samples[sample.flow as usize].push(&sample);
    }
    let step = Span::from_ms(250);
    assert_eq!(step_of_curves(&instances, &samples, step), step);
    // Ten years have 1 261 440 000 points, which are 63 times the most.
    samples[0].last = Some(Time::from_ns(315_360_000_000_000_000));
    let long = step_of_curves(&instances, &samples, step);
    assert_eq!(long, Span::from_secs(16), "64 times 250 ms");
}

#[test]
fn a_recording_becomes_a_run_of_the_report() {
    let temp = tempfile::tempdir().unwrap();
    let recording = recording(temp.path());
    let report = report_of(&[&recording]).unwrap();
    assert_eq!(report.title, "x");
    let [run] = report.runs.as_slice() else {
        panic!("one recording makes one run");
    };
    assert_eq!(run.name, "fifo");
    assert_eq!(run.partial, None);
    assert_eq!(run.base_rtt_ms, Some(20.0));
    let fact = |label: &str| {
        run.facts
            .iter()
            .find(|f| f.label == label)
            .unwrap()
            .value
            .as_str()
    };
    assert_eq!(fact("rate"), "1.2Mbit/s each way");
    assert_eq!(fact("flow bulk"), "2 x tcp cubic, up, 0 to 10 s");
    assert_eq!(fact("flow page"), "tcp cubic, 3000B, up, 1 to 10 s");

    let names: Vec<&str> = run.flows.iter().map(|flow| flow.name.as_str()).collect();
    assert_eq!(names, ["bulk-1", "bulk-2", "page", "udp"]);
    // 100 kB/s all the time; windows of 1 s that end at 1, 1.25 ... 10 s.
    let goodput = &run.flows[0].goodput_mbps;
    assert_eq!((goodput.time_s[0], goodput.time_s.len()), (1.0, 37));
    assert!(goodput.value.iter().all(|mbps| (mbps - 0.8).abs() < 1e-9));
    let srtt = run.flows[0].srtt_ms.as_ref().unwrap();
    assert_eq!((srtt.time_s[3], srtt.value[3]), (3.0, 23.0));
    assert_eq!(run.flows[3].srtt_ms, None, "UDP has none");

    let ping = &run.pings[0];
    // Of the nine probes after the warm-up of 2 s, that of 5 s was lost.
    assert_eq!(ping.loss, Some(1.0 / 9.0));
    assert!(ping.two_way_ms.value[5].is_nan(), "a lost probe is a gap");
    assert_eq!(ping.two_way.unwrap().p50, 26.0);

    let up = &run.queues[0];
    assert_eq!((up.name.as_str(), up.sent), ("up", 6));
    // The packet that is still queued has met no fate.
    assert_eq!(up.packets.len(), 5);
    // Those that left after the warm-up of 2 s, as in the table: at 2.01, 3.03 and 4.04 s.
    let cdf = up.sojourn_cdf.as_ref().unwrap();
    assert_eq!(cdf.value, [20.0, 30.0, 40.0]);
    assert_eq!(cdf.count, up.sent);
    let row = up.packets.row(2);
    assert_eq!(row.verdict, Verdict::Marked);
    assert_eq!((row.at_ns, row.sojourn_ns), (3_030_000_000, 30_000_000));
    assert_eq!(up.packets.reasons, ["overflow", "congestion"]);
    assert_eq!(up.packets.flows[row.flow as usize], "bulk-1");
    assert_eq!(run.accuracy.lost_elsewhere[0].packets, 3);

    // 100 kB/s against 25 kB/s in windows of 1 s every 250 ms: 125^2 / (2 * (100^2 + 25^2)).
    let total = &run.directions[0];
    let jain = total.jain_over_time.as_ref().unwrap();
    assert_eq!((jain.time_s[0], jain.time_s.len()), (1.0, 37));
    assert!((jain.value[20] - 15_625.0 / 21_250.0).abs() < 1e-9);
    // Packets left at 2.01, 3.03 and 4.04 s after 20, 30 and 40 ms; after the warm-up of 2 s there are
    // 800 + 200 kbit/s of TCP and 76.8 kbit/s of UDP in each of these windows.
    let tradeoff = total.tradeoff.as_ref().unwrap();
    assert_eq!(tradeoff.delay_ms, [20.0, 30.0, 40.0]);
    assert!(
        tradeoff
            .goodput_mbps
            .iter()
            .all(|mbps| (mbps - 1.0768).abs() < 1e-9)
    );
    // The page had all its bytes after 240 ms.
    assert_eq!(run.completion_ms.as_ref().unwrap().value, [240.0]);
    // Expectations that were not met come first, with the place where this is visible.
    let first = &run.expectations[0];
    assert!(!first.passed && run.expectations[1].passed);
    assert_eq!(
        (first.metric.as_str(), first.chart.as_str()),
        ("down.sojourn.p50", "packets")
    );
    assert_eq!(run.expectations[1].measured.as_deref(), Some("26ms"));

    let page = report::html(report);
    assert!(page.contains("<title>x"), "the page is drawn");
}

#[test]
fn variants_of_one_name_are_told_apart_by_their_folders() {
    let temp = tempfile::tempdir().unwrap();
    let (a, b) = (temp.path().join("a"), temp.path().join("b"));
    let (first, second) = (recording(&a), recording(&b));
    let report = report_of(&[&first, &second]).unwrap();
    let names: Vec<String> = report.runs.iter().map(|run| run.name.clone()).collect();
    let expected = [a, b].map(|dir| format!("fifo ({})", dir.display()));
    assert_eq!(names, expected);
    // Twice the same run: neither is better.
    for run in &report.runs {
        assert_eq!(run.judgement.outcome, "about as good as the others");
        assert!(!run.judgement.is_best);
    }
}

#[test]
fn runs_that_differ_in_their_seed_only_are_repetitions() {
    let temp = tempfile::tempdir().unwrap();
    let run = |seed: u64, rate: &str| {
        let text = format!(
            "duration = \"2s\"\nseed = {seed}\n[link]\nrate = \"{rate}\"\n[[flow]]\ntype = \"ping\"\n"
        );
        let variant = scenario::Scenario::parse("x.toml", &text, &[])
            .unwrap()
            .remove(0);
        let environment = Environment::here(scenario::Backend::Sim, "2026-01-02T03:04:05Z".into());
        let dir = temp.path().join(format!("{seed}-{}", &rate[..1]));
        let mut writer = RunWriter::create(&dir, &variant, &environment).unwrap();
        writer
            .ping(&PingSample {
                time: Time::from_ns(1_500_000_000),
                flow: 0,
                seq: 0,
                rtt: Some(sluice_core::Span::from_ms(10 * seed)),
                up: None,
                down: None,
                is_lost: false,
            })
            .unwrap();
        writer
            .finish(End::complete(Time::from_ns(2_000_000_000)))
            .unwrap()
    };
    let runs = [
        run(1, "1Mbit/s"),
        run(2, "1Mbit/s"),
        run(1, "2Mbit/s"),
        run(3, "1Mbit/s"),
    ];
    let report = report_of(&runs.iter().collect::<Vec<_>>()).unwrap();
    let repeats: Vec<usize> = report.runs.iter().map(|run| run.repeats.len()).collect();
    assert_eq!(
        repeats,
        [3, 0],
        "the median, the 95th and the 99th percentile of the ping"
    );
    // The rates of the links differ, so the queues are not compared.
    for run in &report.runs {
        assert_eq!(run.judgement.outcome, "");
    }
    let median = &report.runs[0].repeats[0];
    assert_eq!(
        (median.figure.as_str(), median.unit.as_str()),
        ("Ping, median", "ms")
    );
    assert_eq!(
        (&median.values[..], median.median),
        (&[10.0, 20.0, 30.0][..], 20.0)
    );
    // Of three values, the interval of their median is their range.
    assert_eq!(median.interval, Some((10.0, 30.0)));
}

#[test]
fn packets_that_only_a_stored_summary_claims_take_no_memory() {
    let temp = tempfile::tempdir().unwrap();
    let run = |seed: u64| {
        let text = format!(
            "duration = \"2s\"\nseed = {seed}\n[link]\nrate = \"1Mbit/s\"\n[[flow]]\ntype = \"ping\"\n"
        );
        let variant = scenario::Scenario::parse("x.toml", &text, &[]);
        let environment = Environment::here(scenario::Backend::Sim, String::new());
        let dir = temp.path().join(seed.to_string());
        let writer = RunWriter::create(&dir, &variant.unwrap()[0], &environment).unwrap();
        let end = End::complete(Time::from_ns(2_000_000_000));
        let recording = writer.finish(end).unwrap();
        let mut summary = measure(&recording).unwrap();
        summary.pipes[0].packets = 1 << 60;
        recording.store_summary(&summary).unwrap();
        recording
    };
    let report = report_of(&[&run(1), &run(2)]).unwrap();
    assert_eq!(report.runs.len(), 1, "one run with two repetitions");
    assert!(report.runs[0].queues[0].packets.is_empty());
}

#[test]
fn the_repetitions_in_each_folder_are_one_run() {
    let temp = tempfile::tempdir().unwrap();
    let run = |folder: &str, seed: u64| {
        let text = format!(
            "duration = \"2s\"\nseed = {seed}\n[link]\nrate = \"1Mbit/s\"\n[[flow]]\ntype = \"ping\"\n"
        );
        let variant = scenario::Scenario::parse("x.toml", &text, &[])
            .unwrap()
            .remove(0);
        let environment = Environment::here(scenario::Backend::Sim, "2026-01-02T03:04:05Z".into());
        let dir = temp.path().join(format!("{folder}/fifo.seed-{seed}"));
        let writer = RunWriter::create(&dir, &variant, &environment).unwrap();
        let end = End::complete(Time::from_ns(2_000_000_000));
        writer.finish(end).unwrap()
    };
    // The same seeds before and after a change, and others.
    for (folder, seeds) in [("after", [1, 2, 3]), ("others", [4, 5, 6])] {
        let mut runs = [1, 2, 3].map(|seed| run("before", seed)).to_vec();
        runs.extend(seeds.map(|seed| run(folder, seed)));
        let all: Vec<&Recording> = runs.iter().collect();
        let report = report_of(&all).unwrap();
        let shown: Vec<&[u64]> = report
            .runs
            .iter()
            .map(|run| run.repetitions.as_slice())
            .collect();
        assert_eq!(shown, [[1, 2, 3], seeds]);
        // Tables and curves have a row or a point for each.
        let results = crate::picture::results(&all).unwrap();
        let counts: Vec<usize> = results.iter().map(|result| result.runs.len()).collect();
        assert_eq!(counts, [3, 3]);
    }
}

#[test]
fn boxes_are_those_of_all_repetitions_without_the_warm_up() {
    let temp = tempfile::tempdir().unwrap();
    let run = |seed: u64, base_ms: u64| {
        let text = format!(
            "duration = \"3s\"\nseed = {seed}\n[measure]\nwarmup = \"1s\"\n\
             [link]\nrate = \"1Mbit/s\"\n[[flow]]\ntype = \"ping\"\n"
        );
        let variant = scenario::Scenario::parse("x.toml", &text, &[])
            .unwrap()
            .remove(0);
        let environment = Environment::here(scenario::Backend::Sim, "2026-01-02T03:04:05Z".into());
        let dir = temp.path().join(seed.to_string());
        let mut writer = RunWriter::create(&dir, &variant, &environment).unwrap();
        // A slow probe in the warm-up, then five.
        let warm = (500, 900);
        let probes = (0..5).map(|n| (1000 + 100 * n, base_ms + n));
        for (seq, (at_ms, rtt_ms)) in [warm].into_iter().chain(probes).enumerate() {
            let probe = PingSample {
                time: Time::from_ns(at_ms * 1_000_000),
                flow: 0,
                seq: seq as u64,
                rtt: Some(Span::from_ms(rtt_ms)),
                up: None,
                down: None,
                is_lost: false,
            };
            writer.ping(&probe).unwrap();
        }
        let end = End::complete(Time::from_ns(3_000_000_000));
        writer.finish(end).unwrap()
    };
    let runs = [run(1, 10), run(2, 30), run(3, 20)];
    let report = report_of(&runs.iter().collect::<Vec<_>>()).unwrap();
    // Of five samples, 5 % are the first, 25 % the second and so on; the medians of the repetitions are
    // those of the last one, and not those of the one that is shown.
    let ping = &report.runs[0].pings[0];
    assert_eq!(ping.box_ms, Some([20.0, 21.0, 22.0, 23.0, 24.0]));
    // The curve is that of the whole first run, and its distribution that of the five samples.
    assert_eq!(ping.two_way_ms.value[0], 900.0);
    let cdf = ping.distribution(&ping.two_way_ms);
    assert_eq!(cdf.value, [10.0, 11.0, 12.0, 13.0, 14.0]);
    // A queue without packets has no box.
    assert!(
        report.runs[0]
            .queues
            .iter()
            .all(|queue| queue.box_ms.is_none())
    );
    assert_eq!(report.runs[0].shown_seed, 1);
    // The words of a picture, whose lines are elements of their own.
    let drawn = |kind| {
        let drawn = report::svg(&report, &report::Figure::of(kind)).unwrap();
        let text = |part: &str| part.split_once('>').map(|(_, text)| text.to_owned());
        let words: Vec<String> = drawn.split('<').filter_map(text).collect();
        let words = words.join(" ");
        words.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let all = drawn(report::FigureKind::Box);
    assert!(all.contains("quantiles of the repetitions"), "{all}");
    assert!(!all.contains("with seed 1"), "{all}");
    let one = drawn(report::FigureKind::Distribution);
    assert!(one.contains("with seed 1, one of 3"), "{one}");
}

#[test]
fn a_distribution_leaves_out_the_packets_of_the_warm_up() {
    use sluice_core::Ecn;
    use sluice_core::record::PacketRecord;
    let temp = tempfile::tempdir().unwrap();
    let text = "duration = \"3s\"\n[link]\nrate = \"1Mbit/s\"\n\
        [measure]\nwarmup = \"1s\"\n[[flow]]\ntype = \"ping\"\n";
    let variant = scenario::Scenario::parse("x", text, &[]).unwrap().remove(0);
    let environment = Environment::here(scenario::Backend::Sim, "2026-01-02T03:04:05Z".into());
    let mut writer = RunWriter::create(temp.path(), &variant, &environment).unwrap();
    let ms = |ms: u64| Time::from_ns(ms * 1_000_000);
    for (arrival, at) in [(400, 900), (1990, 2000), (2000, 2020)] {
        let record = PacketRecord {
            seq: 0,
            packet: None,
            arrival: ms(arrival),
            flow: 0,
            len: 1500,
            segments: 1,
            ecn: Ecn::Ect0,
            class: 0,
            fate: Fate::Sent,
            at: ms(at),
        };
        writer.packet(Direction::Up, &record).unwrap();
    }
    let end = End::complete(ms(3000));
    let report = report_of(&[&writer.finish(end).unwrap()]).unwrap();
    let cdf = |report: &Report| report.runs[0].queues[0].sojourn_cdf.clone().unwrap();
    assert_eq!(report.runs[0].queues[0].packets.len(), 3);
    assert_eq!(cdf(&report).value, [10.0, 20.0]);
    let page = crate::thin::for_page(report);
    assert_eq!(cdf(&page).value, [10.0, 20.0]);
}

#[test]
fn the_variables_of_the_busiest_queues_are_drawn() {
    use sluice_core::event::StateValue;
    use sluice_core::{Span, Time};

    let mut variables = Variables::default();
    // Queue n has n samples.
    for queue in 1..=6 {
        for i in 0..u64::from(queue) {
            let value = StateValue::Span(Span::from_ms(i));
            let at = Time::from_ns(i * 1_000_000_000);
            let way = scenario::Direction::Up;
            variables.push(QueueSample::state(at, way, queue, "delay", value));
        }
    }
    let states = variables.states();
    let names: Vec<&str> = states.iter().map(|state| state.name.as_str()).collect();
    let expected = [
        "delay of queue 3",
        "delay of queue 4",
        "delay of queue 5",
        "delay of queue 6",
    ];
    assert_eq!(names, expected);
    assert_eq!(states[0].unit, "ms");
    assert_eq!(
        states[0].series,
        Series::new(vec![0.0, 1.0, 2.0], vec![0.0, 1.0, 2.0])
    );
}

#[test]
fn a_run_that_broke_off_is_reported_as_partial() {
    let temp = tempfile::tempdir().unwrap();
    let text = "duration = \"5s\"\n[link.up]\nrate = \"unlimited\"\ndelay = \"3ms\"\n\
                [link.down]\nrate = [[\"0s\", \"1Mbit/s\"], [\"2s\", \"2Mbit/s\"]]\n[[flow]]\ntype = \"ping\"\n";
    let variant = scenario::Scenario::parse("bare.toml", text, &[])
        .unwrap()
        .remove(0);
    let environment = Environment::here(scenario::Backend::Sim, "2026-01-02T03:04:05Z".into());
    let writer = RunWriter::create(temp.path(), &variant, &environment).unwrap();
    let end = End::partial(sluice_core::Time::from_ns(1_500_000_000), "interrupted");
    let report = report_of(&[&writer.finish(end).unwrap()]).unwrap();
    let run = &report.runs[0];
    assert_eq!(run.partial.as_deref(), Some("interrupted"));
    assert_eq!(run.duration_s, 1.5);
    assert!(run.directions.is_empty());
    let fact = |label: &str| {
        run.facts
            .iter()
            .find(|f| f.label == label)
            .unwrap()
            .value
            .as_str()
    };
    assert_eq!(fact("rate"), "unlimited up, 1Mbit/s, 2Mbit/s from 2s down");
    assert_eq!(fact("delay"), "3ms up, 0s down");
    assert_eq!(
        run.queues[1].link_mbps,
        Series::new(vec![0.0, 2.0], vec![1.0, 2.0])
    );
    assert!(run.queues[0].link_mbps.value[0].is_nan());
}

#[test]
fn an_outcome_names_the_condition_under_which_it_holds() {
    let run = |condition: u32, words: &str, outcome: &str| Run {
        condition,
        condition_words: words.to_owned(),
        judgement: Judgement {
            outcome: outcome.to_owned(),
            ..Judgement::default()
        },
        ..Run::default()
    };
    let outcomes = |mut runs: Vec<Run>| {
        sides::name_conditions(&mut runs);
        let outcomes = runs.into_iter().map(|run| run.judgement.outcome);
        outcomes.collect::<Vec<_>>()
    };
    let (near, far) = ("link.rtt 10ms", "link.rtt 300ms");
    assert_eq!(
        outcomes(vec![
            run(0, near, "best for calls"),
            run(0, near, "another queue is better"),
            run(1, far, "about as good as the others"),
            run(1, far, ""),
        ]),
        [
            "of the 2 at link.rtt 10ms: best for calls",
            "of the 2 at link.rtt 10ms: another queue is better",
            "of the 2 at link.rtt 300ms: about as good as the others",
            "",
        ]
    );
    // One condition needs no words.
    assert_eq!(
        outcomes(vec![run(0, "", "best for calls"), run(0, "", "")]),
        ["best for calls", ""]
    );
}

#[test]
fn a_variant_has_one_colour_on_both_backends() {
    let temp = tempfile::tempdir().unwrap();
    let run = |name: &str, queue: &str, backend| {
        let text = format!(
            "duration = \"2s\"\n[link]\nrate = \"1Mbit/s\"\nqueue = \"{queue}\"\n[[flow]]\ntype = \"ping\"\n"
        );
        let variant = scenario::Scenario::parse("x.toml", &text, &[])
            .unwrap()
            .remove(0);
        let environment = Environment::here(backend, "2026-01-02T03:04:05Z".into());
        let writer = RunWriter::create(&temp.path().join(name), &variant, &environment).unwrap();
        writer
            .finish(End::complete(Time::from_ns(2_000_000_000)))
            .unwrap()
    };
    use scenario::Backend::{Live, Sim};
    let runs = [
        run("a", "fifo", Sim),
        run("b", "codel", Sim),
        run("c", "fifo", Live),
        run("d", "codel", Live),
    ];
    let report = report_of(&runs.iter().collect::<Vec<_>>()).unwrap();
    let looks: Vec<u32> = report.runs.iter().map(|run| run.look).collect();
    // Of seven colours, the live runs have the same in the second round, which is dashed.
    assert_eq!(looks, [0, 1, 7, 8]);
    // Backends are conditions: live runs are compared with live ones.
    let conditions: Vec<u32> = report.runs.iter().map(|run| run.condition).collect();
    assert_eq!(conditions, [0, 0, 1, 1]);
    assert_eq!(report.runs[2].condition_words, "live");
}

/// Three flows of 100 kB/s, three seconds after one another, for six seconds each. Flows that are not
/// active in a window have no share in it.
#[test]
fn staggered_flows_are_compared_while_they_are_active() {
    let temp = tempfile::tempdir().unwrap();
    let text = "duration = \"12s\"\n[link]\nrate = \"10Mbit/s\"\nrtt = \"20ms\"\n\
                [[flow]]\ntype = \"tcp\"\ncount = 3\nstagger = \"3s\"\nstop = \"6s\"\n";
    let mut variants = scenario::Scenario::parse("x.toml", text, &[]).unwrap();
    let environment = Environment::here(scenario::Backend::Sim, "2026-01-02T03:04:05Z".into());
    let mut writer = RunWriter::create(temp.path(), &variants.remove(0), &environment).unwrap();
    for second in 0..=12 {
        for flow in 0..3 {
            let start = 3 * u64::from(flow);
            if !(start..=start + 6).contains(&second) {
                continue;
            }
            let sample = FlowSample {
                received_bytes: Some(100_000 * (second - start)),
                ..FlowSample::empty(Time::from_ns(second * 1_000_000_000), flow)
            };
            writer.flow_sample(&sample).unwrap();
        }
    }
    let end = End::complete(Time::from_ns(12_000_000_000));
    let report = report_of(&[&writer.finish(end).unwrap()]).unwrap();
    let jain = report.runs[0].directions[0].jain_over_time.as_ref();
    let jain = jain.expect("several flows");
    let values = jain.time_s.iter().zip(&jain.value);
    let known: Vec<(f64, f64)> = values
        .filter(|(_, value)| value.is_finite())
        .map(|(time, value)| (*time, *value))
        .collect();
    let is_one = |(_, value): &(f64, f64)| (value - 1.0).abs() < 1e-9;
    assert!(known.iter().all(is_one), "{known:?}");
    // All flows are done only after 12 s.
    assert!(
        known.iter().any(|(time, _)| (7.0..9.0).contains(time)),
        "{known:?}"
    );
}

/// A bulk flow and one that pauses between its transfers are not compared.
#[test]
fn a_flow_that_pauses_has_no_share_of_the_bulk_flows() {
    let temp = tempfile::tempdir().unwrap();
    let text = "duration = \"12s\"\n[link]\nrate = \"10Mbit/s\"\nrtt = \"20ms\"\n\
                [[flow]]\ntype = \"tcp\"\n[[flow]]\ntype = \"tcp\"\nname = \"mice\"\nbytes = \"100kB\"\npause = \"8s\"\n";
    let mut variants = scenario::Scenario::parse("x.toml", text, &[]).unwrap();
    let environment = Environment::here(scenario::Backend::Sim, "2026-01-02T03:04:05Z".into());
    let mut writer = RunWriter::create(temp.path(), &variants.remove(0), &environment).unwrap();
    for second in 0..=12 {
        for (flow, bytes) in [(0, 100_000 * second), (1, 100_000)] {
            let sample = FlowSample {
                received_bytes: Some(bytes),
                ..FlowSample::empty(Time::from_ns(second * 1_000_000_000), flow)
            };
            writer.flow_sample(&sample).unwrap();
        }
    }
    let end = End::complete(Time::from_ns(12_000_000_000));
    let report = report_of(&[&writer.finish(end).unwrap()]).unwrap();
    assert_eq!(report.runs[0].directions[0].jain, None);
    assert_eq!(report.runs[0].directions[0].jain_over_time, None);
}

/// The report of a scenario in which nothing was measured but the pings of flow 0, of `ping_ms` each.
fn report_of_text(text: &str, ping_ms: u64) -> report::Report {
    let temp = tempfile::tempdir().unwrap();
    let variants = scenario::Scenario::parse("x.toml", text, &[]).unwrap();
    let environment = Environment::here(scenario::Backend::Sim, "2026-01-02T03:04:05Z".into());
    let mut recordings = Vec::new();
    for variant in &variants {
        let dir = temp.path().join(&variant.name);
        let mut writer = RunWriter::create(&dir, variant, &environment).unwrap();
        writer
            .ping(&PingSample {
                time: Time::from_ns(1_500_000_000),
                flow: 0,
                seq: 0,
                rtt: Some(sluice_core::Span::from_ms(ping_ms)),
                up: None,
                down: None,
                is_lost: false,
            })
            .unwrap();
        let end = End::complete(Time::from_ns(2_000_000_000));
        recordings.push(writer.finish(end).unwrap());
    }
    report_of(&recordings.iter().collect::<Vec<_>>()).unwrap()
}

fn facts_of(run: &report::model::Run) -> Vec<(&str, &str)> {
    let facts = run.facts.iter();
    facts
        .map(|fact| (fact.label.as_str(), fact.value.as_str()))
        .collect()
}

#[test]
fn the_facts_and_the_round_trip_of_a_path_are_those_of_all_links() {
    let text = "duration = \"2s\"\n[link]\nrate = \"100Mbit/s\"\nrtt = \"10ms\"\n\
        [[hop]]\nrate = \"10Mbit/s\"\nrtt = \"60ms\"\nqueue = \"fq_codel\"\n[[flow]]\ntype = \"ping\"\n";
    let report = report_of_text(text, 71);
    let run = &report.runs[0];
    // 10 ms and 60 ms.
    assert_eq!(run.base_rtt_ms, Some(70.0));
    let facts = facts_of(run);
    for fact in [
        ("link 1 rate", "100Mbit/s each way"),
        ("link 1 queue", "fifo each way"),
        ("link 2 rate", "10Mbit/s each way"),
        ("link 2 delay", "30ms each way"),
        ("link 2 queue", "fq_codel each way"),
    ] {
        assert!(facts.contains(&fact), "{fact:?} of {facts:?}");
    }
    // A ping of a further host: its round trip is its own.
    let report = report_of_text(&format!("{text}rtt = \"100ms\"\n"), 101);
    assert_eq!(report.runs[0].base_rtt_ms, Some(100.0));
}

#[test]
fn delays_are_those_of_the_bottleneck_of_the_path() {
    use sluice_core::record::PacketRecord;
    let temp = tempfile::tempdir().unwrap();
    let text = "duration = \"10s\"\n[link]\nrate = \"10Mbit/s\"\n[[hop]]\nrate = \"1Mbit/s\"\n\
        [measure]\nwarmup = \"0s\"\n[[flow]]\ntype = \"udp\"\nrate = \"1Mbit/s\"\n";
    let variant = scenario::Scenario::parse("x.toml", text, &[])
        .unwrap()
        .remove(0);
    let environment = Environment::here(scenario::Backend::Sim, "2026-01-02T03:04:05Z".into());
    let mut writer = RunWriter::create(temp.path(), &variant, &environment).unwrap();
    // Twenty packets per second wait for 1 ms at the first link, then for 200 ms at the second, which
    // is ten times as busy.
    for n in 0..200_u64 {
        let arrival = 50_000_000 * n;
        for (hop, wait_ms) in [(0, 1), (1, 200)] {
            let at = Time::from_ns(arrival + 1_000_000 * wait_ms);
            let record = PacketRecord {
                seq: n,
                packet: Some(n),
                arrival: Time::from_ns(arrival),
                flow: 0,
                len: 1500,
                segments: 1,
                ecn: sluice_core::Ecn::NotEct,
                class: 0,
                fate: Fate::Sent,
                at,
            };
            let pipe = PipeId::new(scenario::Direction::Up, hop);
            writer.packet(pipe, &record).unwrap();
        }
    }
    for second in 0..=10 {
        let sample = FlowSample {
            received_bytes: Some(1000 * second),
            ..FlowSample::empty(Time::from_ns(1_000_000_000 * second), 0)
        };
        writer.flow_sample(&sample).unwrap();
    }
    let end = End::complete(Time::from_ns(10_000_000_000));
    let report = report_of(&[&writer.finish(end).unwrap()]).unwrap();
    let tradeoff = report.runs[0].directions[0].tradeoff.as_ref().unwrap();
    assert_eq!(tradeoff.queue, "up2");
    assert!(tradeoff.delay_ms.iter().all(|ms| (ms - 200.0).abs() < 1e-9));
}

/// The rules of a router with this pipe each way.
fn rules(pipe: &str) -> String {
    format!(
        "\"\"\"\npipe 1 config {pipe}\npipe 2 config {pipe}\nadd 100 pipe 1 ip from any to any out xmit h3\n\
         add 200 pipe 2 ip from any to any out xmit h2\n\"\"\""
    )
}

#[test]
fn rules_are_shown_and_only_their_queues_are_compared() {
    let text = |first: &str, second: &str| {
        format!(
            "duration = \"2s\"\n[[flow]]\ntype = \"ping\"\n\
             [[variant]]\nname = \"a\"\nrules = {}\n[[variant]]\nname = \"b\"\nrules = {}\n",
            rules(first),
            rules(second)
        )
    };
    // Other links are other conditions: a slow router is no worse queue.
    let (slow, fast) = ("bw 2Mbit/s delay 50ms", "bw 20Mbit/s delay 5ms");
    let report = report_of_text(&text(slow, fast), 80);
    let conditions: Vec<u32> = report.runs.iter().map(|run| run.condition).collect();
    assert_eq!(conditions, [0, 1]);
    let run = &report.runs[0];
    assert_eq!(run.base_rtt_ms, None, "rules decide the path");
    let facts = facts_of(run);
    let (label, shown) = facts[0];
    assert_eq!(label, "rules");
    assert!(
        shown.starts_with("pipe 1 config bw 2Mbit/s delay 50ms; pipe 2 "),
        "{shown}"
    );
    assert!(facts.iter().all(|(label, _)| *label != "rate"), "{facts:?}");
    // The same link with other queues.
    let (short, codel) = (
        format!("{slow} queue 10"),
        format!("{slow} codel target 10ms"),
    );
    let report = report_of_text(&text(&short, &codel), 80);
    let conditions: Vec<u32> = report.runs.iter().map(|run| run.condition).collect();
    assert_eq!(conditions, [0, 0]);
}
