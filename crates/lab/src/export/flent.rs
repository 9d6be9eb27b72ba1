//! A data file of flent (format version 4), gzipped JSON, which flent 2 loads and plots without the tools
//! that it measures with.
//!
//! flent knows a data file by the name of its test, and a test's plots by the names of its series. A run
//! is shown as the test that its flows resemble ([`Test::of`]), or as one that is asked for:
//!
//! | test | flows of the run | series |
//! |---|---|---|
//! | `rrul` | TCP both ways in the four classes CS0, CS1, CS5 and EF | `TCP upload BE`, `TCP upload BK` ... |
//! | `rrul_be_nflows` | TCP both ways | `TCP upload BE::1`, `TCP download BE::1` ... |
//! | `tcp_nup` | TCP up only | `TCP upload::1` ... |
//! | `tcp_ndown` | TCP down only | `TCP download::1` ... |
//! | `ping` | no TCP | `Ping (ms) ICMP`, `Ping (ms) UDP` |
//!
//! Probes are `Ping (ms) ICMP`, and further ones `Ping (ms) UDP` with their class. Rates are Mbit/s over
//! the time since the sample before, delays ms. `x_values` are the instants of `[measure] step`; the raw
//! values are all samples, with congestion window and smoothed RTT where the sender told them.
//!
//! flent's box plots and distributions leave out the first and last five seconds, the settling time of
//! its own runs (`DELAY`); `flent --data-cutoff 0,LENGTH` shows all.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Map, Value, json};
use sluice_core::{Span, Time};

use super::pcapng::epoch_ns;
use super::{ExportError, write_whole};
use crate::recording::{FlowSample, PingSample, ReadError, Recording};
use crate::scenario::{Direction, Flow, FlowInstance, FlowKind, Schedule};

/// A test of flent that a run can be shown as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// TCP in four classes both ways.
    Rrul,
    /// TCP both ways, best effort.
    RrulBeNflows,
    /// TCP up.
    TcpNup,
    /// TCP down.
    TcpNdown,
    /// Probes only.
    Ping,
}

/// Why a run cannot be shown as a test.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TestError {
    /// There is no such test here.
    #[error(
        "`{word}` is no test of flent that runs are exported as; these are: {}",
        Test::words()
    )]
    Unknown {
        /// What was asked for.
        word: String,
    },
    /// The run does not have the flows of the test.
    #[error("the run cannot be shown as flent's `{test}`: {reason}")]
    Unlike {
        /// What was asked for.
        test: &'static str,
        /// What it lacks.
        reason: &'static str,
    },
}

impl Test {
    const ALL: [Test; 5] = [
        Test::Rrul,
        Test::RrulBeNflows,
        Test::TcpNup,
        Test::TcpNdown,
        Test::Ping,
    ];

    /// Its name in flent.
    pub const fn word(self) -> &'static str {
        match self {
            Test::Rrul => "rrul",
            Test::RrulBeNflows => "rrul_be_nflows",
            Test::TcpNup => "tcp_nup",
            Test::TcpNdown => "tcp_ndown",
            Test::Ping => "ping",
        }
    }

    fn words() -> String {
        Test::ALL.map(Test::word).join(", ")
    }

    /// The test of that name.
    ///
    /// # Errors
    /// There is none here.
    pub fn from_word(word: &str) -> Result<Test, TestError> {
        let found = Test::ALL.into_iter().find(|test| test.word() == word);
        found.ok_or_else(|| TestError::Unknown { word: word.into() })
    }

    /// The test that `flows` resemble.
    pub fn of(flows: &[Flow]) -> Test {
        let tcp = |direction| {
            let of_it = flows.iter().filter(move |f| f.direction == direction);
            of_it.filter(|f| matches!(f.kind, FlowKind::Tcp(_)))
        };
        let has = |direction| tcp(direction).next().is_some();
        match (has(Direction::Up), has(Direction::Down)) {
            (true, true) if has_classes(flows) => Test::Rrul,
            (true, true) => Test::RrulBeNflows,
            (true, false) => Test::TcpNup,
            (false, true) => Test::TcpNdown,
            (false, false) => Test::Ping,
        }
    }

    /// Whether a run with `flows` has what the test's plots need.
    fn check(self, flows: &[Flow]) -> Result<(), TestError> {
        let has = |direction| {
            let is_it = |f: &Flow| f.direction == direction && matches!(f.kind, FlowKind::Tcp(_));
            flows.iter().any(is_it)
        };
        let reason = match self {
            Test::Rrul if !has_classes(flows) => {
                "it has a TCP flow in each of the classes CS0, CS1, CS5 and EF, both ways"
            }
            Test::TcpNup if !has(Direction::Up) => "it has TCP up",
            Test::TcpNdown if !has(Direction::Down) => "it has TCP down",
            Test::RrulBeNflows if !has(Direction::Up) && !has(Direction::Down) => "it has TCP",
            _ => return Ok(()),
        };
        let test = self.word();
        Err(TestError::Unlike { test, reason })
    }
}

