//! PIE as the Linux kernel computes it.
//!
//! Deviations from RFC 8033:
//! 1. The first update is 500 ms after the start, the others every `tupdate` rounded up to whole
//!    milliseconds.
//! 2. Time counts ticks of 64 ns; gains are sixteenths, truncated to whole ones; probabilities are
//!    2^-56.
//! 3. Above 250 ms of delay an update adds a further 2 %.
//! 4. The probability is not bounded by 1, only by the 64 bits that it has: by 256.
//! 5. The burst allowance is spent by the time between dequeues, not by updates, and re-armed by an
//!    update without congestion, not by an arrival.
//! 6. "Not congested" depends on the delay of the packet that left last.
//! 7. Nothing is dropped while less than two `mtu` are queued.
//! 8. The decay without congestion is 63/64, and omitted when the delay is 0 but bytes are queued.
//! 9. Packets are marked up to and including `max_ecnth`.
//! 10. Where departures are measured, the rate is averaged by eighths.

use super::{PieParams, variables};
use crate::aqm::probability::{self, ONE};
use crate::aqm::rest::first_after;
use crate::aqm::{QueueView, Verdict};
use crate::event::{Cx, DropReason, StateValue};
use crate::packet::Packet;
use crate::param::Ratio;
use crate::rng::Rng;
use crate::units::{Span, Time};

/// Times are ticks of 64 ns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Linux {
    probability: u64,
    accumulated: u64,
    delay: u64,
    old_delay: u64,
    burst: u64,
    /// The last dequeue, or the start of a measurement of departures.
    stamp: Option<u64>,
    /// Bytes in the measurement.
    count: Option<u64>,
    /// Mean bytes per tick in units of 2^-8.
    rate: u32,
    next_update: Time,
}

impl Linux {
    pub(super) fn new(params: &PieParams) -> Self {
        Linux {
            probability: 0,
            accumulated: 0,
            delay: 0,
            old_delay: 0,
            burst: ticks(params.max_burst.as_ns()),
            stamp: None,
            count: None,
            rate: 0,
            next_update: Time::ZERO + Span::from_ms(500),
        }
    }

    pub(super) fn next_update(&self) -> Option<Time> {
        Some(self.next_update)
    }

    pub(super) fn on_enqueue(
        &mut self,
        params: &PieParams,
        packet: &Packet,
        queue: &QueueView,
        cx: &mut Cx<'_>,
    ) -> Verdict {
        if !self.drops_early(params, packet, queue, cx.rng) {
            return Verdict::Pass;
        }
        let threshold = u128::from(MAX) * u128::from(params.max_ecnth.as_billionths());
        if params.ecn
            && packet.ecn.is_capable()
            && u128::from(self.probability) <= threshold / u128::from(Ratio::ONE.as_billionths())
        {
            return Verdict::Mark;
        }
        self.accumulated = 0;
        Verdict::Drop(DropReason::Congestion)
    }

    pub(super) fn on_refused(&mut self, _params: &PieParams, _queue: &QueueView, _cx: &mut Cx<'_>) {
        self.accumulated = 0;
    }

    pub(super) fn on_dequeue(
        &mut self,
        is_estimating: bool,
        packet: &Packet,
        queue: &QueueView,
        cx: &mut Cx<'_>,
    ) {
        let now = ticks(cx.now.as_ns());
        let passed = if is_estimating {
            self.measure(packet, queue, now)
        } else {
            self.delay = now - ticks(packet.arrival.as_ns()).min(now);
            if queue.bytes == 0 {
                self.delay = 0;
            }
            let last = self.stamp.replace(now);
            last.map_or(0, |last| (now - last) as u32)
        };
        self.burst = self.burst.saturating_sub(u64::from(passed));
    }

    /// Makes an update. Returns whether anything changed.
    pub(super) fn update(
        &mut self,
        params: &PieParams,
        is_estimating: bool,
        queue: &QueueView,
    ) -> bool {
        let before = self.clone();
        let old_delay = if is_estimating {
            self.old_delay = self.delay;
            let scaled = (queue.bytes as u32) << RATE_BITS;
            self.delay = u64::from(scaled.checked_div(self.rate).unwrap_or(0));
            self.old_delay
        } else {
            self.old_delay
        };
        let mut may_decay = self.delay != 0 || queue.bytes == 0;
        let old = self.probability;
        let step = self.step(params, old_delay);
        self.probability = old.wrapping_add(step as u64);
        if step > 0 && self.probability < old {
            self.probability = MAX;
            may_decay = false;
        } else if step <= 0 && self.probability > old {
            self.probability = 0;
        }
        if self.delay == 0 && old_delay == 0 && may_decay {
            self.probability -= self.probability / 64;
        }
        let half = ticks(params.target.as_ns()) / 2;
        if self.delay < half
            && self.old_delay < half
            && self.probability == 0
            && (!is_estimating || self.rate > 0)
        {
            self.burst = ticks(params.max_burst.as_ns());
            self.stamp = None;
            self.accumulated = 0;
            self.count = None;
            self.rate = 0;
        }
        if !is_estimating {
            self.old_delay = self.delay;
        }
        let is_changed = *self != before;
        self.next_update = self.next_update.saturating_add(period(params));
        is_changed
    }

