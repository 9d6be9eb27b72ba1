//! CUBIC (RFC 9438): the window is a cubic function of the time since the last reduction, flat
//! around the size at which the last loss occurred, and never below the window of Reno.
//!
//! Fixed point: time in 2^-20 s (0.95 us), windows in bytes. The cube of a time and its product
//! with C fit 128 bits; the cube root is an exact integer root.
//!
//! Deviations:
//! 1. slow start is that of [`super::hystart`], with HyStart++ only on request (RFC 9438 §4.10
//!    recommends it);
//! 2. the base of a reduction is the smaller of the window and FlightSize. If the window was full,
//!    the base is the window, as in Linux (RFC 9438 §4.6 allows this);
//! 3. idle periods of the application are excluded from the epoch (RFC 9438 §4.2 and §5.8), but not
//!    periods in which it sends less than the window allows, as in Linux;
//! 4. the target is the value of the curve one *minimum* RTT ahead, as in Linux. RFC 9438 §4.2 uses
//!    the smoothed RTT. With a full buffer of one second, the two differ by one second of growth;
//! 5. until the first loss has determined W_max, a window grows by at least a twentieth per RTT, as
//!    in Linux: a curve that starts flat at the end of slow start would probe for seconds;
//! 6. growth is counted in whole segments and not computed for every ACK, as in Linux (see
//!    `cubic/whole.rs`), unless [`Growth::Bytes`] selects the formula;
//! 7. a reduction is counted in whole segments, rounded down, as in Linux: 0.7 of four is two, and
//!    a window that is only some bytes below W_max does not release bandwidth (§4.7). A mark leaves
//!    at least two segments; §4.6 allows one;
//! 8. an undone reduction restores the window only, as in Linux. With [`Growth::Bytes`] it also
//!    restores W_max, but the curve starts again (§4.9.2 restores all of it).
//!
//! Defaults: C = 0.4, beta = 0.7 (RFC 9438 §5.1, §4.6), fast convergence on (§4.7). RFC 8312 has
//! the same formulas in §4.1 to §4.6, but its W_est is a function of time, and its target has no
//! bounds.

mod whole;

use super::hystart::SlowStartState;
use super::{
    Ack, CongestionControl, Descriptor, Episode, Growth, INITIAL_WINDOW, Params, Signal, SlowStart,
    Window, scale, whole,
};
use crate::ecn::EcnMode;
use alloc::boxed::Box;
use sluice_core::{Span, Time};
use whole::Steps;

/// CUBIC.
pub static CUBIC: Descriptor = Descriptor {
    name: "cubic",
    summary: "CUBIC: a cubic function of the time since the last loss; the default of Linux",
    source: "RFC 9438",
    ecn: EcnMode::Classic,
    paces: false,
    slow_start: SlowStart::Hystart,
    has_abe: true,
    has_hystart: true,
    initial_window: INITIAL_WINDOW,
    create: |params| Box::new(Cubic::new(params)),
};

/// State of one connection.
#[derive(Clone, Debug)]
pub struct Cubic {
    mss: u64,
    abe: bool,
    slow_start: SlowStartState,
    /// Window before the last reduction, after fast convergence (RFC 9438 §4.1.2: W_max).
    w_max: u64,
    /// Whether a loss has determined W_max; a timeout resets it (RFC 9438 §4.8).
    knows_w_max: bool,
    /// Window before the last reduction (cwnd_prior).
    cwnd_prior: u64,
    /// Start of the current congestion avoidance phase (t_epoch).
    epoch: Option<Time>,
    /// Time at which the curve reaches W_max, in 2^-20 s since the epoch (K).
    k: u64,
    /// Window of Reno (W_est), and the part of it that is less than a byte.
    w_est: u64,
    w_est_remainder: u64,
    cwnd_remainder: u64,
    growth: Growth,
    steps: Steps,
    /// The state before the last reduction.
    saved: (u64, bool, u64),
}

