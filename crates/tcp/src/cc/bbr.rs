//! BBR version 1 (draft-cardwell-iccrg-bbr-congestion-control-00): a model of the path determines
//! the pacing rate and the window. The model consists of the highest recent delivery rate and the
//! lowest recent RTT. A loss has an effect for one round trip only.
//!
//! Fixed point: gains in 1/256, as in Linux; rates in bytes per second.
//!
//! Deviations:
//! 1. no detection of token-bucket policers and no compensation for ACK aggregation (both were
//!    added to Linux after the draft);
//! 2. the pacing rate is 1 % below the estimate (Linux), so that a queue drains;
//! 3. samples taken while the RTT is being probed are not flagged as application-limited; the
//!    filter over ten round trips ignores them anyway.

use super::{
    Ack, CongestionControl, Descriptor, Episode, INITIAL_WINDOW, Params, Phase, Signal, SlowStart,
    Window, scale,
};
use crate::ecn::EcnMode;
use alloc::boxed::Box;
use sluice_core::{Rate, Span, Time};

/// BBR version 1.
pub static BBR: Descriptor = Descriptor {
    name: "bbr",
    summary: "BBR version 1: paces at the measured bottleneck rate, ignores losses",
    source: "draft-cardwell-iccrg-bbr-congestion-control-00",
    ecn: EcnMode::Off,
    paces: true,
    slow_start: SlowStart::Standard,
    has_abe: false,
    has_hystart: false,
    initial_window: INITIAL_WINDOW,
    create: |params| Box::new(Bbr::new(params)),
};

/// The four states (§4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Startup,
    Drain,
    ProbeBw,
    ProbeRtt,
}

/// State of one connection.
#[derive(Clone, Debug)]
pub struct Bbr {
    mss: u64,
    initial_window: u64,
    mode: Mode,
    /// BBR.BtlBw: windowed maximum, in bytes per second.
    bandwidth: WindowedMax,
    /// BBR.RTprop and when it was seen.
    rtprop: Span,
    rtprop_at: Time,
    rtprop_expired: bool,
    pacing_gain: u64,
    cwnd_gain: u64,
    /// Bytes per second; zero before the first ACK.
    pacing_rate: u64,
    round: u64,
    next_round_delivered: u64,
    is_round_start: bool,
    filled_pipe: bool,
    full_bandwidth: u64,
    full_rounds: u32,
    cycle: usize,
    cycle_at: Time,
    probe_rtt_done: Option<Time>,
    probe_rtt_round_done: bool,
    prior_cwnd: u64,
    conserves_packets: bool,
    was_repairing: bool,
    idle_restart: bool,
    seed: u64,
}

impl Bbr {
    /// The state of a new connection.
    pub fn new(params: &Params) -> Self {
        Bbr {
            mss: params.mss,
            initial_window: params.initial_window,
            mode: Mode::Startup,
            bandwidth: WindowedMax::default(),
            rtprop: Span::MAX,
            rtprop_at: Time::ZERO,
            rtprop_expired: false,
            pacing_gain: HIGH_GAIN,
            cwnd_gain: HIGH_GAIN,
            pacing_rate: 0,
            round: 0,
            next_round_delivered: 0,
            is_round_start: false,
            filled_pipe: false,
            full_bandwidth: 0,
            full_rounds: 0,
            cycle: 0,
            cycle_at: Time::ZERO,
            probe_rtt_done: None,
            probe_rtt_round_done: false,
            prior_cwnd: 0,
            conserves_packets: false,
            was_repairing: false,
            idle_restart: false,
            seed: params.seed,
        }
    }

    /// §4.1.1.3: round trips are counted by delivery.
    fn update_round(&mut self, ack: &Ack) {
        self.is_round_start = false;
        if ack.rate.delivered > 0 && ack.rate.prior_delivered >= self.next_round_delivered {
            self.next_round_delivered = ack.total_delivered;
            self.round += 1;
            self.is_round_start = true;
            self.conserves_packets = false;
        }
    }

    /// §4.1.1.5: an application-limited sample counts only if it is higher than the maximum.
    fn update_bandwidth(&mut self, ack: &Ack) {
        let ns = ack.rate.interval.as_ns();
        if ack.rate.delivered == 0 || ns == 0 {
            return;
        }
        let rate = scale(ack.rate.delivered, 1_000_000_000, ns);
        if rate >= self.bandwidth.max() || !ack.rate.is_app_limited {
            self.bandwidth.update(self.round, rate);
        }
    }

