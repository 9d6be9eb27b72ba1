//! The recordings of `--report` and `--pcapng`.

use std::fs::Permissions;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt as _;

use sluice_recording::{Recording, Status};
use sluice_scenario::Direction;

use super::{MUCH, SERVER, World, count, own, send_much, stderr};

#[test]
fn a_connection_is_recorded_with_what_the_kernel_says() {
    let world = World::new();
    world.serve(80, send_much);
    let folder = tempfile::tempdir().unwrap();
    let (dir, capture) = (folder.path().join("run"), folder.path().join("run.pcapng"));
    let options = [
        "--rate=10Mbit/s",
        "--rtt=20ms",
        "--set=down.queue=fifo limit 20",
        &format!("--report={}", dir.display()),
        &format!("--pcapng={}", capture.display()),
    ];
    let script = format!("cat </dev/tcp/{}/80 | wc -c", SERVER[0]);
    let output = world.bash(&options, &script);
    assert!(output.status.success(), "{}", stderr(&output));

    let recording = Recording::open(&dir).unwrap();
    let run = recording.run();
    assert_eq!(run.status, Status::Complete);
    let flows: Vec<(&str, &str)> = run
        .flows
        .iter()
        .map(|flow| (flow.name.as_str(), flow.direction.as_str()))
        .collect();
    assert_eq!(flows, [("198.51.100.7:80", "down")]);
    let transfer = run.scenario.flows[0].kind.transfer().unwrap();
    assert_eq!(transfer.bytes.unwrap().as_u64(), MUCH as u64);

    let samples: Vec<_> = recording
        .flow_samples()
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let received = samples
        .iter()
        .filter_map(|sample| sample.received_bytes)
        .max();
    assert_eq!(received, Some(MUCH as u64));
    // 20 packets of queue behind 17 in flight (25 kB) hold more than the initial window of 10.
    let cwnd = samples
        .iter()
        .filter_map(|sample| sample.cwnd)
        .max()
        .unwrap();
    assert!((11..200).contains(&cwnd), "{cwnd}");
    let min_rtt = samples
        .iter()
        .filter_map(|sample| sample.min_rtt)
        .min()
        .unwrap();
    assert!((20.0..40.0).contains(&min_rtt.as_ms_f64()), "{min_rtt}");
    let retransmits = samples.iter().filter_map(|sample| sample.retransmits).max();
    assert!(retransmits > Some(0));

    // The queue overflows, and every packet is assigned to the connection.
    let summary = sluice_recording::metrics::measure(&recording).unwrap();
    let down = &summary.pipes[1];
    assert!(
        down.drops["overflow"] > 0 && down.marks == 0,
        "{:?}",
        down.drops
    );
    let packets = recording.packets().unwrap().map(Result::unwrap);
    let others = packets.filter(|row| row.record.flow != 0);
    // Each end's kernel reports the IPv6 groups that it listens to, twice (RFC 3810 section 6.1).
    assert!(others.count() <= 4);
    assert!(dir.join("report.html").exists() && dir.join("summary.json").exists());

    // A section block of pcapng, and more than the payload.
    let capture = std::fs::read(capture).unwrap();
    assert_eq!(capture[..4], 0x0a0d_0d0a_u32.to_le_bytes());
    assert!(capture.len() > MUCH);
}

#[test]
fn both_directions_and_refusals_are_recorded() {
    let world = World::new();
    world.serve(80, count);
    let folder = tempfile::tempdir().unwrap();
    let report = format!("--report={}", folder.path().join("run").display());
    // 100 kB up, and a line back; then a connection that is refused.
    let output = world.run(&["--rtt=20ms", &report], &own("half_close"));
    assert!(output.status.success(), "{}", stderr(&output));
    let recording = Recording::open(&folder.path().join("run")).unwrap();
    let flow = &recording.run().scenario.flows[0];
    assert_eq!(flow.direction, Direction::Up);
    assert_eq!(
        flow.kind.transfer().unwrap().bytes.unwrap().as_u64(),
        100_000
    );

    let output = world.bash(&[&report], &format!("cat </dev/tcp/{}/99", SERVER[1]));
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let recording = Recording::open(&folder.path().join("run")).unwrap();
    assert_eq!(recording.run().flows[0].name, "[2001:db8::7]:99");
}

