//! `cobalt`: combines CoDel and BLUE; the AQM of CAKE. CoDel signals to flows that respond, and its
//! count falls gradually when the delay is low. BLUE drops packets of flows that do not respond and
//! fill the queue.
//!
//! Sources: Hoeiland-Joergensen, Taht and Morton, "Piece of CAKE" (LANMAN 2018), section III-C, and
//! the Linux implementation in `sch_cake`. Deviations from Linux:
//! 1. `1/sqrt(count)` is exact to 2^-32 for every count. Linux tabulates it below 16 and takes one
//!    Newton step from the last value above.
//! 2. `mtu_time` is a parameter; `cake` computes it from the shaper's rate, and provides the number
//!    of bulk flows.
//! 3. While the queue is empty, BLUE's probability and the count fall as if COBALT were polled all
//!    the time; the missed updates are made at the next arrival. Linux keeps an emptied flow on a
//!    list of decaying flows and polls it only when a dequeue finds no other packet, so there the
//!    fall depends on the traffic of other flows.
//!
//! Units: nanoseconds; BLUE's probability in 2^-32.

use alloc::sync::Arc;

use super::codel::target_above_interval;
use super::{Aqm, AqmAlgorithm, QueueView, Verdict};
use crate::event::{Cx, DropReason, StateValue};
use crate::packet::Packet;
use crate::param::Ratio;
use crate::params;
use crate::units::{Span, Time};

params! {
    /// Parameters of COBALT.
    pub struct CobaltParams {
        /// sojourn time that a standing queue may have
        target: Span = Span(Span::from_ms(5)), Span(Span::from_ns(1_000)) => Span(Span::from_secs(100)), "CAKE `internet`: 5 ms";
        /// time from the first packet above target to the first signal, and scale of the schedule
        interval: Span = Span(Span::from_ms(100)), Span(Span::from_ns(1_000)) => Span(Span::from_secs(100)), "CAKE `internet`: 100 ms";
        /// transmission time of a full packet; delays below four of these cause no signal
        mtu_time: Span = Span(Span::ZERO), Span(Span::ZERO) => Span(Span::from_secs(100)), "CAKE: from the shaper's rate";
        /// mark ECN-capable packets instead of dropping them
        ecn: bool = Flag(true), "CAKE: always";
        /// increase of BLUE's probability when the queue overflows
        increment: Ratio = Ratio(Ratio::from_billionths(3_906_250)), Ratio(Ratio::from_billionths(0)) => Ratio(Ratio::ONE), "CAKE: 1/256";
        /// decrease of BLUE's probability when the queue is empty
        decrement: Ratio = Ratio(Ratio::from_billionths(244_140)), Ratio(Ratio::from_billionths(0)) => Ratio(Ratio::ONE), "CAKE: 1/4096";
    } ; warnings |params: &CobaltParams| {
        target_above_interval(params.target, params.interval).into_iter().collect()
    }
}

/// COBALT's state for one queue.
#[derive(Clone, Debug)]
pub struct Cobalt {
    params: Arc<CobaltParams>,
    /// Steps of the schedule: CoDel's count, which falls while the delay is low.
    count: u32,
    /// `1/sqrt(count)` in 2^-32.
    inv_sqrt: u32,
    dropping: bool,
    /// The next signal. While `count` is 0: until when the queue has been active.
    drop_next: Time,
    /// BLUE's probability in 2^-32.
    blue: u32,
    /// The instant of the last change of BLUE's probability.
    blue_changed: Time,
    /// Flows that take turns, if their number matters.
    bulk_flows: u16,
    is_empty: bool,
}

impl AqmAlgorithm for Cobalt {
    type Params = CobaltParams;
    const DOC: &'static str =
        "CoDel whose count falls gradually, with BLUE against overload (CAKE)";

    fn new(params: &CobaltParams) -> Self {
        Self::for_flow(&Arc::new(params.clone()))
    }

    fn for_flow(params: &Arc<CobaltParams>) -> Self {
        Cobalt {
            params: Arc::clone(params),
            count: 0,
            inv_sqrt: u32::MAX,
            dropping: false,
            drop_next: Time::ZERO,
            blue: 0,
            blue_changed: Time::ZERO,
            bulk_flows: 0,
            is_empty: false,
        }
    }
}

impl Aqm for Cobalt {
    fn on_dequeue(&mut self, packet: &Packet, _queue: &QueueView, cx: &mut Cx<'_>) -> Verdict {
        self.is_empty = false;
        let (signals, is_past) = self.schedule(packet.sojourn(cx.now), cx.now);
        let marks = signals && self.params.ecn && packet.ecn.is_capable();
        // BLUE is for flows that do not respond, so ECN-capable packets are dropped too.
        let is_blue = self.blue > 0 && cx.rng.next_u32() < self.blue;
        let drops = is_blue || (signals && !marks);
        if self.count == 0 {
            // The schedule is idle: record until when the queue has been active.
            self.drop_next = cx.now.saturating_add(self.params.interval);
        } else if is_past && !drops {
            self.drop_next = cx.now;
        }
        if signals || is_blue {
            self.report(cx);
        }
        match (is_blue, drops) {
            (true, _) => Verdict::Drop(DropReason::Overload),
            (false, true) => Verdict::Drop(DropReason::Congestion),
            _ if marks => Verdict::Mark,
            _ => Verdict::Pass,
        }
    }

