//! Whole simulations, checked in their recordings.

mod datagrams;
mod figures;
mod numbers;
mod pcap;
mod settings;

use super::{STRETCH, Stepped, run_unrecorded, stretch};
use std::path::Path;

use sluice_core::Stop;
use sluice_core::record::Fate;
use sluice_core::{DropReason, Span, Time};
use sluice_tcp::cc;

use crate::live::LiveOptions;
use crate::run::{RunError, Target, record, run};
use sluice_recording::metrics::measure;
use sluice_recording::{Keep, Recording, RunWriter, Transfer};
use sluice_scenario::{Backend, Scenario};

fn simulate(text: &str) -> (tempfile::TempDir, Recording) {
    let folder = tempfile::tempdir().unwrap();
    let recording = simulate_in(folder.path(), text).unwrap_or_else(|error| panic!("{error}"));
    (folder, recording)
}

fn one_scenario(text: &str) -> Scenario {
    let mut variants = Scenario::parse("x", text, &[]).unwrap_or_else(|errors| panic!("{errors}"));
    variants.remove(0).scenario
}

fn simulate_in(folder: &Path, text: &str) -> Result<Recording, RunError> {
    let file = folder.join("x.toml").display().to_string();
    let variants = Scenario::parse(&file, text, &[]).unwrap_or_else(|errors| panic!("{errors}"));
    super::check(&variants[0].scenario, false)?;
    let started = "2026-01-02T03:04:05Z".to_owned();
    let dir = folder.join("run");
    let finished = run(
        &variants[0],
        Backend::Sim,
        crate::live::LiveOptions::default(),
        Target {
            dir: &dir,
            keep: Keep::Packets,
            has_pages: false,
        },
        started,
        &Stop::new(),
        &mut |_| {},
    )?;
    Ok(finished.recording)
}

fn metric(recording: &Recording, name: &str) -> f64 {
    let summary = measure(recording).unwrap();
    let metric =
        sluice_scenario::metric::Metric::parse(name, &recording.run().scenario.flows).unwrap();
    let value = metric.value(&summary);
    value.unwrap_or_else(|| panic!("`{name}` was not measured"))
}

const MS: f64 = 1e6;

const PLAIN: &str = "duration = \"5s\"\n[link]\nrate = \"10Mbit/s\"\nrtt = \"20ms\"\n";

#[test]
fn masks_of_rules_tell_flows_between_the_same_hosts_apart() {
    // Three flows of 8 Mbit/s, a queue for each: they share 6 Mbit/s equally. 1200 of 1228 bytes are
    // payload, so each has 2 * 1200 / 1228 = 1.954 Mbit/s.
    for mask in ["all", "src-port 0xffff", "dst-port 0xffff"] {
        let (_folder, recording) = simulate(&format!(
            r#"
duration = "5s"
rules = """
pipe 1 config bw 6Mbit/s delay 10ms
sched 1 config pipe 1 type rr
queue 1 config sched 1 mask {mask}
add 1000 queue 1 udp from any to any out xmit h3
add 2000 allow ip from any to any
"""
[measure]
warmup = "1s"
[[flow]]
type = "udp"
name = "a"
rate = "8Mbit/s"
[[flow]]
type = "udp"
name = "b"
rate = "8Mbit/s"
[[flow]]
type = "udp"
name = "c"
rate = "8Mbit/s"
"#
        ));
        for flow in ["a", "b", "c"] {
            let goodput = metric(&recording, &format!("{flow}.goodput"));
            assert!(
                (goodput / 1.954e6 - 1.0).abs() < 0.02,
                "{mask}: {flow}: {goodput}"
            );
        }
    }
}

#[test]
fn a_flow_that_passes_beside_all_pipes_is_an_error() {
    let text = r#"
duration = "2s"
rules = """
add 100 allow tcp from any to any
add 200 pipe 1 ip from any to any
pipe 1 config bw 10Mbit/s delay 10
"""
[[flow]]
type = "ping"
[[flow]]
name = "bulk"
type = "tcp"
"#;
    let scenario = one_scenario(text);
    let error = run_unrecorded(&scenario, &Stop::new())
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("flow `bulk` sends more than 20 packets"),
        "{error}"
    );
    let mut stepped = Stepped::new(scenario).unwrap();
    assert!(stepped.step(Time::ZERO + Span::from_secs(1)).is_err());
    // The other way round, the pipe takes its packets.
    let scenario = one_scenario(&text.replace("100 allow", "300 allow"));
    assert!(run_unrecorded(&scenario, &Stop::new()).is_ok());
}

