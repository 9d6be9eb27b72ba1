//! Prague: scalable congestion control for L4S (draft-briscoe-iccrg-prague-congestion-control-04).
//!
//! Like DCTCP, Prague reduces the window by half the marked fraction, once per round trip. Unlike
//! DCTCP, it keeps growing meanwhile, paces, needs accurate feedback (RFC 9768) and sends ECT(1).
//! Flows with an RTT under 25 ms behave as if their RTT were 25 ms, so that flows on short paths do
//! not starve others: growth is scaled by the square of the ratio, and once per virtual round trip
//! alpha is updated and the window is reduced.
//!
//! Deviations:
//! 1. no fallback to classic behaviour if the bottleneck looks like an RFC 3168 queue (RFC 9331
//!    §4.3, item 3);
//! 2. RTT dependence is reduced from the end of slow start on, without a transition;
//! 3. the window is at least two segments, where RFC 9331 §4.3, item 5 prefers control below one.
//!
//! Fixed point: alpha in 2^-20, spans in microseconds.

use super::dctcp::Alpha;
use super::hystart::SlowStartState;
use super::{
    Ack, CongestionControl, Descriptor, Episode, INITIAL_WINDOW, Params, Signal, SlowStart, Window,
    scale,
};
use crate::ecn::EcnMode;
use alloc::boxed::Box;
use sluice_core::{Rate, Span, Time};

/// Prague.
pub static PRAGUE: Descriptor = Descriptor {
    name: "prague",
    summary: "Prague: scalable control for L4S with pacing and less RTT dependence; needs ECN",
    source: "draft-briscoe-iccrg-prague-congestion-control-04",
    ecn: EcnMode::Accurate,
    paces: true,
    slow_start: SlowStart::Standard,
    has_abe: false,
    has_hystart: false,
    initial_window: INITIAL_WINDOW,
    create: |params| Box::new(Prague::new(params)),
};

/// State of one connection.
#[derive(Clone, Debug)]
pub struct Prague {
    mss: u64,
    slow_start: SlowStartState,
    alpha: Alpha,
    /// The last update of alpha, and the last reduction of the window.
    updated_at: Time,
    reduced_at: Time,
    /// SND.NXT at the last reduction.
    reduced_end: u64,
    /// Growth of less than a byte, carried to the next ACK.
    remainder: u128,
    pacing_rate: Option<Rate>,
}

impl Prague {
    /// The state of a new connection.
    pub fn new(params: &Params) -> Self {
        Prague {
            mss: params.mss,
            slow_start: SlowStartState::new(params),
            alpha: Alpha::new(),
            updated_at: Time::ZERO,
            reduced_at: Time::ZERO,
            reduced_end: 0,
            remainder: 0,
            pacing_rate: None,
        }
    }

    fn grow(&mut self, ack: &Ack, window: &mut Window) {
        let mut unmarked = ack.delivered.saturating_sub(ack.ce_bytes);
        if window.is_slow_start() {
            let unmarked_ack = Ack {
                delivered: unmarked,
                ..*ack
            };
            unmarked = self.slow_start.on_ack(&unmarked_ack, window);
        }
        if unmarked == 0 || window.is_slow_start() {
            return;
        }
        // One segment per window of unmarked bytes, times (RTT / virtual RTT)^2: the rate then
        // grows by one segment per virtual RTT in each virtual RTT.
        let (rtt, virtual_rtt) = (micros(ack.srtt), micros(virtual_rtt(ack.srtt)));
        let unit = u128::from(window.cwnd) * virtual_rtt * virtual_rtt;
        self.remainder += u128::from(unmarked * self.mss) * rtt * rtt;
        window.cwnd += (self.remainder / unit) as u64;
        self.remainder %= unit;
    }
}