    fn on_enqueue(&mut self, _packet: &Packet, _queue: &QueueView, cx: &mut Cx<'_>) -> Verdict {
        if core::mem::take(&mut self.is_empty) {
            self.recover(cx);
        }
        Verdict::Pass
    }

    fn on_empty(&mut self, cx: &mut Cx<'_>) {
        if core::mem::replace(&mut self.is_empty, true) {
            return;
        }
        if self.blue > 0 && cx.now.since(self.blue_changed) > self.params.target {
            self.lower_blue(1);
            self.blue_changed = cx.now;
        }
        self.dropping = false;
        if self.count > 0 && cx.now >= self.drop_next {
            self.step(self.count - 1);
        }
        self.report(cx);
    }

    fn on_refused(&mut self, _packet: &Packet, _queue: &QueueView, cx: &mut Cx<'_>) {
        self.on_full(cx);
    }

    fn on_overflow(&mut self, _packets: u32, cx: &mut Cx<'_>) {
        self.on_full(cx);
    }

    fn state(&self, visit: &mut dyn FnMut(&'static str, StateValue)) {
        for (name, value) in self.variables() {
            visit(name, value);
        }
    }
}

impl Cobalt {
    /// Allows the time of two packets of each of `flows` flows.
    pub(crate) fn set_bulk_flows(&mut self, flows: u32) {
        self.bulk_flows = flows.min(u32::from(u16::MAX)) as u16;
    }

    /// CoDel's part: advances the schedule to `now`. Returns whether it signals, and whether its
    /// instant had passed (before a signal or a fall of the count advanced it).
    fn schedule(&mut self, sojourn: Span, now: Time) -> (bool, bool) {
        let params = &*self.params;
        // Linux: two packets of each bulk flow may wait, and four in any case.
        let packets = (2 * u64::from(self.bulk_flows)).max(4);
        let is_over = sojourn > params.target && sojourn > params.mtu_time * packets;
        let mut is_due = self.count > 0 && now >= self.drop_next;
        let mut is_past = now > self.drop_next;
        if is_over {
            if !self.dropping {
                self.dropping = true;
                self.drop_next = self.after(now);
            }
            self.count = self.count.max(1);
        } else {
            self.dropping = false;
        }
        if is_due && self.dropping {
            self.step(self.count.saturating_add(1));
            return (true, now > self.drop_next);
        }
        while is_due {
            self.step(self.count - 1);
            is_due = self.count > 0 && now >= self.drop_next;
            is_past = now > self.drop_next;
        }
        (false, is_past)
    }

    /// Advances the schedule to its next instant, at another count.
    fn step(&mut self, count: u32) {
        self.count = count;
        // floor(2^32 / sqrt(count)); for counts 0 and 1 the nearest value to 1 that fits 32 bits.
        self.inv_sqrt = match count {
            0 | 1 => u32::MAX,
            // floor(2^64 / n) in 64 bits: one more than floor((2^64 - 1) / n) if n divides 2^64.
            n => {
                let n = u64::from(n);
                (u64::MAX / n + u64::from(n.is_power_of_two())).isqrt() as u32
            }
        };
        self.drop_next = self.after(self.drop_next);
    }

    fn after(&self, t: Time) -> Time {
        let interval = u128::from(self.params.interval.as_ns());
        let step = (interval * u128::from(self.inv_sqrt)) >> 32;
        t.saturating_add(Span::from_ns(step as u64))
    }

    /// BLUE's part: the queue overflowed.
    fn on_full(&mut self, cx: &mut Cx<'_>) {
        if cx.now.since(self.blue_changed) > self.params.target {
            let increment = self.params.increment.as_fixed(32).min(u64::from(u32::MAX));
            self.blue = self.blue.saturating_add(increment as u32);
            self.blue_changed = cx.now;
        }
        self.dropping = true;
        self.drop_next = cx.now;
        self.count = self.count.max(1);
        self.report(cx);
    }

    /// Catches up after the queue was empty: makes the updates that were due meanwhile.
    fn recover(&mut self, cx: &mut Cx<'_>) {
        let before = (self.blue, self.count);
        if self.blue > 0 {
            // Consecutive falls are more than `target` apart, as when the queue is polled.
            let step = self.params.target.as_ns() + 1;
            let falls = cx.now.since(self.blue_changed).as_ns() / step;
            self.lower_blue(falls);
            self.blue_changed = self
                .blue_changed
                .saturating_add(Span::from_ns(falls * step));
        }
        while self.count > 0 && cx.now >= self.drop_next {
            self.step(self.count - 1);
        }
        if before != (self.blue, self.count) {
            self.report(cx);
        }
    }

    fn lower_blue(&mut self, times: u64) {
        let decrement = self.params.decrement.as_fixed(32);
        let fall = decrement.saturating_mul(times).min(u64::from(u32::MAX));
        self.blue = self.blue.saturating_sub(fall as u32);
    }

    fn report(&self, cx: &mut Cx<'_>) {
        if cx.is_listening() {
            for (name, value) in self.variables() {
                cx.state(name, || value);
            }
        }
    }

    fn variables(&self) -> [(&'static str, StateValue); 4] {
        [
            ("count", StateValue::Count(u64::from(self.count))),
            ("dropping", StateValue::Flag(self.dropping)),
            ("drop_next", StateValue::Time(self.drop_next)),
            (
                "blue",
                StateValue::Ratio(f64::from(self.blue) / (1u64 << 32) as f64),
            ),
        ]
    }
}