/// Echoes datagrams to port 9 of the first address outside.
fn echo_datagrams(world: &World) {
    let echo = world
        .internet
        .enter(|| UdpSocket::bind((SERVER[0], 9)))
        .unwrap()
        .unwrap();
    std::thread::spawn(move || {
        let mut bytes = [0; 2048];
        while let Ok((length, from)) = echo.recv_from(&mut bytes) {
            let _ = echo.send_to(&bytes[..length], from);
        }
    });
}

#[test]
fn both_directions_of_datagrams_are_flows() {
    let world = World::new();
    echo_datagrams(&world);
    let folder = tempfile::tempdir().unwrap();
    let report = format!("--report={}", folder.path().join("run").display());
    // 15 datagrams and their answers.
    let script = format!(
        "exec 3<>/dev/udp/{}/9; for i in $(seq 15); do printf '%0100d' $i >&3; \
         head -c 100 <&3 >/dev/null; done",
        SERVER[0]
    );
    let output = world.bash(&["--rtt=20ms", &report], &script);
    assert!(output.status.success(), "{}", stderr(&output));
    let recording = Recording::open(&folder.path().join("run")).unwrap();
    let flows: Vec<(&str, &str)> = recording
        .run()
        .flows
        .iter()
        .map(|flow| (flow.name.as_str(), flow.direction.as_str()))
        .collect();
    let (down, up) = ("198.51.100.7:9-udp", "198.51.100.7:9-udp-up");
    assert_eq!(flows, [(down, "down"), (up, "up")]);
    let summary = sluice_recording::metrics::measure(&recording).unwrap();
    for flow in &summary.flows {
        let waits = flow.sojourn.map(|sojourn| sojourn.count);
        assert_eq!((flow.bytes, waits), (Some(1500), Some(15)), "{}", flow.name);
    }
}

#[test]
fn datagrams_and_pings_are_flows_with_names() {
    let world = World::new();
    echo_datagrams(&world);
    let folder = tempfile::tempdir().unwrap();
    let report = format!("--report={}", folder.path().join("run").display());
    // Three datagrams of 100 bytes, and the first answer; then two pings of 56 bytes.
    let script = format!(
        "exec 3<>/dev/udp/{0}/9; for i in 1 2 3; do printf '%0100d' $i >&3; sleep 0.05; done; \
         head -c 100 <&3 >/dev/null; ping -n -q -c 2 -i 0.2 {0} >/dev/null",
        SERVER[0]
    );
    let output = world.bash(&["--rtt=20ms", &report], &script);
    assert!(output.status.success(), "{}", stderr(&output));
    let recording = Recording::open(&folder.path().join("run")).unwrap();
    let flows: Vec<(&str, &str)> = recording
        .run()
        .flows
        .iter()
        .map(|flow| (flow.name.as_str(), flow.type_name.as_str()))
        .collect();
    assert_eq!(
        flows,
        [("198.51.100.7:9-udp", "udp"), ("198.51.100.7-ping", "ping")]
    );
    // Per direction, of the flow and its answers: 3 datagrams, 2 requests.
    let packets = recording.packets().unwrap().map(Result::unwrap);
    let mut counts = [0; 2];
    for packet in packets {
        if let Some(count) = counts.get_mut(packet.record.flow as usize) {
            *count += 1;
        }
    }
    assert_eq!(counts, [6, 4]);
    let samples = recording.flow_samples().unwrap().map(Result::unwrap);
    let last = samples
        .filter(|sample| sample.flow == 0)
        .max_by_key(|sample| sample.time)
        .unwrap();
    let seen = (
        last.sent_packets,
        last.received_packets,
        last.received_bytes,
    );
    assert_eq!(seen, (Some(3), Some(3), Some(300)));
}