/// Whether there is one TCP flow of each of rrul's classes each way.
fn has_classes(flows: &[Flow]) -> bool {
    [Direction::Up, Direction::Down]
        .into_iter()
        .all(|direction| {
            let of_it = flows.iter().filter(|f| f.direction == direction);
            let mut classes: Vec<&str> = of_it
                .filter(|f| matches!(f.kind, FlowKind::Tcp(_)) && f.count == 1)
                .filter_map(class)
                .collect();
            classes.sort_unstable();
            classes == ["BE", "BK", "CS5", "EF"]
        })
}

/// What rrul calls the class of a flow's packets.
fn class(flow: &Flow) -> Option<&'static str> {
    match flow.kind.dscp().value() {
        0 => Some("BE"),
        8 => Some("BK"),
        40 => Some("CS5"),
        46 => Some("EF"),
        _ => None,
    }
}

/// Writes `recording` as a data file of flent, as `test` or as the one that it resembles.
///
/// # Errors
/// [`ExportError`]; no half file is left.
pub fn write(recording: &Recording, path: &Path, test: Option<Test>) -> Result<(), ExportError> {
    let test = test.unwrap_or_else(|| Test::of(&recording.run().scenario.flows));
    test.check(&recording.run().scenario.flows)?;
    let file = file(recording, test)?;
    let fail = |error: io::Error| ExportError::Write {
        path: path.to_owned(),
        error,
    };
    write_whole(path, |out| {
        let mut gzip = GzEncoder::new(out, Compression::default());
        serde_json::to_writer(&mut gzip, &file).map_err(|error| fail(error.into()))?;
        gzip.flush().and_then(|()| gzip.finish()).map_err(fail)?;
        Ok(())
    })
}

fn file(recording: &Recording, test: Test) -> Result<Value, ReadError> {
    let run = recording.run();
    let scenario = &run.scenario;
    let epoch = epoch_ns(&run.environment.started_at);
    let end = Time::from_ns(run.end_ns);
    let step = scenario.measure.step;
    let instances: Vec<FlowInstance<'_>> = scenario.instances().collect();
    let names = series_names(&instances, test);
    let mut tracks: Vec<Track> = instances.iter().map(|_| Track::new(epoch)).collect();
    for sample in recording.flow_samples()? {
        let sample = sample?;
        if let Some(track) = tracks.get_mut(sample.flow as usize)
            && sample.time <= end
        {
            track.sample(&sample);
        }
    }
    for probe in recording.pings()? {
        let probe = probe?;
        if let Some(track) = tracks.get_mut(probe.flow as usize)
            && probe.time <= end
        {
            track.probe(&probe);
        }
    }
    let mut instants = Vec::new();
    let mut at = Time::ZERO;
    while at <= end {
        instants.push(at);
        at += step;
    }
    let mut results = Map::new();
    let mut raw = Map::new();
    for (track, name) in tracks.into_iter().zip(&names) {
        let Some(name) = name else { continue };
        results.insert(name.clone(), track.at(&instants));
        raw.insert(name.clone(), Value::Array(track.raw));
    }
    let seconds: Vec<f64> = instants.iter().map(|at| at.as_ns() as f64 / 1e9).collect();
    Ok(json!({
        "version": 4,
        "x_values": seconds,
        "results": results,
        "raw_values": raw,
        "metadata": metadata(recording, test, &names),
    }))
}

