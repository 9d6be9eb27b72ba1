//! BBR version 3 (draft-ietf-ccwg-bbr-06): a model of the path determines the pacing rate and the
//! window. Version 1 ignores losses. In version 3, losses bound the bytes in flight, in the long
//! term (since the last probe) and in the short term (in the rounds since then). It probes for
//! bandwidth only rarely.
//!
//! Deviations from the draft:
//! 1. the bytes in flight when a segment left are taken after the burst to which it belongs, which
//!    is the value before the next ACK;
//! 2. a lost segment is assumed to have left together with the segment whose delivery revealed the
//!    loss (§5.5.10.2 uses the lost segment itself). The second one left later, so the bytes in
//!    flight are not fewer, and the bytes lost since then are not more;
//! 3. losses that a timer finds count only from the next ACK on, and only for the short term;
//! 4. each ACK that finds losses counts as one discontiguous range (§5.3.1.3).
//!
//! ECN: the draft specifies no response (§3.7), so the flow does not use it. Linux's BBR version 3,
//! which is not part of the kernel, has one.
//!
//! Units: bytes, bytes per second; gains in hundredths.

mod control;
mod history;
mod probe_bw;

use history::{History, Sent};

use super::bbr::filters::WindowedMax;
use super::{
    Ack, CongestionControl, Descriptor, Episode, INITIAL_WINDOW, Params, Phase, Signal, SlowStart,
    Window, scale,
};
use crate::ecn::EcnMode;
use alloc::boxed::Box;
use sluice_core::{Rate, Span, Time};

/// BBR version 3.
pub static BBR3: Descriptor = Descriptor {
    name: "bbr3",
    summary: "BBR version 3: paces at the measured bottleneck rate, bounds the bytes in flight by losses",
    source: "draft-ietf-ccwg-bbr-06",
    ecn: EcnMode::Off,
    paces: true,
    slow_start: SlowStart::Standard,
    has_abe: false,
    has_hystart: false,
    initial_window: INITIAL_WINDOW,
    create: |params| Box::new(Bbr3::new(params)),
};

/// The states (§5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Startup,
    Drain,
    ProbeDown,
    ProbeCruise,
    ProbeRefill,
    ProbeUp,
    ProbeRtt,
}

/// The phase to which the samples of the current ACKs belong (§5.3.3.9: BBR.ack_phase).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AckPhase {
    Init,
    Refilling,
    ProbeStarting,
    ProbeFeedback,
    ProbeStopping,
}

/// The state before a loss (§5.5.11.1).
#[derive(Clone, Copy, Debug)]
struct Undo {
    /// The probing state that the loss ended.
    state: Option<State>,
    bw_shortterm: u64,
    inflight_shortterm: u64,
    inflight_longterm: u64,
}

/// State of one connection. Absent bounds are `u64::MAX`.
#[derive(Clone, Debug)]
pub struct Bbr3 {
    mss: u64,
    initial_window: u64,
    state: State,
    /// Bytes per second; zero before the first ACK.
    pacing_rate: u64,
    // ---- §5.5.1: rounds ----
    round: u64,
    next_round_delivered: u64,
    is_round_start: bool,
    rounds_since_probe_up: u64,
    // ---- bandwidth ----
    /// The highest delivery rates of the current and the last cycle of ProbeBW (§5.5.6).
    max_bw: [u64; 2],
    bw: u64,
    bw_shortterm: u64,
    bw_latest: u64,
    // ---- bytes in flight ----
    inflight_longterm: u64,
    inflight_shortterm: u64,
    inflight_latest: u64,
    extra_acked: WindowedMax,
    extra_acked_at: Time,
    extra_acked_delivered: u64,
    // ---- the plateau (§5.3.1.2) ----
    full_bw: u64,
    full_bw_count: u32,
    full_bw_now: bool,
    full_bw_reached: bool,
    // ---- ProbeBW (§5.3.3) ----
    drain_start_round: u64,
    cycle_at: Time,
    probe_wait: Span,
    ack_phase: AckPhase,
    is_probe_sample: bool,
    probe_up_rounds: u32,
    probe_up_acked: u64,
    probe_up_acked_per_inc: u64,
    prev_probe_too_high: bool,
    prev_probe_precautionary: bool,
    // ---- losses ----
    history: History,
    lost: u64,
    loss_round_delivered: u64,
    is_loss_round_start: bool,
    is_loss_in_round: bool,
    /// ACKs of the round that found losses.
    loss_ranges: u32,
    /// The round in which fast recovery started.
    recovery_round: Option<u64>,
    prior_phase: Phase,
    prior_cwnd: u64,
    undo: Option<Undo>,
    // ---- RTT ----
    min_rtt: Span,
    min_rtt_at: Time,
    has_min_rtt_expired: bool,
    probe_rtt_cwnd: u64,
    probe_rtt_done: Option<Time>,
    probe_rtt_round_done: bool,
    idle_restart: bool,
    seed: u64,
}

