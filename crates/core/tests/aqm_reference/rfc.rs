//! RFC 8289 sections 5.2 to 5.6 and RFC 8290 section 4, transcribed line by line into the simplest
//! Rust. Where the RFCs leave a choice open, the module docs of `codel` and `fq` decide.

use std::collections::VecDeque;

use crate::link::{Arrival, Fate, Queue};

#[derive(Clone, Copy)]
struct Pkt {
    id: usize,
    size: i64,
    ecn: bool,
    tstamp: i64,
}

pub struct Settings {
    pub target: i64,
    pub interval: i64,
    pub maxpacket: i64,
    pub ecn: bool,
}

/// RFC 8289 sections 5.2 and 5.3.
#[derive(Default)]
struct CodelVars {
    first_above_time: i64,
    drop_next: i64,
    count: i64,
    lastcount: i64,
    dropping: bool,
}

struct DodequeueResult {
    p: Option<Pkt>,
    ok_to_drop: bool,
}

/// A queue with CoDel.
#[derive(Default)]
struct CodelQueue {
    q: VecDeque<Pkt>,
    v: CodelVars,
}

impl CodelQueue {
    fn bytes(&self) -> i64 {
        self.q.iter().map(|p| p.size).sum()
    }

    /// RFC 8289 section 5.6.
    fn dodequeue(&mut self, now: i64, s: &Settings) -> DodequeueResult {
        let mut r = DodequeueResult {
            p: self.q.pop_front(),
            ok_to_drop: false,
        };
        let Some(p) = r.p else {
            self.v.first_above_time = 0;
            return r;
        };
        let sojourn_time = now - p.tstamp;
        if sojourn_time < s.target || self.bytes() <= s.maxpacket {
            self.v.first_above_time = 0;
        } else if self.v.first_above_time == 0 {
            self.v.first_above_time = now + s.interval;
        } else if now >= self.v.first_above_time {
            r.ok_to_drop = true;
        }
        r
    }

    /// RFC 8289 section 5.5. Every packet that is not returned gets its fate here.
    fn deque(&mut self, now: i64, s: &Settings, fates: &mut [Option<Fate>]) -> Option<Pkt> {
        let mut r = self.dodequeue(now, s);
        if self.v.dropping {
            if !r.ok_to_drop {
                self.v.dropping = false;
            }
            while now >= self.v.drop_next && self.v.dropping {
                let p = r.p.expect("only a packet is ok to drop");
                if s.ecn && p.ecn {
                    fates[p.id] = Some(Fate::Marked(now as u64));
                    self.v.count += 1;
                    self.v.drop_next = control_law(self.v.drop_next, self.v.count, s);
                    return Some(p);
                }
                fates[p.id] = Some(Fate::Dropped(now as u64));
                self.v.count += 1;
                r = self.dodequeue(now, s);
                if !r.ok_to_drop {
                    self.v.dropping = false;
                } else {
                    self.v.drop_next = control_law(self.v.drop_next, self.v.count, s);
                }
            }
        } else if r.ok_to_drop {
            let p = r.p.expect("only a packet is ok to drop");
            if s.ecn && p.ecn {
                fates[p.id] = Some(Fate::Marked(now as u64));
            } else {
                fates[p.id] = Some(Fate::Dropped(now as u64));
                r = self.dodequeue(now, s);
            }
            self.v.dropping = true;
            let delta = self.v.count - self.v.lastcount;
            self.v.count = 1;
            if delta > 1 && now - self.v.drop_next < 16 * s.interval {
                self.v.count = delta;
            }
            self.v.drop_next = control_law(now, self.v.count, s);
            self.v.lastcount = self.v.count;
        }
        r.p
    }
}

/// `t + floor(interval / sqrt(count))`: the largest whole step whose square, times `count`, is at
/// most the square of the interval, bit by bit.
fn control_law(t: i64, count: i64, s: &Settings) -> i64 {
    let mut step = 0i128;
    for bit in (0..40).rev() {
        let larger = step + (1 << bit);
        if larger * larger * i128::from(count) <= i128::from(s.interval).pow(2) {
            step = larger;
        }
    }
    t + step as i64
}

