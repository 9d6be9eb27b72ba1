//! DCTCP (RFC 8257): the window is reduced in proportion to the fraction of marked bytes.
//!
//! The receiver echoes each CE (RFC 8257 §3.2). Once per window, the sender estimates which
//! fraction of the bytes was marked, and reduces a window with marks by half of that estimate.
//! Growth (§3.4) and the reaction to loss (§3.5) are those of Reno.
//!
//! Deviations:
//! 1. bytes count as acknowledged when they are delivered, cumulatively or by SACK, as in Linux
//!    (§3.3, step 1 ignores SACK);
//! 2. SYN, pure ACKs and retransmissions are Not-ECT (§3.6 and §4.1 recommend ECT for them).
//!
//! Fixed point: alpha in 2^-20. Defaults: g = 1/16 (§4.2), alpha starts at 1 (§3.3), so the first
//! mark halves the window.

use super::hystart::SlowStartState;
use super::{
    Ack, CongestionControl, Descriptor, Episode, INITIAL_WINDOW, Params, Signal, SlowStart, Window,
    scale,
};
use crate::ecn::EcnMode;
use alloc::boxed::Box;

/// DCTCP.
pub static DCTCP: Descriptor = Descriptor {
    name: "dctcp",
    summary: "DCTCP: reduces in proportion to the fraction of marked bytes; needs ECN",
    source: "RFC 8257",
    ecn: EcnMode::Dctcp,
    paces: false,
    slow_start: SlowStart::Standard,
    has_abe: false,
    has_hystart: false,
    initial_window: INITIAL_WINDOW,
    create: |params| Box::new(Dctcp::new(params)),
};

/// State of one connection.
#[derive(Clone, Debug)]
pub struct Dctcp {
    mss: u64,
    slow_start: SlowStartState,
    alpha: Alpha,
    acked: u64,
}

/// The moving average of the marked fraction (RFC 8257 §3.3), shared with Prague.
#[derive(Clone, Debug)]
pub(crate) struct Alpha {
    /// DCTCP.Alpha in 2^-20.
    value: u64,
    bytes_acked: u64,
    bytes_marked: u64,
}

impl Alpha {
    pub const ONE: u64 = 1 << 20;

    pub fn new() -> Self {
        Alpha {
            value: Alpha::ONE,
            bytes_acked: 0,
            bytes_marked: 0,
        }
    }

    pub const fn value(&self) -> u64 {
        self.value
    }

    pub fn count(&mut self, acked: u64, marked: u64) {
        self.bytes_acked += acked;
        self.bytes_marked += marked;
    }

    /// RFC 8257 §3.3, steps 5, 6 and 8: Alpha = Alpha * (1 - g) + g * M with g = 1/16.
    pub fn update(&mut self) {
        if self.bytes_acked > 0 {
            let marked = self.bytes_marked.min(self.bytes_acked);
            let fraction = scale(Alpha::ONE, marked, self.bytes_acked);
            // RFC 8257 §4.2: a value whose sixteenth rounds to zero is set to zero, which it would
            // otherwise never reach.
            let lost = if self.value < 16 {
                self.value
            } else {
                self.value / 16
            };
            self.value = self.value - lost + fraction / 16;
            self.bytes_acked = 0;
            self.bytes_marked = 0;
        }
    }

    /// RFC 8257 §3.3, step 9: cwnd * (1 - Alpha / 2).
    pub fn reduce(&self, bytes: u64) -> u64 {
        bytes - scale(bytes, self.value, 2 * Alpha::ONE)
    }
}

impl Dctcp {
    /// The state of a new connection.
    pub fn new(params: &Params) -> Self {
        Dctcp {
            mss: params.mss,
            slow_start: SlowStartState::new(params),
            alpha: Alpha::new(),
            acked: 0,
        }
    }
}

impl CongestionControl for Dctcp {
    fn on_ack(&mut self, ack: &Ack, window: &mut Window) {
        // RFC 8257 §3.3, step 3: all bytes of an ACK with ECE count as marked.
        let marked = if ack.has_ece { ack.delivered } else { 0 };
        self.alpha.count(ack.delivered, marked);
        // §3.3, steps 4 and 7: one observation window is one window of data.
        if ack.is_round_start {
            self.alpha.update();
        }
        if !ack.allows_growth() {
            return;
        }
        let mut delivered = ack.delivered;
        if window.is_slow_start() {
            delivered = self.slow_start.on_ack(ack, window);
        }
        self.acked += delivered;
        while self.acked >= window.cwnd {
            self.acked -= window.cwnd;
            window.cwnd += self.mss;
        }
    }

    fn on_congestion(&mut self, signal: Signal, episode: &Episode, window: &mut Window) {
        let base = window.cwnd.min(episode.flight);
        let reduced = match signal {
            Signal::Ecn => self.alpha.reduce(base),
            // RFC 8257 §3.5: the reaction to a loss is that of standard TCP.
            Signal::Loss | Signal::Timeout => base / 2,
        };
        window.ssthresh = reduced.max(2 * self.mss);
        self.acked = 0;
        self.slow_start.on_congestion();
    }

    fn variable(&self) -> (&'static str, u64) {
        ("alpha_ppm", scale(self.alpha.value, 1_000_000, Alpha::ONE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cc::testing::{self, MSS};

    fn round(dctcp: &mut Dctcp, window: &mut Window, marked: u64) {
        for i in 0..10 {
            let ack = Ack {
                has_ece: i < marked,
                is_round_start: i == 9,
                is_cwnd_limited: false,
                ..testing::ack(MSS)
            };
            dctcp.on_ack(&ack, window);
        }
    }

    #[test]
    fn alpha_follows_the_marked_fraction() {
        let mut dctcp = Dctcp::new(&testing::PARAMS);
        let mut window = testing::window(100);
        // 1 * 15/16 + 0.3 / 16 = 0.95625
        round(&mut dctcp, &mut window, 3);
        assert_eq!(dctcp.variable(), ("alpha_ppm", 956_249));
        for _ in 0..200 {
            round(&mut dctcp, &mut window, 3);
        }
        // The average converges to 0.3, less the rounding of each step (16 * 2^-20).
        assert!(dctcp.variable().1.abs_diff(300_000) < 50);
    }

    #[test]
    fn without_marks_alpha_reaches_zero() {
        // Multiplied by 15/16 each round, 2^20 is below 16 after ln(2^16) / ln(16/15) = 172 rounds.
        // Rounding (half a unit per round) delays it by some rounds.
        let mut alpha = Alpha::new();
        for _ in 0..240 {
            alpha.count(10, 0);
            alpha.update();
        }
        assert_eq!(alpha.value(), 0);
    }

    #[test]
    fn a_mark_takes_half_of_alpha_and_a_loss_half_of_the_window() {
        let mut dctcp = Dctcp::new(&testing::PARAMS);
        let mut window = testing::window(100);
        let episode = testing::episode(100 * MSS);
        // Alpha starts at 1: 100 * (1 - 1/2)
        dctcp.on_congestion(Signal::Ecn, &episode, &mut window);
        assert_eq!(window.ssthresh, 50 * MSS);
        dctcp.alpha.value = Alpha::ONE / 4;
        // 100 * (1 - 0.25 / 2) = 87.5
        dctcp.on_congestion(Signal::Ecn, &episode, &mut window);
        assert_eq!(window.ssthresh, 87_500);
        dctcp.on_congestion(Signal::Loss, &episode, &mut window);
        assert_eq!(window.ssthresh, 50 * MSS);
    }
}
