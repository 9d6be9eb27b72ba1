//! The rows of a flow, of which only what is drawn is kept: a long run has tens of millions.

use sluice_core::{Span, Time};

use super::seconds;
use crate::model::Series;
use sluice_recording::metrics::Arrived;
use sluice_recording::{FlowSample, PingSample};

/// The samples of a flow.
#[derive(Debug, Default)]
pub struct Samples {
    start: Time,
    /// The instant of the last one.
    pub last: Option<Time>,
    /// The payload that had arrived: none when the flow starts.
    pub arrived: Vec<Arrived>,
    cwnd: Points,
    srtt_ms: Points,
    retransmits: Points,
}

impl Samples {
    /// Creates the samples of a flow that starts at `start`.
    pub fn new(start: Time) -> Samples {
        Samples {
            start,
            arrived: vec![(start, 0)],
            ..Samples::default()
        }
    }

    /// Adds a sample.
    pub fn push(&mut self, sample: &FlowSample) {
        let time = sample.time;
        self.last = Some(time);
        if let Some(bytes) = sample.received_bytes
            && time > self.start
        {
            self.arrived.push((time, bytes));
        }
        self.cwnd.push(time, sample.cwnd.map(|n| n as f64));
        self.srtt_ms.push(time, sample.srtt.map(Span::as_ms_f64));
        let retransmits = sample.retransmits.map(|n| n as f64);
        self.retransmits.push(time, retransmits);
    }

    /// Takes the congestion windows, the smoothed round-trip times in ms, and the retransmissions.
    pub fn take_states(&mut self) -> [Option<Series>; 3] {
        let all = [&mut self.cwnd, &mut self.srtt_ms, &mut self.retransmits];
        all.map(|points| std::mem::take(points).series())
    }
}

/// The points of a curve.
#[derive(Debug, Default)]
struct Points {
    time_s: Vec<f64>,
    value: Vec<f64>,
}

impl Points {
    fn push(&mut self, time: Time, value: Option<f64>) {
        if let Some(value) = value {
            self.time_s.push(seconds(time));
            self.value.push(value);
        }
    }

    fn series(self) -> Option<Series> {
        (!self.time_s.is_empty()).then(|| Series::new(self.time_s, self.value))
    }
}

/// The probes of a flow, with their delays in ms. A delay that was not measured is no number.
#[derive(Debug, Default)]
pub struct Echoes {
    time_s: Vec<f64>,
    two_way: Vec<f64>,
    up: Vec<f64>,
    down: Vec<f64>,
    has_up: bool,
    has_down: bool,
}

impl Echoes {
    /// Adds a probe.
    pub fn push(&mut self, probe: &PingSample) {
        let ms = |delay: Option<Span>| delay.map_or(f64::NAN, Span::as_ms_f64);
        self.time_s.push(seconds(probe.time));
        self.two_way.push(ms(probe.rtt));
        self.up.push(ms(probe.up));
        self.down.push(ms(probe.down));
        self.has_up |= probe.up.is_some();
        self.has_down |= probe.down.is_some();
    }

    /// Returns the delays there and back, and those of each direction if any was measured.
    pub fn series(self) -> (Series, Option<Series>, Option<Series>) {
        let up = Series::new(self.time_s.clone(), self.up);
        let up = self.has_up.then_some(up);
        let down = Series::new(self.time_s.clone(), self.down);
        let down = self.has_down.then_some(down);
        (Series::new(self.time_s, self.two_way), up, down)
    }
}
