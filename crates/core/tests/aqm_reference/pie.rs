//! PIE three times: RFC 8033 appendix A with sections 5.1 to 5.5 in floating point, and the Linux
//! and dummynet rules in the integers in which they are defined. Written from the RFC and from the
//! lists of deviations alone; the source of randomness is the only thing shared with the
//! implementation.

use sluice_core::Rng;

use crate::link::Arrival;

#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub ecn: bool,
    pub capdrop: bool,
    pub derand: bool,
    pub onoff: bool,
    pub dre: bool,
    pub bytemode: bool,
    /// Packets that the queue holds.
    pub limit: usize,
}

impl Settings {
    pub const DEFAULTS: Settings = Settings {
        ecn: false,
        capdrop: true,
        derand: true,
        onoff: false,
        dre: false,
        bytemode: false,
        limit: 1000,
    };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Enqueue,
    Mark,
    Drop,
}

/// The content of the queue, without the packet in question.
#[derive(Clone, Copy)]
pub struct Held {
    pub packets: usize,
    pub bytes: u64,
}

/// One controller.
pub trait Controller {
    fn arrive(&mut self, now: u64, arrival: &Arrival, held: Held, rng: &mut Rng) -> Decision;
    /// A full queue refused a packet.
    fn refuse(&mut self, now: u64, held: Held);
    fn depart(&mut self, now: u64, arrived: u64, size: u32, left: Held);
    /// Returns when the next update is due.
    fn due(&self) -> Option<u64>;
    fn update(&mut self, held: Held);
    /// The flow queue joins or leaves the lists, or lost a packet to overflow.
    fn activate(&mut self, _now: u64) {}
    fn deactivate(&mut self) {}
    fn evict(&mut self) {}
    /// Returns the drop probability, 1 for certain.
    fn probability(&self) -> f64;
}

const MS: u64 = 1_000_000;

/// RFC 8033, times in ns.
pub struct Rfc {
    s: Settings,
    drop_prob: f64,
    accu_prob: f64,
    current_qdelay: f64,
    qdelay_old: f64,
    burst_allowance: f64,
    active: bool,
    next: u64,
    in_measurement: bool,
    measurement_start: u64,
    dq_count: u64,
    avg_dq_time: f64,
}

impl Rfc {
    pub fn new(s: Settings) -> Self {
        Rfc {
            s,
            drop_prob: 0.0,
            accu_prob: 0.0,
            current_qdelay: 0.0,
            qdelay_old: 0.0,
            burst_allowance: 0.150,
            active: !s.onoff,
            next: 15 * MS,
            in_measurement: true,
            measurement_start: 0,
            dq_count: 0,
            avg_dq_time: 0.0,
        }
    }

    fn drop_early(&mut self, arrival: &Arrival, held: Held, rng: &mut Rng) -> bool {
        if self.qdelay_old < 0.015 / 2.0 && self.drop_prob < 0.2 {
            return false;
        }
        if held.bytes <= 2 * 800 {
            return false;
        }
        if self.drop_prob == 0.0 {
            self.accu_prob = 0.0;
        }
        let mut p = self.drop_prob;
        if self.s.bytemode {
            p = (p * f64::from(arrival.size) / 800.0).min(0.85);
        }
        if self.s.derand {
            self.accu_prob += p;
            if self.accu_prob < 0.85 {
                return false;
            }
            if self.accu_prob >= 8.5 {
                return true;
            }
        }
        let u = (rng.next_u64() >> 8) as f64 / (1u64 << 56) as f64;
        if u < p {
            self.accu_prob = 0.0;
            return true;
        }
        false
    }

    fn after_arrival(&mut self, now: u64, held: Held) {
        if !self.active && held.packets >= self.s.limit / 3 {
            self.active = true;
            self.drop_prob = 0.0;
            self.accu_prob = 0.0;
            self.qdelay_old = 0.0;
            self.burst_allowance = 0.150;
            self.in_measurement = true;
            self.measurement_start = now;
            self.dq_count = 0;
            self.avg_dq_time = 0.0;
            self.next = now + 15 * MS;
        }
        let half = 0.015 / 2.0;
        let quiet = self.drop_prob == 0.0 && self.current_qdelay < half && self.qdelay_old < half;
        if self.active && quiet {
            self.burst_allowance = 0.150;
            if self.s.onoff && held.bytes == 0 {
                self.active = false;
                self.in_measurement = false;
            }
        }
    }
}