fn metadata(recording: &Recording, test: Test, names: &[Option<String>]) -> Value {
    let run = recording.run();
    let scenario = &run.scenario;
    let total = run.end_ns as f64 / 1e9;
    // flent takes a time for UTC only with a fraction of a second.
    let started = UNIX_EPOCH + Duration::from_nanos(epoch_ns(&run.environment.started_at));
    let started = humantime::format_rfc3339_micros(started).to_string();
    let streams = |direction: &str| {
        let of_it = |name: &&String| name.starts_with(&format!("TCP {direction}"));
        names.iter().flatten().filter(of_it).count().to_string()
    };
    let mut units = Map::new();
    for name in names.iter().flatten() {
        let unit = if name.starts_with("Ping") {
            "ms"
        } else {
            "Mbits/s"
        };
        units.insert(name.clone(), json!({ "UNITS": unit }));
    }
    let rate = |rate: &Schedule| rate.highest().to_string();
    let mut kernel = run.environment.kernel.splitn(2, ' ');
    json!({
        "NAME": test.word(),
        "TITLE": run.variant,
        "NOTE": format!("{}; {} by {}", run.title, run.environment.backend, run.environment.program),
        "HOST": "h3",
        "HOSTS": ["h3"],
        "LOCAL_HOST": "h2",
        "TIME": started,
        "T0": started,
        "LENGTH": settled(total),
        "TOTAL_LENGTH": total,
        "STEP_SIZE": scenario.measure.step.as_secs_f64(),
        "IP_VERSION": 4,
        "FLENT_VERSION": run.environment.program,
        "KERNEL_NAME": kernel.next(),
        "KERNEL_RELEASE": kernel.next(),
        "EGRESS_INFO": {
            "qdisc": scenario.link.up.queue.to_string(),
            "bandwidth": rate(&scenario.link.up.rate),
        },
        "TEST_PARAMETERS": {
            "upload_streams": streams("upload"),
            "download_streams": streams("download"),
        },
        "SERIES_META": units,
    })
}

/// The length of a test of flent without the time in which it settles, before and after.
fn settled(total: f64) -> u64 {
    const DELAY_S: f64 = 5.0;
    let length = total - 2.0 * DELAY_S;
    (if length > 0.0 { length } else { total }).round() as u64
}

/// The series of each flow; none for those that flent has no place for.
fn series_names(instances: &[FlowInstance<'_>], test: Test) -> Vec<Option<String>> {
    let mut seen: BTreeMap<String, u32> = BTreeMap::new();
    let mut number = |stem: &str| {
        let count = seen.entry(stem.to_owned()).or_default();
        *count += 1;
        *count
    };
    let way = |flow: &Flow| match flow.direction {
        Direction::Up => "upload",
        Direction::Down => "download",
    };
    let name = |instance: &FlowInstance<'_>| {
        let flow = instance.flow;
        match &flow.kind {
            FlowKind::Tcp(_) => {
                let stem = format!("TCP {}", way(flow));
                Some(match test {
                    Test::Rrul => format!("{stem} {}", class(flow)?),
                    Test::RrulBeNflows => format!("{stem} BE::{}", number(&stem)),
                    _ => format!("{stem}::{}", number(&stem)),
                })
            }
            FlowKind::Ping(_) => {
                let class = class(flow).unwrap_or("BE");
                let is_first = class == "BE" && number("probe") == 1;
                let stem = match test {
                    _ if is_first => "Ping (ms) ICMP".to_owned(),
                    Test::Ping => "Ping (ms) UDP".to_owned(),
                    _ => format!("Ping (ms) UDP {class}"),
                };
                Some(match number(&stem) {
                    1 => stem,
                    n => format!("{stem}::{n}"),
                })
            }
            FlowKind::Udp(_) | FlowKind::Voip(_) => {
                Some(format!("UDP {} {}", way(flow), instance.name))
            }
            FlowKind::Rr(_) | FlowKind::Web(_) => None,
        }
    };
    instances.iter().map(name).collect()
}

