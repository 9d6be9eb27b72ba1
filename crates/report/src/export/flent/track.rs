//! The samples of one flow as series of flent.

use serde_json::{Map, Value, json};
use sluice_core::{Span, Time};

use sluice_recording::{FlowSample, PingSample};

/// The samples of one flow.
pub(super) struct Track {
    epoch_ns: u64,
    /// Values with their times.
    pub(super) values: Vec<(Time, Option<f64>)>,
    pub(super) raw: Vec<Value>,
    arrived: Option<(Time, u64)>,
}

impl Track {
    pub(super) fn new(epoch_ns: u64) -> Self {
        Track {
            epoch_ns,
            values: Vec::new(),
            raw: Vec::new(),
            arrived: None,
        }
    }

    pub(super) fn instant(&self, at: Time) -> f64 {
        // Exact to a microsecond: a double holds 53 bits, and a time of today in ns takes 61.
        (self.epoch_ns / 1000 + at.as_ns() / 1000) as f64 / 1e6
    }

    pub(super) fn sample(&mut self, sample: &FlowSample) {
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

    pub(super) fn probe(&mut self, probe: &PingSample) {
        // A call has no round trip: its delay is the one-way delay.
        let took = probe.rtt.or(probe.up).or(probe.down);
        let ms = took.map(Span::as_ms_f64);
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

    /// Adds a duration that ended at `at`.
    pub(super) fn delay(&mut self, at: Time, took: Span) {
        let ms = took.as_ms_f64();
        self.values.push((at, Some(ms)));
        self.raw.push(json!({ "t": self.instant(at), "val": ms }));
    }

    /// Returns the mean of the values in each step, by the end of the step. For probes it is the
    /// last value, so that their distribution is preserved.
    pub(super) fn at(&self, instants: &[Time]) -> Value {
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
                // A rate measured over more than a step applies until the next one.
                None if is_rate && !rest.is_empty() => held,
                None => None,
            };
            held = value;
            column.push(value.map_or(Value::Null, |value| json!(value)));
        }
        Value::Array(column)
    }
}
