//! Slow start and its early end, shared by Reno and CUBIC.
//!
//! HyStart++ (RFC 9406) leaves slow start when the minimum RTT of a round has grown. Then
//! conservative slow start follows, which grows a quarter as fast. So a false alarm costs little.
//! The older HyStart of Linux's CUBIC (Ha and Rhee, "Taming the Elephants", 2011) enters congestion
//! avoidance at once when the RTT has grown or a train of ACKs is longer than half the minimum RTT.

use super::{Ack, Params, SlowStart, Window};
use sluice_core::{Span, Time};

/// Grows the window below ssthresh.
#[derive(Clone, Debug)]
pub struct SlowStartState {
    mode: SlowStart,
    mss: u64,
    is_paced: bool,
    /// SND.NXT when the round began (RFC 9406 §4.2: windowEnd).
    round_end: u64,
    round_start: Time,
    last_ack: Time,
    samples: u32,
    round_min: Span,
    last_round_min: Span,
    /// Minimum RTT at the start of conservative slow start; `None` in other phases.
    baseline: Option<Span>,
    conservative_rounds: u32,
    /// Remainder of a divided growth.
    remainder: u64,
    /// Linux's HyStart: minimum RTT of the connection.
    delay_min: Span,
}

impl SlowStartState {
    /// The state before the first round.
    pub fn new(params: &Params) -> Self {
        SlowStartState {
            mode: params.slow_start,
            mss: params.mss,
            is_paced: params.is_paced,
            round_end: 0,
            round_start: Time::ZERO,
            last_ack: Time::ZERO,
            samples: 0,
            round_min: Span::MAX,
            last_round_min: Span::MAX,
            baseline: None,
            conservative_rounds: 0,
            remainder: 0,
            delay_min: Span::MAX,
        }
    }

    /// Resets the state after congestion. HyStart++ is not used after the first loss (RFC 9406 §4.3
    /// recommends it for the initial slow start only).
    pub fn on_congestion(&mut self) {
        self.baseline = None;
        self.remainder = 0;
        if self.mode == SlowStart::HystartPlusPlus {
            self.mode = SlowStart::Standard;
        }
    }

    /// Grows the window by the bytes that `ack` delivered, up to ssthresh; returns the bytes left
    /// for congestion avoidance.
    pub fn on_ack(&mut self, ack: &Ack, window: &mut Window) -> u64 {
        match self.mode {
            SlowStart::Auto | SlowStart::Standard => {}
            SlowStart::HystartPlusPlus => self.observe_plus_plus(ack, window),
            SlowStart::Hystart => self.observe_linux(ack, window),
        }
        if !window.is_slow_start() {
            return ack.delivered;
        }
        let mut growth = ack.delivered;
        if self.mode == SlowStart::HystartPlusPlus {
            // RFC 9406 §4.2: cwnd += min(N, L * SMSS), and a quarter of it in conservative slow
            // start; §4.3: L = 8 unless paced.
            if !self.is_paced {
                growth = growth.min(8 * self.mss);
            }
            if self.baseline.is_some() {
                self.remainder += growth;
                growth = self.remainder / CSS_GROWTH_DIVISOR;
                self.remainder %= CSS_GROWTH_DIVISOR;
                window.cwnd += growth;
                return 0;
            }
        }
        // RFC 3465 §2.2 without its limit L (§2.3), as Linux: a byte for each byte acknowledged.
        let growth = growth.min(window.ssthresh - window.cwnd);
        window.cwnd += growth;
        if window.is_slow_start() {
            0
        } else {
            ack.delivered - growth
        }
    }

    fn observe_plus_plus(&mut self, ack: &Ack, window: &mut Window) {
        if ack.una > self.round_end || self.round_start == Time::ZERO {
            self.round_end = ack.nxt;
            self.round_start = ack.now;
            self.last_round_min = self.round_min;
            self.round_min = Span::MAX;
            self.samples = 0;
            if self.baseline.is_some() {
                self.conservative_rounds += 1;
                // RFC 9406 §4.2: after CSS_ROUNDS rounds slow start ends.
                if self.conservative_rounds >= CSS_ROUNDS {
                    window.ssthresh = window.cwnd;
                    self.baseline = None;
                    return;
                }
            }
        }
        let Some(rtt) = ack.rtt else { return };
        self.round_min = self.round_min.min(rtt);
        self.samples += 1;
        if self.samples < N_RTT_SAMPLE {
            return;
        }
        match self.baseline {
            // RFC 9406 §4.2: the RTT has decreased again, so the exit was spurious.
            Some(baseline) if self.round_min < baseline => self.baseline = None,
            Some(_) => {}
            None if self.last_round_min != Span::MAX => {
                // RFC 9406 §4.2: RttThresh = max(4 ms, min(lastRoundMinRTT / 8, 16 ms))
                let eighth = Span::from_ns(self.last_round_min.as_ns() / 8);
                let threshold = eighth.clamp(MIN_RTT_THRESH, MAX_RTT_THRESH);
                if self.round_min >= self.last_round_min + threshold {
                    self.baseline = Some(self.round_min);
                    self.conservative_rounds = 0;
                }
            }
            None => {}
        }
    }

