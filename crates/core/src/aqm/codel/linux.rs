//! CoDel as the Linux kernel computes it, for every packet.
//!
//! `linux` is the current kernel; `linux_2025` is the kernel up to 6.18.10 (and 6.12.116), which
//! differs in item 6.
//!
//! Deviations from RFC 8289 (those of flow queueing are in [`fq`](crate::sched::fq)):
//! 1. `1/sqrt(count)` is a 16-bit fraction that one Newton step improves per change of `count`.
//!    From a fresh start it is 1, 0.500, 0.5625, 0.488, 0.4415, 0.404 where exact is 1, 0.707,
//!    0.577, 0.5, 0.447, 0.408. A re-entry starts from the stale fraction.
//! 2. Time counts ticks of 1024 ns: 5 ms are 4882 ticks, 100 ms are 97656.
//! 3. "Above for an interval" requires `now` strictly after `first_above`.
//! 4. In a flow queue the byte floor compares the backlog of the whole discipline with the MTU. A
//!    queue of another scheduler is a qdisc of its own and is compared by itself.
//! 5. Packets evicted from a flow queue by overflow are added to its `count`.
//! 6. `linux_2025`: a dequeue that finds the queue empty ends the dropping state but keeps
//!    `first_above`; a dequeue that empties the queue by CoDel's own drops resets it. With item 4 a
//!    thin flow then loses the first packet after each pause. `linux` resets it in both cases, and
//!    ends the dropping state, as the RFC does.
//! 7. The clock has 32 bits: an idle time close to a multiple of 4398.05 s looks recent.
//! 8. A `ce_threshold` that is off is 2^31 - 1 ticks, so a packet that waited between 2199 s and
//!    4398 s is marked even then.

use super::{CodelParams, Pending, State};
use crate::aqm::{QueueView, Verdict};
use crate::event::Cx;
use crate::packet::Packet;
use crate::param::Variant;
use crate::units::{Span, Time};

/// Instants are ticks modulo 2^32, and zero stands for none.
#[derive(Clone, Debug, Default)]
pub(super) struct Linux {
    count: u32,
    last_count: u32,
    first_above: u32,
    drop_next: u32,
    /// `1/sqrt(count)` in units of 2^-16.
    inv_sqrt: u16,
    dropping: bool,
    pending: Pending,
    is_flow: bool,
}

impl Linux {
    pub(super) fn alone() -> Self {
        Linux::default()
    }

    pub(super) fn in_flow_queue() -> Self {
        Linux {
            is_flow: true,
            ..Linux::default()
        }
    }

    #[inline]
    pub(super) fn on_dequeue(
        &mut self,
        params: &CodelParams,
        packet: &Packet,
        queue: &QueueView,
        cx: &mut Cx<'_>,
    ) -> Verdict {
        let now = ticks(cx.now.as_ns());
        let may_drop = self.may_drop(params, sojourn(packet, cx.now), queue, now);
        match core::mem::take(&mut self.pending) {
            Pending::Nothing if !self.dropping => {
                if may_drop {
                    self.enter(params, packet, now, cx)
                } else {
                    Verdict::Pass
                }
            }
            Pending::Entered => Verdict::Pass,
            Pending::Nothing | Pending::Dropped if !may_drop => {
                self.leave(cx);
                Verdict::Pass
            }
            pending => {
                if pending == Pending::Dropped {
                    self.drop_next = self.control_law(self.drop_next, params);
                    self.state().report(cx);
                }
                self.signal_if_due(params, packet, now, cx)
            }
        }
    }

    pub(super) fn on_empty(&mut self, params: &CodelParams, cx: &mut Cx<'_>) {
        let pending = core::mem::take(&mut self.pending);
        if pending != Pending::Nothing || params.variant == Variant::Linux {
            self.first_above = 0;
        }
        if pending != Pending::Entered && self.dropping {
            self.leave(cx);
        }
    }

    pub(super) fn on_overflow(&mut self, packets: u32, cx: &mut Cx<'_>) {
        self.count = self.count.wrapping_add(packets);
        self.state().report(cx);
    }

    /// Returns instants as they are stored: in nanoseconds, modulo 2^42.
    pub(super) fn state(&self) -> State {
        let instant = |ticks: u32| Time::from_ns(u64::from(ticks) << TICK_SHIFT);
        State {
            count: self.count,
            dropping: self.dropping,
            drop_next: instant(self.drop_next),
            first_above: instant(self.first_above),
        }
    }