/// The sample of one ACK.
#[derive(Clone, Copy, Debug)]
struct Sample {
    rate: u64,
    /// Bytes in flight when the newest delivered segment left, and bytes lost since.
    sent: Sent,
    lost_since: u64,
    is_app_limited: bool,
}

impl Bbr3 {
    /// The state of a new connection (§5.2.1: OnInit).
    pub fn new(params: &Params) -> Self {
        Bbr3 {
            mss: params.mss,
            initial_window: params.initial_window,
            state: State::Startup,
            pacing_rate: 0,
            round: 0,
            next_round_delivered: 0,
            is_round_start: false,
            rounds_since_probe_up: 0,
            max_bw: [0; 2],
            bw: 0,
            bw_shortterm: u64::MAX,
            bw_latest: 0,
            inflight_longterm: u64::MAX,
            inflight_shortterm: u64::MAX,
            inflight_latest: 0,
            extra_acked: WindowedMax::default(),
            extra_acked_at: Time::ZERO,
            extra_acked_delivered: 0,
            full_bw: 0,
            full_bw_count: 0,
            full_bw_now: false,
            full_bw_reached: false,
            drain_start_round: 0,
            cycle_at: Time::ZERO,
            probe_wait: Span::ZERO,
            ack_phase: AckPhase::Init,
            is_probe_sample: false,
            probe_up_rounds: 0,
            probe_up_acked: 0,
            probe_up_acked_per_inc: u64::MAX,
            prev_probe_too_high: false,
            prev_probe_precautionary: false,
            history: History::default(),
            lost: 0,
            loss_round_delivered: 0,
            is_loss_round_start: false,
            is_loss_in_round: false,
            loss_ranges: 0,
            recovery_round: None,
            prior_phase: Phase::Open,
            prior_cwnd: 0,
            undo: None,
            min_rtt: Span::MAX,
            min_rtt_at: Time::ZERO,
            has_min_rtt_expired: false,
            probe_rtt_cwnd: params.initial_window,
            probe_rtt_done: None,
            probe_rtt_round_done: false,
            idle_restart: false,
            seed: params.seed,
        }
    }

    // ---- the model -----------------------------------------------------------------------

    fn sample(&mut self, ack: &Ack) -> Sample {
        let ns = ack.rate.interval.as_ns();
        let is_valid = ack.rate.delivered > 0 && ns > 0;
        let sent = if ack.delivered > 0 {
            self.history.find(ack.rate.prior_delivered)
        } else {
            Sent {
                in_flight: ack.prior_in_flight,
                lost: self.lost - ack.lost,
            }
        };
        Sample {
            rate: if is_valid {
                scale(ack.rate.delivered, 1_000_000_000, ns)
            } else {
                0
            },
            sent,
            lost_since: self.lost - sent.lost,
            is_app_limited: ack.rate.is_app_limited,
        }
    }

    fn max_bw(&self) -> u64 {
        self.max_bw[0].max(self.max_bw[1])
    }

