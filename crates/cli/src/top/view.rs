//! The lines of the screen.

use std::collections::VecDeque;

use sluice_router::process::watch::{FlowSample, ObjectSample, TrafficSample};

use super::app::{App, Look, ScreenLine, View, flow_key};
use crate::watch::{clock, cut, is_down, reasons, short, sojourn, state, time, times, wrapped};

/// Ports that are shown.
const PORTS: usize = 4;
/// Lines of the log below the rows.
const LOG: usize = 3;
/// Columns of the figures of a row, without its name and its sparkline.
const FIGURES: usize = 56;

impl App {
    /// Returns the lines for a screen of this size.
    pub fn lines(&self, width: usize, height: usize) -> Vec<ScreenLine> {
        let mut lines = Vec::new();
        let plain = |text: String| line(text, Look::Plain, width);
        let is_full = height != usize::MAX;
        lines.push(line(self.head(), Look::Head, width));
        for (number, port) in self.sample.ports.iter().take(PORTS).enumerate() {
            let name = match is_down(&self.sample, number) {
                true => format!("{} down", cut(&port.name, 11)),
                false => cut(&port.name, 16),
            };
            lines.push(plain(format!(
                "{name:<16} in {:>6}bit/s {:>6}pps  out {:>6}bit/s {:>6}pps  lost {}",
                short(port.received_bps as f64),
                short(port.received_per_s as f64),
                short(port.sent_bps as f64),
                short(port.sent_per_s as f64),
                short(port.lost as f64),
            )));
        }
        let foot = self.foot(width);
        let log = match self.view {
            View::Log => Vec::new(),
            _ => self.last_events(LOG),
        };
        let used = lines.len() + log.len() + foot.len();
        let room = height.saturating_sub(used);
        match &self.view {
            View::Objects => {
                self.object_rows(&mut lines, width, room);
                if !is_full {
                    lines.push(plain(String::new()));
                    self.flow_rows(&mut lines, width, room);
                }
            }
            View::Object(label) => {
                let before = lines.len();
                self.detail(&mut lines, label, width);
                let room = room.saturating_sub(lines.len() - before);
                self.flow_rows(&mut lines, width, room);
            }
            View::Flows => self.flow_rows(&mut lines, width, room),
            View::Log => {
                lines.push(line("changes and events".into(), Look::Head, width));
                let events: Vec<String> = self.last_events(usize::MAX);
                let room = room.saturating_sub(1);
                // The selected event is at the bottom.
                let first = (self.selected + 1).saturating_sub(room);
                for event in events.into_iter().skip(first).take(room) {
                    lines.push(plain(event));
                }
            }
        }
        if is_full {
            let bottom = log.len() + foot.len();
            lines.resize_with(height.saturating_sub(bottom), || plain(String::new()));
        }
        lines.extend(log.into_iter().map(plain));
        if is_full {
            lines.extend(foot);
            lines.truncate(height);
        }
        lines
    }

    fn head(&self) -> String {
        let sample = &self.sample;
        let up = sample.status.uptime_ns / 1_000_000_000;
        format!(
            "sluice top {}{} UTC  up {}:{:02}:{:02}  late p50 {} p99 {}  {} commands",
            if self.is_paused { "PAUSED  " } else { "" },
            clock(sample.unix_ms),
            up / 3600,
            up / 60 % 60,
            up % 60,
            time(sample.lateness.p50_ns),
            time(sample.lateness.p99_ns),
            sample.status.commands,
        )
    }

    fn foot(&self, width: usize) -> Vec<ScreenLine> {
        let mut lines = Vec::new();
        if let Some(error) = &self.error {
            lines.push(line(format!("no answer: {error}"), Look::Head, width));
        }
        let text = if self.is_typing {
            format!("filter: {}_   Enter keeps it, Esc clears it", self.filter)
        } else {
            let filter = match self.filter.as_str() {
                "" => "/ filter".to_owned(),
                filter => format!("/ filter `{filter}`"),
            };
            format!(
                "q quit  s sort: {}  Enter open  Esc back  f flows  l log  p pause  {filter}",
                self.order.word()
            )
        };
        lines.push(line(text, Look::Head, width));
        lines
    }

