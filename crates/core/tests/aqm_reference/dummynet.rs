//! dummynet's rules as plain loops over vectors: RFC 8289 and RFC 8290 with the deviations listed
//! in the module docs of `codel::dummynet` and `fq`. Written from those lists alone.

use std::collections::VecDeque;

use crate::link::{Arrival, Fate, Queue};

#[derive(Clone, Copy)]
struct Pkt {
    id: usize,
    size: u64,
    ecn: bool,
    us: u32,
}

#[derive(Clone, Copy)]
pub struct Settings {
    pub target_us: u32,
    pub interval_us: u32,
    pub ecn: bool,
}

struct Flow {
    queue: VecDeque<Pkt>,
    largest: u64,
    first_above: u32,
    drop_next: u32,
    count: u32,
    dropping: bool,
    /// The last 1/sqrt(count), times 65536.
    guess: u64,
    credits: i64,
}

impl Flow {
    fn new() -> Self {
        Flow {
            queue: VecDeque::new(),
            largest: 500,
            first_above: 0,
            drop_next: 0,
            count: 0,
            dropping: false,
            guess: 0,
            credits: 0,
        }
    }

    fn see(&mut self, arrival: &Arrival) {
        let size = u64::from(arrival.size);
        if size > self.largest {
            self.largest = size % 65_536;
        }
    }

    fn push(&mut self, now: u64, id: usize, arrival: &Arrival) {
        self.queue.push_back(Pkt {
            id,
            size: u64::from(arrival.size),
            ecn: arrival.is_capable(),
            us: us(now),
        });
    }

    fn next_packet(&mut self, now: u32, s: &Settings) -> (Option<Pkt>, bool) {
        let Some(p) = self.queue.pop_front() else {
            self.first_above = 0;
            return (None, false);
        };
        let left: u64 = self.queue.iter().map(|p| p.size).sum();
        let waited = (u64::from(now) + (1 << 32) - u64::from(p.us)) % (1 << 32);
        if waited < u64::from(s.target_us) || left <= self.largest {
            self.first_above = 0;
            return (Some(p), false);
        }
        if self.first_above == 0 {
            self.first_above = add(now, u64::from(s.interval_us));
            return (Some(p), false);
        }
        (Some(p), now >= self.first_above)
    }

    fn schedule(&mut self, from: u32, s: &Settings) {
        let interval = u128::from(s.interval_us);
        if self.count == 1 {
            self.guess = 45875; // seven tenths of 65536
            self.drop_next = add(from, u64::from(s.interval_us));
            return;
        }
        // Half of guess (3 - count guess^2): 2^32 units inside, nine bits dropped before the
        // product, sums and products truncated to 64 bits.
        let all = 1u128 << 64;
        let g = u128::from(self.guess);
        let inside = (3 * (1u128 << 32) + all - u128::from(self.count) * g * g % all) % all;
        let next = g * (inside / 512) % all / (1 << 24);
        self.guess = (next % 65536) as u64;
        self.drop_next = add(from, (interval * next % all / 65536) as u64);
    }

    fn codel(&mut self, now_ns: u64, s: &Settings, fates: &mut [Option<Fate>]) -> Option<Pkt> {
        let now = us(now_ns);
        let (mut packet, mut above) = self.next_packet(now, s);
        if self.dropping {
            self.dropping = above;
            while self.dropping && now >= self.drop_next {
                let p = packet.expect("an empty queue is not above target");
                if s.ecn && p.ecn {
                    fates[p.id] = Some(Fate::Marked(now_ns));
                    self.count += 1;
                    self.schedule(self.drop_next, s);
                    return packet;
                }
                fates[p.id] = Some(Fate::Dropped(now_ns));
                (packet, above) = self.next_packet(now, s);
                if above {
                    self.count += 1;
                    self.schedule(self.drop_next, s);
                } else {
                    self.dropping = false;
                }
            }
        } else if above {
            let p = packet.expect("an empty queue is not above target");
            if s.ecn && p.ecn {
                fates[p.id] = Some(Fate::Marked(now_ns));
            } else {
                fates[p.id] = Some(Fate::Dropped(now_ns));
                (packet, _) = self.next_packet(now, s);
            }
            self.dropping = true;
            let ago = (u64::from(now) + (1 << 32) - u64::from(self.drop_next)) % (1 << 32);
            let keeps = self.count > 2 && ago < u64::from(s.interval_us) * 8 % (1 << 32);
            self.count = if keeps { self.count - 2 } else { 1 };
            self.schedule(now, s);
        }
        packet
    }
}

