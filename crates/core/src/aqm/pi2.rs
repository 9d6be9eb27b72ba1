//! `pi2`: proportional integral controller, squared. A controller of the delay adjusts a
//! probability that is linear in the load. Classic traffic is dropped with the square of the
//! probability, because the rate of a Classic sender follows a square root; Scalable traffic is
//! marked with a multiple of the probability.
//!
//! Sources: De Schepper, Bondarenko, Tsang and Briscoe, "PI2: A Linearized AQM for both Classic and
//! Scalable TCP" (CoNEXT 2016), sections 4 and 5; constants of RFC 9332 appendix A.1. Choices made
//! here:
//! 1. The delay is the sojourn time of the packet that left last, or 0 if the queue is empty at an
//!    update.
//! 2. Updates are at multiples of `tupdate` from the origin of time.
//! 3. Decisions are made on arrival, as in the PIE from which the paper's implementation started.
//! 4. Nothing is signalled while twice `mtu` or less is queued (PIE's rule).
//! 5. When the Classic probability reaches `max_classic`, packets of every codepoint are dropped
//!    with it (RFC 9332 section 2.5.1.1 and appendix A.2: overload).
//!
//! Units: nanoseconds; probabilities in 2^-56.

use alloc::sync::Arc;

use super::probability::{self, ONE};
use super::rest::{Repetitions, first_after};
use super::{Aqm, AqmAlgorithm, QueueView, Verdict};
use crate::event::{Cx, DropReason, StateValue};
use crate::packet::{Ecn, Packet};
use crate::param::Ratio;
use crate::params;
use crate::units::{Bytes, Span, Time};

params! {
    /// Parameters of PI2.
    pub struct Pi2Params {
        /// target delay of the controller
        target: Span = Span(Span::from_ms(15)), Span(Span::from_us(1)) => Span(Span::from_secs(10)), "RFC 9332 appendix A.1: 15 ms";
        /// time between two updates of the probability
        tupdate: Span = Span(Span::from_ms(16)), Span(Span::from_us(100)) => Span(Span::from_secs(10)), "RFC 9332 appendix A.1: 16 ms";
        /// gain of the distance from the target, per second
        alpha: Ratio = Ratio(Ratio::from_billionths(160_000_000)), Ratio(Ratio::from_billionths(0)) => Ratio(Ratio::from_billionths(100_000_000_000)), "RFC 9332 appendix A.1: 0.16 Hz";
        /// gain of the change of the delay, per second
        beta: Ratio = Ratio(Ratio::from_billionths(3_200_000_000)), Ratio(Ratio::from_billionths(0)) => Ratio(Ratio::from_billionths(100_000_000_000)), "RFC 9332 appendix A.1: 3.2 Hz";
        /// mark ECN-capable Classic packets instead of dropping them
        ecn: bool = Flag(false), "PI2 section 5: drop, or mark for ECN";
        /// mark ECT(1) and CE packets as Scalable traffic
        l4s: bool = Flag(false), "PI2 section 5: needs a classifier";
        /// factor between the linear probability and that of marking Scalable traffic
        coupling: Ratio = Ratio(Ratio::from_billionths(2_000_000_000)), Ratio(Ratio::from_billionths(0)) => Ratio(Ratio::from_billionths(100_000_000_000)), "PI2 section 5 and RFC 9332 section 2.5.1: k = 2";
        /// Classic probability above which ECN-capable packets are dropped too
        max_classic: Ratio = Ratio(Ratio::from_billionths(250_000_000)), Ratio(Ratio::from_billionths(0)) => Ratio(Ratio::ONE), "RFC 9332 appendix A.1: p_Cmax 25 %";
        /// never signal while at most twice this many bytes are queued
        mtu: Bytes = Bytes(Bytes::new(1514)), Bytes(Bytes::new(0)) => Bytes(Bytes::new(65536)), "an Ethernet frame";
    }
}

/// PI2's state for one queue.
#[derive(Clone, Debug)]
pub struct Pi2 {
    params: Arc<Pi2Params>,
    /// The linear probability p'.
    probability: u64,
    delay: Span,
    old_delay: Span,
    next_update: Time,
    repetitions: Repetitions,
}

impl AqmAlgorithm for Pi2 {
    type Params = Pi2Params;
    const DOC: &'static str =
        "PIE without its tables: drops with the square of a linear probability";

    fn new(params: &Pi2Params) -> Self {
        Self::for_flow(&Arc::new(params.clone()))
    }

    fn for_flow(params: &Arc<Pi2Params>) -> Self {
        Pi2 {
            params: Arc::clone(params),
            probability: 0,
            delay: Span::ZERO,
            old_delay: Span::ZERO,
            next_update: Time::ZERO + params.tupdate,
            repetitions: Repetitions::default(),
        }
    }
}

