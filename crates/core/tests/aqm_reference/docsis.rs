//! DOCSIS-PIE: RFC 8034 appendix A in floating point, written only from its pseudo-code, with its
//! units (seconds and bytes per second). Delays are truncated to whole nanoseconds, the resolution
//! of the clock.

use sluice_core::Rng;

use crate::link::Arrival;
use crate::pie::{Controller, Decision, Held};

#[derive(Clone, Copy, Debug)]
pub struct Modem {
    /// `BUFFER_SIZE`, in packets.
    pub limit: usize,
    /// MSR and PEAK_RATE in bits per second, and the largest number of tokens in bytes.
    pub shaper: Option<(u64, u64, u64)>,
    /// Whether the controller starts `INACTIVE` and may become inactive again.
    pub has_inactive: bool,
}

impl Modem {
    pub fn spec(&self) -> String {
        let mut spec = format!("pie preset docsis limit {}", self.limit);
        if let Some((msr, peak, burst)) = self.shaper {
            spec += &format!(" msr {msr}bit/s peak_rate {peak}bit/s msr_burst {burst}");
        }
        if !self.has_inactive {
            spec += " noonoff";
        }
        spec
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Inactive,
    Quiescent,
    Active,
}

pub struct Docsis {
    modem: Modem,
    drop_prob: f64,
    accu_prob: f64,
    qdelay_old: f64,
    burst_allowance: f64,
    burst_reset: f64,
    aqm_state: State,
    next: u64,
    /// The time that the last packet waited.
    waited: f64,
    /// Tokens in bits times 10^9 at an instant.
    tokens: (i128, u64),
}

const LATENCY_TARGET: f64 = 0.010;
const INTERVAL: f64 = 0.016;
const BURST_RESET_TIMEOUT: f64 = 1.0;
const MAX_BURST: f64 = 0.142;
const MEAN_PKTSIZE: f64 = 1024.0;
const MIN_PKTSIZE: f64 = 64.0;
const PROB_LOW: f64 = 0.85;
const PROB_HIGH: f64 = 8.5;
const LATENCY_LOW: f64 = 0.005;
const LATENCY_HIGH: f64 = 0.200;

impl Docsis {
    pub fn new(modem: Modem) -> Self {
        Docsis {
            modem,
            drop_prob: 0.0,
            accu_prob: 0.0,
            qdelay_old: 0.0,
            burst_allowance: 0.0,
            burst_reset: 0.0,
            aqm_state: if modem.has_inactive {
                State::Inactive
            } else {
                State::Quiescent
            },
            next: 16_000_000,
            waited: 0.0,
            tokens: (
                modem
                    .shaper
                    .map_or(0, |(_, _, b)| i128::from(b) * 8 * 1_000_000_000),
                0,
            ),
        }
    }

    fn msrtokens(&self, now: u64) -> i128 {
        let (msr, _, burst) = self.modem.shaper.expect("there is a bucket");
        let (tokens, at) = self.tokens;
        let most = i128::from(burst) * 8 * 1_000_000_000;
        most.min(tokens + i128::from(msr) * i128::from(now - at))
    }

    fn qdelay(&self, now: u64, held: Held) -> f64 {
        let Some((msr, peak, _)) = self.modem.shaper else {
            return if held.bytes == 0 { 0.0 } else { self.waited };
        };
        let length = i128::from(held.bytes) * 8 * 1_000_000_000;
        let tokens = self.msrtokens(now);
        let ns = if length <= tokens {
            length / i128::from(peak)
        } else {
            (length - tokens) / i128::from(msr) + tokens / i128::from(peak)
        };
        ns as f64 / 1e9
    }

