//! The queues for which a transcribed controller decides: one with tail drop, and one for each
//! flow.

use std::collections::VecDeque;

use sluice_core::Rng;

use crate::link::{Arrival, Fate, Queue};
use crate::pie::{Controller, Decision, Held};

#[derive(Clone, Copy)]
struct Pkt {
    id: usize,
    size: u32,
    arrived: u64,
}

fn held(queue: &VecDeque<Pkt>) -> Held {
    Held {
        packets: queue.len(),
        bytes: queue.iter().map(|p| u64::from(p.size)).sum(),
    }
}

/// A controller and its queue with tail drop.
pub struct Plain {
    controller: Box<dyn Controller>,
    queue: VecDeque<Pkt>,
    limit: usize,
    rng: Rng,
    /// The probability after each update.
    pub told: Vec<(u64, f64)>,
}

impl Plain {
    pub fn new(controller: Box<dyn Controller>, limit: usize) -> Self {
        Plain {
            controller,
            queue: VecDeque::new(),
            limit,
            rng: Rng::from_seed(1),
            told: Vec::new(),
        }
    }
}

impl Queue for Plain {
    fn enqueue(&mut self, now: u64, id: usize, arrival: &Arrival, fates: &mut [Option<Fate>]) {
        let holds = held(&self.queue);
        if holds.packets >= self.limit {
            self.controller.refuse(now, holds);
            fates[id] = Some(Fate::Refused(now));
            return;
        }
        match self.controller.arrive(now, arrival, holds, &mut self.rng) {
            Decision::Enqueue => {}
            Decision::Mark => fates[id] = Some(Fate::Marked(now)),
            Decision::Drop => {
                fates[id] = Some(Fate::Dropped(now));
                return;
            }
        }
        self.queue.push_back(Pkt {
            id,
            size: arrival.size,
            arrived: now,
        });
    }

    fn dequeue(&mut self, now: u64, fates: &mut [Option<Fate>]) -> Option<usize> {
        let p = self.queue.pop_front()?;
        self.controller
            .depart(now, p.arrived, p.size, held(&self.queue));
        fates[p.id].get_or_insert(Fate::Sent(now));
        Some(p.id)
    }

    fn due(&self) -> Option<u64> {
        self.controller.due()
    }

    fn timer(&mut self, now: u64) {
        self.controller.update(held(&self.queue));
        self.told.push((now, self.controller.probability()));
    }
}

/// Flow queueing whose queues have controllers that are all updated on time, idle or not.
pub struct Fair {
    flows: Vec<Flow>,
    new: VecDeque<usize>,
    old: VecDeque<usize>,
    variant: &'static str,
    limit: usize,
    rng: Rng,
}

struct Flow {
    controller: Box<dyn Controller>,
    queue: VecDeque<Pkt>,
    credits: i64,
}

impl Fair {
    pub fn new(
        variant: &'static str,
        flows: usize,
        limit: usize,
        controller: impl Fn() -> Box<dyn Controller>,
    ) -> Self {
        Fair {
            flows: (0..flows)
                .map(|_| Flow {
                    controller: controller(),
                    queue: VecDeque::new(),
                    credits: 0,
                })
                .collect(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            variant,
            limit,
            rng: Rng::from_seed(1),
        }
    }

    fn overflow(&mut self, now: u64, fates: &mut [Option<Fate>]) {
        let is_dummynet = self.variant == "dummynet";
        let weight = |f: &Flow| match is_dummynet {
            true => f.queue.len() as u64,
            false => held(&f.queue).bytes,
        };
        let most = self.flows.iter().map(weight).max();
        let flow = self.flows.iter_mut().find(|f| Some(weight(f)) == most);
        let flow = flow.expect("some flow is the fattest");
        let half_packets = (flow.queue.len() / 2).clamp(1, 64);
        let mut packets = 0;
        loop {
            let p = flow
                .queue
                .pop_front()
                .expect("it does not become empty first");
            fates[p.id] = Some(Fate::Evicted(now));
            packets += 1;
            if is_dummynet || packets == half_packets {
                break;
            }
        }
        flow.controller.evict();
    }
}

impl Queue for Fair {
    fn enqueue(&mut self, now: u64, id: usize, arrival: &Arrival, fates: &mut [Option<Fate>]) {
        let i = arrival.flow as usize % self.flows.len();
        let all = self.flows.iter().map(|f| f.queue.len()).sum::<usize>();
        let flow = &mut self.flows[i];
        let holds = held(&flow.queue);
        if self.variant == "linux" && all >= self.limit {
            flow.controller.refuse(now, holds);
            fates[id] = Some(Fate::Refused(now));
            return;
        }
        match flow.controller.arrive(now, arrival, holds, &mut self.rng) {
            Decision::Enqueue => {}
            Decision::Mark => fates[id] = Some(Fate::Marked(now)),
            Decision::Drop => {
                fates[id] = Some(Fate::Dropped(now));
                return;
            }
        }
        flow.queue.push_back(Pkt {
            id,
            size: arrival.size,
            arrived: now,
        });
        if !self.new.contains(&i) && !self.old.contains(&i) {
            flow.credits = 1514;
            flow.controller.activate(now);
            self.new.push_back(i);
        }
        if self.flows.iter().map(|f| f.queue.len()).sum::<usize>() > self.limit {
            self.overflow(now, fates);
        }
    }

    fn dequeue(&mut self, now: u64, fates: &mut [Option<Fate>]) -> Option<usize> {
        let least = i64::from(self.variant != "dummynet");
        loop {
            let is_new = !self.new.is_empty();
            let list = if is_new { &mut self.new } else { &mut self.old };
            let i = list.pop_front()?;
            let flow = &mut self.flows[i];
            if flow.credits < least {
                flow.credits += 1514;
                self.old.push_back(i);
                continue;
            }
            if let Some(p) = flow.queue.pop_front() {
                flow.credits -= i64::from(p.size);
                let left = held(&flow.queue);
                flow.controller.depart(now, p.arrived, p.size, left);
                list.push_front(i);
                fates[p.id].get_or_insert(Fate::Sent(now));
                return Some(p.id);
            }
            if is_new && (self.variant != "linux" || !self.old.is_empty()) {
                self.old.push_back(i);
            } else {
                flow.controller.deactivate();
            }
        }
    }

    fn due(&self) -> Option<u64> {
        self.flows.iter().filter_map(|f| f.controller.due()).min()
    }

    fn timer(&mut self, now: u64) {
        for flow in &mut self.flows {
            if flow.controller.due() == Some(now) {
                flow.controller.update(held(&flow.queue));
            }
        }
    }
}