/// The samples of one flow.
struct Track {
    epoch_ns: u64,
    /// Values with the time that each stands for.
    values: Vec<(Time, Option<f64>)>,
    raw: Vec<Value>,
    arrived: Option<(Time, u64)>,
}

impl Track {
    fn new(epoch_ns: u64) -> Self {
        Track {
            epoch_ns,
            values: Vec::new(),
            raw: Vec::new(),
            arrived: None,
        }
    }

    fn instant(&self, at: Time) -> f64 {
        // Exact to a microsecond: a double holds 53 bits, and a time of today in ns takes 61.
        (self.epoch_ns / 1000 + at.as_ns() / 1000) as f64 / 1e6
    }

    fn sample(&mut self, sample: &FlowSample) {
        let mut raw = Map::new();
        raw.insert("t".into(), json!(self.instant(sample.time)));
        if let Some(bytes) = sample.received_bytes {
            let before = self.arrived.replace((sample.time, bytes));
            let (since, less) = before.unwrap_or((sample.time, bytes));
            let took = sample.time.since(since).as_secs_f64();
            if took > 0.0 {
                let mbps = bytes.saturating_sub(less) as f64 * 8.0 / took / 1e6;
                self.values.push((sample.time, Some(mbps)));
                raw.insert("val".into(), json!(mbps));
                raw.insert("dur".into(), json!(took));
            }
        }
        let told = [
            ("tcp_cwnd", sample.cwnd.map(|n| json!(n))),
            ("tcp_rtt", sample.srtt.map(|rtt| json!(rtt.as_ms_f64()))),
            (
                "tcp_delivery_rate",
                sample.delivery_rate.map(|bps| json!(bps as f64 / 1e6)),
            ),
        ];
        for (key, value) in told {
            if let Some(value) = value {
                raw.insert(key.into(), value);
            }
        }
        if raw.len() > 1 {
            self.raw.push(Value::Object(raw));
        }
    }

    fn probe(&mut self, probe: &PingSample) {
        let ms = probe.rtt.map(Span::as_ms_f64);
        self.values.push((probe.time, ms));
        let mut raw = Map::new();
        raw.insert("t".into(), json!(self.instant(probe.time)));
        raw.insert("seq".into(), json!(probe.seq));
        match ms {
            Some(ms) => raw.insert("val".into(), json!(ms)),
            None => raw.insert("lost".into(), json!(true)),
        };
        for (key, delay) in [("owd_up", probe.up), ("owd_down", probe.down)] {
            if let Some(delay) = delay {
                raw.insert(key.into(), json!(delay.as_ms_f64()));
            }
        }
        self.raw.push(Value::Object(raw));
    }

    /// The mean of the values of each step that ends at an instant; of many probes, the last one, so
    /// that their distribution stays what it is.
    fn at(&self, instants: &[Time]) -> Value {
        let is_rate = self.arrived.is_some();
        let mut rest = &self.values[..];
        let mut column = Vec::with_capacity(instants.len());
        let mut held = None;
        for &at in instants {
            let inside = rest.partition_point(|(time, _)| *time <= at);
            let (now, later) = rest.split_at(inside);
            rest = later;
            let values: Vec<f64> = now.iter().filter_map(|(_, value)| *value).collect();
            let value = match now.last() {
                Some((_, last)) if !is_rate => *last,
                Some(_) => Some(values.iter().sum::<f64>() / values.len() as f64),
                // A rate that is measured over more than a step holds until the next one.
                None if is_rate && !rest.is_empty() => held,
                None => None,
            };
            held = value;
            column.push(value.map_or(Value::Null, |value| json!(value)));
        }
        Value::Array(column)
    }
}