    fn drop_early(&mut self, size: u32, held: Held, rng: &mut Rng) -> bool {
        if self.burst_allowance > 0.0 {
            return false;
        }
        if self.drop_prob == 0.0 {
            self.accu_prob = 0.0;
        }
        if self.aqm_state == State::Inactive {
            if (held.packets as f64) < self.modem.limit as f64 / 3.0 {
                return false;
            }
            self.aqm_state = State::Quiescent;
        }
        let mut p1 = self.drop_prob * f64::from(size) / MEAN_PKTSIZE;
        p1 = p1.min(PROB_LOW);
        self.accu_prob += p1;
        if (self.qdelay_old < 0.5 * LATENCY_TARGET && self.drop_prob < 0.2)
            || held.bytes as f64 <= 2.0 * MEAN_PKTSIZE
        {
            return false;
        }
        if self.accu_prob < PROB_LOW {
            return false;
        } else if self.accu_prob < PROB_HIGH {
            let u = (rng.next_u64() >> 8) as f64 / (1u64 << 56) as f64;
            if u > p1 {
                return false;
            }
        }
        self.accu_prob = 0.0;
        if self.aqm_state == State::Quiescent {
            self.aqm_state = State::Active;
            self.burst_allowance = MAX_BURST;
        }
        true
    }
}

impl Controller for Docsis {
    fn arrive(&mut self, _now: u64, arrival: &Arrival, held: Held, rng: &mut Rng) -> Decision {
        if self.drop_early(arrival.size, held, rng) {
            Decision::Drop
        } else {
            Decision::Enqueue
        }
    }

    fn refuse(&mut self, _now: u64, _held: Held) {
        self.accu_prob = 0.0;
    }

    fn depart(&mut self, now: u64, arrived: u64, size: u32, _left: Held) {
        self.waited = (now - arrived) as f64 / 1e9;
        if self.modem.shaper.is_some() {
            let left = self.msrtokens(now) - i128::from(size) * 8 * 1_000_000_000;
            self.tokens = (left.max(0), now);
        }
    }

    fn due(&self) -> Option<u64> {
        Some(self.next)
    }

    fn update(&mut self, held: Held) {
        let qdelay = self.qdelay(self.next, held);
        if held.bytes == 0 {
            self.waited = 0.0;
        }
        self.next += 16_000_000;
        if self.burst_allowance > 0.0 {
            self.drop_prob = 0.0;
            self.burst_allowance = (self.burst_allowance - INTERVAL).max(0.0);
        } else {
            let mut p = 0.25 * (qdelay - LATENCY_TARGET) + 2.5 * (qdelay - self.qdelay_old);
            p /= if self.drop_prob < 0.000001 {
                2048.0
            } else if self.drop_prob < 0.00001 {
                512.0
            } else if self.drop_prob < 0.0001 {
                128.0
            } else if self.drop_prob < 0.001 {
                32.0
            } else if self.drop_prob < 0.01 {
                8.0
            } else if self.drop_prob < 0.1 {
                2.0
            } else if self.drop_prob < 1.0 {
                0.5
            } else if self.drop_prob < 10.0 {
                0.125
            } else {
                0.03125
            };
            if self.drop_prob >= 0.1 && p > 0.02 {
                p = 0.02;
            }
            self.drop_prob += p;
            if qdelay < LATENCY_LOW && self.qdelay_old < LATENCY_LOW {
                self.drop_prob *= 0.98;
            } else if qdelay > LATENCY_HIGH {
                self.drop_prob += 0.02;
            }
            self.drop_prob = self.drop_prob.max(0.0);
            self.drop_prob = self.drop_prob.min(PROB_LOW * MEAN_PKTSIZE / MIN_PKTSIZE);
        }
        let quiet = qdelay < 0.5 * LATENCY_TARGET
            && self.qdelay_old < 0.5 * LATENCY_TARGET
            && self.drop_prob == 0.0
            && self.burst_allowance == 0.0;
        if self.aqm_state == State::Active && quiet {
            self.aqm_state = State::Quiescent;
            self.burst_reset = 0.0;
        } else if self.aqm_state == State::Quiescent {
            if quiet {
                self.burst_reset += INTERVAL;
                if self.burst_reset > BURST_RESET_TIMEOUT {
                    self.burst_reset = 0.0;
                    if self.modem.has_inactive {
                        self.aqm_state = State::Inactive;
                    }
                }
            } else {
                self.burst_reset = 0.0;
            }
        }
        self.qdelay_old = qdelay;
    }

    fn probability(&self) -> f64 {
        self.drop_prob
    }
}