    #[inline]
    fn may_drop(
        &mut self,
        params: &CodelParams,
        sojourn: u32,
        queue: &QueueView,
        now: u32,
    ) -> bool {
        let backlog = if self.is_flow {
            queue.total_bytes
        } else {
            queue.bytes
        };
        if is_before(sojourn, ticks(params.target.as_ns())) || backlog <= params.mtu.as_u64() {
            self.first_above = 0;
            return false;
        }
        if self.first_above == 0 {
            self.first_above = now.wrapping_add(ticks(params.interval.as_ns()));
            return false;
        }
        is_before(self.first_above, now)
    }

    #[inline(never)]
    fn signal_if_due(
        &mut self,
        params: &CodelParams,
        packet: &Packet,
        now: u32,
        cx: &mut Cx<'_>,
    ) -> Verdict {
        if is_before(now, self.drop_next) {
            return Verdict::Pass;
        }
        self.count = self.count.wrapping_add(1);
        self.newton_step();
        let verdict = params.signal(packet);
        if verdict == Verdict::Mark {
            self.drop_next = self.control_law(self.drop_next, params);
        } else {
            self.pending = Pending::Dropped;
        }
        self.state().report(cx);
        verdict
    }

    #[inline(never)]
    fn enter(
        &mut self,
        params: &CodelParams,
        packet: &Packet,
        now: u32,
        cx: &mut Cx<'_>,
    ) -> Verdict {
        let delta = self.count.wrapping_sub(self.last_count);
        let since = now.wrapping_sub(self.drop_next);
        let recent = ticks(params.interval.as_ns()).wrapping_mul(16);
        if delta > 1 && is_before(since, recent) {
            self.count = delta;
            self.newton_step();
        } else {
            self.count = 1;
            self.inv_sqrt = u16::MAX;
        }
        self.last_count = self.count;
        self.dropping = true;
        self.drop_next = self.control_law(now, params);
        self.state().report(cx);
        let verdict = params.signal(packet);
        if verdict != Verdict::Mark {
            self.pending = Pending::Entered;
        }
        verdict
    }

    #[inline(never)]
    fn leave(&mut self, cx: &mut Cx<'_>) {
        self.dropping = false;
        self.state().report(cx);
    }

    /// One step of Newton's method for the root of `1/x^2 - count`: `x (3 - count x^2) / 2`, with
    /// intermediate x in units of 2^-32.
    fn newton_step(&mut self) {
        let x = u64::from(self.inv_sqrt) << 16;
        let square = (x * x) >> 32;
        // A stale x can be so large for the new count that 3 - count x^2 is negative and wraps.
        let factor = (3u64 << 32).wrapping_sub(u64::from(self.count).wrapping_mul(square));
        // The factor drops two bits to leave room for the product.
        let product = (factor >> 2).wrapping_mul(x) >> (32 - 2 + 1);
        self.inv_sqrt = (product >> 16) as u16;
    }

    fn control_law(&self, t: u32, params: &CodelParams) -> u32 {
        let interval = u64::from(ticks(params.interval.as_ns()));
        // The product is interval < 2^32 times a fraction of 2^-32 units.
        let step = (interval * (u64::from(self.inv_sqrt) << 16)) >> 32;
        t.wrapping_add(step as u32)
    }
}

/// One tick is 2^10 ns.
const TICK_SHIFT: u32 = 10;

/// Whole ticks in `ns`, modulo 2^32.
pub(super) const fn ticks(ns: u64) -> u32 {
    (ns >> TICK_SHIFT) as u32
}

/// Returns the sojourn time in ticks. The stamp at enqueue and the clock at dequeue are both
/// truncated to ticks before they are subtracted.
pub(super) const fn sojourn(packet: &Packet, now: Time) -> u32 {
    ticks(now.as_ns()).wrapping_sub(ticks(packet.arrival.as_ns()))
}

/// Returns whether `packet` waited longer than `threshold`. A kernel without a threshold makes this
/// comparison too.
#[inline]
pub(super) const fn exceeds_ce_threshold(threshold: Span, packet: &Packet, now: Time) -> bool {
    let threshold = match threshold {
        Span::MAX => i32::MAX as u32,
        set => ticks(set.as_ns()),
    };
    is_before(threshold, sojourn(packet, now))
}

