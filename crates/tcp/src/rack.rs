//! Loss detection by time: a segment is lost when a segment that was sent sufficiently later has
//! arrived (RACK, RFC 8985 §6).

use crate::scoreboard::Entry;
use sluice_core::{Span, Time};

/// The variables of RFC 8985 §5.3 and §6.
#[derive(Clone, Debug)]
#[repr(C)]
pub(crate) struct Rack {
    /// Transmission time and end of the most recently sent segment that was delivered.
    sent_at: Time,
    end: u64,
    /// The RTT of that segment.
    rtt: Span,
    /// Highest sequence number delivered, and its value before the current ACK.
    fack: u64,
    prior_fack: u64,
    reordering_seen: bool,
    /// The reordering window, in quarters of the minimum RTT.
    multiple: u64,
    /// Recoveries until the multiple returns to one.
    persist: u32,
    /// SND.NXT when the last duplicate was reported; the multiple grows once per round trip.
    dsack_round: Option<u64>,
}

impl Rack {
    pub fn new() -> Self {
        Rack {
            sent_at: Time::ZERO,
            end: 0,
            rtt: Span::ZERO,
            fack: 0,
            prior_fack: 0,
            reordering_seen: false,
            multiple: 1,
            persist: REO_WND_PERSIST,
            dsack_round: None,
        }
    }

    /// Prepares for the segments of one ACK.
    pub fn start_ack(&mut self) {
        self.prior_fack = self.fack;
    }

    /// §6.2 steps 1 to 3, for one newly delivered segment. Segments delivered by the same ACK do
    /// not overtake each other.
    pub fn on_delivered(
        &mut self,
        now: Time,
        entry: &Entry,
        end: u64,
        ts_echo: Time,
        min_rtt: Span,
    ) {
        self.fack = self.fack.max(end);
        if end < self.prior_fack && !entry.was_retransmitted() {
            // §6.2 step 3: a later segment has overtaken this original transmission.
            self.reordering_seen = true;
        }
        let rtt = now.since(entry.sent_at);
        // §6.2 step 2: the ACK may have been sent for the original, not for the retransmission.
        if entry.was_retransmitted() && (ts_echo < entry.sent_at || rtt < min_rtt) {
            return;
        }
        self.rtt = rtt;
        if (entry.sent_at, end) > (self.sent_at, self.end) {
            self.sent_at = entry.sent_at;
            self.end = end;
        }
    }

    /// §6.2 step 4: widens the window after a reported duplicate.
    pub fn on_dsack(&mut self, una: u64, nxt: u64) {
        if self.dsack_round.is_some_and(|round| una >= round) {
            self.dsack_round = None;
        }
        if self.dsack_round.is_none() {
            self.dsack_round = Some(nxt);
            self.multiple += 1;
            self.persist = REO_WND_PERSIST;
        }
    }

    /// §6.2 step 4: narrows the window after 16 recoveries without a duplicate.
    pub fn on_recovered(&mut self) {
        self.persist = self.persist.saturating_sub(1);
        if self.persist == 0 {
            self.multiple = 1;
        }
    }

    /// §6.2 step 4: the reordering window, by which a segment may arrive later than its RTT.
    pub fn reordering_window(&self, expects_loss: bool, min_rtt: Span, srtt: Span) -> Span {
        if !self.reordering_seen && expects_loss {
            return Span::ZERO;
        }
        if min_rtt == Span::MAX {
            return Span::ZERO;
        }
        Span::from_ns(min_rtt.as_ns() / 4 * self.multiple).min(srtt)
    }

    /// §6.2 step 5: whether a transmission is older than the newest one delivered.
    pub fn is_overtaken(&self, sent_at: Time, end: u64) -> bool {
        (sent_at, end) < (self.sent_at, self.end)
    }

    /// §6.2 step 5: the instant from which an overtaken transmission counts as lost. The timer runs
    /// until the latest of these instants.
    pub fn deadline(&self, sent_at: Time, window: Span) -> Time {
        sent_at.saturating_add(self.rtt).saturating_add(window)
    }
}

/// §6.2 step 4.
const REO_WND_PERSIST: u32 = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Span {
        Span::from_ms(n)
    }

    #[test]
    fn the_window_is_a_quarter_rtt_until_a_loss_is_expected() {
        let rack = Rack::new();
        assert_eq!(rack.reordering_window(false, ms(20), ms(40)), ms(5));
        assert_eq!(rack.reordering_window(true, ms(20), ms(40)), Span::ZERO);
    }

    #[test]
    fn duplicates_widen_the_window_once_per_round_and_recoveries_narrow_it() {
        let mut rack = Rack::new();
        rack.reordering_seen = true;
        rack.on_dsack(0, 100);
        rack.on_dsack(50, 150);
        assert_eq!(rack.reordering_window(true, ms(20), ms(40)), ms(10));
        rack.on_dsack(100, 200);
        assert_eq!(rack.reordering_window(true, ms(20), ms(40)), ms(15));
        for _ in 0..15 {
            rack.on_recovered();
        }
        assert_eq!(rack.reordering_window(true, ms(20), ms(40)), ms(15));
        rack.on_recovered();
        assert_eq!(rack.reordering_window(true, ms(20), ms(40)), ms(5));
    }

    #[test]
    fn the_window_never_exceeds_the_smoothed_rtt() {
        let mut rack = Rack::new();
        for round in 0..10 {
            rack.on_dsack(round * 100, round * 100 + 50);
        }
        assert_eq!(rack.reordering_window(false, ms(20), ms(30)), ms(30));
    }
}