impl Cubic {
    /// The state of a new connection.
    pub fn new(params: &Params) -> Self {
        Cubic {
            mss: params.mss,
            abe: params.abe,
            slow_start: SlowStartState::new(params),
            w_max: 0,
            knows_w_max: false,
            cwnd_prior: 0,
            epoch: None,
            k: 0,
            w_est: 0,
            w_est_remainder: 0,
            cwnd_remainder: 0,
            growth: params.growth,
            steps: Steps::new(),
            saved: (0, false, 0),
        }
    }

    fn start_epoch(&mut self, now: Time, cwnd: u64) {
        self.epoch = Some(now);
        if self.w_max > cwnd {
            self.k = k_of(self.w_max - cwnd, self.mss);
        } else {
            // RFC 9438 §4.8 and §4.10: after a timeout, and after a slow start that no loss ended,
            // the curve starts at its flat point.
            self.k = 0;
            self.w_max = cwnd;
        }
        // RFC 9438 §4.3: W_est starts at cwnd_epoch.
        self.w_est = cwnd;
        self.w_est_remainder = 0;
        self.cwnd_remainder = 0;
    }

    /// RFC 9438 §4.2, figure 1: W_cubic(t) = C * (t - K)^3 + W_max.
    fn w_cubic(&self, t: u64) -> u64 {
        let distance = u128::from(t.abs_diff(self.k));
        // C = 4/10 segments per cubic second; 60 = 3 * 20 binary places of time
        let offset = (distance * distance * distance * u128::from(self.mss * 4) / 10) >> 60;
        let offset = u64::try_from(offset).unwrap_or(u64::MAX / 2);
        if t < self.k {
            self.w_max.saturating_sub(offset)
        } else {
            self.w_max.saturating_add(offset)
        }
    }

    fn avoid_congestion(&mut self, ack: &Ack, delivered: u64, window: &mut Window) {
        let cwnd = window.cwnd;
        let epoch = match self.epoch {
            Some(epoch) => epoch,
            None => {
                self.start_epoch(ack.now, cwnd);
                ack.now
            }
        };
        let t = ticks(ack.now.since(epoch));
        // RFC 9438 §4.3, figure 4: W_est += alpha_cubic * segments_acked / cwnd, where alpha is
        // 3 (1 - beta) / (1 + beta) = 9/17 until W_est reaches cwnd_prior, and 1 from there on.
        let (numerator, denominator) = if self.w_est < self.cwnd_prior {
            (9, 17)
        } else {
            (1, 1)
        };
        self.w_est_remainder += delivered * self.mss * numerator;
        let unit = cwnd * denominator;
        self.w_est += self.w_est_remainder / unit;
        self.w_est_remainder %= unit;
        let is_reno_friendly = self.w_cubic(t) < self.w_est;
        if is_reno_friendly && self.knows_w_max {
            // RFC 9438 §4.3: in the Reno-friendly region the window is W_est.
            window.cwnd = cwnd.max(self.w_est);
            return;
        }
        // RFC 9438 §4.2: the target one RTT ahead, between cwnd and 1.5 cwnd
        let mut target = self
            .w_cubic(t + ticks(ack.min_rtt))
            .clamp(cwnd, cwnd + cwnd / 2);
        if !self.knows_w_max {
            target = target.max(cwnd + cwnd / 20);
        }
        // RFC 9438 §4.4 and §4.5: (target - cwnd) / cwnd for each segment acknowledged
        self.cwnd_remainder += delivered * (target - cwnd);
        window.cwnd += self.cwnd_remainder / cwnd;
        self.cwnd_remainder %= cwnd;
        if is_reno_friendly {
            window.cwnd = window.cwnd.max(self.w_est);
        }
    }
}

