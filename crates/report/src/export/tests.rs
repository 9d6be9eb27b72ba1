use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;

use flate2::read::GzDecoder;
use pcap_parser::traits::PcapReaderIterator as _;
use pcap_parser::{Block, PcapBlockOwned, PcapError, PcapNGReader};
use serde_json::{Value, json};

use super::flent::{Test, TestError};
use super::*;
use sluice_core::Time;
use sluice_recording::testing::{recording, variant};
use sluice_recording::{End, Environment, Keep, Recording, RunWriter};
use sluice_scenario::{Backend, Scenario};

mod captures;

fn test_of(flows: &str) -> Test {
    let text = format!("duration = \"60s\"\n[link]\nrate = \"10Mbit/s\"\n{flows}");
    let variant = Scenario::parse("x.toml", &text, &[]).unwrap().remove(0);
    Test::of(&variant.scenario.flows)
}

#[test]
fn a_run_is_shown_as_the_test_that_its_flows_resemble() {
    let tcp = |direction: &str, dscp: &str| {
        format!(
            "[[flow]]\ntype = \"tcp\"\nname = \"{direction}-{dscp}\"\ndirection = \"{direction}\"\ndscp = \"{dscp}\"\n"
        )
    };
    let classes = |direction| {
        ["cs0", "cs1", "cs5", "ef"]
            .map(|dscp| tcp(direction, dscp))
            .concat()
    };
    let up = tcp("up", "cs0");
    let down = tcp("down", "cs0");
    let four = |flow: &str| flow.replace("\n[[flow]]", "") + "count = 4\n";
    let call = "[[flow]]\ntype = \"voip\"\n";
    let pages = "[[flow]]\ntype = \"web\"\ninterval = \"1s\"\n";
    let far = up.clone() + "rtt = \"80ms\"\n";
    let near = up.replace("up-cs0", "near") + "rtt = \"20ms\"\n";
    assert_eq!(test_of(&up).word(), "tcp_nup");
    assert_eq!(test_of(&down).word(), "tcp_ndown");
    assert_eq!(test_of(&(up.clone() + &down)).word(), "rrul_be_nflows");
    assert_eq!(test_of(&(four(&up) + &four(&down))).word(), "rrul_be");
    assert_eq!(test_of(&(classes("up") + &classes("down"))).word(), "rrul");
    assert_eq!(test_of(&(far + &near)).word(), "rtt_fair_var");
    assert_eq!(test_of(call).word(), "voip");
    assert_eq!(test_of(&(up.clone() + call)).word(), "voip-1up");
    assert_eq!(test_of(&(up + pages)).word(), "http-1up");
    let flood = "[[flow]]\ntype = \"udp\"\nrate = \"1Mbit/s\"\n";
    assert_eq!(test_of(flood).word(), "udp_flood");
    assert_eq!(test_of("[[flow]]\ntype = \"ping\"\n").word(), "ping");
}

#[test]
fn a_test_that_does_not_exist_is_refused_with_those_that_do() {
    assert_eq!(
        Test::from_word("rrul_46").unwrap_err().to_string(),
        "`rrul_46` is not a test of flent to which runs can be exported; expected one of: rrul, \
         rtt_fair_var, rrul_be, rrul_be_nflows, voip-1up, http-1up, tcp_nup, tcp_ndown, voip, http, udp_flood, ping, rtt_fair, tcp_1up, \
         tcp_upload, tcp_1down, tcp_download, tcp_bidirectional"
    );
}

#[test]
fn a_data_file_of_flent_holds_rates_delays_and_samples() {
    let temp = tempfile::tempdir().unwrap();
    let recording = recording(&temp.path().join("run"));
    let path = temp.path().join("run.flent.gz");
    flent::write(&recording, &path, None).unwrap();
    let mut text = String::new();
    GzDecoder::new(File::open(&path).unwrap())
        .read_to_string(&mut text)
        .unwrap();
    let file: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(file["version"], 4);
    let metadata = &file["metadata"];
    assert_eq!(metadata["NAME"], "tcp_nup");
    assert_eq!(metadata["T0"], "2026-01-02T03:04:05.000000Z");
    assert_eq!(metadata["TEST_PARAMETERS"]["upload_streams"], "3");
    // 10 s in steps of 250 ms.
    assert_eq!(file["x_values"].as_array().unwrap().len(), 41);
    assert_eq!(file["x_values"][4], 1.0);
    // bulk-1 sends 100 kB/s; samples come once a second, and each rate is that of the whole second
    // before it.
    let bulk = &file["results"]["TCP upload::1"];
    assert_eq!(
        (&bulk[0], &bulk[3], &bulk[4], &bulk[7]),
        (&json!(null), &json!(0.8), &json!(0.8), &json!(0.8))
    );
    // Probes take 20 ms and one per second; that of second 5 was lost.
    let ping = &file["results"]["Ping (ms) ICMP"];
    assert_eq!(
        (&ping[16], &ping[17], &ping[20]),
        (&json!(24.0), &json!(null), &json!(null))
    );
    // 2026-01-02 03:04:05 UTC is 1767323045 s after 1970 (date -u -d ... +%s).
    let raw = &file["raw_values"]["TCP upload::1"][2];
    assert_eq!(
        raw,
        &json!({"t": 1_767_323_047.0, "val": 0.8, "dur": 1.0, "tcp_rtt": 22.0})
    );
    assert_eq!(file["raw_values"]["Ping (ms) ICMP"][5]["lost"], true);

    let error = flent::write(
        &recording,
        &path,
        Some(Test::from_word("tcp_ndown").unwrap()),
    )
    .unwrap_err();
    assert!(
        matches!(
            error,
            ExportError::Test(TestError::Unlike {
                test: "tcp_ndown",
                ..
            })
        ),
        "{error}"
    );
}

