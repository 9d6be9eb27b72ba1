//! How far a live emulation can be trusted.

use std::collections::BTreeMap;

use sluice_core::{Rate, Span, Time};

use super::percentile::percentiles;
use crate::Release;
use sluice_scenario::Link;
use sluice_scenario::metric::Accuracy;

/// Puts the releases of a run together, in the order in which each pipe made them.
///
/// While a pipe is busy, two packets in a row are due one transmission time of the second apart. Over
/// all such pairs, the rate that the network saw is that of the bytes of the second packets in the time
/// between the actual releases; its error against the configured rate is
/// `sum(transmission times) / sum(times between releases) - 1`.
#[derive(Debug)]
pub struct AccuracyMeter<'a> {
    link: &'a Link,
    last: BTreeMap<&'static str, Release>,
    late: Vec<u64>,
    planned_ns: u64,
    /// Signed: with little to do, jitter can be larger than time.
    actual_ns: i64,
}

impl<'a> AccuracyMeter<'a> {
    /// Nothing was released yet.
    pub fn new(link: &'a Link) -> Self {
        AccuracyMeter {
            link,
            last: BTreeMap::new(),
            late: Vec::new(),
            planned_ns: 0,
            actual_ns: 0,
        }
    }

    /// A packet was released.
    pub fn release(&mut self, release: &Release) {
        self.late.push(release.late.as_ns());
        let last = self.last.insert(release.pipe.word(), release.clone());
        let Some(last) = last else {
            return;
        };
        let pipe = self.link.pipe(release.pipe.direction());
        // A transmission of a busy link starts when the last one ends.
        let delay = pipe.delay.at(last.due.since(Time::ZERO));
        let slot_start = Span::from_ns(last.due.since(Time::ZERO + delay).as_ns());
        let Some(rate) = pipe.rate.at(slot_start) else {
            return;
        };
        let planned = rate.transmission(u64::from(release.len));
        let apart = release.due.since(last.due);
        if rate != Rate::UNLIMITED && apart.as_ns().abs_diff(planned.as_ns()) <= 1 {
            self.planned_ns += planned.as_ns();
            self.actual_ns +=
                apart.as_ns() as i64 + release.late.as_ns() as i64 - last.late.as_ns() as i64;
        }
    }

    /// What it comes to, with the packets that were lost to anything but the queue.
    pub fn finish(mut self, lost: BTreeMap<String, u64>) -> Accuracy {
        let is_measured = self.planned_ns > 0 && self.actual_ns > 0;
        Accuracy {
            rate_error: is_measured.then(|| self.planned_ns as f64 / self.actual_ns as f64 - 1.0),
            busy_ns: self.planned_ns,
            lateness: percentiles(&mut self.late),
            lost,
        }
    }
}
