use super::*;
use std::process::{Command, Stdio};

use sluice_router::process::PortStatus;
use sluice_router::process::watch::{RttRow, RttSample, Sojourn, TotalTraffic};
use sluice_router::rtt::RttSource;

fn sample() -> Arc<Sample> {
    let mut sample = Sample::default();
    sample.status.ports.push(PortStatus {
        name: "eth0".into(),
        received_bytes: 1500,
        lost: [("kernel_queue".to_owned(), 3)].into(),
        interface: Some(InterfaceState::Gone),
        promiscuous: Some(false),
        ..PortStatus::default()
    });
    sample.status.version = "1.2.3".to_owned();
    sample.status.uptime_ns = 1_500_000_000;
    sample.lateness.since_start = vec![0; 64];
    // Two packets less than 2^11 ns late, one less than 2^40 ns.
    (
        sample.lateness.since_start[11],
        sample.lateness.since_start[40],
    ) = (2, 1);
    sample.objects.push(ObjectSample {
        name: "pipe 1".into(),
        total_dropped: [("overflow".to_owned(), 7)].into(),
        total_sojourn: SojournCounts {
            packets: 3,
            sum_ns: 2_000_000_000,
            below: SojournCounts::LIMITS
                .iter()
                .map(|limit| u64::from(*limit > 200_000) * 2)
                .collect(),
        },
        ..ObjectSample::default()
    });
    sample.all_total = TotalTraffic {
        total_packets: 5,
        total_bytes: 6000,
        total_dropped: [("overflow".to_owned(), 1)].into(),
        total_sojourn: sample.objects[0].total_sojourn.clone(),
        ..TotalTraffic::default()
    };
    sample.unlisted = 2;
    sample.status.logged = 4;
    (sample.status.slots, sample.status.free_slots) = (32, 20);
    sample.status.port_slots = 3;
    sample.status.fail_open = Some(false);
    sample.events = Some(6);
    sample.flow_export = Some(FlowExport {
        sent: 100,
        not_sent: 9,
        refused: 5,
        lost: 3,
        ..FlowExport::default()
    });
    sample.flow_log = Some(FlowFile {
        written: 50,
        not_written: 7,
        lost: 4,
        ..FlowFile::default()
    });
    let row = |name: &str, source| RttRow {
        name: name.into(),
        source,
        samples: 3,
        rtt: Some(Sojourn {
            p50_ns: 20_000_000,
            p95_ns: 30_000_000,
            ..Sojourn::default()
        }),
        total_rtt: sample.objects[0].total_sojourn.clone(),
    };
    sample.rtt = Some(RttSample {
        all: vec![row("all", RttSource::Tcp), row("all", RttSource::Quic)],
        objects: vec![row("pipe 1", RttSource::Tcp)],
        hosts: vec![row("192.0.2.1", RttSource::Quic)],
    });
    Arc::new(sample)
}

