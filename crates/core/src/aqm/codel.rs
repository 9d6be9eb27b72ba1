//! `codel`: controlled delay. Signals when every packet of the last `interval` waited longer
//! than `target`, and then more often by the square root of the number of signals, until the
//! delay is below `target` again.
//!
//! Source: RFC 8289. Where it is silent:
//! 1. A mark (ECN) advances `count` and `drop_next` as a drop would and ends the dequeue; the
//!    pseudo-code has no ECN.
//! 2. The control law is `t + floor(interval / sqrt(count))` in nanoseconds.
//!
//! Units: nanoseconds; `mtu` is the byte floor `maxpacket` of the pseudo-code.

use super::{Aqm, AqmAlgorithm, QueueView, Verdict};
use crate::event::{Cx, DropReason, StateValue};
use crate::packet::Packet;
use crate::params;
use crate::units::{Bytes, Span, Time};

params! {
    /// What the user sets for CoDel.
    pub struct CodelParams {
        /// sojourn time that a standing queue may have
        target: Span = Span(Span::from_ms(5)), Span(Span::from_ns(1_000)) => Span(Span::from_secs(100)), "RFC 8289 section 4.3: 5 ms";
        /// how long the sojourn time must exceed the target: a worst-case RTT
        interval: Span = Span(Span::from_ms(100)), Span(Span::from_ns(1_000)) => Span(Span::from_secs(100)), "RFC 8289 section 4.3: 100 ms";
        /// mark ECN-capable packets instead of dropping them
        ecn: bool = Flag(false), "the pseudo-code of RFC 8289 drops";
        /// never signal when no more than these bytes remain queued
        mtu: Bytes = Bytes(Bytes::new(1514)), Bytes(Bytes::new(0)) => Bytes(Bytes::new(65536)), "RFC 8289 section 5.4: maxpacket, an Ethernet frame";
    }
}

/// CoDel's memory for one queue.
#[derive(Clone, Debug)]
pub struct Codel {
    params: CodelParams,
    /// Signals since the dropping state was entered.
    count: u32,
    /// `count` at the last entry.
    last_count: u32,
    dropping: bool,
    /// When the sojourn time will have been above target for an interval; none when below.
    first_above: Option<Time>,
    drop_next: Time,
    /// What the answer about the previous packet of the same dequeue left to be done.
    pending: Pending,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pending {
    /// A new dequeue.
    Nothing,
    /// The packet that entered the dropping state was dropped: the next one passes.
    Entered,
    /// A packet was dropped while dropping: the next one decides how to go on.
    Dropped,
}

impl AqmAlgorithm for Codel {
    type Params = CodelParams;
    const DOC: &'static str =
        "controlled delay: signals when a queue stands longer than an interval";

    fn new(params: &CodelParams) -> Self {
        Codel {
            params: params.clone(),
            count: 0,
            last_count: 0,
            dropping: false,
            first_above: None,
            drop_next: Time::ZERO,
            pending: Pending::Nothing,
        }
    }
}

impl Aqm for Codel {
    /// RFC 8289 section 5.5, the routine `deque`, unrolled into one call per packet.
    fn on_dequeue(&mut self, packet: &Packet, queue: &QueueView, cx: &mut Cx<'_>) -> Verdict {
        let may_drop = self.may_drop(packet.sojourn(cx.now), queue.bytes, cx.now);
        match core::mem::replace(&mut self.pending, Pending::Nothing) {
            Pending::Entered => Verdict::Pass,
            Pending::Dropped if may_drop => {
                self.drop_next = self.control_law(self.drop_next);
                self.signal_if_due(packet, cx)
            }
            Pending::Nothing if self.dropping && may_drop => self.signal_if_due(packet, cx),
            Pending::Dropped | Pending::Nothing if self.dropping => {
                self.dropping = false;
                cx.state("dropping", || StateValue::Flag(false));
                Verdict::Pass
            }
            _ if may_drop => self.enter(packet, cx),
            _ => Verdict::Pass,
        }
    }

    fn on_empty(&mut self, cx: &mut Cx<'_>) {
        // `dodequeue` of an empty queue is not ok to drop; only after the drop that entered the
        // dropping state is that ignored.
        if self.pending != Pending::Entered && self.dropping {
            self.dropping = false;
            cx.state("dropping", || StateValue::Flag(false));
        }
        self.pending = Pending::Nothing;
        self.first_above = None;
    }