/// CoDel alone, with tail drop at `limit` packets.
pub struct Codel {
    queue: CodelQueue,
    settings: Settings,
    limit: usize,
}

impl Codel {
    pub fn new(settings: Settings, limit: usize) -> Self {
        Codel {
            queue: CodelQueue::default(),
            settings,
            limit,
        }
    }
}

impl Queue for Codel {
    fn enqueue(&mut self, now: u64, id: usize, arrival: &Arrival, fates: &mut [Option<Fate>]) {
        if self.queue.q.len() >= self.limit {
            fates[id] = Some(Fate::Refused(now));
            return;
        }
        self.queue.q.push_back(pkt(now, id, arrival));
    }

    fn dequeue(&mut self, now: u64, fates: &mut [Option<Fate>]) -> Option<usize> {
        let p = self.queue.deque(now as i64, &self.settings, fates)?;
        fates[p.id].get_or_insert(Fate::Sent(now));
        Some(p.id)
    }
}

/// RFC 8290.
pub struct FqCodel {
    flows: Vec<Flow>,
    new: VecDeque<usize>,
    old: VecDeque<usize>,
    settings: Settings,
    quantum: i64,
    limit: usize,
    batch: usize,
}

#[derive(Default)]
struct Flow {
    queue: CodelQueue,
    credits: i64,
}

impl FqCodel {
    pub fn new(settings: Settings, flows: usize, quantum: i64, limit: usize, batch: usize) -> Self {
        FqCodel {
            flows: (0..flows).map(|_| Flow::default()).collect(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            settings,
            quantum,
            limit,
            batch,
        }
    }
}

impl Queue for FqCodel {
    /// RFC 8290 section 4.1.
    fn enqueue(&mut self, now: u64, id: usize, arrival: &Arrival, fates: &mut [Option<Fate>]) {
        let flow = arrival.flow as usize % self.flows.len();
        self.flows[flow].queue.q.push_back(pkt(now, id, arrival));
        if !self.new.contains(&flow) && !self.old.contains(&flow) {
            self.new.push_back(flow);
            self.flows[flow].credits = self.quantum;
        }
        let held: usize = self.flows.iter().map(|f| f.queue.q.len()).sum();
        if held > self.limit {
            let most = self.flows.iter().map(|f| f.queue.bytes()).max();
            let fattest = self
                .flows
                .iter()
                .position(|f| Some(f.queue.bytes()) == most)
                .expect("some flow is the fattest");
            let queue = &mut self.flows[fattest].queue.q;
            for _ in 0..(queue.len() / 2).clamp(1, self.batch) {
                let p = queue.pop_front().expect("half of the queue is there");
                fates[p.id] = Some(Fate::Evicted(now));
            }
        }
    }

    /// RFC 8290 section 4.2.
    fn dequeue(&mut self, now: u64, fates: &mut [Option<Fate>]) -> Option<usize> {
        loop {
            let is_new = !self.new.is_empty();
            let list = if is_new { &mut self.new } else { &mut self.old };
            let flow = *list.front()?;
            if self.flows[flow].credits <= 0 {
                self.flows[flow].credits += self.quantum;
                list.pop_front();
                self.old.push_back(flow);
                continue;
            }
            let p = self.flows[flow]
                .queue
                .deque(now as i64, &self.settings, fates);
            let Some(p) = p else {
                list.pop_front();
                if is_new {
                    self.old.push_back(flow);
                }
                continue;
            };
            self.flows[flow].credits -= p.size;
            fates[p.id].get_or_insert(Fate::Sent(now));
            return Some(p.id);
        }
    }
}

fn pkt(now: u64, id: usize, arrival: &Arrival) -> Pkt {
    Pkt {
        id,
        size: i64::from(arrival.size),
        ecn: arrival.is_capable(),
        tstamp: now as i64,
    }
}