    /// §5.5.1: UpdateRound.
    fn update_round(&mut self, ack: &Ack) {
        self.is_round_start =
            ack.rate.delivered > 0 && ack.rate.prior_delivered >= self.next_round_delivered;
        if self.is_round_start {
            self.start_round(ack);
            self.round += 1;
            self.rounds_since_probe_up += 1;
        }
    }

    fn start_round(&mut self, ack: &Ack) {
        self.next_round_delivered = ack.total_delivered;
    }

    /// §5.5.10.3: UpdateLatestDeliverySignals.
    fn update_latest(&mut self, ack: &Ack, sample: &Sample) {
        self.is_loss_round_start = false;
        self.bw_latest = self.bw_latest.max(sample.rate);
        self.inflight_latest = self.inflight_latest.max(ack.rate.delivered);
        if ack.rate.delivered > 0 && ack.rate.prior_delivered >= self.loss_round_delivered {
            self.loss_round_delivered = ack.total_delivered;
            self.is_loss_round_start = true;
        }
    }

    /// §5.5.5: UpdateMaxBw. An application-limited sample counts only if it is the highest.
    fn update_max_bw(&mut self, sample: &Sample) {
        if sample.rate > 0 && (sample.rate >= self.max_bw() || !sample.is_app_limited) {
            self.max_bw[0] = self.max_bw[0].max(sample.rate);
        }
    }

    /// §5.5.10.3: UpdateCongestionSignals. Once per round, losses lower the short-term bounds.
    fn adapt_to_losses(&mut self, window: &Window) {
        if !self.is_loss_round_start {
            return;
        }
        if self.is_loss_in_round && !self.is_probing_bw() {
            if self.bw_shortterm == u64::MAX {
                self.bw_shortterm = self.max_bw();
            }
            if self.inflight_shortterm == u64::MAX {
                self.inflight_shortterm = window.cwnd;
            }
            self.bw_shortterm = self.bw_latest.max(beta(self.bw_shortterm));
            self.inflight_shortterm = self.inflight_latest.max(beta(self.inflight_shortterm));
        }
        self.is_loss_in_round = false;
    }

    /// §5.5.9: UpdateACKAggregation.
    fn update_aggregation(&mut self, ack: &Ack, window: &Window) {
        let since = |at: Time| ack.now.since(at).as_ns();
        let mut expected = scale(self.bw, since(self.extra_acked_at), 1_000_000_000);
        if self.extra_acked_delivered <= expected {
            self.extra_acked_delivered = 0;
            self.extra_acked_at = ack.now;
            expected = 0;
        }
        self.extra_acked_delivered += ack.delivered;
        let extra = (self.extra_acked_delivered - expected).min(window.cwnd);
        if !self.full_bw_reached && self.is_round_start {
            // In Startup the filter has a length of one round.
            self.extra_acked = WindowedMax::default();
        }
        self.extra_acked.update(self.round, extra);
    }

    /// §5.5.10.2: whether the losses exceed 2 % of the bytes in flight.
    fn is_inflight_too_high(sample: &Sample) -> bool {
        sample.lost_since * 100 > sample.sent.in_flight * LOSS_THRESHOLD
    }

    /// §5.5.10.2: HandleLostPacket.
    fn handle_losses(&mut self, ack: &Ack, sample: &Sample, window: &Window) {
        if ack.lost == 0 {
            return;
        }
        self.note_loss(ack.total_delivered, window);
        self.loss_ranges += 1;
        if self.is_probe_sample && Bbr3::is_inflight_too_high(sample) {
            let too_high = Sample {
                sent: Sent {
                    in_flight: self.inflight_at_loss(sample),
                    ..sample.sent
                },
                ..*sample
            };
            self.handle_inflight_too_high(ack, &too_high, window);
        }
    }

    fn note_loss(&mut self, delivered: u64, window: &Window) {
        if !self.is_loss_in_round {
            self.loss_round_delivered = delivered;
            self.save_before_loss(window);
        }
        self.is_loss_in_round = true;
    }

