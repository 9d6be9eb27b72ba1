use super::*;
use crate::port::{HEAD_LEN, PoolSize};
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

/// 2023-11-14T22:13:20Z.
const EPOCH_NS: i128 = 1_700_000_000_000_000_000;

fn pool(slots: u32) -> Pool {
    Pool::new(PoolSize { slots, large: 2 }).expect("memory for a few slots")
}

/// A file of packets of this link type.
fn file(folder: &Path, name: &str, link: u32, packets: &[(i128, Vec<u8>)]) -> PathBuf {
    let path = folder.join(name);
    let mut writer = Writer::new(File::create(&path).unwrap(), link).unwrap();
    for (time_ns, bytes) in packets {
        let length = bytes.len() as u32;
        writer.packet(*time_ns, [bytes, &[]], length).unwrap();
    }
    path
}

fn spec(input: Option<&Path>, output: Option<&Path>, speed: Speed) -> PcapSpec {
    PcapSpec {
        input: input.map(Path::to_owned),
        output: output.map(Path::to_owned),
        speed,
    }
}

fn play(path: &Path, speed: Speed) -> PcapPort {
    PcapPort::open(&spec(Some(path), None, speed), None, Clock::start()).unwrap()
}

fn refused(path: &Path) -> String {
    let spec = spec(Some(path), None, Speed::Full);
    let error = PcapPort::open(&spec, None, Clock::start()).err();
    error.expect("it is refused").to_string()
}

fn read_back(path: &Path) -> Vec<(i128, Vec<u8>)> {
    let mut reader = Reader::new(File::open(path).unwrap()).unwrap();
    let (mut all, mut bytes) = (Vec::new(), Vec::new());
    while let Some(record) = reader.read(&mut bytes).unwrap() {
        assert_eq!(record.original_len as usize, bytes.len());
        all.push((record.time_ns, bytes.clone()));
    }
    all
}

#[test]
fn specs_are_read_as_they_are_printed() {
    for text in ["in.pcap:out.pcap", "in.pcap:", ":out.pcap", "a:b:full"] {
        assert_eq!(text.parse::<PcapSpec>().unwrap().to_string(), text);
    }
    assert_eq!("a".parse::<PcapSpec>().unwrap().to_string(), "a:");
    for (text, expected) in [
        (
            ":",
            "`:` names no file: expected IN.pcap:OUT.pcap, either of which may be omitted",
        ),
        (
            "a:b:c",
            "`c` is not a speed: expected `recorded` or `full` (file names cannot contain colons)",
        ),
    ] {
        assert_eq!(text.parse::<PcapSpec>().unwrap_err().to_string(), expected);
    }
}

#[test]
fn a_host_that_keeps_the_time_gets_each_packet_at_its_instant() {
    let folder = tempfile::tempdir().unwrap();
    let at = |ns: i128, byte| (EPOCH_NS + ns, vec![byte; 60]);
    // The third has an earlier timestamp than the second, so it arrives together with it.
    let packets = [at(0, 1), at(700, 2), at(650, 3), at(5_000_000_000, 4)];
    let path = file(folder.path(), "in.pcap", 1, &packets);
    let mut port = play(&path, Speed::Full);
    port.begin(EPOCH_NS - 100, Time::ZERO);
    let (mut pool, mut slots, mut seen) = (pool(8), Vec::new(), Vec::new());
    while let Some(now) = port.next_arrival() {
        port.set_time(Time::from_ns(now.as_ns() - 1));
        assert_eq!(port.receive(&mut pool, &mut slots), 0, "not before");
        port.set_time(now);
        let count = port.receive(&mut pool, &mut slots);
        seen.push((now.as_ns(), count));
        for slot in slots.drain(..) {
            assert_eq!(pool.arrival(slot), Some(now));
            pool.free(slot);
        }
    }
    assert_eq!(seen, [(100, 1), (800, 2), (5_000_000_100, 1)]);
    assert_eq!(port.next_arrival(), None);
    assert_eq!(port.counters().received, 4);
    assert_eq!(
        port.remarks().len(),
        1,
        "one packet has an earlier timestamp"
    );
    assert_eq!(pool.available(), 8);
}