impl Controller for Rfc {
    fn arrive(&mut self, now: u64, arrival: &Arrival, held: Held, rng: &mut Rng) -> Decision {
        let mut decision = Decision::Enqueue;
        if self.active && self.burst_allowance == 0.0 && self.drop_early(arrival, held, rng) {
            let marks = self.s.ecn && arrival.is_capable() && self.drop_prob < 0.1;
            decision = if marks {
                Decision::Mark
            } else {
                Decision::Drop
            };
        }
        self.after_arrival(now, held);
        if decision == Decision::Drop {
            self.accu_prob = 0.0;
        }
        decision
    }

    fn refuse(&mut self, now: u64, held: Held) {
        self.after_arrival(now, held);
        self.accu_prob = 0.0;
    }

    fn depart(&mut self, now: u64, arrived: u64, size: u32, left: Held) {
        if !self.active {
            return;
        }
        if !self.s.dre {
            self.current_qdelay = (now - arrived) as f64 / 1e9;
            return;
        }
        if self.in_measurement {
            self.dq_count += u64::from(size);
            if self.dq_count >= 16384 {
                // Whole nanoseconds, the resolution of the clock.
                let dq_time = (now - self.measurement_start) as f64;
                self.avg_dq_time = if self.avg_dq_time == 0.0 {
                    dq_time
                } else {
                    ((dq_time + 3.0 * self.avg_dq_time) / 4.0).floor()
                };
                self.in_measurement = false;
            }
        }
        if !self.in_measurement && left.bytes >= 16384 {
            self.in_measurement = true;
            self.measurement_start = now;
            self.dq_count = 0;
        }
    }

    fn due(&self) -> Option<u64> {
        self.active.then_some(self.next)
    }

    fn update(&mut self, held: Held) {
        if self.s.dre {
            let ns = held.bytes as f64 * self.avg_dq_time / 16384.0;
            self.current_qdelay = ns.floor() / 1e9;
        } else if held.bytes == 0 {
            self.current_qdelay = 0.0;
        }
        let mut p =
            0.125 * (self.current_qdelay - 0.015) + 1.25 * (self.current_qdelay - self.qdelay_old);
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
        } else {
            1.0
        };
        if self.s.capdrop && self.drop_prob >= 0.1 && p > 0.02 {
            p = 0.02;
        }
        self.drop_prob += p;
        if self.current_qdelay == 0.0 && self.qdelay_old == 0.0 {
            self.drop_prob *= 0.98;
        }
        self.drop_prob = self.drop_prob.clamp(0.0, 1.0);
        self.qdelay_old = self.current_qdelay;
        self.burst_allowance = (self.burst_allowance - 0.015).max(0.0);
        // 0.15 is ten times 0.015, but not in binary.
        if self.burst_allowance < 1e-9 {
            self.burst_allowance = 0.0;
        }
        self.next += 15 * MS;
    }

    fn probability(&self) -> f64 {
        self.drop_prob
    }
}

/// Linux, times in ticks of 64 ns, the probability of one is 2^56 - 1.
pub struct Linux {
    s: Settings,
    prob: u64,
    accu: u64,
    qdelay: u64,
    qdelay_old: u64,
    burst: u64,
    stamp: Option<u64>,
    dq_count: Option<u64>,
    rate: u64,
    next: u64,
}

const P1: u64 = (1 << 56) - 1;
/// 15 ms and 250 ms in ticks.
const TARGET: u64 = 15_000_000 / 64;
const HIGH: u64 = 250_000_000 / 64;

impl Linux {
    pub fn new(s: Settings) -> Self {
        Linux {
            s,
            prob: 0,
            accu: 0,
            qdelay: 0,
            qdelay_old: 0,
            burst: 150_000_000 / 64,
            stamp: None,
            dq_count: None,
            rate: 0,
            next: 500 * MS,
        }
    }

    fn drop_early(&mut self, arrival: &Arrival, held: Held, rng: &mut Rng) -> bool {
        let calm = self.qdelay < TARGET / 2 && self.prob < P1 / 5;
        if self.burst > 0 || calm || held.bytes < 3028 {
            return false;
        }
        let p = if self.s.bytemode && arrival.size <= 1514 {
            u64::from(arrival.size) * (self.prob / 1514)
        } else {
            self.prob
        };
        self.accu = if p == 0 {
            0
        } else {
            (u128::from(self.accu) + u128::from(p)) as u64
        };
        if self.accu < P1 / 100 * 85 {
            return false;
        }
        if self.accu >= P1 / 2 * 17 {
            return true;
        }
        if rng.next_u64() >> 8 < p {
            self.accu = 0;
            return true;
        }
        false
    }
}

impl Controller for Linux {
    fn arrive(&mut self, _now: u64, arrival: &Arrival, held: Held, rng: &mut Rng) -> Decision {
        if !self.drop_early(arrival, held, rng) {
            return Decision::Enqueue;
        }
        if self.s.ecn && arrival.is_capable() && self.prob <= P1 / 10 {
            return Decision::Mark;
        }
        self.accu = 0;
        Decision::Drop
    }

