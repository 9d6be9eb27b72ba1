//! The accuracy of a live emulation.

use std::collections::BTreeMap;

use sluice_core::link::FramingParams;
use sluice_core::{Packet, Rate, Span, Time};

use super::percentile::percentiles;
use crate::Release;
use sluice_scenario::metric::Accuracy;
use sluice_scenario::{Direction, Link};

/// Collects the releases of a run, in the order in which each pipe made them.
///
/// While a pipe is busy, the due times of two consecutive packets differ by the transmission time
/// of the second. The rate that the network saw is the bytes of the second packets divided by the
/// time between the actual releases, over all such pairs. Its error relative to the configured rate
/// is `sum(transmission times) / sum(times between releases) - 1`.
#[derive(Debug)]
pub struct AccuracyMeter {
    link: Link,
    framing: [FramingParams; 2],
    last: BTreeMap<&'static str, Release>,
    late: Vec<u64>,
    planned_ns: u64,
    /// Signed, because in a short time jitter can exceed the time itself.
    actual_ns: i64,
}

impl AccuracyMeter {
    /// Creates a collector without releases.
    pub fn new(link: Link) -> Self {
        AccuracyMeter {
            framing: [Direction::Up, Direction::Down].map(|way| link.pipe(way).params().framing),
            link,
            last: BTreeMap::new(),
            late: Vec::new(),
            planned_ns: 0,
            actual_ns: 0,
        }
    }

    /// Adds a release.
    pub fn release(&mut self, release: &Release) {
        self.late.push(release.late.as_ns());
        let last = self.last.insert(release.pipe.word(), release.clone());
        let Some(last) = last else {
            return;
        };
        let direction = release.pipe.direction();
        let pipe = self.link.pipe(direction);
        let framing = &self.framing[usize::from(direction == Direction::Down)];
        // A transmission of a busy link starts when the last one ends.
        let delay = pipe.delay.at(last.due.since(Time::ZERO));
        let slot_start = Span::from_ns(last.due.since(Time::ZERO + delay).as_ns());
        let Some(rate) = pipe.rate.at(slot_start) else {
            return;
        };
        let planned = rate.transmission(framing.wire_len(&Packet::new(0, release.len)));
        let apart = release.due.since(last.due);
        if rate != Rate::UNLIMITED && apart.as_ns().abs_diff(planned.as_ns()) <= 1 {
            self.planned_ns += planned.as_ns();
            self.actual_ns +=
                apart.as_ns() as i64 + release.late.as_ns() as i64 - last.late.as_ns() as i64;
        }
    }

    /// Returns the result, with the packets that were lost anywhere but in the queue.
    pub fn finish(self, lost: BTreeMap<String, u64>) -> Accuracy {
        let is_measured = self.planned_ns > 0 && self.actual_ns > 0;
        Accuracy {
            rate_error: is_measured.then(|| self.planned_ns as f64 / self.actual_ns as f64 - 1.0),
            busy_ns: self.planned_ns,
            lateness: percentiles(&self.late),
            lost,
        }
    }
}