#[test]
fn rules_put_packets_into_queues_of_their_weights() {
    // 3 Mbit/s of UDP in each of two queues with weights 69 and 30 at 4 Mbit/s. The second queue
    // has the rest of the rate, more than 1 Mbit/s, since 69 % of 4 Mbit/s is 2.76 and 30 % is 1.2.
    let (_folder, recording) = simulate(
        r#"
duration = "5s"
rules = """
pipe 1 config bw 4Mbit/s delay 10ms
sched 1 config pipe 1 type wf2q+
queue 100 config sched 1 weight 69
queue 200 config sched 1 weight 30
queue 300 config sched 1 weight 1
add 1000 queue 100 udp from any to any dscp ef out xmit h3
add 1001 queue 200 udp from any to any out xmit h3
add 1002 queue 300 icmp from any to any out xmit h3
add 2000 allow ip from any to any
"""
[[flow]]
type = "udp"
name = "heavy"
rate = "3Mbit/s"
dscp = "ef"
[[flow]]
type = "udp"
name = "light"
rate = "3Mbit/s"
[[flow]]
type = "ping"
interval = "50ms"
"#,
    );
    // 1200 of 1228 bytes are payload; a ping takes a hundredth. Shares 69:30 of the rest.
    let shares = metric(&recording, "heavy.goodput") / metric(&recording, "light.goodput");
    assert!((shares - 69.0 / 30.0).abs() < 0.05, "{shares}");
    // 10 ms, plus 84 bytes at 1 % of 4 Mbit/s (16.8 ms), which the weight guarantees, plus a packet
    // of 1228 bytes in transmission (2.46 ms), plus 0.17 ms for the ping itself.
    let ping = metric(&recording, "ping.max");
    assert!((10.0 * MS..29.5 * MS).contains(&ping), "{ping}");
    // The answers to pings match no queue and have no row.
    let rows: Vec<_> = recording.packets().unwrap().map(Result::unwrap).collect();
    assert!(
        rows.iter()
            .all(|row| row.pipe == sluice_scenario::Direction::Up)
    );
    assert!(
        rows.iter()
            .any(|row| row.record.fate == Fate::Dropped(DropReason::Overflow))
    );
}

#[test]
fn timers_of_a_queue_run_before_the_flows_start() {
    // Linux's PIE updates for the first time after 500 ms (`HZ / 2` in `pie_init`), and spares bursts
    // of 150 ms. Twice the rate of the link for 0.4 s is 333 packets of 1500 bytes too many, which fit
    // into the queue. So PIE drops only if its timer has run before.
    let dropped = |lead: &str| {
        let (_folder, recording) = simulate(&format!(
            "duration = \"400ms\"\nlead = \"{lead}\"\n[measure]\nwarmup = \"0s\"\nwindow = \"100ms\"\n[link]\nrate = \"10Mbit/s\"\nrtt = \"10ms\"\n\
             queue = \"pie limit 1000 variant linux\"\n\
             [[flow]]\ntype = \"udp\"\nrate = \"20Mbit/s\"\nsize = 1472\n"
        ));
        let packets = recording.packets().unwrap().map(|row| row.unwrap());
        packets
            .filter(|row| matches!(row.record.fate, Fate::Dropped(_)))
            .count()
    };
    assert_eq!(dropped("0s"), 0);
    assert!(dropped("1.2s") > 0);
}

#[test]
fn a_path_of_several_links_has_a_queue_at_each() {
    // The second link is the slower one: data waits there, and cross traffic passes only the first.
    let (_folder, recording) = simulate(&format!(
        r#"{PLAIN}queue = "fifo limit 100"
[[hop]]
rate = "5Mbit/s"
rtt = "10ms"
queue = "fifo limit 20"
[[flow]]
type = "udp"
name = "through"
rate = "6Mbit/s"
[[flow]]
type = "ping"
name = "first"
hops = 1
[[flow]]
type = "ping"
name = "both"
"#
    ));
    assert_eq!(metric(&recording, "up.drops"), 0.0);
    assert!(metric(&recording, "up2.drops") > 0.0);
    // 20 ms and 84 bytes twice at 10 Mbit/s (0.13 ms), behind at most one packet (1 ms) and the
    // jitter of the hosts (0.1 ms).
    let first = metric(&recording, "first.p50");
    assert!((20.13 * MS..21.3 * MS).contains(&first), "{first}");
    // 30 ms and 20 packets of 1228 bytes at 5 Mbit/s (39.3 ms).
    let both = metric(&recording, "both.p50");
    assert!((65.0 * MS..72.0 * MS).contains(&both), "{both}");
}

