//! DOCSIS-PIE: the control path and the data path of RFC 8034 appendix A.
//!
//! Choices where the RFC leaves one open, or assumes a cable modem:
//! 1. With `msr` the delay is that of section 4.2, from the bytes queued and a token bucket that
//!    departures empty. Without it, the delay is the time that the last packet waited, as in RFC
//!    8033, and 0 if nothing is queued at an update.
//! 2. `BUFFER_SIZE` is the limit, in packets or in bytes, whichever the queue is nearer to.
//! 3. Flow queues share a buffer, so its fill level does not describe a single queue. Flow queues
//!    are therefore never inactive, nor is a plain queue with `noonoff`.
//! 4. Section 4.7 has no ECN. With `ecn`, a mark counts as a drop in every respect, but the packet
//!    is not dropped.
//! 5. A delay counts as at most three days.

use alloc::boxed::Box;

use super::classic::Arithmetic;
use super::rfc::{self, Fixed56};
use super::{PieParams, variables};
use crate::aqm::probability::{self, ONE};
use crate::aqm::rest::first_after;
use crate::aqm::{QueueView, Verdict};
use crate::event::{Cx, DropReason, StateValue};
use crate::packet::Packet;
use crate::rng::Rng;
use crate::units::{Rate, Span, Time};

/// The variables of RFC 8034 section A.1.3; times in nanoseconds.
#[derive(Clone, Debug)]
pub(super) struct Docsis {
    probability: u64,
    accumulated: u64,
    /// The latest sample.
    delay: u64,
    old_delay: u64,
    burst_allowance: u64,
    burst_reset: u64,
    activity: Activity,
    may_be_inactive: bool,
    next_update: Time,
    bucket: Option<Box<Bucket>>,
}

/// `aqm_state_`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Activity {
    Inactive,
    Quiescent,
    Active,
}

/// The token bucket of the Maximum Sustained Traffic Rate (RFC 8034 section 3).
#[derive(Clone, Debug)]
struct Bucket {
    msr: Rate,
    peak: Rate,
    capacity: u128,
    /// Tokens at `at`. Tokens are bits times 10^9; a rate earns its number of bits per second per
    /// ns.
    tokens: u128,
    at: Time,
}

impl Docsis {
    /// `control_path_init`.
    pub(super) fn new(params: &PieParams, is_flow: bool) -> Self {
        let may_be_inactive = params.onoff && !is_flow;
        Docsis {
            probability: 0,
            accumulated: 0,
            delay: 0,
            old_delay: 0,
            burst_allowance: 0,
            burst_reset: 0,
            activity: if may_be_inactive {
                Activity::Inactive
            } else {
                Activity::Quiescent
            },
            may_be_inactive,
            next_update: Time::ZERO.saturating_add(params.tupdate),
            bucket: (!params.msr.is_unlimited()).then(|| Box::new(Bucket::new(params))),
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
            Verdict::Pass
        } else if params.ecn
            && packet.ecn.is_capable()
            && self.probability < Fixed56::threshold(params.max_ecnth)
        {
            Verdict::Mark
        } else {
            Verdict::Drop(DropReason::Congestion)
        }
    }

    /// `enque` of a full queue.
    pub(super) fn on_refused(&mut self, _params: &PieParams, _queue: &QueueView, _cx: &mut Cx<'_>) {
        self.accumulated = 0;
    }

    pub(super) fn on_dequeue(
        &mut self,
        _is_estimating: bool,
        packet: &Packet,
        _queue: &QueueView,
        cx: &mut Cx<'_>,
    ) {
        match &mut self.bucket {
            Some(bucket) => bucket.take(packet.len, cx.now),
            None => self.delay = packet.sojourn(cx.now).as_ns(),
        }
    }

