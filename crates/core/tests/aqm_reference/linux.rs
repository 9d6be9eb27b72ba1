//! The Linux rules as plain loops over vectors: RFC 8289 and RFC 8290 with the deviations listed in
//! the module docs of `codel::linux` and `fq`. Written from those lists alone.

use std::collections::VecDeque;

use crate::link::{Arrival, Fate, Queue};

#[derive(Clone, Copy)]
struct Pkt {
    id: usize,
    size: u64,
    ecn: bool,
    stamp: Ticks,
}

/// Ticks of 1024 ns, in 32 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Ticks(u32);

impl Ticks {
    fn of(ns: u64) -> Self {
        Ticks((ns / 1024 % (1 << 32)) as u32)
    }

    fn plus(self, more: u32) -> Self {
        Ticks(((u64::from(self.0) + u64::from(more)) % (1 << 32)) as u32)
    }

    /// Returns the signed distance from `other` in 32-bit arithmetic.
    fn distance(self, other: Ticks) -> i64 {
        let d = (i64::from(self.0) - i64::from(other.0)).rem_euclid(1 << 32);
        if d < 1 << 31 { d } else { d - (1 << 32) }
    }
}

#[derive(Clone, Copy)]
pub struct Settings {
    pub target_ns: u64,
    pub interval_ns: u64,
    pub mtu: u64,
    pub ecn: bool,
    pub ce_threshold_ns: Option<u64>,
    /// Whether a dequeue that finds the queue empty resets `first_above`, as the kernel does from
    /// 2026 on.
    pub resets_when_empty: bool,
}

impl Settings {
    fn interval(&self) -> u32 {
        Ticks::of(self.interval_ns).0
    }
}

struct Vars {
    first_above: Ticks,
    drop_next: Ticks,
    count: u32,
    last_count: u32,
    dropping: bool,
    /// 1/sqrt(count) times 65536, below 65536.
    root: u64,
}

impl Vars {
    fn new() -> Self {
        Vars {
            first_above: Ticks(0),
            drop_next: Ticks(0),
            count: 0,
            last_count: 0,
            dropping: false,
            root: 0,
        }
    }

    /// Returns whether the queue has been above target for longer than an interval.
    fn judge(&mut self, p: Option<&Pkt>, backlog: u64, now: Ticks, s: &Settings) -> bool {
        let Some(p) = p else {
            self.first_above = Ticks(0);
            return false;
        };
        let waited = now.distance(p.stamp);
        if waited < i64::from(Ticks::of(s.target_ns).0) || backlog <= s.mtu {
            self.first_above = Ticks(0);
            false
        } else if self.first_above == Ticks(0) {
            self.first_above = now.plus(s.interval());
            false
        } else {
            now.distance(self.first_above) > 0
        }
    }

    /// Newton: root (3 - count root^2) / 2, all in 2^-32 units, products truncated to 64 bits.
    fn improve(&mut self) {
        let wide = u128::from(self.root) * 65536;
        let square = wide * wide / (1 << 32);
        let three = 3u128 << 32;
        let all = 1u128 << 64;
        let rest = (three + all - u128::from(self.count) * square % all) % all;
        let product = (rest / 4) * wide % all;
        // One half, minus the two bits that were dropped, back to 2^-32 and then to 2^-16 units.
        self.root = (product / (1 << 31) / (1 << 16) % (1 << 16)) as u64;
    }

    fn after(&self, t: Ticks, s: &Settings) -> Ticks {
        t.plus((u64::from(s.interval()) * self.root / 65536) as u32)
    }
}

/// The queue of a flow, and the number of bytes that the whole discipline holds.
struct Store<'a> {
    queue: &'a mut VecDeque<Pkt>,
    backlog: &'a mut u64,
}

impl Store<'_> {
    fn take(&mut self) -> Option<Pkt> {
        let p = self.queue.pop_front()?;
        *self.backlog -= p.size;
        Some(p)
    }
}