    /// Skips the updates that are due.
    pub(super) fn pass_over(
        &mut self,
        params: &PieParams,
        now: Time,
        is_due: fn(Time, Time) -> bool,
    ) {
        self.next_update = first_after(self.next_update, period(params), now, is_due);
    }

    pub(super) fn variables(&self) -> [(&'static str, StateValue); 3] {
        let span = |ticks: u64| Span::from_ns(ticks.saturating_mul(1 << TICK_SHIFT));
        variables(
            self.probability as f64 / ONE as f64,
            span(self.delay),
            span(self.burst),
        )
    }

    /// Returns the change of the probability by an update. Sums and products wrap at 64 bits.
    fn step(&self, params: &PieParams, old_delay: u64) -> i64 {
        let gain = |ratio: Ratio| (ratio.as_fixed(4) * (MAX / TICKS_PER_SECOND)) >> 4;
        let (mut alpha, mut beta) = (gain(params.alpha), gain(params.beta));
        if self.probability < MAX / 10 {
            alpha >>= 1;
            beta >>= 1;
            let mut power = 100;
            while power <= 1_000_000 && self.probability < MAX / power {
                alpha >>= 2;
                beta >>= 2;
                power *= 10;
            }
        }
        let from = |delay: u64| self.delay.wrapping_sub(delay);
        let mut step = alpha
            .wrapping_mul(from(ticks(params.target.as_ns())))
            .wrapping_add(beta.wrapping_mul(from(old_delay))) as i64;
        if step > (MAX / 50) as i64 && self.probability >= MAX / 10 {
            step = (MAX / 100 * 2) as i64;
        }
        if self.delay > ticks(Span::from_ms(250).as_ns()) {
            step = step.wrapping_add((MAX / 50) as i64);
        }
        step
    }

    fn drops_early(
        &mut self,
        params: &PieParams,
        packet: &Packet,
        queue: &QueueView,
        rng: &mut Rng,
    ) -> bool {
        let mtu = params.mtu.as_u64();
        let half = ticks(params.target.as_ns()) / 2;
        if self.burst > 0
            || (self.delay < half && self.probability < MAX / 5)
            || queue.bytes < 2 * mtu
        {
            return false;
        }
        let len = u64::from(packet.segment_len());
        let probability = if params.bytemode && len <= mtu {
            len.wrapping_mul(self.probability / mtu)
        } else {
            self.probability
        };
        if probability == 0 {
            self.accumulated = 0;
        } else {
            self.accumulated = self.accumulated.wrapping_add(probability);
        }
        if self.accumulated < MAX / 100 * 85 {
            return false;
        }
        if self.accumulated >= MAX / 2 * 17 {
            return true;
        }
        let drops = probability::draw(rng) < probability;
        if drops {
            self.accumulated = 0;
        }
        drops
    }

    /// Times the departure of 16 KiB. Returns the ticks that a finished measurement took.
    fn measure(&mut self, packet: &Packet, queue: &QueueView, now: u64) -> u32 {
        if queue.bytes >= DQ_THRESHOLD && self.count.is_none() {
            self.stamp = Some(now);
            self.count = Some(0);
        }
        let Some(count) = &mut self.count else {
            return 0;
        };
        *count += u64::from(packet.len);
        if *count < DQ_THRESHOLD {
            return 0;
        }
        let passed = (now - self.stamp.unwrap_or(now)) as u32;
        let Some(rate) = ((*count as u32) << RATE_BITS).checked_div(passed) else {
            return 0;
        };
        self.rate = if self.rate == 0 {
            rate
        } else {
            self.rate - (self.rate >> 3) + (rate >> 3)
        };
        if queue.bytes < DQ_THRESHOLD {
            self.count = None;
        } else {
            self.count = Some(0);
            self.stamp = Some(now);
        }
        passed
    }
}

/// The probability of one: all ones in 56 bits.
const MAX: u64 = ONE - 1;
/// One tick is 2^6 ns.
const TICK_SHIFT: u32 = 6;
const TICKS_PER_SECOND: u64 = 1_000_000_000 >> TICK_SHIFT;
/// Bytes whose departure is timed.
const DQ_THRESHOLD: u64 = 1 << 14;
/// Fraction bits of a rate.
const RATE_BITS: u32 = 8;

const fn ticks(ns: u64) -> u64 {
    ns >> TICK_SHIFT
}

/// Kernel timers count milliseconds.
fn period(params: &PieParams) -> Span {
    Span::from_ms(params.tupdate.as_ns().div_ceil(1_000_000))
}