    /// §4.3.4.3: the phases of ProbeBW.
    fn update_cycle(&mut self, ack: &Ack) {
        if self.mode != Mode::ProbeBw {
            return;
        }
        let is_full_length = ack.now.since(self.cycle_at) > self.rtprop;
        let is_over = match self.pacing_gain.cmp(&UNIT) {
            core::cmp::Ordering::Equal => is_full_length,
            core::cmp::Ordering::Greater => {
                is_full_length
                    && (ack.lost > 0 || ack.prior_in_flight >= self.inflight(self.pacing_gain))
            }
            core::cmp::Ordering::Less => {
                is_full_length || ack.prior_in_flight <= self.inflight(UNIT)
            }
        };
        if is_over {
            self.advance_cycle(ack.now);
        }
    }

    fn advance_cycle(&mut self, now: Time) {
        self.cycle_at = now;
        self.cycle = (self.cycle + 1) % CYCLE.len();
        self.pacing_gain = CYCLE[self.cycle];
    }

    /// §4.3.2.2: the pipe is full when three rounds raise the rate by less than a quarter.
    fn check_full_pipe(&mut self, ack: &Ack) {
        if self.filled_pipe || !self.is_round_start || ack.rate.is_app_limited {
            return;
        }
        let bandwidth = self.bandwidth.max();
        if bandwidth >= self.full_bandwidth * 5 / 4 {
            self.full_bandwidth = bandwidth;
            self.full_rounds = 0;
            return;
        }
        self.full_rounds += 1;
        self.filled_pipe = self.full_rounds >= 3;
    }

    /// §4.3.3: the queue of Startup is drained before probing.
    fn check_drain(&mut self, ack: &Ack) {
        if self.mode == Mode::Startup && self.filled_pipe {
            self.mode = Mode::Drain;
            self.pacing_gain = DRAIN_GAIN;
            self.cwnd_gain = HIGH_GAIN;
        }
        if self.mode == Mode::Drain && ack.in_flight <= self.inflight(UNIT) {
            self.enter_probe_bw(ack.now);
        }
    }

    /// §4.3.4.2 and §4.3.4.3: any phase except the draining one may be the first; the seed chooses
    /// it.
    fn enter_probe_bw(&mut self, now: Time) {
        self.mode = Mode::ProbeBw;
        self.pacing_gain = UNIT;
        self.cwnd_gain = 2 * UNIT;
        self.seed = self
            .seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let draw = (self.seed >> 33) as usize % (CYCLE.len() - 1);
        self.cycle = CYCLE.len() - 1 - draw;
        self.advance_cycle(now);
    }

    /// §4.1.2.3, then §4.3.5.
    fn update_rtprop(&mut self, ack: &Ack, window: &mut Window) {
        self.rtprop_expired = ack.now > self.rtprop_at.saturating_add(RTPROP_WINDOW);
        if let Some(rtt) = ack.rtt
            && (rtt <= self.rtprop || self.rtprop_expired)
        {
            self.rtprop = rtt;
            self.rtprop_at = ack.now;
        }
        if self.mode != Mode::ProbeRtt && self.rtprop_expired && !self.idle_restart {
            self.mode = Mode::ProbeRtt;
            self.pacing_gain = UNIT;
            self.cwnd_gain = UNIT;
            self.save_cwnd(window.cwnd);
            self.probe_rtt_done = None;
        }
        if self.mode == Mode::ProbeRtt {
            match self.probe_rtt_done {
                None if ack.in_flight <= self.min_cwnd() => {
                    self.probe_rtt_done = Some(ack.now + PROBE_RTT_TIME);
                    self.probe_rtt_round_done = false;
                    self.next_round_delivered = ack.total_delivered;
                }
                None => {}
                Some(done) => {
                    self.probe_rtt_round_done |= self.is_round_start;
                    if self.probe_rtt_round_done && ack.now > done {
                        self.rtprop_at = ack.now;
                        window.cwnd = window.cwnd.max(self.prior_cwnd);
                        if self.filled_pipe {
                            self.enter_probe_bw(ack.now);
                        } else {
                            self.enter_startup();
                        }
                    }
                }
            }
        }
        self.idle_restart = false;
    }

    fn enter_startup(&mut self) {
        self.mode = Mode::Startup;
        self.pacing_gain = HIGH_GAIN;
        self.cwnd_gain = HIGH_GAIN;
    }

    /// §4.2.1.
    fn set_pacing_rate(&mut self, ack: &Ack) {
        let bandwidth = self.bandwidth.max();
        if bandwidth == 0 {
            // Before the first sample: the initial window per RTT, or per millisecond.
            let rtt = if ack.srtt > Span::ZERO {
                ack.srtt
            } else {
                Span::from_ms(1)
            };
            let rate = scale(self.initial_window, 1_000_000_000, rtt.as_ns());
            self.pacing_rate = scale(rate, HIGH_GAIN, UNIT);
            return;
        }
        let rate = scale(bandwidth, self.pacing_gain * 99, UNIT * 100);
        if self.filled_pipe || rate > self.pacing_rate {
            self.pacing_rate = rate;
        }
    }