fn codel_dequeue(
    v: &mut Vars,
    store: &mut Store<'_>,
    now_ns: u64,
    s: &Settings,
    fates: &mut [Option<Fate>],
) -> Option<Pkt> {
    let now = Ticks::of(now_ns);
    let Some(mut p) = store.take() else {
        v.dropping = false;
        if s.resets_when_empty {
            v.first_above = Ticks(0);
        }
        return None;
    };
    let above = v.judge(Some(&p), *store.backlog, now, s);
    if v.dropping && !above {
        v.dropping = false;
    } else if v.dropping {
        while v.dropping && now.distance(v.drop_next) >= 0 {
            v.count = (u64::from(v.count) + 1) as u32;
            v.improve();
            if s.ecn && p.ecn {
                fates[p.id] = Some(Fate::Marked(now_ns));
                v.drop_next = v.after(v.drop_next, s);
                return Some(p);
            }
            fates[p.id] = Some(Fate::Dropped(now_ns));
            let next = store.take();
            if v.judge(next.as_ref(), *store.backlog, now, s) {
                v.drop_next = v.after(v.drop_next, s);
            } else {
                v.dropping = false;
            }
            p = next?;
        }
    } else if above {
        let mut left = Some(p);
        if s.ecn && p.ecn {
            fates[p.id] = Some(Fate::Marked(now_ns));
        } else {
            fates[p.id] = Some(Fate::Dropped(now_ns));
            left = store.take();
            v.judge(left.as_ref(), *store.backlog, now, s);
        }
        v.dropping = true;
        let delta = (i64::from(v.count) - i64::from(v.last_count)).rem_euclid(1 << 32);
        let since = now.distance(v.drop_next);
        // The comparison itself is on the 32-bit clock.
        let recent = Ticks(since.rem_euclid(1 << 32) as u32)
            .distance(Ticks((u64::from(s.interval()) * 16 % (1 << 32)) as u32))
            < 0;
        if delta > 1 && recent {
            v.count = delta as u32;
            v.improve();
        } else {
            v.count = 1;
            v.root = 65535;
        }
        v.last_count = v.count;
        v.drop_next = v.after(now, s);
        return left;
    }
    Some(p)
}

/// Returns the fate of a packet that leaves: already marked, marked by the threshold, or neither.
fn leave(p: &Pkt, now_ns: u64, s: &Settings, fates: &mut [Option<Fate>]) -> usize {
    // A threshold that is off is the largest signed number.
    let threshold = s.ce_threshold_ns.map_or(Ticks(i32::MAX as u32), Ticks::of);
    let waited = Ticks(Ticks::of(now_ns).0.wrapping_sub(p.stamp.0));
    let beyond = waited.distance(threshold) > 0;
    fates[p.id].get_or_insert(if beyond && p.ecn {
        Fate::Marked(now_ns)
    } else {
        Fate::Sent(now_ns)
    });
    p.id
}

/// Plain CoDel with tail drop.
pub struct Codel {
    queue: VecDeque<Pkt>,
    backlog: u64,
    vars: Vars,
    settings: Settings,
    limit: usize,
}

impl Codel {
    pub fn new(settings: Settings, limit: usize) -> Self {
        Codel {
            queue: VecDeque::new(),
            backlog: 0,
            vars: Vars::new(),
            settings,
            limit,
        }
    }
}

impl Queue for Codel {
    fn enqueue(&mut self, now: u64, id: usize, arrival: &Arrival, fates: &mut [Option<Fate>]) {
        if self.queue.len() == self.limit {
            fates[id] = Some(Fate::Refused(now));
        } else {
            self.backlog += u64::from(arrival.size);
            self.queue.push_back(pkt(now, id, arrival));
        }
    }

    fn dequeue(&mut self, now: u64, fates: &mut [Option<Fate>]) -> Option<usize> {
        let mut store = Store {
            queue: &mut self.queue,
            backlog: &mut self.backlog,
        };
        let p = codel_dequeue(&mut self.vars, &mut store, now, &self.settings, fates)?;
        Some(leave(&p, now, &self.settings, fates))
    }
}