    /// §5.5.10.2: InflightAtLoss: the bytes in flight at which the losses crossed 2 %.
    fn inflight_at_loss(&self, sample: &Sample) -> u64 {
        let in_flight = sample.sent.in_flight.saturating_sub(self.mss);
        let lost = sample.lost_since.saturating_sub(self.mss);
        let prefix = (in_flight * LOSS_THRESHOLD).saturating_sub(lost * 100);
        in_flight + prefix / (100 - LOSS_THRESHOLD)
    }

    /// §5.5.10.2: HandleInflightTooHigh.
    fn handle_inflight_too_high(&mut self, ack: &Ack, sample: &Sample, window: &Window) {
        self.prev_probe_too_high = true;
        self.is_probe_sample = false;
        if !sample.is_app_limited {
            let floor = beta(self.target_inflight(window));
            self.inflight_longterm = sample.sent.in_flight.max(floor);
        }
        if self.state == State::ProbeUp {
            self.note_undo(State::ProbeUp);
            self.start_down(ack);
        }
    }

    // ---- Startup and Drain -----------------------------------------------------------------

    /// §5.3.1.2: CheckFullBWReached.
    fn check_full_bw(&mut self, sample: &Sample) {
        if self.full_bw_now || !self.is_round_start || sample.is_app_limited {
            return;
        }
        if sample.rate * 100 >= self.full_bw * 125 {
            self.reset_full_bw(sample.rate);
            return;
        }
        self.full_bw_count += 1;
        self.full_bw_now = self.full_bw_count >= 3;
        self.full_bw_reached |= self.full_bw_now;
    }

    fn reset_full_bw(&mut self, rate: u64) {
        self.full_bw = rate;
        self.full_bw_count = 0;
        self.full_bw_now = false;
    }

    /// §5.3.1: CheckStartupDone.
    fn check_startup_done(&mut self, sample: &Sample) {
        if self.state != State::Startup {
            return;
        }
        // §5.3.1.3: high loss, after a full round of fast recovery
        let has_recovered_a_round = self
            .recovery_round
            .is_some_and(|start| self.round > start + 1);
        if self.is_loss_round_start
            && has_recovered_a_round
            && self.loss_ranges >= STARTUP_LOSSES
            && Bbr3::is_inflight_too_high(sample)
        {
            self.note_undo(State::Startup);
            self.full_bw_reached = true;
            self.inflight_longterm = self.bdp(100).max(self.inflight_latest);
        }
        if self.full_bw_reached {
            self.state = State::Drain;
            self.drain_start_round = self.round;
        }
    }

    /// §5.3.2: CheckDrainDone.
    fn check_drain_done(&mut self, ack: &Ack) {
        if self.state == State::Drain
            && (ack.in_flight <= self.inflight(100) || self.round > self.drain_start_round + 3)
        {
            self.start_down(ack);
        }
    }

    // ---- ProbeRTT ------------------------------------------------------------------------

    /// §5.3.4.3: UpdateMinRTT. The window for ProbeRTT is computed before an RTT that a queue may
    /// have raised replaces the minimum.
    fn update_min_rtt(&mut self, ack: &Ack) {
        if self.min_rtt == Span::MAX {
            self.min_rtt_at = ack.now;
        }
        self.has_min_rtt_expired = ack.now > self.min_rtt_at.saturating_add(MIN_RTT_WINDOW);
        if self.has_min_rtt_expired && self.state != State::ProbeRtt {
            self.probe_rtt_cwnd = self.bdp(PROBE_RTT_GAIN).max(self.min_cwnd());
        }
        if let Some(rtt) = ack.rtt
            && (rtt < self.min_rtt || self.has_min_rtt_expired)
        {
            self.min_rtt = rtt;
            self.min_rtt_at = ack.now;
        }
    }