#[test]
fn a_flow_has_its_own_round_trip_time() {
    let (_folder, recording) = simulate(&format!(
        "{PLAIN}[[flow]]\ntype = \"ping\"\nname = \"near\"\n\
         [[flow]]\ntype = \"ping\"\nname = \"far\"\nrtt = \"100ms\"\n"
    ));
    // 84 bytes twice at 10 Mbit/s are 0.13 ms; hosts take up to 0.1 ms.
    let (near, far) = (
        metric(&recording, "near.min"),
        metric(&recording, "far.min"),
    );
    assert!((20.13 * MS..20.3 * MS).contains(&near), "{near}");
    assert!((100.13 * MS..100.3 * MS).contains(&far), "{far}");
}

#[test]
fn staggered_flows_start_one_after_the_other() {
    let (_folder, recording) = simulate(&format!(
        "{PLAIN}[[flow]]\ntype = \"udp\"\nrate = \"1Mbit/s\"\ncount = 3\nstagger = \"1s\"\nstop = \"2s\"\n"
    ));
    let mut first = [Time::MAX; 3];
    for sample in recording.flow_samples().unwrap() {
        let sample = sample.unwrap();
        let first = &mut first[sample.flow as usize];
        *first = sample.time.min(*first);
    }
    let seconds = first.map(|at| at.as_ns() / 1_000_000_000);
    assert_eq!(seconds, [0, 1, 2]);
    let instances: Vec<_> = recording
        .run()
        .scenario
        .instances()
        .map(|i| i.stop)
        .collect();
    assert_eq!(instances, [2, 3, 4].map(Span::from_secs));
}

#[test]
fn transfers_are_repeated_after_a_pause() {
    let (_folder, recording) = simulate(&format!(
        "{PLAIN}[[flow]]\ntype = \"tcp\"\nbytes = \"100kB\"\npause = \"500ms\"\n"
    ));
    let transfers: Vec<Transfer> = recording.transfers().unwrap().map(Result::unwrap).collect();
    // 100 kB take three round trips in slow start (14.5, 29, 58 kB) and a handshake, over 80 ms,
    // and at 10 Mbit/s 83 ms more. In 5 s there are seven or eight with their pauses.
    assert!((7..=8).contains(&transfers.len()), "{transfers:?}");
    for (i, pair) in transfers.windows(2).enumerate() {
        assert_eq!((pair[0].seq, pair[0].bytes), (i as u64, 100_000));
        assert_eq!(
            pair[1].start,
            pair[0].start + pair[0].took + Span::from_ms(500)
        );
    }
}

#[test]
fn requests_are_answered_one_after_the_other() {
    let (_folder, recording) = simulate(&format!(
        "{PLAIN}[[flow]]\ntype = \"rr\"\nrequest = \"100B\"\nresponse = \"1000B\"\n"
    ));
    // 20 ms, 152 bytes up and 1052 down at 10 Mbit/s: 20.96 ms, and up to 0.1 ms of the hosts.
    let (least, most) = (metric(&recording, "rr.min"), metric(&recording, "rr.max"));
    assert!((20.96 * MS..21.1 * MS).contains(&least), "{least}");
    assert!(most < 21.1 * MS, "{most}");
    // One after the other: as many as fit into 5 s minus the handshake.
    let count = recording.pings().unwrap().count();
    assert!((234..=238).contains(&count), "{count}");
}

#[test]
fn a_call_tells_the_delay_and_the_loss_of_every_packet() {
    let (_folder, recording) = simulate(&format!(
        "{PLAIN}loss = \"10%\"\n[[flow]]\ntype = \"voip\"\ndirection = \"down\"\n"
    ));
    // 10 ms, 200 bytes at 10 Mbit/s (0.16 ms), up to 0.05 ms of the host.
    let delay = metric(&recording, "voip.down.p50");
    assert!((10.16 * MS..10.22 * MS).contains(&delay), "{delay}");
    // 200 packets after the warm-up: 10 % with a standard deviation of 2.1 %.
    let loss = metric(&recording, "voip.loss");
    assert!((0.03..0.17).contains(&loss), "{loss}");
}