struct Flow {
    queue: VecDeque<Pkt>,
    vars: Vars,
    deficit: i64,
}

pub struct FqCodel {
    flows: Vec<Flow>,
    new: VecDeque<usize>,
    old: VecDeque<usize>,
    backlog: u64,
    settings: Settings,
    quantum: i64,
    limit: usize,
    drop_batch: usize,
}

impl FqCodel {
    pub fn new(settings: Settings, flows: usize, quantum: i64, limit: usize, batch: usize) -> Self {
        FqCodel {
            flows: (0..flows)
                .map(|_| Flow {
                    queue: VecDeque::new(),
                    vars: Vars::new(),
                    deficit: 0,
                })
                .collect(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            backlog: 0,
            settings,
            quantum,
            limit,
            drop_batch: batch,
        }
    }

    fn overflow(&mut self, now: u64, fates: &mut [Option<Fate>]) {
        let bytes = |flow: &Flow| flow.queue.iter().map(|p| p.size).sum::<u64>();
        let mut fattest = 0;
        for i in 1..self.flows.len() {
            if bytes(&self.flows[i]) > bytes(&self.flows[fattest]) {
                fattest = i;
            }
        }
        let half = bytes(&self.flows[fattest]) / 2;
        let flow = &mut self.flows[fattest];
        let (mut freed, mut gone) = (0, 0);
        loop {
            let p = flow.queue.pop_front().expect("less than all is thrown out");
            fates[p.id] = Some(Fate::Evicted(now));
            freed += p.size;
            gone += 1;
            if gone == self.drop_batch || freed >= half {
                break;
            }
        }
        self.backlog -= freed;
        flow.vars.count = ((u64::from(flow.vars.count) + gone as u64) % (1 << 32)) as u32;
    }
}

impl Queue for FqCodel {
    fn enqueue(&mut self, now: u64, id: usize, arrival: &Arrival, fates: &mut [Option<Fate>]) {
        let flow = arrival.flow as usize % self.flows.len();
        self.flows[flow].queue.push_back(pkt(now, id, arrival));
        self.backlog += u64::from(arrival.size);
        if !self.new.contains(&flow) && !self.old.contains(&flow) {
            self.new.push_back(flow);
            self.flows[flow].deficit = self.quantum;
        }
        if self.flows.iter().map(|f| f.queue.len()).sum::<usize>() > self.limit {
            self.overflow(now, fates);
        }
    }

    fn dequeue(&mut self, now: u64, fates: &mut [Option<Fate>]) -> Option<usize> {
        loop {
            let from_new = !self.new.is_empty();
            let flow = *if from_new {
                self.new.front()
            } else {
                self.old.front()
            }?;
            let take_off = |this: &mut Self| {
                if from_new {
                    this.new.pop_front();
                } else {
                    this.old.pop_front();
                }
            };
            if self.flows[flow].deficit <= 0 {
                self.flows[flow].deficit += self.quantum;
                take_off(self);
                self.old.push_back(flow);
                continue;
            }
            let f = &mut self.flows[flow];
            let mut store = Store {
                queue: &mut f.queue,
                backlog: &mut self.backlog,
            };
            match codel_dequeue(&mut f.vars, &mut store, now, &self.settings, fates) {
                Some(p) => {
                    f.deficit -= p.size as i64;
                    return Some(leave(&p, now, &self.settings, fates));
                }
                None => {
                    let stays = from_new && !self.old.is_empty();
                    take_off(self);
                    if stays {
                        self.old.push_back(flow);
                    }
                }
            }
        }
    }
}

fn pkt(now: u64, id: usize, arrival: &Arrival) -> Pkt {
    Pkt {
        id,
        size: u64::from(arrival.size),
        ecn: arrival.is_capable(),
        stamp: Ticks::of(now),
    }
}