impl CongestionControl for Cubic {
    fn on_ack(&mut self, ack: &Ack, window: &mut Window) {
        if let Some(rtt) = ack.rtt {
            self.steps.on_rtt(ack.now, rtt, self.epoch);
        }
        if !ack.allows_growth() {
            return;
        }
        let mut delivered = ack.delivered;
        if window.is_slow_start() {
            delivered = self.slow_start.on_ack(ack, window);
        }
        if delivered > 0 {
            match self.growth {
                Growth::Segments => window.cwnd = self.grow_whole(ack, delivered, window.cwnd),
                Growth::Bytes => self.avoid_congestion(ack, delivered, window),
            }
        }
    }

    fn on_congestion(&mut self, signal: Signal, episode: &Episode, window: &mut Window) {
        self.saved = (self.w_max, self.knows_w_max, self.cwnd_prior);
        let cwnd = whole(window.cwnd.min(episode.flight), self.mss);
        self.cwnd_prior = cwnd;
        // RFC 9438 §4.7: a flow that did not reach its old W_max releases more bandwidth.
        self.w_max = if cwnd < self.w_max {
            scale(cwnd, 17, 20)
        } else {
            cwnd
        };
        self.knows_w_max = signal != Signal::Timeout;
        if signal == Signal::Timeout {
            // RFC 9438 §4.8: the next congestion avoidance starts with K = 0.
            self.w_max = 0;
        }
        let reduced = match signal {
            // RFC 8511 §3.1: beta_{ecn} = 0.85 for CUBIC
            Signal::Ecn if self.abe => scale(cwnd, 17, 20),
            // RFC 9438 §4.6: beta_cubic = 0.7
            _ => scale(cwnd, 7, 10),
        };
        window.ssthresh = whole(reduced, self.mss);
        self.epoch = None;
        self.steps.on_congestion();
        self.slow_start.on_congestion();
    }

    fn on_undo(&mut self, _window: &mut Window) {
        self.epoch = None;
        if self.growth == Growth::Segments {
            // Linux restores the window only (`tcp_reno_undo_cwnd`).
            return;
        }
        // RFC 9438 §4.9.2: restores the variables from before the reduction.
        (self.w_max, self.knows_w_max, self.cwnd_prior) = self.saved;
    }

    fn on_resume(&mut self, _now: Time, idle: Span, _window: &mut Window) {
        // RFC 9438 §5.8: the curve does not advance while the application sends nothing.
        if let Some(epoch) = &mut self.epoch {
            *epoch = epoch.saturating_add(idle);
        }
    }

    fn variable(&self) -> (&'static str, u64) {
        ("w_max", self.w_max)
    }
}

/// A span in 2^-20 s: 2^20 / 10^9 = 2^11 / 1953125.
const fn ticks(span: Span) -> u64 {
    span.as_ns() * 2048 / 1_953_125
}

/// RFC 9438 §4.2, figure 2: K = cbrt((W_max - cwnd_epoch) / C), in 2^-20 s.
fn k_of(difference: u64, mss: u64) -> u64 {
    cube_root(((u128::from(difference) * 10) << 60) / u128::from(4 * mss))
}