    /// §4.2.3.2: the gain times the bandwidth-delay product, and three send quanta.
    fn inflight(&self, gain: u64) -> u64 {
        if self.rtprop == Span::MAX {
            return self.initial_window;
        }
        let bdp = scale(self.bandwidth.max(), self.rtprop.as_ns(), 1_000_000_000);
        scale(bdp, gain, UNIT) + 3 * self.quantum()
    }

    /// §4.2.2.
    fn quantum(&self) -> u64 {
        match self.pacing_rate {
            0..150_000 => self.mss,
            150_000..3_000_000 => 2 * self.mss,
            rate => (rate / 1000).clamp(2 * self.mss, 65_536.max(2 * self.mss)),
        }
    }

    /// §4.2.3.6.
    fn set_cwnd(&mut self, ack: &Ack, window: &mut Window) {
        let target = self.inflight(self.cwnd_gain);
        // §4.2.3.4: in the first round of a recovery only as much is sent as was delivered.
        if ack.lost > 0 {
            window.cwnd = window.cwnd.saturating_sub(ack.lost).max(self.mss);
        }
        let is_repairing = matches!(ack.phase, Phase::Recovery | Phase::Loss);
        if is_repairing && !self.was_repairing {
            if ack.phase == Phase::Recovery {
                self.conserves_packets = true;
                self.next_round_delivered = ack.total_delivered;
                window.cwnd = ack.in_flight + ack.delivered.max(self.mss);
            }
        } else if !is_repairing && self.was_repairing {
            self.conserves_packets = false;
            window.cwnd = window.cwnd.max(self.prior_cwnd);
        }
        self.was_repairing = is_repairing;
        if self.conserves_packets {
            window.cwnd = window.cwnd.max(ack.in_flight + ack.delivered);
        } else {
            if self.filled_pipe {
                window.cwnd = (window.cwnd + ack.delivered).min(target);
            } else if window.cwnd < target || ack.total_delivered < self.initial_window {
                window.cwnd += ack.delivered;
            }
            window.cwnd = window.cwnd.max(self.min_cwnd());
        }
        // §4.2.3.5
        if self.mode == Mode::ProbeRtt {
            window.cwnd = window.cwnd.min(self.min_cwnd());
        }
    }

    fn save_cwnd(&mut self, cwnd: u64) {
        self.prior_cwnd = if self.was_repairing || self.mode == Mode::ProbeRtt {
            self.prior_cwnd.max(cwnd)
        } else {
            cwnd
        };
    }

    /// §4.2.3.3: BBRMinPipeCwnd.
    fn min_cwnd(&self) -> u64 {
        4 * self.mss
    }
}

impl CongestionControl for Bbr {
    fn on_ack(&mut self, ack: &Ack, window: &mut Window) {
        self.update_round(ack);
        self.update_bandwidth(ack);
        self.update_cycle(ack);
        self.check_full_pipe(ack);
        self.check_drain(ack);
        self.update_rtprop(ack, window);
        self.set_pacing_rate(ack);
        self.set_cwnd(ack, window);
    }

    fn on_congestion(&mut self, signal: Signal, _episode: &Episode, window: &mut Window) {
        self.save_cwnd(window.cwnd);
        if signal == Signal::Timeout {
            // Linux: the test for a full pipe starts again, and the window recovers by slow start.
            self.full_bandwidth = 0;
            self.conserves_packets = false;
            self.was_repairing = true;
        }
    }

    fn on_undo(&mut self, _window: &mut Window) {
        self.full_bandwidth = 0;
        self.full_rounds = 0;
    }

    fn on_resume(&mut self, _now: Time, _idle: Span, _window: &mut Window) {
        // §4.3.4.4: after an idle period the pipe is filled at the estimated rate.
        self.idle_restart = true;
        if self.mode == Mode::ProbeBw {
            self.pacing_rate = scale(self.bandwidth.max(), 99, 100);
        }
    }

    fn pacing_rate(&self) -> Option<Rate> {
        (self.pacing_rate > 0).then(|| Rate::from_bps(self.pacing_rate.saturating_mul(8)))
    }

    fn owns_window(&self) -> bool {
        true
    }

    fn variable(&self) -> (&'static str, u64) {
        ("bandwidth_bps", self.bandwidth.max() * 8)
    }
}

/// The maximum over the last ten rounds, from the maxima of three sub-windows (the filter of
/// Kathleen Nichols that Linux uses): constant time and space.
#[derive(Clone, Copy, Debug, Default)]
struct WindowedMax {
    best: [(u64, u64); 3],
}

impl WindowedMax {
    fn max(&self) -> u64 {
        self.best[0].1
    }

