//! CoDel as specified in RFC 8289, sections 5.5 and 5.6.

use super::{CodelParams, Pending, State};
use crate::aqm::{QueueView, Verdict};
use crate::event::Cx;
use crate::packet::Packet;
use crate::units::{Span, Time};

/// The variables of RFC 8289 section 5.2. An instant of zero stands for none, as there.
#[derive(Clone, Debug, Default)]
pub(super) struct Rfc {
    /// The instant at which the sojourn time will have been above target for an interval.
    first_above: Time,
    drop_next: Time,
    /// Signals since the dropping state was entered.
    count: u32,
    /// `count` at the last entry.
    last_count: u32,
    dropping: bool,
    pending: Pending,
}

impl Rfc {
    /// RFC 8289 section 5.5, the routine `deque`.
    #[inline]
    pub(super) fn on_dequeue(
        &mut self,
        params: &CodelParams,
        packet: &Packet,
        queue: &QueueView,
        cx: &mut Cx<'_>,
    ) -> Verdict {
        let may_drop = self.may_drop(params, packet, queue, cx.now);
        match core::mem::take(&mut self.pending) {
            Pending::Nothing if !self.dropping => {
                if may_drop {
                    self.enter(params, packet, cx)
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
                    self.drop_next = control_law(self.drop_next, params.interval, self.count);
                    self.state().report(cx);
                }
                self.signal_if_due(params, packet, cx)
            }
        }
    }

    pub(super) fn on_empty(&mut self, cx: &mut Cx<'_>) {
        // For an empty queue, `dodequeue` clears `ok_to_drop`. Only after the drop that entered the
        // dropping state is that result ignored.
        if core::mem::take(&mut self.pending) != Pending::Entered && self.dropping {
            self.leave(cx);
        }
        self.first_above = Time::ZERO;
    }

    pub(super) fn state(&self) -> State {
        State {
            count: self.count,
            dropping: self.dropping,
            drop_next: self.drop_next,
            first_above: self.first_above,
        }
    }

    /// RFC 8289 section 5.6, the routine `dodequeue`.
    #[inline]
    fn may_drop(
        &mut self,
        params: &CodelParams,
        packet: &Packet,
        queue: &QueueView,
        now: Time,
    ) -> bool {
        if packet.sojourn(now) < params.target || queue.bytes <= params.mtu.as_u64() {
            self.first_above = Time::ZERO;
            return false;
        }
        if self.first_above == Time::ZERO {
            self.first_above = now.saturating_add(params.interval);
            return false;
        }
        now >= self.first_above
    }

    /// Signals if the next signal is due, in the dropping state and above target.
    #[inline(never)]
    fn signal_if_due(&mut self, params: &CodelParams, packet: &Packet, cx: &mut Cx<'_>) -> Verdict {
        if cx.now < self.drop_next {
            return Verdict::Pass;
        }
        self.count = self.count.saturating_add(1);
        let verdict = params.signal(packet);
        if verdict == Verdict::Mark {
            self.drop_next = control_law(self.drop_next, params.interval, self.count);
        } else {
            self.pending = Pending::Dropped;
        }
        self.state().report(cx);
        verdict
    }

    #[inline(never)]
    fn enter(&mut self, params: &CodelParams, packet: &Packet, cx: &mut Cx<'_>) -> Verdict {
        // RFC 8289 section 5.5: if the last dropping state ended recently, start near the rate that
        // controlled the queue then. `now - drop_next` is negative when it ended early.
        let delta = self.count.wrapping_sub(self.last_count);
        let is_recent = cx.now.since(self.drop_next) < params.interval * 16;
        self.count = if delta > 1 && is_recent { delta } else { 1 };
        self.last_count = self.count;
        self.dropping = true;
        self.drop_next = control_law(cx.now, params.interval, self.count);
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
}

/// RFC 8289 section 5.6: `t + interval / sqrt(count)`.
fn control_law(t: Time, interval: Span, count: u32) -> Time {
    let (interval, count) = (interval.as_ns(), u64::from(count.max(1)));
    // floor(sqrt(interval^2 / count)) is floor(interval / sqrt(count)). Below 4.29 s the square
    // fits 64 bits, where the root is 5x cheaper.
    let step = match interval.checked_mul(interval) {
        Some(square) => (square / count).isqrt(),
        None => (u128::from(interval).pow(2) / u128::from(count)).isqrt() as u64,
    };
    t.saturating_add(Span::from_ns(step))
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
        let mut t = Time::ZERO;
        for (count, ms) in (1..).zip(expected) {
            t = control_law(t, Span::from_ms(100), count);
            let got = t.as_ns() as f64 / 1e6;
            // The published times are rounded to 0.1 ms.
            assert!(
                (got - ms).abs() <= 0.05 + 1e-9,
                "after {count} signals: {got} ms, not {ms}"
            );
        }
    }

    #[test]
    fn the_control_law_is_exact_beyond_64_bits_too() {
        // 100 s / sqrt(2) = 70 710 678 118.654... ns; the square of 100 s in ns needs 74 bits.
        let step = control_law(Time::ZERO, Span::from_secs(100), 2);
        assert_eq!(step.as_ns(), 70_710_678_118);
        // 100 ms / sqrt(3) = 57 735 026.918... ns
        let step = control_law(Time::ZERO, Span::from_ms(100), 3);
        assert_eq!(step.as_ns(), 57_735_026);
    }
}