/// Time, captured bytes, real length and comment of every packet.
fn packets(path: &Path) -> Vec<(u64, Vec<u8>, u32, Option<String>)> {
    let mut reader = PcapNGReader::new(1 << 16, File::open(path).unwrap()).unwrap();
    let mut packets = Vec::new();
    loop {
        match reader.next() {
            Ok((length, block)) => {
                if let PcapBlockOwned::NG(Block::EnhancedPacket(packet)) = &block {
                    let comment = packet.options.iter().find(|option| option.code.0 == 1);
                    let comment = comment.map(|option| {
                        let value = &option.value[..usize::from(option.len)];
                        String::from_utf8(value.to_vec()).unwrap()
                    });
                    let time = u64::from(packet.ts_high) << 32 | u64::from(packet.ts_low);
                    let bytes = packet.data[..packet.caplen as usize].to_vec();
                    packets.push((time, bytes, packet.origlen, comment));
                }
                reader.consume(length);
            }
            Err(PcapError::Eof) => return packets,
            Err(PcapError::Incomplete(_)) => reader.refill().unwrap(),
            Err(error) => panic!("{error:?}"),
        }
    }
}

#[test]
fn a_capture_per_port_has_the_fate_of_each_packet() {
    let temp = tempfile::tempdir().unwrap();
    let recording = recording(&temp.path().join("run"));
    let files = pcapng::write(&recording, temp.path(), "run").unwrap();
    let names: Vec<_> = files.iter().map(|f| f.file_name().unwrap()).collect();
    assert_eq!(names, ["run-h2.pcapng", "run-h3.pcapng"]);
    // Whatever the umask: captured packets are private.
    for file in &files {
        let mode = fs::metadata(file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    let (h2, h3) = (packets(&files[0]), packets(&files[1]));
    // Six came in; three left, and one is still queued.
    assert_eq!((h2.len(), h3.len()), (6, 3));
    let epoch = 1_767_323_045_000_000_000;
    let (time, bytes, length, comment) = &h2[0];
    assert_eq!(
        (*time, bytes.len(), *length),
        (epoch + 500_000_000, 24, 3000)
    );
    assert_eq!(
        comment.as_deref(),
        Some("dropped (overflow) by queue up at 0.600000 s after 100.000 ms there, 2 segments")
    );
    // ECT(0) arrived and CE left: at 3.030 s, plus 20 ms for 3000 B at 1.2 Mbit/s, plus 10 ms of
    // delay.
    assert_eq!(h2[2].1[1], 2);
    let (time, bytes, _, comment) = &h3[1];
    assert_eq!(*time, epoch + 3_060_000_000);
    assert_eq!(bytes[1], 3);
    assert_eq!(
        comment.as_deref(),
        Some("marked CE by queue up at 3.030000 s after 30.000 ms there, 2 segments")
    );
    assert_eq!(h3[0].3, None);
    // A header whose checksum is right adds up to 0xffff (RFC 1071).
    let words = bytes[..20]
        .chunks(2)
        .map(|w| u32::from(w[0]) << 8 | u32::from(w[1]));
    let sum: u32 = words.sum();
    assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
}

#[test]
fn tables_are_written_as_csv() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("run");
    let tables = csv::write(&recording(&dir), temp.path()).unwrap();
    // Whatever the umask: they are the tables of the recording, which are private.
    for file in &tables.files {
        let mode = fs::metadata(file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    assert_eq!((tables.files.len(), tables.left_out.len()), (8, 0));
    let arrivals = fs::read_to_string(temp.path().join("arrivals.csv")).unwrap();
    assert_eq!(
        arrivals,
        "time_ns,pipe,way,size_bytes,segments,ecn,dscp,hash,src,dst,tag\n"
    );
    // As an older program left it.
    fs::remove_file(dir.join("arrivals.parquet")).unwrap();
    let old = Recording::open(&dir).unwrap();
    assert_eq!(csv::write(&old, temp.path()).unwrap().files.len(), 7);
    let text = fs::read_to_string(temp.path().join("packets.csv")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[..2],
        [
            "seq,time_ns,flow,size_bytes,segments,ecn,class,verdict,at_ns,sojourn_ns,reason,pipe,packet",
            "0,500000000,0,3000,2,2,0,dropped,600000000,100000000,overflow,up,",
        ]
    );
    assert_eq!(lines.len(), 7);
    let pings = fs::read_to_string(temp.path().join("pings.csv")).unwrap();
    assert_eq!(pings.lines().nth(6), Some("5000000000,3,5,,,,true"));
}

#[test]
fn a_run_without_packets_has_its_other_tables_as_csv() {
    let temp = tempfile::tempdir().unwrap();
    let recorded = |keep: Keep| {
        let dir = temp.path().join(keep.word());
        let environment = Environment::here(Backend::Sim, "2026-01-02T03:04:05Z".into());
        let writer = RunWriter::create_keeping(keep, &dir, &variant(), &environment).unwrap();
        writer
            .finish(End::complete(Time::from_ns(10_000_000_000)))
            .unwrap()
    };
    let tables = csv::write(&recorded(Keep::Flows), temp.path()).unwrap();
    let written = ["flows.csv", "queues.csv", "pings.csv", "transfers.csv"];
    assert_eq!(tables.files, written.map(|file| temp.path().join(file)));
    assert_eq!(
        tables.left_out,
        ["packets", "headers", "releases", "arrivals"]
    );
    let error = csv::write(&recorded(Keep::Figures), temp.path()).unwrap_err();
    assert!(
        error.to_string().contains("has no table `flows`"),
        "{error}"
    );
}