    /// §5.3.4.3: CheckProbeRTT.
    fn check_probe_rtt(&mut self, ack: &Ack, window: &mut Window) {
        if self.state != State::ProbeRtt && self.has_min_rtt_expired && !self.idle_restart {
            self.save_cwnd(window.cwnd);
            self.state = State::ProbeRtt;
            self.probe_rtt_done = None;
            self.ack_phase = AckPhase::ProbeStopping;
            self.start_round(ack);
        }
        if self.state == State::ProbeRtt {
            match self.probe_rtt_done {
                None if ack.in_flight <= self.probe_rtt_cwnd => {
                    self.probe_rtt_done = Some(ack.now + PROBE_RTT_TIME);
                    self.probe_rtt_round_done = false;
                    self.start_round(ack);
                }
                None => {}
                Some(_) => {
                    self.probe_rtt_round_done |= self.is_round_start;
                    if self.probe_rtt_round_done {
                        self.check_probe_rtt_done(ack.now, ack.total_delivered, window);
                    }
                }
            }
        }
        if ack.rate.delivered > 0 {
            self.idle_restart = false;
        }
    }

    /// §5.3.4.3: CheckProbeRTTDone, and §5.3.4.4: ExitProbeRTT.
    fn check_probe_rtt_done(&mut self, now: Time, delivered: u64, window: &mut Window) {
        if self.probe_rtt_done.is_none_or(|done| now <= done) {
            return;
        }
        self.min_rtt_at = now;
        window.cwnd = window.cwnd.max(self.prior_cwnd);
        self.reset_short_term();
        if self.full_bw_reached {
            self.start_down_at(now, delivered);
            self.state = State::ProbeCruise;
        } else {
            self.state = State::Startup;
        }
    }

    /// §5.6.4.4: the end of a recovery restores the window.
    fn follow_recovery(&mut self, ack: &Ack, window: &mut Window) {
        let prior = core::mem::replace(&mut self.prior_phase, ack.phase);
        if ack.phase == Phase::Recovery && self.recovery_round.is_none() {
            self.recovery_round = Some(self.round);
        } else if ack.phase != Phase::Recovery {
            self.recovery_round = None;
        }
        if is_repairing(prior) && !is_repairing(ack.phase) {
            window.cwnd = window.cwnd.max(self.prior_cwnd);
        }
    }

    fn save_cwnd(&mut self, cwnd: u64) {
        self.prior_cwnd = if is_repairing(self.prior_phase) || self.state == State::ProbeRtt {
            self.prior_cwnd.max(cwnd)
        } else {
            cwnd
        };
    }

    /// §5.5.11.1: SaveStateUponLoss.
    fn save_before_loss(&mut self, window: &Window) {
        self.save_cwnd(window.cwnd);
        self.undo = Some(Undo {
            state: None,
            bw_shortterm: self.bw_shortterm,
            inflight_shortterm: self.inflight_shortterm,
            inflight_longterm: self.inflight_longterm,
        });
    }

    fn note_undo(&mut self, state: State) {
        if let Some(undo) = &mut self.undo {
            undo.state = Some(state);
        }
    }

    /// A random number below `bound`.
    fn draw(&mut self, bound: u64) -> u64 {
        self.seed = self
            .seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % bound
    }
}

impl CongestionControl for Bbr3 {
    /// §5.2.3: UpdateModelAndState, then UpdateControlParameters.
    fn on_ack(&mut self, ack: &Ack, window: &mut Window) {
        self.lost += ack.lost;
        self.history.end_burst(ack.prior_in_flight);
        let sample = self.sample(ack);
        self.follow_recovery(ack, window);
        self.handle_losses(ack, &sample, window);
        self.update_latest(ack, &sample);
        self.update_round(ack);
        self.update_max_bw(&sample);
        self.adapt_to_losses(window);
        self.update_aggregation(ack, window);
        self.check_full_bw(&sample);
        self.check_startup_done(&sample);
        self.check_drain_done(ack);
        self.update_cycle(ack, &sample, window);
        self.update_min_rtt(ack);
        self.check_probe_rtt(ack, window);
        if self.is_loss_round_start {
            // §5.5.10.3: AdvanceLatestDeliverySignals
            self.bw_latest = sample.rate;
            self.inflight_latest = ack.rate.delivered;
            self.loss_ranges = 0;
        }
        // §5.5.10.3: BoundBWForModel
        self.bw = self.max_bw().min(self.bw_shortterm);
        self.set_pacing_rate(ack.srtt, self.pacing_gain());
        self.set_cwnd(ack, window);
        self.history
            .start_burst(ack.total_delivered, ack.in_flight, self.lost);
    }