#[test]
fn the_text_has_counters_by_reason_and_histograms() {
    let text = text(&sample());
    for line in [
        "# TYPE sluice_port_received_bytes counter",
        "# UNIT sluice_port_received_bytes bytes",
        "sluice_port_received_bytes_total{port=\"eth0\"} 1500",
        "sluice_port_lost_frames_total{port=\"eth0\",reason=\"kernel_queue\"} 3",
        "sluice_port_up{port=\"eth0\"} 0",
        "sluice_port_promiscuous{port=\"eth0\"} 0",
        "sluice_fail_open 0",
        "sluice_build_info{version=\"1.2.3\"} 1",
        "sluice_uptime_seconds 1.5",
        "sluice_object_dropped_packets_total{object=\"pipe 1\",flow=\"\",reason=\"overflow\"} 7",
        // What has not happened yet is 0, so that its first increase can be seen.
        "sluice_object_dropped_packets_total{object=\"pipe 1\",flow=\"\",reason=\"congestion\"} 0",
        "sluice_port_lost_frames_total{port=\"eth0\",reason=\"down\"} 0",
        "sluice_dropped_packets_total{reason=\"overflow\"} 0",
        "sluice_lost_frames_total{cause=\"over_share\"} 0",
        "sluice_refused_packets_total{limit=\"states_full\"} 0",
        "sluice_refused_clients_total{reason=\"http_no_token\"} 0",
        "sluice_sojourn_seconds_sum{object=\"pipe 1\",flow=\"\"} 2.0",
        // 2^17 ns are 131 us, 2^18 ns are 262 us.
        "sluice_sojourn_seconds_bucket{le=\"0.000131072\",object=\"pipe 1\",flow=\"\"} 0",
        "sluice_sojourn_seconds_bucket{le=\"0.000262144\",object=\"pipe 1\",flow=\"\"} 2",
        "sluice_sojourn_seconds_bucket{le=\"+Inf\",object=\"pipe 1\",flow=\"\"} 3",
        "sluice_lateness_seconds_bucket{le=\"0.000001024\"} 0",
        "sluice_lateness_seconds_bucket{le=\"0.000002048\"} 2",
        "sluice_lateness_seconds_count 3",
        "sluice_all_objects_arrived_packets_total 5",
        "sluice_all_objects_arrived_bytes_total 6000",
        "sluice_all_objects_marked_packets_total 0",
        "sluice_all_objects_dropped_packets_total{reason=\"overflow\"} 1",
        "sluice_all_objects_dropped_packets_total{reason=\"congestion\"} 0",
        "sluice_all_objects_sojourn_seconds_count 3",
        "sluice_unlisted_objects 2",
        "sluice_log_entries_total{fate=\"written\"} 4",
        "sluice_log_entries_total{fate=\"lost\"} 0",
        "sluice_flow_records_total{fate=\"sent\"} 100",
        "sluice_flow_records_total{fate=\"refused\"} 5",
        "sluice_flow_records_total{fate=\"lost\"} 3",
        // 9 were not sent, and 8 of them for these reasons.
        "sluice_flow_records_total{fate=\"failed\"} 1",
        "sluice_flow_log_records_total{fate=\"failed\"} 3",
        "sluice_events_total 6",
        "sluice_rtt_host_seconds{host=\"192.0.2.1\",source=\"quic\",percentile=\"50\"} 0.02",
        "sluice_rtt_seconds_count{object=\"pipe 1\",source=\"tcp\"} 3",
    ] {
        assert!(text.lines().any(|l| l == line), "no `{line}` in\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));
}

/// Prometheus' own parser reads the same file in python/tests/test_metrics.py.
#[test]
fn the_text_is_that_of_the_file_that_another_parser_reads() {
    expect_test::expect_file!["../../tests/metrics.txt"].assert_eq(&text(&sample()));
}

#[test]
fn the_older_format_has_other_names_for_counters_and_no_units() {
    let older = older(&text(&sample()));
    for line in [
        "# HELP sluice_port_received_bytes_total Bytes received",
        "# TYPE sluice_port_received_bytes_total counter",
        "sluice_port_received_bytes_total{port=\"eth0\"} 1500",
        "# TYPE sluice_uptime_seconds gauge",
        "# TYPE sluice_lateness_seconds histogram",
        "sluice_lateness_seconds_count 3",
    ] {
        assert!(older.lines().any(|l| l == line), "no `{line}` in\n{older}");
    }
    assert!(!older.contains("# UNIT") && !older.contains("# EOF"));
    // Prometheus' own header; curl's; none.
    let accepted = |accept| Format::accepted(accept);
    let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.3";
    assert_eq!(accepted(Some(prometheus)), Format::OpenMetrics);
    assert_eq!(accepted(Some("*/*")), Format::Prometheus);
    assert_eq!(accepted(None), Format::Prometheus);
}

/// The names are those of the documentation of the status, and what a later version counts is kept.
#[test]
fn every_known_reason_has_a_row_and_an_unknown_one_too() {
    let counts: BTreeMap<String, u64> = [("flood".to_owned(), 3)].into();
    let rows = by_name(Vec::new(), "reason", ["loss"].into_iter(), &counts);
    let row = |name: &str, count: u64| (vec![("reason", name.to_owned())], count);
    assert_eq!(rows, [row("flood", 3), row("loss", 0)]);
    let page = include_str!("../../../../docs/router-status.md");
    let names = Status::loss_names().chain(Status::refusal_names());
    let names = names.chain(Status::client_names());
    for name in names.chain(PortStatus::loss_names()) {
        let is_named = page.contains(&format!("`{name}`")) || page.contains(&format!(".{name}`"));
        assert!(is_named, "{name}");
    }
    // A queue denies nothing: a rule does.
    let of_objects: Vec<&str> = ObjectSample::drop_names().collect();
    assert!(Status::drop_names().all(|name| {
        of_objects.contains(&name) != ["denied", "port", "malformed"].contains(&name)
    }));
}

/// Prometheus' own tool checks syntax, help, base units, and the names of counters and labels.
#[test]
fn promtool_finds_nothing_to_improve() {
    let mut promtool = match Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
    {
        Ok(promtool) => promtool,
        Err(error) => {
            eprintln!(
                "NOT SHOWN: promtool is missing ({error}); it is in the Debian package \
                 `prometheus`, and in `go install github.com/prometheus/prometheus/cmd/promtool`"
            );
            return;
        }
    };
    let text = formatted(&sample(), Format::Prometheus);
    let mut stdin = promtool.stdin.take().unwrap();
    std::io::Write::write_all(&mut stdin, text.as_bytes()).unwrap();
    drop(stdin);
    let output = promtool.wait_with_output().unwrap();
    let found = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && found.is_empty(), "{found}");
}

#[test]
fn every_metric_is_documented() {
    let page = include_str!("../../../../docs/watching.md");
    let text = text(&sample());
    let names = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    for name in names.filter_map(|rest| rest.split(' ').next()) {
        assert!(
            page.contains(&format!("`{name}`")),
            "docs/watching.md lacks {name}"
        );
    }
}