#[test]
fn an_interrupted_run_ends_however_many_packets_it_sends() {
    // 2 s at 1 Tbit/s in packets of 128 bytes: 1953.1 million, so a million take 2 s / 1954.
    assert_eq!(
        stretch(1_953_125_000, Span::from_secs(2)),
        Span::from_ns(2_000_000_000 / 1954)
    );
    assert_eq!(stretch(100_000, Span::from_secs(60)), STRETCH);
}

#[test]
fn packets_that_are_on_their_way_at_the_end_are_not_lost() {
    // One packet each 8 ms, 1 s on its way: 125 are in flight at the end.
    let (_folder, recording) = simulate(
        "duration = \"4s\"\n[link]\nrate = \"10Mbit/s\"\nrtt = \"2s\"\n\
         [[flow]]\ntype = \"udp\"\nrate = \"1Mbit/s\"\nsize = 972\n",
    );
    assert_eq!(metric(&recording, "udp.loss"), 0.0);
}

#[test]
fn pages_are_fetched_and_their_times_told() {
    let (_folder, recording) = simulate(&format!(
        "{PLAIN}[[flow]]\ntype = \"web\"\ndirection = \"down\"\ninterval = \"100ms\"\nsize = \"10kB\"\n"
    ));
    let transfers = recording.transfers().unwrap().map(Result::unwrap);
    let transfers: Vec<Transfer> = transfers.filter(|page| !page.is_open()).collect();
    // 50 pages are expected in 5 s, with a standard deviation of 7.
    assert!((25..=75).contains(&transfers.len()), "{}", transfers.len());
    assert!(transfers.iter().all(|page| page.bytes == 60_000));
    // Handshake and request are two round trips, and 60 kB at 10 Mbit/s take 48 ms.
    assert!(transfers.iter().all(|page| page.took >= Span::from_ms(88)));
}

#[test]
fn copies_and_damage_are_recorded() {
    let (_folder, recording) = simulate(&format!(
        "{PLAIN}[link.up]\nduplicate = 1.0\n[[flow]]\ntype = \"udp\"\nrate = \"1Mbit/s\"\n"
    ));
    let rows: Vec<_> = recording.packets().unwrap().map(Result::unwrap).collect();
    // 1 Mbit/s of 1228-byte packets for 5 s are 509; each twice.
    assert_eq!(rows.len(), 2 * 509);
    let of_flow = rows.iter().filter(|row| row.record.flow == 0).count();
    assert_eq!(of_flow, rows.len());
}

#[test]
fn a_trace_of_opportunities_determines_the_goodput() {
    let folder = tempfile::tempdir().unwrap();
    // One packet of 1500 bytes every 2 ms: 6 Mbit/s.
    std::fs::write(folder.path().join("even.mahi"), "2\n4\n6\n8\n10\n").unwrap();
    let text = "duration = \"5s\"\n[link]\nrate = { trace = \"even.mahi\" }\nrtt = \"20ms\"\n\
                [[flow]]\ntype = \"udp\"\nrate = \"10Mbit/s\"\nsize = 1472\n";
    let recording = simulate_in(folder.path(), text).unwrap();
    let goodput = metric(&recording, "udp.goodput");
    let expected = 6e6 * 1472.0 / 1500.0;
    assert!((goodput / expected - 1.0).abs() < 0.005, "{goodput}");
    // The recording reads without the file.
    std::fs::remove_file(folder.path().join("even.mahi")).unwrap();
    let again = Recording::open(recording.dir()).unwrap();
    assert!(again.run().scenario.link.up.rate.is_trace());
}