    fn object_rows(&self, lines: &mut Vec<ScreenLine>, width: usize, room: usize) {
        let name = name_width(width);
        let head = columns("pipe or queue", "", &HEADS.map(str::to_owned), name);
        lines.push(line(head, Look::Head, width));
        let rows = self.objects();
        if rows.is_empty() {
            let why = match self.sample.objects.len() {
                0 => "no pipe or queue has had a packet yet",
                _ => "no pipe or queue matches the filter",
            };
            lines.push(line(why.into(), Look::Plain, width));
        }
        let hidden = self.sample.unlisted;
        let room = room.saturating_sub(1 + usize::from(hidden > 0));
        // The flow of a mask may be too long for its column: it has a line of its own.
        let above = |label: &str| match label.chars().count() > name {
            true => wrapped(label, width),
            false => Vec::new(),
        };
        let height = |object: &&ObjectSample| above(&object.label()).len() + 1;
        for (index, object) in page(&rows, self.selected, room, height) {
            let look = self.look(index, room);
            let link = match object.link_bps {
                0 => "-".to_owned(),
                bps => short(bps as f64),
            };
            let cells = cells(&object.traffic, link, object.backlog_packets);
            let label = object.label();
            let spark = spark(self.history.get(&label), object.link_bps);
            let above = above(&label);
            let name_here = if above.is_empty() { label.as_str() } else { "" };
            let text = columns(name_here, &spark, &cells, name);
            for text in above.into_iter().chain([text]) {
                lines.push(line(text, look, width));
            }
        }
        if hidden > 0 {
            let other = &self.sample.other;
            let text = format!(
                "{hidden} others: {}bit/s, {} drops, {} marks",
                short(other.rate_bps as f64),
                short(other.dropped_total() as f64),
                short(other.marked as f64)
            );
            lines.push(line(text, Look::Plain, width));
        }
    }

    fn flow_rows(&self, lines: &mut Vec<ScreenLine>, width: usize, room: usize) {
        let name = name_width(width);
        let heads = HEADS.map(|head| if head == "of" { "" } else { head }.to_owned());
        lines.push(line(columns("flow", "", &heads, name), Look::Head, width));
        let rows = self.flows();
        if rows.is_empty() {
            lines.push(line("no flow".into(), Look::Plain, width));
        }
        // A flow's name is long: it has a line of its own.
        let room = room.saturating_sub(1);
        let above =
            |flow: &FlowSample| wrapped(&format!("{} in {}", flow.label(), flow.object), width);
        let height = |flow: &&FlowSample| above(flow).len() + 1;
        for (index, flow) in page(&rows, self.selected, room, height) {
            let look = self.look(index, room);
            let key = flow_key(flow);
            let spark = spark(self.history.get(&key), 0);
            let cells = cells(&flow.traffic, String::new(), flow.backlog_packets);
            let text = columns("", &spark, &cells, name);
            for text in above(flow).into_iter().chain([text]) {
                lines.push(line(text, look, width));
            }
        }
    }

    fn detail(&self, lines: &mut Vec<ScreenLine>, label: &str, width: usize) {
        let Some(object) = self.object(label) else {
            lines.push(line(format!("{label} is gone or idle"), Look::Plain, width));
            return;
        };
        for text in facts(object) {
            lines.push(line(text, Look::Plain, width));
        }
        let rtts = self.sample.rtt.iter().flat_map(|rtt| &rtt.objects);
        for rtt in rtts.filter(|rtt| rtt.name == object.name) {
            let [p50, p95, p99] = times(rtt.rtt.as_ref());
            let text = format!(
                "round trips, last minute: p50 {p50}, p95 {p95}, p99 {p99} of {}, from {}",
                short(rtt.samples as f64),
                rtt.source.name()
            );
            lines.push(line(text, Look::Plain, width));
        }
        if let Some(rates) = self.history.get(label) {
            let text = format!("rate, last minute  {}", bars(rates, object.link_bps, 60));
            lines.push(line(text, Look::Plain, width));
        }
    }

    /// The look of a row. A printed screen (without bounds) has no selection.
    fn look(&self, index: usize, room: usize) -> Look {
        if index == self.selected && room < usize::MAX / 4 {
            Look::Selected
        } else {
            Look::Plain
        }
    }
}

