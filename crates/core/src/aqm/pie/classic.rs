//! PIE as specified in RFC 8033 appendix A, with sections 5.1 to 5.5, generic over an arithmetic.

use core::marker::PhantomData;

use super::{PieParams, variables};
use crate::aqm::rest::first_after;
use crate::aqm::{QueueView, Verdict};
use crate::event::{Cx, DropReason, StateValue};
use crate::packet::Packet;
use crate::param::Ratio;
use crate::rng::Rng;
use crate::units::{Span, Time};

/// The arithmetic of probabilities and times.
pub(super) trait Arithmetic {
    /// The probability of a certain drop.
    const ONE: u64;
    /// Accumulated probability below which nothing is dropped: 0.85.
    const ACCUMULATED_LOW: u64;
    /// Accumulated probability above which the next packet is dropped: 8.5.
    const ACCUMULATED_HIGH: u64;
    /// Nanoseconds in a unit of time.
    const UNIT_NS: u64;
    /// Whether a measurement of the departure rate continues after its first sample.
    const FIRST_SAMPLE_GOES_ON: bool;

    /// Returns the units from one instant to a later one.
    fn units_between(from: Time, to: Time) -> u64;
    /// Returns the next probability.
    fn control(params: &PieParams, probability: u64, delay: u64, old_delay: u64) -> u64;
    /// Returns the weighted mean of departure times, with a quarter of the new one.
    fn average(old: u64, new: u64) -> u64;
    /// Converts a ratio to a probability.
    fn threshold(ratio: Ratio) -> u64;
    /// Draws a uniform number below [`Arithmetic::ONE`].
    fn draw(rng: &mut Rng) -> u64;
    /// Scales a probability by a packet's size.
    fn scale(params: &PieParams, probability: u64, len: u32) -> u64;
}

/// The variables of RFC 8033 appendix A.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Classic<N> {
    probability: u64,
    accumulated: u64,
    /// Spans of time in units of the arithmetic.
    delay: u64,
    old_delay: u64,
    burst_allowance: u64,
    /// `None` while inactive.
    next_update: Option<Time>,
    measurement: Measurement,
    /// dummynet's `fq_pie`: an empty queue keeps its last delay.
    keeps_delay: bool,
    arithmetic: PhantomData<N>,
}

/// RFC 8033 section 5.2: the time that 16 KiB take to leave.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Measurement {
    is_on: bool,
    start: Time,
    count: u64,
    /// Mean units of time per [`DQ_THRESHOLD`]; zero before the first sample.
    average: u64,
}

impl<N: Arithmetic> Classic<N> {
    /// Creates a machine that is active from the origin of time on, or according to `onoff`.
    pub(super) fn new(params: &PieParams) -> Self {
        let mut pie = Self::asleep();
        pie.keeps_delay = false;
        if params.onoff {
            // RFC 8033 section 5.3: the queue is measured before PIE is active, but not updated.
            pie.reset(params, Time::ZERO);
        } else {
            pie.activate(params, Time::ZERO);
        }
        pie
    }

    /// Creates the machine of a flow queue that has not been active yet.
    pub(super) fn asleep() -> Self {
        Classic {
            probability: 0,
            accumulated: 0,
            delay: 0,
            old_delay: 0,
            burst_allowance: 0,
            next_update: None,
            measurement: Measurement {
                is_on: false,
                start: Time::ZERO,
                count: 0,
                average: 0,
            },
            keeps_delay: true,
            arithmetic: PhantomData,
        }
    }

    pub(super) fn activate(&mut self, params: &PieParams, now: Time) {
        self.reset(params, now);
        self.next_update = Some(now.saturating_add(params.tupdate));
    }

    pub(super) fn deactivate(&mut self) {
        self.next_update = None;
        self.measurement.is_on = false;
    }

    pub(super) fn next_update(&self) -> Option<Time> {
        self.next_update
    }

    pub(super) fn on_enqueue(
        &mut self,
        params: &PieParams,
        packet: &Packet,
        queue: &QueueView,
        cx: &mut Cx<'_>,
    ) -> Verdict {
        let drops = self.is_active()
            && self.burst_allowance == 0
            && self.drops_early(params, packet, queue, cx.rng);
        // RFC 8033 section 5.1: mark while the probability is below a threshold.
        let marks = drops
            && params.ecn
            && packet.ecn.is_capable()
            && self.probability < N::threshold(params.max_ecnth);
        self.on_arrival(params, queue, cx.now);
        if marks {
            Verdict::Mark
        } else if drops {
            self.accumulated = 0;
            Verdict::Drop(DropReason::Congestion)
        } else {
            Verdict::Pass
        }
    }

    pub(super) fn on_refused(&mut self, params: &PieParams, queue: &QueueView, cx: &mut Cx<'_>) {
        self.on_arrival(params, queue, cx.now);
        self.accumulated = 0;
    }

    pub(super) fn on_overflow(&mut self) {
        self.accumulated = 0;
    }

    pub(super) fn on_dequeue(
        &mut self,
        is_estimating: bool,
        packet: &Packet,
        queue: &QueueView,
        cx: &mut Cx<'_>,
    ) {
        if !self.is_active() {
            return;
        }
        if is_estimating {
            self.measurement.on_dequeue::<N>(packet, queue, cx.now);
        } else {
            self.delay = N::units_between(packet.arrival, cx.now);
        }
    }