#[test]
fn a_full_disk_does_not_hide_how_the_program_ended() {
    let world = World::new();
    let output = world.run(
        &["--link=starlink", "--pcapng=/dev/full"],
        &["sh", "-c", "exit 3"],
    );
    assert_eq!(output.status.code(), Some(125));
    let text = stderr(&output);
    assert!(
        text.contains("cannot write the capture /dev/full: "),
        "{text}"
    );
    assert!(text.contains("; the program's exit status was 3"), "{text}");
}

#[test]
fn a_program_without_connections_has_a_report_too() {
    let world = World::new();
    let folder = tempfile::tempdir().unwrap();
    let report = format!("--report={}", folder.path().join("run").display());
    let output = world.run(&["--link=starlink", &report], &["sh", "-c", "exit 3"]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    assert!(
        Recording::open(&folder.path().join("run"))
            .unwrap()
            .run()
            .flows
            .is_empty()
    );
    // A folder with other files is not touched, and the program is not started.
    let output = world.run(&["--report=/etc"], &["touch", "/proc/self/nothing"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(
        stderr(&output).contains("cannot record the run"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn a_program_that_does_not_start_leaves_the_earlier_recording() {
    let world = World::new();
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("run");
    let report = format!("--report={}", dir.display());
    let output = world.run(&["--link=starlink", &report], &["true"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let content = || std::fs::read(dir.join("run.json")).unwrap();
    let earlier = content();
    for (options, program, status) in [
        (&[&*report][..], "no-such-program", 127),
        (&[&*report], "./no-such-program", 127),
        (&[&*report], "/etc/passwd", 126),
        (&[&*report, "--server", "exit 1"], "true", 125),
    ] {
        let output = world.run(options, &[program]);
        let text = stderr(&output);
        assert_eq!(output.status.code(), Some(status), "{text}");
        assert!(!text.contains("earlier recording"), "{text}");
        assert_eq!(content(), earlier, "{text}");
    }
}

#[test]
fn the_recording_of_a_program_that_cannot_be_executed_says_why() {
    let world = World::new();
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("run");
    let report = format!("--report={}", dir.display());
    // It is found, and only the kernel notices that its interpreter is not there.
    let program = folder.path().join("program");
    std::fs::write(&program, "#!/no/such/interpreter\n").unwrap();
    std::fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
    let program = program.display().to_string();
    let output = world.run(&[&report], &[&program]);
    assert_eq!(output.status.code(), Some(127), "{}", stderr(&output));
    let reason = format!("cannot run {program}: No such file or directory (os error 2)");
    assert!(stderr(&output).ends_with(&format!("sluice: {reason}\n")));
    let recording = Recording::open(&dir).unwrap();
    assert_eq!(recording.run().status, Status::Partial { reason });
}

#[test]
fn a_path_of_several_links_has_the_delay_of_all() {
    let world = World::new();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("path.toml");
    let hop = "rate = \"10Mbit/s\"\nrtt = \"100ms\"\n";
    std::fs::write(&file, format!("[link]\n{hop}[[hop]]\n{hop}")).unwrap();
    let link = format!("--link={}", file.display());
    let report = format!("--report={}", folder.path().join("run").display());
    let script = format!(
        "date +%s%N; (exec 3</dev/tcp/{}/99) 2>&-; date +%s%N",
        SERVER[0]
    );
    for options in [&[&*link][..], &[&*link, &*report]] {
        let output = world.bash(options, &script);
        let text = super::stdout(&output);
        let instants: Vec<u64> = text.lines().map(|line| line.parse().unwrap()).collect();
        // A refusal takes one round trip of the whole path: 200 ms.
        let took = (instants[1] - instants[0]) as f64 / 1e6;
        assert!(
            (200.0..1000.0).contains(&took),
            "{took} {}",
            stderr(&output)
        );
    }
}
