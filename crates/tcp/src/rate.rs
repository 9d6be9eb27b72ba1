//! Delivery rate: the rate at which bytes arrive at the receiver, one sample per ACK
//! (draft-cheng-iccrg-delivery-rate-estimation-00).

use crate::scoreboard::{Entry, TxState};
use sluice_core::{Rate, Span, Time};

/// The delivery rate sample of one ACK.
#[derive(Clone, Copy, Debug, Default)]
pub struct RateSample {
    /// Bytes delivered over [`RateSample::interval`]; zero when the ACK gives no sample.
    pub delivered: u64,
    /// The longer of the times in which these bytes were sent and acknowledged.
    pub interval: Span,
    /// Connection-wide count of delivered bytes when the sampled segment left.
    pub prior_delivered: u64,
    /// Whether the application, not the network, may have limited the rate.
    pub is_app_limited: bool,
}

impl RateSample {
    /// The sampled rate; `None` without a sample.
    pub fn rate(&self) -> Option<Rate> {
        let ns = self.interval.as_ns();
        if self.delivered == 0 || ns == 0 {
            return None;
        }
        let bps = u128::from(self.delivered) * 8_000_000_000 / u128::from(ns);
        // The result saturates below `u64::MAX`, which would mean "unlimited".
        Some(Rate::from_bps(
            u64::try_from(bps).unwrap_or(u64::MAX - 1).max(1),
        ))
    }
}

/// Connection state of the estimator (§3.1 of the draft: C.*).
#[derive(Clone, Debug, Default)]
pub(crate) struct RateEstimator {
    /// C.delivered: bytes delivered so far.
    pub delivered: u64,
    delivered_at: Time,
    first_sent_at: Time,
    /// C.app_limited: the delivered count at which the last application-limited byte will have
    /// been acknowledged; zero when not limited.
    app_limited_until: u64,
    /// Bytes and interval of the last sample. The division is done on request only.
    last: (u64, Span),
}

/// The newest of the segments that one ACK delivered, with its transmission time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Newest(Option<(TxState, Time)>);

impl RateEstimator {
    /// §3.2: the state to record with a segment that is sent now. A new sample starts with the
    /// segment if nothing is outstanding (SND.NXT = SND.UNA). It does not start if everything
    /// outstanding is believed lost, since a timeout may be spurious.
    pub fn on_send(&mut self, now: Time, is_first: bool) -> TxState {
        if is_first {
            self.first_sent_at = now;
            self.delivered_at = now;
        }
        TxState {
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            app_limited: self.app_limited_until > 0,
        }
    }

    /// §3.3: UpdateRateSample for one segment that the current ACK delivered.
    pub fn on_delivered(&mut self, now: Time, entry: &Entry, newest: &mut Newest) {
        let tx = entry.tx(self.delivered);
        self.delivered += entry.len();
        self.delivered_at = now;
        if newest
            .0
            .is_none_or(|(newest, _)| tx.delivered >= newest.delivered)
        {
            newest.0 = Some((tx, entry.sent_at));
        }
    }

    /// §3.3: GenerateRateSample once all segments of the ACK have been seen.
    pub fn finish(&mut self, newest: &Newest, min_rtt: Span) -> RateSample {
        if self.app_limited_until > 0 && self.delivered > self.app_limited_until {
            self.app_limited_until = 0;
        }
        let Some((tx, sent_at)) = newest.0 else {
            return RateSample::default();
        };
        self.first_sent_at = sent_at;
        let send_elapsed = sent_at.since(tx.first_sent_at);
        let ack_elapsed = self.delivered_at.since(tx.delivered_at);
        let interval = send_elapsed.max(ack_elapsed);
        let sample = RateSample {
            delivered: self.delivered - tx.delivered,
            interval,
            prior_delivered: tx.delivered,
            is_app_limited: tx.app_limited,
        };
        // §3.3: an interval under the minimum RTT comes from a spurious retransmission.
        if min_rtt != Span::MAX && interval < min_rtt {
            return RateSample {
                delivered: 0,
                ..sample
            };
        }
        self.last = (sample.delivered, sample.interval);
        sample
    }

    /// The rate of the last sample.
    pub fn last_rate(&self) -> Option<Rate> {
        let (delivered, interval) = self.last;
        let sample = RateSample {
            delivered,
            interval,
            ..RateSample::default()
        };
        sample.rate()
    }

    /// §3.4: records that the sender had room in its window and nothing to send.
    pub fn on_app_limited(&mut self, in_flight: u64) {
        self.app_limited_until = (self.delivered + in_flight).max(1);
    }
}