    /// RFC 8033 appendix A, `calculate_drop_prob`. Returns whether anything changed.
    pub(super) fn update(
        &mut self,
        params: &PieParams,
        is_estimating: bool,
        queue: &QueueView,
    ) -> bool {
        let before = (self.probability, self.old_delay, self.burst_allowance);
        if is_estimating {
            let average = u128::from(self.measurement.average);
            self.delay = (u128::from(queue.bytes) * average / u128::from(DQ_THRESHOLD)) as u64;
        } else if queue.bytes == 0 && !self.keeps_delay {
            self.delay = 0;
        }
        self.probability = N::control(params, self.probability, self.delay, self.old_delay);
        self.old_delay = self.delay;
        let period = params.tupdate.as_ns() / N::UNIT_NS;
        self.burst_allowance = self.burst_allowance.saturating_sub(period);
        self.next_update = self
            .next_update
            .map(|due| due.saturating_add(params.tupdate));
        before != (self.probability, self.old_delay, self.burst_allowance)
    }

    /// Skips the updates that are due.
    pub(super) fn pass_over(
        &mut self,
        params: &PieParams,
        now: Time,
        is_due: fn(Time, Time) -> bool,
    ) {
        self.next_update = self
            .next_update
            .map(|due| first_after(due, params.tupdate, now, is_due));
    }

    pub(super) fn variables(&self) -> [(&'static str, StateValue); 3] {
        let span = |units: u64| Span::from_ns(units.saturating_mul(N::UNIT_NS));
        variables(
            // Linux lets it grow beyond 1, where it drops every packet.
            self.probability.min(N::ONE) as f64 / N::ONE as f64,
            span(self.delay),
            span(self.burst_allowance),
        )
    }

    fn is_active(&self) -> bool {
        self.next_update.is_some()
    }

    fn reset(&mut self, params: &PieParams, now: Time) {
        self.probability = 0;
        self.accumulated = 0;
        self.old_delay = 0;
        self.burst_allowance = params.max_burst.as_ns() / N::UNIT_NS;
        self.measurement = Measurement {
            is_on: true,
            start: now,
            count: 0,
            average: 0,
        };
    }

    /// RFC 8033 sections 4.4 and 5.3: state changes on every arrival, dropped or not.
    fn on_arrival(&mut self, params: &PieParams, queue: &QueueView, now: Time) {
        if !self.is_active() {
            // In a flow queue, dummynet compares a third of the limit in packets per queue (three
            // by default) with the queue's bytes, so any packet is enough.
            let has_third = queue.packets >= queue.limit_packets / 3
                || queue.bytes >= queue.limit_bytes / 3
                || (self.keeps_delay && queue.bytes > 0);
            if has_third {
                self.activate(params, now);
            }
        }
        let half = params.target.as_ns() / N::UNIT_NS / 2;
        if self.is_active() && self.probability == 0 && self.delay < half && self.old_delay < half {
            self.burst_allowance = params.max_burst.as_ns() / N::UNIT_NS;
            if params.onoff && queue.bytes == 0 {
                self.deactivate();
            }
        }
    }

    /// RFC 8033 appendix A, `drop_early`, with section 5.4.
    fn drops_early(
        &mut self,
        params: &PieParams,
        packet: &Packet,
        queue: &QueueView,
        rng: &mut Rng,
    ) -> bool {
        let half = params.target.as_ns() / N::UNIT_NS / 2;
        let is_calm = (self.old_delay < half && self.probability < N::ONE / 5)
            || queue.bytes <= 2 * params.mean_packet.as_u64();
        if is_calm {
            return false;
        }
        let mut probability = self.probability;
        if params.bytemode {
            probability = N::scale(params, probability, packet.segment_len());
        }
        if self.probability == 0 {
            self.accumulated = 0;
        }
        if params.derand {
            self.accumulated += probability;
        }
        if params.derand && self.accumulated < N::ACCUMULATED_LOW {
            return false;
        }
        if params.derand && self.accumulated >= N::ACCUMULATED_HIGH {
            return true;
        }
        let drops = N::draw(rng) < probability;
        if drops {
            self.accumulated = 0;
        }
        drops
    }
}

impl Measurement {
    fn on_dequeue<N: Arithmetic>(&mut self, packet: &Packet, queue: &QueueView, now: Time) {
        if self.is_on {
            self.count += u64::from(packet.len);
            if self.count >= DQ_THRESHOLD {
                let time = N::units_between(self.start, now);
                let is_first = self.average == 0;
                self.average = if is_first {
                    time
                } else {
                    N::average(self.average, time)
                };
                self.is_on = is_first && N::FIRST_SAMPLE_GOES_ON;
            }
        }
        if !self.is_on && queue.bytes >= DQ_THRESHOLD {
            self.is_on = true;
            self.start = now;
            self.count = 0;
        }
    }
}

/// Bytes whose departure is timed (RFC 8033 section 5.2: 16 KB).
const DQ_THRESHOLD: u64 = 1 << 14;