#[test]
fn a_recording_in_memory_has_the_bytes_of_one_in_a_folder() {
    let text = format!("{PLAIN}[[flow]]\ntype = \"tcp\"\n[[flow]]\ntype = \"ping\"\n");
    let (folder, on_disk) = simulate(&text);
    let variant = &Scenario::parse("x.toml", &text, &[]).unwrap()[0];
    let environment = &on_disk.run().environment;
    let writer = RunWriter::in_memory(variant, environment).unwrap();
    let finished = record(
        variant,
        Backend::Sim,
        LiveOptions::default(),
        writer,
        &Stop::new(),
        &mut |_| {},
    )
    .unwrap();
    assert_eq!(finished.recording.run(), on_disk.run());
    assert_eq!(finished.summary, measure(&on_disk).unwrap());
    assert_eq!(finished.recording.dir(), Path::new(""));
    assert_eq!(finished.recording.stored_summary().unwrap(), None);

    let saved = finished
        .recording
        .save(&folder.path().join("saved"))
        .unwrap();
    saved.check_all().unwrap();
    assert_eq!(saved.run(), on_disk.run());
    for table in on_disk.run().tables.keys() {
        let bytes = finished.recording.parquet(table).unwrap();
        assert_eq!(bytes, on_disk.parquet(table).unwrap(), "{table}");
        assert_eq!(bytes, saved.parquet(table).unwrap(), "{table}");
    }
    // A recording can also be saved from one folder to another, but not over a folder that is not a
    // run.
    on_disk
        .save(&folder.path().join("copied"))
        .unwrap()
        .check_all()
        .unwrap();
    std::fs::create_dir(folder.path().join("other")).unwrap();
    std::fs::write(folder.path().join("other/thesis.tex"), "").unwrap();
    let error = finished
        .recording
        .save(&folder.path().join("other"))
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("is not empty and contains no run")
    );
}

#[test]
fn a_simulation_that_is_too_large_is_refused_with_its_size() {
    let text = "duration = \"24h\"\n[link]\nrate = \"1Tbit/s\"\nrtt = \"20ms\"\n[[flow]]\ntype = \"udp\"\nrate = \"1Tbit/s\"\n";
    let variants = Scenario::parse("x.toml", text, &[]).unwrap();
    let error = super::check(&variants[0].scenario, false)
        .unwrap_err()
        .to_string();
    // 1e12 bit/s * 86400 s / (1228 * 8) = 8.79e12
    assert!(error.contains("about 879478"), "{error}");
    assert!(error.contains("at most 4000000000 packets"), "{error}");
    super::check(&variants[0].scenario, true).expect("the user insists");
}

#[test]
fn a_flow_that_has_stopped_is_counted_once() {
    let flows = "[[flow]]\ntype = \"tcp\"\nname = \"early\"\nstop = \"2s\"\n\
        [[flow]]\ntype = \"tcp\"\nname = \"again\"\nbytes = \"100kB\"\npause = \"300ms\"\n";
    let (_folder, recording) = simulate(&format!("{PLAIN}{flows}"));
    let mut last = [0; 2];
    for sample in recording.flow_samples().unwrap() {
        let sample = sample.unwrap();
        let Some(bytes) = sample.received_bytes else {
            continue;
        };
        let before = std::mem::replace(&mut last[sample.flow as usize], bytes);
        // 50 ms at 10 Mbit/s carry 62.5 kB; bytes that waited behind a lost packet arrive with it.
        assert!(
            (before..before + 300_000).contains(&bytes),
            "{before} to {bytes}"
        );
    }
    // At most 2 s of the link, and whole transfers plus the part of the last one.
    assert!(last[0] < 2_500_000, "{last:?}");
    assert!(last[1] < 6_250_000, "{last:?}");
    let transfers = recording.transfers().unwrap().map(Result::unwrap);
    let whole = 100_000 * transfers.filter(|transfer| transfer.flow == 1).count() as u64;
    assert!(
        (whole..whole + 100_000).contains(&last[1]),
        "{last:?}, {whole}"
    );
}

#[test]
fn an_unknown_congestion_control_is_named_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("{PLAIN}[[flow]]\ntype = \"tcp\"\nname = \"bulk\"\ncc = \"cubik\"\n");
    let error = simulate_in(folder.path(), &text).unwrap_err().to_string();
    // The eighth line, where the word begins: `cc = "` has six characters.
    let place = folder.path().join("x.toml").display().to_string();
    let known: Vec<&str> = cc::REGISTRY.iter().map(|entry| entry.name).collect();
    let known = known.join(", ");
    assert_eq!(
        error,
        format!(
            "{place}:8:6: flow `bulk`: the simulator has no congestion control `cubik`; did you \
             mean `cubic`? it has {known}; `--backend live` takes what the kernel has"
        )
    );
}

#[test]
fn there_is_no_threshold_before_the_first_reduction() {
    // 100 kB fit any queue; they take two samples of 50 ms at least.
    let flow = "[[flow]]\ntype = \"tcp\"\ncc = \"reno\"\nbytes = \"100kB\"\n";
    let (_folder, recording) = simulate(&format!("{PLAIN}{flow}"));
    let rows: Vec<_> = recording
        .flow_samples()
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert!(rows.iter().any(|row| row.cwnd.is_some()));
    assert!(rows.iter().all(|row| row.ssthresh.is_none()));
}

