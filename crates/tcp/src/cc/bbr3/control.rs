//! The parameters that the model controls: pacing rate and window (§5.6).

use super::super::{Ack, Window, scale};
use super::{Bbr3, PACING_MARGIN, PROBE_RTT_GAIN, State};
use sluice_core::Span;

impl Bbr3 {
    /// §5.6.1: the gain of the pacing rate.
    pub(super) fn pacing_gain(&self) -> u64 {
        match self.state {
            State::Startup => 277,
            State::Drain => 50,
            State::ProbeDown => 90,
            State::ProbeUp => 125,
            State::ProbeCruise | State::ProbeRefill | State::ProbeRtt => 100,
        }
    }

    /// §5.6.1: the gain of the window.
    pub(super) fn cwnd_gain(&self) -> u64 {
        match self.state {
            State::ProbeUp => 225,
            State::ProbeRtt => PROBE_RTT_GAIN,
            _ => 200,
        }
    }

    /// §5.6.2: 1 % below the bandwidth.
    pub(super) fn set_pacing_rate(&mut self, srtt: Span, gain: u64) {
        if self.pacing_rate == 0 {
            let rtt = if srtt > Span::ZERO {
                srtt
            } else {
                Span::from_ms(1)
            };
            let nominal = scale(self.initial_window, 1_000_000_000, rtt.as_ns());
            self.pacing_rate = scale(nominal, self.pacing_gain(), 100);
        }
        let rate = scale(self.bw, gain * (100 - PACING_MARGIN), 10_000);
        if self.full_bw_reached || rate > self.pacing_rate {
            self.pacing_rate = rate;
        }
    }

    /// §5.6.3: SetSendQuantum.
    pub(super) fn quantum(&self) -> u64 {
        (self.pacing_rate / 1000).min(65_536).max(2 * self.mss)
    }

    pub(super) fn bdp(&self, gain: u64) -> u64 {
        self.bdp_of(self.bw, gain)
    }

    /// §5.6.4.2: BDPMultiple.
    pub(super) fn bdp_of(&self, bandwidth: u64, gain: u64) -> u64 {
        if self.min_rtt == Span::MAX {
            return self.initial_window;
        }
        let bdp = scale(bandwidth, self.min_rtt.as_ns(), 1_000_000_000);
        scale(bdp, gain, 100)
    }

    /// §5.6.4.2: QuantizationBudget, with the offload budget of TCP (§5.5.8.1).
    pub(super) fn with_budget(&self, bytes: u64) -> u64 {
        let bytes = bytes.max(3 * self.quantum()).max(self.min_cwnd());
        bytes
            + if self.state == State::ProbeUp {
                2 * self.mss
            } else {
                0
            }
    }

    pub(super) fn inflight(&self, gain: u64) -> u64 {
        self.inflight_of(self.bw, gain)
    }

    pub(super) fn inflight_of(&self, bandwidth: u64, gain: u64) -> u64 {
        self.with_budget(self.bdp_of(bandwidth, gain))
    }

    /// §5.6.4.3: BBR.MinPipeCwnd.
    pub(super) fn min_cwnd(&self) -> u64 {
        4 * self.mss
    }

    /// §5.6.4.6: SetCwnd.
    pub(super) fn set_cwnd(&self, ack: &Ack, window: &mut Window) {
        let extra = self.extra_acked.max();
        let most = self.with_budget(self.bdp(self.cwnd_gain()) + extra);
        if self.full_bw_reached {
            window.cwnd = (window.cwnd + ack.delivered).min(most);
        } else if window.cwnd < most || ack.total_delivered < self.initial_window {
            window.cwnd += ack.delivered;
        }
        window.cwnd = window.cwnd.max(self.min_cwnd());
        // §5.6.4.5
        if self.state == State::ProbeRtt {
            window.cwnd = window.cwnd.min(self.probe_rtt_cwnd);
        }
        // §5.6.4.7: BoundCwndForModel
        let cap = match self.state {
            State::ProbeRtt | State::ProbeCruise => self.inflight_with_headroom(),
            State::ProbeDown | State::ProbeRefill | State::ProbeUp => self.inflight_longterm,
            State::Startup | State::Drain => u64::MAX,
        };
        let cap = cap.min(self.inflight_shortterm).max(self.min_cwnd());
        window.cwnd = window.cwnd.min(cap);
    }
}