impl CongestionControl for Prague {
    fn on_ack(&mut self, ack: &Ack, window: &mut Window) {
        let round = virtual_rtt(ack.srtt);
        self.alpha.count(ack.delivered, ack.ce_bytes);
        if ack.is_round_start && ack.now.since(self.updated_at) >= round {
            self.updated_at = ack.now;
            self.alpha.update();
        }
        if ack.allows_growth() {
            self.grow(ack, window);
        }
        // The response to a mark is immediate, without smoothing other than that of alpha (RFC 9331
        // §4.4), and happens once per round trip.
        let may_reduce = ack.una > self.reduced_end
            && (self.reduced_at == Time::ZERO || ack.now.since(self.reduced_at) >= round);
        if ack.ce_bytes > 0 && may_reduce && ack.is_open() {
            self.reduced_at = ack.now;
            self.reduced_end = ack.nxt;
            window.cwnd = self.alpha.reduce(window.cwnd).max(2 * self.mss);
            window.ssthresh = window.cwnd;
            self.remainder = 0;
            self.slow_start.on_congestion();
        }
        if ack.srtt > Span::ZERO {
            // Twice the window per round trip in slow start, once afterwards.
            let factor = if window.is_slow_start() { 2 } else { 1 };
            let bps = scale(window.cwnd * 8 * factor, 1_000_000_000, ack.srtt.as_ns());
            self.pacing_rate = Some(Rate::from_bps(bps.max(1)));
        }
    }

    fn on_congestion(&mut self, _signal: Signal, episode: &Episode, window: &mut Window) {
        // RFC 9331 §4.3, item 2: the response to a loss is that of a Reno-compatible TCP.
        let base = window.cwnd.min(episode.flight);
        window.ssthresh = (base / 2).max(2 * self.mss);
        self.remainder = 0;
        self.slow_start.on_congestion();
    }

    fn pacing_rate(&self) -> Option<Rate> {
        self.pacing_rate
    }

    fn burst(&self) -> Span {
        // RFC 9331 §4.3, item 7: bursts of at most 250 us.
        Span::from_us(250)
    }

    fn handles_marks(&self) -> bool {
        true
    }

    fn variable(&self) -> (&'static str, u64) {
        (
            "alpha_ppm",
            scale(self.alpha.value(), 1_000_000, Alpha::ONE),
        )
    }
}

fn virtual_rtt(srtt: Span) -> Span {
    srtt.max(VIRTUAL_RTT)
}

fn micros(span: Span) -> u128 {
    u128::from(span.as_ns() / 1000).max(1)
}

/// Flows with a smaller RTT behave as if they had this one (the draft's §2.4.4).
const VIRTUAL_RTT: Span = Span::from_ms(25);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::testing::{self, MSS};

    fn ack_after(ms: u64, srtt_ms: u64) -> Ack {
        Ack {
            now: Time::ZERO + Span::from_ms(ms),
            srtt: Span::from_ms(srtt_ms),
            una: ms,
            nxt: ms,
            ..testing::ack(MSS)
        }
    }

    #[test]
    fn the_first_mark_halves_the_window_and_ends_slow_start() {
        let mut prague = Prague::new(&testing::PARAMS);
        let mut window = testing::window(100);
        let ack = Ack {
            ce_bytes: MSS,
            is_cwnd_limited: false,
            ..ack_after(100, 30)
        };
        prague.on_ack(&ack, &mut window);
        assert_eq!(
            window,
            Window {
                cwnd: 50 * MSS,
                ssthresh: 50 * MSS
            }
        );
    }

    #[test]
    fn marks_within_one_virtual_round_trip_reduce_once() {
        let mut prague = Prague::new(&testing::PARAMS);
        let mut window = testing::window(100);
        for ms in [100, 110, 120] {
            let ack = Ack {
                ce_bytes: MSS,
                is_cwnd_limited: false,
                ..ack_after(ms, 5)
            };
            prague.on_ack(&ack, &mut window);
        }
        assert_eq!(window.cwnd, 50 * MSS);
    }

    #[test]
    fn a_short_path_grows_by_the_square_of_its_ratio_to_25_ms() {
        let growth = |srtt_ms| {
            let mut prague = Prague::new(&testing::PARAMS);
            let mut window = testing::window(100);
            window.ssthresh = window.cwnd;
            for _ in 0..100 {
                prague.on_ack(&ack_after(100, srtt_ms), &mut window);
            }
            window.cwnd - 100 * MSS
        };
        // 100 segments at a window that grows from 100: sqrt(100^2 + 2 * 100) = 100.995
        assert_eq!(growth(25) / 10, 99);
        assert_eq!(growth(50), growth(25));
        // (5 / 25)^2 = 1/25 of a segment
        assert_eq!(growth(5), 39);
    }
}