#[test]
fn in_real_time_arrivals_are_exact_however_late_the_loop_is() {
    let folder = tempfile::tempdir().unwrap();
    let packets: Vec<_> = (0..3)
        .map(|n| (EPOCH_NS + n * 1_000, vec![n as u8; 60]))
        .collect();
    let path = file(folder.path(), "in.pcap", 1, &packets);
    let mut port = play(&path, Speed::Recorded);
    let clock = Clock::start();
    port.clock = clock;
    // An hour from now nothing is due; an hour ago, everything is.
    let hour_ns = 3_600_000_000_000;
    let (mut pool, mut slots) = (pool(8), Vec::new());
    port.begin(EPOCH_NS, clock.now() + Span::from_ns(hour_ns));
    assert_eq!(port.receive(&mut pool, &mut slots), 0);
    port.begin(EPOCH_NS + hour_ns as i128, Time::ZERO);
    port.begin(EPOCH_NS, Time::ZERO);
    while port.receive(&mut pool, &mut slots) > 0 {}
    let arrivals: Vec<_> = slots.iter().map(|slot| pool.arrival(*slot)).collect();
    let expected = [0, 1_000, 2_000].map(|ns| Some(Time::from_ns(ns)));
    assert_eq!(arrivals, expected);
}

#[test]
fn at_full_speed_the_file_waits_for_room() {
    let folder = tempfile::tempdir().unwrap();
    let packets: Vec<_> = (0..5)
        .map(|n| (EPOCH_NS + n * 1_000_000_000, vec![n as u8; 60]))
        .collect();
    let path = file(folder.path(), "in.pcap", 1, &packets);
    let mut port = play(&path, Speed::Full);
    let (mut pool, mut slots) = (pool(2), Vec::new());
    let mut sizes = Vec::new();
    loop {
        let count = port.receive(&mut pool, &mut slots);
        if count == 0 {
            break;
        }
        sizes.push(count);
        slots.drain(..).for_each(|slot| pool.free(slot));
    }
    assert_eq!(sizes, [2, 2, 1]);
    assert_eq!(port.counters().lost_total(), 0);
}

#[test]
fn what_finds_no_room_at_its_instant_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let mut packets = vec![(EPOCH_NS, vec![0; 60]); 5];
    packets[4].1 = vec![0; LONGEST + 1];
    let path = file(folder.path(), "in.pcap", 1, &packets);
    let mut port = play(&path, Speed::Full);
    port.begin(EPOCH_NS, Time::ZERO);
    port.set_time(Time::ZERO);
    let (mut pool, mut slots) = (pool(3), Vec::new());
    assert_eq!(port.receive(&mut pool, &mut slots), 3);
    let counters = port.counters();
    assert_eq!(counters.lost(Loss::NoSlot), 1);
    assert_eq!(counters.lost(Loss::Oversize), 1);
    assert_eq!(counters.lost_total(), 2);
}

#[test]
fn long_frames_cross_byte_for_byte() {
    let folder = tempfile::tempdir().unwrap();
    let frames: Vec<Vec<u8>> = [60, HEAD_LEN, HEAD_LEN + 1, 9_018, LONGEST]
        .into_iter()
        .map(|length| (0..length).map(|n| (n * 7) as u8).collect())
        .collect();
    let packets: Vec<_> = (0..).map(|n| EPOCH_NS + n).zip(frames.clone()).collect();
    let input = file(folder.path(), "in.pcap", 1, &packets);
    let output = folder.path().join("out.pcap");
    let spec = spec(Some(&input), Some(&output), Speed::Full);
    let mut port = PcapPort::open(&spec, None, Clock::start()).unwrap();
    port.begin(EPOCH_NS, Time::ZERO);
    let (mut pool, mut slots) = (pool(8), Vec::new());
    while let Some(now) = port.next_arrival() {
        port.set_time(now);
        port.receive(&mut pool, &mut slots);
        assert_eq!(port.transmit(&mut pool, &slots), 1);
        slots.clear();
    }
    port.release(&mut pool);
    assert_eq!(read_back(&output), packets);
    assert_eq!((pool.available(), pool.available_large()), (8, 2));
}

