//! DualPI2: RFC 9332 figures 2, 3, 5, 7 and 8 in floating point, line by line, with the scheduler
//! of figure 10. For the scheduler that the RFC omits, it uses a round robin by bytes, which
//! according to appendix A.1 Linux uses. `p'` and `p_CL` are limited to 0 to 1, as the text around
//! the figures requires.

use std::collections::VecDeque;

use crate::link::{Arrival, Fate, Queue, Scene};
use crate::traces::{Lcg, MS, S};

#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub k: f64,
    pub min_th_us: u64,
    pub range_us: u64,
    pub th_len: usize,
    /// The time-shifted FIFO instead of the round robin.
    pub is_tsfifo: bool,
    pub any_ect: bool,
    pub limit: usize,
    pub limit_bytes: u64,
}

impl Settings {
    pub const DEFAULTS: Settings = Settings {
        k: 2.0,
        min_th_us: 800,
        range_us: 400,
        th_len: 1,
        is_tsfifo: false,
        any_ect: false,
        limit: 10_000,
        limit_bytes: 1 << 40,
    };

    pub fn spec(&self) -> String {
        format!(
            "dualpi2 coupling {} min_th {}us range {}us th_len {} scheduler {} classic_share 0.125 \
             {}any_ect limit {} limit_bytes {}",
            self.k,
            self.min_th_us,
            self.range_us,
            self.th_len,
            if self.is_tsfifo { "tsfifo" } else { "wrr" },
            if self.any_ect { "" } else { "no" },
            self.limit,
            self.limit_bytes
        )
    }
}

#[derive(Clone, Copy)]
struct Pkt {
    id: usize,
    size: u32,
    ecn: u8,
    at: u64,
}

#[derive(Default)]
struct Fifo {
    pkts: VecDeque<Pkt>,
    count: f64,
}

impl Fifo {
    fn byt(&self) -> u64 {
        self.pkts.iter().map(|p| u64::from(p.size)).sum()
    }

    fn time(&self, now: u64) -> u64 {
        self.pkts.front().map_or(0, |p| now - p.at)
    }

    fn recur(&mut self, likelihood: f64) -> bool {
        self.count += likelihood;
        if self.count > 1.0 {
            self.count -= 1.0;
            return true;
        }
        false
    }
}

pub struct DualPi2 {
    s: Settings,
    lq: Fifo,
    cq: Fifo,
    p: f64,
    p_cl: f64,
    p_c: f64,
    prevq: f64,
    next: u64,
    credit: f64,
    /// `p'` after each update.
    pub told: Vec<(u64, f64)>,
}

const TARGET: f64 = 0.015;
const TUPDATE: u64 = 16 * MS;
const ALPHA: f64 = 0.16;
const BETA: f64 = 3.2;
const P_LMAX: f64 = 1.0;
const MTU: u64 = 1514;
/// The classic queue's weight, which is exact in binary.
const WEIGHT: f64 = 0.125;
const FRESH: f64 = (2.0 * WEIGHT - 1.0) * MTU as f64;

impl DualPi2 {
    pub fn new(s: Settings) -> Self {
        DualPi2 {
            s,
            lq: Fifo::default(),
            cq: Fifo::default(),
            p: 0.0,
            p_cl: 0.0,
            p_c: 0.0,
            prevq: 0.0,
            next: TUPDATE,
            credit: FRESH,
            told: Vec::new(),
        }
    }

    fn laqm(&self, qdelay: u64) -> f64 {
        let min_th = self.s.min_th_us * 1000;
        let range = self.s.range_us * 1000;
        if qdelay >= min_th + range {
            1.0
        } else if qdelay > min_th {
            (qdelay - min_th) as f64 / range as f64
        } else {
            0.0
        }
    }

    fn chooses_lq(&self, now: u64) -> bool {
        if self.lq.pkts.is_empty() || self.cq.pkts.is_empty() {
            return !self.lq.pkts.is_empty();
        }
        if self.s.is_tsfifo {
            return self.lq.time(now) + 50 * MS >= self.cq.time(now);
        }
        self.credit <= 0.0
    }

    /// Removes a packet and notifies the scheduler.
    fn take(&mut self, is_lq: bool) -> Pkt {
        let is_contended = !self.lq.pkts.is_empty() && !self.cq.pkts.is_empty();
        let queue = if is_lq { &mut self.lq } else { &mut self.cq };
        let pkt = queue.pkts.pop_front().expect("the scheduler saw it");
        if is_contended {
            let weight = if is_lq { WEIGHT } else { WEIGHT - 1.0 };
            self.credit += f64::from(pkt.size) * weight;
        } else if self.lq.pkts.is_empty() && self.cq.pkts.is_empty() {
            self.credit = FRESH;
        }
        pkt
    }
}