    /// `calculate_drop_prob`. Returns whether anything changed, or will change at later updates.
    pub(super) fn update(
        &mut self,
        params: &PieParams,
        _is_estimating: bool,
        queue: &QueueView,
    ) -> bool {
        let before = self.snapshot();
        let mut is_earning = false;
        if let Some(bucket) = &self.bucket {
            let tokens = bucket.tokens_at(self.next_update);
            self.delay = bucket.delay(queue.bytes, tokens);
            is_earning = queue.bytes > 0 && tokens < bucket.capacity;
        } else if queue.bytes == 0 {
            self.delay = 0;
        }
        let delay = self.delay.min(LONGEST);
        let period = params.tupdate.as_ns();
        if self.burst_allowance > 0 {
            self.probability = 0;
            self.burst_allowance = self.burst_allowance.saturating_sub(period);
        } else {
            self.control(params, delay);
        }

        let target = params.target.as_ns();
        let is_quiet = 2 * delay < target
            && 2 * self.old_delay < target
            && self.probability == 0
            && self.burst_allowance == 0;
        // Section 4.3: two quiet samples make PIE quiescent, a further one inactive.
        match self.activity {
            Activity::Active if is_quiet => {
                self.activity = Activity::Quiescent;
                self.burst_reset = 0;
            }
            Activity::Quiescent if is_quiet && self.may_be_inactive => {
                self.burst_reset += period;
                if self.burst_reset > BURST_RESET_TIMEOUT {
                    self.burst_reset = 0;
                    self.activity = Activity::Inactive;
                }
            }
            Activity::Quiescent => self.burst_reset = 0,
            Activity::Inactive | Activity::Active => {}
        }
        self.old_delay = delay;
        self.next_update = self.next_update.saturating_add(params.tupdate);
        is_earning || before != self.snapshot()
    }

    /// Skips the updates that are due.
    pub(super) fn pass_over(
        &mut self,
        params: &PieParams,
        now: Time,
        is_due: fn(Time, Time) -> bool,
    ) {
        self.next_update = first_after(self.next_update, params.tupdate, now, is_due);
    }

