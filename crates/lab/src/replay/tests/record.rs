//! The recording of a replay.

use sluice_recording::metrics::measure;
use sluice_scenario::Direction;
use sluice_wire::capture::{Writer, link_type};

use super::*;

/// Replays `trace` at `rate` through a queue of four packets, and returns the recording.
fn recorded(folder: &Path, trace: impl AsRef<[u8]>, rate: &str) -> Replayed {
    let at = |name: &str| folder.join(name);
    fs::write(at("trace.csv"), trace).unwrap();
    fs::write(
        at("rate.csv"),
        "0,8000000\n6000000,4000000\n900000000000,1000\n",
    )
    .unwrap();
    let rate = rate.replace("FILE", at("rate.csv").to_str().unwrap());
    let job = Job {
        // A capture is recognised by its content.
        trace: at("trace.csv"),
        queue: parse_queue("fifo limit 4").unwrap(),
        rate: parse_rate(&rate).unwrap(),
        hash: Hash::Flow,
        seed: 7,
        draws: None,
        record: Some((at("run"), "2026-01-02T03:04:05Z".to_owned())),
        outputs: Outputs::default(),
    };
    run(&job, &mut |_, _| {}).unwrap()
}

/// Six packets at time 0, of which the queue takes four, and another flow 10 ms later.
const TRACE: &str = "0,5,1000,0\n0,5,1000,0\n0,5,1000,0\n0,5,1000,0\n0,5,1000,0\n0,5,1000,0\n\
                     10000000,9,500,2\n";

#[test]
fn a_trace_of_any_name_can_be_recorded() {
    let folder = tempfile::tempdir().unwrap();
    // A combining accent and a control character, which Rust escapes in another way than TOML.
    let odd = folder.path().join("e\u{301}\u{1b}\"");
    fs::create_dir(&odd).unwrap();
    let recording = recorded(&odd, TRACE, "8Mbit/s").recording.unwrap();
    let title = format!("Replay of {}", odd.join("trace.csv").display());
    assert_eq!(recording.run().title, title);
}

