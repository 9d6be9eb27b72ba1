//! CUBIC's growth in whole segments: one more for each `count` segments acknowledged, as Linux
//! computes it (`bictcp_update`, `tcp_cong_avoid_ai`).
//!
//! The target is a whole number of segments and the quotient is rounded down, which makes growth
//! faster. It is computed again only when the window has changed or 1/32 s has passed. Reno's
//! window always grows by 8/15 of a segment per window (RFC 8312 §4.2: 9/17; RFC 9438 §4.3: 1 from
//! W_max on). The window follows when Reno's window is a whole segment ahead.

use super::{Cubic, ticks};
use crate::cc::Ack;
use sluice_core::{Span, Time};

/// State between two growth steps.
#[derive(Clone, Debug)]
pub(super) struct Steps {
    /// Segments that must be acknowledged for the window to grow by one (`cnt`).
    count: u64,
    /// Bytes acknowledged towards this count (`snd_cwnd_cnt`).
    credit: u64,
    /// The window in segments at the last computation, and the instant of that computation.
    computed: (u64, Time),
    /// Bytes acknowledged towards the next segment of Reno's window, and that window in segments.
    reno_credit: u64,
    reno: u64,
    /// Minimum RTT, without the samples of the first second of an epoch (`delay_min`).
    min_rtt: Span,
}

impl Steps {
    pub const fn new() -> Self {
        Steps {
            count: 2,
            credit: 0,
            computed: (0, Time::ZERO),
            reno_credit: 0,
            reno: 0,
            min_rtt: Span::MAX,
        }
    }

    /// Adds an RTT sample; `epoch` is the start of the current congestion avoidance phase.
    pub fn on_rtt(&mut self, now: Time, rtt: Span, epoch: Option<Time>) {
        if rtt < self.min_rtt && epoch.is_none_or(|epoch| now.since(epoch) >= SETTLING) {
            self.min_rtt = rtt;
        }
    }

    /// Called when the window is reduced.
    pub fn on_congestion(&mut self) {
        self.credit = 0;
    }
}

impl Cubic {
    /// The window of `cwnd` bytes after `delivered` more.
    pub(super) fn grow_whole(&mut self, ack: &Ack, delivered: u64, mut cwnd: u64) -> u64 {
        self.steps.reno_credit += delivered;
        let segments = cwnd / self.mss;
        let (last_segments, last) = self.steps.computed;
        if last_segments != segments || ack.now.since(last) > INTERVAL {
            self.steps.computed = (segments, ack.now);
            self.compute_count(ack.now, segments, delivered);
        }
        let steps = &mut self.steps;
        let step = steps.count * self.mss;
        if steps.credit >= step {
            // The credit gathered while growth was slower counts for one segment.
            steps.credit = 0;
            cwnd += self.mss;
        }
        steps.credit += delivered;
        cwnd += steps.credit / step * self.mss;
        steps.credit %= step;
        cwnd
    }

    fn compute_count(&mut self, now: Time, segments: u64, delivered: u64) {
        let epoch = match self.epoch {
            Some(epoch) => epoch,
            None => {
                self.start_epoch(now, segments * self.mss);
                self.steps.reno_credit = delivered;
                self.steps.reno = segments;
                now
            }
        };
        let steps = &mut self.steps;
        let ahead = match steps.min_rtt {
            Span::MAX => Span::ZERO,
            rtt => rtt,
        };
        let t = ticks(now.since(epoch)) + ticks(ahead);
        // RFC 9438 §4.2, figure 1, the distance from W_max rounded down
        let distance = u128::from(t.abs_diff(self.k));
        let offset = (distance * distance * distance * 4 / 10) >> 60;
        let offset = u64::try_from(offset).unwrap_or(u64::MAX / 2);
        let origin = self.w_max / self.mss;
        let target = if t < self.k {
            origin.saturating_sub(offset)
        } else {
            origin.saturating_add(offset)
        };
        steps.count = if target > segments {
            segments / (target - segments)
        } else {
            100 * segments
        };
        if !self.knows_w_max {
            steps.count = steps.count.min(20);
        }
        let window = (segments * 15 / 8).max(1) * self.mss;
        if steps.reno_credit > window {
            let grown = (steps.reno_credit - 1) / window;
            steps.reno += grown;
            steps.reno_credit -= grown * window;
        }
        if steps.reno > segments {
            steps.count = steps.count.min(segments / (steps.reno - segments));
        }
        // RFC 9438 §4.2: no more than half of the window in an RTT
        steps.count = steps.count.max(2);
    }
}

/// Greatest age of a computation (`HZ / 32`).
const INTERVAL: Span = Span::from_ns(1_000_000_000 / 32);
/// RTT samples of the first second of an epoch do not count for the minimum.
const SETTLING: Span = Span::from_secs(1);