/// RFC 768 over RFC 791: 1000 bytes of payload in segments of 400 are 400, 400 and 200.
#[test]
fn super_packets_are_written_as_the_packets_that_they_stand_for() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("out.pcap");
    let spec = spec(None, Some(&output), Speed::Recorded);
    let mut port = PcapPort::open(&spec, Some(Link::Ip), Clock::start()).unwrap();
    port.begin(EPOCH_NS, Time::ZERO);
    port.set_time(Time::from_ns(42));
    let mut packet = vec![0x45, 0, 0x04, 0x04, 0, 1, 0, 0, 64, 17, 0, 0];
    packet.extend([10, 0, 0, 1, 10, 0, 0, 2, 0, 7, 0, 9, 0x03, 0xf0, 0, 0]);
    packet.resize(28 + 1000, 0x55);
    let mut pool = pool(4);
    let slot = pool.allocate().unwrap();
    pool.room_mut(slot)[..packet.len()].copy_from_slice(&packet);
    let vnet = VnetHeader {
        flags: VnetHeader::NEEDS_CSUM,
        gso_type: 5,
        hdr_len: 28,
        gso_size: 400,
        csum_start: 20,
        csum_offset: 6,
    };
    pool.set_frame(slot, packet.len() as u32, vnet);
    assert_eq!(port.transmit(&mut pool, &[slot]), 1);
    port.release(&mut pool);
    let written = read_back(&output);
    let lengths: Vec<_> = written
        .iter()
        .map(|(at, bytes)| (*at, bytes.len()))
        .collect();
    let at = EPOCH_NS + 42;
    assert_eq!(lengths, [(at, 428), (at, 428), (at, 228)]);
    assert_eq!(pool.available(), 4);
}

#[test]
fn what_is_sent_where_no_file_is_written_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "in.pcap", 1, &[(EPOCH_NS, vec![0; 60])]);
    let mut port = play(&path, Speed::Full);
    let mut pool = pool(2);
    let slot = pool.allocate().unwrap();
    pool.set_frame(slot, 60, VnetHeader::default());
    assert_eq!(port.transmit(&mut pool, &[slot]), 1);
    assert_eq!(port.counters().lost(Loss::NoFile), 1);
    assert_eq!(pool.available(), 2);
}

#[test]
fn a_last_packet_that_is_cut_off_is_told_and_the_others_are_sent() {
    let folder = tempfile::tempdir().unwrap();
    let packets = [(EPOCH_NS, vec![1; 60]), (EPOCH_NS + 5, vec![2; 60])];
    let path = file(folder.path(), "in.pcap", 1, &packets);
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 10]).unwrap();
    let mut port = play(&path, Speed::Full);
    assert!(port.scan().is_truncated);
    assert_eq!(
        port.remarks(),
        [format!(
            "pcap:{}::full: the file ends inside packet 2, which is not sent",
            path.display()
        )]
    );
    let (mut pool, mut slots) = (pool(4), Vec::new());
    assert_eq!(port.receive(&mut pool, &mut slots), 1);
    assert_eq!(port.next_arrival(), None);
}

#[test]
fn what_cannot_be_sent_is_refused_with_the_packet() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let one = [(EPOCH_NS, vec![0; 60])];
    let path = file(at, "radio.pcap", 127, &one);
    let name = path.display();
    assert_eq!(
        refused(&path),
        format!(
            "{name}: packet 1: link type 127 cannot be sent; Ethernet (1) and raw IP (101, 228, 229) \
             can"
        )
    );
    let path = file(at, "cooked.pcap", 113, &[]);
    assert!(refused(&path).contains(": head: link type 113 cannot"));
    // 96 of 1514 bytes, as with `tcpdump -s 96`.
    let path = at.join("cut.pcap");
    let mut writer = Writer::new(File::create(&path).unwrap(), 1).unwrap();
    writer.packet(EPOCH_NS, [&[0; 96], &[]], 1514).unwrap();
    let name = path.display();
    assert_eq!(
        refused(&path),
        format!(
            "{name}: packet 1: only 96 of its 1514 bytes were captured; a port sends whole packets \
             (`tcpdump -s 0` captures them)"
        )
    );
    let path = at.join("text.pcap");
    fs::write(&path, "time,flow,length,ecn\n0,1,1500,0\n").unwrap();
    assert!(refused(&path).ends_with("head: it cannot be read; the capture is damaged"));
    assert!(refused(at).ends_with(
        "is not a regular file, and a capture is checked completely before it is played"
    ));
    let missing = refused(&at.join("nosuch"));
    assert!(missing.starts_with("cannot open "), "{missing}");

    let path = file(at, "in.pcap", 101, &one);
    let open = |spec, link| PcapPort::open(&spec, link, Clock::start()).err().unwrap();
    let same = open(spec(Some(&path), Some(&path), Speed::Full), None).to_string();
    assert!(
        same.ends_with("is an input and an output, or two outputs"),
        "{same}"
    );
    let other = open(spec(Some(&path), None, Speed::Full), Some(Link::Ethernet)).to_string();
    assert!(
        other.ends_with("holds IP packets, but the port carries Ethernet frames"),
        "{other}"
    );
}

