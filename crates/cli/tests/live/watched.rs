//! `sluice run --http`: the charts of the live run that goes on.

use std::fs;
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Stdio};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

use serde_json::Value;
use sluice_core::record::Fate;
use sluice_core::{Span, Time};
use sluice_recording::{PacketRow, Recording, Release};

use super::sluice;

/// Ten flows, a rate that falls, a flood, and two AQMs, one after another.
const SCENARIO: &str = r#"
duration = "8s"
backend = "live"
[link]
rtt = "20ms"
rate = [["0s", "20Mbit/s"], ["4s", "10Mbit/s"]]
[matrix]
"link.queue" = { fifo = "fifo limit 100", fq = "fq_codel ecn" }
[[flow]]
type = "tcp"
name = "bulk"
count = 9
ecn = true
[[flow]]
type = "udp"
name = "flood"
rate = "15Mbit/s"
start = "2s"
stop = "3500ms"
"#;

/// The answer to a request, or what comes until the end of the stream.
fn get(page: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(page).expect("the page is there");
    let wait = Some(Duration::from_secs(30));
    stream.set_read_timeout(wait).expect("an open socket");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {page}\r\n\r\n").expect("a request");
    let mut answer = Vec::new();
    // The end of the process ends a stream, too.
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    (head[9..12].parse().expect("a status"), body.to_owned())
}

fn page_of(child: &mut Child) -> SocketAddr {
    let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let found = lines.find_map(|line| {
        let line = line.ok()?;
        let address = line.strip_prefix("sluice: progress at http://")?;
        address.trim_end_matches('/').parse().ok()
    });
    // Nobody reads the rest.
    spawn(move || lines.count());
    found.expect("it prints the address")
}

/// Waits until the live run with this number can be watched. Returns the state of the runs.
fn wait_for_run(page: SocketAddr, number: u64) -> Value {
    let start = Instant::now();
    loop {
        let state: Value = serde_json::from_str(&get(page, "/runs").1).expect("JSON");
        if state["live"]["number"] == number {
            return state;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "{state}");
        sleep(Duration::from_millis(50));
    }
}

/// Collects the samples of a run until its stream ends.
fn samples(page: SocketAddr) -> JoinHandle<Vec<Value>> {
    spawn(move || {
        let (status, body) = get(page, "/events");
        assert_eq!(status, 200, "{body}");
        let data = body.lines().filter_map(|line| line.strip_prefix("data: "));
        // The last one may be cut off.
        data.filter_map(|json| serde_json::from_str(json).ok())
            .collect()
    })
}

/// The instant `span` before `end`.
fn before(end: Time, span: Span) -> Time {
    Time::from_ns(end.as_ns().saturating_sub(span.as_ns()))
}

/// Returns for how long the loop had not sent anything at `end`, although packets were due that it
/// sent later.
fn overdue(releases: &[Release], end: Time) -> Span {
    let waited = |one: &&Release| one.due <= end && end < one.due + one.late;
    let first = releases.iter().filter(waited).map(|one| one.due).min();
    first.map_or(Span::ZERO, |due| end.since(due))
}

/// How late the loop may be.
const LATE: Span = Span::from_ms(2);
/// The link sends a packet of 1514 bytes at 10 Mbit/s in this time: the one before the first that
/// waited may have left as long before it.
const PACKET: Span = Span::from_us(1212);

/// The figures of a queue in an interval.
#[derive(Debug, Default)]
struct Figures {
    bits: f64,
    left: f64,
    dropped: f64,
    marked: f64,
    waited_ms: f64,
}

impl Figures {
    /// Those of the packets of the direction up in a recording.
    fn recorded(rows: &[PacketRow], from: Time, to: Time) -> Figures {
        let mut figures = Figures::default();
        let is_in = |at: Time| at > from && at <= to;
        for PacketRow { record, .. } in rows {
            if !is_in(record.at) {
                continue;
            }
            match record.fate {
                Fate::Sent | Fate::Marked => {
                    figures.bits += f64::from(record.len) * 8.0;
                    figures.left += 1.0;
                    figures.marked += f64::from(u8::from(record.fate == Fate::Marked));
                    figures.waited_ms += record.sojourn().as_ns() as f64 / 1e6;
                }
                Fate::Dropped(_) => figures.dropped += 1.0,
                Fate::Queued => {}
            }
        }
        figures
    }

