//! Records of the flows that pass a router.

use super::watch::{DATAGRAM, FLOWS, PIPE, count, pipe_of, send};
use super::*;

/// Ten flows overflow a pipe; the records of `--flow-log` account for every packet.
#[test]
fn records_of_flows_account_for_every_packet() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("flows.json");
    let options = ["--flow-log", file.to_str().unwrap()];
    let running = Running::start(Some(PIPE), &options);
    let (sent, received) = overflow(&running);
    running.end();
    let text = fs::read_to_string(&file).unwrap();
    let records: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let sum = |key: &str| records.iter().map(|record| count(record, key)).sum::<u64>();
    let dropped: u64 = records
        .iter()
        .map(|record| count(&record["dropped"], "overflow"))
        .sum();
    assert_eq!(sum("arrived_packets"), sent, "{text}");
    assert_eq!(sum("packets"), received, "{text}");
    assert_eq!(sum("bytes"), received * DATAGRAM);
    assert!(dropped > 0 && dropped == sent - received, "{text}");
    let ports: std::collections::BTreeSet<u64> = records
        .iter()
        .map(|record| count(record, "src_port"))
        .collect();
    assert_eq!(ports, (7000..7000 + u64::from(FLOWS)).collect());
    let forced = |record: &&Value| record["reason"] == "forced_end";
    assert_eq!(records.iter().filter(forced).count(), usize::from(FLOWS));
    // The addresses of others are for the owner alone.
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn records_are_not_written_through_a_link() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("link.json");
    symlink(folder.path().join("victim"), &link).unwrap();
    let words = ["router", "em0", "em1", "--flow-log", link.to_str().unwrap()];
    let output = Command::new(SLUICE).args(words).output().unwrap();
    let (code, error) = refusal(&output);
    assert_eq!(code, 1, "{error}");
    assert!(
        error.contains("it is a symbolic link, which is not followed"),
        "{error}"
    );
    assert!(!folder.path().join("victim").exists());
}

