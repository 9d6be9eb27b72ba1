//! CoDel as FreeBSD's dummynet computes it, for every packet.
//!
//! Deviations from RFC 8289 (those of flow queueing are in [`fq`](crate::sched::fq)):
//! 1. `1/sqrt(count)` is a 16-bit fraction: 1 at count 1, then one Newton step per count from 0.7:
//!    0.7070, 0.530, 0.497, 0.4385.
//! 2. On re-entry the count is `count - 2` if it was above 2 and the last scheduled signal is less
//!    than 8 intervals ago, else 1; there is no count of the last entry. A scheduled signal that is
//!    still in the future is not "ago".
//! 3. While dropping, `count` advances only if the queue stays above target after the drop.
//! 4. Time counts whole microseconds.
//! 5. The byte floor is the largest packet that has arrived at this queue so far, at least 500
//!    bytes; `mtu` has no effect.
//! 6. A flow queue that becomes active is not dropping and has no `first_above`.
//! 7. The clock has 32 bits and is compared without regard to its wrap, every 4295 s.
//! 8. The largest packet is stored in 16 bits: a length of 64 KiB or more is reduced modulo 64 KiB,
//!    which may be less than the previous value.

use super::{CodelParams, Pending, State};
use crate::aqm::{QueueView, Verdict};
use crate::event::Cx;
use crate::packet::Packet;
use crate::units::{Span, Time};

/// Instants are microseconds modulo 2^32, and zero stands for none.
#[derive(Clone, Debug)]
pub(super) struct Dummynet {
    count: u32,
    first_above: u32,
    drop_next: u32,
    max_packet: u16,
    /// `1/sqrt(count)` in units of 2^-16; the next count starts from it.
    inv_sqrt: u16,
    dropping: bool,
    pending: Pending,
}

impl Default for Dummynet {
    fn default() -> Self {
        Dummynet {
            count: 0,
            first_above: 0,
            drop_next: 0,
            max_packet: 500,
            inv_sqrt: 0,
            dropping: false,
            pending: Pending::Nothing,
        }
    }
}

impl Dummynet {
    pub(super) fn on_arrival(&mut self, packet: &Packet) {
        let len = packet.segment_len();
        if len > u32::from(self.max_packet) {
            self.max_packet = len as u16;
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
        let now = micros(cx.now.as_ns());
        let may_drop = self.may_drop(params, packet, queue, now);
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
                    self.advance(params);
                    self.state().report(cx);
                }
                self.signal_if_due(params, packet, now, cx)
            }
        }
    }

    pub(super) fn on_empty(&mut self, cx: &mut Cx<'_>) {
        if core::mem::take(&mut self.pending) != Pending::Entered && self.dropping {
            self.leave(cx);
        }
        self.first_above = 0;
    }

    pub(super) fn on_activate(&mut self, cx: &mut Cx<'_>) {
        if self.dropping {
            self.leave(cx);
        }
        self.first_above = 0;
    }

    /// Returns instants as they are stored: modulo 2^32 us.
    pub(super) fn state(&self) -> State {
        let instant = |us: u32| Time::ZERO + Span::from_us(u64::from(us));
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
        packet: &Packet,
        queue: &QueueView,
        now: u32,
    ) -> bool {
        let sojourn = now.wrapping_sub(micros(packet.arrival.as_ns()));
        if sojourn < micros(params.target.as_ns()) || queue.bytes <= u64::from(self.max_packet) {
            self.first_above = 0;
            return false;
        }
        if self.first_above == 0 {
            self.first_above = now.wrapping_add(micros(params.interval.as_ns()));
            return false;
        }
        now >= self.first_above
    }

    #[inline(never)]
    fn signal_if_due(
        &mut self,
        params: &CodelParams,
        packet: &Packet,
        now: u32,
        cx: &mut Cx<'_>,
    ) -> Verdict {
        if now < self.drop_next {
            return Verdict::Pass;
        }
        let verdict = params.signal(packet);
        if verdict == Verdict::Mark {
            self.advance(params);
        } else {
            self.pending = Pending::Dropped;
        }
        self.state().report(cx);
        verdict
    }

    /// Counts a signal and schedules the next one.
    fn advance(&mut self, params: &CodelParams) {
        self.count = self.count.wrapping_add(1);
        self.drop_next = self.control_law(self.drop_next, params);
    }

    #[inline(never)]
    fn enter(
        &mut self,
        params: &CodelParams,
        packet: &Packet,
        now: u32,
        cx: &mut Cx<'_>,
    ) -> Verdict {
        let since = now.wrapping_sub(self.drop_next);
        let recent = micros(params.interval.as_ns()).wrapping_mul(8);
        self.count = if self.count > 2 && since < recent {
            self.count - 2
        } else {
            1
        };
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

    /// `t + interval / sqrt(count)`. Count 1 is exact and prepares the guess 0.7 for count 2.
    fn control_law(&mut self, t: u32, params: &CodelParams) -> u32 {
        let interval = micros(params.interval.as_ns());
        if self.count == 1 {
            self.inv_sqrt = ((7 << 16) / 10) as u16;
            return t.wrapping_add(interval);
        }
        // x (3 - count x^2) / 2. Eight bits are dropped so that the product fits 64.
        let x = u64::from(self.inv_sqrt);
        let factor = (3u64 << 32).wrapping_sub(u64::from(self.count).wrapping_mul(x * x));
        let next = x.wrapping_mul(factor >> (1 + 8)) >> (32 - 8);
        self.inv_sqrt = next as u16;
        t.wrapping_add((u64::from(interval).wrapping_mul(next) >> 16) as u32)
    }
}