    fn refuse(&mut self, _now: u64, _held: Held) {
        self.accu = 0;
    }

    fn depart(&mut self, now: u64, arrived: u64, size: u32, left: Held) {
        let now = now / 64;
        let mut passed = 0;
        if self.s.dre {
            if left.bytes >= 16384 && self.dq_count.is_none() {
                self.stamp = Some(now);
                self.dq_count = Some(0);
            }
            if let Some(count) = self.dq_count {
                let count = count + u64::from(size);
                self.dq_count = Some(count);
                let took = now - self.stamp.expect("a measurement has a start");
                if count >= 16384 && took > 0 {
                    passed = took;
                    let sample = count * 256 % (1 << 32) / took;
                    self.rate = match self.rate {
                        0 => sample,
                        rate => rate - rate / 8 + sample / 8,
                    };
                    let goes_on = left.bytes >= 16384;
                    self.dq_count = goes_on.then_some(0);
                    if goes_on {
                        self.stamp = Some(now);
                    }
                }
            }
        } else {
            self.qdelay = if left.bytes == 0 {
                0
            } else {
                now - arrived / 64
            };
            if let Some(stamp) = self.stamp {
                passed = (now - stamp) % (1 << 32);
            }
            self.stamp = Some(now);
        }
        self.burst -= passed.min(self.burst);
    }

    fn due(&self) -> Option<u64> {
        Some(self.next)
    }

    fn update(&mut self, held: Held) {
        self.next += 15 * MS;
        if self.s.dre {
            self.qdelay_old = self.qdelay;
            self.qdelay = match self.rate {
                0 => 0,
                rate => held.bytes * 256 % (1 << 32) / rate,
            };
        }
        let (qdelay, qdelay_old) = (self.qdelay, self.qdelay_old);
        let decays = !(qdelay == 0 && held.bytes != 0);
        // Gains of 2 and 20 sixteenths per second of 15 625 000 ticks.
        let mut shift = 4;
        if self.prob < P1 / 10 {
            shift += 1;
            for power in [100, 1000, 10_000, 100_000, 1_000_000] {
                if self.prob < P1 / power {
                    shift += 2;
                }
            }
        }
        let gain = |sixteenths: u64| i128::from((sixteenths * (P1 / 15_625_000)) >> shift);
        let apart = |a: u64, b: u64| i128::from(a) - i128::from(b);
        let wide = gain(2) * apart(qdelay, TARGET) + gain(20) * apart(qdelay, qdelay_old);
        let mut delta = wide as i64;
        if delta > (P1 / 50) as i64 && self.prob >= P1 / 10 {
            delta = (P1 / 100 * 2) as i64;
        }
        if qdelay > HIGH {
            delta = (i128::from(delta) + i128::from(P1 / 50)) as i64;
        }
        let sum = i128::from(self.prob) + i128::from(delta);
        let mut may = decays;
        if sum >= 1 << 64 {
            self.prob = P1;
            may = false;
        } else {
            self.prob = sum.max(0) as u64;
        }
        if qdelay == 0 && qdelay_old == 0 && may {
            self.prob -= self.prob / 64;
        }
        let low = TARGET / 2;
        if qdelay < low && self.qdelay_old < low && self.prob == 0 && (!self.s.dre || self.rate > 0)
        {
            self.burst = 150_000_000 / 64;
            self.stamp = None;
            self.accu = 0;
            self.dq_count = None;
            self.rate = 0;
        }
        if !self.s.dre {
            self.qdelay_old = qdelay;
        }
    }

    fn probability(&self) -> f64 {
        self.prob as f64 / (1u64 << 56) as f64
    }
}

/// dummynet, times in us, the probability of one is 2^31 - 1.
pub struct Dummynet {
    s: Settings,
    /// In a flow queue of its `fq_pie`.
    is_flow: bool,
    active: bool,
    prob: i64,
    accu: i64,
    current: i64,
    old: i64,
    burst: i64,
    measuring: bool,
    start: u64,
    count: u64,
    avg: u64,
    next: u64,
}

const Q1: i64 = (1 << 31) - 1;

impl Dummynet {
    pub fn new(s: Settings, is_flow: bool) -> Self {
        Dummynet {
            s,
            is_flow,
            active: !is_flow && !s.onoff,
            prob: 0,
            accu: 0,
            current: 0,
            old: 0,
            burst: 150_000,
            measuring: !is_flow,
            start: 0,
            count: 0,
            avg: 0,
            next: 15 * MS,
        }
    }