    fn state(&self, visit: &mut dyn FnMut(&'static str, StateValue)) {
        visit("count", StateValue::Count(u64::from(self.count)));
        visit("dropping", StateValue::Flag(self.dropping));
        visit("drop_next", StateValue::Time(self.drop_next));
        visit(
            "first_above",
            StateValue::Time(self.first_above.unwrap_or(Time::ZERO)),
        );
    }
}

impl Codel {
    /// RFC 8289 section 5.6, the routine `dodequeue`.
    fn may_drop(&mut self, sojourn: Span, bytes_left: u64, now: Time) -> bool {
        if sojourn < self.params.target || bytes_left <= self.params.mtu.as_u64() {
            self.first_above = None;
            return false;
        }
        match self.first_above {
            None => {
                self.first_above = Some(now.saturating_add(self.params.interval));
                false
            }
            Some(at) => now >= at,
        }
    }

    /// In the dropping state and above target: signals if the time for it has come.
    fn signal_if_due(&mut self, packet: &Packet, cx: &mut Cx<'_>) -> Verdict {
        if cx.now < self.drop_next {
            return Verdict::Pass;
        }
        self.count = self.count.saturating_add(1);
        let verdict = if self.params.ecn && packet.ecn.is_capable() {
            self.drop_next = self.control_law(self.drop_next);
            Verdict::Mark
        } else {
            self.pending = Pending::Dropped;
            Verdict::Drop(DropReason::Congestion)
        };
        self.tell(cx);
        verdict
    }

    /// Enters the dropping state with a signal.
    fn enter(&mut self, packet: &Packet, cx: &mut Cx<'_>) -> Verdict {
        // RFC 8289 section 5.5: if the last dropping state ended recently, start near the rate
        // that controlled the queue then. `now - drop_next` is negative when it ended early.
        let delta = self.count.wrapping_sub(self.last_count);
        let is_recent = cx.now.since(self.drop_next) < self.params.interval * 16;
        self.count = if delta > 1 && is_recent { delta } else { 1 };
        self.last_count = self.count;
        self.dropping = true;
        self.drop_next = self.control_law(cx.now);
        self.tell(cx);
        if self.params.ecn && packet.ecn.is_capable() {
            Verdict::Mark
        } else {
            self.pending = Pending::Entered;
            Verdict::Drop(DropReason::Congestion)
        }
    }

    /// RFC 8289 section 5.6: `t + interval / sqrt(count)`.
    fn control_law(&self, t: Time) -> Time {
        let interval = self.params.interval.as_ns();
        let count = u64::from(self.count.max(1));
        // floor(sqrt(interval^2 / count)) is floor(interval / sqrt(count)); below 4.29 s the
        // square fits 64 bits, where the root is 5x cheaper.
        let step = match interval.checked_mul(interval) {
            Some(square) => (square / count).isqrt(),
            None => (u128::from(interval).pow(2) / u128::from(count)).isqrt() as u64,
        };
        t.saturating_add(Span::from_ns(step))
    }

    fn tell(&self, cx: &mut Cx<'_>) {
        cx.state("count", || StateValue::Count(u64::from(self.count)));
        cx.state("dropping", || StateValue::Flag(self.dropping));
        cx.state("drop_next", || StateValue::Time(self.drop_next));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_control_law_gives_the_published_drop_times() {
        // RFC 8289 with interval 100 ms and no recovery: 0, 100, 170.7, 228.4, 278.4, 323.2, 364.0,
        // 401.8, 437.1, 470.5 ms after entering.
        let expected = [
            100.0, 170.7, 228.4, 278.4, 323.2, 364.0, 401.8, 437.1, 470.5,
        ];
        let mut codel = Codel::new(&CodelParams::default());
        let mut t = Time::ZERO;
        for (i, ms) in expected.iter().enumerate() {
            codel.count = i as u32 + 1;
            t = codel.control_law(t);
            let got = t.as_ns() as f64 / 1e6;
            // The published times are rounded to 0.1 ms.
            assert!(
                (got - ms).abs() <= 0.05 + 1e-9,
                "drop {i}: {got} ms, not {ms}"
            );
        }
    }
}
