//! `blue`: drops every packet with the same probability, which rises when the queue overflows and
//! falls when the link is idle.
//!
//! Source: Feng, Shin, Kandlur and Saha, "The BLUE Active Queue Management Algorithms" (IEEE/ACM
//! Transactions on Networking 10(4), 2002), figure 5. Choices made here:
//! 1. The probability falls when the link becomes idle, and again after each `freeze_time` for
//!    which the link stays idle. The number of dequeue calls does not matter.
//! 2. `freeze_time` counts from the last change in either direction, as in the figure.
//!
//! Units: nanoseconds; probabilities in 2^-56.

use alloc::sync::Arc;

use super::probability::{self, ONE};
use super::{Aqm, AqmAlgorithm, QueueView, Verdict};
use crate::event::{Cx, DropReason, StateValue};
use crate::packet::Packet;
use crate::param::Ratio;
use crate::params;
use crate::units::{Span, Time};

params! {
    /// Parameters of BLUE.
    pub struct BlueParams {
        /// least time between two changes of the probability
        freeze_time: Span = Span(Span::from_ms(100)), Span(Span::from_us(1)) => Span(Span::from_secs(100)), "the authors' ns script: 100 ms";
        /// increase of the probability when the queue overflows
        increment: Ratio = Ratio(Ratio::from_billionths(2_500_000)), Ratio(Ratio::from_billionths(0)) => Ratio(Ratio::ONE), "the authors' ns script: 0.0025";
        /// decrease of the probability when the link is idle
        decrement: Ratio = Ratio(Ratio::from_billionths(250_000)), Ratio(Ratio::from_billionths(0)) => Ratio(Ratio::ONE), "the authors' ns script: 0.00025";
        /// queue length in packets from which an arrival counts as an overflow
        threshold: u64 = Count(u64::MAX), Count(1) => Count(u64::MAX), "BLUE figure 5: only losses";
        /// mark ECN-capable packets instead of dropping them
        ecn: bool = Flag(false), "BLUE section III: mark or drop";
    }
}

/// BLUE's state for one queue.
#[derive(Clone, Debug)]
pub struct Blue {
    params: Arc<BlueParams>,
    probability: u64,
    /// The instant of the last change of the probability; `None` if it never changed.
    changed: Option<Time>,
    is_idle: bool,
}

impl AqmAlgorithm for Blue {
    type Params = BlueParams;
    const DOC: &'static str = "drops with a probability that overflow raises and idleness lowers";

    fn new(params: &BlueParams) -> Self {
        Self::for_flow(&Arc::new(params.clone()))
    }

    fn for_flow(params: &Arc<BlueParams>) -> Self {
        Blue {
            params: Arc::clone(params),
            probability: 0,
            changed: None,
            is_idle: false,
        }
    }
}

impl Aqm for Blue {
    fn on_enqueue(&mut self, packet: &Packet, queue: &QueueView, cx: &mut Cx<'_>) -> Verdict {
        self.wake(cx);
        if queue.packets >= self.params.threshold {
            self.raise(cx);
        }
        if probability::draw(cx.rng) >= self.probability {
            Verdict::Pass
        } else if self.params.ecn && packet.ecn.is_capable() {
            Verdict::Mark
        } else {
            Verdict::Drop(DropReason::Congestion)
        }
    }

    fn on_empty(&mut self, cx: &mut Cx<'_>) {
        if !self.is_idle {
            self.is_idle = true;
            if self.may_change(cx.now) {
                self.lower(1, cx.now, cx);
            }
        }
    }

    fn on_refused(&mut self, _packet: &Packet, _queue: &QueueView, cx: &mut Cx<'_>) {
        self.raise(cx);
    }

    fn on_overflow(&mut self, _packets: u32, cx: &mut Cx<'_>) {
        self.raise(cx);
    }

    fn state(&self, visit: &mut dyn FnMut(&'static str, StateValue)) {
        visit("probability", self.shown());
    }
}

impl Blue {
    fn may_change(&self, now: Time) -> bool {
        self.changed
            .is_none_or(|changed| now.since(changed) > self.params.freeze_time)
    }

    /// Raises the probability: packet loss, or a queue beyond the threshold.
    fn raise(&mut self, cx: &mut Cx<'_>) {
        if self.may_change(cx.now) {
            let increment = self.params.increment.as_fixed(probability::BITS);
            self.probability = (self.probability + increment).min(ONE);
            self.changed = Some(cx.now);
            let shown = self.shown();
            cx.state("probability", || shown);
        }
    }

    /// Lowers the probability for every further freeze time for which the link was idle. The link
    /// is no longer idle.
    fn wake(&mut self, cx: &mut Cx<'_>) {
        if !core::mem::take(&mut self.is_idle) {
            return;
        }
        if let Some(changed) = self.changed {
            let freeze = self.params.freeze_time.as_ns();
            // An exact multiple does not count: more than a freeze time must pass.
            let times = cx.now.since(changed).as_ns().saturating_sub(1) / freeze;
            let until = changed.saturating_add(Span::from_ns(times * freeze));
            self.lower(times, until, cx);
        }
    }

    fn lower(&mut self, times: u64, changed: Time, cx: &mut Cx<'_>) {
        if times > 0 {
            let decrement = self.params.decrement.as_fixed(probability::BITS);
            let fall = decrement.saturating_mul(times);
            self.probability = self.probability.saturating_sub(fall);
            self.changed = Some(changed);
            let shown = self.shown();
            cx.state("probability", || shown);
        }
    }

    fn shown(&self) -> StateValue {
        StateValue::Ratio(self.probability as f64 / ONE as f64)
    }
}