    fn drop_early(&mut self, held: Held, rng: &mut Rng) -> bool {
        if (self.old < 7_500 && self.prob < Q1 / 5) || held.bytes <= 1600 {
            return false;
        }
        if self.prob == 0 {
            self.accu = 0;
        }
        if self.s.derand {
            self.accu += self.prob;
            // 0.85 and 8.5 times 2^31 - 1 are 1825361099.95 and 18253610999.5.
            if self.accu < 1_825_361_099 {
                return false;
            }
            if self.accu >= 18_253_610_999 {
                return true;
            }
        }
        let drops = ((rng.next_u64() >> 33) as i64) < self.prob;
        if drops {
            self.accu = 0;
        }
        drops
    }

    fn after_arrival(&mut self, now: u64, held: Held) {
        let has_third = if self.is_flow {
            held.bytes > 0
        } else {
            held.packets >= self.s.limit / 3
        };
        if !self.active && has_third {
            self.activate(now);
        }
        if self.active && self.prob == 0 && self.current < 7_500 && self.old < 7_500 {
            self.burst = 150_000;
            if self.s.onoff && held.bytes == 0 {
                self.active = false;
                self.measuring = false;
            }
        }
    }
}

impl Controller for Dummynet {
    fn arrive(&mut self, now: u64, arrival: &Arrival, held: Held, rng: &mut Rng) -> Decision {
        let mut decision = Decision::Enqueue;
        if self.active && self.burst == 0 && self.drop_early(held, rng) {
            // A tenth is 819 of 8192 parts.
            let marks = self.s.ecn && arrival.is_capable() && self.prob < 819 << 18;
            decision = if marks {
                Decision::Mark
            } else {
                Decision::Drop
            };
        }
        self.after_arrival(now, held);
        if decision == Decision::Drop {
            self.accu = 0;
        }
        decision
    }

    fn refuse(&mut self, now: u64, held: Held) {
        self.after_arrival(now, held);
        self.accu = 0;
    }

    fn depart(&mut self, now: u64, arrived: u64, size: u32, left: Held) {
        if !self.active {
            return;
        }
        let us = |ns: u64| ns / 1000 % (1 << 32);
        let since = |then: u64| (us(now) + (1 << 32) - us(then)) % (1 << 32);
        if !self.s.dre {
            self.current = since(arrived) as i64;
            return;
        }
        if self.measuring {
            self.count += u64::from(size);
            if self.count >= 16384 {
                let took = since(self.start);
                if self.avg == 0 {
                    self.avg = took;
                } else {
                    self.avg = (took * 64 % (1 << 32) + self.avg * 192) / 256;
                    self.measuring = false;
                }
            }
        }
        if !self.measuring && left.bytes >= 16384 {
            self.measuring = true;
            self.start = now;
            self.count = 0;
        }
    }

    fn due(&self) -> Option<u64> {
        self.active.then_some(self.next)
    }

    fn update(&mut self, held: Held) {
        self.next += 15 * MS;
        if self.s.dre {
            self.current = (held.bytes * self.avg / 16384) as i64;
        } else if held.bytes == 0 && !self.is_flow {
            self.current = 0;
        }
        // 0.125 and 1.25 are 1024 and 10240 of 8192 parts.
        let change = 1024 * (self.current - 15_000) + 10_240 * (self.current - self.old);
        let scaled = change.abs() * ((Q1 << 12) / 1_000_000);
        let mut shift = 25;
        for (power, more) in [(10, 1), (100, 2), (1000, 2), (10_000, 2), (100_000, 2)] {
            if self.prob < Q1 / power {
                shift += more;
            }
        }
        if self.prob < Q1 / 1_000_000 {
            shift += 2;
        }
        let mut step = scaled >> shift;
        if change >= 0 && self.s.capdrop && self.prob >= Q1 / 10 {
            step = step.min(Q1 / 50);
        }
        self.prob += if change < 0 { -step } else { step };
        if self.prob < 0 {
            self.prob = 0;
        } else if self.current == 0 && self.old == 0 {
            self.prob -= self.prob >> 6;
        }
        self.prob = self.prob.min(Q1);
        self.old = self.current;
        self.burst = (self.burst - 15_000).max(0);
    }

    fn activate(&mut self, now: u64) {
        self.active = true;
        self.prob = 0;
        self.old = 0;
        self.accu = 0;
        self.burst = 150_000;
        self.measuring = true;
        self.start = now;
        self.count = 0;
        self.avg = 0;
        self.next = now + 15 * MS;
    }

    fn deactivate(&mut self) {
        self.active = false;
        self.measuring = false;
    }

    fn evict(&mut self) {
        self.accu = 0;
    }

    fn probability(&self) -> f64 {
        self.prob as f64 / Q1 as f64
    }
}