    /// §5.6.4.4: OnEnterRTO and OnEnterFastRecovery. The sender sets the window after a timeout.
    fn on_congestion(&mut self, signal: Signal, _episode: &Episode, window: &mut Window) {
        self.note_loss(self.history.delivered(), window);
        self.save_before_loss(window);
        if signal == Signal::Timeout {
            self.prior_phase = Phase::Loss;
        }
    }

    /// §5.5.11.2: HandleSpuriousLossDetection.
    fn on_undo(&mut self, window: &mut Window) {
        window.cwnd = window.cwnd.max(self.prior_cwnd);
        self.is_loss_in_round = false;
        self.reset_full_bw(0);
        let Some(undo) = self.undo.take() else {
            return;
        };
        self.bw_shortterm = self.bw_shortterm.max(undo.bw_shortterm);
        self.inflight_shortterm = self.inflight_shortterm.max(undo.inflight_shortterm);
        self.inflight_longterm = self.inflight_longterm.max(undo.inflight_longterm);
        match undo.state {
            Some(State::Startup) if self.state != State::Startup => {
                self.full_bw_reached = false;
                if self.state != State::ProbeRtt {
                    self.state = State::Startup;
                }
            }
            Some(State::ProbeUp) if !matches!(self.state, State::ProbeUp | State::ProbeRtt) => {
                self.start_refill(self.history.delivered());
            }
            _ => {}
        }
    }

    /// §5.4.1: HandleRestartFromIdle.
    fn on_resume(&mut self, now: Time, _idle: Span, window: &mut Window) {
        self.idle_restart = true;
        self.extra_acked_at = now;
        if self.is_in_probe_bw() {
            self.set_pacing_rate(Span::ZERO, 100);
        } else if self.state == State::ProbeRtt {
            self.check_probe_rtt_done(now, self.history.delivered(), window);
        }
    }

    fn limits_samples(&self) -> bool {
        self.state == State::ProbeRtt
    }

    fn pacing_rate(&self) -> Option<Rate> {
        (self.pacing_rate > 0).then(|| Rate::from_bps(self.pacing_rate.saturating_mul(8)))
    }

    fn owns_window(&self) -> bool {
        true
    }

    fn variable(&self) -> (&'static str, u64) {
        ("bandwidth_bps", self.bw * 8)
    }
}

fn is_repairing(phase: Phase) -> bool {
    matches!(phase, Phase::Recovery | Phase::Loss)
}

/// §2.8: BBR.Beta = 0.7.
const fn beta(value: u64) -> u64 {
    scale(value, 7, 10)
}

/// §2.8: BBR.LossThresh and BBR.Headroom, in percent.
const LOSS_THRESHOLD: u64 = 2;
const HEADROOM: u64 = 15;
/// §5.3.1.3: BBRStartupFullLossCnt.
const STARTUP_LOSSES: u32 = 6;
/// §5.3.3.8.3.
const PROBE_WAIT: Span = Span::from_secs(2);
const MOST_RENO_ROUNDS: u64 = 63;
/// §2.16: BBR.MinRTTFilterLen, BBR.ProbeRTTDuration, BBR.ProbeRTTCwndGain.
const MIN_RTT_WINDOW: Span = Span::from_secs(10);
const PROBE_RTT_TIME: Span = Span::from_ms(200);
const PROBE_RTT_GAIN: u64 = 50;
/// §5.6.2: BBR.PacingMarginPercent.
const PACING_MARGIN: u64 = 1;

#[cfg(test)]
mod tests;
