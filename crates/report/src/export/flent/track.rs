//! The samples of one flow as series of flent.

use serde_json::{Map, Value, json};
use sluice_core::{Span, Time};

use sluice_recording::{FlowSample, PingSample};

/// The samples of one flow.
pub(super) struct Track {
    epoch_ns: u64,
    /// Values with their times.
    pub(super) values: Vec<(Time, Option<f64>)>,
    /// Rates, each with the start and the end of the time that it was measured over.
    rates: Vec<(Time, Time, f64)>,
    pub(super) raw: Vec<Value>,
    arrived: Option<(Time, u64)>,
}

impl Track {
    pub(super) fn new(epoch_ns: u64) -> Self {
        Track {
            epoch_ns,
            values: Vec::new(),
            rates: Vec::new(),
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
                self.rates.push((since, sample.time, mbps));
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

    /// Sorts durations by their ends: those of pages that load at the same time can end in any order.
    pub(super) fn sort(&mut self) {
        self.values.sort_by_key(|(at, _)| *at);
        let at = |row: &Value| row["t"].as_f64().unwrap_or_default();
        self.raw.sort_by(|a, b| at(a).total_cmp(&at(b)));
    }

    /// Returns a value for each step, by the end of the step: the mean rate over the step, or the last
    /// of several delays, so that their distribution is preserved.
    pub(super) fn at(&self, instants: &[Time]) -> Value {
        let value = |value: Option<f64>| value.map_or(Value::Null, |value| json!(value));
        let starts = std::iter::once(Time::ZERO).chain(instants.iter().copied());
        let steps = starts.zip(instants.iter().copied());
        let is_rate = self.arrived.is_some();
        let column = steps.map(|(from, to)| match is_rate {
            true => self.mean_rate(from, to),
            false => self.last_delay(from, to),
        });
        Value::Array(column.map(value).collect())
    }

    /// The mean rate of a step, as far as it was measured. A rate applies to all of its time, so that
    /// the rates of all steps add up to the bytes.
    fn mean_rate(&self, from: Time, to: Time) -> Option<f64> {
        let first = self.rates.partition_point(|(_, end, _)| *end <= from);
        let inside = self.rates[first..].iter();
        let inside = inside.take_while(|(start, ..)| *start < to);
        let (mut sum, mut measured) = (0.0, 0.0);
        for (start, end, mbps) in inside {
            let seconds = (*end).min(to).since((*start).max(from)).as_secs_f64();
            sum += mbps * seconds;
            measured += seconds;
        }
        (measured > 0.0).then(|| sum / measured)
    }

    /// The last delay after `from` and up to `to`. The first instant has no time before it.
    fn last_delay(&self, from: Time, to: Time) -> Option<f64> {
        let upto = |at: Time| self.values.partition_point(|(time, _)| *time <= at);
        let before = if to == Time::ZERO { 0 } else { upto(from) };
        self.values[before..upto(to)].last()?.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rates_of_all_steps_add_up_to_the_bytes_of_a_transfer_that_pauses() {
        let ms = |n: u64| Time::ZERO + Span::from_ms(n);
        let mut track = Track::new(0);
        // 125 kB in the first 100 ms, 10 Mbit/s; a pause; 125 kB from 1 s on.
        let samples = [(0, 0), (50, 62_500), (100, 125_000)];
        let again = [(1000, 125_000), (1050, 187_500), (1100, 250_000)];
        for (at, bytes) in samples.into_iter().chain(again) {
            track.sample(&FlowSample {
                received_bytes: Some(bytes),
                ..FlowSample::empty(ms(at), 0)
            });
        }
        let instants: Vec<Time> = (0..=12).map(|n| ms(100 * n)).collect();
        let column = track.at(&instants);
        let rates: Vec<Option<f64>> = column
            .as_array()
            .unwrap()
            .iter()
            .map(Value::as_f64)
            .collect();
        let mut expected = vec![Some(0.0); 13];
        (expected[0], expected[1], expected[11], expected[12]) =
            (None, Some(10.0), Some(10.0), None);
        assert_eq!(rates, expected);
    }

    #[test]
    fn pages_that_end_in_another_order_are_sorted() {
        let ms = |n: u64| Time::ZERO + Span::from_ms(n);
        let mut track = Track::new(0);
        track.delay(ms(450), Span::from_ms(400));
        track.delay(ms(150), Span::from_ms(50));
        track.sort();
        let instants: Vec<Time> = (0..=4).map(|n| ms(200 * n)).collect();
        assert_eq!(track.at(&instants), json!([null, 50.0, null, 400.0, null]));
        let times: Vec<f64> = track
            .raw
            .iter()
            .filter_map(|row| row["t"].as_f64())
            .collect();
        assert_eq!(times, [0.15, 0.45]);
    }
}
