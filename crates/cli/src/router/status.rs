//! `sluice router status`: what a running router does, in one screen.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use sluice_router::process::InterfaceState;
use sluice_router::process::watch::{FlowSample, ObjectSample, Sample};

use crate::watch::{self, WatchError, cut, is_down, reasons, short, sojourn, time};

/// Which router, and in which form.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The router's socket [default: sluice.sock in XDG_RUNTIME_DIR or /run]
    #[arg(long, value_name = "PATH", env = "SLUICE_SOCKET")]
    socket: Option<PathBuf>,
    /// Print the sample as JSON (docs/watching.md)
    #[arg(long)]
    json: bool,
}

/// The reason why nothing is shown.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no sample.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// Standard output cannot be written.
    #[error("cannot write to standard output: {0}")]
    Output(#[from] std::io::Error),
}

impl Error {
    /// Returns the exit status.
    pub fn exit_status(&self) -> u8 {
        match self {
            Error::Watch(error) => error.exit_status(),
            Error::Output(_) => 1,
        }
    }
}

/// Prints the state of a router over the last interval.
///
/// # Errors
/// [`Error`].
pub fn run(args: &Args) -> Result<ExitCode, Error> {
    let path = watch::socket(args.socket.as_ref());
    let text = if args.json {
        format!("{}\n", watch::fetch_json(&path, 0)?)
    } else {
        let width = crate::terminal::columns().unwrap_or(WIDTH).max(WIDTH);
        text(&watch::fetch(&path, 0)?, width)
    };
    crate::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Rows of objects and of flows; `sluice top` shows more.
const MOST_ROWS: usize = 20;

/// The least width: that of a terminal with 80 columns, of which the last one stays empty.
const WIDTH: usize = 79;

/// Writes a sample in at most `width` columns, at least [`WIDTH`].
fn text(sample: &Sample, width: usize) -> String {
    let mut out = String::new();
    let status = &sample.status;
    let mut line = |text: String| writeln!(out, "{}", text.trim_end()).expect("a string");
    line(format!(
        "up {}, {} commands, figures of the last {}{}",
        span(status.uptime_ns),
        status.commands,
        time(sample.interval_ns),
        if status.is_real_time {
            ""
        } else {
            ", without real-time priority"
        },
    ));
    line(format!(
        "late at most {} (median), {} (99 %), {} (99.9 %) of {} packets",
        time(sample.lateness.p50_ns),
        time(sample.lateness.p99_ns),
        time(sample.lateness.p999_ns),
        short(sample.lateness.packets as f64)
    ));
    if status.fail_open == Some(false) {
        line("--fail-open has no effect: its process has ended; restart the router".to_owned());
    }
    for (what, counts) in [
        ("dropped", &status.dropped),
        ("lost", &status.lost),
        ("refused", &status.refused),
        ("damaged", &status.damaged),
        ("clients refused", &status.clients_refused),
    ] {
        reasons_of(&format!("{what} since the start"), counts).for_each(&mut line);
    }
    if let Some(export) = &sample.flow_export {
        let reason = export.error.as_ref().filter(|_| export.not_sent > 0);
        let reason = reason.map_or_else(String::new, |error| format!(" ({error})"));
        let why = [("refused", export.refused), ("lost", export.lost)];
        let why = why.into_iter().filter(|(_, count)| *count > 0);
        let why: Vec<String> = why
            .map(|(word, count)| format!("{} {word}", short(count as f64)))
            .collect();
        let why = match why.is_empty() {
            true => String::new(),
            false => format!(" ({})", why.join(", ")),
        };
        let text = format!(
            "records of flows: {} sent, {} not sent{why} to {}{reason}",
            short(export.sent as f64),
            short(export.not_sent as f64),
            export.collector,
        );
        line(cut(&text, width));
    }
    if let Some(file) = &sample.flow_log {
        let reason = file.error.as_ref().filter(|_| file.not_written > 0);
        let reason = reason.map_or_else(String::new, |error| format!(" ({error})"));
        let text = format!(
            "records of flows: {} written, {} not written to {}{reason}",
            short(file.written as f64),
            short(file.not_written as f64),
            file.file,
        );
        line(cut(&text, width));
    }
    if let Some(events) = sample.events {
        line(format!("events: {} logged", short(events as f64)));
    }
    line(String::new());
    line(format!(
        "{:<20} {:>10} {:>10} {:>10} {:>10} {:>8}",
        "port", "in bit/s", "out bit/s", "in pkt/s", "out pkt/s", "lost"
    ));
    for (number, port) in sample.ports.iter().enumerate() {
        let state = if is_down(sample, number) { " down" } else { "" };
        line(format!(
            "{:<20} {:>10} {:>10} {:>10} {:>10} {:>8}{state}",
            cut(&port.name, 20),
            short(port.received_bps as f64),
            short(port.sent_bps as f64),
            short(port.received_per_s as f64),
            short(port.sent_per_s as f64),
            short(port.lost as f64)
        ));
    }
    for port in &status.ports {
        if port.interface == Some(InterfaceState::Gone) {
            let name = cut(&port.name, 20);
            line(format!(
                "{name} has no interface: it was deleted, renamed or moved"
            ));
        }
    }
    for port in &status.ports {
        if port.promiscuous == Some(false) {
            let name = cut(&port.name, 20);
            line(format!(
                "{name} is not promiscuous: frames may be lost and not counted"
            ));
        }
    }
    for port in &status.ports {
        let what = format!("lost at {} since the start", cut(&port.name, 20));
        reasons_of(&what, &port.lost).for_each(&mut line);
        if let Some(error) = &port.attach_error {
            let name = cut(&port.name, 20);
            line(cut(&format!("{name} cannot attach: {error}"), width));
        }
        if let Some(error) = &port.write_error {
            let name = cut(&port.name, 20);
            line(cut(
                &format!("cannot write the file of {name}: {error}"),
                width,
            ));
        }
    }
    line(String::new());
    if sample.objects.is_empty() {
        line("no pipe or queue has had a packet yet".to_owned());
        return out;
    }
    let objects = sample.objects.iter().take(MOST_ROWS);
    let names = name_width(objects.clone().map(ObjectSample::label), 18, width - 61);
    let columns = |name: &str, cells: [String; 8]| {
        let [rate, link, backlog, p50, p95, p99, dropped, marked] = cells;
        let name = cut(name, names);
        format!(
            "{name:<names$} {rate:>6} {link:>6} {backlog:>6} {p50:>7} {p95:>7} {p99:>7} {dropped:>6} {marked:>5}"
        )
    };
    let heads = [
        "bit/s", "of", "queued", "p50", "p95", "p99", "drops", "marks",
    ];
    line(columns("", heads.map(str::to_owned)));
    for object in objects {
        let [p50, p95, p99] = sojourn(&object.traffic);
        let link = match object.link_bps {
            0 => "-".to_owned(),
            bps => short(bps as f64),
        };
        let cells = [
            short(object.traffic.rate_bps as f64),
            link,
            short(object.backlog_packets as f64),
            p50,
            p95,
            p99,
            short(object.traffic.dropped_total() as f64),
            short(object.traffic.marked as f64),
        ];
        let label = object.label();
        let is_cut = label.chars().count() > names;
        line(columns(if is_cut { &object.name } else { &label }, cells));
        let words = cut(&object.words, width - 4);
        // The flows of a mask differ in their ends only.
        let mut notes = match object.flow.as_ref().filter(|_| is_cut) {
            Some(flow) if flow.chars().count() + words.chars().count() + 5 <= width => {
                vec![format!("{flow}  {words}")]
            }
            Some(flow) => {
                let mut lines = watch::wrapped(flow, width - 3);
                lines.push(words);
                lines
            }
            None => vec![words],
        };
        if !object.traffic.dropped.is_empty() {
            notes.push(format!("dropped: {}", reasons(&object.traffic.dropped)));
        }
        if !object.state.is_empty() {
            notes.push(watch::state(object));
        }
        for note in notes {
            line(format!("  {}", cut(&note, width - 3)));
        }
    }
    let hidden = sample.objects.len().saturating_sub(MOST_ROWS);
    if hidden > 0 {
        line(format!(
            "{hidden} more pipes and queues: sluice top, or --json"
        ));
    }
    let unlisted = sample.unlisted;
    if unlisted > 0 {
        line(format!(
            "{unlisted} without figures here: sluice ipfw pipe show, sched show, queue show"
        ));
    }
    if let Some(rtt) = &sample.rtt {
        line(String::new());
        let hosts = rtt.hosts.iter().take(MOST_ROWS / 2);
        let rows = rtt.all.iter().chain(&rtt.objects).chain(hosts);
        let names = name_width(rows.clone().map(|of| of.name.clone()), 39, width - 40);
        let row = |name: &str, source: &str, cells: [String; 4]| {
            let [samples, p50, p95, p99] = cells;
            let name = cut(name, names);
            format!("{name:<names$} {source:<4} {samples:>7} {p50:>7} {p95:>8} {p99:>8}")
        };
        let heads = ["samples", "p50", "p95", "p99"].map(str::to_owned);
        line(row("round-trip times, last minute", "from", heads));
        for of in rows {
            let [p50, p95, p99] = watch::times(of.rtt.as_ref());
            let cells = [short(of.samples as f64), p50, p95, p99];
            line(row(&of.name, of.source.name(), cells));
        }
    }
    if !sample.flows.is_empty() {
        line(String::new());
        let head = ["bit/s", "queued", "p50", "p99", "drops", "marks"];
        let flows = sample.flows.iter().take(MOST_ROWS / 2);
        let names = name_width(flows.clone().map(FlowSample::label), 34, width - 45);
        let row = |name: &str, cells: [String; 6]| {
            let [rate, queued, p50, p99, dropped, marked] = cells;
            format!(
                "{name:<names$} {rate:>6} {queued:>6} {p50:>7} {p99:>7} {dropped:>6} {marked:>5}"
            )
        };
        line(row("busiest flows", head.map(str::to_owned)));
        for flow in flows {
            let [p50, _, p99] = sojourn(&flow.traffic);
            let cells = [
                short(flow.traffic.rate_bps as f64),
                short(flow.backlog_packets as f64),
                p50,
                p99,
                short(flow.traffic.dropped_total() as f64),
                short(flow.traffic.marked as f64),
            ];
            let label = flow.label();
            // A name that is too long has a line of its own.
            if label.chars().count() > names {
                watch::wrapped(&label, width)
                    .into_iter()
                    .for_each(&mut line);
                line(row("", cells));
            } else {
                line(row(&label, cells));
            }
        }
    }
    out
}

/// Returns the width of a column of names: that of the longest one, as far as there is room for it.
fn name_width(names: impl Iterator<Item = String>, least: usize, most: usize) -> usize {
    let longest = names.map(|name| name.chars().count()).max();
    longest.unwrap_or(0).clamp(least, most)
}

/// Writes counts by reason in lines of at most 79 columns, the largest ones first.
fn reasons_of(what: &str, counts: &BTreeMap<String, u64>) -> impl Iterator<Item = String> {
    let mut lines: Vec<String> = Vec::new();
    let all = reasons(counts);
    for reason in all.split(", ").filter(|reason| !reason.is_empty()) {
        match lines.last_mut() {
            Some(line) if line.len() + reason.len() + 3 < 79 => *line += &format!(", {reason}"),
            Some(line) => {
                line.push(',');
                lines.push(format!("  {}", cut(reason, 76)));
            }
            None => lines.push(format!("{what}: {}", cut(reason, 40))),
        }
    }
    lines.into_iter()
}

/// Writes an uptime in its two largest units.
fn span(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use sluice_router::forward::LostFrame;
    use sluice_router::process::PortStatus;
    use sluice_router::process::watch::{
        FlowExport, FlowFile, PortSample, RttRow, RttSample, Sojourn, TrafficSample,
    };
    use sluice_router::rtt::RttSource;

    use super::*;

    /// A sample with long names and large numbers.
    pub(crate) fn sample() -> Sample {
        let traffic = |rate_bps| TrafficSample {
            rate_bps,
            packets: 1000,
            dropped: [
                ("overflow".to_owned(), 123_456),
                ("congestion".to_owned(), 7),
            ]
            .into(),
            marked: 99_999,
            sojourn: Some(Sojourn {
                mean_ns: 5_000_000,
                p50_ns: 4_210_000,
                p95_ns: 104_000_000,
                p99_ns: 1_200_000_000,
                max_ns: 2_000_000_000,
            }),
            ..TrafficSample::default()
        };
        let object = |name: &str, rate_bps| ObjectSample {
            name: name.to_owned(),
            words: "fq_codel target 5ms interval 100ms quantum 1514 limit 10240 flows 1024 ECN"
                .into(),
            link_bps: 1_000_000_000,
            backlog_packets: 123_456,
            state: [("count".to_owned(), 12.0), ("p".to_owned(), 0.0125)].into(),
            state_kinds: [("count", "count"), ("p", "ratio")]
                .map(|(name, kind)| (name.to_owned(), kind.to_owned()))
                .into(),
            traffic: traffic(rate_bps),
            ..ObjectSample::default()
        };
        Sample {
            number: 1,
            interval_ns: 1_000_000_000,
            ports: vec![PortSample {
                name: "packet:a-very-long-name0".into(),
                received_bps: 987_654_321,
                ..PortSample::default()
            }],
            objects: vec![
                object("sched 65535", 999_999_999),
                ObjectSample {
                    flow: Some("10.255.255.255:65535 > 10.255.255.254:65535".into()),
                    ..object("pipe 2", 1000)
                },
            ],
            flows: vec![FlowSample {
                object: "sched 65535".into(),
                src: "2001:db8:1234:5678:9abc:def0:1234:5678".parse().unwrap(),
                src_port: 65535,
                dst: "10.0.0.2".parse().unwrap(),
                dst_port: 443,
                proto: 6,
                icmp_id: None,
                backlog_packets: 10,
                traffic: traffic(12_345_678),
            }],
            flow_export: Some(FlowExport {
                collector: "collector.example.org:4739".into(),
                sent: 123_456,
                not_sent: 7,
                refused: 4,
                lost: 2,
                error: Some("Connection refused (os error 111)".into()),
            }),
            flow_log: Some(FlowFile {
                file: "/var/log/sluice/flows.json".into(),
                written: 123_456,
                not_written: 7,
                lost: 2,
                error: Some("No space left on device (os error 28)".into()),
            }),
            events: Some(1_234_567),
            rtt: Some(RttSample {
                hosts: vec![RttRow {
                    name: "2001:db8:1234:5678:9abc:def0:1234:5678".into(),
                    source: RttSource::Quic,
                    samples: 123_456,
                    rtt: traffic(1).sojourn,
                    ..RttRow::default()
                }],
                ..RttSample::default()
            }),
            ..Sample::default()
        }
    }

    fn text(sample: &Sample) -> String {
        super::text(sample, WIDTH)
    }

    /// Ports of one host, and hosts of IPv6, whose texts begin alike.
    #[test]
    fn the_flows_of_a_mask_can_be_told_apart() {
        let mut sample = sample();
        let object = sample.objects[1].clone();
        let short = (0..4).map(|n| format!("10.77.0.2 > :5024{n}"));
        let long = |n| format!("[2001:db8:1:2:3:4:5:6]:{n}");
        let long = (0..4).map(|n| format!("proto 6 {} > {}", long(60_000), long(50_000 + n)));
        let flows: Vec<String> = short.chain(long).collect();
        let with = |flow: &String| ObjectSample {
            flow: Some(flow.clone()),
            words: "droptail".into(),
            ..object.clone()
        };
        sample.objects = flows.iter().map(with).collect();
        // 4 + 46 + 3 + 26 columns.
        sample.flows[0].dst = "2001:db8:1:2:3:4:5:6".parse().unwrap();
        let narrow = text(&sample);
        let row = format!("\n{:<18} {:>6} ", "pipe 2", "1.00k");
        assert_eq!(narrow.matches(&row).count(), 8);
        for n in 0..4 {
            let expected = format!("\n  10.77.0.2 > :5024{n}  droptail\n");
            assert!(narrow.contains(&expected), "no {expected} in\n{narrow}");
            // 8 + 28 + 3 + 28 columns leave no room for the algorithm.
            let expected = format!("{}\n", flows[4 + n]);
            assert!(narrow.contains(&expected), "no {expected} in\n{narrow}");
        }
        let flow = "]:65535 > [2001:db8:1:2:3:4:5:6]:443\n";
        assert!(narrow.contains(flow), "{narrow}");
        for line in narrow.lines() {
            assert!(line.chars().count() < 80, "{line}");
        }
        let wide = super::text(&sample, 200);
        for flow in &flows {
            let row = wide.lines().find(|line| line.contains(flow.as_str()));
            let row = row.unwrap_or_else(|| panic!("no {flow} in\n{wide}"));
            assert!(
                row.starts_with("pipe 2 ") && row.contains(" 1.00k "),
                "{row}"
            );
        }
        assert!(wide.lines().all(|line| line.chars().count() <= 200));
    }

    #[test]
    fn the_text_fits_into_80_columns_with_the_largest_figures() {
        let text = text(&sample());
        for line in text.lines() {
            assert!(line.chars().count() < 80, "{line}");
        }
        for expected in [
            "sched 65535 ",
            "1.00G",
            "overflow 123k",
            "count 12, p 0.0125",
            "4.21ms",
            "records of flows: 123k sent, 7 not sent (4 refused, 2 lost) to collector.exam",
            "records of flows: 123k written, 7 not written to /var/log/sluice/flows.json",
            "5678  quic    123k  4.21ms",
        ] {
            assert!(text.contains(expected), "no {expected} in\n{text}");
        }
    }

    /// Whatever a router refuses has its counter in the text, however many there are.
    #[test]
    fn every_reason_is_shown_by_its_name() {
        let counts = |names: &[&str]| -> BTreeMap<String, u64> {
            let count = |(number, name): (usize, &&str)| ((*name).to_owned(), 1000 + number as u64);
            names.iter().enumerate().map(count).collect()
        };
        let refused = [
            "pipe_share",
            "dynamic_memory",
            "dynamic_number",
            "states_full",
            "states_source",
            "states_limit",
        ];
        let mut sample = sample();
        sample.status.dropped = counts(&["overflow", "denied"]);
        let lost = LostFrame::ALL.map(LostFrame::name);
        sample.status.lost = counts(&lost);
        sample.status.fail_open = Some(false);
        sample.status.refused = counts(&refused);
        sample.status.damaged = counts(&["truncated"]);
        sample
            .status
            .ports
            .push(sluice_router::process::PortStatus {
                name: "packet:a-very-long-name0".into(),
                lost: counts(&["kernel_queue", "no_slot"]),
                write_error: Some("No space left on device (os error 28)".into()),
                ..Default::default()
            });
        let text = text(&sample);
        let all = lost
            .iter()
            .chain(&refused)
            .chain(&["overflow", "truncated", "kernel_queue"]);
        assert!(text.contains(": No space left on device"), "{text}");
        for name in all {
            assert!(
                text.contains(&format!("{name} 1.0")),
                "no {name} in\n{text}"
            );
        }
        assert!(text.contains("\n--fail-open has no effect: "), "{text}");
        for line in text.lines() {
            assert!(line.chars().count() < 80, "{line}");
        }
    }

    #[test]
    fn a_port_whose_interface_is_down_or_gone_is_marked() {
        let mut sample = sample();
        sample.ports.push(sample.ports[0].clone());
        let states = [InterfaceState::Gone, InterfaceState::Up].map(|state| PortStatus {
            name: sample.ports[0].name.clone(),
            interface: Some(state),
            ..PortStatus::default()
        });
        sample.status.ports = states.into();
        let rows = |sample: &Sample| {
            let text = text(sample);
            let lines = text
                .lines()
                .filter(|line| line.starts_with("packet:a-very-long"));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        let gone = rows(&sample);
        assert!(
            gone[0].ends_with("0 down") && gone[1].ends_with('0'),
            "{gone:?}"
        );
        let expected = "packet:a-very-long-~ has no interface: it was deleted, renamed or moved";
        assert_eq!(gone[2..], [expected]);
        for line in &gone {
            assert!(line.chars().count() < 80, "{line}");
        }
        sample.status.ports[0].interface = Some(InterfaceState::Down);
        let down = rows(&sample);
        assert!(down.len() == 2 && down[0].ends_with("0 down"), "{down:?}");
    }

    #[test]
    fn a_port_that_is_not_promiscuous_is_marked() {
        let mut sample = sample();
        let port = |promiscuous| PortStatus {
            name: sample.ports[0].name.clone(),
            promiscuous,
            ..PortStatus::default()
        };
        sample.status.ports = [Some(true), Some(false), None].map(port).into();
        let text = text(&sample);
        let lines = text.lines().filter(|line| line.contains("promiscuous"));
        let lines: Vec<&str> = lines.collect();
        let expected =
            "packet:a-very-long-~ is not promiscuous: frames may be lost and not counted";
        assert_eq!(lines, [expected]);
        assert!(expected.chars().count() < 80);
    }

    /// Samples have rows for 128 objects, of which the text shows 20; commands show the others.
    #[test]
    fn each_hint_names_a_command_that_shows_what_is_missing() {
        let mut sample = sample();
        let object = sample.objects[0].clone();
        sample.objects.resize(128, object);
        sample.unlisted = 262_016;
        let text = text(&sample);
        for expected in [
            "108 more pipes and queues: sluice top, or --json",
            "262016 without figures here: sluice ipfw pipe show, sched show, queue show",
        ] {
            assert!(text.lines().any(|line| line == expected), "{text}");
            assert!(expected.len() < 80);
        }
    }

    #[test]
    fn a_router_without_traffic_says_so() {
        assert!(text(&Sample::default()).ends_with("no pipe or queue has had a packet yet\n"));
        assert_eq!(span(90_000_000_000_000), "1 d 1 h");
    }
}