#[test]
fn a_recorded_replay_says_what_happened() {
    let folder = tempfile::tempdir().unwrap();
    let recording = recorded(folder.path(), TRACE, "8Mbit/s").recording.unwrap();
    let run = recording.run();
    let names: Vec<&str> = run.flows.iter().map(|flow| flow.name.as_str()).collect();
    assert_eq!(names, ["flow-5", "flow-9"]);
    assert_eq!((run.seed, run.ends[0].as_str()), (7, "sender"));
    let rows: Vec<_> = recording.packets().unwrap().map(Result::unwrap).collect();
    let flows: Vec<u32> = rows.iter().map(|row| row.record.flow).collect();
    assert_eq!(flows, [0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(rows[6].record.packet, Some(6));
    let summary = measure(&recording).unwrap();
    let up = &summary.pipes[0];
    assert_eq!((up.sent, up.drops["overflow"]), (5, 2));
    // One packet is being sent from 0 to 1 ms, three are queued; then two, one, none.
    let backlog: Vec<(u64, f64)> = recording
        .queue_samples()
        .unwrap()
        .map(Result::unwrap)
        .filter(|sample| sample.variable == "backlog_packets")
        .map(|sample| (sample.time.as_ns() / 1000, sample.value))
        .collect();
    assert_eq!(backlog, [(0, 3.0), (1000, 2.0), (2000, 1.0), (3000, 0.0)]);
    let received: Vec<_> = recording
        .flow_samples()
        .unwrap()
        .map(Result::unwrap)
        .filter_map(|sample| Some((sample.flow, sample.received_bytes?)))
        .collect();
    let expected = [
        (0, 0),
        (1, 0),
        (0, 1000),
        (0, 2000),
        (0, 3000),
        (0, 4000),
        (1, 500),
    ];
    assert_eq!(received, expected);
}

/// An IPv4 packet from 10.0.0.1 to 10.0.0.2, with the beginning of a transport header of 20 B.
fn ipv4(protocol: u8, transport: [u8; 8]) -> Vec<u8> {
    let head = [
        0x45, 0, 0, 40, 0, 1, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ];
    // The fourth word of TCP begins with the length of the header: five words (RFC 9293).
    [
        &head[..],
        &transport,
        &[0, 0, 0, 0, 0x50, 0, 0, 0, 0, 0, 0, 0],
    ]
    .concat()
}

#[test]
fn the_flows_of_a_capture_have_the_names_of_their_ends() {
    let ports = [0x01, 0xbb, 0xc3, 0x50, 0, 8, 0, 0];
    let mut v6 = vec![0x60, 0, 0, 0, 0, 8, 17, 64];
    v6.extend([0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    v6.extend([0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
    v6.extend(ports);
    let packets = [
        ipv4(6, ports),
        ipv4(17, ports),
        // An echo request with the identifier 258 (RFC 792).
        ipv4(1, [8, 0, 0, 0, 1, 2, 0, 1]),
        // OSPF.
        ipv4(89, [0; 8]),
        v6,
    ];
    let mut writer = Writer::new(Vec::new(), link_type::RAW).unwrap();
    for (time, packet) in (0..).zip(&packets) {
        writer
            .packet(time * 1_000_000, [packet, &[]], packet.len() as u32)
            .unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let recording = recorded(folder.path(), writer.into_inner(), "8Mbit/s").recording;
    let recording = recording.unwrap();
    let names: Vec<&str> = recording
        .run()
        .flows
        .iter()
        .map(|flow| flow.name.as_str())
        .collect();
    assert_eq!(
        names,
        [
            "10.0.0.1:443-10.0.0.2:50000",
            "10.0.0.1:443-10.0.0.2:50000-udp",
            "10.0.0.1-10.0.0.2-icmp-258",
            "10.0.0.1-10.0.0.2-protocol-89",
            "[fe80::1]:443-[2001:db8::2]:50000-udp",
        ]
    );
}

#[test]
fn the_rates_of_a_file_are_those_of_the_recording() {
    let folder = tempfile::tempdir().unwrap();
    let replayed = recorded(folder.path(), TRACE, "FILE");
    let recording = replayed.recording.unwrap();
    // The step after the end has no effect.
    let steps: Vec<_> = recording
        .run()
        .scenario
        .link
        .pipe(Direction::Up)
        .rate
        .steps()
        .to_vec();
    let rate = |bps| Some(Rate::from_bps(bps));
    let ms = sluice_core::Span::from_ms;
    assert_eq!(steps, [(ms(0), rate(8_000_000)), (ms(6), rate(4_000_000))]);
}

#[test]
fn many_flows_and_a_long_trace_are_recorded_in_bounded_memory() {
    let folder = tempfile::tempdir().unwrap();
    // 30 000 packets, each of another instant, in 300 flows.
    let lines = (0..30_000_u64).map(|n| format!("{},{},1000,0\n", n * 1_500_000, n % 300));
    let replayed = recorded(folder.path(), lines.collect::<String>(), "8Mbit/s");
    let recording = replayed.recording.unwrap();
    assert_eq!(recording.run().flows.len(), 200);
    let others = "packets of flows beyond the first 200, which the recording has without their \
                  flow: 10000";
    assert_eq!(replayed.summary.warnings, [others]);
    let samples: Vec<_> = recording
        .flow_samples()
        .unwrap()
        .map(Result::unwrap)
        .collect();
    assert!(samples.len() <= 200 + 20_000, "{}", samples.len());
    // Whatever the length of the steps, nothing is lost: flow 7 has 100 packets.
    let bytes = samples.iter().filter(|sample| sample.flow == 7);
    assert_eq!(bytes.filter_map(|s| s.received_bytes).max(), Some(100_000));
}