/// The largest integer whose cube is at most `value`, bit by bit from the top.
fn cube_root(value: u128) -> u64 {
    let mut root: u128 = 0;
    for bit in (0..=42).rev() {
        let candidate = root | 1 << bit;
        if candidate * candidate * candidate <= value {
            root = candidate;
        }
    }
    root as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::testing::{self, MSS};

    const SECOND: u64 = 1 << 20;

    #[test]
    fn the_cube_root_is_exact() {
        for root in [0_u128, 1, 2, 7, 1000, 123_456_789, (1 << 42) - 1] {
            let cube = root * root * root;
            assert_eq!(u128::from(cube_root(cube)), root);
            if root > 0 {
                assert_eq!(u128::from(cube_root(cube + 1)), root);
                assert_eq!(u128::from(cube_root(cube - 1)), root - 1);
            }
        }
    }

    #[test]
    fn k_is_the_time_to_climb_back() {
        // (1000 - 700) / 0.4 = 750; cbrt(750) = 9.0856029641...
        let k = k_of(300 * MSS, MSS);
        assert_eq!(k, (9.085_602_964_160_7 * SECOND as f64) as u64);
    }

    #[test]
    fn the_curve_is_cubic_around_w_max() {
        let mut cubic = Cubic::new(&testing::PARAMS);
        cubic.w_max = 1000 * MSS;
        cubic.start_epoch(Time::ZERO, 700 * MSS);
        // t = 0 is cwnd_epoch, up to the rounding of K by one tick: 0.4 * 3 * 9.09^2 * 1e-6
        // segments = 0.1 byte.
        assert!(cubic.w_cubic(0).abs_diff(700 * MSS) <= 1);
        assert_eq!(cubic.w_cubic(cubic.k), 1000 * MSS);
        // 5 s after K: 0.4 * 125 = 50 segments more
        assert_eq!(cubic.w_cubic(cubic.k + 5 * SECOND), 1050 * MSS);
        // 2 s before K: 0.4 * 8 = 3.2 segments less
        assert_eq!(cubic.w_cubic(cubic.k - 2 * SECOND), 996_800 * MSS / 1000);
    }

    #[test]
    fn reductions_follow_beta_and_abe() {
        for (signal, abe, expected) in [
            (Signal::Loss, false, 700),
            (Signal::Ecn, false, 700),
            (Signal::Ecn, true, 850),
            (Signal::Loss, true, 700),
        ] {
            let mut cubic = Cubic::new(&Params {
                abe,
                ..testing::PARAMS
            });
            let mut window = testing::window(1000);
            cubic.on_congestion(signal, &testing::episode(1000 * MSS), &mut window);
            assert_eq!(window.ssthresh, expected * MSS);
        }
    }

    #[test]
    fn reductions_count_in_whole_segments() {
        // 0.7 * 4 = 2.8, 0.7 * 6 = 4.2, 0.7 * 2 = 1.4 with the floor of two
        for (segments, expected) in [(4, 2), (6, 4), (2, 2)] {
            let mut cubic = Cubic::new(&testing::PARAMS);
            let mut window = testing::window(segments);
            let episode = testing::episode(segments * MSS);
            cubic.on_congestion(Signal::Loss, &episode, &mut window);
            assert_eq!(window.ssthresh, expected * MSS);
        }
        // 500 bytes less than at the last loss are the same ten segments: no bandwidth is released.
        let mut cubic = Cubic::new(&testing::PARAMS);
        let mut window = testing::window(10);
        window.cwnd += 700;
        let flight = window.cwnd;
        cubic.on_congestion(Signal::Loss, &testing::episode(flight), &mut window);
        window.cwnd = 10 * MSS + 200;
        cubic.on_congestion(Signal::Loss, &testing::episode(10 * MSS + 200), &mut window);
        assert_eq!(cubic.w_max, 10 * MSS);
    }

    #[test]
    fn fast_convergence_lowers_w_max_of_a_shrinking_flow() {
        let mut cubic = Cubic::new(&testing::PARAMS);
        let mut window = testing::window(1000);
        cubic.on_congestion(Signal::Loss, &testing::episode(1000 * MSS), &mut window);
        assert_eq!(cubic.w_max, 1000 * MSS);
        window.cwnd = 800 * MSS;
        cubic.on_congestion(Signal::Loss, &testing::episode(800 * MSS), &mut window);
        // 800 * (1 + 0.7) / 2 = 680
        assert_eq!(cubic.w_max, 680 * MSS);
    }

    #[test]
    fn the_reno_friendly_window_grows_by_nine_seventeenths_of_a_segment_per_window() {
        let mut cubic = Cubic::new(&testing::PARAMS);
        let mut window = testing::window(70);
        window.ssthresh = 70 * MSS;
        cubic.w_max = 100 * MSS;
        cubic.knows_w_max = true;
        cubic.cwnd_prior = 100 * MSS;
        // An RTT of 1 ms: the cubic function hardly moves, so W_est counts. 17 windows of
        // acknowledgements add 9 segments, less the effect of the growing divisor: dW = 9/17 *
        // acked / W with acked = 17 * 70 gives W^2 = 70^2 + 2 * 9/17 * 1190, and sqrt(4900 + 1260)
        // = 78.49 segments.
        for _ in 0..17 * 70 {
            let ack = Ack {
                min_rtt: Span::from_ms(1),
                ..testing::ack(MSS)
            };
            cubic.on_ack(&ack, &mut window);
        }
        assert_eq!(window.cwnd / 10, 7848);
    }

    #[test]
    fn before_the_first_loss_the_window_grows_by_a_twentieth_per_window() {
        let mut cubic = Cubic::new(&testing::PARAMS);
        let mut window = testing::window(100);
        window.ssthresh = window.cwnd;
        // 100 segments acknowledged at one instant: the curve and Reno's estimate (9/17 of a
        // segment) hardly move. Each adds 1/20 of a segment, 50 bytes, less the remainder of the
        // division of a window by 20: below 20/100000 of it.
        for _ in 0..100 {
            cubic.on_ack(&testing::ack(MSS), &mut window);
        }
        assert!((105 * MSS - 1..=105 * MSS).contains(&window.cwnd));
    }

    fn in_segments() -> Cubic {
        Cubic::new(&Params {
            growth: Growth::Segments,
            ..testing::PARAMS
        })
    }

    #[test]
    fn whole_segments_are_added_for_whole_counts() {
        let mut cubic = in_segments();
        let mut window = testing::window(100);
        window.ssthresh = window.cwnd;
        // Before the first loss one for each 20 acknowledged (Linux: cnt <= 20)
        for acked in 1..=40 {
            cubic.on_ack(&testing::ack(MSS), &mut window);
            assert_eq!(window.cwnd, (100 + acked / 20) * MSS);
        }
    }

    #[test]
    fn whole_segments_follow_renos_window_when_it_is_one_ahead() {
        let mut cubic = in_segments();
        cubic.w_max = 10 * MSS;
        cubic.knows_w_max = true;
        let mut window = testing::window(10);
        window.ssthresh = window.cwnd;
        // There is an ACK every 40 ms, so each one computes the target again. 10 * 15/8 = 18
        // acknowledged segments add one to Reno's window, and the 19th ACK finds it; the curve has
        // grown by 0.4 * 0.8^3 = 0.2.
        for number in 1..=19_u64 {
            let ack = Ack {
                now: Time::ZERO + Span::from_ms(40 * number),
                ..testing::ack(MSS)
            };
            cubic.on_ack(&ack, &mut window);
            assert_eq!(window.cwnd, if number < 19 { 10 } else { 11 } * MSS);
        }
    }

    #[test]
    fn idle_time_does_not_advance_the_curve() {
        let mut cubic = Cubic::new(&testing::PARAMS);
        cubic.start_epoch(Time::ZERO, MSS);
        cubic.on_resume(Time::ZERO, Span::from_secs(5), &mut testing::window(1));
        assert_eq!(cubic.epoch, Some(Time::ZERO + Span::from_secs(5)));
    }

    #[test]
    fn after_a_timeout_the_curve_starts_flat() {
        let mut cubic = Cubic::new(&testing::PARAMS);
        let mut window = testing::window(100);
        cubic.on_congestion(Signal::Timeout, &testing::episode(100 * MSS), &mut window);
        window.cwnd = window.ssthresh;
        cubic.start_epoch(Time::ZERO, window.cwnd);
        assert_eq!((cubic.k, cubic.w_max), (0, 70 * MSS));
    }
}