/// The facts about an object.
fn facts(object: &ObjectSample) -> Vec<String> {
    let link = match object.link_bps {
        0 => "no rate limit".to_owned(),
        bps => format!("{}bit/s", short(bps as f64)),
    };
    let traffic = &object.traffic;
    let [p50, p95, p99] = sojourn(traffic);
    let max = traffic.sojourn.map_or("-".to_owned(), |s| time(s.max_ns));
    let mut facts = vec![
        format!(
            "{}: {link}, delay {}, {}",
            object.label(),
            time(object.delay_ns),
            object.words
        ),
        format!(
            "rate {}bit/s of {}bit/s arriving, {} packets ({}B) queued, {} in flight",
            short(traffic.rate_bps as f64),
            short(traffic.arrived_bps as f64),
            short(object.backlog_packets as f64),
            short(object.backlog_bytes as f64),
            short(object.in_flight_packets as f64)
        ),
        format!("sojourn p50 {p50}, p95 {p95}, p99 {p99}, longest {max}"),
        format!(
            "now: {} marked, dropped: {}",
            short(traffic.marked as f64),
            or_none(reasons(&traffic.dropped))
        ),
        format!(
            "ever: {} packets, {} marked, dropped: {}",
            short(object.total_packets as f64),
            short(object.total_marked as f64),
            or_none(reasons(&object.total_dropped))
        ),
    ];
    if !object.state.is_empty() {
        facts.push(format!("state: {}", state(object)));
    }
    facts
}

fn or_none(text: String) -> String {
    if text.is_empty() { "none".into() } else { text }
}

const HEADS: [&str; 7] = ["bit/s", "of", "queued", "p50", "p99", "drops", "marks"];
/// Columns of a sparkline.
const SPARK: usize = 8;

/// The width of the names on a screen.
fn name_width(width: usize) -> usize {
    width.saturating_sub(FIGURES + SPARK + 1).clamp(10, 60)
}

fn cells(traffic: &TrafficSample, link: String, backlog: u64) -> [String; 7] {
    let [p50, _, p99] = sojourn(traffic);
    [
        short(traffic.rate_bps as f64),
        link,
        short(backlog as f64),
        p50,
        p99,
        short(traffic.dropped_total() as f64),
        short(traffic.marked as f64),
    ]
}

fn columns(label: &str, spark: &str, cells: &[String; 7], name: usize) -> String {
    let [rate, link, backlog, p50, p99, dropped, marked] = cells;
    let label = cut(label, name);
    format!(
        "{label:<name$} {spark:<SPARK$} {rate:>6} {link:>6} {backlog:>6} {p50:>7} {p99:>7} {dropped:>6} {marked:>6}"
    )
}

/// The last rates as bars, up to the rate of the link or the largest one.
fn spark(rates: Option<&VecDeque<u64>>, link_bps: u64) -> String {
    rates.map_or_else(String::new, |rates| bars(rates, link_bps, SPARK))
}

fn bars(rates: &VecDeque<u64>, link_bps: u64, most: usize) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let shown = rates.iter().skip(rates.len().saturating_sub(most));
    let top = shown
        .clone()
        .copied()
        .max()
        .unwrap_or(0)
        .max(link_bps)
        .max(1);
    shown
        .map(|rate| BARS[(u128::from(*rate) * 7 / u128::from(top)) as usize])
        .collect()
}

/// Returns the rows of the page with the selected one. A row has `height` lines, and a page `room`.
fn page<T>(
    rows: &[T],
    selected: usize,
    room: usize,
    height: impl Fn(&T) -> usize,
) -> impl Iterator<Item = (usize, &T)> {
    let (mut first, mut end, mut used) = (0, rows.len(), 0);
    for (index, row) in rows.iter().enumerate() {
        let height = height(row);
        if used + height > room {
            if selected < index {
                end = index;
                break;
            }
            (first, used) = (index, 0);
        }
        used += height;
    }
    rows.iter().enumerate().take(end).skip(first)
}

fn line(text: String, look: Look, width: usize) -> ScreenLine {
    ScreenLine {
        text: cut(&text, width),
        look,
    }
}
