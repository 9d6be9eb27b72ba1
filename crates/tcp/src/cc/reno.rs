//! NewReno: additive increase, multiplicative decrease (RFC 5681, RFC 6582).
//!
//! Slow start adds the bytes acknowledged. Congestion avoidance adds one segment for each window of
//! bytes acknowledged (RFC 3465 counts bytes, so delayed ACKs do not halve the growth). A loss
//! halves the window. With `abe`, a mark reduces it by a fifth only (RFC 8511).
//!
//! Deviations:
//! 1. slow start has no limit of two segments per ACK (RFC 3465 §2.3), as in Linux;
//! 2. the base of a reduction is the smaller of the window and FlightSize, so that neither segments
//!    sent by limited transmit nor an unused part of the window count (RFC 5681 §3.2, step 2). If
//!    the window was full in the last round trip, all of it counts, as in Linux
//!    ([`Episode::flight`]);
//! 3. ssthresh is rounded down to whole segments, as in Linux.

use super::hystart::SlowStartState;
use super::{
    Ack, CongestionControl, Descriptor, Episode, INITIAL_WINDOW, Params, Signal, SlowStart, Window,
    scale, whole,
};
use crate::ecn::EcnMode;
use alloc::boxed::Box;

/// NewReno.
pub static RENO: Descriptor = Descriptor {
    name: "reno",
    summary: "NewReno: adds a segment per round trip, halves the window after a loss",
    source: "RFC 5681, RFC 6582",
    ecn: EcnMode::Classic,
    paces: false,
    slow_start: SlowStart::Standard,
    has_abe: true,
    has_hystart: true,
    initial_window: INITIAL_WINDOW,
    create: |params| Box::new(Reno::new(params)),
};

/// State of one connection.
#[derive(Clone, Debug)]
pub struct Reno {
    mss: u64,
    abe: bool,
    slow_start: SlowStartState,
    /// Bytes acknowledged towards the next increase.
    acked: u64,
}

impl Reno {
    /// The state of a new connection.
    pub fn new(params: &Params) -> Self {
        Reno {
            mss: params.mss,
            abe: params.abe,
            slow_start: SlowStartState::new(params),
            acked: 0,
        }
    }
}

impl CongestionControl for Reno {
    fn on_ack(&mut self, ack: &Ack, window: &mut Window) {
        if !ack.allows_growth() {
            return;
        }
        let mut delivered = ack.delivered;
        if window.is_slow_start() {
            delivered = self.slow_start.on_ack(ack, window);
        }
        if delivered > 0 {
            // RFC 3465 §2.1: one segment for each window of bytes acknowledged
            self.acked += delivered;
            while self.acked >= window.cwnd {
                self.acked -= window.cwnd;
                window.cwnd += self.mss;
            }
        }
    }

    fn on_congestion(&mut self, signal: Signal, episode: &Episode, window: &mut Window) {
        let base = window.cwnd.min(episode.flight);
        let reduced = match signal {
            // RFC 8511 §3.1: beta_{ecn} = 0.8 for Reno
            Signal::Ecn if self.abe => scale(base, 4, 5),
            _ => base / 2,
        };
        // RFC 5681 §3.1 equation 4: ssthresh = max(FlightSize / 2, 2 * SMSS)
        window.ssthresh = whole(reduced, self.mss);
        self.acked = 0;
        self.slow_start.on_congestion();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::testing::{self, MSS};

    #[test]
    fn slow_start_adds_what_was_acknowledged_with_and_without_delayed_acks() {
        // Initial window 2, seven segments acknowledged: 9 segments, however they are grouped.
        for groups in [&[1; 7][..], &[2, 2, 2, 1], &[7]] {
            let mut reno = Reno::new(&testing::PARAMS);
            let mut window = testing::window(2);
            for segments in groups {
                reno.on_ack(&testing::ack(segments * MSS), &mut window);
            }
            assert_eq!(window.cwnd, 9 * MSS);
        }
    }

    #[test]
    fn congestion_avoidance_adds_one_segment_per_window() {
        let mut reno = Reno::new(&testing::PARAMS);
        let mut window = testing::window(10);
        window.ssthresh = window.cwnd;
        for _ in 0..9 {
            reno.on_ack(&testing::ack(MSS), &mut window);
        }
        assert_eq!(window.cwnd, 10 * MSS);
        reno.on_ack(&testing::ack(MSS), &mut window);
        assert_eq!(window.cwnd, 11 * MSS);
    }

    #[test]
    fn ssthresh_is_half_the_flight_but_at_least_two_segments() {
        for (signal, abe, flight, expected) in [
            (Signal::Loss, false, 1000, 500),
            (Signal::Timeout, false, 1000, 500),
            // An almost empty pipe: the floor of RFC 5681 equation 4
            (Signal::Timeout, false, 0, 2),
            // RFC 8511: 0.8 for Reno after a mark, no difference after a loss
            (Signal::Ecn, true, 1000, 800),
            (Signal::Ecn, false, 1000, 500),
            (Signal::Loss, true, 1000, 500),
        ] {
            let mut reno = Reno::new(&Params {
                abe,
                ..testing::PARAMS
            });
            let mut window = testing::window(1000);
            let episode = testing::episode(flight * MSS);
            reno.on_congestion(signal, &episode, &mut window);
            assert_eq!(window.ssthresh, expected * MSS, "{signal:?} {abe} {flight}");
        }
    }

    #[test]
    fn a_window_that_is_not_used_does_not_grow() {
        let mut reno = Reno::new(&testing::PARAMS);
        let mut window = testing::window(10);
        let ack = Ack {
            is_cwnd_limited: false,
            ..testing::ack(MSS)
        };
        reno.on_ack(&ack, &mut window);
        assert_eq!(window.cwnd, 10 * MSS);
    }
}