    /// Those that the page shows.
    fn shown(sample: &Value) -> Figures {
        let objects = sample["objects"].as_array().expect("a list");
        // The direction up is pipe 2, as with `sluice exec`.
        let up = objects.iter().find(|object| object["name"] == "pipe 2");
        let Some(up) = up else {
            return Figures::default();
        };
        let number = |value: &Value| value.as_f64().unwrap_or(0.0);
        let drops = up["dropped"].as_object().expect("by reason").values();
        let left = number(&up["packets"]);
        Figures {
            bits: number(&up["bytes"]) * 8.0,
            left,
            dropped: drops.map(number).sum(),
            marked: number(&up["marked"]),
            waited_ms: number(&up["sojourn"]["mean_ns"]) / 1e6 * left,
        }
    }

    fn all(&self) -> [f64; 5] {
        [
            self.bits,
            self.left,
            self.dropped,
            self.marked,
            self.waited_ms,
        ]
    }
}

#[test]
fn the_page_shows_the_live_run_that_goes_on_as_it_is_recorded() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("watched.toml");
    fs::write(&file, SCENARIO).expect("writable");
    let out = folder.path().join("out");
    let mut child = sluice()
        .args(["run", "--quiet", "--http", "127.0.0.1:0"])
        .arg(&file)
        .arg("-o")
        .arg(&out)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    let page = page_of(&mut child);
    assert!(get(page, "/").1.contains("<html"));

    let mut streams = Vec::new();
    for (number, name) in [(0, "fifo"), (1, "fq")] {
        let state = wait_for_run(page, number);
        assert_eq!(state["live"]["name"], name);
        assert_eq!(state["live"]["length_s"], 8.0);
        assert_eq!(state["runs"][number as usize]["state"], "running");
        streams.push((name, samples(page)));
        sleep(Duration::from_secs(3));
        let state: Value = serde_json::from_str(&get(page, "/state").1).expect("JSON");
        let up = &state["objects"][1];
        assert!(up["words"].as_str().is_some_and(|words| {
            let queue = words.strip_prefix("up: ");
            queue.is_some_and(|queue| {
                queue.starts_with(if name == "fq" { "fq_codel" } else { name })
            })
        }));
        let flows = state["flows"].as_array().expect("a list");
        let udp = flows.iter().filter(|flow| flow["proto"] == 17).count();
        // Nine connections and the flood; packets of both directions belong to them.
        assert!(flows.len() >= 10 && udp == 1, "{flows:?}");
        let metrics = get(page, "/metrics").1;
        assert!(metrics.contains("sluice_object_link_bytes_per_second{object=\"pipe 2\""));
        assert!(get(page, "/history").1.contains("\"pipe 2\""));
    }
    assert!(child.wait().expect("it ends").success());

    for (name, stream) in streams {
        let samples = stream.join().expect("no panic");
        let recording = Recording::open(&out.join(name)).expect("a recording");
        let rows = recording.packets().expect("its packets");
        let rows: Vec<PacketRow> = rows.map(|row| row.expect("a row")).collect();
        let up: Vec<PacketRow> = rows
            .into_iter()
            .filter(|row| row.pipe.to_string() == "up")
            .collect();
        let releases = recording.releases().expect("its releases");
        let releases: Vec<Release> = releases.map(|row| row.expect("a row")).collect();
        // The loop's clock is that of the recording.
        let inside: Vec<&Value> = samples
            .iter()
            .filter(|sample| {
                sample["status"]["uptime_ns"].as_u64() > sample["interval_ns"].as_u64()
            })
            .collect();
        assert!(inside.len() >= 4, "{name}: {} samples", samples.len());
        let (mut dropped, mut marked) = (0.0, 0.0);
        for sample in inside {
            let ns = |value: &Value| value.as_u64().expect("nanoseconds");
            let to = Time::from_ns(ns(&sample["status"]["uptime_ns"]));
            let from = before(to, Span::from_ns(ns(&sample["interval_ns"])));
            let shown = Figures::shown(sample);
            let recorded = Figures::recorded(&up, from, to);
            // The loop may handle packets of either end of the interval late: later than `LATE` only if
            // it was late by its own account.
            let near = |end: Time| {
                let late = LATE.max(overdue(&releases, end) + PACKET);
                Figures::recorded(&up, before(end, late), end + LATE).all()
            };
            let ends = near(from).into_iter().zip(near(to)).map(|(a, b)| a + b);
            let all = shown.all().into_iter().zip(recorded.all()).zip(ends);
            for ((page, run), ends) in all {
                assert!(
                    (page - run).abs() <= 0.01 * run + ends,
                    "{name}: {from:?} to {to:?}: {shown:?} {recorded:?}"
                );
            }
            dropped += shown.dropped;
            marked += shown.marked;
        }
        // The load makes the queue show both.
        match name {
            "fifo" => assert!(dropped > 100.0, "{dropped}"),
            _ => assert!(marked > 10.0, "{marked}"),
        }
    }
}