impl Aqm for Pi2 {
    fn on_enqueue(&mut self, packet: &Packet, queue: &QueueView, cx: &mut Cx<'_>) -> Verdict {
        self.follow(queue, cx, |due, now| due < now);
        let params = &*self.params;
        if queue.bytes <= 2 * params.mtu.as_u64() {
            return Verdict::Pass;
        }
        let is_overloaded = self.classic() >= params.max_classic.as_fixed(probability::BITS);
        let is_scalable = params.l4s && matches!(packet.ecn, Ecn::Ect1 | Ecn::Ce);
        if is_scalable && !is_overloaded {
            let marked = u128::from(self.probability) * u128::from(params.coupling.as_billionths())
                / u128::from(Ratio::ONE.as_billionths());
            return if u128::from(probability::draw(cx.rng)) < marked {
                Verdict::Mark
            } else {
                Verdict::Pass
            };
        }
        // PI2 section 4: the larger of two draws is below p' with the probability p' squared. Both
        // are always drawn, so that every packet takes the same number of draws.
        let larger = probability::draw(cx.rng).max(probability::draw(cx.rng));
        if larger >= self.probability {
            Verdict::Pass
        } else if params.ecn && packet.ecn.is_capable() && !is_overloaded {
            Verdict::Mark
        } else {
            Verdict::Drop(DropReason::Congestion)
        }
    }

    fn on_dequeue(&mut self, packet: &Packet, queue: &QueueView, cx: &mut Cx<'_>) -> Verdict {
        let mut before = *queue;
        before.bytes += u64::from(packet.len);
        self.follow(&before, cx, |due, now| due <= now);
        self.delay = packet.sojourn(cx.now);
        Verdict::Pass
    }

    fn on_refused(&mut self, _packet: &Packet, queue: &QueueView, cx: &mut Cx<'_>) {
        self.follow(queue, cx, |due, now| due < now);
    }

    fn on_overflow(&mut self, _packets: u32, cx: &mut Cx<'_>) {
        // An arrival at another queue caused the drops, and arrivals are processed before timers.
        self.end_rest(cx.now, |due, now| due < now);
    }

    fn next_timer(&self) -> Option<Time> {
        (!self.repetitions.is_at_rest()).then_some(self.next_update)
    }

    fn on_timer(&mut self, queue: &QueueView, cx: &mut Cx<'_>) {
        self.catch_up(queue, cx, |due, now| due <= now);
    }

    fn state(&self, visit: &mut dyn FnMut(&'static str, StateValue)) {
        for (name, value) in self.variables() {
            visit(name, value);
        }
    }
}

impl Pi2 {
    /// Brings the controller up to date with an event that changes the queue.
    fn follow(&mut self, queue: &QueueView, cx: &mut Cx<'_>, is_due: fn(Time, Time) -> bool) {
        self.end_rest(cx.now, is_due);
        self.catch_up(queue, cx, is_due);
        self.repetitions.end();
    }

    /// Skips the updates that were due while nothing changed.
    fn end_rest(&mut self, now: Time, is_due: fn(Time, Time) -> bool) {
        if self.repetitions.is_at_rest() {
            self.pass_over(now, is_due);
        }
        self.repetitions.end();
    }

    fn pass_over(&mut self, now: Time, is_due: fn(Time, Time) -> bool) {
        self.next_update = first_after(self.next_update, self.params.tupdate, now, is_due);
    }

    /// Makes the updates that are due, each at its own instant.
    fn catch_up(&mut self, queue: &QueueView, cx: &mut Cx<'_>, is_due: fn(Time, Time) -> bool) {
        let now = cx.now;
        while is_due(self.next_update, now) {
            let due = self.next_update;
            let is_changed = self.update(queue);
            cx.now = due;
            for (name, value) in self.variables() {
                cx.state(name, || value);
            }
            cx.now = now;
            self.next_update = due.saturating_add(self.params.tupdate);
            self.repetitions.note(is_changed);
            if !is_changed {
                // The other updates that are due would not change anything either.
                self.pass_over(now, is_due);
            }
        }
    }

    /// PI2 section 4: `p' += alpha (delay - target) + beta (delay - old delay)`.
    fn update(&mut self, queue: &QueueView) -> bool {
        let before = (self.probability, self.old_delay);
        if queue.bytes == 0 {
            self.delay = Span::ZERO;
        }
        let params = &*self.params;
        let delay = self.delay.as_ns();
        let step = probability::gain(params.alpha, delay, params.target.as_ns())
            + probability::gain(params.beta, delay, self.old_delay.as_ns());
        let next = i128::from(self.probability) + step;
        self.probability = next.clamp(0, i128::from(ONE)) as u64;
        self.old_delay = self.delay;
        before != (self.probability, self.old_delay)
    }

    /// Returns the square of the linear probability.
    fn classic(&self) -> u64 {
        ((u128::from(self.probability) * u128::from(self.probability)) >> probability::BITS) as u64
    }

    fn variables(&self) -> [(&'static str, StateValue); 3] {
        let ratio = |p: u64| StateValue::Ratio(p as f64 / ONE as f64);
        [
            ("probability", ratio(self.probability)),
            ("classic", ratio(self.classic())),
            ("delay", StateValue::Span(self.delay)),
        ]
    }
}
