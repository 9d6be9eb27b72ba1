//! A sample in the text formats of Prometheus: OpenMetrics, and the older one, which most tools read.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use sluice_router::process::watch::{FlowExport, FlowFile, ObjectSample, Sample, SojournCounts};
use sluice_router::process::{InterfaceState, PortStatus, Status};

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
        let help =
            "Sojourn times of the packets that left a pipe, scheduler or queue while it was listed";
        let kind = MetricType::Histogram;
        let mut metric = encoder.encode_descriptor("sluice_sojourn", help, Some(&seconds), kind)?;
        for object in &sample.objects {
            let waits = &object.total_sojourn;
            let labels = of_object(object);
            let mut family = metric.encode_family(&labels)?;
            let sum = waits.sum_ns as f64 / 1e9;
            family.encode_histogram::<NoLabelSet>(sum, waits.packets, &buckets(waits), None)?;
        }
        let name = "sluice_all_objects_sojourn";
        let help =
            "Sojourn times of the packets that left any pipe or scheduler, since they are watched";
        let mut metric = encoder.encode_descriptor(name, help, Some(&seconds), kind)?;
        let waits = &sample.all_total.total_sojourn;
        let sum = waits.sum_ns as f64 / 1e9;
        metric.encode_histogram::<NoLabelSet>(sum, waits.packets, &buckets(waits), None)?;
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

/// Returns rows for all `names`, also for those that have counted nothing: Prometheus does not see the
/// increase of a counter that first appears with its first event. `own` are the other labels.
fn by_name<'a>(
    own: Labels<'a>,
    label: &'a str,
    names: impl Iterator<Item = &'static str>,
    counts: &BTreeMap<String, u64>,
) -> Vec<(Labels<'a>, u64)> {
    let mut all: BTreeMap<String, u64> = names.map(|name| (name.to_owned(), 0)).collect();
    all.extend(counts.iter().map(|(name, count)| (name.clone(), *count)));
    let row = |(name, count): (String, u64)| {
        let mut labels = own.clone();
        labels.push((label, name));
        (labels, count)
    };
    all.into_iter().map(row).collect()
}

/// The same for a metric without other labels.
fn of_router(
    label: &'static str,
    names: impl Iterator<Item = &'static str>,
    counts: &BTreeMap<String, u64>,
) -> Values<'static> {
    Values::Counter(by_name(Vec::new(), label, names, counts))
}

/// Returns rows of drops for all reasons of a pipe, scheduler or queue.
fn drops_of<'a>(own: Labels<'a>, dropped: &BTreeMap<String, u64>) -> Vec<(Labels<'a>, u64)> {
    by_name(own, "reason", ObjectSample::drop_names(), dropped)
}

type Metric<'a> = (&'static str, &'static str, Option<Unit>, Values<'a>);

/// Returns the metrics that are numbers.
fn simple(sample: &Sample) -> Vec<Metric<'_>> {
    let status = &sample.status;
    let of_ports = |value: fn(&PortStatus) -> u64| {
        let rows = status.ports.iter();
        Values::Counter(
            rows.map(|port| (vec![("port", port.name.clone())], value(port)))
                .collect(),
        )
    };
    let of_objects = |value: fn(&ObjectSample) -> u64| {
        let rows = sample.objects.iter();
        Values::Counter(
            rows.map(|object| (of_object(object), value(object)))
                .collect(),
        )
    };
    let states = |value: fn(&ObjectSample) -> u64| {
        let rows = sample.objects.iter();
        let rows = rows.map(|object| (of_object(object), value(object) as i64));
        Values::Gauge(rows.collect())
    };
    let port_losses = status.ports.iter().flat_map(|port| {
        let own = vec![("port", port.name.clone())];
        by_name(own, "reason", PortStatus::loss_names(), &port.lost)
    });
    let ports_up = status.ports.iter().filter_map(|port| {
        let is_up = port.interface? == InterfaceState::Up;
        Some((vec![("port", port.name.clone())], i64::from(is_up)))
    });
    let promiscuous = status.ports.iter().filter_map(|port| {
        let is_promiscuous = port.promiscuous?;
        Some((vec![("port", port.name.clone())], i64::from(is_promiscuous)))
    });
    let guarded = status.fail_open.iter();
    let guarded = guarded.map(|is_guarded| (Vec::new(), i64::from(*is_guarded)));
    let not_queued = status.free_slots + status.port_slots;
    let queued = status.slots.saturating_sub(not_queued);
    let slots = [
        ("free", status.free_slots),
        ("ports", status.port_slots),
        ("queued", queued),
    ];
    let slots = slots.into_iter();
    let slots = slots.map(|(state, n)| (vec![("state", state.to_owned())], n as i64));
    let drops = sample.objects.iter();
    let drops = drops.flat_map(|object| drops_of(of_object(object), &object.total_dropped));
    let all = &sample.all_total;
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
    let version = vec![("version", status.version.clone())];
    vec![
        (
            "sluice_build_info",
            "The version of the program that runs; always 1",
            None,
            Values::Gauge(vec![(version, 1)]),
        ),
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
            "sluice_port_up",
            "Whether the interface of a port is up: 1, or 0 if it is down or gone",
            None,
            Values::Gauge(ports_up.collect()),
        ),
        (
            "sluice_port_promiscuous",
            "Whether the interface of a port passes on frames for all addresses: 1, or 0 if not",
            None,
            Values::Gauge(promiscuous.collect()),
        ),
        (
            "sluice_fail_open",
            "Whether the process of --fail-open watches the router: 1, or 0 if it has ended",
            None,
            Values::Gauge(guarded.collect()),
        ),
        (
            "sluice_slots",
            "Slots of the packet memory, by what they are used for",
            None,
            Values::Gauge(slots.collect()),
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
            of_router("reason", Status::drop_names(), &status.dropped),
        ),
        (
            "sluice_lost_frames",
            "Frames lost on the way to a queue or to a port",
            None,
            of_router("cause", Status::loss_names(), &status.lost),
        ),
        (
            "sluice_refused_packets",
            "Packets that a limit of the whole router refused; states_evicted counts removed states",
            None,
            of_router("limit", Status::refusal_names(), &status.refused),
        ),
        (
            "sluice_refused_clients",
            "Clients of the control socket and requests to the page that were refused",
            None,
            of_router("reason", Status::client_names(), &status.clients_refused),
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
            of_objects(|o| o.total_packets),
        ),
        (
            "sluice_object_arrived",
            "Bytes that arrived at a pipe, scheduler or queue, including dropped ones",
            bytes(),
            of_objects(|o| o.total_bytes),
        ),
        (
            "sluice_object_marked_packets",
            "Packets that were CE-marked",
            None,
            of_objects(|o| o.total_marked),
        ),
        (
            "sluice_object_dropped_packets",
            "Packets that were dropped",
            None,
            Values::Counter(drops.collect()),
        ),
        (
            "sluice_all_objects_arrived_packets",
            "Packets that arrived at any pipe or scheduler since they are watched, including dropped ones",
            None,
            one(all.total_packets),
        ),
        (
            "sluice_all_objects_arrived",
            "Bytes that arrived at any pipe or scheduler since they are watched, including dropped ones",
            bytes(),
            one(all.total_bytes),
        ),
        (
            "sluice_all_objects_marked_packets",
            "Packets that any pipe or scheduler CE-marked since they are watched",
            None,
            one(all.total_marked),
        ),
        (
            "sluice_all_objects_dropped_packets",
            "Packets that any pipe or scheduler dropped since they are watched",
            None,
            Values::Counter(drops_of(Vec::new(), &all.total_dropped)),
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
mod tests;