    fn update(&mut self, round: u64, value: u64) {
        let sample = (round, value);
        if value >= self.best[0].1 || round - self.best[2].0 > BANDWIDTH_ROUNDS {
            self.best = [sample; 3];
            return;
        }
        if value >= self.best[1].1 {
            self.best[1] = sample;
            self.best[2] = sample;
        } else if value >= self.best[2].1 {
            self.best[2] = sample;
        }
        let age = round - self.best[0].0;
        if age > BANDWIDTH_ROUNDS {
            // The best has expired; the second best takes its place.
            self.best = [self.best[1], self.best[2], sample];
            if round - self.best[0].0 > BANDWIDTH_ROUNDS {
                self.best = [self.best[1], self.best[2], sample];
            }
        } else if self.best[1].0 == self.best[0].0 && age > BANDWIDTH_ROUNDS / 4 {
            // A quarter of the window has passed without a second best.
            self.best[1] = sample;
            self.best[2] = sample;
        } else if self.best[2].0 == self.best[1].0 && age > BANDWIDTH_ROUNDS / 2 {
            self.best[2] = sample;
        }
    }
}

const UNIT: u64 = 256;
/// 2 / ln 2 = 2.885 and its inverse (§4.3.2.1, §4.3.3).
const HIGH_GAIN: u64 = 739;
const DRAIN_GAIN: u64 = 88;
/// §4.3.4.1: 5/4, 3/4, then six rounds of 1.
const CYCLE: [u64; 8] = [320, 192, 256, 256, 256, 256, 256, 256];
/// §4.1.1.2: BtlBwFilterLen; §4.1.2.2: RTpropFilterLen; §4.3.5: ProbeRTTDuration.
const BANDWIDTH_ROUNDS: u64 = 10;
const RTPROP_WINDOW: Span = Span::from_secs(10);
const PROBE_RTT_TIME: Span = Span::from_ms(200);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::testing::{self, MSS};
    use crate::rate::RateSample;

    /// An ACK of one segment at 1 MB/s and 20 ms.
    fn ack(round: u64, rate: u64) -> Ack {
        Ack {
            now: Time::ZERO + Span::from_ms(20 * round),
            total_delivered: 20_000 * round,
            in_flight: 20_000,
            prior_in_flight: 20_000,
            rate: RateSample {
                delivered: rate / 100,
                interval: Span::from_ms(10),
                prior_delivered: 20_000 * (round - 1),
                is_app_limited: false,
            },
            ..testing::ack(MSS)
        }
    }

    #[test]
    fn startup_ends_after_three_rounds_without_growth() {
        let mut bbr = Bbr::new(&testing::PARAMS);
        let mut window = testing::window(10);
        bbr.on_ack(&ack(1, 1_000_000), &mut window);
        assert_eq!(bbr.mode, Mode::Startup);
        // 2.885 * 1 MB/s, less the margin of 1 %: 1e6 * 739 * 99 / 25600
        assert_eq!(bbr.pacing_rate, 2_857_851);
        bbr.on_ack(&ack(2, 1_100_000), &mut window);
        bbr.on_ack(&ack(3, 1_100_000), &mut window);
        assert!(!bbr.filled_pipe);
        let mut full = ack(4, 1_100_000);
        full.in_flight = 1_000_000;
        bbr.on_ack(&full, &mut window);
        assert_eq!(bbr.mode, Mode::Drain);
        // BDP = 1.1 MB/s * 20 ms = 22 kB: 20 kB in flight ends the drain.
        bbr.on_ack(&ack(5, 1_100_000), &mut window);
        assert_eq!(bbr.mode, Mode::ProbeBw);
    }

    #[test]
    fn the_filter_forgets_a_maximum_after_ten_rounds() {
        let mut filter = WindowedMax::default();
        filter.update(1, 100);
        for round in 2..=11 {
            filter.update(round, 50);
            assert_eq!(filter.max(), 100, "round {round}");
        }
        filter.update(12, 50);
        assert_eq!(filter.max(), 50);
    }

    #[test]
    fn the_rtt_is_probed_with_four_segments_every_ten_seconds() {
        let mut bbr = Bbr::new(&testing::PARAMS);
        let mut window = testing::window(10);
        for round in 1..=500 {
            bbr.on_ack(&ack(round, 1_000_000), &mut window);
        }
        assert_ne!(bbr.mode, Mode::ProbeRtt);
        // The minimum of 20 ms is confirmed by equal samples; larger ones let it expire.
        for round in 501..=1010 {
            let grown = Ack {
                rtt: Some(Span::from_ms(25)),
                ..ack(round, 1_000_000)
            };
            bbr.on_ack(&grown, &mut window);
        }
        assert_eq!(bbr.mode, Mode::ProbeRtt);
        assert_eq!(window.cwnd, 4 * MSS);
    }
}