/// The records of the same flows as IPFIX, read by Wireshark's dissector, account for every packet too.
#[test]
fn a_collector_receives_records_that_account_for_every_packet() {
    let collector = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = collector.local_addr().unwrap().to_string();
    let mut options = vec!["--flow-export", &address, "--flow-active", "1s"];
    options.extend(["--flow-template-refresh", "1s"]);
    let running = Running::start(Some(PIPE), &options);
    let (sent, received) = overflow(&running);
    let export = || {
        let sample = running.run(&mut Command::new(SLUICE), "router status --json");
        let mut sample: Value = serde_json::from_slice(&sample.stdout).unwrap();
        sample["flow_export"].take()
    };
    let deadline = Instant::now() + Duration::from_secs(30);
    while count(&export(), "sent") < u64::from(FLOWS) {
        assert!(Instant::now() < deadline, "{}", export());
        std::thread::sleep(Duration::from_millis(100));
    }
    let told = export();
    assert_eq!(told["collector"], address.as_str());
    assert_eq!(
        (count(&told, "not_sent"), &told["error"]),
        (0, &Value::Null)
    );
    running.end();

    let patience = Some(Duration::from_secs(1));
    collector.set_read_timeout(patience).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ipfix.pcap");
    // A capture of packets that begin with the IP header (draft-ietf-opsawg-pcap): magic number,
    // version 2.4, two unused words, snapshot length, link type.
    let mut capture: Vec<u8> = [0xa1b2_c3d4, 0x0002_0004, 0, 0, 65_535, RAW_IP]
        .iter()
        .flat_map(|word: &u32| word.to_be_bytes())
        .collect();
    let mut bytes = [0; 1500];
    while let Ok(length) = collector.recv(&mut bytes) {
        // Headers of IPv4 and UDP; 4739 is the port of IPFIX.
        let mut headers = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0];
        headers.extend([
            127, 0, 0, 1, 127, 0, 0, 1, 0x12, 0x83, 0x12, 0x83, 0, 0, 0, 0,
        ]);
        headers[2..4].copy_from_slice(&(length as u16 + 28).to_be_bytes());
        headers[24..26].copy_from_slice(&(length as u16 + 8).to_be_bytes());
        // Seconds, microseconds, captured and original length.
        let lengths = [0, 0, length as u32 + 28, length as u32 + 28];
        capture.extend(lengths.iter().flat_map(|word| word.to_be_bytes()));
        capture.extend(headers);
        capture.extend(&bytes[..length]);
    }
    fs::write(&file, capture).unwrap();
    let read = |words: &[&str]| {
        let mut command = Command::new("tshark");
        command
            .args(["-n", "-d", "udp.port==4739,cflow", "-r"])
            .arg(&file);
        command.args(words).stderr(Stdio::null()).output()
    };
    let Ok(wrong) = read(&["-Y", "_ws.expert or _ws.malformed"]) else {
        eprintln!("NOT SHOWN: tshark is missing; it is in the Debian package `tshark`");
        return;
    };
    assert_eq!(text(&wrong.stdout), "");
    // All values of an element, from all messages.
    let values = |element: &str| -> Vec<u64> {
        let fields = read(&["-T", "fields", "-e", element]).unwrap();
        let text = text(&fields.stdout);
        let numbers = text.split([',', '\n']).filter(|word| !word.is_empty());
        numbers.map(|word| word.parse().unwrap()).collect()
    };
    let sum = |element: &str| values(element).iter().sum::<u64>();
    assert_eq!(sum("cflow.packets"), sent);
    assert_eq!(sum("cflow.octets"), sent * DATAGRAM);
    assert_eq!(sum("cflow.post_packets"), received);
    assert_eq!(sum("cflow.post_octets"), received * DATAGRAM);
    assert!(received < sent);
    assert_eq!(sum("cflow.drop_packets"), sent - received);
    assert_eq!(sum("cflow.drop_octets"), (sent - received) * DATAGRAM);
    let ports: std::collections::BTreeSet<u64> = values("cflow.srcport").into_iter().collect();
    assert_eq!(ports, (7000..7000 + u64::from(FLOWS)).collect());
    // Active timeouts, and the end of the router: RFC 7012, flowEndReason.
    let reasons = values("cflow.flow_end_reason");
    assert!(
        reasons.iter().all(|reason| [2, 4].contains(reason)),
        "{reasons:?}"
    );
    // Three templates in each message, twice at the start and again each second.
    let templates = values("cflow.template_id");
    assert!(templates.len() >= 3 * 3, "{templates:?}");
}

/// Sends ten flows with 10 Mbit/s together through a pipe of 8 Mbit/s, and at the end more at once than
/// fits into its queue. Returns the packets that were sent, and those that the kernel counts behind the
/// router.
fn overflow(running: &Running) -> (u64, u64) {
    let names = ["em0", "em1", "far0", "far1"];
    let mut links = running.namespace.links().unwrap();
    for name in names {
        links.silence_ipv6(name).unwrap();
    }
    let (here, there) = running.sender(&names);
    // From the first sample on, the router counts.
    let first = running.run(&mut Command::new(SLUICE), "top --once --json");
    assert!(first.status.success(), "{first:?}");
    let before = links.interface("far1").unwrap().traffic.received;
    // 10 Mbit/s for a link of 8, then 200 datagrams for a queue of 20.
    send(running, here, there, 100, Duration::from_millis(10));
    send(running, here, there, 20, Duration::ZERO);
    let sent = u64::from(FLOWS) * 120;
    let shown = || running.ok("pipe show");
    let deadline = Instant::now() + Duration::from_secs(30);
    let waits = || {
        let sample = running.run(&mut Command::new(SLUICE), "top --once --json");
        let sample: Value = serde_json::from_slice(&sample.stdout).unwrap();
        pipe_of(&sample).is_none_or(|pipe| {
            count(pipe, "total_packets") < sent || count(pipe, "backlog_packets") > 0
        })
    };
    while waits() {
        assert!(Instant::now() < deadline, "{}", shown());
        std::thread::sleep(Duration::from_millis(100));
    }
    (
        sent,
        links.interface("far1").unwrap().traffic.received - before,
    )
}

/// The link type of packets that begin with the IP header.
const RAW_IP: u32 = 101;
