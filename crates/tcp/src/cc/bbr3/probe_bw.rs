//! ProbeBW: the cycle of DOWN, CRUISE, REFILL and UP (§5.3.3).

use super::super::{Ack, Window, scale};
use super::{AckPhase, Bbr3, HEADROOM, MOST_RENO_ROUNDS, PROBE_WAIT, Sample, State};
use sluice_core::{Span, Time};

impl Bbr3 {
    pub(super) fn is_in_probe_bw(&self) -> bool {
        use State::{ProbeCruise, ProbeDown, ProbeRefill, ProbeUp};
        matches!(self.state, ProbeDown | ProbeCruise | ProbeRefill | ProbeUp)
    }

    /// §5.3.3.9: IsProbingBW.
    pub(super) fn is_probing_bw(&self) -> bool {
        matches!(
            self.state,
            State::Startup | State::ProbeRefill | State::ProbeUp
        )
    }

    pub(super) fn start_down(&mut self, ack: &Ack) {
        self.start_down_at(ack.now, ack.total_delivered);
    }

    /// §5.3.3.9: StartProbeBW_DOWN, with PickProbeWait of §5.3.3.8.3: waits 2 to 3 s, and counts
    /// the rounds from 0 or 1, at random.
    pub(super) fn start_down_at(&mut self, now: Time, delivered: u64) {
        self.is_loss_in_round = false;
        (self.bw_latest, self.inflight_latest) = (0, 0);
        self.probe_up_acked_per_inc = u64::MAX;
        self.rounds_since_probe_up = self.draw(2);
        self.probe_wait = PROBE_WAIT + Span::from_ns(self.draw(1_000_000_000));
        self.cycle_at = now;
        self.ack_phase = AckPhase::ProbeStopping;
        self.next_round_delivered = delivered;
        self.state = State::ProbeDown;
    }

    pub(super) fn start_refill(&mut self, delivered: u64) {
        self.reset_short_term();
        self.probe_up_rounds = 0;
        self.probe_up_acked = 0;
        self.prev_probe_precautionary = false;
        self.ack_phase = AckPhase::Refilling;
        self.next_round_delivered = delivered;
        self.state = State::ProbeRefill;
    }

    pub(super) fn start_up(&mut self, ack: &Ack, sample: &Sample, window: &Window) {
        self.ack_phase = AckPhase::ProbeStarting;
        self.start_round(ack);
        self.reset_full_bw(sample.rate);
        self.state = State::ProbeUp;
        self.raise_slope(window);
    }

    pub(super) fn reset_short_term(&mut self) {
        self.bw_shortterm = u64::MAX;
        self.inflight_shortterm = u64::MAX;
    }

    /// §5.3.3.9: UpdateProbeBWCyclePhase.
    pub(super) fn update_cycle(&mut self, ack: &Ack, sample: &Sample, window: &Window) {
        if !self.full_bw_reached || self.adapt_long_term(ack, sample, window) {
            return;
        }
        match self.state {
            State::ProbeDown => self.update_down(ack, window),
            State::ProbeCruise => {
                self.check_probe_time(ack, window);
            }
            State::ProbeRefill if self.is_round_start => {
                self.is_probe_sample = true;
                self.start_up(ack, sample, window);
            }
            State::ProbeUp => self.update_up(ack, sample, window),
            _ => {}
        }
    }

    /// §5.3.3.9: the exits of ProbeBW_DOWN, with IsTimeToCruise.
    fn update_down(&mut self, ack: &Ack, window: &Window) {
        if !self.check_probe_time(ack, window)
            && ack.in_flight <= self.inflight_with_headroom()
            && ack.in_flight <= self.inflight_of(self.max_bw(), 100)
        {
            self.state = State::ProbeCruise;
        }
    }

    /// §5.3.3.9: the exit of ProbeBW_UP.
    fn update_up(&mut self, ack: &Ack, sample: &Sample, window: &Window) {
        if self.is_time_to_go_down(ack, sample, window) {
            self.prev_probe_too_high = false;
            self.start_down(ack);
        }
    }