    fn observe_linux(&mut self, ack: &Ack, window: &mut Window) {
        let Some(rtt) = ack.rtt else { return };
        self.delay_min = self.delay_min.min(rtt);
        if ack.una > self.round_end || self.round_start == Time::ZERO {
            self.round_end = ack.nxt;
            self.round_start = ack.now;
            self.last_ack = ack.now;
            self.round_min = Span::MAX;
            self.samples = 0;
        }
        if window.cwnd < LINUX_LOW_WINDOW * self.mss {
            return;
        }
        if ack.now.since(self.last_ack) <= LINUX_ACK_DELTA {
            self.last_ack = ack.now;
            // The sum of the minimum RTT and the time to send four of the largest super-packets,
            // which counts as 1 ms at most. Half of the sum, unless pacing spreads the ACKs.
            let burst = super::scale(4 * 65_536, ack.srtt.as_ns(), (2 * window.cwnd).max(1));
            let threshold = self.delay_min.as_ns() + burst.min(1_000_000);
            let threshold = if self.is_paced {
                threshold
            } else {
                threshold / 2
            };
            let threshold = Span::from_ns(threshold);
            if ack.now.since(self.round_start) > threshold {
                window.ssthresh = window.cwnd;
            }
        }
        self.round_min = self.round_min.min(rtt);
        if self.samples < N_RTT_SAMPLE {
            self.samples += 1;
            return;
        }
        let eighth = Span::from_ns(self.delay_min.as_ns() / 8);
        let threshold = eighth.clamp(MIN_RTT_THRESH, MAX_RTT_THRESH);
        if self.round_min > self.delay_min + threshold {
            window.ssthresh = window.cwnd;
        }
    }
}

/// RFC 9406 §4.3. The first three are the same in Linux's HyStart.
const MIN_RTT_THRESH: Span = Span::from_ms(4);
const MAX_RTT_THRESH: Span = Span::from_ms(16);
const N_RTT_SAMPLE: u32 = 8;
const CSS_GROWTH_DIVISOR: u64 = 4;
const CSS_ROUNDS: u32 = 5;
/// Linux `hystart_low_window` (segments) and `hystart_ack_delta_us`.
const LINUX_LOW_WINDOW: u64 = 16;
const LINUX_ACK_DELTA: Span = Span::from_ms(2);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::testing;

    fn params(slow_start: SlowStart) -> Params {
        Params {
            slow_start,
            ..testing::PARAMS
        }
    }

    /// Processes rounds of ten ACKs with the given RTTs; returns the window after each.
    fn windows(mode: SlowStart, rtts_ms: &[u64]) -> alloc::vec::Vec<(u64, bool)> {
        let mut slow_start = SlowStartState::new(&params(mode));
        let mut window = testing::window(100);
        let mut una = 0;
        rtts_ms
            .iter()
            .map(|rtt| {
                // A round ends when everything sent at its start has been acknowledged.
                let nxt = una + 10_000;
                for _ in 0..10 {
                    una += 1000;
                    let ack = Ack {
                        now: Time::from_ns(una),
                        rtt: Some(Span::from_ms(*rtt)),
                        una,
                        nxt,
                        ..testing::ack(1000)
                    };
                    slow_start.on_ack(&ack, &mut window);
                }
                (window.cwnd / 1000, window.is_slow_start())
            })
            .collect()
    }

    #[test]
    fn standard_slow_start_ignores_the_rtt() {
        let seen = windows(SlowStart::Standard, &[20, 30, 60]);
        assert_eq!(seen, [(110, true), (120, true), (130, true)]);
    }

    #[test]
    fn hystart_plus_plus_slows_down_to_a_quarter_and_ends_after_five_rounds() {
        // 20 -> 24 ms is the threshold of 4 ms; the eighth sample of that round decides, so
        // its last three ACKs grow a quarter of a segment each: 7 + 0.75.
        let seen = windows(
            SlowStart::HystartPlusPlus,
            &[20, 24, 24, 24, 24, 24, 24, 24],
        );
        assert_eq!(seen[0], (110, true));
        assert_eq!(seen[1], (117, true));
        // Four more rounds of 2.5 segments; with the fifth round slow start ends.
        assert_eq!(seen[5], (127, true));
        assert!(!seen[6].1);
    }

    #[test]
    fn hystart_plus_plus_resumes_when_the_rtt_shrinks_again() {
        let seen = windows(SlowStart::HystartPlusPlus, &[20, 24, 20, 20]);
        assert!(seen.iter().all(|(_, slow)| *slow));
        assert_eq!(seen[3].0 - seen[2].0, 10);
    }

    #[test]
    fn a_growth_below_the_threshold_changes_nothing() {
        let seen = windows(SlowStart::HystartPlusPlus, &[20, 23, 26, 29]);
        assert_eq!(seen[3], (140, true));
    }

    #[test]
    fn linux_hystart_ends_at_once() {
        let seen = windows(SlowStart::Hystart, &[20, 25]);
        assert!(seen[0].1);
        assert!(!seen[1].1);
    }
}
