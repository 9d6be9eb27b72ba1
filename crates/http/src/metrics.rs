//! A sample in the text formats of Prometheus: OpenMetrics, and the older one, which most tools read.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use sluice_router::process::watch::{
    FlowExport, FlowFile, ObjectSample, Sample, SojournCounts, TotalTraffic,
};

/// A text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The text format 0.0.4 of Prometheus.
    Prometheus,
}

impl Format {
    /// Returns the best format that a client accepts, by the value of its `Accept` header.
    pub(super) fn accepted(accept: Option<&str>) -> Format {
        // Prometheus names OpenMetrics first, curl accepts anything, and promtool needs the other.
        match accept {
            Some(accept) if accept.contains("application/openmetrics-text") => Format::OpenMetrics,
            _ => Format::Prometheus,
        }
    }

    /// Returns the type of the answer.
    pub(super) const fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Writes a sample in a format.
pub(super) fn formatted(sample: &Arc<Sample>, format: Format) -> String {
    match format {
        Format::OpenMetrics => text(sample),
        Format::Prometheus => older(&text(sample)),
    }
}

/// Converts OpenMetrics to the text format of Prometheus: a counter is called as its samples are,
/// and there are no units and no end mark.
fn older(text: &str) -> String {
    let counters: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"))
        .collect();
    let mut older = String::with_capacity(text.len());
    for line in text.lines() {
        if line == "# EOF" || line.starts_with("# UNIT ") {
            continue;
        }
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words.as_slice() {
            ["#", word, name, rest] if counters.contains(name) => {
                writeln!(older, "# {word} {name}_total {rest}").expect("a string takes any text");
            }
            _ => {
                older.push_str(line);
                older.push('\n');
            }
        }
    }
    older
}

/// Writes a sample as OpenMetrics.
pub(super) fn text(sample: &Arc<Sample>) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Metrics(Arc::clone(sample))));
    let mut text = String::new();
    encode(&mut text, &registry).expect("a string takes any text");
    text
}

#[derive(Debug)]
struct Metrics(Arc<Sample>);

type Labels<'a> = Vec<(&'a str, String)>;