impl Queue for DualPi2 {
    fn enqueue(&mut self, now: u64, id: usize, arrival: &Arrival, fates: &mut [Option<Fate>]) {
        let packets = self.lq.pkts.len() + self.cq.pkts.len();
        if self.lq.byt() + self.cq.byt() + MTU > self.s.limit_bytes || packets >= self.s.limit {
            fates[id] = Some(Fate::Refused(now));
            return;
        }
        let pkt = Pkt {
            id,
            size: arrival.size,
            ecn: arrival.ecn,
            at: now,
        };
        if arrival.ecn % 2 == 1 || (self.s.any_ect && arrival.ecn == 2) {
            self.lq.pkts.push_back(pkt);
        } else {
            self.cq.pkts.push_back(pkt);
        }
    }

    fn dequeue(&mut self, now: u64, fates: &mut [Option<Fate>]) -> Option<usize> {
        let p_cmax = (1.0 / (self.s.k * self.s.k)).min(1.0);
        while !self.lq.pkts.is_empty() || !self.cq.pkts.is_empty() {
            let mut marks = false;
            let is_lq = self.chooses_lq(now);
            let pkt = self.take(is_lq);
            if is_lq {
                if self.p_cl < P_LMAX {
                    let own = if self.lq.pkts.len() > self.s.th_len {
                        self.laqm(now - pkt.at)
                    } else {
                        0.0
                    };
                    let p_l = own.max(self.p_cl);
                    marks = self.lq.recur(p_l);
                } else {
                    if self.lq.recur(self.p_c) {
                        fates[pkt.id] = Some(Fate::Dropped(now));
                        continue;
                    }
                    marks = self.lq.recur(self.p_cl) || marks;
                }
            } else if self.cq.recur(self.p_c) {
                if pkt.ecn == 0 || self.p_c >= p_cmax {
                    fates[pkt.id] = Some(Fate::Dropped(now));
                    continue;
                }
                marks = true;
            }
            // A packet that arrived with CE is already marked.
            fates[pkt.id] = Some(if marks && pkt.ecn != 3 {
                Fate::Marked(now)
            } else {
                Fate::Sent(now)
            });
            return Some(pkt.id);
        }
        None
    }

    fn due(&self) -> Option<u64> {
        Some(self.next)
    }

    fn timer(&mut self, now: u64) {
        let seconds = |ns: u64| ns as f64 / 1e9;
        let curq = seconds(self.cq.time(now)).max(seconds(self.lq.time(now)));
        self.p += ALPHA * (curq - TARGET) + BETA * (curq - self.prevq);
        self.p = self.p.clamp(0.0, 1.0);
        self.p_cl = (self.p * self.s.k).min(1.0);
        self.p_c = self.p * self.p;
        self.prevq = curq;
        self.next += TUPDATE;
        self.told.push((now, self.p));
    }
}

/// Phases of load from an eighth of a link of 10 Mbit/s to five times that, with the four
/// codepoints in changing shares, pauses, bursts and steps of the rate.
pub fn scenes() -> Vec<Scene> {
    let names = ["phases 1", "phases 2", "phases 3", "phases 4"];
    names
        .into_iter()
        .enumerate()
        .map(|(i, name)| {
            let mut lcg = Lcg(9332 + i as u64);
            let mut arrivals = Vec::new();
            let mut now = 0;
            for _ in 0..14 {
                let end = now + 300 * MS + lcg.below(S);
                // 1514 bytes take 1.2112 ms.
                let gap = [250_000, 800_000, 1_150_000, 1_220_000, 2_000_000, 9_000_000];
                let gap = gap[lcg.below(6) as usize];
                let shares = [
                    [0, 0, 2, 0],
                    [1, 1, 1, 1],
                    [1, 1, 1, 3],
                    [2, 2, 0, 1],
                    [0, 1, 2, 1],
                ];
                let share = shares[lcg.below(5) as usize];
                let batch = 1 + lcg.below(4) * lcg.below(8);
                while now < end {
                    for _ in 0..batch {
                        arrivals.push(Arrival {
                            at: now,
                            flow: lcg.below(5) as u32,
                            size: [1514, 1514, 1514, 90, 700][lcg.below(5) as usize],
                            ecn: share[lcg.below(4) as usize],
                        });
                    }
                    now += gap * batch + lcg.below(gap / 2);
                }
                now += lcg.below(3) * 400 * MS;
            }
            let rates = if i % 2 == 0 {
                vec![(0, 10_000_000)]
            } else {
                vec![(0, 10_000_000), (3 * S, 3_000_000), (6 * S, 25_000_000)]
            };
            Scene {
                name,
                arrivals,
                rates,
            }
        })
        .collect()
}