/// CoDel in a dummynet queue of `limit` slots.
pub struct Codel {
    flow: Flow,
    settings: Settings,
    limit: usize,
}

impl Codel {
    pub fn new(settings: Settings, limit: usize) -> Self {
        Codel {
            flow: Flow::new(),
            settings,
            limit,
        }
    }
}

impl Queue for Codel {
    fn enqueue(&mut self, now: u64, id: usize, arrival: &Arrival, fates: &mut [Option<Fate>]) {
        self.flow.see(arrival);
        if self.flow.queue.len() >= self.limit {
            fates[id] = Some(Fate::Refused(now));
        } else {
            self.flow.push(now, id, arrival);
        }
    }

    fn dequeue(&mut self, now: u64, fates: &mut [Option<Fate>]) -> Option<usize> {
        let p = self.flow.codel(now, &self.settings, fates)?;
        fates[p.id].get_or_insert(Fate::Sent(now));
        Some(p.id)
    }
}

pub struct FqCodel {
    flows: Vec<Flow>,
    new: VecDeque<usize>,
    old: VecDeque<usize>,
    settings: Settings,
    quantum: i64,
    limit: usize,
}

impl FqCodel {
    pub fn new(settings: Settings, flows: usize, quantum: i64, limit: usize) -> Self {
        FqCodel {
            flows: (0..flows).map(|_| Flow::new()).collect(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            settings,
            quantum,
            limit,
        }
    }
}

impl Queue for FqCodel {
    fn enqueue(&mut self, now: u64, id: usize, arrival: &Arrival, fates: &mut [Option<Fate>]) {
        let i = arrival.flow as usize % self.flows.len();
        let flow = &mut self.flows[i];
        flow.see(arrival);
        flow.push(now, id, arrival);
        if !self.new.contains(&i) && !self.old.contains(&i) {
            flow.credits = self.quantum;
            flow.dropping = false;
            flow.first_above = 0;
            self.new.push_back(i);
        }
        if self.flows.iter().map(|f| f.queue.len()).sum::<usize>() > self.limit {
            let most = self.flows.iter().map(|f| f.queue.len()).max();
            let longest = self.flows.iter_mut().find(|f| Some(f.queue.len()) == most);
            let p = longest.and_then(|f| f.queue.pop_front());
            let p = p.expect("some flow holds a packet");
            fates[p.id] = Some(Fate::Evicted(now));
        }
    }

    fn dequeue(&mut self, now: u64, fates: &mut [Option<Fate>]) -> Option<usize> {
        loop {
            let is_new = !self.new.is_empty();
            let list = if is_new { &mut self.new } else { &mut self.old };
            let i = list.pop_front()?;
            let flow = &mut self.flows[i];
            if flow.credits < 0 {
                flow.credits += self.quantum;
                self.old.push_back(i);
                continue;
            }
            match flow.codel(now, &self.settings, fates) {
                Some(p) => {
                    flow.credits -= p.size as i64;
                    list.push_front(i);
                    fates[p.id].get_or_insert(Fate::Sent(now));
                    return Some(p.id);
                }
                None if is_new => self.old.push_back(i),
                None => {}
            }
        }
    }
}

fn us(ns: u64) -> u32 {
    (ns / 1000 % (1 << 32)) as u32
}

fn add(t: u32, more: u64) -> u32 {
    ((u64::from(t) + more) % (1 << 32)) as u32
}