    /// §5.3.3.8.3: IsTimeToProbeBW. A Reno flow with this window would have lost a packet after as
    /// many rounds as the window has segments. The wait lasts 63 rounds at most.
    pub(super) fn check_probe_time(&mut self, ack: &Ack, window: &Window) -> bool {
        let rounds = (self.target_inflight(window) / self.mss).min(MOST_RENO_ROUNDS);
        let is_time = ack.now > self.cycle_at.saturating_add(self.probe_wait)
            || self.rounds_since_probe_up >= rounds;
        if is_time {
            self.start_refill(ack.total_delivered);
        }
        is_time
    }

    /// §5.3.3.8.3: TargetInflight.
    pub(super) fn target_inflight(&self, window: &Window) -> u64 {
        self.bdp(100).min(window.cwnd)
    }

    /// §5.3.3.9: IsTimeToGoDown.
    pub(super) fn is_time_to_go_down(
        &mut self,
        ack: &Ack,
        sample: &Sample,
        window: &Window,
    ) -> bool {
        if self.prev_probe_too_high && ack.in_flight >= self.inflight_longterm {
            self.prev_probe_precautionary = true;
            return true;
        }
        if self.is_cwnd_limited(ack, window) && window.cwnd >= self.inflight_longterm {
            self.reset_full_bw(sample.rate);
            return false;
        }
        self.full_bw_now
    }

    pub(super) fn is_cwnd_limited(&self, ack: &Ack, window: &Window) -> bool {
        ack.prior_in_flight + self.mss > window.cwnd
    }

    /// §5.3.3.9: AdaptLongTermModel; returns whether it has decided on a transition.
    pub(super) fn adapt_long_term(&mut self, ack: &Ack, sample: &Sample, window: &Window) -> bool {
        if self.ack_phase == AckPhase::ProbeStarting && self.is_round_start {
            self.ack_phase = AckPhase::ProbeFeedback;
        }
        if self.ack_phase == AckPhase::ProbeStopping && self.is_round_start {
            self.is_probe_sample = false;
            self.ack_phase = AckPhase::Init;
            if self.is_in_probe_bw() && !sample.is_app_limited {
                // §5.5.6: AdvanceMaxBwFilter
                self.max_bw = [0, self.max_bw[0]];
            }
            if self.is_in_probe_bw() && self.prev_probe_precautionary && !self.prev_probe_too_high {
                self.start_refill(ack.total_delivered);
                return true;
            }
        }
        if !Bbr3::is_inflight_too_high(sample) && self.inflight_longterm != u64::MAX {
            self.inflight_longterm = self.inflight_longterm.max(sample.sent.in_flight);
            if self.state == State::ProbeUp {
                self.probe_upward(ack, window);
            }
        }
        false
    }

    /// §5.3.3.9: ProbeInflightLongtermUpward: by 1, 2, 4, ... segments per round.
    pub(super) fn probe_upward(&mut self, ack: &Ack, window: &Window) {
        if !self.is_cwnd_limited(ack, window) || window.cwnd < self.inflight_longterm {
            return;
        }
        self.probe_up_acked += ack.delivered;
        let steps = self.probe_up_acked / self.probe_up_acked_per_inc;
        self.probe_up_acked -= steps * self.probe_up_acked_per_inc;
        self.inflight_longterm += steps * self.mss;
        if self.is_round_start {
            self.raise_slope(window);
        }
    }

    /// §5.3.3.9: RaiseInflightLongtermSlope.
    pub(super) fn raise_slope(&mut self, window: &Window) {
        let growth = 1_u64 << self.probe_up_rounds;
        self.probe_up_rounds = (self.probe_up_rounds + 1).min(30);
        self.probe_up_acked_per_inc = (window.cwnd / growth).max(self.mss);
    }

    /// §5.3.3.9: InflightWithHeadroom.
    pub(super) fn inflight_with_headroom(&self) -> u64 {
        if self.inflight_longterm == u64::MAX {
            return u64::MAX;
        }
        let headroom = scale(self.inflight_longterm, HEADROOM, 100).max(self.mss);
        let left = self.inflight_longterm.saturating_sub(headroom);
        left.max(self.min_cwnd())
    }
}
