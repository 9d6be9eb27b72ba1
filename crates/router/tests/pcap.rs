//! A pipe between two files: the packets that leave and their times, by arithmetic.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use sluice_core::link::PipeParams;
use sluice_core::registry::Spec;
use sluice_core::{DropReason, Rate, Rng, Span, Time};
use sluice_net::Clock;
use sluice_net::port::pcap::Speed;
use sluice_net::port::registry::Playback as _;
use sluice_net::port::{Loss, PcapPort, Pool, PoolSize, Spin};
use sluice_router::control::Refused;
use sluice_router::forward::{FileTime, Forwarder, LaneCounts, LaneOptions, Piped};
use sluice_router::process::{Router, Settings};
use sluice_wire::capture::{Reader, Writer, link_type};
use sluice_wire::frame::Link;

/// 2023-11-14T22:13:20Z.
const EPOCH_NS: i128 = 1_700_000_000_000_000_000;

const SIZE: PoolSize = PoolSize {
    slots: 256,
    large: 2,
};

/// Returns an IPv4 packet of UDP, ECT(0), of `length` bytes, whose first payload byte is `mark`.
fn udp(length: u16, mark: u8) -> Vec<u8> {
    let mut packet = vec![0x45, 2];
    packet.extend(length.to_be_bytes());
    packet.extend([0, 1, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    packet.extend([0, 7, 0, 9]);
    packet.extend((length - 20).to_be_bytes());
    packet.extend([0, 0, mark]);
    packet.resize(usize::from(length), 0);
    packet
}

fn write(path: &Path, packets: &[(i128, Vec<u8>)]) {
    let file = File::create(path).unwrap();
    let mut writer = Writer::new(file, link_type::RAW).unwrap();
    for (ns, bytes) in packets {
        let length = bytes.len() as u32;
        writer.packet(EPOCH_NS + ns, [bytes, &[]], length).unwrap();
    }
}

/// Times after the epoch, and packets.
fn read(path: &Path) -> Vec<(i128, Vec<u8>)> {
    let mut reader = Reader::new(File::open(path).unwrap()).unwrap();
    let (mut all, mut bytes) = (Vec::new(), Vec::new());
    while let Some(record) = reader.read(&mut bytes).unwrap() {
        all.push((record.time_ns - EPOCH_NS, bytes.clone()));
    }
    all
}

/// Two files, with a pipe from one to the other.
struct Files {
    _folder: tempfile::TempDir,
    input: PathBuf,
    output: PathBuf,
}

fn files(packets: &[(i128, Vec<u8>)]) -> Files {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (
        folder.path().join("in.pcap"),
        folder.path().join("out.pcap"),
    );
    write(&input, packets);
    Files {
        _folder: folder,
        input,
        output,
    }
}

impl Files {
    fn forwarder(
        &self,
        params: &PipeParams,
        queue: &str,
        speed: Speed,
    ) -> Forwarder<PcapPort, Piped> {
        let clock = Clock::start();
        let open = |text: String| {
            let mut spec: sluice_net::port::pcap::PcapSpec = text.parse().unwrap();
            spec.speed = speed;
            let mut port = PcapPort::open(&spec, Some(Link::Ip), clock).unwrap();
            port.begin(EPOCH_NS, Time::ZERO);
            port
        };
        let ports = vec![
            open(format!("{}:", self.input.display())),
            open(format!(":{}", self.output.display())),
        ];
        let pool = Pool::new(SIZE).unwrap();
        let mut forwarder = Forwarder::new(ports, pool, clock, Spin::None);
        let queue = Spec::parse(queue).unwrap();
        let split_below = Rate::from_bps(1_000_000_000);
        let piped = Piped::new(params, Vec::new(), &queue, 1, split_below);
        let options = LaneOptions {
            from: &[0],
            seed: 1,
            rng: Rng::from_seed(1),
        };
        forwarder.add_lane(piped, (), options);
        forwarder
    }

    /// Plays the input through the pipe in the files' time. Returns the counts.
    fn play(&self, params: &PipeParams, queue: &str) -> LaneCounts {
        let mut forwarder = self.forwarder(params, queue, Speed::Full);
        let mut time = FileTime::default();
        while time.advance(&mut forwarder, 16) {}
        assert_eq!(forwarder.pool().held(), 0, "all slots are free again");
        let (mut lanes, counters) = forwarder.finish();
        let (.., counts, lateness) = lanes.pop().unwrap();
        assert_eq!(lateness.most(), Span::ZERO, "nobody is late");
        assert_eq!(counters[0].lost_total() + counters[1].lost_total(), 0);
        assert_eq!(counters[1].sent, counts.sent);
        counts
    }
}

/// Five packets at once, one 5 ms later and one after a second, at 8 Mbit/s behind 10 ms: a packet
/// of 1000 bytes takes 1 ms, one of 500 bytes half of that.
#[test]
fn a_pipe_of_a_known_rate_spaces_the_packets_of_a_file() {
    let ms = 1_000_000;
    let mut packets: Vec<_> = (0..5).map(|n| (0, udp(1000, n))).collect();
    packets.push((5 * ms, udp(500, 5)));
    packets.push((1000 * ms + 1, udp(1000, 6)));
    let files = files(&packets);
    let params = PipeParams {
        rate: Rate::from_bps(8_000_000),
        delay: Span::from_ms(10),
        ..PipeParams::default()
    };
    let counts = files.play(&params, "fifo");
    assert_eq!((counts.admitted, counts.sent), (7, 7));
    // The k-th of the five has been sent after k ms; the sixth arrives when the link has just
    // become idle, at 5 ms, and takes 0.5 ms; the last finds the link idle. Each arrives 10 ms
    // later.
    let times = [
        11 * ms,
        12 * ms,
        13 * ms,
        14 * ms,
        15 * ms,
        15 * ms + 500_000,
        1011 * ms + 1,
    ];
    let expected: Vec<_> = times
        .into_iter()
        .zip(packets.into_iter().map(|(_, bytes)| bytes))
        .collect();
    assert_eq!(read(&files.output), expected);
}

/// 20 packets at once into a queue that holds 3, at 1 ms each: one is on the link.
#[test]
fn what_a_full_queue_drops_is_not_in_the_output() {
    let packets: Vec<_> = (0..20).map(|n| (0, udp(1000, n))).collect();
    let files = files(&packets);
    let params = PipeParams {
        rate: Rate::from_bps(8_000_000),
        ..PipeParams::default()
    };
    let counts = files.play(&params, "fifo limit 3");
    // Simultaneous arrivals come before the link takes one of them.
    assert_eq!(counts.dropped(DropReason::Overflow), 17);
    let marks: Vec<_> = read(&files.output)
        .iter()
        .map(|(ns, bytes)| (*ns, bytes[28]))
        .collect();
    assert_eq!(marks, [(1_000_000, 0), (2_000_000, 1), (3_000_000, 2)]);
}

/// Every packet that has to wait is marked; the header checksum stays correct: RFC 1071.
#[test]
fn marks_are_in_the_output() {
    let packets: Vec<_> = (0..3).map(|n| (0, udp(1000, n))).collect();
    let files = files(&packets);
    let params = PipeParams {
        rate: Rate::from_bps(8_000_000),
        ..PipeParams::default()
    };
    files.play(&params, "step threshold 1ns");
    let ecn: Vec<_> = read(&files.output)
        .iter()
        .map(|(_, bytes)| bytes[1] & 3)
        .collect();
    assert_eq!(ecn, [2, 3, 3]);
}

#[test]
fn the_output_is_the_same_every_time() {
    let packets: Vec<_> = (0..200u32)
        .map(|n| {
            let ns = i128::from(n) * 137_000;
            (ns, udp(100 + (n * 37 % 1300) as u16, n as u8))
        })
        .collect();
    let params = PipeParams {
        rate: Rate::from_bps(20_000_000),
        delay: Span::from_ms(3),
        ..PipeParams::default()
    };
    let outputs = [0, 1].map(|_| {
        let files = files(&packets);
        files.play(&params, "fq_codel target 1ms interval 10ms");
        fs::read(&files.output).unwrap()
    });
    assert!(outputs[0].len() > 200 * 100);
    assert_eq!(outputs[0], outputs[1]);
}

/// In real time, the same packets leave in the same order, none before its due time. Arrivals have
/// the times of the file: the link is busy for 20 times 1 ms, so the last packet is written at
/// least 20 ms after the first arrival.
#[test]
fn a_file_is_played_in_real_time_too() {
    let packets: Vec<_> = (0..20).map(|n| (0, udp(1000, n))).collect();
    let files = files(&packets);
    let params = PipeParams {
        rate: Rate::from_bps(8_000_000),
        ..PipeParams::default()
    };
    let mut forwarder = files.forwarder(&params, "fifo", Speed::Recorded);
    while forwarder.lanes()[0].counts().sent < 20 {
        forwarder.turn(Some(Time::ZERO), None);
    }
    let (lanes, counters) = forwarder.finish();
    assert_eq!(lanes[0].2.dropped_total(), 0);
    assert_eq!(counters[0].lost(Loss::NoSlot), 0);
    let written = read(&files.output);
    let marks: Vec<_> = written.iter().map(|(_, bytes)| bytes[28]).collect();
    assert_eq!(marks, (0..20).collect::<Vec<u8>>());
    for (k, (ns, _)) in written.iter().enumerate() {
        assert!(*ns >= (k as i128 + 1) * 1_000_000, "packet {k} at {ns} ns");
    }
}

/// The pipe of the first test as dummynet commands, in a whole router.
const PIPE: &str = "pipe 1 config bw 8Mbit/s delay 10ms
add 1000 pipe 1 all from any to any out recv pcap0
";

fn router(files: &Files, config: &Path, speed: &str) -> Router {
    let left = format!("pcap:{}::{speed}", files.input.display());
    let right = format!("pcap::{}:{speed}", files.output.display());
    let mut settings = Settings::new(left.parse().unwrap(), right.parse().unwrap());
    settings.config = Some(config.to_owned());
    settings.engine.accepts_by_default = true;
    settings.pool = SIZE;
    Router::start(&settings).unwrap()
}

fn wait_for(router: &Router) {
    while !router.has_ended() {
        // The status is an order, which the loop answers between two turns, so this waits for the
        // loop.
        router.status().unwrap();
    }
}

#[test]
fn a_router_plays_files_through_its_rules_and_ends() {
    let ms = 1_000_000;
    let mut packets: Vec<_> = (0..5).map(|n| (0, udp(1000, n))).collect();
    packets.push((5 * ms, udp(500, 5)));
    let files = files(&packets);
    let config = files.input.with_file_name("rules");
    fs::write(&config, PIPE).unwrap();
    let router = router(&files, &config, "full");
    wait_for(&router);
    let status = router.stop();
    assert_eq!((status.admitted, status.sent), (6, 6), "{status}");
    let times = [
        11 * ms,
        12 * ms,
        13 * ms,
        14 * ms,
        15 * ms,
        15 * ms + ms / 2,
    ];
    let written: Vec<_> = read(&files.output).into_iter().map(|(ns, _)| ns).collect();
    assert_eq!(written, times);
}

#[test]
fn a_router_that_is_dropped_has_ended() {
    let files = files(&[]);
    let config = files.input.with_file_name("rules");
    fs::write(&config, PIPE).unwrap();
    let router = router(&files, &config, "full");
    let editor = router.editor();
    assert!(editor.form().is_ok());
    drop(router);
    assert!(matches!(editor.form(), Err(Refused::Ended)));
}

#[test]
fn a_router_plays_files_in_real_time_and_ends() {
    let packets: Vec<_> = (0..20).map(|n| (i128::from(n), udp(1000, n))).collect();
    let files = files(&packets);
    let config = files.input.with_file_name("rules");
    fs::write(&config, PIPE).unwrap();
    let router = router(&files, &config, "recorded");
    wait_for(&router);
    let status = router.stop();
    assert_eq!((status.admitted, status.sent), (20, 20), "{status}");
    for (k, (ns, _)) in read(&files.output).into_iter().enumerate() {
        assert!(ns >= (k as i128 + 11) * 1_000_000, "packet {k} at {ns} ns");
    }
}

/// Starts a router from a file to a full disk: `/dev/full` refuses every write (full(4)).
fn router_to_a_full_disk(files: &Files) -> Router {
    let left = format!("pcap:{}::full", files.input.display());
    let right = "pcap::/dev/full:full".parse().unwrap();
    let mut settings = Settings::new(left.parse().unwrap(), right);
    settings.engine.accepts_by_default = true;
    settings.pool = SIZE;
    Router::start(&settings).unwrap()
}

#[test]
fn what_a_full_disk_refuses_is_not_sent_and_the_summary_says_so() {
    let packets: Vec<_> = (0..20).map(|n| (i128::from(n), udp(1000, n))).collect();
    let files = files(&packets);
    let router = router_to_a_full_disk(&files);
    wait_for(&router);
    let status = router.stop();
    let port = &status.ports[1];
    assert_eq!((status.sent, port.sent, port.sent_bytes), (20, 0, 0));
    assert_eq!(port.lost, BTreeMap::from([("refused".to_owned(), 20)]));
    // errno(3): ENOSPC is 28.
    let answer = "No space left on device (os error 28)";
    assert_eq!(port.write_error.as_deref(), Some(answer));
    let text = status.to_string();
    for expected in [
        "lost at pcap::/dev/full:full: refused 20".to_owned(),
        format!("the file of pcap::/dev/full:full is not complete: {answer}"),
    ] {
        assert!(text.lines().any(|line| line == expected), "{text}");
    }
}

/// A capture has a header of 24 bytes, and 16 in front of each packet. 5592 packets of 1484 bytes make
/// 8 388 024 bytes; one more, and half of the room for what waits is taken (8 388 608 bytes).
#[test]
fn a_router_answers_and_ends_while_its_files_wait_for_a_full_disk() {
    let packets: Vec<_> = (0..6000_u32)
        .map(|n| (i128::from(n) * 1000, udp(1484, 0)))
        .collect();
    let files = files(&packets);
    let router = router_to_a_full_disk(&files);
    loop {
        let status = router.status().unwrap();
        assert_eq!(status.ports[1].sent, status.sent, "whatever waits");
        if status.sent >= 5593 && status.ports[1].write_error.is_some() {
            break;
        }
        assert!(!router.has_ended(), "{status}");
    }
    for _ in 0..10 {
        let status = router.status().unwrap();
        let port = &status.ports[1];
        assert_eq!((status.sent, port.sent), (5593, 5593));
        assert_eq!(port.sent_bytes, 5593 * 1484);
        assert!(port.lost.is_empty(), "they wait: {status}");
    }
    let status = router.stop();
    let port = &status.ports[1];
    assert_eq!((port.sent, port.sent_bytes), (0, 0));
    assert_eq!(port.lost["refused"], 5593, "{status}");
}

/// As much waits as in the test above, when the last packet has left.
#[test]
fn a_router_ends_with_its_files_however_much_waits_for_a_full_disk() {
    let packets: Vec<_> = (0..5593_u32)
        .map(|n| (i128::from(n) * 1000, udp(1484, 0)))
        .collect();
    let files = files(&packets);
    let router = router_to_a_full_disk(&files);
    while router.status().unwrap().sent < 5593 {}
    // The loop answers between two turns, and the turn after the last packet is the last one.
    router.status().unwrap();
    assert!(router.has_ended());
    let status = router.stop();
    assert_eq!(status.ports[1].lost["refused"], 5593, "{status}");
}

#[test]
fn ports_that_carry_different_frames_are_no_bridge() {
    let files = files(&[(0, udp(100, 0))]);
    let left = format!("pcap:{}", files.input.display()).parse().unwrap();
    let settings = Settings::new(left, "nosuch0".parse().unwrap());
    let error = Router::start(&settings).err().unwrap().to_string();
    assert!(
        error.ends_with(
            "nosuch0 cannot be bridged: one carries Ethernet frames, the other IP packets"
        ),
        "{error}"
    );
}

/// Each of the pairs could be a bridge.
#[test]
fn pairs_that_carry_different_frames_need_a_router_each() {
    let files = files(&[(0, udp(100, 0))]);
    let left = format!("pcap:{}", files.input.display()).parse().unwrap();
    let mut settings = Settings::new(left, "tun:u0".parse().unwrap());
    for port in ["tap:t0", "tap:t1"] {
        settings.ports.push(port.parse().unwrap());
    }
    let error = Router::start(&settings).err().unwrap().to_string();
    let expected = " and tap:t0 carries Ethernet frames, the other IP packets: all ports of a router carry \
                    the same, so start a router for each";
    assert!(error.ends_with(expected), "{error}");
}

/// Whatever the names are.
#[test]
fn a_capture_that_is_read_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let packets: Vec<(i128, Vec<u8>)> = (0..5).map(|n| (n, udp(100, n as u8))).collect();
    write(&path("a"), &packets);
    fs::hard_link(path("a"), path("hard")).unwrap();
    std::os::unix::fs::symlink("a", path("soft")).unwrap();
    let port = |from: &str, to: &str| {
        let name = |name: &str| match name {
            "" => String::new(),
            name => path(name).display().to_string(),
        };
        format!("pcap:{}:{}", name(from), name(to)).parse().unwrap()
    };
    for (left, right, other) in [
        (("a", ""), ("", "a"), "a"),
        (("a", ""), ("", "./a"), "a"),
        (("a", ""), ("", "hard"), "a"),
        (("", "soft"), ("a", ""), "a"),
        (("a", "new"), ("", "./new"), "./new"),
    ] {
        let settings = Settings::new(port(left.0, left.1), port(right.0, right.1));
        let Err(error) = Router::start(&settings) else {
            panic!("{left:?} and {right:?} start");
        };
        let expected = format!(
            "{} is an input and an output, or two outputs",
            path(other).display()
        );
        assert_eq!(error.to_string(), expected);
        assert_eq!(read(&path("a")), packets);
    }
}