#[test]
fn the_initial_window_determines_the_rounds_of_a_short_transfer() {
    // 55 segments over 100 ms: a round trip for the handshake, one for each flight but the last,
    // and half of one for the last; sending all of them takes 6.6 ms. Flights are 3, 6, 12, 24 and
    // 10; 10, 20 and 25; 30 and 25.
    for (window, ms) in [("3", 550.0), ("10", 350.0), ("30", 250.0)] {
        let (_folder, recording) = simulate(&format!(
            r#"
duration = "5s"
[link]
rate = "100Mbit/s"
rtt = "100ms"
[[flow]]
type = "tcp"
name = "short"
cc = "reno"
initial_window = {window}
bytes = "79640B"
"#
        ));
        let fct = metric(&recording, "short.fct") / MS;
        assert!((ms..ms + 10.0).contains(&fct), "{window}: {fct} ms");
    }
}

#[test]
fn growth_sets_the_unit_of_cubic_only() {
    // `crates/tcp/tests/response.rs` compares the results of both units with RFC 8312.
    let goodput = |keys: &str| {
        let (_folder, recording) = simulate(&format!(
            r#"
duration = "60s"
[link]
rate = "100Mbit/s"
rtt = "100ms"
loss = 0.001
[[flow]]
type = "tcp"
name = "bulk"
{keys}
"#
        ));
        metric(&recording, "bulk.goodput")
    };
    let segments = goodput("");
    assert_eq!(goodput("growth = \"segments\""), segments);
    assert_ne!(goodput("growth = \"bytes\""), segments);
    let reno = goodput("cc = \"reno\"");
    assert_eq!(goodput("cc = \"reno\"\ngrowth = \"bytes\""), reno);
}

#[test]
fn ledbat_keeps_the_delay_at_its_target_and_yields_to_reno() {
    // RFC 6817 section 2.5: TARGET is 100 ms. The window of 83 segments is approached with a time
    // constant of 83 round trips of at most 120 ms, 10 s; 50 s are five of these: 99.3 ms, minus
    // the 1.2 ms that an ACK waits for a second segment.
    let scenario = |flows: &str| {
        format!(
            "duration = \"80s\"\n[link]\nrate = \"10Mbit/s\"\nrtt = \"20ms\"\nqueue = \"fifo limit 1000\"\n\
             [measure]\nwarmup = \"50s\"\n[[flow]]\ntype = \"tcp\"\nname = \"ledbat\"\ncc = \"ledbat\"\n{flows}"
        )
    };
    let (_folder, recording) = simulate(&scenario(""));
    let wait = metric(&recording, "up.sojourn.p50") / MS;
    assert!((95.0..101.0).contains(&wait), "{wait} ms");
    assert!(metric(&recording, "up.utilisation") > 0.99);
    // Reno fills the buffer of 1.2 s, twelve times the target. LEDBAT falls to its minimum window
    // of two segments per round trip of more than half a second, which is less than 50 kbit/s.
    let reno = "[[flow]]\ntype = \"tcp\"\nname = \"reno\"\ncc = \"reno\"\nstart = \"20s\"\n";
    let (_folder, recording) = simulate(&scenario(reno));
    let goodput = metric(&recording, "ledbat.goodput");
    assert!(goodput < 100_000.0, "{goodput} bit/s");
}

/// The queues of these links have no limit.
#[test]
fn the_memory_of_queues_without_a_limit_is_estimated() {
    for preset in ["lte", "dsl", "cable", "3g", "fiber", "edge"] {
        let text = format!(
            "duration = \"2s\"\n[link]\npreset = \"{preset}\"\n[[hop]]\nrate = \"1Mbit/s\"\n\
             [[flow]]\ntype = \"tcp\"\n"
        );
        let variants = Scenario::parse("x.toml", &text, &[]).unwrap_or_else(|e| panic!("{e}"));
        let estimate = super::estimate(&variants[0].scenario).unwrap();
        // 1 Mbit/s carries at most 167 packets of 1500 bytes in 2 s, and queues hold no more.
        assert!(estimate.memory_bytes < 10 << 20, "{preset}: {estimate:?}");
    }
}