    pub(super) fn variables(&self) -> [(&'static str, StateValue); 3] {
        // That of a packet of `mean_packet` bytes; the variable of the RFC goes beyond 1.
        let probability = self.probability.min(Fixed56::ACCUMULATED_LOW);
        variables(
            probability as f64 / ONE as f64,
            Span::from_ns(self.delay),
            Span::from_ns(self.burst_allowance),
        )
    }

    /// Returns `p_base`, the RFC's `drop_prob_` before it is scaled by the size of a packet; and
    /// `activity`: 0 for inactive, 1 for quiescent, 2 for active.
    pub(super) fn further_variables(&self) -> [(&'static str, StateValue); 2] {
        let base = self.probability as f64 / ONE as f64;
        [
            ("p_base", StateValue::Ratio(base)),
            ("activity", StateValue::Count(self.activity as u64)),
        ]
    }

    /// Returns the variables that an update changes.
    fn snapshot(&self) -> (u64, u64, u64, u64, Activity) {
        (
            self.probability,
            self.old_delay,
            self.burst_allowance,
            self.burst_reset,
            self.activity,
        )
    }

    fn control(&mut self, params: &PieParams, delay: u64) {
        let change = probability::gain(params.alpha, delay, params.target.as_ns())
            + probability::gain(params.beta, delay, self.old_delay);
        // Section 4.4: the steps of RFC 8033 continue beyond a tenth.
        let mut step = match rfc::divisor(self.probability) {
            Some(divisor) => change / divisor,
            None if self.probability < ONE => change * 2,
            None if self.probability < 10 * ONE => change * 8,
            None => change * 32,
        };
        if params.capdrop && self.probability >= ONE / 10 {
            step = step.min(i128::from(ONE / 50));
        }
        let mut next = i128::from(self.probability) + step;
        if delay < LATENCY_LOW && self.old_delay < LATENCY_LOW {
            next -= next / 50;
        } else if delay > LATENCY_HIGH {
            next += i128::from(ONE / 50);
        }
        self.probability = next.clamp(0, i128::from(MOST)) as u64;
    }

    /// `drop_early`.
    fn drops_early(
        &mut self,
        params: &PieParams,
        packet: &Packet,
        queue: &QueueView,
        rng: &mut Rng,
    ) -> bool {
        if self.burst_allowance > 0 {
            return false;
        }
        if self.probability == 0 {
            self.accumulated = 0;
        }
        if self.activity == Activity::Inactive {
            let is_below_third = queue.packets.saturating_mul(3) < queue.limit_packets
                && queue.bytes.saturating_mul(3) < queue.limit_bytes;
            if is_below_third {
                return false;
            }
            self.activity = Activity::Quiescent;
        }
        let scaled = if params.bytemode {
            Fixed56::scale(params, self.probability, packet.segment_len())
        } else {
            self.probability.min(Fixed56::ACCUMULATED_LOW)
        };
        if params.derand {
            // A short queue drops nothing, whatever the accumulated probability; 256 is more than
            // enough.
            self.accumulated = self.accumulated.saturating_add(scaled);
        }
        // Below this, nothing is dropped, but the probability accumulates.
        let is_calm = (2 * self.old_delay < params.target.as_ns() && self.probability < ONE / 5)
            || queue.bytes <= 2 * params.mean_packet.as_u64();
        if is_calm || (params.derand && self.accumulated < Fixed56::ACCUMULATED_LOW) {
            return false;
        }
        let is_overdue = params.derand && self.accumulated >= Fixed56::ACCUMULATED_HIGH;
        if !is_overdue && probability::draw(rng) > scaled {
            return false;
        }
        self.accumulated = 0;
        // Section 4.3: the first drop starts the burst protection.
        if self.activity == Activity::Quiescent {
            self.activity = Activity::Active;
            self.burst_allowance = params.max_burst.as_ns();
        }
        true
    }
}

impl Bucket {
    fn new(params: &PieParams) -> Self {
        let capacity = bit_billionths(params.msr_burst.as_u64());
        Bucket {
            msr: params.msr,
            peak: params.peak_rate,
            capacity,
            tokens: capacity,
            at: Time::ZERO,
        }
    }

    fn tokens_at(&self, now: Time) -> u128 {
        let earned = u128::from(self.msr.as_bps()) * u128::from(now.since(self.at).as_ns());
        self.tokens.saturating_add(earned).min(self.capacity)
    }

    fn take(&mut self, bytes: u32, now: Time) {
        let spent = bit_billionths(u64::from(bytes));
        self.tokens = self.tokens_at(now).saturating_sub(spent);
        self.at = now;
    }

    /// RFC 8034 section A.2: the tokens leave at the peak rate, the rest at the sustained one.
    fn delay(&self, bytes: u64, tokens: u128) -> u64 {
        let queued = bit_billionths(bytes);
        let at_peak = queued.min(tokens);
        let ns = (queued - at_peak) / u128::from(self.msr.as_bps())
            + at_peak / u128::from(self.peak.as_bps());
        ns.min(u128::from(LONGEST)) as u64
    }
}

fn bit_billionths(bytes: u64) -> u128 {
    u128::from(bytes) * 8_000_000_000
}

// RFC 8034 section A.1.2.
const BURST_RESET_TIMEOUT: u64 = 1_000_000_000;
const LATENCY_LOW: u64 = 5_000_000;
const LATENCY_HIGH: u64 = 200_000_000;
/// `PROB_LOW` times `MEAN_PKTSIZE` over `MIN_PKTSIZE`: 0.85 * 1024 / 64 = 13.6.
const MOST: u64 = ONE / 10 * 136;
/// 2^48 ns are 78 hours; 32 times its product with a gain is below 2^127.
const LONGEST: u64 = 1 << 48;
