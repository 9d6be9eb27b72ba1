//! The link that drives a queue: integer nanoseconds. At one instant all arrivals come first, in
//! order, then timers, then one call of dequeue if the link is idle or has just become idle, even
//! when the queue is empty.

use std::collections::VecDeque;

/// One line of a trace.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    pub at: u64,
    pub flow: u32,
    pub size: u32,
    /// 0 Not-ECT, 1 ECT(1), 2 ECT(0), 3 CE.
    pub ecn: u8,
}

impl Arrival {
    pub fn is_capable(&self) -> bool {
        self.ecn != 0
    }
}

/// The fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Sent(u64),
    Marked(u64),
    /// Dropped by the AQM, at a dequeue.
    Dropped(u64),
    /// Refused by a full queue.
    Refused(u64),
    /// Evicted from a full queue.
    Evicted(u64),
}

/// A queue under test or a model of one.
pub trait Queue {
    /// Packet `id` of the trace arrives.
    fn enqueue(&mut self, now: u64, id: usize, arrival: &Arrival, fates: &mut [Option<Fate>]);
    /// Calls dequeue once and returns the packet that leaves.
    fn dequeue(&mut self, now: u64, fates: &mut [Option<Fate>]) -> Option<usize>;
    /// Returns when the timer is to be called.
    fn due(&self) -> Option<u64> {
        None
    }
    fn timer(&mut self, _now: u64) {}
}

/// A trace and the rates of the link: bits per second from each instant on.
#[derive(Clone, Debug)]
pub struct Scene {
    pub name: &'static str,
    pub arrivals: Vec<Arrival>,
    pub rates: Vec<(u64, u64)>,
}

/// Runs a scene until the queue has drained.
pub fn run(scene: &Scene, queue: &mut dyn Queue) -> Vec<Fate> {
    let rate_at = |t: u64| {
        let past = scene.rates.iter().take_while(|(from, _)| *from <= t);
        past.last().expect("the first rate holds from zero").1
    };
    let mut fates = vec![None; scene.arrivals.len()];
    let mut waiting: VecDeque<usize> = (0..scene.arrivals.len()).collect();
    // When the link becomes idle; `None` while it is idle.
    let mut busy_until: Option<u64> = None;
    loop {
        let next = waiting.front().map(|id| scene.arrivals[*id].at);
        let Some(now) = [next, busy_until].into_iter().flatten().min() else {
            break;
        };
        if let Some(due) = queue.due().filter(|due| *due < now) {
            queue.timer(due);
            continue;
        }
        while let Some(id) = waiting
            .front()
            .copied()
            .filter(|id| scene.arrivals[*id].at == now)
        {
            waiting.pop_front();
            queue.enqueue(now, id, &scene.arrivals[id], &mut fates);
        }
        while let Some(due) = queue.due().filter(|due| *due <= now) {
            queue.timer(due);
        }
        if busy_until.is_none_or(|end| end == now) {
            busy_until = queue.dequeue(now, &mut fates).map(|id| {
                let bit_ns = u128::from(scene.arrivals[id].size) * 8_000_000_000;
                let rate = u128::from(rate_at(now));
                now + bit_ns.div_ceil(rate) as u64
            });
        }
    }
    fates
        .into_iter()
        .enumerate()
        .map(|(id, fate)| fate.unwrap_or_else(|| panic!("packet {id} is unaccounted for")))
        .collect()
}