/// Whole microseconds in `ns`, modulo 2^32.
const fn micros(ns: u64) -> u32 {
    (ns / 1_000) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::DropCounter;
    use crate::rng::Rng;

    #[test]
    fn one_newton_step_from_seven_tenths_gives_the_fractions_of_freebsd() {
        // 0.7 (3 - 2 * 0.49) / 2 = 0.7070; 0.7070 (3 - 3 * 0.49985) / 2 = 0.5304;
        // 0.5304 (3 - 4 * 0.28132) / 2 = 0.4972; 0.4972 (3 - 5 * 0.24720) / 2 = 0.4385
        let expected = [0.7070, 0.5304, 0.4972, 0.4385];
        let params = CodelParams::default();
        let mut codel = Dummynet {
            count: 1,
            ..Dummynet::default()
        };
        assert_eq!(codel.control_law(7, &params), 100_007);
        for (count, expected) in (2..).zip(expected) {
            codel.count = count;
            let step = codel.control_law(0, &params);
            let got = f64::from(step) / 100_000.0;
            // Four digits, and up to 2^-16 lost per step.
            assert!((got - expected).abs() < 1.5e-4, "{count}: {got}");
        }
    }

    #[test]
    fn a_re_entry_starts_two_below_unless_the_next_signal_lies_ahead() {
        let params = CodelParams::default();
        let (mut rng, mut sink) = (Rng::from_seed(1), DropCounter::default());
        let mut cx = Cx::new(Time::ZERO, &mut rng, &mut sink);
        let mut enter = |now: u32| {
            let mut codel = Dummynet {
                count: 7,
                drop_next: 5_000_000,
                inv_sqrt: 24_770,
                ..Dummynet::default()
            };
            codel.enter(&params, &Packet::new(0, 1500), now, &mut cx);
            codel.count
        };
        assert_eq!(enter(5_000_000), 5);
        assert_eq!(enter(5_799_999), 5);
        assert_eq!(enter(5_800_000), 1);
        assert_eq!(enter(4_999_999), 1);
    }

    #[test]
    fn a_refused_packet_raises_the_byte_floor_too() {
        let mut codel = Dummynet::default();
        codel.on_arrival(&Packet::new(0, 40));
        assert_eq!(codel.max_packet, 500);
        codel.on_arrival(&Packet::new(0, 1500));
        codel.on_arrival(&Packet::new(0, 700));
        assert_eq!(codel.max_packet, 1500);
    }
}