/// Returns whether `a` is before `b` on a clock that wraps.
const fn is_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::DropCounter;
    use crate::rng::Rng;

    #[test]
    fn the_default_times_are_4882_and_97656_ticks() {
        // 5 000 000 / 1024 = 4882.8, 100 000 000 / 1024 = 97 656.25
        assert_eq!(ticks(Span::from_ms(5).as_ns()), 4882);
        assert_eq!(ticks(Span::from_ms(100).as_ns()), 97_656);
    }

    #[test]
    fn one_newton_step_per_count_gives_the_fractions_of_the_kernel() {
        // Starting at 1: x (3 - 2 x^2) / 2 = 0.5; 0.5 (3 - 3/4) / 2 = 0.5625;
        // 0.5625 (3 - 4 * 0.3164) / 2 = 0.4878; 0.4878 (3 - 5 * 0.23795) / 2 = 0.4415;
        // 0.4415 (3 - 6 * 0.19495) / 2 = 0.4041.
        let expected = [0.5, 0.5625, 0.4878, 0.4415, 0.4041];
        let mut linux = Linux {
            count: 1,
            inv_sqrt: u16::MAX,
            ..Linux::default()
        };
        for (count, expected) in (2..).zip(expected) {
            linux.count = count;
            linux.newton_step();
            let got = f64::from(linux.inv_sqrt) / 65536.0;
            // Each step loses up to 2^-16 and starts from 1 - 2^-16; the figures have four digits.
            assert!((got - expected).abs() < 1.5e-4, "{count}: {got}");
        }
    }

    #[test]
    fn evictions_count_and_a_first_entry_then_starts_from_no_fraction() {
        // count 64 and last_count 0 give delta 64; the fraction is still 0, one step leaves it 0,
        // so the next signal is due at once.
        let params = CodelParams::default();
        let (mut rng, mut sink) = (Rng::from_seed(1), DropCounter::default());
        let mut cx = Cx::new(Time::from_ns(1 << 30), &mut rng, &mut sink);
        let mut linux = Linux::default();
        linux.on_overflow(64, &mut cx);
        let now = ticks(cx.now.as_ns());
        assert!(linux.enter(&params, &Packet::new(0, 1500), now, &mut cx) != Verdict::Pass);
        assert_eq!((linux.count, linux.drop_next), (64, now));
    }

    #[test]
    fn a_ce_threshold_that_is_off_is_2199_seconds() {
        // The kernel's constant for "off" is the largest signed number: 2^31 - 1 ticks of 1024 ns.
        // Delays are compared modulo 2^32 ticks, so those of the other half of the clock exceed it.
        let packet = Packet::new(0, 1500);
        let exceeds = |ticks: u64| {
            exceeds_ce_threshold(Span::MAX, &packet, Time::from_ns(ticks << TICK_SHIFT))
        };
        let off = (1 << 31) - 1;
        assert!(!exceeds(0) && !exceeds(off));
        assert!(exceeds(off + 1) && exceeds((1 << 32) - 2));
        assert!(!exceeds(1 << 32));
    }

    #[test]
    fn an_idle_time_of_one_turn_of_the_clock_looks_recent() {
        // 2^32 ticks of 1024 ns are 4398.05 s.
        let params = CodelParams::default();
        let (mut rng, mut sink) = (Rng::from_seed(1), DropCounter::default());
        let mut cx = Cx::new(Time::ZERO, &mut rng, &mut sink);
        let mut linux = Linux {
            count: 10,
            last_count: 4,
            drop_next: 1_000_000,
            ..Linux::default()
        };
        let turned = ((1u64 << 32) + 1_000_100) << TICK_SHIFT;
        linux.enter(&params, &Packet::new(0, 1500), ticks(turned), &mut cx);
        assert_eq!(linux.count, 6);
        let mut late = Linux {
            count: 10,
            last_count: 4,
            drop_next: 1_000_000,
            ..Linux::default()
        };
        late.enter(
            &params,
            &Packet::new(0, 1500),
            1_000_000 + 16 * 97_656,
            &mut cx,
        );
        assert_eq!(late.count, 1);
    }
}