/// The values of one metric.
enum Values<'a> {
    Counter(Vec<(Labels<'a>, u64)>),
    Seconds(Vec<(Labels<'a>, f64)>),
    Gauge(Vec<(Labels<'a>, i64)>),
}

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let sample = &*self.0;
        for (name, help, unit, values) in simple(sample) {
            let kind = match values {
                Values::Counter(_) => MetricType::Counter,
                Values::Seconds(_) | Values::Gauge(_) => MetricType::Gauge,
            };
            let metric = encoder.encode_descriptor(name, help, unit.as_ref(), kind)?;
            match values {
                Values::Counter(rows) => rows_of(metric, rows, ConstCounter::<u64>::new)?,
                Values::Seconds(rows) => rows_of(metric, rows, ConstGauge::<f64>::new)?,
                Values::Gauge(rows) => rows_of(metric, rows, ConstGauge::<i64>::new)?,
            }
        }
        let seconds = Unit::Seconds;
        let help = "Sojourn times of the packets that left a pipe, scheduler or queue, since it is watched";
        let kind = MetricType::Histogram;
        let mut metric = encoder.encode_descriptor("sluice_sojourn", help, Some(&seconds), kind)?;
        for object in &sample.objects {
            let waits = &object.total_sojourn;
            let labels = of_object(object);
            let mut family = metric.encode_family(&labels)?;
            let sum = waits.sum_ns as f64 / 1e9;
            family.encode_histogram::<NoLabelSet>(sum, waits.packets, &buckets(waits), None)?;
        }
        if let Some(other) = other(sample) {
            let waits = &other.total_sojourn;
            let labels = of_other();
            let mut family = metric.encode_family(&labels)?;
            let sum = waits.sum_ns as f64 / 1e9;
            family.encode_histogram::<NoLabelSet>(sum, waits.packets, &buckets(waits), None)?;
        }
        if let Some(rtt) = &sample.rtt {
            let help =
                "Round-trip times from the router to the host that answers, since it is watched";
            let mut metric = encoder.encode_descriptor("sluice_rtt", help, Some(&seconds), kind)?;
            for row in rtt.all.iter().chain(&rtt.objects) {
                let times = &row.total_rtt;
                let source = row.source.name().to_owned();
                let labels = vec![("object", row.name.clone()), ("source", source)];
                let mut family = metric.encode_family(&labels)?;
                let sum = times.sum_ns as f64 / 1e9;
                family.encode_histogram::<NoLabelSet>(sum, times.packets, &buckets(times), None)?;
            }
        }
        let help = "Time from the instant at which a packet was due to its transmission";
        let mut metric =
            encoder.encode_descriptor("sluice_lateness", help, Some(&seconds), kind)?;
        let (sum, packets, buckets) = lateness(&sample.lateness.since_start);
        metric.encode_histogram::<NoLabelSet>(sum, packets, &buckets, None)
    }
}

/// Writes the rows of a metric. The only row of a metric without labels has no braces.
fn rows_of<V, M: EncodeMetric>(
    mut metric: MetricEncoder<'_>,
    rows: Vec<(Labels<'_>, V)>,
    value: impl Fn(V) -> M,
) -> Result<(), fmt::Error> {
    for (labels, number) in rows {
        if labels.is_empty() {
            return value(number).encode(metric);
        }
        value(number).encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}

/// Returns the buckets of a histogram, each with its own count.
fn buckets(waits: &SojournCounts) -> Vec<(f64, u64)> {
    let mut before = 0;
    let limits = SojournCounts::LIMITS.iter().zip(&waits.below);
    let mut buckets: Vec<(f64, u64)> = limits
        .map(|(limit, below)| {
            let count = below - before;
            before = *below;
            (*limit as f64 / 1e9, count)
        })
        .collect();
    buckets.push((f64::INFINITY, waits.packets.saturating_sub(before)));
    buckets
}

/// The first and the last power of two of nanoseconds that bound a bucket of the lateness: 1 us and
/// 1 s.
const LATE: std::ops::RangeInclusive<usize> = 10..=30;

/// Returns sum (an upper bound, as for the percentiles), count and buckets of the lateness.
fn lateness(counts: &[u64]) -> (f64, u64, Vec<(f64, u64)>) {
    let bound = |power: usize| (1_u64 << power.min(63)) as f64 / 1e9;
    let sum = counts.iter().enumerate();
    let sum = sum.map(|(power, count)| bound(power) * *count as f64).sum();
    let packets: u64 = counts.iter().sum();
    let mut buckets = Vec::new();
    let mut seen = 0;
    for power in LATE {
        let below: u64 = counts.iter().take(power + 1).sum();
        buckets.push((bound(power), below - seen));
        seen = below;
    }
    buckets.push((f64::INFINITY, packets - seen));
    (sum, packets, buckets)
}

fn of_object(object: &ObjectSample) -> Labels<'_> {
    vec![
        ("object", object.name.clone()),
        ("flow", object.flow.clone().unwrap_or_default()),
    ]
}

/// Returns the traffic of the objects that are not listed, once there was some.
fn other(sample: &Sample) -> Option<&TotalTraffic> {
    Some(&sample.other_total).filter(|other| other.total_packets > 0)
}

/// No object has this name.
fn of_other() -> Labels<'static> {
    vec![("object", "other".to_owned()), ("flow", String::new())]
}

fn by_fate(counts: &[(&str, u64)]) -> Vec<(Labels<'static>, u64)> {
    let row = |(fate, count): &(&str, u64)| (vec![("fate", (*fate).to_owned())], *count);
    counts.iter().map(row).collect()
}

/// Returns the records of flows by fate; each has one.
fn records(export: &FlowExport) -> Vec<(Labels<'static>, u64)> {
    let other = export.refused + export.lost;
    by_fate(&[
        ("sent", export.sent),
        ("refused", export.refused),
        ("lost", export.lost),
        ("failed", export.not_sent.saturating_sub(other)),
    ])
}

/// Returns the records of flows for a file by fate.
fn written(file: &FlowFile) -> Vec<(Labels<'static>, u64)> {
    by_fate(&[
        ("written", file.written),
        ("lost", file.lost),
        ("failed", file.not_written.saturating_sub(file.lost)),
    ])
}

type Metric<'a> = (&'static str, &'static str, Option<Unit>, Values<'a>);

/// Returns the metrics that are numbers.
fn simple(sample: &Sample) -> Vec<Metric<'_>> {
    let status = &sample.status;
    let of_ports = |value: fn(&sluice_router::process::PortStatus) -> u64| {
        let rows = status.ports.iter();
        Values::Counter(
            rows.map(|port| (vec![("port", port.name.clone())], value(port)))
                .collect(),
        )
    };
    let of_objects = |value: fn(&ObjectSample) -> u64, of_rest: fn(&TotalTraffic) -> u64| {
        let rows = sample.objects.iter();
        let rows = rows.map(|object| (of_object(object), value(object)));
        let rest = other(sample).map(|other| (of_other(), of_rest(other)));
        Values::Counter(rows.chain(rest).collect())
    };
    let states = |value: fn(&ObjectSample) -> u64| {
        let rows = sample.objects.iter();
        let rows = rows.map(|object| (of_object(object), value(object) as i64));
        Values::Gauge(rows.collect())
    };
    let reasons = |label: &'static str, counts: &std::collections::BTreeMap<String, u64>| {
        let rows = counts.iter();
        Values::Counter(
            rows.map(|(reason, n)| (vec![(label, reason.clone())], *n))
                .collect(),
        )
    };
    let port_losses = status.ports.iter().flat_map(|port| {
        let rows = port.lost.iter();
        rows.map(|(reason, count)| {
            let labels = vec![("port", port.name.clone()), ("reason", reason.clone())];
            (labels, *count)
        })
    });
    let drops = sample.objects.iter().flat_map(|object| {
        let rows = object.total_dropped.iter();
        rows.map(|(reason, count)| {
            let mut labels = of_object(object);
            labels.push(("reason", reason.clone()));
            (labels, *count)
        })
    });
    let rest = other(sample).into_iter().flat_map(|other| {
        let rows = other.total_dropped.iter();
        rows.map(|(reason, count)| {
            let mut labels = of_other();
            labels.push(("reason", reason.clone()));
            (labels, *count)
        })
    });
    let drops = drops.chain(rest);
    let variables = sample.objects.iter().flat_map(|object| {
        let rows = object.state.iter();
        rows.map(|(name, value)| {
            let mut labels = of_object(object);
            labels.push(("variable", name.clone()));
            (labels, *value)
        })
    });
    let rtts = sample.rtt.iter().flat_map(|rtt| &rtt.hosts);
    let rtts = rtts.filter_map(|row| Some((row, row.rtt?)));
    let rtts = rtts.flat_map(|(row, rtt)| {
        [("50", rtt.p50_ns), ("95", rtt.p95_ns)].map(|(percentile, ns)| {
            let labels = vec![
                ("host", row.name.clone()),
                ("source", row.source.name().to_owned()),
                ("percentile", percentile.to_owned()),
            ];
            (labels, ns as f64 / 1e9)
        })
    });
    let one = |value: u64| Values::Counter(vec![(Vec::new(), value)]);
    let bytes = || Some(Unit::Bytes);
    vec![
        (
            "sluice_uptime",
            "Time since the router started",
            Some(Unit::Seconds),
            Values::Seconds(vec![(Vec::new(), status.uptime_ns as f64 / 1e9)]),
        ),
        (
            "sluice_port_received_frames",
            "Frames received",
            None,
            of_ports(|p| p.received),
        ),
        (
            "sluice_port_received",
            "Bytes received",
            bytes(),
            of_ports(|p| p.received_bytes),
        ),
        (
            "sluice_port_sent_frames",
            "Frames sent",
            None,
            of_ports(|p| p.sent),
        ),
        (
            "sluice_port_sent",
            "Bytes sent",
            bytes(),
            of_ports(|p| p.sent_bytes),
        ),
        (
            "sluice_port_lost_frames",
            "Frames that the port or the kernel lost",
            None,
            Values::Counter(port_losses.collect()),
        ),
        (
            "sluice_admitted_packets",
            "Packets given to the rules",
            None,
            one(status.admitted),
        ),
        (
            "sluice_bypassed_frames",
            "Frames that bypassed the rules",
            None,
            one(status.bypassed),
        ),
        (
            "sluice_sent_packets",
            "Packets handed to a port",
            None,
            one(status.sent),
        ),
        (
            "sluice_dropped_packets",
            "Packets dropped by rules, queues and links",
            None,
            reasons("reason", &status.dropped),
        ),
        (
            "sluice_lost_frames",
            "Frames lost on the way to a queue or to a port",
            None,
            reasons("cause", &status.lost),
        ),
        (
            "sluice_refused_packets",
            "Packets that a limit of the whole router refused",
            None,
            reasons("limit", &status.refused),
        ),
        (
            "sluice_refused_clients",
            "Clients of the control socket and requests to the page that were refused",
            None,
            reasons("reason", &status.clients_refused),
        ),
        (
            "sluice_commands",
            "Commands executed, including refused ones",
            None,
            one(status.commands),
        ),
        (
            "sluice_log_entries",
            "Entries of `log` rules, by whether they were written or lost",
            None,
            Values::Counter(by_fate(&[
                ("written", status.logged),
                ("lost", status.log_lost),
            ])),
        ),
        (
            "sluice_flow_records",
            "Records of flows for a collector of IPFIX, by their fate",
            None,
            Values::Counter(sample.flow_export.as_ref().map_or_else(Vec::new, records)),
        ),
        (
            "sluice_flow_log_records",
            "Records of flows for a file, by their fate",
            None,
            Values::Counter(sample.flow_log.as_ref().map_or_else(Vec::new, written)),
        ),
        (
            "sluice_events",
            "Events that were logged: pipes and queues that begin and cease to drop packets, interfaces \
             that go down and come up",
            None,
            Values::Counter(
                sample
                    .events
                    .map(|count| (Vec::new(), count))
                    .into_iter()
                    .collect(),
            ),
        ),
        (
            "sluice_object_arrived_packets",
            "Packets that arrived at a pipe, scheduler or queue, including dropped ones",
            None,
            of_objects(|o| o.total_packets, |o| o.total_packets),
        ),
        (
            "sluice_object_arrived",
            "Bytes that arrived at a pipe, scheduler or queue, including dropped ones",
            bytes(),
            of_objects(|o| o.total_bytes, |o| o.total_bytes),
        ),
        (
            "sluice_object_marked_packets",
            "Packets that were CE-marked",
            None,
            of_objects(|o| o.total_marked, |o| o.total_marked),
        ),
        (
            "sluice_object_dropped_packets",
            "Packets that were dropped",
            None,
            Values::Counter(drops.collect()),
        ),
        (
            "sluice_object_rate_bytes_per_second",
            "Rate at which packets left over the last interval",
            None,
            states(|o| o.traffic.rate_bps / 8),
        ),
        (
            "sluice_object_link_bytes_per_second",
            "Rate of the link; 0 without a limit",
            None,
            states(|o| o.link_bps / 8),
        ),
        (
            "sluice_object_backlog_packets",
            "Packets that wait",
            None,
            states(|o| o.backlog_packets),
        ),
        (
            "sluice_object_backlog",
            "Bytes that wait",
            bytes(),
            states(|o| o.backlog_bytes),
        ),
        (
            "sluice_object_state",
            "Variables of the algorithm; times in nanoseconds, instants relative to now",
            None,
            Values::Seconds(variables.collect()),
        ),
        (
            "sluice_rtt_host",
            "Round-trip times to the hosts with most of them, over the last minute",
            Some(Unit::Seconds),
            Values::Seconds(rtts.collect()),
        ),
        (
            "sluice_unlisted_objects",
            "Pipes and queues that are not listed, because there are too many",
            None,
            Values::Gauge(vec![(Vec::new(), sample.unlisted as i64)]),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    use sluice_router::process::PortStatus;
    use sluice_router::process::watch::{RttRow, RttSample, Sojourn};
    use sluice_router::rtt::RttSource;

    fn sample() -> Arc<Sample> {
        let mut sample = Sample::default();
        sample.status.ports.push(PortStatus {
            name: "eth0".into(),
            received_bytes: 1500,
            lost: [("kernel_queue".to_owned(), 3)].into(),
            ..PortStatus::default()
        });
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
        sample.other_total = TotalTraffic {
            total_packets: 5,
            total_bytes: 6000,
            total_dropped: [("overflow".to_owned(), 1)].into(),
            ..TotalTraffic::default()
        };
        sample.unlisted = 2;
        sample.status.logged = 4;
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
            "sluice_uptime_seconds 1.5",
            "sluice_object_dropped_packets_total{object=\"pipe 1\",flow=\"\",reason=\"overflow\"} 7",
            "sluice_sojourn_seconds_sum{object=\"pipe 1\",flow=\"\"} 2.0",
            // 2^17 ns are 131 us, 2^18 ns are 262 us.
            "sluice_sojourn_seconds_bucket{le=\"0.000131072\",object=\"pipe 1\",flow=\"\"} 0",
            "sluice_sojourn_seconds_bucket{le=\"0.000262144\",object=\"pipe 1\",flow=\"\"} 2",
            "sluice_sojourn_seconds_bucket{le=\"+Inf\",object=\"pipe 1\",flow=\"\"} 3",
            "sluice_lateness_seconds_bucket{le=\"0.000001024\"} 0",
            "sluice_lateness_seconds_bucket{le=\"0.000002048\"} 2",
            "sluice_lateness_seconds_count 3",
            "sluice_object_arrived_packets_total{object=\"other\",flow=\"\"} 5",
            "sluice_object_dropped_packets_total{object=\"other\",flow=\"\",reason=\"overflow\"} 1",
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
        expect_test::expect_file!["../tests/metrics.txt"].assert_eq(&text(&sample()));
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
        let page = include_str!("../../../docs/watching.md");
        let text = text(&sample());
        let names = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        for name in names.filter_map(|rest| rest.split(' ').next()) {
            assert!(
                page.contains(&format!("`{name}`")),
                "docs/watching.md lacks {name}"
            );
        }
    }
}