/// draft-ietf-opsawg-pcapng section 4: two interfaces, one of which is not Ethernet.
#[test]
fn pcapng_is_played_and_several_link_types_in_it_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let block = |kind: u32, body: &[u8]| {
        let mut body = body.to_vec();
        body.resize(body.len().next_multiple_of(4), 0);
        let length = (body.len() as u32 + 12).to_le_bytes();
        [&kind.to_le_bytes()[..], &length, &body, &length].concat()
    };
    let section = [
        &0x1a2b_3c4d_u32.to_le_bytes()[..],
        &[1, 0, 0, 0],
        &[0xff; 8],
    ]
    .concat();
    // Option 9, `if_tsresol`: nanoseconds.
    let interface = |link: u8| {
        [
            link, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0,
        ]
    };
    let packet = |interface: u8, ns: u32| {
        let mut body = vec![interface, 0, 0, 0, 0, 0, 0, 0];
        body.extend(ns.to_le_bytes());
        body.extend([60, 0, 0, 0, 60, 0, 0, 0]);
        body.extend([0x45; 60]);
        body
    };
    let start = [block(0x0a0d_0d0a, &section), block(1, &interface(1))].concat();
    let path = folder.path().join("in.pcapng");
    let mut file = File::create(&path).unwrap();
    file.write_all(&start).unwrap();
    for ns in [7, 9] {
        file.write_all(&block(6, &packet(0, ns))).unwrap();
    }
    let mut port = play(&path, Speed::Full);
    assert_eq!((port.link(), port.scan().packets), (Link::Ethernet, 2));
    port.begin(0, Time::ZERO);
    assert_eq!(port.next_arrival(), Some(Time::from_ns(7)));
    port.set_time(Time::from_ns(9));
    assert_eq!(port.receive(&mut pool(4), &mut Vec::new()), 2);

    file.write_all(&block(1, &interface(101))).unwrap();
    file.write_all(&block(6, &packet(1, 9))).unwrap();
    let message = refused(&path);
    assert!(
        message.ends_with(
            "packet 3: link type 101 after packets of link type 1; all frames of a port must have the same link type"
        ),
        "{message}"
    );
}

#[test]
fn what_is_written_is_its_owner_s_and_is_not_led_elsewhere() {
    use std::os::unix::fs::{PermissionsExt, symlink};

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.pcap");
    let open = |path: &Path| {
        let spec = spec(None, Some(path), Speed::Full);
        PcapPort::open(&spec, Some(Link::Ethernet), Clock::start())
    };
    open(&path).unwrap();
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let precious = folder.path().join("precious");
    fs::write(&precious, "precious").unwrap();
    let link = folder.path().join("link.pcap");
    symlink(&precious, &link).unwrap();
    let error = open(&link).err().unwrap();
    assert!(matches!(error, PcapError::Create { .. }), "{error}");
    assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
    // A symbolic link may lead to a device, as /dev/stdout does.
    let device = folder.path().join("device");
    symlink("/dev/null", &device).unwrap();
    open(&device).unwrap();
    // When a shell redirects the output, /dev/stdout is a link to a regular file.
    use std::os::fd::AsRawFd;
    let redirected = File::create(folder.path().join("redirected.pcap")).unwrap();
    let number = redirected.as_raw_fd();
    for folder in ["/dev/fd", "/proc/self/fd"] {
        open(&Path::new(folder).join(number.to_string())).unwrap();
    }
}
